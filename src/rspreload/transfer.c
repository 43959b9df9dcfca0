// SPDX-License-Identifier: Apache-2.0
// Calls that read and write, the checked forms that compilers make of them, and sendfile().
#include "rspreload/preload.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    FILE_CHUNK = 65536
};

VB_RP_EXPORT ssize_t __read_chk(int fd, void *buf, size_t len, size_t room);
VB_RP_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags);
VB_RP_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags,
                                    struct sockaddr *from, socklen_t *from_len);
VB_RP_EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count);
VB_RP_EXPORT ssize_t sendfile64(int out, int in, off_t *offset, size_t count);

VB_RP_EXPORT ssize_t recv(int fd, void *buf, size_t len, int flags)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->recv(fd, buf, len, flags);
    VB_RP_END_WITH(entry, rrecv(entry->rs, buf, len, flags));
}

VB_RP_EXPORT ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from,
                              socklen_t *from_len)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->recvfrom(fd, buf, len, flags, from, from_len);
    VB_RP_END_WITH(entry, rrecvfrom(entry->rs, buf, len, flags, from, from_len));
}

VB_RP_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->recvmsg(fd, msg, flags);
    VB_RP_END_WITH(entry, rrecvmsg(entry->rs, msg, flags));
}

VB_RP_EXPORT ssize_t read(int fd, void *buf, size_t len)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->read(fd, buf, len);
    VB_RP_END_WITH(entry, rread(entry->rs, buf, len));
}

VB_RP_EXPORT ssize_t readv(int fd, const struct iovec *iov, int count)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->readv(fd, iov, count);
    VB_RP_END_WITH(entry, rreadv(entry->rs, iov, count));
}

VB_RP_EXPORT ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
    if (len > room)
        abort();
    return read(fd, buf, len);
}

VB_RP_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
    if (len > room)
        abort();
    return recv(fd, buf, len, flags);
}

VB_RP_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags,
                                    struct sockaddr *from, socklen_t *from_len)
{
    if (len > room)
        abort();
    return recvfrom(fd, buf, len, flags, from, from_len);
}

VB_RP_EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->send(fd, buf, len, flags);
    VB_RP_END_WITH(entry, rsend(entry->rs, buf, len, flags));
}

VB_RP_EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags,
                            const struct sockaddr *to, socklen_t to_len)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->sendto(fd, buf, len, flags, to, to_len);
    VB_RP_END_WITH(entry, rsendto(entry->rs, buf, len, flags, to, to_len));
}

VB_RP_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->sendmsg(fd, msg, flags);
    VB_RP_END_WITH(entry, rsendmsg(entry->rs, msg, flags));
}

VB_RP_EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->write(fd, buf, len);
    VB_RP_END_WITH(entry, rwrite(entry->rs, buf, len));
}

VB_RP_EXPORT ssize_t writev(int fd, const struct iovec *iov, int count)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(fd);
    if (!entry)
        return vb_rp_real()->writev(fd, iov, count);
    VB_RP_END_WITH(entry, rwritev(entry->rs, iov, count));
}

// Copies through memory, as far as the socket takes it.
static ssize_t copy_file(int rs, int in, off_t at, size_t count, char *chunk)
{
    size_t done = 0;

    while (done < count) {
        size_t want = count - done < FILE_CHUNK ? count - done : FILE_CHUNK;
        ssize_t got = pread(in, chunk, want, at + (off_t)done);
        if (got == 0)
            break;
        ssize_t sent = got < 0 ? -1 : rsend(rs, chunk, (size_t)got, 0);
        if (sent < 0)
            return done ? (ssize_t)done : -1;
        done += (size_t)sent;
        if (sent < got)
            break;
    }
    return (ssize_t)done;
}

static ssize_t send_file(int rs, int in, off_t *offset, size_t count)
{
    char *chunk = malloc(FILE_CHUNK);
    off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);

    if (!chunk || at < 0) {
        errno = chunk ? EINVAL : ENOMEM;
        free(chunk);
        return -1;
    }
    ssize_t done = copy_file(rs, in, at, count, chunk);
    free(chunk);
    if (done > 0 && offset)
        *offset = at + done;
    else if (done > 0)
        lseek(in, at + done, SEEK_SET);
    return done;
}

VB_RP_EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
    struct vb_rp_entry *entry = vb_rp_begin_transfer(out);
    if (!entry)
        return vb_rp_real()->sendfile(out, in, offset, count);
    VB_RP_END_WITH(entry, send_file(entry->rs, in, offset, count));
}

VB_RP_EXPORT ssize_t sendfile64(int out, int in, off_t *offset, size_t count)
{
    return sendfile(out, in, offset, count);
}
