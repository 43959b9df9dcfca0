// SPDX-License-Identifier: Apache-2.0
// Programs as statements: what vb_flow_…() write down, and what is made of it.
#ifndef VB_CHAIN_FLOW_H
#define VB_CHAIN_FLOW_H

#include "chain/builder.h"

enum vb_stmt_kind {
    VB_STMT_SET,
    VB_STMT_MOVE,
    VB_STMT_CALC,
    VB_STMT_LOAD,
    VB_STMT_STORE,
    VB_STMT_IF,
    VB_STMT_REPEAT,
    VB_STMT_LOOP,
    VB_STMT_BREAK,
};

struct vb_stmt {
    struct vb_stmt *next, *parent;
    enum vb_stmt_kind kind;
    uint32_t to, a, b; // variables; b may be 0: then the value
    uint64_t value;
    enum vb_wqe_calc op;
    uint32_t region, bytes;
    enum vb_compare compare;
    uint32_t bits;
    uint32_t times;
    bool in_else;                 // the end of the body that is being written
    struct vb_stmt *body, *other; // of an if, a repeat or a loop; and its else
    struct vb_stmt *body_last, *other_last;
};

struct vb_flow_var {
    uint64_t value;
    struct vb_place of; // a pointer
    bool points;
};

struct vb_flow {
    struct vb_chain *chain;
    char name[VB_IMAGE_NAME];
    struct vb_chain_queue queue;
    struct vb_chain_region vars;
    struct vb_flow_var *var; // handles count from 1
    uint32_t var_count;
    struct vb_stmt *first, *last;
    struct vb_stmt *open; // the innermost if, repeat or loop
};

enum {
    VB_FLOW_VAR_BYTES = 16, // a record, as CALC wants it
    VB_FLOW_VARS = 1024
};

// A variable that the program has for itself. 1, which is nobody's, if there are too many.
uint32_t vb_flow_own(struct vb_flow *f, uint64_t value);

// ---- flow_emit.c
void vb_flow_emit(struct vb_flow *f);

#endif
