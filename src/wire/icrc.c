// SPDX-License-Identifier: Apache-2.0
// The invariant CRC: one pass over the frame; everything else is linear algebra over GF(2).
//
// A reflected CRC state is a polynomial of degree below 32 modulo P, bit 31 being x^0. Passing over
// n bytes multiplies it by x^(8n), and a difference in the input is a difference in the state where
// those bytes enter. So each field's share of the CRC is a product with a constant, and a power of
// 1/x traces a difference seen at the end back to its field.
#include "wire/icrc.h"

#include "base/bytes.h"

#include <assert.h>
#include <isa-l/crc.h>

enum {
    LRH_BYTES = 8, // stands for the InfiniBand local route header, all ones
    IPV4_BYTES = 20,
    IPV6_BYTES = 40,
    UDP_BYTES = 8,
    PSEUDO_MAX = LRH_BYTES + IPV6_BYTES + UDP_BYTES,
    PROTO_UDP = 17,
    ICRC_BYTES = 4,
    RESV8A = 4, // its offset in the BTH
    // From the IPv4 identification (the flags follow it) to the end of the pseudo header.
    ID_TO_END = IPV4_BYTES - 4 + UDP_BYTES,
};

static const uint32_t poly = 0xedb88320;

// What a 16-bit field (host order) adds to the CRC of the pseudo header: 16 values for each nibble,
// lowest nibble first. From the field's first byte to the end of the UDP header it is 26, 24, 44
// and 4 bytes. tests/unit/icrc_vectors.py derives these tables and checks that they agree.
static const uint32_t v4_total_shares[64] = {
    0x00000000, 0xa58b900e, 0x9066265d, 0x35edb653, 0xfbbd4afb, 0x5e36daf5, 0x6bdb6ca6, 0xce50fca8,
    0x2c0b93b7, 0x898003b9, 0xbc6db5ea, 0x19e625e4, 0xd7b6d94c, 0x723d4942, 0x47d0ff11, 0xe25b6f1f,
    0x00000000, 0x5817276e, 0xb02e4edc, 0xe83969b2, 0xbb2d9bf9, 0xe33abc97, 0x0b03d525, 0x5314f24b,
    0xad2a31b3, 0xf53d16dd, 0x1d047f6f, 0x45135801, 0x1607aa4a, 0x4e108d24, 0xa629e496, 0xfe3ec3f8,
    0x00000000, 0xe71da697, 0x154a4b6f, 0xf257edf8, 0x2a9496de, 0xcd893049, 0x3fdeddb1, 0xd8c37b26,
    0x55292dbc, 0xb2348b2b, 0x406366d3, 0xa77ec044, 0x7fbdbb62, 0x98a01df5, 0x6af7f00d, 0x8dea569a,
    0x00000000, 0xaa525b78, 0x8fd5b0b1, 0x2587ebc9, 0xc4da6723, 0x6e883c5b, 0x4b0fd792, 0xe15d8cea,
    0x52c5c807, 0xf897937f, 0xdd1078b6, 0x774223ce, 0x961faf24, 0x3c4df45c, 0x19ca1f95, 0xb39844ed,
};
static const uint32_t v4_id_shares[64] = {
    0x00000000, 0x9b73ead4, 0xed96d3e9, 0x76e5393d, 0x005ca193, 0x9b2f4b47, 0xedca727a, 0x76b998ae,
    0x00b94326, 0x9bcaa9f2, 0xed2f90cf, 0x765c7a1b, 0x00e5e2b5, 0x9b960861, 0xed73315c, 0x7600db88,
    0x00000000, 0x0172864c, 0x02e50c98, 0x03978ad4, 0x05ca1930, 0x04b89f7c, 0x072f15a8, 0x065d93e4,
    0x0b943260, 0x0ae6b42c, 0x09713ef8, 0x0803b8b4, 0x0e5e2b50, 0x0f2cad1c, 0x0cbb27c8, 0x0dc9a184,
    0x00000000, 0x81256527, 0xd93bcc0f, 0x581ea928, 0x69069e5f, 0xe823fb78, 0xb03d5250, 0x31183777,
    0xd20d3cbe, 0x53285999, 0x0b36f0b1, 0x8a139596, 0xbb0ba2e1, 0x3a2ec7c6, 0x62306eee, 0xe3150bc9,
    0x00000000, 0x7f6b7f3d, 0xfed6fe7a, 0x81bd8147, 0x26dcfab5, 0x59b78588, 0xd80a04cf, 0xa7617bf2,
    0x4db9f56a, 0x32d28a57, 0xb36f0b10, 0xcc04742d, 0x6b650fdf, 0x140e70e2, 0x95b3f1a5, 0xead88e98,
};
static const uint32_t v6_payload_shares[64] = {
    0x00000000, 0x4713f6fb, 0x8e27edf6, 0xc9341b0d, 0xc73eddad, 0x802d2b56, 0x4919305b, 0x0e0ac6a0,
    0x550cbd1b, 0x121f4be0, 0xdb2b50ed, 0x9c38a616, 0x923260b6, 0xd521964d, 0x1c158d40, 0x5b067bbb,
    0x00000000, 0xaa197a36, 0x8f43f22d, 0x255a881b, 0xc5f6e21b, 0x6fef982d, 0x4ab51036, 0xe0ac6a00,
    0x509cc277, 0xfa85b841, 0xdfdf305a, 0x75c64a6c, 0x956a206c, 0x3f735a5a, 0x1a29d241, 0xb030a877,
    0x00000000, 0x2a283862, 0x545070c4, 0x7e7848a6, 0xa8a0e188, 0x8288d9ea, 0xfcf0914c, 0xd6d8a92e,
    0x8a30c551, 0xa018fd33, 0xde60b595, 0xf4488df7, 0x229024d9, 0x08b81cbb, 0x76c0541d, 0x5ce86c7f,
    0x00000000, 0xcf108ce3, 0x45501f87, 0x8a409364, 0x8aa03f0e, 0x45b0b3ed, 0xcff02089, 0x00e0ac6a,
    0xce31785d, 0x0121f4be, 0x8b6167da, 0x4471eb39, 0x44914753, 0x8b81cbb0, 0x01c158d4, 0xced1d437,
};
static const uint32_t udp_len_shares[64] = {
    0x00000000, 0x01c26a37, 0x0384d46e, 0x0246be59, 0x0709a8dc, 0x06cbc2eb, 0x048d7cb2, 0x054f1685,
    0x0e1351b8, 0x0fd13b8f, 0x0d9785d6, 0x0c55efe1, 0x091af964, 0x08d89353, 0x0a9e2d0a, 0x0b5c473d,
    0x00000000, 0x1c26a370, 0x384d46e0, 0x246be590, 0x709a8dc0, 0x6cbc2eb0, 0x48d7cb20, 0x54f16850,
    0xe1351b80, 0xfd13b8f0, 0xd9785d60, 0xc55efe10, 0x91af9640, 0x8d893530, 0xa9e2d0a0, 0xb5c473d0,
    0x00000000, 0xb8bc6765, 0xaa09c88b, 0x12b5afee, 0x8f629757, 0x37def032, 0x256b5fdc, 0x9dd738b9,
    0xc5b428ef, 0x7d084f8a, 0x6fbde064, 0xd7018701, 0x4ad6bfb8, 0xf26ad8dd, 0xe0df7733, 0x58631056,
    0x00000000, 0x5019579f, 0xa032af3e, 0xf02bf8a1, 0x9b14583d, 0xcb0d0fa2, 0x3b26f703, 0x6b3fa09c,
    0xed59b63b, 0xbd40e1a4, 0x4d6b1905, 0x1d724e9a, 0x764dee06, 0x2654b999, 0xd67f4138, 0x866616a7,
};
// x^(-8 * digit * 16^k) mod P at [16 * k + digit]: takes a state back over as many bytes. Derived
// by the same script.
static const uint32_t unshift_powers[64] = {
    0x80000000, 0x6567cb95, 0xd7125358, 0x1f81b6e1, 0x5b358fd3, 0xeb21cebf, 0x2ff880c5, 0x97fc423c,
    0x2e9bb40b, 0x2fb98a7d, 0xd6f6fa3c, 0x2059d4a0, 0x36511375, 0x525983aa, 0x31619cb3, 0x0f125cae,
    0x80000000, 0x12a59a49, 0x8df9403d, 0x9d764201, 0x5139de12, 0x17958e0b, 0xdb1c4863, 0xc31ec6b9,
    0xba340226, 0x6b85d37b, 0x0ba861bc, 0x39b0d61c, 0xfb844d1f, 0xc9771684, 0x8073ef0c, 0xc3f881be,
    0x80000000, 0x29c45641, 0x12fbc105, 0x8b712bc1, 0xecd30c55, 0x930588dc, 0x3c4c471a, 0x25cd5760,
    0x3755ebd8, 0xe264a9e0, 0xc3a68b42, 0x219c9d64, 0x75cc86fa, 0xebcce135, 0x84773a36, 0x4e1b970f,
    0x80000000, 0x24ee460c, 0x23783fcf, 0xea8683d0, 0x479933fc, 0x1e25ac62, 0x6523628c, 0x3704e154,
    0xa39442a5, 0x4ff1fa8c, 0xbc26806e, 0x1b2888be, 0x7910287d, 0xb8721901, 0x7bea74c8, 0x655ffa6b,
};
static_assert(VB_ICRC_FRAME_MAX - ICRC_BYTES + ID_TO_END < 1u << 16,
              "four digits reach over any frame");
static_assert(VB_ICRC_FRAME_MAX + IPV4_BYTES + UDP_BYTES < 1u << 16, "lengths are 16-bit fields");

static uint32_t field_share(const uint32_t shares[64], uint32_t value)
{
    return shares[value & 15] ^ shares[16 + (value >> 4 & 15)] ^ shares[32 + (value >> 8 & 15)] ^
           shares[48 + (value >> 12 & 15)];
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (unsigned i = 0; i < 32; i++) {
        product ^= b & -(a >> 31);
        a <<= 1;
        b = b >> 1 ^ (poly & -(b & 1));
    }
    return product;
}

// x^(-8 * bytes) mod P.
static uint32_t unshift_power(uint32_t bytes)
{
    uint32_t power = unshift_powers[bytes & 15];
    for (unsigned k = 1; bytes >> 4 * k; k++)
        power = multiply(power, unshift_powers[16 * k + (bytes >> 4 * k & 15)]);
    return power;
}

// Share of resv8a in the state with which the frame begins, four bytes back from where it enters.
static uint32_t resv8a_share(uint8_t byte)
{
    return multiply(byte, unshift_powers[RESV8A]);
}

static void put_udp(uint8_t *udp, uint16_t src_port, uint16_t dst_port)
{
    vb_put_be16(udp, src_port);
    vb_put_be16(udp + 2, dst_port);
    vb_put_be16(udp + 4, 0);
    vb_put_be16(udp + 6, 0xffff); // checksum
}

// resv8a counts as ones and is nearly always zero, so its inversion is part of the base.
static void flow_init(struct vb_icrc_flow *flow, bool ipv6, const uint8_t *pseudo, size_t bytes)
{
    *flow = (struct vb_icrc_flow){
        .base = crc32_gzip_refl(0, pseudo, bytes) ^ resv8a_share(0xff),
        .ipv6 = ipv6,
    };
}

void vb_icrc_flow_init_v4(struct vb_icrc_flow *flow, const uint8_t src[4], const uint8_t dst[4],
                          uint16_t src_port, uint16_t dst_port)
{
    uint8_t pseudo[PSEUDO_MAX] = {0};
    uint8_t *ip = pseudo + LRH_BYTES;
    memset(pseudo, 0xff, LRH_BYTES);
    ip[0] = 0x45;
    ip[1] = 0xff; // TOS
    ip[6] = 0x40; // DF
    ip[8] = 0xff; // TTL
    ip[9] = PROTO_UDP;
    vb_put_be16(ip + 10, 0xffff); // checksum
    memcpy(ip + 12, src, 4);
    memcpy(ip + 16, dst, 4);
    put_udp(ip + IPV4_BYTES, src_port, dst_port);
    flow_init(flow, false, pseudo, LRH_BYTES + IPV4_BYTES + UDP_BYTES);
}

void vb_icrc_flow_init_v6(struct vb_icrc_flow *flow, const uint8_t src[16], const uint8_t dst[16],
                          uint16_t src_port, uint16_t dst_port)
{
    uint8_t pseudo[PSEUDO_MAX] = {0};
    uint8_t *ip = pseudo + LRH_BYTES;
    memset(pseudo, 0xff, LRH_BYTES);
    vb_put_be32(ip, 0x6fffffff); // traffic class and flow label
    ip[6] = PROTO_UDP;
    ip[7] = 0xff; // hop limit
    memcpy(ip + 8, src, 16);
    memcpy(ip + 24, dst, 16);
    put_udp(ip + IPV6_BYTES, src_port, dst_port);
    flow_init(flow, true, pseudo, LRH_BYTES + IPV6_BYTES + UDP_BYTES);
}

static uint32_t base_for_len(struct vb_icrc_flow *flow, uint32_t len)
{
    if (flow->memo_len != len) {
        uint32_t udp_len = UDP_BYTES + len;
        uint32_t ip_share = flow->ipv6 ? field_share(v6_payload_shares, udp_len)
                                       : field_share(v4_total_shares, IPV4_BYTES + udp_len);
        flow->memo_base = flow->base ^ ip_share ^ field_share(udp_len_shares, udp_len);
        flow->memo_len = len;
    }
    return flow->memo_base;
}

// The state with which a frame of `len` bytes begins.
static uint32_t start_state(struct vb_icrc_flow *flow, uint16_t id, uint8_t resv8a, size_t len)
{
    uint32_t start = base_for_len(flow, (uint32_t)len);
    if (!flow->ipv6)
        start ^= field_share(v4_id_shares, id);
    if (resv8a)
        start ^= resv8a_share(resv8a);
    return start;
}

static uint32_t compute(struct vb_icrc_flow *flow, uint16_t id, const uint8_t *frame, size_t len)
{
    return crc32_gzip_refl(start_state(flow, id, frame[RESV8A], len), frame, len - ICRC_BYTES);
}

void vb_icrc_seal(struct vb_icrc_flow *flow, uint16_t id, uint8_t *frame, size_t len)
{
    assert(len >= VB_ICRC_FRAME_MIN && len <= VB_ICRC_FRAME_MAX);
    vb_put_le32(frame + len - ICRC_BYTES, compute(flow, id, frame, len));
}

void vb_icrc_seal_parts(struct vb_icrc_flow *flow, uint16_t id, const uint8_t *head,
                        size_t head_len, const uint8_t *body, size_t body_len, uint8_t *tail,
                        size_t tail_len)
{
    size_t len = head_len + body_len + tail_len;
    assert(head_len >= VB_ICRC_FRAME_MIN - ICRC_BYTES && tail_len >= ICRC_BYTES);
    assert(len <= VB_ICRC_FRAME_MAX);
    uint32_t crc = crc32_gzip_refl(start_state(flow, id, head[RESV8A], len), head, head_len);
    crc = crc32_gzip_refl(crc, body, body_len);
    if (tail_len > ICRC_BYTES)
        crc = crc32_gzip_refl(crc, tail, tail_len - ICRC_BYTES);
    vb_put_le32(tail + tail_len - ICRC_BYTES, crc);
}

// Takes the difference at the end of the frame back to where the identification enters: there its
// four bytes are, in wire order, the differences of identification, flags and fragment offset. Of
// the last two only DF may differ.
static enum vb_icrc_verdict solve(struct vb_icrc_flow *flow, uint16_t guess, uint32_t difference,
                                  size_t len, uint16_t *id)
{
    if (flow->unshift_len != len) {
        flow->unshift = unshift_power((uint32_t)len - ICRC_BYTES + ID_TO_END);
        flow->unshift_len = (uint32_t)len;
    }
    uint8_t wire[4];
    vb_put_le32(wire, multiply(difference, flow->unshift));
    if ((wire[2] & ~0x40) || wire[3])
        return VB_ICRC_BAD;
    *id = guess ^ vb_get_be16(wire);
    return VB_ICRC_SOLVED;
}

enum vb_icrc_verdict vb_icrc_check(struct vb_icrc_flow *flow, uint16_t guess, const uint8_t *frame,
                                   size_t len, uint16_t *id)
{
    if (len < VB_ICRC_FRAME_MIN || len > VB_ICRC_FRAME_MAX)
        return VB_ICRC_BAD;
    uint32_t stored = vb_get_le32(frame + len - ICRC_BYTES);
    uint32_t computed = compute(flow, guess, frame, len);
    if (stored != computed) {
        if (flow->ipv6)
            return VB_ICRC_BAD;
        return solve(flow, guess, stored ^ computed, len, id);
    }
    *id = guess;
    return VB_ICRC_EXACT;
}
