// SPDX-License-Identifier: Apache-2.0
// The simulator's worlds of chain programs: they replay exactly, they leave the other worlds alone,
// and they notice what is wrong.
#include "sim/chain_world.h"
#include "sim/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    OPS = 1000
};

static struct vb_sim_result run(uint64_t seed, enum vb_sim_chains chains, FILE *trace)
{
    struct vb_coverage cover = {0};
    struct vb_sim_result result;
    const struct vb_sim_opts opts = {.seed = seed, .ops = OPS, .chains = chains, .trace = trace};
    assert_int_equal(vb_sim_run(&opts, &result, &cover), 0);
    if (result.violated)
        fail_msg("seed %llu: %s", (unsigned long long)seed, result.text);
    return result;
}

static struct vb_chainworld *world(uint64_t seed, struct vb_coverage *cover)
{
    struct vb_scenario scen;
    vb_scenario_draw(&scen, seed, 0, OPS);
    struct vb_chainworld *w = vb_chainworld_create(&scen, cover, NULL);
    assert_non_null(w);
    return w;
}

static void test_a_seed_replays_event_by_event(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        char *text[2];
        size_t len[2];
        uint64_t digest[2];
        for (int i = 0; i < 2; i++) {
            FILE *trace = open_memstream(&text[i], &len[i]);
            void *shift = malloc(100000 + 7777 * (size_t)i); // other addresses the second time
            digest[i] = run(seed, VB_SIM_CHAINS_ONLY, trace).digest;
            free(shift);
            fclose(trace);
        }
        assert_int_equal(digest[0], digest[1]);
        assert_int_equal(len[0], len[1]);
        assert_string_equal(text[0], text[1]);
        free(text[0]);
        free(text[1]);
        assert_int_equal(run(seed, VB_SIM_CHAINS_ONLY, NULL).digest, digest[0]);
    }
    assert_int_not_equal(run(1, VB_SIM_CHAINS_ONLY, NULL).digest,
                         run(2, VB_SIM_CHAINS_ONLY, NULL).digest);
}

// About half of the seeds have one; the digests of the others are what they were without.
static void test_seeds_without_chains_stay_as_they_were(void **state)
{
    uint32_t drawn = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 1000; seed++)
        drawn += vb_chainworld_is_drawn(seed);
    assert_in_range(drawn, 420, 580);
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct vb_sim_result with = run(seed, VB_SIM_CHAINS_DRAWN, NULL);
        struct vb_sim_result without = run(seed, VB_SIM_CHAINS_NONE, NULL);
        assert_int_equal(with.digest == without.digest, !vb_chainworld_is_drawn(seed));
        assert_int_equal(with.events == without.events, !vb_chainworld_is_drawn(seed));
    }
}

static void test_all_requests_are_answered(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct vb_coverage cover = {0};
        struct vb_chainworld *w = world(seed, &cover);
        vb_chainworld_run(w);
        if (w->violated)
            fail_msg("%s", w->violation);
        uint64_t answers = 0;
        for (int i = VB_COVER_CHAIN_HASH_ONE; i <= VB_COVER_CHAIN_LIST_LOOP; i++)
            answers += cover.row[i];
        assert_true(w->done >= w->quota && answers == w->done);
        assert_true(cover.row[VB_COVER_CHAIN_SOLO] + cover.row[VB_COVER_CHAIN_SOLO_LOOP] > 0);
        vb_chainworld_destroy(w);
    }
}

// ---- what must be noticed

static void expect_violation(struct vb_chainworld *w, const char *text)
{
    vb_chainworld_run(w);
    assert_true(w->violated);
    if (!strstr(w->violation, text))
        fail_msg("'%s' does not say '%s'", w->violation, text);
    vb_chainworld_destroy(w);
}

static void test_a_changed_guard_is_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_chainworld *w = world(1, &cover);

    (void)state;
    w->nic[0].store.items->block[3] ^= 1;
    expect_violation(w, "changed");
}

static void test_a_changed_index_is_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_chainworld *w = world(1, &cover);

    (void)state;
    // Behind the last value: nobody asks for it.
    w->nic[0].store.items->at[w->nic[0].store.items->len - 1] ^= 1;
    expect_violation(w, "only read was changed");
}

static void test_a_wrong_length_is_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_chainworld *w = world(3, &cover);

    (void)state;
    for (uint32_t s = 0; s < w->servers; s++)
        for (uint32_t i = 0; i < VB_CHAINS_BUCKETS + VB_CHAINS_NODES; i++)
            w->nic[s].store.len[i]++;
    expect_violation(w, "was answered by");
}

static void test_wrong_bytes_are_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_chainworld *w = world(3, &cover);

    (void)state;
    for (uint32_t s = 0; s < w->servers; s++)
        for (uint32_t i = 0; i < w->nic[s].store.items->len; i++)
            w->nic[s].store.items_before[i] ^= 1;
    expect_violation(w, "other bytes");
}

static void test_a_wrong_variable_is_noticed(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_chainworld *w = world(1, &cover);

    (void)state;
    assert_int_equal(vb_solo_load(w), 0);
    w->solo[0].var[2] ^= 1;
    expect_violation(w, "variable 2");
}

// The network drops everything again once nothing from before its healing is left: no caller and no
// program may end by retries because of that.
static void test_an_end_by_retries_after_healing_is_noticed(void **state)
{
    uint32_t noticed = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct vb_coverage cover = {0};
        struct vb_chainworld *w = world(seed, &cover);
        while (w->clear_ns == UINT64_MAX && vb_chainworld_advance(w))
            ;
        for (uint32_t i = 0; i < w->nics * w->nics; i++)
            vb_simnet_cut(w->net, i / w->nics, i % w->nics, UINT64_MAX);
        vb_chainworld_run(w); // to its end, if the last answers were under way
        if (w->violated && !strstr(w->violation, "ends by retries"))
            fail_msg("seed %llu: %s", (unsigned long long)seed, w->violation);
        noticed += w->violated;
        vb_chainworld_destroy(w);
    }
    assert_in_range(noticed, 5, 20);
}

static void test_memory_belongs_to_its_owner(void **state)
{
    struct vb_coverage cover = {0};
    struct vb_chainworld *w = world(1, &cover);
    struct vb_chainnic *nic = &w->nic[0];
    struct vb_piece *mine = vb_piece_create(nic, 100, 7);

    (void)state;
    assert_non_null(mine);
    struct vb_touch touch = {mine->at + 10, 90, true};
    assert_true(vb_piece_allows(nic, 7, &touch));
    assert_false(vb_piece_allows(nic, 8, &touch));
    touch.len = 91;
    assert_false(vb_piece_allows(nic, 7, &touch));
    touch = (struct vb_touch){mine->at - 1, 1, false};
    assert_false(vb_piece_allows(nic, 7, &touch));
    touch = (struct vb_touch){nic->store.index->at, 8, false};
    assert_true(vb_piece_allows(nic, 7, &touch));
    touch.write = true;
    assert_false(vb_piece_allows(nic, 7, &touch));
    vb_piece_destroy(nic, 7);
    assert_false(w->violated);
    vb_chainworld_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_seed_replays_event_by_event),
        cmocka_unit_test(test_seeds_without_chains_stay_as_they_were),
        cmocka_unit_test(test_all_requests_are_answered),
        cmocka_unit_test(test_a_changed_guard_is_noticed),
        cmocka_unit_test(test_a_changed_index_is_noticed),
        cmocka_unit_test(test_a_wrong_length_is_noticed),
        cmocka_unit_test(test_wrong_bytes_are_noticed),
        cmocka_unit_test(test_a_wrong_variable_is_noticed),
        cmocka_unit_test(test_an_end_by_retries_after_healing_is_noticed),
        cmocka_unit_test(test_memory_belongs_to_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
