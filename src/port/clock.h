// SPDX-License-Identifier: Apache-2.0
// The clock of the ports: monotonic nanoseconds.
#ifndef VB_PORT_CLOCK_H
#define VB_PORT_CLOCK_H

#include <stdint.h>

uint64_t vb_clock_ns(void);

// The clock for who asks all the time: a reading is used again for half a microsecond, as told by
// the processor's own counter, which takes a quarter of the time to read.
struct vb_recent {
    uint64_t ticks, ns;
};

enum {
    VB_RECENT_TICKS = 1500
};

static inline uint64_t vb_clock_recent_ns(struct vb_recent *recent)
{
#ifdef __x86_64__
    uint64_t ticks = __builtin_ia32_rdtsc();
    if (ticks - recent->ticks < VB_RECENT_TICKS)
        return recent->ns;
    recent->ticks = ticks;
#endif
    recent->ns = vb_clock_ns();
    return recent->ns;
}

#endif
