// SPDX-License-Identifier: Apache-2.0
// poll() and select() over rsockets and everything else.
#include "rspreload/preload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

VB_RP_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);

static int rsocket_of(int fd)
{
    struct vb_rp_entry *entry = vb_rp_find(fd);
    return entry && entry->mode == VB_RP_RSOCKET ? entry->rs : -1;
}

static bool has_rsocket(const struct pollfd *fds, nfds_t count)
{
    for (nfds_t i = 0; i < count; i++)
        if (rsocket_of(fds[i].fd) >= 0)
            return true;
    return false;
}

static int poll_mixed(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    struct pollfd *copy = malloc(count * sizeof *copy);

    if (!copy) {
        errno = ENOMEM;
        return -1;
    }
    memcpy(copy, fds, count * sizeof *copy);
    for (nfds_t i = 0; i < count; i++) {
        int rs = rsocket_of(fds[i].fd);
        if (rs >= 0)
            copy[i].fd = rs;
    }
    vb_rp_enter();
    int found = rpoll(copy, count, timeout_ms);
    vb_rp_leave();
    for (nfds_t i = 0; i < count; i++)
        fds[i].revents = copy[i].revents;
    free(copy);
    return found;
}

VB_RP_EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    if (!has_rsocket(fds, count))
        return vb_rp_real()->poll(fds, count, timeout);
    return poll_mixed(fds, count, timeout);
}

VB_RP_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
    if (room / sizeof *fds < count)
        abort();
    return poll(fds, count, timeout);
}

static bool is_in(int fd, const fd_set *set)
{
    return set && FD_ISSET(fd, set);
}

static nfds_t from_sets(int limit, const fd_set *in, const fd_set *out, const fd_set *except,
                        struct pollfd *fds)
{
    nfds_t count = 0;

    for (int fd = 0; fd < limit; fd++) {
        short events = (short)((is_in(fd, in) ? POLLIN : 0) | (is_in(fd, out) ? POLLOUT : 0) |
                               (is_in(fd, except) ? POLLPRI : 0));
        if (events)
            fds[count++] = (struct pollfd){.fd = fd, .events = events};
    }
    return count;
}

static int settle(int fd, fd_set *set, bool asked, bool on)
{
    if (!set || !asked)
        return 0;
    if (!on)
        FD_CLR(fd, set);
    return on;
}

static int to_sets(const struct pollfd *fds, nfds_t count, fd_set *in, fd_set *out, fd_set *except)
{
    int marked = 0;

    for (nfds_t i = 0; i < count; i++) {
        short e = fds[i].events, r = fds[i].revents;
        marked += settle(fds[i].fd, in, e & POLLIN, r & (POLLIN | POLLHUP | POLLERR));
        marked += settle(fds[i].fd, out, e & POLLOUT, r & (POLLOUT | POLLERR));
        marked += settle(fds[i].fd, except, e & POLLPRI, r & POLLPRI);
    }
    return marked;
}

static int milliseconds(const struct timeval *t)
{
    if (!t)
        return -1;
    if (t->tv_sec > 2000000)
        return 2000000000;
    return (int)(t->tv_sec * 1000 + (t->tv_usec + 999) / 1000);
}

VB_RP_EXPORT int select(int limit, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
    struct pollfd fds[FD_SETSIZE];

    if (limit < 0 || limit > FD_SETSIZE ||
        (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
        return vb_rp_real()->select(limit, in, out, except, timeout);
    nfds_t count = from_sets(limit, in, out, except, fds);
    if (!has_rsocket(fds, count))
        return vb_rp_real()->select(limit, in, out, except, timeout);
    int found = poll_mixed(fds, count, milliseconds(timeout));
    if (found < 0)
        return -1;
    for (nfds_t i = 0; i < count; i++) {
        if (fds[i].revents & POLLNVAL) {
            errno = EBADF;
            return -1;
        }
    }
    return to_sets(fds, count, in, out, except);
}
