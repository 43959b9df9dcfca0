// SPDX-License-Identifier: Apache-2.0
// Text and file say everything: of thousands of random programs none changes on the way there and
// back.
#include "chain/file.h"
#include "chain/text.h"
#include "chain_random.h"
#include "fresh_seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    PROGRAMS = 4000,
};

static void check_text(uint64_t seed, const struct vb_image *image)
{
    char why[VB_IMAGE_TEXT] = "";
    char *text = vb_dis(image);
    struct vb_image *again = vb_asm(text, strlen(text), why);

    if (!again)
        fail_msg("seed %lu: %s\n%s", (unsigned long)seed, why, text);
    if (!vb_image_equal(image, again))
        fail_msg("seed %lu: another program\n%s", (unsigned long)seed, text);
    char *same = vb_dis(again);
    assert_string_equal(text, same);
    free(text);
    free(same);
    vb_image_destroy(again);
}

static void check_file(const struct vb_image *image)
{
    char why[VB_IMAGE_TEXT] = "";
    size_t len;
    uint8_t *bytes = vb_image_encode(image, &len);
    struct vb_image *again = vb_image_decode(bytes, len, why);

    assert_non_null(again);
    assert_true(vb_image_equal(image, again));
    vb_image_destroy(again);
    // Cut short it is none.
    assert_null(vb_image_decode(bytes, len - 1, why));
    free(bytes);
}

static void programs_survive_text_and_file(void **state)
{
    uint32_t relocs = 0;
    uint64_t first = fresh_seed();

    (void)state;
    for (uint64_t seed = first; seed < first + PROGRAMS; seed++) {
        char why[VB_IMAGE_TEXT] = "";
        struct vb_image *image = chain_random(seed);
        if (!vb_image_check(image, why))
            fail_msg("seed %lu: %s", (unsigned long)seed, why);
        relocs += image->relocs;
        check_text(seed, image);
        check_file(image);
        vb_image_destroy(image);
    }
    assert_true(relocs > 5 * PROGRAMS);
}

// One changed byte anywhere in a ring is another program, also as text.
static void a_changed_byte_changes_the_text(void **state)
{
    uint64_t first = fresh_seed();

    (void)state;
    for (uint64_t seed = first; seed < first + 200; seed++) {
        struct vb_image *image = chain_random(seed);
        struct vb_image_queue *q = &image->queue[0];
        char *before = vb_dis(image);
        q->code[seed * 7 % (q->blocks * 64u)] ^= 0x10;
        char *after = vb_dis(image);
        assert_string_not_equal(before, after);
        free(before);
        free(after);
        vb_image_destroy(image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_survive_text_and_file),
        cmocka_unit_test(a_changed_byte_changes_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
