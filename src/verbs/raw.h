// SPDX-License-Identifier: Apache-2.0
// What our libmlx5 and libefa want from our libibverbs: rings of its queues, and words.
#ifndef VB_VERBS_RAW_H
#define VB_VERBS_RAW_H

#include "verbena/nic.h"

#include <infiniband/verbs.h>
#include <stdbool.h>

// What those libraries export.
#define VB_RAW_EXPORT __attribute__((visibility("default")))

// Whether it is a device of this library.
bool vb_verbs_raw_device(const struct ibv_device *device);

// Queues that the program drives by hand from now on. A positive errno.
int vb_verbs_raw_qp(struct ibv_qp *qp, struct vb_raw_qp *raw);
int vb_verbs_raw_cq(struct ibv_cq *cq, struct vb_raw_cq *raw);
int vb_verbs_raw_srq(struct ibv_srq *srq, struct vb_raw_srq *raw);

// Says that a call is refused, and why, sets errno and returns it.
int vb_verbs_raw_refuse(int error, const char *call, const char *why);

#endif
