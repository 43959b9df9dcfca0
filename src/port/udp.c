// SPDX-License-Identifier: Apache-2.0
// The udp port: opens and closes the socket.
#include "port/udp.h"

#include "port/clock.h"
#include "port/udp_state.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SOCKET_BYTES = 4 << 20,
    JOIN_TRIES = 50, // a millisecond apart
};

static void set_buffer(int fd, uint32_t asked_bytes, int forced, int allowed)
{
    int bytes = asked_bytes ? (int)asked_bytes : SOCKET_BYTES;
    if (asked_bytes || setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) < 0)
        (void)setsockopt(fd, SOL_SOCKET, allowed, &bytes, sizeof bytes); // capped by the system
}

static uint32_t buffer_of(int fd)
{
    int bytes = 0;
    socklen_t len = sizeof bytes;
    return getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &len) == 0 && bytes > 0 ? (uint32_t)bytes
                                                                                 : 0;
}

static int set_option(const struct vb_udp_opts *opts, int fd, int level, int option, int value,
                      const char *name)
{
    if (setsockopt(fd, level, option, &value, sizeof value) == 0)
        return 0;
    return vb_udp_fail(opts->error_text, errno, "%s: %s", name, strerror(errno));
}

// Never connected, and DF set: only then the identification is predictable (0, 1, 2, …).
static int set_up_v4(const struct vb_udp_opts *opts, int fd)
{
    return set_option(opts, fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "IP_MTU_DISCOVER");
}

// Nothing is fragmented here either. The kernel's soft-RoCE sends without UDP checksums; the ICRC
// covers more than they do.
static int set_up_v6(const struct vb_udp_opts *opts, int fd)
{
    int error = set_option(opts, fd, IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY");
    if (error == 0)
        error = set_option(opts, fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO,
                           "IPV6_MTU_DISCOVER");
    if (error == 0)
        error = set_option(opts, fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1, "IPV6_DONTFRAG");
    if (error == 0)
        error = set_option(opts, fd, SOL_UDP, UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX");
    return error;
}

// RoCE's answer to congestion is the core's; here it is only carried. ECT(0), as annex A17 asks.
static int set_up_ecn(const struct vb_udp_opts *opts, int fd, bool ipv6)
{
    int level = ipv6 ? IPPROTO_IPV6 : IPPROTO_IP;
    int error = set_option(opts, fd, level, ipv6 ? IPV6_TCLASS : IP_TOS, IPTOS_ECN_ECT0,
                           ipv6 ? "IPV6_TCLASS" : "IP_TOS");
    if (error == 0)
        error = set_option(opts, fd, level, ipv6 ? IPV6_RECVTCLASS : IP_RECVTOS, 1,
                           ipv6 ? "IPV6_RECVTCLASS" : "IP_RECVTOS");
    return error;
}

static void tune(const struct vb_udp_opts *opts, int fd)
{
    // Merging is switched on when a stream comes. The first time costs the system most: now.
    int on = 1, off = 0;
    (void)setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on);
    (void)setsockopt(fd, SOL_UDP, UDP_GRO, &off, sizeof off);
    set_buffer(fd, opts->socket_bytes, SO_RCVBUFFORCE, SO_RCVBUF);
    set_buffer(fd, opts->socket_bytes, SO_SNDBUFFORCE, SO_SNDBUF);
}

static int make_socket(const struct vb_udp_opts *opts, int family)
{
    int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        return fd;
    if (errno == EAFNOSUPPORT && family == AF_INET6)
        return vb_udp_fail(opts->error_text, errno,
                           "this machine has no IPv6; give an IPv4 address such as 127.0.0.1");
    return vb_udp_fail(opts->error_text, errno, "no UDP socket: %s", strerror(errno));
}

static int share(int fd)
{
    int on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
}

static int open_socket(const struct vb_udp_opts *opts, const union udp_address *at, bool joins,
                       int *fd)
{
    int s = make_socket(opts, at->any.sa_family);
    if (s < 0)
        return s;
    int error = at->any.sa_family == AF_INET6 ? set_up_v6(opts, s) : set_up_v4(opts, s);
    if (error == 0 && opts->ecn)
        error = set_up_ecn(opts, s, at->any.sa_family == AF_INET6);
    tune(opts, s);
    if (joins)
        (void)share(s);
    if (error == 0 && bind(s, &at->any, vb_udp_address_bytes(at)) < 0)
        error = vb_udp_address_refused(opts->address, at, errno, opts->error_text);
    if (error < 0)
        close(s);
    else
        *fd = s;
    return error;
}

static void free_port(struct udp *u)
{
    vb_udp_group_fini(u);
    vb_udp_mail_close(u);
    if (u->fd >= 0)
        close(u->fd);
    vb_udp_room_fini(&u->room);
    vb_udp_rx_fini(&u->rx);
    free(u);
}

static void close_port(struct vb_port *port)
{
    struct udp *u = (struct udp *)port;
    while (u->sides > 0)
        close_port(&u->side[--u->sides]->port);
    if (u->share != NULL)
        vb_udp_share_close(u->share, u);
    free_port(u);
}

static void abandon_port(struct vb_port *port)
{
    struct udp *u = (struct udp *)port;
    while (u->sides > 0)
        abandon_port(&u->side[--u->sides]->port);
    if (u->share != NULL)
        vb_udp_share_abandon(u->share, u);
    free_port(u);
}

static bool has_company(const struct udp *u)
{
    return u->share != NULL && atomic_load_explicit(&u->share->company, memory_order_relaxed);
}

// A sleeper hears of its mail, too, and has looked after the others before.
static int sleep_in_company(struct udp *u)
{
    struct udp_mail *m = &u->mail;
    uint64_t now_ns = vb_clock_ns();
    if (u->unit == 0 && now_ns >= atomic_load(&u->share->tick_ns))
        vb_udp_share_tend(u->share, now_ns);
    if (!m->watched && vb_udp_watch(u, m->fd) < 0)
        return u->groups || u->sides ? u->epoll : u->fd;
    m->watched = true;
    if (vb_udp_mail_waits(u))
        return -EAGAIN;
    m->look = true;
    return u->epoll;
}

// A descriptor that polls as readable while datagrams wait needs no preparation, but datagrams
// already taken from the socket may not be split to their end.
int vb_udp_sleep_own(struct udp *u)
{
    if (u->rx.at < u->rx.count)
        return -EAGAIN;
    if (has_company(u))
        return sleep_in_company(u);
    return u->groups || u->sides ? u->epoll : u->fd;
}

static int udp_sleep(struct vb_port *port)
{
    struct udp *u = (struct udp *)port;
    int error = u->sides > 0 ? vb_udp_side_sleep(u) : 0;
    return error < 0 ? error : vb_udp_sleep_own(u);
}

static uint64_t udp_deadline(const struct vb_port *port)
{
    const struct udp *u = (const struct udp *)port;
    uint64_t due_ns = u->unit == 0 && has_company(u) ? atomic_load(&u->share->tick_ns) : UINT64_MAX;
    for (uint32_t i = 0; i < u->sides; i++) {
        uint64_t side_ns = udp_deadline(&u->side[i]->port);
        due_ns = side_ns < due_ns ? side_ns : due_ns;
    }
    return due_ns;
}

static struct vb_port *udp_itself(struct vb_port *port)
{
    return port;
}

static const struct vb_port_ops udp_ops = {
    .send = vb_udp_send,
    .receive = vb_udp_receive,
    .sleep = udp_sleep,
    .close = close_port,
    .abandon = abandon_port,
    .deadline = udp_deadline,
    .manage = vb_udp_manage,
    .serve = vb_udp_serve,
    .join = vb_udp_group_join,
    .leave = vb_udp_group_leave,
    .udp = udp_itself,
};

static int open_one(const struct vb_udp_opts *opts, const union udp_address *address, bool joins,
                    struct vb_port **port)
{
    const union udp_address at = *address;
    struct udp *u = calloc(1, sizeof *u);
    if (u == NULL || vb_udp_rx_init(&u->rx, &at) < 0) {
        free(u);
        return vb_udp_fail(opts->error_text, ENOMEM, "no memory");
    }
    u->mail.fd = u->mail.out_fd = -1;
    int error = open_socket(opts, &at, joins, &u->fd);
    if (error < 0) {
        vb_udp_rx_fini(&u->rx);
        free(u);
        return error;
    }
    vb_udp_tx_init(&u->tx, &at);
    vb_udp_room_init(&u->room);
    u->ipv6 = at.any.sa_family == AF_INET6;
    u->ecn = u->headers = opts->ecn;
    u->address_bytes = vb_udp_address_bytes(&at);
    u->port.ops = &udp_ops;
    u->port.local = vb_udp_address_ip(&at);
    u->port.src_port = VB_ROCE_UDP_PORT;
    u->port.buffer_bytes = buffer_of(u->fd);
    u->epoll = -1;
    vb_udp_group_init(u);
    vb_udp_attr_init(u);
    *port = &u->port;
    return 0;
}

static int fd_of(const struct vb_port *port)
{
    return ((const struct udp *)port)->fd;
}

// A classic BPF program that sees the BTH: the destination's lowest bits are the socket's index.
static int steer(int fd, uint32_t count)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4), // resv8a and the destination queue pair
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, count - 1),
        BPF_STMT(BPF_RET | BPF_A, 0),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

// The first socket is bound alone, so that an address in use is found out; another NIC's first one
// is refused for the same reason. The option stays set: without it the system would not steer.
static int open_alone(const struct vb_udp_opts *opts, const union udp_address *at,
                      struct vb_port **ports, uint32_t count, uint32_t *opened)
{
    int error = open_one(opts, at, false, &ports[0]);
    *opened = error == 0;
    if (error == 0 && (count > 1 || opts->shared) && share(fd_of(ports[0])) < 0)
        error = vb_udp_fail(opts->error_text, errno, "SO_REUSEPORT: %s", strerror(errno));
    for (; error == 0 && *opened < count; *opened += error == 0)
        error = open_one(opts, at, true, &ports[*opened]);
    return error;
}

static void close_all(struct vb_port **ports, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close_port(ports[i]);
}

static int join_or_lead(const struct vb_udp_opts *opts, const union udp_address *at,
                        struct udp_share *others, struct vb_port **ports, uint32_t count,
                        uint32_t *opened)
{
    int error = 0;
    close_all(ports, *opened); // of an attempt before
    *opened = 0;
    if (!vb_udp_share_has_company(others))
        return open_alone(opts, at, ports, count, opened);
    for (; error == 0 && *opened < count; *opened += error == 0)
        error = open_one(opts, at, true, &ports[*opened]);
    return error;
}

// Joins those who are there. Who is first may be about to let others in, and who was killed may not
// quite be gone. Words are asked for at the end: to find them takes time.
static int open_beside(const struct vb_udp_opts *opts, const union udp_address *at,
                       struct udp_share *others, struct vb_port **ports, uint32_t count,
                       uint32_t *opened)
{
    struct vb_udp_opts quiet = *opts;
    int error = -EADDRINUSE;
    quiet.error_text = NULL;
    for (int tries = 0; tries < JOIN_TRIES && error == -EADDRINUSE; tries++) {
        if (tries > 0)
            (void)poll(NULL, 0, 1);
        error = join_or_lead(&quiet, at, others, ports, count, opened);
    }
    return error < 0 ? join_or_lead(opts, at, others, ports, count, opened) : error;
}

static int enter(const struct vb_udp_opts *opts, struct udp_share *others, struct vb_port **ports,
                 uint32_t count)
{
    struct udp *units[REGISTRY_UNITS];
    int error = 0;
    for (uint32_t i = 0; i < count; i++) {
        units[i] = (struct udp *)ports[i];
        units[i]->share = others;
        units[i]->unit = i;
        others->unit[i] = units[i];
        ports[i]->qpn_base = others->registry.slot << REGISTRY_RANGE_BITS;
        ports[i]->qpn_count = others->registry.span << REGISTRY_RANGE_BITS;
    }
    for (uint32_t i = 0; i < count && error == 0; i++)
        error = vb_udp_mail_open(units[i]);
    if (error == 0)
        error = vb_udp_share_enter(others);
    if (error < 0)
        (void)vb_udp_fail(opts->error_text, -error, "sharing %.64s with other NICs: %s",
                          opts->address, strerror(-error));
    return error;
}

static int open_shared(const struct vb_udp_opts *opts, const union udp_address *at,
                       struct udp_share *others, struct vb_port **ports, uint32_t count)
{
    uint32_t opened = 0;
    int error = open_beside(opts, at, others, ports, count, &opened);
    if (error < 0) {
        close_all(ports, opened);
        vb_udp_share_destroy(others);
        return error;
    }
    error = enter(opts, others, ports, count);
    if (error < 0)
        close_all(ports, count); // the last one frees what they shared
    return error;
}

static int open_unshared(const struct vb_udp_opts *opts, const union udp_address *at,
                         struct vb_port **ports, uint32_t count, char *error_text)
{
    uint32_t opened = 0;
    const struct vb_udp_opts alone = {opts->address, opts->socket_bytes, error_text,
                                      .ecn = opts->ecn};
    int error = open_alone(&alone, at, ports, count, &opened);
    if (error == 0 && count > 1 && steer(fd_of(ports[0]), count) < 0)
        error = vb_udp_fail(error_text, errno, "SO_ATTACH_REUSEPORT_CBPF: %s", strerror(errno));
    if (error < 0)
        close_all(ports, opened);
    return error;
}

// Whether the directory takes no inbox.
static bool is_no_place(int error)
{
    return error == -ENOSPC || error == -EDQUOT || error == -EROFS || error == -EACCES;
}

// As the NIC's first address, shared or not: its numbers are the same on all.
static int open_beside_first(const struct vb_udp_opts *opts, const union udp_address *at,
                             struct vb_port **ports, uint32_t count)
{
    const struct udp *first = (const struct udp *)opts->beside;
    struct vb_udp_opts like_first = *opts;
    struct udp_share *others = NULL;
    like_first.ecn = first->ecn;
    if (first->share == NULL)
        return open_unshared(&like_first, at, ports, count, opts->error_text);
    int error = vb_udp_share_create(&like_first, at, count, &others);
    if (error < 0)
        return vb_udp_fail(opts->error_text, -error, "%.64s: no room in the registry: %s",
                           opts->address, strerror(-error));
    return open_shared(&like_first, at, others, ports, count);
}

int vb_udp_open_group(const struct vb_udp_opts *opts, struct vb_port **ports, uint32_t count)
{
    union udp_address at;
    struct udp_share *others = NULL;
    int error = vb_udp_address_parse(opts->address, &at, opts->error_text);
    if (error < 0)
        return error;
    if (opts->beside != NULL)
        return open_beside_first(opts, &at, ports, count);
    // Without a registry or an inbox the address is ours alone, or not at all.
    if (!opts->shared || vb_udp_share_create(opts, &at, count, &others) < 0)
        return open_unshared(opts, &at, ports, count, opts->error_text);
    error = open_shared(opts, &at, others, ports, count);
    if (is_no_place(error) && open_unshared(opts, &at, ports, count, NULL) == 0)
        return 0;
    return error;
}

int vb_udp_open(const struct vb_udp_opts *opts, struct vb_port **port)
{
    return vb_udp_open_group(opts, port, 1);
}
