// SPDX-License-Identifier: Apache-2.0
// The simulator itself: it replays exactly, it does as much work as it says, and it notices.
#include "sim/batch.h"
#include "sim/run.h"
#include "sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    OPS = 600
};

static struct vb_sim_result run(uint64_t seed, uint32_t nics, FILE *trace)
{
    struct vb_coverage cover = {0};
    struct vb_sim_result result;
    const struct vb_sim_opts opts = {.seed = seed, .ops = OPS, .nics = nics, .trace = trace};
    assert_int_equal(vb_sim_run(&opts, &result, &cover), 0);
    if (result.violated)
        fail_msg("seed %llu: %s", (unsigned long long)seed, result.text);
    return result;
}

static void test_a_seed_replays_event_by_event(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        char *text[2];
        size_t len[2];
        uint64_t digest[2];
        for (int i = 0; i < 2; i++) {
            FILE *trace = open_memstream(&text[i], &len[i]);
            void *shift = malloc(100000 + 7777 * (size_t)i); // other addresses the second time
            digest[i] = run(seed, 0, trace).digest;
            free(shift);
            fclose(trace);
        }
        assert_int_equal(digest[0], digest[1]);
        assert_int_equal(len[0], len[1]);
        assert_string_equal(text[0], text[1]);
        free(text[0]);
        free(text[1]);
    }
}

static void test_tracing_changes_nothing(void **state)
{
    (void)state;
    FILE *nowhere = fopen("/dev/null", "w");
    assert_int_equal(run(3, 0, nowhere).digest, run(3, 0, NULL).digest);
    fclose(nowhere);
}

static void test_seeds_differ(void **state)
{
    (void)state;
    assert_int_not_equal(run(1, 0, NULL).digest, run(2, 0, NULL).digest);
}

static void test_the_work_is_done_on_as_many_nics_as_asked(void **state)
{
    (void)state;
    for (uint32_t nics = 2; nics <= VB_SIM_NICS_MAX; nics++) {
        struct vb_sim_result r = run(nics, nics, NULL);
        assert_int_equal(r.nics, nics);
        assert_true(r.works >= OPS);
    }
}

// Changes one byte behind the NICs' backs; the simulator must not miss it.
static void test_a_changed_byte_is_noticed(void **state)
{
    (void)state;
    struct vb_scenario scen;
    struct vb_coverage cover = {0};
    vb_scenario_draw(&scen, 1, 2, OPS);
    struct vb_world *w = vb_world_create(&scen, &cover, NULL);
    assert_non_null(w);
    w->node[0].mem.bytes[3] ^= 1; // a guard
    vb_world_run(w);
    assert_true(w->violated);
    assert_non_null(strstr(w->violation, "changed by nobody"));
    vb_world_destroy(w);
}

static void test_jobs_do_not_change_the_outcome(void **state)
{
    (void)state;
    struct vb_batch_result one, three;
    struct vb_batch_opts opts = {.first = 20, .count = 12, .jobs = 1, .ops = OPS};
    assert_int_equal(vb_batch_run(&opts, &one), 0);
    opts.jobs = 3;
    assert_int_equal(vb_batch_run(&opts, &three), 0);
    assert_int_equal(one.done, 12);
    assert_int_equal(three.done, 12);
    assert_int_equal(one.events, three.events);
    assert_memory_equal(&one.cover, &three.cover, sizeof one.cover);
}

static void test_coverage_tells_empty_rows(void **state)
{
    (void)state;
    struct vb_coverage a = {0}, b = {0};
    uint32_t all = vb_cover_zero_rows(&a);
    vb_cover(&a, VB_COVER_TIMEOUT);
    vb_cover(&b, VB_COVER_TIMEOUT);
    b.moved[VB_QPS_RTS][VB_QPS_ERR] = 1;
    b.moved[VB_QPS_RESET][VB_QPS_RTS] = 1; // not a legal one: only its refusal counts
    vb_cover_merge(&a, &b);
    assert_int_equal(a.row[VB_COVER_TIMEOUT], 2);
    assert_int_equal(vb_cover_zero_rows(&a), all - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_seed_replays_event_by_event),
        cmocka_unit_test(test_tracing_changes_nothing),
        cmocka_unit_test(test_seeds_differ),
        cmocka_unit_test(test_the_work_is_done_on_as_many_nics_as_asked),
        cmocka_unit_test(test_a_changed_byte_is_noticed),
        cmocka_unit_test(test_jobs_do_not_change_the_outcome),
        cmocka_unit_test(test_coverage_tells_empty_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
