// SPDX-License-Identifier: Apache-2.0
// The mov instruction's addressing modes, loads and stores, each run under every depth.
#include "base/bytes.h"
#include "chain/flow.h"
#include "chain/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    MEMORY = 64,
    FILLED = 32, // bytes of it that are not zero
};

// Registers of a program, and its memory, which holds 1, 2, 3 … and a table of 8-byte numbers.
struct rig {
    struct vb_chain *c;
    struct vb_flow *f;
    struct vb_chain_region memory;
    struct vb_var a, b, at, offset;
    struct vb_place at_a, at_b;
    struct vb_image *image;
    struct vb_machine *m;
};

static void rig_begin(struct rig *r, uint64_t offset)
{
    uint8_t bytes[FILLED];

    memset(r, 0, sizeof *r);
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i + 1);
    r->c = vb_chain_begin("mov");
    r->memory = vb_chain_region(r->c, "memory", VB_CHAIN_OWN, MEMORY, true);
    vb_chain_put(r->c, vb_in(r->memory, 0), bytes, sizeof bytes);
    r->f = vb_flow_begin(r->c, "W");
    r->a = vb_flow_var(r->f, 0x1122334455667788);
    r->b = vb_flow_var(r->f, 0x99);
    r->at = vb_flow_pointer(r->f, vb_in(r->memory, 8));
    r->offset = vb_flow_var(r->f, offset);
    r->at_a = vb_flow_place(r->f, r->a);
    r->at_b = vb_flow_place(r->f, r->b);
}

static void rig_run(struct rig *r, uint32_t depth, uint64_t seed)
{
    char error[VB_IMAGE_TEXT] = "";

    vb_flow_end_program(r->f);
    r->image = vb_chain_finish(r->c, error);
    if (!r->image)
        fail_msg("%s", error);
    r->m = vb_machine_create(
        r->image,
        &(struct vb_machine_opts){.seed = seed, .fetch_depth = depth, .units = 1 + seed % 2},
        error);
    if (!r->m)
        fail_msg("%s", error);
    vb_machine_run(r->m, 10000);
    assert_int_equal(vb_machine_fault(r->m, 0), 0);
}

static uint64_t number_at(struct rig *r, struct vb_place at)
{
    return vb_get_be64(vb_machine_data(r->m, at.region.id - 1) + at.offset);
}

static const uint8_t *memory(struct rig *r)
{
    return vb_machine_data(r->m, r->memory.id - 1);
}

static void rig_end(struct rig *r)
{
    vb_machine_destroy(r->m);
    vb_image_destroy(r->image);
}

static const uint32_t depths[] = {1, 2, 3, 5, 16, 64};

#define EACH(d) for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++)

static void test_immediate(void **state)
{
    struct rig r;

    (void)state;
    EACH(d)
    {
        rig_begin(&r, 0);
        vb_flow_set(r.f, r.a, 0xfeedfacecafebeef);
        rig_run(&r, depths[d], d);
        assert_int_equal(number_at(&r, r.at_a), 0xfeedfacecafebeef);
        assert_int_equal(number_at(&r, r.at_b), 0x99);
        rig_end(&r);
    }
}

static void test_register(void **state)
{
    struct rig r;

    (void)state;
    EACH(d)
    {
        rig_begin(&r, 0);
        vb_flow_move(r.f, r.b, r.a);
        rig_run(&r, depths[d], d);
        assert_int_equal(number_at(&r, r.at_b), 0x1122334455667788);
        rig_end(&r);
    }
}

static void test_indirect(void **state)
{
    struct rig r;

    (void)state;
    EACH(d)
    {
        rig_begin(&r, 0);
        vb_flow_load(r.f, r.b, r.memory, r.at, 8);  // mov b, [at]
        vb_flow_store(r.f, r.memory, r.at, r.a, 4); // mov [at], a
        rig_run(&r, depths[d], d);
        assert_int_equal(number_at(&r, r.at_b), 0x090a0b0c0d0e0f10);
        assert_memory_equal(memory(&r) + 8, "\x55\x66\x77\x88\x0d", 5);
        assert_int_equal(memory(&r)[7], 8);
        rig_end(&r);
    }
}

static void test_indexed(void **state)
{
    static const uint64_t offset[] = {0, 3, 8, (uint64_t)-8};
    struct rig r;

    (void)state;
    EACH(d)
    {
        for (size_t i = 0; i < sizeof offset / sizeof offset[0]; i++) {
            uint32_t at = (uint32_t)(8 + offset[i]);
            rig_begin(&r, offset[i]);
            vb_flow_load_indexed(r.f, r.b, r.memory, r.at, r.offset, 2);
            vb_flow_store_indexed(r.f, r.memory, r.at, r.offset, r.a, 3);
            rig_run(&r, depths[d], d + i);
            assert_int_equal(number_at(&r, r.at_b), (at + 1) << 8 | (at + 2));
            assert_memory_equal(memory(&r) + at, "\x66\x77\x88", 3);
            assert_int_equal(memory(&r)[at + 3], at + 4);
            rig_end(&r);
        }
    }
}

// What is loaded is an address, what is found there an offset: a[b[i]].
static void test_chained(void **state)
{
    struct rig r;

    (void)state;
    EACH(d)
    {
        rig_begin(&r, 5);
        vb_flow_load_indexed(r.f, r.offset, r.memory, r.at, r.offset, 1); // 14
        vb_flow_load_indexed(r.f, r.b, r.memory, r.at, r.offset, 1);
        rig_run(&r, depths[d], d);
        assert_int_equal(number_at(&r, r.at_b), 8 + 14 + 1);
        rig_end(&r);
    }
}

static void test_outside_is_refused(void **state)
{
    struct rig r;
    char error[VB_IMAGE_TEXT] = "";

    (void)state;
    rig_begin(&r, MEMORY);
    vb_flow_load_indexed(r.f, r.b, r.memory, r.at, r.offset, 8);
    vb_flow_end_program(r.f);
    r.image = vb_chain_finish(r.c, error);
    assert_non_null(r.image);
    r.m = vb_machine_create(r.image, &(struct vb_machine_opts){.seed = 1}, error);
    assert_non_null(r.m);
    vb_machine_run(r.m, 10000);
    assert_int_equal(vb_machine_fault(r.m, 0), VB_SYN_REMOTE_ACCESS);
    assert_int_equal(number_at(&r, r.at_b), 0x99);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_immediate), cmocka_unit_test(test_register),
        cmocka_unit_test(test_indirect),  cmocka_unit_test(test_indexed),
        cmocka_unit_test(test_chained),   cmocka_unit_test(test_outside_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
