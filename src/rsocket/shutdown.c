// SPDX-License-Identifier: Apache-2.0
// rshutdown() and rclose(): the peer is told, and what was sent before has arrived when they
// return, unless the peer does not answer any more.
#include "rsocket/socket.h"

// A peer that takes no control messages (its process does not look) does not hold us longer.
#define FAREWELL_NS (INT64_C(10) * 1000000000)

// Newer than Debian 12's header.
#define EVENT_USER ((enum rdma_cm_event_type)16)
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                        uint64_t arg);

// Who sleeps on it in the kernel looks again, by an event of our own.
static void wake_sleeper(struct vb_rsocket *rs)
{
    if (rs->sleeper && rs->id)
        (void)rdma_write_cm_event(rs->id, EVENT_USER, 0, 0);
}

// As in Linux, who waits in raccept() returns.
static int stop_listening(struct vb_rsocket *rs)
{
    rs->stopped = true;
    wake_sleeper(rs);
    return 0;
}

static bool has_slot(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return rs->stream.send.control_free > 0 || !rs->stream.connected;
}

static bool is_all_sent(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return vb_rs_all_sent(&rs->stream) || !rs->stream.connected;
}

static int64_t farewell_ns(const struct vb_rsocket *rs)
{
    if (rs->leave_by_ns)
        return (int64_t)(vb_rs_exit_by(rs->leave_by_ns) - vb_rs_now_ns());
    if (rs->flag.linger && rs->flag.linger_s > 0)
        return rs->flag.linger_s * INT64_C(1000000000);
    return FAREWELL_NS;
}

// Signals do not shorten it: what was sent would be lost.
static int await(struct vb_rsocket *rs, vb_rs_test *done)
{
    int64_t until_ns = (int64_t)vb_rs_now_ns() + farewell_ns(rs), left_ns;
    int err = -EINTR;

    while (err == -EINTR && (left_ns = until_ns - (int64_t)vb_rs_now_ns()) > 0)
        err = vb_rs_await(rs, left_ns, done, NULL);
    return err == -EINTR ? -ETIMEDOUT : err;
}

static int tell(struct vb_rsocket *rs, enum vb_rs_ctrl what)
{
    struct vb_rs_post post;
    int err = await(rs, has_slot);

    if (!err && vb_rs_take_control(&rs->stream, what, &post))
        err = vb_rs_post(rs, &post);
    if (!err)
        err = await(rs, is_all_sent);
    return err;
}

static int end_stream(struct vb_rsocket *rs, int how)
{
    struct vb_rs_stream *s = &rs->stream;

    if (how == SHUT_RD) {
        s->may_read = false;
        wake_sleeper(rs);
        return s->may_write ? 0 : tell(rs, VB_RS_DISCONNECT);
    }
    if (how == SHUT_WR) {
        if (!s->may_write)
            return 0;
        s->may_write = false;
        return tell(rs, s->may_read ? VB_RS_SHUTDOWN : VB_RS_DISCONNECT);
    }
    s->may_read = s->may_write = false;
    return tell(rs, VB_RS_DISCONNECT);
}

// The lock is held.
int vb_rs_shutdown(struct vb_rsocket *rs, int how)
{
    int err = 0;

    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
        return -EINVAL;
    if (rs->type == SOCK_DGRAM)
        return 0;
    if (rs->state == VB_RS_LISTENING)
        return how == SHUT_WR ? 0 : stop_listening(rs);
    if (rs->state != VB_RS_CONNECTED)
        return -ENOTCONN;
    if (rs->stream.connected)
        err = end_stream(rs, how);
    if (!rs->stream.connected && !rs->disconnected) {
        rs->disconnected = true;
        if (!rs->leave_by_ns) // at exit the manager ends all connections, after this
            rdma_disconnect(rs->id);
    }
    return err;
}

int rshutdown(int socket, int how)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = vb_rs_shutdown(rs, how);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}

int rclose(int socket)
{
    struct vb_rsocket *rs = vb_rs_table_remove(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    if (rs->type == SOCK_DGRAM)
        vb_rs_datagrams_drain(rs);
    if (rs->state == VB_RS_ACCEPTING)
        vb_rs_await_connected(rs, MSG_DONTWAIT);
    vb_rs_shutdown(rs, SHUT_RDWR);
    if (rs->id && !rs->disconnected && rs->state == VB_RS_CONNECTED)
        rdma_disconnect(rs->id);
    rs->closing = true;
    wake_sleeper(rs);
    pthread_cond_broadcast(&rs->turn);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return 0;
}
