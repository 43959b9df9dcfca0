// SPDX-License-Identifier: Apache-2.0
// How late this machine is.
#include "lag.h"

#include "port/clock.h"

#include <poll.h>
#include <stddef.h>

uint64_t lag_nap_ms(unsigned ms)
{
    uint64_t last = vb_clock_ns(), until = last + ms * UINT64_C(1000000), longest_ns = 0;

    while (last < until) {
        (void)poll(NULL, 0, 1);
        uint64_t now = vb_clock_ns();
        longest_ns = now - last > longest_ns ? now - last : longest_ns;
        last = now;
    }
    return longest_ns / 1000000;
}
