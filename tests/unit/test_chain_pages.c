// SPDX-License-Identifier: Apache-2.0
// Chain programs, shipped and random, sound and spoiled: their text, file, trace, findings and
// errors are what they were, by digests. On a mismatch it prints the new ones.
#include "base/prng.h"
#include "chain/check.h"
#include "chain/file.h"
#include "chain/text.h"
#include "chain/trace.h"
#include "chain_random.h"
#include "flow_kit.h"
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
    RANDOM = 500,     // random programs
    FLOWS = 100,      // random programs of statements
    SPOILED = 120,    // texts, and files, of each shipped program
    STEPS_MAX = 3000, // of a run
    CHANGED = 3,      // of each kind, of each shipped program
};

static void add_bytes(struct vb_digest *d, const void *bytes, size_t len)
{
    vb_digest_add(d, vb_digest_bytes(bytes, (uint32_t)len));
}

static void add_text(struct vb_digest *d, const char *text)
{
    add_bytes(d, text, strlen(text));
}

static bool is(const char *what, struct vb_digest d, uint64_t expected)
{
    if (d.value != expected)
        print_error("%s: 0x%016" PRIx64 ", not 0x%016" PRIx64 "\n", what, d.value, expected);
    return d.value == expected;
}

// ---- text and file

static void add_image(struct vb_digest *d, const struct vb_image *image)
{
    size_t len = 0;
    char *text = vb_dis(image);
    uint8_t *file = vb_image_encode(image, &len);

    assert_non_null(text);
    assert_non_null(file);
    add_text(d, text);
    add_bytes(d, file, len);
    free(text);
    free(file);
}

static void test_texts_and_files(void **state)
{
    struct vb_digest shipped = {1}, random = {1}, flows = {1};

    (void)state;
    for (uint32_t i = 0; i < shipped_count(); i++) {
        struct vb_image *image = shipped_image(shipped_at(i));
        add_image(&shipped, image);
        vb_image_destroy(image);
    }
    for (uint64_t seed = 1; seed <= RANDOM; seed++) {
        struct vb_image *image = chain_random(seed);
        add_image(&random, image);
        vb_image_destroy(image);
    }
    for (uint64_t seed = 1; seed <= FLOWS; seed++) {
        struct vb_simflow w;
        struct vb_simflow_tally tally = {0};
        struct vb_image *image = flow_make_program(&w, seed, &tally);
        add_image(&flows, image);
        vb_image_destroy(image);
    }
    bool same = is("shipped programs", shipped, 0x51efadec00ede6db);
    same = is("random programs", random, 0x5e3b36b2bbed89ed) && same;
    same = is("programs of statements", flows, 0x66afe67b58e76e99) && same;
    assert_true(same);
}

// ---- spoiled text and files

static void add_outcome(struct vb_digest *d, struct vb_image *image, const char *error)
{
    if (image)
        add_image(d, image);
    else
        add_text(d, error);
    vb_image_destroy(image);
}

static void test_spoiled_texts(void **state)
{
    struct vb_digest d = {1};

    (void)state;
    for (uint32_t i = 0; i < shipped_count(); i++) {
        struct vb_image *image = shipped_image(shipped_at(i));
        char *text = vb_dis(image), *copy = malloc(strlen(text) + 1);
        size_t len = strlen(text);
        struct vb_prng prng = {.state = i};
        assert_non_null(copy);
        for (int n = 0; n < SPOILED; n++) {
            char error[VB_IMAGE_TEXT] = "";
            memcpy(copy, text, len);
            size_t left = spoil_text(copy, len, &prng);
            add_outcome(&d, vb_asm(copy, left, error), error);
        }
        free(copy);
        free(text);
        vb_image_destroy(image);
    }
    assert_true(is("spoiled texts", d, 0xaf8a11abb4361261));
}

static void test_spoiled_files(void **state)
{
    struct vb_digest d = {1};

    (void)state;
    for (uint32_t i = 0; i < shipped_count(); i++) {
        struct vb_image *image = shipped_image(shipped_at(i));
        size_t len = 0;
        uint8_t *file = vb_image_encode(image, &len);
        struct vb_prng prng = {.state = i};
        for (int n = 0; n < SPOILED; n++) {
            char error[VB_IMAGE_TEXT] = "";
            // Near the ends the records lie closest.
            size_t at = vb_prng_below(&prng, n % 2 ? len : len < 256 ? len : 256);
            uint8_t was = file[at];
            file[at] = (uint8_t)(was + (n % 3 ? 1 : vb_prng_next(&prng)));
            add_outcome(&d, vb_image_decode(file, len, error), error);
            file[at] = was;
            size_t cut = vb_prng_below(&prng, len);
            add_outcome(&d, vb_image_decode(file, cut, error), error);
        }
        free(file);
        vb_image_destroy(image);
    }
    assert_true(is("spoiled files", d, 0x1075798e3cb06b22));
}

// ---- traces

static void add_trace(struct vb_digest *d, const struct shipped *s, enum vb_trace_form form)
{
    static char line[VB_TRACE_BYTES];
    struct vb_machine_opts opts = {.seed = 1, .shared_bytes = SHIPPED_SHARED};
    struct shipped_input input = {.program = s};
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = shipped_image(s);
    struct vb_machine *m = vb_machine_create(image, &opts, error);
    struct vb_watch_event e;

    if (!m)
        fail_msg("%s: %s", s->name, error);
    shipped_prepare(&input, m);
    struct vb_watch *w = vb_watch_make(m, image, &opts);
    assert_non_null(w);
    for (int steps = 0; steps < STEPS_MAX && vb_watch_step(w, &e); steps++)
        add_bytes(d, line, vb_trace_print(line, form, w, image, &e));
    vb_watch_free(w);
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

static void test_traces(void **state)
{
    struct vb_digest text = {1}, json = {1};

    (void)state;
    for (uint32_t i = 0; i < shipped_count(); i++) {
        add_trace(&text, shipped_at(i), VB_TRACE_TEXT);
        add_trace(&json, shipped_at(i), VB_TRACE_JSON);
    }
    bool same = is("traces as text", text, 0xa9e82bed89a46a9b);
    same = is("traces as JSON", json, 0xcb5a02f5d773c55f) && same;
    assert_true(same);
}

// ---- findings

static void add_findings(struct vb_digest *d, struct vb_findings *f)
{
    vb_digest_add(d, f->count);
    vb_digest_add(d, f->errors);
    for (uint32_t i = 0; i < f->count; i++) {
        const struct vb_finding *x = &f->finding[i];
        vb_digest_add(d, (uint64_t)x->kind << 1 | x->warning);
        vb_digest_add(d, (uint64_t)x->where.queue << 32 | x->where.at);
        vb_digest_add(d, (uint64_t)x->other.queue << 32 | x->other.at);
        add_text(d, x->text);
    }
    vb_findings_free(f);
}

static void add_static(struct vb_digest *d, const struct vb_image *image)
{
    struct vb_findings found = {0};

    vb_check_static(image, &found);
    add_findings(d, &found);
}

static void add_dynamic(struct vb_digest *d, const struct vb_image *image,
                        struct shipped_input *input)
{
    static const uint32_t depth[] = {1, 256};
    const struct vb_check_opts opts = {.depth = depth,
                                       .depths = 2,
                                       .seeds = 1,
                                       .steps_max = STEPS_MAX,
                                       .shared_bytes = SHIPPED_SHARED,
                                       .prepare = shipped_prepare,
                                       .ctx = input};
    struct vb_findings found = {0};

    vb_check_dynamic(image, &opts, &found);
    add_findings(d, &found);
}

static void test_findings_of_changed_programs(void **state)
{
    struct vb_digest fixed = {1}, running = {1};
    char what[160];

    (void)state;
    for (uint32_t i = 0; i < shipped_count(); i++) {
        struct shipped_input input = {.program = shipped_at(i)};
        for (uint32_t n = 0; n < CHANGED * MUTATIONS; n++) {
            struct vb_image *image = shipped_image(shipped_at(i));
            struct vb_prng prng = {.state = 100 * i + n};
            if (mutate(image, n % MUTATIONS, &prng, what)) {
                add_static(&fixed, image);
                add_dynamic(&running, image, &input);
            }
            vb_image_destroy(image);
        }
    }
    bool same = is("findings in changed programs", fixed, 0x7bffa56d28046247);
    same = is("findings when they run", running, 0xefdeb6a9fc9991d4) && same;
    assert_true(same);
}

// Seed 168 has an address in the receive ring of a queue without receives.
static void test_findings_of_random_programs(void **state)
{
    struct vb_digest fixed = {1};

    (void)state;
    for (uint64_t seed = 100; seed <= 200; seed++) {
        struct vb_image *image = chain_random(seed);
        add_static(&fixed, image);
        vb_image_destroy(image);
    }
    assert_true(is("findings in random programs", fixed, 0x31e6aca2f6572b5e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_and_files),
        cmocka_unit_test(test_spoiled_texts),
        cmocka_unit_test(test_spoiled_files),
        cmocka_unit_test(test_traces),
        cmocka_unit_test(test_findings_of_changed_programs),
        cmocka_unit_test(test_findings_of_random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
