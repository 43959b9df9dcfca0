// SPDX-License-Identifier: Apache-2.0
// Services: sessions with a name. When the connection of one ends, whatever the reason, all that it
// has stays and goes on working; the next one of the same user that asks for the name gets it as it
// is. So a session ends by being released, or with the hull.
#include "hull/command.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_empty(const struct vb_hull_client *client)
{
    bool empty = !vb_fifo_first(&client->holds);

    for (int kind = 0; kind < VB_HULL_KINDS; kind++)
        empty = empty && !vb_fifo_first(&client->objects[kind]);
    return empty;
}

// ---- detaching

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

// What it had written into its doorbell records is executed, though it may have died before it
// could ring for it. Nobody hears of events until somebody listens again. Needs the locks.
static void settle(struct vb_hull_client *client)
{
    struct vb_hull *hull = client->hull;
    struct vb_fifo *list = client->objects;

    vb_hull_watch_leave(client);
    vb_hull_faults_end(client); // which are a process's
    vb_hull_trace_end(client);
    for (struct vb_link *l = list[VB_HULL_QP].head.next; l != &list[VB_HULL_QP].head; l = l->next) {
        const struct vb_hull_object *qp = VB_CONTAINER_OF(l, struct vb_hull_object, link);
        vb_doorbell_ring(vb_pu_doorbells(hull->unit[qp->unit].lane->pu), qp->number);
    }
    for (struct vb_link *l = list[VB_HULL_CQ].head.next; l != &list[VB_HULL_CQ].head; l = l->next)
        vb_dev_cq_armed(hull->nic->dev, VB_CONTAINER_OF(l, struct vb_hull_object, link)->number);
    list = &client->objects[VB_HULL_CHANNEL];
    for (struct vb_link *l = list->head.next; l != &list->head; l = l->next)
        close_end(&VB_CONTAINER_OF(l, struct vb_hull_object, link)->fd);
    close_end(&client->events);
    vb_hull_units_told(hull);
}

// What was lent to the process that is gone. A key of the clock stays, but nobody has it mapped.
static void return_lent(struct vb_hull_client *client)
{
    struct vb_fifo *list = &client->holds;

    for (struct vb_link *l = list->head.next, *next; l != &list->head; l = next) {
        struct vb_hull_hold *h = VB_CONTAINER_OF(l, struct vb_hull_hold, link);
        next = l->next;
        vb_hull_clock_watch(client->hull, h, false);
        if (h->lent && h->users == 0)
            vb_hull_memory_let_go(client, h);
    }
}

static void detach(struct vb_hull_client *client)
{
    epoll_ctl(client->hull->epoll, EPOLL_CTL_DEL, client->socket, NULL);
    vb_contract_end(client->socket);
    client->socket = -1;
    vb_hull_descriptors_give_back(client->hull, client->tenant, VB_HULL_CONNECTION_FDS);
    client->descriptors -= VB_HULL_CONNECTION_FDS;
    client->gone = false;
    vb_host_lock(client->hull->nic);
    settle(client);
    vb_host_unlock(client->hull->nic);
    return_lent(client);
    vb_hull_activate(client, UINT32_MAX); // bells rung last, and a wake-up that it could not send
}

// A name without anything behind it is not worth keeping.
void vb_hull_leave(struct vb_hull_client *client)
{
    if (client->service[0] && !is_empty(client))
        detach(client);
    else
        vb_hull_client_end(client);
}

// ---- attaching

static struct vb_hull_client *find_service(const struct vb_hull_client *asking, const char *name)
{
    struct vb_fifo *all = &asking->hull->clients;

    for (struct vb_link *l = all->head.next; l != &all->head; l = l->next) {
        struct vb_hull_client *c = VB_CONTAINER_OF(l, struct vb_hull_client, link);
        if (c->tenant == asking->tenant && strcmp(c->service, name) == 0)
            return c;
    }
    return NULL;
}

// Who has just died may not have been heard of yet: his end of the connection is closed.
static bool has_hung_up(const struct vb_hull_client *client)
{
    struct pollfd fd = {.fd = client->socket, .events = POLLRDHUP};
    return poll(&fd, 1, 0) == 1 && fd.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

static bool judge(const struct vb_hull_client *client, const char *name,
                  struct vb_hull_reply *reply)
{
    if (!memchr(name, '\0', VB_HULL_NAME))
        vb_hull_refuse(reply, -ENAMETOOLONG, "the name of a service has at most %d characters",
                       VB_HULL_NAME - 1);
    else if (!name[0])
        vb_hull_refuse(reply, -EINVAL, "a service needs a name");
    else if (client->service[0] || client->process || !is_empty(client))
        vb_hull_refuse(reply, -EINVAL, "a service is named right after the greeting, once");
    return !reply->error;
}

// A page whose descriptor is kept takes the place of the greeting's.
static void found(struct vb_hull_client *client, const char *name, struct vb_hull_reply *reply)
{
    const struct vb_hull_tenant *t = client->tenant;
    void *page;

    if (t->used.applications > t->quota.applications) {
        vb_hull_refuse(reply, -EDQUOT, "user %u may have %llu applications and services",
                       (unsigned)t->uid, (unsigned long long)t->quota.applications);
        return;
    }
    if (client->page_fd < 0 && !vb_hull_descriptors_take(client->hull, client->tenant, 1, reply))
        return;
    client->descriptors += client->page_fd < 0;
    const uint64_t bytes = vb_hull_page_bytes(client->hull->units);
    int fd = vb_hull_memory_make(bytes, &page);
    if (fd < 0) {
        vb_hull_refuse(reply, fd, "the hull cannot take more services: %s", strerror(-fd));
        return;
    }
    vb_host_lock(client->hull->nic); // nobody looks there meanwhile
    munmap(client->page, bytes);
    client->page = page;
    atomic_store_explicit(&client->page->asleep, vb_hull_asleep(client), memory_order_seq_cst);
    vb_host_unlock(client->hull->nic);
    close_end(&client->page_fd); // of a service that it was, and released
    client->page_fd = fd;
    memcpy(client->service, name, sizeof client->service);
}

// The session gets the connection; the record that came with it has none then.
static void adopt(struct vb_hull_client *session, struct vb_hull_client *newcomer)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = session};

    session->socket = newcomer->socket;
    vb_host_lock(session->hull->nic); // events may come at any time
    session->events = newcomer->events;
    vb_host_unlock(session->hull->nic);
    session->pid = newcomer->pid;
    memcpy(session->name, newcomer->name, sizeof session->name);
    epoll_ctl(session->hull->epoll, EPOLL_CTL_MOD, session->socket, &event);
    newcomer->socket = newcomer->events = -1;
    session->descriptors += VB_HULL_CONNECTION_FDS; // a page of a service that it was is its own
    newcomer->descriptors -= VB_HULL_CONNECTION_FDS;
    vb_hull_activate(session, UINT32_MAX);
}

static struct vb_hull_client *attach(struct vb_hull_client *client, const char *name,
                                     struct vb_hull_reply *reply)
{
    struct vb_hull_client *session = find_service(client, name);

    if (!session) {
        found(client, name, reply);
        return client;
    }
    if (session->socket >= 0 && has_hung_up(session))
        detach(session);
    if (session->socket >= 0) {
        vb_hull_refuse(reply, -EBUSY, "process %ld has service '%s'", (long)session->pid, name);
        return client;
    }
    adopt(session, client);
    return session;
}

int vb_hull_service(struct vb_hull_client *client, const struct vb_hull_request *request)
{
    struct vb_hull_reply reply = {.op = request->op, .serial = request->serial};
    struct vb_hull_client *session = client;

    if (judge(client, request->memory.name, &reply))
        session = attach(client, request->memory.name, &reply);
    if (!reply.error) {
        client->unnamed = false;
        reply.session.lives = session->lives++;
    }
    int err = vb_contract_send(session->socket, &reply, sizeof reply, MSG_DONTWAIT,
                               &session->page_fd, !reply.error);
    if (session == client)
        return err ? err : reply.error;
    if (err)
        detach(session);
    return -ESTALE;
}

// ---- what it has

static void tell_memory(struct vb_hull_command *c, const struct vb_hull_hold *h)
{
    struct vb_hull_listing *l = &c->reply->listing;

    c->reply->number = h->number;
    l->at = h->at;
    l->made = (struct vb_hull_request){.op = VB_HULL_MEMORY_CREATE,
                                       .number = h->tag,
                                       .memory = {.bytes = h->mapping->bytes, .rings = h->rings}};
    memcpy(l->made.memory.name, h->mapping->name, sizeof h->mapping->name);
}

static void next_memory(struct vb_hull_command *c)
{
    struct vb_fifo *list = &c->client->holds;

    // In the order of their numbers.
    for (struct vb_link *l = list->head.next; l != &list->head; l = l->next) {
        const struct vb_hull_hold *h = VB_CONTAINER_OF(l, struct vb_hull_hold, link);
        if (h->number > c->request->number && !h->lent && h->mapping->fd >= 0) {
            tell_memory(c, h);
            return;
        }
    }
}

static void next_object(struct vb_hull_command *c, enum vb_hull_kind kind)
{
    struct vb_fifo *list = &c->client->objects[kind];
    struct vb_link *link = &list->head;

    if (c->request->number) {
        struct vb_hull_object *last = vb_hull_find(c, kind, c->request->number);
        if (!last)
            return;
        link = &last->link;
    }
    if (link->next == &list->head)
        return;
    const struct vb_hull_object *o = VB_CONTAINER_OF(link->next, struct vb_hull_object, link);
    c->reply->number = o->number;
    c->reply->listing.made = *o->made;
}

static void next(struct vb_hull_command *c)
{
    static const enum vb_hull_kind kinds[VB_HULL_LISTS] = {
        [VB_HULL_LIST_PD] = VB_HULL_PD,         [VB_HULL_LIST_REGION] = VB_HULL_REGION,
        [VB_HULL_LIST_WINDOW] = VB_HULL_WINDOW, [VB_HULL_LIST_CHANNEL] = VB_HULL_CHANNEL,
        [VB_HULL_LIST_CQ] = VB_HULL_CQ,         [VB_HULL_LIST_SRQ] = VB_HULL_SRQ,
        [VB_HULL_LIST_QP] = VB_HULL_QP,         [VB_HULL_LIST_PROGRAM] = VB_HULL_PROGRAM,
    };
    uint32_t kind = c->request->value;

    if (kind >= VB_HULL_LISTS) {
        vb_hull_refuse(c->reply, -EINVAL, "there are no objects of kind %u", kind);
        return;
    }
    c->reply->listing.kind = kind;
    if (kind == VB_HULL_LIST_MEMORY)
        next_memory(c);
    else
        next_object(c, kinds[kind]);
}

// ---- channels

// A byte for each mark in the page, as contract and application count them.
static void tell_due(const struct vb_hull_client *client, const struct vb_hull_object *channel)
{
    const struct vb_fifo *list = &client->objects[VB_HULL_CQ];

    for (struct vb_link *l = list->head.next; l != &list->head; l = l->next) {
        const struct vb_hull_object *cq = VB_CONTAINER_OF(l, struct vb_hull_object, link);
        uint64_t word = atomic_load_explicit(&client->page->due[cq->number % VB_HULL_CQS / 64],
                                             memory_order_acquire);
        if (cq->channel == channel && word >> cq->number % 64 & 1)
            (void)!send(channel->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

static void channel_open(struct vb_hull_command *c)
{
    struct vb_hull_object *o = vb_hull_find(c, VB_HULL_CHANNEL, c->request->number);
    int pair[2];

    if (!o)
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        vb_hull_refuse(c->reply, -errno, "the hull is out of descriptors");
        return;
    }
    shutdown(pair[0], SHUT_RD); // as of a new one
    close_end(&o->fd);
    o->fd = pair[0];
    tell_due(c->client, o);
    *c->give = pair[1];
    *c->close_it = true;
}

// ---- requests

void vb_hull_service_command(struct vb_hull_command *c)
{
    if (!c->client->service[0]) {
        vb_hull_refuse(c->reply, -ENOENT, "this application is no service");
        return;
    }
    switch (c->request->op) {
    case VB_HULL_SERVICE_RELEASE: c->client->service[0] = '\0'; break;
    case VB_HULL_SERVICE_NEXT: next(c); break;
    default: channel_open(c); break;
    }
}
