// SPDX-License-Identifier: Apache-2.0
// Attributes of paths through real sockets: what the packets' IP headers say, in any order of
// paths, and the priority that the socket has for a service level.
#include "port/udp.h"
#include "port/udp_state.h"
#include "udp_kit.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <netinet/ip.h>

#include <cmocka.h>

enum {
    FRAME = 48,
    ROUNDS = 50, // more than the messages in a row after which the socket changes
};

struct two {
    struct vb_port *from, *to;
    struct vb_txq *q;
    struct vb_path plain, path;
    int family;
    bool ecn;
};

static struct two open_two(int family, bool ecn)
{
    struct two t = {.family = family, .ecn = ecn, .q = udp_kit_make_queue()};
    t.from = udp_kit_open_with(family, 1, (struct vb_udp_opts){.ecn = ecn});
    t.to = udp_kit_open(family, 2);
    assert_int_equal(vb_udp_tell_headers(t.to), 0);
    vb_path_init(&t.plain, &t.from->local, &t.to->local, t.from->src_port);
    t.path = t.plain;
    return t;
}

static void close_two(struct two *t)
{
    udp_kit_free_queue(t->q);
    t->from->ops->close(t->from);
    t->to->ops->close(t->to);
}

static void judge(const struct two *t, const struct vb_rx_frame *f, const struct vb_path_attr *a)
{
    int class = t->ecn ? (a->traffic_class & ~3) | IPTOS_ECN_ECT0 : a->traffic_class;

    assert_int_equal(f->traffic_class, class);
    assert_int_equal(f->hop_limit, a->hop_limit ? a->hop_limit : t->from->hop_limit);
    if (t->family == AF_INET6 && a->flow_label) // else the system makes one
        assert_int_equal(f->flow_label, a->flow_label);
}

// So many frames of each path, one path after the other.
static void expect(struct two *t, const struct vb_path *paths, uint32_t count, uint32_t each)
{
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];

    for (uint32_t got = 0; got < count * each;) {
        uint32_t n = udp_kit_receive(t->to, frames, true);
        assert_in_range(n, 1, count * each - got);
        for (uint32_t i = 0; i < n; i++, got++)
            judge(t, &frames[i], &paths[got / each].attr);
    }
}

static void send_frames(struct two *t, struct vb_path *path, uint32_t frames)
{
    for (uint32_t i = 0; i < frames; i++)
        assert_true(udp_kit_append(t->q, path, FRAME, i));
    udp_kit_send(t->from, t->q);
    expect(t, path, 1, frames);
}

static void test_attributes_are_in_the_header(void **state)
{
    static const struct vb_path_attr attrs[] = {
        {.traffic_class = 0xb8},
        {.hop_limit = 7},
        {.traffic_class = 0x49, .hop_limit = 255},
        {.traffic_class = 0x20, .hop_limit = 2, .flow_label = 0xfffff},
        {.flow_label = 1},
    };
    for (int ecn = 0; ecn < 2; ecn++) {
        struct two t = open_two(udp_kit_family(state), ecn);
        for (size_t i = 0; i < sizeof attrs / sizeof attrs[0]; i++) {
            t.path.attr = attrs[i];
            for (uint32_t frames = 1; frames <= 3; frames += 2) { // alone, and segmented
                send_frames(&t, &t.path, frames);
                send_frames(&t, &t.plain, frames);
            }
        }
        close_two(&t);
    }
}

// The socket has what many messages in a row had; whatever comes next is right all the same.
static void test_the_socket_follows(void **state)
{
    const struct vb_path_attr often = {.traffic_class = 0x68, .hop_limit = 31};
    const struct vb_path_attr other = {.traffic_class = 0x10};
    struct two t = open_two(udp_kit_family(state), false);
    const struct udp *u = (const struct udp *)t.from;
    for (int i = 0; i < ROUNDS; i++) {
        t.path.attr = often;
        send_frames(&t, &t.path, 1 + (uint32_t)i % 2);
    }
    assert_true(vb_path_attr_equal(&u->tx.attr, &often));
    t.path.attr = other;
    send_frames(&t, &t.path, 1);
    send_frames(&t, &t.plain, 2);
    t.path.attr = often;
    send_frames(&t, &t.path, 1);
    assert_true(vb_path_attr_equal(&u->tx.attr, &often)); // two others do not change it
    for (int i = 0; i < ROUNDS; i++)
        send_frames(&t, &t.plain, 1);
    assert_true(vb_path_attr_equal(&u->tx.attr, &t.plain.attr));
    close_two(&t);
}

// Frames of several paths in one queue: none shares a send with another's.
static void test_paths_in_one_queue(void **state)
{
    struct two t = open_two(udp_kit_family(state), false);
    struct vb_path paths[3] = {t.plain, t.plain, t.plain};
    paths[1].attr.traffic_class = 0x80;
    paths[2].attr = (struct vb_path_attr){.traffic_class = 0x80, .sl = 5};
    for (uint32_t i = 0; i < 9; i++)
        assert_true(udp_kit_append(t.q, &paths[i / 3], FRAME, i));
    udp_kit_send(t.from, t.q);
    expect(&t, paths, 3, 3);
    assert_int_equal(t.from->stats.tx_errors, 0);
    close_two(&t);
}

static int priority(const struct two *t)
{
    int value = -1;
    socklen_t len = sizeof value;
    assert_int_equal(
        getsockopt(((const struct udp *)t->from)->fd, SOL_SOCKET, SO_PRIORITY, &value, &len), 0);
    return value;
}

static void test_a_service_level_is_a_priority(void **state)
{
    struct two t = open_two(udp_kit_family(state), false);
    for (uint8_t sl = 1; sl <= 6; sl++) {
        t.path.attr = (struct vb_path_attr){.sl = sl, .traffic_class = (uint8_t)(sl << 2)};
        send_frames(&t, &t.path, 2);
        assert_int_equal(priority(&t), sl);
        send_frames(&t, &t.plain, 1);
        assert_int_equal(priority(&t), 0);
    }
    assert_int_equal(t.from->stats.tx_errors, 0);
    close_two(&t);
}

// Who did not ask is told nothing.
static void test_headers_are_told_on_demand(void **state)
{
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    struct two t = open_two(udp_kit_family(state), false);
    struct vb_path back;
    vb_path_init(&back, &t.to->local, &t.from->local, t.to->src_port);
    back.attr.hop_limit = 3;
    assert_true(udp_kit_append(t.q, &back, FRAME, 0));
    udp_kit_send(t.to, t.q);
    assert_int_equal(udp_kit_receive(t.from, frames, true), 1);
    assert_int_equal(frames[0].ip_word, 0);
    close_two(&t);
}

#define ALL_TESTS(family)                                             \
    {                                                                 \
        UDP_KIT_TEST(test_attributes_are_in_the_header, family),      \
            UDP_KIT_TEST(test_the_socket_follows, family),            \
            UDP_KIT_TEST(test_paths_in_one_queue, family),            \
            UDP_KIT_TEST(test_a_service_level_is_a_priority, family), \
            UDP_KIT_TEST(test_headers_are_told_on_demand, family),    \
    }

int main(void)
{
    const struct CMUnitTest v4[] = ALL_TESTS(udp_kit_v4);
    const struct CMUnitTest v6[] = ALL_TESTS(udp_kit_v6);
    int failed = cmocka_run_group_tests(v4, NULL, NULL);
    if (udp_kit_enter_v6(&failed))
        failed += cmocka_run_group_tests(v6, NULL, NULL);
    return failed;
}
