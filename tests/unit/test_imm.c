// SPDX-License-Identifier: Apache-2.0
// Immediate data and SEND with invalidate, on both sides of a reliable connection.
#include "base/bytes.h"
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Four bytes whose order shows.
static uint32_t imm_bytes(void)
{
    const uint8_t b[4] = {0x11, 0x22, 0x33, 0x44};
    uint32_t v;
    memcpy(&v, b, 4);
    return v;
}

static struct forge *open_at(uint32_t peer_psn)
{
    struct forge_opts o = forge_defaults();
    o.peer_psn = o.our_psn = peer_psn;
    return forge_open(&o);
}

static void post_imm(struct forge *f, uint64_t wr_id, enum vb_wr_opcode opcode, uint32_t len,
                     uint32_t flags)
{
    const struct vb_sge sge = {forge_addr(f, 0), len, f->key};
    const struct vb_send_wr wr = {.wr_id = wr_id,
                                  .sge = &sge,
                                  .num_sge = len ? 1 : 0,
                                  .opcode = opcode,
                                  .flags = VB_WR_SIGNALED | flags,
                                  .raddr = 0x1000,
                                  .rkey = 0x2222,
                                  .imm = opcode == VB_WR_SEND_INVAL ? 0x11223344 : imm_bytes()};
    forge_post_send(f, &wr);
}

static enum vb_rx_verdict give(struct forge *f, enum vb_opcode opcode, uint32_t psn,
                               uint32_t offset, uint32_t dma_len, uint32_t len, uint32_t imm)
{
    static const uint8_t payload[VB_MTU_MAX] = {[0 ... VB_MTU_MAX - 1] = 0x5a};
    struct vb_packet p = forge_reth(f, opcode, psn, offset, dma_len);
    p.payload = payload;
    p.payload_len = len;
    p.imm = imm;
    p.ack_request = vb_opcode_table[p.opcode].facts & VB_OP_LAST;
    return forge_give(f, &p);
}

static void expect_receive(struct forge *f, uint64_t wr_id, enum vb_wc_opcode opcode,
                           uint32_t byte_len, uint32_t flags, uint32_t imm)
{
    struct vb_wc wc = forge_next_recv(f);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.opcode, opcode);
    assert_int_equal(wc.byte_len, byte_len);
    assert_int_equal(wc.flags, flags);
    assert_int_equal(wc.imm, imm);
}

// ---- requester

// The last packet carries the immediate and the solicited bit, the others neither.
static void test_requests_at_the_mtus_edges(void **state)
{
    (void)state;
    static const struct {
        enum vb_wr_opcode wr;
        uint8_t first, last, only;
    } kind[] = {
        {VB_WR_SEND_IMM, VB_RC_SEND_FIRST, VB_RC_SEND_LAST_IMM, VB_RC_SEND_ONLY_IMM},
        {VB_WR_SEND_INVAL, VB_RC_SEND_FIRST, VB_RC_SEND_LAST_INV, VB_RC_SEND_ONLY_INV},
        {VB_WR_WRITE_IMM, VB_RC_WRITE_FIRST, VB_RC_WRITE_LAST_IMM, VB_RC_WRITE_ONLY_IMM},
    };
    static const uint32_t lens[] = {0, 1, 1023, 1024, 1025, 2048, 2049};
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t l = 0; l < 7; l++) {
            struct forge *f = open_at(0xffffff);
            uint32_t packets = lens[l] <= 1024 ? 1 : (lens[l] + 1023) / 1024;
            post_imm(f, 1, kind[k].wr, lens[l], VB_WR_SOLICITED);
            forge_run(f);
            assert_int_equal(f->sent_count, packets);
            const struct vb_packet *p = forge_sent(f, packets - 1);
            assert_int_equal(p->opcode, packets == 1 ? kind[k].only : kind[k].last);
            assert_int_equal(p->imm, k == 1 ? 0x11223344 : imm_bytes());
            assert_true(p->solicited && p->ack_request);
            assert_int_equal(p->psn, (0xffffff + packets - 1) & 0xffffff);
            if (packets > 1) {
                assert_int_equal(forge_sent(f, 0)->opcode, kind[k].first);
                assert_false(forge_sent(f, 0)->solicited);
            }
            forge_ack(f, p->psn);
            struct vb_wc wc = forge_next_done(f);
            assert_int_equal(wc.status, VB_WC_OK);
            assert_int_equal(wc.opcode, k == 2 ? VB_WC_WRITE : VB_WC_SEND);
            forge_close(f);
        }
}

static void test_the_solicited_bit_needs_the_flag_and_a_receive(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_imm(f, 1, VB_WR_SEND_IMM, 1, 0);
    post_imm(f, 2, VB_WR_WRITE_IMM, 1, 0);
    forge_post_flags(f, 3, VB_WR_WRITE, 1, VB_WR_SOLICITED);
    forge_post_flags(f, 4, VB_WR_SEND, 1, VB_WR_SOLICITED);
    forge_run(f);
    for (uint32_t i = 0; i < 3; i++)
        assert_false(forge_sent(f, i)->solicited);
    assert_true(forge_sent(f, 3)->solicited);
    forge_close(f);
}

// The receiver was not ready for the last packet: only that one goes again.
static void test_rnr_on_the_last_packet(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    post_imm(f, 1, VB_WR_WRITE_IMM, 3000, 0);
    forge_run(f);
    assert_int_equal(forge_nak(f, 0, VB_AETH_RNR, 1), VB_RX_RETRY);
    forge_forget(f);
    forge_advance(f, vb_rnr_timer_ns(1) - 1);
    assert_int_equal(f->sent_count, 0);
    forge_advance(f, 1);
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(forge_sent(f, 0)->opcode, VB_RC_WRITE_LAST_IMM);
    assert_int_equal(forge_sent(f, 0)->psn, 0);
    assert_int_equal(forge_sent(f, 0)->imm, imm_bytes());
    assert_int_equal(forge_sent(f, 0)->payload_len, 3000 - 2048);
    forge_expect_none(f);
    forge_ack(f, 0);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

// ---- responder: SEND with immediate data

static void test_send_imm_is_received(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    forge_post_recv(f, 1, 0, 3000);
    forge_post_recv(f, 2, 4000, 0);
    give(f, VB_RC_SEND_FIRST, 0xfffffe, 0, 0, 1024, 7);
    forge_expect_none(f);
    give(f, VB_RC_SEND_LAST_IMM, 0xffffff, 0, 0, 1, imm_bytes());
    expect_receive(f, 1, VB_WC_RECV, 1025, VB_WC_WITH_IMM, imm_bytes());
    give(f, VB_RC_SEND_ONLY_IMM, 0, 0, 0, 0, imm_bytes());
    expect_receive(f, 2, VB_WC_RECV, 0, VB_WC_WITH_IMM, imm_bytes());
    forge_expect_ack(f, 1, 0);
    assert_int_equal(forge_sent(f, 1)->msn, 2);
    // Its twin without.
    forge_post_recv(f, 3, 0, 10);
    give(f, VB_RC_SEND_ONLY, 1, 0, 0, 10, imm_bytes());
    expect_receive(f, 3, VB_WC_RECV, 10, 0, 0);
    forge_close(f);
}

static void test_duplicate_of_send_imm_takes_no_receive(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    forge_post_recv(f, 1, 0, 10);
    forge_post_recv(f, 2, 0, 10);
    give(f, VB_RC_SEND_ONLY_IMM, 0xffffff, 0, 0, 10, 1);
    expect_receive(f, 1, VB_WC_RECV, 10, VB_WC_WITH_IMM, 1);
    assert_int_equal(give(f, VB_RC_SEND_ONLY_IMM, 0xffffff, 0, 0, 10, 1), VB_RX_DUPLICATE);
    forge_expect_none(f);
    forge_expect_ack(f, 1, 0xffffff);
    give(f, VB_RC_SEND_ONLY_IMM, 0, 0, 0, 10, 2);
    expect_receive(f, 2, VB_WC_RECV, 10, VB_WC_WITH_IMM, 2);
    forge_close(f);
}

// ---- responder: WRITE with immediate data

// The receive's own buffers stay as they are, and its length does not matter.
static void test_write_imm_is_received(void **state)
{
    (void)state;
    static const uint32_t lens[] = {0, 1, 1023, 1024};
    struct forge *f = open_at(0xfffffe);
    for (uint32_t i = 0; i < 4; i++) {
        forge_post_recv(f, i, 8000, i); // shorter than what is written
        give(f, VB_RC_WRITE_ONLY_IMM, 0xfffffe + i, 100, lens[i], lens[i], imm_bytes());
        expect_receive(f, i, VB_WC_RECV_WRITE, lens[i], VB_WC_WITH_IMM, imm_bytes());
        forge_expect_ack(f, i, 0xfffffe + i);
    }
    assert_int_equal(f->memory[100], 0x5a);
    assert_int_equal(f->memory[1123], 0x5a);
    assert_int_equal(f->memory[1124], 0);
    assert_int_equal(f->memory[8000], 0);
    forge_close(f);
}

// A receive whose memory is gone does not matter either: it is not touched.
static void test_write_imm_with_a_bad_receive(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    const struct vb_sge bad = {1, 100, 0x12345678};
    const struct vb_recv_wr wr = {.wr_id = 7, .sge = &bad, .num_sge = 1};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    give(f, VB_RC_WRITE_ONLY_IMM, 500, 0, 4, 4, 9);
    expect_receive(f, 7, VB_WC_RECV_WRITE, 4, VB_WC_WITH_IMM, 9);
    forge_close(f);
}

static void test_long_write_imm(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    forge_post_recv(f, 1, 8000, 1);
    give(f, VB_RC_WRITE_FIRST, 0xfffffe, 0, 2049, 1024, 0);
    give(f, VB_RC_WRITE_MIDDLE, 0xffffff, 0, 0, 1024, 0);
    forge_expect_none(f);
    assert_int_equal(f->ctx->rq.taken, 0); // no receive is held meanwhile
    give(f, VB_RC_WRITE_LAST_IMM, 0, 0, 0, 1, 5);
    expect_receive(f, 1, VB_WC_RECV_WRITE, 2049, VB_WC_WITH_IMM, 5);
    assert_int_equal(f->memory[2048], 0x5a);
    assert_int_equal(f->memory[2049], 0);
    // A WRITE without takes none.
    forge_post_recv(f, 2, 8000, 1);
    give(f, VB_RC_WRITE_ONLY, 1, 0, 4, 4, 5);
    forge_expect_none(f);
    forge_close(f);
}

// No receive at the last packet: what came before stays, the last one comes again.
static void test_write_imm_without_a_receive(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    give(f, VB_RC_WRITE_FIRST, 0xffffff, 0, 1030, 1024, 0);
    assert_int_equal(give(f, VB_RC_WRITE_LAST_IMM, 0, 0, 0, 6, 5), VB_RX_RNR);
    forge_expect_rnr(f, 0, 0, f->opts.rnr_timer);
    assert_int_equal(f->memory[1023], 0x5a);
    assert_int_equal(f->memory[1024], 0);
    assert_int_equal(give(f, VB_RC_WRITE_LAST_IMM, 0, 0, 0, 6, 5), VB_RX_RNR);
    forge_post_recv(f, 1, 8000, 1);
    assert_int_equal(give(f, VB_RC_WRITE_LAST_IMM, 0, 0, 0, 6, 5), VB_RX_APPLIED);
    expect_receive(f, 1, VB_WC_RECV_WRITE, 1030, VB_WC_WITH_IMM, 5);
    assert_int_equal(f->memory[1029], 0x5a);
    forge_expect_ack(f, 2, 0);
    assert_int_equal(forge_sent(f, 2)->msn, 1);
    forge_close(f);
}

static void test_write_only_imm_without_a_receive(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    assert_int_equal(give(f, VB_RC_WRITE_ONLY_IMM, 500, 0, 8, 8, 5), VB_RX_RNR);
    assert_int_equal(f->memory[0], 0); // not before it can be told
    assert_int_equal(forge_sent(f, 0)->msn, 0);
    // The requester may ask for something else instead.
    assert_int_equal(give(f, VB_RC_WRITE_ONLY, 500, 64, 8, 8, 0), VB_RX_APPLIED);
    forge_post_recv(f, 1, 8000, 1);
    assert_int_equal(give(f, VB_RC_WRITE_ONLY_IMM, 501, 0, 8, 8, 5), VB_RX_APPLIED);
    expect_receive(f, 1, VB_WC_RECV_WRITE, 8, VB_WC_WITH_IMM, 5);
    forge_close(f);
}

// A bad key is refused before a receive is taken: the receive is flushed.
static void test_write_imm_with_a_bad_key(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post_recv(f, 1, 8000, 1);
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY_IMM, 500, 0, 4);
    p.rkey ^= 0x100;
    p.payload = (const uint8_t *)"abcd";
    p.payload_len = 4;
    assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
    forge_expect_nak(f, 0, 500, VB_NAK_REMOTE_ACCESS);
    forge_expect_recv(f, 1, VB_WC_FLUSHED, 0);
    forge_expect_qp_event(f, VB_EVENT_QP_ACCESS_ERR);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

// The region goes between two packets.
static void test_write_imm_into_a_region_that_goes(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post_recv(f, 1, 8000, 1);
    give(f, VB_RC_WRITE_FIRST, 500, 0, 1030, 1024, 0);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0);
    assert_int_equal(give(f, VB_RC_WRITE_LAST_IMM, 501, 0, 0, 6, 5), VB_RX_REFUSED);
    forge_expect_nak(f, 0, 501, VB_NAK_REMOTE_ACCESS);
    forge_expect_recv(f, 1, VB_WC_FLUSHED, 0);
    forge_close(f);
}

static void test_write_imm_of_the_wrong_length(void **state)
{
    (void)state;
    for (uint32_t len = 5; len <= 7; len++) {
        struct forge *f = forge_open(NULL);
        forge_post_recv(f, 1, 8000, 1);
        give(f, VB_RC_WRITE_FIRST, 500, 0, 1030, 1024, 0);
        enum vb_rx_verdict v = give(f, VB_RC_WRITE_LAST_IMM, 501, 0, 0, len, 5);
        assert_int_equal(v, len == 6 ? VB_RX_APPLIED : VB_RX_REFUSED);
        if (len != 6)
            forge_expect_nak(f, 0, 501, VB_NAK_INVALID_REQUEST);
        forge_close(f);
    }
}

static void test_what_may_follow(void **state)
{
    (void)state;
    static const struct {
        enum vb_opcode first, then;
    } bad[] = {
        {VB_RC_SEND_FIRST, VB_RC_WRITE_LAST_IMM}, {VB_RC_WRITE_FIRST, VB_RC_SEND_LAST_IMM},
        {VB_RC_WRITE_FIRST, VB_RC_SEND_LAST_INV}, {VB_RC_SEND_FIRST, VB_RC_SEND_ONLY_IMM},
        {VB_RC_SEND_FIRST, VB_RC_SEND_ONLY_INV},  {VB_RC_WRITE_FIRST, VB_RC_WRITE_ONLY_IMM},
        {VB_RC_WRITE_FIRST, VB_RC_FETCH_ADD},     {VB_RC_SEND_FIRST, VB_RC_FLUSH},
    };
    for (uint32_t i = 0; i < 8; i++) {
        struct forge *f = forge_open(NULL);
        forge_post_recv(f, 1, 8000, 4000);
        give(f, bad[i].first, 500, 0, 1030, 1024, 0);
        assert_int_equal(give(f, bad[i].then, 501, 0, 6,
                              vb_opcode_table[bad[i].then].facts & VB_OP_PAYLOAD ? 6 : 0, 0),
                         VB_RX_REFUSED);
        forge_expect_nak(f, 0, 501, VB_NAK_INVALID_REQUEST);
        forge_expect_qp_event(f, VB_EVENT_QP_REQ_ERR);
        forge_close(f);
    }
    static const enum vb_opcode alone[] = {VB_RC_SEND_LAST_IMM, VB_RC_SEND_LAST_INV,
                                           VB_RC_WRITE_LAST_IMM};
    for (uint32_t i = 0; i < 3; i++) {
        struct forge *f = forge_open(NULL);
        forge_post_recv(f, 1, 8000, 4000);
        assert_int_equal(give(f, alone[i], 500, 0, 0, 6, 0), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, VB_NAK_INVALID_REQUEST);
        forge_close(f);
    }
}

static void test_the_solicited_bit_arrives(void **state)
{
    (void)state;
    for (uint32_t solicited = 0; solicited < 2; solicited++) {
        struct forge *f = forge_open(NULL);
        forge_post_recv(f, 1, 8000, 1);
        struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY_IMM, 500, 0, 0);
        p.solicited = solicited;
        forge_give(f, &p);
        const struct vb_cqe *cqe = (const void *)f->recv_cq.ring;
        assert_int_equal(!!(cqe->op_own & VB_CQE_SE), solicited);
        assert_int_equal(cqe->op_own >> 4, VB_CQE_RESP_WR_IMM);
        forge_close(f);
    }
}

// ---- zero lengths

// Without bytes the key is not looked at, unless the device was told to.
static void test_zero_length_write_with_a_bad_key(void **state)
{
    (void)state;
    for (uint32_t checks = 0; checks < 2; checks++)
        for (uint32_t right_key = 0; right_key < 2; right_key++) {
            struct forge_opts o = forge_defaults();
            o.check_zero_length = checks;
            struct forge *f = forge_open(&o);
            forge_post_recv(f, 1, 0, 0);
            struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY_IMM, 500, 0, 0);
            p.rkey = right_key ? f->key : f->key ^ 1;
            p.raddr = UINT64_MAX;
            bool good = right_key || !checks;
            assert_int_equal(forge_give(f, &p), good ? VB_RX_APPLIED : VB_RX_REFUSED);
            forge_expect_recv(f, 1, good ? VB_WC_OK : VB_WC_FLUSHED, 0);
            forge_close(f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_at_the_mtus_edges),
        cmocka_unit_test(test_the_solicited_bit_needs_the_flag_and_a_receive),
        cmocka_unit_test(test_rnr_on_the_last_packet),
        cmocka_unit_test(test_send_imm_is_received),
        cmocka_unit_test(test_duplicate_of_send_imm_takes_no_receive),
        cmocka_unit_test(test_write_imm_is_received),
        cmocka_unit_test(test_write_imm_with_a_bad_receive),
        cmocka_unit_test(test_long_write_imm),
        cmocka_unit_test(test_write_imm_without_a_receive),
        cmocka_unit_test(test_write_only_imm_without_a_receive),
        cmocka_unit_test(test_write_imm_with_a_bad_key),
        cmocka_unit_test(test_write_imm_into_a_region_that_goes),
        cmocka_unit_test(test_write_imm_of_the_wrong_length),
        cmocka_unit_test(test_what_may_follow),
        cmocka_unit_test(test_the_solicited_bit_arrives),
        cmocka_unit_test(test_zero_length_write_with_a_bad_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
