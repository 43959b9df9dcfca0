// SPDX-License-Identifier: Apache-2.0
// Events: of armed completion queues, of queue pairs, and the states SQD and SQE that some of them
// are about.
#include "base/bytes.h"
#include "forge.h"
#include "loop_rig.h"

#include <errno.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void arm(struct forge *f, bool solicited_only)
{
    vb_driver_cq_arm(&f->recv_cq, solicited_only);
}

static void receive(struct forge *f, uint32_t psn, bool solicited)
{
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, psn);
    p.solicited = solicited;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
}

static void post_receives(struct forge *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        forge_post_recv(f, i, 0, 8);
}

#define EXPECT_FIRED(f)     forge_expect_event(f, VB_EVENT_CQ_COMPLETION, (f)->recv_cqn)
#define EXPECT_NOT_FIRED(f) forge_expect_no_event(f)

// ---- armed completion queues

static void test_the_next_entry_fires_once(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_receives(f, 4);
    receive(f, 500, false);
    EXPECT_NOT_FIRED(f); // nobody asked
    forge_next_recv(f);
    arm(f, false);
    forge_run(f);
    EXPECT_NOT_FIRED(f);
    receive(f, 501, false);
    EXPECT_FIRED(f);
    receive(f, 502, false);
    EXPECT_NOT_FIRED(f); // a request is answered once
    arm(f, false);
    receive(f, 503, false);
    EXPECT_FIRED(f);
    forge_close(f);
}

// The very first request, before any entry, and however often it is repeated.
static void test_armed_again_and_again(void **state)
{
    (void)state;
    for (uint32_t times = 1; times <= 20; times++) {
        struct forge *f = forge_open(NULL);
        post_receives(f, 2);
        for (uint32_t i = 0; i < times; i++) {
            arm(f, false);
            forge_run(f);
            EXPECT_NOT_FIRED(f);
        }
        receive(f, 500, false);
        EXPECT_FIRED(f);
        forge_next_recv(f);
        for (uint32_t i = 0; i < times; i++)
            arm(f, false);
        receive(f, 501, false);
        EXPECT_FIRED(f);
        EXPECT_NOT_FIRED(f);
        forge_close(f);
    }
}

// Counters near the wraps of their 24 bits in the arm word, and of the ring.
static void test_armed_near_the_wraps(void **state)
{
    (void)state;
    static const uint64_t starts[] = {0,        0xfffffe, 0xffffff,  0x1000000,
                                      0x7fffff, 0x800000, 0x17fffffe};
    for (uint32_t s = 0; s < 7; s++) {
        struct forge_opts o = forge_defaults();
        o.cq_start = starts[s];
        o.recv_cq_entries = 4;
        struct forge *f = forge_open(&o);
        for (uint32_t i = 0; i < 12; i++) {
            post_receives(f, 1);
            arm(f, i % 2);
            receive(f, 500 + i, i % 2);
            EXPECT_FIRED(f);
            forge_next_recv(f);
        }
        forge_close(f);
    }
}

// Solicited entries and errors only.
static void test_solicited_only(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_receives(f, 8);
    arm(f, true);
    receive(f, 500, false);
    receive(f, 501, false);
    EXPECT_NOT_FIRED(f);
    receive(f, 502, true);
    EXPECT_FIRED(f);
    receive(f, 503, true);
    EXPECT_NOT_FIRED(f);
    for (uint32_t i = 0; i < 4; i++)
        forge_next_recv(f);
    arm(f, true);
    receive(f, 504, false); // the solicited ones are consumed already
    EXPECT_NOT_FIRED(f);
    forge_modify(f, VB_QPS_ERR); // flushed receives are errors
    forge_run(f);
    EXPECT_FIRED(f);
    EXPECT_NOT_FIRED(f);
    forge_close(f);
}

// A request for any entry replaces one for solicited entries, and the other way round.
static void test_requests_replace_each_other(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_receives(f, 4);
    arm(f, true);
    arm(f, false);
    receive(f, 500, false);
    EXPECT_FIRED(f);
    forge_next_recv(f);
    arm(f, false);
    arm(f, true);
    receive(f, 501, false);
    EXPECT_NOT_FIRED(f);
    receive(f, 502, true);
    EXPECT_FIRED(f);
    forge_close(f);
}

// Many unsolicited entries pass, more than the ring holds, and are consumed without a new request.
static void test_a_long_wait_for_a_solicited_entry(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.recv_cq_entries = 4;
    struct forge *f = forge_open(&o);
    arm(f, true);
    for (uint32_t i = 0; i < 50; i++) {
        post_receives(f, 1);
        receive(f, 500 + i, false);
        forge_next_recv(f);
    }
    EXPECT_NOT_FIRED(f);
    post_receives(f, 1);
    receive(f, 550, true);
    EXPECT_FIRED(f);
    forge_close(f);
}

// The race: an entry came after the last poll and before the request. The device is told to look.
static void test_an_entry_before_the_request(void **state)
{
    (void)state;
    for (uint32_t solicited = 0; solicited < 2; solicited++)
        for (uint32_t only = 0; only < 2; only++) {
            struct forge *f = forge_open(NULL);
            post_receives(f, 2);
            receive(f, 500, solicited);
            arm(f, only);
            vb_dev_cq_armed(f->dev, f->recv_cqn);
            if (solicited || !only)
                EXPECT_FIRED(f);
            vb_dev_cq_armed(f->dev, f->recv_cqn); // to look again changes nothing
            EXPECT_NOT_FIRED(f);
            // Without that look, the next entry does it, even if it is not solicited itself.
            if (solicited && only) {
                arm(f, true);
                receive(f, 501, false);
                EXPECT_FIRED(f);
            }
            forge_close(f);
        }
    struct forge *f = forge_open(NULL);
    post_receives(f, 1);
    receive(f, 500, true);
    forge_next_recv(f); // consumed: nothing is there
    arm(f, false);
    vb_dev_cq_armed(f->dev, f->recv_cqn);
    EXPECT_NOT_FIRED(f);
    vb_dev_cq_armed(f->dev, 0);
    vb_dev_cq_armed(f->dev, 9999);
    forge_close(f);
}

// Serials come again, so a request can look like one that was answered before.
static void test_a_request_that_looks_like_an_old_one(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    post_receives(f, 1);
    arm(f, false);
    receive(f, 500, false);
    EXPECT_FIRED(f);
    uint32_t answered = f->recv_cq.dbrec[VB_DBREC_CQ_ARM];
    for (uint32_t i = 0; i < 2; i++) {
        arm(f, true);
        vb_dev_cq_armed(f->dev, f->recv_cqn);
        EXPECT_NOT_FIRED(f);
    }
    arm(f, false);
    assert_int_equal(f->recv_cq.dbrec[VB_DBREC_CQ_ARM], answered);
    vb_dev_cq_armed(f->dev, f->recv_cqn);
    EXPECT_FIRED(f);
    vb_dev_cq_armed(f->dev, f->recv_cqn); // to look again changes nothing
    EXPECT_NOT_FIRED(f);
    forge_close(f);
}

// An event that finds no room waits for it: nobody is left asleep.
static void test_a_full_queue_of_events_tells_later(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_event e;
    post_receives(f, 2);
    arm(f, false);
    while (f->pu->event_count < VB_EVENTS)
        vb_pu_event(f->pu, VB_EVENT_SQ_DRAINED, 7);
    receive(f, 500, false);
    for (uint32_t i = 0; i < VB_EVENTS; i++) {
        assert_true(vb_pu_take_event(f->pu, &e));
        assert_int_equal(e.kind, VB_EVENT_SQ_DRAINED);
    }
    assert_int_equal(f->pu->count.lost_events, 0);
    forge_run(f); // not yet: a unit that asks again and again would never rest
    forge_expect_no_event(f);
    f->now_ns = vb_pu_deadline(f->pu);
    forge_run(f);
    EXPECT_FIRED(f);
    forge_expect_no_event(f);
    forge_close(f);
}

// Those of completions leave room for what cannot be told later.
static void test_completions_wait_for_other_events(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_event e;
    post_receives(f, 2);
    arm(f, false);
    for (uint32_t i = 0; i < 256; i++)
        vb_pu_event(f->pu, VB_EVENT_CQ_COMPLETION, 7);
    receive(f, 500, false); // which is to be told
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 501, FORGE_MEMORY, 1);
    assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
    assert_int_equal(f->pu->count.lost_events, 0);
    for (uint32_t i = 0; i < 256; i++) {
        assert_true(vb_pu_take_event(f->pu, &e));
        assert_int_equal(e.kind, VB_EVENT_CQ_COMPLETION);
    }
    forge_expect_qp_event(f, VB_EVENT_QP_ACCESS_ERR);
    f->now_ns = vb_pu_deadline(f->pu);
    forge_run(f);
    EXPECT_FIRED(f);
    forge_close(f);
}

// A queue pair of unit 0 whose receives complete on unit 1's queue.
static struct loop_cq far_cq;
static uint32_t far_dbrec[2];
static uint8_t far_ring[4096] __attribute__((aligned(64)));

static uint32_t receive_far(struct loop_rig *r)
{
    struct loop_queue *q = loop_queue(r, &(struct loop_opts){.plain = true});
    struct vb_qpc_attr attr = {.pd = r->pd,
                               .send_cqn = q->cq.cqn,
                               .sq_ring = far_ring,
                               .sq_blocks = 16,
                               .rq_ring = far_ring + 2048,
                               .rq_entries = 4,
                               .rq_stride_bytes = 16,
                               .dbrec = far_dbrec};
    uint32_t qpn;

    memset(far_dbrec, 0, sizeof far_dbrec);
    memset(&far_cq, 0, sizeof far_cq);
    loop_cq_open(r, &far_cq, 1, 64, 0);
    attr.recv_cqn = far_cq.cqn;
    assert_int_equal(vb_dev_qp_create(r->dev, &attr, &qpn), 0);
    struct vb_qpc_mods mods = {.state = VB_QPS_INIT};
    assert_int_equal(vb_dev_qp_modify(r->dev, qpn, &mods), 0);
    return qpn;
}

// Its one receive is flushed while there is no room for the event.
static void flush_far(struct loop_rig *r, uint32_t qpn)
{
    struct vb_pu *pu = vb_dev_pu_at(r->dev, 0);
    struct vb_qpc_mods mods = {.state = VB_QPS_ERR};

    far_cq.dbrec[VB_DBREC_CQ_ARM] = htobe32(1u << VB_DBREC_ARM_SERIAL);
    far_dbrec[VB_DBREC_RQ] = htobe32(1);
    for (uint32_t i = 0; i < VB_EVENTS_DEFERRABLE; i++)
        vb_pu_event(pu, VB_EVENT_CQ_COMPLETION, 7777);
    assert_int_equal(vb_dev_qp_modify(r->dev, qpn, &mods), 0);
    vb_pu_poll(pu, r->now_ns);
    struct vb_cqe cqe;
    assert_true(loop_take(&far_cq, &cqe));
    assert_int_equal(cqe.op_own >> 4, VB_CQE_RESP_ERR);
}

static uint32_t take_all(struct loop_rig *r, uint32_t cqn)
{
    struct vb_event e;
    uint32_t found = 0;

    for (uint32_t u = 0; u < r->units; u++)
        while (vb_pu_take_event(vb_dev_pu_at(r->dev, u), &e))
            found += e.kind == VB_EVENT_CQ_COMPLETION && e.number == cqn;
    return found;
}

// The same where the queue, and so its timer, is another unit's than the one that has no room.
static void tell_far(bool moderated)
{
    struct loop_rig r;

    loop_open(&r, 2);
    struct vb_pu *pu = vb_dev_pu_at(r.dev, 0);
    uint32_t qpn = receive_far(&r);
    if (moderated)
        assert_int_equal(vb_dev_cq_moderate(r.dev, far_cq.cqn, 8, 1000000000), 0);
    flush_far(&r, qpn);
    assert_int_equal(take_all(&r, far_cq.cqn), 0);
    assert_in_range(vb_pu_deadline(pu), 1, VB_EVENT_RETRY_NS);
    for (uint32_t i = 0; i < VB_EVENTS_DEFERRABLE; i++) // still, or again
        vb_pu_event(pu, VB_EVENT_CQ_COMPLETION, 7777);
    vb_pu_poll(pu, r.now_ns = vb_pu_deadline(pu));
    assert_int_equal(take_all(&r, far_cq.cqn), 0);
    assert_in_range(vb_pu_deadline(pu), r.now_ns + 1, r.now_ns + VB_EVENT_RETRY_NS);
    vb_pu_poll(pu, r.now_ns = vb_pu_deadline(pu));
    assert_int_equal(take_all(&r, far_cq.cqn), 1);
    assert_true(vb_pu_deadline(pu) == VB_TIMER_NEVER);
    loop_close(&r);
    free(far_cq.ring);
}

// However it is moderated: what was to be told waits for room only, and not for more entries.
static void test_another_unit_s_queue_is_told_later(void **state)
{
    (void)state;
    tell_far(false);
    tell_far(true);
}

static void test_a_queue_goes_before_it_is_told(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 2);
    struct vb_pu *pu = vb_dev_pu_at(r.dev, 0);
    uint32_t qpn = receive_far(&r);
    flush_far(&r, qpn);
    assert_int_equal(vb_dev_qp_destroy(r.dev, qpn), 0);
    assert_int_equal(vb_dev_cq_destroy(r.dev, far_cq.cqn), 0);
    assert_true(vb_pu_deadline(pu) == VB_TIMER_NEVER);
    assert_int_equal(take_all(&r, far_cq.cqn), 0);
    vb_pu_poll(pu, r.now_ns += VB_EVENT_RETRY_NS);
    assert_int_equal(take_all(&r, far_cq.cqn), 0);
    loop_close(&r);
    free(far_cq.ring);
}

// Entries of a queue that is connected with itself, which a poll executes by runs.
static void test_an_entry_of_a_run_fires(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.blocks = 0});
    for (uint32_t serial = 1; serial <= 3; serial++) {
        q->cq.dbrec[VB_DBREC_CQ_ARM] = htobe32(serial << VB_DBREC_ARM_SERIAL | q->cq.taken);
        for (uint32_t polls = 0; polls < 2; polls++) { // a request is answered once
            loop_put(q, loop_nop());
            loop_put(q, loop_nop());
            loop_doorbell(q);
            vb_pu_poll(vb_dev_pu(r.dev), r.now_ns);
            assert_int_equal(take_all(&r, q->cq.cqn), polls == 0);
            assert_int_equal(loop_count(&q->cq, NULL), 2);
        }
    }
    loop_close(&r);
}

static void test_an_overrun_is_told_once(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.recv_cq_entries = 2;
    struct forge *f = forge_open(&o);
    post_receives(f, 5);
    receive(f, 500, false);
    receive(f, 501, false);
    forge_expect_no_event(f);
    receive(f, 502, false);
    forge_expect_event(f, VB_EVENT_CQ_ERR, f->recv_cqn);
    forge_expect_event(f, VB_EVENT_QP_FATAL, f->qp.qpn);
    forge_run(f);
    forge_expect_no_event(f); // though flushed receives find no room either
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

// ---- queue pairs

static void test_the_first_packet_in_rtr(void **state)
{
    (void)state;
    for (enum vb_qp_state s = VB_QPS_RTR; s <= VB_QPS_RTS; s++) {
        struct forge_opts o = forge_defaults();
        o.state = s;
        struct forge *f = forge_open(&o);
        post_receives(f, 2);
        struct vb_packet stranger = forge_packet(f, VB_RC_SEND_ONLY, 500);
        struct vb_ip other = f->remote;
        other.b[15]++;
        forge_queue_from(f, &stranger, &other);
        forge_run(f);
        forge_expect_no_event(f);
        receive(f, 500, false);
        if (s == VB_QPS_RTR)
            forge_expect_qp_event(f, VB_EVENT_COMM_EST);
        receive(f, 501, false);
        forge_expect_no_event(f);
        forge_close(f);
    }
}

static void test_events_of_refused_requests(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    assert_int_equal(forge_send(f, VB_RC_SEND_LAST, 500, 4, 1), VB_RX_REFUSED);
    forge_expect_qp_event(f, VB_EVENT_QP_REQ_ERR);
    forge_expect_no_event(f);
    forge_close(f);
    f = forge_open(NULL);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, FORGE_MEMORY, 1);
    assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
    forge_expect_qp_event(f, VB_EVENT_QP_ACCESS_ERR);
    forge_expect_no_event(f);
    forge_close(f);
}

static void test_more_events_than_fit(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint32_t i = 0; i < VB_EVENTS + 3; i++)
        vb_pu_event(f->pu, VB_EVENT_SRQ_LIMIT, i);
    assert_int_equal(forge_counters(f)->lost_events, 3);
    for (uint32_t i = 0; i < VB_EVENTS; i++)
        forge_expect_event(f, VB_EVENT_SRQ_LIMIT, i); // the oldest are kept
    forge_expect_no_event(f);
    vb_pu_event(f->pu, VB_EVENT_CQ_ERR, 7);
    forge_expect_event(f, VB_EVENT_CQ_ERR, 7);
    forge_close(f);
}

// ---- SQD

static void test_drained_at_once(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_modify(f, VB_QPS_SQD);
    forge_run(f);
    forge_expect_qp_event(f, VB_EVENT_SQ_DRAINED);
    forge_modify(f, VB_QPS_SQD); // legal, and no news
    forge_run(f);
    forge_expect_no_event(f);
    forge_modify(f, VB_QPS_RTS);
    forge_run(f);
    forge_expect_no_event(f);
    forge_modify(f, VB_QPS_SQD);
    forge_run(f);
    forge_expect_qp_event(f, VB_EVENT_SQ_DRAINED);
    forge_close(f);
}

static void test_drained_in_silence(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_qpc_mods m = {.state = VB_QPS_SQD, .silent = true};

    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), 0);
    forge_run(f);
    forge_expect_no_event(f);
    forge_modify(f, VB_QPS_RTS);
    forge_modify(f, VB_QPS_SQD);
    forge_run(f);
    forge_expect_qp_event(f, VB_EVENT_SQ_DRAINED);
    forge_close(f);
}

// What was begun is finished, with repeats and all; what was not waits, even unfetched.
static void test_draining(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 8192; // so that some is begun and not sent
    o.fetch_depth = 2;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_WRITE, 0, 20000);
    for (uint64_t i = 2; i < 8; i++)
        forge_post(f, i, VB_WR_SEND, 0, 4);
    forge_run(f);
    uint32_t sent = f->sent_count;
    assert_true(sent > 0 && sent < 20);
    uint64_t fetched = f->ctx->sq.fetched;
    forge_modify(f, VB_QPS_SQD);
    forge_post(f, 8, VB_WR_SEND, 0, 4);
    forge_advance(f, 4096ull << o.timeout); // a loss is repaired
    assert_int_equal(f->sent_count, 2 * sent);
    forge_expect_no_event(f);
    for (uint32_t psn = 100; psn < 120; psn++) {
        assert_int_equal(f->ctx->sq.fetched, fetched);
        forge_expect_none(f);
        forge_expect_no_event(f);
        forge_ack(f, psn);
    }
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_none(f);
    forge_expect_qp_event(f, VB_EVENT_SQ_DRAINED);
    assert_int_equal(f->ctx->sq.fetched, fetched);
    // Receiving goes on meanwhile.
    post_receives(f, 1);
    receive(f, 500, false);
    forge_forget(f);
    forge_modify(f, VB_QPS_RTS);
    forge_run(f);
    assert_int_equal(f->sent_count, 7); // all that waited
    forge_ack(f, 126);
    for (uint64_t i = 2; i <= 8; i++)
        forge_expect_done(f, i, VB_WC_OK);
    forge_expect_no_event(f);
    forge_close(f);
}

// Fetching stops with SQD even while something is still to be sent.
static void test_no_fetch_while_draining(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 8192;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_WRITE, 0, 20000);
    forge_run(f);
    uint64_t fetched = f->ctx->sq.fetched;
    forge_modify(f, VB_QPS_SQD);
    forge_post(f, 2, VB_WR_SEND, 0, 4);
    forge_run(f);
    assert_int_equal(f->ctx->sq.fetched, fetched);
    forge_modify(f, VB_QPS_RTS);
    forge_run(f);
    assert_true(f->ctx->sq.fetched > fetched);
    forge_close(f);
}

static void test_an_atomic_drains_with_its_answer(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_READ, 0, 8);
    forge_run(f);
    forge_modify(f, VB_QPS_SQD);
    forge_run(f);
    forge_expect_no_event(f);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_ONLY, 100, "12345678", 8), VB_RX_APPLIED);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_qp_event(f, VB_EVENT_SQ_DRAINED);
    forge_close(f);
}

static void test_failure_while_draining(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_SEND, 0, 8);
    forge_run(f);
    forge_modify(f, VB_QPS_SQD);
    forge_post(f, 2, VB_WR_SEND, 0, 8);
    forge_run(f);
    assert_int_equal(forge_nak(f, 100, VB_AETH_NAK, VB_NAK_REMOTE_OPERATION), VB_RX_FATAL);
    forge_expect_done(f, 1, VB_WC_REMOTE_OPERATION);
    forge_expect_done(f, 2, VB_WC_FLUSHED);
    forge_expect_no_event(f); // it did not drain
    forge_close(f);
}

// ---- SQE

static void post_bad(struct forge *f, uint64_t wr_id, uint32_t len)
{
    const struct vb_sge bad = {forge_addr(f, FORGE_MEMORY) - len + 1, len, f->key};
    const struct vb_send_wr wr = {.wr_id = wr_id, .sge = &bad, .num_sge = 1, .opcode = VB_WR_SEND};
    forge_post_send(f, &wr);
}

static struct forge *open_uc(void)
{
    struct forge_opts o = forge_defaults();
    o.type = VB_QPT_UC;
    o.our_psn = 0xffffff;
    o.fetch_depth = 4;
    return forge_open(&o);
}

// Back to RTS, the queue works as if nothing had been.
static void expect_works(struct forge *f, uint64_t wr_id, uint32_t psn)
{
    forge_forget(f);
    for (uint64_t i = 0; i < 10; i++)
        forge_post(f, wr_id + i, i % 3 == 2 ? VB_WR_NOP : VB_WR_SEND, 0, 1500);
    forge_run(f);
    for (uint64_t i = 0; i < 10; i++)
        forge_expect_done(f, wr_id + i, VB_WC_OK);
    assert_int_equal(f->sent_count, 14);
    for (uint32_t i = 0; i < 14; i++) {
        assert_int_equal(forge_sent(f, i)->psn, (psn + i) & 0xffffff);
        assert_int_equal(forge_sent(f, i)->opcode,
                         VB_UC_BASE | (i % 2 ? VB_RC_SEND_LAST : VB_RC_SEND_FIRST));
    }
    forge_expect_none(f);
}

static void test_back_from_sqe(void **state)
{
    (void)state;
    for (uint32_t behind = 0; behind < 12; behind++) {
        struct forge *f = open_uc();
        forge_post(f, 1, VB_WR_SEND, 0, 4);
        post_bad(f, 2, 100);
        for (uint32_t i = 0; i < behind; i++)
            forge_post(f, 3 + i, VB_WR_SEND, 0, 4);
        forge_run(f);
        forge_expect_done(f, 1, VB_WC_OK);
        forge_expect_done(f, 2, VB_WC_LOCAL_PROTECTION);
        for (uint32_t i = 0; i < behind; i++)
            forge_expect_done(f, 3 + i, VB_WC_FLUSHED);
        assert_int_equal(forge_state(f), VB_QPS_SQE);
        assert_int_equal(f->sent_count, 1);
        forge_post(f, 50, VB_WR_SEND, 0, 4); // still flushed
        forge_run(f);
        forge_expect_done(f, 50, VB_WC_FLUSHED);
        forge_modify(f, VB_QPS_RTS);
        expect_works(f, 100, 0);
        forge_close(f);
    }
}

// The fault shows in the middle of a message, whose first packets have left.
static void test_back_from_sqe_in_a_message(void **state)
{
    (void)state;
    struct forge *f = open_uc();
    for (uint32_t round = 0; round < 3; round++) {
        const struct vb_sge sge[2] = {{forge_addr(f, 0), 2048, f->key},
                                      {forge_addr(f, 0), 2048, f->key ^ 1}};
        const struct vb_send_wr wr = {.wr_id = 1, .sge = sge, .num_sge = 2, .opcode = VB_WR_SEND};
        forge_forget(f);
        forge_post_send(f, &wr);
        forge_post(f, 2, VB_WR_SEND, 0, 4);
        forge_run(f);
        assert_int_equal(f->sent_count, 2);
        forge_expect_done(f, 1, VB_WC_LOCAL_PROTECTION);
        forge_expect_done(f, 2, VB_WC_FLUSHED);
        forge_modify(f, VB_QPS_RTS);
        expect_works(f, 100, 0xffffff + 16 * round + 2);
    }
    forge_close(f);
}

static void test_back_from_sqe_after_a_malformed_entry(void **state)
{
    (void)state;
    struct forge *f = open_uc();
    forge_post(f, 1, VB_WR_READ, 0, 8); // not on this service
    forge_post(f, 2, VB_WR_SEND, 0, 8);
    forge_run(f);
    forge_expect_done(f, 1, VB_WC_LOCAL_QP_OP);
    forge_expect_done(f, 2, VB_WC_FLUSHED);
    forge_modify(f, VB_QPS_RTS);
    expect_works(f, 100, 0xffffff);
    forge_close(f);
}

// Not before everything is flushed.
static void test_back_from_sqe_too_early(void **state)
{
    (void)state;
    struct forge *f = open_uc();
    post_bad(f, 1, 100);
    for (uint32_t i = 0; i < 3; i++)
        forge_post(f, 2 + i, VB_WR_SEND, 0, 4);
    struct vb_qpc_mods m = forge_mods(f, VB_QPS_RTS);
    while (forge_state(f) != VB_QPS_SQE)
        assert_int_not_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_NONE);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), -EBUSY);
        assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_COMPLETE);
    }
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), 0);
    forge_expect_done(f, 1, VB_WC_LOCAL_PROTECTION);
    for (uint32_t i = 0; i < 3; i++)
        forge_expect_done(f, 2 + i, VB_WC_FLUSHED);
    expect_works(f, 100, 0xffffff);
    forge_close(f);
}

static void test_receiving_goes_on_in_sqe(void **state)
{
    (void)state;
    struct forge *f = open_uc();
    post_receives(f, 2);
    post_bad(f, 1, 100);
    forge_run(f);
    assert_int_equal(forge_state(f), VB_QPS_SQE);
    receive(f, 500, false);
    forge_expect_recv(f, 0, VB_WC_OK, 0);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    forge_expect_done(f, 1, VB_WC_LOCAL_PROTECTION);
    forge_expect_recv(f, 1, VB_WC_FLUSHED, 0);
    forge_close(f);
}

static void test_transitions(void **state)
{
    (void)state;
    static const bool legal[VB_QPS_COUNT][2] = {
        // to SQD, to RTS without its attributes' transition
        [VB_QPS_RESET] = {false, false}, [VB_QPS_INIT] = {false, false},
        [VB_QPS_RTR] = {false, true},    [VB_QPS_RTS] = {true, false},
        [VB_QPS_SQD] = {true, true},     [VB_QPS_ERR] = {false, false},
    };
    for (enum vb_qp_state from = 0; from < VB_QPS_COUNT; from++)
        for (uint32_t to = 0; to < 2; to++) {
            if (from == VB_QPS_SQE)
                continue;
            struct forge_opts o = forge_defaults();
            o.state = from <= VB_QPS_RTS ? from : VB_QPS_RTS;
            struct forge *f = forge_open(&o);
            if (from > VB_QPS_RTS)
                forge_modify(f, from);
            struct vb_qpc_mods m = forge_mods(f, to ? VB_QPS_RTS : VB_QPS_SQD);
            assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m),
                             legal[from][to] ? 0 : -EINVAL);
            m.state = VB_QPS_SQE; // comes by itself only
            assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), -EINVAL);
            forge_close(f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_next_entry_fires_once),
        cmocka_unit_test(test_armed_again_and_again),
        cmocka_unit_test(test_armed_near_the_wraps),
        cmocka_unit_test(test_solicited_only),
        cmocka_unit_test(test_requests_replace_each_other),
        cmocka_unit_test(test_a_long_wait_for_a_solicited_entry),
        cmocka_unit_test(test_an_entry_before_the_request),
        cmocka_unit_test(test_a_request_that_looks_like_an_old_one),
        cmocka_unit_test(test_a_full_queue_of_events_tells_later),
        cmocka_unit_test(test_completions_wait_for_other_events),
        cmocka_unit_test(test_another_unit_s_queue_is_told_later),
        cmocka_unit_test(test_a_queue_goes_before_it_is_told),
        cmocka_unit_test(test_an_entry_of_a_run_fires),
        cmocka_unit_test(test_an_overrun_is_told_once),
        cmocka_unit_test(test_the_first_packet_in_rtr),
        cmocka_unit_test(test_events_of_refused_requests),
        cmocka_unit_test(test_more_events_than_fit),
        cmocka_unit_test(test_drained_at_once),
        cmocka_unit_test(test_drained_in_silence),
        cmocka_unit_test(test_draining),
        cmocka_unit_test(test_no_fetch_while_draining),
        cmocka_unit_test(test_an_atomic_drains_with_its_answer),
        cmocka_unit_test(test_failure_while_draining),
        cmocka_unit_test(test_back_from_sqe),
        cmocka_unit_test(test_back_from_sqe_in_a_message),
        cmocka_unit_test(test_back_from_sqe_after_a_malformed_entry),
        cmocka_unit_test(test_back_from_sqe_too_early),
        cmocka_unit_test(test_receiving_goes_on_in_sqe),
        cmocka_unit_test(test_transitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
