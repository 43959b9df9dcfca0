// SPDX-License-Identifier: Apache-2.0
// Latencies of one kind, gathered slice by slice.
#include "cli/perf_latency.h"

#include <assert.h>
#include <stdlib.h>

void vb_perf_slices_init(struct vb_perf_slices *slices)
{
    slices->count = 0;
    vb_hist_init(&slices->all);
}

// A slice's median, by rank between the bounds of its bucket: ratios of two medians are finer than
// buckets are.
static uint64_t median_ns(const struct vb_hist *h)
{
    uint64_t below = 0;
    uint32_t b = vb_hist_bucket(vb_hist_quantile(h, 0.5));
    for (uint32_t i = 0; i < b; i++)
        below += h->buckets[i];
    uint32_t row = b < 2 * VB_HIST_SUBS ? 0 : b / VB_HIST_SUBS - 1;
    double first = (double)((uint64_t)(b - row * VB_HIST_SUBS) << row);
    double rank = (double)h->count / 2 - (double)below;
    uint64_t inside = h->buckets[b] ? h->buckets[b] : 1;
    return (uint64_t)(first + (double)(1ull << row) * rank / (double)inside);
}

void vb_perf_slices_add(struct vb_perf_slices *slices, const struct vb_hist *slice)
{
    assert(slices->count < VB_PERF_SLICES);
    slices->medians[slices->count++] = median_ns(slice);
    vb_hist_merge(&slices->all, slice);
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void vb_perf_slices_summarise(struct vb_perf_slices *slices, struct vb_perf_latency *out)
{
    uint64_t *medians = slices->medians;
    assert(slices->count == VB_PERF_SLICES);
    qsort(medians, VB_PERF_SLICES, sizeof *medians, compare_ns);
    out->count = slices->all.count;
    out->p50_ns = (medians[(VB_PERF_SLICES - 1) / 2] + medians[VB_PERF_SLICES / 2]) / 2;
    out->p99_ns = vb_hist_quantile(&slices->all, 0.99);
    out->p999_ns = vb_hist_quantile(&slices->all, 0.999);
    out->p50_min_ns = medians[0];
    out->p50_max_ns = medians[VB_PERF_SLICES - 1];
}
