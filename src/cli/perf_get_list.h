// SPDX-License-Identifier: Apache-2.0
// The lists that `verbena perf get --list` walks, in the memory of its table: every list has 8
// nodes, each with its value behind it, so that one READ fetches both. Nodes of one list do not lie
// beside each other; all lists share the end node at the beginning.
#ifndef VB_CLI_PERF_GET_LIST_H
#define VB_CLI_PERF_GET_LIST_H

#include "cli/perf_get_table.h"

enum {
    VB_GET_NODE_BYTES = sizeof(struct vb_list_node),
    // Of a request to walk a whole list.
    VB_GET_WALK_BYTES = 8 + VB_PERF_LIST_MAX * VB_LIST_KEY_BYTES,
};

// Where the node of a key begins, and the first node of its list.
static inline size_t vb_get_node(const struct vb_get_table *t, uint32_t pick)
{
    return t->items + (size_t)pick * t->element;
}

static inline size_t vb_get_head(const struct vb_get_table *t, uint32_t pick)
{
    return vb_get_node(t, pick % t->lists);
}

// Key n is asked for in its list, somewhere in the first nodes that the plan names.
uint32_t vb_get_list_pick(const struct vb_get_table *t, uint64_t n);
void vb_get_list_fill(const struct vb_get_table *t, uint8_t *memory, uint64_t seed);
bool vb_get_node_has(const struct vb_list_node *node, const uint8_t key[VB_HASH_KEY_BYTES]);
// The server's look-up: the node with the key in its list, or NULL.
const struct vb_list_node *vb_get_walk(const struct vb_get_table *t, const uint8_t *memory,
                                       const uint8_t key[VB_HASH_KEY_BYTES]);

#endif
