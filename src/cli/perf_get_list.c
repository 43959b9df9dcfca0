// SPDX-License-Identifier: Apache-2.0
// The lists that are walked.
#include "cli/perf_get_list.h"

#include "base/bytes.h"
#include "cli/perf_pattern.h"

#include <string.h>

static_assert((int)VB_PERF_LIST_MAX <= (int)VB_LIST_SCATTER,
              "a request has the key once for each node");

uint32_t vb_get_list_pick(const struct vb_get_table *t, uint64_t n)
{
    uint32_t drawn = (uint32_t)n * 0x9e3779b1u;
    return (drawn & (t->lists - 1)) + (drawn >> 16) % t->list * t->lists;
}

// Keys count through all first nodes, then through all second ones, and so on.
void vb_get_list_fill(const struct vb_get_table *t, uint8_t *memory, uint64_t seed)
{
    uint64_t start = (uint64_t)(uintptr_t)memory;
    const struct vb_list_node end = vb_list_end(start);

    memcpy(memory, &end, sizeof end);
    for (uint32_t pick = 0; pick < t->keys; pick++) {
        uint32_t next = pick + t->lists;
        uint64_t at = start + vb_get_node(t, pick);
        uint8_t key[VB_HASH_KEY_BYTES];
        struct vb_list_node node = {
            .next = htobe64(next < t->keys ? start + vb_get_node(t, next) : start),
            .addr = htobe64(at + sizeof node),
            .len_again = htobe32(t->size),
        };
        vb_put_be24(node.len, t->size);
        vb_get_key(pick, key);
        vb_hash_store_key(node.key, key);
        memcpy(memory + vb_get_node(t, pick), &node, sizeof node);
        vb_pattern_fill(memory + vb_get_item(t, pick), t->size, seed, (uint64_t)pick * t->stride);
    }
}

bool vb_get_node_has(const struct vb_list_node *node, const uint8_t key[VB_HASH_KEY_BYTES])
{
    uint8_t stored[VB_HASH_KEY_BYTES];
    vb_hash_store_key(stored, key);
    return memcmp(node->key, stored, sizeof stored) == 0;
}

const struct vb_list_node *vb_get_walk(const struct vb_get_table *t, const uint8_t *memory,
                                       const uint8_t key[VB_HASH_KEY_BYTES])
{
    const struct vb_list_node *node =
        (const void *)(memory + vb_get_head(t, vb_get_number(t, key)));
    for (uint32_t i = 0; i < VB_PERF_LIST_MAX; i++) {
        if (vb_get_node_has(node, key))
            return node;
        node = (const void *)(memory + (be64toh(node->next) - (uint64_t)(uintptr_t)memory));
    }
    return NULL;
}
