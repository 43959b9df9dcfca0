// SPDX-License-Identifier: Apache-2.0
// Ids: made and destroyed, moved to another channel, and what can be set.
#include "rdmacm/rdmacm.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

// ---- made

struct vb_rdmacm_id *vb_rdmacm_create(struct rdma_event_channel *channel, void *context,
                                      enum rdma_port_space space, enum ibv_qp_type type)
{
    struct vb_rdmacm_id *i = calloc(1, sizeof *i);

    if (!i)
        return NULL;
    i->sync = !channel;
    i->id.channel = channel ? channel : rdma_create_event_channel();
    if (!i->id.channel) {
        free(i);
        return NULL;
    }
    i->id.context = context;
    i->id.ps = space;
    i->id.qp_type = type;
    i->qkey = RDMA_UDP_QKEY;
    i->hops = VB_RDMACM_HOPS;
    i->life = VB_RDMACM_LIFE;
    i->path.our_psn = vb_rdmacm_draw() & 0xffffff;
    i->generation = vb_rdmacm_generation();
    vb_fifo_init(&i->groups);
    return i;
}

void vb_rdmacm_bind_device(struct vb_rdmacm_id *i, struct ibv_context *context)
{
    i->id.verbs = context;
    i->id.port_num = VB_RDMACM_PORT;
    if (!i->id.pd)
        i->id.pd = vb_rdmacm_pd();
}

static bool is_known(enum rdma_port_space space)
{
    return space == RDMA_PS_TCP || space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ||
           space == RDMA_PS_IB;
}

VB_RAW_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
                                 void *context, enum rdma_port_space space)
{
    bool datagrams = space == RDMA_PS_UDP || space == RDMA_PS_IPOIB;

    if (!is_known(space))
        return vb_rdmacm_fail(EINVAL, "rdma_create_id", "no such port space");
    struct vb_rdmacm_id *i =
        vb_rdmacm_create(channel, context, space, datagrams ? IBV_QPT_UD : IBV_QPT_RC);
    if (!i)
        return vb_rdmacm_fail(ENOMEM, "rdma_create_id", "no memory, or no descriptor");
    vb_rdmacm_lock();
    vb_fifo_push(vb_rdmacm_ids(), &i->all);
    vb_rdmacm_enter(i);
    vb_rdmacm_unlock();
    *id = &i->id;
    return 0;
}

// ---- destroyed

static void drop_events(struct vb_rdmacm_id *i)
{
    struct vb_rdmacm_channel *c = (struct vb_rdmacm_channel *)(void *)i->id.channel;

    if (!c)
        return; // it went first, with all of them
    struct vb_link *l = c->events.head.next;
    while (l != &c->events.head) {
        struct vb_rdmacm_event *e = VB_CONTAINER_OF(l, struct vb_rdmacm_event, link);
        l = l->next;
        if (e->owner != i)
            continue;
        vb_rdmacm_unqueue(e);
        // A request that nobody will ever hear of.
        if (e->event.id != &i->id) {
            struct vb_rdmacm_id *unborn = vb_rdmacm_of(e->event.id);
            vb_rdmacm_retire(unborn);
            vb_rdmacm_free(unborn);
            l = c->events.head.next; // its own events may have been the next ones
        }
        free(e);
    }
}

// Requests that came to it and that the program has not answered go on without it.
static void disown(const struct vb_rdmacm_id *listener)
{
    const struct vb_fifo *all = vb_rdmacm_ids();

    for (struct vb_link *l = all->head.next; l != &all->head; l = l->next) {
        struct vb_rdmacm_id *i = VB_CONTAINER_OF(l, struct vb_rdmacm_id, all);
        if (i->asked == listener)
            i->asked = NULL;
    }
}

void vb_rdmacm_retire(struct vb_rdmacm_id *i)
{
    if (i->state == VB_RDMACM_LISTENING)
        disown(i);
    i->condemned = true;
    vb_rdmacm_stop_listening(i);
    vb_rdmacm_abandon(i);
    drop_events(i);
    vb_rdmacm_taken(i);
    vb_rdmacm_drop_port(i);
    vb_rdmacm_leave(i);
    if (vb_link_queued(&i->all))
        vb_link_remove(&i->all);
}

void vb_rdmacm_free(struct vb_rdmacm_id *i)
{
    if (i->sync)
        vb_rdmacm_free_channel(i->id.channel);
    free(i->accepts_with);
    free(i->connect_data);
    free(i);
}

VB_RAW_EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (!id)
        return vb_rdmacm_fail(EINVAL, "rdma_destroy_id", "no id");
    if (i->generation != vb_rdmacm_generation()) {
        vb_rdmacm_free(i); // only its memory is ours
        return 0;
    }
    vb_rdmacm_leave_all(i);
    vb_rdmacm_lock();
    vb_rdmacm_retire(i);
    vb_rdmacm_unlock();
    if (id->event)
        rdma_ack_cm_event(id->event);
    vb_rdmacm_lock();
    while (i->handed_out > 0)
        vb_rdmacm_wait();
    vb_rdmacm_unlock();
    vb_rdmacm_free(i);
    return 0;
}

// ---- moved

static void move_events(struct vb_rdmacm_id *i, struct rdma_event_channel *to)
{
    struct vb_rdmacm_channel *from = (struct vb_rdmacm_channel *)(void *)i->id.channel;
    struct vb_link *l = from->events.head.next;

    if (i->id.channel == to)
        return;
    vb_rdmacm_leave(i);
    i->id.channel = to;
    vb_rdmacm_enter(i);
    while (l != &from->events.head) {
        struct vb_rdmacm_event *e = VB_CONTAINER_OF(l, struct vb_rdmacm_event, link);
        l = l->next;
        if (e->owner != i)
            continue;
        vb_rdmacm_unqueue(e);
        vb_rdmacm_queue(e);
        // A request that nobody has heard of yet comes along, with what else is told of it.
        if (e->event.id != &i->id) {
            move_events(vb_rdmacm_of(e->event.id), to);
            l = from->events.head.next;
        }
    }
}

VB_RAW_EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (vb_rdmacm_refuse_foreign(i, "rdma_migrate_id"))
        return -1;
    struct rdma_event_channel *old = id->channel, *to = channel;
    bool was_sync = i->sync;
    if (was_sync && !channel)
        return vb_rdmacm_fail(EINVAL, "rdma_migrate_id", "it has a channel of its own already");
    if (!to)
        to = rdma_create_event_channel();
    if (!to)
        return -1;
    if (was_sync && id->event) {
        rdma_ack_cm_event(id->event);
        id->event = NULL;
    }
    vb_rdmacm_lock();
    while (i->handed_out > 0)
        vb_rdmacm_wait();
    move_events(i, to);
    i->sync = !channel;
    vb_rdmacm_unlock();
    if (was_sync && old != to)
        vb_rdmacm_free_channel(old);
    return 0;
}

// ---- what can be set, and asked

static int set_of_id(struct vb_rdmacm_id *i, int name, const void *value, size_t len)
{
    bool bound = i->state != VB_RDMACM_IDLE;
    int number = 0;
    uint8_t byte = 0;

    if (name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT) {
        if (len != sizeof byte)
            return EINVAL;
        memcpy(&byte, value, sizeof byte);
    } else if (name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY) {
        if (len != sizeof number)
            return EINVAL;
        memcpy(&number, value, sizeof number);
    }
    switch (name) {
    case RDMA_OPTION_ID_TOS: i->tos = byte; return 0;
    case RDMA_OPTION_ID_REUSEADDR:
        if (bound && i->state != VB_RDMACM_BOUND)
            return EINVAL;
        i->reuse = number != 0;
        return 0;
    case RDMA_OPTION_ID_AFONLY:
        if (bound)
            return EINVAL;
        i->v6_only = number != 0;
        return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (byte > 31)
            return EINVAL;
        i->ack_timeout = byte;
        i->has_ack_timeout = true;
        return 0;
    default: return ENOSYS;
    }
}

VB_RAW_EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value,
                                  size_t len)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);
    int error = ENOSYS;

    if (vb_rdmacm_refuse_foreign(i, "rdma_set_option"))
        return -1;
    if (!value)
        return vb_rdmacm_fail(EINVAL, "rdma_set_option", "no value");
    if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH)
        return vb_rdmacm_take_path(i, value, len);
    vb_rdmacm_lock();
    if (level == RDMA_OPTION_ID)
        error = set_of_id(i, name, value, len);
    vb_rdmacm_unlock();
    return error ? vb_rdmacm_fail(error, "rdma_set_option", "not now, or no such option") : 0;
}

static __be16 port_of(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;

    if (address->sa_family == AF_INET)
        return v4->sin_port;
    return address->sa_family == AF_INET6 ? v6->sin6_port : 0;
}

VB_RAW_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
    return port_of(&id->route.addr.src_addr);
}

VB_RAW_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
    return port_of(&id->route.addr.dst_addr);
}

VB_RAW_EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    if (!id || !ece || id->qp)
        return vb_rdmacm_fail(EINVAL, "rdma_set_local_ece", "the id has a queue pair");
    vb_rdmacm_of(id)->path.local_ece = *ece;
    return 0;
}

VB_RAW_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
    if (!id || !ece || id->qp)
        return vb_rdmacm_fail(EINVAL, "rdma_get_remote_ece", "the id has a queue pair");
    *ece = vb_rdmacm_of(id)->path.peer_ece;
    ece->comp_mask = 0;
    return 0;
}
