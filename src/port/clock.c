// SPDX-License-Identifier: Apache-2.0
// The clock of the ports.
#include "port/clock.h"

#include <assert.h>
#include <stdbool.h>
#include <time.h>

uint64_t vb_clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

enum {
    LEARN_MIN_NS = 20 * 1000,          // shorter stretches are too inexact to learn the rate from
    LEARN_MAX_NS = 1000 * 1000 * 1000, // and longer ones need not be of one rate
    SLOWEST_NS = 16,                   // of a tick
    PAIR_TICKS = 1000,                 // a reading that takes longer was interrupted
};

static_assert(LEARN_MAX_NS < UINT64_MAX >> VB_RECENT_SHIFT, "a rate can be computed");
static_assert(SLOWEST_NS * (uint64_t)VB_RECENT_TICKS < UINT64_MAX >> VB_RECENT_SHIFT, "and used");

static uint64_t count_ticks(void)
{
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

// The rate follows from two readings, and is learnt anew if one was interrupted. A thread that
// moved to a core with another counter finds that too much has passed, and reads the clock again.
uint64_t vb_clock_recent_read(struct vb_recent *recent)
{
    uint64_t before = count_ticks(), ns = vb_clock_ns(), after = count_ticks();
    uint64_t passed = ns - recent->ns, since = before - recent->ticks;

    if (after - before > PAIR_TICKS)
        recent->rate = recent->ns = 0;
    else if (recent->ns == 0 || passed >= LEARN_MIN_NS) {
        bool fits = recent->ns != 0 && passed < LEARN_MAX_NS && since > passed / SLOWEST_NS;
        recent->rate = fits ? (passed << VB_RECENT_SHIFT) / since : 0;
        recent->ticks = before;
        recent->ns = ns;
    }
    if (ns > recent->told_ns)
        recent->told_ns = ns;
    return recent->told_ns;
}
