// SPDX-License-Identifier: Apache-2.0
// The reference model's shared receive queues: who takes first gets the oldest receive, the limit
// is told once, a failed queue pair says when it has none in use; and XRC, whose requests name the
// queue that they use.
#include "sim/model.h"

static struct vb_coverage *cover_of(const struct vb_node *node)
{
    return node->world->cover;
}

// ---- receives

static void tell_limit(struct vb_simsrq *srq)
{
    if (!srq->limit || srq->posted - srq->taken >= srq->limit)
        return;
    srq->limit = 0;
    vb_model_expect(srq->node, VB_EVENT_SRQ_LIMIT, srq->srqn);
}

static void cover_taken(struct vb_simsrq *srq)
{
    vb_cover(cover_of(srq->node), VB_COVER_SRQ_TAKEN);
    if (srq->taken > 0 && srq->last_unit != srq->node->at->index)
        vb_cover(cover_of(srq->node), VB_COVER_UNIT_SRQ_CROSSED);
    srq->last_unit = srq->node->at->index;
}

bool vb_model_take_receive(struct vb_ep *ep)
{
    struct vb_answering *a = &ep->answer;
    struct vb_simsrq *srq = vb_ep_is_xrc_target(ep) ? a->srq : ep->srq;

    if (!srq) {
        if (a->taken == a->posted)
            return false;
        a->taken++;
        return true;
    }
    if (srq->taken == srq->posted) {
        if (!vb_ep_is_unreliable(ep))
            vb_cover(cover_of(ep->node), VB_COVER_SRQ_RNR);
        return false;
    }
    cover_taken(srq);
    if (vb_ep_is_unreliable(ep))
        vb_cover(cover_of(ep->node), VB_COVER_SRQ_UNRELIABLE);
    uint32_t entry = srq->order[srq->taken++ & (VB_SIM_SRQ_ENTRIES - 1)];
    *vb_ep_intake(ep, a->posted++) = srq->intake[entry];
    a->taken++;
    tell_limit(srq);
    return true;
}

// The queue's domain says which memory its receives may name.
struct vb_user vb_model_receiver(const struct vb_ep *ep, const struct vb_intake *in)
{
    return (struct vb_user){in->srq ? ep->node->pd[in->srq->domain] : ep->pd, ep->qpn};
}

// ---- the end of a queue pair

bool vb_model_is_last(struct vb_node *node, uint32_t qpn)
{
    for (uint32_t i = 0; i < node->ep_count; i++) {
        struct vb_answering *a = &node->ep[i]->answer;
        if (node->ep[i]->qpn != qpn)
            continue;
        bool right = node->ep[i]->state == VB_QPS_ERR && vb_ep_shares(node->ep[i]) &&
                     !a->last_told && a->done == a->posted;
        a->last_told = true;
        return right;
    }
    return false;
}

// Targets of XRC have no queue of which they would have to tell.
void vb_model_srq_idle(struct vb_ep *ep)
{
    VB_MODEL_CHECK(ep, !ep->srq || ep->state != VB_QPS_ERR || ep->answer.last_told,
                   "is idle in ERR, and has not said that no receive is in use");
}

// Of queue pairs on one queue also those whose completions an overrun has swallowed.
void vb_model_srq_lost(struct vb_ep *ep)
{
    struct vb_answering *a = &ep->answer;
    uint64_t first = ep->srq ? a->polled : a->done;

    if (!vb_ep_shares(ep))
        return;
    for (uint64_t i = first; i < a->posted; i++) {
        vb_ep_intake(ep, i)->srq->lost++;
        vb_cover(cover_of(ep->node), VB_COVER_SRQ_LOST);
    }
}

// ---- XRC

bool vb_model_is_served(const struct vb_ep *ep, const struct vb_packet *pkt)
{
    static const enum vb_transport transports[] = {
        [VB_SERVICE_RC] = VB_TP_RC,        [VB_SERVICE_UC] = VB_TP_UC,
        [VB_SERVICE_UD] = VB_TP_UD,        [VB_SERVICE_XRC_SEND] = VB_TP_XRC,
        [VB_SERVICE_XRC_RECV] = VB_TP_XRC,
    };
    bool request = pkt->facts & VB_OP_REQUEST;

    return pkt->transport == transports[ep->opts.service] &&
           (!vb_ep_is_xrc(ep) || request == vb_ep_is_xrc_target(ep));
}

void vb_model_as_rc(const struct vb_ep *ep, struct vb_packet *pkt)
{
    if (vb_ep_is_xrc(ep))
        pkt->opcode &= 0x1f;
}

struct vb_simsrq *vb_model_find_srq(struct vb_ep *ep, uint32_t srqn)
{
    for (uint32_t i = 0; i < ep->node->srq_count; i++) {
        struct vb_simsrq *srq = &ep->node->srq[i];
        if (srq->srqn == srqn && srq->xrcd && srq->xrcd == ep->opts.xrcd)
            return srq;
    }
    return NULL;
}

static void cover_refusal(const struct vb_node *node, uint32_t srqn)
{
    enum vb_cover_row row = VB_COVER_XRC_NO_SRQ;

    for (uint32_t i = 0; i < node->srq_count; i++)
        if (node->srq[i].srqn == srqn)
            row = node->srq[i].xrcd ? VB_COVER_XRC_OTHER_DOMAIN : VB_COVER_XRC_PLAIN_SRQ;
    vb_cover(cover_of(node), row);
}

bool vb_model_names_srq(struct vb_ep *ep, const struct vb_packet *pkt)
{
    if (!vb_ep_is_xrc_target(ep))
        return true;
    struct vb_simsrq *srq = vb_model_find_srq(ep, pkt->xrc_srqn);
    if (!srq) {
        cover_refusal(ep->node, pkt->xrc_srqn);
        return false;
    }
    ep->answer.srq = srq;
    ep->answer.pd = ep->node->pd[srq->domain];
    return true;
}

// A message that was using the queue cannot go on, and its peer hears nothing more.
static void leave(struct vb_ep *ep, const struct vb_simsrq *srq)
{
    struct vb_answering *a = &ep->answer;
    bool in_use = a->taken > a->done && vb_ep_intake(ep, a->done)->srq == srq;
    bool named = a->srq == srq && a->message != VB_SIM_NO_MESSAGE;

    if (in_use) {
        a->posted = a->taken = a->done;
        a->done_due = false;
    }
    if (a->srq == srq)
        a->srq = NULL;
    if ((!in_use && !named) || ep->state == VB_QPS_ERR)
        return;
    vb_cover(cover_of(ep->node), VB_COVER_XRC_SRQ_IN_USE);
    vb_model_failed(ep);
    ep->ask.may_flush = true;
}

// Its completions go with it; those of others move up, as the driver does it.
static void forget_due(struct vb_simcq *cq, const struct vb_simsrq *srq)
{
    uint64_t freed = 0;

    for (uint64_t i = cq->due_tail; i-- > cq->due_head;) {
        const struct vb_due *due = &cq->due[i & cq->due_mask];
        if (due->srq != srq) {
            cq->due[(i + freed) & cq->due_mask] = *due;
            continue;
        }
        due->ep->answer.polled++;
        vb_cover(cover_of(due->ep->node), VB_COVER_XRC_ENTRY_DROPPED);
        freed++;
    }
    cq->due_head += freed;
}

void vb_model_srq_gone(struct vb_simsrq *srq)
{
    for (uint32_t i = 0; i < srq->node->ep_count; i++)
        if (vb_ep_is_xrc_target(srq->node->ep[i]))
            leave(srq->node->ep[i], srq);
    forget_due(&srq->node->cq[srq->cq], srq);
}
