// SPDX-License-Identifier: Apache-2.0
// The communication manager, message by message: two of them with the test as the network, and one
// against a peer that says what the test wants.
#include "base/bytes.h"
#include "cm/cm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    A,
    B,
    SERVICE = 0x01061c1b,
    QPN_A = 0x11,
    QPN_B = 0x22,
};

#define TIMEOUT_NS  ((4096ull << 10) + (2 * (4096ull << 4)))
#define TIMEWAIT_NS (2 * (4096ull << 4))

struct rig {
    struct vb_cm *cm[2];
    uint64_t now_ns;
    uint8_t last[2][VB_MAD_BYTES]; // what each sent last
};

static const struct vb_ip ip[2] = {{{[10] = 0xff, 0xff, 10, 0, 0, 1}},
                                   {{[10] = 0xff, 0xff, 10, 0, 0, 2}}};

static struct vb_cm *make(int who, uint32_t connections)
{
    const struct vb_cm_opts opts = {.seed = {1, (uint64_t)who},
                                    .local = ip[who],
                                    .ca_guid = 100u + (uint64_t)who,
                                    .connections = connections,
                                    .outbox = 16,
                                    .timeout = 10,
                                    .retries = 3,
                                    .packet_life = 4};
    return vb_cm_create(&opts);
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);

    r->now_ns = 1000;
    r->cm[A] = make(A, 8);
    r->cm[B] = make(B, 8);
    *state = r;
    return r->cm[A] && r->cm[B] ? 0 : -1;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    vb_cm_destroy(r->cm[A]);
    vb_cm_destroy(r->cm[B]);
    free(r);
    return 0;
}

// Takes one message of `who`, which must be of that kind.
static void take(struct rig *r, int who, enum vb_cm_kind kind, struct vb_cm_message *m)
{
    struct vb_ip to;

    assert_true(vb_cm_take_message(r->cm[who], &to, r->last[who]));
    assert_memory_equal(&to, &ip[!who], sizeof to);
    assert_int_equal(vb_cm_decode(r->last[who], VB_MAD_BYTES, m), VB_CM_DECODE_OK);
    assert_string_equal(vb_cm_kind_text(m->kind), vb_cm_kind_text(kind));
}

static void none(struct rig *r, int who)
{
    struct vb_ip to;
    assert_false(vb_cm_take_message(r->cm[who], &to, r->last[who]));
}

static void deliver(struct rig *r, int from)
{
    vb_cm_input(r->cm[!from], r->now_ns, &ip[from], r->last[from], VB_MAD_BYTES);
    assert_true(vb_cm_is_sane(r->cm[!from]));
}

static void pass(struct rig *r, int from, enum vb_cm_kind kind)
{
    struct vb_cm_message m;
    take(r, from, kind, &m);
    deliver(r, from);
}

static void forge(struct rig *r, int to, const struct vb_cm_message *m)
{
    uint8_t mad[VB_MAD_BYTES];
    vb_cm_encode(m, mad);
    vb_cm_input(r->cm[to], r->now_ns, &ip[!to], mad, sizeof mad);
    assert_true(vb_cm_is_sane(r->cm[to]));
}

static uint32_t event(struct rig *r, int who, enum vb_cm_event_kind kind, struct vb_cm_event *e)
{
    struct vb_cm_event mine;

    e = e ? e : &mine;
    assert_true(vb_cm_take_event(r->cm[who], e));
    assert_string_equal(vb_cm_event_text(e->kind), vb_cm_event_text(kind));
    return e->id;
}

static void no_event(struct rig *r, int who)
{
    struct vb_cm_event e;
    assert_false(vb_cm_take_event(r->cm[who], &e));
}

static void wait_for(struct rig *r, uint64_t ns)
{
    r->now_ns += ns;
    vb_cm_poll(r->cm[A], r->now_ns);
    vb_cm_poll(r->cm[B], r->now_ns);
}

static struct vb_cm_request request(void)
{
    return (struct vb_cm_request){.peer = ip[B],
                                  .service_id = SERVICE,
                                  .qpn = QPN_A,
                                  .psn = 0x123456,
                                  .mtu = 5,
                                  .responder_resources = 4,
                                  .initiator_depth = 3,
                                  .retries = 7,
                                  .rnr_retries = 6,
                                  .ack_timeout = 17,
                                  .private_data = {"hello", 5}};
}

static uint32_t connect_to(struct rig *r)
{
    const struct vb_cm_request q = request();
    uint32_t id = 0;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    return id;
}

static const struct vb_cm_answer answer = {.qpn = QPN_B,
                                           .psn = 0x654321,
                                           .responder_resources = 3,
                                           .initiator_depth = 4,
                                           .rnr_retries = 5,
                                           .private_data = {"welcome", 7}};

// Both ids of a connection that stands.
static void establish(struct rig *r, uint32_t id[2])
{
    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    id[A] = connect_to(r);
    pass(r, A, VB_CM_REQ);
    id[B] = event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, id[B], &answer), 0);
    pass(r, B, VB_CM_REP);
    event(r, A, VB_CM_EVENT_REPLY, NULL);
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, id[A], NULL), 0);
    pass(r, A, VB_CM_RTU);
    event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
}

// ---- other addresses than the managers'

static const struct vb_ip second[2] = {{{0xfd, [15] = 1}}, {{0xfd, [15] = 2}}};

// From and to the address given, if the message is of that kind.
static void pass_at(struct rig *r, int from, enum vb_cm_kind kind, const struct vb_ip at[2])
{
    struct vb_ip src, dst;
    struct vb_cm_message m;

    assert_true(vb_cm_take_message_from(r->cm[from], &src, &dst, r->last[from]));
    assert_memory_equal(&src, &at[from], sizeof src);
    assert_memory_equal(&dst, &at[!from], sizeof dst);
    assert_int_equal(vb_cm_decode(r->last[from], VB_MAD_BYTES, &m), VB_CM_DECODE_OK);
    assert_string_equal(vb_cm_kind_text(m.kind), vb_cm_kind_text(kind));
    vb_cm_input_at(r->cm[!from], r->now_ns, &src, &dst, r->last[from], VB_MAD_BYTES);
    assert_true(vb_cm_is_sane(r->cm[!from]));
}

static void test_other_addresses(void **state)
{
    struct rig *r = *state;
    struct vb_cm_request q = request();
    struct vb_cm_event e;
    uint32_t id[2];

    q.peer = second[B];
    q.local = second[A];
    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id[A]), 0);
    pass_at(r, A, VB_CM_REQ, second);
    id[B] = event(r, B, VB_CM_EVENT_REQUEST, &e);
    assert_memory_equal(&e.local, &second[B], sizeof e.local);
    assert_memory_equal(e.message.req.primary.local_gid, second[A].b, 16);
    assert_memory_equal(e.message.req.primary.remote_gid, second[B].b, 16);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, id[B], &answer), 0);
    pass_at(r, B, VB_CM_REP, second);
    event(r, A, VB_CM_EVENT_REPLY, &e);
    assert_memory_equal(&e.local, &second[A], sizeof e.local);
    wait_for(r, 100000000);
    pass_at(r, B, VB_CM_REP, second); // again, by the clock
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, id[A], NULL), 0);
    pass_at(r, A, VB_CM_RTU, second);
    event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
    assert_int_equal(vb_cm_disconnect(r->cm[B], r->now_ns, id[B], NULL), 0);
    pass_at(r, B, VB_CM_DREQ, second);
    pass_at(r, A, VB_CM_DREP, second);
}

// What is answered at once leaves from where it came to; and a request must name that address.
static void test_refusals_at_other_addresses(void **state)
{
    struct rig *r = *state;
    struct vb_cm_request q = request();
    struct vb_cm_lookup l = {.peer = second[B], .local = second[A], .service_id = SERVICE};
    struct vb_cm_event e;
    uint32_t id;

    q.peer = second[B];
    q.local = second[A];
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    pass_at(r, A, VB_CM_REQ, second);
    pass_at(r, B, VB_CM_REJ, second);
    event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.reason, VB_CM_INVALID_SERVICE);
    event(r, A, VB_CM_EVENT_GONE, NULL);
    assert_int_equal(vb_cm_sidr_ask(r->cm[A], r->now_ns, &l, &id), 0);
    pass_at(r, A, VB_CM_SIDR_REQ, second);
    pass_at(r, B, VB_CM_SIDR_REP, second);
    event(r, A, VB_CM_EVENT_SIDR_REPLY, NULL);
    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    struct vb_ip from, to;
    assert_true(vb_cm_take_message_from(r->cm[A], &from, &to, r->last[A]));
    vb_cm_input(r->cm[B], r->now_ns, &from, r->last[A], VB_MAD_BYTES); // at the manager's own
    const struct vb_ip mixed[2] = {second[A], ip[B]};
    pass_at(r, B, VB_CM_REJ, mixed);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, id), 0);
    pass_at(r, A, VB_CM_REJ, second); // that we no longer wait
}

static void test_connects(void **state)
{
    struct rig *r = *state;
    struct vb_cm_event e;
    uint32_t a = connect_to(r), b;

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    pass(r, A, VB_CM_REQ);
    b = event(r, B, VB_CM_EVENT_REQUEST, &e);
    assert_ptr_equal(e.listener, r);
    assert_int_equal(e.message.req.qpn, QPN_A);
    assert_int_equal(e.message.req.psn, 0x123456);
    assert_int_equal(e.message.req.pkey, 0xffff);
    assert_int_equal(e.message.req.primary.hop_limit, 64);
    assert_int_equal(e.private_len, 92);
    assert_memory_equal(e.message.private_data, "hello\0\0", 7);
    assert_int_equal(vb_cm_confirm(r->cm[B], r->now_ns, b, NULL), -EINVAL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, b, &answer), 0);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, b, &answer), -EINVAL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, b + 1, &answer), -ENOENT);
    pass(r, B, VB_CM_REP);
    assert_int_equal(event(r, A, VB_CM_EVENT_REPLY, &e), a);
    assert_int_equal(e.message.rep.qpn, QPN_B);
    assert_int_equal(e.private_len, 196);
    assert_memory_equal(e.message.private_data, "welcome", 8);
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, a, &(struct vb_cm_private){"go", 2}), 0);
    pass(r, A, VB_CM_RTU);
    assert_int_equal(event(r, B, VB_CM_EVENT_ESTABLISHED, &e), b);
    assert_memory_equal(e.message.private_data, "go", 3);
    assert_int_equal(vb_cm_state(r->cm[A], a), VB_CM_ESTABLISHED);
    assert_int_equal(vb_cm_state(r->cm[B], b), VB_CM_ESTABLISHED);
    wait_for(r, 100 * TIMEOUT_NS); // nothing happens by itself
    none(r, A);
    none(r, B);
}

static void test_disconnects(void **state)
{
    struct rig *r = *state;
    struct vb_cm_event e;
    uint32_t id[2];

    establish(r, id);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], &(struct vb_cm_private){"x", 1}),
                     0);
    pass(r, A, VB_CM_DREQ);
    event(r, B, VB_CM_EVENT_DISCONNECTED, &e);
    assert_true(e.by_peer);
    assert_memory_equal(e.message.private_data, "x", 2);
    pass(r, B, VB_CM_DREP);
    event(r, A, VB_CM_EVENT_DISCONNECTED, &e);
    assert_false(e.by_peer);
    deliver(r, A); // the same DREQ again gets the same answer
    pass(r, B, VB_CM_DREP);
    no_event(r, B);
    wait_for(r, TIMEWAIT_NS);
    event(r, A, VB_CM_EVENT_GONE, NULL);
    event(r, B, VB_CM_EVENT_GONE, NULL);
    assert_int_equal(vb_cm_in_use(r->cm[A]) + vb_cm_in_use(r->cm[B]), 0);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], NULL), -ENOENT);
    deliver(r, A); // and even of one that nobody knows
    pass(r, B, VB_CM_DREP);
}

static void test_both_disconnect(void **state)
{
    struct rig *r = *state;
    struct vb_cm_message m;
    uint32_t id[2];

    establish(r, id);
    assert_int_equal(vb_cm_disconnect(r->cm[A], r->now_ns, id[A], NULL), 0);
    assert_int_equal(vb_cm_disconnect(r->cm[B], r->now_ns, id[B], NULL), 0);
    take(r, A, VB_CM_DREQ, &m);
    take(r, B, VB_CM_DREQ, &m);
    deliver(r, A);
    deliver(r, B);
    pass(r, A, VB_CM_DREP);
    pass(r, B, VB_CM_DREP);
    event(r, A, VB_CM_EVENT_DISCONNECTED, NULL);
    event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
    no_event(r, A);
    no_event(r, B);
}

// The peer leaves for good before the program here has heard that it came.
static void test_disconnected_before_told(void **state)
{
    struct rig *r = *state;
    uint32_t id[2];

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    id[A] = connect_to(r);
    pass(r, A, VB_CM_REQ);
    id[B] = event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, id[B], &answer), 0);
    pass(r, B, VB_CM_REP);
    event(r, A, VB_CM_EVENT_REPLY, NULL);
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, id[A], NULL), 0);
    pass(r, A, VB_CM_RTU);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, id[A]), 0);
    pass(r, A, VB_CM_DREQ);
    pass(r, B, VB_CM_DREP);
    event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
    event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
}

static void test_repeats_and_gives_up(void **state)
{
    struct rig *r = *state;
    struct vb_cm_message m, first;

    uint32_t a = connect_to(r);
    take(r, A, VB_CM_REQ, &first);
    wait_for(r, TIMEOUT_NS / 8 - 1);
    none(r, A);
    wait_for(r, 1); // once in between, which does not count
    take(r, A, VB_CM_REQ, &m);
    assert_memory_equal(&m, &first, sizeof m);
    for (int i = 0; i < 3; i++) {
        wait_for(r, TIMEOUT_NS - (i == 0 ? TIMEOUT_NS / 8 : 0) - 1);
        none(r, A);
        wait_for(r, 1);
        take(r, A, VB_CM_REQ, &m);
        assert_memory_equal(&m, &first, sizeof m);
    }
    wait_for(r, TIMEOUT_NS);
    take(r, A, VB_CM_REJ, &m);
    assert_int_equal(m.rej.reason, VB_CM_TIMEOUT);
    assert_int_equal(m.rej.info_len, 8);
    assert_true(vb_get_be64(m.rej.info) == 100);
    assert_int_equal(event(r, A, VB_CM_EVENT_UNREACHABLE, NULL), a);
    assert_int_equal(event(r, A, VB_CM_EVENT_GONE, NULL), a);
    assert_int_equal(vb_cm_in_use(r->cm[A]), 0);
}

// The peer who gave up says so by its own id alone.
static void test_request_is_withdrawn(void **state)
{
    struct rig *r = *state;
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    uint32_t a = connect_to(r);
    pass(r, A, VB_CM_REQ);
    uint32_t b = event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, a), 0);
    pass(r, A, VB_CM_REJ);
    assert_int_equal(event(r, B, VB_CM_EVENT_REJECTED, &e), b);
    assert_int_equal(e.reason, VB_CM_TIMEOUT);
    event(r, B, VB_CM_EVENT_GONE, NULL);
    a = connect_to(r); // one that its program has not seen goes without a word
    pass(r, A, VB_CM_REQ);
    vb_cm_abandon(r->cm[A], r->now_ns, a);
    pass(r, A, VB_CM_REJ);
    no_event(r, B);
    assert_int_equal(vb_cm_in_use(r->cm[B]), 0);
}

static void test_lost_messages(void **state)
{
    struct rig *r = *state;
    struct vb_cm_message m;
    uint32_t id[2];

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    id[A] = connect_to(r);
    pass(r, A, VB_CM_REQ);
    deliver(r, A); // twice: one request
    id[B] = event(r, B, VB_CM_EVENT_REQUEST, NULL);
    no_event(r, B);
    none(r, B);
    vb_cm_accept(r->cm[B], r->now_ns, id[B], &answer);
    take(r, B, VB_CM_REP, &m); // lost
    deliver(r, A);             // the REQ again asks for it
    pass(r, B, VB_CM_REP);
    event(r, A, VB_CM_EVENT_REPLY, NULL);
    vb_cm_confirm(r->cm[A], r->now_ns, id[A], NULL);
    take(r, A, VB_CM_RTU, &m); // lost
    wait_for(r, TIMEOUT_NS);
    pass(r, B, VB_CM_REP);
    pass(r, A, VB_CM_RTU);
    event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
    deliver(r, A); // the RTU again is nothing
    no_event(r, B);
    none(r, B);
}

static void test_first_packet_stands_for_rtu(void **state)
{
    struct rig *r = *state;
    struct vb_cm_event e;
    uint32_t a, b;

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    a = connect_to(r);
    pass(r, A, VB_CM_REQ);
    b = event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_heard(r->cm[B], r->now_ns, b), -EINVAL);
    vb_cm_accept(r->cm[B], r->now_ns, b, &answer);
    assert_int_equal(vb_cm_heard(r->cm[B], r->now_ns, b), 0);
    event(r, B, VB_CM_EVENT_ESTABLISHED, &e);
    assert_int_equal(e.private_len, 0);
    wait_for(r, 2 * TIMEOUT_NS);
    pass(r, B, VB_CM_REP);
    none(r, B);
    (void)a;
}

static void refused(struct rig *r, uint16_t reason)
{
    struct vb_cm_event e;

    pass(r, A, VB_CM_REQ);
    pass(r, B, VB_CM_REJ);
    event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_true(e.by_peer);
    assert_int_equal(e.reason, reason);
    assert_int_equal(e.message.rej.about, VB_CM_ABOUT_REQ);
    event(r, A, VB_CM_EVENT_GONE, NULL);
}

static void test_refusals(void **state)
{
    struct rig *r = *state;
    struct vb_cm_request q = request();
    uint32_t id;

    connect_to(r);
    refused(r, VB_CM_INVALID_SERVICE);
    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 1, r), 0);
    q.transport = VB_CM_RD;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    refused(r, VB_CM_INVALID_TRANSPORT);
    q.transport = VB_CM_EXTENDED;
    q.extended_transport = VB_CM_EXTENDED_XRC;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    pass(r, A, VB_CM_REQ);
    event(r, B, VB_CM_EVENT_REQUEST, NULL); // the one that the backlog has room for
    connect_to(r);
    pass(r, A, VB_CM_REQ);
    pass(r, B, VB_CM_REJ); // of its queue pair: stale
    event(r, A, VB_CM_EVENT_REJECTED, NULL);
    q = request();
    q.mtu = 6;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), -EINVAL);
    q = request();
    q.private_data.len = 93;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), -EINVAL);
}

static void test_consumer_rejects(void **state)
{
    struct rig *r = *state;
    const struct vb_cm_refusal no = {
        .reason = VB_CM_CONSUMER, .info_len = 2, .info = {9, 8}, .private_data = {"no", 2}};
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    connect_to(r);
    pass(r, A, VB_CM_REQ);
    uint32_t b = event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_reject(r->cm[B], r->now_ns, b, &no), 0);
    assert_int_equal(vb_cm_reject(r->cm[B], r->now_ns, b, &no), -ENOENT);
    struct vb_cm_message m;
    take(r, B, VB_CM_REJ, &m); // lost
    deliver(r, A);             // a repetition hears the same, and the program is not asked again
    no_event(r, B);
    pass(r, B, VB_CM_REJ);
    event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.reason, VB_CM_CONSUMER);
    assert_int_equal(e.message.rej.info_len, 2);
    assert_int_equal(e.message.rej.info[1], 8);
    assert_memory_equal(e.message.private_data, "no", 3);
    assert_int_equal(e.private_len, 148);
    wait_for(r, 5 * TIMEOUT_NS);
    assert_int_equal(vb_cm_in_use(r->cm[B]), 0);
}

static void test_active_rejects_the_reply(void **state)
{
    struct rig *r = *state;
    const struct vb_cm_refusal no = {.reason = VB_CM_CONSUMER};
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    uint32_t a = connect_to(r);
    pass(r, A, VB_CM_REQ);
    uint32_t b = event(r, B, VB_CM_EVENT_REQUEST, NULL);
    vb_cm_accept(r->cm[B], r->now_ns, b, &answer);
    pass(r, B, VB_CM_REP);
    event(r, A, VB_CM_EVENT_REPLY, NULL);
    assert_int_equal(vb_cm_reject(r->cm[A], r->now_ns, a, &no), 0);
    pass(r, A, VB_CM_REJ);
    event(r, B, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.message.rej.about, VB_CM_ABOUT_REP);
    wait_for(r, TIMEWAIT_NS);
    assert_int_equal(event(r, B, VB_CM_EVENT_GONE, NULL), b);
}

static void test_delay(void **state)
{
    struct rig *r = *state;
    struct vb_cm_message m;

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    uint32_t a = connect_to(r);
    pass(r, A, VB_CM_REQ);
    uint32_t b = event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_delay(r->cm[B], r->now_ns, b, 13), 0);
    pass(r, B, VB_CM_MRA);
    assert_int_equal(vb_cm_state(r->cm[A], a), VB_CM_MRA_REQ_RCVD);
    wait_for(r, 7 * TIMEOUT_NS); // without it the REQ would be repeated
    none(r, A);
    wait_for(r, 2 * TIMEOUT_NS);
    take(r, A, VB_CM_REQ, &m);
    deliver(r, A);
    pass(r, B, VB_CM_MRA);
    vb_cm_accept(r->cm[B], r->now_ns, b, &answer);
    pass(r, B, VB_CM_REP);
    event(r, A, VB_CM_EVENT_REPLY, NULL);
    assert_int_equal(vb_cm_delay(r->cm[A], r->now_ns, a, 13), 0);
    pass(r, A, VB_CM_MRA);
    assert_int_equal(vb_cm_state(r->cm[B], b), VB_CM_MRA_REP_RCVD);
    wait_for(r, 7 * TIMEOUT_NS);
    none(r, B);
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, a, NULL), 0);
    pass(r, A, VB_CM_RTU);
    event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
}

// Messages with wrong ids, of others or in a wrong state change nothing.
static void test_strangers(void **state)
{
    static const enum vb_cm_kind kinds[] = {VB_CM_REP,  VB_CM_RTU,  VB_CM_MRA, VB_CM_REJ,
                                            VB_CM_DREQ, VB_CM_DREP, VB_CM_LAP, VB_CM_APR};
    struct rig *r = *state;
    uint32_t id[2];
    uint8_t mad[VB_MAD_BYTES];
    const struct vb_ip other = {{[10] = 0xff, 0xff, 10, 0, 0, 9}};

    establish(r, id);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct vb_cm_message m = {.kind = kinds[i], .local_id = id[B], .remote_id = id[A]};
        if (kinds[i] == VB_CM_DREQ)
            m.dreq.remote_qpn = QPN_A;
        vb_cm_encode(&m, mad);
        vb_cm_input(r->cm[A], r->now_ns, &other, mad, sizeof mad); // another address
        m.local_id++;
        forge(r, A, &m); // another id of the peer's
        m.local_id--;
        m.remote_id++;
        forge(r, A, &m); // another id of ours
        assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_ESTABLISHED);
    }
    struct vb_cm_message dreq = {.kind = VB_CM_DREQ, .local_id = id[B], .remote_id = id[A]};
    forge(r, A, &dreq); // without the queue pair's number
    assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_ESTABLISHED);
    no_event(r, A);
    dreq.dreq.remote_qpn = QPN_A;
    forge(r, A, &dreq);
    assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_TIMEWAIT);
    vb_cm_input(r->cm[A], r->now_ns, &ip[B], mad, 12);
    assert_true(vb_cm_stats(r->cm[A])->malformed == 1);
}

// A REJ that another answer has overtaken does not end what stands.
static void test_old_refusal(void **state)
{
    struct rig *r = *state;
    uint32_t id[2];

    establish(r, id);
    const struct vb_cm_message old = {
        .kind = VB_CM_REJ, .remote_id = id[A], .rej = {.reason = VB_CM_NO_RESOURCES}};
    forge(r, A, &old);
    assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_ESTABLISHED);
    struct vb_cm_message now = old;
    now.local_id = id[B];
    forge(r, A, &now);
    assert_int_equal(vb_cm_state(r->cm[A], id[A]), VB_CM_TIMEWAIT);
    event(r, A, VB_CM_EVENT_DISCONNECTED, NULL);
}

static void test_unknown_reply_is_refused(void **state)
{
    struct rig *r = *state;
    struct vb_cm_message m;
    const struct vb_cm_message rep = {.kind = VB_CM_REP, .local_id = 5, .remote_id = 77};

    forge(r, A, &rep);
    take(r, A, VB_CM_REJ, &m);
    assert_int_equal(m.rej.reason, VB_CM_INVALID_ID);
    assert_int_equal(m.remote_id, 5);
    assert_int_equal(m.local_id, 77);
}

// The peer has lost its memory and begins anew with the same queue pair.
static void test_stale(void **state)
{
    struct rig *r = *state;
    struct vb_cm_event e;
    uint32_t id[2];

    establish(r, id);
    vb_cm_destroy(r->cm[A]);
    const struct vb_cm_opts opts = {
        .seed = {9, 9}, .local = ip[A], .timeout = 10, .retries = 3, .packet_life = 4};
    r->cm[A] = vb_cm_create(&opts);
    connect_to(r);
    pass(r, A, VB_CM_REQ);
    pass(r, B, VB_CM_DREQ); // which the new one knows nothing of, and grants
    pass(r, A, VB_CM_DREP);
    event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
    pass(r, B, VB_CM_REJ);
    event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.reason, VB_CM_STALE);
    event(r, A, VB_CM_EVENT_GONE, NULL);
    wait_for(r, TIMEWAIT_NS);
    event(r, B, VB_CM_EVENT_GONE, NULL);
    connect_to(r);
    pass(r, A, VB_CM_REQ);
    event(r, B, VB_CM_EVENT_REQUEST, NULL);
}

static void test_flood(void **state)
{
    struct rig *r = *state;
    struct vb_cm_message m, req;
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 3, r), 0);
    connect_to(r);
    take(r, A, VB_CM_REQ, &req);
    for (uint32_t i = 0; i < 100; i++) {
        req.local_id = 1000 + i;
        req.req.qpn = 100 + i;
        forge(r, B, &req);
        if (i >= 3) {
            take(r, B, VB_CM_REJ, &m);
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
        forge(r, B, &req);
        none(r, B);
    }
    assert_int_equal(vb_cm_in_use(r->cm[B]), 8);
}

static void test_no_room(void **state)
{
    struct rig *r = *state;
    struct vb_cm_request q = request();
    uint32_t id;

    for (int i = 0; i < 8; i++)
        connect_to(r);
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), -ENOBUFS);
    for (int i = 0; i < 3; i++)
        wait_for(r, TIMEOUT_NS); // 32 messages for an outbox of 16
    assert_true(vb_cm_stats(r->cm[A])->overflowed > 0);
    assert_true(vb_cm_is_sane(r->cm[A]));
}

static void test_listeners(void **state)
{
    struct rig *r = *state;
    struct vb_cm_event e;

    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, ~0xffffull, 0, r), 0); // all ports
    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE + 1, 0, 0, r), -EADDRINUSE);
    assert_int_equal(vb_cm_listen(r->cm[B], 0x01110001, 0, 0, r), 0);
    assert_int_equal(vb_cm_unlisten(r->cm[B], r->now_ns, SERVICE, 0), -ENOENT);
    connect_to(r);
    pass(r, A, VB_CM_REQ);
    assert_int_equal(vb_cm_unlisten(r->cm[B], r->now_ns, SERVICE, ~0xffffull), 0);
    no_event(r, B);
    pass(r, B, VB_CM_REJ); // who waits for an answer has one
    event(r, A, VB_CM_EVENT_REJECTED, &e);
    assert_int_equal(e.reason, VB_CM_CONSUMER);
    for (uint64_t i = 0; i < 63; i++)
        assert_int_equal(vb_cm_listen(r->cm[B], i, 0, 0, r), 0);
    assert_int_equal(vb_cm_listen(r->cm[B], 1000, 0, 0, r), -ENOSPC);
}

static void test_sidr(void **state)
{
    struct rig *r = *state;
    const struct vb_cm_lookup lookup = {
        .peer = ip[B], .service_id = SERVICE, .private_data = {"who", 3}};
    const struct vb_cm_found found = {.qpn = 0x77, .qkey = 0x01234567, .private_data = {"me", 2}};
    struct vb_cm_event e;
    struct vb_cm_message m;
    uint32_t id;

    assert_int_equal(vb_cm_sidr_ask(r->cm[A], r->now_ns, &lookup, &id), 0);
    pass(r, A, VB_CM_SIDR_REQ);
    pass(r, B, VB_CM_SIDR_REP);
    event(r, A, VB_CM_EVENT_SIDR_REPLY, &e);
    assert_int_equal(e.message.sidr_rep.status, VB_SIDR_UNSUPPORTED);
    event(r, A, VB_CM_EVENT_GONE, NULL);
    assert_int_equal(vb_cm_listen(r->cm[B], SERVICE, 0, 0, r), 0);
    assert_int_equal(vb_cm_sidr_ask(r->cm[A], r->now_ns, &lookup, &id), 0);
    pass(r, A, VB_CM_SIDR_REQ);
    deliver(r, A);
    uint32_t b = event(r, B, VB_CM_EVENT_SIDR_REQUEST, &e);
    assert_memory_equal(e.message.private_data, "who", 4);
    no_event(r, B);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, b, &answer), -EINVAL);
    assert_int_equal(vb_cm_sidr_reply(r->cm[B], r->now_ns, b, &found), 0);
    take(r, B, VB_CM_SIDR_REP, &m); // lost
    wait_for(r, TIMEOUT_NS);
    pass(r, A, VB_CM_SIDR_REQ);
    pass(r, B, VB_CM_SIDR_REP);
    assert_int_equal(event(r, A, VB_CM_EVENT_SIDR_REPLY, &e), id);
    assert_int_equal(e.message.sidr_rep.qpn, 0x77);
    assert_int_equal(e.message.sidr_rep.qkey, 0x01234567);
    assert_memory_equal(e.message.private_data, "me", 3);
    deliver(r, B);
    event(r, A, VB_CM_EVENT_GONE, NULL);
    no_event(r, A);
}

static void test_lap_is_refused(void **state)
{
    struct rig *r = *state;
    struct vb_cm_message m;
    uint32_t id[2];

    establish(r, id);
    struct vb_cm_message lap = {.kind = VB_CM_LAP, .local_id = id[A], .remote_id = id[B]};
    forge(r, B, &lap);
    take(r, B, VB_CM_APR, &m);
    assert_int_equal(m.apr.status, VB_APR_UNSUPPORTED);
    lap.remote_id++;
    forge(r, B, &lap);
    take(r, B, VB_CM_APR, &m);
    assert_int_equal(m.apr.status, VB_APR_INVALID_ID);
}

static void test_ids(void **state)
{
    struct vb_cm_opts opts = {
        .seed = {3, 4}, .connections = 2000, .id_prefix = 0x5a5, .id_prefix_bits = 12};
    struct vb_cm *cm = vb_cm_create(&opts);
    struct vb_cm_request q = request();
    uint32_t id, before = 0, near = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(vb_cm_connect(cm, 0, &q, &id), 0);
        assert_int_equal(id >> 20, 0x5a5);
        near += id - before < 256;
        before = id;
    }
    assert_true(near < 20); // no counting
    assert_true(vb_cm_is_sane(cm));
    vb_cm_destroy(cm);
    opts.id_prefix = 0x1000;
    assert_null(vb_cm_create(&opts));
}

static void test_abandon(void **state)
{
    struct rig *r = *state;
    uint32_t id[2];

    establish(r, id);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, id[A]), 0);
    assert_int_equal(vb_cm_abandon(r->cm[A], r->now_ns, id[A]), -ENOENT);
    pass(r, A, VB_CM_DREQ);
    event(r, B, VB_CM_EVENT_DISCONNECTED, NULL);
    pass(r, B, VB_CM_DREP);
    wait_for(r, TIMEWAIT_NS);
    no_event(r, A);
    assert_int_equal(vb_cm_in_use(r->cm[A]), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_connects),
        T(test_disconnects),
        T(test_both_disconnect),
        T(test_disconnected_before_told),
        T(test_repeats_and_gives_up),
        T(test_request_is_withdrawn),
        T(test_lost_messages),
        T(test_first_packet_stands_for_rtu),
        T(test_refusals),
        T(test_consumer_rejects),
        T(test_active_rejects_the_reply),
        T(test_delay),
        T(test_strangers),
        T(test_old_refusal),
        T(test_unknown_reply_is_refused),
        T(test_stale),
        T(test_flood),
        T(test_no_room),
        T(test_listeners),
        T(test_other_addresses),
        T(test_refusals_at_other_addresses),
        T(test_sidr),
        T(test_lap_is_refused),
        T(test_ids),
        T(test_abandon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
