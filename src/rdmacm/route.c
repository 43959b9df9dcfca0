// SPDX-License-Identifier: Apache-2.0
// Routes: resolved, and told as the path record of an id.
#include "rdmacm/rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>

enum {
    EXACTLY = 2,      // the selector of an mtu, a rate or a life time
    PACKET_LIFE = 14, // 67 ms
};

// ---- what the port says; no lock is held

// Of the widths and speeds that ports have (verbs/query.c).
static enum ibv_rate rate_of(const struct ibv_port_attr *port)
{
    static const struct {
        uint8_t width, speed;
        enum ibv_rate rate;
    } rates[] = {
        {1, 1, IBV_RATE_2_5_GBPS},  {1, 2, IBV_RATE_5_GBPS},     {1, 8, IBV_RATE_10_GBPS},
        {2, 2, IBV_RATE_20_GBPS},   {1, 32, IBV_RATE_25_GBPS},   {2, 8, IBV_RATE_40_GBPS},
        {1, 64, IBV_RATE_50_GBPS},  {2, 16, IBV_RATE_56_GBPS},   {2, 32, IBV_RATE_100_GBPS},
        {2, 64, IBV_RATE_200_GBPS}, {2, 128, IBV_RATE_400_GBPS},
    };

    for (size_t n = 0; n < sizeof rates / sizeof rates[0]; n++)
        if (rates[n].width == port->active_width && rates[n].speed == port->active_speed)
            return rates[n].rate;
    return IBV_RATE_2_5_GBPS;
}

static void query_port(const struct vb_rdmacm_id *i, struct ibv_port_attr *port)
{
    if (!i->id.verbs || ibv_query_port(i->id.verbs, VB_RDMACM_PORT, port) != 0)
        *port = (struct ibv_port_attr){.active_mtu = IBV_MTU_1024};
}

// ---- resolved

// Needs the lock.
static int resolve(struct vb_rdmacm_id *i, const struct ibv_port_attr *port)
{
    struct rdma_route *route = &i->id.route;

    if (i->state != VB_RDMACM_ADDR_RESOLVED)
        return EINVAL;
    i->path.mtu = (uint8_t)port->active_mtu;
    i->path_rec = (struct ibv_sa_path_rec){
        .sgid = route->addr.addr.ibaddr.sgid,
        .dgid = route->addr.addr.ibaddr.dgid,
        .hop_limit = VB_RDMACM_HOPS,
        .traffic_class = i->tos,
        .reversible = 1,
        .numb_path = 1,
        .pkey = htons(VB_CM_PKEY),
        .mtu_selector = EXACTLY,
        .mtu = i->path.mtu,
        .rate_selector = EXACTLY,
        .rate = (uint8_t)rate_of(port),
        .packet_life_time_selector = EXACTLY,
        .packet_life_time = PACKET_LIFE,
    };
    route->path_rec = &i->path_rec;
    route->num_paths = 1;
    i->state = VB_RDMACM_ROUTE_RESOLVED;
    vb_rdmacm_tell(i, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    return 0;
}

VB_RAW_EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);
    struct ibv_port_attr port;

    (void)timeout_ms;
    if (vb_rdmacm_refuse_foreign(i, "rdma_resolve_route"))
        return -1;
    query_port(i, &port);
    vb_rdmacm_lock();
    int error = resolve(i, &port);
    vb_rdmacm_unlock();
    if (error)
        return vb_rdmacm_fail(error, "rdma_resolve_route", "the address is not resolved");
    return vb_rdmacm_complete(i, "rdma_resolve_route");
}
