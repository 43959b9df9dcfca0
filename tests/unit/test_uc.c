// SPDX-License-Identifier: Apache-2.0
// Unreliable connections against a forged peer: what is lost takes its whole message with it and
// nothing else, and nothing is ever answered.
#include "base/bytes.h"
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct forge *open_at(uint32_t psn)
{
    struct forge_opts o = forge_defaults();
    o.type = VB_QPT_UC;
    o.our_psn = o.peer_psn = psn & 0xffffff;
    return forge_open(&o);
}

static enum vb_rx_verdict write_to(struct forge *f, enum vb_opcode opcode, uint32_t psn,
                                   uint32_t offset, uint32_t dma_len, uint32_t len, uint32_t imm)
{
    static const uint8_t payload[VB_MTU_MAX] = {[0 ... VB_MTU_MAX - 1] = 0x5a};
    struct vb_packet p = forge_reth(f, opcode, psn, offset, dma_len);
    p.payload = payload;
    p.payload_len = len;
    p.imm = imm;
    return forge_give(f, &p);
}

// ---- requester

static void test_requests_complete_when_sent(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    forge_fill(f, 0, 3000, 3);
    forge_post(f, 1, VB_WR_SEND, 0, 2049);
    forge_post(f, 2, VB_WR_WRITE, 0, 0);
    forge_post(f, 3, VB_WR_NOP, 0, 0);
    forge_run(f);
    for (uint64_t i = 1; i <= 3; i++)
        forge_expect_done(f, i, VB_WC_OK);
    static const uint8_t opcode[] = {VB_RC_SEND_FIRST, VB_RC_SEND_MIDDLE, VB_RC_SEND_LAST,
                                     VB_RC_WRITE_ONLY};
    assert_int_equal(f->sent_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(forge_sent(f, i)->opcode, VB_UC_BASE | opcode[i]);
        assert_int_equal(forge_sent(f, i)->psn, (0xfffffe + i) & 0xffffff);
        assert_false(forge_sent(f, i)->ack_request);
    }
    assert_true(forge_filled(forge_sent(f, 0)->payload, 1024, 3));
    assert_int_equal(vb_pu_deadline(f->pu), UINT64_MAX); // nothing is waited for
    forge_close(f);
}

static void test_immediates_leave(void **state)
{
    (void)state;
    struct forge *f = open_at(1);
    static const enum vb_wr_opcode wr_op[] = {VB_WR_SEND_IMM, VB_WR_WRITE_IMM};
    static const uint8_t only[] = {VB_RC_SEND_ONLY_IMM, VB_RC_WRITE_ONLY_IMM};
    for (uint32_t i = 0; i < 2; i++) {
        const struct vb_send_wr wr = {
            .opcode = wr_op[i], .imm = 0x12345678, .flags = VB_WR_SOLICITED | VB_WR_SIGNALED};
        forge_post_send(f, &wr);
        forge_run(f);
        assert_int_equal(forge_sent(f, i)->opcode, VB_UC_BASE | only[i]);
        assert_int_equal(forge_sent(f, i)->imm, 0x12345678);
        assert_true(forge_sent(f, i)->solicited);
        forge_expect_done(f, 0, VB_WC_OK);
    }
    forge_close(f);
}

// What needs an answer is not for this service; the send queue alone fails.
static void test_operations_of_other_services(void **state)
{
    (void)state;
    static const enum vb_wr_opcode bad[] = {VB_WR_READ,         VB_WR_CAS,         VB_WR_FADD,
                                            VB_WR_MASKED_CAS,   VB_WR_MASKED_FADD, VB_WR_FLUSH,
                                            VB_WR_ATOMIC_WRITE, VB_WR_SEND_INVAL};
    for (uint32_t i = 0; i < 8; i++) {
        struct forge *f = open_at(100);
        const struct vb_sge sge = {forge_addr(f, 0), 8, f->key};
        const struct vb_send_wr wr = {
            .wr_id = 1, .sge = &sge, .num_sge = bad[i] != VB_WR_FLUSH, .opcode = bad[i]};
        forge_post(f, 0, VB_WR_SEND, 0, 4);
        forge_post_send(f, &wr);
        forge_post(f, 2, VB_WR_SEND, 0, 4);
        forge_run(f);
        assert_int_equal(f->sent_count, 1);
        forge_expect_done(f, 0, VB_WC_OK);
        forge_expect_done(f, 1, VB_WC_LOCAL_QP_OP);
        forge_expect_done(f, 2, VB_WC_FLUSHED);
        assert_int_equal(forge_state(f), VB_QPS_SQE);
        forge_close(f);
    }
}

// ---- responder: messages without loss

static void test_messages_arrive(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    forge_post_recv(f, 1, 0, 1025);
    forge_post_recv(f, 2, 4000, 0);
    forge_send(f, VB_RC_SEND_FIRST, 0xffffff, 1024, 1);
    forge_expect_none(f);
    assert_int_equal(forge_send(f, VB_RC_SEND_LAST, 0, 1, 9), VB_RX_APPLIED);
    forge_expect_recv(f, 1, VB_WC_OK, 1025);
    assert_true(forge_filled(f->memory, 1024, 1));
    assert_int_equal(f->memory[1024], 9);
    forge_send(f, VB_RC_SEND_ONLY, 1, 0, 1);
    forge_expect_recv(f, 2, VB_WC_OK, 0);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

static void test_writes_arrive(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    write_to(f, VB_RC_WRITE_FIRST, 0xfffffe, 0, 2049, 1024, 0);
    write_to(f, VB_RC_WRITE_MIDDLE, 0xffffff, 0, 0, 1024, 0);
    assert_int_equal(write_to(f, VB_RC_WRITE_LAST, 0, 0, 0, 1, 0), VB_RX_APPLIED);
    assert_int_equal(f->memory[2048], 0x5a);
    assert_int_equal(f->memory[2049], 0);
    forge_expect_none(f);
    forge_post_recv(f, 1, 8000, 4);
    assert_int_equal(write_to(f, VB_RC_WRITE_ONLY_IMM, 1, 0, 7, 7, 0x77), VB_RX_APPLIED);
    struct vb_wc wc = forge_next_recv(f);
    assert_int_equal(wc.opcode, VB_WC_RECV_WRITE);
    assert_int_equal(wc.byte_len, 7);
    assert_int_equal(wc.imm, 0x77);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

// ---- loss at each position

// Of four packets one is lost: the message is gone, its receive serves the next one.
static void test_one_lost_packet_of_a_send(void **state)
{
    (void)state;
    static const enum vb_opcode op[] = {VB_RC_SEND_FIRST, VB_RC_SEND_MIDDLE, VB_RC_SEND_MIDDLE,
                                        VB_RC_SEND_LAST};
    for (uint32_t lost = 0; lost < 4; lost++) {
        struct forge *f = open_at(0xfffffe);
        forge_post_recv(f, 1, 0, 4096);
        forge_post_recv(f, 2, 8192, 4096);
        for (uint32_t i = 0; i < 4; i++)
            if (i != lost)
                forge_send(f, op[i], 0xfffffe + i, 1024, (uint8_t)i);
        forge_expect_none(f);
        for (uint32_t i = 0; i < 4; i++)
            forge_send(f, op[i], 0xfffffe + 4 + i, 1024, (uint8_t)(10 + i));
        forge_expect_recv(f, 1, VB_WC_OK, 4096);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(forge_filled(f->memory + i * 1024, 1024, (uint8_t)(10 + i)));
        forge_send(f, VB_RC_SEND_ONLY, 0xfffffe + 8, 5, 77);
        forge_expect_recv(f, 2, VB_WC_OK, 5);
        forge_expect_none(f);
        assert_int_equal(f->sent_count, 0);
        assert_int_equal(forge_state(f), VB_QPS_RTS);
        forge_close(f);
    }
}

static void test_one_lost_packet_of_a_write(void **state)
{
    (void)state;
    static const enum vb_opcode op[] = {VB_RC_WRITE_FIRST, VB_RC_WRITE_MIDDLE,
                                        VB_RC_WRITE_LAST_IMM};
    for (uint32_t lost = 0; lost < 3; lost++) {
        struct forge *f = open_at(0xffffff);
        forge_post_recv(f, 1, 8000, 1);
        for (uint32_t i = 0; i < 3; i++)
            if (i != lost)
                write_to(f, op[i], 0xffffff + i, 0, 3072, 1024, 5);
        forge_expect_none(f); // its immediate is lost with it
        // What came after the gap was not written.
        assert_int_equal(f->memory[0], lost > 0 ? 0x5a : 0);
        assert_int_equal(f->memory[1024], lost > 1 ? 0x5a : 0);
        assert_int_equal(f->memory[2048], 0);
        for (uint32_t i = 0; i < 3; i++)
            write_to(f, op[i], 2 + i, 0, 3072, 1024, 6);
        assert_int_equal(forge_next_recv(f).imm, 6);
        forge_close(f);
    }
}

// The loss of a Last shows at the next First, whose number is ahead or not.
static void test_a_first_ends_the_message_before_it(void **state)
{
    (void)state;
    for (uint32_t skip = 0; skip < 2; skip++) {
        struct forge *f = open_at(500);
        forge_post_recv(f, 1, 0, 4096);
        forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
        forge_send(f, VB_RC_SEND_FIRST, 501 + skip, 1024, 2);
        forge_send(f, VB_RC_SEND_LAST, 502 + skip, 3, 3);
        forge_expect_recv(f, 1, VB_WC_OK, 1027);
        assert_true(forge_filled(f->memory, 1024, 2));
        forge_close(f);
    }
}

static void test_an_abandoned_send_then_a_write(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, 0, 4096);
    forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
    write_to(f, VB_RC_WRITE_ONLY_IMM, 502, 8000, 4, 4, 9); // takes the receive in use
    struct vb_wc wc = forge_next_recv(f);
    assert_int_equal(wc.wr_id, 1);
    assert_int_equal(wc.byte_len, 4);
    assert_int_equal(wc.opcode, VB_WC_RECV_WRITE);
    forge_close(f);
}

// Numbers go on from whatever came last: a jump costs one message at most.
static void test_jumps_in_both_directions(void **state)
{
    (void)state;
    static const uint32_t psn[] = {500, 0x7fffff, 0x800000, 3, 0xffffff, 0, 499};
    struct forge *f = open_at(500);
    for (uint32_t i = 0; i < 7; i++) {
        forge_post_recv(f, i, 0, 10);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, psn[i], 10, (uint8_t)i), VB_RX_APPLIED);
        forge_expect_recv(f, i, VB_WC_OK, 10);
        assert_int_equal(f->ctx->resp.epsn, (psn[i] + 1) & 0xffffff);
    }
    assert_int_equal(forge_send(f, VB_RC_SEND_LAST, 500, 10, 1), VB_RX_AHEAD);
    assert_int_equal(f->ctx->resp.epsn, 501);
    forge_close(f);
}

// ---- what is dropped

static void test_no_receive(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    assert_int_equal(forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1), VB_RX_RNR);
    forge_post_recv(f, 1, 0, 4096);
    assert_int_equal(forge_send(f, VB_RC_SEND_LAST, 501, 10, 1), VB_RX_AHEAD); // too late
    forge_expect_none(f);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 502, 10, 1), VB_RX_APPLIED);
    forge_expect_recv(f, 1, VB_WC_OK, 10);
    assert_int_equal(forge_counters(f)->out_of_buffer, 1);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(write_to(f, VB_RC_WRITE_ONLY_IMM, 503, 0, 4, 4, 1), VB_RX_RNR);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

static void test_refusals_are_silent(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct forge_opts o = forge_defaults();
        o.type = VB_QPT_UC;
        o.access = i == 0 ? VB_REMOTE_READ : VB_REMOTE_WRITE;
        struct forge *f = forge_open(&o);
        forge_post_recv(f, 1, 8000, 4096);
        struct vb_packet p =
            forge_reth(f, i == 5 ? VB_RC_SEND_FIRST : VB_RC_WRITE_FIRST, 500, 0, 2000);
        p.payload = f->memory;
        p.payload_len = i == 3 || i == 5 ? 1023 : 1024;
        if (i == 1)
            p.rkey ^= 1;
        if (i == 2)
            p.raddr += FORGE_MEMORY - 1999;
        if (i == 4)
            p.dma_len = 1024;
        assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
        assert_int_equal(write_to(f, VB_RC_WRITE_LAST_IMM, 501, 0, 0, 976, 1), VB_RX_AHEAD);
        assert_int_equal(f->sent_count, 0);
        assert_int_equal(forge_state(f), VB_QPS_RTS);
        forge_expect_none(f);
        forge_expect_no_event(f);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 502, 10, 1), VB_RX_APPLIED);
        forge_expect_recv(f, 1, VB_WC_OK, 10);
        forge_close(f);
    }
}

static void test_region_that_goes(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    write_to(f, VB_RC_WRITE_FIRST, 500, 0, 2048, 1024, 0);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0);
    assert_int_equal(write_to(f, VB_RC_WRITE_LAST, 501, 0, 0, 1024, 0), VB_RX_REFUSED);
    assert_int_equal(f->memory[1024], 0);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

static void test_packets_of_other_services(void **state)
{
    (void)state;
    static const uint8_t bad[] = {VB_RC_SEND_ONLY, VB_RC_ACK, VB_UD_SEND_ONLY,
                                  VB_XRC_BASE | VB_RC_SEND_ONLY, VB_RC_READ_REQUEST};
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, 0, 10);
    for (uint32_t i = 0; i < 5; i++) {
        struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500);
        p.opcode = bad[i];
        assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    }
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500);
    struct vb_ip other = f->remote;
    other.b[15]++;
    forge_queue_from(f, &p, &other);
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_STRANGER);
    forge_expect_none(f);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 10, 1), VB_RX_APPLIED);
    forge_close(f);
}

// ---- faults of our own receive queue

static void test_a_receive_too_short(void **state)
{
    (void)state;
    for (uint32_t room = 1029; room <= 1030; room++) {
        struct forge *f = open_at(500);
        forge_post_recv(f, 1, 0, room);
        forge_post_recv(f, 2, 0, 10);
        forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
        enum vb_rx_verdict v = forge_send(f, VB_RC_SEND_LAST, 501, 6, 1);
        assert_int_equal(v, room == 1030 ? VB_RX_APPLIED : VB_RX_REFUSED);
        if (room == 1030) {
            forge_expect_recv(f, 1, VB_WC_OK, 1030);
        } else {
            forge_expect_recv(f, 1, VB_WC_LOCAL_LENGTH, 0);
            forge_expect_recv(f, 2, VB_WC_FLUSHED, 0);
            assert_int_equal(forge_state(f), VB_QPS_ERR);
        }
        assert_int_equal(f->sent_count, 0);
        forge_close(f);
    }
}

static void test_a_receive_of_refused_memory(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    const struct vb_sge bad = {forge_addr(f, 0), 100, f->key ^ 1};
    const struct vb_recv_wr wr = {.wr_id = 7, .sge = &bad, .num_sge = 1};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    forge_post(f, 1, VB_WR_NOP, 0, 0);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 10, 1), VB_RX_REFUSED);
    forge_expect_recv(f, 7, VB_WC_LOCAL_PROTECTION, 0);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 501, 10, 1), VB_RX_STRANGER);
    forge_close(f);
}

// A fault that comes in one batch with the next packet: that one finds the queue pair closed.
static void test_a_batch_behind_a_fault(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, 0, 4);
    forge_post_recv(f, 2, 0, 400);
    for (uint32_t i = 0; i < 2; i++) {
        struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500 + i);
        p.payload = f->memory;
        p.payload_len = 10;
        forge_queue(f, &p);
    }
    forge_run(f);
    forge_expect_recv(f, 1, VB_WC_LOCAL_LENGTH, 0);
    forge_expect_recv(f, 2, VB_WC_FLUSHED, 0);
    forge_expect_none(f);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_complete_when_sent),
        cmocka_unit_test(test_immediates_leave),
        cmocka_unit_test(test_operations_of_other_services),
        cmocka_unit_test(test_messages_arrive),
        cmocka_unit_test(test_writes_arrive),
        cmocka_unit_test(test_one_lost_packet_of_a_send),
        cmocka_unit_test(test_one_lost_packet_of_a_write),
        cmocka_unit_test(test_a_first_ends_the_message_before_it),
        cmocka_unit_test(test_an_abandoned_send_then_a_write),
        cmocka_unit_test(test_jumps_in_both_directions),
        cmocka_unit_test(test_no_receive),
        cmocka_unit_test(test_refusals_are_silent),
        cmocka_unit_test(test_region_that_goes),
        cmocka_unit_test(test_packets_of_other_services),
        cmocka_unit_test(test_a_receive_too_short),
        cmocka_unit_test(test_a_receive_of_refused_memory),
        cmocka_unit_test(test_a_batch_behind_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
