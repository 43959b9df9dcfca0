// SPDX-License-Identifier: Apache-2.0
// What comes from the wire: packets of all transports, right by default, then bent.
#include "rig.h"

#include "base/serial.h"

#include <stdlib.h>
#include <string.h>

static uint32_t at_most(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t mtu_of(const struct rig *r, const struct rig_qp *q)
{
    return q->ctx->mtu ? q->ctx->mtu : r->mtu;
}

// ---- the batch

void rig_drop_batch(struct rig *r)
{
    for (uint32_t i = 0; i < r->batched; i++)
        free((void *)(uintptr_t)r->batch[i].data);
    r->batched = 0;
}

void rig_frame(struct rig *r, const uint8_t *bytes, uint32_t len, bool stranger)
{
    if (r->batched == RIG_BATCH || r->fed)
        rig_run(r);
    uint8_t *copy = malloc(len ? len : 1);
    rig_require(copy != NULL);
    memcpy(copy, bytes, len);
    r->batch[r->batched++] = (struct vb_rx_frame){
        .data = copy, .head = copy, .len = len, .src = stranger ? r->local : r->remote};
}

static void give(struct rig *r, const struct vb_packet *pkt)
{
    static const uint8_t payload[VB_MTU_MAX + 8] = {1, 2, 3};
    uint8_t frame[VB_HEADERS_MAX + VB_MTU_MAX + 16];
    size_t len = vb_packet_encode(frame, pkt);
    memcpy(frame + len, payload, pkt->payload_len);
    len += pkt->payload_len;
    memset(frame + len, 0, vb_packet_pad(pkt->payload_len) + VB_ICRC_BYTES);
    len += vb_packet_pad(pkt->payload_len) + VB_ICRC_BYTES;
    rig_frame(r, frame, (uint32_t)len, false);
}

// ---- what the device sent comes round

void rig_deliver(struct rig *r)
{
    struct rig_wire wire[RIG_WIRE];
    uint32_t count = r->wired;
    uint8_t choice = rig_u8(r), mask = choice & 0x80 ? rig_u8(r) : 0;
    memcpy(wire, r->wire, sizeof wire);
    r->wired = 0; // delivering sends more
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = choice & 1 ? count - 1 - i : i;
        bool marked = mask >> i % 8 & 1;
        if (!marked || choice & 2)
            rig_frame(r, wire[at].bytes, wire[at].len, false);
        if (marked && choice & 2)
            rig_frame(r, wire[at].bytes, wire[at].len, false);
    }
    for (uint32_t i = 0; i < count; i++)
        free(wire[i].bytes);
    if (choice & 4)
        rig_run(r);
}

// ---- packets that are mostly right

static uint8_t pick_opcode(struct rig *r, const struct rig_qp *q)
{
    uint8_t choice = rig_u8(r);
    if (vb_opcode_table[choice].facts)
        return choice;
    uint8_t own = vb_opcode_for(q->ctx->transport, choice & 0x1f);
    return vb_opcode_table[own].facts ? own : VB_CNP;
}

// Near a number that means something to the queue pair; mostly the expected one.
static uint32_t pick_psn(struct rig *r, const struct vb_qpc *qp, uint32_t facts)
{
    uint32_t expected = facts & VB_OP_REQUEST ? qp->resp.epsn : qp->req.una_psn;
    uint8_t choice = rig_u8(r);
    if (choice < 0x60)
        return (expected + choice % 4) & VB_PSN_MASK;
    int delta = (int8_t)rig_u8(r) / (choice & 0x10 ? 1 : 16);
    uint32_t base;
    switch (choice % 4) {
    case 0: base = expected; break;
    case 1: base = qp->req.max_psn; break;
    case 2: base = choice & 0x80 ? rig_u32(r) : expected + 0x800000; break;
    default: base = qp->req.send_psn; break;
    }
    return (base + (uint32_t)delta) & VB_PSN_MASK;
}

static uint32_t pick_length(struct rig *r, const struct rig_qp *q, uint32_t facts)
{
    uint8_t choice = rig_u8(r);
    uint32_t mtu = mtu_of(r, q);
    if (facts & VB_OP_ATOMIC_WRITE)
        return VB_ATOMIC_WRITE_BYTES;
    if (choice < 0x80)
        return facts & VB_OP_LAST ? choice : mtu;
    switch (choice % 4) {
    case 0: return mtu;
    case 1: return at_most(rig_u16(r) % (mtu + 8), VB_MTU_MAX + 8);
    case 2: return at_most(mtu + choice % 16, VB_MTU_MAX + 8);
    default: return 0;
    }
}

static void fill_address(struct rig *r, struct vb_packet *p, uint32_t facts)
{
    uint8_t choice = rig_u8(r);
    p->raddr = rig_addr(r, &p->rkey);
    p->dma_len = choice < 0x60   ? p->payload_len
                 : choice < 0xf0 ? rig_u16(r) % RIG_REGION_BYTES
                                 : rig_u32(r);
    if (facts & VB_OP_FLUSH) {
        p->flush_type = choice & 1 ? choice >> 1 & 15 : VB_FETH_GLOBAL;
        p->flush_level = choice >> 5 & 3;
    }
    if (!(facts & VB_OP_ATOMIC))
        return;
    p->atomic_bytes = choice & 1 ? 4 : 8;
    p->swap_add = choice & 2 ? rig_u64(r) : choice;
    p->compare = choice & 4 ? rig_u64(r) : 0;
    p->swap_mask = choice & 8 ? rig_u64(r) : UINT64_MAX;
    p->compare_mask = choice & 16 ? rig_u64(r) : UINT64_MAX;
}

// The fields that tell whose packet it is: right, unless the choice says otherwise.
static void fill_names(struct rig *r, struct rig_qp *q, struct vb_packet *p, uint8_t choice)
{
    p->pkey = VB_PKEY_DEFAULT;
    p->dest_qpn = q->driver.qpn;
    p->src_qpn = q->driver.qpn;
    p->qkey = choice & 0x20 ? rig_u32(r) : q->ctx->qkey;
    p->xrc_srqn = choice & 0x40 ? rig_u8(r) % 4 : r->srq[1].srqn;
    p->imm = choice & 0x08 ? vb_mkey_current(&r->dev->mkeys, r->window[choice & 1]) : choice;
    p->solicited = choice & 0x04;
    p->ack_request = choice & 0x10;
    p->marks = choice & 0x03;
}

static struct vb_packet make_packet(struct rig *r, struct rig_qp *q)
{
    struct vb_packet p = {.opcode = pick_opcode(r, q)};
    uint32_t facts = vb_opcode_table[p.opcode].facts;

    fill_names(r, q, &p, rig_u8(r));
    p.psn = pick_psn(r, q->ctx, facts);
    p.payload_len = facts & VB_OP_PAYLOAD ? pick_length(r, q, facts) : 0;
    if (facts & (VB_OP_RETH | VB_OP_ATOMIC_ETH | VB_OP_MASKED_ETH))
        fill_address(r, &p, facts);
    if (facts & VB_OP_AETH) {
        p.syndrome = rig_u8(r);
        p.msn = p.syndrome;
        p.atomic_old = p.syndrome;
    }
    return p;
}

void rig_give_packet(struct rig *r, struct rig_qp *q)
{
    const struct vb_packet p = make_packet(r, q);
    give(r, &p);
}

void rig_give_mutant(struct rig *r, struct rig_qp *q)
{
    uint8_t frame[VB_HEADERS_MAX + VB_MTU_MAX + 16] = {0};
    struct vb_packet p = make_packet(r, q);
    uint32_t len = (uint32_t)vb_packet_encode(frame, &p);
    len += p.payload_len + vb_packet_pad(p.payload_len) + VB_ICRC_BYTES;
    uint8_t choice = rig_u8(r);
    for (uint32_t i = 0; i < choice % 4u; i++) {
        uint8_t at = rig_u8(r);
        frame[at % VB_HEADERS_MAX] ^= rig_u8(r);
    }
    if (choice & 0x40)
        len -= rig_u8(r) % len;
    rig_frame(r, frame, len, choice & 0x80);
}

// ---- packets that are exactly right

static uint8_t continued(const struct rig_qp *q, uint8_t choice, uint32_t mtu, uint32_t *len)
{
    static const uint8_t ends[] = {VB_RC_SEND_LAST, VB_RC_SEND_LAST_IMM, VB_RC_SEND_LAST_INV};
    const struct vb_responder *m = &q->ctx->resp;
    *len = mtu;
    if (m->message == VB_MESSAGE_SEND)
        return choice & 1 ? VB_RC_SEND_MIDDLE : ends[choice / 2 % sizeof ends];
    if (m->left > mtu)
        return VB_RC_WRITE_MIDDLE;
    *len = m->left;
    return choice & 1 ? VB_RC_WRITE_LAST : VB_RC_WRITE_LAST_IMM;
}

// The first packet of a message: enough of each field is right for it to be carried out.
static void begin_message(struct rig *r, struct vb_packet *p, uint8_t choice, uint32_t mtu)
{
    static const uint8_t first[] = {
        VB_RC_SEND_FIRST,   VB_RC_SEND_ONLY,  VB_RC_SEND_ONLY_IMM,       VB_RC_SEND_ONLY_INV,
        VB_RC_WRITE_FIRST,  VB_RC_WRITE_ONLY, VB_RC_WRITE_ONLY_IMM,      VB_RC_READ_REQUEST,
        VB_RC_COMPARE_SWAP, VB_RC_FETCH_ADD,  VB_RC_MASKED_COMPARE_SWAP, VB_RC_MASKED_FETCH_ADD,
        VB_RC_ATOMIC_WRITE, VB_RC_FLUSH,      VB_RC_READ_REQUEST,        VB_RC_WRITE_FIRST};
    p->opcode = first[choice % sizeof first];
    p->raddr = rig_addr(r, &p->rkey);
    p->dma_len = rig_u16(r) % RIG_REGION_BYTES;
    p->payload_len = mtu;
    p->atomic_bytes = choice & 0x10 ? 4 : 8;
    p->flush_type = VB_FETH_GLOBAL;
    p->compare_mask = p->swap_mask = UINT64_MAX;
    if (p->opcode == VB_RC_SEND_ONLY || p->opcode == VB_RC_SEND_ONLY_IMM ||
        p->opcode == VB_RC_SEND_ONLY_INV)
        p->payload_len = at_most(p->dma_len, mtu);
    else if (p->opcode == VB_RC_WRITE_ONLY || p->opcode == VB_RC_WRITE_ONLY_IMM)
        p->payload_len = p->dma_len = at_most(p->dma_len, mtu);
    else if (p->opcode == VB_RC_ATOMIC_WRITE)
        p->payload_len = p->dma_len = VB_ATOMIC_WRITE_BYTES;
    else if (p->opcode != VB_RC_SEND_FIRST && p->opcode != VB_RC_WRITE_FIRST)
        p->payload_len = 0;
}

void rig_give_request(struct rig *r, struct rig_qp *q)
{
    uint32_t mtu = mtu_of(r, q);
    uint8_t choice = rig_u8(r);
    uint32_t old = choice & 0x40 ? 1 + rig_u8(r) % 8 : 0; // or one that was there before
    struct vb_packet p = {.psn = (q->ctx->resp.epsn - old) & VB_PSN_MASK};

    fill_names(r, q, &p, choice & 0x9f);
    p.ack_request = choice & 0x80;
    if (q->type == VB_QPT_UD) {
        p.opcode = choice & 1 ? VB_UD_SEND_ONLY : VB_UD_SEND_ONLY_IMM;
        p.payload_len = rig_u16(r) % (mtu + 1);
    } else if (q->ctx->resp.message != VB_MESSAGE_NONE) {
        p.opcode = continued(q, choice, mtu, &p.payload_len);
    } else {
        begin_message(r, &p, choice, mtu);
    }
    if (q->type != VB_QPT_UD)
        p.opcode = vb_opcode_for(q->ctx->transport, p.opcode);
    if (!vb_opcode_table[p.opcode].facts)
        p.opcode = vb_opcode_for(q->ctx->transport, VB_RC_SEND_ONLY);
    give(r, &p);
    if (choice & 0x20)
        rig_run(r);
}

static void answer_read(const struct rig *r, const struct rig_qp *q, struct vb_packet *p)
{
    const struct vb_requester *m = &q->ctx->req;
    const struct vb_wr *wr = m->una_wr;
    uint32_t mtu = mtu_of(r, q);
    uint32_t index = (m->una_psn - wr->first_psn) & VB_PSN_MASK;
    bool ends = index + 1 == wr->psns || (index + 1) % vb_read_segment(q->ctx) == 0;
    p->opcode = ends ? VB_RC_READ_RESP_LAST : VB_RC_READ_RESP_MIDDLE;
    p->payload_len = at_most(wr->length - index * mtu, mtu);
}

void rig_give_answer(struct rig *r, struct rig_qp *q)
{
    const struct vb_requester *m = &q->ctx->req;
    const struct vb_wr *wr = m->una_wr;
    struct vb_packet p = {.opcode = VB_RC_ACK,
                          .pkey = VB_PKEY_DEFAULT,
                          .dest_qpn = q->driver.qpn,
                          .psn = (m->max_psn - 1) & VB_PSN_MASK,
                          .syndrome = 0x1f};
    bool asks = q->ctx->state == VB_QPS_RTS || q->ctx->state == VB_QPS_SQD;
    if (asks && wr && wr != m->unbegun && wr->awaits) {
        p.psn = m->una_psn;
        p.opcode = wr->arg_bytes ? VB_RC_ATOMIC_ACK : VB_RC_READ_RESP_ONLY;
        if (wr->opcode == VB_WQE_READ)
            answer_read(r, q, &p);
    }
    p.opcode = vb_opcode_for(q->ctx->transport, p.opcode);
    if (!vb_opcode_table[p.opcode].facts)
        return; // nothing answers on this transport
    give(r, &p);
    rig_run(r);
}
