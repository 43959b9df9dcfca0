// SPDX-License-Identifier: Apache-2.0
// Pinning processes to cores.
#include "cli/pin.h"

void vb_pin_choose(int cores[2], cpu_set_t *allowed)
{
    unsigned found = 0;
    cores[0] = cores[1] = -1;
    CPU_ZERO(allowed);
    if (sched_getaffinity(0, sizeof *allowed, allowed) < 0)
        return;
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++) {
        if (CPU_ISSET(core, allowed))
            cores[found++] = core;
    }
}

bool vb_pin_to(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}
