// SPDX-License-Identifier: Apache-2.0
// Random programs of statements, and a reference that interprets the same statements in C.
#ifndef VB_TESTS_FLOW_KIT_H
#define VB_TESTS_FLOW_KIT_H

#include "chain/flow.h"

enum {
    FLOW_VARS = 6,
    FLOW_POINTERS = 3,
    FLOW_MEMORY = 64,
    FLOW_DEPTH_MAX = 4,
};

// What the reference makes of a program.
struct flow_world {
    struct vb_flow *f;
    uint64_t var[VB_FLOW_VARS];
    uint8_t memory[FLOW_MEMORY];
    struct vb_var v[FLOW_VARS], p[FLOW_POINTERS], counter;
    uint32_t offset[FLOW_POINTERS];
    uint64_t rounds;
    bool broken;
};

// What was generated.
struct flow_tally {
    uint32_t compare[6], width[65], depth[FLOW_DEPTH_MAX + 1], breaks, loops, loads, stores, others;
    uint32_t next_width;
};

// The program of a seed, and in *w what must come out of it.
struct vb_image *flow_make_program(struct flow_world *w, uint64_t seed, struct flow_tally *tally);

#endif
