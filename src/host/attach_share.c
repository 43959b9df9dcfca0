// SPDX-License-Identifier: Apache-2.0
// Queues by hand as messages to the hull.
#include "host/attach.h"

#include <errno.h>

int vb_attach_share_qp(struct vb_attach *a, uint32_t qpn)
{
    struct vb_hull_request request = {.op = VB_HULL_QP_SHARE, .number = qpn};
    struct vb_hull_reply reply;
    return vb_attach_call(a, &request, &reply, -1, NULL);
}

int vb_attach_share_cq(struct vb_attach *a, uint32_t cqn, const uint8_t *bell)
{
    struct vb_hull_request request = {.op = VB_HULL_CQ_SHARE, .number = cqn};
    struct vb_hull_reply reply;

    if (!vb_attach_find(a, bell, VB_RAW_REGISTER_BYTES, &request.share.bell))
        return -EFAULT;
    return vb_attach_call(a, &request, &reply, -1, NULL);
}
