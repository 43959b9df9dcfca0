// SPDX-License-Identifier: Apache-2.0
// Paths of datagrams. Every datagram names its address, and most name one of a few: their paths are
// kept, by a hash.
#include "nic/pu.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash(const struct vb_ip *local, const struct vb_ip *to,
                     const struct vb_path_attr *attr)
{
    uint64_t word;

    memcpy(&word, attr, sizeof word);
    uint64_t h = (vb_get_be64(to->b) ^ vb_get_be64(to->b + 8) ^ vb_get_be64(local->b + 8) ^ word) *
                 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) & (VB_AH_PATHS - 1);
}

// Of a device on one address it is the queue pair's.
static const struct vb_ip *local_of(const struct vb_dev *dev, const struct vb_qpc *qp,
                                    const struct vb_ip *to, uint32_t source)
{
    if (__builtin_expect(dev->addresses == 0, 1))
        return &qp->local;
    return source - 1 < dev->addresses ? &dev->address[source - 1]
                                       : vb_dev_source(dev, to, &qp->local);
}

struct vb_path *vb_ah_path(struct vb_pu *pu, const struct vb_qpc *qp, const struct vb_ip *to,
                           const struct vb_wr *wr)
{
    const struct vb_path_attr attr = {.flow_label = wr->flow_label,
                                      .traffic_class = wr->traffic_class,
                                      .hop_limit = wr->hop_limit,
                                      .sl = wr->sl};
    const struct vb_ip *local = local_of(pu->dev, qp, to, wr->source);
    struct vb_path **slot = &pu->ah[hash(local, to, &attr)], *path = *slot;

    if (path && vb_ip_equal(&path->remote, to) && vb_ip_equal(&path->local, local) &&
        vb_path_attr_equal(&path->attr, &attr))
        return path;
    if (vb_ip_is_v4(to) != vb_ip_is_v4(local))
        return NULL;
    path = malloc(sizeof *path);
    if (!path)
        return NULL;
    vb_path_init(path, local, to, qp->src_port);
    path->attr = attr;
    if (*slot)
        vb_pu_retire_path(pu, *slot);
    *slot = path;
    return path;
}

void vb_ah_fini(struct vb_pu *pu)
{
    for (uint32_t i = 0; i < VB_AH_PATHS; i++)
        free(pu->ah[i]);
}
