// SPDX-License-Identifier: Apache-2.0
// List walk without end: the program goes round once for each node, however many there are, and
// stops at the node with the client's key, or at the list's end, to answer and wait for the next
// request.
//
// Where the walk is, and what it looks for, lies in memory, since a request may find the program in
// any of its slots: the receive writes it, every node moves it on. A NOP covers the answer until
// one of two CASes makes it shorter: the first compares the client's key, the second the end
// node's, whose value is the answer for a miss.
//
//      W                                    K
//      gate    WAIT  request (n)            hit    WRITE_IMM value, its length (completes)
//              READ  place, key -> node, CAS
//              OPEN  through more
//      node    READ  -> pick, hit, place
//              CAS   pick, the client's key
//              CAS   pick, the end's key
//      more    OPEN  the rest of the slot
//      pick    NOP   ds 48, or 4 at the end of the walk:
//      answer  OPEN  K through hit (k)
//              WAIT  for hit (d)
//              RECV_EN (r)
//              FADD  n, d, r
//              FADD  k
//              READ  n, d, r, k -> one slot
//              READ  n, d, r, k -> the other
//      and in any case the next slot's other counters
//
// WAITs do not consume what they wait for: the gate lets every node of a request pass. Its index
// and those of the answer's entries are written by the answer only, for all slots at once: the
// other slot is not open, and what is written of this one has been executed.
#include "chain/offload_kit.h"

enum {
    SEGS = VB_OFFLOAD_SEGS,
    SLOTS = 2,
    ANSWER_BLOCKS = 11,
    PICK_BLOCKS = 1 + ANSWER_BLOCKS, // while it covers the answer
    PLACE_BYTES = 8,
    K_BLOCKS = 4, // of K's ring, which goes round once for each request
};

static_assert(PICK_BLOCKS <= (int)VB_OFFLOAD_JUMP_MAX, "a NOP covers the answer");

// Counters of the program's own, packed as an addition wants them: bytes.
enum {
    GATE_AT = 0,
    DONE_AT = 3,
    RECV_AT = 6,
    OPEN_AT = 8,
    COUNT_BYTES = 10,
};

// The entries of a slot that others write to.
struct slot {
    struct vb_chain_label node, key, more, pick, gate, open, done, recv;
};

struct loop {
    struct vb_offload o;
    struct vb_chain_region vars, counts;
    struct vb_chain_label hit;
    struct slot slot[SLOTS];
};

// ---- a node

static void add_gate(struct vb_chain *c, const struct loop *l, const struct slot *s)
{
    vb_chain_here(c, s->gate);
    vb_chain_manual(c, vb_chain_wait_recv(c, l->o.w, l->o.k, 0));
    vb_chain_op(
        c, l->o.w,
        &(struct vb_chain_op){.opcode = VB_WQE_READ,
                              .remote = vb_in(l->vars, 0),
                              .parts = 2,
                              .part = {{vb_at(s->node, VB_AT_RADDR), PLACE_BYTES},
                                       {vb_at_byte(s->key, VB_AT_COMPARE, 1), VB_LIST_KEY_BYTES}}});
    vb_chain_add_flags(c, vb_chain_open(c, l->o.w, s->more), VB_CHAIN_FENCE);
}

static void add_read(struct vb_chain *c, const struct loop *l, const struct slot *s)
{
    vb_chain_op(c, l->o.w,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .label = s->node,
                                      .remote = vb_in(l->o.index, 0),
                                      .parts = 6,
                                      .part = {{vb_in(l->vars, 0), PLACE_BYTES},
                                               {vb_at(l->hit, VB_AT_ADDR), 8},
                                               {vb_at(l->hit, VB_AT_IMM), 4},
                                               {vb_at_n(l->hit, VB_AT_LEN, 0, 1), 3},
                                               vb_operand(s->pick, 0),
                                               vb_operand(s->pick, 1)}});
}

static void add_comparisons(struct vb_chain *c, const struct loop *l, const struct slot *s)
{
    const uint64_t end_key = 0x00ffffff00ffffff, found = vb_offload_word(VB_WQE_NOP, SEGS);

    vb_offload_compare(c, &l->o, l->o.w, s->pick, SEGS * PICK_BLOCKS, found, s->key);
    vb_chain_op(
        c, l->o.w,
        &(struct vb_chain_op){.opcode = VB_WQE_ATOMIC_CS,
                              .flags = VB_CHAIN_FENCE,
                              .remote = vb_at(s->pick, VB_AT_CTRL),
                              .compare = vb_offload_word(VB_WQE_NOP, SEGS * PICK_BLOCKS) | end_key,
                              .swap_add = found,
                              .parts = 1,
                              .part = {{vb_in(l->o.scratch, 0), 8}}});
    vb_chain_here(c, s->more);
    vb_chain_add_flags(c, vb_chain_open_rest(c, l->o.w), VB_CHAIN_FENCE);
    vb_chain_op(
        c, l->o.w,
        &(struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = SEGS * PICK_BLOCKS, .label = s->pick});
}

// ---- the answer

static void add_count(struct vb_chain *c, const struct loop *l, uint32_t at, uint64_t add,
                      uint64_t ends)
{
    vb_chain_op(c, l->o.w,
                &(struct vb_chain_op){.opcode = VB_WQE_MASKED_FA,
                                      .remote = vb_in(l->counts, at),
                                      .swap_add = add,
                                      .compare = ends,
                                      .parts = 1,
                                      .part = {{vb_in(l->o.scratch, 0), 8}}});
}

// The counters into the entries of one slot, byte by byte: the lowest comes last there.
static void copy_counts(struct vb_chain *c, const struct loop *l, const struct slot *to)
{
    struct vb_chain_op op = {
        .opcode = VB_WQE_READ, .flags = VB_CHAIN_FENCE, .remote = vb_in(l->counts, 0)};
    const struct {
        struct vb_chain_label entry;
        uint32_t bytes;
    } count[] = {{to->gate, DONE_AT - GATE_AT},
                 {to->done, RECV_AT - DONE_AT},
                 {to->recv, OPEN_AT - RECV_AT},
                 {to->open, COUNT_BYTES - OPEN_AT}};

    for (uint32_t i = 0; i < sizeof count / sizeof count[0]; i++)
        for (uint32_t b = 0; b < count[i].bytes; b++)
            op.part[op.parts++] =
                (struct vb_part){vb_at_byte(count[i].entry, VB_AT_INDEX, 3 - b), 1};
    vb_chain_op(c, l->o.w, &op);
}

static void add_answer(struct vb_chain *c, const struct loop *l, const struct slot *s)
{
    vb_chain_here(c, s->open);
    vb_chain_manual(c, vb_chain_open(c, l->o.w, l->hit));
    vb_chain_here(c, s->done);
    vb_chain_manual(c, vb_chain_wait(c, l->o.w, l->hit));
    // Before its index is changed: one receive is open at a time.
    vb_chain_here(c, s->recv);
    vb_chain_manual(c, vb_chain_open_recv(c, l->o.w, l->o.k, 0));
    add_count(c, l, GATE_AT, 1 | 1ull << 24 | 1ull << 48, 1ull << 23 | 1ull << 47 | 1ull << 63);
    add_count(c, l, OPEN_AT, K_BLOCKS, 1ull << 15);
    for (uint32_t i = 0; i < SLOTS; i++)
        copy_counts(c, l, &l->slot[i]);
}

// ---- the program

static void add_slot(struct vb_chain *c, const struct loop *l, uint32_t n)
{
    const struct slot *s = &l->slot[n];

    vb_chain_slot(c, l->o.w);
    add_gate(c, l, s);
    add_read(c, l, s);
    add_comparisons(c, l, s);
    add_answer(c, l, s);
    vb_chain_restore(c, vb_at(s->pick, VB_AT_DS), 1);
}

static void make_labels(struct vb_chain *c, struct loop *l)
{
    for (uint32_t n = 0; n < SLOTS; n++)
        l->slot[n] = (struct slot){.node = vb_offload_name(c, "node", n),
                                   .key = vb_offload_name(c, "compare", n),
                                   .more = vb_offload_name(c, "more", n),
                                   .pick = vb_offload_name(c, "pick", n),
                                   .gate = vb_offload_name(c, "gate", n),
                                   .open = vb_offload_name(c, "answer", n),
                                   .done = vb_offload_name(c, "done", n),
                                   .recv = vb_offload_name(c, "again", n)};
}

static void start_counts(struct vb_chain *c, const struct loop *l)
{
    const struct slot *s = &l->slot[0];

    vb_chain_count(c, vb_in(l->counts, GATE_AT), s->gate);
    vb_chain_count(c, vb_in(l->counts, DONE_AT), s->done);
    vb_chain_count(c, vb_in(l->counts, RECV_AT), s->recv);
    vb_chain_count(c, vb_in(l->counts, OPEN_AT), s->open);
}

struct vb_image *vb_offload_list_loop(const struct vb_list_opts *opts, char *error)
{
    struct loop l;
    struct vb_chain *c =
        vb_offload_begin(&l.o, "list_loop", 0, opts->value_max ? opts->value_max : VB_OFFLOAD_VALUE,
                         1, sizeof(struct vb_list_node), error);

    if (!c)
        return NULL;
    l.vars = vb_chain_region(c, "vars", VB_CHAIN_OWN, 16, true);
    l.counts = vb_chain_region(c, "counts", VB_CHAIN_OWN, 16, true);
    make_labels(c, &l);
    struct vb_chain_op hit = vb_offload_hit(&l.o, 0);
    hit.label = vb_chain_label(c, "hit");
    l.hit = vb_chain_op(c, l.o.k, &hit);
    vb_chain_recv(c, l.o.k, &(struct vb_part){vb_in(l.vars, 0), PLACE_BYTES + VB_LIST_KEY_BYTES},
                  1);
    for (uint32_t n = 0; n < SLOTS; n++)
        add_slot(c, &l, n);
    start_counts(c, &l);
    struct vb_image *image = vb_chain_finish(c, error);
    assert(!image || image->queue[l.o.k.id - 1].blocks == K_BLOCKS);
    return image;
}
