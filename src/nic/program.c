// SPDX-License-Identifier: Apache-2.0
// Chain programs: limits, audits and their end.
#include "nic/pu.h"

bool vb_program_allows(struct vb_program *p)
{
    if (atomic_load_explicit(&p->stopped, memory_order_relaxed))
        return false;
    if (!p->limit)
        return true;
    uint64_t left = atomic_load_explicit(&p->left, memory_order_relaxed);
    while (left > 0)
        if (atomic_compare_exchange_weak_explicit(&p->left, &left, left - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    atomic_store_explicit(&p->stopped, true, memory_order_relaxed);
    return false;
}

void vb_program_executed(struct vb_pu *pu, struct vb_qpc *qp, uint64_t counter, uint8_t opcode)
{
    struct vb_program *p = qp->cross->program;

    atomic_fetch_add_explicit(&p->executed, 1, memory_order_relaxed);
    if (!p->audit)
        return;
    const struct vb_step step = pu->step;
    vb_qpc_complete(
        pu, qp, p->audit,
        &(struct vb_completion){
            .qpn = qp->qpn, .counter = counter, .opcode = VB_CQE_REQ, .wqe_opcode = opcode});
    pu->step = step; // which is an execution's, audited or not
}
