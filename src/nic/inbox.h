// SPDX-License-Identifier: Apache-2.0
// Frames that came to another processing unit than their queue pair's: handed over as copies.
#ifndef VB_NIC_INBOX_H
#define VB_NIC_INBOX_H

#include "base/spin.h"
#include "nic/frame.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_INBOX_FRAMES = 128
};

// Two halves: one is filled by others while the owner works through the other one.
struct vb_inbox {
    struct vb_spin lock;
    atomic_uint waiting; // frames in the half that is being filled
    uint32_t filling;    // which half
    struct vb_rx_frame frame[2][VB_INBOX_FRAMES];
    uint8_t *bytes; // VB_FRAME_MAX for each frame
};

int vb_inbox_init(struct vb_inbox *box); // -ENOMEM
void vb_inbox_fini(struct vb_inbox *box);
// Copies a frame. False: no room, it is lost like any other.
bool vb_inbox_put(struct vb_inbox *box, const struct vb_rx_frame *frame);
// The frames that wait, to be consumed before the next call. Returns how many.
uint32_t vb_inbox_take(struct vb_inbox *box, const struct vb_rx_frame **frames);

static inline bool vb_inbox_waiting(const struct vb_inbox *box)
{
    return atomic_load_explicit(&box->waiting, memory_order_seq_cst) > 0;
}

#endif
