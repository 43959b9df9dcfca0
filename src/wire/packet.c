// SPDX-License-Identifier: Apache-2.0
// RoCE v2 headers to struct and back (clause 9.2; FECN and BECN are the top bits of resv8a).
#include "wire/packet.h"

#include "base/bytes.h"

#include <assert.h>

enum {
    BTH_SOLICITED = 0x80, // byte 1
    BTH_MIGREQ = 0x40,
    BTH_PAD_SHIFT = 4,
    BTH_TVER_MASK = 0x0f,
    BTH_FECN = 0x80, // byte 4
    BTH_BECN = 0x40,
    BTH_ACK_REQUEST = 0x80,       // byte 8
    PKEY_BASE_MASK = 0x7fff,      // bit 15 only tells full from limited membership
    DATAGRAM_BYTES_MASK = 0xfffc, // lengths that a datagram can have and that are multiples of four
};

static void decode_atomic_eth(const uint8_t *p, struct vb_packet *out)
{
    out->raddr = vb_get_be64(p);
    out->rkey = vb_get_be32(p + 8);
    out->swap_add = vb_get_be64(p + 12);
    out->compare = vb_get_be64(p + 20);
}

// Extended headers stand on the wire in the order of these tests (clause 9.2.2, figure 74 on).
static void decode_extended(const uint8_t *p, uint32_t facts, struct vb_packet *out)
{
    if (facts & VB_OP_RETH) {
        out->raddr = vb_get_be64(p);
        out->rkey = vb_get_be32(p + 8);
        out->dma_len = vb_get_be32(p + 12);
        p += VB_RETH_BYTES;
    }
    if (facts & VB_OP_AETH) {
        out->syndrome = p[0];
        out->msn = vb_get_be24(p + 1);
        p += VB_AETH_BYTES;
    }
    if (facts & VB_OP_IMM)
        memcpy(&out->imm, p, VB_IMM_BYTES);
    if (facts & VB_OP_IETH)
        out->imm = vb_get_be32(p);
    if (facts & VB_OP_ATOMIC_ETH)
        decode_atomic_eth(p, out);
    if (facts & VB_OP_ATOMIC_ACK_ETH)
        out->atomic_old = vb_get_be64(p);
}

enum vb_decode vb_packet_decode(const uint8_t *bytes, size_t len, struct vb_packet *out)
{
    if (len < VB_BTH_BYTES + VB_ICRC_BYTES)
        return VB_DECODE_SHORT;
    if (bytes[1] & BTH_TVER_MASK)
        return VB_DECODE_VERSION;
    const struct vb_opcode_info *info = &vb_opcode_table[bytes[0]];
    if (info->facts == 0)
        return VB_DECODE_OPCODE;
    if (len < (size_t)info->header_bytes + VB_ICRC_BYTES)
        return VB_DECODE_SHORT;
    uint16_t pkey = vb_get_be16(bytes + 2);
    if ((pkey & PKEY_BASE_MASK) != PKEY_BASE_MASK)
        return VB_DECODE_PKEY;
    size_t body = len - info->header_bytes - VB_ICRC_BYTES;
    size_t body_max = info->facts & VB_OP_PAYLOAD ? DATAGRAM_BYTES_MASK : 0;
    unsigned pad = bytes[1] >> BTH_PAD_SHIFT & 3;
    if ((len & ~(size_t)DATAGRAM_BYTES_MASK) || body > body_max || pad > body)
        return VB_DECODE_PAD;

    *out = (struct vb_packet){
        .opcode = bytes[0],
        .solicited = bytes[1] & BTH_SOLICITED,
        .ack_request = bytes[8] & BTH_ACK_REQUEST,
        .becn = bytes[4] & BTH_BECN,
        .fecn = bytes[4] & BTH_FECN,
        .pkey = pkey,
        .facts = info->facts,
        .dest_qpn = vb_get_be24(bytes + 5),
        .psn = vb_get_be24(bytes + 9),
        .payload = bytes + info->header_bytes,
        .payload_len = (uint32_t)(body - pad),
    };
    decode_extended(bytes + VB_BTH_BYTES, info->facts, out);
    return VB_DECODE_OK;
}

static void encode_atomic_eth(uint8_t *dst, const struct vb_packet *p)
{
    vb_put_be64(dst, p->raddr);
    vb_put_be32(dst + 8, p->rkey);
    vb_put_be64(dst + 12, p->swap_add);
    vb_put_be64(dst + 20, p->compare);
}

static void encode_extended(uint8_t *dst, uint32_t facts, const struct vb_packet *p)
{
    if (facts & VB_OP_RETH) {
        vb_put_be64(dst, p->raddr);
        vb_put_be32(dst + 8, p->rkey);
        vb_put_be32(dst + 12, p->dma_len);
        dst += VB_RETH_BYTES;
    }
    if (facts & VB_OP_AETH) {
        dst[0] = p->syndrome;
        vb_put_be24(dst + 1, p->msn);
        dst += VB_AETH_BYTES;
    }
    if (facts & VB_OP_IMM)
        memcpy(dst, &p->imm, VB_IMM_BYTES);
    if (facts & VB_OP_IETH)
        vb_put_be32(dst, p->imm);
    if (facts & VB_OP_ATOMIC_ETH)
        encode_atomic_eth(dst, p);
    if (facts & VB_OP_ATOMIC_ACK_ETH)
        vb_put_be64(dst, p->atomic_old);
}

size_t vb_packet_encode(uint8_t *dst, const struct vb_packet *p)
{
    const struct vb_opcode_info *info = &vb_opcode_table[p->opcode];
    assert(info->facts != 0);
    unsigned pad = vb_packet_pad(p->payload_len);
    dst[0] = p->opcode;
    dst[1] = (uint8_t)((p->solicited ? BTH_SOLICITED : 0) | BTH_MIGREQ | pad << BTH_PAD_SHIFT);
    vb_put_be16(dst + 2, p->pkey);
    dst[4] = (uint8_t)((p->fecn ? BTH_FECN : 0) | (p->becn ? BTH_BECN : 0));
    vb_put_be24(dst + 5, p->dest_qpn);
    dst[8] = p->ack_request ? BTH_ACK_REQUEST : 0;
    vb_put_be24(dst + 9, p->psn);
    encode_extended(dst + VB_BTH_BYTES, info->facts, p);
    return info->header_bytes;
}
