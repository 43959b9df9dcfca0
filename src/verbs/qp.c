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
    const uint32_t spreading = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | spreading |
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
    if (a->comp_mask & spreading)
        return vb_verbs_judge_spread(a);
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
    if (qp->table) { // it only receives, and others' queues take it
        opts.send_cq = opts.recv_cq = qp->table->wq[0]->cq;
        opts.recv_depth = 0;
        return vb_qp_create(VB_VERBS_CAST(vb_verbs_pd, a->pd)->nic, &opts, &qp->nic);
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
    bool only_receives = qp->service == VB_SERVICE_XRC_RECV || qp->table;

    base->context = context;
    base->qp_context = a->qp_context;
    base->pd = qp->xrcd ? NULL : a->pd;
    base->send_cq = only_receives ? NULL : a->send_cq;
    base->recv_cq = only_receives ? NULL : a->recv_cq;
    base->srq = qp->service < VB_SERVICE_XRC_SEND ? a->srq : NULL;
    base->handle = base->qp_num = vb_qp_num(qp->nic);
    base->state = IBV_QPS_RESET;
    base->qp_type = a->qp_type;
    pthread_mutex_init(&base->mutex, NULL);
    pthread_cond_init(&base->cond, NULL);
}

// What it uses cannot go before it. Needs the process's lock.
static void count_users(const struct vb_verbs_qp *qp, int more)
{
    const struct ibv_qp *base = &qp->qp.qp_base;

    if (base->send_cq)
        VB_VERBS_CAST(vb_verbs_cq, base->send_cq)->users += (uint32_t)more;
    if (base->recv_cq)
        VB_VERBS_CAST(vb_verbs_cq, base->recv_cq)->users += (uint32_t)more;
    if (base->srq)
        VB_VERBS_CAST(vb_verbs_srq, base->srq)->users += (uint32_t)more;
    if (qp->xrcd)
        qp->xrcd->users += (uint32_t)more;
    if (qp->table)
        qp->table->users += (uint32_t)more;
}

// A target of XRC has any number of handles, and lives as long as one of them.
static int make_shareable(struct vb_verbs_qp *qp)
{
    qp->handles = calloc(1, sizeof *qp->handles);
    if (!qp->handles)
        return -ENOMEM;
    *qp->handles = 1;
    return 0;
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
        if (a->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE)
            qp->table = VB_VERBS_CAST(vb_verbs_table, a->rwq_ind_tbl);
        err = create_in_nic(qp, a);
    }
    if (!err && qp->table)
        err = vb_verbs_spread(qp, &a->rx_hash_conf);
    if (!err && qp->xrcd)
        err = make_shareable(qp);
    if (!err && qp->extended)
        err = vb_verbs_build_init(qp);
    if (err) {
        if (qp && qp->nic)
            vb_qp_destroy(qp->nic);
        if (qp)
            free(qp->handles);
        free(qp);
        vb_verbs_fail(-err, "ibv_create_qp", why);
        return NULL;
    }
    describe(qp, context, a);
    vb_verbs_process_lock();
    count_users(qp, 1);
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

VB_VERBS_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);
    return qp->extended ? &qp->qp : NULL;
}

// Whether the queue pair itself goes with this handle.
static bool drop_handle(struct vb_verbs_qp *qp)
{
    if (!qp->handles)
        return true;
    vb_verbs_process_lock();
    bool last = --*qp->handles == 0;
    vb_verbs_process_unlock();
    if (last)
        free(qp->handles);
    return last;
}

static int destroy_in_nic(struct vb_verbs_qp *qp)
{
    vb_qp_settle(qp->nic); // may take its time, while others poll
    vb_verbs_lock_cqs(qp);
    int err = vb_qp_destroy(qp->nic);
    vb_verbs_unlock_cqs(qp);
    return err;
}

VB_VERBS_EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);

    if (vb_verbs_refuse_dead(ibv->context, "ibv_destroy_qp"))
        return EPERM;
    if (atomic_load(&qp->groups))
        return vb_verbs_fail(EBUSY, "ibv_destroy_qp", "it is a member of multicast groups");
    vb_verbs_retire(ibv->context, &qp->link, &(uint32_t){0}, ibv);
    // Who has an event of it in hand may still ask about it.
    vb_verbs_wait_acks(&ibv->mutex, &ibv->cond, &ibv->events_completed, qp->events);
    int err = drop_handle(qp) ? destroy_in_nic(qp) : 0;
    if (err)
        return vb_verbs_fail(-err, "ibv_destroy_qp", NULL);
    vb_verbs_process_lock();
    count_users(qp, -1);
    vb_verbs_process_unlock();
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    vb_verbs_build_fini(qp);
    free(qp);
    return 0;
}

// ---- handles of an XRC target

// Needs the process's lock.
static struct vb_verbs_qp *find_target(const struct vb_verbs_context *by, uint32_t number,
                                       const struct vb_verbs_xrcd *xrcd)
{
    for (struct vb_link *l = vb_verbs_contexts()->head.next; l != &vb_verbs_contexts()->head;
         l = l->next) {
        struct vb_verbs_context *c = VB_CONTAINER_OF(l, struct vb_verbs_context, link);
        for (struct vb_link *k = c->qps.head.next; c->nic == by->nic && k != &c->qps.head;
             k = k->next) {
            struct vb_verbs_qp *qp = VB_CONTAINER_OF(k, struct vb_verbs_qp, link);
            if (qp->xrcd && qp->xrcd->number == xrcd->number && qp->qp.qp_base.qp_num == number)
                return qp;
        }
    }
    return NULL;
}

static void join(struct vb_verbs_qp *qp, struct ibv_context *context, struct vb_verbs_qp *first,
                 const struct ibv_qp_init_attr_ex *init)
{
    *qp = (struct vb_verbs_qp){.nic = first->nic,
                               .xrcd = VB_VERBS_CAST(vb_verbs_xrcd, init->xrcd),
                               .cap = first->cap,
                               .service = first->service,
                               .attr = first->attr,
                               .handles = first->handles};
    describe(qp, context, init);
    qp->qp.qp_base.state = first->qp.qp_base.state;
    ++*qp->handles;
    count_users(qp, 1);
    vb_fifo_push(&vb_verbs_of(context)->qps, &qp->link);
}

// Another handle of a target of XRC in this process.
struct ibv_qp *vb_verbs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
    const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    struct vb_verbs_xrcd *xrcd = VB_VERBS_CAST(vb_verbs_xrcd, attr->xrcd);
    struct vb_verbs_qp *first = NULL;
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV,
        .xrcd = attr->xrcd,
        .qp_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL};

    if ((attr->comp_mask & needed) != needed || !xrcd || attr->qp_type != IBV_QPT_XRC_RECV) {
        vb_verbs_fail(EINVAL, "ibv_open_qp", "it needs a number and a domain, of XRC");
        return NULL;
    }
    struct vb_verbs_qp *qp = calloc(1, sizeof *qp);
    if (!qp || vb_verbs_refuse_dead(context, "ibv_open_qp")) {
        free(qp);
        return NULL;
    }
    vb_verbs_process_lock();
    first = find_target(vb_verbs_of(context), attr->qp_num, xrcd);
    if (first)
        join(qp, context, first, &init);
    vb_verbs_process_unlock();
    if (!first) {
        free(qp);
        vb_verbs_fail(EINVAL, "ibv_open_qp", "no such queue pair of the domain in this process");
        return NULL;
    }
    return &qp->qp.qp_base;
}

// ---- multicast

VB_VERBS_EXPORT int ibv_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);

    (void)lid;
    int err = vb_qp_attach(qp->nic, gid->raw);
    if (err == -EEXIST)
        return 0; // once more changes nothing
    atomic_fetch_add(&qp->groups, !err);
    return err ? vb_verbs_fail(-err, "ibv_attach_mcast", "no such group, or no datagrams") : 0;
}

VB_VERBS_EXPORT int ibv_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);

    (void)lid;
    int err = vb_qp_detach(qp->nic, gid->raw);
    atomic_fetch_sub(&qp->groups, !err);
    return err ? vb_verbs_fail(err == -ENOENT ? EINVAL : -err, "ibv_detach_mcast", "no member") : 0;
}

// ---- what only some cards have

VB_VERBS_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp, (void)ece;
    return vb_verbs_fail(EOPNOTSUPP, "ibv_set_ece", "no vendor's options are known here");
}

VB_VERBS_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    (void)qp;
    memset(ece, 0, sizeof *ece); // who ignores the answer finds no options
    return vb_verbs_fail(EOPNOTSUPP, "ibv_query_ece", "no vendor's options are known here");
}

// Packets of a message are placed in order, by one thread at a time, whole or by 4 KB.
VB_VERBS_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
                                               uint32_t flags)
{
    (void)qp, (void)op, (void)flags;
    return 0;
}
