// SPDX-License-Identifier: Apache-2.0
// End-to-end credits (clause 9.7.7.2): a responder tells how many receives wait, and a requester
// sends no message that needs one beyond them. Nothing depends on it: without credits, or with
// wrong ones, the RNR NAK is there.
#include "nic/pu.h"

#include "base/serial.h"
#include "wire/credit.h"

enum {
    LOW = 16,             // who can still send so many will hear more from an ACK soon enough
    WAIT_MAX_NS = 4000000 // until a requester without credits asks by sending all the same
};

// ---- the responder tells

static bool tells(const struct vb_pu *pu, const struct vb_qpc *qp)
{
    return qp->type == VB_QPT_RC && !qp->srq && !pu->dev->no_credits;
}

// Receives that no message uses. While half of the queue is known to wait, the producer's counter
// is left alone: it may be in another core's cache.
static uint32_t waiting(struct vb_qpc *qp)
{
    struct vb_rq *rq = &qp->rq;

    if (rq->end - rq->taken < rq->entries / 2 + 1)
        vb_rq_refresh(qp);
    return (uint32_t)(rq->end - rq->taken);
}

uint8_t vb_credit_tell(const struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;

    if (!tells(pu, qp))
        return vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID);
    // A message that is coming in has its receive, but no message number yet.
    unsigned code = vb_credit_encode(waiting(qp) + r->recv.loaded);
    r->told = true;
    r->told_limit = vb_psn_add(r->msn, vb_credit_decode(code));
    return vb_aeth_syndrome(VB_AETH_ACK, code);
}

void vb_credit_posted(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;
    bool listens = qp->state == VB_QPS_RTR || qp->state == VB_QPS_RTS || qp->state == VB_QPS_SQD;

    if (!r->told || !listens || r->answer != VB_ANSWER_NONE)
        return; // an answer that is owed tells, or leads here again
    int32_t left = vb_psn_diff(r->told_limit, r->msn) - r->recv.loaded;
    if (left >= LOW)
        return;
    if (waiting(qp) > 2 * (uint32_t)(left > 0 ? left : 0)) {
        r->answer = VB_ANSWER_ACK; // once more the last one, with more credits
        vb_pu_kick(pu, qp);
    }
}

// ---- the requester is limited

// The limit was raised or lifted. The timer of a message's wait for credits stops, even if the rate
// still holds the message: the next wait for credits has its whole time.
static void go_on(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    if (r->timer_kind == VB_REQ_TIMER_CREDIT &&
        (!r->limited || !r->cursor || vb_psn_diff(r->cursor->ssn, r->limit) <= 0)) {
        r->timer_kind = VB_REQ_TIMER_NONE;
        vb_timer_disarm(&r->timer);
    }
    vb_pu_kick(pu, qp);
}

void vb_credit_heard(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    struct vb_requester *r = &qp->req;
    unsigned code = vb_aeth_value_of(pkt->syndrome);

    if (vb_aeth_kind_of(pkt->syndrome) != VB_AETH_ACK || pu->dev->no_credits ||
        vb_psn_diff(pkt->psn, r->una_psn) < -1 || vb_psn_diff(pkt->psn, r->max_psn) >= 0)
        return; // says nothing of receives, or is no answer to what was sent last
    if (code == VB_AETH_CREDITS_INVALID) {
        r->limited = false;
        go_on(pu, qp);
        return;
    }
    if (vb_psn_diff(pkt->msn, r->ssn) > 0)
        return; // more messages than were sent
    uint32_t limit = vb_psn_add(pkt->msn, vb_credit_decode(code));
    // What was granted is never taken back: an old answer that comes late changes nothing.
    if (r->limited && vb_psn_diff(limit, r->limit) <= 0)
        return;
    r->limited = true;
    r->limit = limit;
    go_on(pu, qp);
}

bool vb_credit_holds(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    struct vb_requester *r = &qp->req;
    uint64_t wait_ns = qp->ack_timeout_ns;

    if (wr->next == r->unbegun)
        wr->ssn = r->ssn; // the last that began
    if (!r->limited || r->asking || r->send_psn != wr->first_psn ||
        vb_psn_diff(wr->ssn, r->limit) <= 0)
        return false;
    if (r->send_psn != r->una_psn)
        return true; // an answer will come
    if (r->probe) {
        if (qp->congestion && vb_congestion_holds(pu, qp))
            return true; // its rate's timer brings it back, and it may still go beyond
        r->probe = false;
        return false;
    }
    if (r->timer_kind != VB_REQ_TIMER_CREDIT) {
        if (wait_ns == 0 || wait_ns > WAIT_MAX_NS)
            wait_ns = WAIT_MAX_NS;
        r->timer_kind = VB_REQ_TIMER_CREDIT;
        vb_timer_arm(&pu->timers, &r->timer, pu->now_ns + wait_ns);
    }
    return true;
}
