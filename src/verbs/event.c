// SPDX-License-Identifier: Apache-2.0
// Asynchronous events: the NIC's, given to the context whose object they name.
#include "verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

static struct ibv_async_event *left_at(struct vb_verbs_left *l, uint32_t i)
{
    return &l->event[(l->head + i) % VB_VERBS_LEFT];
}

static void set_count(struct vb_verbs_left *l, uint32_t count)
{
    uint64_t all;

    if (l->count > 0 && count == 0)
        (void)!read(l->wake_fd, &all, sizeof all);
    l->count = count;
}

// Another context's event waits for it. One that finds no room is lost: nobody will acknowledge it.
static void leave_for(struct vb_verbs_context *c, struct ibv_async_event *event)
{
    if (c->left.count == VB_VERBS_LEFT) {
        ibv_ack_async_event(event);
        return;
    }
    *left_at(&c->left, c->left.count++) = *event;
    (void)!write(c->left.wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

// Needs the lock. Returns whether there was one for us.
static bool take_own(struct vb_verbs_left *l, struct ibv_async_event *out)
{
    if (l->count == 0)
        return false;
    *out = *left_at(l, 0);
    l->head = (l->head + 1) % VB_VERBS_LEFT;
    set_count(l, l->count - 1);
    return true;
}

// Who asks for an event.
struct taker {
    struct vb_verbs_context *mine;
    struct ibv_async_event *out;
    bool found;
};

// The first one that is its own goes to who asks, all others wait for whom they concern.
static void give(struct taker *t, struct vb_verbs_context *c, struct ibv_async_event event)
{
    if (c != t->mine || t->found) {
        leave_for(c, &event);
        return;
    }
    *t->out = event;
    t->found = true;
}

static void give_queue(struct taker *t, struct vb_verbs_context *c, const struct vb_nic_event *e)
{
    FOR_EACH(l, &c->cqs)
    {
        struct vb_verbs_cq *cq = VB_CONTAINER_OF(l, struct vb_verbs_cq, link);
        if (vb_cq_num(cq->nic) != e->number)
            continue;
        cq->async_events++;
        give(t, c,
             (struct ibv_async_event){.event_type = type_of(e->kind),
                                      .element.cq = (struct ibv_cq *)(void *)&cq->cq});
    }
}

static void give_shared(struct taker *t, struct vb_verbs_context *c, const struct vb_nic_event *e)
{
    FOR_EACH(l, &c->srqs)
    {
        struct vb_verbs_srq *srq = VB_CONTAINER_OF(l, struct vb_verbs_srq, link);
        if (vb_srq_num(srq->nic) != e->number)
            continue;
        srq->events++;
        give(t, c,
             (struct ibv_async_event){.event_type = type_of(e->kind), .element.srq = &srq->srq});
    }
}

// All handles of a queue pair hear of it.
static void give_pair(struct taker *t, struct vb_verbs_context *c, const struct vb_nic_event *e)
{
    FOR_EACH(l, &c->qps)
    {
        struct vb_verbs_qp *qp = VB_CONTAINER_OF(l, struct vb_verbs_qp, link);
        if (vb_qp_num(qp->nic) != e->number)
            continue;
        qp->events++;
        give(t, c,
             (struct ibv_async_event){.event_type = type_of(e->kind),
                                      .element.qp = &qp->qp.qp_base});
    }
}

static int take(struct vb_verbs_context *mine, struct ibv_async_event *out)
{
    struct vb_nic_event e;
    struct taker t = {.mine = mine, .out = out};
    int err = -EAGAIN;

    vb_verbs_process_lock();
    t.found = take_own(&mine->left, out);
    while (!t.found && (err = vb_nic_take_event(mine->nic, &e)) == 0) {
        FOR_EACH(l, vb_verbs_contexts())
        {
            struct vb_verbs_context *c = VB_CONTAINER_OF(l, struct vb_verbs_context, link);
            if (c->nic != mine->nic)
                continue;
            if (e.kind == VB_NIC_EVENT_CQ_OVERRUN)
                give_queue(&t, c, &e);
            else if (e.kind == VB_NIC_EVENT_SRQ_LIMIT)
                give_shared(&t, c, &e);
            else
                give_pair(&t, c, &e);
        }
    }
    vb_verbs_process_unlock();
    return t.found ? 0 : err;
}

VB_VERBS_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    int err;

    if (vb_verbs_refuse_dead(context, "ibv_get_async_event"))
        return -1;
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

static void ack(struct ibv_context *context, pthread_mutex_t *mutex, pthread_cond_t *cond,
                uint32_t *completed)
{
    if (vb_verbs_is_dead(context))
        return;
    pthread_mutex_lock(mutex);
    ++*completed;
    pthread_cond_signal(cond);
    pthread_mutex_unlock(mutex);
}

VB_VERBS_EXPORT void ibv_ack_async_event(struct ibv_async_event *e)
{
    switch (e->event_type) {
    case IBV_EVENT_CQ_ERR:
        ack(e->element.cq->context, &e->element.cq->mutex, &e->element.cq->cond,
            &e->element.cq->async_events_completed);
        break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        ack(e->element.srq->context, &e->element.srq->mutex, &e->element.srq->cond,
            &e->element.srq->events_completed);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        ack(e->element.qp->context, &e->element.qp->mutex, &e->element.qp->cond,
            &e->element.qp->events_completed);
        break;
    default: break;
    }
}

static bool names(const struct ibv_async_event *e, const void *object)
{
    return e->element.qp == object || e->element.cq == object || e->element.srq == object;
}

// Nobody has seen them, so nobody acknowledges them.
static void forget_events(struct vb_verbs_left *l, const void *object)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < l->count; i++) {
        struct ibv_async_event *e = left_at(l, i);
        if (names(e, object))
            ibv_ack_async_event(e);
        else
            *left_at(l, kept++) = *e;
    }
    set_count(l, kept);
}

bool vb_verbs_retire(struct ibv_context *context, struct vb_link *link, const uint32_t *users,
                     const void *object)
{
    vb_verbs_process_lock();
    bool idle = *users == 0;
    if (idle && vb_link_queued(link))
        vb_link_remove(link);
    if (idle)
        forget_events(&vb_verbs_of(context)->left, object);
    vb_verbs_process_unlock();
    return idle;
}
