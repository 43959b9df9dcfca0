// SPDX-License-Identifier: Apache-2.0
// Ports: who of this process has one, and who listens there. Other processes have others.
#include "rdmacm/rdmacm.h"

#include <errno.h>
#include <stdlib.h>

enum {
    BACKLOG = 1024, // of all listeners of a port together
};

static struct vb_rdmacm_service *find(enum rdma_port_space space, uint16_t port)
{
    const struct vb_fifo *all = vb_rdmacm_services();

    for (struct vb_link *l = all->head.next; l != &all->head; l = l->next) {
        struct vb_rdmacm_service *s = VB_CONTAINER_OF(l, struct vb_rdmacm_service, link);
        if (s->space == space && s->port == port)
            return s;
    }
    return NULL;
}

static int create(enum rdma_port_space space, uint16_t port, struct vb_rdmacm_service **made)
{
    struct vb_rdmacm_service *s = calloc(1, sizeof *s);

    if (!s)
        return -ENOMEM;
    int err = vb_rdmacm_calls()->bind(vb_rdmacm_manager(), space, &port);
    if (err) {
        free(s);
        return err;
    }
    s->space = space;
    s->port = port;
    s->number = vb_rdmacm_number();
    vb_fifo_init(&s->listeners);
    vb_fifo_push(vb_rdmacm_services(), &s->link);
    *made = s;
    return 0;
}

// ---- addresses of one port

static bool covers(const struct vb_rdmacm_id *any, const struct vb_ip *ip)
{
    if (!vb_rdmacm_is_any(&any->from.ip))
        return false;
    bool any_v4 = vb_ip_is_v4(&any->from.ip), v4 = vb_ip_is_v4(ip);
    return any_v4 == v4 || (v4 && !any->v6_only);
}

static bool collide(const struct vb_rdmacm_id *a, const struct vb_rdmacm_id *b)
{
    if (a->reuse && b->reuse && a->state != VB_RDMACM_LISTENING && b->state != VB_RDMACM_LISTENING)
        return false;
    return vb_ip_equal(&a->from.ip, &b->from.ip) || covers(a, &b->from.ip) ||
           covers(b, &a->from.ip);
}

static bool is_free_for(const struct vb_rdmacm_service *s, const struct vb_rdmacm_id *i)
{
    const struct vb_fifo *all = vb_rdmacm_ids();

    for (struct vb_link *l = all->head.next; l != &all->head; l = l->next) {
        const struct vb_rdmacm_id *other = VB_CONTAINER_OF(l, struct vb_rdmacm_id, all);
        if (other != i && other->service == s && collide(i, other))
            return false;
    }
    return true;
}

int vb_rdmacm_take_port(struct vb_rdmacm_id *i, uint16_t port)
{
    struct vb_rdmacm_service *s = port ? find(i->id.ps, port) : NULL;

    if (s && !is_free_for(s, i))
        return -EADDRINUSE;
    int err = s ? 0 : create(i->id.ps, port, &s);
    if (err)
        return err;
    s->users++;
    i->service = s;
    i->from.port = s->port;
    return 0;
}

void vb_rdmacm_drop_port(struct vb_rdmacm_id *i)
{
    struct vb_rdmacm_service *s = i->service;

    i->service = NULL;
    if (!s || --s->users > 0)
        return;
    vb_rdmacm_calls()->unbind(vb_rdmacm_manager(), s->space, s->port);
    vb_link_remove(&s->link);
    free(s);
}

// ---- listeners

static uint64_t service_id(const struct vb_rdmacm_service *s)
{
    return vb_cma_service_id((enum vb_cma_space)s->space, s->port);
}

int vb_rdmacm_start_listening(struct vb_rdmacm_id *i)
{
    struct vb_rdmacm_service *s = i->service;
    enum vb_rdmacm_state before = i->state;
    uint64_t now_ns;
    int err = 0;

    i->state = VB_RDMACM_LISTENING;
    if (!is_free_for(s, i))
        err = -EADDRINUSE;
    if (!err && vb_fifo_empty(&s->listeners)) {
        struct vb_cm *cm = vb_rdmacm_calls()->enter(vb_rdmacm_manager(), &now_ns);
        err =
            vb_rdmacm_calls()->listen(cm, service_id(s), 0, BACKLOG, (void *)(uintptr_t)s->number);
        vb_rdmacm_calls()->leave(vb_rdmacm_manager());
    }
    if (err)
        i->state = before;
    else
        vb_fifo_push(&s->listeners, &i->listener);
    return err;
}

void vb_rdmacm_stop_listening(struct vb_rdmacm_id *i)
{
    uint64_t now_ns;

    if (!vb_link_queued(&i->listener))
        return;
    vb_link_remove(&i->listener);
    if (!vb_fifo_empty(&i->service->listeners))
        return;
    struct vb_cm *cm = vb_rdmacm_calls()->enter(vb_rdmacm_manager(), &now_ns);
    vb_rdmacm_calls()->unlisten(cm, now_ns, service_id(i->service), 0);
    vb_rdmacm_calls()->leave(vb_rdmacm_manager());
}

static struct vb_rdmacm_service *numbered(uint32_t number)
{
    const struct vb_fifo *all = vb_rdmacm_services();

    for (struct vb_link *l = all->head.next; l != &all->head; l = l->next) {
        struct vb_rdmacm_service *s = VB_CONTAINER_OF(l, struct vb_rdmacm_service, link);
        if (s->number == number)
            return s;
    }
    return NULL;
}

// Who listens at just this address comes before who listens at all.
struct vb_rdmacm_id *vb_rdmacm_listener(uint32_t service, const struct vb_ip *target)
{
    struct vb_rdmacm_service *s = numbered(service);
    struct vb_rdmacm_id *best = NULL;

    if (!s)
        return NULL;
    for (struct vb_link *l = s->listeners.head.next; l != &s->listeners.head; l = l->next) {
        struct vb_rdmacm_id *i = VB_CONTAINER_OF(l, struct vb_rdmacm_id, listener);
        if (vb_ip_equal(&i->from.ip, target))
            return i;
        if (covers(i, target))
            best = i;
    }
    return best;
}
