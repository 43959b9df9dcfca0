// SPDX-License-Identifier: Apache-2.0
// Pictures of experiments, by gnuplot.
#ifndef VB_CLI_FIGURES_PLOT_H
#define VB_CLI_FIGURES_PLOT_H

#include "cli/figures_redn.h"

// Draws figures 10 and 13 into the directory, as SVG. One of `here` and `preset` may be NULL;
// without presets the files' names end with "-here". Returns 0, or -1: error (VB_COST_TEXT bytes)
// says why.
int vb_figures_plot(const char *directory, struct vb_figures_here *here,
                    struct vb_cost_preset *const preset[VB_READINGS], char *error);

#endif
