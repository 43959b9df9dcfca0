// SPDX-License-Identifier: Apache-2.0
// A shared receive queue.
#include "nic/srq.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "base/serial.h"
#include "nic/pu.h"

#include <errno.h>
#include <stdlib.h>

int vb_srqc_create(const struct vb_srqc_attr *a, struct vb_cqc *cq, struct vb_srqc **out)
{
    if (!a->ring || !a->dbrec || !vb_is_pow2(a->entries) || a->entries > VB_RQ_ENTRIES_MAX ||
        !vb_is_pow2(a->stride_bytes) || a->stride_bytes < 32 || a->stride_bytes > 512 ||
        (a->xrcd && !cq))
        return -EINVAL;
    struct vb_srqc *srq = calloc(1, sizeof *srq);
    if (!srq)
        return -ENOMEM;
    *srq = (struct vb_srqc){.pd = a->pd,
                            .xrcd = a->xrcd,
                            .cq = cq,
                            .ring = a->ring,
                            .entries = a->entries,
                            .stride = a->stride_bytes,
                            .dbrec = a->dbrec};
    *out = srq;
    return 0;
}

// A producer that claims more than its ring holds is not believed.
static void refresh(struct vb_srqc *srq)
{
    uint32_t word = be32toh(__atomic_load_n(srq->dbrec, __ATOMIC_ACQUIRE));
    uint64_t seen = vb_widen16(srq->taken, (uint16_t)word);
    if (seen - srq->taken <= srq->entries && seen > srq->end)
        srq->end = seen;
}

static bool load(struct vb_pu *pu, struct vb_srqc *srq, struct vb_recv *recv)
{
    if (srq->taken == srq->end) {
        refresh(srq);
        if (srq->taken == srq->end)
            return false;
    }
    const uint8_t *entry = srq->ring + (size_t)srq->head * srq->stride;
    const uint8_t *next = entry + offsetof(struct vb_wqe_srq_next, next);
    vb_receive_parse(recv, entry + sizeof(struct vb_wqe_srq_next),
                     srq->stride - sizeof(struct vb_wqe_srq_next));
    recv->counter = srq->head;
    recv->srq = srq;
    srq->head = vb_get_be16(next) & (srq->entries - 1);
    srq->taken++;
    if (srq->limit && srq->end - srq->taken < srq->limit) {
        refresh(srq); // what was posted since counts
        if (srq->end - srq->taken < srq->limit) {
            srq->limit = 0;
            vb_pu_event(pu, VB_EVENT_SRQ_LIMIT, srq->srqn);
        }
    }
    return true;
}

bool vb_srqc_load(struct vb_pu *pu, struct vb_srqc *srq, struct vb_recv *recv)
{
    if (!srq->crossing)
        return load(pu, srq, recv);
    vb_spin_lock(&srq->lock);
    bool loaded = load(pu, srq, recv);
    vb_spin_unlock(&srq->lock);
    return loaded;
}
