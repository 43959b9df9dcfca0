// SPDX-License-Identifier: Apache-2.0
// One seed from start to end.
#include "sim/run.h"

#include "sim/chain_world.h"
#include "sim/cm_world.h"
#include "sim/equal.h"
#include "sim/isolation.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static int run_world(const struct vb_worldkind *kind, const struct vb_scenario *scen, FILE *trace,
                     struct vb_sim_result *result, struct vb_coverage *cover)
{
    void *w = kind->create(scen, cover, trace);

    if (!w)
        return -ENOMEM;
    while (kind->advance(w))
        ;
    kind->finish(w);
    struct vb_worldview view = kind->look(w);
    vb_kind_report(&view, result);
    kind->destroy(w);
    return 0;
}

// A part of the seeds has tenants of one NIC as well.
static int run_fair(uint64_t seed, struct vb_sim_result *result)
{
    struct vb_digest digest = {result->digest};
    uint64_t added = 0, steps = 0;
    int err = vb_fair_run(seed, &added, &steps, result->text);

    vb_digest_add(&digest, added);
    result->digest = digest.value;
    result->events += steps;
    result->violated = result->text[0] != '\0';
    return err;
}

static int run_cm(const struct vb_sim_opts *opts, struct vb_sim_result *result,
                  struct vb_coverage *cover)
{
    struct vb_cmworld *w = vb_cmworld_create(opts->seed, &cover->cm, opts->trace);

    if (!w)
        return -ENOMEM;
    vb_cmworld_run(w);
    *result = (struct vb_sim_result){.seed = opts->seed,
                                     .nics = w->ends,
                                     .digest = w->digest.value,
                                     .events = w->events,
                                     .works = w->pacts,
                                     .time_ns = w->now_ns,
                                     .violated = w->violated};
    static_assert(sizeof result->text >= sizeof w->violation, "room for the text");
    memcpy(result->text, w->violation, sizeof w->violation);
    vb_cmworld_destroy(w);
    return 0;
}

int vb_sim_run(const struct vb_sim_opts *opts, struct vb_sim_result *result,
               struct vb_coverage *cover)
{
    struct vb_scenario scen;
    __typeof__(run_world) *run = opts->equal ? vb_equal_world : run_world;
    bool chains = opts->chains == VB_SIM_CHAINS_ONLY ||
                  (opts->chains == VB_SIM_CHAINS_DRAWN && vb_chainworld_is_drawn(opts->seed));
    int err = 0;

    if (opts->cm)
        return run_cm(opts, result, cover);
    vb_scenario_draw(&scen, opts->seed, opts->nics, opts->ops);
    *result = (struct vb_sim_result){.seed = opts->seed, .nics = scen.nics};
    cover->chains_only = opts->chains == VB_SIM_CHAINS_ONLY;
    if (opts->equal)
        vb_equal_shape(&scen);
    if (opts->chains != VB_SIM_CHAINS_ONLY)
        err = run(&vb_kind_plain, &scen, opts->trace, result, cover);
    if (!err && !result->violated && chains)
        err = run(&vb_kind_chains, &scen, opts->trace, result, cover);
    if (!err && !result->violated && !opts->equal && opts->chains != VB_SIM_CHAINS_ONLY)
        err = run_fair(opts->seed, result);
    return err;
}
