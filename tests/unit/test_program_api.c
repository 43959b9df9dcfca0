// SPDX-License-Identifier: Apache-2.0
// Programs through the public interface: loops that never end beside honest work, rates, limits,
// audits, and the call that ends them.
#include "chain.h"

#include "../wait.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PASSES = 8192, // where endless programs count
};

static uint64_t passes(const struct duo_end *e)
{
    return __atomic_load_n((uint64_t *)(void *)(e->memory + PASSES), __ATOMIC_SEQ_CST);
}

static void expect_passes(const struct duo_end *e)
{
    uint64_t before = passes(e);
    WAIT_UNTIL(passes(e) >= before + 1000);
}

static struct vb_program *make_program(const struct duo_end *e, struct vb_program_opts opts)
{
    struct vb_program *p = NULL;
    assert_int_equal(vb_program_create(e->pd, &opts, &p), 0);
    return p;
}

static uint64_t executed(struct vb_program *p, bool *stopped)
{
    uint64_t count = 0;
    assert_int_equal(vb_program_query(p, &count, stopped), 0);
    return count;
}

// ---- loops

static void test_endless_program_starves_nobody(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_qp *endless = chain_endless(e, e->cq, (struct vb_qp_opts){0}, PASSES);
    duo_connect(&d, VB_SERVICE_RC, qp);
    struct vb_qp *back[2] = {duo_make_qp(&d.end[1], (struct vb_qp_opts){0}),
                             duo_make_qp(e, (struct vb_qp_opts){0})};
    struct vb_qp_peer to = duo_peer(&d, 1, back[1]), from = duo_peer(&d, 0, back[0]);
    assert_int_equal(vb_qp_connect(back[0], &to), 0);
    assert_int_equal(vb_qp_connect(back[1], &from), 0);
    chain_start(endless);
    expect_passes(e);

    for (uint64_t i = 0; i < 100; i++) {
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_READ, i), 0, 512); // its own unit's
        duo_expect(e->cq, i, VB_WC_OK);
        struct vb_send_wr wr = duo_wr(&d, VB_WR_READ, i); // and what a peer asks of it
        wr.raddr = (uintptr_t)e->memory;
        wr.rkey = vb_mr_key(e->mr);
        chain_post(&d.end[1], back[0], wr, 1024, 512);
        duo_expect(d.end[1].cq, i, VB_WC_OK);
    }
    expect_passes(e);
    assert_int_equal(vb_grace(e->nic, DUO_PATIENCE_S * 1000000000ull), 0);
    assert_int_equal(vb_qp_destroy(endless), 0);
    uint64_t last = passes(e);
    usleep(20000); // that nothing happens meanwhile is the claim
    assert_int_equal(passes(e), last);
    duo_close(&d);
}

// The helper goes on with a program where a poll has left it.
static void test_program_runs_without_polling(void **state)
{
    struct duo d;
    struct vb_wc wc;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *cq = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *endless = chain_endless(e, cq, (struct vb_qp_opts){0}, PASSES);

    duo_await_sleep(&d);
    chain_start(endless);
    for (int i = 0; i < 5; i++) {
        expect_passes(e);
        assert_int_equal(vb_poll_cq(cq, &wc, 1), 0);
    }
    for (int i = 0; i < 100; i++) // the helper steps back for these, and takes it up again
        assert_string_equal(vb_qp_state_text(endless), "RTS");
    expect_passes(e);
    duo_close(&d); // while it runs
}

// One that the application's poll begins, by a queue that waited.
static void test_program_begun_by_a_wait(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *cq = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_cq *watched = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *endless = chain_endless(e, cq, (struct vb_qp_opts){0}, PASSES);
    struct vb_qp *opener = chain_self(e, cq, (struct vb_qp_opts){0});
    struct vb_qp *worker = chain_self(e, watched, (struct vb_qp_opts){0});
    struct vb_wc wc;

    chain_cross(opener, VB_WR_WAIT, 1, vb_cq_num(watched), 0);
    chain_cross(opener, VB_WR_SEND_EN, 2, vb_qp_num(endless), 4);
    duo_expect_quiet(cq); // long enough for the helper to leave it to us
    chain_nop(worker, 3);
    assert_true(vb_poll_cq(watched, &wc, 1) >= 0);
    expect_passes(e);
    duo_close(&d);
}

// ---- limits

static void test_rate(void **state)
{
    struct duo d;
    bool stopped;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_program *p = make_program(e, (struct vb_program_opts){0});
    struct vb_qp *slow = chain_endless(
        e, e->cq, (struct vb_qp_opts){.rate = 1000, .burst = 10, .program = p}, PASSES);

    uint64_t began = duo_now_ns();
    chain_start(slow);
    uint64_t count;
    WAIT_UNTIL((count = executed(p, &stopped)) >= 300);
    uint64_t most = (duo_now_ns() - began) / 1000000 + 10 + 1; // late looks only allow more
    assert_in_range(count, 300, most);
    assert_false(stopped);
    assert_int_equal(vb_program_destroy(p), -EBUSY);
    assert_int_equal(vb_qp_destroy(slow), 0);
    assert_int_equal(vb_program_destroy(p), 0);
    duo_close(&d);
}

static void test_limit_and_audit(void **state)
{
    struct duo d;
    struct vb_wc wc[32];
    bool stopped;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *audit = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_program *p = make_program(e, (struct vb_program_opts){.limit = 10, .audit = audit});
    struct vb_qp *endless =
        chain_endless(e, e->cq, (struct vb_qp_opts){.program = p, .start = 0xfff8}, PASSES);
    struct vb_qp *other = chain_self(e, e->cq, (struct vb_qp_opts){.program = p});

    assert_int_equal(vb_qp_open(endless, false, 0xfff8 + 4), 0);
    duo_expect(e->cq, 0, VB_WC_LOCAL_QP_OP);
    duo_expect(e->cq, 0, VB_WC_FLUSHED); // the rest of the round, not of all that were opened
    duo_expect_quiet(e->cq);
    assert_int_equal(executed(p, &stopped), 10);
    assert_true(stopped);
    assert_int_equal(passes(e), 3); // each is four entries
    assert_int_equal(vb_poll_cq(audit, wc, 32), 10);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(wc[i].status, VB_WC_OK);
        assert_int_equal(wc[i].qpn, vb_qp_num(endless));
        assert_int_equal(wc[i].wr_id, (uint16_t)(0xfff8 + i));
        assert_int_equal(wc[i].opcode, i % 4 ? VB_WC_CROSS : VB_WC_ATOMIC);
    }
    chain_expect_state(endless, "ERR");
    chain_nop(other, 5); // all of them have to stop
    duo_expect(e->cq, 5, VB_WC_LOCAL_QP_OP);
    assert_int_equal(vb_poll_cq(audit, wc, 32), 0);
    assert_int_equal(vb_cq_destroy(audit), -EBUSY);
    duo_close(&d);
}

// What cannot be audited is not done: the entry whose completion finds no room sends nothing.
static void test_audit_without_room(void **state)
{
    enum {
        ROOM = 4,
        POSTED = 7,
        TO = 12000
    };
    struct duo d;
    struct vb_wc wc[POSTED];
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *audit = chain_cq(e, (struct vb_cq_opts){.entries = ROOM});
    struct vb_program *p = make_program(e, (struct vb_program_opts){.audit = audit});
    struct vb_qp *qp[2] = {chain_qp(e, e->cq, (struct vb_qp_opts){.program = p}),
                           duo_make_qp(&d.end[1], (struct vb_qp_opts){0})};

    duo_join(&d, qp[0], qp[1]);
    memset(e->memory, 0xaa, POSTED);
    memset(d.end[1].memory + TO, 0, POSTED);
    for (uint32_t i = 0; i < POSTED; i++) {
        struct vb_send_wr wr = duo_wr(&d, VB_WR_WRITE, i);
        wr.raddr += TO + i;
        duo_post(&d, qp[0], wr, i, 1);
    }
    chain_expect_state(qp[0], "ERR");
    assert_int_equal(vb_grace(e->nic, DUO_PATIENCE_S * 1000000000ull), 0);
    for (uint64_t until = duo_now_ns() + 20000000; duo_now_ns() < until;)
        vb_nic_progress(d.end[1].nic); // that nothing more comes is the claim
    for (uint32_t i = 0; i < POSTED; i++)
        assert_int_equal(d.end[1].memory[TO + i], i < ROOM ? 0xaa : 0);
    assert_true(vb_poll_cq(audit, wc, POSTED) <= ROOM);
    duo_close(&d);
}

// Each request that comes in has as much.
static void test_limit_of_each_request(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    bool stopped;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[1];
    struct vb_program *p = make_program(e, (struct vb_program_opts){.limit = 3});
    struct vb_cq *cq = chain_cq(e, (struct vb_cq_opts){0});
    qp[0] = duo_make_qp(&d.end[0], (struct vb_qp_opts){0});
    qp[1] = chain_qp(e, e->cq, (struct vb_qp_opts){.program = p});
    struct vb_qp *worker = chain_self(e, cq, (struct vb_qp_opts){.program = p});
    duo_join(&d, qp[0], qp[1]);

    for (uint64_t i = 0; i < 5; i++) {
        duo_post_recv(e, qp[1], i, 0, 64);
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_SEND, i), 0, 8);
        duo_expect(e->cq, i, VB_WC_OK);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
        for (uint64_t j = 0; j < 3; j++) {
            chain_nop(worker, j);
            duo_expect(cq, j, VB_WC_OK);
        }
    }
    assert_int_equal(executed(p, &stopped), 15);
    assert_false(stopped);
    chain_nop(worker, 9);
    duo_expect(cq, 9, VB_WC_LOCAL_QP_OP);
    executed(p, &stopped);
    assert_true(stopped);
    duo_close(&d);
}

// ---- the end

static void test_stop(void **state)
{
    struct duo d;
    bool stopped;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_program *p = make_program(e, (struct vb_program_opts){0});
    struct vb_cq *cq = chain_cq(e, (struct vb_cq_opts){.entries = 4, .ignore_overrun = true});
    struct vb_qp *endless = chain_endless(e, cq, (struct vb_qp_opts){.program = p}, PASSES);
    struct vb_qp *waiter = chain_self(e, e->cq, (struct vb_qp_opts){.program = p});
    struct vb_qp *stranger = chain_self(e, e->cq, (struct vb_qp_opts){0});

    chain_cross(waiter, VB_WR_WAIT, 1, vb_cq_num(e->cq), 50);
    chain_start(endless);
    expect_passes(e);
    executed(p, &stopped);
    assert_false(stopped);
    assert_int_equal(vb_program_stop(p), 0);
    uint64_t last = passes(e);
    duo_expect(e->cq, 1, VB_WC_FLUSHED);
    chain_expect_state(endless, "ERR");
    assert_in_range(vb_cq_count(cq), 1, 4); // one round of the many that it had opened
    executed(p, &stopped);
    assert_true(stopped);
    assert_int_equal(vb_qp_connect_self(waiter, 0), 0); // it is over for good
    chain_nop(waiter, 2);
    duo_expect(e->cq, 2, VB_WC_LOCAL_QP_OP);
    chain_nop(stranger, 3);
    duo_expect(e->cq, 3, VB_WC_OK);
    assert_int_equal(passes(e), last);
    duo_close(&d);
}

static void test_refusals(void **state)
{
    struct duo d;
    struct vb_pd *pd;
    struct vb_qp *qp;
    struct vb_program *p, *no;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *audit = chain_cq(e, (struct vb_cq_opts){0});

    chain_self(e, e->cq, (struct vb_qp_opts){0});
    assert_int_equal(vb_program_create(e->pd, &(struct vb_program_opts){.audit = e->cq}, &no),
                     -EINVAL); // queue pairs use it
    assert_int_equal(vb_program_create(e->pd, &(struct vb_program_opts){.audit = d.end[1].cq}, &no),
                     -EINVAL);
    p = make_program(e, (struct vb_program_opts){.audit = audit});
    struct vb_qp_opts opts = {
        .send_cq = audit, .recv_cq = e->cq, .send_depth = 4, .chain = VB_QP_CROSS_CHANNEL};
    assert_int_equal(vb_qp_create(e->pd, &opts, &qp), -EINVAL);
    opts.send_cq = e->cq;
    opts.recv_cq = audit;
    assert_int_equal(vb_qp_create(e->pd, &opts, &qp), -EINVAL);
    opts.recv_cq = e->cq;
    opts.program = p;
    assert_int_equal(vb_pd_alloc(e->nic, &pd), 0);
    assert_int_equal(vb_qp_create(pd, &opts, &qp), -EINVAL); // another domain's program
    opts.chain = 0;
    assert_int_equal(vb_qp_create(e->pd, &opts, &qp), -EINVAL); // not cross-channel
    assert_int_equal(vb_pd_free(e->pd), -EBUSY);
    assert_int_equal(vb_program_destroy(p), 0);
    assert_int_equal(vb_cq_destroy(audit), 0);
    duo_close(&d);
}

// An auditor's queue is one for everybody again when its last program is gone.
static void test_auditor_becomes_free(void **state)
{
    struct duo d;
    struct vb_qp *qp;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *audit = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_program *p[2] = {make_program(e, (struct vb_program_opts){.audit = audit}),
                               make_program(e, (struct vb_program_opts){.audit = audit})};
    struct vb_qp_opts opts = {.send_cq = audit, .recv_cq = audit, .send_depth = 4};

    assert_int_equal(vb_qp_create(e->pd, &opts, &qp), -EINVAL);
    assert_int_equal(vb_program_destroy(p[0]), 0);
    assert_int_equal(vb_qp_create(e->pd, &opts, &qp), -EINVAL);
    assert_int_equal(vb_program_destroy(p[1]), 0);
    assert_int_equal(vb_qp_create(e->pd, &opts, &qp), 0);
    assert_int_equal(vb_qp_destroy(qp), 0);
    duo_close(&d);
}

#define BOTH(test) DUO_TEST(test, "udp"), DUO_TEST(test, "shm")

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_endless_program_starves_nobody),
        DUO_TEST(test_endless_program_starves_nobody, "hull"),
        BOTH(test_program_runs_without_polling),
        DUO_TEST(test_program_runs_without_polling, "hull"),
        DUO_TEST(test_program_begun_by_a_wait, "udp"),
        DUO_TEST(test_program_begun_by_a_wait, "hull"),
        DUO_TEST(test_rate, "udp"),
        DUO_TEST(test_rate, "hull"),
        DUO_TEST(test_limit_and_audit, "udp"),
        DUO_TEST(test_limit_and_audit, "hull"),
        DUO_TEST(test_audit_without_room, "udp"),
        DUO_TEST(test_audit_without_room, "hull"),
        DUO_TEST(test_limit_of_each_request, "udp"),
        DUO_TEST(test_limit_of_each_request, "hull"),
        BOTH(test_stop),
        DUO_TEST(test_stop, "hull"),
        DUO_TEST(test_refusals, "udp"),
        DUO_TEST(test_refusals, "hull"),
        DUO_TEST(test_auditor_becomes_free, "udp"),
        DUO_TEST(test_auditor_becomes_free, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
