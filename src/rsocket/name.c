// SPDX-License-Identifier: Apache-2.0
// Addresses of the two ends: rgetsockname(), rgetpeername().
#include "rsocket/socket.h"

#include <string.h>

int vb_rs_address_copy(const struct sockaddr *addr, socklen_t len, struct sockaddr_storage *copy)
{
    if (!addr || len < sizeof(struct sockaddr_in) ||
        (addr->sa_family == AF_INET6 && len < sizeof(struct sockaddr_in6)))
        return -EINVAL;
    if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)
        return -EAFNOSUPPORT;
    memset(copy, 0, sizeof *copy);
    memcpy(copy, addr, len < sizeof *copy ? len : sizeof *copy);
    return 0;
}

static int give(const struct sockaddr *from, struct sockaddr *to, socklen_t *len)
{
    socklen_t full =
        from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (!len || (!to && *len))
        return -EFAULT;
    if (*len)
        memcpy(to, from, *len < full ? *len : full);
    *len = full;
    return 0;
}

static int peer(struct vb_rsocket *rs, struct sockaddr *addr, socklen_t *len)
{
    struct sockaddr_storage other;

    if (rs->type == SOCK_DGRAM) {
        int err = vb_rs_datagrams_peer(rs, &other);
        return err ? err : give((struct sockaddr *)&other, addr, len);
    }
    if (rs->state != VB_RS_CONNECTED && rs->state != VB_RS_ACCEPTING)
        return -ENOTCONN;
    return give(rdma_get_peer_addr(rs->id), addr, len);
}

int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = peer(rs, addr, addrlen);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}

static int own(struct vb_rsocket *rs, struct sockaddr *addr, socklen_t *len)
{
    if (rs->type == SOCK_DGRAM)
        return getsockname(rs->fd, addr, len) ? -errno : 0;
    return give(rdma_get_local_addr(rs->id), addr, len);
}

int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = own(rs, addr, addrlen);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}
