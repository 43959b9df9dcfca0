// SPDX-License-Identifier: Apache-2.0
// The processing unit: lists, strangers' frames, steps and their records, turns, a full transmit
// queue, queue pairs that go while their frames wait, and two ways to poll that do the same.
#include "base/prng.h"
#include "forge.h"
#include "fresh_seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- lists

// What lies behind the end of a list is lent by nobody; at its end the last piece is.
static void test_lending_from_a_list(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    const struct vb_seg seg[2] = {{.addr = forge_addr(f, 0), .len = 8, .key = f->key},
                                  {.addr = forge_addr(f, 64), .len = 8, .key = f->key}};
    const struct vb_accessor who = {.pd = f->pd, .qpn = f->qp.qpn};
    static const struct {
        uint32_t segs, offset, len;
        int at; // in memory; -1: not lent
    } rows[] = {{2, 0, 8, 0},   {2, 4, 4, 4},   {2, 4, 5, -1},  {2, 8, 8, 64}, {2, 12, 4, 68},
                {2, 12, 5, -1}, {2, 16, 1, -1}, {2, 17, 1, -1}, {1, 9, 1, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint8_t *at;
        assert_int_equal(vb_lend(f->pu, who, seg, rows[i].segs, rows[i].offset, rows[i].len, &at),
                         VB_MEM_OK);
        assert_ptr_equal(at, rows[i].at < 0 ? NULL : f->memory + rows[i].at);
    }
    forge_close(f);
}

// ---- strangers

static void test_strangers_are_dropped(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, 500, 0, 4);
    p.payload = (const uint8_t *)"abcd";
    p.payload_len = 4;
    struct vb_packet other = p;
    struct vb_ip elsewhere = f->remote;
    elsewhere.b[15] ^= 1;

    forge_queue_from(f, &p, &elsewhere);
    forge_queue_from(f, &p, &f->local);
    other.dest_qpn = p.dest_qpn ^ 1;
    forge_queue(f, &other);
    other.dest_qpn = p.dest_qpn ^ VB_DOORBELL_QPS; // the same index, another generation
    forge_queue(f, &other);
    forge_run(f);
    assert_int_equal(forge_counters(f)->rx_stranger, 4);
    assert_int_equal(f->verdict, VB_RX_STRANGER);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(f->memory[0], 0);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_memory_equal(f->memory, "abcd", 4);
    forge_close(f);
}

static void test_only_open_states_listen(void **state)
{
    (void)state;
    for (enum vb_qp_state s = VB_QPS_RESET; s <= VB_QPS_RTS; s++) {
        struct forge_opts o = forge_defaults();
        o.state = s;
        struct forge *f = forge_open(&o);
        enum vb_rx_verdict want = s >= VB_QPS_RTR ? VB_RX_APPLIED : VB_RX_STRANGER;
        struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 4);
        assert_int_equal(forge_give(f, &p), want);
        assert_int_equal(f->sent_count, s >= VB_QPS_RTR);
        // Answers concern only a queue pair that sends.
        assert_int_equal(forge_ack(f, 100), s == VB_QPS_RTS ? VB_RX_STALE : VB_RX_STRANGER);
        if (s == VB_QPS_RTS) {
            forge_modify(f, VB_QPS_ERR);
            assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
            assert_int_equal(forge_ack(f, 100), VB_RX_STRANGER);
        }
        forge_close(f);
    }
}

static void test_malformed_frames_are_counted(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    uint8_t frame[64] = {0};
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500);
    vb_packet_encode(frame, &p);
    for (uint32_t len = 0; len < 16; len++)
        forge_queue_bytes(f, frame, len, &f->remote);
    frame[0] = 0xff;
    forge_queue_bytes(f, frame, 16, &f->remote);
    forge_run(f);
    assert_int_equal(forge_counters(f)->rx_malformed, 17);
    assert_int_equal(forge_counters(f)->rcvd_pkts, 17);
    assert_int_equal(forge_counters(f)->rcvd_bytes, 15 * 16 / 2 + 16);
    assert_int_equal(f->verdict, VB_RX_MALFORMED);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

// ---- steps

static void test_one_step_at_a_time(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    static const enum vb_step_kind want[] = {VB_STEP_FETCH, VB_STEP_EXEC, VB_STEP_FRAME_OUT,
                                             VB_STEP_FRAME_OUT, VB_STEP_NONE};
    forge_post(f, 1, VB_WR_SEND, 0, 1025);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct vb_step s = vb_pu_step(f->pu, f->now_ns);
        assert_int_equal(s.kind, want[i]);
        if (s.kind != VB_STEP_NONE)
            assert_int_equal(s.qpn, f->qp.qpn);
        if (s.kind == VB_STEP_FRAME_OUT) {
            assert_int_equal(s.psn, 100 + i - 2);
            assert_int_equal(s.bytes, i == 2 ? 1024 : 1);
            assert_int_equal(s.touches, 1);
            assert_ptr_equal(s.touch[0].addr, f->memory + (i == 2 ? 0 : 1024));
            assert_false(s.touch[0].write);
        }
    }
    struct vb_packet ack = forge_packet(f, VB_RC_ACK, 101);
    forge_queue(f, &ack);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_frames_left(f->pu), 1);
    struct vb_step s = vb_pu_step(f->pu, f->now_ns);
    assert_int_equal(s.kind, VB_STEP_FRAME_IN);
    assert_int_equal(s.verdict, VB_RX_APPLIED);
    assert_int_equal(vb_pu_frames_left(f->pu), 0);
    s = vb_pu_step(f->pu, f->now_ns);
    assert_int_equal(s.kind, VB_STEP_COMPLETE);
    assert_int_equal(s.cqn, f->send_cqn);
    assert_int_equal(s.detail, VB_SYN_OK);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_NONE);
    forge_close(f);
}

// What completes silently is no step.
static void test_no_step_without_a_record(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post_flags(f, 1, VB_WR_SEND, 1, 0);
    forge_run(f);
    struct vb_packet ack = forge_packet(f, VB_RC_ACK, 100);
    forge_queue(f, &ack);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_NONE);
    assert_null(f->ctx->req.head);
    forge_close(f);
}

// Frames and timers come before work, so that one answer serves a batch.
static void test_frames_then_timers_then_work(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_SEND, 0, 1);
    forge_run(f);
    f->now_ns += 4096ull << 14;
    assert_true(vb_pu_deadline(f->pu) == f->now_ns);
    forge_post(f, 2, VB_WR_SEND, 0, 1);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 501);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_TIMER);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_OUT); // the NAK
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FETCH);
    assert_true(vb_pu_deadline(f->pu) > f->now_ns);
    forge_close(f);
}

static void test_records_of_received_writes(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, 500, 77, 4);
    p.payload = (const uint8_t *)"abcd";
    p.payload_len = 4;
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    struct vb_step s = vb_pu_step(f->pu, f->now_ns);
    assert_int_equal(s.opcode, VB_RC_WRITE_ONLY);
    assert_int_equal(s.psn, 500);
    assert_int_equal(s.touches, 1);
    assert_ptr_equal(s.touch[0].addr, f->memory + 77);
    assert_int_equal(s.touch[0].len, 4);
    assert_true(s.touch[0].write);
    forge_close(f);
}

// ---- the transmit queue

static void test_records_of_received_sends(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    const struct vb_sge sge[2] = {{forge_addr(f, 0), 3, f->key}, {forge_addr(f, 50), 9, f->key}};
    const struct vb_recv_wr wr = {.sge = sge, .num_sge = 2};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500);
    p.payload = (const uint8_t *)"abcd";
    p.payload_len = 4;
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    struct vb_step s = vb_pu_step(f->pu, f->now_ns);
    assert_int_equal(s.touches, 2);
    assert_ptr_equal(s.touch[0].addr, f->memory);
    assert_int_equal(s.touch[0].len, 3);
    assert_ptr_equal(s.touch[1].addr, f->memory + 50);
    assert_int_equal(s.touch[1].len, 1);
    assert_true(s.touch[0].write && s.touch[1].write);
    forge_close(f);
}

static void test_full_transmit_queue_resumes(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 1 << 20;
    o.mtu = 4096;
    struct forge *f = forge_open(&o);
    forge_fill(f, 0, 400000, 9);
    forge_post(f, 1, VB_WR_WRITE, 0, 400000); // 98 packets; the arena holds 63
    vb_pu_poll(f->pu, f->now_ns);
    assert_true(vb_pu_wants_tx(f->pu));
    uint32_t first = vb_pu_txq(f->pu)->count;
    assert_in_range(first, 60, 64);
    assert_int_equal(vb_pu_poll(f->pu, f->now_ns), 0);
    // A port that took only a part has not made room.
    vb_pu_txq(f->pu)->taken = 10;
    vb_pu_tx_release(f->pu);
    assert_true(vb_pu_wants_tx(f->pu));
    vb_pu_txq(f->pu)->taken = 0;
    forge_run(f);
    assert_false(vb_pu_wants_tx(f->pu));
    assert_int_equal(f->sent_count, 98);
    for (uint32_t i = 0, at = 0; i < 98; i++) {
        assert_int_equal(forge_sent(f, i)->psn, 100 + i);
        assert_memory_equal(forge_sent(f, i)->payload, f->memory + at,
                            forge_sent(f, i)->payload_len);
        at += forge_sent(f, i)->payload_len;
    }
    forge_close(f);
}

static void test_frames_are_limited_too(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint64_t i = 0; i < 256; i++)
        forge_post_flags(f, i, VB_WR_SEND, 0, 0);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 3000);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    vb_pu_poll(f->pu, f->now_ns);
    assert_true(vb_pu_wants_tx(f->pu));
    assert_int_equal(vb_pu_txq(f->pu)->count, VB_TX_FRAMES);
    forge_keep(f);
    vb_pu_poll(f->pu, f->now_ns);
    assert_false(vb_pu_wants_tx(f->pu));
    assert_int_equal(vb_pu_txq(f->pu)->count, 3);
    forge_close(f);
}

// Frames follow each other in the arena without gaps, so that a port can segment them.
static void test_frames_lie_back_to_back(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_WRITE, 0, 10000);
    forge_post(f, 2, VB_WR_SEND, 0, 3);
    forge_post(f, 3, VB_WR_READ, 0, 3);
    vb_pu_poll(f->pu, f->now_ns);
    const struct vb_txq *q = vb_pu_txq(f->pu);
    uint32_t at = 0;
    for (uint32_t i = 0; i < q->count; i++) {
        assert_int_equal(q->frame[i].offset, at);
        at += q->frame[i].len;
    }
    assert_int_equal(at, q->used);
    assert_int_equal(forge_counters(f)->sent_pkts, q->count);
    assert_int_equal(forge_counters(f)->sent_bytes, at);
    forge_close(f);
}

static struct forge *open_lending(void)
{
    struct forge_opts o = forge_defaults();
    o.lend_bytes = 256;
    struct forge *f = forge_open(&o);
    forge_fill(f, 0, 5000, 3);
    return f;
}

// The arena then holds headers and trailers alone, still back to back.
static void test_long_payloads_are_lent(void **state)
{
    (void)state;
    struct forge *f = open_lending();
    forge_post(f, 1, VB_WR_WRITE, 0, 2 * 1024 + 255);
    vb_pu_poll(f->pu, f->now_ns);
    const struct vb_txq *q = vb_pu_txq(f->pu);
    assert_int_equal(q->count, 3);
    assert_ptr_equal(q->frame[0].body, f->memory);
    assert_ptr_equal(q->frame[1].body, f->memory + 1024);
    assert_int_equal(q->frame[1].body_len, 1024);
    assert_int_equal(q->frame[2].body_len, 0); // too short
    assert_int_equal(q->frame[1].offset, 28 + 4);
    assert_int_equal(q->frame[2].offset, 28 + 4 + 12 + 4);
    forge_keep(f);
    for (uint32_t i = 0; i < 3; i++)
        assert_memory_equal(forge_sent(f, i)->payload, f->memory + i * 1024,
                            forge_sent(f, i)->payload_len);
    forge_close(f);
}

// A payload in two pieces is copied; one that a list holds in one piece is not.
static void test_pieces_are_copied(void **state)
{
    (void)state;
    struct forge *f = open_lending();
    const struct vb_sge sge[2] = {{forge_addr(f, 0), 1000, f->key},
                                  {forge_addr(f, 3000), 1024 + 24, f->key}};
    const struct vb_send_wr wr = {.sge = sge, .num_sge = 2, .opcode = VB_WR_SEND};
    assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), 1);
    vb_pu_poll(f->pu, f->now_ns);
    const struct vb_txq *q = vb_pu_txq(f->pu);
    assert_int_equal(q->count, 2);
    assert_int_equal(q->frame[0].body_len, 0);
    assert_ptr_equal(q->frame[1].body, f->memory + 3024);
    forge_keep(f);
    assert_memory_equal(forge_sent(f, 0)->payload + 1000, f->memory + 3000, 24);
    forge_close(f);
}

static void test_lent_memory_needs_its_key(void **state)
{
    (void)state;
    struct forge *f = open_lending();
    const struct vb_sge sge = {forge_addr(f, FORGE_MEMORY - 1023), 1024, f->key};
    const struct vb_send_wr wr = {.sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND};
    assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), 1);
    vb_pu_poll(f->pu, f->now_ns);
    assert_int_equal(vb_pu_txq(f->pu)->count, 0);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

// What the port did not take is kept as it was, whatever becomes of the memory.
static void test_frames_left_behind_keep_their_bytes(void **state)
{
    (void)state;
    struct forge *f = open_lending();
    forge_post(f, 1, VB_WR_WRITE, 0, 4096);
    vb_pu_poll(f->pu, f->now_ns);
    vb_pu_txq(f->pu)->taken = 1;
    f->kept++;
    vb_pu_tx_keep(f->pu);
    assert_ptr_equal(vb_pu_txq(f->pu)->frame[0].body, f->memory);
    forge_fill(f, 0, 5000, 4);
    vb_pu_tx_keep(f->pu); // once is enough
    forge_keep(f);
    uint8_t *before = malloc(4096);
    memcpy(before, f->memory, 4096);
    forge_fill(f, 0, 4096, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_memory_equal(forge_sent(f, i)->payload, f->memory + (i + 1) * 1024, 1024);
    assert_memory_not_equal(before, f->memory, 4096);
    free(before);
    forge_close(f);
}

static void test_queue_pair_goes_while_its_frames_wait(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct forge *f = forge_open(NULL);
        forge_post(f, 1, VB_WR_WRITE, 0, 5000);
        vb_pu_poll(f->pu, f->now_ns);
        assert_int_equal(vb_pu_txq(f->pu)->count, 5);
        if (how == 0)
            assert_int_equal(vb_dev_qp_destroy(f->dev, f->qp.qpn), 0);
        else
            forge_modify(f, VB_QPS_RESET);
        if (how == 2) // a new path while the old one is still needed
            for (enum vb_qp_state s = VB_QPS_INIT; s <= VB_QPS_RTR; s++)
                forge_modify(f, s);
        vb_pu_poll(f->pu, f->now_ns);
        assert_non_null(f->pu->retired_paths);
        forge_keep(f); // reads every frame's path
        assert_int_equal(f->sent_count, 5);
        assert_null(f->pu->retired_paths);
        forge_close(f);
    }
}

static void test_queue_pair_goes_in_any_moment(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 40; steps++) {
        struct forge *f = forge_open(NULL);
        forge_post(f, 1, VB_WR_WRITE, 0, 2000);
        forge_post(f, 2, VB_WR_READ, 0, 2000);
        forge_post_recv(f, 3, 0, 4000);
        struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500);
        struct vb_packet r = forge_reth(f, VB_RC_READ_REQUEST, 501, 0, 3000);
        struct vb_packet bad = forge_packet(f, VB_RC_SEND_LAST, 504);
        forge_queue(f, &p);
        forge_queue(f, &r);
        forge_queue(f, &bad);
        vb_pu_feed(f->pu, f->feed, 3);
        for (uint32_t i = 0; i < steps; i++)
            vb_pu_step(f->pu, f->now_ns);
        assert_int_equal(vb_dev_qp_destroy(f->dev, f->qp.qpn), 0);
        vb_pu_poll(f->pu, f->now_ns);
        f->now_ns += 1ull << 40;
        vb_pu_poll(f->pu, f->now_ns);
        forge_keep(f);
        forge_close(f);
    }
}

// ---- turns

// A second queue pair of the forge's device, on the same rings' shape.
static void add_qp(struct forge *f, struct vb_driver_qp *qp)
{
    const struct vb_qp_opts q = {.send_depth = 256};
    assert_int_equal(vb_driver_qp_init(qp, &q, 0, 0), 0);
    const struct vb_qpc_attr attr = {.pd = f->pd,
                                     .send_cqn = f->send_cqn,
                                     .recv_cqn = f->recv_cqn,
                                     .sq_ring = qp->sq.ring,
                                     .sq_blocks = qp->sq.blocks,
                                     .dbrec = qp->dbrec};
    assert_int_equal(vb_dev_qp_create(f->dev, &attr, &qp->qpn), 0);
    qp->doorbells = vb_dev_doorbells(f->dev);
    for (enum vb_qp_state s = VB_QPS_INIT; s <= VB_QPS_RTS; s++) {
        struct vb_qpc_mods m = forge_mods(f, s);
        m.sq_psn = 0x700000;
        assert_int_equal(vb_dev_qp_modify(f->dev, qp->qpn, &m), 0);
    }
}

static void test_queue_pairs_take_turns(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.mtu = 256;
    struct forge *f = forge_open(&o);
    struct vb_driver_qp other;
    add_qp(f, &other);
    const struct vb_sge sge = {.addr = forge_addr(f, 0), .len = 256 * 100, .lkey = f->key};
    const struct vb_send_wr wr = {.sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND};
    forge_post_send(f, &wr);
    assert_int_equal(vb_driver_post_send(&other, &wr, 1), 1);
    forge_run(f);
    assert_int_equal(f->sent_count, 200);
    // 64 of one, 64 of the other, 36 of each.
    uint32_t changes = 0;
    for (uint32_t i = 1; i < 200; i++)
        changes += (forge_sent(f, i)->psn >= 0x700000) != (forge_sent(f, i - 1)->psn >= 0x700000);
    assert_int_equal(changes, 3);
    assert_int_equal(vb_dev_qp_destroy(f->dev, other.qpn), 0);
    vb_driver_qp_fini(&other);
    forge_close(f);
}

static void test_every_doorbell_is_heard(void **state)
{
    (void)state;
    enum {
        MANY = 300 // across words of the bitmap
    };
    struct forge *f = forge_open(NULL);
    struct vb_driver_qp *qp = calloc(MANY, sizeof *qp);
    const struct vb_send_wr wr = {.opcode = VB_WR_SEND};
    for (uint32_t i = 0; i < MANY; i++)
        add_qp(f, &qp[i]);
    forge_run(f);
    for (uint32_t i = 0; i < MANY; i += 3)
        assert_int_equal(vb_driver_post_send(&qp[i], &wr, 1), 1);
    forge_run(f);
    assert_int_equal(f->sent_count, MANY / 3);
    vb_doorbell_ring(vb_dev_doorbells(f->dev), f->qp.qpn ^ 0x1000); // nobody's
    forge_run(f);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(vb_dev_qp_destroy(f->dev, qp[i].qpn), 0);
        vb_driver_qp_fini(&qp[i]);
    }
    free(qp);
    forge_close(f);
}

// ---- polling with and without records

struct script {
    struct forge *f[2]; // observed, unobserved
};

static void give_both(struct script *s, enum vb_opcode opcode, uint32_t psn, uint32_t len)
{
    static const uint8_t payload[1024];
    for (int i = 0; i < 2; i++) {
        struct vb_packet p = forge_reth(s->f[i], opcode, psn, 4096, len);
        p.payload = payload;
        p.payload_len = opcode == VB_RC_READ_REQUEST || opcode == VB_RC_ACK ? 0 : len;
        p.syndrome = vb_aeth_syndrome(VB_AETH_ACK, 31);
        p.ack_request = true;
        forge_queue(s->f[i], &p);
    }
}

static void run_both(struct script *s, uint64_t ns)
{
    for (int i = 0; i < 2; i++)
        forge_advance(s->f[i], ns);
    struct forge *a = s->f[0], *b = s->f[1];
    assert_int_equal(a->sent_count, b->sent_count);
    for (uint32_t i = 0; i < a->sent_count; i++) {
        uint32_t skip = a->sent[i].pkt.facts & VB_OP_RETH ? 12 : 0; // addresses and keys differ
        assert_int_equal(a->sent[i].len, b->sent[i].len);
        assert_memory_equal(a->sent[i].bytes, b->sent[i].bytes, 12);
        assert_memory_equal(a->sent[i].bytes + 12 + skip, b->sent[i].bytes + 12 + skip,
                            a->sent[i].len - 12 - skip);
    }
    assert_memory_equal(forge_counters(a), forge_counters(b), sizeof(struct vb_counters));
    assert_memory_equal(a->send_cq.ring, b->send_cq.ring, a->send_cq.entries * VB_CQE_BYTES);
    assert_memory_equal(a->recv_cq.ring, b->recv_cq.ring, a->recv_cq.entries * VB_CQE_BYTES);
    forge_forget(a);
    forge_forget(b);
}

static void post_both(struct script *s, uint32_t round)
{
    for (int i = 0; i < 2; i++) {
        if (round % 2)
            forge_post_recv(s->f[i], round, 0, 1024);
        forge_post_flags(s->f[i], round, (enum vb_wr_opcode)(round % 4), round * 9 % 3000,
                         VB_WR_SIGNALED);
    }
}

static void test_polling_with_and_without_records_is_the_same(void **state)
{
    (void)state;
    static const enum vb_opcode kinds[] = {VB_RC_SEND_ONLY, VB_RC_WRITE_ONLY, VB_RC_READ_REQUEST,
                                           VB_RC_ACK, VB_RC_ACK};
    const uint64_t first = fresh_seed();
    for (uint64_t trial = 0; trial < 10; trial++) {
        struct vb_prng r = {.state = first + trial};
        struct script s = {{forge_open(NULL), forge_open(NULL)}};
        vb_pu_observe(s.f[1]->pu, NULL, NULL);
        for (uint32_t round = 0; round < 100; round++) {
            post_both(&s, round);
            for (uint32_t n = (uint32_t)vb_prng_below(&r, 6); n > 0; n--) {
                enum vb_opcode op = kinds[vb_prng_below(&r, 5)];
                const struct vb_qpc *qp = s.f[0]->ctx;
                uint32_t base = op == VB_RC_ACK ? qp->req.una_psn : qp->resp.epsn;
                give_both(&s, op, base + (uint32_t)vb_prng_below(&r, 4) - 1,
                          (uint32_t)vb_prng_below(&r, 1025));
            }
            run_both(&s, vb_prng_below(&r, 20000000));
        }
        forge_close(s.f[0]);
        forge_close(s.f[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lending_from_a_list),
        cmocka_unit_test(test_strangers_are_dropped),
        cmocka_unit_test(test_only_open_states_listen),
        cmocka_unit_test(test_malformed_frames_are_counted),
        cmocka_unit_test(test_one_step_at_a_time),
        cmocka_unit_test(test_no_step_without_a_record),
        cmocka_unit_test(test_frames_then_timers_then_work),
        cmocka_unit_test(test_records_of_received_writes),
        cmocka_unit_test(test_records_of_received_sends),
        cmocka_unit_test(test_full_transmit_queue_resumes),
        cmocka_unit_test(test_frames_are_limited_too),
        cmocka_unit_test(test_frames_lie_back_to_back),
        cmocka_unit_test(test_queue_pair_goes_while_its_frames_wait),
        cmocka_unit_test(test_long_payloads_are_lent),
        cmocka_unit_test(test_pieces_are_copied),
        cmocka_unit_test(test_lent_memory_needs_its_key),
        cmocka_unit_test(test_frames_left_behind_keep_their_bytes),
        cmocka_unit_test(test_queue_pair_goes_in_any_moment),
        cmocka_unit_test(test_queue_pairs_take_turns),
        cmocka_unit_test(test_every_doorbell_is_heard),
        cmocka_unit_test(test_polling_with_and_without_records_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
