// SPDX-License-Identifier: Apache-2.0
// The hash table: chains in a power of two of buckets, as many as there are entries.
#include "base/table.h"

#include <stdlib.h>

enum {
    FIRST_BITS = 4,
    MOST_BITS = 24,
    FIRST_COUNT = 4, // before there is more than one bucket
};

// The upper bits of a product (Fibonacci hashing): numbers that follow each other are spread, and
// so are those that differ by a power of two.
static uint64_t place_of(uint64_t number, uint32_t bits)
{
    return number * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits);
}

static struct vb_entry **chain_of(struct vb_table *t, uint64_t number)
{
    return t->chain ? &t->chain[place_of(number, t->bits)] : &t->only;
}

static void move(struct vb_entry *from, struct vb_entry **chain, uint32_t bits)
{
    while (from) {
        struct vb_entry *next = from->chain, **to = &chain[place_of(from->number, bits)];
        from->chain = *to;
        *to = from;
        from = next;
    }
}

static void grow(struct vb_table *t)
{
    uint32_t bits = t->chain ? t->bits + 1 : FIRST_BITS;
    struct vb_entry **chain = bits > MOST_BITS ? NULL : calloc((size_t)1 << bits, sizeof(void *));

    if (!chain)
        return;
    move(t->only, chain, bits);
    t->only = NULL;
    for (uint32_t i = 0; t->chain && i < UINT32_C(1) << t->bits; i++)
        move(t->chain[i], chain, bits);
    free(t->chain);
    t->chain = chain;
    t->bits = bits;
}

void vb_table_add(struct vb_table *t, struct vb_entry *entry, uint64_t number)
{
    if (t->count >= (t->chain ? UINT32_C(1) << t->bits : FIRST_COUNT))
        grow(t);
    struct vb_entry **chain = chain_of(t, number);
    *entry = (struct vb_entry){*chain, number};
    *chain = entry;
    t->count++;
}

void vb_table_remove(struct vb_table *t, struct vb_entry *entry)
{
    struct vb_entry **at = chain_of(t, entry->number);

    while (*at != entry)
        at = &(*at)->chain;
    *at = entry->chain;
    t->count--;
}

static struct vb_entry *seek(struct vb_entry *e, uint64_t number)
{
    while (e && e->number != number)
        e = e->chain;
    return e;
}

struct vb_entry *vb_table_find(const struct vb_table *t, uint64_t number)
{
    return seek(t->chain ? t->chain[place_of(number, t->bits)] : t->only, number);
}

struct vb_entry *vb_table_next(const struct vb_entry *e)
{
    return seek(e->chain, e->number);
}

void vb_table_free(struct vb_table *t)
{
    free(t->chain);
    *t = (struct vb_table){0};
}
