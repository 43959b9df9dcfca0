// SPDX-License-Identifier: Apache-2.0
// Placing the payload of SEND and WRITE packets: the same for all services, which differ in what
// they make of a refusal.
#include "nic/pu.h"

#include "base/bytes.h"

#include <string.h>

// First and Middle are full, Last is not empty, nothing is longer than the MTU (clause 9.7.4.1.6).
static bool length_is_legal(const struct vb_qpc *qp, const struct vb_packet *pkt)
{
    if (!(pkt->facts & VB_OP_LAST))
        return pkt->payload_len == qp->mtu;
    if (!(pkt->facts & VB_OP_FIRST) && pkt->payload_len == 0)
        return false;
    return pkt->payload_len <= qp->mtu;
}

// A receive entry is used up: its completion is due before the next frame.
void vb_place_complete(struct vb_pu *pu, struct vb_qpc *qp, uint8_t opcode, uint8_t syndrome,
                       uint32_t bytes)
{
    const struct vb_recv *recv = &qp->resp.recv;

    qp->resp.done = (struct vb_completion){
        .qpn = qp->qpn,
        .counter = recv->counter,
        .opcode = syndrome ? VB_CQE_RESP_ERR : opcode,
        .syndrome = syndrome,
        .bytes = bytes,
        .srqn = recv->srq ? recv->srq->srqn : 0,
    };
    pu->recv_done = qp;
}

static uint8_t receive_opcode(uint32_t facts)
{
    if (facts & VB_OP_IMM)
        return facts & VB_OP_WRITE ? VB_CQE_RESP_WR_IMM : VB_CQE_RESP_SEND_IMM;
    return facts & VB_OP_IETH ? VB_CQE_RESP_SEND_INV : VB_CQE_RESP_SEND;
}

static void message_ends(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                         uint32_t bytes)
{
    vb_place_complete(pu, qp, receive_opcode(pkt->facts), VB_SYN_OK, bytes);
    qp->resp.done.imm = pkt->facts & VB_OP_IETH ? htobe32(pkt->imm) : pkt->imm;
    qp->resp.done.solicited = pkt->solicited;
}

struct vb_accessor vb_place_who(const struct vb_qpc *qp)
{
    const struct vb_recv *recv = &qp->resp.recv;
    return (struct vb_accessor){recv->srq ? recv->srq->pd : qp->pd, qp->qpn};
}

enum vb_placed vb_place_send(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    struct vb_recv *recv = &qp->resp.recv;

    if (!length_is_legal(qp, pkt))
        return VB_PLACE_MALFORMED;
    if (pkt->facts & VB_OP_FIRST) {
        if (!recv->loaded && !vb_receive_load(pu, qp))
            return VB_PLACE_NOT_READY;
        qp->resp.message = VB_MESSAGE_SEND;
        VB_COUNT(pu, qp, rx_send_requests);
    }
    if (pkt->payload_len > recv->room - recv->filled)
        return VB_PLACE_TOO_LONG;
    if (vb_scatter(pu, vb_place_who(qp), recv->seg, recv->num_seg, recv->filled, pkt->payload,
                   pkt->payload_len) != VB_MEM_OK)
        return VB_PLACE_LOCAL_FAULT;
    if ((pkt->facts & VB_OP_IETH) &&
        vb_key_invalidate(&pu->dev->mkeys, vb_qpc_who(qp), pkt->imm) != VB_MEM_OK)
        return VB_PLACE_BAD_KEY;
    recv->filled += pkt->payload_len;
    if (pkt->facts & VB_OP_LAST)
        message_ends(pu, qp, pkt, recv->filled);
    return VB_PLACED;
}

bool vb_place_may(struct vb_pu *pu, struct vb_qpc *qp, uint32_t pd, uint32_t rkey, uint64_t addr,
                  uint32_t len, enum vb_access need, uint8_t **at)
{
    if ((qp->access & need) != need) {
        qp->resp.copied = false;
        return false;
    }
    // A zero-length request names no memory: its key is not looked at (C9-88).
    if (len == 0 && !pu->dev->check_zero_length)
        return true;
    enum vb_mem_refusal r = vb_mem_access(&pu->dev->mkeys, (struct vb_accessor){pd, qp->qpn}, rkey,
                                          addr, len, need, at);
    if (r == VB_MEM_OK)
        return true;
    qp->resp.gone = r == VB_MEM_GONE;
    qp->resp.copied = r == VB_MEM_COPIED;
    return false;
}

bool vb_place_copy(struct vb_pu *pu, struct vb_qpc *qp, uint32_t pd, uint32_t rkey, uint64_t addr,
                   uint32_t len, enum vb_access need, uint8_t *bytes)
{
    vb_share_pieces(pu, qp->qpn, 0, 1);
    enum vb_mem_refusal r = vb_mem_copy(&pu->dev->mkeys, (struct vb_accessor){pd, qp->qpn}, rkey,
                                        addr, len, need, bytes);
    qp->resp.gone = r == VB_MEM_GONE;
    return r == VB_MEM_OK;
}

static void write_is_legal(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;

    r->raddr = pkt->raddr;
    r->rkey = pkt->rkey;
    r->left = r->written = pkt->dma_len;
    VB_COUNT(pu, qp, rx_write_requests);
}

static enum vb_placed write_begins(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                                   uint8_t **at)
{
    struct vb_responder *r = &qp->resp;

    if (pkt->dma_len > VB_MESSAGE_MAX)
        return VB_PLACE_MALFORMED;
    if (!vb_place_may(pu, qp, r->pd, pkt->rkey, pkt->raddr, pkt->dma_len, VB_REMOTE_WRITE, at))
        return VB_PLACE_BAD_KEY;
    write_is_legal(pu, qp, pkt);
    return VB_PLACED;
}

static inline enum vb_placed write_ends(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;

    if (!(pkt->facts & VB_OP_LAST)) {
        r->message = VB_MESSAGE_WRITE;
        r->raddr += pkt->payload_len;
        r->left -= pkt->payload_len;
    }
    if (pkt->facts & VB_OP_IMM)
        message_ends(pu, qp, pkt, r->written);
    return VB_PLACED;
}

// A packet whose memory was refused because it has to be copied.
__attribute__((cold, noinline)) static enum vb_placed write_copied(struct vb_pu *pu,
                                                                   struct vb_qpc *qp,
                                                                   const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;

    if (pkt->facts & VB_OP_FIRST)
        write_is_legal(pu, qp, pkt);
    if (pkt->facts & VB_OP_LAST ? pkt->payload_len != r->left : pkt->payload_len >= r->left)
        return VB_PLACE_MALFORMED;
    if ((pkt->facts & VB_OP_IMM) && !r->recv.loaded && !vb_receive_load(pu, qp))
        return VB_PLACE_NOT_READY;
    if (!vb_place_copy(pu, qp, r->pd, r->rkey, r->raddr, pkt->payload_len, VB_REMOTE_WRITE,
                       (uint8_t *)(uintptr_t)pkt->payload))
        return VB_PLACE_BAD_KEY;
    return write_ends(pu, qp, pkt);
}

enum vb_placed vb_place_write(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    bool first = pkt->facts & VB_OP_FIRST, last = pkt->facts & VB_OP_LAST;
    uint8_t *at = NULL;

    if (!length_is_legal(qp, pkt))
        return VB_PLACE_MALFORMED;
    if (first) {
        enum vb_placed placed = write_begins(pu, qp, pkt, &at);
        if (placed != VB_PLACED)
            return placed == VB_PLACE_BAD_KEY && r->copied ? write_copied(pu, qp, pkt) : placed;
    }
    if (last ? pkt->payload_len != r->left : pkt->payload_len >= r->left)
        return VB_PLACE_MALFORMED;
    // The region may be gone since the first packet: every packet proves its own bytes.
    if (!first &&
        !vb_place_may(pu, qp, r->pd, r->rkey, r->raddr, pkt->payload_len, VB_REMOTE_WRITE, &at))
        return r->copied ? write_copied(pu, qp, pkt) : VB_PLACE_BAD_KEY;
    if ((pkt->facts & VB_OP_IMM) && !r->recv.loaded && !vb_receive_load(pu, qp))
        return VB_PLACE_NOT_READY;
    if (pkt->payload_len > 0) {
        memcpy(at, pkt->payload, pkt->payload_len);
        vb_pu_touch(pu, at, pkt->payload_len, true);
    }
    return write_ends(pu, qp, pkt);
}
