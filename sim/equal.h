// SPDX-License-Identifier: Apache-2.0
// A world twice, side by side: with NICs whose polls go step by step under an observer, and with
// NICs whose polls nobody hears, as in production. Both must do the same.
#ifndef VB_SIM_EQUAL_H
#define VB_SIM_EQUAL_H

#include "sim/kind.h"

struct vb_world;

// Runs both to the end, or until they differ, which the second one says. It is the first one's
// twin.
void vb_equal_run(struct vb_world *observed, struct vb_world *unheard);

// Gives one world of eight each of the services that many seeds do without, so that the worlds of
// 40 seeds have all of them.
void vb_equal_shape(struct vb_scenario *scen);
// 0, also when they differ, which result says; -ENOMEM. Adds to the result and to the coverage.
int vb_equal_world(const struct vb_worldkind *kind, const struct vb_scenario *scen, FILE *trace,
                   struct vb_sim_result *result, struct vb_coverage *cover);

#endif
