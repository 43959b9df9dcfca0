// SPDX-License-Identifier: Apache-2.0
// Taking completions, in the classic way and one by one (ibv_start_poll).
#include "verbs/verbs.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum {
    PATIENCE = 256,
    PATIENCE_STEP = 16,
};

static enum ibv_wc_status status_of(enum vb_wc_status status)
{
    static const enum ibv_wc_status statuses[] = {
        [VB_WC_OK] = IBV_WC_SUCCESS,
        [VB_WC_LOCAL_LENGTH] = IBV_WC_LOC_LEN_ERR,
        [VB_WC_LOCAL_QP_OP] = IBV_WC_LOC_QP_OP_ERR,
        [VB_WC_LOCAL_PROTECTION] = IBV_WC_LOC_PROT_ERR,
        [VB_WC_FLUSHED] = IBV_WC_WR_FLUSH_ERR,
        [VB_WC_BAD_RESPONSE] = IBV_WC_BAD_RESP_ERR,
        [VB_WC_LOCAL_ACCESS] = IBV_WC_LOC_ACCESS_ERR,
        [VB_WC_REMOTE_INVALID] = IBV_WC_REM_INV_REQ_ERR,
        [VB_WC_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
        [VB_WC_REMOTE_OPERATION] = IBV_WC_REM_OP_ERR,
        [VB_WC_RETRY_EXCEEDED] = IBV_WC_RETRY_EXC_ERR,
        [VB_WC_RNR_EXCEEDED] = IBV_WC_RNR_RETRY_EXC_ERR,
        [VB_WC_BIND_REFUSED] = IBV_WC_MW_BIND_ERR,
    };
    return statuses[status];
}

static enum ibv_wc_opcode opcode_of(const struct vb_wc *wc)
{
    static const enum ibv_wc_opcode opcodes[VB_WR_OPCODES] = {
        [VB_WR_SEND] = IBV_WC_SEND,
        [VB_WR_WRITE] = IBV_WC_RDMA_WRITE,
        [VB_WR_READ] = IBV_WC_RDMA_READ,
        [VB_WR_SEND_IMM] = IBV_WC_SEND,
        [VB_WR_SEND_INVAL] = IBV_WC_SEND,
        [VB_WR_WRITE_IMM] = IBV_WC_RDMA_WRITE,
        [VB_WR_CAS] = IBV_WC_COMP_SWAP,
        [VB_WR_FADD] = IBV_WC_FETCH_ADD,
        [VB_WR_MASKED_CAS] = IBV_WC_COMP_SWAP,
        [VB_WR_MASKED_FADD] = IBV_WC_FETCH_ADD,
        [VB_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
        [VB_WR_BIND] = IBV_WC_BIND_MW,
        [VB_WR_LOCAL_INVAL] = IBV_WC_LOCAL_INV,
    };

    if (wc->opcode == VB_WC_RECV)
        return IBV_WC_RECV;
    if (wc->opcode == VB_WC_RECV_WRITE)
        return IBV_WC_RECV_RDMA_WITH_IMM;
    return opcodes[wc->request];
}

static unsigned flags_of(const struct vb_wc *wc)
{
    return (wc->flags & VB_WC_WITH_IMM ? IBV_WC_WITH_IMM : 0u) |
           (wc->flags & VB_WC_WITH_INVAL ? IBV_WC_WITH_INV : 0u) |
           (wc->flags & VB_WC_WITH_GRH ? IBV_WC_GRH : 0u);
}

// Flushed requests follow the one that failed: one line for all of a queue pair.
static void tell(struct vb_verbs_cq *cq, const struct vb_wc *wc)
{
    if (wc->status == VB_WC_FLUSHED && cq->flushed_qpn == wc->qpn)
        return;
    cq->flushed_qpn = wc->qpn;
    vb_verbs_tell(cq->cq.context, wc);
}

static void translate(struct vb_verbs_cq *cq, const struct vb_wc *from, struct ibv_wc *to)
{
    if (__builtin_expect(from->status != VB_WC_OK, 0))
        tell(cq, from);
    *to = (struct ibv_wc){.wr_id = from->wr_id,
                          .status = status_of(from->status),
                          .opcode = opcode_of(from),
                          .vendor_err = from->status,
                          .byte_len = from->byte_len,
                          .imm_data = from->imm,
                          .qp_num = from->qpn,
                          .src_qp = from->src_qpn,
                          .wc_flags = flags_of(from)};
}

// Who has polled for some 100 us for nothing lets others run, now and then: on a machine with fewer
// cores than pollers the peer may be waiting for this one.
static bool is_patient(struct vb_verbs_cq *cq, bool found)
{
    cq->empty = found ? 0 : cq->empty + 1;
    return cq->empty >= PATIENCE && cq->empty % PATIENCE_STEP == 0;
}

int vb_verbs_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
    struct vb_verbs_cq *cq = VB_VERBS_CAST(vb_verbs_cq, ibv);
    struct vb_wc batch[VB_VERBS_BATCH];
    int taken = 0;

    if (vb_verbs_is_dead(ibv->context))
        return -vb_verbs_refuse_dead(ibv->context, "ibv_poll_cq");
    if (!vb_verbs_try(&cq->lock))
        return 0; // somebody else is taking them
    while (taken < n) {
        int want = n - taken < VB_VERBS_BATCH ? n - taken : VB_VERBS_BATCH;
        int got = vb_poll_cq(cq->nic, batch, want);
        if (got < 0 && taken == 0)
            taken = got;
        for (int i = 0; i < got; i++)
            translate(cq, &batch[i], &wc[taken + i]);
        if (got > 0)
            taken += got;
        if (got < want)
            break;
    }
    bool yields = is_patient(cq, taken != 0);
    vb_verbs_unlock(&cq->lock);
    if (yields)
        sched_yield();
    return taken;
}

// ---- one by one; the lock is held from ibv_start_poll() to ibv_end_poll()

static struct vb_verbs_cq *of(struct ibv_cq_ex *ex)
{
    return VB_VERBS_CAST(vb_verbs_cq, ex);
}

static int next_poll(struct ibv_cq_ex *ex)
{
    struct vb_verbs_cq *cq = of(ex);
    int got = vb_poll_cq(cq->nic, &cq->now, 1);

    if (got <= 0)
        return got ? -got : ENOENT;
    if (__builtin_expect(cq->now.status != VB_WC_OK, 0))
        tell(cq, &cq->now);
    ex->wr_id = cq->now.wr_id;
    ex->status = status_of(cq->now.status);
    cq->taken_ns = cq->taken_wall_ns = 0;
    return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    if (attr->comp_mask)
        return EINVAL;
    if (vb_verbs_is_dead(ex->context))
        return vb_verbs_refuse_dead(ex->context, "ibv_start_poll");
    if (!vb_verbs_try(&of(ex)->lock))
        return ENOENT;
    int error = next_poll(ex);
    bool yields = is_patient(of(ex), !error);
    if (error)
        vb_verbs_unlock(&of(ex)->lock);
    else
        atomic_store_explicit(&of(ex)->lock.between, pthread_self(), memory_order_relaxed);
    if (yields)
        sched_yield();
    return error;
}

static void end_poll(struct ibv_cq_ex *ex)
{
    atomic_store_explicit(&of(ex)->lock.between, 0, memory_order_relaxed);
    vb_verbs_unlock(&of(ex)->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
    return opcode_of(&of(ex)->now);
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
    return of(ex)->now.status;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
    return of(ex)->now.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
    return of(ex)->now.imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
    return of(ex)->now.qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
    return of(ex)->now.src_qpn;
}

static unsigned read_wc_flags(struct ibv_cq_ex *ex)
{
    return flags_of(&of(ex)->now);
}

// RoCE has neither local identifiers nor paths.
static uint32_t read_slid(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static uint8_t read_no_level(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
    (void)ex;
    memset(info, 0, sizeof *info);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// Completions carry no time of their own: it is that of the first look at it.
static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
    if (!of(ex)->taken_ns)
        of(ex)->taken_ns = clock_ns(CLOCK_MONOTONIC);
    return of(ex)->taken_ns;
}

static uint64_t read_wallclock_ns(struct ibv_cq_ex *ex)
{
    if (!of(ex)->taken_wall_ns)
        of(ex)->taken_wall_ns = clock_ns(CLOCK_REALTIME);
    return of(ex)->taken_wall_ns;
}

void vb_verbs_fill_poll_ops(struct vb_verbs_cq *cq)
{
    struct ibv_cq_ex *ex = &cq->cq;

    ex->start_poll = start_poll;
    ex->next_poll = next_poll;
    ex->end_poll = end_poll;
    ex->read_opcode = read_opcode;
    ex->read_vendor_err = read_vendor_err;
    ex->read_byte_len = read_byte_len;
    ex->read_imm_data = read_imm_data;
    ex->read_qp_num = read_qp_num;
    ex->read_src_qp = read_src_qp;
    ex->read_wc_flags = read_wc_flags;
    ex->read_slid = read_slid;
    ex->read_sl = read_no_level;
    ex->read_dlid_path_bits = read_no_level;
    ex->read_completion_ts = read_completion_ts;
    ex->read_cvlan = read_cvlan;
    ex->read_flow_tag = read_slid;
    ex->read_tm_info = read_tm_info;
    ex->read_completion_wallclock_ns = read_wallclock_ns;
}
