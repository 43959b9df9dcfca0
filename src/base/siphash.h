// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 of one 64-bit word (Aumasson and Bernstein): numbers that who does not know the key
// cannot foretell, however many he has seen.
#ifndef VB_BASE_SIPHASH_H
#define VB_BASE_SIPHASH_H

#include <stdint.h>

static inline uint64_t vb_sip_rotate(uint64_t v, unsigned by)
{
    return v << by | v >> (64 - by);
}

static inline void vb_sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = vb_sip_rotate(v[1], 13) ^ v[0];
    v[0] = vb_sip_rotate(v[0], 32);
    v[2] += v[3];
    v[3] = vb_sip_rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = vb_sip_rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = vb_sip_rotate(v[1], 17) ^ v[2];
    v[2] = vb_sip_rotate(v[2], 32);
}

static inline void vb_sip_absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    vb_sip_round(v);
    vb_sip_round(v);
    v[0] ^= word;
}

// The hash of the word's eight bytes, lowest first.
static inline uint64_t vb_siphash(const uint64_t key[2], uint64_t word)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};

    vb_sip_absorb(v, word);
    vb_sip_absorb(v, 8ull << 56); // the length, as the last block
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        vb_sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
