// SPDX-License-Identifier: Apache-2.0
// Attributes of paths on the packets: traffic class, hop limit and flow label in the IP header, and
// the service level as the socket's priority (SO_PRIORITY), which queueing disciplines and the
// priority bits of a VLAN follow.
//
// The socket itself has one set of attributes. Packets of a path with that set are sent as they
// are; others bring theirs as control messages, which cost the system a little for each message but
// no further call. The socket's set changes when many messages in a row have had another, so a
// program whose paths are all alike pays nothing in the long run. A service level has no control
// message before Linux 6.14: there the socket's set changes at once.
#include "port/udp_state.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <string.h>

enum {
    SETTLE_AFTER = 32, // messages in a row after which the socket gets their attributes
    HOPS_MULTICAST = 1,
};

// While congestion is marked, the two bits of ECN say that packets can be.
static int class_of(const struct udp *u, const struct vb_path_attr *a)
{
    return u->ecn ? (a->traffic_class & ~IPTOS_ECN_MASK) | IPTOS_ECN_ECT0 : a->traffic_class;
}

// As the system derives it from the type of service of an IPv4 socket, unless there is a level.
static int priority_of(const struct udp *u, const struct vb_path_attr *a)
{
    static const uint8_t by_service[4] = {0, 2, 6, 4};

    return a->sl || u->ipv6 ? a->sl : by_service[class_of(u, a) >> 3 & 3];
}

// ---- the socket's own

static bool set(const struct udp *u, int level, int option, int value)
{
    return setsockopt(u->fd, level, option, &value, sizeof value) == 0;
}

static bool set_hops(const struct udp *u, uint8_t hops)
{
    int level = u->ipv6 ? IPPROTO_IPV6 : IPPROTO_IP;

    return set(u, level, u->ipv6 ? IPV6_UNICAST_HOPS : IP_TTL, hops ? hops : -1) &&
           set(u, level, u->ipv6 ? IPV6_MULTICAST_HOPS : IP_MULTICAST_TTL,
               hops ? hops : HOPS_MULTICAST);
}

// The class first: over IPv4 it changes the priority, too.
static bool settle(struct udp *u, const struct vb_path_attr *a)
{
    const struct vb_path_attr *now = &u->tx.attr;
    bool ok = true;

    if (a->traffic_class != now->traffic_class)
        ok = set(u, u->ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, u->ipv6 ? IPV6_TCLASS : IP_TOS,
                 class_of(u, a));
    if (a->hop_limit != now->hop_limit)
        ok = set_hops(u, a->hop_limit) && ok;
    ok = set(u, SOL_SOCKET, SO_PRIORITY, priority_of(u, a)) && ok;
    u->tx.attr = *a;
    u->tx.attr.flow_label = 0; // which sockets do not have
    return ok;
}

// Whether control messages cannot say it: over IPv4 a type of service has a priority of its own.
static bool must_settle(const struct udp *u, const struct vb_path_attr *a)
{
    const struct vb_path_attr *now = &u->tx.attr;

    return a->sl != now->sl || (a->sl && !u->ipv6 && a->traffic_class != now->traffic_class);
}

static bool has_come_often(struct udp_tx *tx, const struct vb_path_attr *a)
{
    if (!vb_path_attr_equal(a, &tx->other))
        tx->others = 0;
    tx->other = *a;
    return ++tx->others >= SETTLE_AFTER && a->flow_label == 0;
}

bool vb_udp_attr_turn(struct udp *u, const struct vb_path_attr *a, bool may_settle)
{
    bool must = must_settle(u, a);

    if (!may_settle)
        return !must;
    if (must || has_come_often(&u->tx, a)) {
        if (!settle(u, a))
            u->port.stats.tx_errors++;
        u->tx.others = 0;
    }
    return true;
}

// ---- a message's

static uint8_t *put(uint8_t *at, int level, int type, const void *value)
{
    struct cmsghdr *c = (void *)at;

    *c =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = level, .cmsg_type = type};
    memcpy(CMSG_DATA(c), value, sizeof(int));
    return at + CMSG_SPACE(sizeof(int));
}

// A control message cannot say "as usual": it would get what the socket has now.
static int hops_of(const struct udp *u, const struct vb_path *path)
{
    uint8_t usual = vb_ip_is_multicast(&path->remote) ? HOPS_MULTICAST : u->port.hop_limit;

    return path->attr.hop_limit ? path->attr.hop_limit : usual;
}

uint32_t vb_udp_attr_put(const struct udp *u, uint8_t *at, const struct vb_path *path)
{
    const struct vb_path_attr *a = &path->attr, *now = &u->tx.attr;
    int level = u->ipv6 ? IPPROTO_IPV6 : IPPROTO_IP;
    uint8_t *end = at;

    if (a->traffic_class != now->traffic_class)
        end = put(end, level, u->ipv6 ? IPV6_TCLASS : IP_TOS, &(int){class_of(u, a)});
    if (a->hop_limit != now->hop_limit)
        end = put(end, level, u->ipv6 ? IPV6_HOPLIMIT : IP_TTL, &(int){hops_of(u, path)});
    if (u->ipv6 && a->flow_label)
        end = put(end, level, IPV6_FLOWINFO, &(uint32_t){htonl(a->flow_label)});
    return (uint32_t)(end - at);
}

void vb_udp_attr_init(struct udp *u)
{
    int hops = IPDEFTTL;
    socklen_t len = sizeof hops;

    (void)getsockopt(u->fd, u->ipv6 ? IPPROTO_IPV6 : IPPROTO_IP,
                     u->ipv6 ? IPV6_UNICAST_HOPS : IP_TTL, &hops, &len);
    u->port.hop_limit = (uint8_t)hops;
}
