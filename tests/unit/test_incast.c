// SPDX-License-Identifier: Apache-2.0
// Eight senders to one receiver through one link of 10 Gb/s, with and without congestion control.
// Prints the table of docs/congestion.md.
#include "incast.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MS ((uint64_t)1000000)

// The marks are the paper's; the queue holds two windows.
static struct incast_opts opts_of(uint32_t senders, const struct vb_dcqcn_params *dcqcn)
{
    return (struct incast_opts){
        .senders = senders,
        .dcqcn = dcqcn,
        .window_bytes = 256 * 1024,
        .funnel = {.bytes_per_us = 1250,
                   .queue_bytes = 512 * 1024,
                   .mark_min_bytes = 5 * 1024,
                   .mark_max_bytes = 200 * 1024,
                   .mark_max_ppm = 10000},
        .delay_ns = 5000,
        .stagger_ns = 2 * MS,
        .settle_ns = 50 * MS,
        .measure_ns = 50 * MS,
    };
}

static struct incast_result run(const struct incast_opts *o)
{
    struct incast_result r = incast_run(o);
    print_message(
        "%u senders, %s, %s: %.2f Gb/s, fairness %.3f, %llu frames dropped, %llu timeouts, "
        "%llu connections failed, %llu CNPs\n",
        o->senders, o->reads ? "READ" : "WRITE", o->dcqcn ? "dcqcn" : "none", r.gbps, r.jain,
        (unsigned long long)r.dropped, (unsigned long long)r.timeouts, (unsigned long long)r.failed,
        (unsigned long long)r.cnps);
    return r;
}

static void test_with_dcqcn_nothing_is_lost_and_all_get_the_same(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    for (int reads = 0; reads < 2; reads++)
        for (uint32_t senders = 2; senders <= INCAST_SENDERS; senders *= 2) {
            struct incast_opts o = opts_of(senders, &p);
            o.reads = reads;
            struct incast_result r = run(&o);
            assert_int_equal(r.dropped, 0);
            assert_int_equal(r.timeouts, 0);
            assert_int_equal(r.failed, 0);
            assert_true(r.jain >= 0.9);
            assert_true(r.gbps >= 8);
            assert_true(r.cnps > 0 && r.cnps <= r.marked);
        }
}

static void test_without_it_frames_are_lost(void **state)
{
    (void)state;
    for (int reads = 0; reads < 2; reads++) {
        struct incast_opts o = opts_of(INCAST_SENDERS, NULL);
        o.reads = reads;
        struct incast_result r = run(&o);
        assert_true(r.dropped > 0);
        assert_true(r.timeouts > 0);
        assert_int_equal(r.marked, 0);
        assert_int_equal(r.cnps, 0);
    }
}

static void test_one_sender_is_not_slowed_down(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct incast_opts o = opts_of(1, &p);
    o.funnel.bytes_per_us = 5000; // as fast as its own link
    struct incast_result r = run(&o);
    assert_int_equal(r.cnps, 0);
    assert_true(r.gbps >= 39);
}

static void test_the_same_run_gives_the_same_figures(void **state)
{
    (void)state;
    const struct vb_dcqcn_params p = vb_dcqcn_defaults();
    struct incast_opts o = opts_of(3, &p);
    o.settle_ns = o.measure_ns = 5 * MS;
    struct incast_result a = incast_run(&o), b = incast_run(&o);
    assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
    assert_int_equal(a.cnps, b.cnps);
    assert_int_equal(a.marked, b.marked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_with_dcqcn_nothing_is_lost_and_all_get_the_same),
        cmocka_unit_test(test_without_it_frames_are_lost),
        cmocka_unit_test(test_one_sender_is_not_slowed_down),
        cmocka_unit_test(test_the_same_run_gives_the_same_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
