// SPDX-License-Identifier: Apache-2.0
// Drawing work requests: what the parts of the plan share.
#ifndef VB_SIM_PLAN_H
#define VB_SIM_PLAN_H

#include "sim/script.h"

// The parts of a request: how long, with which flags, where on this side. False: no memory.
uint32_t vb_plan_len(struct vb_ep *ep, enum vb_wr_opcode opcode);
uint32_t vb_plan_flags(struct vb_ep *ep, const struct vb_work *work);
bool vb_plan_local(struct vb_ep *ep, struct vb_work *work);
// A whole request of an unreliable service, as vb_plan_work().
bool vb_plan_unreliable(struct vb_ep *ep, struct vb_work *work, enum vb_bad *bad);

// The right that a request needs of the peer's queue pair and key; 0: none.
uint32_t vb_plan_right(enum vb_wr_opcode opcode);
const struct vb_region *vb_plan_region(const struct vb_ep *ep, enum vb_exposed kind);

// Draws the peer's memory, and an atomic's arguments. False: nothing fits.
bool vb_plan_remote(struct vb_ep *ep, struct vb_work *work);
void vb_plan_arguments(struct vb_ep *ep, struct vb_work *work);
// Draws the key of a binding or an invalidation. False: none should be changed now.
bool vb_plan_key(struct vb_ep *ep, struct vb_work *work);
void vb_plan_binding(struct vb_ep *ep, struct vb_work *work, struct vb_window *w);

// XRC: which of the peer's shared receive queues a request names, and what cannot be asked there.
void vb_plan_xrc(struct vb_ep *ep, struct vb_work *work, enum vb_bad *bad);
void vb_plan_limit_to_xrc(struct vb_conn_mix *mix);

// Faults. They return false if they do not fit the request.
// Before its memory is drawn: what the request is.
bool vb_spoil_shape(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad);
// The peer's memory, and keys.
bool vb_spoil_remote(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad);
bool vb_spoil_key(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad);
bool vb_spoil_local(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad);
bool vb_spoil_is_remote(enum vb_bad bad);
bool vb_spoil_is_key(enum vb_bad bad);

#endif
