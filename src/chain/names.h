// SPDX-License-Identifier: Apache-2.0
// Names to indices: a hash table beside an array of things that begin with their names.
#ifndef VB_CHAIN_NAMES_H
#define VB_CHAIN_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb_names {
    uint32_t *slot; // an index and 1; 0: free
    uint32_t room;  // a power of two
    uint32_t used;
};

// The array; names never change.
struct vb_named {
    void *first;
    size_t stride;
};

uint32_t vb_names_hash(const char *name); // FNV-1a: names are short
// -1: there is none.
int vb_names_find(const struct vb_names *names, struct vb_named things, const char *name);
// Makes room for one more. False: no memory.
bool vb_names_reserve(struct vb_names *names, struct vb_named things);
// Adds the thing at that index, whose name is new and for which there is room.
void vb_names_add(struct vb_names *names, struct vb_named things, uint32_t index);

#endif
