// SPDX-License-Identifier: Apache-2.0
// Posting receives, to a queue pair's own queue and to shared ones.
#include "host/driver_rings.h"

#include "base/bytes.h"

#include <errno.h>
#include <string.h>

static void put_segments(uint8_t *entry, size_t bytes, const struct vb_recv_wr *wr)
{
    struct vb_wqe_data *seg = (void *)entry;

    for (uint32_t i = 0; i < wr->num_sge; i++)
        seg[i] = (struct vb_wqe_data){htobe32(wr->sge[i].len), htobe32(wr->sge[i].lkey),
                                      htobe64(wr->sge[i].addr)};
    if (wr->num_sge < bytes / VB_WQE_SEG_BYTES)
        seg[wr->num_sge] = (struct vb_wqe_data){0, htobe32(VB_WQE_LKEY_END), 0};
}

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
        uint64_t ci = __atomic_load_n(&rq->ci, __ATOMIC_ACQUIRE); // another thread may poll
        if (rq->entries == 0 || (rq->pi - ci >= rq->entries && !rq->unbounded))
            break;
        uint32_t slot = (uint32_t)(rq->pi & (rq->entries - 1));
        put_segments(rq->ring + (size_t)slot * rq->stride, rq->stride, wr);
        rq->wr_id[slot] = wr->wr_id;
        rq->pi++;
    }
    if (posted > 0 && rq->managed)
        vb_driver_keep(qp, VB_DBREC_RQ, rq->pi);
    if (posted > 0 && !rq->managed) {
        vb_driver_publish(&qp->dbrec[VB_DBREC_RQ], rq->pi);
        vb_doorbell_ring(qp->doorbells, qp->qpn); // a failed queue pair has to flush them
    }
    return (int)posted;
}

int vb_driver_open_recv(struct vb_driver_qp *qp, uint64_t count)
{
    struct vb_driver_rq *rq = &qp->rq;

    if (rq->entries == 0)
        return -EINVAL;
    if (rq->managed) {
        vb_driver_publish_open(&qp->dbrec[VB_DBREC_RQ], count);
    } else {
        if (count < rq->pi || count - (rq->unbounded ? rq->pi : rq->ci) > rq->entries)
            return -EINVAL;
        for (; rq->pi < count; rq->pi++)
            rq->wr_id[rq->pi & (rq->entries - 1)] = 0;
        vb_driver_publish(&qp->dbrec[VB_DBREC_RQ], rq->pi);
    }
    vb_doorbell_ring(qp->doorbells, qp->qpn);
    return 0;
}

static int post_shared(struct vb_driver_srq *srq, const struct vb_recv_wr *wr, uint32_t n)
{
    uint32_t posted = 0;

    for (; posted < n; posted++, wr++) {
        if (wr->num_sge > srq->max_sge) {
            if (posted == 0)
                return -EINVAL;
            break;
        }
        if (srq->head == srq->tail)
            break; // the last free entry has no next one yet
        uint8_t *entry = srq->ring + (size_t)srq->head * srq->stride;
        const struct vb_wqe_srq_next *next = (const void *)entry;
        put_segments(entry + sizeof *next, srq->stride - sizeof *next, wr);
        srq->wr_id[srq->head] = wr->wr_id;
        srq->head = be16toh(next->next);
        srq->posted++;
    }
    if (posted > 0)
        vb_driver_publish(srq->dbrec, srq->posted);
    return (int)posted;
}

int vb_driver_post_srq(struct vb_driver_srq *srq, const struct vb_recv_wr *wr, uint32_t n)
{
    vb_spin_lock(&srq->lock);
    int posted = post_shared(srq, wr, n);
    vb_spin_unlock(&srq->lock);
    return posted;
}
