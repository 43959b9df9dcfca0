// SPDX-License-Identifier: Apache-2.0
// Room in a receiver's socket on this machine. Unreliable services have no acknowledgements, and
// the kernel drops in silence what a full socket cannot take: a sender that is faster than its
// receiver would lose most of a stream. On a wire the link itself would slow it down. Here the
// kernel's socket diagnostics say how full the receiver's socket is, so a sender waits for it as it
// would for a busy link: not for ever. Receivers elsewhere are unknown to this kernel, and nobody
// waits.
#include "port/clock.h"
#include "port/udp_state.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <unistd.h>

enum {
    FRAME_COST = 1024,              // what the kernel counts for a frame, at most,
    BYTE_COST = 2,                  // and for each of its bytes
    ELSEWHERE_BYTES = 64 * 1048576, // that leave before one looks again
    PATIENCE_NS = 200 * 1000 * 1000,
    REPLY_BYTES = 1024,
    ASK_TRIES = 64,   // source ports, for the one that finds a socket among several
    DRAINED_PART = 4, // the kernel gives room back when so much of it is free: less counts as empty
};

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

// What the kernel knows of a socket.
struct fill {
    uint32_t cookie;
    uint32_t used_bytes, buffer_bytes;
};

void vb_udp_room_init(struct udp_room *room)
{
    *room = (struct udp_room){.fd = -1};
}

void vb_udp_room_fini(struct udp_room *room)
{
    if (room->fd >= 0)
        close(room->fd);
    room->fd = -1;
}

static void copy_ip(const struct udp *u, __be32 to[4], const struct vb_ip *ip)
{
    if (u->ipv6)
        memcpy(to, ip->b, 16);
    else
        memcpy(to, ip->b + 12, 4);
}

// The socket that a frame of ours would find there, if it is the only one: of several the system
// does not look at the number of the queue pair, but at a hash of addresses and ports.
static struct question ask_about(const struct udp *u, const struct vb_ip *ip, uint16_t from)
{
    struct question q = {
        .head = {.nlmsg_len = sizeof q,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = u->ipv6 ? AF_INET6 : AF_INET,
                 .sdiag_protocol = IPPROTO_UDP,
                 .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
                 .idiag_states = UINT32_MAX,
                 .id = {.idiag_sport = htons(from),
                        .idiag_dport = htons(VB_ROCE_UDP_PORT),
                        .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
    copy_ip(u, q.body.id.idiag_src, &u->port.local);
    copy_ip(u, q.body.id.idiag_dst, ip);
    return q;
}

// The attribute of this type among `left` bytes; NULL: there is none.
static struct rtattr *find_attribute(struct rtattr *a, size_t left, unsigned short type)
{
    while (RTA_OK(a, left) && a->rta_type != type) {
        size_t step = RTA_ALIGN(a->rta_len);
        if (step >= left)
            return NULL;
        left -= step;
        a = (struct rtattr *)(void *)((uint8_t *)a + step);
    }
    return RTA_OK(a, left) ? a : NULL;
}

static bool read_reply(struct nlmsghdr *head, size_t bytes, struct fill *fill)
{
    uint32_t word[SK_MEMINFO_VARS] = {0};

    if (!NLMSG_OK(head, bytes) || head->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        head->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
        return false;
    struct inet_diag_msg *m = NLMSG_DATA(head);
    struct rtattr *a = find_attribute(
        (struct rtattr *)(m + 1), head->nlmsg_len - NLMSG_LENGTH(sizeof *m), INET_DIAG_SKMEMINFO);
    if (!a || RTA_PAYLOAD(a) <= SK_MEMINFO_RCVBUF * sizeof *word)
        return false;
    memcpy(word, RTA_DATA(a), RTA_PAYLOAD(a) < sizeof word ? RTA_PAYLOAD(a) : sizeof word);
    *fill =
        (struct fill){m->id.idiag_cookie[0], word[SK_MEMINFO_RMEM_ALLOC], word[SK_MEMINFO_RCVBUF]};
    return true;
}

static bool ask(struct udp *u, const struct vb_ip *ip, uint16_t from, struct fill *fill)
{
    union {
        struct nlmsghdr head;
        uint8_t bytes[REPLY_BYTES];
    } reply;
    struct udp_room *room = &u->room;

    if (room->fd == -1)
        room->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    if (room->fd < 0) {
        room->fd = UDP_ROOM_UNKNOWN;
        return false;
    }
    struct question q = ask_about(u, ip, from);
    q.head.nlmsg_seq = ++room->asked;
    if (send(room->fd, &q, sizeof q, 0) != (ssize_t)sizeof q)
        return false;
    ssize_t got;
    do // what an earlier question left behind is nobody's answer
        got = recv(room->fd, &reply, sizeof reply, 0);
    while (got >= (ssize_t)sizeof reply.head && reply.head.nlmsg_seq != room->asked);
    return got > 0 && read_reply(&reply.head, (size_t)got, fill);
}

// False: no such socket on this machine, or the kernel does not say, or not of this one.
static bool look(struct udp *u, struct udp_known *k, struct fill *fill)
{
    const uint16_t usual = VB_ROCE_UDP_PORT;

    for (uint16_t i = 0; i < ASK_TRIES; i++) {
        uint16_t from = i == 0 && k->ask_from ? k->ask_from : usual + i;
        if (!ask(u, &k->ip, from, fill))
            return false;
        if (k->cookie == 0 || fill->cookie == k->cookie) {
            k->ask_from = from;
            return true;
        }
    }
    k->ask_from = 0;
    return false;
}

static struct udp_known *find(struct udp_room *room, const struct vb_ip *ip, uint32_t cookie)
{
    uint32_t word[4];
    memcpy(word, ip->b, sizeof word);
    uint32_t hash = (word[0] ^ word[1] ^ word[2] ^ word[3] ^ cookie) * 0x9e3779b1u;
    struct udp_known *k = &room->known[hash >> 24 & (UDP_KNOWN - 1)];
    if (!vb_ip_equal(&k->ip, ip) || k->cookie != cookie)
        *k = (struct udp_known){.ip = *ip, .cookie = cookie};
    return k;
}

// Whether a full socket has been waited for long enough: its owner may be stopped.
static bool is_hopeless(struct udp_known *k)
{
    uint64_t now = vb_clock_ns();

    if (k->full_since_ns == 0)
        k->full_since_ns = now;
    return now - k->full_since_ns >= PATIENCE_NS;
}

bool vb_udp_has_room(struct udp *u, const struct vb_ip *ip, uint32_t qpn, uint32_t frames,
                     uint32_t bytes, bool all_left)
{
    const struct udp_share *s = u->share;
    uint32_t cookie = s ? vb_registry_cookie(&s->registry, ip, s->scope, qpn) : 0;
    struct udp_known *k = find(&u->room, ip, cookie);
    uint64_t cost = (uint64_t)frames * FRAME_COST + (uint64_t)bytes * BYTE_COST;
    struct fill fill;

    if (k->left_bytes < cost) {
        if (!all_left)
            return false; // the kernel does not know of them yet
        if (!look(u, k, &fill))
            fill = (struct fill){0, 0, ELSEWHERE_BYTES};
        uint32_t left =
            fill.used_bytes < fill.buffer_bytes ? fill.buffer_bytes - fill.used_bytes : 0;
        k->left_bytes = left;
        if (left >= cost || fill.used_bytes <= fill.buffer_bytes / DRAINED_PART)
            k->full_since_ns = 0;
        else if (!is_hopeless(k))
            return false;
    }
    k->left_bytes -= k->left_bytes < cost ? k->left_bytes : cost;
    return true;
}
