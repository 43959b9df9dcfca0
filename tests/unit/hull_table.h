// SPDX-License-Identifier: Apache-2.0
// A hash table in memory that is served by another process: all places are relative, an update is
// one word, and whoever dies in the middle of one leaves the value from before. It needs nothing
// but the memory, so that it works in a guest of a virtual machine, too.
#ifndef VB_TESTS_HULL_TABLE_H
#define VB_TESTS_HULL_TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TABLE_BYTES = 1 << 20,
    TABLE_KEYS = 256,
    TABLE_VALUE = 64,
    TABLE_VERSIONS = 8, // of a value, before its memory is used again
    TABLE_INDEX = 4096, // where the buckets are
    TABLE_ITEMS = 65536,
};

#define TABLE_START (UINT64_C(1) << 40) // how programs and clients name the first byte

// The value of a key in one version: nobody can mistake it for another.
void table_value(uint32_t key, uint64_t version, uint8_t value[TABLE_VALUE]);
// Whether these bytes are a value of the key, and of which version.
bool table_is_value(uint32_t key, const uint8_t value[TABLE_VALUE], uint64_t *version);
// Writes the value, and then lets the bucket name it.
void table_put(uint8_t *memory, uint32_t key, uint64_t version);
// The n-th key as clients send it.
void table_key(uint32_t key, uint8_t bytes[6]);

#endif
