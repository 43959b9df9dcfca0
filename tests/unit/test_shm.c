// SPDX-License-Identifier: Apache-2.0
// The shm port between honest peers of one process: order, fullness, absence and sleep.
#include "../wait.h"
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/clock.h"
#include "port/shm.h"
#include "port/trace.h"
#include "shm_kit.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

enum {
    SMALL_RING = 16384,
};

static uint32_t draw_len(struct vb_prng *prng)
{
    static const uint32_t usual[] = {16, 20, 32, 96, 100, 1044, 4112, 4128, VB_FRAME_MAX};
    if (vb_prng_chance(prng, 500000))
        return usual[vb_prng_below(prng, sizeof usual / sizeof *usual)];
    return (uint32_t)vb_prng_range(prng, VB_ICRC_FRAME_MIN, VB_FRAME_MAX);
}

// Three hosts, each sending to the other two and to itself on mixed paths, all calling at once.
static void test_mixed_frames_arrive_in_order(void **state)
{
    static const char *const text[] = {"127.0.0.1", "127.0.0.2", "fd00::3"};
    struct vb_prng prng = {.state = fresh_seed()};
    struct vb_port *port[3];
    struct vb_path path[3][3];
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    uint32_t sent[3][3] = {0}, got[3][3] = {0};
    for (int h = 0; h < 3; h++)
        port[h] = kit_open_shm(*state, text[h], 1 << 20);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            path[a][b] = kit_path(port[a], &port[b]->local);
    for (int round = 0; round < 40; round++) {
        for (int a = 0; a < 3; a++) {
            for (int i = 0; i < 60; i++) {
                uint32_t b = (uint32_t)vb_prng_below(&prng, 3);
                struct vb_prng len = {.state = sent[a][b]};
                kit_append(q, &path[a][b], draw_len(&len), sent[a][b]);
                sent[a][b]++;
            }
            kit_send_all(port[a], q);
        }
        for (int b = 0; b < 3; b++) {
            for (uint32_t n; (n = round ? port[b]->ops->receive(port[b], frames)
                                        : kit_receive_idle(port[b], frames)) > 0;) {
                for (uint32_t i = 0; i < n; i++) {
                    int a = 0;
                    while (!vb_ip_equal(&frames[i].src, &port[a]->local))
                        a++;
                    struct vb_prng len = {.state = got[a][b]};
                    kit_assert_frame(&frames[i], &port[a]->local, draw_len(&len), got[a][b]);
                    got[a][b]++;
                }
            }
        }
    }
    assert_memory_equal(sent, got, sizeof sent);
    for (int h = 0; h < 3; h++) {
        assert_int_equal(port[h]->stats.tx_errors + port[h]->stats.rx_bad_peers, 0);
        kit_close(port[h]);
    }
    free(frames);
    kit_free_queue(q);
}

static void test_lent_payloads_and_batches(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", 0);
    struct vb_port *b = kit_open_shm(*state, "127.0.0.2", 0);
    struct vb_path path = kit_path(a, &b->local);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    static uint8_t whole[1200];
    assert_true(kit_append(q, &path, sizeof whole, 5));
    memcpy(whole, q->arena, sizeof whole);
    kit_reset(q);
    for (int i = 0; i < 10; i++) {
        assert_true(kit_append_lent(q, &path, sizeof whole, 5, whole + 28, 1024));
        assert_true(kit_append(q, &path, 20, 6));
    }
    kit_send_all(a, q);
    assert_int_equal(kit_await(b, frames), 20);
    for (uint32_t i = 0; i < 20; i++)
        kit_assert_frame(&frames[i], &a->local, i % 2 ? 20 : sizeof whole, i % 2 ? 6 : 5);
    for (uint32_t i = 0; i < 3 * 250; i++) { // more than one receive returns
        assert_true(kit_append(q, &path, 96, i));
        if (i % 250 == 249)
            kit_send_all(a, q);
    }
    assert_int_equal(b->ops->receive(b, frames), VB_PORT_RX_BATCH);
    for (uint32_t i = 0; i < VB_PORT_RX_BATCH; i++)
        kit_assert_frame(&frames[i], &a->local, 96, i);
    assert_int_equal(b->ops->receive(b, frames), 750 - VB_PORT_RX_BATCH);
    kit_assert_frame(&frames[0], &a->local, 96, VB_PORT_RX_BATCH);
    assert_int_equal(b->ops->receive(b, frames), 0);
    kit_close(a);
    kit_close(b);
    free(frames);
    kit_free_queue(q);
}

// A full ring stops the queue, nothing is lost, and the frames that were lent stay whole.
static void test_a_full_ring_stops_and_resumes(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", SMALL_RING);
    struct vb_port *b = kit_open_shm(*state, "127.0.0.2", SMALL_RING);
    struct vb_path path = kit_path(a, &b->local);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    uint32_t got = 0, stops = 0;
    for (uint32_t i = 0; i < 200; i++)
        assert_true(kit_append(q, &path, 1044, i));
    while (got < 200) {
        a->ops->send(a, q);
        stops += q->taken < q->count;
        for (uint32_t n = kit_await(b, frames); n > 0; n = b->ops->receive(b, frames))
            for (uint32_t i = 0; i < n; i++)
                kit_assert_frame(&frames[i], &a->local, 1044, got++);
    }
    assert_in_range(stops, 200 / 15, 200);
    assert_int_equal(a->stats.tx_errors, 0);
    kit_close(a);
    kit_close(b);
    free(frames);
    kit_free_queue(q);
}

// One that does not read holds the others up for moments only, and is served again when it reads.
static void test_a_stuck_peer_does_not_stop_the_others(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", SMALL_RING);
    struct vb_port *stuck = kit_open_shm(*state, "127.0.0.2", 0);
    struct vb_port *c = kit_open_shm(*state, "127.0.0.3", 0);
    struct vb_path bad = kit_path(a, &stuck->local), good = kit_path(a, &c->local);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    for (uint32_t i = 0; i < 50; i++)
        assert_true(kit_append(q, &bad, 1044, i));
    assert_true(kit_append(q, &good, 64, 99));
    kit_send_all(a, q);
    uint64_t lost = a->stats.tx_errors;
    assert_int_equal(lost, 50 - SMALL_RING / 1088);
    assert_int_equal(kit_await(c, frames), 1);
    kit_assert_frame(&frames[0], &a->local, 64, 99);

    assert_int_equal(kit_await(stuck, frames), 50 - lost);
    for (uint32_t i = 0; i < 50 - lost; i++)
        kit_assert_frame(&frames[i], &a->local, 1044, i);
    assert_int_equal(kit_receive_idle(stuck, frames), 0);
    kit_send(a, q, &bad, 64, 77);
    assert_int_equal(kit_await(stuck, frames), 1);
    kit_assert_frame(&frames[0], &a->local, 64, 77);
    assert_int_equal(a->stats.tx_errors, lost);
    kit_close(a);
    kit_close(stuck);
    kit_close(c);
    free(frames);
    kit_free_queue(q);
}

static void test_nobody_there_costs_the_frame_only(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", 0);
    struct vb_ip nowhere = kit_ip(9);
    struct vb_path path = kit_path(a, &nowhere);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    assert_false(vb_shm_reaches(a, &path));
    for (uint32_t i = 0; i < 200; i++)
        assert_true(kit_append(q, &path, 64, i));
    kit_send_all(a, q);
    assert_int_equal(a->stats.tx_errors, 200);
    struct vb_port *b = kit_open_shm(*state, "127.0.0.9", 0); // it comes later, and is found
    WAIT_UNTIL(vb_shm_reaches(a, &path));
    kit_send(a, q, &path, 64, 7);
    assert_int_equal(kit_await(b, frames), 1);
    kit_assert_frame(&frames[0], &a->local, 64, 7);
    kit_close(b);
    kit_close(a);
    free(frames);
    kit_free_queue(q);
}

static void test_a_trace_sees_every_frame(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", 0);
    struct vb_port *b = kit_open_shm(*state, "127.0.0.2", 0);
    struct vb_path path = kit_path(a, &b->local);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    const struct vb_trace_opts opts = {.ring_bytes = 1 << 16, .seal = true};
    assert_int_equal(vb_trace_create(&opts, &a->trace), 0);
    assert_int_equal(vb_trace_create(&opts, &b->trace), 0);
    for (uint32_t i = 0; i < 7; i++)
        assert_true(kit_append(q, &path, 64, i));
    kit_send_all(a, q);
    assert_int_equal(kit_await(b, frames), 7);
    assert_int_equal(vb_trace_seen(a->trace), 7);
    assert_int_equal(vb_trace_seen(b->trace), 7);
    struct vb_ip nowhere = kit_ip(9);
    struct vb_path lost = kit_path(a, &nowhere);
    kit_send(a, q, &lost, 64, 1); // never on any wire
    assert_int_equal(vb_trace_seen(a->trace), 7);
    vb_trace_destroy(a->trace);
    vb_trace_destroy(b->trace);
    kit_close(a);
    kit_close(b);
    free(frames);
    kit_free_queue(q);
}

static void test_sleep_ends_for_a_reason(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", 0);
    struct vb_port *b = kit_open_shm(*state, "127.0.0.2", 0);
    struct vb_path path = kit_path(a, &b->local);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    int fd = b->ops->sleep(b);
    assert_true(fd >= 0);
    assert_false(kit_is_readable(fd, 0));
    kit_send(a, q, &path, 64, 1); // the connection wakes
    assert_true(kit_is_readable(fd, 0));
    assert_int_equal(b->ops->receive(b, frames), 1);
    assert_int_equal(b->ops->receive(b, frames), 0);
    assert_int_equal(b->ops->sleep(b), fd);
    assert_false(kit_is_readable(fd, 0));
    kit_send(a, q, &path, 64, 2); // the bell wakes, once
    assert_true(kit_is_readable(fd, 0));
    kit_send(a, q, &path, 64, 3);
    assert_int_equal(b->ops->receive(b, frames), 2);
    assert_false(kit_is_readable(fd, 0));
    kit_send(a, q, &path, 64, 4); // awake: no bell
    assert_false(kit_is_readable(fd, 0));
    assert_int_equal(b->ops->sleep(b), -EAGAIN);
    assert_int_equal(b->ops->receive(b, frames), 1);
    assert_int_equal(b->ops->receive(b, frames), 0);
    assert_int_equal(b->ops->sleep(b), fd);
    assert_int_equal(b->ops->sleep(b), fd); // twice without a receive: still to be woken
    kit_send(a, q, &path, 64, 5);
    assert_true(kit_is_readable(fd, 0));
    assert_int_equal(b->ops->receive(b, frames), 1);
    assert_int_equal(b->ops->receive(b, frames), 0);
    assert_int_equal(b->ops->sleep(b), fd);
    kit_close(a); // a death wakes, and is got over
    assert_true(kit_is_readable(fd, 0));
    assert_int_equal(b->ops->receive(b, frames), 0);
    assert_int_equal(b->ops->sleep(b), fd);
    assert_false(kit_is_readable(fd, 0));
    kit_close(b);
    free(frames);
    kit_free_queue(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_mixed_frames_arrive_in_order),
        KIT_TEST(test_lent_payloads_and_batches),
        KIT_TEST(test_a_full_ring_stops_and_resumes),
        KIT_TEST(test_a_stuck_peer_does_not_stop_the_others),
        KIT_TEST(test_nobody_there_costs_the_frame_only),
        KIT_TEST(test_a_trace_sees_every_frame),
        KIT_TEST(test_sleep_ends_for_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
