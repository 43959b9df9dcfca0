// SPDX-License-Identifier: Apache-2.0
// Completion queues and the channels that tell of them.
#include "host/device.h"
#include "host/host.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

// ---- channels

int vb_channel_create(struct vb_nic *nic, struct vb_channel **out)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    struct vb_channel *channel = calloc(1, sizeof *channel);
    if (!channel)
        return -ENOMEM;
    channel->nic = nic;
    int err = 0;
    if (nic->attach) {
        vb_host_lock(nic);
        err = vb_attach_channel_create(nic->attach, &channel->number, &channel->fd);
        vb_host_unlock(nic);
    } else if ((channel->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE)) < 0) {
        err = -errno;
    }
    if (err) {
        free(channel);
        return err;
    }
    vb_fifo_init(&channel->due);
    vb_host_lock(nic);
    vb_fifo_push(&nic->channels, &channel->link);
    vb_host_unlock(nic);
    *out = channel;
    return 0;
}

int vb_channel_destroy(struct vb_channel *channel)
{
    struct vb_nic *nic = channel->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = channel->users ? -EBUSY : 0;
    if (!err && nic->attach)
        vb_attach_channel_destroy(nic->attach, channel->number);
    if (!err)
        vb_link_remove(&channel->link);
    vb_host_unlock(nic);
    if (err)
        return err;
    int before = vb_cancel_hold();
    close(channel->fd);
    vb_cancel_allow(before);
    free(channel);
    return 0;
}

int vb_channel_fd(const struct vb_channel *channel)
{
    return vb_host_is_foreign(channel->nic) ? -EPERM : channel->fd;
}

int vb_channel_take(struct vb_channel *channel, struct vb_cq **out)
{
    struct vb_nic *nic = channel->nic;
    int err = -EAGAIN;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (nic->attach)
        return vb_attach_channel_take(channel, out);
    int before = vb_cancel_hold();
    pthread_mutex_lock(&nic->event_lock);
    struct vb_link *link = vb_fifo_first(&channel->due);
    if (link) {
        uint64_t one;
        vb_link_remove(link);
        *out = VB_CONTAINER_OF(link, struct vb_cq, due);
        (void)!read(channel->fd, &one, sizeof one); // keeps the descriptor in step
        err = 0;
    }
    pthread_mutex_unlock(&nic->event_lock);
    vb_cancel_allow(before);
    return err;
}

// ---- completion queues

struct vb_driver_srq *vb_host_find_srq(void *ctx, uint32_t srqn)
{
    const struct vb_nic *nic = ctx;
    struct vb_srq *srq = srqn <= nic->srq_room ? nic->srq_by_number[srqn - 1] : NULL;
    return srq ? &srq->driver : NULL;
}

static int enter(struct vb_cq *cq, const struct vb_cqc_attr *attr)
{
    struct vb_nic *nic = cq->nic;
    uint32_t unit;
    int err = vb_device_cq_create(nic, attr, cq->channel, &cq->cqn, &unit);
    if (err)
        return err;
    cq->lane = &nic->lane[unit];
    err = vb_host_enlist(&nic->cq_by_number, &nic->cq_room, cq->cqn, cq);
    if (err) {
        vb_device_cq_destroy(nic, cq->cqn);
        return err;
    }
    vb_fifo_push(&nic->cqs, &cq->link);
    if (cq->channel)
        cq->channel->users++;
    return 0;
}

static void free_rings(struct vb_cq *cq)
{
    if (cq->nic->attach) {
        vb_host_lock(cq->nic);
        vb_attach_lift_cq(cq->nic->attach, &cq->driver);
        vb_host_unlock(cq->nic);
    }
    vb_driver_cq_fini(&cq->driver);
}

int vb_cq_create(struct vb_nic *nic, const struct vb_cq_opts *opts, struct vb_cq **out)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    if ((opts->channel && opts->channel->nic != nic) || opts->unit > nic->lanes)
        return -EINVAL;
    struct vb_cq *cq = calloc(1, sizeof *cq);
    if (!cq)
        return -ENOMEM;
    cq->nic = nic;
    cq->channel = opts->channel;
    cq->overwrites = opts->ignore_overrun;
    int err = vb_driver_cq_init(&cq->driver, opts->entries, opts->start);
    if (!err && nic->attach) {
        vb_host_lock(nic);
        err = vb_attach_place_cq(nic->attach, &cq->driver);
        vb_host_unlock(nic);
    }
    if (!err) {
        const struct vb_cqc_attr attr = {.pu = opts->unit ? opts->unit - 1 : 0,
                                         .ring = cq->driver.ring,
                                         .entries = cq->driver.entries,
                                         .dbrec = cq->driver.dbrec,
                                         .start = opts->start,
                                         .ignore_overrun = opts->ignore_overrun};
        cq->driver.find_srq = vb_host_find_srq;
        vb_host_lock(nic);
        err = enter(cq, &attr);
        vb_host_unlock(nic);
    }
    if (err) {
        free_rings(cq);
        free(cq);
        return err;
    }
    *out = cq;
    return 0;
}

// Events of it that nobody took are taken back.
static void forget_events(struct vb_cq *cq)
{
    uint64_t one;

    if (cq->nic->attach && !cq->nic->orphan)
        vb_attach_forget_cq(cq);
    pthread_mutex_lock(&cq->nic->event_lock);
    if (cq->channel && vb_link_queued(&cq->due)) {
        vb_link_remove(&cq->due);
        if (!cq->nic->orphan)
            (void)!read(cq->channel->fd, &one, sizeof one);
    }
    pthread_mutex_unlock(&cq->nic->event_lock);
}

int vb_cq_destroy(struct vb_cq *cq)
{
    struct vb_nic *nic = cq->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = vb_device_cq_destroy(nic, cq->cqn);
    if (!err) {
        nic->cq_by_number[cq->cqn - 1] = NULL;
        vb_host_unshare(&cq->share, cq->lane);
        vb_link_remove(&cq->link);
        vb_host_forget_events(nic, VB_HOST_CQ, cq->cqn);
        forget_events(cq);
        if (cq->channel)
            cq->channel->users--;
    }
    vb_host_unlock(nic);
    if (!err) {
        vb_helper_notice(nic, UINT32_MAX); // who waited for it must fail
        free_rings(cq);
        free(cq);
    }
    return err;
}

uint32_t vb_cq_num(const struct vb_cq *cq)
{
    return cq->cqn;
}

uint64_t vb_cq_count(struct vb_cq *cq)
{
    uint64_t produced = 0;

    if (vb_host_is_foreign(cq->nic))
        return 0;
    int before = vb_cancel_hold();
    vb_lane_lock(cq->lane);
    vb_device_cq_produced(cq->nic, cq->cqn, &produced);
    pthread_mutex_unlock(&cq->lane->lock);
    vb_cancel_allow(before);
    return produced;
}

void vb_host_catch_up(struct vb_cq *cq, uint32_t keep)
{
    uint64_t produced;

    if (keep > cq->driver.entries)
        keep = cq->driver.entries;
    if (cq->overwrites && vb_device_cq_produced(cq->nic, cq->cqn, &produced) == 0)
        vb_driver_cq_catch_up(&cq->driver, produced, keep);
}

// What came since the last poll counts, so the device looks at once.
static int arm(struct vb_cq *cq, bool solicited_only, bool next)
{
    uint64_t from = cq->driver.ci;

    if (vb_host_is_foreign(cq->nic))
        return -EPERM;
    if (!cq->channel)
        return -EINVAL;
    if (cq->nic->attach)
        return vb_attach_arm(cq, solicited_only, next);
    vb_lane_lock(cq->lane);
    if (next)
        vb_device_cq_produced(cq->nic, cq->cqn, &from);
    vb_driver_cq_arm_at(&cq->driver, from, solicited_only);
    vb_dev_cq_armed(cq->nic->dev, cq->cqn);
    vb_host_collect(cq->lane);
    if (vb_helper_sleeps_on(cq->lane))
        vb_helper_recheck(cq->lane); // a timer may have been set
    pthread_mutex_unlock(&cq->lane->lock);
    return 0;
}

int vb_cq_arm(struct vb_cq *cq, bool solicited_only)
{
    return arm(cq, solicited_only, false);
}

int vb_cq_arm_next(struct vb_cq *cq, bool solicited_only)
{
    return arm(cq, solicited_only, true);
}

int vb_cq_moderate(struct vb_cq *cq, uint32_t count, uint32_t period_us)
{
    if (vb_host_is_foreign(cq->nic))
        return -EPERM;
    vb_host_lock(cq->nic);
    int err = vb_device_cq_moderate(cq->nic, cq->cqn, count, (uint64_t)period_us * 1000);
    vb_host_unlock(cq->nic);
    return err;
}

int vb_cq_resize(struct vb_cq *cq, uint32_t entries)
{
    struct vb_driver_cq bigger;

    if (vb_host_is_foreign(cq->nic))
        return -EPERM;
    vb_host_lock(cq->nic);
    int err = cq->share.bell ? -EBUSY : vb_driver_cq_init(&bigger, entries, cq->driver.ci);
    if (!err && cq->nic->attach) {
        err = vb_attach_cq_resize(cq->nic->attach, cq->cqn, &cq->driver, &bigger);
        vb_driver_cq_fini(&bigger);
    } else if (!err) {
        vb_host_catch_up(cq, bigger.entries);
        err = vb_driver_cq_move(&cq->driver, &bigger);
        if (!err)
            err = vb_dev_cq_resize(cq->nic->dev, cq->cqn, bigger.ring, bigger.entries);
        if (!err)
            vb_driver_cq_adopt(&cq->driver, &bigger);
        vb_driver_cq_fini(&bigger);
    }
    vb_host_unlock(cq->nic);
    return err;
}

static struct vb_driver_qp *find_qp(void *ctx, uint32_t qpn)
{
    struct vb_nic *nic = ctx;
    struct vb_qp *qp = nic->qp_by_index[qpn & (VB_DOORBELL_QPS - 1)];
    return qp && qp->driver.qpn == qpn ? &qp->driver : NULL;
}

// Entries may be overwritten while they are read: nobody runs the NIC meanwhile.
static int poll_overwritten(struct vb_cq *cq, struct vb_wc *wc, int n)
{
    struct vb_nic *nic = cq->nic;

    if (nic->attach) // its device runs whoever holds these locks
        return vb_attach_poll_overwritten(cq, find_qp, wc, n);
    if (nic->lanes > 1)
        vb_host_lock(nic);
    else if (atomic_load_explicit(&nic->waiting, memory_order_relaxed) ||
             pthread_mutex_trylock(&cq->lane->lock) != 0)
        return 0;
    vb_host_catch_up(cq, UINT32_MAX);
    int taken = vb_driver_poll(&cq->driver, find_qp, nic, wc, n);
    if (taken == 0) {
        vb_lane_run(cq->lane);
        vb_host_catch_up(cq, UINT32_MAX);
        taken = vb_driver_poll(&cq->driver, find_qp, nic, wc, n);
    }
    if (nic->lanes > 1)
        vb_host_unlock(nic);
    else
        pthread_mutex_unlock(&cq->lane->lock);
    return taken;
}

static int poll_cq(struct vb_cq *cq, struct vb_wc *wc, int n)
{
    struct vb_lane *lane = cq->lane;
    int taken = vb_driver_poll(&cq->driver, find_qp, cq->nic, wc, n);

    if (taken > 0 || cq->nic->attach)
        return taken;
    if (atomic_load_explicit(&cq->nic->waiting, memory_order_relaxed) ||
        pthread_mutex_trylock(&lane->lock) != 0)
        return 0; // another thread is running the NIC, or wants to
    uint32_t steps = vb_lane_poll(lane);
    pthread_mutex_unlock(&lane->lock);
    return steps ? vb_driver_poll(&cq->driver, find_qp, cq->nic, wc, n) : 0;
}

int vb_poll_cq(struct vb_cq *cq, struct vb_wc *wc, int n)
{
    if (vb_host_is_foreign(cq->nic))
        return -EPERM;
    if (!vb_host_enter(&cq->busy))
        return 0;
    int taken = cq->overwrites ? poll_overwritten(cq, wc, n) : poll_cq(cq, wc, n);
    vb_host_leave(&cq->busy);
    return taken;
}
