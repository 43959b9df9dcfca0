// SPDX-License-Identifier: Apache-2.0
// A running digest over everything that happens: two runs of one seed must agree on it.
#ifndef VB_SIM_DIGEST_H
#define VB_SIM_DIGEST_H

#include <stdint.h>
#include <string.h>

struct vb_digest {
    uint64_t value;
};

static inline void vb_digest_add(struct vb_digest *d, uint64_t v)
{
    uint64_t h = (d->value ^ v) * 0x9e3779b97f4a7c15u;
    d->value = h ^ (h >> 29);
}

static inline uint64_t vb_digest_bytes(const uint8_t *bytes, uint32_t len)
{
    struct vb_digest d = {len};
    uint64_t v = 0;

    for (; len >= 8; bytes += 8, len -= 8) {
        memcpy(&v, bytes, 8);
        vb_digest_add(&d, v);
    }
    v = 0;
    memcpy(&v, bytes, len);
    vb_digest_add(&d, v);
    return d.value;
}

#endif
