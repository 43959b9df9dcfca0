// SPDX-License-Identifier: Apache-2.0
// Experiments of the RedN paper (NSDI 2022) on the cost model.
#ifndef VB_CLI_FIGURES_REDN_H
#define VB_CLI_FIGURES_REDN_H

#include "cli/figures_here.h"
#include "cost/preset.h"

#include <stdbool.h>

// What the paper's value is to the presets.
enum vb_figures_mark {
    VB_MARK_INPUT,     // a parameter was worked out from it
    VB_MARK_FITTED,    // a parameter was chosen so that it fits
    VB_MARK_PREDICTED, // neither
};

struct vb_figures_row {
    const char *where, *what, *unit;
    double paper; // 0: the text has no number
    enum vb_figures_mark mark;
    // In the row's unit; negative: it failed, and error (VB_COST_TEXT bytes) says why.
    double (*run)(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                  char *error);
    // The same on this machine; NULL: there is nothing like it.
    double (*measure)(const struct vb_figures_row *row, struct vb_figures_here *here, char *error);
    const char *entry; // or what else the experiment needs to know
    uint32_t count, bytes;
};

// A get of so many bytes on the model, and a list walk to the n-th node, in microseconds; negative:
// error says why.
double vb_figures_get_us(uint32_t bytes, const struct vb_cost_preset *preset, char *error);
double vb_figures_list_us(uint32_t node, bool stops, const struct vb_cost_preset *preset,
                          char *error);

// What is there, and why the rest is not.
extern const struct vb_figures_row vb_figures_redn[];
extern const uint32_t vb_figures_redn_rows;
extern const char *const vb_figures_redn_missing[]; // ends with a NULL
// What does not fit, and why; the same.
extern const char *const vb_figures_redn_misfits[];

#endif
