// SPDX-License-Identifier: Apache-2.0
// Frames that nobody acknowledges wait for a receiver on this machine whose socket is full, and
// none of them is lost; others do not wait.
#include "../wait.h"
#include "base/bytes.h"
#include "port/clock.h"
#include "port/udp.h"
#include "runtime_dir.h"
#include "skips.h"
#include "udp_kit.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <unistd.h>

#include <cmocka.h>

enum {
    FRAMES = 2000,
    FRAME_BYTES = 1024,
    BATCH = 50,
    SOCKET_BYTES = 64 * 1024, // far less than all frames
    SHARERS = 4,
};

struct stream {
    struct vb_port *from, *to;
    struct vb_txq *q;
    struct vb_path path;
    uint8_t opcode;
    uint32_t qpn; // 0: nobody's in particular
    uint32_t appended, held, received;
};

static struct vb_port *open_as(int family, unsigned host, bool shared)
{
    struct vb_port *port = udp_kit_open_with(
        family, host, (struct vb_udp_opts){.socket_bytes = SOCKET_BYTES, .shared = shared});
    assert_int_equal(vb_ip_is_v4(&port->local), family == AF_INET);
    return port;
}

static struct vb_port *open_small(int family, unsigned host)
{
    return open_as(family, host, false);
}

static void open_stream(struct stream *s, int family, uint8_t opcode)
{
    *s = (struct stream){.from = open_small(family, 0),
                         .to = open_small(family, 1),
                         .q = udp_kit_make_queue(),
                         .opcode = opcode};
    vb_path_init(&s->path, &s->from->local, &s->to->local, VB_ROCE_UDP_PORT);
}

static void close_stream(struct stream *s)
{
    udp_kit_free_queue(s->q);
    s->from->ops->close(s->from);
    s->to->ops->close(s->to);
}

static void append(struct stream *s)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        uint32_t at = s->q->used;
        assert_true(udp_kit_append(s->q, &s->path, FRAME_BYTES, s->appended++));
        s->q->arena[at] = s->opcode;
        if (s->qpn)
            vb_put_be24(s->q->arena + at + 5, s->qpn);
    }
}

// Sends what is there; false: some of it has to wait.
static bool send_once(struct stream *s)
{
    s->from->ops->send(s->from, s->q);
    if (s->q->taken < s->q->count)
        return false;
    s->q->used = s->q->count = s->q->taken = 0;
    return true;
}

static void take_all(struct stream *s)
{
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    uint32_t n;

    while ((n = s->to->ops->receive(s->to, frames)) > 0)
        s->received += n;
}

// The receiver only takes when the sender has to wait, or at the end.
static void run(struct stream *s)
{
    while (s->appended < FRAMES) {
        append(s);
        while (!send_once(s)) {
            s->held++;
            take_all(s);
        }
    }
    take_all(s);
}

static void test_unacknowledged_frames_wait(void **state)
{
    static const uint8_t opcodes[] = {VB_UC_BASE + VB_RC_WRITE_MIDDLE, VB_UD_SEND_ONLY};
    struct stream s;

    for (unsigned i = 0; i < sizeof opcodes; i++) {
        open_stream(&s, udp_kit_family(state), opcodes[i]);
        run(&s);
        assert_true(s.held > 0);
        assert_int_equal(s.received, FRAMES);
        close_stream(&s);
    }
}

static void test_others_do_not_wait(void **state)
{
    struct stream s;

    open_stream(&s, udp_kit_family(state), VB_RC_WRITE_MIDDLE);
    run(&s);
    assert_int_equal(s.held, 0);
    assert_true(s.received < FRAMES); // they are sent again when nobody acknowledges them
    close_stream(&s);
}

// Of a receiver that never takes anything nobody waits for ever.
static void test_waiting_ends(void **state)
{
    struct stream s;
    uint32_t waits = 0;

    open_stream(&s, udp_kit_family(state), VB_UD_SEND_ONLY);
    while (s.appended < FRAMES) {
        append(&s);
        if (send_once(&s))
            continue;
        waits++;
        WAIT_UNTIL(send_once(&s));
    }
    assert_int_equal(waits, 1); // once is enough
    take_all(&s);
    assert_true(s.received < FRAMES);
    append(&s); // there is room again
    assert_true(send_once(&s));
    close_stream(&s);
}

// Nobody is there: nothing is known of it, as of one on another machine.
static void test_elsewhere(void **state)
{
    struct stream s;

    open_stream(&s, udp_kit_family(state), VB_UD_SEND_ONLY);
    s.to->ops->close(s.to);
    while (s.appended < FRAMES) {
        append(&s);
        assert_true(send_once(&s));
    }
    s.to = open_small(udp_kit_family(state), 1);
    close_stream(&s);
}

// Of several NICs on an address the one that a frame is for must have room, whatever the others
// have.
static void test_shared_addresses(void **state)
{
    int family = udp_kit_family(state);
    struct vb_port *sharer[SHARERS];
    struct stream s = {.from = open_as(family, 0, true), .opcode = VB_UD_SEND_ONLY};

    for (unsigned i = 0; i < SHARERS; i++)
        sharer[i] = open_as(family, 1, true);
    s.q = udp_kit_make_queue();
    vb_path_init(&s.path, &s.from->local, &sharer[0]->local, VB_ROCE_UDP_PORT);
    for (unsigned i = 0; i < SHARERS; i++) {
        s.to = sharer[(i + 1) % SHARERS];
        s.qpn = s.to->qpn_base + 77;
        s.appended = s.held = s.received = 0;
        for (unsigned j = 0; j < SHARERS; j++) // probes are out of the way
            (void)sharer[j]->ops->receive(sharer[j], (struct vb_rx_frame[VB_PORT_RX_BATCH]){0});
        run(&s);
        assert_true(s.held > 0);
        assert_int_equal(s.received, FRAMES);
    }
    udp_kit_free_queue(s.q);
    s.from->ops->close(s.from);
    for (unsigned i = 0; i < SHARERS; i++)
        sharer[i]->ops->close(sharer[i]);
}

int main(void)
{
    const char *why = udp_kit_enter_net();
    const struct CMUnitTest v4[] = {
        UDP_KIT_TEST(test_unacknowledged_frames_wait, udp_kit_v4),
        UDP_KIT_TEST(test_others_do_not_wait, udp_kit_v4),
        UDP_KIT_TEST(test_waiting_ends, udp_kit_v4),
        UDP_KIT_TEST(test_elsewhere, udp_kit_v4),
        UDP_KIT_TEST(test_shared_addresses, udp_kit_v4),
    };
    const struct CMUnitTest v6[] = {
        UDP_KIT_TEST(test_unacknowledged_frames_wait, udp_kit_v6),
        UDP_KIT_TEST(test_others_do_not_wait, udp_kit_v6),
        UDP_KIT_TEST(test_waiting_ends, udp_kit_v6),
        UDP_KIT_TEST(test_elsewhere, udp_kit_v6),
        UDP_KIT_TEST(test_shared_addresses, udp_kit_v6),
    };
    int failed = cmocka_run_group_tests(v4, runtime_dir_make, runtime_dir_remove);
    if (why)
        failed += skips_group("ipv6", why);
    else
        failed += cmocka_run_group_tests(v6, runtime_dir_make, runtime_dir_remove);
    return failed;
}
