// SPDX-License-Identifier: Apache-2.0
// A token bucket: so many per second, and no more than a burst at once.
#ifndef VB_NIC_BUCKET_H
#define VB_NIC_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

struct vb_bucket {
    uint64_t gap_ns;   // between two tokens; 0: no limit
    uint64_t depth_ns; // of a burst
    uint64_t full_ns;  // when the bucket is full again, if nothing is taken
};

static inline void vb_bucket_init(struct vb_bucket *b, uint32_t per_second, uint32_t burst)
{
    *b = (struct vb_bucket){0};
    if (per_second == 0)
        return;
    b->gap_ns = 1000000000u / per_second + (1000000000u % per_second != 0);
    b->depth_ns = b->gap_ns * (burst ? burst : 1);
}

// Takes a token. False: there is none before *ready_ns.
static inline bool vb_bucket_take(struct vb_bucket *b, uint64_t now_ns, uint64_t *ready_ns)
{
    uint64_t full = b->full_ns > now_ns ? b->full_ns : now_ns;

    if (full + b->gap_ns > now_ns + b->depth_ns) {
        *ready_ns = full + b->gap_ns - b->depth_ns;
        return false;
    }
    b->full_ns = full + b->gap_ns;
    return true;
}

#endif
