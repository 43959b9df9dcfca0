// SPDX-License-Identifier: Apache-2.0
// Congestion control of a queue pair against a forged peer: marks in, CNPs out; CNPs in, a rate
// kept.
#include "base/bytes.h"
#include "forge.h"

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
};

static struct forge *open_as(enum vb_qp_type type, const struct vb_dcqcn_params *dcqcn)
{
    struct forge_opts o = forge_defaults();
    o.type = type;
    o.dcqcn = dcqcn;
    o.qkey = 0x1234;
    if (type >= VB_QPT_XRC_INI) {
        o.xrcd = 1;
        o.srq_depth = 64;
    }
    return forge_open(&o);
}

static struct forge *open_on(void)
{
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    return open_as(VB_QPT_RC, &p);
}

// Queues an empty SEND, marked or not.
static void queue_send(struct forge *f, uint32_t psn, bool ce)
{
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, psn);
    p.xrc_srqn = f->srqn;
    p.ack_request = f->opts.type != VB_QPT_UD && f->opts.type != VB_QPT_UC;
    forge_queue(f, &p);
    f->feed[f->feed_count - 1].ce = ce;
}

static uint32_t count_sent(const struct forge *f, uint8_t opcode)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->sent_count; i++)
        n += f->sent[i].pkt.opcode == opcode;
    return n;
}

static enum vb_rx_verdict give_cnp(struct forge *f)
{
    struct vb_packet p = forge_packet(f, VB_CNP, 0);
    p.marks = VB_MARK_BECN;
    return forge_give(f, &p);
}

// ---- notification point

static void test_a_marked_packet_is_answered_by_a_cnp(void **state)
{
    (void)state;
    static const uint8_t want[] = {0x81, 0x40, 0xff, 0xff, 0x40, 0x00, 0xbe, 0xef};
    static const uint8_t zero[VB_CNP_RESERVED_BYTES + 4];
    struct forge *f = open_on();

    forge_post_recv(f, 1, 0, 100);
    queue_send(f, 500, true);
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_APPLIED);
    assert_int_equal(count_sent(f, VB_CNP), 1);
    assert_int_equal(count_sent(f, VB_RC_ACK), 1);
    const struct vb_packet *cnp = forge_sent(f, 0); // it goes first
    assert_int_equal(cnp->opcode, VB_CNP);
    assert_int_equal(cnp->marks, VB_MARK_BECN);
    assert_int_equal(cnp->dest_qpn, FORGE_PEER_QPN);
    assert_int_equal(f->sent[0].len, VB_BTH_BYTES + VB_CNP_RESERVED_BYTES + VB_ICRC_BYTES);
    assert_memory_equal(f->sent[0].bytes, want, sizeof want);
    assert_memory_equal(f->sent[0].bytes + 8, zero, sizeof zero); // the PSN, too
    assert_int_equal(forge_counters(f)->np_cnp_sent, 1);
    assert_int_equal(forge_counters(f)->np_ecn_marked_roce_packets, 1);
    forge_close(f);
}

static void test_other_packets_are_not(void **state)
{
    (void)state;
    struct forge *f = open_on();

    forge_post_recv(f, 1, 0, 100);
    queue_send(f, 500, false);
    forge_run(f);
    assert_int_equal(count_sent(f, VB_CNP), 0);
    // A mark on a packet from elsewhere says nothing about the peer's path.
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 501);
    forge_queue_from(f, &p, &f->local);
    f->feed[f->feed_count - 1].ce = true;
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_STRANGER);
    assert_int_equal(count_sent(f, VB_CNP), 0);
    assert_int_equal(forge_counters(f)->np_ecn_marked_roce_packets, 0);
    forge_close(f);
}

static void test_marks_mean_nothing_while_it_is_off(void **state)
{
    (void)state;
    struct forge *f = open_as(VB_QPT_RC, NULL);

    assert_null(f->ctx->congestion);
    forge_post_recv(f, 1, 0, 100);
    queue_send(f, 500, true);
    forge_run(f);
    assert_int_equal(count_sent(f, VB_CNP), 0);
    assert_int_equal(count_sent(f, VB_RC_ACK), 1);
    assert_int_equal(forge_counters(f)->np_cnp_sent, 0);
    assert_int_equal(forge_counters(f)->np_ecn_marked_roce_packets, 1);
    forge_close(f);
}

static void test_cnps_keep_their_distance(void **state)
{
    (void)state;
    struct forge *f = open_on();

    for (uint32_t i = 0; i < 8; i++)
        forge_post_recv(f, i, 0, 100);
    for (uint32_t i = 0; i < 4; i++)
        queue_send(f, 500 + i, true);
    forge_run(f);
    assert_int_equal(count_sent(f, VB_CNP), 1);
    forge_advance(f, 50 * US - 1);
    queue_send(f, 504, true);
    forge_run(f);
    assert_int_equal(count_sent(f, VB_CNP), 1);
    forge_advance(f, 1); // a mark too early is not made up for
    assert_int_equal(count_sent(f, VB_CNP), 1);
    queue_send(f, 505, true);
    forge_run(f);
    assert_int_equal(count_sent(f, VB_CNP), 2);
    assert_int_equal(forge_counters(f)->np_cnp_sent, 2);
    assert_int_equal(forge_counters(f)->np_ecn_marked_roce_packets, 6);
    forge_close(f);
}

static void test_the_distance_is_an_option(void **state)
{
    (void)state;
    struct vb_dcqcn_params p = vb_dcqcn_defaults();
    p.cnp_interval_us = 0;
    struct forge *f = open_as(VB_QPT_RC, &p);

    for (uint32_t i = 0; i < 3; i++) {
        forge_post_recv(f, i, 0, 100);
        queue_send(f, 500 + i, true);
        forge_run(f);
    }
    assert_int_equal(count_sent(f, VB_CNP), 3);
    forge_close(f);
}

// Duplicates, packets ahead and answers passed the congested queue, too.
static void test_any_packet_of_the_peer_counts(void **state)
{
    (void)state;
    struct vb_dcqcn_params p = vb_dcqcn_defaults();
    p.cnp_interval_us = 0;
    struct forge *f = open_as(VB_QPT_RC, &p);

    queue_send(f, 490, true);
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_DUPLICATE);
    queue_send(f, 510, true);
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_AHEAD);
    assert_int_equal(count_sent(f, VB_CNP), 2);
    forge_post(f, 1, VB_WR_WRITE, 0, 100);
    forge_run(f);
    struct vb_packet ack = forge_packet(f, VB_RC_ACK, 100);
    ack.syndrome = vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID);
    forge_queue(f, &ack);
    f->feed[f->feed_count - 1].ce = true;
    forge_run(f);
    assert_int_equal(count_sent(f, VB_CNP), 3);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

static void test_connected_services_only(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    static const enum vb_qp_type types[] = {VB_QPT_UC, VB_QPT_UD, VB_QPT_XRC_TGT};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct forge *f = open_as(types[i], &p);
        bool connected = types[i] != VB_QPT_UD;
        if (types[i] == VB_QPT_XRC_TGT)
            forge_post_srq(f, 1, 0, 100);
        else
            forge_post_recv(f, 1, 0, 100);
        queue_send(f, 500, true);
        forge_run(f);
        assert_int_equal(f->verdict, VB_RX_APPLIED);
        assert_int_equal(count_sent(f, VB_CNP), connected);
        assert_int_equal(give_cnp(f), connected ? VB_RX_APPLIED : VB_RX_STRANGER);
        assert_int_equal(forge_counters(f)->rp_cnp_handled, connected);
        forge_close(f);
    }
}

static void test_a_failed_queue_pair_owes_nothing(void **state)
{
    (void)state;
    struct forge *f = open_on();

    forge_post_recv(f, 1, 0, 100);
    queue_send(f, 500, true);
    vb_pu_feed(f->pu, f->feed, f->feed_count);
    vb_pu_step(f->pu, f->now_ns); // the frame alone
    assert_false(vb_fifo_empty(&f->pu->cnps));
    forge_modify(f, VB_QPS_ERR);
    while (vb_pu_step(f->pu, f->now_ns).kind != VB_STEP_NONE)
        continue;
    forge_keep(f);
    assert_int_equal(count_sent(f, VB_CNP), 0);
    assert_true(vb_fifo_empty(&f->pu->cnps));
    forge_close(f);
}

static void test_a_cnp_waits_for_room(void **state)
{
    (void)state;
    struct forge *f = open_on();

    forge_post_recv(f, 1, 0, 100);
    queue_send(f, 500, true);
    vb_pu_feed(f->pu, f->feed, f->feed_count);
    f->pu->txq.count = f->pu->txq.taken = VB_TX_FRAMES;
    while (vb_pu_step(f->pu, f->now_ns).kind != VB_STEP_NONE)
        continue;
    assert_true(vb_pu_wants_tx(f->pu));
    assert_int_equal(forge_counters(f)->np_cnp_sent, 0);
    vb_pu_tx_release(f->pu);
    vb_pu_poll(f->pu, f->now_ns);
    forge_keep(f);
    assert_int_equal(count_sent(f, VB_CNP), 1);
    forge_close(f);
}

static void test_reset_forgets(void **state)
{
    (void)state;
    struct forge *f = open_on();

    give_cnp(f);
    assert_true(f->ctx->congestion->dcqcn.limited);
    forge_post_recv(f, 1, 0, 100);
    queue_send(f, 500, true);
    vb_pu_feed(f->pu, f->feed, f->feed_count);
    vb_pu_step(f->pu, f->now_ns);
    forge_modify(f, VB_QPS_RESET);
    assert_true(vb_fifo_empty(&f->pu->cnps));
    assert_false(f->ctx->congestion->dcqcn.limited);
    forge_close(f);
}

// A frame that came to another unit keeps its mark on the way to its own.
static void test_a_frame_handed_over_keeps_its_mark(void **state)
{
    (void)state;
    static struct vb_inbox box;
    const uint8_t bytes[VB_FRAME_HEAD] = {0};
    const struct vb_rx_frame *frames;

    assert_int_equal(vb_inbox_init(&box), 0);
    for (int ce = 0; ce < 2; ce++)
        assert_true(vb_inbox_put(
            &box,
            &(struct vb_rx_frame){.data = bytes, .head = bytes, .len = sizeof bytes, .ce = ce}));
    assert_int_equal(vb_inbox_take(&box, &frames), 2);
    assert_false(frames[0].ce);
    assert_true(frames[1].ce);
    vb_inbox_fini(&box);
}

// ---- reaction point

static void test_cnps_are_handled_or_ignored(void **state)
{
    (void)state;
    struct forge *f = open_on();
    struct vb_packet p = forge_packet(f, VB_CNP, 0);

    assert_int_equal(give_cnp(f), VB_RX_APPLIED);
    assert_int_equal(forge_counters(f)->rp_cnp_handled, 1);
    forge_queue_from(f, &p, &f->local); // a stranger cannot slow us down
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_STRANGER);
    p.dest_qpn ^= 0x4000;
    assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    assert_int_equal(forge_counters(f)->rp_cnp_handled, 1);
    assert_int_equal(forge_counters(f)->rp_cnp_ignored, 0);
    assert_int_equal(forge_counters(f)->rx_stranger, 2);
    forge_modify(f, VB_QPS_ERR);
    assert_int_equal(give_cnp(f), VB_RX_STRANGER);
    assert_int_equal(forge_counters(f)->rp_cnp_ignored, 1);
    forge_close(f);

    f = open_as(VB_QPT_RC, NULL);
    assert_int_equal(give_cnp(f), VB_RX_STRANGER);
    assert_int_equal(forge_counters(f)->rp_cnp_handled, 0);
    assert_int_equal(forge_counters(f)->rp_cnp_ignored, 1);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

// Before there is a peer, no packet is the peer's.
static void test_cnps_in_every_state(void **state)
{
    (void)state;
    const struct vb_dcqcn_params params = vb_dcqcn_defaults();
    for (enum vb_qp_state s = VB_QPS_RESET; s <= VB_QPS_RTS; s++) {
        struct forge_opts o = forge_defaults();
        o.state = s;
        o.dcqcn = &params;
        struct forge *f = forge_open(&o);
        assert_int_equal(give_cnp(f), s >= VB_QPS_RTR ? VB_RX_APPLIED : VB_RX_STRANGER);
        if (s != VB_QPS_RESET) {
            forge_modify(f, VB_QPS_ERR);
            assert_int_equal(give_cnp(f), VB_RX_STRANGER);
        }
        forge_close(f);
    }
}

static void test_a_marked_cnp_makes_no_cnp(void **state)
{
    (void)state;
    struct forge *f = open_on();
    struct vb_packet p = forge_packet(f, VB_CNP, 0);

    forge_queue(f, &p);
    f->feed[f->feed_count - 1].ce = true;
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_counters(f)->rp_cnp_handled, 1);
    forge_close(f);
}

// A rate of 1 Gb/s that does not change: 125 bytes in a microsecond.
static struct vb_dcqcn_params slow(void)
{
    struct vb_dcqcn_params p = vb_dcqcn_defaults();
    p.rp_max_rate_mbps = 2000;
    p.rp_time_reset_us = 1000000;
    p.rp_burst_bytes = 4096;
    return p;
}

static void test_a_cnp_slows_requests_down(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = slow();
    struct forge *f = open_as(VB_QPT_RC, &p);

    give_cnp(f);
    forge_post(f, 1, VB_WR_WRITE, 0, 100 * MTU);
    forge_run(f);
    assert_int_equal(f->sent_count, 1); // nothing was saved up
    assert_true(forge_sent(f, 0)->ack_request);
    for (int i = 0; i < 400; i++)
        forge_advance(f, US);
    // 400 us of 125 bytes, and at most a burst beside it.
    assert_in_range(f->sent_count, 50000 / FRAME - 4, 50000 / FRAME + 4);
    assert_int_equal(f->steps[VB_STEP_TIMER] > 0, 1);
    for (int i = 0; i < 1000; i++) {
        forge_advance(f, US);
        forge_ack(f, forge_sent(f, f->sent_count - 1)->psn);
    }
    assert_int_equal(f->sent_count, 100);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

// The packet that uses up the rate to the very nanosecond makes nobody wait, and asks for nothing.
static void test_the_rate_is_used_up_exactly(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = slow();
    struct forge *f = open_as(VB_QPT_RC, &p);
    uint64_t first_ns = 8 * (FRAME + VB_RETH_BYTES), *free_ns;

    give_cnp(f);
    free_ns = &f->ctx->congestion->dcqcn.free_ns;
    *free_ns = f->now_ns - first_ns;
    forge_post(f, 1, VB_WR_WRITE, 0, 3 * MTU);
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    assert_false(forge_sent(f, 0)->ack_request);
    assert_true(forge_sent(f, 1)->ack_request); // the third has to wait
    assert_int_equal(*free_ns, f->now_ns + 8 * FRAME);
    forge_close(f);
}

static void test_without_a_cnp_all_leaves_at_once(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = slow();
    struct forge *f = open_as(VB_QPT_RC, &p);

    forge_post(f, 1, VB_WR_WRITE, 0, 100 * MTU);
    forge_run(f);
    assert_int_equal(f->sent_count, 100);
    assert_false(forge_sent(f, 0)->ack_request);
    forge_close(f);
}

// The answers to READs are what the peer's marks were about.
static void test_a_cnp_slows_responses_down(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = slow();
    struct forge *f = open_as(VB_QPT_RC, &p);
    struct vb_packet read = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 64 * MTU);

    give_cnp(f);
    forge_give(f, &read);
    assert_int_equal(f->sent_count, 1);
    queue_send(f, 564, false);
    forge_post_recv(f, 1, 0, 100);
    for (int i = 0; i < 200; i++)
        forge_advance(f, US);
    assert_in_range(f->sent_count, 25000 / FRAME - 4, 25000 / FRAME + 4);
    assert_int_equal(count_sent(f, VB_RC_ACK), 0); // it must not overtake
    for (int i = 0; i < 600; i++)
        forge_advance(f, US);
    assert_int_equal(f->sent_count, 64 + 1);
    assert_int_equal(f->sent[64].pkt.opcode, VB_RC_ACK);
    forge_close(f);
}

// READs and atomics are small, and their answers are the peer's to slow down.
static void test_requests_without_payload_do_not_wait(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = slow();
    struct forge *f = open_as(VB_QPT_RC, &p);

    give_cnp(f);
    for (uint64_t i = 0; i < 8; i++)
        forge_post(f, i, VB_WR_READ, 0, 64);
    forge_run(f);
    assert_int_equal(count_sent(f, VB_RC_READ_REQUEST), 8);
    forge_close(f);
}

// A rate at which sixteen packets take longer than the acknowledgement timer.
static void test_waiting_for_the_rate_is_no_timeout(void **state)
{
    (void)state;
    struct vb_dcqcn_params p = slow();
    p.rp_max_rate_mbps = 20;
    struct forge_opts o = forge_defaults();
    o.dcqcn = &p;
    o.timeout = 8; // 1 ms, in which 1250 bytes leave
    struct forge *f = forge_open(&o);

    give_cnp(f);
    forge_post(f, 1, VB_WR_WRITE, 0, 20 * MTU);
    forge_run(f);
    for (uint32_t i = 0, acked = 0; i < 40000 && acked < 20; i++) {
        for (; acked < f->sent_count && forge_sent(f, acked)->ack_request; acked++)
            forge_ack(f, forge_sent(f, acked)->psn);
        forge_advance(f, US);
    }
    assert_int_equal(f->sent_count, 20);
    forge_expect_done(f, 1, VB_WC_OK);
    assert_int_equal(forge_counters(f)->local_ack_timeout_err, 0);
    forge_close(f);
}

static void test_a_held_queue_pair_can_go(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = slow();
    struct forge *f = open_as(VB_QPT_RC, &p);

    give_cnp(f);
    forge_post(f, 1, VB_WR_WRITE, 0, 10 * MTU);
    forge_run(f);
    assert_int_not_equal(f->ctx->congestion->resume.slot, 0);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    forge_expect_done(f, 1, VB_WC_FLUSHED);
    forge_advance(f, 1000 * US); // its timer finds nothing to do
    assert_int_equal(vb_dev_qp_destroy(f->dev, f->qp.qpn), 0);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_marked_packet_is_answered_by_a_cnp),
        cmocka_unit_test(test_other_packets_are_not),
        cmocka_unit_test(test_marks_mean_nothing_while_it_is_off),
        cmocka_unit_test(test_cnps_keep_their_distance),
        cmocka_unit_test(test_the_distance_is_an_option),
        cmocka_unit_test(test_any_packet_of_the_peer_counts),
        cmocka_unit_test(test_connected_services_only),
        cmocka_unit_test(test_a_failed_queue_pair_owes_nothing),
        cmocka_unit_test(test_a_cnp_waits_for_room),
        cmocka_unit_test(test_reset_forgets),
        cmocka_unit_test(test_a_frame_handed_over_keeps_its_mark),
        cmocka_unit_test(test_cnps_are_handled_or_ignored),
        cmocka_unit_test(test_cnps_in_every_state),
        cmocka_unit_test(test_a_marked_cnp_makes_no_cnp),
        cmocka_unit_test(test_a_cnp_slows_requests_down),
        cmocka_unit_test(test_the_rate_is_used_up_exactly),
        cmocka_unit_test(test_without_a_cnp_all_leaves_at_once),
        cmocka_unit_test(test_a_cnp_slows_responses_down),
        cmocka_unit_test(test_requests_without_payload_do_not_wait),
        cmocka_unit_test(test_waiting_for_the_rate_is_no_timeout),
        cmocka_unit_test(test_a_held_queue_pair_can_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
