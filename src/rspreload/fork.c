// SPDX-License-Identifier: Apache-2.0
// Sockets of programs that fork. A connection cannot be handed to a child, so while it is young it
// is one of TCP; at the first transfer the server's side listens for an rsocket on the same port,
// says so by four zero bytes, and both ends move over.
#include "rspreload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

void vb_rp_apply_settings(int rs)
{
    const struct vb_rp_settings *s = vb_rp_settings();

    if (s->sq_size)
        rsetsockopt(rs, SOL_RDMA, RDMA_SQSIZE, &s->sq_size, sizeof s->sq_size);
    if (s->rq_size)
        rsetsockopt(rs, SOL_RDMA, RDMA_RQSIZE, &s->rq_size, sizeof s->rq_size);
    if (s->inline_bytes)
        rsetsockopt(rs, SOL_RDMA, RDMA_INLINE, &s->inline_bytes, sizeof s->inline_bytes);
}

static void copy_options(int fd, int rs)
{
    const struct vb_rp_real *real = vb_rp_real();
    int on = 0, flags = real->fcntl(fd, F_GETFL);
    socklen_t len = sizeof on;

    if (flags >= 0)
        rfcntl(rs, F_SETFL, flags);
    if (real->getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len) == 0 && on)
        rsetsockopt(rs, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static int move_active(int fd)
{
    const struct vb_rp_real *real = vb_rp_real();
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    uint32_t word = 1;
    int flags = real->fcntl(fd, F_GETFL);

    real->fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    ssize_t got = real->recv(fd, &word, sizeof word, MSG_PEEK | MSG_WAITALL);
    real->fcntl(fd, F_SETFL, flags);
    if (got != sizeof word || word || real->getpeername(fd, (struct sockaddr *)&peer, &len))
        return -1;
    int rs = rsocket(peer.ss_family, SOCK_STREAM, 0);
    if (rs < 0)
        return -1;
    vb_rp_apply_settings(rs);
    if (rconnect(rs, (struct sockaddr *)&peer, len)) {
        rclose(rs);
        return -1;
    }
    return rs;
}

// One process at a time listens on a port; the lock ends with its holder.
static int take_turn(void)
{
    char path[64];

    snprintf(path, sizeof path, "/dev/shm/verbena-rsocket-fork.%u", (unsigned)geteuid());
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int listen_there(int fd)
{
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    int on = 1;

    if (vb_rp_real()->getsockname(fd, (struct sockaddr *)&own, &len))
        return -1;
    int listener = rsocket(own.ss_family, SOCK_STREAM, 0);
    if (listener < 0)
        return -1;
    vb_rp_apply_settings(listener);
    rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (rbind(listener, (struct sockaddr *)&own, len) || rlisten(listener, 1)) {
        rclose(listener);
        return -1;
    }
    return listener;
}

static int move_passive(int fd)
{
    const uint32_t word = 0;
    int rs = -1, turn = take_turn(), listener = listen_there(fd);

    if (listener >= 0) {
        if (vb_rp_real()->write(fd, &word, sizeof word) == sizeof word)
            rs = raccept(listener, NULL, NULL);
        rclose(listener);
    }
    if (turn >= 0)
        close(turn);
    return rs;
}

// Without an rsocket in the end, the connection goes on as it is.
static int move(int fd, enum vb_rp_mode from)
{
    vb_rp_enter();
    int rs = from == VB_RP_FORK_ACTIVE ? move_active(fd) : move_passive(fd);
    if (rs >= 0) {
        copy_options(fd, rs);
        vb_rp_real()->shutdown(fd, SHUT_RDWR);
    }
    vb_rp_leave();
    return rs;
}

struct vb_rp_entry *vb_rp_begin_transfer(int fd)
{
    struct vb_rp_entry *entry = vb_rp_get(fd);
    enum vb_rp_mode from;

    if (!entry)
        return NULL;
    if (entry->mode != VB_RP_RSOCKET && vb_rp_move_begin(entry, &from))
        vb_rp_move_end(entry, move(fd, from));
    if (entry->mode == VB_RP_RSOCKET) {
        vb_rp_enter();
        return entry;
    }
    vb_rp_put(entry);
    return NULL;
}
