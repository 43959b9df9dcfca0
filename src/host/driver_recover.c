// SPDX-License-Identifier: Apache-2.0
// Taking over queues whose owner died between any two of its stores.
//
// What it published in doorbell records was posted, and what it wrote and did not publish was not.
// The device says how far it has come, and completions that wait in a ring hold the places of their
// requests, whose wr_ids lie behind the rings. So nothing but records, rings and the device's word
// is needed, and nothing is lost or told twice: a completion is passed in the queue's record before
// anybody hears of it (driver_poll.c).
//
// The device goes on meanwhile. Its word is asked for first, and the rings are looked at then: what
// had ended before it spoke is in a ring, or was polled.
#include "host/driver_rings.h"

#include "nic/dev.h"

enum {
    DEED_MAGIC = 0x64656564,
    CI_MASK = 0xffffff,
};

static struct vb_cqe *entry_at(const struct vb_driver_cq *cq, uint64_t counter)
{
    return (struct vb_cqe *)(void *)(cq->ring + (counter & (cq->entries - 1)) * VB_CQE_BYTES);
}

// The counter that ends with these 16 bits and is not before `from`.
static uint64_t not_before(uint64_t from, uint16_t low)
{
    return from + (uint16_t)(low - (uint16_t)from);
}

static uint16_t record(const uint32_t *dbrec)
{
    return (uint16_t)be32toh(__atomic_load_n(dbrec, __ATOMIC_ACQUIRE));
}

// ---- completion queues

// A record that makes no sense was overwritten: what is in the ring is told.
void vb_driver_cq_recover(struct vb_driver_cq *cq, uint64_t produced)
{
    uint32_t word = be32toh(__atomic_load_n(&cq->dbrec[VB_DBREC_CQ_CI], __ATOMIC_ACQUIRE));
    uint64_t waiting = (produced - word) & CI_MASK;

    cq->ci = produced - (waiting > cq->entries ? cq->entries : waiting);
    word = be32toh(__atomic_load_n(&cq->dbrec[VB_DBREC_CQ_ARM], __ATOMIC_ACQUIRE));
    cq->arm_serial = word >> VB_DBREC_ARM_SERIAL & 3;
}

void vb_driver_cq_sift(struct vb_driver_cq *cq, vb_driver_known *is_known, void *ctx)
{
    uint64_t end = cq->audits ? cq->ci : vb_driver_cq_end(cq); // an auditor takes all

    for (uint64_t i = cq->ci; i < end; i++) {
        struct vb_cqe *cqe = entry_at(cq, i);
        if (!is_known(ctx, be32toh(cqe->sop_drop_qpn) & 0xffffff, be32toh(cqe->srqn_uidx)))
            vb_driver_disown(cqe);
    }
}

void vb_driver_cq_mark(const struct vb_driver_cq *cq, uint32_t srqn, uint32_t entries,
                       uint8_t *is_used)
{
    uint64_t end = vb_driver_cq_end(cq);

    for (uint64_t i = cq->ci; i < end; i++) {
        const struct vb_cqe *cqe = entry_at(cq, i);
        if (be32toh(cqe->srqn_uidx) == srqn)
            is_used[be16toh(cqe->wqe_counter) & (entries - 1)] = 1;
    }
}

// ---- queue pairs

void vb_driver_qp_deed(struct vb_driver_qp *qp, struct vb_driver_deed *deed)
{
    *deed = (struct vb_driver_deed){.magic = DEED_MAGIC,
                                    .send_sge = qp->sq.max_sge,
                                    .inline_bytes = qp->sq.max_inline,
                                    .unbounded = (qp->sq.unbounded ? 1u : 0u) |
                                                 (qp->rq.unbounded ? 2u : 0u)};
    deed->pi[VB_DBREC_SQ] = qp->sq.pi;
    deed->pi[VB_DBREC_RQ] = qp->rq.pi;
    qp->deed = deed;
}

// One that was overwritten says nothing: what it would have said is taken for the least.
static void read_deed(struct vb_driver_qp *qp)
{
    const struct vb_driver_deed d = *qp->deed;
    bool holds = d.magic == DEED_MAGIC && d.send_sge >= 1 && d.send_sge <= VB_MAX_SGE &&
                 d.inline_bytes <= VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES && d.unbounded <= 3;

    qp->sq.max_sge = holds ? d.send_sge : 1;
    qp->sq.max_inline = holds ? d.inline_bytes : 0;
    qp->sq.unbounded = holds && d.unbounded & 1;
    qp->rq.unbounded = holds && d.unbounded & 2;
}

// The oldest completion of a side of the queue pair that waits, as a counter from `from` on.
static bool find_oldest(const struct vb_driver_cq *cq, uint32_t qpn, bool receive, uint64_t from,
                        uint64_t *counter)
{
    uint64_t end = vb_driver_cq_end(cq);

    for (uint64_t i = cq->ci; i < end; i++) {
        const struct vb_cqe *cqe = entry_at(cq, i);
        uint8_t opcode = cqe->op_own >> 4;
        bool received = opcode != VB_CQE_REQ && opcode != VB_CQE_REQ_ERR;
        if ((be32toh(cqe->sop_drop_qpn) & 0xffffff) != qpn || received != receive || cqe->srqn_uidx)
            continue;
        *counter = not_before(from, be16toh(cqe->wqe_counter));
        return true;
    }
    return false;
}

// Where the driver's consumer stands: at what the device has not finished, or at what nobody has
// polled, if that is before it. A ring of which more would be outstanding than it holds was
// overwritten: all of it counts as done.
static uint64_t consumed(uint64_t pi, uint64_t done, uint32_t room, bool waits, uint64_t oldest)
{
    uint64_t ci = waits && (int64_t)(oldest - done) < 0 ? oldest : done;
    return pi - ci > room ? pi : ci;
}

void vb_driver_qp_recover(struct vb_driver_qp *qp, const struct vb_qp_progress *p,
                          const struct vb_driver_cq *send_cq, const struct vb_driver_cq *recv_cq)
{
    struct vb_driver_sq *sq = &qp->sq;
    struct vb_driver_rq *rq = &qp->rq;
    uint64_t oldest = 0;

    read_deed(qp);
    sq->pi = sq->managed ? qp->deed->pi[VB_DBREC_SQ]
                         : not_before(p->retired, record(&qp->dbrec[VB_DBREC_SQ]));
    bool waits = find_oldest(send_cq, qp->qpn, false, sq->pi - sq->blocks, &oldest);
    sq->ci = consumed(sq->pi, p->retired, sq->blocks, waits, oldest);
    if (rq->entries == 0)
        return;
    rq->pi = rq->managed ? qp->deed->pi[VB_DBREC_RQ]
                         : not_before(p->recv_done, record(&qp->dbrec[VB_DBREC_RQ]));
    waits = find_oldest(recv_cq, qp->qpn, true, rq->pi - rq->entries, &oldest);
    rq->ci = consumed(rq->pi, p->recv_done, rq->entries, waits, oldest);
}

// ---- shared receive queues

static struct vb_wqe_srq_next *link_of(const struct vb_driver_srq *srq, uint32_t index)
{
    return (void *)(srq->ring + (size_t)index * srq->stride);
}

// What is posted stays as it is, and so does the entry behind it, which the device comes to next.
// All that nobody has is free, in any order.
void vb_driver_srq_recover(struct vb_driver_srq *srq, const struct vb_srq_progress *p,
                           uint8_t *is_used)
{
    uint32_t mask = srq->entries - 1, at = p->head & mask;
    uint64_t waiting = not_before(p->taken, record(srq->dbrec)) - p->taken;

    if (waiting > mask)
        waiting = 0; // the record was overwritten, and the device does not believe it, either
    srq->posted = p->taken + waiting;
    for (; waiting > 0; waiting--) {
        is_used[at] = 1;
        at = be16toh(link_of(srq, at)->next) & mask;
    }
    srq->head = srq->tail = at;
    is_used[at] = 1;
    for (uint32_t i = 1; i <= mask; i++) {
        uint32_t index = (at + i) & mask;
        if (is_used[index])
            continue;
        link_of(srq, srq->tail)->next = htobe16((uint16_t)index);
        srq->tail = index;
    }
}
