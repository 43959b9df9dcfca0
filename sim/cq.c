// SPDX-License-Identifier: Apache-2.0
// Completion queues of the simulation: as long as they need be or too short, moderated, resized.
#include "sim/cq.h"

#include "sim/model.h"
#include "sim/rebuild.h"
#include "sim/trace.h"

#include <errno.h>
#include <stdlib.h>

enum {
    GROWTH = 4,           // of a ring at most
    PERIOD_MAX_NS = 60000 // of moderation
};

static uint32_t draw(struct vb_node *node, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(&node->world->prng, lo, hi);
}

static bool chance(struct vb_node *node, uint32_t ppm)
{
    return vb_prng_chance(&node->world->prng, ppm);
}

// ---- creation

// One slot for each request that can be outstanding.
static uint32_t count_need(const struct vb_node *node, struct vb_simcq *cq, uint32_t index)
{
    uint32_t need = 1;

    cq->users = 0;
    for (uint32_t i = 0; i < node->ep_count; i++) {
        const struct vb_ep *ep = node->ep[i];
        bool sends = ep->opts.cq[0] == index, receives = ep->opts.cq[1] == index;
        need += sends ? ep->drv.sq.blocks : 0;
        need += receives ? ep->drv.rq.entries : 0;
        need += receives && ep->opts.srq ? VB_SIM_SRQ_ENTRIES : 0;
        cq->users += sends || receives;
    }
    if (node->world->scen.xrc_ppm) // any of them may have any of these
        need += VB_SIM_SRQS * VB_SIM_SRQ_ENTRIES;
    return need;
}

static void start(struct vb_node *node, struct vb_simcq *cq)
{
    struct vb_prng *p = &node->world->prng;

    cq->start = vb_prng_below(p, 2) ? (1u << 24) - vb_prng_below(p, 600) : vb_prng_below(p, 5000);
    if (vb_prng_below(p, 4) == 0)
        cq->start = 0;
    cq->written = cq->visible = cq->told = cq->start;
    cq->due_head = cq->due_tail = 0;
    cq->armed = cq->broken = cq->crosses = false;
    cq->solicited_end = 0;
    cq->hold_count = 0;
    cq->hold_ns = cq->told_ns = cq->due_by_ns = cq->old_wait_ns = 0;
}

int vb_simcq_create(struct vb_node *node, uint32_t index)
{
    struct vb_simcq *cq = &node->cq[index];
    const struct vb_scenario *s = &node->world->scen;

    cq->need = count_need(node, cq, index);
    start(node, cq);
    if (s->units > 1)
        cq->unit = draw(node, 0, s->units - 1);
    uint32_t entries = s->tight ? draw(node, 1, cq->need) : cq->need;
    int err = vb_driver_cq_init(&cq->drv, entries, cq->start);
    if (err)
        return err;
    if (node->srq_count || vb_simsrq_count(node))
        cq->drv.find_srq = vb_simsrq_find;
    uint32_t room = 1;
    while (room < GROWTH * 2 * cq->need)
        room *= 2;
    free(cq->due);
    cq->due = calloc(room, sizeof *cq->due);
    cq->due_mask = room - 1;
    const struct vb_cqc_attr attr = {.pu = cq->unit,
                                     .ring = cq->drv.ring,
                                     .entries = cq->drv.entries,
                                     .dbrec = cq->drv.dbrec,
                                     .start = cq->start};
    return cq->due ? vb_dev_cq_create(node->dev, &attr, &cq->cqn) : -ENOMEM;
}

void vb_simcq_free(struct vb_simcq *cq)
{
    vb_driver_cq_fini(&cq->drv);
    free(cq->due);
}

// ---- in life

static void moderate(struct vb_node *node, struct vb_simcq *cq)
{
    bool off = chance(node, 300000);
    uint32_t count = off ? draw(node, 0, 1) : draw(node, 0, cq->drv.entries + 1);
    uint64_t period_ns = chance(node, 900000) == (count > 1) ? draw(node, 1, PERIOD_MAX_NS) : 0;
    bool right = count <= cq->drv.entries && (count > 1) == (period_ns > 0);
    int err = vb_dev_cq_moderate(node->dev, cq->cqn, count, period_ns);

    if (err != (right ? 0 : -EINVAL))
        vb_world_violate(node->world, "NIC %u: moderating CQ %u by %u and %llu ns returned %d",
                         node->index, cq->cqn, count, (unsigned long long)period_ns, err);
    if (right)
        vb_model_moderated(node, cq, count, period_ns);
    vb_trace_note(node->world, "nic%u moderate cq %u by %u and %llu ns: %d", node->index, cq->cqn,
                  count, (unsigned long long)period_ns, err);
}

// The NIC is at rest: all that was written can be seen, and moved.
static void resize(struct vb_node *node, struct vb_simcq *cq)
{
    uint64_t waiting = cq->written - cq->drv.ci;
    uint32_t entries = draw(node, cq->need, GROWTH * cq->need);
    struct vb_driver_cq other;

    if (cq->broken)
        return;
    vb_node_publish(node, true);
    if (node->world->scen.tight)
        entries = draw(node, 1, chance(node, 500000) ? cq->need : 4); // perhaps fewer than wait
    int err = vb_driver_cq_init(&other, entries, cq->drv.ci);
    if (!err) {
        err = vb_driver_cq_move(&cq->drv, &other);
        bool fits = waiting <= other.entries;
        if (err != (fits ? 0 : -EINVAL))
            vb_world_violate(node->world, "NIC %u: moving %u entries into %u returned %d",
                             node->index, (uint32_t)waiting, other.entries, err);
        if (!err)
            err = vb_dev_cq_resize(node->dev, cq->cqn, other.ring, other.entries);
        if (!err)
            vb_driver_cq_adopt(&cq->drv, &other);
        if (err && fits)
            vb_world_violate(node->world, "NIC %u: resizing CQ %u returned %d", node->index,
                             cq->cqn, err);
        vb_driver_cq_fini(&other);
    }
    vb_cover(node->world->cover, err ? VB_COVER_CQ_NOT_RESIZED : VB_COVER_CQ_RESIZED);
    vb_trace_note(node->world, "nic%u resize   cq %u to %u: %d", node->index, cq->cqn,
                  cq->drv.entries, err);
}

void vb_simcq_act(struct vb_node *node, struct vb_simcq *cq)
{
    const struct vb_scenario *s = &node->world->scen;

    if (chance(node, 150000)) {
        bool solicited_only = chance(node, 400000);
        vb_driver_cq_arm(&cq->drv, solicited_only);
        vb_model_armed(node, cq, solicited_only);
        if (cq->hold_count > 1)
            vb_node_wake(node); // a timer may have been set
    }
    if (s->moderate_ppm && chance(node, s->moderate_ppm))
        moderate(node, cq);
    if (s->resize_ppm && chance(node, s->resize_ppm))
        resize(node, cq);
}

// ---- after an overrun

struct broken {
    struct vb_node *node;
    uint32_t index;
};

static bool needs(const struct vb_ep *ep, const void *object)
{
    const struct broken *b = object;
    return ep->opts.cq[0] == b->index || ep->opts.cq[1] == b->index;
}

static int remake(void *object)
{
    struct broken *b = object;
    struct vb_simcq *cq = &b->node->cq[b->index];
    int err = vb_dev_cq_destroy(b->node->dev, cq->cqn);

    vb_driver_cq_fini(&cq->drv);
    return err ? err : vb_simcq_create(b->node, b->index);
}

void vb_simcq_repair(struct vb_node *node)
{
    for (uint32_t i = 0; i < node->cq_count && !node->world->violated; i++) {
        struct broken b = {node, i};
        const struct vb_rebuild r = {.node = node, .object = &b, .needs = needs, .remake = remake};
        if (!node->cq[i].broken)
            continue;
        int err = vb_rebuild(&r);
        if (err)
            vb_world_violate(node->world, "NIC %u: another completion queue: %d", node->index, err);
    }
}
