// SPDX-License-Identifier: Apache-2.0
// What the parts of the static checker share: who touches which memory, as far as the image says.
#ifndef VB_CHAIN_CHECK_STATIC_H
#define VB_CHAIN_CHECK_STATIC_H

#include "chain/check.h"

enum {
    VB_ACCESSES = VB_MAX_SGE + 2,
    VB_HALT_AHEAD = 1 << 20, // completions: nobody waits for so many but to stop
};

// Memory that an entry reads or writes.
struct vb_access {
    struct vb_spot spot;
    uint32_t len;
    bool write, remote;
};

// What entries of a queue do, if it was looked at.
struct vb_values {
    bool failed;   // nothing can be said
    uint8_t *acts; // by block: enum reach of check_values.c
};

struct vb_statics {
    const struct vb_image *image;
    struct vb_listing *listing;
    struct vb_findings *out;
    uint8_t **patch; // by queue and byte of its send ring: VB_PATCHED_…
    bool *circular;  // by queue: it is opened by entries that count on
    // ---- check_jumps.c
    uint8_t **stored;  // by region of the program's own, and byte: an entry may write it
    uint32_t **length; // by queue and block: how many blocks a NOP there can be long, one bit each
    bool wild;         // an entry may write anything
    // ---- check_values.c
    struct vb_values *value; // by queue
};

enum {
    VB_PATCHED = 1 << 0,           // by an entry that copies
    VB_PATCHED_BY_CLIENT = 1 << 1, // by a receive
    VB_PATCHED_BY_ATOMIC = 1 << 2,
};

// What the entry touches, as far as relocations say. Returns how many.
uint32_t vb_accesses(const struct vb_line *line, struct vb_access *out);
bool vb_spots_meet(const struct vb_spot *a, uint64_t a_len, const struct vb_spot *b,
                   uint64_t b_len);
// The ways in which bytes of a field, of data segment `n`, are patched, all or'ed; 0: not at all,
// or no such field.
uint8_t vb_patched_in(const struct vb_statics *s, const struct vb_line *line, enum vb_field field,
                      uint32_t n);
// Whether an entry before it in its queue writes the field.
bool vb_is_filled_in(const struct vb_statics *s, const struct vb_line *line, enum vb_field field);
bool vb_is_signaled(const struct vb_line *line);
bool vb_takes_receives(const struct vb_image *image, uint32_t cq);
// The n-th entry that completes into a queue's completion queue, from block 0 on. NULL: none.
const struct vb_line *vb_producer(const struct vb_statics *s, uint32_t cq, uint32_t n,
                                  uint32_t *count);

static inline uint8_t vb_patched(const struct vb_statics *s, const struct vb_line *line,
                                 enum vb_field field)
{
    return vb_patched_in(s, line, field, 0);
}

static inline bool vb_is_atomic(const struct vb_line *line)
{
    return line->code.opcode >= VB_WQE_ATOMIC_CS && line->code.opcode <= VB_WQE_MASKED_FA;
}

static inline uint64_t vb_list_bytes(const struct vb_code *c)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < c->num_sge; i++)
        bytes += c->sge[i].len;
    return bytes;
}

static inline struct vb_actor vb_line_actor(const struct vb_line *line)
{
    return line ? vb_sender(line->queue, line->block) : vb_nobody();
}

// ---- check_memory.c: operands, scatter lists, keys
void vb_check_memory(struct vb_statics *s);
// ---- check_jumps.c: what is skipped
bool vb_jumps_find(struct vb_statics *s); // false: no memory
void vb_jumps_free(struct vb_statics *s);
// Whether every way to a later block of its queue leads through the entry.
bool vb_is_passed(const struct vb_statics *s, const struct vb_line *line, uint32_t before);
// ---- check_values.c: what entries find in memory
// Whether the entry never writes the memory that it names, as the remote one or as a part of its
// list: it is never reached, or compares what is never equal. Only of programs with one queue.
bool vb_is_idle(struct vb_statics *s, const struct vb_line *line, bool remote);
void vb_values_free(struct vb_statics *s);
// ---- check_order.c: what is patched and used when
void vb_check_order(struct vb_statics *s);

#endif
