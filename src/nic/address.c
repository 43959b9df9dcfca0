// SPDX-License-Identifier: Apache-2.0
// A NIC on several addresses: which one its frames to a peer leave from.
#include "nic/pu.h"

#include <errno.h>

// Addresses of one kind reach each other; others may not.
enum kind {
    KIND_V4,
    KIND_V6,
    KIND_LOOPBACK_V4,
    KIND_LOOPBACK_V6,
};

static enum kind kind_of(const struct vb_ip *ip)
{
    static const struct vb_ip loopback = {{[15] = 1}};

    if (vb_ip_is_v4(ip))
        return ip->b[12] == 127 ? KIND_LOOPBACK_V4 : KIND_V4;
    return vb_ip_equal(ip, &loopback) ? KIND_LOOPBACK_V6 : KIND_V6;
}

int vb_dev_add_address(struct vb_dev *dev, const struct vb_ip *ip)
{
    if (dev->addresses == VB_DEV_ADDRESSES)
        return -ENOSPC;
    dev->address[dev->addresses++] = *ip;
    return 0;
}

bool vb_dev_address(const struct vb_dev *dev, uint32_t i, struct vb_ip *ip)
{
    if (i >= dev->addresses)
        return false;
    *ip = dev->address[i];
    return true;
}

const struct vb_ip *vb_dev_source(const struct vb_dev *dev, const struct vb_ip *to,
                                  const struct vb_ip *first)
{
    const struct vb_ip *found = NULL;

    for (uint32_t i = 0; i < dev->addresses; i++) {
        const struct vb_ip *ip = &dev->address[i];
        if (kind_of(ip) == kind_of(to))
            return ip;
        if (!found && vb_ip_is_v4(ip) == vb_ip_is_v4(to))
            found = ip;
    }
    return found ? found : first;
}
