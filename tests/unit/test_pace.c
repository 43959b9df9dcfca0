// SPDX-License-Identifier: Apache-2.0
// The rate that the owner of a queue pair has set: kept by requests, datagrams too, without
// congestion control and beside it.
#include "forge.h"
#include "nic/pace.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    US = 1000,
    MTU = 1024,
    FRAME = MTU + VB_BTH_BYTES + VB_ICRC_BYTES, // a middle packet
    RATE_BPS = 125 * 1000 * 1000,               // 125 bytes in a microsecond
    BURST = 4096,
};

static struct forge *open_as(enum vb_qp_type type)
{
    struct forge_opts o = forge_defaults();
    o.type = type;
    o.qkey = 0x1234;
    return forge_open(&o);
}

static void limit(struct forge *f, uint64_t rate_Bps)
{
    assert_int_equal(vb_dev_qp_limit(f->dev, f->ctx->qpn, rate_Bps, BURST), 0);
}

static void test_a_bucket_of_bytes(void **state)
{
    (void)state;
    struct vb_pace p;

    vb_pace_set(&p, 1000, 100); // a byte in a millisecond, 100 at once
    assert_int_equal(vb_pace_holds(&p, 1000000000), 0);
    vb_pace_charge(&p, 1000000000, 100);
    assert_int_equal(vb_pace_holds(&p, 1000000000), 0); // what was saved up is spent
    vb_pace_charge(&p, 1000000000, 50);
    assert_int_equal(vb_pace_holds(&p, 1000000000), 1000000000 + 50 * 1000000 + 25 * 1000000);
    assert_int_equal(vb_pace_holds(&p, 1050000000), 0);
    vb_pace_charge(&p, 9000000000, 100); // of a long pause only a burst is left
    vb_pace_charge(&p, 9000000000, 1);
    assert_int_not_equal(vb_pace_holds(&p, 9000000000), 0);
    vb_pace_set(&p, 0, 100);
    vb_pace_charge(&p, 0, UINT32_MAX);
    assert_int_equal(vb_pace_holds(&p, 0), 0);
}

// A rate that changes while the clock is younger than a burst: the time before 0 is not counted.
static void test_a_rate_changes_while_the_clock_is_young(void **state)
{
    (void)state;
    struct vb_pace p;

    vb_pace_set(&p, 1000, 100);
    vb_pace_change(&p, 0, 2000, 100);
    assert_int_equal(p.rate_Bps, 2000);
    assert_int_equal(p.free_ns, 0);
    assert_int_equal(vb_pace_holds(&p, 0), 0);
}

static void test_requests_keep_the_rate(void **state)
{
    (void)state;
    struct forge *f = open_as(VB_QPT_RC);

    limit(f, RATE_BPS);
    forge_post(f, 1, VB_WR_WRITE, 0, 100 * MTU);
    forge_run(f);
    uint32_t at_once = f->sent_count;
    assert_in_range(at_once, 1, BURST / MTU + 1);
    for (int i = 0; i < 400; i++)
        forge_advance(f, US);
    assert_in_range(f->sent_count, 50000 / FRAME - 4, 50000 / FRAME + 8);
    for (int i = 0; i < 1000; i++) {
        forge_advance(f, US);
        forge_ack(f, forge_sent(f, f->sent_count - 1)->psn);
    }
    assert_int_equal(f->sent_count, 100);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

// Nor is it lifted by who asks for it again and again, or for another one in between.
static void test_a_limit_that_is_set_again_stays(void **state)
{
    (void)state;
    struct forge *f = open_as(VB_QPT_RC);

    limit(f, RATE_BPS);
    forge_post(f, 1, VB_WR_WRITE, 0, 100 * MTU);
    forge_run(f);
    for (int i = 0; i < 400; i++) {
        limit(f, i % 2 ? RATE_BPS : RATE_BPS / 2);
        forge_advance(f, US);
    }
    assert_in_range(f->sent_count, 25000 / FRAME - 4, 50000 / FRAME + 8);
    uint32_t before = f->sent_count; // and what is owed at a low one does not hold up a higher
    limit(f, 100 * (uint64_t)RATE_BPS);
    for (int i = 0; i < 50; i++)
        forge_advance(f, US);
    assert_true(f->sent_count >= before + 10);
    forge_close(f);
}

static void test_datagrams_keep_the_rate(void **state)
{
    (void)state;
    struct forge *f = open_as(VB_QPT_UD);

    limit(f, RATE_BPS);
    const struct vb_sge sge = {(uintptr_t)f->memory, MTU, f->key};
    struct vb_send_wr wr = {.opcode = VB_WR_SEND,
                            .sge = &sge,
                            .num_sge = 1,
                            .to = {.qpn = FORGE_PEER_QPN, .qkey = 0x1234}};
    memcpy(wr.to.gid, f->remote.b, 16);
    for (int i = 0; i < 16; i++)
        forge_post_send(f, &wr);
    forge_run(f);
    assert_in_range(f->sent_count, 1, BURST / MTU + 1);
    for (int i = 0; i < 200; i++)
        forge_advance(f, US);
    assert_int_equal(f->sent_count, 16);
    forge_close(f);
}

static void test_without_a_limit_all_leaves_at_once(void **state)
{
    (void)state;
    struct forge *f = open_as(VB_QPT_RC);

    limit(f, 0); // none was set
    assert_null(f->ctx->congestion);
    limit(f, RATE_BPS);
    limit(f, 0);
    forge_post(f, 1, VB_WR_WRITE, 0, 100 * MTU);
    forge_run(f);
    assert_int_equal(f->sent_count, 100);
    assert_int_equal(vb_dev_qp_limit(f->dev, f->ctx->qpn ^ 0x4000, RATE_BPS, 0), -ENOENT);
    forge_close(f);
}

// A limit lifted while it holds: the rest leaves when the timer comes.
static void test_a_lifted_limit_lets_go(void **state)
{
    (void)state;
    struct forge *f = open_as(VB_QPT_RC);

    limit(f, RATE_BPS);
    forge_post(f, 1, VB_WR_WRITE, 0, 100 * MTU);
    forge_run(f);
    assert_true(f->sent_count < 100);
    limit(f, 0);
    for (int i = 0; i < 100; i++)
        forge_advance(f, US);
    assert_int_equal(f->sent_count, 100);
    forge_close(f);
}

// The owner's rate is no part of congestion control: marks and CNPs mean nothing while that is off.
static void test_congestion_control_stays_off(void **state)
{
    (void)state;
    struct forge *f = open_as(VB_QPT_RC);
    struct vb_packet cnp = forge_packet(f, VB_CNP, 0);

    limit(f, RATE_BPS);
    cnp.marks = VB_MARK_BECN;
    assert_int_equal(forge_give(f, &cnp), VB_RX_STRANGER);
    assert_int_equal(forge_counters(f)->rp_cnp_ignored, 1);
    forge_post_recv(f, 1, 0, 100);
    struct vb_packet send = forge_packet(f, VB_RC_SEND_ONLY, 500);
    forge_queue(f, &send);
    f->feed[f->feed_count - 1].ce = true;
    forge_run(f);
    assert_int_equal(forge_counters(f)->np_cnp_sent, 0);
    forge_modify(f, VB_QPS_RESET); // forgets the rate
    assert_int_equal(f->ctx->congestion->pace.rate_Bps, 0);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bucket_of_bytes),
        cmocka_unit_test(test_a_rate_changes_while_the_clock_is_young),
        cmocka_unit_test(test_requests_keep_the_rate),
        cmocka_unit_test(test_a_limit_that_is_set_again_stays),
        cmocka_unit_test(test_datagrams_keep_the_rate),
        cmocka_unit_test(test_without_a_limit_all_leaves_at_once),
        cmocka_unit_test(test_a_lifted_limit_lets_go),
        cmocka_unit_test(test_congestion_control_stays_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
