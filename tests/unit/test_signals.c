// SPDX-License-Identifier: Apache-2.0
// Signal handlers that post and poll, and threads that are cancelled in the middle of it.
#include "../wait.h"
#include "duo.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ROUNDS = 3000,
    PERIOD_US = 50,
    SHARING_MS = 400, // some thousand signals
};

// What the handler works with: its signal comes in the middle of anything that the test does.
static struct {
    const struct duo *d;
    struct vb_qp *qp;
    struct vb_cq *cq;
    volatile sig_atomic_t calls, posted, completed, wrong;
} in_handler;

static void handle(int signal)
{
    struct vb_wc wc;
    struct vb_send_wr wr = duo_wr(in_handler.d, VB_WR_NOP, 77);
    int error = errno;
    (void)signal;
    in_handler.calls++;
    wr.raddr = wr.rkey = 0;
    vb_nic_progress(in_handler.d->end[0].nic);
    in_handler.posted += vb_post_send(in_handler.qp, &wr, 1) == 1;
    while (vb_poll_cq(in_handler.cq, &wc, 1) > 0) {
        in_handler.completed++;
        in_handler.wrong += wc.status != VB_WC_OK;
    }
    errno = error;
}

static void set_timer(unsigned period_us)
{
    const struct itimerval every = {{0, period_us}, {0, period_us}};
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static void begin_handling(const struct duo *d, struct vb_qp *qp, struct vb_cq *cq,
                           unsigned period_us)
{
    const struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    memset(&in_handler, 0, sizeof in_handler);
    in_handler.d = d;
    in_handler.qp = qp;
    in_handler.cq = cq;
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    set_timer(period_us);
}

// So patient that no retries are needed while signals keep the machine busy.
static void join_patiently(const struct duo *d, struct vb_qp *qp[2])
{
    for (unsigned i = 0; i < 2; i++) {
        struct vb_qp_peer peer = duo_peer(d, i, qp[!i]);
        peer.timeout = 20;
        assert_int_equal(vb_qp_connect(qp[i], &peer), 0);
    }
}

static void connect_patiently(const struct duo *d, struct vb_qp *qp[2])
{
    for (unsigned i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&d->end[i], (struct vb_qp_opts){0});
    join_patiently(d, qp);
}

// Meeting a peer takes memory, which no handler may.
static void meet(const struct duo *d, struct vb_qp *qp)
{
    duo_post(d, qp, duo_wr(d, VB_WR_WRITE, 5), 0, 64);
    duo_expect(d->end[0].cq, 5, VB_WC_OK);
}

static void end_handling(void)
{
    const struct sigaction action = {.sa_handler = SIG_IGN};
    set_timer(0);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_true(in_handler.calls > 0);
    assert_int_equal(in_handler.wrong, 0);
}

// The handler has a queue pair and a completion queue of its own, on the same NIC.
static void test_a_handler_with_queues_of_its_own(void **state)
{
    struct duo d;
    struct vb_qp *qp[2], *own[2];
    struct vb_cq *cq;
    struct vb_nic_event event;
    struct vb_cq *due;
    duo_open(&d, *state);
    assert_int_equal(vb_cq_create(d.end[0].nic, &(struct vb_cq_opts){.entries = 64}, &cq), 0);
    connect_patiently(&d, qp);
    own[0] = duo_make_qp(&d.end[0], (struct vb_qp_opts){.send_cq = cq, .recv_cq = cq});
    own[1] = duo_make_qp(&d.end[1], (struct vb_qp_opts){0});
    join_patiently(&d, own);
    meet(&d, qp[0]);
    begin_handling(&d, own[0], cq, 4 * PERIOD_US);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        assert_int_equal(vb_cq_arm(d.end[0].cq, false), 0);
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, i), 0, 64);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
        vb_channel_take(d.end[0].channel, &due);
        vb_nic_take_event(d.end[0].nic, &event);
    }
    while (in_handler.completed == 0)
        ;
    end_handling();
    assert_true(in_handler.posted > 0);
    duo_close(&d);
}

// It uses the queues that it interrupts: where that cannot be, it gets nothing. Every request
// completes once, for one or the other.
static void test_a_handler_that_shares_queues(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    uint64_t posted = 0, completed = 0;
    struct vb_wc wc;
    duo_open(&d, *state);
    connect_patiently(&d, qp);
    meet(&d, qp[0]);
    begin_handling(&d, qp[0], d.end[0].cq, PERIOD_US);
    struct vb_send_wr wr = duo_wr(&d, VB_WR_NOP, 1);
    wr.raddr = wr.rkey = 0;
    for (uint64_t end = duo_now_ns() + SHARING_MS * 1000000ull; duo_now_ns() < end;) {
        int n = vb_post_send(qp[0], &wr, 1);
        assert_true(n >= 0);
        posted += (unsigned)n;
        completed += vb_poll_cq(d.end[0].cq, &wc, 1) == 1;
    }
    end_handling();
    posted += (unsigned)in_handler.posted;
    completed += (unsigned)in_handler.completed;
    WAIT_UNTIL((completed += vb_poll_cq(d.end[0].cq, &wc, 1) == 1) >= posted);
    assert_int_equal(completed, posted);
    assert_int_equal(vb_poll_cq(d.end[0].cq, &wc, 1), 0);
    duo_close(&d);
}

// ---- cancellation

struct victim {
    const struct duo *d;
    struct vb_qp *qp;
    struct vb_channel *channel;
    atomic_uint_fast64_t posted, polled;
};

static void *work_for_ever(void *arg)
{
    struct victim *v = arg;
    struct vb_cq *due;
    for (;;) {
        const struct vb_sge sge = {(uintptr_t)v->d->end[0].memory, 2048,
                                   vb_mr_key(v->d->end[0].mr)};
        struct vb_send_wr wr = duo_wr(v->d, VB_WR_WRITE, 1);
        struct vb_wc wc;
        wr.sge = &sge;
        wr.num_sge = 1;
        atomic_fetch_add(&v->posted, (unsigned)vb_post_send(v->qp, &wr, 1));
        atomic_fetch_add(&v->polled, (unsigned)vb_poll_cq(v->d->end[0].cq, &wc, 1));
        vb_cq_arm(v->d->end[0].cq, false);
        vb_channel_take(v->d->end[0].channel, &due);
        pthread_testcancel();
    }
    return NULL;
}

static void test_a_thread_is_cancelled(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    connect_patiently(&d, qp);
    struct victim v = {.d = &d, .qp = qp[0], .channel = d.end[0].channel};
    for (unsigned round = 0; round < 100; round++) {
        uint64_t before = v.polled;
        pthread_t thread;
        void *result;
        struct vb_wc wc;
        assert_int_equal(pthread_create(&thread, NULL, work_for_ever, &v), 0);
        WAIT_UNTIL(v.polled > before + round * 7 % 50); // cancelled at another point each time
        pthread_cancel(thread);
        pthread_join(thread, &result);
        assert_ptr_equal(result, PTHREAD_CANCELED);
        // Nothing is locked, nothing is lost.
        WAIT_UNTIL(vb_poll_cq(d.end[0].cq, &wc, 1) > 0 ? ++v.polled == v.posted
                                                       : v.polled == v.posted);
        assert_int_equal(v.polled, v.posted);
        assert_string_equal(vb_qp_state_text(qp[0]), "RTS");
    }
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_a_handler_with_queues_of_its_own),
        DUO_PORTS(test_a_handler_that_shares_queues),
        DUO_PORTS(test_a_thread_is_cancelled),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
