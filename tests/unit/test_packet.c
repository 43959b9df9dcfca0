// SPDX-License-Identifier: Apache-2.0
// Packets: literal headers, round trips of every opcode, and each refusal beside what is accepted.
#include "base/prng.h"
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
    assert_true(p.becn);
    assert_false(p.fecn);
    assert_int_equal(p.pkey, 0xffff);
    assert_int_equal(p.dest_qpn, 0xabcdef);
    assert_int_equal(p.psn, 0x123456);
    assert_int_equal(p.raddr, 0x00007f0102030405u);
    assert_int_equal(p.rkey, 0xdeadbeef);
    assert_int_equal(p.dma_len, 1);
    assert_memory_equal(&p.imm, "\xca\xfe\xf0\x0d", 4);
    assert_int_equal(p.payload_len, 1);
    assert_ptr_equal(p.payload, write_only_imm + 32);
    assert_int_equal(p.syndrome | p.msn | p.swap_add | p.compare | p.atomic_old, 0);
}

static void test_encodes_the_same_literal(void **state)
{
    (void)state;
    struct vb_packet p = {
        .opcode = VB_RC_WRITE_ONLY_IMM,
        .solicited = true,
        .ack_request = true,
        .becn = true,
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

static struct vb_packet random_packet(struct vb_prng *prng, uint8_t opcode)
{
    uint32_t facts = vb_opcode_table[opcode].facts;
    bool reth = facts & VB_OP_RETH, aeth = facts & VB_OP_AETH, atomic = facts & VB_OP_ATOMIC_ETH;
    return (struct vb_packet){
        .opcode = opcode,
        .facts = facts,
        .solicited = vb_prng_below(prng, 2),
        .ack_request = vb_prng_below(prng, 2),
        .becn = vb_prng_below(prng, 2),
        .fecn = vb_prng_below(prng, 2),
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
        .atomic_old = facts & VB_OP_ATOMIC_ACK_ETH ? vb_prng_next(prng) : 0,
        .payload_len = facts & VB_OP_PAYLOAD ? (uint32_t)vb_prng_below(prng, VB_MTU_MAX + 1) : 0,
    };
}

static void assert_same(const struct vb_packet *a, const struct vb_packet *b)
{
    assert_int_equal(a->opcode, b->opcode);
    assert_int_equal(a->facts, b->facts);
    assert_int_equal(a->solicited, b->solicited);
    assert_int_equal(a->ack_request, b->ack_request);
    assert_int_equal(a->becn, b->becn);
    assert_int_equal(a->fecn, b->fecn);
    assert_int_equal(a->pkey, b->pkey);
    assert_int_equal(a->dest_qpn, b->dest_qpn);
    assert_int_equal(a->psn, b->psn);
    assert_int_equal(a->syndrome, b->syndrome);
    assert_int_equal(a->msn, b->msn);
    assert_int_equal(a->rkey, b->rkey);
    assert_int_equal(a->raddr, b->raddr);
    assert_int_equal(a->dma_len, b->dma_len);
    assert_int_equal(a->imm, b->imm);
    assert_int_equal(a->swap_add, b->swap_add);
    assert_int_equal(a->compare, b->compare);
    assert_int_equal(a->atomic_old, b->atomic_old);
    assert_int_equal(a->payload_len, b->payload_len);
}

static void test_every_opcode_round_trips(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = 1};
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
    struct vb_prng prng = {.state = 2};
    for (unsigned op = 0; op < 256; op++) {
        uint8_t frame[VB_FRAME_MAX] = {0};
        struct vb_packet p = {0}, got;
        if (!vb_opcode_table[op].facts) {
            frame[0] = (uint8_t)op;
            frame[2] = frame[3] = 0xff;
            assert_int_equal(vb_packet_decode(frame, 64, &got), VB_DECODE_OPCODE);
            continue;
        }
        p = random_packet(&prng, (uint8_t)op);
        p.payload_len = 0;
        size_t whole = vb_packet_encode(frame, &p) + VB_ICRC_BYTES;
        assert_int_equal(decode_tight(frame, whole, &got), VB_DECODE_OK);
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
        if (!info->facts || info->facts & VB_OP_PAYLOAD)
            continue;
        assert_int_equal(vb_packet_decode(frame, info->header_bytes + 4, &p), VB_DECODE_OK);
        assert_int_equal(vb_packet_decode(frame, info->header_bytes + 8, &p), VB_DECODE_PAD);
        frame[1] = 0x30;
        assert_int_equal(vb_packet_decode(frame, info->header_bytes + 4, &p), VB_DECODE_PAD);
        assert_int_equal(vb_packet_decode(frame, info->header_bytes + 8, &p), VB_DECODE_PAD);
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
        cmocka_unit_test(test_every_opcode_round_trips),
        cmocka_unit_test(test_every_opcode_needs_all_its_bytes),
        cmocka_unit_test(test_transport_version),
        cmocka_unit_test(test_partition_key),
        cmocka_unit_test(test_pad_within_payload),
        cmocka_unit_test(test_length_is_a_multiple_of_four),
        cmocka_unit_test(test_no_payload_where_none_belongs),
        cmocka_unit_test(test_reserved_bits_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
