// SPDX-License-Identifier: Apache-2.0
// Posting in the classic way: lists of requests, of which the first that fails is named.
#include "verbs/verbs.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

static_assert(sizeof(struct ibv_sge) == sizeof(struct vb_sge) &&
                  offsetof(struct ibv_sge, addr) == offsetof(struct vb_sge, addr) &&
                  offsetof(struct ibv_sge, length) == offsetof(struct vb_sge, len) &&
                  offsetof(struct ibv_sge, lkey) == offsetof(struct vb_sge, lkey),
              "scatter entries are taken as they are");

bool vb_verbs_serves(const struct vb_verbs_qp *qp, enum vb_wr_opcode opcode)
{
    const uint32_t sends = 1u << VB_WR_SEND | 1u << VB_WR_SEND_IMM;
    const uint32_t writes = 1u << VB_WR_WRITE | 1u << VB_WR_WRITE_IMM;
    const uint32_t keys = 1u << VB_WR_BIND | 1u << VB_WR_LOCAL_INVAL | 1u << VB_WR_SEND_INVAL;
    const uint32_t fetches =
        1u << VB_WR_READ | 1u << VB_WR_CAS | 1u << VB_WR_FADD | 1u << VB_WR_ATOMIC_WRITE;
    const uint32_t served[] = {
        [VB_SERVICE_RC] = sends | writes | fetches | keys,
        [VB_SERVICE_UC] = sends | writes | keys,
        [VB_SERVICE_UD] = sends,
        [VB_SERVICE_XRC_SEND] = sends | writes | fetches | keys,
        [VB_SERVICE_XRC_RECV] = 0,
    };
    return served[qp->service] >> opcode & 1;
}

// The NIC's name of an operation, or VB_WR_OPCODES.
static enum vb_wr_opcode opcode_of(enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE: return VB_WR_WRITE;
    case IBV_WR_RDMA_WRITE_WITH_IMM: return VB_WR_WRITE_IMM;
    case IBV_WR_SEND: return VB_WR_SEND;
    case IBV_WR_SEND_WITH_IMM: return VB_WR_SEND_IMM;
    case IBV_WR_SEND_WITH_INV: return VB_WR_SEND_INVAL;
    case IBV_WR_RDMA_READ: return VB_WR_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return VB_WR_CAS;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return VB_WR_FADD;
    case IBV_WR_LOCAL_INV: return VB_WR_LOCAL_INVAL;
    case IBV_WR_BIND_MW: return VB_WR_BIND;
    case IBV_WR_ATOMIC_WRITE: return VB_WR_ATOMIC_WRITE;
    default: return VB_WR_OPCODES;
    }
}

int vb_verbs_translate_bind(struct vb_send_wr *wr, const struct ibv_mw_bind_info *info,
                            uint32_t new_key)
{
    const unsigned known = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;

    if (!info->mr && info->length == 0) { // of length 0: the window ends
        wr->opcode = VB_WR_LOCAL_INVAL;
        wr->imm = new_key;
        return 0;
    }
    if (!info->mr || info->mw_access_flags & ~known)
        return EINVAL;
    wr->bind.window = new_key;
    wr->bind.region = info->mr->lkey;
    wr->bind.addr = info->addr;
    wr->bind.len = info->length;
    wr->bind.rights = vb_verbs_rights(info->mw_access_flags);
    wr->bind.zero_based = (info->mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0;
    return 0;
}

// What is special to an operation. 0 or a positive errno.
static int translate_rest(const struct ibv_send_wr *from, struct vb_send_wr *to)
{
    switch (to->opcode) {
    case VB_WR_CAS:
    case VB_WR_FADD:
        to->raddr = from->wr.atomic.remote_addr;
        to->rkey = from->wr.atomic.rkey;
        to->atomic.compare = to->opcode == VB_WR_CAS ? from->wr.atomic.compare_add : 0;
        to->atomic.swap_add =
            to->opcode == VB_WR_CAS ? from->wr.atomic.swap : from->wr.atomic.compare_add;
        return 0;
    case VB_WR_SEND_INVAL:
    case VB_WR_LOCAL_INVAL: to->imm = from->invalidate_rkey; return 0;
    case VB_WR_BIND:
        if (!from->bind_mw.mw || from->bind_mw.mw->type != IBV_MW_TYPE_2)
            return EINVAL;
        return vb_verbs_translate_bind(to, &from->bind_mw.bind_info, from->bind_mw.rkey);
    default:
        to->imm = from->imm_data;
        to->raddr = from->wr.rdma.remote_addr;
        to->rkey = from->wr.rdma.rkey;
        return 0;
    }
}

static int translate(const struct vb_verbs_qp *qp, const struct ibv_send_wr *from,
                     struct vb_send_wr *to)
{
    const unsigned known =
        IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
    unsigned flags = from->send_flags;

    *to = (struct vb_send_wr){
        .wr_id = from->wr_id,
        .sge = (const struct vb_sge *)(const void *)from->sg_list,
        .num_sge = (uint32_t)from->num_sge,
        .opcode = opcode_of(from->opcode),
        .flags = (qp->all_signaled || flags & IBV_SEND_SIGNALED ? VB_WR_SIGNALED : 0u) |
                 (flags & IBV_SEND_FENCE ? VB_WR_FENCE : 0u) |
                 (flags & IBV_SEND_SOLICITED ? VB_WR_SOLICITED : 0u) |
                 (flags & IBV_SEND_INLINE ? VB_WR_INLINE : 0u)};
    if (to->opcode == VB_WR_OPCODES || !vb_verbs_serves(qp, to->opcode) || from->num_sge < 0 ||
        flags & ~known)
        return EINVAL;
    if (qp->service == VB_SERVICE_UD) {
        const struct vb_verbs_ah *ah = VB_VERBS_CAST(vb_verbs_ah, from->wr.ud.ah);
        if (!ah)
            return EINVAL;
        to->imm = from->imm_data;
        to->to = ah->to;
        to->to.qpn = from->wr.ud.remote_qpn;
        to->to.qkey =
            from->wr.ud.remote_qkey & 0x80000000 ? qp->attr.qkey : from->wr.ud.remote_qkey;
        return 0;
    }
    if (qp->service == VB_SERVICE_XRC_SEND)
        to->srqn = from->qp_type.xrc.remote_srqn;
    return translate_rest(from, to);
}

// Why the NIC took no more, as a positive errno: it names only the first request it refuses.
static int refusal(struct vb_qp *nic, const struct vb_send_wr *wr)
{
    int posted = vb_post_send(nic, wr, 1);
    return posted == 0 ? ENOMEM : posted < 0 ? -posted : 0;
}

static int post_send(struct vb_verbs_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct vb_send_wr batch[VB_VERBS_BATCH];
    int error = 0;

    while (wr && !error) {
        struct ibv_send_wr *w = wr;
        uint32_t n = 0;
        while (w && n < VB_VERBS_BATCH && !(error = translate(qp, w, &batch[n]))) {
            w = w->next;
            n++;
        }
        int posted = n ? vb_post_send(qp->nic, batch, n) : 0;
        uint32_t done = posted > 0 ? (uint32_t)posted : 0;
        if (done < n)
            error = posted < 0 ? -posted : refusal(qp->nic, &batch[done]);
        if (done < n && !error)
            done++; // there was room in the meantime
        for (; done > 0; done--)
            wr = wr->next;
    }
    if (error)
        *bad = wr;
    return error;
}

int vb_verbs_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);

    if (!atomic_load_explicit(&qp->may_send, memory_order_relaxed)) {
        *bad = wr;
        return vb_verbs_fail(EINVAL, "ibv_post_send", "the queue pair is not in RTS yet");
    }
    if (vb_verbs_is_dead(ibv->context)) {
        *bad = wr;
        return vb_verbs_refuse_dead(ibv->context, "ibv_post_send");
    }
    vb_spin_lock(&qp->send_lock);
    int error = post_send(qp, wr, bad);
    vb_spin_unlock(&qp->send_lock);
    if (__builtin_expect(error, 0))
        vb_verbs_fail(error, "ibv_post_send",
                      error == ENOMEM ? "the send queue is full" : "the request is malformed");
    return error;
}

// ---- receives

static uint32_t translate_receives(struct ibv_recv_wr *wr, struct vb_recv_wr *batch)
{
    uint32_t n = 0;

    for (; wr && n < VB_VERBS_BATCH && wr->num_sge >= 0; wr = wr->next)
        batch[n++] = (struct vb_recv_wr){.wr_id = wr->wr_id,
                                         .sge = (const struct vb_sge *)(const void *)wr->sg_list,
                                         .num_sge = (uint32_t)wr->num_sge};
    return n;
}

typedef int post_receives(void *queue, const struct vb_recv_wr *wr, uint32_t n);

static int to_queue_pair(void *queue, const struct vb_recv_wr *wr, uint32_t n)
{
    return vb_post_recv(queue, wr, n);
}

static int to_shared(void *queue, const struct vb_recv_wr *wr, uint32_t n)
{
    return vb_post_srq(queue, wr, n);
}

static int post_receive_list(post_receives *post, void *queue, struct ibv_recv_wr *wr,
                             struct ibv_recv_wr **bad)
{
    struct vb_recv_wr batch[VB_VERBS_BATCH];
    int error = 0;

    while (wr && !error) {
        uint32_t n = translate_receives(wr, batch);
        int posted = n ? post(queue, batch, n) : -EINVAL;
        if (posted < 0)
            error = -posted;
        for (int i = 0; i < posted; i++)
            wr = wr->next;
        // Fewer than asked for: the next round names the reason.
        if (posted == 0)
            error = ENOMEM;
    }
    if (!error)
        return 0;
    *bad = wr;
    vb_verbs_fail(error, "ibv_post_recv",
                  error == ENOMEM ? "the receive queue is full" : "the request is malformed");
    return error;
}

int vb_verbs_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);

    if (ibv->srq || !atomic_load_explicit(&qp->may_receive, memory_order_relaxed)) {
        *bad = wr;
        return vb_verbs_fail(EINVAL, "ibv_post_recv",
                             ibv->srq ? "receives come from its shared queue"
                                      : "the queue pair is in RESET");
    }
    if (vb_verbs_is_dead(ibv->context)) {
        *bad = wr;
        return vb_verbs_refuse_dead(ibv->context, "ibv_post_recv");
    }
    vb_spin_lock(&qp->recv_lock);
    int error = post_receive_list(to_queue_pair, qp->nic, wr, bad);
    vb_spin_unlock(&qp->recv_lock);
    return error;
}

int vb_verbs_post_wq_recv(struct ibv_wq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct vb_verbs_wq *wq = VB_VERBS_CAST(vb_verbs_wq, ibv);

    if (!atomic_load_explicit(&wq->may_receive, memory_order_relaxed) ||
        vb_verbs_is_dead(ibv->context)) {
        *bad = wr;
        return vb_verbs_is_dead(ibv->context)
                   ? vb_verbs_refuse_dead(ibv->context, "ibv_post_wq_recv")
                   : vb_verbs_fail(EINVAL, "ibv_post_wq_recv", "the queue is in RESET");
    }
    vb_spin_lock(&wq->lock);
    int error = post_receive_list(to_queue_pair, wq->nic, wr, bad);
    vb_spin_unlock(&wq->lock);
    return error;
}

int vb_verbs_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return post_receive_list(to_shared, VB_VERBS_CAST(vb_verbs_srq, ibv)->nic, wr, bad);
}

// ---- windows of type 1, whose key the library chooses

int vb_verbs_bind_mw(struct ibv_qp *ibv, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    struct vb_verbs_qp *qp = VB_VERBS_CAST(vb_verbs_qp, ibv);
    uint32_t key = ibv_inc_rkey(mw->rkey);
    struct vb_send_wr wr = {
        .wr_id = bind->wr_id,
        .opcode = VB_WR_BIND,
        .flags = (qp->all_signaled || bind->send_flags & IBV_SEND_SIGNALED ? VB_WR_SIGNALED : 0u) |
                 (bind->send_flags & IBV_SEND_FENCE ? VB_WR_FENCE : 0u)};

    if (!vb_verbs_serves(qp, VB_WR_BIND) ||
        !atomic_load_explicit(&qp->may_send, memory_order_relaxed))
        return vb_verbs_fail(EINVAL, "ibv_bind_mw", "not on this queue pair");
    bool ends = !bind->bind_info.mr && bind->bind_info.length == 0;
    int error = vb_verbs_translate_bind(&wr, &bind->bind_info, ends ? mw->rkey : key);
    if (error)
        return vb_verbs_fail(error, "ibv_bind_mw", "the binding is malformed");
    if (vb_verbs_refuse_dead(ibv->context, "ibv_bind_mw"))
        return EPERM;
    vb_spin_lock(&qp->send_lock);
    int err = vb_post_send_all(qp->nic, &wr, 1);
    vb_spin_unlock(&qp->send_lock);
    if (err)
        return vb_verbs_fail(-err, "ibv_bind_mw", NULL);
    mw->rkey = key;
    return 0;
}
