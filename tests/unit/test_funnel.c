// SPDX-License-Identifier: Apache-2.0
// The virtual network's funnel: links share it, it fills, marks and drops.
#include "port/simnet.h"
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    FRAME = 1000, // at 1,000 bytes per microsecond a microsecond each
};

// Hosts 1 and 2 send to host 0.
struct net {
    struct vb_simnet *sim;
    struct vb_port *port[3];
    struct vb_path path[3];
    struct vb_txq txq;
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
};

static struct net *open_net(const struct vb_simnet_funnel *funnel, bool ecn)
{
    struct net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->sim = vb_simnet_create(3);
    for (uint8_t i = 0; i < 3; i++) {
        const struct vb_simnet_host host = {
            .ip = {{[10] = 0xff, 0xff, 10, 0, 0, i}}, .src_port = 4791, .batch_max = 1, .ecn = ecn};
        assert_int_equal(vb_simnet_attach(n->sim, &host, &n->port[i]), 0);
        vb_path_init(&n->path[i], &n->port[i]->local, &n->port[0]->local, 4791);
    }
    vb_simnet_funnel(n->sim, 0, funnel);
    n->txq.arena = calloc(1, VB_TX_BYTES);
    return n;
}

static void close_net(struct net *n)
{
    vb_simnet_destroy(n->sim);
    free(n->txq.arena);
    free(n);
}

static void send_frames(struct net *n, unsigned from, uint32_t count)
{
    struct vb_txq *q = &n->txq;
    q->used = q->count = q->taken = 0;
    for (; q->count < count; q->used += FRAME) {
        memset(q->arena + q->used, 0, FRAME);
        q->frame[q->count++] =
            (struct vb_tx_frame){.path = &n->path[from], .offset = q->used, .len = FRAME};
    }
    n->port[from]->ops->send(n->port[from], q);
}

// Takes what arrives until the time, and counts what is marked.
static uint32_t take(struct net *n, uint64_t until_ns, uint32_t *marked)
{
    uint32_t count = 0, came;
    vb_simnet_advance(n->sim, until_ns);
    while ((came = n->port[0]->ops->receive(n->port[0], n->frames)) > 0) {
        count += came;
        *marked += n->frames[0].ce;
    }
    return count;
}

static void test_links_share_it(void **state)
{
    (void)state;
    struct net *n = open_net(&(struct vb_simnet_funnel){1000, 100000, 0, 0, 0}, true);
    uint32_t marked = 0;

    send_frames(n, 1, 3);
    send_frames(n, 2, 3);
    for (uint64_t us = 0; us < 6; us++) {
        assert_int_equal(take(n, us * 1000 + 999, &marked), 0);
        assert_int_equal(take(n, us * 1000 + 1000, &marked), 1);
    }
    assert_int_equal(vb_simnet_stats(n->sim)->funnel_bytes_max, 5 * FRAME);
    assert_int_equal(marked, 0);
    close_net(n);
}

static void test_without_a_funnel_nothing_waits(void **state)
{
    (void)state;
    struct net *n = open_net(&(struct vb_simnet_funnel){0}, true);
    uint32_t marked = 0;

    send_frames(n, 1, 3);
    assert_int_equal(take(n, 0, &marked), 3);
    close_net(n);
}

static void test_what_does_not_fit_is_dropped(void **state)
{
    (void)state;
    struct net *n = open_net(&(struct vb_simnet_funnel){1000, 4 * FRAME, 0, 0, 0}, true);
    uint32_t marked = 0;

    send_frames(n, 1, 3);
    send_frames(n, 2, 3);
    assert_int_equal(take(n, 10000, &marked), 4);
    assert_int_equal(vb_simnet_stats(n->sim)->tail_dropped, 2);
    send_frames(n, 1, 4); // empty again
    assert_int_equal(take(n, 20000, &marked), 4);
    assert_int_equal(vb_simnet_stats(n->sim)->tail_dropped, 2);
    close_net(n);
}

// A step: all frames that find two or more before them.
static void test_a_step_marks_from_there_on(void **state)
{
    (void)state;
    for (int ecn = 0; ecn < 2; ecn++) {
        struct net *n =
            open_net(&(struct vb_simnet_funnel){1000, 100000, 2 * FRAME, 2 * FRAME, 1000000}, ecn);
        uint32_t marked = 0;
        send_frames(n, 1, 2);
        assert_int_equal(take(n, 10000, &marked), 2);
        assert_int_equal(marked, 0);
        send_frames(n, 1, 10);
        assert_int_equal(take(n, 30000, &marked), 10);
        assert_int_equal(marked, ecn ? 8 : 0);
        assert_int_equal(vb_simnet_stats(n->sim)->marked, marked);
        close_net(n);
    }
}

// RED: with 10 to 110 frames waiting, a half of them at most is marked.
static void test_a_slope_marks_more_and_more(void **state)
{
    (void)state;
    struct net *n =
        open_net(&(struct vb_simnet_funnel){1000, 1000000, 10 * FRAME, 110 * FRAME, 500000}, true);
    uint32_t few = 0, many = 0;

    for (uint64_t round = 1; round <= 50; round++) {
        send_frames(n, 1, 110);
        take(n, round * 200000 - 200000 + 60000, &few);
        take(n, round * 200000, &many);
    }
    assert_in_range(few, 50 * 6, 50 * 7 - 1);    // half of 0 to 50 %: 12.5 % of 50 = 6.25
    assert_in_range(many, 50 * 17, 50 * 20 - 1); // 37.5 % of 50 = 18.75
    close_net(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_links_share_it),
        cmocka_unit_test(test_without_a_funnel_nothing_waits),
        cmocka_unit_test(test_what_does_not_fit_is_dropped),
        cmocka_unit_test(test_a_step_marks_from_there_on),
        cmocka_unit_test(test_a_slope_marks_more_and_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
