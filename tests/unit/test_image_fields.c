// SPDX-License-Identifier: Apache-2.0
// Images field by field: the limits of what can be added, what the check says of each wrong value,
// and that a change of any single field makes another program. And the table of names.
#include "base/bytes.h"
#include "chain/image.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// At least two of everything, and a relocation of each kind.
static struct vb_image *make(void)
{
    struct vb_image *image = vb_image_create("program");
    struct vb_image_queue q = {.name = "W", .blocks = 4, .filled = 2, .open = 1, .recv_cq = 1};
    struct vb_image_queue k = {.name = "K",
                               .kind = VB_QUEUE_PEER,
                               .blocks = 1,
                               .send_cq = 1,
                               .recvs = 2,
                               .recv_stride = 32,
                               .recv_filled = 2,
                               .recv_open = 1};
    struct vb_image_region own = {.name = "own", .kind = VB_REGION_OWN, .bytes = 64};
    struct vb_image_region peer = {.name = "peer", .kind = VB_REGION_PEER, .bytes = 16};
    struct vb_image_region last = {.name = "last", .kind = VB_REGION_OWN, .bytes = 8};

    assert_int_equal(vb_image_add_cq(image, "c", 16), 0);
    assert_int_equal(vb_image_add_cq(image, "d", 1 << 22), 1);
    assert_int_equal(vb_image_add_cq(image, "e", 1), 2);
    assert_int_equal(vb_image_add_queue(image, &q), 0);
    assert_int_equal(vb_image_add_queue(image, &k), 1);
    assert_int_equal(vb_image_add_region(image, &own), 0);
    assert_int_equal(vb_image_add_region(image, &peer), 1);
    assert_int_equal(vb_image_add_region(image, &last), 2);
    for (int kind = VB_RELOC_ADDR; kind <= VB_RELOC_CQ_COUNT; kind++) {
        const struct vb_reloc r = {
            .kind = (enum vb_reloc_kind)kind,
            .at = {kind % 2 ? VB_IN_SEND : VB_IN_DATA, 0, 5ull * (unsigned)kind},
            .target = {VB_IN_DATA, 1, 8}};
        assert_int_equal(vb_image_add_reloc(image, &r), kind);
    }
    image->reloc[2].at.offset = 11;
    assert_int_equal(vb_image_add_label(image, "l", 0, 3), 0);
    assert_int_equal(vb_image_add_label(image, "m", 1, 0), 1);
    return image;
}

static void assert_check(const struct vb_image *image, const char *expected)
{
    char why[VB_IMAGE_TEXT] = "right";

    assert_int_equal(vb_image_check(image, why), strcmp(expected, "right") == 0);
    assert_string_equal(why, expected);
}

// ---- adding

static bool is_a_name(const char *name)
{
    struct vb_image *image = vb_image_create("");
    int i = vb_image_add_cq(image, name, 1);

    assert_true(i == 0 || i == -EINVAL);
    assert_int_equal(image->cqs, i == 0);
    assert_int_equal(vb_image_find_cq(image, name), i == 0 ? 0 : -ENOENT);
    vb_image_destroy(image);
    return i == 0;
}

static void names(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        bool digit = c >= '0' && c <= '9';
        assert_int_equal(is_a_name((const char[]){(char)c, 0}), letter);
        assert_int_equal(is_a_name((const char[]){'a', (char)c, 0}), letter || digit);
        assert_int_equal(is_a_name((const char[]){'a', (char)c, 'b', 0}), letter || digit);
    }
    assert_false(is_a_name(""));
    assert_true(is_a_name("a234567890123456789012345678901"));
    assert_false(is_a_name("a2345678901234567890123456789012"));
}

// Each kind of thing has its own names; as many as one likes, and an index for each.
static void many_of_each(void **state)
{
    struct vb_image *image = vb_image_create("a234567890123456789012345678901x");
    enum {
        MANY = 70
    };

    (void)state;
    assert_string_equal(image->name, "a234567890123456789012345678901");
    for (int i = 0; i < MANY; i++) {
        struct vb_image_queue q = {.blocks = 1};
        struct vb_image_region r = {.kind = VB_REGION_OWN, .bytes = (uint64_t)i};
        const struct vb_reloc reloc = {.kind = VB_RELOC_KEY, .at = {VB_IN_SEND, (uint32_t)i, 0}};
        char name[VB_IMAGE_NAME];
        snprintf(name, sizeof name, "n%d", i);
        snprintf(q.name, sizeof q.name, "n%d", i);
        snprintf(r.name, sizeof r.name, "n%d", i);
        assert_int_equal(vb_image_add_cq(image, name, (uint32_t)i), i);
        assert_int_equal(vb_image_add_queue(image, &q), i);
        assert_int_equal(vb_image_add_region(image, &r), i);
        assert_int_equal(vb_image_add_label(image, name, (uint32_t)i, 7), i);
        assert_int_equal(vb_image_add_reloc(image, &reloc), i);
        assert_int_equal(vb_image_add_cq(image, name, 1), -EINVAL);
        assert_int_equal(vb_image_add_queue(image, &q), -EINVAL);
        assert_int_equal(vb_image_add_region(image, &r), -EINVAL);
        assert_int_equal(vb_image_add_label(image, name, 0, 0), -EINVAL);
    }
    for (int i = 0; i < MANY; i++) {
        char name[VB_IMAGE_NAME];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(vb_image_find_cq(image, name), i);
        assert_int_equal(vb_image_find_queue(image, name), i);
        assert_int_equal(vb_image_find_region(image, name), i);
        assert_int_equal(vb_image_find_label(image, name), i);
        assert_string_equal(image->cq[i].name, name);
        assert_int_equal(image->cq[i].entries, i);
        assert_int_equal(image->region[i].bytes, i);
        assert_int_equal(image->label[i].queue, i);
        assert_int_equal(image->label[i].block, 7);
        assert_int_equal(image->reloc[i].at.index, i);
    }
    vb_image_destroy(image);
    vb_image_destroy(NULL);
}

static int add_queue(uint32_t blocks, uint32_t recvs, uint32_t stride)
{
    struct vb_image *image = vb_image_create("");
    struct vb_image_queue q = {
        .name = "Q", .blocks = blocks, .recvs = recvs, .recv_stride = stride};
    int i = vb_image_add_queue(image, &q);

    vb_image_destroy(image);
    return i;
}

static void sizes(void **state)
{
    struct vb_image_region r = {.name = "r", .kind = VB_REGION_OWN};
    struct vb_image *image = make(); // whose rings and data have 256 + 64 + 64 + 64 + 8 bytes

    (void)state;
    assert_int_equal(add_queue(1 << 15, 1 << 15, 256), 0);
    assert_int_equal(add_queue((1 << 15) + 1, 1, 16), -EINVAL);
    assert_int_equal(add_queue(1, (1 << 15) + 1, 16), -EINVAL);
    assert_int_equal(add_queue(1, 1, 257), -EINVAL);
    assert_int_equal(add_queue(0, 0, 0), 0);
    r.bytes = VB_IMAGE_BYTES - 455;
    assert_int_equal(vb_image_add_region(image, &r), -EINVAL);
    r.bytes = VB_IMAGE_BYTES - 456;
    assert_int_equal(vb_image_add_region(image, &r), 3);
    struct vb_image_queue q = {.name = "Q", .recvs = 1, .recv_stride = 1};
    assert_int_equal(vb_image_add_queue(image, &q), -EINVAL);
    q = (struct vb_image_queue){.name = "Q", .blocks = 1};
    assert_int_equal(vb_image_add_queue(image, &q), -EINVAL);
    q.blocks = 0;
    assert_int_equal(vb_image_add_queue(image, &q), 2);
    r = (struct vb_image_region){.name = "s", .kind = VB_REGION_OWN};
    assert_int_equal(vb_image_add_region(image, &r), 4);
    r = (struct vb_image_region){.name = "t", .kind = VB_REGION_SHARED, .bytes = UINT64_MAX};
    assert_int_equal(vb_image_add_region(image, &r), 5);
    assert_null(image->region[5].init);
    vb_image_destroy(image);
    image = vb_image_create("");
    r = (struct vb_image_region){.name = "r", .kind = VB_REGION_OWN, .bytes = VB_IMAGE_BYTES};
    assert_int_equal(vb_image_add_region(image, &r), 0);
    vb_image_destroy(image);
    image = vb_image_create("");
    r.bytes = VB_IMAGE_BYTES + 1;
    assert_int_equal(vb_image_add_region(image, &r), -EINVAL);
    vb_image_destroy(image);
}

// What is added is a copy, or zeros.
static void copies(void **state)
{
    uint8_t code[64], recv[32], init[7];
    struct vb_image_queue q = {
        .name = "Q", .blocks = 1, .code = code, .recvs = 2, .recv_stride = 16, .recv = recv};
    struct vb_image_region r = {.name = "r", .bytes = sizeof init, .init = init};
    struct vb_image *image = vb_image_create("");

    (void)state;
    memset(code, 1, sizeof code);
    memset(recv, 2, sizeof recv);
    memset(init, 3, sizeof init);
    vb_image_add_queue(image, &q);
    vb_image_add_region(image, &r);
    assert_memory_equal(image->queue[0].code, code, sizeof code);
    assert_memory_equal(image->queue[0].recv, recv, sizeof recv);
    assert_memory_equal(image->region[0].init, init, sizeof init);
    assert_ptr_not_equal(image->queue[0].code, code);
    vb_image_destroy(image);
    image = make();
    for (int i = 0; i < 64; i++)
        assert_int_equal(
            image->queue[0].code[i] | image->queue[1].recv[i] | image->region[0].init[i], 0);
    vb_image_destroy(image);
}

// ---- checking

static void checks_of_values(void **state)
{
    static const char *const open = "queue 'W': more blocks are filled or open than its ring has",
                             *const blocks =
                                 "queue 'W': its send ring must have a power of two of blocks",
                             *const ring =
                                 "queue 'K': its receive ring must have a power of two of "
                                 "entries and bytes each",
                             *const recvs =
                                 "queue 'K': more receives are filled or open than its ring has";
    struct vb_image *image = make();
    struct vb_image_queue *w = &image->queue[0], *k = &image->queue[1];
    const struct {
        uint32_t *field, value;
        const char *message;
    } cases[] = {
        {&image->cq[0].entries, 1, "right"},
        {&image->cq[0].entries, 0,
         "completion queue 'c': 0 entries are not a power of two up to 4194304"},
        {&image->cq[1].entries, 1 << 23,
         "completion queue 'd': 8388608 entries are not a power of two up to 4194304"},
        {&image->cq[1].entries, 3,
         "completion queue 'd': 3 entries are not a power of two up to 4194304"},
        {&w->blocks, 0, blocks},
        {&w->blocks, 3, blocks},
        {&w->filled, 4, "right"},
        {&w->filled, 5, open},
        {&w->filled, 1, "right"},
        {&w->filled, 0, open},
        {&w->open, 2, "right"},
        {&w->open, 3, open},
        {&k->recvs, 3, ring},
        {&k->recv_stride, 24, ring},
        {&k->recv_stride, 8, ring},
        {&k->recv_stride, 16, "right"},
        {&k->recv_filled, 3, recvs},
        {&k->recv_filled, 1, "right"},
        {&k->recv_filled, 0, recvs},
        {&k->recv_open, 2, "right"},
        {&k->recv_open, 3, recvs},
        {&w->send_cq, 1, "right"},
        {&w->send_cq, 3, "queue 'W': its completion queue does not exist"},
        {&k->recv_cq, 1, "right"},
        {&k->recv_cq, 3, "queue 'K': its completion queue does not exist"},
        {&image->label[0].queue, 1, "label 'l' names a block that does not exist"},
        {&image->label[1].queue, 2, "label 'm' names a block that does not exist"},
        {&image->label[0].block, 4, "label 'l' names a block that does not exist"},
        {&image->label[1].block, 1, "label 'm' names a block that does not exist"},
        {&w->recv_stride, 5, "right"}, // of no receives
    };

    (void)state;
    assert_check(image, "right");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t was = *cases[i].field;
        *cases[i].field = cases[i].value;
        assert_check(image, cases[i].message);
        *cases[i].field = was;
    }
    w->managed_send = true;
    w->open = 100;
    assert_check(image, "right");
    vb_image_destroy(image);
}

static const char *check_reloc(enum vb_reloc_kind kind, struct vb_spot at, struct vb_spot target)
{
    static char why[VB_IMAGE_TEXT];
    struct vb_image *image = make();

    image->relocs = 0;
    vb_image_add_reloc(image, &(struct vb_reloc){.kind = kind, .at = at, .target = target});
    snprintf(why, sizeof why, "right");
    vb_image_check(image, why);
    vb_image_destroy(image);
    return why;
}

static void checks_of_relocations(void **state)
{
    static const char *const wrong = "relocation 0 names a place that does not exist";
    static const struct vb_spot ends[] = {// the memory that there is, and its size
                                          {VB_IN_SEND, 0, 256}, {VB_IN_SEND, 1, 64},
                                          {VB_IN_RECV, 0, 0},   {VB_IN_RECV, 1, 64},
                                          {VB_IN_DATA, 0, 64},  {VB_IN_DATA, 1, 16}};
    static const struct vb_spot nowhere[] = {
        {VB_IN_SEND, 2, 0}, {VB_IN_RECV, 2, 0}, {VB_IN_DATA, 3, 0}, {(enum vb_place_kind)3, 0, 0}};
    const struct vb_spot own = {VB_IN_DATA, 0, 0};

    (void)state;
    for (int k = VB_RELOC_ADDR; k <= VB_RELOC_CQ_COUNT; k++) {
        enum vb_reloc_kind kind = (enum vb_reloc_kind)k;
        uint32_t len = vb_reloc_bytes(kind);
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
            struct vb_spot at = ends[i];
            bool fits = at.offset >= len && !(at.kind == VB_IN_DATA && at.index == 1);
            at.offset -= len; // below zero it is very large
            assert_string_equal(check_reloc(kind, at, own), fits ? "right" : wrong);
            at.offset++;
            assert_string_equal(check_reloc(kind, at, own), wrong);
        }
        for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
            bool place = kind == VB_RELOC_ADDR || kind == VB_RELOC_KEY;
            bool cq =
                kind == VB_RELOC_CQN || kind == VB_RELOC_CQ_INDEX || kind == VB_RELOC_CQ_COUNT;
            bool right = !place && nowhere[i].index < (cq ? 3 : 2);
            assert_string_equal(check_reloc(kind, nowhere[i], own), wrong);
            assert_string_equal(check_reloc(kind, own, nowhere[i]), right ? "right" : wrong);
        }
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct vb_spot at = ends[i];
        assert_string_equal(check_reloc(VB_RELOC_ADDR, own, at), "right"); // behind the last byte
        assert_string_equal(check_reloc(VB_RELOC_KEY, own, at), at.offset ? "right" : wrong);
        at.offset++;
        assert_string_equal(check_reloc(VB_RELOC_ADDR, own, at), wrong);
    }
    const struct vb_spot third = {.index = 3};
    assert_string_equal(check_reloc(VB_RELOC_CQN, own, third), wrong);
    assert_string_equal(check_reloc((enum vb_reloc_kind)(VB_RELOC_CQ_COUNT + 1), own, own), wrong);
}

static void checks_of_overlaps(void **state)
{
    struct vb_image *image = make();
    const struct {
        struct vb_spot first, second;
        const char *message;
    } cases[] = {
        {{VB_IN_SEND, 0, 8}, {VB_IN_SEND, 0, 4}, "right"},
        {{VB_IN_SEND, 0, 8},
         {VB_IN_SEND, 0, 5},
         "two relocations lie over each other: queue 'W', byte 8"},
        {{VB_IN_SEND, 0, 8},
         {VB_IN_SEND, 0, 8},
         "two relocations lie over each other: queue 'W', byte 8"},
        {{VB_IN_RECV, 1, 3},
         {VB_IN_RECV, 1, 6},
         "two relocations lie over each other: receives of queue 'K', byte 6"},
        {{VB_IN_DATA, 0, 3},
         {VB_IN_DATA, 0, 6},
         "two relocations lie over each other: region 'own', byte 6"},
        {{VB_IN_RECV, 1, 3}, {VB_IN_RECV, 1, 7}, "right"},
        {{VB_IN_SEND, 1, 3}, {VB_IN_RECV, 1, 3}, "right"},
        {{VB_IN_SEND, 0, 3}, {VB_IN_SEND, 1, 3}, "right"},
        {{VB_IN_SEND, 0, 3}, {VB_IN_DATA, 0, 3}, "right"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        image->relocs = 2;
        image->reloc[0] = (struct vb_reloc){.kind = VB_RELOC_QPN, .at = cases[i].first};
        image->reloc[1] = (struct vb_reloc){.kind = VB_RELOC_QPN, .at = cases[i].second};
        assert_check(image, cases[i].message);
    }
    vb_image_destroy(image);
}

// ---- order

static void order_of_places(void **state)
{
    static const struct vb_spot in_order[] = {
        {VB_IN_SEND, 0, 0}, {VB_IN_SEND, 0, 1}, {VB_IN_SEND, 0, UINT64_MAX}, {VB_IN_SEND, 1, 0},
        {VB_IN_SEND, 2, 0}, {VB_IN_RECV, 0, 3}, {VB_IN_RECV, 0, 4},          {VB_IN_RECV, 1, 0},
        {VB_IN_DATA, 0, 0}, {VB_IN_DATA, 7, 0}, {VB_IN_DATA, 7, 1ull << 40}};
    enum {
        COUNT = sizeof in_order / sizeof in_order[0]
    };
    struct vb_image *image = vb_image_create("");

    (void)state;
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++)
            assert_int_equal(vb_spot_compare(&in_order[i], &in_order[j]), i < j ? -1 : i > j);
    for (int i = 0; i < COUNT; i++) // 7 is no divisor of the count, so all of them come
        vb_image_add_reloc(image, &(struct vb_reloc){.at = in_order[i * 7 % COUNT]});
    struct vb_reloc *sorted = vb_image_sorted(image);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(vb_spot_compare(&sorted[i].at, &in_order[i]), 0);
    free(sorted);
    vb_image_destroy(image);
}

// ---- comparing

static void one_change_each(struct vb_image *a, struct vb_image *b, void *field, size_t bytes)
{
    uint8_t *at = field;

    assert_true(vb_image_equal(a, b) && vb_image_equal(b, a));
    for (size_t i = 0; i < bytes; i++) {
        at[i] ^= 1;
        assert_false(vb_image_equal(a, b));
        assert_false(vb_image_equal(b, a));
        at[i] ^= 1;
    }
}

#define CHANGE(field) one_change_each(a, b, &(field), sizeof(field))

static void changes_of_queues(void **state)
{
    struct vb_image *a = make(), *b = make();

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct vb_image_queue *q = &b->queue[i];
        one_change_each(a, b, q->name, 1);
        CHANGE(q->kind);
        CHANGE(q->managed_send);
        CHANGE(q->managed_recv);
        CHANGE(q->wqe_checks);
        CHANGE(q->be_replies);
        CHANGE(q->send_cq);
        CHANGE(q->recv_cq);
        CHANGE(q->filled);
        CHANGE(q->open);
        CHANGE(q->recv_filled);
        CHANGE(q->recv_open);
        one_change_each(a, b, &q->blocks, 1);
        one_change_each(a, b, &q->recvs, 1);
        one_change_each(a, b, &q->recv_stride, 1);
        one_change_each(a, b, q->code, (size_t)q->blocks * VB_WQEBB_BYTES);
        one_change_each(a, b, q->recv, (size_t)q->recvs * q->recv_stride);
    }
    vb_image_destroy(a);
    vb_image_destroy(b);
}

static void changes_of_the_rest(void **state)
{
    struct vb_image *a = make(), *b = make();

    (void)state;
    one_change_each(a, b, b->name, 7);
    for (uint32_t i = 0; i < 2; i++) {
        one_change_each(a, b, b->cq[i].name, 1);
        CHANGE(b->cq[i].entries);
        one_change_each(a, b, b->region[i].name, 3);
        one_change_each(a, b, &b->region[i].bytes, 1);
        CHANGE(b->region[i].writable);
        one_change_each(a, b, b->label[i].name, 1);
        CHANGE(b->label[i].queue);
        CHANGE(b->label[i].block);
    }
    one_change_each(a, b, b->region[0].init, 64);
    b->region[1].kind = VB_REGION_SHARED;
    assert_false(vb_image_equal(a, b));
    b->region[1].kind = VB_REGION_PEER;
    uint32_t *const counts[] = {&b->cqs, &b->queues, &b->regions, &b->relocs, &b->labels};
    for (int i = 0; i < 5; i++) {
        --*counts[i];
        assert_false(vb_image_equal(a, b));
        assert_false(vb_image_equal(b, a));
        ++*counts[i];
    }
    assert_true(vb_image_equal(a, b));
    vb_image_destroy(a);
    vb_image_destroy(b);
}

static void changes_of_relocations(void **state)
{
    struct vb_image *a = make(), *b = make();

    (void)state;
    for (uint32_t i = 0; i < a->relocs; i++) {
        struct vb_reloc *r = &b->reloc[i], was = *r;
        bool place = r->kind == VB_RELOC_ADDR || r->kind == VB_RELOC_KEY;
        CHANGE(r->at.index);
        CHANGE(r->at.offset);
        CHANGE(r->target.index);
        r->kind = (enum vb_reloc_kind)((r->kind + 1) % (VB_RELOC_CQ_COUNT + 1));
        assert_false(vb_image_equal(a, b));
        *r = was;
        r->at.kind = VB_IN_RECV;
        assert_false(vb_image_equal(a, b));
        *r = was;
        r->target.kind = VB_IN_SEND; // numbers have no place
        assert_int_equal(vb_image_equal(a, b), !place);
        *r = was;
        r->target.offset++; // nor has a key an offset
        assert_int_equal(vb_image_equal(a, b), r->kind != VB_RELOC_ADDR);
        *r = was;
    }
    struct vb_reloc first = b->reloc[0]; // their order does not matter
    b->reloc[0] = b->reloc[5];
    b->reloc[5] = first;
    assert_true(vb_image_equal(a, b));
    vb_image_destroy(a);
    vb_image_destroy(b);
}

// ---- placing

static void places(void **state)
{
    struct vb_image *image = make();
    uint8_t send[2][256], recv[2][64], own[64], last[8];
    struct vb_image_memory sends[] = {{0x1000, 0x11, send[0]}, {0x2000, 0x22, send[1]}};
    struct vb_image_memory recvs[] = {{0x3000, 0x33, NULL}, {0x4000, 0x44, recv[1]}};
    struct vb_image_memory data[] = {
        {0x5000, 0x55, own}, {0x6000, 0x66, NULL}, {0x7000, 0x77, last}};
    uint32_t qpn[] = {0x010203, 0x040506}, cqn[] = {0x070809, 0x0a0b0c};
    const struct vb_image_binding binding = {sends, recvs, data, qpn, cqn, 0x12345678fff0};
    const struct {
        enum vb_reloc_kind kind;
        struct vb_spot target;
        uint8_t below[8], expected[8];
    } cases[] = {
        {VB_RELOC_ADDR, {VB_IN_SEND, 1, 3}, {9}, {0, 0, 0, 0, 0, 0, 0x20, 3}},
        {VB_RELOC_ADDR, {VB_IN_RECV, 1, 5}, {9}, {0, 0, 0, 0, 0, 0, 0x40, 5}},
        {VB_RELOC_ADDR, {VB_IN_DATA, 1, 7}, {9}, {0, 0, 0, 0, 0, 0, 0x60, 7}},
        {VB_RELOC_KEY, {VB_IN_SEND, 0, 9}, {9, 9, 9, 9, 1}, {0, 0, 0, 0x11, 1}},
        {VB_RELOC_KEY, {VB_IN_RECV, 1, 9}, {9, 9, 9, 9, 1}, {0, 0, 0, 0x44, 1}},
        {VB_RELOC_KEY, {VB_IN_DATA, 0, 9}, {9, 9, 9, 9, 1}, {0, 0, 0, 0x55, 1}},
        {VB_RELOC_QPN, {.index = 1}, {9, 9, 9, 9, 1}, {0, 4, 5, 6, 1}},
        {VB_RELOC_QPN3, {.index = 1}, {9, 9, 9, 8, 1}, {4, 5, 6, 8, 1}},
        {VB_RELOC_CQN, {.index = 1}, {9, 9, 9, 9, 1}, {0, 0xa, 0xb, 0xc, 1}},
        {VB_RELOC_SEND_INDEX, {.index = 1}, {1, 2, 3, 0x20, 1}, {0x57, 0x7b, 3, 0x10, 1}},
        {VB_RELOC_RECV_INDEX, {.index = 1}, {0, 0, 0, 0, 1}, {0x56, 0x78, 0xff, 0xf0, 1}},
        {VB_RELOC_CQ_INDEX, {.index = 1}, {0, 0, 0, 0xf, 1}, {0x56, 0x78, 0xff, 0xff, 1}},
        {VB_RELOC_SEND_COUNT, {.index = 1}, {0x20, 0, 7}, {0x10, 0, 7}},
        {VB_RELOC_RECV_COUNT, {.index = 1}, {0x0f, 1, 7}, {0xff, 0, 7}},
        {VB_RELOC_CQ_COUNT, {.index = 1}, {0x20, 0xff, 1, 7}, {0x10, 0xff, 0x7a, 7}},
    };
    memset(image->region[2].init, 0x5b, sizeof last);
    static const struct vb_spot at[] = {
        {VB_IN_SEND, 1, 56}, {VB_IN_RECV, 1, 9}, {VB_IN_DATA, 0, 11}};
    uint8_t *const from[] = {image->queue[1].code, image->queue[1].recv, image->region[0].init};
    uint8_t *const to[] = {send[1], recv[1], own};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int m = 0; m < 3; m++) {
            image->relocs = 1;
            image->reloc[0] =
                (struct vb_reloc){.kind = cases[i].kind, .at = at[m], .target = cases[i].target};
            for (int k = 0; k < 3; k++)
                memset(from[k], 0x5a, 64);
            memcpy(from[m] + at[m].offset, cases[i].below, 8);
            memset(send, 0xee, sizeof send);
            memset(recv, 0xee, sizeof recv);
            memset(own, 0xee, sizeof own);
            vb_image_place(image, &binding);
            assert_memory_equal(to[m] + at[m].offset, cases[i].expected, 8);
            for (int k = 0; k < 3; k++)
                for (uint64_t b = 0; b < 64; b++)
                    if (k != m || b < at[m].offset || b >= at[m].offset + 8)
                        assert_int_equal(to[k][b], 0x5a);
            assert_int_equal(send[1][64], 0xee);
            assert_int_equal(send[0][0] | send[0][255], 0);
            assert_int_equal(recv[0][0], 0xee); // of no receives
            assert_int_equal(last[0] & last[7], 0x5b);
        }
    vb_image_destroy(image);
}

// ---- the table of names

static void hashes_of_names(void **state)
{
    (void)state;
    // Test vectors of FNV-1a, 32 bits.
    assert_int_equal(vb_names_hash(""), 0x811c9dc5);
    assert_int_equal(vb_names_hash("a"), 0xe40c292c);
    assert_int_equal(vb_names_hash("foobar"), 0xbf9cf968);
}

static void room_of_names(void **state)
{
    static char names[1000][8];
    const struct vb_named things = {names, sizeof names[0]};
    struct vb_names n = {0};

    (void)state;
    assert_int_equal(vb_names_find(&n, things, "x"), -1);
    for (uint32_t i = 0, room = 16; i < 1000; i++) {
        snprintf(names[i], sizeof names[i], "%u", i);
        if (2 * i >= room)
            room *= 2;
        assert_true(vb_names_reserve(&n, things));
        assert_int_equal(n.room, room);
        assert_int_equal(n.used, i);
        assert_int_equal(vb_names_find(&n, things, names[i]), -1);
        vb_names_add(&n, things, i);
        assert_int_equal(vb_names_find(&n, things, names[i]), i);
        // A name lies in the first free slot from that of its hash on.
        uint32_t at = vb_names_hash(names[i]), from = at;
        while (n.slot[at & (room - 1)] != i + 1) {
            assert_int_not_equal(n.slot[at & (room - 1)], 0);
            assert_true(at++ - from < room);
        }
    }
    free(n.slot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(many_of_each),
        cmocka_unit_test(sizes),
        cmocka_unit_test(copies),
        cmocka_unit_test(checks_of_values),
        cmocka_unit_test(checks_of_relocations),
        cmocka_unit_test(checks_of_overlaps),
        cmocka_unit_test(order_of_places),
        cmocka_unit_test(changes_of_queues),
        cmocka_unit_test(changes_of_the_rest),
        cmocka_unit_test(changes_of_relocations),
        cmocka_unit_test(places),
        cmocka_unit_test(hashes_of_names),
        cmocka_unit_test(room_of_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
