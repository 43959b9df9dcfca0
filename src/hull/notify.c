// SPDX-License-Identifier: Apache-2.0
// One datagram to the service manager's socket.
#include "hull/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int vb_hull_notify(const char *lines)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;

    if (len == 0)
        return 0;
    if (len >= sizeof at.sun_path || (*path != '/' && *path != '@'))
        return -EINVAL;
    memcpy(at.sun_path, path, len);
    if (*path == '@')
        at.sun_path[0] = '\0'; // a name without a file
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    ssize_t sent = sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (struct sockaddr *)&at, size);
    int err = sent < 0 ? -errno : 0;
    close(fd);
    return err;
}
