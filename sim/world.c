// SPDX-License-Identifier: Apache-2.0
// The world's clock: whatever comes first happens first. Faults while the work is posted, then
// healing, in which all of it must end, then the end, in which the last receives are flushed.
#include "sim/world.h"

#include "sim/connection.h"
#include "sim/forge.h"
#include "sim/model.h"
#include "sim/script.h"
#include "sim/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum {
    EVENTS_BASE = 2000000,
    EVENTS_PER_OP = 2000,
};

#define HEAL_LIMIT_NS 60000000000ull

void vb_world_violate(struct vb_world *w, const char *format, ...)
{
    va_list args;

    if (w->violated)
        return;
    w->violated = true;
    va_start(args, format);
    vsnprintf(w->violation, sizeof w->violation, format, args);
    va_end(args);
    vb_trace_note(w, "VIOLATION %s", w->violation);
}

// ---- creation

static void shape_links(struct vb_world *w)
{
    for (uint32_t a = 0; a < w->scen.nics; a++) {
        for (uint32_t b = 0; b < w->scen.nics; b++) {
            struct vb_simnet_link link;
            vb_scenario_link(&w->scen, &w->prng, &link);
            vb_simnet_shape(w->net, a, b, &link);
        }
    }
}

static int build(struct vb_world *w)
{
    int err = 0;

    for (uint32_t i = 0; i < w->scen.conns && !err; i++)
        err = vb_conn_prepare(&w->conn[i], w, i);
    for (uint32_t i = 0; i < w->scen.nics && !err; i++)
        err = vb_node_create(&w->node[i], w, i);
    return err;
}

struct vb_world *vb_world_create(const struct vb_scenario *scen, struct vb_coverage *cover,
                                 FILE *trace)
{
    struct vb_world *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->scen = *scen;
    w->prng.state = scen->seed;
    w->cover = cover;
    w->trace = trace;
    w->net = vb_simnet_create(vb_prng_next(&w->prng));
    w->conn = calloc(scen->conns, sizeof *w->conn);
    if (!w->net || !w->conn || build(w) != 0) {
        vb_world_destroy(w);
        return NULL;
    }
    shape_links(w);
    vb_simnet_watch(w->net, vb_model_frame_fate, w);
    for (uint32_t i = 0; i < scen->nics; i++)
        w->node[i].act_at_ns = vb_prng_below(&w->prng, 1000);
    w->next_cut_ns = scen->cut_every_ns ? scen->cut_every_ns : UINT64_MAX;
    w->next_forge_ns = scen->forge_every_ns ? scen->forge_every_ns : UINT64_MAX;
    return w;
}

void vb_world_destroy(struct vb_world *w)
{
    for (uint32_t i = 0; i < w->scen.nics; i++)
        vb_node_destroy(&w->node[i]);
    for (uint32_t i = 0; w->conn && i < w->scen.conns; i++)
        vb_conn_destroy(&w->conn[i]);
    vb_simnet_destroy(w->net);
    vb_sent_fini(&w->sent);
    free(w->conn);
    free(w);
}

// ---- faults

static void cut_somewhere(struct vb_world *w)
{
    uint32_t a = (uint32_t)vb_prng_below(&w->prng, w->scen.nics);
    uint32_t b = (uint32_t)vb_prng_below(&w->prng, w->scen.nics);
    uint64_t until = w->now_ns + vb_prng_below(&w->prng, w->scen.cut_max_ns + 1);

    vb_simnet_cut(w->net, a, b, until);
    if (vb_prng_below(&w->prng, 4))
        vb_simnet_cut(w->net, b, a, until);
    vb_trace_note(w, "nic%u and nic%u are parted until %" PRIu64, a, b, until);
    w->next_cut_ns = w->now_ns + vb_prng_range(&w->prng, 1, 2 * w->scen.cut_every_ns);
}

static void forge_something(struct vb_world *w)
{
    vb_forge(w);
    w->next_forge_ns = w->now_ns + vb_prng_range(&w->prng, 1, 2 * w->scen.forge_every_ns);
}

// ---- phases

static bool is_quiet(const struct vb_world *w)
{
    for (uint32_t i = 0; i < w->scen.conns; i++) {
        const struct vb_conn *c = &w->conn[i];
        if (c->state != VB_CONN_UP)
            return false;
        for (int side = 0; side < 2; side++)
            if (c->ep[side].ask.polled != c->ep[side].ask.posted)
                return false;
    }
    for (uint32_t i = 0; i < w->scen.nics; i++)
        if (vb_simnet_waiting(w->net, i) > 0 || vb_node_has_frames(&w->node[i]) ||
            vb_node_has_frames_to_send(&w->node[i]))
            return false;
    return vb_simnet_in_flight(w->net) == 0;
}

static bool is_drained(const struct vb_world *w)
{
    for (uint32_t i = 0; i < w->scen.conns; i++)
        for (int side = 0; side < 2; side++)
            if (!vb_ep_is_drained(&w->conn[i].ep[side]))
                return false;
    return true;
}

static void heal(struct vb_world *w)
{
    vb_trace_note(w, "the network heals");
    w->phase = VB_PHASE_HEAL;
    w->heal_ns = w->now_ns;
    w->next_cut_ns = w->next_forge_ns = UINT64_MAX;
    vb_simnet_heal(w->net);
    vb_sent_heal(&w->sent);
    vb_scenario_heal(&w->scen);
    for (uint32_t i = 0; i < w->scen.conns; i++)
        w->conn[i].ep[0].starved_until_ns = w->conn[i].ep[1].starved_until_ns = 0;
    for (uint32_t i = 0; i < w->scen.nics; i++)
        for (uint32_t s = 0; s < w->node[i].srq_count; s++)
            w->node[i].srq[s].starved_until_ns = 0;
}

// All queue pairs fail, so that the receives that are left must come back.
static void begin_end(struct vb_world *w)
{
    w->phase = VB_PHASE_END;
    w->heal_ns = w->now_ns;
    vb_model_judge_book(w);
    for (uint32_t i = 0; i < w->scen.conns; i++) {
        struct vb_conn *c = &w->conn[i];
        for (int side = 0; side < 2; side++)
            vb_conn_modify(&c->ep[side], VB_QPS_ERR);
        c->state = VB_CONN_DRAIN;
        c->control_at_ns = UINT64_MAX;
    }
}

static void report_stuck(struct vb_world *w)
{
    for (uint32_t i = 0; i < w->scen.conns; i++) {
        for (int side = 0; side < 2; side++) {
            struct vb_ep *ep = &w->conn[i].ep[side];
            if (w->conn[i].state != VB_CONN_UP || ep->ask.polled != ep->ask.posted ||
                w->phase == VB_PHASE_END)
                vb_model_violate(ep,
                                 "not done long after the network healed: %" PRIu64 " of %" PRIu64
                                 " requests polled, %" PRIu64 " of %" PRIu64
                                 " receives, state %s, connection state %d",
                                 ep->ask.polled, ep->ask.posted, ep->answer.polled,
                                 ep->answer.posted, vb_qp_state_name(ep->state),
                                 (int)w->conn[i].state);
        }
    }
    vb_world_violate(w, "frames are still under way long after the network healed");
}

// True when the run is over.
static bool change_phase(struct vb_world *w)
{
    if (w->phase == VB_PHASE_FAULTS) {
        if (w->works >= w->scen.ops)
            heal(w);
    } else if (w->phase == VB_PHASE_HEAL) {
        if (is_quiet(w))
            begin_end(w);
    } else if (is_drained(w)) {
        return true;
    }
    if (w->phase != VB_PHASE_FAULTS && w->now_ns > w->heal_ns + HEAL_LIMIT_NS)
        report_stuck(w);
    if (w->events > EVENTS_BASE + (uint64_t)EVENTS_PER_OP * w->scen.ops)
        vb_world_violate(w, "no end after %" PRIu64 " events, in phase %d", w->events,
                         (int)w->phase);
    return false;
}

// ---- the clock

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_event(const struct vb_world *w)
{
    uint64_t at = earlier(vb_simnet_next(w->net), earlier(w->next_cut_ns, w->next_forge_ns));

    for (uint32_t i = 0; i < w->scen.nics; i++)
        at = earlier(at, earlier(w->node[i].run_at_ns, w->node[i].act_at_ns));
    for (uint32_t i = 0; i < w->scen.conns; i++)
        at = earlier(at, w->conn[i].control_at_ns);
    return at > w->now_ns ? at : w->now_ns;
}

static void wake_receivers(struct vb_world *w)
{
    for (uint32_t i = 0; i < w->scen.nics; i++)
        if (vb_simnet_waiting(w->net, i) > 0)
            vb_node_wake(&w->node[i]);
}

static void run_due(struct vb_world *w)
{
    for (uint32_t i = 0; i < w->scen.nics && !w->violated; i++) {
        if (w->node[i].run_at_ns <= w->now_ns)
            vb_node_run(&w->node[i]);
        if (!w->violated && w->node[i].act_at_ns <= w->now_ns)
            vb_script_act(&w->node[i]);
    }
    for (uint32_t i = 0; i < w->scen.conns && !w->violated; i++)
        if (w->conn[i].control_at_ns <= w->now_ns)
            vb_conn_control(&w->conn[i]);
    if (w->next_cut_ns <= w->now_ns)
        cut_somewhere(w);
    if (w->next_forge_ns <= w->now_ns)
        forge_something(w);
}

// ---- the end

static void cover_network(struct vb_world *w)
{
    const struct vb_simnet_stats *s = vb_simnet_stats(w->net);
    uint64_t *row = w->cover->row;

    row[VB_COVER_NET_LOST] += s->lost;
    row[VB_COVER_NET_DUPLICATED] += s->duplicated;
    row[VB_COVER_NET_REORDERED] += s->reordered;
    row[VB_COVER_NET_CORRUPTED] += s->corrupted;
    row[VB_COVER_NET_TAIL_DROPPED] += s->tail_dropped;
    row[VB_COVER_NET_CUT] += s->cut;
    row[VB_COVER_ICRC_EXACT] += s->delivered;
    for (uint32_t i = 0; i < w->scen.nics; i++) {
        row[VB_COVER_ICRC_BAD] += w->node[i].port->stats.rx_bad_icrc;
        row[VB_COVER_ICRC_SOLVED] += w->node[i].port->stats.rx_solved_icrc;
        row[VB_COVER_ICRC_EXACT] -= w->node[i].port->stats.rx_solved_icrc;
        for (uint32_t c = 0; c < w->node[i].cq_count; c++)
            row[VB_COVER_WORK_SHARED_CQ] += w->node[i].cq[c].users > 1;
    }
    row[VB_COVER_WORK_IPV6] += w->scen.ipv6;
}

// Objects in use cannot go; once free they must.
static void dismantle(struct vb_world *w)
{
    for (uint32_t i = 0; i < w->scen.nics; i++) {
        struct vb_node *node = &w->node[i];
        int err = 0;
        if (node->ep_count &&
            vb_dev_cq_destroy(node->dev, node->cq[node->ep[0]->opts.cq[0]].cqn) == 0)
            vb_world_violate(w, "NIC %u gave up a completion queue in use", i);
        for (uint32_t e = 0; e < node->ep_count && !err; e++)
            err = vb_dev_qp_destroy(node->dev, node->ep[e]->qpn);
        if (!err)
            err = vb_simsrq_destroy_all(node);
        for (uint32_t c = 0; c < node->cq_count && !err; c++)
            err = vb_dev_cq_destroy(node->dev, node->cq[c].cqn);
        for (uint32_t v = 0; v < node->mem.window_count && !err; v++) {
            err = vb_dev_mkey_destroy(node->dev, node->mem.window[v].key);
            node->mem.window[v].bound = false;
        }
        for (uint32_t r = 0; r < node->mem.region_count && !err; r++)
            err = vb_hostmem_deregister(&node->mem, node->dev, &node->mem.region[r]);
        for (uint32_t d = 0; d < VB_SIM_PDS && !err; d++)
            err = vb_dev_pd_destroy(node->dev, node->pd[d]);
        if (err)
            vb_world_violate(w, "NIC %u would not give up an object: %d", i, err);
    }
}

bool vb_world_advance(struct vb_world *w)
{
    if (w->violated || change_phase(w))
        return false;
    w->now_ns = next_event(w);
    vb_simnet_advance(w->net, w->now_ns);
    wake_receivers(w);
    run_due(w);
    return true;
}

void vb_world_finish(struct vb_world *w)
{
    if (!w->violated)
        vb_model_finish(w);
    cover_network(w);
    if (!w->violated)
        dismantle(w);
}

void vb_world_run(struct vb_world *w)
{
    while (vb_world_advance(w))
        ;
    vb_world_finish(w);
}
