// SPDX-License-Identifier: Apache-2.0
// The hash table: what is in it is found, what is not is not, and chains stay short however many
// there are and however their numbers lie.
#include "base/fifo.h"
#include "base/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    MANY = 50000,
    CHAIN_MAX = 16, // with as many buckets as entries a chain of more is a bad hash
};

struct item {
    struct vb_entry entry;
    uint32_t index;
};

static unsigned longest(const struct vb_table *t)
{
    unsigned most = 0;

    for (uint32_t i = 0; i < UINT32_C(1) << t->bits; i++) {
        unsigned length = 0;
        for (const struct vb_entry *e = t->chain[i]; e; e = e->chain)
            length++;
        most = length > most ? length : most;
    }
    return most;
}

static void fill(struct vb_table *t, struct item *item, uint64_t step)
{
    for (uint32_t i = 0; i < MANY; i++) {
        item[i].index = i;
        vb_table_add(t, &item[i].entry, i * step);
    }
}

static void test_an_empty_one(void **state)
{
    struct vb_table t = {0};

    (void)state;
    assert_null(vb_table_find(&t, 0));
    assert_null(vb_table_find(&t, UINT64_MAX));
    vb_table_free(&t);
}

static void test_all_are_found_until_they_go(void **state)
{
    static const uint64_t steps[] = {1, 2, 256, 1 << 16, UINT64_C(1) << 32, 0x9e3779b9};
    struct item *item = calloc(MANY, sizeof *item);

    (void)state;
    assert_non_null(item);
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        struct vb_table t = {0};
        fill(&t, item, steps[s]);
        assert_int_equal(t.count, MANY);
        assert_in_range(longest(&t), 1, CHAIN_MAX);
        for (uint32_t i = 0; i < MANY; i++) {
            struct vb_entry *e = vb_table_find(&t, i * steps[s]);
            assert_non_null(e);
            assert_int_equal(VB_CONTAINER_OF(e, struct item, entry)->index, i);
        }
        assert_null(vb_table_find(&t, MANY * steps[s]));
        for (uint32_t i = 0; i < MANY; i += 2)
            vb_table_remove(&t, &item[i].entry);
        for (uint32_t i = 0; i < MANY; i++)
            assert_int_equal(vb_table_find(&t, i * steps[s]) != NULL, i % 2);
        for (uint32_t i = 1; i < MANY; i += 2)
            vb_table_remove(&t, &item[i].entry);
        assert_int_equal(t.count, 0);
        assert_null(vb_table_find(&t, 0));
        vb_table_free(&t);
    }
    free(item);
}

// Few entries take no memory, and the same place is used again and again.
static void test_few_take_no_memory(void **state)
{
    struct vb_table t = {0};
    struct item item[4] = {0};

    (void)state;
    for (uint32_t round = 0; round < 1000; round++) {
        for (uint32_t i = 0; i < 4; i++)
            vb_table_add(&t, &item[i].entry, round * 4 + i);
        assert_null(t.chain);
        for (uint32_t i = 0; i < 4; i++)
            assert_ptr_equal(vb_table_find(&t, round * 4 + i), &item[i].entry);
        assert_null(vb_table_find(&t, round * 4 + 4));
        for (uint32_t i = 4; i-- > 0;)
            vb_table_remove(&t, &item[i].entry);
    }
    vb_table_free(&t);
}

// There are as many buckets as entries or more, and none holds many of numbers in a row. A table
// that was freed is empty.
static void test_buckets(void **state)
{
    enum {
        COUNT = 5000
    };
    static struct item item[COUNT];
    struct vb_table t = {0};

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        vb_table_add(&t, &item[i].entry, 7000 + i);
        assert_int_equal(t.count, i + 1);
        assert_true(!t.chain || (1u << t.bits >= t.count && 1u << t.bits < 64 + 2 * t.count));
    }
    assert_non_null(t.chain);
    for (uint32_t b = 0; b < 1u << t.bits; b++) {
        uint32_t length = 0;
        for (const struct vb_entry *e = t.chain[b]; e; e = e->chain)
            length++;
        assert_true(length <= 8);
    }
    vb_table_free(&t);
    assert_null(vb_table_find(&t, 7000));
    vb_table_add(&t, &item[0].entry, 1);
    assert_int_equal(t.count, 1);
    assert_ptr_equal(vb_table_find(&t, 1), &item[0].entry);
    vb_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_one),
        cmocka_unit_test(test_all_are_found_until_they_go),
        cmocka_unit_test(test_few_take_no_memory),
        cmocka_unit_test(test_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
