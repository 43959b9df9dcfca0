// SPDX-License-Identifier: Apache-2.0
// Shared queues: rings and records that the application writes and reads by itself, as programs do
// that drive a card without its library. Such a program calls nobody when it posts, so whoever runs
// the lane looks at the records of shared queues, and at those only.
#include "host/device.h"
#include "host/host.h"

#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *make_register(void)
{
    uint8_t *bell = aligned_alloc(64, VB_RAW_REGISTER_BYTES);
    if (bell)
        memset(bell, 0, VB_RAW_REGISTER_BYTES);
    return bell;
}

// Needs the locks.
static int enter(struct vb_share *share, struct vb_lane *lane, struct vb_fifo *list)
{
    if (share->bell)
        return 0;
    share->bell = make_register();
    if (!share->bell)
        return -ENOMEM;
    vb_fifo_push(list, &share->link);
    lane->shares++;
    atomic_fetch_add_explicit(&lane->nic->shares, 1, memory_order_relaxed);
    return 0;
}

// The same of a queue in the hull, which looks there by itself.
static int attach_register(struct vb_share *share, struct vb_attach *a)
{
    share->bell = vb_attach_take(a, VB_RAW_REGISTER_BYTES);
    return share->bell ? 0 : -ENOMEM;
}

static void detach_register(struct vb_share *share, struct vb_attach *a)
{
    if (!share->bell)
        return;
    vb_attach_give_back(a, share->bell, VB_RAW_REGISTER_BYTES);
    share->bell = NULL;
}

// Who shares a queue again has its register already: whatever the hull answers then, the program
// and the hull go on using that.
static int enter_qp(struct vb_qp *qp, struct vb_lane *lane)
{
    struct vb_attach *a = qp->nic->attach;

    if (!a)
        return enter(&qp->share, lane, &lane->shared_qps);
    bool again = qp->share.bell;
    int err = again ? 0 : attach_register(&qp->share, a);
    if (!err)
        err = vb_attach_share_qp(a, qp->driver.qpn);
    if (err && !again)
        detach_register(&qp->share, a);
    return err;
}

static int enter_cq(struct vb_cq *cq)
{
    struct vb_attach *a = cq->nic->attach;

    if (!a)
        return enter(&cq->share, cq->lane, &cq->lane->shared_cqs);
    bool again = cq->share.bell;
    int err = again ? 0 : attach_register(&cq->share, a);
    if (!err)
        err = vb_attach_share_cq(a, cq->cqn, cq->share.bell);
    if (err && !again)
        detach_register(&cq->share, a);
    return err;
}

void vb_host_unshare(struct vb_share *share, struct vb_lane *lane)
{
    if (!share->bell)
        return;
    if (lane->nic->attach) {
        detach_register(share, lane->nic->attach);
        return;
    }
    vb_link_remove(&share->link);
    lane->shares--;
    atomic_fetch_sub_explicit(&lane->nic->shares, 1, memory_order_relaxed);
    free(share->bell);
    share->bell = NULL;
}

// The helper may sleep until somebody rings, or be about to.
static void wake(struct vb_nic *nic)
{
    if (nic->helper.running)
        vb_helper_wake(nic, UINT32_MAX);
}

int vb_qp_share(struct vb_qp *qp, struct vb_raw_qp *raw)
{
    const struct vb_driver_qp *d = &qp->driver;
    struct vb_lane *lane = qp->send_cq->lane;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    vb_host_lock(qp->nic);
    int err = enter_qp(qp, lane);
    vb_host_unlock(qp->nic);
    if (err)
        return err;
    wake(qp->nic);
    *raw = (struct vb_raw_qp){.send = d->sq.ring,
                              .send_blocks = d->sq.blocks,
                              .recv = d->rq.ring,
                              .recv_entries = d->rq.entries,
                              .recv_stride = d->rq.stride,
                              .record = d->dbrec,
                              .bell = qp->share.bell};
    return 0;
}

int vb_cq_share(struct vb_cq *cq, struct vb_raw_cq *raw)
{
    const struct vb_driver_cq *d = &cq->driver;

    if (vb_host_is_foreign(cq->nic))
        return -EPERM;
    vb_host_lock(cq->nic);
    int err = enter_cq(cq);
    vb_host_unlock(cq->nic);
    if (err)
        return err;
    wake(cq->nic);
    *raw = (struct vb_raw_cq){.ring = d->ring,
                              .entries = d->entries,
                              .record = d->dbrec,
                              .bell = cq->share.bell,
                              .cqn = cq->cqn};
    return 0;
}

// The NIC asks for receives when it needs them: nobody has to look.
int vb_srq_share(struct vb_srq *srq, struct vb_raw_srq *raw)
{
    const struct vb_driver_srq *d = &srq->driver;

    if (vb_host_is_foreign(srq->nic))
        return -EPERM;
    *raw = (struct vb_raw_srq){.ring = d->ring,
                               .entries = d->entries,
                               .stride = d->stride,
                               .head = d->head,
                               .tail = d->tail,
                               .record = d->dbrec,
                               .srqn = srq->srqn};
    return 0;
}

// ---- looking

static void look_at_qp(struct vb_qp *qp)
{
    const struct vb_driver_qp *d = &qp->driver;
    uint32_t *seen = qp->share.seen;
    uint32_t sends = __atomic_load_n(&d->dbrec[VB_DBREC_SQ], __ATOMIC_ACQUIRE);
    uint32_t receives = __atomic_load_n(&d->dbrec[VB_DBREC_RQ], __ATOMIC_ACQUIRE);

    if (sends == seen[VB_DBREC_SQ] && receives == seen[VB_DBREC_RQ])
        return;
    seen[VB_DBREC_SQ] = sends;
    seen[VB_DBREC_RQ] = receives;
    vb_doorbell_ring(d->doorbells, d->qpn);
}

// Asking for an event is a write to the register: an arm word and the queue's number.
static void look_at_cq(struct vb_cq *cq)
{
    uint64_t *bell = (uint64_t *)(void *)(cq->share.bell + VB_RAW_ARM_OFFSET);
    uint32_t word[2];

    if (!__atomic_load_n(bell, __ATOMIC_RELAXED))
        return;
    uint64_t both = __atomic_exchange_n(bell, 0, __ATOMIC_ACQUIRE);
    memcpy(word, &both, sizeof word);
    uint32_t arm = be32toh(word[0]);
    if (be32toh(word[1]) != cq->cqn || !cq->channel)
        return;
    vb_driver_cq_arm_at(&cq->driver, arm & 0xffffff, arm & VB_DBREC_ARM_SOLICITED);
    vb_dev_cq_armed(cq->nic->dev, cq->cqn);
}

void vb_host_look_at_shared(struct vb_lane *lane)
{
    struct vb_fifo *qps = &lane->shared_qps, *cqs = &lane->shared_cqs;

    for (struct vb_link *l = qps->head.next; l != &qps->head; l = l->next)
        look_at_qp(VB_CONTAINER_OF(l, struct vb_qp, share.link));
    for (struct vb_link *l = cqs->head.next; l != &cqs->head; l = l->next)
        look_at_cq(VB_CONTAINER_OF(l, struct vb_cq, share.link));
}
