// SPDX-License-Identifier: Apache-2.0
// Congestion control by ECN and CNPs (annex A17; DCQCN): notification point and reaction point.
#include "nic/congestion.h"

#include "nic/pu.h"

#include <errno.h>
#include <stdlib.h>

enum {
    RESUME_PART = 4, // a queue pair that was held goes on when this part of a burst is free
};

static int attach(struct vb_qpc *qp)
{
    struct vb_congestion *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->qp = qp;
    c->resume = (struct vb_timer){.deadline_ns = VB_TIMER_NEVER, .owner = VB_TIMER_OF_RATE};
    qp->congestion = c;
    qp->sends_plainly = false;
    return 0;
}

int vb_congestion_attach(struct vb_pu *pu, struct vb_qpc *qp)
{
    bool limited = qp->share && qp->share->rate.piece_ns;

    if (qp->congestion || (!limited && (!pu->dev->dcqcn_on || qp->type == VB_QPT_UD)))
        return 0;
    return attach(qp);
}

int vb_congestion_limit(struct vb_qpc *qp, uint64_t rate_Bps, uint32_t burst_bytes)
{
    if (!qp->congestion) {
        int err = rate_Bps ? attach(qp) : 0;
        if (err || !rate_Bps)
            return err;
    }
    vb_pace_change(&qp->congestion->pace, qp->pu->now_ns, rate_Bps, burst_bytes);
    return 0;
}

void vb_congestion_reset(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_congestion *c = qp->congestion;

    if (!c)
        return;
    if (vb_link_queued(&c->due))
        vb_link_remove(&c->due);
    vb_timer_remove(&pu->timers, &c->resume);
    c->cnp_ns = 0;
    c->dcqcn = (struct vb_dcqcn){0};
    c->pace = (struct vb_pace){0};
    vb_share_let_go(pu, qp);
}

void vb_congestion_detach(struct vb_pu *pu, struct vb_qpc *qp)
{
    vb_congestion_reset(pu, qp);
    free(qp->congestion);
    qp->congestion = NULL;
}

// ---- notification point

void vb_congestion_marked(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_congestion *c = qp->congestion;

    pu->count.np_ecn_marked_roce_packets++;
    if (!c || !pu->dev->dcqcn_on || vb_link_queued(&c->due) || pu->now_ns < c->cnp_ns)
        return;
    if (qp->type == VB_QPT_UD)
        return; // it has a rate, but no one peer
    vb_fifo_push(&pu->cnps, &c->due);
}

static void send_cnp(struct vb_pu *pu, struct vb_congestion *c)
{
    struct vb_qpc *qp = c->qp;
    const struct vb_packet pkt = {
        .opcode = VB_CNP,
        .pkey = VB_PKEY_DEFAULT,
        .marks = VB_MARK_BECN,
        .dest_qpn = qp->dest_qpn,
    };
    uint32_t header = (uint32_t)vb_packet_encode(vb_pu_tx_at(pu), &pkt);

    vb_pu_tx_commit(pu, qp, qp->path, header, 0, NULL);
    VB_RECORD(pu, .kind = VB_STEP_FRAME_OUT, .opcode = pkt.opcode, .qpn = qp->qpn);
    c->cnp_ns = pu->now_ns + (uint64_t)pu->dev->dcqcn.cnp_interval_us * 1000;
    pu->turn_frames--; // it is in nobody's turn
    VB_COUNT(pu, qp, np_cnp_sent);
}

bool vb_congestion_step(struct vb_pu *pu)
{
    struct vb_link *link;

    while ((link = vb_fifo_first(&pu->cnps))) {
        struct vb_congestion *c = VB_CONTAINER_OF(link, struct vb_congestion, due);
        if (!vb_pu_tx_room(pu)) {
            pu->tx_full = true;
            return false;
        }
        vb_link_remove(link);
        if (c->qp->state == VB_QPS_ERR)
            continue; // it sends no more
        send_cnp(pu, c);
        return true;
    }
    return false;
}

// ---- reaction point

enum vb_rx_verdict vb_congestion_notified(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_congestion *c = qp->congestion;

    if (!c || !pu->dev->dcqcn_on || qp->state == VB_QPS_ERR) {
        pu->count.rp_cnp_ignored++;
        return VB_RX_STRANGER;
    }
    pu->count.rp_cnp_handled++;
    vb_dcqcn_cut(&c->dcqcn, &pu->dev->dcqcn, pu->now_ns);
    return VB_RX_APPLIED;
}

// When the rate that the peer's CNPs leave lets it go on; 0: now.
static uint64_t held_by_peer(const struct vb_pu *pu, struct vb_dcqcn *d)
{
    if (!d->limited)
        return 0;
    vb_dcqcn_advance(d, &pu->dev->dcqcn, pu->now_ns);
    if (!d->limited || d->free_ns <= pu->now_ns)
        return 0;
    uint64_t part = pu->dev->dcqcn.rp_burst_bytes / RESUME_PART;
    return d->free_ns + part * 1000000000u / d->rate_Bps;
}

bool vb_congestion_holds(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_congestion *c = qp->congestion;
    uint64_t peer_ns = held_by_peer(pu, &c->dcqcn), own_ns = vb_pace_holds(&c->pace, pu->now_ns);

    uint64_t until_ns = peer_ns > own_ns ? peer_ns : own_ns;

    if (until_ns == 0)
        until_ns = vb_share_holds(pu, qp);
    if (until_ns)
        vb_timer_arm(&pu->timers, &c->resume, until_ns);
    return until_ns;
}

bool vb_congestion_charge(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_dcqcn *d = &qp->congestion->dcqcn;
    struct vb_pace *own = &qp->congestion->pace;
    uint32_t bytes = pu->txq.frame[pu->txq.count - 1].len;

    vb_pace_charge(own, pu->now_ns, bytes);
    bool waits = vb_share_charge(pu, qp, bytes);
    if (d->limited)
        vb_dcqcn_charge(d, &pu->dev->dcqcn, pu->now_ns, bytes);
    return waits || (d->limited && d->free_ns > pu->now_ns) || vb_pace_holds(own, pu->now_ns) != 0;
}

void vb_congestion_timer(struct vb_pu *pu, struct vb_congestion *c)
{
    VB_RECORD(pu, .kind = VB_STEP_TIMER, .qpn = c->qp->qpn);
    vb_pu_kick(pu, c->qp);
}
