// SPDX-License-Identifier: Apache-2.0
// The udp port on loopback: what is sent arrives whole, what is wrong does not, and errors speak.
#include "base/prng.h"
#include "port/clock.h"
#include "port/udp.h"
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
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    HOSTS = 3,
    PATIENCE_NS = 2000000000
};

// Addresses of this process alone, so that tests can run beside each other.
static const char *host_address(unsigned host, char text[INET_ADDRSTRLEN])
{
    unsigned pid = (unsigned)getpid();
    snprintf(text, INET_ADDRSTRLEN, "127.%u.%u.%u", 64 + host * 32 + (pid >> 16 & 31),
             pid >> 8 & 255, pid & 255);
    return text;
}

static struct vb_port *open_host(unsigned host, uint32_t drop_ppm)
{
    char text[INET_ADDRSTRLEN];
    char why[VB_ERROR_TEXT] = "";
    struct vb_udp_opts opts = {.address = host_address(host, text),
                               .drop_ppm = drop_ppm,
                               .fault_seed = 7,
                               .error_text = why};
    struct vb_port *port = NULL;
    int error = vb_udp_open(&opts, &port);
    if (error)
        fail_msg("%s", why);
    return port;
}

static struct vb_txq *make_queue(void)
{
    struct vb_txq *q = calloc(1, sizeof *q);
    assert_non_null(q);
    q->arena = calloc(1, VB_TX_BYTES);
    assert_non_null(q->arena);
    return q;
}

static void free_queue(struct vb_txq *q)
{
    free(q->arena);
    free(q);
}

// Appends a frame whose bytes follow from `tag`. False: no room.
static bool append(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag)
{
    if (q->count == VB_TX_FRAMES || q->used + len > VB_TX_BYTES)
        return false;
    struct vb_prng prng = {.state = tag};
    uint8_t *bytes = q->arena + q->used;
    for (uint32_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)vb_prng_next(&prng);
    q->frame[q->count++] = (struct vb_tx_frame){.path = path, .offset = q->used, .len = len};
    q->used += len;
    return true;
}

static void send_all(struct vb_port *port, struct vb_txq *q)
{
    uint64_t give_up = vb_clock_ns() + PATIENCE_NS;
    while (q->taken < q->count) {
        port->ops->send(port, q);
        assert_true(vb_clock_ns() < give_up);
    }
    q->used = q->count = q->taken = 0;
}

static void assert_frame(const struct vb_rx_frame *f, const struct vb_ip *src, uint32_t len,
                         uint32_t tag)
{
    struct vb_prng prng = {.state = tag};
    assert_int_equal(f->len, len);
    assert_true(vb_ip_equal(&f->src, src));
    for (uint32_t i = 0; i + VB_ICRC_BYTES < len; i++)
        assert_int_equal(f->data[i], (uint8_t)vb_prng_next(&prng));
}

// Receives once; waits for something to come if `wanted`.
static uint32_t receive(struct vb_port *port, struct vb_rx_frame *frames, bool wanted)
{
    uint64_t give_up = vb_clock_ns() + PATIENCE_NS;
    for (;;) {
        uint32_t n = port->ops->receive(port, frames);
        assert_true(n <= VB_PORT_RX_BATCH);
        if (n || !wanted || vb_clock_ns() > give_up)
            return n;
        sched_yield();
    }
}

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
    (void)state;
    struct vb_prng prng = {.state = 1};
    struct vb_port *port[HOSTS];
    struct vb_path path[4];
    struct vb_txq *q = make_queue();
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    static struct sent sent[2][VB_TX_FRAMES];
    for (unsigned h = 0; h < HOSTS; h++)
        port[h] = open_host(h, 0);
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
                room = append(q, &path[p], len, tag);
                if (room)
                    sent[p / 2][count[p / 2]++] = (struct sent){len, tag};
                if (vb_prng_chance(&prng, 100000))
                    p ^= 1; // another queue pair of the same peer
            }
        }
        send_all(port[0], q);
        for (unsigned h = 0; h < 2; h++) {
            for (uint32_t got = 0; got < count[h];) {
                uint32_t n = receive(port[1 + h], frames, true);
                assert_true(n > 0 && got + n <= count[h]);
                for (uint32_t i = 0; i < n; i++, got++)
                    assert_frame(&frames[i], &port[0]->local, sent[h][got].len, sent[h][got].tag);
            }
            assert_int_equal(receive(port[1 + h], frames, false), 0);
        }
    }
    for (unsigned h = 0; h < HOSTS; h++) {
        assert_int_equal(port[h]->stats.rx_bad_icrc, 0);
        assert_int_equal(port[h]->stats.tx_errors, 0);
        port[h]->ops->close(port[h]);
    }
    free(frames);
    free_queue(q);
}

// A plain socket beside host 0 that can send what a port never would.
struct forger {
    int fd;
    struct sockaddr_in to;
    struct vb_icrc_flow flow;
};

static struct forger make_forger(const struct vb_port *target)
{
    struct forger f = {.fd = socket(AF_INET, SOCK_DGRAM, 0), .to = {.sin_family = AF_INET}};
    char text[INET_ADDRSTRLEN];
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    assert_true(f.fd >= 0);
    assert_int_equal(inet_pton(AF_INET, host_address(0, text), &at.sin_addr), 1);
    assert_int_equal(bind(f.fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(f.fd, (struct sockaddr *)&at, &len), 0);
    f.to.sin_port = htons(VB_ROCE_UDP_PORT);
    memcpy(&f.to.sin_addr, target->local.b + 12, 4);
    vb_icrc_flow_init_v4(&f.flow, (const uint8_t *)&at.sin_addr, target->local.b + 12,
                         ntohs(at.sin_port), VB_ROCE_UDP_PORT);
    return f;
}

// Sends a frame sealed for `id`, with `flip` exclusive-ored into one of its bytes.
static void forge(struct forger *f, uint16_t id, uint32_t len, uint8_t flip)
{
    uint8_t frame[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_true(len <= sizeof frame);
    if (len >= 16) {
        vb_icrc_seal(&f->flow, id, frame, len);
        frame[len / 2] ^= flip;
    }
    assert_int_equal(sendto(f->fd, frame, len, 0, (const struct sockaddr *)&f->to, sizeof f->to),
                     len);
}

static void test_only_right_icrcs_pass(void **state)
{
    (void)state;
    struct vb_port *port = open_host(1, 0);
    struct forger f = make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    forge(&f, 0, 32, 0);
    assert_int_equal(receive(port, frames, true), 1);
    forge(&f, 0, 32, 0x10);
    forge(&f, 0, 0, 0);
    forge(&f, 0, 12, 0);
    forge(&f, 0, 64, 0);
    assert_int_equal(receive(port, frames, true), 1); // what follows wrong ones is taken
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
    (void)state;
    struct vb_port *port = open_host(1, 0);
    struct forger f = make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    for (uint32_t i = 0; i < 300; i++) {
        forge(&f, (uint16_t)(65500 + i), 32, 0);
        assert_int_equal(receive(port, frames, true), 1);
    }
    assert_int_equal(port->stats.rx_bad_icrc, 0);
    close(f.fd);
    port->ops->close(port);
    free(frames);
}

// A source that always sent zeros is not believed to count, unless it goes on counting.
static void test_a_calm_source_may_change_its_ways(void **state)
{
    (void)state;
    struct vb_port *port = open_host(1, 0);
    struct forger f = make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    for (uint32_t i = 0; i < 100; i++) {
        forge(&f, 0, 32, 0);
        assert_int_equal(receive(port, frames, true), 1);
    }
    for (uint32_t i = 0; i < 10; i++)
        forge(&f, (uint16_t)(1000 + i), 32, 0);
    uint32_t taken = receive(port, frames, true);
    while (taken < 6)
        taken += receive(port, frames, true);
    assert_int_equal(port->stats.rx_bad_icrc, 4);
    close(f.fd);
    port->ops->close(port);
    free(frames);
}

// A kernel's soft-RoCE draws identifications; a source that never did is not believed to begin.
static void test_identifications_are_solved_but_for_calm_sources(void **state)
{
    (void)state;
    struct vb_port *port = open_host(1, 0);
    struct forger wild = make_forger(port), calm = make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    for (uint16_t i = 0; i < 40; i++) {
        forge(&wild, (uint16_t)(i * 1999 + 300), 32, 0);
        assert_int_equal(receive(port, frames, true), 1);
    }
    assert_int_equal(port->stats.rx_solved_icrc, 40);
    for (uint16_t i = 0; i < 16; i++) {
        forge(&calm, 0, 32, 0);
        assert_int_equal(receive(port, frames, true), 1);
    }
    assert_int_equal(port->stats.rx_bad_icrc, 0);
    forge(&calm, 128, 32, 0);
    forge(&calm, 127, 48, 0);
    assert_int_equal(receive(port, frames, true) + receive(port, frames, false), 1);
    assert_int_equal(frames[0].len, 48);
    assert_int_equal(port->stats.rx_bad_icrc, 1);
    close(wild.fd);
    close(calm.fd);
    port->ops->close(port);
    free(frames);
}

static ssize_t send_segments(struct forger *f, uint8_t *bytes, size_t len, uint16_t segment)
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
                       .msg_namelen = sizeof f->to,
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    return sendmsg(f->fd, &h, 0);
}

// Kernels since 6.9 merge up to 128 packets: more frames than fit may come with one system call.
static void test_frames_past_the_batch_are_kept(void **state)
{
    (void)state;
    enum {
        SEGMENTS = 100,
        BYTES = 32,
        MESSAGES = 10
    };
    struct vb_port *port = open_host(1, 0);
    struct forger f = make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    static uint8_t bytes[SEGMENTS * BYTES];
    for (uint16_t i = 0; i < SEGMENTS; i++) {
        memset(bytes + i * BYTES, i, BYTES);
        vb_icrc_seal(&f.flow, i, bytes + i * BYTES, BYTES);
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
        uint32_t n = receive(port, frames, true);
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
    (void)state;
    struct vb_port *from = open_host(0, 0), *to = open_host(1, 0);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    struct vb_txq *q = make_queue();
    struct vb_path path;
    vb_path_init(&path, &from->local, &to->local, from->src_port);
    for (uint32_t round = 0; round < 6; round++) {
        for (uint32_t i = 0; i < 100; i++) {
            append(q, &path, 96, i);
            send_all(from, q);
            assert_int_equal(receive(to, frames, true), 1);
            assert_frame(&frames[0], &from->local, 96, i);
            assert_int_equal(receive(to, frames, false), 0);
        }
        for (uint32_t i = 0; i < 200; i++)
            append(q, &path, round % 2 ? 1044 : 96, i);
        send_all(from, q);
        for (uint32_t got = 0; got < 200;) {
            uint32_t n = receive(to, frames, true);
            assert_true(n > 0);
            for (uint32_t i = 0; i < n; i++, got++)
                assert_frame(&frames[i], &from->local, round % 2 ? 1044 : 96, got);
        }
    }
    assert_int_equal(to->stats.rx_bad_icrc, 0);
    from->ops->close(from);
    to->ops->close(to);
    free(frames);
    free_queue(q);
}

// Sends 20 * 100 frames and counts what comes.
static uint32_t count_arrivals(struct vb_port *from, struct vb_port *to)
{
    struct vb_path path;
    struct vb_txq *q = make_queue();
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    uint32_t got = 0;
    vb_path_init(&path, &from->local, &to->local, from->src_port);
    for (uint32_t round = 0; round < 20; round++) {
        uint64_t before = from->stats.faults_dropped + to->stats.faults_dropped + got;
        for (uint32_t i = 0; i < 100; i++)
            append(q, &path, 96, i);
        send_all(from, q);
        uint64_t give_up = vb_clock_ns() + PATIENCE_NS;
        while (from->stats.faults_dropped + to->stats.faults_dropped + got < before + 100) {
            got += receive(to, frames, false);
            assert_true(vb_clock_ns() < give_up);
        }
    }
    assert_int_equal(receive(to, frames, false), 0);
    free(frames);
    free_queue(q);
    return got;
}

static void test_faults_drop_both_ways(void **state)
{
    (void)state;
    for (unsigned faulty = 0; faulty < 2; faulty++) {
        struct vb_port *from = open_host(0, faulty == 0 ? 300000 : 0);
        struct vb_port *to = open_host(1, faulty == 1 ? 300000 : 0);
        uint32_t got = count_arrivals(from, to);
        uint64_t lost = (faulty == 0 ? from : to)->stats.faults_dropped;
        assert_int_equal(got + lost, 2000);
        assert_in_range(lost, 450, 750);
        assert_int_equal(to->stats.rx_bad_icrc, 0);
        from->ops->close(from);
        to->ops->close(to);
    }
    struct vb_port *from = open_host(0, 1000000), *to = open_host(1, 0);
    assert_int_equal(count_arrivals(from, to), 0);
    assert_int_equal(from->stats.faults_dropped, 2000);
    from->ops->close(from);
    to->ops->close(to);
}

// A frame that the system refuses is counted and left behind; the next ones go.
static void test_refused_frames_are_skipped(void **state)
{
    (void)state;
    struct vb_port *from = open_host(0, 0), *to = open_host(1, 0);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    struct vb_ip nowhere = {.b = {[10] = 0xff, 0xff, 255, 255, 255, 255}}; // broadcast: EACCES
    struct vb_path bad, good;
    struct vb_txq *q = make_queue();
    vb_path_init(&bad, &from->local, &nowhere, from->src_port);
    vb_path_init(&good, &from->local, &to->local, from->src_port);
    append(q, &bad, 64, 1);
    send_all(from, q);
    assert_int_equal(from->stats.tx_errors, 1);
    append(q, &good, 64, 2);
    append(q, &bad, 64, 3);
    append(q, &bad, 64, 4);
    append(q, &good, 64, 5);
    send_all(from, q);
    assert_int_equal(from->stats.tx_errors, 3);
    uint32_t n = receive(to, frames, true);
    if (n == 1)
        n += receive(to, frames, true);
    assert_int_equal(n, 2);
    from->ops->close(from);
    to->ops->close(to);
    free(frames);
    free_queue(q);
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

static void test_errors_speak(void **state)
{
    (void)state;
    struct vb_port *port = open_host(0, 0);
    char text[INET_ADDRSTRLEN];
    assert_refused(host_address(0, text), -EADDRINUSE, "another, for example 127.");
    assert_refused("192.0.2.1", -EADDRNOTAVAIL, "192.0.2.1 is not an address of this machine");
    assert_refused("localhost", -EINVAL, "'localhost' is not an IPv4 address");
    assert_refused("", -EINVAL, "'' is not an IPv4 address");
    assert_refused("::1", -EINVAL, "one looks like 127.0.0.1");
    assert_refused("0.0.0.0", -EINVAL, "does not name one machine");
    assert_refused("224.0.0.1", -EINVAL, "does not name one machine");
    port->ops->close(port);
    port = open_host(0, 0); // free again
    port->ops->close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_frames_arrive_whole),
        cmocka_unit_test(test_only_right_icrcs_pass),
        cmocka_unit_test(test_identifications_are_solved_but_for_calm_sources),
        cmocka_unit_test(test_a_counter_that_wraps_is_never_held_to_small_numbers),
        cmocka_unit_test(test_a_calm_source_may_change_its_ways),
        cmocka_unit_test(test_frames_past_the_batch_are_kept),
        cmocka_unit_test(test_lone_frames_and_streams_take_turns),
        cmocka_unit_test(test_faults_drop_both_ways),
        cmocka_unit_test(test_refused_frames_are_skipped),
        cmocka_unit_test(test_errors_speak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
