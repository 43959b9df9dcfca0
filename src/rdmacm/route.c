// SPDX-License-Identifier: Apache-2.0
// Routes: resolved or given by the program, and told as the path record of an id.
#include "rdmacm/rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum {
    EXACTLY = 2,     // the selector of an mtu, a rate or a life time
    SIX_BITS = 0x3f, // what follows it
    SL_MAX = 6,
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
    if (!i->path.mtu)
        i->path.mtu = (uint8_t)port->active_mtu;
    i->path_rec = (struct ibv_sa_path_rec){
        .sgid = route->addr.addr.ibaddr.sgid,
        .dgid = route->addr.addr.ibaddr.dgid,
        .flow_label = htonl(i->flow_label),
        .hop_limit = i->hops,
        .traffic_class = i->tos,
        .reversible = 1,
        .numb_path = 1,
        .pkey = htons(VB_CM_PKEY),
        .sl = i->sl,
        .mtu_selector = EXACTLY,
        .mtu = i->path.mtu,
        .rate_selector = EXACTLY,
        .rate = (uint8_t)rate_of(port),
        .packet_life_time_selector = EXACTLY,
        .packet_life_time = i->life,
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

// ---- given

#define USABLE (IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL)

// NULL, or why it cannot be the id's path.
static const char *judge(const struct vb_rdmacm_id *i, const struct ibv_path_data *given,
                         const struct ibv_port_attr *port)
{
    const struct rdma_ib_addr *gids = &i->id.route.addr.addr.ibaddr;
    const struct ibv_path_record *path = &given->path;
    uint16_t level = ntohs(path->qosclass_sl);
    uint8_t mtu = path->mtu & SIX_BITS;

    if (i->state != VB_RDMACM_ADDR_RESOLVED)
        return "the address is not resolved, or the route is already";
    if (given->flags != USABLE)
        return "the flags of a path are GMP, PRIMARY and BIDIRECTIONAL";
    if (memcmp(&path->sgid, &gids->sgid, sizeof path->sgid) != 0 ||
        memcmp(&path->dgid, &gids->dgid, sizeof path->dgid) != 0)
        return "the path's GIDs are not those of the id";
    if (path->slid || path->dlid || path->service_id)
        return "paths of RoCE have no LIDs and no service";
    if (path->pkey != htons(VB_CM_PKEY))
        return "the only partition is 0xffff";
    if (level > SL_MAX)
        return "service levels are 0 to 6, and there are no classes of service";
    if (mtu < IBV_MTU_256 || mtu > port->active_mtu)
        return "the path's MTU is 256 to the port's";
    return NULL;
}

// A static rate, which address vectors are refused, too.
static bool is_slower(const struct ibv_path_data *given, const struct ibv_port_attr *port)
{
    uint8_t rate = given->path.rate & SIX_BITS;
    return rate && ibv_rate_to_mbps((enum ibv_rate)rate) < ibv_rate_to_mbps(rate_of(port));
}

static void take(struct vb_rdmacm_id *i, const struct ibv_path_record *path)
{
    uint32_t label_and_hops = ntohl(path->flowlabel_hoplimit);

    i->tos = path->tclass;
    i->hops = (uint8_t)label_and_hops;
    i->flow_label = label_and_hops >> 8 & 0xfffff;
    i->sl = (uint8_t)ntohs(path->qosclass_sl);
    i->life = path->packetlifetime & SIX_BITS;
    i->path.mtu = path->mtu & SIX_BITS;
}

// The first usable one, as in the kernel, or the last one, which judge() refuses.
static struct ibv_path_data choose(const uint8_t *value, size_t len)
{
    struct ibv_path_data path = {0};

    for (size_t at = 0; at < len && path.flags != USABLE; at += sizeof path)
        memcpy(&path, value + at, sizeof path);
    return path;
}

int vb_rdmacm_take_path(struct vb_rdmacm_id *i, const void *value, size_t len)
{
    struct ibv_port_attr port;

    if (len == 0 || len % sizeof(struct ibv_path_data) != 0)
        return vb_rdmacm_fail(EINVAL, "rdma_set_option", "these are no whole paths");
    struct ibv_path_data given = choose(value, len);
    query_port(i, &port);
    vb_rdmacm_lock();
    const char *why = judge(i, &given, &port);
    bool slower = !why && is_slower(&given, &port);
    if (!why && !slower) {
        take(i, &given.path);
        resolve(i, &port);
        i->path_rec.preference = given.path.preference;
    }
    vb_rdmacm_unlock();
    if (why)
        return vb_rdmacm_fail(EINVAL, "rdma_set_option", why);
    if (slower)
        return vb_rdmacm_fail(EOPNOTSUPP, "rdma_set_option", "the rate is below the port's");
    return vb_rdmacm_complete(i, "rdma_set_option");
}

struct ibv_ah_attr vb_rdmacm_vector(const struct vb_rdmacm_id *i, const struct vb_ip *to)
{
    int index = vb_rdmacm_calls()->address_index(i->id.verbs, i->from.ip.b);
    struct ibv_ah_attr vector = {.is_global = 1,
                                 .port_num = VB_RDMACM_PORT,
                                 .sl = i->sl,
                                 .grh = {.sgid_index = index > 0 ? (uint8_t)index : 0,
                                         .hop_limit = i->hops,
                                         .traffic_class = i->tos,
                                         .flow_label = i->flow_label}};

    memcpy(vector.grh.dgid.raw, to->b, sizeof vector.grh.dgid.raw);
    return vector;
}
