// SPDX-License-Identifier: Apache-2.0
// The communication manager, message by message: two of them with the test as the network.
#include "base/bytes.h"
#include "cm/cma.h"
#include "cm/facts.h"
#include "cm_rig.h"
#include "sim/cm_sane.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_connects(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_event e;
    uint32_t a = cm_connect(r), b;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    cm_pass(r, A, VB_CM_REQ);
    b = cm_event(r, B, VB_CM_EVENT_REQUEST, &e);
    assert_ptr_equal(e.listener, r);
    assert_int_equal(e.message.req.qpn, CM_QPN_A);
    assert_int_equal(e.message.req.psn, 0x123456);
    assert_int_equal(e.message.req.pkey, 0xffff);
    assert_int_equal(e.message.req.primary.hop_limit, 64);
    assert_int_equal(e.private_len, 92);
    assert_memory_equal(e.message.private_data, "hello\0\0", 7);
    assert_int_equal(vb_cm_confirm(r->cm[B], r->now_ns, b, NULL), -EINVAL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, b, &cm_answer), 0);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, b, &cm_answer), -EINVAL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, b + 1, &cm_answer), -ENOENT);
    cm_pass(r, B, VB_CM_REP);
    assert_int_equal(cm_event(r, A, VB_CM_EVENT_REPLY, &e), a);
    assert_int_equal(e.message.rep.qpn, CM_QPN_B);
    assert_int_equal(e.private_len, 196);
    assert_memory_equal(e.message.private_data, "welcome", 8);
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, a, &(struct vb_cm_private){"go", 2}), 0);
    cm_pass(r, A, VB_CM_RTU);
    assert_int_equal(cm_event(r, B, VB_CM_EVENT_ESTABLISHED, &e), b);
    assert_memory_equal(e.message.private_data, "go", 3);
    assert_int_equal(vb_cm_state(r->cm[A], a), VB_CM_ESTABLISHED);
    assert_int_equal(vb_cm_state(r->cm[B], b), VB_CM_ESTABLISHED);
    cm_wait(r, 100 * CM_TIMEOUT_NS); // nothing happens by itself
    cm_none(r, A);
    cm_none(r, B);
}

static void test_disconnects(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_event e;
    uint32_t id[2];

    cm_establish(r, id);
    assert_int_equal(vb_cm_leaving(r->cm[A]), 0);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], &(struct vb_cm_private){"x", 1}),
                     0);
    assert_int_equal(vb_cm_leaving(r->cm[A]), 2); // the DREQ waits to be taken, and for an answer
    cm_pass(r, A, VB_CM_DREQ);
    assert_int_equal(vb_cm_leaving(r->cm[A]), 1);
    assert_int_equal(vb_cm_leaving(r->cm[B]), 1); // the DREP waits to be taken
    cm_event(r, B, VB_CM_EVENT_DISCONNECTED, &e);
    assert_true(e.by_peer);
    assert_memory_equal(e.message.private_data, "x", 2);
    cm_pass(r, B, VB_CM_DREP);
    assert_int_equal(vb_cm_leaving(r->cm[A]), 0);
    assert_int_equal(vb_cm_leaving(r->cm[B]), 0);
    cm_event(r, A, VB_CM_EVENT_DISCONNECTED, &e);
    assert_false(e.by_peer);
    cm_deliver(r, A); // the same DREQ again gets the same cm_answer
    cm_pass(r, B, VB_CM_DREP);
    cm_no_event(r, B);
    cm_wait(r, CM_TIMEWAIT_NS);
    cm_event(r, A, VB_CM_EVENT_GONE, NULL);
    cm_event(r, B, VB_CM_EVENT_GONE, NULL);
    assert_int_equal(vb_cm_in_use(r->cm[A]) + vb_cm_in_use(r->cm[B]), 0);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], NULL), -ENOENT);
    cm_deliver(r, A); // and even of one that nobody knows
    cm_pass(r, B, VB_CM_DREP);
}

static void test_both_disconnect(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m;
    uint32_t id[2];

    cm_establish(r, id);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], NULL), 0);
    assert_int_equal(vb_cm_disconnect(r->cm[B], r->now_ns, id[B], NULL), 0);
    cm_take(r, A, VB_CM_DREQ, &m);
    cm_take(r, B, VB_CM_DREQ, &m);
    cm_deliver(r, A);
    cm_deliver(r, B);
    cm_pass(r, A, VB_CM_DREP);
    cm_pass(r, B, VB_CM_DREP);
    cm_event(r, A, VB_CM_EVENT_DISCONNECTED, NULL);
    cm_event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
    cm_no_event(r, A);
    cm_no_event(r, B);
}

// The peer leaves for good before the program here has heard that it came.
static void test_disconnected_before_told(void **state)
{
    struct cm_rig *r = *state;
    uint32_t id[2];

    cm_agree(r, id);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, id[A]), 0);
    cm_pass(r, A, VB_CM_DREQ);
    cm_pass(r, B, VB_CM_DREP);
    cm_event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
    cm_event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
}

static void test_repeats_and_gives_up(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m, first;

    uint32_t a = cm_connect(r);
    cm_take(r, A, VB_CM_REQ, &first);
    cm_wait(r, CM_TIMEOUT_NS / 8 - 1);
    cm_none(r, A);
    cm_wait(r, 1); // once in between, which does not count
    cm_take(r, A, VB_CM_REQ, &m);
    assert_memory_equal(&m, &first, sizeof m);
    for (int i = 0; i < 3; i++) {
        cm_wait(r, CM_TIMEOUT_NS - (i == 0 ? CM_TIMEOUT_NS / 8 : 0) - 1);
        cm_none(r, A);
        cm_wait(r, 1);
        cm_take(r, A, VB_CM_REQ, &m);
        assert_memory_equal(&m, &first, sizeof m);
    }
    cm_wait(r, CM_TIMEOUT_NS);
    cm_take(r, A, VB_CM_REJ, &m);
    assert_int_equal(m.rej.reason, VB_CM_TIMEOUT);
    assert_int_equal(m.rej.info_len, 8);
    assert_true(vb_get_be64(m.rej.info) == 100);
    assert_int_equal(cm_event(r, A, VB_CM_EVENT_UNREACHABLE, NULL), a);
    assert_int_equal(cm_event(r, A, VB_CM_EVENT_GONE, NULL), a);
    assert_int_equal(vb_cm_in_use(r->cm[A]), 0);
}

// The peer who gave up says so by its own id alone.
static void test_request_is_withdrawn(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    uint32_t a = cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    uint32_t b = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, a), 0);
    cm_pass(r, A, VB_CM_REJ);
    assert_int_equal(cm_event(r, B, VB_CM_EVENT_REJECTED, &e), b);
    assert_int_equal(e.reason, VB_CM_TIMEOUT);
    cm_event(r, B, VB_CM_EVENT_GONE, NULL);
    a = cm_connect(r); // one that its program has not seen goes without a word
    cm_pass(r, A, VB_CM_REQ);
    vb_cm_abandon(r->cm[A], r->now_ns, a);
    cm_pass(r, A, VB_CM_REJ);
    cm_no_event(r, B);
    assert_int_equal(vb_cm_in_use(r->cm[B]), 0);
}

static void test_lost_messages(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m;
    uint32_t id[2];

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    id[A] = cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    cm_deliver(r, A); // twice: one request
    id[B] = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    cm_no_event(r, B);
    cm_none(r, B);
    vb_cm_accept(r->cm[B], r->now_ns, id[B], &cm_answer);
    cm_take(r, B, VB_CM_REP, &m); // lost
    cm_deliver(r, A);             // the REQ again asks for it
    cm_pass(r, B, VB_CM_REP);
    cm_event(r, A, VB_CM_EVENT_REPLY, NULL);
    vb_cm_confirm(r->cm[A], r->now_ns, id[A], NULL);
    cm_take(r, A, VB_CM_RTU, &m); // lost
    cm_wait(r, CM_TIMEOUT_NS);
    cm_pass(r, B, VB_CM_REP);
    cm_pass(r, A, VB_CM_RTU);
    cm_event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
    cm_deliver(r, A); // the RTU again is nothing
    cm_no_event(r, B);
    cm_none(r, B);
}

static void test_first_packet_stands_for_rtu(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    uint32_t b = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_heard(r->cm[B], r->now_ns, b), -EINVAL);
    vb_cm_accept(r->cm[B], r->now_ns, b, &cm_answer);
    assert_int_equal(vb_cm_heard(r->cm[B], r->now_ns, b), 0);
    cm_event(r, B, VB_CM_EVENT_ESTABLISHED, &e);
    assert_int_equal(e.private_len, 0);
    cm_wait(r, 2 * CM_TIMEOUT_NS);
    cm_pass(r, B, VB_CM_REP);
    cm_none(r, B);
}

static uint32_t accept_from(struct cm_rig *r, uint32_t peer_qpn, uint32_t own_qpn)
{
    struct vb_cm_request q = cm_request();
    struct vb_cm_answer a = cm_answer;
    uint32_t id;

    q.qpn = peer_qpn;
    a.qpn = own_qpn;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    cm_pass(r, A, VB_CM_REQ);
    id = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, id, &a), 0);
    return id;
}

// The same by the number of our queue pair, which others may have in their chains.
static void test_first_packet_on_a_queue_pair(void **state)
{
    struct cm_rig *r = *state;
    uint32_t id[4];

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    for (uint32_t i = 0; i < 4; i++)
        id[i] = accept_from(r, 100 + i, 0x1000 + i / 2 * 0x100); // two of each, in one chain
    vb_cm_heard_on(r->cm[B], r->now_ns, 0x1001);                 // nobody's
    vb_cm_heard_on(r->cm[B], r->now_ns, CM_QPN_A);
    vb_cm_heard_on(r->cm[A], r->now_ns, 100); // its own, but it asked
    cm_no_event(r, A);
    cm_no_event(r, B);
    assert_int_equal(vb_cm_abandon(r->cm[B], r->now_ns, id[2]), 0);
    vb_cm_heard_on(r->cm[B], r->now_ns, 0x1100);
    assert_int_equal(cm_event(r, B, VB_CM_EVENT_ESTABLISHED, NULL), id[3]);
    cm_no_event(r, B);
    vb_cm_heard_on(r->cm[B], r->now_ns, 0x1000);
    for (int i = 0; i < 2; i++)
        cm_event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
    vb_cm_heard_on(r->cm[B], r->now_ns, 0x1000); // they stand
    cm_no_event(r, B);
    assert_int_equal(vb_cm_state(r->cm[B], id[0]), VB_CM_ESTABLISHED);
    assert_int_equal(vb_cm_state(r->cm[B], id[1]), VB_CM_ESTABLISHED);
}

static void test_delay(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_message m;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    uint32_t a = cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    uint32_t b = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_delay(r->cm[B], r->now_ns, b, 13), 0);
    cm_pass(r, B, VB_CM_MRA);
    assert_int_equal(vb_cm_state(r->cm[A], a), VB_CM_MRA_REQ_RCVD);
    cm_wait(r, 7 * CM_TIMEOUT_NS); // without it the REQ would be repeated
    cm_none(r, A);
    cm_wait(r, 2 * CM_TIMEOUT_NS);
    cm_take(r, A, VB_CM_REQ, &m);
    cm_deliver(r, A);
    cm_pass(r, B, VB_CM_MRA);
    vb_cm_accept(r->cm[B], r->now_ns, b, &cm_answer);
    cm_pass(r, B, VB_CM_REP);
    cm_event(r, A, VB_CM_EVENT_REPLY, NULL);
    assert_int_equal(vb_cm_delay(r->cm[A], r->now_ns, a, 13), 0);
    cm_pass(r, A, VB_CM_MRA);
    assert_int_equal(vb_cm_state(r->cm[B], b), VB_CM_MRA_REP_RCVD);
    cm_wait(r, 7 * CM_TIMEOUT_NS);
    cm_none(r, B);
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, a, NULL), 0);
    cm_pass(r, A, VB_CM_RTU);
    cm_event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
}

static void test_no_room(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_request q = cm_request();
    uint32_t id;

    for (int i = 0; i < 8; i++)
        cm_connect(r);
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), -ENOBUFS);
    for (int i = 0; i < 3; i++)
        cm_wait(r, CM_TIMEOUT_NS); // 32 messages for an outbox of 16
    assert_true(vb_cm_stats(r->cm[A])->overflowed > 0);
    assert_true(vb_cmsane(r->cm[A]));
}

static void test_listeners(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, ~0xffffull, 0, r), 0); // all ports
    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE + 1, 0, 0, r), -EADDRINUSE);
    assert_int_equal(vb_cm_listen(r->cm[B], 0x01110001, 0, 0, r), 0);
    assert_int_equal(vb_cm_unlisten(r->cm[B], r->now_ns, CM_SERVICE, 0), -ENOENT);
    cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    assert_int_equal(vb_cm_unlisten(r->cm[B], r->now_ns, CM_SERVICE, ~0xffffull), 0);
    cm_no_event(r, B);
    cm_pass(r, B, VB_CM_REJ); // who waits for an cm_answer has one
    cm_event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.reason, VB_CM_CONSUMER);
    for (uint64_t i = 0; i < 63; i++)
        assert_int_equal(vb_cm_listen(r->cm[B], i, 0, 0, r), 0);
    assert_int_equal(vb_cm_listen(r->cm[B], 1000, 0, 0, r), -ENOSPC);
}

static void test_sidr(void **state)
{
    struct cm_rig *r = *state;
    const struct vb_cm_lookup lookup = {
        .peer = cm_ip[B], .service_id = CM_SERVICE, .private_data = {"who", 3}};
    const struct vb_cm_found found = {.qpn = 0x77, .qkey = 0x01234567, .private_data = {"me", 2}};
    struct vb_cm_event e;
    struct vb_cm_message m;
    uint32_t id;

    assert_int_equal(vb_cm_sidr_ask(r->cm[A], r->now_ns, &lookup, &id), 0);
    cm_pass(r, A, VB_CM_SIDR_REQ);
    cm_pass(r, B, VB_CM_SIDR_REP);
    cm_event(r, A, VB_CM_EVENT_SIDR_REPLY, &e);
    assert_int_equal(e.message.sidr_rep.status, VB_SIDR_UNSUPPORTED);
    cm_event(r, A, VB_CM_EVENT_GONE, NULL);
    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    assert_int_equal(vb_cm_sidr_ask(r->cm[A], r->now_ns, &lookup, &id), 0);
    cm_pass(r, A, VB_CM_SIDR_REQ);
    cm_deliver(r, A);
    uint32_t b = cm_event(r, B, VB_CM_EVENT_SIDR_REQUEST, &e);
    assert_memory_equal(e.message.private_data, "who", 4);
    cm_no_event(r, B);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, b, &cm_answer), -EINVAL);
    assert_int_equal(vb_cm_sidr_reply(r->cm[B], r->now_ns, b, &found), 0);
    cm_take(r, B, VB_CM_SIDR_REP, &m); // lost
    cm_wait(r, CM_TIMEOUT_NS);
    cm_pass(r, A, VB_CM_SIDR_REQ);
    cm_pass(r, B, VB_CM_SIDR_REP);
    assert_int_equal(cm_event(r, A, VB_CM_EVENT_SIDR_REPLY, &e), id);
    assert_int_equal(e.message.sidr_rep.qpn, 0x77);
    assert_int_equal(e.message.sidr_rep.qkey, 0x01234567);
    assert_memory_equal(e.message.private_data, "me", 3);
    cm_deliver(r, B);
    cm_event(r, A, VB_CM_EVENT_GONE, NULL);
    cm_no_event(r, A);
}

static void test_ids(void **state)
{
    struct vb_cm_opts opts = {
        .seed = {3, 4}, .connections = 2000, .id_prefix = 0x5a5, .id_prefix_bits = 12};
    struct vb_cm *cm = vb_cm_create(&opts);
    struct vb_cm_request q = cm_request();
    uint32_t id, before = 0, near = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(vb_cm_connect(cm, 0, &q, &id), 0);
        assert_int_equal(id >> 20, 0x5a5);
        near += id - before < 256;
        before = id;
    }
    assert_true(near < 20); // no counting
    assert_true(vb_cmsane(cm));
    vb_cm_destroy(cm);
    opts.id_prefix = 0x1000;
    assert_null(vb_cm_create(&opts));
}

// What the request says of the path, for the peer.
static void test_path(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_request q = cm_request();
    struct vb_cm_event e;
    uint32_t id;

    q.hop_limit = 17;
    q.traffic_class = 0x48;
    q.sl = 3;
    q.flow_label = 0x12345;
    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    cm_pass(r, A, VB_CM_REQ);
    cm_event(r, B, VB_CM_EVENT_REQUEST, &e);
    assert_int_equal(e.message.req.primary.hop_limit, 17);
    assert_int_equal(e.message.req.primary.traffic_class, 0x48);
    assert_int_equal(e.message.req.primary.sl, 3);
    assert_int_equal(e.message.req.primary.flow_label, 0x12345);
    q.sl = 16;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), -EINVAL);
    q.sl = 0;
    q.flow_label = 1 << 20;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), -EINVAL);
}

static void test_abandon(void **state)
{
    struct cm_rig *r = *state;
    uint32_t id[2];

    cm_establish(r, id);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, id[A]), 0);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, id[A]), -ENOENT);
    cm_pass(r, A, VB_CM_DREQ);
    cm_event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
    cm_pass(r, B, VB_CM_DREP);
    cm_wait(r, CM_TIMEWAIT_NS);
    cm_no_event(r, A);
    assert_int_equal(vb_cm_in_use(r->cm[A]), 0);
}

// ---- other addresses than the managers'

static const struct vb_ip second[2] = {{{0xfd, [15] = 1}}, {{0xfd, [15] = 2}}};

// From and to the address given, if the message is of that kind.
static void pass_at(struct cm_rig *r, int from, enum vb_cm_kind kind, const struct vb_ip at[2])
{
    struct vb_ip src, dst;
    struct vb_cm_message m;

    assert_true(vb_cm_take_message_from(r->cm[from], &src, &dst, r->last[from]));
    assert_memory_equal(&src, &at[from], sizeof src);
    assert_memory_equal(&dst, &at[!from], sizeof dst);
    assert_int_equal(vb_cm_decode(r->last[from], VB_MAD_BYTES, &m), VB_CM_DECODE_OK);
    assert_string_equal(vb_cm_kind_text(m.kind), vb_cm_kind_text(kind));
    vb_cm_input_at(r->cm[!from], r->now_ns, &src, &dst, r->last[from], VB_MAD_BYTES);
    assert_true(vb_cmsane(r->cm[!from]));
}

static void test_other_addresses(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_request q = cm_request();
    struct vb_cm_event e;
    uint32_t id[2];

    q.peer = second[B];
    q.local = second[A];
    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id[A]), 0);
    pass_at(r, A, VB_CM_REQ, second);
    id[B] = cm_event(r, B, VB_CM_EVENT_REQUEST, &e);
    assert_memory_equal(&e.local, &second[B], sizeof e.local);
    assert_memory_equal(e.message.req.primary.local_gid, second[A].b, 16);
    assert_memory_equal(e.message.req.primary.remote_gid, second[B].b, 16);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, id[B], &cm_answer), 0);
    pass_at(r, B, VB_CM_REP, second);
    cm_event(r, A, VB_CM_EVENT_REPLY, &e);
    assert_memory_equal(&e.local, &second[A], sizeof e.local);
    cm_wait(r, 100000000);
    pass_at(r, B, VB_CM_REP, second); // again, by the clock
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, id[A], NULL), 0);
    pass_at(r, A, VB_CM_RTU, second);
    cm_event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
    assert_int_equal(vb_cm_disconnect(r->cm[B], r->now_ns, id[B], NULL), 0);
    pass_at(r, B, VB_CM_DREQ, second);
    pass_at(r, A, VB_CM_DREP, second);
}

// What is answered at once leaves from where it came to; and a request must name that address.
static void test_refusals_at_other_addresses(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_request q = cm_request();
    struct vb_cm_lookup l = {.peer = second[B], .local = second[A], .service_id = CM_SERVICE};
    struct vb_cm_event e;
    uint32_t id;

    q.peer = second[B];
    q.local = second[A];
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    pass_at(r, A, VB_CM_REQ, second);
    pass_at(r, B, VB_CM_REJ, second);
    cm_event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.reason, VB_CM_INVALID_SERVICE);
    cm_event(r, A, VB_CM_EVENT_GONE, NULL);
    assert_int_equal(vb_cm_sidr_ask(r->cm[A], r->now_ns, &l, &id), 0);
    pass_at(r, A, VB_CM_SIDR_REQ, second);
    pass_at(r, B, VB_CM_SIDR_REP, second);
    cm_event(r, A, VB_CM_EVENT_SIDR_REPLY, NULL);
    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    struct vb_ip from, to;
    assert_true(vb_cm_take_message_from(r->cm[A], &from, &to, r->last[A]));
    vb_cm_input(r->cm[B], r->now_ns, &from, r->last[A], VB_MAD_BYTES); // at the manager's own
    const struct vb_ip mixed[2] = {second[A], cm_ip[B]};
    pass_at(r, B, VB_CM_REJ, mixed);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, id), 0);
    pass_at(r, A, VB_CM_REJ, second); // that we no longer wait
}

#define T(name) cmocka_unit_test_setup_teardown(name, cm_open, cm_close)

// ---- facts

// A connection with port numbers, and two listeners: each place once, however small the portions.
static void test_facts(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_facts f[4];
    uint32_t id[2], at = 0;
    uint64_t service = vb_cma_service_id(VB_CMA_TCP, 7174);

    cm_establish(r, id);
    memset(f, 0, sizeof f);
    assert_int_equal(vb_cm_facts(r->cm[A], &at, f, 4), 1);
    assert_true(f[0].active);
    assert_false(f[0].sidr);
    assert_false(f[0].listens);
    assert_int_equal(f[0].state, VB_CM_ESTABLISHED);
    assert_int_equal(f[0].id, id[A]);
    assert_int_equal(f[0].peer_id, id[B]);
    assert_int_equal(f[0].qpn, CM_QPN_A);
    assert_int_equal(f[0].peer_qpn, CM_QPN_B);
    assert_int_equal(f[0].service_id, CM_SERVICE);
    assert_memory_equal(&f[0].local, &cm_ip[A], sizeof f[0].local);
    assert_memory_equal(&f[0].peer, &cm_ip[B], sizeof f[0].peer);
    assert_int_equal(vb_cm_facts(r->cm[A], &at, f, 4), 0);
    assert_int_equal(vb_cm_listen(r->cm[B], service, 0, 0, r), 0);
    at = 0;
    assert_int_equal(vb_cm_facts(r->cm[B], &at, f, 2), 2);
    assert_false(f[0].active);
    assert_int_equal(f[0].id, id[B]);
    assert_true(f[1].listens);
    assert_int_equal(vb_cm_facts(r->cm[B], &at, f + 2, 2), 1);
    assert_true(f[2].listens);
    assert_true(f[1].number > f[0].number && f[2].number == f[1].number + 1);
    struct vb_cm_facts *tcp = f[1].service_id == service ? &f[1] : &f[2];
    assert_int_equal(tcp->service_id, service);
    assert_int_equal(tcp->port, 7174);
    assert_memory_equal(&tcp->local, &cm_ip[B], sizeof tcp->local);
    assert_int_equal(vb_cm_facts(r->cm[B], &at, f, 4), 0);
}

// A service of no port space has no port, on either side.
static void test_facts_without_ports(void **state)
{
    struct cm_rig *r = *state;
    struct vb_cm_request q = cm_request();
    struct vb_cm_facts f[2];
    uint32_t id, at = 0;

    q.service_id = 5;
    assert_int_equal(vb_cm_listen(r->cm[A], 5, 0, 0, r), 0);
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    assert_int_equal(vb_cm_facts(r->cm[A], &at, f, 2), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(f[i].service_id, 5);
        assert_int_equal(f[i].port, 0);
        assert_int_equal(f[i].peer_port, 0);
    }
}

// What a manager takes if it is told nothing.
static void test_defaults(void **state)
{
    const struct vb_cm_opts opts = {.local = cm_ip[A]};
    const struct vb_cm_request q = cm_request();
    struct vb_cm *cm = vb_cm_create(&opts);
    struct vb_cm_message m;
    uint8_t mad[VB_MAD_BYTES];
    struct vb_ip to;
    uint32_t id;

    (void)state;
    assert_non_null(cm);
    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(vb_cm_listen(cm, i, 0, 0, NULL), 0);
    assert_int_equal(vb_cm_listen(cm, 64, 0, 0, NULL), -ENOSPC);
    for (int i = 0; i < 1024; i++)
        assert_int_equal(vb_cm_connect(cm, 0, &q, &id), 0);
    assert_int_equal(vb_cm_connect(cm, 0, &q, &id), -ENOBUFS);
    assert_int_equal(vb_cm_stats(cm)->overflowed, 1024 - 256);
    assert_true(vb_cm_poll(cm, 0) == ((4096ull << 18) + 2 * (4096ull << 14)) / 8);
    assert_true(vb_cm_take_message(cm, &to, mad));
    assert_int_equal(vb_cm_decode(mad, sizeof mad, &m), VB_CM_DECODE_OK);
    assert_int_equal(m.req.local_timeout, 18);
    assert_int_equal(m.req.max_cm_retries, 15);
    vb_cm_destroy(cm);
}

static void test_event_texts(void **state)
{
    (void)state;
    assert_string_equal(vb_cm_event_text(VB_CM_EVENT_REQUEST), "request");
    assert_string_equal(vb_cm_event_text(VB_CM_EVENT_GONE), "gone");
    assert_string_equal(vb_cm_event_text(VB_CM_EVENTS), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_event_texts),
        T(test_connects),
        T(test_facts),
        T(test_facts_without_ports),
        T(test_defaults),
        T(test_disconnects),
        T(test_both_disconnect),
        T(test_disconnected_before_told),
        T(test_repeats_and_gives_up),
        T(test_request_is_withdrawn),
        T(test_lost_messages),
        T(test_first_packet_stands_for_rtu),
        T(test_first_packet_on_a_queue_pair),
        T(test_delay),
        T(test_no_room),
        T(test_listeners),
        T(test_other_addresses),
        T(test_refusals_at_other_addresses),
        T(test_sidr),
        T(test_ids),
        T(test_abandon),
        T(test_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
