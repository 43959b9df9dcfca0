// SPDX-License-Identifier: Apache-2.0
// Calls that make, name, connect and end sockets.
#include "rspreload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

VB_RP_EXPORT int fcntl64(int fd, int cmd, ...);

static void close_rsocket(int rs)
{
    int error = errno;

    vb_rp_enter();
    rclose(rs);
    vb_rp_leave();
    errno = error;
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
    vb_rp_remove(fd); // a number that was closed behind our back is not the old socket any more
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
    struct vb_rp_entry *entry = vb_rp_begin(fd);

    if (!entry)
        return vb_rp_real()->bind(fd, addr, len);
    int result = rbind(entry->rs, addr, len);
    if (result == 0 && len <= sizeof entry->bound) {
        memcpy(&entry->bound, addr, len);
        entry->bound_len = len;
    }
    vb_rp_end(entry);
    return result;
}

VB_RP_EXPORT int listen(int fd, int backlog)
{
    struct vb_rp_entry *entry = vb_rp_begin(fd);

    if (entry)
        VB_RP_END_WITH(entry, rlisten(entry->rs, backlog));
    int result = vb_rp_real()->listen(fd, backlog);
    entry = result == 0 ? vb_rp_get(fd) : NULL;
    if (entry) {
        vb_rp_advance(entry, VB_RP_FORK, VB_RP_FORK_LISTENING);
        vb_rp_put(entry);
    }
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
        vb_rp_remove(fd);
        if (vb_rp_add(fd, rs, VB_RP_RSOCKET))
            return fd;
        vb_rp_real()->close(fd);
        errno = ENOMEM;
    }
    close_rsocket(rs);
    return -1;
}

static bool is_forked_listener(int fd)
{
    struct vb_rp_entry *entry = vb_rp_get(fd);
    bool is = entry && entry->mode == VB_RP_FORK_LISTENING;

    if (entry)
        vb_rp_put(entry);
    return is;
}

VB_RP_EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    struct vb_rp_entry *entry = vb_rp_get_rsocket(fd);

    if (entry) {
        int made = accept_rsocket(entry->rs, addr, len, flags);
        vb_rp_put(entry);
        return made;
    }
    bool forked = is_forked_listener(fd);
    int made = vb_rp_real()->accept4(fd, addr, len, flags);
    if (made >= 0 && !vb_rp_is_own(__builtin_return_address(0)))
        vb_rp_remove(made);
    if (made >= 0 && forked)
        vb_rp_add(made, -1, VB_RP_FORK_PASSIVE);
    return made;
}

VB_RP_EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
    return accept4(fd, addr, len, 0);
}

static bool is_final(int error)
{
    return error != EINPROGRESS && error != EISCONN && error != EALREADY && error != EINTR;
}

static int connect_rsocket(int fd, struct vb_rp_entry *entry, const struct sockaddr *addr,
                           socklen_t len)
{
    const struct vb_rp_real *real = vb_rp_real();
    int result = rconnect(entry->rs, addr, len);
    struct sockaddr_storage own = entry->bound;
    socklen_t own_len = entry->bound_len;

    vb_rp_end(entry);
    if (result == 0 || !is_final(errno))
        return result;
    // Whoever answers there may speak TCP.
    vb_rp_remove(fd);
    if (own_len && real->bind(fd, (struct sockaddr *)&own, own_len))
        return -1;
    return real->connect(fd, addr, len);
}

VB_RP_EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct vb_rp_entry *entry = vb_rp_begin(fd);

    if (entry)
        return connect_rsocket(fd, entry, addr, len);
    entry = vb_rp_get(fd);
    if (entry) {
        vb_rp_advance(entry, VB_RP_FORK, VB_RP_FORK_ACTIVE);
        vb_rp_put(entry);
    }
    return vb_rp_real()->connect(fd, addr, len);
}

VB_RP_EXPORT int shutdown(int fd, int how)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);

    if (!entry)
        return vb_rp_real()->shutdown(fd, how);
    VB_RP_END_WITH(entry, rshutdown(entry->rs, how));
}

VB_RP_EXPORT int close(int fd)
{
    if (vb_rp_has(fd))
        vb_rp_remove(fd);
    return vb_rp_real()->close(fd);
}

// A copy is of the connection that is there, so a move comes first.
static void settle(int fd)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);

    if (entry)
        vb_rp_end(entry);
}

static int shared(int fd, int copy)
{
    struct vb_rp_entry *entry;

    if (copy < 0)
        return copy;
    vb_rp_remove(copy);
    entry = vb_rp_get(fd);
    if (entry) {
        vb_rp_share(copy, entry);
        vb_rp_put(entry);
    }
    return copy;
}

VB_RP_EXPORT int dup(int fd)
{
    settle(fd);
    int copy = vb_rp_real()->dup(fd);
    return vb_rp_is_own(__builtin_return_address(0)) ? copy : shared(fd, copy);
}

VB_RP_EXPORT int dup2(int fd, int to)
{
    settle(fd);
    int copy = vb_rp_real()->dup2(fd, to);
    return fd == to || vb_rp_is_own(__builtin_return_address(0)) ? copy : shared(fd, copy);
}

static int control(int fd, int cmd, void *argument)
{
    int result = vb_rp_real()->fcntl(fd, cmd, argument);

    if (result < 0 || !vb_rp_has(fd))
        return result;
    if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
        return shared(fd, result);
    struct vb_rp_entry *entry = cmd == F_SETFL ? vb_rp_begin(fd) : NULL;
    if (entry)
        VB_RP_END_WITH(entry, rfcntl(entry->rs, F_SETFL, (int)(intptr_t)argument));
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
