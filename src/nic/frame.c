// SPDX-License-Identifier: Apache-2.0
// Addresses and paths.
#include "nic/frame.h"

#include "wire/roce.h"

#include <string.h>

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool vb_ip_is_v4(const struct vb_ip *ip)
{
    return memcmp(ip->b, v4_prefix, sizeof v4_prefix) == 0;
}

void vb_path_init(struct vb_path *path, const struct vb_ip *local, const struct vb_ip *remote,
                  uint16_t src_port)
{
    path->local = *local;
    path->remote = *remote;
    path->src_port = src_port;
    path->ipv4 = vb_ip_is_v4(remote);
    if (path->ipv4)
        vb_icrc_flow_init_v4(&path->icrc, local->b + 12, remote->b + 12, src_port,
                             VB_ROCE_UDP_PORT);
    else
        vb_icrc_flow_init_v6(&path->icrc, local->b, remote->b, src_port, VB_ROCE_UDP_PORT);
}
