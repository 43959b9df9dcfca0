// SPDX-License-Identifier: Apache-2.0
// Requests that change queues which are there: another ring for a completion queue, multicast
// groups, and datagrams that are spread.
#include "hull/command.h"

#include "host/host.h"
#include "nic/spread.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <string.h>

enum {
    LINE = 64,          // rings begin on cache lines
    MOVE_MAX = 1 << 14, // entries that are moved at once, while others wait
};

// ---- completion queues

static bool charge_entries(struct vb_hull_command *c, const struct vb_hull_object *cq,
                           uint32_t entries)
{
    struct vb_hull_tenant *t = c->client->tenant;
    uint32_t more = entries > cq->entries ? entries - cq->entries : 0;

    return more == 0 || vb_hull_charge(t, &t->used.entries, t->quota.entries, more,
                                       "entries of queues", c->reply);
}

// The entries that wait are moved here, where the NIC is at rest.
static void cq_resize(struct vb_hull_command *c)
{
    const struct vb_hull_resize *r = &c->request->resize;
    struct vb_hull_object *o = vb_hull_find(c, VB_HULL_CQ, c->request->number);
    uint64_t consumed = r->consumed, produced;
    struct vb_hull_hold *hold;

    if (!o || !vb_hull_judge(c, vb_dev_cq_produced(c->dev, o->number, &produced), "to count"))
        return;
    if (r->entries == 0 || r->entries > VB_CQ_ENTRIES_MAX || consumed > produced) {
        vb_hull_refuse(c->reply, -EINVAL, "its length or counter is out of range");
        return;
    }
    if (produced - consumed > MOVE_MAX && r->entries > MOVE_MAX && o->entries > MOVE_MAX) {
        vb_hull_refuse(c->reply, -EBUSY, "more than %d completions wait: poll first", MOVE_MAX);
        return;
    }
    void *ring = vb_hull_memory_find(c->client, &r->ring, (uint64_t)r->entries * VB_CQE_BYTES, LINE,
                                     &hold, c->reply);
    if (!ring || !charge_entries(c, o, r->entries))
        return;
    struct vb_hull_quota *used = &c->client->tenant->used;
    uint32_t most = r->entries > o->entries ? r->entries : o->entries;
    if (!vb_hull_judge(c, vb_dev_cq_move(c->dev, o->number, &consumed, ring, r->entries),
                       "this length")) {
        used->entries -= most - o->entries;
        return;
    }
    used->entries -= most - r->entries;
    o->entries = r->entries;
    if (o->made) {
        o->made->cq.ring = r->ring;
        o->made->cq.entries = r->entries;
    }
    o->hold[0]->users--;
    o->hold[0] = hold;
    hold->users++;
    c->reply->value = consumed;
}

// ---- multicast groups

static struct vb_lane *lane_of(const struct vb_hull_object *qp)
{
    return qp->client->hull->unit[qp->unit].lane;
}

static void qp_join(struct vb_hull_command *c)
{
    struct vb_hull_object *o = vb_hull_find(c, VB_HULL_QP, c->request->number);
    struct vb_hull_tenant *t = c->client->tenant;
    struct vb_ip group;

    if (!o)
        return;
    if (o->groups == VB_HULL_QP_GROUPS) {
        vb_hull_refuse(c->reply, -ENOSPC, "a queue pair is in %d groups at most",
                       VB_HULL_QP_GROUPS);
        return;
    }
    if (t->groups == VB_HULL_GROUPS) {
        vb_hull_refuse(c->reply, -ENOSPC, "the queue pairs of a user are in %d groups at most",
                       VB_HULL_GROUPS);
        return;
    }
    if (!vb_hull_charge(t, &t->used.queues, t->quota.queues, 1, "queues, channels and groups",
                        c->reply))
        return;
    memcpy(group.b, c->request->group.gid, sizeof group.b);
    if (!vb_hull_judge(c, vb_host_join_group(lane_of(o), o->number, &group), "this group")) {
        t->used.queues--;
        return;
    }
    o->groups++;
    t->groups++;
    vb_hull_units_wake(c->client->hull, 1u << o->unit); // it sleeps on another descriptor now
}

static void qp_leave(struct vb_hull_command *c)
{
    struct vb_hull_object *o = vb_hull_find(c, VB_HULL_QP, c->request->number);
    struct vb_ip group;

    memcpy(group.b, c->request->group.gid, sizeof group.b);
    if (!o || !vb_hull_judge(c, vb_host_leave_group(lane_of(o), o->number, &group),
                             "to leave this group"))
        return;
    o->groups--;
    c->client->tenant->groups--;
    c->client->tenant->used.queues--;
}

void vb_hull_leave_groups(struct vb_hull_object *qp)
{
    vb_host_leave_all_groups(lane_of(qp), qp->number);
    qp->client->tenant->groups -= qp->groups;
    qp->client->tenant->used.queues -= qp->groups;
    qp->groups = 0;
    qp->client->tenant->spreads -= qp->spreads;
    qp->spreads = false;
}

// ---- spreading

// The numbers are copied before they are looked at: the application can change them at any time.
static void qp_spread(struct vb_hull_command *c)
{
    const struct vb_hull_spread *s = &c->request->spread;
    struct vb_hull_object *o = vb_hull_find(c, VB_HULL_QP, c->request->number);
    struct vb_hull_hold *hold;
    uint32_t members[VB_SPREAD_MAX];

    if (!o)
        return;
    if (c->client->tenant->spreads == VB_HULL_SPREADS) {
        vb_hull_refuse(c->reply, -ENOSPC, "%d queue pairs of a user spread at most",
                       VB_HULL_SPREADS);
        return;
    }
    if (s->count > VB_SPREAD_MAX || s->fields & ~(uint32_t)(VB_SPREAD_SRC | VB_SPREAD_DST)) {
        vb_hull_refuse(c->reply, -EINVAL, "the number of members, or what counts, is out of range");
        return;
    }
    const void *list = vb_hull_memory_find(c->client, &s->members, s->count * sizeof members[0],
                                           sizeof members[0], &hold, c->reply);
    if (!list)
        return;
    for (uint32_t i = 0; i < s->count; i++) {
        members[i] = __atomic_load_n((const uint32_t *)list + i, __ATOMIC_RELAXED);
        if (!vb_hull_find(c, VB_HULL_QP, members[i]))
            return;
    }
    struct vb_spread_attr attr = {.qpn = members, .count = s->count, .fields = s->fields};
    memcpy(attr.key, s->key, sizeof attr.key);
    if (!vb_hull_judge(c, vb_dev_qp_spread(c->dev, o->number, &attr), "to spread to these"))
        return;
    o->spreads = true;
    c->client->tenant->spreads++;
}

void vb_hull_change_queue(struct vb_hull_command *c)
{
    switch (c->request->op) {
    case VB_HULL_CQ_RESIZE: cq_resize(c); break;
    case VB_HULL_QP_JOIN: qp_join(c); break;
    case VB_HULL_QP_LEAVE: qp_leave(c); break;
    default: qp_spread(c); break;
    }
}
