// SPDX-License-Identifier: Apache-2.0
// What production runs against what the model judges.
//
// Both worlds of a seed take the turns of host/turn.h at the same times, and go on side by side:
// each does what comes next, then they are compared. In the one, an observer makes vb_pu_poll() go
// by vb_pu_step(), and the model judges every step as it is made, with the memory it touches. In
// the other nobody observes or listens; its model is told of the first one's steps when a poll is
// over, and judges the frames, memory, events and states that it finds (sim/model_poll.c).
//
// Compared each time:
// - the clock and the state of the generator, so that every draw of network, hosts and schedule was
//   the same;
// - of each unit: all frames it wrote, byte for byte in their order, with addresses and ports; all
//   its counters; its next deadline; what each share was billed, its turns and what it has ahead;
// - of each completion queue: all entries written, byte for byte in their order;
// - of each NIC: all events in their order;
// and from time to time and in the end all memory of all hosts, and the counters of queue pairs.
//
// Not compared is the order of steps that leave no trace outside: a poll sends a request's first
// packet before it fetches the next request, a step by itself fetches first; what is fetched is the
// same. Nor are the contents of rings that nobody was told of.
#include "sim/equal.h"

#include "sim/chain_world.h"
#include "sim/model.h"

#include <errno.h>
#include <string.h>

enum {
    LOOK_EVERY = 512, // so many events: memory is compared
};

#define DIFFER(w, ...) vb_world_violate((w), "the polls differ: " __VA_ARGS__)

// ---- plain worlds

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

static void compare(struct vb_world *a, struct vb_world *b, bool contents)
{
    if (a->violated != b->violated || a->now_ns != b->now_ns || a->prng.state != b->prng.state)
        DIFFER(b, "the worlds part before %llu ns", (unsigned long long)b->now_ns);
    for (uint32_t i = 0; i < b->scen.nics && !b->violated; i++) {
        compare_nodes(&a->node[i], &b->node[i]);
        if (contents)
            compare_contents(&a->node[i], &b->node[i]);
    }
}

static void forget_steps(struct vb_world *a)
{
    for (uint32_t i = 0; i < a->scen.nics; i++)
        for (uint32_t u = 0; u < a->scen.units; u++)
            a->node[i].unit[u].heard.count = a->node[i].unit[u].heard.taken = 0;
}

void vb_equal_run(struct vb_world *a, struct vb_world *b)
{
    bool go_on = true;

    b->twin = a;
    for (uint64_t n = 1; go_on && !a->violated && !b->violated; n++) {
        forget_steps(a);
        go_on = vb_world_advance(a);
        if (vb_world_advance(b) != go_on && !b->violated)
            DIFFER(b, "one world ends before the other");
        compare(a, b, n % LOOK_EVERY == 0 || !go_on);
    }
    vb_world_finish(a);
    vb_world_finish(b);
}

int vb_equal_plain(const struct vb_scenario *scen, FILE *trace, struct vb_sim_result *result,
                   struct vb_coverage *cover)
{
    struct vb_scenario observed = *scen, unheard = *scen;
    struct vb_coverage once_more = {0};
    // A bill counts fetched entries, and an observed poll fetches one sooner: with several shares,
    // whose polls end when so many units are billed, the two end at different steps.
    observed.shares = unheard.shares = 0;
    observed.share_Bps = unheard.share_Bps = 0;
    observed.drive = VB_DRIVE_OBSERVED;
    unheard.drive = VB_DRIVE_UNHEARD;
    struct vb_world *a = vb_world_create(&observed, cover, NULL);
    struct vb_world *b = vb_world_create(&unheard, &once_more, trace);

    if (a && b) {
        vb_equal_run(a, b);
        result->digest = b->digest.value;
        result->events = b->events;
        result->works = b->works;
        result->time_ns = b->now_ns;
        result->violated = a->violated || b->violated;
        memcpy(result->text, a->violated ? a->violation : b->violation, sizeof a->violation);
    }
    int err = a && b ? 0 : -ENOMEM;
    if (a)
        vb_world_destroy(a);
    if (b)
        vb_world_destroy(b);
    return err;
}

// ---- worlds of chain programs

static void compare_pieces(const struct vb_chainnic *a, struct vb_chainnic *b)
{
    for (uint32_t i = 0; i < b->pieces; i++) {
        const struct vb_piece *pa = a->piece[i], *pb = b->piece[i];
        if (pa->len != pb->len || memcmp(pa->at, pb->at, pa->len) != 0)
            vb_chainworld_violate(b->world, "the polls differ: piece %u of NIC %u's memory", i,
                                  b->index);
    }
}

static void compare_chainnics(const struct vb_chainnic *a, struct vb_chainnic *b, bool contents)
{
    struct vb_chainworld *w = b->world;

    if (a->frames.value != b->frames.value)
        vb_chainworld_violate(w, "the polls differ: NIC %u sends other frames", b->index);
    for (uint32_t i = 0; i < b->units; i++) {
        if (memcmp(vb_pu_counters(a->unit[i].pu), vb_pu_counters(b->unit[i].pu),
                   sizeof(struct vb_counters)) != 0)
            vb_chainworld_violate(w, "the polls differ: the counters of NIC %u", b->index);
        if (vb_pu_deadline(a->unit[i].pu) != vb_pu_deadline(b->unit[i].pu))
            vb_chainworld_violate(w, "the polls differ: the timers of NIC %u", b->index);
    }
    if (a->pieces != b->pieces)
        vb_chainworld_violate(w, "the polls differ: NIC %u has other memory", b->index);
    else if (contents)
        compare_pieces(a, b);
}

static void run_both_chains(struct vb_chainworld *a, struct vb_chainworld *b)
{
    bool go_on = true;

    for (uint64_t n = 1; go_on && !a->violated && !b->violated; n++) {
        go_on = vb_chainworld_advance(a);
        bool same = vb_chainworld_advance(b) == go_on && a->now_ns == b->now_ns &&
                    a->prng.state == b->prng.state && a->done == b->done;
        if (!same && !b->violated)
            vb_chainworld_violate(b, "the polls differ: the worlds part");
        for (uint32_t i = 0; i < b->nics && !b->violated; i++)
            compare_chainnics(&a->nic[i], &b->nic[i], n % LOOK_EVERY == 0 || !go_on);
    }
    vb_chainworld_finish(a);
    vb_chainworld_finish(b);
}

int vb_equal_chains(const struct vb_scenario *scen, FILE *trace, struct vb_sim_result *result,
                    struct vb_coverage *cover)
{
    struct vb_scenario observed = *scen, unheard = *scen;
    struct vb_coverage once_more = {0};
    // A bill counts fetched entries, and an observed poll fetches one sooner: with several shares,
    // whose polls end when so many units are billed, the two end at different steps.
    observed.shares = unheard.shares = 0;
    observed.share_Bps = unheard.share_Bps = 0;
    observed.drive = VB_DRIVE_OBSERVED;
    unheard.drive = VB_DRIVE_UNHEARD;
    struct vb_chainworld *a = vb_chainworld_create(&observed, cover, NULL);
    struct vb_chainworld *b = vb_chainworld_create(&unheard, &once_more, trace);

    if (a && b) {
        run_both_chains(a, b);
        result->events += b->events;
        result->works += b->works;
        result->time_ns += b->now_ns;
        result->violated = a->violated || b->violated;
        memcpy(result->text, a->violated ? a->violation : b->violation, sizeof a->violation);
    }
    int err = a && b ? 0 : -ENOMEM;
    if (a)
        vb_chainworld_destroy(a);
    if (b)
        vb_chainworld_destroy(b);
    return err;
}
