// SPDX-License-Identifier: Apache-2.0
// Small chain programs in a file, each with what is to be said of it.
#include "check_kit.h"

#include "chain/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *read_all(const char *name)
{
    char path[512], *text = NULL;
    size_t len;

    snprintf(path, sizeof path, "%s/%s", VERBENA_GOLDEN, name);
    FILE *from = fopen(path, "r"), *to = open_memstream(&text, &len);
    if (!from || !to)
        fail_msg("%s cannot be read", path);
    for (int c; (c = fgetc(from)) != EOF;)
        fputc(c, to);
    fclose(from);
    fclose(to);
    return text;
}

// Ends the text before the mark, which begins a line; returns what follows. NULL: no such mark.
static char *cut(char *text, const char *mark)
{
    char *at = strstr(text, mark);

    if (at) {
        at[1] = 0; // behind the last line
        at += strlen(mark);
    }
    return at;
}

static char *say_all(const char *prologue, const char *program, check_say *say)
{
    char error[VB_IMAGE_TEXT] = "", *source = NULL, *said = NULL;
    size_t len;
    FILE *to = open_memstream(&source, &len);

    fprintf(to, "%s%s", strncmp(program, "program ", 8) == 0 ? "" : prologue, program);
    fclose(to);
    struct vb_image *image = vb_asm(source, len, error);
    to = open_memstream(&said, &len);
    if (image)
        say(to, image, program);
    else
        fprintf(to, "%s\n", error);
    fclose(to);
    vb_image_destroy(image);
    free(source);
    return said;
}

void check_cases(const char *name, check_say *say)
{
    char *prologue = read_all(name), *next = cut(prologue, "\n== ");
    uint32_t cases = 0, wrong = 0;

    while (next) {
        char *title = next;
        next = cut(title, "\n== ");
        char *program = strchr(title, '\n') + 1;
        char *expected = cut(program, "\n--\n");
        program[-1] = 0;
        char *said = say_all(prologue, program, say);
        cases++;
        if (!expected || strcmp(said, expected) != 0) {
            wrong++;
            printf("== %s\n%s--\n%s", title, program, said);
        }
        free(said);
    }
    free(prologue);
    if (wrong || cases == 0)
        fail_msg("%u of %u cases of %s are otherwise", wrong, cases, name);
}

const char *check_word(const char *text, const char *word, uint32_t n)
{
    size_t len = strlen(word);

    for (const char *at = text; (at = strstr(at, "#! ")) != NULL;) {
        at += 3;
        if (strncmp(at, word, len) == 0 && at[len] == ' ' && n-- == 0)
            return at + len + 1;
    }
    return NULL;
}

uint32_t check_number(const char *text, const char *word, uint32_t otherwise)
{
    const char *at = check_word(text, word, 0);
    return at ? (uint32_t)strtoul(at, NULL, 0) : otherwise;
}

void check_print(FILE *to, const struct vb_image *image, const struct vb_findings *found)
{
    char name[VB_LISTING_TEXT];
    uint32_t errors = 0;

    assert_false(found->no_memory);
    struct vb_listing *l = vb_listing_make(image);
    for (uint32_t i = 0; i < found->count; i++) {
        const struct vb_finding *f = &found->finding[i];
        vb_listing_actor_name(l, f->other, name);
        fprintf(to, "%s %s [%s] %s\n", f->warning ? "warning" : "error", vb_check_name(f->kind),
                name, f->text);
        errors += !f->warning;
    }
    assert_int_equal(found->errors, errors);
    vb_listing_free(l);
}
