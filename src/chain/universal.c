// SPDX-License-Identifier: Apache-2.0
// A universal machine: a Turing machine whose table and tape are data.
//
// Two slots take turns, a step each. The registers are fields of the entries that use them: the
// head's address is that of `cell`, which reads the tape; the state is the address of `rule`, the
// first of the state's rules, to which the symbol is added. What the rule says about the next step
// goes into the other slot's entries.
//
//      halt    NOP, or a WAIT that never ends
//      cell    READ  symbol under the head -> operand
//              READ  the head's address    -> rule: where it writes
//              CALC  rule += operand
//              WAIT, OPEN the rest
//      rule    READ  next -> rule', move -> operand, symbol -> tape, halts -> halt'
//              CALC  cell' = cell + operand
//              CAS   halt'
//              the next slot's counters; WAIT, OPEN
#include "verbena/offload.h"

#include "chain/builder.h"

#include <stdio.h>

static_assert(sizeof(struct vb_universal_rule) == 24, "a rule has no holes");

enum {
    SLOTS = 2,
    CELL_BYTES = 2,
    // Of the region "registers": a record with the symbol, one with the move, and what nobody
    // reads.
    SYMBOL_AT = 0,
    MOVE_AT = 16,
    OLD_AT = 32,
    REGISTERS = 40,
    HALTS = 1,
};

struct machine {
    struct vb_chain *c;
    struct vb_chain_queue q;
    struct vb_chain_region table, tape, registers;
    uint64_t head;
    struct vb_chain_label halt[SLOTS], cell[SLOTS], rule[SLOTS];
};

static struct vb_chain_label name(struct machine *m, const char *what, uint32_t n)
{
    char text[VB_IMAGE_NAME];
    snprintf(text, sizeof text, "%s%u", what, n);
    return vb_chain_label(m->c, text);
}

// Decided by the step before. Once awake it stays so: there is no next round.
static void add_halt(struct machine *m, uint32_t s)
{
    if (!vb_build_failed(m->c))
        vb_build_insert(m->c, m->q.id, NULL,
                        &(struct vb_item){.kind = VB_ITEM_HALT,
                                          .op = {.opcode = VB_WQE_WAIT, .label = m->halt[s]},
                                          .slot = s + 1,
                                          .sleeps = true});
}

// to = a + b, of records.
static struct vb_chain_label add_sum(struct machine *m, struct vb_place to, struct vb_place a,
                                     uint64_t b)
{
    return vb_chain_op(m->c, m->q,
                       &(struct vb_chain_op){.opcode = VB_WQE_WRITE,
                                             .calc = VB_WQE_CALC_ADD,
                                             .flags = VB_CHAIN_FENCE,
                                             .remote = to,
                                             .parts = 2,
                                             .part = {{a, 16}, {vb_in(m->registers, b), 16}}});
}

static void add_fetch(struct machine *m, uint32_t s)
{
    struct vb_place rule = vb_at(m->rule[s], VB_AT_REMOTE);

    vb_chain_op(m->c, m->q,
                &(struct vb_chain_op){
                    .opcode = VB_WQE_READ,
                    .label = m->cell[s],
                    .remote = vb_in(m->tape, m->head * CELL_BYTES),
                    .parts = 1,
                    .part = {{vb_in(m->registers, SYMBOL_AT + 8 - CELL_BYTES), CELL_BYTES}}});
    vb_chain_op(m->c, m->q,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .remote = vb_at(m->cell[s], VB_AT_RADDR),
                                      .parts = 1,
                                      .part = {{vb_at_n(m->rule[s], VB_AT_ADDR, 2, 0), 8}}});
    vb_chain_wait(m->c, m->q, add_sum(m, rule, rule, SYMBOL_AT));
    vb_chain_open_rest(m->c, m->q);
}

static void add_rule(struct machine *m, uint32_t s)
{
    uint32_t other = 1 - s;

    vb_chain_op(m->c, m->q,
                &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                      .label = m->rule[s],
                                      .remote = vb_in(m->table, 0),
                                      .parts = 5,
                                      .part = {{vb_at(m->rule[other], VB_AT_RADDR), 8},
                                               {vb_in(m->registers, MOVE_AT), 8},
                                               {vb_in(m->tape, 0), CELL_BYTES},
                                               vb_operand(m->halt[other], 0),
                                               vb_operand(m->halt[other], 1)}});
    add_sum(m, vb_at(m->cell[other], VB_AT_REMOTE), vb_at(m->cell[s], VB_AT_REMOTE), MOVE_AT);
    vb_chain_wake(m->c, m->q, m->halt[other], HALTS, vb_in(m->registers, OLD_AT));
}

static bool opts_are_right(const struct vb_universal_opts *o, char *error)
{
    if (o->rules > 0 && o->head < o->cells)
        return true;
    snprintf(error, VB_IMAGE_TEXT, "a universal machine needs a rule, and a tape under its head");
    return false;
}

struct vb_image *vb_offload_universal(const struct vb_universal_opts *opts, char *error)
{
    struct machine m = {.head = opts->head};

    if (!opts_are_right(opts, error))
        return NULL;
    m.c = vb_chain_begin("universal");
    if (!m.c) {
        snprintf(error, VB_IMAGE_TEXT, "no memory for the program");
        return NULL;
    }
    m.q = vb_chain_queue(m.c, "U", &(struct vb_chain_queue_opts){0});
    m.table = vb_chain_region(m.c, "table", VB_CHAIN_SHARED,
                              opts->rules * sizeof(struct vb_universal_rule), false);
    m.tape = vb_chain_region(m.c, "tape", VB_CHAIN_SHARED, opts->cells * CELL_BYTES, true);
    m.registers = vb_chain_region(m.c, "registers", VB_CHAIN_OWN, REGISTERS, true);
    for (uint32_t s = 0; s < SLOTS; s++) {
        m.halt[s] = name(&m, "halt", s);
        m.cell[s] = name(&m, "cell", s);
        m.rule[s] = name(&m, "rule", s);
    }
    for (uint32_t s = 0; s < SLOTS; s++) {
        vb_chain_slot(m.c, m.q);
        add_halt(&m, s);
        add_fetch(&m, s);
        add_rule(&m, s);
    }
    return vb_chain_finish(m.c, error);
}
