// SPDX-License-Identifier: Apache-2.0
// The hash table that `verbena perf get` looks keys up in, and where it lies in both memories.
//
// Buckets stand in Hopscotch's order: a key has a home, and is in it or in one of the buckets
// behind it. Homes are two apart and the hash is one to one, so that keys collide only on purpose.
#ifndef VB_CLI_PERF_GET_TABLE_H
#define VB_CLI_PERF_GET_TABLE_H

#include "cli/perf.h"
#include "verbena/offload.h"

#include <stddef.h>

#define VB_GET_OFFLOAD "get" // as the service calls it

enum {
    VB_GET_HOOD = 6, // buckets of a neighbourhood, as FaRM has them
    VB_GET_HOOD_BYTES = VB_GET_HOOD * sizeof(struct vb_hash_bucket),
};

struct vb_get_table {
    uint32_t keys; // a power of two
    uint32_t buckets;
    uint32_t size, stride; // of a value
    uint32_t slots;        // replies at the client; a power of two, twice the requests under way
    bool collides;         // every key is in the second bucket of its neighbourhood
    uint32_t list;         // keys are in so many first nodes of lists; 0: in buckets
    uint32_t lists;
    uint32_t element; // bytes of a value in the server's memory, with its node
    // At the server: the index, the values, the requests of its program.
    size_t items, requests, server_bytes;
    // At the client: the replies, the neighbourhoods or nodes that it reads.
    size_t hoods, hood_bytes, client_bytes;
};

struct vb_get_table vb_get_table_of(const struct vb_perf_plan *plan);

// The key that the n-th request asks for, and its place among all keys.
uint32_t vb_get_pick(const struct vb_get_table *t, uint64_t n);
void vb_get_key(uint32_t pick, uint8_t key[VB_HASH_KEY_BYTES]);
// The number of a key: the other way round. Of any key at all it is one of the table.
uint32_t vb_get_number(const struct vb_get_table *t, const uint8_t key[VB_HASH_KEY_BYTES]);
// The first bucket of a key's neighbourhood. Of any key at all it is a bucket of the table.
uint32_t vb_get_home(const struct vb_get_table *t, const uint8_t key[VB_HASH_KEY_BYTES]);
// The bucket of a neighbourhood that holds the key, or NULL.
const struct vb_hash_bucket *vb_get_find(const struct vb_hash_bucket hood[VB_GET_HOOD],
                                         const uint8_t key[VB_HASH_KEY_BYTES]);

// Writes index and values to the server's memory.
void vb_get_table_fill(const struct vb_get_table *t, uint8_t *memory, uint64_t seed);
// Whether these bytes are the value of a key; and bytes that are not.
bool vb_get_value_matches(const struct vb_get_table *t, const void *bytes, uint32_t pick,
                          uint64_t seed);
void vb_get_value_poison(const struct vb_get_table *t, uint8_t *bytes, uint32_t pick,
                         uint64_t seed);

static inline size_t vb_get_item(const struct vb_get_table *t, uint32_t pick)
{
    size_t node = t->list ? sizeof(struct vb_list_node) : 0;
    return t->items + (size_t)pick * t->element + node;
}

static inline size_t vb_get_bucket(uint32_t number)
{
    return number * sizeof(struct vb_hash_bucket);
}

// Where at the client the n-th reply goes, and the neighbourhood that is read for it.
static inline size_t vb_get_reply(const struct vb_get_table *t, uint64_t n)
{
    return (size_t)(n & (t->slots - 1)) * t->stride;
}

static inline size_t vb_get_hood(const struct vb_get_table *t, uint64_t n)
{
    return t->hoods + (size_t)(n & (t->slots - 1)) * t->hood_bytes;
}

#endif
