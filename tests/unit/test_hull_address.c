// SPDX-License-Identifier: Apache-2.0
// A hull and NICs of other processes on one address, whoever came first: each gets its own frames,
// the hull sends on what comes astray, and whoever is killed or stopped, the others go on.
#include "../wait.h"
#include "base/bytes.h"
#include "crowd.h"
#include "duo.h"
#include "hull_kit.h"
#include "pair.h"
#include "skips.h"
#include "udp_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MATES = 4,  // two pairs, of which one has the hull
    PINGS = 50, // of each pair after a change
    BYTES = 64,
    STRAYS = 8,
};

static bool ipv6; // of a network of our own

static const char *here(void)
{
    static char text[16];
    pair_address(0, text);
    return ipv6 ? "::1" : text;
}

// ---- processes

// The hull is the first, the second, the third and the last to come.
static void test_the_hull_is_killed(void **state)
{
    (void)state;
    for (unsigned hull = 0; hull < MATES; hull++) {
        struct crowd *c = crowd_start_hulls(here(), MATES, 1u << hull, "udp");
        crowd_expect_well(c, PINGS, 0);
        crowd_kill(c, hull);
        crowd_expect_well(c, PINGS, 1u << hull / 2);
        crowd_end(c);
    }
}

static void test_beside_the_hull_one_is_killed(void **state)
{
    (void)state;
    for (unsigned hull = 0; hull < MATES; hull++) {
        struct crowd *c = crowd_start_hulls(here(), MATES, 1u << hull, "udp");
        unsigned victim = (hull + 2) % MATES; // of the other pair
        crowd_kill(c, victim);
        crowd_expect_well(c, PINGS, 1u << victim / 2);
        crowd_end(c);
    }
}

static void test_the_hull_is_stopped(void **state)
{
    (void)state;
    for (unsigned hull = 0; hull < MATES; hull += MATES - 1) {
        struct crowd *c = crowd_start_hulls(here(), MATES, 1u << hull, "udp");
        crowd_stop(c, hull);
        crowd_let_notice();
        crowd_expect_well(c, PINGS, 1u << hull / 2);
        assert_int_equal(kill(c->mate[hull].pid, SIGCONT), 0);
        crowd_expect_well(c, PINGS, 1u << hull / 2);
        crowd_end(c);
    }
}

static void test_two_hulls(void **state)
{
    (void)state;
    struct crowd *c = crowd_start_hulls(here(), MATES, 1 | 8, "udp");
    crowd_expect_well(c, PINGS, 0);
    crowd_kill(c, 0);
    crowd_expect_well(c, PINGS, 1);
    crowd_end(c);
}

// Who meets others in memory, too, still shares the network's port with those who do not.
static void test_a_hull_with_memory(void **state)
{
    (void)state;
    for (unsigned hull = 0; hull < 2; hull++) {
        struct crowd *c = crowd_start_hulls(here(), MATES, 1u << hull, "auto");
        crowd_expect_well(c, PINGS, 0);
        crowd_kill(c, hull);
        crowd_expect_well(c, PINGS, 1);
        crowd_end(c);
    }
}

// ---- the hull sends on

static struct vb_hull *open_hull(const char *address)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char error[VB_ERROR_TEXT];
    struct vb_hull *hull = NULL;

    assert_non_null(config);
    vb_hull_config_init(config);
    snprintf(config->nic[0].address, sizeof config->nic[0].address, "%s", address);
    snprintf(config->nic[0].port, sizeof config->nic[0].port, "udp");
    if (vb_hull_open(config, 0, &hull, error) != 0)
        fail_msg("%s", error);
    free(config);
    return hull;
}

// A run of frames that stays whole on loopback, and is steered by the first of them.
static void send_run(struct udp_forger *from, uint32_t first, uint32_t qpn)
{
    uint8_t bytes[(1 + STRAYS) * BYTES];
    const uint16_t segment = BYTES;
    struct iovec iov = {bytes, sizeof bytes};
    union {
        struct cmsghdr head;
        uint8_t bytes[CMSG_SPACE(sizeof segment)];
    } control = {.head = {.cmsg_level = SOL_UDP,
                          .cmsg_type = UDP_SEGMENT,
                          .cmsg_len = CMSG_LEN(sizeof segment)}};
    memset(bytes, 7, sizeof bytes);
    for (uint16_t i = 0; i <= STRAYS; i++) {
        vb_put_be24(bytes + i * BYTES + 5, i ? qpn : first);
        vb_icrc_seal(&from->path.icrc, i, bytes + i * BYTES, BYTES);
    }
    memcpy(CMSG_DATA(&control.head), &segment, sizeof segment);
    const struct msghdr h = {.msg_name = &from->to,
                             .msg_namelen = from->to_bytes,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    assert_int_equal(sendmsg(from->fd, &h, 0), sizeof bytes);
}

static void wait_for(const struct vb_nic *nic, const char *counter, uint64_t least)
{
    WAIT_UNTIL(duo_counter(nic, counter) >= least);
}

// In each order of three: what comes to the hull for the others goes on to them, and no more.
static void test_the_hull_sends_on(void **state)
{
    const struct vb_nic_opts opts = {.address = here(), .port = "udp", .faults = "off"};

    (void)state;
    for (unsigned place = 0; place < 3; place++) {
        struct vb_nic *nic[2];
        struct vb_hull *hull = NULL;
        for (unsigned i = 0, n = 0; i < 3; i++)
            if (i == place)
                hull = open_hull(here());
            else
                assert_int_equal(vb_nic_open(&opts, &nic[n++]), 0);
        struct udp_forger from = udp_kit_make_forger(hull->lane->port);
        uint32_t own = hull->lane->port->qpn_base + 77;
        for (unsigned i = 0; i < 2; i++) {
            send_run(&from, own, nic[i]->lane[0].port->qpn_base + 77);
            wait_for(hull->nic, "rx_forwarded", (i + 1) * STRAYS);
            wait_for(nic[i], "rcvd_pkts", STRAYS);
        }
        assert_int_equal(duo_counter(hull->nic, "rx_forwarded"), 2 * STRAYS);
        assert_int_equal(duo_counter(nic[0], "rcvd_pkts"), STRAYS);
        assert_int_equal(duo_counter(nic[1], "rcvd_pkts"), STRAYS);
        close(from.fd);
        vb_nic_close(nic[0]);
        vb_nic_close(nic[1]);
        vb_hull_close(hull);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_hull_is_killed),
        cmocka_unit_test(test_beside_the_hull_one_is_killed),
        cmocka_unit_test(test_the_hull_is_stopped),
        cmocka_unit_test(test_two_hulls),
        cmocka_unit_test(test_a_hull_with_memory),
        cmocka_unit_test(test_the_hull_sends_on),
    };
    const struct CMUnitTest tests_v6[] = {
        cmocka_unit_test(test_the_hull_is_killed),
        cmocka_unit_test(test_beside_the_hull_one_is_killed),
        cmocka_unit_test(test_the_hull_sends_on),
    };
    int failed = cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
    const char *why = udp_kit_enter_net();
    ipv6 = true;
    if (why != NULL)
        failed += skips_group("ipv6", why);
    else
        failed += cmocka_run_group_tests(tests_v6, duo_set_up, duo_tear_down);
    return failed;
}
