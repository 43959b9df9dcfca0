// SPDX-License-Identifier: Apache-2.0
// Calls that make, name, connect and end sockets.
#include "rspreload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <unistd.h>

VB_RP_EXPORT int fcntl64(int fd, int cmd, ...);

static void close_rsocket(int rs)
{
    int error = errno;

    if (rs < 0)
        return;
    vb_rp_enter();
    rclose(rs);
    vb_rp_leave();
    errno = error;
}

// A number that was closed behind our back is not the old socket any more.
static void forget(int fd)
{
    close_rsocket(vb_rp_remove(fd));
}

static bool may_be_forked(int domain, int type, int protocol)
{
    int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
    return vb_rp_settings()->fork_safe && kind == SOCK_STREAM &&
           (domain == AF_INET || domain == AF_INET6) && (!protocol || protocol == IPPROTO_TCP);
}

static int open_rsocket(int domain, int type, int protocol)
{
    int error = errno;

    vb_rp_enter();
    int rs = rsocket(domain, type, protocol);
    if (rs >= 0)
        vb_rp_apply_settings(rs);
    vb_rp_leave();
    errno = error;
    return rs;
}

VB_RP_EXPORT int socket(int domain, int type, int protocol)
{
    int fd = vb_rp_real()->socket(domain, type, protocol);

    if (fd < 0 || vb_rp_is_own(__builtin_return_address(0)))
        return fd;
    forget(fd);
    if ((domain != AF_INET && domain != AF_INET6) || !vb_rp_is_asked_for(domain, type, protocol))
        return fd;
    if (may_be_forked(domain, type, protocol)) {
        vb_rp_add(fd, -1, VB_RP_FORK);
        return fd;
    }
    int rs = open_rsocket(domain, type, protocol);
    if (rs >= 0 && !vb_rp_add(fd, rs, VB_RP_RSOCKET))
        close_rsocket(rs);
    return fd;
}

VB_RP_EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct vb_rp_entry *entry = vb_rp_find(fd);

    if (!entry || entry->mode != VB_RP_RSOCKET)
        return vb_rp_real()->bind(fd, addr, len);
    vb_rp_enter();
    int result = rbind(entry->rs, addr, len);
    vb_rp_leave();
    return result;
}

VB_RP_EXPORT int listen(int fd, int backlog)
{
    struct vb_rp_entry *entry = vb_rp_find(fd);

    if (!entry || entry->mode != VB_RP_RSOCKET) {
        int result = vb_rp_real()->listen(fd, backlog);
        if (result == 0 && entry && entry->mode == VB_RP_FORK)
            entry->mode = VB_RP_FORK_LISTENING;
        return result;
    }
    vb_rp_enter();
    int result = rlisten(entry->rs, backlog);
    vb_rp_leave();
    return result;
}

// The kernel's socket that stands for an accepted rsocket.
static int stand_in(int rs, int flags)
{
    struct sockaddr_storage own = {.ss_family = AF_INET};
    socklen_t len = sizeof own;

    rgetsockname(rs, (struct sockaddr *)&own, &len);
    int fd = vb_rp_real()->socket(own.ss_family, SOCK_STREAM | flags, 0);
    if (flags & SOCK_NONBLOCK)
        rfcntl(rs, F_SETFL, O_NONBLOCK);
    return fd;
}

static int accept_rsocket(int listener, struct sockaddr *addr, socklen_t *len, int flags)
{
    vb_rp_enter();
    int fd = -1, rs = raccept(listener, addr, len);
    if (rs >= 0)
        fd = stand_in(rs, flags);
    vb_rp_leave();
    if (rs < 0)
        return -1;
    if (fd >= 0) {
        forget(fd);
        if (vb_rp_add(fd, rs, VB_RP_RSOCKET))
            return fd;
        vb_rp_real()->close(fd);
        errno = ENOMEM;
    }
    close_rsocket(rs);
    return -1;
}

VB_RP_EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    struct vb_rp_entry *entry = vb_rp_find(fd);

    if (entry && entry->mode == VB_RP_RSOCKET)
        return accept_rsocket(entry->rs, addr, len, flags);
    int made = vb_rp_real()->accept4(fd, addr, len, flags);
    if (made >= 0 && !vb_rp_is_own(__builtin_return_address(0)))
        forget(made);
    if (made >= 0 && entry && entry->mode == VB_RP_FORK_LISTENING)
        vb_rp_add(made, -1, VB_RP_FORK_PASSIVE);
    return made;
}

VB_RP_EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
    return accept4(fd, addr, len, 0);
}

VB_RP_EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct vb_rp_entry *entry = vb_rp_find(fd);

    if (!entry || entry->mode != VB_RP_RSOCKET) {
        if (entry && entry->mode == VB_RP_FORK)
            entry->mode = VB_RP_FORK_ACTIVE;
        return vb_rp_real()->connect(fd, addr, len);
    }
    vb_rp_enter();
    int result = rconnect(entry->rs, addr, len);
    vb_rp_leave();
    if (result == 0 || errno == EINPROGRESS || errno == EISCONN || errno == EALREADY ||
        errno == EINTR)
        return result;
    // Whoever answers there may speak TCP.
    close_rsocket(vb_rp_remove(fd));
    return vb_rp_real()->connect(fd, addr, len);
}

VB_RP_EXPORT int shutdown(int fd, int how)
{
    struct vb_rp_entry *entry = vb_rp_ready(fd);

    if (!entry)
        return vb_rp_real()->shutdown(fd, how);
    vb_rp_enter();
    int result = rshutdown(entry->rs, how);
    vb_rp_leave();
    return result;
}

VB_RP_EXPORT int close(int fd)
{
    const struct vb_rp_real *real = vb_rp_real();

    if (!vb_rp_find(fd))
        return real->close(fd);
    close_rsocket(vb_rp_remove(fd));
    return real->close(fd);
}

static int shared(int fd, int copy)
{
    struct vb_rp_entry *entry;

    if (copy < 0)
        return copy;
    forget(copy);
    entry = vb_rp_find(fd);
    if (entry)
        vb_rp_share(copy, entry);
    return copy;
}

VB_RP_EXPORT int dup(int fd)
{
    vb_rp_ready(fd);
    int copy = vb_rp_real()->dup(fd);
    return vb_rp_is_own(__builtin_return_address(0)) ? copy : shared(fd, copy);
}

VB_RP_EXPORT int dup2(int fd, int to)
{
    vb_rp_ready(fd);
    int copy = vb_rp_real()->dup2(fd, to);
    return fd == to || vb_rp_is_own(__builtin_return_address(0)) ? copy : shared(fd, copy);
}

static int control(int fd, int cmd, void *argument)
{
    const struct vb_rp_real *real = vb_rp_real();
    struct vb_rp_entry *entry = vb_rp_find(fd);
    int result = real->fcntl(fd, cmd, argument);

    if (!entry || result < 0)
        return result;
    if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
        return shared(fd, result);
    if (cmd == F_SETFL && entry->mode == VB_RP_RSOCKET) {
        vb_rp_enter();
        result = rfcntl(entry->rs, F_SETFL, (int)(intptr_t)argument);
        vb_rp_leave();
    }
    return result;
}

VB_RP_EXPORT int fcntl(int fd, int cmd, ...)
{
    va_list args;

    va_start(args, cmd);
    void *argument = va_arg(args, void *);
    va_end(args);
    return control(fd, cmd, argument);
}

VB_RP_EXPORT int fcntl64(int fd, int cmd, ...)
{
    va_list args;

    va_start(args, cmd);
    void *argument = va_arg(args, void *);
    va_end(args);
    return control(fd, cmd, argument);
}
