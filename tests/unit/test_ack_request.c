// SPDX-License-Identifier: Apache-2.0
// Acknowledge requests: which packets carry one, when a packet is repeated to ask for those that
// did not, and that a queue pair sends the acknowledgements it owes before it goes.
#include "duo.h"
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum {
    ASK_NS = 1000000,
    RUN = 16
};

static void post_silent(struct forge *f, uint64_t wr_id)
{
    forge_post_flags(f, wr_id, VB_WR_WRITE, 8, 0);
}

static void test_signaled_requests_ask(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_silent(f, 1);
    forge_post_flags(f, 2, VB_WR_SEND, 3000, 0);
    forge_post(f, 3, VB_WR_WRITE, 0, 8);
    forge_run(f);
    assert_int_equal(f->sent_count, 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(forge_sent(f, i)->ack_request, i == 4);
    forge_ack(f, 104);
    forge_expect_done(f, 3, VB_WC_OK); // one for all
    forge_expect_none(f);
    forge_close(f);
}

static void test_one_in_sixteen_asks(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint32_t i = 0; i < 3 * RUN; i++) {
        post_silent(f, i);
        forge_run(f);
        assert_int_equal(forge_sent(f, i)->ack_request, i % RUN == RUN - 1);
    }
    forge_close(f);
}

// Nothing in flight asks: after a while the newest packet goes out again, alone, and asks.
static void test_silence_is_ended_by_the_newest_packet(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    f->now_ns = 1000;
    for (uint32_t i = 0; i < 3; i++)
        post_silent(f, i);
    forge_run(f);
    forge_forget(f);
    forge_advance(f, ASK_NS - 1);
    assert_int_equal(f->sent_count, 0);
    forge_advance(f, 1);
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(forge_sent(f, 0)->psn, 102);
    assert_true(forge_sent(f, 0)->ack_request);
    assert_int_equal(forge_counters(f)->local_ack_timeout_err, 0);
    forge_advance(f, 10 * ASK_NS); // once: the rest is the acknowledgement timer's
    assert_int_equal(f->sent_count, 1);
    forge_ack(f, 102);
    forge_advance(f, 4096ull << 20);
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(forge_counters(f)->local_ack_timeout_err, 0);
    forge_close(f);
}

static void test_it_asks_without_an_acknowledgement_timer(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.timeout = 0;
    struct forge *f = forge_open(&o);
    post_silent(f, 1);
    forge_run(f);
    forge_advance(f, ASK_NS);
    assert_int_equal(f->sent_count, 2);
    assert_true(forge_sent(f, 1)->ack_request);
    forge_close(f);
}

// A loss shows when it asks.
static void test_a_lost_packet_is_sent_again(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint32_t i = 0; i < 3; i++)
        post_silent(f, i);
    forge_run(f);
    forge_advance(f, ASK_NS);
    forge_forget(f);
    forge_nak(f, 101, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(f->sent_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(forge_sent(f, i)->psn, 101 + i);
        assert_true(forge_sent(f, i)->ack_request);
    }
    forge_close(f);
}

// A completion without a packet of its own stands for those before it.
static void test_a_signaled_nop_asks(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_silent(f, 1);
    forge_run(f);
    assert_false(forge_sent(f, 0)->ack_request);
    forge_post_flags(f, 2, VB_WR_NOP, 0, VB_WR_SIGNALED);
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(forge_sent(f, 1)->psn, 100);
    assert_true(forge_sent(f, 1)->ack_request);
    forge_expect_none(f);
    forge_ack(f, 100);
    forge_expect_done(f, 2, VB_WC_OK);
    forge_close(f);
}

static void test_draining_asks(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_silent(f, 1);
    forge_run(f);
    forge_forget(f);
    forge_modify(f, VB_QPS_SQD);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    assert_true(forge_sent(f, 0)->ack_request);
    forge_ack(f, 100);
    forge_expect_event(f, VB_EVENT_SQ_DRAINED, f->qp.qpn);
    forge_close(f);
}

static void test_an_acknowledgement_that_comes_first_cancels_the_request(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_silent(f, 1);
    forge_run(f);
    forge_forget(f);
    vb_dev_qp_settle(f->dev, f->qp.qpn);
    forge_ack(f, 100); // before the unit runs
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_post(f, 2, VB_WR_WRITE, 0, 8);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(forge_sent(f, 0)->psn, 101);
    forge_close(f);
}

// A request whose second entry names no memory fails in its turn, also if its first packets are
// out.
static void test_a_request_that_fails_half_way_asks(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_silent(f, 1);
    const struct vb_sge sge[2] = {{forge_addr(f, 0), 2048, f->key}, {0x1000, 2048, 0x7777}};
    forge_post_send(f, &(struct vb_send_wr){.wr_id = 2,
                                            .opcode = VB_WR_WRITE,
                                            .flags = VB_WR_SIGNALED,
                                            .sge = sge,
                                            .num_sge = 2,
                                            .raddr = 0x1000,
                                            .rkey = 0x2222});
    forge_run(f);
    for (int i = 0; i < 50; i++)
        forge_advance(f, ASK_NS);
    bool asked = false;
    for (uint32_t i = 0; i < f->sent_count; i++)
        asked |= forge_sent(f, i)->ack_request;
    assert_true(asked);
    forge_ack(f, 100);
    forge_expect_done(f, 2, VB_WC_LOCAL_PROTECTION);
    forge_close(f);
}

// Memory that goes while two are in flight.
static void test_memory_that_goes_while_it_asks(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    static uint8_t other[64];
    uint32_t key;
    assert_int_equal(
        vb_dev_mkey_create(f->dev,
                           &(struct vb_mkey_attr){.kind = VB_MKEY_REGION,
                                                  .pd = f->pd,
                                                  .start = (uintptr_t)other,
                                                  .len = 64,
                                                  .base = other,
                                                  .access = VB_LOCAL_READ | VB_LOCAL_WRITE},
                           &key),
        0);
    post_silent(f, 1);
    const struct vb_sge sge = {(uintptr_t)other, 64, key};
    forge_post_send(f, &(struct vb_send_wr){.wr_id = 2,
                                            .opcode = VB_WR_WRITE,
                                            .sge = &sge,
                                            .num_sge = 1,
                                            .raddr = 0x1000,
                                            .rkey = 0x2222});
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, key), 0);
    for (int i = 0; i < 50; i++)
        forge_advance(f, ASK_NS);
    bool asked = false;
    for (uint32_t i = 0; i < f->sent_count; i++)
        asked |= forge_sent(f, i)->ack_request;
    assert_true(asked);
    forge_close(f);
}

// What was sent again is in flight, none of it asked, and the window shrinks (another queue pair's
// losses).
static void test_a_window_that_shrinks_behind_what_was_sent_again(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 64 * 1024;
    struct forge *f = forge_open(&o);
    f->now_ns = 1000000;
    forge_post(f, 1, VB_WR_WRITE, 0, 32 * 1024);
    forge_run(f);
    assert_int_equal(f->sent_count, 32);
    forge_forget(f);
    struct vb_packet p = forge_packet(f, VB_RC_ACK, 100);
    p.syndrome = vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, f->feed_count);
    while (f->steps[VB_STEP_FRAME_OUT] < f->kept + 10)
        vb_pu_step(f->pu, f->now_ns);
    free((void *)(uintptr_t)f->feed[0].data);
    f->feed_count = 0;
    for (int i = 0; i < 4; i++) {
        f->now_ns += 200000;
        f->pu->now_ns = f->now_ns;
        vb_peer_lost(f->pu, f->ctx->peer);
    }
    forge_run(f);
    uint32_t before = f->sent_count;
    for (int i = 0; i < 3000; i++)
        forge_advance(f, ASK_NS);
    assert_true(f->sent_count > before);
    forge_close(f);
}

// A peer without receives grants no credits; a requester that needs none asks no more often for it.
static void test_writes_do_not_ask_for_credits(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_WRITE, 0, 8);
    forge_run(f);
    struct vb_packet p = forge_packet(f, VB_RC_ACK, 100);
    p.syndrome = vb_aeth_syndrome(VB_AETH_ACK, 0);
    p.msn = 1;
    forge_give(f, &p);
    forge_forget(f);
    uint32_t asked = 0;
    for (uint32_t i = 0; i < RUN - 1; i++)
        post_silent(f, i);
    forge_run(f);
    for (uint32_t i = 0; i < f->sent_count; i++)
        asked += forge_sent(f, i)->ack_request;
    assert_int_equal(asked, 0);
    forge_close(f);
}

static void test_a_dead_peer_without_a_timer_costs_nothing(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.timeout = 0;
    struct forge *f = forge_open(&o);
    post_silent(f, 1);
    forge_run(f);
    for (int i = 0; i < 10; i++)
        forge_advance(f, ASK_NS);
    assert_true(vb_pu_deadline(f->pu) > f->now_ns + 100 * ASK_NS);
    forge_close(f);
}

// ---- through the public interface

// A queue pair that took a message acknowledges it before it goes, though the sender did not ask.
static void test_destroy_sends_owed_acknowledgements(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    for (uint32_t i = 0; i < 3; i++) {
        duo_post_recv(&d.end[1], qp[1], i, 0, 64);
        struct vb_send_wr wr = duo_wr(&d, VB_WR_SEND, i);
        wr.flags = 0;
        duo_post(&d, qp[0], wr, 0, 64);
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(duo_wait(d.end[1].cq).status, VB_WC_OK);
    vb_qp_destroy(qp[1]);
    duo_expect_quiet(d.end[0].cq);
    // The requester waits for no acknowledgement any more.
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_NOP, 9), 0, UINT32_MAX);
    duo_expect(d.end[0].cq, 9, VB_WC_OK);
    vb_qp_destroy(qp[0]);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signaled_requests_ask),
        cmocka_unit_test(test_one_in_sixteen_asks),
        cmocka_unit_test(test_silence_is_ended_by_the_newest_packet),
        cmocka_unit_test(test_it_asks_without_an_acknowledgement_timer),
        cmocka_unit_test(test_a_lost_packet_is_sent_again),
        cmocka_unit_test(test_a_signaled_nop_asks),
        cmocka_unit_test(test_draining_asks),
        cmocka_unit_test(test_an_acknowledgement_that_comes_first_cancels_the_request),
        cmocka_unit_test(test_a_request_that_fails_half_way_asks),
        cmocka_unit_test(test_memory_that_goes_while_it_asks),
        cmocka_unit_test(test_a_window_that_shrinks_behind_what_was_sent_again),
        cmocka_unit_test(test_writes_do_not_ask_for_credits),
        cmocka_unit_test(test_a_dead_peer_without_a_timer_costs_nothing),
        DUO_PORTS(test_destroy_sends_owed_acknowledgements),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
