// SPDX-License-Identifier: Apache-2.0
// Experiments of the RedN paper (NSDI 2022) on the cost model.
#ifndef VB_CLI_FIGURES_REDN_H
#define VB_CLI_FIGURES_REDN_H

#include "cli/figures_here.h"
#include "cost/preset.h"

#include <stdbool.h>

// What the paper's value is to the presets.
enum vb_figures_mark {
    VB_MARK_INPUT,     // a parameter was worked out from it, or from the number it follows from
    VB_MARK_FITTED,    // a parameter was chosen so that it fits
    VB_MARK_PREDICTED, // neither
};

// Cards of the paper. Each has one preset for each reading of the paper, which serves every
// experiment on that card.
enum vb_figures_card {
    VB_CARD_CONNECTX5,
    VB_CARD_CONNECTX5_TWO_PORTS,
    VB_CARD_CONNECTX3,
    VB_CARD_CONNECTX6,
    VB_CARDS
};

enum {
    VB_READINGS = 2, // of the paper: docs/cost.md calls them A and B
    VB_LIST_NODES = 8,
};

// The names of presets; NULL: that reading has none for the card.
extern const char *const vb_figures_preset[VB_CARDS][VB_READINGS];

struct vb_figures_row {
    const char *where, *what, *unit;
    double paper; // 0: the text has no number
    enum vb_figures_mark mark;
    enum vb_figures_card card;
    // In the row's unit; NAN: it failed, and error (VB_COST_TEXT bytes) says why.
    double (*run)(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                  char *error);
    // On this machine, between two processes over udp; INFINITY: lost in the noise. NULL: nothing
    // is like it.
    double (*measure)(const struct vb_figures_row *row, struct vb_figures_here *here, char *error);
    // On this machine, local entries in one process; likewise.
    double (*local)(const struct vb_figures_row *row, char *error);
    const char *entry;     // of experiments on one entry
    uint32_t kind;         // an enum or a flag of the experiment
    uint32_t bytes, nodes; // of a value and of a list; 0: not part of the label
    const char *why;       // it may not fit
};

// A get of so many bytes on the model, and a list walk to the n-th node, in microseconds; NAN:
// error says why.
double vb_figures_get_us(uint32_t bytes, const struct vb_cost_preset *preset, char *error);
double vb_figures_list_us(uint32_t node, bool stops, const struct vb_cost_preset *preset,
                          char *error);

// The experiments with the paper's values, and what is not run, with the reason.
extern const struct vb_figures_row vb_figures_redn[];
extern const uint32_t vb_figures_redn_rows;
extern const char *const vb_figures_redn_missing[]; // ends with a NULL

#endif
