// SPDX-License-Identifier: Apache-2.0
// Frames held back on purpose, for one direction: until a deadline, in the order they came, or
// until some later frames of the same queue pair have overtaken them.
#ifndef VB_PORT_HELD_H
#define VB_PORT_HELD_H

#include "base/fifo.h"
#include "nic/frame.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_HELD_MAX = 4096,
    HELD_BUCKETS = 256, // power of two
};

// Frames of one lane keep their order, unless one is to be overtaken.
struct vb_lane_key {
    uint32_t qpn; // the destination
    struct vb_ip ip;
};

struct vb_lane;

struct vb_held {
    struct vb_link link; // in the lane (to be overtaken), among the ready, or with the owner
    struct vb_lane *lane;
    uint32_t heap_at;
    uint32_t passes_left; // frames yet to overtake it; 0: it keeps its order
    uint64_t at_ns;
    uint64_t order;
    // What the owner wants back.
    struct vb_lane_key key;
    struct vb_path path;    // sending only
    const struct vb_ip *to; // receiving only
    uint64_t ip_word;       // the same
    bool corrupt;
    bool ce;
    uint32_t copies;
    uint32_t len;
    uint8_t bytes[];
};

struct vb_hold {
    struct vb_held **heap; // by deadline, then order
    uint32_t count;        // in the heap
    uint64_t order;        // of the last frame that came
    struct vb_fifo ready;  // overtaken often enough
    struct vb_lane *bucket[HELD_BUCKETS];
};

bool vb_hold_init(struct vb_hold *hold); // false: no memory
void vb_hold_fini(struct vb_hold *hold);

// Whether a frame that came now would have to wait, so as not to overtake another.
bool vb_hold_is_waiting(const struct vb_hold *hold, const struct vb_lane_key *key);
// Keeps a new frame of `len` bytes, which the caller fills in, until at_ns or until `passes` later
// frames have passed (0: it keeps its order). NULL: too many are held, or no memory.
struct vb_held *vb_hold_add(struct vb_hold *hold, const struct vb_lane_key *key, uint64_t at_ns,
                            uint32_t passes, uint32_t len);
// A new frame goes straight on.
void vb_hold_pass(struct vb_hold *hold, const struct vb_lane_key *key);
// Takes the next frame whose wait is over, to be freed with free(); it passes now. NULL: none.
struct vb_held *vb_hold_next(struct vb_hold *hold, uint64_t now_ns);
// When vb_hold_next() will have something: 0 for now, UINT64_MAX for never.
uint64_t vb_hold_deadline(const struct vb_hold *hold);

static inline bool vb_hold_is_empty(const struct vb_hold *hold)
{
    return hold->count == 0 && vb_fifo_empty(&hold->ready);
}

#endif
