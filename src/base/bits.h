// SPDX-License-Identifier: Apache-2.0
// Powers of two.
#ifndef VB_BASE_BITS_H
#define VB_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool vb_is_pow2(uint32_t n)
{
    return n && (n & (n - 1)) == 0;
}

#endif
