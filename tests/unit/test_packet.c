// SPDX-License-Identifier: Apache-2.0
// Packets: literal headers, round trips of every opcode, and each refusal beside what is accepted.
#include "base/prng.h"
#include "fresh_seed.h"
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Decodes from a heap buffer of exactly `len` bytes, so that a sanitizer sees any read past it.
static enum vb_decode decode_tight(const uint8_t *bytes, size_t len, struct vb_packet *out)
{
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    enum vb_decode result = vb_packet_decode(copy, len, out);
    free(copy);
    return result;
}

static const uint8_t write_only_imm[] = {
    0x0b, 0xf0, 0xff, 0xff, 0x40, 0xab, 0xcd, 0xef, 0x80, 0x12, 0x34, 0x56, // BTH
    0x00, 0x00, 0x7f, 0x01, 0x02, 0x03, 0x04, 0x05, 0xde, 0xad, 0xbe, 0xef, // RETH
    0x00, 0x00, 0x00, 0x01, 0xca, 0xfe, 0xf0, 0x0d,                         // length, immediate
    0x5a, 0x00, 0x00, 0x00,                                                 // one byte and pad
    0x01, 0x02, 0x03, 0x04,                                                 // ICRC
};

static void test_decodes_a_literal_write(void **state)
{
    (void)state;
    struct vb_packet p;
    assert_int_equal(vb_packet_decode(write_only_imm, sizeof write_only_imm, &p), VB_DECODE_OK);
    assert_int_equal(p.opcode, VB_RC_WRITE_ONLY_IMM);
    assert_int_equal(p.facts, vb_opcode_table[VB_RC_WRITE_ONLY_IMM].facts);
    assert_true(p.solicited);
    assert_true(p.ack_request);
    assert_int_equal(p.marks, VB_MARK_BECN);
    assert_int_equal(p.pkey, 0xffff);
    assert_int_equal(p.dest_qpn, 0xabcdef);
    assert_int_equal(p.psn, 0x123456);
    assert_int_equal(p.raddr, 0x00007f0102030405u);
    assert_int_equal(p.rkey, 0xdeadbeef);
    assert_int_equal(p.dma_len, 1);
    assert_memory_equal(&p.imm, "\xca\xfe\xf0\x0d", 4);
    assert_int_equal(p.payload_len, 1);
    assert_ptr_equal(p.payload, write_only_imm + 32);
    assert_int_equal(p.transport, VB_TP_RC);
    assert_int_equal(p.syndrome | p.msn | p.swap_add | p.compare | p.atomic_old, 0);
}

static void test_encodes_the_same_literal(void **state)
{
    (void)state;
    struct vb_packet p = {
        .opcode = VB_RC_WRITE_ONLY_IMM,
        .solicited = true,
        .ack_request = true,
        .marks = VB_MARK_BECN,
        .pkey = VB_PKEY_DEFAULT,
        .dest_qpn = 0xabcdef,
        .psn = 0x123456,
        .raddr = 0x00007f0102030405u,
        .rkey = 0xdeadbeef,
        .dma_len = 1,
        .payload_len = 1,
    };
    memcpy(&p.imm, "\xca\xfe\xf0\x0d", 4);
    uint8_t out[VB_HEADERS_MAX];
    assert_int_equal(vb_packet_encode(out, &p), 32);
    assert_memory_equal(out, write_only_imm, 32);
}

static void test_encodes_the_key_to_invalidate_big_endian(void **state)
{
    (void)state;
    struct vb_packet p = {.opcode = VB_RC_SEND_ONLY_INV, .imm = 0x01020304, .pkey = 0x7fff};
    uint8_t out[VB_HEADERS_MAX];
    assert_int_equal(vb_packet_encode(out, &p), 16);
    assert_memory_equal(out + 12, "\x01\x02\x03\x04", 4);
    assert_memory_equal(out + 1, "\x40\x7f\xff\x00", 4);
}

// ---- every opcode against bytes written out by hand

// The extended headers and payload of each opcode in wire order (clause 9.2.2, annexes A14, A17 and
// A19), one letter each; the letters' bytes are below.
static const struct layout {
    uint8_t opcode;
    enum vb_transport transport;
    const char *headers;
} layouts[] = {
    {0x00, VB_TP_RC, "p"},    {0x01, VB_TP_RC, "p"},    {0x02, VB_TP_RC, "p"},
    {0x03, VB_TP_RC, "ip"},   {0x04, VB_TP_RC, "p"},    {0x05, VB_TP_RC, "ip"},
    {0x06, VB_TP_RC, "rp"},   {0x07, VB_TP_RC, "p"},    {0x08, VB_TP_RC, "p"},
    {0x09, VB_TP_RC, "ip"},   {0x0a, VB_TP_RC, "rp"},   {0x0b, VB_TP_RC, "rip"},
    {0x0c, VB_TP_RC, "r"},    {0x0d, VB_TP_RC, "ap"},   {0x0e, VB_TP_RC, "p"},
    {0x0f, VB_TP_RC, "ap"},   {0x10, VB_TP_RC, "ap"},   {0x11, VB_TP_RC, "a"},
    {0x12, VB_TP_RC, "ao"},   {0x13, VB_TP_RC, "c"},    {0x14, VB_TP_RC, "c"},
    {0x16, VB_TP_RC, "vp"},   {0x17, VB_TP_RC, "vp"},   {0x1c, VB_TP_RC, "fr"},
    {0x1d, VB_TP_RC, "rp"},   {0xc0, VB_TP_RC, "m"},    {0xc1, VB_TP_RC, "m"},
    {0x20, VB_TP_UC, "p"},    {0x21, VB_TP_UC, "p"},    {0x22, VB_TP_UC, "p"},
    {0x23, VB_TP_UC, "ip"},   {0x24, VB_TP_UC, "p"},    {0x25, VB_TP_UC, "ip"},
    {0x26, VB_TP_UC, "rp"},   {0x27, VB_TP_UC, "p"},    {0x28, VB_TP_UC, "p"},
    {0x29, VB_TP_UC, "ip"},   {0x2a, VB_TP_UC, "rp"},   {0x2b, VB_TP_UC, "rip"},
    {0x64, VB_TP_UD, "dp"},   {0x65, VB_TP_UD, "dip"},  {0x81, VB_TP_CNP, "n"},
    {0xa0, VB_TP_XRC, "xp"},  {0xa1, VB_TP_XRC, "xp"},  {0xa2, VB_TP_XRC, "xp"},
    {0xa3, VB_TP_XRC, "xip"}, {0xa4, VB_TP_XRC, "xp"},  {0xa5, VB_TP_XRC, "xip"},
    {0xa6, VB_TP_XRC, "xrp"}, {0xa7, VB_TP_XRC, "xp"},  {0xa8, VB_TP_XRC, "xp"},
    {0xa9, VB_TP_XRC, "xip"}, {0xaa, VB_TP_XRC, "xrp"}, {0xab, VB_TP_XRC, "xrip"},
    {0xac, VB_TP_XRC, "xr"},  {0xad, VB_TP_XRC, "ap"},  {0xae, VB_TP_XRC, "p"},
    {0xaf, VB_TP_XRC, "ap"},  {0xb0, VB_TP_XRC, "ap"},  {0xb1, VB_TP_XRC, "a"},
    {0xb2, VB_TP_XRC, "ao"},  {0xb3, VB_TP_XRC, "xc"},  {0xb4, VB_TP_XRC, "xc"},
    {0xb6, VB_TP_XRC, "xvp"}, {0xb7, VB_TP_XRC, "xvp"},
};

enum {
    LAYOUTS = sizeof layouts / sizeof layouts[0]
};

#define RADDR "\x01\x23\x45\x67\x89\xab\xcd\xef"
#define RKEY  "\x8a\xbc\xde\xf0"
#define SWAP  "\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8"
#define COMP  "\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8"
#define MASKS "\xc1\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xd1\xd2\xd3\xd4\xd5\xd6\xd7\xd8"

static const struct part {
    char letter;
    uint8_t len;
    const char *bytes;
} parts[] = {
    {'x', 4, "\x00\x31\x32\x33"},                             // reserved, XRC SRQ
    {'d', 8, "\x91\x92\x93\x94\x00\x51\x52\x53"},             // Q_Key, reserved, source QP
    {'f', 4, "\x00\x00\x00\x13"},                             // whole region, both placements
    {'r', 16, RADDR RKEY "\x70\x80\x90\xa0"},                 // and DMA length
    {'a', 4, "\x62\x41\x42\x43"},                             // syndrome, MSN
    {'i', 4, "\xca\xfe\xf0\x0d"},                             // immediate
    {'v', 4, "\x11\x12\x13\x14"},                             // key to invalidate
    {'c', 28, RADDR RKEY SWAP COMP},                          //
    {'o', 8, "\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8"},             // original value
    {'m', 48, RADDR RKEY "\x00\x00\x00\x08" SWAP COMP MASKS}, // bytes of an argument in the middle
    {'n', 16, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"},            // reserved
    {'p', 8, "payload8"},
};

// Writes BTH, headers, payload and an empty ICRC; ends[] gets the offset after each part.
static size_t write_by_hand(const struct layout *l, uint8_t *frame, size_t *ends)
{
    static const uint8_t bth[12] = {0,    0xc0, 0xff, 0xff, 0x80, 0xab,
                                    0xcd, 0xef, 0x80, 0x12, 0x34, 0x56};
    size_t len = sizeof bth;
    memcpy(frame, bth, sizeof bth);
    frame[0] = l->opcode;
    for (const char *letter = l->headers; *letter; letter++) {
        const struct part *part = parts;
        while (part->letter != *letter)
            part++;
        memcpy(frame + len, part->bytes, part->len);
        len += part->len;
        *ends++ = len;
    }
    memset(frame + len, 0, VB_ICRC_BYTES);
    return len + VB_ICRC_BYTES;
}

// What those bytes say; a field whose header is absent is zero.
static struct vb_packet read_by_hand(const struct layout *l)
{
    const char *h = l->headers;
    struct vb_packet p = {.opcode = l->opcode, .transport = (uint8_t)l->transport};
    bool masked = strchr(h, 'm'), atomic = masked || strchr(h, 'c'), reth = strchr(h, 'r');
    p.facts = vb_opcode_table[l->opcode].facts;
    p.solicited = p.ack_request = true;
    p.marks = VB_MARK_FECN;
    p.pkey = 0xffff;
    p.dest_qpn = 0xabcdef;
    p.psn = 0x123456;
    p.payload_len = strchr(h, 'p') ? 8 : 0;
    p.xrc_srqn = strchr(h, 'x') ? 0x313233 : 0;
    p.qkey = strchr(h, 'd') ? 0x91929394 : 0;
    p.src_qpn = strchr(h, 'd') ? 0x515253 : 0;
    p.flush_type = strchr(h, 'f') ? VB_FETH_GLOBAL | VB_FETH_PERSISTENT : 0;
    p.flush_level = strchr(h, 'f') ? VB_FETH_REGION : 0;
    p.raddr = reth || atomic ? 0x0123456789abcdef : 0;
    p.rkey = reth || atomic ? 0x8abcdef0 : 0;
    p.dma_len = reth ? 0x708090a0 : 0;
    p.syndrome = strchr(h, 'a') ? 0x62 : 0;
    p.msn = strchr(h, 'a') ? 0x414243 : 0;
    if (strchr(h, 'i'))
        memcpy(&p.imm, "\xca\xfe\xf0\x0d", 4);
    if (strchr(h, 'v'))
        p.imm = 0x11121314;
    p.swap_add = atomic ? 0xa1a2a3a4a5a6a7a8 : 0;
    p.compare = atomic ? 0xb1b2b3b4b5b6b7b8 : 0;
    p.atomic_old = strchr(h, 'o') ? 0xe1e2e3e4e5e6e7e8 : 0;
    p.atomic_bytes = masked ? 8 : 0;
    p.swap_mask = masked ? 0xc1c2c3c4c5c6c7c8 : 0;
    p.compare_mask = masked ? 0xd1d2d3d4d5d6d7d8 : 0;
    return p;
}

static void assert_same(const struct vb_packet *a, const struct vb_packet *b)
{
    assert_int_equal(a->opcode, b->opcode);
    assert_int_equal(a->transport, b->transport);
    assert_int_equal(a->facts, b->facts);
    assert_int_equal(a->solicited, b->solicited);
    assert_int_equal(a->ack_request, b->ack_request);
    assert_int_equal(a->marks, b->marks);
    assert_int_equal(a->pkey, b->pkey);
    assert_int_equal(a->dest_qpn, b->dest_qpn);
    assert_int_equal(a->psn, b->psn);
    assert_int_equal(a->payload_len, b->payload_len);
    assert_int_equal(a->syndrome, b->syndrome);
    assert_int_equal(a->msn, b->msn);
    assert_int_equal(a->rkey, b->rkey);
    assert_int_equal(a->raddr, b->raddr);
    assert_int_equal(a->dma_len, b->dma_len);
    assert_int_equal(a->imm, b->imm);
    assert_int_equal(a->swap_add, b->swap_add);
    assert_int_equal(a->compare, b->compare);
    assert_int_equal(a->atomic_old, b->atomic_old);
    assert_int_equal(a->xrc_srqn, b->xrc_srqn);
    assert_int_equal(a->qkey, b->qkey);
    assert_int_equal(a->src_qpn, b->src_qpn);
    assert_int_equal(a->flush_type, b->flush_type);
    assert_int_equal(a->flush_level, b->flush_level);
    assert_int_equal(a->atomic_bytes, b->atomic_bytes);
    assert_int_equal(a->swap_mask, b->swap_mask);
    assert_int_equal(a->compare_mask, b->compare_mask);
}

static void test_every_layout_decodes(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++) {
        uint8_t frame[128];
        size_t ends[8], len = write_by_hand(&layouts[i], frame, ends);
        struct vb_packet expected = read_by_hand(&layouts[i]), got;
        memset(&got, 0xff, sizeof got);
        assert_int_equal(vb_packet_decode(frame, len, &got), VB_DECODE_OK);
        assert_same(&got, &expected);
        assert_ptr_equal(got.payload, frame + len - 4 - expected.payload_len);
    }
}

static void test_every_layout_encodes(void **state)
{
    (void)state;
    unsigned spoken = 0;
    for (unsigned op = 0; op < 256; op++)
        spoken += vb_opcode_table[op].facts != 0;
    assert_int_equal(spoken, LAYOUTS);
    for (size_t i = 0; i < LAYOUTS; i++) {
        uint8_t frame[128], out[VB_HEADERS_MAX + 1];
        size_t ends[8], len = write_by_hand(&layouts[i], frame, ends);
        struct vb_packet p = read_by_hand(&layouts[i]);
        memset(out, 0xee, sizeof out);
        size_t headers = vb_packet_encode(out, &p);
        assert_int_equal(headers, len - 4 - p.payload_len);
        assert_memory_equal(out, frame, headers);
        assert_int_equal(out[headers], 0xee);
    }
}

// One byte less than up to the end of each header is too short; the payload may be missing.
static void test_every_header_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++) {
        const struct layout *l = &layouts[i];
        uint8_t frame[128];
        size_t ends[8];
        struct vb_packet got;
        write_by_hand(l, frame, ends);
        for (size_t n = 0; l->headers[n] && l->headers[n] != 'p'; n++) {
            bool last = l->headers[n + 1] == 0 || l->headers[n + 1] == 'p';
            enum vb_decode whole = !last                             ? VB_DECODE_SHORT
                                   : l->opcode == VB_RC_ATOMIC_WRITE ? VB_DECODE_PAD
                                                                     : VB_DECODE_OK;
            assert_int_equal(decode_tight(frame, ends[n] + 4 - 1, &got), VB_DECODE_SHORT);
            assert_int_equal(decode_tight(frame, ends[n] + 4, &got), whole);
        }
    }
}

static struct vb_packet random_packet(struct vb_prng *prng, uint8_t opcode)
{
    uint32_t facts = vb_opcode_table[opcode].facts;
    bool reth = facts & VB_OP_RETH, aeth = facts & VB_OP_AETH, masked = facts & VB_OP_MASKED_ETH;
    bool atomic = masked || facts & VB_OP_ATOMIC_ETH;
    struct vb_packet p = {
        .opcode = opcode,
        .transport = vb_opcode_table[opcode].transport,
        .facts = facts,
        .solicited = vb_prng_below(prng, 2),
        .ack_request = vb_prng_below(prng, 2),
        .marks = (uint16_t)vb_prng_below(prng, 4),
        .pkey = vb_prng_below(prng, 2) ? 0xffff : 0x7fff,
        .dest_qpn = (uint32_t)vb_prng_below(prng, 1 << 24),
        .psn = (uint32_t)vb_prng_below(prng, 1 << 24),
        .syndrome = aeth ? (uint8_t)vb_prng_next(prng) : 0,
        .msn = aeth ? (uint32_t)vb_prng_below(prng, 1 << 24) : 0,
        .rkey = reth || atomic ? (uint32_t)vb_prng_next(prng) : 0,
        .raddr = reth || atomic ? vb_prng_next(prng) : 0,
        .dma_len = reth ? (uint32_t)vb_prng_next(prng) : 0,
        .imm = facts & (VB_OP_IMM | VB_OP_IETH) ? (uint32_t)vb_prng_next(prng) : 0,
        .swap_add = atomic ? vb_prng_next(prng) : 0,
        .compare = atomic ? vb_prng_next(prng) : 0,
        .swap_mask = masked ? vb_prng_next(prng) : 0,
        .compare_mask = masked ? vb_prng_next(prng) : 0,
        .atomic_bytes = !masked                  ? 0
                        : vb_prng_below(prng, 2) ? 4
                                                 : 8,
        .atomic_old = facts & VB_OP_ATOMIC_ACK_ETH ? vb_prng_next(prng) : 0,
        .xrc_srqn = facts & VB_OP_XRCETH ? (uint32_t)vb_prng_below(prng, 1 << 24) : 0,
        .qkey = facts & VB_OP_DETH ? (uint32_t)vb_prng_next(prng) : 0,
        .src_qpn = facts & VB_OP_DETH ? (uint32_t)vb_prng_below(prng, 1 << 24) : 0,
        .flush_type = facts & VB_OP_FETH ? (uint8_t)vb_prng_below(prng, 16) : 0,
        .flush_level = facts & VB_OP_FETH ? (uint8_t)vb_prng_below(prng, 4) : 0,
        .payload_len = facts & VB_OP_PAYLOAD ? (uint32_t)vb_prng_below(prng, VB_MTU_MAX + 1) : 0,
    };
    if (facts & VB_OP_ATOMIC_WRITE)
        p.payload_len = VB_ATOMIC_WRITE_BYTES;
    return p;
}

static void test_every_opcode_round_trips(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    for (unsigned op = 0; op < 256; op++) {
        if (!vb_opcode_table[op].facts)
            continue;
        for (unsigned i = 0; i < 200; i++) {
            uint8_t frame[VB_FRAME_MAX] = {0};
            struct vb_packet sent = random_packet(&prng, (uint8_t)op), got;
            size_t headers = vb_packet_encode(frame, &sent);
            assert_int_equal(headers, vb_opcode_table[op].header_bytes);
            size_t len = headers + sent.payload_len + vb_packet_pad(sent.payload_len) + 4;
            assert_int_equal(vb_packet_decode(frame, len, &got), VB_DECODE_OK);
            assert_same(&sent, &got);
            assert_ptr_equal(got.payload, frame + headers);
        }
    }
}

static void test_every_opcode_needs_all_its_bytes(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    for (unsigned op = 0; op < 256; op++) {
        uint8_t frame[VB_FRAME_MAX] = {0};
        struct vb_packet p = {0}, got;
        if (!vb_opcode_table[op].facts) {
            frame[0] = (uint8_t)op;
            frame[2] = frame[3] = 0xff;
            assert_int_equal(vb_packet_decode(frame, 128, &got), VB_DECODE_OPCODE);
            continue;
        }
        p = random_packet(&prng, (uint8_t)op);
        p.payload_len = 0;
        size_t whole = vb_packet_encode(frame, &p) + VB_ICRC_BYTES;
        assert_int_equal(decode_tight(frame, whole, &got),
                         op == VB_RC_ATOMIC_WRITE ? VB_DECODE_PAD : VB_DECODE_OK);
        for (size_t len = 0; len < whole; len++)
            assert_int_equal(decode_tight(frame, len, &got), VB_DECODE_SHORT);
    }
}

static void test_transport_version(void **state)
{
    (void)state;
    struct vb_packet p;
    uint8_t frame[sizeof write_only_imm];
    for (unsigned version = 0; version < 16; version++) {
        memcpy(frame, write_only_imm, sizeof frame);
        frame[1] = (uint8_t)((frame[1] & 0xf0) | version);
        assert_int_equal(vb_packet_decode(frame, sizeof frame, &p),
                         version ? VB_DECODE_VERSION : VB_DECODE_OK);
    }
}

static void test_partition_key(void **state)
{
    (void)state;
    struct vb_packet p;
    uint8_t frame[sizeof write_only_imm];
    memcpy(frame, write_only_imm, sizeof frame);
    for (unsigned pkey = 0; pkey < 0x10000; pkey++) {
        frame[2] = (uint8_t)(pkey >> 8);
        frame[3] = (uint8_t)pkey;
        bool ours = pkey == 0xffff || pkey == 0x7fff;
        assert_int_equal(vb_packet_decode(frame, sizeof frame, &p),
                         ours ? VB_DECODE_OK : VB_DECODE_PKEY);
    }
    assert_int_equal(p.pkey, 0xffff);
}

static void test_pad_within_payload(void **state)
{
    (void)state;
    uint8_t frame[24] = {VB_RC_SEND_ONLY, 0, 0xff, 0xff};
    struct vb_packet p;
    for (unsigned pad = 0; pad < 4; pad++) {
        frame[1] = (uint8_t)(pad << 4);
        assert_int_equal(vb_packet_decode(frame, 20, &p), VB_DECODE_OK);
        assert_int_equal(p.payload_len, 4 - pad);
        assert_int_equal(vb_packet_decode(frame, 16, &p), pad ? VB_DECODE_PAD : VB_DECODE_OK);
    }
}

static void test_length_is_a_multiple_of_four(void **state)
{
    (void)state;
    static uint8_t frame[70000] = {VB_RC_SEND_MIDDLE, 0, 0xff, 0xff};
    struct vb_packet p;
    for (size_t len = 16; len < 600; len++)
        assert_int_equal(vb_packet_decode(frame, len, &p), len % 4 ? VB_DECODE_PAD : VB_DECODE_OK);
    assert_int_equal(vb_packet_decode(frame, 65532, &p), VB_DECODE_OK);
    assert_int_equal(p.payload_len, 65532 - 16);
    assert_int_equal(vb_packet_decode(frame, 65536, &p), VB_DECODE_PAD);
    assert_int_equal(vb_packet_decode(frame, 65552, &p), VB_DECODE_PAD);
}

static void test_no_payload_where_none_belongs(void **state)
{
    (void)state;
    struct vb_packet p;
    for (unsigned op = 0; op < 256; op++) {
        const struct vb_opcode_info *info = &vb_opcode_table[op];
        uint8_t frame[VB_FRAME_MAX] = {(uint8_t)op, 0, 0xff, 0xff};
        frame[12 + 15] = 8; // a masked atomic's argument bytes; in others any value will do
        if (!info->facts || info->facts & VB_OP_PAYLOAD)
            continue;
        assert_int_equal(vb_packet_decode(frame, info->header_bytes + 4, &p), VB_DECODE_OK);
        assert_int_equal(vb_packet_decode(frame, info->header_bytes + 8, &p), VB_DECODE_PAD);
        frame[1] = 0x30;
        assert_int_equal(vb_packet_decode(frame, info->header_bytes + 4, &p), VB_DECODE_PAD);
        assert_int_equal(vb_packet_decode(frame, info->header_bytes + 8, &p), VB_DECODE_PAD);
    }
}

static void test_datagram_lengths(void **state)
{
    (void)state;
    struct vb_packet p;
    for (unsigned op = VB_UD_SEND_ONLY; op <= VB_UD_SEND_ONLY_IMM; op++) {
        uint8_t frame[VB_FRAME_MAX] = {(uint8_t)op, 0, 0xff, 0xff};
        size_t headers = op == VB_UD_SEND_ONLY ? 20 : 24;
        for (size_t len = 16; len <= headers + 256 + 4; len++) {
            enum vb_decode expected = len < headers + 4 ? VB_DECODE_SHORT
                                      : len % 4         ? VB_DECODE_PAD
                                                        : VB_DECODE_OK;
            assert_int_equal(vb_packet_decode(frame, len, &p), expected);
        }
        assert_int_equal(p.payload_len, 256);
        frame[1] = 0x10;
        assert_int_equal(vb_packet_decode(frame, headers + 4, &p), VB_DECODE_PAD);
        assert_int_equal(vb_packet_decode(frame, headers + 8, &p), VB_DECODE_OK);
        assert_int_equal(p.payload_len, 3);
    }
}

static void test_atomic_write_has_eight_bytes(void **state)
{
    (void)state;
    uint8_t frame[64] = {VB_RC_ATOMIC_WRITE, 0, 0xff, 0xff};
    struct vb_packet p;
    for (size_t body = 0; body <= 24; body += 4)
        for (unsigned pad = 0; pad < 4; pad++) {
            frame[1] = (uint8_t)(pad << 4);
            assert_int_equal(vb_packet_decode(frame, 28 + body + 4, &p),
                             body == 8 && pad == 0 ? VB_DECODE_OK : VB_DECODE_PAD);
        }
}

static void test_masked_atomics_have_four_or_eight_bytes(void **state)
{
    (void)state;
    struct vb_packet p;
    for (unsigned op = VB_RC_MASKED_COMPARE_SWAP; op <= VB_RC_MASKED_FETCH_ADD; op++) {
        uint8_t frame[64] = {(uint8_t)op, 0, 0xff, 0xff};
        for (unsigned bytes = 0; bytes < 256; bytes++) {
            bool known = bytes == 4 || bytes == 8;
            frame[27] = (uint8_t)bytes;
            assert_int_equal(vb_packet_decode(frame, 64, &p),
                             known ? VB_DECODE_OK : VB_DECODE_FIELD);
            if (known)
                assert_int_equal(p.atomic_bytes, bytes);
        }
        frame[27] = 8;
        for (unsigned at = 24; at < 27; at++) { // not 8 alone
            frame[at] = 1;
            assert_int_equal(vb_packet_decode(frame, 64, &p), VB_DECODE_FIELD);
            frame[at] = 0;
        }
        assert_int_equal(vb_packet_decode(frame, 64, &p), VB_DECODE_OK);
    }
}

static void test_congestion_notification(void **state)
{
    (void)state;
    uint8_t frame[40] = {VB_CNP, 0, 0xff, 0xff, 0x40, 0, 0, 9};
    struct vb_packet p;
    assert_int_equal(vb_packet_decode(frame, 32, &p), VB_DECODE_OK);
    assert_int_equal(p.marks, VB_MARK_BECN);
    assert_int_equal(p.dest_qpn, 9);
    assert_int_equal(p.payload_len, 0);
    assert_int_equal(vb_packet_decode(frame, 16, &p), VB_DECODE_SHORT); // a bare BTH
    assert_int_equal(vb_packet_decode(frame, 36, &p), VB_DECODE_PAD);
}

// Numbers too large for their field leave the reserved bits and the neighbours alone.
static void test_encoding_cuts_what_is_too_long(void **state)
{
    (void)state;
    struct vb_packet p = {.opcode = VB_UD_SEND_ONLY,
                          .src_qpn = 0xff000001,
                          .dest_qpn = 0xff000002,
                          .psn = 0xff000003};
    uint8_t out[VB_HEADERS_MAX];
    vb_packet_encode(out, &p);
    assert_memory_equal(out + 4, "\0\0\0\2\0\0\0\3\0\0\0\0\0\0\0\1", 16);
    p = (struct vb_packet){.opcode = 0xb1, .syndrome = 0x21, .msn = 0xff000004};
    vb_packet_encode(out, &p);
    assert_memory_equal(out + 12, "\x21\0\0\4", 4);
    p = (struct vb_packet){.opcode = 0xa4, .xrc_srqn = 0xff000005};
    vb_packet_encode(out, &p);
    assert_memory_equal(out + 12, "\0\0\0\5", 4);
    p = (struct vb_packet){.opcode = VB_RC_FLUSH, .flush_type = 0xf2, .flush_level = 0xfc};
    vb_packet_encode(out, &p);
    assert_memory_equal(out + 12, "\0\0\0\2", 4);
}

static void test_reserved_bytes_of_headers_are_ignored(void **state)
{
    (void)state;
    static const struct {
        uint8_t opcode, from, to, mask;
    } reserved[] = {
        {0xa4, 12, 12, 0xff},            // XRCETH
        {VB_UD_SEND_ONLY, 16, 16, 0xff}, // DETH
        {VB_RC_FLUSH, 12, 14, 0xff},     // FETH
        {VB_RC_FLUSH, 15, 15, 0xc0},
        {VB_CNP, 12, 27, 0xff},
    };
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        uint8_t frame[64] = {reserved[i].opcode, 0, 0xff, 0xff};
        size_t len = vb_opcode_table[frame[0]].header_bytes + 4u;
        struct vb_packet plain, noisy;
        assert_int_equal(vb_packet_decode(frame, len, &plain), VB_DECODE_OK);
        for (unsigned at = reserved[i].from; at <= reserved[i].to; at++)
            frame[at] |= reserved[i].mask;
        assert_int_equal(vb_packet_decode(frame, len, &noisy), VB_DECODE_OK);
        assert_same(&plain, &noisy);
    }
}

static void test_reserved_bits_are_ignored(void **state)
{
    (void)state;
    struct vb_packet plain, noisy;
    uint8_t frame[sizeof write_only_imm];
    memcpy(frame, write_only_imm, sizeof frame);
    assert_int_equal(vb_packet_decode(frame, sizeof frame, &plain), VB_DECODE_OK);
    frame[1] &= (uint8_t)~0x40; // MigReq
    frame[4] |= 0x3f;           // resv6
    frame[8] |= 0x7f;           // resv7
    assert_int_equal(vb_packet_decode(frame, sizeof frame, &noisy), VB_DECODE_OK);
    assert_same(&plain, &noisy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes_a_literal_write),
        cmocka_unit_test(test_encodes_the_same_literal),
        cmocka_unit_test(test_encodes_the_key_to_invalidate_big_endian),
        cmocka_unit_test(test_every_layout_decodes),
        cmocka_unit_test(test_every_layout_encodes),
        cmocka_unit_test(test_every_header_is_whole),
        cmocka_unit_test(test_every_opcode_round_trips),
        cmocka_unit_test(test_every_opcode_needs_all_its_bytes),
        cmocka_unit_test(test_transport_version),
        cmocka_unit_test(test_partition_key),
        cmocka_unit_test(test_pad_within_payload),
        cmocka_unit_test(test_length_is_a_multiple_of_four),
        cmocka_unit_test(test_no_payload_where_none_belongs),
        cmocka_unit_test(test_datagram_lengths),
        cmocka_unit_test(test_atomic_write_has_eight_bytes),
        cmocka_unit_test(test_masked_atomics_have_four_or_eight_bytes),
        cmocka_unit_test(test_congestion_notification),
        cmocka_unit_test(test_encoding_cuts_what_is_too_long),
        cmocka_unit_test(test_reserved_bytes_of_headers_are_ignored),
        cmocka_unit_test(test_reserved_bits_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
