// SPDX-License-Identifier: Apache-2.0
// What the fuzzers of live queue pairs found: each was a failure once.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- a queue pair that fails on purpose

static uint8_t spoils_nothing(void *ctx, uint32_t qpn, uint8_t wqe_opcode, bool receive)
{
    (void)ctx;
    (void)qpn;
    (void)wqe_opcode;
    (void)receive;
    return VB_SYN_OK;
}

static bool fails_once(void *ctx, uint32_t qpn)
{
    bool *fails = ctx, now = *fails;
    (void)qpn;
    *fails = false;
    return now;
}

// Runs to the end in one call, as ports do, or step by step.
static void run(struct forge *f, bool by_steps)
{
    if (!by_steps)
        vb_pu_poll(f->pu, f->now_ns);
    while (by_steps && vb_pu_step(f->pu, f->now_ns).kind != VB_STEP_NONE)
        ;
}

static void test_who_fails_on_purpose_flushes_at_once(void **state)
{
    (void)state;
    for (int by_steps = 0; by_steps < 2; by_steps++) {
        struct forge *f = forge_open(NULL);
        bool fails = true;
        const struct vb_dev_hooks hooks = {&fails, spoils_nothing, fails_once};
        vb_dev_hook(f->dev, &hooks);
        vb_pu_observe(f->pu, NULL, NULL);
        forge_post(f, 1, VB_WR_SEND, 0, 1);
        forge_post(f, 2, VB_WR_SEND, 0, 1);
        forge_post_recv(f, 3, 0, 1);
        run(f, by_steps);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        forge_expect_done(f, 1, VB_WC_FLUSHED);
        forge_expect_done(f, 2, VB_WC_FLUSHED);
        forge_expect_recv(f, 3, VB_WC_FLUSHED, 0);
        forge_expect_none(f);
        forge_close(f);
    }
}

static void test_who_does_not_fail_sends(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    bool fails = false;
    const struct vb_dev_hooks hooks = {&fails, spoils_nothing, fails_once};
    vb_dev_hook(f->dev, &hooks);
    forge_post(f, 1, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_expect_none(f);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_fails_on_purpose_flushes_at_once),
        cmocka_unit_test(test_who_does_not_fail_sends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
