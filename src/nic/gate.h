// SPDX-License-Identifier: Apache-2.0
// Opening queues: SEND_EN and RECV_EN. Programs do little else so often, so it is done in place.
#ifndef VB_NIC_GATE_H
#define VB_NIC_GATE_H

#include "nic/pu.h"

// Moves the edge to the 16-bit counter `index`, if that lies ahead: an edge never goes back, and
// what is more than half a round ahead counts as behind.
static inline bool vb_gate_raise(struct vb_gate *gate, uint16_t index)
{
    uint64_t open = atomic_load_explicit(&gate->open, memory_order_relaxed);
    int16_t ahead;

    do {
        ahead = (int16_t)(index - (uint16_t)open);
        if (ahead <= 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&gate->open, &open, open + (uint64_t)ahead,
                                                    memory_order_release, memory_order_relaxed));
    return true;
}

// A queue of the same domain that is managed, and one that can be executed or filled.
static inline struct vb_gate *vb_gate_find(const struct vb_qpc *qp, struct vb_qpc *target,
                                           bool receive)
{
    if (!target || target->pd != qp->pd)
        return NULL;
    struct vb_gate *gate = receive ? &target->rq.gate : &target->sq.gate;
    return gate->managed ? gate : NULL;
}

// SEND_EN and RECV_EN. False: there is no such queue, or it may not be opened from here.
static inline bool vb_cross_enable(struct vb_pu *pu, struct vb_qpc *qp, bool receive, uint32_t qpn,
                                   uint32_t index)
{
    struct vb_qpc *target = vb_dev_qp(pu->dev, qpn);
    struct vb_gate *gate = vb_gate_find(qp, target, receive);

    if (!gate)
        return false;
    // What it opened would be flushed, and count for who waits: a program would go round for ever.
    if (atomic_load_explicit(&gate->shut, memory_order_relaxed) ||
        !vb_gate_raise(gate, (uint16_t)index))
        return true;
    if (target->pu != pu) {
        vb_doorbell_ring(&target->pu->bells, qpn);
        pu->handed |= 1u << target->pu->index;
    } else if (receive) {
        vb_credit_posted(pu, target);
    } else {
        target->sq.end = atomic_load_explicit(&gate->open, memory_order_acquire);
        vb_pu_kick(pu, target);
    }
    return true;
}

#endif
