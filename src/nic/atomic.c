// SPDX-License-Identifier: Apache-2.0
// Atomic operations on memory: real CPU atomics, so that they are atomic against the application,
// too. Values are in this machine's byte order.
#include "nic/atomic.h"

#include <stddef.h>

static uint64_t load(const void *at, uint8_t bytes)
{
    return bytes == 8 ? __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED)
                      : __atomic_load_n((const uint32_t *)at, __ATOMIC_RELAXED);
}

// Stores `value` if the memory still holds *old; otherwise *old is what it holds.
static bool replace(void *at, uint8_t bytes, uint64_t *old, uint64_t value)
{
    if (bytes == 8)
        return __atomic_compare_exchange_n((uint64_t *)at, old, value, false, __ATOMIC_SEQ_CST,
                                           __ATOMIC_RELAXED);
    uint32_t narrow = (uint32_t)*old;
    bool done = __atomic_compare_exchange_n((uint32_t *)at, &narrow, (uint32_t)value, false,
                                            __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    *old = narrow;
    return done;
}

static uint64_t result(const struct vb_atomic_op *op, uint64_t old)
{
    if (!op->swaps)
        return vb_atomic_add_fields(old, op->swap_add, op->compare);
    if ((old ^ op->compare) & op->compare_mask)
        return old;
    return (old & ~op->swap_mask) | (op->swap_add & op->swap_mask);
}

uint64_t vb_atomic_execute(void *at, const struct vb_atomic_op *op)
{
    uint64_t old = load(at, op->bytes);

    while (!replace(at, op->bytes, &old, result(op, old)))
        ;
    return old;
}
