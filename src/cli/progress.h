// SPDX-License-Identifier: Apache-2.0
// One line on the terminal that says how far long work is.
#ifndef VB_CLI_PROGRESS_H
#define VB_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct vb_progress {
    bool on; // stderr is a terminal, and the work is long enough to say so
    uint64_t shown_ns;
    const char *label;
    double from, to; // the part of the whole that the present phase is, 0 to 1
};

void vb_progress_init(struct vb_progress *p, double expected_seconds);
void vb_progress_phase(struct vb_progress *p, const char *label, double from, double to);
// `part` of the present phase is done. Prints a few times a second at most.
void vb_progress_show(struct vb_progress *p, uint64_t now_ns, double part);
void vb_progress_clear(struct vb_progress *p);

#endif
