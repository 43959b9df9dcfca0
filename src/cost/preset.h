// SPDX-License-Identifier: Apache-2.0
// The parameters of a card, and the text form they are kept in (docs/cost.md).
#ifndef VB_COST_PRESET_H
#define VB_COST_PRESET_H

#include "verbena/cost.h"

enum {
    VB_PRESET_NAME = 32,
};

// What executes one entry after the other.
enum vb_cost_lanes {
    VB_LANE_QUEUE,   // each queue for itself
    VB_LANE_PROGRAM, // all queues of a program together: nothing overlaps
};

// Times in picoseconds; rates in bytes per second. docs/cost.md says what each is.
struct vb_cost_preset {
    char name[VB_PRESET_NAME];
    uint64_t doorbell, fetch, issue, wait, enable, network, completion, read, write, gather, cold;
    uint64_t occupancy, atomic;
    uint64_t link, pcie, message;
    uint64_t fetch_batch, managed_batch, reads;
    uint64_t pus, ports, chains;
    uint64_t mtu, qp_cache, page_cache, page;
    uint64_t lanes; // enum vb_cost_lanes
};

// A preset's file, as the build has put it into the library.
struct vb_preset_file {
    const char *name, *text;
};
extern const struct vb_preset_file vb_preset_files[]; // ends with a NULL

// The time that so many bytes take. The rate is at least a million.
static inline uint64_t vb_cost_bytes_ps(uint64_t bytes, uint64_t rate)
{
    return bytes * 1000000 / (rate / 1000000);
}

#endif
