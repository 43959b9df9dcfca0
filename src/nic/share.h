// SPDX-License-Identifier: Apache-2.0
// Shares: whose queue pairs they are that a unit serves. Those of one share have turns among
// themselves, as without shares; shares that have work have theirs by deficit round robin. What a
// turn has cost is taken from its share's credit, and who has none left waits for the next round.
// A share may have a rate, too: of all that its queue pairs send.
//
// Share 0 is everybody else's, exists always, and costs nothing while there is no other.
#ifndef VB_NIC_SHARE_H
#define VB_NIC_SHARE_H

#include "base/fifo.h"
#include "nic/dev.h"

#include <stdint.h>

struct vb_qpc;

enum {
    VB_SHARES_MAX = 1 << 14,
    VB_SHARE_ENTRY_MAX = 8 * 1024, // bytes that one entry of a loop moves: nothing can stop it
    // In units (below): how long a turn is in the line and before it, after how much of a poll no
    // further turn begins, and after how many units of frames the shares before the line have a
    // turn each. All of it holds while other shares have work, or had some not long ago.
    VB_SHARE_LINE_UNITS = 156,
    VB_SHARE_EARLY_UNITS = 39,
    VB_SHARE_POLL_UNITS = 32,
    VB_SHARE_SLICE_UNITS = 64,
    VB_SHARE_FETCH = 16, // most entries that are fetched ahead. A long entry ends a turn that has
                         // fetched more blocks than this
    VB_SHARE_QUIET_NS = 2000000, // a share that had no work for so long is not waited for
    // What work costs, in units. One is an entry that makes no packet: of a loop, or flushed.
    VB_SHARE_TURN = 4,         // a turn, if only for nothing
    VB_SHARE_FRAME = 8,        // a packet, sent or received
    VB_SHARE_TIMER = 4,        // one that fires: nobody's, but a poll's
    VB_SHARE_BYTES_SHIFT = 8,  // one for so many bytes of packets, or of one entry of a loop,
    VB_SHARE_FETCH_SHIFT = 0,  // and for each block that was fetched: long lists take time, too
    VB_SHARE_PIECE = 1,        // a piece of memory that a packet is made of, after the first
    VB_SHARE_COPY = 16,        // one that the system copies
    VB_SHARE_QUANTUM = 512,    // a round of the usual weight: a turn of short packets
    VB_SHARE_BILL_MAX = 16384, // one bill: who was not billed for long is not starved for as long
};

// Tokens of a share, which its queue pairs take in pieces: who finds none left gets the next piece
// in advance, and waits until it is due. So they are served in the order in which they asked.
struct vb_share_rate {
    uint64_t piece_ns, burst_ns; // what these take at the rate; 0: no limit
    uint64_t free_ns;            // when the next piece is due
    uint32_t piece_bytes;
};

// A share on one unit.
struct vb_share_part {
    struct vb_link line;        // in the unit's list of shares with work, or with a part in advance
    struct vb_link early;       // in the list of those of them that go first
    struct vb_share *of;        // NULL: share 0
    struct vb_fifo *run, queue; // its queue pairs with something to do: `queue`, or the unit's list
    uint32_t weight;
    uint32_t users; // queue pairs
    bool granted;   // has the part of its visit
    int64_t credit; // units, VB_SHARE_WEIGHT times; below 0: spent in advance
    uint64_t spent; // units ever
    uint64_t turns;
    struct vb_share_rate rate;
    uint64_t left_ns; // when its last queue pair went
};

struct vb_share {
    uint32_t number;
    uint32_t users; // queue pairs
    struct vb_share_attr attr;
    struct vb_share_part part[];
};

// What a queue pair has been billed for.
struct vb_share_bill {
    uint64_t frames_out, frames_in, bytes, fetched;
    uint32_t pieces; // units of lists and copies, not billed yet
};

// NULL: there is no such share, or it is share 0.
struct vb_share *vb_share_find(const struct vb_dev *dev, uint32_t number);
void vb_share_fini(struct vb_dev *dev);
// A new queue pair of the unit; NULL: of share 0.
void vb_share_join(struct vb_pu *pu, struct vb_qpc *qp, struct vb_share *share);
void vb_share_quit(struct vb_qpc *qp);
void vb_share_init_rest(struct vb_pu *pu);

// A queue pair of a share other than 0 has something to do.
void vb_share_kick(struct vb_pu *pu, struct vb_qpc *qp);
// Whose turn it is, or goes on. NULL: nobody has anything to do.
struct vb_qpc *vb_share_next(struct vb_pu *pu);
// Whether a share goes before the line, and before frames beyond a slice of them: as many turns as
// there are shares.
bool vb_share_hurries(struct vb_pu *pu);
void vb_share_begin_slice(struct vb_pu *pu);
// A frame or a timer took so many units of the poll.
void vb_share_took(struct vb_pu *pu, uint32_t units);
// A packet of the queue pair took so many pieces of memory more than one, and so many copies.
void vb_share_pieces(struct vb_pu *pu, uint32_t qpn, uint32_t more, uint32_t copies);
// The queue pair has a turn, whether or not it has something to do.
void vb_share_bill_later(struct vb_pu *pu, struct vb_qpc *qp);
// Takes what the turn cost.
void vb_share_turn_ended(struct vb_pu *pu, struct vb_qpc *qp);

// When the share's rate lets the queue pair send; 0: now.
uint64_t vb_share_holds(struct vb_pu *pu, struct vb_qpc *qp);
// So many bytes have left. Returns whether the next packet will have to wait.
bool vb_share_charge(struct vb_pu *pu, struct vb_qpc *qp, uint32_t bytes);
// A queue pair with a rate wants nothing any more: a piece that it waits for is the share's again.
void vb_share_let_go(const struct vb_pu *pu, struct vb_qpc *qp);

#endif
