// SPDX-License-Identifier: Apache-2.0
// A process of its own with a NIC and a queue pair.
#include "mate.h"

#include "../wait.h"
#include "flavour.h"
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct hello {
    struct vb_qp_peer peer;
    uint64_t addr;
    uint32_t key;
};

// ---- the mate's side

struct self {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_qp *qp;
    struct vb_mr *mr;
    uint8_t *memory;
};

static int complain(const char *what)
{
    fprintf(stderr, "mate: %s\n", what);
    return 1;
}

static int open_self(struct self *s, const char *address, const char *port, const char *faults)
{
    char why[VB_ERROR_TEXT] = "";
    const struct vb_nic_opts opts = {
        .address = address, .port = port, .faults = faults, .error_text = why};
    s->memory = calloc(1, DUO_BYTES);
    if (!s->memory || vb_nic_open(&opts, &s->nic) != 0)
        return complain(why);
    if (vb_pd_alloc(s->nic, &s->pd) || vb_mr_reg(s->pd, s->memory, DUO_BYTES, DUO_RIGHTS, &s->mr) ||
        vb_cq_create(s->nic, &(struct vb_cq_opts){.entries = 64}, &s->cq))
        return complain("no objects");
    const struct vb_qp_opts with = {
        .send_cq = s->cq, .recv_cq = s->cq, .send_depth = 16, .recv_depth = 16};
    return vb_qp_create(s->pd, &with, &s->qp) ? complain("no queue pair") : 0;
}

static int join_test(struct self *s, int fd)
{
    struct hello mine = {.addr = (uintptr_t)s->memory, .key = vb_mr_key(s->mr)}, other;
    const struct vb_sge sge = {(uintptr_t)s->memory, DUO_BYTES, vb_mr_key(s->mr)};
    const struct vb_recv_wr wr = {.wr_id = 7, .sge = &sge, .num_sge = 1};
    mine.peer.qpn = vb_qp_num(s->qp);
    vb_nic_gid(s->nic, mine.peer.gid);
    if (vb_post_recv(s->qp, &wr, 1) != 1 || write(fd, &mine, sizeof mine) != sizeof mine ||
        read(fd, &other, sizeof other) != sizeof other || vb_qp_connect(s->qp, &other.peer) ||
        write(fd, "", 1) != 1)
        return complain("not connected");
    char go;
    return read(fd, &go, 1) == 1 ? 0 : complain("not started");
}

static int wait_one(struct self *s, uint64_t wr_id)
{
    struct vb_wc wc;
    WAIT_UNTIL(vb_poll_cq(s->cq, &wc, 1) != 0);
    return wc.status == VB_WC_OK && wc.wr_id == wr_id ? 0 : complain(vb_wc_status_text(wc.status));
}

static int post(struct self *s, uint32_t flags)
{
    const struct vb_sge sge = {(uintptr_t)s->memory, MATE_BYTES, vb_mr_key(s->mr)};
    const struct vb_send_wr wr = {
        .wr_id = 8, .sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND, .flags = flags};
    return vb_post_send(s->qp, &wr, 1) == 1 ? 0 : complain("not posted");
}

static int post_many(struct self *s)
{
    int err = 0;
    for (int i = 0; i < MATE_MESSAGES && !err; i++)
        err = post(s, 0);
    return err;
}

static int wait_for_read(const struct self *s)
{
    uint64_t count = 0;
    WAIT_UNTIL(vb_nic_counter(s->nic, "rx_read_requests", &count) != 0 || count > 0);
    return count ? 0 : complain("no READ");
}

static int fork_much(struct self *s)
{
    for (int i = 0; i < 20; i++) {
        struct vb_wc wc;
        pid_t pid = fork();
        if (pid == 0) {
            int polled = vb_poll_cq(s->cq, &wc, 1);
            if (DUO_CHILD_IS_FREE && i & 1)
                vb_nic_close(s->nic);
            if (i & 2)
                _exit(polled == -EPERM ? 0 : 1);
            exit(polled == -EPERM ? 0 : 1);
        }
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return complain("a child failed");
    }
    return wait_one(s, 7);
}

static int do_task(struct self *s, enum mate_task task)
{
    switch (task) {
    case MATE_SENDS: return post(s, VB_WR_SIGNALED) || wait_one(s, 8);
    case MATE_POSTS: return post_many(s);
    case MATE_IS_READ: return wait_for_read(s);
    case MATE_FORKS: return fork_much(s);
    case MATE_STAYS:
        for (;;)
            pause();
    default: return wait_one(s, 7);
    }
}

// mate TASK WAY FD ADDRESS PORT
bool mate_is_me(int argc, char **argv, int *status)
{
    static struct self self; // reachable until the end: the leak checker looks
    if (argc != 7 || strcmp(argv[1], "mate") != 0)
        return false;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // with a test that fails
    enum mate_task task = (enum mate_task)atoi(argv[2]);
    enum mate_way way = (enum mate_way)atoi(argv[3]);
    const char *faults = task == MATE_IS_READ ? "delay=30ms,dir=tx" : "off";
    *status = open_self(&self, argv[5], argv[6], faults) || join_test(&self, atoi(argv[4])) ||
              do_task(&self, task);
    if (task == MATE_DESTROYS) {
        vb_qp_destroy(self.qp);
        vb_nic_close(self.nic);
    }
    if (way == MATE_QUIT)
        _exit(*status);
    if (way == MATE_EXIT)
        exit(*status);
    return true;
}

// ---- the test's side

// Of a mate that forks: a thread that allocates meanwhile leaves the child the sanitizer's lock, on
// which it would wait for ever when it looks for leaks at its end.
static void silence_leaks(void)
{
#if UNDER_ASAN
    const char *before = getenv("ASAN_OPTIONS");
    char options[256];
    if (before && strstr(before, "detect_leaks=0"))
        return;
    snprintf(options, sizeof options, "%s:detect_leaks=0", before ? before : "");
    setenv("ASAN_OPTIONS", options, 1);
#endif
}

// Not by fork(), for the same reason: the NICs' threads run here.
static pid_t spawn(const struct duo *d, enum mate_task task, enum mate_way way, int fd)
{
    char self[] = "/proc/self/exe", name[] = "mate", text[3][8], address[16], port[16];
    char *words[] = {name, name, text[0], text[1], text[2], address, port, NULL};
    pid_t pid;
    snprintf(text[0], sizeof text[0], "%d", (int)task);
    snprintf(text[1], sizeof text[1], "%d", (int)way);
    snprintf(text[2], sizeof text[2], "%d", fd);
    snprintf(port, sizeof port, "%s", d->state->way);
    pair_address(1, address);
    silence_leaks();
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, words, environ), 0);
    return pid;
}

static void hear(const struct mate *m, void *bytes, size_t len)
{
    assert_int_equal(read(m->fd, bytes, len), len);
}

struct mate mate_start(const struct duo *d, enum mate_task task, enum mate_way way, uint8_t retries,
                       uint8_t timeout)
{
    struct mate m;
    struct hello hello, mine = {0};
    char one;
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_true(fcntl(fd[0], F_SETFD, FD_CLOEXEC) == 0);
    m.pid = spawn(d, task, way, fd[1]);
    close(fd[1]);
    m.fd = fd[0];
    m.qp = duo_make_qp(&d->end[0], (struct vb_qp_opts){0});
    hear(&m, &hello, sizeof hello);
    // Its end waits for a second in which all that it sent is to be acknowledged.
    mine.peer = (struct vb_qp_peer){.qpn = vb_qp_num(m.qp), .rights = DUO_REMOTE, .timeout = 15};
    vb_nic_gid(d->end[0].nic, mine.peer.gid);
    assert_int_equal(write(m.fd, &mine, sizeof mine), sizeof mine);
    hear(&m, &one, 1);
    hello.peer.retries = retries;
    hello.peer.timeout = timeout;
    assert_int_equal(vb_qp_connect(m.qp, &hello.peer), 0);
    m.addr = hello.addr;
    m.key = hello.key;
    return m;
}

int mate_join(struct mate *m)
{
    int status = 0;
    assert_int_equal(waitpid(m->pid, &status, 0), m->pid);
    close(m->fd);
    return status;
}
