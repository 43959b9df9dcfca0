// SPDX-License-Identifier: Apache-2.0
// Writes down what a machine does, for the model.
#ifndef VB_COST_RECORD_H
#define VB_COST_RECORD_H

#include "cost/model.h"

// Entries before `end` have been opened, by an entry or by nobody.
void vb_cost_open(struct vb_cost *c, struct vb_cost_openings *o, uint64_t end, uint32_t by);
// Runs the machine to its end, or to the limit of steps.
void vb_cost_record(struct vb_cost *c, struct vb_machine *m, struct vb_watch *w);

#endif
