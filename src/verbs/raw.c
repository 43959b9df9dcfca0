// SPDX-License-Identifier: Apache-2.0
// Queues that programs drive by hand, for the libraries beside this one (libmlx5, libefa).
#include "verbs/raw.h"
#include "verbs/verbs.h"

#include <errno.h>

VB_VERBS_EXPORT bool vb_verbs_raw_device(const struct ibv_device *device)
{
    return device == vb_verbs_device();
}

VB_VERBS_EXPORT int vb_verbs_raw_qp(struct ibv_qp *qp, struct vb_raw_qp *raw)
{
    return -vb_qp_share(VB_VERBS_CAST(vb_verbs_qp, qp)->nic, raw);
}

VB_VERBS_EXPORT int vb_verbs_raw_cq(struct ibv_cq *cq, struct vb_raw_cq *raw)
{
    return -vb_cq_share(VB_VERBS_CAST(vb_verbs_cq, cq)->nic, raw);
}

VB_VERBS_EXPORT int vb_verbs_raw_srq(struct ibv_srq *srq, struct vb_raw_srq *raw)
{
    return -vb_srq_share(VB_VERBS_CAST(vb_verbs_srq, srq)->nic, raw);
}

VB_VERBS_EXPORT int vb_verbs_raw_refuse(int error, const char *call, const char *why)
{
    return vb_verbs_fail(error, call, why);
}
