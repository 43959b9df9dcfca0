// SPDX-License-Identifier: Apache-2.0
// The table of descriptors is the process's, and so are these queues; hulls in one process share
// them, as they share the table.
#include "host/stray.h"

#include "base/fifo.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LITTLE_BYTES = 1 << 20,
};

struct stray {
    struct vb_link link;
    int fd;
    bool drain;
};

static struct closer {
    pthread_mutex_t lock;
    struct vb_fifo due;
    bool running;
} others = {.lock = PTHREAD_MUTEX_INITIALIZER, .due = {{&others.due.head, &others.due.head}}},
  memory = {.lock = PTHREAD_MUTEX_INITIALIZER, .due = {{&memory.due.head, &memory.due.head}}};

// ---- the thread

// A socket does not linger on our account. Of other kinds this asks nothing.
static void close_one(int fd)
{
    const struct linger none = {0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(fd);
}

static void close_all_of(struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            close_one(fd);
        }
    }
}

// False: it is empty.
static bool drain_one(int socket)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(VB_STRAYS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control;
    char byte;
    struct iovec part = {&byte, sizeof byte};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t bytes = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (bytes < 0)
        return errno == EINTR;
    close_all_of(&m);
    return bytes > 0 || m.msg_controllen > 0;
}

static void end(struct stray *s)
{
    while (s->drain && drain_one(s->fd))
        ;
    close_one(s->fd);
    free(s);
}

static void *run(void *arg)
{
    struct closer *c = arg;
    struct vb_link *link;

    pthread_mutex_lock(&c->lock);
    while ((link = vb_fifo_first(&c->due))) {
        vb_link_remove(link);
        pthread_mutex_unlock(&c->lock);
        end(VB_CONTAINER_OF(link, struct stray, link));
        pthread_mutex_lock(&c->lock);
    }
    c->running = false;
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

// ---- the queue

static bool start(struct closer *c)
{
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, run, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

// Without a thread it waits for the next one.
static void enqueue(struct closer *c, int fd, bool drain)
{
    struct stray *s = malloc(sizeof *s);

    if (!s)
        return;
    *s = (struct stray){.fd = fd, .drain = drain};
    pthread_mutex_lock(&c->lock);
    vb_fifo_push(&c->due, &s->link);
    if (!c->running)
        c->running = start(c);
    pthread_mutex_unlock(&c->lock);
}

void vb_stray_close(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct stat file;
        bool is_memory = fcntl(fds[i], F_GET_SEALS) >= 0; // only of such can nothing be slow to say
        if (is_memory && fstat(fds[i], &file) == 0 && file.st_size <= LITTLE_BYTES)
            close(fds[i]);
        else
            enqueue(is_memory ? &memory : &others, fds[i], false);
    }
}

// Every message carries who sent it then, if there is room for it or not: so an empty one with
// descriptors is not taken for the end.
static bool has_unread(int socket)
{
    char byte;
    struct iovec part = {&byte, sizeof byte};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

    setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int));
    ssize_t bytes = recvmsg(socket, &m, MSG_PEEK | MSG_DONTWAIT);
    return bytes > 0 || (bytes == 0 && m.msg_flags & MSG_CTRUNC);
}

void vb_stray_drain(int socket)
{
    shutdown(socket, SHUT_RDWR); // nothing more comes, and the peer sees the end at once
    if (has_unread(socket))
        enqueue(&others, socket, true);
    else
        close(socket);
}
