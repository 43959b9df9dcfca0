// SPDX-License-Identifier: Apache-2.0
// A limit to what a queue pair sends: so many bytes per second, and no more than a burst at once.
#ifndef VB_NIC_PACE_H
#define VB_NIC_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct vb_pace {
    uint64_t rate_Bps; // 0: no limit
    uint64_t burst_ns; // what a burst takes at the rate
    uint64_t free_ns;  // until then what was sent takes, at the rate
};

enum {
    VB_PACE_BURST_BYTES = 16384, // if nobody says
    VB_PACE_RESUME_PART = 4,     // who was held goes on when this part of a burst is free
};

static inline void vb_pace_set(struct vb_pace *p, uint64_t rate_Bps, uint32_t burst_bytes)
{
    uint64_t burst = burst_bytes ? burst_bytes : VB_PACE_BURST_BYTES;
    *p = (struct vb_pace){.rate_Bps = rate_Bps,
                          .burst_ns = rate_Bps ? burst * 1000000000u / rate_Bps : 0};
}

// Another rate: what was sent lately still counts, or asking again and again would lift any limit.
static inline void vb_pace_change(struct vb_pace *p, uint64_t now_ns, uint64_t rate_Bps,
                                  uint32_t burst_bytes)
{
    uint64_t used_ns = p->free_ns + p->burst_ns > now_ns ? p->free_ns + p->burst_ns - now_ns : 0;
    unsigned __int128 used = (unsigned __int128)used_ns * p->rate_Bps; // bytes, 10^9 times

    vb_pace_set(p, rate_Bps, burst_bytes);
    if (rate_Bps == 0)
        return;
    uint64_t until_ns = now_ns + (uint64_t)(used / rate_Bps);
    p->free_ns = until_ns > p->burst_ns ? until_ns - p->burst_ns : 0;
}

// When the next packet may leave; 0: now.
static inline uint64_t vb_pace_holds(const struct vb_pace *p, uint64_t now_ns)
{
    return p->rate_Bps && p->free_ns > now_ns ? p->free_ns + p->burst_ns / VB_PACE_RESUME_PART : 0;
}

// So many bytes have left. A pause longer than a burst is lost.
static inline void vb_pace_charge(struct vb_pace *p, uint64_t now_ns, uint32_t bytes)
{
    uint64_t oldest_ns = now_ns > p->burst_ns ? now_ns - p->burst_ns : 0;

    if (p->rate_Bps == 0)
        return;
    if (p->free_ns < oldest_ns)
        p->free_ns = oldest_ns;
    p->free_ns += (uint64_t)bytes * 1000000000u / p->rate_Bps;
}

#endif
