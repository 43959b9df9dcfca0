// SPDX-License-Identifier: Apache-2.0
// Every frame that queue pairs of unreliable services ever sent, as a set of digests: what one of
// them accepts must be in it, bit for bit, whenever it was sent.
#ifndef VB_SIM_SENT_H
#define VB_SIM_SENT_H

#include "nic/frame.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_sent {
    uint64_t *slot; // open addressing; 0: free
    uint32_t size;  // power of two, or 0
    uint32_t used;
    bool lost; // there was no memory for some
};

void vb_sent_add(struct vb_sent *s, const struct vb_ip *src, const struct vb_ip *dst,
                 const uint8_t *frame, uint32_t len);
bool vb_sent_has(const struct vb_sent *s, const struct vb_ip *src, const struct vb_ip *dst,
                 const uint8_t *frame, uint32_t len);
void vb_sent_fini(struct vb_sent *s);

#endif
