// SPDX-License-Identifier: Apache-2.0
// The completer: judges what comes back (ACK, NAK, READ responses), moves the requester's
// acknowledged edge, and retires requests with their completions (clause 9.7.6 and 9.7.7).
#include "nic/pu.h"

#include "base/serial.h"
#include "nic/atomic.h"

// A packet that was sent and is not yet acknowledged.
static bool in_flight(const struct vb_requester *r, uint32_t psn)
{
    return vb_psn_diff(psn, r->una_psn) >= 0 && vb_psn_diff(psn, r->max_psn) < 0;
}

// Acknowledges up to `psn` (exclusive), but not past a READ whose data is still missing: only data
// completes a READ. False: one is in the way, so its response was lost.
static bool acknowledge(struct vb_pu *pu, struct vb_qpc *qp, uint32_t psn)
{
    const struct vb_requester *r = &qp->req;

    for (const struct vb_wr *wr = r->una_wr; wr != r->unbegun; wr = wr->next) {
        uint32_t from = wr == r->una_wr ? r->una_psn : wr->first_psn;
        if (vb_psn_diff(psn, from) <= 0)
            break;
        if (wr->awaits) {
            if (from != r->una_psn)
                vb_requester_acked(pu, qp, from);
            return false;
        }
    }
    if (psn != r->una_psn)
        vb_requester_acked(pu, qp, psn);
    return true;
}

// Goes back for a lost response, once; after that the timer has to.
static enum vb_rx_verdict gap(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (!qp->req.gap_seen) {
        qp->req.gap_seen = true;
        pu->count.completer_retry_err++;
        vb_peer_lost(pu, qp->peer);
        vb_requester_rewind(pu, qp);
        vb_pu_kick(pu, qp);
    }
    return VB_RX_GAP;
}

static enum vb_rx_verdict nak_sequence(struct vb_pu *pu, struct vb_qpc *qp)
{
    VB_COUNT(pu, qp, packet_seq_err);
    if (qp->req.retries_left == 0) {
        VB_COUNT(pu, qp, retry_exceeded_err);
        vb_requester_fail(pu, qp, VB_SYN_RETRY_EXC);
        return VB_RX_FATAL;
    }
    qp->req.retries_left--;
    vb_peer_lost(pu, qp->peer);
    vb_requester_rewind(pu, qp);
    vb_pu_kick(pu, qp);
    return VB_RX_RETRY;
}

static enum vb_rx_verdict nak(struct vb_pu *pu, struct vb_qpc *qp, unsigned code)
{
    switch (code) {
    case VB_NAK_PSN_SEQUENCE: return nak_sequence(pu, qp);
    case VB_NAK_INVALID_REQUEST:
        vb_requester_fail(pu, qp, VB_SYN_REMOTE_INVAL_REQ);
        return VB_RX_FATAL;
    case VB_NAK_REMOTE_ACCESS: vb_requester_fail(pu, qp, VB_SYN_REMOTE_ACCESS); return VB_RX_FATAL;
    case VB_NAK_REMOTE_OPERATION: vb_requester_fail(pu, qp, VB_SYN_REMOTE_OP); return VB_RX_FATAL;
    default: vb_requester_fail(pu, qp, VB_SYN_BAD_RESP); return VB_RX_FATAL;
    }
}

static enum vb_rx_verdict rnr(struct vb_pu *pu, struct vb_qpc *qp, unsigned timer_code)
{
    struct vb_requester *r = &qp->req;

    VB_COUNT(pu, qp, rcvd_rnr_err);
    if (r->timer_kind == VB_REQ_TIMER_RNR)
        return VB_RX_STALE; // the same answer again
    if (qp->rnr_retry != VB_RETRY_INFINITE) {
        if (r->rnr_left == 0) {
            VB_COUNT(pu, qp, retry_rnr_exceeded_err);
            vb_requester_fail(pu, qp, VB_SYN_RNR_RETRY_EXC);
            return VB_RX_FATAL;
        }
        r->rnr_left--;
    }
    vb_requester_rewind(pu, qp);
    r->timer_kind = VB_REQ_TIMER_RNR;
    vb_timer_arm(&pu->timers, &r->timer, pu->now_ns + vb_rnr_timer_ns((uint8_t)timer_code));
    return VB_RX_RETRY;
}

static enum vb_rx_verdict ack(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    unsigned kind = vb_aeth_kind_of(pkt->syndrome), value = vb_aeth_value_of(pkt->syndrome);

    if (!in_flight(&qp->req, pkt->psn) || kind == 2)
        return VB_RX_STALE;
    if (kind == VB_AETH_ACK)
        return acknowledge(pu, qp, vb_psn_add(pkt->psn, 1)) ? VB_RX_APPLIED : gap(pu, qp);
    // A NAK acknowledges everything before its PSN.
    if (!acknowledge(pu, qp, pkt->psn))
        return gap(pu, qp);
    return kind == VB_AETH_RNR ? rnr(pu, qp, value) : nak(pu, qp, value);
}

// Stores one READ response that is exactly the next one expected.
static enum vb_rx_verdict take_response(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt)
{
    struct vb_requester *r = &qp->req;
    const struct vb_wr *wr = r->una_wr;
    uint32_t index = (pkt->psn - wr->first_psn) & VB_PSN_MASK;
    uint32_t offset = index << qp->mtu_shift;
    uint32_t left = wr->length - offset, expect = left < qp->mtu ? left : qp->mtu;
    bool ends = index + 1 == wr->psns || (index + 1) % vb_read_segment(qp) == 0;

    if (pkt->payload_len != expect || ends != !!(pkt->facts & VB_OP_LAST)) {
        vb_requester_fail(pu, qp, VB_SYN_BAD_RESP);
        return VB_RX_FATAL;
    }
    if (vb_scatter(pu, vb_qpc_who(qp), vb_wr_segs(wr), wr->num_seg, offset, pkt->payload, expect) !=
        VB_MEM_OK) {
        vb_requester_fail(pu, qp, VB_SYN_LOCAL_PROT);
        return VB_RX_FATAL;
    }
    if (ends && r->reads_out > 0)
        r->reads_out--;
    vb_requester_acked(pu, qp, vb_psn_add(pkt->psn, 1));
    return VB_RX_APPLIED;
}

static enum vb_rx_verdict bad_response(struct vb_pu *pu, struct vb_qpc *qp)
{
    vb_requester_fail(pu, qp, VB_SYN_BAD_RESP);
    return VB_RX_FATAL;
}

// The answer of an operation that has one packet and one answer.
static enum vb_rx_verdict take_single(struct vb_pu *pu, struct vb_qpc *qp,
                                      const struct vb_packet *pkt)
{
    struct vb_requester *r = &qp->req;
    const struct vb_wr *wr = r->una_wr;

    if (wr->arg_bytes) { // an atomic: the memory gets its former value
        uint8_t old[8];
        vb_atomic_put(old, pkt->atomic_old, wr->arg_bytes, qp->be_replies);
        if (vb_scatter(pu, vb_qpc_who(qp), vb_wr_segs(wr), 1, 0, old, wr->arg_bytes) != VB_MEM_OK) {
            vb_requester_fail(pu, qp, VB_SYN_LOCAL_PROT);
            return VB_RX_FATAL;
        }
    } else if (pkt->payload_len != 0 ||
               (pkt->facts & (VB_OP_FIRST | VB_OP_LAST)) != (VB_OP_FIRST | VB_OP_LAST)) {
        return bad_response(pu, qp);
    }
    if (r->reads_out > 0)
        r->reads_out--;
    vb_requester_acked(pu, qp, vb_psn_add(pkt->psn, 1));
    return VB_RX_APPLIED;
}

// An answer of its own: READ responses and the acknowledgements of atomics.
static enum vb_rx_verdict answer(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    const struct vb_requester *r = &qp->req;
    const struct vb_wr *wr;

    if (!in_flight(r, pkt->psn))
        return VB_RX_STALE;
    // It acknowledges what was sent before it.
    if (!acknowledge(pu, qp, pkt->psn))
        return gap(pu, qp);
    wr = r->una_wr;
    if (wr == r->unbegun || !wr->awaits)
        return VB_RX_STALE; // an answer to something that awaits none
    if (!!(pkt->facts & VB_OP_ATOMIC) != (wr->arg_bytes != 0))
        return bad_response(pu, qp); // to another question
    return wr->opcode == VB_WQE_READ ? take_response(pu, qp, pkt) : take_single(pu, qp, pkt);
}

enum vb_rx_verdict vb_completer_receive(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt)
{
    if ((pkt->facts & VB_OP_AETH) && qp->type == VB_QPT_RC)
        vb_credit_heard(pu, qp, pkt);
    if (pkt->facts & VB_OP_ACK)
        return ack(pu, qp, pkt);
    return answer(pu, qp, pkt);
}

// A completion that is to fail on purpose takes the queue pair with it, as a real one would.
static bool fails_on_purpose(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_completion *good)
{
    const struct vb_dev_hooks *h = pu->dev->hooks;
    struct vb_completion bad = *good;

    bad.syndrome = h->completion(h->ctx, qp->qpn, good->wqe_opcode, false);
    if (bad.syndrome == VB_SYN_OK)
        return false;
    bad.opcode = VB_CQE_REQ_ERR;
    bad.bytes = 0;
    qp->flushing = true;           // it is the one with the reason
    qp->req.una_wr = qp->req.head; // those behind it are flushed
    vb_qpc_fail(pu, qp);
    vb_qpc_complete(pu, qp, qp->send_cq, &bad);
    return true;
}

bool vb_completer_step(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    while (r->head != r->una_wr) {
        struct vb_wr *wr = r->head;
        r->head = wr->next;
        if (!r->head)
            r->tail = NULL;
        if (!vb_wr_is_signaled(wr)) {
            vb_wr_put(&pu->pool, wr);
            continue;
        }
        const struct vb_completion c = {
            .qpn = qp->qpn,
            .counter = wr->counter,
            .opcode = VB_CQE_REQ,
            .wqe_opcode = wr->opcode,
            .bytes = wr->length,
        };
        vb_wr_put(&pu->pool, wr);
        if (__builtin_expect(pu->dev->hooks != NULL, 0) && fails_on_purpose(pu, qp, &c))
            return true;
        vb_qpc_complete(pu, qp, qp->send_cq, &c);
        return true;
    }
    return false;
}
