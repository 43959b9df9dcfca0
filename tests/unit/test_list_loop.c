// SPDX-License-Identifier: Apache-2.0
// The list walk that goes round once for each node: long lists, many requests, depths, units,
// wraps, and what it costs.
#include "fresh_seed.h"
#include "list_rig.h"

#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct vb_list_opts opts = {.slots = 1, .value_max = LIST_VALUE_MAX};

static void open_loop(struct list_rig *r, const struct vb_machine_opts *machine, uint32_t list)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_offload_list_loop(&opts, error);
    if (!image)
        fail_msg("%s", error);
    list_open(r, image, &opts, machine, list);
}

static void one_by_one(const struct vb_machine_opts *machine, uint32_t list, uint32_t requests)
{
    struct vb_prng prng = {.state = machine->seed + 9};
    struct list_rig r;

    open_loop(&r, machine, list);
    for (uint32_t i = 0; i < requests; i++) {
        uint32_t from = vb_prng_below(&prng, 3) ? 0 : (uint32_t)vb_prng_below(&prng, list + 1);
        uint32_t n = (uint32_t)vb_prng_below(&prng, list + list / 4 + 2);
        list_ask(&r, n, from);
        vb_machine_run(r.m, 10000000);
        list_expect(&r, n < list && n >= from ? n : LIST_MISS);
        list_expect_none(&r);
    }
    assert_int_equal(vb_machine_fault(r.m, r.w), 0);
    list_close(&r);
}

static void test_lengths(void **state)
{
    (void)state;
    for (uint32_t list = 0; list <= 20; list++)
        one_by_one(&(struct vb_machine_opts){.seed = list}, list, 40);
}

static void test_depths_and_units(void **state)
{
    static const uint32_t depth[] = {1, 2, 3, 5, 16, 64};

    (void)state;
    for (size_t d = 0; d < sizeof depth / sizeof depth[0]; d++)
        for (uint32_t units = 1; units <= 2; units++)
            for (uint64_t seed = 1; seed <= 4; seed++)
                one_by_one(&(struct vb_machine_opts){.seed = seed,
                                                     .units = units,
                                                     .fetch_depth = depth[d]},
                           9, 40);
}

static void test_counters_wrap(void **state)
{
    static const uint64_t near[] = {1ull << 16, 1ull << 23, 1ull << 24, 1ull << 32};

    (void)state;
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++)
        one_by_one(&(struct vb_machine_opts){.seed = i, .start = near[i]}, 5, 400);
}

// Longer than any of its queues, and than their 16-bit counters.
static void test_ten_thousand_nodes(void **state)
{
    enum {
        NODES = 12000
    };
    struct list_rig r;
    static const uint32_t ask[] = {NODES - 1, NODES, 0, 10000, 3, NODES + 5, NODES - 1};

    (void)state;
    open_loop(&r, &(struct vb_machine_opts){.seed = 4, .units = 2}, NODES);
    for (size_t i = 0; i < sizeof ask / sizeof ask[0]; i++) {
        list_ask(&r, ask[i], 0);
        vb_machine_run(r.m, 10000000);
        list_expect(&r, ask[i] < NODES ? ask[i] : LIST_MISS);
    }
    list_expect_none(&r);
    list_close(&r);
}

// Requests that come while another is under way wait for their turn, and do not touch it, however
// far ahead entries are fetched.
static void test_overrun(void **state)
{
    static const uint32_t depth[] = {0, 1, 2, 3, 5, 16};

    (void)state;
    for (uint64_t first = fresh_seed(), seed = first; seed < first + 12; seed++) {
        struct list_rig r;
        open_loop(&r,
                  &(struct vb_machine_opts){
                      .seed = seed, .units = 1 + seed % 2, .fetch_depth = depth[seed % 6]},
                  6);
        for (uint32_t i = 0; i < 40; i++)
            list_ask(&r, i % 8, 0);
        vb_machine_run(r.m, 10000000);
        for (uint32_t i = 0; i < 40; i++) {
            struct vb_machine_reply reply;
            assert_true(vb_machine_take(r.m, r.k, &reply));
            assert_int_equal(reply.imm, i % 8 < 6 ? list_length(i % 8) : VB_HASH_MISS);
        }
        list_expect_none(&r);
        list_close(&r);
    }
}

// A list that ends in itself is walked until the limit of entries per request ends it.
static void test_circle_is_limited(void **state)
{
    struct list_rig r;

    (void)state;
    open_loop(&r, &(struct vb_machine_opts){.seed = 1, .limit = 5000}, 3);
    struct vb_list_node *index = (void *)vb_machine_data(r.m, r.index);
    index[r.place[2]].next = index[r.place[0]].next;
    list_ask(&r, 77, 0);
    vb_machine_run(r.m, 1000000);
    list_expect_none(&r);
    assert_int_not_equal(vb_machine_fault(r.m, r.w), 0);
    assert_in_range(vb_machine_executed(r.m, r.w), 4000, 5001);
    list_close(&r);
}

// Entries for a request for the node at this position.
static uint64_t entries(uint32_t position)
{
    struct list_rig r;

    open_loop(&r, &(struct vb_machine_opts){.seed = 1}, 200);
    vb_machine_run(r.m, 1000);
    uint64_t before = vb_machine_executed(r.m, r.w) + vb_machine_executed(r.m, r.k);
    list_ask(&r, position, 0);
    vb_machine_run(r.m, 1000000);
    list_expect(&r, position);
    uint64_t after = vb_machine_executed(r.m, r.w) + vb_machine_executed(r.m, r.k);
    list_close(&r);
    return after - before;
}

// A round of the ring is two nodes.
static void test_costs_the_same_for_each_node(void **state)
{
    uint64_t round = entries(3) - entries(1);

    (void)state;
    assert_int_equal(entries(101) - entries(1), 50 * round);
    print_message("list loop: %.1f entries for each node, %.1f for the answer\n", (double)round / 2,
                  (double)entries(1) - (double)round);
    assert_true(round <= 27);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_depths_and_units),
        cmocka_unit_test(test_counters_wrap),
        cmocka_unit_test(test_ten_thousand_nodes),
        cmocka_unit_test(test_overrun),
        cmocka_unit_test(test_circle_is_limited),
        cmocka_unit_test(test_costs_the_same_for_each_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
