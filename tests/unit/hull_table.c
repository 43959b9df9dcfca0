// SPDX-License-Identifier: Apache-2.0
// A hash table in memory that is served by another process.
#include "hull_table.h"

#include "verbena/offload.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

static_assert(TABLE_INDEX + TABLE_KEYS * sizeof(struct vb_hash_bucket) <= TABLE_ITEMS, "");
static_assert(TABLE_ITEMS + TABLE_KEYS * TABLE_VERSIONS * TABLE_VALUE <= TABLE_BYTES, "");

void table_key(uint32_t key, uint8_t bytes[6])
{
    uint64_t bits = (key + 1) * UINT64_C(0x9e3779b97f4a);
    for (int i = 0; i < 6; i++)
        bytes[i] = (uint8_t)(bits >> 8 * i);
}

void table_value(uint32_t key, uint64_t version, uint8_t value[TABLE_VALUE])
{
    uint64_t word = version;

    memcpy(value, &version, 8);
    for (uint32_t i = 8; i < TABLE_VALUE; i += 8) {
        word = (word ^ key) * UINT64_C(0x9e3779b97f4a7c15) + i;
        memcpy(value + i, &word, 8);
    }
}

bool table_is_value(uint32_t key, const uint8_t value[TABLE_VALUE], uint64_t *version)
{
    uint8_t right[TABLE_VALUE];

    memcpy(version, value, 8);
    table_value(key, *version, right);
    return memcmp(value, right, TABLE_VALUE) == 0;
}

void table_put(uint8_t *memory, uint32_t key, uint64_t version)
{
    struct vb_hash_bucket *bucket = (struct vb_hash_bucket *)(void *)(memory + TABLE_INDEX) + key;
    uint64_t at = TABLE_ITEMS + (key * TABLE_VERSIONS + version % TABLE_VERSIONS) * TABLE_VALUE;
    uint8_t name[VB_HASH_KEY_BYTES];

    table_value(key, version, memory + at);
    table_key(key, name);
    if (bucket->len == 0) { // it is new
        vb_hash_store_key(bucket->key, name);
        bucket->len = bucket->len_again = htobe32(TABLE_VALUE);
    }
    __atomic_store_n(&bucket->addr, htobe64(TABLE_START + at), __ATOMIC_RELEASE);
}
