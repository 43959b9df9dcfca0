// SPDX-License-Identifier: Apache-2.0
// Small programs entry by entry: what their relocations say, and the names of all their bytes.
#include "check_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void say_ref(FILE *to, const struct vb_listing *l, const char *what, const struct vb_ref *r)
{
    char place[VB_LISTING_TEXT];

    if (!r->known)
        return;
    vb_listing_place(l, &r->to, place);
    fprintf(to, " %s %s", what, place);
}

// Bytes from one on have the same name, up to the next line.
static void say_bytes(FILE *to, const struct vb_listing *l, const struct vb_line *line)
{
    char last[VB_LISTING_TEXT] = "", place[VB_LISTING_TEXT];

    for (uint32_t i = 0; i < line->blocks * VB_WQEBB_BYTES; i++) {
        uint64_t at = (uint64_t)line->block * VB_WQEBB_BYTES + i;
        vb_listing_place(l, &(struct vb_spot){VB_IN_SEND, line->queue, at}, place);
        size_t len = strlen(place);
        len -= place[len - 1] == '+'; // behind the field's first byte
        bool same = (strncmp(place, last, len) == 0 && !last[len]) ||
                    (strstr(place, ".byte") && strstr(last, ".byte"));
        if (!same)
            fprintf(to, "    %u %s\n", i, place);
        snprintf(last, sizeof last, "%.*s", (int)len, place);
    }
}

static void say_line(FILE *to, const struct vb_listing *l, const struct vb_line *line, bool bytes)
{
    char name[VB_LISTING_TEXT];

    vb_listing_name(l, line->queue, line->block, name);
    fprintf(to, "%s, %u blocks", name, line->blocks);
    if (line->wrong)
        fprintf(to, ", %s", line->wrong);
    if (line->object >= 0)
        fprintf(to, " object %d", line->object);
    say_ref(to, l, "raddr", &line->raddr);
    say_ref(to, l, "rkey", &line->rkey);
    for (uint32_t i = 0; i < VB_MAX_SGE; i++) {
        say_ref(to, l, "part", &line->sge[i]);
        say_ref(to, l, "key", &line->key[i]);
    }
    fprintf(to, "\n");
    if (bytes)
        say_bytes(to, l, line);
}

static void say(FILE *to, const struct vb_image *image, const char *text)
{
    struct vb_listing *l = vb_listing_make(image);
    char name[VB_LISTING_TEXT];

    assert_non_null(l);
    for (uint32_t i = 0; i < l->lines; i++)
        say_line(to, l, &l->line[i], check_number(text, "bytes", 0));
    for (uint32_t q = 0; q < image->queues; q++)
        for (uint32_t b = 0; b <= image->queue[q].blocks; b++) {
            const struct vb_line *line = vb_listing_line(l, q, b);
            if (line && line->block != b)
                fprintf(to, "%s#%u belongs to #%u\n", image->queue[q].name, b, line->block);
        }
    for (uint32_t i = 0; i < l->scatters; i++) {
        const struct vb_scatter_line *part = &l->scatter[i];
        vb_listing_recv_name(l, part->queue, part->entry, name);
        fprintf(to, "%s part %u, %u bytes", name, part->part, part->len);
        say_ref(to, l, "to", &part->to);
        fprintf(to, "\n");
    }
    vb_listing_free(l);
}

static void test_listings(void **state)
{
    (void)state;
    check_cases("check_listing.cases", say);
}

// A program without queues, and names of nobody.
static void test_nobody(void **state)
{
    struct vb_image *image = vb_image_create("empty");
    struct vb_listing *l = vb_listing_make(image);
    char name[VB_LISTING_TEXT];

    (void)state;
    assert_non_null(l);
    vb_listing_actor_name(l, vb_nobody(), name);
    assert_string_equal(name, "nobody");
    vb_listing_free(l);
    vb_listing_free(NULL);
    vb_image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listings),
        cmocka_unit_test(test_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
