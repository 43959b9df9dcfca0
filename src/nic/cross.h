// SPDX-License-Identifier: Apache-2.0
// Cross-channel work: queues that wait for completions (WAIT) and open each other (SEND_EN,
// RECV_EN). A managed queue is executed as far as it was opened, however far it was filled; so one
// queue can write another's entries before the NIC fetches them.
#ifndef VB_NIC_CROSS_H
#define VB_NIC_CROSS_H

#include "base/fifo.h"
#include "nic/bucket.h"
#include "nic/program.h"
#include "nic/timer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vb_cqc;
struct vb_pu;
struct vb_qpc;
struct vb_qpc_attr;
struct vb_wr;

// How far a managed queue is open: raised by its own unit and by others.
struct vb_gate {
    bool managed;
    uint32_t rung;    // the doorbell record as last honoured: a driver may ring, too
    atomic_bool shut; // its queue has failed: programs open no more of it
    atomic_uint_fast64_t open;
};

// Fetched entries of a queue pair that is connected with itself, as they were when fetched.
struct vb_snapshot {
    uint8_t *block;    // of blocks, by counter; an entry that wraps goes on behind the last one;
                       // NULL: it has never been connected with itself
    uint32_t mask;     // power of two - 1
    uint32_t ahead;    // entries fetched and not executed
    bool filling;      // it is being fetched, step by step
    uint64_t executed; // blocks before it are done
    bool due;          // the last one executed completes: as `done` says
    uint8_t done_opcode;
    uint32_t done_bytes;
    uint64_t done_counter;
};

// What a queue pair of chain programs has besides.
struct vb_cross {
    struct vb_qpc *qp;
    struct vb_link wait;      // in a completion queue's list
    struct vb_cqc *waits_for; // NULL: for nothing
    struct vb_bucket bucket;
    struct vb_timer timer; // until there is a token
    struct vb_program *program;
    bool limited; // by a rate or a program
    bool careful; // that, or its entries are checked
    struct vb_snapshot snap;
};

enum vb_cross_verdict {
    VB_CROSS_GO,
    VB_CROSS_HELD, // not now; it is woken
    VB_CROSS_STOP, // never: the program is over
};

// -ENOMEM.
int vb_cross_create(struct vb_qpc *qp, const struct vb_qpc_attr *attr);
// It is to be connected with itself: makes room for the entries that are fetched. -ENOMEM.
int vb_cross_loop(struct vb_qpc *qp);
void vb_cross_destroy(struct vb_pu *pu, struct vb_qpc *qp);
void vb_cross_reset(struct vb_pu *pu, struct vb_qpc *qp);

// Whether rate and program let an entry be executed.
enum vb_cross_verdict vb_cross_admit(struct vb_pu *pu, struct vb_qpc *qp);
void vb_cross_timer(struct vb_pu *pu, struct vb_cross *cross);
// A request of a queue pair with packets begins: the part of it that is cross-channel work.
enum vb_cross_verdict vb_cross_begin(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr);

// WAIT: whether entry number `index` of the completion queue has been produced. If not, the queue
// pair is woken when it is; *bad: it never will, there is no such queue.
bool vb_cross_wait(struct vb_pu *pu, struct vb_qpc *qp, uint32_t cqn, uint32_t index, bool *bad);
// A completion was produced: wakes those who have waited.
void vb_cross_produced(struct vb_pu *pu, struct vb_cqc *cq);
// The completion queue goes: those who wait fail when they look again.
void vb_cross_forget(struct vb_cqc *cq);

// ---- the gate
// The queue's producer counter as opened; `word` is its doorbell record.
uint64_t vb_gate_read(struct vb_gate *gate, uint32_t word);
void vb_gate_reset(struct vb_gate *gate, uint64_t start);

// ---- loop.c: queue pairs that are connected with themselves
// One step. False: nothing can be done now.
bool vb_loop_step(struct vb_pu *pu, struct vb_qpc *qp);
// Steps in state RTS until nothing can be done or the turn ends. Returns how many.
uint32_t vb_loop_run(struct vb_pu *pu, struct vb_qpc *qp);
// The completion of the entry executed last is to be written, in the same turn.
bool vb_loop_is_due(const struct vb_qpc *qp);
// Completes the entry that was executed last, if it has not completed yet.
bool vb_loop_complete(struct vb_pu *pu, struct vb_qpc *qp);
// Forgets what was fetched and not executed.
void vb_loop_abandon(struct vb_qpc *qp);

#endif
