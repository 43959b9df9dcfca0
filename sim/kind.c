// SPDX-License-Identifier: Apache-2.0
// Both kinds of worlds of NICs, and how two of one kind are compared.
#include "sim/kind.h"

#include "sim/chain_world.h"
#include "sim/digest.h"
#include "sim/world.h"

#include <assert.h>
#include <string.h>

static_assert(VB_SIM_TEXT == sizeof((struct vb_sim_result *)0)->text, "room for the text");
static_assert((int)VB_CHAINS_TEXT == (int)VB_SIM_TEXT, "of both kinds");

void vb_kind_report(const struct vb_worldview *view, struct vb_sim_result *result)
{
    struct vb_digest digest = {result->digest};

    vb_digest_add(&digest, view->digest);
    result->digest = digest.value;
    result->events += view->events;
    result->works += view->works;
    result->time_ns += view->now_ns;
    result->violated = view->violated;
    memcpy(result->text, view->text, sizeof result->text);
}

// ---- plain worlds

#define DIFFER(w, ...) vb_world_violate((w), "the polls differ: " __VA_ARGS__)

static bool same_shares(const struct vb_unit *a, const struct vb_unit *b)
{
    for (uint32_t i = 0; i < a->node->world->scen.shares; i++) {
        struct vb_share_facts fa = {0}, fb = {0};
        int ra = vb_pu_share(a->pu, a->node->share[i], &fa);
        int rb = vb_pu_share(b->pu, b->node->share[i], &fb);
        if (ra != rb || fa.units != fb.units || fa.turns != fb.turns || fa.waits != fb.waits)
            return false;
    }
    return true;
}

static void compare_units(const struct vb_unit *a, struct vb_unit *b)
{
    struct vb_world *w = b->node->world;
    const struct vb_counters *ca = vb_pu_counters(a->pu), *cb = vb_pu_counters(b->pu);
    uint32_t nic = b->node->index;

    if (a->frames.value != b->frames.value)
        DIFFER(w, "NIC %u: unit %u sends other frames", nic, b->index);
#define COMPARE_COUNTER(name)                                                          \
    if (ca->name != cb->name)                                                          \
        DIFFER(w, "NIC %u: unit %u counts %llu in " #name ", not %llu", nic, b->index, \
               (unsigned long long)cb->name, (unsigned long long)ca->name);
    VB_COUNTERS(COMPARE_COUNTER)
#undef COMPARE_COUNTER
    if (vb_pu_deadline(a->pu) != vb_pu_deadline(b->pu))
        DIFFER(w, "NIC %u: unit %u has its next timer at %llu, not %llu", nic, b->index,
               (unsigned long long)vb_pu_deadline(b->pu),
               (unsigned long long)vb_pu_deadline(a->pu));
    if (!same_shares(a, b))
        DIFFER(w, "NIC %u: unit %u serves its shares otherwise", nic, b->index);
    if (a->heard.taken != a->heard.count)
        DIFFER(w, "NIC %u: unit %u polls less often", nic, b->index);
}

// Rings of one size; entries before the one that was compared last were compared.
static void compare_entries(const struct vb_simcq *a, struct vb_simcq *b, struct vb_world *w)
{
    uint64_t from = b->compared;
    uint32_t mask = b->drv.entries - 1;

    if (a->cqn != b->cqn || a->written != b->written || a->drv.entries != b->drv.entries) {
        DIFFER(w, "CQ %u has other entries", b->cqn);
        return;
    }
    if (from < b->start || from > b->written || b->written - from > b->drv.entries)
        from = b->written > b->drv.entries ? b->written - b->drv.entries : b->start;
    for (; from < b->written; from++)
        if (memcmp((const char *)a->drv.ring + (from & mask) * sizeof(struct vb_cqe),
                   (const char *)b->drv.ring + (from & mask) * sizeof(struct vb_cqe),
                   sizeof(struct vb_cqe)) != 0)
            DIFFER(w, "entry %llu of CQ %u", (unsigned long long)from, b->cqn);
    b->compared = b->written;
}

static void compare_nodes(const struct vb_node *a, struct vb_node *b)
{
    for (uint32_t i = 0; i < b->world->scen.units; i++)
        compare_units(&a->unit[i], &b->unit[i]);
    for (uint32_t i = 0; i < b->cq_count; i++)
        compare_entries(&a->cq[i], &b->cq[i], b->world);
    if (a->told.value != b->told.value)
        DIFFER(b->world, "NIC %u tells of other events", b->index);
}

static void compare_contents(const struct vb_node *a, struct vb_node *b)
{
    if (a->mem.size != b->mem.size || memcmp(a->mem.bytes, b->mem.bytes, a->mem.size) != 0)
        DIFFER(b->world, "the memory of NIC %u", b->index);
    for (uint32_t i = 0; i < b->ep_count; i++) {
        const struct vb_qp_counters *ca = vb_dev_qp_counters(a->dev, a->ep[i]->qpn);
        const struct vb_qp_counters *cb = vb_dev_qp_counters(b->dev, b->ep[i]->qpn);
        if (!ca || !cb || memcmp(ca, cb, sizeof *ca) != 0)
            DIFFER(b->world, "the counters of NIC %u QP 0x%06x", b->index, b->ep[i]->qpn);
    }
}

static void compare_plain(void *observed, void *unheard, bool contents)
{
    struct vb_world *a = observed, *b = unheard;

    for (uint32_t i = 0; i < b->scen.nics && !b->violated; i++) {
        compare_nodes(&a->node[i], &b->node[i]);
        if (contents)
            compare_contents(&a->node[i], &b->node[i]);
    }
}

static void *create_plain(const struct vb_scenario *scen, struct vb_coverage *cover, FILE *trace)
{
    return vb_world_create(scen, cover, trace);
}

static bool advance_plain(void *world)
{
    return vb_world_advance(world);
}

static void finish_plain(void *world)
{
    vb_world_finish(world);
}

static void destroy_plain(void *world)
{
    vb_world_destroy(world);
}

static void violate_plain(void *world, const char *text)
{
    vb_world_violate(world, "%s", text);
}

static struct vb_worldview look_plain(const void *world)
{
    const struct vb_world *w = world;

    return (struct vb_worldview){.now_ns = w->now_ns,
                                 .draws = w->prng.state,
                                 .events = w->events,
                                 .works = w->works,
                                 .digest = w->digest.value,
                                 .violated = w->violated,
                                 .text = w->violation};
}

const struct vb_worldkind vb_kind_plain = {.create = create_plain,
                                           .advance = advance_plain,
                                           .finish = finish_plain,
                                           .destroy = destroy_plain,
                                           .look = look_plain,
                                           .violate = violate_plain,
                                           .compare = compare_plain};

// ---- worlds of chain programs

#undef DIFFER
#define DIFFER(w, ...) vb_chainworld_violate((w), "the polls differ: " __VA_ARGS__)

static void compare_pieces(const struct vb_chainnic *a, struct vb_chainnic *b)
{
    for (uint32_t i = 0; i < b->pieces; i++) {
        const struct vb_piece *pa = a->piece[i], *pb = b->piece[i];
        if (pa->len != pb->len || memcmp(pa->at, pb->at, pa->len) != 0)
            DIFFER(b->world, "piece %u of NIC %u's memory", i, b->index);
    }
}

static void compare_chainnics(const struct vb_chainnic *a, struct vb_chainnic *b, bool contents)
{
    struct vb_chainworld *w = b->world;

    if (a->frames.value != b->frames.value)
        DIFFER(w, "NIC %u sends other frames", b->index);
    for (uint32_t i = 0; i < b->units; i++) {
        if (memcmp(vb_pu_counters(a->unit[i].pu), vb_pu_counters(b->unit[i].pu),
                   sizeof(struct vb_counters)) != 0)
            DIFFER(w, "the counters of NIC %u", b->index);
        if (vb_pu_deadline(a->unit[i].pu) != vb_pu_deadline(b->unit[i].pu))
            DIFFER(w, "the timers of NIC %u", b->index);
    }
    if (a->pieces != b->pieces)
        DIFFER(w, "NIC %u has other memory", b->index);
    else if (contents)
        compare_pieces(a, b);
}

static void compare_rings(const void *a, const void *b, uint64_t entries, struct vb_chainworld *w,
                          uint32_t cqn)
{
    if (memcmp(a, b, entries * VB_CQE_BYTES) != 0)
        DIFFER(w, "the entries of CQ %u", cqn);
}

// Completions, in the rings of callers and of programs.
static void compare_completions(const struct vb_chainworld *a, struct vb_chainworld *b)
{
    for (uint32_t i = 0; i < b->callers; i++) {
        const struct vb_caller *ca = &a->caller[i], *cb = &b->caller[i];
        if (ca->made != cb->made || ca->cq.entries != cb->cq.entries)
            DIFFER(b, "caller %u", i);
        else if (cb->made)
            compare_rings(ca->cq.ring, cb->cq.ring, cb->cq.entries, b, cb->cqn);
    }
    for (uint32_t i = 0; i < b->progs; i++) {
        const struct vb_chainprog *pa = a->prog[i], *pb = b->prog[i];
        if (!pa->nic != !pb->nic || pa->cqs != pb->cqs)
            DIFFER(b, "program %u", i);
        for (uint32_t j = 0; j < pb->cqs && pb->nic && !b->violated; j++)
            compare_rings(pa->cq[j].ring, pb->cq[j].ring, pb->image->cq[j].entries, b,
                          pb->cq[j].cqn);
    }
}

static void compare_chains(void *observed, void *unheard, bool contents)
{
    struct vb_chainworld *a = observed, *b = unheard;

    if (a->done != b->done || a->progs != b->progs)
        DIFFER(b, "%u requests answered, not %u", b->done, a->done);
    for (uint32_t i = 0; i < b->nics && !b->violated; i++)
        compare_chainnics(&a->nic[i], &b->nic[i], contents);
    if (contents && !b->violated)
        compare_completions(a, b);
}

static void *create_chains(const struct vb_scenario *scen, struct vb_coverage *cover, FILE *trace)
{
    return vb_chainworld_create(scen, cover, trace);
}

static bool advance_chains(void *world)
{
    return vb_chainworld_advance(world);
}

static void finish_chains(void *world)
{
    vb_chainworld_finish(world);
}

static void destroy_chains(void *world)
{
    vb_chainworld_destroy(world);
}

static void violate_chains(void *world, const char *text)
{
    vb_chainworld_violate(world, "%s", text);
}

static struct vb_worldview look_chains(const void *world)
{
    const struct vb_chainworld *w = world;

    return (struct vb_worldview){.now_ns = w->now_ns,
                                 .draws = w->prng.state,
                                 .events = w->events,
                                 .works = w->works,
                                 .digest = w->digest.value,
                                 .violated = w->violated,
                                 .text = w->violation};
}

const struct vb_worldkind vb_kind_chains = {.create = create_chains,
                                            .advance = advance_chains,
                                            .finish = finish_chains,
                                            .destroy = destroy_chains,
                                            .look = look_chains,
                                            .violate = violate_chains,
                                            .compare = compare_chains};
