// SPDX-License-Identifier: Apache-2.0
// Queue pairs: create, connect, post.
#include "host/device.h"
#include "host/host.h"

#include "nic/spread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum vb_qp_type type_of(enum vb_service service)
{
    static const enum vb_qp_type types[] = {
        [VB_SERVICE_RC] = VB_QPT_RC,
        [VB_SERVICE_UC] = VB_QPT_UC,
        [VB_SERVICE_UD] = VB_QPT_UD,
        [VB_SERVICE_XRC_SEND] = VB_QPT_XRC_INI,
        [VB_SERVICE_XRC_RECV] = VB_QPT_XRC_TGT,
    };
    return types[service];
}

static int create_context(struct vb_pd *pd, const struct vb_qp_opts *o, struct vb_qp *qp)
{
    struct vb_driver_qp *d = &qp->driver;
    struct vb_nic *nic = pd->nic;
    const struct vb_qpc_attr attr = {
        .pd = pd->pd,
        .type = type_of(o->service),
        .srqn = o->srq ? o->srq->srqn : 0,
        .xrcd = o->xrcd,
        .send_cqn = o->send_cq->cqn,
        .recv_cqn = o->recv_cq->cqn,
        .sq_ring = d->sq.ring,
        .sq_blocks = d->sq.blocks,
        .rq_ring = d->rq.ring,
        .rq_entries = d->rq.entries,
        .rq_stride_bytes = d->rq.stride,
        .dbrec = d->dbrec,
        .sq_start = o->start,
        .rq_start = o->start,
        .no_wqe_checks = o->chain & VB_QP_NO_WQE_CHECKS,
        .be_replies = o->chain & VB_QP_BE_REPLIES,
        .cross_channel = o->chain & VB_QP_CROSS_CHANNEL,
        .managed_send = o->chain & VB_QP_MANAGED_SEND,
        .managed_recv = o->chain & VB_QP_MANAGED_RECV,
        .fetch_depth = o->fetch_depth,
        .rate = o->rate,
        .burst = o->burst,
        .program = o->program ? o->program->number : 0,
        .gsi = o->management,
    };
    qp->xrcd = vb_host_xrcd_find(nic, o->xrcd);
    if ((o->xrcd && !qp->xrcd) || o->send_cq->driver.audits || o->recv_cq->driver.audits)
        return -EINVAL;
    int err = vb_device_qp_create(nic, &attr, &d->qpn);
    if (err)
        return err;
    d->doorbells = vb_device_doorbells(nic, o->send_cq->lane);
    nic->qp_by_index[d->qpn & (VB_DOORBELL_QPS - 1)] = qp;
    vb_fifo_push(&nic->qps, &qp->link);
    if (qp->xrcd)
        qp->xrcd->users++;
    return 0;
}

static bool is_legal(const struct vb_pd *pd, const struct vb_qp_opts *o)
{
    if ((unsigned)o->service > VB_SERVICE_XRC_RECV || !o->send_cq || !o->recv_cq)
        return false;
    if (o->send_cq->nic != pd->nic || o->recv_cq->nic != pd->nic)
        return false;
    if (o->srq && (o->srq->nic != pd->nic || o->recv_depth || o->service >= VB_SERVICE_XRC_SEND ||
                   o->recv_cq->overwrites))
        return false;
    if (o->chain & ~(uint32_t)VB_QP_CHAIN_ALL || (o->chain && o->service != VB_SERVICE_RC))
        return false;
    if ((o->program && o->program->pd != pd) || (o->burst && !o->rate))
        return false;
    return (o->service == VB_SERVICE_XRC_RECV) == (o->xrcd != 0);
}

// Who shares an address with others says whether it has queue pair 1.
static void manage(struct vb_nic *nic, bool manages)
{
    struct vb_port *port = nic->lane[0].port;
    if (port->ops->manage)
        port->ops->manage(port, manages);
}

static void free_rings(struct vb_qp *qp)
{
    if (qp->nic->attach) {
        vb_host_lock(qp->nic);
        vb_attach_lift_qp(qp->nic->attach, &qp->driver);
        vb_host_unlock(qp->nic);
    }
    vb_driver_qp_fini(&qp->driver);
}

int vb_qp_create(struct vb_pd *pd, const struct vb_qp_opts *opts, struct vb_qp **out)
{
    if (vb_host_is_foreign(pd->nic))
        return -EPERM;
    if (!is_legal(pd, opts))
        return -EINVAL;
    struct vb_qp *qp = calloc(1, sizeof *qp);
    if (!qp)
        return -ENOMEM;
    qp->nic = pd->nic;
    qp->pd = pd;
    qp->program = opts->program;
    vb_fifo_init(&qp->code);
    qp->service = opts->service;
    qp->send_cq = opts->send_cq;
    qp->recv_cq = opts->recv_cq;
    int err = vb_driver_qp_init(&qp->driver, opts, opts->start, opts->start);
    qp->driver.srq = opts->srq ? &opts->srq->driver : NULL;
    if (!err) {
        vb_host_lock(qp->nic);
        if (qp->nic->attach)
            err = vb_attach_place_qp(qp->nic->attach, &qp->driver);
        if (!err)
            err = create_context(pd, opts, qp);
        if (!err && opts->management)
            manage(qp->nic, true);
        else if (!err && opts->service == VB_SERVICE_UD && !qp->nic->attach)
            vb_host_tell_headers(qp->nic);
        vb_host_unlock(qp->nic);
    }
    if (err) {
        free_rings(qp);
        free(qp);
        return err;
    }
    *out = qp;
    return 0;
}

// Of a shared queue only the application knows what it has read: nothing is moved there.
static void forget_in(struct vb_cq *cq, const struct vb_qp *qp)
{
    // Nor is what a hull may be writing: numbers come again late, and who polls passes over it.
    if (cq->share.bell || (cq->overwrites && cq->nic->attach))
        return;
    vb_host_catch_up(cq, UINT32_MAX);
    vb_driver_cq_clean(&cq->driver, qp->driver.qpn, qp->driver.srq);
}

// Its number may be another's soon.
static void forget_completions(struct vb_qp *qp)
{
    forget_in(qp->send_cq, qp);
    forget_in(qp->recv_cq, qp);
}

static int modify(struct vb_qp *qp, struct vb_qpc_mods *m, enum vb_qp_state state)
{
    m->state = state;
    return vb_device_qp_modify(qp->nic, qp->driver.qpn, m);
}

// A receive of a shared queue that is in use comes back by being flushed.
static void give_back_receive(struct vb_qp *qp)
{
    if (!qp->driver.srq || qp->nic->orphan)
        return;
    modify(qp, &(struct vb_qpc_mods){0}, VB_QPS_ERR);
    vb_lane_run(qp->send_cq->lane);
}

int vb_qp_destroy(struct vb_qp *qp)
{
    struct vb_nic *nic = qp->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    int before = vb_cancel_hold();
    if (qp->settled)
        vb_host_lock(nic);
    else
        vb_host_lock_answered(nic, qp);
    if (!nic->orphan)
        give_back_receive(qp);
    vb_host_leave_groups(qp);
    vb_host_end_code(qp);
    int err = vb_device_qp_destroy(nic, qp->driver.qpn);
    if (qp->driver.qpn == VB_QPN_GSI && !nic->orphan)
        manage(nic, false);
    if (!nic->orphan) { // whose locks may be held by threads that are not here
        forget_completions(qp);
        vb_host_forget_events(nic, VB_HOST_QP, qp->driver.qpn);
    }
    nic->qp_by_index[qp->driver.qpn & (VB_DOORBELL_QPS - 1)] = NULL;
    vb_link_remove(&qp->link);
    if (qp->xrcd)
        qp->xrcd->users--;
    vb_host_unshare(&qp->share, qp->send_cq->lane);
    vb_host_unlock(nic);
    free_rings(qp);
    free(qp);
    vb_cancel_allow(before);
    return err;
}

int vb_qp_settle(struct vb_qp *qp)
{
    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    int before = vb_cancel_hold();
    vb_host_lock_answered(qp->nic, qp);
    qp->settled = true;
    vb_host_unlock(qp->nic);
    vb_cancel_allow(before);
    return 0;
}

uint32_t vb_qp_num(const struct vb_qp *qp)
{
    return qp->driver.qpn;
}

static_assert((int)VB_SPREAD_SOURCE == VB_SPREAD_SRC && (int)VB_SPREAD_DESTINATION == VB_SPREAD_DST,
              "fields are the device's");

int vb_qp_spread(struct vb_qp *qp, struct vb_qp *const *members, uint32_t count, uint32_t fields,
                 const uint8_t key[40])
{
    uint32_t qpn[VB_SPREAD_MAX];
    struct vb_spread_attr attr = {.qpn = qpn, .count = count, .fields = fields};

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (count > VB_SPREAD_MAX || fields & ~(uint32_t)(VB_SPREAD_SRC | VB_SPREAD_DST))
        return -EINVAL;
    for (uint32_t i = 0; i < count; i++) {
        if (members[i]->nic != qp->nic)
            return -EINVAL;
        qpn[i] = members[i]->driver.qpn;
    }
    memcpy(attr.key, key, sizeof attr.key);
    vb_host_lock(qp->nic);
    int err = qp->nic->attach ? vb_attach_qp_spread(qp->nic->attach, qp->driver.qpn, &attr)
                              : vb_dev_qp_spread(qp->nic->dev, qp->driver.qpn, &attr);
    vb_host_unlock(qp->nic);
    return err;
}

// ---- states

static uint8_t or_default(uint8_t value, uint8_t fallback)
{
    return value ? value : fallback;
}

static struct vb_qpc_mods mods_of(const struct vb_nic *nic, const struct vb_qp_peer *p)
{
    const struct vb_port *port = nic->lane[0].port;
    uint8_t reads = or_default(p->reads, VB_RD_ATOMIC_MAX);
    struct vb_qpc_mods m = {
        .access = vb_host_access(p->rights),
        .qkey = p->qkey,
        .dest_qpn = p->qpn,
        .rq_psn = p->psn,
        .sq_psn = p->our_psn,
        .mtu_bytes = p->mtu ? p->mtu : 4096,
        .max_rd_atomic = reads,
        .max_dest_rd_atomic = reads,
        .min_rnr_timer = or_default(p->rnr_timer, 12),
        .timeout = or_default(p->timeout, 14),
        .retry_cnt = or_default(p->retries, 7),
        .rnr_retry = or_default(p->rnr_retries, VB_RETRY_INFINITE),
        .local = port->local,
        .src_port = port->src_port,
    };
    memcpy(m.remote.b, p->gid, 16);
    return m;
}

// Needs the lock. A refusal on the way goes back to RESET, so that the next attempt can work.
static int walk_to_rts(struct vb_qp *qp, struct vb_qpc_mods *m)
{
    static const enum vb_qp_state way[] = {VB_QPS_INIT, VB_QPS_RTR, VB_QPS_RTS};

    for (size_t i = 0; i < sizeof way / sizeof way[0]; i++) {
        int err = modify(qp, m, way[i]);
        if (err) {
            modify(qp, m, VB_QPS_RESET);
            return err;
        }
    }
    return 0;
}

void vb_host_forget_life(struct vb_qp *qp)
{
    struct vb_driver_deed *deed = qp->driver.deed;

    if (deed) // who dies in between leaves the rest to the next owner
        __atomic_store_n(&deed->resetting, 1, __ATOMIC_SEQ_CST);
    give_back_receive(qp);
    modify(qp, &(struct vb_qpc_mods){0}, VB_QPS_RESET);
    vb_host_finish_reset(qp);
}

void vb_host_finish_reset(struct vb_qp *qp)
{
    vb_driver_qp_reset(&qp->driver);
    forget_completions(qp);
    if (qp->driver.deed)
        __atomic_store_n(&qp->driver.deed->resetting, 0, __ATOMIC_SEQ_CST);
}

// The lane that a queue pair lives on.
static uint32_t lane_bit(const struct vb_qp *qp)
{
    return 1u << (qp->driver.qpn & (qp->nic->lanes - 1));
}

void vb_host_run_soon(struct vb_qp *qp)
{
    vb_doorbell_ring(qp->driver.doorbells, qp->driver.qpn);
    vb_helper_notice(qp->nic, lane_bit(qp));
}

int vb_qp_connect(struct vb_qp *qp, const struct vb_qp_peer *peer)
{
    struct vb_nic *nic = qp->nic;
    const uint32_t remote = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_ATOMIC |
                            VB_RIGHT_FLUSH_GLOBAL;
    enum vb_qp_state state;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (peer->rights & ~remote)
        return -EINVAL;
    vb_host_lock(nic);
    struct vb_qpc_mods m = mods_of(nic, peer);
    int err = vb_device_qp_state(nic, qp->driver.qpn, &state);
    if (!err && qp->service != VB_SERVICE_UD)
        err = vb_host_local(nic, peer->local, peer->gid, &m.local);
    if (!err && state == VB_QPS_ERR)
        vb_host_forget_life(qp);
    else if (!err && state != VB_QPS_RESET)
        err = -EINVAL;
    if (!err)
        err = walk_to_rts(qp, &m);
    vb_host_unlock(nic);
    vb_host_run_soon(qp);
    return err;
}

static int move(struct vb_qp *qp, enum vb_qp_state state)
{
    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    vb_host_lock(qp->nic);
    int err = modify(qp, &(struct vb_qpc_mods){0}, state);
    vb_host_collect(qp->send_cq->lane);
    vb_host_unlock(qp->nic);
    vb_host_run_soon(qp);
    return err;
}

int vb_qp_fail(struct vb_qp *qp)
{
    return move(qp, VB_QPS_ERR);
}

int vb_qp_drain(struct vb_qp *qp)
{
    return move(qp, VB_QPS_SQD);
}

int vb_qp_resume(struct vb_qp *qp)
{
    enum vb_qp_state state;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    vb_host_lock(qp->nic);
    int err = vb_device_qp_state(qp->nic, qp->driver.qpn, &state);
    if (!err)
        err = state == VB_QPS_SQD || state == VB_QPS_SQE
                  ? modify(qp, &(struct vb_qpc_mods){0}, VB_QPS_RTS)
                  : -EINVAL;
    vb_host_unlock(qp->nic);
    vb_host_run_soon(qp);
    return err;
}

int vb_qp_limit(struct vb_qp *qp, uint32_t kbps, uint32_t burst_bytes)
{
    const uint64_t bytes_per_kbit = 1000 / 8;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    vb_host_lock(qp->nic);
    int err = vb_device_qp_limit(qp->nic, qp->driver.qpn, kbps * bytes_per_kbit, burst_bytes);
    vb_host_unlock(qp->nic);
    vb_host_run_soon(qp); // what a lower rate held may go on
    return err;
}

const char *vb_qp_state_text(struct vb_qp *qp)
{
    enum vb_qp_state state = VB_QPS_RESET;

    if (vb_host_is_foreign(qp->nic))
        return "FORKED";
    vb_host_lock(qp->nic);
    vb_device_qp_state(qp->nic, qp->driver.qpn, &state);
    vb_host_unlock(qp->nic);
    return vb_qp_state_name(state);
}

// ---- posting

int vb_post_send(struct vb_qp *qp, const struct vb_send_wr *wr, uint32_t n)
{
    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (!vb_host_enter(&qp->sending))
        return 0;
    int posted = vb_driver_post_send(&qp->driver, wr, n);
    vb_host_leave(&qp->sending);
    if (posted > 0)
        vb_helper_notice(qp->nic, lane_bit(qp));
    return posted;
}

int vb_post_send_all(struct vb_qp *qp, const struct vb_send_wr *wr, uint32_t n)
{
    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (!vb_host_enter(&qp->sending))
        return -EAGAIN;
    int err = vb_driver_post_send_all(&qp->driver, wr, n);
    vb_host_leave(&qp->sending);
    if (!err && n > 0)
        vb_helper_notice(qp->nic, lane_bit(qp));
    return err;
}

int vb_post_recv(struct vb_qp *qp, const struct vb_recv_wr *wr, uint32_t n)
{
    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (!vb_host_enter(&qp->receiving))
        return 0;
    int posted = vb_driver_post_recv(&qp->driver, wr, n);
    vb_host_leave(&qp->receiving);
    if (posted > 0)
        vb_helper_notice(qp->nic, lane_bit(qp)); // a failed queue pair flushes them
    return posted;
}

const char *vb_wc_status_text(enum vb_wc_status status)
{
    static const char *const text[] = {
        [VB_WC_OK] = "success",
        [VB_WC_LOCAL_LENGTH] = "the message is longer than the receive buffer",
        [VB_WC_LOCAL_QP_OP] = "malformed work request",
        [VB_WC_LOCAL_PROTECTION] = "a local key, range or right is wrong",
        [VB_WC_FLUSHED] = "flushed: the queue pair failed before this request was done",
        [VB_WC_BAD_RESPONSE] = "the peer's answer made no sense",
        [VB_WC_LOCAL_ACCESS] = "local access refused",
        [VB_WC_REMOTE_INVALID] = "the peer refused the request's form, or its buffer is too short",
        [VB_WC_REMOTE_ACCESS] = "the remote key, range or right is wrong",
        [VB_WC_REMOTE_OPERATION] = "the peer failed while executing the request",
        [VB_WC_RETRY_EXCEEDED] = "no answer from the peer: retries exceeded",
        [VB_WC_RNR_EXCEEDED] = "the peer posted no receive in time: RNR retries exceeded",
        [VB_WC_BIND_REFUSED] = "a window could not be bound or invalidated",
    };
    return (unsigned)status < sizeof text / sizeof text[0] ? text[status] : "unknown status";
}
