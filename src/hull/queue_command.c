// SPDX-License-Identifier: Apache-2.0
// Requests about queues: completion queues, shared receive queues and queue pairs.
#include "hull/command.h"

#include "nic/pace.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <string.h>

enum {
    RECORD_BYTES = 8, // of doorbells
    LINE = 64,        // rings and records begin on cache lines
    FETCH_MAX = 4096, // entries fetched ahead, which the hull has to keep
};

#define START_MAX (UINT64_C(1) << 48) // counters never get to their end

static void *find(struct vb_hull_command *c, const struct vb_hull_place *place, uint64_t bytes,
                  struct vb_hull_hold **hold)
{
    return vb_hull_memory_find(c->client, place, bytes, LINE, hold, c->reply);
}

static bool charge(struct vb_hull_command *c, bool queue_pair, uint64_t entries)
{
    struct vb_hull_tenant *t = c->client->tenant;
    uint64_t *used = queue_pair ? &t->used.queue_pairs : &t->used.queues;
    uint64_t quota = queue_pair ? t->quota.queue_pairs : t->quota.queues;

    if (!vb_hull_charge(t, used, quota, 1, queue_pair ? "queue pairs" : "queues and channels",
                        c->reply))
        return false;
    if (vb_hull_charge(t, &t->used.entries, t->quota.entries, entries, "entries of queues",
                       c->reply))
        return true;
    --*used;
    return false;
}

static void discharge(struct vb_hull_command *c, bool queue_pair, uint64_t entries)
{
    struct vb_hull_tenant *t = c->client->tenant;

    --*(queue_pair ? &t->used.queue_pairs : &t->used.queues);
    t->used.entries -= entries;
}

static bool is_in_range(struct vb_hull_command *c, bool legal, const char *what)
{
    if (!legal)
        vb_hull_refuse(c->reply, -EINVAL, "%s is out of range", what);
    return legal;
}

// Enters what the device has made. NULL: it cannot be kept.
static struct vb_hull_object *enter(struct vb_hull_command *c, enum vb_hull_kind kind,
                                    uint32_t number, uint32_t entries,
                                    struct vb_hull_hold *const hold[3])
{
    struct vb_hull_object *o = vb_hull_object_add(c->client, kind, number);

    if (!o) {
        vb_hull_refuse(c->reply, -ENOMEM, "the hull is out of memory");
        return NULL;
    }
    o->entries = entries;
    vb_hull_object_hold(o, hold);
    c->reply->number = number;
    return o;
}

// Of what names a domain of XRC: that one stays as long.
static void join_domain(struct vb_hull_object *o, uint32_t xrcd)
{
    o->xrcd = xrcd ? vb_hull_object_find(o->client, VB_HULL_XRCD, xrcd) : NULL;
    if (o->xrcd)
        o->xrcd->users++;
}

// ---- completion queues

static bool find_channel(struct vb_hull_command *c, uint32_t number,
                         struct vb_hull_object **channel)
{
    *channel = NULL;
    if (number == 0)
        return true;
    *channel = vb_hull_find(c, VB_HULL_CHANNEL, number);
    if (*channel && (*channel)->users == VB_HULL_CHANNEL_CQS) {
        vb_hull_refuse(c->reply, -ENOSPC, "a channel takes %d completion queues",
                       VB_HULL_CHANNEL_CQS);
        return false;
    }
    return *channel;
}

static void make_cq(struct vb_hull_command *c, const struct vb_cqc_attr *attr,
                    struct vb_hull_object *channel, struct vb_hull_hold *const hold[3])
{
    struct vb_hull *hull = c->client->hull;
    uint32_t cqn;

    if (!vb_hull_judge(c, vb_dev_cq_create(c->dev, attr, &cqn), "this completion queue"))
        return;
    if (hull->cq[cqn & (VB_HULL_CQS - 1)]) {
        vb_hull_refuse(c->reply, -ENOSPC, "the NIC has %d completion queues", VB_HULL_CQS);
        vb_dev_cq_destroy(c->dev, cqn);
        return;
    }
    struct vb_hull_object *o = enter(c, VB_HULL_CQ, cqn, attr->entries, hold);
    if (!o) {
        vb_dev_cq_destroy(c->dev, cqn);
        return;
    }
    o->channel = channel;
    o->record = attr->dbrec;
    o->unit = attr->pu;
    if (o->made)
        o->made->cq.unit = attr->pu;
    c->reply->value = attr->pu;
    hull->unit[o->unit].load++;
    if (channel)
        channel->users++;
    hull->cq[cqn & (VB_HULL_CQS - 1)] = o;
    // Of the one that had the number before.
    atomic_fetch_and_explicit(&c->client->page->due[cqn % VB_HULL_CQS / 64],
                              ~(UINT64_C(1) << cqn % 64), memory_order_relaxed);
}

static void cq_create(struct vb_hull_command *c)
{
    const struct vb_hull_cq *q = &c->request->cq;
    struct vb_hull_hold *hold[3] = {NULL};
    struct vb_hull_object *channel;

    if (!is_in_range(c, q->entries > 0 && q->entries <= VB_CQ_ENTRIES_MAX, "its length") ||
        !is_in_range(c, q->start < START_MAX && q->ignore_overrun <= 1, "a value") ||
        !is_in_range(c, q->unit < c->client->hull->units, "its unit") ||
        !find_channel(c, q->channel, &channel))
        return;
    struct vb_cqc_attr attr = {.pu = vb_hull_unit_choose(c->client, q->unit),
                               .entries = q->entries,
                               .start = q->start,
                               .owner = c->client->number,
                               .ignore_overrun = q->ignore_overrun};
    attr.ring = find(c, &q->ring, (uint64_t)q->entries * VB_CQE_BYTES, &hold[0]);
    attr.dbrec = attr.ring ? find(c, &q->record, RECORD_BYTES, &hold[1]) : NULL;
    if (!attr.dbrec || !charge(c, false, q->entries))
        return;
    make_cq(c, &attr, channel, hold);
    if (c->reply->error)
        discharge(c, false, q->entries);
}

static void cq_moderate(struct vb_hull_command *c)
{
    const struct vb_hull_moderation *m = &c->request->moderation;

    if (vb_hull_find(c, VB_HULL_CQ, c->request->number) &&
        is_in_range(c, m->period_ns < START_MAX, "the period"))
        vb_hull_judge(c, vb_dev_cq_moderate(c->dev, c->request->number, m->count, m->period_ns),
                      "this moderation");
}

static void cq_produced(struct vb_hull_command *c)
{
    uint64_t produced = 0;

    if (vb_hull_find(c, VB_HULL_CQ, c->request->number) &&
        vb_hull_judge(c, vb_dev_cq_produced(c->dev, c->request->number, &produced), "to count"))
        c->reply->value = produced;
}

// ---- shared receive queues

static void srq_create(struct vb_hull_command *c)
{
    const struct vb_hull_srq *q = &c->request->srq;
    struct vb_hull_hold *hold[3] = {NULL};
    uint32_t srqn;

    if (!vb_hull_find(c, VB_HULL_PD, q->pd) ||
        !is_in_range(c, q->entries > 0 && q->entries <= VB_RQ_ENTRIES_MAX, "its length") ||
        !is_in_range(c, q->stride_bytes <= 512, "its stride") ||
        !is_in_range(c, (q->xrcd != 0) == (q->cqn != 0), "its completion queue") ||
        (q->xrcd &&
         (!vb_hull_find(c, VB_HULL_XRCD, q->xrcd) || !vb_hull_find(c, VB_HULL_CQ, q->cqn))))
        return;
    struct vb_srqc_attr attr = {.pd = q->pd,
                                .entries = q->entries,
                                .stride_bytes = q->stride_bytes,
                                .xrcd = q->xrcd,
                                .cqn = q->cqn};
    attr.ring = find(c, &q->ring, (uint64_t)q->entries * q->stride_bytes, &hold[0]);
    attr.dbrec = attr.ring ? find(c, &q->record, RECORD_BYTES, &hold[1]) : NULL;
    if (!attr.dbrec || !charge(c, false, q->entries))
        return;
    if (vb_hull_judge(c, vb_dev_srq_create(c->dev, &attr, &srqn), "this shared receive queue")) {
        struct vb_hull_object *o = enter(c, VB_HULL_SRQ, srqn, q->entries, hold);
        if (o)
            join_domain(o, q->xrcd);
        else
            vb_dev_srq_destroy(c->dev, srqn);
    }
    if (c->reply->error)
        discharge(c, false, q->entries);
}

static void srq_arm(struct vb_hull_command *c)
{
    const struct vb_hull_request *r = c->request;

    if (vb_hull_find(c, VB_HULL_SRQ, r->number))
        vb_hull_judge(c, vb_dev_srq_arm(c->dev, r->number, r->value), "this limit");
}

static void srq_limit(struct vb_hull_command *c)
{
    uint32_t limit = 0;

    if (vb_hull_find(c, VB_HULL_SRQ, c->request->number) &&
        vb_hull_judge(c, vb_dev_srq_limit(c->dev, c->request->number, &limit), "to tell"))
        c->reply->value = limit;
}

static void srq_progress(struct vb_hull_command *c)
{
    struct vb_srq_progress progress;

    if (vb_hull_find(c, VB_HULL_SRQ, c->request->number) &&
        vb_hull_judge(c, vb_dev_srq_progress(c->dev, c->request->number, &progress), "to tell"))
        c->reply->srq_progress = progress;
}

// ---- queue pairs

static bool is_qp_legal(struct vb_hull_command *c, const struct vb_hull_qp *q)
{
    const uint32_t chain = VB_QP_CROSS_CHANNEL | VB_QP_MANAGED_SEND | VB_QP_MANAGED_RECV |
                           VB_QP_NO_WQE_CHECKS | VB_QP_BE_REPLIES;
    bool manages = q->chain == VB_HULL_QP_MANAGES && q->type == VB_QPT_UD;

    return vb_hull_find(c, VB_HULL_PD, q->pd) && vb_hull_find(c, VB_HULL_CQ, q->send_cqn) &&
           vb_hull_find(c, VB_HULL_CQ, q->recv_cqn) &&
           (!c->request->value || vb_hull_find(c, VB_HULL_PROGRAM, c->request->value)) &&
           (!q->srqn ||
            vb_hull_find(c, q->type == VB_QPT_XRC_TGT ? VB_HULL_XRCD : VB_HULL_SRQ, q->srqn)) &&
           is_in_range(c, q->type < VB_QPT_COUNT && (manages || !(q->chain & ~chain)),
                       "its service") &&
           is_in_range(c, q->send_blocks > 0 && q->send_blocks <= VB_SQ_BLOCKS_MAX,
                       "its send queue") &&
           is_in_range(c,
                       q->recv_entries <= VB_RQ_ENTRIES_MAX && q->recv_stride_bytes <= 256 &&
                           !(q->recv_entries && q->srqn),
                       "its receive queue") &&
           is_in_range(c, q->fetch_depth <= FETCH_MAX, "its depth of fetching ahead") &&
           is_in_range(c, q->send_start < START_MAX && q->recv_start < START_MAX, "its start");
}

static bool find_rings(struct vb_hull_command *c, const struct vb_hull_qp *q,
                       struct vb_qpc_attr *attr, struct vb_hull_hold *hold[3])
{
    uint64_t recv_bytes = (uint64_t)q->recv_entries * q->recv_stride_bytes;

    attr->sq_ring = find(c, &q->send, (uint64_t)q->send_blocks * VB_WQEBB_BYTES, &hold[0]);
    if (!attr->sq_ring)
        return false;
    attr->dbrec = find(c, &q->record, RECORD_BYTES, &hold[1]);
    if (!attr->dbrec)
        return false;
    if (q->recv_entries)
        attr->rq_ring = find(c, &q->recv, recv_bytes, &hold[2]);
    return !q->recv_entries || attr->rq_ring;
}

static void make_qp(struct vb_hull_command *c, const struct vb_qpc_attr *attr, uint32_t entries,
                    struct vb_hull_hold *const hold[3], struct vb_hull_object *seat)
{
    uint32_t qpn;

    if (!vb_hull_judge(c, vb_dev_qp_create(c->dev, attr, &qpn), "this queue pair"))
        return;
    struct vb_hull_object *o = enter(c, VB_HULL_QP, qpn, entries, hold);
    if (!o) {
        vb_dev_qp_destroy(c->dev, qpn);
        return;
    }
    struct vb_hull_unit *unit = vb_hull_unit_of(c->client->hull, qpn);
    o->record = attr->dbrec;
    join_domain(o, attr->xrcd);
    o->unit = unit->index;
    unit->load++;
    c->client->hull->qp[qpn & (VB_DOORBELL_QPS - 1)] = o;
    if (seat)
        seat->qp = o;
}

static void qp_create(struct vb_hull_command *c)
{
    const struct vb_hull_qp *q = &c->request->qp;
    struct vb_hull_hold *hold[3] = {NULL};
    struct vb_hull_object *seat = NULL;
    uint32_t entries = q->send_blocks + q->recv_entries + q->fetch_depth;

    if (!is_qp_legal(c, q) || (q->chain == VB_HULL_QP_MANAGES && !(seat = vb_hull_seat_for_qp(c))))
        return;
    bool target = q->type == VB_QPT_XRC_TGT;
    struct vb_qpc_attr attr = {.pd = q->pd,
                               .type = (enum vb_qp_type)q->type,
                               .srqn = target ? 0 : q->srqn,
                               .xrcd = target ? q->srqn : 0,
                               .send_cqn = q->send_cqn,
                               .recv_cqn = q->recv_cqn,
                               .sq_blocks = q->send_blocks,
                               .rq_entries = q->recv_entries,
                               .rq_stride_bytes = q->recv_stride_bytes,
                               .sq_start = q->send_start,
                               .rq_start = q->recv_start,
                               .no_wqe_checks = q->chain & VB_QP_NO_WQE_CHECKS,
                               .be_replies = q->chain & VB_QP_BE_REPLIES,
                               .cross_channel = q->chain & VB_QP_CROSS_CHANNEL,
                               .managed_send = q->chain & VB_QP_MANAGED_SEND,
                               .managed_recv = q->chain & VB_QP_MANAGED_RECV,
                               .fetch_depth = q->fetch_depth,
                               .rate = q->rate,
                               .burst = q->burst,
                               .program = c->request->value,
                               .share = c->client->tenant->share};
    if (!find_rings(c, q, &attr, hold) || !charge(c, true, entries))
        return;
    make_qp(c, &attr, entries, hold, seat);
    if (c->reply->error)
        discharge(c, true, entries);
    else if (attr.type == VB_QPT_UD && !seat)
        vb_host_tell_headers(c->client->hull->nic);
}

static uint64_t tenant_Bps(const struct vb_hull_command *c)
{
    return c->client->tenant->quota.rate_kbps * 125;
}

// Addresses are the NIC's own, whatever the application says; of several it may choose.
static bool choose_address(struct vb_hull_command *c, struct vb_qpc_mods *mods)
{
    struct vb_hull *hull = c->client->hull;
    const struct vb_ip wanted = mods->local;

    mods->src_port = hull->lane->port->src_port;
    mods->local = hull->lane->port->local;
    vb_host_forget_default(hull->nic, &mods->attr);
    if (mods->state != VB_QPS_RTR ||
        vb_host_local(hull->nic, wanted.b, mods->remote.b, &mods->local) == 0)
        return true;
    vb_hull_refuse(c->reply, -EADDRNOTAVAIL, "the hull's NIC is not on the address to leave from");
    return false;
}

// The queue pair runs at once: who asked for ERR finds what was flushed.
static void qp_modify(struct vb_hull_command *c)
{
    struct vb_hull *hull = c->client->hull;
    struct vb_qpc_mods mods = c->request->mods;
    uint32_t qpn = c->request->number;
    struct vb_lane *lane = vb_hull_unit_of(hull, qpn)->lane;

    if (!vb_hull_find(c, VB_HULL_QP, qpn) ||
        !is_in_range(c, (uint32_t)mods.state < VB_QPS_COUNT, "the state") ||
        !is_in_range(c, mods.silent <= 1, "the silence of a drained queue"))
        return;
    if (!choose_address(c, &mods))
        return;
    if (!vb_hull_judge(c, vb_dev_qp_modify(c->dev, qpn, &mods), "this change"))
        return;
    if (mods.state == VB_QPS_RTS && tenant_Bps(c))
        vb_dev_qp_limit(c->dev, qpn, tenant_Bps(c), 0);
    vb_doorbell_ring(vb_pu_doorbells(lane->pu), qpn);
    vb_lane_run(lane);
}

static void qp_tune(struct vb_hull_command *c)
{
    const struct vb_hull_tune *t = &c->request->tune;

    if (vb_hull_find(c, VB_HULL_QP, c->request->number) &&
        is_in_range(c, t->min_rnr_timer <= 31, "the timer"))
        vb_hull_judge(c,
                      vb_dev_qp_tune(c->dev, c->request->number, t->access,
                                     (uint8_t)t->min_rnr_timer, t->qkey),
                      "these rights");
}

static void qp_limit(struct vb_hull_command *c)
{
    const struct vb_hull_limit *l = &c->request->limit;
    uint64_t rate = l->rate_Bps, most = tenant_Bps(c);
    uint32_t burst = l->burst_bytes;

    if (most && (rate == 0 || rate > most))
        rate = most;
    if (most && burst > VB_PACE_BURST_BYTES)
        burst = VB_PACE_BURST_BYTES;
    if (vb_hull_find(c, VB_HULL_QP, c->request->number) &&
        is_in_range(c, rate < START_MAX, "the rate"))
        vb_hull_judge(c, vb_dev_qp_limit(c->dev, c->request->number, rate, burst), "this limit");
}

static void qp_state(struct vb_hull_command *c)
{
    enum vb_qp_state state;

    if (vb_hull_find(c, VB_HULL_QP, c->request->number) &&
        vb_hull_judge(c, vb_dev_qp_state(c->dev, c->request->number, &state), "to tell"))
        c->reply->value = state;
}

static void qp_progress(struct vb_hull_command *c)
{
    struct vb_qp_progress progress;

    if (vb_hull_find(c, VB_HULL_QP, c->request->number) &&
        vb_hull_judge(c, vb_dev_qp_progress(c->dev, c->request->number, &progress), "to tell"))
        c->reply->progress = progress;
}

static void qp_settle(struct vb_hull_command *c)
{
    if (!vb_hull_find(c, VB_HULL_QP, c->request->number))
        return;
    vb_dev_qp_settle(c->dev, c->request->number);
    vb_lane_run(vb_hull_unit_of(c->client->hull, c->request->number)->lane);
}

static void qp_counters(struct vb_hull_command *c)
{
    const struct vb_qp_counters *all = vb_hull_find(c, VB_HULL_QP, c->request->number)
                                           ? vb_dev_qp_counters(c->dev, c->request->number)
                                           : NULL;
    if (all)
        c->reply->counters = *all;
}

void vb_hull_queue_command(struct vb_hull_command *c)
{
    switch (c->request->op) {
    case VB_HULL_CQ_CREATE: cq_create(c); break;
    case VB_HULL_CQ_MODERATE: cq_moderate(c); break;
    case VB_HULL_CQ_PRODUCED: cq_produced(c); break;
    case VB_HULL_SRQ_CREATE: srq_create(c); break;
    case VB_HULL_SRQ_ARM: srq_arm(c); break;
    case VB_HULL_SRQ_LIMIT: srq_limit(c); break;
    case VB_HULL_SRQ_PROGRESS: srq_progress(c); break;
    case VB_HULL_QP_CREATE: qp_create(c); break;
    case VB_HULL_QP_MODIFY: qp_modify(c); break;
    case VB_HULL_QP_TUNE: qp_tune(c); break;
    case VB_HULL_QP_LIMIT: qp_limit(c); break;
    case VB_HULL_QP_STATE: qp_state(c); break;
    case VB_HULL_QP_PROGRESS: qp_progress(c); break;
    case VB_HULL_QP_SETTLE: qp_settle(c); break;
    case VB_HULL_QP_COUNTERS: qp_counters(c); break;
    default: vb_hull_refuse(c->reply, -ENOSYS, "there is no request %u", c->request->op); break;
    }
}
