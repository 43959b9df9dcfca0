// SPDX-License-Identifier: Apache-2.0
// A requester under credits: what waits and what does not, the question it asks when no credits
// come, and credits that lie.
#include "forge.h"
#include "wire/credit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    WAIT_NS = 4000000, // with an ACK timeout that is longer
    ACK_TIMEOUT_NS = 4096 << 14,
};

// An ACK of our packet `psn` by a peer that has executed `msn` messages.
static enum vb_rx_verdict grant(struct forge *f, uint32_t psn, uint32_t msn, unsigned code)
{
    struct vb_packet p = forge_packet(f, VB_RC_ACK, psn);
    p.syndrome = vb_aeth_syndrome(VB_AETH_ACK, code);
    p.msn = msn & 0xffffff;
    return forge_give(f, &p);
}

static void post_sends(struct forge *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        forge_post(f, i, VB_WR_SEND, 0, 10);
    forge_run(f);
}

// A connection whose first SEND was acknowledged with so many credits.
static struct forge *open_told(const struct forge_opts *o, unsigned code)
{
    struct forge *f = forge_open(o);
    post_sends(f, 1);
    grant(f, 100, 1, code);
    forge_next_done(f);
    forge_forget(f);
    return f;
}

// ---- the limit

static void test_no_limit_before_one_is_told(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_sends(f, 20);
    assert_int_equal(f->sent_count, 20);
    forge_close(f);
}

static void test_sends_up_to_the_limit(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 3);
    post_sends(f, 8);
    assert_int_equal(f->sent_count, 3);
    grant(f, 102, 3, 1); // two of them are done, the third's receive is what is left
    assert_int_equal(f->sent_count, 3);
    grant(f, 103, 4, 2);
    assert_int_equal(f->sent_count, 5);
    assert_int_equal(forge_sent(f, 4)->psn, 105);
    forge_close(f);
}

static void test_told_later_without_an_acknowledgement(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 0);
    post_sends(f, 5);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(grant(f, 100, 1, 4), VB_RX_STALE); // the last ACK again
    assert_int_equal(f->sent_count, 4);
    forge_close(f);
}

static void test_what_needs_no_receive_goes(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 0);
    forge_post(f, 1, VB_WR_WRITE, 0, 10);
    forge_post(f, 2, VB_WR_READ, 0, 10);
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    forge_post(f, 3, VB_WR_WRITE_IMM, 0, 10);
    forge_post(f, 4, VB_WR_WRITE, 0, 10); // waits behind it
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    forge_close(f);
}

// WRITEs and READs are messages, too, and each 64 KB of a READ are one.
static void test_all_messages_are_counted(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.mtu = 4096;
    struct forge *f = open_told(&o, 0);
    forge_post(f, 1, VB_WR_WRITE, 0, 10);
    forge_post(f, 2, VB_WR_NOP, 0, 0); // which is none
    forge_post(f, 3, VB_WR_READ, 0, 160 * 1024);
    post_sends(f, 2);
    assert_int_equal(f->sent_count, 4); // WRITE, three READs; no SEND has a receive
    assert_int_equal(f->ctx->req.ssn, 6);
    grant(f, 101, 5, 0);
    assert_int_equal(f->sent_count, 4);
    grant(f, 101, 5, 1);
    assert_int_equal(f->sent_count, 5);
    forge_close(f);
}

// A message whose first packet has a receive goes on, whatever is told meanwhile.
static void test_a_message_is_not_cut(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 1);
    forge_post(f, 1, VB_WR_SEND, 0, 3000);
    forge_run(f);
    assert_int_equal(f->sent_count, 3);
    grant(f, 101, 1, 0);
    forge_nak(f, 102, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(f->sent_count, 5); // from the second packet on
    forge_close(f);
}

static void test_no_information_ends_the_limit(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 0);
    post_sends(f, 5);
    assert_int_equal(f->sent_count, 0);
    grant(f, 100, 1, VB_AETH_CREDITS_INVALID);
    assert_int_equal(f->sent_count, 5);
    forge_close(f);
}

static void test_a_device_without_credits(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.no_credits = true;
    struct forge *f = open_told(&o, 0);
    post_sends(f, 5);
    assert_int_equal(f->sent_count, 5);
    forge_close(f);
}

static void test_numbers_wrap(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    f->ctx->req.ssn = 0xfffffd;
    post_sends(f, 1);
    grant(f, 100, 0xfffffe, 4); // up to 2
    forge_forget(f);
    post_sends(f, 6);
    assert_int_equal(f->sent_count, 4);
    grant(f, 104, 2, 1);
    assert_int_equal(f->sent_count, 5);
    forge_close(f);
}

// ---- the question

static void test_asks_after_a_while(void **state)
{
    (void)state;
    static const struct {
        uint8_t timeout;
        uint64_t wait_ns;
    } cases[] = {{14, WAIT_NS}, {5, 4096 << 5}, {0, WAIT_NS}};
    for (uint32_t i = 0; i < 3; i++) {
        struct forge_opts o = forge_defaults();
        o.timeout = cases[i].timeout;
        struct forge *f = open_told(&o, 0);
        post_sends(f, 3);
        assert_int_equal(vb_pu_deadline(f->pu), f->now_ns + cases[i].wait_ns);
        forge_advance(f, cases[i].wait_ns - 1);
        assert_int_equal(f->sent_count, 0);
        forge_advance(f, 1);
        assert_int_equal(f->sent_count, 1); // and no more
        grant(f, 101, 2, 0);
        forge_expect_done(f, 0, VB_WC_OK);
        assert_int_equal(f->sent_count, 1); // the next one asks after a wait of its own
        forge_advance(f, cases[i].wait_ns);
        assert_int_equal(f->sent_count, 2);
        assert_int_equal(forge_counters(f)->local_ack_timeout_err, 0);
        forge_close(f);
    }
}

static void test_an_answer_that_is_to_come_is_awaited(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 1);
    post_sends(f, 2);
    forge_advance(f, 2 * WAIT_NS);
    assert_int_equal(f->sent_count, 1);
    forge_advance(f, ACK_TIMEOUT_NS); // lost: it goes again, alone
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(forge_sent(f, 1)->psn, 101);
    forge_close(f);
}

static void test_not_ready_backs_off(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 0);
    post_sends(f, 2);
    forge_advance(f, WAIT_NS);
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(forge_nak(f, 101, VB_AETH_RNR, 12), VB_RX_RETRY);
    forge_advance(f, vb_rnr_timer_ns(12) - 1);
    assert_int_equal(f->sent_count, 1);
    forge_advance(f, 1);
    assert_int_equal(f->sent_count, 2); // at once
    assert_int_equal(forge_sent(f, 1)->psn, 101);
    grant(f, 101, 2, 1);
    assert_int_equal(f->sent_count, 3);
    forge_close(f);
}

// What was sent before there was a limit goes again one by one, and waiting costs no retries.
static void test_going_back_meets_the_limit(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.retry_cnt = 1;
    struct forge *f = forge_open(&o);
    post_sends(f, 10);
    grant(f, 103, 4, 0);
    forge_nak(f, 104, VB_AETH_RNR, 12);
    forge_forget(f);
    forge_advance(f, vb_rnr_timer_ns(12));
    assert_int_equal(f->sent_count, 1);
    grant(f, 104, 5, 0);
    for (uint32_t i = 0; i < 5; i++) {
        forge_advance(f, WAIT_NS - 1);
        assert_int_equal(f->sent_count, 1 + i);
        forge_advance(f, 1);
        assert_int_equal(f->sent_count, 2 + i);
        grant(f, 105 + i, 6 + i, 0);
    }
    assert_int_equal(forge_counters(f)->local_ack_timeout_err, 0);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    for (uint32_t i = 0; i < 10; i++)
        forge_expect_done(f, i, VB_WC_OK);
    assert_int_equal(vb_pu_deadline(f->pu) > f->now_ns, true);
    forge_close(f);
}

// A timer that waited for credits gives way to the one that waits for an answer.
static void test_the_answer_is_timed(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 0);
    post_sends(f, 1);
    forge_advance(f, 1000);
    grant(f, 100, 1, 1);
    assert_int_equal(f->sent_count, 1);
    forge_advance(f, WAIT_NS);
    assert_int_equal(f->sent_count, 1);
    forge_advance(f, ACK_TIMEOUT_NS - WAIT_NS - 1);
    assert_int_equal(f->sent_count, 1);
    forge_advance(f, 1);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(forge_counters(f)->local_ack_timeout_err, 1);
    forge_close(f);
}

static void test_draining_finishes_what_began(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 0);
    post_sends(f, 1);
    forge_modify(f, VB_QPS_SQD);
    forge_run(f);
    forge_expect_no_event(f);
    forge_advance(f, WAIT_NS);
    assert_int_equal(f->sent_count, 1);
    grant(f, 101, 2, 0);
    forge_expect_qp_event(f, VB_EVENT_SQ_DRAINED);
    forge_close(f);
}

// ---- lies

static void test_what_was_granted_stays(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 4);
    grant(f, 100, 1, 0); // an older one, late
    post_sends(f, 6);
    assert_int_equal(f->sent_count, 4);
    forge_close(f);
}

static void test_credits_that_are_not_believed(void **state)
{
    (void)state;
    struct forge *f = open_told(NULL, 0);
    post_sends(f, 5);
    grant(f, 100, 3, 30); // more messages than it was sent
    grant(f, 100, 0x800000, 30);
    grant(f, 99, 1, 30);  // of an old packet
    grant(f, 101, 1, 30); // of one that was never sent
    grant(f, 700, 1, VB_AETH_CREDITS_INVALID);
    forge_nak(f, 100, VB_AETH_RNR, 31); // not about receives
    forge_nak(f, 100, 2, 31);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

// Nothing stays for ever: any answer or the clock leads on.
static void test_every_code_and_number(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 32; code++) {
        for (uint32_t bit = 0; bit < 24; bit++) {
            struct forge *f = forge_open(NULL);
            post_sends(f, 1);
            grant(f, 100, 1u << bit, code);
            post_sends(f, 3);
            for (uint32_t i = 0; i < 3; i++) {
                forge_advance(f, WAIT_NS);
                grant(f, 101 + i, 2 + i, 0);
            }
            for (uint32_t i = 0; i < 4; i++)
                forge_expect_done(f, i ? i - 1 : 0, VB_WC_OK);
            forge_close(f);
        }
    }
}

// ---- both sides

// Hands what `from` sent to `to`.
static void relay(struct forge *from, struct forge *to)
{
    for (uint32_t i = 0; i < from->sent_count; i++) {
        struct vb_packet p = from->sent[i].pkt;
        p.dest_qpn = to->qp.qpn;
        forge_queue(to, &p);
    }
    forge_forget(from);
    forge_run(to);
}

// A receiver with 8 receives that gives back three of them now and then. Returns its RNR NAKs.
static uint64_t outrun(bool no_credits)
{
    struct forge_opts o = forge_defaults();
    o.no_credits = no_credits;
    o.recv_depth = 8;
    o.peer_psn = o.our_psn;
    struct forge *a = forge_open(&o), *b = forge_open(&o);
    uint32_t received = 0, posted = 0;

    for (; posted < 8; posted++)
        forge_post_recv(b, posted, 0, 64);
    post_sends(a, 1);
    for (uint32_t round = 0; received < 100 && round < 2000; round++) {
        relay(a, b);
        relay(b, a);
        if (round == 1)
            post_sends(a, 99);
        if (round % 4 == 3) {
            for (uint32_t i = 0; i < 3 && b->ctx->rq.taken > received; i++, received++)
                forge_expect_recv(b, received, VB_WC_OK, 10);
            for (; posted < received + 8; posted++)
                forge_post_recv(b, posted, 0, 64);
            forge_run(b);
        }
        forge_advance(a, 10000);
    }
    uint64_t not_ready = forge_counters(b)->send_rnr_err;
    assert_int_equal(received, 100);
    forge_close(a);
    forge_close(b);
    return not_ready;
}

static void test_a_receiver_that_is_outrun(void **state)
{
    (void)state;
    assert_int_equal(outrun(false), 0);
    assert_true(outrun(true) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_limit_before_one_is_told),
        cmocka_unit_test(test_sends_up_to_the_limit),
        cmocka_unit_test(test_told_later_without_an_acknowledgement),
        cmocka_unit_test(test_what_needs_no_receive_goes),
        cmocka_unit_test(test_all_messages_are_counted),
        cmocka_unit_test(test_a_message_is_not_cut),
        cmocka_unit_test(test_no_information_ends_the_limit),
        cmocka_unit_test(test_a_device_without_credits),
        cmocka_unit_test(test_numbers_wrap),
        cmocka_unit_test(test_asks_after_a_while),
        cmocka_unit_test(test_an_answer_that_is_to_come_is_awaited),
        cmocka_unit_test(test_not_ready_backs_off),
        cmocka_unit_test(test_going_back_meets_the_limit),
        cmocka_unit_test(test_the_answer_is_timed),
        cmocka_unit_test(test_draining_finishes_what_began),
        cmocka_unit_test(test_what_was_granted_stays),
        cmocka_unit_test(test_credits_that_are_not_believed),
        cmocka_unit_test(test_every_code_and_number),
        cmocka_unit_test(test_a_receiver_that_is_outrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
