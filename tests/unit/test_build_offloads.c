// SPDX-License-Identifier: Apache-2.0
// The options of offloads: what each makes of them, by default and at its limits, and what is
// refused.
#include "chain/image.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    BUCKET = 24,
    NODE = 32,
};

static struct vb_image *hash_one(uint32_t slots, uint32_t value_max, char *error)
{
    return vb_offload_hash_get(&(struct vb_hash_opts){slots, value_max, VB_HASH_ONE}, error);
}

static struct vb_image *hash_sequential(uint32_t slots, uint32_t value_max, char *error)
{
    return vb_offload_hash_get(&(struct vb_hash_opts){slots, value_max, VB_HASH_SEQUENTIAL}, error);
}

static struct vb_image *hash_parallel(uint32_t slots, uint32_t value_max, char *error)
{
    return vb_offload_hash_get(&(struct vb_hash_opts){slots, value_max, VB_HASH_PARALLEL}, error);
}

static struct vb_image *list_walk(uint32_t slots, uint32_t value_max, char *error)
{
    return vb_offload_list_walk(
        &(struct vb_list_opts){.slots = slots, .value_max = value_max, .nodes = 1}, error);
}

static struct vb_image *list_loop(uint32_t slots, uint32_t value_max, char *error)
{
    return vb_offload_list_loop(&(struct vb_list_opts){.slots = slots, .value_max = value_max},
                                error);
}

static const struct {
    struct vb_image *(*make)(uint32_t slots, uint32_t value_max, char *error);
    const char *name;
    uint32_t queues, recv_stride, entry_bytes, slots_max;
} all[] = {{hash_one, "hash_get", 2, 64, BUCKET, 1024},
           {hash_sequential, "hash_two", 2, 128, BUCKET, 1024},
           {hash_parallel, "hash_two", 3, 128, BUCKET, 1024},
           {list_walk, "list_walk", 2, 32, NODE, 1024},
           {list_loop, "list_loop", 2, 16, NODE, 1}};

static uint64_t bytes_of(const struct vb_image *image, const char *region)
{
    int i = vb_image_find_region(image, region);
    assert_true(i >= 0);
    return image->region[i].bytes;
}

static void test_options(void **state)
{
    static const struct {
        uint32_t slots, value_max;
    } opts[] = {{0, 0}, {2, 1}, {4, 0}, {0, 100}, {1024, 1}};

    (void)state;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (uint32_t n = 0; n < sizeof opts / sizeof opts[0]; n++) {
            bool fits = opts[n].slots < 1024 || all[i].make == hash_one;
            uint32_t slots = opts[n].slots ? opts[n].slots : 8;
            uint32_t value_max = opts[n].value_max ? opts[n].value_max : 4096;
            char error[VB_IMAGE_TEXT] = "";
            if (!fits) // its ring is not long enough, or it is slow to build
                continue;
            struct vb_image *image = all[i].make(opts[n].slots, opts[n].value_max, error);
            if (!image)
                fail_msg("%s: %s", all[i].name, error);
            const struct vb_image_queue *k = &image->queue[vb_image_find_queue(image, "K")];
            if (all[i].slots_max == 1)
                slots = 1;
            assert_string_equal(image->name, all[i].name);
            assert_int_equal(image->queues, all[i].queues);
            assert_int_equal(k->recvs, slots);
            assert_int_equal(k->recv_open, slots);
            assert_int_equal(k->recv_stride, all[i].recv_stride);
            assert_true(k->managed_send && k->managed_recv);
            assert_int_equal(bytes_of(image, "client"), (uint64_t)slots * value_max);
            assert_int_equal(bytes_of(image, "index"), all[i].entry_bytes);
            assert_int_equal(bytes_of(image, "items"), 1);
            assert_int_equal(bytes_of(image, "scratch"), 8);
            vb_image_destroy(image);
        }
}

static void test_wrong_slots(void **state)
{
    static const uint32_t slots[] = {1, 3, 6, 1025, 2048};
    char error[VB_IMAGE_TEXT], expected[VB_IMAGE_TEXT];

    (void)state;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (uint32_t n = 0; all[i].slots_max > 1 && n < sizeof slots / sizeof slots[0]; n++) {
            snprintf(expected, sizeof expected,
                     "%s: %u slots, but they are a power of two from 2 to 1024", all[i].name,
                     slots[n]);
            assert_null(all[i].make(slots[n], 0, error));
            assert_string_equal(error, expected);
        }
}

// Nodes by default, and the receives that take a key for each, or one for all.
static void test_nodes(void **state)
{
    static const struct {
        uint32_t nodes, recv_stride;
    } walk[] = {{0, 256}, {1, 32}, {3, 64}, {8, 256}, {15, 256}, {16, 32}, {64, 32}};
    char error[VB_IMAGE_TEXT] = "";
    uint32_t blocks[7];

    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        struct vb_image *image =
            vb_offload_list_walk(&(struct vb_list_opts){.slots = 2, .nodes = walk[i].nodes}, error);
        if (!image)
            fail_msg("%s", error);
        assert_int_equal(image->queue[1].recv_stride, walk[i].recv_stride);
        blocks[i] = image->queue[0].filled;
        vb_image_destroy(image);
    }
    assert_int_equal(blocks[0], blocks[3]); // eight of them
    assert_null(vb_offload_list_walk(&(struct vb_list_opts){.nodes = 65}, error));
    assert_string_equal(error, "list_walk: 65 nodes, but at most 64 are unrolled");
}

static void test_universal_options(void **state)
{
    static const struct {
        struct vb_universal_opts opts;
        bool right;
    } machine[] = {{{1, 1, 0}, true},  {{4, 9, 8}, true},  {{4, 9, 9}, false},
                   {{0, 9, 0}, false}, {{1, 0, 0}, false}, {{2, 5, 6}, false}};

    (void)state;
    for (uint32_t i = 0; i < sizeof machine / sizeof machine[0]; i++) {
        char error[VB_IMAGE_TEXT] = "";
        struct vb_image *image = vb_offload_universal(&machine[i].opts, error);
        assert_int_equal(image != NULL, machine[i].right);
        if (image) {
            assert_int_equal(bytes_of(image, "table"), 24 * machine[i].opts.rules);
            assert_int_equal(bytes_of(image, "tape"), 2 * machine[i].opts.cells);
            assert_int_equal(bytes_of(image, "registers"), 40);
        } else {
            assert_string_equal(error, "a universal machine needs a rule, and a tape under its "
                                       "head");
        }
        vb_image_destroy(image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_wrong_slots),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_universal_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
