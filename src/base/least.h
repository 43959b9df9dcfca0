// SPDX-License-Identifier: Apache-2.0
// The smaller and the larger of two numbers, and a difference that does not wrap around.
#ifndef VB_BASE_LEAST_H
#define VB_BASE_LEAST_H

#include <stdint.h>

static inline uint64_t vb_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t vb_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// a - b; 0 if b is the larger one.
static inline uint64_t vb_excess(uint64_t a, uint64_t b)
{
    return vb_most(a, b) - b;
}

#endif
