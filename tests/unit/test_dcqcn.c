// SPDX-License-Identifier: Apache-2.0
// DCQCN's rate machine against figures computed by hand.
#include "nic/dcqcn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MBPS ((uint64_t)VB_DCQCN_BPS_PER_MBPS)
#define US   ((uint64_t)1000)

static void test_a_cut_halves_the_full_rate(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    assert_false(d.limited);
    vb_dcqcn_cut(&d, &p, 1000);
    assert_true(d.limited);
    assert_int_equal(d.target_Bps, 40000 * MBPS);
    assert_int_equal(d.rate_Bps, 20000 * MBPS);
    assert_int_equal(d.alpha, VB_DCQCN_ONE); // (1 - g) 1 + g
    vb_dcqcn_cut(&d, &p, 2000);
    assert_int_equal(d.target_Bps, 20000 * MBPS);
    assert_int_equal(d.rate_Bps, 10000 * MBPS);
}

static void test_alpha_decays_when_nothing_is_heard(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    vb_dcqcn_cut(&d, &p, 0);
    vb_dcqcn_advance(&d, &p, 55 * US - 1);
    assert_int_equal(d.alpha, 1048576);
    vb_dcqcn_advance(&d, &p, 55 * US);
    assert_int_equal(d.alpha, 1044480); // 255/256
    vb_dcqcn_advance(&d, &p, 165 * US);
    assert_int_equal(d.alpha, 1036335); // 255^3/256^3, rounded down each time

    // The next cut takes alpha / 2, and alpha gains g (1 - alpha).
    uint64_t rate = d.rate_Bps;
    vb_dcqcn_cut(&d, &p, 166 * US);
    assert_int_equal(d.target_Bps, rate);
    assert_int_equal(d.rate_Bps, rate - rate * 1036335 / 2097152);
    assert_int_equal(d.alpha, 1032286 + 4096);
}

// After a cut from 40 to 20 Gb/s: a gap of 20 is halved four times, then the target rises, too.
static void test_fast_recovery_then_additive_increase(void **state)
{
    (void)state;
    static const uint64_t recovery_mbps[4] = {30000, 35000, 37500, 38750};
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    vb_dcqcn_cut(&d, &p, 0);
    vb_dcqcn_cut(&d, &p, 0);
    for (uint64_t i = 0; i < 4; i++) {
        vb_dcqcn_advance(&d, &p, (i + 1) * 55 * US);
        assert_int_equal(d.rate_Bps, recovery_mbps[i] * MBPS / 2);
        assert_int_equal(d.target_Bps, 20000 * MBPS);
    }
    vb_dcqcn_advance(&d, &p, 5 * 55 * US);
    assert_int_equal(d.target_Bps, 20040 * MBPS);
    assert_int_equal(d.rate_Bps, (19375 + 20040) * MBPS / 2);
    vb_dcqcn_advance(&d, &p, 6 * 55 * US);
    assert_int_equal(d.target_Bps, 20080 * MBPS);
    assert_int_equal(d.time_stage, 6);
    assert_int_equal(d.byte_stage, 0);
}

static void test_what_was_missed_is_caught_up_with(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn steps = {0}, leap;

    vb_dcqcn_cut(&steps, &p, 7);
    vb_dcqcn_cut(&steps, &p, 7);
    leap = steps;
    for (uint64_t us = 1; us <= 1000; us++)
        vb_dcqcn_advance(&steps, &p, us * US);
    vb_dcqcn_advance(&leap, &p, 1000 * US);
    assert_memory_equal(&steps, &leap, sizeof leap);
    assert_int_equal(leap.time_stage, 18);
}

static void test_bytes_raise_the_rate_too(void **state)
{
    (void)state;
    struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    p.rp_byte_reset = 10000;
    vb_dcqcn_cut(&d, &p, 0);
    vb_dcqcn_cut(&d, &p, 0);
    vb_dcqcn_charge(&d, &p, 0, 9999);
    assert_int_equal(d.byte_stage, 0);
    assert_int_equal(d.rate_Bps, 10000 * MBPS);
    vb_dcqcn_charge(&d, &p, 0, 1);
    assert_int_equal(d.byte_stage, 1);
    assert_int_equal(d.rate_Bps, 15000 * MBPS);
    vb_dcqcn_cut(&d, &p, 0); // starts the count anew
    assert_int_equal(d.byte_stage, 0);
    assert_int_equal(d.bytes, 0);
}

// Both counters past the threshold: hyper increase, faster and faster.
static void test_hyper_increase_needs_both_counters(void **state)
{
    (void)state;
    struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    p.rp_byte_reset = 1000;
    for (int i = 0; i < 4; i++)
        vb_dcqcn_cut(&d, &p, 0); // to 2.5 Gb/s
    for (int i = 0; i < 6; i++)
        vb_dcqcn_charge(&d, &p, 0, 1000);
    assert_int_equal(d.byte_stage, 6);
    assert_int_equal(d.target_Bps, 5080 * MBPS); // the fifth and the sixth added
    vb_dcqcn_advance(&d, &p, 5 * 55 * US);
    assert_int_equal(d.time_stage, 5);
    assert_int_equal(d.target_Bps, 5280 * MBPS); // five additive steps more
    vb_dcqcn_advance(&d, &p, 6 * 55 * US);
    assert_int_equal(d.target_Bps, 5680 * MBPS); // six and six: 400
    vb_dcqcn_charge(&d, &p, 0, 1000);
    vb_dcqcn_advance(&d, &p, 7 * 55 * US);
    assert_int_equal(d.target_Bps, 6880 * MBPS); // six and seven: 400; seven and seven: 800
}

static void test_the_rate_has_a_floor(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    for (int i = 0; i < 100; i++)
        vb_dcqcn_cut(&d, &p, 0);
    assert_int_equal(d.rate_Bps, 10 * MBPS);
    assert_true(d.limited);
}

static void test_a_recovered_rate_is_no_limit(void **state)
{
    (void)state;
    struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    // 40 to 20; the gap is 20000 >> i after i steps, and below 40 after nine.
    vb_dcqcn_cut(&d, &p, 0);
    vb_dcqcn_advance(&d, &p, 8 * 55 * US);
    assert_true(d.limited);
    vb_dcqcn_advance(&d, &p, 9 * 55 * US);
    assert_false(d.limited);
    // A CNP after that begins at the full rate again.
    vb_dcqcn_cut(&d, &p, 10 * 55 * US);
    assert_int_equal(d.rate_Bps, 20000 * MBPS);
    assert_int_equal(d.alpha, VB_DCQCN_ONE);
}

static void test_what_is_long_ago_is_forgotten(void **state)
{
    (void)state;
    struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    p.rp_ai_rate_mbps = 1;
    for (int i = 0; i < 20; i++)
        vb_dcqcn_cut(&d, &p, 0);
    vb_dcqcn_advance(&d, &p, 1024 * 55 * US);
    assert_true(d.limited);
    vb_dcqcn_advance(&d, &p, UINT64_MAX / 2);
    assert_false(d.limited);
}

static void test_bytes_take_their_time(void **state)
{
    (void)state;
    struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct vb_dcqcn d = {0};

    p.rp_max_rate_mbps = 16000;
    vb_dcqcn_cut(&d, &p, 1000000); // to 8 Gb/s: a byte takes a nanosecond
    assert_int_equal(d.free_ns, 1000000);
    vb_dcqcn_charge(&d, &p, 1000000, 4096);
    assert_int_equal(d.free_ns, 1004096);
    vb_dcqcn_charge(&d, &p, 1000000, 1000);
    assert_int_equal(d.free_ns, 1005096);
    // A pause saves up a burst, and no more.
    vb_dcqcn_charge(&d, &p, 1010000, 100);
    assert_int_equal(d.free_ns, 1005196);
    vb_dcqcn_charge(&d, &p, 1040000, 100);
    assert_int_equal(d.free_ns, 1040000 - 16384 + 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cut_halves_the_full_rate),
        cmocka_unit_test(test_alpha_decays_when_nothing_is_heard),
        cmocka_unit_test(test_fast_recovery_then_additive_increase),
        cmocka_unit_test(test_what_was_missed_is_caught_up_with),
        cmocka_unit_test(test_bytes_raise_the_rate_too),
        cmocka_unit_test(test_hyper_increase_needs_both_counters),
        cmocka_unit_test(test_the_rate_has_a_floor),
        cmocka_unit_test(test_a_recovered_rate_is_no_limit),
        cmocka_unit_test(test_what_is_long_ago_is_forgotten),
        cmocka_unit_test(test_bytes_take_their_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
