// SPDX-License-Identifier: Apache-2.0
// Worlds whose NICs take the turns of production: they are judged, they do what observed ones do,
// and a difference is noticed. Worlds with rates, too.
#include "sim/equal.h"
#include "sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    OPS = 600,
    SEEDS = 12,
};

static void run(const struct vb_sim_opts *opts, struct vb_coverage *cover)
{
    struct vb_sim_result result;

    assert_int_equal(vb_sim_run(opts, &result, cover), 0);
    if (result.violated)
        fail_msg("seed %llu: %s", (unsigned long long)opts->seed, result.text);
}

static void test_observed_and_unheard_polls_are_equal(void **state)
{
    struct vb_coverage cover = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(&(struct vb_sim_opts){.seed = seed, .ops = OPS, .equal = true}, &cover);
    assert_true(cover.row[VB_COVER_TURN_TAKEN] > 0);
    assert_true(cover.row[VB_COVER_CHAIN_HASH_ONE] > 0);
}

// What seeds have found: a turn of 65 frames, which only a poll made; frames from another unit, for
// which only a poll of several shares went on; a message that may go beyond its credits, held by a
// rate.
static void test_found_seeds(void **state)
{
    static const uint64_t equal[] = {5056, 271, 501, 758};
    struct vb_coverage cover = {0};

    (void)state;
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        run(&(struct vb_sim_opts){.seed = equal[i], .equal = true, .chains = VB_SIM_CHAINS_NONE},
            &cover);
    run(&(struct vb_sim_opts){.seed = 612, .chains = VB_SIM_CHAINS_NONE}, &cover);
}

static struct vb_world *create(enum vb_sim_drive drive, struct vb_coverage *cover)
{
    struct vb_scenario scen;

    vb_scenario_draw(&scen, 1, 2, OPS);
    scen.drive = drive;
    struct vb_world *w = vb_world_create(&scen, cover, NULL);
    assert_non_null(w);
    return w;
}

// A NIC that takes turns is judged: what its memory holds, and what it was told of.
static void test_changes_between_turns_are_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_world *w = create(VB_DRIVE_TURNS, &cover);

    (void)state;
    for (int i = 0; i < 400; i++)
        assert_true(vb_world_advance(w));
    for (uint32_t at = 0; at < w->node[0].mem.size; at += 16)
        w->node[0].mem.bytes[at] ^= 1;
    while (vb_world_advance(w))
        ;
    vb_world_finish(w);
    assert_true(w->violated);
    vb_world_destroy(w);
}

// In the memory and in what the model expects of it, so that only the other world tells.
static void test_a_difference_is_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_world *a = create(VB_DRIVE_OBSERVED, &cover), *b = create(VB_DRIVE_UNHEARD, &cover);
    struct vb_hostmem *mem = &b->node[0].mem;

    (void)state;
    mem->bytes[3] ^= 1;
    mem->shadow[3] ^= 1;
    vb_equal_run(a, b);
    assert_false(a->violated);
    assert_true(b->violated);
    assert_non_null(strstr(b->violation, "the memory of NIC 0"));
    vb_world_destroy(a);
    vb_world_destroy(b);
}

// Another draw in one of the worlds is a difference, whatever comes of it.
static void test_another_draw_is_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_world *a = create(VB_DRIVE_OBSERVED, &cover), *b = create(VB_DRIVE_UNHEARD, &cover);

    (void)state;
    vb_prng_next(&b->prng);
    vb_equal_run(a, b);
    assert_true(b->violated);
    assert_non_null(strstr(b->violation, "the polls differ"));
    vb_world_destroy(a);
    vb_world_destroy(b);
}

static uint64_t seed_with(bool dcqcn, bool rated)
{
    struct vb_scenario scen;
    uint64_t seed = 0;

    do
        vb_scenario_draw(&scen, ++seed, 0, OPS);
    while (scen.dcqcn != dcqcn || (scen.share_Bps > 0) != rated);
    return seed;
}

static void test_rates_are_drawn_and_judged(void **state)
{
    struct vb_coverage cc = {0}, share = {0}, none = {0};

    (void)state;
    run(&(struct vb_sim_opts){.seed = seed_with(true, false), .ops = 5000}, &cc);
    run(&(struct vb_sim_opts){.seed = seed_with(false, true), .ops = 5000}, &share);
    run(&(struct vb_sim_opts){.seed = seed_with(false, false), .ops = OPS}, &none);
    assert_true(cc.row[VB_COVER_CC_MARKED] > 0 && cc.row[VB_COVER_CC_CNP_SENT] > 0);
    assert_true(share.row[VB_COVER_SHARE_SENT] > 0);
    assert_int_equal(none.row[VB_COVER_CC_MARKED], 0);
    assert_int_equal(none.row[VB_COVER_SHARE_PACED], 0);
}

// The model's own rate is a bound: a share that is said to have a lower one than it has sends too
// much.
static void test_more_than_a_rate_is_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_scenario scen;

    (void)state;
    vb_scenario_draw(&scen, seed_with(false, true), 0, 5000);
    struct vb_world *w = vb_world_create(&scen, &cover, NULL);
    assert_non_null(w);
    for (uint32_t i = 0; i < scen.nics; i++)
        for (uint32_t s = 0; s < scen.shares; s++)
            w->node[i].share_attr[s].rate_Bps = 1000;
    vb_world_run(w);
    assert_true(w->violated);
    assert_non_null(strstr(w->violation, "past its rate"));
    vb_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_observed_and_unheard_polls_are_equal),
        cmocka_unit_test(test_found_seeds),
        cmocka_unit_test(test_changes_between_turns_are_noticed),
        cmocka_unit_test(test_a_difference_is_noticed),
        cmocka_unit_test(test_another_draw_is_noticed),
        cmocka_unit_test(test_rates_are_drawn_and_judged),
        cmocka_unit_test(test_more_than_a_rate_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
