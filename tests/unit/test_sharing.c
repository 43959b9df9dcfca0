// SPDX-License-Identifier: Apache-2.0
// Many processes on one address: whoever is stopped or killed, the others go on.
#include "crowd.h"
#include "pair.h"
#include "runtime_dir.h"
#include "skips.h"
#include "udp_kit.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PINGS = 50, // of each pair after a change
};

static bool ipv6; // of a network of our own

static const char *here(void)
{
    static char text[16];
    pair_address(0, text);
    return ipv6 ? "::1" : text;
}

static void go_on(const struct crowd *c, unsigned mate)
{
    assert_int_equal(kill(c->mate[mate].pid, SIGCONT), 0);
}

static uint64_t forwarded(struct crowd *c)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < c->count; i++)
        sum += atomic_load(&c->mate[i].forwarded);
    return sum;
}

// ---- killed

static void kill_one(unsigned victim, bool sleepy, uint32_t units)
{
    struct crowd *c = crowd_start(here(), 6, sleepy, units);
    crowd_kill(c, victim);
    crowd_expect_well(c, PINGS, 1u << victim / 2);
    // The system was told of the new order: a time comes when frames go straight again. (On a busy
    // machine somebody may look stopped for a while, and then they do not.)
    uint64_t before;
    do {
        before = forwarded(c);
        crowd_expect_well(c, PINGS, 1u << victim / 2);
    } while (forwarded(c) != before);
    crowd_end(c);
}

static void test_the_first_is_killed(void **state)
{
    (void)state;
    kill_one(0, false, 1);
}

static void test_one_in_the_middle_is_killed(void **state)
{
    (void)state;
    kill_one(3, true, 1);
}

static void test_the_last_is_killed(void **state)
{
    (void)state;
    kill_one(5, false, 1);
}

static void test_a_nic_of_two_units_is_killed(void **state)
{
    (void)state;
    kill_one(1, false, 2);
}

// Nobody can tell in which order the system closed their sockets.
static void test_several_are_killed_at_once(void **state)
{
    (void)state;
    struct crowd *c = crowd_start(here(), 12, false, 1);
    assert_int_equal(kill(c->mate[6].pid, SIGKILL), 0);
    assert_int_equal(kill(c->mate[0].pid, SIGKILL), 0);
    assert_int_equal(kill(c->mate[7].pid, SIGKILL), 0);
    assert_int_equal(kill(c->mate[1].pid, SIGKILL), 0);
    crowd_expect_well(c, PINGS, 1 | 8);
    crowd_end(c);
}

// ---- stopped

static void stop_one(unsigned victim, bool sleepy)
{
    struct crowd *c = crowd_start(here(), 6, sleepy, 1);
    crowd_stop(c, victim);
    crowd_let_notice();
    crowd_expect_well(c, PINGS, 1u << victim / 2);
    go_on(c, victim);
    crowd_expect_well(c, PINGS, 1u << victim / 2);
    crowd_end(c);
}

static void test_the_first_is_stopped(void **state)
{
    (void)state;
    stop_one(0, true);
}

static void test_the_last_is_stopped(void **state)
{
    (void)state;
    stop_one(5, false);
}

// What the dead one's place makes of the order reaches nobody who could mend it, but by looking.
static void test_one_is_killed_while_others_are_stopped(void **state)
{
    (void)state;
    for (unsigned victim = 0; victim < 2; victim++) {
        struct crowd *c = crowd_start(here(), 12, false, 1);
        for (unsigned i = 2; i < 10; i++)
            crowd_stop(c, i);
        crowd_kill(c, victim);
        crowd_let_notice();
        crowd_expect_well(c, PINGS, 0x1f);
        for (unsigned i = 2; i < 10; i++)
            go_on(c, i);
        crowd_expect_well(c, PINGS, 0x1f);
        crowd_end(c);
    }
}

static void test_newcomers_meet_a_stopped_first(void **state)
{
    (void)state;
    struct crowd *c = crowd_start(here(), 2, false, 1);
    crowd_stop(c, 0);
    crowd_stop(c, 1);
    crowd_add_pair(c);
    crowd_add_pair(c);
    crowd_expect_well(c, PINGS, 1);
    crowd_end(c);
}

// ---- coming and going

static void test_newcomers_take_the_place_of_the_dead(void **state)
{
    (void)state;
    struct crowd *c = crowd_start(here(), 4, true, 1);
    for (int round = 0; round < 4; round++) {
        crowd_kill(c, c->count - 2);
        crowd_kill(c, c->count - 1);
        crowd_add_pair(c);
        crowd_expect_well(c, PINGS, ~1u & ~(1u << (c->count / 2 - 1)));
    }
    crowd_end(c);
}

// Two NICs of one process, and one that closes in good order.
static void test_nics_of_one_process(void **state)
{
    (void)state;
    struct vb_nic *nic[4];
    const struct vb_nic_opts opts = {.address = here(), .port = "udp", .faults = "off"};
    struct crowd *c = crowd_start(here(), 4, false, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(vb_nic_open(&opts, &nic[i]), 0);
    crowd_kill(c, 0); // the last of the NICs takes its place
    crowd_expect_well(c, PINGS, 1);
    for (int i = 0; i < 4; i++) {
        vb_nic_close(nic[i]);
        crowd_expect_well(c, PINGS, 1);
    }
    crowd_end(c);
}

// ---- what is left

static void test_nothing_is_left_behind(void **state)
{
    (void)state;
    struct vb_nic *nic;
    const struct vb_nic_opts opts = {.address = here(), .port = "udp", .faults = "off"};
    crowd_end(crowd_start(here(), 4, false, 1));
    assert_true(runtime_dir_count("in-") > 0); // of those who were killed
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    assert_int_equal(runtime_dir_count("in-"), 1);
    vb_nic_close(nic);
    assert_int_equal(runtime_dir_count("in-"), 0);
    assert_int_equal(runtime_dir_count("nics-"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_is_killed),
        cmocka_unit_test(test_one_in_the_middle_is_killed),
        cmocka_unit_test(test_the_last_is_killed),
        cmocka_unit_test(test_a_nic_of_two_units_is_killed),
        cmocka_unit_test(test_several_are_killed_at_once),
        cmocka_unit_test(test_the_first_is_stopped),
        cmocka_unit_test(test_the_last_is_stopped),
        cmocka_unit_test(test_one_is_killed_while_others_are_stopped),
        cmocka_unit_test(test_newcomers_meet_a_stopped_first),
        cmocka_unit_test(test_newcomers_take_the_place_of_the_dead),
        cmocka_unit_test(test_nics_of_one_process),
        cmocka_unit_test(test_nothing_is_left_behind),
    };
    const struct CMUnitTest tests_v6[] = {
        cmocka_unit_test(test_the_first_is_killed),
        cmocka_unit_test(test_the_last_is_stopped),
        cmocka_unit_test(test_nics_of_one_process),
        cmocka_unit_test(test_nothing_is_left_behind),
    };
    int failed = cmocka_run_group_tests(tests, runtime_dir_make, runtime_dir_remove);
    const char *why = udp_kit_enter_net();
    ipv6 = true;
    if (why != NULL)
        failed += skips_group("ipv6", why);
    else
        failed += cmocka_run_group_tests(tests_v6, runtime_dir_make, runtime_dir_remove);
    return failed;
}
