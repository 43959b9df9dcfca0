// SPDX-License-Identifier: Apache-2.0
// Datagram queue pairs in multicast groups. A unit's port joins a group for its first member, so
// that each unit gets a copy of its own.
#include "host/device.h"
#include "host/host.h"

#include <errno.h>
#include <string.h>

// Needs the locks.
static int attach(struct vb_qp *qp, const struct vb_ip *group)
{
    const struct vb_lane *lane = qp->send_cq->lane;
    struct vb_dev *dev = qp->nic->dev;

    if (!lane->port->ops->join)
        return -EOPNOTSUPP;
    int err = vb_dev_qp_attach(dev, qp->driver.qpn, group);
    if (err || vb_pu_members(lane->pu, group) > 1)
        return err;
    err = lane->port->ops->join(lane->port, group);
    if (err)
        vb_dev_qp_detach(dev, qp->driver.qpn, group);
    return err;
}

static void leave_if_last(const struct vb_lane *lane, const struct vb_ip *group)
{
    if (lane->port && vb_pu_members(lane->pu, group) == 0)
        lane->port->ops->leave(lane->port, group);
}

int vb_qp_attach(struct vb_qp *qp, const uint8_t gid[16])
{
    struct vb_ip group;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    int local = vb_device_is_local(qp->nic, "multicast groups");
    if (local)
        return local;
    memcpy(group.b, gid, 16);
    vb_host_lock(qp->nic);
    int err = attach(qp, &group);
    vb_host_unlock(qp->nic);
    if (!err)
        vb_helper_notice(qp->nic, UINT32_MAX); // it sleeps on another descriptor from now on
    return err;
}

int vb_qp_detach(struct vb_qp *qp, const uint8_t gid[16])
{
    struct vb_ip group;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (qp->nic->attach)
        return -ENOENT;
    memcpy(group.b, gid, 16);
    vb_host_lock(qp->nic);
    int err = vb_dev_qp_detach(qp->nic->dev, qp->driver.qpn, &group);
    if (!err)
        leave_if_last(qp->send_cq->lane, &group);
    vb_host_unlock(qp->nic);
    return err;
}

void vb_host_leave_groups(struct vb_qp *qp)
{
    struct vb_ip group;

    if (qp->nic->attach)
        return; // it is in none
    while (vb_dev_qp_leave(qp->nic->dev, qp->driver.qpn, &group))
        leave_if_last(qp->send_cq->lane, &group);
}
