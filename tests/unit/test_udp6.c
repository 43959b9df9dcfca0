// SPDX-License-Identifier: Apache-2.0
// What the udp port has over IPv6 alone: scopes, packets without a checksum, and its own errors.
#include "../wait.h"
#include "port/udp.h"
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
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    FRAMES = 70 // more than one segmented send holds
};

// Lone frames, then a run, from one port to another (or itself).
static void exchange(struct vb_port *from, struct vb_port *to)
{
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    struct vb_txq *q = udp_kit_make_queue();
    struct vb_path path;
    uint64_t errors = from->stats.tx_errors;
    vb_path_init(&path, &from->local, &to->local, from->src_port);
    assert_false(path.ipv4);
    for (uint32_t i = 0; i < 2; i++) {
        udp_kit_append(q, &path, 32 + 1024 * i, i);
        udp_kit_send(from, q);
        assert_int_equal(udp_kit_receive(to, frames, true), 1);
        udp_kit_assert_frame(&frames[0], &from->local, 32 + 1024 * i, i);
    }
    for (uint32_t i = 0; i < FRAMES; i++)
        udp_kit_append(q, &path, 1044, i);
    udp_kit_send(from, q);
    for (uint32_t got = 0; got < FRAMES;) {
        uint32_t n = udp_kit_receive(to, frames, true);
        assert_true(n > 0 && got + n <= FRAMES);
        for (uint32_t i = 0; i < n; i++, got++)
            udp_kit_assert_frame(&frames[i], &from->local, 1044, got);
    }
    assert_int_equal(from->stats.tx_errors, errors);
    assert_int_equal(to->stats.rx_bad_icrc, 0);
    free(frames);
    udp_kit_free_queue(q);
}

// Needs no network of its own, but ::1 is one for all.
static void test_one_address_speaks_to_itself(void **state)
{
    (void)state;
    char why[VB_ERROR_TEXT] = "";
    struct vb_udp_opts opts = {.address = "::1", .error_text = why};
    struct vb_port *port = NULL;
    int error;
    WAIT_UNTIL((error = vb_udp_open(&opts, &port)) != -EADDRINUSE); // another test's for a while
    if (error == -EADDRNOTAVAIL || error == -EAFNOSUPPORT)
        SKIP(why);
    assert_int_equal(error, 0);
    exchange(port, port);
    port->ops->close(port);
}

static void test_link_local_addresses_have_a_scope(void **state)
{
    (void)state;
    char by_number[INET6_ADDRSTRLEN];
    snprintf(by_number, sizeof by_number, "fe80::5eed:2%%%u", if_nametoindex("lo"));
    udp_kit_add_address("fe80::5eed:1");
    udp_kit_add_address("fe80::5eed:2");
    struct vb_port *a = udp_kit_open_at("fe80::5eed:1%lo"), *b = udp_kit_open_at(by_number);
    assert_int_equal(a->local.b[0], 0xfe);
    exchange(a, b);
    exchange(b, a);
    a->ops->close(a);
    b->ops->close(b);
}

// The kernel's soft-RoCE leaves the UDP checksum out.
static void test_frames_without_checksum_are_taken(void **state)
{
    (void)state;
    struct vb_port *port = udp_kit_open(AF_INET6, 1);
    struct udp_forger f = udp_kit_make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    int on = 1;
    assert_int_equal(setsockopt(f.fd, SOL_UDP, UDP_NO_CHECK6_TX, &on, sizeof on), 0);
    udp_kit_forge(&f, 0, 32, 1); // but the ICRC is judged
    udp_kit_forge(&f, 0, 48, 0);
    assert_int_equal(udp_kit_receive(port, frames, true) + udp_kit_receive(port, frames, false), 1);
    assert_int_equal(port->stats.rx_bad_icrc, 1);
    close(f.fd);
    port->ops->close(port);
    free(frames);
}

// What would be another identification over IPv4 is a wrong ICRC over IPv6.
static void test_nothing_is_solved(void **state)
{
    (void)state;
    struct vb_port *port = udp_kit_open(AF_INET6, 1);
    struct udp_forger f = udp_kit_make_forger(port);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    static const uint8_t v4[4] = {127, 0, 0, 1};
    struct vb_icrc_flow flow;
    vb_icrc_flow_init_v4(&flow, v4, v4, VB_ROCE_UDP_PORT, VB_ROCE_UDP_PORT);
    for (uint16_t id = 0; id < 20; id++) {
        uint8_t at_0[32] = {0}, at_id[32] = {0}, frame[32] = {0};
        vb_icrc_seal(&flow, 0, at_0, sizeof at_0);
        vb_icrc_seal(&flow, id, at_id, sizeof at_id);
        vb_icrc_seal(&f.path.icrc, id, frame, sizeof frame);
        for (unsigned i = 28; i < 32; i++)
            frame[i] ^= at_0[i] ^ at_id[i];
        assert_int_equal(sendto(f.fd, frame, sizeof frame, 0, &f.to.any, f.to_bytes), 32);
        assert_int_equal(udp_kit_receive(port, frames, id == 0), id == 0);
    }
    udp_kit_forge(&f, 4711, 48, 0); // whatever it says
    assert_int_equal(udp_kit_receive(port, frames, true), 1);
    assert_int_equal(port->stats.rx_bad_icrc, 19);
    assert_int_equal(port->stats.rx_solved_icrc, 0);
    close(f.fd);
    port->ops->close(port);
    free(frames);
}

// Ports of one family know nothing of the other; a frame for it is refused and left behind.
static void test_families_do_not_mix(void **state)
{
    (void)state;
    char text[INET6_ADDRSTRLEN], mapped[INET6_ADDRSTRLEN + 8];
    snprintf(mapped, sizeof mapped, "::ffff:%s", udp_kit_address(AF_INET, 1, text));
    struct vb_port *v6 = udp_kit_open(AF_INET6, 0), *v4 = udp_kit_open_at(mapped);
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    struct vb_txq *q = udp_kit_make_queue();
    struct vb_path path;
    assert_true(vb_ip_is_v4(&v4->local)); // the same address in the notation of GIDs
    vb_path_init(&path, &v6->local, &v4->local, v6->src_port);
    udp_kit_append(q, &path, 64, 1);
    udp_kit_send(v6, q);
    assert_int_equal(v6->stats.tx_errors, 1);
    assert_int_equal(udp_kit_receive(v4, frames, false), 0);
    exchange(v6, v6);
    v4->ops->close(v4);
    v6->ops->close(v6);
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
    assert_null(strchr(why, '\n'));
    opts.error_text = NULL;
    assert_int_equal(vb_udp_open(&opts, &port), error);
    assert_null(port);
}

static void test_errors_speak(void **state)
{
    (void)state;
    struct vb_port *port = udp_kit_open(AF_INET6, 0);
    assert_refused("::1", -EADDRINUSE, "give this one another address of this machine");
    assert_refused("2001:db8::1", -EADDRNOTAVAIL, "2001:db8::1 is not an address of this machine");
    assert_refused("fe80::bad%lo", -EADDRNOTAVAIL, "is not an address of this machine");
    assert_refused("fe80::1", -EINVAL, "needs its interface, as in fe80::1%eth0");
    assert_refused("fe80::1%nowhere", -ENODEV, "is called 'nowhere'");
    assert_refused("fe80::1%", -ENODEV, "is called ''");
    assert_refused("fe80::1%0", -ENODEV, "is called '0'");
    assert_refused("fe80::1%1x", -ENODEV, "is called '1x'");
    assert_refused("fe80::1%99999999999999999999", -ENODEV, "is called '9999");
    assert_refused("::1%lo", -EINVAL, "leave out the interface, %lo");
    assert_refused("::ffff:127.0.0.1%lo", -EINVAL, "leave out the interface");
    assert_refused("::", -EINVAL, "does not name one machine");
    assert_refused("ff02::1", -EINVAL, "does not name one machine");
    assert_refused("::ffff:0.0.0.0", -EINVAL, "does not name one machine");
    assert_refused("[::1]", -EINVAL, "'[::1]' is not an IP address; one looks like");
    assert_refused("fd00::1/64", -EINVAL, "is not an IP address");
    assert_refused("fd00::1::2", -EINVAL, "is not an IP address");
    assert_refused("%lo", -EINVAL, "'%lo' is not an IP address");
    char longest[400];
    memset(longest, '1', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_refused(longest, -EINVAL, "is not an IP address; one looks like 127.0.0.1 or fd00::1");
    port->ops->close(port);
    port = udp_kit_open(AF_INET6, 0); // free again
    port->ops->close(port);
}

int main(void)
{
    const struct CMUnitTest shared_tests[] = {
        cmocka_unit_test(test_one_address_speaks_to_itself),
    };
    const struct CMUnitTest private_tests[] = {
        cmocka_unit_test(test_one_address_speaks_to_itself),
        cmocka_unit_test(test_link_local_addresses_have_a_scope),
        cmocka_unit_test(test_frames_without_checksum_are_taken),
        cmocka_unit_test(test_nothing_is_solved),
        cmocka_unit_test(test_families_do_not_mix),
        cmocka_unit_test(test_errors_speak),
    };
    int failed = cmocka_run_group_tests(shared_tests, NULL, NULL);
    const char *why = udp_kit_enter_net();
    if (why != NULL)
        failed += skips_group("ipv6", why);
    else
        failed += cmocka_run_group_tests(private_tests, NULL, NULL);
    return failed;
}
