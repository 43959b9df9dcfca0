// SPDX-License-Identifier: Apache-2.0
// Programs at rest: what can be added, what the check finds, comparing and placing.
#include "base/bytes.h"
#include "chain/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

// One completion queue, a queue of four blocks and two receives, own data and the client's.
static struct vb_image *make(void)
{
    struct vb_image *image = vb_image_create("p");
    struct vb_image_queue q = {
        .name = "W", .blocks = 4, .filled = 2, .recvs = 2, .recv_stride = 32};
    struct vb_image_region own = {.name = "own", .kind = VB_REGION_OWN, .bytes = 32};
    struct vb_image_region peer = {.name = "peer", .kind = VB_REGION_PEER, .bytes = 64};

    assert_int_equal(vb_image_add_cq(image, "c", 16), 0);
    assert_int_equal(vb_image_add_queue(image, &q), 0);
    assert_int_equal(vb_image_add_region(image, &own), 0);
    assert_int_equal(vb_image_add_region(image, &peer), 1);
    return image;
}

static void add(struct vb_image *image, enum vb_reloc_kind kind, struct vb_spot at,
                struct vb_spot target)
{
    const struct vb_reloc r = {.kind = kind, .at = at, .target = target};
    assert_true(vb_image_add_reloc(image, &r) >= 0);
}

static void assert_right(const struct vb_image *image)
{
    char why[VB_IMAGE_TEXT] = "";
    if (!vb_image_check(image, why))
        fail_msg("%s", why);
}

static void assert_wrong(const struct vb_image *image, const char *expected)
{
    char why[VB_IMAGE_TEXT] = "";
    assert_false(vb_image_check(image, why));
    if (!strstr(why, expected))
        fail_msg("'%s', not '%s'", why, expected);
}

#define SEND(offset) ((struct vb_spot){VB_IN_SEND, 0, offset})
#define RECV(offset) ((struct vb_spot){VB_IN_RECV, 0, offset})
#define OWN(offset)  ((struct vb_spot){VB_IN_DATA, 0, offset})
#define PEER(offset) ((struct vb_spot){VB_IN_DATA, 1, offset})

// ---- adding

static void names_are_names_and_unique(void **state)
{
    struct vb_image *image = make();
    struct vb_image_queue q = {.name = "W", .blocks = 1};
    struct vb_image_region r = {.name = "own"};

    (void)state;
    assert_int_equal(vb_image_add_cq(image, "c", 4), -EINVAL);
    assert_int_equal(vb_image_add_cq(image, "", 4), -EINVAL);
    assert_int_equal(vb_image_add_cq(image, "1c", 4), -EINVAL);
    assert_int_equal(vb_image_add_cq(image, "c-d", 4), -EINVAL);
    assert_int_equal(vb_image_add_cq(image, "a23456789012345678901234567890x1", 4), -EINVAL);
    assert_int_equal(vb_image_add_cq(image, "a23456789012345678901234567890x", 4), 1);
    assert_int_equal(vb_image_add_queue(image, &q), -EINVAL);
    assert_int_equal(vb_image_add_region(image, &r), -EINVAL);
    assert_int_equal(vb_image_add_label(image, "W", 0, 1), 0); // another kind of thing
    assert_int_equal(vb_image_add_label(image, "W", 0, 2), -EINVAL);
    assert_int_equal(vb_image_find_cq(image, "a23456789012345678901234567890x"), 1);
    assert_int_equal(vb_image_find_region(image, "peer"), 1);
    assert_int_equal(vb_image_find_queue(image, "peer"), -ENOENT);
    assert_int_equal(vb_image_find_label(image, "W"), 0);
    vb_image_destroy(image);
}

// As many as a program can have labels: every one is found, and none that is not there.
static void many_names_are_found(void **state)
{
    struct vb_image *image = make();
    char name[VB_IMAGE_NAME];

    (void)state;
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "label_%d", i);
        assert_int_equal(vb_image_find_label(image, name), -ENOENT);
        assert_int_equal(vb_image_add_label(image, name, 0, 0), i);
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "label_%d", i);
        assert_int_equal(vb_image_find_label(image, name), i);
        assert_int_equal(vb_image_add_label(image, name, 0, 0), -EINVAL);
    }
    assert_int_equal(image->labels, 20000);
    vb_image_destroy(image);
}

static void sizes_are_limited(void **state)
{
    struct vb_image *image = make();
    struct vb_image_queue q = {.name = "Q", .blocks = 1 << 16};
    struct vb_image_region r = {.name = "r", .kind = VB_REGION_OWN, .bytes = UINT64_MAX};

    (void)state;
    assert_int_equal(vb_image_add_queue(image, &q), -EINVAL);
    q = (struct vb_image_queue){.name = "Q", .blocks = 1, .recvs = 1, .recv_stride = 512};
    assert_int_equal(vb_image_add_queue(image, &q), -EINVAL);
    assert_int_equal(vb_image_add_region(image, &r), -EINVAL);
    r.bytes = VB_IMAGE_BYTES; // with the rings it is too much
    assert_int_equal(vb_image_add_region(image, &r), -EINVAL);
    r.bytes -= 4 * 64 + 2 * 32 + 32 + 4 * 256; // what is there, and room for four receives
    assert_int_equal(vb_image_add_region(image, &r), 2);
    q = (struct vb_image_queue){.name = "Q", .recvs = 8, .recv_stride = 256};
    assert_int_equal(vb_image_add_queue(image, &q), -EINVAL);
    q.recvs = 4;
    assert_int_equal(vb_image_add_queue(image, &q), 1);
    snprintf(r.name, sizeof r.name, "all");
    r.bytes = VB_IMAGE_BYTES;
    r.kind = VB_REGION_SHARED; // takes none of ours
    assert_int_equal(vb_image_add_region(image, &r), 3);
    vb_image_destroy(image);
}

// ---- checking

static void queues_are_checked(void **state)
{
    struct vb_image *image = make();
    struct vb_image_queue *q = &image->queue[0];

    (void)state;
    assert_right(image);
    q->open = 3;
    assert_wrong(image, "queue 'W': more blocks are filled or open");
    q->managed_send = true; // may be open beyond what it holds
    assert_right(image);
    q->filled = 5;
    assert_wrong(image, "more blocks are filled");
    q->filled = 2;
    q->recv_filled = 1;
    q->recv_open = 2;
    assert_wrong(image, "more receives are filled or open");
    q->recv_open = 1;
    assert_right(image);
    q->send_cq = 1;
    assert_wrong(image, "its completion queue does not exist");
    q->send_cq = 0;
    q->recv_stride = 8;
    assert_wrong(image, "its receive ring");
    q->recv_stride = 32;
    image->cq[0].entries = 3;
    assert_wrong(image, "completion queue 'c': 3 entries");
    image->cq[0].entries = 1 << 23;
    assert_wrong(image, "a power of two up to 4194304");
    image->cq[0].entries = 16;
    assert_int_equal(vb_image_add_label(image, "l", 0, 4), 0);
    assert_wrong(image, "label 'l' names a block");
    image->label[0].block = 3;
    assert_right(image);
    image->label[0].queue = 1;
    assert_wrong(image, "label 'l' names a block");
    vb_image_destroy(image);
}

static void assert_reloc(bool right, enum vb_reloc_kind kind, struct vb_spot at,
                         struct vb_spot target)
{
    struct vb_image *image = make();

    add(image, kind, at, target);
    if (right)
        assert_right(image);
    else
        assert_wrong(image, "relocation 0 names a place that does not exist");
    vb_image_destroy(image);
}

static void relocations_lie_in_memory_of_the_program(void **state)
{
    (void)state;
    assert_reloc(true, VB_RELOC_ADDR, SEND(248), PEER(64)); // behind its end is an address, too
    assert_reloc(false, VB_RELOC_ADDR, SEND(249), PEER(0));
    assert_reloc(false, VB_RELOC_ADDR, SEND(0), PEER(65));
    assert_reloc(false, VB_RELOC_ADDR, SEND(UINT64_MAX), PEER(0));
    assert_reloc(true, VB_RELOC_ADDR, RECV(56), OWN(32));
    assert_reloc(false, VB_RELOC_ADDR, RECV(57), OWN(0));
    assert_reloc(true, VB_RELOC_KEY, OWN(28), SEND(0));
    assert_reloc(false, VB_RELOC_KEY, OWN(29), SEND(0));
    assert_reloc(false, VB_RELOC_KEY, PEER(0), SEND(0)); // a client's memory is not filled in
}

static void relocations_have_targets(void **state)
{
    const struct vb_spot no_region = {VB_IN_DATA, 2, 0}, no_queue = {VB_IN_SEND, 1, 0},
                         no_recv = {VB_IN_RECV, 1, 0}, no_kind = {(enum vb_place_kind)3, 0, 0};

    (void)state;
    assert_reloc(false, VB_RELOC_ADDR, OWN(0), no_region);
    assert_reloc(false, VB_RELOC_ADDR, OWN(0), no_queue);
    assert_reloc(false, VB_RELOC_ADDR, OWN(0), no_recv);
    assert_reloc(false, VB_RELOC_ADDR, OWN(0), no_kind);
    assert_reloc(false, VB_RELOC_ADDR, no_kind, OWN(0));
    assert_reloc(false, VB_RELOC_ADDR, no_region, OWN(0));
    assert_reloc(false, VB_RELOC_KEY, OWN(0), no_region);
    for (int kind = VB_RELOC_QPN; kind <= VB_RELOC_CQ_COUNT; kind++) {
        assert_reloc(true, (enum vb_reloc_kind)kind, OWN(0), SEND(0));
        assert_reloc(false, (enum vb_reloc_kind)kind, OWN(0), no_queue);
    }
    assert_reloc(false, (enum vb_reloc_kind)(VB_RELOC_CQ_COUNT + 1), OWN(0), SEND(0));
}

static void relocations_do_not_overlap(void **state)
{
    struct vb_image *image = make();

    (void)state;
    add(image, VB_RELOC_KEY, SEND(8), PEER(0));
    add(image, VB_RELOC_ADDR, SEND(0), PEER(0));
    add(image, VB_RELOC_ADDR, RECV(0), PEER(0));
    add(image, VB_RELOC_CQ_COUNT, OWN(0), SEND(0));
    add(image, VB_RELOC_SEND_COUNT, OWN(3), SEND(0));
    assert_right(image);
    add(image, VB_RELOC_RECV_COUNT, OWN(4), SEND(0));
    assert_wrong(image, "two relocations lie over each other: region 'own', byte 4");
    vb_image_destroy(image);
}

// ---- comparing

static void every_difference_counts(void **state)
{
    struct vb_image *a = make(), *b = make();

    (void)state;
    add(a, VB_RELOC_KEY, SEND(8), PEER(0));
    add(a, VB_RELOC_ADDR, SEND(0), PEER(4));
    add(b, VB_RELOC_ADDR, SEND(0), PEER(4));
    assert_false(vb_image_equal(a, b));
    add(b, VB_RELOC_KEY, SEND(8), PEER(1)); // a key has no offset
    assert_true(vb_image_equal(a, b));
    b->reloc[0].target.offset = 5;
    assert_false(vb_image_equal(a, b));
    b->reloc[0].target.offset = 4;
    b->queue[0].code[255] ^= 1;
    assert_false(vb_image_equal(a, b));
    b->queue[0].code[255] ^= 1;
    b->queue[0].recv[63] ^= 1;
    assert_false(vb_image_equal(a, b));
    b->queue[0].recv[63] ^= 1;
    b->region[0].init[31] ^= 1;
    assert_false(vb_image_equal(a, b));
    b->region[0].init[31] ^= 1;
    b->region[1].writable = true;
    assert_false(vb_image_equal(a, b));
    b->region[1].writable = false;
    vb_image_add_label(a, "l", 0, 1);
    vb_image_add_label(b, "l", 0, 2);
    assert_false(vb_image_equal(a, b));
    b->label[0].block = 1;
    assert_true(vb_image_equal(a, b));
    b->name[0] = 'q';
    assert_false(vb_image_equal(a, b));
    vb_image_destroy(a);
    vb_image_destroy(b);
}

// ---- placing

static void placing_fills_in(void **state)
{
    struct vb_image *image = make();
    uint8_t send[256], recv[64], own[32];
    struct vb_image_memory sends = {0x1000, 0x11, send}, recvs = {0x2000, 0x22, recv};
    struct vb_image_memory data[2] = {{0x3000, 0x33, own}, {0x4000, 0x44, NULL}};
    uint32_t qpn = 0xabcdef, cqn = 0x55;
    const struct vb_image_binding binding = {&sends, &recvs, data, &qpn, &cqn, 0x1fff0};

    (void)state;
    add(image, VB_RELOC_ADDR, SEND(0), PEER(4));
    add(image, VB_RELOC_KEY, SEND(8), PEER(0));
    add(image, VB_RELOC_QPN3, SEND(12), SEND(0));
    add(image, VB_RELOC_QPN, SEND(16), SEND(0));
    add(image, VB_RELOC_CQN, SEND(20), SEND(0));
    add(image, VB_RELOC_SEND_INDEX, SEND(24), SEND(0));
    add(image, VB_RELOC_SEND_COUNT, OWN(0), SEND(0));
    add(image, VB_RELOC_CQ_COUNT, OWN(2), SEND(0));
    add(image, VB_RELOC_ADDR, RECV(8), SEND(64));
    vb_put_be32(image->queue[0].code + 24, 0x20);
    image->region[0].init[0] = 0x20;
    image->region[0].init[5] = 9; // behind the counters nothing is carried
    assert_right(image);
    vb_image_place(image, &binding);
    assert_int_equal(vb_get_be64(send), 0x4004);
    assert_int_equal(vb_get_be32(send + 8), 0x44);
    assert_int_equal(vb_get_be24(send + 12), 0xabcdef);
    assert_int_equal(vb_get_be32(send + 16), 0xabcdef);
    assert_int_equal(vb_get_be32(send + 20), 0x55);
    assert_int_equal(vb_get_be32(send + 24), 0x20010);
    assert_int_equal(vb_get_be64(recv + 8), 0x1040);
    assert_memory_equal(own, ((const uint8_t[]){0x10, 0, 0xf0, 0xff, 0x01, 9, 0, 0}), 8);
    vb_image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_names_and_unique),
        cmocka_unit_test(many_names_are_found),
        cmocka_unit_test(sizes_are_limited),
        cmocka_unit_test(queues_are_checked),
        cmocka_unit_test(relocations_lie_in_memory_of_the_program),
        cmocka_unit_test(relocations_have_targets),
        cmocka_unit_test(relocations_do_not_overlap),
        cmocka_unit_test(every_difference_counts),
        cmocka_unit_test(placing_fills_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
