// SPDX-License-Identifier: Apache-2.0
// rsock ADDRESS [CHECK...]: what rsockets promise, checked in one process whose both ends meet at
// an address of its own device. Prints one line for each check; exits with 1 at the first that
// fails.
#include "../wait.h"
#include "need.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/sa.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_storage home;
static socklen_t home_len;

// ---- sleeps of the library

// rsockets sleep in poll() and, at exit, in nanosleep(); these stand before the C library's. Checks
// judge by how sleeps end, not by how long they take, which a busy machine decides.
static struct {
    atomic_uint woken, ran_out, interrupted;
    atomic_long rested_ns; // all together
} sleeps;
static _Thread_local bool judged;  // sleeps of this thread are counted
static void (*before_sleep)(void); // called once, by a thread that is judged; it then sleeps for
                                   // ever
static void (*at_look)(void);      // called once, when such a thread looks at ordinary descriptors

static int count_sleep(int ready)
{
    if (ready < 0 && errno == EINTR)
        atomic_fetch_add(&sleeps.interrupted, 1);
    if (ready == 0)
        atomic_fetch_add(&sleeps.ran_out, 1);
    if (ready > 0)
        atomic_fetch_add(&sleeps.woken, 1);
    return ready;
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    void (**hook)(void) = timeout_ms ? &before_sleep : &at_look;
    void (*call)(void) = judged ? *hook : NULL;

    if (call) {
        *hook = NULL;
        judged = false; // what it does is not
        call();
        judged = true;
        timeout_ms = timeout_ms ? -1 : 0;
    }
    const struct timespec time = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    int ready = ppoll(fds, count, timeout_ms < 0 ? NULL : &time, NULL);
    return judged && timeout_ms ? count_sleep(ready) : ready;
}

int nanosleep(const struct timespec *time, struct timespec *left) // the library's, counted
{
    if (judged)
        atomic_fetch_add(&sleeps.rested_ns, time->tv_sec * 1000000000 + time->tv_nsec);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left) ? -1 : 0; // as it asked for
}

static void begin_judging(void)
{
    atomic_store(&sleeps.woken, 0);
    atomic_store(&sleeps.ran_out, 0);
    atomic_store(&sleeps.interrupted, 0);
    atomic_store(&sleeps.rested_ns, 0);
    judged = true;
}

// ---- sockets

enum {
    FOREVER = -1, // the test's own time limit is the only one
    EXITS = 2
};

static struct sockaddr *at_port(struct sockaddr_storage *a, in_port_t port)
{
    *a = home;
    ((struct sockaddr_in *)a)->sin_port = port; // the same place in IPv6
    return (struct sockaddr *)a;
}

static in_port_t port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    NEED(rgetsockname(fd, (struct sockaddr *)&a, &len) == 0);
    return ((struct sockaddr_in *)&a)->sin_port;
}

static int listener(void)
{
    struct sockaddr_storage a;
    int fd = rsocket(home.ss_family, SOCK_STREAM, 0);
    NEED(fd >= 0);
    NEED(rbind(fd, at_port(&a, 0), home_len) == 0);
    NEED(rlisten(fd, 100) == 0);
    NEED(port_of(fd) != 0);
    return fd;
}

static void nonblocking(int fd, bool on)
{
    NEED(rfcntl(fd, F_SETFL, on ? O_NONBLOCK : 0) == 0);
    NEED(((rfcntl(fd, F_GETFL) & O_NONBLOCK) != 0) == on);
}

static short wait_for(int fd, short events, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n = rpoll(&p, 1, timeout_ms);
    NEED(n >= 0);
    return n ? p.revents : 0;
}

// Connects end[0], without a second thread.
static void meet(int l, int end[2])
{
    struct sockaddr_storage a;
    int error = -1;
    socklen_t len = sizeof error;

    nonblocking(end[0], true);
    FAILS(EINPROGRESS, rconnect(end[0], at_port(&a, port_of(l)), home_len));
    for (;;) { // both sides' steps
        struct pollfd p[2] = {{.fd = l, .events = POLLIN}, {.fd = end[0], .events = POLLOUT}};
        NEED(rpoll(p, 2, FOREVER) > 0);
        NEED(!(p[1].revents & (POLLERR | POLLHUP)));
        if (p[0].revents & POLLIN)
            break;
    }
    end[1] = raccept(l, NULL, NULL);
    NEED(end[1] >= 0);
    NEED(wait_for(end[0], POLLOUT, FOREVER) == POLLOUT);
    NEED(rgetsockopt(end[0], SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    nonblocking(end[0], false);
}

// Two connected ends.
static void pair_on(int l, int end[2], int buffer_bytes)
{
    end[0] = rsocket(home.ss_family, SOCK_STREAM, 0);
    NEED(end[0] >= 0);
    if (buffer_bytes) {
        NEED(rsetsockopt(end[0], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(int)) == 0);
        NEED(rsetsockopt(end[0], SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(int)) == 0);
    }
    meet(l, end);
}

static void pair(int end[2], int buffer_bytes)
{
    int l = listener();
    if (buffer_bytes) {
        NEED(rsetsockopt(l, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(int)) == 0);
        NEED(rsetsockopt(l, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(int)) == 0);
    }
    pair_on(l, end, buffer_bytes);
    NEED(rclose(l) == 0);
}

static void close_both(const int end[2])
{
    NEED(rclose(end[0]) == 0);
    NEED(rclose(end[1]) == 0);
}

static rlim_t allow_many(void)
{
    struct rlimit most;

    NEED(getrlimit(RLIMIT_NOFILE, &most) == 0);
    most.rlim_cur = most.rlim_max;
    NEED(setrlimit(RLIMIT_NOFILE, &most) == 0);
    return most.rlim_cur;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void check_refusals(void)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    char byte;
    fd_set set;
    int fd = rsocket(home.ss_family, SOCK_STREAM, 0);

    FAILS(ENOTSUP, rsocket(AF_UNIX, SOCK_STREAM, 0));
    FAILS(ENOTCONN, rsend(fd, "x", 1, 0));
    FAILS(ENOTCONN, rrecv(fd, &byte, 1, 0));
    FAILS(ENOTCONN, rgetpeername(fd, (struct sockaddr *)&a, &len));
    FAILS(ENOTCONN, rshutdown(fd, SHUT_WR));
    FAILS(EINVAL, rshutdown(fd, 9));
    FAILS(EINVAL, raccept(fd, NULL, NULL));
    FAILS(EBADF, rclose(-1));
    FAILS(EBADF, rread(100000, &byte, 1));
    FD_ZERO(&set);
    FAILS(EINVAL, rselect(FD_SETSIZE + 1, &set, NULL, NULL, NULL));
    FAILS(ECONNREFUSED, rconnect(fd, at_port(&a, htons(1)), home_len));
    NEED(rclose(fd) == 0);
    FAILS(EBADF, rclose(fd));
}

static void check_nonblocking(void)
{
    static char buffer[100000];
    int end[2], l = listener();
    size_t sent = 0, got = 0;
    ssize_t n;

    nonblocking(l, true);
    FAILS(EAGAIN, raccept(l, NULL, NULL));
    NEED(wait_for(l, POLLIN, 0) == 0);
    pair_on(l, end, 0);
    nonblocking(end[0], true);
    FAILS(EAGAIN, rrecv(end[0], buffer, 1, 0));
    FAILS(EAGAIN, rrecv(end[1], buffer, 1, MSG_DONTWAIT));
    while ((n = rsend(end[0], buffer, sizeof buffer, 0)) > 0)
        sent += (size_t)n;
    NEED(errno == EAGAIN && sent > 0);
    while (wait_for(end[0], POLLOUT, 50) == POLLOUT) // until nothing moves any more
        while ((n = rsend(end[0], buffer, sizeof buffer, 0)) > 0)
            sent += (size_t)n;
    NEED(wait_for(end[1], POLLIN | POLLOUT, FOREVER) == (POLLIN | POLLOUT));
    while (got < sent) {
        n = rrecv(end[1], buffer, sizeof buffer, 0);
        NEED(n > 0);
        got += (size_t)n;
    }
    NEED(wait_for(end[0], POLLOUT, FOREVER) == POLLOUT);
    close_both(end);
    NEED(rclose(l) == 0);
}

static void check_half_close(void)
{
    char text[8];
    int end[2];

    pair(end, 0);
    NEED(rsend(end[0], "last", 4, 0) == 4);
    NEED(rshutdown(end[0], SHUT_WR) == 0);
    FAILS(EPIPE, rsend(end[0], "x", 1, 0));
    NEED(rrecv(end[1], text, 2, MSG_PEEK) == 2 && memcmp(text, "la", 2) == 0);
    NEED(rrecv(end[1], text, 8, MSG_WAITALL) == 4 && memcmp(text, "last", 4) == 0);
    NEED(rrecv(end[1], text, 8, 0) == 0);
    NEED(rsend(end[1], "back", 4, 0) == 4);
    NEED(rrecv(end[0], text, 8, 0) == 4);
    NEED(rshutdown(end[1], SHUT_WR) == 0);
    NEED(rrecv(end[0], text, 8, 0) == 0);
    close_both(end);
}

static void check_close(void)
{
    char text[8];
    int end[2];

    pair(end, 0);
    NEED(rsend(end[0], "bye", 3, 0) == 3);
    NEED(rclose(end[0]) == 0);
    NEED(wait_for(end[1], POLLIN, FOREVER) & POLLIN);
    NEED(rrecv(end[1], text, 8, 0) == 3);
    NEED(rrecv(end[1], text, 8, 0) == 0);
    NEED(wait_for(end[1], POLLIN, 0) == (POLLIN | POLLHUP));
    FAILS(ECONNRESET, rsend(end[1], "x", 1, 0));
    FAILS(EPIPE, rsend(end[1], "x", 1, 0));
    NEED(rclose(end[1]) == 0);
}

static void *connect_and_read(void *port)
{
    struct sockaddr_storage a;
    char byte;
    int fd = rsocket(home.ss_family, SOCK_STREAM, 0);

    // The server closes while the handshake goes on: refused before the reply came, reset behind
    // it, and the end of a connection that stands. Nothing here knows how far it was.
    if (rconnect(fd, at_port(&a, *(const in_port_t *)port), home_len))
        NEED(errno == ECONNREFUSED || errno == ECONNRESET);
    else
        NEED(rrecv(fd, &byte, 1, 0) == 0);
    NEED(rclose(fd) == 0);
    return NULL;
}

// A server that thinks better of it, maybe before the client's last step.
static void check_accept_and_close(void)
{
    int l = listener();
    in_port_t port = port_of(l);

    for (int i = 0; i < 50; i++) {
        pthread_t client;
        NEED(pthread_create(&client, NULL, connect_and_read, &port) == 0);
        int fd = raccept(l, NULL, NULL);
        NEED(fd >= 0 && rclose(fd) == 0);
        NEED(pthread_join(client, NULL) == 0);
    }
    NEED(rclose(l) == 0);
}

static void check_poll(void)
{
    int end[2], pipes[2];
    char byte;

    pair(end, 0);
    NEED(pipe(pipes) == 0);
    struct pollfd p[3] = {{.fd = end[1], .events = POLLIN},
                          {.fd = pipes[0], .events = POLLIN},
                          {.fd = -1, .events = POLLIN}};
    double began = now_s();
    begin_judging();
    NEED(rpoll(p, 3, 400) == 0);
    judged = false;
    NEED(now_s() - began >= 0.39);           // a busy machine only makes it more
    NEED(atomic_load(&sleeps.ran_out) >= 1); // in which it slept
    NEED(write(pipes[1], "x", 1) == 1);
    NEED(rpoll(p, 3, FOREVER) == 1 && p[1].revents == POLLIN && !p[0].revents);
    NEED(rsend(end[0], "y", 1, 0) == 1);
    NEED(read(pipes[0], &byte, 1) == 1);
    NEED(rpoll(p, 3, FOREVER) == 1 && p[0].revents == POLLIN && !p[1].revents);
    if (end[1] < FD_SETSIZE) {
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(end[1], &in);
        FD_SET(end[1], &out);
        FD_SET(pipes[0], &in);
        int most = (end[1] > pipes[0] ? end[1] : pipes[0]) + 1;
        NEED(rselect(most, &in, &out, NULL, NULL) == 2);
        NEED(FD_ISSET(end[1], &in) && FD_ISSET(end[1], &out) && !FD_ISSET(pipes[0], &in));
    }
    close(pipes[0]);
    close(pipes[1]);
    close_both(end);
}

// The calls of files, and those with vectors.
static void check_vectors(void)
{
    struct sockaddr_storage at[2] = {0};
    socklen_t len[2] = {sizeof at[0], sizeof at[1]};
    char text[8], first[3], second[8], letters[] = "abcdef";
    struct iovec out[2] = {{letters, 2}, {letters + 2, 4}}, in[2] = {{first, 3}, {second, 3}};
    struct msghdr given = {.msg_iov = out, .msg_iovlen = 2};
    struct msghdr taken = {.msg_iov = in, .msg_iovlen = 2};
    int end[2];

    pair(end, 0);
    NEED(rgetpeername(end[0], (struct sockaddr *)&at[0], &len[0]) == 0);
    NEED(rgetsockname(end[1], (struct sockaddr *)&at[1], &len[1]) == 0);
    NEED(len[0] == len[1] && memcmp(&at[0], &at[1], len[0]) == 0);
    NEED(rwrite(end[0], "xyz", 3) == 3);
    NEED(rread(end[1], text, sizeof text) == 3 && memcmp(text, "xyz", 3) == 0);
    NEED(rwritev(end[0], out, 2) == 6);
    WAIT_UNTIL(rrecv(end[1], text, 6, MSG_PEEK) == 6);
    NEED(rreadv(end[1], in, 2) == 6);
    NEED(memcmp(first, "abc", 3) == 0 && memcmp(second, "def", 3) == 0);
    memset(first, 0, sizeof first);
    NEED(rsendmsg(end[0], &given, 0) == 6);
    NEED(rrecvmsg(end[1], &taken, MSG_WAITALL) == 6);
    NEED(memcmp(first, "abc", 3) == 0 && memcmp(second, "def", 3) == 0);
    NEED(rshutdown(end[0], SHUT_WR) == 0);
    FAILS(EPIPE, rwrite(end[0], "x", 1));
    FAILS(EPIPE, rwritev(end[0], out, 2));
    FAILS(EPIPE, rsendmsg(end[0], &given, 0));
    NEED(rreadv(end[1], in, 2) == 0 && rrecvmsg(end[1], &taken, 0) == 0);
    close_both(end);
    FAILS(EBADF, rwritev(end[0], out, 2));
    FAILS(EBADF, rrecvmsg(end[1], &taken, 0));
    FAILS(EBADF, rgetpeername(end[0], (struct sockaddr *)&at[0], &len[0]));
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void check_signals(void)
{
    struct sigaction act = {.sa_handler = on_alarm};
    // Again and again: one alone might come before the sleep.
    struct itimerval soon = {{0, 200000}, {0, 200000}}, never = {{0, 0}, {0, 0}};
    int end[2];
    char byte;

    pair(end, 0);
    NEED(sigaction(SIGALRM, &act, NULL) == 0);
    NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    begin_judging();
    FAILS(EINTR, rrecv(end[0], &byte, 1, 0));
    judged = false;
    NEED(atomic_load(&sleeps.interrupted) >= 1);
    struct pollfd p = {.fd = end[0], .events = POLLIN};
    FAILS(EINTR, rpoll(&p, 1, -1));
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
    close_both(end);
}

enum {
    SIGNALS = 5,
    FEW_RECEIVES = 32
};

static atomic_bool has_ended; // rshutdown() has returned

static void *read_late(void *fd)
{
    char byte;
    ssize_t got;

    WAIT_UNTIL(atomic_load(&sleeps.interrupted) >= SIGNALS || atomic_load(&has_ended));
    NEED(!atomic_load(&has_ended));
    while ((got = rrecv(*(const int *)fd, &byte, 1, 0)) == 1)
        ;
    NEED(got == 0);
    return NULL;
}

// Signals do not cut the end of a stream short: here it takes until the reader looks, since
// messages have taken all its receives.
static void check_signals_at_the_end(void)
{
    struct sigaction act = {.sa_handler = on_alarm};
    const struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    int end[2], l = listener(), receives = FEW_RECEIVES;
    pthread_t reader;
    sigset_t alarm;

    NEED(rsetsockopt(l, SOL_RDMA, RDMA_RQSIZE, &receives, sizeof receives) == 0);
    pair_on(l, end, 0);
    while (rsend(end[0], "x", 1, MSG_DONTWAIT) == 1) // less than its own queue holds
        ;
    NEED(errno == EAGAIN);
    NEED(sigaction(SIGALRM, &act, NULL) == 0);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    begin_judging();
    NEED(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
    NEED(pthread_create(&reader, NULL, read_late, &end[1]) == 0);
    NEED(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
    NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
    NEED(rshutdown(end[0], SHUT_WR) == 0);
    atomic_store(&has_ended, true);
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
    judged = false;
    NEED(pthread_join(reader, NULL) == 0);
    close_both(end);
    NEED(rclose(l) == 0);
}

// ---- a connection that stands while rpoll() is between looking and sleeping

static int joined[2]; // the client, and the end that the server has accepted

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

// The client's last step; the server's end, whose descriptor is that of its events, is told.
static void finish_connecting(void)
{
    NEED(wait_for(joined[0], POLLOUT, FOREVER) == POLLOUT);
    WAIT_UNTIL(is_readable(joined[1]));
}

static void send_a_byte(void)
{
    NEED(rsend(joined[0], "x", 1, 0) == 1);
}

// rpoll() has looked at the rsocket, and looks at an ordinary descriptor: the connection stands
// now, so that there is more to watch than before. A byte that comes as it sleeps wakes it up;
// without that it would sleep for ever, and the test end by its time limit.
static void check_poll_in_between(void)
{
    struct sockaddr_storage a;
    int pipes[2], l = listener();

    NEED(pipe(pipes) == 0);
    joined[0] = rsocket(home.ss_family, SOCK_STREAM, 0);
    nonblocking(joined[0], true);
    FAILS(EINPROGRESS, rconnect(joined[0], at_port(&a, port_of(l)), home_len));
    while (wait_for(l, POLLIN, 1) == 0)
        wait_for(joined[0], POLLOUT, 0); // both sides' steps
    joined[1] = raccept(l, NULL, NULL);
    NEED(joined[1] >= 0);
    struct pollfd p[2] = {{.fd = joined[1], .events = POLLIN}, {.fd = pipes[0], .events = POLLIN}};
    at_look = finish_connecting;
    before_sleep = send_a_byte;
    begin_judging();
    NEED(rpoll(p, 2, FOREVER) == 1 && p[0].revents & POLLIN);
    judged = false;
    NEED(!at_look && !before_sleep && atomic_load(&sleeps.woken) >= 1);
    close(pipes[0]);
    close(pipes[1]);
    close_both(joined);
    NEED(rclose(l) == 0);
}

// An idle connection is probed, and stays; the far end sees nothing of it. The probe's completion
// ends a sleep, as nothing else does here.
static void check_keep_alive(void)
{
    int end[2], on = 1, second = 1;
    char byte;

    pair(end, 0);
    begin_judging();
    NEED(wait_for(end[0], POLLIN, 400) == 0);
    NEED(atomic_load(&sleeps.ran_out) >= 1 && atomic_load(&sleeps.woken) == 0);
    NEED(rsetsockopt(end[0], SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
    NEED(rsetsockopt(end[0], IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof second) == 0);
    while (atomic_load(&sleeps.woken) < 2)
        NEED(wait_for(end[0], POLLIN, 400) == 0);
    judged = false;
    NEED(wait_for(end[1], POLLIN, 0) == 0);
    NEED(rsend(end[1], "a", 1, 0) == 1);
    NEED(rrecv(end[0], &byte, 1, 0) == 1);
    close_both(end);
}

// Makes a neighbour of the address the one that is meant.
static void move_home(int by)
{
    struct in_addr *own = &((struct sockaddr_in *)&home)->sin_addr;
    own->s_addr = htonl(ntohl(own->s_addr) + (uint32_t)by);
}

static void live_at_home(void)
{
    NEED(setenv("VERBENA_ADDRESS", inet_ntoa(((struct sockaddr_in *)&home)->sin_addr), 1) == 0);
}

// A child that does not close leaves through exit(), as its parent sees by the end.
static void check_exit(void)
{
    struct sockaddr_storage a;
    int ready[2], l;
    char text[8];

    if (home.ss_family != AF_INET)
        return;
    NEED(pipe(ready) == 0);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        struct in_addr own = ((struct sockaddr_in *)&home)->sin_addr;
        in_port_t port;
        own.s_addr = htonl(ntohl(own.s_addr) + 1); // the neighbour, so that packets go some way
        NEED(setenv("VERBENA_ADDRESS", inet_ntoa(own), 1) == 0);
        NEED(read(ready[0], &port, sizeof port) == sizeof port);
        int fd = rsocket(home.ss_family, SOCK_STREAM, 0);
        NEED(rconnect(fd, at_port(&a, port), home_len) == 0);
        NEED(rsend(fd, "farewell", 8, 0) == 8);
        exit(0);
    }
    l = listener();
    in_port_t port = port_of(l);
    NEED(write(ready[1], &port, sizeof port) == sizeof port);
    int fd = raccept(l, NULL, NULL);
    NEED(fd >= 0);
    NEED(rrecv(fd, text, 8, MSG_WAITALL) == 8);
    NEED(rrecv(fd, text, 8, 0) == 0);
    NEED(rclose(fd) == 0 && rclose(l) == 0);
    close(ready[0]);
    close(ready[1]);
}

static void leave_now(int signal)
{
    (void)signal;
    exit(0);
}

// Reads one of two connections without a pause, so the signal most likely comes while the thread
// holds the locks of that one and of the NIC.
static void read_until_interrupted(const int ready[2])
{
    const struct itimerval once = {{0, 0}, {0, 20000}};
    struct sigaction act = {.sa_handler = leave_now};
    struct sockaddr_storage a;
    in_port_t port;
    int fd[2];
    char byte;

    move_home(1);
    live_at_home();
    move_home(-1);
    NEED(read(ready[0], &port, sizeof port) == sizeof port);
    for (int i = 0; i < 2; i++) {
        fd[i] = rsocket(home.ss_family, SOCK_STREAM, 0);
        NEED(rconnect(fd[i], at_port(&a, port), home_len) == 0);
    }
    NEED(rsend(fd[1], "farewell", 8, 0) == 8);
    nonblocking(fd[0], true);
    NEED(!sigaction(SIGALRM, &act, NULL) && !setitimer(ITIMER_REAL, &once, NULL));
    for (;;)
        NEED(rrecv(fd[0], &byte, 1, 0) < 0);
}

// A process that exits so while it has two connections to here.
static void meet_interrupted(int fd[2])
{
    int ready[2], status, l = listener();
    in_port_t port = port_of(l);
    char text[8];
    pid_t child;

    NEED(pipe(ready) == 0);
    NEED(write(ready[1], &port, sizeof port) == sizeof port);
    NEED((child = fork()) >= 0);
    if (child == 0)
        read_until_interrupted(ready);
    for (int i = 0; i < 2; i++)
        NEED((fd[i] = raccept(l, NULL, NULL)) >= 0);
    NEED(rrecv(fd[1], text, 8, MSG_WAITALL) == 8);
    NEED(waitpid(child, &status, 0) == child && status == 0);
    NEED(rclose(l) == 0);
    close(ready[0]);
    close(ready[1]);
}

// exit() in a signal handler ends, whatever the thread was doing. Peers may not hear of that: to
// them it is as if the process had been killed.
static void check_exit_in_a_handler(void)
{
    int fd[EXITS][2];

    if (home.ss_family != AF_INET)
        return;
    for (int i = 0; i < EXITS; i++)
        meet_interrupted(fd[i]);
    for (int i = 0; i < EXITS; i++)
        NEED(rclose(fd[i][0]) == 0 && rclose(fd[i][1]) == 0);
}

// A process that accepts some connections and stops.
static void stop_after(int l, int count)
{
    char byte;

    for (int i = 0; i < count; i++) {
        int fd = raccept(l, NULL, NULL);
        NEED(fd >= 0 && rrecv(fd, &byte, 1, 0) == 1);
    }
    raise(SIGSTOP);
}

static void connect_often(in_port_t port, int count)
{
    struct sockaddr_storage a;

    for (int i = 0; i < count; i++) {
        int fd = rsocket(home.ss_family, SOCK_STREAM, 0);
        NEED(rconnect(fd, at_port(&a, port), home_len) == 0);
        NEED(rsend(fd, "x", 1, 0) == 1);
    }
}

enum {
    DEAD = 30,
    EXIT_MS = 2 * 1000 // a second for rsockets, and one for the manager
};

static bool leaves; // this process is the one whose exit is judged

static pid_t fork_server(const int ready[2])
{
    pid_t child = fork();

    NEED(child >= 0);
    if (child > 0)
        return child;
    move_home(2);
    live_at_home();
    int l = listener();
    in_port_t port = port_of(l);
    NEED(write(ready[1], &port, sizeof port) == sizeof port);
    stop_after(l, DEAD);
    _exit(0);
}

static pid_t fork_client(const int ready[2], pid_t server)
{
    in_port_t port;
    pid_t child = fork();

    NEED(child >= 0);
    if (child > 0)
        return child;
    move_home(3);
    live_at_home();
    move_home(-1);
    NEED(read(ready[0], &port, sizeof port) == sizeof port);
    connect_often(port, DEAD);
    WAIT_UNTIL(wait_state(".", server) == 'T');
    begin_judging();
    leaves = true;
    exit(0);
}

// All rsockets have one second together, and each that comes later two waits of up to a
// millisecond; one after the other they would have a second each. A rest takes longer than it asks
// for, so what all of them asked for is less than these times.
static void __attribute__((destructor)) judge_exit(void)
{
    long rested_ms = atomic_load(&sleeps.rested_ns) / 1000000;

    if (!leaves || (rested_ms > 0 && rested_ms <= EXIT_MS + DEAD * 2))
        return;
    fprintf(stderr, "exit() rested for %ld ms\n", rested_ms);
    _exit(1);
}

// A process exits soon even if many peers do not answer.
static void check_exit_among_the_dead(void)
{
    int ready[2], status;

    if (home.ss_family != AF_INET)
        return;
    NEED(pipe(ready) == 0);
    pid_t server = fork_server(ready), client = fork_client(ready, server);
    NEED(waitpid(client, &status, 0) == client);
    NEED(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
    NEED(status == 0);
    close(ready[0]);
    close(ready[1]);
}

static void check_options(void)
{
    int value = 0, fd = rsocket(home.ss_family, SOCK_STREAM, 0);
    socklen_t len = sizeof value;
    const int sizes[] = {RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE};

    for (int i = 0; i < 4; i++) {
        int want = 100 + i;
        NEED(rsetsockopt(fd, SOL_RDMA, sizes[i], &want, sizeof want) == 0);
        NEED(rgetsockopt(fd, SOL_RDMA, sizes[i], &value, &len) == 0 && value == want);
    }
    value = 1;
    NEED(rsetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
    NEED(rgetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len) == 0 && value == 1);
    NEED(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value) == 0);
    FAILS(ENOTSUP, rsetsockopt(fd, SOL_SOCKET, SO_BROADCAST, &value, sizeof value));
    FAILS(ENOTSUP, rgetsockopt(fd, 999, 1, &value, &len));
    NEED(rclose(fd) == 0);
}

// What one connection says of its path is the path of the next one, also with a smaller MTU.
static void check_route(void)
{
    int end[2], l = listener(), segment;
    struct ibv_path_data path;
    struct sockaddr_storage a;
    socklen_t len = sizeof path;

    pair_on(l, end, 0);
    NEED(rgetsockopt(end[0], SOL_RDMA, RDMA_ROUTE, &path, &len) == 0 && len == sizeof path);
    close_both(end);
    path.path.mtu = 2 << 6 | IBV_MTU_512;
    end[0] = rsocket(home.ss_family, SOCK_STREAM, 0);
    NEED(rsetsockopt(end[0], SOL_RDMA, RDMA_ROUTE, &path, sizeof path) == 0);
    meet(l, end);
    len = sizeof segment;
    NEED(rgetsockopt(end[0], IPPROTO_TCP, TCP_MAXSEG, &segment, &len) == 0 && segment == 512);
    close_both(end);
    path.flags = 0;
    end[0] = rsocket(home.ss_family, SOCK_STREAM, 0);
    NEED(rsetsockopt(end[0], SOL_RDMA, RDMA_ROUTE, &path, sizeof path) == 0);
    FAILS(EINVAL, rconnect(end[0], at_port(&a, port_of(l)), home_len));
    NEED(rclose(end[0]) == 0 && rclose(l) == 0);
}

static void check_mappings(void)
{
    static char target[10000], source[10000];
    int end[2], l = listener(), places = 2;
    char byte;

    memset(source, 7, sizeof source);
    pair(end, 0);
    FAILS(ENOMEM, riomap(end[1], target, sizeof target, PROT_WRITE, 0, 100)); // none were asked for
    close_both(end);
    NEED(rsetsockopt(l, SOL_RDMA, RDMA_IOMAPSIZE, &places, sizeof places) == 0);
    pair_on(l, end, 0); // the accepting end has room for what the other maps
    NEED(riomap(end[0], target, sizeof target, PROT_WRITE, 0, 100) == 100);
    NEED(riowrite(end[1], source, 10, 100, 0) == 0); // it was not told yet
    NEED(rsend(end[0], "m", 1, 0) == 1);
    NEED(rrecv(end[1], &byte, 1, 0) == 1);
    NEED(riowrite(end[1], source, 5000, 100 + 5000, 0) == 5000);
    NEED(riowrite(end[1], source, 6000, 100 + 9000, 0) == 1000); // as far as it goes
    NEED(rsend(end[1], "d", 1, 0) == 1);
    NEED(rrecv(end[0], &byte, 1, 0) == 1);
    NEED(target[4999] == 0 && target[5000] == 7 && target[9999] == 7);
    NEED(riounmap(end[0], target, sizeof target) == 0);
    FAILS(EINVAL, riounmap(end[0], target, sizeof target));
    close_both(end);
    NEED(rclose(l) == 0);
}

static void two_datagram_sockets(int fd[2], struct sockaddr_storage at[2])
{
    for (int i = 0; i < 2; i++) {
        fd[i] = rsocket(home.ss_family, SOCK_DGRAM, 0);
        NEED(fd[i] >= 0);
        NEED(rbind(fd[i], at_port(&at[i], 0), home_len) == 0);
        at_port(&at[i], port_of(fd[i]));
    }
}

static void check_datagrams(void)
{
    static char buffer[3000];
    struct sockaddr_storage at[2], from;
    const struct sockaddr *a = (struct sockaddr *)&at[0], *b = (struct sockaddr *)&at[1];
    socklen_t len = sizeof from;
    int fd[2];

    two_datagram_sockets(fd, at);
    FAILS(EDESTADDRREQ, rsend(fd[0], "x", 1, 0));
    FAILS(EAGAIN, rrecv(fd[0], buffer, 1, MSG_DONTWAIT));
    FAILS(EMSGSIZE, rsendto(fd[0], buffer, sizeof buffer, 0, b, home_len));
    for (int i = 0; i < 100; i++) { // the first by UDP, the rest not
        size_t bytes = (size_t)(i * 10);
        memset(buffer, i, bytes);
        NEED(rsendto(fd[0], buffer, bytes, 0, b, home_len) == (ssize_t)bytes);
        len = sizeof from;
        memset(buffer, 0xee, sizeof buffer);
        NEED(rrecvfrom(fd[1], buffer, 2000, 0, (struct sockaddr *)&from, &len) == (ssize_t)bytes);
        NEED(memcmp(&from, a, len) == 0);
        NEED(!bytes || (buffer[0] == i && buffer[bytes - 1] == i));
        NEED((unsigned char)buffer[bytes] == 0xee);
        NEED(rsendto(fd[1], "ok", 2, 0, (struct sockaddr *)&from, len) == 2);
        NEED(wait_for(fd[0], POLLIN, FOREVER) == POLLIN);
        NEED(rrecv(fd[0], buffer, 2000, 0) == 2);
    }
    NEED(rconnect(fd[0], b, home_len) == 0);
    NEED(rsend(fd[0], "connected", 9, 0) == 9);
    NEED(rrecv(fd[1], buffer, 4, 0) == 4); // the rest of a datagram is lost
    FAILS(EAGAIN, rrecv(fd[1], buffer, 4, MSG_DONTWAIT));
    close_both(fd);
}

enum {
    STRANGERS = 1100 // more than are remembered
};

// A peer that was forgotten for others is found again, by UDP.
static void check_many_peers(void)
{
    struct sockaddr_storage at[2], stranger;
    int fd[2];
    char byte;

    two_datagram_sockets(fd, at);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++) {
            NEED(rsendto(fd[0], &(char){(char)i}, 1, 0, (struct sockaddr *)&at[1], home_len) == 1);
            NEED(wait_for(fd[1], POLLIN, FOREVER) == POLLIN);
            NEED(rrecv(fd[1], &byte, 1, 0) == 1 && byte == i);
            NEED(rsendto(fd[1], &byte, 1, 0, (struct sockaddr *)&at[0], home_len) == 1);
            NEED(wait_for(fd[0], POLLIN, FOREVER) == POLLIN);
            NEED(rrecv(fd[0], &byte, 1, 0) == 1 && byte == i);
        }
        for (int i = 0; i < STRANGERS; i++)
            NEED(rsendto(fd[0], "?", 1, 0, at_port(&stranger, htons((in_port_t)(2000 + i))),
                         home_len) == 1);
    }
    close_both(fd);
}

enum {
    MANY = 500
};

static void check_many(void)
{
    static int ends[MANY][2];
    int l = listener(), small = 4096;
    char byte;

    allow_many();
    NEED(rsetsockopt(l, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    NEED(rsetsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    for (int i = 0; i < MANY; i++)
        pair_on(l, ends[i], small);
    for (int i = 0; i < MANY; i++) {
        byte = (char)i;
        NEED(rsend(ends[i][0], &byte, 1, 0) == 1);
    }
    for (int i = MANY - 1; i >= 0; i--)
        NEED(rrecv(ends[i][1], &byte, 1, 0) == 1 && byte == (char)i);
    for (int i = 0; i < MANY; i++)
        close_both(ends[i]);
    NEED(rclose(l) == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {
    {"exit", check_exit},
    {"exit-in-a-handler", check_exit_in_a_handler},
    {"exit-among-the-dead", check_exit_among_the_dead},
    {"keep-alive", check_keep_alive},
    {"refusals", check_refusals},
    {"options", check_options},
    {"route", check_route},
    {"nonblocking", check_nonblocking},
    {"half-close", check_half_close},
    {"close", check_close},
    {"accept-and-close", check_accept_and_close},
    {"vectors", check_vectors},
    {"poll", check_poll},
    {"signals", check_signals},
    {"signals-at-the-end", check_signals_at_the_end},
    {"poll-in-between", check_poll_in_between},
    {"mappings", check_mappings},
    {"datagrams", check_datagrams},
    {"many-peers", check_many_peers},
    {"many", check_many},
};

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc <= 2;
}

static bool parse_home(const char *text)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)&home;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&home;

    home_len = sizeof *in4;
    home.ss_family = AF_INET;
    if (inet_pton(AF_INET, text, &in4->sin_addr) == 1)
        return true;
    home_len = sizeof *in6;
    home.ss_family = AF_INET6;
    return inet_pton(AF_INET6, text, &in6->sin6_addr) == 1;
}

int main(int argc, char **argv)
{
    if (argc < 2 || !parse_home(argv[1])) {
        fprintf(stderr, "usage: rsock ADDRESS [CHECK...]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (!is_wanted(checks[i].name, argc, argv))
            continue;
        checks[i].run();
        printf("%s ok\n", checks[i].name);
        fflush(stdout);
    }
    return 0;
}
