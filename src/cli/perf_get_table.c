// SPDX-License-Identifier: Apache-2.0
// The hash table that keys are looked up in.
#include "cli/perf_get_table.h"

#include "base/bytes.h"
#include "cli/perf_get_list.h"
#include "cli/perf_pattern.h"

#include <string.h>

enum {
    LINE = 64,
    ITEM_BYTES = 256 << 10, // of all values, while KEYS_MIN allows
    KEYS_MIN = 16,
    KEYS_MAX = 1024,
    APART = 2, // homes
    SLOTS_MIN = 16,
};

#define KEY_MASK  ((1ull << 48) - 1)
#define SCATTER   0x9e3779b97f4bull
#define UNSCATTER 0x393dee219263ull

static_assert((SCATTER * UNSCATTER & KEY_MASK) == 1, "one undoes the other");

static uint32_t line_up(uint32_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static uint32_t power_up(uint32_t n, uint32_t least)
{
    while (least < n)
        least *= 2;
    return least;
}

struct vb_get_table vb_get_table_of(const struct vb_perf_plan *plan)
{
    struct vb_get_table t = {.size = plan->size,
                             .stride = line_up(plan->size),
                             .collides = plan->collision != VB_PERF_NO_COLLISION,
                             .list = plan->list};
    t.element = t.list ? line_up(VB_GET_NODE_BYTES + t.size) : t.stride;
    t.keys = KEYS_MAX;
    while (t.keys > KEYS_MIN && (uint64_t)t.keys * t.element > ITEM_BYTES)
        t.keys /= 2;
    t.lists = t.keys / VB_PERF_LIST_MAX;
    t.buckets = APART * t.keys + VB_GET_HOOD;
    t.slots = power_up(2 * plan->depth, SLOTS_MIN);
    t.items = t.list ? LINE : (vb_get_bucket(t.buckets) + LINE - 1) / LINE * LINE;
    t.requests = t.items + (size_t)t.keys * t.element;
    t.server_bytes = t.requests + (size_t)t.slots * LINE;
    t.hoods = (size_t)t.slots * t.stride;
    t.hood_bytes = t.list ? t.element : VB_GET_HOOD_BYTES;
    t.client_bytes = t.hoods + t.slots * t.hood_bytes;
    return t;
}

// Neighbours in time are not neighbours in memory.
uint32_t vb_get_pick(const struct vb_get_table *t, uint64_t n)
{
    return t->list ? vb_get_list_pick(t, n) : (uint32_t)(n * 0x9e3779b1u) & (t->keys - 1);
}

void vb_get_key(uint32_t pick, uint8_t key[VB_HASH_KEY_BYTES])
{
    uint64_t bits = (pick + 1) * SCATTER;
    for (int i = 0; i < VB_HASH_KEY_BYTES; i++)
        key[i] = (uint8_t)(bits >> 8 * i);
}

uint32_t vb_get_number(const struct vb_get_table *t, const uint8_t key[VB_HASH_KEY_BYTES])
{
    uint64_t bits = 0;
    for (int i = 0; i < VB_HASH_KEY_BYTES; i++)
        bits |= (uint64_t)key[i] << 8 * i;
    return (uint32_t)(bits * UNSCATTER - 1) & (t->keys - 1);
}

uint32_t vb_get_home(const struct vb_get_table *t, const uint8_t key[VB_HASH_KEY_BYTES])
{
    return vb_get_number(t, key) * APART;
}

const struct vb_hash_bucket *vb_get_find(const struct vb_hash_bucket hood[VB_GET_HOOD],
                                         const uint8_t key[VB_HASH_KEY_BYTES])
{
    uint8_t stored[VB_HASH_KEY_BYTES];
    vb_hash_store_key(stored, key);
    for (int i = 0; i < VB_GET_HOOD; i++) {
        if (memcmp(hood[i].key, stored, sizeof stored) == 0)
            return &hood[i];
    }
    return NULL;
}

// Buckets that no key of ours is in hold keys that nobody asks for, so that all are compared.
void vb_get_table_fill(const struct vb_get_table *t, uint8_t *memory, uint64_t seed)
{
    struct vb_hash_bucket *bucket = (void *)memory;
    if (t->list) {
        vb_get_list_fill(t, memory, seed);
        return;
    }
    for (uint32_t b = 0; b < t->buckets; b++) {
        uint8_t key[VB_HASH_KEY_BYTES];
        uint32_t pick = b / APART;
        bool ours = pick < t->keys && b % APART == (t->collides ? 1 : 0);
        vb_get_key(ours ? pick : t->keys + b, key);
        bucket[b] = (struct vb_hash_bucket){
            .addr = htobe64((uint64_t)(uintptr_t)memory + vb_get_item(t, ours ? pick : 0))};
        bucket[b].len = bucket[b].len_again = htobe32(ours ? t->size : 0);
        vb_hash_store_key(bucket[b].key, key);
    }
    vb_pattern_fill(memory + t->items, (size_t)t->keys * t->stride, seed, 0);
}

bool vb_get_value_matches(const struct vb_get_table *t, const void *bytes, uint32_t pick,
                          uint64_t seed)
{
    return vb_pattern_matches(bytes, t->size, seed, (uint64_t)pick * t->stride);
}

void vb_get_value_poison(const struct vb_get_table *t, uint8_t *bytes, uint32_t pick, uint64_t seed)
{
    vb_pattern_fill(bytes, t->size, seed, (uint64_t)pick * t->stride);
    for (uint32_t i = 0; i < t->size; i++)
        bytes[i] ^= 0xff;
}
