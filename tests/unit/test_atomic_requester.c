// SPDX-License-Identifier: Apache-2.0
// The requester's half of atomics, ATOMIC WRITE and FLUSH: their packets, the one answer that
// completes each, and all that must not.
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
    o.our_psn = psn & 0xffffff;
    return forge_open(&o);
}

// A signaled request of the kind; its answer goes to memory[offset].
static void post(struct forge *f, uint64_t wr_id, enum vb_wr_opcode opcode, uint32_t offset,
                 uint32_t flags)
{
    uint32_t len = opcode == VB_WR_FLUSH ? 0 : 8;
    const struct vb_sge sge = {forge_addr(f, offset), len, f->key};
    struct vb_send_wr wr = {.wr_id = wr_id,
                            .sge = &sge,
                            .num_sge = len ? 1 : 0,
                            .opcode = opcode,
                            .flags = VB_WR_SIGNALED | flags,
                            .raddr = 0x1000,
                            .rkey = 0x2222};
    if (opcode == VB_WR_FLUSH)
        wr.flush.len = 77;
    else if (opcode != VB_WR_ATOMIC_WRITE)
        wr.atomic.swap_add = 0x0102030405060708, wr.atomic.compare = 0x1112131415161718;
    forge_post_send(f, &wr);
}

static enum vb_rx_verdict atomic_answer(struct forge *f, uint32_t psn, uint64_t old)
{
    struct vb_packet p = forge_packet(f, VB_RC_ATOMIC_ACK, psn);
    p.syndrome = vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID);
    p.atomic_old = old;
    return forge_give(f, &p);
}

static enum vb_rx_verdict done_answer(struct forge *f, uint32_t psn)
{
    return forge_response(f, VB_RC_READ_RESP_ONLY, psn, NULL, 0);
}

static enum vb_rx_verdict answer(struct forge *f, enum vb_wr_opcode opcode, uint32_t psn)
{
    bool done = opcode == VB_WR_FLUSH || opcode == VB_WR_ATOMIC_WRITE;
    return done ? done_answer(f, psn) : atomic_answer(f, psn, 5);
}

static const enum vb_wr_opcode kinds[] = {VB_WR_CAS,         VB_WR_FADD,         VB_WR_MASKED_CAS,
                                          VB_WR_MASKED_FADD, VB_WR_ATOMIC_WRITE, VB_WR_FLUSH};
enum {
    KINDS = 6
};

static void test_packets(void **state)
{
    (void)state;
    static const uint8_t opcode[KINDS] = {VB_RC_COMPARE_SWAP,        VB_RC_FETCH_ADD,
                                          VB_RC_MASKED_COMPARE_SWAP, VB_RC_MASKED_FETCH_ADD,
                                          VB_RC_ATOMIC_WRITE,        VB_RC_FLUSH};
    struct forge *f = open_at(0xfffffd);
    memcpy(f->memory + 64, "abcdefgh", 8);
    for (uint32_t i = 0; i < KINDS; i++)
        post(f, i, kinds[i], 64, VB_WR_SOLICITED);
    forge_run(f);
    assert_int_equal(f->sent_count, KINDS);
    for (uint32_t i = 0; i < KINDS; i++) {
        const struct vb_packet *p = forge_sent(f, i);
        assert_int_equal(p->opcode, opcode[i]);
        assert_int_equal(p->psn, (0xfffffd + i) & 0xffffff);
        assert_true(p->ack_request);
        assert_false(p->solicited);
        assert_int_equal(p->raddr, 0x1000);
        assert_int_equal(p->rkey, 0x2222);
        if (i < 4) {
            assert_true(p->swap_add == 0x0102030405060708);
            assert_true(p->compare == 0x1112131415161718);
        }
    }
    assert_int_equal(forge_sent(f, 2)->atomic_bytes, 8);
    assert_int_equal(forge_sent(f, 4)->dma_len, 8);
    assert_memory_equal(forge_sent(f, 4)->payload, "abcdefgh", 8);
    assert_int_equal(forge_sent(f, 5)->dma_len, 77);
    assert_int_equal(forge_sent(f, 5)->flush_type, VB_FETH_GLOBAL);
    assert_int_equal(forge_sent(f, 5)->flush_level, VB_FETH_RANGE);
    forge_close(f);
}

static void test_masks_and_narrow_arguments_leave(void **state)
{
    (void)state;
    struct forge *f = open_at(100);
    for (uint32_t bytes = 4; bytes <= 8; bytes += 4) {
        const struct vb_sge sge = {forge_addr(f, 0), bytes, f->key};
        struct vb_send_wr wr = {.sge = &sge, .num_sge = 1, .opcode = VB_WR_MASKED_CAS};
        wr.atomic.swap_add = 0xa1a2a3a4b1b2b3b4;
        wr.atomic.compare = 0xc1c2c3c4d1d2d3d4;
        wr.atomic.swap_mask = 0x00ff00ff0000ffff;
        wr.atomic.compare_mask = 0xff00ff00ffff0000;
        wr.atomic.arg_bytes = bytes;
        forge_post_send(f, &wr);
        forge_run(f);
        const struct vb_packet *p = forge_sent(f, bytes / 4 - 1);
        uint64_t mask = bytes == 4 ? 0xffffffff : UINT64_MAX;
        assert_int_equal(p->atomic_bytes, bytes);
        assert_true(p->swap_add == (wr.atomic.swap_add & mask));
        assert_true(p->compare == (wr.atomic.compare & mask));
        assert_true(p->swap_mask == (wr.atomic.swap_mask & mask));
        assert_true(p->compare_mask == (wr.atomic.compare_mask & mask));
    }
    // A fetch-and-add has no masks.
    const struct vb_sge sge = {forge_addr(f, 0), 4, f->key};
    struct vb_send_wr wr = {.sge = &sge, .num_sge = 1, .opcode = VB_WR_MASKED_FADD};
    wr.atomic.swap_add = 1;
    wr.atomic.compare = 0x80000000;
    wr.atomic.swap_mask = wr.atomic.compare_mask = UINT64_MAX;
    wr.atomic.arg_bytes = 4;
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(forge_sent(f, 2)->compare, 0x80000000);
    assert_int_equal(forge_sent(f, 2)->swap_mask, 0);
    assert_int_equal(forge_sent(f, 2)->compare_mask, 0);
    forge_close(f);
}

static void test_the_former_value_is_stored(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    post(f, 1, VB_WR_CAS, 64, 0);
    forge_run(f);
    assert_int_equal(atomic_answer(f, 0xffffff, 0x1122334455667788), VB_RX_APPLIED);
    assert_true(forge_word(f, 64) == 0x1122334455667788);
    struct vb_wc wc = forge_next_done(f);
    assert_int_equal(wc.opcode, VB_WC_ATOMIC);
    assert_int_equal(wc.byte_len, 8);
    const struct vb_sge sge = {forge_addr(f, 128), 4, f->key};
    struct vb_send_wr wr = {.wr_id = 2,
                            .sge = &sge,
                            .num_sge = 1,
                            .opcode = VB_WR_MASKED_FADD,
                            .flags = VB_WR_SIGNALED};
    wr.atomic.arg_bytes = 4;
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(atomic_answer(f, 0, 0x99aabbcc), VB_RX_APPLIED);
    assert_int_equal(forge_word(f, 128), 0x99aabbcc); // four bytes, and no more
    wc = forge_next_done(f);
    assert_int_equal(wc.byte_len, 4);
    forge_expect_none(f);
    forge_close(f);
}

// The wire has it big-endian; a queue pair may want it like that.
static void test_the_former_value_is_stored_big_endian(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.our_psn = 5;
    o.be_replies = true;
    struct forge *f = forge_open(&o);
    post(f, 1, VB_WR_FADD, 64, 0);
    forge_run(f);
    assert_int_equal(atomic_answer(f, 5, 0x1122334455667788), VB_RX_APPLIED);
    assert_true(forge_word(f, 64) == 0x8877665544332211);
    forge_next_done(f);
    const struct vb_sge sge = {forge_addr(f, 128), 4, f->key};
    struct vb_send_wr wr = {.wr_id = 2,
                            .sge = &sge,
                            .num_sge = 1,
                            .opcode = VB_WR_MASKED_FADD,
                            .flags = VB_WR_SIGNALED};
    wr.atomic.arg_bytes = 4;
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(atomic_answer(f, 6, 0x99aabbcc), VB_RX_APPLIED);
    assert_true(forge_word(f, 128) == 0xccbbaa99);
    forge_next_done(f);
    forge_expect_none(f);
    forge_close(f);
}

static void test_done_answers(void **state)
{
    (void)state;
    struct forge *f = open_at(7);
    post(f, 1, VB_WR_ATOMIC_WRITE, 0, 0);
    post(f, 2, VB_WR_FLUSH, 0, 0);
    forge_run(f);
    assert_int_equal(done_answer(f, 7), VB_RX_APPLIED);
    assert_int_equal(forge_next_done(f).opcode, VB_WC_ATOMIC_WRITE);
    assert_int_equal(done_answer(f, 8), VB_RX_APPLIED);
    assert_int_equal(forge_next_done(f).opcode, VB_WC_FLUSH);
    assert_int_equal(f->ctx->req.reads_open, 0);
    assert_int_equal(f->ctx->req.reads_out, 0);
    forge_close(f);
}

// ---- answers of the wrong kind

static void test_wrong_answers(void **state)
{
    (void)state;
    static const enum vb_opcode reads[] = {VB_RC_READ_RESP_FIRST, VB_RC_READ_RESP_MIDDLE,
                                           VB_RC_READ_RESP_LAST};
    for (uint32_t k = 0; k < KINDS; k++)
        for (uint32_t i = 0; i < 5; i++) {
            struct forge *f = open_at(100);
            bool atomic = k < 4;
            post(f, 1, kinds[k], 64, 0);
            forge_run(f);
            enum vb_rx_verdict v;
            if (i < 3)
                v = forge_response(f, reads[i], 100, f->memory, 0);
            else if (i == 3)
                v = atomic ? done_answer(f, 100) : atomic_answer(f, 100, 1);
            else
                v = forge_response(f, VB_RC_READ_RESP_ONLY, 100, "12345678", 8);
            assert_int_equal(v, VB_RX_FATAL);
            forge_expect_done(f, 1, VB_WC_BAD_RESPONSE);
            assert_int_equal(forge_word(f, 64), 0);
            assert_int_equal(forge_state(f), VB_QPS_ERR);
            forge_close(f);
        }
    struct forge *f = open_at(100); // nor is a READ answered by an atomic's
    forge_post(f, 1, VB_WR_READ, 0, 8);
    forge_run(f);
    assert_int_equal(atomic_answer(f, 100, 1), VB_RX_FATAL);
    forge_expect_done(f, 1, VB_WC_BAD_RESPONSE);
    forge_close(f);
}

// An answer at the number of a request that awaits none completes nothing.
static void test_answer_to_a_write(void **state)
{
    (void)state;
    struct forge *f = open_at(100);
    forge_post(f, 1, VB_WR_WRITE, 0, 8);
    forge_run(f);
    assert_int_equal(atomic_answer(f, 100, 1), VB_RX_STALE);
    assert_int_equal(done_answer(f, 100), VB_RX_STALE);
    forge_expect_none(f);
    forge_ack(f, 100);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

// ---- answers that are lost, late or repeated

// An acknowledgement beyond shows that the answer was lost: it is asked for again, once.
static void test_an_ack_completes_nothing_that_awaits(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        struct forge *f = open_at(0xffffff);
        post(f, 1, kinds[k], 0, 0);
        forge_post(f, 2, VB_WR_WRITE, 0, 4);
        forge_run(f);
        forge_forget(f);
        assert_int_equal(forge_ack(f, 0), VB_RX_GAP);
        forge_expect_none(f);
        assert_int_equal(f->sent_count, 2); // both again
        assert_int_equal(forge_sent(f, 0)->psn, 0xffffff);
        assert_int_equal(forge_ack(f, 0), VB_RX_GAP);
        assert_int_equal(forge_ack(f, 0xffffff), VB_RX_GAP); // even at its own number
        assert_int_equal(f->sent_count, 2);                  // not again before progress
        assert_int_equal(answer(f, kinds[k], 0xffffff), VB_RX_APPLIED);
        forge_expect_done(f, 1, VB_WC_OK);
        forge_ack(f, 0);
        forge_expect_done(f, 2, VB_WC_OK);
        assert_int_equal(f->ctx->req.reads_out, 0);
        forge_close(f);
    }
}

static void test_answer_ahead_of_a_lost_one(void **state)
{
    (void)state;
    struct forge *f = open_at(100);
    post(f, 1, VB_WR_FADD, 0, 0);
    post(f, 2, VB_WR_FLUSH, 0, 0);
    post(f, 3, VB_WR_FADD, 16, 0);
    forge_run(f);
    forge_forget(f);
    assert_int_equal(atomic_answer(f, 102, 33), VB_RX_GAP);
    assert_int_equal(forge_word(f, 16), 0);
    assert_int_equal(f->sent_count, 3);
    assert_int_equal(atomic_answer(f, 100, 11), VB_RX_APPLIED);
    assert_int_equal(done_answer(f, 101), VB_RX_APPLIED);
    assert_int_equal(atomic_answer(f, 102, 33), VB_RX_APPLIED);
    for (uint64_t i = 1; i <= 3; i++)
        forge_expect_done(f, i, VB_WC_OK);
    assert_int_equal(forge_word(f, 0), 11);
    assert_int_equal(forge_word(f, 16), 33);
    // Repeated answers are old news.
    assert_int_equal(atomic_answer(f, 100, 99), VB_RX_STALE);
    assert_int_equal(done_answer(f, 101), VB_RX_STALE);
    assert_int_equal(atomic_answer(f, 102, 99), VB_RX_STALE);
    assert_int_equal(atomic_answer(f, 103, 99), VB_RX_STALE); // never sent
    assert_int_equal(forge_word(f, 0), 11);
    forge_close(f);
}

// An answer acknowledges what was sent before it.
static void test_answer_acknowledges_earlier_writes(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    forge_post(f, 1, VB_WR_WRITE, 0, 2000);
    post(f, 2, VB_WR_CAS, 64, 0);
    forge_run(f);
    assert_int_equal(atomic_answer(f, 0, 3), VB_RX_APPLIED);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_done(f, 2, VB_WC_OK);
    forge_close(f);
}

static void test_timeout_repeats_the_same_packet(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    memcpy(f->memory, "abcdefgh", 8);
    post(f, 1, VB_WR_ATOMIC_WRITE, 0, 0);
    post(f, 2, VB_WR_CAS, 64, 0);
    forge_run(f);
    forge_advance(f, 4096ull << f->opts.timeout);
    assert_int_equal(f->sent_count, 4);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(f->sent[i].len, f->sent[i + 2].len);
        assert_memory_equal(f->sent[i].bytes, f->sent[i + 2].bytes, f->sent[i].len);
    }
    forge_close(f);
}

static void test_naks(void **state)
{
    (void)state;
    static const struct {
        enum vb_nak code;
        enum vb_wc_status status;
    } nak[] = {{VB_NAK_INVALID_REQUEST, VB_WC_REMOTE_INVALID},
               {VB_NAK_REMOTE_ACCESS, VB_WC_REMOTE_ACCESS},
               {VB_NAK_REMOTE_OPERATION, VB_WC_REMOTE_OPERATION}};
    for (uint32_t k = 0; k < KINDS; k++)
        for (uint32_t i = 0; i < 3; i++) {
            struct forge *f = open_at(100);
            forge_post(f, 1, VB_WR_WRITE, 0, 4);
            post(f, 2, kinds[k], 0, 0);
            forge_run(f);
            assert_int_equal(forge_nak(f, 101, VB_AETH_NAK, nak[i].code), VB_RX_FATAL);
            forge_expect_done(f, 1, VB_WC_OK);
            forge_expect_done(f, 2, nak[i].status);
            forge_close(f);
        }
}

static void test_the_answers_memory_is_refused(void **state)
{
    (void)state;
    struct forge *f = open_at(100);
    post(f, 1, VB_WR_FADD, FORGE_MEMORY - 7, 0);
    forge_run(f);
    assert_int_equal(atomic_answer(f, 100, 1), VB_RX_FATAL);
    forge_expect_done(f, 1, VB_WC_LOCAL_PROTECTION);
    forge_close(f);
}

// ---- limits

static void test_no_more_in_flight_than_agreed(void **state)
{
    (void)state;
    const uint8_t limits[] = {1, 16, VB_RD_ATOMIC_OUT_MAX};
    for (uint32_t l = 0; l < sizeof limits; l++) {
        uint32_t limit = limits[l], count = limit + 24;
        struct forge_opts o = forge_defaults();
        o.reads_out = (uint8_t)limit;
        o.our_psn = 0xfffff8;
        struct forge *f = forge_open(&o);
        for (uint32_t i = 0; i < count; i++)
            post(f, i, kinds[i % KINDS], 0, 0);
        forge_run(f);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(f->sent_count, i + limit < count ? i + limit : count);
            assert_int_equal(answer(f, kinds[i % KINDS], 0xfffff8 + i), VB_RX_APPLIED);
            forge_expect_done(f, i, VB_WC_OK);
        }
        forge_close(f);
    }
}

// Without room for an answer it cannot be asked.
static void test_none_agreed(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        struct forge_opts o = forge_defaults();
        o.reads_out = 0;
        struct forge *f = forge_open(&o);
        post(f, 1, kinds[k], 0, 0);
        forge_run(f);
        assert_int_equal(f->sent_count, 0);
        forge_expect_done(f, 1, VB_WC_LOCAL_QP_OP);
        forge_close(f);
    }
}

static void test_a_fence_waits_for_the_answer(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KINDS; k++) {
        struct forge *f = open_at(100);
        post(f, 1, kinds[k], 0, 0);
        forge_post_flags(f, 2, VB_WR_WRITE, 4, 0);
        forge_post_flags(f, 3, VB_WR_WRITE, 4, VB_WR_FENCE);
        forge_run(f);
        assert_int_equal(f->sent_count, 2);
        answer(f, kinds[k], 100);
        assert_int_equal(f->sent_count, 3);
        forge_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packets),
        cmocka_unit_test(test_masks_and_narrow_arguments_leave),
        cmocka_unit_test(test_the_former_value_is_stored),
        cmocka_unit_test(test_the_former_value_is_stored_big_endian),
        cmocka_unit_test(test_done_answers),
        cmocka_unit_test(test_wrong_answers),
        cmocka_unit_test(test_answer_to_a_write),
        cmocka_unit_test(test_an_ack_completes_nothing_that_awaits),
        cmocka_unit_test(test_answer_ahead_of_a_lost_one),
        cmocka_unit_test(test_answer_acknowledges_earlier_writes),
        cmocka_unit_test(test_timeout_repeats_the_same_packet),
        cmocka_unit_test(test_naks),
        cmocka_unit_test(test_the_answers_memory_is_refused),
        cmocka_unit_test(test_no_more_in_flight_than_agreed),
        cmocka_unit_test(test_none_agreed),
        cmocka_unit_test(test_a_fence_waits_for_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
