// SPDX-License-Identifier: Apache-2.0
// List walk: one piece of program for each node, at most so many nodes; 48-bit keys, misses
// answered, requests one after another without a CPU.
//
// The last entry of K completes in the last slot of each half, which opens receives for all of it.
//
// Each READ takes a node apart: the address of the next goes into the READ behind it, which is not
// open yet, the key into the control segment that a CAS compares, the value's address and length
// into the reply: all of the length but its first byte, since there a bit would make it inline data
// and the answer show the entry itself. The client's key is in the comparison of every CAS: a
// receive has written it there, or, in walks of more than VB_LIST_SCATTER nodes, a READ copies it
// from the first.
//
// Without a stop every node has a reply on K, a NOP that the CAS makes a WRITE_IMM; K is opened
// node by node, so the answer does not wait for the rest of the walk. A sum (XOR) of the replies'
// opcodes, and one more, is the opcode of the reply for a miss.
//
//      W, node n                            K, node n
//      node    READ  -> hit, next node      hit    NOP, or WRITE_IMM value, its length
//              CAS   hit
//              OPEN  K through hit          K, at the end
//              OPEN  W through next node    miss   NOP, or WRITE_IMM nothing
//      W, at the end
//              CALC  XOR of opcodes
//              READ  -> opcode of miss
//      reply   OPEN  K through miss
//              RECV_EN, and the next slot's counters
//
// With a stop there is one reply. What follows a node's comparison is a NOP that covers the way
// out, until the CAS makes it shorter. The way out opens the rest of the slot and leads to its end
// in jumps: NOPs of at most 15 blocks. A NOP may cover only what is open when it is fetched, so the
// first jump ends at the next node's NOP, which is made to jump on just before.
//
//      W, node n                            K
//      node    READ  -> pick, hit,          hit    WRITE_IMM value, its length
//                       next node
//              CAS   pick                   W, last node: as before, and
//              OPEN  W through next node    pick   NOP  ds 4, or 8 on a hit
//      pick    NOP   ds 20, or 4 on a hit          READ the reply for a miss -> hit
//              READ  -> length of next pick W, at the end
//              OPEN  the rest of the slot   reply  OPEN K through hit
//              NOP   to the next pick              RECV_EN, and the next slot's counters
//      land    NOP   to the next land
#include "chain/offload_kit.h"

#include <string.h>

static_assert(sizeof(struct vb_list_node) == 32, "a node has no holes");

enum {
    SEGS = VB_OFFLOAD_SEGS,
    NODES_DEFAULT = 8,
    REPLY_SEGS = 3, // of a WRITE_IMM with one part
    READ_BLOCKS = 2,
    OUT_BLOCKS = 5,  // pick, the way out, and land
    LAST_BLOCKS = 2, // pick and the READ of a miss
    CALC_PARTS = VB_MAX_SGE,
    CALC_BYTES = 16,
    OPCODE_AT = 3, // in a control segment
};

// The entries of a node that others write to.
struct node {
    struct vb_chain_label read, cas, open, pick, hit;
};

struct walk {
    struct vb_offload o;
    struct vb_chain_region data; // see make_data()
    uint32_t nodes;
    bool stops, copies;
    struct node node[VB_LIST_NODES_MAX]; // of the slot that is being made
    struct vb_chain_label done;
};

// ---- memory of the program's own: a sum, a constant, the reply for a miss, lengths of jumps

enum {
    SUM_AT = 0,
    ONE_AT = CALC_BYTES,
    MISS_AT = ONE_AT + CALC_BYTES,
    NEXT_AT = MISS_AT + 8, // where the last node's next goes
    JUMPS_AT = NEXT_AT + 8
};

// Blocks of a node that is not the last.
static uint32_t node_blocks(const struct walk *w)
{
    return READ_BLOCKS + 2 + w->copies + OUT_BLOCKS;
}

// How far a jump goes from `from` blocks behind the beginning of node n, whose way out is `land`
// blocks behind it: to the end, or to the last way out within reach.
static uint32_t jump(const struct walk *w, uint32_t n, uint32_t from)
{
    uint32_t land = node_blocks(w) - 1, last = w->nodes - 1;
    uint32_t end = (last - n) * node_blocks(w) + READ_BLOCKS + 2 + LAST_BLOCKS - from, far = 0;

    if (end <= VB_OFFLOAD_JUMP_MAX)
        return end;
    for (uint32_t to = n; to < last; to++) {
        uint32_t blocks = (to - n) * node_blocks(w) + land - from;
        if (blocks <= VB_OFFLOAD_JUMP_MAX)
            far = blocks;
    }
    return far;
}

// Where the NOP of a node lies behind its beginning.
static uint32_t pick_at(const struct walk *w, uint32_t n)
{
    return READ_BLOCKS + 2 + (w->copies && n + 1 < w->nodes);
}

static void make_data(struct vb_chain *c, struct walk *w)
{
    static const uint8_t miss[8] = {0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
    const uint8_t opcode = VB_WQE_WRITE_IMM;

    w->data = vb_chain_region(c, "data", VB_CHAIN_OWN, JUMPS_AT + VB_LIST_NODES_MAX, true);
    vb_chain_put(c, vb_in(w->data, ONE_AT + OPCODE_AT), &opcode, 1);
    vb_chain_put(c, vb_in(w->data, MISS_AT), miss, sizeof miss);
    for (uint32_t n = 1; w->stops && n < w->nodes; n++) {
        uint8_t ds = (uint8_t)(SEGS * jump(w, n, pick_at(w, n)));
        vb_chain_put(c, vb_in(w->data, JUMPS_AT + n), &ds, 1);
    }
}

// ---- parts of both

static struct vb_chain_label add_nop(struct vb_chain *c, struct vb_chain_queue queue,
                                     uint32_t blocks, struct vb_chain_label label)
{
    return vb_chain_op(c, queue,
                       &(struct vb_chain_op){
                           .opcode = VB_WQE_NOP, .ds = (uint8_t)(SEGS * blocks), .label = label});
}

static void add_read(struct vb_chain *c, const struct walk *w, uint32_t n,
                     struct vb_chain_label victim)
{
    const struct node *at = &w->node[n];
    struct vb_place next = vb_in(w->data, NEXT_AT);

    if (n + 1 < w->nodes)
        next = vb_at(w->node[n + 1].read, VB_AT_RADDR);
    vb_chain_op(c, w->o.w,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .label = at->read,
                                      .remote = vb_in(w->o.index, 0),
                                      .parts = 6,
                                      .part = {{next, 8},
                                               {vb_at(at->hit, VB_AT_ADDR), 8},
                                               {vb_at(at->hit, VB_AT_IMM), 4},
                                               {vb_at_n(at->hit, VB_AT_LEN, 0, 1), 3},
                                               vb_operand(victim, 0),
                                               vb_operand(victim, 1)}});
}

// The key of the first comparison into the next one.
static void copy_key(struct vb_chain *c, const struct walk *w, uint32_t n)
{
    if (!w->copies || n + 1 == w->nodes)
        return;
    vb_chain_op(c, w->o.w,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .remote = vb_at_byte(w->node[0].cas, VB_AT_COMPARE, 1),
                                      .parts = 1,
                                      .part = {{vb_at_byte(w->node[n + 1].cas, VB_AT_COMPARE, 1),
                                                VB_LIST_KEY_BYTES}}});
}

// Opens W through the entry that opens it for the node after next; at the last node, the rest.
static void open_next(struct vb_chain *c, const struct walk *w, uint32_t n)
{
    vb_chain_here(c, w->node[n].open);
    struct vb_chain_label open = n + 1 < w->nodes ? vb_chain_open(c, w->o.w, w->node[n + 1].open)
                                                  : vb_chain_open_rest(c, w->o.w);
    vb_chain_add_flags(c, open, VB_CHAIN_FENCE);
}

// ---- without a stop

static void add_dormant(struct vb_chain *c, struct walk *w, uint32_t slot)
{
    struct vb_chain_op hit = vb_offload_hit(&w->o, slot), miss = hit;

    hit.flags = VB_CHAIN_DORMANT;
    for (uint32_t n = 0; n < w->nodes; n++) {
        w->node[n].hit = vb_chain_op(c, w->o.k, &hit);
        vb_chain_restore(c, vb_at(w->node[n].hit, VB_AT_OPCODE), 1);
    }
    miss.flags = VB_CHAIN_DORMANT | (vb_offload_ends_half(&w->o, slot) ? VB_CHAIN_SIGNALED : 0);
    miss.parts = 0;
    miss.imm = VB_HASH_MISS;
    miss.label = w->o.done[slot];
    w->done = vb_chain_op(c, w->o.k, &miss);
}

static void add_node(struct vb_chain *c, const struct walk *w, uint32_t n)
{
    struct vb_chain_label hit = w->node[n].hit;

    add_read(c, w, n, hit);
    vb_offload_compare(c, &w->o, w->o.w, hit, REPLY_SEGS,
                       vb_offload_word(VB_WQE_WRITE_IMM, REPLY_SEGS), w->node[n].cas);
    copy_key(c, w, n);
    vb_offload_reply(c, &w->o, hit);
    open_next(c, w, n);
}

// What the opcode of the last reply must be: as the one of a hit, but for the hits there were.
static void sum_opcodes(struct vb_chain *c, const struct walk *w)
{
    struct vb_chain_op op = {.opcode = VB_WQE_WRITE,
                             .flags = VB_CHAIN_FENCE,
                             .calc = VB_WQE_CALC_XOR,
                             .remote = vb_in(w->data, SUM_AT),
                             .parts = 1,
                             .part = {{vb_in(w->data, ONE_AT), CALC_BYTES}}};
    struct vb_chain_label sum = {0};

    for (uint32_t n = 0; n < w->nodes;) {
        while (n < w->nodes && op.parts < CALC_PARTS)
            op.part[op.parts++] = (struct vb_part){vb_at(w->node[n++].hit, VB_AT_CTRL), CALC_BYTES};
        if (sum.id)
            vb_chain_wait(c, w->o.w, sum);
        sum = vb_chain_op(c, w->o.w, &op);
        op.part[0].at = vb_in(w->data, SUM_AT);
        op.parts = 1;
    }
    vb_chain_op(c, w->o.w,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .remote = vb_in(w->data, SUM_AT + OPCODE_AT),
                                      .parts = 1,
                                      .part = {{vb_at(w->done, VB_AT_OPCODE), 1}}});
}

// ---- with a stop

static void add_reply(struct vb_chain *c, struct walk *w, uint32_t slot)
{
    struct vb_chain_op hit = vb_offload_hit(&w->o, slot);

    hit.flags = vb_offload_ends_half(&w->o, slot) ? VB_CHAIN_SIGNALED : 0;
    hit.label = w->o.done[slot];
    w->done = vb_chain_op(c, w->o.k, &hit);
    for (uint32_t n = 0; n < w->nodes; n++) {
        w->node[n].hit = w->done;
        w->node[n].pick = vb_chain_label(c, NULL);
        vb_chain_restore(c, vb_at(w->node[n].pick, VB_AT_DS), 1);
    }
}

// The entries that the node's NOP covers, and the way out from earlier nodes.
static void add_way_out(struct vb_chain *c, const struct walk *w, uint32_t n)
{
    struct vb_chain_label none = {0};

    vb_chain_op(c, w->o.w,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .remote = vb_in(w->data, JUMPS_AT + n + 1),
                                      .parts = 1,
                                      .part = {{vb_at(w->node[n + 1].pick, VB_AT_DS), 1}}});
    vb_chain_add_flags(c, vb_chain_open_rest(c, w->o.w), VB_CHAIN_FENCE);
    add_nop(c, w->o.w, 2 + pick_at(w, n + 1), none);
    add_nop(c, w->o.w, jump(w, n, node_blocks(w) - 1), none);
}

static void add_miss(struct vb_chain *c, const struct walk *w)
{
    vb_chain_op(c, w->o.w,
                &(struct vb_chain_op){
                    .opcode = VB_WQE_READ,
                    .flags = VB_CHAIN_FENCE,
                    .remote = vb_in(w->data, MISS_AT),
                    .parts = 2,
                    .part = {{vb_at(w->done, VB_AT_LEN), 4}, {vb_at(w->done, VB_AT_IMM), 4}}});
}

static void add_stopping_node(struct vb_chain *c, const struct walk *w, uint32_t n)
{
    const struct node *at = &w->node[n];
    bool last = n + 1 == w->nodes;
    uint32_t miss = last ? 1 : OUT_BLOCKS, hit = last ? LAST_BLOCKS : 1;

    add_read(c, w, n, at->pick);
    vb_offload_compare(c, &w->o, w->o.w, at->pick, SEGS * miss,
                       vb_offload_word(VB_WQE_NOP, SEGS * hit), at->cas);
    copy_key(c, w, n);
    open_next(c, w, n);
    add_nop(c, w->o.w, miss, at->pick);
    if (last)
        add_miss(c, w);
    else
        add_way_out(c, w, n);
}

// ---- slots

static void add_recv(struct vb_chain *c, const struct walk *w)
{
    struct vb_part part[VB_MAX_SGE] = {{vb_at(w->node[0].read, VB_AT_RADDR), 8}};
    uint32_t parts = 1;

    for (uint32_t n = 0; n < (w->copies ? 1 : w->nodes); n++)
        part[parts++] =
            (struct vb_part){vb_at_byte(w->node[n].cas, VB_AT_COMPARE, 1), VB_LIST_KEY_BYTES};
    vb_chain_recv(c, w->o.k, part, parts);
}

static void add_slot(struct vb_chain *c, struct walk *w, uint32_t slot)
{
    vb_chain_slot(c, w->o.w);
    memset(w->node, 0, sizeof w->node);
    for (uint32_t n = 0; n < w->nodes; n++) {
        w->node[n].read = vb_chain_label(c, NULL);
        w->node[n].cas = vb_chain_label(c, NULL);
        w->node[n].open = vb_chain_label(c, NULL);
    }
    if (w->stops)
        add_reply(c, w, slot);
    else
        add_dormant(c, w, slot);
    vb_chain_here(c, vb_offload_name(c, "gate", slot));
    vb_chain_wait_recv(c, w->o.w, w->o.k, slot);
    vb_chain_open(c, w->o.w, w->node[0].open);
    for (uint32_t n = 0; n < w->nodes; n++)
        w->stops ? add_stopping_node(c, w, n) : add_node(c, w, n);
    if (!w->stops)
        sum_opcodes(c, w);
    vb_chain_here(c, vb_offload_name(c, "reply", slot));
    vb_offload_reply(c, &w->o, w->done);
    vb_offload_rearm(c, &w->o, slot);
    add_recv(c, w);
}

struct vb_image *vb_offload_list_walk(const struct vb_list_opts *opts, char *error)
{
    struct walk w = {.nodes = opts->nodes ? opts->nodes : NODES_DEFAULT, .stops = opts->stops};

    w.copies = w.nodes > VB_LIST_SCATTER;
    if (w.nodes > VB_LIST_NODES_MAX) {
        snprintf(error, VB_IMAGE_TEXT, "list_walk: %u nodes, but at most %d are unrolled", w.nodes,
                 VB_LIST_NODES_MAX);
        return NULL;
    }
    struct vb_chain *c =
        vb_offload_begin(&w.o, "list_walk", opts->slots ? opts->slots : VB_OFFLOAD_SLOTS,
                         opts->value_max ? opts->value_max : VB_OFFLOAD_VALUE,
                         1 + (w.copies ? 1 : w.nodes), sizeof(struct vb_list_node), error);
    if (!c)
        return NULL;
    make_data(c, &w);
    for (uint32_t slot = 0; slot < w.o.slots; slot++)
        add_slot(c, &w, slot);
    return vb_chain_finish(c, error);
}
