// SPDX-License-Identifier: Apache-2.0
// Cross-channel work through the public interface: queues that wait for completions, queues that
// are opened by other queues or by hand.
#include "chain.h"

#include "../wait.h"
#include "base/bytes.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// ---- WAIT

static void test_wait_for_another_queue(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *watched = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *worker = chain_self(e, watched, (struct vb_qp_opts){0});
    struct vb_qp *waiter = chain_self(e, e->cq, (struct vb_qp_opts){0});

    chain_cross(waiter, VB_WR_WAIT, 1, vb_cq_num(watched), 0);
    chain_nop(waiter, 2);
    duo_expect_quiet(e->cq);
    chain_nop(worker, 3);
    struct vb_wc wc = duo_wait(e->cq);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.opcode, VB_WC_CROSS);
    assert_int_equal(wc.wr_id, 1);
    duo_expect(e->cq, 2, VB_WC_OK);
    assert_int_equal(vb_cq_count(watched), 1); // which nobody has polled
    // Another three for the same entry, which is not used up; then one for the next.
    for (uint64_t i = 4; i < 7; i++)
        chain_cross(waiter, VB_WR_WAIT, i, vb_cq_num(watched), 0);
    chain_cross(waiter, VB_WR_WAIT, 7, vb_cq_num(watched), 1);
    for (uint64_t i = 4; i < 7; i++)
        duo_expect(e->cq, i, VB_WC_OK);
    duo_expect_quiet(e->cq);
    duo_expect(watched, 3, VB_WC_OK); // polling does not count
    duo_expect_quiet(e->cq);
    chain_nop(worker, 8);
    duo_expect(e->cq, 7, VB_WC_OK);
    duo_close(&d);
}

// Requests of a queue pair with packets wait, too, and completions of receives count.
static void test_wait_for_a_receive(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    struct vb_cq *watched = chain_cq(&d.end[1], (struct vb_cq_opts){0});
    struct vb_cq *echoes = chain_cq(&d.end[0], (struct vb_cq_opts){0});
    qp[0] = duo_make_qp(&d.end[0], (struct vb_qp_opts){.recv_cq = echoes});
    qp[1] = chain_qp(&d.end[1], watched, (struct vb_qp_opts){0});
    duo_join(&d, qp[0], qp[1]);
    duo_post_recv(&d.end[0], qp[0], 1, 0, 64);
    duo_post_recv(&d.end[1], qp[1], 2, 0, 64);
    chain_cross(qp[1], VB_WR_WAIT, 3, vb_cq_num(watched), 0);
    chain_post(&d.end[1], qp[1], chain_wr(&d.end[1], VB_WR_SEND, 4, 0), 0, 8); // echoes
    duo_expect_quiet(echoes);
    duo_fill(d.end[0].memory + 128, 8, 5);
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_SEND, 6), 128, 8);
    duo_expect(d.end[0].cq, 6, VB_WC_OK);
    duo_expect(echoes, 1, VB_WC_OK);
    assert_memory_equal(d.end[0].memory, d.end[0].memory + 128, 8);
    duo_close(&d);
}

// While the helper is at it nothing is to be had.
static int take_some(struct vb_cq *cq, struct vb_wc wc[8])
{
    int taken;
    WAIT_UNTIL((taken = vb_poll_cq(cq, wc, 8)) != 0);
    return taken;
}

static void test_wait_past_the_depth(void **state)
{
    struct duo d;
    struct vb_wc wc[8];
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *watched = chain_cq(e, (struct vb_cq_opts){.entries = 4, .ignore_overrun = true});
    struct vb_qp *worker =
        chain_self(e, watched, (struct vb_qp_opts){.chain = VB_QP_IGNORE_OVERFLOW});
    struct vb_qp *waiter = chain_self(e, e->cq, (struct vb_qp_opts){0});

    chain_cross(waiter, VB_WR_WAIT, 1, vb_cq_num(watched), 98);
    for (uint64_t i = 0; i < 99; i++) {
        chain_nop(worker, i);
        chain_await_count(watched, i + 1); // the ring is not to be overwritten
    }
    duo_expect(e->cq, 1, VB_WC_OK);
    // A reader that comes late gets the last of them, in order.
    assert_int_equal(take_some(watched, wc), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(wc[i].wr_id, 95 + i);
    assert_int_equal(vb_poll_cq(watched, wc, 8), 0);
    for (uint64_t i = 100; i < 106; i++) {
        chain_nop(worker, i);
        chain_await_count(watched, i);
    }
    assert_int_equal(vb_cq_resize(watched, 2), 0);
    assert_int_equal(take_some(watched, wc), 2);
    assert_int_equal(wc[0].wr_id, 104);
    assert_int_equal(wc[1].wr_id, 105);
    chain_nop(worker, 200);
    duo_expect(watched, 200, VB_WC_OK);
    assert_int_equal(vb_qp_destroy(worker), 0);
    assert_int_equal(vb_cq_destroy(watched), 0);
    duo_close(&d);
}

// Without the option the queue and its users fail.
static void test_overrun_is_not_ignored(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *small = chain_cq(e, (struct vb_cq_opts){.entries = 4});
    struct vb_qp *worker =
        chain_self(e, small, (struct vb_qp_opts){.chain = VB_QP_IGNORE_OVERFLOW});

    for (uint64_t i = 0; i < 5; i++)
        chain_nop(worker, i);
    assert_int_equal(duo_wait_event(e->nic).kind, VB_NIC_EVENT_CQ_OVERRUN);
    chain_expect_state(worker, "ERR");
    duo_close(&d);
}

// Of the counters WAIT compares 24 bits, SEND_EN 16.
static void test_counters_come_round(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    const uint64_t start = 0xfffffffcull;
    struct vb_cq *watched = chain_cq(e, (struct vb_cq_opts){.start = start});
    struct vb_qp *worker =
        chain_self(e, watched, (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND, .start = start});
    struct vb_qp *waiter = chain_self(e, e->cq, (struct vb_qp_opts){.start = start});

    assert_int_equal(chain_rings(worker).send_count, start);
    for (uint64_t i = 0; i < 8; i++)
        chain_nop(worker, i);
    chain_cross(waiter, VB_WR_WAIT, 1, vb_cq_num(watched), 0xfffffffcu + 5);
    chain_cross(waiter, VB_WR_SEND_EN, 2, vb_qp_num(worker), 0xfffffffcu + 8);
    duo_expect_quiet(e->cq);
    assert_int_equal(vb_qp_open(worker, false, start + 5), 0);
    chain_await_count(watched, start + 5);
    duo_expect_quiet(e->cq);
    assert_int_equal(vb_qp_open(worker, false, start + 6), 0);
    duo_expect(e->cq, 1, VB_WC_OK);
    duo_expect(e->cq, 2, VB_WC_OK);
    for (uint64_t i = 0; i < 8; i++)
        duo_expect(watched, i, VB_WC_OK);
    duo_close(&d);
}

// ---- SEND_EN and RECV_EN

static void test_send_enable(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *cq = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *managed = chain_self(e, cq, (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND});
    struct vb_qp *opener = chain_self(e, e->cq, (struct vb_qp_opts){0});

    for (uint64_t i = 0; i < 4; i++)
        chain_nop(managed, i);
    duo_expect_quiet(cq);
    chain_cross(opener, VB_WR_SEND_EN, 10, vb_qp_num(managed), 2); // exclusive
    duo_expect(e->cq, 10, VB_WC_OK);
    duo_expect(cq, 0, VB_WC_OK);
    duo_expect(cq, 1, VB_WC_OK);
    chain_cross(opener, VB_WR_SEND_EN, 11, vb_qp_num(managed), 1); // never back
    chain_cross(opener, VB_WR_SEND_EN, 12, vb_qp_num(managed), 2); // absolute
    duo_expect(e->cq, 11, VB_WC_OK);
    duo_expect(e->cq, 12, VB_WC_OK);
    duo_expect_quiet(cq);
    chain_cross(opener, VB_WR_SEND_EN, 13, vb_qp_num(managed), 0x70004); // 16 bits
    duo_expect(cq, 2, VB_WC_OK);
    duo_expect(cq, 3, VB_WC_OK);
    duo_expect_quiet(cq);
    duo_close(&d);
}

static void test_enable_past_the_ring(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *cq = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *ring =
        chain_self(e, cq, (struct vb_qp_opts){.chain = CHAIN_MANAGED, .send_depth = 4});
    struct vb_qp *opener = chain_self(e, e->cq, (struct vb_qp_opts){0});

    for (uint64_t i = 0; i < 4; i++)
        chain_nop(ring, i);
    chain_cross(opener, VB_WR_SEND_EN, 9, vb_qp_num(ring), 42);
    for (uint64_t i = 0; i < 42; i++)
        duo_expect(cq, i % 4, VB_WC_OK);
    duo_expect_quiet(cq);
    // With checks the second round is refused: the entries name the first one's counters.
    struct vb_qp *checked = chain_self(
        e, cq,
        (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND | VB_QP_IGNORE_OVERFLOW, .send_depth = 4});
    for (uint64_t i = 0; i < 4; i++)
        chain_nop(checked, i);
    chain_cross(opener, VB_WR_SEND_EN, 10, vb_qp_num(checked), 5);
    for (uint64_t i = 0; i < 4; i++)
        duo_expect(cq, i, VB_WC_OK);
    duo_expect(cq, 0, VB_WC_LOCAL_QP_OP);
    duo_close(&d);
}

// Receives that the NIC would not take are not posted: only a queue that is opened goes round.
static void test_receives_past_the_ring(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];

    for (int managed = 0; managed < 2; managed++) {
        struct vb_qp *qp = chain_self(
            e, e->cq,
            (struct vb_qp_opts){.chain = VB_QP_IGNORE_OVERFLOW | (managed ? VB_QP_MANAGED_RECV : 0),
                                .recv_depth = 4});
        for (uint64_t i = 0; i < 4; i++)
            duo_post_recv(e, qp, i, 0, 8);
        struct vb_recv_wr wr = {.wr_id = 4};
        assert_int_equal(vb_post_recv(qp, &wr, 1), managed);
        assert_int_equal(vb_qp_destroy(qp), 0);
    }
    duo_close(&d);
}

static void expect_refused(const struct duo_end *e, enum vb_wr_opcode opcode, uint32_t number)
{
    struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){0});
    chain_cross(qp, opcode, 7, number, 1);
    duo_expect(e->cq, 7, VB_WC_LOCAL_QP_OP);
    chain_expect_state(qp, "ERR");
    assert_int_equal(vb_qp_destroy(qp), 0);
}

static void test_refusals(void **state)
{
    struct duo d;
    struct vb_pd *other;
    duo_open(&d, *state);
    struct duo_end *e = &d.end[0];
    struct vb_qp *plain = chain_self(e, e->cq, (struct vb_qp_opts){0});
    struct vb_qp *managed = chain_self(e, e->cq, (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND});

    expect_refused(e, VB_WR_WAIT, 0);
    expect_refused(e, VB_WR_WAIT, 12345);
    expect_refused(e, VB_WR_SEND_EN, vb_qp_num(plain));
    expect_refused(e, VB_WR_RECV_EN, vb_qp_num(managed));
    expect_refused(e, VB_WR_SEND_EN, 0xfffff0);
    struct duo_end stranger = *e;
    assert_int_equal(vb_pd_alloc(e->nic, &other), 0);
    stranger.pd = other;
    expect_refused(&stranger, VB_WR_SEND_EN, vb_qp_num(managed));
    // Whoever is not cross-channel gets no further than posting.
    struct vb_qp *ordinary = duo_make_qp(e, (struct vb_qp_opts){0});
    struct vb_send_wr wr = {.opcode = VB_WR_WAIT};
    assert_int_equal(vb_post_send(ordinary, &wr, 1), -EINVAL);
    assert_int_equal(vb_qp_connect_self(ordinary, 0), -EINVAL);
    assert_int_equal(vb_qp_connect_self(plain, 0), -EINVAL); // it is connected
    duo_close(&d);
}

static void test_receive_enable(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[1];
    qp[0] = duo_make_qp(&d.end[0], (struct vb_qp_opts){0});
    qp[1] = duo_make_qp(e, (struct vb_qp_opts){.chain = VB_QP_MANAGED_RECV});
    struct vb_cq *cq = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *opener = chain_self(e, cq, (struct vb_qp_opts){0});
    duo_join(&d, qp[0], qp[1]);

    for (uint32_t i = 0; i < 3; i++)
        duo_post_recv(e, qp[1], 10 + i, i * 64, 64);
    for (uint32_t i = 0; i < 3; i++) {
        duo_fill(d.end[0].memory + i * 64, 64, i);
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_SEND, i), i * 64, 64);
    }
    duo_expect_quiet(e->cq);
    chain_cross(opener, VB_WR_RECV_EN, 20, vb_qp_num(qp[1]), 1);
    duo_expect(e->cq, 10, VB_WC_OK);
    duo_expect(d.end[0].cq, 0, VB_WC_OK);
    duo_expect_quiet(e->cq);
    assert_int_equal(vb_qp_open(qp[1], true, 3), 0); // and by hand
    for (uint32_t i = 1; i < 3; i++) {
        duo_expect(e->cq, 10 + i, VB_WC_OK);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
    }
    assert_memory_equal(e->memory, d.end[0].memory, 3 * 64);
    duo_close(&d);
}

// ---- opening by hand

static void write_nop(struct vb_qp_rings *r, uint64_t counter, uint8_t flags)
{
    struct vb_wqe_ctrl ctrl = {.opcode = VB_WQE_NOP, .ds = 1, .fm_ce_se = flags};
    vb_put_be16(ctrl.idx, (uint16_t)counter);
    vb_put_be24(ctrl.qpn, r->qpn);
    memcpy(r->send + (counter & (r->send_blocks - 1)) * VB_WQEBB_BYTES, &ctrl, sizeof ctrl);
}

// An ordinary queue whose ring was written directly; requests can be posted behind.
static void test_open_an_ordinary_queue(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    qp[0] = duo_make_qp(e, (struct vb_qp_opts){.send_depth = 4});
    qp[1] = duo_make_qp(&d.end[1], (struct vb_qp_opts){0});
    duo_join(&d, qp[0], qp[1]);
    struct vb_qp_rings r = chain_rings(qp[0]);
    assert_int_equal(r.qpn, vb_qp_num(qp[0]));

    for (int round = 0; round < 5; round++) {
        uint64_t at = chain_rings(qp[0]).send_count;
        assert_int_equal(vb_qp_open(qp[0], false, at + r.send_blocks + 1), -EINVAL);
        assert_true(at == 0 || vb_qp_open(qp[0], false, at - 1) == -EINVAL);
        write_nop(&r, at, 0);
        write_nop(&r, at + 1, VB_WQE_CE_ALWAYS);
        assert_int_equal(vb_qp_open(qp[0], false, at + 2), 0);
        duo_expect(e->cq, 0, VB_WC_OK);
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, 70), 0, 64);
        duo_expect(e->cq, 70, VB_WC_OK);
    }
    // Receives likewise: the entry that was posted last comes again.
    duo_post_recv(&d.end[1], qp[1], 80, 0, 64);
    struct vb_qp_rings there = chain_rings(qp[1]);
    memcpy(there.recv + there.recv_stride, there.recv, there.recv_stride);
    assert_int_equal(vb_qp_open(qp[1], true, there.recv_entries + 1), -EINVAL);
    assert_int_equal(vb_qp_open(qp[1], true, 2), 0);
    for (uint64_t i = 0; i < 2; i++) {
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_SEND, i), 0, 64);
        duo_expect(e->cq, i, VB_WC_OK);
        duo_expect(d.end[1].cq, i ? 0 : 80, VB_WC_OK);
    }
    duo_close(&d);
}

// A queue pair that is connected anew is closed again, cross-channel or only managed; and what was
// not opened is not flushed.
static void test_a_new_life_is_closed(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    qp[0] = duo_make_qp(e, (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND});
    qp[1] = duo_make_qp(&d.end[1], (struct vb_qp_opts){0});
    for (int life = 0; life < 3; life++) {
        duo_join(&d, qp[0], qp[1]);
        for (uint64_t i = 0; i < 4; i++)
            chain_nop(qp[0], i);
        duo_expect_quiet(e->cq);
        assert_int_equal(vb_qp_open(qp[0], false, 2), 0);
        duo_expect(e->cq, 0, VB_WC_OK);
        duo_expect(e->cq, 1, VB_WC_OK);
        assert_int_equal(vb_qp_fail(qp[0]), 0);
        duo_expect_quiet(e->cq);
        assert_int_equal(vb_qp_open(qp[0], false, 3), 0);
        duo_expect(e->cq, 2, VB_WC_FLUSHED);
        duo_expect_quiet(e->cq);
        assert_int_equal(vb_qp_fail(qp[1]), 0);
    }
    duo_close(&d);
}

// ---- objects that go

static void test_waited_for_queue_goes(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *watched = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *waiter = chain_self(e, e->cq, (struct vb_qp_opts){0});

    chain_cross(waiter, VB_WR_WAIT, 1, vb_cq_num(watched), 0);
    chain_nop(waiter, 2);
    duo_expect_quiet(e->cq);
    assert_int_equal(vb_cq_destroy(watched), 0);
    chain_expect_state(waiter, "ERR"); // by the helper alone
    duo_expect(e->cq, 1, VB_WC_LOCAL_QP_OP);
    duo_expect(e->cq, 2, VB_WC_FLUSHED);
    duo_close(&d);
}

// One that was woken but did not look names the queue still, when that is gone.
static void test_woken_waiter_outlives_the_queue(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *watched = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *worker = chain_self(e, watched, (struct vb_qp_opts){0});
    struct vb_qp *waiter = chain_self(e, e->cq, (struct vb_qp_opts){0});

    chain_cross(waiter, VB_WR_WAIT, 1, vb_cq_num(watched), 0);
    duo_expect_quiet(e->cq);
    assert_int_equal(vb_qp_fail(waiter), 0);
    duo_expect(e->cq, 1, VB_WC_FLUSHED);
    chain_nop(worker, 2);
    duo_expect(watched, 2, VB_WC_OK);
    assert_int_equal(vb_qp_destroy(worker), 0);
    assert_int_equal(vb_cq_destroy(watched), 0);
    assert_int_equal(vb_qp_connect_self(waiter, 0), 0);
    chain_nop(waiter, 3);
    duo_expect(e->cq, 3, VB_WC_OK);
    assert_int_equal(vb_qp_destroy(waiter), 0);
    duo_close(&d);
}

static void test_waiting_queue_goes(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_cq *watched = chain_cq(e, (struct vb_cq_opts){0});
    struct vb_qp *worker = chain_self(e, watched, (struct vb_qp_opts){0});
    struct vb_qp *managed = chain_self(e, e->cq, (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND});
    uint32_t number = vb_qp_num(managed);

    for (int i = 0; i < 3; i++) {
        struct vb_qp *waiter = chain_self(e, e->cq, (struct vb_qp_opts){0});
        chain_cross(waiter, VB_WR_WAIT, 1, vb_cq_num(watched), 5);
        duo_expect_quiet(e->cq);
        assert_int_equal(vb_grace(e->nic, DUO_PATIENCE_S * 1000000000ull), 0); // what waits has not
                                                                               // begun
        assert_int_equal(vb_qp_destroy(waiter), 0);
    }
    for (uint64_t i = 0; i < 6; i++)
        chain_nop(worker, i);
    for (uint64_t i = 0; i < 6; i++)
        duo_expect(watched, i, VB_WC_OK);
    assert_int_equal(vb_qp_destroy(managed), 0);
    chain_cross(worker, VB_WR_SEND_EN, 7, number, 1);
    duo_expect(watched, 7, VB_WC_LOCAL_QP_OP);
    duo_close(&d);
}

#define BOTH(test) DUO_TEST(test, "udp"), DUO_TEST(test, "shm")

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_wait_for_another_queue),
        DUO_TEST(test_wait_for_another_queue, "hull"),
        BOTH(test_wait_for_a_receive),
        DUO_TEST(test_wait_for_a_receive, "hull"),
        BOTH(test_wait_past_the_depth),
        DUO_TEST(test_wait_past_the_depth, "hull"),
        DUO_TEST(test_overrun_is_not_ignored, "udp"),
        DUO_TEST(test_overrun_is_not_ignored, "hull"),
        DUO_TEST(test_counters_come_round, "udp"),
        DUO_TEST(test_counters_come_round, "hull"),
        BOTH(test_send_enable),
        DUO_TEST(test_send_enable, "hull"),
        BOTH(test_enable_past_the_ring),
        DUO_TEST(test_enable_past_the_ring, "hull"),
        DUO_TEST(test_receives_past_the_ring, "udp"),
        DUO_TEST(test_receives_past_the_ring, "hull"),
        DUO_TEST(test_refusals, "udp"),
        DUO_TEST(test_refusals, "hull"),
        BOTH(test_receive_enable),
        DUO_TEST(test_receive_enable, "hull"),
        BOTH(test_open_an_ordinary_queue),
        DUO_TEST(test_open_an_ordinary_queue, "hull"),
        DUO_TEST(test_a_new_life_is_closed, "udp"),
        DUO_TEST(test_a_new_life_is_closed, "hull"),
        DUO_TEST(test_waited_for_queue_goes, "udp"),
        DUO_TEST(test_waited_for_queue_goes, "hull"),
        DUO_TEST(test_woken_waiter_outlives_the_queue, "udp"),
        DUO_TEST(test_woken_waiter_outlives_the_queue, "hull"),
        DUO_TEST(test_waiting_queue_goes, "udp"),
        DUO_TEST(test_waiting_queue_goes, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
