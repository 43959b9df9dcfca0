// SPDX-License-Identifier: Apache-2.0
// What the hosts do: poll, post good and bad work, register and deregister, break things on
// purpose.
#ifndef VB_SIM_SCRIPT_H
#define VB_SIM_SCRIPT_H

#include "sim/world.h"

// One turn of a host; sets the time of its next.
void vb_script_act(struct vb_node *node);
// Polls a completion queue until it is empty.
void vb_script_drain(struct vb_node *node, uint32_t cq);

// ---- between the parts

enum vb_bad {
    VB_BAD_NONE,
    VB_BAD_RKEY,
    VB_BAD_BOUNDS,
    VB_BAD_RIGHT,
    VB_BAD_QP_RIGHT,
    VB_BAD_DOMAIN,
    VB_BAD_ZERO,
    VB_BAD_STALE_KEY,
    VB_BAD_TOO_LONG,
    VB_BAD_UNALIGNED,
    VB_BAD_ATOMIC_RIGHT,
    VB_BAD_FLUSH_RIGHT,
    VB_BAD_WINDOW_QP,
    VB_BAD_WINDOW_STALE,
    VB_BAD_INVAL_UNBOUND,
    VB_BAD_INVAL_KIND,
    VB_BAD_INVAL_QP,
    VB_BAD_BIND_BOUNDS,
    VB_BAD_BIND_RIGHT,
    VB_BAD_BIND_TWICE,
    VB_BAD_BIND_DOMAIN,
    VB_BAD_LKEY,
    VB_BAD_LOCAL_BOUNDS,
    VB_BAD_LOCAL_DOMAIN,
    VB_BAD_LOCAL_RIGHT,
    VB_BAD_LOCAL_WINDOW,
    VB_BAD_WQE_DS,
    VB_BAD_WQE_OPCODE,
    VB_BAD_WQE_OWNER,
    VB_BAD_WQE_SHORT,
    VB_BAD_WQE_OPMOD,
    VB_BAD_COUNT,
};

// Draws the next send work request. False: there is no local memory for it now.
bool vb_plan_work(struct vb_ep *ep, struct vb_work *work, enum vb_bad *bad);
// How many requests of the queue's depth it counts for.
uint32_t vb_plan_weight(const struct vb_work *work);
// Counts what was special about a request, once it is posted.
void vb_plan_cover(struct vb_ep *ep, const struct vb_work *work, enum vb_bad bad);
// A small signaled request that shows when everything before it is done.
void vb_plan_marker(struct vb_ep *ep, struct vb_work *work);
// Draws the next receive work request. False: no memory.
bool vb_plan_intake(struct vb_ep *ep, struct vb_intake *intake);

#endif
