// SPDX-License-Identifier: Apache-2.0
// The reference model's responder, requests in sequence: what each packet does to memory, to the
// receive queue and to keys, and why it may be refused.
#include "sim/model.h"

#include "wire/roce.h"

#include <string.h>

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

// A request of zero bytes names no memory, so its key counts only on a strict device; the queue
// pair's own rights always count.
bool vb_model_may_access_in(struct vb_ep *ep, uint32_t pd, uint32_t rkey, uint64_t addr,
                            uint32_t len, uint32_t need, uint32_t *offset)
{
    if ((ep->link.access & need) != need)
        return false;
    if (len == 0 && !ep->node->checks_zero)
        return true;
    const struct vb_user user = {pd, ep->qpn};
    return vb_hostmem_judge(&ep->node->mem, user, rkey, addr, len, need, offset) == VB_MEM_OK;
}

bool vb_model_may_access(struct vb_ep *ep, uint32_t rkey, uint64_t addr, uint32_t len,
                         uint32_t need, uint32_t *offset)
{
    return vb_model_may_access_in(ep, ep->answer.pd, rkey, addr, len, need, offset);
}

// ---- verdicts

static enum vb_rx_verdict refuse(struct vb_ep *ep, enum vb_nak code)
{
    ep->answer.closing = true;
    ep->answer.nak_due = false;
    ep->answer.nak_syndrome = vb_aeth_syndrome(VB_AETH_NAK, code);
    if (code == VB_NAK_INVALID_REQUEST)
        vb_model_expect_event(ep, VB_EVENT_QP_REQ_ERR);
    else if (code == VB_NAK_REMOTE_ACCESS)
        vb_model_expect_event(ep, VB_EVENT_QP_ACCESS_ERR);
    return VB_RX_REFUSED;
}

static enum vb_rx_verdict refuse_access(struct vb_ep *ep, uint32_t rkey)
{
    const struct vb_hostmem *mem = &ep->node->mem;
    const struct vb_window *w = vb_hostwin_find(&ep->node->mem, rkey);

    for (uint32_t i = 0; i < mem->region_count; i++)
        if (mem->region[i].dead_key == rkey && rkey)
            vb_cover(cover_of(ep), VB_COVER_BAD_DEREG_REMOTE);
    if (w && w->key == rkey && !w->bound)
        vb_cover(cover_of(ep), VB_COVER_WINDOW_UNBOUND_USED);
    return refuse(ep, VB_NAK_REMOTE_ACCESS);
}

// The missing packet came before the complaint left, which stands if others behind it were dropped.
static void reconsider_nak(struct vb_answering *a)
{
    bool sequence = a->nak_syndrome == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);

    a->nak_due &= sequence && a->far >= a->epsn;
    a->silent = a->nak_due;
}

static enum vb_rx_verdict accept(struct vb_ep *ep, const struct vb_packet *pkt, uint32_t packets)
{
    struct vb_answering *a = &ep->answer;

    a->epsn += packets;
    a->unasked = !pkt->ack_request;
    a->unacked |= a->unasked;
    a->ack_due |= a->nak_due || pkt->ack_request;
    reconsider_nak(a);
    if (pkt->facts & VB_OP_LAST) {
        a->message = VB_SIM_NO_MESSAGE;
        a->msn = (a->msn + 1) & VB_PSN_MASK;
    }
    return VB_RX_APPLIED;
}

static enum vb_rx_verdict not_ready(struct vb_ep *ep)
{
    struct vb_answering *a = &ep->answer;

    a->silent = a->nak_due = true;
    a->nak_syndrome = vb_aeth_syndrome(VB_AETH_RNR, ep->link.min_rnr_timer);
    return VB_RX_RNR;
}

static enum vb_rx_verdict receive_fails(struct vb_ep *ep, uint8_t syndrome, enum vb_nak code)
{
    ep->answer.done_due = true;
    ep->answer.done_syndrome = syndrome;
    return refuse(ep, code);
}

// ---- SEND and WRITE

void vb_model_receive_ends(struct vb_ep *ep, const struct vb_packet *pkt, uint32_t bytes)
{
    struct vb_answering *a = &ep->answer;
    bool write = pkt->facts & VB_OP_WRITE;

    a->done_due = true;
    a->done_syndrome = VB_SYN_OK;
    a->done_bytes = bytes;
    a->done_imm = pkt->imm;
    a->done_solicited = pkt->solicited;
    a->done_src_qpn = pkt->src_qpn;
    a->done_opcode = VB_CQE_RESP_SEND;
    if (pkt->facts & VB_OP_IMM)
        a->done_opcode = write ? VB_CQE_RESP_WR_IMM : VB_CQE_RESP_SEND_IMM;
    else if (pkt->facts & VB_OP_IETH)
        a->done_opcode = VB_CQE_RESP_SEND_INV;
}

// The data is there before the key is looked at: a refusal leaves it.
static bool invalidates(struct vb_ep *ep, uint32_t key)
{
    if (vb_hostwin_invalidate(&ep->node->mem, vb_ep_user(ep), key) != VB_MEM_OK)
        return false;
    vb_cover(cover_of(ep), VB_COVER_WINDOW_REMOTE_INVAL);
    return true;
}

static enum vb_rx_verdict on_send(struct vb_ep *ep, const struct vb_packet *pkt,
                                  struct vb_forecast *f)
{
    struct vb_answering *a = &ep->answer;

    if (pkt->facts & VB_OP_FIRST) {
        if (!vb_model_take_receive(ep))
            return not_ready(ep);
        a->filled = 0;
        a->message = VB_SIM_SEND_MESSAGE;
        ep->node->tally.sends++;
    }
    const struct vb_intake *in = vb_ep_intake(ep, a->taken - 1);
    if (pkt->payload_len > in->room - a->filled)
        return receive_fails(ep, VB_SYN_LOCAL_LENGTH, VB_NAK_INVALID_REQUEST);
    if (vb_hostmem_spans(&ep->node->mem, vb_model_receiver(ep, in), in->sge, in->num_sge, a->filled,
                         pkt->payload_len, VB_LOCAL_WRITE, &f->writes) != VB_MEM_OK) {
        f->writes = (struct vb_spans){0};
        return receive_fails(ep, VB_SYN_LOCAL_PROT, VB_NAK_REMOTE_OPERATION);
    }
    f->bytes = pkt->payload;
    if ((pkt->facts & VB_OP_IETH) && !invalidates(ep, pkt->imm))
        return refuse_access(ep, pkt->imm);
    a->filled += pkt->payload_len;
    if (pkt->facts & VB_OP_LAST)
        vb_model_receive_ends(ep, pkt, a->filled);
    return accept(ep, pkt, 1);
}

static enum vb_rx_verdict on_write(struct vb_ep *ep, const struct vb_packet *pkt,
                                   struct vb_forecast *f)
{
    struct vb_answering *a = &ep->answer;
    uint32_t offset = 0;

    if (pkt->facts & VB_OP_FIRST) {
        if (pkt->dma_len > VB_MESSAGE_MAX)
            return refuse(ep, VB_NAK_INVALID_REQUEST);
        if (!vb_model_may_access(ep, pkt->rkey, pkt->raddr, pkt->dma_len, VB_REMOTE_WRITE, &offset))
            return refuse_access(ep, pkt->rkey);
        a->raddr = pkt->raddr;
        a->rkey = pkt->rkey;
        a->left = a->whole = pkt->dma_len;
        ep->node->tally.writes++;
    }
    bool last = pkt->facts & VB_OP_LAST;
    if (last ? pkt->payload_len != a->left : pkt->payload_len >= a->left)
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    if (!vb_model_may_access(ep, a->rkey, a->raddr, pkt->payload_len, VB_REMOTE_WRITE, &offset))
        return refuse_access(ep, a->rkey);
    if (pkt->facts & VB_OP_IMM) {
        if (!vb_model_take_receive(ep)) {
            vb_cover(cover_of(ep), VB_COVER_RNR_WRITE);
            return not_ready(ep);
        }
        vb_model_receive_ends(ep, pkt, a->whole);
    }
    vb_spans_add(&f->writes, offset, pkt->payload_len);
    f->bytes = pkt->payload;
    a->message = VB_SIM_WRITE_MESSAGE;
    a->raddr += pkt->payload_len;
    a->left -= pkt->payload_len;
    return accept(ep, pkt, 1);
}

// ---- requests with answers of their own

// More of them unanswered than the queue pair accepts. One that a repeated READ has taken over does
// not count.
static bool are_too_many(struct vb_ep *ep)
{
    const struct vb_answering *a = &ep->answer;
    uint32_t owed = 0;

    for (uint32_t i = 0; i < a->owed_count; i++)
        owed += !a->owed[i].again;
    if (owed < ep->link.max_dest_rd_atomic)
        return false;
    VB_MODEL_CHECK(ep, ep->peer->link.max_rd_atomic > ep->link.max_dest_rd_atomic,
                   "has %u requests to answer from a peer that sends %u at once", owed,
                   ep->peer->link.max_rd_atomic);
    vb_cover(cover_of(ep), VB_COVER_NAK_TOO_MANY);
    return true;
}

static enum vb_rx_verdict on_read(struct vb_ep *ep, const struct vb_packet *pkt)
{
    struct vb_answering *a = &ep->answer;
    uint32_t offset;

    if (pkt->dma_len > VB_MESSAGE_MAX)
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    if (!vb_model_may_access(ep, pkt->rkey, pkt->raddr, pkt->dma_len, VB_REMOTE_READ, &offset))
        return refuse_access(ep, pkt->rkey);
    ep->node->tally.reads++;
    vb_model_owe_read(ep, pkt, a->epsn, a->pd, false);
    return accept(ep, pkt, vb_model_packets(ep, pkt->dma_len));
}

static enum vb_rx_verdict owe_single(struct vb_ep *ep, const struct vb_packet *pkt,
                                     enum vb_owed_kind kind, uint64_t old)
{
    struct vb_answering *a = &ep->answer;

    a->single[a->single_count++ % VB_SIM_RESULTS] =
        (struct vb_single){.packet = a->epsn, .kind = kind, .old = old};
    vb_model_owe(
        ep, &(struct vb_owed){.kind = kind, .next = a->epsn, .end = a->epsn + 1, .raddr = old});
    return accept(ep, pkt, 1);
}

// Bit by bit, the carry of a field's last bit lost.
static uint64_t add_fields(uint64_t a, uint64_t b, uint64_t ends)
{
    uint64_t sum = 0;
    unsigned carry = 0;

    for (int i = 0; i < 64; i++) {
        unsigned bits = (unsigned)(a >> i & 1) + (unsigned)(b >> i & 1) + carry;
        sum |= (uint64_t)(bits & 1) << i;
        carry = ends >> i & 1 ? 0 : bits >> 1;
    }
    return sum;
}

static uint64_t after_atomic(const struct vb_packet *pkt, uint64_t old)
{
    switch (pkt->opcode) {
    case VB_RC_COMPARE_SWAP: return old == pkt->compare ? pkt->swap_add : old;
    case VB_RC_FETCH_ADD: return old + pkt->swap_add;
    case VB_RC_MASKED_FETCH_ADD: return add_fields(old, pkt->swap_add, pkt->compare);
    default: break;
    }
    if ((old & pkt->compare_mask) != (pkt->compare & pkt->compare_mask))
        return old;
    return (old & ~pkt->swap_mask) | (pkt->swap_add & pkt->swap_mask);
}

// What memory holds there, as a number of this machine.
static uint64_t load(const struct vb_hostmem *mem, uint32_t offset, uint32_t bytes)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;

    if (bytes == 8)
        memcpy(&wide, mem->shadow + offset, sizeof wide);
    else
        memcpy(&narrow, mem->shadow + offset, sizeof narrow);
    return bytes == 8 ? wide : narrow;
}

static void foresee_store(struct vb_forecast *f, uint32_t offset, uint64_t value, uint32_t bytes)
{
    uint32_t narrow = (uint32_t)value;

    memcpy(f->value, bytes == 8 ? (const void *)&value : &narrow, bytes);
    vb_spans_add(&f->writes, offset, bytes);
    f->bytes = f->value;
}

static bool is_aligned(const struct vb_ep *ep, uint64_t raddr, uint32_t offset, uint32_t bytes)
{
    return raddr % bytes == 0 && (uintptr_t)(ep->node->mem.bytes + offset) % bytes == 0;
}

static enum vb_rx_verdict on_atomic(struct vb_ep *ep, const struct vb_packet *pkt,
                                    struct vb_forecast *f)
{
    uint32_t bytes = pkt->facts & VB_OP_MASKED_ETH ? pkt->atomic_bytes : 8, offset = 0;

    if (!vb_model_may_access(ep, pkt->rkey, pkt->raddr, bytes, VB_REMOTE_ATOMIC, &offset))
        return refuse_access(ep, pkt->rkey);
    if (!is_aligned(ep, pkt->raddr, offset, bytes)) {
        vb_cover(cover_of(ep), VB_COVER_NAK_UNALIGNED);
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    }
    uint64_t old = load(&ep->node->mem, offset, bytes);
    uint64_t now = after_atomic(pkt, old);
    foresee_store(f, offset, now, bytes);
    if (pkt->opcode == VB_RC_COMPARE_SWAP || pkt->opcode == VB_RC_MASKED_COMPARE_SWAP)
        vb_cover(cover_of(ep), now != old ? VB_COVER_ATOMIC_SWAPPED : VB_COVER_ATOMIC_UNEQUAL);
    if (bytes == 4)
        vb_cover(cover_of(ep), VB_COVER_ATOMIC_NARROW);
    ep->node->tally.atomics++;
    return owe_single(ep, pkt, VB_OWED_ATOMIC, old);
}

static enum vb_rx_verdict on_atomic_write(struct vb_ep *ep, const struct vb_packet *pkt,
                                          struct vb_forecast *f)
{
    uint32_t offset = 0;

    if (pkt->dma_len != 8 || pkt->raddr % 8 != 0)
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    if (!vb_model_may_access(ep, pkt->rkey, pkt->raddr, 8, VB_REMOTE_WRITE, &offset))
        return refuse_access(ep, pkt->rkey);
    if (!is_aligned(ep, pkt->raddr, offset, 8))
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    ep->node->tally.writes++;
    vb_spans_add(&f->writes, offset, 8);
    f->bytes = pkt->payload;
    return owe_single(ep, pkt, VB_OWED_DONE, 0);
}

static enum vb_rx_verdict on_flush(struct vb_ep *ep, const struct vb_packet *pkt)
{
    bool whole = pkt->flush_level == VB_FETH_REGION;
    uint32_t need = (pkt->flush_type & VB_FETH_GLOBAL ? VB_FLUSH_GLOBAL : 0u) |
                    (pkt->flush_type & VB_FETH_PERSISTENT ? VB_FLUSH_PERSISTENT : 0u);
    uint32_t offset;

    if (need == 0 || pkt->flush_level > VB_FETH_REGION)
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    // Its key counts even if it is about no bytes.
    if ((ep->link.access & need) != need ||
        vb_hostmem_judge(&ep->node->mem, vb_ep_user(ep), pkt->rkey, pkt->raddr,
                         whole ? 0 : pkt->dma_len, need, &offset) != VB_MEM_OK)
        return refuse_access(ep, pkt->rkey);
    ep->node->tally.flushes++;
    return owe_single(ep, pkt, VB_OWED_DONE, 0);
}

// ---- which is which

// Which packets may follow which, and how long they may be.
static bool is_in_order(const struct vb_ep *ep, const struct vb_packet *pkt)
{
    uint32_t facts = pkt->facts;

    if (ep->answer.message == VB_SIM_NO_MESSAGE ? !(facts & VB_OP_FIRST) : facts & VB_OP_FIRST)
        return false;
    if (ep->answer.message == VB_SIM_SEND_MESSAGE && !(facts & VB_OP_SEND))
        return false;
    if (ep->answer.message == VB_SIM_WRITE_MESSAGE && !(facts & VB_OP_WRITE))
        return false;
    if (!(facts & (VB_OP_SEND | VB_OP_WRITE)))
        return true;
    if (!(facts & VB_OP_LAST))
        return pkt->payload_len == ep->link.mtu;
    return pkt->payload_len <= ep->link.mtu && ((facts & VB_OP_FIRST) || pkt->payload_len > 0);
}

enum vb_rx_verdict vb_model_execute(struct vb_ep *ep, const struct vb_packet *pkt,
                                    struct vb_forecast *f)
{
    if (!is_in_order(ep, pkt))
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    if ((pkt->facts & VB_OP_FIRST) && !vb_model_names_srq(ep, pkt))
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    if (pkt->facts & VB_OP_SEND)
        return on_send(ep, pkt, f);
    if (pkt->facts & VB_OP_WRITE)
        return on_write(ep, pkt, f);
    if (are_too_many(ep))
        return refuse(ep, VB_NAK_INVALID_REQUEST);
    if (pkt->facts & VB_OP_READ)
        return on_read(ep, pkt);
    if (pkt->facts & VB_OP_ATOMIC)
        return on_atomic(ep, pkt, f);
    return pkt->facts & VB_OP_FLUSH ? on_flush(ep, pkt) : on_atomic_write(ep, pkt, f);
}
