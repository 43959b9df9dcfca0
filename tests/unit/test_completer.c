// SPDX-License-Identifier: Apache-2.0
// The completer against a forged peer: acknowledgements, complaints and READ responses that are
// past, in order, future and repeated; time-outs and how often they are forgiven.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIMEOUT_NS (4096ull << 14) // of forge_defaults()

static struct forge *open_sending(uint32_t sends, uint32_t our_psn)
{
    struct forge_opts o = forge_defaults();
    o.our_psn = our_psn;
    struct forge *f = forge_open(&o);
    for (uint64_t i = 0; i < sends; i++)
        forge_post(f, i, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_int_equal(f->sent_count, sends);
    return f;
}

// ---- ACK

static void test_ack_in_order(void **state)
{
    (void)state;
    struct forge *f = open_sending(4, 0xfffffe);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(forge_ack(f, 0xfffffe + i), VB_RX_APPLIED);
        forge_expect_done(f, i, VB_WC_OK);
        forge_expect_none(f);
    }
    forge_advance(f, 10 * TIMEOUT_NS);
    assert_int_equal(f->sent_count, 4);
    assert_int_equal(f->steps[VB_STEP_TIMER], 0);
    forge_close(f);
}

static void test_ack_of_many(void **state)
{
    (void)state;
    struct forge *f = open_sending(6, 0xfffffe);
    assert_int_equal(forge_ack(f, 2), VB_RX_APPLIED);
    for (uint64_t i = 0; i < 5; i++)
        forge_expect_done(f, i, VB_WC_OK);
    forge_expect_none(f);
    forge_close(f);
}

static void test_ack_of_the_past_and_the_future(void **state)
{
    (void)state;
    struct forge *f = open_sending(4, 0xffffff);
    assert_int_equal(forge_ack(f, 0xfffffe), VB_RX_STALE); // before the first
    assert_int_equal(forge_ack(f, 3), VB_RX_STALE);        // never sent
    assert_int_equal(forge_ack(f, 0x7fffff), VB_RX_STALE);
    assert_int_equal(forge_ack(f, 0x800000), VB_RX_STALE);
    forge_expect_none(f);
    assert_int_equal(forge_ack(f, 0), VB_RX_APPLIED);
    assert_int_equal(forge_ack(f, 0), VB_RX_STALE); // repeated
    assert_int_equal(forge_ack(f, 0xffffff), VB_RX_STALE);
    forge_expect_done(f, 0, VB_WC_OK);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_none(f);
    assert_int_equal(f->sent_count, 4);
    forge_close(f);
}

static void test_ack_when_nothing_was_sent(void **state)
{
    (void)state;
    struct forge *f = open_sending(0, 100);
    assert_int_equal(forge_ack(f, 99), VB_RX_STALE);
    assert_int_equal(forge_ack(f, 100), VB_RX_STALE);
    assert_int_equal(forge_nak(f, 100, VB_AETH_NAK, VB_NAK_REMOTE_ACCESS), VB_RX_STALE);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_ONLY, 100, f->memory, 1), VB_RX_STALE);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

static void test_ack_inside_a_message(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_SEND, 0, 4096);
    forge_run(f);
    assert_int_equal(forge_ack(f, 101), VB_RX_APPLIED);
    forge_expect_none(f);
    forge_advance(f, TIMEOUT_NS);
    assert_int_equal(f->sent_count, 6);
    assert_int_equal(forge_sent(f, 4)->psn, 102); // repeats only what is missing
    assert_int_equal(forge_sent(f, 4)->opcode, VB_RC_SEND_MIDDLE);
    forge_ack(f, 103);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

static void test_unsignaled_requests_complete_silently(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint64_t i = 0; i < 10; i++)
        forge_post_flags(f, i, VB_WR_SEND, 1, i == 9 ? VB_WR_SIGNALED : 0);
    forge_run(f);
    forge_ack(f, 109);
    forge_expect_done(f, 9, VB_WC_OK);
    forge_expect_none(f);
    assert_int_equal(f->steps[VB_STEP_COMPLETE], 1);
    forge_close(f);
}

// Nothing is allocated per operation, and what failed is given back as well.
static void test_requests_are_recycled(void **state)
{
    (void)state;
    struct forge *f = open_sending(1, 100);
    const void *slabs = f->pu->pool.slabs;
    forge_ack(f, 100);
    for (uint32_t i = 1; i < 500; i++) {
        forge_expect_done(f, i - 1, VB_WC_OK);
        forge_post(f, i, VB_WR_SEND, 0, 1);
        forge_run(f);
        forge_ack(f, 100 + i);
    }
    forge_expect_done(f, 499, VB_WC_OK);
    assert_ptr_equal(f->pu->pool.slabs, slabs);
    for (uint32_t i = 0; i < 200; i++) {
        forge_post(f, i, VB_WR_SEND, 0, 1);
        forge_run(f);
        if (i % 2) { // or straight to RESET
            forge_modify(f, VB_QPS_ERR);
            forge_run(f);
            forge_expect_done(f, i, VB_WC_FLUSHED);
        }
        forge_modify(f, VB_QPS_RESET);
        vb_driver_qp_reset(&f->qp);
        for (enum vb_qp_state s = VB_QPS_INIT; s <= VB_QPS_RTS; s++)
            forge_modify(f, s);
    }
    assert_ptr_equal(f->pu->pool.slabs, slabs);
    forge_close(f);
}

static void test_reserved_and_foreign_answers_are_ignored(void **state)
{
    (void)state;
    struct forge *f = open_sending(1, 100);
    assert_int_equal(forge_nak(f, 100, (enum vb_aeth_kind)2, 0), VB_RX_STALE);
    struct vb_packet p = forge_packet(f, VB_RC_ATOMIC_ACK, 100);
    assert_int_equal(forge_give(f, &p), VB_RX_STALE);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_ONLY, 100, f->memory, 1), VB_RX_STALE);
    forge_expect_none(f);
    forge_close(f);
}

// ---- going back

static void test_sequence_nak_goes_back(void **state)
{
    (void)state;
    struct forge *f = open_sending(5, 0xfffffe);
    assert_int_equal(forge_nak(f, 0, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE), VB_RX_RETRY);
    forge_expect_done(f, 0, VB_WC_OK); // it acknowledges what is before it
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_none(f);
    assert_int_equal(f->sent_count, 8);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(forge_sent(f, 5 + i)->psn, i);
    assert_int_equal(forge_counters(f)->packet_seq_err, 1);
    forge_close(f);
}

static void test_going_back_starts_the_wait_anew(void **state)
{
    (void)state;
    struct forge *f = open_sending(3, 100);
    forge_advance(f, TIMEOUT_NS - 1);
    assert_int_equal(forge_nak(f, 100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE), VB_RX_RETRY);
    assert_int_equal(f->sent_count, 6);
    forge_advance(f, TIMEOUT_NS - 1);
    assert_int_equal(forge_counters(f)->local_ack_timeout_err, 0);
    forge_advance(f, 1);
    assert_int_equal(forge_counters(f)->local_ack_timeout_err, 1);
    assert_int_equal(f->sent_count, 9);
    forge_close(f);
}

// An answer to the first try that comes after going back saves the rest of the repetition.
static void test_late_ack_after_going_back(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.mtu = 4096;
    o.window_bytes = 16384;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 4 * 4096);
    forge_run(f);
    assert_int_equal(f->sent_count, 4);
    struct vb_packet nak = forge_packet(f, VB_RC_ACK, 100);
    nak.syndrome = vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    struct vb_packet ack = forge_packet(f, VB_RC_ACK, 102);
    ack.syndrome = vb_aeth_syndrome(VB_AETH_ACK, 31);
    forge_queue(f, &nak); // both before anything can be repeated
    forge_queue(f, &ack);
    forge_run(f);
    assert_int_equal(f->sent_count, 5);
    assert_int_equal(forge_sent(f, 4)->psn, 103);
    forge_ack(f, 103);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

static void test_retries_are_exact(void **state)
{
    (void)state;
    for (uint8_t retries = 0; retries <= 7; retries++) {
        struct forge_opts o = forge_defaults();
        o.retry_cnt = retries;
        struct forge *f = forge_open(&o);
        forge_post(f, 1, VB_WR_SEND, 0, 1);
        forge_post(f, 2, VB_WR_SEND, 0, 1);
        forge_run(f);
        for (uint32_t i = 0; i < retries; i++) {
            forge_advance(f, TIMEOUT_NS - 1);
            assert_int_equal(f->sent_count, 2 + 2 * i);
            forge_advance(f, 1);
            assert_int_equal(f->sent_count, 4 + 2 * i);
        }
        assert_int_equal(forge_state(f), VB_QPS_RTS);
        forge_advance(f, TIMEOUT_NS);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        forge_expect_done(f, 1, VB_WC_RETRY_EXCEEDED);
        forge_expect_done(f, 2, VB_WC_FLUSHED);
        assert_int_equal(forge_counters(f)->local_ack_timeout_err, retries + 1);
        assert_int_equal(forge_counters(f)->retry_exceeded_err, 1);
        forge_close(f);
    }
}

static void test_progress_forgives(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.retry_cnt = 1;
    struct forge *f = forge_open(&o);
    for (uint64_t i = 0; i < 5; i++)
        forge_post(f, i, VB_WR_SEND, 0, 1);
    forge_run(f);
    for (uint32_t i = 0; i < 5; i++) {
        forge_advance(f, TIMEOUT_NS);
        forge_ack(f, 100 + i);
        forge_expect_done(f, i, VB_WC_OK);
    }
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

static void test_sequence_naks_use_up_retries(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.retry_cnt = 2;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 1);
    forge_run(f);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(forge_nak(f, 100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE), VB_RX_RETRY);
        assert_int_equal(f->sent_count, 2 + i);
    }
    assert_int_equal(forge_nak(f, 100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE), VB_RX_FATAL);
    assert_int_equal(forge_counters(f)->retry_exceeded_err, 1);
    forge_expect_done(f, 1, VB_WC_RETRY_EXCEEDED);
    forge_close(f);
}

// Going back empties the window, however full it was.
static void test_full_window_is_repeated(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 8192;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 20000);
    forge_run(f);
    assert_int_equal(f->sent_count, 8);
    forge_advance(f, TIMEOUT_NS);
    assert_int_equal(f->sent_count, 16);
    assert_int_equal(forge_sent(f, 8)->psn, 100);
    forge_close(f);
}

static void test_timeout_zero_waits_for_ever(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.timeout = 0;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_true(vb_pu_deadline(f->pu) == UINT64_MAX);
    forge_advance(f, 1ull << 60);
    assert_int_equal(f->sent_count, 1);
    forge_ack(f, 100);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

// ---- RNR NAK

static void test_rnr_waits_its_time(void **state)
{
    (void)state;
    struct forge *f = open_sending(3, 100);
    assert_int_equal(forge_nak(f, 101, VB_AETH_RNR, 14), VB_RX_RETRY);
    forge_expect_done(f, 0, VB_WC_OK);
    assert_int_equal(f->sent_count, 3);
    assert_int_equal(forge_nak(f, 101, VB_AETH_RNR, 14), VB_RX_STALE); // the same answer again
    forge_post(f, 3, VB_WR_SEND, 0, 1);                                // new work waits, too
    forge_advance(f, vb_rnr_timer_ns(14) - 1);
    assert_int_equal(f->sent_count, 3);
    forge_advance(f, 1);
    assert_int_equal(f->sent_count, 6);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(forge_sent(f, 3 + i)->psn, 101 + i);
    // And the acknowledgement's timer runs again.
    forge_advance(f, TIMEOUT_NS);
    assert_int_equal(f->sent_count, 9);
    assert_int_equal(forge_counters(f)->rcvd_rnr_err, 2);
    forge_close(f);
}

static void test_rnr_retries_are_exact(void **state)
{
    (void)state;
    for (uint8_t retries = 0; retries < 7; retries++) {
        struct forge_opts o = forge_defaults();
        o.rnr_retry = retries;
        o.retry_cnt = 0; // does not count here
        struct forge *f = forge_open(&o);
        forge_post(f, 1, VB_WR_SEND, 0, 1);
        forge_run(f);
        for (uint32_t i = 0; i < retries; i++) {
            assert_int_equal(forge_nak(f, 100, VB_AETH_RNR, 1), VB_RX_RETRY);
            forge_advance(f, vb_rnr_timer_ns(1));
            assert_int_equal(f->sent_count, 2 + i);
        }
        assert_int_equal(forge_nak(f, 100, VB_AETH_RNR, 1), VB_RX_FATAL);
        forge_expect_done(f, 1, VB_WC_RNR_EXCEEDED);
        assert_int_equal(forge_counters(f)->retry_rnr_exceeded_err, 1);
        forge_close(f);
    }
}

static void test_progress_forgives_rnr(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.rnr_retry = 1;
    struct forge *f = forge_open(&o);
    for (uint64_t i = 0; i < 4; i++)
        forge_post(f, i, VB_WR_SEND, 0, 1);
    forge_run(f);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(forge_nak(f, 100 + i, VB_AETH_RNR, 1), VB_RX_RETRY);
        forge_advance(f, vb_rnr_timer_ns(1));
        forge_ack(f, 100 + i);
        forge_expect_done(f, i, VB_WC_OK);
    }
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

static void test_rnr_seven_is_for_ever(void **state)
{
    (void)state;
    struct forge *f = open_sending(1, 100);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(forge_nak(f, 100, VB_AETH_RNR, 1), VB_RX_RETRY);
        forge_advance(f, vb_rnr_timer_ns(1));
        assert_int_equal(f->sent_count, 2 + i);
    }
    forge_ack(f, 100);
    forge_expect_done(f, 0, VB_WC_OK);
    forge_close(f);
}

static void test_ack_during_the_rnr_wait(void **state)
{
    (void)state;
    struct forge *f = open_sending(2, 100);
    forge_nak(f, 100, VB_AETH_RNR, 14);
    assert_int_equal(forge_ack(f, 100), VB_RX_APPLIED);
    forge_expect_done(f, 0, VB_WC_OK);
    assert_int_equal(f->sent_count, 2); // the wait goes on
    forge_advance(f, vb_rnr_timer_ns(14));
    assert_int_equal(f->sent_count, 3);
    assert_int_equal(forge_sent(f, 2)->psn, 101);
    forge_close(f);
}

// ---- fatal NAKs

static void test_fatal_naks(void **state)
{
    (void)state;
    static const struct {
        unsigned code;
        enum vb_wc_status status;
    } table[] = {{VB_NAK_INVALID_REQUEST, VB_WC_REMOTE_INVALID},
                 {VB_NAK_REMOTE_ACCESS, VB_WC_REMOTE_ACCESS},
                 {VB_NAK_REMOTE_OPERATION, VB_WC_REMOTE_OPERATION},
                 {VB_NAK_INVALID_RD, VB_WC_BAD_RESPONSE},
                 {31, VB_WC_BAD_RESPONSE}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct forge *f = open_sending(4, 0xffffff);
        assert_int_equal(forge_nak(f, 4, VB_AETH_NAK, table[i].code), VB_RX_STALE);
        assert_int_equal(forge_nak(f, 1, VB_AETH_NAK, table[i].code), VB_RX_FATAL);
        forge_expect_done(f, 0, VB_WC_OK);
        forge_expect_done(f, 1, VB_WC_OK);
        forge_expect_done(f, 2, table[i].status);
        forge_expect_done(f, 3, VB_WC_FLUSHED);
        forge_expect_none(f);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        assert_int_equal(forge_nak(f, 2, VB_AETH_NAK, table[i].code), VB_RX_STRANGER);
        forge_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ack_in_order),
        cmocka_unit_test(test_ack_of_many),
        cmocka_unit_test(test_ack_of_the_past_and_the_future),
        cmocka_unit_test(test_ack_when_nothing_was_sent),
        cmocka_unit_test(test_ack_inside_a_message),
        cmocka_unit_test(test_unsignaled_requests_complete_silently),
        cmocka_unit_test(test_requests_are_recycled),
        cmocka_unit_test(test_reserved_and_foreign_answers_are_ignored),
        cmocka_unit_test(test_sequence_nak_goes_back),
        cmocka_unit_test(test_going_back_starts_the_wait_anew),
        cmocka_unit_test(test_late_ack_after_going_back),
        cmocka_unit_test(test_retries_are_exact),
        cmocka_unit_test(test_progress_forgives),
        cmocka_unit_test(test_sequence_naks_use_up_retries),
        cmocka_unit_test(test_full_window_is_repeated),
        cmocka_unit_test(test_timeout_zero_waits_for_ever),
        cmocka_unit_test(test_rnr_waits_its_time),
        cmocka_unit_test(test_rnr_retries_are_exact),
        cmocka_unit_test(test_progress_forgives_rnr),
        cmocka_unit_test(test_rnr_seven_is_for_ever),
        cmocka_unit_test(test_ack_during_the_rnr_wait),
        cmocka_unit_test(test_fatal_naks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
