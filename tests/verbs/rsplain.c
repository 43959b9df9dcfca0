// SPDX-License-Identifier: Apache-2.0
// rsplain ADDRESS: a program that knows sockets only, run with --rsockets; both ends are in one
// process. What programs do to sockets besides the plain calls reaches the rsockets behind them.
// Prints one line for each check; exits with 1 at the first that fails.
#include "../wait.h"
#include "need.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    RDMA_LEVEL = 0x10000, // of options that only rsockets know
    RDMA_SQSIZE = 0
};

static struct sockaddr_in home = {.sin_family = AF_INET};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void alarm_in(suseconds_t us)
{
    struct sigaction act = {.sa_handler = on_alarm};
    struct itimerval soon = {.it_value = {0, us}};

    NEED(sigaction(SIGALRM, &act, NULL) == 0);
    NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static bool is_rsocket(int fd)
{
    int value;
    socklen_t len = sizeof value;
    return getsockopt(fd, RDMA_LEVEL, RDMA_SQSIZE, &value, &len) == 0;
}

static int listener(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    NEED(fd >= 0 && bind(fd, (struct sockaddr *)&home, sizeof home) == 0 && listen(fd, 5) == 0);
    NEED(getsockname(fd, (struct sockaddr *)at, &len) == 0 && at->sin_port);
    return fd;
}

// One thread has to do both ends' steps, so a signal ends its part of connecting.
static void check_connect_interrupted(int end[2])
{
    struct sockaddr_in at;
    int l = listener(&at);

    end[0] = socket(AF_INET, SOCK_STREAM, 0);
    alarm_in(200000);
    FAILS(EINTR, connect(end[0], (struct sockaddr *)&at, sizeof at));
    NEED(is_rsocket(end[0]));
    end[1] = accept(l, NULL, NULL);
    NEED(end[1] >= 0);
    struct pollfd p = {.fd = end[0], .events = POLLOUT};
    NEED(poll(&p, 1, -1) == 1 && p.revents == POLLOUT);
    NEED(close(l) == 0);
}

static void check_time_out(const int end[2])
{
    const struct timeval some = {0, 300000}, none = {0, 0};
    struct timeval got;
    socklen_t len = sizeof got;
    double began = now_s();
    char byte;

    NEED(setsockopt(end[0], SOL_SOCKET, SO_RCVTIMEO, &some, sizeof some) == 0);
    FAILS(EAGAIN, recv(end[0], &byte, 1, 0));
    NEED(now_s() - began > 0.29); // a busy machine only makes it more
    NEED(getsockopt(end[0], SOL_SOCKET, SO_RCVTIMEO, &got, &len) == 0);
    NEED(got.tv_sec == 0 && got.tv_usec == 300000);
    NEED(setsockopt(end[0], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    alarm_in(500000);
    FAILS(EINTR, recv(end[0], &byte, 1, 0)); // none again
}

static void check_time_out_of_sends(const int end[2])
{
    static char buffer[1 << 20];
    const struct timeval some = {0, 300000}, none = {0, 0};
    size_t sent = 0, got = 0;
    ssize_t n;

    NEED(setsockopt(end[0], SOL_SOCKET, SO_SNDTIMEO, &some, sizeof some) == 0);
    alarm_in(900000);
    n = send(end[0], buffer, sizeof buffer, 0); // what there is room for
    NEED(n > 0 && n < (ssize_t)sizeof buffer);
    sent = (size_t)n;
    FAILS(EAGAIN, send(end[0], buffer, sizeof buffer, 0));
    NEED(setsockopt(end[0], SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none) == 0);
    for (; got < sent; got += (size_t)n)
        NEED((n = recv(end[1], buffer, sizeof buffer, 0)) > 0);
    NEED(got == sent);
}

static void check_ioctl(const int end[2])
{
    int on = 1, off = 0;
    char byte;

    NEED(ioctl(end[0], FIONBIO, &on) == 0);
    alarm_in(500000);
    FAILS(EAGAIN, recv(end[0], &byte, 1, 0));
    NEED(ioctl(end[0], FIONBIO, &off) == 0);
    alarm_in(300000);
    FAILS(EINTR, recv(end[0], &byte, 1, 0));
}

static void check_vectors(const int end[2])
{
    char text[4] = "abc", back[4] = "";
    struct iovec out[4] = {{NULL, 0}, {text, 1}, {NULL, 0}, {text + 1, 2}};
    struct iovec in[4] = {{back, 2}, {NULL, 0}, {back + 2, 1}, {NULL, 0}};

    NEED(writev(end[1], out, 4) == 3);
    NEED(recv(end[0], back, 3, MSG_PEEK | MSG_WAITALL) > 0);
    NEED(readv(end[0], in, 4) == 3 && memcmp(text, back, 3) == 0);
    NEED(readv(end[0], in + 1, 1) == 0);
    NEED(writev(end[0], out, 1) == 0);
}

static void check_copies(int end[2])
{
    char byte;
    int other = dup(end[0]);

    NEED(other >= 0 && close(end[0]) == 0);
    NEED(send(other, "x", 1, 0) == 1 && recv(end[1], &byte, 1, 0) == 1);
    NEED(dup2(other, end[0]) == end[0] && close(other) == 0);
    NEED(send(end[0], "y", 1, 0) == 1 && recv(end[1], &byte, 1, 0) == 1 && byte == 'y');
}

struct reader {
    int fd;
    atomic_int began; // its thread
    ssize_t got;
    char byte;
};

static void *read_one(void *arg)
{
    struct reader *r = arg;
    atomic_store(&r->began, gettid());
    r->got = recv(r->fd, &r->byte, 1, 0);
    return NULL;
}

// Returns when it waits there.
static pthread_t start(void *(*run)(void *), struct reader *r)
{
    pthread_t thread;

    NEED(pthread_create(&thread, NULL, run, r) == 0);
    WAIT_UNTIL(atomic_load(&r->began) && wait_state("self/task", atomic_load(&r->began)) == 'S');
    return thread;
}

// As with sockets of the kernel, a call that has begun goes on with what it began with, and the
// peer hears of the end when it is over.
static void check_close_during_a_call(void)
{
    int end[2];

    check_connect_interrupted(end);
    struct reader r = {.fd = end[0]};
    pthread_t thread = start(read_one, &r);
    NEED(close(end[0]) == 0);
    FAILS(EBADF, send(end[0], "x", 1, 0));
    FAILS(EAGAIN, recv(end[1], &r.byte, 1, MSG_DONTWAIT));
    NEED(send(end[1], "z", 1, 0) == 1);
    NEED(pthread_join(thread, NULL) == 0 && r.got == 1 && r.byte == 'z');
    NEED(recv(end[1], &r.byte, 1, 0) == 0);
    NEED(close(end[1]) == 0);
}

// Who waits hears of it at once.
static void check_shutdown_during_a_call(int how)
{
    int end[2];

    check_connect_interrupted(end);
    struct reader r = {.fd = end[0], .got = -1};
    pthread_t thread = start(read_one, &r);
    NEED(shutdown(end[0], how) == 0 && pthread_join(thread, NULL) == 0);
    NEED(r.got == 0);
    NEED(close(end[0]) == 0 && close(end[1]) == 0);
}

static void *accept_none(void *arg)
{
    struct reader *r = arg;
    atomic_store(&r->began, gettid());
    r->got = accept(r->fd, NULL, NULL) == -1 ? -errno : 0;
    return NULL;
}

static void check_shutdown_of_a_listener(void)
{
    struct sockaddr_in at;
    struct reader r = {.fd = listener(&at)};
    struct pollfd p = {.fd = r.fd, .events = POLLIN};

    NEED(is_rsocket(r.fd));
    pthread_t thread = start(accept_none, &r);
    NEED(shutdown(r.fd, SHUT_WR) == 0 && poll(&p, 1, 100) == 0 && r.got == 0);
    NEED(shutdown(r.fd, SHUT_RDWR) == 0 && pthread_join(thread, NULL) == 0);
    NEED(r.got == -EINVAL);
    NEED(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLHUP));
    FAILS(EINVAL, accept(r.fd, NULL, NULL));
    NEED(close(r.fd) == 0);
}

// ---- those who speak TCP; what is said to the system by number is not made an rsocket

static int tcp_at(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);

    NEED(fd >= 0 && syscall(SYS_bind, fd, at, sizeof *at) == 0);
    NEED(syscall(SYS_getsockname, fd, at, &len) == 0);
    return fd;
}

static void check_tcp_instead(void)
{
    struct sockaddr_in to = home, from = home, seen;
    socklen_t len = sizeof seen;
    int l = tcp_at(&to), other = tcp_at(&from), fd = socket(AF_INET, SOCK_STREAM, 0);

    NEED(syscall(SYS_listen, l, 5) == 0);
    NEED(bind(fd, (struct sockaddr *)&from, sizeof from) == 0 && is_rsocket(fd));
    FAILS(EADDRINUSE, connect(fd, (struct sockaddr *)&to, sizeof to)); // with TCP it is another's
    NEED(close(fd) == 0 && syscall(SYS_close, other) == 0);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(bind(fd, (struct sockaddr *)&from, sizeof from) == 0 && is_rsocket(fd));
    NEED(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && !is_rsocket(fd));
    int end = (int)syscall(SYS_accept, l, &seen, &len);
    NEED(end >= 0 && seen.sin_port == from.sin_port &&
         memcmp(&seen.sin_addr, &home.sin_addr, 4) == 0);
    NEED(syscall(SYS_close, end) == 0 && close(fd) == 0);
    fd = socket(AF_INET, SOCK_STREAM, 0); // from anywhere
    NEED(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && !is_rsocket(fd));
    end = (int)syscall(SYS_accept, l, &seen, &len);
    NEED(end >= 0 && seen.sin_port != from.sin_port);
    NEED(syscall(SYS_close, end) == 0 && close(fd) == 0 && syscall(SYS_close, l) == 0);
}

int main(int argc, char **argv)
{
    int end[2];

    if (argc != 2 || inet_pton(AF_INET, argv[1], &home.sin_addr) != 1) {
        fprintf(stderr, "usage: rsplain ADDRESS\n");
        return 2;
    }
    setlinebuf(stdout);
    check_connect_interrupted(end);
    puts("connect ok");
    check_time_out(end);
    check_time_out_of_sends(end);
    puts("time-outs ok");
    check_ioctl(end);
    puts("ioctl ok");
    check_vectors(end);
    puts("vectors ok");
    check_copies(end);
    puts("copies ok");
    NEED(close(end[0]) == 0 && close(end[1]) == 0);
    check_close_during_a_call();
    puts("close during a call ok");
    check_shutdown_during_a_call(SHUT_RD);
    check_shutdown_during_a_call(SHUT_RDWR);
    puts("shutdown during a call ok");
    check_shutdown_of_a_listener();
    puts("shutdown of a listener ok");
    check_tcp_instead();
    puts("TCP instead ok");
    return 0;
}
