// SPDX-License-Identifier: Apache-2.0
// The reference model of UC and UD, what they share: a request is done when its last packet has
// left; one that cannot be sent stops the send queue, not the queue pair; nothing is accepted that
// nobody sent.
#include "sim/model.h"

#include "wire/roce.h"

#include <string.h>

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

// ---- the send queue

bool vb_model_serves(const struct vb_ep *ep, const struct vb_work *work)
{
    bool sends = work->opcode == VB_WR_SEND || work->opcode == VB_WR_SEND_IMM;

    if (!vb_ep_is_unreliable(ep) || sends || work->opcode == VB_WR_NOP)
        return true;
    return ep->opts.service == VB_SERVICE_UC && (vb_work_writes(work) || vb_work_changes_key(work));
}

void vb_model_sqe_entered(struct vb_ep *ep)
{
    vb_cover(cover_of(ep),
             ep->state == VB_QPS_SQD ? VB_COVER_SQE_WHILE_DRAINING : VB_COVER_SQE_ENTERED);
    if (vb_ep_work(ep, ep->ask.done)->first < ep->ask.cursor && ep->ask.done < ep->ask.begun)
        vb_cover(cover_of(ep), VB_COVER_SQE_MID_MESSAGE);
    ep->state = VB_QPS_SQE;
}

// Numbers go on behind the last packet that left. Requests that are not flushed are executed.
void vb_model_sqe_left(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    vb_cover(cover_of(ep), VB_COVER_SQE_LEFT);
    a->fail_syndrome = VB_SYN_OK;
    a->flushing = false;
    a->fetched = a->begun = a->done;
    a->next_first = a->cursor;
    for (uint64_t i = a->done; i < a->posted; i++) {
        struct vb_work *work = vb_ep_work(ep, i);
        work->first = a->next_first;
        a->next_first += work->psns;
    }
}

// ---- packets out

// Numbered as by clause 9.2, table 35: SENDs, then WRITEs, both in the same order.
static uint8_t opcode_of(const struct vb_ep *ep, const struct vb_work *work, bool first, bool last)
{
    uint8_t base = ep->opts.service == VB_SERVICE_UD ? 0x60 : 0x20;
    bool imm = last && (work->opcode == VB_WR_SEND_IMM || work->opcode == VB_WR_WRITE_IMM);
    int place = last ? (first ? 4 : 2) : !first;

    return (uint8_t)(base + (vb_work_writes(work) ? 6 : 0) + place + imm);
}

static void judge_head(struct vb_ep *ep, const struct vb_work *work, const struct vb_packet *pkt,
                       bool first, bool last)
{
    bool solicited = last && work->opcode != VB_WR_WRITE && (work->flags & VB_WR_SOLICITED);
    uint8_t opcode = opcode_of(ep, work, first, last);

    VB_MODEL_CHECK(ep, pkt->opcode == opcode, "sent opcode %u at PSN %u, expected %u", pkt->opcode,
                   pkt->psn, opcode);
    VB_MODEL_CHECK(ep, pkt->solicited == solicited, "the solicited bit is %d", pkt->solicited);
    VB_MODEL_CHECK(ep, !pkt->ack_request, "asks for an acknowledgement that never comes");
    VB_MODEL_CHECK(ep, !(pkt->facts & VB_OP_IMM) || pkt->imm == work->imm,
                   "PSN %u carries the immediate %08x, posted was %08x", pkt->psn, pkt->imm,
                   work->imm);
    if (pkt->facts & VB_OP_RETH)
        VB_MODEL_CHECK(
            ep, pkt->raddr == work->raddr && pkt->rkey == work->rkey && pkt->dma_len == work->len,
            "WRITE at PSN %u names the wrong memory", pkt->psn);
    if (ep->opts.service == VB_SERVICE_UD)
        VB_MODEL_CHECK(ep, vb_model_ud_is_addressed(ep, work, pkt),
                       "the datagram at PSN %u goes to the wrong place", pkt->psn);
}

static void judge_packet(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt)
{
    struct vb_asking *a = &ep->ask;
    const struct vb_work *work = vb_ep_work(ep, a->done);
    uint32_t index = (uint32_t)(a->cursor - work->first), offset = index * ep->link.mtu;
    uint32_t left = work->len - offset, len = left < ep->link.mtu ? left : ep->link.mtu;
    struct vb_forecast f = {0};

    VB_MODEL_CHECK(ep, index < work->psns, "sent PSN %u, which no request has", pkt->psn);
    judge_head(ep, work, pkt, index == 0, index + 1 == work->psns);
    VB_MODEL_CHECK(ep, pkt->payload_len == len, "sent %u bytes at PSN %u, expected %u",
                   pkt->payload_len, pkt->psn, len);
    if (ep->node->world->violated)
        return;
    vb_model_judge_payload(ep, work, pkt, offset, &f);
    vb_model_judge_touches(ep, step, &f);
    if (pkt->psn == VB_PSN_MASK && index + 1 < work->psns)
        vb_cover(cover_of(ep), VB_COVER_UC_WRAP);
    else if (pkt->psn == VB_PSN_MASK && ep->opts.service == VB_SERVICE_UD)
        vb_cover(cover_of(ep), VB_COVER_UD_WRAP);
}

void vb_model_unreliable_out(struct vb_ep *ep, const struct vb_step *step,
                             const struct vb_packet *pkt)
{
    struct vb_world *w = ep->node->world;
    const struct vb_txq *q = vb_pu_txq(ep->node->at->pu);
    const struct vb_path *path = q->frame[ep->node->at->tx_at].path;
    struct vb_asking *a = &ep->ask;

    VB_MODEL_CHECK(ep, ep->state == VB_QPS_RTS || ep->state == VB_QPS_SQD,
                   "sent a request in state %s", vb_qp_state_name(ep->state));
    VB_MODEL_CHECK(ep, pkt->psn == vb_model_ask_psn(a, a->cursor), "sent PSN %u, expected %u",
                   pkt->psn, vb_model_ask_psn(a, a->cursor));
    VB_MODEL_CHECK(ep, a->done < a->begun, "sent PSN %u before its request began", pkt->psn);
    if (ep->opts.service == VB_SERVICE_UD && a->done < a->begun)
        VB_MODEL_CHECK(ep, vb_ip_equal(&path->remote, &vb_ep_work(ep, a->done)->to.addr),
                       "the datagram at PSN %u goes to another address", pkt->psn);
    if (!w->violated)
        judge_packet(ep, step, pkt);
    if (w->violated)
        return;
    a->sent_end = a->cursor + 1;
    vb_model_ask_done(ep, a->sent_end);
}

// ---- packets in

void vb_model_unreliable_in(struct vb_ep *ep, const struct vb_rx_frame *frame,
                            const struct vb_packet *pkt, struct vb_forecast *f)
{
    if (ep->answer.closing)
        return; // a stranger's, for all that it matters now
    if (ep->opts.service == VB_SERVICE_UD)
        vb_model_ud_in(ep, frame, pkt, f);
    else
        vb_model_uc_in(ep, pkt, f);
    if (f->verdict != VB_RX_APPLIED)
        return;
    if (ep->state == VB_QPS_SQE)
        vb_cover(cover_of(ep), VB_COVER_SQE_RECEIVES);
    if (ep->state == VB_QPS_SQD)
        vb_cover(cover_of(ep), VB_COVER_SQD_RECEIVES);
}

const struct vb_intake *vb_model_use_receive(struct vb_ep *ep)
{
    const struct vb_answering *a = &ep->answer;

    if (a->taken == a->done && !vb_model_take_receive(ep))
        return NULL;
    return vb_ep_intake(ep, a->done);
}

enum vb_rx_verdict vb_model_receive_fails(struct vb_ep *ep, uint8_t syndrome)
{
    ep->answer.done_due = true;
    ep->answer.done_syndrome = syndrome;
    ep->answer.closing = true;
    vb_cover(cover_of(ep), VB_COVER_UNRELIABLE_RECV_FAILED);
    return VB_RX_REFUSED;
}
