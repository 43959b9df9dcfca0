// SPDX-License-Identifier: Apache-2.0
// Shared receive queues.
#include "host/device.h"
#include "host/host.h"

#include <errno.h>
#include <stdlib.h>

static int create_context(struct vb_srq *srq, struct vb_pd *pd, const struct vb_srq_opts *o)
{
    struct vb_nic *nic = srq->nic;
    const struct vb_srqc_attr attr = {.pd = pd->pd,
                                      .ring = srq->driver.ring,
                                      .entries = srq->driver.entries,
                                      .stride_bytes = srq->driver.stride,
                                      .dbrec = srq->driver.dbrec,
                                      .xrcd = o->xrcd,
                                      .cqn = o->cq ? o->cq->cqn : 0};
    srq->xrcd = vb_host_xrcd_find(nic, o->xrcd);
    if (o->xrcd && !srq->xrcd)
        return -EINVAL;
    int err = vb_device_srq_create(nic, &attr, &srq->srqn);
    if (err)
        return err;
    err = vb_host_enlist(&nic->srq_by_number, &nic->srq_room, srq->srqn, srq);
    if (err) {
        vb_device_srq_destroy(nic, srq->srqn);
        return err;
    }
    vb_fifo_push(&nic->srqs, &srq->link);
    if (srq->xrcd)
        srq->xrcd->users++;
    return 0;
}

static void free_rings(struct vb_srq *srq)
{
    if (srq->nic->attach) {
        vb_host_lock(srq->nic);
        vb_attach_lift_srq(srq->nic->attach, &srq->driver);
        vb_host_unlock(srq->nic);
    }
    vb_driver_srq_fini(&srq->driver);
}

int vb_srq_create(struct vb_pd *pd, const struct vb_srq_opts *opts, struct vb_srq **out)
{
    struct vb_nic *nic = pd->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (opts->cq && (opts->cq->nic != nic || opts->cq->overwrites || opts->cq->driver.audits))
        return -EINVAL;
    if ((opts->xrcd != 0) != (opts->cq != NULL))
        return -EINVAL;
    struct vb_srq *srq = calloc(1, sizeof *srq);
    if (!srq)
        return -ENOMEM;
    srq->nic = nic;
    srq->cq = opts->cq;
    int err = vb_driver_srq_init(&srq->driver, opts->depth, opts->sge);
    if (!err) {
        vb_host_lock(nic);
        if (nic->attach)
            err = vb_attach_place_srq(nic->attach, &srq->driver);
        if (!err)
            err = create_context(srq, pd, opts);
        vb_host_unlock(nic);
    }
    if (err) {
        free_rings(srq);
        free(srq);
        return err;
    }
    *out = srq;
    return 0;
}

int vb_srq_destroy(struct vb_srq *srq)
{
    struct vb_nic *nic = srq->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = vb_device_srq_destroy(nic, srq->srqn);
    if (!err) {
        nic->srq_by_number[srq->srqn - 1] = NULL;
        vb_link_remove(&srq->link);
        if (srq->xrcd)
            srq->xrcd->users--;
        if (srq->cq && !nic->orphan && !srq->cq->share.bell)
            vb_driver_cq_clean_srq(&srq->cq->driver, srq->srqn);
        vb_host_forget_events(nic, VB_HOST_SRQ, srq->srqn);
    }
    vb_host_unlock(nic);
    if (!err) {
        free_rings(srq);
        free(srq);
    }
    return err;
}

uint32_t vb_srq_num(const struct vb_srq *srq)
{
    return srq->srqn;
}

int vb_srq_arm(struct vb_srq *srq, uint32_t limit)
{
    if (vb_host_is_foreign(srq->nic))
        return -EPERM;
    vb_host_lock(srq->nic);
    int err = vb_device_srq_arm(srq->nic, srq->srqn, limit);
    vb_host_unlock(srq->nic);
    return err;
}

int vb_srq_limit(struct vb_srq *srq, uint32_t *limit)
{
    if (vb_host_is_foreign(srq->nic))
        return -EPERM;
    vb_host_lock(srq->nic);
    int err = vb_device_srq_limit(srq->nic, srq->srqn, limit);
    vb_host_unlock(srq->nic);
    return err;
}

int vb_post_srq(struct vb_srq *srq, const struct vb_recv_wr *wr, uint32_t n)
{
    if (vb_host_is_foreign(srq->nic))
        return -EPERM;
    return vb_driver_post_srq(&srq->driver, wr, n);
}
