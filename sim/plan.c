// SPDX-License-Identifier: Apache-2.0
// Drawing work requests: opcode, size, scatter list; the other side's memory and the faults are
// drawn elsewhere.
#include "sim/plan.h"

#include <assert.h>
#include <string.h>

enum {
    GAP_MAX = 16,
    LONG_MIN = 16 * 1024,
    LONG_MAX = 64 * 1024,
    LONG_READ_MAX = 150 * 1024
};

static struct vb_prng *prng_of(struct vb_ep *ep)
{
    return &ep->node->world->prng;
}

static uint32_t draw(struct vb_ep *ep, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(prng_of(ep), lo, hi);
}

static bool chance(struct vb_ep *ep, uint32_t ppm)
{
    return vb_prng_chance(prng_of(ep), ppm);
}

static void cover(struct vb_ep *ep, enum vb_cover_row row)
{
    vb_cover(ep->node->world->cover, row);
}

// ---- what

uint32_t vb_plan_len(struct vb_ep *ep, enum vb_wr_opcode opcode)
{
    const struct vb_conn_mix *mix = &ep->conn->mix;
    uint32_t mtu = ep->link.mtu;

    if (chance(ep, mix->size_big))
        return draw(ep, LONG_MIN, opcode == VB_WR_READ ? LONG_READ_MAX : LONG_MAX);
    if (chance(ep, mix->size_mtu)) {
        uint32_t packets = draw(ep, 1, 4);
        return chance(ep, 500000) ? packets * mtu - 1 + draw(ep, 0, 2) : draw(ep, 1, packets * mtu);
    }
    switch (draw(ep, 0, 7)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return draw(ep, 65, 256);
    default: return draw(ep, 1, 64);
    }
}

static bool peer_grants(const struct vb_ep *ep, enum vb_wr_opcode opcode)
{
    uint32_t need = vb_plan_right(opcode);
    return (ep->peer->link.access & need) == need;
}

static enum vb_wr_opcode draw_opcode(struct vb_ep *ep)
{
    const uint32_t *parts = ep->conn->mix.parts;
    uint32_t all = 0, opcode = 0;

    for (int i = 0; i < VB_WR_OPCODES; i++)
        all += parts[i];
    for (uint32_t pick = draw(ep, 0, all - 1); pick >= parts[opcode]; opcode++)
        pick -= parts[opcode];
    return peer_grants(ep, (enum vb_wr_opcode)opcode) ? (enum vb_wr_opcode)opcode : VB_WR_SEND;
}

// Blocks that a request may need beyond those of its queue's depth count as further requests.
uint32_t vb_plan_weight(const struct vb_work *work)
{
    if (vb_work_changes_key(work))
        return 3;
    bool long_head = work->srqn && vb_work_is_atomic(work); // an atomic on XRC
    return work->opcode == VB_WR_MASKED_CAS || long_head ? 2 : 1;
}

static bool may_be_inline(const struct vb_work *work)
{
    return vb_work_sends(work) || vb_work_writes(work) || work->opcode == VB_WR_ATOMIC_WRITE;
}

uint32_t vb_plan_flags(struct vb_ep *ep, const struct vb_work *work)
{
    const struct vb_conn_mix *mix = &ep->conn->mix;
    // Half of the queue at most may wait for one signaled request.
    bool silent = ep->ask.unsignaled_run + vb_plan_weight(work) < (ep->opts.send_depth + 1) / 2 &&
                  chance(ep, mix->unsignaled_ppm);
    uint32_t flags = silent ? 0 : VB_WR_SIGNALED;

    flags |= chance(ep, mix->fence_ppm) ? VB_WR_FENCE : 0;
    flags |= chance(ep, 100000) ? VB_WR_SOLICITED : 0;
    if (may_be_inline(work) && work->len <= ep->opts.inline_bytes && chance(ep, mix->inline_ppm))
        flags |= VB_WR_INLINE;
    return flags;
}

// ---- where, on this side

// Cuts `len` bytes of the region from `offset` on into up to `max` pieces with gaps between them;
// the area is large enough for the gaps.
static uint32_t cut(struct vb_ep *ep, const struct vb_region *r, uint32_t offset, uint32_t len,
                    uint32_t max, struct vb_sge *sge)
{
    uint32_t pieces = max;

    if (!chance(ep, ep->conn->mix.lists_ppm))
        pieces = 1;
    else if (chance(ep, 500000))
        pieces = draw(ep, 1, max);
    if (len == 0)
        pieces = draw(ep, 0, 1);
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t left = pieces - i - 1;
        uint32_t n = left ? draw(ep, 0, 2 * len / (left + 1)) : len;
        n = n < len ? n : len;
        sge[i] = (struct vb_sge){r->addr + offset, n, r->key};
        offset += n + draw(ep, 0, GAP_MAX);
        len -= n;
    }
    return pieces;
}

static bool take_local(struct vb_ep *ep, struct vb_slots *slots, uint32_t len, uint32_t max,
                       struct vb_sge *sge, uint32_t *num_sge, uint64_t *end)
{
    uint32_t offset;

    if (!vb_slots_take(slots, len + max * GAP_MAX, &offset, end))
        return false;
    vb_hostmem_scribble(&ep->node->mem, slots->region->offset + offset, len + max * GAP_MAX);
    *num_sge = cut(ep, slots->region, offset, len, max, sge);
    return true;
}

// Memory that peers read and write meanwhile, so what is sent depends on when.
static bool take_shared(struct vb_ep *ep, struct vb_work *work)
{
    const struct vb_region *r = ep->node->exposed[ep->opts.domain][VB_EXPOSED_BOTH];

    if (work->len > r->len || work->len == 0)
        return false;
    work->num_sge = 1;
    work->sge[0] = (struct vb_sge){r->addr + draw(ep, 0, r->len - work->len), work->len, r->key};
    return true;
}

// The address of inline bytes is a real one: they never reach the wire as an address.
static void take_inline(struct vb_ep *ep, struct vb_work *work)
{
    for (uint32_t i = 0; i < work->len; i++)
        work->inlined[i] = (uint8_t)vb_prng_next(prng_of(ep));
    work->num_sge = 1;
    work->sge[0] = (struct vb_sge){(uint64_t)(uintptr_t)work->inlined, work->len, 0};
}

bool vb_plan_local(struct vb_ep *ep, struct vb_work *work)
{
    uint32_t pieces = vb_work_is_atomic(work) ? 1 : ep->opts.send_sge;

    work->slot_end = ep->local.head;
    if (work->opcode == VB_WR_NOP || work->opcode == VB_WR_FLUSH || vb_work_changes_key(work))
        return true;
    if (work->flags & VB_WR_INLINE) {
        take_inline(ep, work);
        return true;
    }
    if (chance(ep, 50000) && take_shared(ep, work))
        return true;
    return take_local(ep, &ep->local, work->len, pieces, work->sge, &work->num_sge,
                      &work->slot_end);
}

// ---- requests

static const enum vb_cover_row bad_row[VB_BAD_COUNT] = {
    [VB_BAD_RKEY] = VB_COVER_BAD_RKEY,
    [VB_BAD_BOUNDS] = VB_COVER_BAD_BOUNDS,
    [VB_BAD_RIGHT] = VB_COVER_BAD_RIGHT,
    [VB_BAD_QP_RIGHT] = VB_COVER_BAD_QP_RIGHT,
    [VB_BAD_DOMAIN] = VB_COVER_BAD_DOMAIN,
    [VB_BAD_ZERO] = VB_COVER_BAD_ZERO,
    [VB_BAD_STALE_KEY] = VB_COVER_BAD_STALE_KEY,
    [VB_BAD_TOO_LONG] = VB_COVER_BAD_TOO_LONG,
    [VB_BAD_UNALIGNED] = VB_COVER_BAD_UNALIGNED,
    [VB_BAD_ATOMIC_RIGHT] = VB_COVER_BAD_ATOMIC_RIGHT,
    [VB_BAD_FLUSH_RIGHT] = VB_COVER_BAD_FLUSH_RIGHT,
    [VB_BAD_WINDOW_QP] = VB_COVER_BAD_WINDOW_QP,
    [VB_BAD_WINDOW_STALE] = VB_COVER_BAD_WINDOW_STALE,
    [VB_BAD_INVAL_UNBOUND] = VB_COVER_BAD_INVAL_UNBOUND,
    [VB_BAD_INVAL_KIND] = VB_COVER_BAD_INVAL_KIND,
    [VB_BAD_INVAL_QP] = VB_COVER_BAD_INVAL_QP,
    [VB_BAD_BIND_BOUNDS] = VB_COVER_BAD_BIND_BOUNDS,
    [VB_BAD_BIND_RIGHT] = VB_COVER_BAD_BIND_RIGHT,
    [VB_BAD_BIND_TWICE] = VB_COVER_BAD_BIND_TWICE,
    [VB_BAD_BIND_DOMAIN] = VB_COVER_BAD_BIND_DOMAIN,
    [VB_BAD_LKEY] = VB_COVER_BAD_LKEY,
    [VB_BAD_LOCAL_BOUNDS] = VB_COVER_BAD_LOCAL_BOUNDS,
    [VB_BAD_LOCAL_DOMAIN] = VB_COVER_BAD_LOCAL_DOMAIN,
    [VB_BAD_LOCAL_RIGHT] = VB_COVER_BAD_LOCAL_RIGHT,
    [VB_BAD_LOCAL_WINDOW] = VB_COVER_BAD_LOCAL_WINDOW,
    [VB_BAD_WQE_DS] = VB_COVER_BAD_WQE_DS,
    [VB_BAD_WQE_OPCODE] = VB_COVER_BAD_WQE_OPCODE,
    [VB_BAD_WQE_OWNER] = VB_COVER_BAD_WQE_OWNER,
    [VB_BAD_WQE_SHORT] = VB_COVER_BAD_WQE_SHORT,
    [VB_BAD_WQE_OPMOD] = VB_COVER_BAD_WQE_OPMOD,
};

void vb_plan_cover(struct vb_ep *ep, const struct vb_work *work, enum vb_bad bad)
{
    bool damaged = bad >= VB_BAD_WQE_DS;

    if (bad != VB_BAD_NONE && (!damaged || work->malformed))
        cover(ep, bad_row[bad]);
    if (bad == VB_BAD_QP_RIGHT && vb_work_is_atomic(work))
        cover(ep, VB_COVER_BAD_QP_ATOMIC);
    if (bad == VB_BAD_QP_RIGHT && work->opcode == VB_WR_FLUSH)
        cover(ep, VB_COVER_BAD_QP_FLUSH);
    if (bad == VB_BAD_ZERO && ep->peer->node->checks_zero)
        cover(ep, VB_COVER_BAD_ZERO_STRICT);
    if (work->counts)
        cover(ep, VB_COVER_ATOMIC_COUNTED);
    if (work->opcode == VB_WR_FLUSH && work->flush.persistent)
        cover(ep, VB_COVER_WORK_PERSISTENT);
    if (work->opcode == VB_WR_FLUSH && work->flush.whole_region)
        cover(ep, VB_COVER_WORK_WHOLE_FLUSH);
    if (work->opcode == VB_WR_NOP)
        cover(ep, VB_COVER_WORK_NOP);
    else if (work->len == 0)
        cover(ep, VB_COVER_WORK_ZERO);
    if (work->opcode == VB_WR_READ && work->len > 64 * 1024)
        cover(ep, VB_COVER_WORK_LONG_READ);
    if (work->opcode != VB_WR_READ && work->len >= LONG_MIN) // SEND or WRITE
        cover(ep, VB_COVER_WORK_LONG_WRITE);
    if (!(work->flags & VB_WR_SIGNALED))
        cover(ep, VB_COVER_WORK_UNSIGNALED);
    if (work->flags & VB_WR_SOLICITED)
        cover(ep, VB_COVER_WORK_SOLICITED);
    if (work->flags & VB_WR_INLINE)
        cover(ep, VB_COVER_WORK_INLINE);
    if (work->num_sge == VB_MAX_SGE)
        cover(ep, VB_COVER_WORK_LISTS);
    if (work->num_sge == 1 &&
        work->sge[0].lkey == ep->node->exposed[ep->opts.domain][VB_EXPOSED_BOTH]->key)
        cover(ep, VB_COVER_WORK_SHARED_SOURCE);
}

// What the opcode makes of the length that was drawn.
static void settle_len(struct vb_ep *ep, struct vb_work *work, bool too_long)
{
    uint32_t limit = ep->opts.local_bytes / 2 - VB_MAX_SGE * GAP_MAX;

    if (vb_work_is_atomic(work)) {
        bool masked = work->opcode == VB_WR_MASKED_CAS || work->opcode == VB_WR_MASKED_FADD;
        work->len = masked && chance(ep, 400000) ? 4 : 8;
    } else if (work->opcode == VB_WR_ATOMIC_WRITE) {
        work->len = 8;
    } else if (!vb_work_sends(work) && !vb_work_writes(work) && work->opcode != VB_WR_READ) {
        work->len = 0;
    }
    uint32_t room = ep->peer->opts.recv_room;
    if (work->opcode == VB_WR_SEND_INVAL && room > ep->link.mtu && chance(ep, 300000))
        work->len = draw(ep, ep->link.mtu + 1, room); // few would be so long by chance
    if (vb_work_sends(work) && work->len > room && !too_long)
        work->len = draw(ep, 0, room);
    if (work->len > limit && !too_long)
        work->len = limit;
}

// The other side's memory, or a key. What cannot be had now becomes something harmless.
static void draw_target(struct vb_ep *ep, struct vb_work *work, enum vb_bad *bad)
{
    bool remote = vb_plan_right(work->opcode) != 0;
    bool right = !remote || vb_plan_remote(ep, work);

    if (work->opcode == VB_WR_SEND_IMM || work->opcode == VB_WR_WRITE_IMM)
        work->imm = draw(ep, 0, UINT32_MAX);
    if (vb_spoil_is_remote(*bad)) {
        if (!right && vb_work_is_atomic(work))
            vb_plan_arguments(ep, work); // wherever it will go
        right = vb_spoil_remote(ep, work, *bad);
    }
    if (vb_spoil_is_key(*bad))
        right = vb_spoil_key(ep, work, *bad);
    else if (vb_work_changes_key(work) || work->opcode == VB_WR_SEND_INVAL)
        right = vb_plan_key(ep, work);
    if (right)
        return;
    *bad = VB_BAD_NONE;
    work->counts = false;
    work->opcode = work->opcode == VB_WR_SEND_INVAL ? VB_WR_SEND : VB_WR_NOP;
    settle_len(ep, work, false);
}

bool vb_plan_work(struct vb_ep *ep, struct vb_work *work, enum vb_bad *bad)
{
    if (vb_ep_is_unreliable(ep))
        return vb_plan_unreliable(ep, work, bad);
    memset(work, 0, sizeof *work);
    work->wr_id = ep->next_wr_id++;
    work->opcode = draw_opcode(ep);
    work->len = vb_plan_len(ep, work->opcode);
    if (*bad != VB_BAD_NONE && !vb_spoil_shape(ep, work, *bad))
        *bad = VB_BAD_NONE;
    if (!peer_grants(ep, work->opcode) && *bad != VB_BAD_QP_RIGHT)
        work->opcode = VB_WR_NOP;
    if (ep->opts.service == VB_SERVICE_XRC_SEND)
        vb_plan_xrc(ep, work, bad);
    settle_len(ep, work, *bad == VB_BAD_TOO_LONG);
    draw_target(ep, work, bad);
    work->flags = vb_plan_flags(ep, work);
    if (!vb_plan_local(ep, work))
        return false;
    bool local = *bad >= VB_BAD_LKEY && *bad <= VB_BAD_LOCAL_WINDOW;
    if (local && !vb_spoil_local(ep, work, *bad))
        *bad = VB_BAD_NONE;
    return true;
}

void vb_plan_marker(struct vb_ep *ep, struct vb_work *work)
{
    memset(work, 0, sizeof *work);
    work->wr_id = ep->next_wr_id++;
    work->opcode = VB_WR_NOP;
    work->flags = VB_WR_SIGNALED;
    work->slot_end = ep->local.head;
}

bool vb_plan_intake(struct vb_ep *ep, struct vb_intake *in)
{
    uint32_t bad_ppm =
        ep->node->world->phase == VB_PHASE_FAULTS ? ep->node->world->scen.bad_recv_ppm : 0;

    memset(in, 0, sizeof *in);
    in->wr_id = ep->next_wr_id++;
    in->room = ep->opts.recv_room;
    if (chance(ep, bad_ppm))
        in->room = draw(ep, 0, in->room); // a longer message will find it too short
    if (!take_local(ep, &ep->recv, in->room, ep->opts.recv_sge, in->sge, &in->num_sge,
                    &in->slot_end))
        return false;
    if (in->num_sge && chance(ep, bad_ppm)) {
        in->sge[draw(ep, 0, in->num_sge - 1)].lkey ^= 1u << draw(ep, 0, 31);
        cover(ep, VB_COVER_BAD_RECV_LKEY);
    }
    return true;
}
