// SPDX-License-Identifier: Apache-2.0
// Pinning processes to cores.
#ifndef VB_CLI_PIN_H
#define VB_CLI_PIN_H

#include <sched.h>
#include <stdbool.h>

// The first two cores this process may use; -1 where there is none. *allowed is the whole set.
void vb_pin_choose(int cores[2], cpu_set_t *allowed);
bool vb_pin_to(int core);

#endif
