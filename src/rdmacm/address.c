// SPDX-License-Identifier: Apache-2.0
// Where an id is and where it leads: binding, resolving, listening.
#include "rdmacm/rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

enum {
    BACKLOG_MAX = 1024,
};

int vb_rdmacm_be_on(const struct vb_ip *ip)
{
    return vb_rdmacm_calls()->take_address(vb_rdmacm_open(), ip->b);
}

// ---- binding; these need the lock and return a negative errno

static int bind_to(struct vb_rdmacm_id *i, const struct vb_rdmacm_name *name)
{
    struct ibv_context *context = vb_rdmacm_open();

    if (!context)
        return -errno;
    bool any = vb_rdmacm_is_any(&name->ip);
    int err = any ? 0 : vb_rdmacm_be_on(&name->ip);
    if (err)
        return err;
    i->from = *name;
    err = vb_rdmacm_take_port(i, name->port);
    if (err)
        return err;
    if (!any)
        vb_rdmacm_bind_device(i, context);
    vb_rdmacm_put_name(&i->from, &i->id.route.addr.src_storage);
    i->state = VB_RDMACM_BOUND;
    return 0;
}

VB_RAW_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);
    struct vb_rdmacm_name name;

    if (vb_rdmacm_refuse_foreign(i, "rdma_bind_addr"))
        return -1;
    if (!vb_rdmacm_get_name(address, &name))
        return vb_rdmacm_fail(address ? EAFNOSUPPORT : EINVAL, "rdma_bind_addr",
                              "an address is IPv4 or IPv6");
    vb_rdmacm_lock();
    int err = i->state == VB_RDMACM_IDLE ? bind_to(i, &name) : -EINVAL;
    vb_rdmacm_unlock();
    if (!err)
        return 0;
    return vb_rdmacm_fail(-err, "rdma_bind_addr",
                          err == -EADDRINUSE      ? "the port is another's"
                          : err == -EADDRNOTAVAIL ? "the address is not this machine's, or taken"
                                                  : "it is bound already, or there is no device");
}

// ---- listening

// Who listens everywhere is to be reached everywhere.
static void be_everywhere(bool ipv4_only, bool ipv6_only)
{
    struct ifaddrs *all = NULL;
    struct vb_rdmacm_name name;

    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        if (!(a->ifa_flags & IFF_UP) || !vb_rdmacm_get_name(a->ifa_addr, &name))
            continue;
        bool v4 = vb_ip_is_v4(&name.ip), link_local = name.ip.b[0] == 0xfe && name.ip.b[1] == 0x80;
        if (link_local || (v4 ? ipv6_only : ipv4_only))
            continue;
        vb_rdmacm_be_on(&name.ip);
    }
    freeifaddrs(all);
}

static int start_listening(struct vb_rdmacm_id *i, int backlog)
{
    const struct vb_rdmacm_name nowhere = {.ip = {{[10] = 0xff, [11] = 0xff}}};
    int err = i->state == VB_RDMACM_IDLE ? bind_to(i, &nowhere) : 0;

    if (err)
        return err;
    if (i->state != VB_RDMACM_BOUND)
        return -EINVAL;
    i->backlog = backlog > 0 && backlog < BACKLOG_MAX ? (uint32_t)backlog : BACKLOG_MAX;
    if (vb_rdmacm_is_any(&i->from.ip))
        be_everywhere(vb_ip_is_v4(&i->from.ip), i->v6_only);
    return vb_rdmacm_start_listening(i);
}

static void say(const struct vb_rdmacm_id *i)
{
    char address[INET6_ADDRSTRLEN] = "", line[INET6_ADDRSTRLEN + 64];
    bool v4 = vb_ip_is_v4(&i->from.ip);

    inet_ntop(v4 ? AF_INET : AF_INET6, i->from.ip.b + (v4 ? 12 : 0), address, sizeof address);
    snprintf(line, sizeof line, "rdma_listen: %s port %u of space 0x%04x", address, i->from.port,
             i->id.ps);
    vb_rdmacm_calls()->say(line);
}

VB_RAW_EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (vb_rdmacm_refuse_foreign(i, "rdma_listen"))
        return -1;
    vb_rdmacm_lock();
    int err = start_listening(i, backlog);
    if (!err)
        say(i);
    vb_rdmacm_unlock();
    return err ? vb_rdmacm_fail(-err, "rdma_listen",
                                err == -EADDRINUSE ? "another listens there"
                                                   : "it is not bound, or in a connection")
               : 0;
}

// ---- resolving

static bool is_loopback(const struct vb_ip *ip)
{
    static const struct vb_ip v6_loopback = {{[15] = 1}};
    return vb_ip_is_v4(ip) ? ip->b[12] == 127 : vb_ip_equal(ip, &v6_loopback);
}

// Between loopback addresses the NIC's own will do. Where it has to be on another, it goes there.
static int find_source(const struct vb_rdmacm_name *to, struct vb_ip *from)
{
    struct vb_ip own;

    vb_rdmacm_calls()->own_address(vb_rdmacm_open(), own.b);
    bool same = vb_ip_is_v4(&own) == vb_ip_is_v4(&to->ip);
    if (same && is_loopback(&own) && is_loopback(&to->ip)) {
        *from = own;
        return 0;
    }
    int err = vb_rdmacm_route(to, from);
    return err ? err : vb_rdmacm_be_on(from);
}

static int resolve(struct vb_rdmacm_id *i, const struct vb_rdmacm_name *to)
{
    struct vb_ip from = i->from.ip;

    i->to = *to;
    int err = vb_rdmacm_is_any(&from) ? find_source(to, &from) : 0;
    if (err)
        return err;
    if (vb_rdmacm_is_any(&to->ip))
        i->to.ip = from;
    i->from.ip = from;
    vb_rdmacm_bind_device(i, vb_rdmacm_open());
    vb_rdmacm_put_name(&i->from, &i->id.route.addr.src_storage);
    vb_rdmacm_put_name(&i->to, &i->id.route.addr.dst_storage);
    struct rdma_ib_addr *gids = &i->id.route.addr.addr.ibaddr;
    memcpy(gids->sgid.raw, i->from.ip.b, 16);
    memcpy(gids->dgid.raw, i->to.ip.b, 16);
    gids->pkey = htons(VB_CM_PKEY);
    i->state = VB_RDMACM_ADDR_RESOLVED;
    return 0;
}

// Binds first, if it is not; what is then found out is told by an event.
static int begin(struct vb_rdmacm_id *i, const struct sockaddr *source,
                 const struct vb_rdmacm_name *to)
{
    struct vb_rdmacm_name from = {.ip = {{0}}};

    if (i->state == VB_RDMACM_IDLE) {
        if (source && !vb_rdmacm_get_name(source, &from))
            return -EAFNOSUPPORT;
        if (!source && vb_ip_is_v4(&to->ip))
            from.ip.b[10] = from.ip.b[11] = 0xff;
        int err = bind_to(i, &from);
        if (err)
            return err;
    }
    if (i->state != VB_RDMACM_BOUND ||
        (!vb_rdmacm_is_any(&i->from.ip) && vb_ip_is_v4(&i->from.ip) != vb_ip_is_v4(&to->ip)))
        return -EINVAL;
    int err = resolve(i, to);
    vb_rdmacm_tell(i, err ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, err);
    return 0;
}

VB_RAW_EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
                                    struct sockaddr *target, int timeout_ms)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);
    struct vb_rdmacm_name to;

    (void)timeout_ms; // the kernel's tables answer at once
    if (vb_rdmacm_refuse_foreign(i, "rdma_resolve_addr"))
        return -1;
    if (!vb_rdmacm_get_name(target, &to))
        return vb_rdmacm_fail(target ? EAFNOSUPPORT : EINVAL, "rdma_resolve_addr",
                              "an address is IPv4 or IPv6");
    vb_rdmacm_lock();
    int err = begin(i, source, &to);
    vb_rdmacm_unlock();
    if (err)
        return vb_rdmacm_fail(-err, "rdma_resolve_addr",
                              err == -EINVAL ? "it is resolved already, or bound to another family"
                                             : "the source address cannot be had");
    return vb_rdmacm_complete(i, "rdma_resolve_addr");
}
