// SPDX-License-Identifier: Apache-2.0
// The cost model's pages as a whole: text, JSON and picture of the same runs, under each preset,
// are what they were, by their digests. On a mismatch it prints the first page and the new table.
#include "chain/text.h"
#include "cost/model.h"
#include "list_rig.h"
#include "mutate_kit.h"
#include "shipped_kit.h"
#include "sim/digest.h"
#include "spoil_kit.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SPOILED = 200, // presets of each
};

static const char program[] = "program mix\n"
                              "cq c entries 64\n"
                              "queue W loop blocks 64 send_cq c\n"
                              "queue V loop managed_send open 0 blocks 64 send_cq c\n"
                              "code W\n"
                              "    nop signaled\n"
                              "    wait c 0\n"
                              "    send_en V 2\n"
                              "    nop\n"
                              "code V\n"
                              "    nop signaled\n"
                              "    nop signaled\n";

static struct vb_cost_preset *preset_like(const char *name, const char *more)
{
    char error[VB_COST_TEXT] = "", text[256];
    int len = snprintf(text, sizeof text, "name x\nlike %s\n%s", name, more);
    struct vb_cost_preset *p = vb_cost_preset_parse(text, (size_t)len, error);
    if (!p)
        fail_msg("%s", error);
    return p;
}

// Gets from a hash table, with clients.
static struct vb_cost *price_gets(const struct vb_cost_preset *p, const struct vb_cost_opts *o)
{
    struct vb_machine_opts opts = {.seed = 3, .shared_bytes = HASH_SHARED};
    char error[VB_COST_TEXT] = "";
    struct vb_image *image = hash_image(8);
    struct vb_machine *m = vb_machine_create(image, &opts, error);

    assert_non_null(m);
    hash_prepare(NULL, m);
    struct vb_cost *c = vb_cost_watch(m, image, &opts, p, o, error);
    if (!c)
        fail_msg("%s", error);
    vb_machine_destroy(m);
    vb_image_destroy(image);
    return c;
}

static struct vb_cost *price_mix(const struct vb_cost_preset *p, const struct vb_cost_opts *o)
{
    char error[(int)VB_IMAGE_TEXT > (int)VB_COST_TEXT ? VB_IMAGE_TEXT : VB_COST_TEXT] = "";
    struct vb_image *image = vb_asm(program, sizeof program - 1, error);
    if (!image)
        fail_msg("%s", error);
    struct vb_cost *c = vb_cost_run(image, p, o, error);
    if (!c)
        fail_msg("%s", error);
    vb_image_destroy(image);
    return c;
}

struct page_set {
    bool gets;
    const char *preset, *more;
    struct vb_cost_opts opts;
    uint64_t digest[3]; // of text, JSON and picture
};

static const struct page_set pages[] = {
    {true, "connectx3", "", {0}, {0x3e8fb450be6218cd, 0x38993a8cc8520a9d, 0xff5a6a522f144586}},
    {true, "connectx5-a", "", {0}, {0xd8f24952ea186e85, 0xc645633290135005, 0xc07ca9bb2db8ede9}},
    {true, "connectx5-b", "", {0}, {0xe069952b85ef3c2a, 0x4c1f3f80cf150278, 0xf54a24e260d979eb}},
    {true,
     "connectx6",
     "",
     {.connections = 5000},
     {0xff262faaf98abffb, 0x6c0096440337376f, 0x1d4952ee7413ced7}},
    {true,
     "connectx5-dual-port",
     "",
     {.registered_bytes = 64 << 20},
     {0xba0c3adf9e58dcc5, 0x2ff79162f691217c, 0x4dcac5519b8640ea}},
    {true, "nic-memory", "", {0}, {0x4881f01dc689c4ea, 0x84ce1f6cc38ffddb, 0x370745ac1849b219}},
    {true,
     "connectx5-b",
     "pus 1\n",
     {.connections = 400},
     {0xd2a4bfdbb016fa2a, 0x56cead76ccb3bd3a, 0x24ad7ddb48cb749a}},
    {false,
     "connectx3",
     "",
     {.seed = 1},
     {0x9d6dec4afbebb0c8, 0xd37d7ddfc873b85c, 0x013338f88f70e6ee}},
    {false,
     "connectx5-b",
     "",
     {.seed = 1},
     {0x5edbbfd464bc2534, 0xd282d78037088135, 0x97f9a1c1ad94147a}},
    {false,
     "nic-memory",
     "",
     {.seed = 1},
     {0x005eabfc6a374fdb, 0x922c3b290d554dac, 0x093bf11a64f2ac9a}},
};

static void test_pages(void **state)
{
    static const char *const kind[] = {"text", "JSON", "picture"};
    uint32_t wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        const struct page_set *set = &pages[i];
        struct vb_cost_preset *p = preset_like(set->preset, set->more);
        struct vb_cost *c = set->gets ? price_gets(p, &set->opts) : price_mix(p, &set->opts);
        char *page[3] = {vb_cost_text(c), vb_cost_json(c), vb_cost_svg(c)};
        uint64_t now[3];
        for (int k = 0; k < 3; k++) {
            now[k] = vb_digest_bytes((const uint8_t *)page[k], (uint32_t)strlen(page[k]));
            if (now[k] != set->digest[k] && wrong++ == 0)
                print_error("%s of %s:\n%s\n", kind[k], set->preset, page[k]);
            free(page[k]);
        }
        if (now[0] != set->digest[0] || now[1] != set->digest[1] || now[2] != set->digest[2])
            print_error("%zu %s: {0x%016" PRIx64 ", 0x%016" PRIx64 ", 0x%016" PRIx64 "}\n", i,
                        set->preset, now[0], now[1], now[2]);
        vb_cost_free(c);
        vb_cost_preset_free(p);
    }
    assert_int_equal(wrong, 0);
}

static void add_page(struct vb_digest *d, char *page)
{
    vb_digest_add(d, vb_digest_bytes((const uint8_t *)page, (uint32_t)strlen(page)));
    free(page);
}

static bool is(const char *what, struct vb_digest d, uint64_t expected)
{
    if (d.value != expected)
        print_error("%s: 0x%016" PRIx64 ", not 0x%016" PRIx64 "\n", what, d.value, expected);
    return d.value == expected;
}

static void add_shipped(struct vb_digest d[3], const struct shipped *s, const char *preset)
{
    struct vb_machine_opts opts = {.seed = 1, .shared_bytes = SHIPPED_SHARED};
    const struct vb_cost_opts cost = {.operations = 3, .managed_client = true};
    struct shipped_input input = {.program = s};
    struct vb_cost_preset *p = preset_like(preset, "");
    struct vb_image *image = shipped_image(s);
    char error[VB_COST_TEXT] = "";
    struct vb_machine *m = vb_machine_create(image, &opts, error);

    assert_non_null(m);
    shipped_prepare(&input, m);
    struct vb_cost *c = vb_cost_watch(m, image, &opts, p, &cost, error);
    if (!c)
        fail_msg("%s: %s", s->name, error);
    add_page(&d[0], vb_cost_text(c));
    add_page(&d[1], vb_cost_json(c));
    add_page(&d[2], vb_cost_svg(c));
    vb_cost_free(c);
    vb_machine_destroy(m);
    vb_image_destroy(image);
    vb_cost_preset_free(p);
}

static void test_pages_of_shipped_programs(void **state)
{
    struct vb_digest d[3] = {{1}, {1}, {1}};

    (void)state;
    for (uint32_t i = 0; i < shipped_count(); i++)
        for (const struct vb_preset_file *f = vb_preset_files; f->name; f++)
            add_shipped(d, shipped_at(i), f->name);
    bool same = is("texts", d[0], 0x77f431086f1c40ce);
    same = is("JSON", d[1], 0x5fc6bdedda34700a) && same;
    same = is("pictures", d[2], 0x67ba7e705816ca62) && same;
    assert_true(same);
}

// Presets with a mistake: the error, or what a program costs then.
static void test_spoiled_presets(void **state)
{
    struct vb_digest d = {1};

    (void)state;
    for (const struct vb_preset_file *f = vb_preset_files; f->name; f++) {
        struct vb_prng prng = {.state = 7};
        size_t len = strlen(f->text);
        char *copy = malloc(len);
        assert_non_null(copy);
        for (int i = 0; i < SPOILED; i++) {
            char error[VB_COST_TEXT] = "";
            memcpy(copy, f->text, len);
            size_t left = spoil_text(copy, len, &prng);
            struct vb_cost_preset *p = vb_cost_preset_parse(copy, left, error);
            struct vb_cost *c = p ? price_mix(p, &(struct vb_cost_opts){0}) : NULL;
            if (c)
                add_page(&d, vb_cost_json(c));
            else
                vb_digest_add(&d, vb_digest_bytes((uint8_t *)error, (uint32_t)strlen(error)));
            vb_cost_free(c);
            vb_cost_preset_free(p);
        }
        free(copy);
    }
    assert_true(is("spoiled presets", d, 0xae93bdc517bdee26));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_pages_of_shipped_programs),
        cmocka_unit_test(test_spoiled_presets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
