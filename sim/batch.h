// SPDX-License-Identifier: Apache-2.0
// Many seeds in several processes. The seed that is reported is the lowest that fails, however many
// processes there are; a crash is a violation of the seed that crashed.
#ifndef VB_SIM_BATCH_H
#define VB_SIM_BATCH_H

#include "sim/run.h"

struct vb_batch_opts {
    uint64_t first, count; // seeds
    uint32_t jobs;         // processes
    uint32_t ops, nics;    // of each seed
    enum vb_sim_chains chains;
    bool equal;
    bool cm;
    // Called now and then with the number of seeds done, or NULL.
    void (*progress)(void *ctx, uint64_t done);
    void *ctx;
};

struct vb_batch_result {
    uint64_t done; // seeds that ended, well or not
    uint64_t events, works;
    struct vb_sim_result worst; // the lowest seed that failed, if worst.violated
    struct vb_coverage cover;
};

// 0 or a negative errno.
int vb_batch_run(const struct vb_batch_opts *opts, struct vb_batch_result *result);

#endif
