// SPDX-License-Identifier: Apache-2.0
// Checkers when memory runs out, at each of their allocations in turn: they say so, and lose
// nothing.
#include "chain/check.h"
#include "chain/text.h"
#include "chain/watch.h"
#include "scarce_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char program[] =
    "program case\n"
    "cq d entries 64\n"
    "cq r entries 64\n"
    "queue W loop blocks 16 send_cq d\n"
    "queue P peer blocks 4 recvs 2 stride 64 send_cq d recv_cq r\n"
    "region box shared 64 writable\n"
    "region other own 64 writable\n"
    "region data own 64 writable\n"
    "code W\n"
    "    read box -> j.qpn\n"
    "    cas j.ctrl compare 0x0400000000000000 swap 0x0800000000000000 -> other:8\n"
    "j:  nop idx 0 ds 4\n"
    "    cas data+4 compare 1 swap 2 -> other:8\n" // not aligned
    "c:  cas n.ctrl compare 0 swap 2 -> data:8\n"  // never equal
    "n:  nop ds 4\n";

static struct vb_image *make(const char *more)
{
    char error[VB_IMAGE_TEXT] = "", text[2048];
    int len = snprintf(text, sizeof text, "%s%s", program, more);
    struct vb_image *image = vb_asm(text, (size_t)len, error);

    if (!image)
        fail_msg("%s", error);
    return image;
}

// Runs something until no allocation of it fails any more. Returns how many could.
static uint32_t each(void (*run)(const struct vb_image *image, struct vb_findings *out),
                     const struct vb_image *image)
{
    uint32_t n = 0;

    do {
        struct vb_findings found = {.count = 0};
        scarce_begin(++n, false);
        run(image, &found);
        scarce_end();
        bool said = found.no_memory;
        for (uint32_t i = 0; i < found.count; i++)
            said |= found.finding[i].kind == VB_CHECK_NOT_LOADED;
        if (said != scarce_failed())
            fail_msg("allocation %u: %s", n,
                     scarce_failed() ? "nothing is said" : "it did not fail");
        vb_findings_free(&found);
    } while (scarce_failed());
    return n - 1;
}

static void test_static(void **state)
{
    struct vb_image *image = make("");

    (void)state;
    assert_true(each(vb_check_static, image) > 15);
    vb_image_destroy(image);
}

static void list(const struct vb_image *image, struct vb_findings *out)
{
    struct vb_listing *l = vb_listing_make(image);

    out->no_memory = l == NULL;
    vb_listing_free(l);
}

static void test_listing(void **state)
{
    struct vb_image *image = make("receives P\n recv -> data:8\n");

    (void)state;
    assert_int_equal(each(list, image), 10);
    vb_image_destroy(image);
}

static struct vb_machine *machine;

static void watch(const struct vb_image *image, struct vb_findings *out)
{
    const struct vb_machine_opts opts = {.seed = 1};
    struct vb_watch *w = vb_watch_make(machine, image, &opts);

    out->no_memory = w == NULL;
    vb_watch_free(w);
}

static void test_watch(void **state)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = make("");

    (void)state;
    machine = vb_machine_create(image, &(struct vb_machine_opts){.seed = 1}, error);
    assert_non_null(machine);
    assert_true(each(watch, image) > 20);
    vb_machine_destroy(machine);
    vb_image_destroy(image);
}

static uint32_t depth; // entries that are fetched ahead

static void run(const struct vb_image *image, struct vb_findings *out)
{
    vb_check_dynamic(image, &(struct vb_check_opts){.depth = &depth, .depths = 1, .seeds = 1}, out);
}

static void test_dynamic(void **state)
{
    struct vb_image *image = make("");

    (void)state;
    depth = 1;
    assert_true(each(run, image) > 100);
    vb_image_destroy(image);
    // Copies of fetched entries, more than there is room for at first.
    image = make("nop\nnop\nnop\nnop\nnop\nnop\nnop\n");
    depth = 16;
    assert_true(each(run, image) > 100);
    vb_image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_static),
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_dynamic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
