// SPDX-License-Identifier: Apache-2.0
// Datagram queue pairs in multicast groups. A unit's port joins a group for its first member, so
// that each unit gets a copy of its own.
#include "host/device.h"
#include "host/host.h"

#include <errno.h>
#include <string.h>

int vb_host_join_group(struct vb_lane *lane, uint32_t qpn, const struct vb_ip *group)
{
    struct vb_dev *dev = lane->nic->dev;

    if (!lane->port->ops->join)
        return -EOPNOTSUPP;
    int err = vb_dev_qp_attach(dev, qpn, group);
    if (err || vb_pu_members(lane->pu, group) > 1)
        return err;
    err = lane->port->ops->join(lane->port, group);
    if (err)
        vb_dev_qp_detach(dev, qpn, group);
    return err;
}

static void leave_if_last(const struct vb_lane *lane, const struct vb_ip *group)
{
    if (lane->port && vb_pu_members(lane->pu, group) == 0)
        lane->port->ops->leave(lane->port, group);
}

int vb_host_leave_group(struct vb_lane *lane, uint32_t qpn, const struct vb_ip *group)
{
    int err = vb_dev_qp_detach(lane->nic->dev, qpn, group);

    if (!err)
        leave_if_last(lane, group);
    return err;
}

void vb_host_leave_all_groups(struct vb_lane *lane, uint32_t qpn)
{
    struct vb_ip group;

    while (vb_dev_qp_leave(lane->nic->dev, qpn, &group))
        leave_if_last(lane, &group);
}

int vb_qp_attach(struct vb_qp *qp, const uint8_t gid[16])
{
    struct vb_ip group;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    memcpy(group.b, gid, 16);
    vb_host_lock(qp->nic);
    int err = qp->nic->attach ? vb_attach_qp_join(qp->nic->attach, qp->driver.qpn, &group)
                              : vb_host_join_group(qp->send_cq->lane, qp->driver.qpn, &group);
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
    memcpy(group.b, gid, 16);
    vb_host_lock(qp->nic);
    int err = qp->nic->attach ? vb_attach_qp_leave(qp->nic->attach, qp->driver.qpn, &group)
                              : vb_host_leave_group(qp->send_cq->lane, qp->driver.qpn, &group);
    vb_host_unlock(qp->nic);
    return err;
}

void vb_host_leave_groups(struct vb_qp *qp)
{
    if (!qp->nic->attach) // the hull sees to it
        vb_host_leave_all_groups(qp->send_cq->lane, qp->driver.qpn);
}
