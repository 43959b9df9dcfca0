// SPDX-License-Identifier: Apache-2.0
// The device's calls about programs as messages to the hull.
#include "host/attach.h"

#include <errno.h>

int vb_attach_program_create(struct vb_attach *a, const struct vb_program_attr *attr,
                             uint32_t *program)
{
    struct vb_hull_request request = {
        .op = VB_HULL_PROGRAM_CREATE,
        .number = a->tag,
        .program = {.pd = attr->pd, .limit = attr->limit, .audit_cqn = attr->audit_cqn}};
    struct vb_hull_reply reply;
    int err = vb_attach_call(a, &request, &reply, -1, NULL);

    if (!err)
        *program = reply.number;
    return err;
}

// With the hull it is gone, too.
int vb_attach_program_destroy(struct vb_attach *a, uint32_t program)
{
    struct vb_hull_request request = {.op = VB_HULL_PROGRAM_DESTROY, .number = program};
    struct vb_hull_reply reply;
    int err = vb_attach_call(a, &request, &reply, -1, NULL);
    return err == -ENOTCONN ? 0 : err;
}

int vb_attach_program_stop(struct vb_attach *a, uint32_t program)
{
    struct vb_hull_request request = {.op = VB_HULL_PROGRAM_STOP, .number = program};
    struct vb_hull_reply reply;
    return vb_attach_call(a, &request, &reply, -1, NULL);
}

int vb_attach_program_query(struct vb_attach *a, uint32_t program, uint64_t *executed,
                            bool *stopped)
{
    struct vb_hull_request request = {.op = VB_HULL_PROGRAM_QUERY, .number = program};
    struct vb_hull_reply reply;
    int err = vb_attach_call(a, &request, &reply, -1, NULL);

    if (!err) {
        *executed = reply.executed.entries;
        *stopped = reply.executed.stopped;
    }
    return err;
}
