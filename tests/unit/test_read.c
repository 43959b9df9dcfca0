// SPDX-License-Identifier: Apache-2.0
// READs from the end that asks: how requests are cut and limited, and responses that are past, in
// order, future, repeated and wrong.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIMEOUT_NS (4096ull << 14) // of forge_defaults()

static uint8_t stored[4096]; // payload of forged responses, never written after main() began

static struct forge *open_with(uint32_t mtu, uint32_t our_psn)
{
    struct forge_opts o = forge_defaults();
    o.mtu = mtu;
    o.our_psn = our_psn;
    return forge_open(&o);
}

// ---- requests

static void test_read_is_split_into_segments(void **state)
{
    (void)state;
    struct forge *f = open_with(4096, 0xfffff0); // 16 numbers to the wrap, and 16 a segment
    const uint32_t len = 3 * 65536 + 5000;
    forge_post(f, 1, VB_WR_READ, 0, len);
    forge_run(f);
    assert_int_equal(f->sent_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct vb_packet *p = forge_sent(f, i);
        assert_int_equal(p->opcode, VB_RC_READ_REQUEST);
        assert_int_equal(p->psn, (0xfffff0 + i * 16) & 0xffffff);
        assert_int_equal(p->raddr, 0x1000 + i * 65536);
        assert_int_equal(p->rkey, 0x2222);
        assert_int_equal(p->dma_len, i < 3 ? 65536 : 5000);
    }
    forge_post(f, 2, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_int_equal(forge_sent(f, 4)->psn, (0xfffff0 + 48 + 2) & 0xffffff);
    forge_close(f);
}

static void test_read_at_the_segments_edges(void **state)
{
    (void)state;
    for (uint32_t len = 65535; len <= 65537; len++) {
        struct forge *f = open_with(1024, 0);
        forge_post(f, 1, VB_WR_READ, 0, len);
        forge_run(f);
        assert_int_equal(f->sent_count, len > 65536 ? 2 : 1);
        assert_int_equal(forge_sent(f, 0)->dma_len, len > 65536 ? 65536 : len);
        if (len > 65536) {
            assert_int_equal(forge_sent(f, 1)->dma_len, 1);
            assert_int_equal(forge_sent(f, 1)->psn, 64);
        }
        forge_close(f);
    }
}

static void test_read_resumes_at_the_missing_packet(void **state)
{
    (void)state;
    struct forge *f = open_with(1024, 0xffffff);
    forge_post(f, 1, VB_WR_READ, 0, 2 * 65536);
    forge_run(f);
    for (uint32_t i = 0; i < 5; i++)
        forge_response(f, i ? VB_RC_READ_RESP_MIDDLE : VB_RC_READ_RESP_FIRST, 0xffffff + i,
                       f->memory, 1024);
    forge_forget(f);
    forge_advance(f, 4096ull << 14);
    assert_int_equal(f->sent_count, 2);
    // The rest of the first segment, so that segments keep their ends; then the second.
    assert_int_equal(forge_sent(f, 0)->psn, 4);
    assert_int_equal(forge_sent(f, 0)->raddr, 0x1000 + 5 * 1024);
    assert_int_equal(forge_sent(f, 0)->dma_len, 65536 - 5 * 1024);
    assert_int_equal(forge_sent(f, 1)->psn, 63);
    assert_int_equal(forge_sent(f, 1)->raddr, 0x1000 + 65536);
    assert_int_equal(forge_sent(f, 1)->dma_len, 65536);
    forge_close(f);
}

static void test_reads_in_flight_are_limited(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.reads_out = 2;
    struct forge *f = forge_open(&o);
    for (uint64_t i = 0; i < 4; i++)
        forge_post(f, i, VB_WR_READ, 0, 100);
    forge_post(f, 4, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    forge_response(f, VB_RC_READ_RESP_ONLY, 100, f->memory, 100);
    assert_int_equal(f->sent_count, 3);
    forge_response(f, VB_RC_READ_RESP_ONLY, 101, f->memory, 100);
    assert_int_equal(f->sent_count, 5);
    assert_int_equal(forge_sent(f, 4)->opcode, VB_RC_SEND_ONLY);
    forge_close(f);
}

// A response that is not the last of its READ makes no room for another.
static void test_a_read_counts_until_its_end(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.reads_out = 1;
    struct forge *f = forge_open(&o);
    forge_post(f, 0, VB_WR_READ, 0, 2048);
    forge_post(f, 1, VB_WR_READ, 0, 10);
    forge_run(f);
    forge_response(f, VB_RC_READ_RESP_FIRST, 100, f->memory, 1024);
    assert_int_equal(f->sent_count, 1);
    forge_response(f, VB_RC_READ_RESP_LAST, 101, f->memory, 1024);
    assert_int_equal(f->sent_count, 2);
    forge_close(f);
}

// The answer arrives after going back and before the READ was asked for again.
static void test_an_answer_to_the_first_try_is_not_counted_twice(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.reads_out = 1;
    struct forge *f = forge_open(&o);
    forge_post(f, 0, VB_WR_READ, 0, 10);
    forge_post(f, 1, VB_WR_READ, 0, 10);
    forge_run(f);
    struct vb_packet nak = forge_packet(f, VB_RC_ACK, 100);
    nak.syndrome = vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    forge_queue(f, &nak);
    forge_response(f, VB_RC_READ_RESP_ONLY, 100, f->memory, 10);
    forge_expect_done(f, 0, VB_WC_OK);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(forge_sent(f, 1)->psn, 101);
    assert_int_equal(f->ctx->req.reads_out, 1);
    forge_close(f);
}

// Segments of one READ count as requests of their own.
static void test_segments_in_flight_are_limited(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.reads_out = 1;
    o.mtu = 4096;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_READ, 0, 2 * 65536);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    for (uint32_t i = 0; i < 16; i++)
        forge_response(f,
                       i == 0    ? VB_RC_READ_RESP_FIRST
                       : i == 15 ? VB_RC_READ_RESP_LAST
                                 : VB_RC_READ_RESP_MIDDLE,
                       100 + i, f->memory, 4096);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(forge_sent(f, 1)->psn, 116);
    forge_close(f);
}

// A queue pair that may have no READ in flight cannot read: the request fails, it does not wait
// for ever.
static void test_read_without_depth_fails(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.reads_out = 0;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_READ, 0, 100);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_expect_done(f, 1, VB_WC_LOCAL_QP_OP);
    forge_close(f);
}

// ---- responses

static struct forge *open_reading(uint32_t len, uint32_t our_psn)
{
    struct forge_opts o = forge_defaults();
    o.our_psn = our_psn;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_READ, 0, len);
    forge_run(f);
    return f;
}

static enum vb_opcode response_op(uint32_t i, uint32_t packets)
{
    if (packets == 1)
        return VB_RC_READ_RESP_ONLY;
    return i == 0             ? VB_RC_READ_RESP_FIRST
           : i == packets - 1 ? VB_RC_READ_RESP_LAST
                              : VB_RC_READ_RESP_MIDDLE;
}

static void test_responses_in_order(void **state)
{
    (void)state;
    static const uint32_t lens[] = {0, 1, 1023, 1024, 1025, 4096};
    for (size_t k = 0; k < sizeof lens / sizeof lens[0]; k++) {
        uint32_t len = lens[k], packets = len ? (len + 1023) / 1024 : 1;
        struct forge *f = open_reading(len, 0xfffffe);
        for (uint32_t i = 0; i < packets; i++) {
            forge_expect_none(f);
            uint32_t n = len - i * 1024 < 1024 ? len - i * 1024 : 1024;
            assert_int_equal(
                forge_response(f, response_op(i, packets), 0xfffffe + i, stored + i * 1024, n),
                VB_RX_APPLIED);
        }
        forge_look_wc(f, &f->send_cq, 1, VB_WC_OK, len, __FILE__, __LINE__);
        assert_memory_equal(f->memory, stored, len);
        assert_int_equal(f->memory[len], 0);
        forge_close(f);
    }
}

static void test_responses_past_and_repeated(void **state)
{
    (void)state;
    struct forge *f = open_reading(3000, 0xffffff);
    uint8_t other[1024];
    memset(other, 0xee, sizeof other);
    forge_response(f, VB_RC_READ_RESP_FIRST, 0xffffff, stored, 1024);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_FIRST, 0xffffff, other, 1024), VB_RX_STALE);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_FIRST, 0xfffffe, other, 1024), VB_RX_STALE);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_LAST, 2, other, 952), VB_RX_STALE);
    assert_memory_equal(f->memory, stored, 1024);
    assert_int_equal(f->memory[1024], 0);
    assert_int_equal(f->sent_count, 1);
    forge_close(f);
}

static void test_response_of_the_future_goes_back_once(void **state)
{
    (void)state;
    struct forge *f = open_reading(4096, 100);
    forge_response(f, VB_RC_READ_RESP_FIRST, 100, stored, 1024);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_MIDDLE, 102, stored, 1024), VB_RX_GAP);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(forge_sent(f, 1)->psn, 101);
    assert_int_equal(forge_sent(f, 1)->raddr, 0x1000 + 1024);
    assert_int_equal(forge_sent(f, 1)->dma_len, 3 * 1024);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_LAST, 103, stored, 1024), VB_RX_GAP);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(f->memory[1024], 0);
    assert_int_equal(forge_counters(f)->completer_retry_err, 1);
    // The timer may try again, and after it a gap may.
    forge_advance(f, TIMEOUT_NS);
    assert_int_equal(f->sent_count, 3);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_LAST, 103, stored, 1024), VB_RX_GAP);
    assert_int_equal(f->sent_count, 4);
    for (uint32_t i = 1; i < 4; i++)
        assert_int_equal(forge_response(f, response_op(i, 4), 100 + i, stored + i * 1024, 1024),
                         VB_RX_APPLIED);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

static void test_progress_allows_another_gap(void **state)
{
    (void)state;
    struct forge *f = open_reading(4096, 100);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(forge_response(f, VB_RC_READ_RESP_LAST, 103, stored, 1024), VB_RX_GAP);
        assert_int_equal(f->sent_count, 2 + i);
        assert_int_equal(forge_sent(f, 1 + i)->psn, 100 + i);
        forge_response(f, VB_RC_READ_RESP_FIRST, 100 + i, stored, 1024);
    }
    forge_close(f);
}

// Asked for again, a READ takes the place it already had.
static void test_repeated_reads_stay_within_the_limit(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.reads_out = 2;
    struct forge *f = forge_open(&o);
    for (uint64_t i = 0; i < 3; i++)
        forge_post(f, i, VB_WR_READ, 0, 10);
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    for (uint32_t i = 1; i < 4; i++) {
        forge_advance(f, TIMEOUT_NS);
        assert_int_equal(f->sent_count, 2 + 2 * i);
        assert_int_equal(forge_sent(f, 2 * i)->psn, 100);
    }
    forge_close(f);
}

static void test_ack_past_a_pending_read_goes_back_once(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_SEND, 0, 1);
    forge_post(f, 2, VB_WR_READ, 0, 2048);
    forge_post(f, 3, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_int_equal(f->sent_count, 3);
    assert_int_equal(forge_ack(f, 103), VB_RX_GAP);
    forge_expect_done(f, 1, VB_WC_OK); // what is before the READ is acknowledged
    forge_expect_none(f);
    assert_int_equal(f->sent_count, 5);
    assert_int_equal(forge_sent(f, 3)->opcode, VB_RC_READ_REQUEST);
    assert_int_equal(forge_sent(f, 3)->psn, 101);
    assert_int_equal(forge_ack(f, 103), VB_RX_GAP);
    assert_int_equal(forge_nak(f, 103, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE), VB_RX_GAP);
    assert_int_equal(forge_nak(f, 102, VB_AETH_RNR, 1), VB_RX_GAP); // inside the READ
    assert_int_equal(f->sent_count, 5);
    forge_response(f, VB_RC_READ_RESP_FIRST, 101, stored, 1024);
    forge_response(f, VB_RC_READ_RESP_LAST, 102, stored, 1024);
    forge_expect_done(f, 2, VB_WC_OK);
    assert_int_equal(forge_ack(f, 103), VB_RX_APPLIED);
    forge_expect_done(f, 3, VB_WC_OK);
    forge_close(f);
}

static void test_response_acknowledges_what_was_before(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_WRITE, 0, 2000);
    forge_post(f, 2, VB_WR_SEND, 0, 1);
    forge_post(f, 3, VB_WR_READ, 0, 10);
    forge_run(f);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_ONLY, 103, stored, 10), VB_RX_APPLIED);
    for (uint64_t i = 1; i <= 3; i++)
        forge_expect_done(f, i, VB_WC_OK);
    forge_close(f);
}

static void test_bad_responses_are_fatal(void **state)
{
    (void)state;
    static const struct {
        enum vb_opcode opcode;
        uint32_t len;
    } bad[] = {
        {VB_RC_READ_RESP_FIRST, 1023}, {VB_RC_READ_RESP_FIRST, 1025}, {VB_RC_READ_RESP_FIRST, 0},
        {VB_RC_READ_RESP_ONLY, 100},   {VB_RC_READ_RESP_LAST, 2000},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct forge *f = open_reading(2000, 100);
        assert_int_equal(forge_response(f, bad[i].opcode, 100, stored, bad[i].len), VB_RX_FATAL);
        forge_expect_done(f, 1, VB_WC_BAD_RESPONSE);
        assert_int_equal(f->memory[0], 0);
        forge_close(f);
    }
}

static void test_the_end_must_be_marked(void **state)
{
    (void)state;
    struct forge *f = open_reading(2048, 100);
    forge_response(f, VB_RC_READ_RESP_FIRST, 100, stored, 1024);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_MIDDLE, 101, stored, 1024), VB_RX_FATAL);
    forge_expect_done(f, 1, VB_WC_BAD_RESPONSE);
    forge_close(f);
}

// Also where a segment of a long READ ends: without the mark no further segment would ever be
// asked for.
static void test_the_end_of_a_segment_must_be_marked(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.mtu = 4096;
    o.reads_out = 1;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_READ, 0, 2 * 65536);
    forge_run(f);
    for (uint32_t i = 0; i < 16; i++)
        forge_response(f, i ? VB_RC_READ_RESP_MIDDLE : VB_RC_READ_RESP_FIRST, 100 + i, stored,
                       4096);
    forge_expect_done(f, 1, VB_WC_BAD_RESPONSE);
    forge_close(f);
}

static void test_an_end_too_early_is_fatal(void **state)
{
    (void)state;
    struct forge *f = open_reading(4096, 100);
    forge_response(f, VB_RC_READ_RESP_FIRST, 100, stored, 1024);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_LAST, 101, stored, 1024), VB_RX_FATAL);
    forge_expect_done(f, 1, VB_WC_BAD_RESPONSE);
    forge_close(f);
}

static void test_reading_into_bad_memory(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    const struct vb_sge sge = {forge_addr(f, FORGE_MEMORY - 9), 10, f->key};
    const struct vb_send_wr wr = {.wr_id = 1, .sge = &sge, .num_sge = 1, .opcode = VB_WR_READ};
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_ONLY, 100, stored, 10), VB_RX_FATAL);
    forge_expect_done(f, 1, VB_WC_LOCAL_PROTECTION);
    forge_close(f);
}

static void test_reading_into_sixteen_segments(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_sge sge[16];
    for (uint32_t i = 0; i < 16; i++)
        sge[i] = (struct vb_sge){forge_addr(f, 1000 * i), 90 + i, f->key};
    const struct vb_send_wr wr = {.sge = sge, .num_sge = 16, .opcode = VB_WR_READ};
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(forge_sent(f, 0)->dma_len, 16 * 90 + 120);
    forge_response(f, VB_RC_READ_RESP_FIRST, 100, stored, 1024);
    forge_response(f, VB_RC_READ_RESP_LAST, 101, stored + 1024, 536);
    for (uint32_t i = 0, at = 0; i < 16; at += 90 + i, i++) {
        assert_memory_equal(f->memory + 1000 * i, stored + at, 90 + i);
        assert_int_equal(f->memory[1000 * i + 90 + i], 0);
    }
    forge_close(f);
}

int main(void)
{
    for (size_t i = 0; i < sizeof stored; i++)
        stored[i] = (uint8_t)(i * 11 + (i >> 8) + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_is_split_into_segments),
        cmocka_unit_test(test_read_at_the_segments_edges),
        cmocka_unit_test(test_read_resumes_at_the_missing_packet),
        cmocka_unit_test(test_reads_in_flight_are_limited),
        cmocka_unit_test(test_a_read_counts_until_its_end),
        cmocka_unit_test(test_an_answer_to_the_first_try_is_not_counted_twice),
        cmocka_unit_test(test_segments_in_flight_are_limited),
        cmocka_unit_test(test_read_without_depth_fails),
        cmocka_unit_test(test_responses_in_order),
        cmocka_unit_test(test_responses_past_and_repeated),
        cmocka_unit_test(test_response_of_the_future_goes_back_once),
        cmocka_unit_test(test_progress_allows_another_gap),
        cmocka_unit_test(test_repeated_reads_stay_within_the_limit),
        cmocka_unit_test(test_ack_past_a_pending_read_goes_back_once),
        cmocka_unit_test(test_response_acknowledges_what_was_before),
        cmocka_unit_test(test_bad_responses_are_fatal),
        cmocka_unit_test(test_the_end_must_be_marked),
        cmocka_unit_test(test_the_end_of_a_segment_must_be_marked),
        cmocka_unit_test(test_an_end_too_early_is_fatal),
        cmocka_unit_test(test_reading_into_bad_memory),
        cmocka_unit_test(test_reading_into_sixteen_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
