// SPDX-License-Identifier: Apache-2.0
// Reading and writing: rsend(), rrecv() and all their relatives.
#include "rsocket/socket.h"

#include <string.h>
#include <sys/uio.h>

// The error that waits to be told, which is then forgotten.
int vb_rs_take_error(struct vb_rsocket *rs)
{
    int error = rs->error;
    rs->error = 0;
    return -error;
}

static bool has_room(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return vb_rs_can_send(&rs->stream) || !rs->stream.may_write;
}

// Why nothing can be written: the first to hear of a peer that went is told so.
static int refusal(struct vb_rsocket *rs)
{
    if (rs->error)
        return vb_rs_take_error(rs);
    if (rs->stream.peer_ended && !rs->reset_told) {
        rs->reset_told = true;
        return -ECONNRESET;
    }
    return -EPIPE;
}

// Waits until something can be written.
int vb_rs_await_room(struct vb_rsocket *rs, int flags)
{
    int err = vb_rs_wait(rs, flags, VB_RS_OUT, has_room, NULL);

    if (!err && !rs->stream.may_write)
        err = refusal(rs);
    return err;
}

struct cursor {
    const struct iovec *iov;
    size_t at; // in the first
};

size_t vb_rs_length(const struct iovec *iov, int count)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += iov[i].iov_len;
    return sum;
}

static void gather(struct cursor *c, uint8_t *to, size_t bytes)
{
    while (bytes) {
        size_t part = c->iov->iov_len - c->at;
        if (part > bytes)
            part = bytes;
        if (part)
            memcpy(to, (const uint8_t *)c->iov->iov_base + c->at, part);
        to += part;
        bytes -= part;
        c->at += part;
        if (c->at == c->iov->iov_len) {
            c->iov++;
            c->at = 0;
        }
    }
}

static ssize_t send_stream(struct vb_rsocket *rs, const struct iovec *iov, int count, int flags)
{
    struct cursor c = {iov, 0};
    size_t total = vb_rs_length(iov, count), left = total;
    int err = vb_rs_await_connected(rs, flags);

    if (!err && !rs->stream.may_write)
        err = refusal(rs);
    if (!err && rs->mappings_pending)
        err = vb_rs_send_mappings(rs, flags);
    while (!err && left) {
        struct vb_rs_post post;
        uint32_t bytes = vb_rs_take_data(&rs->stream, left, &post);
        if (!bytes) {
            err = vb_rs_await_room(rs, flags);
            continue;
        }
        gather(&c, post.piece[0].data, post.piece[0].bytes);
        if (post.pieces > 1)
            gather(&c, post.piece[1].data, post.piece[1].bytes);
        err = vb_rs_post(rs, &post);
        if (!err)
            left -= bytes;
    }
    return left < total || !err ? (ssize_t)(total - left) : err;
}

static ssize_t send_any(int socket, const struct iovec *iov, int count, int flags,
                        const struct sockaddr *to, socklen_t len)
{
    struct vb_rsocket *rs = vb_rs_get(socket);
    ssize_t sent;

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    if (rs->type == SOCK_DGRAM)
        sent = vb_rs_datagrams_send(rs, iov, count, flags, to, len);
    else if (to && len)
        sent = rs->state == VB_RS_CONNECTED ? -EISCONN : -EOPNOTSUPP;
    else
        sent = send_stream(rs, iov, count, flags);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return sent < 0 ? vb_rs_fail((int)-sent) : sent;
}

// iovec has no const; nothing is written through it.
static struct iovec one(const void *buf, size_t len)
{
    struct iovec v = {.iov_len = len};
    memcpy(&v.iov_base, &buf, sizeof buf);
    return v;
}

ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
                const struct sockaddr *dest_addr, socklen_t addrlen)
{
    struct iovec v = one(buf, len);
    return send_any(socket, &v, 1, flags, dest_addr, addrlen);
}

ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
    return rsendto(socket, buf, len, flags, NULL, 0);
}

ssize_t rwrite(int socket, const void *buf, size_t count)
{
    return rsendto(socket, buf, count, 0, NULL, 0);
}

ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
    return iovcnt < 0 ? vb_rs_fail(EINVAL) : send_any(socket, iov, iovcnt, 0, NULL, 0);
}

ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
    if (msg->msg_control && msg->msg_controllen)
        return vb_rs_fail(ENOTSUP);
    return send_any(socket, msg->msg_iov, (int)msg->msg_iovlen, flags, msg->msg_name,
                    msg->msg_namelen);
}

static bool has_data(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return rs->stream.recv.ready_bytes > 0 || !rs->stream.may_read;
}

// Reads or peeks what is there; returns the bytes.
static size_t scatter(struct vb_rsocket *rs, const struct iovec *iov, int count, size_t skip,
                      bool peek)
{
    size_t got = 0, before = 0;

    for (int i = 0; i < count; i++) {
        size_t len = iov[i].iov_len, from = skip > before ? skip - before : 0;
        before += len;
        if (from >= len)
            continue;
        uint8_t *to = (uint8_t *)iov[i].iov_base + from;
        size_t part = peek ? vb_rs_peek(&rs->stream, got, to, len - from)
                           : vb_rs_read(&rs->stream, to, len - from);
        got += part;
        if (part < len - from)
            break;
    }
    return got;
}

static ssize_t receive_stream(struct vb_rsocket *rs, const struct iovec *iov, int count, int flags)
{
    size_t want = vb_rs_length(iov, count), got = 0;
    bool peek = flags & MSG_PEEK;
    int err = vb_rs_await_connected(rs, flags);

    while (!err && got < want) {
        if (!rs->stream.recv.ready_bytes) {
            err = vb_rs_wait(rs, flags, VB_RS_IN, has_data, NULL);
            if (!err && !rs->stream.recv.ready_bytes) {
                err = got ? 0 : vb_rs_take_error(rs); // none: the end
                break;
            }
            continue;
        }
        got += scatter(rs, iov, count, got, peek);
        vb_rs_give_credits(rs);
        if (peek || !(flags & MSG_WAITALL))
            break;
    }
    return got || !err ? (ssize_t)got : err;
}

static ssize_t receive_any(int socket, const struct iovec *iov, int count, int flags,
                           struct sockaddr *from, socklen_t *len)
{
    struct vb_rsocket *rs = vb_rs_get(socket);
    ssize_t got;

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    if (rs->type == SOCK_DGRAM)
        got = vb_rs_datagrams_receive(rs, iov, count, flags, from, len);
    else
        got = receive_stream(rs, iov, count, flags);
    pthread_mutex_unlock(&rs->lock);
    if (got >= 0 && rs->type == SOCK_STREAM && from && len)
        rgetpeername(socket, from, len);
    vb_rs_put(rs);
    return got < 0 ? vb_rs_fail((int)-got) : got;
}

ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
                  socklen_t *addrlen)
{
    struct iovec v = {buf, len};
    return receive_any(socket, &v, 1, flags, src_addr, addrlen);
}

ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
    return rrecvfrom(socket, buf, len, flags, NULL, NULL);
}

ssize_t rread(int socket, void *buf, size_t count)
{
    return rrecvfrom(socket, buf, count, 0, NULL, NULL);
}

ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
    return iovcnt < 0 ? vb_rs_fail(EINVAL) : receive_any(socket, iov, iovcnt, 0, NULL, NULL);
}

ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
    if (msg->msg_control && msg->msg_controllen)
        return vb_rs_fail(ENOTSUP);
    ssize_t got = receive_any(socket, msg->msg_iov, (int)msg->msg_iovlen, flags, msg->msg_name,
                              msg->msg_name ? &msg->msg_namelen : NULL);
    if (got >= 0)
        msg->msg_flags = 0;
    return got;
}
