// SPDX-License-Identifier: Apache-2.0
// Drawing requests of XRC: the shared receive queue that each names, right or wrong.
#include "sim/plan.h"

static uint32_t draw(struct vb_ep *ep, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(&ep->node->world->prng, lo, hi);
}

static bool chance(struct vb_ep *ep, uint32_t ppm)
{
    return vb_prng_chance(&ep->node->world->prng, ppm);
}

static bool goes_over_xrc(enum vb_wr_opcode opcode)
{
    return opcode <= VB_WR_FADD;
}

void vb_plan_limit_to_xrc(struct vb_conn_mix *mix)
{
    for (int i = 0; i < VB_WR_OPCODES; i++)
        if (!goes_over_xrc((enum vb_wr_opcode)i))
            mix->parts[i] = 0;
}

// A queue that does not exist, one of another XRC domain, or one that is not for XRC.
static uint32_t draw_wrong(struct vb_ep *ep)
{
    const struct vb_ep *to = ep->peer;
    const struct vb_simsrq *srqs = to->node->srq;

    switch (draw(ep, 0, 2)) {
    case 0: return chance(ep, 500000) ? 0 : draw(ep, 1000, 0xffffff);
    case 1: return srqs[vb_simsrq_index(VB_SIM_XRCDS + 1 - to->opts.xrcd, draw(ep, 0, 1))].srqn;
    default: return srqs[draw(ep, 0, 1)].srqn;
    }
}

void vb_plan_xrc(struct vb_ep *ep, struct vb_work *work, enum vb_bad *bad)
{
    const struct vb_world *w = ep->node->world;
    const struct vb_ep *to = ep->peer;
    uint32_t domain = to->opts.domain;

    if (w->phase == VB_PHASE_FAULTS && *bad == VB_BAD_NONE && chance(ep, w->scen.bad_ppm)) {
        work->opcode = VB_WR_SEND_INVAL; // whatever it names: a target binds no window
        *bad = VB_BAD_INVAL_KIND;
    } else if (!goes_over_xrc(work->opcode)) {
        work->opcode = VB_WR_SEND;
        *bad = VB_BAD_NONE;
    }
    if (work->opcode == VB_WR_NOP)
        return;
    // What names no memory may use any domain's.
    if (work->opcode == VB_WR_SEND || work->opcode == VB_WR_SEND_IMM)
        domain = draw(ep, 0, VB_SIM_PDS - 1);
    work->srqn = to->node->srq[vb_simsrq_index(to->opts.xrcd, domain)].srqn;
    if (w->phase == VB_PHASE_FAULTS && chance(ep, w->scen.bad_ppm))
        work->srqn = draw_wrong(ep);
}
