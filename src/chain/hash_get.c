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
//              WAIT  for the CAS            done   NOP  completes
//              OPEN  K                                (in the last slot of each half)
//              RECV_EN, and the next slot's counters
#include "verbena/offload.h"

#include "chain/offload_kit.h"

#include <stdio.h>
#include <stdlib.h>

static_assert(sizeof(struct vb_hash_bucket) == 24, "a bucket has no holes");

enum {
    SEGS = VB_OFFLOAD_SEGS,
    SKIP_SEGS = 3 * SEGS, // the NOP itself, the miss and the NOP behind it
    SLOTS_MAX = 256,
};

struct parts {
    struct vb_chain_queue w, k;
    struct vb_chain_region index, items, client, scratch;
    uint32_t slots, value_max;
};

// The entries of one slot that others write to.
struct slot {
    uint32_t n;
    bool ends_half; // of the slots: it completes when all before it have
    struct vb_chain_label pick, hit, done, read, cas;
};

static void add_replies(struct vb_chain *c, const struct parts *p, struct slot *s)
{
    struct vb_place to = vb_in(p->client, (uint64_t)s->n * p->value_max);

    s->pick = vb_chain_op(c, p->k,
                          &(struct vb_chain_op){.opcode = VB_WQE_NOP,
                                                .ds = SEGS,
                                                .label = vb_offload_name(c, "pick", s->n)});
    vb_chain_op(c, p->k,
                &(struct vb_chain_op){.opcode = VB_WQE_WRITE_IMM,
                                      .label = vb_offload_name(c, "miss", s->n),
                                      .remote = to,
                                      .imm = VB_HASH_MISS});
    vb_chain_op(c, p->k, &(struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = 2 * SEGS});
    s->hit = vb_chain_op(c, p->k,
                         &(struct vb_chain_op){.opcode = VB_WQE_WRITE_IMM,
                                               .label = vb_offload_name(c, "hit", s->n),
                                               .remote = to,
                                               .parts = 1,
                                               .part = {{vb_in(p->items, 0), 0}}});
    if (!s->ends_half)
        return;
    vb_chain_op(
        c, p->k,
        &(struct vb_chain_op){.opcode = VB_WQE_NOP, .label = s->done, .flags = VB_CHAIN_SIGNALED});
}

// Bucket and key meet in the control segment of `pick`. The first byte of the length stays zero: a
// client that points at other bytes of the index cannot make it the mark of inline data, which
// would show it the entry itself.
static void add_lookup(struct vb_chain *c, const struct parts *p, struct slot *s)
{
    s->read = vb_chain_op(c, p->w,
                          &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                                .label = vb_offload_name(c, "bucket", s->n),
                                                .remote = vb_in(p->index, 0),
                                                .parts = 6,
                                                .part = {{vb_at(s->hit, VB_AT_ADDR), 8},
                                                         {vb_in(p->scratch, 0), 1},
                                                         {vb_at_n(s->hit, VB_AT_LEN, 0, 1), 3},
                                                         {vb_at(s->hit, VB_AT_IMM), 4},
                                                         {vb_at(s->pick, VB_AT_CTRL), 3},
                                                         {vb_at_n(s->pick, VB_AT_CTRL, 0, 4), 3}}});
    s->cas = vb_chain_op(c, p->w,
                         &(struct vb_chain_op){.opcode = VB_WQE_ATOMIC_CS,
                                               .label = vb_offload_name(c, "compare", s->n),
                                               .flags = VB_CHAIN_FENCE,
                                               .remote = vb_at(s->pick, VB_AT_CTRL),
                                               .compare = vb_offload_word(VB_WQE_NOP, SEGS),
                                               .swap_add = vb_offload_word(VB_WQE_NOP, SKIP_SEGS),
                                               .parts = 1,
                                               .part = {{vb_in(p->scratch, 0), 8}}});
}

static void add_slot(struct vb_chain *c, const struct parts *p, struct slot *all, uint32_t n)
{
    uint32_t half = p->slots / 2;
    struct slot s = all[n];

    add_replies(c, p, &s);
    vb_chain_slot(c, p->w);
    vb_chain_wait_recv(c, p->w, p->k, n);
    vb_chain_open_rest(c, p->w);
    add_lookup(c, p, &s);
    vb_chain_wait(c, p->w, s.cas);
    vb_chain_open(c, p->w, s.ends_half ? s.done : s.hit);
    vb_chain_restore(c, vb_at(s.pick, VB_AT_DS), 1);
    // Half of the slots at a time: the replies of the last round must have left the queue before
    // the next one writes there, and receives are opened for it.
    if (n % half == 0)
        vb_chain_guard(c, p->w, all[n + half - 1].done);
    if (s.ends_half)
        vb_chain_open_recv(c, p->w, p->k, n);
    vb_chain_recv(c, p->k,
                  (const struct vb_part[]){{vb_at_n(s.cas, VB_AT_COMPARE, 0, 5), 3},
                                           {vb_at_n(s.cas, VB_AT_COMPARE, 0, 1), 3},
                                           {vb_at(s.read, VB_AT_RADDR), 8}},
                  3);
}

struct vb_image *vb_offload_hash_get(const struct vb_hash_opts *opts, char *error)
{
    if (opts->way != VB_HASH_ONE)
        return vb_hash_two(opts, error);
    struct vb_chain *c = vb_chain_begin("hash_get");
    struct parts p = {.slots = opts->slots ? opts->slots : VB_OFFLOAD_SLOTS,
                      .value_max = opts->value_max ? opts->value_max : VB_OFFLOAD_VALUE};

    if (!c) {
        snprintf(error, VB_IMAGE_TEXT, "no memory for the program");
        return NULL;
    }
    if (p.slots < 2 || p.slots > SLOTS_MAX || p.slots & (p.slots - 1)) {
        snprintf(error, VB_IMAGE_TEXT, "%u slots: make it a power of two from 2 to %d", p.slots,
                 SLOTS_MAX);
        vb_chain_abandon(c);
        return NULL;
    }
    p.w = vb_chain_queue(c, "W", &(struct vb_chain_queue_opts){0});
    p.k = vb_chain_queue(c, "K", &(struct vb_chain_queue_opts){.peer = true, .recv_sge = 3});
    p.index = vb_chain_region(c, "index", VB_CHAIN_SHARED, sizeof(struct vb_hash_bucket), false);
    p.items = vb_chain_region(c, "items", VB_CHAIN_SHARED, 1, false);
    p.client = vb_chain_region(c, "client", VB_CHAIN_PEER, (uint64_t)p.slots * p.value_max, true);
    p.scratch = vb_chain_region(c, "scratch", VB_CHAIN_OWN, 8, true);
    struct slot *slots = calloc(p.slots, sizeof *slots);
    for (uint32_t n = 0; slots && n < p.slots; n++) {
        slots[n] = (struct slot){.n = n, .ends_half = (n + 1) % (p.slots / 2) == 0};
        if (slots[n].ends_half)
            slots[n].done = vb_offload_name(c, "done", n);
    }
    for (uint32_t n = 0; slots && n < p.slots; n++)
        add_slot(c, &p, slots, n);
    free(slots);
    return vb_chain_finish(c, error);
}
