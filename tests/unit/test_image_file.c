// SPDX-License-Identifier: Apache-2.0
// Files of chain programs: the bytes of each record, and the reason for which a wrong one is
// refused.
#include "base/bytes.h"
#include "chain/file.h"
#include "verbena/wqe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- files, written by hand

struct file {
    uint8_t bytes[4096];
    size_t len;
};

static void put_32(struct file *f, uint32_t value)
{
    vb_put_le32(f->bytes + f->len, value);
    f->len += 4;
}

static void put_64(struct file *f, uint64_t value)
{
    put_32(f, (uint32_t)value);
    put_32(f, (uint32_t)(value >> 32));
}

static void put_name(struct file *f, const char *name)
{
    memcpy(f->bytes + f->len, name, strlen(name));
    f->len += 32;
}

// A ring or region of so many bytes, all of that value.
static void put_block(struct file *f, uint64_t len, uint8_t value)
{
    put_64(f, len);
    memset(f->bytes + f->len, value, len);
    f->len += len;
}

static void put_head(struct file *f, uint32_t cqs, uint32_t queues, uint32_t regions,
                     uint32_t relocs, uint32_t labels)
{
    memset(f, 0, sizeof *f);
    memcpy(f->bytes, "vbchain\x1a", 8);
    f->len = 8;
    put_32(f, 1);
    put_32(f, cqs);
    put_32(f, queues);
    put_32(f, regions);
    put_32(f, relocs);
    put_32(f, labels);
    put_name(f, "program");
}

static void put_cq(struct file *f, const char *name, uint32_t entries)
{
    put_name(f, name);
    put_32(f, entries);
}

static void put_queue(struct file *f, const char *name, const uint32_t fields[11])
{
    put_name(f, name);
    for (int i = 0; i < 11; i++)
        put_32(f, fields[i]);
}

static void put_region(struct file *f, const char *name, uint32_t kind, uint32_t writable,
                       uint64_t bytes)
{
    put_name(f, name);
    put_32(f, kind);
    put_32(f, writable);
    put_64(f, bytes);
}

static void put_reloc(struct file *f, uint32_t kind, struct vb_spot at, struct vb_spot target)
{
    const struct vb_spot spots[] = {at, target};

    put_32(f, kind);
    for (int i = 0; i < 2; i++) {
        put_32(f, spots[i].kind);
        put_32(f, spots[i].index);
        put_64(f, spots[i].offset);
    }
}

static void put_label(struct file *f, const char *name, uint32_t queue, uint32_t block)
{
    put_name(f, name);
    put_32(f, queue);
    put_32(f, block);
}

// Where the records of the whole file begin.
struct offsets {
    size_t cq, queue, peer, own, shared, reloc, label;
};

// Kind, flags, send_cq, recv_cq, blocks, filled, open, recvs, stride, recv_filled, recv_open.
static const uint32_t loop_fields[] = {0, 1, 0, 1, 2, 2, 9, 0, 0, 0, 0};
static const uint32_t peer_fields[] = {1, 14, 1, 0, 1, 1, 1, 4, 32, 3, 2};

static struct offsets put_whole(struct file *f)
{
    struct offsets at = {0};

    put_head(f, 2, 2, 2, 1, 1);
    put_cq(f, "c", 8);
    at.cq = f->len;
    put_cq(f, "d", 16);
    at.queue = f->len;
    put_queue(f, "W", loop_fields);
    put_block(f, 127, 0xa1);
    put_block(f, 0, 0);
    at.peer = f->len;
    put_queue(f, "K", peer_fields);
    put_block(f, 0, 0);
    put_block(f, 128, 0xa2);
    at.own = f->len;
    put_region(f, "own", 0, 1, 0x21);
    put_block(f, 0x20, 0xa3);
    at.shared = f->len;
    put_region(f, "shared", 1, 0, 0x102030405060708);
    at.reloc = f->len;
    put_reloc(f, 0, (struct vb_spot){VB_IN_DATA, 0, 3},
              (struct vb_spot){VB_IN_DATA, 1, 0x102030405060708});
    at.label = f->len;
    put_label(f, "l", 0, 1);
    return at;
}

static struct vb_image *load(const struct file *f)
{
    char why[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_image_decode(f->bytes, f->len, why);

    if (!image)
        fail_msg("%s", why);
    return image;
}

static void assert_refused(const struct file *f, const char *reason)
{
    char why[VB_IMAGE_TEXT] = "accepted";

    struct vb_image *image = vb_image_decode(f->bytes, f->len, why);
    assert_string_equal(image ? "accepted" : why, reason);
    vb_image_destroy(image);
}

// A file is read, and its program written as the same bytes.
static void assert_same(const struct file *f)
{
    struct vb_image *image = load(f);
    size_t len = 0;
    uint8_t *bytes = vb_image_encode(image, &len);

    assert_int_equal(len, f->len);
    assert_memory_equal(bytes, f->bytes, len);
    free(bytes);
    vb_image_destroy(image);
}

// ---- reading

static void assert_filled(const uint8_t *bytes, size_t len, size_t of, uint8_t value)
{
    for (size_t i = 0; i < of; i++)
        assert_int_equal(bytes[i], i < len ? value : 0);
}

static void fields_of_a_file(void **state)
{
    static struct file f;

    (void)state;
    put_whole(&f);
    assert_same(&f);
    struct vb_image *image = load(&f);
    const struct vb_image_queue *w = &image->queue[0], *k = &image->queue[1];
    const struct vb_reloc *r = &image->reloc[0];
    assert_string_equal(image->name, "program");
    assert_string_equal(image->cq[1].name, "d");
    assert_int_equal(image->cq[1].entries, 16);
    assert_true(w->kind == VB_QUEUE_LOOP && k->kind == VB_QUEUE_PEER);
    assert_true(w->managed_send && !w->managed_recv && !w->wqe_checks && !w->be_replies);
    assert_true(!k->managed_send && k->managed_recv && k->wqe_checks && k->be_replies);
    assert_true(w->send_cq == 0 && w->recv_cq == 1 && k->send_cq == 1 && k->recv_cq == 0);
    assert_true(w->blocks == 2 && w->filled == 2 && w->open == 9);
    assert_true(k->recvs == 4 && k->recv_stride == 32 && k->recv_filled == 3 && k->recv_open == 2);
    assert_filled(w->code, 127, 128, 0xa1);
    assert_filled(k->code, 0, 64, 0);
    assert_filled(k->recv, 128, 128, 0xa2);
    assert_true(image->region[0].writable && image->region[0].bytes == 0x21);
    assert_filled(image->region[0].init, 0x20, 0x21, 0xa3);
    assert_true(image->region[1].kind == VB_REGION_SHARED && !image->region[1].writable);
    assert_true(image->region[1].bytes == 0x102030405060708);
    assert_true(r->kind == VB_RELOC_ADDR && r->at.kind == VB_IN_DATA && r->at.offset == 3);
    assert_true(r->target.index == 1 && r->target.offset == 0x102030405060708);
    assert_true(image->label[0].queue == 0 && image->label[0].block == 1);
    vb_image_destroy(image);
}

static void flags_of_queues(void **state)
{
    static struct file f;

    (void)state;
    for (uint32_t flags = 0; flags < 16; flags++) {
        struct offsets at = put_whole(&f);
        vb_put_le32(f.bytes + at.peer + 36, flags);
        struct vb_image *image = load(&f);
        const struct vb_image_queue *q = &image->queue[1];
        assert_int_equal(q->managed_send, flags & 1);
        assert_int_equal(q->managed_recv, flags >> 1 & 1);
        assert_int_equal(q->wqe_checks, flags >> 2 & 1);
        assert_int_equal(q->be_replies, flags >> 3 & 1);
        vb_image_destroy(image);
        assert_same(&f);
    }
}

// Bytes behind a name's end are not part of the program.
static void files_that_say_the_same(void **state)
{
    static struct file f, g;
    struct offsets at = put_whole(&f);

    (void)state;
    memcpy(&g, &f, sizeof f);
    g.bytes[at.cq + 2] = 'x';
    g.bytes[at.label + 31] = 'x';
    struct vb_image *a = load(&f), *b = load(&g);
    size_t len;
    uint8_t *bytes = vb_image_encode(b, &len);
    assert_true(vb_image_equal(a, b));
    assert_memory_equal(bytes, f.bytes, f.len);
    free(bytes);
    vb_image_destroy(a);
    vb_image_destroy(b);
}

// ---- refusals

static const char too_early[] = "the file ends too early";

// Of every file, whichever record is its last, each beginning is too short.
static void assert_cuts(const struct file *f)
{
    char why[VB_IMAGE_TEXT];

    assert_same(f);
    for (size_t cut = 0; cut < f->len; cut++) {
        uint8_t *exact = malloc(cut + 1);
        memcpy(exact, f->bytes, cut + 1); // the byte behind the end is not looked at
        why[0] = 0;
        assert_null(vb_image_decode(exact, cut, why));
        assert_string_equal(why, cut < 8
                                     ? "this is no chain program: it does not begin with 'vbchain'"
                                     : too_early);
        assert_int_equal(vb_image_is_file(exact, cut), cut >= 8);
        free(exact);
    }
    struct file longer = *f;
    longer.len++;
    assert_refused(&longer, "the file goes on behind its end");
}

static void files_that_are_cut(void **state)
{
    static struct file f;
    struct offsets at = put_whole(&f);

    (void)state;
    assert_cuts(&f);
    put_head(&f, 0, 0, 0, 0, 0);
    assert_cuts(&f);
    put_head(&f, 1, 0, 0, 0, 0);
    put_cq(&f, "c", 1);
    assert_cuts(&f);
    put_whole(&f);
    f.len = at.own;
    memset(f.bytes + 20, 0, 12); // no regions, relocations and labels
    assert_cuts(&f);
    put_head(&f, 0, 0, 1, 0, 0);
    put_region(&f, "r", 2, 1, 5);
    assert_cuts(&f);
    put_head(&f, 0, 0, 1, 0, 0);
    put_region(&f, "r", 0, 1, 5);
    put_block(&f, 0, 0);
    assert_cuts(&f);
    put_head(&f, 0, 0, 1, 0, 0);
    put_region(&f, "r", 0, 1, 5);
    put_block(&f, 5, 1);
    assert_cuts(&f);
    put_whole(&f);
    f.len = at.label;
    vb_put_le32(f.bytes + 28, 0);
    assert_cuts(&f);
}

static void refused_numbers(void **state)
{
    static const char queue[] = "a queue of a kind that this version does not know",
                      region[] = "a region of a kind that this version does not know",
                      block[] = "more bytes of a ring or region than it has",
                      large[] = "a queue has a wrong name, one that is taken, or is too large",
                      where[] = "a relocation in memory that this version does not know",
                      version[] = "the file is of another version than 1, which this one reads";
    static struct file f;
    const struct offsets at = put_whole(&f);
    const struct {
        size_t at;
        uint32_t value;
        const char *reason;
    } cases[] = {
        {8, 0, version},
        {8, 2, version},
        {at.queue + 32, 1, "accepted"},
        {at.queue + 32, 2, queue},
        {at.queue + 36, 15, "accepted"},
        {at.queue + 36, 16, queue},
        {at.queue + 36, 0x80000000, queue},
        {at.queue + 40, 2, "queue 'W': its completion queue does not exist"},
        {at.queue + 48, 1, block},
        {at.queue + 48, 1 << 16, large},
        {at.queue + 76, 129, block},
        {at.peer + 60, 3, block},
        {at.peer + 64, 16, block},
        {at.peer + 64, 512, large},
        {at.peer + 84, 129, block},
        {at.own + 32, 3, region},
        {at.own + 36, 2, region},
        {at.own + 40, 0x1f, block},
        {at.own + 40, 0x20, "accepted"},
        {at.own + 40, 1 << 29, "a region has a wrong name, one that is taken, or is too large"},
        {at.own + 48, 0x22, block},
        {at.own + 52, 1, block},
        {at.shared + 32, 2, "accepted"},
        {at.shared + 32, 3, region},
        {at.shared + 36, 1, "accepted"},
        {at.shared + 36, 2, region},
        {at.reloc, 11, "a relocation of a kind that this version does not know"},
        {at.reloc, 10, "accepted"},
        {at.reloc + 4, 3, where},
        {at.reloc + 4, 1, "relocation 0 names a place that does not exist"},
        {at.reloc + 20, 3, where},
        {at.reloc + 20, 0, "relocation 0 names a place that does not exist"},
        {at.label + 32, 2, "label 'l' names a block that does not exist"},
        {at.label + 36, 2, "label 'l' names a block that does not exist"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_whole(&f);
        vb_put_le32(f.bytes + cases[i].at, cases[i].value);
        char why[VB_IMAGE_TEXT] = "accepted";
        struct vb_image *image = vb_image_decode(f.bytes, f.len, why);
        if (strcmp(image ? "accepted" : why, cases[i].reason) != 0)
            fail_msg("byte %zu = %u: '%s', not '%s'", cases[i].at, cases[i].value, why,
                     cases[i].reason);
        vb_image_destroy(image);
    }
}

static void refused_names(void **state)
{
    static struct file f;
    const struct offsets at = put_whole(&f);
    const struct {
        size_t at;
        char name[33];
        const char *reason;
    } cases[] = {
        {32, "a2345678901234567890123456789012", "a name in the file has no end"},
        {32, "", "accepted"},
        {at.cq, "a2345678901234567890123456789012", "a name in the file has no end"},
        {at.cq, "c", "a completion queue has a wrong name, one that is taken, or is too large"},
        {at.cq, "9", "a completion queue has a wrong name, one that is taken, or is too large"},
        {at.peer, "W", "a queue has a wrong name, one that is taken, or is too large"},
        {at.shared, "own", "a region has a wrong name, one that is taken, or is too large"},
        {at.label, "-", "a label has a wrong name, one that is taken, or is too large"},
        {at.label, "a234567890123456789012345678901", "accepted"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_whole(&f);
        memset(f.bytes + cases[i].at, 0, 32);
        memcpy(f.bytes + cases[i].at, cases[i].name, strlen(cases[i].name));
        assert_refused(&f, cases[i].reason);
    }
    for (int i = 0; i < 8; i++) {
        put_whole(&f);
        f.bytes[i] ^= 1;
        assert_refused(&f, "this is no chain program: it does not begin with 'vbchain'");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_a_file),        cmocka_unit_test(flags_of_queues),
        cmocka_unit_test(files_that_say_the_same), cmocka_unit_test(files_that_are_cut),
        cmocka_unit_test(refused_numbers),         cmocka_unit_test(refused_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
