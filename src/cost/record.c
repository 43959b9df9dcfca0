// SPDX-License-Identifier: Apache-2.0
// What a machine does, step by step: which entries were executed, who opened them, and whose
// completions they waited for.
#include "cost/record.h"

#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX = 1000000,
    FLAGS_AT = 11, // in an entry
    INDEX_AT = 24, // of WAIT and the opening entries: the index, and the queue's number
    OBJECT_AT = 28,
};

// ---- lists

// Makes room for one more. False: there is none.
static bool grow(struct vb_cost *c, void *list, size_t size, uint32_t count, uint32_t *room)
{
    void *old;

    if (count < *room)
        return true;
    uint32_t more = *room ? 2 * *room : 64;
    memcpy(&old, list, sizeof old);
    old = realloc(old, more * size);
    if (!old) {
        c->no_memory = true;
        return false;
    }
    memcpy(list, &old, sizeof old);
    *room = more;
    return true;
}

static struct vb_charge *add(struct vb_cost *c, struct vb_cost_lane *lane)
{
    if (!grow(c, &c->charge, sizeof *c->charge, c->charges, &c->room))
        return NULL;
    struct vb_charge *n = &c->charge[c->charges];
    memset(n, 0, sizeof *n);
    n->opener = n->producer = n->cause = n->next = n->follower = VB_COST_NOBODY;
    n->leader = lane->last;
    if (lane->last == VB_COST_NOBODY)
        lane->head = c->charges;
    else
        c->charge[lane->last].follower = c->charges;
    lane->last = c->charges++;
    return n;
}

void vb_cost_open(struct vb_cost *c, struct vb_cost_openings *o, uint64_t end, uint32_t by)
{
    if (!grow(c, &o->list, sizeof *o->list, o->count, &o->room))
        return;
    o->list[o->count++] = (struct vb_cost_opening){end, by};
    o->end = end;
}

// Entries of a queue are asked for in order.
static uint32_t opener_of(struct vb_cost_openings *o, uint64_t counter)
{
    while (o->next < o->count && o->list[o->next].end <= counter)
        o->next++;
    return o->next < o->count ? o->list[o->next].by : VB_COST_NOBODY;
}

// ---- entries

static bool is_inline(uint8_t opcode, const uint8_t *code)
{
    bool sends = opcode == VB_WQE_SEND || opcode == VB_WQE_SEND_IMM || opcode == VB_WQE_SEND_INVAL;
    uint32_t count = vb_get_be32(code + VB_WQE_SEG_BYTES * (sends ? 1 : 2));
    return count & VB_WQE_INLINE || opcode == VB_WQE_ATOMIC_WRITE;
}

// A SEND_EN or RECV_EN; its index counts modulo 2^16.
static void opens(struct vb_cost *c, struct vb_machine *m, const struct vb_watch_event *e,
                  uint32_t me)
{
    bool sends = e->opcode == VB_WQE_SEND_EN;
    int target = vb_machine_queue(m, vb_get_be32(e->code + OBJECT_AT));

    if (target < 0)
        return;
    struct vb_cost_openings *o = sends ? &c->queue[target].send : &c->queue[target].recv;
    int16_t ahead = (int16_t)(vb_get_be32(e->code + INDEX_AT) - (uint16_t)o->end);
    if (ahead > 0)
        vb_cost_open(c, o, o->end + (uint64_t)ahead, me);
}

static void executed(struct vb_cost *c, struct vb_machine *m, const struct vb_watch_event *e)
{
    struct vb_cost_queue *q = &c->queue[e->who.queue];
    struct vb_charge *n = add(c, &q->entries);

    if (!n)
        return;
    n->queue = e->who.queue;
    n->at = e->who.at;
    n->opcode = e->opcode;
    n->bytes = e->bytes;
    n->fence = e->code[FLAGS_AT] & VB_WQE_FENCE;
    n->carries = is_inline(e->opcode, e->code);
    n->times.counter = e->counter;
    n->opener = opener_of(&q->send, e->counter);
    if (e->opcode == VB_WQE_WAIT && e->number < c->cq[e->cq].count)
        n->producer = c->cq[e->cq].by[e->number];
    if (e->opcode == VB_WQE_SEND_EN || e->opcode == VB_WQE_RECV_EN)
        opens(c, m, e, c->charges - 1);
}

// ---- completions

// The newest entry of the queue that had this counter.
static uint32_t find(const struct vb_cost *c, uint32_t queue, uint64_t counter)
{
    uint32_t i = c->queue[queue].entries.last;

    while (i != VB_COST_NOBODY && c->charge[i].times.counter > counter)
        i = c->charge[i].leader;
    return i != VB_COST_NOBODY && c->charge[i].times.counter == counter ? i : VB_COST_NOBODY;
}

static uint32_t arrived(struct vb_cost *c, const struct vb_watch_event *e)
{
    struct vb_cost_queue *q = &c->queue[e->who.queue];
    struct vb_charge *n = add(c, &q->messages);

    if (!n)
        return VB_COST_NOBODY;
    n->queue = e->who.queue;
    n->at = e->who.at;
    n->bytes = e->bytes;
    n->times.message = true;
    n->times.counter = e->counter;
    n->opener = opener_of(&q->recv, e->counter);
    return c->charges - 1;
}

static void completed(struct vb_cost *c, const struct vb_watch_event *e)
{
    struct vb_cost_cq *cq = &c->cq[e->cq];
    uint32_t by = e->who.recv ? arrived(c, e) : find(c, e->who.queue, e->counter);

    c->errors += e->syndrome != 0;
    while (cq->count <= e->number && grow(c, &cq->by, sizeof *cq->by, cq->count, &cq->room))
        cq->by[cq->count++] = VB_COST_NOBODY;
    if (e->number < cq->count)
        cq->by[e->number] = by;
}

// ---- steps

void vb_cost_record(struct vb_cost *c, struct vb_machine *m, struct vb_watch *w)
{
    uint64_t left = c->opts.steps_max ? c->opts.steps_max : STEPS_MAX;
    struct vb_watch_event e;

    while (!c->no_memory && !c->cut && vb_watch_step(w, &e)) {
        if (e.kind == VB_STEP_EXEC && e.who.exists && e.code)
            executed(c, m, &e);
        if (e.kind == VB_STEP_COMPLETE && e.who.exists)
            completed(c, &e);
        c->cut = --left == 0;
    }
    c->no_memory |= vb_watch_lacks_memory(w);
}
