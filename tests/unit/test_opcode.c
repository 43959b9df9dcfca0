// SPDX-License-Identifier: Apache-2.0
// The opcode table: all 256 rows against a list written out by hand, and against each other.
#include "nic/frame.h"
#include "wire/opcode.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static_assert(VB_HEADERS_MAX <= (int)VB_FRAME_HEAD, "a frame's head holds all headers");

// Header bytes of each opcode by clause 9.2.2 and annexes A14, A17 and A19; an opcode that
// is not listed is not spoken.
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
    {0x1c, 32, "RC FLUSH"},
    {0x1d, 28, "RC ATOMIC WRITE"},
    {0x20, 12, "UC SEND First"},
    {0x21, 12, "UC SEND Middle"},
    {0x22, 12, "UC SEND Last"},
    {0x23, 16, "UC SEND Last with Immediate"},
    {0x24, 12, "UC SEND Only"},
    {0x25, 16, "UC SEND Only with Immediate"},
    {0x26, 28, "UC RDMA WRITE First"},
    {0x27, 12, "UC RDMA WRITE Middle"},
    {0x28, 12, "UC RDMA WRITE Last"},
    {0x29, 16, "UC RDMA WRITE Last with Immediate"},
    {0x2a, 28, "UC RDMA WRITE Only"},
    {0x2b, 32, "UC RDMA WRITE Only with Immediate"},
    {0x64, 20, "UD SEND Only"},
    {0x65, 24, "UD SEND Only with Immediate"},
    {0x81, 28, "CNP"},
    {0xa0, 16, "XRC SEND First"},
    {0xa1, 16, "XRC SEND Middle"},
    {0xa2, 16, "XRC SEND Last"},
    {0xa3, 20, "XRC SEND Last with Immediate"},
    {0xa4, 16, "XRC SEND Only"},
    {0xa5, 20, "XRC SEND Only with Immediate"},
    {0xa6, 32, "XRC RDMA WRITE First"},
    {0xa7, 16, "XRC RDMA WRITE Middle"},
    {0xa8, 16, "XRC RDMA WRITE Last"},
    {0xa9, 20, "XRC RDMA WRITE Last with Immediate"},
    {0xaa, 32, "XRC RDMA WRITE Only"},
    {0xab, 36, "XRC RDMA WRITE Only with Immediate"},
    {0xac, 32, "XRC RDMA READ Request"},
    {0xad, 16, "XRC RDMA READ response First"},
    {0xae, 12, "XRC RDMA READ response Middle"},
    {0xaf, 16, "XRC RDMA READ response Last"},
    {0xb0, 16, "XRC RDMA READ response Only"},
    {0xb1, 16, "XRC Acknowledge"},
    {0xb2, 24, "XRC ATOMIC Acknowledge"},
    {0xb3, 44, "XRC CmpSwap"},
    {0xb4, 44, "XRC FetchAdd"},
    {0xb6, 20, "XRC SEND Last with Invalidate"},
    {0xb7, 20, "XRC SEND Only with Invalidate"},
    {0xc0, 60, "RC masked CmpSwap"},
    {0xc1, 60, "RC masked FetchAdd"},
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

// Each opcode is of one kind.
#define KINDS                                                                         \
    (VB_OP_SEND | VB_OP_WRITE | VB_OP_READ | VB_OP_ATOMIC | VB_OP_ACK | VB_OP_FLUSH | \
     VB_OP_ATOMIC_WRITE | VB_OP_CNP)

static void test_facts_do_not_contradict_each_other(void **state)
{
    (void)state;
    for (unsigned op = 0; op < 256; op++) {
        uint32_t facts = vb_opcode_table[op].facts;
        if (facts == 0)
            continue;
        assert_int_equal(bits_of(facts, VB_OP_REQUEST | VB_OP_RESPONSE | VB_OP_CNP), 1);
        assert_int_equal(bits_of(facts, KINDS), 1);
        assert_true(bits_of(facts, VB_OP_IMM | VB_OP_IETH) <= 1);
        assert_true(bits_of(facts, VB_OP_DETH | VB_OP_XRCETH | VB_OP_FETH | VB_OP_CNP) <= 1);
        assert_true(vb_opcode_table[op].header_bytes <= VB_HEADERS_MAX);
        assert_int_equal(vb_opcode_table[op].header_bytes % 4, 0);
        if (facts & (VB_OP_IMM | VB_OP_IETH))
            assert_true(facts & VB_OP_LAST);
        if (facts & VB_OP_XRCETH)
            assert_true(facts & VB_OP_REQUEST);
        if (facts & (VB_OP_RETH | VB_OP_ATOMIC_ETH | VB_OP_MASKED_ETH | VB_OP_FETH | VB_OP_DETH))
            assert_true((facts & VB_OP_REQUEST) && (facts & VB_OP_FIRST));
        if (facts & (VB_OP_AETH | VB_OP_ATOMIC_ACK_ETH))
            assert_true(facts & VB_OP_RESPONSE);
        if (facts & VB_OP_PAYLOAD)
            assert_true(facts & (VB_OP_SEND | VB_OP_WRITE | VB_OP_READ | VB_OP_ATOMIC_WRITE));
    }
}

static void test_first_and_last_follow_the_name(void **state)
{
    (void)state;
    for (unsigned op = 0; op < 256; op++) {
        const struct vb_opcode_info *info = &vb_opcode_table[op];
        if (!(info->facts & VB_OP_PAYLOAD))
            continue;
        bool only = strstr(info->name, "Only") || op == VB_RC_ATOMIC_WRITE;
        bool first = only || strstr(info->name, "First") != NULL;
        bool last = only || strstr(info->name, "Last") != NULL;
        assert_int_equal(first, !!(info->facts & VB_OP_FIRST));
        assert_int_equal(last, !!(info->facts & VB_OP_LAST));
    }
}

static void test_requests_without_payload(void **state)
{
    (void)state;
    const uint8_t bare[] = {0x0c, 0x11, 0x12, 0x13, 0x14, 0x1c, 0x81,
                            0xac, 0xb1, 0xb2, 0xb3, 0xb4, 0xc0, 0xc1};
    for (size_t i = 0; i < sizeof bare; i++)
        assert_false(vb_opcode_table[bare[i]].facts & VB_OP_PAYLOAD);
    assert_true(vb_opcode_table[VB_RC_READ_RESP_MIDDLE].facts & VB_OP_PAYLOAD);
    assert_true(vb_opcode_table[VB_RC_ACK].facts & VB_OP_ACK);
    assert_false(vb_opcode_table[VB_RC_ATOMIC_ACK].facts & VB_OP_ACK);
}

static void test_transport_follows_the_name(void **state)
{
    (void)state;
    static const char *const names[] = {"RC ", "UC ", "UD ", "XRC ", "CNP"};
    size_t count[5] = {0};
    for (unsigned op = 0; op < 256; op++) {
        const struct vb_opcode_info *info = &vb_opcode_table[op];
        if (!info->facts)
            continue;
        assert_in_range(info->transport, VB_TP_RC, VB_TP_CNP);
        assert_memory_equal(info->name, names[info->transport], strlen(names[info->transport]));
        count[info->transport]++;
    }
    assert_int_equal(count[VB_TP_RC], 27);
    assert_int_equal(count[VB_TP_UC], 12);
    assert_int_equal(count[VB_TP_UD], 2);
    assert_int_equal(count[VB_TP_XRC], 23);
    assert_int_equal(count[VB_TP_CNP], 1);
}

// The same operation has the same facts on every transport, but for what the transport adds.
static void test_operations_are_alike_on_all_transports(void **state)
{
    (void)state;
    for (uint8_t rc = 0; rc <= VB_RC_SEND_ONLY_INV; rc++) {
        uint32_t facts = vb_opcode_table[rc].facts;
        uint32_t uc = vb_opcode_table[vb_opcode_for(VB_TP_UC, rc)].facts;
        uint32_t xrc = vb_opcode_table[vb_opcode_for(VB_TP_XRC, rc)].facts;
        assert_int_equal(uc, rc <= VB_RC_WRITE_ONLY_IMM ? facts : 0);
        assert_int_equal(xrc, facts & VB_OP_REQUEST ? facts | VB_OP_XRCETH : facts);
        assert_int_equal(vb_opcode_for(VB_TP_RC, rc), rc);
    }
    for (uint8_t rc = VB_RC_SEND_ONLY_INV + 1; rc < 0x20; rc++) {
        assert_int_equal(vb_opcode_table[vb_opcode_for(VB_TP_UC, rc)].facts, 0);
        assert_int_equal(vb_opcode_table[vb_opcode_for(VB_TP_XRC, rc)].facts, 0);
    }
}

static void test_codes_of_other_transports(void **state)
{
    (void)state;
    assert_int_equal(vb_opcode_for(VB_TP_UC, VB_RC_SEND_FIRST), 0x20);
    assert_int_equal(vb_opcode_for(VB_TP_UC, VB_RC_WRITE_ONLY_IMM), 0x2b);
    assert_int_equal(vb_opcode_for(VB_TP_UD, VB_RC_SEND_ONLY), 0x64);
    assert_int_equal(vb_opcode_for(VB_TP_UD, VB_RC_SEND_ONLY_IMM), VB_UD_SEND_ONLY_IMM);
    assert_int_equal(vb_opcode_for(VB_TP_XRC, VB_RC_SEND_ONLY_INV), 0xb7);
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
        cmocka_unit_test(test_transport_follows_the_name),
        cmocka_unit_test(test_operations_are_alike_on_all_transports),
        cmocka_unit_test(test_codes_of_other_transports),
        cmocka_unit_test(test_aeth_syndromes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
