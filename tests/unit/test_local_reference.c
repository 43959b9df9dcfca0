// SPDX-License-Identifier: Apache-2.0
// READ and WRITE of a queue that is connected with itself, against a naive copy in the test: lists
// of segments of every short length, in regions that end soon. Entries run in polls, and in steps.
#include "fresh_seed.h"
#include "loop_rig.h"

#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    CASES = 6000,
    SMALL_AT = 1024, // where the small region lies
    SMALL_MAX = 20,
    SEGMENTS = 4,
};

struct test_case {
    bool reads;      // or it writes
    bool small_far;  // the far side is the small region, or the near one is
    uint32_t small;  // its bytes
    uint32_t far_at; // in memory
    uint32_t count, at[SEGMENTS], len[SEGMENTS];
};

static uint32_t below(struct vb_prng *prng, uint32_t n)
{
    return (uint32_t)vb_prng_below(prng, n);
}

static void draw(struct vb_prng *prng, struct test_case *t)
{
    static const uint8_t length[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 0};

    t->reads = below(prng, 3);
    t->small_far = below(prng, 2);
    t->small = 1 + below(prng, SMALL_MAX);
    t->far_at = t->small_far ? SMALL_AT + below(prng, t->small + 1) : 2000 + below(prng, 64);
    t->count = 1 + below(prng, SEGMENTS);
    for (uint32_t i = 0; i < t->count; i++) {
        t->len[i] = length[below(prng, sizeof length)];
        t->at[i] = t->small_far ? 3000 + below(prng, 64) : SMALL_AT + below(prng, t->small + 1);
        if (!t->small_far && t->at[i] + t->len[i] > SMALL_AT + t->small && below(prng, 4))
            t->len[i] = SMALL_AT + t->small - t->at[i]; // up to its end
    }
}

static bool is_legal(const struct test_case *t)
{
    const uint32_t end = SMALL_AT + t->small;
    uint32_t bytes = 0;

    for (uint32_t i = 0; i < t->count; i++) {
        bytes += t->len[i];
        if (!t->small_far && t->len[i] && t->at[i] + t->len[i] > end)
            return false;
    }
    return !t->small_far || bytes == 0 || t->far_at + bytes <= end;
}

static void copy_naively(const struct test_case *t, uint8_t *memory)
{
    uint32_t far = t->far_at;

    for (uint32_t i = 0; i < t->count; i++)
        for (uint32_t b = 0; b < t->len[i]; b++, far++) {
            if (t->reads)
                memory[t->at[i] + b] = memory[far];
            else
                memory[far] = memory[t->at[i] + b];
        }
}

static struct vb_code code_of(const struct test_case *t, const struct loop_rig *r, uint32_t small)
{
    struct vb_code c = {.opcode = t->reads ? VB_WQE_READ : VB_WQE_WRITE,
                        .fm_ce_se = VB_WQE_CE_ALWAYS,
                        .raddr = (uintptr_t)r->memory + t->far_at,
                        .rkey = t->small_far ? small : r->key,
                        .num_sge = t->count};

    for (uint32_t i = 0; i < t->count; i++)
        c.sge[i] = (struct vb_code_sge){(uintptr_t)r->memory + t->at[i],
                                        t->small_far ? r->key : small, t->len[i]};
    return c;
}

static uint32_t small_key(const struct loop_rig *r, uint32_t len)
{
    const struct vb_mkey_attr a = {.pd = r->pd,
                                   .access = VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE,
                                   .start = (uintptr_t)r->memory + SMALL_AT,
                                   .len = len,
                                   .base = r->memory + SMALL_AT};
    uint32_t key;
    assert_int_equal(vb_dev_mkey_create(r->dev, &a, &key), 0);
    return key;
}

// Whatever becomes of an illegal one, memory that it does not name stays as it was.
static void expect_untouched(const struct test_case *t, const uint8_t *memory, const uint8_t *was)
{
    for (uint32_t i = 0; i < LOOP_MEMORY; i++) {
        bool small = i >= SMALL_AT && i < SMALL_AT + t->small;
        bool near = t->reads && !t->small_far && small, far = !t->reads && t->small_far && small;
        bool target = t->reads && t->small_far && i >= 3000 && i < 3100;
        if (!near && !far && !target && memory[i] != was[i])
            fail_msg("byte %u", i);
    }
}

static void run(const struct test_case *t, bool polls)
{
    struct loop_rig r;
    uint8_t expected[LOOP_MEMORY], was[LOOP_MEMORY];
    struct vb_cqe cqe;

    loop_open(&r, 1);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){0});
    uint32_t key = small_key(&r, t->small);
    for (uint32_t i = 0; i < LOOP_MEMORY; i++)
        was[i] = expected[i] = r.memory[i] = (uint8_t)(i * 7 + i / 256);
    loop_put(q, code_of(t, &r, key));
    loop_doorbell(q);
    if (polls)
        vb_pu_poll(vb_dev_pu(r.dev), 1);
    loop_run(&r);
    assert_true(loop_take(&q->cq, &cqe));
    bool good = cqe.op_own >> 4 == VB_CQE_REQ;
    assert_int_equal(good, is_legal(t));
    if (good) {
        copy_naively(t, expected);
        assert_memory_equal(r.memory, expected, LOOP_MEMORY);
    } else {
        expect_untouched(t, r.memory, was);
    }
    loop_close(&r);
}

static void test_lists(void **state)
{
    struct vb_prng prng = {.state = fresh_seed()};
    uint32_t good = 0;

    (void)state;
    for (uint32_t i = 0; i < CASES; i++) {
        struct test_case t;
        draw(&prng, &t);
        good += is_legal(&t);
        run(&t, i % 2);
    }
    assert_in_range(good, CASES / 4, CASES * 3 / 4);
}

// What an add leaves and what it answers; its comparand is nobody's.
static void test_adds(void **state)
{
    struct vb_prng prng = {.state = fresh_seed()};
    struct loop_rig r;
    struct vb_cqe cqe;

    (void)state;
    loop_open(&r, 1);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){0});
    for (int i = 0; i < 40; i++) {
        uint64_t before = vb_prng_next(&prng), add = vb_prng_next(&prng);
        loop_set_word(&r, 64, before);
        struct vb_code c = {.opcode = VB_WQE_ATOMIC_FA,
                            .fm_ce_se = VB_WQE_CE_ALWAYS,
                            .raddr = (uintptr_t)r.memory + 64,
                            .rkey = r.key,
                            .swap_add = add,
                            .compare = vb_prng_next(&prng),
                            .num_sge = 1,
                            .sge = {{(uintptr_t)r.memory + 128, r.key, 8}}};
        loop_put(q, c);
        loop_doorbell(q);
        if (i % 2)
            vb_pu_poll(vb_dev_pu(r.dev), 1);
        loop_run(&r);
        assert_true(loop_take(&q->cq, &cqe));
        assert_true(loop_word(&r, 64) == before + add);
        assert_true(loop_word(&r, 128) == before);
    }
    loop_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
