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

// Bits that decoding drops: MigReq, resv6 and resv7 of the BTH.
static uint8_t kept_bits(size_t offset)
{
    switch (offset) {
    case 1: return (uint8_t)~0x40;
    case 4: return 0xc0;
    case 8: return 0x80;
    default: return 0xff;
    }
}

static void check_packet(const uint8_t *frame, size_t len)
{
    struct vb_packet packet;
    if (vb_packet_decode(frame, len, &packet) != VB_DECODE_OK)
        return;
    size_t headers = (size_t)(packet.payload - frame);
    size_t pad = vb_packet_pad(packet.payload_len);
    require(headers + packet.payload_len + pad + VB_ICRC_BYTES == len);
    require(packet.facts == vb_opcode_table[frame[0]].facts);

    uint8_t again[VB_HEADERS_MAX];
    require(vb_packet_encode(again, &packet) == headers);
    for (size_t i = 0; i < headers; i++)
        require(((again[i] ^ frame[i]) & kept_bits(i)) == 0);
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
    check_icrc(data[0] & 1, vb_get_be16(data + 1), frame, len);
    free(frame);
    return 0;
}
