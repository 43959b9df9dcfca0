// SPDX-License-Identifier: Apache-2.0
// Random programs that run by themselves beside those that are called, and their reference.
#include "sim/chain_world.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

int vb_solo_load(struct vb_chainworld *w)
{
    struct vb_solo *solo = &w->solo[w->solos];
    struct vb_simflow_tally tally = {.next_width = (uint32_t)vb_prng_next(&w->prng) % 64};
    struct vb_simflow *flow = calloc(1, sizeof *flow);
    char error[VB_IMAGE_TEXT] = "";

    if (!flow)
        return -1;
    struct vb_image *image = vb_simflow_make(flow, vb_prng_next(&w->prng), &tally, error);
    if (!image) {
        vb_chainworld_violate(w, "a random program cannot be built: %s", error);
        free(flow);
        return -1;
    }
    for (uint32_t i = 0; i < VB_SIMFLOW_VARS; i++) {
        solo->id[i] = flow->v[i].id;
        solo->var[i] = flow->var[flow->v[i].id - 1];
    }
    memcpy(solo->memory, flow->memory, sizeof solo->memory);
    free(flow);
    const struct vb_chainload load = {.owner = ++w->owners,
                                      .fetch_depth = vb_chainprog_draw_depth(w),
                                      .start = vb_chainprog_draw_start(w, image)};
    solo->loops = tally.loops > 0;
    solo->prog = vb_chainprog_load(&w->nic[vb_chainworld_draw(w, w->nics)], &load, image);
    if (!solo->prog)
        return -1;
    w->solos++;
    vb_chainprog_open(solo->prog);
    return 0;
}

static void check(struct vb_chainworld *w, const struct vb_solo *solo)
{
    const struct vb_chainprog *p = solo->prog;
    const uint8_t *vars = p->data[vb_image_find_region(p->image, "W_vars")].at;
    const uint8_t *memory = p->data[vb_image_find_region(p->image, "memory")].at;

    for (uint32_t i = 0; i < VB_SIMFLOW_VARS; i++) {
        uint64_t got = vb_get_be64(vars + (size_t)(solo->id[i] - 1) * VB_FLOW_VAR_BYTES);
        if (got != solo->var[i])
            vb_chainworld_violate(w, "owner %u: variable %u is %llx, not %llx", p->opts.owner, i,
                                  (unsigned long long)got, (unsigned long long)solo->var[i]);
    }
    if (memcmp(memory, solo->memory, sizeof solo->memory) != 0)
        vb_chainworld_violate(w, "owner %u: its memory is not what the reference says",
                              p->opts.owner);
    vb_cover(w->cover, solo->loops ? VB_COVER_CHAIN_SOLO_LOOP : VB_COVER_CHAIN_SOLO);
}

void vb_solo_check(struct vb_chainworld *w)
{
    for (uint32_t i = 0; i < w->solos && !w->violated; i++)
        check(w, &w->solo[i]);
}
