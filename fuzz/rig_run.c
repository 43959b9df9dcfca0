// SPDX-License-Identifier: Apache-2.0
// Running the rig's units, and what must hold afterwards.
#include "rig.h"

#include "base/serial.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX = 200000 // of one poll: it must end, whatever was posted or received
};

static bool writes(const struct vb_step *step)
{
    for (uint32_t i = 0; i < step->touches; i++)
        if (step->touch[i].write)
            return true;
    return false;
}

// A reliable request changes memory when its number is the expected one, and only then.
static void check_frame(const struct rig *r, const struct vb_step *step)
{
    bool request = vb_opcode_table[step->opcode].facts & VB_OP_REQUEST;
    if (step->verdict == VB_RX_MALFORMED || !writes(step))
        return;
    rig_require(step->verdict <= VB_RX_APPLIED || step->verdict == VB_RX_REFUSED);
    for (uint32_t i = 0; i < RIG_QPS && request; i++)
        if (r->qp[i].driver.qpn == step->qpn && vb_qpc_is_reliable(r->qp[i].ctx))
            rig_require(step->psn == r->qp[i].epsn);
}

// The last region is of the XRC shared queue's domain: its messages touch that, and no others do.
static void check_domain(const struct rig *r, const struct vb_step *step)
{
    const uint8_t *foreign = r->region[RIG_REGIONS - 1].base;
    for (uint32_t i = 0; i < step->touches; i++) {
        const uint8_t *at = step->touch[i].addr;
        bool apart = foreign && at >= foreign && at < foreign + RIG_REGION_BYTES;
        rig_require(rig_is_registered(r, at, step->touch[i].len));
        for (uint32_t k = 0; k < RIG_QPS; k++)
            if (r->qp[k].driver.qpn == step->qpn)
                rig_require(apart == (r->qp[k].type == VB_QPT_XRC_TGT));
    }
}

// Only who is ready to send takes up work.
static void check_taken(const struct rig *r, const struct vb_step *step)
{
    bool begins = step->kind == VB_STEP_EXEC && step->detail == VB_SYN_OK;
    for (uint32_t i = 0; i < RIG_QPS; i++)
        if (r->qp[i].driver.qpn == step->qpn && (begins || step->kind == VB_STEP_FETCH))
            rig_require(r->qp[i].ctx->state == VB_QPS_RTS);
}

void rig_observe(void *ctx, const struct vb_step *step)
{
    struct rig *r = ctx;
    rig_require(step->kind <= VB_STEP_TURN);
    if (step->kind == VB_STEP_TURN)
        return;
    check_domain(r, step);
    if (step->kind == VB_STEP_FRAME_IN)
        check_frame(r, step);
    check_taken(r, step);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        r->qp[i].epsn = r->qp[i].ctx->resp.epsn;
    r->steps++;
}

// ---- frames that were sent

static struct rig_qp *sender_of(struct rig *r, const struct vb_tx_frame *t,
                                const struct vb_packet *pkt)
{
    for (uint32_t i = 0; i < RIG_QPS; i++) {
        struct rig_qp *q = &r->qp[i];
        if (q->type == VB_QPT_UD ? pkt->src_qpn == q->driver.qpn : t->path == q->ctx->path)
            return q;
    }
    return NULL;
}

// What is sent again is the same, whatever became of its entry in the ring; but the request for an
// acknowledgement depends on what else is in flight.
static void check_again(struct rig_qp *q, const struct vb_packet *pkt, const uint8_t *bytes)
{
    struct rig_header *h = &q->sent[pkt->psn % RIG_HEADERS];
    uint8_t headers[VB_HEADERS_MAX];
    uint32_t len = vb_opcode_table[pkt->opcode].header_bytes;
    memcpy(headers, bytes, len);
    headers[8] &= 0x7f;
    if (h->used && h->psn == pkt->psn)
        rig_require(h->len == len && memcmp(h->bytes, headers, len) == 0);
    h->used = true;
    h->psn = pkt->psn;
    h->len = len;
    memcpy(h->bytes, headers, len);
}

static void check_numbers(struct rig_qp *q, const struct vb_packet *pkt, const uint8_t *bytes)
{
    const struct vb_requester *r = &q->ctx->req;
    if (!(pkt->facts & VB_OP_REQUEST)) {
        rig_require(vb_psn_diff(pkt->psn, q->ctx->resp.epsn) <= 0);
        return;
    }
    rig_require(vb_psn_diff(pkt->psn, q->una_psn) >= 0 && vb_psn_diff(pkt->psn, r->max_psn) < 0);
    check_again(q, pkt, bytes);
}

// A frame leaves as the ports would send it: sealed, for the address it was meant for.
static void check_sent(struct rig *r, struct vb_txq *txq, struct vb_tx_frame *t, uint8_t *bytes)
{
    struct vb_packet pkt;
    uint16_t id = 0;
    rig_require(t->offset + t->len - t->body_len <= txq->used && t->len <= VB_FRAME_MAX);
    vb_tx_copy(txq, t, bytes);
    rig_require(vb_packet_decode(bytes, t->len, &pkt) == VB_DECODE_OK);
    vb_icrc_seal(&t->path->icrc, 7, bytes, t->len);
    rig_require(vb_icrc_check(&t->path->icrc, 7, bytes, t->len, &id) == VB_ICRC_EXACT);
    rig_require(vb_ip_is_v4(&t->path->local) == vb_ip_is_v4(&t->path->remote));
    struct rig_qp *q = sender_of(r, t, &pkt);
    if (r->old_frames || q == NULL || pkt.facts & VB_OP_CNP)
        return;
    rig_require(pkt.transport == q->ctx->transport && pkt.payload_len <= q->ctx->mtu);
    rig_require(q->type == VB_QPT_UD || pkt.dest_qpn == q->ctx->dest_qpn);
    check_numbers(q, &pkt, bytes);
}

// What is sent comes round again, if the input asks for it; what finds no room is lost.
static void put_on_wire(struct rig *r, const uint8_t *bytes, uint32_t len)
{
    if (r->wired == RIG_WIRE)
        return;
    uint8_t *copy = malloc(len);
    rig_require(copy != NULL);
    memcpy(copy, bytes, len);
    r->wire[r->wired++] = (struct rig_wire){copy, len};
}

static void send_all(struct rig *r, struct vb_pu *pu)
{
    struct vb_txq *txq = vb_pu_txq(pu);
    uint8_t bytes[VB_FRAME_MAX];
    for (; txq->taken < txq->count; txq->taken++) {
        struct vb_tx_frame *t = &txq->frame[txq->taken];
        check_sent(r, txq, t, bytes);
        put_on_wire(r, bytes, t->len);
    }
    vb_pu_tx_release(pu);
    vb_pu_publish(pu);
}

// ---- what must hold when nothing is left to do

// By its share's rate, until a timer.
static bool is_held(const struct vb_qpc *qp)
{
    return qp->congestion && qp->congestion->resume.deadline_ns != VB_TIMER_NEVER;
}

static void check_requester(const struct vb_qpc *qp)
{
    const struct vb_requester *r = &qp->req;
    rig_require(vb_psn_diff(r->send_psn, r->una_psn) >= 0);
    rig_require(vb_psn_diff(r->max_psn, r->send_psn) >= 0);
    rig_require(r->cost_sent >= r->cost_acked && r->reads_out <= qp->max_rd_atomic);
    rig_require(r->head == r->una_wr); // what is acknowledged has completed
    if (!vb_qpc_is_reliable(qp))
        rig_require(r->una_psn == r->max_psn && r->timer_kind == VB_REQ_TIMER_NONE);
    // What waits for an answer has a timer, so that it cannot wait for ever.
    if (qp->ack_timeout_ns)
        rig_require(r->una_psn == r->max_psn || r->timer_kind != VB_REQ_TIMER_NONE ||
                    vb_link_queued(&qp->wait) || // those who fill the window have one
                    is_held(qp));
    rig_require(r->timer_kind == VB_REQ_TIMER_NONE || r->timer.slot != 0);
}

static void check_flushed(const struct vb_qpc *qp)
{
    rig_require(qp->req.head == NULL && qp->sq.fetched == qp->sq.end);
    if (qp->state == VB_QPS_ERR)
        rig_require(!qp->resp.recv.loaded && qp->rq.taken == qp->rq.end);
}

static void check_qp(struct rig_qp *q)
{
    const struct vb_qpc *qp = q->ctx;
    const struct vb_responder *p = &qp->resp;
    rig_require(p->job_new <= p->job_count && p->job_count <= VB_READ_JOBS);
    // All that was owed is sent, but for what is held.
    rig_require(is_held(qp) || (p->job_count == 0 && p->answer == VB_ANSWER_NONE));
    rig_require(is_held(qp) || !p->closing || qp->state == VB_QPS_ERR);
    rig_require(p->recv.filled <= p->recv.room);
    rig_require(qp->sq.fetched <= qp->sq.end && qp->sq.end - qp->sq.fetched <= qp->sq.blocks);
    rig_require(qp->rq.taken <= qp->rq.end && qp->rq.end - qp->rq.taken <= qp->rq.entries);
    if (qp->state == VB_QPS_RTS || qp->state == VB_QPS_SQD)
        check_requester(qp);
    if (qp->state >= VB_QPS_SQE)
        check_flushed(qp);
    q->una_psn = qp->req.una_psn;
}

static void check_counters(struct rig *r)
{
    for (uint32_t i = 0; i < r->units; i++) {
        const struct vb_counters *now = vb_pu_counters(vb_dev_pu_at(r->dev, i));
        struct vb_counters *before = &r->before[i];
#define CHECK_COUNTER(name) rig_require(now->name >= before->name);
        VB_COUNTERS(CHECK_COUNTER)
#undef CHECK_COUNTER
        *before = *now;
    }
}

// Whatever was due has fired.
static void check_timers(const struct rig *r)
{
    for (uint32_t i = 0; i < r->units; i++) {
        const struct vb_timers *t = &vb_dev_pu_at(r->dev, i)->timers;
        for (uint32_t k = 0; k < t->count; k++)
            rig_require(t->heap[k]->key_ns > r->now_ns && t->heap[k]->slot == k + 1);
    }
}

static void check_keys(const struct rig *r)
{
    uint32_t bound = 0, parents = 0;
    for (uint32_t i = 0; i < RIG_WINDOWS; i++) {
        uint32_t key = vb_mkey_current(&r->dev->mkeys, r->window[i]);
        const struct vb_mkey *m = vb_mkey_find(&r->dev->mkeys, key);
        rig_require(m != NULL);
        bound += m->bound;
        if (m->bound && m->len > 0)
            rig_require(rig_is_registered(r, m->base, (uint32_t)m->len));
    }
    for (uint32_t i = 0; i < RIG_REGIONS; i++)
        if (r->region[i].base)
            parents += vb_mkey_find(&r->dev->mkeys, r->region[i].key)->windows;
    rig_require(bound == parents);
}

// ---- running

static void poll(struct rig *r, struct vb_pu *pu)
{
    if (!r->observed) {
        vb_pu_poll(pu, r->now_ns);
        return;
    }
    uint32_t steps = 0;
    while (vb_pu_step(pu, r->now_ns).kind != VB_STEP_NONE)
        rig_require(++steps < STEPS_MAX);
}

static struct vb_pu *batch_unit(struct rig *r)
{
    return vb_dev_pu_at(r->dev, r->batch_unit % r->units);
}

static void hand_over(struct rig *r)
{
    struct vb_pu *pu = batch_unit(r);
    if (!r->fed && vb_pu_frames_left(pu) == 0) {
        vb_pu_feed(pu, r->batch, r->batched);
        r->fed = true;
    }
}

// A unit that is in the middle of its mail has done with the batch, too.
static void take_back(struct rig *r)
{
    if (!r->fed || vb_pu_frames_left(batch_unit(r)) > 0)
        return;
    rig_drop_batch(r);
    r->fed = false;
    r->batch_unit++;
}

void rig_steps(struct rig *r, uint32_t unit, uint32_t steps)
{
    struct vb_pu *pu = vb_dev_pu_at(r->dev, unit % r->units);
    hand_over(r);
    while (steps-- > 0 && vb_pu_step(pu, r->now_ns).kind != VB_STEP_NONE)
        take_back(r);
    take_back(r);
    vb_pu_tx_keep(pu);
}

// Whether its poll used up its budget while timers were due: the deadline brings the host back.
static bool left_timers(const struct rig *r, const struct vb_pu *pu)
{
    return pu->looped >= VB_POLL_LOOPED && vb_pu_deadline(pu) <= r->now_ns;
}

// Whether a unit stopped before all was done.
static bool run_unit(struct rig *r, struct vb_pu *pu)
{
    struct vb_txq *txq = vb_pu_txq(pu);
    if (r->narrow && txq->count == 0)
        txq->used = VB_TX_BYTES - 3 * VB_FRAME_MAX;
    poll(r, pu);
    bool again = vb_pu_wants_tx(pu) || vb_pu_frames_left(pu) > 0 || vb_pu_has_more(pu) ||
                 left_timers(r, pu) || vb_pu_events_wait(pu);
    if (vb_pu_events_wait(pu))
        rig_take_events(r, pu); // before it goes on
    uint32_t handed = vb_pu_handed(pu), others = (1u << r->units) - 1 - (1u << pu->index);
    rig_require((handed & ~others) == 0);
    send_all(r, pu);
    return again;
}

static bool has_work(const struct rig *r)
{
    for (uint32_t i = 0; i < r->units; i++)
        if (vb_pu_has_mail(vb_dev_pu_at(r->dev, i)))
            return true;
    return false;
}

void rig_run(struct rig *r)
{
    bool again;

    hand_over(r);
    do {
        again = false;
        for (uint32_t i = 0; i < r->units; i++)
            again = run_unit(r, vb_dev_pu_at(r->dev, i)) || again;
        take_back(r);
        if (!r->fed && r->batched > 0) {
            hand_over(r);
            again = true;
        }
    } while (again || has_work(r));
    r->old_frames = false;
    check_timers(r);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        check_qp(&r->qp[i]);
    check_counters(r);
    check_keys(r);
    rig_check_armed(r);
}
