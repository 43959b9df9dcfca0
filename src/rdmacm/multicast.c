// SPDX-License-Identifier: Apache-2.0
// Multicast groups. There is nobody to ask: an IP address of a group is the group, and the port
// joins it in the kernel.
#include "rdmacm/rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MULTICAST_QPN = 0xffffff,
};

static bool is_same(const struct sockaddr_storage *a, const struct sockaddr *b)
{
    struct vb_rdmacm_name x, y;

    return vb_rdmacm_get_name((const struct sockaddr *)a, &x) && vb_rdmacm_get_name(b, &y) &&
           vb_ip_equal(&x.ip, &y.ip);
}

static void say(const struct vb_ip *ip)
{
    char group[INET6_ADDRSTRLEN] = "", line[INET6_ADDRSTRLEN + 32];
    bool v4 = vb_ip_is_v4(ip);

    inet_ntop(v4 ? AF_INET : AF_INET6, ip->b + (v4 ? 12 : 0), group, sizeof group);
    snprintf(line, sizeof line, "rdma_join_multicast: %s", group);
    vb_rdmacm_calls()->say(line);
}

// Needs the lock.
static int join(struct vb_rdmacm_id *i, const struct vb_rdmacm_name *name, void *context,
                bool sends_only)
{
    int index = vb_rdmacm_calls()->address_index(i->id.verbs, i->from.ip.b);
    struct vb_rdmacm_group *g = calloc(1, sizeof *g);
    struct vb_rdmacm_event *e = vb_rdmacm_event(i, RDMA_CM_EVENT_MULTICAST_JOIN, 0);

    if (!g || !e) {
        free(g);
        free(e);
        return -ENOMEM;
    }
    g->id = i;
    g->context = context;
    g->sends_only = sends_only;
    vb_rdmacm_put_name(name, &g->address);
    memcpy(g->gid.raw, name->ip.b, 16);
    vb_fifo_push(&i->groups, &g->link);
    e->group = g;
    e->event.param.ud = (struct rdma_ud_param){
        .private_data = context,
        .ah_attr = {.is_global = 1,
                    .port_num = VB_RDMACM_PORT,
                    .grh = {.dgid = g->gid,
                            .sgid_index = index > 0 ? (uint8_t)index : 0,
                            .hop_limit = 1,
                            .traffic_class = i->tos}},
        .qp_num = MULTICAST_QPN,
        .qkey = i->qkey,
    };
    vb_rdmacm_queue(e);
    return 0;
}

// The program takes the event: now its queue pair becomes a member.
void vb_rdmacm_joined(struct vb_rdmacm_event *e)
{
    struct vb_rdmacm_group *g = e->group;
    struct ibv_qp *qp = g->id->id.qp;

    if (!qp || g->sends_only)
        return;
    int error = ibv_attach_mcast(qp, &g->gid, 0);
    g->attached = !error;
    if (!error) {
        struct vb_ip ip;
        memcpy(ip.b, g->gid.raw, sizeof ip.b);
        say(&ip);
        return;
    }
    e->event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
    e->event.status = -error;
}

VB_RAW_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id,
                                         struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
    const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);
    struct vb_rdmacm_name name;

    if (vb_rdmacm_refuse_foreign(i, "rdma_join_multicast"))
        return -1;
    if ((attr->comp_mask & needed) != needed || attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
        return vb_rdmacm_fail(ENOSYS, "rdma_join_multicast", "an address and flags, no more");
    if (attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
        return vb_rdmacm_fail(EINVAL, "rdma_join_multicast", "no such way to be a member");
    if (!vb_rdmacm_get_name(attr->addr, &name) || !vb_rdmacm_is_multicast(&name.ip))
        return vb_rdmacm_fail(EINVAL, "rdma_join_multicast", "no address of a group");
    if (!vb_rdmacm_is_ud(i) || !id->verbs)
        return vb_rdmacm_fail(EINVAL, "rdma_join_multicast",
                              "only datagrams have groups, and the id must be on a device");
    vb_rdmacm_lock();
    int err = join(i, &name, context, attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
    vb_rdmacm_unlock();
    if (err)
        return vb_rdmacm_fail(-err, "rdma_join_multicast", "no memory");
    return vb_rdmacm_complete(i, "rdma_join_multicast");
}

VB_RAW_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *address,
                                      void *context)
{
    struct rdma_cm_join_mc_attr_ex attr = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
                                                        RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
                                           .join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
                                           .addr = address};
    return rdma_join_multicast_ex(id, &attr, context);
}

// ---- leaving

// Events that still wait name it no more. Needs the lock.
static void drop_events(const struct vb_rdmacm_group *g)
{
    struct vb_rdmacm_channel *c = (struct vb_rdmacm_channel *)(void *)g->id->id.channel;

    if (!c)
        return; // it went first, with all of them
    struct vb_link *l = c->events.head.next;
    while (l != &c->events.head) {
        struct vb_rdmacm_event *e = VB_CONTAINER_OF(l, struct vb_rdmacm_event, link);
        l = l->next;
        if (e->group == g) {
            vb_rdmacm_unqueue(e);
            free(e);
        }
    }
}

static void leave(struct vb_rdmacm_group *g)
{
    if (g->attached && g->id->id.qp)
        ibv_detach_mcast(g->id->id.qp, &g->gid, 0);
    vb_rdmacm_lock();
    drop_events(g);
    while (g->handed_out > 0)
        vb_rdmacm_wait();
    vb_link_remove(&g->link);
    vb_rdmacm_unlock();
    free(g);
}

VB_RAW_EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *address)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);
    struct vb_rdmacm_group *found = NULL;

    if (vb_rdmacm_refuse_foreign(i, "rdma_leave_multicast"))
        return -1;
    vb_rdmacm_lock();
    for (struct vb_link *l = i->groups.head.next; l != &i->groups.head && !found; l = l->next) {
        struct vb_rdmacm_group *g = VB_CONTAINER_OF(l, struct vb_rdmacm_group, link);
        if (is_same(&g->address, address))
            found = g;
    }
    vb_rdmacm_unlock();
    if (!found)
        return vb_rdmacm_fail(EADDRNOTAVAIL, "rdma_leave_multicast", "it is no member");
    // In synchronous mode the id holds the event that told of the group.
    if (i->sync && id->event && ((struct vb_rdmacm_event *)(void *)id->event)->group == found) {
        rdma_ack_cm_event(id->event);
        id->event = NULL;
    }
    leave(found);
    return 0;
}

void vb_rdmacm_leave_all(struct vb_rdmacm_id *i)
{
    struct vb_link *l;

    if (i->id.event && ((struct vb_rdmacm_event *)(void *)i->id.event)->group) {
        rdma_ack_cm_event(i->id.event);
        i->id.event = NULL;
    }
    while ((l = vb_fifo_first(&i->groups)) != NULL)
        leave(VB_CONTAINER_OF(l, struct vb_rdmacm_group, link));
}
