// SPDX-License-Identifier: Apache-2.0
// The event log as text: one line per step, and words for what the numbers mean.
#ifndef VB_SIM_TRACE_H
#define VB_SIM_TRACE_H

#include "sim/world.h"
#include "wire/packet.h"

const char *vb_trace_opcode(uint8_t opcode);
const char *vb_trace_verdict(uint8_t verdict);

// Both do nothing while the world has no trace.
void vb_trace_step(const struct vb_node *node, const struct vb_step *step);
void vb_trace_frame(const struct vb_node *node, const struct vb_step *step,
                    const struct vb_packet *pkt, const char *direction);
__attribute__((format(printf, 2, 3))) void vb_trace_note(struct vb_world *w, const char *format,
                                                         ...);

#endif
