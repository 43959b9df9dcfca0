// SPDX-License-Identifier: Apache-2.0
// Random programs of statements.
#include "sim/flow.h"

#include "base/prng.h"

#include <assert.h>
#include <string.h>

// ---- the reference

static uint64_t calc(enum vb_wqe_calc op, uint64_t a, uint64_t b)
{
    switch (op) {
    case VB_WQE_CALC_ADD: return a + b;
    case VB_WQE_CALC_AND: return a & b;
    case VB_WQE_CALC_OR: return a | b;
    case VB_WQE_CALC_XOR: return a ^ b;
    case VB_WQE_CALC_MAX: return a > b ? a : b;
    default: return a < b ? a : b;
    }
}

static bool holds(const struct vb_stmt *s, uint64_t a, uint64_t b)
{
    uint64_t mask = s->bits == 64 ? UINT64_MAX : (1ull << s->bits) - 1;

    switch (s->compare) {
    case VB_EQ: return (a & mask) == (b & mask);
    case VB_NE: return (a & mask) != (b & mask);
    case VB_LT: return a < b;
    case VB_LE: return a <= b;
    case VB_GT: return a > b;
    default: return a >= b;
    }
}

static void run_list(struct vb_simflow *w, const struct vb_stmt *s);

// A variable by its handle; handles count from 1.
static uint64_t *var(struct vb_simflow *w, uint32_t handle)
{
    return &w->var[handle - 1];
}

static uint8_t *pointed_at(struct vb_simflow *w, uint32_t pointer, uint32_t bytes)
{
    uint64_t offset = *var(w, pointer) - VB_SIMFLOW_BASE;

    assert(offset <= VB_SIMFLOW_MEMORY - bytes);
    return w->memory + offset;
}

static void run_simple(struct vb_simflow *w, const struct vb_stmt *s)
{
    uint64_t loaded = 0;
    uint8_t *at;

    switch (s->kind) {
    case VB_STMT_SET: *var(w, s->to) = s->value; break;
    case VB_STMT_MOVE: *var(w, s->to) = *var(w, s->a); break;
    case VB_STMT_CALC: *var(w, s->to) = calc(s->op, *var(w, s->a), *var(w, s->b)); break;
    case VB_STMT_LOAD:
        at = pointed_at(w, s->a, s->bytes);
        for (uint32_t i = 0; i < s->bytes; i++)
            loaded = loaded << 8 | at[i];
        *var(w, s->to) = loaded;
        break;
    default:
        at = pointed_at(w, s->to, s->bytes);
        for (uint32_t i = 0; i < s->bytes; i++)
            at[i] = (uint8_t)(*var(w, s->a) >> 8 * (s->bytes - 1 - i));
        break;
    }
}

static void run_one(struct vb_simflow *w, const struct vb_stmt *s)
{
    switch (s->kind) {
    case VB_STMT_IF:
        run_list(w, holds(s, *var(w, s->a), s->b ? *var(w, s->b) : s->value) ? s->body : s->other);
        break;
    case VB_STMT_REPEAT:
        for (uint32_t i = 0; i < s->times && !w->broken; i++)
            run_list(w, s->body);
        w->broken = false;
        break;
    case VB_STMT_LOOP:
        for (; !w->broken; w->rounds++)
            run_list(w, s->body);
        w->broken = false;
        break;
    case VB_STMT_BREAK: w->broken = true; break;
    default: run_simple(w, s); break;
    }
}

static void run_list(struct vb_simflow *w, const struct vb_stmt *s)
{
    for (; s && !w->broken; s = s->next)
        run_one(w, s);
}

void vb_simflow_run(struct vb_simflow *w)
{
    for (uint32_t i = 0; i < w->f->var_count; i++)
        w->var[i] =
            w->f->var[i].points ? VB_SIMFLOW_BASE + w->f->var[i].of.offset : w->f->var[i].value;
    run_list(w, w->f->first);
}

// ---- random programs

struct maker {
    struct vb_simflow *w;
    struct vb_prng prng;
    struct vb_simflow_tally *tally;
    uint32_t left; // statements
};

static uint32_t draw(struct maker *k, uint32_t below)
{
    return (uint32_t)vb_prng_below(&k->prng, below);
}

// Few different values, so that conditions hold as often as not.
static uint64_t draw_value(struct maker *k)
{
    static const uint64_t some[] = {0, 1, 2, 0xff, 0x100, 0xffffffffffffull, 1ull << 48, ~0ull};
    return draw(k, 3) ? some[draw(k, 8)] : vb_prng_next(&k->prng);
}

static struct vb_var any(struct maker *k)
{
    return k->w->v[draw(k, VB_SIMFLOW_VARS)];
}

static void make_simple(struct maker *k)
{
    static const enum vb_wqe_calc op[] = {VB_WQE_CALC_ADD, VB_WQE_CALC_AND, VB_WQE_CALC_OR,
                                          VB_WQE_CALC_XOR, VB_WQE_CALC_MAX, VB_WQE_CALC_MIN};
    struct vb_flow *f = k->w->f;
    struct vb_chain_region memory = {1};

    switch (draw(k, 6)) {
    case 0: vb_flow_set(f, any(k), draw_value(k)); break;
    case 1: vb_flow_move(f, any(k), any(k)); break;
    case 2: vb_flow_calc_value(f, op[draw(k, 6)], any(k), any(k), draw_value(k)); break;
    case 3:
        vb_flow_load(f, any(k), memory, k->w->p[draw(k, VB_SIMFLOW_POINTERS)], 1 + draw(k, 8));
        k->tally->loads++;
        break;
    case 4:
        vb_flow_store(f, memory, k->w->p[draw(k, VB_SIMFLOW_POINTERS)], any(k), 1 + draw(k, 8));
        k->tally->stores++;
        break;
    default: vb_flow_calc(f, op[draw(k, 6)], any(k), any(k), any(k)); break;
    }
}

static void make_list(struct maker *k, uint32_t depth, bool in_loop);

static void make_if(struct maker *k, uint32_t depth, bool in_loop)
{
    enum vb_compare compare = (enum vb_compare)draw(k, 6);
    uint32_t bits = compare > VB_NE ? 64 : draw(k, 2) ? 48 : 1 + k->tally->next_width++ % 64;

    k->tally->compare[compare]++;
    k->tally->width[bits]++;
    if (draw(k, 2))
        vb_flow_if(k->w->f, any(k), compare, any(k), bits);
    else
        vb_flow_if_value(k->w->f, any(k), compare, draw_value(k), bits);
    make_list(k, depth + 1, in_loop);
    if (draw(k, 2)) {
        k->tally->others++;
        vb_flow_else(k->w->f);
        make_list(k, depth + 1, in_loop);
    }
    vb_flow_end(k->w->f);
}

static void make_list(struct maker *k, uint32_t depth, bool in_loop)
{
    uint32_t n = 1 + draw(k, 4);

    k->tally->depth[depth]++;
    for (uint32_t i = 0; i < n && k->left > 0; i++) {
        uint32_t kind = draw(k, 10);
        k->left--;
        if (kind < 3 && depth < VB_SIMFLOW_DEPTH_MAX) {
            make_if(k, depth, in_loop);
        } else if (kind == 3 && depth < 2) {
            vb_flow_repeat(k->w->f, 1 + draw(k, 3));
            make_list(k, depth + 1, true);
            vb_flow_end(k->w->f);
        } else if (kind == 4 && in_loop && depth > 1) {
            k->tally->breaks++;
            vb_flow_break(k->w->f);
        } else {
            make_simple(k);
        }
    }
}

// A loop that ends by its own count at the latest.
static void make_loop(struct maker *k)
{
    struct vb_flow *f = k->w->f;

    k->tally->loops++;
    vb_flow_loop(f);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, k->w->counter, k->w->counter, 1);
    vb_flow_if_value(f, k->w->counter, VB_GE, 1 + draw(k, 6), 64);
    vb_flow_break(f);
    vb_flow_end(f);
    make_list(k, 1, true);
    vb_flow_end(f);
}

struct vb_image *vb_simflow_make(struct vb_simflow *w, uint64_t seed,
                                 struct vb_simflow_tally *tally, char *error)
{
    struct vb_chain *c = vb_chain_begin("random");
    struct maker k = {.w = w, .prng = {.state = seed}, .tally = tally, .left = 14};
    struct vb_chain_region memory =
        vb_chain_region(c, "memory", VB_CHAIN_OWN, VB_SIMFLOW_MEMORY, true);

    memset(w, 0, sizeof *w);
    for (uint32_t i = 0; i < VB_SIMFLOW_MEMORY; i++)
        w->memory[i] = (uint8_t)vb_prng_next(&k.prng);
    vb_chain_put(c, vb_in(memory, 0), w->memory, VB_SIMFLOW_MEMORY);
    w->f = vb_flow_begin(c, "W");
    for (uint32_t i = 0; i < VB_SIMFLOW_VARS; i++)
        w->v[i] = vb_flow_var(w->f, draw_value(&k));
    for (uint32_t i = 0; i < VB_SIMFLOW_POINTERS; i++)
        w->p[i] = vb_flow_pointer(w->f, vb_in(memory, draw(&k, VB_SIMFLOW_MEMORY - 8)));
    w->counter = vb_flow_var(w->f, 0);
    if (draw(&k, 3) == 0)
        make_loop(&k);
    else
        make_list(&k, 0, false);
    vb_simflow_run(w);
    vb_flow_end_program(w->f);
    return vb_chain_finish(c, error);
}
