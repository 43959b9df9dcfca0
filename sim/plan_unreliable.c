// SPDX-License-Identifier: Apache-2.0
// Drawing work requests of unreliable services, good and bad. A bad one stops its send queue or is
// dropped by its peer; few end a connection.
#include "sim/plan.h"

#include <string.h>

enum {
    SPOIL_PPM = 15000,  // in worlds with bad requests, in the midst of good ones
    NOBODY_PPM = 50000, // datagrams to addresses that nobody has
    QKEY_TOP = 1u << 31,
};

enum fault {
    FAULT_NONE,
    FAULT_SERVICE, // another service's operation
    FAULT_LOCAL,
    FAULT_LONG,   // longer than the receive, or than a datagram
    FAULT_DAMAGE, // in the work-queue entry
    FAULT_REMOTE, // UC
    FAULT_KEY,    // a window's, of our own
    FAULT_QKEY,   // UD
    FAULT_QPN,
    FAULT_FAMILY,
};

static uint32_t draw(struct vb_ep *ep, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(&ep->node->world->prng, lo, hi);
}

static bool chance(struct vb_ep *ep, uint32_t ppm)
{
    return vb_prng_chance(&ep->node->world->prng, ppm);
}

static void cover(struct vb_ep *ep, enum vb_cover_row row)
{
    vb_cover(ep->node->world->cover, row);
}

static bool is_ud(const struct vb_ep *ep)
{
    return ep->opts.service == VB_SERVICE_UD;
}

// ---- what

static enum vb_wr_opcode draw_opcode(struct vb_ep *ep)
{
    static const enum vb_wr_opcode uc[] = {VB_WR_SEND,     VB_WR_SEND,      VB_WR_SEND_IMM,
                                           VB_WR_SEND_IMM, VB_WR_WRITE,     VB_WR_WRITE,
                                           VB_WR_WRITE,    VB_WR_WRITE_IMM, VB_WR_NOP,
                                           VB_WR_BIND,     VB_WR_WRITE_IMM, VB_WR_LOCAL_INVAL};
    static const enum vb_wr_opcode ud[] = {VB_WR_SEND, VB_WR_SEND, VB_WR_SEND_IMM, VB_WR_SEND_IMM,
                                           VB_WR_NOP};

    return is_ud(ep) ? ud[draw(ep, 0, 4)] : uc[draw(ep, 0, 11)];
}

static enum vb_wr_opcode foreign_opcode(struct vb_ep *ep)
{
    static const enum vb_wr_opcode uc[] = {VB_WR_READ, VB_WR_SEND_INVAL, VB_WR_CAS,
                                           VB_WR_ATOMIC_WRITE, VB_WR_FLUSH};
    static const enum vb_wr_opcode ud[] = {VB_WR_WRITE, VB_WR_WRITE_IMM, VB_WR_READ,
                                           VB_WR_SEND_INVAL, VB_WR_LOCAL_INVAL};

    return is_ud(ep) ? ud[draw(ep, 0, 4)] : uc[draw(ep, 0, 4)];
}

// Often around multiples of the MTU: what can be lost in the midst of a message matters here.
static uint32_t draw_len(struct vb_ep *ep, enum vb_wr_opcode opcode)
{
    uint32_t mtu = ep->link.mtu, limit = ep->opts.local_bytes / 2 - 256;
    uint32_t len = chance(ep, 500000) ? draw(ep, 0, 4 * mtu) : vb_plan_len(ep, opcode);

    if (chance(ep, 100000))
        len = draw(ep, 1, 3) * mtu;
    if (is_ud(ep) && len > mtu)
        len = chance(ep, 300000) ? mtu : draw(ep, 0, mtu);
    else if (!is_ud(ep) && len > ep->peer->opts.recv_room &&
             (opcode == VB_WR_SEND || opcode == VB_WR_SEND_IMM))
        len = draw(ep, 0, ep->peer->opts.recv_room);
    return len < limit ? len : limit;
}

static enum fault draw_fault(struct vb_ep *ep, bool may_damage)
{
    static const enum fault uc[] = {FAULT_SERVICE, FAULT_LOCAL,  FAULT_LONG,
                                    FAULT_DAMAGE,  FAULT_REMOTE, FAULT_KEY};
    static const enum fault ud[] = {FAULT_SERVICE, FAULT_LOCAL, FAULT_LONG,  FAULT_DAMAGE,
                                    FAULT_QKEY,    FAULT_QPN,   FAULT_FAMILY};
    enum fault fault = is_ud(ep) ? ud[draw(ep, 0, 6)] : uc[draw(ep, 0, 5)];

    if (fault == FAULT_LONG && !is_ud(ep) && chance(ep, 700000))
        fault = FAULT_REMOTE; // a receive too short ends the connection: not too often
    return fault == FAULT_DAMAGE && !may_damage ? FAULT_LOCAL : fault;
}

static void shape(struct vb_ep *ep, struct vb_work *work, enum fault fault)
{
    work->opcode = draw_opcode(ep);
    if (fault == FAULT_SERVICE)
        work->opcode = foreign_opcode(ep);
    else if (fault == FAULT_KEY)
        work->opcode = VB_WR_LOCAL_INVAL;
    else if (fault == FAULT_REMOTE)
        work->opcode = chance(ep, 500000) ? VB_WR_WRITE : VB_WR_WRITE_IMM;
    else if (fault != FAULT_NONE && fault != FAULT_DAMAGE)
        work->opcode = chance(ep, 500000) ? VB_WR_SEND : VB_WR_SEND_IMM;
    work->len = draw_len(ep, work->opcode);
    if (fault == FAULT_LOCAL && !is_ud(ep) && chance(ep, 500000)) {
        work->opcode = VB_WR_WRITE;
        work->len = ep->link.mtu + draw(ep, 1, ep->link.mtu);
    }
    if (fault == FAULT_LOCAL && work->len == 0)
        work->len = 1;
    if (fault == FAULT_LONG)
        work->len = (is_ud(ep) ? ep->link.mtu : ep->peer->opts.recv_room) + draw(ep, 1, 64);
    if (work->opcode == VB_WR_CAS || work->opcode == VB_WR_ATOMIC_WRITE)
        work->len = work->atomic.bytes = 8;
    if (work->opcode == VB_WR_NOP || work->opcode == VB_WR_FLUSH || vb_work_changes_key(work))
        work->len = 0;
}

// ---- UC: the peer's memory, and keys

static bool spoil_remote(struct vb_ep *ep, struct vb_work *work)
{
    static const enum vb_bad kinds[] = {VB_BAD_RKEY,   VB_BAD_BOUNDS,    VB_BAD_RIGHT,
                                        VB_BAD_DOMAIN, VB_BAD_STALE_KEY, VB_BAD_ZERO};

    bool done = vb_spoil_remote(ep, work, kinds[draw(ep, 0, 5)]);
    if (done)
        cover(ep, VB_COVER_UC_BAD_REMOTE);
    return done;
}

// An invalidation, or a binding instead, that the device must refuse.
static bool spoil_key(struct vb_ep *ep, struct vb_work *work)
{
    enum vb_bad kind = (enum vb_bad)draw(ep, VB_BAD_INVAL_UNBOUND, VB_BAD_BIND_DOMAIN);
    bool done = vb_spoil_key(ep, work, kind);

    if (done)
        cover(ep, VB_COVER_SQE_BAD_KEY);
    return done;
}

// What cannot be had becomes a request of nothing.
static void draw_target(struct vb_ep *ep, struct vb_work *work, enum fault fault)
{
    bool granted = ep->peer->link.access & VB_REMOTE_WRITE, right = true;

    if (vb_work_writes(work)) {
        right = vb_plan_remote(ep, work) && (granted || fault == FAULT_REMOTE);
        if (fault == FAULT_REMOTE && granted)
            right = spoil_remote(ep, work);
    } else if (vb_work_changes_key(work)) {
        right = fault == FAULT_KEY ? spoil_key(ep, work) : vb_plan_key(ep, work);
    }
    if (right)
        return;
    work->opcode = VB_WR_NOP;
    work->len = 0;
}

// ---- UD: to whom

static uint32_t count_datagram_eps(struct vb_world *w, uint32_t pick, struct vb_ep **out)
{
    uint32_t count = 0;

    for (uint32_t i = w->scen.conns - w->scen.unreliable; i < w->scen.conns; i++)
        for (int side = 0; side < 2; side++)
            if (is_ud(&w->conn[i].ep[side]) && count++ == pick)
                *out = &w->conn[i].ep[side];
    return count;
}

// Any queue pair of the kind, the first one more often: many talk to it.
static struct vb_ep *draw_peer(struct vb_ep *ep)
{
    struct vb_world *w = ep->node->world;
    struct vb_ep *to = ep;
    uint32_t count = count_datagram_eps(w, UINT32_MAX, &to);

    for (int tries = 0; to == ep && tries < 2; tries++) // itself, too, but not too often
        count_datagram_eps(w, chance(ep, 400000) ? 0 : draw(ep, 0, count - 1), &to);
    return to;
}

static void spoil_address(struct vb_ep *ep, struct vb_work *work, enum fault fault)
{
    if (fault == FAULT_QKEY) {
        work->to.qkey = (work->to.qkey ^ 1u << draw(ep, 0, 30)) & ~QKEY_TOP;
        cover(ep, VB_COVER_UD_BAD_QKEY);
    } else if (fault == FAULT_QPN) {
        work->to.qpn ^= 1u << draw(ep, 14, 23);
        cover(ep, VB_COVER_UD_BAD_QPN);
    } else if (fault == FAULT_FAMILY) {
        work->to.addr.b[10] ^= 0xff;
        work->to.addr.b[11] ^= 0xff;
        if (ep->node->world->scen.ipv6)
            memset(work->to.addr.b, 0, 10);
        cover(ep, VB_COVER_UD_BAD_FAMILY);
    }
}

static void draw_address(struct vb_ep *ep, struct vb_work *work, enum fault fault)
{
    const struct vb_ep *to = draw_peer(ep);

    work->to = (struct vb_work_to){to->node->ip, to->qpn, to->link.qkey};
    if (chance(ep, NOBODY_PPM)) {
        // So many that they share their places in the NIC's table with those in use.
        work->to.addr.b[13] = (uint8_t)draw(ep, 1, 255);
        work->to.addr.b[14] = (uint8_t)draw(ep, 0, 255);
        cover(ep, VB_COVER_UD_TO_NOBODY);
    }
    if (to == ep)
        cover(ep, VB_COVER_UD_TO_ITSELF);
    if (to->link.qkey & QKEY_TOP || (to->link.qkey == ep->link.qkey && chance(ep, 200000))) {
        work->to.qkey = QKEY_TOP | draw(ep, 0, 0xffff); // the sender's own instead
        cover(ep, VB_COVER_UD_OWN_QKEY);
    }
    spoil_address(ep, work, fault);
}

// ---- a request

// Wrong from the second packet on: the first one leaves.
static bool break_late(struct vb_ep *ep, struct vb_work *work)
{
    struct vb_sge *sge = work->sge;
    uint32_t mtu = ep->link.mtu;

    if (work->num_sge != 1 || sge->len <= mtu || ep->opts.send_sge < 2 || is_ud(ep))
        return false;
    sge[1] = (struct vb_sge){sge->addr + mtu, sge->len - mtu, sge->lkey ^ 1u << draw(ep, 0, 31)};
    sge[0].len = mtu;
    work->num_sge = 2;
    return true;
}

static bool spoil_local(struct vb_ep *ep, struct vb_work *work)
{
    static const enum vb_bad kinds[] = {VB_BAD_LKEY, VB_BAD_LOCAL_BOUNDS, VB_BAD_LOCAL_DOMAIN,
                                        VB_BAD_LOCAL_WINDOW};
    return break_late(ep, work) || vb_spoil_local(ep, work, kinds[draw(ep, 0, 3)]);
}

static enum vb_bad draw_damage(struct vb_ep *ep)
{
    static const enum vb_bad kinds[] = {VB_BAD_WQE_OPCODE, VB_BAD_WQE_OWNER, VB_BAD_WQE_OPMOD,
                                        VB_BAD_WQE_DS};
    return kinds[draw(ep, 0, 3)];
}

static void cover_fault(struct vb_ep *ep, const struct vb_work *work, enum fault fault)
{
    if (fault == FAULT_SERVICE && work->opcode != VB_WR_NOP)
        cover(ep, VB_COVER_SQE_BAD_SERVICE);
    if (fault == FAULT_LONG)
        cover(ep, is_ud(ep) ? VB_COVER_UD_BAD_LONG : VB_COVER_UC_BAD_LONG);
    if (work->len == 0 && vb_work_sends(work))
        cover(ep, is_ud(ep) ? VB_COVER_UD_ZERO : VB_COVER_UC_ZERO);
}

bool vb_plan_unreliable(struct vb_ep *ep, struct vb_work *work, enum vb_bad *bad)
{
    const struct vb_world *w = ep->node->world;
    bool asked = *bad != VB_BAD_NONE;
    bool spoils = w->scen.bad_ppm > 0 && chance(ep, SPOIL_PPM);
    enum fault fault = asked || spoils ? draw_fault(ep, asked) : FAULT_NONE;

    *bad = VB_BAD_NONE;
    memset(work, 0, sizeof *work);
    work->wr_id = ep->next_wr_id++;
    shape(ep, work, fault);
    if (fault != FAULT_SERVICE)
        draw_target(ep, work, fault);
    if (is_ud(ep) && work->opcode != VB_WR_NOP && !vb_work_changes_key(work))
        draw_address(ep, work, fault);
    if (work->opcode == VB_WR_SEND_IMM || work->opcode == VB_WR_WRITE_IMM)
        work->imm = draw(ep, 0, UINT32_MAX);
    work->flags = vb_plan_flags(ep, work);
    if (!vb_plan_local(ep, work))
        return false;
    if (fault == FAULT_LOCAL && spoil_local(ep, work))
        cover(ep, VB_COVER_SQE_BAD_LOCAL);
    if (fault == FAULT_DAMAGE)
        *bad = draw_damage(ep);
    cover_fault(ep, work, fault);
    return true;
}
