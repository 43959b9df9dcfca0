// SPDX-License-Identifier: Apache-2.0
// The window that all queue pairs to one address share: it grows while it is full and nothing gets
// lost, halves when something does, and who waits for it has turns in order.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    MTU = 1024,
    COST = MTU + 64,
    WINDOW = 64 * COST,
};

static struct forge *open_with(uint32_t window, uint32_t limit)
{
    struct forge_opts o = forge_defaults();
    o.mtu = MTU;
    o.window_bytes = window;
    struct forge *f = forge_open(&o);
    f->ctx->peer->limit = limit;
    return f;
}

static void test_a_full_window_grows(void **state)
{
    (void)state;
    struct forge *f = open_with(WINDOW, WINDOW + VB_PEER_WINDOW_STEP + 1000);
    const struct vb_peer *peer = f->ctx->peer;
    forge_post(f, 1, VB_WR_SEND, 0, 400 * MTU);
    forge_run(f);
    assert_int_equal(f->sent_count, 64);
    forge_ack(f, 100 + 62);
    assert_int_equal(peer->window, WINDOW); // not all of it yet
    forge_ack(f, 100 + 63);
    assert_int_equal(peer->window, WINDOW + VB_PEER_WINDOW_STEP);
    assert_int_equal(f->sent_count, 64 + 68);
    forge_ack(f, 100 + 64 + 67);
    assert_int_equal(peer->window, peer->limit);
    forge_ack(f, 100 + 64 + 68 + 60);
    assert_int_equal(peer->window, peer->limit);
    forge_close(f);
}

// Each unit has a window of its own to every peer: both bounds are for all units together.
static void test_units_divide_the_bounds(void **state)
{
    const struct vb_dev_opts opts = {
        .seed = 1, .pus = 4, .window_bytes = 1 << 20, .window_limit_bytes = 1 << 22};
    struct vb_dev *dev = vb_dev_create(&opts);

    (void)state;
    assert_non_null(dev);
    assert_int_equal(dev->window_bytes, 1 << 18);
    assert_int_equal(dev->window_limit_bytes, 1 << 20);
    vb_dev_destroy(dev);
}

static void test_a_window_that_is_not_used_does_not_grow(void **state)
{
    (void)state;
    struct forge *f = open_with(WINDOW, 2 * WINDOW);
    for (uint32_t i = 0; i < 100; i++) {
        forge_post(f, i, VB_WR_SEND, 0, 30 * MTU);
        forge_run(f);
        forge_ack(f, 100 + 30 * i + 29);
    }
    assert_int_equal(f->ctx->peer->window, WINDOW);
    assert_int_equal(f->ctx->peer->in_flight, 0);
    forge_close(f);
}

static void test_losses_halve_it_to_the_least(void **state)
{
    (void)state;
    struct forge *f = open_with(WINDOW, WINDOW);
    const struct vb_peer *peer = f->ctx->peer;
    f->now_ns = 1000000;
    forge_post(f, 1, VB_WR_SEND, 0, 400 * MTU);
    forge_run(f);
    forge_nak(f, 110, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(peer->window, WINDOW / 2);
    assert_int_equal(f->sent_count, 64 + 32); // 110 to 141
    forge_nak(f, 111, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(peer->window, WINDOW / 2); // of the same burst
    f->now_ns += VB_PEER_CUT_INTERVAL_NS;
    forge_nak(f, 112, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(peer->window, WINDOW / 4);
    for (uint32_t i = 0; i < 5; i++) {
        f->now_ns += VB_PEER_CUT_INTERVAL_NS;
        forge_nak(f, 113 + i, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    }
    assert_int_equal(peer->window, VB_PEER_WINDOW_MIN);
    forge_close(f);
}

// A timer that was put off may make the unit look once before.
static void await_timeout(struct forge *f)
{
    uint64_t before = forge_counters(f)->local_ack_timeout_err;
    for (uint32_t looks = 0; looks < 2; looks++) {
        if (forge_counters(f)->local_ack_timeout_err != before)
            return;
        f->now_ns = vb_pu_deadline(f->pu);
        forge_run(f);
    }
}

static void test_a_timeout_is_a_loss_and_a_busy_receiver_is_none(void **state)
{
    (void)state;
    struct forge *f = open_with(WINDOW, WINDOW);
    f->now_ns = 1000000;
    forge_post(f, 1, VB_WR_SEND, 0, 4 * MTU);
    forge_run(f);
    forge_nak(f, 100, VB_AETH_RNR, 1);
    assert_int_equal(f->ctx->peer->window, WINDOW);
    assert_int_equal(f->ctx->peer->in_flight, 0);
    f->now_ns = vb_pu_deadline(f->pu);
    forge_run(f);
    assert_int_equal(f->ctx->peer->in_flight, 4 * COST);
    await_timeout(f);
    assert_int_equal(forge_counters(f)->local_ack_timeout_err, 1);
    assert_int_equal(f->ctx->peer->window, WINDOW / 2);
    forge_close(f);
}

static void test_a_failed_queue_pair_gives_its_share_back(void **state)
{
    (void)state;
    struct forge *f = open_with(WINDOW, WINDOW);
    const struct vb_peer *peer = f->ctx->peer;
    forge_post(f, 1, VB_WR_SEND, 0, 400 * MTU);
    forge_run(f);
    assert_int_equal(peer->in_flight, WINDOW);
    assert_int_equal(peer->open, 0); // it waits for more
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    assert_int_equal(peer->in_flight, 0);
    assert_int_equal(peer->open, WINDOW);
    forge_modify(f, VB_QPS_RESET);
    assert_ptr_equal(f->ctx->peer, &f->pu->nobody);
    forge_close(f);
}

// What it wanted to send again was acknowledged while it waited: those behind it need its place.
static void test_a_late_ack_takes_it_out_of_line(void **state)
{
    (void)state;
    struct forge *f = open_with(WINDOW, WINDOW);
    const struct vb_peer *peer = f->ctx->peer;
    f->now_ns = 1000000;
    forge_post(f, 1, VB_WR_SEND, 0, 64 * MTU);
    forge_run(f);
    forge_nak(f, 110, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    assert_int_equal(f->sent_count, 64 + 32);
    assert_int_equal(peer->open, 0); // it waits for more room
    forge_ack(f, 100 + 63);
    assert_int_equal(f->sent_count, 64 + 32);
    assert_int_equal(peer->in_flight, 0);
    assert_int_equal(peer->open, peer->window);
    forge_close(f);
}

// Nobody may keep the window for a peer that does not answer: others need it.
static void test_who_hears_nothing_asks_with_one_packet(void **state)
{
    (void)state;
    struct forge *f = open_with(WINDOW, WINDOW);
    struct vb_peer *peer = f->ctx->peer;
    peer->users++;
    f->now_ns = 1000000;
    forge_post(f, 1, VB_WR_SEND, 0, 400 * MTU);
    forge_run(f);
    for (uint32_t i = 0; i < 3; i++) {
        forge_forget(f);
        await_timeout(f);
        assert_int_equal(f->sent_count, 1);
        assert_true(forge_sent(f, 0)->ack_request);
        assert_int_equal(peer->in_flight, COST);
        assert_int_equal(peer->open, WINDOW / 2); // cut once, and it is in nobody's way
    }
    forge_ack(f, 100);
    assert_int_equal(peer->in_flight, WINDOW / 2);
    peer->users--;
    forge_close(f);
}

static void test_who_waits_for_ever_has_a_window_of_its_own(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.timeout = 0;
    struct forge *f = forge_open(&o);
    struct vb_peer *shared = vb_peer_join(f->pu, &f->remote, NULL);
    assert_non_null(shared);
    assert_ptr_not_equal(f->ctx->peer, shared);
    assert_int_equal(shared->users, 1);
    struct vb_peer *own = f->ctx->peer;
    f->ctx->peer = shared;
    vb_peer_leave(f->pu, f->ctx);
    f->ctx->peer = own;
    forge_close(f);
    f = forge_open(NULL);
    shared = vb_peer_join(f->pu, &f->remote, NULL);
    assert_ptr_equal(f->ctx->peer, shared);
    assert_int_equal(shared->users, 2);
    shared->users--;
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_late_ack_takes_it_out_of_line),
        cmocka_unit_test(test_a_full_window_grows),
        cmocka_unit_test(test_units_divide_the_bounds),
        cmocka_unit_test(test_a_window_that_is_not_used_does_not_grow),
        cmocka_unit_test(test_losses_halve_it_to_the_least),
        cmocka_unit_test(test_a_timeout_is_a_loss_and_a_busy_receiver_is_none),
        cmocka_unit_test(test_a_failed_queue_pair_gives_its_share_back),
        cmocka_unit_test(test_who_hears_nothing_asks_with_one_packet),
        cmocka_unit_test(test_who_waits_for_ever_has_a_window_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
