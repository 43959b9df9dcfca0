// SPDX-License-Identifier: Apache-2.0
// Acknowledgements on demand: which packets ask for one, who asks for those that did not, and that
// nobody leaves with one owed.
#include "duo.h"
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static void test_only_what_is_waited_for_asks(void **state)
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

static void test_an_acknowledgement_that_comes_first_ends_the_asking(void **state)
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

// ---- through the public interface

// Who saw a message and goes leaves no sender waiting, though the sender did not ask.
static void test_who_goes_acknowledges(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_wc wc;
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
    const struct timespec pause = {.tv_nsec = 300 * 1000 * 1000}; // four timeouts
    nanosleep(&pause, NULL);
    assert_int_equal(vb_poll_cq(d.end[0].cq, &wc, 1), 0);
    assert_int_equal(duo_counter(d.end[0].nic, "local_ack_timeout_err"), 0);
    vb_qp_destroy(qp[0]);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_waited_for_asks),
        cmocka_unit_test(test_one_in_sixteen_asks),
        cmocka_unit_test(test_silence_is_ended_by_the_newest_packet),
        cmocka_unit_test(test_it_asks_without_an_acknowledgement_timer),
        cmocka_unit_test(test_a_lost_packet_is_sent_again),
        cmocka_unit_test(test_a_signaled_nop_asks),
        cmocka_unit_test(test_draining_asks),
        cmocka_unit_test(test_an_acknowledgement_that_comes_first_ends_the_asking),
        DUO_PORTS(test_who_goes_acknowledges),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
