// SPDX-License-Identifier: Apache-2.0
// Multicast groups: which datagram queue pairs get a copy of what comes to an address.
#include "nic/pu.h"

#include <errno.h>
#include <stdlib.h>

enum {
    MEMBERS_MAX = 4096
};

bool vb_ip_is_multicast(const struct vb_ip *ip)
{
    return vb_ip_is_v4(ip) ? ip->b[12] >> 4 == 14 : ip->b[0] == 0xff;
}

static struct vb_member *find(struct vb_dev *dev, uint32_t qpn, const struct vb_ip *group)
{
    for (uint32_t i = 0; i < dev->members; i++)
        if (dev->member[i].qp->qpn == qpn && (!group || vb_ip_equal(&dev->member[i].group, group)))
            return &dev->member[i];
    return NULL;
}

int vb_dev_qp_attach(struct vb_dev *dev, uint32_t qpn, const struct vb_ip *group)
{
    struct vb_qpc *qp = vb_dev_qp(dev, qpn);

    if (!qp)
        return -ENOENT;
    if (qp->type != VB_QPT_UD || !vb_ip_is_multicast(group))
        return -EINVAL;
    if (find(dev, qpn, group))
        return -EEXIST;
    if (dev->members == dev->member_room) {
        uint32_t room = dev->member_room ? 2 * dev->member_room : 16;
        struct vb_member *m = room <= MEMBERS_MAX ? realloc(dev->member, room * sizeof *m) : NULL;
        if (!m)
            return -ENOMEM;
        dev->member = m;
        dev->member_room = room;
    }
    dev->member[dev->members++] = (struct vb_member){*group, qp};
    return 0;
}

// The order of the others stays, for a frame of which some have had their copy.
static void drop(struct vb_dev *dev, struct vb_member *m)
{
    dev->members--;
    memmove(m, m + 1, (size_t)(dev->member + dev->members - m) * sizeof *m);
}

int vb_dev_qp_detach(struct vb_dev *dev, uint32_t qpn, const struct vb_ip *group)
{
    struct vb_member *m = find(dev, qpn, group);

    if (!m)
        return -ENOENT;
    drop(dev, m);
    return 0;
}

bool vb_dev_qp_leave(struct vb_dev *dev, uint32_t qpn, struct vb_ip *group)
{
    struct vb_member *m = find(dev, qpn, NULL);

    if (!m)
        return false;
    *group = m->group;
    drop(dev, m);
    return true;
}

struct vb_qpc *vb_group_member(const struct vb_pu *pu, const struct vb_ip *group, uint32_t *at)
{
    const struct vb_dev *dev = pu->dev;

    while (*at < dev->members) {
        const struct vb_member *m = &dev->member[(*at)++];
        if (m->qp->pu == pu && vb_ip_equal(&m->group, group))
            return m->qp;
    }
    return NULL;
}

uint32_t vb_pu_members(const struct vb_pu *pu, const struct vb_ip *group)
{
    uint32_t at = 0, count = 0;
    while (vb_group_member(pu, group, &at))
        count++;
    return count;
}
