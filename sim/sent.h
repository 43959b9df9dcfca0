// SPDX-License-Identifier: Apache-2.0
// The frames under way: what a queue pair accepts must be one of them, bit for bit. Each entry says
// who sent the frame and which packet of the connection it is, so that the model knows what was
// lost when the network drops it.
#ifndef VB_SIM_SENT_H
#define VB_SIM_SENT_H

#include "nic/frame.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_ep;

struct vb_sent_frame {
    uint64_t key;       // 0: a free slot
    struct vb_ep *ep;   // the sender; NULL: forged
    int64_t first;      // its number, as the connection's requester counts
    int64_t packet;     // the same, or of a READ's last response
    uint32_t life;      // of the connection
    uint32_t under_way; // copies neither dropped nor taken by a NIC
    uint32_t old;       // of them, at most, from before the network healed: all copies look alike
    uint32_t came; // a copy was heard since the requester last went back: vb_fate's `went_back` + 1
    bool answer;
    bool nak; // an answer that makes the requester go back
};

struct vb_sent {
    struct vb_sent_frame *slot; // open addressing
    uint32_t size;              // power of two, or 0
    uint32_t used;
};

// One more copy is under way. NULL: no memory.
struct vb_sent_frame *vb_sent_add(struct vb_sent *s, const struct vb_ip *src,
                                  const struct vb_ip *dst, const uint8_t *frame, uint32_t len);
// NULL: no copy is under way.
struct vb_sent_frame *vb_sent_find(const struct vb_sent *s, const struct vb_ip *src,
                                   const struct vb_ip *dst, const uint8_t *frame, uint32_t len);
void vb_sent_take(struct vb_sent_frame *f); // one copy is not under way any more
void vb_sent_heal(struct vb_sent *s);       // all that are under way are old
void vb_sent_fini(struct vb_sent *s);

#endif
