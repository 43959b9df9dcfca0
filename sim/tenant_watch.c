// SPDX-License-Identifier: Apache-2.0
// The watch over turns. It counts each tenant's work from the records of steps, at the prices of
// docs/hull.md, and takes nothing from the shares but the number of their turns, which leave no
// record. While a tenant has had work without a pause, no other may have had more beside it than
// its weight's part and the bound of sim/TURNS.md; and when the run is over, what a share was
// billed for must be what the watch has counted.
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
    BLOCK_BYTES = 64,
    ICRC_BYTES = 4,
    // The longest turn beside others: 4 packets of 16 pieces, 16 entries fetched ahead.
    TURN_MAX = TURN + 4 * (FRAME + 4096 + ICRC_BYTES + 60 + 15 * UNIT + UNIT) + 16 * UNIT,
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

// Blocks are known by where the entry behind begins.
static uint64_t fetch_work(struct vb_tenant_book *b, const struct vb_step *s, bool loops)
{
    uint64_t blocks = loops ? s->bytes / BLOCK_BYTES : 1;
    uint64_t skipped = !loops && s->counter > b->fetched ? s->counter - b->fetched : 0;

    b->fetched = s->counter + blocks;
    return (blocks + skipped) * UNIT;
}

static uint64_t complete_work(struct vb_tenant_book *b, const struct vb_step *s, bool loops)
{
    if (s->detail == VB_SYN_FLUSH && s->counter >= b->fetched) {
        b->fetched = s->counter + 1;
        return 2 * UNIT; // it was never fetched
    }
    return loops && s->detail == 0 ? 0 : UNIT;
}

static uint64_t step_work(struct vb_tenant_book *b, const struct vb_step *s, bool loops)
{
    switch (s->kind) {
    case VB_STEP_FRAME_OUT: return frame_work(s);
    case VB_STEP_FETCH: return fetch_work(b, s, loops);
    case VB_STEP_EXEC:
        b->executed = s->counter + 1;
        return loops ? UNIT + s->bytes / UNIT * UNIT : vb_wqe_is_local(s->opcode) * UNIT;
    case VB_STEP_COMPLETE: return complete_work(b, s, loops);
    default: return 0;
    }
}

// What came in is billed in the queue pair's next turn.
static void count(struct vb_tenant *t, const struct vb_step *s)
{
    struct vb_tenant_watch *watch = &t->watch;
    uint32_t i;
    struct vb_tenant_book *b = book_of(t, s->qpn, &i);

    if (!b || s->kind == VB_STEP_TIMER)
        return;
    if (s->kind == VB_STEP_FRAME_IN) {
        uint64_t work = s->verdict < VB_RX_MALFORMED ? frame_work(s) : 0;
        b->incoming += work;
        watch->incoming += work;
        watch->incoming_max = b->incoming > watch->incoming_max ? b->incoming : watch->incoming_max;
        return;
    }
    watch->work += b->incoming + step_work(b, s, vb_tenant_loops(t->work.kind, i));
    watch->incoming -= b->incoming;
    b->incoming = 0;
}

static void count_turns(struct vb_tenantworld *w, struct vb_tenant *t)
{
    struct vb_share_facts facts;

    vb_pu_share(vb_dev_pu(w->dev), t->share, &facts);
    t->watch.work += (facts.turns - t->watch.turns) * TURN;
    t->watch.turns = facts.turns;
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

static void compare(struct vb_tenantworld *w, uint32_t i, uint32_t j)
{
    const struct vb_tenant *a = &w->tenant[i], *b = &w->tenant[j];
    double got = by_weight(a, a->watch.work + a->watch.incoming - a->watch.own);
    double other =
        b->watch.work > a->watch.base[j] ? by_weight(b, b->watch.work - a->watch.base[j]) : 0;
    double most = 3.0 * ROUND / UNIT + 2 * by_weight(a, TURN_MAX + a->watch.incoming_max) +
                  2 * by_weight(b, TURN_MAX + b->watch.incoming_max);

    if (other - got > most)
        violate(w,
                "tenant %u of weight %u got %.0f units by weight while it had work, tenant %u of "
                "weight %u %.0f: more than %.0f apart",
                i, a->weight, got, j, b->weight, other, most);
}

static void begin(struct vb_tenantworld *w, struct vb_tenant *t)
{
    t->watch.own = t->watch.work;
    for (uint32_t j = 0; j < w->opts.tenants; j++)
        t->watch.base[j] = w->tenant[j].watch.work + w->tenant[j].watch.incoming;
}

void vb_tenant_watch(struct vb_tenantworld *w, struct vb_tenant *t, const struct vb_step *step)
{
    if (t)
        count(t, step);
    for (uint32_t i = 0; i < w->opts.tenants; i++)
        count_turns(w, &w->tenant[i]);
    for (uint32_t i = 0; i < w->opts.tenants; i++) {
        struct vb_tenant *other = &w->tenant[i];
        bool waits = has_work(other);
        if (!waits || !other->watch.waits)
            begin(w, other);
        other->watch.waits = waits;
    }
    for (uint32_t i = 0; i < w->opts.tenants; i++)
        for (uint32_t j = 0; j < w->opts.tenants; j++)
            if (i != j && w->tenant[i].watch.waits && !w->violated)
                compare(w, i, j);
}

// ---- the bills

// A turn that is under way is not billed yet, and frames that came in may be, by a turn without a
// step. Each queue pair keeps less than a unit of bytes for its next bill. What a tenant that
// writes garbage has fetched, the records do not tell.
void vb_tenant_audit(struct vb_tenantworld *w)
{
    struct vb_share_facts facts;

    for (uint32_t i = 0; i < w->opts.tenants && !w->violated; i++) {
        struct vb_tenant *t = &w->tenant[i];
        const struct vb_tenant_watch *watch = &t->watch;
        count_turns(w, t);
        vb_pu_share(vb_dev_pu(w->dev), t->share, &facts);
        uint64_t billed = facts.units * UNIT, rests = t->work.qps * UNIT;
        uint64_t most = watch->work + watch->incoming;
        bool little = billed + rests + TURN_MAX + watch->incoming_max < watch->work;
        if (t->work.kind != VB_TENANT_FUZZ && (little || billed > most + rests))
            violate(w, "tenant %u did %.1f units of work, and was billed for %.1f", i,
                    (double)watch->work / UNIT, (double)facts.units);
    }
}
