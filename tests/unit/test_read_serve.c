// SPDX-License-Identifier: Apache-2.0
// READs from the end that answers: requests in order and repeated, answers in the order of their
// numbers, and READs that may not be.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- answers

static enum vb_opcode response_op(uint32_t i, uint32_t packets)
{
    if (packets == 1)
        return VB_RC_READ_RESP_ONLY;
    return i == 0             ? VB_RC_READ_RESP_FIRST
           : i == packets - 1 ? VB_RC_READ_RESP_LAST
                              : VB_RC_READ_RESP_MIDDLE;
}

static enum vb_rx_verdict ask(struct forge *f, uint32_t psn, uint32_t offset, uint32_t len)
{
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, psn, offset, len);
    return forge_give(f, &p);
}

static void expect_answer(struct forge *f, uint32_t at, uint32_t psn, uint32_t offset, uint32_t len)
{
    uint32_t packets = len ? (len + 1023) / 1024 : 1;
    for (uint32_t i = 0; i < packets; i++) {
        const struct vb_packet *p = forge_sent(f, at + i);
        uint32_t n = len - i * 1024 < 1024 ? len - i * 1024 : 1024;
        assert_int_equal(p->opcode, response_op(i, packets));
        assert_int_equal(p->psn, (psn + i) & 0xffffff);
        assert_int_equal(p->payload_len, n);
        if (n > 0)
            assert_memory_equal(p->payload, f->memory + offset + i * 1024, n);
        if (p->facts & VB_OP_AETH)
            assert_int_equal(vb_aeth_kind_of(p->syndrome), VB_AETH_ACK);
    }
}

static struct forge *open_serving(uint32_t peer_psn)
{
    struct forge_opts o = forge_defaults();
    o.peer_psn = peer_psn;
    struct forge *f = forge_open(&o);
    forge_fill(f, 0, FORGE_MEMORY, 5);
    return f;
}

static void test_requests_are_answered(void **state)
{
    (void)state;
    static const uint32_t lens[] = {0, 1, 1023, 1024, 1025, 10000};
    struct forge *f = open_serving(0xfffffe);
    uint32_t psn = 0xfffffe;
    for (uint32_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        assert_int_equal(ask(f, psn, i * 100, lens[i]), VB_RX_APPLIED);
        expect_answer(f, 0, psn, i * 100, lens[i]);
        assert_int_equal(forge_sent(f, 0)->msn, i + 1);
        psn += f->sent_count;
        forge_forget(f);
    }
    assert_int_equal(forge_counters(f)->rx_read_requests, 6);
    forge_close(f);
}

static void test_repeated_requests_are_answered_again(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    ask(f, 500, 0, 4000);
    ask(f, 504, 9000, 100);
    forge_forget(f);
    assert_int_equal(ask(f, 500, 0, 4000), VB_RX_DUPLICATE);
    expect_answer(f, 0, 500, 0, 4000);
    assert_int_equal(f->sent_count, 4);
    forge_forget(f);
    assert_int_equal(ask(f, 502, 2048, 4000 - 2048), VB_RX_DUPLICATE); // the rest of it
    expect_answer(f, 0, 502, 2048, 4000 - 2048);
    forge_forget(f);
    // The sequence goes on where it was.
    assert_int_equal(ask(f, 505, 0, 10), VB_RX_APPLIED);
    assert_int_equal(forge_counters(f)->duplicate_request, 2);
    forge_close(f);
}

static void test_repeats_that_reach_into_the_future_are_dropped(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    ask(f, 500, 0, 1000);
    forge_forget(f);
    assert_int_equal(ask(f, 500, 0, 1025), VB_RX_DUPLICATE);
    assert_int_equal(ask(f, 500, 0, 0x80000001), VB_RX_DUPLICATE);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(ask(f, 400, 0, 101 * 1024), VB_RX_DUPLICATE);
    expect_answer(f, 0, 400, 0, 101 * 1024); // as far as it was ever accepted
    assert_int_equal(f->sent_count, 101);
    forge_close(f);
}

// A repeat of a READ long answered must not end a healthy connection, whatever it names.
static void test_repeats_that_may_not_read_are_dropped(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    ask(f, 500, 0, 1000);
    forge_forget(f);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 1000);
    p.rkey ^= 0x10000;
    assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

// A repeat is dropped because our memory is not there: that is no excuse for what the peer does
// next.
static void test_a_dropped_repeat_is_forgotten(void **state)
{
    struct forge_opts o = forge_rights(VB_REMOTE_READ, VB_REMOTE_READ);

    (void)state;
    o.guarded = true;
    struct forge *f = forge_open(&o);
    ask(f, 500, 0, 1000);
    forge_forget(f);
    f->is_there = false;
    assert_int_equal(ask(f, 500, 0, 1000), VB_RX_DUPLICATE);
    assert_int_equal(f->sent_count, 0);
    f->is_there = true;
    assert_int_equal(forge_send(f, VB_RC_WRITE_ONLY, 501, 8, 1), VB_RX_REFUSED);
    forge_expect_nak(f, 0, 501, VB_NAK_REMOTE_ACCESS);
    forge_close(f);
}

static void test_repeats_in_one_batch_are_answered_once(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 4000);
    struct vb_packet rest = forge_reth(f, VB_RC_READ_REQUEST, 502, 2048, 4000 - 2048);
    forge_queue(f, &p);
    forge_queue(f, &p);
    forge_queue(f, &rest);
    forge_run(f);
    expect_answer(f, 0, 500, 0, 4000);
    assert_int_equal(f->sent_count, 4);
    forge_close(f);
}

// The request comes again while its answer is under way: the answer starts over.
static void test_repeat_supersedes_the_answer_under_way(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 4000);
    struct vb_packet next = forge_reth(f, VB_RC_READ_REQUEST, 504, 8000, 1000);
    forge_queue(f, &p);
    forge_queue(f, &next);
    vb_pu_feed(f->pu, f->feed, 2);
    for (int i = 0; i < 4; i++) // two requests in, two responses out
        vb_pu_step(f->pu, f->now_ns);
    forge_keep(f);
    assert_int_equal(f->sent_count, 2);
    forge_forget(f);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed + 2, 1);
    vb_pu_poll(f->pu, f->now_ns);
    forge_keep(f);
    assert_int_equal(f->sent_count, 5);
    expect_answer(f, 0, 500, 0, 4000);
    expect_answer(f, 4, 504, 8000, 1000);
    assert_int_equal(f->ctx->resp.job_new, 0);
    forge_close(f);
}

// The same with an older READ asked for again in front of it.
static void test_repeat_supersedes_behind_another(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    struct vb_packet old = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 2048);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 502, 4096, 4096);
    forge_give(f, &old);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    for (int i = 0; i < 3; i++) // one request in, two responses out
        vb_pu_step(f->pu, f->now_ns);
    forge_keep(f);
    assert_int_equal(f->sent_count, 4);
    forge_forget(f);
    forge_queue(f, &old);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed + 1, 2);
    vb_pu_poll(f->pu, f->now_ns);
    forge_keep(f);
    assert_int_equal(f->sent_count, 6);
    expect_answer(f, 0, 500, 0, 2048);
    expect_answer(f, 2, 502, 4096, 4096);
    forge_close(f);
}

static void test_repeats_in_any_order_are_answered_in_theirs(void **state)
{
    (void)state;
    static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (uint32_t k = 0; k < 6; k++) {
        struct forge *f = open_serving(0xfffffd);
        for (uint32_t i = 0; i < 3; i++)
            ask(f, 0xfffffd + 2 * i, 3000 * i, 2048);
        forge_forget(f);
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t n = orders[k][i];
            struct vb_packet p =
                forge_reth(f, VB_RC_READ_REQUEST, 0xfffffd + 2 * n, 3000 * n, 2048);
            forge_queue(f, &p);
        }
        forge_run(f);
        assert_int_equal(f->sent_count, 6);
        for (uint32_t i = 0; i < 3; i++)
            expect_answer(f, 2 * i, 0xfffffd + 2 * i, 3000 * i, 2048);
        forge_close(f);
    }
}

static void test_answers_come_before_later_acks(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 3000);
    struct vb_packet w = forge_reth(f, VB_RC_WRITE_ONLY, 503, 0, 0);
    w.ack_request = true;
    struct vb_packet again = forge_reth(f, VB_RC_READ_REQUEST, 504, 0, 100);
    forge_queue(f, &p);
    forge_queue(f, &w);
    forge_run(f);
    expect_answer(f, 0, 500, 0, 3000);
    forge_expect_ack(f, 3, 503);
    assert_int_equal(f->sent_count, 4);
    // A response that comes last has acknowledged everything: no ACK besides.
    forge_forget(f);
    w.psn = 505;
    struct vb_packet last = forge_reth(f, VB_RC_READ_REQUEST, 506, 0, 100);
    last.ack_request = true;
    forge_queue(f, &again);
    forge_queue(f, &w);
    forge_queue(f, &last);
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    expect_answer(f, 0, 504, 0, 100);
    expect_answer(f, 1, 506, 0, 100);
    forge_close(f);
}

static void test_too_many_requests_are_refused(void **state)
{
    (void)state;
    for (uint8_t depth = 0; depth <= 16; depth += 4) {
        struct forge_opts o = forge_defaults();
        o.reads_in = depth;
        struct forge *f = forge_open(&o);
        for (uint32_t i = 0; i <= depth; i++) {
            struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500 + i, 0, 10);
            forge_queue(f, &p);
        }
        forge_run(f);
        assert_int_equal(f->verdict, VB_RX_REFUSED);
        assert_int_equal(f->sent_count, depth + 1);
        for (uint32_t i = 0; i < depth; i++)
            assert_int_equal(forge_sent(f, i)->opcode, VB_RC_READ_RESP_ONLY);
        forge_expect_nak(f, depth, 500 + depth, VB_NAK_INVALID_REQUEST);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        forge_close(f);
    }
}

static void test_repeats_fill_the_ring_and_do_no_harm(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    for (uint32_t i = 0; i < 60; i++)
        ask(f, 500 + i, i * 16, 16);
    forge_forget(f);
    for (uint32_t i = 0; i < 60; i++) {
        struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500 + i, i * 16, 16);
        forge_queue(f, &p);
    }
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 560, 0, 16);
    forge_queue(f, &p);
    forge_run(f);
    assert_in_range(f->sent_count, 2, 61);
    for (uint32_t i = 1; i < f->sent_count; i++)
        assert_true(forge_sent(f, i)->psn > forge_sent(f, i - 1)->psn);
    assert_int_equal(forge_sent(f, f->sent_count - 1)->psn, 560);
    forge_close(f);
}

// ---- READs that may not be

static void expect_refusal(struct forge *f, uint32_t psn, enum vb_nak code)
{
    forge_expect_nak(f, f->sent_count - 1, psn, code);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

static void test_reads_without_a_right(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.access = VB_REMOTE_WRITE;
    struct forge *f = forge_open(&o);
    assert_int_equal(ask(f, 500, 0, 10), VB_RX_REFUSED);
    expect_refusal(f, 500, VB_NAK_REMOTE_ACCESS);
    f = forge_open(&o);
    assert_int_equal(ask(f, 500, 0, 0), VB_RX_REFUSED); // not even of nothing
    expect_refusal(f, 500, VB_NAK_REMOTE_ACCESS);

    f = forge_open(NULL);
    uint32_t key;
    const struct vb_mkey_attr attr = {.pd = f->pd,
                                      .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE,
                                      .start = forge_addr(f, 0),
                                      .len = 100,
                                      .base = f->memory};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 10);
    p.rkey = key;
    assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
    expect_refusal(f, 500, VB_NAK_REMOTE_ACCESS);
}

static void test_reads_out_of_bounds(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    assert_int_equal(ask(f, 500, FORGE_MEMORY - 10, 10), VB_RX_APPLIED);
    assert_int_equal(ask(f, 501, FORGE_MEMORY - 10, 11), VB_RX_REFUSED);
    expect_refusal(f, 501, VB_NAK_REMOTE_ACCESS);
    f = forge_open(NULL);
    assert_int_equal(ask(f, 500, 0, 0x80000001), VB_RX_REFUSED);
    expect_refusal(f, 500, VB_NAK_INVALID_REQUEST);
}

// 2 GiB are legal, and take half of the numbers there are.
static void test_longest_read(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.mtu = 256;
    struct forge *f = forge_open(&o);
    const struct vb_mkey_attr attr = {.pd = f->pd,
                                      .access = VB_REMOTE_READ,
                                      .start = 0x1000,
                                      .len = 1ull << 32,
                                      .base = f->memory};
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 0x80000000u);
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &p.rkey), 0);
    p.raddr = 0x1000;
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).verdict, VB_RX_APPLIED);
    assert_int_equal(f->ctx->resp.epsn, 500 + (1 << 23));
    struct vb_step s = vb_pu_step(f->pu, f->now_ns);
    assert_int_equal(s.opcode, VB_RC_READ_RESP_FIRST);
    assert_int_equal(s.touches, 1);
    assert_ptr_equal(s.touch[0].addr, f->memory);
    assert_int_equal(s.touch[0].len, 256);
    assert_false(s.touch[0].write);
    forge_modify(f, VB_QPS_RESET);
    forge_close(f);
}

static void test_read_of_nothing_needs_no_key(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 0);
    p.rkey = 0;
    p.raddr = 0;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(forge_sent(f, 0)->opcode, VB_RC_READ_RESP_ONLY);
    assert_int_equal(forge_sent(f, 0)->payload_len, 0);
    forge_close(f);
}

// The region goes while READs wait: the requester hears of the first that failed, and of nothing
// after it.
static void test_region_goes_while_it_is_read(void **state)
{
    (void)state;
    struct forge *f = open_serving(500);
    uint32_t key;
    const struct vb_mkey_attr attr = {.pd = f->pd,
                                      .access = VB_REMOTE_READ,
                                      .start = forge_addr(f, 0),
                                      .len = 4000,
                                      .base = f->memory};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 4000);
    struct vb_packet next = forge_reth(f, VB_RC_READ_REQUEST, 504, 0, 100);
    p.rkey = key;
    forge_queue(f, &p);
    forge_queue(f, &next);
    vb_pu_feed(f->pu, f->feed, 2);
    for (int i = 0; i < 4; i++)
        vb_pu_step(f->pu, f->now_ns);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, key), 0);
    vb_pu_poll(f->pu, f->now_ns);
    forge_keep(f);
    assert_int_equal(f->sent_count, 3);
    assert_int_equal(forge_sent(f, 1)->psn, 501);
    expect_refusal(f, 502, VB_NAK_REMOTE_ACCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_are_answered),
        cmocka_unit_test(test_repeated_requests_are_answered_again),
        cmocka_unit_test(test_repeats_that_reach_into_the_future_are_dropped),
        cmocka_unit_test(test_repeats_that_may_not_read_are_dropped),
        cmocka_unit_test(test_a_dropped_repeat_is_forgotten),
        cmocka_unit_test(test_repeats_in_one_batch_are_answered_once),
        cmocka_unit_test(test_repeat_supersedes_the_answer_under_way),
        cmocka_unit_test(test_repeat_supersedes_behind_another),
        cmocka_unit_test(test_repeats_in_any_order_are_answered_in_theirs),
        cmocka_unit_test(test_answers_come_before_later_acks),
        cmocka_unit_test(test_too_many_requests_are_refused),
        cmocka_unit_test(test_repeats_fill_the_ring_and_do_no_harm),
        cmocka_unit_test(test_reads_without_a_right),
        cmocka_unit_test(test_reads_out_of_bounds),
        cmocka_unit_test(test_longest_read),
        cmocka_unit_test(test_read_of_nothing_needs_no_key),
        cmocka_unit_test(test_region_goes_while_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
