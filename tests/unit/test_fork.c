// SPDX-License-Identifier: Apache-2.0
// NICs and fork(): the child's copy is dead, and the parent's does not notice.
#include "duo.h"
#include "flavour.h"
#include "pair.h"
#include "skips.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct objects {
    struct vb_srq *srq;
    struct vb_mw *mw;
    struct vb_qp *qp[2];
    struct vb_program *program;
    struct vb_mr *code;
};

// In the child, assertions would print and jump: a line's number is the exit status instead.
#define CHECK(condition)               \
    do {                               \
        if (!(condition))              \
            _exit(1 + __LINE__ % 250); \
    } while (0)
#define REFUSED(call) CHECK((call) == -EPERM)

static void join(pid_t pid)
{
    int status;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

// The number names the line of the CHECK that failed.
static void refuse_making(const struct duo_end *e)
{
    uint64_t value;
    uint32_t xrcd;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_mw *mw;
    struct vb_cq *cq;
    struct vb_srq *srq;
    struct vb_qp *qp;
    struct vb_channel *channel;
    struct vb_program *program;
    const struct vb_qp_opts with = {.send_cq = e->cq, .recv_cq = e->cq, .send_depth = 1};
    const struct vb_mr_opts region = {.addr = e->memory, .len = 8};
    REFUSED(vb_pd_alloc(e->nic, &pd));
    REFUSED(vb_mr_reg(e->pd, e->memory, 8, 0, &mr));
    REFUSED(vb_mr_change(e->mr, e->pd, &region));
    REFUSED(vb_mw_alloc(e->pd, VB_MW_TYPE_1, &mw));
    REFUSED(vb_channel_create(e->nic, &channel));
    REFUSED(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 4}, &cq));
    REFUSED(vb_xrcd_alloc(e->nic, &xrcd));
    REFUSED(vb_xrcd_free(e->nic, 1));
    REFUSED(vb_srq_create(e->pd, &(struct vb_srq_opts){.depth = 4}, &srq));
    REFUSED(vb_qp_create(e->pd, &with, &qp));
    REFUSED(vb_program_create(e->pd, &(struct vb_program_opts){0}, &program));
    REFUSED(vb_nic_counter(e->nic, "sent_pkts", &value));
    REFUSED(vb_nic_set_faults(e->nic, "off", NULL));
    REFUSED(vb_nic_trace(e->nic, 4096));
    REFUSED(vb_nic_trace_dump(e->nic, 2));
    REFUSED(vb_grace(e->nic, 0));
    CHECK(vb_nic_progress(e->nic) == 0);
}

static void refuse_using(const struct duo *d, const struct objects *o)
{
    const struct duo_end *e = &d->end[0];
    const struct vb_send_wr send = {.opcode = VB_WR_NOP};
    const struct vb_recv_wr recv = {0};
    struct vb_nic_event event;
    struct vb_cq *cq;
    struct vb_wc wc;
    uint64_t value;
    uint8_t gid[16] = {0xff};
    struct vb_qp_peer peer = {0};
    struct vb_qp_rings rings;
    struct vb_raw_qp raw_qp;
    struct vb_raw_cq raw_cq;
    struct vb_mr *mr;
    bool stopped;
    REFUSED(vb_post_send(o->qp[0], &send, 1));
    REFUSED(vb_post_recv(o->qp[0], &recv, 1));
    REFUSED(vb_post_srq(o->srq, &recv, 1));
    REFUSED(vb_poll_cq(e->cq, &wc, 1));
    REFUSED(vb_cq_arm(e->cq, false));
    REFUSED(vb_cq_moderate(e->cq, 0, 0));
    REFUSED(vb_cq_resize(e->cq, 128));
    REFUSED(vb_srq_arm(o->srq, 1));
    REFUSED(vb_channel_take(e->channel, &cq));
    REFUSED(vb_channel_fd(e->channel));
    REFUSED(vb_nic_event_fd(e->nic));
    REFUSED(vb_nic_take_event(e->nic, &event));
    REFUSED(vb_qp_connect(o->qp[0], &peer));
    REFUSED(vb_qp_connect_self(o->qp[0], 0));
    REFUSED(vb_qp_rings(o->qp[0], &rings));
    REFUSED(vb_qp_share(o->qp[0], &raw_qp));
    REFUSED(vb_cq_share(e->cq, &raw_cq));
    REFUSED(vb_qp_open(o->qp[0], false, 1));
    REFUSED(vb_qp_code(o->qp[0], VB_RING_SEND, 0, &mr));
    REFUSED(vb_program_query(o->program, &value, &stopped));
    REFUSED(vb_program_stop(o->program));
    CHECK(vb_cq_count(e->cq) == 0);
    REFUSED(vb_qp_fail(o->qp[0]));
    REFUSED(vb_qp_drain(o->qp[0]));
    REFUSED(vb_qp_resume(o->qp[0]));
    REFUSED(vb_qp_attach(o->qp[0], gid));
    REFUSED(vb_qp_detach(o->qp[0], gid));
    REFUSED(vb_qp_counter(o->qp[0], "sent_pkts", &value));
    CHECK(strcmp(vb_qp_state_text(o->qp[0]), "FORKED") == 0);
    vb_nic_gid(e->nic, gid);
    CHECK(gid[15] == 0);
    CHECK(vb_qp_num(o->qp[0]) != 0);
}

static void refuse_ending(const struct duo_end *e, const struct objects *o)
{
    REFUSED(vb_qp_destroy(o->qp[0]));
    REFUSED(vb_srq_destroy(o->srq));
    REFUSED(vb_program_destroy(o->program));
    REFUSED(vb_mr_dereg(o->code));
    REFUSED(vb_mw_free(o->mw));
    REFUSED(vb_mr_dereg(e->mr));
    REFUSED(vb_cq_destroy(e->cq));
    REFUSED(vb_channel_destroy(e->channel));
    REFUSED(vb_pd_free(e->pd));
}

static void exchange(const struct duo *d, struct vb_qp *qp, uint64_t wr_id)
{
    duo_post(d, qp, duo_wr(d, VB_WR_WRITE, wr_id), 0, 4096);
    duo_expect(d->end[0].cq, wr_id, VB_WC_OK);
}

static void make_objects(const struct duo *d, struct objects *o)
{
    const struct vb_srq_opts opts = {.depth = 4};
    assert_int_equal(vb_srq_create(d->end[0].pd, &opts, &o->srq), 0);
    assert_int_equal(vb_mw_alloc(d->end[0].pd, VB_MW_TYPE_1, &o->mw), 0);
    duo_connect(d, VB_SERVICE_RC, o->qp);
    const struct vb_program_opts limits = {.limit = 4};
    assert_int_equal(vb_program_create(d->end[0].pd, &limits, &o->program), 0);
    assert_int_equal(vb_qp_code(o->qp[0], VB_RING_SEND, 0, &o->code), 0);
}

static void test_a_child_is_refused(void **state)
{
    struct duo d;
    struct objects o;
    struct duo_state *s = *state;
    duo_open(&d, s);
    make_objects(&d, &o);
    exchange(&d, o.qp[0], 1);
    assert_int_equal(vb_cq_arm(d.end[0].cq, false), 0);
    pid_t pid = fork();
    if (pid == 0) {
        refuse_making(&d.end[0]);
        refuse_using(&d, &o);
        refuse_ending(&d.end[0], &o);
        if (DUO_CHILD_IS_FREE) {
            vb_nic_close(s->nic[0]);
            vb_nic_close(s->nic[1]);
        }
        _exit(0);
    }
    join(pid);
    exchange(&d, o.qp[0], 2);
    // The event that was asked for came, and the child has not taken it.
    assert_true(duo_is_readable(vb_channel_fd(d.end[0].channel), DUO_PATIENCE_S * 1000));
    duo_close(&d);
}

// Nobody finds the parent gone, and new peers still find the way to it.
static void test_new_connections_after_a_child_closed(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct duo_state *s = *state;
    if (!DUO_CHILD_IS_FREE)
        SKIP("the thread sanitizer lets a child free nothing that it inherited");
    duo_open(&d, s);
    duo_connect(&d, VB_SERVICE_RC, qp);
    exchange(&d, qp[0], 1);
    pid_t pid = fork();
    if (pid == 0) {
        vb_nic_close(s->nic[0]);
        vb_nic_close(s->nic[1]);
        _exit(0);
    }
    join(pid);
    vb_nic_close(s->nic[0]);
    s->nic[0] = d.end[0].nic = duo_open_nic(2, s->way);
    free(d.end[0].memory);
    struct duo_end there = d.end[1];
    duo_open_ends(&d);
    free(there.memory);
    duo_connect(&d, VB_SERVICE_RC, qp);
    exchange(&d, qp[0], 2);
    duo_close(&d);
}

// A child that lives on keeps nothing of its parent's: the address is free again.
static void test_a_child_keeps_no_address(void **state)
{
    struct duo_state *s = *state;
    int up[2], down[2];
    char one;
    assert_int_equal(pipe(up) | pipe(down), 0);
    struct vb_nic *nic = duo_open_nic(0, s->way);
    pid_t pid = fork();
    if (pid == 0) {
        close(down[1]);
        CHECK(write(up[1], "", 1) == 1);
        CHECK(read(down[0], &one, 1) == 0); // until the parent is done
        _exit(0);
    }
    assert_int_equal(read(up[0], &one, 1), 1); // it is there
    vb_nic_close(nic);
    vb_nic_close(duo_open_nic(0, s->way));
    close(down[1]);
    join(pid);
    close(down[0]);
    close(up[0]);
    close(up[1]);
}

// Descriptors that the child opens get the numbers of those that its copy has given up: nothing of
// the dead NIC goes there, though its helper slept when the child was made.
static void test_a_child_has_its_descriptors_to_itself(void **state)
{
    enum {
        FILES = 64
    };
    struct duo d;
    struct objects o;
    struct duo_state *s = *state;
    duo_open(&d, s);
    make_objects(&d, &o);
    exchange(&d, o.qp[0], 1);
    duo_await_sleep(&d);
    pid_t pid = fork();
    if (pid == 0) {
        struct stat file;
        int fd[FILES];
        for (int i = 0; i < FILES; i++)
            CHECK((fd[i] = memfd_create("child", 0)) >= 0);
        refuse_making(&d.end[0]);
        refuse_using(&d, &o);
        refuse_ending(&d.end[0], &o);
        if (DUO_CHILD_IS_FREE) {
            vb_nic_close(s->nic[0]);
            vb_nic_close(s->nic[1]);
        }
        for (int i = 0; i < FILES; i++)
            CHECK(fstat(fd[i], &file) == 0 && file.st_size == 0);
        _exit(0);
    }
    join(pid);
    exchange(&d, o.qp[0], 2);
    duo_close(&d);
}

// ---- while threads are at work

struct load {
    const struct duo *d;
    struct vb_qp *qp;
    atomic_bool stop;
    uint64_t done;
};

static void *keep_busy(void *arg)
{
    struct load *l = arg;
    const struct duo_end *e = &l->d->end[0];
    while (!atomic_load(&l->stop)) {
        const struct vb_sge sge = {(uintptr_t)e->memory, 4096, vb_mr_key(e->mr)};
        struct vb_send_wr wr = duo_wr(l->d, VB_WR_WRITE, l->done);
        struct vb_wc wc;
        wr.sge = &sge;
        wr.num_sge = 1;
        if (vb_post_send(l->qp, &wr, 1) != 1)
            return l;
        while (vb_poll_cq(e->cq, &wc, 1) == 0)
            ;
        if (wc.status != VB_WC_OK)
            return l;
        l->done++;
    }
    return NULL;
}

// The child's own NIC, talking to itself.
static void live_own_life(const char *address, const char *port)
{
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct vb_qp *qp;
    struct vb_wc wc;
    uint64_t word[2] = {5, 0};
    const struct vb_nic_opts opts = {.address = address, .port = port, .faults = "off"};
    CHECK(vb_nic_open(&opts, &nic) == 0);
    CHECK(vb_pd_alloc(nic, &pd) == 0);
    CHECK(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 4}, &cq) == 0);
    CHECK(vb_mr_reg(pd, word, sizeof word, DUO_RIGHTS, &mr) == 0);
    const struct vb_qp_opts with = {.send_cq = cq, .recv_cq = cq, .send_depth = 1};
    CHECK(vb_qp_create(pd, &with, &qp) == 0);
    struct vb_qp_peer self = {.qpn = vb_qp_num(qp), .rights = DUO_REMOTE};
    vb_nic_gid(nic, self.gid);
    CHECK(vb_qp_connect(qp, &self) == 0);
    const struct vb_sge sge = {(uintptr_t)&word[1], 8, vb_mr_key(mr)};
    const struct vb_send_wr wr = {.opcode = VB_WR_READ,
                                  .flags = VB_WR_SIGNALED,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .raddr = (uintptr_t)word,
                                  .rkey = vb_mr_key(mr)};
    CHECK(vb_post_send(qp, &wr, 1) == 1);
    while (vb_poll_cq(cq, &wc, 1) == 0)
        ;
    CHECK(wc.status == VB_WC_OK && word[1] == 5);
    vb_nic_close(nic);
}

static void test_forking_while_threads_work(void **state)
{
    if (UNDER_ASAN)
        SKIP("the sanitizer's allocator has no locks for fork() beside threads that work");
    struct duo d;
    struct vb_qp *qp[2];
    struct duo_state *s = *state;
    char address[16];
    pthread_t thread;
    void *why;
    pair_address(2, address);
    duo_open(&d, s);
    duo_connect(&d, VB_SERVICE_RC, qp);
    struct load load = {.d = &d, .qp = qp[0]};
    assert_int_equal(pthread_create(&thread, NULL, keep_busy, &load), 0);
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct vb_wc wc;
            REFUSED(vb_poll_cq(d.end[0].cq, &wc, 1));
            if (DUO_CHILD_IS_FREE && i % 2)
                vb_nic_close(s->nic[0]);
            if (DUO_CHILD_IS_FREE)
                live_own_life(address, s->way);
            _exit(0);
        }
        join(pid);
    }
    atomic_store(&load.stop, true);
    pthread_join(thread, &why);
    assert_null(why);
    assert_true(load.done > 0);
    duo_close(&d);
}

// Forking leaves a thread as cancellable as it was.
static void test_a_thread_that_forked_can_be_cancelled(void **state)
{
    struct duo d;
    int before;
    duo_open(&d, *state); // two NICs
    pid_t pid = fork();
    if (pid == 0) {
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
        CHECK(before == PTHREAD_CANCEL_ENABLE);
        _exit(0);
    }
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    assert_int_equal(before, PTHREAD_CANCEL_ENABLE);
    join(pid);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_WAYS(test_a_child_is_refused),
        DUO_PORTS(test_new_connections_after_a_child_closed),
        DUO_PORTS(test_a_child_keeps_no_address),
        DUO_PORTS(test_a_child_has_its_descriptors_to_itself),
        DUO_PORTS(test_forking_while_threads_work),
        DUO_TEST(test_a_thread_that_forked_can_be_cancelled, "udp"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
