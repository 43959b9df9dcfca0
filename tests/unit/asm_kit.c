// SPDX-License-Identifier: Apache-2.0
// Reads files of cases and judges each case.
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

const char asm_head[] =
    "program p\ncq c entries 8\ncq r entries 8\n"
    "queue W loop blocks 8 send_cq c\n"
    "queue K peer managed_send managed_recv checks blocks 4 recvs 2 stride 32 send_cq c recv_cq r\n"
    "region g own 64 writable\nregion s shared 4096\n";

struct vb_image *asm_image(const char *text)
{
    char why[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_asm(text, strlen(text), why);
    if (!image)
        fail_msg("%s in\n%s", why, text);
    return image;
}

static FILE *open_beside(const char *file)
{
    const char *end = strrchr(__FILE__, '/');
    char path[512];

    snprintf(path, sizeof path, "%.*s/%s", (int)(end - __FILE__), __FILE__, file);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot open %s", path);
    return f;
}

static void add(char text[ASM_CASE_BYTES], const char *line)
{
    size_t len = strlen(text);

    assert_true(len + strlen(line) < ASM_CASE_BYTES);
    memcpy(text + len, line, strlen(line) + 1);
}

static bool is_right(const char *input, const char *expected,
                     void (*judge)(const char *input, char *answer))
{
    static char answer[ASM_CASE_BYTES];

    answer[0] = 0;
    judge(input, answer);
    if (strcmp(answer, expected) == 0)
        return true;
    printf("input:\n%sanswer:\n%sexpected:\n%s\n", input, answer, expected);
    return false;
}

void asm_cases(const char *file, void (*judge)(const char *input, char *answer))
{
    static char input[ASM_CASE_BYTES], expected[ASM_CASE_BYTES];
    char line[2048];
    uint32_t count = 0, wrong = 0;
    FILE *f = open_beside(file);

    input[0] = expected[0] = 0;
    for (bool more = true; more;) {
        more = fgets(line, sizeof line, f) != NULL;
        bool is_input = more && line[0] == '|';
        if (expected[0] && (is_input || !more)) {
            count++;
            wrong += !is_right(input, expected, judge);
            input[0] = expected[0] = 0;
        }
        if (is_input)
            add(input, line + 2);
        else if (more && line[0] != '\n' && line[0] != '#')
            add(expected, line);
    }
    fclose(f);
    assert_true(count > 0);
    if (wrong)
        fail_msg("%s: %u of %u cases are wrong", file, wrong, count);
}
