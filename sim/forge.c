// SPDX-License-Identifier: Apache-2.0
// Forged frames. A packet with a right source and a right number cannot be told from the peer's
// own, so none of those is made.
#include "sim/forge.h"

#include "base/serial.h"
#include "sim/trace.h"
#include "wire/packet.h"

#include <string.h>

enum {
    NOISE_MAX = 300,
    FAR_MIN = 1 << 20,
    FAR_MAX = 1 << 22,
    PAYLOAD_MAX = 256
};

static uint32_t draw(struct vb_world *w, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(&w->prng, lo, hi);
}

static void fill(struct vb_world *w, uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)vb_prng_next(&w->prng);
}

static void inject(struct vb_ep *to, const struct vb_ip *src, const uint8_t *frame, uint32_t len)
{
    struct vb_world *w = to->node->world;

    if (!vb_ep_is_unreliable(to) && vb_sent_find(&w->sent, src, &to->node->ip, frame, len))
        return; // bit for bit a frame that is under way
    if (vb_ep_is_unreliable(to))
        vb_sent_add(&w->sent, src, &to->node->ip, frame, len); // it may be accepted
    vb_simnet_inject(w->net, src, &to->node->ip, (uint16_t)draw(w, 1024, 65535), frame, len);
    vb_node_wake(to->node);
}

void vb_forge_inject(struct vb_ep *to, const struct vb_ip *src, struct vb_packet *pkt)
{
    uint8_t frame[VB_HEADERS_MAX + PAYLOAD_MAX + 8];

    pkt->pkey = VB_PKEY_DEFAULT;
    size_t len = vb_packet_encode(frame, pkt);
    uint32_t body = pkt->payload_len + vb_packet_pad(pkt->payload_len);
    fill(to->node->world, frame + len, body);
    inject(to, src, frame, (uint32_t)len + body + VB_ICRC_BYTES);
}

static void noise(struct vb_ep *to)
{
    struct vb_world *w = to->node->world;
    uint8_t frame[NOISE_MAX];
    uint32_t len = draw(w, 16, NOISE_MAX);

    fill(w, frame, len);
    vb_cover(w->cover, VB_COVER_FORGED_NOISE);
    inject(to, &to->peer->node->ip, frame, len);
}

// The next request, or the answer to the oldest one, as the peer would send it.
static struct vb_packet plausible(struct vb_ep *to, bool request)
{
    static const uint8_t requests[] = {
        VB_RC_SEND_ONLY,      VB_RC_WRITE_ONLY,       VB_RC_READ_REQUEST, VB_RC_SEND_FIRST,
        VB_RC_WRITE_MIDDLE,   VB_RC_SEND_LAST,        VB_RC_COMPARE_SWAP, VB_RC_SEND_ONLY_IMM,
        VB_RC_FETCH_ADD,      VB_RC_MASKED_FETCH_ADD, VB_RC_FLUSH,        VB_RC_ATOMIC_WRITE,
        VB_RC_WRITE_ONLY_IMM, VB_RC_SEND_ONLY_INV};
    static const uint8_t answers[] = {VB_RC_ACK,
                                      VB_RC_ACK,
                                      VB_RC_READ_RESP_ONLY,
                                      VB_RC_READ_RESP_FIRST,
                                      VB_RC_READ_RESP_MIDDLE,
                                      VB_RC_READ_RESP_LAST,
                                      VB_RC_ATOMIC_ACK};
    struct vb_world *w = to->node->world;
    const struct vb_region *r = to->node->exposed[to->opts.domain][VB_EXPOSED_BOTH];
    struct vb_packet pkt = {
        .opcode = request ? requests[draw(w, 0, sizeof requests - 1)]
                          : answers[draw(w, 0, sizeof answers - 1)],
        .dest_qpn = to->qpn,
        .ack_request = draw(w, 0, 1),
        .syndrome = (uint8_t)vb_prng_next(&w->prng),
        .msn = draw(w, 0, 0xffffff),
        .raddr = r->addr,
        .rkey = r->key,
        .atomic_bytes = 8,
        .flush_type = VB_FETH_GLOBAL,
    };
    uint8_t xrc = vb_opcode_for(VB_TP_XRC, pkt.opcode & 0x1f);
    if (vb_ep_is_xrc(to) && vb_opcode_table[xrc].facts)
        pkt.opcode = xrc; // which names no shared receive queue
    uint32_t facts = vb_opcode_table[pkt.opcode].facts;

    if (facts & VB_OP_PAYLOAD)
        pkt.payload_len = facts & VB_OP_LAST ? draw(w, 0, PAYLOAD_MAX) : PAYLOAD_MAX;
    if (facts & VB_OP_ATOMIC_WRITE)
        pkt.payload_len = VB_ATOMIC_WRITE_BYTES;
    pkt.dma_len = pkt.payload_len;
    pkt.psn = request ? vb_psn_add(to->answer.psn0, (uint32_t)to->answer.epsn)
                      : vb_psn_add(to->ask.psn0, (uint32_t)to->ask.una);
    return pkt;
}

// All is right but the address it comes from.
static void wrong_source(struct vb_ep *to)
{
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = plausible(to, draw(w, 0, 1));
    struct vb_ip src = to->peer->node->ip;

    src.b[15] ^= (uint8_t)(0x20 << draw(w, 0, 2));
    vb_cover(w->cover, VB_COVER_FORGED_SOURCE);
    vb_forge_inject(to, &src, &pkt);
}

static void wrong_qpn(struct vb_ep *to)
{
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = plausible(to, draw(w, 0, 1));

    pkt.dest_qpn ^= draw(w, 0, 1) ? 1u << draw(w, 14, 23) : draw(w, 1 << 8, (1 << 14) - 1);
    vb_cover(w->cover, VB_COVER_FORGED_QPN);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

// All is right but the service: the same operation of UC, XRC or nothing.
static void wrong_transport(struct vb_ep *to)
{
    static const enum vb_transport other[] = {VB_TP_UC, VB_TP_XRC, VB_TP_UD, VB_TP_CNP};
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = plausible(to, draw(w, 0, 1));
    enum vb_transport transport = other[draw(w, 0, 3)];
    if (transport == VB_TP_XRC && vb_ep_is_xrc(to))
        transport = VB_TP_RC;
    uint8_t opcode = vb_opcode_for(transport, pkt.opcode & 0x1f);

    pkt.opcode = vb_opcode_table[opcode].facts ? opcode : VB_CNP;
    if (pkt.opcode == VB_CNP && pkt.psn == 0)
        pkt.psn = 1; // the peer's have number 0
    if (!(vb_opcode_table[pkt.opcode].facts & VB_OP_PAYLOAD))
        pkt.payload_len = 0;
    vb_cover(w->cover, VB_COVER_FORGED_TRANSPORT);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

// A READ from the past would be answered again, as it must be, so it names no memory that exists.
static void far_request(struct vb_ep *to, bool past)
{
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = plausible(to, true);
    uint32_t distance = draw(w, FAR_MIN, FAR_MAX);

    if (vb_opcode_table[pkt.opcode].facts & VB_OP_READ) {
        pkt.rkey = 0;
        pkt.dma_len = draw(w, 1, 1u << draw(w, 0, 31));
    }
    pkt.psn = vb_psn_add(pkt.psn, past ? 0u - distance : distance);
    vb_cover(w->cover, past ? VB_COVER_FORGED_PAST : VB_COVER_FORGED_FUTURE);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

static void far_answer(struct vb_ep *to)
{
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = plausible(to, false);
    uint32_t distance = draw(w, FAR_MIN, FAR_MAX);

    pkt.psn = vb_psn_add(pkt.psn, draw(w, 0, 1) ? 0u - distance : distance);
    vb_cover(w->cover, VB_COVER_FORGED_ANSWER);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

// The last acknowledgement again, with other credits: they may slow the requester down, no more.
static void wrong_credits(struct vb_ep *to)
{
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = plausible(to, false);
    uint32_t near = to->ask.ssn - draw(w, 0, 64);

    pkt.opcode = vb_opcode_for(vb_ep_is_xrc(to) ? VB_TP_XRC : VB_TP_RC, VB_RC_ACK);
    pkt.payload_len = pkt.dma_len = 0;
    pkt.psn = vb_psn_add(pkt.psn, VB_PSN_MASK);
    pkt.syndrome = vb_aeth_syndrome(VB_AETH_ACK, draw(w, 0, 31));
    if (draw(w, 0, 1))
        pkt.msn = near & VB_PSN_MASK;
    vb_cover(w->cover, VB_COVER_FORGED_CREDITS);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

void vb_forge(struct vb_world *w)
{
    struct vb_conn *conn = &w->conn[draw(w, 0, w->scen.conns - 1)];
    struct vb_ep *to = &conn->ep[draw(w, 0, 1)];

    vb_trace_note(w, "nic%u forged frame for qp %06x", to->node->index, to->qpn);
    if (vb_ep_is_unreliable(to)) {
        vb_forge_unreliable(to);
        return;
    }
    if (w->scen.storm_ppm && vb_prng_chance(&w->prng, w->scen.storm_ppm)) {
        vb_storm_strike(to);
        return;
    }
    switch (draw(w, 0, 7)) {
    case 0: noise(to); break;
    case 1: wrong_source(to); break;
    case 2: wrong_qpn(to); break;
    case 3: far_request(to, true); break;
    case 4: far_request(to, false); break;
    case 5: wrong_transport(to); break;
    case 6: wrong_credits(to); break;
    default: far_answer(to); break;
    }
}
