// SPDX-License-Identifier: Apache-2.0
// The yardstick: plain UDP sockets.
#include "cli/perf_raw.h"

#include "cli/perf_address.h"
#include "cli/perf_control.h"
#include "port/clock.h"

#include <errno.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BUFFER = 65536,
    SOCKET_BYTES = 4 << 20,
    LOOK_EVERY = 1024, // empty polls between looks at the control channel
    SEGMENTS = 64,
    SEGMENTED_BYTES = 65000,
};

#define RESEND_NS  200000000ull
#define GIVE_UP_NS 5000000000ull

int vb_raw_open(struct vb_raw *raw, const uint8_t gid[16], uint16_t *port, char *why)
{
    struct sockaddr_storage at;
    socklen_t len = vb_perf_sockaddr(gid, 0, &at);
    int bytes = SOCKET_BYTES;
    raw->fd = socket(at.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    raw->buffer = calloc(1, BUFFER);
    if (raw->fd < 0 || raw->buffer == NULL ||
        bind(raw->fd, (const struct sockaddr *)&at, len) < 0 ||
        getsockname(raw->fd, (struct sockaddr *)&at, &len) < 0) {
        vb_perf_fail(why, "cannot open a UDP socket for the raw baseline: %s", strerror(errno));
        vb_raw_close(raw);
        return -1;
    }
    (void)setsockopt(raw->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    (void)setsockopt(raw->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    // The port is at the same place in both families.
    *port = ntohs(((const struct sockaddr_in *)&at)->sin_port);
    return 0;
}

void vb_raw_close(struct vb_raw *raw)
{
    if (raw->fd >= 0)
        close(raw->fd);
    free(raw->buffer);
    raw->fd = -1;
    raw->buffer = NULL;
}

int vb_raw_aim(struct vb_raw *raw, const uint8_t gid[16], uint16_t port, bool connected, char *why)
{
    raw->peer_len = vb_perf_sockaddr(gid, port, &raw->peer);
    raw->connected = connected;
    if (connected && connect(raw->fd, (const struct sockaddr *)&raw->peer, raw->peer_len) < 0)
        return vb_perf_fail(why, "cannot reach the raw baseline's socket: %s", strerror(errno));
    return 0;
}

void vb_raw_echo(struct vb_raw *raw, int control)
{
    struct sockaddr_storage from;
    for (uint32_t turn = 1;; turn++) {
        socklen_t from_len = sizeof from;
        ssize_t len =
            recvfrom(raw->fd, raw->buffer, BUFFER, 0, (struct sockaddr *)&from, &from_len);
        if (len >= 0)
            (void)sendto(raw->fd, raw->buffer, (size_t)len, 0, (const struct sockaddr *)&from,
                         from_len);
        else if (raw->yield)
            sched_yield();
        if (turn % LOOK_EVERY == 0 && vb_control_ready(control))
            return;
    }
}

// Packets in the datagram just received, from the control message of merged ones.
static uint64_t packets_of(struct msghdr *h, size_t len)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        int segment;
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            memcpy(&segment, CMSG_DATA(c), sizeof segment);
            if (segment > 0)
                return (len + (size_t)segment - 1) / (size_t)segment;
        }
    }
    return 1;
}

uint64_t vb_raw_sink(struct vb_raw *raw, int control)
{
    alignas(struct cmsghdr) uint8_t cmsg[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = raw->buffer, .iov_len = BUFFER};
    uint64_t packets = 0;
    int on = 1, off = 0;
    (void)setsockopt(raw->fd, SOL_UDP, UDP_GRO, &on, sizeof on);
    for (uint32_t turn = 1;; turn++) {
        struct msghdr h = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = cmsg, .msg_controllen = sizeof cmsg};
        ssize_t len = recvmsg(raw->fd, &h, 0);
        if (len >= 0)
            packets += packets_of(&h, (size_t)len);
        else if (raw->yield)
            sched_yield();
        if (turn % LOOK_EVERY == 0 && vb_control_ready(control))
            break;
    }
    (void)setsockopt(raw->fd, SOL_UDP, UDP_GRO, &off, sizeof off);
    return packets;
}

// Sends ping n; those of eight bytes or more can be told apart.
static int send_ping(struct vb_raw *raw, uint32_t size, uint64_t n, char *why)
{
    memcpy(raw->buffer, &n, sizeof n);
    ssize_t sent = raw->connected ? send(raw->fd, raw->buffer, size, 0)
                                  : sendto(raw->fd, raw->buffer, size, 0,
                                           (const struct sockaddr *)&raw->peer, raw->peer_len);
    if (sent < 0 && errno != EAGAIN && errno != ECONNREFUSED)
        return vb_perf_fail(why, "the raw baseline cannot send: %s", strerror(errno));
    return 0;
}

static bool receive_ping(struct vb_raw *raw)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    if (raw->connected)
        return recv(raw->fd, raw->buffer, BUFFER, 0) >= 0;
    return recvfrom(raw->fd, raw->buffer, BUFFER, 0, (struct sockaddr *)&from, &len) >= 0;
}

static bool is_echo(const struct vb_raw *raw, uint32_t size, uint64_t n)
{
    return size < sizeof n || memcmp(raw->buffer, &n, sizeof n) == 0;
}

// Waits for the echo of ping n, sent at *sent_ns. It may be lost: sends again after a while.
static int await_echo(struct vb_raw *raw, uint32_t size, uint64_t n, int control, uint64_t *sent_ns,
                      char *why)
{
    uint64_t give_up = *sent_ns + GIVE_UP_NS;
    for (uint32_t idle = 0;;) {
        if (receive_ping(raw) && is_echo(raw, size, n))
            return 0;
        if (raw->yield)
            sched_yield();
        if (++idle % LOOK_EVERY)
            continue;
        uint64_t now = vb_clock_ns();
        if (vb_control_ready(control))
            return vb_perf_fail(why, "the other side went away during the raw baseline");
        if (now > give_up)
            return vb_perf_fail(why, "no echo from the raw baseline's socket: is UDP let through?");
        if (now > *sent_ns + RESEND_NS) {
            *sent_ns = now;
            if (send_ping(raw, size, n, why) < 0)
                return -1;
        }
    }
}

int vb_raw_ping(struct vb_raw *raw, uint32_t size, const struct vb_perf_budget *budget, int control,
                struct vb_hist *hist, char *why)
{
    uint64_t begin = vb_clock_ns();
    for (uint64_t n = 0; n < budget->ops && begin < budget->end_ns; n++) {
        if (send_ping(raw, size, n, why) < 0 || await_echo(raw, size, n, control, &begin, why) < 0)
            return -1;
        uint64_t end = vb_clock_ns();
        vb_hist_record(hist, end - begin);
        begin = end;
    }
    return 0;
}

int vb_raw_blast(struct vb_raw *raw, uint32_t size, const struct vb_perf_budget *budget,
                 uint64_t *sent, char *why)
{
    uint32_t segments = SEGMENTED_BYTES / size < SEGMENTS ? SEGMENTED_BYTES / size : SEGMENTS;
    alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(uint16_t))];
    struct iovec iov = {.iov_base = raw->buffer, .iov_len = (size_t)segments * size};
    struct msghdr h = {
        .msg_name = &raw->peer, .msg_namelen = raw->peer_len, .msg_iov = &iov, .msg_iovlen = 1};
    if (segments > 1) {
        uint16_t segment = (uint16_t)size;
        h.msg_control = control;
        h.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof segment);
        memcpy(CMSG_DATA(c), &segment, sizeof segment);
    }
    *sent = 0;
    while (*sent < budget->ops && vb_clock_ns() < budget->end_ns) {
        if (sendmsg(raw->fd, &h, 0) >= 0)
            *sent += segments;
        else if (errno != EAGAIN && errno != ENOBUFS && errno != ECONNREFUSED)
            return vb_perf_fail(why, "the raw baseline cannot send: %s", strerror(errno));
    }
    return 0;
}
