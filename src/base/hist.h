// SPDX-License-Identifier: Apache-2.0
// A histogram of latencies in nanoseconds: log-linear buckets, relative error below 1 %.
#ifndef VB_BASE_HIST_H
#define VB_BASE_HIST_H

#include "base/least.h"

#include <stdint.h>

enum {
    // Each power of two is cut into 64 buckets, so a bucket's middle is within 1/128 of its values.
    VB_HIST_SUB_BITS = 6,
    VB_HIST_SUBS = 1 << VB_HIST_SUB_BITS,
    VB_HIST_TOP_BITS = 38, // values from 2^38 ns (275 s) on share the last bucket
    VB_HIST_BUCKETS = (VB_HIST_TOP_BITS - VB_HIST_SUB_BITS + 1) * VB_HIST_SUBS,
};

struct vb_hist {
    uint64_t count;
    uint64_t min_ns, max_ns; // exact; UINT64_MAX and 0 while empty
    uint64_t buckets[VB_HIST_BUCKETS];
};

void vb_hist_init(struct vb_hist *h);

// Below 2^7 ns a bucket holds one value; above, the highest set bit selects a row of 64 buckets and
// the six bits after it the bucket.
static inline uint32_t vb_hist_bucket(uint64_t ns)
{
    if (ns >> VB_HIST_TOP_BITS)
        return VB_HIST_BUCKETS - 1;
    uint32_t top_bit = 63 - (uint32_t)__builtin_clzll(ns | VB_HIST_SUBS);
    uint32_t row = top_bit - VB_HIST_SUB_BITS;
    return row * VB_HIST_SUBS + (uint32_t)(ns >> row);
}

static inline void vb_hist_record(struct vb_hist *h, uint64_t ns)
{
    h->count++;
    h->min_ns = vb_least(h->min_ns, ns);
    h->max_ns = vb_most(h->max_ns, ns);
    h->buckets[vb_hist_bucket(ns)]++;
}

// The value that a fraction q of all records does not exceed, q in [0, 1]; 0 when empty. A process
// that was killed in vb_hist_record() leaves a count above the sum of the buckets in shared memory:
// what the buckets lack counts as the largest value.
uint64_t vb_hist_quantile(const struct vb_hist *h, double q);

// Adds the records of `from` to `into`.
void vb_hist_merge(struct vb_hist *into, const struct vb_hist *from);

#endif
