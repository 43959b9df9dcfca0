// SPDX-License-Identifier: Apache-2.0
// The static checker: entries are opened after they were written (doorbell order), and bytes are
// used after they were written (completion order).
#include "chain/check_static.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PENDING_MAX = 512,
};

// ---- doorbell order

// The first SEND_EN of the queue that opens the block in the first round, and that every way to
// block `before` of its queue leads through; NULL: none of it.
static const struct vb_line *opener(const struct vb_statics *s, uint32_t by, uint32_t queue,
                                    uint32_t block, uint32_t before)
{
    VB_FOR_LINES (line, s->listing) {
        if (!line->wrong && line->queue == by && line->code.opcode == VB_WQE_SEND_EN &&
            line->object == (int)queue && line->code.index > block &&
            (line->block > before || vb_is_passed(s, line, before)))
            return line;
    }
    return NULL;
}

static bool opened_by_others(const struct vb_statics *s, uint32_t by, uint32_t queue)
{
    VB_FOR_LINES (line, s->listing) {
        if (line->code.opcode == VB_WQE_SEND_EN && line->queue != by &&
            (line->object == (int)queue || line->object < 0))
            return true;
    }
    return false;
}

// Whether a fence waits for it: a READ's or an atomic's answer.
static bool is_answered(const struct vb_line *line)
{
    return line->code.opcode >= VB_WQE_READ && line->code.opcode <= VB_WQE_MASKED_FA;
}

// Whether `upto` runs only when the entry before it in its queue is done: behind a WAIT for
// something that completes no earlier, or behind a fence that waits for an answer no earlier.
static bool is_awaited(const struct vb_statics *s, const struct vb_line *from,
                       const struct vb_line *upto)
{
    uint32_t own = s->image->queue[from->queue].send_cq, count;
    bool answered = is_answered(from);

    for (uint32_t b = from->block + from->blocks; b <= upto->block;) {
        const struct vb_line *line = vb_listing_line(s->listing, from->queue, b);
        b += line ? line->blocks : 1;
        if (!line || line->wrong)
            continue;
        if (answered && line->code.fm_ce_se & VB_WQE_FENCE)
            return true;
        answered |= is_answered(line);
        if (line->code.opcode != VB_WQE_WAIT || line->object != (int)own)
            continue;
        const struct vb_line *until = vb_producer(s, own, line->code.index, &count);
        if (until && until->queue == from->queue && until->block >= from->block)
            return true;
    }
    return false;
}

// Whether the write changes what the entry does.
static bool matters(const struct vb_statics *s, const struct vb_line *victim,
                    const struct vb_spot *to, uint32_t len)
{
    const struct vb_image_queue *q = &s->image->queue[victim->queue];
    const uint8_t *code = q->code + (size_t)victim->block * VB_WQEBB_BYTES;
    uint64_t base = (uint64_t)victim->block * VB_WQEBB_BYTES;

    for (uint64_t i = to->offset - base; i < to->offset - base + len; i++) {
        uint32_t block = (uint32_t)(i / VB_WQEBB_BYTES);
        if (block < victim->blocks &&
            vb_code_relevant(code, block, q->wqe_checks) >> i % VB_WQEBB_BYTES & 1)
            return true;
    }
    return false;
}

static void report_open(struct vb_statics *s, const struct vb_line *victim, struct vb_actor writer,
                        const struct vb_line *by)
{
    char name[VB_LISTING_TEXT], opens[VB_LISTING_TEXT];

    vb_listing_actor_name(s->listing, writer, name);
    vb_listing_actor_name(s->listing, vb_line_actor(by), opens);
    vb_findings_add(
        s->out, s->listing, VB_CHECK_PATCH_OPEN, false, vb_line_actor(victim), writer,
        "is written by %s, but is open before that (%s%s): the NIC may have fetched it. "
        "Open it behind a WAIT for the write",
        name, by ? "opened by " : "from the start", by ? opens : "");
}

// Whether a write that comes when the entry is open, as the image says, is meant for a later round
// than the first: the entry is one of another queue that goes round; or an index is brought up to
// date, and so is that of what opens it. Those of the first round are in the image.
static bool is_later_round(const struct vb_statics *s, const struct vb_line *victim,
                           const struct vb_line *by, const struct vb_line *writer,
                           const struct vb_access *a)
{
    uint32_t n, begin, len;

    if (victim->queue != writer->queue)
        return s->circular[victim->queue];
    uint32_t at = (uint32_t)(a->spot.offset - (uint64_t)victim->block * VB_WQEBB_BYTES);
    return by && vb_patched(s, by, VB_FIELD_INDEX) &&
           vb_listing_field(victim, at, &n, &begin, &len) == VB_FIELD_INDEX &&
           at + a->len <= begin + len;
}

static void check_patch(struct vb_statics *s, const struct vb_line *writer,
                        const struct vb_access *a)
{
    const struct vb_line *victim =
        a->spot.kind != VB_IN_SEND ? NULL
                                   : vb_listing_line(s->listing, a->spot.index,
                                                     (uint32_t)(a->spot.offset / VB_WQEBB_BYTES));
    char name[VB_LISTING_TEXT];

    // What lies before it in its own queue has run: it is written for the next round.
    if (!victim || (victim->queue == writer->queue && victim->block <= writer->block) ||
        !matters(s, victim, &a->spot, a->len))
        return;
    const struct vb_line *by = NULL;
    bool early = victim->block < s->image->queue[victim->queue].open;
    if (!early) {
        by = opener(s, writer->queue, victim->queue, victim->block, writer->block);
        if (!by || opened_by_others(s, writer->queue, victim->queue))
            return;
        early = by->block < writer->block;
    }
    if (early ? is_later_round(s, victim, by, writer, a) : is_awaited(s, writer, by))
        return;
    if (vb_is_idle(s, writer, a->remote))
        return;
    if (early) {
        report_open(s, victim, vb_line_actor(writer), by);
        return;
    }
    vb_listing_actor_name(s->listing, vb_line_actor(writer), name);
    vb_findings_add(s->out, s->listing, VB_CHECK_PATCH_UNORDERED,
                    s->image->queue[writer->queue].kind == VB_QUEUE_LOOP, vb_line_actor(victim),
                    vb_line_actor(writer),
                    "is opened without a WAIT for the completion of %s, which writes it. Put one "
                    "before the SEND_EN",
                    name);
}

// A receive writes an entry: what opens that comes behind a WAIT for receives.
static void check_recv_patch(struct vb_statics *s, const struct vb_scatter_line *part)
{
    const struct vb_spot *to = &part->to.to;
    uint32_t cq = s->image->queue[part->queue].recv_cq;

    if (!part->to.known || to->kind != VB_IN_SEND)
        return;
    const struct vb_line *victim =
        vb_listing_line(s->listing, to->index, (uint32_t)(to->offset / VB_WQEBB_BYTES));
    if (!victim)
        return;
    bool open = victim->block < s->image->queue[victim->queue].open;
    const struct vb_line *by = NULL;
    for (uint32_t q = 0; !open && !by && q < s->image->queues; q++)
        by = opener(s, q, victim->queue, victim->block, 0);
    bool waits = false;
    for (uint32_t b = 0; by && b < by->block; b++) {
        const struct vb_line *line = vb_listing_line(s->listing, by->queue, b);
        waits |= line && line->code.opcode == VB_WQE_WAIT && line->object == (int)cq;
    }
    if (open || (by && !waits))
        report_open(s, victim, vb_receiver(part->queue, part->entry), by);
}

// ---- completion order

// Bytes that may not have been written yet.
struct pending {
    struct vb_access access;
    const struct vb_line *by;
    bool fenced; // a fence waits for it: a READ's or an atomic's
};

struct pendings {
    const struct vb_line *answered; // the last entry so far that a fence waits for
    uint32_t count;
    struct pending pending[PENDING_MAX];
};

static void forget(struct pendings *p, const struct vb_line *until)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; until && i < p->count; i++)
        if (p->pending[i].by->block > until->block)
            p->pending[kept++] = p->pending[i];
    p->count = until ? kept : p->count;
}

static void use(struct vb_statics *s, const struct pendings *p, const struct vb_line *line,
                const struct vb_access *a)
{
    char name[VB_LISTING_TEXT], place[VB_LISTING_TEXT];

    for (uint32_t i = 0; i < p->count; i++) {
        const struct pending *x = &p->pending[i];
        // At the far side requests are executed in order; only answers come late.
        if (!vb_spots_meet(&x->access.spot, x->access.len, &a->spot, a->len) ||
            (a->remote && x->access.remote))
            continue;
        vb_listing_actor_name(s->listing, vb_line_actor(x->by), name);
        vb_listing_place(s->listing, &x->access.spot, place);
        vb_findings_add(
            s->out, s->listing, VB_CHECK_ORDER, s->image->queue[line->queue].kind == VB_QUEUE_LOOP,
            vb_line_actor(line), vb_line_actor(x->by),
            "uses %s, which %s may not have written yet. %s", place, name,
            x->fenced ? "Set its fence, or put a WAIT between them" : "Put a WAIT between them");
    }
}

static void pass(struct vb_statics *s, struct pendings *p, const struct vb_line *line)
{
    uint32_t own = s->image->queue[line->queue].send_cq, count;
    struct vb_access a[VB_ACCESSES];
    uint32_t n = vb_accesses(line, a);
    bool write = line->code.opcode == VB_WQE_WRITE || line->code.opcode == VB_WQE_WRITE_IMM;

    if (line->code.fm_ce_se & VB_WQE_FENCE) // an answer tells that all before it is done, too
        forget(p, p->answered);
    if (line->code.opcode == VB_WQE_WAIT && line->object == (int)own)
        forget(p, vb_producer(s, own, line->code.index, &count));
    for (uint32_t i = 0; i < n; i++)
        if (!a[i].write || a[i].remote)
            use(s, p, line, &a[i]);
    for (uint32_t i = 0; i < n && p->count < PENDING_MAX; i++)
        if (a[i].write)
            p->pending[p->count++] = (struct pending){a[i], line, !write};
    if (n > 0 && !write && line->code.opcode != VB_WQE_SEND && line->code.opcode != VB_WQE_SEND_IMM)
        p->answered = line;
}

void vb_check_order(struct vb_statics *s)
{
    struct pendings *p = calloc(1, sizeof *p);
    uint32_t queue = 0;

    if (!p) {
        s->out->no_memory = true;
        return;
    }
    VB_FOR_LINES (line, s->listing) {
        struct vb_access a[VB_ACCESSES];
        uint32_t n = vb_accesses(line, a);
        if (line->queue != queue) {
            p->count = 0;
            p->answered = NULL;
        }
        queue = line->queue;
        if (!line->wrong)
            pass(s, p, line);
        for (uint32_t k = 0; k < n; k++)
            if (a[k].write)
                check_patch(s, line, &a[k]);
    }
    VB_FOR_PARTS (part, s->listing)
        check_recv_patch(s, part);
    free(p);
}
