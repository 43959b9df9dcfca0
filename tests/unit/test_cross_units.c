// SPDX-License-Identifier: Apache-2.0
// Cross-channel work between two units: queues of one wait for completions of the other and open
// its queues, while a thread polls each. For the thread sanitizer above all.
#include "chain.h"
#include "pair.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    ROUNDS = 500
};

static void open_end(struct duo_end *e, const char *port)
{
    char text[16], why[VB_ERROR_TEXT] = "";
    pair_address(0, text);
    const struct vb_nic_opts opts = {
        .address = text, .port = port, .units = 2, .faults = "off", .error_text = why};
    *e = (struct duo_end){.memory = calloc(1, DUO_BYTES)};
    if (vb_nic_open(&opts, &e->nic) != 0)
        fail_msg("%s", why);
    assert_int_equal(vb_pd_alloc(e->nic, &e->pd), 0);
    assert_int_equal(vb_mr_reg(e->pd, e->memory, DUO_BYTES, DUO_RIGHTS, &e->mr), 0);
    e->cq = chain_cq(e, (struct vb_cq_opts){.unit = 1});
}

static void close_end(struct duo_end *e)
{
    vb_nic_close(e->nic);
    free(e->memory);
}

static void test_wait_and_enable_across(void **state)
{
    struct duo_end e;
    open_end(&e, *state);
    struct vb_cq *far = chain_cq(&e, (struct vb_cq_opts){.unit = 2});
    struct vb_qp *here = chain_self(&e, e.cq, (struct vb_qp_opts){0});
    struct vb_qp *there = chain_self(&e, far, (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND});

    chain_nop(there, 1);
    chain_nop(there, 2);
    chain_cross(here, VB_WR_WAIT, 3, vb_cq_num(far), 1);
    duo_expect_quiet(e.cq);
    assert_int_equal(vb_qp_open(there, false, 1), 0);
    duo_expect(far, 1, VB_WC_OK);
    duo_expect_quiet(e.cq);
    struct vb_qp *opener = chain_self(&e, e.cq, (struct vb_qp_opts){0});
    chain_cross(opener, VB_WR_SEND_EN, 4, vb_qp_num(there), 2); // nobody polls its unit
    bool seen[5] = {false};
    for (int i = 0; i < 2; i++) {
        struct vb_wc wc = duo_wait(e.cq);
        assert_int_equal(wc.status, VB_WC_OK);
        seen[wc.wr_id] = true;
    }
    assert_true(seen[3] && seen[4]);
    duo_expect(far, 2, VB_WC_OK);
    // A queue of the other unit that somebody waits for goes.
    struct vb_cq *gone = chain_cq(&e, (struct vb_cq_opts){.unit = 2});
    chain_cross(here, VB_WR_WAIT, 5, vb_cq_num(gone), 0);
    duo_expect_quiet(e.cq);
    assert_int_equal(vb_cq_destroy(gone), 0);
    duo_expect(e.cq, 5, VB_WC_LOCAL_QP_OP);
    close_end(&e);
}

// ---- at the same time

struct player {
    struct vb_qp *qp, *opened; // `opened` lives on the other unit
    struct vb_cq *own, *other; // completions of qp, and what it waits for
    struct vb_cq *opened_cq;   // polled by the other thread
    uint32_t first;            // waits from this round on
    int line;
    pthread_t thread;
};

static bool post(struct vb_qp *qp, enum vb_wr_opcode opcode, uint32_t flags, uint32_t number,
                 uint32_t index, uint64_t wr_id)
{
    struct vb_send_wr wr = {.wr_id = wr_id, .opcode = opcode, .flags = flags};
    if (opcode != VB_WR_NOP) {
        wr.cross.number = number;
        wr.cross.index = index;
    }
    return vb_post_send(qp, &wr, 1) == 1;
}

// Each round waits for one of the other's completions, opens one entry there, and completes once.
static void *play(void *arg)
{
    struct player *p = arg;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (i >= p->first)
            DUO_CHECK(p, post(p->qp, VB_WR_WAIT, 0, vb_cq_num(p->other), i - p->first, 0));
        DUO_CHECK(p, post(p->qp, VB_WR_SEND_EN, 0, vb_qp_num(p->opened), i + 1, 0));
        DUO_CHECK(p, post(p->qp, VB_WR_NOP, VB_WR_SIGNALED, 0, 0, i));
        DUO_CHECK(p, duo_wait_ok(p->own, i));
        DUO_CHECK(p, duo_wait_ok(p->opened_cq, 0));
    }
    return NULL;
}

struct auditor {
    struct vb_cq *cq;
    atomic_uint_fast64_t seen;
    atomic_bool done;
    pthread_t thread;
};

static void *audit(void *arg)
{
    struct auditor *a = arg;
    struct vb_wc wc[8];

    while (!atomic_load(&a->done)) {
        int n = vb_poll_cq(a->cq, wc, 8);
        a->seen += n > 0 ? (uint64_t)n : 0;
    }
    return NULL;
}

static void make_player(const struct duo_end *e, struct player *p, uint32_t unit,
                        struct vb_program *program)
{
    *p = (struct player){.own = chain_cq(e, (struct vb_cq_opts){.unit = unit + 1}),
                         .opened_cq = chain_cq(e, (struct vb_cq_opts){.unit = !unit + 1})};
    p->qp = chain_self(e, p->own, (struct vb_qp_opts){.program = program});
    p->opened = chain_self(
        e, p->opened_cq,
        (struct vb_qp_opts){.chain = CHAIN_MANAGED, .send_depth = 4, .program = program});
    for (int i = 0; i < 4; i++)
        chain_nop(p->opened, 0);
}

static void test_two_threads_play(void **state)
{
    struct duo_end e;
    struct player p[2];
    bool stopped;
    uint64_t count;
    open_end(&e, *state);
    struct auditor a = {
        .cq = chain_cq(&e, (struct vb_cq_opts){.unit = 2, .entries = 16, .ignore_overrun = true})};
    struct vb_program *program;
    assert_int_equal(vb_program_create(e.pd, &(struct vb_program_opts){.audit = a.cq}, &program),
                     0);
    for (uint32_t i = 0; i < 2; i++)
        make_player(&e, &p[i], i, program);
    for (uint32_t i = 0; i < 2; i++) {
        p[i].other = p[!i].own;
        p[i].first = i; // the second has nothing to wait for at first
    }
    assert_int_equal(pthread_create(&a.thread, NULL, audit, &a), 0);
    // Who comes too late finds a queue that was overrun, and perhaps nothing in it.
    assert_true(post(p[0].qp, VB_WR_NOP, 0, 0, 0, 0));
    while (atomic_load(&a.seen) == 0)
        vb_nic_progress(e.nic);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&p[i].thread, NULL, play, &p[i]), 0);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(p[i].thread, NULL);
    atomic_store(&a.done, true);
    pthread_join(a.thread, NULL);
    assert_int_equal(p[0].line, 0);
    assert_int_equal(p[1].line, 0);
    // Each round: a WAIT (but once), a SEND_EN, a NOP, and the NOP that was opened; and the first.
    assert_int_equal(vb_program_query(program, &count, &stopped), 0);
    assert_int_equal(count, 2 * 4 * ROUNDS);
    assert_int_equal(vb_cq_count(a.cq), count);
    assert_in_range(atomic_load(&a.seen), 1, count);
    close_end(&e);
}

// ---- objects that go meanwhile

struct breaker {
    const struct duo_end *e;
    atomic_bool *done;
    int line;
    pthread_t thread;
};

// Makes queues, waits for them and destroys them.
static void *break_things(void *arg)
{
    struct breaker *b = arg;

    for (int i = 0; i < 60; i++) {
        struct vb_cq *own, *watched;
        struct vb_qp *qp;
        DUO_CHECK(b, vb_cq_create(b->e->nic, &(struct vb_cq_opts){.entries = 8, .unit = 1}, &own) ==
                         0);
        DUO_CHECK(b, vb_cq_create(b->e->nic, &(struct vb_cq_opts){.entries = 8, .unit = 2},
                                  &watched) == 0);
        const struct vb_qp_opts opts = {
            .send_cq = own, .recv_cq = own, .send_depth = 4, .chain = VB_QP_CROSS_CHANNEL};
        DUO_CHECK(b, vb_qp_create(b->e->pd, &opts, &qp) == 0);
        DUO_CHECK(b, vb_qp_connect_self(qp, 0) == 0);
        DUO_CHECK(b, post(qp, VB_WR_WAIT, VB_WR_SIGNALED, vb_cq_num(watched), 0, 1));
        vb_nic_progress(b->e->nic);
        if (i & 1)
            DUO_CHECK(b, vb_cq_destroy(watched) == 0);
        if (i & 2)
            vb_nic_progress(b->e->nic);
        DUO_CHECK(b, vb_qp_destroy(qp) == 0);
        if (!(i & 1))
            DUO_CHECK(b, vb_cq_destroy(watched) == 0);
        DUO_CHECK(b, vb_cq_destroy(own) == 0);
    }
    return NULL;
}

static void test_objects_go_while_units_run(void **state)
{
    struct duo_end e;
    struct player p[2];
    open_end(&e, *state);
    struct breaker b = {.e = &e};
    for (uint32_t i = 0; i < 2; i++)
        make_player(&e, &p[i], i, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        p[i].other = p[!i].own;
        p[i].first = i;
        assert_int_equal(pthread_create(&p[i].thread, NULL, play, &p[i]), 0);
    }
    assert_int_equal(pthread_create(&b.thread, NULL, break_things, &b), 0);
    pthread_join(b.thread, NULL);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(p[i].thread, NULL);
    assert_int_equal(b.line, 0);
    assert_int_equal(p[0].line, 0);
    assert_int_equal(p[1].line, 0);
    close_end(&e);
}

#define ON(test, port)                                                   \
    {                                                                    \
#test " (" port ")", test, NULL, NULL, (void *)(uintptr_t)(port) \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(test_wait_and_enable_across, "udp"),     ON(test_wait_and_enable_across, "shm"),
        ON(test_two_threads_play, "udp"),           ON(test_two_threads_play, "shm"),
        ON(test_objects_go_while_units_run, "udp"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
