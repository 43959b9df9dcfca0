// SPDX-License-Identifier: Apache-2.0
// The checker has nothing to say about what is shipped: no error, and no warning either. Each
// program runs to its end meanwhile, so there was something to see.
#include "chain/check.h"
#include "shipped_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

// The listings of docs/chains.md themselves.
int hello_main(int argc, char **argv);
int loop_main(int argc, char **argv);
#define main  hello_main
#define build build_hello
#include "../../examples/chain_hello.c"
#undef main
#undef build
#define main  loop_main
#define build build_loop
#include "../../examples/chain_loop.c"
#undef main
#undef build

static void expect_silence(const char *name, const struct vb_image *image,
                           const struct vb_check_opts *opts)
{
    struct vb_findings found = {.count = 0};

    vb_check_static(image, &found);
    vb_check_dynamic(image, opts, &found);
    assert_false(found.no_memory);
    for (uint32_t i = 0; i < found.count; i++)
        print_message("%s: [%s] %s\n", name, vb_check_name(found.finding[i].kind),
                      found.finding[i].text);
    if (found.count)
        fail_msg("%s: %u findings", name, found.count);
    vb_findings_free(&found);
}

static void test_offloads(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < shipped_count(); i++) {
        struct shipped_input in = {shipped_at(i), 0};
        struct vb_image *image = shipped_image(in.program);
        expect_silence(in.program->name, image,
                       &(struct vb_check_opts){
                           .shared_bytes = SHIPPED_SHARED, .prepare = shipped_prepare, .ctx = &in});
        vb_image_destroy(image);
    }
}

static void test_listings(void **state)
{
    char error[200] = "";
    uint64_t sum_at;
    struct vb_image *hello = build_hello(error), *loop = build_loop(&sum_at, error);

    (void)state;
    if (!hello || !loop)
        fail_msg("%s", error);
    expect_silence("hello", hello, &(struct vb_check_opts){0});
    expect_silence("loop", loop, &(struct vb_check_opts){0});
    vb_image_destroy(hello);
    vb_image_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offloads),
        cmocka_unit_test(test_listings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
