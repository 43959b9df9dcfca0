// SPDX-License-Identifier: Apache-2.0
// Messages and descriptors over the socket between an application and the hull.
#include "host/contract.h"

#include "host/stray.h"
#include "port/shm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(VB_STRAYS_MAX * sizeof(int))];
};

struct strays {
    uint32_t count;
    int fd[VB_STRAYS_MAX];
};

void vb_contract_close(int fds[VB_HULL_FDS])
{
    for (uint32_t i = 0; i < VB_HULL_FDS; i++) {
        if (fds[i] >= 0)
            vb_stray_close(&fds[i], 1);
        fds[i] = -1;
    }
}

// Room for all of them: what finds none the kernel closes at once, in our time.
static void take_fds(struct msghdr *m, int fds[VB_HULL_FDS])
{
    struct strays strays = {0};
    uint32_t taken = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (taken < VB_HULL_FDS)
                fds[taken++] = fd;
            else if (strays.count < VB_STRAYS_MAX)
                strays.fd[strays.count++] = fd;
        }
    }
    vb_stray_close(strays.fd, strays.count);
}

// ---- messages

int vb_contract_receive(int socket, void *message, uint32_t size, int flags, int fds[VB_HULL_FDS])
{
    union control control;
    struct iovec part = {message, size};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t bytes;

    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        fds[i] = -1;
    do
        bytes = recvmsg(socket, &m, flags | MSG_CMSG_CLOEXEC);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0)
        return -errno;
    take_fds(&m, fds);
    if (!(m.msg_flags & MSG_TRUNC))
        return (int)bytes;
    vb_contract_close(fds);
    return -EMSGSIZE;
}

int vb_contract_send(int socket, const void *message, uint32_t size, int flags, const int *fds,
                     uint32_t count)
{
    union control control = {0};
    struct iovec part = {(void *)(uintptr_t)message, size};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t bytes;

    if (count > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    do
        bytes = sendmsg(socket, &m, flags | MSG_NOSIGNAL);
    while (bytes < 0 && errno == EINTR);
    return bytes < 0 ? -errno : 0;
}

void vb_contract_end(int socket)
{
    vb_stray_drain(socket);
}

bool vb_contract_path(const char *name, char *path, uint32_t size)
{
    struct stat found;
    int len;

    if (strchr(name, '/')) {
        len = snprintf(path, size, "%s", name);
        return len > 0 && (uint32_t)len < size;
    }
    // A hull of this user first, then the system's.
    char dir[256];
    if (vb_shm_runtime_dir(NULL, dir, sizeof dir) == 0) {
        len = snprintf(path, size, "%s/hull-%s", dir, name);
        if (len > 0 && (uint32_t)len < size && lstat(path, &found) == 0)
            return true;
    }
    len = snprintf(path, size, "/run/verbena/hull-%s", name);
    return len > 0 && (uint32_t)len < size;
}
