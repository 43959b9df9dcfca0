// SPDX-License-Identifier: Apache-2.0
// The checker against programs that were right, and are not any more. A judge of its own runs each
// at more depths and in more orders than the checker does: what depends on them must be flagged,
// what is as before must not.
#include "base/prng.h"
#include "chain/check.h"
#include "flow_kit.h"
#include "fresh_seed.h"
#include "mutate_kit.h"
#include "shipped_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    STEPS_MAX = 60000,
    REPLIES_MAX = 64,
};

struct program {
    struct vb_image *image;
    const struct shipped *shipped; // NULL: random statements
};

// Other values than those that the checker sees.
struct input {
    uint64_t seed; // of variables and memory, or of requests; 0: as the program has them
    uint64_t start;
    uint32_t last; // who is slow
};

// Every other one is an offload, each in its turn; the others are of random statements.
static struct program make(uint64_t seed)
{
    static struct vb_simflow w;
    struct vb_simflow_tally t = {.next_width = (uint32_t)seed};

    if (seed % 2 == 0) {
        const struct shipped *s = shipped_at((uint32_t)(seed / 2 % shipped_count()));
        return (struct program){shipped_image(s), s};
    }
    return (struct program){flow_make_program(&w, seed, &t), NULL};
}

// ---- the judge

static uint64_t stir(uint64_t h, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}

static void change_values(struct vb_machine *m, const struct vb_image *image, uint64_t seed)
{
    struct vb_prng prng = {.state = seed};
    uint32_t region = (uint32_t)vb_image_find_region(image, "W_vars");
    uint64_t all = image->region[region].bytes / VB_FLOW_VAR_BYTES;
    const uint8_t *init = image->region[region].init;
    uint8_t *vars = vb_machine_data(m, region);
    uint8_t *memory = vb_machine_data(m, (uint32_t)vb_image_find_region(image, "memory"));

    // Few different values, and such that the program has somewhere: it finds them equal now and
    // then. The first variable is nobody's.
    uint64_t one = vb_prng_below(&prng, all), two = vb_prng_below(&prng, all);
    for (uint32_t i = 1; i <= VB_SIMFLOW_VARS; i++) {
        uint64_t any = vb_prng_below(&prng, all), from = vb_prng_below(&prng, 3);
        memcpy(vars + (size_t)i * VB_FLOW_VAR_BYTES,
               init + (from == 0   ? any
                       : from == 1 ? one
                                   : two) *
                          VB_FLOW_VAR_BYTES,
               8);
    }
    for (uint32_t i = 0; i < VB_SIMFLOW_MEMORY; i++)
        memory[i] = (uint8_t)vb_prng_below(&prng, 3);
}

static void put_input(const struct program *p, struct vb_machine *m, const struct input *in)
{
    if (p->shipped)
        shipped_prepare(&(struct shipped_input){p->shipped, in->seed}, m);
    else if (in->seed)
        change_values(m, p->image, in->seed);
}

// What a run leaves behind, as a number.
static uint64_t result(const struct program *p, const struct input *in, uint32_t depth,
                       uint64_t seed)
{
    char error[VB_IMAGE_TEXT];
    struct vb_machine_reply reply;
    uint64_t h = 0xcbf29ce484222325ull;
    struct vb_machine *m = vb_machine_create(
        p->image,
        &(struct vb_machine_opts){.seed = seed,
                                  .units = in->last ? 2 : 1 + seed % 2,
                                  .fetch_depth = depth,
                                  .start = in->start,
                                  .last = in->last,
                                  .shared_bytes = p->shipped ? SHIPPED_SHARED : 0},
        error);
    if (!m)
        fail_msg("%s", error);
    put_input(p, m, in);
    if (vb_machine_run(m, STEPS_MAX) == STEPS_MAX) {
        vb_machine_destroy(m);
        return 0; // it does not end: how far it got says nothing
    }
    for (uint32_t i = 0; i < p->image->regions; i++)
        if (p->image->region[i].kind == VB_REGION_PEER || p->image->region[i].writable)
            h = stir(h, vb_machine_data(m, i), vb_machine_bytes(m, i));
    for (uint32_t q = 0; q < p->image->queues; q++) {
        uint64_t executed = vb_machine_executed(m, q) << 8 | vb_machine_fault(m, q);
        h = stir(h, &executed, sizeof executed);
        for (uint32_t n = 0; n < REPLIES_MAX && vb_machine_take(m, q, &reply); n++) {
            h = stir(h, &reply.imm, sizeof reply.imm);
            h = stir(h, &reply.len, sizeof reply.len);
        }
    }
    vb_machine_destroy(m);
    return h;
}

enum {
    INPUTS = 32,
    SHIPPED_INPUTS = 10,
    OWN_INPUTS = 5, // with the values that the checker sees, too; but in other orders
};

static uint32_t inputs_of(const struct program *p)
{
    return p->shipped ? SHIPPED_INPUTS : INPUTS;
}

static struct input input_of(const struct program *p, uint32_t i)
{
    uint32_t blocks = 1;

    for (uint32_t q = 0; q < p->image->queues; q++)
        blocks = p->image->queue[q].blocks > blocks ? p->image->queue[q].blocks : blocks;
    return (struct input){.seed = i < OWN_INPUTS ? 0 : i,
                          .start = i == OWN_INPUTS - 1 ? (1u << 24) - blocks : 0,
                          .last = i % 4 == 3 ? UINT32_MAX : i % 4};
}

static void first_results(const struct program *p, uint64_t results[INPUTS])
{
    for (uint32_t i = 0; i < inputs_of(p); i++) {
        struct input in = input_of(p, i);
        results[i] = result(p, &in, 1, 100 + i);
    }
}

// What became of a program.
struct verdict {
    bool depends; // on depth or seed
    bool differs; // from what it did before
};

// The first input at all depths and with several seeds, the others at two depths.
static bool is_stable(const struct program *p, uint32_t i, uint64_t first)
{
    static const uint32_t depth[] = {1, 2, 3, 5, 16, 256};
    const size_t depths = sizeof depth / sizeof depth[0];
    struct input in = input_of(p, i);
    uint64_t seeds = i == 0 ? 4 : 1;

    for (size_t d = i == 0 ? 0 : depths - 2; d < depths; d++)
        for (uint64_t seed = 101; seed < 101 + seeds; seed++)
            if (result(p, &in, depth[d], seed + 2 * i) != first)
                return false;
    return true;
}

static struct verdict judge(const struct program *p, const uint64_t before[INPUTS], uint32_t from,
                            uint32_t to)
{
    struct verdict v = {false, false};

    for (uint32_t i = from; i < to && !v.depends; i++) {
        struct input in = input_of(p, i);
        uint64_t first = result(p, &in, 1, 100 + i);
        v.differs |= first != before[i];
        v.depends |= !is_stable(p, i, first);
    }
    return v;
}

// ---- the checker, with fewer runs

static void check(const struct program *p, struct vb_findings *out)
{
    static const uint32_t depth[] = {1, 16};
    struct shipped_input in = {p->shipped, 0};

    vb_check_static(p->image, out);
    vb_check_dynamic(p->image,
                     &(struct vb_check_opts){.depth = depth,
                                             .depths = 2,
                                             .seeds = 6,
                                             .steps_max = STEPS_MAX,
                                             .shared_bytes = p->shipped ? SHIPPED_SHARED : 0,
                                             .prepare = p->shipped ? shipped_prepare : NULL,
                                             .ctx = &in},
                     out);
    assert_false(out->no_memory);
}

static uint64_t number_from(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : usual;
}

static void test_silence(void **state)
{
    uint64_t programs = number_from("CHECK_PROGRAMS", 740), first = fresh_seed();

    (void)state;
    for (uint64_t i = 0; i < programs; i++) {
        struct vb_findings found = {.count = 0};
        uint64_t seed = first + i;
        struct program p = make(i < programs / 20 ? 2 * seed : 2 * seed + 1);
        check(&p, &found);
        if (found.count)
            fail_msg("program %llu: [%s] %s", (unsigned long long)seed,
                     vb_check_name(found.finding[0].kind), found.finding[0].text);
        vb_findings_free(&found);
        vb_image_destroy(p.image);
    }
}

// How the checker did: against runs with the values that it saw, by what it saw happen; and against
// runs with other values, too, by everything it says.
struct score {
    uint32_t made, depends, depends_flagged, same, same_flagged, same_warned, other, other_flagged;
};

enum {
    SEEN,
    SAID,
    SCORES
};

static void count(struct score *s, struct verdict v, bool flagged, bool warned)
{
    bool same = !v.depends && !v.differs, other = !v.depends && v.differs;

    s->made++;
    s->depends += v.depends;
    s->depends_flagged += v.depends && flagged;
    s->same += same;
    s->same_flagged += same && flagged;
    s->same_warned += same && !flagged && warned;
    s->other += other;
    s->other_flagged += other && flagged;
}

static void tell(uint64_t seed, const char *what, const char *how, struct verdict v,
                 const struct vb_findings *found, bool flagged)
{
    if (!getenv("CHECK_VERBOSE") || v.depends == flagged || (!v.depends && v.differs))
        return;
    printf("%llu %s: %s, %s\n", (unsigned long long)seed, how, what,
           v.depends ? "depends and is not flagged" : "is as before");
    for (uint32_t i = 0; i < found->count; i++)
        printf("    [%s%s] %s\n", found->finding[i].warning ? "warning " : "",
               vb_check_name(found->finding[i].kind), found->finding[i].text);
}

static void one_mutant(uint64_t seed, struct score all[SCORES],
                       struct score kinds[MUTATIONS][SCORES])
{
    struct vb_prng prng = {.state = seed * 77};
    struct vb_findings found = {.count = 0};
    struct program p = make(seed);
    enum mutation kind = (enum mutation)vb_prng_below(&prng, MUTATIONS);
    uint64_t before[INPUTS] = {0};
    char what[160], error[VB_IMAGE_TEXT];

    first_results(&p, before);
    if (mutate(p.image, kind, &prng, what) && vb_image_check(p.image, error)) {
        struct verdict own = judge(&p, before, 0, OWN_INPUTS);
        struct verdict any = own.depends ? own : judge(&p, before, OWN_INPUTS, inputs_of(&p));
        any.differs |= own.differs;
        check(&p, &found);
        bool seen = false;
        for (uint32_t i = 0; i < found.count; i++)
            seen |= !found.finding[i].warning && found.finding[i].kind >= VB_CHECK_CHANGED_OPEN;
        count(&all[SEEN], own, seen, found.count > 0);
        count(&kinds[kind][SEEN], own, seen, found.count > 0);
        count(&all[SAID], any, found.errors > 0, found.count > 0);
        count(&kinds[kind][SAID], any, found.errors > 0, found.count > 0);
        tell(seed, what, "seen", own, &found, seen);
        tell(seed, what, "said", any, &found, found.errors > 0);
    }
    vb_findings_free(&found);
    vb_image_destroy(p.image);
}

static void print_score(const char *name, const struct score *s)
{
    printf("%-10s %5u: depend %4u, flagged %4u (%.1f %%); as before %4u, flagged %3u (%.1f %%), "
           "warned %3u; broken alike %4u, flagged %4u\n",
           name, s->made, s->depends, s->depends_flagged,
           s->depends ? 100.0 * s->depends_flagged / s->depends : 100.0, s->same, s->same_flagged,
           s->same ? 100.0 * s->same_flagged / s->same : 0.0, s->same_warned, s->other,
           s->other_flagged);
}

// Always the same draw: a rate of some thirty mutants that depend on order says little about the
// checker's, but a change of it is a change of the checker.
static void test_mutants(void **state)
{
    static const char *const how[] = {"by what was seen to happen, with the same values",
                                      "by everything that was said, with other values, too"};
    uint64_t mutants = number_from("CHECK_MUTANTS", 300), first = number_from("CHECK_FROM", 1);
    struct score all[SCORES] = {{0}}, kinds[MUTATIONS][SCORES] = {{{0}}};

    (void)state;
    for (uint64_t seed = first; seed < first + mutants; seed++)
        one_mutant(seed, all, kinds);
    for (int n = 0; n < SCORES; n++) {
        printf("%s:\n", how[n]);
        for (int i = 0; i < MUTATIONS; i++)
            print_score(mutation_name((enum mutation)i), &kinds[i][n]);
        print_score("all", &all[n]);
    }
    if (mutants < 300)
        return;
    assert_true(all[SEEN].depends_flagged * 100 >= all[SEEN].depends * 95);
    assert_true(all[SEEN].same_flagged * 100 <= all[SEEN].same * 2);
    assert_true(all[SAID].depends_flagged * 100 >= all[SAID].depends * 95);
    assert_true(all[SAID].same_flagged * 100 <= all[SAID].same * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_mutants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
