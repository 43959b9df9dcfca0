// SPDX-License-Identifier: Apache-2.0
// A tenant's part of the NIC and of its threads: all its queue pairs are of one share of the
// device.
#include "hull/hull.h"

static struct vb_share_attr attr_of(const struct vb_hull_quota *quota)
{
    const uint64_t most_kbps = VB_SHARE_RATE_MAX / 125, kbps = quota->tenant_rate_kbps;

    return (struct vb_share_attr){.weight = (uint32_t)quota->weight,
                                  .rate_Bps = (kbps < most_kbps ? kbps : most_kbps) * 125};
}

int vb_hull_share_open(struct vb_hull *hull, struct vb_hull_tenant *tenant)
{
    const struct vb_share_attr attr = attr_of(&tenant->quota);

    vb_host_lock(hull->nic);
    int err = vb_dev_share_create(hull->nic->dev, &attr, &tenant->share);
    vb_host_unlock(hull->nic);
    return err;
}

// Without memory for it a rate is not kept by queue pairs that were made before there was one.
void vb_hull_share_change(struct vb_hull *hull, struct vb_hull_tenant *tenant)
{
    const struct vb_share_attr attr = attr_of(&tenant->quota);

    vb_host_lock(hull->nic);
    vb_dev_share_change(hull->nic->dev, tenant->share, &attr);
    vb_hull_units_told(hull);
    vb_host_unlock(hull->nic);
}

void vb_hull_share_close(struct vb_hull *hull, struct vb_hull_tenant *tenant)
{
    vb_host_lock(hull->nic);
    vb_dev_share_destroy(hull->nic->dev, tenant->share);
    vb_host_unlock(hull->nic);
}

bool vb_hull_allows(uint64_t turn, struct vb_hull_allowance *a, uint32_t most)
{
    if (a->turn != turn)
        *a = (struct vb_hull_allowance){.turn = turn};
    if (a->taken >= most)
        return false;
    a->taken++;
    return true;
}
