// SPDX-License-Identifier: Apache-2.0
// Hash get: one bucket, 48-bit keys, hits and misses answered. For two buckets see hash_two.c.
//
// The bucket's key goes into the control segment of a NOP on the client's queue, the client's key
// into the comparison of a CAS on it. Equal, the CAS makes the NOP longer: it then covers the reply
// for a miss and the NOP behind that, and the next entry is the reply for a hit.
//
//      W                                   K
//      gate    WAIT  request                pick   NOP  ds 4, or 12 on a hit
//      ready   OPEN  the rest               miss   WRITE_IMM nothing, VB_HASH_MISS
//              READ  bucket -> pick, hit    over   NOP  ds 8: covers the next one
//              CAS   pick                   hit    WRITE_IMM value, its length
//              OPEN  K, behind the CAS      done   NOP  completes
//                                                   (in the last slot of each half)
//              RECV_EN, and the next slot's counters
#include "verbena/offload.h"

#include "chain/offload_kit.h"

static_assert(sizeof(struct vb_hash_bucket) == 24, "a bucket has no holes");

enum {
    SEGS = VB_OFFLOAD_SEGS,
    SKIP_SEGS = 3 * SEGS, // the NOP itself, the miss and the NOP behind it
};

// The entries of one slot that others write to.
struct slot {
    uint32_t n;
    struct vb_chain_label pick, hit, read, cas;
};

static void add_replies(struct vb_chain *c, const struct vb_offload *o, struct slot *s)
{
    struct vb_chain_op hit = vb_offload_hit(o, s->n), miss = hit;

    s->pick = vb_chain_op(c, o->k,
                          &(struct vb_chain_op){.opcode = VB_WQE_NOP,
                                                .ds = SEGS,
                                                .label = vb_offload_name(c, "pick", s->n)});
    miss.label = vb_offload_name(c, "miss", s->n);
    miss.imm = VB_HASH_MISS;
    miss.parts = 0;
    vb_chain_op(c, o->k, &miss);
    vb_chain_op(c, o->k, &(struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = 2 * SEGS});
    hit.label = vb_offload_name(c, "hit", s->n);
    s->hit = vb_chain_op(c, o->k, &hit);
    if (vb_offload_ends_half(o, s->n))
        vb_chain_op(c, o->k,
                    &(struct vb_chain_op){
                        .opcode = VB_WQE_NOP, .label = o->done[s->n], .flags = VB_CHAIN_SIGNALED});
}

// Bucket and key meet in the control segment of `pick`. The first byte of the length stays zero: a
// client that points at other bytes of the index cannot make it the mark of inline data, which
// would show it the entry itself. The bucket's goes where nobody looks, into the immediate of a
// NOP.
static void add_lookup(struct vb_chain *c, const struct vb_offload *o, struct slot *s)
{
    s->read = vb_chain_op(c, o->w,
                          &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                                .label = vb_offload_name(c, "bucket", s->n),
                                                .remote = vb_in(o->index, 0),
                                                .parts = 6,
                                                .part = {{vb_at(s->hit, VB_AT_ADDR), 8},
                                                         {vb_at(s->pick, VB_AT_IMM), 1},
                                                         {vb_at_n(s->hit, VB_AT_LEN, 0, 1), 3},
                                                         {vb_at(s->hit, VB_AT_IMM), 4},
                                                         vb_operand(s->pick, 0),
                                                         vb_operand(s->pick, 1)}});
    s->cas = vb_offload_compare(c, o, o->w, s->pick, SEGS, vb_offload_word(VB_WQE_NOP, SKIP_SEGS),
                                vb_offload_name(c, "compare", s->n));
}

static void add_slot(struct vb_chain *c, const struct vb_offload *o, uint32_t n)
{
    struct slot s = {.n = n};

    add_replies(c, o, &s);
    vb_chain_slot(c, o->w);
    vb_chain_wait_recv(c, o->w, o->k, n);
    vb_chain_open_rest(c, o->w);
    add_lookup(c, o, &s);
    vb_offload_reply(c, o, vb_offload_ends_half(o, n) ? o->done[n] : s.hit);
    vb_chain_restore(c, vb_at(s.pick, VB_AT_DS), 1);
    vb_offload_rearm(c, o, n);
    vb_chain_recv(c, o->k,
                  (const struct vb_part[]){{vb_at_byte(s.cas, VB_AT_COMPARE, 5), 3},
                                           {vb_at_byte(s.cas, VB_AT_COMPARE, 1), 3},
                                           {vb_at(s.read, VB_AT_RADDR), 8}},
                  3);
}

struct vb_image *vb_offload_hash_get(const struct vb_hash_opts *opts, char *error)
{
    struct vb_offload o;

    if (opts->way != VB_HASH_ONE)
        return vb_hash_two(opts, error);
    struct vb_chain *c =
        vb_offload_begin(&o, "hash_get", opts->slots ? opts->slots : VB_OFFLOAD_SLOTS,
                         opts->value_max ? opts->value_max : VB_OFFLOAD_VALUE, 3,
                         sizeof(struct vb_hash_bucket), error);
    if (!c)
        return NULL;
    for (uint32_t n = 0; n < o.slots; n++)
        add_slot(c, &o, n);
    return vb_chain_finish(c, error);
}
