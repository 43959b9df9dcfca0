// SPDX-License-Identifier: Apache-2.0
// Why a connection of a chain program may end: by retries, if its peer is gone, or if the network,
// before it healed, was in the way; otherwise, because its caller or its host has ended it.
#include "sim/chain_world.h"

#include "base/bytes.h"
#include "wire/roce.h"

#include <string.h>

enum {
    DEST_QPN_AT = 5, // bytes of the BTH
    PSN_AT = 9,
};

// ---- frames that the network dropped

static uint32_t get_be24(const uint8_t *at)
{
    return (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
}

static bool is_between(const struct vb_chainprog *p, const struct vb_ip *src,
                       const struct vb_ip *dst, uint32_t qpn)
{
    if (!p->nic || !p->timeout_ns)
        return false;
    if (qpn == p->queue[vb_chainprog_peer(p)].qpn)
        return vb_ip_equal(src, &p->peer_ip) && vb_ip_equal(dst, &p->nic->ip);
    return qpn == p->peer_qpn && vb_ip_equal(dst, &p->peer_ip) && vb_ip_equal(src, &p->nic->ip);
}

void vb_chainfate_note(void *world, enum vb_simnet_fate fate, const struct vb_ip *src,
                       const struct vb_ip *dst, const uint8_t *frame, uint32_t len)
{
    struct vb_chainworld *w = world;

    if (fate != VB_SIMNET_DROPPED || len < VB_BTH_BYTES)
        return;
    uint32_t qpn = get_be24(frame + DEST_QPN_AT), psn = get_be24(frame + PSN_AT);
    for (uint32_t i = 0; i < w->progs; i++)
        if (is_between(w->prog[i], src, dst, qpn)) {
            w->prog[i]->dropped_ns = w->now_ns;
            vb_chainworld_note(w, "lost     QP %06x psn %u of owner %u", qpn, psn,
                               w->prog[i]->opts.owner);
        }
}

// ---- healing

void vb_chainfate_shape(struct vb_chainworld *w, const struct vb_simnet_link *link)
{
    uint64_t longest = link->delay_ns + link->jitter_ns + link->reorder_ns;

    if (link->bytes_per_us)
        longest += (uint64_t)(link->queue_bytes + VB_FRAME_MAX) * 1000 / link->bytes_per_us;
    if (longest > w->longest_ns)
        w->longest_ns = longest;
}

// It has sent what it kept from before the network healed; the inbox is empty.
static bool is_clear(struct vb_chainnic *nic, bool arrived)
{
    bool sent = nic->ran_healed ? !vb_chainnic_has_to_send(nic) : vb_chainnic_rests(nic);

    return sent && (!arrived || (vb_simnet_waiting(nic->world->net, nic->index) == 0 &&
                                 !vb_chainnic_has_frames(nic)));
}

// First each NIC has sent what it kept. After the longest delay all that was under way has arrived,
// and is over when each inbox has been empty. Then the same once more, for the answers to that.
void vb_chainfate_advance(struct vb_chainworld *w)
{
    bool arrived = w->sent_ns != UINT64_MAX, all = true;

    if (!w->healed || w->clear_ns != UINT64_MAX ||
        (arrived && w->now_ns <= w->sent_ns + w->longest_ns))
        return;
    for (uint32_t i = 0; i < w->nics; i++) {
        w->nic[i].clear |= is_clear(&w->nic[i], arrived);
        all &= w->nic[i].clear;
    }
    if (!all)
        return;
    if (arrived && w->answered)
        w->clear_ns = w->now_ns;
    w->answered |= arrived;
    w->sent_ns = arrived ? UINT64_MAX : w->now_ns;
    for (uint32_t i = 0; i < w->nics; i++)
        w->nic[i].clear = false;
    vb_chainworld_note(w, "all from before is %s", arrived ? "over" : "sent");
}

// ---- ends by retries

void vb_chainend_step(struct vb_chainend *end, const struct vb_step *step, uint64_t now_ns)
{
    bool retries = step->kind == VB_STEP_TIMER && step->opcode == VB_REQ_TIMER_ACK;

    if (step->kind == VB_STEP_FRAME_IN &&
        (step->verdict == VB_RX_RETRY || step->verdict == VB_RX_FATAL))
        retries = step->detail == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    if (!retries)
        return;
    end->began_ns = end->over_ns;
    end->over_ns = now_ns;
}

static bool is_failed(const struct vb_chainnic *nic, uint32_t qpn)
{
    enum vb_qp_state state;
    return vb_dev_qp_state(nic->dev, qpn, &state) != 0 || state == VB_QPS_ERR;
}

static bool has_lost_caller(const struct vb_chainprog *p)
{
    return !p->caller || is_failed(p->caller->nic, p->caller->qp.qpn);
}

static bool has_lost_program(const struct vb_chainprog *p)
{
    return is_failed(p->nic, p->queue[vb_chainprog_peer(p)].qpn);
}

// VB_EXCUSE_COUNT: there is no reason. Of a NIC whose steps nobody sees, nobody knows when the last
// attempt began.
static enum vb_excuse reason_of(const struct vb_chainprog *p, const struct vb_chainend *end,
                                bool gone, bool seen)
{
    const struct vb_chainworld *w = p->nic->world;

    if (gone)
        return VB_EXCUSE_CHAIN_PEER_GONE;
    if (!w->healed && !seen)
        return VB_EXCUSE_CHAIN_END_UNSEEN;
    if (!w->healed)
        return p->dropped_ns && p->dropped_ns >= end->began_ns ? VB_EXCUSE_CHAIN_END_DROPPED
                                                               : VB_EXCUSE_CHAIN_END_SLOW;
    if (w->clear_ns == UINT64_MAX ||
        (seen ? end->began_ns <= w->clear_ns : w->now_ns <= w->clear_ns + 2 * p->timeout_ns))
        return VB_EXCUSE_CHAIN_END_SPENT;
    return VB_EXCUSE_COUNT;
}

static void judge_end(const struct vb_chainprog *p, struct vb_chainend *end, bool callers)
{
    struct vb_chainworld *w = p->nic->world;
    bool gone = callers ? has_lost_program(p) : has_lost_caller(p);
    bool seen = vb_chainnic_is_seen(callers ? p->caller->nic : p->nic);
    enum vb_excuse why = reason_of(p, end, gone, seen);

    end->silent = true;
    if (why != VB_EXCUSE_COUNT)
        vb_excuse(w->cover, why);
    else
        vb_chainworld_violate(w,
                              "owner %u: its %s ends by retries, the last of which began after "
                              "the network healed",
                              p->opts.owner, callers ? "caller" : "program");
}

void vb_chainprog_ends(struct vb_chainprog *p)
{
    judge_end(p, &p->end, false);
}

void vb_caller_ends(struct vb_caller *c)
{
    judge_end(c->prog, &c->end, true);
}

// ---- ends on a NIC whose steps nobody sees

// Only its completions tell why the queue pair of one that sent nonsense has failed.
static void look_at_caller(struct vb_caller *c)
{
    if (c->prog && !c->end.silent && !c->hostile && is_failed(c->nic, c->qp.qpn))
        vb_caller_ends(c);
}

static void look_at_program(struct vb_chainprog *p)
{
    int peer = vb_chainprog_peer(p);

    if (p->end.silent || p->stopped || p->hostile || !vb_chainprog_failed(p))
        return;
    if (peer >= 0 && is_failed(p->nic, p->queue[peer].qpn))
        vb_chainprog_ends(p);
    else
        vb_chainworld_violate(p->nic->world, "NIC %u: a loop of owner %u failed", p->nic->index,
                              p->opts.owner);
}

void vb_chainfate_look(struct vb_chainnic *nic)
{
    struct vb_chainworld *w = nic->world;

    for (uint32_t i = 0; i < w->callers; i++)
        if (w->caller[i].nic == nic)
            look_at_caller(&w->caller[i]);
    for (uint32_t i = 0; i < w->progs; i++)
        if (w->prog[i]->nic == nic)
            look_at_program(w->prog[i]);
}
