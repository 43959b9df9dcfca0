// SPDX-License-Identifier: Apache-2.0
// The first seed of a test that draws: VERBENA_SEED, which is the commit's in a run of all tests.
#ifndef VB_TESTS_FRESH_SEED_H
#define VB_TESTS_FRESH_SEED_H

#include <stdint.h>

// 1 without that variable. The first call prints the seed and how to draw the same again.
uint64_t fresh_seed(void);

#endif
