// SPDX-License-Identifier: Apache-2.0
// The clock of the ports: monotonic nanoseconds.
#ifndef VB_PORT_CLOCK_H
#define VB_PORT_CLOCK_H

#include <stdint.h>

uint64_t vb_clock_ns(void);

// The clock for who asks all the time: between two readings, tens of microseconds apart, the
// processor's own counter tells how much has passed, which takes a third of the time to read.
struct vb_recent {
    uint64_t ticks, ns; // at the last reading
    uint64_t told_ns;   // the last answer: time does not go back
    uint64_t rate;      // ns per tick, times 2^VB_RECENT_SHIFT; 0: not known yet
};

enum {
    VB_RECENT_SHIFT = 24,
    VB_RECENT_TICKS = 1 << 17, // after which the clock is read again
};

// What the counter cannot tell: reads the clock.
uint64_t vb_clock_recent_read(struct vb_recent *recent);

static inline uint64_t vb_clock_recent_ns(struct vb_recent *recent)
{
#ifdef __x86_64__
    uint64_t since = __builtin_ia32_rdtsc() - recent->ticks;
    if (since < VB_RECENT_TICKS && recent->rate != 0) {
        uint64_t ns = recent->ns + (since * recent->rate >> VB_RECENT_SHIFT);
        if (ns > recent->told_ns)
            recent->told_ns = ns;
        return recent->told_ns;
    }
#endif
    return vb_clock_recent_read(recent);
}

#endif
