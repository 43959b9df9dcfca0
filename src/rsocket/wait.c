// SPDX-License-Identifier: Apache-2.0
// Waiting. One thread at a time sleeps in the kernel on an rsocket's descriptors; others that
// wait for the same rsocket sleep until it has woken up, so that no event is taken from under
// somebody who still needs it.
#include "rsocket/socket.h"

#include <poll.h>
#include <time.h>

enum {
    EXIT_REST_NS = 50000, // what an acknowledgement over loopback takes
    EXIT_RESTS = 20,      // before the connection manager's news end the wait
};

uint64_t vb_rs_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void vb_rs_advance(struct vb_rsocket *rs)
{
    if (rs->type == SOCK_DGRAM) {
        vb_rs_datagrams_progress(rs);
        return;
    }
    while (vb_rs_is_opening(rs) && vb_rs_manager_step(rs) == 0)
        ;
    if (rs->state == VB_RS_CONNECTED)
        vb_rs_progress(rs);
}

int vb_rs_arm(struct vb_rsocket *rs, struct vb_rs_watch *watch)
{
    watch->count = 0;
    if (rs->type == SOCK_DGRAM)
        return vb_rs_datagrams_arm(rs, watch);
    if (rs->state == VB_RS_CONNECTED && !rs->end.armed) {
        if (ibv_req_notify_cq(rs->end.cq, 0))
            return -EIO;
        rs->end.armed = true;
        return -EAGAIN; // what completed before this tells nobody
    }
    if (!rs->disconnected)
        watch->fd[watch->count++] = rs->channel->fd;
    if (rs->state == VB_RS_CONNECTED)
        watch->fd[watch->count++] = rs->end.channel->fd;
    return 0;
}

static void take_completion_events(struct vb_rs_end *e)
{
    struct ibv_cq *cq;
    void *context;

    while (ibv_get_cq_event(e->channel, &cq, &context) == 0) {
        e->armed = false;
        if (++e->unacked_events >= 1000) {
            ibv_ack_cq_events(e->cq, e->unacked_events);
            e->unacked_events = 0;
        }
    }
}

bool vb_rs_hear(struct vb_rsocket *rs)
{
    bool heard = false;

    while (rs->type == SOCK_STREAM && rs->state == VB_RS_CONNECTED && !rs->disconnected &&
           vb_rs_manager_step(rs) == 0)
        heard = true;
    return heard;
}

// Takes the events that may have ended a sleep.
void vb_rs_woken(struct vb_rsocket *rs)
{
    if (rs->type == SOCK_DGRAM) {
        vb_rs_datagrams_woken(rs);
        return;
    }
    if (rs->state != VB_RS_CONNECTED)
        return; // events of connections are taken by whom they concern
    take_completion_events(&rs->end);
    vb_rs_hear(rs);
    vb_rs_probe(rs);
}

static int sleep_ms(int64_t timeout_ns)
{
    int most = vb_rs_defaults()->wake_up_ms;

    if (timeout_ns < 0 || timeout_ns / 1000000 >= most)
        return most > 0 ? most : -1;
    return (int)((timeout_ns + 999999) / 1000000);
}

// Another thread sleeps for us.
static void await_turn(struct vb_rsocket *rs, int64_t timeout_ns)
{
    uint64_t until_ns = vb_rs_now_ns() + (uint64_t)timeout_ns;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};

    if (timeout_ns < 0)
        pthread_cond_wait(&rs->turn, &rs->lock);
    else
        pthread_cond_timedwait(&rs->turn, &rs->lock, &until);
}

// Sleeps until something may have happened. The lock is given up meanwhile.
static int sleep_on(struct vb_rsocket *rs, int64_t timeout_ns)
{
    struct vb_rs_watch watch;
    struct pollfd fds[20];

    if (rs->sleeper) {
        await_turn(rs, timeout_ns);
        return 0;
    }
    int err = vb_rs_arm(rs, &watch);
    if (err)
        return err == -EAGAIN ? 0 : err;
    for (unsigned i = 0; i < watch.count; i++)
        fds[i] = (struct pollfd){.fd = watch.fd[i], .events = POLLIN};
    rs->sleeper = &watch;
    pthread_mutex_unlock(&rs->lock);
    err = poll(fds, watch.count, sleep_ms(timeout_ns)) < 0 ? -errno : 0;
    pthread_mutex_lock(&rs->lock);
    rs->sleeper = NULL;
    pthread_cond_broadcast(&rs->turn);
    vb_rs_woken(rs);
    return err;
}

// The connection's end is news. Reading them takes locks that a thread which calls exit() in a
// signal handler may hold.
static bool has_news(const struct vb_rsocket *rs)
{
    return rs->type == SOCK_STREAM &&
           poll(&(struct pollfd){.fd = rs->channel->fd, .events = POLLIN}, 1, 0) > 0;
}

// Nothing but the connection manager can do anything here, and it is not quick.
static bool is_quiet(const struct vb_rsocket *rs)
{
    return rs->type == SOCK_STREAM && rs->state != VB_RS_CONNECTED;
}

int vb_rs_await(struct vb_rsocket *rs, int64_t timeout_ns, vb_rs_test *done, const void *context)
{
    unsigned rests = 0;
    uint64_t began_ns = 0, spin_ns = vb_rs_defaults()->polling_us * UINT64_C(1000);

    for (;;) {
        vb_rs_advance(rs);
        if (done(rs, context))
            return 0;
        if (timeout_ns == VB_RS_NOW) // one who never sleeps hears of the end here
            return vb_rs_hear(rs) && done(rs, context) ? 0 : -EAGAIN;
        if (rs->closing)
            return -EBADF;
        uint64_t now_ns = vb_rs_now_ns();
        if (!began_ns)
            began_ns = now_ns;
        if (timeout_ns > 0 && now_ns - began_ns >= (uint64_t)timeout_ns)
            return -ETIMEDOUT;
        // A thread that calls exit() in a signal handler may hold the locks that sleep_on() takes.
        if (rs->leave_by_ns) {
            if (rests++ >= EXIT_RESTS && has_news(rs))
                return -ETIMEDOUT;
            nanosleep(&(struct timespec){.tv_nsec = EXIT_REST_NS}, NULL);
            continue;
        }
        if (!is_quiet(rs) && now_ns - began_ns < spin_ns) {
            pthread_mutex_unlock(&rs->lock);
            pthread_mutex_lock(&rs->lock);
            continue;
        }
        int64_t left_ns = timeout_ns < 0 ? -1 : timeout_ns - (int64_t)(now_ns - began_ns);
        int err = sleep_on(rs, left_ns);
        if (err)
            return err;
    }
}

int vb_rs_wait(struct vb_rsocket *rs, int flags, enum vb_rs_way way, vb_rs_test *done,
               const void *context)
{
    int64_t limit_ns = rs->flag.timeout_ns[way] ? rs->flag.timeout_ns[way] : VB_RS_FOREVER;

    if (rs->nonblocking || flags & MSG_DONTWAIT)
        limit_ns = VB_RS_NOW;
    int err = vb_rs_await(rs, limit_ns, done, context);
    return err == -ETIMEDOUT ? -EAGAIN : err;
}
