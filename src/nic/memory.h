// SPDX-License-Identifier: Apache-2.0
// Registered memory: the only way from (domain, key, address, length, right) to a pointer.
//
// A key is 24 bits that name it and a tag of 8 bits. A region keeps its key; a window gets another
// tag with every binding, so that old keys stop working.
#ifndef VB_NIC_MEMORY_H
#define VB_NIC_MEMORY_H

#include "base/spin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vb_access {
    VB_LOCAL_READ = 0, // always granted within the domain
    VB_LOCAL_WRITE = 1 << 0,
    VB_REMOTE_WRITE = 1 << 1,
    VB_REMOTE_READ = 1 << 2,
    VB_REMOTE_ATOMIC = 1 << 3,
    VB_BIND = 1 << 4, // windows may be bound to the region
    VB_FLUSH_GLOBAL = 1 << 5,
    VB_FLUSH_PERSISTENT = 1 << 6,
    VB_ACCESS_ALL = (1 << 7) - 1,
    VB_ACCESS_REMOTE =
        VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC | VB_FLUSH_GLOBAL | VB_FLUSH_PERSISTENT,
};

enum vb_mem_refusal {
    VB_MEM_OK,
    VB_MEM_NO_KEY,
    VB_MEM_DOMAIN,
    VB_MEM_RIGHTS,
    VB_MEM_BOUNDS,
    VB_MEM_GONE,   // the region is guarded, and its memory is no longer the application's
    VB_MEM_STATE,  // a window that is bound already, or not to this queue pair
    VB_MEM_COPIED, // no memory of this process: only vb_mem_copy() reaches it
};

enum vb_mkey_kind {
    VB_MKEY_REGION,
    VB_MKEY_WINDOW1, // bound by whoever shares its domain
    VB_MKEY_WINDOW2, // bound to one queue pair (type 2B)
    VB_MKEY_GUARDED, // a region whose memory is looked at before each access
    VB_MKEY_NULL,    // no memory: local reads give zeros, local writes are lost
    VB_MKEY_COPIED,  // a region in another process, whose bytes are copied for each access
};

enum {
    VB_NULL_BYTES = 65536 // of one access, more than any packet
};

// Whether the memory is still there; asked for guarded regions.
struct vb_mem_guard {
    void *ctx;
    bool (*is_there)(void *ctx, uint32_t key, const void *at, uint64_t len, bool write);
};

// Copies memory of another process, which `source` names; asked for copied regions. False: it is
// gone, or not all of it is there.
struct vb_mem_copier {
    void *ctx;
    bool (*fetch)(void *ctx, uint64_t source, uint64_t at, uint8_t *to, uint64_t len);
    bool (*store)(void *ctx, uint64_t source, uint64_t at, const uint8_t *from, uint64_t len);
};

// In `denies`: all but a region that is not guarded.
#define VB_DENIES_PLAIN 0x80000000u

// Who asks: a queue pair in a domain.
struct vb_accessor {
    uint32_t pd;
    uint32_t qpn;
};

// One memory key, one cache line.
struct vb_mkey {
    uint32_t key; // 0: free slot
    uint32_t pd;
    uint64_t start; // address as peers name it
    uint64_t len;
    uint8_t *base;    // where `start` lies in this process
    uint32_t access;  // 0 for a window that is not bound
    uint32_t qpn;     // WINDOW2: the queue pair it is bound to
    uint32_t parent;  // of a bound window: its region
    uint32_t windows; // bound to this region
    uint8_t kind;     // enum vb_mkey_kind
    bool bound;       // windows; regions always are
    uint8_t reserved[2];
    uint32_t denies; // rights that it has not, and VB_DENIES_PLAIN for what needs a second look
    uint64_t words;  // of a region: at how many places 8 bytes can begin; of a copied one: whose
};

// By integers: a region of all memory begins at NULL.
static inline uint8_t *vb_mkey_byte(const struct vb_mkey *m, uint64_t offset)
{
    return (uint8_t *)((uintptr_t)m->base + offset);
}

// Open addressing by the upper 24 bits of the key, which are drawn from a secret: a peer that has
// seen keys cannot tell the next.
struct vb_mkey_table {
    struct vb_mkey *slots;
    uint32_t mask;
    uint32_t count;
    uint64_t secret[2];
    uint64_t drawn;
    const struct vb_mem_guard *guard;   // NULL: regions are not guarded
    bool guards_all;                    // not only those that ask for it
    const struct vb_mem_copier *copier; // NULL: there are no copied regions
    uint8_t *null_bytes; // zeros, and as many that are written to; NULL: not needed yet
    struct vb_spin lock; // of windows, which work requests change
};

struct vb_mkey_attr {
    uint32_t pd;
    enum vb_mkey_kind kind;
    uint32_t access; // enum vb_access, or-ed; regions only, as all below
    uint64_t start;
    uint64_t len;
    void *base;
    bool guarded;    // its memory may not all be there
    uint64_t source; // COPIED: whose `base` is
};

int vb_mkey_table_init(struct vb_mkey_table *t, const uint64_t secret[2]);
void vb_mkey_table_fini(struct vb_mkey_table *t);

// Draws a key and stores it. -EINVAL: wraps around the address space, or remote rights without
// local write where verbs require it; -ENOMEM.
int vb_mkey_create(struct vb_mkey_table *t, const struct vb_mkey_attr *attr, uint32_t *key);
// -ENOENT: no such key; -EBUSY: windows are bound to the region.
int vb_mkey_destroy(struct vb_mkey_table *t, uint32_t key);
// Gives a region other memory, another domain or other rights; the key stays. -ENOENT, -EBUSY,
// -EINVAL as above, and the region is as it was.
int vb_mkey_change(struct vb_mkey_table *t, uint32_t key, const struct vb_mkey_attr *attr);

// The whole key whose upper 24 bits these are; 0: none.
uint32_t vb_mkey_current(const struct vb_mkey_table *t, uint32_t key);
// The key as it is now, of a window too. NULL: no such key.
const struct vb_mkey *vb_mkey_find(const struct vb_mkey_table *t, uint32_t key);

// The whole judgement, for whatever vb_mem_access() cannot grant at first sight.
enum vb_mem_refusal vb_mem_judge(struct vb_mkey_table *t, struct vb_accessor who, uint32_t key,
                                 uint64_t addr, uint64_t len, enum vb_access need, uint8_t **ptr);

// Of what is VB_MEM_COPIED: stores bytes there, if the right is one to write, or fetches them.
enum vb_mem_refusal vb_mem_copy(struct vb_mkey_table *t, struct vb_accessor who, uint32_t key,
                                uint64_t addr, uint64_t len, enum vb_access need, uint8_t *bytes);

// A region of the domain with the right, if it lies where its hash says and is not guarded, as most
// do; otherwise NULL.
static inline const struct vb_mkey *vb_mkey_plain(const struct vb_mkey_table *t, uint32_t pd,
                                                  uint32_t key, enum vb_access need)
{
    const struct vb_mkey *m = &t->slots[key >> 8 & t->mask];

    return m->key == key && m->pd == pd && !(m->denies & (VB_DENIES_PLAIN | (uint32_t)need)) ? m
                                                                                             : NULL;
}

// Where `len` bytes from the address on are. NULL: not all of them in the region.
static inline uint8_t *vb_mkey_at(const struct vb_mkey *m, uint64_t addr, uint64_t len)
{
    uint64_t offset = addr - m->start; // past the end if addr lies before the start

    return len > m->len || offset > m->len - len ? NULL : vb_mkey_byte(m, offset);
}

// A zero-length access still needs a valid key, domain and right; its address is not looked at.
static inline enum vb_mem_refusal vb_mem_access(struct vb_mkey_table *t, struct vb_accessor who,
                                                uint32_t key, uint64_t addr, uint64_t len,
                                                enum vb_access need, uint8_t **ptr)
{
    const struct vb_mkey *m = vb_mkey_plain(t, who.pd, key, need);
    uint64_t offset = m ? addr - m->start : 0, last; // past the end if addr lies before the start

    if (m && !__builtin_sub_overflow(m->len, len, &last) && offset <= last) {
        *ptr = vb_mkey_byte(m, offset);
        return VB_MEM_OK;
    }
    return vb_mem_judge(t, who, key, addr, len, need, ptr);
}

struct vb_binding {
    uint32_t window; // its new key: the same upper 24 bits
    uint32_t region;
    uint64_t addr;
    uint64_t len;    // 0: unbinds a window of type 1
    uint32_t access; // remote rights
    uint64_t start;  // how peers name its first byte
};

// Binds a window. One of type 2 must not be bound; one of type 1 may be bound anew.
enum vb_mem_refusal vb_window_bind(struct vb_mkey_table *t, struct vb_accessor who,
                                   const struct vb_binding *b);
// Ends the binding of a window of type 2 (no other key can be invalidated).
enum vb_mem_refusal vb_key_invalidate(struct vb_mkey_table *t, struct vb_accessor who,
                                      uint32_t key);

#endif
