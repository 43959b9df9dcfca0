// SPDX-License-Identifier: Apache-2.0
// What a unit has in flight to one address. All queue pairs of a share (share.h) that lead there
// have one window together, so that the peer's socket buffer holds it; who finds it full waits in
// line. The window halves when packets get lost and grows while it is full and none do.
#ifndef VB_NIC_PEER_H
#define VB_NIC_PEER_H

#include "base/fifo.h"
#include "nic/frame.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_pu;
struct vb_qpc;
struct vb_share_part;

enum {
    VB_PEERS = 256,                   // lists of them, by a hash; power of two
    VB_PEER_WINDOW_MIN = 8 * 1024,    // two packets of the largest MTU
    VB_PEER_WINDOW_STEP = 4096,       // grown for each window that was acknowledged
    VB_PEER_CUT_INTERVAL_NS = 100000, // the losses of one burst count once
};

struct vb_peer {
    uint64_t in_flight; // window cost
    uint64_t open;      // in_flight that needs no asking: the window, or 0 while somebody waits
    uint64_t window, limit;
    uint64_t acked;  // since the window last grew
    uint64_t cut_ns; // when it was last cut
    struct vb_fifo waiting;
    struct vb_ip address;
    const struct vb_share_part *share; // whose; NULL: share 0's
    uint32_t users;                    // queue pairs
    struct vb_peer *next;
};

// A peer that is never full, for queue pairs without one.
void vb_peer_init_nobody(struct vb_peer *peer);
// NULL: no memory.
struct vb_peer *vb_peer_join(struct vb_pu *pu, const struct vb_ip *address,
                             const struct vb_share_part *share);
// The queue pair has nothing in flight and wants nothing any more.
void vb_peer_withdraw(struct vb_pu *pu, struct vb_qpc *qp);
// A window of its own for a queue pair that would wait for answers for ever, before it has sent
// anything. -ENOMEM.
int vb_peer_part(struct vb_pu *pu, struct vb_qpc *qp);
// Withdraws, and the queue pair is without a peer.
void vb_peer_leave(struct vb_pu *pu, struct vb_qpc *qp);
// A packet of the queue pair, whose turn it is, finds the window full or others waiting for it.
// True: it must wait; the queue pair is in line.
bool vb_peer_must_wait(struct vb_pu *pu, struct vb_qpc *qp);
// Somebody waits, and a queue pair's turn has ended: the next turn is for the first in line, if
// there is room. (What makes room, an acknowledgement, gives its queue pair a turn.)
// `stays`: it had not done all it could.
void vb_peer_turn_ended(struct vb_pu *pu, struct vb_qpc *qp, bool stays);
// Packets got lost.
void vb_peer_lost(struct vb_pu *pu, struct vb_peer *peer);

// Before in_flight shrinks by so much.
static inline void vb_peer_acked(struct vb_peer *peer, uint64_t cost)
{
    if (peer->in_flight * 2 < peer->window)
        return; // a window that is not used says nothing about a larger one
    peer->acked += cost;
    if (peer->acked < peer->window || peer->window >= peer->limit)
        return;
    peer->acked = 0;
    peer->window += VB_PEER_WINDOW_STEP;
    if (peer->window > peer->limit)
        peer->window = peer->limit;
    if (peer->open)
        peer->open = peer->window;
}

#endif
