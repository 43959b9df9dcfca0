// SPDX-License-Identifier: Apache-2.0
// Packets from strangers: whatever decodes must encode to the same headers, and the ICRC must judge
// any bytes without reading past them. Input: family, guessed identification (2 bytes), frame.
#include "base/bytes.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#include <stdlib.h>

static void require(bool holds)
{
    if (!holds)
        abort();
}

// Bits that are reserved: decoding drops them, and encoding writes them as zero.
static uint8_t kept_bits(size_t offset, uint32_t facts)
{
    switch (offset) {
    case 1: return (uint8_t)~0x40; // MigReq, which is always written as one
    case 4: return 0xc0;
    case 8: return 0x80;
    case 12: return facts & (VB_OP_XRCETH | VB_OP_FETH | VB_OP_CNP) ? 0 : 0xff;
    case 13:
    case 14: return facts & (VB_OP_FETH | VB_OP_CNP) ? 0 : 0xff;
    case 15: return facts & VB_OP_FETH ? 0x3f : facts & VB_OP_CNP ? 0 : 0xff;
    case 16: return facts & (VB_OP_DETH | VB_OP_CNP) ? 0 : 0xff;
    default: return offset > 16 && (facts & VB_OP_CNP) ? 0 : 0xff;
    }
}

static_assert(sizeof(struct vb_packet) == 112, "without holes, so that memcmp can judge it");

// Whatever the struct held before, decoding sets all of it.
static void check_all_is_set(const uint8_t *frame, size_t len, const struct vb_packet *packet)
{
    struct vb_packet again;
    memset(&again, 0xff, sizeof again);
    require(vb_packet_decode(frame, len, &again) == VB_DECODE_OK);
    require(memcmp(&again, packet, sizeof again) == 0);
}

static void check_packet(const uint8_t *frame, size_t len)
{
    struct vb_packet packet;
    memset(&packet, 0, sizeof packet);
    if (vb_packet_decode(frame, len, &packet) != VB_DECODE_OK)
        return;
    const struct vb_opcode_info *info = &vb_opcode_table[frame[0]];
    size_t headers = (size_t)(packet.payload - frame);
    size_t pad = vb_packet_pad(packet.payload_len);
    require(headers + packet.payload_len + pad + VB_ICRC_BYTES == len);
    require(packet.facts == info->facts && packet.transport == info->transport);
    require(!(info->facts & VB_OP_ATOMIC_WRITE) || packet.payload_len == VB_ATOMIC_WRITE_BYTES);
    require(!(info->facts & VB_OP_MASKED_ETH) || packet.atomic_bytes == 4 ||
            packet.atomic_bytes == 8);
    check_all_is_set(frame, len, &packet);

    uint8_t again[VB_HEADERS_MAX];
    require(vb_packet_encode(again, &packet) == headers);
    for (size_t i = 0; i < headers; i++)
        require(again[i] == ((frame[i] & kept_bits(i, info->facts)) | (i == 1 ? 0x40 : 0)));
}

static void check_icrc(bool ipv6, uint16_t guess, uint8_t *frame, size_t len)
{
    static const uint8_t src[16] = {10, 1, 2, 3, 4}, dst[16] = {10, 9, 8, 7, 6};
    struct vb_icrc_flow flow;
    if (ipv6)
        vb_icrc_flow_init_v6(&flow, src, dst, 49152, VB_ROCE_UDP_PORT);
    else
        vb_icrc_flow_init_v4(&flow, src, dst, 49152, VB_ROCE_UDP_PORT);
    uint16_t id = 0, other = guess ^ 0x8421;
    enum vb_icrc_verdict verdict = vb_icrc_check(&flow, guess, frame, len, &id);
    if (len < VB_ICRC_FRAME_MIN || len > VB_ICRC_FRAME_MAX) {
        require(verdict == VB_ICRC_BAD);
        return;
    }
    require(!ipv6 || verdict != VB_ICRC_SOLVED);
    vb_icrc_seal(&flow, guess, frame, len);
    require(vb_icrc_check(&flow, guess, frame, len, &id) == VB_ICRC_EXACT);
    verdict = vb_icrc_check(&flow, other, frame, len, &id);
    require(verdict == (ipv6 ? VB_ICRC_EXACT : VB_ICRC_SOLVED));
    require(id == (ipv6 ? other : guess));
    frame[len - 1] ^= 1;
    require(vb_icrc_check(&flow, guess, frame, len, &id) != VB_ICRC_EXACT);
}

// The same frame in three places, as it lies when its payload is lent: the same ICRC.
static void check_parts(bool ipv6, uint16_t where, const uint8_t *frame, size_t len)
{
    static const uint8_t src[16] = {10, 1, 2, 3, 4}, dst[16] = {10, 9, 8, 7, 6};
    struct vb_icrc_flow flow;
    if (len < VB_ICRC_FRAME_MIN || len > VB_FRAME_MAX)
        return;
    if (ipv6)
        vb_icrc_flow_init_v6(&flow, src, dst, 49152, VB_ROCE_UDP_PORT);
    else
        vb_icrc_flow_init_v4(&flow, src, dst, 49152, VB_ROCE_UDP_PORT);
    uint8_t whole[VB_FRAME_MAX], tail[VB_FRAME_MAX];
    size_t head = VB_BTH_BYTES + where % (len - VB_ICRC_FRAME_MIN + 1);
    size_t body = (where >> 8) % (len - VB_ICRC_BYTES - head + 1), rest = len - head - body;
    memcpy(whole, frame, len);
    memcpy(tail, frame + head + body, rest);
    vb_icrc_seal(&flow, where, whole, len);
    vb_icrc_seal_parts(&flow, where, frame, head, frame + head, body, tail, rest);
    require(memcmp(whole + head + body, tail, rest) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    size_t len = size - 3;
    uint8_t *frame = malloc(len ? len : 1); // exact, so that the sanitizer guards its end
    if (frame == NULL)
        return 0;
    memcpy(frame, data + 3, len);
    check_packet(frame, len);
    check_parts(data[0] & 1, vb_get_be16(data + 1), frame, len);
    check_icrc(data[0] & 1, vb_get_be16(data + 1), frame, len);
    free(frame);
    return 0;
}
