// SPDX-License-Identifier: Apache-2.0
// What an application asks the device for. A request is a copy; what it names is looked up among
// the application's own, what it wants is judged, and then the device is called.
#include "hull/hull.h"

#include "hull/command.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    NAME_TRIES = 64, // numbers that are looked at for one that is free
};

// ---- what all need

struct vb_hull_object *vb_hull_find(struct vb_hull_command *c, enum vb_hull_kind kind,
                                    uint32_t number)
{
    struct vb_hull_object *o = vb_hull_object_find(c->client, kind, number);

    if (!o)
        vb_hull_refuse(c->reply, -ENOENT, "there is no %s %u", vb_hull_kind_text(kind), number);
    return o;
}

bool vb_hull_judge(struct vb_hull_command *c, int error, const char *what)
{
    if (error)
        vb_hull_refuse(c->reply, error, "the device refuses %s: %s", what, strerror(-error));
    return !error;
}

// Enters an object that the device has made. NULL: it cannot be kept.
static struct vb_hull_object *enter(struct vb_hull_command *c, enum vb_hull_kind kind,
                                    uint32_t number)
{
    struct vb_hull_object *o = vb_hull_object_add(c->client, kind, number);

    if (!o)
        vb_hull_refuse(c->reply, -ENOMEM, "the hull is out of memory");
    else
        c->reply->number = number;
    return o;
}

// ---- domains and memory

static bool charge_region(struct vb_hull_command *c)
{
    struct vb_hull_tenant *t = c->client->tenant;
    return vb_hull_charge(t, &t->used.regions, t->quota.regions, 1, "regions, windows and domains",
                          c->reply);
}

static void pd_create(struct vb_hull_command *c)
{
    uint32_t pd;

    if (!charge_region(c))
        return;
    if (vb_hull_judge(c, vb_dev_pd_create(c->dev, &pd), "a domain")) {
        if (enter(c, VB_HULL_PD, pd))
            return;
        vb_dev_pd_destroy(c->dev, pd);
    }
    c->client->tenant->used.regions--;
}

bool vb_hull_is_service(struct vb_hull_command *c, const char *what)
{
    if (c->client->service[0])
        vb_hull_refuse(c->reply, -EOPNOTSUPP, "a service has no %s: it would not outlive a process",
                       what);
    return c->client->service[0];
}

static bool is_domain(const struct vb_hull *hull, uint32_t number)
{
    for (struct vb_link *l = hull->clients.head.next; l != &hull->clients.head; l = l->next)
        if (vb_hull_object_find(VB_CONTAINER_OF(l, struct vb_hull_client, link), VB_HULL_XRCD,
                                number))
            return true;
    return false;
}

// Numbers are the NIC's, and no two have the same at a time: who has one can name no other's queues
// by it. They begin anew when all were given, and who finds many in use then has to ask again.
static bool name_domain(struct vb_hull_command *c, uint32_t *number)
{
    struct vb_hull *hull = c->client->hull;

    for (uint32_t tries = 0; tries < NAME_TRIES; tries++) {
        *number = ++hull->xrcds;
        if (*number && !is_domain(hull, *number))
            return true;
    }
    vb_hull_refuse(c->reply, -EAGAIN, "many domains of XRC are in use: ask again");
    return false;
}

static void xrcd_create(struct vb_hull_command *c)
{
    uint32_t number;

    if (vb_hull_is_service(c, "domains of XRC") || !charge_region(c))
        return;
    if (!name_domain(c, &number) || !enter(c, VB_HULL_XRCD, number))
        c->client->tenant->used.regions--;
}

static void *find_region(struct vb_hull_command *c, const struct vb_hull_key *k,
                         struct vb_hull_hold **hold)
{
    // Nothing is at the end of the memory, too.
    if (k->access & ~(uint32_t)VB_REMOTE_READ)
        return vb_hull_memory_find(c->client, &k->at, k->len, 1, hold, c->reply);
    return vb_hull_memory_find_readable(c->client, &k->at, k->len, 1, hold, c->reply);
}

static bool read_copied(struct vb_hull_command *c, const struct vb_hull_key *k,
                        struct vb_mkey_attr *attr)
{
    if (!c->client->process)
        vb_hull_refuse(c->reply, -EPERM, "this application's memory is not copied");
    else if (k->at.offset > INT64_MAX || k->len > INT64_MAX - k->at.offset)
        vb_hull_refuse(c->reply, -EFAULT, "there is no such memory");
    attr->base = (void *)(uintptr_t)k->at.offset; // there, not here
    attr->source = (uintptr_t)c->client->process;
    return !c->reply->error;
}

static bool read_key(struct vb_hull_command *c, const struct vb_hull_key *k,
                     struct vb_mkey_attr *attr, struct vb_hull_hold **hold)
{
    if (!vb_hull_find(c, VB_HULL_PD, k->pd))
        return false;
    if (k->kind > VB_MKEY_COPIED || k->kind == VB_MKEY_GUARDED ||
        k->access & ~(uint32_t)VB_ACCESS_ALL) {
        vb_hull_refuse(c->reply, -EINVAL, "no such kind of memory, or rights");
        return false;
    }
    *attr = (struct vb_mkey_attr){.pd = k->pd,
                                  .kind = (enum vb_mkey_kind)k->kind,
                                  .access = k->access,
                                  .start = k->start,
                                  .len = k->len};
    if (k->kind == VB_MKEY_COPIED)
        return read_copied(c, k, attr);
    if (k->kind == VB_MKEY_REGION)
        attr->base = find_region(c, k, hold);
    return k->kind != VB_MKEY_REGION || attr->base;
}

static void key_create(struct vb_hull_command *c)
{
    const struct vb_hull_key *k = &c->request->key;
    struct vb_hull_hold *hold[3] = {NULL};
    struct vb_mkey_attr attr;
    uint32_t key;
    bool window = k->kind == VB_MKEY_WINDOW1 || k->kind == VB_MKEY_WINDOW2;

    if (!read_key(c, k, &attr, &hold[0]) || vb_hull_faults_key(c) || !charge_region(c))
        return;
    if (vb_hull_judge(c, vb_dev_mkey_create(c->dev, &attr, &key), "this memory")) {
        // A window's key changes with each binding, but not above its lowest byte.
        struct vb_hull_object *o = enter(c, window ? VB_HULL_WINDOW : VB_HULL_REGION,
                                         window ? key & ~UINT32_C(0xff) : key);
        if (o) {
            vb_hull_object_hold(o, hold);
            if (o->made)
                o->made->value = key; // of a window it is more than the number
            o->process = vb_hull_copy_use(c->client, attr.kind);
            c->reply->number = key;
            return;
        }
        vb_dev_mkey_destroy(c->dev, key);
    }
    c->client->tenant->used.regions--;
}

static void key_change(struct vb_hull_command *c)
{
    struct vb_hull_object *o = vb_hull_find(c, VB_HULL_REGION, c->request->number);
    const struct vb_hull_key *k = &c->request->key;
    struct vb_hull_hold *hold[3] = {NULL};
    struct vb_mkey_attr attr;

    if (!o || !read_key(c, k, &attr, &hold[0]))
        return;
    if (k->kind != VB_MKEY_REGION && k->kind != VB_MKEY_COPIED) {
        vb_hull_refuse(c->reply, -EINVAL, "a region stays one");
        return;
    }
    if (!vb_hull_judge(c, vb_dev_mkey_change(c->dev, o->number, &attr), "this change"))
        return;
    if (o->hold[0])
        o->hold[0]->users--;
    vb_hull_object_hold(o, hold);
    if (o->made)
        o->made->key = *k;
    struct vb_hull_process *before = o->process;
    o->process = vb_hull_copy_use(c->client, attr.kind);
    vb_hull_copy_end(c->client->hull, before);
}

// As a queue pair of the domain would find the memory; what has no place in the application is not
// told of.
static void key_find(struct vb_hull_command *c)
{
    const struct vb_hull_find *f = &c->request->find;
    struct vb_hull_place place;
    uint8_t *at = NULL;

    if (!vb_hull_find(c, VB_HULL_PD, f->pd))
        return;
    enum vb_mem_refusal r =
        vb_dev_mkey_judge(c->dev, (struct vb_accessor){.pd = f->pd}, f->key, f->start, f->len,
                          (enum vb_access)(f->access & VB_ACCESS_ALL), &at);
    // Another's key does not exist for it.
    if (r == VB_MEM_DOMAIN && !vb_hull_object_find(c->client, VB_HULL_REGION, f->key) &&
        !vb_hull_object_find(c->client, VB_HULL_WINDOW, f->key & ~UINT32_C(0xff)))
        r = VB_MEM_NO_KEY;
    if (r == VB_MEM_COPIED)
        c->reply->place = (struct vb_hull_place){.offset = (uintptr_t)at};
    else if (r != VB_MEM_OK)
        vb_hull_refuse(c->reply, vb_host_refusal(r), "key 0x%08x does not reach there", f->key);
    else if (!vb_hull_memory_locate(c->client, at, f->len, &place))
        vb_hull_refuse(c->reply, -EFAULT, "key 0x%08x is of no memory that is shared", f->key);
    else
        c->reply->place = place;
}

// ---- channels

static bool charge_channel(struct vb_hull_command *c)
{
    struct vb_hull_tenant *t = c->client->tenant;

    if (!vb_hull_charge(t, &t->used.queues, t->quota.queues, 1, "queues and channels", c->reply))
        return false;
    if (vb_hull_descriptors_take(c->client->hull, t, 1, c->reply))
        return true;
    t->used.queues--;
    return false;
}

static void discharge_channel(struct vb_hull_command *c)
{
    c->client->tenant->used.queues--;
    vb_hull_descriptors_give_back(c->client->hull, c->client->tenant, 1);
}

static void channel_create(struct vb_hull_command *c)
{
    int pair[2];

    if (!charge_channel(c))
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        vb_hull_refuse(c->reply, -errno, "the hull is out of descriptors");
        discharge_channel(c);
        return;
    }
    struct vb_hull_object *o = enter(c, VB_HULL_CHANNEL, ++c->client->channels_made);
    if (!o) {
        discharge_channel(c);
        close(pair[0]);
        close(pair[1]);
        return;
    }
    shutdown(pair[0], SHUT_RD); // as of events
    o->fd = pair[0];
    *c->give = pair[1];
    *c->close_it = true;
}

// ---- destroying

int vb_hull_destroy(struct vb_hull_object *o)
{
    struct vb_hull *hull = o->client->hull;
    struct vb_dev *dev = hull->nic->dev;
    struct vb_hull_quota *used = &o->client->tenant->used;
    int err = 0;

    if (o->kind == VB_HULL_QP) {
        vb_metrics_charge(o);
        vb_hull_leave_groups(o);
        vb_hull_manager_ends(o);
    }
    switch (o->kind) {
    case VB_HULL_PORT: vb_hull_port_end(o); break;
    case VB_HULL_SEAT: vb_hull_seat_end(o); break;
    case VB_HULL_QP: err = vb_dev_qp_destroy(dev, o->number); break;
    case VB_HULL_SRQ: err = vb_dev_srq_destroy(dev, o->number); break;
    case VB_HULL_PROGRAM: err = vb_dev_program_destroy(dev, o->number); break;
    case VB_HULL_CQ: err = vb_dev_cq_destroy(dev, o->number); break;
    case VB_HULL_WINDOW: err = vb_dev_window_destroy(dev, o->number); break;
    case VB_HULL_REGION: err = vb_dev_mkey_destroy(dev, o->number); break;
    case VB_HULL_PD: err = vb_dev_pd_destroy(dev, o->number); break;
    default: err = o->users ? -EBUSY : 0; break;
    }
    if (err)
        return err;
    if (o->kind == VB_HULL_QP || o->kind == VB_HULL_CQ)
        hull->unit[o->unit].load--;
    if (o->kind == VB_HULL_QP)
        hull->qp[o->number & (VB_DOORBELL_QPS - 1)] = NULL;
    if (o->kind == VB_HULL_CQ)
        hull->cq[o->number & (VB_HULL_CQS - 1)] = NULL;
    if (o->kind == VB_HULL_QP)
        used->queue_pairs--;
    else if (o->kind == VB_HULL_WINDOW || o->kind == VB_HULL_REGION || o->kind == VB_HULL_PD ||
             o->kind == VB_HULL_XRCD)
        used->regions--;
    else
        used->queues--;
    used->entries -= o->entries;
    vb_hull_copy_end(hull, o->process);
    if (o->kind == VB_HULL_CHANNEL)
        vb_hull_descriptors_give_back(hull, o->client->tenant, 1);
    if (o->fd >= 0)
        close(o->fd);
    vb_hull_object_remove(o);
    return 0;
}

static void destroy(struct vb_hull_command *c, enum vb_hull_kind kind, uint32_t number)
{
    struct vb_hull_object *o = vb_hull_find(c, kind, number);

    if (o)
        vb_hull_judge(c, vb_hull_destroy(o), "to destroy it");
}

// The newest first.
void vb_hull_destroy_all(struct vb_hull_client *client)
{
    for (int kind = 0; kind < VB_HULL_KINDS; kind++) {
        struct vb_fifo *list = &client->objects[kind];
        while (!vb_fifo_empty(list)) {
            struct vb_link *link = list->head.prev;
            int err = vb_hull_destroy(VB_CONTAINER_OF(link, struct vb_hull_object, link));
            assert(!err); // what uses it went before
            (void)err;
        }
    }
}

// ---- the device as a whole

// The same list for both: the application names the i-th.
static void counter(struct vb_hull_command *c)
{
    const char *name = vb_nic_counter_name(c->request->value);

    if (!name)
        vb_hull_refuse(c->reply, -ENOENT, "there is no counter %u", c->request->value);
    else
        c->wants_counter = name;
}

// It is the application's own socket: what it says there, it says to itself.
static void event_again(const struct vb_hull_command *c)
{
    const struct vb_hull_event event = {c->request->value, c->request->number};
    vb_contract_send(c->client->events, &event, sizeof event, MSG_DONTWAIT, NULL, 0);
}

static void give_clock(struct vb_hull_command *c)
{
    struct vb_hull_mapping *clock = &c->client->hull->clock;

    if (vb_hull_memory_hold(c->client, clock, c->reply) == 0)
        *c->give = clock->fd;
}

static void tell_address(struct vb_hull_command *c)
{
    struct vb_ip ip = c->client->hull->lane->port->local;

    if (c->request->number == 0 || vb_dev_address(c->dev, c->request->number, &ip))
        memcpy(c->reply->gid, ip.b, sizeof c->reply->gid);
    else
        vb_hull_refuse(c->reply, -ENOENT, "the NIC has no address %u", c->request->number);
}

static void dispatch(struct vb_hull_command *c, int fd)
{
    const struct vb_hull_request *r = c->request;

    switch (r->op) {
    case VB_HULL_MEMORY_CREATE:
        vb_hull_memory_create(c->client, &r->memory, c->reply, c->give, c->close_it);
        break;
    case VB_HULL_MEMORY_GIVE: vb_hull_memory_give(c->client, fd, c->reply); break;
    case VB_HULL_MEMORY_DROP: vb_hull_memory_drop(c->client, r->number, c->reply); break;
    case VB_HULL_PD_CREATE: pd_create(c); break;
    case VB_HULL_PD_DESTROY: destroy(c, VB_HULL_PD, r->number); break;
    case VB_HULL_KEY_CREATE: key_create(c); break;
    case VB_HULL_KEY_CHANGE: key_change(c); break;
    case VB_HULL_KEY_DESTROY: destroy(c, VB_HULL_REGION, r->number); break;
    case VB_HULL_WINDOW_DESTROY: destroy(c, VB_HULL_WINDOW, r->number & ~UINT32_C(0xff)); break;
    case VB_HULL_CHANNEL_CREATE: channel_create(c); break;
    case VB_HULL_CHANNEL_DESTROY: destroy(c, VB_HULL_CHANNEL, r->number); break;
    case VB_HULL_CQ_DESTROY: destroy(c, VB_HULL_CQ, r->number); break;
    case VB_HULL_SRQ_DESTROY: destroy(c, VB_HULL_SRQ, r->number); break;
    case VB_HULL_QP_DESTROY: destroy(c, VB_HULL_QP, r->number); break;
    case VB_HULL_COUNTER: counter(c); break;
    case VB_HULL_EVENT_AGAIN: event_again(c); break;
    case VB_HULL_PROGRAM_CREATE:
    case VB_HULL_PROGRAM_STOP:
    case VB_HULL_PROGRAM_QUERY: vb_hull_program_command(c); break;
    case VB_HULL_PROGRAM_DESTROY: destroy(c, VB_HULL_PROGRAM, r->number); break;
    case VB_HULL_QP_SHARE:
    case VB_HULL_CQ_SHARE: vb_hull_share_command(c); break;
    case VB_HULL_CLOCK: give_clock(c); break;
    case VB_HULL_SERVICE_RELEASE:
    case VB_HULL_SERVICE_NEXT:
    case VB_HULL_CHANNEL_OPEN: vb_hull_service_command(c); break;
    case VB_HULL_MEMORY_AT: vb_hull_memory_at(c->client, r->number, r->key.start, c->reply); break;
    case VB_HULL_MEMORY_OPEN: vb_hull_memory_open(c->client, r->number, c->reply, c->give); break;
    case VB_HULL_ACCOUNT: vb_hull_tell_account(c->client, &c->reply->account); break;
    case VB_HULL_XRCD_CREATE: xrcd_create(c); break;
    case VB_HULL_XRCD_DESTROY: destroy(c, VB_HULL_XRCD, r->number); break;
    case VB_HULL_KEY_FIND: key_find(c); break;
    case VB_HULL_COPY_BEGIN: vb_hull_copy_begin(c); break;
    case VB_HULL_FAULTS: vb_hull_faults_set(c); break;
    case VB_HULL_ADDRESS: tell_address(c); break;
    case VB_HULL_TRACE:
    case VB_HULL_TRACE_READ: vb_hull_trace_command(c); break;
    case VB_HULL_CQ_RESIZE:
    case VB_HULL_QP_JOIN:
    case VB_HULL_QP_LEAVE:
    case VB_HULL_QP_SPREAD: vb_hull_change_queue(c); break;
    case VB_HULL_SEAT_TAKE:
    case VB_HULL_PORT_TAKE:
    case VB_HULL_PORT_GIVE: vb_hull_manager_command(c); break;
    default: vb_hull_queue_command(c); break;
    }
}

void vb_hull_execute(struct vb_hull_client *client, const struct vb_hull_request *request,
                     struct vb_hull_reply *reply, int fd, int *give, bool *close_it)
{
    struct vb_nic *nic = client->hull->nic;
    struct vb_hull_command c = {.client = client,
                                .dev = nic->dev,
                                .request = request,
                                .reply = reply,
                                .give = give,
                                .close_it = close_it};

    client->request = request;
    vb_host_lock(nic);
    dispatch(&c, fd);
    vb_hull_units_told(client->hull);
    vb_host_unlock(nic);
    if (c.wants_counter)
        vb_nic_counter(nic, c.wants_counter, &reply->value);
}
