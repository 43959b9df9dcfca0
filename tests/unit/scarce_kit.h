// SPDX-License-Identifier: Apache-2.0
// Memory that runs out, and that is not zero where nobody asked for that. A test that uses it is
// linked with the wrapped allocators (see tests/CMakeLists.txt).
#ifndef VB_TESTS_SCARCE_KIT_H
#define VB_TESTS_SCARCE_KIT_H

#include <stdbool.h>
#include <stdint.h>

// The allocations from `first` on, counted from 1 and from now on, have no memory: only that one,
// or that and all after it. 0: all have.
void scarce_begin(uint64_t first, bool for_good);
// Allocations meanwhile have memory and do not count.
void scarce_hold(bool on);
// Whether an allocation had none since it began.
bool scarce_failed(void);
// Ends it. Returns how many allocations there were.
uint64_t scarce_end(void);

#endif
