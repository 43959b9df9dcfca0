// SPDX-License-Identifier: Apache-2.0
// What the communication manager refuses, and who it does not listen to: one against a peer that
// says what the test wants.
#include "cm_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void refused(struct cm_rig *r, uint16_t reason)
{
    struct vb_cm_event e;

    cm_pass(r, A, VB_CM_REQ);
    cm_pass(r, B, VB_CM_REJ);
    cm_event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_true(e.by_peer);
    assert_int_equal(e.reason, reason);
    assert_int_equal(e.message.rej.about, VB_CM_ABOUT_REQ);
    cm_event(r, A, VB_CM_EVENT_GONE, NULL);
}

static void test_refusals(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_request q = cm_request();
    uint32_t id;

    cm_connect(r);
    refused(r, VB_CM_INVALID_SERVICE);
    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 1, r), 0);
    q.transport = VB_CM_RD;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    refused(r, VB_CM_INVALID_TRANSPORT);
    q.transport = VB_CM_EXTENDED;
    q.extended_transport = VB_CM_EXTENDED_XRC;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    cm_pass(r, A, VB_CM_REQ);
    cm_event(r, B, VB_CM_EVENT_REQUEST, NULL); // the one that the backlog has room for
    cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    cm_pass(r, B, VB_CM_REJ); // of its queue pair: stale
    cm_event(r, A, VB_CM_EVENT_REJECTED, NULL);
    q = cm_request();
    q.mtu = 6;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), -EINVAL);
    q = cm_request();
    q.private_data.len = 93;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), -EINVAL);
}

static void test_consumer_rejects(void **state)
{
    struct cm_rig *r = *state;
    const struct vb_cm_refusal no = {
        .reason = VB_CM_CONSUMER, .info_len = 2, .info = {9, 8}, .private_data = {"no", 2}};
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    uint32_t b = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_reject(r->cm[B], r->now_ns, b, &no), 0);
    assert_int_equal(vb_cm_reject(r->cm[B], r->now_ns, b, &no), -ENOENT);
    struct vb_cm_message m;
    cm_take(r, B, VB_CM_REJ, &m); // lost
    cm_deliver(r, A);             // a repetition hears the same, and the program is not asked again
    cm_no_event(r, B);
    cm_pass(r, B, VB_CM_REJ);
    cm_event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.reason, VB_CM_CONSUMER);
    assert_int_equal(e.message.rej.info_len, 2);
    assert_int_equal(e.message.rej.info[1], 8);
    assert_memory_equal(e.message.private_data, "no", 3);
    assert_int_equal(e.private_len, 148);
    cm_wait(r, 5 * CM_TIMEOUT_NS);
    assert_int_equal(vb_cm_in_use(r->cm[B]), 0);
}

static void test_active_rejects_the_reply(void **state)
{
    struct cm_rig *r = *state;
    const struct vb_cm_refusal no = {.reason = VB_CM_CONSUMER};
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    uint32_t a = cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    uint32_t b = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    vb_cm_accept(r->cm[B], r->now_ns, b, &cm_answer);
    cm_pass(r, B, VB_CM_REP);
    cm_event(r, A, VB_CM_EVENT_REPLY, NULL);
    assert_int_equal(vb_cm_reject(r->cm[A], r->now_ns, a, &no), 0);
    cm_pass(r, A, VB_CM_REJ);
    cm_event(r, B, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.message.rej.about, VB_CM_ABOUT_REP);
    cm_wait(r, CM_TIMEWAIT_NS);
    assert_int_equal(cm_event(r, B, VB_CM_EVENT_GONE, NULL), b);
}

// Messages with wrong ids, of others or in a wrong state change nothing.
static void test_strangers(void **state)
{
    static const enum vb_cm_kind kinds[] = {VB_CM_REP,  VB_CM_RTU,  VB_CM_MRA, VB_CM_REJ,
                                            VB_CM_DREQ, VB_CM_DREP, VB_CM_LAP, VB_CM_APR};
    struct cm_rig *r = *state;
    uint32_t id[2];
    uint8_t mad[VB_MAD_BYTES];
    const struct vb_ip other = {{[10] = 0xff, 0xff, 10, 0, 0, 9}};

    cm_establish(r, id);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct vb_cm_message m = {.kind = kinds[i], .local_id = id[B], .remote_id = id[A]};
        if (kinds[i] == VB_CM_DREQ)
            m.dreq.remote_qpn = CM_QPN_A;
        vb_cm_encode(&m, mad);
        vb_cm_input(r->cm[A], r->now_ns, &other, mad, sizeof mad); // another address
        m.local_id++;
        cm_forge(r, A, &m); // another id of the peer's
        m.local_id--;
        m.remote_id++;
        cm_forge(r, A, &m); // another id of ours
        assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_ESTABLISHED);
    }
    struct vb_cm_message dreq = {.kind = VB_CM_DREQ, .local_id = id[B], .remote_id = id[A]};
    cm_forge(r, A, &dreq); // without the queue pair's number
    assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_ESTABLISHED);
    cm_no_event(r, A);
    dreq.dreq.remote_qpn = CM_QPN_A;
    cm_forge(r, A, &dreq);
    assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_TIMEWAIT);
    vb_cm_input(r->cm[A], r->now_ns, &cm_ip[B], mad, 12);
    assert_true(vb_cm_stats(r->cm[A])->malformed == 1);
}

// A REJ that another cm_answer has overtaken does not end what stands.
static void test_old_refusal(void **state)
{
    struct cm_rig *r = *state;
    uint32_t id[2];

    cm_establish(r, id);
    const struct vb_cm_message old = {
        .kind = VB_CM_REJ, .remote_id = id[A], .rej = {.reason = VB_CM_NO_RESOURCES}};
    cm_forge(r, A, &old);
    assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_ESTABLISHED);
    struct vb_cm_message now = old;
    now.local_id = id[B];
    cm_forge(r, A, &now);
    assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_TIMEWAIT);
    cm_event(r, A, VB_CM_EVENT_DISCONNECTED, NULL);
}

static void test_unknown_reply_is_refused(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m;
    const struct vb_cm_message rep = {.kind = VB_CM_REP, .local_id = 5, .remote_id = 77};

    cm_forge(r, A, &rep);
    cm_take(r, A, VB_CM_REJ, &m);
    assert_int_equal(m.rej.reason, VB_CM_INVALID_ID);
    assert_int_equal(m.remote_id, 5);
    assert_int_equal(m.local_id, 77);
}

// The peer has lost its memory and begins anew with the same queue pair.
static void test_stale(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_event e;
    uint32_t id[2];

    cm_establish(r, id);
    vb_cm_destroy(r->cm[A]);
    const struct vb_cm_opts opts = {
        .seed = {9, 9}, .local = cm_ip[A], .timeout = 10, .retries = 3, .packet_life = 4};
    r->cm[A] = vb_cm_create(&opts);
    cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    cm_pass(r, B, VB_CM_DREQ); // which the new one knows nothing of, and grants
    cm_pass(r, A, VB_CM_DREP);
    cm_event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
    cm_pass(r, B, VB_CM_REJ);
    cm_event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.reason, VB_CM_STALE);
    cm_event(r, A, VB_CM_EVENT_GONE, NULL);
    cm_wait(r, CM_TIMEWAIT_NS);
    cm_event(r, B, VB_CM_EVENT_GONE, NULL);
    cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
}

// The peer has drawn the id of an old connection for a new one, whose queue pair is another.
static void reused_id(struct cm_rig *r, uint32_t id, uint32_t qpn)
{
    struct vb_cm_message m;
    assert_int_equal(vb_cm_decode(r->last[A], VB_MAD_BYTES, &m), VB_CM_DECODE_OK);
    assert_int_equal(m.kind, VB_CM_REQ);
    m.local_id = id;
    m.req.qpn = qpn;
    cm_forge(r, B, &m);
}

static void test_reused_id_of_a_refused_request(void **state)
{
    struct cm_rig *r = *state;
    const struct vb_cm_refusal no = {.reason = VB_CM_CONSUMER};

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    uint32_t a = cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    uint32_t b = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_reject(r->cm[B], r->now_ns, b, &no), 0);
    cm_pass(r, B, VB_CM_REJ);
    reused_id(r, a, CM_QPN_A); // a repetition
    cm_pass(r, B, VB_CM_REJ);
    cm_no_event(r, B);
    reused_id(r, a, CM_QPN_A + 1);
    cm_none(r, B);
    uint32_t next = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, next, &cm_answer), 0);
    cm_wait(r, 5 * CM_TIMEOUT_NS); // the refusal is forgotten, and the connection is not
    assert_int_equal(vb_cm_state(r->cm[B], next), VB_CM_REP_SENT);
    assert_int_equal(vb_cm_in_use(r->cm[B]), 1);
}

// A request that is refused itself leaves the id where it was: the repetition of the first one is
// still known as such, and no second event comes of it.
static void test_refused_request_with_a_reused_id(void **state)
{
    struct cm_rig *r = *state;
    const struct vb_cm_refusal no = {.reason = VB_CM_CONSUMER};
    struct vb_cm_message first, other, m;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    cm_connect(r);
    cm_take(r, A, VB_CM_REQ, &first);
    cm_forge(r, B, &first);
    uint32_t b = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_reject(r->cm[B], r->now_ns, b, &no), 0);
    cm_take(r, B, VB_CM_REJ, &m);
    other = first;
    other.req.qpn++;
    other.req.service_id++;
    cm_forge(r, B, &other);
    cm_take(r, B, VB_CM_REJ, &m);
    assert_int_equal(m.rej.reason, VB_CM_INVALID_SERVICE);
    cm_forge(r, B, &first);
    cm_take(r, B, VB_CM_REJ, &m);
    assert_int_equal(m.rej.reason, VB_CM_CONSUMER);
    cm_no_event(r, B);
}

static void test_reused_id_of_an_ended_connection(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m;
    uint32_t id[2];

    cm_establish(r, id);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], NULL), 0);
    cm_pass(r, A, VB_CM_DREQ);
    cm_pass(r, B, VB_CM_DREP);
    cm_connect(r);
    cm_take(r, A, VB_CM_REQ, &m); // lost
    reused_id(r, id[A], CM_QPN_A);
    cm_take(r, B, VB_CM_REJ, &m);
    assert_int_equal(m.rej.reason, VB_CM_STALE);
    reused_id(r, id[A], CM_QPN_A + 1);
    cm_none(r, B);
    cm_event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
    cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
}

// The connection that has taken the id is gone before the one that had it. The id is free: with it
// and the former queue pair comes a new request.
static void test_reused_id_is_free_again(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m;
    uint32_t id[2];

    cm_establish(r, id);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], NULL), 0);
    cm_pass(r, A, VB_CM_DREQ);
    cm_pass(r, B, VB_CM_DREP);
    cm_connect(r);
    cm_take(r, A, VB_CM_REQ, &m); // lost
    reused_id(r, id[A], CM_QPN_A + 1);
    const struct vb_cm_message end = {
        .kind = VB_CM_REJ, .local_id = id[A], .rej = {.reason = VB_CM_TIMEOUT}};
    cm_forge(r, B, &end); // before the program has taken its event
    cm_wait(r, CM_TIMEWAIT_NS);
    assert_int_equal(vb_cm_state(r->cm[B], id[B]), VB_CM_OVER);
    assert_int_equal(vb_cm_in_use(r->cm[B]), 1);
    reused_id(r, id[A], CM_QPN_A);
    cm_none(r, B);
    assert_int_equal(vb_cm_in_use(r->cm[B]), 2);
}

// The same of the answer's id.
static void test_reused_id_in_a_reply(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_request q = cm_request();
    uint32_t id[2], a;

    cm_establish(r, id);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], NULL), 0);
    cm_pass(r, A, VB_CM_DREQ);
    cm_pass(r, B, VB_CM_DREP);
    cm_event(r, A, VB_CM_EVENT_DISCONNECTED, NULL);
    q.qpn = CM_QPN_A + 1;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &a), 0);
    cm_pass(r, A, VB_CM_REQ);
    const struct vb_cm_message rep = {
        .kind = VB_CM_REP, .local_id = id[B], .remote_id = a, .rep.qpn = CM_QPN_B + 1};
    cm_forge(r, A, &rep);
    cm_none(r, A);
    assert_int_equal(cm_event(r, A, VB_CM_EVENT_REPLY, NULL), a);
}

static void test_flood(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m, req;
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 3, r), 0);
    cm_connect(r);
    cm_take(r, A, VB_CM_REQ, &req);
    for (uint32_t i = 0; i < 100; i++) {
        req.local_id = 1000 + i;
        req.req.qpn = 100 + i;
        cm_forge(r, B, &req);
        if (i >= 3) {
            cm_take(r, B, VB_CM_REJ, &m);
            assert_int_equal(m.rej.reason, VB_CM_NO_RESOURCES);
        }
    }
    assert_int_equal(vb_cm_in_use(r->cm[B]), 3);
    // Refusals that are remembered make room for others.
    for (uint32_t i = 0; i < 40; i++) {
        while (vb_cm_take_event(r->cm[B], &e))
            vb_cm_reject(r->cm[B], r->now_ns, e.id, &(struct vb_cm_refusal){.reason = 28});
        while (vb_cm_take_message(r->cm[B], &(struct vb_ip){{0}}, r->last[B]))
            ;
        req.local_id++;
        req.req.qpn++;
        cm_forge(r, B, &req);
        cm_none(r, B);
    }
    assert_int_equal(vb_cm_in_use(r->cm[B]), 8);
}

static void test_lap_is_refused(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m;
    uint32_t id[2];

    cm_establish(r, id);
    struct vb_cm_message lap = {.kind = VB_CM_LAP, .local_id = id[A], .remote_id = id[B]};
    cm_forge(r, B, &lap);
    cm_take(r, B, VB_CM_APR, &m);
    assert_int_equal(m.apr.status, VB_APR_UNSUPPORTED);
    lap.remote_id++;
    cm_forge(r, B, &lap);
    cm_take(r, B, VB_CM_APR, &m);
    assert_int_equal(m.apr.status, VB_APR_INVALID_ID);
}

#define T(name) cmocka_unit_test_setup_teardown(name, cm_open, cm_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_refusals),
        T(test_consumer_rejects),
        T(test_active_rejects_the_reply),
        T(test_strangers),
        T(test_old_refusal),
        T(test_unknown_reply_is_refused),
        T(test_stale),
        T(test_reused_id_of_a_refused_request),
        T(test_refused_request_with_a_reused_id),
        T(test_reused_id_of_an_ended_connection),
        T(test_reused_id_is_free_again),
        T(test_reused_id_in_a_reply),
        T(test_flood),
        T(test_lap_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
