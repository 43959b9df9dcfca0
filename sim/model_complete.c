// SPDX-License-Identifier: Apache-2.0
// The reference model's completions: exactly one for each signaled request, in order, never before
// the request is done; after an error the rest is flushed.
#include "sim/model.h"

#include <string.h>

static const enum vb_wc_status status_of[] = {
    [VB_SYN_OK] = VB_WC_OK,
    [VB_SYN_LOCAL_LENGTH] = VB_WC_LOCAL_LENGTH,
    [VB_SYN_LOCAL_QP_OP] = VB_WC_LOCAL_QP_OP,
    [VB_SYN_LOCAL_PROT] = VB_WC_LOCAL_PROTECTION,
    [VB_SYN_FLUSH] = VB_WC_FLUSHED,
    [VB_SYN_BIND] = VB_WC_BIND_REFUSED,
    [VB_SYN_BAD_RESP] = VB_WC_BAD_RESPONSE,
    [VB_SYN_LOCAL_ACCESS] = VB_WC_LOCAL_ACCESS,
    [VB_SYN_REMOTE_INVAL_REQ] = VB_WC_REMOTE_INVALID,
    [VB_SYN_REMOTE_ACCESS] = VB_WC_REMOTE_ACCESS,
    [VB_SYN_REMOTE_OP] = VB_WC_REMOTE_OPERATION,
    [VB_SYN_RETRY_EXC] = VB_WC_RETRY_EXCEEDED,
    [VB_SYN_RNR_RETRY_EXC] = VB_WC_RNR_EXCEEDED,
};

static const enum vb_wc_opcode wc_opcode[] = {
    [VB_WR_SEND] = VB_WC_SEND,          [VB_WR_WRITE] = VB_WC_WRITE,
    [VB_WR_READ] = VB_WC_READ,          [VB_WR_NOP] = VB_WC_NOP,
    [VB_WR_SEND_IMM] = VB_WC_SEND,      [VB_WR_SEND_INVAL] = VB_WC_SEND,
    [VB_WR_WRITE_IMM] = VB_WC_WRITE,    [VB_WR_CAS] = VB_WC_ATOMIC,
    [VB_WR_FADD] = VB_WC_ATOMIC,        [VB_WR_MASKED_CAS] = VB_WC_ATOMIC,
    [VB_WR_MASKED_FADD] = VB_WC_ATOMIC, [VB_WR_ATOMIC_WRITE] = VB_WC_ATOMIC_WRITE,
    [VB_WR_FLUSH] = VB_WC_FLUSH,        [VB_WR_BIND] = VB_WC_KEY,
    [VB_WR_LOCAL_INVAL] = VB_WC_KEY,
};

// ---- written by the NIC

// No room: the entry is lost, the queue is broken, and who wrote it fails.
static void overrun(struct vb_ep *ep, struct vb_simcq *cq)
{
    struct vb_node *node = ep->node;

    VB_MODEL_CHECK(ep, node->world->scen.tight, "overflowed CQ %u", cq->cqn);
    node->tally.overruns++;
    vb_excuse(node->world->cover, VB_EXCUSE_CQ_OVERRUN);
    if (!cq->broken)
        vb_model_expect(node, VB_EVENT_CQ_ERR, cq->cqn);
    cq->broken = true;
    if (ep->state == VB_QPS_ERR)
        return;
    vb_model_expect_event(ep, VB_EVENT_QP_FATAL);
    vb_model_failed(ep);
    ep->ask.may_flush = true;
}

static void push_due(struct vb_ep *ep, const struct vb_step *step, struct vb_simcq *cq,
                     const struct vb_due *due, bool solicited)
{
    struct vb_node *node = ep->node;
    struct vb_world *w = node->world;
    enum vb_cover_row row = vb_cover_of_syndrome(due->syndrome, due->receive);
    uint64_t at = w->now_ns + vb_prng_below(&w->prng, w->scen.think_ns);

    VB_MODEL_CHECK(ep, cq->cqn == step->cqn, "completed on CQ %u, expected %u", step->cqn, cq->cqn);
    if (at < node->act_at_ns)
        node->act_at_ns = at;
    if (cq->broken || cq->written - cq->drv.ci >= cq->drv.entries) {
        overrun(ep, cq);
        return;
    }
    cq->due[cq->due_tail++ & cq->due_mask] = *due;
    if ((++cq->written & 0xffffff) == 0)
        vb_cover(w->cover, VB_COVER_WRAP_CQ);
    if (!node->holds || cq->crosses)
        cq->visible = cq->written;
    if (row != VB_COVER_COUNT)
        vb_cover(w->cover, row);
    if (node->at->index != cq->unit)
        vb_cover(w->cover, VB_COVER_CQ_CROSSED);
    vb_model_completed(node, cq, solicited || due->syndrome != VB_SYN_OK);
}

// An entry that was held back is seen when the port has the answer that goes with it, so that a
// host that sees it and goes leaves no peer waiting.
void vb_model_published(struct vb_node *node, const struct vb_unit *unit, bool early)
{
    for (uint32_t i = 0; i < node->cq_count; i++) {
        struct vb_simcq *cq = &node->cq[i];
        if (unit && unit->index != cq->unit)
            continue;
        for (; cq->visible < cq->written; cq->visible++) {
            const struct vb_due *due = &cq->due[(cq->visible - cq->start) & cq->due_mask];
            uint64_t paced_ns; // the acknowledgement may be behind a response that waits
            bool open = due->ep->state == VB_QPS_RTS || due->ep->state == VB_QPS_RTR ||
                        due->ep->state == VB_QPS_SQD;
            if (early && due->receive)
                vb_excuse(node->world->cover, VB_EXCUSE_SEEN_EARLY);
            if (early || !due->receive || due->syndrome != VB_SYN_OK || !open ||
                vb_ep_is_unreliable(due->ep) || // which acknowledges nothing
                vb_model_rate_holds(due->ep, &paced_ns))
                continue;
            VB_MODEL_CHECK(due->ep, due->unasked || due->packet < due->ep->answer.acked,
                           "a receive can be seen before the port has its acknowledgement");
            vb_cover(node->world->cover, VB_COVER_CQ_HELD_BACK);
        }
    }
}

// The requests before the one that completes must be done and unsignaled.
static uint64_t next_to_complete(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;
    uint64_t i = a->retired;

    while (i < a->done && !(vb_ep_work(ep, i)->flags & VB_WR_SIGNALED))
        i++;
    return i;
}

static void judge_error(struct vb_ep *ep, const struct vb_work *work, uint8_t syndrome)
{
    const struct vb_asking *a = &ep->ask;
    bool right = syndrome == VB_SYN_FLUSH;

    // A request with a fault of its own may say so even if something else failed first.
    if (!a->flushing && a->fail_syndrome)
        right = syndrome == a->fail_syndrome;
    else if (!a->flushing)
        right = a->may_flush && (right || vb_model_is_locally_wrong(ep, work, syndrome));
    if (!a->flushing && !a->fail_syndrome && syndrome != VB_SYN_FLUSH)
        vb_excuse(ep->node->world->cover, VB_EXCUSE_OWN_FAULT_FIRST);
    VB_MODEL_CHECK(ep, right, "request %llu failed with syndrome 0x%02x, expected 0x%02x",
                   (unsigned long long)work->wr_id, syndrome,
                   a->flushing || !a->fail_syndrome ? VB_SYN_FLUSH : a->fail_syndrome);
    VB_MODEL_CHECK(ep, ep->state == VB_QPS_ERR || ep->state == VB_QPS_SQE,
                   "an error completion in state %s", vb_qp_state_name(ep->state));
}

static void complete_send(struct vb_ep *ep, const struct vb_step *step)
{
    struct vb_asking *a = &ep->ask;
    uint64_t i = next_to_complete(ep);
    const struct vb_work *work = vb_ep_work(ep, i);
    bool ok = step->opcode == VB_CQE_REQ;

    VB_MODEL_CHECK(ep, ok == (step->detail == VB_SYN_OK), "opcode and syndrome disagree");
    VB_MODEL_CHECK(ep, i < a->posted && work->counter == step->counter,
                   "completed the request at block %llu, expected %llu",
                   (unsigned long long)step->counter, (unsigned long long)work->counter);
    if (ep->node->world->violated)
        return;
    if (ok) {
        VB_MODEL_CHECK(ep, i < a->done, "request %llu completed before it was done",
                       (unsigned long long)work->wr_id);
    } else {
        VB_MODEL_CHECK(ep, i == a->done, "request %llu failed although it was done",
                       (unsigned long long)work->wr_id);
        judge_error(ep, work, step->detail);
        a->done = i + 1;
        if (a->flushing && ep->state == VB_QPS_SQE)
            vb_cover(ep->node->world->cover, VB_COVER_SQE_FLUSHED);
        a->flushing = true;
    }
    a->retired = i + 1;
    push_due(ep, step, &ep->node->cq[ep->opts.cq[0]],
             &(struct vb_due){.ep = ep,
                              .syndrome = step->detail,
                              .wr_id = work->wr_id,
                              .byte_len = work->len,
                              .opcode = wc_opcode[work->opcode],
                              .position = i},
             false);
}

static uint32_t receive_flags(uint8_t opcode)
{
    if (opcode == VB_CQE_RESP_SEND_IMM || opcode == VB_CQE_RESP_WR_IMM)
        return VB_WC_WITH_IMM;
    return opcode == VB_CQE_RESP_SEND_INV ? VB_WC_WITH_INVAL : 0;
}

static void cover_shared(struct vb_ep *ep, const struct vb_intake *in, uint8_t syndrome)
{
    if (in->srq && in->srq->xrcd)
        vb_cover(ep->node->world->cover, VB_COVER_XRC_OTHER_CQ);
    if (in->srq && syndrome == VB_SYN_FLUSH)
        vb_cover(ep->node->world->cover, VB_COVER_SRQ_FLUSHED);
}

static void complete_recv(struct vb_ep *ep, const struct vb_step *step)
{
    struct vb_answering *a = &ep->answer;
    const struct vb_intake *in = vb_ep_intake(ep, a->done);
    bool ok = step->opcode != VB_CQE_RESP_ERR;
    uint8_t expected = a->done_due ? a->done_syndrome : VB_SYN_FLUSH;

    VB_MODEL_CHECK(ep, a->done_due || ep->state == VB_QPS_ERR,
                   "completed a receive that no message came for");
    VB_MODEL_CHECK(ep, ok == (step->detail == VB_SYN_OK), "opcode and syndrome disagree");
    VB_MODEL_CHECK(ep, step->detail == expected, "a receive has syndrome 0x%02x, expected 0x%02x",
                   step->detail, expected);
    VB_MODEL_CHECK(ep, a->done < a->posted && in->counter == step->counter,
                   "completed the receive %llu, expected %llu", (unsigned long long)step->counter,
                   (unsigned long long)in->counter);
    VB_MODEL_CHECK(ep, !ok || step->opcode == a->done_opcode,
                   "a receive completed as kind %u, expected %u", step->opcode, a->done_opcode);
    VB_MODEL_CHECK(ep, !ok || step->bytes == a->done_bytes, "received %u bytes, completed %u",
                   a->done_bytes, step->bytes);
    if (ep->node->world->violated)
        return;
    a->done_due = false;
    // A queue for XRC has a completion queue of its own.
    uint32_t cq = in->srq && in->srq->xrcd ? in->srq->cq : ep->opts.cq[1];
    cover_shared(ep, in, step->detail);
    push_due(ep, step, &ep->node->cq[cq],
             &(struct vb_due){.ep = ep,
                              .receive = true,
                              .syndrome = step->detail,
                              .wr_id = in->wr_id,
                              .byte_len = a->done_bytes,
                              .opcode = a->done_opcode == VB_CQE_RESP_WR_IMM ? VB_WC_RECV_WRITE
                                                                             : VB_WC_RECV,
                              .flags = receive_flags(a->done_opcode) |
                                       (ep->opts.service == VB_SERVICE_UD ? VB_WC_WITH_GRH : 0u),
                              .imm = a->done_imm,
                              .src_qpn = a->done_src_qpn,
                              .position = a->done,
                              .packet = a->epsn - 1,
                              .unasked = a->unasked,
                              .srq = in->srq},
             ok && a->done_solicited);
    a->done++;
    if (a->closing && vb_ep_is_unreliable(ep)) {
        vb_model_failed(ep); // there is no NAK to wait for
        ep->ask.may_flush = true;
    }
}

void vb_model_complete(struct vb_ep *ep, const struct vb_step *step)
{
    switch (step->opcode) {
    case VB_CQE_REQ:
    case VB_CQE_REQ_ERR: complete_send(ep, step); break;
    case VB_CQE_RESP_SEND:
    case VB_CQE_RESP_SEND_IMM:
    case VB_CQE_RESP_SEND_INV:
    case VB_CQE_RESP_WR_IMM:
    case VB_CQE_RESP_ERR: complete_recv(ep, step); break;
    default: vb_model_violate(ep, "a completion of kind %u", step->opcode);
    }
}

// ---- polled by the host

static bool is_as_due(const struct vb_due *due, const struct vb_wc *wc)
{
    if (wc->qpn != due->ep->qpn || wc->wr_id != due->wr_id ||
        wc->status != status_of[due->syndrome])
        return false;
    if (due->syndrome != VB_SYN_OK)
        return (wc->opcode == VB_WC_RECV) == due->receive;
    bool sized = due->receive || due->opcode == VB_WC_READ || due->opcode == VB_WC_ATOMIC;
    if (wc->opcode != due->opcode || (sized && wc->byte_len != due->byte_len))
        return false;
    return wc->flags == due->flags && (!due->flags || wc->imm == due->imm) &&
           wc->src_qpn == due->src_qpn;
}

// Additions whose success the host now knows of, also those that told nothing themselves.
static void count_additions(struct vb_ep *ep, uint64_t end)
{
    for (uint64_t i = ep->ask.polled; i < end; i++)
        if (vb_ep_work(ep, i)->counts)
            ep->peer->node->tally.counted++;
}

void vb_model_polled(struct vb_node *node, uint32_t index, const struct vb_wc *wc)
{
    struct vb_simcq *cq = &node->cq[index];

    if (cq->due_head == cq->due_tail) {
        vb_world_violate(node->world, "NIC %u: polled a completion that was never written",
                         node->index);
        return;
    }
    if (cq->start + cq->due_head == cq->visible) {
        vb_world_violate(node->world, "NIC %u: polled a completion that is held back", node->index);
        return;
    }
    const struct vb_due *due = &cq->due[cq->due_head++ & cq->due_mask];
    if (!is_as_due(due, wc)) {
        vb_model_violate(
            due->ep,
            "polled request %llu with status %d, %u bytes, flags %x and immediate %08x, "
            "expected %llu, %d, %u, %x, %08x",
            (unsigned long long)wc->wr_id, (int)wc->status, wc->byte_len, wc->flags, wc->imm,
            (unsigned long long)due->wr_id, (int)status_of[due->syndrome], due->byte_len,
            due->flags, due->imm);
        return;
    }
    if (due->syndrome != VB_SYN_OK)
        vb_excuse(node->world->cover, VB_EXCUSE_ERROR_FIELDS);
    vb_digest_add(&node->world->digest, wc->wr_id << 8 | (uint64_t)wc->status);
    if (due->receive)
        due->ep->answer.polled++;
    if (!due->receive) {
        count_additions(due->ep, due->position + (wc->status == VB_WC_OK));
        due->ep->ask.polled = due->position + 1;
    }
}

void vb_model_polled_nothing(struct vb_node *node, uint32_t index)
{
    const struct vb_simcq *cq = &node->cq[index];

    if (cq->start + cq->due_head != cq->visible)
        vb_model_violate(cq->due[cq->due_head & cq->due_mask].ep,
                         "CQ %u looks empty, but a completion was written", cq->cqn);
}
