// SPDX-License-Identifier: Apache-2.0
// The hash get offload on a machine without ports: hits, misses, order, every depth and unit count.
#include "base/bytes.h"
#include "base/prng.h"
#include "chain/machine.h"
#include "fresh_seed.h"
#include "hash_kit.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BUCKETS = 64,
    VALUE_MAX = 256,
    SLOTS = 4,
};

struct rig {
    struct vb_image *image;
    struct vb_machine *m;
    uint32_t k, index, items, client;
    uint32_t asked, answered;
};

static uint32_t length_of(uint32_t n)
{
    return 1 + n * 37 % VALUE_MAX;
}

static uint8_t byte_of(uint32_t n, uint32_t at)
{
    return (uint8_t)(n * 31 + at);
}

static void fill(struct rig *r)
{
    struct vb_hash_bucket *bucket = (void *)vb_machine_data(r->m, r->index);
    uint8_t *items = vb_machine_data(r->m, r->items);

    for (uint32_t n = 0; n < BUCKETS; n++) {
        uint8_t key[VB_HASH_KEY_BYTES];
        hash_key_of(n, key);
        bucket[n].addr = htobe64(vb_machine_address(r->m, r->items) + (uint64_t)n * VALUE_MAX);
        bucket[n].len = bucket[n].len_again = htobe32(length_of(n));
        vb_hash_store_key(bucket[n].key, key);
        for (uint32_t i = 0; i < length_of(n); i++)
            items[n * VALUE_MAX + i] = byte_of(n, i);
    }
}

static void rig_open(struct rig *r, const struct vb_machine_opts *opts)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_machine_opts o = *opts;

    memset(r, 0, sizeof *r);
    r->image =
        vb_offload_hash_get(&(struct vb_hash_opts){.slots = SLOTS, .value_max = VALUE_MAX}, error);
    if (!r->image)
        fail_msg("%s", error);
    o.shared_bytes = BUCKETS * VALUE_MAX;
    r->m = vb_machine_create(r->image, &o, error);
    if (!r->m)
        fail_msg("%s", error);
    r->k = (uint32_t)vb_image_find_queue(r->image, "K");
    r->index = (uint32_t)vb_image_find_region(r->image, "index");
    r->items = (uint32_t)vb_image_find_region(r->image, "items");
    r->client = (uint32_t)vb_image_find_region(r->image, "client");
    fill(r);
}

static void rig_close(struct rig *r)
{
    vb_machine_destroy(r->m);
    vb_image_destroy(r->image);
}

// Asks for key n in bucket b.
static void ask(struct rig *r, uint32_t n, uint32_t b)
{
    struct vb_hash_request request;

    hash_key_of(n, request.key);
    vb_put_be64(request.bucket,
                vb_machine_address(r->m, r->index) + b * sizeof(struct vb_hash_bucket));
    assert_int_equal(vb_machine_send(r->m, r->k, &request, sizeof request), 0);
    r->asked++;
}

static void expect(struct rig *r, uint32_t n, bool hit)
{
    struct vb_machine_reply reply;

    if (!vb_machine_take(r->m, r->k, &reply))
        fail_msg("request %u got no reply; W fault %u, K fault %u", r->answered,
                 vb_machine_fault(r->m, 0), vb_machine_fault(r->m, 1));
    assert_true(reply.with_imm);
    assert_int_equal(reply.imm, hit ? length_of(n) : VB_HASH_MISS);
    assert_int_equal(reply.len, hit ? length_of(n) : 0);
    const uint8_t *value =
        vb_machine_data(r->m, r->client) + (size_t)(r->answered % SLOTS) * VALUE_MAX;
    for (uint32_t i = 0; hit && i < reply.len; i++)
        assert_int_equal(value[i], byte_of(n, i));
    r->answered++;
}

static void one_by_one(const struct vb_machine_opts *opts, uint32_t requests)
{
    struct vb_prng prng = {.state = opts->seed + 77};
    struct rig r;

    rig_open(&r, opts);
    for (uint32_t i = 0; i < requests; i++) {
        uint32_t n = (uint32_t)vb_prng_below(&prng, BUCKETS);
        bool hit = vb_prng_below(&prng, 3) > 0;
        ask(&r, n, hit ? n : (n + 1) % BUCKETS);
        vb_machine_run(r.m, 100000);
        expect(&r, n, hit);
    }
    rig_close(&r);
}

static void test_hits_and_misses(void **state)
{
    (void)state;
    one_by_one(&(struct vb_machine_opts){.seed = 1}, 50);
}

static void test_depths_and_units(void **state)
{
    static const uint32_t depth[] = {1, 2, 3, 4, 7, 16, 64};

    (void)state;
    for (size_t d = 0; d < sizeof depth / sizeof depth[0]; d++)
        for (uint32_t units = 1; units <= 4; units *= 2)
            one_by_one(&(struct vb_machine_opts){.seed = d * 10 + units,
                                                 .units = units,
                                                 .fetch_depth = depth[d]},
                       30);
}

// Many requests under way: they are answered in order, whatever the order of steps.
static void test_pipelined(void **state)
{
    (void)state;
    for (uint64_t first = fresh_seed(), seed = first; seed < first + 20; seed++) {
        struct rig r;
        rig_open(&r, &(struct vb_machine_opts){.seed = seed, .units = 1u << seed % 2});
        for (uint32_t round = 0; round < 4; round++) {
            for (uint32_t i = 0; i < 64; i++)
                ask(&r, i, i % 5 ? i : 63 - i);
            // Replies wait in the client's memory for their slot to come round, so the last ones of
            // each slot are what is there.
            vb_machine_run(r.m, 1000000);
            for (uint32_t i = 0; i < 64; i++) {
                struct vb_machine_reply reply;
                assert_true(vb_machine_take(r.m, r.k, &reply));
                assert_int_equal(reply.imm, i % 5 ? length_of(i) : VB_HASH_MISS);
            }
        }
        rig_close(&r);
    }
}

static void test_counters_wrap(void **state)
{
    static const uint64_t near[] = {1ull << 16, 1ull << 23, 1ull << 24, 1ull << 32};

    (void)state;
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++)
        one_by_one(&(struct vb_machine_opts){.seed = i, .start = near[i] - 256}, 400);
}

static void test_wrong_address_harms_only_itself(void **state)
{
    struct rig r;
    struct vb_hash_request request = {.bucket = {0xff}};

    (void)state;
    rig_open(&r, &(struct vb_machine_opts){.seed = 3});
    vb_machine_send(r.m, r.k, &request, sizeof request);
    vb_machine_run(r.m, 100000);
    assert_int_equal(vb_machine_fault(r.m, 0), VB_SYN_REMOTE_ACCESS);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_and_misses),
        cmocka_unit_test(test_depths_and_units),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_counters_wrap),
        cmocka_unit_test(test_wrong_address_harms_only_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
