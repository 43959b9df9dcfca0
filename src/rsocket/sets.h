// SPDX-License-Identifier: Apache-2.0
// The descriptor sets of select() as a list for poll(), and back.
#ifndef VB_RSOCKET_SETS_H
#define VB_RSOCKET_SETS_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/select.h>

struct vb_rs_sets { // each may be NULL
    fd_set *in, *out, *except;
};

static inline bool vb_rs_sets_has(const fd_set *set, int fd)
{
    return set && FD_ISSET(fd, set);
}

// Descriptors below `limit` that are in a set; at most FD_SETSIZE. Returns how many.
static inline nfds_t vb_rs_sets_list(const struct vb_rs_sets *s, int limit, struct pollfd *fds)
{
    nfds_t count = 0;

    for (int fd = 0; fd < limit; fd++) {
        short events = (short)((vb_rs_sets_has(s->in, fd) ? POLLIN : 0) |
                               (vb_rs_sets_has(s->out, fd) ? POLLOUT : 0) |
                               (vb_rs_sets_has(s->except, fd) ? POLLPRI : 0));
        if (events)
            fds[count++] = (struct pollfd){.fd = fd, .events = events};
    }
    return count;
}

static inline int vb_rs_sets_settle(fd_set *set, const struct pollfd *p, short event, short by)
{
    bool ready = p->revents & by;

    if (!(p->events & event))
        return 0;
    if (!ready)
        FD_CLR(p->fd, set);
    return ready;
}

// Leaves those in the sets that are ready. Returns how many, or -EBADF with the sets as they were.
static inline int vb_rs_sets_update(const struct vb_rs_sets *s, const struct pollfd *fds,
                                    nfds_t count)
{
    int ready = 0;

    for (nfds_t i = 0; i < count; i++)
        if (fds[i].revents & POLLNVAL)
            return -EBADF;
    for (nfds_t i = 0; i < count; i++) {
        ready += vb_rs_sets_settle(s->in, &fds[i], POLLIN, POLLIN | POLLHUP | POLLERR);
        ready += vb_rs_sets_settle(s->out, &fds[i], POLLOUT, POLLOUT | POLLERR);
        ready += vb_rs_sets_settle(s->except, &fds[i], POLLPRI, POLLPRI);
    }
    return ready;
}

// What select() may be asked for: a limit that sets can hold, and a time that is none or positive.
static inline bool vb_rs_sets_valid(int limit, const struct timeval *timeout)
{
    return limit >= 0 && limit <= FD_SETSIZE &&
           (!timeout || (timeout->tv_sec >= 0 && timeout->tv_usec >= 0));
}

// Rounded up; -1: for ever.
static inline int vb_rs_sets_timeout_ms(const struct timeval *timeout)
{
    if (!timeout)
        return -1;
    if (timeout->tv_sec > 2000000)
        return 2000000000;
    return (int)(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
}

#endif
