// SPDX-License-Identifier: Apache-2.0
// The udp port: opens and closes the socket, and says in words what was wrong.
#include "port/udp.h"

#include "port/udp_state.h"
#include "verbena/nic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SOCKET_BYTES = 4 << 20
};

__attribute__((format(printf, 3, 4))) static int fail(const struct vb_udp_opts *opts, int error,
                                                      const char *format, ...)
{
    if (opts->error_text != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(opts->error_text, VB_ERROR_TEXT, format, args);
        va_end(args);
    }
    return -error;
}

// The whole of 127.0.0.0/8 belongs to every machine: there is always another one to take.
static int fail_in_use(const struct vb_udp_opts *opts, struct in_addr ip)
{
    char other[64] = "another address of this machine";
    uint32_t host = ntohl(ip.s_addr);
    if (host >> 24 == 127) {
        struct in_addr next = {.s_addr = htonl(host + 1)};
        char text[INET_ADDRSTRLEN];
        snprintf(other, sizeof other, "another, for example %s",
                 inet_ntop(AF_INET, &next, text, sizeof text));
    }
    return fail(opts, EADDRINUSE,
                "%s port %d is in use: another NIC (or the kernel's rdma_rxe) has this address; "
                "give this one %s",
                opts->address, VB_ROCE_UDP_PORT, other);
}

static int parse_address(const struct vb_udp_opts *opts, struct in_addr *ip)
{
    if (inet_pton(AF_INET, opts->address, ip) != 1)
        return fail(opts, EINVAL, "'%.40s' is not an IPv4 address; one looks like 127.0.0.1",
                    opts->address);
    uint32_t host = ntohl(ip->s_addr);
    if (host == INADDR_ANY || host >> 28 >= 14)
        return fail(opts, EINVAL,
                    "%s does not name one machine; a NIC needs one address of this one",
                    opts->address);
    return 0;
}

static int bind_to(const struct vb_udp_opts *opts, int fd, struct in_addr ip)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(VB_ROCE_UDP_PORT), .sin_addr = ip};
    if (bind(fd, (const struct sockaddr *)&at, sizeof at) == 0)
        return 0;
    if (errno == EADDRINUSE)
        return fail_in_use(opts, ip);
    if (errno == EADDRNOTAVAIL)
        return fail(opts, EADDRNOTAVAIL,
                    "%s is not an address of this machine; `ip address` lists those that are",
                    opts->address);
    return fail(opts, errno, "%s port %d: %s", opts->address, VB_ROCE_UDP_PORT, strerror(errno));
}

static void set_buffer(int fd, int forced, int allowed)
{
    int bytes = SOCKET_BYTES;
    if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) < 0)
        (void)setsockopt(fd, SOL_SOCKET, allowed, &bytes, sizeof bytes); // capped by the system
}

static int set_up(const struct vb_udp_opts *opts, int fd)
{
    // Never connected, and DF set: only then the identification is predictable (0, 1, 2, …).
    int discover = IP_PMTUDISC_DO;
    if (setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover) < 0)
        return fail(opts, errno, "IP_MTU_DISCOVER: %s", strerror(errno));
    // Merging is switched on when a stream comes. The first time costs the system most: now.
    int on = 1, off = 0;
    (void)setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on);
    (void)setsockopt(fd, SOL_UDP, UDP_GRO, &off, sizeof off);
    set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
    set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF);
    return 0;
}

static int open_socket(const struct vb_udp_opts *opts, struct in_addr ip, int *fd)
{
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0)
        return fail(opts, errno, "no UDP socket: %s", strerror(errno));
    int error = set_up(opts, s);
    if (error == 0)
        error = bind_to(opts, s, ip);
    if (error < 0)
        close(s);
    else
        *fd = s;
    return error;
}

static void close_port(struct vb_port *port)
{
    struct udp *u = (struct udp *)port;
    close(u->fd);
    vb_udp_rx_fini(&u->rx);
    free(u);
}

// A descriptor that polls as readable while datagrams wait needs no preparation, but datagrams
// already taken from the socket may not be split to their end.
static int udp_sleep(struct vb_port *port)
{
    const struct udp *u = (const struct udp *)port;
    return u->rx.at < u->rx.count ? -EAGAIN : u->fd;
}

static const struct vb_port_ops udp_ops = {
    .send = vb_udp_send,
    .receive = vb_udp_receive,
    .sleep = udp_sleep,
    .close = close_port,
};

int vb_udp_open(const struct vb_udp_opts *opts, struct vb_port **port)
{
    struct in_addr ip;
    int error = parse_address(opts, &ip);
    if (error < 0)
        return error;
    struct udp *u = calloc(1, sizeof *u);
    if (u == NULL || vb_udp_rx_init(&u->rx) < 0) {
        free(u);
        return fail(opts, ENOMEM, "no memory");
    }
    error = open_socket(opts, ip, &u->fd);
    if (error < 0) {
        vb_udp_rx_fini(&u->rx);
        free(u);
        return error;
    }
    vb_udp_tx_init(&u->tx);
    u->drop_ppm = opts->drop_ppm;
    u->faults.state = opts->fault_seed;
    u->port.ops = &udp_ops;
    u->port.local = (struct vb_ip){.b = {[10] = 0xff, [11] = 0xff}};
    memcpy(u->port.local.b + 12, &ip.s_addr, 4);
    u->port.src_port = VB_ROCE_UDP_PORT;
    *port = &u->port;
    return 0;
}
