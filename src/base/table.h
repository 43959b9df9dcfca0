// SPDX-License-Identifier: Apache-2.0
// Intrusive hash table by number: it grows with what is in it, so that finding costs the same for
// ten entries as for a hundred thousand.
#ifndef VB_BASE_TABLE_H
#define VB_BASE_TABLE_H

#include <stdint.h>

struct vb_entry {
    struct vb_entry *chain;
    uint64_t number;
};

// All zero is an empty one.
struct vb_table {
    struct vb_entry *only;   // the one bucket of a table that has not grown yet,
    struct vb_entry **chain; // or 2^bits of them
    uint32_t bits;
    uint32_t count;
};

// Never fails: without memory to grow, chains become longer.
void vb_table_add(struct vb_table *table, struct vb_entry *entry, uint64_t number);
// It must be there.
void vb_table_remove(struct vb_table *table, struct vb_entry *entry);
// NULL: it is not there. Of several with one number some one; and those that come after it.
struct vb_entry *vb_table_find(const struct vb_table *table, uint64_t number);
struct vb_entry *vb_table_next(const struct vb_entry *entry);
// What is still in it is the caller's.
void vb_table_free(struct vb_table *table);

#endif
