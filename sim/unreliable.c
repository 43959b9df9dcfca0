// SPDX-License-Identifier: Apache-2.0
// The life of connections of unreliable services.
#include "sim/unreliable.h"

#include "sim/connection.h"
#include "sim/model.h"

#include <errno.h>

enum {
    QKEY_USUAL = 0x01234567,
    WRAP_NEAR = 60,  // packets
    LOOK_NS = 20000, // until a host looks after a send queue that failed
};

static uint64_t draw(struct vb_conn *conn, uint64_t lo, uint64_t hi)
{
    return vb_prng_range(&conn->world->prng, lo, hi);
}

static bool chance(struct vb_conn *conn, uint32_t ppm)
{
    return vb_prng_chance(&conn->world->prng, ppm);
}

// ---- drawing

static void shape_datagrams(struct vb_ep *ep, struct vb_ep_opts *o, uint32_t mtu)
{
    struct vb_conn *conn = ep->conn;

    // Most can talk to each other. A key with the top bit set is reached by its equals alone.
    ep->link.qkey = chance(conn, 750000) ? QKEY_USUAL : (uint32_t)vb_prng_next(&conn->world->prng);
    if (o->srq)
        return; // its receives are as they are
    o->recv_room = VB_SIM_GRH + mtu;
    if (chance(conn, 300000))
        o->recv_room = (uint32_t)draw(conn, VB_SIM_GRH - 1, o->recv_room);
    o->recv_bytes = (o->recv_room + 512) * (uint32_t)draw(conn, 2, 12);
}

void vb_unreliable_shape(struct vb_ep *ep, struct vb_ep_opts *opts, uint32_t mtu)
{
    struct vb_conn *conn = ep->conn;
    const struct vb_scenario *s = &conn->world->scen;

    if (conn->index < s->conns - s->unreliable)
        return;
    if (ep == &conn->ep[0])
        opts->service = chance(conn, 500000) ? VB_SERVICE_UC : VB_SERVICE_UD;
    else
        opts->service = ep->peer->opts.service;
    if (chance(conn, 500000)) // few packets are sent, so the wrap is near
        ep->first_psn = VB_PSN_MASK - (uint32_t)draw(conn, 0, WRAP_NEAR);
    if (opts->service == VB_SERVICE_UD)
        shape_datagrams(ep, opts, mtu);
}

bool vb_unreliable_may_post(const struct vb_ep *ep, uint32_t count)
{
    const struct vb_world *w = ep->node->world;
    return !vb_ep_is_unreliable(ep) || 4 * (w->works_unreliable + count) <= w->works;
}

// ---- SQE

bool vb_unreliable_goes_on(struct vb_ep *ep, bool receive)
{
    struct vb_conn *conn = ep->conn;

    if (!vb_ep_is_unreliable(ep) || receive || ep->state == VB_QPS_ERR)
        return false;
    uint64_t at = conn->world->now_ns + draw(conn, 1, LOOK_NS);
    if (at < conn->control_at_ns)
        conn->control_at_ns = at;
    return true;
}

// The host has all completions, those of the flushed requests, too.
static bool is_settled(struct vb_ep *ep)
{
    const struct vb_asking *a = &ep->ask;
    return a->flushing && a->done == a->posted && a->polled == a->retired;
}

// While something is left to flush the device may say so; requests that it has not seen yet are
// executed.
static void resume_early(struct vb_ep *ep)
{
    bool failed = ep->ask.flushing, left = ep->ask.done < ep->ask.posted;
    int err = vb_conn_try_modify(ep, VB_QPS_RTS);

    VB_MODEL_CHECK(ep, err == 0 || (err == -EBUSY && (left || !failed)),
                   "SQE to RTS was refused: %d", err);
    VB_MODEL_CHECK(ep, err != 0 || failed, "left SQE before its failed request was told");
    if (err) {
        vb_excuse(ep->node->world->cover, VB_EXCUSE_SQE_BUSY);
        vb_cover(ep->node->world->cover, VB_COVER_SQE_BUSY);
    }
}

static void look_after(struct vb_ep *ep)
{
    struct vb_conn *conn = ep->conn;
    bool faults = conn->world->phase == VB_PHASE_FAULTS;

    if (faults && chance(conn, 300000))
        vb_conn_try_illegal(ep);
    if (faults && chance(conn, 50000))
        vb_conn_fail(ep);
    else if (faults && chance(conn, 30000))
        vb_conn_reset(conn);
    else if (is_settled(ep))
        vb_conn_modify(ep, VB_QPS_RTS);
    else if (chance(conn, 300000))
        resume_early(ep);
    if (ep->state == VB_QPS_RTS)
        ep->muted = false; // the entry of no length is gone
}

// A request has begun that will fail: by chance alone few queues would be drained just now.
static bool drain_before_failure(struct vb_ep *ep)
{
    const struct vb_asking *a = &ep->ask;

    if (!vb_ep_is_unreliable(ep) || ep->state != VB_QPS_RTS || a->done == a->begun ||
        ep->node->world->phase != VB_PHASE_FAULTS ||
        !vb_model_is_locally_wrong(ep, vb_ep_work(ep, a->done), VB_SYN_LOCAL_PROT))
        return false;
    vb_conn_modify(ep, VB_QPS_SQD);
    return true;
}

bool vb_unreliable_mend(struct vb_conn *conn)
{
    if (conn->state != VB_CONN_UP && conn->state != VB_CONN_DOWN)
        return false;
    for (int side = 0; side < 2; side++) {
        struct vb_ep *ep = &conn->ep[side];
        if (ep->state == VB_QPS_SQE) {
            look_after(ep);
            return true;
        }
        if (conn->state == VB_CONN_UP && drain_before_failure(ep))
            return true;
    }
    return false;
}
