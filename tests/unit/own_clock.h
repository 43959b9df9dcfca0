// SPDX-License-Identifier: Apache-2.0
// A clock that stands still until the test moves it. A test that includes this defines the clock of
// the ports, so no other one is linked: helpers and NICs of the test read it, too.
#ifndef VB_TESTS_OWN_CLOCK_H
#define VB_TESTS_OWN_CLOCK_H

#include "port/clock.h"

#include <stdatomic.h>

static atomic_uint_fast64_t own_clock_ns = 1000000000;

uint64_t vb_clock_ns(void)
{
    return atomic_load(&own_clock_ns);
}

// The rate stays unknown, so this is asked each time.
uint64_t vb_clock_recent_read(struct vb_recent *recent)
{
    recent->told_ns = vb_clock_ns();
    return recent->told_ns;
}

static inline void own_clock_move(uint64_t ns)
{
    atomic_fetch_add(&own_clock_ns, ns);
}

#endif
