// SPDX-License-Identifier: Apache-2.0
// The watch over turns. It counts each tenant's work from the records of steps, at the prices of
// docs/hull.md, and takes nothing from the shares. It judges how work is divided, how long turns
// are and in which order they come, and when the run is over, that a share was billed for the work
// that the watch has counted. sim/TURNS.md derives the bounds.
#include "nic/wr.h"
#include "sim/tenant_world.h"
#include "wire/opcode.h"

#include <stdarg.h>
#include <stdio.h>

enum {
    UNIT = 256, // one unit of work, and the bytes that cost one
    ROUND = 512 * UNIT,
    TURN = 4 * UNIT,
    FRAME = 8 * UNIT,
    ICRC_BYTES = 4,
    SLICE_UNITS = 64,     // of frames
    FRAME_UNITS = 8 + 16, // a frame of 4 KB
    TURN_LENGTH = 4,      // packets, completions and entries of a turn beside others,
    EARLY_LENGTH = 1,     // and of one before the line
    FETCH_BLOCKS = 16,    // of a turn; the long entry that exceeds them ends it
    // The longest turn beside others: 4 packets of 16 pieces, 16 entries fetched ahead, of which
    // one has 15 blocks more than the others.
    TURN_MAX = TURN + 4 * (FRAME + 4096 + ICRC_BYTES + 60 + 15 * UNIT + UNIT) + (16 + 15) * UNIT,
};

__attribute__((format(printf, 2, 3))) static void violate(struct vb_tenantworld *w,
                                                          const char *format, ...)
{
    va_list args;

    w->violated = true;
    va_start(args, format);
    vsnprintf(w->violation, sizeof w->violation, format, args);
    va_end(args);
}

// ---- the count

static struct vb_tenant_book *book_of(struct vb_tenant *t, uint32_t qpn, uint32_t *i)
{
    for (*i = 0; *i < t->work.qps; ++*i)
        if (t->qp[*i].qpn == qpn)
            return &t->book[*i];
    return NULL;
}

static uint64_t frame_work(const struct vb_step *s)
{
    uint64_t payload = (s->bytes + 3u) & ~3u;
    uint64_t pieces = s->touches > 1 ? s->touches - 1 : 0;

    return FRAME + vb_opcode_table[s->opcode].header_bytes + payload + ICRC_BYTES + pieces * UNIT;
}

static uint64_t fetch_work(struct vb_tenant_book *b, const struct vb_step *s)
{
    b->fetched = s->counter + s->blocks;
    return s->blocks * UNIT;
}

static uint64_t complete_work(struct vb_tenant_book *b, const struct vb_step *s, bool loops)
{
    if (s->detail == VB_SYN_FLUSH && s->counter >= b->fetched) {
        b->fetched = s->counter + 1;
        return 2 * UNIT; // it was never fetched: of its blocks, only the first is read
    }
    return loops && s->detail == 0 ? 0 : UNIT;
}

// An entry without a packet. One that cannot be executed costs its completion only.
static uint32_t entry_length(const struct vb_step *s, bool loops)
{
    return loops ? 1 + s->bytes / UNIT : s->detail == 0 && vb_wqe_is_local(s->opcode);
}

static uint64_t step_work(struct vb_tenant_book *b, const struct vb_step *s, bool loops)
{
    switch (s->kind) {
    case VB_STEP_FRAME_OUT: return frame_work(s);
    case VB_STEP_FETCH: return fetch_work(b, s);
    case VB_STEP_EXEC: b->executed = s->counter + 1; return entry_length(s, loops) * UNIT;
    case VB_STEP_COMPLETE: return complete_work(b, s, loops);
    default: return 0;
    }
}

// ---- the length of turns

// What a step adds to the length of its turn.
static uint32_t step_length(const struct vb_step *s, bool loops)
{
    switch (s->kind) {
    case VB_STEP_FRAME_OUT: return 1;
    case VB_STEP_EXEC: return entry_length(s, loops);
    case VB_STEP_COMPLETE: return !loops || s->detail != 0;
    default: return 0;
    }
}

// The dearest turn of the tenant so far, with what had come in for it, and less than a unit of
// bytes of each queue pair that its bill may leave for the next.
static uint64_t dearest_turn(const struct vb_tenant *t)
{
    return TURN + t->watch.turn_max + t->watch.incoming_max + t->work.qps * UNIT;
}

// A turn in the line. Since the last one, but for those of the same visit, the line has been at
// every other tenant with work, and has left none before its part was used.
static void be_in_line(struct vb_tenantworld *w, struct vb_tenant *t)
{
    struct vb_tenant_watch *watch = &t->watch;

    for (uint32_t i = 0; i < w->opts.tenants && !watch->turn_in_line; i++) {
        const struct vb_tenant *other = &w->tenant[i];
        uint64_t part = (uint64_t)ROUND * other->weight / VB_SHARE_WEIGHT;
        uint64_t got = other->watch.work + other->watch.incoming - watch->line_work[i];
        uint64_t slack = dearest_turn(other);
        bool throughout =
            other->watch.waits && watch->line_work[i] > other->watch.since + 2 * (part + slack);
        if (other != t && throughout && watch->line_turns[i] != other->watch.turns &&
            got + slack < part)
            violate(w, "tenant %u had a part of %.0f units and got %.0f between two visits of %u",
                    i, (double)part / UNIT, (double)got / UNIT, (uint32_t)(t - w->tenant));
        watch->line_work[i] = other->watch.work;
        watch->line_turns[i] = other->watch.turns;
    }
    watch->turn_in_line = true;
}

static void go_on(struct vb_tenantworld *w, struct vb_tenant *t, const struct vb_step *s,
                  uint64_t work)
{
    struct vb_tenant_watch *watch = &t->watch;
    uint32_t i;

    if (!book_of(t, s->qpn, &i))
        return;
    watch->turn_work += work;
    if (watch->turn_work > watch->turn_max)
        watch->turn_max = watch->turn_work;
    if (watch->turn_length >= TURN_LENGTH)
        violate(w, "queue pair 0x%x goes on after %u packets, completions and entries of a turn",
                s->qpn, watch->turn_length);
    else if (watch->turn_qpn && watch->turn_qpn != s->qpn)
        violate(w, "queue pair 0x%x has a step in a turn of 0x%x", s->qpn, watch->turn_qpn);
    else if (watch->turn_is_full)
        violate(w, "queue pair 0x%x goes on after %u blocks of a turn", s->qpn, watch->turn_blocks);
    else if (watch->turn_work + TURN > TURN_MAX)
        violate(w, "a turn of queue pair 0x%x has cost %.1f units", s->qpn,
                (double)(watch->turn_work + TURN) / UNIT);
    if (watch->turn_length >= EARLY_LENGTH && !vb_tenant_loops(t->work.kind, i))
        be_in_line(w, t);
    watch->turn_qpn = s->qpn;
    watch->turn_ns = w->now_ns;
    watch->turn_length += step_length(s, vb_tenant_loops(t->work.kind, i));
    watch->turn_blocks += s->kind == VB_STEP_FETCH ? s->blocks : 0;
    watch->turn_is_full =
        s->kind == VB_STEP_FETCH && s->blocks > 1 && watch->turn_blocks > FETCH_BLOCKS;
}

// A turn's bill has what came in for its queue pair.
static void take_incoming(struct vb_tenant_watch *watch, struct vb_tenant_book *b)
{
    watch->work += b->incoming;
    watch->incoming -= b->incoming;
    b->incoming = 0;
}

static void count(struct vb_tenantworld *w, struct vb_tenant *t, const struct vb_step *s)
{
    struct vb_tenant_watch *watch = &t->watch;
    uint32_t i;
    struct vb_tenant_book *b = book_of(t, s->qpn, &i);

    if (!b || s->kind == VB_STEP_TIMER)
        return;
    if (s->kind == VB_STEP_FRAME_IN) {
        uint64_t work = s->verdict < VB_RX_MALFORMED ? frame_work(s) : 0;
        b->incoming += work;
        b->unbilled += work;
        watch->incoming += work;
        watch->incoming_max = b->incoming > watch->incoming_max ? b->incoming : watch->incoming_max;
        return;
    }
    uint64_t work = step_work(b, s, vb_tenant_loops(t->work.kind, i));
    take_incoming(watch, b);
    watch->work += work;
    b->unbilled += work;
    go_on(w, t, s, work);
}

// Whether the last turn ended after one packet or completion, though its queue pair had more to
// send: as a turn before the line does, and none in the line.
static bool was_early(struct vb_tenant *t)
{
    uint32_t i;
    bool flows = t->work.kind == VB_TENANT_BUSY || t->work.kind == VB_TENANT_SURGE;
    const struct vb_tenant_book *b = book_of(t, t->watch.turn_qpn, &i);

    return flows && b && t->watch.turn_length == 1 && t->qp[i].sq.pi > b->executed;
}

// Its turn before the line follows another. Only the end of a slice can lie between the two.
static void hurry_again(struct vb_tenantworld *w, const struct vb_tenant *t)
{
    if (w->sliced_units < SLICE_UNITS)
        violate(w, "tenant %u has two turns before the line, and others none between them",
                (uint32_t)(t - w->tenant));
    w->sliced_units = 0;
}

static bool others_wait(const struct vb_tenantworld *w, const struct vb_tenant *t)
{
    for (uint32_t i = 0; i < w->opts.tenants; i++)
        if (&w->tenant[i] != t && w->tenant[i].watch.waits)
            return true;
    return false;
}

static void end_turn(struct vb_tenantworld *w, struct vb_tenant *t, const struct vb_step *s)
{
    struct vb_tenant_watch *watch = &t->watch;
    uint32_t i;
    struct vb_tenant_book *b = book_of(t, s->qpn, &i);

    if (!b)
        return;
    if (watch->turn_qpn && watch->turn_qpn != s->qpn)
        violate(w, "a turn of queue pair 0x%x ends in one of 0x%x", s->qpn, watch->turn_qpn);
    bool early = others_wait(w, t) && was_early(t);
    if (early && w->hurried == t && w->hurried_ns == watch->turn_ns)
        hurry_again(w, t);
    w->hurried = early ? t : NULL;
    w->hurried_ns = watch->turn_ns;
    watch->turns++;
    watch->billed += b->unbilled + TURN;
    b->unbilled = 0;
    take_incoming(watch, b);
    watch->work += TURN;
    watch->turn_qpn = watch->turn_length = watch->turn_blocks = 0;
    watch->turn_work = 0;
    watch->turn_in_line = watch->turn_is_full = false;
}

static void take_slice(struct vb_tenantworld *w, const struct vb_step *step)
{
    if (step->kind != VB_STEP_FRAME_IN && step->kind != VB_STEP_TIMER)
        return;
    w->hurried = NULL;
    w->sliced_units += step->kind == VB_STEP_TIMER ? TURN / UNIT : (FRAME + step->bytes) / UNIT;
}

// ---- slices

// A share whose load is below its part goes before the line, whose shares have a turn after each
// slice of frames. Its bell may be seen one slice late.
void vb_tenant_watch_probe(struct vb_tenant *t)
{
    const struct vb_tenant_opts *o = &t->world->opts;
    uint64_t units = t->world->frames_units - t->asked_units;

    if (!o->watches && !o->no_shares && !t->above && units > 2 * (SLICE_UNITS - 1 + FRAME_UNITS))
        violate(t->world, "a probe's request waited for %llu units of frames",
                (unsigned long long)units);
}

// ---- the bound

// Programs without an end always have work. A well-behaved tenant has some while fewer entries were
// executed than it has posted: nothing else holds them up here. Others may wait for their peers.
static bool has_work(const struct vb_tenant *t)
{
    if (t->work.kind == VB_TENANT_CHAIN || t->work.kind == VB_TENANT_COPY)
        return t->book[0].executed > 0;
    for (uint32_t i = 0; t->work.kind <= VB_TENANT_BUSY && i < t->work.qps; i++)
        if (t->qp[i].sq.pi > t->book[i].executed)
            return true;
    return false;
}

// In units of a share of the usual weight.
static double by_weight(const struct vb_tenant *t, uint64_t work)
{
    return (double)work * VB_SHARE_WEIGHT / t->weight / UNIT;
}

// By how much b is ahead of a when a watch begins: what had come in for b is work of before.
static double lead(const struct vb_tenant *a, const struct vb_tenant *b)
{
    return by_weight(b, b->watch.work + b->watch.incoming) - by_weight(a, a->watch.work);
}

static void begin(struct vb_tenantworld *w, struct vb_tenant *t, uint32_t j)
{
    t->watch.low[j] = lead(t, &w->tenant[j]);
    t->watch.since = t->watch.work;
}

// From any moment since tenant i has work, until now.
static void compare(struct vb_tenantworld *w, uint32_t i, uint32_t j)
{
    struct vb_tenant *a = &w->tenant[i];
    const struct vb_tenant *b = &w->tenant[j];
    double ahead = by_weight(b, b->watch.work) - by_weight(a, a->watch.work + a->watch.incoming);
    double most =
        3.0 * ROUND / UNIT + 2 * by_weight(a, dearest_turn(a)) + 2 * by_weight(b, dearest_turn(b));

    if (ahead - a->watch.low[j] > most)
        violate(w,
                "tenant %u of weight %u had work, and tenant %u of weight %u got %.0f units by "
                "weight more, at most %.0f",
                i, a->weight, j, b->weight, ahead - a->watch.low[j], most);
    if (lead(a, b) < a->watch.low[j])
        a->watch.low[j] = lead(a, b);
}

void vb_tenant_watch(struct vb_tenantworld *w, struct vb_tenant *t, const struct vb_step *step)
{
    take_slice(w, step);
    if (t && step->kind == VB_STEP_TURN)
        end_turn(w, t, step);
    else if (t)
        count(w, t, step);
    for (uint32_t i = 0; i < w->opts.tenants; i++) {
        struct vb_tenant *other = &w->tenant[i];
        bool waits = has_work(other);
        for (uint32_t j = 0; (!waits || !other->watch.waits) && j < w->opts.tenants; j++)
            begin(w, other, j);
        other->watch.waits = waits;
    }
    for (uint32_t i = 0; i < w->opts.tenants; i++)
        for (uint32_t j = 0; j < w->opts.tenants; j++)
            if (i != j && w->tenant[i].watch.waits && !w->violated)
                compare(w, i, j);
}

// ---- the bills

// To the unit, but for less than one of bytes that each queue pair keeps for its next bill.
void vb_tenant_audit(struct vb_tenantworld *w)
{
    struct vb_share_facts facts;

    for (uint32_t i = 0; i < w->opts.tenants && !w->violated; i++) {
        const struct vb_tenant *t = &w->tenant[i];
        vb_pu_share(vb_dev_pu(w->dev), t->share, &facts);
        uint64_t billed = facts.units * UNIT, expected = t->watch.billed,
                 rests = t->work.qps * UNIT;
        bool wrong = billed + rests < expected || billed > expected;
        if (wrong)
            violate(w, "tenant %u was billed for %.1f units, and its turns cost %.1f", i,
                    (double)facts.units, (double)expected / UNIT);
    }
}
