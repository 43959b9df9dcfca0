// SPDX-License-Identifier: Apache-2.0
// The producers' counters and the receive queue.
#include "nic/pu.h"

#include "base/bytes.h"
#include "base/serial.h"

static uint64_t produced(const uint32_t *dbrec, uint64_t consumed)
{
    uint32_t word = be32toh(__atomic_load_n(dbrec, __ATOMIC_ACQUIRE));
    return vb_widen16(consumed, (uint16_t)word);
}

static uint64_t opened(struct vb_gate *gate, const uint32_t *dbrec)
{
    return vb_gate_read(gate, be32toh(__atomic_load_n(dbrec, __ATOMIC_ACQUIRE)));
}

// A producer that claims more than its ring holds has overwritten what it posted; of such a claim
// nothing is taken.
static void refresh(uint64_t *end, uint64_t consumed, uint32_t room, const uint32_t *dbrec)
{
    uint64_t seen = produced(dbrec, consumed);
    if (seen - consumed <= room && seen > *end)
        *end = seen;
}

void vb_sq_refresh(struct vb_qpc *qp)
{
    if (qp->sq.gate.managed)
        qp->sq.end = opened(&qp->sq.gate, qp->sq.dbrec);
    else
        refresh(&qp->sq.end, qp->sq.fetched, qp->sq.blocks, qp->sq.dbrec);
}

void vb_rq_refresh(struct vb_qpc *qp)
{
    if (qp->rq.gate.managed)
        qp->rq.end = opened(&qp->rq.gate, qp->rq.dbrec);
    else
        refresh(&qp->rq.end, qp->rq.taken, qp->rq.entries, qp->rq.dbrec);
}

void vb_receive_parse(struct vb_recv *recv, const uint8_t *segs, size_t bytes)
{
    uint64_t room = 0;

    recv->num_seg = 0;
    for (size_t i = 0; i < bytes / VB_WQE_SEG_BYTES && recv->num_seg < VB_MAX_SGE; i++) {
        const uint8_t *s = segs + i * VB_WQE_SEG_BYTES;
        struct vb_seg seg = {
            .addr = vb_get_be64(s + 8), .len = vb_get_be32(s), .key = vb_get_be32(s + 4)};
        if (seg.key == VB_WQE_LKEY_END && seg.len == 0)
            break;
        recv->seg[recv->num_seg++] = seg;
        room += seg.len;
    }
    recv->room = room > VB_MESSAGE_MAX ? VB_MESSAGE_MAX : (uint32_t)room;
    recv->filled = 0;
    recv->loaded = true;
}

bool vb_receive_load(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_rq *rq = &qp->rq;
    struct vb_recv *recv = &qp->resp.recv;

    if (qp->srq)
        return vb_srqc_load(pu, qp->srq, recv);
    if (rq->taken == rq->end) {
        vb_rq_refresh(qp);
        if (rq->taken == rq->end)
            return false;
    }
    vb_receive_parse(recv, rq->ring + (rq->taken & (rq->entries - 1)) * rq->stride, rq->stride);
    recv->counter = rq->taken++;
    recv->srq = NULL;
    if (qp->cross && qp->cross->program)
        vb_program_called(qp->cross->program);
    return true;
}
