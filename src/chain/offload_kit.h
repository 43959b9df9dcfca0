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

// Queues W and K, regions index, items, client and scratch. NULL: error says why.
struct vb_chain *vb_offload_begin(struct vb_offload *o, const char *name, uint32_t slots,
                                  uint32_t value_max, uint32_t recv_sge, char *error);
// Compares the control segment of `victim`, a NOP of `ds` segments, with the key that the client's
// request writes into the comparison; equal, it becomes what `swap` says.
struct vb_chain_label vb_offload_compare(struct vb_chain *c, const struct vb_offload *o,
                                         struct vb_chain_queue queue, struct vb_chain_label victim,
                                         uint32_t ds, uint64_t swap, struct vb_chain_label label);
// The reply for a hit: its address, length and immediate data come from the index.
struct vb_chain_op vb_offload_hit(const struct vb_offload *o, uint32_t slot);

// hash_two.c
struct vb_image *vb_hash_two(const struct vb_hash_opts *opts, char *error);

#endif
