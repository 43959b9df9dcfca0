// SPDX-License-Identifier: Apache-2.0
// The clock for who asks all the time, beside the clock itself.
#include "port/clock.h"
#include "skips.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

enum {
    LONG_NS = 5 * 1000 * 1000,
    AHEAD_NS = 10 * 1000, // what a rate learnt over 20 us may be off after 50 us, amply
};

// Asks until the rate is known; where there is no counter, it never is.
static void learn(struct vb_recent *recent)
{
    uint64_t until = vb_clock_ns() + LONG_NS;
    while (vb_clock_ns() < until)
        (void)vb_clock_recent_ns(recent);
}

static void test_never_goes_back_nor_ahead(void **state)
{
    struct vb_recent recent = {0};
    uint64_t last = 0, until = vb_clock_ns() + LONG_NS;

    (void)state;
    while (last < until) {
        uint64_t before = vb_clock_ns(), told = vb_clock_recent_ns(&recent);
        assert_true(told >= last);
        assert_true(told + AHEAD_NS >= before);
        assert_true(told <= vb_clock_ns() + AHEAD_NS);
        last = told;
    }
}

static void test_goes_on_between_readings(void **state)
{
    struct vb_recent recent = {0};

    (void)state;
    learn(&recent);
#ifndef __x86_64__
    SKIP("this processor has no counter that is used");
#endif
    for (bool between = false; !between;) { // the clock may be read at any time, but not always
        uint64_t ticks = recent.ticks, first = vb_clock_recent_ns(&recent);
        uint64_t until = vb_clock_ns() + 2000;
        while (vb_clock_ns() < until)
            continue;
        uint64_t second = vb_clock_recent_ns(&recent);
        assert_true(second > first);
        between = recent.ticks == ticks && second - first >= 1000;
    }
}

static void test_a_long_pause_is_noticed(void **state)
{
    struct vb_recent recent = {0};

    (void)state;
    learn(&recent);
    uint64_t before = vb_clock_recent_ns(&recent);
    nanosleep(&(struct timespec){.tv_nsec = LONG_NS}, NULL); // the pause that is to be noticed
    uint64_t now = vb_clock_ns(), told = vb_clock_recent_ns(&recent);
    assert_true(told >= before + LONG_NS - AHEAD_NS);
    assert_true(told + AHEAD_NS >= now);
}

// As on a core whose counter is behind the last one's.
static void test_a_counter_that_jumps_is_not_believed(void **state)
{
    struct vb_recent recent = {0};

    (void)state;
    learn(&recent);
    recent.ticks += 1ull << 40;
    uint64_t before = vb_clock_ns(), told = vb_clock_recent_ns(&recent);
    assert_true(told + AHEAD_NS >= before);
    assert_true(told <= vb_clock_ns() + AHEAD_NS);
    learn(&recent);
    told = vb_clock_recent_ns(&recent);
    assert_true(told <= vb_clock_ns() + AHEAD_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_goes_back_nor_ahead),
        cmocka_unit_test(test_goes_on_between_readings),
        cmocka_unit_test(test_a_long_pause_is_noticed),
        cmocka_unit_test(test_a_counter_that_jumps_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
