// SPDX-License-Identifier: Apache-2.0
// What a host may ask for at any time, with work outstanding or not: states, keys, queues.
#include "rig.h"

#include "base/serial.h"

#include <stdlib.h>
#include <string.h>

// Payloads that were lent to frames still queued, as whoever drives a unit must do before the
// application runs on; and completions that were held are seen.
static void leave_units(struct rig *r)
{
    for (uint32_t i = 0; i < r->units; i++) {
        vb_pu_tx_keep(vb_dev_pu_at(r->dev, i));
        vb_pu_publish(vb_dev_pu_at(r->dev, i));
    }
}

// ---- states

static struct rig_qp *mate_of(struct rig *r, const struct rig_qp *q)
{
    static const uint8_t mate[RIG_QPS] = {RIG_RC_SHARED, RIG_RC,      RIG_UC,
                                          RIG_UD,        RIG_XRC_TGT, RIG_XRC_INI};
    return &r->qp[mate[q - r->qp]];
}

static struct vb_qpc_mods usual_mods(struct rig *r, const struct rig_qp *q)
{
    return (struct vb_qpc_mods){.access = VB_ACCESS_REMOTE,
                                .qkey = RIG_QKEY,
                                .dest_qpn = mate_of(r, q)->driver.qpn,
                                .rq_psn = 0xfffffa,
                                .sq_psn = 0xfffffa,
                                .mtu_bytes = r->mtu,
                                .max_rd_atomic = 2,
                                .max_dest_rd_atomic = 4,
                                .min_rnr_timer = 1,
                                .timeout = 4,
                                .retry_cnt = 3,
                                .rnr_retry = 2,
                                .local = r->local,
                                .remote = r->remote,
                                .src_port = 0xc123};
}

// An unusual value, lawful or not.
static void bend_mods(struct rig *r, struct vb_qpc_mods *m)
{
    uint8_t choice = rig_u8(r), value = rig_u8(r);
    switch (choice % 12) {
    case 0: m->access = value; break;
    case 1: m->mtu_bytes = choice & 0x80 ? value : 256u << value % 6; break;
    case 2: m->max_rd_atomic = value % 18; break;
    case 3: m->max_dest_rd_atomic = value % 18; break;
    case 4: m->min_rnr_timer = value % 33; break;
    case 5: m->timeout = value % 33; break;
    case 6: m->retry_cnt = value % 9; break;
    case 7: m->rnr_retry = value % 9; break;
    case 8: m->rq_psn = rig_u32(r) & (choice & 0x80 ? UINT32_MAX : VB_PSN_MASK); break;
    case 9: m->sq_psn = rig_u32(r) & (choice & 0x80 ? UINT32_MAX : VB_PSN_MASK); break;
    case 10: m->remote.b[choice & 0x80 ? 10 : 15] ^= value; break;
    default: m->dest_qpn = rig_u32(r) & (choice & 0x80 ? UINT32_MAX : VB_PSN_MASK); break;
    }
}

// The receive that a queue pair has in use goes with its life; one of a shared queue is lost.
static void lose_receive(struct rig *r, const struct rig_qp *q)
{
    const struct vb_recv *recv = &q->ctx->resp.recv;
    for (uint32_t i = 0; i < RIG_SRQS; i++)
        if (recv->loaded && recv->srq == r->srq[i].ctx)
            r->srq[i].lost++;
}

// The driver forgets with the device; completions of the former life are taken before.
static void end_life(struct rig *r, struct rig_qp *q)
{
    rig_complete(r);
    lose_receive(r, q);
    for (uint32_t i = 0; i < r->units; i++)
        r->old_frames = r->old_frames || vb_pu_txq(vb_dev_pu_at(r->dev, i))->count > 0;
}

static bool modify(struct rig *r, struct rig_qp *q, const struct vb_qpc_mods *m)
{
    leave_units(r);
    if (m->state == VB_QPS_RESET)
        end_life(r, q);
    enum vb_qp_state from = q->ctx->state;
    bool changed = vb_dev_qp_modify(r->dev, q->driver.qpn, m) == 0;
    rig_require(changed || q->ctx->state == from);
    q->epsn = q->ctx->resp.epsn;
    if (changed && from == VB_QPS_RTR && m->state == VB_QPS_RTS) {
        q->una_psn = q->ctx->req.una_psn;
        memset(q->sent, 0, sizeof q->sent);
    }
    if (m->state != VB_QPS_RESET)
        return changed;
    rig_require(changed);
    vb_driver_qp_reset(&q->driver);
    q->send_done = q->send_id;
    q->recv_done = q->recv_id;
    return true;
}

void rig_modify(struct rig *r, struct rig_qp *q, enum vb_qp_state state)
{
    struct vb_qpc_mods m = usual_mods(r, q);
    m.state = state;
    (void)modify(r, q, &m);
}

void rig_connect(struct rig *r, struct rig_qp *q)
{
    for (enum vb_qp_state s = VB_QPS_RESET; s <= VB_QPS_RTS; s++)
        rig_modify(r, q, s);
}

static void bent_modify(struct rig *r, struct rig_qp *q)
{
    struct vb_qpc_mods m = usual_mods(r, q);
    uint8_t choice = rig_u8(r);
    bend_mods(r, &m);
    m.state = (enum vb_qp_state)(choice % (VB_QPS_COUNT + 1));
    if (!(choice & 0x80)) {
        (void)modify(r, q, &m);
        return;
    }
    for (m.state = VB_QPS_RESET; m.state <= VB_QPS_RTS; m.state++)
        (void)modify(r, q, &m);
}

// ---- objects come and go

static void recreate_qp(struct rig *r, struct rig_qp *q)
{
    leave_units(r);
    end_life(r, q);
    rig_destroy_qp(r, q);
    rig_create_qp(r, q);
}

// Queue pairs of XRC do not keep their shared queue: it may go while a message fills its entry.
static void recreate_srq(struct rig *r, struct rig_srq *s)
{
    leave_units(r);
    rig_complete(r);
    bool used = s->ctx->users > 0;
    rig_require((vb_dev_srq_destroy(r->dev, s->srqn) == 0) == !used);
    if (used)
        return;
    vb_driver_srq_fini(&s->driver);
    rig_create_srq(r, s);
}

static void resize_cq(struct rig *r, struct rig_cq *c)
{
    struct vb_driver_cq other;
    uint32_t entries = r->cq_entries << rig_u8(r) % 3;
    leave_units(r);
    rig_require(vb_driver_cq_init(&other, entries, c->driver.ci) == 0);
    if (vb_driver_cq_move(&c->driver, &other) == 0) {
        rig_require(vb_dev_cq_resize(r->dev, c->cqn, other.ring, other.entries) == 0);
        vb_driver_cq_adopt(&c->driver, &other);
    }
    vb_driver_cq_fini(&other);
}

static void arm_cq(struct rig *r, struct rig_cq *c)
{
    uint8_t choice = rig_u8(r);
    if (choice & 0x80) {
        uint32_t count = choice % 8;
        bool lawful = count <= c->ctx->entries && (count > 1) == !!(choice & 0x40);
        rig_require((vb_dev_cq_moderate(r->dev, c->cqn, count, choice & 0x40 ? 5000 : 0) == 0) ==
                    lawful);
        return;
    }
    vb_driver_cq_arm(&c->driver, choice & 1);
    c->arms++;
    rig_require(vb_dev_cq_armed(r->dev, c->cqn) == 0);
}

static void arm_srq(struct rig *r, struct rig_srq *s)
{
    uint32_t limit = rig_u8(r) % (s->driver.entries + 2);
    bool lawful = limit < s->driver.entries;
    rig_require((vb_dev_srq_arm(r->dev, s->srqn, limit) == 0) == lawful);
    s->arms += lawful && limit > 0;
}

static void change_memory(struct rig *r)
{
    uint8_t choice = rig_u8(r);
    uint32_t region = choice / 8 % RIG_REGIONS;
    leave_units(r);
    switch (choice % 8) {
    case 0:
    case 1: (void)rig_unregister(r, region); break;
    case 2:
    case 3: rig_register(r, region); break;
    case 4: rig_reregister(r, region, rig_u8(r)); break;
    case 5:
        rig_destroy_window(r, region % RIG_WINDOWS);
        rig_create_window(r, region % RIG_WINDOWS);
        break;
    default: r->region[region].gone = choice & 1; break;
    }
}

// As if nobody had taken events for long.
static void crowd_events(struct rig *r, uint32_t unit)
{
    struct vb_pu *pu = vb_dev_pu_at(r->dev, unit % r->units);
    while (pu->event_count < VB_EVENTS)
        vb_pu_event(pu, VB_EVENT_COMM_EST, 0);
}

void rig_control(struct rig *r, struct rig_qp *q)
{
    uint8_t choice = rig_u8(r);
    switch (choice % 16) {
    case 0:
    case 1: rig_connect(r, q); break;
    case 2: rig_modify(r, q, VB_QPS_ERR); break;
    case 3: rig_modify(r, q, VB_QPS_SQD); break;
    case 4: rig_modify(r, q, VB_QPS_RTS); break;
    case 5: rig_modify(r, q, (enum vb_qp_state)(choice / 16 % VB_QPS_COUNT)); break;
    case 6: bent_modify(r, q); break;
    case 7: recreate_qp(r, q); break;
    case 8: recreate_srq(r, &r->srq[choice / 16 % RIG_SRQS]); break;
    case 9: resize_cq(r, &r->cq[choice / 16 % RIG_CQS]); break;
    case 10: arm_cq(r, &r->cq[choice / 16 % RIG_CQS]); break;
    case 11: arm_srq(r, &r->srq[choice / 16 % RIG_SRQS]); break;
    case 12: r->spoil = choice / 16 + 1; break;
    case 13:
        if (choice & 0x80)
            crowd_events(r, choice / 16);
        else
            r->fail_next = true;
        break;
    case 14: change_memory(r); break;
    default: rig_ask_nonsense(r); break;
    }
}
