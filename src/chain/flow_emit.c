// SPDX-License-Identifier: Apache-2.0
// Statements into entries.
//
// Every condition is evaluated, whatever the outcome of those around it, and only what it guards is
// skipped: so the number of completions and of blocks does not depend on the way that a program
// takes, and all indices are known. An outer condition becomes a variable, which inner ones
// compare, too. What is guarded completes nothing and waits for nothing.
//
//      READ  operand -> V        V      NOP: one block long, or two if the condition holds
//      CAS   V                          NOP that covers the guarded entries
//      WAIT  for the CAS                guarded entries
//      OPEN  V and what follows
#include "chain/flow.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    SEGS = 4, // of a block
    GROUP_MAX = 13,
    CHUNKS_MAX = 4, // a NOP of one block has so many lengths: each says how many chunks were equal
    CHUNK_BYTES = 6,
    CONTEXTS_MAX = 64,
    TEMPS = 8, // more than one statement uses
};

// A part of a condition: bytes of a variable, and what they must be.
struct chunk {
    struct vb_place from;
    uint32_t bytes;
    uint8_t expect[CHUNK_BYTES];
};

struct condition {
    struct chunk chunk[CHUNKS_MAX];
    uint32_t chunks;
};

// An entry that a statement becomes, and what it does to variables.
struct micro {
    struct vb_chain_op op;
    uint32_t gathers[2]; // variables that it reads at the near side
    uint32_t needs;      // a variable that its address comes from: a patch goes before the guard
    uint32_t writes;     // a variable, or 0
};

struct emit {
    struct vb_flow *f;
    struct vb_chain *c;
    struct vb_chain_queue q;
    bool circular;
    struct vb_chain_label next_open, last_open; // the next opening entry's label; the last one's
    struct micro group[GROUP_MAX];              // guarded by the innermost context
    uint32_t grouped;
    uint32_t context[CONTEXTS_MAX]; // variables that are 1 where statements are executed
    uint32_t contexts;
    uint32_t constant[VB_FLOW_VARS], constants;
    uint32_t temp[TEMPS], temps;
    uint32_t holds[CONTEXTS_MAX + 1], not [CONTEXTS_MAX + 1], alive[CONTEXTS_MAX + 1]; // by depth
    uint32_t alive_at; // of the innermost repeat or loop: its own context, counted from 1
    bool unsettled[VB_FLOW_VARS]; // written by a WRITE that may not be done yet
    bool guarded[VB_FLOW_VARS];   // and that may have been skipped
    struct vb_chain_label writer[VB_FLOW_VARS];
};

static uint32_t context(const struct emit *e)
{
    return e->contexts ? e->context[e->contexts - 1] : 0;
}

static void push(struct emit *e, uint32_t var)
{
    if (e->contexts == CONTEXTS_MAX)
        vb_build_fail(e->c, "queue '%s': statements are nested deeper than %d", e->f->name,
                      CONTEXTS_MAX);
    else
        e->context[e->contexts++] = var;
}

static struct vb_place var_at(const struct emit *e, uint32_t var, uint64_t offset)
{
    struct vb_place p = vb_flow_place(e->f, (struct vb_var){var});
    p.offset += offset;
    return p;
}

// ---- variables of the program's own

// Constants live as variables: inline bytes of a grouped entry would have to be kept.
static uint32_t constant(struct emit *e, uint64_t value)
{
    for (uint32_t i = 0; i < e->constants; i++)
        if (e->f->var[e->constant[i] - 1].value == value)
            return e->constant[i];
    uint32_t var = vb_flow_own(e->f, value);
    if (!vb_build_failed(e->c))
        e->constant[e->constants++] = var;
    return var;
}

// A variable for the length of a statement, or of a body at this depth: what comes after it uses
// the same.
static uint32_t reuse(struct emit *e, uint32_t *slot)
{
    if (*slot == 0)
        *slot = vb_flow_own(e->f, 0);
    return *slot;
}

static uint32_t temporary(struct emit *e)
{
    return reuse(e, &e->temp[e->temps++ % TEMPS]);
}

// ---- order

static void settle(struct emit *e)
{
    memset(e->unsettled, 0, sizeof e->unsettled);
}

// Waits until the entry is done, and lets the rest be fetched.
static void barrier(struct emit *e, struct vb_chain_label after)
{
    struct vb_chain_label next = vb_chain_label(e->c, NULL);

    vb_chain_wait(e->c, e->q, after);
    if (e->next_open.id)
        vb_chain_here(e->c, e->next_open);
    e->last_open = vb_chain_open(e->c, e->q, next);
    e->next_open = next;
    settle(e);
}

// Makes sure that what the variable was written by is done.
static void await(struct emit *e, uint32_t var)
{
    if (var == 0 || !e->unsettled[var - 1])
        return;
    struct vb_chain_label done = e->writer[var - 1];
    if (e->guarded[var - 1]) // it may not have been executed: what comes after it tells
        done = vb_chain_op(e->c, e->q, &(struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = SEGS});
    vb_chain_wait(e->c, e->q, done);
    for (uint32_t i = 0; i < VB_FLOW_VARS; i++) // labels count up: what comes later is not done
        e->unsettled[i] = e->unsettled[i] && e->writer[i].id > done.id;
}

static void wrote(struct emit *e, const struct micro *m, struct vb_chain_label by, bool guarded)
{
    if (m->writes == 0)
        return;
    e->unsettled[m->writes - 1] = m->op.opcode == VB_WQE_WRITE;
    e->guarded[m->writes - 1] = guarded;
    e->writer[m->writes - 1] = by;
}

// ---- conditions

static struct vb_part operand_part(struct vb_chain_label v, uint32_t at, uint32_t len)
{
    return (struct vb_part){vb_at_byte(v, VB_AT_CTRL, at), len};
}

// The control segment as the number that a CAS compares.
static uint64_t control_word(const uint8_t expect[CHUNK_BYTES], uint8_t ds)
{
    const uint8_t ctrl[8] = {expect[0], expect[1], expect[2], VB_WQE_NOP,
                             expect[3], expect[4], expect[5], ds};
    uint64_t word = 0;

    for (int i = 7; i >= 0; i--)
        word = word << 8 | ctrl[i];
    return word;
}

static struct vb_chain_label scratch_cas(struct emit *e, struct vb_chain_label v, uint64_t compare,
                                         uint64_t swap)
{
    static const uint32_t scratch = 1; // the first variable is nobody's
    return vb_chain_op(e->c, e->q,
                       &(struct vb_chain_op){.opcode = VB_WQE_ATOMIC_CS,
                                             .flags = VB_CHAIN_FENCE,
                                             .remote = vb_at(v, VB_AT_CTRL),
                                             .compare = compare,
                                             .swap_add = swap,
                                             .parts = 1,
                                             .part = {{var_at(e, scratch, 0), 8}}});
}

// Compares chunk after chunk in the control segment of `v`, whose length says how far it went; at
// last it covers `skip` blocks behind it. Returns the last comparison.
static struct vb_chain_label evaluate(struct emit *e, const struct condition *cond,
                                      struct vb_chain_label v, uint32_t skip)
{
    static const uint8_t nothing[CHUNK_BYTES];
    struct vb_chain_label cas = {0};

    for (uint32_t i = 0; i < cond->chunks; i++) {
        const struct chunk *k = &cond->chunk[i];
        uint32_t first = k->bytes < 3 ? k->bytes : 3;
        bool last = i + 1 == cond->chunks;
        vb_chain_op(e->c, e->q,
                    &(struct vb_chain_op){
                        .opcode = VB_WQE_READ,
                        .flags = VB_CHAIN_FENCE,
                        .remote = k->from,
                        .parts = k->bytes > 3 ? 2 : 1,
                        .part = {operand_part(v, 0, first), operand_part(v, 4, k->bytes - first)}});
        cas = scratch_cas(e, v, control_word(k->expect, (uint8_t)(1 + i)),
                          control_word(nothing, (uint8_t)(last ? SEGS * (1 + skip) : 2 + i)));
    }
    return cas;
}

static struct vb_chain_label add_victim(struct emit *e, struct vb_chain_label v)
{
    vb_chain_op(e->c, e->q, &(struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = 1, .label = v});
    if (e->circular)
        vb_chain_restore(e->c, vb_at(v, VB_AT_CTRL), 8);
    return v;
}

static void cover(struct emit *e, uint32_t blocks)
{
    vb_chain_op(e->c, e->q,
                &(struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = (uint8_t)(SEGS * (1 + blocks))});
}

static void add_chunk(struct condition *cond, struct vb_place from, uint32_t bytes,
                      const uint8_t *expect)
{
    struct chunk *k = &cond->chunk[cond->chunks++];

    *k = (struct chunk){.from = from, .bytes = bytes};
    memcpy(k->expect, expect, bytes);
}

// The variable's lowest bytes are as the value's.
static void compare_bytes(struct emit *e, struct condition *cond, uint32_t var, uint32_t bytes,
                          uint64_t value)
{
    uint8_t be[8];
    uint32_t low = bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES;

    vb_put_be64(be, value);
    add_chunk(cond, var_at(e, var, 8 - low), low, be + 8 - low);
    if (bytes > low)
        add_chunk(cond, var_at(e, var, 8 - bytes), bytes - low, be + 8 - bytes);
}

static void in_context(struct emit *e, struct condition *cond)
{
    if (context(e))
        compare_bytes(e, cond, context(e), 1, 1);
}

// ---- groups

static void patch(struct emit *e, const struct micro *m)
{
    bool loads = m->op.opcode == VB_WQE_READ && m->writes;
    struct vb_place field =
        loads ? vb_at(m->op.label, VB_AT_RADDR) : vb_at(m->op.label, VB_AT_ADDR);

    vb_chain_op(e->c, e->q,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .flags = VB_CHAIN_FENCE,
                                      .remote = var_at(e, m->needs, 0),
                                      .parts = 1,
                                      .part = {{field, 8}}});
}

static void emit_group(struct emit *e, bool guarded)
{
    for (uint32_t i = 0; i < e->grouped; i++) {
        struct vb_chain_label by = vb_chain_op(e->c, e->q, &e->group[i].op);
        wrote(e, &e->group[i], by, guarded);
    }
    e->grouped = 0;
}

// What the group needs before it can be executed, whether or not it is.
static void prepare_group(struct emit *e)
{
    for (uint32_t i = 0; i < e->grouped; i++) {
        if (e->group[i].needs)
            patch(e, &e->group[i]);
        await(e, e->group[i].gathers[0]);
        await(e, e->group[i].gathers[1]);
    }
}

// Executes the group if the condition holds.
static void guard_group(struct emit *e, const struct condition *cond)
{
    struct vb_chain_label v = vb_chain_label(e->c, NULL);

    prepare_group(e);
    struct vb_chain_label cas = evaluate(e, cond, v, 1);
    barrier(e, cas);
    add_victim(e, v);
    cover(e, e->grouped);
    emit_group(e, true);
}

static void flush(struct emit *e)
{
    struct condition cond = {.chunks = 0};

    if (e->grouped == 0)
        return;
    in_context(e, &cond);
    guard_group(e, &cond);
}

static bool touches(const struct micro *m, uint32_t var)
{
    return var && m->writes == var;
}

// Whether the entry depends on one of the group, which is not done before the group is.
static bool depends(const struct emit *e, const struct micro *m)
{
    for (uint32_t i = 0; i < e->grouped; i++) {
        const struct micro *g = &e->group[i];
        if (touches(g, m->needs) || (g->op.opcode == VB_WQE_WRITE &&
                                     (touches(g, m->gathers[0]) || touches(g, m->gathers[1]))))
            return true;
    }
    return false;
}

// An entry that is executed in any case: it need not wait for others of a group.
static void emit_now(struct emit *e, const struct micro *m)
{
    await(e, m->gathers[0]);
    await(e, m->gathers[1]);
    if (m->needs) {
        patch(e, m);
        // The patch is the newest entry of the queue.
        barrier(e, e->c->queue[e->q.id - 1].last->op.label);
    }
    wrote(e, m, vb_chain_op(e->c, e->q, &m->op), false);
}

static void add_micro(struct emit *e, const struct micro *m)
{
    if (!context(e)) {
        emit_now(e, m);
        return;
    }
    if (e->grouped == GROUP_MAX || depends(e, m))
        flush(e);
    e->group[e->grouped++] = *m;
}

// ---- simple statements

static struct micro set_micro(const struct emit *e, uint32_t to, uint64_t value, uint8_t bytes[8])
{
    vb_put_be64(bytes, value);
    return (struct micro){.op = {.opcode = VB_WQE_WRITE,
                                 .flags = VB_CHAIN_FENCE,
                                 .remote = var_at(e, to, 0),
                                 .data = bytes,
                                 .len = 8},
                          .writes = to};
}

static struct micro calc_micro(const struct emit *e, enum vb_wqe_calc op, uint32_t to, uint32_t a,
                               uint32_t b)
{
    return (struct micro){.op = {.opcode = VB_WQE_WRITE,
                                 .calc = (uint8_t)op,
                                 .flags = VB_CHAIN_FENCE,
                                 .remote = var_at(e, to, 0),
                                 .parts = 2,
                                 .part = {{var_at(e, a, 0), 16}, {var_at(e, b, 0), 16}}},
                          .gathers = {a, b},
                          .writes = to};
}

static struct micro move_micro(const struct emit *e, uint32_t to, uint32_t from)
{
    return (struct micro){.op = {.opcode = VB_WQE_READ,
                                 .flags = VB_CHAIN_FENCE,
                                 .remote = var_at(e, from, 0),
                                 .parts = 1,
                                 .part = {{var_at(e, to, 0), 8}}},
                          .writes = to};
}

static void emit_set(struct emit *e, uint32_t to, uint64_t value)
{
    uint8_t bytes[8];

    if (context(e)) {
        struct micro m = move_micro(e, to, constant(e, value));
        add_micro(e, &m);
    } else {
        struct micro m = set_micro(e, to, value, bytes);
        add_micro(e, &m);
    }
}

static void emit_load(struct emit *e, const struct vb_stmt *s)
{
    struct micro m = {.op = {.opcode = VB_WQE_READ,
                             .flags = VB_CHAIN_FENCE,
                             .remote = vb_in((struct vb_chain_region){s->region}, 0),
                             .label = vb_chain_label(e->c, NULL),
                             .parts = 1,
                             .part = {{var_at(e, s->to, 8 - s->bytes), s->bytes}}},
                      .needs = s->a,
                      .writes = s->to};

    if (s->bytes < 8 && s->a != s->to) {
        emit_set(e, s->to, 0);
    } else if (s->bytes < 8) { // what it is loaded over is where it is loaded from
        uint32_t pointer = temporary(e);
        struct micro copy = move_micro(e, pointer, s->a);
        add_micro(e, &copy);
        emit_set(e, s->to, 0);
        m.needs = pointer;
    }
    add_micro(e, &m);
}

static void emit_store(struct emit *e, const struct vb_stmt *s)
{
    struct micro m = {.op = {.opcode = VB_WQE_READ,
                             .flags = VB_CHAIN_FENCE,
                             .remote = var_at(e, s->a, 8 - s->bytes),
                             .label = vb_chain_label(e->c, NULL),
                             .parts = 1,
                             .part = {{vb_in((struct vb_chain_region){s->region}, 0), s->bytes}}},
                      .needs = s->to};
    add_micro(e, &m);
}

// Ends every context up to the loop's own.
static void emit_break(struct emit *e)
{
    uint32_t none = constant(e, 0);

    if (e->grouped + e->contexts - e->alive_at + 1 > GROUP_MAX)
        flush(e);
    for (uint32_t i = e->alive_at; i <= e->contexts; i++) {
        struct micro m = move_micro(e, e->context[i - 1], none);
        if (e->grouped == GROUP_MAX) // the group's own condition is among those that end
            vb_build_fail(e->c, "queue '%s': a break out of too many conditions", e->f->name);
        else
            e->group[e->grouped++] = m;
    }
    flush(e);
}

// ---- structure

static void emit_list(struct emit *e, const struct vb_stmt *s);

// Of a condition that holds when the variable's lowest bits are the value's.
static void compare_bits(struct emit *e, struct condition *cond, uint32_t var, uint32_t bits,
                         uint64_t value)
{
    if (bits % 8) {
        uint64_t mask = (1ull << bits) - 1;
        uint32_t masked = temporary(e);
        struct micro m = calc_micro(e, VB_WQE_CALC_AND, masked, var, constant(e, mask));
        emit_now(e, &m);
        var = masked;
        value &= mask;
    }
    compare_bytes(e, cond, var, (bits + 7) / 8, value);
}

static uint32_t calc_into_new(struct emit *e, enum vb_wqe_calc op, uint32_t a, uint32_t b)
{
    uint32_t to = temporary(e);
    struct micro m = calc_micro(e, op, to, a, b);
    emit_now(e, &m);
    return to;
}

// Makes the condition from one that holds when something is equal. Returns whether that is when the
// statement's own does not hold.
static bool make_condition(struct emit *e, const struct vb_stmt *s, struct condition *cond)
{
    bool ordered = s->compare > VB_NE;
    uint32_t b = s->b;

    if (!b && ordered)
        b = constant(e, s->value);
    if (ordered) {
        // a <= b: the greater of both is b; a >= b: it is a.
        bool upwards = s->compare == VB_LE || s->compare == VB_GT;
        uint32_t greater = calc_into_new(e, VB_WQE_CALC_MAX, s->a, b);
        uint32_t differs = calc_into_new(e, VB_WQE_CALC_XOR, greater, upwards ? b : s->a);
        compare_bits(e, cond, differs, 64, 0);
        return s->compare == VB_LT || s->compare == VB_GT;
    }
    if (b)
        compare_bits(e, cond, calc_into_new(e, VB_WQE_CALC_XOR, s->a, b), s->bits, 0);
    else
        compare_bits(e, cond, s->a, s->bits, s->value);
    return s->compare == VB_NE;
}

static void emit_branch(struct emit *e, uint32_t when, const struct vb_stmt *body)
{
    uint32_t before = e->contexts;

    if (!body)
        return;
    push(e, when);
    emit_list(e, body);
    flush(e);
    e->contexts = before;
}

// A few sets, moves and calculations that do not depend on each other can be guarded at once.
static bool is_simple(const struct vb_stmt *body)
{
    uint32_t n = 0;

    for (const struct vb_stmt *s = body; s; s = s->next, n++) {
        if (s->kind != VB_STMT_SET && s->kind != VB_STMT_MOVE && s->kind != VB_STMT_CALC)
            return false;
        for (const struct vb_stmt *t = body; t != s; t = t->next)
            if (t->kind == VB_STMT_CALC && s->kind == VB_STMT_CALC &&
                (s->a == t->to || s->b == t->to))
                return false;
    }
    return n > 0 && n <= GROUP_MAX;
}

static void group_simple(struct emit *e, const struct vb_stmt *body)
{
    for (const struct vb_stmt *s = body; s; s = s->next) {
        struct micro m = s->kind == VB_STMT_CALC   ? calc_micro(e, s->op, s->to, s->a, s->b)
                         : s->kind == VB_STMT_MOVE ? move_micro(e, s->to, s->a)
                                                   : move_micro(e, s->to, constant(e, s->value));
        e->group[e->grouped++] = m;
    }
}

static void emit_if(struct emit *e, const struct vb_stmt *s)
{
    struct condition cond = {.chunks = 0};

    flush(e);
    in_context(e, &cond);
    bool turned = make_condition(e, s, &cond);
    const struct vb_stmt *then = turned ? s->other : s->body, *other = turned ? s->body : s->other;
    if (!other && is_simple(then)) {
        group_simple(e, then);
        guard_group(e, &cond);
        return;
    }
    uint32_t holds = reuse(e, &e->holds[e->contexts]), not = 0;
    struct micro clear = move_micro(e, holds, constant(e, 0));
    struct micro set = move_micro(e, holds, constant(e, 1));
    emit_now(e, &clear);
    e->group[e->grouped++] = set;
    guard_group(e, &cond);
    if (other) {
        not = reuse(e, &e->not [e->contexts]);
        uint32_t all = context(e) ? context(e) : constant(e, 1);
        struct micro rest = calc_micro(e, VB_WQE_CALC_XOR, not, all, holds);
        emit_now(e, &rest);
    }
    emit_branch(e, holds, then);
    emit_branch(e, not, other);
}

static bool has_break(const struct vb_stmt *body)
{
    for (const struct vb_stmt *s = body; s; s = s->next)
        if (s->kind == VB_STMT_BREAK ||
            (s->kind == VB_STMT_IF && (has_break(s->body) || has_break(s->other))))
            return true;
    return false;
}

static void emit_repeat(struct emit *e, const struct vb_stmt *s)
{
    uint32_t before = e->contexts, alive_before = e->alive_at;

    flush(e);
    if (has_break(s->body)) {
        uint32_t alive = reuse(e, &e->alive[e->contexts]);
        struct micro m = move_micro(e, alive, context(e) ? context(e) : constant(e, 1));
        emit_now(e, &m);
        push(e, alive);
        e->alive_at = e->contexts;
    }
    for (uint32_t i = 0; i < s->times; i++)
        emit_list(e, s->body);
    flush(e);
    e->contexts = before;
    e->alive_at = alive_before;
}

// Whoever has left the loop stops at the beginning of the next round.
static void emit_halt(struct emit *e, uint32_t alive)
{
    struct condition cond = {.chunks = 0};
    struct vb_chain_label v = vb_chain_label(e->c, NULL);

    compare_bytes(e, &cond, alive, 1, 1);
    barrier(e, evaluate(e, &cond, v, 1));
    add_victim(e, v);
    vb_build_insert(e->c, e->q.id, NULL,
                    &(struct vb_item){.kind = VB_ITEM_HALT,
                                      .op = {.opcode = VB_WQE_WAIT},
                                      .slot = e->c->queue[e->q.id - 1].slots});
}

static void end_slot(struct emit *e)
{
    if (e->last_open.id && !vb_build_failed(e->c))
        e->c->label[e->last_open.id - 1].item->target = VB_BUILD_REST;
    e->next_open.id = e->last_open.id = 0;
}

static void emit_loop(struct emit *e, const struct vb_stmt *s)
{
    uint32_t alive = has_break(s->body) ? vb_flow_own(e->f, 1) : 0;

    e->circular = true;
    for (int slot = 0; slot < 2; slot++) {
        vb_chain_slot(e->c, e->q);
        settle(e);
        if (alive) {
            emit_halt(e, alive);
            push(e, alive);
            e->alive_at = e->contexts;
        }
        emit_list(e, s->body);
        flush(e);
        e->contexts = 0;
        end_slot(e);
    }
}

static void emit_simple(struct emit *e, const struct vb_stmt *s)
{
    struct micro m;

    switch (s->kind) {
    case VB_STMT_SET: emit_set(e, s->to, s->value); return;
    case VB_STMT_MOVE: m = move_micro(e, s->to, s->a); break;
    default: m = calc_micro(e, s->op, s->to, s->a, s->b);
    }
    add_micro(e, &m);
}

static void emit_list(struct emit *e, const struct vb_stmt *s)
{
    for (; s && !vb_build_failed(e->c); s = s->next) {
        switch (s->kind) {
        case VB_STMT_LOAD: emit_load(e, s); break;
        case VB_STMT_STORE: emit_store(e, s); break;
        case VB_STMT_IF: emit_if(e, s); break;
        case VB_STMT_REPEAT: emit_repeat(e, s); break;
        case VB_STMT_LOOP: emit_loop(e, s); break;
        case VB_STMT_BREAK: emit_break(e); break;
        default: emit_simple(e, s);
        }
    }
}

// Without a loop the program runs once: what comes before the first opening entry may run at once.
static void open_start(struct emit *e)
{
    struct vb_build_queue *q = &e->c->queue[e->q.id - 1];
    uint32_t n = 0;

    if (e->next_open.id)
        vb_chain_here(e->c, e->next_open);
    vb_chain_op(e->c, e->q, &(struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = SEGS});
    for (const struct vb_item *item = q->first; item; item = item->next) {
        n++;
        if (item->kind == VB_ITEM_OPEN)
            break;
    }
    q->opts.open = n;
}

void vb_flow_emit(struct vb_flow *f)
{
    struct emit *e = calloc(1, sizeof *e);

    if (!e) {
        vb_build_fail(f->chain, "no memory for the program");
        return;
    }
    e->f = f;
    e->c = f->chain;
    e->q = f->queue;
    if (f->first && f->first->next && f->last->kind == VB_STMT_LOOP)
        vb_build_fail(f->chain,
                      "queue '%s': a loop without end is the only statement; give the "
                      "variables their first values instead",
                      f->name);
    else
        emit_list(e, f->first);
    if (!e->circular && !vb_build_failed(f->chain))
        open_start(e);
    free(e);
}
