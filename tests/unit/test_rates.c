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
        cmocka_unit_test(test_pieces_come_back),
        cmocka_unit_test(test_requests_keep_the_share_s_rate),
        cmocka_unit_test(test_a_marked_datagram_is_not_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
