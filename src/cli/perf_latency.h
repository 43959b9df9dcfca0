// SPDX-License-Identifier: Apache-2.0
// Latencies of one kind, gathered slice by slice.
#ifndef VB_CLI_PERF_LATENCY_H
#define VB_CLI_PERF_LATENCY_H

#include "base/hist.h"
#include "cli/perf.h"

struct vb_perf_slices {
    unsigned count;
    uint64_t medians[VB_PERF_SLICES];
    struct vb_hist all;
};

void vb_perf_slices_init(struct vb_perf_slices *slices);
void vb_perf_slices_add(struct vb_perf_slices *slices, const struct vb_hist *slice);
// The slices' medians, and the quantiles of all that was recorded. All slices must be there.
void vb_perf_slices_summarise(struct vb_perf_slices *slices, struct vb_perf_latency *out);

#endif
