// SPDX-License-Identifier: Apache-2.0
// Queue pairs: create, destroy, multicast groups.
#include "verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int service_of(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_RC: return VB_SERVICE_RC;
    case IBV_QPT_UC: return VB_SERVICE_UC;
    case IBV_QPT_UD: return VB_SERVICE_UD;
    case IBV_QPT_XRC_SEND: return VB_SERVICE_XRC_SEND;
    case IBV_QPT_XRC_RECV: return VB_SERVICE_XRC_RECV;
    default: return -1;
    }
}

static const char *judge_size(const struct ibv_qp_cap *cap)
{
    if (cap->max_send_wr > VB_VERBS_MAX_WR || cap->max_recv_wr > VB_VERBS_MAX_WR)
        return "a queue has up to 16,384 work requests";
    if (cap->max_send_sge > VB_VERBS_MAX_SGE || cap->max_recv_sge > VB_VERBS_MAX_SGE)
        return "a request has up to 16 scatter entries";
    return NULL;
}

// Why it cannot be made, or NULL; *error is changed if it is not EINVAL.
static const char *judge(const struct ibv_qp_init_attr_ex *a, int *error)
{
    const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                           IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    int service = service_of(a->qp_type);

    if (service < 0) {
        *error = EOPNOTSUPP;
        return "there are RC, UC, UD and XRC";
    }
    if (a->comp_mask & ~known ||
        (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags)) {
        *error = EOPNOTSUPP;
        return "a feature that was asked for is not there";
    }
    if (service == VB_SERVICE_XRC_RECV)
        return a->comp_mask & IBV_QP_INIT_ATTR_XRCD && a->xrcd ? NULL : "it needs an XRC domain";
    if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd)
        return "it needs a protection domain";
    if (!a->send_cq || (!a->recv_cq && service != VB_SERVICE_XRC_SEND))
        return "it needs completion queues";
    return judge_size(&a->cap);
}

// Blocks of a request that the application says it will post: its queue has room for all of them.
static uint32_t blocks_of(const struct ibv_qp_init_attr_ex *a)
{
    uint64_t ops = a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? a->send_ops_flags : 0;
    return ops & IBV_QP_EX_WITH_BIND_MW ? 3 : ops & IBV_QP_EX_WITH_LOCAL_INV ? 2 : 1;
}

static int create_in_nic(struct vb_verbs_qp *qp, const struct ibv_qp_init_attr_ex *a)
{
    struct vb_verbs_cq *send_cq = VB_VERBS_CAST(vb_verbs_cq, a->send_cq);
    struct vb_verbs_cq *recv_cq = VB_VERBS_CAST(vb_verbs_cq, a->recv_cq);
    struct vb_verbs_srq *srq = VB_VERBS_CAST(vb_verbs_srq, a->srq);
    bool receives = qp->service < VB_SERVICE_XRC_SEND;
    struct vb_qp_opts opts = {
        .service = (enum vb_service)qp->service,
        .srq = srq && receives ? srq->nic : NULL,
        .send_depth = qp->cap.max_send_wr ? qp->cap.max_send_wr : 1,
        .recv_depth = srq || !receives ? 0 : qp->cap.max_recv_wr,
        .send_sge = qp->cap.max_send_sge,
        .recv_sge = qp->cap.max_recv_sge,
        .inline_bytes = qp->cap.max_inline_data,
    };
    if (qp->service == VB_SERVICE_XRC_SEND && opts.send_sge < 2)
        opts.send_sge = 2; // an atomic takes two blocks, and counts as one request
    if (qp->service == VB_SERVICE_XRC_RECV) {
        opts.xrcd = qp->xrcd->number;
        opts.send_cq = opts.recv_cq = qp->xrcd->cq;
        return vb_qp_create(qp->xrcd->pd, &opts, &qp->nic);
    }
    opts.send_cq = send_cq->nic;
    opts.recv_cq = recv_cq ? recv_cq->nic : send_cq->nic;
    const uint32_t depth = opts.send_depth;
    int err = -EINVAL;
    for (uint32_t blocks = blocks_of(a); err == -EINVAL && blocks > 0; blocks--) {
        opts.send_depth = depth * blocks; // the deepest queues have not room for all
        err = vb_qp_create(VB_VERBS_CAST(vb_verbs_pd, a->pd)->nic, &opts, &qp->nic);
    }
    return err;
}

static void describe(struct vb_verbs_qp *qp, struct ibv_context *context,
                     const struct ibv_qp_init_attr_ex *a)
{
    struct ibv_qp *base = &qp->qp.qp_base;
    bool only_receives = qp->service == VB_SERVICE_XRC_RECV;

    base->context = context;
    base->qp_context = a->qp_context;
    base->pd = only_receives ? NULL : a->pd;
    base->send_cq = only_receives ? NULL : a->send_cq;
    base->recv_cq = only_receives ? NULL : a->recv_cq;
    base->srq = qp->service < VB_SERVICE_XRC_SEND ? a->srq : NULL;
    base->handle = base->qp_num = vb_qp_num(qp->nic);
    base->state = IBV_QPS_RESET;
    base->qp_type = a->qp_type;
    pthread_mutex_init(&base->mutex, NULL);
    pthread_cond_init(&base->cond, NULL);
}

static struct vb_verbs_qp *create(struct ibv_context *context, struct ibv_qp_init_attr_ex *a)
{
    int error = EINVAL;
    const char *why = judge(a, &error);
    struct vb_verbs_qp *qp = why ? NULL : calloc(1, sizeof *qp);
    int err = why ? -error : -ENOMEM;

    if (qp) {
        qp->service = (uint32_t)service_of(a->qp_type);
        qp->cap = a->cap;
        qp->all_signaled = a->sq_sig_all;
        qp->extended = a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if (qp->service == VB_SERVICE_XRC_RECV)
            qp->xrcd = VB_VERBS_CAST(vb_verbs_xrcd, a->xrcd);
        err = create_in_nic(qp, a);
    }
    if (!err && qp->extended)
        err = vb_verbs_build_init(qp);
    if (err) {
        if (qp && qp->nic)
            vb_qp_destroy(qp->nic);
        free(qp);
        vb_verbs_fail(-err, "ibv_create_qp", why);
        return NULL;
    }
    describe(qp, context, a);
    vb_verbs_process_lock();
    vb_fifo_push(&vb_verbs_of(context)->qps, &qp->link);
    vb_verbs_process_unlock();
    return qp;
}

struct ibv_qp *vb_verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    struct vb_verbs_qp *qp = create(context, attr);
    return qp ? &qp->qp.qp_base : NULL;
}

VB_VERBS_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_init_attr_ex ex = {.qp_context = attr->qp_context,
                                     .send_cq = attr->send_cq,
                                     .recv_cq = attr->recv_cq,
                                     .srq = attr->srq,
                                     .cap = attr->cap,
                                     .qp_type = attr->qp_type,
                                     .sq_sig_all = attr->sq_sig_all,
                                     .comp_mask = IBV_QP_INIT_ATTR_PD,
                                     .pd = pd};
    return vb_verbs_create_qp_ex(pd->context, &ex);
}

// Sharing a queue pair of another process needs a NIC that several processes share.
struct ibv_qp *vb_verbs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
    (void)context, (void)attr;
    vb_verbs_fail(EOPNOTSUPP, "ibv_open_qp", "queue pairs are not shared between processes");
    return NULL;
}

VB_VERBS_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);
    return qp->extended ? &qp->qp : NULL;
}

VB_VERBS_EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);

    vb_verbs_process_lock();
    if (vb_link_queued(&qp->link))
        vb_link_remove(&qp->link);
    vb_verbs_forget_events(vb_verbs_of(ibv->context), ibv);
    vb_verbs_process_unlock();
    // Who has an event of it in hand may still ask about it.
    vb_verbs_wait_acks(&ibv->mutex, &ibv->cond, &ibv->events_completed, qp->events);
    vb_verbs_lock_cqs(qp);
    int err = vb_qp_destroy(qp->nic); // may wait for peers
    vb_verbs_unlock_cqs(qp);
    if (err)
        return vb_verbs_fail(-err, "ibv_destroy_qp", NULL);
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    vb_verbs_build_fini(qp);
    free(qp);
    return 0;
}

// ---- multicast

VB_VERBS_EXPORT int ibv_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
    (void)lid;
    int err = vb_qp_attach(VB_VERBS_CAST(vb_verbs_qp, ibv)->nic, gid->raw);
    if (err == -EEXIST)
        return 0; // once more changes nothing
    return err ? vb_verbs_fail(-err, "ibv_attach_mcast", "no such group, or no datagrams") : 0;
}

VB_VERBS_EXPORT int ibv_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
    (void)lid;
    int err = vb_qp_detach(VB_VERBS_CAST(vb_verbs_qp, ibv)->nic, gid->raw);
    return err ? vb_verbs_fail(err == -ENOENT ? EINVAL : -err, "ibv_detach_mcast", "no member") : 0;
}

// ---- what only some cards have

VB_VERBS_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    return ece->vendor_id ? vb_verbs_fail(EOPNOTSUPP, "ibv_set_ece", "no vendor's options") : 0;
}

VB_VERBS_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    memset(ece, 0, sizeof *ece);
    return 0;
}

// Packets of a message are placed in order, by one thread at a time, whole or by 4 KB.
VB_VERBS_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
                                               uint32_t flags)
{
    (void)qp, (void)op, (void)flags;
    return 0;
}
