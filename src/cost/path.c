// SPDX-License-Identifier: Apache-2.0
// The critical path, and what it and the rate are made of.
#include "cost/model.h"

#include "base/least.h"

// ---- the path

static uint32_t last_seen(const struct vb_cost *c)
{
    uint32_t last = VB_COST_NOBODY;

    for (uint32_t i = 0; i < c->charges; i++)
        if (last == VB_COST_NOBODY || c->charge[i].visible_ps > c->charge[last].visible_ps)
            last = i;
    return last;
}

uint64_t vb_cost_path_end(const struct vb_cost *c, uint32_t n)
{
    uint32_t next = c->charge[n].next;
    return next == VB_COST_NOBODY ? c->charge[n].visible_ps : c->charge[next].handed_ps;
}

// The part of [from, to] that lies before `end`; what is left begins there.
static uint64_t cut(uint64_t *from, uint64_t to, uint64_t end)
{
    uint64_t part = vb_excess(vb_least(end, to), *from);

    *from += part;
    return part;
}

// Spreads the time for which the path was with this entry over what the entry then did.
static void add_parts(struct vb_cost *c, uint32_t i)
{
    const struct vb_cost_entry *t = &c->charge[i].times;
    struct vb_cost_parts *sum = &c->parts;
    uint64_t from = c->charge[i].handed_ps, to = vb_cost_path_end(c, i);
    uint64_t at = t->at_ps + t->fetch_ps;

    sum->fetch_ps += cut(&from, to, at);
    sum->wait_ps += cut(&from, to, at += t->wait_ps);
    sum->issue_ps += cut(&from, to, at += t->issue_ps);
    sum->pcie_ps += cut(&from, to, at += t->pcie_ps);
    sum->network_ps += cut(&from, to, at + t->network_ps);
    if (c->charge[i].next == VB_COST_NOBODY)
        sum->pcie_ps += to - from; // the CPU sees it
    else
        sum->wait_ps += to - from; // for the completions before its own
}

void vb_cost_find_path(struct vb_cost *c)
{
    uint32_t next = VB_COST_NOBODY;

    if (c->result == VB_COST_NOBODY)
        c->result = last_seen(c);
    for (uint32_t i = c->result; i != VB_COST_NOBODY; i = c->charge[i].cause) {
        c->charge[i].times.critical = true;
        c->charge[i].next = next;
        next = i;
    }
    for (uint32_t i = next; i != VB_COST_NOBODY; i = c->charge[i].next)
        add_parts(c, i);
    if (next != VB_COST_NOBODY)
        c->parts.pcie_ps += c->charge[next].handed_ps; // the doorbell
}

// ---- rates

const char *vb_cost_limit_name(enum vb_cost_limit limit)
{
    static const char *const names[VB_LIMITS] = {"the order of its entries", "processing units",
                                                 "atomic unit", "link", "PCIe"};
    return names[limit];
}

static uint32_t operations(const struct vb_cost *c)
{
    if (c->opts.operations)
        return c->opts.operations;
    return c->messages ? c->messages : 1;
}

// The time of the queue that takes longest, or of all together where nothing overlaps.
static uint64_t span_ps(const struct vb_cost *c)
{
    uint64_t longest = 0, first = UINT64_MAX, last = 0;

    for (uint32_t i = 0; i < c->queues; i++) {
        const struct vb_cost_queue *q = &c->queue[i];
        if (q->entries.last == VB_COST_NOBODY)
            continue;
        const struct vb_charge *n = &c->charge[q->entries.last];
        uint64_t end = c->preset.lanes == VB_LANE_PROGRAM ? n->times.done_ps - n->times.network_ps
                                                          : n->lane_end_ps;
        longest = vb_most(longest, end - q->first_ps);
        first = vb_least(first, q->first_ps);
        last = vb_most(last, end);
    }
    return c->preset.lanes == VB_LANE_PROGRAM ? vb_excess(last, first) : longest;
}

uint64_t vb_cost_limit_ps(const struct vb_cost *c, enum vb_cost_limit limit)
{
    const struct vb_cost_preset *p = &c->preset;
    uint32_t ops = operations(c);

    switch (limit) {
    case VB_LIMIT_CHAIN:
        if (c->replies > 1 && c->replies == ops)
            return (c->last_reply_ps - c->first_reply_ps) / (c->replies - 1);
        return span_ps(c) / ops;
    case VB_LIMIT_UNITS: return c->unit_busy_ps / ops / p->pus;
    case VB_LIMIT_ATOMICS: return c->atomic_busy_ps / ops;
    case VB_LIMIT_LINK: return vb_cost_bytes_ps(c->link_bytes, p->link) / ops;
    default: return vb_cost_bytes_ps(c->pcie_bytes, p->pcie) / ops;
    }
}

static void find_limits(const struct vb_cost *c, struct vb_cost_summary *s)
{
    const struct vb_cost_preset *p = &c->preset;

    for (int i = 0; i < VB_LIMITS; i++) {
        uint64_t one = vb_cost_limit_ps(c, (enum vb_cost_limit)i), card = one;
        // Ports have their own units and links; programs share them, unless a port has but a few.
        if (i == VB_LIMIT_CHAIN)
            card = p->chains ? one / p->chains / p->ports : 0;
        else if (i != VB_LIMIT_PCIE)
            card = one / p->ports;
        if (one > s->operation_ps || !s->bottleneck) {
            s->operation_ps = one;
            s->bottleneck = vb_cost_limit_name((enum vb_cost_limit)i);
        }
        if (card > s->card_ps || !s->card_bottleneck) {
            s->card_ps = card;
            s->card_bottleneck = vb_cost_limit_name((enum vb_cost_limit)i);
        }
    }
}

// ---- looking

void vb_cost_summary(const struct vb_cost *c, struct vb_cost_summary *s)
{
    *s = (struct vb_cost_summary){.parts = c->parts,
                                  .entries = c->charges,
                                  .operations = operations(c),
                                  .replies = c->replies,
                                  .errors = c->errors,
                                  .cut = c->cut};
    for (uint32_t i = 0; i < c->charges; i++)
        s->end_ps = vb_most(s->end_ps, c->charge[i].times.done_ps);
    if (c->result != VB_COST_NOBODY)
        s->latency_ps = c->charge[c->result].visible_ps;
    find_limits(c, s);
}

bool vb_cost_entry(const struct vb_cost *c, uint32_t n, struct vb_cost_entry *entry)
{
    if (n >= c->charges)
        return false;
    *entry = c->charge[n].times;
    return true;
}
