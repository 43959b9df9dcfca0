// SPDX-License-Identifier: Apache-2.0
// Names and options.
#include "rspreload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/ioctl.h>

VB_RP_EXPORT int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
    struct vb_rp_entry *entry = vb_rp_begin(fd);

    if (!entry)
        return vb_rp_real()->getpeername(fd, addr, len);
    VB_RP_END_WITH(entry, rgetpeername(entry->rs, addr, len));
}

VB_RP_EXPORT int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
    struct vb_rp_entry *entry = vb_rp_begin(fd);

    if (!entry)
        return vb_rp_real()->getsockname(fd, addr, len);
    VB_RP_END_WITH(entry, rgetsockname(entry->rs, addr, len));
}

// Both hear it: the kernel's socket may yet be the one in use, and knows options that rsockets
// do not.
VB_RP_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    int result = vb_rp_real()->setsockopt(fd, level, name, value, len);
    struct vb_rp_entry *entry = vb_rp_begin(fd);

    if (!entry)
        return result;
    int other = rsetsockopt(entry->rs, level, name, value, len);
    vb_rp_end(entry);
    return other == 0 ? 0 : result;
}

VB_RP_EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    struct vb_rp_entry *entry = vb_rp_begin(fd);

    if (entry) {
        int result = rgetsockopt(entry->rs, level, name, value, len);
        vb_rp_end(entry);
        if (result == 0 || errno != ENOTSUP)
            return result;
    }
    return vb_rp_real()->getsockopt(fd, level, name, value, len);
}

// One more way to say O_NONBLOCK.
VB_RP_EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list args;

    va_start(args, request);
    void *argument = va_arg(args, void *);
    va_end(args);
    int result = vb_rp_real()->ioctl(fd, request, argument);
    struct vb_rp_entry *entry = result == 0 && request == FIONBIO ? vb_rp_begin(fd) : NULL;
    if (entry) {
        int flags = rfcntl(entry->rs, F_GETFL) & ~O_NONBLOCK;
        result = rfcntl(entry->rs, F_SETFL, flags | (*(const int *)argument ? O_NONBLOCK : 0));
        vb_rp_end(entry);
    }
    return result;
}
