// SPDX-License-Identifier: Apache-2.0
// The reference model of datagrams (clause 9.8.3): each goes where its request says, and each that
// comes is delivered whole, behind its IP header, or dropped for one of four reasons.
#include "sim/model.h"

#include "wire/roce.h"

#include <string.h>

enum {
    UDP_BYTES = 8,
    BTH_BYTES = 12,
    DETH_BYTES = 8,
    IPV4_BYTES = 20,
    UDP = 17,
    HOPS = 64,
    QKEY_TOP = 1u << 31,
};

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

static bool is_mapped(const struct vb_ip *ip)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(ip->b, prefix, sizeof prefix) == 0;
}

// ---- out

bool vb_model_ud_has_path(const struct vb_ep *ep, const struct vb_work *work)
{
    return ep->opts.service != VB_SERVICE_UD || !vb_work_sends(work) ||
           is_mapped(&work->to.addr) == is_mapped(&ep->node->ip);
}

bool vb_model_ud_is_well_formed(const struct vb_ep *ep, const struct vb_tx_frame *frame,
                                const struct vb_packet *pkt)
{
    return frame->len % 4 == 0 && pkt->pkey == VB_PKEY_DEFAULT &&
           pkt->payload_len <= ep->link.mtu && vb_ip_equal(&frame->path->local, &ep->node->ip) &&
           is_mapped(&frame->path->remote) == is_mapped(&ep->node->ip);
}

// A key with the top bit set stands for the queue pair's own (clause 10.2.5).
bool vb_model_ud_is_addressed(const struct vb_ep *ep, const struct vb_work *work,
                              const struct vb_packet *pkt)
{
    uint32_t qkey = work->to.qkey & QKEY_TOP ? ep->link.qkey : work->to.qkey;

    return pkt->dest_qpn == work->to.qpn && pkt->qkey == qkey && pkt->src_qpn == ep->qpn;
}

// ---- in

static void put_16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

// Of IPv4 the header lies in the last 20 of the 40 bytes; what a socket does not tell is 0.
static void foresee_header(struct vb_ep *ep, const struct vb_rx_frame *frame,
                           const struct vb_packet *pkt)
{
    const struct vb_ip *src = &frame->src;
    uint32_t padded = (pkt->payload_len + 3) & ~3u, imm = pkt->facts & VB_OP_IMM ? 4 : 0;
    uint32_t udp = UDP_BYTES + BTH_BYTES + DETH_BYTES + imm + padded + VB_ICRC_BYTES;
    const struct vb_ip *dst = &ep->node->ip;
    uint8_t *grh = ep->node->datagram;

    memset(grh, 0, VB_SIM_GRH);
    if (is_mapped(dst)) {
        uint8_t *ip = grh + VB_SIM_GRH - IPV4_BYTES;
        ip[0] = 4 << 4 | IPV4_BYTES / 4;
        ip[1] = frame->traffic_class; // which the network marks
        put_16(ip + 2, IPV4_BYTES + udp);
        ip[6] = 0x40; // not to be fragmented
        ip[8] = HOPS;
        ip[9] = UDP;
        memcpy(ip + 12, src->b + 12, 4);
        memcpy(ip + 16, dst->b + 12, 4);
    } else {
        put_16(grh, 6u << 12 | (uint32_t)frame->traffic_class << 4);
        put_16(grh + 4, udp);
        grh[6] = UDP;
        grh[7] = HOPS;
        memcpy(grh + 8, src->b, 16);
        memcpy(grh + 24, dst->b, 16);
    }
    memcpy(grh + VB_SIM_GRH, pkt->payload, pkt->payload_len);
}

static enum vb_rx_verdict drop(struct vb_ep *ep, enum vb_rx_verdict verdict, enum vb_cover_row why)
{
    struct vb_tally *t = &ep->node->tally;

    t->dropped_datagrams++;
    t->unready += verdict == VB_RX_RNR;
    vb_cover(cover_of(ep), why);
    return verdict;
}

// A fault of the receive's own memory. What could be written of the header is.
static enum vb_rx_verdict refuse_memory(struct vb_ep *ep, const struct vb_intake *in,
                                        struct vb_forecast *f)
{
    if (vb_hostmem_spans(&ep->node->mem, vb_model_receiver(ep, in), in->sge, in->num_sge, 0,
                         VB_SIM_GRH, VB_LOCAL_WRITE, &f->writes) != VB_MEM_OK)
        f->writes = (struct vb_spans){0};
    return vb_model_receive_fails(ep, VB_SYN_LOCAL_PROT);
}

static void cover_source(struct vb_ep *ep, const struct vb_packet *pkt)
{
    uint32_t before = ep->answer.done_src_qpn;

    if (before && before != pkt->src_qpn)
        vb_cover(cover_of(ep), VB_COVER_UD_OTHER_PEER);
}

static enum vb_rx_verdict deliver(struct vb_ep *ep, const struct vb_packet *pkt,
                                  const struct vb_rx_frame *frame, struct vb_forecast *f)
{
    uint32_t bytes = VB_SIM_GRH + pkt->payload_len;
    const struct vb_intake *in = vb_model_use_receive(ep);

    if (!in)
        return drop(ep, VB_RX_RNR, VB_COVER_UD_NO_RECEIVE);
    // Anybody may send one, so it costs no receive.
    if (bytes > in->room)
        return drop(ep, VB_RX_REFUSED, VB_COVER_UD_SHORT);
    foresee_header(ep, frame, pkt);
    f->bytes = ep->node->datagram;
    if (vb_hostmem_spans(&ep->node->mem, vb_model_receiver(ep, in), in->sge, in->num_sge, 0, bytes,
                         VB_LOCAL_WRITE, &f->writes) != VB_MEM_OK)
        return refuse_memory(ep, in, f);
    cover_source(ep, pkt);
    ep->node->tally.datagrams++;
    vb_model_receive_ends(ep, pkt, bytes);
    return VB_RX_APPLIED;
}

void vb_model_ud_in(struct vb_ep *ep, const struct vb_rx_frame *frame, const struct vb_packet *pkt,
                    struct vb_forecast *f)
{
    if (pkt->qkey != ep->link.qkey) {
        ep->node->tally.qkey_violations++;
        f->verdict = drop(ep, VB_RX_STRANGER, VB_COVER_UD_QKEY);
    } else if (pkt->payload_len > ep->link.mtu) {
        f->verdict = drop(ep, VB_RX_REFUSED, VB_COVER_UD_MTU);
    } else {
        f->verdict = deliver(ep, pkt, frame, f);
    }
}
