// SPDX-License-Identifier: Apache-2.0
// What the assembler refuses, each with its message: every one that it has, and both sides of
// limits.
#include "asm_kit.h"
#include "chain/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void refuse(const char *input, char *answer)
{
    char text[ASM_CASE_BYTES + 512], why[VB_IMAGE_TEXT] = "accepted";

    snprintf(text, sizeof text, "%s%s", asm_head, input);
    struct vb_image *image = vb_asm(text, strlen(text), why);
    snprintf(answer, ASM_CASE_BYTES, "%s\n", image ? "accepted" : why);
    vb_image_destroy(image);
}

static void refusals(void **state)
{
    (void)state;
    asm_cases("golden/asm_refusals.golden", refuse);
}

// Bytes that a file of cases cannot show, and texts that end in the middle of a token: what lies
// behind the end would make them right.
static void refusals_of_odd_bytes(void **state)
{
    static const struct {
        const char *text;
        size_t cut; // bytes of it that are left out
        const char *message;
    } cases[] = {
        {"\x01\x7f\x80~! x", 0, "line 1: '???~!' begins nothing;"},
        {"cq d 0x8", 1, "line 1: '0x' is not how many entries it has:"},
        {"program \"\\\"\"", 2, "line 1: in a text \\ is followed by \", \\ or xHH (a byte)"},
        {"program \"\\x41\"", 2, "line 1: in a text \\ is followed by \", \\ or xHH (a byte)"},
        {"program \"a\"", 1, "line 1: the text has no closing \""},
        {"cq c 4\n\n # no\ncq c 4", 0, "line 4: there is a completion queue 'c' already"},
        {"cq c 4\r\ncq\tc\t4\r", 0, "line 2: there is a completion queue 'c' already"},
        {"cq c 4x", 0, "line 1: '4x' is not how many"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char why[VB_IMAGE_TEXT] = "accepted";
        size_t len = strlen(cases[i].text) - cases[i].cut;
        assert_null(vb_asm(cases[i].text, len, why));
        if (strncmp(why, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("%s: %s\nnot: %s", cases[i].text, why, cases[i].message);
    }
}

// A text ends where its length says, also in the middle of a word or number.
static void texts_that_end_in_a_token(void **state)
{
    static const char text[] = "program abc\ncq c 88";
    char why[VB_IMAGE_TEXT];
    struct vb_image *image = vb_asm(text, 10, why);

    (void)state;
    assert_non_null(image);
    assert_string_equal(image->name, "ab");
    vb_image_destroy(image);
    image = vb_asm(text, strlen(text) - 1, why);
    assert_non_null(image);
    assert_int_equal(image->cq[0].entries, 8);
    vb_image_destroy(image);
    char code[512];
    int len = snprintf(code, sizeof code, "%scode W\nraw 0a0b0c", asm_head);
    image = vb_asm(code, (size_t)len - 2, why);
    assert_non_null(image);
    assert_memory_equal(image->queue[0].code, ((const uint8_t[]){0x0a, 0x0b, 0}), 3);
    vb_image_destroy(image);
    assert_null(vb_asm(code, (size_t)len - 1, why));
    assert_string_equal(
        why, "line 9: '0a0b0' is not bytes: give pairs of hexadecimal digits or \"a text\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(refusals_of_odd_bytes),
        cmocka_unit_test(texts_that_end_in_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
