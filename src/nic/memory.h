// SPDX-License-Identifier: Apache-2.0
// Registered memory: the only way from (domain, key, address, length, right) to a pointer.
#ifndef VB_NIC_MEMORY_H
#define VB_NIC_MEMORY_H

#include "base/prng.h"

#include <stdbool.h>
#include <stdint.h>

enum vb_access {
    VB_LOCAL_READ = 0, // always granted within the domain
    VB_LOCAL_WRITE = 1 << 0,
    VB_REMOTE_WRITE = 1 << 1,
    VB_REMOTE_READ = 1 << 2,
    VB_REMOTE_ATOMIC = 1 << 3,
};

enum vb_mem_refusal {
    VB_MEM_OK,
    VB_MEM_NO_KEY,
    VB_MEM_DOMAIN,
    VB_MEM_RIGHTS,
    VB_MEM_BOUNDS,
};

// One memory key, one cache line.
struct vb_mkey {
    uint32_t key; // 0: free slot
    uint32_t pd;
    uint64_t start; // address as peers name it
    uint64_t len;
    uint8_t *base; // where `start` lies in this process
    uint32_t access;
    uint32_t reserved[7];
};

// Open addressing by key. Keys are drawn from the device's seed: not to be guessed by who knows
// none.
struct vb_mkey_table {
    struct vb_mkey *slots;
    uint32_t mask;
    uint32_t count;
};

struct vb_mkey_attr {
    uint32_t pd;
    uint32_t access; // enum vb_access, or-ed
    uint64_t start;
    uint64_t len;
    void *base;
};

int vb_mkey_table_init(struct vb_mkey_table *t);
void vb_mkey_table_fini(struct vb_mkey_table *t);

// Draws a key and stores it. -EINVAL: wraps around the address space, or remote rights without
// local write where verbs require it; -ENOMEM.
int vb_mkey_create(struct vb_mkey_table *t, struct vb_prng *prng, const struct vb_mkey_attr *attr,
                   uint32_t *key);
// -ENOENT: no such key.
int vb_mkey_destroy(struct vb_mkey_table *t, uint32_t key);

// The domain a key belongs to. -ENOENT: no such key.
int vb_mkey_domain(const struct vb_mkey_table *t, uint32_t key, uint32_t *pd);

// A zero-length access still needs a valid key, domain and right; its address is not looked at.
enum vb_mem_refusal vb_mem_access(const struct vb_mkey_table *t, uint32_t pd, uint32_t key,
                                  uint64_t addr, uint64_t len, enum vb_access need, uint8_t **ptr);

#endif
