// SPDX-License-Identifier: Apache-2.0
// The driver's half of queues.
#include "host/driver.h"

#include "base/bytes.h"
#include "base/serial.h"
#include "nic/dev.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- rings

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

// Segments of an entry with the longest head.
static uint32_t entry_segments(uint32_t data_bytes)
{
    return 2 + data_bytes / VB_WQE_SEG_BYTES;
}

static uint32_t inline_segment_bytes(uint32_t len)
{
    return (4 + len + VB_WQE_SEG_BYTES - 1) & ~(VB_WQE_SEG_BYTES - 1u);
}

static int sq_init(struct vb_driver_sq *sq, const struct vb_qp_opts *o, uint64_t start)
{
    uint32_t list_bytes, inline_bytes, data_bytes, blocks;

    sq->max_sge = o->send_sge ? o->send_sge : 1;
    sq->max_inline = o->inline_bytes;
    if (sq->max_sge > VB_MAX_SGE || o->inline_bytes > VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES)
        return -EINVAL;
    list_bytes = sq->max_sge * VB_WQE_SEG_BYTES;
    inline_bytes = sq->max_inline ? inline_segment_bytes(sq->max_inline) : 0;
    data_bytes = list_bytes > inline_bytes ? list_bytes : inline_bytes;
    blocks = (entry_segments(data_bytes) + 3) / 4;
    if (blocks > VB_WQE_MAX_BLOCKS || entry_segments(data_bytes) > VB_WQE_DS_MASK ||
        o->send_depth == 0 || o->send_depth > VB_SQ_BLOCKS_MAX / blocks)
        return -EINVAL;
    sq->blocks = round_up_pow2(o->send_depth * blocks);
    sq->start = sq->pi = sq->ci = start;
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
    if (o->recv_depth == 0)
        return 0;
    rq->entries = round_up_pow2(o->recv_depth);
    rq->stride = round_up_pow2(rq->max_sge * VB_WQE_SEG_BYTES);
    rq->ring = ring_alloc((size_t)rq->entries * rq->stride);
    rq->wr_id = calloc(rq->entries, sizeof *rq->wr_id);
    return rq->ring && rq->wr_id ? 0 : -ENOMEM;
}

static void publish(uint32_t *dbrec, uint64_t counter)
{
    __atomic_store_n(dbrec, htobe32((uint32_t)(counter & 0xffff)), __ATOMIC_RELEASE);
}

int vb_driver_qp_init(struct vb_driver_qp *qp, const struct vb_qp_opts *opts, uint64_t sq_start,
                      uint64_t rq_start)
{
    memset(qp, 0, sizeof *qp);
    int err = sq_init(&qp->sq, opts, sq_start);
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
    publish(&qp->dbrec[VB_DBREC_SQ], qp->sq.pi);
    publish(&qp->dbrec[VB_DBREC_RQ], qp->rq.pi);
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

// ---- send

static const uint8_t wqe_opcode[] = {
    [VB_WR_SEND] = VB_WQE_SEND,
    [VB_WR_WRITE] = VB_WQE_WRITE,
    [VB_WR_READ] = VB_WQE_READ,
    [VB_WR_NOP] = VB_WQE_NOP,
};

static bool has_raddr(enum vb_wr_opcode opcode)
{
    return opcode == VB_WR_WRITE || opcode == VB_WR_READ;
}

// Bytes of the entry, 0 if the request is malformed.
static uint32_t entry_bytes(const struct vb_driver_sq *sq, const struct vb_send_wr *wr)
{
    const uint32_t all = VB_WR_SIGNALED | VB_WR_FENCE | VB_WR_SOLICITED | VB_WR_INLINE;
    uint32_t bytes = sizeof(struct vb_wqe_ctrl);
    uint64_t total = 0;

    if ((unsigned)wr->opcode > VB_WR_NOP || wr->flags & ~all || wr->num_sge > sq->max_sge)
        return 0;
    if (wr->opcode == VB_WR_NOP)
        return wr->num_sge == 0 ? bytes : 0;
    if (has_raddr(wr->opcode))
        bytes += sizeof(struct vb_wqe_raddr);
    for (uint32_t i = 0; i < wr->num_sge; i++) {
        if (wr->sge[i].len & VB_WQE_INLINE)
            return 0; // the bit would make it inline data
        total += wr->sge[i].len;
    }
    if (!(wr->flags & VB_WR_INLINE))
        return bytes + wr->num_sge * VB_WQE_SEG_BYTES;
    if (wr->opcode == VB_WR_READ || total > sq->max_inline)
        return 0;
    return total ? bytes + inline_segment_bytes((uint32_t)total) : bytes;
}

// Writes 16-byte segments into the ring; an entry may wrap on a segment's boundary.
struct writer {
    uint8_t *ring;
    uint32_t mask; // of bytes
    uint32_t at;
};

static void put_segment(struct writer *w, const void *segment)
{
    memcpy(w->ring + (w->at & w->mask), segment, VB_WQE_SEG_BYTES);
    w->at += VB_WQE_SEG_BYTES;
}

static void put_bytes(struct writer *w, const void *src, size_t len)
{
    while (len > 0) {
        uint32_t at = w->at & w->mask;
        size_t room = w->mask + 1 - at, n = len < room ? len : room;
        memcpy(w->ring + at, src, n);
        src = (const uint8_t *)src + n;
        w->at += (uint32_t)n;
        len -= n;
    }
}

static void put_inline(struct writer *w, const struct vb_send_wr *wr)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < wr->num_sge; i++)
        total += wr->sge[i].len;
    if (total == 0)
        return;
    uint32_t head = htobe32(total | VB_WQE_INLINE);
    put_bytes(w, &head, sizeof head);
    for (uint32_t i = 0; i < wr->num_sge; i++)
        put_bytes(w, (const void *)(uintptr_t)wr->sge[i].addr, wr->sge[i].len);
}

static void put_entry(struct vb_driver_qp *qp, const struct vb_send_wr *wr, uint32_t bytes)
{
    struct vb_driver_sq *sq = &qp->sq;
    struct writer w = {.ring = sq->ring,
                       .mask = sq->blocks * VB_WQEBB_BYTES - 1,
                       .at = (uint32_t)(sq->pi & (sq->blocks - 1)) * VB_WQEBB_BYTES};
    struct vb_wqe_ctrl ctrl = {.opcode = wqe_opcode[wr->opcode],
                               .ds = (uint8_t)(bytes / VB_WQE_SEG_BYTES)};

    vb_put_be16(ctrl.idx, (uint16_t)sq->pi);
    vb_put_be24(ctrl.qpn, qp->qpn);
    ctrl.fm_ce_se = (uint8_t)((wr->flags & VB_WR_SIGNALED ? VB_WQE_CE_ALWAYS : 0) |
                              (wr->flags & VB_WR_FENCE ? VB_WQE_FENCE : 0) |
                              (wr->flags & VB_WR_SOLICITED ? VB_WQE_SOLICITED : 0));
    put_segment(&w, &ctrl);
    if (has_raddr(wr->opcode))
        put_segment(&w, &(struct vb_wqe_raddr){htobe64(wr->raddr), htobe32(wr->rkey), 0});
    if (wr->flags & VB_WR_INLINE) {
        put_inline(&w, wr);
        return;
    }
    for (uint32_t i = 0; i < wr->num_sge; i++)
        put_segment(&w, &(struct vb_wqe_data){htobe32(wr->sge[i].len), htobe32(wr->sge[i].lkey),
                                              htobe64(wr->sge[i].addr)});
}

int vb_driver_post_send(struct vb_driver_qp *qp, const struct vb_send_wr *wr, uint32_t n)
{
    struct vb_driver_sq *sq = &qp->sq;
    uint32_t posted = 0;

    for (; posted < n; posted++, wr++) {
        uint32_t bytes = entry_bytes(sq, wr);
        uint32_t blocks = (bytes + VB_WQEBB_BYTES - 1) / VB_WQEBB_BYTES;
        if (bytes == 0 && posted == 0)
            return -EINVAL;
        if (bytes == 0 || sq->pi - sq->ci + blocks > sq->blocks)
            break;
        put_entry(qp, wr, bytes);
        sq->wr_id[sq->pi & (sq->blocks - 1)] = wr->wr_id;
        sq->size[sq->pi & (sq->blocks - 1)] = (uint8_t)blocks;
        sq->pi += blocks;
    }
    if (posted > 0) {
        publish(&qp->dbrec[VB_DBREC_SQ], sq->pi);
        vb_doorbell_ring(qp->doorbells, qp->qpn);
    }
    return (int)posted;
}

// ---- receive

int vb_driver_post_recv(struct vb_driver_qp *qp, const struct vb_recv_wr *wr, uint32_t n)
{
    struct vb_driver_rq *rq = &qp->rq;
    uint32_t posted = 0;

    for (; posted < n; posted++, wr++) {
        if (wr->num_sge > rq->max_sge) {
            if (posted == 0)
                return -EINVAL;
            break;
        }
        if (rq->pi - rq->ci >= rq->entries)
            break;
        uint32_t slot = (uint32_t)(rq->pi & (rq->entries - 1));
        struct vb_wqe_data *seg = (struct vb_wqe_data *)(void *)(rq->ring + slot * rq->stride);
        for (uint32_t i = 0; i < wr->num_sge; i++)
            seg[i] = (struct vb_wqe_data){htobe32(wr->sge[i].len), htobe32(wr->sge[i].lkey),
                                          htobe64(wr->sge[i].addr)};
        if (wr->num_sge < rq->stride / VB_WQE_SEG_BYTES)
            seg[wr->num_sge] = (struct vb_wqe_data){0, htobe32(VB_WQE_LKEY_END), 0};
        rq->wr_id[slot] = wr->wr_id;
        rq->pi++;
    }
    if (posted > 0) {
        publish(&qp->dbrec[VB_DBREC_RQ], rq->pi);
        vb_doorbell_ring(qp->doorbells, qp->qpn); // a failed queue pair has to flush them
    }
    return (int)posted;
}

// ---- completions

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

static void publish_consumed(struct vb_driver_cq *cq)
{
    __atomic_store_n(&cq->dbrec[VB_DBREC_CQ_CI], htobe32((uint32_t)(cq->ci & 0xffffff)),
                     __ATOMIC_RELEASE);
}

// Moves the entries of others up over those of the queue pair, newest first.
void vb_driver_cq_clean(struct vb_driver_cq *cq, uint32_t qpn)
{
    uint64_t end = cq->ci, freed = 0;

    while (end - cq->ci < cq->entries && is_produced(cq, end))
        end++;
    for (uint64_t i = end; i-- > cq->ci;) {
        struct vb_cqe *from = entry_at(cq, i);
        if ((be32toh(from->sop_drop_qpn) & 0xffffff) == qpn) {
            freed++;
        } else if (freed > 0) {
            struct vb_cqe *to = entry_at(cq, i + freed);
            uint8_t owner = to->op_own & 1;
            *to = *from;
            to->op_own = (uint8_t)((to->op_own & ~1) | owner);
        }
    }
    cq->ci += freed;
    publish_consumed(cq);
}

static enum vb_wc_status status_of(uint8_t syndrome)
{
    switch (syndrome) {
    case VB_SYN_LOCAL_LENGTH: return VB_WC_LOCAL_LENGTH;
    case VB_SYN_LOCAL_QP_OP: return VB_WC_LOCAL_QP_OP;
    case VB_SYN_LOCAL_PROT: return VB_WC_LOCAL_PROTECTION;
    case VB_SYN_FLUSH: return VB_WC_FLUSHED;
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
    case VB_WQE_WRITE: return VB_WC_WRITE;
    case VB_WQE_READ: return VB_WC_READ;
    case VB_WQE_NOP: return VB_WC_NOP;
    default: return VB_WC_SEND;
    }
}

static void take_request(struct vb_driver_sq *sq, const struct vb_cqe *cqe, struct vb_wc *wc)
{
    uint64_t counter = vb_widen16(sq->ci, be16toh(cqe->wqe_counter));
    uint32_t slot = (uint32_t)(counter & (sq->blocks - 1));

    wc->wr_id = sq->wr_id[slot];
    wc->opcode = opcode_of((uint8_t)(be32toh(cqe->sop_drop_qpn) >> 24));
    sq->ci = counter + sq->size[slot]; // everything before it is complete, too
}

static void take_receive(struct vb_driver_rq *rq, const struct vb_cqe *cqe, struct vb_wc *wc)
{
    uint64_t counter = vb_widen16(rq->ci, be16toh(cqe->wqe_counter));

    wc->wr_id = rq->wr_id[counter & (rq->entries - 1)];
    wc->opcode = VB_WC_RECV;
    rq->ci = counter + 1;
}

static bool take(const struct vb_cqe *cqe, uint8_t opcode, vb_driver_find *find, void *ctx,
                 struct vb_wc *wc)
{
    bool failed = opcode == VB_CQE_REQ_ERR || opcode == VB_CQE_RESP_ERR;

    wc->qpn = be32toh(cqe->sop_drop_qpn) & 0xffffff;
    wc->status = failed ? status_of(cqe->syndrome) : VB_WC_OK;
    wc->byte_len = failed ? 0 : be32toh(cqe->byte_cnt);
    struct vb_driver_qp *qp = find(ctx, wc->qpn);
    if (!qp)
        return false;
    if (opcode == VB_CQE_REQ || opcode == VB_CQE_REQ_ERR)
        take_request(&qp->sq, cqe, wc);
    else
        take_receive(&qp->rq, cqe, wc);
    return true;
}

int vb_driver_poll(struct vb_driver_cq *cq, vb_driver_find *find, void *ctx, struct vb_wc *wc,
                   int n)
{
    uint64_t before = cq->ci;
    int taken = 0;

    while (taken < n && is_produced(cq, cq->ci)) {
        const struct vb_cqe *cqe = entry_at(cq, cq->ci);
        if (take(cqe, cqe->op_own >> 4, find, ctx, &wc[taken]))
            taken++;
        cq->ci++;
    }
    if (cq->ci != before)
        publish_consumed(cq);
    return taken;
}
