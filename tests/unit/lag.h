// SPDX-License-Identifier: Apache-2.0
// How late this machine is: for tests that say how long something may take. On a busy machine every
// step of it waits for its turn.
#ifndef VB_TESTS_LAG_H
#define VB_TESTS_LAG_H

#include <stdint.h>

enum {
    LAG_STEPS = 20, // of processes that wait for each other, at most
};

// Lets pass so much time, and returns by how many ms the latest of many short naps ended too late.
uint64_t lag_nap_ms(unsigned ms);

#endif
