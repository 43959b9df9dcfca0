// SPDX-License-Identifier: Apache-2.0
// rsocket(), rbind(): where an rsocket comes from, and where it goes.
#include "rsocket/socket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

enum {
    KEEP_IDLE_S = 7200
};

int vb_rs_fail(int error)
{
    errno = error;
    return -1;
}

int vb_rs_answer(int err)
{
    return err ? vb_rs_fail(-err) : 0;
}

struct vb_rsocket *vb_rs_new(int type, int domain, const struct vb_rsocket *like)
{
    struct vb_rsocket *rs = calloc(1, sizeof *rs);
    pthread_condattr_t monotonic;

    if (!rs)
        return NULL;
    rs->fd = -1;
    rs->type = type;
    rs->domain = domain;
    rs->size = like ? like->size : vb_rs_defaults()->size;
    rs->flag.linger = true;
    rs->flag.keep_idle_s = KEEP_IDLE_S;
    if (like)
        rs->flag = like->flag;
    pthread_mutex_init(&rs->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&rs->turn, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return rs;
}

void vb_rs_free(struct vb_rsocket *rs)
{
    vb_rs_free_mappings(rs);
    vb_rs_end_destroy(rs);
    if (rs->id)
        rdma_destroy_id(rs->id);
    if (rs->channel)
        rdma_destroy_event_channel(rs->channel);
    vb_rs_datagrams_destroy(rs);
    pthread_cond_destroy(&rs->turn);
    pthread_mutex_destroy(&rs->lock);
    free(rs->route);
    free(rs);
}

// The channel's descriptor is the rsocket's.
int vb_rs_open_channel(struct vb_rsocket *rs)
{
    rs->channel = rdma_create_event_channel();
    if (!rs->channel)
        return -errno;
    rs->fd = rs->channel->fd;
    int flags = fcntl(rs->fd, F_GETFL);
    return fcntl(rs->fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

static int open_stream(struct vb_rsocket *rs)
{
    int err = vb_rs_open_channel(rs);

    if (err)
        return err;
    if (rdma_create_id(rs->channel, &rs->id, rs, RDMA_PS_TCP))
        return -errno;
    rs->id->route.addr.src_addr.sa_family = (sa_family_t)rs->domain;
    return 0;
}

static bool is_supported(int domain, int type, int protocol)
{
    if (domain != AF_INET && domain != AF_INET6)
        return false;
    return (type == SOCK_STREAM && (!protocol || protocol == IPPROTO_TCP)) ||
           (type == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP));
}

int rsocket(int domain, int type, int protocol)
{
    int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (!is_supported(domain, kind, protocol))
        return vb_rs_fail(ENOTSUP);
    struct vb_rsocket *rs = vb_rs_new(kind, domain, NULL);
    if (!rs)
        return vb_rs_fail(ENOMEM);
    rs->nonblocking = type & SOCK_NONBLOCK;
    rs->status_flags = O_RDWR | (rs->nonblocking ? O_NONBLOCK : 0);
    int err = kind == SOCK_STREAM ? open_stream(rs) : vb_rs_datagrams_create(rs);
    if (!err && type & SOCK_CLOEXEC)
        fcntl(rs->fd, F_SETFD, FD_CLOEXEC);
    if (!err)
        err = vb_rs_table_add(rs);
    if (err) {
        vb_rs_free(rs);
        return vb_rs_fail(-err);
    }
    return rs->fd;
}

static int bind_stream(struct vb_rsocket *rs, const struct sockaddr *addr, socklen_t len)
{
    struct sockaddr_storage copy;
    int err = rs->state == VB_RS_IDLE ? vb_rs_address_copy(addr, len, &copy) : -EINVAL;

    if (err)
        return err;
    if (rdma_bind_addr(rs->id, (struct sockaddr *)&copy))
        return -errno;
    rs->state = VB_RS_BOUND;
    return 0;
}

static int bind_datagrams(struct vb_rsocket *rs, const struct sockaddr *addr, socklen_t len)
{
    int err = vb_rs_datagrams_start(rs);
    return err ? err : bind(rs->fd, addr, len) ? -errno : 0;
}

int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = rs->type == SOCK_STREAM ? bind_stream(rs, addr, addrlen)
                                      : bind_datagrams(rs, addr, addrlen);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}
