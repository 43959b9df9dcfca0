// SPDX-License-Identifier: Apache-2.0
// Completion queues and channels.
#include "verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    ENTRIES_MIN = 64
};

// ---- channels

// The descriptor blocks unless the application says otherwise (O_NONBLOCK), which is then seen.
static void make_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0)
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

VB_VERBS_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct vb_verbs_channel *c = calloc(1, sizeof *c);
    int err = c ? vb_channel_create(vb_verbs_of(context)->nic, &c->nic) : -ENOMEM;

    if (err) {
        free(c);
        vb_verbs_fail(-err, "ibv_create_comp_channel", NULL);
        return NULL;
    }
    c->channel.context = context;
    c->channel.fd = vb_channel_fd(c->nic);
    make_blocking(c->channel.fd);
    return &c->channel;
}

VB_VERBS_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct vb_verbs_channel *c = VB_VERBS_CAST(vb_verbs_channel, channel);
    int err = channel->refcnt ? -EBUSY : vb_channel_destroy(c->nic);

    if (err)
        return vb_verbs_fail(-err, "ibv_destroy_comp_channel", "completion queues use it");
    free(c);
    return 0;
}

// The queue of ours that stands for one of the NIC's. Needs the process's lock.
static struct vb_verbs_cq *find(struct vb_verbs_context *context, const struct vb_cq *nic)
{
    for (struct vb_link *l = context->cqs.head.next; l != &context->cqs.head; l = l->next) {
        struct vb_verbs_cq *cq = VB_CONTAINER_OF(l, struct vb_verbs_cq, link);
        if (cq->nic == nic)
            return cq;
    }
    return NULL;
}

static int take(struct ibv_comp_channel *channel, struct ibv_cq **ibv, void **context)
{
    struct vb_verbs_cq *cq = NULL;
    struct vb_cq *nic;
    int err;

    vb_verbs_process_lock();
    do { // those of a queue that is going are nobody's
        err = vb_channel_take(VB_VERBS_CAST(vb_verbs_channel, channel)->nic, &nic);
        cq = err ? NULL : find(vb_verbs_of(channel->context), nic);
    } while (!err && !cq);
    if (cq) {
        cq->comp_events++;
        *ibv = (struct ibv_cq *)(void *)&cq->cq;
        *context = cq->cq.cq_context;
    }
    vb_verbs_process_unlock();
    return err;
}

VB_VERBS_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                                     void **cq_context)
{
    int err;

    while ((err = take(channel, cq, cq_context)) == -EAGAIN) {
        struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
        if (fcntl(channel->fd, F_GETFL) & O_NONBLOCK)
            break;
        if (poll(&fd, 1, -1) < 0) {
            err = -errno;
            break;
        }
    }
    errno = -err;
    return err ? -1 : 0;
}

VB_VERBS_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
    if (vb_verbs_is_dead(cq->context))
        return;
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

void vb_verbs_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked,
                        uint32_t handed_out)
{
    pthread_mutex_lock(mutex);
    while (*acked != handed_out)
        pthread_cond_wait(cond, mutex);
    pthread_mutex_unlock(mutex);
}

// ---- queues

static const char *judge(const struct ibv_context *context, const struct ibv_cq_init_attr_ex *a)
{
    const uint64_t known = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                           IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

    if (a->cqe == 0 || a->cqe >= VB_VERBS_MAX_CQE)
        return "a queue has 1 to 4,194,303 entries";
    if (a->comp_vector >= (uint32_t)context->num_comp_vectors)
        return "there are fewer completion vectors";
    if (a->wc_flags & ~known)
        return "a field of completions is unknown";
    if (a->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
        return "comp_mask is unknown";
    if (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
        a->flags &
            ~(uint32_t)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
        return "a flag is unknown";
    return NULL;
}

// Cards give more entries than asked for: a program that counts badly has never noticed there.
static uint32_t entries_for(uint32_t cqe)
{
    uint32_t entries = ENTRIES_MIN;

    while (entries <= cqe && entries < VB_VERBS_MAX_CQE)
        entries *= 2;
    return entries;
}

static struct vb_verbs_cq *create(struct ibv_context *context, const struct ibv_cq_init_attr_ex *a)
{
    const char *why = judge(context, a);
    struct vb_verbs_cq *cq = why ? NULL : calloc(1, sizeof *cq);
    uint32_t flags = a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? a->flags : 0;
    int err = why ? -EINVAL : -ENOMEM;

    if (cq) {
        struct vb_verbs_channel *c = VB_VERBS_CAST(vb_verbs_channel, a->channel);
        const struct vb_cq_opts opts = {.entries = entries_for(a->cqe),
                                        .unit = a->comp_vector + 1,
                                        .channel = c ? c->nic : NULL,
                                        .ignore_overrun =
                                            flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
        err = vb_cq_create(vb_verbs_of(context)->nic, &opts, &cq->nic);
    }
    if (err) {
        free(cq);
        vb_verbs_fail(-err, "ibv_create_cq", why);
        return NULL;
    }
    cq->cq.context = context;
    cq->cq.channel = a->channel;
    cq->cq.cq_context = a->cq_context;
    cq->cq.cqe = (int)entries_for(a->cqe) - 1;
    pthread_mutex_init(&cq->cq.mutex, NULL);
    pthread_cond_init(&cq->cq.cond, NULL);
    vb_verbs_fill_poll_ops(cq);
    vb_verbs_process_lock();
    if (a->channel)
        a->channel->refcnt++;
    vb_fifo_push(&vb_verbs_of(context)->cqs, &cq->link);
    vb_verbs_process_unlock();
    return cq;
}

VB_VERBS_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                             struct ibv_comp_channel *channel, int comp_vector)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = cqe > 0 ? (uint32_t)cqe : 0,
                                       .cq_context = cq_context,
                                       .channel = channel,
                                       .comp_vector = (uint32_t)comp_vector};
    struct vb_verbs_cq *cq = create(context, &attr);
    return cq ? (struct ibv_cq *)(void *)&cq->cq : NULL;
}

struct ibv_cq_ex *vb_verbs_create_cq_ex(struct ibv_context *context,
                                        struct ibv_cq_init_attr_ex *attr)
{
    struct vb_verbs_cq *cq = create(context, attr);
    return cq ? &cq->cq : NULL;
}

VB_VERBS_EXPORT int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
    struct vb_verbs_cq *cq = VB_VERBS_CAST(vb_verbs_cq, ibv);

    if (cqe <= 0 || cqe >= VB_VERBS_MAX_CQE)
        return vb_verbs_fail(EINVAL, "ibv_resize_cq", "a queue has 1 to 4,194,303 entries");
    if (vb_verbs_refuse_dead(ibv->context, "ibv_resize_cq"))
        return EPERM;
    vb_verbs_lock(&cq->lock);
    int err = vb_cq_resize(cq->nic, entries_for((uint32_t)cqe));
    vb_verbs_unlock(&cq->lock);
    if (err)
        return vb_verbs_fail(-err, "ibv_resize_cq",
                             err == -EBUSY ? "the program reads its ring by itself"
                                           : "more completions wait than it would hold");
    ibv->cqe = (int)entries_for((uint32_t)cqe) - 1;
    return 0;
}

int vb_verbs_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr)
{
    struct vb_verbs_cq *cq = VB_VERBS_CAST(vb_verbs_cq, ibv);

    if (attr->attr_mask != IBV_CQ_ATTR_MODERATE)
        return EOPNOTSUPP;
    return -vb_cq_moderate(cq->nic, attr->moderate.cq_count, attr->moderate.cq_period);
}

int vb_verbs_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
    struct vb_verbs_cq *cq = VB_VERBS_CAST(vb_verbs_cq, ibv);

    if (vb_verbs_refuse_dead(ibv->context, "ibv_req_notify_cq"))
        return EPERM;
    if (!ibv->channel)
        return 0; // nobody can hear of it
    vb_verbs_lock(&cq->lock);
    int err = vb_cq_arm_next(cq->nic, solicited_only);
    vb_verbs_unlock(&cq->lock);
    return err ? vb_verbs_fail(-err, "ibv_req_notify_cq", "the queue has no channel") : 0;
}

// Who has an event of it in hand may still use it.
VB_VERBS_EXPORT int ibv_destroy_cq(struct ibv_cq *ibv)
{
    struct vb_verbs_cq *cq = VB_VERBS_CAST(vb_verbs_cq, ibv);

    if (vb_verbs_refuse_dead(ibv->context, "ibv_destroy_cq"))
        return EPERM;
    if (!vb_verbs_retire(ibv->context, &cq->link, &cq->users, ibv))
        return vb_verbs_fail(EBUSY, "ibv_destroy_cq", "queue pairs or receive queues use it");
    vb_verbs_wait_acks(&ibv->mutex, &ibv->cond, &ibv->comp_events_completed, cq->comp_events);
    vb_verbs_wait_acks(&ibv->mutex, &ibv->cond, &ibv->async_events_completed, cq->async_events);
    int err = vb_cq_destroy(cq->nic);
    if (err)
        return vb_verbs_fail(-err, "ibv_destroy_cq", NULL);
    vb_verbs_process_lock();
    if (ibv->channel)
        ibv->channel->refcnt--;
    vb_verbs_process_unlock();
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    free(cq);
    return 0;
}
