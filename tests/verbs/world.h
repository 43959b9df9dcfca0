// SPDX-License-Identifier: Apache-2.0
// What verbs programs of these tests begin with: a context, queue pairs and one message.
#ifndef VERBS_WORLD_H
#define VERBS_WORLD_H

#include "../wait.h"
#include "need.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BYTES = 4096,
    QKEY = 0x1234,
    GRH_BYTES = 40,
    FIRST_PSN = 9,
};

struct world {
    struct ibv_context *context;
    struct ibv_pd *pd;
    union ibv_gid gid;
};

static inline void open_world(struct world *w)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    NEED(list && list[0]);
    NEED(w->context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    NEED(w->pd = ibv_alloc_pd(w->context));
    NEED(!ibv_query_gid(w->context, 1, 0, &w->gid));
}

static inline void close_world(struct world *w)
{
    NEED(!ibv_dealloc_pd(w->pd));
    NEED(!ibv_close_device(w->context));
}

static inline struct ibv_qp *make_qp(struct world *w, enum ibv_qp_type type, struct ibv_cq *cq,
                                     struct ibv_srq *srq)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = type,
        .send_cq = cq,
        .recv_cq = cq,
        .srq = srq,
        .cap = {
            .max_send_wr = 16, .max_recv_wr = srq ? 0 : 16, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);

    NEED(qp);
    return qp;
}

// How long an unanswered request is tried.
struct patience {
    uint8_t timeout, retries, rnr_retries;
};

#define USUAL_PATIENCE ((struct patience){.timeout = 14, .retries = 7, .rnr_retries = 7})

static inline void init_qp(struct ibv_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .port_num = 1,
                            .qkey = QKEY,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    NEED(!ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
                            (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
}

// What each step needs besides the state, by service: no more is taken, as Linux has it.
static inline int rtr_mask(enum ibv_qp_type type)
{
    const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    bool answers = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;

    return type == IBV_QPT_UD ? 0
           : answers          ? path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
                              : path;
}

static inline int rts_mask(enum ibv_qp_type type)
{
    bool asks = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;

    return asks ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                : 0;
}

// From our GID of that index to the peer's; datagrams have no peer.
static inline void ready_qp(struct ibv_qp *qp, uint32_t to, const union ibv_gid *gid,
                            uint8_t sgid_index, struct patience patience)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = to,
                            .rq_psn = FIRST_PSN,
                            .sq_psn = FIRST_PSN,
                            .max_dest_rd_atomic = 1,
                            .max_rd_atomic = 1,
                            .min_rnr_timer = 12,
                            .timeout = patience.timeout,
                            .retry_cnt = patience.retries,
                            .rnr_retry = patience.rnr_retries,
                            .ah_attr = {.is_global = 1,
                                        .port_num = 1,
                                        .grh = {.dgid = *gid, .sgid_index = sgid_index}}};
    NEED(!ibv_modify_qp(qp, &a, IBV_QP_STATE | rtr_mask(qp->qp_type)));
    a.qp_state = IBV_QPS_RTS;
    NEED(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | rts_mask(qp->qp_type)));
}

static inline void connect_qp_with(struct world *w, struct ibv_qp *qp, uint32_t to,
                                   struct patience patience)
{
    init_qp(qp);
    ready_qp(qp, to, &w->gid, 0, patience);
}

static inline void connect_qp(struct world *w, struct ibv_qp *qp, uint32_t to)
{
    connect_qp_with(w, qp, to, USUAL_PATIENCE);
}

static inline struct ibv_wc wait_one(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int n;

    WAIT_UNTIL((n = ibv_poll_cq(cq, 1, &wc)) != 0);
    NEED(n == 1);
    return wc;
}

static inline void send_one(struct ibv_qp *qp, struct ibv_mr *mr, uint64_t id, struct ibv_ah *ah,
                            uint32_t to)
{
    struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = id,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};
    if (ah) {
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = to;
        wr.wr.ud.remote_qkey = QKEY;
    }
    NEED(!ibv_post_send(qp, &wr, &bad));
}

#endif
