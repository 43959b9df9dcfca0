// SPDX-License-Identifier: Apache-2.0
// A queue pair's part in congestion control: CNPs owed to the peer, and the rate that the peer's
// CNPs leave; and the rate that its owner has set. Exists only while the option is on or a rate was
// set, so that other queue pairs stay small.
#ifndef VB_NIC_CONGESTION_H
#define VB_NIC_CONGESTION_H

#include "base/fifo.h"
#include "nic/dcqcn.h"
#include "nic/frame.h"
#include "nic/pace.h"
#include "nic/step.h"
#include "nic/timer.h"

#include <assert.h>

struct vb_pu;
struct vb_qpc;

struct vb_congestion {
    struct vb_qpc *qp;
    struct vb_link due;     // in the PU's list while a CNP is owed
    uint64_t cnp_ns;        // no CNP is owed for marks before this
    struct vb_dcqcn dcqcn;  // of all that the queue pair sends, but acknowledgements and CNPs
    struct vb_pace pace;    // the same, as the owner wants it
    int64_t granted;        // bytes left of what its share's rate has granted,
    uint64_t granted_ns;    // from when on
    struct vb_timer resume; // armed while a rate holds the queue pair
};

static_assert(sizeof(struct vb_congestion) <= 192, "three cache lines");

// -ENOMEM. Nothing for datagrams, which have no one peer, and while the option is off, unless the
// share has a rate.
int vb_congestion_attach(struct vb_pu *pu, struct vb_qpc *qp);
// Sets the owner's rate, until the next reset; 0: none. -ENOMEM.
int vb_congestion_limit(struct vb_qpc *qp, uint64_t rate_Bps, uint32_t burst_bytes);
void vb_congestion_reset(struct vb_pu *pu, struct vb_qpc *qp);
void vb_congestion_detach(struct vb_pu *pu, struct vb_qpc *qp);

// A packet for the queue pair came with a mark of congestion: owes its sender a CNP.
void vb_congestion_marked(struct vb_pu *pu, struct vb_qpc *qp);
// A CNP has come.
enum vb_rx_verdict vb_congestion_notified(struct vb_pu *pu, struct vb_qpc *qp);
// Sends one CNP that is owed. False: none is, or there is no room.
bool vb_congestion_step(struct vb_pu *pu);

// Whether the queue pair has to wait; its timer then brings it back.
bool vb_congestion_holds(struct vb_pu *pu, struct vb_qpc *qp);
// The last frame written is the queue pair's. Returns whether the next one will have to wait.
bool vb_congestion_charge(struct vb_pu *pu, struct vb_qpc *qp);
void vb_congestion_timer(struct vb_pu *pu, struct vb_congestion *c);

#endif
