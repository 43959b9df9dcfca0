// SPDX-License-Identifier: Apache-2.0
// What becomes of shared receives and of completions when those that used them go: through the
// public interface.
#include "duo.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    DEPTH = 7, // with the entry that stays empty, a whole ring
};

static int post_one(struct vb_srq *srq, const struct duo_end *e, uint64_t wr_id)
{
    const struct vb_sge sge = {(uintptr_t)e->memory, DUO_BYTES, vb_mr_key(e->mr)};
    return vb_post_srq(srq, &(struct vb_recv_wr){.wr_id = wr_id, .sge = &sge, .num_sge = 1}, 1);
}

// A sender whose second packets get lost for ever leaves a receive in use. When its queue pair is
// destroyed, the receive can be posted again.
static void test_a_receive_in_use_comes_back(void **state)
{
    struct duo d;
    struct vb_srq *srq;
    duo_open(&d, *state);
    assert_int_equal(vb_srq_create(d.end[1].pd, &(struct vb_srq_opts){.depth = DEPTH}, &srq), 0);
    assert_int_equal(vb_nic_set_faults(d.end[0].nic, "drop=#2+,dir=tx,op=send", NULL), 0);
    for (uint32_t round = 0; round < 2 * DEPTH; round++) {
        struct vb_qp *here = duo_make_qp(&d.end[0], (struct vb_qp_opts){0});
        struct vb_qp *there = duo_make_qp(&d.end[1], (struct vb_qp_opts){.srq = srq});
        duo_join(&d, here, there);
        assert_int_equal(post_one(srq, &d.end[1], round), 1); // the others never run out
        uint64_t before = duo_counter(d.end[1].nic, "rx_send_requests");
        // The first packet of each connection must pass: the count starts anew with the rules.
        assert_int_equal(vb_nic_set_faults(d.end[0].nic, "drop=#2+,dir=tx,op=send", NULL), 0);
        duo_post(&d, here, duo_wr(&d, VB_WR_SEND, round), 0, 6000);
        while (duo_counter(d.end[1].nic, "rx_send_requests") == before)
            ;
        assert_int_equal(vb_qp_destroy(there), 0);
        assert_int_equal(vb_qp_destroy(here), 0);
    }
    duo_close(&d);
}

// Completions of a queue that is gone must not be taken for those of its successor.
static void test_completions_go_with_their_queue(void **state)
{
    struct duo d;
    struct vb_srq *srq, *next;
    uint32_t xrcd;
    duo_open(&d, *state);
    assert_int_equal(vb_xrcd_alloc(d.end[1].nic, &xrcd), 0);
    const struct vb_srq_opts opts = {.depth = DEPTH, .xrcd = xrcd, .cq = d.end[1].cq};
    assert_int_equal(vb_srq_create(d.end[1].pd, &opts, &srq), 0);
    struct vb_qp *here =
        duo_make_qp(&d.end[0], (struct vb_qp_opts){.service = VB_SERVICE_XRC_SEND});
    struct vb_qp *there =
        duo_make_qp(&d.end[1], (struct vb_qp_opts){.service = VB_SERVICE_XRC_RECV, .xrcd = xrcd});
    duo_join(&d, here, there);
    for (uint32_t i = 0; i < 3; i++) {
        struct vb_send_wr wr = duo_wr(&d, VB_WR_SEND, i);
        wr.srqn = vb_srq_num(srq);
        assert_int_equal(post_one(srq, &d.end[1], 100 + i), 1);
        duo_post(&d, here, wr, 0, 8);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
    }
    assert_int_equal(vb_srq_destroy(srq), 0);
    assert_int_equal(vb_srq_create(d.end[1].pd, &opts, &next), 0);
    assert_int_equal(vb_srq_num(next), 1); // the number is used again
    duo_expect_quiet(d.end[1].cq);
    for (uint32_t i = 0; i < DEPTH; i++)
        assert_int_equal(post_one(next, &d.end[1], 200 + i), 1);
    assert_int_equal(post_one(next, &d.end[1], 300), 0); // full, and not more
    duo_close(&d);
}

// Behind a completion that fails on purpose nothing succeeds.
static void test_requests_behind_a_forced_error_are_flushed(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    assert_int_equal(vb_nic_set_faults(d.end[0].nic, "wc=retry_exc:write@#2", NULL), 0);
    struct vb_send_wr wr[4];
    for (uint32_t i = 0; i < 4; i++)
        wr[i] = duo_wr(&d, VB_WR_WRITE, i);
    assert_int_equal(vb_post_send(qp[0], wr, 4), 4);
    duo_expect(d.end[0].cq, 0, VB_WC_OK);
    duo_expect(d.end[0].cq, 1, VB_WC_RETRY_EXCEEDED);
    duo_expect(d.end[0].cq, 2, VB_WC_FLUSHED);
    duo_expect(d.end[0].cq, 3, VB_WC_FLUSHED);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_a_receive_in_use_comes_back),
        DUO_PORTS(test_completions_go_with_their_queue),
        DUO_TEST(test_completions_go_with_their_queue, "hull"),
        DUO_PORTS(test_requests_behind_a_forced_error_are_flushed),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
