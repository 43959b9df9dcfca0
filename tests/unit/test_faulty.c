// SPDX-License-Identifier: Apache-2.0
// The faulty port around a small fake one with a fake clock: every frame meets its fate, once, and
// all others pass in order.
#include "base/prng.h"
#include "faulty_rig.h"
#include "fresh_seed.h"
#include "port/held.h"
#include "port/simnet.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

enum {
    HEAD = 16 // of a frame whose payload is lent: BTH and tag
};

// ---- straight through

static void test_without_rules_nothing_is_copied(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "off", "wc=retry_exc;qp_error=1%"};
    for (unsigned t = 0; t < 3; t++) {
        struct rig *g = rig_open(texts[t]);
        rig_send_frames(g, 3, 1);
        assert_ptr_equal(g->fake->last_txq, &g->txq);
        rig_arrive(g, 1, 1);
        assert_int_equal(rig_receive(g), 1);
        assert_ptr_equal(g->frames[0].data, g->fake->bytes);
        assert_int_equal(g->clock_reads, 0);
        assert_true(vb_faulty_deadline(g->port) == UINT64_MAX);
        ASSERT_SENT(g, 1, 2, 3);
        rig_close(g);
    }
}

static void test_rules_of_one_direction_leave_the_other(void **state)
{
    (void)state;
    struct rig *g = rig_open("drop=#1,dir=tx");
    rig_send_frames(g, 2, 1);
    assert_ptr_not_equal(g->fake->last_txq, &g->txq);
    ASSERT_SENT(g, 2);
    uint32_t reads = g->clock_reads;
    rig_arrive(g, 1, 1);
    assert_int_equal(rig_receive(g), 1);
    assert_int_equal(g->clock_reads, reads);
    rig_close(g);
    g = rig_open("drop=#1,dir=rx");
    rig_send_frames(g, 1, 1);
    assert_ptr_equal(g->fake->last_txq, &g->txq);
    rig_arrive(g, 1, 1);
    assert_int_equal(rig_receive(g), 0);
    rig_close(g);
}

static void test_the_inner_port_shows(void **state)
{
    (void)state;
    struct rig *g = rig_open("drop=#1,dir=rx;corrupt=#2,dir=rx");
    assert_true(vb_ip_equal(&g->port->local, &rig_ips[0]));
    assert_int_equal(g->port->src_port, 4791);
    g->fake->port.stats =
        (struct vb_port_stats){.rx_bad_icrc = 5, .tx_errors = 7, .faults_dropped = 2};
    rig_arrive(g, 1, 1);
    rig_arrive(g, 1, 1);
    assert_int_equal(rig_receive(g), 0);
    assert_int_equal(g->port->stats.rx_bad_icrc, 6);
    assert_int_equal(g->port->stats.tx_errors, 7);
    assert_int_equal(g->port->stats.faults_dropped, 3);
    assert_int_equal(g->port->stats.faults_corrupted, 1);
    rig_close(g);
}

static void test_sleep_is_forwarded_unless_a_frame_is_due(void **state)
{
    (void)state;
    struct rig *g = rig_open("delay=5us@#1,dir=tx");
    assert_int_equal(g->port->ops->sleep(g->port), RIG_FD);
    rig_send_frames(g, 1, 1);
    assert_int_equal(g->port->ops->sleep(g->port), RIG_FD);
    g->now += 5000;
    assert_int_equal(g->port->ops->sleep(g->port), -EAGAIN);
    assert_int_equal(g->fake->sleeps, 2);
    rig_receive(g);
    assert_int_equal(g->fake->receives, 1);
    assert_int_equal(g->port->ops->sleep(g->port), RIG_FD);
    rig_close(g);
}

static void close_nothing(struct vb_port *port)
{
    assert_non_null(port);
}

static void test_a_port_without_descriptors_stays_one(void **state)
{
    (void)state;
    static const struct vb_port_ops bare_ops = {.close = close_nothing};
    struct vb_port bare = {.ops = &bare_ops};
    struct vb_port *port = vb_faulty_wrap(&bare, NULL, NULL, NULL);
    assert_non_null(port);
    assert_null(port->ops->sleep);
    port->ops->close(port);
}

// ---- sending

static uint64_t read_zero(void *ctx)
{
    (void)ctx;
    return 0;
}

static void test_sent_frames_meet_their_fates(void **state)
{
    (void)state;
    struct rig *g = rig_open("drop=#2;dup=#3;dup=#5:2");
    rig_send_frames(g, 6, 1);
    ASSERT_SENT(g, 1, 3, 3, 4, 5, 5, 5, 6);
    assert_int_equal(g->port->stats.faults_dropped, 1);
    assert_int_equal(g->port->stats.faults_duplicated, 3);
    rig_close(g);
}

// The fake takes few frames at a time; what it left is sent by the next send or receive.
static void test_frames_left_by_the_inner_port_are_judged_once(void **state)
{
    (void)state;
    struct vb_prng r = {.state = fresh_seed()};
    struct rig *g = rig_open("drop=20%,dup=20%:3;seed=9");
    struct vb_faults *twin = rig_parse("drop=20%,dup=20%:3;seed=9");
    uint32_t expected[RIG_LOG], count = 0, sent = 0;
    for (uint32_t round = 0; round < 100; round++) {
        g->fake->take_max = (uint32_t)vb_prng_below(&r, 20);
        for (uint64_t n = vb_prng_below(&r, 40); n > 0 && g->txq.count < VB_TX_FRAMES; n--, sent++)
            rig_push(g, 1, 0);
        if (vb_prng_chance(&r, 700000))
            rig_send(g);
        else
            rig_receive(g);
    }
    g->fake->take_max = 7;
    for (uint32_t i = 0; i < 10 * RIG_LOG && (g->txq.count || vb_faulty_deadline(g->port) == 0);
         i++)
        rig_send(g);
    for (uint32_t tag = 1; tag <= sent; tag++) {
        struct vb_fault_fate fate;
        uint8_t head[RIG_BYTES] = {VB_RC_SEND_ONLY};
        vb_faults_judge(twin, VB_FAULT_TX, head, RIG_BYTES, &fate);
        for (uint32_t i = 0; !fate.drop && i <= fate.copies; i++)
            expected[count++] = tag;
    }
    expected[count] = 0;
    rig_assert_log(g->fake->sent, g->fake->sent_count, expected);
    assert_int_equal(vb_faults_counts(vb_faulty_rules(g->port), 0).matched, sent);
    vb_faults_free(twin);
    rig_close(g);
}

static void test_what_was_left_keeps_the_owner_awake(void **state)
{
    (void)state;
    struct rig *g = rig_open("dup=#1");
    g->fake->take_max = 1;
    rig_send_frames(g, 1, 1);
    ASSERT_SENT(g, 1);
    assert_int_equal(vb_faulty_deadline(g->port), 0);
    assert_int_equal(g->port->ops->sleep(g->port), -EAGAIN);
    assert_int_equal(vb_faulty_set(g->port, "off", NULL), 0);
    g->fake->take_max = 0;
    rig_push(g, 1, 0);
    rig_send(g); // must not overtake
    assert_int_equal(g->txq.taken, 0);
    g->fake->take_max = 9;
    rig_send(g);
    ASSERT_SENT(g, 1, 1, 2);
    assert_true(vb_faulty_deadline(g->port) == UINT64_MAX);
    rig_close(g);
}

static void test_delayed_frames_leave_in_order_when_due(void **state)
{
    (void)state;
    struct rig *g = rig_open("delay=10us@#1,qp=1;delay=3us@#2,qp=1");
    rig_send_frames(g, 3, 1); // the second and third may not overtake the first
    rig_send_frames(g, 1, 2); // another queue pair may
    rig_push(g, 1, 1);        // and the same number at another peer
    rig_send(g);
    ASSERT_SENT(g, 4, 5);
    assert_int_equal(vb_faulty_deadline(g->port), g->now + 10000);
    g->now += 9999;
    rig_receive(g);
    ASSERT_SENT(g, 4, 5);
    g->now += 1;
    rig_receive(g);
    ASSERT_SENT(g, 4, 5, 1, 2, 3);
    rig_send_frames(g, 1, 1);
    ASSERT_SENT(g, 4, 5, 1, 2, 3, 6);
    assert_int_equal(g->port->stats.faults_delayed, 2);
    assert_int_equal(g->port->stats.faults_reordered, 0);
    rig_close(g);
}

static void test_a_reordered_frame_is_overtaken_by_just_so_many(void **state)
{
    (void)state;
    struct rig *g = rig_open("reorder=#2:3");
    rig_send_frames(g, 2, 1);
    rig_send_frames(g, 5, 2); // others do not count
    ASSERT_SENT(g, 1, 3, 4, 5, 6, 7);
    rig_send_frames(g, 4, 1);
    ASSERT_SENT(g, 1, 3, 4, 5, 6, 7, 8, 9, 10, 2, 11);
    assert_int_equal(g->port->stats.faults_reordered, 1);
    rig_close(g);
}

static void test_a_reordered_frame_waits_only_so_long(void **state)
{
    (void)state;
    struct rig *g = rig_open("reorder=#1..2:2~50us");
    rig_send_frames(g, 3, 1);
    ASSERT_SENT(g, 3);
    assert_int_equal(vb_faulty_deadline(g->port), g->now + 50000);
    g->now += 50000;
    rig_receive(g);
    ASSERT_SENT(g, 3, 1, 2);
    rig_close(g);
}

// A frame from before it, however late, has not overtaken it.
static void test_only_later_frames_overtake(void **state)
{
    (void)state;
    struct rig *g = rig_open("delay=10us@#1;reorder=#2:1");
    rig_send_frames(g, 2, 1);
    g->now += 10000;
    rig_receive(g);
    ASSERT_SENT(g, 1);
    rig_send_frames(g, 1, 1);
    ASSERT_SENT(g, 1, 3, 2);
    rig_close(g);
}

// A released frame overtakes those before it as well: 2 leaves behind 3, and then 1 behind 2.
static void test_released_frames_overtake_others(void **state)
{
    (void)state;
    struct rig *g = rig_open("reorder=#1:2;reorder=#2:1");
    rig_send_frames(g, 4, 1);
    ASSERT_SENT(g, 3, 2, 1, 4);
    assert_true(vb_faulty_deadline(g->port) == UINT64_MAX);
    rig_close(g);
}

static void test_sent_frames_are_corrupted_for_any_receiver(void **state)
{
    (void)state;
    struct rig *g = rig_open("corrupt=#2/2");
    for (unsigned to = 0; to < 2; to++) // IPv4, where identifications are solved for, and IPv6
        for (uint32_t len = 16; len <= VB_FRAME_MAX; len += len < 80 ? 4 : 404) {
            rig_push(g, 1, to);
            rig_push(g, 1, to);
            g->txq.frame[g->txq.count - 1].len = len;
            memset(g->txq.arena + g->txq.used, 0, len);
            g->txq.used += len;
            rig_send(g);
        }
    assert_true(g->fake->sent_count > 40);
    for (uint32_t i = 0; i < g->fake->sent_count; i++)
        assert_int_equal(g->fake->sent[i].intact, i % 2 == 0);
    assert_int_equal(g->port->stats.faults_corrupted, g->fake->sent_count / 2);
    assert_int_equal(g->port->stats.rx_bad_icrc, 0);
    rig_close(g);
}

// The same through a port that seals and checks by itself.
static void test_a_receiver_finds_what_was_corrupted(void **state)
{
    (void)state;
    struct rig *g = rig_open(NULL);
    struct vb_simnet *net = vb_simnet_create(1);
    struct vb_port *inner, *peer;
    const struct vb_simnet_host hosts[2] = {
        {.ip = rig_ips[0], .src_port = 4791, .batch_max = VB_PORT_RX_BATCH},
        {.ip = rig_ips[1], .src_port = 4791, .batch_max = VB_PORT_RX_BATCH}};
    assert_int_equal(vb_simnet_attach(net, &hosts[0], &inner), 0);
    assert_int_equal(vb_simnet_attach(net, &hosts[1], &peer), 0);
    struct vb_port *port = vb_faulty_wrap(inner, rig_parse("corrupt=#3..5"), read_zero, NULL);
    for (uint32_t i = 0; i < 10; i++)
        rig_push(g, 1, 0);
    port->ops->send(port, &g->txq);
    vb_simnet_advance(net, 1);
    assert_int_equal(peer->ops->receive(peer, g->frames), 7);
    assert_int_equal(peer->stats.rx_bad_icrc, 3);
    port->ops->close(port);
    vb_simnet_destroy(net);
    rig_close(g);
}

// What a frame is made of may be gone as soon as it was taken.
static void test_held_frames_own_their_path_and_payload(void **state)
{
    (void)state;
    struct rig *g = rig_open("delay=1us,dup=100%");
    struct vb_path *path = malloc(sizeof *path);
    uint8_t *body = calloc(1, 8);
    *path = g->path[0];
    rig_push(g, 1, 0);
    g->txq.frame[0].path = path;
    g->txq.frame[0].head = HEAD;
    g->txq.frame[0].body = body;
    g->txq.frame[0].body_len = 8;
    g->txq.frame[0].len = HEAD + 8 + 4;
    rig_send(g);
    free(path);
    free(body);
    memset(g->txq.arena, 0xff, VB_TX_BYTES);
    g->now += 1000;
    rig_receive(g);
    ASSERT_SENT(g, 1, 1);
    assert_true(g->fake->sent[0].intact && g->fake->sent[1].intact);
    assert_int_equal(g->fake->sent[0].qpn, 1);
    rig_close(g);
}

static void test_no_more_are_held_than_fit(void **state)
{
    (void)state;
    struct rig *g = rig_open("delay=1ms");
    for (uint32_t i = 0; i < VB_HELD_MAX / 128; i++)
        rig_send_frames(g, 128, 1);
    assert_int_equal(g->fake->sent_count, 0);
    assert_int_equal(g->port->stats.faults_unheld, 0);
    rig_send_frames(g, 3, 1);
    assert_int_equal(g->fake->sent_count, 3);
    assert_int_equal(g->port->stats.faults_unheld, 3);
    g->now += 1000000;
    rig_receive(g);
    assert_int_equal(g->fake->sent_count, VB_HELD_MAX + 3);
    rig_close(g);
}

// ---- receiving

static void test_received_frames_meet_their_fates(void **state)
{
    (void)state;
    struct rig *g = rig_open("drop=#2;dup=#3:2;corrupt=#4;delay=2us@#5,qp=1");
    for (uint32_t i = 0; i < 5; i++)
        rig_arrive(g, 1, 1);
    rig_arrive(g, 1, 1); // behind the delayed one
    rig_arrive(g, 2, 1);
    assert_int_equal(rig_receive(g), 5);
    ASSERT_GOT(g, 1, 3, 3, 3, 7);
    assert_int_equal(g->port->stats.faults_dropped, 1);
    assert_int_equal(g->port->stats.faults_corrupted, 1);
    assert_int_equal(g->port->stats.rx_bad_icrc, 1);
    assert_int_equal(g->port->stats.faults_duplicated, 2);
    assert_int_equal(rig_receive(g), 0);
    g->now += 2000;
    assert_int_equal(rig_receive(g), 2);
    ASSERT_GOT(g, 1, 3, 3, 3, 7, 5, 6);
    assert_true(vb_ip_equal(&g->frames[0].src, &rig_ips[1]));
    rig_close(g);
}

static void test_received_frames_are_marked(void **state)
{
    (void)state;
    static const bool marked[] = {false, true, true, false};
    struct rig *g = rig_open("mark=#2..3;dup=#2,dir=rx;delay=2us@#3,dir=rx");
    for (uint32_t i = 0; i < 2; i++)
        rig_arrive(g, 1, 1);
    assert_int_equal(rig_receive(g), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(g->frames[i].ce, marked[i]); // the copy is, too
    rig_arrive(g, 1, 1);
    rig_arrive(g, 1, 1); // behind the delayed one
    assert_int_equal(rig_receive(g), 0);
    g->now += 2000;
    assert_int_equal(rig_receive(g), 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(g->frames[i].ce, marked[2 + i]);
    assert_int_equal(g->port->stats.faults_marked, 2);
    rig_close(g);
}

static void test_received_frames_are_reordered(void **state)
{
    (void)state;
    struct rig *g = rig_open("reorder=#1:2,dir=rx");
    for (uint32_t i = 0; i < 2; i++)
        rig_arrive(g, 1, 1);
    assert_int_equal(rig_receive(g), 1);
    rig_arrive(g, 1, 2); // another sender's
    assert_int_equal(rig_receive(g), 1);
    rig_arrive(g, 1, 1);
    rig_arrive(g, 1, 1);
    assert_int_equal(rig_receive(g), 3);
    ASSERT_GOT(g, 2, 3, 4, 1, 5);
    rig_close(g);
}

static void test_frames_past_the_batch_come_next(void **state)
{
    (void)state;
    struct rig *g = rig_open("dup=100%:7,dir=rx");
    for (uint32_t i = 0; i < VB_PORT_RX_BATCH; i++)
        rig_arrive(g, i & 7, 1);
    assert_true(rig_receive(g) > 0);
    assert_int_equal(vb_faulty_deadline(g->port), 0);
    assert_int_equal(g->port->ops->sleep(g->port), -EAGAIN);
    assert_int_equal(vb_faulty_set(g->port, "off", NULL), 0); // the rest goes by the new rules
    uint32_t copied = g->got_count / 8;
    while (rig_receive(g) > 0) {}
    assert_int_equal(g->got_count, copied * 8 + (VB_PORT_RX_BATCH - copied));
    for (uint32_t i = 0; i < g->got_count; i++)
        assert_int_equal(g->got[i].tag, 1 + (i < copied * 8 ? i / 8 : copied + (i - copied * 8)));
    rig_close(g);
}

// ---- rules at run time

static void test_rules_can_be_replaced(void **state)
{
    (void)state;
    char why[VB_ERROR_TEXT] = "";
    struct rig *g = rig_open("drop=100%");
    rig_send_frames(g, 1, 1);
    assert_int_equal(vb_faulty_set(g->port, "drop=1x", why), -EINVAL);
    assert_string_equal(why,
                        "faults: 'drop=1x': a probability is 1%, 0.5%, 10ppm or #N (column 6)");
    rig_send_frames(g, 1, 1); // still dropped
    assert_int_equal(g->fake->sent_count, 0);
    assert_int_equal(vb_faulty_set(g->port, "delay=10us", why), 0);
    rig_send_frames(g, 1, 1);
    assert_int_equal(vb_faulty_set(g->port, "off", why), 0);
    rig_send_frames(g, 1, 1); // behind the one that is held
    rig_send_frames(g, 1, 2);
    ASSERT_SENT(g, 5);
    g->now += 10000;
    rig_receive(g);
    ASSERT_SENT(g, 5, 3, 4);
    rig_send_frames(g, 1, 1);
    assert_ptr_equal(g->fake->last_txq, &g->txq);
    assert_int_equal(g->port->stats.faults_dropped, 2); // counted on through all rules
    rig_close(g);
}

static void test_closing_frees_what_is_held(void **state)
{
    (void)state;
    struct rig *g = rig_open("delay=1s@50%,reorder=50%;seed=2");
    rig_send_frames(g, 50, 1);
    for (uint32_t i = 0; i < 50; i++)
        rig_arrive(g, 1, 1);
    rig_receive(g);
    rig_close(g);
}

// ---- anything

// No frame is lost or made but by its fate, and without reordering each queue pair's keep order.
static void check_log(const struct entry *log, uint32_t count, uint64_t expected, bool ordered)
{
    uint32_t last[4] = {0};
    assert_true(count == expected);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(log[i].qpn < 4);
        assert_true(!ordered || log[i].tag >= last[log[i].qpn]);
        last[log[i].qpn] = log[i].tag;
    }
}

static void test_random_traffic_is_conserved(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "drop=5%,dup=5%;delay=20us±20us@30%", "delay=3us@#3/7,qp=1|2;drop=#5/9",
        "reorder=20%:1..8~30us,dup=10%:2;delay=5us±5us@20%", "reorder=100%~10us"};
    const uint64_t first = fresh_seed();
    for (unsigned t = 0; t < 4; t++) {
        struct vb_prng r = {.state = first + t};
        char text[128];
        snprintf(text, sizeof text, "%s;seed=%u", rules[t], (uint32_t)vb_prng_next(&r));
        struct rig *g = rig_open(text);
        uint64_t tx = 0, rx = 0;
        for (uint32_t round = 0; round < 500; round++) {
            g->fake->take_max = (uint32_t)vb_prng_below(&r, 30);
            g->now += vb_prng_below(&r, 10000);
            for (uint64_t n = vb_prng_below(&r, 12); n > 0 && g->txq.count < VB_TX_FRAMES;
                 n--, tx++)
                rig_push(g, (uint32_t)vb_prng_below(&r, 4), 0);
            for (uint64_t n = vb_prng_below(&r, 12); n > 0 && g->fake->inbox_count < 400; n--, rx++)
                rig_arrive(g, (uint32_t)vb_prng_below(&r, 4), 1);
            rig_send(g);
            rig_receive(g);
        }
        g->fake->take_max = 5;
        for (uint32_t i = 0; i < 20000; i++, g->now += 1000) {
            rig_send(g);
            rig_receive(g);
        }
        const struct vb_port_stats *s = &g->port->stats;
        assert_true(vb_faulty_deadline(g->port) == UINT64_MAX);
        check_log(g->fake->sent, g->fake->sent_count, g->fake->sent_count, t < 2);
        check_log(g->got, g->got_count,
                  tx + rx + s->faults_duplicated - s->faults_dropped - g->fake->sent_count, t < 2);
        assert_int_equal(s->faults_unheld, 0);
        rig_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_rules_nothing_is_copied),
        cmocka_unit_test(test_rules_of_one_direction_leave_the_other),
        cmocka_unit_test(test_the_inner_port_shows),
        cmocka_unit_test(test_sleep_is_forwarded_unless_a_frame_is_due),
        cmocka_unit_test(test_a_port_without_descriptors_stays_one),
        cmocka_unit_test(test_sent_frames_meet_their_fates),
        cmocka_unit_test(test_frames_left_by_the_inner_port_are_judged_once),
        cmocka_unit_test(test_what_was_left_keeps_the_owner_awake),
        cmocka_unit_test(test_delayed_frames_leave_in_order_when_due),
        cmocka_unit_test(test_a_reordered_frame_is_overtaken_by_just_so_many),
        cmocka_unit_test(test_a_reordered_frame_waits_only_so_long),
        cmocka_unit_test(test_only_later_frames_overtake),
        cmocka_unit_test(test_released_frames_overtake_others),
        cmocka_unit_test(test_sent_frames_are_corrupted_for_any_receiver),
        cmocka_unit_test(test_a_receiver_finds_what_was_corrupted),
        cmocka_unit_test(test_held_frames_own_their_path_and_payload),
        cmocka_unit_test(test_no_more_are_held_than_fit),
        cmocka_unit_test(test_received_frames_meet_their_fates),
        cmocka_unit_test(test_received_frames_are_marked),
        cmocka_unit_test(test_received_frames_are_reordered),
        cmocka_unit_test(test_frames_past_the_batch_come_next),
        cmocka_unit_test(test_rules_can_be_replaced),
        cmocka_unit_test(test_closing_frees_what_is_held),
        cmocka_unit_test(test_random_traffic_is_conserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
