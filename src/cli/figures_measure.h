// SPDX-License-Identifier: Apache-2.0
// RedN's experiments on this machine, in the rows' units. NAN: error (VB_COST_TEXT bytes) says why;
// INFINITY: the difference of two times was lost in the noise.
#ifndef VB_CLI_FIGURES_MEASURE_H
#define VB_CLI_FIGURES_MEASURE_H

#include "cli/figures_redn.h"

// Between two processes over udp.
double vb_measure_verb(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_get(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_rate(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_two(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_chase(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);

// Local entries, executed by the core in this process.
double vb_local_verb(const struct vb_figures_row *row, char *error);
double vb_local_order(const struct vb_figures_row *row, char *error);
double vb_local_flood(const struct vb_figures_row *row, char *error);
double vb_local_ifs(const struct vb_figures_row *row, char *error);

#endif
