// SPDX-License-Identifier: Apache-2.0
// The udp port on loopback: what is sent arrives whole, what is wrong does not, and errors speak.
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/clock.h"
#include "port/udp.h"
#include "udp_kit.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static uint32_t draw_len(struct vb_prng *prng)
{
    static const uint32_t usual[] = {16, 20, 32, 96, 100, 1044, 4112, 4128, VB_FRAME_MAX};
    if (vb_prng_chance(prng, 500000))
        return usual[vb_prng_below(prng, sizeof usual / sizeof *usual)];
    return 4 * (uint32_t)vb_prng_range(prng, 4, VB_FRAME_MAX / 4);
}

struct sent {
    uint32_t len, tag;
};

// Frames of host 0 to hosts 1 and 2, in runs of equal lengths on two paths each, come in order.
static void test_mixed_frames_arrive_whole(void **state)
{
    int family = udp_kit_family(state);
    struct vb_prng prng = {.state = fresh_seed()};
    struct vb_port *port[UDP_KIT_HOSTS];
    struct vb_path path[4];
    struct vb_txq *q = udp_kit_make_queue();
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    static struct sent sent[2][VB_TX_FRAMES];
    for (unsigned h = 0; h < UDP_KIT_HOSTS; h++)
        port[h] = udp_kit_open(family, h);
    for (unsigned i = 0; i < 4; i++)
        vb_path_init(&path[i], &port[0]->local, &port[1 + i / 2]->local, port[0]->src_port);
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t count[2] = {0, 0};
        bool room = true;
        while (room) {
            uint32_t len = draw_len(&prng);
            unsigned p = (unsigned)vb_prng_below(&prng, 4);
            for (uint64_t n = vb_prng_range(&prng, 1, 80); n > 0 && room; n--) {
                uint32_t tag = (uint32_t)vb_prng_next(&prng);
                room = udp_kit_append(q, &path[p], len, tag);
                if (room)
                    sent[p / 2][count[p / 2]++] = (struct sent){len, tag};
                if (vb_prng_chance(&prng, 100000))
                    p ^= 1; // another queue pair of the same peer
            }
        }
        udp_kit_send(port[0], q);
        for (unsigned h = 0; h < 2; h++) {
            for (uint32_t got = 0; got < count[h];) {
                uint32_t n = udp_kit_receive(port[1 + h], frames, true);
                assert_true(n > 0 && got + n <= count[h]);
                for (uint32_t i = 0; i < n; i++, got++)
                    udp_kit_assert_frame(&frames[i], &port[0]->local, sent[h][got].len,
                                         sent[h][got].tag);
            }
            assert_int_equal(udp_kit_receive(port[1 + h], frames, false), 0);
        }
    }
    for (unsigned h = 0; h < UDP_KIT_HOSTS; h++) {
        assert_int_equal(port[h]->stats.rx_bad_icrc, 0);
        assert_int_equal(port[h]->stats.tx_errors, 0);
        port[h]->ops->close(port[h]);
    }
    free(frames);
    udp_kit_free_queue(q);
}

static void append(struct vb_txq *q, struct vb_path *path, uint8_t opcode, uint32_t len)
{
    uint32_t offset = q->used;
    assert_true(udp_kit_append(q, path, len, 1));
    q->arena[offset] = opcode;
}

// An ACK in front of a longer request goes behind it, so that both are one send. Nothing else does.
static void test_an_ack_goes_behind_the_answer(void **state)
{
    const struct {
        uint8_t opcode[2];
        uint32_t len[2];
        bool swapped;
    } rows[] = {
        {{VB_RC_ACK, VB_RC_SEND_ONLY}, {20, 96}, true},
        {{VB_RC_ACK, VB_RC_SEND_ONLY}, {20, 20}, false},
        {{VB_RC_ACK, VB_RC_READ_RESP_ONLY}, {20, 96}, false},
        {{VB_RC_SEND_ONLY, VB_RC_SEND_ONLY}, {20, 96}, false},
        {{VB_RC_SEND_ONLY, VB_RC_ACK}, {96, 20}, false},
    };
    int family = udp_kit_family(state);
    struct vb_port *port[2] = {udp_kit_open(family, 0), udp_kit_open(family, 1)};
    struct vb_path path;
    struct vb_txq *q = udp_kit_make_queue();
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    vb_path_init(&path, &port[0]->local, &port[1]->local, port[0]->src_port);
    for (unsigned r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (unsigned i = 0; i < 2; i++)
            append(q, &path, rows[r].opcode[i], rows[r].len[i]);
        udp_kit_send(port[0], q);
        for (unsigned got = 0; got < 2;) {
            uint32_t n = udp_kit_receive(port[1], frames, true);
            assert_true(n > 0 && got + n <= 2);
            for (uint32_t i = 0; i < n; i++, got++) {
                unsigned which = got ^ rows[r].swapped;
                assert_int_equal(frames[i].data[0], rows[r].opcode[which]);
                assert_int_equal(frames[i].len, rows[r].len[which]);
            }
        }
    }
    assert_int_equal(port[1]->stats.rx_bad_icrc, 0);
    for (unsigned i = 0; i < 2; i++)
        port[i]->ops->close(port[i]);
    free(frames);
    udp_kit_free_queue(q);
}

static void test_only_right_icrcs_pass(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *port = udp_kit_open(family, 1);
    struct udp_forger f = udp_kit_make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    udp_kit_forge(&f, 0, 32, 0);
    assert_int_equal(udp_kit_receive(port, frames, true), 1);
    udp_kit_forge(&f, 0, 32, 0x10);
    udp_kit_forge(&f, 0, 0, 0);
    udp_kit_forge(&f, 0, 12, 0);
    udp_kit_forge(&f, 0, 64, 0);
    assert_int_equal(udp_kit_receive(port, frames, true), 1); // what follows wrong ones is taken
    assert_int_equal(frames[0].len, 64);
    assert_int_equal(port->stats.rx_bad_icrc, 2);
    assert_int_equal(port->stats.rx_solved_icrc, 0);
    close(f.fd);
    port->ops->close(port);
    free(frames);
}

// A kernel's soft-RoCE counts identifications up and around, through zero and all small numbers.
static void test_a_counter_that_wraps_is_never_held_to_small_numbers(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *port = udp_kit_open(family, 1);
    struct udp_forger f = udp_kit_make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    for (uint32_t i = 0; i < 300; i++) {
        udp_kit_forge(&f, (uint16_t)(65500 + i), 32, 0);
        assert_int_equal(udp_kit_receive(port, frames, true), 1);
    }
    assert_int_equal(port->stats.rx_bad_icrc, 0);
    close(f.fd);
    port->ops->close(port);
    free(frames);
}

// A source that always sent zeros is not believed to count, unless it goes on counting.
static void test_a_calm_source_may_change_its_ways(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *port = udp_kit_open(family, 1);
    struct udp_forger f = udp_kit_make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    for (uint32_t i = 0; i < 100; i++) {
        udp_kit_forge(&f, 0, 32, 0);
        assert_int_equal(udp_kit_receive(port, frames, true), 1);
    }
    for (uint32_t i = 0; i < 10; i++)
        udp_kit_forge(&f, (uint16_t)(1000 + i), 32, 0);
    uint32_t taken = udp_kit_receive(port, frames, true);
    while (taken < 6)
        taken += udp_kit_receive(port, frames, true);
    assert_int_equal(port->stats.rx_bad_icrc, 4);
    close(f.fd);
    port->ops->close(port);
    free(frames);
}

// A kernel's soft-RoCE draws identifications; a source that never did is not believed to begin.
static void test_identifications_are_solved_but_for_calm_sources(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *port = udp_kit_open(family, 1);
    struct udp_forger wild = udp_kit_make_forger(port), calm = udp_kit_make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    for (uint16_t i = 0; i < 40; i++) {
        udp_kit_forge(&wild, (uint16_t)(i * 1999 + 300), 32, 0);
        assert_int_equal(udp_kit_receive(port, frames, true), 1);
    }
    assert_int_equal(port->stats.rx_solved_icrc, 40);
    for (uint16_t i = 0; i < 16; i++) {
        udp_kit_forge(&calm, 0, 32, 0);
        assert_int_equal(udp_kit_receive(port, frames, true), 1);
    }
    assert_int_equal(port->stats.rx_bad_icrc, 0);
    udp_kit_forge(&calm, 128, 32, 0);
    udp_kit_forge(&calm, 127, 48, 0);
    assert_int_equal(udp_kit_receive(port, frames, true) + udp_kit_receive(port, frames, false), 1);
    assert_int_equal(frames[0].len, 48);
    assert_int_equal(port->stats.rx_bad_icrc, 1);
    close(wild.fd);
    close(calm.fd);
    port->ops->close(port);
    free(frames);
}

enum {
    NAMES = 200,        // addresses of sources with one and the same port, as RoCE's usually are
    SOURCES = 2 * NAMES // the others: ports of one address
};

static void make_sources(int family, const struct vb_port *port, struct udp_forger *f)
{
    unsigned pid = (unsigned)getpid();
    char text[INET6_ADDRSTRLEN];
    for (unsigned i = 0; i < NAMES; i++) {
        f[NAMES + i] = udp_kit_make_forger(port);
        // Addresses of this process that differ in one half, or in one of few bytes.
        if (family == AF_INET) {
            snprintf(text, sizeof text, "127.%u.%u.%u", 160 + i % 64, (pid >> 8 & 255) ^ i / 64,
                     pid & 255);
        } else {
            snprintf(text, sizeof text, i % 2 ? "fd00:%x::5eed" : "fd00::5eed:%x", i);
            udp_kit_add_address(text);
        }
        f[i] = udp_kit_make_forger_at(text, f[NAMES].path.src_port, port);
    }
}

// More sources than the port remembers, in turns: each frame is judged as its own sender's.
static void test_sources_beyond_memory_are_met_again(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *port = udp_kit_open(family, 1);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH + 1, sizeof *frames);
    static struct udp_forger f[SOURCES];
    make_sources(family, port, f);
    for (unsigned i = 0; i < 3 * SOURCES; i++) {
        struct udp_forger *from = &f[i % SOURCES];
        uint32_t right = i % 7 == 0 ? 1 : 2;
        udp_kit_forge(from, 0, 32, right == 1);
        udp_kit_forge(from, 0, 48, 0);
        for (uint32_t n = 0; n < right;) {
            uint32_t more = udp_kit_receive(port, frames + n, true);
            assert_in_range(more, 1, right - n);
            for (; more > 0; more--, n++)
                assert_true(vb_ip_equal(&frames[n].src, &from->path.local));
        }
        assert_int_equal(frames[right - 1].len, 48);
    }
    assert_int_equal(port->stats.rx_bad_icrc, (3 * SOURCES + 6) / 7);
    for (unsigned i = 0; i < SOURCES; i++)
        close(f[i].fd);
    port->ops->close(port);
    free(frames);
}

static ssize_t send_segments(struct udp_forger *f, uint8_t *bytes, size_t len, uint16_t segment)
{
    struct iovec iov = {.iov_base = bytes, .iov_len = len};
    union {
        struct cmsghdr head;
        uint8_t bytes[CMSG_SPACE(sizeof(uint16_t))];
    } control = {.head = {.cmsg_level = SOL_UDP,
                          .cmsg_type = UDP_SEGMENT,
                          .cmsg_len = CMSG_LEN(sizeof(uint16_t))}};
    memcpy(CMSG_DATA(&control.head), &segment, sizeof segment);
    struct msghdr h = {.msg_name = &f->to,
                       .msg_namelen = f->to_bytes,
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    return sendmsg(f->fd, &h, 0);
}

// Kernels since 6.9 merge up to 128 packets: more frames than fit may come with one system call.
static void test_frames_past_the_batch_are_kept(void **state)
{
    int family = udp_kit_family(state);
    enum {
        SEGMENTS = 100,
        BYTES = 32,
        MESSAGES = 10
    };
    struct vb_port *port = udp_kit_open(family, 1);
    struct udp_forger f = udp_kit_make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    static uint8_t bytes[SEGMENTS * BYTES];
    for (uint16_t i = 0; i < SEGMENTS; i++) {
        memset(bytes + i * BYTES, i, BYTES);
        vb_icrc_seal(&f.path.icrc, i, bytes + i * BYTES, BYTES);
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (send_segments(&f, bytes, sizeof bytes, BYTES) < 0) {
            assert_int_equal(errno, EINVAL); // an older kernel: 64
            assert_int_equal(send_segments(&f, bytes, 64 * BYTES, BYTES), 64 * BYTES);
            assert_int_equal(send_segments(&f, bytes, 36 * BYTES, BYTES), 36 * BYTES);
        }
    }
    uint32_t got = 0;
    while (got < MESSAGES * SEGMENTS) {
        uint32_t n = udp_kit_receive(port, frames, true);
        assert_true(n > 0);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(frames[i].len, BYTES);
        got += n;
    }
    assert_int_equal(got, MESSAGES * SEGMENTS);
    assert_int_equal(port->stats.rx_bad_icrc, 0);
    close(f.fd);
    port->ops->close(port);
    free(frames);
}

// The port receives lone frames and streams differently; changing over must lose nothing.
static void test_lone_frames_and_streams_take_turns(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *from = udp_kit_open(family, 0), *to = udp_kit_open(family, 1);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    struct vb_txq *q = udp_kit_make_queue();
    struct vb_path path;
    vb_path_init(&path, &from->local, &to->local, from->src_port);
    for (uint32_t round = 0; round < 6; round++) {
        for (uint32_t i = 0; i < 100; i++) {
            udp_kit_append(q, &path, 96, i);
            udp_kit_send(from, q);
            assert_int_equal(udp_kit_receive(to, frames, true), 1);
            udp_kit_assert_frame(&frames[0], &from->local, 96, i);
            assert_int_equal(udp_kit_receive(to, frames, false), 0);
        }
        for (uint32_t i = 0; i < 200; i++)
            udp_kit_append(q, &path, round % 2 ? 1044 : 96, i);
        udp_kit_send(from, q);
        for (uint32_t got = 0; got < 200;) {
            uint32_t n = udp_kit_receive(to, frames, true);
            assert_true(n > 0);
            for (uint32_t i = 0; i < n; i++, got++)
                udp_kit_assert_frame(&frames[i], &from->local, round % 2 ? 1044 : 96, got);
        }
    }
    assert_int_equal(to->stats.rx_bad_icrc, 0);
    from->ops->close(from);
    to->ops->close(to);
    free(frames);
    udp_kit_free_queue(q);
}

// A frame that the system refuses is counted and left behind; the next ones go.
static void test_refused_frames_are_skipped(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *from = udp_kit_open(family, 0), *to = udp_kit_open(family, 1);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    // Broadcast: EACCES. Without a route: ENETUNREACH.
    static const struct vb_ip nowhere_v4 = {.b = {[10] = 0xff, 0xff, 255, 255, 255, 255}};
    static const struct vb_ip nowhere_v6 = {.b = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}};
    const struct vb_ip *nowhere = family == AF_INET ? &nowhere_v4 : &nowhere_v6;
    struct vb_path bad, good;
    struct vb_txq *q = udp_kit_make_queue();
    vb_path_init(&bad, &from->local, nowhere, from->src_port);
    vb_path_init(&good, &from->local, &to->local, from->src_port);
    udp_kit_append(q, &bad, 64, 1);
    udp_kit_send(from, q);
    assert_int_equal(from->stats.tx_errors, 1);
    udp_kit_append(q, &good, 64, 2);
    udp_kit_append(q, &bad, 64, 3);
    udp_kit_append(q, &bad, 64, 4);
    udp_kit_append(q, &good, 64, 5);
    udp_kit_send(from, q);
    assert_int_equal(from->stats.tx_errors, 3);
    uint32_t n = udp_kit_receive(to, frames, true);
    if (n == 1)
        n += udp_kit_receive(to, frames, true);
    assert_int_equal(n, 2);
    from->ops->close(from);
    to->ops->close(to);
    free(frames);
    udp_kit_free_queue(q);
}

static void assert_refused(const char *address, int error, const char *words)
{
    char why[VB_ERROR_TEXT] = "";
    struct vb_udp_opts opts = {.address = address, .error_text = why};
    struct vb_port *port = NULL;
    assert_int_equal(vb_udp_open(&opts, &port), error);
    if (strstr(why, words) == NULL)
        fail_msg("'%s' does not say '%s'", why, words);
    opts.error_text = NULL;
    assert_int_equal(vb_udp_open(&opts, &port), error);
    assert_null(port);
}

static int receive_buffer(uint32_t socket_bytes)
{
    char text[INET6_ADDRSTRLEN];
    struct vb_udp_opts opts = {.address = udp_kit_address(AF_INET, 0, text),
                               .socket_bytes = socket_bytes};
    struct vb_port *port = NULL;
    int bytes = 0;
    socklen_t len = sizeof bytes;
    assert_int_equal(vb_udp_open(&opts, &port), 0);
    assert_int_equal(getsockopt(port->ops->sleep(port), SOL_SOCKET, SO_RCVBUF, &bytes, &len), 0);
    port->ops->close(port);
    return bytes;
}

// The system doubles what is asked for.
static void test_buffers_as_asked_for(void **state)
{
    (void)state;
    assert_int_equal(receive_buffer(50000), 100000);
    assert_true(receive_buffer(0) > 100000);
}

static void test_errors_speak(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *port = udp_kit_open(family, 0);
    char text[INET6_ADDRSTRLEN];
    assert_refused(udp_kit_address(family, 0, text), -EADDRINUSE, "another, for example 127.");
    assert_refused("192.0.2.1", -EADDRNOTAVAIL, "192.0.2.1 is not an address of this machine");
    assert_refused("localhost", -EINVAL, "'localhost' is not an IP address");
    assert_refused("", -EINVAL, "'' is not an IP address");
    assert_refused("127.0.0.1:4791", -EINVAL, "one looks like 127.0.0.1");
    assert_refused("127.0.0.1%lo", -EINVAL, "one looks like 127.0.0.1");
    assert_refused("0.0.0.0", -EINVAL, "does not name one machine");
    assert_refused("224.0.0.1", -EINVAL, "does not name one machine");
    port->ops->close(port);
    port = udp_kit_open(family, 0); // free again
    port->ops->close(port);
}

// Identifications are IPv4's alone.
static const struct CMUnitTest v4_tests[] = {
    UDP_KIT_TEST(test_mixed_frames_arrive_whole, udp_kit_v4),
    UDP_KIT_TEST(test_an_ack_goes_behind_the_answer, udp_kit_v4),
    UDP_KIT_TEST(test_only_right_icrcs_pass, udp_kit_v4),
    UDP_KIT_TEST(test_identifications_are_solved_but_for_calm_sources, udp_kit_v4),
    UDP_KIT_TEST(test_a_counter_that_wraps_is_never_held_to_small_numbers, udp_kit_v4),
    UDP_KIT_TEST(test_a_calm_source_may_change_its_ways, udp_kit_v4),
    UDP_KIT_TEST(test_sources_beyond_memory_are_met_again, udp_kit_v4),
    UDP_KIT_TEST(test_frames_past_the_batch_are_kept, udp_kit_v4),
    UDP_KIT_TEST(test_lone_frames_and_streams_take_turns, udp_kit_v4),
    UDP_KIT_TEST(test_refused_frames_are_skipped, udp_kit_v4),
    UDP_KIT_TEST(test_errors_speak, udp_kit_v4),
    UDP_KIT_TEST(test_buffers_as_asked_for, udp_kit_v4),
};

static const struct CMUnitTest v6_tests[] = {
    UDP_KIT_TEST(test_mixed_frames_arrive_whole, udp_kit_v6),
    UDP_KIT_TEST(test_an_ack_goes_behind_the_answer, udp_kit_v6),
    UDP_KIT_TEST(test_only_right_icrcs_pass, udp_kit_v6),
    UDP_KIT_TEST(test_sources_beyond_memory_are_met_again, udp_kit_v6),
    UDP_KIT_TEST(test_frames_past_the_batch_are_kept, udp_kit_v6),
    UDP_KIT_TEST(test_lone_frames_and_streams_take_turns, udp_kit_v6),
    UDP_KIT_TEST(test_refused_frames_are_skipped, udp_kit_v6),
};

int main(void)
{
    int failed = cmocka_run_group_tests(v4_tests, NULL, NULL);
    if (udp_kit_enter_v6(&failed))
        failed += cmocka_run_group_tests(v6_tests, NULL, NULL);
    return failed;
}
