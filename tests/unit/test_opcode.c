// SPDX-License-Identifier: Apache-2.0
// The opcode table: all 256 rows against a list written out by hand, and against each other.
#include "wire/opcode.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// Header bytes of each opcode by clause 9.2.2; an opcode that is not listed is not spoken.
static const struct {
    uint8_t opcode;
    uint8_t header_bytes;
    const char *name;
} spoken[] = {
    {0x00, 12, "RC SEND First"},
    {0x01, 12, "RC SEND Middle"},
    {0x02, 12, "RC SEND Last"},
    {0x03, 16, "RC SEND Last with Immediate"},
    {0x04, 12, "RC SEND Only"},
    {0x05, 16, "RC SEND Only with Immediate"},
    {0x06, 28, "RC RDMA WRITE First"},
    {0x07, 12, "RC RDMA WRITE Middle"},
    {0x08, 12, "RC RDMA WRITE Last"},
    {0x09, 16, "RC RDMA WRITE Last with Immediate"},
    {0x0a, 28, "RC RDMA WRITE Only"},
    {0x0b, 32, "RC RDMA WRITE Only with Immediate"},
    {0x0c, 28, "RC RDMA READ Request"},
    {0x0d, 16, "RC RDMA READ response First"},
    {0x0e, 12, "RC RDMA READ response Middle"},
    {0x0f, 16, "RC RDMA READ response Last"},
    {0x10, 16, "RC RDMA READ response Only"},
    {0x11, 16, "RC Acknowledge"},
    {0x12, 24, "RC ATOMIC Acknowledge"},
    {0x13, 40, "RC CmpSwap"},
    {0x14, 40, "RC FetchAdd"},
    {0x16, 16, "RC SEND Last with Invalidate"},
    {0x17, 16, "RC SEND Only with Invalidate"},
};

static void test_every_row_is_as_listed(void **state)
{
    (void)state;
    size_t next = 0;
    for (unsigned op = 0; op < 256; op++) {
        const struct vb_opcode_info *info = &vb_opcode_table[op];
        if (next < sizeof spoken / sizeof spoken[0] && spoken[next].opcode == op) {
            assert_true(info->facts & VB_OP_VALID);
            assert_int_equal(info->header_bytes, spoken[next].header_bytes);
            assert_string_equal(info->name, spoken[next].name);
            next++;
        } else {
            assert_int_equal(info->facts, 0);
            assert_int_equal(info->header_bytes, 0);
            assert_null(info->name);
        }
    }
    assert_int_equal(next, sizeof spoken / sizeof spoken[0]);
}

static unsigned bits_of(uint32_t facts, uint32_t mask)
{
    return (unsigned)__builtin_popcount(facts & mask);
}

static void test_facts_do_not_contradict_each_other(void **state)
{
    (void)state;
    for (unsigned op = 0; op < 256; op++) {
        uint32_t facts = vb_opcode_table[op].facts;
        if (facts == 0)
            continue;
        assert_int_equal(bits_of(facts, VB_OP_REQUEST | VB_OP_RESPONSE), 1);
        assert_int_equal(
            bits_of(facts, VB_OP_SEND | VB_OP_WRITE | VB_OP_READ | VB_OP_ATOMIC | VB_OP_ACK), 1);
        assert_true(bits_of(facts, VB_OP_IMM | VB_OP_IETH) <= 1);
        assert_true(vb_opcode_table[op].header_bytes <= VB_HEADERS_MAX);
        assert_int_equal(vb_opcode_table[op].header_bytes % 4, 0);
        if (facts & (VB_OP_IMM | VB_OP_IETH))
            assert_true(facts & VB_OP_LAST);
        if (facts & (VB_OP_RETH | VB_OP_ATOMIC_ETH))
            assert_true((facts & VB_OP_REQUEST) && (facts & VB_OP_FIRST));
        if (facts & (VB_OP_AETH | VB_OP_ATOMIC_ACK_ETH))
            assert_true(facts & VB_OP_RESPONSE);
        if (facts & VB_OP_PAYLOAD)
            assert_true(facts & (VB_OP_SEND | VB_OP_WRITE | VB_OP_READ));
    }
}

static void test_first_and_last_follow_the_name(void **state)
{
    (void)state;
    for (unsigned op = 0; op < 256; op++) {
        const struct vb_opcode_info *info = &vb_opcode_table[op];
        if (!(info->facts & VB_OP_PAYLOAD))
            continue;
        bool only = strstr(info->name, "Only") != NULL;
        bool first = only || strstr(info->name, "First") != NULL;
        bool last = only || strstr(info->name, "Last") != NULL;
        assert_int_equal(first, !!(info->facts & VB_OP_FIRST));
        assert_int_equal(last, !!(info->facts & VB_OP_LAST));
    }
}

static void test_requests_without_payload(void **state)
{
    (void)state;
    const uint8_t bare[] = {VB_RC_READ_REQUEST, VB_RC_COMPARE_SWAP, VB_RC_FETCH_ADD, VB_RC_ACK,
                            VB_RC_ATOMIC_ACK};
    for (size_t i = 0; i < sizeof bare; i++)
        assert_false(vb_opcode_table[bare[i]].facts & VB_OP_PAYLOAD);
    assert_true(vb_opcode_table[VB_RC_READ_RESP_MIDDLE].facts & VB_OP_PAYLOAD);
    assert_true(vb_opcode_table[VB_RC_ACK].facts & VB_OP_ACK);
    assert_false(vb_opcode_table[VB_RC_ATOMIC_ACK].facts & VB_OP_ACK);
}

static void test_aeth_syndromes(void **state)
{
    (void)state;
    uint8_t nak = vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_REMOTE_ACCESS);
    assert_int_equal(nak, 0x62);
    assert_int_equal(vb_aeth_kind_of(nak), VB_AETH_NAK);
    assert_int_equal(vb_aeth_value_of(nak), VB_NAK_REMOTE_ACCESS);
    assert_int_equal(vb_aeth_syndrome(VB_AETH_RNR, 12), 0x2c);
    assert_int_equal(vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID), 0x1f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_as_listed),
        cmocka_unit_test(test_facts_do_not_contradict_each_other),
        cmocka_unit_test(test_first_and_last_follow_the_name),
        cmocka_unit_test(test_requests_without_payload),
        cmocka_unit_test(test_aeth_syndromes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
