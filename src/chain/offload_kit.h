// SPDX-License-Identifier: Apache-2.0
// What the offloads share: their queues and regions, and the words that comparisons compare.
#ifndef VB_CHAIN_OFFLOAD_KIT_H
#define VB_CHAIN_OFFLOAD_KIT_H

#include "chain/builder.h"
#include "verbena/offload.h"

#include <stdio.h>

enum {
    VB_OFFLOAD_SEGS = 4, // of a block
    VB_OFFLOAD_SLOTS = 8,
    VB_OFFLOAD_VALUE = 4096,
    VB_OFFLOAD_SLOTS_MAX = 1024,
    VB_OFFLOAD_JUMP_MAX = 15, // blocks that a NOP can be long
};

// Where values come from and go to.
struct vb_offload {
    struct vb_chain_queue w, k;
    struct vb_chain_region index, items, client, scratch;
    uint32_t slots, value_max;
    struct vb_chain_label done[VB_OFFLOAD_SLOTS_MAX]; // ends a half: see vb_offload_rearm()
};

// The eight bytes of a control segment as the number that a CAS compares: little-endian.
static inline uint64_t vb_offload_word(uint8_t opcode, uint32_t ds)
{
    return (uint64_t)opcode << 24 | (uint64_t)ds << 56;
}

static inline struct vb_chain_label vb_offload_name(struct vb_chain *c, const char *what,
                                                    uint32_t n)
{
    char text[VB_IMAGE_NAME];
    snprintf(text, sizeof text, "%s%u", what, n);
    return vb_chain_label(c, text);
}

// Queues W and K, regions index, of entries of so many bytes, items, client and scratch. Without
// slots it takes one request at a time. NULL: error says why.
struct vb_chain *vb_offload_begin(struct vb_offload *o, const char *name, uint32_t slots,
                                  uint32_t value_max, uint32_t recv_sge, uint32_t entry_bytes,
                                  char *error);

// Two slots or more begin their next round by halves. The replies of the last one must have left
// the queue before it is written to again: the last entry of each half completes (it has the label
// done[n]), and opens the receives of its half. So replies need no completion of their own, and no
// ACK.
static inline bool vb_offload_ends_half(const struct vb_offload *o, uint32_t n)
{
    return (n + 1) % (o->slots / 2) == 0;
}
// The first slot of a half, on any queue that runs in circles, waits for all of it.
void vb_offload_guard(struct vb_chain *c, const struct vb_offload *o, struct vb_chain_queue queue,
                      uint32_t n);
void vb_offload_rearm(struct vb_chain *c, const struct vb_offload *o, uint32_t n);

// Compares the control segment of `victim`, a NOP of `ds` segments, with the key that the client's
// request writes into the comparison; equal, it becomes what `swap` says.
struct vb_chain_label vb_offload_compare(struct vb_chain *c, const struct vb_offload *o,
                                         struct vb_chain_queue queue, struct vb_chain_label victim,
                                         uint32_t ds, uint64_t swap, struct vb_chain_label label);
// Opens the client's queue through an entry, when all that W has read and compared is in place.
void vb_offload_reply(struct vb_chain *c, const struct vb_offload *o,
                      struct vb_chain_label through);
// The reply for a hit: its address, length and immediate data come from the index.
struct vb_chain_op vb_offload_hit(const struct vb_offload *o, uint32_t slot);

// hash_two.c
struct vb_image *vb_hash_two(const struct vb_hash_opts *opts, char *error);

#endif
