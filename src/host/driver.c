// SPDX-License-Identifier: Apache-2.0
// The driver's half of queues: their rings.
#include "host/driver_rings.h"

#include "nic/dev.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDEST_BLOCKS = 4 // a binding takes three
};

static uint32_t round_up_pow2(uint32_t n)
{
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

static void *ring_alloc(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (p)
        memset(p, 0, bytes);
    return p;
}

// Segments of an entry with the longest head that is usual: control and address, or where a
// datagram goes.
static uint32_t entry_segments(enum vb_wqe_heads heads, uint32_t data_bytes)
{
    static const uint32_t head[] = {
        [VB_WQE_HEAD_PLAIN] = 2, [VB_WQE_HEAD_DATAGRAM] = 4, [VB_WQE_HEAD_XRC] = 3};
    return head[heads] + data_bytes / VB_WQE_SEG_BYTES;
}

static int sq_init(struct vb_driver_sq *sq, const struct vb_qp_opts *o, enum vb_wqe_heads heads,
                   uint64_t start)
{
    uint32_t list_bytes, inline_bytes, data_bytes, blocks;

    sq->max_sge = o->send_sge ? o->send_sge : 1;
    sq->max_inline = o->inline_bytes;
    if (sq->max_sge > VB_MAX_SGE || o->inline_bytes > VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES)
        return -EINVAL;
    list_bytes = sq->max_sge * VB_WQE_SEG_BYTES;
    inline_bytes = sq->max_inline ? vb_driver_inline_bytes(sq->max_inline) : 0;
    data_bytes = list_bytes > inline_bytes ? list_bytes : inline_bytes;
    blocks = (entry_segments(heads, data_bytes) + 3) / 4;
    if (blocks > VB_WQE_MAX_BLOCKS || entry_segments(heads, data_bytes) > VB_WQE_DS_MASK ||
        o->send_depth == 0 || o->send_depth > VB_SQ_BLOCKS_MAX / blocks)
        return -EINVAL;
    sq->blocks = round_up_pow2(o->send_depth * blocks);
    if (sq->blocks < WIDEST_BLOCKS)
        sq->blocks = WIDEST_BLOCKS;
    sq->start = sq->pi = sq->ci = start;
    sq->unbounded = o->chain & VB_QP_IGNORE_OVERFLOW;
    sq->managed = o->chain & VB_QP_MANAGED_SEND;
    sq->ring = ring_alloc((size_t)sq->blocks * VB_WQEBB_BYTES);
    sq->wr_id = calloc(sq->blocks, sizeof *sq->wr_id);
    sq->size = calloc(sq->blocks, sizeof *sq->size);
    return sq->ring && sq->wr_id && sq->size ? 0 : -ENOMEM;
}

static int rq_init(struct vb_driver_rq *rq, const struct vb_qp_opts *o, uint64_t start)
{
    rq->max_sge = o->recv_sge ? o->recv_sge : 1;
    if (rq->max_sge > VB_MAX_SGE || o->recv_depth > VB_RQ_ENTRIES_MAX)
        return -EINVAL;
    rq->start = rq->pi = rq->ci = start;
    rq->managed = o->chain & VB_QP_MANAGED_RECV;
    rq->unbounded = rq->managed && (o->chain & VB_QP_IGNORE_OVERFLOW); // else the NIC would stop
    if (o->recv_depth == 0)
        return 0;
    rq->entries = round_up_pow2(o->recv_depth);
    rq->stride = round_up_pow2(rq->max_sge * VB_WQE_SEG_BYTES);
    rq->ring = ring_alloc((size_t)rq->entries * rq->stride);
    rq->wr_id = calloc(rq->entries, sizeof *rq->wr_id);
    return rq->ring && rq->wr_id ? 0 : -ENOMEM;
}

static enum vb_wqe_heads heads_of(enum vb_service service)
{
    if (service == VB_SERVICE_UD)
        return VB_WQE_HEAD_DATAGRAM;
    return service == VB_SERVICE_XRC_SEND ? VB_WQE_HEAD_XRC : VB_WQE_HEAD_PLAIN;
}

int vb_driver_qp_init(struct vb_driver_qp *qp, const struct vb_qp_opts *opts, uint64_t sq_start,
                      uint64_t rq_start)
{
    memset(qp, 0, sizeof *qp);
    qp->heads = heads_of(opts->service);
    qp->cross = opts->chain & VB_QP_CROSS_CHANNEL;
    int err = sq_init(&qp->sq, opts, qp->heads, sq_start);
    if (!err)
        err = rq_init(&qp->rq, opts, rq_start);
    if (!err) {
        qp->dbrec = ring_alloc(64);
        if (!qp->dbrec)
            err = -ENOMEM;
    }
    if (err) {
        vb_driver_qp_fini(qp);
        return err;
    }
    vb_driver_qp_reset(qp);
    return 0;
}

void vb_driver_qp_fini(struct vb_driver_qp *qp)
{
    free(qp->sq.ring);
    free(qp->sq.wr_id);
    free(qp->sq.size);
    free(qp->rq.ring);
    free(qp->rq.wr_id);
    free(qp->dbrec);
    memset(qp, 0, sizeof *qp);
}

void vb_driver_qp_reset(struct vb_driver_qp *qp)
{
    qp->sq.pi = qp->sq.ci = qp->sq.start;
    qp->rq.pi = qp->rq.ci = qp->rq.start;
    vb_driver_publish(&qp->dbrec[VB_DBREC_SQ], qp->sq.pi);
    vb_driver_publish(&qp->dbrec[VB_DBREC_RQ], qp->rq.pi);
    vb_driver_keep(qp, VB_DBREC_SQ, qp->sq.pi);
    vb_driver_keep(qp, VB_DBREC_RQ, qp->rq.pi);
}

int vb_driver_cq_init(struct vb_driver_cq *cq, uint32_t entries, uint64_t start)
{
    memset(cq, 0, sizeof *cq);
    if (entries == 0 || entries > VB_CQ_ENTRIES_MAX)
        return -EINVAL;
    cq->entries = round_up_pow2(entries);
    cq->ci = start;
    cq->ring = ring_alloc((size_t)cq->entries * VB_CQE_BYTES);
    cq->dbrec = ring_alloc(64);
    if (!cq->ring || !cq->dbrec) {
        vb_driver_cq_fini(cq);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < cq->entries; i++)
        cq->ring[i * VB_CQE_BYTES + offsetof(struct vb_cqe, op_own)] = VB_CQE_INVALID << 4;
    cq->dbrec[VB_DBREC_CQ_CI] = htobe32((uint32_t)(start & 0xffffff));
    return 0;
}

void vb_driver_cq_fini(struct vb_driver_cq *cq)
{
    free(cq->ring);
    free(cq->dbrec);
    memset(cq, 0, sizeof *cq);
}

// ---- shared receive queues

static void set_next(struct vb_driver_srq *srq, uint32_t entry, uint32_t next)
{
    struct vb_wqe_srq_next *seg = (void *)(srq->ring + (size_t)entry * srq->stride);
    seg->next = htobe16((uint16_t)next);
}

int vb_driver_srq_init(struct vb_driver_srq *srq, uint32_t depth, uint32_t sge)
{
    memset(srq, 0, sizeof *srq);
    srq->max_sge = sge ? sge : 1;
    if (depth == 0 || depth >= VB_RQ_ENTRIES_MAX || srq->max_sge > VB_MAX_SGE)
        return -EINVAL;
    srq->entries = round_up_pow2(depth + 1);
    srq->stride = round_up_pow2((1 + srq->max_sge) * VB_WQE_SEG_BYTES);
    srq->ring = ring_alloc((size_t)srq->entries * srq->stride);
    srq->wr_id = calloc(srq->entries, sizeof *srq->wr_id);
    srq->dbrec = ring_alloc(64);
    if (!srq->ring || !srq->wr_id || !srq->dbrec) {
        vb_driver_srq_fini(srq);
        return -ENOMEM;
    }
    srq->tail = srq->entries - 1;
    for (uint32_t i = 0; i < srq->entries; i++)
        set_next(srq, i, (i + 1) & (srq->entries - 1));
    return 0;
}

void vb_driver_srq_fini(struct vb_driver_srq *srq)
{
    free(srq->ring);
    free(srq->wr_id);
    free(srq->dbrec);
    memset(srq, 0, sizeof *srq);
}
