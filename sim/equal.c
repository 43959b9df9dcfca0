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
// Worlds of chain programs (sim/kind.c) have no model to be told: their frames, counters and timers
// are compared each time, memory and completion queues from time to time.
#include "sim/equal.h"

#include "sim/world.h"

#include <errno.h>
#include <stdio.h>

enum {
    LOOK_EVERY = 512, // so many events: memory is compared
};

// Of the last poll, of which the second world's model was told.
static void forget_steps(struct vb_world *a)
{
    for (uint32_t i = 0; i < a->scen.nics; i++)
        for (uint32_t u = 0; u < a->scen.units; u++)
            a->node[i].unit[u].heard.count = a->node[i].unit[u].heard.taken = 0;
}

static void run_both(const struct vb_worldkind *kind, void *a, void *b)
{
    bool go_on = true;

    for (uint64_t n = 1; go_on && !kind->look(a).violated && !kind->look(b).violated; n++) {
        if (kind == &vb_kind_plain)
            forget_steps(a);
        go_on = kind->advance(a);
        bool as_well = kind->advance(b) == go_on;
        struct vb_worldview va = kind->look(a), vb = kind->look(b);
        if (!as_well || va.violated != vb.violated || va.now_ns != vb.now_ns ||
            va.draws != vb.draws)
            kind->violate(b, "the polls differ: the worlds part");
        kind->compare(a, b, n % LOOK_EVERY == 0 || !go_on);
    }
    kind->finish(a);
    kind->finish(b);
}

void vb_equal_run(struct vb_world *a, struct vb_world *b)
{
    b->twin = a;
    run_both(&vb_kind_plain, a, b);
}

// By the rows that the world has seen.
static void count_services(const struct vb_scenario *scen, const struct vb_coverage *seen,
                           bool plain, uint64_t *compared)
{
    static const struct {
        enum vb_cover_row first, last;
    } rows[VB_COMPARED_BY_ROWS] = {
        [VB_COMPARED_RC] = {VB_COVER_OP_SEND_FIRST, VB_COVER_OP_WRITE_ONLY_IMM},
        [VB_COMPARED_UC] = {VB_COVER_OP_UC_SEND_FIRST, VB_COVER_OP_UC_WRITE_ONLY_IMM},
        [VB_COMPARED_UD] = {VB_COVER_OP_UD_SEND_ONLY, VB_COVER_OP_UD_SEND_ONLY_IMM},
        [VB_COMPARED_XRC] = {VB_COVER_XRC_SEND_FIRST, VB_COVER_XRC_FETCH_ADD},
        [VB_COMPARED_ATOMICS] = {VB_COVER_OP_COMPARE_SWAP, VB_COVER_OP_MASKED_ADD},
        [VB_COMPARED_WINDOWS] = {VB_COVER_WINDOW_BOUND_1, VB_COVER_WINDOW_USED},
        [VB_COMPARED_SRQ] = {VB_COVER_SRQ_TAKEN, VB_COVER_SRQ_UNRELIABLE},
        [VB_COMPARED_DCQCN] = {VB_COVER_CC_CNP_HANDLED, VB_COVER_CC_CNP_HANDLED},
        [VB_COMPARED_CHAINS] = {VB_COVER_CHAIN_HASH_ONE, VB_COVER_CHAIN_SOLO_LOOP},
    };

    for (uint32_t i = 0; i < VB_COMPARED_BY_ROWS; i++) {
        uint64_t used = 0;
        for (uint32_t row = rows[i].first; row <= rows[i].last; row++)
            used += seen->row[row];
        compared[i] += used > 0;
    }
    compared[VB_COMPARED_SHARES] += plain && scen->shares > 1; // one alone changes no poll
    compared[VB_COMPARED_UNITS] += plain && scen->units > 1;
}

void vb_equal_shape(struct vb_scenario *s)
{
    switch (s->seed % 8) {
    case 0:
        s->xrc_ppm = 1000000;
        s->tight = false;
        break;
    case 1: s->shared_ppm = 1000000; break;
    case 2:
        s->shares = s->shares > 1 ? s->shares : 2;
        s->once = true; // as in each world with shares
        break;
    case 3: s->units = s->units > 1 ? s->units : 2; break;
    case 4:
        s->dcqcn = true;
        s->link.mark_ppm = 100000;
        break;
    case 5:
        s->conns += VB_SIM_UNRELIABLE_MAX - s->unreliable;
        s->unreliable = VB_SIM_UNRELIABLE_MAX;
        break;
    default: break;
    }
}

int vb_equal_world(const struct vb_worldkind *kind, const struct vb_scenario *scen, FILE *trace,
                   struct vb_sim_result *result, struct vb_coverage *cover)
{
    struct vb_scenario observed = *scen, unheard = *scen;
    struct vb_coverage seen = {0}, once_more = {0};

    observed.drive = VB_DRIVE_OBSERVED;
    unheard.drive = VB_DRIVE_UNHEARD;
    void *a = kind->create(&observed, &seen, NULL);
    void *b = kind->create(&unheard, &once_more, trace);
    if (a && b) {
        if (kind == &vb_kind_plain)
            vb_equal_run(a, b);
        else
            run_both(kind, a, b);
        struct vb_worldview va = kind->look(a), vb = kind->look(b);
        vb_kind_report(va.violated ? &va : &vb, result);
        count_services(scen, &seen, kind == &vb_kind_plain, seen.compared);
        vb_cover_merge(cover, &seen);
    }
    int err = a && b ? 0 : -ENOMEM;
    if (a)
        kind->destroy(a);
    if (b)
        kind->destroy(b);
    return err;
}
