// SPDX-License-Identifier: Apache-2.0
// Programs as statements: writing them down.
#include "chain/flow.h"

#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vb_flow *vb_flow_begin(struct vb_chain *c, const char *queue)
{
    struct vb_flow *f = calloc(1, sizeof *f);
    char name[sizeof f->name + sizeof "_vars"];

    if (!f) {
        vb_build_fail(c, "no memory for the program");
        return NULL;
    }
    f->chain = c;
    snprintf(f->name, sizeof f->name, "%s", queue);
    f->queue = vb_chain_queue(c, queue, &(struct vb_chain_queue_opts){0});
    snprintf(name, sizeof name, "%s_vars", f->name);
    f->vars =
        vb_chain_region(c, name, VB_CHAIN_OWN, (uint64_t)VB_FLOW_VARS * VB_FLOW_VAR_BYTES, true);
    vb_flow_own(f, 0); // where answers go that nobody reads
    return f;
}

// ---- variables

uint32_t vb_flow_own(struct vb_flow *f, uint64_t value)
{
    if (f->var_count == VB_FLOW_VARS) {
        vb_build_fail(f->chain, "queue '%s': more than %d variables", f->name, VB_FLOW_VARS);
        return 1;
    }
    struct vb_flow_var *a = vb_build_more(f->chain, f->var, &f->var_count, sizeof *a);
    if (!a)
        return 1;
    f->var = a;
    a[f->var_count - 1].value = value;
    return f->var_count;
}

struct vb_var vb_flow_var(struct vb_flow *f, uint64_t value)
{
    return (struct vb_var){f ? vb_flow_own(f, value) : 0};
}

struct vb_var vb_flow_pointer(struct vb_flow *f, struct vb_place of)
{
    struct vb_var v = vb_flow_var(f, 0);
    if (v.id && !vb_build_failed(f->chain)) {
        f->var[v.id - 1].points = true;
        f->var[v.id - 1].of = of;
    }
    return v;
}

struct vb_place vb_flow_place(struct vb_flow *f, struct vb_var var)
{
    return vb_in(f->vars, (uint64_t)(var.id - 1) * VB_FLOW_VAR_BYTES);
}

// ---- statements

static bool var_is_known(struct vb_flow *f, uint32_t id)
{
    if (id == 0 || id > f->var_count)
        return vb_build_fail(
            f->chain, "queue '%s': a statement names a variable that does not exist", f->name);
    return true;
}

static void append(struct vb_stmt **first, struct vb_stmt **last, struct vb_stmt *s)
{
    if (*last)
        (*last)->next = s;
    else
        *first = s;
    *last = s;
}

static struct vb_stmt *add(struct vb_flow *f, const struct vb_stmt *like)
{
    if (!f || vb_build_failed(f->chain))
        return NULL;
    if (f->last && f->last->kind == VB_STMT_LOOP && !f->open) {
        vb_build_fail(f->chain, "queue '%s': nothing comes after a loop that has no end", f->name);
        return NULL;
    }
    struct vb_stmt *s = malloc(sizeof *s);
    if (!s) {
        vb_build_fail(f->chain, "no memory for the program");
        return NULL;
    }
    *s = *like;
    s->parent = f->open;
    if (!f->open)
        append(&f->first, &f->last, s);
    else if (f->open->in_else)
        append(&f->open->other, &f->open->other_last, s);
    else
        append(&f->open->body, &f->open->body_last, s);
    return s;
}

void vb_flow_set(struct vb_flow *f, struct vb_var to, uint64_t value)
{
    if (f && var_is_known(f, to.id))
        add(f, &(struct vb_stmt){.kind = VB_STMT_SET, .to = to.id, .value = value});
}

void vb_flow_move(struct vb_flow *f, struct vb_var to, struct vb_var from)
{
    if (f && var_is_known(f, to.id) && var_is_known(f, from.id))
        add(f, &(struct vb_stmt){.kind = VB_STMT_MOVE, .to = to.id, .a = from.id});
}

void vb_flow_calc(struct vb_flow *f, enum vb_wqe_calc op, struct vb_var to, struct vb_var a,
                  struct vb_var b)
{
    if (f && var_is_known(f, to.id) && var_is_known(f, a.id) && var_is_known(f, b.id))
        add(f,
            &(struct vb_stmt){.kind = VB_STMT_CALC, .op = op, .to = to.id, .a = a.id, .b = b.id});
}

void vb_flow_calc_value(struct vb_flow *f, enum vb_wqe_calc op, struct vb_var to, struct vb_var a,
                        uint64_t b)
{
    if (f)
        vb_flow_calc(f, op, to, a, vb_flow_var(f, b));
}

static bool access_is_right(struct vb_flow *f, struct vb_chain_region region, uint32_t bytes)
{
    if (region.id == 0 || region.id > f->chain->regions)
        return vb_build_fail(f->chain, "queue '%s': a statement names a region that does not exist",
                             f->name);
    if (bytes < 1 || bytes > 8)
        return vb_build_fail(f->chain, "queue '%s': 1 to 8 bytes are loaded or stored, not %u",
                             f->name, bytes);
    return true;
}

void vb_flow_load(struct vb_flow *f, struct vb_var to, struct vb_chain_region region,
                  struct vb_var at, uint32_t bytes)
{
    if (f && var_is_known(f, to.id) && var_is_known(f, at.id) && access_is_right(f, region, bytes))
        add(f, &(struct vb_stmt){.kind = VB_STMT_LOAD,
                                 .to = to.id,
                                 .a = at.id,
                                 .region = region.id,
                                 .bytes = bytes});
}

void vb_flow_store(struct vb_flow *f, struct vb_chain_region region, struct vb_var at,
                   struct vb_var from, uint32_t bytes)
{
    if (f && var_is_known(f, from.id) && var_is_known(f, at.id) &&
        access_is_right(f, region, bytes))
        add(f, &(struct vb_stmt){.kind = VB_STMT_STORE,
                                 .to = at.id,
                                 .a = from.id,
                                 .region = region.id,
                                 .bytes = bytes});
}

// ---- structure

static void open_if(struct vb_flow *f, const struct vb_stmt *like)
{
    if (like->bits < 1 || like->bits > 64) {
        vb_build_fail(f->chain, "queue '%s': 1 to 64 bits are compared, not %u", f->name,
                      like->bits);
        return;
    }
    if (like->compare > VB_NE && like->bits != 64) {
        vb_build_fail(f->chain, "queue '%s': less and greater compare all 64 bits", f->name);
        return;
    }
    struct vb_stmt *s = add(f, like);
    if (s)
        f->open = s;
}

void vb_flow_if(struct vb_flow *f, struct vb_var a, enum vb_compare compare, struct vb_var b,
                uint32_t bits)
{
    if (f && var_is_known(f, a.id) && var_is_known(f, b.id))
        open_if(f, &(struct vb_stmt){
                       .kind = VB_STMT_IF, .compare = compare, .a = a.id, .b = b.id, .bits = bits});
}

void vb_flow_if_value(struct vb_flow *f, struct vb_var a, enum vb_compare compare, uint64_t b,
                      uint32_t bits)
{
    if (f && var_is_known(f, a.id))
        open_if(f,
                &(struct vb_stmt){
                    .kind = VB_STMT_IF, .compare = compare, .a = a.id, .value = b, .bits = bits});
}

void vb_flow_else(struct vb_flow *f)
{
    if (!f || vb_build_failed(f->chain))
        return;
    if (!f->open || f->open->kind != VB_STMT_IF || f->open->in_else)
        vb_build_fail(f->chain, "queue '%s': an else without its if", f->name);
    else
        f->open->in_else = true;
}

void vb_flow_repeat(struct vb_flow *f, uint32_t times)
{
    struct vb_stmt *s = add(f, &(struct vb_stmt){.kind = VB_STMT_REPEAT, .times = times});
    if (s)
        f->open = s;
}

void vb_flow_loop(struct vb_flow *f)
{
    if (f && f->open) {
        vb_build_fail(f->chain, "queue '%s': a loop without end cannot be within another statement",
                      f->name);
        return;
    }
    struct vb_stmt *s = add(f, &(struct vb_stmt){.kind = VB_STMT_LOOP});
    if (s)
        f->open = s;
}

void vb_flow_break(struct vb_flow *f)
{
    const struct vb_stmt *s = f ? f->open : NULL;

    while (s && s->kind == VB_STMT_IF)
        s = s->parent;
    if (f && !s)
        vb_build_fail(f->chain, "queue '%s': a break outside of any repeat or loop", f->name);
    else
        add(f, &(struct vb_stmt){.kind = VB_STMT_BREAK});
}

void vb_flow_end(struct vb_flow *f)
{
    if (!f || vb_build_failed(f->chain))
        return;
    if (!f->open)
        vb_build_fail(f->chain, "queue '%s': an end without its beginning", f->name);
    else
        f->open = f->open->parent;
}

// ---- the end

static void free_list(struct vb_stmt *s)
{
    for (struct vb_stmt *next; s; s = next) {
        next = s->next;
        free_list(s->body);
        free_list(s->other);
        free(s);
    }
}

static void put_values(struct vb_flow *f)
{
    f->chain->region[f->vars.id - 1].image.bytes = (uint64_t)f->var_count * VB_FLOW_VAR_BYTES;
    for (uint32_t i = 0; i < f->var_count; i++) {
        struct vb_place at = vb_flow_place(f, (struct vb_var){i + 1});
        uint8_t bytes[8];
        vb_put_be64(bytes, f->var[i].value);
        if (f->var[i].points)
            vb_chain_put_address(f->chain, at, f->var[i].of);
        else
            vb_chain_put(f->chain, at, bytes, sizeof bytes);
    }
}

void vb_flow_end_program(struct vb_flow *f)
{
    if (!f)
        return;
    if (f->open)
        vb_build_fail(f->chain, "queue '%s': an if, repeat or loop has no end", f->name);
    if (!vb_build_failed(f->chain))
        vb_flow_emit(f);
    if (!vb_build_failed(f->chain))
        put_values(f);
    free_list(f->first);
    free(f->var);
    free(f);
}
