// SPDX-License-Identifier: Apache-2.0
// Drawing work requests: opcode, size, scatter list, remote place, and now and then a fault.
#include "sim/script.h"

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

static uint32_t draw_len(struct vb_ep *ep, enum vb_wr_opcode opcode)
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
    uint32_t need = opcode == VB_WR_WRITE  ? VB_REMOTE_WRITE
                    : opcode == VB_WR_READ ? VB_REMOTE_READ
                                           : 0;
    return (ep->peer->link.access & need) == need;
}

static enum vb_wr_opcode draw_opcode(struct vb_ep *ep)
{
    const struct vb_conn_mix *m = &ep->conn->mix;
    uint32_t pick = draw(ep, 0, m->send + m->write + m->read + m->nop - 1);
    enum vb_wr_opcode opcode = pick < m->send                        ? VB_WR_SEND
                               : pick < m->send + m->write           ? VB_WR_WRITE
                               : pick < m->send + m->write + m->read ? VB_WR_READ
                                                                     : VB_WR_NOP;
    return peer_grants(ep, opcode) ? opcode : VB_WR_SEND;
}

static uint32_t draw_flags(struct vb_ep *ep, const struct vb_work *work)
{
    const struct vb_conn_mix *mix = &ep->conn->mix;
    // Half of the queue at most may wait for one signaled request.
    bool silent = ep->ask.unsignaled_run + 1 < (ep->opts.send_depth + 1) / 2 &&
                  chance(ep, mix->unsignaled_ppm);
    uint32_t flags = silent ? 0 : VB_WR_SIGNALED;

    flags |= chance(ep, mix->fence_ppm) ? VB_WR_FENCE : 0;
    flags |= chance(ep, 100000) ? VB_WR_SOLICITED : 0;
    bool may_inline = work->opcode == VB_WR_SEND || work->opcode == VB_WR_WRITE;
    if (may_inline && work->len <= ep->opts.inline_bytes && chance(ep, mix->inline_ppm))
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

static bool draw_local(struct vb_ep *ep, struct vb_work *work)
{
    work->slot_end = ep->local.head;
    if (work->opcode == VB_WR_NOP)
        return true;
    if (work->flags & VB_WR_INLINE) {
        take_inline(ep, work);
        return true;
    }
    if (chance(ep, 50000) && take_shared(ep, work))
        return true;
    work->is_private = true;
    return take_local(ep, &ep->local, work->len, ep->opts.send_sge, work->sge, &work->num_sge,
                      &work->slot_end);
}

// ---- where, on the other side

static const struct vb_region *peer_region(const struct vb_ep *ep, enum vb_exposed kind)
{
    return ep->peer->node->exposed[ep->peer->opts.domain][kind];
}

// Half of the time near the region's start, so that requests overlap.
static void draw_remote(struct vb_ep *ep, struct vb_work *work)
{
    enum vb_exposed other = work->opcode == VB_WR_READ ? VB_EXPOSED_READ : VB_EXPOSED_WRITE;
    const struct vb_region *r = peer_region(ep, chance(ep, 700000) ? VB_EXPOSED_BOTH : other);

    if (work->len > r->len)
        work->len = r->len;
    uint32_t room = r->len - work->len;
    work->rkey = r->key;
    work->raddr = r->addr + draw(ep, 0, chance(ep, 500000) && room > 512 ? 512 : room);
}

// ---- faults

static void need_bytes(struct vb_ep *ep, struct vb_work *work)
{
    if (work->len == 0)
        work->len = draw(ep, 1, 64);
}

static bool spoil_remote(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    const struct vb_region *r = peer_region(ep, VB_EXPOSED_BOTH);

    if (bad != VB_BAD_ZERO)
        need_bytes(ep, work);
    switch (bad) {
    case VB_BAD_RKEY: work->rkey ^= 1u << draw(ep, 0, 31); return true;
    case VB_BAD_ZERO:
        work->len = 0;
        work->rkey = draw(ep, 0x10000, UINT32_MAX);
        return true;
    case VB_BAD_BOUNDS:
        work->rkey = r->key;
        work->len = work->len < r->len ? work->len : r->len;
        work->raddr = chance(ep, 500000) ? r->addr - 1 : r->addr + r->len - work->len + 1;
        return true;
    case VB_BAD_RIGHT:
        r = peer_region(ep, chance(ep, 300000)           ? VB_EXPOSED_NONE
                            : work->opcode == VB_WR_READ ? VB_EXPOSED_WRITE
                                                         : VB_EXPOSED_READ);
        break;
    case VB_BAD_DOMAIN: r = ep->peer->node->exposed[!ep->peer->opts.domain][VB_EXPOSED_BOTH]; break;
    case VB_BAD_STALE_KEY:
        work->rkey = r->dead_key;
        work->raddr = r->addr;
        return r->dead_key != 0;
    default: return false;
    }
    work->rkey = r->key;
    work->raddr = r->addr;
    work->len = work->len < r->len ? work->len : r->len;
    return true;
}

// The right that the peer's queue pair does not grant.
static bool spoil_right(struct vb_ep *ep, struct vb_work *work)
{
    work->opcode = chance(ep, 500000) ? VB_WR_WRITE : VB_WR_READ;
    return !peer_grants(ep, work->opcode);
}

static bool spoil_local(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    const struct vb_node *node = ep->node;
    const struct vb_region *r = node->exposed[ep->opts.domain][VB_EXPOSED_BOTH];
    struct vb_sge *sge = work->num_sge ? &work->sge[draw(ep, 0, work->num_sge - 1)] : NULL;

    if (!sge || sge->len == 0 || work->flags & VB_WR_INLINE)
        return false;
    work->is_private = false;
    switch (bad) {
    case VB_BAD_LKEY: sge->lkey ^= 1u << draw(ep, 0, 31); return true;
    case VB_BAD_LOCAL_BOUNDS:
        if (sge->len > r->len)
            return false;
        *sge = (struct vb_sge){r->addr + r->len - sge->len + 1, sge->len, r->key};
        return true;
    case VB_BAD_LOCAL_DOMAIN: r = node->exposed[!ep->opts.domain][VB_EXPOSED_BOTH]; break;
    case VB_BAD_LOCAL_RIGHT:
        r = node->exposed[ep->opts.domain][VB_EXPOSED_READ];
        if (work->opcode != VB_WR_READ)
            return false;
        break;
    default: return false;
    }
    if (sge->len > r->len)
        return false;
    *sge = (struct vb_sge){r->addr, sge->len, r->key};
    return true;
}

static bool is_remote_fault(enum vb_bad bad)
{
    return bad == VB_BAD_RKEY || bad == VB_BAD_BOUNDS || bad == VB_BAD_RIGHT ||
           bad == VB_BAD_DOMAIN || bad == VB_BAD_ZERO || bad == VB_BAD_STALE_KEY;
}

// Faults that shape the request before its memory is drawn. False: does not fit this request.
static bool spoil_shape(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    switch (bad) {
    case VB_BAD_QP_RIGHT: return spoil_right(ep, work);
    case VB_BAD_TOO_LONG:
        work->opcode = VB_WR_SEND;
        work->len = ep->peer->opts.recv_room + draw(ep, 1, ep->link.mtu);
        return work->len < ep->opts.local_bytes / 2;
    default:
        return !is_remote_fault(bad) || work->opcode == VB_WR_WRITE || work->opcode == VB_WR_READ;
    }
}

static const enum vb_cover_row bad_row[VB_BAD_COUNT] = {
    [VB_BAD_RKEY] = VB_COVER_BAD_RKEY,
    [VB_BAD_BOUNDS] = VB_COVER_BAD_BOUNDS,
    [VB_BAD_RIGHT] = VB_COVER_BAD_RIGHT,
    [VB_BAD_QP_RIGHT] = VB_COVER_BAD_QP_RIGHT,
    [VB_BAD_DOMAIN] = VB_COVER_BAD_DOMAIN,
    [VB_BAD_ZERO] = VB_COVER_BAD_ZERO,
    [VB_BAD_STALE_KEY] = VB_COVER_BAD_STALE_KEY,
    [VB_BAD_TOO_LONG] = VB_COVER_BAD_TOO_LONG,
    [VB_BAD_LKEY] = VB_COVER_BAD_LKEY,
    [VB_BAD_LOCAL_BOUNDS] = VB_COVER_BAD_LOCAL_BOUNDS,
    [VB_BAD_LOCAL_DOMAIN] = VB_COVER_BAD_LOCAL_DOMAIN,
    [VB_BAD_LOCAL_RIGHT] = VB_COVER_BAD_LOCAL_RIGHT,
    [VB_BAD_WQE_DS] = VB_COVER_BAD_WQE_DS,
    [VB_BAD_WQE_OPCODE] = VB_COVER_BAD_WQE_OPCODE,
    [VB_BAD_WQE_OWNER] = VB_COVER_BAD_WQE_OWNER,
};

// ---- requests

void vb_plan_cover(struct vb_ep *ep, const struct vb_work *work, enum vb_bad bad)
{
    bool damaged = bad >= VB_BAD_WQE_DS;

    if (bad != VB_BAD_NONE && (!damaged || work->malformed))
        cover(ep, bad_row[bad]);
    if (work->opcode == VB_WR_NOP)
        cover(ep, VB_COVER_WORK_NOP);
    else if (work->len == 0)
        cover(ep, VB_COVER_WORK_ZERO);
    if (work->opcode == VB_WR_READ && work->len > 64 * 1024)
        cover(ep, VB_COVER_WORK_LONG_READ);
    if (work->opcode != VB_WR_READ && work->len >= LONG_MIN)
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

static void limit_len(struct vb_ep *ep, struct vb_work *work)
{
    uint32_t limit = ep->opts.local_bytes / 2 - VB_MAX_SGE * GAP_MAX;

    if (work->opcode == VB_WR_SEND && work->len > ep->peer->opts.recv_room)
        work->len = draw(ep, 0, ep->peer->opts.recv_room);
    if (work->len > limit)
        work->len = limit;
    if (work->opcode == VB_WR_NOP)
        work->len = 0;
}

bool vb_plan_work(struct vb_ep *ep, struct vb_work *work, enum vb_bad *bad)
{
    memset(work, 0, sizeof *work);
    work->wr_id = ep->next_wr_id++;
    work->opcode = draw_opcode(ep);
    work->len = draw_len(ep, work->opcode);
    limit_len(ep, work);
    if (*bad != VB_BAD_NONE && !spoil_shape(ep, work, *bad))
        *bad = VB_BAD_NONE;
    if (!peer_grants(ep, work->opcode) && *bad != VB_BAD_QP_RIGHT)
        work->opcode = VB_WR_NOP;
    if (work->opcode == VB_WR_WRITE || work->opcode == VB_WR_READ)
        draw_remote(ep, work);
    if (is_remote_fault(*bad) && !spoil_remote(ep, work, *bad))
        *bad = VB_BAD_NONE;
    if (work->opcode == VB_WR_NOP)
        work->len = 0;
    work->flags = draw_flags(ep, work);
    if (!draw_local(ep, work))
        return false;
    bool local = *bad >= VB_BAD_LKEY && *bad <= VB_BAD_LOCAL_RIGHT;
    if (local && !spoil_local(ep, work, *bad))
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
