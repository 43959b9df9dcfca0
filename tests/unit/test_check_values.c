// SPDX-License-Identifier: Apache-2.0
// What the static checker knows of memory. A program of one queue does something, then takes three
// bytes into an open entry, and compares that: a comparison that can never be equal is no flaw. So
// each byte is told to be known, and as what, or not.
#include "chain/check.h"
#include "chain/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char before[] = "program case\n"
                             "cq d entries 64\n"
                             "cq m entries 64\n"
                             "queue W loop blocks 4 send_cq d\n"
                             "queue P peer blocks 4 recvs 2 stride 64 send_cq d recv_cq d\n"
                             "queue M loop managed_send blocks 32 send_cq m open 1\n"
                             "region box shared 128 writable\n"
                             "region huge shared 18446744073709551615 writable\n"
                             "region other own 64 writable\n"
                             "region fixed own 128\n"
                             "    0: bytes 010203\n"
                             "    8: bytes 010204\n"
                             "    16: be64 0x102\n"
                             "    32: be64 0xff\n"
                             "    48: be64 0xffffffffffffffff\n"
                             "    64: be64 0\n"
                             "    80: be64 0x103\n"
                             "    88: be64 0x0900000000040506\n"
                             "    104: addr box\n"
                             "region data own 256 writable\n"
                             "code M\n";

static const struct row {
    const char *what; // it does, line by line
    const char *from; // the three bytes
    uint32_t value;   // of them, the first one highest
    uint32_t known;   // one bit for each, the first one lowest
    const char *after;
} rows[] = {
    // Memory as it is loaded.
    {"", "fixed", 0x010203, 7, ""},
    {"", "data+64", 0, 7, ""},
    {"", "box", 0, 0, ""},
    {"", "P.recv[0]", 0, 0, ""},
    {"", "data+254", 0, 3, ""},
    {"", "data+256", 0, 0, ""},
    {"", "M[31]+61", 0, 7, ""},
    {"", "M[31]+62", 0, 3, ""},
    {"", "fixed+103", 0, 1, ""},
    {"", "fixed+111", 0, 6, ""},
    {"u: cas data+8 compare 0 swap 0x0a0b0c -> data+8:8", "u.swap+5", 0x0a0b0c, 7, ""},
    {"u: cas data+8 compare 0 swap 0x0a0b0c -> data+8:8", "u.raddr", 0, 0, ""},
    {"u: cas data+8 compare 0 swap 0x0a0b0c -> data+8:8", "u+26", 0, 4, ""},
    {"", "o.object", 0, 0, ""},
    {"", "o.index+1", 0, 0, ""},
    // Who else could write.
    {"", "fixed", 0, 0, "code W\n nop\n"},
    {"", "fixed", 0, 0, "code P\n nop\n"},
    {"", "fixed", 0, 0, "receives P\n recv -> data:8\n"},
    {"", "fixed", 0, 0, "region big own 1048576\n"},
    {"", "fixed", 0x010203, 7, "region big own 1045504\n"},
    {"", "fixed", 0x010203, 7, "region big shared 1048576\n"},
    // Copies.
    {"write data+64 <- fixed:3", "data+64", 0x010203, 7, ""},
    {"write_imm data+64 <- fixed:3", "data+64", 0x010203, 7, ""},
    {"write data+65 <- fixed:1", "data+64", 0x000100, 7, ""},
    {"write data+64 <- inline 0a0b0c", "data+64", 0x0a0b0c, 7, ""},
    {"write data+64 <- fixed:2, fixed+10:1", "data+64", 0x010204, 7, ""},
    {"read fixed -> data+64:3", "data+64", 0x010203, 7, ""},
    {"read fixed -> data+65:2, data+64:1", "data+64", 0x030102, 7, ""},
    {"read fixed+1 -> other:1, data+64:1", "data+64", 0x030000, 7, ""},
    {"write data+64 <- box:1, fixed+1:2", "data+64", 0x000203, 6, ""},
    {"read box -> data+64:2", "data+64", 0, 4, ""},
    {"read fixed -> @0x1000/huge:8", "data+64", 0, 7, ""},
    {"nop ds 8\nwrite data+64 <- fixed:3", "data+64", 0, 0, ""},
    {"write data+64 <- fixed:3\nwrite data+64 <- other+8:1\nwrite other+9 <- fixed:1", "data+64",
     0x000203, 7, ""},
    // What other operations leave alone.
    {"write data+64 <- fixed:3\nsend <- box:8\nsend_imm <- box:8\nnop\nwait m 0\nrecv_en P 1",
     "data+64", 0x010203, 7, ""},
    // Addresses that are not known: anything under the key may be written.
    {"write data+64 <- @0x1000/box:3", "data+64", 0, 0, ""},
    {"read @0x1000/fixed -> data+64:2", "data+64", 0, 4, ""},
    {"write data+64 <- fixed:3\nread fixed -> @0x1000/data:3", "data+64", 0, 0, ""},
    {"write data <- fixed:3\nread fixed -> @0x1000/data:3", "data", 0, 0, ""},
    {"write data+64 <- fixed:3\nread fixed -> @0x1000/other:3", "data+64", 0x010203, 7, ""},
    {"write data+64 <- fixed:3\nread fixed -> @0x1000/box:3", "data+64", 0x010203, 7, ""},
    {"write data+64 <- fixed:3\nread fixed -> @0x1000/0x17:3", "data+64", 0, 0, ""},
    {"write data+64 <- fixed:3\nread fixed -> @0x1000/M[0]:3", "data+64", 0, 0, ""},
    {"write data+64 <- fixed:3\nread fixed -> @0x1000/P.recv[0]:3", "data+64", 0, 0, ""},
    {"write data+64 <- fixed:3\nwrite @0x1000/data <- fixed:3", "data+64", 0, 0, ""},
    {"write data+64 <- fixed:3\nwrite @0x1000/other <- fixed:3", "data+64", 0x010203, 7, ""},
    {"write data+64 <- fixed:3\ncas @0x1000/data -> other:8", "data+64", 0, 0, ""},
    {"write data+64 <- fixed:3\nfadd @0x1000/box -> other:8", "data+64", 0x010203, 7, ""},
    {"write data+64 <- fixed:3\nfadd box -> @0x1000/data:8", "data+64", 0, 0, ""},
    // Fields that are written: as they were, or not.
    {"write data+64 <- fixed:3\nread box -> u.raddr\nu: write data+80 <- fixed:3", "data+64", 0, 0,
     ""},
    {"write data+64 <- fixed:3\nread box -> u.raddr\nu: write other <- fixed:3", "data+64",
     0x010203, 7, ""},
    {"read box -> u.raddr, u.rkey\nu: write other <- fixed:3", "fixed", 0, 0, ""},
    {"read box -> u.addr\nu: write data+64 <- fixed:2", "data+64", 0, 4, ""},
    {"read box -> u.addr\nu: read fixed -> data+80:2", "data+64", 0, 0, ""},
    {"read box -> u.addr\nu: read fixed -> other:2", "data+64", 0, 7, ""},
    {"read box -> u.addr, u.key\nu: read fixed -> other:2", "data+64", 0, 0, ""},
    {"read box -> u.raddr\nu: read fixed -> data+64:2", "data+64", 0, 4, ""},
    {"read box -> u.len\nu: write data+80 <- fixed:3", "data+64", 0, 0, ""},
    {"read box -> u.len\nu: read fixed -> data+80:3", "data+64", 0, 0, ""},
    {"write u.len <- inline 00000003\nu: write data+80 <- fixed:3", "data+80", 0x010203, 7, ""},
    {"write u.len <- inline 00000003\nu: read fixed -> data+80:3", "data+80", 0x010203, 7, ""},
    {"write u.len <- inline 00000002\nu: write data+80 <- fixed:3", "data+64", 0, 0, ""},
    {"read box -> u.raddr\nu: cas data+80 -> other:8", "data+64", 0, 0, ""},
    {"read box -> u.raddr\nu: cas other -> other+8:8", "data+64", 0, 7, ""},
    {"write u.ds <- inline 03\nu: write data+64 <- fixed:3", "data+64", 0x010203, 7, ""},
    {"write u.ds <- inline 04\nu: write data+64 <- fixed:3", "data+64", 0, 0, ""},
    {"write u.opmod <- inline 00\nu: write data+64 <- fixed:3", "data+64", 0x010203, 7, ""},
    {"write u.opmod <- inline 01\nu: write data+64 <- fixed:3", "data+64", 0, 0, ""},
    {"write u.data <- fixed:2\nu: write data+64 <- inline 0a0b0c", "data+64", 0x01020c, 7, ""},
    {"read box -> u.opcode\nu: write data+64 <- fixed:3", "fixed", 0, 0, ""},
    {"read box -> data+64:1048576", "fixed", 0x010203, 7, ""},
    {"read box -> data+64:1048577", "fixed", 0, 0, ""},
    // A queue that goes round: what is written in it may have been written before.
    {"write data+64 <- u.swap+5:3\nread fixed -> u.swap+5:2\n"
     "u: cas data+8 compare 0 swap 0x0a0b0c -> data+8:8",
     "data+64", 0x0a0b0c, 7, ""},
    {"write data+64 <- u.swap+5:3\nread fixed -> u.swap+5:2\nread box -> o.index\n"
     "u: cas data+8 compare 0 swap 0x0a0b0c -> data+8:8",
     "data+64", 0, 0, ""},
    // Atomics.
    {"write data+64 <- fixed:8\ncas data+64 compare 0x030201 swap 0x060504 -> other:8", "data+64",
     0x040506, 7, ""},
    {"write data+64 <- fixed:8\ncas data+64 compare 0x030202 swap 0x060504 -> other:8", "data+64",
     0x010203, 7, ""},
    {"write data+64 <- fixed:8\ncas data+64 compare 0x0100000000030201 swap 0x060504 -> other:8",
     "data+64", 0x010203, 7, ""},
    {"write data+64 <- box:1, fixed+1:7\ncas data+64 compare 0x030209 swap 0x070209 -> other:8",
     "data+64", 0x000200, 2, ""},
    {"write data+64 <- box:8\n"
     "write u.compare <- data+71:1, data+70:1, data+69:1, data+68:1, data+67:1, data+66:1, "
     "data+65:1, data+64:1\n"
     "u: cas data+64 compare 0 swap 0x030201 -> other:8",
     "data+64", 0x010203, 7, ""},
    {"write data+64 <- fixed:8\nfadd data+64 add 1 -> other:8", "data+64", 0, 0, ""},
    {"write data+64 <- fixed:8\nfadd data+57 add 1 -> other:8", "data+64", 0x000203, 6, ""},
    {"write data+64 <- fixed:8\nfadd data+66 add 1 -> other:8", "data+64", 0x010200, 3, ""},
    {"write data+64 <- fixed:8\nmasked_cas.8 data+64 -> other:8", "data+64", 0, 0, ""},
    {"write data+64 <- fixed:8\nmasked_fadd.8 data+72 -> other:8", "data+64", 0x010203, 7, ""},
    {"write data+64 <- fixed:8\nfadd box add 1 -> data+64:2", "data+64", 0x000003, 4, ""},
    {"write data+64 <- fixed:8\ncas other compare 1 swap 2 -> data+64:2", "data+64", 0x000003, 4,
     ""},
    // Calculations.
    {"write.add data+64 <- fixed+16:16, fixed+32:16", "data+69", 0x000201, 7, ""},
    {"write.add data+64 <- fixed+48:16, fixed+16:16", "data+64", 0, 7, ""},
    {"write.add data+64 <- fixed+48:16, fixed+16:16", "data+69", 0x000101, 7, ""},
    {"write.add data+64 <- fixed+16:16, fixed+32:16, fixed+80:16", "data+69", 0x000304, 7, ""},
    {"write.add data+64 <- fixed+16:16", "data+69", 0x000102, 7, ""},
    {"write.add data+64 <- fixed+80:16, fixed+16:16", "data+77", 0x040506, 7, ""},
    {"write.add data+64 <- fixed+80:16, fixed+16:16", "data+72", 0x090000, 7, ""},
    {"write.xor data+64 <- fixed+80:16, fixed+80:16", "data+72", 0x090000, 7, ""},
    {"write.add data+64 <- fixed+80:16, box:16", "data+69", 0, 0, ""},
    {"write.add data+64 <- box:16, fixed+80:16", "data+69", 0, 0, ""},
    {"write.float_add data+64 <- fixed+16:16, fixed+32:16", "data+69", 0, 0, ""},
    {"write.max data+64 <- fixed+16:16, fixed+80:16", "data+69", 0x000103, 7, ""},
    {"write.max data+64 <- fixed+80:16, fixed+16:16", "data+69", 0x000103, 7, ""},
    {"write.min data+64 <- fixed+16:16, fixed+80:16", "data+69", 0x000102, 7, ""},
    {"write.min data+64 <- fixed+80:16, fixed+16:16", "data+69", 0x000102, 7, ""},
    {"write.max data+64 <- fixed+80:16, fixed+16:16", "data+77", 0, 0, ""},
    {"write.max data+64 <- fixed+80:16, fixed+80:16", "data+69", 0x000103, 7, ""},
    {"write.and data+64 <- fixed+16:16, fixed+32:16", "data+69", 0x000002, 7, ""},
    {"write.or data+64 <- fixed+16:16, fixed+32:16", "data+69", 0x0001ff, 7, ""},
    {"write.xor data+64 <- fixed+16:16, fixed+32:16", "data+69", 0x0001fd, 7, ""},
    {"write.and data+64 <- fixed+80:16, box:16", "data+77", 0x040506, 7, ""},
    {"write data+72 <- fixed:3\nwrite.add data+64 <- fixed+80:8", "data+72", 0x010203, 7, ""},
    {"write.add data+64 <- fixed+80:20", "data+69", 0x000103, 7, ""},
    {"write data+80 <- fixed:3\nwrite.add data+64 <- fixed+16:16, fixed+32:16", "data+80", 0x010203,
     7, ""},
    // With something that is not known.
    {"write.and data+64 <- box:16, fixed+16:16", "data+69", 0, 1, ""},
    {"write.and data+64 <- fixed+16:16, box:16", "data+69", 0, 1, ""},
    {"write.or data+64 <- box:16, fixed+32:16", "data+69", 0x0000ff, 4, ""},
    {"write.or data+64 <- fixed+32:16, box:16", "data+69", 0x0000ff, 4, ""},
    {"write.xor data+64 <- box:16, fixed+48:16", "data+69", 0, 0, ""},
    {"write.xor data+64 <- fixed+64:16, box:16", "data+69", 0, 0, ""},
    {"write.max data+64 <- box:16, fixed+48:16", "data+69", 0xffffff, 7, ""},
    {"write.max data+64 <- fixed+48:16, box:16", "data+69", 0xffffff, 7, ""},
    {"write.min data+64 <- box:16, fixed+64:16", "data+69", 0, 7, ""},
    {"write.min data+64 <- fixed+64:16, box:16", "data+69", 0, 7, ""},
    {"write.max data+64 <- box:16, fixed+16:16", "data+69", 0, 0, ""},
    {"write.max data+64 <- fixed+16:16, box:16", "data+69", 0, 0, ""},
    {"write.min data+64 <- box:16, fixed+16:16", "data+69", 0, 0, ""},
    {"write.min data+64 <- fixed+16:16, box:16", "data+69", 0, 0, ""},
    // Ways that meet again.
    {"write data+64 <- fixed:3\nj: nop ds 8\nwrite data+64 <- fixed+8:3\nnop", "data+64", 0x010203,
     7, ""},
    {"write data+64 <- fixed:3\nj: nop ds 4\nwrite data+64 <- fixed+8:3\nnop", "data+64", 0x010204,
     7, ""},
    {"write data+64 <- fixed:3\nj: nop ds 9\nwrite data+64 <- fixed+8:3\nwrite data+65 <- fixed:1\n"
     "write data+66 <- fixed:1",
     "data+64", 0x010201, 7, ""},
};

// What keeps the name of a value that is not known: combined with the value itself it is zero.
static const struct {
    const char *op, *with;
    uint32_t known;
} keepers[] = {
    {"and", "fixed+48", 7}, {"or", "fixed+64", 7},  {"xor", "fixed+64", 7}, {"max", "fixed+64", 7},
    {"min", "fixed+48", 7}, {"and", "fixed+32", 4}, {"or", "fixed+16", 1},  {"max", "fixed+16", 0},
    {"min", "fixed+16", 0}, {"add", "fixed+64", 0}, {"and", "data+96", 7},  {"or", "data+96", 7},
    {"max", "data+96", 7},  {"min", "data+96", 7},  {"xor", "fixed+48", 0},
};

// Whether the checker takes the bytes to be able to have this value.
static bool can_be(const struct row *r, uint32_t value)
{
    struct vb_findings found = {.count = 0};
    char error[VB_IMAGE_TEXT] = "", text[2048];
    bool can = false;
    int len =
        snprintf(text, sizeof text,
                 "%s%s\nread %s -> n.qpn:3\no: send_en M 32\n"
                 "c: cas n.ctrl compare 0x04%02x%02x%02x00000000 swap 0x0800000000000000 -> "
                 "data:8\nn: nop idx 0 ds 4\nnop\n%s",
                 before, r->what, r->from, value & 0xff, value >> 8 & 0xff, value >> 16, r->after);

    assert_in_range(len, 1, sizeof text - 1);
    struct vb_image *image = vb_asm(text, (size_t)len, error);
    if (!image)
        fail_msg("%s: %s", r->what, error);
    vb_check_static(image, &found);
    assert_false(found.no_memory);
    for (uint32_t i = 0; i < found.count; i++)
        can |= found.finding[i].kind == VB_CHECK_PATCH_OPEN &&
               strstr(found.finding[i].text, "M:n (nop) is written by M:c (cas)");
    vb_findings_free(&found);
    vb_image_destroy(image);
    return can;
}

static uint32_t judge(const struct row *r)
{
    uint32_t wrong = 0;

    if (!can_be(r, r->value)) {
        wrong++;
        print_error("%s; %s: cannot be %06x\n", r->what, r->from, r->value);
    }
    for (uint32_t i = 0; i < 3; i++) {
        bool known = !can_be(r, r->value ^ 0x40u << 8 * (2 - i));
        if (known == (r->known >> i & 1))
            continue;
        wrong++;
        print_error("%s; %s: byte %u is %sknown\n", r->what, r->from, i, known ? "" : "not ");
    }
    return wrong;
}

static void test_rows(void **state)
{
    uint32_t wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        wrong += judge(&rows[i]);
    assert_int_equal(wrong, 0);
}

static void test_names(void **state)
{
    char what[512];
    uint32_t wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof keepers / sizeof keepers[0]; i++)
        for (int turn = 0; turn < 2; turn++) {
            snprintf(what, sizeof what,
                     "write data+96 <- box:16\nwrite.%s data+112 <- %s:16, %s:16\n"
                     "write.xor data+64 <- data+112:16, data+96:16",
                     keepers[i].op, turn ? keepers[i].with : "data+96",
                     turn ? "data+96" : keepers[i].with);
            const struct row r = {what, "data+69", 0, keepers[i].known, ""};
            wrong += judge(&r);
        }
    assert_int_equal(wrong, 0);
}

// A NOP that may be one block long or more: each way leaves its own bytes.
static void test_ways(void **state)
{
    static const struct {
        const char *skipped;
        uint32_t value, known;
    } ways[] = {
        {"write data+64 <- fixed+8:3\nnop", 0x010204, 3},
        {"write data+64 <- fixed:3\nnop", 0x010203, 7},
        {"write data+65 <- fixed:1\nwrite data+66 <- fixed:1", 0x010101, 5},
        {"write data+65 <- fixed+1:1\nwrite data+65 <- fixed:1", 0x010103, 7},
    };
    char what[512];
    uint32_t wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        snprintf(what, sizeof what,
                 "write data+64 <- fixed:3\nread box -> j.qpn\n"
                 "cas j.ctrl compare 0x0400000000000000 swap 0x0800000000000000 -> other:8\n"
                 "j: nop idx 0 ds 4\n%s",
                 ways[i].skipped);
        const struct row r = {what, "data+64", ways[i].value, ways[i].known, ""};
        wrong += judge(&r);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
