// SPDX-License-Identifier: Apache-2.0
// Completions and events of the rig: each comes once and in order, and none is lost.
#include "rig.h"

static struct rig_qp *qp_of(struct rig *r, uint32_t qpn)
{
    for (uint32_t i = 0; i < RIG_QPS; i++)
        if (r->qp[i].driver.qpn == qpn)
            return &r->qp[i];
    return NULL;
}

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct rig_qp *q = qp_of(ctx, qpn);
    return q ? &q->driver : NULL;
}

static struct rig_srq *srq_of(struct rig *r, uint32_t srqn)
{
    for (uint32_t i = 0; i < RIG_SRQS; i++)
        if (r->srq[i].srqn == srqn)
            return &r->srq[i];
    return NULL;
}

struct vb_driver_srq *rig_find_srq(void *ctx, uint32_t srqn)
{
    struct rig_srq *s = srq_of(ctx, srqn);
    return s ? &s->driver : NULL;
}

// ---- completions

static void check_shared(struct rig_srq *s, uint64_t id)
{
    rig_require(id < s->next_id && s->posted[id % RIG_SHARED_IDS]);
    s->posted[id % RIG_SHARED_IDS] = false;
    s->completed++;
}

static void check_completion(struct rig *r, const struct vb_wc *wc)
{
    struct rig_qp *q = qp_of(r, wc->qpn);
    rig_require(q != NULL);
    if (wc->opcode != VB_WC_RECV && wc->opcode != VB_WC_RECV_WRITE) {
        // Those without a completion of their own are passed over.
        rig_require(wc->wr_id >= q->send_done && wc->wr_id < q->send_id);
        q->send_done = wc->wr_id + 1;
    } else if (q->type == VB_QPT_XRC_TGT || q->srq) {
        check_shared(q->srq ? q->srq : &r->srq[1], wc->wr_id);
    } else {
        rig_require(wc->wr_id == q->recv_done && q->recv_done < q->recv_id);
        q->recv_done++;
    }
}

static void take_completions(struct rig *r, struct rig_cq *c)
{
    struct vb_wc wc;
    r->overran = r->overran || c->ctx->overrun;
    while (vb_driver_poll(&c->driver, find, r, &wc, 1) > 0)
        if (r->orderly && !r->overran)
            check_completion(r, &wc);
}

void rig_check_receives(struct rig *r)
{
    if (!r->orderly || r->overran)
        return;
    uint64_t in_use[RIG_SRQS] = {0};
    for (uint32_t i = 0; i < RIG_QPS; i++) {
        const struct rig_qp *q = &r->qp[i];
        const struct vb_recv *recv = &q->ctx->resp.recv;
        if (!recv->loaded || recv->srq == NULL)
            rig_require(q->ctx->rq.taken == q->driver.rq.ci + recv->loaded);
        for (uint32_t k = 0; k < RIG_SRQS; k++)
            in_use[k] += recv->loaded && recv->srq == r->srq[k].ctx;
    }
    for (uint32_t k = 0; k < RIG_SRQS; k++) {
        const struct rig_srq *s = &r->srq[k];
        rig_require(s->ctx->taken == s->completed + s->lost + in_use[k]);
    }
}

// ---- events

static void check_event(struct rig *r, const struct vb_event *e)
{
    struct rig_srq *s;
    rig_require((unsigned)e->kind < VB_EVENT_COUNT);
    switch (e->kind) {
    case VB_EVENT_SRQ_LIMIT:
        s = srq_of(r, e->number);
        rig_require(!s || ++s->events <= s->arms);
        break;
    case VB_EVENT_CQ_COMPLETION:
    case VB_EVENT_CQ_ERR:
        for (uint32_t i = 0; i < RIG_CQS; i++) {
            struct rig_cq *c = &r->cq[i];
            if (c->cqn != e->number)
                continue;
            rig_require(e->kind == VB_EVENT_CQ_COMPLETION || c->ctx->overrun);
            c->events += e->kind == VB_EVENT_CQ_COMPLETION;
            rig_require(!r->orderly || c->events <= c->arms);
        }
        break;
    default: break;
    }
}

void rig_check_armed(const struct rig *r)
{
    for (uint32_t i = 0; i < RIG_CQS; i++) {
        struct vb_cqc copy = *r->cq[i].ctx;
        // One that several units write to has no timer: its event goes where there is no room.
        bool judged = r->orderly && r->cq[i].arms > 0 && !copy.crossing;
        if (judged && vb_cqc_fires(&copy))
            rig_require(copy.timer.deadline_ns != VB_TIMER_NEVER);
    }
}

void rig_take_events(struct rig *r, struct vb_pu *pu)
{
    struct vb_event event;
    while (vb_pu_take_event(pu, &event))
        check_event(r, &event);
}

void rig_complete(struct rig *r)
{
    for (uint32_t i = 0; i < r->units; i++)
        vb_pu_publish(vb_dev_pu_at(r->dev, i));
    for (uint32_t i = 0; i < RIG_CQS; i++)
        take_completions(r, &r->cq[i]);
    for (uint32_t i = 0; i < r->units; i++)
        rig_take_events(r, vb_dev_pu_at(r->dev, i));
}
