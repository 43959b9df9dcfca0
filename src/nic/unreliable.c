// SPDX-License-Identifier: Apache-2.0
// The unreliable services' responder (clause 9.8): nothing is answered. What cannot be placed is
// dropped with the rest of its message; only faults of our own receive queue fail the queue pair.
#include "nic/pu.h"

#include "base/bytes.h"
#include "base/serial.h"
#include "nic/spread.h"

#include <string.h>

enum {
    GRH_BYTES = 40,
    IPV4_BYTES = 20,
    PROTO_UDP = 17,
    HOP_LIMIT = 64,
};

// The message in progress is given up; its receive entry serves the next one.
static void abandon(struct vb_qpc *qp)
{
    qp->resp.message = VB_MESSAGE_NONE;
    qp->resp.recv.filled = 0;
}

static enum vb_rx_verdict receive_fails(struct vb_pu *pu, struct vb_qpc *qp,
                                        enum vb_cqe_syndrome syndrome)
{
    vb_place_complete(pu, qp, VB_CQE_RESP_ERR, (uint8_t)syndrome, qp->resp.recv.filled);
    qp->resp.closing = true; // the queue pair fails when the completion is written
    return VB_RX_REFUSED;
}

static enum vb_rx_verdict judge(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                                enum vb_placed placed)
{
    switch (placed) {
    case VB_PLACED:
        if (pkt->facts & VB_OP_LAST)
            qp->resp.message = VB_MESSAGE_NONE;
        return VB_RX_APPLIED;
    case VB_PLACE_TOO_LONG: return receive_fails(pu, qp, VB_SYN_LOCAL_LENGTH);
    case VB_PLACE_LOCAL_FAULT: return receive_fails(pu, qp, VB_SYN_LOCAL_PROT);
    case VB_PLACE_NOT_READY:
        VB_COUNT(pu, qp, out_of_buffer);
        abandon(qp);
        return VB_RX_RNR;
    default: abandon(qp); return VB_RX_REFUSED;
    }
}

// A packet out of sequence ends the message in progress; only a First can begin another.
static enum vb_rx_verdict connected(struct vb_pu *pu, struct vb_qpc *qp,
                                    const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;

    if (pkt->psn != r->epsn || !vb_place_follows(r, pkt->facts)) {
        if (pkt->psn != r->epsn)
            VB_COUNT(pu, qp, out_of_seq_request);
        abandon(qp);
        if (!(pkt->facts & VB_OP_FIRST)) {
            r->epsn = vb_psn_add(pkt->psn, 1);
            return VB_RX_AHEAD;
        }
    }
    r->epsn = vb_psn_add(pkt->psn, 1);
    r->pd = qp->pd;
    if (pkt->facts & VB_OP_SEND)
        return judge(pu, qp, pkt, vb_place_send(pu, qp, pkt));
    return judge(pu, qp, pkt, vb_place_write(pu, qp, pkt));
}

// The 40 bytes that come before a datagram: the IP header, an IPv4 one in the last 20. What the
// port does not know is as most senders have it.
static void build_grh(uint8_t grh[GRH_BYTES], const struct vb_rx_frame *frame,
                      const struct vb_ip *dst)
{
    const struct vb_ip *src = &frame->src;
    uint32_t udp_len = frame->len + 8;
    uint8_t hop_limit = frame->hop_limit ? frame->hop_limit : HOP_LIMIT;

    memset(grh, 0, GRH_BYTES);
    if (vb_ip_is_v4(src)) {
        uint8_t *ip = grh + GRH_BYTES - IPV4_BYTES;
        ip[0] = 0x45;
        ip[1] = frame->traffic_class;
        vb_put_be16(ip + 2, (uint16_t)(IPV4_BYTES + udp_len));
        ip[6] = 0x40;
        ip[8] = hop_limit;
        ip[9] = PROTO_UDP;
        memcpy(ip + 12, src->b + 12, 4);
        memcpy(ip + 16, dst->b + 12, 4);
        return;
    }
    vb_put_be32(grh, 6u << 28 | (uint32_t)frame->traffic_class << 20 | frame->flow_label);
    vb_put_be16(grh + 4, (uint16_t)udp_len);
    grh[6] = PROTO_UDP;
    grh[7] = hop_limit;
    memcpy(grh + 8, src->b, 16);
    memcpy(grh + 24, dst->b, 16);
}

static enum vb_rx_verdict dropped(struct vb_pu *pu, enum vb_rx_verdict verdict)
{
    pu->count.rx_dropped_datagrams++;
    return verdict;
}

static enum vb_rx_verdict datagram(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                                   const struct vb_rx_frame *frame)
{
    uint8_t grh[GRH_BYTES];

    if (pkt->qkey != qp->qkey) {
        pu->count.qkey_violations++;
        return dropped(pu, VB_RX_STRANGER);
    }
    if (pkt->payload_len > qp->mtu)
        return dropped(pu, VB_RX_REFUSED);
    if (__builtin_expect(qp->spread != NULL, 0) && !(qp = vb_spread_pick(qp, frame)))
        return dropped(pu, VB_RX_RNR);
    struct vb_recv *recv = &qp->resp.recv;
    if (!recv->loaded && !vb_receive_load(pu, qp)) {
        VB_COUNT(pu, qp, out_of_buffer);
        return dropped(pu, VB_RX_RNR);
    }
    // Any stranger may send one: it costs nobody a receive.
    if (recv->room < GRH_BYTES + pkt->payload_len)
        return dropped(pu, VB_RX_REFUSED);
    build_grh(grh, frame, frame->to ? frame->to : &qp->local);
    struct vb_accessor who = vb_place_who(qp);
    if (vb_scatter(pu, who, recv->seg, recv->num_seg, 0, grh, GRH_BYTES) != VB_MEM_OK ||
        vb_scatter(pu, who, recv->seg, recv->num_seg, GRH_BYTES, pkt->payload, pkt->payload_len) !=
            VB_MEM_OK)
        return receive_fails(pu, qp, VB_SYN_LOCAL_PROT);
    uint8_t opcode = pkt->facts & VB_OP_IMM ? VB_CQE_RESP_SEND_IMM : VB_CQE_RESP_SEND;
    vb_place_complete(pu, qp, opcode, VB_SYN_OK, GRH_BYTES + pkt->payload_len);
    qp->resp.done.imm = pkt->imm;
    qp->resp.done.solicited = pkt->solicited;
    qp->resp.done.flags_rqpn = VB_CQE_GRH | pkt->src_qpn;
    pu->count.rx_datagrams++;
    return VB_RX_APPLIED;
}

enum vb_rx_verdict vb_unreliable_receive(struct vb_pu *pu, struct vb_qpc *qp,
                                         const struct vb_packet *pkt,
                                         const struct vb_rx_frame *frame)
{
    if (qp->resp.closing)
        return VB_RX_STRANGER;
    return qp->type == VB_QPT_UD ? datagram(pu, qp, pkt, frame) : connected(pu, qp, pkt);
}
