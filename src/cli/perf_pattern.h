// SPDX-License-Identifier: Apache-2.0
// Bytes that prove where they came from, and where they lie in the memory of a measurement.
//
// Both sides lay their memory out alike: a window that ordinary operations use, for each queue pair
// a few slots for the operations whose bytes are verified, and buffers for the receives of a
// service that loses messages: there nobody knows beforehand which receive a message will take.
#ifndef VB_CLI_PERF_PATTERN_H
#define VB_CLI_PERF_PATTERN_H

#include "cli/perf.h"

#include <stddef.h>

enum {
    VB_PERF_GRH = 40 // bytes before a datagram
};

struct vb_perf_layout {
    uint32_t stride;   // of one operation's bytes
    uint32_t slots;    // per queue pair
    uint32_t window;   // bytes
    uint32_t receives; // per queue pair; 0: they share the window and the slots
    uint32_t receive_stride;
    size_t slots_bytes; // of all queue pairs
    size_t total;       // bytes
};

struct vb_perf_layout vb_perf_layout_of(const struct vb_perf_plan *plan);
// Where the v-th verified operation of a queue pair (the first is 1) has its slot.
size_t vb_perf_slot(const struct vb_perf_layout *l, uint32_t qp, uint64_t v);
// The word of a queue pair that CAS and FADD work on, at the target.
size_t vb_perf_word(const struct vb_perf_layout *l, uint32_t qp);
// Where the payload of a message lands that takes the n-th receive of a queue pair (from 1 on).
// The VB_PERF_GRH bytes before are free.
size_t vb_perf_receive(const struct vb_perf_layout *l, uint32_t qp, uint64_t n);
// How many receives a queue pair of the target holds.
uint32_t vb_perf_recv_depth(const struct vb_perf_plan *plan);
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
