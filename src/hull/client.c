// SPDX-License-Identifier: Apache-2.0
// Applications: from the connection over the greeting to the end, however it comes.
#include "hull/hull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEAR_MAX = 16,    // messages of one application before others have their turn
    HEAR_TENANT = 64, // and of all of one tenant
    REFUSED_MAX = 16,
    DEAF_NS = 100 * 1000 * 1000, // where nothing is left to let anybody in with
    UNREAD_BYTES = 16384,        // of replies, as the kernel counts them: some twenty
};

// ---- tenants

struct vb_hull_tenant *vb_hull_tenant_of(struct vb_hull *hull, uid_t uid)
{
    for (struct vb_link *l = hull->tenants.head.next; l != &hull->tenants.head; l = l->next) {
        struct vb_hull_tenant *t = VB_CONTAINER_OF(l, struct vb_hull_tenant, link);
        if (t->uid == uid)
            return t;
    }
    struct vb_hull_tenant *t = calloc(1, sizeof *t + hull->units * sizeof t->at[0]);
    if (!t)
        return NULL;
    t->uid = uid;
    t->quota = *vb_hull_config_quota(hull->known, uid);
    if (getrandom(t->secret, sizeof t->secret, 0) != sizeof t->secret ||
        vb_hull_share_open(hull, t) != 0) {
        free(t);
        return NULL;
    }
    vb_fifo_init(&t->named);
    vb_fifo_push(&hull->tenants, &t->link);
    return t;
}

void vb_hull_tenant_end(struct vb_hull *hull, struct vb_hull_tenant *t)
{
    if (t->used.applications || vb_fifo_first(&t->named) || t->reaping.mappings)
        return;
    vb_link_remove(&t->link);
    vb_hull_share_close(hull, t);
    vb_table_free(&t->name_of);
    free(t);
}

// ---- the end

static void end_memory(struct vb_hull_client *client)
{
    struct vb_link *link;

    while ((link = vb_fifo_first(&client->holds)))
        vb_hull_memory_let_go(client, VB_CONTAINER_OF(link, struct vb_hull_hold, link));
    if (client->page)
        munmap(client->page, vb_hull_page_bytes(client->hull->units));
    if (client->page_fd >= 0)
        close(client->page_fd);
}

// The NIC is at rest while its locks are held: no frame is built from memory that goes.
void vb_hull_client_end(struct vb_hull_client *client)
{
    struct vb_hull *hull = client->hull;

    vb_host_lock(hull->nic);
    vb_hull_faults_end(client);
    vb_hull_trace_end(client);
    vb_hull_destroy_all(client);
    vb_hull_deactivate(client);
    end_memory(client);
    vb_link_remove(&client->link);
    vb_hull_units_told(hull);
    vb_host_unlock(hull->nic);
    // By name: a child that was just forked may have the descriptor, too, and keep it registered.
    if (client->socket >= 0) {
        epoll_ctl(hull->epoll, EPOLL_CTL_DEL, client->socket, NULL);
        vb_contract_end(client->socket);
    }
    if (client->events >= 0)
        close(client->events);
    vb_hull_copy_end(hull, client->process);
    vb_hull_descriptors_give_back(hull, client->tenant, client->descriptors);
    client->tenant->poor -= client->poor;
    client->tenant->used.applications--;
    vb_hull_tenant_end(hull, client->tenant);
    vb_table_free(&client->hold_of);
    vb_table_free(&client->object_of);
    free(client);
}

// ---- the beginning

static struct vb_hull_client *alloc_client(struct vb_hull *hull, int socket)
{
    struct vb_hull_client *client = calloc(1, sizeof *client + hull->units * sizeof client->at[0]);

    if (!client)
        return NULL;
    client->hull = hull;
    client->socket = socket;
    client->events = client->page_fd = -1;
    client->number = ++hull->clients_made;
    // Descriptors in replies that are not read count against the hull's user, for all applications.
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &(int){UNREAD_BYTES / 2}, sizeof(int));
    vb_fifo_init(&client->holds);
    for (int i = 0; i < VB_HULL_KINDS; i++)
        vb_fifo_init(&client->objects[i]);
    return client;
}

// Some more than the tenant may have are let in, so that words can answer their greeting.
static bool has_room_for(struct vb_hull_client *client)
{
    struct vb_hull_tenant *t = client->tenant;
    struct vb_hull_reply words;

    if (t->used.applications >= t->quota.applications + REFUSED_MAX)
        return false;
    if (vb_hull_descriptors_take(client->hull, t, VB_HULL_CONNECTION_FDS, &words)) {
        client->descriptors = VB_HULL_CONNECTION_FDS;
        return true;
    }
    client->poor = t->poor < REFUSED_MAX;
    t->poor += client->poor;
    return client->poor;
}

static bool admit(struct vb_hull_client *client)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = client};

    if (!has_room_for(client))
        return false;
    if (epoll_ctl(client->hull->epoll, EPOLL_CTL_ADD, client->socket, &event) == 0)
        return true;
    vb_hull_descriptors_give_back(client->hull, client->tenant, client->descriptors);
    client->tenant->poor -= client->poor;
    return false;
}

static void welcome(struct vb_hull *hull, int socket)
{
    struct ucred who = {0};
    socklen_t size = sizeof who;
    bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
    struct vb_hull_tenant *t = known ? vb_hull_tenant_of(hull, who.uid) : NULL;
    struct vb_hull_client *client = t ? alloc_client(hull, socket) : NULL;

    if (client) {
        client->pid = who.pid;
        client->tenant = t;
        vb_hull_name_client(client);
        if (admit(client)) {
            t->used.applications++;
            vb_host_lock(hull->nic); // events of units go through the list
            vb_fifo_push(&hull->clients, &client->link);
            vb_host_unlock(hull->nic);
            return;
        }
    }
    vb_contract_end(socket);
    free(client);
    if (t)
        vb_hull_tenant_end(hull, t);
}

// Out of descriptors, one is kept in reserve to end who waits, lest he be heard for ever.
static int end_one(struct vb_hull *hull)
{
    if (hull->spare >= 0)
        close(hull->spare);
    int socket = accept4(hull->listener, NULL, NULL, SOCK_CLOEXEC);
    int err = socket < 0 ? errno : 0;
    if (socket >= 0)
        vb_contract_end(socket);
    hull->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return err;
}

static void listen_for(struct vb_hull *hull, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = &hull->listener};
    epoll_ctl(hull->epoll, EPOLL_CTL_MOD, hull->listener, &event);
}

// Who waits there says so without end: where nothing can be done about it nobody listens for a
// while, lest the hull do nothing else.
static void be_deaf(struct vb_hull *hull)
{
    hull->deaf_ns = hull->unit[0].looked_ns + DEAF_NS;
    listen_for(hull, 0);
}

void vb_hull_accept(struct vb_hull *hull)
{
    int socket = accept4(hull->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int err = socket < 0 ? errno : 0;

    if (socket >= 0)
        welcome(hull, socket);
    else if (err == EMFILE || err == ENFILE)
        err = end_one(hull);
    if (err && err != EAGAIN && err != EINTR && err != ECONNABORTED)
        be_deaf(hull);
}

void vb_hull_accept_again(struct vb_hull *hull)
{
    if (!hull->deaf_ns || hull->unit[0].looked_ns < hull->deaf_ns)
        return;
    hull->deaf_ns = 0;
    listen_for(hull, EPOLLIN);
}

uint64_t vb_hull_accept_next(const struct vb_hull *hull, uint64_t deadline_ns)
{
    return hull->deaf_ns && hull->deaf_ns < deadline_ns ? hull->deaf_ns : deadline_ns;
}

// ---- the greeting

// There are some by now.
static void enrich(struct vb_hull_client *client)
{
    client->descriptors = VB_HULL_CONNECTION_FDS;
    client->poor = false;
    client->tenant->poor--;
}

static bool judge_hello(struct vb_hull_client *client, const struct vb_hull_hello *h,
                        struct vb_hull_reply *reply)
{
    const char *name = client->hull->config.name;
    struct vb_hull_tenant *t = client->tenant;

    if (h->magic != VB_HULL_MAGIC)
        vb_hull_refuse(reply, -EPROTO, "this is no greeting of a Verbena application");
    else if (h->version != VB_HULL_VERSION)
        vb_hull_refuse(reply, -EPROTO,
                       "the application speaks version %u of the contract, the hull %d: use the "
                       "same Verbena on both sides",
                       h->version, VB_HULL_VERSION);
    else if (h->page_bytes != sizeof(struct vb_hull_page) ||
             h->request_bytes != sizeof(struct vb_hull_request) ||
             h->reply_bytes != sizeof(struct vb_hull_reply))
        vb_hull_refuse(reply, -EPROTO,
                       "the contract's sizes differ: %u/%u/%u bytes there, "
                       "%zu/%zu/%zu here",
                       h->page_bytes, h->request_bytes, h->reply_bytes, sizeof(struct vb_hull_page),
                       sizeof(struct vb_hull_request), sizeof(struct vb_hull_reply));
    else if (h->features & ~(uint32_t)VB_HULL_FEATURES)
        vb_hull_refuse(reply, -EPROTO, "the application needs features %#x, the hull has %#x",
                       h->features, (unsigned)VB_HULL_FEATURES);
    else if (!memchr(h->nic, '\0', sizeof h->nic) || (h->nic[0] && strcmp(h->nic, name) != 0))
        vb_hull_refuse(reply, -ENODEV, "this is NIC '%s'", name);
    else if (t->used.applications > t->quota.applications && !(h->features & VB_HULL_SERVICES))
        vb_hull_refuse(reply, -EDQUOT, "user %u may have %llu applications at NIC '%s'",
                       (unsigned)t->uid, (unsigned long long)t->quota.applications, name);
    else if (client->poor &&
             vb_hull_descriptors_take(client->hull, t, VB_HULL_CONNECTION_FDS, reply))
        enrich(client);
    return !reply->error;
}

// The page, and the socket of events, of which the application gets `fds`.
static int furnish(struct vb_hull_client *client, int fds[VB_HULL_FDS])
{
    void *page;
    int pair[2];

    fds[0] = vb_hull_memory_make(vb_hull_page_bytes(client->hull->units), &page);
    if (fds[0] < 0)
        return fds[0];
    client->page = page;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        int err = -errno;
        close(fds[0]);
        return err;
    }
    shutdown(pair[0], SHUT_RD); // nothing is heard there: it must not fill with what others own
    client->events = pair[0];
    fds[1] = pair[1];
    atomic_store_explicit(&client->page->asleep, vb_hull_asleep(client), memory_order_seq_cst);
    return 0;
}

static int greet(struct vb_hull_client *client, const struct vb_hull_request *request)
{
    struct vb_hull *hull = client->hull;
    struct vb_hull_reply reply = {.op = request->op, .serial = request->serial};
    int fds[VB_HULL_FDS];

    if (request->op != VB_HULL_HELLO)
        vb_hull_refuse(&reply, -EPROTO, "the first message must be a greeting");
    if (reply.error || !judge_hello(client, &request->hello, &reply)) {
        vb_contract_send(client->socket, &reply, sizeof reply, MSG_DONTWAIT, NULL, 0);
        return -EPROTO;
    }
    int err = furnish(client, fds);
    if (err) {
        vb_hull_refuse(&reply, err, "the hull cannot take more applications: %s", strerror(-err));
        vb_contract_send(client->socket, &reply, sizeof reply, MSG_DONTWAIT, NULL, 0);
        return err;
    }
    reply.welcome = (struct vb_hull_welcome){.version = VB_HULL_VERSION,
                                             .page_bytes = sizeof(struct vb_hull_page),
                                             .features = VB_HULL_FEATURES,
                                             .units = hull->units,
                                             .epoch = hull->epoch};
    vb_nic_gid(hull->nic, reply.welcome.gid);
    err = vb_contract_send(client->socket, &reply, sizeof reply, MSG_DONTWAIT, fds, VB_HULL_FDS);
    close(fds[0]);
    close(fds[1]);
    client->greeted = !err;
    // Whether it is one more is known when it has named its service.
    client->unnamed = request->hello.features & VB_HULL_SERVICES;
    return err;
}

// ---- requests

// 0, or why the connection ends: an application that does not take its replies is not served.
static int serve(struct vb_hull_client *client, const struct vb_hull_request *request, int fd)
{
    struct vb_hull_reply reply = {.op = request->op, .serial = request->serial};
    bool close_it = false;
    int give = -1;

    if (!client->greeted)
        return greet(client, request);
    if (request->op == VB_HULL_KICK) {
        vb_hull_activate(client, request->value ? request->value : UINT32_MAX);
        return 0;
    }
    if (request->op == VB_HULL_SERVICE)
        return vb_hull_service(client, request);
    if (client->unnamed)
        vb_hull_refuse(&reply, -EPROTO, "the greeting spoke of a service: name it first");
    else
        vb_hull_execute(client, request, &reply, fd, &give, &close_it);
    client->tenant->refused += reply.error != 0;
    bool gives = give >= 0 && !reply.error;
    int err =
        vb_contract_send(client->socket, &reply, sizeof reply, MSG_DONTWAIT, &give, gives ? 1 : 0);
    if (give >= 0 && close_it)
        close(give);
    return err;
}

// False: no more for now, or `gone`.
static bool hear_one(struct vb_hull_client *client)
{
    struct vb_hull_request request;
    int fds[VB_HULL_FDS];
    int bytes = vb_contract_receive(client->socket, &request, sizeof request, MSG_DONTWAIT, fds);

    if (bytes == -EAGAIN)
        return false;
    client->gone = bytes != sizeof request || serve(client, &request, fds[0]) != 0;
    vb_contract_close(fds);
    return !client->gone;
}

void vb_hull_hear(struct vb_hull_client *client)
{
    for (uint32_t i = 0; i < HEAR_MAX && client->socket >= 0; i++)
        if (!vb_hull_allows(client->hull->turns, &client->tenant->heard, HEAR_TENANT) ||
            !hear_one(client))
            break;
}

// ---- events

static void tell_completion(struct vb_hull_object *cq)
{
    struct vb_hull_page *page = cq->client->page;
    uint64_t bit = UINT64_C(1) << cq->number % 64;
    _Atomic uint64_t *word = &page->due[cq->number % VB_HULL_CQS / 64];

    if (!cq->channel || atomic_fetch_or_explicit(word, bit, memory_order_acq_rel) & bit)
        return;
    (void)!send(cq->channel->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static struct vb_hull_object *find_srq(struct vb_hull *hull, uint32_t number)
{
    struct vb_hull_object *o = NULL;

    for (struct vb_link *l = hull->clients.head.next; !o && l != &hull->clients.head; l = l->next)
        o = vb_hull_object_find(VB_CONTAINER_OF(l, struct vb_hull_client, link), VB_HULL_SRQ,
                                number);
    return o;
}

bool vb_hull_event(struct vb_hull *hull, const struct vb_event *e)
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
    bool of_cq = e->kind == VB_EVENT_CQ_COMPLETION || e->kind == VB_EVENT_CQ_ERR;
    struct vb_hull_object *o = of_cq ? hull->cq[e->number & (VB_HULL_CQS - 1)]
                               : e->kind == VB_EVENT_SRQ_LIMIT
                                   ? find_srq(hull, e->number)
                                   : hull->qp[e->number & (VB_DOORBELL_QPS - 1)];

    if (!o || o->number != e->number)
        return true; // it is gone
    if (e->kind == VB_EVENT_CQ_COMPLETION) {
        tell_completion(o);
        return true;
    }
    const struct vb_hull_event event = {kinds[e->kind], e->number};
    if (o->client->events >= 0)
        vb_contract_send(o->client->events, &event, sizeof event, MSG_DONTWAIT, NULL, 0);
    if (e->kind == VB_EVENT_COMM_EST)
        vb_hull_manager_hears(o->client, &event);
    return true;
}
