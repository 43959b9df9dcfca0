// SPDX-License-Identifier: Apache-2.0
// The requester against a forged peer: what it sends, when it waits, what it repeats.
#include "base/bytes.h"
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct forge *open_with(uint32_t mtu, uint32_t our_psn)
{
    struct forge_opts o = forge_defaults();
    o.mtu = mtu;
    o.our_psn = our_psn;
    return forge_open(&o);
}

// ---- packets of a message

// Checks that everything sent is one message of `len` bytes of memory from offset 0.
static void expect_message(struct forge *f, enum vb_wr_opcode opcode, uint32_t psn, uint32_t len)
{
    static const uint8_t ops[2][4] = {
        {VB_RC_SEND_MIDDLE, VB_RC_SEND_LAST, VB_RC_SEND_FIRST, VB_RC_SEND_ONLY},
        {VB_RC_WRITE_MIDDLE, VB_RC_WRITE_LAST, VB_RC_WRITE_FIRST, VB_RC_WRITE_ONLY}};
    uint32_t mtu = f->opts.mtu, packets = len ? (len + mtu - 1) / mtu : 1;

    assert_int_equal(f->sent_count, packets);
    for (uint32_t i = 0; i < packets; i++) {
        const struct vb_packet *p = forge_sent(f, i);
        bool first = i == 0, last = i + 1 == packets;
        assert_int_equal(p->opcode, ops[opcode == VB_WR_WRITE][first * 2 + last]);
        assert_int_equal(p->psn, (psn + i) & 0xffffff);
        assert_int_equal(p->payload_len, last ? len - i * mtu : mtu);
        if (last)
            assert_true(p->ack_request);
        assert_false(p->solicited);
        if (p->payload_len > 0)
            assert_memory_equal(p->payload, f->memory + i * mtu, p->payload_len);
        if (p->facts & VB_OP_RETH) {
            assert_int_equal(p->raddr, 0x1000);
            assert_int_equal(p->rkey, 0x2222);
            assert_int_equal(p->dma_len, len);
        }
    }
}

static void test_messages_at_the_mtus_edges(void **state)
{
    (void)state;
    for (uint32_t mtu = 256; mtu <= 4096; mtu *= 2) {
        const uint32_t lens[] = {0,   1,       2,       3,           4,          mtu - 1,
                                 mtu, mtu + 1, 2 * mtu, 2 * mtu + 1, 3 * mtu - 1};
        for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
            for (enum vb_wr_opcode op = VB_WR_SEND; op <= VB_WR_WRITE; op++) {
                struct forge *f = open_with(mtu, 0xfffffe); // the numbers wrap inside
                forge_fill(f, 0, lens[i], (uint8_t)i);
                forge_post(f, 1, op, 0, lens[i]);
                forge_run(f);
                expect_message(f, op, 0xfffffe, lens[i]);
                uint32_t last = forge_sent(f, f->sent_count - 1)->psn;
                assert_int_equal(forge_ack(f, last), VB_RX_APPLIED);
                forge_expect_done(f, 1, VB_WC_OK);
                forge_expect_none(f);
                forge_close(f);
            }
    }
}

static void test_messages_follow_each_other(void **state)
{
    (void)state;
    struct forge *f = open_with(1024, 0xffffff);
    uint32_t psn = 0xffffff;
    for (uint64_t i = 0; i < 20; i++) {
        forge_post(f, i, i % 2 ? VB_WR_SEND : VB_WR_WRITE, 0, (uint32_t)i * 300);
        forge_run(f);
        expect_message(f, i % 2 ? VB_WR_SEND : VB_WR_WRITE, psn, (uint32_t)i * 300);
        psn = forge_sent(f, f->sent_count - 1)->psn + 1;
        forge_forget(f);
    }
    forge_ack(f, psn - 1); // one answer for all
    for (uint64_t i = 0; i < 20; i++)
        forge_expect_done(f, i, VB_WC_OK);
    forge_close(f);
}

static void test_solicited_marks_the_end_of_a_send(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post_flags(f, 1, VB_WR_SEND, 1500, VB_WR_SOLICITED);
    forge_post_flags(f, 2, VB_WR_WRITE, 10, VB_WR_SOLICITED);
    forge_run(f);
    assert_false(forge_sent(f, 0)->solicited);
    assert_true(forge_sent(f, 1)->solicited);
    assert_false(forge_sent(f, 2)->solicited);
    forge_close(f);
}

static void test_sixteen_segments_make_one_message(void **state)
{
    (void)state;
    struct forge *f = open_with(256, 0);
    struct vb_sge sge[16];
    uint8_t want[16 * 100];
    for (uint32_t i = 0; i < 16; i++) {
        sge[i] = (struct vb_sge){forge_addr(f, i * 1000 + i), 100, f->key};
        forge_fill(f, i * 1000 + i, 100, (uint8_t)(i * 16));
        memcpy(want + i * 100, f->memory + i * 1000 + i, 100);
    }
    const struct vb_send_wr wr = {.sge = sge, .num_sge = 16, .opcode = VB_WR_SEND};
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(f->sent_count, 7);
    for (uint32_t i = 0; i < 7; i++)
        assert_memory_equal(forge_sent(f, i)->payload, want + i * 256,
                            forge_sent(f, i)->payload_len);
    forge_close(f);
}

static void test_inline_is_copied_when_posted(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    uint8_t own[256];
    memset(own, 7, sizeof own);
    const struct vb_sge sge[2] = {{(uintptr_t)own, 200, 0}, {(uintptr_t)own + 200, 56, 0}};
    const struct vb_send_wr wr = {
        .sge = sge, .num_sge = 2, .opcode = VB_WR_WRITE, .flags = VB_WR_INLINE};
    forge_post_send(f, &wr);
    memset(own, 8, sizeof own);
    forge_run(f);
    assert_int_equal(forge_sent(f, 0)->payload_len, 256);
    for (uint32_t i = 0; i < 256; i++)
        assert_int_equal(forge_sent(f, 0)->payload[i], 7);
    // What is repeated is the copy, not what the ring holds by then.
    memset(f->qp.sq.ring, 0xff, f->qp.sq.blocks * VB_WQEBB_BYTES);
    forge_advance(f, 4096ull << 14);
    assert_int_equal(forge_sent(f, 1)->payload[255], 7);
    forge_close(f);
}

// ---- asking for acknowledgements

static void test_long_messages_ask_every_sixteen_packets(void **state)
{
    (void)state;
    struct forge *f = open_with(256, 0);
    forge_post(f, 1, VB_WR_SEND, 0, 256 * 50);
    forge_run(f);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(forge_sent(f, i)->ack_request, i % 16 == 15 || i == 49);
    forge_close(f);
}

static void test_window_fills_and_asks_at_its_edge(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.mtu = 4096;
    o.window_bytes = 8192;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 40960);
    forge_run(f);
    // 4160 a packet: the second one passes the edge.
    assert_int_equal(f->sent_count, 2);
    assert_false(forge_sent(f, 0)->ack_request);
    assert_true(forge_sent(f, 1)->ack_request);
    forge_ack(f, 100);
    assert_int_equal(f->sent_count, 3);
    assert_true(forge_sent(f, 2)->ack_request);
    for (uint32_t psn = 101; psn < 110; psn++)
        forge_ack(f, psn);
    assert_int_equal(f->sent_count, 10);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

// Also when a packet fills it to the byte: nothing more would be sent to ask later.
static void test_window_filled_exactly(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 8 * (1024 + 64);
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 20000);
    forge_run(f);
    assert_int_equal(f->sent_count, 8);
    assert_false(forge_sent(f, 6)->ack_request);
    assert_true(forge_sent(f, 7)->ack_request);
    forge_close(f);
}

static void test_window_counts_small_packets(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 1; // 8 KB is the least
    struct forge *f = forge_open(&o);
    for (uint64_t i = 0; i < 200; i++)
        forge_post(f, i, VB_WR_SEND, 0, 0);
    forge_run(f);
    assert_int_equal(f->sent_count, 8192 / 64);
    forge_ack(f, 100 + 127);
    assert_int_equal(f->sent_count, 200);
    forge_close(f);
}

static void test_window_counts_what_is_read(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 8192;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_READ, 0, 10000);
    forge_post(f, 2, VB_WR_SEND, 0, 10);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    for (uint32_t i = 0; i < 4; i++)
        forge_response(f, i ? VB_RC_READ_RESP_MIDDLE : VB_RC_READ_RESP_FIRST, 100 + i, f->memory,
                       1024);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(forge_sent(f, 1)->psn, 110);
    forge_close(f);
}

// A queue pair that has failed asks for nothing, and its next packet number stays.
static void test_a_failed_queue_pair_does_not_ask(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post_flags(f, 1, VB_WR_WRITE, 8, 0);
    forge_run(f);
    assert_false(forge_sent(f, 0)->ack_request);
    forge_modify(f, VB_QPS_ERR);
    vb_dev_qp_settle(f->dev, f->qp.qpn);
    assert_int_equal(f->ctx->req.send_psn, 101);
    assert_false(f->ctx->req.asking);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_close(f);
}

// ---- fence

static void test_fence_waits_for_reads(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_READ, 0, 100);
    forge_post(f, 2, VB_WR_SEND, 0, 1);
    forge_post_flags(f, 3, VB_WR_SEND, 1, VB_WR_FENCE | VB_WR_SIGNALED);
    forge_post(f, 4, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    forge_response(f, VB_RC_READ_RESP_ONLY, 100, f->memory, 100);
    assert_int_equal(f->sent_count, 4);
    // Only READs are waited for, not what was sent besides.
    forge_post_flags(f, 5, VB_WR_SEND, 1, VB_WR_FENCE | VB_WR_SIGNALED);
    forge_run(f);
    assert_int_equal(f->sent_count, 5);
    forge_ack(f, 104);
    for (uint64_t i = 1; i <= 5; i++)
        forge_expect_done(f, i, VB_WC_OK);
    forge_close(f);
}

// ---- NOP

static void test_nop_completes_in_its_turn(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_NOP, 0, 0);
    forge_run(f);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_post(f, 2, VB_WR_SEND, 0, 1);
    forge_post(f, 3, VB_WR_NOP, 0, 0);
    forge_post(f, 4, VB_WR_NOP, 0, 0);
    forge_post(f, 5, VB_WR_READ, 0, 1);
    forge_post(f, 6, VB_WR_NOP, 0, 0);
    forge_run(f);
    forge_expect_none(f);
    assert_int_equal(f->sent_count, 2);
    forge_ack(f, 100);
    forge_expect_done(f, 2, VB_WC_OK);
    forge_expect_done(f, 3, VB_WC_OK);
    forge_expect_done(f, 4, VB_WC_OK);
    forge_expect_none(f);
    forge_response(f, VB_RC_READ_RESP_ONLY, 101, f->memory, 1);
    forge_expect_done(f, 5, VB_WC_OK);
    forge_expect_done(f, 6, VB_WC_OK);
    forge_close(f);
}

static void test_going_back_skips_nops(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    for (uint64_t i = 0; i < 9; i++)
        forge_post(f, i, i % 3 == 1 ? VB_WR_SEND : VB_WR_NOP, 0, 1);
    forge_run(f);
    forge_expect_done(f, 0, VB_WC_OK);
    assert_int_equal(f->sent_count, 3);
    forge_nak(f, 101, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(f->sent_count, 5);
    assert_int_equal(forge_sent(f, 3)->psn, 101);
    assert_int_equal(forge_sent(f, 4)->psn, 102);
    forge_ack(f, 102);
    for (uint64_t i = 1; i < 9; i++)
        forge_expect_done(f, i, VB_WC_OK);
    forge_close(f);
}

// ---- requests that cannot be executed

static void expect_local_error(struct forge *f, enum vb_wc_status status)
{
    forge_run(f);
    assert_int_equal(forge_state(f), VB_QPS_RTS); // the first is still in flight
    forge_ack(f, 100);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_done(f, 2, status);
    forge_expect_done(f, 3, VB_WC_FLUSHED);
    forge_expect_none(f);
    assert_int_equal(f->sent_count, 1);
    forge_close(f);
}

static void test_bad_local_memory_fails_in_its_turn(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        struct forge *f = forge_open(NULL);
        uint32_t pd, key = 0;
        assert_int_equal(vb_dev_pd_create(f->dev, &pd), 0);
        const struct vb_mkey_attr attr = {
            .pd = pd, .start = forge_addr(f, 0), .len = 100, .base = f->memory};
        assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
        struct vb_sge sge = {forge_addr(f, FORGE_MEMORY - 10), 10, f->key};
        if (kind == 0)
            sge.len = 11;
        if (kind == 1)
            sge.addr = forge_addr(f, 0) - 1;
        if (kind == 2)
            sge.lkey = f->key ^ 0x10000;
        if (kind == 3)
            sge.lkey = 0;
        if (kind == 4)
            sge = (struct vb_sge){forge_addr(f, 0), 10, key}; // of another domain
        const struct vb_send_wr wr = {.wr_id = 2, .sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND};
        forge_post(f, 1, VB_WR_SEND, 0, 1);
        forge_post_send(f, &wr); // not signaled: errors complete all the same
        forge_post(f, 3, VB_WR_SEND, 0, 1);
        expect_local_error(f, VB_WC_LOCAL_PROTECTION);
    }
}

static void test_malformed_entry_fails_in_its_turn(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct forge *f = forge_open(NULL);
        for (uint64_t i = 1; i <= 3; i++)
            forge_post(f, i, VB_WR_SEND, 0, 1);
        struct vb_wqe_ctrl *ctrl = (struct vb_wqe_ctrl *)(void *)(f->qp.sq.ring + VB_WQEBB_BYTES);
        if (kind == 0)
            ctrl->opcode = VB_WQE_ATOMIC_CS;
        if (kind == 1)
            vb_put_be16(ctrl->idx, 7);
        if (kind == 2)
            vb_put_be24(ctrl->qpn, f->qp.qpn + 1);
        if (kind == 3)
            ctrl->ds = 30; // a list that is too long, and past the producer
        forge_run(f);
        forge_ack(f, 100);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        forge_expect_done(f, 1, VB_WC_OK);
        forge_expect_done(f, 2, VB_WC_LOCAL_QP_OP);
        if (kind != 3) // there the third cannot be found any more
            forge_expect_done(f, 3, VB_WC_FLUSHED);
        forge_expect_none(f);
        forge_close(f);
    }
}

static void test_checks_of_entries_can_be_off(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.no_wqe_checks = true;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 1);
    struct vb_wqe_ctrl *ctrl = (struct vb_wqe_ctrl *)(void *)f->qp.sq.ring;
    vb_put_be16(ctrl->idx, 7);
    vb_put_be24(ctrl->qpn, 9);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_close(f);
}

static void test_region_that_goes_while_it_is_sent(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.window_bytes = 8192;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 20000);
    forge_run(f);
    assert_int_equal(f->sent_count, 8);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0);
    forge_ack(f, 100);
    assert_int_equal(f->sent_count, 8);
    forge_expect_done(f, 1, VB_WC_LOCAL_PROTECTION);
    forge_close(f);
}

// A message that reached the peer is done even if its region went before it could be repeated.
static void test_region_that_goes_after_it_was_sent(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_post(f, 1, VB_WR_SEND, 0, 10);
    forge_post(f, 2, VB_WR_NOP, 0, 0);
    forge_run(f);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0);
    forge_ack(f, 100);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_done(f, 2, VB_WC_OK);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

// What could not be sent has failed, though it waits for those before it and its memory comes back.
static void test_memory_that_comes_back(void **state)
{
    struct forge_opts o = forge_defaults();

    (void)state;
    o.guarded = true;
    struct forge *f = forge_open(&o);
    forge_post(f, 1, VB_WR_SEND, 0, 10);
    forge_run(f);
    f->is_there = false;
    forge_post(f, 2, VB_WR_SEND, 0, 10);
    forge_run(f);
    f->is_there = true;
    forge_run(f);
    forge_ack(f, 100);
    assert_int_equal(f->sent_count, 1);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_expect_done(f, 2, VB_WC_LOCAL_PROTECTION);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

// ---- queues

// An audit without room ends the queue pair before the request begins.
static void test_audit_without_room(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    struct vb_step step;
    uint32_t begun = 0;
    o.audit_entries = 4;
    struct forge *f = forge_open(&o);

    for (uint32_t i = 0; i < 6; i++)
        forge_post(f, i, VB_WR_WRITE, 0, 64);
    do {
        step = vb_pu_step(f->pu, f->now_ns);
        begun += step.kind == VB_STEP_EXEC && step.detail == VB_SYN_OK;
    } while (step.kind != VB_STEP_NONE);
    forge_run(f);
    assert_int_equal(begun, 4);
    assert_int_equal(f->sent_count, 4);
    assert_int_equal(f->steps[VB_STEP_EXEC], 5);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    for (uint32_t i = 0; i < 6; i++)
        forge_expect_done(f, i, VB_WC_FLUSHED);
    forge_expect_none(f);
    forge_close(f);
}

static void test_fetch_stays_within_its_depth(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.fetch_depth = 3;
    struct forge *f = forge_open(&o);
    forge_post(f, 0, VB_WR_READ, 0, 1);
    forge_post_flags(f, 1, VB_WR_SEND, 1, VB_WR_FENCE);
    for (uint64_t i = 2; i < 20; i++)
        forge_post(f, i, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_int_equal(f->steps[VB_STEP_FETCH], 4); // the READ, which began, and three ahead
    forge_response(f, VB_RC_READ_RESP_ONLY, 100, f->memory, 1);
    assert_int_equal(f->sent_count, 20);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_at_the_mtus_edges),
        cmocka_unit_test(test_messages_follow_each_other),
        cmocka_unit_test(test_solicited_marks_the_end_of_a_send),
        cmocka_unit_test(test_sixteen_segments_make_one_message),
        cmocka_unit_test(test_inline_is_copied_when_posted),
        cmocka_unit_test(test_long_messages_ask_every_sixteen_packets),
        cmocka_unit_test(test_window_fills_and_asks_at_its_edge),
        cmocka_unit_test(test_window_filled_exactly),
        cmocka_unit_test(test_window_counts_small_packets),
        cmocka_unit_test(test_window_counts_what_is_read),
        cmocka_unit_test(test_a_failed_queue_pair_does_not_ask),
        cmocka_unit_test(test_fence_waits_for_reads),
        cmocka_unit_test(test_nop_completes_in_its_turn),
        cmocka_unit_test(test_going_back_skips_nops),
        cmocka_unit_test(test_bad_local_memory_fails_in_its_turn),
        cmocka_unit_test(test_malformed_entry_fails_in_its_turn),
        cmocka_unit_test(test_checks_of_entries_can_be_off),
        cmocka_unit_test(test_region_that_goes_while_it_is_sent),
        cmocka_unit_test(test_region_that_goes_after_it_was_sent),
        cmocka_unit_test(test_memory_that_comes_back),
        cmocka_unit_test(test_audit_without_room),
        cmocka_unit_test(test_fetch_stays_within_its_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
