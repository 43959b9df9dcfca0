// SPDX-License-Identifier: Apache-2.0
// An ACK waits for the program's answer and leaves with it, or soon without; a program that does
// not answer is not waited for.
#include "../wait.h"
#include "duo.h"
#include "host/host.h"
#include "own_clock.h"
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    HABIT = 32, // exchanges
    SAID = 1,
    HEARD = 20,
    ANSWERED = 300,
    LATE_NS = 20 * 1000,    // for an answer
    PATIENCE_NS = 3 * 1000, // with somebody who polls and does not answer
};

// Both ends are run by nobody but the test.
static void open_alone(struct duo *d, struct duo_state *state, struct vb_qp *qp[2])
{
    *d = (struct duo){.state = state};
    for (unsigned i = 0; i < 2; i++) {
        char text[16];
        pair_address(i, text);
        const struct vb_nic_opts opts = {
            .address = text, .port = state->way, .faults = "off", .no_helper = true};
        assert_int_equal(vb_nic_open(&opts, &state->nic[i]), 0);
        d->end[i].nic = state->nic[i];
    }
    duo_open_ends(d);
    duo_connect(d, VB_SERVICE_RC, qp);
}

// The next completion of end 1, whose program polls while the other end runs.
static void hear(struct duo *d, uint64_t wr_id)
{
    struct vb_wc wc;
    WAIT_UNTIL((vb_nic_progress(d->end[0].nic), vb_poll_cq(d->end[1].cq, &wc, 1)) != 0);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.wr_id, wr_id);
}

// A message to end 1, whose program has seen it.
static void say(struct duo *d, struct vb_qp *qp[2], uint64_t wr_id)
{
    duo_post_recv(&d->end[1], qp[1], wr_id, 0, 64);
    duo_post(d, qp[0], duo_wr(d, VB_WR_SEND, wr_id), 0, 64);
    hear(d, wr_id);
}

static void post_answer(struct duo *d, struct vb_qp *qp[2], uint64_t wr_id)
{
    const struct vb_sge sge = {(uintptr_t)d->end[1].memory, 32, vb_mr_key(d->end[1].mr)};
    const struct vb_send_wr wr = {
        .wr_id = wr_id, .opcode = VB_WR_SEND, .flags = VB_WR_SIGNALED, .sge = &sge, .num_sge = 1};
    assert_int_equal(vb_post_send(qp[1], &wr, 1), 1);
}

// End 0 hears of its message SAID, and of an answer.
static void expect_both(struct duo *d)
{
    struct vb_wc first = duo_wait(d->end[0].cq), second = duo_wait(d->end[0].cq);
    assert_int_equal(first.status, VB_WC_OK);
    assert_int_equal(second.status, VB_WC_OK);
    assert_int_equal(first.wr_id + second.wr_id, SAID + HEARD);
}

// Returns when both have heard. So much time passes before the answer.
static void converse(struct duo *d, struct vb_qp *qp[2], uint64_t after_ns)
{
    duo_post_recv(&d->end[0], qp[0], HEARD, 128, 64);
    say(d, qp, SAID);
    own_clock_move(after_ns);
    post_answer(d, qp, ANSWERED);
    hear(d, ANSWERED);
    expect_both(d);
}

// End 1 has an ACK to send, and does not.
static bool holds(const struct duo *d)
{
    const struct vb_lane *lane = &d->end[1].nic->lane[0];
    const struct vb_txq *txq = vb_pu_txq(lane->pu);
    return lane->hold.phase == VB_HOLD_ACK && txq->count - txq->taken == 1;
}

// A message whose ACK is held.
static void say_and_be_held(struct duo *d, struct vb_qp *qp[2])
{
    for (unsigned n = 0; n < HABIT; n++)
        converse(d, qp, 0);
    say(d, qp, SAID);
    assert_true(holds(d));
}

static void test_an_ack_leaves_with_the_answer(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    open_alone(&d, *state, qp);
    say_and_be_held(&d, qp);
    duo_post_recv(&d.end[0], qp[0], HEARD, 128, 64);
    post_answer(&d, qp, ANSWERED);
    hear(&d, ANSWERED);
    expect_both(&d);
    duo_close(&d);
}

// Nor who answers no more, from the next message on.
static void test_strangers_are_not_waited_for(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_wc wc;
    open_alone(&d, *state, qp);
    say(&d, qp, SAID);
    assert_false(holds(&d));
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    say_and_be_held(&d, qp);
    own_clock_move(PATIENCE_NS - 1);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(vb_poll_cq(d.end[1].cq, &wc, 1), 0);
    assert_true(holds(&d)); // who polls is waited for, but not for long
    own_clock_move(1);
    assert_int_equal(vb_poll_cq(d.end[1].cq, &wc, 1), 0);
    assert_false(holds(&d));
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    say(&d, qp, SAID);
    assert_false(holds(&d));
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    duo_close(&d);
}

static void test_anybody_else_who_runs_the_nic_lets_it_go(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    open_alone(&d, *state, qp);
    say_and_be_held(&d, qp);
    vb_nic_progress(d.end[1].nic);
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    duo_close(&d);
}

static void test_closing_lets_it_go(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    open_alone(&d, *state, qp);
    say_and_be_held(&d, qp);
    vb_nic_close(d.state->nic[1]);
    d.state->nic[1] = NULL;
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    duo_close(&d);
}

// A WRITE that no program sees.
static void test_only_what_the_program_sees_is_held(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_wc wc;
    open_alone(&d, *state, qp);
    for (unsigned n = 0; n < HABIT; n++)
        converse(&d, qp, 0);
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, SAID), 0, 64);
    WAIT_UNTIL((vb_nic_progress(d.end[1].nic), vb_poll_cq(d.end[0].cq, &wc, 1)) != 0);
    assert_int_equal(wc.status, VB_WC_OK);
    duo_close(&d);
}

// A program that answers late has no habit of answering.
static void test_late_answers_are_not_waited_for(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    open_alone(&d, *state, qp);
    for (unsigned n = 0; n < HABIT; n++)
        converse(&d, qp, LATE_NS);
    say(&d, qp, SAID);
    assert_false(holds(&d));
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    for (unsigned n = 0; n < HABIT; n++)
        converse(&d, qp, LATE_NS - 1);
    say(&d, qp, SAID);
    assert_true(holds(&d));
    vb_nic_progress(d.end[1].nic);
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_an_ack_leaves_with_the_answer),
        DUO_PORTS(test_strangers_are_not_waited_for),
        DUO_PORTS(test_anybody_else_who_runs_the_nic_lets_it_go),
        DUO_PORTS(test_closing_lets_it_go),
        DUO_PORTS(test_only_what_the_program_sees_is_held),
        DUO_PORTS(test_late_answers_are_not_waited_for),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
