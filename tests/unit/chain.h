// SPDX-License-Identifier: Apache-2.0
// Queue pairs of chain programs for tests, through the public header: on one end of a duo, mostly
// connected with themselves.
#ifndef VB_TESTS_CHAIN_H
#define VB_TESTS_CHAIN_H

#include "duo.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CHAIN_RAW = VB_QP_CROSS_CHANNEL | VB_QP_NO_WQE_CHECKS | VB_QP_IGNORE_OVERFLOW,
    CHAIN_MANAGED = CHAIN_RAW | VB_QP_MANAGED_SEND,
};

struct vb_cq *chain_cq(const struct duo_end *e, struct vb_cq_opts opts);
// Both queues complete on `cq`. Defaults as duo_make_qp()'s, and cross-channel.
struct vb_qp *chain_qp(const struct duo_end *e, struct vb_cq *cq, struct vb_qp_opts opts);
// The same, connected with itself, with all rights.
struct vb_qp *chain_self(const struct duo_end *e, struct vb_cq *cq, struct vb_qp_opts opts);

// Signaled requests. Memory is the end's own, by offsets.
void chain_nop(struct vb_qp *qp, uint64_t wr_id);
void chain_cross(struct vb_qp *qp, enum vb_wr_opcode opcode, uint64_t wr_id, uint32_t number,
                 uint32_t index);
struct vb_send_wr chain_wr(const struct duo_end *e, enum vb_wr_opcode opcode, uint64_t wr_id,
                           uint32_t remote);
void chain_post(const struct duo_end *e, struct vb_qp *qp, struct vb_send_wr wr, uint32_t local,
                uint32_t len);
struct vb_qp_rings chain_rings(const struct vb_qp *qp);

// A queue pair of four blocks that enables itself for ever, once chain_start() was called. It
// counts its passes in the 8 bytes at `at`, and uses another 8 behind.
struct vb_qp *chain_endless(const struct duo_end *e, struct vb_cq *cq, struct vb_qp_opts opts,
                            uint32_t at);
void chain_start(struct vb_qp *endless);

// Polls until the queue has produced so many.
void chain_await_count(struct vb_cq *cq, uint64_t count);
// It is, or becomes.
void chain_expect_state(struct vb_qp *qp, const char *state);

#endif
