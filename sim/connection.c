// SPDX-License-Identifier: Apache-2.0
// Connections: drawing them, and their life from RESET to RTS to ERR and round again.
#include "sim/connection.h"

#include "sim/model.h"
#include "sim/plan.h"
#include "sim/script.h"
#include "sim/trace.h"
#include "sim/unreliable.h"
#include "wire/roce.h"

#include <errno.h>
#include <string.h>

static uint64_t draw(struct vb_conn *conn, uint64_t lo, uint64_t hi)
{
    return vb_prng_range(&conn->world->prng, lo, hi);
}

static bool chance(struct vb_conn *conn, uint32_t ppm)
{
    return vb_prng_chance(&conn->world->prng, ppm);
}

// ---- drawing

static uint64_t near_wrap_16(struct vb_conn *conn)
{
    return chance(conn, 500000) ? draw(conn, 1, 5) * 65536 - draw(conn, 0, 300)
                                : draw(conn, 0, 999);
}

static void draw_endpoint(struct vb_conn *conn, struct vb_ep_opts *o, uint32_t mtu)
{
    bool big = conn->world->scen.big;
    uint32_t room = (uint32_t)(chance(conn, 250000) ? draw(conn, 0, 256)
                                                    : mtu * draw(conn, 1, 3) + draw(conn, 0, 64));
    if (big && chance(conn, 300000))
        room = 70000;
    uint32_t lists = chance(conn, 300000);
    *o = (struct vb_ep_opts){
        .domain = (uint32_t)draw(conn, 0, VB_SIM_PDS - 1),
        .cq = {(uint32_t)draw(conn, 0, conn->world->scen.cqs - 1),
               (uint32_t)draw(conn, 0, conn->world->scen.cqs - 1)},
        .send_depth = 1u << draw(conn, 0, 6),
        .recv_depth = 1u << draw(conn, 0, 6),
        .send_sge = lists ? VB_MAX_SGE : (uint32_t)draw(conn, 1, 4),
        .recv_sge = lists ? VB_MAX_SGE : (uint32_t)draw(conn, 1, 4),
        .inline_bytes = chance(conn, 500000) ? (uint32_t)draw(conn, 1, VB_SIM_INLINE_MAX) : 0,
        .sq_start = near_wrap_16(conn),
        .rq_start = near_wrap_16(conn),
        .local_bytes = (uint32_t)draw(conn, 5 * mtu + 1024, 9 * mtu + 4096) + (big ? 200000 : 0),
        .recv_room = room,
        .recv_bytes = (room + 512) * (uint32_t)draw(conn, 2, room > 16384 ? 3 : 12),
    };
}

static void draw_link(struct vb_conn *conn, uint32_t mtu)
{
    bool tight = chance(conn, 200000);

    for (int side = 0; side < 2; side++) {
        conn->ep[side].link = (struct vb_ep_link){
            .access = chance(conn, 650000)
                          ? VB_ACCESS_REMOTE
                          : (uint32_t)vb_prng_next(&conn->world->prng) & VB_ACCESS_REMOTE,
            .mtu = mtu,
            .timeout = (uint8_t)(tight ? draw(conn, 5, 7) : draw(conn, 8, 11)),
            .retry_cnt = (uint8_t)(chance(conn, 50000) ? draw(conn, 0, 2) : draw(conn, 3, 7)),
            .rnr_retry = (uint8_t)draw(conn, 0, VB_RETRY_INFINITE),
            .min_rnr_timer = (uint8_t)draw(conn, 1, chance(conn, 100000) ? 20 : 12),
            .max_dest_rd_atomic = (uint8_t)draw(conn, 1, VB_RD_ATOMIC_MAX),
            .src_port = (uint16_t)draw(conn, 49152, 65535),
        };
        if (chance(conn, 500000))
            conn->ep[side].link.rnr_retry = VB_RETRY_INFINITE;
    }
    for (int side = 0; side < 2; side++)
        conn->ep[side].link.max_rd_atomic =
            (uint8_t)draw(conn, 1, conn->ep[!side].link.max_dest_rd_atomic);
    // Now and then more than the peer accepts, which ends the connection.
    if (chance(conn, 30000))
        conn->ep[0].link.max_rd_atomic = VB_RD_ATOMIC_MAX;
}

// Receives come from a shared queue, which one side's requests name if it is XRC.
static void draw_sharing(struct vb_conn *conn, int side, struct vb_ep_opts *o, bool xrc)
{
    const struct vb_scenario *s = &conn->world->scen;

    if (!xrc && (!s->shared_ppm || !chance(conn, s->shared_ppm)))
        return;
    o->recv_depth = 0;
    o->recv_bytes = 512;
    o->recv_room = s->shared_room;
    if (!xrc) {
        o->srq = 1 + (uint32_t)draw(conn, 0, 1);
    } else if (side == 0) {
        o->service = VB_SERVICE_XRC_SEND;
    } else {
        o->service = VB_SERVICE_XRC_RECV;
        o->xrcd = (uint32_t)draw(conn, 1, VB_SIM_XRCDS);
        o->send_depth = 1;
    }
}

// Far from every number that packets of earlier connections may still carry.
static void draw_psn(struct vb_ep *ep, bool first_life)
{
    struct vb_conn *conn = ep->conn;

    if (!first_life)
        ep->first_psn = (ep->first_psn + (1u << 21) + (uint32_t)draw(conn, 0, 1u << 21)) & 0xffffff;
    else if (chance(conn, 600000))
        ep->first_psn = (1u << 24) - 1 - (uint32_t)draw(conn, 0, 500);
    else
        ep->first_psn = (uint32_t)draw(conn, 0, 0xffffff);
}

int vb_conn_prepare(struct vb_conn *conn, struct vb_world *w, uint32_t index)
{
    conn->world = w;
    conn->index = index;
    uint32_t mtu = (uint32_t)(VB_MTU_MIN << draw(conn, 0, 4));
    uint32_t a = (uint32_t)draw(conn, 0, w->scen.nics - 1);
    uint32_t b = (a + (uint32_t)draw(conn, 1, w->scen.nics - 1)) % w->scen.nics;
    if (chance(conn, 150000)) {
        b = a;
        vb_cover(w->cover, VB_COVER_WORK_LOOPBACK);
    }
    vb_scenario_mix(&w->scen, &w->prng, &conn->mix);
    draw_link(conn, mtu);
    bool reliable = index < w->scen.conns - w->scen.unreliable;
    bool xrc = reliable && w->scen.xrc_ppm && chance(conn, w->scen.xrc_ppm);
    if (xrc)
        vb_plan_limit_to_xrc(&conn->mix);
    for (int side = 0; side < 2; side++) {
        struct vb_ep *ep = &conn->ep[side];
        struct vb_ep_opts opts;
        ep->conn = conn;
        ep->peer = &conn->ep[!side];
        ep->node = &w->node[side ? b : a];
        ep->node->ep[ep->node->ep_count++] = ep;
        draw_endpoint(conn, &opts, mtu);
        draw_sharing(conn, side, &opts, xrc);
        draw_psn(ep, true);
        vb_unreliable_shape(ep, &opts, mtu);
        int err = vb_ep_prepare(ep, &opts);
        if (err)
            return err;
    }
    return 0;
}

void vb_conn_destroy(struct vb_conn *conn)
{
    for (int side = 0; side < 2; side++)
        vb_ep_destroy(&conn->ep[side]);
}

// ---- state changes

static struct vb_qpc_mods mods_for(const struct vb_ep *ep, enum vb_qp_state state)
{
    const struct vb_ep_link *l = &ep->link;

    return (struct vb_qpc_mods){
        .state = state,
        .access = l->access,
        .dest_qpn = ep->peer->qpn,
        .rq_psn = ep->peer->first_psn,
        .mtu_bytes = l->mtu,
        .max_dest_rd_atomic = l->max_dest_rd_atomic,
        .min_rnr_timer = l->min_rnr_timer,
        .local = ep->node->ip,
        .remote = ep->peer->node->ip,
        .src_port = l->src_port,
        .sq_psn = ep->first_psn,
        .timeout = l->timeout,
        .retry_cnt = l->retry_cnt,
        .rnr_retry = l->rnr_retry,
        .max_rd_atomic = l->max_rd_atomic,
        .qkey = l->qkey,
    };
}

static void forget_posts(struct vb_ep *ep)
{
    vb_model_srq_lost(ep);
    ep->local.head = ep->local.tail = ep->recv.head = ep->recv.tail = 0;
    ep->muted = ep->saw_error = false;
}

int vb_conn_try_modify(struct vb_ep *ep, enum vb_qp_state state)
{
    struct vb_world *w = ep->node->world;
    struct vb_qpc_mods mods = mods_for(ep, state);
    enum vb_qp_state from = ep->state;
    int err = vb_dev_qp_modify(ep->node->dev, ep->qpn, &mods);

    vb_trace_note(w, "nic%u modify   qp %06x %s to %s", ep->node->index, ep->qpn,
                  vb_qp_state_name(from), vb_qp_state_name(state));
    if (err)
        return err;
    vb_digest_add(&w->digest, (uint64_t)ep->qpn << 8 | (uint64_t)state);
    // A failure is counted where the model lets it happen, whoever asked for it.
    if (state != VB_QPS_ERR || from == VB_QPS_ERR)
        w->cover->moved[from][state]++;
    if (state == VB_QPS_RESET) {
        vb_driver_qp_reset(&ep->drv);
        forget_posts(ep);
    }
    vb_model_modified(ep, &mods);
    vb_node_wake(ep->node);
    ep->node->act_at_ns = w->now_ns;
    return 0;
}

void vb_conn_modify(struct vb_ep *ep, enum vb_qp_state state)
{
    enum vb_qp_state from = ep->state;
    int err = vb_conn_try_modify(ep, state);

    VB_MODEL_CHECK(ep, err == 0, "%s to %s was refused: %d", vb_qp_state_name(from),
                   vb_qp_state_name(state), err);
}

void vb_conn_try_illegal(struct vb_ep *ep)
{
    enum vb_qp_state to = (enum vb_qp_state)draw(ep->conn, 0, VB_QPS_COUNT - 1);
    enum vb_qp_state after;
    struct vb_qpc_mods mods = mods_for(ep, to);

    if (vb_cover_legal(ep->state, to))
        return;
    int err = vb_dev_qp_modify(ep->node->dev, ep->qpn, &mods);
    vb_dev_qp_state(ep->node->dev, ep->qpn, &after);
    VB_MODEL_CHECK(ep, err == -EINVAL && after == ep->state, "%s to %s was not refused: %d, now %s",
                   vb_qp_state_name(ep->state), vb_qp_state_name(to), err, vb_qp_state_name(after));
    ep->node->world->cover->refused[ep->state][to]++;
}

// A change to the state that the queue pair is in already, where that is legal.
static void change_nothing(struct vb_ep *ep)
{
    bool idle = vb_ep_is_drained(ep);

    if (ep->state == VB_QPS_ERR || ep->state == VB_QPS_INIT || ep->state == VB_QPS_SQD ||
        (ep->state == VB_QPS_RESET && idle))
        vb_conn_modify(ep, ep->state);
}

void vb_conn_forget(struct vb_ep *ep)
{
    forget_posts(ep);
    vb_model_modified(ep, &(struct vb_qpc_mods){.state = VB_QPS_RESET});
}

static void replace(struct vb_ep *ep)
{
    uint32_t old = ep->qpn;
    int err = vb_ep_recreate(ep);

    vb_trace_note(ep->node->world, "nic%u replace  qp %06x by %06x", ep->node->index, old, ep->qpn);
    VB_MODEL_CHECK(ep, err == 0, "could not be replaced: %d", err);
    VB_MODEL_CHECK(ep, ep->qpn != old, "got its old number again");
    vb_digest_add(&ep->node->world->digest, ep->qpn);
    vb_cover(ep->node->world->cover, VB_COVER_BAD_DESTROYED);
    vb_conn_forget(ep);
}

// Back to RESET, now and then as another queue pair.
static void start_over(struct vb_ep *ep)
{
    if (chance(ep->conn, 150000))
        replace(ep);
    else
        vb_conn_modify(ep, VB_QPS_RESET);
}

// ---- the connection's life

static void schedule(struct vb_conn *conn, uint64_t longest_ns)
{
    conn->control_at_ns = conn->world->now_ns + draw(conn, 1, longest_ns);
}

bool vb_conn_takes_posts(const struct vb_ep *ep)
{
    return ep->conn->state != VB_CONN_DRAIN && !ep->saw_error;
}

void vb_conn_broken(struct vb_conn *conn)
{
    if (conn->state == VB_CONN_BROKEN || conn->state == VB_CONN_DRAIN)
        return;
    conn->state = VB_CONN_BROKEN;
    // Often the other side learns of it by itself, sometimes it is told before it can.
    schedule(conn, chance(conn, 500000) ? 20000 : 3000000);
}

void vb_conn_fail(struct vb_ep *ep)
{
    if (ep->state == VB_QPS_RESET || ep->state == VB_QPS_ERR)
        return;
    vb_cover(ep->node->world->cover, VB_COVER_BAD_FAILED);
    vb_conn_modify(ep, VB_QPS_ERR);
    vb_conn_broken(ep->conn);
}

static void start_life(struct vb_conn *conn)
{
    for (int side = 0; side < 2; side++) {
        draw_psn(&conn->ep[side], false);
        conn->ep[side].starved_until_ns = 0;
        vb_model_fate_begins(&conn->ep[side]);
        conn->ep[side].storm.count = 0;
    }
    conn->life++;
    conn->state = VB_CONN_DOWN;
    schedule(conn, 5000);
}

void vb_conn_restart(struct vb_conn *conn)
{
    start_life(conn);
    if (conn->world->phase != VB_PHASE_END)
        return;
    conn->state = VB_CONN_DRAIN;
    conn->control_at_ns = UINT64_MAX;
}

void vb_conn_collect(struct vb_conn *conn)
{
    for (int side = 0; side < 2; side++) {
        struct vb_ep *ep = &conn->ep[side];
        bool target = vb_ep_is_xrc_target(ep);
        vb_node_publish(ep->node, true);
        for (uint32_t i = 0; i < ep->node->cq_count; i++)
            if (target || i == ep->opts.cq[0] || i == ep->opts.cq[1])
                vb_script_drain(ep->node, i);
    }
}

void vb_conn_reset(struct vb_conn *conn)
{
    vb_cover(conn->world->cover, VB_COVER_BAD_RESET);
    vb_conn_collect(conn);
    for (int side = 0; side < 2; side++)
        start_over(&conn->ep[side]);
    start_life(conn);
}

// One side goes one state up.
static void bring_up(struct vb_conn *conn)
{
    int side = (int)draw(conn, 0, 1);
    if (conn->ep[side].state == VB_QPS_RTS)
        side = !side;
    struct vb_ep *ep = &conn->ep[side];

    if (ep->state != VB_QPS_RTS && ep->state != VB_QPS_ERR)
        vb_conn_modify(ep, ep->state + 1);
    bool up = conn->ep[0].state == VB_QPS_RTS && conn->ep[1].state == VB_QPS_RTS;
    if (up)
        conn->state = VB_CONN_UP;
    schedule(conn, up ? 2000000 : 10000);
}

static void break_both(struct vb_conn *conn)
{
    for (int side = 0; side < 2; side++)
        if (conn->ep[side].state != VB_QPS_ERR && conn->ep[side].state != VB_QPS_RESET)
            vb_conn_modify(&conn->ep[side], VB_QPS_ERR);
    conn->state = VB_CONN_DRAIN;
    schedule(conn, 5000);
}

static void drain(struct vb_conn *conn)
{
    if (!vb_ep_is_drained(&conn->ep[0]) || !vb_ep_is_drained(&conn->ep[1])) {
        schedule(conn, 20000);
        return;
    }
    for (int side = 0; side < 2; side++)
        start_over(&conn->ep[side]);
    start_life(conn);
}

// A send queue that drains goes on after a while, whether it is drained or not.
static void drain_or_resume(struct vb_conn *conn, struct vb_ep *ep)
{
    bool faults = conn->world->phase == VB_PHASE_FAULTS;

    if (conn->ep[0].state == VB_QPS_SQD)
        ep = &conn->ep[0];
    else if (conn->ep[1].state == VB_QPS_SQD)
        ep = &conn->ep[1];
    if (ep->state == VB_QPS_SQD && faults && chance(conn, 50000))
        vb_conn_reset(conn);
    else if (ep->state == VB_QPS_SQD)
        vb_conn_modify(ep, VB_QPS_RTS);
    else if (ep->state == VB_QPS_RTS && faults && chance(conn, conn->world->scen.drain_ppm))
        vb_conn_modify(ep, VB_QPS_SQD);
    bool drains = conn->ep[0].state == VB_QPS_SQD || conn->ep[1].state == VB_QPS_SQD;
    if (conn->state == VB_CONN_UP)
        schedule(conn, drains ? 60000 : conn->world->scen.drain_ppm ? 150000 : 2000000);
}

void vb_conn_control(struct vb_conn *conn)
{
    struct vb_ep *ep = &conn->ep[draw(conn, 0, 1)];

    schedule(conn, 10000);
    if (conn->world->phase == VB_PHASE_FAULTS && chance(conn, 100000)) {
        vb_conn_try_illegal(ep);
        change_nothing(ep);
    }
    if (vb_unreliable_mend(conn))
        return;
    switch (conn->state) {
    case VB_CONN_DOWN:
        if (conn->world->phase == VB_PHASE_FAULTS && chance(conn, conn->world->scen.fail_ppm * 4)) {
            if (chance(conn, 500000))
                vb_conn_reset(conn);
            else
                vb_conn_fail(ep);
        } else {
            bring_up(conn);
        }
        break;
    case VB_CONN_BROKEN: break_both(conn); break;
    case VB_CONN_DRAIN: drain(conn); break;
    default: drain_or_resume(conn, ep); break;
    }
}
