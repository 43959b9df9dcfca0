// SPDX-License-Identifier: Apache-2.0
// Programs of statements against a reference that interprets the same statements in C: random ones,
// under every depth of fetching ahead, with one unit and with two.
#include "base/bytes.h"
#include "chain/machine.h"
#include "flow_kit.h"
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
    STEPS_MAX = 3000000,
};

static void compare(const struct vb_simflow *w, struct vb_machine *m, const struct vb_image *image,
                    const char *how)
{
    const uint8_t *vars = vb_machine_data(m, (uint32_t)vb_image_find_region(image, "W_vars"));
    const uint8_t *memory = vb_machine_data(m, (uint32_t)vb_image_find_region(image, "memory"));

    if (vb_machine_fault(m, 0))
        fail_msg("%s: the queue failed with syndrome %u", how, vb_machine_fault(m, 0));
    for (uint32_t i = 0; i < VB_SIMFLOW_VARS; i++) {
        uint64_t got = vb_get_be64(vars + (w->v[i].id - 1) * VB_FLOW_VAR_BYTES);
        uint64_t want = w->var[w->v[i].id - 1];
        if (got != want)
            fail_msg("%s: variable %u is %llx, not %llx", how, i, (unsigned long long)got,
                     (unsigned long long)want);
    }
    if (memcmp(memory, w->memory, VB_SIMFLOW_MEMORY) != 0)
        fail_msg("%s: memory differs", how);
}

static void check_program(uint64_t seed, struct vb_simflow_tally *tally)
{
    static const uint32_t depth[] = {1, 2, 3, 5, 8, 16, 256};
    static struct vb_simflow w;
    char error[VB_IMAGE_TEXT], how[80];
    struct vb_image *image = flow_make_program(&w, seed, tally);

    for (uint32_t i = 0; i < 3; i++) {
        const struct vb_machine_opts opts = {
            .seed = seed + i,
            .units = 1 + i % 2,
            .fetch_depth = depth[(seed + 3 * i) % (sizeof depth / sizeof depth[0])],
            .start = i == 2 ? (1ull << 24) - (1ull << 15) : 0};
        snprintf(how, sizeof how, "seed %llu, depth %u, units %u", (unsigned long long)seed,
                 opts.fetch_depth, opts.units);
        struct vb_machine *m = vb_machine_create(image, &opts, error);
        if (!m)
            fail_msg("%s: %s", how, error);
        if (vb_machine_run(m, STEPS_MAX) == STEPS_MAX)
            fail_msg("%s: it does not end", how);
        compare(&w, m, image, how);
        vb_machine_destroy(m);
    }
    vb_image_destroy(image);
}

static uint32_t widths(const struct vb_simflow_tally *t)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i <= 64; i++)
        n += t->width[i] > 0;
    return n;
}

static void test_random_programs(void **state)
{
    const char *text = getenv("FLOW_PROGRAMS");
    uint64_t programs = text ? strtoull(text, NULL, 0) : 2000;
    uint64_t first = fresh_seed();
    struct vb_simflow_tally t = {0};

    (void)state;
    for (uint64_t seed = first; seed < first + programs; seed++)
        check_program(seed, &t);
    printf("%llu programs: == %u != %u < %u <= %u > %u >= %u; %u widths; else %u; bodies at depth "
           "3 and 4: %u %u; loops %u, breaks %u, loads %u, stores %u\n",
           (unsigned long long)programs, t.compare[0], t.compare[1], t.compare[2], t.compare[3],
           t.compare[4], t.compare[5], widths(&t), t.others, t.depth[3], t.depth[4], t.loops,
           t.breaks, t.loads, t.stores);
    if (programs < 2000)
        return;
    for (uint32_t i = 0; i < 6; i++)
        assert_true(t.compare[i] > 0);
    assert_true(t.depth[3] > 0 && t.depth[4] > 0 && t.loops > 0 && t.breaks > 0);
    assert_true(t.width[48] > 0 && t.width[64] > 0 && widths(&t) == 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
