// SPDX-License-Identifier: Apache-2.0
// Chain programs: queue pairs that are limited, audited and stopped together.
#include "host/device.h"
#include "host/host.h"

#include <errno.h>
#include <stdlib.h>

// Needs the locks. An auditor's entries say nothing of what completes, so the queue is for nothing
// else.
static bool is_used(const struct vb_nic *nic, const struct vb_cq *cq)
{
    for (struct vb_link *l = nic->qps.head.next; l != &nic->qps.head; l = l->next) {
        const struct vb_qp *qp = VB_CONTAINER_OF(l, struct vb_qp, link);
        if (qp->send_cq == cq || qp->recv_cq == cq)
            return true;
    }
    for (struct vb_link *l = nic->srqs.head.next; l != &nic->srqs.head; l = l->next)
        if (VB_CONTAINER_OF(l, struct vb_srq, link)->cq == cq)
            return true;
    return false;
}

static int create_context(struct vb_program *p, uint32_t limit)
{
    const struct vb_program_attr attr = {
        .pd = p->pd->pd, .limit = limit, .audit_cqn = p->audit ? p->audit->cqn : 0};

    if (p->audit && is_used(p->nic, p->audit))
        return -EINVAL;
    int err = vb_device_program_create(p->nic, &attr, &p->number);
    if (err)
        return err;
    vb_fifo_push(&p->nic->programs, &p->link);
    if (p->audit)
        p->audit->driver.audits = true;
    return 0;
}

int vb_program_create(struct vb_pd *pd, const struct vb_program_opts *opts, struct vb_program **out)
{
    if (vb_host_is_foreign(pd->nic))
        return -EPERM;
    if (opts->audit && opts->audit->nic != pd->nic)
        return -EINVAL;
    struct vb_program *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->nic = pd->nic;
    p->pd = pd;
    p->audit = opts->audit;
    vb_host_lock(p->nic);
    int err = create_context(p, opts->limit);
    vb_host_unlock(p->nic);
    if (err)
        free(p);
    else
        *out = p;
    return err;
}

// Needs the locks. Whether another program is audited there, too.
static bool is_auditor(const struct vb_nic *nic, const struct vb_cq *cq)
{
    for (struct vb_link *l = nic->programs.head.next; l != &nic->programs.head; l = l->next)
        if (VB_CONTAINER_OF(l, struct vb_program, link)->audit == cq)
            return true;
    return false;
}

int vb_program_destroy(struct vb_program *program)
{
    struct vb_nic *nic = program->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = vb_device_program_destroy(nic, program->number);
    if (!err) {
        vb_link_remove(&program->link);
        if (program->audit)
            program->audit->driver.audits = is_auditor(nic, program->audit);
    }
    vb_host_unlock(nic);
    if (!err)
        free(program);
    return err;
}

// What they leave behind is flushed soon.
static void run_members(struct vb_program *program)
{
    struct vb_nic *nic = program->nic;

    for (struct vb_link *l = nic->qps.head.next; l != &nic->qps.head; l = l->next) {
        struct vb_qp *qp = VB_CONTAINER_OF(l, struct vb_qp, link);
        if (qp->program == program)
            vb_host_run_soon(qp);
    }
}

int vb_program_stop(struct vb_program *program)
{
    struct vb_nic *nic = program->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = vb_device_program_stop(nic, program->number);
    if (!err)
        run_members(program);
    vb_host_unlock(nic);
    return err;
}

int vb_program_query(struct vb_program *program, uint64_t *executed, bool *stopped)
{
    struct vb_nic *nic = program->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = vb_device_program_query(nic, program->number, executed, stopped);
    vb_host_unlock(nic);
    return err;
}
