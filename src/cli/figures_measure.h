// SPDX-License-Identifier: Apache-2.0
// RedN's experiments on this machine, in the rows' units.
#ifndef VB_CLI_FIGURES_MEASURE_H
#define VB_CLI_FIGURES_MEASURE_H

#include "cli/figures_redn.h"

double vb_measure_verb(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_noop(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_order(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_flood(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_ifs(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_get(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_rate(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_two(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);
double vb_measure_chase(const struct vb_figures_row *row, struct vb_figures_here *h, char *error);

#endif
