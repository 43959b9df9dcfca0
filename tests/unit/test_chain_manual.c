// SPDX-License-Identifier: Apache-2.0
// Entries whose index a program writes by itself, entries that sleep, and what is refused of them.
#include "base/bytes.h"
#include "chain/builder.h"
#include "chain/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct rig {
    struct vb_chain *c;
    struct vb_chain_queue w, other;
    struct vb_chain_region data;
    char error[VB_IMAGE_TEXT];
};

static void begin(struct rig *r)
{
    memset(r, 0, sizeof *r);
    r->c = vb_chain_begin("test");
    r->w = vb_chain_queue(r->c, "W", &(struct vb_chain_queue_opts){.open = 3});
    r->other = vb_chain_queue(r->c, "V", &(struct vb_chain_queue_opts){0});
    r->data = vb_chain_region(r->c, "data", VB_CHAIN_OWN, 16, true);
}

static void expect_error(struct rig *r, const char *text)
{
    assert_null(vb_chain_finish(r->c, r->error));
    assert_string_equal(r->error, text);
}

static struct vb_chain_label add_write(struct rig *r, struct vb_chain_queue queue, uint32_t flags)
{
    return vb_chain_op(r->c, queue,
                       &(struct vb_chain_op){.opcode = VB_WQE_WRITE,
                                             .flags = flags,
                                             .remote = vb_in(r->data, 8),
                                             .data = "x",
                                             .len = 1});
}

// Runs a sleeping WRITE on V, which W wakes, or does not, before it opens V.
static uint8_t run_sleeper(bool wake, uint32_t depth)
{
    const uint8_t opcode = VB_WQE_WRITE;
    struct rig r;

    begin(&r);
    struct vb_chain_label sleeper = add_write(&r, r.other, VB_CHAIN_DORMANT);
    vb_chain_put(r.c, vb_in(r.data, 0), &opcode, 1);
    vb_chain_op(r.c, r.w,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .remote = vb_in(r.data, wake ? 0 : 1),
                                      .parts = 1,
                                      .part = {{vb_at(sleeper, VB_AT_OPCODE), 1}}});
    vb_chain_add_flags(r.c, vb_chain_open(r.c, r.w, sleeper), VB_CHAIN_FENCE);
    struct vb_image *image = vb_chain_finish(r.c, r.error);
    if (!image)
        fail_msg("%s", r.error);
    struct vb_machine *m = vb_machine_create(
        image, &(struct vb_machine_opts){.seed = depth, .fetch_depth = depth, .units = 2}, r.error);
    assert_non_null(m);
    vb_machine_run(m, 1000);
    assert_int_equal(vb_machine_executed(m, 1), 1);
    uint8_t result = vb_machine_data(m, (uint32_t)vb_image_find_region(image, "data"))[8];
    vb_machine_destroy(m);
    vb_image_destroy(image);
    return result;
}

static void test_sleeper(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 64; depth *= 4) {
        assert_int_equal(run_sleeper(true, depth), 'x');
        assert_int_equal(run_sleeper(false, depth), 0);
    }
}

static void test_unmade_entries(void **state)
{
    struct rig r;

    (void)state;
    begin(&r);
    vb_chain_manual(r.c, vb_chain_label(r.c, "later"));
    expect_error(&r, "entry 'later' was not made yet");
    begin(&r);
    vb_chain_add_flags(r.c, (struct vb_chain_label){77}, VB_CHAIN_FENCE);
    expect_error(&r, "entry '(unnamed)' was not made yet");
    begin(&r);
    vb_chain_count(r.c, vb_in(r.data, 0), vb_chain_label(r.c, "later"));
    expect_error(&r, "entry 'later' was not made yet");
}

static void test_counts_need_room_and_an_index(void **state)
{
    struct rig r;

    (void)state;
    begin(&r);
    vb_chain_count(r.c, vb_in(r.data, 0), add_write(&r, r.w, 0));
    expect_error(&r, "entry '(unnamed)' has no index to count");
    begin(&r);
    struct vb_chain_label write = add_write(&r, r.w, 0);
    vb_chain_count(r.c, vb_in(r.data, 14), vb_chain_wait(r.c, r.w, write));
    expect_error(&r, "region 'data': 3 bytes at 14 are not within the program's own 16");
}

static void test_restores_need_rounds(void **state)
{
    struct rig r;

    (void)state;
    begin(&r);
    vb_chain_restore_on(r.c, r.other, vb_at(add_write(&r, r.other, 0), VB_AT_DS), 1);
    expect_error(&r, "queue 'V' does not run in circles");
}

// Slots have entries, and those of a queue that goes ahead open their rest.
static void test_slots_are_whole(void **state)
{
    struct rig r;

    (void)state;
    begin(&r);
    vb_chain_slot(r.c, r.w);
    add_write(&r, r.w, 0);
    vb_chain_slot(r.c, r.w);
    expect_error(&r, "queue 'W': slot 2 has no entries");
    begin(&r);
    struct vb_chain_queue ahead =
        vb_chain_queue(r.c, "A", &(struct vb_chain_queue_opts){.ahead = true});
    for (int slot = 0; slot < 2; slot++) {
        vb_chain_slot(r.c, ahead);
        if (slot == 0)
            vb_chain_open_rest(r.c, ahead);
        add_write(&r, ahead, 0);
    }
    expect_error(&r, "queue 'A' goes ahead, but slot 2 does not open its rest");
}

// Goes round for ever, whatever is fetched ahead: each slot adds its number to a sum.
static void test_going_ahead(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 64; depth *= 4) {
        struct rig r;
        begin(&r);
        struct vb_chain_queue ahead =
            vb_chain_queue(r.c, "A", &(struct vb_chain_queue_opts){.ahead = true});
        for (uint32_t slot = 1; slot <= 3; slot++) {
            vb_chain_slot(r.c, ahead);
            vb_chain_op(r.c, ahead, &(struct vb_chain_op){.opcode = VB_WQE_NOP});
            vb_chain_open_rest(r.c, ahead);
            vb_chain_op(r.c, ahead,
                        &(struct vb_chain_op){.opcode = VB_WQE_ATOMIC_FA,
                                              .remote = vb_in(r.data, 0),
                                              .swap_add = slot,
                                              .parts = 1,
                                              .part = {{vb_in(r.data, 8), 8}}});
        }
        struct vb_image *image = vb_chain_finish(r.c, r.error);
        if (!image)
            fail_msg("%s", r.error);
        struct vb_machine *m = vb_machine_create(
            image,
            &(struct vb_machine_opts){.seed = depth, .fetch_depth = depth, .start = (1 << 16) - 64},
            r.error);
        assert_non_null(m);
        vb_machine_run(m, 20000);
        assert_int_equal(vb_machine_fault(m, ahead.id - 1), 0);
        uint64_t sum;
        memcpy(&sum, vb_machine_data(m, r.data.id - 1), sizeof sum);
        assert_true(sum > 2000);
        assert_in_range(sum % 6, 0, 3); // 0, 1 or 3 behind a whole round
        assert_int_not_equal(sum % 6, 2);
        vb_machine_destroy(m);
        vb_image_destroy(image);
    }
}

// The counter starts as the entry's index, wherever counters start.
static void test_count_starts_as_the_index(void **state)
{
    static const uint64_t start[] = {0, 0x12340, 0xfffff0};

    (void)state;
    for (size_t i = 0; i < sizeof start / sizeof start[0]; i++) {
        struct rig r;
        begin(&r);
        struct vb_chain_label first = add_write(&r, r.w, VB_CHAIN_SIGNALED);
        struct vb_chain_label write = add_write(&r, r.w, 0);
        struct vb_chain_label wait = vb_chain_wait(r.c, r.w, write);
        vb_chain_count(r.c, vb_in(r.data, 0), wait);
        vb_chain_count(r.c, vb_in(r.data, 4), vb_chain_open(r.c, r.w, first));
        struct vb_image *image = vb_chain_finish(r.c, r.error);
        if (!image)
            fail_msg("%s", r.error);
        struct vb_machine *m =
            vb_machine_create(image, &(struct vb_machine_opts){.start = start[i]}, r.error);
        assert_non_null(m);
        const uint8_t *data = vb_machine_data(m, 0);
        assert_int_equal(data[0] | data[1] << 8 | data[2] << 16, (start[i] + 1) & 0xffffff);
        assert_int_equal(data[4] | data[5] << 8, (start[i] + 1) & 0xffff);
        vb_machine_destroy(m);
        vb_image_destroy(image);
    }
}

// A comparison sees all 48 bits of its operand, in the order of its bytes.
static char run_condition(const uint8_t *operand)
{
    struct rig r;

    begin(&r);
    struct vb_chain_queue queue =
        vb_chain_queue(r.c, "Q", &(struct vb_chain_queue_opts){.open = 4});
    struct vb_chain_label then = vb_chain_label(r.c, "then");
    vb_chain_put(r.c, vb_in(r.data, 0), operand, 6);
    vb_chain_op(r.c, queue,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .remote = vb_in(r.data, 0),
                                      .parts = 2,
                                      .part = {vb_operand(then, 0), vb_operand(then, 1)}});
    vb_chain_if(r.c, queue,
                &(struct vb_chain_op){.opcode = VB_WQE_WRITE,
                                      .label = then,
                                      .remote = vb_in(r.data, 6),
                                      .data = "x",
                                      .len = 1},
                0x123456789abc, vb_in(r.data, 8));
    struct vb_image *image = vb_chain_finish(r.c, r.error);
    if (!image)
        fail_msg("%s", r.error);
    struct vb_machine *m = vb_machine_create(image, &(struct vb_machine_opts){.seed = 1}, r.error);
    assert_non_null(m);
    vb_machine_run(m, 1000);
    assert_int_equal(vb_machine_executed(m, 2), 5);
    char result = (char)vb_machine_data(m, 0)[6];
    vb_machine_destroy(m);
    vb_image_destroy(image);
    return result;
}

static void test_operand(void **state)
{
    uint8_t operand[] = {0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc};

    (void)state;
    assert_int_equal(run_condition(operand), 'x');
    for (uint32_t i = 0; i < sizeof operand; i++)
        for (uint32_t bit = 0; bit < 8; bit += 7) {
            operand[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(run_condition(operand), 0);
            operand[i] ^= (uint8_t)(1 << bit);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operand),
        cmocka_unit_test(test_sleeper),
        cmocka_unit_test(test_unmade_entries),
        cmocka_unit_test(test_counts_need_room_and_an_index),
        cmocka_unit_test(test_restores_need_rounds),
        cmocka_unit_test(test_slots_are_whole),
        cmocka_unit_test(test_going_ahead),
        cmocka_unit_test(test_count_starts_as_the_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
