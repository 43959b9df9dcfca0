// SPDX-License-Identifier: Apache-2.0
// The queue pair of a datagram rsocket on one local address.
#include "rsocket/datagram.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECEIVE_BYTES = VB_RS_GRH_BYTES + VB_RS_SLOT_BYTES,
    RESOLVE_MS = 2000,
};

static bool is_any(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static in_port_t *port_of(struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET ? &((struct sockaddr_in *)a)->sin_port
                                   : &((struct sockaddr_in6 *)a)->sin6_port;
}

// The device's address that a peer is reached from.
static int ask_route(const struct sockaddr *to, struct sockaddr_storage *own)
{
    struct sockaddr_storage copy = {0};
    struct rdma_cm_id *id;
    int err = 0;

    memcpy(&copy, to, vb_rs_address_bytes(to));
    if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP))
        return -errno;
    if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&copy, RESOLVE_MS))
        err = -errno;
    const struct sockaddr *local = rdma_get_local_addr(id);
    memset(own, 0, sizeof *own);
    if (!err)
        memcpy(own, local, vb_rs_address_bytes(local));
    rdma_destroy_id(id);
    return err;
}

// Our address towards a peer, with the port that peers know us by.
static int own_address(struct vb_rsocket *rs, const struct sockaddr *to,
                       struct sockaddr_storage *own)
{
    struct sockaddr_storage bound = {.ss_family = (sa_family_t)rs->domain};
    socklen_t len = sizeof bound;

    if (getsockname(rs->fd, (struct sockaddr *)&bound, &len))
        return -errno;
    if (!*port_of(&bound)) {
        if (bind(rs->fd, (struct sockaddr *)&bound, vb_rs_address_bytes((struct sockaddr *)&bound)))
            return -errno;
        len = sizeof bound;
        if (getsockname(rs->fd, (struct sockaddr *)&bound, &len))
            return -errno;
    }
    *own = bound;
    int err = is_any(&bound) ? ask_route(to, own) : 0;
    if (!err)
        *port_of(own) = *port_of(&bound);
    return err;
}

static int create_queue_pair(struct vb_rsocket *rs, struct vb_rs_lane *lane)
{
    const struct vb_rs_datagrams *d = rs->datagrams;

    lane->channel = ibv_create_comp_channel(lane->id->verbs);
    if (!lane->channel)
        return -errno;
    if (fcntl(lane->channel->fd, F_SETFL, fcntl(lane->channel->fd, F_GETFL) | O_NONBLOCK))
        return -errno;
    lane->cq = ibv_create_cq(lane->id->verbs, d->sq + d->rq, lane, lane->channel, 0);
    if (!lane->cq)
        return -errno;
    struct ibv_qp_init_attr attr = {
        .qp_context = rs,
        .send_cq = lane->cq,
        .recv_cq = lane->cq,
        .cap = {.max_send_wr = d->sq,
                .max_recv_wr = d->rq,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = rs->size.inline_bytes},
        .qp_type = IBV_QPT_UD,
        .sq_sig_all = 1,
    };
    if (rdma_create_qp(lane->id, NULL, &attr))
        return -errno;
    rs->size.inline_bytes = (uint16_t)attr.cap.max_inline_data;
    return 0;
}

int vb_rs_lane_receive(struct vb_rs_lane *lane, uint32_t slot)
{
    struct ibv_sge sge = {.addr = (uintptr_t)(lane->recv + (size_t)slot * RECEIVE_BYTES),
                          .length = RECEIVE_BYTES,
                          .lkey = lane->recv_mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = VB_RS_RECEIVE_ID | slot, .sg_list = &sge, .num_sge = 1};

    return -ibv_post_recv(lane->id->qp, &wr, &bad);
}

static int create_memory(struct vb_rsocket *rs, struct vb_rs_lane *lane)
{
    const struct vb_rs_datagrams *d = rs->datagrams;
    struct ibv_pd *pd = lane->id->qp->pd;
    int err = 0;

    lane->recv = calloc(d->rq, RECEIVE_BYTES);
    if (!lane->recv)
        return -ENOMEM;
    lane->send_mr =
        ibv_reg_mr(pd, d->send, (size_t)d->sq * VB_RS_SLOT_BYTES, IBV_ACCESS_LOCAL_WRITE);
    lane->recv_mr =
        ibv_reg_mr(pd, lane->recv, (size_t)d->rq * RECEIVE_BYTES, IBV_ACCESS_LOCAL_WRITE);
    if (!lane->send_mr || !lane->recv_mr)
        return -errno;
    for (uint32_t i = 0; i < d->rq && !err; i++)
        err = vb_rs_lane_receive(lane, i);
    return err;
}

void vb_rs_lane_close(struct vb_rs_lane *lane)
{
    if (lane->id && lane->id->qp)
        rdma_destroy_qp(lane->id);
    if (lane->send_mr)
        ibv_dereg_mr(lane->send_mr);
    if (lane->recv_mr)
        ibv_dereg_mr(lane->recv_mr);
    if (lane->cq)
        ibv_destroy_cq(lane->cq);
    if (lane->channel)
        ibv_destroy_comp_channel(lane->channel);
    if (lane->id)
        rdma_destroy_id(lane->id);
    free(lane->recv);
    *lane = (struct vb_rs_lane){0};
}

static int open_lane(struct vb_rsocket *rs, struct vb_rs_lane *lane)
{
    struct sockaddr_storage at = lane->own;
    int err = 0;

    *port_of(&at) = 0; // the manager's ports are not those of UDP
    if (rdma_create_id(NULL, &lane->id, rs, RDMA_PS_UDP))
        return -errno;
    if (rdma_bind_addr(lane->id, (struct sockaddr *)&at))
        err = -errno;
    if (!err && !lane->id->verbs)
        err = -ENODEV;
    if (!err)
        err = create_queue_pair(rs, lane);
    if (!err)
        err = create_memory(rs, lane);
    return err;
}

// The lane that datagrams to an address leave by.
int vb_rs_lane_for(struct vb_rsocket *rs, const struct sockaddr *to, struct vb_rs_lane **found)
{
    struct vb_rs_datagrams *d = rs->datagrams;
    struct sockaddr_storage own;
    int err = own_address(rs, to, &own);

    if (err)
        return err;
    for (unsigned i = 0; i < d->lanes; i++) {
        if (memcmp(&d->lane[i].own, &own, vb_rs_address_bytes((struct sockaddr *)&own)) == 0) {
            *found = &d->lane[i];
            return 0;
        }
    }
    if (d->lanes == VB_RS_LANES)
        return -ENOBUFS;
    struct vb_rs_lane *lane = &d->lane[d->lanes];
    *lane = (struct vb_rs_lane){.own = own};
    err = open_lane(rs, lane);
    if (err) {
        vb_rs_lane_close(lane);
        return err;
    }
    d->lanes++;
    *found = lane;
    return 0;
}
