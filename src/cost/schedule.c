// SPDX-License-Identifier: Apache-2.0
// The order in which entries get their turns: by the time at which they could begin, not by the
// order in which the machine happened to execute those that do not need each other.
#include "cost/model.h"

static bool is_done(const struct vb_cost *c, uint32_t n)
{
    return n == VB_COST_NOBODY || c->charge[n].done;
}

// The head of the lane, if all whom it needs have their times.
static uint32_t head_of(struct vb_cost *c, const struct vb_cost_lane *lane)
{
    uint32_t n = lane->head;

    if (n == VB_COST_NOBODY || c->charge[n].ready)
        return n;
    if (!is_done(c, c->charge[n].opener) || !is_done(c, c->charge[n].producer))
        return VB_COST_NOBODY;
    vb_cost_prepare(c, n);
    return n;
}

static void take_earlier(struct vb_cost *c, struct vb_cost_lane *lane, struct vb_cost_lane **best)
{
    uint32_t n = head_of(c, lane);

    if (n != VB_COST_NOBODY &&
        (!*best || c->charge[n].ready_ps < c->charge[(*best)->head].ready_ps))
        *best = lane;
}

void vb_cost_schedule(struct vb_cost *c)
{
    for (;;) {
        struct vb_cost_lane *best = NULL;
        for (uint32_t i = 0; i < c->queues; i++) {
            take_earlier(c, &c->queue[i].messages, &best);
            take_earlier(c, &c->queue[i].entries, &best);
        }
        if (!best)
            return;
        vb_cost_charge(c, best->head);
        best->head = c->charge[best->head].follower;
    }
}
