// SPDX-License-Identifier: Apache-2.0
// Credits as an AETH counts them (clause 9.7.7.2): five bits for 0, 1, 2, 3, 4, 6, 8, 12, … 32768.
#ifndef VB_WIRE_CREDIT_H
#define VB_WIRE_CREDIT_H

#include <stdint.h>

enum {
    VB_CREDIT_CODE_MAX = 30, // the next one says nothing: VB_AETH_CREDITS_INVALID
    VB_CREDITS_MAX = 32768
};

// The largest code that stands for no more than `count`: its two highest bits and their place.
static inline unsigned vb_credit_encode(uint32_t count)
{
    if (count < 2)
        return count;
    if (count >= VB_CREDITS_MAX)
        return VB_CREDIT_CODE_MAX;
    unsigned top = 31u - (unsigned)__builtin_clz(count);
    return 2 * top + (count >> (top - 1) & 1);
}

// Of a code up to VB_CREDIT_CODE_MAX.
static inline uint32_t vb_credit_decode(unsigned code)
{
    return code < 2 ? code : (2 + (code & 1)) << (code / 2 - 1);
}

#endif
