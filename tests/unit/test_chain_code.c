// SPDX-License-Identifier: Apache-2.0
// Entries as values: where each field lies, blocks, and the way to bytes and back.
#include "base/bytes.h"
#include "base/prng.h"
#include "chain/code.h"
#include "fresh_seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t opcodes[] = {
    VB_WQE_NOP,       VB_WQE_SEND,      VB_WQE_SEND_IMM,  VB_WQE_WRITE, VB_WQE_WRITE_IMM,
    VB_WQE_READ,      VB_WQE_ATOMIC_CS, VB_WQE_ATOMIC_FA, VB_WQE_WAIT,  VB_WQE_SEND_EN,
    VB_WQE_MASKED_CS, VB_WQE_MASKED_FA, VB_WQE_RECV_EN};

static struct vb_code like(uint8_t opcode, uint32_t num_sge)
{
    return (struct vb_code){.opcode = opcode, .num_sge = num_sge};
}

static void assert_field(const struct vb_code *c, enum vb_field field, uint32_t n, int offset,
                         uint32_t len)
{
    uint32_t found;

    assert_int_equal(vb_code_field(c, field, n, &found), offset);
    assert_int_equal(found, len);
}

static void assert_no_field(const struct vb_code *c, enum vb_field field, uint32_t n)
{
    uint32_t len;
    assert_true(vb_code_field(c, field, n, &len) < 0);
}

static void the_control_segment_is_everyones(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof opcodes; i++) {
        struct vb_code c = like(opcodes[i], 0);
        assert_field(&c, VB_FIELD_CTRL, 0, 0, 8);
        assert_field(&c, VB_FIELD_OPMOD, 0, 0, 1);
        assert_field(&c, VB_FIELD_IDX, 0, 1, 2);
        assert_field(&c, VB_FIELD_OPCODE, 0, 3, 1);
        assert_field(&c, VB_FIELD_QPN, 0, 4, 3);
        assert_field(&c, VB_FIELD_DS, 0, 7, 1);
        assert_field(&c, VB_FIELD_FLAGS, 0, 11, 1);
        assert_field(&c, VB_FIELD_IMM, 0, 12, 4);
        assert_no_field(&c, VB_FIELD_COUNT, 0);
        assert_no_field(&c, VB_FIELD_ADDR, 0);
        assert_no_field(&c, VB_FIELD_DATA, 0);
    }
}

static void other_fields_are_where_the_layout_has_them(void **state)
{
    struct vb_code c = like(VB_WQE_WRITE, 2);

    (void)state;
    assert_field(&c, VB_FIELD_RADDR, 0, 16, 8);
    assert_field(&c, VB_FIELD_RKEY, 0, 24, 4);
    assert_field(&c, VB_FIELD_LEN, 0, 32, 4);
    assert_field(&c, VB_FIELD_KEY, 1, 52, 4);
    assert_field(&c, VB_FIELD_ADDR, 1, 56, 8);
    assert_no_field(&c, VB_FIELD_ADDR, 2);
    assert_no_field(&c, VB_FIELD_SWAP, 0);
    assert_no_field(&c, VB_FIELD_INDEX, 0);
    c = like(VB_WQE_SEND, 1);
    assert_field(&c, VB_FIELD_ADDR, 0, 24, 8);
    assert_no_field(&c, VB_FIELD_RADDR, 0);
    c = (struct vb_code){.opcode = VB_WQE_WRITE, .inline_len = 5};
    assert_field(&c, VB_FIELD_DATA, 0, 36, 5);
    assert_field(&c, VB_FIELD_DATA, 4, 40, 1);
    assert_no_field(&c, VB_FIELD_DATA, 5);
    c = like(VB_WQE_WAIT, 0);
    assert_field(&c, VB_FIELD_INDEX, 0, 24, 4);
    assert_field(&c, VB_FIELD_OBJECT, 0, 28, 4);
    c = like(VB_WQE_ATOMIC_CS, 1);
    assert_field(&c, VB_FIELD_SWAP, 0, 32, 8);
    assert_field(&c, VB_FIELD_COMPARE, 0, 40, 8);
    assert_field(&c, VB_FIELD_ADDR, 0, 56, 8);
    c = (struct vb_code){.opcode = VB_WQE_MASKED_CS, .opmod = VB_WQE_OPMOD_MASKED4, .num_sge = 1};
    assert_field(&c, VB_FIELD_COMPARE, 0, 36, 4);
    assert_field(&c, VB_FIELD_ADDR, 0, 56, 8);
    c.opmod = VB_WQE_OPMOD_MASKED8;
    assert_field(&c, VB_FIELD_COMPARE, 0, 40, 8);
    assert_field(&c, VB_FIELD_ADDR, 0, 72, 8);
}

static void entries_take_their_blocks(void **state)
{
    struct vb_code c = like(VB_WQE_READ, 2);

    (void)state;
    assert_int_equal(vb_code_blocks(&c), 1);
    c.num_sge = 3;
    assert_int_equal(vb_code_blocks(&c), 2);
    c = like(VB_WQE_WAIT, 0);
    assert_int_equal(vb_code_blocks(&c), 1);
    c = (struct vb_code){.opcode = VB_WQE_NOP, .ds = 32};
    assert_int_equal(vb_code_blocks(&c), 8);
    c = (struct vb_code){.opcode = VB_WQE_SEND, .inline_len = 44};
    assert_int_equal(vb_code_blocks(&c), 1);
    c.inline_len = 45;
    assert_int_equal(vb_code_blocks(&c), 2);
}

// ---- bytes

static void a_write_has_the_bytes_of_the_layout(void **state)
{
    static const uint8_t expected[64] = {
        0, 0x12, 0x34, 8,  0xab, 0xcd, 0xef, 3, 0, 0,  0,  0x88, 1, 2, 3,    4, // ctrl
        1, 2,    3,    4,  5,    6,    7,    8, 9, 10, 11, 12,   0, 0, 0,    0, // raddr
        0, 0,    0,    64, 0,    0,    0,    7, 0, 0,  0,  0,    0, 0, 0x10, 0, // data
    };
    struct vb_code c = {.opcode = VB_WQE_WRITE,
                        .idx = 0x1234,
                        .qpn = 0xabcdef,
                        .fm_ce_se = 0x88,
                        .imm = 0x01020304,
                        .raddr = 0x0102030405060708,
                        .rkey = 0x090a0b0c,
                        .num_sge = 1,
                        .sge = {{.addr = 0x1000, .key = 7, .len = 64}}};
    uint8_t bytes[64];

    (void)state;
    memset(bytes, 0xff, sizeof bytes);
    vb_code_write(bytes, &c, true);
    assert_memory_equal(bytes, expected, sizeof expected);
    memset(bytes, 0xff, sizeof bytes);
    vb_code_write(bytes, &c, false);
    assert_int_equal(bytes[48], 0xff); // behind its last segment nothing is touched
}

static void draw(struct vb_prng *r, struct vb_code *c)
{
    memset(c, 0, sizeof *c);
    c->opcode = opcodes[vb_prng_below(r, sizeof opcodes)];
    c->opmod = (uint8_t)(8 + vb_prng_below(r, 2));
    c->idx = (uint16_t)vb_prng_next(r);
    c->qpn = (uint32_t)vb_prng_below(r, 1 << 24);
    c->fm_ce_se = (uint8_t)vb_prng_next(r);
    c->imm = (uint32_t)vb_prng_next(r);
    uint32_t len;
    bool swaps = vb_code_field(c, VB_FIELD_SWAP, 0, &len) >= 0;
    if (vb_code_field(c, VB_FIELD_RADDR, 0, &len) >= 0) {
        c->raddr = vb_prng_next(r);
        c->rkey = (uint32_t)vb_prng_next(r);
    }
    if (vb_code_field(c, VB_FIELD_INDEX, 0, &len) >= 0) {
        c->index = (uint32_t)vb_prng_next(r);
        c->object = (uint32_t)vb_prng_next(r);
    } else if (c->opcode != VB_WQE_NOP) {
        c->num_sge = swaps ? 1 : (uint32_t)vb_prng_below(r, VB_MAX_SGE + 1);
    } else {
        c->ds = (uint8_t)vb_prng_range(r, 2, 63);
    }
    for (uint32_t i = 0; i < c->num_sge; i++)
        c->sge[i] = (struct vb_code_sge){vb_prng_next(r), (uint32_t)vb_prng_next(r),
                                         (uint32_t)vb_prng_next(r) >> 1};
    if (swaps) {
        bool narrow = c->opmod == VB_WQE_OPMOD_MASKED4 && c->opcode >= VB_WQE_MASKED_CS;
        uint64_t mask = narrow ? UINT32_MAX : UINT64_MAX;
        c->swap_add = vb_prng_next(r) & mask;
        c->compare = vb_prng_next(r) & mask;
        c->swap_mask = c->opcode == VB_WQE_MASKED_CS ? vb_prng_next(r) & mask : 0;
        c->compare_mask = c->opcode == VB_WQE_MASKED_CS ? vb_prng_next(r) & mask : 0;
    }
}

static void what_is_written_is_read(void **state)
{
    struct vb_prng r = {.state = fresh_seed()};
    uint8_t bytes[VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES];
    struct vb_code c, again;

    (void)state;
    for (int i = 0; i < 5000; i++) {
        draw(&r, &c);
        uint32_t blocks = c.opcode == VB_WQE_NOP ? 1 : vb_code_blocks(&c);
        vb_code_write(bytes, &c, true);
        assert_true(vb_code_read(bytes, blocks * VB_WQEBB_BYTES, &again));
        assert_memory_equal(&c, &again, sizeof c);
        // Neither with one block less, nor with a byte that no field has.
        assert_false(vb_code_read(bytes, (blocks - 1) * VB_WQEBB_BYTES, &again));
        bytes[9] = 1;
        assert_false(vb_code_read(bytes, blocks * VB_WQEBB_BYTES, &again));
    }
}

static void inline_bytes_are_read(void **state)
{
    uint8_t bytes[VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES];
    struct vb_code again, c;

    (void)state;
    memset(&c, 0, sizeof c); // padding, too, since it is compared
    c.opcode = VB_WQE_WRITE;
    c.inline_len = 256;
    memset(c.data, 0x5a, sizeof c.data);
    vb_code_write(bytes, &c, true);
    assert_true(vb_code_read(bytes, sizeof bytes, &again));
    assert_memory_equal(&c, &again, sizeof c);
    bytes[3] = VB_WQE_READ; // which has none
    assert_false(vb_code_read(bytes, sizeof bytes, &again));
    bytes[3] = VB_WQE_WRITE;
    vb_put_be32(bytes + 32, VB_WQE_INLINE); // of no bytes
    assert_false(vb_code_read(bytes, sizeof bytes, &again));
    vb_put_be32(bytes + 32, VB_WQE_INLINE | 257);
    assert_false(vb_code_read(bytes, sizeof bytes, &again));
}

static void nonsense_is_not_read(void **state)
{
    uint8_t bytes[64] = {0};
    struct vb_code c;

    (void)state;
    assert_false(vb_code_read(bytes, sizeof bytes, &c)); // ds 0
    bytes[7] = 1;
    assert_true(vb_code_read(bytes, sizeof bytes, &c));
    bytes[7] = 0x41; // bits that ds does not have
    assert_false(vb_code_read(bytes, sizeof bytes, &c));
    bytes[7] = 1;
    bytes[3] = VB_WQE_WAIT; // too short
    assert_false(vb_code_read(bytes, sizeof bytes, &c));
    bytes[7] = 3; // too long
    assert_false(vb_code_read(bytes, sizeof bytes, &c));
    bytes[7] = 2;
    assert_true(vb_code_read(bytes, sizeof bytes, &c));
    bytes[3] = VB_WQE_UMR; // none of a chain's
    assert_false(vb_code_read(bytes, sizeof bytes, &c));
    assert_null(vb_opcode_name(VB_WQE_UMR));
    assert_string_equal(vb_opcode_name(VB_WQE_MASKED_FA), "masked_fadd");
    assert_null(vb_field_name(VB_FIELD_COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_control_segment_is_everyones),
        cmocka_unit_test(other_fields_are_where_the_layout_has_them),
        cmocka_unit_test(entries_take_their_blocks),
        cmocka_unit_test(a_write_has_the_bytes_of_the_layout),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(inline_bytes_are_read),
        cmocka_unit_test(nonsense_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
