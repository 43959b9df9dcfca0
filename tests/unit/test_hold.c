// SPDX-License-Identifier: Apache-2.0
// An ACK waits for the program's answer and leaves with it, or soon without; a program that does
// not answer is not waited for.
#include "duo.h"
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
    TRIES = 100,
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    ROUNDS = 20, // in which hardly anything is answered closely
#else
    ROUNDS = 20 * TRIES,
#endif
    SAID = 1,
    HEARD = 20,
    ANSWERED = 300,
    QUIET_NS = 5 * 1000 * 1000,
    CLOSELY_NS = 20 * 1000, // as the NIC sees it
};

// End 1 is run by nobody but the test.
static void open_alone(struct duo *d, struct duo_state *state, struct vb_qp *qp[2])
{
    char text[16];
    pair_address(1, text);
    const struct vb_nic_opts opts = {
        .address = text, .port = state->way, .faults = "off", .no_helper = true};
    assert_int_equal(vb_nic_open(&opts, &state->nic[1]), 0);
    state->nic[0] = duo_open_nic(0, state->way);
    *d = (struct duo){.state = state, .end[0].nic = state->nic[0], .end[1].nic = state->nic[1]};
    duo_open_ends(d);
    duo_connect(d, VB_SERVICE_RC, qp);
}

// A message to end 1, whose program has seen it. Returns when that began to look.
static uint64_t say(struct duo *d, struct vb_qp *qp[2], uint64_t wr_id)
{
    uint64_t until_ns = duo_now_ns() + DUO_PATIENCE_S * 1000000000ull, looked_ns;
    struct vb_wc wc = {0};
    duo_post_recv(&d->end[1], qp[1], wr_id, 0, 64);
    duo_post(d, qp[0], duo_wr(d, VB_WR_SEND, wr_id), 0, 64);
    do
        looked_ns = duo_now_ns();
    while (vb_poll_cq(d->end[1].cq, &wc, 1) == 0 && looked_ns < until_ns);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.wr_id, wr_id);
    return looked_ns;
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

// Whether the answer followed closely.
static bool converse(struct duo *d, struct vb_qp *qp[2])
{
    duo_post_recv(&d->end[0], qp[0], HEARD, 128, 64);
    uint64_t looked_ns = say(d, qp, SAID);
    post_answer(d, qp, ANSWERED);
    bool closely = duo_now_ns() - looked_ns < CLOSELY_NS;
    duo_expect(d->end[1].cq, ANSWERED, VB_WC_OK);
    expect_both(d);
    return closely;
}

static bool is_acknowledged(struct duo *d)
{
    struct vb_wc wc;
    uint64_t until_ns = duo_now_ns() + QUIET_NS;
    int taken = 0;
    while (taken == 0 && duo_now_ns() < until_ns)
        taken = vb_poll_cq(d->end[0].cq, &wc, 1);
    return taken > 0;
}

// A message whose ACK is held. A busy machine, or one that a sanitizer slows down, can be too slow
// to look like a conversation: then there is nothing to judge.
static void say_and_be_held(struct duo *d, struct vb_qp *qp[2])
{
    unsigned fair = 0;
    for (unsigned i = 0; i < ROUNDS && fair < TRIES; i++) {
        bool closely = true;
        for (unsigned n = 0; n < HABIT; n++)
            closely &= converse(d, qp);
        say(d, qp, SAID);
        if (!is_acknowledged(d))
            return;
        fair += closely;
    }
    duo_close(d);
    if (fair < TRIES)
        skip();
    fail_msg("no ACK was ever held");
}

static void test_an_ack_leaves_with_the_answer(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    open_alone(&d, *state, qp);
    say_and_be_held(&d, qp);
    duo_post_recv(&d.end[0], qp[0], HEARD, 128, 64);
    post_answer(&d, qp, ANSWERED);
    duo_expect(d.end[1].cq, ANSWERED, VB_WC_OK);
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
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    say_and_be_held(&d, qp);
    uint64_t until_ns = duo_now_ns() + 1000 * 1000;
    while (duo_now_ns() < until_ns)
        assert_int_equal(vb_poll_cq(d.end[1].cq, &wc, 1), 0);
    duo_expect(d.end[0].cq, SAID, VB_WC_OK);
    say(&d, qp, SAID);
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
        converse(&d, qp);
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, SAID), 0, 64);
    uint64_t give_up_ns = duo_now_ns() + DUO_PATIENCE_S * 1000000000ull;
    int taken = 0;
    while (taken == 0 && duo_now_ns() < give_up_ns) {
        assert_int_equal(vb_poll_cq(d.end[1].cq, &wc, 1), 0);
        taken = vb_poll_cq(d.end[0].cq, &wc, 1);
    }
    assert_int_equal(taken, 1);
    assert_int_equal(wc.status, VB_WC_OK);
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
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
