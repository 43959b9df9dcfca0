// SPDX-License-Identifier: Apache-2.0
// What a device can say of its objects.
#include "nic/facts.h"

#include "nic/pu.h"
#include "nic/qp.h"

#include <string.h>

static bool is_window(const struct vb_mkey *m)
{
    return m->kind == VB_MKEY_WINDOW1 || m->kind == VB_MKEY_WINDOW2;
}

void vb_facts_count(const struct vb_dev *dev, struct vb_count_facts *facts)
{
    *facts = (struct vb_count_facts){.qps = dev->qp_count};
    for (uint32_t i = 0; i < dev->pd_room; i++)
        facts->pds += dev->pd_users[i] != UINT32_MAX;
    for (uint32_t i = 0; i < dev->cq_room; i++)
        facts->cqs += dev->cqs[i] != NULL;
    for (uint32_t i = 0; i < dev->srq_room; i++)
        facts->srqs += dev->srqs[i] != NULL;
    for (uint32_t i = 0; i <= dev->mkeys.mask; i++) {
        const struct vb_mkey *m = &dev->mkeys.slots[i];
        facts->mws += m->key && is_window(m);
        facts->mrs += m->key && !is_window(m);
    }
}

static void tell_qp(const struct vb_qpc *qp, struct vb_qp_facts *f)
{
    *f = (struct vb_qp_facts){
        .qpn = qp->qpn,
        .dest_qpn = qp->dest_qpn,
        .pd = qp->pd,
        .type = qp->type,
        .state = qp->state,
        .sq_psn = qp->req.send_psn,
        .rq_psn = qp->resp.epsn,
        .mtu_bytes = qp->mtu,
        .send_cqn = qp->send_cq->cqn,
        .recv_cqn = qp->recv_cq->cqn,
        .srqn = qp->srq ? qp->srq->srqn : 0,
        .connected = qp->path && qp->type != VB_QPT_UD,
        .count = qp->count,
    };
    if (f->connected)
        f->remote = qp->path->remote;
}

uint32_t vb_facts_qps(const struct vb_dev *dev, uint32_t *at, struct vb_qp_facts *facts,
                      uint32_t room)
{
    uint32_t told = 0;

    for (; *at < VB_DOORBELL_QPS && told < room; ++*at)
        if (dev->qps[*at])
            tell_qp(dev->qps[*at], &facts[told++]);
    return told;
}

uint32_t vb_facts_cqs(const struct vb_dev *dev, uint32_t *at, struct vb_cq_facts *facts,
                      uint32_t room)
{
    uint32_t told = 0;

    for (; *at < dev->cq_room && told < room; ++*at) {
        const struct vb_cqc *cq = dev->cqs[*at];
        if (cq)
            facts[told++] = (struct vb_cq_facts){.cqn = cq->cqn,
                                                 .entries = cq->entries,
                                                 .users = cq->users,
                                                 .produced = cq->produced,
                                                 .overrun = cq->overrun};
    }
    return told;
}

uint32_t vb_facts_mrs(const struct vb_dev *dev, uint32_t *at, struct vb_mr_facts *facts,
                      uint32_t room)
{
    uint32_t told = 0;

    for (; *at <= dev->mkeys.mask && told < room; ++*at) {
        const struct vb_mkey *m = &dev->mkeys.slots[*at];
        if (m->key)
            facts[told++] = (struct vb_mr_facts){.key = m->key,
                                                 .pd = m->pd,
                                                 .start = m->start,
                                                 .len = m->len,
                                                 .access = m->access,
                                                 .window = is_window(m)};
    }
    return told;
}

uint32_t vb_facts_pds(const struct vb_dev *dev, uint32_t *at, struct vb_pd_facts *facts,
                      uint32_t room)
{
    uint32_t told = 0;

    for (; *at < dev->pd_room && told < room; ++*at)
        if (dev->pd_users[*at] != UINT32_MAX)
            facts[told++] = (struct vb_pd_facts){.pd = *at + 1, .users = dev->pd_users[*at]};
    return told;
}

uint32_t vb_facts_srqs(const struct vb_dev *dev, uint32_t *at, struct vb_srq_facts *facts,
                       uint32_t room)
{
    uint32_t told = 0;

    for (; *at < dev->srq_room && told < room; ++*at) {
        const struct vb_srqc *srq = dev->srqs[*at];
        if (srq)
            facts[told++] = (struct vb_srq_facts){.srqn = srq->srqn,
                                                  .pd = srq->pd,
                                                  .entries = srq->entries,
                                                  .users = srq->users,
                                                  .limit = srq->limit,
                                                  .xrc = srq->xrcd != 0,
                                                  .cqn = srq->cq ? srq->cq->cqn : 0};
    }
    return told;
}
