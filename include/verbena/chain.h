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
    // Of a queue that runs in circles: see vb_chain_open_rest().
    bool ahead;
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
    VB_AT_CTRL,   // 8 bytes: opmod, idx, opcode, qpn, ds; flags and imm are behind them
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
    VB_AT_REMOTE, // 16: raddr, rkey and four bytes more; a record that CALC can add to
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

static inline struct vb_place vb_at_byte(struct vb_chain_label label, enum vb_chain_field field,
                                         uint64_t offset)
{
    struct vb_place p = {{0}, label, field, 0, offset};
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
    VB_CHAIN_DORMANT = 1 << 2,  // a NOP at first: it is what it is when its opcode is written
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
// The next entry of any queue gets this label.
void vb_chain_here(struct vb_chain *chain, struct vb_chain_label label);
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
// More flags of an entry: an opening entry with a fence comes after what its queue has written.
void vb_chain_add_flags(struct vb_chain *chain, struct vb_chain_label label, uint32_t flags);
// Opens the n-th receive for the next round.
struct vb_chain_label vb_chain_open_recv(struct vb_chain *chain, struct vb_chain_queue queue,
                                         struct vb_chain_queue peer, uint32_t n);
// A receive of a queue: where the next message's bytes go.
void vb_chain_recv(struct vb_chain *chain, struct vb_chain_queue queue, const struct vb_part *part,
                   uint32_t parts);

// ---- conditions
// The cheapest form: an entry that lies in its queue as a NOP, with 48 bits of an operand in its
// control segment, until a comparison makes it what it is. It must not be open before that is done.

// The operand's bytes, for entries and receives that put it there: two parts of three bytes each.
static inline struct vb_part vb_operand(struct vb_chain_label entry, uint32_t half)
{
    struct vb_part p = {{{0}, entry, VB_AT_CTRL, 0, 4u * half}, 3};
    return p;
}

// An entry that is a NOP at first.
struct vb_chain_label vb_chain_sleeper(struct vb_chain *chain, struct vb_chain_queue queue,
                                       const struct vb_chain_op *op);
// A CAS that wakes it if its operand equals the 48 bits; `old` is where the CAS's answer goes.
struct vb_chain_label vb_chain_wake(struct vb_chain *chain, struct vb_chain_queue queue,
                                    struct vb_chain_label sleeper, uint64_t equals,
                                    struct vb_place old);
// All of it on one queue: the CAS, a wait for it, an entry that opens the queue up to its next
// opening entry, and the sleeper, whose label is returned.
struct vb_chain_label vb_chain_if(struct vb_chain *chain, struct vb_chain_queue queue,
                                  const struct vb_chain_op *then, uint64_t equals,
                                  struct vb_place old);

// ---- rounds

// Starts a slot of a queue that runs in circles; there are at least two. Its entries up to the
// first one that opens the same queue can be fetched long before the slot's turn: as soon as the
// slot before has brought its counters up to date. Without such an entry that is all of the slot.
// What atomics of such a queue answer with is big-endian, as fields of entries are; of other queues
// it is in the machine's order.
void vb_chain_slot(struct vb_chain *chain, struct vb_chain_queue queue);
// Opens the rest of the slot. Of a queue that goes ahead, also the next slot up to the first entry
// there that opens the queue: every slot has one. Nobody else opens that part, and nobody may write
// to it: it can be fetched while this slot runs. It saves an entry, and an index to count.
struct vb_chain_label vb_chain_open_rest(struct vb_chain *chain, struct vb_chain_queue queue);
// Bytes of an entry that every round begins with, whatever the last one made of them.
void vb_chain_restore(struct vb_chain *chain, struct vb_place at, uint32_t len);
// The same for bytes that the slot before changes: they are restored when this slot has run.
void vb_chain_restore_after(struct vb_chain *chain, struct vb_place at, uint32_t len);
// The same, brought back by another queue that runs in circles, for its newest slot.
void vb_chain_restore_on(struct vb_chain *chain, struct vb_chain_queue queue, struct vb_place at,
                         uint32_t len);
// The index of this WAIT or opening entry does not grow with the rounds: the program writes it.
void vb_chain_manual(struct vb_chain *chain, struct vb_chain_label label);
// Where the program counts it, in memory of its own: little-endian, 3 bytes of a WAIT's index and 2
// of an opening entry's. At first it is as in the entry.
void vb_chain_count(struct vb_chain *chain, struct vb_place at, struct vb_chain_label label);
// Nothing of this slot is changed for the next round before that entry, of this round, has
// completed.
void vb_chain_guard(struct vb_chain *chain, struct vb_chain_queue queue,
                    struct vb_chain_label until);

// ---- a language: variables, conditions and loops on one queue
// Statements are written down, and turned into entries by vb_flow_end_program(). A condition is a
// CAS on a NOP that holds the operand in its control segment; what it decides is whether the NOP
// covers the entries behind it.

struct vb_flow;

struct vb_var {
    uint32_t id; // 0: none
};

// On a queue of its own that is connected with itself. Its regions are "NAME_vars" and so on.
struct vb_flow *vb_flow_begin(struct vb_chain *chain, const char *queue);
// A variable of 64 bits.
struct vb_var vb_flow_var(struct vb_flow *flow, uint64_t value);
// One that holds the address of a place.
struct vb_var vb_flow_pointer(struct vb_flow *flow, struct vb_place of);
// Where it lies: 8 bytes, big-endian.
struct vb_place vb_flow_place(struct vb_flow *flow, struct vb_var var);

void vb_flow_set(struct vb_flow *flow, struct vb_var to, uint64_t value);
void vb_flow_move(struct vb_flow *flow, struct vb_var to, struct vb_var from);
void vb_flow_calc(struct vb_flow *flow, enum vb_wqe_calc op, struct vb_var to, struct vb_var a,
                  struct vb_var b);
void vb_flow_calc_value(struct vb_flow *flow, enum vb_wqe_calc op, struct vb_var to,
                        struct vb_var a, uint64_t b);
// From or to memory of the region, where `at` points: 1 to 8 bytes, a big-endian number.
void vb_flow_load(struct vb_flow *flow, struct vb_var to, struct vb_chain_region region,
                  struct vb_var at, uint32_t bytes);
void vb_flow_store(struct vb_flow *flow, struct vb_chain_region region, struct vb_var at,
                   struct vb_var from, uint32_t bytes);
// The same, `offset` bytes behind where `at` points.
void vb_flow_load_indexed(struct vb_flow *flow, struct vb_var to, struct vb_chain_region region,
                          struct vb_var at, struct vb_var offset, uint32_t bytes);
void vb_flow_store_indexed(struct vb_flow *flow, struct vb_chain_region region, struct vb_var at,
                           struct vb_var offset, struct vb_var from, uint32_t bytes);

enum vb_compare {
    VB_EQ,
    VB_NE,
    VB_LT,
    VB_LE,
    VB_GT,
    VB_GE,
};

// Of each side the lowest `bits` count: 1 to 64; in inequalities all 64.
void vb_flow_if(struct vb_flow *flow, struct vb_var a, enum vb_compare compare, struct vb_var b,
                uint32_t bits);
void vb_flow_if_value(struct vb_flow *flow, struct vb_var a, enum vb_compare compare, uint64_t b,
                      uint32_t bits);
void vb_flow_else(struct vb_flow *flow);
// The body so many times, unless a break ends it.
void vb_flow_repeat(struct vb_flow *flow, uint32_t times);
// For ever, without a CPU, unless a break ends it: the last statement of the program, and not
// within another.
void vb_flow_loop(struct vb_flow *flow);
void vb_flow_break(struct vb_flow *flow); // of the innermost repeat or loop
void vb_flow_end(struct vb_flow *flow);   // of an if, a repeat or a loop

// Turns the statements into entries of the chain, and frees the flow.
void vb_flow_end_program(struct vb_flow *flow);

// ---- on a NIC (include <verbena/nic.h>)

struct vb_nic;
struct vb_pd;
struct vb_qp;
struct vb_program;
struct vb_loaded;

// Memory for a region of the image: the server's, or the client's as the client has named it.
struct vb_load_memory {
    const char *region;
    uint64_t addr; // as entries name it
    uint32_t key;  // of the same domain as the program
};

struct vb_load_opts {
    struct vb_pd *pd;
    const struct vb_load_memory *memory; // of every shared region and every one of the client's
    uint32_t memories;
    struct vb_program *program; // that limits and audits it; NULL: none
    uint32_t unit;              // of its first completion queue, from 1 on; 0: the first
    uint32_t units;             // over which its queues are spread; 0: one
    uint32_t fetch_depth;       // entries fetched ahead; 0: the default
    uint32_t rate, burst;       // entries per second of each queue, and at once; 0: no limit
    uint64_t start;             // of all counters, for tests: a multiple of every ring's size
};

// Makes the program's queues, code regions and memory. Those that work on the server's memory are
// connected; connect the others (vb_loaded_qp), then start it. -EINVAL, -ENOMEM, -ENOSPC: error
// (200 bytes) says why.
int vb_chain_load(struct vb_nic *nic, const struct vb_image *image, const struct vb_load_opts *opts,
                  struct vb_loaded **loaded, char *error);
struct vb_qp *vb_loaded_qp(struct vb_loaded *loaded, const char *queue); // NULL: none of this name
void *vb_loaded_data(struct vb_loaded *loaded, const char *region);      // of its own; NULL: none
uint64_t vb_loaded_bytes(const struct vb_loaded *loaded); // of memory that this program takes
// The program as it is now, running or not: counters and gates as comments, then its entries and
// memory in the text form that `verbena chain asm` takes back (docs/chain-text.md). The names are
// those of the image that it was loaded from. free() it. NULL: error (200 bytes) says why.
char *vb_chain_dump(struct vb_loaded *loaded, const struct vb_image *image, char *error);
// Of a service (vb_service_tag): the program that a process before this one had loaded, from the
// same image, with the same options and under a tag of its own, as it is now. It may be looked at,
// started (again, without an effect, if it was) and unloaded. -ENOENT: there is none; of one that
// was not loaded to its end nothing is left. -EINVAL: the tag has something else. error (200 bytes)
// says why. (Shared memory and the client's is named by the options alone; a dump tells of it.)
int vb_service_loaded(struct vb_nic *nic, uint32_t tag, const struct vb_image *image,
                      const struct vb_load_opts *opts, struct vb_loaded **loaded, char *error);
// From now on it needs no CPU.
int vb_chain_start(struct vb_loaded *loaded);
// Its queues, keys and memory go.
void vb_chain_unload(struct vb_loaded *loaded);

void vb_image_destroy(struct vb_image *image);

#ifdef __cplusplus
}
#endif

#endif
