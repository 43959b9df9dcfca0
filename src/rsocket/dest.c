// SPDX-License-Identifier: Apache-2.0
// Peers of datagrams. The first ones go by UDP with our queue pair's number in front; the peer's
// answer has its number, and from then on they go between queue pairs.
#include "rsocket/datagram.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum {
    RESOLVE_MS = 2000,
    GIDS = 64,
    HOP_LIMIT = 64,
    PIECES = 8,
};

static void free_dest(struct vb_rs_dest *dest)
{
    if (dest->ah)
        ibv_destroy_ah(dest->ah);
    free(dest);
}

// Whoever sends to us by UDP becomes a peer, so there is an end to their number.
static bool make_room(struct vb_rs_datagrams *d)
{
    if (d->dest_count < VB_RS_DESTS)
        return true;
    struct vb_rs_dest *oldest = vb_rs_dests_take_idle(d);
    if (oldest)
        free_dest(oldest);
    return oldest;
}

int vb_rs_dest_for(struct vb_rsocket *rs, const struct sockaddr *to, socklen_t len,
                   struct vb_rs_dest **found)
{
    struct vb_rs_datagrams *d = rs->datagrams;

    if (!to || len < sizeof(struct sockaddr_in))
        return -EINVAL;
    if (to->sa_family != rs->domain || len < vb_rs_address_bytes(to))
        return -EAFNOSUPPORT;
    struct vb_rs_dest *dest = vb_rs_dests_find(d, to);
    if (dest) {
        *found = dest;
        return 0;
    }
    struct vb_rs_lane *lane;
    int err = vb_rs_lane_for(rs, to, &lane);
    if (err)
        return err;
    if (!make_room(d))
        return -ENOBUFS;
    dest = calloc(1, sizeof *dest);
    if (!dest)
        return -ENOMEM;
    dest->lane = lane;
    memcpy(&dest->addr, to, vb_rs_address_bytes(to));
    vb_rs_dests_add(d, dest);
    *found = dest;
    return 0;
}

void vb_rs_dests_free(struct vb_rs_datagrams *d)
{
    while (d->dests) {
        struct vb_rs_dest *dest = d->dests;
        d->dests = dest->next;
        free_dest(dest);
    }
}

static uint8_t gid_index(const struct rdma_cm_id *id, const union ibv_gid *sgid)
{
    union ibv_gid gid;

    for (int i = 0; i < GIDS; i++) {
        if (ibv_query_gid(id->verbs, id->port_num, i, &gid))
            break;
        if (memcmp(&gid, sgid, sizeof gid) == 0)
            return (uint8_t)i;
    }
    return 0;
}

// The connection manager knows the peer's GID once it has found the way.
static struct ibv_ah *find_way(const struct vb_rs_dest *dest)
{
    struct sockaddr_storage from = dest->lane->own, to = dest->addr;
    struct rdma_cm_id *id;
    struct ibv_ah *ah = NULL;

    if (from.ss_family == AF_INET)
        ((struct sockaddr_in *)&from)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&from)->sin6_port = 0;
    if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP))
        return NULL;
    if (rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, RESOLVE_MS) == 0 &&
        rdma_resolve_route(id, RESOLVE_MS) == 0) {
        const struct rdma_ib_addr *ib = &id->route.addr.addr.ibaddr;
        struct ibv_ah_attr attr = {.is_global = 1, .port_num = dest->lane->id->port_num};
        attr.grh.dgid = ib->dgid;
        attr.grh.sgid_index = gid_index(dest->lane->id, &ib->sgid);
        attr.grh.hop_limit = HOP_LIMIT;
        ah = ibv_create_ah(dest->lane->id->qp->pd, &attr);
    }
    rdma_destroy_id(id);
    return ah;
}

static void learn(struct vb_rs_dest *dest, uint32_t qpn)
{
    if (dest->ah && dest->qpn == qpn)
        return;
    if (!dest->ah)
        dest->ah = find_way(dest);
    dest->qpn = qpn;
}

// The peer is to see the address of our device, whichever the system would take.
static void set_source(struct msghdr *msg, const struct sockaddr_storage *own)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);

    if (own->ss_family == AF_INET) {
        struct in_pktinfo info = {.ipi_spec_dst = ((const struct sockaddr_in *)own)->sin_addr};
        *c = (struct cmsghdr){CMSG_LEN(sizeof info), IPPROTO_IP, IP_PKTINFO};
        memcpy(CMSG_DATA(c), &info, sizeof info);
        msg->msg_controllen = CMSG_SPACE(sizeof info);
    } else {
        struct in6_pktinfo info = {.ipi6_addr = ((const struct sockaddr_in6 *)own)->sin6_addr};
        *c = (struct cmsghdr){CMSG_LEN(sizeof info), IPPROTO_IPV6, IPV6_PKTINFO};
        memcpy(CMSG_DATA(c), &info, sizeof info);
        msg->msg_controllen = CMSG_SPACE(sizeof info);
    }
}

int vb_rs_dest_send_udp(struct vb_rsocket *rs, const struct vb_rs_dest *dest, enum vb_rs_op op,
                        const struct iovec *iov, int count, int flags)
{
    struct vb_rs_udp_header h = {(uint8_t)op, dest->lane->id->qp->qp_num};
    struct sockaddr_storage to = dest->addr;
    uint8_t bytes[VB_RS_UDP_HEADER6];
    struct iovec pieces[PIECES + 1] = {{.iov_base = bytes}};
    union {
        struct cmsghdr align;
        uint8_t room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    } control = {0};

    if (count > PIECES)
        return -ENOTSUP;
    pieces[0].iov_len = vb_rs_udp_encode(&h, (const struct sockaddr *)&dest->lane->own, bytes);
    if (count)
        memcpy(&pieces[1], iov, (size_t)count * sizeof *iov);
    struct msghdr msg = {.msg_name = &to,
                         .msg_namelen = vb_rs_address_bytes((struct sockaddr *)&to),
                         .msg_iov = pieces,
                         .msg_iovlen = (size_t)count + 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    set_source(&msg, &dest->lane->own);
    return sendmsg(rs->fd, &msg, flags | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void keep(struct vb_rs_datagrams *d, const uint8_t *data, size_t bytes,
                 const struct sockaddr_storage *from)
{
    struct vb_rs_arrival a = {.bytes = (uint32_t)bytes, .from = *from};

    if (d->early == VB_RS_EARLY)
        return; // as any full socket does
    a.data = malloc(bytes + 1);
    if (!a.data)
        return;
    memcpy(a.data, data, bytes);
    if (vb_rs_arrival_push(d, &a))
        d->early++;
    else
        free(a.data);
}

static void take(struct vb_rsocket *rs, const uint8_t *bytes, size_t len_bytes,
                 const struct sockaddr_storage *from)
{
    struct vb_rs_udp_header h;
    struct vb_rs_dest *dest;
    size_t header = vb_rs_udp_decode(bytes, len_bytes, from->ss_family, &h);

    if (!header || !vb_rs_is_wanted(rs->datagrams, from) ||
        vb_rs_dest_for(rs, (const struct sockaddr *)from, sizeof *from, &dest))
        return;
    if (h.op == VB_RS_DATA)
        vb_rs_dest_send_udp(rs, dest, VB_RS_CTRL, NULL, 0, MSG_DONTWAIT);
    learn(dest, h.qpn);
    if (h.op == VB_RS_DATA)
        keep(rs->datagrams, bytes + header, len_bytes - header, from);
}

void vb_rs_dest_listen(struct vb_rsocket *rs)
{
    uint8_t bytes[VB_RS_SLOT_BYTES];
    struct sockaddr_storage from;

    for (int i = 0; i < VB_RS_EARLY; i++) {
        socklen_t len = sizeof from;
        memset(&from, 0, sizeof from);
        ssize_t got =
            recvfrom(rs->fd, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&from, &len);
        if (got < 0 && errno != ECONNREFUSED)
            return;
        if (got > 0)
            take(rs, bytes, (size_t)got, &from);
    }
}
