// SPDX-License-Identifier: Apache-2.0
// Queue pairs step by step: one state after the other, by who brings its own protocol.
#include "host/device.h"
#include "host/host.h"

#include <errno.h>
#include <string.h>

static_assert((int)VB_QP_RESET == VB_QPS_RESET && (int)VB_QP_INIT == VB_QPS_INIT &&
                  (int)VB_QP_RTR == VB_QPS_RTR && (int)VB_QP_RTS == VB_QPS_RTS &&
                  (int)VB_QP_SQD == VB_QPS_SQD && (int)VB_QP_SQE == VB_QPS_SQE &&
                  (int)VB_QP_ERR == VB_QPS_ERR,
              "phases are named as the device's states");

static struct vb_qpc_mods mods_of(const struct vb_nic *nic, const struct vb_qp_change *c)
{
    const struct vb_port *port = nic->lane[0].port;
    struct vb_qpc_mods m = {
        .state = (enum vb_qp_state)c->to,
        .access = vb_host_access(c->rights),
        .qkey = c->qkey,
        .dest_qpn = c->qpn,
        .rq_psn = c->psn,
        .mtu_bytes = c->mtu,
        .max_dest_rd_atomic = c->reads_served,
        .min_rnr_timer = c->rnr_timer,
        .sq_psn = c->our_psn,
        .timeout = c->timeout,
        .retry_cnt = c->retries,
        .rnr_retry = c->rnr_retries,
        .max_rd_atomic = c->reads,
        .silent = c->silent,
        .local = port->local,
        .src_port = port->src_port,
        .attr = {.flow_label = c->flow_label,
                 .traffic_class = c->traffic_class,
                 .hop_limit = c->hop_limit,
                 .sl = c->service_level},
    };
    memcpy(m.remote.b, c->gid, 16);
    vb_host_forget_default(nic, &m.attr);
    return m;
}

static int modify(struct vb_qp *qp, const struct vb_qpc_mods *m)
{
    return vb_device_qp_modify(qp->nic, qp->driver.qpn, m);
}

// Rights are the device's from INIT on; on the way to other states they are set anew.
static int go(struct vb_qp *qp, enum vb_qp_state from, struct vb_qpc_mods *m)
{
    const struct vb_qpc_mods to = *m;
    bool same = from == to.state && (from == VB_QPS_RTR || from == VB_QPS_RTS);
    int err = 0;

    if (to.state == VB_QPS_RESET) {
        vb_host_forget_life(qp);
        return 0;
    }
    if (from == VB_QPS_RESET && to.state == VB_QPS_ERR) { // which the device refuses
        m->state = VB_QPS_INIT;
        m->access = 0;
        err = modify(qp, m);
    }
    if (!err && !same)
        err = modify(qp, &to);
    if (!err && (to.state == VB_QPS_RTR || to.state == VB_QPS_RTS))
        err = vb_device_qp_tune(qp->nic, qp->driver.qpn, to.access, to.min_rnr_timer, to.qkey);
    return err;
}

int vb_qp_change(struct vb_qp *qp, const struct vb_qp_change *change)
{
    const uint32_t remote = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_ATOMIC |
                            VB_RIGHT_FLUSH_GLOBAL;
    enum vb_qp_state from;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (change->rights & ~remote || (unsigned)change->to > VB_QP_ERR || change->rnr_timer > 31)
        return -EINVAL;
    vb_host_lock(qp->nic);
    struct vb_qpc_mods m = mods_of(qp->nic, change);
    int err = vb_device_qp_state(qp->nic, qp->driver.qpn, &from);
    if (!err && change->to == VB_QP_RTR && qp->service != VB_SERVICE_UD)
        err = vb_host_local(qp->nic, change->local, change->gid, &m.local);
    if (!err)
        err = go(qp, from, &m);
    vb_host_collect(qp->send_cq->lane);
    vb_host_unlock(qp->nic);
    vb_host_run_soon(qp);
    return err;
}

int vb_qp_phase(struct vb_qp *qp, enum vb_qp_phase *phase)
{
    enum vb_qp_state state = VB_QPS_RESET;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    vb_host_lock(qp->nic);
    int err = vb_device_qp_state(qp->nic, qp->driver.qpn, &state);
    vb_host_unlock(qp->nic);
    *phase = (enum vb_qp_phase)state;
    return err;
}
