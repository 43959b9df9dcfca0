// SPDX-License-Identifier: Apache-2.0
// Many threads on one NIC, each with queues of its own, while others register memory, make and
// destroy queue pairs, change faults and read counters: for the thread sanitizer above all.
#include "duo.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    WORKERS = 4,
    ROUNDS = 100,
    SLICE = 4096, // of both memories, for each worker
};

// One thread's queue pair to end 1. Cmocka's asserts are not for other threads: `line` says where
// it failed.
struct worker {
    const struct duo *d;
    struct vb_cq *cq;
    struct vb_qp *qp;
    uint32_t at;
    atomic_bool *stop;
    int line;
    pthread_t thread;
};

// Writes a number, adds to it, reads it back.
static void *exchange(void *arg)
{
    struct worker *w = arg;
    const struct duo_end *e = &w->d->end[0];
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        uint64_t *mine = (void *)(e->memory + w->at);
        const struct vb_sge sge[2] = {{(uintptr_t)mine, 8, vb_mr_key(e->mr)},
                                      {(uintptr_t)(mine + 1), 8, vb_mr_key(e->mr)}};
        struct vb_send_wr wr[3];
        for (unsigned j = 0; j < 3; j++) {
            wr[j] = duo_wr(w->d, j == 0 ? VB_WR_WRITE : j == 1 ? VB_WR_FADD : VB_WR_READ, i);
            wr[j].raddr += w->at;
            wr[j].sge = &sge[j > 0];
            wr[j].num_sge = 1;
            wr[j].flags = j == 2 ? VB_WR_SIGNALED : 0;
        }
        wr[1].atomic.swap_add = 1000;
        *mine = i;
        DUO_CHECK(w, vb_post_send(w->qp, wr, 3) == 3);
        DUO_CHECK(w, duo_wait_ok(w->cq, i));
        DUO_CHECK(w, mine[1] == i + 1000);
    }
    return w;
}

// Memory of its own that comes and goes.
static void *register_memory(void *arg)
{
    struct worker *w = arg;
    const struct duo_end *e = &w->d->end[0];
    uint8_t own[256];
    while (!atomic_load(w->stop)) {
        struct vb_mr *mr = NULL;
        struct vb_pd *pd = NULL;
        struct vb_mw *mw = NULL;
        struct vb_mr_opts opts = {.addr = own, .len = 128, .rights = VB_RIGHT_ALL};
        DUO_CHECK(w, vb_pd_alloc(e->nic, &pd) == 0);
        DUO_CHECK(w, vb_mr_reg(pd, own, sizeof own, VB_RIGHT_ALL, &mr) == 0);
        DUO_CHECK(w, vb_mr_change(mr, pd, &opts) == 0);
        DUO_CHECK(w, vb_mw_alloc(pd, VB_MW_TYPE_2, &mw) == 0);
        DUO_CHECK(w, vb_mw_free(mw) == 0);
        DUO_CHECK(w, vb_mr_dereg(mr) == 0);
        DUO_CHECK(w, vb_pd_free(pd) == 0);
    }
    return w;
}

// Queue pairs with a shared queue, connected to themselves, used once and destroyed.
static void *make_queue_pairs(void *arg)
{
    struct worker *w = arg;
    const struct duo_end *e = &w->d->end[0];
    struct vb_qp_peer self = duo_peer(w->d, 1, w->qp);
    while (!atomic_load(w->stop)) {
        struct vb_srq *srq = NULL;
        struct vb_cq *cq = NULL;
        struct vb_qp *qp = NULL;
        DUO_CHECK(w, vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 8}, &cq) == 0);
        DUO_CHECK(w, vb_srq_create(e->pd, &(struct vb_srq_opts){.depth = 4}, &srq) == 0);
        const struct vb_qp_opts opts = {.srq = srq, .send_cq = cq, .recv_cq = cq, .send_depth = 4};
        DUO_CHECK(w, vb_qp_create(e->pd, &opts, &qp) == 0);
        self.qpn = vb_qp_num(qp);
        DUO_CHECK(w, vb_qp_connect(qp, &self) == 0);
        const struct vb_sge sge = {(uintptr_t)e->memory + w->at, 8, vb_mr_key(e->mr)};
        const struct vb_recv_wr recv = {.wr_id = 1, .sge = &sge, .num_sge = 1};
        struct vb_send_wr send = {.wr_id = 2, .opcode = VB_WR_SEND, .flags = VB_WR_SIGNALED};
        DUO_CHECK(w, vb_post_srq(srq, &recv, 1) == 1);
        DUO_CHECK(w, vb_post_send(qp, &send, 1) == 1);
        struct vb_wc wc[2];
        for (int got = 0; got < 2;)
            got += vb_poll_cq(cq, wc, 2);
        DUO_CHECK(w, vb_cq_resize(cq, 16) == 0);
        DUO_CHECK(w, vb_qp_fail(qp) == 0);
        DUO_CHECK(w, vb_qp_destroy(qp) == 0);
        DUO_CHECK(w, vb_srq_destroy(srq) == 0);
        DUO_CHECK(w, vb_cq_destroy(cq) == 0);
    }
    return w;
}

// Faults that hurt nobody for long, and everything that only looks.
static void *disturb(void *arg)
{
    struct worker *w = arg;
    struct vb_nic *nic = w->d->end[0].nic;
    struct vb_nic_event event;
    uint8_t gid[16];
    for (unsigned i = 0; !atomic_load(w->stop); i++) {
        DUO_CHECK(w, vb_nic_set_faults(nic, i % 2 ? "off" : "drop=1%", NULL) == 0);
        DUO_CHECK(w, vb_nic_set_faults(nic, "no such rule", NULL) != 0);
        duo_counter(nic, "faults_dropped");
        vb_nic_gid(nic, gid);
        while (vb_nic_take_event(nic, &event) == 0)
            ;
        vb_grace(nic, 1000000);
        vb_nic_progress(nic);
    }
    return w;
}

static void start(struct worker *w, const struct duo *d, uint32_t i, atomic_bool *stop,
                  void *(*run)(void *))
{
    *w = (struct worker){.d = d, .at = (i + 1) * SLICE, .stop = stop};
    struct duo_end here = d->end[0];
    assert_int_equal(vb_cq_create(here.nic, &(struct vb_cq_opts){.entries = 32}, &here.cq), 0);
    w->cq = here.cq;
    w->qp = duo_make_qp(&here, (struct vb_qp_opts){0});
    struct vb_qp *there = duo_make_qp(&d->end[1], (struct vb_qp_opts){0});
    struct vb_qp_peer to = duo_peer(d, 0, there), from = duo_peer(d, 1, w->qp);
    to.timeout = 15; // lost packets are sent again soon, and for a second
    assert_int_equal(vb_qp_connect(w->qp, &to), 0);
    assert_int_equal(vb_qp_connect(there, &from), 0);
    assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
}

static void finish(struct worker *w)
{
    void *result = NULL;
    assert_int_equal(pthread_join(w->thread, &result), 0);
    if (result != w)
        fail_msg("a thread failed in line %d", w->line);
}

static void test_many_threads_on_one_nic(void **state)
{
    static void *(*const others[])(void *) = {register_memory, make_queue_pairs, make_queue_pairs,
                                              disturb};
    struct duo d;
    atomic_bool stop = false;
    struct worker w[WORKERS], o[4];
    duo_open(&d, *state);
    for (uint32_t i = 0; i < 4; i++)
        start(&o[i], &d, WORKERS + i, &stop, others[i]);
    for (uint32_t i = 0; i < WORKERS; i++)
        start(&w[i], &d, i, &stop, exchange);
    for (uint32_t i = 0; i < WORKERS; i++)
        finish(&w[i]);
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < 4; i++)
        finish(&o[i]);
    duo_close(&d);
}

// Threads that sleep on channels of their own while others post.
static void *sleep_and_take(void *arg)
{
    struct worker *w = arg;
    const struct duo_end *e = &w->d->end[0];
    struct vb_channel *channel = NULL;
    struct vb_cq *cq = NULL, *told = NULL;
    struct vb_wc wc;
    DUO_CHECK(w, vb_channel_create(e->nic, &channel) == 0);
    const struct vb_cq_opts opts = {.entries = 8, .channel = channel};
    DUO_CHECK(w, vb_cq_create(e->nic, &opts, &cq) == 0);
    const struct vb_qp_opts with = {.send_cq = cq, .recv_cq = cq, .send_depth = 4};
    struct vb_qp *qp = NULL;
    DUO_CHECK(w, vb_qp_create(e->pd, &with, &qp) == 0);
    struct vb_qp_peer self = duo_peer(w->d, 1, qp);
    DUO_CHECK(w, vb_qp_connect(qp, &self) == 0);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        struct vb_send_wr wr = {.wr_id = i, .opcode = VB_WR_NOP, .flags = VB_WR_SIGNALED};
        DUO_CHECK(w, vb_cq_arm(cq, false) == 0);
        DUO_CHECK(w, vb_post_send(qp, &wr, 1) == 1);
        DUO_CHECK(w, duo_is_readable(vb_channel_fd(channel), DUO_PATIENCE_S * 1000));
        DUO_CHECK(w, vb_channel_take(channel, &told) == 0 && told == cq);
        DUO_CHECK(w, vb_poll_cq(cq, &wc, 1) == 1 && wc.wr_id == i);
    }
    DUO_CHECK(w, vb_qp_destroy(qp) == 0);
    DUO_CHECK(w, vb_cq_destroy(cq) == 0);
    DUO_CHECK(w, vb_channel_destroy(channel) == 0);
    return w;
}

static void test_sleepers_share_a_nic(void **state)
{
    struct duo d;
    atomic_bool stop = false;
    struct worker w[WORKERS], o;
    duo_open(&d, *state);
    start(&o, &d, WORKERS, &stop, make_queue_pairs);
    for (uint32_t i = 0; i < WORKERS; i++)
        start(&w[i], &d, i, &stop, sleep_and_take);
    for (uint32_t i = 0; i < WORKERS; i++)
        finish(&w[i]);
    atomic_store(&stop, true);
    finish(&o);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_WAYS(test_many_threads_on_one_nic),
        DUO_PORTS(test_sleepers_share_a_nic),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
