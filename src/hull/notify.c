// SPDX-License-Identifier: Apache-2.0
// One datagram to the service manager's socket.
#include "hull/notify.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// False: nobody wants to know. *size is 0 if the manager's socket has no name that can be one.
static bool find_manager(struct sockaddr_un *at, socklen_t *size)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;

    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    *size = 0;
    if (len == 0)
        return false;
    if (len >= sizeof at->sun_path || (*path != '/' && *path != '@'))
        return true;
    memcpy(at->sun_path, path, len);
    if (*path == '@')
        at->sun_path[0] = '\0'; // a name without a file
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return true;
}

static int tell(const char *lines, int given, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct sockaddr_un at;
    struct iovec part = {(void *)(uintptr_t)lines, strlen(lines)};
    struct msghdr m = {.msg_name = &at, .msg_iov = &part, .msg_iovlen = 1};

    if (!find_manager(&at, &m.msg_namelen))
        return 0;
    if (m.msg_namelen == 0)
        return -EINVAL;
    if (given >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        control.align = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof given), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.align), &given, sizeof given);
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int err = sendmsg(fd, &m, MSG_NOSIGNAL | flags) < 0 ? -errno : 0;
    close(fd);
    return err;
}

bool vb_hull_notify_wanted(void)
{
    struct sockaddr_un at;
    socklen_t size;
    return find_manager(&at, &size);
}

int vb_hull_notify(const char *lines)
{
    return tell(lines, -1, 0);
}

int vb_hull_notify_fd(const char *lines, int fd)
{
    return tell(lines, fd, MSG_DONTWAIT);
}
