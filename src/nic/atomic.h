// SPDX-License-Identifier: Apache-2.0
// Atomic operations on memory.
#ifndef VB_NIC_ATOMIC_H
#define VB_NIC_ATOMIC_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct vb_atomic_op {
    uint8_t bytes; // 4 or 8; the memory is aligned to it
    bool swaps;    // compare and swap; otherwise fetch and add
    uint64_t swap_add;
    uint64_t compare; // of an addition: the field boundary
    uint64_t swap_mask, compare_mask;
};

// Returns the former value.
uint64_t vb_atomic_execute(void *at, const struct vb_atomic_op *op);

// Adds without carrying over a set bit of the boundary, which ends a field: the bits below are
// added with those cleared, so that nothing leaves a field, and the ends themselves by xor.
static inline uint64_t vb_atomic_add_fields(uint64_t a, uint64_t b, uint64_t boundary)
{
    return ((a & ~boundary) + (b & ~boundary)) ^ ((a ^ b) & boundary);
}

// The answer, as memory gets it: in this machine's order, or big-endian where that is asked for.
static inline void vb_atomic_put(void *to, uint64_t old, uint8_t bytes, bool big_endian)
{
    uint32_t narrow = big_endian ? htobe32((uint32_t)old) : (uint32_t)old;
    uint64_t wide = big_endian ? htobe64(old) : old;

    if (bytes == 8)
        memcpy(to, &wide, 8);
    else
        memcpy(to, &narrow, 4);
}

// The same for the most frequent ones: 8 bytes, whole words and fields; and fields of 4.
static inline uint64_t vb_atomic_swap(void *at, uint64_t compare, uint64_t swap)
{
    __atomic_compare_exchange_n((uint64_t *)at, &compare, swap, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_RELAXED);
    return compare;
}

static inline uint64_t vb_atomic_add(void *at, uint64_t add, uint64_t boundary)
{
    uint64_t old = __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);

    while (!__atomic_compare_exchange_n((uint64_t *)at, &old,
                                        vb_atomic_add_fields(old, add, boundary), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
    return old;
}

static inline uint32_t vb_atomic_add_narrow(void *at, uint32_t add, uint32_t boundary)
{
    uint32_t old = __atomic_load_n((const uint32_t *)at, __ATOMIC_RELAXED);

    while (!__atomic_compare_exchange_n((uint32_t *)at, &old,
                                        (uint32_t)vb_atomic_add_fields(old, add, boundary), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
    return old;
}

#endif
