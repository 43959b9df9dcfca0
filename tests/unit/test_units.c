// SPDX-License-Identifier: Apache-2.0
// Several processing units on one NIC: steering, frames handed over, queues that cross units, and
// threads that run the units at the same time.
#include "verbena/nic.h"

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
    UNITS = 2,
    QPS = 6, // on each side
    BYTES = 8192,
    ROUNDS = 300,
    PATIENCE_S = 60,
};

struct side {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *cq[UNITS];
    struct vb_qp *qp[QPS];
    uint8_t *memory; // BYTES for each queue pair
};

static void open_side(struct side *s, unsigned host, bool crossing)
{
    char text[64], why[VB_ERROR_TEXT] = "";
    pair_address(host, text);
    const struct vb_nic_opts opts = {.address = text, .units = UNITS, .error_text = why};
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
    for (uint32_t u = 0; u < UNITS; u++)
        assert_int_equal(
            vb_cq_create(s->nic, &(struct vb_cq_opts){.entries = 1024, .unit = u + 1}, &s->cq[u]),
            0);
    for (uint32_t i = 0; i < QPS; i++) {
        struct vb_cq *send = s->cq[i % UNITS], *recv = s->cq[(i + crossing) % UNITS];
        const struct vb_qp_opts qp = {
            .send_cq = send, .recv_cq = recv, .send_depth = 64, .recv_depth = 64};
        assert_int_equal(vb_qp_create(s->pd, &qp, &s->qp[i]), 0);
        assert_int_equal(vb_qp_num(s->qp[i]) % UNITS, i % UNITS);
    }
}

// Queue pair i to the peer's mate[i]; NULL: to its i-th.
static void connect_to(struct side *s, const struct side *peer, const uint32_t *mate)
{
    for (uint32_t i = 0; i < QPS; i++) {
        struct vb_qp_peer p = {.qpn = vb_qp_num(peer->qp[mate ? mate[i] : i]),
                               .rights = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ |
                                         VB_RIGHT_REMOTE_ATOMIC};
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
    uint32_t unit;
    uint64_t added;
    const char *wrong;
};

static bool await(struct worker *w, struct vb_wc *wc)
{
    time_t until = time(NULL) + PATIENCE_S;
    while (vb_poll_cq(w->here->cq[w->unit], wc, 1) == 0)
        if (time(NULL) > until)
            return false;
    return true;
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
    if (vb_post_send(w->here->qp[i], &wr, 1) != 1 || !await(w, &wc))
        return false;
    return wc.status == VB_WC_OK && wc.wr_id == i;
}

static void *work(void *arg)
{
    struct worker *w = arg;

    for (uint32_t round = 0; round < ROUNDS && !w->wrong; round++) {
        for (uint32_t i = w->unit; i < QPS && !w->wrong; i += UNITS) {
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

static void test_two_threads_run_two_units(void **state)
{
    (void)state;
    struct side a, b;
    open_side(&a, 0, false);
    open_side(&b, 1, false);
    connect_to(&a, &b, NULL);
    connect_to(&b, &a, NULL);
    struct worker w[UNITS];
    pthread_t thread[UNITS];
    for (uint32_t u = 0; u < UNITS; u++) {
        w[u] = (struct worker){.here = &a, .there = &b, .unit = u};
        assert_int_equal(pthread_create(&thread[u], NULL, work, &w[u]), 0);
    }
    for (uint32_t u = 0; u < UNITS; u++) {
        pthread_join(thread[u], NULL);
        if (w[u].wrong)
            fail_msg("unit %u: %s went wrong", u, w[u].wrong);
        assert_int_equal(w[u].added, ROUNDS * (QPS / UNITS));
    }
    close_side(&a);
    close_side(&b);
}

// A batch for queue pairs of both units leaves as segments of one datagram; who gets it hands over.
static void test_frames_find_their_unit(void **state)
{
    (void)state;
    struct side a, b;
    open_side(&a, 0, false);
    open_side(&b, 1, false);
    // One unit's queue pairs are connected to those of both units.
    static const uint32_t there[QPS] = {0, 3, 1, 4, 2, 5}, back[QPS] = {0, 2, 4, 1, 3, 5};
    uint64_t handed = 0;
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
            w.unit = i % UNITS;
            assert_true(await(&w, &wc));
            assert_int_equal(wc.status, VB_WC_OK);
        }
    }
    assert_int_equal(vb_nic_counter(b.nic, "rx_handed_over", &handed), 0);
    assert_true(handed > 0);
    close_side(&a);
    close_side(&b);
}

// Receives complete on the other unit's queue than the one the queue pair lives on.
static void test_receives_cross_units(void **state)
{
    (void)state;
    struct side a, b;
    open_side(&a, 0, true);
    open_side(&b, 1, true);
    connect_to(&a, &b, NULL);
    connect_to(&b, &a, NULL);
    for (uint32_t i = 0; i < QPS; i++) {
        const struct vb_sge sge = {(uintptr_t)b.memory + i * BYTES, BYTES, vb_mr_key(b.mr)};
        const struct vb_recv_wr recv = {.wr_id = 100 + i, .sge = &sge, .num_sge = 1};
        assert_int_equal(vb_post_recv(b.qp[i], &recv, 1), 1);
        struct worker w = {.here = &a, .there = &b, .unit = i % UNITS};
        struct worker at_b = {.here = &b, .there = &a, .unit = (i + 1) % UNITS};
        struct vb_wc wc;
        assert_true(run(&w, i, VB_WR_SEND, 3000));
        assert_true(await(&at_b, &wc));
        assert_int_equal(wc.wr_id, 100 + i);
        assert_int_equal(wc.byte_len, 3000);
        assert_int_equal(wc.qpn, vb_qp_num(b.qp[i]));
    }
    close_side(&a);
    close_side(&b);
}

static void test_units_that_may_not_be(void **state)
{
    (void)state;
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
    opts.port = "shm";
    assert_int_equal(vb_nic_open(&opts, &nic), -EINVAL);
    assert_non_null(strstr(why, "udp"));
    opts.port = "udp";
    opts.faults = "drop=1%";
    assert_int_equal(vb_nic_open(&opts, &nic), -EINVAL);
    assert_non_null(strstr(why, "one unit"));
    opts.faults = "off";
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    assert_int_equal(vb_nic_set_faults(nic, "drop=1%", why), -EINVAL);
    assert_non_null(strstr(why, "one unit"));
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 4, .unit = 3}, &cq),
                     -EINVAL);
    // Nobody can join the address afterwards.
    struct vb_nic *second = NULL;
    assert_int_equal(vb_nic_open(&opts, &second), -EADDRINUSE);
    vb_nic_close(nic);
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    vb_nic_close(nic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_threads_run_two_units),
        cmocka_unit_test(test_frames_find_their_unit),
        cmocka_unit_test(test_receives_cross_units),
        cmocka_unit_test(test_units_that_may_not_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
