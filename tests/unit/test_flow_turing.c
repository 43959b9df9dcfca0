// SPDX-License-Identifier: Apache-2.0
// A Turing machine written in statements: table and tape are data, pointers move, and a break ends
// it. The offload that does the same (test_universal.c) is made of entries by hand.
#include "base/bytes.h"
#include "base/prng.h"
#include "chain/flow.h"
#include "chain/machine.h"
#include "fresh_seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    STATES = 6,
    SYMBOLS = 3,
    CELLS = 64,
    RULE_BYTES = 24, // next state's address (0 halts), move, cell
    ROW_BYTES = SYMBOLS * RULE_BYTES,
    CELL_BYTES = 2,
    STEPS_MAX = 400,
};

struct rule {
    uint8_t write;
    int8_t move;
    int8_t next; // -1: halts
};

struct turing {
    struct rule rule[STATES][SYMBOLS];
    uint8_t tape[CELLS];
    uint32_t state, head, steps;
    bool halted;
};

struct program {
    struct vb_image *image;
    uint32_t table, tape, vars;
    uint64_t head_at, left_at; // among the variables
};

// The steps that may be made are data, too: who has none left stops.
static struct vb_image *build(struct program *p)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_chain *c = vb_chain_begin("turing");
    struct vb_chain_region table =
        vb_chain_region(c, "table", VB_CHAIN_SHARED, STATES * ROW_BYTES, false);
    struct vb_chain_region tape =
        vb_chain_region(c, "tape", VB_CHAIN_SHARED, CELLS * CELL_BYTES, true);
    struct vb_flow *f = vb_flow_begin(c, "W");
    struct vb_var state = vb_flow_pointer(f, vb_in(table, 0)), at = vb_flow_var(f, 0);
    struct vb_var head = vb_flow_pointer(f, vb_in(tape, CELLS / 2 * CELL_BYTES));
    struct vb_var symbol = vb_flow_var(f, 0), move = vb_flow_var(f, 0), left = vb_flow_var(f, 0);

    vb_flow_loop(f);
    vb_flow_load(f, symbol, tape, head, CELL_BYTES);
    vb_flow_calc(f, VB_WQE_CALC_ADD, at, state, symbol);
    vb_flow_load(f, state, table, at, 8);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, at, at, 8);
    vb_flow_load(f, move, table, at, 8);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, at, at, 8);
    vb_flow_load(f, symbol, table, at, CELL_BYTES);
    vb_flow_store(f, tape, head, symbol, CELL_BYTES);
    vb_flow_calc(f, VB_WQE_CALC_ADD, head, head, move);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, left, left, UINT64_MAX);
    vb_flow_if_value(f, state, VB_EQ, 0, 64);
    vb_flow_break(f);
    vb_flow_end(f);
    vb_flow_if_value(f, left, VB_EQ, 0, 64);
    vb_flow_break(f);
    vb_flow_end(f);
    vb_flow_end(f);
    p->head_at = vb_flow_place(f, head).offset;
    p->left_at = vb_flow_place(f, left).offset;
    vb_flow_end_program(f);
    p->image = vb_chain_finish(c, error);
    if (!p->image)
        fail_msg("%s", error);
    p->table = (uint32_t)vb_image_find_region(p->image, "table");
    p->tape = (uint32_t)vb_image_find_region(p->image, "tape");
    p->vars = (uint32_t)vb_image_find_region(p->image, "W_vars");
    return p->image;
}

static void put_cell(uint8_t *at, uint32_t symbol)
{
    vb_put_be16(at, (uint16_t)(symbol * RULE_BYTES));
}

static void fill(struct vb_machine *m, const struct program *p, const struct turing *t)
{
    for (uint32_t i = 0; i < STATES * SYMBOLS; i++) {
        const struct rule *from = &t->rule[i / SYMBOLS][i % SYMBOLS];
        uint8_t *to = vb_machine_data(m, p->table) + i * RULE_BYTES;
        vb_put_be64(to, from->next < 0
                            ? 0
                            : vb_machine_address(m, p->table) + (uint64_t)from->next * ROW_BYTES);
        vb_put_be64(to + 8, (uint64_t)(int64_t)from->move * CELL_BYTES);
        put_cell(to + 16, from->write);
    }
    for (uint32_t i = 0; i < CELLS; i++)
        put_cell(vb_machine_data(m, p->tape) + i * CELL_BYTES, t->tape[i]);
}

// A step, unless it would leave the tape.
static bool turing_step(struct turing *t)
{
    const struct rule *r = &t->rule[t->state][t->tape[t->head]];

    if (t->head + (uint32_t)r->move >= CELLS)
        return false;
    t->tape[t->head] = r->write;
    t->head += (uint32_t)r->move;
    t->steps++;
    t->halted = r->next < 0;
    if (!t->halted)
        t->state = (uint32_t)r->next;
    return true;
}

static void make_random(struct turing *t, uint64_t seed)
{
    struct vb_prng prng = {.state = seed};

    memset(t, 0, sizeof *t);
    t->head = CELLS / 2;
    for (uint32_t i = 0; i < STATES * SYMBOLS; i++)
        t->rule[i / SYMBOLS][i % SYMBOLS] = (struct rule){
            .write = (uint8_t)vb_prng_below(&prng, SYMBOLS),
            .move = (int8_t)((int)vb_prng_below(&prng, 3) - 1),
            .next = (int8_t)(vb_prng_below(&prng, 10) ? (int)vb_prng_below(&prng, STATES) : -1)};
    for (uint32_t i = 0; i < CELLS; i++)
        t->tape[i] = (uint8_t)vb_prng_below(&prng, SYMBOLS);
}

// Runs both for so many steps at most, or until they halt; returns how many entries were executed.
static uint64_t run(const struct program *p, struct turing *t, const struct vb_machine_opts *opts)
{
    char error[VB_IMAGE_TEXT];
    struct vb_machine *m = vb_machine_create(p->image, opts, error);

    if (!m)
        fail_msg("%s", error);
    fill(m, p, t);
    while (!t->halted && t->steps < STEPS_MAX && turing_step(t))
        ;
    vb_put_be64(vb_machine_data(m, p->vars) + p->left_at, t->steps);
    if (vb_machine_run(m, 10000000) == 10000000)
        fail_msg("seed %llu: it does not end", (unsigned long long)opts->seed);
    assert_int_equal(vb_machine_fault(m, 0), 0);
    assert_int_equal(vb_get_be64(vb_machine_data(m, p->vars) + p->left_at), 0);
    assert_int_equal(vb_get_be64(vb_machine_data(m, p->vars) + p->head_at),
                     vb_machine_address(m, p->tape) + t->head * CELL_BYTES);
    for (uint32_t i = 0; i < CELLS; i++) {
        uint8_t cell[CELL_BYTES];
        put_cell(cell, t->tape[i]);
        if (memcmp(vb_machine_data(m, p->tape) + i * CELL_BYTES, cell, CELL_BYTES) != 0)
            fail_msg("seed %llu: cell %u differs", (unsigned long long)opts->seed, i);
    }
    uint64_t executed = vb_machine_executed(m, 0);
    vb_machine_destroy(m);
    return executed;
}

static void test_random_machines(void **state)
{
    static const uint32_t depth[] = {1, 3, 16, 256};
    struct program p;
    uint64_t steps = 0, entries = 0, halted = 0;

    (void)state;
    build(&p);
    for (uint64_t first = fresh_seed(), seed = first; seed < first + 60; seed++) {
        struct turing t;
        make_random(&t, seed);
        if (!turing_step(&t)) // it needs a step to make
            continue;
        make_random(&t, seed);
        entries += run(&p, &t,
                       &(struct vb_machine_opts){
                           .seed = seed, .units = 1 + seed % 2, .fetch_depth = depth[seed % 4]});
        steps += t.steps;
        halted += t.halted;
    }
    printf("%llu steps, %llu entries for each; %llu machines halted\n", (unsigned long long)steps,
           (unsigned long long)(entries / steps), (unsigned long long)halted);
    assert_true(halted > 5 && halted < 60 && steps > 1000);
    vb_image_destroy(p.image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
