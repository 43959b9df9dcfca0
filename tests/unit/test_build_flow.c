// SPDX-License-Identifier: Apache-2.0
// Programs of statements at their limits: what is refused, each with the error that names it, and
// the largest program beside it that is right and computes what it says.
#include "base/bytes.h"
#include "base/prng.h"
#include "chain/machine.h"
#include "fresh_seed.h"
#include "sim/flow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    MEMORY = 16,
    STEPS_MAX = 3000000,
    PROGRAMS = 2000,
    VARS = 4,
    DEPTH_MAX = 5,   // of conditions and repeats
    NESTED_MAX = 64, // conditions within each other
    BREAKS_MAX = 13, // conditions that a break ends, its loop's own among them
};

struct rig {
    struct vb_chain *c;
    struct vb_flow *f;
    struct vb_chain_region memory;
    struct vb_var a, b, at;
};

static void begin(struct rig *r)
{
    r->c = vb_chain_begin("test");
    assert_non_null(r->c);
    r->memory = vb_chain_region(r->c, "memory", VB_CHAIN_OWN, MEMORY, true);
    r->f = vb_flow_begin(r->c, "W");
    assert_non_null(r->f);
    r->a = vb_flow_var(r->f, 5);
    r->b = vb_flow_var(r->f, 7);
    r->at = vb_flow_pointer(r->f, vb_in(r->memory, 0));
}

// ---- variables and regions that do not exist

static const struct vb_var no_var[] = {{0}, {5}};

static void set(struct rig *r, uint32_t n)
{
    vb_flow_set(r->f, no_var[n], 1);
}

static void move(struct rig *r, uint32_t n)
{
    vb_flow_move(r->f, n < 2 ? no_var[n] : r->a, n < 2 ? r->a : no_var[n - 2]);
}

static void calc(struct rig *r, uint32_t n)
{
    struct vb_var var[] = {r->a, r->a, r->b};
    var[n / 2] = no_var[n % 2];
    vb_flow_calc(r->f, VB_WQE_CALC_ADD, var[0], var[1], var[2]);
}

static void calc_value(struct rig *r, uint32_t n)
{
    struct vb_var var[] = {r->a, r->a};
    var[n] = no_var[0];
    vb_flow_calc_value(r->f, VB_WQE_CALC_ADD, var[0], var[1], 3);
}

static void load(struct rig *r, uint32_t n)
{
    struct vb_var var[] = {r->a, r->at};
    var[n / 2] = no_var[n % 2];
    vb_flow_load(r->f, var[0], r->memory, var[1], 8);
}

static void store(struct rig *r, uint32_t n)
{
    struct vb_var var[] = {r->at, r->a};
    var[n / 2] = no_var[n % 2];
    vb_flow_store(r->f, r->memory, var[0], var[1], 8);
}

static void load_indexed(struct rig *r, uint32_t n)
{
    struct vb_var var[] = {r->a, r->at, r->b};
    var[n] = no_var[0];
    vb_flow_load_indexed(r->f, var[0], r->memory, var[1], var[2], 8);
}

static void store_indexed(struct rig *r, uint32_t n)
{
    struct vb_var var[] = {r->at, r->b, r->a};
    var[n] = no_var[0];
    vb_flow_store_indexed(r->f, r->memory, var[0], var[1], var[2], 8);
}

static void compare(struct rig *r, uint32_t n)
{
    struct vb_var var[] = {r->a, r->b};
    var[n / 2] = no_var[n % 2];
    vb_flow_if(r->f, var[0], VB_EQ, var[1], 8);
    vb_flow_end(r->f);
}

static void compare_value(struct rig *r, uint32_t n)
{
    vb_flow_if_value(r->f, no_var[n], VB_EQ, 1, 8);
    vb_flow_end(r->f);
}

static void load_region(struct rig *r, uint32_t n)
{
    const struct vb_chain_region region[] = {r->memory, {0}, {3}};
    vb_flow_load(r->f, r->a, region[n], r->at, 8);
}

static void store_region(struct rig *r, uint32_t n)
{
    const struct vb_chain_region region[] = {r->memory, {0}, {3}};
    vb_flow_store(r->f, region[n], r->at, r->a, 8);
}

static void load_bytes(struct rig *r, uint32_t n)
{
    vb_flow_load(r->f, r->a, r->memory, r->at, n);
}

static void store_bytes(struct rig *r, uint32_t n)
{
    vb_flow_store(r->f, r->memory, r->at, r->a, n);
}

// ---- conditions

static void equal_bits(struct rig *r, uint32_t n)
{
    vb_flow_if(r->f, r->a, VB_NE, r->b, n);
    vb_flow_end(r->f);
}

static void equal_value_bits(struct rig *r, uint32_t n)
{
    vb_flow_if_value(r->f, r->a, VB_EQ, 1, n);
    vb_flow_end(r->f);
}

static void less_bits(struct rig *r, uint32_t n)
{
    vb_flow_if(r->f, r->a, VB_LT, r->b, n);
    vb_flow_end(r->f);
}

static void greater_value_bits(struct rig *r, uint32_t n)
{
    vb_flow_if_value(r->f, r->a, VB_GE, 3, n);
    vb_flow_end(r->f);
}

// ---- structure

static void begin_if(struct rig *r)
{
    vb_flow_if_value(r->f, r->a, VB_EQ, 5, 64);
}

static void end(struct rig *r, uint32_t n)
{
    begin_if(r);
    for (uint32_t i = 0; i < n; i++)
        vb_flow_end(r->f);
}

static void else_of_nothing(struct rig *r, uint32_t n)
{
    (void)n;
    vb_flow_else(r->f);
}

static void else_of_repeat(struct rig *r, uint32_t n)
{
    (void)n;
    vb_flow_repeat(r->f, 2);
    vb_flow_else(r->f);
    vb_flow_end(r->f);
}

static void second_else(struct rig *r, uint32_t n)
{
    begin_if(r);
    for (uint32_t i = 0; i < n; i++)
        vb_flow_else(r->f);
    vb_flow_end(r->f);
}

static void open_end(struct rig *r, uint32_t n)
{
    if (n == 0)
        begin_if(r);
    else if (n == 1)
        vb_flow_repeat(r->f, 2);
    else
        vb_flow_loop(r->f);
}

static void loop_within(struct rig *r, uint32_t n)
{
    if (n)
        begin_if(r);
    vb_flow_loop(r->f);
    vb_flow_set(r->f, r->a, 1);
    vb_flow_end(r->f);
    if (n)
        vb_flow_end(r->f);
}

static void loop_behind(struct rig *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        vb_flow_set(r->f, r->a, 1);
    loop_within(r, 0);
}

static void behind_loop(struct rig *r, uint32_t n)
{
    loop_within(r, 0);
    if (n == 0)
        vb_flow_set(r->f, r->a, 1);
    else if (n == 1)
        vb_flow_repeat(r->f, 1);
    else
        vb_flow_loop(r->f);
}

static void loose_break(struct rig *r, uint32_t n)
{
    if (n)
        begin_if(r);
    vb_flow_break(r->f);
    if (n)
        vb_flow_end(r->f);
}

static void break_of(struct rig *r, uint32_t n)
{
    if (n)
        vb_flow_repeat(r->f, 2);
    else
        vb_flow_loop(r->f);
    begin_if(r);
    vb_flow_break(r->f);
    vb_flow_end(r->f);
    vb_flow_end(r->f);
}

// ---- limits

static void many_variables(struct rig *r, uint32_t n)
{
    for (uint32_t i = 4; i < n; i++)
        assert_int_equal(vb_flow_var(r->f, i).id, i + 1);
    vb_flow_set(r->f, (struct vb_var){n}, 9);
}

// A condition with another in it is a variable: so deep that is.
static void nested(struct rig *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        begin_if(r);
    vb_flow_store(r->f, r->memory, r->at, r->b, 8);
    for (uint32_t i = 0; i < n; i++)
        vb_flow_end(r->f);
}

static void deep_break(struct rig *r, uint32_t n)
{
    vb_flow_repeat(r->f, 2);
    for (uint32_t i = 1; i < n; i++)
        begin_if(r);
    vb_flow_break(r->f);
    for (uint32_t i = 0; i < n; i++)
        vb_flow_end(r->f);
}

#define NO_VAR    "queue 'W': a statement names a variable that does not exist"
#define NO_REGION "queue 'W': a statement names a region that does not exist"
#define BYTES(n)  "queue 'W': 1 to 8 bytes are loaded or stored, not " n
#define BITS(n)   "queue 'W': 1 to 64 bits are compared, not " n
#define ALL_BITS  "queue 'W': less and greater compare all 64 bits"
#define NO_IF     "queue 'W': an else without its if"
#define NO_END    "queue 'W': an if, repeat or loop has no end"
#define NO_MORE   "queue 'W': nothing comes after a loop that has no end"
#define NO_LOOP   "queue 'W': a break outside of any repeat or loop"

static const struct {
    void (*write)(struct rig *r, uint32_t n);
    uint32_t n;
    const char *error; // NULL: it is right
} all[] = {
    {set, 0, NO_VAR},
    {set, 1, NO_VAR},
    {move, 0, NO_VAR},
    {move, 1, NO_VAR},
    {move, 2, NO_VAR},
    {move, 3, NO_VAR},
    {calc, 0, NO_VAR},
    {calc, 1, NO_VAR},
    {calc, 2, NO_VAR},
    {calc, 3, NO_VAR},
    {calc, 4, NO_VAR},
    {calc, 5, NO_VAR},
    {calc_value, 0, NO_VAR},
    {calc_value, 1, NO_VAR},
    {load, 0, NO_VAR},
    {load, 1, NO_VAR},
    {load, 2, NO_VAR},
    {load, 3, NO_VAR},
    {store, 0, NO_VAR},
    {store, 1, NO_VAR},
    {store, 2, NO_VAR},
    {store, 3, NO_VAR},
    {load_indexed, 0, NO_VAR},
    {load_indexed, 1, NO_VAR},
    {load_indexed, 2, NO_VAR},
    {store_indexed, 0, NO_VAR},
    {store_indexed, 1, NO_VAR},
    {store_indexed, 2, NO_VAR},
    {compare, 0, NO_VAR},
    {compare, 1, NO_VAR},
    {compare, 2, NO_VAR},
    {compare, 3, NO_VAR},
    {compare_value, 0, NO_VAR},
    {compare_value, 1, NO_VAR},
    {load_region, 0, NULL},
    {load_region, 1, NO_REGION},
    {load_region, 2, NO_REGION},
    {store_region, 0, NULL},
    {store_region, 1, NO_REGION},
    {store_region, 2, NO_REGION},
    {load_bytes, 0, BYTES("0")},
    {load_bytes, 1, NULL},
    {load_bytes, 8, NULL},
    {load_bytes, 9, BYTES("9")},
    {store_bytes, 0, BYTES("0")},
    {store_bytes, 1, NULL},
    {store_bytes, 8, NULL},
    {store_bytes, 9, BYTES("9")},
    {equal_bits, 0, BITS("0")},
    {equal_bits, 1, NULL},
    {equal_bits, 64, NULL},
    {equal_bits, 65, BITS("65")},
    {equal_value_bits, 0, BITS("0")},
    {equal_value_bits, 65, BITS("65")},
    {less_bits, 63, ALL_BITS},
    {less_bits, 64, NULL},
    {greater_value_bits, 63, ALL_BITS},
    {greater_value_bits, 64, NULL},
    {end, 0, NO_END},
    {end, 1, NULL},
    {end, 2, "queue 'W': an end without its beginning"},
    {else_of_nothing, 0, NO_IF},
    {else_of_repeat, 0, NO_IF},
    {second_else, 1, NULL},
    {second_else, 2, NO_IF},
    {open_end, 0, NO_END},
    {open_end, 1, NO_END},
    {open_end, 2, NO_END},
    {loop_within, 0, NULL},
    {loop_within, 1, "queue 'W': a loop without end cannot be within another statement"},
    {loop_behind, 0, NULL},
    {loop_behind, 1,
     "queue 'W': a loop without end is the only statement; give the variables their first values "
     "instead"},
    {behind_loop, 0, NO_MORE},
    {behind_loop, 1, NO_MORE},
    {behind_loop, 2, NO_MORE},
    {loose_break, 0, NO_LOOP},
    {loose_break, 1, NO_LOOP},
    {break_of, 0, NULL},
    {break_of, 1, NULL},
    {many_variables, VB_FLOW_VARS, NULL},
    {nested, NESTED_MAX, NULL},
    {nested, NESTED_MAX + 2, "queue 'W': statements are nested deeper than 64"},
    {deep_break, BREAKS_MAX, NULL},
    {deep_break, BREAKS_MAX + 1, "queue 'W': a break out of too many conditions"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char error[VB_IMAGE_TEXT] = "";
        struct rig r;
        begin(&r);
        all[i].write(&r, all[i].n);
        vb_flow_end_program(r.f);
        struct vb_image *image = vb_chain_finish(r.c, error);
        if ((image == NULL) != (all[i].error != NULL))
            fail_msg("case %u: %s", i, image ? all[i].error : error);
        assert_string_equal(error, all[i].error ? all[i].error : "");
        vb_image_destroy(image);
    }
}

// What is said after a mistake, or without memory for it, changes nothing.
static void test_ignored_statements(void **state)
{
    struct rig r;
    char error[VB_IMAGE_TEXT] = "";

    (void)state;
    for (int none = 0; none < 2; none++) {
        begin(&r);
        struct vb_flow *f = none ? NULL : r.f;
        vb_flow_set(r.f, no_var[0], 1);
        begin_if(&r);
        assert_null(r.f->open);
        vb_flow_set(f, r.a, 1);
        vb_flow_move(f, r.a, r.b);
        vb_flow_calc(f, VB_WQE_CALC_ADD, r.a, r.a, r.b);
        vb_flow_calc_value(f, VB_WQE_CALC_ADD, r.a, r.a, 1);
        vb_flow_load(f, r.a, r.memory, r.at, 8);
        vb_flow_store(f, r.memory, r.at, r.a, 8);
        vb_flow_load_indexed(f, r.a, r.memory, r.at, r.b, 8);
        vb_flow_store_indexed(f, r.memory, r.at, r.b, r.a, 8);
        vb_flow_if(f, r.a, VB_EQ, r.b, 64);
        vb_flow_if_value(f, r.a, VB_EQ, 1, 64);
        vb_flow_else(f);
        vb_flow_repeat(f, 2);
        vb_flow_loop(f);
        vb_flow_break(f);
        vb_flow_end(f);
        assert_null(r.f->first);
        assert_null(r.f->open);
        if (none) {
            assert_int_equal(vb_flow_var(f, 3).id, 0);
            assert_int_equal(vb_flow_pointer(f, vb_in(r.memory, 0)).id, 0);
            vb_flow_end_program(f);
        }
        vb_flow_end_program(r.f);
        assert_null(vb_chain_finish(r.c, error));
        assert_string_equal(error, NO_VAR);
    }
}

static void test_too_many_variables(void **state)
{
    struct rig r;
    char error[VB_IMAGE_TEXT] = "";

    (void)state;
    begin(&r);
    many_variables(&r, VB_FLOW_VARS);
    assert_int_equal(vb_flow_var(r.f, 1).id, 1); // which is nobody's
    assert_int_equal(r.f->var_count, VB_FLOW_VARS);
    vb_flow_end_program(r.f);
    assert_null(vb_chain_finish(r.c, error));
    assert_string_equal(error, "queue 'W': more than 1024 variables");
}

// ---- programs that run

static struct vb_machine *run(const struct vb_image *image, uint64_t seed)
{
    static const uint32_t depth[] = {1, 2, 3, 5, 8, 16, 256};
    const struct vb_machine_opts opts = {.seed = seed,
                                         .units = 1 + seed % 2,
                                         .fetch_depth = depth[seed % 7],
                                         .start = seed % 3 ? 0 : (1ull << 24) - (1ull << 15)};
    char error[VB_IMAGE_TEXT] = "";
    struct vb_machine *m = vb_machine_create(image, &opts, error);

    if (!m)
        fail_msg("seed %llu: %s", (unsigned long long)seed, error);
    if (vb_machine_run(m, STEPS_MAX) == STEPS_MAX)
        fail_msg("seed %llu: it does not end", (unsigned long long)seed);
    assert_int_equal(vb_machine_fault(m, 0), 0);
    assert_int_equal(vb_machine_address(m, 0), VB_SIMFLOW_BASE);
    return m;
}

// The deepest program stores its value, and the deepest break ends its loop.
static void test_deepest_programs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 7; seed++) {
        char error[VB_IMAGE_TEXT] = "";
        struct rig r;
        begin(&r);
        nested(&r, NESTED_MAX);
        vb_flow_calc_value(r.f, VB_WQE_CALC_ADD, r.b, r.b, 1);
        vb_flow_repeat(r.f, 2);
        for (uint32_t i = 1; i < BREAKS_MAX; i++)
            begin_if(&r);
        vb_flow_store(r.f, r.memory, r.at, r.b, 4);
        vb_flow_calc_value(r.f, VB_WQE_CALC_ADD, r.b, r.b, 1);
        vb_flow_break(r.f);
        for (uint32_t i = 0; i < BREAKS_MAX; i++)
            vb_flow_end(r.f);
        vb_flow_end_program(r.f);
        struct vb_image *image = vb_chain_finish(r.c, error);
        if (!image)
            fail_msg("%s", error);
        struct vb_machine *m = run(image, seed);
        assert_memory_equal(vb_machine_data(m, 0), "\0\0\0\10\0\0\0\7", 8);
        vb_machine_destroy(m);
        vb_image_destroy(image);
    }
}

// ---- random programs: more of everything than the simulator's

struct maker {
    struct vb_simflow *w;
    struct vb_prng prng;
    struct vb_chain_region memory;
    struct vb_var var[VARS], offset[VARS], pointer, away;
    uint32_t left; // statements
};

static uint32_t draw(struct maker *k, uint32_t below)
{
    return (uint32_t)vb_prng_below(&k->prng, below);
}

// Few values, so that conditions hold as often as not.
static uint64_t draw_value(struct maker *k)
{
    static const uint64_t some[] = {0, 1, 2, 0x1ff, 1ull << 47, ~0ull};
    return some[draw(k, 6)];
}

static struct vb_var any(struct maker *k)
{
    return k->var[draw(k, VARS)];
}

static void add_calc(struct maker *k)
{
    static const enum vb_wqe_calc op[] = {VB_WQE_CALC_ADD, VB_WQE_CALC_AND, VB_WQE_CALC_OR,
                                          VB_WQE_CALC_XOR, VB_WQE_CALC_MAX, VB_WQE_CALC_MIN};
    enum vb_wqe_calc drawn = op[draw(k, 6)];
    struct vb_var to = any(k), a = any(k), b = any(k);

    if (draw(k, 2))
        vb_flow_calc(k->w->f, drawn, to, a, b);
    else
        vb_flow_calc_value(k->w->f, drawn, to, a, draw_value(k));
}

// Loads over the pointer that it loads by, stores what came, and has the pointer back.
static void add_load_over(struct maker *k)
{
    struct vb_flow *f = k->w->f;

    vb_flow_load(f, k->away, k->memory, k->away, 1 + draw(k, 8));
    vb_flow_store(f, k->memory, k->pointer, k->away, 1 + draw(k, 8));
    vb_flow_move(f, k->away, k->pointer);
}

static void add_simple(struct maker *k)
{
    struct vb_flow *f = k->w->f;
    struct vb_var v = any(k), from = any(k), offset = k->offset[draw(k, VARS)];
    uint32_t bytes = 1 + draw(k, 8);

    switch (draw(k, 10)) {
    case 0: vb_flow_set(f, v, draw_value(k)); break;
    case 1: vb_flow_move(f, v, from); break;
    case 2: vb_flow_load(f, v, k->memory, draw(k, 2) ? k->pointer : k->away, bytes); break;
    case 3: vb_flow_store(f, k->memory, draw(k, 2) ? k->pointer : k->away, v, bytes); break;
    case 4: vb_flow_load_indexed(f, v, k->memory, k->pointer, offset, bytes); break;
    case 5: vb_flow_store_indexed(f, k->memory, k->pointer, offset, v, bytes); break;
    case 6: add_load_over(k); break;
    default: add_calc(k); break;
    }
}

static void add_list(struct maker *k, uint32_t depth, uint32_t repeats, bool in_loop);

static void add_if(struct maker *k, uint32_t depth, uint32_t repeats, bool in_loop)
{
    enum vb_compare compare = (enum vb_compare)draw(k, 6);
    uint32_t bits = compare > VB_NE ? 64 : 1 + draw(k, 64);
    struct vb_var a = any(k), b = any(k);

    if (draw(k, 2))
        vb_flow_if(k->w->f, a, compare, b, bits);
    else
        vb_flow_if_value(k->w->f, a, compare, draw_value(k), bits);
    if (draw(k, 8))
        add_list(k, depth + 1, repeats, in_loop);
    if (draw(k, 2)) {
        vb_flow_else(k->w->f);
        add_list(k, depth + 1, repeats, in_loop);
    }
    vb_flow_end(k->w->f);
}

static void add_list(struct maker *k, uint32_t depth, uint32_t repeats, bool in_loop)
{
    for (uint32_t n = 1 + draw(k, draw(k, 4) ? 4 : 16); n > 0 && k->left > 0; n--) {
        uint32_t kind = draw(k, 12);
        k->left--;
        if (kind < 3 && depth < DEPTH_MAX) {
            add_if(k, depth, repeats, in_loop);
        } else if (kind == 3 && repeats < 2) {
            vb_flow_repeat(k->w->f, draw(k, 4));
            add_list(k, depth + 1, repeats + 1, true);
            vb_flow_end(k->w->f);
        } else if (kind == 4 && in_loop && draw(k, 2)) {
            vb_flow_break(k->w->f);
        } else {
            add_simple(k);
        }
    }
}

// It ends by its own count at the latest.
static void add_loop(struct maker *k)
{
    struct vb_flow *f = k->w->f;
    struct vb_var count = vb_flow_var(f, 0);

    vb_flow_loop(f);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, count, count, 1);
    add_list(k, 1, 1, true);
    vb_flow_if_value(f, count, VB_GT, draw(k, 4), 64);
    vb_flow_break(f);
    vb_flow_end(f);
    vb_flow_end(f);
}

static struct vb_image *make_random(struct vb_simflow *w, uint64_t seed)
{
    struct maker k = {.w = w, .prng = {.state = seed}, .left = 25};
    struct vb_chain *c = vb_chain_begin("random");
    char error[VB_IMAGE_TEXT] = "";

    memset(w, 0, sizeof *w);
    k.memory = vb_chain_region(c, "memory", VB_CHAIN_OWN, VB_SIMFLOW_MEMORY, true);
    for (uint32_t i = 0; i < VB_SIMFLOW_MEMORY; i++)
        w->memory[i] = (uint8_t)vb_prng_next(&k.prng);
    vb_chain_put(c, vb_in(k.memory, 0), w->memory, VB_SIMFLOW_MEMORY);
    w->f = vb_flow_begin(c, "W");
    k.pointer = vb_flow_pointer(w->f, vb_in(k.memory, 8));
    k.away = vb_flow_pointer(w->f, vb_in(k.memory, 8));
    for (uint32_t i = 0; i < VARS; i++) {
        k.var[i] = vb_flow_var(w->f, draw_value(&k));
        k.offset[i] = vb_flow_var(w->f, 3 * i);
    }
    if (draw(&k, 3))
        add_list(&k, 0, 0, false);
    else
        add_loop(&k);
    vb_simflow_run(w);
    w->v[0] = k.pointer;
    w->v[1] = k.away;
    memcpy(w->v + 2, k.var, sizeof k.var);
    vb_flow_end_program(w->f);
    struct vb_image *image = vb_chain_finish(c, error);
    if (!image)
        fail_msg("seed %llu: %s", (unsigned long long)seed, error);
    return image;
}

static void test_random_programs(void **state)
{
    static struct vb_simflow w;

    (void)state;
    const uint64_t first = fresh_seed();
    for (uint64_t seed = first; seed < first + PROGRAMS; seed++) {
        struct vb_image *image = make_random(&w, seed);
        struct vb_machine *m = run(image, seed);
        const uint8_t *vars = vb_machine_data(m, 1);
        for (uint32_t i = 0; i < 2 + VARS; i++) {
            uint64_t is = vb_get_be64(vars + (size_t)(w.v[i].id - 1) * VB_FLOW_VAR_BYTES);
            if (is != w.var[w.v[i].id - 1])
                fail_msg("seed %llu: variable %u is %llx, not %llx", (unsigned long long)seed, i,
                         (unsigned long long)is, (unsigned long long)w.var[w.v[i].id - 1]);
        }
        assert_memory_equal(vb_machine_data(m, 0), w.memory, VB_SIMFLOW_MEMORY);
        vb_machine_destroy(m);
        vb_image_destroy(image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),           cmocka_unit_test(test_ignored_statements),
        cmocka_unit_test(test_too_many_variables), cmocka_unit_test(test_deepest_programs),
        cmocka_unit_test(test_random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
