// SPDX-License-Identifier: Apache-2.0
// A small seeded generator (splitmix64). Not for secrets by itself: seed it with secrets.
#ifndef VB_BASE_PRNG_H
#define VB_BASE_PRNG_H

#include <stdbool.h>
#include <stdint.h>

struct vb_prng {
    uint64_t state;
};

static inline uint64_t vb_prng_next(struct vb_prng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Uniform in [0, n); n > 0. The bias of the multiply is below 2^-32 for n < 2^32.
static inline uint64_t vb_prng_below(struct vb_prng *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)vb_prng_next(r) * n) >> 64);
}

// Uniform in [lo, hi], both included.
static inline uint64_t vb_prng_range(struct vb_prng *r, uint64_t lo, uint64_t hi)
{
    return lo + vb_prng_below(r, hi - lo + 1);
}

// True with probability ppm / 1,000,000.
static inline bool vb_prng_chance(struct vb_prng *r, uint32_t ppm)
{
    return vb_prng_below(r, 1000000) < ppm;
}

#endif
