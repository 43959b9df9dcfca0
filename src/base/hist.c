// SPDX-License-Identifier: Apache-2.0
// Quantiles and sums of latency histograms.
#include "base/hist.h"

#include <assert.h>
#include <string.h>

static_assert(1ull << VB_HIST_TOP_BITS > 100ull * 1000000000, "covers more than 100 s");

void vb_hist_init(struct vb_hist *h)
{
    memset(h, 0, sizeof *h);
    h->min_ns = UINT64_MAX;
}

// The inverse of vb_hist_bucket: the middle of what the bucket holds.
static uint64_t bucket_middle_ns(uint32_t bucket)
{
    if (bucket < 2 * VB_HIST_SUBS)
        return bucket;
    uint32_t row = bucket / VB_HIST_SUBS - 1;
    uint64_t first = (uint64_t)(bucket % VB_HIST_SUBS + VB_HIST_SUBS) << row;
    return first + (1ull << row) / 2;
}

// How many records, counted from the least, must be passed to reach the quantile: 1 to count.
static uint64_t rank_of(uint64_t count, double q)
{
    double wanted = q * (double)count;
    if (!(wanted > 1))
        return 1;
    if (wanted >= (double)count)
        return count;
    uint64_t rank = (uint64_t)wanted;
    return (double)rank < wanted ? rank + 1 : rank;
}

uint64_t vb_hist_quantile(const struct vb_hist *h, double q)
{
    if (h->count == 0)
        return 0;
    uint64_t rank = rank_of(h->count, q);
    if (rank == 1)
        return h->min_ns;
    if (rank == h->count)
        return h->max_ns;
    uint64_t seen = h->buckets[0];
    uint32_t bucket = 0;
    while (seen < rank && bucket < VB_HIST_BUCKETS - 1)
        seen += h->buckets[++bucket];
    return vb_least(vb_most(bucket_middle_ns(bucket), h->min_ns), h->max_ns);
}

void vb_hist_merge(struct vb_hist *into, const struct vb_hist *from)
{
    into->count += from->count;
    into->min_ns = vb_least(into->min_ns, from->min_ns);
    into->max_ns = vb_most(into->max_ns, from->max_ns);
    for (uint32_t i = 0; i < VB_HIST_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}
