// SPDX-License-Identifier: Apache-2.0
// rsliar ADDRESS: peers of an rsocket that speak rdma_cm and verbs by themselves and keep to no
// rules, in one process. Prints one line for each; exits with 1 at the first that is not noticed.
#include "../wait.h"
#include "need.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    HELLO_BYTES = 40,
};

enum lie {
    LEAVE,      // ends the connection without a word
    WRONG_KEY,  // writes where it may not
    TOO_MUCH,   // says that it wrote more than there is room for
    NO_SUCH_OP, // says something that means nothing
};

struct liar {
    struct sockaddr_storage to;
    enum lie lie;
    pthread_t thread;
    struct rdma_cm_id *id;
    bool sleeps;          // the victim does, in rrecv()
    atomic_bool expected; // the victim waits for something, and has not heard of the lie before
};

static struct sockaddr_storage home;
static socklen_t home_len;

// A target list that takes what the rsocket writes.
static void offer_list(struct liar *l, uint8_t hello[HELLO_BYTES])
{
    static uint64_t list[4];
    struct ibv_mr *mr =
        ibv_reg_mr(l->id->pd, list, sizeof list, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

    NEED(mr);
    for (int i = 0; i < 8; i++)
        hello[8 + i] = (uint8_t)((uintptr_t)list >> (56 - 8 * i));
    for (int i = 0; i < 4; i++)
        hello[16 + i] = (uint8_t)(mr->rkey >> (24 - 8 * i));
}

// A write of nothing with a message, or of a byte nowhere.
static void say(struct liar *l, uint32_t message, bool byte)
{
    static char data[8];
    struct ibv_mr *mr = ibv_reg_mr(l->id->pd, data, sizeof data, IBV_ACCESS_LOCAL_WRITE);
    NEED(mr);
    struct ibv_sge sge = {(uintptr_t)data, 1, mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge,
                                   .num_sge = byte,
                                   .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                   .imm_data = htonl(message),
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {.remote_addr = 4096, .rkey = 0xdead00}};
    NEED(ibv_post_send(l->id->qp, &wr, &bad) == 0);
}

static void *lie(void *arg)
{
    struct liar *l = arg;
    uint8_t hello[HELLO_BYTES] = {1, 0, 0, 16, [23] = 2};
    struct rdma_conn_param param = {.private_data = hello,
                                    .private_data_len = sizeof hello,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct ibv_recv_wr *bad, none = {0};

    NEED(rdma_create_id(NULL, &l->id, NULL, RDMA_PS_TCP) == 0);
    NEED(rdma_resolve_addr(l->id, NULL, (struct sockaddr *)&l->to, 2000) == 0);
    NEED(rdma_resolve_route(l->id, 2000) == 0);
    NEED(rdma_create_qp(l->id, NULL, &attr) == 0);
    offer_list(l, hello);
    for (int i = 0; i < 16; i++)
        NEED(ibv_post_recv(l->id->qp, &none, &bad) == 0);
    NEED(rdma_connect(l->id, &param) == 0);
    WAIT_UNTIL(atomic_load(&l->expected));
    WAIT_UNTIL(!l->sleeps || wait_state("self/task", getpid()) == 'S'); // the main thread
    switch (l->lie) {
    case LEAVE: NEED(rdma_disconnect(l->id) == 0); break;
    case WRONG_KEY: say(l, 1, true); break;
    case TOO_MUCH: say(l, 100000000, false); break;
    case NO_SUCH_OP: say(l, 3u << 29, false); break;
    }
    return NULL;
}

static int listener(struct liar *l)
{
    socklen_t len = sizeof l->to;
    int fd = rsocket(home.ss_family, SOCK_STREAM, 0);

    NEED(fd >= 0 && rbind(fd, (struct sockaddr *)&home, home_len) == 0 && rlisten(fd, 1) == 0);
    NEED(rgetsockname(fd, (struct sockaddr *)&l->to, &len) == 0);
    return fd;
}

static int meet(struct liar *l, enum lie what)
{
    int fd = listener(l);

    l->lie = what;
    NEED(pthread_create(&l->thread, NULL, lie, l) == 0);
    int made = raccept(fd, NULL, NULL);
    NEED(made >= 0);
    NEED(rclose(fd) == 0);
    return made;
}

static void part(struct liar *l, int fd)
{
    NEED(pthread_join(l->thread, NULL) == 0);
    NEED(rclose(fd) == 0);
    rdma_destroy_qp(l->id);
    NEED(rdma_destroy_id(l->id) == 0);
}

// One who sleeps, one who asks again and again, and one who asks rpoll() to: all hear of it.
static void check_sleeping(const char *name, enum lie what, int error)
{
    struct liar l = {.sleeps = true};
    char byte;
    int fd = meet(&l, what);

    atomic_store(&l.expected, true);
    ssize_t got = rrecv(fd, &byte, 1, 0);

    NEED(error ? got == -1 && errno == error : got == 0);
    part(&l, fd);
    printf("%s, sleeping ok\n", name);
}

static void check_asking(const char *name, enum lie what, int error)
{
    struct liar l = {0};
    char byte;
    int fd = meet(&l, what);
    ssize_t got = rrecv(fd, &byte, 1, MSG_DONTWAIT);

    NEED(got == -1 && errno == EAGAIN);
    atomic_store(&l.expected, true);
    WAIT_UNTIL((got = rrecv(fd, &byte, 1, MSG_DONTWAIT)) != -1 || errno != EAGAIN);
    NEED(error ? got == -1 && errno == error : got == 0);
    part(&l, fd);
    printf("%s, asking ok\n", name);
}

static void check_polling(const char *name, enum lie what)
{
    struct liar l = {0};
    int fd = meet(&l, what);
    struct pollfd p = {.fd = fd, .events = POLLIN};

    NEED(rpoll(&p, 1, 0) == 0);
    atomic_store(&l.expected, true);
    WAIT_UNTIL(rpoll(&p, 1, 0) != 0);
    NEED(p.revents & POLLHUP);
    part(&l, fd);
    printf("%s, polling ok\n", name);
}

// ---- a victim that exits

static _Thread_local bool exits; // this thread's exit is judged
static unsigned found;           // its looks that found that something had happened

int poll(struct pollfd *fds, nfds_t count, int timeout_ms) // the library's
{
    const struct timespec time = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    int ready = ppoll(fds, count, timeout_ms < 0 ? NULL : &time, NULL);

    found += exits && timeout_ms == 0 && ready > 0;
    return ready;
}

// The peer acknowledges nothing any more, so the rsocket's farewell ends by the peer's end, at the
// first look that finds it: of the wait for room, or of the one for the acknowledgement.
static void __attribute__((destructor)) judge_exit(void)
{
    if (!exits || (found >= 1 && found <= 2))
        return;
    fprintf(stderr, "exit() saw the peer's end %u times\n", found);
    _exit(1);
}

// In a process of its own, which may not have used verbs before.
static void check_exiting(void)
{
    struct liar l = {0};
    int status;
    pid_t child = fork();

    NEED(child >= 0);
    if (child == 0) {
        int fd = meet(&l, LEAVE);
        char byte; // a look takes the event that the connection stands
        WAIT_UNTIL(rrecv(fd, &byte, 1, MSG_DONTWAIT) < 0 && rshutdown(fd, SHUT_RD) == 0);
        atomic_store(&l.expected, true);
        NEED(pthread_join(l.thread, NULL) == 0);
        NEED(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1) == 1); // the end has come
        exits = true;
        exit(0);
    }
    NEED(waitpid(child, &status, 0) == child && status == 0);
    printf("leaving, exiting ok\n");
}

static void check(const char *name, enum lie what, int error)
{
    check_sleeping(name, what, error);
    check_asking(name, what, error);
    check_polling(name, what);
}

int main(int argc, char **argv)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)&home;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&home;

    setlinebuf(stdout);
    home_len = sizeof *in4;
    home.ss_family = AF_INET;
    if (argc == 2 && inet_pton(AF_INET, argv[1], &in4->sin_addr) != 1) {
        home_len = sizeof *in6;
        home.ss_family = AF_INET6;
        NEED(inet_pton(AF_INET6, argv[1], &in6->sin6_addr) == 1);
    }
    if (argc != 2) {
        fprintf(stderr, "usage: rsliar ADDRESS\n");
        return 2;
    }
    check_exiting();
    check("leaving", LEAVE, 0);
    check("a wrong key", WRONG_KEY, ECONNRESET);
    check("too much", TOO_MUCH, EPROTO);
    check("no such message", NO_SUCH_OP, EPROTO);
    return 0;
}
