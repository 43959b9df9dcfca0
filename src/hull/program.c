// SPDX-License-Identifier: Apache-2.0
// Requests about programs: queue pairs of one application that are limited, audited and stopped
// together. All that a program needs lies in the hull: its entries, its memory and its counts.
#include "hull/command.h"

#include <errno.h>

static bool charge(struct vb_hull_command *c)
{
    struct vb_hull_tenant *t = c->client->tenant;
    return vb_hull_charge(t, &t->used.queues, t->quota.queues, 1, "queues, channels and programs",
                          c->reply);
}

static void create(struct vb_hull_command *c)
{
    const struct vb_hull_program *p = &c->request->program;
    const struct vb_program_attr attr = {.pd = p->pd, .limit = p->limit, .audit_cqn = p->audit_cqn};
    uint32_t number;

    if (!vb_hull_find(c, VB_HULL_PD, p->pd) ||
        (p->audit_cqn && !vb_hull_find(c, VB_HULL_CQ, p->audit_cqn)) || !charge(c))
        return;
    if (vb_hull_judge(c, vb_dev_program_create(c->dev, &attr, &number), "this program")) {
        if (vb_hull_object_add(c->client, VB_HULL_PROGRAM, number)) {
            c->reply->number = number;
            return;
        }
        vb_dev_program_destroy(c->dev, number);
        vb_hull_refuse(c->reply, -ENOMEM, "the hull is out of memory");
    }
    c->client->tenant->used.queues--;
}

// Its queue pairs fail at once; what they leave behind is flushed when their bells are rung.
static void stop(struct vb_hull_command *c)
{
    if (vb_hull_find(c, VB_HULL_PROGRAM, c->request->number))
        vb_hull_judge(c, vb_dev_program_stop(c->dev, c->request->number), "to stop it");
}

static void query(struct vb_hull_command *c)
{
    uint64_t executed;
    bool stopped;

    if (vb_hull_find(c, VB_HULL_PROGRAM, c->request->number) &&
        vb_hull_judge(c, vb_dev_program_query(c->dev, c->request->number, &executed, &stopped),
                      "to tell"))
        c->reply->executed = (struct vb_hull_executed){.entries = executed, .stopped = stopped};
}

void vb_hull_program_command(struct vb_hull_command *c)
{
    switch (c->request->op) {
    case VB_HULL_PROGRAM_CREATE: create(c); break;
    case VB_HULL_PROGRAM_STOP: stop(c); break;
    default: query(c); break;
    }
}
