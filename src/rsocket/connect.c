// SPDX-License-Identifier: Apache-2.0
// Connections: rlisten(), rconnect(), raccept(), and the events of the connection manager that
// carry them on, one at a time and without waiting.
#include "rsocket/socket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESOLVE_MS = 4000,
    RETRIES = 7,
    RNR_FOREVER = 7,
};

// What is needed of an event once it is acknowledged.
struct news {
    enum rdma_cm_event_type type;
    int status;
    struct rdma_cm_id *id;
    struct rdma_conn_param param;
    uint8_t hello[VB_RS_HELLO_BYTES];
    size_t hello_bytes;
};

bool vb_rs_is_opening(const struct vb_rsocket *rs)
{
    return rs->state >= VB_RS_RESOLVING_ADDRESS && rs->state <= VB_RS_ACCEPTING;
}

static bool has_connection(enum rdma_cm_event_type type)
{
    return type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
           type == RDMA_CM_EVENT_ESTABLISHED;
}

// -EAGAIN: nothing new.
static int next_news(struct rdma_event_channel *channel, struct news *n)
{
    struct rdma_cm_event *event;

    if (rdma_get_cm_event(channel, &event))
        return -errno;
    *n = (struct news){.type = event->event, .status = event->status, .id = event->id};
    if (has_connection(n->type)) {
        n->param = event->param.conn;
        size_t len = n->param.private_data ? n->param.private_data_len : 0;
        n->hello_bytes = len < sizeof n->hello ? len : sizeof n->hello;
        if (n->hello_bytes)
            memcpy(n->hello, n->param.private_data, n->hello_bytes);
    }
    rdma_ack_cm_event(event);
    return 0;
}

static void fail(struct vb_rsocket *rs, int error)
{
    rs->state = VB_RS_FAILED;
    rs->error = error;
}

static int status_error(const struct news *n, int otherwise)
{
    return n->status < 0 ? -n->status : otherwise;
}

static int resolve_route(struct vb_rsocket *rs)
{
    rs->state = VB_RS_RESOLVING_ROUTE;
    if (rs->route) // the caller's own path: the manager answers as if it had found it
        return rdma_set_option(rs->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, rs->route,
                               rs->route_bytes)
                   ? -errno
                   : 0;
    return rdma_resolve_route(rs->id, RESOLVE_MS) ? -errno : 0;
}

static int request(struct vb_rsocket *rs)
{
    uint8_t bytes[VB_RS_HELLO_BYTES];
    struct vb_rs_hello hello;
    struct rdma_conn_param param = {
        .private_data = bytes,
        .private_data_len = sizeof bytes,
        .flow_control = 1,
        .retry_count = RETRIES,
        .rnr_retry_count = RNR_FOREVER,
    };
    int err = vb_rs_end_create(rs);

    if (err)
        return err;
    vb_rs_stream_hello(&rs->stream, &hello);
    vb_rs_hello_encode(&hello, bytes);
    rs->state = VB_RS_CONNECTING;
    return rdma_connect(rs->id, &param) ? -errno : 0;
}

static int establish(struct vb_rsocket *rs, const struct news *n)
{
    struct vb_rs_hello hello;

    if (rs->state == VB_RS_CONNECTING) {
        if (!vb_rs_hello_decode(n->hello, n->hello_bytes, &hello)) {
            rdma_disconnect(rs->id);
            return -EPROTO;
        }
        vb_rs_stream_connect(&rs->stream, &hello);
    }
    rs->state = VB_RS_CONNECTED;
    return 0;
}

// What came before the end is read first.
static void disconnect(struct vb_rsocket *rs)
{
    rs->disconnected = true;
    if (rs->state == VB_RS_CONNECTED) {
        vb_rs_progress(rs);
        rs->stream.peer_ended = true;
        vb_rs_stream_cut(&rs->stream);
        rdma_disconnect(rs->id); // the answer
    } else if (vb_rs_is_opening(rs)) {
        fail(rs, ECONNRESET);
    }
}

int vb_rs_manager_step(struct vb_rsocket *rs)
{
    struct news n;
    int err = next_news(rs->channel, &n);

    if (err)
        return err;
    switch (n.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: err = resolve_route(rs); break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: err = request(rs); break;
    case RDMA_CM_EVENT_ESTABLISHED: err = establish(rs, &n); break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR: err = -status_error(&n, EHOSTUNREACH); break;
    case RDMA_CM_EVENT_REJECTED:
        err = rs->state == VB_RS_ACCEPTING ? -ECONNRESET : -ECONNREFUSED;
        break;
    case RDMA_CM_EVENT_UNREACHABLE: err = -ETIMEDOUT; break;
    case RDMA_CM_EVENT_CONNECT_ERROR: // invalid by now: the peer has left
        err = n.status == -EINVAL ? -ECONNRESET : -status_error(&n, ECONNABORTED);
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL: disconnect(rs); break;
    default: break;
    }
    if (err && vb_rs_is_opening(rs))
        fail(rs, -err);
    return 0;
}

static bool is_decided(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return !vb_rs_is_opening(rs);
}

// The error of an attempt that failed is told once; then the socket is not connected.
static int verdict(struct vb_rsocket *rs)
{
    if (rs->state == VB_RS_CONNECTED)
        return 0;
    int error = rs->error ? rs->error : ENOTCONN;
    rs->error = 0;
    return -error;
}

int vb_rs_await_connected(struct vb_rsocket *rs, int flags)
{
    if (rs->state == VB_RS_CONNECTED)
        return 0;
    if (rs->state < VB_RS_RESOLVING_ADDRESS)
        return -ENOTCONN;
    int err = vb_rs_wait(rs, flags, VB_RS_OUT, is_decided, NULL);
    return err ? err : verdict(rs);
}

static int start(struct vb_rsocket *rs, const struct sockaddr *addr, socklen_t len)
{
    struct sockaddr_storage copy;
    int err = vb_rs_address_copy(addr, len, &copy);

    if (err)
        return err;
    rs->state = VB_RS_RESOLVING_ADDRESS;
    if (rdma_resolve_addr(rs->id, NULL, (struct sockaddr *)&copy, RESOLVE_MS)) {
        int error = errno;
        fail(rs, 0);
        return -error;
    }
    return 0;
}

static int connect_stream(struct vb_rsocket *rs, const struct sockaddr *addr, socklen_t len)
{
    int err = 0;

    if (rs->state == VB_RS_CONNECTED)
        return -EISCONN;
    if (rs->state == VB_RS_LISTENING || rs->state == VB_RS_ACCEPTING)
        return -EOPNOTSUPP;
    if (rs->state == VB_RS_FAILED)
        return rs->error ? verdict(rs) : -ECONNABORTED;
    bool again = vb_rs_is_opening(rs);
    if (!again)
        err = start(rs, addr, len);
    if (!err)
        err = vb_rs_wait(rs, 0, VB_RS_OUT, is_decided, NULL);
    if (err == -EAGAIN)
        return again ? -EALREADY : -EINPROGRESS;
    return err ? err : verdict(rs);
}

int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = rs->type == SOCK_STREAM ? connect_stream(rs, addr, addrlen)
                                      : vb_rs_datagrams_connect(rs, addr, addrlen);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}

static int listen_stream(struct vb_rsocket *rs, int backlog)
{
    if (rs->type != SOCK_STREAM)
        return -EOPNOTSUPP;
    if (rs->state == VB_RS_LISTENING)
        return 0;
    if (rs->state > VB_RS_LISTENING)
        return -EINVAL;
    struct sockaddr_storage any = {.ss_family = (sa_family_t)rs->domain};
    if (rs->state == VB_RS_IDLE && rdma_bind_addr(rs->id, (struct sockaddr *)&any))
        return -errno;
    if (rdma_listen(rs->id, backlog))
        return -errno;
    rs->state = VB_RS_LISTENING;
    return 0;
}

int rlisten(int socket, int backlog)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = listen_stream(rs, backlog);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}

static int answer(struct vb_rsocket *rs, const struct news *n, const struct vb_rs_hello *peer)
{
    uint8_t bytes[VB_RS_HELLO_BYTES];
    struct vb_rs_hello hello;
    struct rdma_conn_param param = n->param;
    int err = vb_rs_end_create(rs);

    if (err)
        return err;
    vb_rs_stream_hello(&rs->stream, &hello);
    vb_rs_hello_encode(&hello, bytes);
    vb_rs_stream_connect(&rs->stream, peer);
    param.private_data = bytes;
    param.private_data_len = sizeof bytes;
    param.rnr_retry_count = RNR_FOREVER;
    rs->state = VB_RS_ACCEPTING;
    return rdma_accept(rs->id, &param) ? -errno : 0;
}

// Makes a socket of a request; on failure the request is rejected.
static int admit(struct vb_rsocket *listener, const struct news *n, struct vb_rsocket **made)
{
    struct vb_rs_hello peer;
    struct vb_rsocket *rs = vb_rs_new(SOCK_STREAM, listener->domain, listener);
    int err = rs ? 0 : -ENOMEM;

    if (!err && !vb_rs_hello_decode(n->hello, n->hello_bytes, &peer))
        err = -EPROTO;
    if (!err)
        err = vb_rs_open_channel(rs);
    if (!err && rdma_migrate_id(n->id, rs->channel))
        err = -errno;
    if (!err) {
        rs->status_flags = O_RDWR;
        rs->id = n->id;
        rs->id->context = rs;
        err = answer(rs, n, &peer);
    }
    if (!err)
        err = vb_rs_table_add(rs);
    if (!err) {
        *made = rs;
        return 0;
    }
    rdma_reject(n->id, NULL, 0);
    if (!rs || !rs->id)
        rdma_destroy_id(n->id);
    if (rs)
        vb_rs_free(rs);
    return err;
}

// The oldest request that can be answered; -EAGAIN if there is none.
static int accept_one(struct vb_rsocket *listener, struct vb_rsocket **made)
{
    struct news n;
    int err;

    while ((err = next_news(listener->channel, &n)) == 0) {
        if (n.type != RDMA_CM_EVENT_CONNECT_REQUEST)
            continue;
        err = admit(listener, &n, made);
        if (err != -EPROTO)
            return err;
    }
    return err;
}

struct acceptance {
    struct vb_rsocket **made;
    int *err;
};

static bool is_accepted(struct vb_rsocket *rs, const void *context)
{
    const struct acceptance *a = context;

    bool listens = rs->state == VB_RS_LISTENING && !rs->stopped;
    *a->err = listens ? accept_one(rs, a->made) : -EINVAL;
    return *a->err != -EAGAIN;
}

int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
    struct vb_rsocket *made = NULL, *rs = vb_rs_get(socket);
    int result;
    struct acceptance a = {&made, &result};

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = rs->type != SOCK_STREAM ? -EOPNOTSUPP : vb_rs_wait(rs, 0, VB_RS_IN, is_accepted, &a);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    if (err || result)
        return vb_rs_answer(err ? err : result);
    if (addr && addrlen)
        rgetpeername(made->fd, addr, addrlen);
    return made->fd;
}
