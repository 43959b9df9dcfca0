// SPDX-License-Identifier: Apache-2.0
// A tenant beside hostile ones: within twice of what it has beside busy ones, because of shares.
#include "sim/isolation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    DURATION_NS = 30 * 1000 * 1000,
};

static struct vb_isolation_result run(const struct vb_isolation_opts *opts)
{
    struct vb_isolation_result r;

    assert_int_equal(vb_isolation_run(opts, &r), 0);
    for (uint32_t i = 0; i < VB_COMPANIES; i++) {
        const struct vb_isolation_times *t = &r.beside[i];
        print_message("seed %u%s, beside %u: %u READs, p99 %u ns in the NIC, %u ns as a whole\n",
                      (unsigned)opts->seed, opts->no_shares ? ", no shares" : "", i,
                      (unsigned)t->count, (unsigned)t->service_p99_ns, (unsigned)t->whole_p99_ns);
        assert_true(t->count > 20);
    }
    return r;
}

static void is_within_twice(const struct vb_isolation_opts *opts)
{
    const struct vb_isolation_result r = run(opts);
    const struct vb_isolation_times *quiet = &r.beside[VB_COMPANY_QUIET],
                                    *hostile = &r.beside[VB_COMPANY_HOSTILE];

    assert_true(hostile->service_p99_ns <= 2 * quiet->service_p99_ns);
    assert_true(hostile->whole_p99_ns <= 2 * quiet->whole_p99_ns);
}

static void test_hostile_tenants_cost_a_tenant_little(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        is_within_twice(&(struct vb_isolation_opts){.seed = seed, .duration_ns = DURATION_NS});
}

static void test_nor_do_others(void **state)
{
    static const enum vb_tenant_kind kinds[] = {VB_TENANT_CHAIN, VB_TENANT_FUZZ, VB_TENANT_FLUSH,
                                                VB_TENANT_COPY};
    const uint32_t count = sizeof kinds / sizeof kinds[0];

    (void)state;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = i; j < count; j++)
            is_within_twice(&(struct vb_isolation_opts){
                .seed = 4, .duration_ns = DURATION_NS, .hostile = {kinds[i], kinds[j]}});
}

// The same tenants in one share: the measurement can tell the difference.
static void test_without_shares_they_cost_much(void **state)
{
    const struct vb_isolation_result r =
        run(&(struct vb_isolation_opts){.seed = 1, .duration_ns = DURATION_NS, .no_shares = true});

    (void)state;
    assert_true(r.beside[VB_COMPANY_HOSTILE].service_p99_ns >
                2 * r.beside[VB_COMPANY_QUIET].service_p99_ns);
}

static void test_turns_are_fair_by_seeds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        char violated[400] = "";
        uint64_t digest[2] = {0}, steps = 0;
        assert_int_equal(vb_fair_run(seed, &digest[0], &steps, violated), 0);
        assert_string_equal(violated, "");
        assert_true(steps > 100);
        assert_int_equal(vb_fair_run(seed, &digest[1], &steps, violated), 0);
        assert_int_equal(digest[0], digest[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_tenants_cost_a_tenant_little),
        cmocka_unit_test(test_nor_do_others),
        cmocka_unit_test(test_without_shares_they_cost_much),
        cmocka_unit_test(test_turns_are_fair_by_seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
