// SPDX-License-Identifier: Apache-2.0
// Serial arithmetic, the FIFO, loads and stores, and the generator.
#include "base/bytes.h"
#include "base/fifo.h"
#include "base/prng.h"
#include "base/serial.h"
#include "fresh_seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_psn_order_survives_the_wrap(void **state)
{
    (void)state;
    assert_int_equal(vb_psn_diff(5, 5), 0);
    assert_int_equal(vb_psn_diff(6, 5), 1);
    assert_int_equal(vb_psn_diff(5, 6), -1);
    assert_int_equal(vb_psn_diff(0, 0xffffff), 1);
    assert_int_equal(vb_psn_diff(0xffffff, 0), -1);
    assert_int_equal(vb_psn_diff(0x7fffff, 0), 0x7fffff);
    assert_int_equal(vb_psn_diff(0x800000, 0), -0x800000); // half a circle counts as before
    assert_int_equal(vb_psn_diff(0, 0x800000), -0x800000);
    assert_int_equal(vb_psn_add(0xffffff, 1), 0);
    assert_int_equal(vb_psn_add(0xfffffe, 5), 3);
    assert_int_equal(vb_psn_add(3, (uint32_t)-5), 0xfffffe);
}

static void test_psn_diff_undoes_add(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    for (unsigned i = 0; i < 100000; i++) {
        uint32_t psn = (uint32_t)vb_prng_below(&prng, 1 << 24);
        uint32_t step = (uint32_t)vb_prng_below(&prng, 1 << 23);
        uint32_t after = vb_psn_add(psn, step);
        assert_int_equal(vb_psn_diff(after, psn), step);
        assert_int_equal(vb_psn_diff(psn, after), -(int32_t)step);
    }
}

static void test_widening(void **state)
{
    (void)state;
    assert_int_equal(vb_widen16(0, 0), 0);
    assert_int_equal(vb_widen16(0x12345, 0x2345), 0x12345);
    assert_int_equal(vb_widen16(0x12345, 0x2346), 0x12346);
    assert_int_equal(vb_widen16(0x1ffff, 0x0000), 0x20000);
    assert_int_equal(vb_widen16(0x12345, 0x2344), 0x22344); // never before the base
    assert_int_equal(vb_widen24(0x5fffffe, 0xfffffe), 0x5fffffe);
    assert_int_equal(vb_widen24(0x5fffffe, 0x000001), 0x6000001);
    assert_int_equal(vb_widen24(0x5000001, 0x000000), 0x6000000);
}

static void test_widening_follows_a_counter(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t base = vb_prng_next(&prng) >> 8;
        uint64_t near = base + vb_prng_below(&prng, 1 << 16);
        uint64_t far = base + vb_prng_below(&prng, 1 << 24);
        assert_int_equal(vb_widen16(base, (uint16_t)near), near);
        assert_int_equal(vb_widen24(base, (uint32_t)far & 0xffffff), far);
    }
}

struct item {
    int number;
    struct vb_link link;
};

static int pop(struct vb_fifo *f)
{
    struct vb_link *l = vb_fifo_first(f);
    if (l == NULL)
        return -1;
    vb_link_remove(l);
    return VB_CONTAINER_OF(l, struct item, link)->number;
}

static void test_fifo_keeps_order(void **state)
{
    (void)state;
    struct vb_fifo f;
    struct item items[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};
    vb_fifo_init(&f);
    assert_true(vb_fifo_empty(&f));
    assert_null(vb_fifo_first(&f));
    for (int i = 0; i < 4; i++) {
        assert_false(vb_link_queued(&items[i].link));
        vb_fifo_push(&f, &items[i].link);
        assert_true(vb_link_queued(&items[i].link));
        assert_false(vb_fifo_empty(&f));
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pop(&f), i);
    assert_int_equal(pop(&f), -1);
    assert_true(vb_fifo_empty(&f));
}

static void test_fifo_removes_from_anywhere(void **state)
{
    (void)state;
    struct vb_fifo f;
    struct item items[5] = {
        {.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    vb_fifo_init(&f);
    for (int i = 0; i < 5; i++)
        vb_fifo_push(&f, &items[i].link);
    vb_link_remove(&items[2].link);
    vb_link_remove(&items[0].link);
    vb_link_remove(&items[4].link);
    assert_false(vb_link_queued(&items[2].link));
    vb_fifo_push(&f, &items[2].link); // may be queued again, at the end
    assert_int_equal(pop(&f), 1);
    assert_int_equal(pop(&f), 3);
    assert_int_equal(pop(&f), 2);
    assert_int_equal(pop(&f), -1);
}

static void test_loads_and_stores_unaligned(void **state)
{
    (void)state;
    uint8_t b[16] = {0};
    vb_put_be16(b + 1, 0x0102);
    assert_memory_equal(b, "\x00\x01\x02\x00", 4);
    assert_int_equal(vb_get_be16(b + 1), 0x0102);
    vb_put_be32(b + 1, 0x01020304);
    assert_memory_equal(b, "\x00\x01\x02\x03\x04\x00", 6);
    assert_int_equal(vb_get_be32(b + 1), 0x01020304);
    vb_put_be64(b + 3, 0x0102030405060708);
    assert_memory_equal(b + 3, "\x01\x02\x03\x04\x05\x06\x07\x08\x00", 9);
    assert_int_equal(vb_get_be64(b + 3), 0x0102030405060708);
    vb_put_le32(b + 1, 0x01020304);
    assert_memory_equal(b + 1, "\x04\x03\x02\x01", 4);
    assert_int_equal(vb_get_le32(b + 1), 0x01020304);
}

static void test_24_bit_fields_touch_three_bytes(void **state)
{
    (void)state;
    uint8_t b[5] = {0xaa, 0, 0, 0, 0xbb};
    vb_put_be24(b + 1, 0xff010203);
    assert_memory_equal(b, "\xaa\x01\x02\x03\xbb", 5);
    assert_int_equal(vb_get_be24(b + 1), 0x010203);
    vb_put_be24(b + 1, 0xfffefd);
    assert_int_equal(vb_get_be24(b + 1), 0xfffefd);
}

// The first outputs of splitmix64 for seed 1234567, as published with the generator.
static void test_prng_is_splitmix64(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = 1234567};
    assert_int_equal(vb_prng_next(&prng), 6457827717110365317u);
    assert_int_equal(vb_prng_next(&prng), 3203168211198807973u);
    assert_int_equal(vb_prng_next(&prng), 9817491932198370423u);
}

static void test_prng_is_repeatable(void **state)
{
    (void)state;
    struct vb_prng a = {.state = 7}, b = {.state = 7}, c = {.state = 8};
    unsigned same = 0;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t x = vb_prng_next(&a);
        assert_int_equal(x, vb_prng_next(&b));
        same += x == vb_prng_next(&c);
    }
    assert_int_equal(same, 0);
}

static void test_prng_stays_in_bounds(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = 9};
    unsigned seen[7] = {0};
    for (unsigned i = 0; i < 7000; i++)
        seen[vb_prng_range(&prng, 10, 16) - 10]++;
    for (unsigned i = 0; i < 7; i++)
        assert_in_range(seen[i], 850, 1150);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(vb_prng_below(&prng, 1), 0);
        assert_int_equal(vb_prng_range(&prng, 5, 5), 5);
        assert_true(vb_prng_below(&prng, 3) < 3);
    }
}

static void test_prng_chance(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = 10};
    unsigned hits = 0;
    for (unsigned i = 0; i < 100000; i++) {
        hits += vb_prng_chance(&prng, 10000);
        assert_false(vb_prng_chance(&prng, 0));
        assert_true(vb_prng_chance(&prng, 1000000));
    }
    assert_in_range(hits, 850, 1150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_psn_order_survives_the_wrap),
        cmocka_unit_test(test_psn_diff_undoes_add),
        cmocka_unit_test(test_widening),
        cmocka_unit_test(test_widening_follows_a_counter),
        cmocka_unit_test(test_fifo_keeps_order),
        cmocka_unit_test(test_fifo_removes_from_anywhere),
        cmocka_unit_test(test_loads_and_stores_unaligned),
        cmocka_unit_test(test_24_bit_fields_touch_three_bytes),
        cmocka_unit_test(test_prng_is_splitmix64),
        cmocka_unit_test(test_prng_is_repeatable),
        cmocka_unit_test(test_prng_stays_in_bounds),
        cmocka_unit_test(test_prng_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
