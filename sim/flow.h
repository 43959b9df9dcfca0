// SPDX-License-Identifier: Apache-2.0
// Random programs of statements, and a reference that interprets the same statements in C.
#ifndef VB_SIM_FLOW_H
#define VB_SIM_FLOW_H

#include "chain/flow.h"

enum {
    VB_SIMFLOW_VARS = 6,
    VB_SIMFLOW_POINTERS = 3,
    VB_SIMFLOW_MEMORY = 64,
    VB_SIMFLOW_DEPTH_MAX = 4,
    // Where the reference has the program's memory: as a machine (chain/machine.h) has its first
    // region.
    VB_SIMFLOW_BASE = 1 << 24,
};

// What the reference makes of a program.
struct vb_simflow {
    struct vb_flow *f;
    uint64_t var[VB_FLOW_VARS];
    uint8_t memory[VB_SIMFLOW_MEMORY];
    struct vb_var v[VB_SIMFLOW_VARS], p[VB_SIMFLOW_POINTERS], counter;
    uint64_t rounds;
    bool broken;
};

// What was generated.
struct vb_simflow_tally {
    uint32_t compare[6], width[65], depth[VB_SIMFLOW_DEPTH_MAX + 1], breaks, loops, loads, stores,
        others;
    uint32_t next_width;
};

// Interprets the statements of w->f on w->memory, the only region that pointers are of.
void vb_simflow_run(struct vb_simflow *w);
// The program of a seed, and in *w what must come out of it. NULL: error (VB_IMAGE_TEXT bytes) says
// why.
struct vb_image *vb_simflow_make(struct vb_simflow *w, uint64_t seed,
                                 struct vb_simflow_tally *tally, char *error);

#endif
