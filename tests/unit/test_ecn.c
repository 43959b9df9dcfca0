// SPDX-License-Identifier: Apache-2.0
// Marks of congestion through real sockets: which frames came marked, alone and in streams.
#include "port/udp.h"
#include "port/udp_state.h"
#include "udp_kit.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <netinet/ip.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    FRAME = 48,
    STREAM = 200,
};

static struct vb_port *open_port(int family, unsigned host, bool ecn)
{
    return udp_kit_open_with(family, host, (struct vb_udp_opts){.ecn = ecn});
}

static void set_class(const struct udp_forger *f, int class)
{
    bool ipv6 = f->to.any.sa_family == AF_INET6;
    assert_int_equal(setsockopt(f->fd, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP,
                                ipv6 ? IPV6_TCLASS : IP_TOS, &class, sizeof class),
                     0);
}

static void test_a_lone_frame_tells_its_mark(void **state)
{
    static const int classes[] = {0, 1, 2, 3, 0xb8, 0xba, 0xbb};
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    for (int ecn = 0; ecn < 2; ecn++) {
        struct vb_port *port = open_port(udp_kit_family(state), 1, ecn);
        struct udp_forger f = udp_kit_make_forger(port);
        for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
            set_class(&f, classes[i]);
            udp_kit_forge(&f, 0, FRAME, 0);
            assert_int_equal(udp_kit_receive(port, frames, true), 1);
            assert_int_equal(frames[0].ce, ecn && (classes[i] & 3) == 3);
            assert_int_equal(udp_kit_receive(port, frames, false), 0); // it stays alone
        }
        close(f.fd);
        port->ops->close(port);
    }
}

// Frames that wait together come merged, but never with others' marks.
static void test_a_stream_tells_each_mark(void **state)
{
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    struct vb_port *port = open_port(udp_kit_family(state), 1, true);
    struct udp_forger f = udp_kit_make_forger(port);
    for (int round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < STREAM; i++) {
            set_class(&f, i % 3 == 0 ? IPTOS_ECN_CE : IPTOS_ECN_ECT0);
            udp_kit_forge(&f, 0, FRAME, 0);
        }
        for (uint32_t got = 0; got < STREAM;) {
            uint32_t n = udp_kit_receive(port, frames, true);
            assert_true(n > 0 && got + n <= STREAM);
            for (uint32_t i = 0; i < n; i++, got++)
                assert_int_equal(frames[i].ce, got % 3 == 0);
        }
    }
    close(f.fd);
    port->ops->close(port);
}

// A segmented send comes as one piece, with one mark for all.
static void test_merged_frames_share_their_mark(void **state)
{
    int family = udp_kit_family(state);
    bool ipv6 = family == AF_INET6;
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    struct vb_port *from = open_port(family, 0, true), *to = open_port(family, 1, true);
    struct vb_txq *q = udp_kit_make_queue();
    struct vb_path path;
    vb_path_init(&path, &from->local, &to->local, from->src_port);
    for (int round = 0; round < 20; round++) {
        int class = round % 2 ? IPTOS_ECN_CE : IPTOS_ECN_ECT0;
        int fd = ((const struct udp *)from)->fd;
        assert_int_equal(setsockopt(fd, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP,
                                    ipv6 ? IPV6_TCLASS : IP_TOS, &class, sizeof class),
                         0);
        for (uint32_t i = 0; i < STREAM; i++)
            udp_kit_append(q, &path, FRAME, i);
        udp_kit_send(from, q);
        for (uint32_t got = 0; got < STREAM;) {
            uint32_t n = udp_kit_receive(to, frames, true);
            assert_true(n > 0 && got + n <= STREAM);
            for (uint32_t i = 0; i < n; i++, got++)
                assert_int_equal(frames[i].ce, round % 2);
        }
    }
    assert_int_equal(to->stats.rx_bad_icrc, 0);
    udp_kit_free_queue(q);
    from->ops->close(from);
    to->ops->close(to);
}

// What the class of a received datagram was; -1: none came.
static int class_of(int fd)
{
    uint8_t bytes[256];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    if (recvmsg(fd, &h, 0) < 0 || !CMSG_FIRSTHDR(&h))
        return -1;
    return *CMSG_DATA(CMSG_FIRSTHDR(&h)); // its lowest byte, over IPv6
}

static void test_what_is_sent_may_be_marked(void **state)
{
    int family = udp_kit_family(state), on = 1;
    bool ipv6 = family == AF_INET6;
    for (int ecn = 0; ecn < 2; ecn++) {
        char text[INET6_ADDRSTRLEN];
        struct vb_port *port = open_port(family, 1, ecn);
        struct udp_forger f =
            udp_kit_make_forger_at(udp_kit_address(family, 0, text), VB_ROCE_UDP_PORT, port);
        struct vb_txq *q = udp_kit_make_queue();
        struct vb_path path;
        assert_int_equal(setsockopt(f.fd, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP,
                                    ipv6 ? IPV6_RECVTCLASS : IP_RECVTOS, &on, sizeof on),
                         0);
        vb_path_init(&path, &port->local, &f.path.local, port->src_port);
        for (uint32_t frames = 1; frames <= 3; frames += 2) { // alone, and segmented
            for (uint32_t i = 0; i < frames; i++)
                udp_kit_append(q, &path, FRAME, i);
            udp_kit_send(port, q);
            for (uint32_t i = 0; i < frames; i++)
                assert_int_equal(class_of(f.fd), ecn ? IPTOS_ECN_ECT0 : 0);
        }
        udp_kit_free_queue(q);
        close(f.fd);
        port->ops->close(port);
    }
}

#define ALL_TESTS(family)                                              \
    {                                                                  \
        UDP_KIT_TEST(test_a_lone_frame_tells_its_mark, family),        \
            UDP_KIT_TEST(test_a_stream_tells_each_mark, family),       \
            UDP_KIT_TEST(test_merged_frames_share_their_mark, family), \
            UDP_KIT_TEST(test_what_is_sent_may_be_marked, family),     \
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
