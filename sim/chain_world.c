// SPDX-License-Identifier: Apache-2.0
// The clock of a world of chain programs: faults and trouble until most requests are answered, then
// healing, in which the rest must be.
#include "sim/chain_world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum {
    EVENTS_MAX = 4000000,
    REQUESTS_MIN = 12,
    REQUESTS_MAX = 400,
    OPS_PER_REQUEST = 50, // of the other world
    CUT_ONE_WAY_IN = 4,
    TROUBLES = 10,
    FAILED_NS = 50000,
};

#define FAULTS_LIMIT_NS 400000000ull // of virtual time
#define HEAL_LIMIT_NS   60000000000ull

bool vb_chainworld_is_drawn(uint64_t seed)
{
    struct vb_prng prng = {seed * 0xa0761d6478bd642fu + 5};
    return vb_prng_below(&prng, 2) == 0;
}

void vb_chainworld_violate(struct vb_chainworld *w, const char *format, ...)
{
    va_list args;

    if (w->violated)
        return;
    w->violated = true;
    va_start(args, format);
    int at = snprintf(w->violation, sizeof w->violation, "chains: ");
    vsnprintf(w->violation + at, sizeof w->violation - (size_t)at, format, args);
    va_end(args);
    vb_chainworld_note(w, "VIOLATION %s", w->violation);
}

void vb_chainworld_note(struct vb_chainworld *w, const char *format, ...)
{
    va_list args;

    if (!w->trace)
        return;
    fprintf(w->trace, "%8" PRIu64 " %12" PRIu64 " chains ", w->events, w->now_ns);
    va_start(args, format);
    vfprintf(w->trace, format, args);
    va_end(args);
    fputc('\n', w->trace);
}

// ---- creation

static void shape_links(struct vb_chainworld *w)
{
    for (uint32_t a = 0; a < w->nics; a++) {
        for (uint32_t b = 0; b < w->nics; b++) {
            struct vb_simnet_link link;
            vb_scenario_link(&w->scen, &w->prng, &link);
            vb_simnet_shape(w->net, a, b, &link);
            vb_chainfate_shape(w, &link);
        }
    }
}

static void share_requests(struct vb_chainworld *w)
{
    uint32_t requests = w->scen.ops / OPS_PER_REQUEST;

    requests = requests < REQUESTS_MIN ? REQUESTS_MIN : requests;
    requests = requests > REQUESTS_MAX ? REQUESTS_MAX : requests;
    for (uint32_t i = 0; i < w->callers; i++) {
        w->caller[i].quota = requests / w->callers + 1;
        w->quota += w->caller[i].quota;
    }
}

static int build(struct vb_chainworld *w)
{
    int err = 0;

    for (uint32_t i = 0; i < w->nics && !err; i++)
        err = vb_chainnic_create(&w->nic[i], w, i);
    for (uint32_t i = 0; i < w->servers && !err; i++)
        err = vb_chainstore_create(&w->nic[i]);
    for (uint32_t i = 0; i < w->callers && !err; i++)
        vb_caller_prepare(&w->caller[i], w, i);
    share_requests(w);
    return err;
}

struct vb_chainworld *vb_chainworld_create(const struct vb_scenario *scen,
                                           struct vb_coverage *cover, FILE *trace)
{
    struct vb_chainworld *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->scen = *scen;
    w->prng.state = scen->seed * 0xe7037ed1a0b428dbu + 9;
    w->cover = cover;
    w->trace = trace;
    w->net = vb_simnet_create(vb_prng_next(&w->prng));
    w->servers = 1 + vb_chainworld_draw(w, 2);
    w->nics = w->servers + 1 + vb_chainworld_draw(w, VB_CHAINS_NICS - 2);
    w->callers = 1 + vb_chainworld_draw(w, VB_CHAINS_CALLERS);
    w->trouble_ppm = vb_chainworld_draw(w, 30000);
    w->troubles = vb_chainworld_draw(w, 3) ? vb_chainworld_draw(w, TROUBLES) : 0;
    if (!w->net || build(w) != 0) {
        vb_chainworld_destroy(w);
        return NULL;
    }
    shape_links(w);
    vb_simnet_watch(w->net, vb_chainfate_note, w);
    w->sent_ns = w->clear_ns = UINT64_MAX;
    w->next_cut_ns = scen->cut_every_ns ? scen->cut_every_ns : UINT64_MAX;
    return w;
}

void vb_chainworld_destroy(struct vb_chainworld *w)
{
    for (uint32_t i = 0; i < w->progs; i++) {
        if (w->prog[i]->nic)
            vb_chainprog_unload(w->prog[i]);
        free(w->prog[i]);
    }
    for (uint32_t i = 0; i < w->nics; i++)
        vb_chainnic_destroy(&w->nic[i]);
    for (uint32_t i = 0; i < w->callers; i++)
        vb_caller_destroy(&w->caller[i]);
    vb_simnet_destroy(w->net);
    free(w);
}

// ---- phases

static void cut_somewhere(struct vb_chainworld *w)
{
    uint32_t a = vb_chainworld_draw(w, w->nics), b = vb_chainworld_draw(w, w->nics);
    uint64_t until = w->now_ns + vb_prng_below(&w->prng, w->scen.cut_max_ns + 1);

    vb_simnet_cut(w->net, a, b, until);
    if (vb_chainworld_draw(w, CUT_ONE_WAY_IN))
        vb_simnet_cut(w->net, b, a, until);
    vb_chainworld_note(w, "nic%u and nic%u are parted until %" PRIu64, a, b, until);
    w->next_cut_ns = w->now_ns + vb_prng_range(&w->prng, 1, 2 * w->scen.cut_every_ns);
}

static void heal(struct vb_chainworld *w)
{
    vb_chainworld_note(w, "the network heals");
    w->healed = true;
    w->heal_ns = w->now_ns;
    w->next_cut_ns = UINT64_MAX;
    vb_simnet_heal(w->net);
    vb_scenario_heal(&w->scen);
}

// Those that sent nonsense or whose program was stopped connect again before.
static bool is_done(const struct vb_chainworld *w)
{
    for (uint32_t i = 0; i < w->callers; i++) {
        const struct vb_caller *c = &w->caller[i];
        if (c->done < c->quota || c->hostile || (c->prog && c->prog->stopped))
            return false;
    }
    return w->healed;
}

static void report_stuck(struct vb_chainworld *w)
{
    for (uint32_t i = 0; i < w->callers; i++) {
        const struct vb_caller *c = &w->caller[i];
        if (c->done < c->quota)
            vb_chainworld_violate(w,
                                  "caller %u (kind %d): %" PRIu64 " of %" PRIu64
                                  " requests answered long after the network healed",
                                  i, (int)c->kind, c->answered, c->asked);
    }
    vb_chainworld_violate(w, "no rest long after the network healed");
}

static void change_phase(struct vb_chainworld *w)
{
    if (!w->healed && (w->done >= w->quota - w->quota / 5 || w->now_ns > FAULTS_LIMIT_NS))
        heal(w);
    if (w->healed && w->now_ns > w->heal_ns + HEAL_LIMIT_NS)
        report_stuck(w);
    if (w->events > EVENTS_MAX)
        vb_chainworld_violate(w, "no end after %" PRIu64 " events, %u of %u requests answered",
                              w->events, w->done, w->quota);
}

// ---- the clock

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_event(const struct vb_chainworld *w, bool callers)
{
    uint64_t at = earlier(vb_simnet_next(w->net), earlier(w->next_cut_ns, w->next_solo_ns));

    for (uint32_t i = 0; i < w->nics; i++)
        at = earlier(at, w->nic[i].run_at_ns);
    for (uint32_t i = 0; i < w->callers && callers; i++)
        at = earlier(at, w->caller[i].act_at_ns);
    for (uint32_t i = 0; i < w->progs; i++)
        at = earlier(at, w->prog[i]->goes_at_ns);
    return at > w->now_ns ? at : w->now_ns;
}

// What is left of a caller goes in time, at the latest soon after it has failed: a program whose
// caller's queue flushes goes round and round.
static void take_down(struct vb_chainworld *w, struct vb_chainprog *p)
{
    if (p->goes_at_ns == UINT64_MAX)
        return;
    if (p->goes_at_ns > w->now_ns + FAILED_NS && vb_chainprog_failed(p))
        p->goes_at_ns = w->now_ns + vb_chainworld_draw(w, FAILED_NS);
    if (p->goes_at_ns <= w->now_ns)
        vb_chainprog_unload(p);
}

static void run_due(struct vb_chainworld *w, bool callers)
{
    vb_simnet_advance(w->net, w->now_ns);
    for (uint32_t i = 0; i < w->nics; i++)
        if (vb_simnet_waiting(w->net, i) > 0)
            vb_chainnic_wake(&w->nic[i]);
    for (uint32_t i = 0; i < w->nics && !w->violated; i++)
        if (w->nic[i].run_at_ns <= w->now_ns)
            vb_chainnic_run(&w->nic[i]);
    for (uint32_t i = 0; i < w->callers && callers && !w->violated; i++)
        if (w->caller[i].act_at_ns <= w->now_ns)
            vb_caller_act(&w->caller[i]);
    for (uint32_t i = 0; i < w->progs && !w->violated; i++)
        take_down(w, w->prog[i]);
    if (w->next_cut_ns <= w->now_ns)
        cut_somewhere(w);
    if (w->next_solo_ns <= w->now_ns) {
        if (vb_solo_load(w) != 0)
            vb_chainworld_violate(w, "no memory for a random program");
        w->next_solo_ns = w->solos < VB_CHAINS_SOLOS && vb_chainworld_draw(w, 3)
                              ? w->now_ns + vb_prng_below(&w->prng, 400000)
                              : UINT64_MAX;
    }
}

// ---- the end

static bool is_quiet(struct vb_chainworld *w)
{
    for (uint32_t i = 0; i < w->nics; i++)
        if (vb_simnet_waiting(w->net, i) > 0 || !vb_chainnic_rests(&w->nic[i]))
            return false;
    return vb_simnet_in_flight(w->net) == 0;
}

// What still moved has come to rest, and no more answers come.
static void settle(struct vb_chainworld *w)
{
    for (uint32_t i = 0; i < w->callers && !w->violated; i++)
        if (w->caller[i].prog)
            vb_caller_settle(&w->caller[i]);
    if (!w->violated)
        vb_solo_check(w);
    for (uint32_t i = 0; i < w->servers && !w->violated; i++)
        vb_chainstore_check(&w->nic[i]);
}

// Whatever is left goes, and its guards are looked at.
static void dismantle(struct vb_chainworld *w)
{
    for (uint32_t i = 0; i < w->callers && !w->violated; i++)
        if (w->caller[i].prog)
            vb_caller_leave(&w->caller[i]);
    for (uint32_t i = 0; i < w->progs && !w->violated; i++)
        if (w->prog[i]->nic)
            vb_chainprog_unload(w->prog[i]);
    for (uint32_t i = 0; i < w->nics && !w->violated; i++)
        vb_piece_destroy_all(&w->nic[i]);
}

bool vb_chainworld_advance(struct vb_chainworld *w)
{
    w->settling |= is_done(w);
    if (w->violated || (w->settling && is_quiet(w)))
        return false;
    w->now_ns = next_event(w, !w->settling);
    run_due(w, !w->settling);
    change_phase(w);
    vb_chainfate_advance(w);
    return true;
}

void vb_chainworld_finish(struct vb_chainworld *w)
{
    if (!w->violated)
        settle(w);
    if (!w->violated)
        dismantle(w);
}

void vb_chainworld_run(struct vb_chainworld *w)
{
    while (vb_chainworld_advance(w))
        ;
    vb_chainworld_finish(w);
}
