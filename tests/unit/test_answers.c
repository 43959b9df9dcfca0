// SPDX-License-Identifier: Apache-2.0
// What the responder owes: one ACK for a batch, one NAK until recovery, repeated requests that are
// acknowledged and not executed, refusals behind the answers already owed.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct forge *open_at(uint32_t peer_psn)
{
    struct forge_opts o = forge_defaults();
    o.peer_psn = peer_psn;
    return forge_open(&o);
}

// Queues a WRITE of one byte to memory[offset].
static void queue_write(struct forge *f, uint32_t psn, uint32_t offset, const char *byte)
{
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, psn, offset, 1);
    p.payload = (const uint8_t *)byte;
    p.payload_len = 1;
    p.ack_request = true;
    forge_queue(f, &p);
}

// ---- ACKs

static void test_one_ack_for_a_batch(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffe0);
    for (uint32_t i = 0; i < 64; i++)
        queue_write(f, 0xffffe0 + i, i, "x");
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_expect_ack(f, 0, 0xffffe0 + 63);
    assert_int_equal(forge_sent(f, 0)->msn, 64);
    assert_int_equal(forge_counters(f)->ack_deferred, 63);
    forge_close(f);
}

static void test_no_ack_unless_asked(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, 500, 0, 0);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(f->sent_count, 0);
    p.psn = 501;
    p.ack_request = true;
    forge_give(f, &p);
    assert_int_equal(f->sent_count, 1);
    forge_expect_ack(f, 0, 501);
    forge_close(f);
}

static void test_msn_counts_messages_and_wraps(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    f->ctx->resp.msn = 0xffffff;
    forge_post_recv(f, 1, 0, 4096);
    forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
    struct vb_packet p = forge_reth(f, VB_RC_SEND_MIDDLE, 501, 0, 0);
    static const uint8_t zeros[1024];
    p.payload = zeros;
    p.payload_len = 1024;
    p.ack_request = true;
    forge_give(f, &p);
    assert_int_equal(forge_sent(f, 0)->msn, 0xffffff); // not the end of the message yet
    forge_send(f, VB_RC_SEND_LAST, 502, 1, 1);
    assert_int_equal(forge_sent(f, 1)->msn, 0);
    forge_close(f);
}

// ---- the future: NAK, once

static void test_one_nak_until_recovery(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    queue_write(f, 0, 0, "a");
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_AHEAD);
    forge_expect_nak(f, 0, 0xffffff, VB_NAK_PSN_SEQUENCE);
    queue_write(f, 1, 1, "b");
    forge_run(f);
    queue_write(f, 0x7ffffe, 2, "c"); // as far ahead as numbers go
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_AHEAD);
    assert_int_equal(f->sent_count, 1);
    assert_memory_equal(f->memory, "\0\0\0", 3);
    assert_int_equal(forge_counters(f)->out_of_seq_request, 3);
    assert_int_equal(forge_counters(f)->rcvd_seq_err, 1);
    // Recovered: the next loss is complained about again.
    queue_write(f, 0xffffff, 0, "d");
    forge_run(f);
    forge_expect_ack(f, 1, 0xffffff);
    queue_write(f, 1, 0, "e");
    forge_run(f);
    forge_expect_nak(f, 2, 0, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(f->memory[0], 'd');
    forge_close(f);
}

static void test_nak_acknowledges_what_was_before(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    queue_write(f, 500, 0, "a");
    queue_write(f, 502, 0, "b");
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_expect_nak(f, 0, 501, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(forge_sent(f, 0)->msn, 1);
    assert_int_equal(f->memory[0], 'a');
    forge_close(f);
}

static void test_missing_packet_comes_before_the_nak_left(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    queue_write(f, 501, 0, "b");
    queue_write(f, 500, 0, "a");
    forge_run(f);
    assert_int_equal(f->memory[0], 'a');
    // 501 was dropped, and nobody else will tell the requester before its timer does.
    assert_int_equal(f->sent_count, 1);
    forge_expect_nak(f, 0, 501, VB_NAK_PSN_SEQUENCE);
    forge_close(f);
    // What was dropped comes again in the same batch: nothing is missing.
    f = open_at(500);
    queue_write(f, 501, 0, "b");
    queue_write(f, 500, 0, "a");
    queue_write(f, 501, 1, "b");
    forge_run(f);
    assert_int_equal(f->memory[1], 'b');
    assert_int_equal(f->sent_count, 1);
    forge_expect_ack(f, 0, 501);
    forge_close(f);
}

// The same when nobody asked: the peer may already wait for an answer to the packet ahead.
static void test_recovery_is_acknowledged_unasked(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, 500, 0, 0);
    queue_write(f, 501, 0, "b");
    forge_queue(f, &p);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_close(f);
}

// ---- the past: acknowledged again, not executed

static void test_repeated_writes_are_not_executed(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    for (uint32_t i = 0; i < 4; i++)
        queue_write(f, 0xfffffe + i, i, "a");
    forge_run(f);
    forge_forget(f);
    for (uint32_t i = 0; i < 4; i++) {
        queue_write(f, 0xfffffe + i, i, "b");
        forge_run(f);
        assert_int_equal(f->verdict, VB_RX_DUPLICATE);
        forge_expect_ack(f, i, 1); // always the latest, not the one repeated
        assert_int_equal(forge_sent(f, i)->msn, 4);
    }
    assert_memory_equal(f->memory, "aaaa", 4);
    assert_int_equal(forge_counters(f)->duplicate_request, 4);
    forge_close(f);
}

static void test_repeated_sends_take_no_receive(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, 0, 100);
    forge_post_recv(f, 2, 100, 100);
    forge_send(f, VB_RC_SEND_ONLY, 500, 10, 1);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 10, 2), VB_RX_DUPLICATE);
    forge_expect_recv(f, 1, VB_WC_OK, 10);
    forge_expect_none(f);
    assert_true(forge_filled(f->memory, 10, 1));
    assert_int_equal(f->sent_count, 2);
    forge_expect_ack(f, 1, 500);
    forge_close(f);
}

static void test_repeats_inside_a_message(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, 0, 4096);
    forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
    forge_send(f, VB_RC_SEND_MIDDLE, 501, 1024, 2);
    assert_int_equal(forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 9), VB_RX_DUPLICATE);
    forge_expect_ack(f, 0, 501);
    assert_int_equal(forge_send(f, VB_RC_SEND_LAST, 502, 10, 3), VB_RX_APPLIED);
    forge_expect_recv(f, 1, VB_WC_OK, 2058);
    assert_true(forge_filled(f->memory, 1024, 1));
    assert_true(forge_filled(f->memory + 1024, 1024, 2));
    forge_close(f);
}

// However odd, the past is only acknowledged: it ends no connection.
static void test_strange_repeats_do_no_harm(void **state)
{
    (void)state;
    struct forge *f = open_at(0);
    static const enum vb_opcode ops[] = {VB_RC_SEND_LAST, VB_RC_WRITE_MIDDLE, VB_RC_SEND_ONLY_IMM,
                                         VB_RC_WRITE_ONLY};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct vb_packet p = forge_packet(f, ops[i], 0xffffff - (uint32_t)i);
        assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE);
        forge_expect_ack(f, (uint32_t)i, 0xffffff);
    }
    struct vb_packet p = forge_packet(f, VB_RC_SEND_LAST, 0x800000); // half a circle ago
    assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

static void test_repeat_after_a_nak_is_acknowledged(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    queue_write(f, 500, 0, "a");
    queue_write(f, 502, 0, "b");
    forge_run(f);
    queue_write(f, 500, 0, "c");
    forge_run(f);
    forge_expect_ack(f, 1, 500);
    // A repeat and a packet ahead in one batch: the NAK is the answer, if one is owed.
    forge_forget(f);
    queue_write(f, 501, 0, "d");
    queue_write(f, 500, 0, "e");
    queue_write(f, 503, 0, "f");
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_expect_nak(f, 0, 502, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(f->memory[0], 'd');
    forge_close(f);
}

// ---- refusals

static void test_refusal_comes_behind_what_is_owed(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_fill(f, 0, 3000, 1);
    forge_post_recv(f, 1, 0, 100);
    forge_post(f, 2, VB_WR_READ, 0, 100);
    struct vb_packet read = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 3000);
    struct vb_packet bad = forge_packet(f, VB_RC_SEND_LAST, 504);
    forge_queue(f, &read);
    queue_write(f, 503, 4000, "a");
    forge_queue(f, &bad);
    queue_write(f, 505, 4000, "b"); // too late
    forge_run(f);
    assert_int_equal(f->sent_count, 4);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(forge_sent(f, i)->psn, 500 + i);
    forge_expect_nak(f, 3, 504, VB_NAK_INVALID_REQUEST);
    assert_int_equal(f->memory[4000], 'a');
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_expect_done(f, 2, VB_WC_FLUSHED);
    forge_expect_recv(f, 1, VB_WC_FLUSHED, 0);
    forge_expect_none(f);
    forge_close(f);
}

static void test_refusal_waits_for_room_to_send(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.mtu = 4096;
    struct forge *f = forge_open(&o);
    struct vb_packet read = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 400000);
    struct vb_packet bad = forge_packet(f, VB_RC_SEND_LAST, 598);
    forge_queue(f, &read);
    forge_queue(f, &bad);
    vb_pu_feed(f->pu, f->feed, 2);
    vb_pu_poll(f->pu, f->now_ns);
    assert_true(vb_pu_wants_tx(f->pu));
    assert_int_equal(forge_state(f), VB_QPS_RTS); // not before the NAK is out
    while (vb_pu_wants_tx(f->pu)) {
        forge_keep(f);
        vb_pu_poll(f->pu, f->now_ns);
    }
    forge_keep(f);
    assert_int_equal(f->sent_count, 99);
    forge_expect_nak(f, 98, 598, VB_NAK_INVALID_REQUEST);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

static void test_refusal_replaces_a_complaint(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_packet bad = forge_packet(f, VB_RC_SEND_LAST, 500);
    queue_write(f, 501, 0, "a");
    forge_queue(f, &bad);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_expect_nak(f, 0, 500, VB_NAK_INVALID_REQUEST);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

// The responder works as soon as the queue pair is RTR, and its refusals end it there, too.
static void test_refusal_in_rtr(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.state = VB_QPS_RTR;
    struct forge *f = forge_open(&o);
    forge_post_recv(f, 1, 0, 100);
    struct vb_packet bad = forge_packet(f, VB_RC_SEND_LAST, 500);
    assert_int_equal(forge_give(f, &bad), VB_RX_REFUSED);
    forge_expect_nak(f, 0, 500, VB_NAK_INVALID_REQUEST);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_expect_recv(f, 1, VB_WC_FLUSHED, 0);
    forge_close(f);
}

// ---- the receive queue

static void test_receive_counters_wrap(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.rq_start = 0xfff8;
    o.recv_depth = 4;
    o.cq_start = 0xfffff9;
    struct forge *f = forge_open(&o);
    for (uint32_t i = 0; i < 40; i++) {
        forge_post_recv(f, 1000 + i, i * 8, 8);
        if (i % 4 == 3)
            for (uint32_t j = i - 3; j <= i; j++) {
                forge_send(f, VB_RC_SEND_ONLY, 500 + j, 8, (uint8_t)j);
                forge_expect_recv(f, 1000 + j, VB_WC_OK, 8);
                assert_true(forge_filled(f->memory + j * 8, 8, (uint8_t)j));
            }
    }
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 540, 8, 0), VB_RX_RNR);
    forge_close(f);
}

// A counter that claims more than the ring holds is not believed.
static void test_receive_counter_that_lies(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    f->qp.dbrec[VB_DBREC_RQ] = htobe32(65);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 8, 0), VB_RX_RNR);
    f->qp.dbrec[VB_DBREC_RQ] = htobe32(0xffff);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 8, 0), VB_RX_RNR);
    f->qp.dbrec[VB_DBREC_RQ] = htobe32(0);
    forge_post_recv(f, 1, 0, 8);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 8, 0), VB_RX_APPLIED);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_ack_for_a_batch),
        cmocka_unit_test(test_no_ack_unless_asked),
        cmocka_unit_test(test_msn_counts_messages_and_wraps),
        cmocka_unit_test(test_one_nak_until_recovery),
        cmocka_unit_test(test_nak_acknowledges_what_was_before),
        cmocka_unit_test(test_missing_packet_comes_before_the_nak_left),
        cmocka_unit_test(test_recovery_is_acknowledged_unasked),
        cmocka_unit_test(test_repeated_writes_are_not_executed),
        cmocka_unit_test(test_repeated_sends_take_no_receive),
        cmocka_unit_test(test_repeats_inside_a_message),
        cmocka_unit_test(test_strange_repeats_do_no_harm),
        cmocka_unit_test(test_repeat_after_a_nak_is_acknowledged),
        cmocka_unit_test(test_refusal_comes_behind_what_is_owed),
        cmocka_unit_test(test_refusal_waits_for_room_to_send),
        cmocka_unit_test(test_refusal_replaces_a_complaint),
        cmocka_unit_test(test_refusal_in_rtr),
        cmocka_unit_test(test_receive_counters_wrap),
        cmocka_unit_test(test_receive_counter_that_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
