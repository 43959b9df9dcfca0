// SPDX-License-Identifier: Apache-2.0
// The clock of the ports.
#include "port/clock.h"

#include <time.h>

uint64_t vb_clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
