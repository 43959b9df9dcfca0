// SPDX-License-Identifier: Apache-2.0
// One seed from start to end.
#ifndef VB_SIM_RUN_H
#define VB_SIM_RUN_H

#include "sim/coverage.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// Worlds of chain programs, which a part of the seeds has beside the other one.
enum vb_sim_chains {
    VB_SIM_CHAINS_DRAWN,
    VB_SIM_CHAINS_NONE,
    VB_SIM_CHAINS_ONLY, // every seed has one, and no other
};

struct vb_sim_opts {
    uint64_t seed;
    uint32_t ops;  // 0: the default
    uint32_t nics; // 0: drawn
    FILE *trace;   // NULL: none
    enum vb_sim_chains chains;
    bool equal; // each world twice, by polls with an observer and without: they must be equal
    bool cm;    // a world of communication managers, and no other
};

struct vb_sim_result {
    uint64_t seed;
    uint64_t digest;
    uint64_t events; // steps of all NICs
    uint64_t works;  // send work requests
    uint64_t time_ns;
    uint32_t nics;
    bool violated;
    char text[400]; // what was expected and what was seen
};

// 0, also when something was violated; -ENOMEM. Counts into *cover.
int vb_sim_run(const struct vb_sim_opts *opts, struct vb_sim_result *result,
               struct vb_coverage *cover);

#endif
