// SPDX-License-Identifier: Apache-2.0
// Queue pairs of ids: made with all they need, and led through their states.
#include "rdmacm/rdmacm.h"

#include <errno.h>
#include <rdma/rdma_verbs.h>

enum {
    RNR_TIMER = 12, // 640 us
    INLINE_MIN = 64,
};

// ---- attributes of a state

static void init_attr(const struct vb_rdmacm_id *i, struct ibv_qp_attr *attr, int *mask)
{
    *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    attr->pkey_index = 0;
    attr->port_num = VB_RDMACM_PORT;
    if (vb_rdmacm_is_ud(i)) {
        attr->qkey = i->qkey;
        *mask |= IBV_QP_QKEY;
        return;
    }
    attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (i->path.responder_resources)
        attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    *mask |= IBV_QP_ACCESS_FLAGS;
}

static void rtr_attr(const struct vb_rdmacm_id *i, struct ibv_qp_attr *attr, int *mask)
{
    const struct vb_rdmacm_path *path = &i->path;

    *mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    attr->ah_attr = vb_rdmacm_vector(i, &path->peer);
    attr->path_mtu = (enum ibv_mtu)path->mtu;
    attr->dest_qp_num = path->peer_qpn;
    attr->rq_psn = path->our_psn;
    if (i->id.qp_type == IBV_QPT_RC || i->id.qp_type == IBV_QPT_XRC_RECV) {
        attr->max_dest_rd_atomic = path->responder_resources;
        attr->min_rnr_timer = RNR_TIMER;
        *mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
}

static void rts_attr(const struct vb_rdmacm_id *i, struct ibv_qp_attr *attr, int *mask)
{
    const struct vb_rdmacm_path *path = &i->path;

    *mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    attr->sq_psn = path->peer_psn; // 0 for datagrams
    if (i->id.qp_type == IBV_QPT_RC || i->id.qp_type == IBV_QPT_XRC_SEND) {
        attr->timeout = path->timeout;
        attr->retry_cnt = path->retries;
        attr->rnr_retry = path->rnr_retries;
        attr->max_rd_atomic = path->initiator_depth;
        *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
}

VB_RAW_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
    const struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (vb_rdmacm_refuse_foreign(i, "rdma_init_qp_attr"))
        return -1;
    bool agreed = vb_rdmacm_state(i) >= VB_RDMACM_REPLIED && i->path.peer_qpn;

    if (!attr || !mask || !id->verbs)
        return vb_rdmacm_fail(EINVAL, "rdma_init_qp_attr", "the id is on no device");
    if (attr->qp_state == IBV_QPS_INIT)
        init_attr(i, attr, mask);
    else if (attr->qp_state == IBV_QPS_RTR && vb_rdmacm_is_ud(i))
        *mask = IBV_QP_STATE;
    else if (attr->qp_state == IBV_QPS_RTR && agreed)
        rtr_attr(i, attr, mask);
    else if (attr->qp_state == IBV_QPS_RTS && (agreed || vb_rdmacm_is_ud(i)))
        rts_attr(i, attr, mask);
    else
        return vb_rdmacm_fail(EINVAL, "rdma_init_qp_attr",
                              "the state is none of INIT, RTR and RTS, or no peer is known yet");
    return 0;
}

static int move_to(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask, error;

    if (rdma_init_qp_attr(id, &attr, &mask) != 0)
        return -1;
    attr.qp_state = state;
    error = ibv_modify_qp(qp, &attr, mask);
    if (error)
        errno = error;
    return error ? -1 : 0;
}

// What may be done to it depends on what both sides have agreed on, so INIT comes again.
int vb_rdmacm_make_ready(struct vb_rdmacm_id *i)
{
    struct rdma_cm_id *id = &i->id;

    if (move_to(id, id->qp, IBV_QPS_INIT) || move_to(id, id->qp, IBV_QPS_RTR))
        return -1;
    return move_to(id, id->qp, IBV_QPS_RTS);
}

void vb_rdmacm_make_error(struct vb_rdmacm_id *i)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (i->id.qp && !vb_rdmacm_is_ud(i))
        ibv_modify_qp(i->id.qp, &attr, IBV_QP_STATE);
}

// ---- completion queues

static void destroy_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
    if (*cq)
        ibv_destroy_cq(*cq);
    if (*channel)
        ibv_destroy_comp_channel(*channel);
    *cq = NULL;
    *channel = NULL;
}

static int create_cq(struct rdma_cm_id *id, uint32_t depth, struct ibv_cq **cq,
                     struct ibv_comp_channel **channel)
{
    *channel = ibv_create_comp_channel(id->verbs);
    if (*channel)
        *cq = ibv_create_cq(id->verbs, depth ? (int)depth : 1, id, *channel, 0);
    if (*cq)
        return 0;
    int error = errno;
    destroy_cq(cq, channel);
    errno = error;
    return -1;
}

// A shared receive queue of XRC has made the queue for what is received, and keeps it.
static void destroy_cqs(struct rdma_cm_id *id)
{
    destroy_cq(&id->send_cq, &id->send_cq_channel);
    if (!id->srq || id->qp_type != IBV_QPT_XRC_RECV)
        destroy_cq(&id->recv_cq, &id->recv_cq_channel);
}

static int choose_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
    bool receives = id->qp_type != IBV_QPT_XRC_SEND, sends = id->qp_type != IBV_QPT_XRC_RECV;

    if (sends && !attr->send_cq && !id->send_cq &&
        create_cq(id, attr->cap.max_send_wr, &id->send_cq, &id->send_cq_channel) != 0)
        return -1;
    if (receives && sends && !attr->recv_cq && !id->recv_cq &&
        create_cq(id, attr->cap.max_recv_wr, &id->recv_cq, &id->recv_cq_channel) != 0)
        return -1;
    if (!attr->send_cq)
        attr->send_cq = id->send_cq;
    if (!attr->recv_cq)
        attr->recv_cq = id->recv_cq;
    return 0;
}

// ---- queue pairs

static const char *judge(const struct rdma_cm_id *id, const struct ibv_qp_init_attr_ex *attr)
{
    if (id->qp)
        return "it has a queue pair already";
    if (!id->verbs)
        return "the id is on no device: bind or resolve first";
    if (attr->comp_mask & IBV_QP_INIT_ATTR_PD && attr->pd && attr->pd->context != id->verbs)
        return "the domain is another context's";
    if (attr->recv_cq && attr->recv_cq->context != id->verbs)
        return "the completion queue is another context's";
    return NULL;
}

static int choose_domain(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
    if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
        attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr->pd = id->pd;
    }
    if (attr->qp_type != IBV_QPT_XRC_RECV || attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)
        return 0;
    vb_rdmacm_lock();
    attr->xrcd = vb_rdmacm_xrcd();
    vb_rdmacm_unlock();
    attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    return attr->xrcd ? 0 : -1;
}

static int make_usable(struct rdma_cm_id *id, struct ibv_qp *qp)
{
    if (move_to(id, qp, IBV_QPS_INIT) != 0)
        return -1;
    if (id->qp_type != IBV_QPT_UD)
        return 0;
    return move_to(id, qp, IBV_QPS_RTR) || move_to(id, qp, IBV_QPS_RTS) ? -1 : 0;
}

VB_RAW_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
    if (vb_rdmacm_refuse_foreign(vb_rdmacm_of(id), "rdma_create_qp"))
        return -1;
    const char *why = judge(id, attr);
    if (why)
        return vb_rdmacm_fail(EINVAL, "rdma_create_qp", why);
    if (id->qp_type == IBV_QPT_RC && attr->qp_type == IBV_QPT_UC)
        id->qp_type = IBV_QPT_UC; // port spaces know no difference
    // Cards have room for a little in each entry, asked or not, and programs count on it.
    if (attr->cap.max_inline_data < INLINE_MIN && attr->cap.max_send_wr)
        attr->cap.max_inline_data = INLINE_MIN;
    if (id->srq && !attr->srq && id->qp_type != IBV_QPT_XRC_RECV)
        attr->srq = id->srq;
    struct ibv_qp *qp = choose_domain(id, attr) == 0 && choose_cqs(id, attr) == 0
                            ? ibv_create_qp_ex(id->verbs, attr)
                            : NULL;
    if (!qp || make_usable(id, qp) != 0) {
        int error = errno;
        if (qp)
            ibv_destroy_qp(qp);
        destroy_cqs(id);
        errno = error;
        return -1;
    }
    if (qp->pd)
        id->pd = qp->pd;
    id->qp = qp;
    return 0;
}

VB_RAW_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
                                 struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr_ex ex = {.qp_context = attr->qp_context,
                                     .send_cq = attr->send_cq,
                                     .recv_cq = attr->recv_cq,
                                     .srq = attr->srq,
                                     .cap = attr->cap,
                                     .qp_type = attr->qp_type,
                                     .sq_sig_all = attr->sq_sig_all,
                                     .comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0,
                                     .pd = pd};

    if (rdma_create_qp_ex(id, &ex) != 0)
        return -1;
    attr->cap = ex.cap; // and nothing of this id's: programs use their attributes again
    return 0;
}

VB_RAW_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
    if (!id || !id->qp)
        return;
    ibv_destroy_qp(id->qp);
    id->qp = NULL;
    destroy_cqs(id);
}

// ---- shared receive queues

static int prepare_xrc(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd) {
        vb_rdmacm_lock();
        attr->xrcd = vb_rdmacm_xrcd();
        vb_rdmacm_unlock();
        attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    }
    if (!attr->xrcd)
        return -1;
    if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ && attr->cq)
        return 0;
    if (create_cq(id, attr->attr.max_wr, &id->recv_cq, &id->recv_cq_channel) != 0)
        return -1;
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    attr->cq = id->recv_cq;
    return 0;
}

VB_RAW_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
    bool xrc = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type == IBV_SRQT_XRC;

    if (vb_rdmacm_refuse_foreign(vb_rdmacm_of(id), "rdma_create_srq"))
        return -1;
    if (id->srq || !id->verbs ||
        (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD && attr->pd && attr->pd->context != id->verbs))
        return vb_rdmacm_fail(EINVAL, "rdma_create_srq",
                              "it has one already, is on no device, or on another");
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
        attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        attr->pd = id->pd;
    }
    if (xrc && prepare_xrc(id, attr) != 0)
        return -1;
    id->srq = ibv_create_srq_ex(id->verbs, attr);
    if (!id->srq) {
        int error = errno;
        destroy_cq(&id->recv_cq, &id->recv_cq_channel);
        errno = error;
        return -1;
    }
    if (id->srq->pd)
        id->pd = id->srq->pd;
    return 0;
}

VB_RAW_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
                                  struct ibv_srq_init_attr *attr)
{
    struct ibv_srq_init_attr_ex ex = {
        .srq_context = attr->srq_context,
        .attr = attr->attr,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | (pd ? IBV_SRQ_INIT_ATTR_PD : 0),
        .srq_type = id->qp_type == IBV_QPT_XRC_RECV || id->qp_type == IBV_QPT_XRC_SEND
                        ? IBV_SRQT_XRC
                        : IBV_SRQT_BASIC,
        .pd = pd};

    if (rdma_create_srq_ex(id, &ex) != 0)
        return -1;
    attr->attr = ex.attr;
    return 0;
}

VB_RAW_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
    if (!id || !id->srq)
        return;
    ibv_destroy_srq(id->srq);
    id->srq = NULL;
    if (!id->qp)
        destroy_cqs(id);
}
