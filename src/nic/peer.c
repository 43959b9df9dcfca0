// SPDX-License-Identifier: Apache-2.0
// Peers: who joins and leaves, the line of those who wait, and the size of the window.
#include "nic/peer.h"

#include "base/bytes.h"
#include "nic/pu.h"

#include <errno.h>
#include <stdlib.h>

void vb_peer_init_nobody(struct vb_peer *peer)
{
    *peer = (struct vb_peer){.window = UINT64_MAX, .limit = UINT64_MAX, .open = UINT64_MAX};
    vb_fifo_init(&peer->waiting);
}

static struct vb_peer **list_of(struct vb_pu *pu, const struct vb_ip *address)
{
    uint64_t h = (vb_get_be64(address->b) ^ vb_get_be64(address->b + 8)) * 0x9e3779b97f4a7c15u;
    return &pu->peers[(h >> 32) & (VB_PEERS - 1)];
}

static struct vb_peer *make(const struct vb_pu *pu, const struct vb_ip *address)
{
    struct vb_peer *peer = malloc(sizeof *peer);

    if (!peer)
        return NULL;
    *peer = (struct vb_peer){.address = *address,
                             .window = pu->dev->window_bytes,
                             .limit = pu->dev->window_limit_bytes,
                             .open = pu->dev->window_bytes};
    vb_fifo_init(&peer->waiting);
    return peer;
}

// A share that comes later begins with its part of the window; those that have more lose it when
// packets get lost, as ever.
struct vb_peer *vb_peer_join(struct vb_pu *pu, const struct vb_ip *address,
                             const struct vb_share_part *share)
{
    struct vb_peer **list = list_of(pu, address), *peer = *list;
    uint32_t others = 0;

    for (; peer; peer = peer->next) {
        bool same = vb_ip_equal(&peer->address, address);
        if (same && peer->share == share)
            break;
        others += same;
    }
    if (!peer) {
        peer = make(pu, address);
        if (!peer)
            return NULL;
        peer->share = share;
        peer->window /= others + 1;
        if (peer->window < VB_PEER_WINDOW_MIN)
            peer->window = VB_PEER_WINDOW_MIN;
        peer->open = peer->window;
        peer->next = *list;
        *list = peer;
    }
    peer->users++;
    return peer;
}

static void get_out_of_line(struct vb_peer *peer, struct vb_qpc *qp)
{
    vb_link_remove(&qp->wait);
    if (vb_fifo_empty(&peer->waiting))
        peer->open = peer->window;
}

// The first in line gets a turn if there is room.
static void wake(struct vb_pu *pu, struct vb_peer *peer)
{
    struct vb_link *first = vb_fifo_first(&peer->waiting);

    if (first && peer->in_flight < peer->window)
        vb_pu_kick(pu, VB_CONTAINER_OF(first, struct vb_qpc, wait));
}

void vb_peer_withdraw(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_peer *peer = qp->peer;

    peer->in_flight -= qp->req.cost_sent - qp->req.cost_acked;
    qp->req.cost_sent = qp->req.cost_acked;
    if (vb_link_queued(&qp->wait))
        get_out_of_line(peer, qp);
    if (!peer->open)
        wake(pu, peer);
}

void vb_peer_leave(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_peer *peer = qp->peer;

    vb_peer_withdraw(pu, qp);
    qp->peer = &pu->nobody;
    if (peer == &pu->nobody || --peer->users > 0)
        return;
    struct vb_peer **at = list_of(pu, &peer->address);
    while (*at && *at != peer)
        at = &(*at)->next;
    if (*at)
        *at = peer->next; // else it is one's own
    free(peer);
}

int vb_peer_part(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_peer *own = make(pu, &qp->peer->address);

    if (!own)
        return -ENOMEM;
    own->users = 1;
    vb_peer_leave(pu, qp);
    qp->peer = own;
    return 0;
}

bool vb_peer_must_wait(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_peer *peer = qp->peer;
    bool first = vb_fifo_first(&peer->waiting) == &qp->wait;

    if (peer->in_flight < peer->window && (first || pu->served == qp)) {
        if (first)
            get_out_of_line(peer, qp);
        pu->served = qp; // for the rest of its turn
        return false;
    }
    if (!vb_link_queued(&qp->wait))
        vb_fifo_push(&peer->waiting, &qp->wait);
    peer->open = 0;
    pu->refused = true;
    return true;
}

void vb_peer_turn_ended(struct vb_pu *pu, struct vb_qpc *qp, bool stays)
{
    // Who had a whole turn and did not ask has nothing to send any more.
    if (!stays && !pu->refused && vb_link_queued(&qp->wait))
        get_out_of_line(qp->peer, qp);
    wake(pu, qp->peer);
}

void vb_peer_lost(struct vb_pu *pu, struct vb_peer *peer)
{
    if (peer == &pu->nobody || pu->now_ns - peer->cut_ns < VB_PEER_CUT_INTERVAL_NS)
        return;
    peer->cut_ns = pu->now_ns;
    peer->acked = 0;
    peer->window /= 2;
    if (peer->window < VB_PEER_WINDOW_MIN)
        peer->window = VB_PEER_WINDOW_MIN;
    if (peer->open)
        peer->open = peer->window;
}
