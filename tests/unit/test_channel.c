// SPDX-License-Identifier: Apache-2.0
// Completion channels: real descriptors that programs sleep on, with nothing lost between asking
// for an event and the completion.
#include "duo.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    LONG_MS = DUO_PATIENCE_S * 1000,
    ROUNDS = 200
};

struct rig {
    struct duo d;
    struct vb_qp *qp[2];
    int fd; // of end 1's channel
};

static void open_rig(struct rig *r, struct duo_state *state)
{
    duo_open(&r->d, state);
    duo_connect(&r->d, VB_SERVICE_RC, r->qp);
    r->fd = vb_channel_fd(r->d.end[1].channel);
}

// A SEND from end 0 into a receive of end 1 that is posted here.
static void send_one(struct rig *r, uint64_t wr_id, uint32_t flags)
{
    struct vb_send_wr wr = duo_wr(&r->d, VB_WR_SEND, wr_id);
    wr.flags |= flags;
    duo_post_recv(&r->d.end[1], r->qp[1], wr_id, 0, 64);
    duo_post(&r->d, r->qp[0], wr, 0, 8);
    duo_expect(r->d.end[0].cq, wr_id, VB_WC_OK);
}

static void take(struct rig *r, struct vb_cq *expected)
{
    struct vb_cq *cq = NULL;
    assert_true(duo_is_readable(r->fd, LONG_MS));
    assert_int_equal(vb_channel_take(r->d.end[1].channel, &cq), 0);
    assert_ptr_equal(cq, expected);
}

static void expect_none(struct rig *r)
{
    struct vb_cq *cq = NULL;
    assert_false(duo_is_readable(r->fd, DUO_QUIET_MS));
    assert_int_equal(vb_channel_take(r->d.end[1].channel, &cq), -EAGAIN);
    assert_null(cq);
}

static void test_an_armed_queue_wakes_a_sleeper(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    struct vb_cq *cq = r.d.end[1].cq;
    for (uint64_t i = 0; i < 10; i++) { // serial numbers wrap meanwhile
        expect_none(&r);
        assert_int_equal(vb_cq_arm(cq, false), 0);
        assert_false(duo_is_readable(r.fd, 0));
        send_one(&r, i, 0);
        take(&r, cq);
        expect_none(&r);
        duo_expect(cq, i, VB_WC_OK);
    }
    duo_close(&r.d);
}

static void test_a_queue_that_is_not_armed_is_silent(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    send_one(&r, 1, 0);
    expect_none(&r);
    duo_expect(r.d.end[1].cq, 1, VB_WC_OK);
    duo_close(&r.d);
}

static void test_one_request_gives_one_event(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    assert_int_equal(vb_cq_arm(r.d.end[1].cq, false), 0);
    for (uint64_t i = 0; i < 5; i++)
        send_one(&r, i, 0);
    take(&r, r.d.end[1].cq);
    expect_none(&r);
    for (uint64_t i = 0; i < 5; i++)
        duo_expect(r.d.end[1].cq, i, VB_WC_OK);
    duo_close(&r.d);
}

// What came before arming and is not polled yet counts.
static void test_arming_late_loses_nothing(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    send_one(&r, 1, 0);
    assert_int_equal(vb_cq_arm(r.d.end[1].cq, false), 0);
    take(&r, r.d.end[1].cq);
    duo_expect(r.d.end[1].cq, 1, VB_WC_OK);
    // What was polled does not.
    assert_int_equal(vb_cq_arm(r.d.end[1].cq, false), 0);
    expect_none(&r);
    duo_close(&r.d);
}

static void test_the_descriptor_is_level_triggered(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    assert_int_equal(vb_cq_arm(r.d.end[1].cq, false), 0);
    send_one(&r, 1, 0);
    for (int i = 0; i < 3; i++)
        assert_true(duo_is_readable(r.fd, LONG_MS));
    take(&r, r.d.end[1].cq);
    assert_false(duo_is_readable(r.fd, 0));
    duo_expect(r.d.end[1].cq, 1, VB_WC_OK);
    duo_close(&r.d);
}

// The loop that every sleeping program has, against a sender that never waits for it: a lost event
// would end in a time-out.
static void test_no_event_is_lost_in_a_race(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    struct vb_cq *cq = r.d.end[1].cq;
    struct vb_wc wc;
    for (uint64_t i = 0; i < 16; i++)
        duo_post_recv(&r.d.end[1], r.qp[1], i, 0, 64);
    uint64_t sent = 0, got = 0, acked = 0;
    while (got < ROUNDS) {
        if (sent < ROUNDS && sent - acked < 16) {
            duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_SEND, sent), 0, 8);
            sent++;
        }
        acked += (uint64_t)vb_poll_cq(r.d.end[0].cq, &wc, 1);
        assert_int_equal(vb_cq_arm(cq, false), 0);
        bool any = false;
        while (vb_poll_cq(cq, &wc, 1) == 1) {
            assert_int_equal(wc.wr_id, got % 16);
            duo_post_recv(&r.d.end[1], r.qp[1], got % 16, 0, 64);
            got++;
            any = true;
        }
        if (any || got == sent)
            continue;
        take(&r, cq);
    }
    duo_close(&r.d);
}

static void test_solicited_only(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    struct vb_cq *cq = r.d.end[1].cq;
    assert_int_equal(vb_cq_arm(cq, true), 0);
    send_one(&r, 1, 0);
    expect_none(&r);
    duo_expect(cq, 1, VB_WC_OK); // polled without arming again
    send_one(&r, 2, VB_WR_SOLICITED);
    take(&r, cq);
    duo_expect(cq, 2, VB_WC_OK);
    // An error is always solicited.
    assert_int_equal(vb_cq_arm(cq, true), 0);
    duo_post_recv(&r.d.end[1], r.qp[1], 3, 0, 64);
    expect_none(&r);
    assert_int_equal(vb_qp_fail(r.qp[1]), 0);
    take(&r, cq);
    duo_expect(cq, 3, VB_WC_FLUSHED);
    duo_close(&r.d);
}

// Nobody polls: what fails and what is posted to the failed must complete all the same.
static void test_flushes_wake_a_sleeper(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    struct vb_cq *cq = r.d.end[1].cq;
    for (uint64_t i = 0; i < 20; i++) {
        struct vb_qp *other = duo_make_qp(&r.d.end[1], (struct vb_qp_opts){0});
        struct vb_qp_peer peer = duo_peer(&r.d, 1, r.qp[0]);
        assert_int_equal(vb_qp_connect(other, &peer), 0);
        duo_post_recv(&r.d.end[1], other, i, 0, 64);
        assert_int_equal(vb_cq_arm(cq, false), 0);
        assert_int_equal(vb_qp_fail(other), 0);
        take(&r, cq);
        duo_expect(cq, i, VB_WC_FLUSHED);
        assert_int_equal(vb_cq_arm(cq, false), 0);
        duo_post_recv(&r.d.end[1], other, 100 + i, 0, 64);
        take(&r, cq);
        duo_expect(cq, 100 + i, VB_WC_FLUSHED);
        assert_int_equal(vb_qp_destroy(other), 0);
    }
    duo_close(&r.d);
}

// Sends posted before connecting begin with it, though nobody polls.
static void test_connecting_wakes_the_helper(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    for (uint64_t i = 0; i < 20; i++) {
        struct vb_qp *qp[2];
        for (unsigned j = 0; j < 2; j++)
            qp[j] = duo_make_qp(&r.d.end[j], (struct vb_qp_opts){0});
        duo_post_recv(&r.d.end[1], qp[1], i, 0, 64);
        duo_post(&r.d, qp[0], duo_wr(&r.d, VB_WR_SEND, i), 0, 8);
        assert_int_equal(vb_cq_arm(r.d.end[1].cq, false), 0);
        assert_false(duo_is_readable(r.fd, 5)); // the helper has seen the doorbell
        duo_join(&r.d, qp[0], qp[1]);
        take(&r, r.d.end[1].cq);
        duo_expect(r.d.end[1].cq, i, VB_WC_OK);
        duo_expect(r.d.end[0].cq, i, VB_WC_OK);
    }
    duo_close(&r.d);
}

// A frame that waits on purpose is due though nobody polls any more when its time comes.
static void test_a_delayed_frame_wakes_a_sleeper(void **state)
{
    struct rig r;
    duo_open(&r.d, *state);
    duo_connect(&r.d, VB_SERVICE_UC, r.qp); // nothing is sent again
    r.fd = vb_channel_fd(r.d.end[1].channel);
    struct vb_cq *cq = r.d.end[1].cq;
    struct vb_wc wc;
    for (unsigned end = 0; end < 2; end++) // on the way out, then on the way in
        assert_int_equal(vb_nic_set_faults(r.d.end[end].nic, "delay=3ms", NULL), 0);
    for (uint64_t i = 0; i < 30; i++) {
        duo_post_recv(&r.d.end[1], r.qp[1], i, 0, 64);
        assert_int_equal(vb_cq_arm(cq, false), 0);
        duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_SEND, i), 0, 8);
        // Both NICs run here for a while, so that it is here that frames are held.
        for (uint64_t until = duo_now_ns() + (i % 8) * 1000000; duo_now_ns() < until;) {
            vb_nic_progress(r.d.end[0].nic);
            vb_nic_progress(r.d.end[1].nic);
        }
        take(&r, cq);
        assert_int_equal(vb_poll_cq(cq, &wc, 1), 1);
        if (i % 8 == 7) // requests of an unreliable service do not wait for the peer
            while (vb_poll_cq(r.d.end[0].cq, &wc, 1) == 1)
                ;
    }
    assert_true(duo_counter(r.d.end[1].nic, "faults_delayed") > 0);
    duo_close(&r.d);
}

static void test_several_queues_on_one_channel(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    struct duo_end *e = &r.d.end[1];
    struct vb_cq *cq[3];
    for (uint64_t i = 0; i < 3; i++) {
        const struct vb_cq_opts opts = {.entries = 4, .channel = e->channel};
        assert_int_equal(vb_cq_create(e->nic, &opts, &cq[i]), 0);
        struct vb_qp *there = duo_make_qp(e, (struct vb_qp_opts){.recv_cq = cq[i]});
        struct vb_qp *here = duo_make_qp(&r.d.end[0], (struct vb_qp_opts){0});
        duo_join(&r.d, here, there);
        assert_int_equal(vb_cq_arm(cq[i], false), 0);
        duo_post_recv(e, there, i, 0, 64);
        duo_post(&r.d, here, duo_wr(&r.d, VB_WR_SEND, i), 0, 8);
        duo_expect(r.d.end[0].cq, i, VB_WC_OK);
        while (i == 0 && !duo_is_readable(r.fd, LONG_MS))
            ;
    }
    for (uint64_t i = 0; i < 3; i++) { // in their order
        take(&r, cq[i]);
        duo_expect(cq[i], i, VB_WC_OK);
    }
    expect_none(&r);
    assert_int_equal(vb_channel_destroy(e->channel), -EBUSY);
    duo_close(&r.d);
}

static void test_resizing_while_entries_wait(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    struct vb_cq *cq = r.d.end[1].cq;
    for (uint64_t i = 0; i < 200; i++) { // past the end of the ring
        send_one(&r, i, 0);
        duo_expect(cq, i, VB_WC_OK);
    }
    for (uint64_t i = 0; i < 6; i++)
        send_one(&r, i, 0);
    assert_int_equal(vb_cq_resize(cq, 4), -EINVAL); // six wait
    assert_int_equal(vb_cq_resize(cq, 0), -EINVAL);
    assert_int_equal(vb_cq_resize(cq, 8), 0);
    assert_int_equal(vb_cq_arm(cq, false), 0);
    take(&r, cq);
    assert_int_equal(vb_cq_resize(cq, 512), 0);
    for (uint64_t i = 0; i < 6; i++)
        duo_expect(cq, i, VB_WC_OK);
    for (uint64_t i = 0; i < 600; i++) {
        assert_int_equal(vb_cq_arm(cq, false), 0);
        send_one(&r, i, 0);
        take(&r, cq);
        duo_expect(cq, i, VB_WC_OK);
    }
    duo_close(&r.d);
}

static void test_destroying_takes_events_back(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    struct duo_end *e = &r.d.end[1];
    assert_int_equal(vb_cq_arm(e->cq, false), 0);
    send_one(&r, 1, 0);
    assert_true(duo_is_readable(r.fd, LONG_MS));
    assert_int_equal(vb_cq_destroy(e->cq), -EBUSY);
    assert_true(duo_is_readable(r.fd, 0)); // a refusal takes nothing
    assert_int_equal(vb_qp_destroy(r.qp[1]), 0);
    assert_int_equal(vb_cq_destroy(e->cq), 0);
    expect_none(&r);
    // Another queue of the same number has no event from before.
    const struct vb_cq_opts opts = {.entries = 4, .channel = e->channel};
    assert_int_equal(vb_cq_create(e->nic, &opts, &e->cq), 0);
    assert_int_equal(vb_cq_arm(e->cq, false), 0);
    expect_none(&r);
    assert_int_equal(vb_cq_destroy(e->cq), 0);
    assert_int_equal(vb_channel_destroy(e->channel), 0);
    duo_close(&r.d);
}

static void test_what_channels_refuse(void **state)
{
    struct rig r;
    open_rig(&r, *state);
    struct vb_cq *cq = NULL;
    const struct vb_cq_opts foreign = {.entries = 4, .channel = r.d.end[0].channel};
    assert_int_equal(vb_cq_create(r.d.end[1].nic, &foreign, &cq), -EINVAL);
    assert_int_equal(vb_cq_create(r.d.end[1].nic, &(struct vb_cq_opts){.entries = 4}, &cq), 0);
    assert_int_equal(vb_cq_arm(cq, false), -EINVAL);
    duo_close(&r.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_an_armed_queue_wakes_a_sleeper),
        DUO_TEST(test_an_armed_queue_wakes_a_sleeper, "hull"),
        DUO_TEST(test_a_queue_that_is_not_armed_is_silent, "udp"),
        DUO_TEST(test_a_queue_that_is_not_armed_is_silent, "hull"),
        DUO_TEST(test_one_request_gives_one_event, "udp"),
        DUO_TEST(test_one_request_gives_one_event, "hull"),
        DUO_TEST(test_arming_late_loses_nothing, "udp"),
        DUO_TEST(test_arming_late_loses_nothing, "hull"),
        DUO_TEST(test_the_descriptor_is_level_triggered, "udp"),
        DUO_TEST(test_the_descriptor_is_level_triggered, "hull"),
        DUO_WAYS(test_no_event_is_lost_in_a_race),
        DUO_TEST(test_no_event_is_lost_in_a_race, "hull"),
        DUO_PORTS(test_solicited_only),
        DUO_TEST(test_solicited_only, "hull"),
        DUO_PORTS(test_flushes_wake_a_sleeper),
        DUO_TEST(test_flushes_wake_a_sleeper, "hull"),
        DUO_PORTS(test_connecting_wakes_the_helper),
        DUO_TEST(test_connecting_wakes_the_helper, "hull"),
        DUO_PORTS(test_a_delayed_frame_wakes_a_sleeper),
        DUO_TEST(test_several_queues_on_one_channel, "udp"),
        DUO_TEST(test_several_queues_on_one_channel, "hull"),
        DUO_TEST(test_resizing_while_entries_wait, "udp"),
        DUO_TEST(test_resizing_while_entries_wait, "hull"),
        DUO_TEST(test_destroying_takes_events_back, "udp"),
        DUO_TEST(test_destroying_takes_events_back, "hull"),
        DUO_TEST(test_what_channels_refuse, "udp"),
        DUO_TEST(test_what_channels_refuse, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
