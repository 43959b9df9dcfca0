// SPDX-License-Identifier: Apache-2.0
// Bytes that prove where they came from, and where they lie in the memory of a measurement.
//
// Both sides lay their memory out alike: a window that ordinary operations use, then for each queue
// pair a few slots for the operations whose bytes are verified.
#ifndef VB_CLI_PERF_PATTERN_H
#define VB_CLI_PERF_PATTERN_H

#include "cli/perf.h"

#include <stddef.h>

struct vb_perf_layout {
    uint32_t stride; // of one operation's bytes
    uint32_t slots;  // per queue pair
    uint32_t window; // bytes
    size_t total;    // bytes
};

struct vb_perf_layout vb_perf_layout_of(const struct vb_perf_plan *plan);
// Where the v-th verified operation of a queue pair (the first is 1) has its slot.
size_t vb_perf_slot(const struct vb_perf_layout *l, uint32_t qp, uint64_t v);
// Where in the window it reads.
uint32_t vb_perf_read_offset(const struct vb_perf_layout *l, uint64_t v);

// A pattern that covers all offsets; `offset` is a multiple of eight.
void vb_pattern_fill(void *bytes, size_t len, uint64_t seed, uint64_t offset);
bool vb_pattern_matches(const void *bytes, size_t len, uint64_t seed, uint64_t offset);

// A stamp fills a slot with bytes of the v-th verified operation of a queue pair alone. Its last
// bytes differ from those of the stamp before it in the same slot, so that they tell when it has
// arrived.
void vb_stamp_write(void *slot, const struct vb_perf_plan *plan, uint32_t qp, uint64_t v);
bool vb_stamp_arrived(const void *slot, const struct vb_perf_plan *plan, uint32_t qp, uint64_t v);
bool vb_stamp_matches(const void *slot, const struct vb_perf_plan *plan, uint32_t qp, uint64_t v);

#endif
