// SPDX-License-Identifier: Apache-2.0
// Completion queues of the simulation.
#ifndef VB_SIM_CQ_H
#define VB_SIM_CQ_H

#include "sim/world.h"

int vb_simcq_create(struct vb_node *node, uint32_t index);
void vb_simcq_free(struct vb_simcq *cq);
// A host's turn, after it polled: asks for events, moderates them, gives the queue another ring.
void vb_simcq_act(struct vb_node *node, struct vb_simcq *cq);
// Queues that have overrun are made anew, and their connections start over.
void vb_simcq_repair(struct vb_node *node);

#endif
