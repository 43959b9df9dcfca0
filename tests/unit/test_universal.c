// SPDX-License-Identifier: Apache-2.0
// The universal machine, step by step against an interpreter in C: known machines, ones that run
// for long, and random ones; under several depths of fetching ahead, with one unit and with two.
#include "base/bytes.h"
#include "base/prng.h"
#include "chain/machine.h"
#include "fresh_seed.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    STATES_MAX = 40,
    SYMBOLS_MAX = 8,
    CELLS_MAX = 1 << 14,
    IDLE_MAX = 100000, // steps of the machine below, for one of the one above
};

// ---- the reference

struct rule {
    uint8_t write;
    int8_t move;
    int16_t next; // -1: halts
};

struct turing {
    uint32_t states, symbols, cells;
    struct rule rule[STATES_MAX][SYMBOLS_MAX];
    uint8_t tape[CELLS_MAX];
    uint32_t state;
    int64_t head;
    uint64_t steps;
    bool halted;
};

static void turing_step(struct turing *t)
{
    const struct rule *r = &t->rule[t->state][t->tape[t->head]];

    t->tape[t->head] = r->write;
    t->head += r->move;
    t->steps++;
    t->halted = r->next < 0;
    if (!t->halted)
        t->state = (uint32_t)r->next;
}

static bool on_tape(const struct turing *t)
{
    return t->head >= 0 && t->head < t->cells;
}

// ---- the machine that is made of work-queue entries

struct rig {
    struct vb_image *image;
    struct vb_machine *m;
    uint32_t table, tape;
    uint32_t cell[2], rule[2]; // blocks
    uint64_t entries;          // executed
};

static uint32_t block_of(const struct vb_image *image, const char *label)
{
    int i = vb_image_find_label(image, label);
    assert_true(i >= 0);
    return image->label[i].block;
}

static uint64_t row(const struct rig *r, const struct turing *t, uint32_t state)
{
    return vb_machine_address(r->m, r->table) +
           (uint64_t)state * t->symbols * sizeof(struct vb_universal_rule);
}

// Table and tape as data.
static void fill(struct rig *r, const struct turing *t)
{
    struct vb_universal_rule *rule = (void *)vb_machine_data(r->m, r->table);
    uint8_t *tape = vb_machine_data(r->m, r->tape);

    for (uint32_t state = 0; state < t->states; state++)
        for (uint32_t symbol = 0; symbol < t->symbols; symbol++, rule++) {
            const struct rule *from = &t->rule[state][symbol];
            rule->next = htobe64(row(r, t, from->next < 0 ? 0 : (uint32_t)from->next));
            rule->move = htobe64((uint64_t)(int64_t)from->move * 2);
            rule->halts[5] = from->next < 0;
            vb_universal_cell(rule->cell, from->write);
        }
    for (uint32_t i = 0; i < t->cells; i++)
        vb_universal_cell(tape + 2 * i, t->tape[i]);
}

static void rig_open(struct rig *r, const struct turing *t, const struct vb_machine_opts *opts)
{
    char error[VB_IMAGE_TEXT] = "";

    memset(r, 0, sizeof *r);
    r->image = vb_offload_universal(&(struct vb_universal_opts){.rules = t->states * t->symbols,
                                                                .cells = t->cells,
                                                                .head = (uint64_t)t->head},
                                    error);
    if (!r->image)
        fail_msg("%s", error);
    r->m = vb_machine_create(r->image, opts, error);
    if (!r->m)
        fail_msg("%s", error);
    r->table = (uint32_t)vb_image_find_region(r->image, "table");
    r->tape = (uint32_t)vb_image_find_region(r->image, "tape");
    r->cell[0] = block_of(r->image, "cell0");
    r->cell[1] = block_of(r->image, "cell1");
    r->rule[0] = block_of(r->image, "rule0");
    r->rule[1] = block_of(r->image, "rule1");
    fill(r, t);
}

static void rig_close(struct rig *r)
{
    vb_machine_destroy(r->m);
    vb_image_destroy(r->image);
}

// Until the entry that ends a step: the second that opens the queue. False: it has stopped.
static bool rig_step(struct rig *r)
{
    struct vb_step step;
    uint32_t opened = 0, unit;

    for (uint32_t i = 0; i < IDLE_MAX; i++) {
        if (!vb_machine_step(r->m, &step, &unit))
            return false;
        if (step.kind != VB_STEP_EXEC)
            continue;
        r->entries++;
        opened += step.opcode == VB_WQE_SEND_EN;
        if (opened == 2)
            return true;
    }
    fail_msg("it neither goes on nor stops");
    return false;
}

static uint64_t address_in(const struct rig *r, uint32_t block)
{
    return vb_get_be64(vb_machine_send_ring(r->m, 0) + block * VB_WQEBB_BYTES + 16);
}

static void compare_cell(const struct rig *r, const struct turing *t, int64_t at)
{
    uint8_t cell[2];

    vb_universal_cell(cell, t->tape[at]);
    if (memcmp(vb_machine_data(r->m, r->tape) + 2 * at, cell, 2) != 0)
        fail_msg("step %llu: cell %lld differs", (unsigned long long)t->steps, (long long)at);
}

// `at`: the cell that was under the head.
static void compare(const struct rig *r, const struct turing *t, int64_t at)
{
    uint32_t slot = t->steps % 2;

    if (address_in(r, r->cell[slot]) != vb_machine_address(r->m, r->tape) + (uint64_t)t->head * 2)
        fail_msg("step %llu: the head is elsewhere", (unsigned long long)t->steps);
    if (!t->halted && address_in(r, r->rule[slot]) != row(r, t, t->state))
        fail_msg("step %llu: another state", (unsigned long long)t->steps);
    compare_cell(r, t, at);
    // Of the rest of a long tape not all is looked at every time.
    uint32_t stride = t->halted || t->cells <= 64 ? 1 : t->cells / 16;
    for (uint32_t i = (uint32_t)t->steps % stride; i < t->cells; i += stride)
        compare_cell(r, t, i);
}

// Runs both until they halt, or so many steps.
static void run(struct turing *t, const struct vb_machine_opts *opts, uint64_t steps_max)
{
    struct rig r;

    rig_open(&r, t, opts);
    while (!t->halted && t->steps < steps_max && on_tape(t)) {
        int64_t at = t->head;
        assert_true(rig_step(&r));
        turing_step(t);
        compare(&r, t, at);
    }
    for (uint32_t i = 0; i < t->cells; i++)
        compare_cell(&r, t, i);
    if (t->halted) { // it is up to the program to stop
        assert_false(rig_step(&r));
        compare(&r, t, 0);
        assert_int_equal(vb_machine_fault(r.m, 0), 0);
    } else if (!on_tape(t)) { // past the end of the tape there is nothing for it
        assert_false(rig_step(&r));
        assert_int_equal(vb_machine_fault(r.m, 0), VB_SYN_REMOTE_ACCESS);
    }
    if (t->steps > 10000 && opts->fetch_depth != 1 && opts->fetch_depth != 3 && opts->units < 2)
        printf("%llu steps, %.2f entries for each; %u blocks of queue, %u states, %u symbols\n",
               (unsigned long long)t->steps, (double)r.entries / (double)t->steps,
               r.image->queue[0].blocks, t->states, t->symbols);
    rig_close(&r);
}

// Under several depths and units; `expect` judges the end.
static void run_everywhere(const struct turing *like, uint64_t steps_max,
                           void (*expect)(const struct turing *t))
{
    static const uint32_t depth[] = {1, 3, 16};

    for (uint32_t units = 1; units <= 2; units++)
        for (uint32_t d = 0; d < 3; d++) {
            static struct turing t;
            t = *like;
            run(&t,
                &(struct vb_machine_opts){.seed = d + 1, .units = units, .fetch_depth = depth[d]},
                steps_max);
            expect(&t);
        }
}

// ---- machines, written as "1RB 0LA, …" is: what to write, where to go, the next state

static void parse(struct turing *t, uint32_t symbols, const char *text)
{
    uint32_t state = 0, symbol = 0;

    memset(t, 0, sizeof *t);
    t->symbols = symbols;
    for (; *text; text++) {
        if (*text == ' ')
            continue;
        assert_true(state < STATES_MAX);
        t->rule[state][symbol] = (struct rule){.write = (uint8_t)(text[0] - '0'),
                                               .move = text[1] == 'R'   ? 1
                                                       : text[1] == 'L' ? -1
                                                                        : 0,
                                               .next = text[2] == 'H' ? -1 : text[2] - 'A'};
        text += 2;
        if (++symbol == symbols) {
            symbol = 0;
            state++;
        }
    }
    t->states = state;
}

static uint32_t count(const struct turing *t, uint8_t symbol)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->cells; i++)
        n += t->tape[i] == symbol;
    return n;
}

static void expect_increment(const struct turing *t)
{
    static const uint8_t want[] = {2, 1, 1, 0, 0, 0, 0, 2}; // 10 1111 + 1

    assert_true(t->halted);
    assert_memory_equal(t->tape, want, sizeof want);
}

static void test_binary_increment(void **state)
{
    static const uint8_t tape[] = {2, 1, 0, 1, 1, 1, 1, 2}; // between blanks
    static struct turing t;

    (void)state;
    // To the right end, then back while there is something to carry.
    parse(&t, 3, "0RA 1RA 2LB  1NH 0LB 1NH");
    memcpy(t.tape, tape, sizeof tape);
    t.cells = sizeof tape;
    t.head = 1;
    run_everywhere(&t, 1000, expect_increment);
}

static void expect_beaver(const struct turing *t)
{
    assert_true(t->halted);
    assert_int_equal(t->steps, t->states == 3 ? 21 : 107);
    assert_int_equal(count(t, 1), t->states == 3 ? 5 : 13);
}

static void test_busy_beavers(void **state)
{
    static struct turing t;

    (void)state;
    parse(&t, 2, "1RB 1RH  1LB 0RC  1LC 1LA");
    t.cells = 32;
    t.head = 16;
    run_everywhere(&t, 1000, expect_beaver);
    parse(&t, 2, "1RB 1LB  1LA 0LC  1RH 1LD  1RD 0RA");
    t.cells = 32;
    t.head = 16;
    run_everywhere(&t, 1000, expect_beaver);
}

static void expect_running(const struct turing *t)
{
    assert_false(t->halted);
    assert_int_equal(t->steps, 20000);
}

// The champion of five states needs 47,176,870 steps and leaves 4,098 marks: UNIVERSAL_STEPS says
// how many are made.
static void test_champion_of_five(void **state)
{
    const char *text = getenv("UNIVERSAL_STEPS");
    static struct turing t;

    (void)state;
    parse(&t, 2, "1RB 1LC  1RC 1RB  1RD 0LE  1LA 1LD  1RH 0LA");
    t.cells = text ? CELLS_MAX : 1024;
    t.head = text ? CELLS_MAX * 3 / 4 : 512;
    if (!text) {
        run_everywhere(&t, 20000, expect_running);
        return;
    }
    run(&t, &(struct vb_machine_opts){.seed = 1}, strtoull(text, NULL, 0));
    printf("%s after %llu steps, %u marks\n", t.halted ? "halted" : "running",
           (unsigned long long)t.steps, count(&t, 1));
    if (t.halted)
        assert_true(t.steps == 47176870 && count(&t, 1) == 4098);
}

static void expect_counted(const struct turing *t)
{
    assert_true(t->halted && t->steps > 10000);
    assert_int_equal(count(t, 1), 0); // it went over
}

// Adds one again and again, until there is no room for the carry.
static void test_counter_to_its_end(void **state)
{
    static struct turing t;

    (void)state;
    // A: carry leftwards; B: back to the right end. 2 is the mark at both ends.
    parse(&t, 3, "1RB 0LA 2NH  0RB 1RB 2LA");
    t.cells = 15;
    t.tape[0] = t.tape[14] = 2;
    t.head = 13;
    run_everywhere(&t, 100000, expect_counted);
}

// Takes a letter from the left, and looks for it at the right. Blank is 0, letters are 1 and 2; it
// halts on a blank if the word was a palindrome.
static void test_palindromes(void **state)
{
    static const char *const word[] = {"", "1", "1221", "12121", "12", "1211", "2111112", "112111"};

    (void)state;
    for (uint32_t i = 0; i < sizeof word / sizeof word[0]; i++) {
        static struct turing t;
        uint32_t len = (uint32_t)strlen(word[i]);
        bool want = true;
        // A: take; B, C: go right with 1 or 2; D, E: compare; F: go back.
        parse(&t, 3,
              "0NH 0RB 0RC  0LD 1RB 2RB  0LE 1RC 2RC  0NH 0LF 2NH  0NH 1NH 0LF  0RA 1LF 2LF");
        t.cells = 16;
        t.head = 2;
        for (uint32_t k = 0; k < len; k++) {
            t.tape[2 + k] = (uint8_t)(word[i][k] - '0');
            want = want && word[i][k] == word[i][len - 1 - k];
        }
        run(&t, &(struct vb_machine_opts){.seed = i, .units = 1 + i % 2, .fetch_depth = 1 + i},
            10000);
        assert_true(t.halted);
        assert_int_equal(t.tape[t.head] == 0, want);
    }
}

// Rule 110, a universal automaton, on cells in a row between marks: a sweep to the right computes a
// generation, keeping the old values of two cells in the state; then it goes back, and so on.
enum {
    WIDTH = 48,
    MARK = 2,
    BACK = 4,
};

static void make_rule_110(struct turing *t)
{
    memset(t, 0, sizeof *t);
    t->states = 5;
    t->symbols = 3;
    t->cells = WIDTH + 3;
    // The head stands to the right of the cell to be written; its left neighbour's and its own old
    // value are the state. So the result is written one cell to the right: the row wanders.
    for (uint32_t left = 0; left < 2; left++)
        for (uint32_t own = 0; own < 2; own++) {
            for (uint32_t right = 0; right < 2; right++)
                t->rule[left * 2 + own][right] =
                    (struct rule){.write = 110 >> (left * 4 + own * 2 + right) & 1,
                                  .move = 1,
                                  .next = (int16_t)(own * 2 + right)};
            t->rule[left * 2 + own][MARK] = (struct rule){.write = MARK, .move = -1, .next = BACK};
        }
    for (uint32_t symbol = 0; symbol < 2; symbol++)
        t->rule[BACK][symbol] = (struct rule){.write = (uint8_t)symbol, .move = -1, .next = BACK};
    t->rule[BACK][MARK] = (struct rule){.write = MARK, .move = 1, .next = 0};
    t->tape[0] = t->tape[t->cells - 1] = MARK;
    t->tape[t->cells - 3] = 1;
    t->head = 1;
}

static void expect_rule_110(const struct turing *t)
{
    uint8_t row[WIDTH + 1] = {0};
    uint32_t generations = (uint32_t)(t->steps / (2 * (WIDTH + 2)));

    // The same automaton, without a machine.
    row[WIDTH - 1] = 1;
    for (uint32_t g = 0; g < generations; g++) {
        uint8_t left = 0, own = 0;
        for (uint32_t i = 0; i <= WIDTH; i++) {
            uint8_t right = row[i];
            row[i] = 110 >> (left * 4 + own * 2 + right) & 1;
            left = own;
            own = right;
        }
    }
    assert_int_equal(t->steps % (2 * (WIDTH + 2)), 0);
    assert_true(count(t, 1) > 0 && t->steps >= 10000);
    assert_memory_equal(t->tape + 1, row, WIDTH + 1);
}

static void test_rule_110(void **state)
{
    static struct turing t;

    (void)state;
    make_rule_110(&t);
    run_everywhere(&t, 100 * 2 * (WIDTH + 2), expect_rule_110);
}

static void test_random_machines(void **state)
{
    uint32_t halted = 0, left = 0;

    (void)state;
    for (uint64_t first = fresh_seed(), seed = first; seed < first + 200; seed++) {
        static struct turing t;
        struct vb_prng prng = {.state = seed};
        memset(&t, 0, sizeof t);
        t.states = 1 + (uint32_t)vb_prng_below(&prng, 8);
        t.symbols = 2 + (uint32_t)vb_prng_below(&prng, SYMBOLS_MAX - 1);
        t.cells = 4 + (uint32_t)vb_prng_below(&prng, 60);
        t.head = (int64_t)vb_prng_below(&prng, t.cells);
        for (uint32_t i = 0; i < t.states * t.symbols; i++)
            t.rule[i / t.symbols][i % t.symbols] =
                (struct rule){.write = (uint8_t)vb_prng_below(&prng, t.symbols),
                              .move = (int8_t)(vb_prng_below(&prng, 3)) - 1,
                              .next = (int16_t)vb_prng_below(&prng, t.states + 1) - 1};
        for (uint32_t i = 0; i < t.cells; i++)
            t.tape[i] = (uint8_t)vb_prng_below(&prng, t.symbols);
        run(&t,
            &(struct vb_machine_opts){.seed = seed,
                                      .units = 1 + seed % 2,
                                      .fetch_depth = 1 + (uint32_t)seed % 17,
                                      .start = seed % 4 == 0 ? (1ull << 24) - 1024 : 0},
            300);
        halted += t.halted;
        left += !on_tape(&t);
    }
    printf("random machines: %u of 200 halted, %u left their tape\n", halted, left);
    assert_true(halted > 0 && left > 0 && halted + left < 200); // each kind was drawn
}

// The program has one size, whatever it runs.
static void test_size_does_not_depend(void **state)
{
    char error[VB_IMAGE_TEXT];
    struct vb_image *small =
        vb_offload_universal(&(struct vb_universal_opts){.rules = 1, .cells = 1}, error);
    struct vb_image *big = vb_offload_universal(
        &(struct vb_universal_opts){.rules = 100000, .cells = 1 << 30, .head = 12345}, error);

    (void)state;
    assert_non_null(small);
    assert_non_null(big);
    assert_int_equal(small->queue[0].filled, big->queue[0].filled);
    assert_int_equal(small->relocs, big->relocs);
    vb_image_destroy(small);
    vb_image_destroy(big);
    assert_null(vb_offload_universal(&(struct vb_universal_opts){.rules = 1, .cells = 4, .head = 4},
                                     error));
    assert_non_null(strstr(error, "tape"));
    assert_null(vb_offload_universal(&(struct vb_universal_opts){.cells = 4}, error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_binary_increment), cmocka_unit_test(test_busy_beavers),
        cmocka_unit_test(test_champion_of_five), cmocka_unit_test(test_counter_to_its_end),
        cmocka_unit_test(test_palindromes),      cmocka_unit_test(test_rule_110),
        cmocka_unit_test(test_random_machines),  cmocka_unit_test(test_size_does_not_depend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
