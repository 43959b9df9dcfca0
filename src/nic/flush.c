// SPDX-License-Identifier: Apache-2.0
// A failed queue pair gives back everything that was posted, in order, as flushed completions.
#include "nic/pu.h"

#include "base/bytes.h"

#include <string.h>

static void flush_send(struct vb_pu *pu, struct vb_qpc *qp, uint64_t counter, uint8_t opcode,
                       uint8_t syndrome)
{
    const struct vb_completion c = {
        .qpn = qp->qpn,
        .counter = counter,
        .opcode = VB_CQE_REQ_ERR,
        .wqe_opcode = opcode,
        .syndrome = syndrome,
    };
    vb_qpc_complete(pu, qp, qp->send_cq, &c);
}

// The first request that was not done carries the reason, if there is one; the rest are flushed.
static void flush_fetched(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;
    struct vb_wr *wr = r->head;
    uint64_t counter = wr->counter;
    uint8_t opcode = wr->opcode;
    uint8_t syndrome = qp->flushing || !wr->syndrome ? VB_SYN_FLUSH : wr->syndrome;

    r->head = r->una_wr = wr->next;
    if (!r->head)
        r->tail = NULL;
    vb_wr_put(&pu->pool, wr);
    qp->flushing = true;
    flush_send(pu, qp, counter, opcode, syndrome);
}

// Only the entry's first block is read, and billed.
static void flush_unfetched(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_sq *sq = &qp->sq;
    struct vb_wqe_ctrl ctrl;
    uint64_t counter = sq->fetched;

    memcpy(&ctrl, sq->ring + (counter & (sq->blocks - 1)) * VB_WQEBB_BYTES, sizeof ctrl);
    uint32_t blocks = vb_wqe_blocks(&ctrl);
    // Without a length the next entry cannot be found: the rest of the queue goes with this one.
    bool lost = blocks == 0 || blocks > sq->end - counter;
    sq->fetched = lost ? sq->end : counter + blocks;
    qp->bill.fetched += sq->fetched - counter - 1;
    flush_send(pu, qp, counter, ctrl.opcode, VB_SYN_FLUSH);
}

static void flush_receive(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_recv *recv = &qp->resp.recv;
    const struct vb_srqc *srq = recv->loaded ? recv->srq : NULL;
    const struct vb_completion c = {
        .qpn = qp->qpn,
        .counter = recv->loaded ? recv->counter : qp->rq.taken++,
        .opcode = VB_CQE_RESP_ERR,
        .syndrome = VB_SYN_FLUSH,
        .srqn = srq ? srq->srqn : 0,
    };
    recv->loaded = false;
    vb_qpc_complete(pu, qp, srq && srq->cq ? srq->cq : qp->recv_cq, &c);
}

// A managed ring may have been opened for many rounds, or for ever: at most one of them is given
// back. An ordinary ring is never more than one round ahead (vb_sq_refresh()).
static void skip_rounds(uint64_t *from, uint64_t end, uint32_t ring)
{
    if (*from != end)
        *from += (end - *from - 1) / ring * ring;
}

// Of sends; what is passed over costs nothing.
static void skip_send_rounds(struct vb_qpc *qp)
{
    uint64_t from = qp->sq.fetched;

    skip_rounds(&qp->sq.fetched, qp->sq.end, qp->sq.blocks);
    qp->bill.fetched += qp->sq.fetched - from;
}

bool vb_flush_step(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (qp->loops && vb_loop_complete(pu, qp))
        return true; // it was done before the queue pair failed
    if (qp->req.head) {
        flush_fetched(pu, qp);
        return true;
    }
    vb_sq_refresh(qp);
    skip_send_rounds(qp);
    if (qp->sq.fetched != qp->sq.end) {
        flush_unfetched(pu, qp);
        return true;
    }
    if (qp->state == VB_QPS_SQE)
        return false; // receiving goes on
    vb_rq_refresh(qp);
    skip_rounds(&qp->rq.taken, qp->rq.end, qp->rq.entries);
    if (qp->resp.recv.loaded || qp->rq.taken != qp->rq.end) {
        flush_receive(pu, qp);
        return true;
    }
    if (qp->srq && !qp->drained) {
        qp->drained = true;
        vb_pu_event(pu, VB_EVENT_QP_LAST_WQE, qp->qpn);
    }
    return false;
}
