// SPDX-License-Identifier: Apache-2.0
// Shares of a unit: turns by weight, and what work costs.
#include "forge.h"
#include "loop_rig.h"
#include "share_kit.h"

#include "nic/pu.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    POLLS = 2000,
};

// ---- life

static void test_a_share_comes_and_goes(void **state)
{
    struct loop_rig r;
    struct vb_share_facts facts;

    (void)state;
    loop_open(&r, 1);
    uint32_t share = make_share(r.dev, 0, 0), other = make_share(r.dev, 7, 5000);
    assert_int_not_equal(share, other);
    assert_int_equal(facts_of(r.dev, share).weight, VB_SHARE_WEIGHT);
    assert_int_equal(facts_of(r.dev, other).weight, 7);
    assert_int_equal(facts_of(r.dev, other).rate_Bps, 5000);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share});
    assert_int_equal(facts_of(r.dev, share).queue_pairs, 1);
    assert_int_equal(vb_dev_share_destroy(r.dev, share), -EBUSY);
    assert_int_equal(vb_dev_share_destroy(r.dev, other), 0);
    assert_int_equal(vb_dev_share_destroy(r.dev, other), -ENOENT);
    assert_int_equal(vb_dev_share_destroy(r.dev, 0), -ENOENT);
    assert_int_equal(vb_dev_share_query(r.dev, other, &facts), -ENOENT);
    loop_destroy(q);
    assert_int_equal(vb_dev_share_destroy(r.dev, share), 0);
    loop_close(&r);
}

static void test_what_makes_no_share(void **state)
{
    struct loop_rig r;
    uint32_t share = 0, qpn;

    (void)state;
    loop_open(&r, 1);
    assert_int_equal(vb_dev_share_create(
                         r.dev, &(struct vb_share_attr){.weight = VB_SHARE_WEIGHT_MAX + 1}, &share),
                     -EINVAL);
    assert_int_equal(vb_dev_share_create(
                         r.dev, &(struct vb_share_attr){.rate_Bps = VB_SHARE_RATE_MAX + 1}, &share),
                     -EINVAL);
    share = make_share(r.dev, VB_SHARE_WEIGHT_MAX, 0);
    assert_int_equal(vb_dev_share_change(r.dev, share, &(struct vb_share_attr){.weight = 2000}),
                     -EINVAL);
    assert_int_equal(facts_of(r.dev, share).weight, VB_SHARE_WEIGHT_MAX);
    assert_int_equal(vb_dev_share_change(r.dev, share, &(struct vb_share_attr){.weight = 3}), 0);
    assert_int_equal(facts_of(r.dev, share).weight, 3);
    assert_int_equal(vb_dev_share_change(r.dev, 99, &(struct vb_share_attr){.weight = 3}), -ENOENT);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.depth = 4});
    const struct vb_qpc_attr attr = {.pd = r.pd,
                                     .send_cqn = q->cq.cqn,
                                     .recv_cqn = q->cq.cqn,
                                     .sq_ring = q->ring,
                                     .sq_blocks = q->blocks,
                                     .dbrec = q->dbrec,
                                     .share = 99};
    assert_int_equal(vb_dev_qp_create(r.dev, &attr, &qpn), -ENOENT);
    loop_close(&r);
}

// What a share has had on all units together.
static void test_facts_of_all_units(void **state)
{
    struct loop_rig r;
    struct vb_share_facts of[2], all;

    (void)state;
    loop_open(&r, 2);
    uint32_t share = make_share(r.dev, 0, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share, .unit = i});
        loop_put(q, loop_nop());
        loop_doorbell(q);
        assert_int_equal(vb_pu_step(r.dev->pu[i], r.now_ns).kind, VB_STEP_FETCH);
        assert_true(facts_of(r.dev, share).waits);
        loop_run(&r);
        assert_false(facts_of(r.dev, share).waits);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(vb_pu_share(r.dev->pu[i], share, &of[i]), 0);
        assert_true(of[i].turns > 0 && of[i].units > 0);
    }
    all = facts_of(r.dev, share);
    assert_int_equal(all.turns, of[0].turns + of[1].turns);
    assert_int_equal(all.units, of[0].units + of[1].units);
    loop_close(&r);
}

// ---- turns

// A program of one entry that counts, and is opened again before it ends.
static struct loop_queue *start_endless(struct loop_rig *r, uint32_t share, uint32_t word)
{
    struct loop_queue *q =
        loop_queue(r, &(struct loop_opts){.managed = true, .blocks = 1, .share = share});
    struct vb_code count = loop_count_up(r, word);

    count.fm_ce_se = 0;
    loop_put(q, count);
    return q;
}

static void keep_open(struct loop_rig *r)
{
    for (uint32_t i = 0; i < r->queues; i++) {
        struct loop_queue *q = &r->queue[i];
        struct vb_qp_progress p;
        assert_int_equal(vb_dev_qp_progress(r->dev, q->qpn, &p), 0);
        q->dbrec[VB_DBREC_SQ] = htobe32((p.begun + 16384) & 0xffff);
        vb_doorbell_ring(vb_dev_doorbells(r->dev), q->qpn);
    }
}

static void run_endless(struct loop_rig *r)
{
    for (uint32_t i = 0; i < POLLS; i++) {
        keep_open(r);
        vb_pu_poll(vb_dev_pu(r->dev), r->now_ns += 1000);
    }
}

static void test_turns_are_by_weight(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    start_endless(&r, make_share(r.dev, 100, 0), 0);
    start_endless(&r, make_share(r.dev, 300, 0), 8);
    start_endless(&r, make_share(r.dev, 50, 0), 16);
    start_endless(&r, 0, 24); // has the usual one
    run_endless(&r);
    uint64_t one = loop_word(&r, 0);
    assert_true(one > 3000);
    assert_in_range(loop_word(&r, 8), one * 28 / 10, one * 32 / 10);
    assert_in_range(loop_word(&r, 16), one * 45 / 100, one * 55 / 100);
    assert_in_range(loop_word(&r, 24), one * 9 / 10, one * 11 / 10);
    loop_close(&r);
}

// Seven queue pairs against one: as many turns for each share, and seven times as many without.
static void test_many_queue_pairs_win_nothing(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct loop_rig r;
        uint64_t many = 0;
        loop_open(&r, 1);
        uint32_t a = shared ? make_share(r.dev, 0, 0) : 0;
        uint32_t b = shared ? make_share(r.dev, 0, 0) : 0;
        for (uint32_t i = 1; i < LOOP_QUEUES; i++)
            start_endless(&r, a, 8 * i);
        start_endless(&r, b, 0);
        run_endless(&r);
        for (uint32_t i = 1; i < LOOP_QUEUES; i++) {
            many += loop_word(&r, 8 * i);
            assert_true(loop_word(&r, 8 * i) > loop_word(&r, 8) * 9 / 10); // and fair among these
        }
        uint64_t one = loop_word(&r, 0);
        if (shared)
            assert_in_range(many, one * 9 / 10, one * 11 / 10);
        else
            assert_in_range(many, one * 6, one * 8);
        loop_close(&r);
    }
}

// A share that is alone gets all there is, whatever its weight. A poll is shorter where an idle
// share may ring; with a single share it is not.
static void test_nothing_is_wasted(void **state)
{
    static const uint32_t weights[][2] = {{0, 0}, {1, 0}, {1, 1000}, {1000, 1}};
    uint64_t done[4];

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct loop_rig r;
        loop_open(&r, 1);
        start_endless(&r, weights[i][0] ? make_share(r.dev, weights[i][0], 0) : 0, 0);
        if (weights[i][1])
            make_share(r.dev, weights[i][1], 0); // idle
        run_endless(&r);
        done[i] = loop_word(&r, 0);
        loop_close(&r);
    }
    assert_int_equal(done[0], done[1]);
    assert_int_equal(done[2], done[3]);
    assert_true(done[2] >= POLLS * VB_SHARE_POLL_UNITS / 4);
}

// Who had nothing to do has saved nothing up, and waits for no more than a round of the others.
static void test_idleness_is_no_credit(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    start_endless(&r, make_share(r.dev, 0, 0), 0);
    run_endless(&r);
    uint64_t before = loop_word(&r, 0);
    start_endless(&r, make_share(r.dev, 0, 0), 8);
    run_endless(&r);
    uint64_t more = loop_word(&r, 0) - before;
    assert_in_range(loop_word(&r, 8), more * 9 / 10, more * 11 / 10);
    loop_close(&r);
}

// So many entries more, if all before are done. Returns whether they are.
static bool open_more(struct loop_rig *r, struct loop_queue *q, uint32_t entries)
{
    struct vb_qp_progress p;

    assert_int_equal(vb_dev_qp_progress(r->dev, q->qpn, &p), 0);
    if (be32toh(q->dbrec[VB_DBREC_SQ]) != (p.begun & 0xffff))
        return false;
    q->dbrec[VB_DBREC_SQ] = htobe32((p.begun + entries) & 0xffff);
    vb_doorbell_ring(vb_dev_doorbells(r->dev), q->qpn);
    return true;
}

// Two that never end, and one that has some entries now and then.
static struct loop_queue *open_three(struct loop_rig *r)
{
    loop_open(r, 1);
    start_endless(r, make_share(r->dev, 0, 0), 0);
    start_endless(r, make_share(r->dev, 0, 0), 8);
    struct loop_queue *light = start_endless(r, make_share(r->dev, 0, 0), 16);
    light->dbrec[VB_DBREC_SQ] = 0;
    return light;
}

static void poll_three(struct loop_rig *r)
{
    uint32_t queues = r->queues;

    r->queues = 2;
    keep_open(r);
    r->queues = queues;
    vb_pu_poll(vb_dev_pu(r->dev), r->now_ns += 1000);
}

// However often it comes, light work is done in the poll that it came before.
static void test_light_work_goes_first(void **state)
{
    struct loop_rig r;
    struct loop_queue *light = open_three(&r);

    (void)state;
    for (uint32_t i = 0; i < 10; i++)
        poll_three(&r);
    for (uint64_t done = 1; done <= 300; done++) {
        assert_true(open_more(&r, light, 1));
        poll_three(&r);
        assert_int_equal(loop_word(&r, 16), done);
    }
    loop_close(&r);
}

// But who has more than its part has no more of it by coming in pieces.
static void test_coming_and_going_wins_nothing(void **state)
{
    static const uint32_t pieces[] = {1, 40, 100, 250, 600, 3000};

    (void)state;
    for (uint32_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct loop_rig r;
        struct loop_queue *light = open_three(&r);
        for (uint32_t n = 0; n < POLLS; n++) {
            open_more(&r, light, pieces[i]);
            poll_three(&r);
        }
        uint64_t one = loop_word(&r, 0);
        assert_in_range(loop_word(&r, 8), one * 9 / 10, one * 11 / 10);
        assert_true(loop_word(&r, 16) < one * 11 / 10);
        assert_true(loop_word(&r, 16) >= POLLS * 9 / 10);
        loop_close(&r);
    }
}

// Who is alone has it all, but in pieces where there are others, who may ring at any time.
static void test_others_may_ring(void **state)
{
    (void)state;
    for (uint32_t shares = 0; shares <= 2; shares++) {
        struct forge_opts o = forge_defaults();
        o.window_bytes = 1 << 20;
        struct forge *f = forge_open(&o);
        for (uint32_t i = 0; i < shares; i++)
            make_share(f->dev, 0, 0);
        vb_pu_observe(f->pu, NULL, NULL);
        for (uint32_t i = 0; i < 8; i++)
            forge_post(f, i, VB_WR_WRITE, 0, 16 * 1024);
        vb_pu_poll(f->pu, f->now_ns);
        uint32_t sent = vb_pu_txq(f->pu)->count;
        uint32_t frame = VB_SHARE_FRAME + f->opts.mtu / 256 + VB_MAX_SGE - 1; // in pieces
        uint32_t all = 8 * 16 * 1024 / f->opts.mtu;
        assert_int_equal(sent, shares > 1 ? VB_SHARE_LINE_UNITS / frame : all);
        assert_int_equal(vb_pu_has_more(f->pu), shares > 1);
        for (uint32_t polls = 0; vb_pu_has_more(f->pu); polls++) {
            assert_true(polls < 100);
            vb_pu_txq(f->pu)->taken = vb_pu_txq(f->pu)->count;
            vb_pu_tx_release(f->pu);
            vb_pu_poll(f->pu, f->now_ns);
        }
        forge_close(f);
    }
}

// But those that had no work for a while are not waited for.
static void test_quiet_shares_shorten_no_turns(void **state)
{
    struct forge_opts o = forge_defaults();

    (void)state;
    o.window_bytes = 1 << 20;
    struct forge *f = forge_open(&o);
    make_share(f->dev, 0, 0);
    make_share(f->dev, 0, 0);
    vb_pu_observe(f->pu, NULL, NULL);
    forge_post(f, 0, VB_WR_WRITE, 0, 64);
    vb_pu_poll(f->pu, f->now_ns);
    vb_pu_txq(f->pu)->taken = vb_pu_txq(f->pu)->count;
    vb_pu_tx_release(f->pu);
    for (uint32_t i = 0; i < 8; i++)
        forge_post(f, i, VB_WR_WRITE, 0, 16 * 1024);
    vb_pu_poll(f->pu, f->now_ns + VB_SHARE_QUIET_NS);
    assert_int_equal(vb_pu_txq(f->pu)->count, 8 * 16 * 1024 / f->opts.mtu);
    forge_close(f);
}

// Work before the line waits for a slice of the frames that have come, not for all of them.
static void test_frames_come_in_slices(void **state)
{
    struct forge *f = forge_open(NULL);

    (void)state;
    make_share(f->dev, 0, 0);
    make_share(f->dev, 0, 0);
    vb_pu_observe(f->pu, NULL, NULL);
    for (uint32_t i = 0; i < 32; i++) {
        const struct vb_packet ack = forge_packet(f, VB_RC_ACK, f->opts.peer_psn);
        forge_queue(f, &ack);
    }
    forge_post(f, 1, VB_WR_WRITE, 0, 64);
    vb_pu_feed(f->pu, f->feed, f->feed_count);
    vb_pu_poll(f->pu, f->now_ns);
    assert_in_range(vb_pu_frames_left(f->pu), 32 - VB_SHARE_SLICE_UNITS / VB_SHARE_FRAME, 31);
    assert_true(vb_pu_has_more(f->pu));
    vb_pu_poll(f->pu, f->now_ns);
    assert_in_range(vb_pu_frames_left(f->pu), 32 - 2 * VB_SHARE_SLICE_UNITS / VB_SHARE_FRAME, 31);
    assert_int_equal(vb_pu_txq(f->pu)->count, 1);
    assert_true(vb_pu_has_more(f->pu)); // so nobody falls asleep, or feeds it others
    for (uint32_t polls = 0; vb_pu_frames_left(f->pu) > 0; polls++) {
        assert_true(polls < 32);
        vb_pu_poll(f->pu, f->now_ns);
    }
    while (f->feed_count > 0)
        free((void *)(uintptr_t)f->feed[--f->feed_count].data);
    forge_close(f);
}

// After a slice each share has its turn before the line, share 0 among them, and then frames go on.
static void test_each_share_has_a_turn_after_a_slice(void **state)
{
    static const uint8_t garbage[8];
    struct vb_rx_frame frames[32];
    struct loop_rig r;
    uint32_t turns = 0, came = 0, slice = 0;

    (void)state;
    loop_open(&r, 1);
    const uint32_t share[3] = {0, make_share(r.dev, 0, 0), make_share(r.dev, 0, 0)};
    for (uint32_t i = 0; i < 3; i++) {
        struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share[i]});
        loop_put(q, loop_nop());
        loop_doorbell(q);
    }
    for (uint32_t i = 0; i < 32; i++)
        frames[i] = (struct vb_rx_frame){.head = garbage, .data = garbage, .len = sizeof garbage};
    vb_pu_feed(vb_dev_pu(r.dev), frames, 32);
    while (turns < 3) {
        struct vb_step step = vb_pu_step(vb_dev_pu(r.dev), r.now_ns);
        assert_int_not_equal(step.kind, VB_STEP_NONE);
        came += step.kind == VB_STEP_FRAME_IN;
        turns += step.kind == VB_STEP_EXEC;
        if (turns == 0)
            slice = came;
    }
    assert_int_equal(slice, (VB_SHARE_SLICE_UNITS + VB_SHARE_FRAME - 1) / VB_SHARE_FRAME);
    assert_int_equal(came, slice);
    loop_run(&r);
    loop_close(&r);
}

// A queue pair that goes in the middle of its turn, and the last share that goes.
static void test_queue_pairs_go_in_their_turn(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    uint32_t a = make_share(r.dev, 0, 0), b = make_share(r.dev, 0, 0);
    struct loop_queue *gone = start_endless(&r, a, 0), *stays = start_endless(&r, 0, 8);
    keep_open(&r);
    for (uint32_t i = 0; i < 20; i++)
        vb_pu_step(vb_dev_pu(r.dev), r.now_ns);
    assert_true(facts_of(r.dev, a).waits);
    loop_destroy(gone);
    assert_false(facts_of(r.dev, a).waits);
    assert_int_equal(vb_dev_share_destroy(r.dev, a), 0);
    assert_int_equal(vb_dev_share_destroy(r.dev, b), 0);
    gone->qpn = stays->qpn;
    gone->dbrec[VB_DBREC_SQ] = stays->dbrec[VB_DBREC_SQ];
    uint64_t before = loop_word(&r, 8);
    vb_pu_poll(vb_dev_pu(r.dev), r.now_ns);
    assert_true(loop_word(&r, 8) > before);
    loop_close(&r);
}

// The share that is the last before the line goes while another one there has its turn: that one is
// the last then.
static void test_the_last_before_the_line_goes(void **state)
{
    struct loop_queue *q[2];
    struct loop_rig r;
    uint32_t share[2];

    (void)state;
    loop_open(&r, 1);
    for (uint32_t i = 0; i < 2; i++) {
        share[i] = make_share(r.dev, 0, 0);
        q[i] = loop_queue(&r, &(struct loop_opts){.share = share[i]});
        loop_put(q[i], loop_nop());
        loop_doorbell(q[i]);
    }
    const struct vb_pu *pu = r.dev->pu[0];
    assert_int_equal(vb_pu_step(vb_dev_pu(r.dev), r.now_ns).qpn, q[0]->qpn);
    assert_ptr_equal(pu->early_last, &vb_share_find(r.dev, share[1])->part[0].early);
    loop_destroy(q[1]);
    assert_int_equal(vb_dev_share_destroy(r.dev, share[1]), 0);
    assert_ptr_equal(pu->early_last, &vb_share_find(r.dev, share[0])->part[0].early);
    loop_run(&r);
    assert_int_equal(loop_count(&q[0]->cq, NULL), 1);
    loop_close(&r);
}

// ---- timers

// All timers that there can be run at once: two of each queue pair, one of its cross-channel work,
// one of each completion queue and the unit's own. 17 are one more than there is room for at first.
static void test_all_timers_run_at_once(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    uint32_t share = make_share(r.dev, 0, 1000000);
    for (uint32_t i = 0; i < 4; i++)
        loop_queue(&r, &(struct loop_opts){.share = share});
    struct vb_pu *pu = r.dev->pu[0];
    vb_timer_arm(&pu->timers, &pu->untold_timer, 1);
    for (uint32_t i = 0; i < r.queues; i++) {
        struct vb_qpc *qp = vb_dev_qp(r.dev, r.queue[i].qpn);
        vb_timer_arm(&pu->timers, &qp->req.timer, 1);
        vb_timer_arm(&pu->timers, &qp->congestion->resume, 1);
        vb_timer_arm(&pu->timers, &qp->cross->timer, 1);
        vb_timer_arm(&pu->timers, &qp->send_cq->timer, 1);
    }
    assert_int_equal(pu->timers.count, 17);
    loop_close(&r);
}

// ---- the length of turns

enum {
    TURN_UNITS_MAX = 197, // sim/TURNS.md derives it
    LONG_BYTES = 960,     // inline, in an entry of 16 blocks
};

// The dearest turn of share `share` until there is nothing to do, by steps or by short polls.
static uint64_t dearest_turn(struct vb_dev *dev, uint32_t share, uint64_t now_ns, uint32_t turns)
{
    struct vb_share_facts before = facts_of(dev, share), facts = before;
    uint64_t most = 0;

    while (facts.turns < turns && vb_pu_step(vb_dev_pu(dev), now_ns).kind != VB_STEP_NONE) {
        facts = facts_of(dev, share);
        if (facts.turns > before.turns && facts.units - before.units > most)
            most = facts.units - before.units;
        if (facts.turns > before.turns)
            before = facts;
    }
    return most;
}

static void test_long_entries_end_a_turn(void **state)
{
    static const uint8_t bytes[LONG_BYTES];
    const struct vb_sge sge = {(uintptr_t)bytes, LONG_BYTES, 0};
    struct forge_opts o = forge_defaults();

    (void)state;
    o.send_depth = 16;
    o.inline_bytes = LONG_BYTES;
    struct forge *f = forge_open(&o);
    make_share(f->dev, 0, 0);
    make_share(f->dev, 0, 0); // so turns are short
    for (uint32_t i = 0; i < 16; i++)
        forge_post_send(f, &(struct vb_send_wr){.wr_id = i,
                                                .opcode = VB_WR_WRITE,
                                                .sge = &sge,
                                                .num_sge = 1,
                                                .flags = VB_WR_INLINE,
                                                .rkey = 7,
                                                .raddr = 0x1000});
    uint64_t most = dearest_turn(f->dev, 0, f->now_ns, 1000);
    assert_in_range(most, 16, TURN_UNITS_MAX);
    forge_close(f);
}

// Packets in 16 pieces take long, however short they are.
static void test_short_packets_in_pieces_end_a_turn(void **state)
{
    struct forge_opts o = forge_defaults();
    struct vb_sge sge[VB_MAX_SGE];

    (void)state;
    o.mtu = 256;
    o.sges = VB_MAX_SGE;
    struct forge *f = forge_open(&o);
    make_share(f->dev, 0, 0);
    make_share(f->dev, 0, 0);
    for (uint32_t i = 0; i < VB_MAX_SGE; i++)
        sge[i] = (struct vb_sge){forge_addr(f, 64 * i), 16, f->key};
    for (uint32_t i = 0; i < 16; i++)
        forge_post_send(f, &(struct vb_send_wr){.wr_id = i,
                                                .opcode = VB_WR_WRITE,
                                                .sge = sge,
                                                .num_sge = VB_MAX_SGE,
                                                .rkey = 7,
                                                .raddr = 0x1000});
    uint32_t most = 0, sent = 0, before = 0, turns = 0;
    while (vb_pu_step(f->pu, f->now_ns).kind != VB_STEP_NONE) {
        if (f->steps[VB_STEP_TURN] != turns)
            sent = before; // the step is the next turn's
        turns = f->steps[VB_STEP_TURN];
        before = f->steps[VB_STEP_FRAME_OUT];
        most = before - sent > most ? before - sent : most;
    }
    assert_in_range(most, 2, 6);
    forge_close(f);
}

// Whatever depth of fetching ahead its owner asks for.
static void test_a_turn_fetches_so_many_entries(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    uint32_t share = make_share(r.dev, 0, 0);
    make_share(r.dev, 0, 0);
    struct loop_queue *q = loop_queue(
        &r, &(struct loop_opts){.managed = true, .blocks = 1, .share = share, .depth = 4096});
    struct vb_code count = loop_count_up(&r, 0);
    count.fm_ce_se = 0;
    loop_put(q, count);
    keep_open(&r);
    assert_in_range(dearest_turn(r.dev, share, r.now_ns, 50), 8, TURN_UNITS_MAX);
    loop_close(&r);
}

static void see_nothing(void *ctx, const struct vb_step *step)
{
    (void)ctx;
    (void)step;
}

// Entries of two blocks end turns at the same places, whether steps are observed or not: the first
// one changes another that the first turn has not fetched, and the second turn has fetched no more
// when it executes that.
static void test_long_entries_end_the_same_turns_in_polls(void **state)
{
    enum {
        ENTRIES = 32, // as many as the ring holds
        CHANGED = 12,
        LEN = 64,
        INLINE_AT = 36, // behind the control and address segments, and a length
    };
    uint8_t bytes[LEN] = {1};
    struct vb_share_facts facts[2];

    (void)state;
    for (uint32_t observed = 0; observed < 2; observed++) {
        struct loop_rig r;
        loop_open(&r, 1);
        uint32_t share = make_share(r.dev, 0, 0);
        make_share(r.dev, 0, 0);
        struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share, .depth = 16});
        uint8_t *changed = loop_block(q, 2 * CHANGED);
        assert_int_equal(loop_put(q, loop_write(changed, q->key, bytes, LEN)), 0);
        for (uint32_t i = 1; i < ENTRIES; i++)
            assert_int_equal(loop_put(q, loop_write(&r.memory[LEN * i], r.key, bytes, LEN)), 2 * i);
        uint8_t *first = loop_block(q, 0);
        memcpy(&first[INLINE_AT], changed, LEN);
        first[INLINE_AT + INLINE_AT] = 7; // the first byte that the other one writes
        loop_doorbell(q);
        if (observed)
            vb_pu_observe(vb_dev_pu(r.dev), see_nothing, NULL);
        for (uint32_t i = 0; i < ENTRIES; i++)
            vb_pu_poll(vb_dev_pu(r.dev), r.now_ns);
        assert_int_equal(r.memory[LEN * (ENTRIES - 1)], 1);
        assert_int_equal(r.memory[LEN * CHANGED], 7);
        facts[observed] = facts_of(r.dev, share);
        loop_close(&r);
    }
    assert_int_equal(facts[0].turns, facts[1].turns);
    assert_int_equal(facts[0].units, facts[1].units);
}

// A loop whose entries are checked has the turns of one whose entries are not.
static void test_checked_entries_end_the_same_turns(void **state)
{
    struct vb_share_facts facts[2];

    (void)state;
    for (uint32_t checks = 0; checks < 2; checks++) {
        struct loop_rig r;
        loop_open(&r, 1);
        uint32_t share = make_share(r.dev, 0, 0);
        make_share(r.dev, 0, 0);
        struct loop_queue *q =
            loop_queue(&r, &(struct loop_opts){.share = share, .checks = checks});
        for (uint32_t i = 0; i < LOOP_BLOCKS_MAX; i++)
            loop_put(q, loop_nop());
        loop_doorbell(q);
        for (uint32_t i = 0; i < LOOP_BLOCKS_MAX; i++)
            vb_pu_poll(vb_dev_pu(r.dev), r.now_ns);
        assert_int_equal(loop_count(&q->cq, NULL), LOOP_BLOCKS_MAX);
        facts[checks] = facts_of(r.dev, share);
        loop_close(&r);
    }
    assert_true(facts[0].turns > 1);
    assert_int_equal(facts[0].turns, facts[1].turns);
    assert_int_equal(facts[0].units, facts[1].units);
}

// ---- what work costs

// Share 0 is billed, too, once there is another.
static uint64_t units(const struct forge *f)
{
    return facts_of(f->dev, 0).units;
}

static void test_nobody_is_billed_alone(void **state)
{
    struct forge *f = forge_open(NULL);

    (void)state;
    forge_post(f, 1, VB_WR_WRITE, 0, 64);
    forge_run(f);
    assert_int_equal(units(f), 0);
    forge_close(f);
}

static void test_packets_and_bytes_cost(void **state)
{
    struct forge *f = forge_open(NULL);

    (void)state;
    make_share(f->dev, 0, 0);
    forge_post(f, 1, VB_WR_WRITE, 0, 64);
    forge_run(f);
    uint64_t small = units(f);
    assert_in_range(small, VB_SHARE_TURN + VB_SHARE_FRAME, 3 * VB_SHARE_FRAME);
    forge_post(f, 2, VB_WR_WRITE, 0, 1024);
    forge_run(f);
    uint64_t big = units(f) - small;
    assert_in_range(big, small + 3, small + 5);
    forge_post(f, 3, VB_WR_WRITE, 0, 16 * 1024);
    forge_run(f);
    uint64_t packets = 16 * 1024 / f->opts.mtu;
    assert_in_range(units(f) - big - small, packets * VB_SHARE_FRAME + 64,
                    packets * VB_SHARE_FRAME + 64 + 16);
    forge_close(f);
}

// What a peer asks of a tenant's queue pair is the tenant's work: its READs and what it sends.
static void test_what_a_peer_wants_costs(void **state)
{
    struct forge *f = forge_open(NULL);
    struct vb_packet read = forge_reth(f, VB_RC_READ_REQUEST, f->opts.peer_psn, 0, 8192);

    (void)state;
    make_share(f->dev, 0, 0);
    forge_queue(f, &read);
    forge_run(f);
    uint64_t packets = 1 + 8192 / f->opts.mtu;
    assert_in_range(units(f), packets * VB_SHARE_FRAME + 8192 / 256, 1000);
    forge_close(f);
}

// Neither of these makes the queue pair send anything.
static void test_what_comes_in_costs(void **state)
{
    static const enum vb_qp_type types[] = {VB_QPT_UC, VB_QPT_RC};
    static const uint8_t bytes[64];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct forge_opts o = forge_defaults();
        o.type = types[i];
        struct forge *f = forge_open(&o);
        make_share(f->dev, 0, 0);
        forge_run(f); // its first turn
        uint64_t before = units(f);
        for (uint32_t n = 0; n < 16; n++) {
            struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, f->opts.peer_psn + n, 0, 64);
            p.ack_request = false;
            p.payload = bytes;
            p.payload_len = sizeof bytes;
            forge_queue(f, &p);
        }
        forge_run(f);
        assert_int_equal(f->verdict, VB_RX_APPLIED);
        assert_int_equal(f->sent_count, 0);
        assert_in_range(units(f) - before, 16 * VB_SHARE_FRAME, 20 * VB_SHARE_FRAME);
        forge_close(f);
    }
}

// A receive of so many pieces, and a message that fills them; what that costs.
static uint64_t receive_cost(struct forge *f, uint32_t pieces, uint32_t psn)
{
    static const uint8_t bytes[64];
    struct vb_sge sge[VB_MAX_SGE];
    uint64_t before = units(f);

    for (uint32_t i = 0; i < pieces; i++)
        sge[i] = (struct vb_sge){forge_addr(f, i * 64), 64 / pieces, f->key};
    const struct vb_recv_wr wr = {.sge = sge, .num_sge = pieces};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, psn);
    p.payload = bytes;
    p.payload_len = sizeof bytes;
    forge_queue(f, &p);
    forge_run(f);
    assert_int_equal(f->verdict, VB_RX_APPLIED);
    return units(f) - before;
}

static void test_pieces_cost(void **state)
{
    struct forge_opts o = forge_defaults();

    (void)state;
    o.sges = VB_MAX_SGE;
    struct forge *f = forge_open(&o);
    make_share(f->dev, 0, 0);
    forge_run(f);
    receive_cost(f, 1, f->opts.peer_psn);
    uint64_t one = receive_cost(f, 1, f->opts.peer_psn + 1);
    uint64_t many = receive_cost(f, VB_MAX_SGE, f->opts.peer_psn + 2);
    assert_in_range(many - one, (VB_MAX_SGE - 1) * VB_SHARE_PIECE - 1,
                    (VB_MAX_SGE - 1) * VB_SHARE_PIECE + 1); // bytes are billed in whole units
    assert_true(receive_cost(f, 1, f->opts.peer_psn + 3) < many - 8); // and only once
    forge_close(f);
}

static bool fetch_bytes(void *ctx, uint64_t source, uint64_t at, uint8_t *bytes, uint64_t len)
{
    (void)ctx;
    (void)source;
    memcpy(bytes, (const void *)(uintptr_t)at, len);
    return true;
}

static bool store_bytes(void *ctx, uint64_t source, uint64_t at, const uint8_t *bytes, uint64_t len)
{
    (void)ctx;
    (void)source;
    memcpy((void *)(uintptr_t)at, bytes, len);
    return true;
}

// A WRITE and a READ of copied memory: each packet is a system call.
static void test_copies_cost(void **state)
{
    const struct vb_mem_copier copier = {.fetch = fetch_bytes, .store = store_bytes};
    uint64_t cost[2];

    (void)state;
    for (uint32_t copied = 0; copied < 2; copied++) {
        struct forge *f = forge_open(NULL);
        vb_dev_copy_by(f->dev, &copier);
        const struct vb_mkey_attr attr = {.pd = f->pd,
                                          .access = VB_ACCESS_ALL & ~VB_REMOTE_ATOMIC,
                                          .start = (uintptr_t)f->memory,
                                          .len = FORGE_MEMORY,
                                          .base = f->memory,
                                          .kind = copied ? VB_MKEY_COPIED : VB_MKEY_REGION};
        assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &f->key), 0);
        make_share(f->dev, 0, 0);
        forge_run(f);
        uint64_t before = units(f);
        forge_post(f, 1, VB_WR_WRITE, 0, 64);
        forge_run(f);
        struct vb_packet read = forge_reth(f, VB_RC_READ_REQUEST, f->opts.peer_psn, 0, 64);
        forge_queue(f, &read);
        forge_run(f);
        cost[copied] = units(f) - before;
        forge_close(f);
    }
    assert_int_equal(cost[1] - cost[0], 2 * VB_SHARE_COPY);
}

// Counters may begin anywhere: what was never fetched costs nothing.
static void test_a_start_costs_nothing(void **state)
{
    struct forge_opts o = forge_defaults();

    (void)state;
    o.sq_start = UINT64_C(1) << 32;
    struct forge *f = forge_open(&o);
    make_share(f->dev, 0, 0);
    forge_post(f, 1, VB_WR_WRITE, 0, 64);
    forge_run(f);
    assert_in_range(units(f), VB_SHARE_TURN + VB_SHARE_FRAME, 3 * VB_SHARE_FRAME);
    forge_close(f);
}

static void test_flushing_costs(void **state)
{
    struct forge *f = forge_open(NULL);

    (void)state;
    make_share(f->dev, 0, 0);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    uint64_t before = units(f);
    for (uint32_t i = 0; i < 8; i++)
        forge_post(f, i, VB_WR_WRITE, 0, 64);
    forge_run(f);
    assert_in_range(units(f) - before, 2 * 8 + VB_SHARE_TURN, 2 * 8 + 2 * VB_SHARE_TURN);
    forge_close(f);
}

// Of a loop, what was fetched ahead is flushed, in more than one turn. That is no reason to be
// billed for all that it has ever fetched.
static void test_flushing_what_was_ahead_costs(void **state)
{
    enum {
        AHEAD = 60,
        ROUNDS = 50
    };
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    uint32_t share = make_share(r.dev, 0, 0);
    make_share(r.dev, 0, 0);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share, .depth = 256});
    vb_dev_qp(r.dev, q->qpn)->mtu_shift = 12; // turns are of 16
    for (uint32_t i = 0; i < ROUNDS * AHEAD; i++) {
        loop_put(q, loop_nop());
        if (i % AHEAD == AHEAD - 1) {
            loop_doorbell(q);
            loop_run(&r);
        }
    }
    loop_put(q, loop_wait(&q->cq, ROUNDS * AHEAD + 1000)); // for ever
    for (uint32_t i = 0; i < AHEAD; i++)
        loop_put(q, loop_nop());
    loop_doorbell(q);
    loop_run(&r);
    uint64_t before = facts_of(r.dev, share).units;
    assert_in_range(before, ROUNDS * AHEAD, 4 * ROUNDS * AHEAD);
    const struct vb_qpc_mods mods = {.state = VB_QPS_ERR};
    assert_int_equal(vb_dev_qp_modify(r.dev, q->qpn, &mods), 0);
    loop_run(&r);
    assert_in_range(facts_of(r.dev, share).units - before, AHEAD, 6 * AHEAD);
    loop_close(&r);
}

// Behind an entry without a length nothing is read, and nothing billed.
static void test_garbage_costs_what_is_read(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    uint32_t share = make_share(r.dev, 0, 0);
    make_share(r.dev, 0, 0);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.share = share});
    for (uint32_t i = 0; i < 32; i++)
        memset(loop_block(q, loop_put(q, loop_nop())), 0, VB_WQEBB_BYTES);
    loop_doorbell(q);
    loop_run(&r);
    assert_in_range(facts_of(r.dev, share).units, VB_SHARE_TURN + 2, 2 * VB_SHARE_TURN + 3);
    loop_close(&r);
    for (uint32_t fails = 0; fails < 2; fails++) {
        struct forge *f = forge_open(NULL);
        make_share(f->dev, 0, 0);
        if (fails)
            forge_modify(f, VB_QPS_ERR);
        forge_run(f);
        uint64_t before = units(f);
        memset(f->qp.sq.ring, 0, (size_t)f->qp.sq.blocks * VB_WQEBB_BYTES);
        f->qp.dbrec[VB_DBREC_SQ] = htobe32(f->qp.sq.blocks);
        vb_doorbell_ring(vb_dev_doorbells(f->dev), f->qp.qpn);
        forge_run(f);
        assert_true(f->qp.sq.blocks >= 16);
        assert_in_range(units(f) - before, VB_SHARE_TURN + 2, 2 * VB_SHARE_TURN + 3);
        forge_close(f);
    }
}

// Nor for rounds that are open, and never run.
static void test_open_rounds_cost_nothing(void **state)
{
    struct loop_rig r;

    (void)state;
    loop_open(&r, 1);
    uint32_t share = make_share(r.dev, 0, 0);
    struct loop_queue *q =
        loop_queue(&r, &(struct loop_opts){.managed = true, .blocks = 1, .share = share});
    loop_put(q, loop_wait(&q->cq, 1000)); // for ever
    q->dbrec[VB_DBREC_SQ] = htobe32(16384);
    vb_doorbell_ring(vb_dev_doorbells(r.dev), q->qpn);
    loop_run(&r);
    uint64_t before = facts_of(r.dev, share).units;
    const struct vb_qpc_mods mods = {.state = VB_QPS_ERR};
    assert_int_equal(vb_dev_qp_modify(r.dev, q->qpn, &mods), 0);
    loop_run(&r);
    assert_in_range(facts_of(r.dev, share).units - before, 1, 100);
    loop_close(&r);
}

static void test_a_bell_for_nothing_costs(void **state)
{
    struct forge *f = forge_open(NULL);

    (void)state;
    make_share(f->dev, 0, 0);
    vb_doorbell_ring(vb_dev_doorbells(f->dev), f->ctx->qpn);
    forge_run(f);
    assert_int_equal(units(f), VB_SHARE_TURN);
    forge_close(f);
}

// One entry cannot be interrupted, so it cannot be of any length in a share.
static void test_an_entry_moves_so_much(void **state)
{
    static const uint32_t lengths[] = {VB_SHARE_ENTRY_MAX, VB_SHARE_ENTRY_MAX + 1};
    uint8_t *memory = calloc(4, VB_SHARE_ENTRY_MAX);
    uint32_t key;

    (void)state;
    assert_non_null(memory);
    for (uint32_t i = 0; i < 8; i++) {
        struct loop_rig r;
        uint32_t len = lengths[i & 1];
        bool shared = i & 2, reads = i & 4;
        loop_open(&r, 1);
        const struct vb_mkey_attr attr = {.pd = r.pd,
                                          .access = VB_ACCESS_ALL,
                                          .start = (uintptr_t)memory,
                                          .len = 4 * VB_SHARE_ENTRY_MAX,
                                          .base = memory};
        assert_int_equal(vb_dev_mkey_create(r.dev, &attr, &key), 0);
        struct loop_queue *q = loop_queue(
            &r, &(struct loop_opts){.share = shared ? make_share(r.dev, 0, 0) : 0, .strict = true});
        loop_put(q,
                 (struct vb_code){.opcode = reads ? VB_WQE_READ : VB_WQE_WRITE,
                                  .fm_ce_se = VB_WQE_CE_ALWAYS,
                                  .raddr = (uintptr_t)memory,
                                  .rkey = key,
                                  .num_sge = 1,
                                  .sge = {{(uintptr_t)memory + 2 * VB_SHARE_ENTRY_MAX, key, len}}});
        loop_doorbell(q);
        vb_pu_poll(vb_dev_pu(r.dev), 0);
        uint8_t bad = 0;
        bool refused = shared && len > VB_SHARE_ENTRY_MAX;
        assert_int_equal(loop_count(&q->cq, &bad), !refused);
        assert_int_equal(bad, refused ? VB_SYN_LOCAL_QP_OP : 0);
        loop_close(&r);
    }
    free(memory);
}

// Before there was another share nothing was billed, nor is it later.
static void test_the_past_costs_nothing(void **state)
{
    struct forge *f = forge_open(NULL);

    (void)state;
    forge_post(f, 1, VB_WR_WRITE, 0, 64 * 1024);
    forge_run(f);
    make_share(f->dev, 0, 0);
    vb_doorbell_ring(vb_dev_doorbells(f->dev), f->ctx->qpn);
    forge_run(f);
    assert_int_equal(units(f), VB_SHARE_TURN);
    forge_close(f);
}

// ---- events

// Whoever has filled the table, what others do makes no event before there is room for it.
static void test_turns_wait_for_room_for_events(void **state)
{
    struct forge *f = forge_open(NULL);
    struct vb_event e;

    (void)state;
    make_share(f->dev, 0, 0);
    forge_run(f);
    for (uint32_t i = 0; i <= VB_EVENTS / 2; i++)
        vb_pu_event(f->pu, VB_EVENT_QP_FATAL, 7);
    vb_pu_observe(f->pu, NULL, NULL);
    uint64_t before = units(f);
    forge_post(f, 1, VB_WR_WRITE, 0, 64);
    vb_pu_poll(f->pu, f->now_ns);
    assert_int_equal(units(f), before);
    assert_true(vb_pu_has_more(f->pu)); // so nobody falls asleep
    while (vb_pu_take_event(f->pu, &e))
        assert_int_equal(e.number, 7);
    vb_pu_poll(f->pu, f->now_ns);
    assert_true(units(f) > before);
    assert_false(vb_pu_has_more(f->pu));
    assert_int_equal(f->pu->count.lost_events, 0);
    forge_close(f);
}

// ---- windows

static void test_a_share_has_a_window_of_its_own(void **state)
{
    struct forge *f = forge_open(NULL);
    struct vb_share *share = vb_share_find(f->dev, make_share(f->dev, 0, 0));

    (void)state;
    struct vb_peer *common = vb_peer_join(f->pu, &f->remote, NULL);
    struct vb_peer *own = vb_peer_join(f->pu, &f->remote, &share->part[0]);
    assert_ptr_equal(common, f->ctx->peer);
    assert_ptr_not_equal(own, common);
    assert_int_equal(own->window, common->window / 2);
    vb_peer_lost(f->pu, own); // nobody else's loss
    f->now_ns += VB_PEER_CUT_INTERVAL_NS;
    assert_int_equal(common->open, common->window);
    common->users--;
    struct vb_peer *before = f->ctx->peer;
    f->ctx->peer = own;
    vb_peer_leave(f->pu, f->ctx);
    f->ctx->peer = before;
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_share_comes_and_goes),
        cmocka_unit_test(test_what_makes_no_share),
        cmocka_unit_test(test_facts_of_all_units),
        cmocka_unit_test(test_turns_are_by_weight),
        cmocka_unit_test(test_many_queue_pairs_win_nothing),
        cmocka_unit_test(test_nothing_is_wasted),
        cmocka_unit_test(test_idleness_is_no_credit),
        cmocka_unit_test(test_light_work_goes_first),
        cmocka_unit_test(test_coming_and_going_wins_nothing),
        cmocka_unit_test(test_others_may_ring),
        cmocka_unit_test(test_quiet_shares_shorten_no_turns),
        cmocka_unit_test(test_frames_come_in_slices),
        cmocka_unit_test(test_each_share_has_a_turn_after_a_slice),
        cmocka_unit_test(test_queue_pairs_go_in_their_turn),
        cmocka_unit_test(test_the_last_before_the_line_goes),
        cmocka_unit_test(test_all_timers_run_at_once),
        cmocka_unit_test(test_checked_entries_end_the_same_turns),
        cmocka_unit_test(test_nobody_is_billed_alone),
        cmocka_unit_test(test_packets_and_bytes_cost),
        cmocka_unit_test(test_what_a_peer_wants_costs),
        cmocka_unit_test(test_what_comes_in_costs),
        cmocka_unit_test(test_a_start_costs_nothing),
        cmocka_unit_test(test_pieces_cost),
        cmocka_unit_test(test_copies_cost),
        cmocka_unit_test(test_long_entries_end_a_turn),
        cmocka_unit_test(test_short_packets_in_pieces_end_a_turn),
        cmocka_unit_test(test_a_turn_fetches_so_many_entries),
        cmocka_unit_test(test_long_entries_end_the_same_turns_in_polls),
        cmocka_unit_test(test_garbage_costs_what_is_read),
        cmocka_unit_test(test_flushing_costs),
        cmocka_unit_test(test_flushing_what_was_ahead_costs),
        cmocka_unit_test(test_open_rounds_cost_nothing),
        cmocka_unit_test(test_a_bell_for_nothing_costs),
        cmocka_unit_test(test_an_entry_moves_so_much),
        cmocka_unit_test(test_turns_wait_for_room_for_events),
        cmocka_unit_test(test_a_share_has_a_window_of_its_own),
        cmocka_unit_test(test_the_past_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
