// SPDX-License-Identifier: Apache-2.0
// A chain program: queues that are limited, audited and stopped together.
#ifndef VB_NIC_PROGRAM_H
#define VB_NIC_PROGRAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vb_cqc;
struct vb_dev;
struct vb_pu;
struct vb_qpc;

struct vb_program {
    uint32_t number;
    uint32_t pd;
    uint32_t users;                // queue pairs
    uint32_t limit;                // entries that may be executed for each request; 0: any number
    struct vb_cqc *audit;          // gets a completion for each executed entry; NULL: nobody asks
    atomic_uint_fast64_t executed; // ever
    atomic_uint_fast64_t left;     // of the limit
    atomic_bool stopped;
};

// An entry of a member is about to be executed. False: the program was stopped, or has used up what
// one request may cost.
bool vb_program_allows(struct vb_program *program);
// It was executed: its owner may want to know.
void vb_program_executed(struct vb_pu *pu, struct vb_qpc *qp, uint64_t counter, uint8_t opcode);
// A request came in.
static inline void vb_program_called(struct vb_program *program)
{
    if (program->limit)
        atomic_store_explicit(&program->left, program->limit, memory_order_relaxed);
}

#endif
