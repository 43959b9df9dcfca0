// SPDX-License-Identifier: Apache-2.0
// A NIC of the simulation that is run as applications and hulls run theirs: host/turn.h says what a
// turn is, each unit has its own, and between two of them hosts may do anything.
#include "sim/node.h"

#include "host/turn.h"
#include "sim/model.h"

static uint32_t receive(void *ctx)
{
    struct vb_unit *u = ctx;

    if (vb_node_read_all(u->node))
        vb_node_receive(u->node);
    if (!u->rx_waits)
        return 0;
    u->rx_waits = false;
    vb_pu_feed(u->pu, u->rx, u->rx_count);
    return u->rx_count;
}

static uint32_t poll(void *ctx, uint64_t now_ns)
{
    struct vb_unit *u = ctx;
    struct vb_coverage *cover = u->node->world->cover;

    vb_model_poll_begins(u);
    uint32_t steps = vb_pu_poll(u->pu, now_ns);
    vb_model_poll_ended(u);
    vb_node_handed(u);
    if (vb_pu_wants_tx(u->pu))
        vb_cover(cover, VB_COVER_LIMIT_TX);
    if (vb_pu_wants_tx(u->pu) && steps > 0)
        vb_cover(cover, VB_COVER_TURN_FULL);
    if (vb_pu_has_more(u->pu))
        vb_cover(cover, VB_COVER_TURN_STOPPED);
    return steps;
}

static void send(void *ctx, struct vb_txq *txq, uint64_t now_ns)
{
    struct vb_unit *u = ctx;
    struct vb_node *node = u->node;

    (void)now_ns;
    if (!vb_node_may_send(node, vb_pu_wants_tx(u->pu)) || node->world->violated)
        return;
    vb_model_sending(node);
    node->port->ops->send(node->port, txq);
    if (txq->taken < txq->count)
        vb_cover(node->world->cover, VB_COVER_TURN_KEPT);
}

// Where frames are left, the next turn will see to it that the port gets them.
static void publish(void *ctx)
{
    struct vb_unit *u = ctx;

    vb_pu_publish(u->pu);
    if (u->node->holds && !u->node->world->violated)
        vb_model_published(u->node, u, !vb_pu_is_idle(u->pu));
}

static uint32_t work(void *ctx, uint64_t now_ns);

static struct vb_turn turn_of(struct vb_unit *u)
{
    return (struct vb_turn){.pu = u->pu,
                            .ctx = u,
                            .poll = poll,
                            .send = send,
                            .publish = publish,
                            .work = work,
                            .receive = receive,
                            .once = u->node->world->scen.once};
}

static uint32_t work(void *ctx, uint64_t now_ns)
{
    const struct vb_turn turn = turn_of(ctx);
    return vb_turn_work(&turn, now_ns);
}

static void take_turn(struct vb_unit *u)
{
    struct vb_world *w = u->node->world;
    const struct vb_turn turn = turn_of(u);
    bool idle = vb_pu_is_idle(u->pu), late = vb_pu_deadline(u->pu) <= w->now_ns;
    uint32_t frames = idle ? receive(u) : 0;
    uint32_t steps = vb_turn_run(&turn, w->now_ns, idle, frames);

    // A poll of several shares may end before a timer that is due.
    bool stopped = w->scen.shares && vb_pu_deadline(u->pu) <= w->now_ns;
    u->idle = vb_pu_is_idle(u->pu) && !u->rx_waits && !stopped;
    if (u->idle && vb_pu_txq(u->pu)->count > 0)
        vb_world_violate(w, "NIC %u: unit %u is idle with frames to send", u->node->index,
                         u->index);
    vb_cover(w->cover, VB_COVER_TURN_TAKEN);
    if (late)
        vb_cover(w->cover, VB_COVER_TURN_LATE);
    if (steps > 0 && vb_pu_txq(u->pu)->count > 0)
        vb_cover(w->cover, VB_COVER_TURN_LEFT);
}

// In a healed network a NIC also reads as fast as it works: an idle one takes a turn for frames.
static bool is_behind(const struct vb_node *node)
{
    const struct vb_world *w = node->world;
    return w->phase != VB_PHASE_FAULTS && vb_simnet_waiting(w->net, node->index) > 0;
}

void vb_node_take_turns(struct vb_node *node)
{
    struct vb_world *w = node->world;
    uint32_t most = w->phase == VB_PHASE_FAULTS ? w->scen.units : w->scen.burst_max;
    uint64_t n = vb_prng_range(&w->prng, 1, most);

    vb_node_draw_hold(node);
    do
        take_turn(vb_node_pick(node));
    while (--n > 0 && (!vb_node_is_idle(node) || is_behind(node)) && !w->violated);
    if (w->violated)
        return;
    if (vb_node_is_idle(node))
        vb_node_rest(node);
    else
        vb_node_pause(node);
}
