// SPDX-License-Identifier: Apache-2.0
// Work requests that are wrong on purpose.
#include "sim/plan.h"

static uint32_t draw(struct vb_ep *ep, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(&ep->node->world->prng, lo, hi);
}

static bool chance(struct vb_ep *ep, uint32_t ppm)
{
    return vb_prng_chance(&ep->node->world->prng, ppm);
}

static bool peer_grants(const struct vb_ep *ep, enum vb_wr_opcode opcode)
{
    uint32_t need = vb_plan_right(opcode);
    return (ep->peer->link.access & need) == need;
}

// ---- what

// Another operation on the peer's memory, which its queue pair grants, or does not.
static bool become(struct vb_ep *ep, struct vb_work *work, uint32_t kinds, bool granted)
{
    static const enum vb_wr_opcode all[] = {VB_WR_WRITE, VB_WR_READ,       VB_WR_WRITE_IMM,
                                            VB_WR_FADD,  VB_WR_CAS,        VB_WR_ATOMIC_WRITE,
                                            VB_WR_FLUSH, VB_WR_MASKED_FADD};
    uint32_t first = draw(ep, 0, kinds - 1);

    for (uint32_t i = 0; i < kinds; i++) {
        work->opcode = all[(first + i) % kinds];
        if (peer_grants(ep, work->opcode) == granted)
            return true;
    }
    return false;
}

static enum vb_wr_opcode shape_of(struct vb_ep *ep, enum vb_bad bad)
{
    static const enum vb_wr_opcode aligned[] = {VB_WR_CAS, VB_WR_FADD, VB_WR_MASKED_CAS,
                                                VB_WR_MASKED_FADD, VB_WR_ATOMIC_WRITE};
    switch (bad) {
    case VB_BAD_UNALIGNED: return aligned[draw(ep, 0, 4)];
    case VB_BAD_ATOMIC_RIGHT: return aligned[draw(ep, 0, 3)];
    case VB_BAD_FLUSH_RIGHT: return VB_WR_FLUSH;
    case VB_BAD_WINDOW_QP:
    case VB_BAD_WINDOW_STALE: return chance(ep, 500000) ? VB_WR_WRITE : VB_WR_READ;
    case VB_BAD_INVAL_UNBOUND:
    case VB_BAD_INVAL_KIND:
    case VB_BAD_INVAL_QP: return chance(ep, 500000) ? VB_WR_LOCAL_INVAL : VB_WR_SEND_INVAL;
    default: return VB_WR_BIND;
    }
}

static bool names_memory(const struct vb_work *work)
{
    return vb_work_writes(work) || work->opcode == VB_WR_READ;
}

bool vb_spoil_shape(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    switch (bad) {
    case VB_BAD_QP_RIGHT: return become(ep, work, 8, false);
    case VB_BAD_TOO_LONG:
        work->opcode = VB_WR_SEND;
        work->len = ep->peer->opts.recv_room + draw(ep, 1, ep->link.mtu);
        return work->len < ep->opts.local_bytes / 2;
    case VB_BAD_RKEY:
    case VB_BAD_BOUNDS:
    case VB_BAD_DOMAIN:
    case VB_BAD_STALE_KEY: return become(ep, work, 8, true);
    case VB_BAD_RIGHT:
    case VB_BAD_ZERO: return become(ep, work, 3, true);
    default: break;
    }
    if (bad < VB_BAD_UNALIGNED || bad > VB_BAD_BIND_DOMAIN)
        return true;
    work->opcode = shape_of(ep, bad);
    return peer_grants(ep, work->opcode);
}

bool vb_spoil_is_remote(enum vb_bad bad)
{
    return (bad >= VB_BAD_RKEY && bad <= VB_BAD_STALE_KEY && bad != VB_BAD_QP_RIGHT) ||
           (bad >= VB_BAD_UNALIGNED && bad <= VB_BAD_WINDOW_STALE);
}

bool vb_spoil_is_key(enum vb_bad bad)
{
    return bad >= VB_BAD_INVAL_UNBOUND && bad <= VB_BAD_BIND_DOMAIN;
}

// ---- where, on the other side

static void need_bytes(struct vb_ep *ep, struct vb_work *work)
{
    if (names_memory(work) && work->len == 0)
        work->len = draw(ep, 1, 64);
}

// At the start of a region, or at its first aligned byte.
static bool go_to(struct vb_ep *ep, struct vb_work *work, const struct vb_region *r)
{
    bool aligned = vb_work_is_atomic(work) || work->opcode == VB_WR_ATOMIC_WRITE;

    work->counts = false;
    work->rkey = r->key;
    work->raddr = aligned ? (r->addr + 7) & ~7ull : r->addr;
    work->len = work->len < r->len ? work->len : r->len;
    if (vb_work_is_atomic(work))
        vb_plan_arguments(ep, work);
    return true;
}

static bool go_out_of_bounds(struct vb_ep *ep, struct vb_work *work, const struct vb_region *r)
{
    go_to(ep, work, r);
    if (work->opcode == VB_WR_FLUSH)
        work->flush = (struct vb_work_flush){.len = r->len + 1};
    else
        work->raddr = chance(ep, 500000) ? r->addr - 1 : r->addr + r->len - work->len + 1;
    return true;
}

static bool go_to_dead_key(struct vb_work *work, uint32_t key, uint64_t addr)
{
    work->counts = false;
    work->rkey = key;
    work->raddr = addr;
    return key != 0;
}

static bool go_to_dead_region(const struct vb_ep *ep, struct vb_work *work)
{
    for (int kind = 0; kind < VB_SIM_EXPOSED; kind++) {
        const struct vb_region *r = vb_plan_region(ep, (enum vb_exposed)kind);
        if (go_to_dead_key(work, r->dead_key, r->addr))
            return true;
    }
    return false;
}

// A window of a neighbour: bound, of the right domain, but to another queue pair. NULL: none.
static const struct vb_window *neighbour_of(const struct vb_ep *ep)
{
    for (uint32_t i = 0; i < ep->node->ep_count; i++) {
        const struct vb_window *w = ep->node->ep[i]->window;
        if (w->bound && w->pd == ep->pd && w->qpn != ep->qpn)
            return w;
    }
    return NULL;
}

static bool go_to_neighbour(struct vb_ep *ep, struct vb_work *work)
{
    const struct vb_window *w = neighbour_of(ep->peer);

    if (!w)
        return false;
    work->rkey = w->key;
    work->raddr = w->start;
    work->len = work->len < w->len ? work->len : w->len;
    return true;
}

bool vb_spoil_remote(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    bool plain = names_memory(work);
    const struct vb_region *r = vb_plan_region(ep, plain ? VB_EXPOSED_BOTH : VB_EXPOSED_ALL);
    enum vb_exposed other = work->opcode == VB_WR_READ ? VB_EXPOSED_WRITE : VB_EXPOSED_READ;

    if (bad != VB_BAD_ZERO)
        need_bytes(ep, work);
    switch (bad) {
    case VB_BAD_RKEY:
        work->counts = false;
        work->rkey ^= 1u << draw(ep, 0, 31);
        return true;
    case VB_BAD_ZERO:
        work->len = 0;
        work->rkey = draw(ep, 0x10000, UINT32_MAX);
        return true;
    case VB_BAD_BOUNDS: return go_out_of_bounds(ep, work, r);
    case VB_BAD_RIGHT:
        return go_to(ep, work, vb_plan_region(ep, chance(ep, 300000) ? VB_EXPOSED_NONE : other));
    case VB_BAD_DOMAIN:
        return go_to(ep, work,
                     ep->peer->node->exposed[!ep->peer->opts.domain]
                                            [plain ? VB_EXPOSED_BOTH : VB_EXPOSED_ALL]);
    case VB_BAD_STALE_KEY: return go_to_dead_region(ep, work);
    case VB_BAD_UNALIGNED:
        if (chance(ep, 500000))
            return go_to(ep, work, vb_plan_region(ep, VB_EXPOSED_SKEWED));
        go_to(ep, work, r);
        work->raddr += draw(ep, 1, work->len - 1);
        return true;
    case VB_BAD_ATOMIC_RIGHT:
    case VB_BAD_FLUSH_RIGHT: return go_to(ep, work, vb_plan_region(ep, VB_EXPOSED_BOTH));
    case VB_BAD_WINDOW_QP: return go_to_neighbour(ep, work);
    case VB_BAD_WINDOW_STALE:
        return go_to_dead_key(work, ep->peer->window->dead_key, ep->peer->window->start);
    default: return false;
    }
}

// ---- keys

// Not the key of a window that this queue pair may unbind.
static bool spoil_invalidation(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    const struct vb_ep *owner = work->opcode == VB_WR_SEND_INVAL ? ep->peer : ep;
    const struct vb_node *node = owner->node;

    if (bad == VB_BAD_INVAL_UNBOUND) {
        work->imm = owner->window->key;
        return !owner->window->bound;
    }
    if (bad == VB_BAD_INVAL_QP) {
        const struct vb_window *w = neighbour_of(owner);
        work->imm = w ? w->key : 0;
        return w;
    }
    work->imm = chance(ep, 500000) ? node->exposed[owner->opts.domain][VB_EXPOSED_ALL]->key
                                   : node->window[owner->opts.domain]->key;
    return true;
}

bool vb_spoil_key(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    struct vb_node *node = ep->node;
    uint32_t domain = ep->opts.domain;
    const struct vb_region *r = node->exposed[domain][VB_EXPOSED_ALL];

    if (bad <= VB_BAD_INVAL_QP)
        return spoil_invalidation(ep, work, bad);
    vb_plan_binding(ep, work, bad == VB_BAD_BIND_TWICE ? ep->window : node->window[domain]);
    work->bind.len = work->bind.len ? work->bind.len : 1;
    switch (bad) {
    case VB_BAD_BIND_BOUNDS: work->bind.addr = r->addr + r->len - work->bind.len + 1; return true;
    case VB_BAD_BIND_RIGHT: // none to bind, or none to store
        r = node->exposed[domain][chance(ep, 500000) ? VB_EXPOSED_BOTH : VB_EXPOSED_READ];
        work->bind.rights |= chance(ep, 500000) ? VB_REMOTE_WRITE : VB_REMOTE_ATOMIC;
        work->bind.region = r->key;
        work->bind.addr = r->addr;
        work->bind.len = 1;
        return true;
    case VB_BAD_BIND_TWICE: return ep->window->bound;
    default:
        r = node->exposed[!domain][VB_EXPOSED_ALL];
        work->bind.region = r->key;
        work->bind.addr = r->addr;
        work->bind.len = 1;
        return true;
    }
}

// ---- where, on this side

bool vb_spoil_local(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    const struct vb_node *node = ep->node;
    const struct vb_region *r = node->exposed[ep->opts.domain][VB_EXPOSED_BOTH];
    struct vb_sge *sge = work->num_sge ? &work->sge[draw(ep, 0, work->num_sge - 1)] : NULL;
    bool stores = work->opcode == VB_WR_READ || vb_work_is_atomic(work);

    if (!sge || sge->len == 0 || work->flags & VB_WR_INLINE)
        return false;
    switch (bad) {
    case VB_BAD_LKEY: sge->lkey ^= 1u << draw(ep, 0, 31); return true;
    case VB_BAD_LOCAL_BOUNDS:
        if (sge->len > r->len)
            return false;
        *sge = (struct vb_sge){r->addr + r->len - sge->len + 1, sge->len, r->key};
        return true;
    case VB_BAD_LOCAL_WINDOW:
        sge->lkey = node->window[ep->opts.domain]->key;
        sge->addr = node->window[ep->opts.domain]->start;
        return true;
    case VB_BAD_LOCAL_DOMAIN: r = node->exposed[!ep->opts.domain][VB_EXPOSED_BOTH]; break;
    case VB_BAD_LOCAL_RIGHT:
        r = node->exposed[ep->opts.domain][VB_EXPOSED_READ];
        if (!stores)
            return false;
        break;
    default: return false;
    }
    if (sge->len > r->len)
        return false;
    *sge = (struct vb_sge){r->addr, sge->len, r->key};
    return true;
}
