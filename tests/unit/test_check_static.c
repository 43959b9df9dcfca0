// SPDX-License-Identifier: Apache-2.0
// What the static checker says of small programs: each flaw beside the same program without it.
#include "check_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void say(FILE *to, const struct vb_image *image, const char *text)
{
    struct vb_findings found = {.count = 0};

    (void)text;
    vb_check_static(image, &found);
    check_print(to, image, &found);
    vb_findings_free(&found);
}

static void test_entries(void **state)
{
    (void)state;
    check_cases("check_entries.cases", say);
}

static void test_memory(void **state)
{
    (void)state;
    check_cases("check_memory.cases", say);
}

static void test_order(void **state)
{
    (void)state;
    check_cases("check_order.cases", say);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
