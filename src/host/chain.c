// SPDX-License-Identifier: Apache-2.0
// Queue pairs of chain programs from inside: rings that are written directly, opened by hand,
// registered as memory, and connected with themselves.
#include "host/device.h"
#include "host/host.h"

#include <errno.h>

int vb_qp_connect_self(struct vb_qp *qp, uint32_t rights)
{
    struct vb_qp_peer self = {.qpn = qp->driver.qpn, .rights = rights};

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (!qp->driver.cross)
        return -EINVAL;
    vb_nic_gid(qp->nic, self.gid);
    return vb_qp_connect(qp, &self);
}

int vb_qp_rings(const struct vb_qp *qp, struct vb_qp_rings *rings)
{
    const struct vb_driver_qp *d = &qp->driver;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    *rings = (struct vb_qp_rings){.send = d->sq.ring,
                                  .send_blocks = d->sq.blocks,
                                  .recv_entries = d->rq.entries,
                                  .recv_stride = d->rq.stride,
                                  .recv = d->rq.ring,
                                  .send_count = d->sq.pi,
                                  .recv_count = d->rq.pi,
                                  .qpn = d->qpn};
    return 0;
}

int vb_qp_open(struct vb_qp *qp, bool receive, uint64_t count)
{
    atomic_bool *busy = receive ? &qp->receiving : &qp->sending;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (!vb_host_enter(busy))
        return -EBUSY; // a signal handler has interrupted a call on this queue
    int err =
        receive ? vb_driver_open_recv(&qp->driver, count) : vb_driver_open_send(&qp->driver, count);
    vb_host_leave(busy);
    if (!err)
        vb_host_run_soon(qp);
    return err;
}

// ---- code regions

int vb_qp_code(struct vb_qp *qp, enum vb_ring ring, uint32_t rights, struct vb_mr **out)
{
    const struct vb_driver_qp *d = &qp->driver;
    bool send = ring == VB_RING_SEND;
    struct vb_mr *mr;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if ((!send && (ring != VB_RING_RECV || !d->rq.ring)) || rights & VB_RIGHT_BIND)
        return -EINVAL;
    size_t bytes =
        send ? (size_t)d->sq.blocks * VB_WQEBB_BYTES : (size_t)d->rq.entries * d->rq.stride;
    int err = vb_mr_reg(qp->pd, send ? d->sq.ring : d->rq.ring, bytes, rights, &mr);
    if (err)
        return err;
    mr->code = true;
    vb_host_lock(qp->nic);
    vb_fifo_push(&qp->code, &mr->code_link);
    vb_host_unlock(qp->nic);
    *out = mr;
    return 0;
}

void vb_host_end_code(struct vb_qp *qp)
{
    struct vb_link *link;

    while ((link = vb_fifo_first(&qp->code))) {
        struct vb_mr *mr = VB_CONTAINER_OF(link, struct vb_mr, code_link);
        vb_link_remove(link);
        vb_device_mkey_destroy(qp->nic, mr->key); // no window can be bound to it
        mr->dead = true;
    }
}
