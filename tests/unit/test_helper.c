// SPDX-License-Identifier: Apache-2.0
// The helper thread: a NIC serves its peers and does what was posted while its program does
// something else; it costs nothing while there is nothing to do, and leaves nothing behind.
#include "../wait.h"
#include "duo.h"
#include "pair.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ROUNDS = 50,
    MANY_NICS = 200,
    NOTHING = UINT32_MAX,
};

static const uint64_t second_ns = 1000000000;

// ---- targets that never call their NIC

enum pastime {
    SPIN,
    SLEEP,
    COMPUTE
};

struct target {
    enum pastime pastime;
    atomic_uint_fast64_t *flag; // written by a peer
    atomic_bool stop;
    double result;
    pthread_t thread;
};

static void *pass_time(void *arg)
{
    struct target *t = arg;
    while (!atomic_load(&t->stop)) {
        switch (t->pastime) {
        case SPIN:
            if (atomic_load_explicit(t->flag, memory_order_relaxed) == UINT64_MAX)
                return t;
            break;
        case SLEEP: usleep(50000); break; // which is what this target does
        case COMPUTE:
            for (int i = 1; i < 1000; i++)
                t->result += 1.0 / i;
            break;
        }
    }
    return t;
}

// Every one-sided verb against end 1, and a SEND into a receive that was posted before.
static void use_the_target(struct duo *d, struct vb_qp *qp, uint64_t i)
{
    struct vb_cq *cq = d->end[0].cq;
    uint64_t word = 0;
    memcpy(d->end[0].memory, &i, 8);
    duo_post(d, qp, duo_wr(d, VB_WR_WRITE, i), 0, 8);
    duo_expect(cq, i, VB_WC_OK);
    struct vb_send_wr wr = duo_wr(d, VB_WR_FADD, i);
    wr.atomic.swap_add = 5;
    duo_post(d, qp, wr, 16, 8);
    duo_expect(cq, i, VB_WC_OK);
    memcpy(&word, d->end[0].memory + 16, 8);
    assert_int_equal(word, i);
    duo_post(d, qp, duo_wr(d, VB_WR_READ, i), 8, 8);
    duo_expect(cq, i, VB_WC_OK);
    memcpy(&word, d->end[0].memory + 8, 8);
    assert_int_equal(word, i + 5);
}

static void serve_while(struct duo_state *state, enum pastime pastime)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    struct target t = {.pastime = pastime, .flag = (void *)(d.end[1].memory + 4096)};
    for (uint64_t i = 0; i < 4; i++)
        duo_post_recv(&d.end[1], qp[1], i, 64, 64);
    assert_int_equal(pthread_create(&t.thread, NULL, pass_time, &t), 0);
    for (uint64_t i = 1; i <= ROUNDS; i++)
        use_the_target(&d, qp[0], i);
    for (uint64_t i = 0; i < 4; i++) {
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_SEND, i), 0, 8);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
    }
    // It sees what peers write.
    struct vb_send_wr wr = duo_wr(&d, VB_WR_ATOMIC_WRITE, 9);
    wr.raddr += 4096;
    memset(d.end[0].memory, 0xff, 8);
    duo_post(&d, qp[0], wr, 0, 8);
    duo_expect(d.end[0].cq, 9, VB_WC_OK);
    if (pastime != SPIN)
        atomic_store(&t.stop, true);
    void *result = NULL;
    assert_int_equal(pthread_join(t.thread, &result), 0);
    assert_ptr_equal(result, &t);
    for (uint64_t i = 0; i < 4; i++)
        duo_expect(d.end[1].cq, i, VB_WC_OK);
    duo_close(&d);
}

static void test_a_spinning_target_is_served(void **state)
{
    serve_while(*state, SPIN);
}

static void test_a_sleeping_target_is_served(void **state)
{
    serve_while(*state, SLEEP);
}

static void test_a_computing_target_is_served(void **state)
{
    serve_while(*state, COMPUTE);
}

// The twin: without a helper nobody serves, until somebody polls.
static void test_without_a_helper_nobody_serves(void **state)
{
    (void)state;
    char text[16];
    struct vb_nic *nic = NULL;
    pair_address(1, text);
    const struct vb_nic_opts opts = {.address = text, .port = "udp", .no_helper = true};
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    struct duo_state one = {.way = "udp"};
    struct duo d = {.state = &one, .end[0].nic = duo_open_nic(0, "udp"), .end[1].nic = nic};
    one.nic[0] = d.end[0].nic;
    one.nic[1] = nic;
    duo_open_ends(&d);
    struct vb_qp *qp[2];
    duo_connect(&d, VB_SERVICE_RC, qp);
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, 1), 0, 8);
    duo_expect_quiet(d.end[0].cq);
    vb_nic_progress(nic);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    duo_close(&d);
}

// ---- posters that never poll

static void test_a_poster_need_not_poll(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    atomic_uint_fast64_t *there = (void *)d.end[1].memory;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        struct vb_send_wr wr = duo_wr(&d, VB_WR_ATOMIC_WRITE, i);
        wr.flags = VB_WR_INLINE; // not even a completion
        memcpy(d.end[0].memory, &i, 8);
        duo_post(&d, qp[0], wr, 0, 8);
        WAIT_UNTIL(atomic_load(there) == i);
        if (i % 2) // some soon, some when the helpers have gone to sleep
            duo_await_sleep(&d);
        if (i % 16 == 0) { // the queue is full of what nobody asked about
            duo_post(&d, qp[0], duo_wr(&d, VB_WR_NOP, i), 0, NOTHING);
            duo_expect(d.end[0].cq, i, VB_WC_OK);
        }
    }
    duo_close(&d);
}

// ---- what it costs

static void test_an_idle_nic_uses_no_cpu(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    for (uint64_t i = 1; i < 10; i++) // it was busy, and polled
        use_the_target(&d, qp[0], i);
    duo_expect_idle();
    use_the_target(&d, qp[0], 1); // and is still there
    duo_close(&d);
}

static unsigned entries_in(const char *dir)
{
    unsigned n = 0;
    DIR *list = opendir(dir);
    assert_non_null(list);
    while (readdir(list))
        n++;
    closedir(list);
    return n;
}

// A thread that was joined is listed until the system has buried it.
static void expect_at_most(const char *dir, unsigned count)
{
    WAIT_UNTIL(entries_in(dir) <= count);
}

static void test_closing_leaves_nothing(void **state)
{
    const struct duo_state *s = *state;
    vb_nic_close(duo_open_nic(0, s->way)); // what the first one sets up for good is not counted
    unsigned fds = entries_in("/proc/self/fd"), threads = entries_in("/proc/self/task");
    for (int i = 0; i < MANY_NICS; i++) {
        struct vb_nic *nic = duo_open_nic(0, s->way);
        struct vb_channel *channel = NULL;
        assert_int_equal(vb_channel_create(nic, &channel), 0);
        vb_nic_close(nic);
    }
    assert_int_equal(entries_in("/proc/self/fd"), fds);
    expect_at_most("/proc/self/task", threads);
    // It can tell.
    struct vb_nic *nic = duo_open_nic(0, s->way);
    assert_true(entries_in("/proc/self/fd") > fds);
    threads = entries_in("/proc/self/task");
    vb_nic_close(nic);
    expect_at_most("/proc/self/task", threads - 1);
}

// ---- ends

static void test_closing_while_the_peer_sends(void **state)
{
    for (unsigned end = 0; end < 2; end++) {
        struct duo d;
        struct vb_qp *qp[2];
        struct duo_state *s = *state;
        duo_open(&d, s);
        duo_connect(&d, VB_SERVICE_RC, qp);
        for (uint64_t i = 0; i < 15; i++)
            duo_post(&d, qp[0], duo_wr(&d, i % 2 ? VB_WR_READ : VB_WR_WRITE, i), 0, DUO_BYTES);
        if (end) // and it is in the middle of that
            WAIT_UNTIL(duo_counter(s->nic[end], "rcvd_pkts") > 0);
        const struct vb_send_wr last = duo_wr(&d, VB_WR_WRITE, 15); // while its key is there
        vb_nic_close(s->nic[end]);
        s->nic[end] = NULL;
        if (end) { // the other one's helper goes on against nobody
            uint64_t sent = duo_counter(s->nic[0], "sent_pkts");
            duo_post(&d, qp[0], last, 0, 8);
            WAIT_UNTIL(duo_counter(s->nic[0], "sent_pkts") > sent);
        }
        duo_close(&d);
    }
}

struct hello {
    uint8_t gid[16];
    uint64_t addr;
    uint32_t qpn, key;
};

// A child process that exits or is killed in the middle leaves a peer that finds out.
static void child(int to_parent, int from_parent, const char *way)
{
    char text[16];
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *mr;
    static uint8_t memory[DUO_BYTES];
    struct hello hello = {.addr = (uintptr_t)memory};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pair_address(2, text);
    const struct vb_nic_opts opts = {.address = text, .port = way, .faults = "off"};
    struct vb_cq *cq;
    struct vb_qp *qp;
    if (vb_nic_open(&opts, &nic) || vb_pd_alloc(nic, &pd) ||
        vb_mr_reg(pd, memory, sizeof memory, VB_RIGHT_ALL, &mr) ||
        vb_cq_create(nic, &(struct vb_cq_opts){.entries = 4}, &cq))
        _exit(1);
    const struct vb_qp_opts with = {.send_cq = cq, .recv_cq = cq, .send_depth = 1};
    struct vb_qp_peer peer;
    if (vb_qp_create(pd, &with, &qp))
        _exit(2);
    hello.qpn = vb_qp_num(qp);
    hello.key = vb_mr_key(mr);
    vb_nic_gid(nic, hello.gid);
    if (write(to_parent, &hello, sizeof hello) != sizeof hello ||
        read(from_parent, &peer, sizeof peer) != sizeof peer || vb_qp_connect(qp, &peer))
        _exit(3);
    (void)!write(to_parent, &hello, 1);
    for (;;)
        pause(); // it never calls its NIC
}

static void test_a_process_that_sleeps_and_one_that_died(void **state)
{
    struct duo d;
    int down[2], up[2];
    struct hello hello;
    struct duo_state *s = *state;
    char one;
    assert_int_equal(pipe(down) | pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0)
        child(up[1], down[0], s->way);
    duo_open(&d, s);
    struct vb_qp *qp = duo_make_qp(&d.end[0], (struct vb_qp_opts){0});
    assert_int_equal(read(up[0], &hello, sizeof hello), sizeof hello);
    struct vb_qp_peer to = duo_peer(&d, 0, qp), from = to;
    to.qpn = hello.qpn;
    memcpy(to.gid, hello.gid, 16);
    to.timeout = DUO_TIMEOUT; // twice 268 ms
    to.retries = 1;
    vb_nic_gid(d.end[0].nic, from.gid);
    assert_int_equal(write(down[1], &from, sizeof from), sizeof from);
    assert_int_equal(read(up[0], &one, 1), 1);
    assert_int_equal(vb_qp_connect(qp, &to), 0);
    struct vb_send_wr wr = duo_wr(&d, VB_WR_WRITE, 1);
    wr.raddr = hello.addr;
    wr.rkey = hello.key;
    duo_post(&d, qp, wr, 0, DUO_BYTES);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    assert_int_equal(vb_grace(d.end[0].nic, DUO_PATIENCE_S * second_ns), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    duo_post(&d, qp, wr, 0, DUO_BYTES);
    // It ends when retries are exceeded: nothing is under way after that.
    assert_int_equal(vb_grace(d.end[0].nic, DUO_PATIENCE_S * second_ns), 0);
    duo_expect(d.end[0].cq, 1, VB_WC_RETRY_EXCEEDED);
    for (unsigned i = 0; i < 2; i++) {
        close(up[i]);
        close(down[i]);
    }
    duo_close(&d);
}

// ---- the grace period

static void test_grace_ends_with_what_was_posted(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_wc wc;
    duo_open(&d, *state);
    assert_int_equal(vb_grace(d.end[0].nic, 0), 0); // nothing is under way
    duo_connect(&d, VB_SERVICE_RC, qp);
    for (int round = 0; round < 10; round++) {
        for (uint64_t i = 0; i < 16; i++)
            duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, i), 0, 4096);
        assert_int_equal(vb_grace(d.end[0].nic, DUO_PATIENCE_S * second_ns), 0);
        for (uint64_t i = 0; i < 16; i++) { // all are there
            assert_int_equal(vb_poll_cq(d.end[0].cq, &wc, 1), 1);
            assert_int_equal(wc.wr_id, i);
        }
    }
    duo_close(&d);
}

static void test_grace_is_bounded(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_SEND, 1), 0, 8); // no receive, for ever
    assert_int_equal(vb_grace(d.end[0].nic, second_ns / 10), -ETIMEDOUT);
    assert_int_equal(vb_qp_fail(qp[0]), 0);
    assert_int_equal(vb_grace(d.end[0].nic, DUO_PATIENCE_S * second_ns), 0);
    duo_expect(d.end[0].cq, 1, VB_WC_FLUSHED);
    duo_close(&d);
}

// A queue pair that comes back counts from the start: what was posted in its former life is over.
static void test_grace_over_a_new_life(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    for (uint64_t i = 0; i < 8; i++) {
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, i), 0, 8);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(vb_qp_fail(qp[i]), 0);
    duo_join(&d, qp[0], qp[1]);
    assert_int_equal(vb_grace(d.end[0].nic, DUO_PATIENCE_S * second_ns), 0);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_WAYS(test_a_spinning_target_is_served),
        DUO_TEST(test_a_spinning_target_is_served, "hull"),
        DUO_WAYS(test_a_sleeping_target_is_served),
        DUO_TEST(test_a_sleeping_target_is_served, "hull"),
        DUO_PORTS(test_a_computing_target_is_served),
        DUO_TEST(test_a_computing_target_is_served, "hull"),
        cmocka_unit_test(test_without_a_helper_nobody_serves),
        DUO_WAYS(test_a_poster_need_not_poll),
        DUO_TEST(test_a_poster_need_not_poll, "hull"),
        DUO_PORTS(test_an_idle_nic_uses_no_cpu),
        DUO_TEST(test_an_idle_nic_uses_no_cpu, "hull"),
        DUO_PORTS(test_closing_leaves_nothing),
        DUO_PORTS(test_closing_while_the_peer_sends),
        DUO_PORTS(test_a_process_that_sleeps_and_one_that_died),
        DUO_PORTS(test_grace_ends_with_what_was_posted),
        DUO_TEST(test_grace_ends_with_what_was_posted, "hull"),
        DUO_PORTS(test_grace_is_bounded),
        DUO_TEST(test_grace_is_bounded, "hull"),
        DUO_TEST(test_grace_over_a_new_life, "udp"),
        DUO_TEST(test_grace_over_a_new_life, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
