// SPDX-License-Identifier: Apache-2.0
// rpoll() and rselect(), over rsockets and ordinary descriptors alike.
#include "rsocket/sets.h"
#include "rsocket/socket.h"

#include <poll.h>
#include <stdlib.h>

enum {
    IN_EVENTS = POLLIN | POLLRDNORM,
    OUT_EVENTS = POLLOUT | POLLWRNORM,
    SHARED_MS = 10, // another thread sleeps on the rsocket: its events are not ours to see
};

static short stream_events(struct vb_rsocket *rs, short events)
{
    struct vb_rs_stream *s = &rs->stream;
    short got = 0;

    if (s->recv.ready_bytes || !s->may_read)
        got |= events & IN_EVENTS;
    if (vb_rs_can_send(s) || !s->may_write)
        got |= events & OUT_EVENTS;
    if (s->peer_ended)
        got |= events & POLLRDHUP;
    if (!s->connected && !s->recv.ready_bytes) // what came before the end is read first
        got |= POLLHUP;
    if (rs->error)
        got |= POLLERR;
    return got;
}

// What a socket is ready for. The lock is held.
static short ready(struct vb_rsocket *rs, short events)
{
    struct pollfd p;

    vb_rs_advance(rs);
    if (rs->type == SOCK_DGRAM)
        return vb_rs_datagrams_events(rs, events);
    switch (rs->state) {
    case VB_RS_CONNECTED: return stream_events(rs, events);
    case VB_RS_FAILED: return (short)((events & (IN_EVENTS | OUT_EVENTS)) | POLLERR | POLLHUP);
    case VB_RS_LISTENING:
        if (rs->stopped)
            return (short)((events & IN_EVENTS) | POLLHUP);
        p = (struct pollfd){.fd = rs->channel->fd, .events = POLLIN};
        return poll(&p, 1, 0) == 1 ? events & IN_EVENTS : 0;
    case VB_RS_IDLE:
    case VB_RS_BOUND: return (short)((events & OUT_EVENTS) | POLLHUP);
    default: return 0;
    }
}

// One look at all; ordinary descriptors are asked about together. Returns how many are ready.
// If nobody will sleep, the connection manager is asked, too.
static int look(struct pollfd *fds, nfds_t count, struct vb_rsocket **sockets, bool only)
{
    nfds_t others = 0;
    int found = 0;

    for (nfds_t i = 0; i < count; i++) {
        fds[i].revents = 0;
        if (!sockets[i]) {
            others += fds[i].fd >= 0;
            continue;
        }
        pthread_mutex_lock(&sockets[i]->lock);
        if (only)
            vb_rs_hear(sockets[i]);
        fds[i].revents = ready(sockets[i], fds[i].events);
        pthread_mutex_unlock(&sockets[i]->lock);
        found += fds[i].revents != 0;
    }
    for (nfds_t i = 0; others && i < count; i++) {
        if (sockets[i] || fds[i].fd < 0)
            continue;
        poll(&fds[i], 1, 0);
        found += fds[i].revents != 0;
    }
    return found;
}

struct sleep {
    struct pollfd *fds;
    nfds_t count, room;
    bool shared;
};

static bool add(struct sleep *s, int fd, short events)
{
    if (s->count == s->room) {
        nfds_t room = s->room ? s->room * 2 : 16;
        struct pollfd *larger = realloc(s->fds, room * sizeof *larger);
        if (!larger)
            return false;
        s->fds = larger;
        s->room = room;
    }
    s->fds[s->count++] = (struct pollfd){.fd = fd, .events = events};
    return true;
}

// Makes us the sleeper of a socket. -EAGAIN: it is ready.
static int claim(struct vb_rsocket *rs, short events, struct sleep *s)
{
    struct vb_rs_watch watch;
    enum vb_rs_state before = rs->state;
    int err;

    if (rs->sleeper == s)
        return 0; // listed twice
    if (rs->sleeper) {
        s->shared = true;
        return 0;
    }
    while ((err = vb_rs_arm(rs, &watch)) == -EAGAIN)
        if (ready(rs, events))
            return -EAGAIN;
    if (err)
        return err;
    if (ready(rs, events) || rs->state != before)
        return -EAGAIN; // connected just now: there is more to watch
    for (unsigned i = 0; i < watch.count; i++)
        if (!add(s, watch.fd[i], POLLIN))
            return -ENOMEM;
    rs->sleeper = s;
    return 0;
}

static void release(struct vb_rsocket *rs, struct sleep *s)
{
    if (rs->sleeper != s)
        return;
    rs->sleeper = NULL;
    pthread_cond_broadcast(&rs->turn);
    vb_rs_woken(rs);
}

// Sleeps until something happens to one of them, or so it seems.
static int rest(struct pollfd *fds, nfds_t count, struct vb_rsocket **sockets, int timeout_ms)
{
    struct sleep s = {0};
    int err = 0, most = vb_rs_defaults()->wake_up_ms;

    for (nfds_t i = 0; i < count && !err; i++) {
        if (!sockets[i]) {
            err = fds[i].fd < 0 || add(&s, fds[i].fd, fds[i].events) ? 0 : -ENOMEM;
            continue;
        }
        pthread_mutex_lock(&sockets[i]->lock);
        err = claim(sockets[i], fds[i].events, &s);
        pthread_mutex_unlock(&sockets[i]->lock);
    }
    if (s.shared)
        most = SHARED_MS;
    if (most > 0 && (timeout_ms < 0 || timeout_ms > most))
        timeout_ms = most;
    if (!err && poll(s.fds, s.count, timeout_ms) < 0)
        err = -errno;
    for (nfds_t i = 0; i < count; i++) {
        if (!sockets[i])
            continue;
        pthread_mutex_lock(&sockets[i]->lock);
        release(sockets[i], &s);
        pthread_mutex_unlock(&sockets[i]->lock);
    }
    free(s.fds);
    return err == -EAGAIN ? 0 : err;
}

static int left_ms(int timeout_ms, uint64_t began_ns)
{
    if (timeout_ms < 0)
        return -1;
    uint64_t gone_ms = (vb_rs_now_ns() - began_ns) / 1000000;
    return gone_ms >= (uint64_t)timeout_ms ? 0 : timeout_ms - (int)gone_ms;
}

static int poll_all(struct pollfd *fds, nfds_t count, struct vb_rsocket **sockets, int timeout_ms)
{
    uint64_t began_ns = vb_rs_now_ns(), spin_ns = vb_rs_defaults()->polling_us * UINT64_C(1000);

    for (;;) {
        int found = look(fds, count, sockets, timeout_ms == 0);
        if (found || timeout_ms == 0)
            return found;
        if (vb_rs_now_ns() - began_ns < spin_ns)
            continue;
        int left = left_ms(timeout_ms, began_ns);
        if (left == 0)
            return 0;
        int err = rest(fds, count, sockets, left);
        if (err)
            return err;
    }
}

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
    struct vb_rsocket *few[16], **sockets = few;

    if (nfds > 16)
        sockets = calloc(nfds, sizeof(struct vb_rsocket *));
    if (!sockets)
        return vb_rs_fail(ENOMEM);
    for (nfds_t i = 0; i < nfds; i++)
        sockets[i] = vb_rs_get(fds[i].fd);
    int found = poll_all(fds, nfds, sockets, timeout);
    for (nfds_t i = 0; i < nfds; i++)
        if (sockets[i])
            vb_rs_put(sockets[i]);
    if (sockets != few)
        free(sockets);
    return found < 0 ? vb_rs_fail(-found) : found;
}

int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
    const struct vb_rs_sets sets = {readfds, writefds, exceptfds};
    struct pollfd fds[FD_SETSIZE];

    if (!vb_rs_sets_valid(nfds, timeout))
        return vb_rs_fail(EINVAL);
    nfds_t count = vb_rs_sets_list(&sets, nfds, fds);
    if (rpoll(fds, count, vb_rs_sets_timeout_ms(timeout)) < 0)
        return -1;
    int found = vb_rs_sets_update(&sets, fds, count);
    return found < 0 ? vb_rs_fail(-found) : found;
}
