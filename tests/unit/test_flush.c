// SPDX-License-Identifier: Apache-2.0
// A failed queue pair gives back everything that was posted, in order, once.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_everything_comes_back_in_order(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint64_t i = 0; i < 100; i++) // acknowledged, in flight, begun, fetched, in the ring
        forge_post_flags(f, i, (enum vb_wr_opcode)(i % 4), 5000, i % 2 ? VB_WR_SIGNALED : 0);
    for (uint64_t i = 0; i < 20; i++)
        forge_post_recv(f, 1000 + i, 0, 4096);
    forge_run(f);
    forge_ack(f, 104); // the first SEND
    forge_forget(f);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    for (uint64_t i = 1; i < 100; i++) // unsignaled ones, too
        forge_expect_done(f, i, VB_WC_FLUSHED);
    for (uint64_t i = 0; i < 20; i++)
        forge_expect_recv(f, 1000 + i, VB_WC_FLUSHED, 0);
    forge_expect_none(f);
    assert_int_equal(f->qp.sq.pi, f->qp.sq.ci);
    assert_int_equal(f->qp.rq.pi, f->qp.rq.ci);
    forge_close(f);
}

// What was acknowledged before the failure is a success, even if nobody had looked yet.
static void test_acknowledged_work_is_not_flushed(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint64_t i = 0; i < 3; i++)
        forge_post(f, i, VB_WR_SEND, 0, 1);
    forge_run(f);
    struct vb_packet ack = forge_packet(f, VB_RC_ACK, 101);
    ack.syndrome = vb_aeth_syndrome(VB_AETH_ACK, 31);
    forge_queue(f, &ack);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    forge_modify(f, VB_QPS_ERR);
    vb_pu_poll(f->pu, f->now_ns);
    forge_expect_done(f, 0, VB_WC_OK);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_done(f, 2, VB_WC_FLUSHED);
    forge_close(f);
}

// Who posts while it is flushed could keep the unit for ever: a poll does so much and no more.
static void test_a_long_queue_takes_more_than_one_poll(void **state)
{
    (void)state;
    enum {
        ALL = 1024
    };
    struct forge_opts o = forge_defaults();
    o.send_depth = ALL;
    o.send_cq_entries = 2 * ALL;
    struct forge *f = forge_open(&o);
    vb_pu_observe(f->pu, NULL, NULL);
    for (uint64_t i = 0; i < ALL; i++)
        forge_post(f, i, VB_WR_NOP, 0, 0);
    forge_modify(f, VB_QPS_ERR);
    vb_pu_poll(f->pu, f->now_ns);
    assert_in_range(f->ctx->send_cq->produced, 1, VB_POLL_LOOPED + VB_TURN_FRAMES);
    assert_true(vb_pu_has_more(f->pu));
    for (uint32_t polls = 0; polls < ALL && vb_pu_has_more(f->pu); polls++)
        vb_pu_poll(f->pu, f->now_ns);
    for (uint64_t i = 0; i < ALL; i++)
        forge_expect_done(f, i, VB_WC_FLUSHED);
    forge_expect_none(f);
    forge_close(f);
}

static void test_only_the_first_carries_the_reason(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    const struct vb_sge bad = {0, 10, 0};
    const struct vb_send_wr wr = {.wr_id = 9, .sge = &bad, .num_sge = 1, .opcode = VB_WR_SEND};
    forge_post(f, 1, VB_WR_SEND, 0, 1);
    forge_post_send(f, &wr);
    forge_post_send(f, &wr);
    forge_post(f, 2, VB_WR_NOP, 0, 0);
    forge_run(f);
    assert_int_equal(forge_nak(f, 100, VB_AETH_NAK, VB_NAK_REMOTE_OPERATION), VB_RX_FATAL);
    forge_expect_done(f, 1, VB_WC_REMOTE_OPERATION);
    forge_expect_done(f, 9, VB_WC_FLUSHED);
    forge_expect_done(f, 9, VB_WC_FLUSHED);
    forge_expect_done(f, 2, VB_WC_FLUSHED);
    forge_expect_none(f);
    forge_close(f);
}

static void test_work_posted_after_the_failure(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    forge_expect_none(f);
    for (uint64_t i = 0; i < 300; i++) { // more than the rings hold at once
        forge_post(f, i, VB_WR_SEND, 0, 100);
        forge_post_recv(f, i, 0, 100);
        forge_run(f);
        forge_expect_done(f, i, VB_WC_FLUSHED);
        forge_expect_recv(f, i, VB_WC_FLUSHED, 0);
    }
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

static void test_failure_before_rts(void **state)
{
    (void)state;
    for (enum vb_qp_state s = VB_QPS_INIT; s <= VB_QPS_RTR; s++) {
        struct forge_opts o = forge_defaults();
        o.state = s;
        struct forge *f = forge_open(&o);
        forge_post(f, 1, VB_WR_SEND, 0, 100);
        forge_post_recv(f, 2, 0, 100);
        forge_run(f);
        forge_modify(f, VB_QPS_ERR);
        forge_run(f);
        forge_expect_done(f, 1, VB_WC_FLUSHED);
        forge_expect_recv(f, 2, VB_WC_FLUSHED, 0);
        forge_expect_none(f);
        forge_close(f);
    }
}

// The receive of a message that was under way comes back first.
static void test_message_under_way(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint64_t i = 0; i < 3; i++)
        forge_post_recv(f, i, 0, 4096);
    forge_send(f, VB_RC_SEND_ONLY, 500, 10, 1);
    forge_send(f, VB_RC_SEND_FIRST, 501, 1024, 1);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    forge_expect_recv(f, 0, VB_WC_OK, 10);
    forge_expect_recv(f, 1, VB_WC_FLUSHED, 0);
    forge_expect_recv(f, 2, VB_WC_FLUSHED, 0);
    forge_expect_none(f);
    forge_close(f);
}

// A message is complete, its completion is due, and the queue pair fails in between.
static void test_complete_message_is_not_flushed(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post_recv(f, 1, 0, 100);
    forge_post_recv(f, 2, 0, 100);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    forge_modify(f, VB_QPS_ERR);
    vb_pu_poll(f->pu, f->now_ns);
    forge_expect_recv(f, 1, VB_WC_OK, 0);
    forge_expect_recv(f, 2, VB_WC_FLUSHED, 0);
    forge_expect_none(f);
    forge_close(f);
}

static void test_no_timer_after_the_failure(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_SEND, 0, 100);
    forge_run(f);
    forge_modify(f, VB_QPS_ERR);
    forge_advance(f, 1ull << 50);
    assert_int_equal(f->steps[VB_STEP_TIMER], 0);
    assert_int_equal(f->sent_count, 1);
    assert_true(vb_pu_deadline(f->pu) == UINT64_MAX);
    forge_close(f);
}

// Answers owed are dropped with the queue pair: a peer that hears nothing will ask again.
static void test_answers_owed_are_dropped(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 10000);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    vb_pu_step(f->pu, f->now_ns);
    vb_pu_step(f->pu, f->now_ns);
    forge_modify(f, VB_QPS_ERR);
    vb_pu_poll(f->pu, f->now_ns);
    assert_int_equal(vb_pu_txq(f->pu)->count, 1);
    forge_close(f);
}

// An entry whose length makes no sense hides the ones behind it; they go with it.
static void test_entry_without_a_length(void **state)
{
    (void)state;
    for (int fetched = 0; fetched < 2; fetched++) {
        struct forge *f = forge_open(NULL);
        for (uint64_t i = 0; i < 4; i++)
            forge_post(f, i, VB_WR_SEND, 0, 1);
        ((struct vb_wqe_ctrl *)(void *)(f->qp.sq.ring + 2 * VB_WQEBB_BYTES))->ds = 0;
        if (fetched)
            forge_run(f);
        forge_modify(f, VB_QPS_ERR);
        forge_run(f);
        for (uint64_t i = 0; i < 3; i++)
            forge_expect_done(f, i, VB_WC_FLUSHED);
        forge_expect_none(f);
        forge_close(f);
    }
}

static void test_ack_owed_is_dropped(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, 500, 0, 0);
    p.ack_request = true;
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).verdict, VB_RX_APPLIED);
    forge_modify(f, VB_QPS_ERR);
    vb_pu_poll(f->pu, f->now_ns);
    assert_int_equal(vb_pu_txq(f->pu)->count, 0);
    forge_close(f);
}

static void test_flush_of_long_entries_that_wrap(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.sq_start = 0xffed;
    o.rq_start = 0xfffa;
    o.send_depth = 12; // 5 blocks each in a ring of 64
    o.fetch_depth = 2;
    struct forge *f = forge_open(&o);
    struct vb_sge sge[16];
    for (uint32_t i = 0; i < 16; i++)
        sge[i] = (struct vb_sge){forge_addr(f, 0), 1, f->key};
    for (uint64_t i = 0; i < 12; i++) {
        const struct vb_send_wr wr = {
            .wr_id = i, .sge = sge, .num_sge = 16, .opcode = VB_WR_WRITE, .flags = VB_WR_FENCE};
        if (i == 0)
            forge_post(f, i, VB_WR_READ, 0, 1);
        else
            forge_post_send(f, &wr);
        forge_post_recv(f, i, 0, 1);
    }
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    for (uint64_t i = 0; i < 12; i++) {
        forge_expect_done(f, i, VB_WC_FLUSHED);
        forge_expect_recv(f, i, VB_WC_FLUSHED, 0);
    }
    forge_expect_none(f);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_comes_back_in_order),
        cmocka_unit_test(test_acknowledged_work_is_not_flushed),
        cmocka_unit_test(test_a_long_queue_takes_more_than_one_poll),
        cmocka_unit_test(test_only_the_first_carries_the_reason),
        cmocka_unit_test(test_work_posted_after_the_failure),
        cmocka_unit_test(test_failure_before_rts),
        cmocka_unit_test(test_message_under_way),
        cmocka_unit_test(test_complete_message_is_not_flushed),
        cmocka_unit_test(test_no_timer_after_the_failure),
        cmocka_unit_test(test_answers_owed_are_dropped),
        cmocka_unit_test(test_entry_without_a_length),
        cmocka_unit_test(test_ack_owed_is_dropped),
        cmocka_unit_test(test_flush_of_long_entries_that_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
