// SPDX-License-Identifier: Apache-2.0
// The hash get from two buckets, sequential and parallel: one reply for each request, in order.
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
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    BUCKETS = 32, // bucket n has key n; bucket 2 * BUCKETS - 1 - n, too, with another value
    ALL = 2 * BUCKETS,
    VALUE_MAX = 128,
    SLOTS = 4,
};

struct rig {
    struct vb_image *image;
    struct vb_machine *m;
    uint32_t k, index, items, client, answered;
};

static uint32_t length_of(uint32_t bucket)
{
    return 1 + bucket * 37 % VALUE_MAX;
}

static uint8_t byte_of(uint32_t bucket, uint32_t at)
{
    return (uint8_t)(bucket * 31 + at);
}

static uint32_t twin_of(uint32_t bucket)
{
    return ALL - 1 - bucket;
}

static void fill(struct rig *r)
{
    struct vb_hash_bucket *bucket = (void *)vb_machine_data(r->m, r->index);
    uint8_t *items = vb_machine_data(r->m, r->items);

    for (uint32_t n = 0; n < ALL; n++) {
        uint8_t key[VB_HASH_KEY_BYTES];
        hash_key_of(n < BUCKETS ? n : twin_of(n), key);
        bucket[n].addr = htobe64(vb_machine_address(r->m, r->items) + (uint64_t)n * VALUE_MAX);
        bucket[n].len = bucket[n].len_again = htobe32(length_of(n));
        vb_hash_store_key(bucket[n].key, key);
        for (uint32_t i = 0; i < length_of(n); i++)
            items[n * VALUE_MAX + i] = byte_of(n, i);
    }
}

static void rig_open(struct rig *r, enum vb_hash_way way, const struct vb_machine_opts *opts)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_machine_opts o = *opts;

    memset(r, 0, sizeof *r);
    r->image = vb_offload_hash_get(
        &(struct vb_hash_opts){.slots = SLOTS, .value_max = VALUE_MAX, .way = way}, error);
    if (!r->image)
        fail_msg("%s", error);
    o.shared_bytes = ALL * VALUE_MAX;
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
    for (uint32_t q = 0; q < r->image->queues; q++)
        assert_int_equal(vb_machine_fault(r->m, q), 0);
    vb_machine_destroy(r->m);
    vb_image_destroy(r->image);
}

static uint64_t bucket_at(struct rig *r, uint32_t n)
{
    return vb_machine_address(r->m, r->index) + n * sizeof(struct vb_hash_bucket);
}

static void ask(struct rig *r, uint32_t n, uint32_t first, uint32_t second)
{
    struct vb_hash_request2 request;

    hash_key_of(n, request.first.key);
    hash_key_of(n, request.second.key);
    vb_put_be64(request.first.bucket, bucket_at(r, first));
    vb_put_be64(request.second.bucket, bucket_at(r, second));
    assert_int_equal(vb_machine_send(r->m, r->k, &request, sizeof request), 0);
}

static void ask_one(struct rig *r, uint32_t n, uint32_t bucket)
{
    struct vb_hash_request request;

    hash_key_of(n, request.key);
    vb_put_be64(request.bucket, bucket_at(r, bucket));
    assert_int_equal(vb_machine_send(r->m, r->k, &request, sizeof request), 0);
}

// The bucket that answers, or ALL: none.
static uint32_t answer_of(uint32_t n, uint32_t first, uint32_t second)
{
    if (first == n || first == twin_of(n))
        return first;
    return second == n || second == twin_of(n) ? second : ALL;
}

static void expect(struct rig *r, uint32_t bucket, bool look)
{
    struct vb_machine_reply reply;
    bool hit = bucket < ALL;

    if (!vb_machine_take(r->m, r->k, &reply))
        fail_msg("request %u got no reply; faults %u %u", r->answered, vb_machine_fault(r->m, 0),
                 vb_machine_fault(r->m, 1));
    assert_true(reply.with_imm);
    assert_int_equal(reply.imm, hit ? length_of(bucket) : VB_HASH_MISS);
    assert_int_equal(reply.len, hit ? length_of(bucket) : 0);
    const uint8_t *value =
        vb_machine_data(r->m, r->client) + (size_t)(r->answered % SLOTS) * VALUE_MAX;
    for (uint32_t i = 0; look && hit && i < reply.len; i++)
        assert_int_equal(value[i], byte_of(bucket, i));
    r->answered++;
}

static void expect_none(struct rig *r)
{
    struct vb_machine_reply reply;
    assert_false(vb_machine_take(r->m, r->k, &reply));
}

// A key, and two buckets of which one, both or none have it.
struct question {
    uint32_t n, first, second;
};

static struct question draw(struct vb_prng *prng)
{
    struct question q = {.n = (uint32_t)vb_prng_below(prng, BUCKETS)};
    uint32_t kind = (uint32_t)vb_prng_below(prng, 4);

    q.first = kind & 1 ? q.n : (q.n + 1) % BUCKETS;
    q.second = kind & 2 ? twin_of(q.n) : (q.n + 2) % BUCKETS;
    return q;
}

static void one_by_one(enum vb_hash_way way, const struct vb_machine_opts *opts, uint32_t requests)
{
    struct vb_prng prng = {.state = opts->seed + 77};
    struct rig r;

    rig_open(&r, way, opts);
    for (uint32_t i = 0; i < requests; i++) {
        struct question q = draw(&prng);
        ask(&r, q.n, q.first, q.second);
        vb_machine_run(r.m, 100000);
        expect(&r, answer_of(q.n, q.first, q.second), true);
        expect_none(&r);
    }
    rig_close(&r);
}

static void test_depths_and_units(void **state)
{
    static const uint32_t depth[] = {1, 2, 3, 5, 16, 64};

    (void)state;
    for (size_t d = 0; d < sizeof depth / sizeof depth[0]; d++)
        for (uint32_t units = 1; units <= 2; units++)
            for (uint64_t seed = 1; seed <= 3; seed++) {
                struct vb_machine_opts o = {.seed = seed, .units = units, .fetch_depth = depth[d]};
                one_by_one(VB_HASH_SEQUENTIAL, &o, 30);
                one_by_one(VB_HASH_PARALLEL, &o, 30);
            }
}

static void test_counters_wrap(void **state)
{
    static const uint64_t near[] = {1ull << 16, 1ull << 23, 1ull << 24, 1ull << 32};

    (void)state;
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        struct vb_machine_opts o = {.seed = i, .units = 2, .start = near[i] - 256};
        one_by_one(VB_HASH_SEQUENTIAL, &o, 400);
        one_by_one(VB_HASH_PARALLEL, &o, 400);
    }
}

static void pipelined(enum vb_hash_way way, const struct vb_machine_opts *opts)
{
    struct vb_prng prng = {.state = opts->seed};
    struct question q[64];
    struct rig r;

    rig_open(&r, way, opts);
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < 64; i++) {
            q[i] = draw(&prng);
            ask(&r, q[i].n, q[i].first, q[i].second);
        }
        vb_machine_run(r.m, 1000000);
        // The last replies of each slot are what is there.
        for (uint32_t i = 0; i < 64; i++)
            expect(&r, answer_of(q[i].n, q[i].first, q[i].second), i >= 64 - SLOTS);
        expect_none(&r);
    }
    rig_close(&r);
}

static void test_pipelined(void **state)
{
    (void)state;
    for (uint64_t first = fresh_seed(), seed = first; seed < first + 20; seed++) {
        struct vb_machine_opts o = {.seed = seed, .units = 1 + seed % 2};
        pipelined(VB_HASH_SEQUENTIAL, &o);
        pipelined(VB_HASH_PARALLEL, &o);
    }
}

// In parallel the two lookups are executed by two units.
static void test_parallel_uses_two_units(void **state)
{
    uint32_t on[2] = {0, 0}, unit;
    struct vb_step step;
    struct rig r;

    (void)state;
    rig_open(&r, VB_HASH_PARALLEL, &(struct vb_machine_opts){.seed = 1, .units = 2});
    for (uint32_t i = 0; i < 8; i++) {
        ask(&r, i, i, twin_of(i));
        while (vb_machine_step(r.m, &step, &unit))
            if (unit < 2 && step.kind == VB_STEP_EXEC && step.opcode == VB_WQE_ATOMIC_CS)
                on[unit]++;
        expect(&r, i, true);
    }
    assert_int_equal(on[0], 8);
    assert_int_equal(on[1], 8);
    rig_close(&r);
}

static void test_costs(void **state)
{
    static const char *const name[] = {"one bucket", "sequential", "parallel"};
    static const double most[] = {20, 22, 32}; // about a third of it is for the next round

    (void)state;
    for (int way = VB_HASH_ONE; way <= VB_HASH_PARALLEL; way++) {
        uint64_t before = 0, after = 0;
        struct rig r;
        rig_open(&r, (enum vb_hash_way)way, &(struct vb_machine_opts){.seed = 1});
        vb_machine_run(r.m, 100000);
        for (uint32_t q = 0; q < r.image->queues; q++)
            before += vb_machine_executed(r.m, q);
        for (uint32_t i = 0; i < 4 * SLOTS; i++) {
            if (way == VB_HASH_ONE)
                ask_one(&r, i, i);
            else
                ask(&r, i, i, i + 1);
            vb_machine_run(r.m, 100000);
            expect(&r, i, true);
        }
        for (uint32_t q = 0; q < r.image->queues; q++)
            after += vb_machine_executed(r.m, q);
        double each = (double)(after - before) / (4 * SLOTS);
        print_message("hash get, %s: %.1f entries for a request\n", name[way], each);
        assert_true(each <= most[way]);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_depths_and_units),
        cmocka_unit_test(test_counters_wrap),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_parallel_uses_two_units),
        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
