// SPDX-License-Identifier: Apache-2.0
// The text form of chain programs: every construct, every complaint, and files.
#include "base/bytes.h"
#include "chain/code.h"
#include "chain/file.h"
#include "chain/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD                                                                 \
    "program p\ncq c entries 8\ncq r entries 8\n"                            \
    "queue W loop blocks 8 send_cq c\n"                                      \
    "queue K peer managed_send managed_recv checks blocks 4 recvs 2 stride " \
    "32 send_cq c recv_cq r\n"                                               \
    "region g own 64 writable\nregion s shared 4096\n"

static struct vb_image *assemble(const char *text)
{
    char why[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_asm(text, strlen(text), why);
    if (!image)
        fail_msg("%s in\n%s", why, text);
    return image;
}

// The line of the canonical text that `line` becomes as the first in `section`.
static void assert_line(const char *section, const char *line, const char *expected)
{
    char text[4096], found[1024];

    snprintf(text, sizeof text, "%s%s\n%s\n", HEAD, section, line);
    struct vb_image *image = assemble(text);
    char *dis = vb_dis(image);
    assert_non_null(dis);
    snprintf(text, sizeof text, "\n%s\n", section);
    const char *at = strstr(dis, text);
    assert_non_null(at);
    at += strlen(text);
    at += strspn(at, " ");
    snprintf(found, sizeof found, "%.*s", (int)strcspn(at, "#\n"), at);
    while (strlen(found) && found[strlen(found) - 1] == ' ')
        found[strlen(found) - 1] = 0;
    assert_string_equal(found, expected);
    free(dis);
    vb_image_destroy(image);
}

static const char *const instructions[][2] = {
    {"nop", "nop"},
    {"nop ds 1", "nop"},
    {"nop ds 32 signaled", "nop ds 32 signaled"},
    {"nop idx 0", "nop"},
    {"nop idx 9", "nop idx 9"},
    {"nop flags 0x88", "nop signaled fence"},
    {"nop flags 0x20 signaled", "nop flags 0x28"},
    {"nop solicited opmod 3", "nop solicited opmod 0x3"},
    {"nop qpn 0", "nop"},
    {"nop qpn 7", "nop qpn 0x7"},
    {"nop qpn K", "nop qpn K"},
    {"wait c 3", "wait c 3"},
    {"wait c absolute 3", "wait c absolute 3"},
    {"wait @0x12 3", "wait @0x12 3"},
    {"send_en W 0x8", "send_en W 8"},
    {"recv_en K 1 signaled", "recv_en K 1 signaled"},
    {"send", "send"},
    {"send <- g:8, s+4095:1", "send <- g:8, s+4095:1"},
    {"send_imm <- inline 0a0b imm 7", "send_imm <- inline 0a0b imm 0x7"},
    {"write s <- g:8", "write s <- g:8"},
    {"write s", "write s"},
    {"write s <- g + 8 : 8", "write s <- g+8:8"},
    {"write s <- inline \"with \\\" # and \\\\\"", "write s <- inline \"with \\\""}, // cut at the #
    {"write s <- inline \"abc\"", "write s <- inline 616263"},
    {"write s <- inline 61626364 65", "write s <- inline \"abcde\""},
    {"write_imm s <- g:8 imm 5", "write_imm s <- g:8 imm 0x5"},
    {"write.max s <- g:16, g+16:16", "write.max s <- g:16, g+16:16"},
    {"send.float_add <- g:16", "send.float_add <- g:16"},
    {"write s opmod 3", "write.max s"},
    {"write s opmod 0x77", "write s opmod 0x77"},
    {"write s/0x17 <- g/s:8", "write s/0x17 <- g/s:8"},
    {"write @5/6 <- @0x10/g:8, @1:2", "write @0x5/0x6 <- @0x10/g:8, @0x1/0x0:2"},
    {"read s -> g:8 fence", "read s -> g:8 fence"},
    {"read W.recv[0]/0 -> K.recv[1].addr[1], K.recv[0]+31:1",
     "read W.recv[0]/0x0 -> K.recv[1].addr[1]:8, K.recv[0].addr[1]+7:1"},
    {"cas g compare 1 swap 2 -> g+8:8", "cas g compare 0x1 swap 0x2 -> g+8:8"},
    {"fadd g add 1 -> g+8:8", "fadd g add 0x1 -> g+8:8"},
    {"fadd g add 1 compare 2 -> g+8:8", "fadd g add 0x1 compare 0x2 -> g+8:8"},
    {"masked_cas.4 g swap 1 compare 2 swap_mask 3 compare_mask 4 -> g:4",
     "masked_cas.4 g compare 0x2 swap 0x1 compare_mask 0x4 swap_mask 0x3 -> g:4"},
    {"masked_cas g swap 0x100000000 -> g:8 opmod 7",
     "masked_cas.8 g compare 0x0 swap 0x100000000 compare_mask 0x0 swap_mask 0x0 -> g:8 opmod 0x7"},
    {"masked_fadd.8 g add 1 boundary 0x8000 -> g:8",
     "masked_fadd.8 g add 0x1 boundary 0x8000 -> g:8"},
    {"nop as write s <- g:8 signaled", "nop as write s <- g:8 signaled"},
    {"nop as read s -> g:8", "nop as write s <- g:8"},
    {"nop as cas g compare 1 swap 2 -> g:8", "nop as cas g compare 0x1 swap 0x2 -> g:8"},
    {"nop as wait c 5", "nop as wait c 5"},
    {"nop as recv_en K 5", "nop as recv_en K 5"},
    {"raw 0a0b", "raw 0a0b"},
    {"raw \"\\x01\\x02\"", "raw 0102"},
    {"block 2\nnop", "block 2"},
    {"read s -> W[0].ctrl:3", "read s -> W[0].ctrl:3"},
    {"read s -> W[0]+4:4", "read s -> W[0].ctrl+4:4"},
    {"read s -> W[0]+6:4", "read s -> W[0]+6:4"},
    {"read s -> W[0].qpn", "read s -> W[0].qpn:3"},
    {"read s -> W[0].qpn+1", "read s -> W[0].qpn+1:2"},
    {"read W[8] -> W[0].addr[0], W[0].addr[1]:1", "read W[8] -> W[0].addr:8, W[0].addr[1]:1"},
};

static void instructions_have_a_canonical_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof instructions / sizeof instructions[0]; i++)
        assert_line("code W", instructions[i][0], instructions[i][1]);
    // With checks the queue's own number is what needs no word.
    assert_line("code K", "nop", "nop");
    assert_line("code K", "nop qpn K", "nop");
    assert_line("code K", "nop qpn 0", "nop qpn 0x0");
    assert_line("receives K", "recv -> g:8, g:4", "recv -> g:8, g:4");
    assert_line("receives K", "recv", "recv");
    assert_line("receives K", "raw 80", "raw 80");
    assert_line("receives K", "slot 1\nrecv", "slot 1");
}

// ---- bytes and relocations

static void an_entry_has_its_bytes_and_relocations(void **state)
{
    struct vb_image *image =
        assemble(HEAD "code K\n nop\nV: read s+5 -> V.raddr, g:3 fence imm 9\n");
    const struct vb_image_queue *q = &image->queue[1];
    struct vb_code code;

    (void)state;
    assert_true(vb_code_read(q->code + 64, 3 * 64, &code));
    assert_int_equal(code.opcode, VB_WQE_READ);
    assert_int_equal(code.idx, 1);
    assert_int_equal(code.imm, 9);
    assert_int_equal(code.fm_ce_se, VB_WQE_FENCE);
    assert_int_equal(code.num_sge, 2);
    assert_int_equal(code.sge[0].len, 8); // of the field
    assert_int_equal(code.sge[1].len, 3);
    assert_int_equal(q->filled, 2);
    assert_int_equal(q->open, 0);
    assert_int_equal(image->relocs, 2 + 2 + 4);
    bool found = false;
    for (uint32_t i = 0; i < image->relocs; i++) {
        const struct vb_reloc *r = &image->reloc[i];
        found =
            found || (r->kind == VB_RELOC_ADDR && r->at.kind == VB_IN_SEND && r->at.index == 1 &&
                      r->at.offset == 64 + 40 && r->target.kind == VB_IN_SEND &&
                      r->target.index == 1 && r->target.offset == 64 + 16);
    }
    assert_true(found);
    vb_image_destroy(image);
}

static void a_dormant_entry_is_a_nop_with_a_body(void **state)
{
    struct vb_image *image = assemble(HEAD "code W\n nop as write s <- g:8 imm 1\n");
    const uint8_t *at = image->queue[0].code;

    (void)state;
    assert_int_equal(at[3], VB_WQE_NOP);
    assert_int_equal(at[7], 3);
    assert_int_equal(vb_get_be32(at + 32), 8);
    vb_image_destroy(image);
}

static void receives_end_with_a_mark(void **state)
{
    struct vb_image *image = assemble(HEAD "receives K\n recv -> g:8\n recv -> g:1, g:2\n");
    const struct vb_image_queue *q = &image->queue[1];

    (void)state;
    assert_int_equal(vb_get_be32(q->recv), 8);
    assert_int_equal(vb_get_be32(q->recv + 20), VB_WQE_LKEY_END);
    assert_int_equal(vb_get_be32(q->recv + 32 + 16), 2);
    assert_int_equal(q->recv_filled, 2);
    assert_int_equal(q->recv_open, 0);
    vb_image_destroy(image);
}

static void regions_have_data(void **state)
{
    struct vb_image *image = assemble(HEAD "region d own 64\n0: be16 0x102, 3\n4: le32 5\n8: bytes "
                                           "0a0b\n16: addr g+1 = 6\n24: cq_count c = 0x10203\n"
                                           "27: send_count W\n32: be64 1\n40: le64 2\n48: u8 7\n"
                                           "50: be32 8\n56: le16 9\n");
    static const uint8_t expected[64] = {1,        2,  0,        3,        5,       0, 0,
                                         0,        10, 11,       [23] = 6, 3,       2, 1,
                                         [39] = 1, 2,  [48] = 7, [53] = 8, [56] = 9};

    (void)state;
    assert_memory_equal(image->region[2].init, expected, sizeof expected);
    assert_int_equal(image->relocs, 3);
    char *text = vb_dis(image);
    assert_non_null(strstr(text, "    16: addr g+1 = 6\n"));
    assert_non_null(strstr(text, "    24: cq_count c = 66051\n"));
    assert_non_null(strstr(text, "    27: send_count W\n"));
    free(text);
    vb_image_destroy(image);
}

static void patches_add_what_an_instruction_does_not_say(void **state)
{
    struct vb_image *image =
        assemble(HEAD "code W\n fadd g add 5 -> g:8\n patch swap+4 cq_index c\n"
                      " patch 9 qpn W = 0\n");
    char *text = vb_dis(image);

    (void)state;
    assert_non_null(strstr(text, "\n    patch 9 qpn W\n    patch swap+4 cq_index c\n"));
    free(text);
    vb_image_destroy(image);
}

static void labels_may_lie_anywhere(void **state)
{
    struct vb_image *image =
        assemble(HEAD "code W\na: b:\n read s -> g:1, g:1, g:1, c:1\n label c 1\n"
                      "g: nop\ncode K\n write g <- g:1\n write W[2]\n");
    char *text = vb_dis(image);

    (void)state;
    assert_int_equal(image->labels, 4);
    assert_non_null(strstr(text, "a:\nb:\n    read"));
    assert_non_null(strstr(text, "\n    label c 1\n"));
    // The name g alone is the region's.
    assert_non_null(strstr(text, "write g <- g:1 "));
    assert_non_null(strstr(text, "write W[2].opmod "));
    free(text);
    vb_image_destroy(image);
}

// ---- complaints

static const char *const wrong[][2] = {
    {"fly", "line 8: 'fly' begins nothing; program, cq, queue"},
    {"nop", "(instructions follow 'code QUEUE')"},
    {"program 1x", "a program needs a name"},
    {"program \"a", "no closing"},
    {"program \"\\x00\"", "no byte zero"},
    {"cq c 4", "there is a completion queue 'c' already"},
    {"cq d", "'end of line' is not how many entries it has"},
    {"cq d 3", "line 8: completion queue 'd': 3 entries are not a power of two"},
    {"cq d 0x800000", "are not a power of two up to 4194304"},
    {"queue X loop blocks 4 send_cq c recvs 3", "'recvs' and 'stride' that are powers of two"},
    {"queue X loop blocks 4 send_cq c recvs 4 stride 8", "a stride from 16 to 256"},
    {"queue W loop blocks 4 send_cq c", "there is a queue 'W' already"},
    {"queue X ring", "loop (on this server's memory) or peer (to a client), not 'ring'"},
    {"queue X loop blocks 4", "needs 'send_cq'"},
    {"queue X loop blocks 3 send_cq c", "'blocks' and a power of two"},
    {"queue X loop send_cq c", "'blocks' and a power of two"},
    {"queue X loop blocks 4 send_cq nowhere", "there is no completion queue 'nowhere'"},
    {"queue X loop blocks 65536 send_cq c", "too large: 32768 blocks"},
    {"queue X loop blocks 4 colour 3", "'colour' is nothing of a queue"},
    {"queue X loop blocks 4 send_cq c open 2", "more blocks are filled or open"},
    {"region g own 4", "there is a region 'g' already"},
    {"region x mine 4", "own, shared or peer, not 'mine'"},
    {"region x own 999999999999", "too large: all rings and own regions are 256 MB"},
    {"region x shared 4\n0: u8 1", "line 9: region 'x' is not own"},
    {"region x own 4\n0 u8 1", "data is written OFFSET:"},
    {"region x own 4\n0: u9 1", "'u9' is no data"},
    {"region x own 4\n0: u8 256", "a number up to 255"},
    {"region x own 4\n1: be32 1", "region 'x' has 4 bytes"},
    {"region x own 4\n3: bytes 0102", "at most 1 fit"},
    {"region x own 4\n0: bytes 012", "pairs of hexadecimal digits"},
    {"region x own 4\n0: addr g", "addr takes 8 bytes"},
    {"region x own 8\n0: addr g\n2: key g",
     "two relocations lie over each other: region 'x', byte 2"},
    {"region x own 8\n0: cqn W", "there is no completion queue 'W'"},
    {"region x own 8\n0: cqn c = 0x100000000", "up to 4294967295"},
    {"code X", "there is no queue 'X'"},
    {"code W\nfly", "'fly' is no instruction; there are nop"},
    {"code W\nnop as nop", "'nop' is no instruction"},
    {"code W\na:\na:", "line 10: there is a label 'a' already"},
    {"code W\n1a:", "'1a' is no name"},
    {"code W\nblock 8", "has 8 blocks, the last is 7"},
    {"code W\nlabel x 8", "behind the last block"},
    {"code W\nblock 7\nread s -> g:1, g:1, g:1", "too few: this needs block 8"},
    {"code W\nnop\nblock 0\nnop", "block 0 of queue 'W' has been written above"},
    {"code W\npatch 0 key g", "a patch follows the entry"},
    {"code W\nnop\npatch 64 key g", "64 is behind its end"},
    {"code W\nnop\npatch swap key g", "the entry above has no field swap"},
    {"code W\nnop\npatch colour key g", "'colour' is no field"},
    {"code W\nnop\npatch 0 colour g", "'colour' is not filled in"},
    {"code W\nnop ds 0", "a ds from 1 to 63"},
    {"code W\nnop ds 64", "up to 63"},
    {"code W\nwrite s ds 4", "only a nop has a ds"},
    {"code W\nnop -> g:1", "nop has no operands"},
    {"code W\nnop compare 1", "'compare' does not follow a nop"},
    {"code W\nwrite s -> g:8", "the other way: write <-"},
    {"code W\nread s <- g:8", "the other way: write ->"},
    {"code W\nwrite s:8 <- g:8", "the length stands in the list"},
    {"code W\nwrite s <- g", "needs a length, like scratch:8"},
    {"code W\nwrite s <- g:8 <- g:8", "one list"},
    {"code W\nwrite s <- inline", "'end of line' is not bytes"},
    {"code W\nread s -> inline 01", "only send and write have inline bytes"},
    {"code W\nwrite s <- g:0x80000000", "not a length"},
    {"code W\nwrite s <- 5:8", "'5:8' names no memory"},
    {"code W\nwrite nowhere", "there is no region and no label 'nowhere'"},
    {"code W\nwrite s.addr", "region 's' has no fields"},
    {"code W\nwrite s+4097", "'s' has 4096 bytes; +4097"},
    {"code W\nwrite X[0]", "there is no queue 'X'"},
    {"code W\nwrite W[9]", "queue 'W' has 8 blocks"},
    {"code W\nwrite K.recv[3]", "queue 'K' has 2 receives"},
    {"code W\nwrite K.recv[0].addr[2]", "it has 2 data segments"},
    {"code W\nwrite K.recv[0].swap", "a receive has the fields len, key and addr"},
    {"code W\nwrite W[0].colour", "there is no field 'colour'; fields are: ctrl opmod idx"},
    {"code W\nwrite W[0].swap", "'W' is a write, which has no field swap"},
    {"code W\nwrite W[1].ctrl", "since no instruction stands there"},
    {"code W\nwrite W[0].ctrl[1]", "only len, key and addr have an index"},
    {"code W\nwrite W[0", "a ] is missing"},
    {"code W\nread s -> W[0].qpn:4", "4 bytes are longer than W.qpn (3 bytes); W+4"},
    {"code W\nread s -> g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1,g:1",
     "the list has room for 16"},
    {"code W\ncas g compare 1 swap 2", "needs a place for the old value"},
    {"code W\nmasked_cas.4 g swap 0x100000000 -> g:4", "a number up to 4294967295"},
    {"code W\nmasked_cas.2 g -> g:4", "of .4 or .8 bytes"},
    {"code W\nmasked_cas g opmod 8 -> g:4", "opmod 8 is the form .4"},
    {"code W\nwrite.mul s", "there is no '.mul'"},
    {"code W\nwait W 3", "there is no completion queue 'W'"},
    {"code W\nwait c", "'end of line' is not an index"},
    {"code W\nnop imm 0x100000000", "not immediate data"},
    {"code W\nnop idx 65536", "not an idx"},
    {"code W\nnop qpn 0x1000000", "not a queue's number"},
    {"receives K\nnop", "'nop' does not stand among receives"},
    {"receives K\nrecv -> g:1, g:1, g:1", "the list has room for 2"},
    {"receives K\nslot 2", "queue 'K' has 2 receives"},
    {"receives K\nrecv\nrecv\nrecv", "too few: this is receive 2"},
    {"receives K\nrecv\nslot 0\nrecv", "receive 0 of queue 'K' has been written above"},
    {"receives K\nrecv 5", "the line should end before '5'"},
    {"region z own 0\ncode W\nwrite z", "has no bytes and so no key"},
};

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[2048], why[VB_IMAGE_TEXT] = "";
        snprintf(text, sizeof text, "%s%s\n", HEAD, wrong[i][0]);
        struct vb_image *image = vb_asm(text, strlen(text), why);
        if (image || !strstr(why, wrong[i][1]))
            fail_msg("'%s' got: %s\nnot: %s", wrong[i][0], image ? "accepted" : why, wrong[i][1]);
    }
}

static void an_empty_text_is_an_empty_program(void **state)
{
    (void)state;
    struct vb_image *image = assemble("# nothing\n\n");
    char *text = vb_dis(image);
    assert_string_equal(text, "program \"\"\n\n");
    free(text);
    vb_image_destroy(image);
}

// ---- files

static void a_file_with_any_byte_changed_is_read_or_refused(void **state)
{
    struct vb_image *image =
        assemble(HEAD "code W\na: write s <- g:8\nreceives K\nrecv -> a.addr\n");
    char why[VB_IMAGE_TEXT];
    size_t len;
    uint8_t *bytes = vb_image_encode(image, &len);

    (void)state;
    for (size_t i = 0; i < len; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            why[0] = 0;
            struct vb_image *other = vb_image_decode(bytes, len, why);
            assert_true(other || why[0]);
            assert_false(other && vb_image_equal(image, other) && i < 28);
            vb_image_destroy(other);
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1);
        memcpy(exact, bytes, cut);
        assert_null(vb_image_decode(exact, cut, why));
        free(exact);
    }
    free(bytes);
    vb_image_destroy(image);
}

static void files_of_others_are_refused_with_words(void **state)
{
    struct vb_image *image = assemble(HEAD);
    char why[VB_IMAGE_TEXT];
    size_t len;
    uint8_t *bytes = vb_image_encode(image, &len);

    (void)state;
    bytes[8] = 2;
    assert_null(vb_image_decode(bytes, len, why));
    assert_non_null(strstr(why, "version"));
    bytes[8] = 1;
    uint8_t *more = malloc(len + 1);
    memcpy(more, bytes, len);
    more[len] = 0;
    assert_null(vb_image_decode(more, len + 1, why));
    assert_non_null(strstr(why, "goes on behind its end"));
    more[0] = 'x';
    assert_null(vb_image_decode(more, len, why));
    assert_non_null(strstr(why, "vbchain"));
    free(more);
    free(bytes);
    vb_image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_have_a_canonical_text),
        cmocka_unit_test(an_entry_has_its_bytes_and_relocations),
        cmocka_unit_test(a_dormant_entry_is_a_nop_with_a_body),
        cmocka_unit_test(receives_end_with_a_mark),
        cmocka_unit_test(regions_have_data),
        cmocka_unit_test(patches_add_what_an_instruction_does_not_say),
        cmocka_unit_test(labels_may_lie_anywhere),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(an_empty_text_is_an_empty_program),
        cmocka_unit_test(a_file_with_any_byte_changed_is_read_or_refused),
        cmocka_unit_test(files_of_others_are_refused_with_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
