// SPDX-License-Identifier: Apache-2.0
// The device's calls as messages to the hull.
#include "host/attach.h"

#include "verbena/wqe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int vb_attach_refuse(struct vb_attach *a, const char *what)
{
    pthread_mutex_lock(&a->lock);
    snprintf(a->text, sizeof a->text, "%s: not for applications that are attached to a hull", what);
    pthread_mutex_unlock(&a->lock);
    return -EOPNOTSUPP;
}

static int call(struct vb_attach *a, struct vb_hull_request *request, struct vb_hull_reply *reply)
{
    return vb_attach_call(a, request, reply, -1, NULL);
}

// Of a request that makes an object.
static int make_and_tell(struct vb_attach *a, struct vb_hull_request *request, uint32_t *number,
                         struct vb_hull_reply *reply)
{
    request->number = a->tag;
    int err = call(a, request, reply);
    if (!err)
        *number = reply->number;
    return err;
}

static int make(struct vb_attach *a, struct vb_hull_request *request, uint32_t *number)
{
    struct vb_hull_reply reply;
    return make_and_tell(a, request, number, &reply);
}

// Of one that names an object and has nothing to tell.
static int name(struct vb_attach *a, enum vb_hull_op op, uint32_t number)
{
    struct vb_hull_request request = {.op = op, .number = number};
    struct vb_hull_reply reply;
    return call(a, &request, &reply);
}

// Of one that ends it: with the hull all is gone, too.
static int end(struct vb_attach *a, enum vb_hull_op op, uint32_t number)
{
    int err = name(a, op, number);
    return err == -ENOTCONN ? 0 : err;
}

static int ask(struct vb_attach *a, enum vb_hull_op op, uint32_t number, uint32_t value,
               uint64_t *answer)
{
    struct vb_hull_request request = {.op = op, .number = number, .value = value};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);

    if (!err)
        *answer = reply.value;
    return err;
}

// ---- domains and memory

int vb_attach_pd_create(struct vb_attach *a, uint32_t *pd)
{
    return make(a, &(struct vb_hull_request){.op = VB_HULL_PD_CREATE}, pd);
}

int vb_attach_pd_destroy(struct vb_attach *a, uint32_t pd)
{
    return end(a, VB_HULL_PD_DESTROY, pd);
}

// What need not be there may be said to go on to the end of all memory; no process has any there.
static uint64_t len_of_copied(const struct vb_mkey_attr *attr)
{
    uint64_t most = INT64_MAX - (uintptr_t)attr->base;
    return attr->guarded && (uintptr_t)attr->base <= INT64_MAX && attr->len > most ? most
                                                                                   : attr->len;
}

// Guarded memory needs nothing more: what is shared cannot go while the hull has it mapped, and
// what is copied is looked for in each access anyway.
static int put_key(struct vb_attach *a, const struct vb_mkey_attr *attr, struct vb_hull_key *key)
{
    *key = (struct vb_hull_key){.start = attr->start,
                                .len = attr->len,
                                .pd = attr->pd,
                                .kind = attr->kind,
                                .access = attr->access};
    if (attr->kind != VB_MKEY_REGION || vb_attach_find(a, attr->base, attr->len, &key->at))
        return 0;
    if (!a->copies)
        return -EFAULT;
    key->kind = VB_MKEY_COPIED;
    key->len = len_of_copied(attr);
    key->at = (struct vb_hull_place){.offset = (uintptr_t)attr->base};
    return 0;
}

int vb_attach_mkey_create(struct vb_attach *a, const struct vb_mkey_attr *attr, uint32_t *key)
{
    struct vb_hull_request request = {.op = VB_HULL_KEY_CREATE};
    int err = put_key(a, attr, &request.key);
    return err ? err : make(a, &request, key);
}

int vb_attach_mkey_change(struct vb_attach *a, uint32_t key, const struct vb_mkey_attr *attr)
{
    struct vb_hull_request request = {.op = VB_HULL_KEY_CHANGE, .number = key};
    struct vb_hull_reply reply;
    int err = put_key(a, attr, &request.key);
    return err ? err : call(a, &request, &reply);
}

int vb_attach_mkey_destroy(struct vb_attach *a, uint32_t key)
{
    return end(a, VB_HULL_KEY_DESTROY, key);
}

int vb_attach_window_destroy(struct vb_attach *a, uint32_t key)
{
    return end(a, VB_HULL_WINDOW_DESTROY, key);
}

// ---- completion queues

int vb_attach_cq_create(struct vb_attach *a, const struct vb_cqc_attr *attr, uint32_t channel,
                        uint32_t *cqn, uint32_t *unit)
{
    struct vb_hull_request request = {.op = VB_HULL_CQ_CREATE,
                                      .cq = {.start = attr->start,
                                             .entries = attr->entries,
                                             .channel = channel,
                                             .ignore_overrun = attr->ignore_overrun,
                                             .unit = attr->pu}};
    struct vb_hull_reply reply;

    if (!vb_attach_find(a, attr->ring, (uint64_t)attr->entries * VB_CQE_BYTES, &request.cq.ring) ||
        !vb_attach_find(a, attr->dbrec, 2 * sizeof *attr->dbrec, &request.cq.record))
        return -EFAULT;
    int err = make_and_tell(a, &request, cqn, &reply);
    if (!err && reply.value >= a->units)
        err = -EPROTO;
    if (!err)
        *unit = (uint32_t)reply.value;
    return err;
}

int vb_attach_cq_moderate(struct vb_attach *a, uint32_t cqn, uint32_t count, uint64_t period_ns)
{
    struct vb_hull_request request = {.op = VB_HULL_CQ_MODERATE,
                                      .number = cqn,
                                      .moderation = {.count = count, .period_ns = period_ns}};
    struct vb_hull_reply reply;
    return call(a, &request, &reply);
}

int vb_attach_cq_produced(struct vb_attach *a, uint32_t cqn, uint64_t *produced)
{
    return ask(a, VB_HULL_CQ_PRODUCED, cqn, 0, produced);
}

int vb_attach_cq_destroy(struct vb_attach *a, uint32_t cqn)
{
    return end(a, VB_HULL_CQ_DESTROY, cqn);
}

// ---- shared receive queues

int vb_attach_srq_create(struct vb_attach *a, const struct vb_srqc_attr *attr, uint32_t *srqn)
{
    struct vb_hull_request request = {.op = VB_HULL_SRQ_CREATE,
                                      .srq = {.pd = attr->pd,
                                              .entries = attr->entries,
                                              .stride_bytes = attr->stride_bytes,
                                              .xrcd = attr->xrcd,
                                              .cqn = attr->cqn}};

    if (!vb_attach_find(a, attr->ring, (uint64_t)attr->entries * attr->stride_bytes,
                        &request.srq.ring) ||
        !vb_attach_find(a, attr->dbrec, sizeof *attr->dbrec, &request.srq.record))
        return -EFAULT;
    return make(a, &request, srqn);
}

int vb_attach_srq_arm(struct vb_attach *a, uint32_t srqn, uint32_t limit)
{
    uint64_t nothing;
    return ask(a, VB_HULL_SRQ_ARM, srqn, limit, &nothing);
}

int vb_attach_srq_limit(struct vb_attach *a, uint32_t srqn, uint32_t *limit)
{
    uint64_t answer = 0;
    int err = ask(a, VB_HULL_SRQ_LIMIT, srqn, 0, &answer);

    *limit = (uint32_t)answer;
    return err;
}

int vb_attach_srq_progress(struct vb_attach *a, uint32_t srqn, struct vb_srq_progress *progress)
{
    struct vb_hull_request request = {.op = VB_HULL_SRQ_PROGRESS, .number = srqn};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);

    if (!err)
        *progress = reply.srq_progress;
    return err;
}

int vb_attach_srq_destroy(struct vb_attach *a, uint32_t srqn)
{
    return end(a, VB_HULL_SRQ_DESTROY, srqn);
}

// ---- queue pairs

static uint32_t chain_of(const struct vb_qpc_attr *attr)
{
    return (attr->cross_channel ? (uint32_t)VB_QP_CROSS_CHANNEL : 0u) |
           (attr->managed_send ? (uint32_t)VB_QP_MANAGED_SEND : 0u) |
           (attr->managed_recv ? (uint32_t)VB_QP_MANAGED_RECV : 0u) |
           (attr->no_wqe_checks ? (uint32_t)VB_QP_NO_WQE_CHECKS : 0u) |
           (attr->be_replies ? (uint32_t)VB_QP_BE_REPLIES : 0u);
}

int vb_attach_qp_create(struct vb_attach *a, const struct vb_qpc_attr *attr, uint32_t *qpn)
{
    struct vb_hull_request request = {.op = VB_HULL_QP_CREATE,
                                      .value = attr->program,
                                      .qp = {.send_start = attr->sq_start,
                                             .recv_start = attr->rq_start,
                                             .pd = attr->pd,
                                             .type = attr->type,
                                             .srqn = attr->xrcd ? attr->xrcd : attr->srqn,
                                             .send_cqn = attr->send_cqn,
                                             .recv_cqn = attr->recv_cqn,
                                             .send_blocks = attr->sq_blocks,
                                             .recv_entries = attr->rq_entries,
                                             .recv_stride_bytes = attr->rq_stride_bytes,
                                             .chain = chain_of(attr),
                                             .fetch_depth = attr->fetch_depth,
                                             .rate = attr->rate,
                                             .burst = attr->burst}};
    struct vb_hull_qp *qp = &request.qp;

    if (attr->gsi)
        qp->chain |= VB_HULL_QP_MANAGES;
    if (!vb_attach_find(a, attr->sq_ring, (uint64_t)attr->sq_blocks * VB_WQEBB_BYTES, &qp->send) ||
        !vb_attach_find(a, attr->dbrec, 2 * sizeof *attr->dbrec, &qp->record))
        return -EFAULT;
    if (attr->rq_entries &&
        !vb_attach_find(a, attr->rq_ring, (uint64_t)attr->rq_entries * attr->rq_stride_bytes,
                        &qp->recv))
        return -EFAULT;
    return make(a, &request, qpn);
}

int vb_attach_qp_modify(struct vb_attach *a, uint32_t qpn, const struct vb_qpc_mods *mods)
{
    struct vb_hull_request request = {.op = VB_HULL_QP_MODIFY, .number = qpn, .mods = *mods};
    struct vb_hull_reply reply;
    return call(a, &request, &reply);
}

int vb_attach_qp_tune(struct vb_attach *a, uint32_t qpn, uint32_t access, uint8_t min_rnr_timer,
                      uint32_t qkey)
{
    struct vb_hull_request request = {
        .op = VB_HULL_QP_TUNE,
        .number = qpn,
        .tune = {.access = access, .min_rnr_timer = min_rnr_timer, .qkey = qkey}};
    struct vb_hull_reply reply;
    return call(a, &request, &reply);
}

int vb_attach_qp_limit(struct vb_attach *a, uint32_t qpn, uint64_t rate_Bps, uint32_t burst_bytes)
{
    struct vb_hull_request request = {.op = VB_HULL_QP_LIMIT,
                                      .number = qpn,
                                      .limit = {.rate_Bps = rate_Bps, .burst_bytes = burst_bytes}};
    struct vb_hull_reply reply;
    return call(a, &request, &reply);
}

int vb_attach_qp_state(struct vb_attach *a, uint32_t qpn, enum vb_qp_state *state)
{
    uint64_t answer = 0;
    int err = ask(a, VB_HULL_QP_STATE, qpn, 0, &answer);

    if (!err)
        *state = answer < VB_QPS_COUNT ? (enum vb_qp_state)answer : VB_QPS_ERR;
    return err;
}

int vb_attach_qp_progress(struct vb_attach *a, uint32_t qpn, struct vb_qp_progress *progress)
{
    struct vb_hull_request request = {.op = VB_HULL_QP_PROGRESS, .number = qpn};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);

    if (!err)
        *progress = reply.progress;
    return err;
}

void vb_attach_qp_settle(struct vb_attach *a, uint32_t qpn)
{
    name(a, VB_HULL_QP_SETTLE, qpn);
}

int vb_attach_qp_counters(struct vb_attach *a, uint32_t qpn, struct vb_qp_counters *counters)
{
    struct vb_hull_request request = {.op = VB_HULL_QP_COUNTERS, .number = qpn};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);

    if (!err)
        *counters = reply.counters;
    return err;
}

int vb_attach_qp_destroy(struct vb_attach *a, uint32_t qpn)
{
    return end(a, VB_HULL_QP_DESTROY, qpn);
}

int vb_attach_counter(struct vb_attach *a, uint32_t index, uint64_t *value)
{
    return ask(a, VB_HULL_COUNTER, 0, index, value);
}
