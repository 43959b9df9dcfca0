// SPDX-License-Identifier: Apache-2.0
// Storms: the last requests of a queue pair that have answers of their own come once more, all at
// once, as from a network that kept copies of them. No responder owes so many answers otherwise.
#ifndef VB_SIM_STORM_H
#define VB_SIM_STORM_H

#include <stdint.h>

enum {
    VB_STORM_FRAMES = 48, // more than the answers that a responder can owe
    VB_STORM_BYTES = 96,  // of the longest such request
};

struct vb_ep;
struct vb_packet;

struct vb_storm {
    uint8_t frame[VB_STORM_FRAMES][VB_STORM_BYTES];
    uint8_t len[VB_STORM_FRAMES];
    uint32_t count; // ever; the ring holds the last ones
};

// The queue pair has sent a frame.
void vb_storm_remember(struct vb_ep *ep, const struct vb_packet *pkt, const uint8_t *bytes,
                       uint32_t len);
// Copies of what its peer has sent reach the queue pair.
void vb_storm_strike(struct vb_ep *to);

#endif
