// SPDX-License-Identifier: Apache-2.0
// Hash get from two buckets, one request, exactly one reply: the first bucket's if both have the
// key. As with one bucket the buckets' keys go into NOPs on the client's queue, which become longer
// when they are the client's.
//
//      W                                    K
//      gate    WAIT  request                pick   NOP  ds 4, or 16 on a hit: next is hit
//      ready   OPEN  the rest               pick2  NOP  ds 4, or 20 on a hit: next is other
//              READ  bucket  -> pick, hit   miss   WRITE_IMM nothing, VB_HASH_MISS
//              READ  bucket2 -> pick2,      over   NOP  ds 16: next is done
//                               other       hit    WRITE_IMM value, its length
//              CAS   pick                          NOP  ds 8: next is done
//              CAS   pick2                  other  WRITE_IMM value, its length
//              OPEN  K, behind the CASes    done   NOP  (completes in the last slot of each half)
//              RECV_EN, there, and the next slot's counters
//
// In parallel the entries of the second bucket are on a queue of their own, V, with a gate, slots
// and counters like W's; W waits for V's CAS, too, before it opens K.
#include "chain/offload_kit.h"

enum {
    SEGS = VB_OFFLOAD_SEGS,
    HIT_SEGS = 4 * SEGS,   // from pick to hit
    OTHER_SEGS = 5 * SEGS, // from pick2 to other
};

// A bucket's lookup: who is compared, what it fills in, and the entries that the request fills in.
struct lookup {
    struct vb_chain_label pick, hit, read, cas;
};

struct slot {
    uint32_t n;
    struct lookup first, second;
    struct vb_chain_label done;
};

static struct vb_chain_label add_nop(struct vb_chain *c, const struct vb_offload *o, uint32_t ds,
                                     struct vb_chain_label label)
{
    return vb_chain_op(
        c, o->k, &(struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = (uint8_t)ds, .label = label});
}

static void add_replies(struct vb_chain *c, const struct vb_offload *o, struct slot *s)
{
    struct vb_chain_label none = {0};
    struct vb_chain_op hit = vb_offload_hit(o, s->n), miss = hit;

    s->first.pick = add_nop(c, o, SEGS, vb_offload_name(c, "pick", s->n));
    s->second.pick = add_nop(c, o, SEGS, vb_offload_name(c, "second", s->n));
    miss.label = vb_offload_name(c, "miss", s->n);
    miss.imm = VB_HASH_MISS;
    miss.parts = 0;
    vb_chain_op(c, o->k, &miss);
    add_nop(c, o, 4 * SEGS, none);
    hit.label = vb_offload_name(c, "hit", s->n);
    s->first.hit = vb_chain_op(c, o->k, &hit);
    add_nop(c, o, 2 * SEGS, none);
    hit.label = vb_offload_name(c, "other", s->n);
    s->second.hit = vb_chain_op(c, o->k, &hit);
    s->done = add_nop(c, o, SEGS, o->done[s->n]);
    if (vb_offload_ends_half(o, s->n))
        vb_chain_add_flags(c, s->done, VB_CHAIN_SIGNALED);
}

static void add_read(struct vb_chain *c, const struct vb_offload *o, struct vb_chain_queue queue,
                     struct lookup *l)
{
    l->read = vb_chain_op(c, queue,
                          &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                                .remote = vb_in(o->index, 0),
                                                .parts = 6,
                                                .part = {{vb_at(l->hit, VB_AT_ADDR), 8},
                                                         {vb_at(l->pick, VB_AT_IMM), 1},
                                                         {vb_at_n(l->hit, VB_AT_LEN, 0, 1), 3},
                                                         {vb_at(l->hit, VB_AT_IMM), 4},
                                                         vb_operand(l->pick, 0),
                                                         vb_operand(l->pick, 1)}});
}

static void add_cas(struct vb_chain *c, const struct vb_offload *o, struct vb_chain_queue queue,
                    struct lookup *l, uint32_t ds)
{
    l->cas = vb_offload_compare(c, o, queue, l->pick, SEGS, vb_offload_word(VB_WQE_NOP, ds),
                                (struct vb_chain_label){0});
}

static struct vb_chain_label begin_slot(struct vb_chain *c, const struct vb_offload *o,
                                        struct vb_chain_queue queue, uint32_t n)
{
    vb_chain_slot(c, queue);
    struct vb_chain_label gate = vb_chain_wait_recv(c, queue, o->k, n);
    vb_chain_open_rest(c, queue);
    return gate;
}

// The second bucket on its own queue: what it changes, it brings back, when the reply is done.
static void add_beside(struct vb_chain *c, const struct vb_offload *shared, struct vb_chain_queue v,
                       struct vb_chain_region scratch, struct slot *s)
{
    struct vb_offload own = *shared, *o = &own;

    own.scratch = scratch; // what it need not keep, W must not write at the same time
    begin_slot(c, o, v, s->n);
    add_read(c, o, v, &s->second);
    add_cas(c, o, v, &s->second, OTHER_SEGS);
    vb_chain_restore_on(c, v, vb_at(s->second.pick, VB_AT_DS), 1);
    vb_offload_guard(c, o, v, s->n);
}

static void add_slot(struct vb_chain *c, const struct vb_offload *o, struct vb_chain_queue v,
                     struct vb_chain_region scratch, uint32_t n)
{
    struct slot s = {.n = n};

    add_replies(c, o, &s);
    if (v.id)
        add_beside(c, o, v, scratch, &s);
    vb_chain_here(c, vb_offload_name(c, "gate", n));
    begin_slot(c, o, o->w, n);
    add_read(c, o, o->w, &s.first);
    if (!v.id)
        add_read(c, o, o->w, &s.second);
    add_cas(c, o, o->w, &s.first, HIT_SEGS);
    if (!v.id)
        add_cas(c, o, o->w, &s.second, OTHER_SEGS);
    else
        vb_chain_wait(c, o->w, s.second.cas);
    vb_offload_reply(c, o, s.done);
    vb_offload_rearm(c, o, n);
    vb_chain_restore_on(c, o->w, vb_at(s.first.pick, VB_AT_DS), 1);
    if (!v.id)
        vb_chain_restore_on(c, o->w, vb_at(s.second.pick, VB_AT_DS), 1);
    vb_chain_recv(c, o->k,
                  (const struct vb_part[]){{vb_at_byte(s.first.cas, VB_AT_COMPARE, 5), 3},
                                           {vb_at_byte(s.first.cas, VB_AT_COMPARE, 1), 3},
                                           {vb_at(s.first.read, VB_AT_RADDR), 8},
                                           {vb_at_byte(s.second.cas, VB_AT_COMPARE, 5), 3},
                                           {vb_at_byte(s.second.cas, VB_AT_COMPARE, 1), 3},
                                           {vb_at(s.second.read, VB_AT_RADDR), 8}},
                  6);
}

struct vb_image *vb_hash_two(const struct vb_hash_opts *opts, char *error)
{
    struct vb_chain_queue v = {0};
    struct vb_chain_region scratch = {0};
    struct vb_offload o;
    struct vb_chain *c =
        vb_offload_begin(&o, "hash_two", opts->slots ? opts->slots : VB_OFFLOAD_SLOTS,
                         opts->value_max ? opts->value_max : VB_OFFLOAD_VALUE, 6,
                         sizeof(struct vb_hash_bucket), error);

    if (!c)
        return NULL;
    if (opts->way == VB_HASH_PARALLEL) {
        v = vb_chain_queue(c, "V", &(struct vb_chain_queue_opts){.ahead = true});
        scratch = vb_chain_region(c, "scratch_v", VB_CHAIN_OWN, 8, true);
    }
    for (uint32_t n = 0; n < o.slots; n++)
        add_slot(c, &o, v, scratch, n);
    return vb_chain_finish(c, error);
}
