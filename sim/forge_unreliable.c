// SPDX-License-Identifier: Apache-2.0
// Forged frames for unreliable services. A First of the right source begins a message whatever its
// number is, so those that are forged cannot be placed.
#include "sim/forge.h"

#include "base/serial.h"

enum {
    PAYLOAD_MAX = 256,
    STRANGER_BIT = 0x20, // of the last byte of an address that nobody has
};

static uint32_t draw(struct vb_world *w, uint32_t lo, uint32_t hi)
{
    return (uint32_t)vb_prng_range(&w->prng, lo, hi);
}

static uint32_t next_psn(const struct vb_ep *to)
{
    return vb_psn_add(to->answer.psn0, (uint32_t)to->answer.epsn);
}

static struct vb_packet send_only(struct vb_ep *to, enum vb_transport transport)
{
    struct vb_world *w = to->node->world;
    bool imm = draw(w, 0, 1);

    return (struct vb_packet){
        .opcode = vb_opcode_for(transport, imm ? VB_RC_SEND_ONLY_IMM : VB_RC_SEND_ONLY),
        .dest_qpn = to->qpn,
        .psn = next_psn(to),
        .payload_len = draw(w, 0, PAYLOAD_MAX),
        .solicited = draw(w, 0, 1),
        .imm = draw(w, 0, UINT32_MAX),
        .qkey = to->link.qkey,
        .src_qpn = draw(w, 0, 0xffffff),
    };
}

// Right but for the service: another transport's opcode.
static void wrong_transport(struct vb_ep *to)
{
    static const enum vb_transport all[] = {VB_TP_RC, VB_TP_XRC, VB_TP_UC, VB_TP_UD};
    struct vb_world *w = to->node->world;
    enum vb_transport own = to->opts.service == VB_SERVICE_UD ? VB_TP_UD : VB_TP_UC;
    enum vb_transport other = all[draw(w, 0, 3)];

    if (other == own)
        other = VB_TP_RC;
    struct vb_packet pkt = send_only(to, other);
    vb_cover(w->cover, VB_COVER_FORGED_UNRELIABLE);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

// Who is not the peer of a connection is not heard; datagrams may come from anybody.
static void stranger(struct vb_ep *to)
{
    bool ud = to->opts.service == VB_SERVICE_UD;
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = send_only(to, ud ? VB_TP_UD : VB_TP_UC);
    struct vb_ip src = to->peer->node->ip;

    src.b[15] ^= STRANGER_BIT;
    vb_cover(w->cover, ud ? VB_COVER_FORGED_DATAGRAM : VB_COVER_FORGED_UNRELIABLE);
    vb_forge_inject(to, &src, &pkt);
}

static void wrong_qkey(struct vb_ep *to)
{
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = send_only(to, VB_TP_UD);

    pkt.qkey ^= 1u << draw(w, 0, 31);
    vb_cover(w->cover, VB_COVER_FORGED_UNRELIABLE);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

// The peer's, but its length does not fit its place in the message, or the message's own.
static void wrong_length(struct vb_ep *to)
{
    static const uint8_t opcodes[] = {VB_RC_SEND_FIRST, VB_RC_WRITE_FIRST, VB_RC_WRITE_ONLY,
                                      VB_RC_WRITE_ONLY_IMM};
    struct vb_world *w = to->node->world;
    const struct vb_region *r = to->node->exposed[to->opts.domain][VB_EXPOSED_BOTH];
    struct vb_packet pkt = send_only(to, VB_TP_UC);

    pkt.opcode = vb_opcode_for(VB_TP_UC, opcodes[draw(w, 0, 3)]);
    pkt.payload_len = draw(w, 0, PAYLOAD_MAX - 1);
    pkt.raddr = r->addr;
    pkt.rkey = r->key;
    pkt.dma_len = pkt.payload_len + 1;
    vb_cover(w->cover, VB_COVER_FORGED_UNRELIABLE);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

// Goes on with a message that never began, or not there.
static void wrong_number(struct vb_ep *to)
{
    static const uint8_t opcodes[] = {VB_RC_SEND_MIDDLE, VB_RC_SEND_LAST, VB_RC_WRITE_MIDDLE,
                                      VB_RC_WRITE_LAST, VB_RC_WRITE_LAST_IMM};
    struct vb_world *w = to->node->world;
    struct vb_packet pkt = send_only(to, VB_TP_UC);

    pkt.opcode = vb_opcode_for(VB_TP_UC, opcodes[draw(w, 0, 4)]);
    pkt.payload_len = draw(w, 1, PAYLOAD_MAX);
    pkt.psn = vb_psn_add(pkt.psn, draw(w, 1, 0xffffff));
    vb_cover(w->cover, VB_COVER_FORGED_UNRELIABLE);
    vb_forge_inject(to, &to->peer->node->ip, &pkt);
}

void vb_forge_unreliable(struct vb_ep *to)
{
    bool ud = to->opts.service == VB_SERVICE_UD;

    switch (draw(to->node->world, 0, 3)) {
    case 0: wrong_transport(to); break;
    case 1: stranger(to); break;
    case 2: (ud ? wrong_qkey : wrong_length)(to); break;
    default: (ud ? stranger : wrong_number)(to); break;
    }
}
