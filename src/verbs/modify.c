// SPDX-License-Identifier: Apache-2.0
// The states of a queue pair, and what each step needs (InfiniBand specification, clause 11.2.5.2).
#include "verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    STATES = IBV_QPS_ERR + 1
};

static const enum vb_qp_phase phase_of[STATES] = {
    [IBV_QPS_RESET] = VB_QP_RESET, [IBV_QPS_INIT] = VB_QP_INIT, [IBV_QPS_RTR] = VB_QP_RTR,
    [IBV_QPS_RTS] = VB_QP_RTS,     [IBV_QPS_SQD] = VB_QP_SQD,   [IBV_QPS_SQE] = VB_QP_SQE,
    [IBV_QPS_ERR] = VB_QP_ERR,
};

static const enum ibv_qp_state state_of[] = {
    [VB_QP_RESET] = IBV_QPS_RESET, [VB_QP_INIT] = IBV_QPS_INIT, [VB_QP_RTR] = IBV_QPS_RTR,
    [VB_QP_RTS] = IBV_QPS_RTS,     [VB_QP_SQD] = IBV_QPS_SQD,   [VB_QP_SQE] = IBV_QPS_SQE,
    [VB_QP_ERR] = IBV_QPS_ERR,
};

static const char *const state_names[STATES] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

// What must be given on the way forward, by service.
static int needed(uint32_t service, enum ibv_qp_state from, enum ibv_qp_state to)
{
    const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const int serving = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const int asking =
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
        return IBV_QP_PKEY_INDEX | IBV_QP_PORT |
               (service == VB_SERVICE_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
        return service == VB_SERVICE_UD                                     ? 0
               : service == VB_SERVICE_UC || service == VB_SERVICE_XRC_SEND ? path
                                                                            : path | serving;
    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
        return service == VB_SERVICE_RC || service == VB_SERVICE_XRC_SEND ? asking | IBV_QP_SQ_PSN
                                                                          : IBV_QP_SQ_PSN;
    return 0;
}

// What may be given besides, as Linux has it (ib_modify_qp_is_ok()), but for a path and limits that
// change on the way: from RTR and RTS on, those stay.
static int optional(uint32_t service, enum ibv_qp_state from, enum ibv_qp_state to)
{
    const bool ud = service == VB_SERVICE_UD;
    const int own = ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    const bool nacks = service == VB_SERVICE_RC || service == VB_SERVICE_XRC_RECV;
    const int running = own | IBV_QP_CUR_STATE | IBV_QP_RATE_LIMIT |
                        (nacks ? IBV_QP_MIN_RNR_TIMER : 0) | (ud ? 0 : IBV_QP_PATH_MIG_STATE);

    // Either half of XRC is given what both halves of RC need (perftest does so).
    const bool half = service == VB_SERVICE_XRC_SEND || service == VB_SERVICE_XRC_RECV;

    switch (to) {
    case IBV_QPS_INIT: return own | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    case IBV_QPS_RTR:
        return own | IBV_QP_PKEY_INDEX |
               (half ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
    case IBV_QPS_RTS:
        return running | (half && from == IBV_QPS_RTR ? needed(VB_SERVICE_RC, from, to) : 0);
    case IBV_QPS_SQD:
        return from == IBV_QPS_SQD ? own | IBV_QP_PKEY_INDEX : IBV_QP_EN_SQD_ASYNC_NOTIFY;
    default: return IBV_QP_CUR_STATE;
    }
}

static void merge_path(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
    if (mask & IBV_QP_AV)
        to->ah_attr = from->ah_attr;
    if (mask & IBV_QP_PATH_MTU)
        to->path_mtu = from->path_mtu;
    if (mask & IBV_QP_DEST_QPN)
        to->dest_qp_num = from->dest_qp_num;
    if (mask & IBV_QP_RQ_PSN)
        to->rq_psn = from->rq_psn & 0xffffff;
    if (mask & IBV_QP_SQ_PSN)
        to->sq_psn = from->sq_psn & 0xffffff;
}

static void merge(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
    merge_path(to, from, mask);
    if (mask & IBV_QP_ACCESS_FLAGS)
        to->qp_access_flags = from->qp_access_flags;
    if (mask & IBV_QP_PKEY_INDEX)
        to->pkey_index = from->pkey_index;
    if (mask & IBV_QP_PORT)
        to->port_num = from->port_num;
    if (mask & IBV_QP_QKEY)
        to->qkey = from->qkey;
    if (mask & IBV_QP_TIMEOUT)
        to->timeout = from->timeout;
    if (mask & IBV_QP_RETRY_CNT)
        to->retry_cnt = from->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY)
        to->rnr_retry = from->rnr_retry;
    if (mask & IBV_QP_MIN_RNR_TIMER)
        to->min_rnr_timer = from->min_rnr_timer;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
        to->max_rd_atomic = from->max_rd_atomic;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
        to->max_dest_rd_atomic = from->max_dest_rd_atomic;
    to->en_sqd_async_notify = mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && from->en_sqd_async_notify;
}

// Why the values are refused, or NULL; *error is changed if it is not EINVAL.
static const char *judge(struct ibv_context *context, const struct ibv_qp_attr *a, int mask,
                         int *error)
{
    if (mask & IBV_QP_ALT_PATH ||
        (mask & IBV_QP_PATH_MIG_STATE && a->path_mig_state != IBV_MIG_MIGRATED)) {
        *error = EOPNOTSUPP;
        return "there are no alternate paths";
    }
    if (mask & IBV_QP_PORT && a->port_num != VB_VERBS_PORT)
        return "there is only port 1";
    if (mask & IBV_QP_PKEY_INDEX && a->pkey_index != 0)
        return "there is only P_Key 0";
    if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
        return "path_mtu is none of 256 to 4096";
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > VB_VERBS_MAX_INIT_RD_ATOMIC)
        return "at most 128 READs and atomics of ours are in flight";
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > VB_VERBS_MAX_RD_ATOMIC)
        return "at most 16 READs and atomics of the peer are in flight";
    if (mask & IBV_QP_RATE_LIMIT && a->rate_limit > VB_VERBS_MAX_KBPS)
        return "the rate is at most 400,000,000 kilobits per second";
    if (mask & IBV_QP_CAP)
        return "the size of the queues stays";
    return mask & IBV_QP_AV ? vb_verbs_judge_path(context, &a->ah_attr, error) : NULL;
}

static struct vb_qp_change change_of(const struct ibv_qp_attr *a, enum ibv_qp_state to)
{
    // The bits of windows and local writing mean nothing here.
    const unsigned remote =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct vb_qp_change c = {
        .to = phase_of[to],
        .rights = vb_verbs_rights(a->qp_access_flags & remote),
        .qkey = a->qkey,
        .qpn = a->dest_qp_num,
        .psn = a->rq_psn,
        .mtu = a->path_mtu ? 128u << a->path_mtu : 4096,
        .reads_served = a->max_dest_rd_atomic,
        .rnr_timer = a->min_rnr_timer,
        .our_psn = a->sq_psn,
        .timeout = a->timeout,
        .retries = a->retry_cnt,
        .rnr_retries = a->rnr_retry,
        .reads = a->max_rd_atomic,
        .silent = !a->en_sqd_async_notify,
        .traffic_class = a->ah_attr.grh.traffic_class,
        .hop_limit = vb_verbs_hop_limit(&a->ah_attr),
        .service_level = a->ah_attr.sl,
        .flow_label = a->ah_attr.grh.flow_label,
    };
    memcpy(c.gid, a->ah_attr.grh.dgid.raw, 16);
    return c;
}

static enum ibv_qp_state current_state(const struct vb_verbs_qp *qp)
{
    enum vb_qp_phase phase;
    return vb_qp_phase(qp->nic, &phase) == 0 ? state_of[phase] : IBV_QPS_ERR;
}

static int fail_step(enum ibv_qp_state from, enum ibv_qp_state to, int error, const char *why)
{
    char text[160];

    snprintf(text, sizeof text, "%s to %s: %s", state_names[from], state_names[to], why);
    return vb_verbs_fail(error, "ibv_modify_qp", text);
}

// All handles of a target of XRC answer the same.
static void tell_handles(const struct vb_verbs_qp *qp, enum ibv_qp_state state)
{
    vb_verbs_process_lock();
    for (struct vb_link *l = vb_verbs_contexts()->head.next; l != &vb_verbs_contexts()->head;
         l = l->next) {
        struct vb_verbs_context *c = VB_CONTAINER_OF(l, struct vb_verbs_context, link);
        for (struct vb_link *k = c->qps.head.next; k != &c->qps.head; k = k->next) {
            struct vb_verbs_qp *other = VB_CONTAINER_OF(k, struct vb_verbs_qp, link);
            if (other == qp || other->handles != qp->handles)
                continue;
            other->attr = qp->attr;
            other->qp.qp_base.state = state;
        }
    }
    vb_verbs_process_unlock();
}

// The NIC is on the address that the path begins at; or, for datagrams, on all that are known.
static int take_path(const struct vb_verbs_qp *qp, int mask, const struct ibv_qp_attr *a,
                     struct vb_qp_change *change)
{
    struct ibv_context *context = qp->qp.qp_base.context;
    uint32_t index = a->ah_attr.grh.sgid_index;

    if (qp->service == VB_SERVICE_UD) {
        if (change->to == VB_QP_INIT)
            vb_verbs_gid_datagrams(context);
        return 0;
    }
    memcpy(change->local, vb_verbs_of(context)->gids.gid[index].raw, sizeof change->local);
    return mask & IBV_QP_AV ? vb_verbs_take_gid(context, index, "ibv_modify_qp") : 0;
}

VB_VERBS_EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    if (vb_verbs_refuse_dead(ibv->context, "ibv_modify_qp"))
        return EPERM;
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);
    enum ibv_qp_state from = current_state(qp);
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
    struct ibv_qp_attr merged = qp->attr;

    if ((unsigned)to > IBV_QPS_ERR)
        return vb_verbs_fail(EINVAL, "ibv_modify_qp", "no such state");
    if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)
        return fail_step(from, to, EINVAL, "it is in another state than cur_qp_state says");
    int error = EINVAL, must = needed(qp->service, from, to);
    const char *why = judge(ibv->context, attr, mask, &error);
    if (!why && (mask & must) != must)
        why = "an attribute that this step needs is missing";
    if (!why && mask & ~(must | optional(qp->service, from, to) | IBV_QP_STATE))
        why = "an attribute was given that this step does not take";
    if (why)
        return fail_step(from, to, error, why);
    merge(&merged, attr, mask);
    struct vb_qp_change change = change_of(&merged, to);
    if (take_path(qp, mask, &merged, &change) != 0)
        return errno;
    vb_verbs_lock_cqs(qp);
    int err = vb_qp_change(qp->nic, &change);
    vb_verbs_unlock_cqs(qp);
    if (!err && mask & IBV_QP_RATE_LIMIT)
        err = vb_qp_limit(qp->nic, attr->rate_limit, 0);
    if (err)
        return fail_step(from, to, -err, "no such step, or a value is out of range");
    merged.rate_limit = mask & IBV_QP_RATE_LIMIT ? attr->rate_limit : merged.rate_limit;
    qp->attr = to == IBV_QPS_RESET ? (struct ibv_qp_attr){0} : merged;
    if (qp->handles)
        tell_handles(qp, to);
    atomic_store_explicit(&qp->may_send, to >= IBV_QPS_RTS && !qp->table, memory_order_relaxed);
    atomic_store_explicit(&qp->may_receive, to >= IBV_QPS_INIT, memory_order_relaxed);
    ibv->state = to;
    return 0;
}

// The size of a typical packet tells a card how to count; here packets are counted by their bytes.
int vb_verbs_modify_qp_rate_limit(struct ibv_qp *ibv, struct ibv_qp_rate_limit_attr *attr)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);

    if (attr->comp_mask || attr->rate_limit > VB_VERBS_MAX_KBPS)
        return vb_verbs_fail(EINVAL, "ibv_modify_qp_rate_limit",
                             "the rate is at most 400,000,000 kilobits per second");
    if (attr->max_burst_sz && attr->typical_pkt_sz > attr->max_burst_sz)
        return vb_verbs_fail(EINVAL, "ibv_modify_qp_rate_limit",
                             "a burst has less room than a packet");
    if (vb_verbs_refuse_dead(ibv->context, "ibv_modify_qp_rate_limit"))
        return EPERM;
    if (current_state(qp) != IBV_QPS_RTS)
        return vb_verbs_fail(EINVAL, "ibv_modify_qp_rate_limit", "the queue pair is not in RTS");
    int err = vb_qp_limit(qp->nic, attr->rate_limit, attr->max_burst_sz);
    if (err)
        return vb_verbs_fail(-err, "ibv_modify_qp_rate_limit", NULL);
    qp->attr.rate_limit = attr->rate_limit;
    return 0;
}

VB_VERBS_EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
                                 struct ibv_qp_init_attr *init)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);

    (void)mask; // all of it
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = ibv->state = current_state(qp);
    attr->cap = qp->cap;
    *init = (struct ibv_qp_init_attr){.qp_context = ibv->qp_context,
                                      .send_cq = ibv->send_cq,
                                      .recv_cq = ibv->recv_cq,
                                      .srq = ibv->srq,
                                      .cap = qp->cap,
                                      .qp_type = ibv->qp_type,
                                      .sq_sig_all = qp->all_signaled};
    return 0;
}

// ---- the completion queues of a queue pair that changes, in the order of their addresses

static void order(const struct vb_verbs_qp *qp, struct vb_verbs_cq *cq[2])
{
    cq[0] = VB_VERBS_CAST(vb_verbs_cq, qp->qp.qp_base.send_cq);
    cq[1] = VB_VERBS_CAST(vb_verbs_cq, qp->qp.qp_base.recv_cq);
    if (cq[0] == cq[1])
        cq[1] = NULL;
    if (cq[1] && cq[1] < cq[0]) {
        struct vb_verbs_cq *first = cq[1];
        cq[1] = cq[0];
        cq[0] = first;
    }
}

void vb_verbs_lock_cqs(const struct vb_verbs_qp *qp)
{
    struct vb_verbs_cq *cq[2];

    order(qp, cq);
    for (int i = 0; i < 2; i++)
        if (cq[i])
            vb_verbs_lock(&cq[i]->lock);
}

void vb_verbs_unlock_cqs(const struct vb_verbs_qp *qp)
{
    struct vb_verbs_cq *cq[2];

    order(qp, cq);
    for (int i = 2; i-- > 0;)
        if (cq[i])
            vb_verbs_unlock(&cq[i]->lock);
}
