// SPDX-License-Identifier: Apache-2.0
// A whole device for fuzzers: queue pairs of every service, shared receive queues, windows, one or
// two units. Input bytes become choices, every region and frame is an allocation of its exact
// size, and what must always hold is checked after every run.
#ifndef VB_FUZZ_RIG_H
#define VB_FUZZ_RIG_H

#include "host/driver.h"
#include "nic/dev.h"
#include "nic/pu.h"
#include "wire/packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One queue pair of each kind, at fixed places.
enum {
    RIG_RC, // its peer is the next one
    RIG_RC_SHARED,
    RIG_UC, // its own peer, as the next
    RIG_UD,
    RIG_XRC_INI, // its peer is the next one
    RIG_XRC_TGT,
    RIG_QPS,
};

enum {
    RIG_REGIONS = 4,
    RIG_WINDOWS = 3, // of type 1, of type 2, of another domain
    RIG_CQS = 3,
    RIG_SRQS = 2, // the second is XRC's
    RIG_UNITS = 2,
    RIG_SHARES = 3,
    RIG_REGION_BYTES = 6000,
    RIG_BATCH = 8,
    RIG_WIRE = 32,
    RIG_SHARED_IDS = 64, // more than a shared receive queue holds
    RIG_HEADERS = 64,    // sent headers that are remembered, by their PSN
    RIG_CQ_ENTRIES = 256,
    RIG_CQ_SMALL = 4,
    RIG_QKEY = 0x1234,
    RIG_XRCD = 7,
};

struct rig_input {
    const uint8_t *data;
    size_t left;
};

struct rig_region {
    uint8_t *base; // NULL: not registered
    uint32_t key;
    bool gone; // the guard says so
};

struct rig_cq {
    struct vb_driver_cq driver;
    struct vb_cqc *ctx;
    uint32_t cqn;
    uint32_t arms, events; // asked for, and come
};

struct rig_srq {
    struct vb_driver_srq driver;
    struct vb_srqc *ctx;
    uint32_t srqn;
    uint64_t next_id;
    bool posted[RIG_SHARED_IDS]; // by number: in the queue or in use
    uint64_t completed;
    uint64_t lost; // in use by a queue pair that was reset
    uint32_t arms, events;
};

// Where the headers of a request lie that was sent: sent again, it must be the same.
struct rig_header {
    bool used;
    uint32_t psn;
    uint32_t len;
    uint8_t bytes[VB_HEADERS_MAX];
};

struct rig_qp {
    struct vb_driver_qp driver;
    struct vb_qpc *ctx;
    enum vb_qp_type type;
    struct rig_srq *srq; // NULL: its own receive queue
    struct rig_cq *send_cq, *recv_cq;
    uint64_t send_id, recv_id;     // of the next request
    uint64_t send_done, recv_done; // everything before was completed
    uint32_t una_psn;              // at the last check
    uint32_t epsn;                 // after the last step
    struct rig_header sent[RIG_HEADERS];
};

// A frame that the device sent, not yet delivered to it again.
struct rig_wire {
    uint8_t *bytes;
    uint32_t len;
};

struct rig {
    struct rig_input in;
    struct vb_dev *dev;
    uint32_t units;
    uint64_t now_ns;
    uint32_t pd[2];
    uint32_t share[RIG_SHARES]; // of queue pairs in turn; the first is share 0
    struct rig_cq cq[RIG_CQS];
    struct rig_srq srq[RIG_SRQS];
    struct rig_region region[RIG_REGIONS];
    uint32_t window[RIG_WINDOWS];
    struct rig_qp qp[RIG_QPS];
    struct vb_ip local, remote;
    struct vb_rx_frame batch[RIG_BATCH];
    uint32_t batched;
    uint32_t batch_unit; // that gets the batch
    struct rig_wire wire[RIG_WIRE];
    uint32_t wired;
    struct vb_counters before[RIG_UNITS];
    struct vb_mem_guard guard;
    struct vb_dev_hooks hooks;
    uint8_t spoil;   // how the next completion fails; 0: it does not
    bool fail_next;  // the next request takes its queue pair with it
    bool fed;        // the batch is in the device's hands
    bool observed;   // poll by recorded steps
    bool wqe_checks; // as the queue pairs were made
    bool orderly;    // the driver alone writes the rings, so completions must be in order
    bool overran;    // a completion queue lost entries: their order cannot be judged any more
    bool old_frames; // of a queue pair that was reset since are in a transmit queue
    bool narrow;     // the transmit queues hold few frames
    uint32_t mtu;
    uint8_t layout; // which queue pairs use which queues
    uint32_t cq_entries;
    uint64_t steps;
};

struct rig_opts {
    bool no_wqe_checks;
    bool orderly;
};

// ---- rig.c: the device and its objects

// Choices; all are 0 once the input has ended.
bool rig_more(const struct rig *r);
uint8_t rig_u8(struct rig *r);
uint16_t rig_u16(struct rig *r);
uint32_t rig_u32(struct rig *r);
uint64_t rig_u64(struct rig *r);
void rig_require(bool holds);

// The first bytes of the input choose the set-up.
void rig_open(struct rig *r, const struct rig_opts *opts, const uint8_t *data, size_t size);
void rig_close(struct rig *r);
void rig_create_qp(struct rig *r, struct rig_qp *q);
void rig_destroy_qp(struct rig *r, struct rig_qp *q);
void rig_create_srq(struct rig *r, struct rig_srq *s);

// ---- rig_memory.c: regions and windows

void rig_register(struct rig *r, uint32_t region);
// False: a window is bound to it.
bool rig_unregister(struct rig *r, uint32_t region);
// Other memory behind the same key.
void rig_reregister(struct rig *r, uint32_t region, uint32_t access);
void rig_create_window(struct rig *r, uint32_t window);
void rig_destroy_window(struct rig *r, uint32_t window);
bool rig_is_registered(const struct rig *r, const uint8_t *at, uint32_t len);
// An address that is mostly within a region or a window, and a key that is mostly its own.
uint64_t rig_addr(struct rig *r, uint32_t *key);

// ---- rig_control.c: what a host may ask for at any time

// Brings a queue pair one state further, or to SQD, ERR or RESET.
void rig_modify(struct rig *r, struct rig_qp *q, enum vb_qp_state state);
void rig_connect(struct rig *r, struct rig_qp *q);
// One operation of the input's choice.
void rig_control(struct rig *r, struct rig_qp *q);

// ---- rig_nonsense.c

// Control operations that must be refused.
void rig_ask_nonsense(struct rig *r);

// ---- rig_frames.c: what comes from the wire

// Puts a frame into the next batch; from the peer, or from a stranger.
void rig_frame(struct rig *r, const uint8_t *bytes, uint32_t len, bool stranger);
// Delivers what the device sent, but for what is lost or comes twice.
void rig_deliver(struct rig *r);
void rig_drop_batch(struct rig *r);
// What a peer could say next, bent in one place or another.
void rig_give_packet(struct rig *r, struct rig_qp *q);
void rig_give_mutant(struct rig *r, struct rig_qp *q);
// Exactly the next packet of the message under way, or the first of another.
void rig_give_request(struct rig *r, struct rig_qp *q);
// Exactly the answer that is waited for, or the acknowledgement of everything.
void rig_give_answer(struct rig *r, struct rig_qp *q);

// ---- rig_run.c: running and judging

// Hands the batch over, polls until idle, sends everything, checks.
void rig_run(struct rig *r);
// Makes a few steps of one unit and stops there: frames wait on both sides.
void rig_steps(struct rig *r, uint32_t unit, uint32_t steps);
void rig_observe(void *ctx, const struct vb_step *step);

// ---- rig_complete.c: completions and events

// Takes completions and events, and checks their order.
void rig_complete(struct rig *r);
// Of one unit.
void rig_take_events(struct rig *r, struct vb_pu *pu);
struct vb_driver_srq *rig_find_srq(void *ctx, uint32_t srqn);
// Nothing was lost: what was consumed has completed or is in use. Only when nothing is left to do.
void rig_check_receives(struct rig *r);
// Who armed a completion queue and has something to hear was told, or a timer runs.
void rig_check_armed(const struct rig *r);

#endif
