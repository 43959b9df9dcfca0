// SPDX-License-Identifier: Apache-2.0
// The auto port: memory where it reaches, UDP elsewhere, and changing from one to the other.
#include "port/auto.h"
#include "port/clock.h"
#include "port/udp.h"
#include "shm_kit.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include <cmocka.h>

// Addresses of this process alone, so that tests can run beside each other.
static const char *host_address(unsigned host, char text[INET_ADDRSTRLEN])
{
    unsigned pid = (unsigned)getpid();
    snprintf(text, INET_ADDRSTRLEN, "127.%u.%u.%u", 160 + host * 16 + (pid >> 16 & 15),
             pid >> 8 & 255, pid & 255);
    return text;
}

static struct vb_port *open_udp(unsigned host)
{
    char text[INET_ADDRSTRLEN];
    char why[VB_ERROR_TEXT] = "";
    struct vb_udp_opts opts = {.address = host_address(host, text), .error_text = why};
    struct vb_port *port = NULL;
    if (vb_udp_open(&opts, &port) < 0)
        fail_msg("%s", why);
    return port;
}

static struct vb_port *open_auto(const char *dir, unsigned host)
{
    char text[INET_ADDRSTRLEN];
    char why[VB_ERROR_TEXT] = "";
    struct vb_auto_opts opts = {.shm = kit_open_shm(dir, host_address(host, text), 0),
                                .udp = open_udp(host),
                                .error_text = why};
    struct vb_port *port = NULL;
    if (vb_auto_open(&opts, &port) < 0)
        fail_msg("%s", why);
    return port;
}

struct scene {
    struct vb_port *a, *b;
    struct vb_path path; // from a to b
    struct vb_txq *q;
    struct vb_rx_frame *frames;
};

static struct scene make_scene(struct vb_port *a, struct vb_port *b)
{
    struct scene s = {.a = a, .b = b, .q = kit_make_queue()};
    s.frames = calloc(VB_PORT_RX_BATCH, sizeof *s.frames);
    assert_non_null(s.frames);
    vb_path_init(&s.path, &a->local, &b->local, a->src_port);
    return s;
}

static void free_scene(struct scene *s)
{
    kit_close(s->a);
    kit_close(s->b);
    kit_free_queue(s->q);
    free(s->frames);
}

// Sends one frame to `port` and says which way it came.
static bool passes_by_shm(struct scene *s, struct vb_port *from, struct vb_port *to, uint32_t tag)
{
    struct vb_path path = {0};
    vb_path_init(&path, &from->local, &to->local, from->src_port);
    kit_send(from, s->q, &path, 200, tag);
    assert_int_equal(kit_await(to, s->frames), 1);
    assert_true(kit_same_bytes(&s->frames[0], 200, tag));
    assert_true(vb_ip_equal(&s->frames[0].src, &from->local));
    return kit_came_by_shm(&s->frames[0]);
}

static void test_memory_where_it_reaches(void **state)
{
    struct scene s = make_scene(open_auto(*state, 0), open_auto(*state, 1));
    struct vb_port *far = open_udp(2);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(passes_by_shm(&s, s.a, s.b, i));
        assert_true(passes_by_shm(&s, s.b, s.a, i));
        assert_true(passes_by_shm(&s, s.a, s.a, i));
        assert_false(passes_by_shm(&s, s.a, far, i));
        assert_false(passes_by_shm(&s, far, s.a, i));
    }
    assert_int_equal(s.a->stats.tx_errors + s.b->stats.tx_errors, 0);
    kit_close(far);
    free_scene(&s);
}

// Runs for both in one queue: each destination gets its own, in order.
static void test_a_mixed_queue_is_split(void **state)
{
    struct scene s = make_scene(open_auto(*state, 0), open_auto(*state, 1));
    struct vb_port *far = open_udp(2);
    struct vb_path far_path = {0};
    vb_path_init(&far_path, &s.a->local, &far->local, s.a->src_port);
    for (uint32_t i = 0; i < 120; i++)
        assert_true(kit_append(s.q, i / 7 % 2 ? &far_path : &s.path, 100, i));
    kit_send_all(s.a, s.q);
    for (int side = 0; side < 2; side++) {
        uint32_t next = side ? 7 : 0, wanted = 0, got = 0;
        for (uint32_t i = 0; i < 120; i++)
            wanted += i / 7 % 2 == (uint32_t)side;
        while (got < wanted) {
            uint32_t n = kit_await(side ? far : s.b, s.frames);
            assert_true(n > 0);
            for (uint32_t i = 0; i < n; i++, got++, next += next % 7 == 6 ? 8 : 1) {
                assert_true(kit_same_bytes(&s.frames[i], 100, next));
                assert_int_equal(kit_came_by_shm(&s.frames[i]), side == 0);
            }
        }
    }
    assert_int_equal(s.a->stats.tx_errors, 0);
    kit_close(far);
    free_scene(&s);
}

// Memory, then UDP when the other NIC comes back without it, then memory again.
static void test_fallback_and_return(void **state)
{
    struct scene s = make_scene(open_auto(*state, 0), open_auto(*state, 1));
    assert_true(passes_by_shm(&s, s.a, s.b, 1));
    kit_send(s.a, s.q, &s.path, 64, 2); // the path knows the way
    assert_int_equal(kit_await(s.b, s.frames), 1);
    kit_close(s.b);
    s.b = open_udp(1);
    (void)kit_receive_idle(s.a, s.frames); // sees the end
    for (uint32_t i = 0; i < 3; i++) {
        kit_send(s.a, s.q, &s.path, 64, i);
        assert_int_equal(kit_await(s.b, s.frames), 1);
        assert_false(kit_came_by_shm(&s.frames[0]));
    }
    kit_close(s.b);
    s.b = open_auto(*state, 1);
    do {
        kit_send(s.a, s.q, &s.path, 64, 9);
        assert_int_equal(kit_await(s.b, s.frames), 1);
    } while (!kit_came_by_shm(&s.frames[0]));
    free_scene(&s);
}

// Receives until UDP is no longer expected to bring anything.
static void calm_down(struct vb_port *port, struct vb_rx_frame *frames)
{
    for (int i = 0; i < 3000; i++)
        (void)port->ops->receive(port, frames);
}

static void test_either_port_ends_sleep(void **state)
{
    struct scene s = make_scene(open_auto(*state, 0), open_auto(*state, 1));
    struct vb_port *far = open_udp(2);
    struct vb_path far_path = {0};
    vb_path_init(&far_path, &far->local, &s.b->local, far->src_port);
    calm_down(s.b, s.frames);
    int fd = s.b->ops->sleep(s.b);
    assert_true(fd >= 0);
    assert_false(kit_is_readable(fd, 0));
    for (uint32_t i = 0; i < 20; i++) {
        bool by_udp = i % 3 == 0;
        kit_send(by_udp ? far : s.a, s.q, by_udp ? &far_path : &s.path, 64, i);
        assert_true(kit_is_readable(fd, KIT_FOREVER));
        assert_int_equal(s.b->ops->receive(s.b, s.frames), 1);
        assert_true(kit_same_bytes(&s.frames[0], 64, i));
        assert_int_equal(kit_came_by_shm(&s.frames[0]), !by_udp);
        calm_down(s.b, s.frames);
        assert_int_equal(s.b->ops->sleep(s.b), fd);
        assert_false(kit_is_readable(fd, 0));
    }
    assert_int_equal(s.b->ops->receive(s.b, s.frames), 0);
    kit_send(s.a, s.q, &s.path, 64, 1);
    assert_int_equal(s.b->ops->sleep(s.b), -EAGAIN);
    kit_close(far);
    free_scene(&s);
}

// UDP is looked at even while memory always has something.
static void test_memory_does_not_starve_udp(void **state)
{
    struct scene s = make_scene(open_auto(*state, 0), open_auto(*state, 1));
    struct vb_port *far = open_udp(2);
    struct vb_path far_path = {0};
    vb_path_init(&far_path, &far->local, &s.b->local, far->src_port);
    assert_true(passes_by_shm(&s, s.a, s.b, 1));
    calm_down(s.b, s.frames);
    kit_send(far, s.q, &far_path, 64, 5);
    bool came = false;
    while (!came) {
        kit_send(s.a, s.q, &s.path, 64, 6);
        assert_int_equal(s.b->ops->receive(s.b, s.frames), 1);
        came = !kit_came_by_shm(&s.frames[0]);
    }
    assert_true(kit_same_bytes(&s.frames[0], 64, 5));
    kit_close(far);
    free_scene(&s);
}

static void test_ports_of_one_address_only(void **state)
{
    char text[INET_ADDRSTRLEN];
    char why[VB_ERROR_TEXT] = "";
    struct vb_auto_opts opts = {.shm = kit_open_shm(*state, host_address(1, text), 0),
                                .udp = open_udp(0),
                                .error_text = why};
    struct vb_port *port = NULL;
    assert_int_equal(vb_auto_open(&opts, &port), -EINVAL);
    assert_non_null(strstr(why, "different addresses"));
    opts.error_text = NULL;
    assert_int_equal(vb_auto_open(&opts, &port), -EINVAL);
    assert_null(port);
    kit_close(opts.shm); // still the caller's
    opts.shm = kit_open_shm(*state, host_address(0, text), 0);
    opts.udp->stats.tx_errors = 3;
    opts.shm->stats.tx_errors = 4;
    opts.shm->stats.rx_bad_peers = 5;
    assert_int_equal(vb_auto_open(&opts, &port), 0);
    assert_true(vb_ip_equal(&port->local, &opts.udp->local));
    assert_int_equal(port->src_port, opts.udp->src_port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    assert_int_equal(kit_receive_idle(port, frames), 0);
    assert_int_equal(port->stats.tx_errors, 7);
    assert_int_equal(port->stats.rx_bad_peers, 5);
    kit_close(port);
    free(frames);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_memory_where_it_reaches),    KIT_TEST(test_a_mixed_queue_is_split),
        KIT_TEST(test_fallback_and_return),        KIT_TEST(test_either_port_ends_sleep),
        KIT_TEST(test_memory_does_not_starve_udp), KIT_TEST(test_ports_of_one_address_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
