// SPDX-License-Identifier: Apache-2.0
// How processes end, stop and die, and what their peers see: two processes, over each port.
#include "../wait.h"
#include "mate.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LONG = DUO_TIMEOUT, // of an acknowledgement
};

static void open_one(struct duo *d, struct duo_state *s)
{
    *d = (struct duo){.state = s};
    s->nic[0] = d->end[0].nic = duo_open_nic(0, s->way);
    s->nic[1] = d->end[1].nic = duo_open_nic(2, s->way);
    duo_open_ends(d);
}

static void start(const struct mate *m)
{
    assert_int_equal(write(m->fd, "", 1), 1);
}

static void post_to(const struct duo *d, const struct mate *m, enum vb_wr_opcode opcode,
                    uint64_t wr_id, uint32_t len)
{
    struct vb_send_wr wr = duo_wr(d, opcode, wr_id);
    wr.raddr = m->addr;
    wr.rkey = m->key;
    duo_post(d, m->qp, wr, 0, len);
}

// ---- leaving

// However it ends: what it saw complete was acknowledged before.
static void test_a_receiver_leaves_at_once(void **state)
{
    struct duo d;
    open_one(&d, *state);
    for (int round = 0; round < 3 * MATE_WAYS; round++) {
        struct mate m = mate_start(&d, MATE_RECEIVES, (enum mate_way)(round % MATE_WAYS), 7, LONG);
        start(&m);
        post_to(&d, &m, VB_WR_SEND, 1, MATE_BYTES);
        duo_expect(d.end[0].cq, 1, VB_WC_OK);
        assert_int_equal(mate_join(&m), 0);
        assert_int_equal(vb_qp_destroy(m.qp), 0);
    }
    duo_close(&d);
}

static void test_a_receiver_destroys_and_closes_at_once(void **state)
{
    struct duo d;
    open_one(&d, *state);
    struct mate m = mate_start(&d, MATE_DESTROYS, MATE_QUIT, 7, LONG);
    start(&m);
    post_to(&d, &m, VB_WR_SEND, 1, MATE_BYTES);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    assert_int_equal(mate_join(&m), 0);
    duo_close(&d);
}

static void test_a_sender_leaves_at_once(void **state)
{
    struct duo d;
    open_one(&d, *state);
    for (int way = 0; way < MATE_WAYS; way++) {
        struct mate m = mate_start(&d, MATE_SENDS, (enum mate_way)way, 0, 0);
        duo_post_recv(&d.end[0], m.qp, 3, 0, MATE_BYTES);
        start(&m);
        assert_int_equal(mate_join(&m), 0);
        duo_expect(d.end[0].cq, 3, VB_WC_OK);
        assert_int_equal(vb_qp_destroy(m.qp), 0);
    }
    duo_close(&d);
}

// What was posted is acknowledged before the process goes.
static void test_what_was_posted_arrives(void **state)
{
    struct duo d;
    open_one(&d, *state);
    for (int way = MATE_RETURN; way <= MATE_EXIT; way++) {
        struct mate m = mate_start(&d, MATE_POSTS, (enum mate_way)way, 0, 0);
        for (uint64_t i = 0; i < MATE_MESSAGES; i++)
            duo_post_recv(&d.end[0], m.qp, i, 0, MATE_BYTES);
        start(&m);
        for (uint64_t i = 0; i < MATE_MESSAGES; i++)
            duo_expect(d.end[0].cq, i, VB_WC_OK);
        assert_int_equal(mate_join(&m), 0);
        assert_int_equal(vb_qp_destroy(m.qp), 0);
    }
    duo_close(&d);
}

// A READ that came in is answered though its target leaves. (_exit() may or may not have been
// faster.)
static void test_a_read_is_answered_by_who_leaves(void **state)
{
    struct duo d;
    open_one(&d, *state);
    for (int way = 0; way < MATE_WAYS; way++) {
        if (way == MATE_QUIT)
            continue;
        struct mate m = mate_start(&d, MATE_IS_READ, (enum mate_way)way, 7, LONG);
        start(&m);
        post_to(&d, &m, VB_WR_READ, 5, DUO_BYTES / 2);
        duo_expect(d.end[0].cq, 5, VB_WC_OK);
        assert_int_equal(mate_join(&m), 0);
        assert_int_equal(vb_qp_destroy(m.qp), 0);
    }
    duo_close(&d);
}

// ---- dying and stopping

static void test_a_peer_is_killed(void **state)
{
    struct duo d;
    open_one(&d, *state);
    struct mate m = mate_start(&d, MATE_STAYS, MATE_RETURN, 2, 16); // three times 268 ms
    start(&m);
    post_to(&d, &m, VB_WR_WRITE, 1, MATE_BYTES);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    kill(m.pid, SIGKILL);
    assert_true(WIFSIGNALED(mate_join(&m)));
    post_to(&d, &m, VB_WR_WRITE, 2, MATE_BYTES);
    duo_expect(d.end[0].cq, 2, VB_WC_RETRY_EXCEEDED);
    duo_close(&d);
}

// With retries for many hours to come, closing does not wait for them.
static void test_closing_does_not_wait_for_the_dead(void **state)
{
    struct duo d;
    open_one(&d, *state);
    struct mate m = mate_start(&d, MATE_STAYS, MATE_RETURN, 7, 31);
    start(&m);
    kill(m.pid, SIGKILL);
    assert_true(WIFSIGNALED(mate_join(&m)));
    post_to(&d, &m, VB_WR_WRITE, 1, MATE_BYTES);
    duo_close(&d);
}

static void test_a_peer_is_stopped_for_a_while(void **state)
{
    struct duo d;
    open_one(&d, *state);
    struct mate m = mate_start(&d, MATE_STAYS, MATE_RETURN, 7, 16); // eight times 268 ms
    start(&m);
    post_to(&d, &m, VB_WR_WRITE, 1, MATE_BYTES);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    int status;
    kill(m.pid, SIGSTOP);
    assert_int_equal(waitpid(m.pid, &status, WUNTRACED), m.pid); // all of its threads have stopped
    assert_true(WIFSTOPPED(status));
    post_to(&d, &m, VB_WR_WRITE, 2, DUO_BYTES);
    WAIT_UNTIL(duo_counter(d.end[0].nic, "local_ack_timeout_err") > 0);
    kill(m.pid, SIGCONT);
    duo_expect(d.end[0].cq, 2, VB_WC_OK);
    post_to(&d, &m, VB_WR_READ, 3, DUO_BYTES);
    duo_expect(d.end[0].cq, 3, VB_WC_OK);
    kill(m.pid, SIGKILL);
    assert_true(WIFSIGNALED(mate_join(&m)));
    duo_close(&d);
}

// ---- forking

// Its children look at their copies of its NIC, close them or not, and end in every way; meanwhile
// it is served as if they were not there.
static void test_a_peer_forks(void **state)
{
    struct duo d;
    open_one(&d, *state);
    struct mate m = mate_start(&d, MATE_FORKS, MATE_EXIT, 7, LONG);
    start(&m);
    for (uint64_t i = 0; i < 2000; i++) {
        post_to(&d, &m, i & 1 ? VB_WR_READ : VB_WR_WRITE, i, MATE_BYTES);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
    }
    post_to(&d, &m, VB_WR_SEND, 9999, 64);
    duo_expect(d.end[0].cq, 9999, VB_WC_OK);
    assert_int_equal(mate_join(&m), 0);
    duo_close(&d);
}

int main(int argc, char **argv)
{
    int status;
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_a_receiver_leaves_at_once),
        DUO_PORTS(test_a_receiver_destroys_and_closes_at_once),
        DUO_PORTS(test_a_sender_leaves_at_once),
        DUO_PORTS(test_what_was_posted_arrives),
        DUO_PORTS(test_a_read_is_answered_by_who_leaves),
        DUO_PORTS(test_a_peer_is_killed),
        DUO_TEST(test_closing_does_not_wait_for_the_dead, "udp"),
        DUO_PORTS(test_a_peer_is_stopped_for_a_while),
        DUO_PORTS(test_a_peer_forks),
    };
    if (mate_is_me(argc, argv, &status))
        return status;
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
