// SPDX-License-Identifier: Apache-2.0
// Queue pairs step by step, posting all or none, and what a completion says was posted.
#include "duo.h"
#include "flavour.h"
#include "skips.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    PSN = 700,
    ROUNDS = 3000,
    MANY = 80,
};

struct rig {
    struct duo d;
    struct vb_qp *qp[2];
};

static struct vb_qp_change step_of(const struct rig *r, unsigned i, enum vb_qp_phase to)
{
    const struct vb_qp_peer peer = duo_peer(&r->d, i, r->qp[!i]);
    struct vb_qp_change c = {.to = to,
                             .rights = DUO_REMOTE,
                             .qpn = peer.qpn,
                             .psn = PSN,
                             .mtu = 1024,
                             .reads_served = 4,
                             .rnr_timer = 12,
                             .our_psn = PSN,
                             .timeout = 14,
                             .retries = 7,
                             .rnr_retries = 7,
                             .reads = 4};
    memcpy(c.gid, peer.gid, 16);
    return c;
}

static int step(const struct rig *r, unsigned i, enum vb_qp_phase to)
{
    const struct vb_qp_change c = step_of(r, i, to);
    return vb_qp_change(r->qp[i], &c);
}

static void expect_phase(struct vb_qp *qp, enum vb_qp_phase wanted)
{
    enum vb_qp_phase phase;

    assert_int_equal(vb_qp_phase(qp, &phase), 0);
    assert_int_equal(phase, wanted);
}

static void open_rig(struct rig *r, void **state)
{
    duo_open(&r->d, *state);
    for (unsigned i = 0; i < 2; i++)
        r->qp[i] = duo_make_qp(&r->d.end[i], (struct vb_qp_opts){.service = VB_SERVICE_RC});
}

static void connect_rig(const struct rig *r)
{
    for (unsigned i = 0; i < 2; i++)
        for (enum vb_qp_phase to = VB_QP_INIT; to <= VB_QP_RTS; to++)
            assert_int_equal(step(r, i, to), 0);
}

static void test_one_after_the_other(void **state)
{
    struct rig r;

    open_rig(&r, state);
    expect_phase(r.qp[0], VB_QP_RESET);
    assert_int_equal(step(&r, 0, VB_QP_RTR), -EINVAL);
    assert_int_equal(step(&r, 0, VB_QP_RTS), -EINVAL);
    assert_int_equal(step(&r, 0, VB_QP_SQE), -EINVAL);
    assert_int_equal(step(&r, 1, VB_QP_INIT), 0);
    assert_int_equal(step(&r, 1, VB_QP_RTS), -EINVAL);
    expect_phase(r.qp[1], VB_QP_INIT);
    duo_post_recv(&r.d.end[1], r.qp[1], 5, 0, 100); // before it is connected
    assert_int_equal(step(&r, 1, VB_QP_RTR), 0);
    for (enum vb_qp_phase to = VB_QP_INIT; to <= VB_QP_RTS; to++)
        assert_int_equal(step(&r, 0, to), 0);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_SEND, 1), 0, 100);
    duo_expect(r.d.end[0].cq, 1, VB_WC_OK);
    duo_expect(r.d.end[1].cq, 5, VB_WC_OK);
    assert_int_equal(step(&r, 1, VB_QP_RTS), 0);
    expect_phase(r.qp[1], VB_QP_RTS);
    duo_close(&r.d);
}

static void test_values_out_of_range(void **state)
{
    struct rig r;

    open_rig(&r, state);
    struct vb_qp_change c = step_of(&r, 0, VB_QP_INIT);
    c.rights = VB_RIGHT_LOCAL_WRITE;
    assert_int_equal(vb_qp_change(r.qp[0], &c), -EINVAL);
    assert_int_equal(step(&r, 0, VB_QP_INIT), 0);
    c = step_of(&r, 0, VB_QP_RTR);
    c.mtu = 1000;
    assert_int_equal(vb_qp_change(r.qp[0], &c), -EINVAL);
    c = step_of(&r, 0, VB_QP_RTR);
    c.rnr_timer = 32;
    assert_int_equal(vb_qp_change(r.qp[0], &c), -EINVAL);
    c = step_of(&r, 0, VB_QP_RTR);
    c.to = (enum vb_qp_phase)(VB_QP_ERR + 1);
    assert_int_equal(vb_qp_change(r.qp[0], &c), -EINVAL);
    expect_phase(r.qp[0], VB_QP_INIT);
    duo_close(&r.d);
}

// Rights change while the queue pair is in use.
static void test_the_same_phase_again(void **state)
{
    struct rig r;

    open_rig(&r, state);
    connect_rig(&r);
    struct vb_qp_change c = step_of(&r, 1, VB_QP_RTS);
    c.rights = VB_RIGHT_REMOTE_READ;
    assert_int_equal(vb_qp_change(r.qp[1], &c), 0);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_READ, 1), 0, 64);
    duo_expect(r.d.end[0].cq, 1, VB_WC_OK);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_WRITE, 2), 0, 64);
    duo_expect(r.d.end[0].cq, 2, VB_WC_REMOTE_ACCESS);
    duo_close(&r.d);
}

// RESET forgets what was posted and not polled; a life after it works.
static void test_back_to_reset(void **state)
{
    struct rig r;

    open_rig(&r, state);
    connect_rig(&r);
    duo_post_recv(&r.d.end[0], r.qp[0], 3, 0, 64);
    assert_int_equal(step(&r, 0, VB_QP_ERR), 0);
    duo_expect(r.d.end[0].cq, 3, VB_WC_FLUSHED);
    duo_post_recv(&r.d.end[0], r.qp[0], 4, 0, 64);
    assert_int_equal(step(&r, 0, VB_QP_RESET), 0);
    assert_int_equal(step(&r, 1, VB_QP_RESET), 0);
    duo_expect_quiet(r.d.end[0].cq);
    connect_rig(&r);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_WRITE, 2), 0, 64);
    duo_expect(r.d.end[0].cq, 2, VB_WC_OK);
    assert_int_equal(step(&r, 0, VB_QP_RESET), 0);
    assert_int_equal(step(&r, 0, VB_QP_ERR), 0); // from RESET, too
    expect_phase(r.qp[0], VB_QP_ERR);
    duo_close(&r.d);
}

static void test_all_or_none(void **state)
{
    struct rig r;
    struct vb_sge sge;
    struct vb_send_wr wr[MANY];
    struct vb_qp_rings rings;

    open_rig(&r, state);
    connect_rig(&r);
    assert_int_equal(vb_qp_rings(r.qp[0], &rings), 0);
    const uint32_t full = rings.send_blocks; // of one block each
    assert_in_range(full, 8, MANY - 1);
    sge = (struct vb_sge){(uintptr_t)r.d.end[0].memory, 64, vb_mr_key(r.d.end[0].mr)};
    for (unsigned i = 0; i < MANY; i++) {
        wr[i] = duo_wr(&r.d, VB_WR_WRITE, i);
        wr[i].sge = &sge;
        wr[i].num_sge = 1;
    }
    assert_int_equal(vb_post_send_all(r.qp[0], wr, full + 1), -ENOMEM);
    wr[3].num_sge = 5;
    assert_int_equal(vb_post_send_all(r.qp[0], wr, 8), -EINVAL);
    duo_expect_quiet(r.d.end[0].cq);
    wr[3].num_sge = 1;
    assert_int_equal(vb_post_send_all(r.qp[0], wr, 0), 0);
    assert_int_equal(vb_post_send_all(r.qp[0], wr, full), 0);
    for (unsigned i = 0; i < full; i++)
        duo_expect(r.d.end[0].cq, i, VB_WC_OK);
    duo_close(&r.d);
}

static void expect_request(struct rig *r, enum vb_wr_opcode request)
{
    struct vb_wc wc = duo_wait(r->d.end[0].cq);

    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.request, request);
}

static void test_what_was_posted(void **state)
{
    struct rig r;
    struct vb_mw *mw;

    open_rig(&r, state);
    connect_rig(&r);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_CAS, 1), 0, 8);
    expect_request(&r, VB_WR_CAS);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_FADD, 2), 0, 8);
    expect_request(&r, VB_WR_FADD);
    assert_int_equal(vb_mw_alloc(r.d.end[0].pd, VB_MW_TYPE_2, &mw), 0);
    struct vb_send_wr wr = duo_wr(&r.d, VB_WR_BIND, 3);
    // Entries of two and three blocks, so that the ring's end comes in the middle of some.
    for (uint32_t round = 1; round < 12; round++) {
        uint32_t key = (vb_mw_key(mw) & ~0xffu) | ((vb_mw_key(mw) + round) & 0xff);
        wr = duo_wr(&r.d, VB_WR_BIND, 3);
        wr.bind.window = key;
        wr.bind.region = vb_mr_key(r.d.end[0].mr);
        wr.bind.addr = (uintptr_t)r.d.end[0].memory;
        wr.bind.len = 100;
        wr.bind.rights = VB_RIGHT_REMOTE_READ;
        assert_int_equal(vb_post_send(r.qp[0], &wr, 1), 1);
        expect_request(&r, VB_WR_BIND);
        wr = duo_wr(&r.d, VB_WR_LOCAL_INVAL, 4);
        wr.imm = key;
        assert_int_equal(vb_post_send(r.qp[0], &wr, 1), 1);
        expect_request(&r, VB_WR_LOCAL_INVAL);
    }
    duo_close(&r.d);
}

// Armed before it is polled, a queue tells of what comes then, or of what is there already.
static void test_what_an_armed_queue_tells(void **state)
{
    struct rig r;
    struct vb_cq *told;

    open_rig(&r, state);
    connect_rig(&r);
    struct vb_cq *cq = r.d.end[0].cq;
    int fd = vb_channel_fd(r.d.end[0].channel);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_WRITE, 1), 0, 64);
    while (vb_cq_count(cq) < 1)
        vb_nic_progress(r.d.end[0].nic);
    assert_int_equal(vb_cq_arm_next(cq, false), 0);
    assert_false(duo_is_readable(fd, DUO_QUIET_MS));
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_WRITE, 2), 0, 64);
    assert_true(duo_is_readable(fd, DUO_PATIENCE_S * 1000));
    assert_int_equal(vb_channel_take(r.d.end[0].channel, &told), 0);
    assert_ptr_equal(told, cq);
    assert_int_equal(vb_cq_arm(cq, false), 0); // two are there
    assert_true(duo_is_readable(fd, DUO_PATIENCE_S * 1000));
    assert_int_equal(vb_channel_take(r.d.end[0].channel, &told), 0);
    assert_int_equal(vb_cq_arm_next(cq, true), 0); // none of them solicited
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_WRITE, 3), 0, 64);
    assert_false(duo_is_readable(fd, DUO_QUIET_MS));
    for (uint64_t i = 1; i <= 3; i++)
        duo_expect(cq, i, VB_WC_OK);
    duo_close(&r.d);
}

struct poster {
    const struct rig *r;
    uint32_t full;
};

static void *post_many(void *arg)
{
    struct poster *p = arg;
    const struct duo_end *e = &p->r->d.end[0];
    const struct vb_sge sge = {(uintptr_t)e->memory, 64, vb_mr_key(e->mr)};

    for (uint64_t i = 0; i < ROUNDS;) {
        struct vb_send_wr wr = duo_wr(&p->r->d, VB_WR_WRITE, i);
        wr.sge = &sge;
        wr.num_sge = 1;
        int posted = vb_post_send(p->r->qp[0], &wr, 1);
        if (posted == 1)
            i++;
        else
            p->full += posted == 0;
    }
    return NULL;
}

// One thread posts, another polls: nothing is lost, and the queue never holds more than it can.
static void test_post_and_poll_in_two_threads(void **state)
{
    struct rig r;
    pthread_t thread;

    open_rig(&r, state);
    connect_rig(&r);
    struct poster p = {.r = &r};
    assert_int_equal(pthread_create(&thread, NULL, post_many, &p), 0);
    for (uint64_t i = 0; i < ROUNDS; i++)
        duo_expect(r.d.end[0].cq, i, VB_WC_OK);
    pthread_join(thread, NULL);
    duo_expect_quiet(r.d.end[0].cq);
    duo_close(&r.d);
}

static void test_two_threads_at_a_hull(void **state)
{
    if (UNDER_TSAN)
        SKIP("the thread sanitizer sees no order in memory that is mapped twice");
    test_post_and_poll_in_two_threads(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_WAYS(test_one_after_the_other),
        DUO_TEST(test_one_after_the_other, "hull"),
        DUO_TEST(test_values_out_of_range, "udp"),
        DUO_TEST(test_values_out_of_range, "hull"),
        DUO_TEST(test_the_same_phase_again, "udp"),
        DUO_TEST(test_the_same_phase_again, "hull"),
        DUO_PORTS(test_back_to_reset),
        DUO_TEST(test_back_to_reset, "hull"),
        DUO_TEST(test_all_or_none, "udp"),
        DUO_TEST(test_all_or_none, "hull"),
        DUO_TEST(test_what_was_posted, "udp"),
        DUO_TEST(test_what_was_posted, "hull"),
        DUO_PORTS(test_what_an_armed_queue_tells),
        DUO_TEST(test_what_an_armed_queue_tells, "hull"),
        DUO_PORTS(test_post_and_poll_in_two_threads),
        DUO_TEST(test_two_threads_at_a_hull, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
