// SPDX-License-Identifier: Apache-2.0
// The histogram against sorted arrays of the same values.
#include "base/hist.h"
#include "base/prng.h"
#include "fresh_seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void assert_within_one_percent(uint64_t got, uint64_t want)
{
    uint64_t error = got > want ? got - want : want - got;
    if (error * 100 >= want && error != 0)
        fail_msg("%llu is not within 1 %% of %llu", (unsigned long long)got,
                 (unsigned long long)want);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_empty(void **state)
{
    (void)state;
    static struct vb_hist h;
    vb_hist_init(&h);
    assert_int_equal(h.count, 0);
    assert_int_equal(h.min_ns, UINT64_MAX);
    assert_int_equal(h.max_ns, 0);
    assert_int_equal(vb_hist_quantile(&h, 0), 0);
    assert_int_equal(vb_hist_quantile(&h, 0.5), 0);
    assert_int_equal(vb_hist_quantile(&h, 1), 0);
}

static void test_one_value_is_exact(void **state)
{
    (void)state;
    static struct vb_hist h;
    const uint64_t values[] = {0, 1, 127, 128, 1000003, 99999999999, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        vb_hist_init(&h);
        vb_hist_record(&h, values[i]);
        for (int q = 0; q <= 4; q++)
            assert_int_equal(vb_hist_quantile(&h, q / 4.0), values[i]);
        assert_int_equal(h.min_ns, values[i]);
        assert_int_equal(h.max_ns, values[i]);
    }
}

static void test_small_values_are_exact(void **state)
{
    (void)state;
    static struct vb_hist h;
    vb_hist_init(&h);
    for (uint64_t ns = 1; ns <= 100; ns++)
        vb_hist_record(&h, ns);
    assert_int_equal(vb_hist_quantile(&h, 0), 1);
    assert_int_equal(vb_hist_quantile(&h, 0.5), 50);
    assert_int_equal(vb_hist_quantile(&h, 0.505), 51);
    assert_int_equal(vb_hist_quantile(&h, 0.99), 99);
    assert_int_equal(vb_hist_quantile(&h, 1), 100);
}

// As a process leaves it that is killed between the stores of a record. A walk past the buckets is
// what the sanitizers would see.
static void test_a_count_without_its_bucket(void **state)
{
    (void)state;
    static struct vb_hist h;
    vb_hist_init(&h);
    vb_hist_record(&h, 5);
    vb_hist_record(&h, 1000);
    h.count += 3;
    assert_int_equal(vb_hist_quantile(&h, 0.2), 5);
    assert_int_equal(vb_hist_quantile(&h, 0.8), 1000);
    assert_int_equal(vb_hist_quantile(&h, 1), 1000);
}

static void test_buckets_are_in_order_without_gaps(void **state)
{
    (void)state;
    uint32_t last = 0;
    for (uint64_t ns = 0; ns < 1 << 20; ns++) {
        uint32_t bucket = vb_hist_bucket(ns);
        assert_true(bucket == last || bucket == last + 1);
        last = bucket;
    }
    for (unsigned bit = 20; bit < VB_HIST_TOP_BITS; bit++)
        assert_int_equal(vb_hist_bucket((uint64_t)1 << bit),
                         vb_hist_bucket(((uint64_t)1 << bit) - 1) + 1);
    assert_int_equal(vb_hist_bucket(((uint64_t)1 << VB_HIST_TOP_BITS) - 1), VB_HIST_BUCKETS - 1);
    assert_int_equal(vb_hist_bucket((uint64_t)1 << VB_HIST_TOP_BITS), VB_HIST_BUCKETS - 1);
    assert_int_equal(vb_hist_bucket(UINT64_MAX), VB_HIST_BUCKETS - 1);
}

// A middle record between two others is reported from its bucket, not from min or max.
static void test_error_is_below_one_percent_everywhere(void **state)
{
    (void)state;
    static struct vb_hist h;
    struct vb_prng prng = {.state = fresh_seed()};
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t ns = vb_prng_next(&prng) >> (26 + vb_prng_below(&prng, 38));
        vb_hist_init(&h);
        vb_hist_record(&h, 0);
        vb_hist_record(&h, ns);
        vb_hist_record(&h, UINT64_MAX);
        assert_within_one_percent(vb_hist_quantile(&h, 0.5), ns);
    }
}

static void test_quantiles_agree_with_a_sorted_array(void **state)
{
    (void)state;
    enum {
        COUNT = 20000
    };
    static struct vb_hist h;
    static uint64_t values[COUNT];
    struct vb_prng prng = {.state = fresh_seed()};
    vb_hist_init(&h);
    for (unsigned i = 0; i < COUNT; i++) {
        values[i] = 500 + (vb_prng_below(&prng, 100000) >> vb_prng_below(&prng, 12));
        vb_hist_record(&h, values[i]);
    }
    qsort(values, COUNT, sizeof values[0], by_value);
    for (unsigned i = 1; i < 1000; i++) { // half a rank lower: rounding cannot reach the next one
        double q = i / 1000.0 - 0.5 / COUNT;
        assert_within_one_percent(vb_hist_quantile(&h, q), values[COUNT / 1000 * i - 1]);
    }
    assert_int_equal(h.count, COUNT);
    assert_int_equal(vb_hist_quantile(&h, 0), values[0]);
    assert_int_equal(vb_hist_quantile(&h, 1), values[COUNT - 1]);
}

static void test_quantile_out_of_range_is_clamped(void **state)
{
    (void)state;
    static struct vb_hist h;
    vb_hist_init(&h);
    for (uint64_t ns = 10; ns <= 20; ns++)
        vb_hist_record(&h, ns);
    assert_int_equal(vb_hist_quantile(&h, -1), 10);
    assert_int_equal(vb_hist_quantile(&h, 2), 20);
    assert_int_equal(vb_hist_quantile(&h, NAN), 10);
}

static void test_merge_equals_recording_all(void **state)
{
    (void)state;
    static struct vb_hist a, b, empty, all;
    struct vb_prng prng = {.state = fresh_seed()};
    vb_hist_init(&a);
    vb_hist_init(&b);
    vb_hist_init(&empty);
    vb_hist_init(&all);
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t ns = vb_prng_next(&prng) >> (24 + vb_prng_below(&prng, 40));
        vb_hist_record(vb_prng_below(&prng, 2) ? &a : &b, ns);
        vb_hist_record(&all, ns);
    }
    vb_hist_merge(&a, &b);
    vb_hist_merge(&a, &empty);
    assert_memory_equal(&a, &all, sizeof all);
    vb_hist_merge(&empty, &all);
    assert_memory_equal(&empty, &all, sizeof all);
}

// What lies in a bucket is told as its middle: of one value that value, of 2^n the one behind half.
static void test_middles(void **state)
{
    static struct vb_hist h;

    (void)state;
    for (uint64_t v = 1; v < 60000; v += v < 300 ? 1 : 97) {
        uint64_t first = v, last = v;
        while (vb_hist_bucket(first - 1) == vb_hist_bucket(v))
            first--;
        while (vb_hist_bucket(last + 1) == vb_hist_bucket(v))
            last++;
        assert_true(last - first <= v / 64);
        vb_hist_init(&h);
        vb_hist_record(&h, 0);
        for (int i = 0; i < 3; i++)
            vb_hist_record(&h, v);
        vb_hist_record(&h, UINT64_MAX);
        assert_int_equal(vb_hist_quantile(&h, 0.5), first + (last - first + 1) / 2);
        assert_int_equal(vb_hist_quantile(&h, 0), 0);
        assert_true(vb_hist_quantile(&h, 1) == UINT64_MAX);
    }
    assert_int_equal(vb_hist_bucket((1ull << 38) - 1), VB_HIST_BUCKETS - 1);
    assert_int_equal(vb_hist_bucket(1ull << 38), VB_HIST_BUCKETS - 1);
    assert_int_equal(vb_hist_bucket((1ull << 38) - (1ull << 31)), VB_HIST_BUCKETS - 1);
    assert_int_equal(vb_hist_bucket((1ull << 38) - (1ull << 31) - 1), VB_HIST_BUCKETS - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_middles),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_one_value_is_exact),
        cmocka_unit_test(test_small_values_are_exact),
        cmocka_unit_test(test_a_count_without_its_bucket),
        cmocka_unit_test(test_buckets_are_in_order_without_gaps),
        cmocka_unit_test(test_error_is_below_one_percent_everywhere),
        cmocka_unit_test(test_quantiles_agree_with_a_sorted_array),
        cmocka_unit_test(test_quantile_out_of_range_is_clamped),
        cmocka_unit_test(test_merge_equals_recording_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
