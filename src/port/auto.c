// SPDX-License-Identifier: Apache-2.0
// The auto port: splits what is sent between a shm and a udp port and receives from both.
#include "port/auto.h"

#include "port/shm.h"
#include "port/udp.h"
#include "verbena/nic.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    UDP_WARM = 1024, // receives after a frame by UDP during which each looks there, if idle
    UDP_RARELY = 64, // otherwise one of so many does: a look costs several frames through memory
};

struct auto_port {
    struct vb_port port; // first: a vb_port pointer is an auto_port pointer
    struct vb_port *shm, *udp;
    int epoll;
    int watched[2];     // descriptors in it; -1: none yet
    uint32_t warmth;    // receives left in which UDP is likely to bring something
    uint32_t since_udp; // receives since UDP was looked at
};

// Those who read the port's statistics know nothing of the two behind it.
static void sum_stats(struct auto_port *a)
{
    enum {
        COUNTERS = sizeof(struct vb_port_stats) / sizeof(uint64_t)
    };
    static_assert(COUNTERS * sizeof(uint64_t) == sizeof(struct vb_port_stats), "counters alone");
    uint64_t shm[COUNTERS], udp[COUNTERS];
    memcpy(shm, &a->shm->stats, sizeof shm);
    memcpy(udp, &a->udp->stats, sizeof udp);
    for (unsigned i = 0; i < COUNTERS; i++)
        udp[i] += shm[i];
    memcpy(&a->port.stats, udp, sizeof udp);
}

static void pass_trace(struct auto_port *a)
{
    a->shm->trace = a->udp->trace = a->port.trace;
}

// ---- sending

// Peers in memory know this NIC by its first address alone.
static bool goes_by_shm(const struct auto_port *a, struct vb_path *path)
{
    return vb_ip_equal(&path->local, &a->port.local) && vb_shm_reaches(a->shm, path);
}

// One past the last frame that goes the same way as `first`.
static uint32_t run_end(struct auto_port *a, const struct vb_txq *txq, uint32_t first, bool by_shm)
{
    struct vb_path *path = txq->frame[first].path;
    for (uint32_t i = first + 1; i < txq->count; i++) {
        struct vb_path *next = txq->frame[i].path;
        if (next != path && goes_by_shm(a, next) != by_shm)
            return i;
        path = next;
    }
    return txq->count;
}

static void auto_send(struct vb_port *port, struct vb_txq *txq)
{
    struct auto_port *a = (struct auto_port *)port;
    uint32_t count = txq->count;
    pass_trace(a);
    while (txq->taken < count) {
        bool by_shm = goes_by_shm(a, txq->frame[txq->taken].path);
        uint32_t end = run_end(a, txq, txq->taken, by_shm);
        struct vb_port *via = by_shm ? a->shm : a->udp;
        txq->count = end;
        via->ops->send(via, txq);
        txq->count = count;
        if (!by_shm)
            a->warmth = UDP_WARM;
        if (txq->taken < end)
            break;
    }
    sum_stats(a);
}

// ---- receiving

static uint32_t receive_udp(struct auto_port *a, struct vb_rx_frame *frames)
{
    a->since_udp = 0;
    uint32_t made = a->udp->ops->receive(a->udp, frames);
    if (made > 0)
        a->warmth = UDP_WARM;
    sum_stats(a);
    return made;
}

// One port per call, since each may fill all of `frames`; UDP gets its turn even while memory is
// busy.
static uint32_t auto_receive(struct vb_port *port, struct vb_rx_frame *frames)
{
    struct auto_port *a = (struct auto_port *)port;
    bool is_warm = a->warmth > 0;
    bool looked = ++a->since_udp >= UDP_RARELY;
    pass_trace(a);
    if (is_warm)
        a->warmth--;
    if (looked) {
        uint32_t made = receive_udp(a, frames);
        if (made > 0)
            return made;
    }
    uint32_t made = vb_udp_sift(a->udp, frames, a->shm->ops->receive(a->shm, frames));
    if (made == 0 && is_warm && !looked)
        return receive_udp(a, frames);
    return made;
}

// ---- sleeping

// Watches what a port says to wait on, in place of what it said before.
static int watch(struct auto_port *a, unsigned which, struct vb_port *part)
{
    int fd = part->ops->sleep(part);
    if (fd < 0 || fd == a->watched[which])
        return fd;
    struct epoll_event event = {.events = EPOLLIN};
    if (a->watched[which] >= 0)
        (void)epoll_ctl(a->epoll, EPOLL_CTL_DEL, a->watched[which], &event);
    a->watched[which] = -1;
    if (epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return -errno;
    a->watched[which] = fd;
    return fd;
}

// The next receive looks at both.
static int auto_sleep(struct vb_port *port)
{
    struct auto_port *a = (struct auto_port *)port;
    a->since_udp = UDP_RARELY;
    sum_stats(a); // receiving from memory does not take the time
    int error = watch(a, 1, a->udp);
    if (error >= 0)
        error = watch(a, 0, a->shm);
    return error < 0 ? error : a->epoll;
}

// ---- groups, which only the network has

static int auto_join(struct vb_port *port, const struct vb_ip *group)
{
    struct vb_port *udp = ((struct auto_port *)port)->udp;
    return udp->ops->join(udp, group);
}

static void auto_leave(struct vb_port *port, const struct vb_ip *group)
{
    struct vb_port *udp = ((struct auto_port *)port)->udp;
    udp->ops->leave(udp, group);
}

static uint64_t auto_deadline(const struct vb_port *port)
{
    const struct vb_port *udp = ((const struct auto_port *)port)->udp;
    return udp->ops->deadline ? udp->ops->deadline(udp) : UINT64_MAX;
}

static int auto_serve(struct vb_port *port, uint32_t space, uint16_t number, bool serves)
{
    struct vb_port *udp = ((struct auto_port *)port)->udp;
    return udp->ops->serve ? udp->ops->serve(udp, space, number, serves) : 0;
}

static void auto_manage(struct vb_port *port, bool manages)
{
    struct vb_port *udp = ((struct auto_port *)port)->udp;
    if (udp->ops->manage)
        udp->ops->manage(udp, manages);
}

static struct vb_port *auto_udp(struct vb_port *port)
{
    struct vb_port *udp = ((struct auto_port *)port)->udp;
    return udp->ops->udp ? udp->ops->udp(udp) : NULL;
}

// ---- opening and closing

static void auto_close(struct vb_port *port)
{
    struct auto_port *a = (struct auto_port *)port;
    a->shm->ops->close(a->shm);
    a->udp->ops->close(a->udp);
    close(a->epoll);
    free(a);
}

static void auto_abandon(struct vb_port *port)
{
    struct auto_port *a = (struct auto_port *)port;
    a->shm->ops->abandon(a->shm);
    a->udp->ops->abandon(a->udp);
    close(a->epoll);
    free(a);
}

static const struct vb_port_ops auto_ops = {
    .send = auto_send,
    .receive = auto_receive,
    .sleep = auto_sleep,
    .close = auto_close,
    .abandon = auto_abandon,
    .join = auto_join,
    .leave = auto_leave,
    .deadline = auto_deadline,
    .serve = auto_serve,
    .manage = auto_manage,
    .udp = auto_udp,
};

static int refuse(const struct vb_auto_opts *opts, int error, const char *words)
{
    if (opts->error_text != NULL)
        snprintf(opts->error_text, VB_ERROR_TEXT, "%s", words);
    return -error;
}

int vb_auto_open(const struct vb_auto_opts *opts, struct vb_port **port)
{
    if (!vb_ip_equal(&opts->shm->local, &opts->udp->local))
        return refuse(opts, EINVAL, "the shm and the udp port have different addresses");
    struct auto_port *a = calloc(1, sizeof *a);
    if (a == NULL)
        return refuse(opts, ENOMEM, "no memory");
    a->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (a->epoll < 0) {
        int error = errno;
        free(a);
        return refuse(opts, error, strerror(error));
    }
    a->port = (struct vb_port){.ops = &auto_ops,
                               .local = opts->udp->local,
                               .src_port = opts->udp->src_port,
                               .unsealed = true,
                               .buffer_bytes = opts->udp->buffer_bytes,
                               .qpn_base = opts->udp->qpn_base,
                               .qpn_count = opts->udp->qpn_count};
    a->shm = opts->shm;
    a->udp = opts->udp;
    a->watched[0] = a->watched[1] = -1;
    a->warmth = UDP_WARM;
    *port = &a->port;
    return 0;
}
