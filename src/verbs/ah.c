// SPDX-License-Identifier: Apache-2.0
// Address handles: where datagrams go.
#include "verbs/verbs.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
    IP_VERSION_4 = 4,
    IP_VERSION_6 = 6,
    V4_AT = 20, // an IPv4 header fills the second half of the GRH's 40 bytes
    HOP_LIMIT = 64,
    FLOW_LABEL_MAX = 0xfffff,
};

const char *vb_verbs_judge_path(struct ibv_context *context, const struct ibv_ah_attr *attr,
                                int *error)
{
    if (!attr->is_global)
        return "the path needs the peer's GID (RoCE): give is_global and grh.dgid";
    if (attr->grh.sgid_index >= vb_verbs_of(context)->gids.count)
        return "there is no GID of that sgid_index";
    if (attr->grh.flow_label > FLOW_LABEL_MAX)
        return "a flow label has 20 bits";
    if (attr->sl > VB_WQE_SL_MAX)
        return "service levels are 0 to 6, the priorities that a socket may have";
    if (attr->static_rate) {
        *error = EOPNOTSUPP;
        return "paths have no rate: limit the queue pair (IBV_QP_RATE_LIMIT)";
    }
    return NULL;
}

// Programs ask for one hop whatever the distance (ibv_rc_pingpong does), since Linux takes the
// route's hop limit for RoCE, not theirs. So 1 is the system's, too.
uint8_t vb_verbs_hop_limit(const struct ibv_ah_attr *attr)
{
    return attr->grh.hop_limit > 1 ? attr->grh.hop_limit : 0;
}

VB_VERBS_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct vb_verbs_ah *ah = NULL;
    int error = EINVAL;
    const char *why = attr->port_num == VB_VERBS_PORT
                          ? vb_verbs_judge_path(pd->context, attr, &error)
                          : "there is only port 1";

    if (why)
        ah = NULL;
    else if (vb_verbs_take_gid(pd->context, attr->grh.sgid_index, "ibv_create_ah") != 0)
        return NULL;
    else
        ah = calloc(1, sizeof *ah);
    if (!ah) {
        vb_verbs_fail(why ? error : ENOMEM, "ibv_create_ah", why);
        return NULL;
    }
    ah->ah.context = pd->context;
    ah->ah.pd = pd;
    memcpy(ah->to.gid, attr->grh.dgid.raw, sizeof ah->to.gid);
    ah->to.source = vb_verbs_gid_source(pd->context, attr->grh.sgid_index);
    ah->to.flow_label = attr->grh.flow_label;
    ah->to.traffic_class = attr->grh.traffic_class;
    ah->to.hop_limit = vb_verbs_hop_limit(attr);
    ah->to.service_level = attr->sl;
    return &ah->ah;
}

VB_VERBS_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
    free(VB_VERBS_CAST(vb_verbs_ah, ah));
    return 0;
}

static void map_v4(union ibv_gid *gid, const uint8_t address[4])
{
    memset(gid, 0, sizeof *gid);
    gid->raw[10] = gid->raw[11] = 0xff;
    memcpy(gid->raw + 12, address, 4);
}

// From what a datagram brought in front of its bytes: the IP header.
VB_VERBS_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port,
                                        struct ibv_wc *wc, struct ibv_grh *grh,
                                        struct ibv_ah_attr *attr)
{
    const uint8_t *head = (const uint8_t *)grh;
    union ibv_gid to;

    memset(attr, 0, sizeof *attr);
    attr->port_num = port;
    attr->sl = wc->sl;
    attr->dlid = wc->slid;
    if (!(wc->wc_flags & IBV_WC_GRH)) {
        errno = EINVAL; // nothing says where it came from
        return -1;
    }
    attr->is_global = 1;
    attr->grh.hop_limit = HOP_LIMIT;
    if (head[0] >> 4 == IP_VERSION_6) {
        attr->grh.dgid = grh->sgid;
        attr->grh.flow_label = ntohl(grh->version_tclass_flow) & 0xfffff;
        attr->grh.traffic_class = (uint8_t)(ntohl(grh->version_tclass_flow) >> 20);
        attr->grh.sgid_index = (uint8_t)vb_verbs_find_gid(context, &grh->dgid, &grh->sgid);
        return 0;
    }
    if (head[V4_AT] >> 4 != IP_VERSION_4) {
        errno = EINVAL;
        return -1;
    }
    attr->grh.traffic_class = head[V4_AT + 1];
    map_v4(&attr->grh.dgid, head + V4_AT + 12);
    map_v4(&to, head + V4_AT + 16);
    attr->grh.sgid_index = (uint8_t)vb_verbs_find_gid(context, &to, &attr->grh.dgid);
    return 0;
}

VB_VERBS_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                                     struct ibv_grh *grh, uint8_t port)
{
    struct ibv_ah_attr attr;

    return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? ibv_create_ah(pd, &attr)
                                                                       : NULL;
}

// Addresses of links are the kernel's business: packets leave through sockets.
VB_VERBS_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context,
                                                struct ibv_ah_attr *attr,
                                                uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vlan)
{
    (void)context, (void)attr, (void)mac, (void)vlan;
    return vb_verbs_fail(EOPNOTSUPP, "ibv_resolve_eth_l2_from_gid", "links are not seen from here");
}
