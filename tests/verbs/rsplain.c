// SPDX-License-Identifier: Apache-2.0
// rsplain ADDRESS: a program that knows sockets only, run with --rsockets; both ends are in one
// process. What programs do to sockets besides the plain calls reaches the rsockets behind them.
// Prints one line for each check; exits with 1 at the first that fails.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NEED(condition)                                                                           \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "rsplain: line %d: %s: errno %d (%s)\n", __LINE__, #condition, errno, \
                    strerror(errno));                                                             \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)
#define FAILS(call, error) NEED((call) == -1 && errno == (error))

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
    FAILS(connect(end[0], (struct sockaddr *)&at, sizeof at), EINTR);
    NEED(is_rsocket(end[0]));
    end[1] = accept(l, NULL, NULL);
    NEED(end[1] >= 0);
    struct pollfd p = {.fd = end[0], .events = POLLOUT};
    NEED(poll(&p, 1, 5000) == 1 && p.revents == POLLOUT);
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
    alarm_in(900000); // so that this ends at all
    FAILS(recv(end[0], &byte, 1, 0), EAGAIN);
    NEED(now_s() - began > 0.29 && now_s() - began < 0.8);
    NEED(getsockopt(end[0], SOL_SOCKET, SO_RCVTIMEO, &got, &len) == 0);
    NEED(got.tv_sec == 0 && got.tv_usec == 300000);
    NEED(setsockopt(end[0], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    alarm_in(500000);
    FAILS(recv(end[0], &byte, 1, 0), EINTR); // none again
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
    FAILS(send(end[0], buffer, sizeof buffer, 0), EAGAIN);
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
    FAILS(recv(end[0], &byte, 1, 0), EAGAIN);
    NEED(ioctl(end[0], FIONBIO, &off) == 0);
    alarm_in(300000);
    FAILS(recv(end[0], &byte, 1, 0), EINTR);
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
    return 0;
}
