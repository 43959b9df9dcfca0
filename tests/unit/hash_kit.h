// SPDX-License-Identifier: Apache-2.0
// Keys for tests of hash gets.
#ifndef VB_TESTS_HASH_KIT_H
#define VB_TESTS_HASH_KIT_H

#include "verbena/offload.h"

// The n-th key: all 48 bits differ from one to the next.
void hash_key_of(uint32_t n, uint8_t key[VB_HASH_KEY_BYTES]);

#endif
