// SPDX-License-Identifier: Apache-2.0
// A host's memory and its shadow: what the memory should hold, kept by the reference model. Regions
// lie apart with guard bytes between them, and are named by drawn addresses, never by real ones, so
// that nothing on the wire depends on where the memory happens to lie.
#ifndef VB_SIM_MEMORY_H
#define VB_SIM_MEMORY_H

#include "base/prng.h"
#include "nic/dev.h"
#include "verbena/nic.h"
#include "verbena/wqe.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_REGIONS_MAX = 160,
    VB_WINDOWS_MAX = 64,
};

struct vb_region {
    uint64_t addr;   // as work requests name it
    uint32_t offset; // in the host's memory
    uint32_t len;
    uint32_t pd;
    uint32_t access;
    uint32_t key;      // 0: not registered
    uint32_t dead_key; // of the last registration that ended, 0: none
};

// A memory window: as the NIC should have it after every binding and invalidation so far.
struct vb_window {
    uint32_t key; // its upper 24 bits never change
    uint32_t pd;
    bool type2;
    bool bound;
    uint32_t qpn;    // type 2: of the queue pair that bound it
    uint32_t region; // index of the region it is bound to
    uint64_t start;  // as peers name its first byte
    uint32_t offset; // in the host's memory
    uint32_t len;
    uint32_t access;
    uint32_t dead_key; // of the binding before, 0: none
    uint8_t next_tag;  // of the next binding to be asked for
};

struct vb_hostmem {
    uint8_t *bytes, *shadow;
    uint32_t size, used;
    struct vb_prng prng;
    struct vb_region region[VB_REGIONS_MAX];
    uint32_t region_count;
    struct vb_window window[VB_WINDOWS_MAX];
    uint32_t window_count;
};

// Who wants to use a key: peers through a queue pair, or its own host.
struct vb_user {
    uint32_t pd;
    uint32_t qpn;
};

// A run of bytes of a host's memory.
struct vb_span {
    uint32_t offset, len;
};

struct vb_spans {
    struct vb_span span[VB_MAX_SGE + 1];
    uint32_t count;
    uint64_t bytes;
};

int vb_hostmem_init(struct vb_hostmem *mem, uint32_t size, uint64_t seed);
void vb_hostmem_fini(struct vb_hostmem *mem);

// Sets a region aside, with random contents and guards around it. NULL: no room.
struct vb_region *vb_hostmem_carve(struct vb_hostmem *mem, uint32_t len);
int vb_hostmem_register(struct vb_hostmem *mem, struct vb_dev *dev, struct vb_region *r,
                        uint32_t pd, uint32_t access);
// -EBUSY, and the region stays, exactly if windows are bound to it.
int vb_hostmem_deregister(const struct vb_hostmem *mem, struct vb_dev *dev, struct vb_region *r);
bool vb_hostmem_has_windows(const struct vb_hostmem *mem, const struct vb_region *r);

// The model's own judgement of an access; *offset is where it would lie.
enum vb_mem_refusal vb_hostmem_judge(const struct vb_hostmem *mem, struct vb_user user,
                                     uint32_t key, uint64_t addr, uint64_t len, uint32_t need,
                                     uint32_t *offset);
// Bytes [from, from + len) of a scatter list. Each piece is judged.
enum vb_mem_refusal vb_hostmem_spans(const struct vb_hostmem *mem, struct vb_user user,
                                     const struct vb_sge *sge, uint32_t num_sge, uint32_t from,
                                     uint32_t len, uint32_t need, struct vb_spans *out);

void vb_spans_add(struct vb_spans *s, uint32_t offset, uint32_t len);

// What the model predicts to be written.
void vb_hostmem_predict(struct vb_hostmem *mem, const struct vb_spans *s, const uint8_t *bytes);
// True if memory and shadow agree there.
bool vb_hostmem_agrees(const struct vb_hostmem *mem, const struct vb_spans *s);
bool vb_hostmem_equals(const struct vb_hostmem *mem, const struct vb_spans *s,
                       const uint8_t *bytes);
// True if the model foretold these bytes there.
bool vb_hostmem_foretold(const struct vb_hostmem *mem, const struct vb_spans *s,
                         const uint8_t *bytes);
// The touched memory as spans: all touches of the kind, merged. False: one is not of this memory.
bool vb_hostmem_touched(const struct vb_hostmem *mem, const struct vb_step *step, bool write,
                        struct vb_spans *out);
bool vb_spans_equal(const struct vb_spans *a, const struct vb_spans *b);

// Addresses that are aligned otherwise than the memory: no atomic can work there.
void vb_hostmem_skew(struct vb_hostmem *mem, struct vb_region *r);
// Nothing but zeroes, and aligned for atomics.
void vb_hostmem_clear(struct vb_hostmem *mem, struct vb_region *r);
// The host itself writes random bytes.
void vb_hostmem_scribble(struct vb_hostmem *mem, uint32_t offset, uint32_t len);
// The first offset where memory and shadow differ, -1: none.
int64_t vb_hostmem_differs(const struct vb_hostmem *mem);
// The region around an offset, NULL: a guard.
const struct vb_region *vb_hostmem_region_at(const struct vb_hostmem *mem, uint32_t offset);

#endif
