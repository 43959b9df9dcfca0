// SPDX-License-Identifier: Apache-2.0
// The unrolled list walk: every position, misses, short and long lists, depths, units, wraps, and
// what it costs.
#include "fresh_seed.h"
#include "list_rig.h"

#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    NODES = 8,
    SLOTS = 4,
};

static void open_walk(struct list_rig *r, const struct vb_list_opts *opts,
                      const struct vb_machine_opts *machine, uint32_t list)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_offload_list_walk(opts, error);
    if (!image)
        fail_msg("%s", error);
    list_open(r, image, opts, machine, list);
}

// Random positions, heads and misses, one request after another.
static void one_by_one(const struct vb_list_opts *opts, const struct vb_machine_opts *machine,
                       uint32_t list, uint32_t requests)
{
    struct vb_prng prng = {.state = machine->seed + 5};
    struct list_rig r;

    open_walk(&r, opts, machine, list);
    for (uint32_t i = 0; i < requests; i++) {
        uint32_t from = vb_prng_below(&prng, 3) ? 0 : (uint32_t)vb_prng_below(&prng, list + 1);
        uint32_t n = (uint32_t)vb_prng_below(&prng, list + 3);
        bool hit = n < list && n >= from && n - from < opts->nodes;
        list_ask(&r, n, from);
        vb_machine_run(r.m, 1000000);
        list_expect(&r, hit ? n : LIST_MISS);
        list_expect_none(&r);
    }
    assert_int_equal(vb_machine_fault(r.m, r.w), 0);
    list_close(&r);
}

static struct vb_list_opts opts_of(uint32_t nodes, bool stops)
{
    return (struct vb_list_opts){
        .slots = SLOTS, .value_max = LIST_VALUE_MAX, .nodes = nodes, .stops = stops};
}

static void test_lengths(void **state)
{
    static const uint32_t nodes[] = {1, 2, 3, 4, 5, 8, 14, 15, 16, 17, 31, 64};

    (void)state;
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        for (int stops = 0; stops < 2; stops++) {
            struct vb_list_opts opts = opts_of(nodes[i], stops);
            for (uint32_t list = nodes[i] - 1; list <= nodes[i] + 2; list++)
                one_by_one(&opts, &(struct vb_machine_opts){.seed = list}, list, 20);
        }
}

static void test_depths_and_units(void **state)
{
    static const uint32_t depth[] = {1, 2, 3, 5, 16, 64};

    (void)state;
    for (size_t d = 0; d < sizeof depth / sizeof depth[0]; d++)
        for (uint32_t units = 1; units <= 2; units++)
            for (uint64_t seed = 1; seed <= 3; seed++)
                for (int stops = 0; stops < 2; stops++) {
                    struct vb_machine_opts machine = {
                        .seed = seed, .units = units, .fetch_depth = depth[d]};
                    struct vb_list_opts some = opts_of(NODES, stops), many = opts_of(20, stops);
                    one_by_one(&some, &machine, NODES, 20);
                    one_by_one(&many, &machine, 22, 10);
                }
}

static void test_counters_wrap(void **state)
{
    static const uint64_t near[] = {1ull << 16, 1ull << 23, 1ull << 24, 1ull << 32};

    (void)state;
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++)
        for (int stops = 0; stops < 2; stops++) {
            struct vb_list_opts opts = opts_of(NODES, stops);
            one_by_one(&opts, &(struct vb_machine_opts){.seed = i, .start = near[i]}, NODES, 300);
        }
}

// Many requests under way: each is answered once, in order.
static void pipelined(const struct vb_list_opts *opts, const struct vb_machine_opts *machine)
{
    uint32_t list = opts->nodes;
    struct list_rig r;

    open_walk(&r, opts, machine, list);
    for (uint32_t i = 0; i < 64; i++)
        list_ask(&r, i % (list + 1), 0);
    vb_machine_run(r.m, 1000000);
    for (uint32_t i = 0; i < 64; i++) {
        struct vb_machine_reply reply;
        assert_true(vb_machine_take(r.m, r.k, &reply));
        assert_int_equal(reply.imm,
                         i % (list + 1) < list ? list_length(i % (list + 1)) : VB_HASH_MISS);
    }
    list_expect_none(&r);
    list_close(&r);
}

static void test_pipelined(void **state)
{
    (void)state;
    for (uint64_t first = fresh_seed(), seed = first; seed < first + 20; seed++)
        for (int stops = 0; stops < 2; stops++) {
            struct vb_machine_opts machine = {.seed = seed, .units = 1 + seed % 2};
            struct vb_list_opts some = opts_of(NODES, stops), few = opts_of(1, stops);
            pipelined(&some, &machine);
            few.slots = 2; // a slot comes round before its reply is done
            pipelined(&few, &machine);
        }
}

// ---- what it costs

struct cost {
    uint32_t walk, rearm; // entries executed from the request to the answer, and for the next round
};

static uint32_t block_of(const struct list_rig *r, const char *what, uint32_t slot)
{
    char name[VB_IMAGE_NAME];
    snprintf(name, sizeof name, "%s%u", what, slot);
    int label = vb_image_find_label(r->image, name);
    assert_true(label >= 0);
    return r->image->label[label].block;
}

static struct cost run_and_count(struct list_rig *r)
{
    struct cost cost = {0, 0};
    struct vb_step step;
    uint32_t unit;

    while (vb_machine_step(r->m, &step, &unit)) {
        int q = step.kind == VB_STEP_EXEC ? vb_machine_queue(r->m, step.qpn) : -1;
        if (q < 0 || unit == UINT32_MAX)
            continue;
        uint32_t block = (uint32_t)step.counter & (r->image->queue[q].blocks - 1);
        bool walks = (uint32_t)q == r->k && block <= block_of(r, "done", r->slots - 1);
        for (uint32_t s = 0; (uint32_t)q == r->w && s < r->slots; s++)
            walks |= block >= block_of(r, "gate", s) && block <= block_of(r, "reply", s);
        *(walks ? &cost.walk : &cost.rearm) += 1;
    }
    return cost;
}

// The average over keys at every position of a list of eight. In a round that has begun: what
// comes before the gate was done by the request before.
static void average(bool stops, double *walk, double *rearm)
{
    struct vb_list_opts opts = opts_of(NODES, stops);
    struct list_rig r;
    uint32_t rounds = 4, walks = 0, rearms = 0;

    open_walk(&r, &opts, &(struct vb_machine_opts){.seed = 1}, NODES);
    run_and_count(&r);
    for (uint32_t i = 0; i < rounds * NODES; i++) {
        list_ask(&r, i % NODES, 0);
        struct cost cost = run_and_count(&r);
        list_expect(&r, i % NODES);
        walks += cost.walk;
        rearms += cost.rearm;
    }
    *walk = (double)walks / (rounds * NODES);
    *rearm = (double)rearms / (rounds * NODES);
    list_close(&r);
}

static void test_costs_no_more_than_the_paper(void **state)
{
    double whole, stopped, whole_rearm, stopped_rearm;

    (void)state;
    average(false, &whole, &whole_rearm);
    average(true, &stopped, &stopped_rearm);
    print_message("list of 8: %.1f entries without a stop (paper: 50), %.1f with one (paper: 30), "
                  "%.0f %% more; and for the next round %.1f and %.1f\n",
                  whole, stopped, 100 * (whole / stopped - 1), whole_rearm, stopped_rearm);
    assert_true(whole <= 50);
    assert_true(stopped <= 30);
    assert_true(whole > 1.65 * stopped);
}

static void test_refuses(void **state)
{
    char error[VB_IMAGE_TEXT] = "";

    (void)state;
    assert_null(vb_offload_list_walk(&(struct vb_list_opts){.nodes = 65}, error));
    assert_string_equal(error, "list_walk: 65 nodes, but at most 64 are unrolled");
    assert_null(vb_offload_list_walk(&(struct vb_list_opts){.slots = 3}, error));
    assert_string_equal(error, "list_walk: 3 slots, but they are a power of two from 2 to 1024");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_depths_and_units),
        cmocka_unit_test(test_counters_wrap),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_costs_no_more_than_the_paper),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
