// SPDX-License-Identifier: Apache-2.0
// The static checker: entries, counts and gates. An image has no control flow but the order of its
// blocks, what SEND_ENs open and what NOPs cover; counters of programs that run in circles are
// checked for their first round only.
#include "chain/check_static.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- what entries touch

static uint32_t add_list(const struct vb_line *line, bool write, struct vb_access *out, uint32_t n)
{
    for (uint32_t i = 0; i < line->code.num_sge; i++)
        if (line->sge[i].known && line->code.sge[i].len)
            out[n++] = (struct vb_access){
                .spot = line->sge[i].to, .len = line->code.sge[i].len, .write = write};
    return n;
}

// More bytes than a length can say are as many as it can.
static uint32_t add_remote(const struct vb_line *line, uint64_t len, bool write,
                           struct vb_access *out, uint32_t n)
{
    if (line->raddr.known && len)
        out[n++] = (struct vb_access){.spot = line->raddr.to,
                                      .len = len < UINT32_MAX ? (uint32_t)len : UINT32_MAX,
                                      .write = write,
                                      .remote = true};
    return n;
}

uint32_t vb_accesses(const struct vb_line *line, struct vb_access *out)
{
    const struct vb_code *c = &line->code;
    uint32_t n = 0;

    if (line->wrong)
        return 0;
    switch (c->opcode) {
    case VB_WQE_READ:
        n = add_remote(line, vb_list_bytes(c), false, out, n);
        return add_list(line, true, out, n);
    case VB_WQE_WRITE:
    case VB_WQE_WRITE_IMM:
        n = add_list(line, false, out, n);
        return add_remote(line,
                          c->opmod        ? 16
                          : c->inline_len ? c->inline_len
                                          : vb_list_bytes(c),
                          true, out, n);
    case VB_WQE_SEND:
    case VB_WQE_SEND_IMM: return add_list(line, false, out, n);
    case VB_WQE_ATOMIC_CS:
    case VB_WQE_ATOMIC_FA:
    case VB_WQE_MASKED_CS:
    case VB_WQE_MASKED_FA:
        n = add_remote(line, c->opmod == VB_WQE_OPMOD_MASKED4 ? 4 : 8, true, out, n);
        return add_list(line, true, out, n);
    default: return 0;
    }
}

bool vb_spots_meet(const struct vb_spot *a, uint64_t a_len, const struct vb_spot *b, uint64_t b_len)
{
    return a->kind == b->kind && a->index == b->index && a->offset < b->offset + b_len &&
           b->offset < a->offset + a_len;
}

bool vb_is_signaled(const struct vb_line *line)
{
    return !line->wrong && (line->code.fm_ce_se & VB_WQE_CE_MASK) >= VB_WQE_CE_ALWAYS;
}

bool vb_takes_receives(const struct vb_image *image, uint32_t cq)
{
    for (uint32_t i = 0; i < image->queues; i++)
        if (image->queue[i].recv_cq == cq && image->queue[i].recvs)
            return true;
    return false;
}

const struct vb_line *vb_producer(const struct vb_statics *s, uint32_t cq, uint32_t n,
                                  uint32_t *count)
{
    const struct vb_line *found = NULL;

    *count = 0;
    VB_FOR_LINES (line, s->listing) {
        if (s->image->queue[line->queue].send_cq != cq || !vb_is_signaled(line))
            continue;
        if (*count == n)
            found = line;
        ++*count;
    }
    return found;
}

// ---- patches

uint8_t vb_patched_in(const struct vb_statics *s, const struct vb_line *line, enum vb_field field,
                      uint32_t n)
{
    uint32_t len;
    int at = line->wrong ? -1 : vb_code_field(&line->code, field, n, &len);
    uint8_t how = 0;

    for (uint32_t i = 0; at >= 0 && i < len; i++)
        how |= s->patch[line->queue][(size_t)line->block * VB_WQEBB_BYTES + (uint32_t)at + i];
    return how;
}

bool vb_is_filled_in(const struct vb_statics *s, const struct vb_line *line, enum vb_field field)
{
    struct vb_access a[VB_ACCESSES];
    uint32_t len;
    int at = vb_code_field(&line->code, field, 0, &len);
    const struct vb_spot to = {VB_IN_SEND, line->queue,
                               (uint64_t)line->block * VB_WQEBB_BYTES + (uint32_t)at};

    for (uint32_t b = 0; at >= 0 && vb_patched(s, line, field) && b < line->block; b++) {
        const struct vb_line *by = vb_listing_line(s->listing, line->queue, b);
        uint32_t n = by && by->block == b ? vb_accesses(by, a) : 0;
        for (uint32_t k = 0; k < n; k++)
            if (a[k].write && vb_spots_meet(&a[k].spot, a[k].len, &to, len))
                return true;
    }
    return false;
}

static void mark(struct vb_statics *s, const struct vb_spot *spot, uint32_t len, uint8_t how)
{
    if (spot->kind != VB_IN_SEND)
        return;
    uint64_t bytes = (uint64_t)s->image->queue[spot->index].blocks * VB_WQEBB_BYTES;
    for (uint64_t i = spot->offset; i < spot->offset + len && i < bytes; i++)
        s->patch[spot->index][i] |= how;
}

static bool collect_patches(struct vb_statics *s)
{
    struct vb_access a[VB_ACCESSES];

    for (uint32_t i = 0; i < s->image->queues; i++) {
        s->patch[i] = calloc((size_t)s->image->queue[i].blocks, VB_WQEBB_BYTES);
        if (!s->patch[i])
            return false;
    }
    VB_FOR_LINES (line, s->listing) {
        uint32_t n = vb_accesses(line, a);
        for (uint32_t k = 0; k < n; k++)
            if (a[k].write)
                mark(s, &a[k].spot, a[k].len,
                     vb_is_atomic(line) && a[k].remote ? VB_PATCHED_BY_ATOMIC : VB_PATCHED);
    }
    VB_FOR_PARTS (part, s->listing)
        if (part->to.known)
            mark(s, &part->to.to, part->len, VB_PATCHED_BY_CLIENT);
    VB_FOR_LINES (line, s->listing) {
        if (line->code.opcode == VB_WQE_SEND_EN && line->object >= 0 &&
            vb_patched(s, line, VB_FIELD_INDEX))
            s->circular[line->object] = true;
    }
    return true;
}

// ---- entries

static void check_entry(struct vb_statics *s, const struct vb_line *line)
{
    const uint8_t *code = s->image->queue[line->queue].code + (size_t)line->block * VB_WQEBB_BYTES;

    if (line->wrong)
        vb_findings_add(
            s->out, s->listing, VB_CHECK_BAD_ENTRY, false, vb_line_actor(line), vb_nobody(),
            "is no entry: %s (opcode 0x%02x, %u segments). Write a whole entry there, or "
            "let a NOP cover it",
            line->wrong, code[3], code[7] & VB_WQE_DS_MASK);
    else if (line->object < 0 &&
             (line->code.opcode == VB_WQE_WAIT || line->code.opcode == VB_WQE_SEND_EN ||
              line->code.opcode == VB_WQE_RECV_EN) &&
             !vb_patched(s, line, VB_FIELD_OBJECT))
        vb_findings_add(s->out, s->listing, VB_CHECK_UNSET, false, vb_line_actor(line), vb_nobody(),
                        "names no queue, and nothing fills its object field in. Add a relocation");
}

// ---- WAIT

static void check_wait(struct vb_statics *s, const struct vb_line *line)
{
    uint32_t count, cq = (uint32_t)line->object, index = line->code.index;
    char name[VB_LISTING_TEXT];

    if (line->object < 0 || vb_takes_receives(s->image, cq))
        return;
    const struct vb_line *from = vb_producer(s, cq, index, &count);
    if (count == 0) {
        vb_findings_add(s->out, s->listing, VB_CHECK_WAIT_NEVER, false, vb_line_actor(line),
                        vb_nobody(),
                        "waits for '%s', into which nothing completes. Signal the entry that it "
                        "shall wait for",
                        s->image->cq[cq].name);
        return;
    }
    if (from && from->queue == line->queue && from->block >= line->block &&
        !vb_is_filled_in(s, line, VB_FIELD_INDEX)) {
        vb_listing_actor_name(s->listing, vb_line_actor(from), name);
        vb_findings_add(s->out, s->listing, VB_CHECK_WAIT_BEYOND, false, vb_line_actor(line),
                        vb_line_actor(from),
                        "waits for completion %u of its own queue, that of %s, which comes behind "
                        "it. Lower the index, or signal an entry before it",
                        index, name);
        return;
    }
    bool patched = vb_patched(s, line, VB_FIELD_INDEX) != 0;
    if (from || patched || index - count >= VB_HALT_AHEAD)
        return;
    const struct vb_line *last = vb_producer(s, cq, count - 1, &count);
    if (last && s->circular[last->queue])
        return;
    vb_listing_actor_name(s->listing, vb_line_actor(last), name);
    vb_findings_add(s->out, s->listing, VB_CHECK_WAIT_BEYOND, false, vb_line_actor(line),
                    vb_line_actor(last),
                    "waits for completion %u of '%s', which has %u (the last is that of %s). Lower "
                    "the index, or signal one more entry",
                    index, s->image->cq[cq].name, count, name);
}

// ---- SEND_EN and RECV_EN

static void check_opened(struct vb_statics *s, const struct vb_line *line)
{
    const struct vb_image_queue *q = &s->image->queue[line->object];
    uint32_t index = line->code.index;

    if (s->circular[line->object] || index == 0)
        return;
    const struct vb_line *last = vb_listing_line(s->listing, (uint32_t)line->object,
                                                 (index < q->filled ? index : q->filled) - 1);
    struct vb_actor other = vb_line_actor(last);
    char name[VB_LISTING_TEXT];
    vb_listing_actor_name(s->listing, other, name);
    if (index > q->filled)
        vb_findings_add(s->out, s->listing, VB_CHECK_OPEN_BEYOND, false, vb_line_actor(line), other,
                        "opens '%s' up to block %u, but its last entry, %s, ends at %u. Lower the "
                        "index",
                        q->name, index, name, q->filled);
    else if (last && last->block + last->blocks > index)
        vb_findings_add(s->out, s->listing, VB_CHECK_OPEN_BEYOND, false, vb_line_actor(line), other,
                        "opens '%s' up to block %u, in the middle of %s, which ends at %u. Open "
                        "whole entries",
                        q->name, index, name, last->block + last->blocks);
}

static void check_open(struct vb_statics *s, const struct vb_line *line)
{
    bool receive = line->code.opcode == VB_WQE_RECV_EN;

    if (line->object < 0)
        return;
    const struct vb_image_queue *q = &s->image->queue[line->object];
    struct vb_actor first =
        receive ? vb_receiver((uint32_t)line->object, 0) : vb_sender((uint32_t)line->object, 0);
    if (receive ? !q->managed_recv : !q->managed_send) {
        vb_findings_add(s->out, s->listing, VB_CHECK_OPEN_UNMANAGED, false, vb_line_actor(line),
                        first,
                        "opens the %s queue of '%s', which is not managed: its entries run as soon "
                        "as they are posted. Make the queue managed",
                        receive ? "receive" : "send", q->name);
        return;
    }
    if (!receive)
        check_opened(s, line);
}

static void check_queue_is_opened(struct vb_statics *s, uint32_t queue)
{
    const struct vb_image_queue *q = &s->image->queue[queue];
    uint32_t upto = q->open;
    bool named = false;

    if (!q->managed_send || q->filled == 0)
        return;
    VB_FOR_LINES (line, s->listing) {
        if (line->code.opcode != VB_WQE_SEND_EN || line->wrong)
            continue;
        if (line->object < 0 || vb_patched(s, line, VB_FIELD_OBJECT))
            return; // it may open any
        if ((uint32_t)line->object != queue)
            continue;
        named = true;
        upto = line->code.index > upto ? line->code.index : upto;
    }
    if (s->circular[queue] || upto >= q->filled)
        return;
    const struct vb_line *first = vb_listing_line(s->listing, queue, upto);
    uint32_t segs = q->code[(size_t)upto * VB_WQEBB_BYTES + 7] & VB_WQE_DS_MASK;
    if (first && first->code.opcode == VB_WQE_NOP && segs > 4 && upto + (segs + 3) / 4 == q->filled)
        return; // only fills the ring
    vb_findings_add(s->out, s->listing, VB_CHECK_NEVER_OPENED, upto > 0,
                    first ? vb_line_actor(first) : vb_sender(queue, upto), vb_nobody(),
                    "is never opened: '%s' is managed, and %s. Open it by a SEND_EN, or from the "
                    "start",
                    q->name, named ? "all SEND_ENs end before it" : "no SEND_EN names it");
}

// ---- covers

static void covered_by(struct vb_statics *s, const struct vb_line *nop, uint32_t segs,
                       const struct vb_line *cause)
{
    char name[VB_LISTING_TEXT];

    for (uint32_t i = 1; i < (segs + 3) / 4; i++) {
        const struct vb_line *line = vb_listing_line(s->listing, nop->queue, nop->block + i);
        if (!line || !vb_is_signaled(line))
            continue;
        vb_listing_actor_name(s->listing, vb_line_actor(cause), name);
        vb_findings_add(s->out, s->listing, VB_CHECK_SIGNALED_COVERED, false, vb_line_actor(line),
                        vb_line_actor(cause),
                        "completes only if %s does not let it be skipped: the numbers of later "
                        "completions depend on the way. Signal an entry behind the covered ones "
                        "instead",
                        name);
    }
}

static void check_cover(struct vb_statics *s, const struct vb_line *line)
{
    const struct vb_image_queue *q = &s->image->queue[line->queue];

    if (line->code.opcode == VB_WQE_NOP && !line->wrong)
        covered_by(s, line, q->code[(size_t)line->block * VB_WQEBB_BYTES + 7] & VB_WQE_DS_MASK,
                   line);
    if (line->code.opcode != VB_WQE_ATOMIC_CS || line->wrong || !line->raddr.known ||
        line->raddr.to.kind != VB_IN_SEND || line->raddr.to.offset % VB_WQEBB_BYTES)
        return;
    const struct vb_line *target = vb_listing_line(
        s->listing, line->raddr.to.index, (uint32_t)(line->raddr.to.offset / VB_WQEBB_BYTES));
    if (target && (line->code.swap_add >> 24 & 0xff) == VB_WQE_NOP)
        covered_by(s, target, line->code.swap_add >> 56 & VB_WQE_DS_MASK, line);
}

// ---- circles

// Whether it can make an entry of the queue a WAIT, to stop there.
static bool stops(const struct vb_line *line, uint32_t queue)
{
    return line->code.opcode == VB_WQE_ATOMIC_CS && !line->wrong && line->raddr.known &&
           line->raddr.to.kind == VB_IN_SEND && line->raddr.to.index == queue &&
           line->raddr.to.offset % VB_WQEBB_BYTES == 0 &&
           (line->code.swap_add >> 24 & 0xff) == VB_WQE_WAIT;
}

static void check_endless(struct vb_statics *s, uint32_t queue)
{
    const struct vb_line *back = NULL;

    VB_FOR_LINES (line, s->listing) {
        if (stops(line, queue))
            return;
        if (line->queue != queue || line->wrong)
            continue;
        if (line->code.opcode == VB_WQE_SEND_EN && line->object == (int)queue &&
            vb_patched(s, line, VB_FIELD_INDEX))
            back = line;
        if (line->code.opcode == VB_WQE_WAIT && line->object >= 0 &&
            (vb_takes_receives(s->image, (uint32_t)line->object) ||
             (line->code.index >= VB_HALT_AHEAD && line->code.index < UINT32_MAX / 2)))
            return;
    }
    if (back)
        vb_findings_add(s->out, s->listing, VB_CHECK_ENDLESS, true, vb_line_actor(back),
                        vb_sender(queue, 0),
                        "opens its own queue again and again, and nothing in it waits for a "
                        "request or stops. Add a gate, a break, or give the queue a rate");
}

// ---- all of it

static void check_lines(struct vb_statics *s)
{
    VB_FOR_LINES (line, s->listing) {
        check_entry(s, line);
        check_cover(s, line);
        if (line->wrong)
            continue;
        if (line->code.opcode == VB_WQE_WAIT)
            check_wait(s, line);
        if (line->code.opcode == VB_WQE_SEND_EN || line->code.opcode == VB_WQE_RECV_EN)
            check_open(s, line);
    }
}

void vb_check_static(const struct vb_image *image, struct vb_findings *out)
{
    struct vb_statics s = {.image = image, .out = out};
    char error[VB_IMAGE_TEXT] = "";

    if (!vb_image_check(image, error)) {
        vb_findings_add(out, NULL, VB_CHECK_NOT_LOADED, false, vb_nobody(), vb_nobody(),
                        "the program cannot be loaded: %s", error);
        return;
    }
    s.listing = vb_listing_make(image);
    s.patch = calloc(image->queues, sizeof *s.patch);
    s.circular = calloc(image->queues, sizeof *s.circular);
    s.value = calloc(image->queues, sizeof *s.value);
    if (s.listing && s.patch && s.circular && s.value && collect_patches(&s) && vb_jumps_find(&s)) {
        check_lines(&s);
        for (uint32_t i = 0; i < image->queues; i++) {
            check_queue_is_opened(&s, i);
            check_endless(&s, i);
        }
        vb_check_memory(&s);
        vb_check_order(&s);
    } else {
        out->no_memory = true;
    }
    for (uint32_t i = 0; s.patch && i < image->queues; i++)
        free(s.patch[i]);
    vb_jumps_free(&s);
    vb_values_free(&s);
    free(s.patch);
    free(s.circular);
    vb_listing_free(s.listing);
}
