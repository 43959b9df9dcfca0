// SPDX-License-Identifier: Apache-2.0
// Several processing units on one NIC: steering, frames handed over, queues that cross units, and
// threads that run the units at the same time.
#include "verbena/nic.h"

#include "../wait.h"
#include "duo.h"
#include "pair.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    UNITS_MAX = 4,
    QPS = 6, // on each side
    BYTES = 8192,
    ROUNDS = 300,
};

struct side {
    struct vb_nic *nic;
    uint32_t units;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *cq[UNITS_MAX];
    struct vb_qp *qp[QPS];
    uint8_t *memory; // BYTES for each queue pair
};

struct plan {
    const char *port;
    uint32_t units; // 0: two
    const char *faults;
    bool crossing; // receives complete on the next unit's queue
};

static void open_side(struct side *s, unsigned host, const struct plan *plan)
{
    char text[64], why[VB_ERROR_TEXT] = "";
    pair_address(host, text);
    s->units = plan->units ? plan->units : 2;
    const struct vb_nic_opts opts = {.address = text,
                                     .port = plan->port,
                                     .units = s->units,
                                     .faults = plan->faults,
                                     .error_text = why};
    if (vb_nic_open(&opts, &s->nic) != 0)
        fail_msg("%s", why);
    s->memory = calloc(QPS, BYTES);
    assert_non_null(s->memory);
    assert_int_equal(vb_pd_alloc(s->nic, &s->pd), 0);
    assert_int_equal(vb_mr_reg(s->pd, s->memory, (size_t)QPS * BYTES,
                               VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ |
                                   VB_RIGHT_REMOTE_ATOMIC,
                               &s->mr),
                     0);
    for (uint32_t u = 0; u < s->units; u++)
        assert_int_equal(
            vb_cq_create(s->nic, &(struct vb_cq_opts){.entries = 1024, .unit = u + 1}, &s->cq[u]),
            0);
    for (uint32_t i = 0; i < QPS; i++) {
        struct vb_cq *send = s->cq[i % s->units], *recv = s->cq[(i + plan->crossing) % s->units];
        const struct vb_qp_opts qp = {
            .send_cq = send, .recv_cq = recv, .send_depth = 64, .recv_depth = 64};
        assert_int_equal(vb_qp_create(s->pd, &qp, &s->qp[i]), 0);
        assert_int_equal(vb_qp_num(s->qp[i]) % s->units, i % s->units);
    }
}

// Queue pair i to the peer's mate[i]; NULL: to its i-th.
static void connect_to(struct side *s, const struct side *peer, const uint32_t *mate)
{
    for (uint32_t i = 0; i < QPS; i++) {
        struct vb_qp_peer p = {.qpn = vb_qp_num(peer->qp[mate ? mate[i] : i]),
                               .rights = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ |
                                         VB_RIGHT_REMOTE_ATOMIC,
                               .timeout = 15}; // threads may wait long for their turn
        vb_nic_gid(peer->nic, p.gid);
        assert_int_equal(vb_qp_connect(s->qp[i], &p), 0);
    }
}

static void close_side(struct side *s)
{
    vb_nic_close(s->nic);
    free(s->memory);
}

struct worker {
    struct side *here, *there;
    uint32_t unit, rounds;
    uint64_t added;
    const char *wrong;
};

static void await(struct worker *w, struct vb_wc *wc)
{
    WAIT_UNTIL(vb_poll_cq(w->here->cq[w->unit], wc, 1) != 0);
}

// One request on queue pair i, and its completion.
static bool run(struct worker *w, uint32_t i, enum vb_wr_opcode opcode, uint32_t len)
{
    const struct vb_sge sge = {(uintptr_t)w->here->memory + i * BYTES, len, vb_mr_key(w->here->mr)};
    struct vb_send_wr wr = {.wr_id = i,
                            .sge = &sge,
                            .num_sge = 1,
                            .opcode = opcode,
                            .flags = VB_WR_SIGNALED,
                            .raddr = (uintptr_t)w->there->memory + i * BYTES,
                            .rkey = vb_mr_key(w->there->mr)};
    struct vb_wc wc;

    wr.atomic.swap_add = opcode == VB_WR_FADD ? 1 : 0;
    if (vb_post_send(w->here->qp[i], &wr, 1) != 1)
        return false;
    await(w, &wc);
    return wc.status == VB_WC_OK && wc.wr_id == i;
}

static void *work(void *arg)
{
    struct worker *w = arg;

    for (uint32_t round = 0; round < w->rounds && !w->wrong; round++) {
        for (uint32_t i = w->unit; i < QPS && !w->wrong; i += w->here->units) {
            uint8_t *mine = w->here->memory + i * BYTES;
            memset(mine + 64, (int)(round + i), 1000);
            if (!run(w, i, VB_WR_FADD, 8))
                w->wrong = "fetch and add";
            else if (!run(w, i, VB_WR_WRITE, 5000))
                w->wrong = "write";
            memset(mine + 64, 0, 1000);
            if (!w->wrong && !run(w, i, VB_WR_READ, 5000))
                w->wrong = "read";
            if (!w->wrong && mine[64] != (uint8_t)(round + i))
                w->wrong = "the bytes";
            w->added++;
        }
    }
    return NULL;
}

// A thread for each unit of `a` works against `b`.
static void exchange(struct side *a, struct side *b, uint32_t rounds)
{
    struct worker w[UNITS_MAX];
    pthread_t thread[UNITS_MAX];
    for (uint32_t u = 0; u < a->units; u++) {
        w[u] = (struct worker){.here = a, .there = b, .unit = u, .rounds = rounds};
        assert_int_equal(pthread_create(&thread[u], NULL, work, &w[u]), 0);
    }
    uint64_t added = 0;
    for (uint32_t u = 0; u < a->units; u++) {
        pthread_join(thread[u], NULL);
        if (w[u].wrong)
            fail_msg("unit %u: %s went wrong", u, w[u].wrong);
        added += w[u].added;
    }
    assert_int_equal(added, rounds * QPS);
}

static uint64_t counter(const struct side *s, const char *name)
{
    uint64_t value;
    assert_int_equal(vb_nic_counter(s->nic, name, &value), 0);
    return value;
}

static void open_both(struct side *a, struct side *b, const struct plan *plan)
{
    open_side(a, 0, plan);
    open_side(b, 1, plan);
}

static void connect_both(struct side *a, struct side *b)
{
    connect_to(a, b, NULL);
    connect_to(b, a, NULL);
}

static void test_two_threads_run_two_units(void **state)
{
    struct side a, b;
    open_both(&a, &b, &(struct plan){.port = *state});
    connect_both(&a, &b);
    exchange(&a, &b, ROUNDS);
    // Each unit talks to one of the peer's: nothing comes to the wrong one.
    assert_int_equal(counter(&a, "rx_handed_over") + counter(&b, "rx_handed_over"), 0);
    close_side(&a);
    close_side(&b);
}

// Frames find their unit whatever the other side's number of units is.
static void test_units_differ(void **state)
{
    static const uint32_t units[][2] = {{1, 2}, {2, 1}, {2, 4}, {4, 2}, {4, 1}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        struct side a, b;
        open_side(&a, 0, &(struct plan){.port = *state, .units = units[i][0]});
        open_side(&b, 1, &(struct plan){.port = *state, .units = units[i][1]});
        connect_both(&a, &b);
        exchange(&a, &b, ROUNDS / 10);
        assert_int_equal(counter(&a, "rx_stranger") + counter(&b, "rx_stranger"), 0);
        close_side(&a);
        close_side(&b);
    }
}

// A batch for queue pairs of both units leaves as segments of one datagram, and who gets it hands
// over; through memory each frame takes the ring of its unit.
static void test_frames_find_their_unit(void **state)
{
    struct side a, b;
    open_both(&a, &b, &(struct plan){.port = *state});
    // One unit's queue pairs are connected to those of both units.
    static const uint32_t there[QPS] = {0, 3, 1, 4, 2, 5}, back[QPS] = {0, 2, 4, 1, 3, 5};
    connect_to(&a, &b, there);
    connect_to(&b, &a, back);
    struct worker w = {.here = &a, .there = &b};
    struct vb_wc wc;
    for (uint32_t round = 0; round < 100; round++) {
        for (uint32_t i = 0; i < QPS; i++) {
            const struct vb_sge sge = {(uintptr_t)a.memory + i * BYTES, 64, vb_mr_key(a.mr)};
            const struct vb_send_wr wr = {.wr_id = i,
                                          .sge = &sge,
                                          .num_sge = 1,
                                          .opcode = VB_WR_WRITE,
                                          .flags = VB_WR_SIGNALED,
                                          .raddr = (uintptr_t)b.memory + i * BYTES,
                                          .rkey = vb_mr_key(b.mr)};
            assert_int_equal(vb_post_send(a.qp[i], &wr, 1), 1);
        }
        for (uint32_t i = 0; i < QPS; i++) {
            w.unit = i % a.units;
            await(&w, &wc);
            assert_int_equal(wc.status, VB_WC_OK);
        }
    }
    uint64_t handed = counter(&b, "rx_handed_over");
    assert_true(strcmp(*state, "udp") == 0 ? handed > 0 : handed == 0);
    close_side(&a);
    close_side(&b);
}

// Receives complete on the other unit's queue than the one the queue pair lives on.
static void test_receives_cross_units(void **state)
{
    struct side a, b;
    open_both(&a, &b, &(struct plan){.port = *state, .crossing = true});
    connect_both(&a, &b);
    for (uint32_t i = 0; i < QPS; i++) {
        const struct vb_sge sge = {(uintptr_t)b.memory + i * BYTES, BYTES, vb_mr_key(b.mr)};
        const struct vb_recv_wr recv = {.wr_id = 100 + i, .sge = &sge, .num_sge = 1};
        assert_int_equal(vb_post_recv(b.qp[i], &recv, 1), 1);
        struct worker w = {.here = &a, .there = &b, .unit = i % a.units};
        struct worker at_b = {.here = &b, .there = &a, .unit = (i + 1) % b.units};
        struct vb_wc wc;
        assert_true(run(&w, i, VB_WR_SEND, 3000));
        await(&at_b, &wc);
        assert_int_equal(wc.wr_id, 100 + i);
        assert_int_equal(wc.byte_len, 3000);
        assert_int_equal(wc.qpn, vb_qp_num(b.qp[i]));
    }
    close_side(&a);
    close_side(&b);
}

static void test_units_that_may_not_be(void **state)
{
    char text[64], why[VB_ERROR_TEXT];
    struct vb_nic *nic = NULL;
    struct vb_cq *cq = NULL;
    pair_address(0, text);
    struct vb_nic_opts opts = {.address = text, .error_text = why};
    static const uint32_t bad[] = {3, 5, 17, 32};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        opts.units = bad[i];
        assert_int_equal(vb_nic_open(&opts, &nic), -EINVAL);
        assert_non_null(strstr(why, "power of two"));
    }
    opts.units = 2;
    opts.port = "smoke";
    assert_int_equal(vb_nic_open(&opts, &nic), -EINVAL);
    assert_non_null(strstr(why, "there are udp, shm and auto"));
    opts.port = *state;
    opts.faults = "drop=1x";
    assert_int_equal(vb_nic_open(&opts, &nic), -EINVAL);
    assert_non_null(strstr(why, "a probability is"));
    opts.faults = "off";
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 4, .unit = 3}, &cq),
                     -EINVAL);
    // Another one can join the address by udp; by shm there is one each.
    struct vb_nic *second = NULL;
    bool joins = strcmp(opts.port, "udp") == 0;
    assert_int_equal(vb_nic_open(&opts, &second), joins ? 0 : -EADDRINUSE);
    vb_nic_close(joins ? second : NULL);
    vb_nic_close(nic);
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    vb_nic_close(nic);
}

// ---- faults on purpose

// Frames, drops and copies are each unit's own: every rule does its work on both, and what was
// asked for still happens.
static void test_faults_on_several_units(void **state)
{
    struct side a, b;
    const struct plan plan = {.port = *state, .faults = "drop=1%;dup=1%;delay=20us@1%;corrupt=1%"};
    open_both(&a, &b, &plan);
    connect_both(&a, &b);
    exchange(&a, &b, ROUNDS / 10);
    assert_true(counter(&a, "faults_dropped") > 0 && counter(&a, "faults_duplicated") > 0);
    assert_true(counter(&a, "faults_delayed") > 0 && counter(&a, "faults_corrupted") > 0);
    // What one of them corrupts on its way out the other one finds.
    assert_true(counter(&b, "rx_bad_icrc") > 0);
    assert_int_equal(vb_nic_set_faults(a.nic, "off", NULL), 0);
    assert_int_equal(vb_nic_set_faults(b.nic, "off", NULL), 0);
    uint64_t before = counter(&a, "faults_dropped") + counter(&b, "rx_bad_icrc");
    exchange(&a, &b, 2);
    assert_int_equal(counter(&a, "faults_dropped") + counter(&b, "rx_bad_icrc"), before);
    close_side(&a);
    close_side(&b);
}

// What leaves corrupted is the receiver's to find, frame by frame.
static void test_corrupted_frames_are_counted(void **state)
{
    struct side a, b;
    open_both(&a, &b, &(struct plan){.port = *state});
    connect_both(&a, &b);
    assert_int_equal(vb_nic_set_faults(a.nic, "corrupt=#1..3,dir=tx,op=write", NULL), 0);
    exchange(&a, &b, 2);
    assert_int_equal(counter(&a, "faults_corrupted"), 3 * a.units);
    assert_int_equal(counter(&b, "rx_bad_icrc"), 3 * a.units);
    assert_int_equal(counter(&b, "rx_malformed") + counter(&b, "rx_stranger"), 0);
    assert_int_equal(counter(&b, "rx_bad_peers"), 0);
    close_side(&a);
    close_side(&b);
}

// Counting triggers count on each unit for itself, registrations on the NIC.
static void test_triggers_count_by_unit(void **state)
{
    struct side a, b;
    char why[VB_ERROR_TEXT];
    open_both(&a, &b, &(struct plan){.port = *state});
    connect_both(&a, &b);
    assert_int_equal(vb_nic_set_faults(a.nic, "drop=#2,dir=tx,op=write;reg_mr=#2", NULL), 0);
    exchange(&a, &b, 2);
    assert_int_equal(counter(&a, "faults_dropped"), a.units);
    struct vb_mr *mr = NULL;
    assert_int_equal(vb_mr_reg(a.pd, a.memory, BYTES, VB_RIGHT_LOCAL_WRITE, &mr), 0);
    assert_int_equal(vb_mr_reg(a.pd, a.memory, BYTES, VB_RIGHT_LOCAL_WRITE, &mr), -ENOMEM);
    // A mistake changes nothing, on any unit.
    assert_int_equal(vb_nic_set_faults(a.nic, "drop=2", why), -EINVAL);
    assert_int_equal(vb_mr_reg(a.pd, a.memory, BYTES, VB_RIGHT_LOCAL_WRITE, &mr), 0);
    // Each unit forces its own errors.
    assert_int_equal(vb_nic_set_faults(a.nic, "wc=rem_op:write@#1", NULL), 0);
    for (uint32_t i = 0; i < 2 * a.units; i++) {
        struct worker w = {.here = &a, .there = &b, .unit = i % a.units};
        assert_int_equal(run(&w, i, VB_WR_WRITE, 64), i >= a.units);
    }
    close_side(&a);
    close_side(&b);
}

#define ON(test, port)                                                   \
    {                                                                    \
#test " (" port ")", test, NULL, NULL, (void *)(uintptr_t)(port) \
    }
#define ON_PORTS(test) ON(test, "udp"), ON(test, "shm"), ON(test, "auto")

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_PORTS(test_two_threads_run_two_units),    ON_PORTS(test_units_differ),
        ON_PORTS(test_frames_find_their_unit),       ON_PORTS(test_receives_cross_units),
        ON_PORTS(test_units_that_may_not_be),        ON_PORTS(test_faults_on_several_units),
        ON_PORTS(test_corrupted_frames_are_counted), ON_PORTS(test_triggers_count_by_unit),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
