// SPDX-License-Identifier: Apache-2.0
// The driver's half of queues: writes work-queue entries, reads completion entries. It shares only
// memory with the NIC (rings and doorbell records), so the simulator's hosts use it as it is.
#ifndef VB_HOST_DRIVER_H
#define VB_HOST_DRIVER_H

#include "base/spin.h"
#include "nic/doorbell.h"
#include "nic/wr.h"
#include "verbena/nic.h"
#include "verbena/wqe.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_qp_progress;
struct vb_srq_progress;

struct vb_driver_sq {
    uint8_t *ring;
    uint32_t blocks; // power of two
    uint32_t max_sge;
    uint32_t max_inline; // bytes
    uint64_t start;      // counters at RESET
    uint64_t pi;         // next block to write
    uint64_t ci;         // first block not known to be complete
    bool unbounded;      // what is outstanding is not counted
    bool managed;        // posting rings no bell
    uint64_t *wr_id;     // by block of the entry's first block
    uint8_t *size;       // entry's blocks, likewise
};

struct vb_driver_rq {
    uint8_t *ring;
    uint32_t entries; // power of two
    uint32_t stride;
    uint32_t max_sge;
    bool unbounded, managed; // as above
    uint64_t start, pi, ci;
    uint64_t *wr_id;
};

// Entries form a linked list by their index: free ones from head to tail.
struct vb_driver_srq {
    struct vb_spin lock; // of the list: who posts and who polls may be different threads
    uint8_t *ring;
    uint32_t entries; // power of two, one of which stays empty
    uint32_t stride;
    uint32_t max_sge;
    uint32_t head, tail;
    uint64_t posted;
    uint64_t *wr_id;
    uint32_t *dbrec;
};

// What the next owner of a queue pair has to know, in memory that outlives this one: beside the
// doorbell record, which with the ring and the device tells the rest (driver_recover.c).
struct vb_driver_deed {
    uint32_t magic;
    uint32_t send_sge, inline_bytes;
    uint32_t unbounded; // 1: the send queue, 2: the receive queue
    uint32_t resetting; // 1: on its way to RESET, whose owner had completions to drop
    uint32_t reserved;
    uint64_t pi[2]; // of managed queues, whose records say something else: VB_DBREC_RQ, _SQ
};

struct vb_driver_qp {
    enum vb_wqe_heads heads;
    bool cross;                // cross-channel requests are legal
    struct vb_driver_srq *srq; // instead of rq
    uint32_t qpn;
    uint32_t *dbrec;             // VB_DBREC_RQ, VB_DBREC_SQ
    struct vb_driver_deed *deed; // NULL: it goes with its owner
    struct vb_doorbells *doorbells;
    struct vb_driver_sq sq;
    struct vb_driver_rq rq;
};

struct vb_driver_cq {
    uint8_t *ring;
    uint32_t entries; // power of two
    uint64_t ci;
    bool audits;   // a program's entries: nothing completes by them
    bool outlives; // its owner may die at any moment, and another one go on
    uint32_t arm_serial;
    uint32_t *dbrec;
    // Of an XRC queue's completions the queue pair does not know the queue.
    struct vb_driver_srq *(*find_srq)(void *ctx, uint32_t srqn);
};

// Allocate rings. `start` values are the counters to begin with (0 but in tests). Return -ENOMEM or
// -EINVAL. The qpn and the doorbells are filled in by the caller once the NIC has named them.
int vb_driver_qp_init(struct vb_driver_qp *qp, const struct vb_qp_opts *opts, uint64_t sq_start,
                      uint64_t rq_start);
void vb_driver_qp_fini(struct vb_driver_qp *qp);
// Forgets everything posted, for a queue pair that goes back to RESET.
void vb_driver_qp_reset(struct vb_driver_qp *qp);
int vb_driver_cq_init(struct vb_driver_cq *cq, uint32_t entries, uint64_t start);
void vb_driver_cq_fini(struct vb_driver_cq *cq);

int vb_driver_srq_init(struct vb_driver_srq *srq, uint32_t depth, uint32_t sge);
void vb_driver_srq_fini(struct vb_driver_srq *srq);
int vb_driver_post_srq(struct vb_driver_srq *srq, const struct vb_recv_wr *wr, uint32_t n);

// Asks for an event when the next completion is there, or the next solicited one or error.
void vb_driver_cq_arm(struct vb_driver_cq *cq, bool solicited_only);
// The same from a counter on, which is not before that of what was polled.
void vb_driver_cq_arm_at(struct vb_driver_cq *cq, uint64_t counter, bool solicited_only);

// The counter of the next entry to be produced, as far as can be seen.
uint64_t vb_driver_cq_end(const struct vb_driver_cq *cq);

// Copies the entries that wait from one ring to another. -EINVAL: it is too small for them.
int vb_driver_cq_move(const struct vb_driver_cq *from, struct vb_driver_cq *to);
// Swaps the rings; all else stays.
void vb_driver_cq_adopt(struct vb_driver_cq *cq, struct vb_driver_cq *bigger);

// Drops the completions of a queue pair that goes back to RESET; its NIC must not run meanwhile.
// Their entries of the shared receive queue, if it has one, are free again.
void vb_driver_cq_clean(struct vb_driver_cq *cq, uint32_t qpn, struct vb_driver_srq *srq);
// The same for the receives of an XRC queue that goes.
void vb_driver_cq_clean_srq(struct vb_driver_cq *cq, uint32_t srqn);

int vb_driver_post_send(struct vb_driver_qp *qp, const struct vb_send_wr *wr, uint32_t n);
int vb_driver_post_send_all(struct vb_driver_qp *qp, const struct vb_send_wr *wr, uint32_t n);
int vb_driver_post_recv(struct vb_driver_qp *qp, const struct vb_recv_wr *wr, uint32_t n);

// Tells the NIC of entries that were written into the rings. -EINVAL: so many cannot be posted.
int vb_driver_open_send(struct vb_driver_qp *qp, uint64_t count);
int vb_driver_open_recv(struct vb_driver_qp *qp, uint64_t count);

// Skips entries that were overwritten by one of so many ever produced, and all but the last `keep`.
void vb_driver_cq_catch_up(struct vb_driver_cq *cq, uint64_t produced, uint32_t keep);

// ---- driver_recover.c: takes over queues whose owner died at any moment, from what is in memory
// that outlives it and what the device says. May be interrupted and begun again.

// Writes what the next owner needs.
void vb_driver_qp_deed(struct vb_driver_qp *qp, struct vb_driver_deed *deed);
// What was polled: `produced` is the device's count.
void vb_driver_cq_recover(struct vb_driver_cq *cq, uint64_t produced);
// Drops completions that nobody can take: `is_known` says whose can.
typedef bool vb_driver_known(void *ctx, uint32_t qpn, uint32_t srqn);
void vb_driver_cq_sift(struct vb_driver_cq *cq, vb_driver_known *is_known, void *ctx);
// What was posted and what has completed, by the device's word and by what waits in the completion
// queues.
void vb_driver_qp_recover(struct vb_driver_qp *qp, const struct vb_qp_progress *progress,
                          const struct vb_driver_cq *send_cq, const struct vb_driver_cq *recv_cq);
// Begins with what is posted; `is_used` has one byte for each entry that somebody has and nobody
// posted.
void vb_driver_srq_recover(struct vb_driver_srq *srq, const struct vb_srq_progress *progress,
                           uint8_t *is_used);
// Marks the entries of a shared receive queue whose completions wait.
void vb_driver_cq_mark(const struct vb_driver_cq *cq, uint32_t srqn, uint32_t entries,
                       uint8_t *is_used);

// Finds the queue pair of a completion; NULL: destroyed meanwhile, the entry is skipped.
typedef struct vb_driver_qp *vb_driver_find(void *ctx, uint32_t qpn);

// Takes up to n completions; returns how many.
int vb_driver_poll(struct vb_driver_cq *cq, vb_driver_find *find, void *ctx, struct vb_wc *wc,
                   int n);

// The same in two steps, for entries that may be overwritten: copies those that can be seen, and
// takes copies of the next ones.
uint32_t vb_driver_copy(const struct vb_driver_cq *cq, struct vb_cqe *copy, uint32_t n);
int vb_driver_take(struct vb_driver_cq *cq, const struct vb_cqe *copy, uint32_t count,
                   vb_driver_find *find, void *ctx, struct vb_wc *wc);

#endif
