// SPDX-License-Identifier: Apache-2.0
// The mov instruction's addressing modes (RedN's Table 7) as statements; registers are variables.
//
//      mode       load             store            statement                entries
//      immediate  mov R, C                          vb_flow_set()            WRITE
//      register   mov R, S                          vb_flow_move()           READ
//      indirect   mov R, [S]       mov [R], S       vb_flow_load(), _store() READ the address into
//                                                                            the copy; WAIT, OPEN,
//                                                                            READ
//      indexed    mov R, [S + O]   mov [R + O], S   vb_flow_…_indexed()      CALC the sum first
//
// The paper adds to the address where the copy has it. There it is big-endian, and atomics are not:
// so the sum is made before, by the CALC verb, whose operands are big-endian as addresses are.
#include "chain/flow.h"

static struct vb_var sum(struct vb_flow *f, struct vb_var a, struct vb_var b)
{
    struct vb_var to = vb_flow_var(f, 0);
    vb_flow_calc(f, VB_WQE_CALC_ADD, to, a, b);
    return to;
}

void vb_flow_load_indexed(struct vb_flow *f, struct vb_var to, struct vb_chain_region region,
                          struct vb_var at, struct vb_var offset, uint32_t bytes)
{
    vb_flow_load(f, to, region, sum(f, at, offset), bytes);
}

void vb_flow_store_indexed(struct vb_flow *f, struct vb_chain_region region, struct vb_var at,
                           struct vb_var offset, struct vb_var from, uint32_t bytes)
{
    vb_flow_store(f, region, sum(f, at, offset), from, bytes);
}
