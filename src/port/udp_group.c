// SPDX-License-Identifier: Apache-2.0
// Multicast through a socket for each group, bound to the group's address: one that is bound to an
// address of this machine hears nothing else, and what comes by a group's socket was sent to the
// group, as the ICRC wants to know. Several NICs of a machine may join one group.
#include "base/cancel.h"
#include "port/udp_state.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    DATAGRAMS = 16,
    SOURCES = 16, // power of two
    LEFT = 64,    // groups that were left and are kept
    ROOM_BYTES = (VB_FRAME_MAX + VB_ICRC_BYTES + 63) & ~63,
};

// Stays when it is left, since frames that it brought may point to its address. Of those there are
// so many, and then the oldest becomes another one.
struct udp_group {
    struct udp_group *next;
    struct vb_ip ip;
    unsigned interface;
    int fd;      // -1: left
    bool silent; // since the last receive, at least
    struct mmsghdr msg[DATAGRAMS];
    struct iovec iov[DATAGRAMS];
    union udp_address from[DATAGRAMS];
    union udp_control control[DATAGRAMS];
    struct udp_source source[SOURCES];
    uint8_t bytes[DATAGRAMS][ROOM_BYTES];
};

// ---- joining

static bool is_at(const struct ifaddrs *a, const struct vb_ip *ip)
{
    union udp_address at;
    if (!a->ifa_addr || (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
        return false;
    if (vb_ip_is_v4(ip) && ip->b[12] == 127) // it has all of them
        return a->ifa_flags & IFF_LOOPBACK;
    if (a->ifa_addr->sa_family == AF_INET)
        memcpy(&at.v4, a->ifa_addr, sizeof at.v4);
    else
        memcpy(&at.v6, a->ifa_addr, sizeof at.v6);
    struct vb_ip own = vb_udp_address_ip(&at);
    return vb_ip_equal(&own, ip);
}

// The interface of an address; 0: the system chooses.
static unsigned interface_of(const struct vb_ip *ip)
{
    struct ifaddrs *all;
    unsigned index = 0;

    if (getifaddrs(&all) < 0)
        return 0;
    for (const struct ifaddrs *a = all; a && !index; a = a->ifa_next)
        if (is_at(a, ip))
            index = if_nametoindex(a->ifa_name);
    freeifaddrs(all);
    return index;
}

// What is sent to groups leaves by the interface that our address is on.
void vb_udp_group_init(struct udp *u)
{
    if (u->ipv6) {
        unsigned index = interface_of(&u->port.local);
        (void)setsockopt(u->fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index);
    } else {
        struct in_addr local;
        memcpy(&local, u->port.local.b + 12, sizeof local);
        (void)setsockopt(u->fd, IPPROTO_IP, IP_MULTICAST_IF, &local, sizeof local);
    }
}

static int join_v4(const struct udp *u, const struct vb_ip *ip, int fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(VB_ROCE_UDP_PORT)};
    struct ip_mreqn who = {0};
    int off = 0;

    memcpy(&at.sin_addr, ip->b + 12, 4);
    who.imr_multiaddr = at.sin_addr;
    memcpy(&who.imr_address, u->port.local.b + 12, 4);
    if (bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off) < 0 ||
        setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &who, sizeof who) < 0)
        return -errno;
    return 0;
}

static int join_v6(const struct vb_ip *ip, unsigned index, int fd)
{
    struct sockaddr_in6 at = {
        .sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_UDP_PORT), .sin6_scope_id = index};
    struct ipv6_mreq who = {.ipv6mr_interface = index};
    int on = 1;

    memcpy(&at.sin6_addr, ip->b, 16);
    who.ipv6mr_multiaddr = at.sin6_addr;
    if (setsockopt(fd, SOL_UDP, UDP_NO_CHECK6_RX, &on, sizeof on) < 0 ||
        bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 ||
        setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &who, sizeof who) < 0)
        return -errno;
    return 0;
}

int vb_udp_watch(struct udp *u, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (u->epoll < 0) {
        int all = epoll_create1(EPOLL_CLOEXEC);
        if (all < 0)
            return -errno;
        if (epoll_ctl(all, EPOLL_CTL_ADD, u->fd, &event) < 0) {
            int error = -errno;
            close(all);
            return error;
        }
        u->epoll = all;
    }
    return epoll_ctl(u->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int open_group(struct udp *u, const struct vb_ip *ip, unsigned interface)
{
    int on = 1;
    int fd = socket(u->ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int error = u->ipv6 ? join_v6(ip, interface, fd) : join_v4(u, ip, fd);
    if (error == 0)
        error = vb_udp_ask_headers(fd, u->ipv6);
    if (error == 0)
        error = vb_udp_watch(u, fd);
    if (error == 0)
        return fd;
    close(fd);
    return error;
}

static struct udp_group *find(const struct udp *u, const struct vb_ip *ip)
{
    struct udp_group *g = u->groups;
    while (g && !vb_ip_equal(&g->ip, ip))
        g = g->next;
    return g;
}

// One that was left and can become another. NULL: there are few, or its frames may still be here.
static struct udp_group *find_left(const struct udp *u)
{
    struct udp_group *oldest = NULL;
    uint32_t left = 0;

    for (struct udp_group *g = u->groups; g; g = g->next) {
        left += g->fd < 0;
        if (g->fd < 0 && g->silent)
            oldest = g;
    }
    return left < LEFT ? NULL : oldest;
}

static void prepare(struct udp_group *g, socklen_t address_bytes)
{
    for (unsigned i = 0; i < DATAGRAMS; i++) {
        g->iov[i] = (struct iovec){g->bytes[i], ROOM_BYTES};
        g->msg[i].msg_hdr = (struct msghdr){.msg_name = &g->from[i],
                                            .msg_namelen = address_bytes,
                                            .msg_iov = &g->iov[i],
                                            .msg_iovlen = 1,
                                            .msg_control = g->control[i].bytes,
                                            .msg_controllen = sizeof g->control[i].bytes};
    }
}

static int join_at(struct udp *u, const struct vb_ip *ip, unsigned interface)
{
    struct udp_group *g = find(u, ip);
    int fd = open_group(u, ip, interface);

    if (fd < 0)
        return fd;
    if (!g) {
        g = find_left(u);
        if (g)
            memset(g->source, 0, sizeof g->source);
    }
    if (!g) {
        g = calloc(1, sizeof *g);
        if (!g) {
            close(fd);
            return -ENOMEM;
        }
        g->next = u->groups;
        u->groups = g;
    }
    g->ip = *ip;
    g->interface = interface;
    g->fd = fd;
    prepare(g, u->address_bytes);
    return 0;
}

// ---- the port and its sides: a group is joined once at each interface that they are on

static struct udp *part_of(struct udp *u, uint32_t i)
{
    return i == 0 ? u : u->side[i - 1];
}

static bool hears(struct udp *u, const struct vb_ip *ip, unsigned interface)
{
    for (uint32_t i = 0; i <= u->sides; i++) {
        const struct udp_group *g = find(part_of(u, i), ip);
        if (g && g->fd >= 0 && g->interface == interface)
            return true;
    }
    return false;
}

// 1: it is of the other family, or hears it by another part.
static int join_by(struct udp *u, struct udp *part, const struct vb_ip *ip)
{
    unsigned interface = interface_of(&part->port.local);
    if (vb_ip_is_v4(ip) == part->ipv6 || hears(u, ip, interface))
        return 1;
    return join_at(part, ip, interface);
}

// One of them is enough: others may be on interfaces that have no groups.
int vb_udp_group_join(struct vb_port *port, const struct vb_ip *ip)
{
    struct udp *u = (struct udp *)port;
    int error = -EAFNOSUPPORT;
    bool joined = false;

    for (uint32_t i = 0; i <= u->sides; i++) {
        int result = join_by(u, part_of(u, i), ip);
        joined = joined || result == 0;
        if (result < 0)
            error = result;
    }
    return joined ? 0 : error;
}

void vb_udp_group_follow(struct udp *u, struct udp *side)
{
    for (uint32_t i = 0; i <= u->sides; i++)
        for (const struct udp_group *g = part_of(u, i)->groups; g; g = g->next)
            if (g->fd >= 0)
                (void)join_by(u, side, &g->ip);
}

void vb_udp_group_leave(struct vb_port *port, const struct vb_ip *ip)
{
    struct udp *u = (struct udp *)port;

    for (uint32_t i = 0; i <= u->sides; i++) {
        struct udp_group *g = find(part_of(u, i), ip);
        if (!g || g->fd < 0)
            continue;
        close(g->fd); // which ends watching it and the membership, too
        g->fd = -1;
        g->silent = false;
    }
}

void vb_udp_group_fini(struct udp *u)
{
    for (struct udp_group *g; (g = u->groups) != NULL;) {
        u->groups = g->next;
        if (g->fd >= 0)
            close(g->fd);
        free(g);
    }
    if (u->epoll >= 0)
        close(u->epoll);
}

// ---- receiving

static struct udp_source *source_of(const struct udp *u, struct udp_group *g,
                                    const union udp_address *from)
{
    struct vb_ip ip = vb_udp_address_ip(from);
    uint16_t port = ntohs(u->ipv6 ? from->v6.sin6_port : from->v4.sin_port);
    struct udp_source *s = &g->source[(ip.b[15] ^ ip.b[14] ^ port) & (SOURCES - 1)];

    if (s->port != port || !vb_ip_equal(&s->ip, &ip))
        vb_udp_meet(u, s, &ip, port, &g->ip);
    return s;
}

// What comes to a group is for its members; a queue pair's own number has no place there.
static bool is_for_members(const uint8_t *bth)
{
    return bth[5] == 0xff && bth[6] == 0xff && bth[7] == 0xff;
}

static uint32_t receive(struct udp *u, struct udp_group *g, struct vb_rx_frame *frames,
                        uint32_t room)
{
    int before = vb_cancel_hold();
    int count = recvmmsg(g->fd, g->msg, room < DATAGRAMS ? room : DATAGRAMS, 0, NULL);
    uint32_t made = 0;

    vb_cancel_allow(before);
    for (int i = 0; i < count; i++) {
        struct msghdr *h = &g->msg[i].msg_hdr;
        uint32_t len = g->msg[i].msg_len;
        uint64_t ip_word = vb_udp_read_header(u, h);
        h->msg_namelen = u->address_bytes; // ready for the next receive
        h->msg_controllen = sizeof g->control[i].bytes;
        if (len < VB_ICRC_FRAME_MIN || len > VB_FRAME_MAX || (h->msg_flags & MSG_TRUNC)) {
            u->port.stats.rx_bad_icrc++;
            continue;
        }
        struct udp_source *s = source_of(u, g, &g->from[i]);
        if (vb_udp_check(u, s, 0, g->bytes[i], len) && is_for_members(g->bytes[i]))
            frames[made++] = (struct vb_rx_frame){.data = g->bytes[i],
                                                  .head = g->bytes[i],
                                                  .len = len,
                                                  .src = s->ip,
                                                  .ip_word = ip_word,
                                                  .to = &g->ip};
    }
    return made;
}

uint32_t vb_udp_group_receive(struct udp *u, struct vb_rx_frame *frames, uint32_t room)
{
    uint32_t made = 0;

    for (struct udp_group *g = u->groups; g && made < room; g = g->next) {
        g->silent = g->fd < 0;
        if (g->fd >= 0)
            made += receive(u, g, frames + made, room - made);
    }
    return made;
}
