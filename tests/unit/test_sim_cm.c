// SPDX-License-Identifier: Apache-2.0
// The simulator's worlds of communication managers: they repeat, they differ, and a few dozen seeds
// see nearly everything.
#include "sim/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SEEDS = 60
};

static struct vb_sim_result run(uint64_t seed, struct vb_coverage *cover)
{
    const struct vb_sim_opts opts = {.seed = seed, .cm = true};
    struct vb_sim_result result;

    assert_int_equal(vb_sim_run(&opts, &result, cover), 0);
    if (result.violated)
        fail_msg("seed %llu: %s", (unsigned long long)seed, result.text);
    return result;
}

// A REJ came before the host had taken the event of its connection.
static void test_found(void **state)
{
    struct vb_coverage *cover = calloc(1, sizeof *cover);

    (void)state;
    assert_non_null(cover);
    run(221354438, cover);
    free(cover);
}

static void test_repeats(void **state)
{
    struct vb_coverage *cover = calloc(1, sizeof *cover);

    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct vb_sim_result first = run(seed, cover), again = run(seed, cover);
        assert_true(first.digest == again.digest && first.events == again.events);
        assert_true(first.digest != run(seed + 100, cover).digest);
    }
    free(cover);
}

static void test_covers(void **state)
{
    struct vb_coverage *cover = calloc(1, sizeof *cover);

    (void)state;
    assert_true(vb_cmcover_zero_rows(&cover->cm) > 60);
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(seed, cover);
    assert_in_range(vb_cmcover_zero_rows(&cover->cm), 0, 2);
    for (int i = 0; i < VB_CM_KINDS; i++)
        assert_true(cover->cm.message[i] > 0);
    for (int i = VB_CM_FREE + 1; i < VB_CM_STATES; i++)
        assert_true(cover->cm.state[i] > 0);
    assert_true(cover->row[VB_COVER_OP_ACK] == 0); // no other world ran
    free(cover);
}

static void test_merges(void **state)
{
    struct vb_coverage *one = calloc(1, sizeof *one), *two = calloc(1, sizeof *two);

    (void)state;
    run(1, one);
    run(2, two);
    uint64_t reqs = one->cm.message[0] + two->cm.message[0];
    vb_cover_merge(one, two);
    assert_true(one->cm.message[0] == reqs && reqs > 0);
    free(one);
    free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_covers),
        cmocka_unit_test(test_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
