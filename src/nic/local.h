// SPDX-License-Identifier: Apache-2.0
// What an entry of a loop does to this machine's memory: READ, WRITE with and without a
// calculation, and atomics. Every segment is proved on the copy that was made when the entry was
// fetched, before the first byte moves.
#ifndef VB_NIC_LOCAL_H
#define VB_NIC_LOCAL_H

#include "verbena/wqe.h"

#include <stdint.h>

struct vb_pu;
struct vb_qpc;

// How it went. One word: it is returned in a register.
struct vb_local_end {
    uint32_t syndrome; // enum vb_cqe_syndrome, VB_SYN_OK for success
    uint32_t bytes;    // moved
};

// Each takes an entry with at least its control segment, and leaves a record where somebody reads
// records.
struct vb_local_end vb_local_read_slowly(struct vb_pu *pu, struct vb_qpc *qp,
                                         const struct vb_wqe_ctrl *ctrl);
struct vb_local_end vb_local_write_slowly(struct vb_pu *pu, struct vb_qpc *qp,
                                          const struct vb_wqe_ctrl *ctrl);
struct vb_local_end vb_local_atomic(struct vb_pu *pu, struct vb_qpc *qp,
                                    const struct vb_wqe_ctrl *ctrl);

// The same where nobody does: what lies in plain regions without a detour. Single words: see
// words.h.
struct vb_local_end vb_local_read(struct vb_pu *pu, struct vb_qpc *qp,
                                  const struct vb_wqe_ctrl *ctrl);
struct vb_local_end vb_local_write(struct vb_pu *pu, struct vb_qpc *qp,
                                   const struct vb_wqe_ctrl *ctrl);

#endif
