// SPDX-License-Identifier: Apache-2.0
// Sealed memory and the messages that pass it on.
#include "port/shm_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    HEARD_FDS = 4, // more than the one expected, so that surplus ones are seen; all get closed
};

union control {
    alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(HEARD_FDS * sizeof(int))];
};

// Systems that forbid executable memory want the flag; older ones do not know it.
static int open_memory(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

// After our own mapping is made nobody may make another one for writing, if the system can say so.
static int seal(int fd)
{
    if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_FUTURE_WRITE) == 0 ||
        fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return 0;
    return -errno;
}

int vb_shm_memory_create(const char *name, size_t bytes, void **map)
{
    int fd = open_memory(name);
    if (fd < 0)
        return fd;
    void *at = MAP_FAILED;
    int error = ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
    if (error == 0) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = at == MAP_FAILED ? -errno : seal(fd);
    }
    if (error < 0) {
        if (at != MAP_FAILED)
            munmap(at, bytes);
        close(fd);
        return error;
    }
    *map = at;
    return fd;
}

// Seals alone are not enough: huge pages can be sealed too, but may be missing when touched.
static int inspect(int fd, size_t bytes)
{
    struct stat st;
    struct statfs fs;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return -EPERM;
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC || st.st_size != (off_t)bytes)
        return -EINVAL;
    return 0;
}

int vb_shm_memory_adopt(int fd, size_t bytes, const void **map)
{
    int error = inspect(fd, bytes);
    if (error < 0)
        return error;
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    *map = at;
    return 0;
}

void vb_shm_memory_unmap(const void *map, size_t bytes)
{
    if (map != NULL)
        munmap((void *)(uintptr_t)map, bytes);
}

int vb_shm_say(int socket, const void *message, size_t bytes, int passed)
{
    union control control = {0};
    struct iovec iov = {(void *)(uintptr_t)message, bytes};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(sizeof passed)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof passed);
    memcpy(CMSG_DATA(c), &passed, sizeof passed);
    ssize_t sent = sendmsg(socket, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
        return -errno;
    return (size_t)sent == bytes ? 0 : -EMSGSIZE;
}

// Keeps the first descriptor of a message, closes all others. Returns how many there were.
static unsigned collect(struct msghdr *h, int *first)
{
    unsigned count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t held = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < held; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (count++ == 0)
                *first = fd;
            else
                close(fd);
        }
    }
    return count;
}

int vb_shm_hear(int socket, void *message, size_t bytes, int *passed)
{
    union control control;
    struct iovec iov = {message, bytes};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(socket, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -EAGAIN : -EPIPE;
    int fd = -1;
    unsigned fds = collect(&h, &fd);
    if ((size_t)got == bytes && fds == 1 && (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) {
        *passed = fd;
        return 0;
    }
    if (fd >= 0)
        close(fd);
    return got == 0 && fds == 0 ? -EPIPE : -EPROTO;
}

bool vb_shm_same_user(int socket)
{
    struct ucred other;
    socklen_t bytes = sizeof other;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 &&
           other.uid == geteuid();
}
