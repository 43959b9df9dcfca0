// SPDX-License-Identifier: Apache-2.0
// Registered memory: keys, rights, bounds.
#include "nic/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLE_FIRST_SLOTS = 64,
    KEYS_MAX = 1 << 20
};

static_assert(sizeof(struct vb_mkey) == 64, "one key, one cache line");

int vb_mkey_table_init(struct vb_mkey_table *t)
{
    t->slots = aligned_alloc(64, TABLE_FIRST_SLOTS * sizeof *t->slots);
    if (!t->slots)
        return -ENOMEM;
    memset(t->slots, 0, TABLE_FIRST_SLOTS * sizeof *t->slots);
    t->mask = TABLE_FIRST_SLOTS - 1;
    t->count = 0;
    return 0;
}

void vb_mkey_table_fini(struct vb_mkey_table *t)
{
    free(t->slots);
    memset(t, 0, sizeof *t);
}

// Keys are uniform random numbers, so their low bits are the hash.
static struct vb_mkey *find(const struct vb_mkey_table *t, uint32_t key)
{
    for (uint32_t i = key & t->mask;; i = (i + 1) & t->mask) {
        struct vb_mkey *m = &t->slots[i];
        if (m->key == key)
            return m;
        if (m->key == 0)
            return NULL;
    }
}

static void insert(struct vb_mkey_table *t, const struct vb_mkey *m)
{
    uint32_t i = m->key & t->mask;
    while (t->slots[i].key != 0)
        i = (i + 1) & t->mask;
    t->slots[i] = *m;
    t->count++;
}

// Keeps the table at most half full, so that probes stay short.
static int grow(struct vb_mkey_table *t)
{
    uint32_t slots = (t->mask + 1) * 2;
    struct vb_mkey_table bigger = {.mask = slots - 1};
    bigger.slots = aligned_alloc(64, slots * sizeof *bigger.slots);
    if (!bigger.slots)
        return -ENOMEM;
    memset(bigger.slots, 0, slots * sizeof *bigger.slots);
    for (uint32_t i = 0; i <= t->mask; i++)
        if (t->slots[i].key)
            insert(&bigger, &t->slots[i]);
    free(t->slots);
    *t = bigger;
    return 0;
}

// Never 0 (a free slot), VB_WQE_LKEY_END (ends receive lists) or a key in use.
static uint32_t draw_key(const struct vb_mkey_table *t, struct vb_prng *prng)
{
    for (;;) {
        uint32_t key = (uint32_t)vb_prng_next(prng);
        if (key > 0xffff && !find(t, key))
            return key;
    }
}

int vb_mkey_create(struct vb_mkey_table *t, struct vb_prng *prng, const struct vb_mkey_attr *attr,
                   uint32_t *key)
{
    const uint32_t all = VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC;
    const uint32_t remote_stores = VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;

    if (attr->access & ~all || attr->len > UINT64_MAX - attr->start)
        return -EINVAL;
    if ((attr->access & remote_stores) && !(attr->access & VB_LOCAL_WRITE))
        return -EINVAL; // clause 10.6.3.1: remote stores need local write
    if (t->count >= KEYS_MAX)
        return -ENOMEM;
    if ((t->count + 1) * 2 > t->mask + 1) {
        int err = grow(t);
        if (err)
            return err;
    }
    struct vb_mkey m = {
        .key = draw_key(t, prng),
        .pd = attr->pd,
        .start = attr->start,
        .len = attr->len,
        .base = attr->base,
        .access = attr->access,
    };
    insert(t, &m);
    *key = m.key;
    return 0;
}

// Backward-shift deletion: no tombstones, so lookups never slow down with age.
int vb_mkey_destroy(struct vb_mkey_table *t, uint32_t key)
{
    struct vb_mkey *m = key ? find(t, key) : NULL;
    if (!m)
        return -ENOENT;
    uint32_t hole = (uint32_t)(m - t->slots);
    for (uint32_t i = (hole + 1) & t->mask; t->slots[i].key; i = (i + 1) & t->mask) {
        uint32_t home = t->slots[i].key & t->mask;
        if (((i - home) & t->mask) >= ((i - hole) & t->mask)) {
            t->slots[hole] = t->slots[i];
            hole = i;
        }
    }
    memset(&t->slots[hole], 0, sizeof t->slots[hole]);
    t->count--;
    return 0;
}

int vb_mkey_domain(const struct vb_mkey_table *t, uint32_t key, uint32_t *pd)
{
    const struct vb_mkey *m = key ? find(t, key) : NULL;
    if (!m)
        return -ENOENT;
    *pd = m->pd;
    return 0;
}

enum vb_mem_refusal vb_mem_access(const struct vb_mkey_table *t, uint32_t pd, uint32_t key,
                                  uint64_t addr, uint64_t len, enum vb_access need, uint8_t **ptr)
{
    const struct vb_mkey *m = key ? find(t, key) : NULL;

    if (!m)
        return VB_MEM_NO_KEY;
    if (m->pd != pd)
        return VB_MEM_DOMAIN;
    if ((m->access & need) != need)
        return VB_MEM_RIGHTS;
    if (len == 0) {
        *ptr = m->base;
        return VB_MEM_OK;
    }
    uint64_t offset = addr - m->start;
    if (addr < m->start || offset > m->len || len > m->len - offset)
        return VB_MEM_BOUNDS;
    *ptr = m->base + offset;
    return VB_MEM_OK;
}
