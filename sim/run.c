// SPDX-License-Identifier: Apache-2.0
// One seed from start to end.
#include "sim/run.h"

#include "sim/world.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

int vb_sim_run(const struct vb_sim_opts *opts, struct vb_sim_result *result,
               struct vb_coverage *cover)
{
    struct vb_scenario scen;

    vb_scenario_draw(&scen, opts->seed, opts->nics, opts->ops);
    struct vb_world *w = vb_world_create(&scen, cover, opts->trace);
    if (!w)
        return -ENOMEM;
    vb_world_run(w);
    *result = (struct vb_sim_result){
        .seed = opts->seed,
        .digest = w->digest.value,
        .events = w->events,
        .works = w->works,
        .time_ns = w->now_ns,
        .nics = scen.nics,
        .violated = w->violated,
    };
    static_assert(sizeof result->text >= sizeof w->violation, "room for the text");
    memcpy(result->text, w->violation, sizeof w->violation);
    vb_world_destroy(w);
    return 0;
}
