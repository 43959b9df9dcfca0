// SPDX-License-Identifier: Apache-2.0
// Shared receive queues of the simulation: making them, filling them, making them anew.
#include "sim/srq.h"

#include "sim/connection.h"
#include "sim/cq.h"
#include "sim/model.h"
#include "sim/rebuild.h"
#include "sim/trace.h"

#include <errno.h>
#include <string.h>

enum {
    GAP_MAX = 16,
    PLAIN = 2, // queues for RC, one in each domain
};

static uint32_t draw(struct vb_simsrq *srq, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(&srq->node->world->prng, lo, hi);
}

static bool chance(struct vb_simsrq *srq, uint32_t ppm)
{
    return vb_prng_chance(&srq->node->world->prng, ppm);
}

static void cover(struct vb_simsrq *srq, enum vb_cover_row row)
{
    vb_cover(srq->node->world->cover, row);
}

// ---- creation

uint32_t vb_simsrq_count(const struct vb_node *node)
{
    const struct vb_scenario *s = &node->world->scen;

    if (s->xrc_ppm)
        return VB_SIM_SRQS;
    return s->shared_ppm ? PLAIN : 0;
}

static uint32_t slot_bytes(const struct vb_node *node)
{
    return node->world->scen.shared_room + VB_MAX_SGE * GAP_MAX;
}

uint32_t vb_simsrq_bytes(const struct vb_node *node)
{
    return vb_simsrq_count(node) * VB_SIM_SRQ_ENTRIES * slot_bytes(node);
}

static int create(struct vb_simsrq *srq)
{
    struct vb_node *node = srq->node;
    int err = vb_driver_srq_init(&srq->drv, srq->depth, srq->sge);

    if (err)
        return err;
    const struct vb_srqc_attr attr = {.pd = node->pd[srq->domain],
                                      .ring = srq->drv.ring,
                                      .entries = srq->drv.entries,
                                      .stride_bytes = srq->drv.stride,
                                      .dbrec = srq->drv.dbrec,
                                      .xrcd = srq->xrcd,
                                      .cqn = srq->xrcd ? node->cq[srq->cq].cqn : 0};
    if (srq->xrcd && node->world->scen.units > 1)
        node->cq[srq->cq].crosses = true;
    srq->posted = srq->taken = 0;
    srq->limit = srq->lost = 0;
    return vb_dev_srq_create(node->dev, &attr, &srq->srqn);
}

// Queue pairs of UC and UD on the queue: each may keep a receive for ever, for a message that has
// lost a packet or a datagram that it is too short for.
static uint32_t count_keepers(const struct vb_node *node, uint32_t index)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->ep_count; i++)
        count += node->ep[i]->opts.srq == index + 1 && vb_ep_is_unreliable(node->ep[i]);
    return count;
}

static void describe(struct vb_simsrq *srq, uint32_t index)
{
    uint32_t xrc = index < PLAIN ? 0 : index - PLAIN;

    srq->domain = index % VB_SIM_PDS;
    srq->xrcd = index < PLAIN ? 0 : 1 + xrc / VB_SIM_PDS;
    srq->cq = draw(srq, 0, srq->node->world->scen.cqs - 1);
    // One is left for others when half of the rest is lost.
    srq->depth = draw(srq, 1 + 2 * count_keepers(srq->node, index), VB_SIM_SRQ_ENTRIES - 1);
    srq->sge = draw(srq, 1, chance(srq, 200000) ? VB_MAX_SGE : 3);
    srq->slot_bytes = slot_bytes(srq->node);
}

static_assert(VB_SIM_SRQS == PLAIN + VB_SIM_XRCDS * VB_SIM_PDS, "one of each kind");

int vb_simsrq_create_all(struct vb_node *node)
{
    int err = 0;

    for (uint32_t i = 0; i < vb_simsrq_count(node) && !err; i++) {
        struct vb_simsrq *srq = &node->srq[node->srq_count++];
        srq->node = node;
        describe(srq, i);
        srq->region = vb_hostmem_carve(&node->mem, VB_SIM_SRQ_ENTRIES * srq->slot_bytes);
        if (!srq->region)
            return -ENOMEM;
        err = vb_hostmem_register(&node->mem, node->dev, srq->region, node->pd[srq->domain],
                                  VB_LOCAL_WRITE);
        if (!err)
            err = create(srq);
    }
    return err;
}

int vb_simsrq_destroy_all(struct vb_node *node)
{
    int err = 0;

    for (uint32_t i = 0; i < node->srq_count && !err; i++)
        err = vb_dev_srq_destroy(node->dev, node->srq[i].srqn);
    return err;
}

void vb_simsrq_free_all(struct vb_node *node)
{
    for (uint32_t i = 0; i < node->srq_count; i++)
        vb_driver_srq_fini(&node->srq[i].drv);
}

struct vb_driver_srq *vb_simsrq_find(void *ctx, uint32_t srqn)
{
    struct vb_node *node = ctx;

    for (uint32_t i = 0; i < node->srq_count; i++)
        if (node->srq[i].srqn == srqn)
            return &node->srq[i].drv;
    return NULL;
}

// ---- receives

static void plan(struct vb_simsrq *srq, uint32_t entry, struct vb_intake *in)
{
    const struct vb_world *w = srq->node->world;
    uint32_t bad_ppm = w->phase == VB_PHASE_FAULTS ? w->scen.bad_recv_ppm : 0;
    uint32_t at = entry * srq->slot_bytes, left = w->scen.shared_room;

    if (chance(srq, bad_ppm))
        left = draw(srq, 0, left); // a longer message will find it too short
    vb_hostmem_scribble(&srq->node->mem, srq->region->offset + at, srq->slot_bytes);
    *in =
        (struct vb_intake){.wr_id = srq->next_wr_id++, .counter = entry, .room = left, .srq = srq};
    in->num_sge = left == 0 ? draw(srq, 0, 1) : draw(srq, 1, srq->sge);
    for (uint32_t i = 0; i < in->num_sge; i++) {
        uint32_t n = i + 1 < in->num_sge ? draw(srq, 0, left) : left;
        in->sge[i] = (struct vb_sge){srq->region->addr + at, n, srq->region->key};
        at += n + draw(srq, 0, GAP_MAX);
        left -= n;
    }
    if (in->num_sge && chance(srq, bad_ppm)) {
        in->sge[draw(srq, 0, in->num_sge - 1)].lkey ^= 1u << draw(srq, 0, 31);
        cover(srq, VB_COVER_BAD_RECV_LKEY);
    }
}

// The driver's next free entry, if another one is free behind it.
static bool post(struct vb_simsrq *srq)
{
    uint32_t entry = srq->drv.head;
    struct vb_intake in;

    if (srq->drv.head == srq->drv.tail) {
        cover(srq, VB_COVER_LIMIT_SRQ);
        return false;
    }
    plan(srq, entry, &in);
    const struct vb_recv_wr wr = {in.wr_id, in.sge, in.num_sge};
    int n = vb_driver_post_srq(&srq->drv, &wr, 1);
    if (n != 1)
        vb_world_violate(srq->node->world, "posting to SRQ %u returned %d", srq->srqn, n);
    srq->intake[entry] = in;
    srq->order[srq->posted++ & (VB_SIM_SRQ_ENTRIES - 1)] = entry;
    return true;
}

// A limit that the queue cannot have is refused, and changes nothing.
static void arm(struct vb_simsrq *srq)
{
    uint32_t limit = draw(srq, 0, srq->drv.entries);
    int err = vb_dev_srq_arm(srq->node->dev, srq->srqn, limit);
    int expected = limit < srq->drv.entries ? 0 : -EINVAL;

    if (err != expected)
        vb_world_violate(srq->node->world, "NIC %u: arming SRQ %u for %u of %u returned %d",
                         srq->node->index, srq->srqn, limit, srq->drv.entries, err);
    if (!err)
        srq->limit = limit;
    vb_trace_note(srq->node->world, "nic%u arm      srq %u limit %u: %d", srq->node->index,
                  srq->srqn, limit, err);
}

bool vb_simsrq_act(struct vb_simsrq *srq)
{
    const struct vb_world *w = srq->node->world;
    bool posted = false;

    if (w->phase == VB_PHASE_END)
        return false;
    if (w->now_ns >= srq->starved_until_ns)
        for (uint32_t n = draw(srq, 1, 8); n > 0 && post(srq); n--)
            posted = true;
    if (chance(srq, 100000))
        arm(srq);
    uint32_t ppm = w->scen.remake_ppm * (srq->xrcd ? 4 : 1); // it is seldom in use
    bool faults = w->phase == VB_PHASE_FAULTS;
    if (srq->lost * 2 >= srq->depth || (faults && chance(srq, ppm)))
        vb_simsrq_remake(srq);
    return posted;
}

// ---- another one

static bool lives_on(const struct vb_ep *ep, const void *srq)
{
    return ep->srq == srq;
}

static bool is_used(const struct vb_simsrq *srq)
{
    for (uint32_t i = 0; i < srq->node->ep_count; i++)
        if (lives_on(srq->node->ep[i], srq))
            return true;
    return false;
}

static int replace(struct vb_simsrq *srq)
{
    struct vb_world *w = srq->node->world;
    uint32_t old = srq->srqn;
    int err = vb_dev_srq_destroy(srq->node->dev, srq->srqn);

    if (!err && srq->xrcd) {
        vb_model_srq_gone(srq);
        vb_driver_cq_clean_srq(&srq->node->cq[srq->cq].drv, srq->srqn);
    }
    vb_driver_srq_fini(&srq->drv);
    if (!err)
        err = create(srq);
    vb_trace_note(w, "nic%u replace  srq %u by %u", srq->node->index, old, srq->srqn);
    vb_digest_add(&w->digest, srq->srqn);
    cover(srq, srq->xrcd ? VB_COVER_BAD_XRC_REMADE : VB_COVER_BAD_SRQ_REMADE);
    return err;
}

static int remake(void *srq)
{
    return replace(srq);
}

void vb_simsrq_remake(struct vb_simsrq *srq)
{
    struct vb_world *w = srq->node->world;
    int err;

    if (srq->xrcd) {
        vb_node_publish(srq->node, true); // as at rest
        err = replace(srq);
    } else {
        if (is_used(srq) && vb_dev_srq_destroy(srq->node->dev, srq->srqn) != -EBUSY)
            vb_world_violate(w, "NIC %u gave up a shared receive queue in use", srq->node->index);
        const struct vb_rebuild r = {
            .node = srq->node, .object = srq, .needs = lives_on, .remake = remake};
        err = vb_rebuild(&r);
    }
    if (err)
        vb_world_violate(w, "NIC %u: another shared receive queue: %d", srq->node->index, err);
    vb_node_wake(srq->node);
}
