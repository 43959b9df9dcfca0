// SPDX-License-Identifier: Apache-2.0
// Rates of shares: one for all queue pairs of a share, on all units.
#include "forge.h"
#include "loop_rig.h"
#include "share_kit.h"

#include "nic/pu.h"

enum {
    RATE_BPS = 1000 * 1000,
};

// What a piece of the share's rate takes on a unit.
static uint64_t piece_ns(const struct vb_dev *dev, uint32_t share, uint32_t unit)
{
    return vb_share_find(dev, share)->part[unit].rate.piece_ns;
}

static void test_a_rate_is_of_all_units(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 4);
    uint32_t share = make_share(r.dev, 0, RATE_BPS), other = make_share(r.dev, 0, 0);
    struct loop_queue *a = loop_queue(&r, &(struct loop_opts){.share = share, .unit = 1});
    uint64_t whole_ns = piece_ns(r.dev, share, 1); // all of it, though there are four units
    assert_in_range(whole_ns, UINT64_C(4096) * 1000000000 / RATE_BPS - 4096,
                    UINT64_C(4096) * 1000000000 / RATE_BPS + 1);
    struct loop_queue *b = loop_queue(&r, &(struct loop_opts){.share = share, .unit = 1});
    assert_int_equal(piece_ns(r.dev, share, 1), whole_ns);
    struct loop_queue *c = loop_queue(&r, &(struct loop_opts){.share = share, .unit = 3});
    assert_in_range(piece_ns(r.dev, share, 1), 2 * whole_ns - 16, 2 * whole_ns);
    assert_in_range(piece_ns(r.dev, share, 3), 2 * whole_ns - 16, 2 * whole_ns);
    loop_destroy(b);
    assert_in_range(piece_ns(r.dev, share, 1), 2 * whole_ns - 16, 2 * whole_ns);
    loop_destroy(a);
    assert_int_equal(piece_ns(r.dev, share, 3), whole_ns);
    const struct vb_share_attr twice = {.rate_Bps = 2 * RATE_BPS};
    assert_int_equal(vb_dev_share_change(r.dev, share, &twice), 0);
    assert_in_range(piece_ns(r.dev, share, 3), whole_ns / 2 - 1, whole_ns / 2 + 1);
    loop_destroy(c);
    // A share without a limit gets none when queue pairs come and go.
    loop_destroy(loop_queue(&r, &(struct loop_opts){.share = other, .unit = 2}));
    assert_int_equal(piece_ns(r.dev, other, 2), 0);
    loop_close(&r);
}

struct rated {
    struct loop_rig r;
    uint32_t share;
    struct vb_qpc *qp[2];
    uint64_t sent[2], now_ns;
};

static void open_rated(struct rated *t, uint64_t rate_Bps)
{
    loop_open(&t->r, 1);
    t->share = make_share(t->r.dev, 0, rate_Bps);
    t->now_ns = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct loop_queue *q = loop_queue(&t->r, &(struct loop_opts){.share = t->share});
        t->qp[i] = vb_dev_qp(t->r.dev, q->qpn);
        t->sent[i] = 0;
    }
}

// Each sends whenever it may: packets of its own length, in steps of ten microseconds. A charge
// says whether the next packet will have to wait.
static void send_for(struct rated *t, uint32_t us, const uint32_t bytes[2])
{
    struct vb_pu *pu = vb_dev_pu(t->r.dev);

    for (uint64_t end = t->now_ns + us * UINT64_C(1000); t->now_ns < end; t->now_ns += 10000) {
        pu->now_ns = t->now_ns;
        for (uint32_t i = 0; i < 2; i++)
            while (bytes[i] && vb_share_holds(pu, t->qp[i]) == 0 && t->sent[i] < 100u * RATE_BPS) {
                bool waits = vb_share_charge(pu, t->qp[i], bytes[i]);
                t->sent[i] += bytes[i];
                assert_int_equal(waits, vb_share_holds(pu, t->qp[i]) > 0);
            }
    }
}

static void test_a_rate_is_of_all_queue_pairs(void **state)
{
    struct rated t;

    (void)state;
    open_rated(&t, RATE_BPS);
    assert_non_null(t.qp[0]->congestion);
    send_for(&t, 1000000, (uint32_t[]){1000, 4000});
    assert_in_range(t.sent[0] + t.sent[1], RATE_BPS * 95 / 100, RATE_BPS * 105 / 100);
    assert_in_range(t.sent[0], RATE_BPS * 45 / 100, RATE_BPS * 55 / 100);
    t.sent[0] = t.sent[1] = 0; // and one alone has all of it
    send_for(&t, 1000000, (uint32_t[]){1000, 0});
    assert_in_range(t.sent[0], RATE_BPS * 95 / 100, RATE_BPS * 105 / 100);
    loop_close(&t.r);
}

static void test_a_rate_changes(void **state)
{
    struct rated t;

    (void)state;
    open_rated(&t, RATE_BPS);
    send_for(&t, 100000, (uint32_t[]){1000, 1000});
    assert_int_equal(
        vb_dev_share_change(t.r.dev, t.share, &(struct vb_share_attr){.rate_Bps = 10 * RATE_BPS}),
        0);
    t.sent[0] = t.sent[1] = 0;
    send_for(&t, 1000000, (uint32_t[]){1000, 1000});
    assert_in_range(t.sent[0] + t.sent[1], 10 * RATE_BPS * 9 / 10, 10 * RATE_BPS * 11 / 10);
    assert_int_equal(vb_dev_share_change(t.r.dev, t.share, &(struct vb_share_attr){0}), 0);
    send_for(&t, 10, (uint32_t[]){1000, 1000}); // without end, but for the test's own
    assert_int_equal(t.sent[0], 100u * RATE_BPS);
    loop_close(&t.r);
}

// A rate that comes later holds for queue pairs that were there, and 0 asks for nothing.
static void test_a_rate_comes_later(void **state)
{
    struct rated t;

    (void)state;
    open_rated(&t, 0);
    assert_null(t.qp[0]->congestion);
    assert_true(t.qp[0]->sends_plainly);
    assert_int_equal(
        vb_dev_share_change(t.r.dev, t.share, &(struct vb_share_attr){.rate_Bps = RATE_BPS}), 0);
    assert_non_null(t.qp[0]->congestion);
    assert_false(t.qp[0]->sends_plainly);
    send_for(&t, 1000000, (uint32_t[]){1000, 1000});
    assert_in_range(t.sent[0] + t.sent[1], RATE_BPS * 95 / 100, RATE_BPS * 105 / 100);
    loop_close(&t.r);
}

// A rate that comes later is for the queue pairs of its share only.
static void test_a_rate_of_one_share(void **state)
{
    struct loop_rig r;
    struct vb_qpc *qp[2];

    (void)state;
    loop_open(&r, 1);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t share = make_share(r.dev, 0, 0);
        struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share});
        qp[i] = vb_dev_qp(r.dev, q->qpn);
    }
    const struct vb_share_attr rated = {.rate_Bps = RATE_BPS};
    assert_int_equal(vb_dev_share_change(r.dev, qp[1]->share->of->number, &rated), 0);
    assert_null(qp[0]->congestion);
    assert_non_null(qp[1]->congestion);
    loop_close(&r);
}

// A new rate reaches the first place of the device's table, too.
static void test_a_rate_of_the_first_place(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    uint32_t share = make_share(r.dev, 0, 0), qpn = 0;
    const struct loop_queue *q = loop_queue(&r, &(struct loop_opts){0});
    const struct vb_qpc_attr attr = {.pd = r.pd,
                                     .send_cqn = q->cq.cqn,
                                     .recv_cqn = q->cq.cqn,
                                     .sq_ring = q->ring,
                                     .sq_blocks = q->blocks,
                                     .dbrec = (uint32_t[2]){0},
                                     .share = share};
    do {
        if (qpn != 0)
            assert_int_equal(vb_dev_qp_destroy(r.dev, qpn), 0);
        assert_int_equal(vb_dev_qp_create(r.dev, &attr, &qpn), 0);
    } while (qpn % VB_DOORBELL_QPS != 0);
    const struct vb_share_attr rated = {.rate_Bps = RATE_BPS};
    assert_int_equal(vb_dev_share_change(r.dev, share, &rated), 0);
    assert_non_null(vb_dev_qp(r.dev, qpn)->congestion);
    loop_close(&r);
}

// What was promised to a queue pair that goes is others' again.
static void test_pieces_come_back(void **state)
{
    struct rated t;

    (void)state;
    open_rated(&t, RATE_BPS);
    send_for(&t, 1000, (uint32_t[]){1000, 0}); // all of a burst
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(vb_share_holds(vb_dev_pu(t.r.dev), t.qp[1]) > 0);
        vb_congestion_reset(vb_dev_pu(t.r.dev), t.qp[1]);
    }
    t.sent[0] = 0;
    send_for(&t, 1000000, (uint32_t[]){1000, 0});
    assert_in_range(t.sent[0], RATE_BPS * 95 / 100, RATE_BPS * 105 / 100);
    loop_close(&t.r);
}

// What is left of a piece that has begun is given up, to the last byte: who starts again waits for
// the next one.
static void test_the_rest_of_a_piece_is_given_up(void **state)
{
    struct rated t;

    (void)state;
    open_rated(&t, RATE_BPS);
    struct vb_pu *pu = vb_dev_pu(t.r.dev);
    assert_int_equal(vb_share_holds(pu, t.qp[1]), 0);
    assert_false(vb_share_charge(pu, t.qp[1], 1000));
    send_for(&t, 1000, (uint32_t[]){1000, 0}); // the rest of a burst
    assert_int_equal(vb_share_holds(pu, t.qp[1]), 0);
    vb_congestion_reset(pu, t.qp[1]);
    assert_true(vb_share_holds(pu, t.qp[1]) > 0);
    loop_close(&t.r);
}

// The queue pair is destroyed and made anew.
static struct vb_qpc *make_again(struct loop_queue *q, uint32_t share)
{
    const struct vb_qpc_attr attr = {.pd = q->rig->pd,
                                     .send_cqn = q->cq.cqn,
                                     .recv_cqn = q->cq.cqn,
                                     .sq_ring = q->ring,
                                     .sq_blocks = q->blocks,
                                     .dbrec = q->dbrec,
                                     .share = share};

    assert_int_equal(vb_dev_qp_destroy(q->rig->dev, q->qpn), 0);
    assert_int_equal(vb_dev_qp_create(q->rig->dev, &attr, &q->qpn), 0);
    return vb_dev_qp(q->rig->dev, q->qpn);
}

// Packets of 4000 bytes, as many as may leave now; the last one is longer than what is left of its
// piece.
static uint64_t send_long(struct vb_pu *pu, struct vb_qpc *qp)
{
    uint64_t sent = 0;

    for (; vb_share_holds(pu, qp) == 0; sent += 4000)
        vb_share_charge(pu, qp, 4000);
    return sent;
}

// What a queue pair sent in advance is not forgotten when it goes, or when it is reset.
static void test_a_debt_outlives_its_queue_pair(void **state)
{
    struct rated t;

    (void)state;
    for (int resets = 0; resets < 2; resets++) {
        open_rated(&t, RATE_BPS);
        struct vb_pu *pu = vb_dev_pu(t.r.dev);
        for (; pu->now_ns < 1000000000; pu->now_ns += 100000) {
            t.sent[0] += send_long(pu, t.qp[0]);
            if (resets)
                vb_congestion_reset(pu, t.qp[0]);
            else
                t.qp[0] = make_again(&t.r.queue[0], t.share);
        }
        assert_in_range(t.sent[0], RATE_BPS * 95 / 100, RATE_BPS * 103 / 100);
        loop_close(&t.r);
    }
}

// The bytes that a queue pair sent beyond its piece are paid for in full when it goes.
static void test_a_debt_is_no_shorter(void **state)
{
    struct rated t;

    (void)state;
    open_rated(&t, RATE_BPS);
    struct vb_pu *pu = vb_dev_pu(t.r.dev);
    const struct vb_share_rate *rate = &t.qp[0]->share->rate;
    pu->now_ns = 1000000000;
    assert_int_equal(vb_share_holds(pu, t.qp[0]), 0);
    vb_share_charge(pu, t.qp[0], rate->piece_bytes + 100);
    uint64_t before_ns = rate->free_ns, least_ns = 100 * UINT64_C(1000000000) / (RATE_BPS + 1);
    make_again(&t.r.queue[0], t.share);
    assert_in_range(rate->free_ns - before_ns, least_ns, least_ns + 1);
    loop_close(&t.r);
}

// A queue pair on one unit sends every 20 ms, which a burst takes; one on the other unit sends
// whenever it may, and is there every other `part_ms`.
static uint64_t send_on_two(uint64_t part_ms, uint64_t until_ms)
{
    struct loop_rig r;
    uint64_t sent = 0;

    loop_open(&r, 2);
    uint32_t share = make_share(r.dev, 0, RATE_BPS);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share});
    struct loop_queue *other = loop_queue(&r, &(struct loop_opts){.share = share, .unit = 1});
    struct vb_qpc *stays = vb_dev_qp(r.dev, q->qpn), *comes = vb_dev_qp(r.dev, other->qpn);
    for (uint64_t ms = 0; ms < until_ms; ms++) {
        bool here = ms / part_ms % 2 == 0;
        stays->pu->now_ns = comes->pu->now_ns = ms * 1000000;
        if (here != (comes->share != NULL))
            comes = make_again(other, here ? share : 0);
        if (here)
            sent += send_long(comes->pu, comes);
        if (ms % 20 == 0)
            sent += send_long(stays->pu, stays);
    }
    loop_close(&r);
    return sent;
}

// Units whose queue pairs come and go have no more than the rate together.
static void test_a_rate_while_units_come_and_go(void **state)
{
    (void)state;
    for (uint64_t part_ms = 1; part_ms <= 64; part_ms *= 2)
        assert_in_range(send_on_two(part_ms, 2000), 0, 2 * RATE_BPS * 103 / 100);
}

// A queue pair that waits for a piece waits no longer than at the lowest part of the rate, however
// often its unit's part changes.
static void test_a_wait_while_units_come_and_go(void **state)
{
    struct loop_rig r;
    uint64_t now_ns = 1000000000, end_ns = now_ns + 2 * (4000 + 4096) * (1000000000u / RATE_BPS);

    (void)state;
    loop_open(&r, 2);
    uint32_t share = make_share(r.dev, 0, RATE_BPS);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share});
    struct loop_queue *other = loop_queue(&r, &(struct loop_opts){.share = share, .unit = 1});
    struct vb_qpc *waits = vb_dev_qp(r.dev, q->qpn), *comes = vb_dev_qp(r.dev, other->qpn);
    for (int i = 0; i < 2; i++) { // a burst, and one packet more
        waits->pu->now_ns = comes->pu->now_ns = now_ns += 1000;
        assert_true(send_long(waits->pu, waits) > 0);
    }
    assert_true(vb_congestion_holds(waits->pu, waits));
    for (; now_ns < end_ns; now_ns += 100000) {
        waits->pu->now_ns = comes->pu->now_ns = now_ns;
        comes = make_again(other, comes->share ? 0 : share);
    }
    assert_true(waits->congestion->resume.deadline_ns <= end_ns);
    assert_true(waits->congestion->granted_ns <= end_ns);
    loop_close(&r);
}

// The timer of a queue pair that waits moves with its piece; one that does not wait gets no timer.
static void test_a_timer_moves_with_its_piece(void **state)
{
    struct loop_rig r;

    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        loop_open(&r, 2);
        uint32_t share = make_share(r.dev, 0, RATE_BPS);
        struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share});
        struct vb_qpc *qp = vb_dev_qp(r.dev, q->qpn);
        const struct vb_congestion *c = qp->congestion;
        qp->pu->now_ns = vb_dev_pu_at(r.dev, 1)->now_ns = 1000000000;
        assert_true(send_long(qp->pu, qp) > 0);
        assert_int_equal(vb_share_holds(qp->pu, qp), c->granted_ns);
        if (waits)
            assert_true(vb_congestion_holds(qp->pu, qp));
        uint64_t before_ns = c->granted_ns;
        loop_queue(&r, &(struct loop_opts){.share = share, .unit = 1});
        assert_true(c->granted_ns > before_ns);
        assert_int_equal(c->resume.deadline_ns, waits ? c->granted_ns : VB_TIMER_NEVER);
        loop_close(&r);
    }
}

// Through the requester: a long WRITE keeps to it, and goes on when it is lifted.
static void test_requests_keep_the_share_s_rate(void **state)
{
    struct forge *f = forge_open(NULL);
    uint32_t share = make_share(f->dev, 0, 125 * 1000 * 1000);

    (void)state;
    vb_share_join(f->pu, f->ctx, vb_share_find(f->dev, share));
    assert_int_equal(vb_congestion_attach(f->pu, f->ctx), 0);
    forge_post(f, 1, VB_WR_WRITE, 0, 100 * 1024);
    forge_run(f);
    assert_in_range(f->sent_count, 4, 24); // a burst of 16 KB
    uint32_t before = f->sent_count;
    for (int i = 0; i < 160; i++)
        forge_advance(f, 1000); // 125 bytes each
    assert_in_range(f->sent_count - before, 12, 26);
    assert_int_equal(vb_dev_share_change(f->dev, share, &(struct vb_share_attr){0}), 0);
    forge_advance(f, 1000);
    assert_int_equal(f->sent_count, 100);
    forge_close(f);
}

// A datagram's sender gets no CNP: a rate makes no connection of it.
static void test_a_marked_datagram_is_not_answered(void **state)
{
    const struct vb_dcqcn_params params = vb_dcqcn_defaults();
    struct forge_opts o = forge_defaults();

    (void)state;
    o.type = VB_QPT_UD;
    o.qkey = 0x1234;
    o.dcqcn = &params;
    struct forge *f = forge_open(&o);
    vb_share_join(f->pu, f->ctx, vb_share_find(f->dev, make_share(f->dev, 0, RATE_BPS)));
    assert_int_equal(vb_congestion_attach(f->pu, f->ctx), 0);
    forge_post_recv(f, 1, 0, 1024);
    const struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500);
    forge_queue(f, &p);
    f->feed[f->feed_count - 1].ce = true;
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_APPLIED);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_counters(f)->np_cnp_sent, 0);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rate_is_of_all_units),
        cmocka_unit_test(test_a_rate_is_of_all_queue_pairs),
        cmocka_unit_test(test_a_rate_changes),
        cmocka_unit_test(test_a_rate_comes_later),
        cmocka_unit_test(test_a_rate_of_one_share),
        cmocka_unit_test(test_a_rate_of_the_first_place),
        cmocka_unit_test(test_pieces_come_back),
        cmocka_unit_test(test_the_rest_of_a_piece_is_given_up),
        cmocka_unit_test(test_a_debt_outlives_its_queue_pair),
        cmocka_unit_test(test_a_debt_is_no_shorter),
        cmocka_unit_test(test_a_rate_while_units_come_and_go),
        cmocka_unit_test(test_a_wait_while_units_come_and_go),
        cmocka_unit_test(test_a_timer_moves_with_its_piece),
        cmocka_unit_test(test_requests_keep_the_share_s_rate),
        cmocka_unit_test(test_a_marked_datagram_is_not_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
