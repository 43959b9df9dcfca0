// SPDX-License-Identifier: Apache-2.0
// Atomic operations on memory.
#ifndef VB_NIC_ATOMIC_H
#define VB_NIC_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

struct vb_atomic_op {
    uint8_t bytes; // 4 or 8; the memory is aligned to it
    bool swaps;    // compare and swap; otherwise fetch and add
    uint64_t swap_add;
    uint64_t compare; // of an addition: the field boundary
    uint64_t swap_mask, compare_mask;
};

// Returns the former value.
uint64_t vb_atomic_execute(void *at, const struct vb_atomic_op *op);

#endif
