// SPDX-License-Identifier: Apache-2.0
// The kinds of worlds of NICs, behind one interface: what runs one, and what runs two side by side.
#ifndef VB_SIM_KIND_H
#define VB_SIM_KIND_H

#include "sim/run.h"
#include "sim/scenario.h"

struct vb_worldview {
    uint64_t now_ns, draws; // the clock, and the state of the generator
    uint64_t events, works, digest;
    bool violated;
    const char *text;
};

struct vb_worldkind {
    // NULL: no memory.
    void *(*create)(const struct vb_scenario *scen, struct vb_coverage *cover, FILE *trace);
    // Whatever comes next. False: there is no more.
    bool (*advance)(void *world);
    void (*finish)(void *world);
    void (*destroy)(void *world);
    struct vb_worldview (*look)(const void *world);
    void (*violate)(void *world, const char *text);
    // Looks for differences, in memory as well if `contents`. They are violations of `b`.
    void (*compare)(void *a, void *b, bool contents);
};

extern const struct vb_worldkind vb_kind_plain, vb_kind_chains;

// Adds what has become of the world.
void vb_kind_report(const struct vb_worldview *view, struct vb_sim_result *result);

#endif
