// SPDX-License-Identifier: Apache-2.0
// Two communication managers in a random walk of calls, lost, repeated, spoiled and forged messages
// and passing time: every message, event, result, deadline, fact and count is what it was, by a
// digest for each walk. On a mismatch it prints the new ones.
#include "base/prng.h"
#include "cm/cma.h"
#include "cm/facts.h"
#include "cm_rig.h"
#include "sim/cm_sane.h"
#include "sim/digest.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    STEPS = 100000,
    IDS = 5,     // remembered of each side
    WAITING = 8, // messages on their way to each side
    WALKS = 10,
    FACTS = 20 + 3, // as many as a manager of the rig can have
};

struct walk {
    struct cm_rig *r;
    struct vb_prng prng;
    struct vb_digest d;
    uint32_t id[2][IDS], ids[2];
    uint8_t mad[2][WAITING][VB_MAD_BYTES];
    uint32_t waiting[2];
};

static uint64_t below(struct walk *w, uint64_t n)
{
    return vb_prng_below(&w->prng, n);
}

static void note(struct walk *w, int64_t value)
{
    vb_digest_add(&w->d, (uint64_t)value);
}

static void note_address(struct walk *w, const struct vb_ip *ip)
{
    note(w, (int64_t)vb_digest_bytes(ip->b, sizeof ip->b));
}

static void remember(struct walk *w, int who, uint32_t id)
{
    w->id[who][w->ids[who]++ % IDS] = id;
}

static uint32_t some_id(struct walk *w, int who)
{
    return below(w, 30) ? w->id[who][below(w, IDS)] : (uint32_t)vb_prng_next(&w->prng);
}

static struct vb_cm_private some_bytes(struct walk *w, uint32_t max)
{
    static const uint8_t bytes[256] = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233};
    return (struct vb_cm_private){bytes, (uint32_t)below(w, max + 2)};
}

static void ask(struct walk *w, int who)
{
    struct vb_cm_request q = cm_request();
    struct vb_cm_lookup l = {.peer = cm_ip[!who], .service_id = CM_SERVICE + below(w, 3)};
    uint32_t id = 0;
    int err;

    if (below(w, 3)) {
        q.peer = cm_ip[!who];
        q.service_id = CM_SERVICE + below(w, 3);
        q.qpn = CM_QPN_A + (uint32_t)below(w, 6);
        q.private_data = some_bytes(w, 92);
        q.retries = (uint8_t)below(w, 9);
        q.rnr_retries = (uint8_t)below(w, 9);
        q.ack_timeout = (uint8_t)below(w, 33);
        q.mtu = (uint8_t)below(w, 7);
        q.transport = (uint8_t)below(w, 5);
        q.extended_transport = VB_CM_EXTENDED_XRC;
        q.hop_limit = (uint8_t)below(w, 4);
        q.psn = (uint32_t)(0xffff80 + below(w, 0x81));
        err = vb_cm_connect(w->r->cm[who], w->r->now_ns, &q, &id);
    } else {
        l.private_data = some_bytes(w, 216);
        err = vb_cm_sidr_ask(w->r->cm[who], w->r->now_ns, &l, &id);
    }
    note(w, err);
    note(w, id);
    if (err == 0)
        remember(w, who, id);
}

static int answer(struct walk *w, int who, struct vb_cm *cm, uint32_t id)
{
    uint64_t now_ns = w->r->now_ns;
    struct vb_cm_answer a = cm_answer;
    struct vb_cm_refusal no = {.reason = (uint16_t)(1 + below(w, 33))};
    uint32_t found_qpn = below(w, 8) ? 0x77 : (uint32_t)(0xffffff + below(w, 2));
    struct vb_cm_found found = {.status = VB_SIDR_OK, .qpn = found_qpn, .qkey = 5};
    struct vb_cm_private p = some_bytes(w, 224);

    switch (below(w, 8)) {
    case 0:
    case 1:
        a.qpn = CM_QPN_B + (uint32_t)below(w, 6);
        a.rnr_retries = (uint8_t)below(w, 9);
        a.psn = (uint32_t)(0xffff80 + below(w, 0x81));
        a.private_data = some_bytes(w, 196);
        return vb_cm_accept(cm, now_ns, id, &a);
    case 2: return vb_cm_confirm(cm, now_ns, id, below(w, 2) ? &p : NULL);
    case 3:
        no.info_len = (uint8_t)below(w, VB_CM_INFO_MAX + 2);
        no.private_data = some_bytes(w, 148);
        return below(w, 3) ? vb_cm_confirm(cm, now_ns, id, NULL)
                           : vb_cm_reject(cm, now_ns, id, &no);
    case 4: return vb_cm_delay(cm, now_ns, id, (uint8_t)below(w, 14));
    case 5:
        if (below(w, 2))
            return vb_cm_heard(cm, now_ns, id);
        vb_cm_heard_on(cm, now_ns, (who ? CM_QPN_B : CM_QPN_A) + (uint32_t)below(w, 6));
        return 0;
    case 6: return below(w, 3) ? 0 : vb_cm_disconnect(cm, now_ns, id, below(w, 2) ? &p : NULL);
    default:
        found.private_data = some_bytes(w, 136);
        return below(w, 20) ? vb_cm_sidr_reply(cm, now_ns, id, &found)
                            : vb_cm_abandon(cm, now_ns, id);
    }
}

static void listen_or_not(struct walk *w, int who)
{
    uint64_t service = CM_SERVICE + below(w, 3), mask = below(w, 4) ? 0 : ~(uint64_t)1;

    if (below(w, 3))
        note(w, vb_cm_listen(w->r->cm[who], service, mask, (uint32_t)below(w, 3), w->r));
    else
        note(w, vb_cm_unlisten(w->r->cm[who], w->r->now_ns, service, mask));
}

static void collect(struct walk *w, int who)
{
    struct vb_cm *cm = w->r->cm[who];
    struct vb_cm_event e;
    struct vb_ip from, to;

    while (w->waiting[!who] < WAITING &&
           vb_cm_take_message_from(cm, &from, &to, w->mad[!who][w->waiting[!who]])) {
        note(w, (int64_t)vb_digest_bytes(w->mad[!who][w->waiting[!who]], VB_MAD_BYTES));
        note_address(w, &from);
        note_address(w, &to);
        w->waiting[!who] += vb_ip_equal(&to, &cm_ip[!who]);
    }
    for (uint64_t n = below(w, 3); n > 0 && vb_cm_take_event(cm, &e); n--) {
        note(w, e.kind);
        note(w, e.id);
        note(w, e.by_peer << 16 | e.reason);
        note(w, e.private_len);
        note(w, e.listener == w->r);
        note_address(w, &e.peer);
        note_address(w, &e.local);
        if (e.private_len)
            note(w, (int64_t)vb_digest_bytes(e.message.private_data, e.private_len));
        if (e.kind == VB_CM_EVENT_REQUEST || e.kind == VB_CM_EVENT_SIDR_REQUEST)
            remember(w, who, e.id);
    }
    note(w, vb_cm_in_use(cm));
}

// The oldest message comes, is lost, comes twice, comes late or is spoiled.
static void deliver(struct walk *w, int to)
{
    uint64_t fate = below(w, 20), at = fate == 0 ? below(w, WAITING) : 0;
    uint8_t *mad = w->mad[to][at];

    if (at >= w->waiting[to])
        return;
    if (fate == 1)
        mad[below(w, VB_MAD_BYTES)] ^= (uint8_t)(1u << below(w, 8));
    if (fate != 2)
        vb_cm_input(w->r->cm[to], w->r->now_ns, &cm_ip[!to], mad,
                    fate == 3 ? below(w, VB_MAD_BYTES) : VB_MAD_BYTES);
    assert_true(vb_cmsane(w->r->cm[to]));
    if (fate < 4 || fate > 6) {
        memmove(mad, mad + VB_MAD_BYTES, (w->waiting[to] - at - 1) * VB_MAD_BYTES);
        w->waiting[to]--;
    }
}

// ---- messages that no manager sent

static const struct vb_ip third = {{[10] = 0xff, 0xff, 10, 0, 0, 3}};

// An address that a REQ may name as the receiver's.
static const struct vb_ip *some_address(struct walk *w, int to)
{
    return below(w, 8) ? &cm_ip[to] : &third;
}

static void form_req(struct walk *w, int to, struct vb_cm_req *q)
{
    q->service_id = CM_SERVICE + below(w, 3);
    q->ca_guid = below(w, 100);
    q->qpn = CM_QPN_A + (uint32_t)below(w, 8);
    q->transport = (uint8_t)below(w, 4);
    q->extended_transport = (uint8_t)below(w, 3);
    q->mtu = (uint8_t)below(w, 8);
    q->local_timeout = (uint8_t)below(w, 32);
    q->max_cm_retries = (uint8_t)below(w, 16);
    memcpy(q->primary.remote_gid, some_address(w, to)->b, 16);
    q->alternate.local_lid = below(w, 4) == 0;
    q->alternate.local_gid[0] = below(w, 4) == 0;
}

// Of any kind, with numbers that mostly are somebody's.
static void form(struct walk *w, int to, struct vb_cm_message *m)
{
    *m = (struct vb_cm_message){.tid = below(w, 1000)};
    m->kind = (enum vb_cm_kind)(VB_CM_KIND_FIRST + below(w, VB_CM_KINDS));
    m->local_id = below(w, 4) ? some_id(w, !to) : (uint32_t)below(w, 8);
    m->remote_id = below(w, 8) ? some_id(w, to) : 0;
    switch (m->kind) {
    case VB_CM_REQ: form_req(w, to, &m->req); break;
    case VB_CM_MRA:
        m->mra.about = (uint8_t)below(w, 3);
        m->mra.service_timeout = (uint8_t)below(w, 32);
        break;
    case VB_CM_REJ: m->rej.reason = (uint16_t)(below(w, 2) ? VB_CM_TIMEOUT : below(w, 34)); break;
    case VB_CM_REP:
        m->rep.qpn = CM_QPN_A + (uint32_t)below(w, 32);
        m->rep.ca_guid = below(w, 100);
        break;
    case VB_CM_DREQ: m->dreq.remote_qpn = CM_QPN_A + (uint32_t)below(w, 32); break;
    case VB_CM_SIDR_REQ: m->sidr_req.service_id = CM_SERVICE + below(w, 3); break;
    case VB_CM_SIDR_REP:
        m->local_id = some_id(w, to);
        m->sidr_rep.qpn = (uint32_t)below(w, 100);
        break;
    default: break;
    }
    const struct vb_cma_header h = {(uint16_t)below(w, 100), cm_ip[!to], cm_ip[to]};
    vb_cma_encode(&h, m->private_data);
    m->private_data[0] = below(w, 8) == 0;
}

static void forge(struct walk *w, int to)
{
    struct vb_cm_message m;
    uint8_t mad[VB_MAD_BYTES];

    form(w, to, &m);
    vb_cm_encode(&m, mad);
    const struct vb_ip *from = some_address(w, !to), *at = some_address(w, to);
    vb_cm_input_at(w->r->cm[to], w->r->now_ns, from, at, mad, sizeof mad);
}

// ---- what is compared

static void note_facts(struct walk *w, int who)
{
    struct vb_cm_facts f[FACTS];
    uint32_t at = 0, count = vb_cm_facts(w->r->cm[who], &at, f, FACTS);

    for (uint32_t i = 0; i < count; i++) {
        note(w, (int64_t)f[i].number << 32 | f[i].state << 8 | f[i].listens << 2 |
                    f[i].active << 1 | f[i].sidr);
        note(w, (int64_t)((uint64_t)f[i].id << 32 | f[i].peer_id));
        note(w, (int64_t)((uint64_t)f[i].qpn << 32 | f[i].peer_qpn));
        note(w, (int64_t)f[i].service_id);
        note(w, f[i].transport << 16 | f[i].port);
        note(w, f[i].peer_port);
        note_address(w, &f[i].local);
        note_address(w, &f[i].peer);
        note(w, vb_cm_state(w->r->cm[who], f[i].id));
    }
}

static void note_stats(struct walk *w, int who)
{
    const struct vb_cm_stats *s = vb_cm_stats(w->r->cm[who]);

    for (int i = 0; i < VB_CM_KINDS; i++)
        note(w, (int64_t)(s->received[i] << 32 | s->sent[i]));
    note(w, (int64_t)(s->malformed << 32 | s->stray));
    note(w, (int64_t)(s->duplicate << 32 | s->refused));
    note(w, (int64_t)s->overflowed);
    note(w, (int64_t)(s->retried << 32 | s->timed_out));
}

// Every kind of message was taken by somebody.
static void expect_all_kinds(const struct cm_rig *r)
{
    for (int i = 0; i < VB_CM_KINDS; i++) {
        uint64_t taken = vb_cm_stats(r->cm[A])->received[i] + vb_cm_stats(r->cm[B])->received[i];
        enum vb_cm_kind kind = (enum vb_cm_kind)(VB_CM_KIND_FIRST + i);
        if (taken < 20)
            fail_msg("only %" PRIu64 " messages of kind %s", taken, vb_cm_kind_text(kind));
    }
}

// Some walks are between managers with few listeners and with ids of their own range.
static struct vb_cm *make(int who, uint64_t seed)
{
    const struct vb_cm_opts opts = {.seed = {seed, (uint64_t)who},
                                    .local = cm_ip[who],
                                    .ca_guid = 100u + (uint64_t)who,
                                    .connections = seed % 4 == 1 ? 20 : 8,
                                    .listeners = seed % 4 == 2 ? 1 : 3,
                                    .outbox = 16,
                                    .id_prefix = seed % 3 ? 0 : 5u + (uint32_t)who,
                                    .id_prefix_bits = seed % 3 ? 0 : 4,
                                    .timeout = 10,
                                    .retries = 3,
                                    .packet_life = 4};
    return vb_cm_create(&opts);
}

static uint64_t walk(uint64_t seed, bool forges, struct cm_rig *r)
{
    static struct walk w;

    w = (struct walk){.r = r, .prng = {.state = seed}, .d = {seed}};
    for (uint32_t i = 0; i < STEPS; i++) {
        int who = (int)below(&w, 2);
        switch (below(&w, forges ? 13 : 10)) {
        case 0: ask(&w, who); break;
        case 1: listen_or_not(&w, who); break;
        case 2:
            r->now_ns += below(&w, below(&w, 4) ? CM_TIMEWAIT_NS : 2 * CM_TIMEOUT_NS);
            note(&w, (int64_t)vb_cm_poll(r->cm[who], r->now_ns));
            break;
        case 3:
        case 4:
        case 5: deliver(&w, who); break;
        case 10:
        case 11: forge(&w, who); break;
        case 12: note_facts(&w, who); break;
        default: note(&w, answer(&w, who, r->cm[who], some_id(&w, who))); break;
        }
        collect(&w, who);
        assert_true(vb_cmsane(r->cm[who]));
    }
    note_stats(&w, A);
    note_stats(&w, B);
    if (forges)
        expect_all_kinds(r);
    return w.d.value;
}

static void test_walks(void **state)
{
    static const uint64_t expected[WALKS] = {
        0x38a48026294b8c16, 0x9156bb5bd3555f51, 0x95dbaf38885356ce, 0xad6c13a947c5c270,
        0x673b231d5c0fac90, 0xae46ddf2d4554626, 0x4b0eaeacc6d16ab1, 0xcd715ad6e0d11cea,
        0xcab943ef83cab5ef, 0xa905e14e3727e787};
    uint32_t wrong = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= WALKS; seed++) {
        struct cm_rig rig = {.cm = {make(A, seed), make(B, seed)}, .now_ns = 1000};
        assert_true(rig.cm[A] && rig.cm[B]);
        uint64_t now = walk(seed, seed % 2, &rig);
        if (now != expected[seed - 1] && ++wrong)
            print_error("walk %" PRIu64 ": 0x%016" PRIx64 "\n", seed, now);
        vb_cm_destroy(rig.cm[A]);
        vb_cm_destroy(rig.cm[B]);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
