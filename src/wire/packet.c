// SPDX-License-Identifier: Apache-2.0
// RoCE v2 headers to struct and back (clause 9.2; FECN and BECN are the top bits of resv8a).
#include "wire/packet.h"

#include "base/bytes.h"

#include <assert.h>

// The BTH as three words, first to last.
#define BTH_TVER_MASK   (0xfu << 16)
#define BTH_MARKS_SHIFT 30 // FECN above BECN

enum {
    LOW_24 = 0xffffff, // a number below reserved bits or another field
    FETH_TYPE_MASK = 0xf,
    FETH_LEVEL_SHIFT = 4,
    FETH_LEVEL_MASK = 3,
    PKEY_BASE_MASK = 0x7fff,      // bit 15 only tells full from limited membership
    DATAGRAM_BYTES_MASK = 0xfffc, // lengths that a datagram can have and that are multiples of four
    CLEAR_RUN = 40,
};

static_assert(offsetof(struct vb_packet, syndrome) + 2 * CLEAR_RUN == sizeof(struct vb_packet),
              "two runs clear exactly the end of the struct");

// Extended headers in the order in which they stand on the wire (clause 9.2.2, figure 74 on): the
// leading ones, then RETH or AETH, then the trailing ones. Most packets have those in the middle
// alone, so one test each passes over the others.
#define LEADING  (VB_OP_XRCETH | VB_OP_DETH | VB_OP_FETH | VB_OP_MASKED_ETH)
#define JUDGED   (VB_OP_ATOMIC_WRITE | VB_OP_MASKED_ETH) // more to check than lengths
#define TRAILING (VB_OP_IMM | VB_OP_IETH | VB_OP_ATOMIC_ETH | VB_OP_ATOMIC_ACK_ETH)

static void decode_masked_eth(const uint8_t *p, struct vb_packet *out)
{
    uint32_t bytes = vb_get_be32(p + 12);
    out->raddr = vb_get_be64(p);
    out->rkey = vb_get_be32(p + 8);
    out->atomic_bytes = bytes == 4 || bytes == 8 ? (uint8_t)bytes : 0;
    out->swap_add = vb_get_be64(p + 16);
    out->compare = vb_get_be64(p + 24);
    out->swap_mask = vb_get_be64(p + 32);
    out->compare_mask = vb_get_be64(p + 40);
}

// Returns where the headers after the leading ones begin.
static const uint8_t *decode_leading(const uint8_t *p, uint32_t facts, struct vb_packet *out)
{
    if (facts & VB_OP_XRCETH) {
        out->xrc_srqn = vb_get_be32(p) & LOW_24;
        p += VB_XRCETH_BYTES;
    }
    if (facts & VB_OP_DETH) {
        out->qkey = vb_get_be32(p);
        out->src_qpn = vb_get_be32(p + 4) & LOW_24;
        p += VB_DETH_BYTES;
    }
    if (facts & VB_OP_FETH) {
        uint32_t feth = vb_get_be32(p);
        out->flush_type = feth & FETH_TYPE_MASK;
        out->flush_level = feth >> FETH_LEVEL_SHIFT & FETH_LEVEL_MASK;
        p += VB_FETH_BYTES;
    }
    if (facts & VB_OP_MASKED_ETH) {
        decode_masked_eth(p, out);
        p += VB_MASKED_ATOMIC_BYTES;
    }
    return p;
}

static void decode_trailing(const uint8_t *p, uint32_t facts, struct vb_packet *out)
{
    if (facts & VB_OP_IMM)
        memcpy(&out->imm, p, VB_IMM_BYTES);
    if (facts & VB_OP_IETH)
        out->imm = vb_get_be32(p);
    if (facts & VB_OP_ATOMIC_ETH) {
        out->raddr = vb_get_be64(p);
        out->rkey = vb_get_be32(p + 8);
        out->swap_add = vb_get_be64(p + 12);
        out->compare = vb_get_be64(p + 20);
    }
    if (facts & VB_OP_ATOMIC_ACK_ETH)
        out->atomic_old = vb_get_be64(p);
}

static void decode_extended(const uint8_t *p, uint32_t facts, struct vb_packet *out)
{
    if (facts & LEADING)
        p = decode_leading(p, facts, out);
    if (facts & VB_OP_RETH) {
        out->raddr = vb_get_be64(p);
        out->rkey = vb_get_be32(p + 8);
        out->dma_len = vb_get_be32(p + 12);
        p += VB_RETH_BYTES;
    }
    if (facts & VB_OP_AETH) {
        uint32_t aeth = vb_get_be32(p);
        out->syndrome = (uint8_t)(aeth >> 24);
        out->msn = aeth & LOW_24;
        p += VB_AETH_BYTES;
    }
    if (facts & TRAILING)
        decode_trailing(p, facts, out);
}

// What the lengths do not tell.
static enum vb_decode judge(const struct vb_packet *p)
{
    if ((p->facts & VB_OP_ATOMIC_WRITE) && p->payload_len != VB_ATOMIC_WRITE_BYTES)
        return VB_DECODE_PAD;
    if ((p->facts & VB_OP_MASKED_ETH) && p->atomic_bytes == 0)
        return VB_DECODE_FIELD;
    return VB_DECODE_OK;
}

// Zero in every field that some opcode does not carry: the end of the struct. In two runs, because
// compilers clear a longer one by a string instruction, which costs more than all other decoding.
static void clear_extended(struct vb_packet *out)
{
    uint8_t *run = (uint8_t *)out + offsetof(struct vb_packet, syndrome);
    memset(run, 0, CLEAR_RUN);
    memset(run + CLEAR_RUN, 0, CLEAR_RUN);
}

static void decode_bth(uint32_t first, const uint8_t *bytes, struct vb_packet *out)
{
    uint32_t second = vb_get_be32(bytes + 4), third = vb_get_be32(bytes + 8);

    out->opcode = (uint8_t)(first >> 24);
    out->solicited = first & VB_BTH_SOLICITED;
    out->ack_request = third & VB_BTH_ACK_REQUEST;
    out->marks = (uint16_t)(second >> BTH_MARKS_SHIFT);
    out->pkey = (uint16_t)first;
    out->dest_qpn = second & LOW_24;
    out->psn = third & LOW_24;
}

enum vb_decode vb_packet_decode(const uint8_t *bytes, size_t len, struct vb_packet *out)
{
    if (len < VB_BTH_BYTES + VB_ICRC_BYTES)
        return VB_DECODE_SHORT;
    uint32_t first = vb_get_be32(bytes);
    if (first & BTH_TVER_MASK)
        return VB_DECODE_VERSION;
    const struct vb_opcode_info *info = &vb_opcode_table[first >> 24];
    uint32_t facts = info->facts;
    if (facts == 0)
        return VB_DECODE_OPCODE;
    size_t body = len - info->header_bytes - VB_ICRC_BYTES;
    if (body > len) // below zero
        return VB_DECODE_SHORT;
    if ((first & PKEY_BASE_MASK) != PKEY_BASE_MASK)
        return VB_DECODE_PKEY;
    size_t body_max = facts & VB_OP_PAYLOAD ? DATAGRAM_BYTES_MASK : 0;
    size_t pad = first >> VB_BTH_PAD_SHIFT & 3;
    if ((len & ~(size_t)DATAGRAM_BYTES_MASK) || body > body_max || pad > body)
        return VB_DECODE_PAD;

    out->transport = info->transport;
    out->facts = facts;
    out->payload = bytes + info->header_bytes;
    out->payload_len = (uint32_t)(body - pad);
    clear_extended(out);
    decode_bth(first, bytes, out);
    decode_extended(bytes + VB_BTH_BYTES, facts, out);
    return facts & JUDGED ? judge(out) : VB_DECODE_OK;
}

static void encode_masked_eth(uint8_t *dst, const struct vb_packet *p)
{
    vb_put_be64(dst, p->raddr);
    vb_put_be32(dst + 8, p->rkey);
    vb_put_be32(dst + 12, p->atomic_bytes);
    vb_put_be64(dst + 16, p->swap_add);
    vb_put_be64(dst + 24, p->compare);
    vb_put_be64(dst + 32, p->swap_mask);
    vb_put_be64(dst + 40, p->compare_mask);
}

static uint8_t *encode_leading(uint8_t *dst, uint32_t facts, const struct vb_packet *p)
{
    if (facts & VB_OP_XRCETH) {
        vb_put_be32(dst, p->xrc_srqn & LOW_24);
        dst += VB_XRCETH_BYTES;
    }
    if (facts & VB_OP_DETH) {
        vb_put_be32(dst, p->qkey);
        vb_put_be32(dst + 4, p->src_qpn & LOW_24);
        dst += VB_DETH_BYTES;
    }
    if (facts & VB_OP_FETH) {
        uint32_t level = p->flush_level & FETH_LEVEL_MASK;
        vb_put_be32(dst, level << FETH_LEVEL_SHIFT | (p->flush_type & FETH_TYPE_MASK));
        dst += VB_FETH_BYTES;
    }
    if (facts & VB_OP_MASKED_ETH) {
        encode_masked_eth(dst, p);
        dst += VB_MASKED_ATOMIC_BYTES;
    }
    return dst;
}

static void encode_trailing(uint8_t *dst, uint32_t facts, const struct vb_packet *p)
{
    if (facts & VB_OP_IMM)
        memcpy(dst, &p->imm, VB_IMM_BYTES);
    if (facts & VB_OP_IETH)
        vb_put_be32(dst, p->imm);
    if (facts & VB_OP_ATOMIC_ETH) {
        vb_put_be64(dst, p->raddr);
        vb_put_be32(dst + 8, p->rkey);
        vb_put_be64(dst + 12, p->swap_add);
        vb_put_be64(dst + 20, p->compare);
    }
    if (facts & VB_OP_ATOMIC_ACK_ETH)
        vb_put_be64(dst, p->atomic_old);
    if (facts & VB_OP_CNP)
        memset(dst, 0, VB_CNP_RESERVED_BYTES);
}

static void encode_extended(uint8_t *dst, uint32_t facts, const struct vb_packet *p)
{
    if (facts & LEADING)
        dst = encode_leading(dst, facts, p);
    if (facts & VB_OP_RETH) {
        vb_reth_write(dst, p->raddr, p->rkey, p->dma_len);
        dst += VB_RETH_BYTES;
    }
    if (facts & VB_OP_AETH) {
        vb_put_be32(dst, (uint32_t)p->syndrome << 24 | (p->msn & LOW_24));
        dst += VB_AETH_BYTES;
    }
    if (facts & (TRAILING | VB_OP_CNP))
        encode_trailing(dst, facts, p);
}

size_t vb_packet_encode(uint8_t *dst, const struct vb_packet *p)
{
    const struct vb_opcode_info *info = &vb_opcode_table[p->opcode];
    assert(info->facts != 0);
    uint32_t first = (uint32_t)p->opcode << 24 | (p->solicited ? VB_BTH_SOLICITED : 0) |
                     VB_BTH_MIGREQ | vb_packet_pad(p->payload_len) << VB_BTH_PAD_SHIFT | p->pkey;
    uint32_t marks = (uint32_t)p->marks << BTH_MARKS_SHIFT;
    uint32_t ack = p->ack_request ? VB_BTH_ACK_REQUEST : 0;

    vb_bth_write(dst, first, marks | (p->dest_qpn & LOW_24), ack | (p->psn & LOW_24));
    encode_extended(dst + VB_BTH_BYTES, info->facts, p);
    return info->header_bytes;
}
