// SPDX-License-Identifier: Apache-2.0
// Asynchronous events: the NIC's, given to the context whose object they name.
#include "verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define FOR_EACH(l, list) \
    for (struct vb_link *l = (list)->head.next; l != &(list)->head; l = l->next)

static enum ibv_event_type type_of(enum vb_nic_event_kind kind)
{
    static const enum ibv_event_type types[] = {
        [VB_NIC_EVENT_QP_FATAL] = IBV_EVENT_QP_FATAL,
        [VB_NIC_EVENT_QP_REQUEST] = IBV_EVENT_QP_REQ_ERR,
        [VB_NIC_EVENT_QP_ACCESS] = IBV_EVENT_QP_ACCESS_ERR,
        [VB_NIC_EVENT_QP_ESTABLISHED] = IBV_EVENT_COMM_EST,
        [VB_NIC_EVENT_QP_DRAINED] = IBV_EVENT_SQ_DRAINED,
        [VB_NIC_EVENT_QP_LAST_RECV] = IBV_EVENT_QP_LAST_WQE_REACHED,
        [VB_NIC_EVENT_CQ_OVERRUN] = IBV_EVENT_CQ_ERR,
        [VB_NIC_EVENT_SRQ_LIMIT] = IBV_EVENT_SRQ_LIMIT_REACHED,
    };
    return types[kind];
}

// Names the object, and counts that it was named. False: it is not this context's.
static bool find(struct vb_verbs_context *c, const struct vb_nic_event *e,
                 struct ibv_async_event *out)
{
    if (e->kind == VB_NIC_EVENT_CQ_OVERRUN) {
        FOR_EACH(l, &c->cqs)
        {
            struct vb_verbs_cq *cq = VB_CONTAINER_OF(l, struct vb_verbs_cq, link);
            if (vb_cq_num(cq->nic) == e->number) {
                cq->async_events++;
                out->element.cq = (struct ibv_cq *)(void *)&cq->cq;
                return true;
            }
        }
        return false;
    }
    if (e->kind == VB_NIC_EVENT_SRQ_LIMIT) {
        FOR_EACH(l, &c->srqs)
        {
            struct vb_verbs_srq *srq = VB_CONTAINER_OF(l, struct vb_verbs_srq, link);
            if (vb_srq_num(srq->nic) == e->number) {
                srq->events++;
                out->element.srq = &srq->srq;
                return true;
            }
        }
        return false;
    }
    FOR_EACH(l, &c->qps)
    {
        struct vb_verbs_qp *qp = VB_CONTAINER_OF(l, struct vb_verbs_qp, link);
        if (vb_qp_num(qp->nic) == e->number) {
            qp->events++;
            out->element.qp = &qp->qp.qp_base;
            return true;
        }
    }
    return false;
}

// Another context's event waits in its own list.
static void leave_for(struct vb_verbs_context *c, const struct ibv_async_event *event)
{
    struct vb_verbs_event *e = calloc(1, sizeof *e);

    if (!e)
        return;
    e->event = *event;
    vb_fifo_push(&c->events, &e->link);
    (void)!write(c->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

// Needs the lock. Returns whether there was one for us.
static bool take_own(struct vb_verbs_context *c, struct ibv_async_event *out)
{
    struct vb_link *link = vb_fifo_first(&c->events);
    uint64_t all;

    if (!link)
        return false;
    struct vb_verbs_event *e = VB_CONTAINER_OF(link, struct vb_verbs_event, link);
    vb_link_remove(link);
    *out = e->event;
    free(e);
    if (vb_fifo_empty(&c->events))
        (void)!read(c->wake_fd, &all, sizeof all);
    return true;
}

static int take(struct vb_verbs_context *mine, struct ibv_async_event *out)
{
    struct vb_nic_event e;
    int err = -EAGAIN;

    vb_verbs_process_lock();
    bool found = take_own(mine, out);
    while (!found && (err = vb_nic_take_event(mine->nic, &e)) == 0) {
        out->event_type = type_of(e.kind);
        FOR_EACH(l, vb_verbs_contexts())
        {
            struct vb_verbs_context *c = VB_CONTAINER_OF(l, struct vb_verbs_context, link);
            if (c->nic != mine->nic || !find(c, &e, out))
                continue;
            found = c == mine;
            if (!found)
                leave_for(c, out);
            break;
        }
    }
    vb_verbs_process_unlock();
    return found ? 0 : err;
}

VB_VERBS_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    int err;

    while ((err = take(vb_verbs_of(context), event)) == -EAGAIN) {
        struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
        if (fcntl(context->async_fd, F_GETFL) & O_NONBLOCK)
            break;
        if (poll(&fd, 1, -1) < 0) {
            err = -errno;
            break;
        }
    }
    if (!err)
        vb_verbs_log(VB_VERBS_ERROR, "event: %s", ibv_event_type_str(event->event_type));
    errno = -err;
    return err ? -1 : 0;
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
    pthread_mutex_lock(mutex);
    ++*completed;
    pthread_cond_signal(cond);
    pthread_mutex_unlock(mutex);
}

VB_VERBS_EXPORT void ibv_ack_async_event(struct ibv_async_event *e)
{
    switch (e->event_type) {
    case IBV_EVENT_CQ_ERR:
        ack(&e->element.cq->mutex, &e->element.cq->cond, &e->element.cq->async_events_completed);
        break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        ack(&e->element.srq->mutex, &e->element.srq->cond, &e->element.srq->events_completed);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        ack(&e->element.qp->mutex, &e->element.qp->cond, &e->element.qp->events_completed);
        break;
    default: break;
    }
}

static bool names(const struct ibv_async_event *e, const void *object)
{
    return e->element.qp == object || e->element.cq == object || e->element.srq == object;
}

// Nobody has seen them, so nobody acknowledges them.
void vb_verbs_forget_events(struct vb_verbs_context *c, const void *object)
{
    for (struct vb_link *l = c->events.head.next, *next; l != &c->events.head; l = next) {
        struct vb_verbs_event *e = VB_CONTAINER_OF(l, struct vb_verbs_event, link);
        next = l->next;
        if (!names(&e->event, object))
            continue;
        struct ibv_async_event event = e->event;
        vb_link_remove(l);
        free(e);
        ibv_ack_async_event(&event);
    }
}
