// SPDX-License-Identifier: Apache-2.0
// Chain programs: work-queue entries that write each other, so that a NIC computes.
//
// A program is built queue by queue. Entries are named by labels and their bytes by fields; places
// (a field, or a range of a region) are what entries read and write. Which number a WAIT must wait
// for, and how far a SEND_EN must open a queue, is worked out when the program is finished. The
// first mistake is kept, and everything after it ignored: vb_chain_finish() says what it was.
//
// Queues run in circles: with slots (vb_chain_slot) the program is repeated for ever, without a
// CPU. While one slot runs, its last part brings the next slot's counters up to date.
#ifndef VERBENA_CHAIN_H
#define VERBENA_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <verbena/wqe.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vb_chain;
struct vb_image;

// Handles; 0 is none.
struct vb_chain_queue {
    uint32_t id;
};
struct vb_chain_region {
    uint32_t id;
};
struct vb_chain_label {
    uint32_t id;
};

struct vb_chain *vb_chain_begin(const char *name); // NULL: no memory
// Lays the program out. NULL: error (200 bytes) says what is wrong with it. Frees the builder.
struct vb_image *vb_chain_finish(struct vb_chain *chain, char *error);
void vb_chain_abandon(struct vb_chain *chain);

// ---- queues and memory

struct vb_chain_queue_opts {
    bool peer;         // connected with a client; otherwise with itself, working on local memory
    bool unmanaged;    // executed as soon as it is posted
    uint32_t recv_sge; // scatter entries of each receive, at most 16; 0: it takes no messages
    uint32_t open;     // entries (not blocks) that may run from the start
};

struct vb_chain_queue vb_chain_queue(struct vb_chain *chain, const char *name,
                                     const struct vb_chain_queue_opts *opts);

enum vb_chain_memory {
    VB_CHAIN_OWN,    // comes with the program
    VB_CHAIN_SHARED, // the server's, named when the program is loaded
    VB_CHAIN_PEER,   // the client's, named when it connects
};

struct vb_chain_region vb_chain_region(struct vb_chain *chain, const char *name,
                                       enum vb_chain_memory kind, uint64_t bytes, bool writable);

// ---- places

enum vb_chain_field {
    VB_AT_CTRL,   // 8 bytes: opmod, idx, opcode, qpn, ds
    VB_AT_OPMOD,  // 1
    VB_AT_IDX,    // 2
    VB_AT_OPCODE, // 1
    VB_AT_QPN,    // 3
    VB_AT_DS,     // 1
    VB_AT_FLAGS,  // 1
    VB_AT_IMM,    // 4
    VB_AT_RADDR,  // 8
    VB_AT_RKEY,   // 4
    VB_AT_SWAP,   // 8, or 4 of a narrow atomic; also what it adds
    VB_AT_COMPARE,
    VB_AT_INDEX,  // 4
    VB_AT_OBJECT, // 4
    VB_AT_LEN,    // 4: of the n-th data segment
    VB_AT_KEY,    // 4
    VB_AT_ADDR,   // 8
    VB_AT_DATA,   // inline bytes
};

struct vb_place {
    struct vb_chain_region region;
    struct vb_chain_label label; // or a field of this entry
    enum vb_chain_field field;
    uint32_t n; // of which data segment
    uint64_t offset;
};

static inline struct vb_place vb_in(struct vb_chain_region region, uint64_t offset)
{
    struct vb_place p = {region, {0}, VB_AT_CTRL, 0, offset};
    return p;
}

static inline struct vb_place vb_at(struct vb_chain_label label, enum vb_chain_field field)
{
    struct vb_place p = {{0}, label, field, 0, 0};
    return p;
}

static inline struct vb_place vb_at_n(struct vb_chain_label label, enum vb_chain_field field,
                                      uint32_t n, uint64_t offset)
{
    struct vb_place p = {{0}, label, field, n, offset};
    return p;
}

struct vb_part {
    struct vb_place at;
    uint32_t len;
};

// What a region of the program's own holds at first.
void vb_chain_put(struct vb_chain *chain, struct vb_place at, const void *bytes, uint32_t len);
// The address of a place, big-endian, as entries have it.
void vb_chain_put_address(struct vb_chain *chain, struct vb_place at, struct vb_place of);

// ---- entries

enum vb_chain_flags {
    VB_CHAIN_SIGNALED = 1 << 0, // completes; WAITs ask for it by themselves
    VB_CHAIN_FENCE = 1 << 1,    // after all earlier READs and atomics of its queue
};

// One entry; what its operation does not have stays zero.
struct vb_chain_op {
    enum vb_wqe_opcode opcode;
    uint32_t flags;
    struct vb_chain_label label; // that it gets; otherwise a new one
    uint8_t calc;                // enum vb_wqe_calc
    uint8_t arg_bytes;           // of a masked atomic: 4 or 8; 0: 8
    uint8_t ds;                  // of a NOP: segments it covers; what is in them is skipped
    uint32_t imm;
    struct vb_place remote;
    uint64_t swap_add, compare, swap_mask, compare_mask;
    uint32_t parts;
    struct vb_part part[VB_MAX_SGE];
    const void *data; // inline, instead of parts
    uint32_t len;
};

// A label for an entry that comes later.
struct vb_chain_label vb_chain_label(struct vb_chain *chain, const char *name);
struct vb_chain_label vb_chain_op(struct vb_chain *chain, struct vb_chain_queue queue,
                                  const struct vb_chain_op *op);
// Waits until the entry has completed.
struct vb_chain_label vb_chain_wait(struct vb_chain *chain, struct vb_chain_queue queue,
                                    struct vb_chain_label until);
// Waits until the client's n-th message has come (counted from 0 within one round of the program).
struct vb_chain_label vb_chain_wait_recv(struct vb_chain *chain, struct vb_chain_queue queue,
                                         struct vb_chain_queue peer, uint32_t n);
// Opens the queue of an entry up to and including it.
struct vb_chain_label vb_chain_open(struct vb_chain *chain, struct vb_chain_queue queue,
                                    struct vb_chain_label through);
// Opens the n-th receive for the next round.
struct vb_chain_label vb_chain_open_recv(struct vb_chain *chain, struct vb_chain_queue queue,
                                         struct vb_chain_queue peer, uint32_t n);
// A receive of a queue: where the next message's bytes go.
void vb_chain_recv(struct vb_chain *chain, struct vb_chain_queue queue, const struct vb_part *part,
                   uint32_t parts);

// ---- rounds

// Starts a slot of a queue that runs in circles; there are at least two. Its entries up to the
// first one that opens the same queue can be fetched long before the slot's turn.
void vb_chain_slot(struct vb_chain *chain, struct vb_chain_queue queue);
// Opens the rest of the slot.
struct vb_chain_label vb_chain_open_rest(struct vb_chain *chain, struct vb_chain_queue queue);
// Bytes of an entry that every round begins with, whatever the last one made of them.
void vb_chain_restore(struct vb_chain *chain, struct vb_place at, uint32_t len);
// Nothing of this slot is changed for the next round before that entry, of this round, has
// completed.
void vb_chain_guard(struct vb_chain *chain, struct vb_chain_queue queue,
                    struct vb_chain_label until);

#ifdef __cplusplus
}
#endif

#endif
