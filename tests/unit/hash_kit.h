// SPDX-License-Identifier: Apache-2.0
// Keys and tables for tests of hash gets.
#ifndef VB_TESTS_HASH_KIT_H
#define VB_TESTS_HASH_KIT_H

#include "verbena/offload.h"

// The n-th key: all 48 bits differ from one to the next.
void hash_key_of(uint32_t n, uint8_t key[VB_HASH_KEY_BYTES]);
// Bytes of its value, of at most value_max, which are all n + 1.
uint32_t hash_length_of(uint32_t n, uint32_t value_max);
// One key a bucket, from the beginning of the memory on; their values from `items` on.
void hash_fill(uint8_t *memory, uint32_t buckets, uint32_t items, uint32_t value_max);

#endif
