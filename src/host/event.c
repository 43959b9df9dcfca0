// SPDX-License-Identifier: Apache-2.0
// Events: the device's, handed to completion channels and to the application.
#include "host/attach.h"
#include "host/cm.h"
#include "host/host.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

enum {
    LOCK_TRIES = 1000
};

static void count_up(int fd)
{
    int before = vb_cancel_hold();
    (void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
    vb_cancel_allow(before);
}

static void tell_channel(struct vb_nic *nic, uint32_t cqn)
{
    struct vb_cq *cq = cqn <= nic->cq_room ? nic->cq_by_number[cqn - 1] : NULL;

    if (cq && cq->channel && !vb_link_queued(&cq->due)) {
        vb_fifo_push(&cq->channel->due, &cq->due);
        count_up(cq->channel->fd);
    }
}

static void tell_application(struct vb_nic *nic, enum vb_nic_event_kind kind, uint32_t number)
{
    if (nic->event_count < VB_HOST_EVENTS) {
        uint32_t at = (nic->event_head + nic->event_count++) % VB_HOST_EVENTS;
        nic->event[at] = (struct vb_nic_event){kind, number};
        count_up(nic->event_fd);
    }
}

// A signal handler that runs the NIC may have interrupted a thread that holds the lock: waiting has
// an end, and the events stay for the next run.
static bool lock_events(struct vb_nic *nic)
{
    if (nic->hull) { // whose threads have no such handlers
        pthread_mutex_lock(&nic->event_lock);
        return true;
    }
    for (uint32_t tries = 0; tries < LOCK_TRIES; tries++) {
        if (pthread_mutex_trylock(&nic->event_lock) == 0)
            return true;
        sched_yield();
    }
    if (nic->helper.running)
        vb_helper_wake(nic, UINT32_MAX);
    return false;
}

void vb_host_collect(struct vb_lane *lane)
{
    static const enum vb_nic_event_kind kinds[VB_EVENT_COUNT] = {
        [VB_EVENT_QP_FATAL] = VB_NIC_EVENT_QP_FATAL,
        [VB_EVENT_QP_REQ_ERR] = VB_NIC_EVENT_QP_REQUEST,
        [VB_EVENT_QP_ACCESS_ERR] = VB_NIC_EVENT_QP_ACCESS,
        [VB_EVENT_COMM_EST] = VB_NIC_EVENT_QP_ESTABLISHED,
        [VB_EVENT_SQ_DRAINED] = VB_NIC_EVENT_QP_DRAINED,
        [VB_EVENT_QP_LAST_WQE] = VB_NIC_EVENT_QP_LAST_RECV,
        [VB_EVENT_CQ_ERR] = VB_NIC_EVENT_CQ_OVERRUN,
        [VB_EVENT_SRQ_LIMIT] = VB_NIC_EVENT_SRQ_LIMIT,
    };
    struct vb_event e;

    if (lane->nic->attach || !vb_pu_has_event(lane->pu) || !lock_events(lane->nic))
        return;
    while (vb_pu_take_event(lane->pu, &e)) {
        if (lane->nic->hull_event && lane->nic->hull_event(lane->nic->hull, &e))
            continue;
        if (e.kind == VB_EVENT_CQ_COMPLETION)
            tell_channel(lane->nic, e.number);
        else
            tell_application(lane->nic, kinds[e.kind], e.number);
        if (e.kind == VB_EVENT_COMM_EST && lane->nic->cm)
            vb_host_cm_hear(lane->nic->cm, e.number);
    }
    pthread_mutex_unlock(&lane->nic->event_lock);
}

static enum vb_host_named named_by(enum vb_nic_event_kind kind)
{
    return kind == VB_NIC_EVENT_CQ_OVERRUN  ? VB_HOST_CQ
           : kind == VB_NIC_EVENT_SRQ_LIMIT ? VB_HOST_SRQ
                                            : VB_HOST_QP;
}

void vb_host_forget_events(struct vb_nic *nic, enum vb_host_named what, uint32_t number)
{
    uint32_t kept = 0;
    uint64_t all;

    if (nic->orphan)
        return; // whose descriptors are the parent's
    if (nic->attach) {
        vb_attach_forget_events(nic, what, number);
        return;
    }
    for (uint32_t i = 0; i < nic->lanes; i++)
        vb_host_collect(&nic->lane[i]);
    pthread_mutex_lock(&nic->event_lock);
    for (uint32_t i = 0; i < nic->event_count; i++) {
        struct vb_nic_event e = nic->event[(nic->event_head + i) % VB_HOST_EVENTS];
        if (named_by(e.kind) != what || e.number != number)
            nic->event[(nic->event_head + kept++) % VB_HOST_EVENTS] = e;
    }
    if (kept == 0 && nic->event_count > 0)
        (void)!read(nic->event_fd, &all, sizeof all);
    nic->event_count = kept;
    pthread_mutex_unlock(&nic->event_lock);
}

int vb_nic_event_fd(const struct vb_nic *nic)
{
    return vb_host_is_foreign(nic) ? -EPERM : nic->event_fd;
}

int vb_nic_take_event(struct vb_nic *nic, struct vb_nic_event *event)
{
    int err = -EAGAIN;
    uint64_t all;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (nic->attach)
        return vb_attach_take_event(nic, event);
    int before = vb_cancel_hold();
    pthread_mutex_lock(&nic->event_lock);
    if (nic->event_count > 0) {
        *event = nic->event[nic->event_head];
        nic->event_head = (nic->event_head + 1) % VB_HOST_EVENTS;
        if (--nic->event_count == 0)
            (void)!read(nic->event_fd, &all, sizeof all);
        err = 0;
    }
    pthread_mutex_unlock(&nic->event_lock);
    vb_cancel_allow(before);
    return err;
}

const char *vb_nic_event_text(enum vb_nic_event_kind kind)
{
    static const char *const text[] = {
        [VB_NIC_EVENT_QP_FATAL] = "a queue pair failed",
        [VB_NIC_EVENT_QP_REQUEST] = "a peer's request was malformed",
        [VB_NIC_EVENT_QP_ACCESS] = "a peer's request had no right to what it asked for",
        [VB_NIC_EVENT_QP_ESTABLISHED] = "the first packet of a connection came",
        [VB_NIC_EVENT_QP_DRAINED] = "a send queue has drained",
        [VB_NIC_EVENT_QP_LAST_RECV] = "a failed queue pair will take no more shared receives",
        [VB_NIC_EVENT_CQ_OVERRUN] = "a completion queue has overrun",
        [VB_NIC_EVENT_SRQ_LIMIT] = "a shared receive queue runs low",
    };
    return (unsigned)kind < sizeof text / sizeof text[0] ? text[kind] : "unknown event";
}
