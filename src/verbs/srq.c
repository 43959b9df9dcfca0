// SPDX-License-Identifier: Apache-2.0
// Shared receive queues and XRC domains.
#include "verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

// ---- XRC domains

// The domain of a file that is open in this process already. Needs the process's lock.
static struct vb_verbs_xrcd *find_domain(const struct vb_nic *nic, const struct stat *file)
{
    for (struct vb_link *l = vb_verbs_contexts()->head.next; l != &vb_verbs_contexts()->head;
         l = l->next) {
        struct vb_verbs_context *c = VB_CONTAINER_OF(l, struct vb_verbs_context, link);
        for (struct vb_link *k = c->xrcds.head.next; c->nic == nic && k != &c->xrcds.head;
             k = k->next) {
            struct vb_verbs_xrcd *x = VB_CONTAINER_OF(k, struct vb_verbs_xrcd, link);
            if (x->of_file && x->device == file->st_dev && x->inode == file->st_ino)
                return x;
        }
    }
    return NULL;
}

// Which domain it is: a new one, or that of the file. Needs the process's lock.
static int name_domain(struct vb_nic *nic, const struct ibv_xrcd_init_attr *a,
                       struct vb_verbs_xrcd *x)
{
    struct stat file;

    if (a->fd < 0)
        return a->oflags & O_CREAT ? vb_xrcd_alloc(nic, &x->number) : -EINVAL;
    if (fstat(a->fd, &file) != 0)
        return -errno;
    const struct vb_verbs_xrcd *first = find_domain(nic, &file);
    if (first && a->oflags & O_CREAT && a->oflags & O_EXCL)
        return -EEXIST;
    if (!first && !(a->oflags & O_CREAT))
        return -ENOENT;
    x->of_file = true;
    x->device = file.st_dev;
    x->inode = file.st_ino;
    if (!first)
        return vb_xrcd_alloc(nic, &x->number);
    x->number = first->number;
    return 0;
}

// A file makes several handles of one process the same domain. Other processes have other NICs, and
// so other domains.
struct ibv_xrcd *vb_verbs_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
    const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    struct vb_nic *nic = vb_verbs_of(context)->nic;
    struct vb_verbs_xrcd *x = attr->comp_mask == needed ? calloc(1, sizeof *x) : NULL;
    int err = attr->comp_mask != needed ? -EINVAL : !x ? -ENOMEM : vb_pd_alloc(nic, &x->pd);

    if (!err)
        err = vb_cq_create(nic, &(struct vb_cq_opts){.entries = 1}, &x->cq);
    vb_verbs_process_lock();
    if (!err)
        err = name_domain(nic, attr, x);
    if (!err)
        vb_fifo_push(&vb_verbs_of(context)->xrcds, &x->link);
    vb_verbs_process_unlock();
    if (err) {
        if (x && x->cq)
            vb_cq_destroy(x->cq);
        if (x && x->pd)
            vb_pd_free(x->pd);
        free(x);
        vb_verbs_fail(-err, "ibv_open_xrcd", NULL);
        return NULL;
    }
    x->xrcd.context = context;
    return &x->xrcd;
}

// The last handle of a domain ends it. Needs the process's lock.
static void end_domain(struct vb_nic *nic, uint32_t number)
{
    for (struct vb_link *l = vb_verbs_contexts()->head.next; l != &vb_verbs_contexts()->head;
         l = l->next) {
        struct vb_verbs_context *c = VB_CONTAINER_OF(l, struct vb_verbs_context, link);
        for (struct vb_link *k = c->xrcds.head.next; c->nic == nic && k != &c->xrcds.head;
             k = k->next)
            if (VB_CONTAINER_OF(k, struct vb_verbs_xrcd, link)->number == number)
                return;
    }
    vb_xrcd_free(nic, number);
}

int vb_verbs_close_xrcd(struct ibv_xrcd *ibv)
{
    struct vb_verbs_xrcd *x = VB_VERBS_CAST(vb_verbs_xrcd, ibv);

    vb_verbs_process_lock();
    int err = x->users ? -EBUSY : vb_cq_destroy(x->cq);
    if (!err) {
        vb_link_remove(&x->link);
        end_domain(vb_verbs_of(ibv->context)->nic, x->number);
    }
    vb_verbs_process_unlock();
    if (err)
        return vb_verbs_fail(-err, "ibv_close_xrcd", "queue pairs or receive queues use it");
    vb_pd_free(x->pd);
    free(x);
    return 0;
}

// ---- queues

static const char *judge(const struct ibv_srq_init_attr_ex *a, bool xrc)
{
    if (a->attr.max_wr == 0 || a->attr.max_wr > VB_VERBS_MAX_SRQ_WR)
        return "a shared receive queue has 1 to 32,767 entries";
    if (a->attr.max_sge > VB_VERBS_MAX_SGE)
        return "a receive has up to 16 scatter entries";
    if (!a->pd || !(a->comp_mask & IBV_SRQ_INIT_ATTR_PD))
        return "it needs a protection domain";
    if (a->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                   IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ))
        return "comp_mask is unknown";
    if (xrc && (!a->xrcd || !a->cq))
        return "XRC needs a domain and a completion queue";
    return NULL;
}

static struct ibv_srq *create(struct ibv_context *context, struct ibv_srq_init_attr_ex *a)
{
    bool xrc = a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && a->srq_type == IBV_SRQT_XRC;
    const char *why = judge(a, xrc);
    struct vb_verbs_srq *srq = why ? NULL : calloc(1, sizeof *srq);
    int err = why ? -EINVAL : -ENOMEM;

    if (srq) {
        const struct vb_srq_opts opts = {.depth = a->attr.max_wr,
                                         .sge = a->attr.max_sge,
                                         .xrcd = xrc ? VB_VERBS_CAST(vb_verbs_xrcd, a->xrcd)->number
                                                     : 0,
                                         .cq = xrc ? VB_VERBS_CAST(vb_verbs_cq, a->cq)->nic : NULL};
        err = vb_srq_create(VB_VERBS_CAST(vb_verbs_pd, a->pd)->nic, &opts, &srq->nic);
    }
    if (err) {
        free(srq);
        vb_verbs_fail(-err, "ibv_create_srq", why);
        return NULL;
    }
    srq->attr = a->attr; // but for the limit, which is ignored here
    srq->srq.context = context;
    srq->srq.srq_context = a->srq_context;
    srq->srq.pd = a->pd;
    pthread_mutex_init(&srq->srq.mutex, NULL);
    pthread_cond_init(&srq->srq.cond, NULL);
    srq->xrcd = xrc ? VB_VERBS_CAST(vb_verbs_xrcd, a->xrcd) : NULL;
    srq->cq = xrc ? VB_VERBS_CAST(vb_verbs_cq, a->cq) : NULL;
    vb_verbs_process_lock();
    if (xrc) {
        srq->xrcd->users++;
        srq->cq->users++;
    }
    vb_fifo_push(&vb_verbs_of(context)->srqs, &srq->link);
    vb_verbs_process_unlock();
    return &srq->srq;
}

struct ibv_srq *vb_verbs_create_srq_ex(struct ibv_context *context,
                                       struct ibv_srq_init_attr_ex *attr)
{
    if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type == IBV_SRQT_TM) {
        vb_verbs_fail(EOPNOTSUPP, "ibv_create_srq_ex", "tags are not matched here");
        return NULL;
    }
    return create(context, attr);
}

VB_VERBS_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct ibv_srq_init_attr_ex ex = {.srq_context = attr->srq_context,
                                      .attr = attr->attr,
                                      .comp_mask = IBV_SRQ_INIT_ATTR_PD,
                                      .pd = pd};
    return create(pd->context, &ex);
}

VB_VERBS_EXPORT int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
    struct vb_verbs_srq *srq = VB_VERBS_CAST(vb_verbs_srq, ibv);

    if (mask & ~IBV_SRQ_LIMIT)
        return vb_verbs_fail(EINVAL, "ibv_modify_srq", "its size stays: only the limit changes");
    if (!(mask & IBV_SRQ_LIMIT))
        return 0;
    if (attr->srq_limit > srq->attr.max_wr)
        return vb_verbs_fail(EINVAL, "ibv_modify_srq", "the limit is more than the queue holds");
    int err = vb_srq_arm(srq->nic, attr->srq_limit);
    if (err)
        return vb_verbs_fail(-err, "ibv_modify_srq", NULL);
    return 0;
}

VB_VERBS_EXPORT int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
    const struct vb_verbs_srq *srq = VB_VERBS_CAST(vb_verbs_srq, ibv);

    *attr = srq->attr;
    int err = vb_srq_limit(srq->nic, &attr->srq_limit); // 0 when it is not armed any more
    return err ? vb_verbs_fail(-err, "ibv_query_srq", NULL) : 0;
}

int vb_verbs_get_srq_num(struct ibv_srq *ibv, uint32_t *number)
{
    *number = vb_srq_num(VB_VERBS_CAST(vb_verbs_srq, ibv)->nic);
    return 0;
}

VB_VERBS_EXPORT int ibv_destroy_srq(struct ibv_srq *ibv)
{
    struct vb_verbs_srq *srq = VB_VERBS_CAST(vb_verbs_srq, ibv);

    if (vb_verbs_refuse_dead(ibv->context, "ibv_destroy_srq"))
        return EPERM;
    if (!vb_verbs_retire(ibv->context, &srq->link, &srq->users, ibv))
        return vb_verbs_fail(EBUSY, "ibv_destroy_srq", "queue pairs use it");
    vb_verbs_wait_acks(&ibv->mutex, &ibv->cond, &ibv->events_completed, srq->events);
    if (srq->cq)
        vb_verbs_lock(&srq->cq->lock); // completions of it go, too
    int err = vb_srq_destroy(srq->nic);
    if (srq->cq)
        vb_verbs_unlock(&srq->cq->lock);
    if (err)
        return vb_verbs_fail(-err, "ibv_destroy_srq", NULL);
    if (srq->xrcd) {
        vb_verbs_process_lock();
        srq->xrcd->users--;
        srq->cq->users--;
        vb_verbs_process_unlock();
    }
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    free(srq);
    return 0;
}
