// SPDX-License-Identifier: Apache-2.0
// What conditions and loops cost, entry by entry, against Table 2 of the RedN paper. C: copies, A:
// atomics, E: WAIT and the entries that open queues. NOPs are counted on their own; in the paper's
// count an operation that was not to be executed is one of the copies.
#include "base/bytes.h"
#include "chain/machine.h"
#include "verbena/chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    NODES = 5,
    NODE_BYTES = 32,
    STEPS_MAX = 100000,
};

static const uint64_t key = 0x123456789abc;

struct cost {
    uint32_t c, a, e, nop;
};

static const struct cost if_limit = {1, 1, 3, 0}, round_limit = {3, 2, 4, 0};

static void add(struct cost *sum, uint8_t opcode)
{
    switch (opcode) {
    case VB_WQE_READ:
    case VB_WQE_WRITE:
    case VB_WQE_WRITE_IMM:
    case VB_WQE_SEND:
    case VB_WQE_SEND_IMM: sum->c++; break;
    case VB_WQE_ATOMIC_CS:
    case VB_WQE_ATOMIC_FA:
    case VB_WQE_MASKED_CS:
    case VB_WQE_MASKED_FA: sum->a++; break;
    case VB_WQE_WAIT:
    case VB_WQE_SEND_EN:
    case VB_WQE_RECV_EN: sum->e++; break;
    case VB_WQE_NOP: sum->nop++; break;
    default: fail_msg("opcode %#x", opcode);
    }
}

static uint32_t total(const struct cost *c)
{
    return c->c + c->a + c->e + c->nop;
}

static void print(const char *what, const struct cost *c, const char *table)
{
    printf("%-44s %uC + %uA + %uE + %u NOP = %2u   %s\n", what, c->c, c->a, c->e, c->nop, total(c),
           table);
}

// In each class and in all: a NOP in the place of a copy is what the table counts as one.
static void within(const struct cost *c, const struct cost *limit)
{
    assert_true(c->c <= limit->c && c->a <= limit->a && c->e <= limit->e);
    assert_true(total(c) <= total(limit));
}

static struct vb_machine *load(const struct vb_image *image)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_machine *m = vb_machine_create(image, &(struct vb_machine_opts){.seed = 1}, error);
    if (!m)
        fail_msg("%s", error);
    return m;
}

static struct vb_image *finish(struct vb_chain *c)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_chain_finish(c, error);
    if (!image)
        fail_msg("%s", error);
    return image;
}

// The next executed entry. False: there is none.
static bool next_exec(struct vb_machine *m, struct vb_step *step)
{
    uint32_t unit;

    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        if (!vb_machine_step(m, step, &unit))
            return false;
        if (step->kind == VB_STEP_EXEC)
            return true;
    }
    fail_msg("nothing is executed any more");
    return false;
}

// ---- if, and a while that is unrolled

enum {
    IFS = 4
};

// IFS conditions in a row; bit i of `hold` says whether the i-th holds.
static void run_ifs(uint32_t ifs, uint32_t hold, struct cost *cost)
{
    struct vb_chain *c = vb_chain_begin("ifs");
    struct vb_chain_queue q =
        vb_chain_queue(c, "W", &(struct vb_chain_queue_opts){.open = 3}); // CAS, WAIT and OPEN
    struct vb_chain_region out = vb_chain_region(c, "out", VB_CHAIN_OWN, 8 + IFS, true);
    char name[VB_IMAGE_NAME];

    for (uint32_t i = 0; i < ifs; i++) {
        snprintf(name, sizeof name, "then%u", i);
        vb_chain_if(c, q,
                    &(struct vb_chain_op){.opcode = VB_WQE_WRITE,
                                          .label = vb_chain_label(c, name),
                                          .remote = vb_in(out, 8 + i),
                                          .data = "x",
                                          .len = 1},
                    key, vb_in(out, 0));
    }
    struct vb_image *image = finish(c);
    struct vb_machine *m = load(image);
    for (uint32_t i = 0; i < ifs; i++) {
        snprintf(name, sizeof name, "then%u", i);
        const struct vb_image_label *l = &image->label[vb_image_find_label(image, name)];
        uint8_t *at = vb_machine_send_ring(m, 0) + l->block * VB_WQEBB_BYTES;
        vb_put_be24(at, (uint32_t)(key >> 24));
        vb_put_be24(at + 4, ((uint32_t)key & 0xffffff) ^ !(hold >> i & 1));
    }
    struct vb_step step;
    while (next_exec(m, &step))
        add(cost, step.opcode);
    assert_int_equal(vb_machine_fault(m, 0), 0);
    for (uint32_t i = 0; i < ifs; i++)
        assert_int_equal(vb_machine_data(m, 0)[8 + i], hold >> i & 1 ? 'x' : 0);
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

static void test_if(void **state)
{
    struct cost holds = {0}, fails = {0};

    (void)state;
    run_ifs(1, 1, &holds);
    run_ifs(1, 0, &fails);
    print("if, holds", &holds, "1C + 1A + 3E");
    print("if, does not hold", &fails, "");
    within(&holds, &if_limit);
    within(&fails, &if_limit);
}

static void test_unrolled(void **state)
{
    (void)state;
    for (uint32_t hold = 0; hold < 1 << IFS; hold++) {
        struct cost sum = {0};
        run_ifs(IFS, hold, &sum);
        if (hold == 5) {
            struct cost one = {sum.c / 2, sum.a / IFS, sum.e / IFS, 0};
            print("while unrolled, an iteration that holds", &one, "1C + 1A + 3E");
        }
        assert_true(sum.c + sum.nop == IFS * if_limit.c);
        assert_true(sum.a <= IFS * if_limit.a && sum.e <= IFS * if_limit.e);
    }
}

// ---- a while that is recycled

struct walk {
    struct vb_chain *c;
    struct vb_chain_queue q;
    struct vb_chain_region list, out;
    struct vb_chain_label sleeper[2], read[2];
};

// A list that ends where it begins; of its nodes two have the key.
static void put_list(struct walk *w)
{
    for (uint32_t i = 0; i < NODES; i++) {
        uint8_t node[14] = {0}; // key, value
        vb_put_be64(node, (key ^ !(i == 1 || i == 3)) << 16);
        vb_put_be64(node + 6, i);
        vb_chain_put_address(w->c, vb_in(w->list, i * NODE_BYTES),
                             vb_in(w->list, (i + 1) % NODES * NODE_BYTES));
        vb_chain_put(w->c, vb_in(w->list, i * NODE_BYTES + 8), node, sizeof node);
    }
}

// One iteration: fetches a node's key into the next one's condition, its value into the statement
// and the next node's address into the next READ; and compares.
static void add_iteration(struct walk *w, uint32_t s)
{
    struct vb_chain_label next = w->sleeper[1 - s];

    vb_chain_slot(w->c, w->q);
    vb_chain_sleeper(w->c, w->q,
                     &(struct vb_chain_op){.opcode = VB_WQE_WRITE,
                                           .label = w->sleeper[s],
                                           .remote = vb_in(w->out, 8),
                                           .data = "........",
                                           .len = 8});
    vb_chain_restore_after(w->c, vb_at(w->sleeper[s], VB_AT_OPCODE), 1);
    vb_chain_op(w->c, w->q,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .label = w->read[s],
                                      .remote = vb_in(w->list, 0),
                                      .parts = 4,
                                      .part = {{vb_at(w->read[1 - s], VB_AT_RADDR), 8},
                                               vb_operand(next, 0),
                                               vb_operand(next, 1),
                                               {vb_at_n(next, VB_AT_DATA, 0, 0), 8}}});
    vb_chain_wake(w->c, w->q, next, key, vb_in(w->out, 0));
}

static struct vb_image *make_walk(void)
{
    struct walk w = {.c = vb_chain_begin("walk")};

    w.q = vb_chain_queue(w.c, "W", &(struct vb_chain_queue_opts){0});
    w.list = vb_chain_region(w.c, "list", VB_CHAIN_OWN, NODES * NODE_BYTES, false);
    w.out = vb_chain_region(w.c, "out", VB_CHAIN_OWN, 16, true);
    put_list(&w);
    for (uint32_t s = 0; s < 2; s++) {
        w.sleeper[s] = vb_chain_label(w.c, s ? "then1" : "then0");
        w.read[s] = vb_chain_label(w.c, NULL);
    }
    for (uint32_t s = 0; s < 2; s++)
        add_iteration(&w, s);
    return finish(w.c);
}

// A round trip through the list; each iteration ends with the entry that opens the next one. What
// fills the ring up is a NOP in every second.
static void walk_once(struct vb_machine *m, struct cost *worst, struct cost *padded)
{
    const uint8_t *value = vb_machine_data(m, 1) + 8;
    uint32_t fired = 0;
    struct vb_step step;

    for (uint32_t i = 0; i < NODES; i++) {
        struct cost cost = {0};
        uint32_t before = fired;
        do {
            assert_true(next_exec(m, &step));
            add(&cost, step.opcode);
            fired += step.opcode == VB_WQE_WRITE;
        } while (step.opcode != VB_WQE_SEND_EN);
        if (fired > before)
            assert_true(vb_get_be64(value) == 1 || vb_get_be64(value) == 3);
        within(&cost, &round_limit);
        if (total(&cost) > total(padded))
            *padded = cost;
        if (fired > before && cost.nop == 0)
            *worst = cost;
    }
    assert_int_equal(fired, 2);
}

static void test_recycled(void **state)
{
    static const uint64_t start[] = {0, (1 << 16) - 256, (1 << 24) - 256, (1ull << 32) - 256};
    struct vb_image *image = make_walk();
    struct cost holds = {0}, padded = {0};
    char error[VB_IMAGE_TEXT];

    (void)state;
    for (uint32_t depth = 1; depth <= 16; depth += 5)
        for (uint32_t i = 0; i < 4; i++) {
            struct vb_machine *m = vb_machine_create(
                image,
                &(struct vb_machine_opts){.seed = i, .fetch_depth = depth, .start = start[i]},
                error);
            assert_non_null(m);
            struct vb_step step;
            do // the first statement has nothing to decide about
                assert_true(next_exec(m, &step));
            while (step.opcode != VB_WQE_SEND_EN);
            for (uint32_t round = 0; round < 200; round++)
                walk_once(m, &holds, &padded);
            assert_int_equal(vb_machine_fault(m, 0), 0);
            vb_machine_destroy(m);
        }
    print("while recycled, holds, operand fetched", &holds, "3C + 2A + 4E");
    print("  at the ring's end", &padded, "");
    vb_image_destroy(image);
}

// ---- the same from the compiler, whose statements may be anything

static struct vb_flow *begin_flow(struct vb_chain *c, struct vb_var *x, struct vb_var *y)
{
    struct vb_flow *f = vb_flow_begin(c, "W");
    *x = vb_flow_var(f, key);
    *y = vb_flow_var(f, 0);
    return f;
}

static void test_compiled_if(void **state)
{
    struct vb_chain *c = vb_chain_begin("compiled");
    struct cost cost = {0};
    struct vb_var x, y;
    struct vb_step step;

    (void)state;
    struct vb_flow *f = begin_flow(c, &x, &y);
    vb_flow_if_value(f, x, VB_EQ, key, 48);
    vb_flow_set(f, y, 1);
    vb_flow_end(f);
    vb_flow_end_program(f);
    struct vb_image *image = finish(c);
    struct vb_machine *m = load(image);
    while (next_exec(m, &step))
        add(&cost, step.opcode);
    cost.nop--; // that ends the program
    print("compiled if, holds, operand fetched", &cost, "");
    // The operand is fetched, and a NOP holds it: one copy and one NOP more.
    assert_true(cost.c <= 2 && cost.a <= 1 && cost.e <= 2 && cost.nop <= 1);
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

static void test_compiled_loop(void **state)
{
    struct vb_chain *c = vb_chain_begin("compiled");
    struct cost cost = {0};
    struct vb_var x, y;
    struct vb_step step;

    (void)state;
    struct vb_flow *f = begin_flow(c, &x, &y);
    const uint64_t y_at = vb_flow_place(f, y).offset;
    vb_flow_loop(f);
    vb_flow_if_value(f, x, VB_EQ, key, 48);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, y, y, 1);
    vb_flow_end(f);
    vb_flow_end(f);
    vb_flow_end_program(f);
    struct vb_image *image = finish(c);
    struct vb_machine *m = load(image);
    uint32_t blocks = image->queue[0].blocks, rounds = 0;
    while (rounds < 300 && next_exec(m, &step)) {
        rounds += step.counter % blocks == 0;
        if (rounds == 2) // two iterations
            add(&cost, step.opcode);
    }
    assert_int_equal(vb_machine_fault(m, 0), 0);
    int vars = vb_image_find_region(image, "W_vars");
    assert_int_equal(vb_get_be64(vb_machine_data(m, (uint32_t)vars) + y_at), 2 * (rounds - 1));
    cost = (struct cost){cost.c / 2, cost.a / 2, cost.e / 2, (cost.nop + 1) / 2};
    print("compiled loop around an if, operand fetched", &cost, "");
    assert_true(total(&cost) <= 12);
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

// ---- what is refused

static void refused(struct vb_chain *c, const char *why)
{
    char error[VB_IMAGE_TEXT] = "";

    assert_null(vb_chain_finish(c, error));
    assert_non_null(strstr(error, why));
}

static void test_refused(void **state)
{
    const struct vb_chain_op nop = {.opcode = VB_WQE_NOP}, loud = {.flags = VB_CHAIN_SIGNALED};
    struct vb_chain *c;
    struct vb_chain_queue q;
    struct vb_place old;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        c = vb_chain_begin("wrong");
        q = vb_chain_queue(c, "W", &(struct vb_chain_queue_opts){.open = 3});
        old = vb_in(vb_chain_region(c, "out", VB_CHAIN_OWN, 8, true), 0);
        if (i == 0) {
            vb_chain_if(c, q, &nop, 1ull << 48, old);
            refused(c, "48 bits");
        } else if (i == 1) {
            vb_chain_if(c, q, &loud, 1, old);
            refused(c, "sleeps");
        } else {
            vb_chain_wake(c, q, vb_chain_op(c, q, &nop), 1, old);
            refused(c, "does not sleep");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_if),
        cmocka_unit_test(test_unrolled),
        cmocka_unit_test(test_recycled),
        cmocka_unit_test(test_compiled_if),
        cmocka_unit_test(test_compiled_loop),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
