// SPDX-License-Identifier: Apache-2.0
// Two communication managers in a random walk of calls, lost, repeated and spoiled messages and
// passing time: every message, event, result, deadline and count is what it was, by a digest for
// each walk. On a mismatch it prints the new ones.
#include "base/prng.h"
#include "cm_rig.h"
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
    WALKS = 4,
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
        q.retries = (uint8_t)below(w, 8);
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
    struct vb_cm_refusal no = {.reason = (uint16_t)(1 + below(w, 33)),
                               .info_len = (uint8_t)below(w, VB_CM_INFO_MAX + 2)};
    struct vb_cm_found found = {.status = VB_SIDR_OK, .qpn = 0x77, .qkey = 5};
    struct vb_cm_private p = some_bytes(w, 224);

    switch (below(w, 8)) {
    case 0:
    case 1:
        a.qpn = CM_QPN_B + (uint32_t)below(w, 6);
        a.private_data = some_bytes(w, 196);
        return vb_cm_accept(cm, now_ns, id, &a);
    case 2: return vb_cm_confirm(cm, now_ns, id, below(w, 2) ? &p : NULL);
    case 3:
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
    struct vb_ip to;

    while (w->waiting[!who] < WAITING &&
           vb_cm_take_message(cm, &to, w->mad[!who][w->waiting[!who]])) {
        note(w, (int64_t)vb_digest_bytes(w->mad[!who][w->waiting[!who]], VB_MAD_BYTES));
        w->waiting[!who]++;
    }
    for (uint64_t n = below(w, 3); n > 0 && vb_cm_take_event(cm, &e); n--) {
        note(w, e.kind);
        note(w, e.id);
        note(w, e.by_peer << 16 | e.reason);
        note(w, e.private_len);
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
    assert_true(vb_cm_is_sane(w->r->cm[to]));
    if (fate < 4 || fate > 6) {
        memmove(mad, mad + VB_MAD_BYTES, (w->waiting[to] - at - 1) * VB_MAD_BYTES);
        w->waiting[to]--;
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
        if (kind != VB_CM_LAP && kind != VB_CM_APR && taken < 20) // which nobody sends
            fail_msg("only %" PRIu64 " messages of kind %s", taken, vb_cm_kind_text(kind));
    }
}

static uint64_t walk(uint64_t seed, struct cm_rig *r)
{
    static struct walk w;

    w = (struct walk){.r = r, .prng = {.state = seed}, .d = {seed}};
    for (uint32_t i = 0; i < STEPS; i++) {
        int who = (int)below(&w, 2);
        switch (below(&w, 10)) {
        case 0: ask(&w, who); break;
        case 1: listen_or_not(&w, who); break;
        case 2:
            r->now_ns += below(&w, below(&w, 4) ? CM_TIMEWAIT_NS : 2 * CM_TIMEOUT_NS);
            note(&w, (int64_t)vb_cm_poll(r->cm[who], r->now_ns));
            break;
        case 3:
        case 4:
        case 5: deliver(&w, who); break;
        default: note(&w, answer(&w, who, r->cm[who], some_id(&w, who))); break;
        }
        collect(&w, who);
        assert_true(vb_cm_is_sane(r->cm[who]));
    }
    note_stats(&w, A);
    note_stats(&w, B);
    expect_all_kinds(r);
    return w.d.value;
}

static void test_walks(void **state)
{
    static const uint64_t expected[WALKS] = {0x9847ae329766aca0, 0xf21be52fada588dc,
                                             0x04cab29a899166eb, 0x6b938e3a3fdc05e4};
    uint32_t wrong = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= WALKS; seed++) {
        void *rig = NULL;
        assert_int_equal(cm_open(&rig), 0);
        uint64_t now = walk(seed, rig);
        if (now != expected[seed - 1] && ++wrong)
            print_error("walk %" PRIu64 ": 0x%016" PRIx64 "\n", seed, now);
        cm_close(&rig);
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
