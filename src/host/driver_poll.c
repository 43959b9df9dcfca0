// SPDX-License-Identifier: Apache-2.0
// Reading completions.
#include "host/driver_rings.h"

#include "base/bytes.h"
#include "base/serial.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static struct vb_cqe *entry_at(const struct vb_driver_cq *cq, uint64_t counter)
{
    return (struct vb_cqe *)(void *)(cq->ring + (counter & (cq->entries - 1)) * VB_CQE_BYTES);
}

static bool is_produced(const struct vb_driver_cq *cq, uint64_t counter)
{
    uint8_t op_own = __atomic_load_n(&entry_at(cq, counter)->op_own, __ATOMIC_ACQUIRE);
    uint8_t owner = (counter & cq->entries) ? 1 : 0;
    return op_own >> 4 != VB_CQE_INVALID && (op_own & 1) == owner;
}

uint64_t vb_driver_cq_end(const struct vb_driver_cq *cq)
{
    uint64_t end = cq->ci;

    while (end - cq->ci < cq->entries && is_produced(cq, end))
        end++;
    return end;
}

static void publish_consumed(struct vb_driver_cq *cq)
{
    __atomic_store_n(&cq->dbrec[VB_DBREC_CQ_CI], htobe32((uint32_t)(cq->ci & 0xffffff)),
                     __ATOMIC_RELEASE);
}

void vb_driver_cq_arm(struct vb_driver_cq *cq, bool solicited_only)
{
    vb_driver_cq_arm_at(cq, cq->ci, solicited_only);
}

void vb_driver_cq_arm_at(struct vb_driver_cq *cq, uint64_t counter, bool solicited_only)
{
    cq->arm_serial = cq->arm_serial % 3 + 1; // never 0: a word of 0 asks for nothing
    uint32_t word = cq->arm_serial << VB_DBREC_ARM_SERIAL | (uint32_t)(counter & 0xffffff) |
                    (solicited_only ? VB_DBREC_ARM_SOLICITED : 0);
    __atomic_store_n(&cq->dbrec[VB_DBREC_CQ_ARM], htobe32(word), __ATOMIC_SEQ_CST);
}

// The entry goes to the end of the list of free ones.
static void give_back(struct vb_driver_srq *srq, uint32_t index)
{
    vb_spin_lock(&srq->lock);
    struct vb_wqe_srq_next *tail = (void *)(srq->ring + (size_t)srq->tail * srq->stride);

    tail->next = htobe16((uint16_t)index);
    srq->tail = index;
    vb_spin_unlock(&srq->lock);
}

static uint32_t index_of(const struct vb_driver_srq *srq, const struct vb_cqe *cqe)
{
    return be16toh(cqe->wqe_counter) & (srq->entries - 1);
}

static bool is_receive(const struct vb_cqe *cqe)
{
    uint8_t opcode = cqe->op_own >> 4;
    return opcode != VB_CQE_REQ && opcode != VB_CQE_REQ_ERR;
}

// Copies entry i over one that is dropped, `by` places later.
static void move_up(const struct vb_driver_cq *cq, uint64_t i, uint64_t by)
{
    struct vb_cqe *to = entry_at(cq, i + by);
    uint8_t owner = to->op_own & 1;

    *to = *entry_at(cq, i);
    to->op_own = (uint8_t)((to->op_own & ~1) | owner);
}

// Whose completions are dropped: a queue pair's, or all receives of an XRC shared queue.
struct victim {
    uint32_t qpn;              // 0: none
    struct vb_driver_srq *srq; // of the queue pair
    uint32_t srqn;
};

// A completion of an XRC queue belongs to that, whoever received it.
static bool is_of(const struct vb_cqe *cqe, const struct victim *v)
{
    if (v->qpn == 0)
        return is_receive(cqe) && be32toh(cqe->srqn_uidx) == v->srqn;
    return (be32toh(cqe->sop_drop_qpn) & 0xffffff) == v->qpn && (!cqe->srqn_uidx || v->srq);
}

// Of a queue that outlives its owner nothing moves, for he may die in between. Such an entry is
// nobody's, and passed over.
static void blank(struct vb_driver_cq *cq, const struct victim *v)
{
    uint64_t end = vb_driver_cq_end(cq);

    for (uint64_t i = cq->ci; i < end; i++) {
        struct vb_cqe *cqe = entry_at(cq, i);
        if (!is_of(cqe, v))
            continue;
        if (cqe->srqn_uidx && v->srq)
            give_back(v->srq, index_of(v->srq, cqe));
        vb_driver_disown(cqe);
    }
}

// Moves the entries of others up over the victim's, newest first.
static void clean(struct vb_driver_cq *cq, const struct victim *v)
{
    uint64_t end = cq->ci, freed = 0;

    if (cq->outlives) {
        blank(cq, v);
        return;
    }
    while (end - cq->ci < cq->entries && is_produced(cq, end))
        end++;
    for (uint64_t i = end; i-- > cq->ci;) {
        const struct vb_cqe *from = entry_at(cq, i);
        if (!is_of(from, v)) {
            if (freed > 0)
                move_up(cq, i, freed);
            continue;
        }
        if (from->srqn_uidx && v->srq)
            give_back(v->srq, index_of(v->srq, from));
        freed++;
    }
    cq->ci += freed;
    publish_consumed(cq);
}

void vb_driver_cq_clean(struct vb_driver_cq *cq, uint32_t qpn, struct vb_driver_srq *srq)
{
    clean(cq, &(struct victim){.qpn = qpn, .srq = srq});
}

void vb_driver_cq_clean_srq(struct vb_driver_cq *cq, uint32_t srqn)
{
    clean(cq, &(struct victim){.srqn = srqn});
}

int vb_driver_cq_move(const struct vb_driver_cq *from, struct vb_driver_cq *to)
{
    uint64_t end = from->ci;

    while (end - from->ci < from->entries && is_produced(from, end))
        end++;
    if (end - from->ci > to->entries)
        return -EINVAL;
    for (uint64_t i = from->ci; i < end; i++) {
        struct vb_cqe *cqe = entry_at(to, i);
        *cqe = *entry_at(from, i);
        cqe->op_own = (uint8_t)((cqe->op_own & ~1) | ((i & to->entries) ? 1 : 0));
    }
    return 0;
}

void vb_driver_cq_adopt(struct vb_driver_cq *cq, struct vb_driver_cq *bigger)
{
    uint8_t *ring = cq->ring;
    uint32_t entries = cq->entries;

    cq->ring = bigger->ring;
    cq->entries = bigger->entries;
    bigger->ring = ring;
    bigger->entries = entries;
}

void vb_driver_cq_catch_up(struct vb_driver_cq *cq, uint64_t produced, uint32_t keep)
{
    if (produced - cq->ci <= keep)
        return;
    cq->ci = produced - keep;
    publish_consumed(cq);
}

static enum vb_wc_status status_of(uint8_t syndrome)
{
    switch (syndrome) {
    case VB_SYN_LOCAL_LENGTH: return VB_WC_LOCAL_LENGTH;
    case VB_SYN_LOCAL_QP_OP: return VB_WC_LOCAL_QP_OP;
    case VB_SYN_LOCAL_PROT: return VB_WC_LOCAL_PROTECTION;
    case VB_SYN_FLUSH: return VB_WC_FLUSHED;
    case VB_SYN_BIND: return VB_WC_BIND_REFUSED;
    case VB_SYN_LOCAL_ACCESS: return VB_WC_LOCAL_ACCESS;
    case VB_SYN_REMOTE_INVAL_REQ: return VB_WC_REMOTE_INVALID;
    case VB_SYN_REMOTE_ACCESS: return VB_WC_REMOTE_ACCESS;
    case VB_SYN_REMOTE_OP: return VB_WC_REMOTE_OPERATION;
    case VB_SYN_RETRY_EXC: return VB_WC_RETRY_EXCEEDED;
    case VB_SYN_RNR_RETRY_EXC: return VB_WC_RNR_EXCEEDED;
    default: return VB_WC_BAD_RESPONSE;
    }
}

static enum vb_wc_opcode opcode_of(uint8_t wqe)
{
    switch (wqe) {
    case VB_WQE_WRITE:
    case VB_WQE_WRITE_IMM: return VB_WC_WRITE;
    case VB_WQE_READ: return VB_WC_READ;
    case VB_WQE_NOP: return VB_WC_NOP;
    case VB_WQE_ATOMIC_CS:
    case VB_WQE_ATOMIC_FA:
    case VB_WQE_MASKED_CS:
    case VB_WQE_MASKED_FA: return VB_WC_ATOMIC;
    case VB_WQE_ATOMIC_WRITE: return VB_WC_ATOMIC_WRITE;
    case VB_WQE_FLUSH: return VB_WC_FLUSH;
    case VB_WQE_UMR: return VB_WC_KEY;
    case VB_WQE_WAIT:
    case VB_WQE_SEND_EN:
    case VB_WQE_RECV_EN: return VB_WC_CROSS;
    default: return VB_WC_SEND;
    }
}

// Of a change of a key the entry itself, which is still there, tells which.
static enum vb_wr_opcode request_of(const struct vb_driver_sq *sq, uint32_t slot, uint8_t wqe)
{
    static const uint8_t requests[64] = {
        [VB_WQE_NOP] = VB_WR_NOP,
        [VB_WQE_SEND_INVAL] = VB_WR_SEND_INVAL,
        [VB_WQE_WRITE] = VB_WR_WRITE,
        [VB_WQE_WRITE_IMM] = VB_WR_WRITE_IMM,
        [VB_WQE_SEND] = VB_WR_SEND,
        [VB_WQE_SEND_IMM] = VB_WR_SEND_IMM,
        [VB_WQE_WAIT] = VB_WR_WAIT,
        [VB_WQE_READ] = VB_WR_READ,
        [VB_WQE_ATOMIC_CS] = VB_WR_CAS,
        [VB_WQE_ATOMIC_FA] = VB_WR_FADD,
        [VB_WQE_MASKED_CS] = VB_WR_MASKED_CAS,
        [VB_WQE_MASKED_FA] = VB_WR_MASKED_FADD,
        [VB_WQE_RECV_EN] = VB_WR_RECV_EN,
        [VB_WQE_SEND_EN] = VB_WR_SEND_EN,
        [VB_WQE_UMR] = VB_WR_BIND,
        [VB_WQE_FLUSH] = VB_WR_FLUSH,
        [VB_WQE_ATOMIC_WRITE] = VB_WR_ATOMIC_WRITE,
    };
    const uint32_t mkey = VB_WQE_SEG_BYTES + sizeof(struct vb_wqe_umr);

    if (wqe == VB_WQE_UMR &&
        sq->ring[(slot * VB_WQEBB_BYTES + mkey) & (sq->blocks * VB_WQEBB_BYTES - 1)])
        return VB_WR_LOCAL_INVAL;
    return (enum vb_wr_opcode)requests[wqe & 63];
}

static void take_request(struct vb_driver_sq *sq, const struct vb_cqe *cqe, struct vb_wc *wc)
{
    uint64_t counter = vb_widen16(sq->ci, be16toh(cqe->wqe_counter));
    uint32_t slot = (uint32_t)(counter & (sq->blocks - 1));
    uint8_t wqe = (uint8_t)(be32toh(cqe->sop_drop_qpn) >> 24);

    wc->wr_id = sq->wr_id[slot];
    wc->opcode = opcode_of(wqe);
    wc->request = request_of(sq, slot, wqe);
    // Everything before it is complete, too. Another thread may post.
    __atomic_store_n(&sq->ci, counter + sq->size[slot], __ATOMIC_RELEASE);
}

static void take_receive(struct vb_driver_rq *rq, const struct vb_cqe *cqe, struct vb_wc *wc)
{
    uint64_t counter = vb_widen16(rq->ci, be16toh(cqe->wqe_counter));

    wc->wr_id = rq->wr_id[counter & (rq->entries - 1)];
    __atomic_store_n(&rq->ci, counter + 1, __ATOMIC_RELEASE); // another thread may post
}

static void take_shared(struct vb_driver_srq *srq, const struct vb_cqe *cqe, struct vb_wc *wc)
{
    uint32_t index = index_of(srq, cqe);

    wc->wr_id = srq->wr_id[index];
    give_back(srq, index);
}

static void describe_receive(const struct vb_cqe *cqe, uint8_t opcode, struct vb_wc *wc)
{
    uint32_t flags_rqpn = be32toh(cqe->flags_rqpn);

    wc->opcode = opcode == VB_CQE_RESP_WR_IMM ? VB_WC_RECV_WRITE : VB_WC_RECV;
    wc->imm = cqe->imm_inval_pkey;
    if (opcode == VB_CQE_RESP_WR_IMM || opcode == VB_CQE_RESP_SEND_IMM)
        wc->flags |= VB_WC_WITH_IMM;
    if (opcode == VB_CQE_RESP_SEND_INV) {
        wc->flags |= VB_WC_WITH_INVAL;
        wc->imm = be32toh(cqe->imm_inval_pkey);
    }
    if (flags_rqpn & VB_CQE_GRH)
        wc->flags |= VB_WC_WITH_GRH;
    wc->src_qpn = flags_rqpn & 0xffffff;
}

// The queue pair, which may be gone or another thread's, is not asked.
static bool take_audit(const struct vb_cqe *cqe, struct vb_wc *wc)
{
    *wc = (struct vb_wc){.wr_id = be16toh(cqe->wqe_counter),
                         .qpn = be32toh(cqe->sop_drop_qpn) & 0xffffff,
                         .opcode = opcode_of((uint8_t)(be32toh(cqe->sop_drop_qpn) >> 24))};
    return true;
}

static bool take(struct vb_driver_cq *cq, const struct vb_cqe *cqe, vb_driver_find *find, void *ctx,
                 struct vb_wc *wc)
{
    uint8_t opcode = cqe->op_own >> 4;
    bool failed = opcode == VB_CQE_REQ_ERR || opcode == VB_CQE_RESP_ERR;
    uint32_t srqn = be32toh(cqe->srqn_uidx);

    if (__builtin_expect(cq->audits, 0))
        return take_audit(cqe, wc);
    *wc = (struct vb_wc){.qpn = be32toh(cqe->sop_drop_qpn) & 0xffffff,
                         .status = failed ? status_of(cqe->syndrome) : VB_WC_OK,
                         .byte_len = failed ? 0 : be32toh(cqe->byte_cnt)};
    // Of an XRC receive the queue pair may be gone; it is not asked for.
    struct vb_driver_qp *qp = srqn && cq->find_srq ? NULL : find(ctx, wc->qpn);
    if (opcode == VB_CQE_REQ || opcode == VB_CQE_REQ_ERR) {
        if (qp)
            take_request(&qp->sq, cqe, wc);
        return qp;
    }
    describe_receive(cqe, opcode, wc);
    if (srqn) {
        struct vb_driver_srq *srq = cq->find_srq ? cq->find_srq(ctx, srqn) : qp ? qp->srq : NULL;
        if (srq)
            take_shared(srq, cqe, wc);
        return srq;
    }
    if (qp)
        take_receive(&qp->rq, cqe, wc);
    return qp;
}

// Of a queue that outlives its owner an entry is passed before its request's place can be used
// again: so what waits in the ring always has its own wr_id. Who dies in between has polled it.
static int poll_outliving(struct vb_driver_cq *cq, vb_driver_find *find, void *ctx,
                          struct vb_wc *wc, int n)
{
    int taken = 0;

    while (taken < n && is_produced(cq, cq->ci)) {
        const struct vb_cqe cqe = *entry_at(cq, cq->ci);
        cq->ci++;
        publish_consumed(cq);
        atomic_signal_fence(memory_order_seq_cst);
        if (take(cq, &cqe, find, ctx, &wc[taken]))
            taken++;
    }
    return taken;
}

int vb_driver_poll(struct vb_driver_cq *cq, vb_driver_find *find, void *ctx, struct vb_wc *wc,
                   int n)
{
    uint64_t before = cq->ci;
    int taken = 0;

    if (__builtin_expect(cq->outlives, 0))
        return poll_outliving(cq, find, ctx, wc, n);
    while (taken < n && is_produced(cq, cq->ci)) {
        const struct vb_cqe *cqe = entry_at(cq, cq->ci);
        if (take(cq, cqe, find, ctx, &wc[taken]))
            taken++;
        cq->ci++;
    }
    if (cq->ci != before)
        publish_consumed(cq);
    return taken;
}

uint32_t vb_driver_copy(const struct vb_driver_cq *cq, struct vb_cqe *copy, uint32_t n)
{
    uint32_t count = 0;

    for (; count < n && count < cq->entries && is_produced(cq, cq->ci + count); count++)
        copy[count] = *entry_at(cq, cq->ci + count);
    return count;
}

int vb_driver_take(struct vb_driver_cq *cq, const struct vb_cqe *copy, uint32_t count,
                   vb_driver_find *find, void *ctx, struct vb_wc *wc)
{
    int taken = 0;

    cq->ci += count; // before a place can be used again, as above
    publish_consumed(cq);
    atomic_signal_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < count; i++)
        if (take(cq, &copy[i], find, ctx, &wc[taken]))
            taken++;
    return taken;
}
