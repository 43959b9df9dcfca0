// SPDX-License-Identifier: Apache-2.0
// Event channels: a queue, and a descriptor that is readable while something is in it.
#include "rdmacm/rdmacm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct vb_rdmacm_channel *channel_of(struct rdma_event_channel *channel)
{
    return (struct vb_rdmacm_channel *)(void *)channel;
}

VB_RAW_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
    struct vb_rdmacm_channel *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->channel.fd = eventfd(0, EFD_CLOEXEC); // it blocks until the application says otherwise
    if (c->channel.fd < 0) {
        free(c);
        return NULL;
    }
    c->generation = vb_rdmacm_generation();
    vb_fifo_init(&c->events);
    vb_fifo_init(&c->ids);
    return &c->channel;
}

void vb_rdmacm_free_channel(struct rdma_event_channel *channel)
{
    close(channel->fd);
    free(channel_of(channel));
}

// A channel from before fork() is the parent's, and so are the ids in its list.
void vb_rdmacm_enter(struct vb_rdmacm_id *i)
{
    struct vb_rdmacm_channel *c = channel_of(i->id.channel);

    if (c->generation == vb_rdmacm_generation())
        vb_fifo_push(&c->ids, &i->mate);
}

void vb_rdmacm_leave(struct vb_rdmacm_id *i)
{
    if (vb_link_queued(&i->mate))
        vb_link_remove(&i->mate);
}

static struct vb_rdmacm_id *any_on(struct rdma_event_channel *channel)
{
    struct vb_link *first = vb_fifo_first(&channel_of(channel)->ids);
    return first ? VB_CONTAINER_OF(first, struct vb_rdmacm_id, mate) : NULL;
}

// What is still on it ends, as it does in a kernel; of these ids only the memory is left. Programs
// leave a thread behind that waits for events: it waits for ever, as it does in a kernel, even if
// it has just taken the last one and comes back.
VB_RAW_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    struct vb_rdmacm_id *i;

    if (!channel)
        return;
    vb_rdmacm_lock();
    while (channel_of(channel)->generation == vb_rdmacm_generation() && (i = any_on(channel))) {
        vb_rdmacm_retire(i);
        i->id.channel = NULL;
        i->sync = false;
    }
    close(channel->fd);
    channel_of(channel)->dead = true;
    struct vb_rdmacm_channel *former = vb_rdmacm_bury(channel_of(channel));
    vb_rdmacm_unlock();
    free(former);
}

// ---- the queue; all need the lock

// Only here is the descriptor read and written, so neither ever blocks. In a child of fork() it is
// the parent's, too.
static void show(struct vb_rdmacm_channel *c)
{
    bool has = !vb_fifo_empty(&c->events);
    uint64_t value = 1;

    if (has == c->told || c->generation != vb_rdmacm_generation())
        return;
    c->told = has;
    if (has)
        (void)!write(c->channel.fd, &value, sizeof value);
    else
        (void)!read(c->channel.fd, &value, sizeof value);
}

struct vb_rdmacm_event *vb_rdmacm_event(struct vb_rdmacm_id *i, enum rdma_cm_event_type type,
                                        int status)
{
    struct vb_rdmacm_event *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->event.id = &i->id;
    e->event.event = type;
    e->event.status = status;
    e->owner = i;
    return e;
}

void vb_rdmacm_queue(struct vb_rdmacm_event *e)
{
    e->channel = channel_of(e->owner->id.channel);
    vb_fifo_push(&e->channel->events, &e->link);
    show(e->channel);
    atomic_fetch_add(&e->channel->queued, 1);
    syscall(SYS_futex, &e->channel->queued, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void vb_rdmacm_tell(struct vb_rdmacm_id *i, enum rdma_cm_event_type type, int status)
{
    struct vb_rdmacm_event *e = vb_rdmacm_event(i, type, status);

    if (e)
        vb_rdmacm_queue(e);
}

void vb_rdmacm_unqueue(struct vb_rdmacm_event *e)
{
    vb_link_remove(&e->link);
    show(e->channel);
    e->channel = NULL;
}

static struct vb_rdmacm_event *take(struct vb_rdmacm_channel *c)
{
    struct vb_link *first = vb_fifo_first(&c->events);

    if (!first)
        return NULL;
    struct vb_rdmacm_event *e = VB_CONTAINER_OF(first, struct vb_rdmacm_event, link);
    vb_rdmacm_unqueue(e);
    e->owner->handed_out++;
    if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
        vb_rdmacm_taken(vb_rdmacm_of(e->event.id));
    if (e->group)
        e->group->handed_out++;
    return e;
}

// ---- taking events

// In synchronous mode a request has a channel of its own. Without one it is refused.
static bool settle(struct vb_rdmacm_event *e)
{
    if (!vb_rdmacm_of(e->event.listen_id)->sync || rdma_migrate_id(e->event.id, NULL) == 0)
        return true;
    rdma_destroy_id(e->event.id);
    rdma_ack_cm_event(&e->event);
    return false;
}

// What the program is to see has to be done first: it is told of a connection that stands. False:
// the event is no more.
static bool finish(struct vb_rdmacm_event *e)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(e->event.id);

    switch (e->event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST: return settle(e);
    case RDMA_CM_EVENT_CONNECT_RESPONSE: vb_rdmacm_establish(e); return true;
    case RDMA_CM_EVENT_REJECTED: vb_rdmacm_make_error(i); return true;
    case RDMA_CM_EVENT_MULTICAST_JOIN: vb_rdmacm_joined(e); return true;
    default: return true;
    }
}

// Until more than `queued` events have come. After a signal handler with SA_RESTART the system goes
// on with this call, as it does with the read() of other libraries, and never with a poll(); after
// others it is EINTR. A thread may be cancelled here.
static int sleep_on(struct vb_rdmacm_channel *c, uint32_t queued)
{
    int before;

    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    long result = syscall(SYS_futex, &c->queued, FUTEX_WAIT_PRIVATE, queued, NULL, NULL, 0);
    int error = errno;
    pthread_setcanceltype(before, NULL);
    errno = error;
    return result == 0 || error == EAGAIN ? 0 : -1;
}

VB_RAW_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel,
                                    struct rdma_cm_event **event)
{
    struct vb_rdmacm_channel *c = channel_of(channel);
    struct vb_rdmacm_event *e;

    if (!channel || !event)
        return vb_rdmacm_fail(EINVAL, "rdma_get_cm_event", "no channel, or no place for an event");
    if (c->generation != vb_rdmacm_generation())
        return vb_rdmacm_fail(EPERM, "rdma_get_cm_event", "after fork() it is the parent's");
    for (;;) {
        vb_rdmacm_lock();
        bool dead = c->dead;
        uint32_t queued = atomic_load(&c->queued);
        e = dead ? NULL : take(c);
        vb_rdmacm_unlock();
        while (dead)
            pause();
        if (e && finish(e))
            break;
        if (e)
            continue;
        if (fcntl(channel->fd, F_GETFL) & O_NONBLOCK) {
            errno = EAGAIN;
            return -1;
        }
        if (sleep_on(c, queued) != 0)
            return -1;
    }
    *event = &e->event;
    return 0;
}

VB_RAW_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    struct vb_rdmacm_event *e = (struct vb_rdmacm_event *)(void *)event;

    if (!event)
        return vb_rdmacm_fail(EINVAL, "rdma_ack_cm_event", "no event");
    vb_rdmacm_lock();
    e->owner->handed_out--;
    if (e->group)
        e->group->handed_out--;
    vb_rdmacm_notice();
    vb_rdmacm_unlock();
    free(e);
    return 0;
}

int vb_rdmacm_complete(struct vb_rdmacm_id *i, const char *call)
{
    if (!i->sync)
        return 0;
    if (i->id.event)
        rdma_ack_cm_event(i->id.event);
    i->id.event = NULL;
    if (rdma_get_cm_event(i->id.channel, &i->id.event) != 0)
        return -1;
    const struct rdma_cm_event *event = i->id.event;
    if (!event->status)
        return 0;
    if (event->event == RDMA_CM_EVENT_REJECTED)
        return vb_rdmacm_fail(ECONNREFUSED, call, "the peer said no");
    return vb_rdmacm_fail(event->status < 0 ? -event->status : event->status, call,
                          rdma_event_str(event->event));
}
