// SPDX-License-Identifier: Apache-2.0
// Keys and tables for tests of hash gets.
#include "hash_kit.h"

#include <endian.h>
#include <string.h>

void hash_key_of(uint32_t n, uint8_t key[VB_HASH_KEY_BYTES])
{
    uint64_t bits = (n + 1) * 0x9e3779b97f4aull;
    for (int i = 0; i < VB_HASH_KEY_BYTES; i++)
        key[i] = (uint8_t)(bits >> 8 * i);
}

uint32_t hash_length_of(uint32_t n, uint32_t value_max)
{
    return 1 + n * 37 % value_max;
}

void hash_fill(uint8_t *memory, uint32_t buckets, uint32_t items, uint32_t value_max)
{
    struct vb_hash_bucket *bucket = (void *)memory;

    for (uint32_t n = 0; n < buckets; n++) {
        uint8_t key[VB_HASH_KEY_BYTES], *value = memory + items + (size_t)n * value_max;
        uint32_t len = hash_length_of(n, value_max);
        hash_key_of(n, key);
        bucket[n].addr = htobe64((uintptr_t)value);
        bucket[n].len = bucket[n].len_again = htobe32(len);
        vb_hash_store_key(bucket[n].key, key);
        memset(value, (int)(n + 1), len);
    }
}
