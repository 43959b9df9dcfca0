// SPDX-License-Identifier: Apache-2.0
// Registered memory: keys, rights, bounds.
#include "nic/memory.h"

#include "base/siphash.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLE_FIRST_SLOTS = 64,
    KEYS_MAX = 1 << 20,
    NAME_MIN = 0x100, // keys are above 0xffff: none is 0 or ends a receive list
};

static_assert(sizeof(struct vb_mkey) == 64, "one key, one cache line");

int vb_mkey_table_init(struct vb_mkey_table *t, const uint64_t secret[2])
{
    t->count = 0;
    t->drawn = 0;
    t->guard = NULL;
    t->guards_all = false;
    t->copier = NULL;
    t->null_bytes = NULL;
    t->slots = aligned_alloc(64, TABLE_FIRST_SLOTS * sizeof *t->slots);
    if (!t->slots)
        return -ENOMEM;
    memset(t->slots, 0, TABLE_FIRST_SLOTS * sizeof *t->slots);
    t->mask = TABLE_FIRST_SLOTS - 1;
    memcpy(t->secret, secret, sizeof t->secret);
    return 0;
}

void vb_mkey_table_fini(struct vb_mkey_table *t)
{
    free(t->slots);
    free(t->null_bytes);
    memset(t, 0, sizeof *t);
}

// Names are uniform random numbers, so their low bits are the hash.
static struct vb_mkey *find_name(const struct vb_mkey_table *t, uint32_t name)
{
    for (uint32_t i = name & t->mask;; i = (i + 1) & t->mask) {
        struct vb_mkey *m = &t->slots[i];
        if (m->key >> 8 == name)
            return m;
        if (m->key == 0)
            return NULL;
    }
}

static struct vb_mkey *find(const struct vb_mkey_table *t, uint32_t key)
{
    struct vb_mkey *m = key >> 8 ? find_name(t, key >> 8) : NULL;
    return m && m->key == key ? m : NULL;
}

const struct vb_mkey *vb_mkey_find(const struct vb_mkey_table *t, uint32_t key)
{
    return find(t, key);
}

uint32_t vb_mkey_current(const struct vb_mkey_table *t, uint32_t key)
{
    const struct vb_mkey *m = key >> 8 ? find_name(t, key >> 8) : NULL;
    return m ? m->key : 0;
}

static void insert(struct vb_mkey_table *t, const struct vb_mkey *m)
{
    uint32_t i = m->key >> 8 & t->mask;
    while (t->slots[i].key != 0)
        i = (i + 1) & t->mask;
    t->slots[i] = *m;
    t->count++;
}

// Keeps the table at most half full, so that probes stay short.
static int grow(struct vb_mkey_table *t)
{
    uint32_t slots = (t->mask + 1) * 2;
    struct vb_mkey_table bigger = *t;
    bigger.mask = slots - 1;
    bigger.count = 0;
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

static uint32_t draw_key(struct vb_mkey_table *t)
{
    for (;;) {
        uint32_t key = (uint32_t)vb_siphash(t->secret, t->drawn++);
        if (key >> 8 >= NAME_MIN && !find_name(t, key >> 8))
            return key;
    }
}

static bool is_region(uint8_t kind)
{
    return kind == VB_MKEY_REGION || kind == VB_MKEY_GUARDED || kind == VB_MKEY_COPIED;
}

static bool is_legal(const struct vb_mkey_table *t, const struct vb_mkey_attr *a)
{
    const uint32_t remote_stores = VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;

    if (a->kind == VB_MKEY_COPIED && !t->copier)
        return false;
    if (a->kind != VB_MKEY_REGION && a->kind != VB_MKEY_COPIED)
        return a->access == 0;
    if (a->access & ~(uint32_t)VB_ACCESS_ALL || a->len > UINT64_MAX - a->start)
        return false;
    // clause 10.6.3.1: remote stores need local write
    return !(a->access & remote_stores) || (a->access & VB_LOCAL_WRITE);
}

static uint32_t denies_of(const struct vb_mkey *m)
{
    return m->kind == VB_MKEY_REGION ? VB_ACCESS_ALL & ~m->access : VB_DENIES_PLAIN;
}

static uint64_t words_of(const struct vb_mkey_attr *a)
{
    if (a->kind == VB_MKEY_COPIED)
        return a->source;
    return a->len < 8 ? 0 : a->len - 7;
}

static bool make_null_bytes(struct vb_mkey_table *t)
{
    if (!t->null_bytes)
        t->null_bytes = calloc(2, VB_NULL_BYTES);
    return t->null_bytes != NULL;
}

static uint8_t kind_of(const struct vb_mkey_table *t, const struct vb_mkey_attr *a)
{
    bool guarded = a->kind == VB_MKEY_REGION && t->guard && (t->guards_all || a->guarded);
    return guarded ? VB_MKEY_GUARDED : (uint8_t)a->kind;
}

int vb_mkey_create(struct vb_mkey_table *t, const struct vb_mkey_attr *attr, uint32_t *key)
{
    if (!is_legal(t, attr))
        return -EINVAL;
    if (t->count >= KEYS_MAX || (attr->kind == VB_MKEY_NULL && !make_null_bytes(t)))
        return -ENOMEM;
    if ((t->count + 1) * 2 > t->mask + 1) {
        int err = grow(t);
        if (err)
            return err;
    }
    struct vb_mkey m = {
        .key = draw_key(t),
        .pd = attr->pd,
        .kind = kind_of(t, attr),
        .bound = is_region((uint8_t)attr->kind),
        .start = attr->start,
        .len = attr->len,
        .words = words_of(attr),
        .base = attr->base,
        .access = attr->access,
    };
    if (m.kind == VB_MKEY_NULL)
        m.access = VB_LOCAL_WRITE;
    m.denies = denies_of(&m);
    insert(t, &m);
    *key = m.key;
    return 0;
}

// Unbinds a window from its region.
static void unbind(struct vb_mkey_table *t, struct vb_mkey *w)
{
    if (w->bound)
        find(t, w->parent)->windows--;
    w->bound = false;
    w->access = w->parent = w->qpn = 0;
    w->start = w->len = 0;
    w->base = NULL;
}

// Backward-shift deletion: no tombstones, so lookups never slow down with age.
int vb_mkey_destroy(struct vb_mkey_table *t, uint32_t key)
{
    struct vb_mkey *m = find(t, key);
    if (!m)
        return -ENOENT;
    if (m->windows)
        return -EBUSY;
    if (!is_region(m->kind))
        unbind(t, m);
    uint32_t hole = (uint32_t)(m - t->slots);
    for (uint32_t i = (hole + 1) & t->mask; t->slots[i].key; i = (i + 1) & t->mask) {
        uint32_t home = t->slots[i].key >> 8 & t->mask;
        if (((i - home) & t->mask) >= ((i - hole) & t->mask)) {
            t->slots[hole] = t->slots[i];
            hole = i;
        }
    }
    memset(&t->slots[hole], 0, sizeof t->slots[hole]);
    t->count--;
    return 0;
}

int vb_mkey_change(struct vb_mkey_table *t, uint32_t key, const struct vb_mkey_attr *attr)
{
    struct vb_mkey *m = find(t, key);
    if (!m || !is_region(m->kind))
        return -ENOENT;
    if (m->windows)
        return -EBUSY;
    if (!is_region((uint8_t)attr->kind) || !is_legal(t, attr))
        return -EINVAL;
    m->pd = attr->pd;
    m->kind = kind_of(t, attr);
    m->start = attr->start;
    m->len = attr->len;
    m->words = words_of(attr);
    m->base = attr->base;
    m->access = attr->access;
    m->denies = denies_of(m);
    return 0;
}

// A window serves peers alone, and only while it is bound; one of type 2 only its queue pair.
static bool window_is_open(const struct vb_mkey *m, struct vb_accessor who, enum vb_access need)
{
    if (m->kind == VB_MKEY_NULL)
        return true; // it is no window
    if (!m->bound || !(need & VB_ACCESS_REMOTE))
        return false;
    return m->kind == VB_MKEY_WINDOW1 || m->qpn == who.qpn;
}

static enum vb_mem_refusal judge_null(const struct vb_mkey_table *t, uint64_t len,
                                      enum vb_access need, uint8_t **ptr)
{
    if (len > VB_NULL_BYTES)
        return VB_MEM_BOUNDS;
    *ptr = t->null_bytes + (need & VB_LOCAL_WRITE ? VB_NULL_BYTES : 0);
    return VB_MEM_OK;
}

// What a window is of; a region itself.
static const struct vb_mkey *region_of(const struct vb_mkey_table *t, const struct vb_mkey *m)
{
    return is_region(m->kind) ? m : find(t, m->parent);
}

// The windows of a guarded region are guarded, too.
static bool is_guarded(const struct vb_mkey_table *t, const struct vb_mkey *m)
{
    const struct vb_mkey *region = region_of(t, m);
    return region && region->kind == VB_MKEY_GUARDED;
}

static bool is_copied(const struct vb_mkey_table *t, const struct vb_mkey *m)
{
    const struct vb_mkey *region = region_of(t, m);
    return region && region->kind == VB_MKEY_COPIED;
}

static enum vb_mem_refusal judge(const struct vb_mkey_table *t, struct vb_accessor who,
                                 uint32_t key, uint64_t addr, uint64_t len, enum vb_access need,
                                 uint8_t **ptr)
{
    const struct vb_mkey *m = find(t, key);

    if (!m)
        return VB_MEM_NO_KEY;
    if (m->pd != who.pd)
        return VB_MEM_DOMAIN;
    if (!is_region(m->kind) && !window_is_open(m, who, need))
        return VB_MEM_STATE;
    if ((m->access & need) != need)
        return VB_MEM_RIGHTS;
    if (m->kind == VB_MKEY_NULL)
        return judge_null(t, len, need, ptr);
    if (len == 0) {
        *ptr = m->base;
        return VB_MEM_OK;
    }
    uint64_t offset = addr - m->start;
    if (addr < m->start || offset > m->len || len > m->len - offset)
        return VB_MEM_BOUNDS;
    *ptr = vb_mkey_byte(m, offset);
    if (t->copier && is_copied(t, m))
        return VB_MEM_COPIED;
    bool stores = need & (VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC);
    if (is_guarded(t, m) && !t->guard->is_there(t->guard->ctx, key, *ptr, len, stores))
        return VB_MEM_GONE;
    return VB_MEM_OK;
}

enum vb_mem_refusal vb_mem_judge(struct vb_mkey_table *t, struct vb_accessor who, uint32_t key,
                                 uint64_t addr, uint64_t len, enum vb_access need, uint8_t **ptr)
{
    vb_spin_lock(&t->lock);
    enum vb_mem_refusal r = judge(t, who, key, addr, len, need, ptr);
    vb_spin_unlock(&t->lock);
    return r;
}

enum vb_mem_refusal vb_mem_copy(struct vb_mkey_table *t, struct vb_accessor who, uint32_t key,
                                uint64_t addr, uint64_t len, enum vb_access need, uint8_t *bytes)
{
    const struct vb_mem_copier *c = t->copier;
    uint64_t source = 0;
    uint8_t *at = NULL;

    vb_spin_lock(&t->lock);
    enum vb_mem_refusal r = judge(t, who, key, addr, len, need, &at);
    if (r == VB_MEM_COPIED)
        source = region_of(t, find(t, key))->words;
    vb_spin_unlock(&t->lock);
    if (r != VB_MEM_COPIED)
        return r == VB_MEM_OK ? VB_MEM_NO_KEY : r; // it was, and is no more
    bool stores = need & (VB_LOCAL_WRITE | VB_REMOTE_WRITE);
    bool done = stores ? c->store(c->ctx, source, (uintptr_t)at, bytes, len)
                       : c->fetch(c->ctx, source, (uintptr_t)at, bytes, len);
    return done ? VB_MEM_OK : VB_MEM_GONE;
}

// ---- windows

// What a region gives to a window (clause 10.6.7.2): memory of the same domain, and no right to
// store where the region's owner may not.
static enum vb_mem_refusal judge_binding(const struct vb_mkey *r, uint32_t pd,
                                         const struct vb_binding *b)
{
    const uint32_t remote_stores = VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;

    if (!r || !is_region(r->kind))
        return VB_MEM_NO_KEY;
    if (r->pd != pd)
        return VB_MEM_DOMAIN;
    if (!(r->access & VB_BIND) || (b->access & ~(uint32_t)VB_ACCESS_REMOTE) ||
        ((b->access & remote_stores) && !(r->access & VB_LOCAL_WRITE)))
        return VB_MEM_RIGHTS;
    uint64_t offset = b->addr - r->start;
    if (b->addr < r->start || offset > r->len || b->len > r->len - offset ||
        b->len > UINT64_MAX - b->start)
        return VB_MEM_BOUNDS;
    return VB_MEM_OK;
}

static enum vb_mem_refusal bind(struct vb_mkey_table *t, struct vb_accessor who,
                                const struct vb_binding *b)
{
    struct vb_mkey *w = b->window >> 8 ? find_name(t, b->window >> 8) : NULL;

    if (!w || is_region(w->kind) || w->kind == VB_MKEY_NULL)
        return VB_MEM_NO_KEY;
    if (w->pd != who.pd)
        return VB_MEM_DOMAIN;
    if (w->kind == VB_MKEY_WINDOW2 && (w->bound || b->len == 0))
        return VB_MEM_STATE;
    if (b->len > 0) {
        enum vb_mem_refusal r = judge_binding(find(t, b->region), who.pd, b);
        if (r != VB_MEM_OK)
            return r;
    }
    unbind(t, w);
    w->key = b->window;
    if (b->len == 0)
        return VB_MEM_OK;
    struct vb_mkey *region = find(t, b->region);
    region->windows++;
    w->bound = true;
    w->parent = region->key;
    w->qpn = who.qpn;
    w->access = b->access;
    w->start = b->start;
    w->len = b->len;
    w->base = vb_mkey_byte(region, b->addr - region->start);
    return VB_MEM_OK;
}

static enum vb_mem_refusal invalidate(struct vb_mkey_table *t, struct vb_accessor who, uint32_t key)
{
    struct vb_mkey *m = find(t, key);

    if (!m || m->kind != VB_MKEY_WINDOW2)
        return VB_MEM_NO_KEY;
    if (m->pd != who.pd)
        return VB_MEM_DOMAIN;
    if (!m->bound || m->qpn != who.qpn)
        return VB_MEM_STATE;
    unbind(t, m);
    return VB_MEM_OK;
}

enum vb_mem_refusal vb_window_bind(struct vb_mkey_table *t, struct vb_accessor who,
                                   const struct vb_binding *b)
{
    vb_spin_lock(&t->lock);
    enum vb_mem_refusal r = bind(t, who, b);
    vb_spin_unlock(&t->lock);
    return r;
}

enum vb_mem_refusal vb_key_invalidate(struct vb_mkey_table *t, struct vb_accessor who, uint32_t key)
{
    vb_spin_lock(&t->lock);
    enum vb_mem_refusal r = invalidate(t, who, key);
    vb_spin_unlock(&t->lock);
    return r;
}
