// SPDX-License-Identifier: Apache-2.0
// Drawing the other side's memory: regions, windows, counters, and what an atomic does there.
#include "sim/plan.h"

#include <string.h>

enum {
    NEAR = 512,            // bytes at a region's start where requests meet
    RACE_PPM = 30000,      // keys that are changed although somebody uses them
    BOUND_BYTES_MAX = 6000 // of a binding
};

static uint32_t draw(struct vb_ep *ep, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(&ep->node->world->prng, lo, hi);
}

static bool chance(struct vb_ep *ep, uint32_t ppm)
{
    return vb_prng_chance(&ep->node->world->prng, ppm);
}

static uint64_t draw_64(struct vb_ep *ep)
{
    return vb_prng_next(&ep->node->world->prng);
}

const struct vb_region *vb_plan_region(const struct vb_ep *ep, enum vb_exposed kind)
{
    return ep->peer->node->exposed[ep->peer->opts.domain][kind];
}

uint32_t vb_plan_right(enum vb_wr_opcode opcode)
{
    switch (opcode) {
    case VB_WR_WRITE:
    case VB_WR_WRITE_IMM:
    case VB_WR_ATOMIC_WRITE: return VB_REMOTE_WRITE;
    case VB_WR_READ: return VB_REMOTE_READ;
    case VB_WR_CAS:
    case VB_WR_FADD:
    case VB_WR_MASKED_CAS:
    case VB_WR_MASKED_FADD: return VB_REMOTE_ATOMIC;
    case VB_WR_FLUSH: return VB_FLUSH_GLOBAL;
    default: return 0;
    }
}

// ---- places

// A run of the peer's memory and how it is named.
struct place {
    uint64_t addr;
    uint32_t key, offset, len;
};

static struct place place_of(const struct vb_region *r)
{
    return (struct place){r->addr, r->key, r->offset, r->len};
}

// Half of the time near the start, so that requests overlap. False: nothing aligned fits.
static bool settle(struct vb_ep *ep, struct vb_work *work, const struct place *p, uint32_t align)
{
    if (p->len < work->len || (p->addr - p->offset) % align != 0)
        return false;
    uint32_t skip = (uint32_t)(-p->addr & (align - 1));
    if (p->len - work->len < skip)
        return false;
    uint32_t room = (p->len - work->len - skip) / align;
    uint32_t near = NEAR / (align * align);
    work->rkey = p->key;
    work->raddr = p->addr + skip +
                  (uint64_t)align * draw(ep, 0, chance(ep, 500000) && room > near ? near : room);
    return true;
}

// ---- windows

static bool names(const struct vb_window *w, uint32_t key)
{
    return key >> 8 == w->key >> 8;
}

// Nobody changes it, and unless it is only to be used, nobody uses it.
static bool is_quiet(struct vb_node *owner, const struct vb_window *w, bool for_use)
{
    for (uint32_t i = 0; i < owner->ep_count; i++) {
        struct vb_ep *ep = owner->ep[i], *peer = ep->peer;
        for (uint64_t at = ep->ask.done; at < ep->ask.posted; at++) {
            const struct vb_work *work = vb_ep_work(ep, at);
            if (vb_work_changes_key(work) && names(w, work->imm))
                return false;
        }
        for (uint64_t at = peer->ask.done; at < peer->ask.posted; at++) {
            const struct vb_work *work = vb_ep_work(peer, at);
            if ((work->opcode == VB_WR_SEND_INVAL && names(w, work->imm)) ||
                (!for_use && vb_plan_right(work->opcode) && names(w, work->rkey)))
                return false;
        }
    }
    return true;
}

static bool settle_in_window(struct vb_ep *ep, struct vb_work *work, uint32_t align)
{
    struct vb_node *owner = ep->peer->node;
    const struct vb_window *w =
        chance(ep, 600000) ? ep->peer->window : owner->window[ep->peer->opts.domain];
    uint32_t need = vb_plan_right(work->opcode);

    if (!w->bound || (w->access & need) != need || (w->type2 && w->qpn != ep->peer->qpn) ||
        !is_quiet(owner, w, true))
        return false;
    if (!settle(ep, work, &(struct place){w->start, w->key, w->offset, w->len}, align))
        return false;
    vb_cover(ep->node->world->cover, VB_COVER_WINDOW_USED);
    return true;
}

// ---- atomics

static uint64_t present_value(const struct vb_ep *ep, const struct vb_work *work)
{
    const struct vb_hostmem *mem = &ep->peer->node->mem;
    uint32_t offset, narrow;
    uint64_t wide;

    if (vb_hostmem_judge(mem, vb_ep_user(ep->peer), work->rkey, work->raddr, work->len,
                         VB_REMOTE_ATOMIC, &offset) != VB_MEM_OK)
        return 0;
    memcpy(&wide, mem->shadow + offset, sizeof wide);
    memcpy(&narrow, mem->shadow + offset, sizeof narrow);
    return work->len == 8 ? wide : narrow;
}

// Some bits, whole bytes, all or none.
static uint64_t draw_mask(struct vb_ep *ep)
{
    switch (draw(ep, 0, 4)) {
    case 0: return 0;
    case 1: return UINT64_MAX;
    case 2: return 0xffull << 8 * draw(ep, 0, 7);
    case 3: return 0x8080808080808080ull;
    default: return draw_64(ep) & draw_64(ep);
    }
}

void vb_plan_arguments(struct vb_ep *ep, struct vb_work *work)
{
    struct vb_work_atomic *a = &work->atomic;
    uint64_t all = work->len == 8 ? UINT64_MAX : UINT32_MAX;

    a->bytes = work->len;
    a->swap_add = (chance(ep, 300000) ? draw(ep, 0, 3) : draw_64(ep)) & all;
    a->compare = (chance(ep, 700000) ? present_value(ep, work) : draw_64(ep)) & all;
    if (work->opcode == VB_WR_MASKED_CAS) {
        a->swap_mask = draw_mask(ep) & all;
        a->compare_mask = draw_mask(ep) & all;
    } else if (work->opcode == VB_WR_MASKED_FADD) {
        a->compare = draw_mask(ep) & all;
    }
}

// Additions of one, to memory that nothing else changes.
static bool draw_counting(struct vb_ep *ep, struct vb_work *work)
{
    const struct vb_region *r = vb_plan_region(ep, VB_EXPOSED_COUNTERS);

    if (work->opcode != VB_WR_FADD || chance(ep, 400000))
        return false;
    work->counts = true;
    work->rkey = r->key;
    work->raddr = r->addr + 8 * draw(ep, 0, r->len / 8 - 1);
    work->atomic = (struct vb_work_atomic){.swap_add = 1, .bytes = 8};
    return true;
}

// ---- a good request

static void draw_flush(struct vb_ep *ep, struct vb_work *work)
{
    const struct vb_region *r = vb_plan_region(ep, VB_EXPOSED_ALL);
    uint32_t at = draw(ep, 0, r->len);

    work->rkey = r->key;
    work->raddr = r->addr + at;
    bool may_persist = ep->peer->link.access & VB_FLUSH_PERSISTENT;
    work->flush = (struct vb_work_flush){.len = draw(ep, 0, r->len - at),
                                         .whole_region = chance(ep, 300000),
                                         .persistent = may_persist && chance(ep, 300000)};
}

static uint32_t align_of(const struct vb_work *work)
{
    return vb_work_is_atomic(work) || work->opcode == VB_WR_ATOMIC_WRITE ? work->len : 1;
}

bool vb_plan_remote(struct vb_ep *ep, struct vb_work *work)
{
    enum vb_exposed other = work->opcode == VB_WR_READ ? VB_EXPOSED_READ : VB_EXPOSED_WRITE;
    uint32_t align = align_of(work);
    struct place p = place_of(vb_plan_region(ep, VB_EXPOSED_ALL));

    if (work->opcode == VB_WR_FLUSH) {
        draw_flush(ep, work);
        return true;
    }
    if (draw_counting(ep, work))
        return true;
    if (!vb_work_is_atomic(work) && !chance(ep, 200000))
        p = place_of(vb_plan_region(ep, chance(ep, 700000) ? VB_EXPOSED_BOTH : other));
    if (work->len > p.len)
        work->len = p.len;
    bool right =
        (chance(ep, 300000) && settle_in_window(ep, work, align)) || settle(ep, work, &p, align);
    if (right && vb_work_is_atomic(work))
        vb_plan_arguments(ep, work);
    return right;
}

// ---- changes of keys

void vb_plan_binding(struct vb_ep *ep, struct vb_work *work, struct vb_window *w)
{
    const struct vb_region *r = ep->node->exposed[ep->opts.domain][VB_EXPOSED_ALL];
    uint32_t at = chance(ep, 700000) ? 0 : draw(ep, 0, r->len - 1);
    uint32_t longest = r->len - at < BOUND_BYTES_MAX ? r->len - at : BOUND_BYTES_MAX;

    work->opcode = VB_WR_BIND;
    work->imm = (w->key & ~0xffu) | w->next_tag++;
    work->bind = (struct vb_hostwin_wish){
        .window = work->imm,
        .region = r->key,
        .addr = r->addr + at,
        .len = !w->type2 && w->bound && chance(ep, 200000) ? 0 : draw(ep, 1, longest),
        .rights = chance(ep, 700000) ? VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC
                                     : draw(ep, 0, 7) * VB_REMOTE_WRITE,
        .zero_based = chance(ep, 300000),
    };
}

static bool may_change(struct vb_ep *ep, struct vb_node *owner, const struct vb_window *w)
{
    return chance(ep, RACE_PPM) || is_quiet(owner, w, false);
}

bool vb_plan_key(struct vb_ep *ep, struct vb_work *work)
{
    bool remote = work->opcode == VB_WR_SEND_INVAL;
    struct vb_ep *owner = remote ? ep->peer : ep;
    struct vb_window *w = owner->window;
    bool bound = w->bound && w->qpn == owner->qpn;

    if (work->opcode == VB_WR_BIND && (w->bound || chance(ep, 300000)))
        w = ep->node->window[ep->opts.domain];
    else if (work->opcode != VB_WR_BIND && !bound)
        return false;
    if (ep->keys_planned > 0 || !may_change(ep, owner->node, w))
        return false;
    ep->keys_planned++;
    if (work->opcode == VB_WR_BIND)
        vb_plan_binding(ep, work, w);
    else
        work->imm = w->key;
    return true;
}
