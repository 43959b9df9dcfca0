// SPDX-License-Identifier: Apache-2.0
// A program being built: what the user said, until it is laid out.
#ifndef VB_CHAIN_BUILDER_H
#define VB_CHAIN_BUILDER_H

#include "chain/code.h"
#include "chain/image.h"
#include "verbena/chain.h"

#define VB_BUILD_REST UINT32_MAX       // as a target: the last entry of the slot, or the next one
#define VB_BUILD_NEXT (UINT32_MAX - 1) // the next entry that opens the queue, or its last one

enum vb_item_kind {
    VB_ITEM_OP,
    VB_ITEM_WAIT,      // for entry `target`
    VB_ITEM_WAIT_RECV, // for receive `n` of `queue_target`
    VB_ITEM_OPEN,      // through entry `target`
    VB_ITEM_OPEN_RECV, // receive `n` of `queue_target`
    VB_ITEM_HALT,      // a WAIT that never ends, however often the program has gone round
};

// One entry of a queue, in order.
struct vb_item {
    struct vb_item *next;
    enum vb_item_kind kind;
    struct vb_chain_op op;
    uint8_t *data; // a copy of op.data
    uint32_t queue, slot;
    uint32_t target, queue_target, n;
    bool manual;     // its index is the program's own business
    bool fills;      // a NOP that lies in all the blocks it covers: nothing else is there
    bool sleeps;     // a NOP at first, but for its length
    uint32_t wakes;  // a CAS: the label of the entry that it makes what it is
    uint32_t counts; // an addition: the label of the entry whose index it brings up to date
    int lap;         // of the target, counted from this entry's own
    uint32_t block;  // once laid out
    uint32_t number; // of its completion, in its queue's
};

// What slots have besides their entries.
struct vb_guard {
    uint32_t slot, label;
};

struct vb_restore {
    uint32_t slot;
    struct vb_place at;
    uint32_t len;
    bool after; // when its own slot has run
};

struct vb_build_recv {
    uint32_t parts;
    struct vb_part part[VB_MAX_SGE];
};

struct vb_build_queue {
    char name[VB_IMAGE_NAME];
    struct vb_chain_queue_opts opts;
    struct vb_item *first, *last;
    uint32_t items;
    struct vb_build_recv *recv;
    uint32_t recvs;
    uint32_t slots;
    uint32_t *ready; // by slot: the label of the entry that ends its first part
    struct vb_guard *guard;
    uint32_t guards;
    struct vb_restore *restore;
    uint32_t restores;
    uint32_t blocks, used; // of the ring, once laid out
    uint32_t completions;  // of one round
    uint32_t counters;     // region of the rounds, 0: none
};

struct vb_build_region {
    struct vb_image_region image;
};

struct vb_build_label {
    char name[VB_IMAGE_NAME]; // empty: not for people
    struct vb_item *item;     // NULL: not yet
};

struct vb_build_address {
    struct vb_place at, of;
};

// Where a program counts the index of an entry by itself.
struct vb_build_manual {
    struct vb_place at;
    uint32_t label;
};

// A counter of a program that runs in circles.
struct vb_build_count {
    uint32_t region;
    uint64_t offset;
    enum vb_reloc_kind kind;
    uint32_t target;
    uint32_t value, bytes;
};

struct vb_chain {
    char name[VB_IMAGE_NAME];
    char error[VB_IMAGE_TEXT]; // empty: none yet
    bool circular;
    uint32_t here;                // the label of the next entry; 0: a new one
    struct vb_build_queue *queue; // handles count from 1
    struct vb_build_region *region;
    struct vb_build_label *label;
    struct vb_build_address *address;
    struct vb_build_count *count;
    struct vb_build_manual *manual;
    uint32_t queues, regions, labels, addresses, counts, manuals;
};

// The entry of a label; NULL: it was not made yet, or there is no such label.
static inline struct vb_item *vb_build_item(const struct vb_chain *c, uint32_t label)
{
    return label && label <= c->labels ? c->label[label - 1].item : NULL;
}

static inline bool vb_build_failed(const struct vb_chain *c)
{
    return c->error[0] != 0;
}

// Keeps the first mistake. Returns false.
__attribute__((format(printf, 2, 3))) bool vb_build_fail(struct vb_chain *c, const char *text, ...);
// Room for one more element; *array moves. NULL: no memory, which is kept as the mistake.
void *vb_build_more(struct vb_chain *c, void *array, uint32_t *count, size_t size);
// Adds an entry behind `after` (NULL: at the end of the queue).
struct vb_item *vb_build_insert(struct vb_chain *c, uint32_t queue, struct vb_item *after,
                                const struct vb_item *like);
const char *vb_build_label_name(const struct vb_chain *c, uint32_t label);
uint32_t vb_build_new_label(struct vb_chain *c);

// ---- rounds.c: adds what brings the next slot's counters up to date. After vb_rounds_insert() all
// entries are there; vb_rounds_number() fills in the counters when all numbers are known.
bool vb_rounds_insert(struct vb_chain *c);
bool vb_rounds_number(struct vb_chain *c);

// ---- branch.c
// An entry of a slot or queue that opens the queue itself.
bool vb_build_opens_itself(const struct vb_chain *c, const struct vb_item *item);
// Finds what VB_BUILD_NEXT stands for.
void vb_branch_targets(struct vb_chain *c);
// Fills in the comparisons, when the entries they wake are complete.
bool vb_branch_compare(struct vb_chain *c);
// The bytes of an entry that sleeps.
void vb_branch_hide(const struct vb_item *item, uint8_t *at);

// ---- layout.c
// Blocks that the entry takes; a NOP may cover more, in which others lie.
uint32_t vb_build_blocks(const struct vb_item *item);
// The index of a WAIT or an opening entry, of its own round, and by how much it grows with each.
uint32_t vb_build_index(const struct vb_chain *c, const struct vb_item *item, uint32_t *grows);
// What that index counts: a queue, or its completion queue for sends or for receives.
uint32_t vb_build_counter(const struct vb_chain *c, const struct vb_item *item);
// The entry as a value, without what is relocated.
void vb_build_code(const struct vb_item *item, struct vb_code *code);
// The same as bytes, as it is at first.
void vb_build_write(const struct vb_item *item, const struct vb_code *code, uint8_t *at);

#endif
