// SPDX-License-Identifier: Apache-2.0
// The reference model's responder of UC (clause 9.8.2): a message arrives whole and in order or not
// at all, but for what a WRITE left in memory; nothing is answered. What breaks a message ends it
// silently, and its receive waits for the next one. Only a First begins a message, whatever its
// number.
#include "sim/model.h"

#include "wire/roce.h"

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

// The message in progress, if there is one, is over.
static enum vb_rx_verdict drop(struct vb_ep *ep, enum vb_rx_verdict verdict, enum vb_cover_row why)
{
    struct vb_tally *t = &ep->node->tally;

    ep->answer.message = VB_SIM_NO_MESSAGE;
    t->uc_ahead += verdict == VB_RX_AHEAD;
    t->unready += verdict == VB_RX_RNR;
    vb_cover(cover_of(ep), why);
    return verdict;
}

// ---- sequence

static bool goes_on(const struct vb_ep *ep, const struct vb_packet *pkt)
{
    uint32_t kind = ep->answer.message == VB_SIM_SEND_MESSAGE ? VB_OP_SEND : VB_OP_WRITE;

    return ep->answer.message != VB_SIM_NO_MESSAGE && !(pkt->facts & VB_OP_FIRST) &&
           (pkt->facts & kind);
}

// Whether the packet counts. The number after it is expected next, whether it does or not.
static bool is_in_sequence(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f)
{
    struct vb_answering *a = &ep->answer;
    bool first = pkt->facts & VB_OP_FIRST, open = a->message != VB_SIM_NO_MESSAGE;
    bool expected = pkt->psn == a->psn0;

    ep->node->tally.uc_out_of_seq += !expected;
    a->psn0 = (pkt->psn + 1) & VB_PSN_MASK;
    a->epsn = 0;
    if (first) {
        if (open)
            vb_cover(cover_of(ep), VB_COVER_UC_BEGUN_ANEW);
        if (!expected)
            vb_cover(cover_of(ep), VB_COVER_UC_JUMPED);
        a->message = VB_SIM_NO_MESSAGE;
        return true;
    }
    if (expected && goes_on(ep, pkt))
        return true;
    f->verdict = drop(ep, VB_RX_AHEAD, open ? VB_COVER_UC_GAP : VB_COVER_UC_ORPHAN);
    return false;
}

// First and Middle are full, a Last is not empty.
static bool has_right_length(const struct vb_ep *ep, const struct vb_packet *pkt)
{
    uint32_t len = pkt->payload_len, mtu = ep->link.mtu;

    if (!(pkt->facts & VB_OP_LAST))
        return len == mtu;
    return len <= mtu && (len > 0 || (pkt->facts & VB_OP_FIRST));
}

// ---- SEND and WRITE

static void end_message(struct vb_ep *ep, const struct vb_packet *pkt)
{
    if (pkt->facts & VB_OP_LAST)
        ep->answer.message = VB_SIM_NO_MESSAGE;
}

static enum vb_rx_verdict on_send(struct vb_ep *ep, const struct vb_packet *pkt,
                                  struct vb_forecast *f)
{
    struct vb_answering *a = &ep->answer;
    const struct vb_intake *in = vb_model_use_receive(ep);

    if (!in)
        return drop(ep, VB_RX_RNR, VB_COVER_UC_NO_RECEIVE);
    if (pkt->facts & VB_OP_FIRST) {
        a->filled = 0;
        ep->node->tally.sends++;
    }
    a->message = VB_SIM_SEND_MESSAGE;
    if (pkt->payload_len > in->room - a->filled)
        return vb_model_receive_fails(ep, VB_SYN_LOCAL_LENGTH);
    if (vb_hostmem_spans(&ep->node->mem, vb_model_receiver(ep, in), in->sge, in->num_sge, a->filled,
                         pkt->payload_len, VB_LOCAL_WRITE, &f->writes) != VB_MEM_OK) {
        f->writes = (struct vb_spans){0};
        return vb_model_receive_fails(ep, VB_SYN_LOCAL_PROT);
    }
    f->bytes = pkt->payload;
    a->filled += pkt->payload_len;
    if (pkt->facts & VB_OP_LAST)
        vb_model_receive_ends(ep, pkt, a->filled);
    end_message(ep, pkt);
    return VB_RX_APPLIED;
}

static enum vb_rx_verdict on_write(struct vb_ep *ep, const struct vb_packet *pkt,
                                   struct vb_forecast *f)
{
    struct vb_answering *a = &ep->answer;
    bool last = pkt->facts & VB_OP_LAST;
    uint32_t offset = 0;

    if (pkt->facts & VB_OP_FIRST) {
        if (pkt->dma_len > VB_MESSAGE_MAX)
            return drop(ep, VB_RX_REFUSED, VB_COVER_UC_LENGTH);
        if (!vb_model_may_access(ep, pkt->rkey, pkt->raddr, pkt->dma_len, VB_REMOTE_WRITE, &offset))
            return drop(ep, VB_RX_REFUSED, VB_COVER_UC_ACCESS);
        a->raddr = pkt->raddr;
        a->rkey = pkt->rkey;
        a->left = a->whole = pkt->dma_len;
        ep->node->tally.writes++;
    }
    if (last ? pkt->payload_len != a->left : pkt->payload_len >= a->left)
        return drop(ep, VB_RX_REFUSED, VB_COVER_UC_LENGTH);
    if (!vb_model_may_access(ep, a->rkey, a->raddr, pkt->payload_len, VB_REMOTE_WRITE, &offset))
        return drop(ep, VB_RX_REFUSED, VB_COVER_UC_ACCESS);
    if (pkt->facts & VB_OP_IMM) {
        if (!vb_model_use_receive(ep))
            return drop(ep, VB_RX_RNR, VB_COVER_UC_IMM_NO_RECEIVE);
        vb_model_receive_ends(ep, pkt, a->whole);
    }
    vb_spans_add(&f->writes, offset, pkt->payload_len);
    f->bytes = pkt->payload;
    a->message = VB_SIM_WRITE_MESSAGE;
    a->raddr += pkt->payload_len;
    a->left -= pkt->payload_len;
    end_message(ep, pkt);
    return VB_RX_APPLIED;
}

void vb_model_uc_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f)
{
    if (!is_in_sequence(ep, pkt, f))
        return;
    if (!has_right_length(ep, pkt))
        f->verdict = drop(ep, VB_RX_REFUSED, VB_COVER_UC_LENGTH);
    else if (pkt->facts & VB_OP_SEND)
        f->verdict = on_send(ep, pkt, f);
    else
        f->verdict = on_write(ep, pkt, f);
}
