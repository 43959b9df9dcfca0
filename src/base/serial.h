// SPDX-License-Identifier: Apache-2.0
// Serial number arithmetic: the one place that compares counters which wrap.
#ifndef VB_BASE_SERIAL_H
#define VB_BASE_SERIAL_H

#include <stdint.h>

#define VB_PSN_MASK 0xffffffu

// Signed distance from b to a on a 24-bit circle: positive when a is after b.
static inline int32_t vb_psn_diff(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t vb_psn_add(uint32_t psn, uint32_t n)
{
    return (psn + n) & VB_PSN_MASK;
}

// Widens a 16-bit counter seen in memory to the 64-bit counter at or after `base`.
static inline uint64_t vb_widen16(uint64_t base, uint16_t seen)
{
    return base + (uint16_t)(seen - (uint16_t)base);
}

// Widens a 24-bit counter to the nearest 64-bit counter at or after `base`.
static inline uint64_t vb_widen24(uint64_t base, uint32_t seen)
{
    return base + ((seen - (uint32_t)base) & 0xffffffu);
}

#endif
