// SPDX-License-Identifier: Apache-2.0
// What the software NIC takes for a paper's experiments, on this machine: between two processes
// over udp, or on its core alone.
#ifndef VB_CLI_FIGURES_HERE_H
#define VB_CLI_FIGURES_HERE_H

#include "chain/image.h"
#include "cli/perf_session.h"
#include "cli/progress.h"

struct vb_figures_here {
    struct vb_perf_session session;
    struct vb_perf_length length;
    struct vb_progress silent; // the rows are the progress
    uint32_t mtu;
};

// False: error (VB_COST_TEXT bytes) says why.
bool vb_figures_here_open(struct vb_figures_here *h, double seconds, char *error);
void vb_figures_here_close(struct vb_figures_here *h);

// The median of the operation's latency in microseconds; NAN: error says why.
double vb_figures_here_verb(struct vb_figures_here *h, enum vb_perf_op op, uint32_t bytes,
                            char *error);

// A get; `list`: the key is in one of so many first nodes of a list, and the chain stops there.
struct vb_figures_get {
    uint32_t bytes, depth, list;
    bool stops;
    enum vb_perf_collision collision;
    enum vb_perf_via via;
};
// All ways that the plan names. False: error says why.
bool vb_figures_here_get(struct vb_figures_here *h, const struct vb_figures_get *get,
                         struct vb_perf_way way[VB_PERF_WAYS], char *error);

// Nanoseconds until the core has executed the program, the median of a few runs; takes the image.
// NAN: error says why.
double vb_figures_here_run(struct vb_image *image, char *error);

#endif
