// SPDX-License-Identifier: Apache-2.0
// Isolation measured, and fair turns checked, in worlds of tenants.
#include "sim/isolation.h"

#include <errno.h>
#include <stdio.h>

enum {
    FAIR_NS = 600 * 1000,
    BOUND_NS = 1000 * 1000,
    SURGE_NS = 2000 * 1000,
    SURGE_WEIGHT = 100,
    SURGE_LITTLE = 2,   // of a part of 10 units: less than a turn takes
    BOUND_WEIGHT = 100, // at least: of less, two READs may be above the share
};

static void sum_up(const struct vb_tenant *probe, struct vb_isolation_times *t)
{
    *t = (struct vb_isolation_times){
        .count = probe->whole.count,
        .service_p50_ns = vb_hist_quantile(&probe->service, 0.5),
        .service_p99_ns = vb_hist_quantile(&probe->service, 0.99),
        .service_max_ns = probe->service.max_ns,
        .turns_max_ns = probe->turns.max_ns,
        .whole_p50_ns = vb_hist_quantile(&probe->whole, 0.5),
        .whole_p99_ns = vb_hist_quantile(&probe->whole, 0.99),
        .above = probe->above,
    };
}

static bool is_kept(const struct vb_isolation_result *r)
{
    uint64_t most = r->beside[VB_COMPANY_NONE].turns_max_ns + r->bound_ns;

    if (r->violated[0])
        return false;
    for (uint32_t i = 0; i < VB_COMPANIES; i++)
        if (r->beside[i].count == 0 || (!r->beside[i].above && r->beside[i].turns_max_ns > most))
            return false;
    return true;
}

int vb_isolation_run(const struct vb_isolation_opts *opts, struct vb_isolation_result *result)
{
    enum vb_tenant_kind company[VB_COMPANIES][VB_NEIGHBOURS] = {
        [VB_COMPANY_QUIET] = {VB_TENANT_BUSY, VB_TENANT_BUSY, VB_TENANT_BUSY},
        [VB_COMPANY_HOSTILE] = {VB_TENANT_CHAIN, VB_TENANT_FUZZ, VB_TENANT_PULL},
    };

    result->violated[0] = 0;
    result->above = false;
    for (uint32_t i = 0; i < VB_NEIGHBOURS; i++)
        if (opts->hostile[i] != VB_TENANT_IDLE)
            company[VB_COMPANY_HOSTILE][i] = opts->hostile[i];
    for (uint32_t i = 0; i < VB_COMPANIES; i++) {
        const struct vb_tenant_opts o = {
            .seed = opts->seed,
            .duration_ns = opts->duration_ns,
            .tenants = 1 + VB_NEIGHBOURS,
            .kind = {VB_TENANT_PROBE, company[i][0], company[i][1], company[i][2]},
            .weight = {opts->weight, opts->others_weight[0], opts->others_weight[1],
                       opts->others_weight[2]},
            .no_shares = opts->no_shares,
        };
        struct vb_tenantworld *w = vb_tenantworld_create(&o);
        if (!w)
            return -ENOMEM;
        vb_tenantworld_run(w);
        sum_up(&w->tenant[0], &result->beside[i]);
        result->above |= w->tenant[0].above;
        if (w->violated)
            snprintf(result->violated, sizeof result->violated, "%s", w->violation);
        vb_tenantworld_destroy(w);
    }
    result->bound_ns = vb_tenant_bound_ns(VB_NEIGHBOURS);
    result->kept = is_kept(result);
    return 0;
}

// ---- fair turns

// Weights of all magnitudes.
static uint32_t draw_weight(struct vb_prng *p)
{
    uint32_t weight = (uint32_t)vb_prng_below(p, VB_SHARE_WEIGHT_MAX);
    return 1 + (weight >> vb_prng_below(p, 6));
}

static int run_watched(const struct vb_tenant_opts *o, uint64_t *digest, uint64_t *steps,
                       char violated[400])
{
    struct vb_tenantworld *w = vb_tenantworld_create(o);

    if (!w)
        return -ENOMEM;
    vb_tenantworld_run(w);
    *digest = w->digest.value;
    *steps = w->steps;
    if (w->violated)
        snprintf(violated, 400, "%s", w->violation);
    vb_tenantworld_destroy(w);
    return 0;
}

static int run_fair(uint64_t seed, uint64_t *digest, uint64_t *steps, char violated[400])
{
    struct vb_prng p = {seed * 0xda942042e4dd58b5u + 7};
    struct vb_tenant_opts o = {.seed = seed,
                               .duration_ns = FAIR_NS,
                               .tenants = (uint32_t)vb_prng_range(&p, 2, VB_TENANTS_MAX),
                               .watches = true};

    for (uint32_t i = 0; i < o.tenants; i++) {
        o.kind[i] = (enum vb_tenant_kind)vb_prng_range(&p, VB_TENANT_PROBE, VB_TENANT_COPY);
        o.weight[i] = draw_weight(&p);
    }
    return run_watched(&o, digest, steps, violated);
}

// One that comes and goes beside one that always has work. With a small weight it leaves the line
// in debt each time; with the usual one it leaves with credit.
static int run_surge(uint64_t seed, char violated[400])
{
    struct vb_prng p = {seed * 0xda942042e4dd58b5u + 13};
    const struct vb_tenant_opts o = {
        .seed = seed,
        .duration_ns = SURGE_NS,
        .tenants = 2,
        .kind = {vb_prng_below(&p, 2) ? VB_TENANT_COPY : VB_TENANT_CHAIN, VB_TENANT_SURGE},
        .weight = {SURGE_WEIGHT + (uint32_t)vb_prng_below(&p, SURGE_WEIGHT),
                   vb_prng_below(&p, 2) ? SURGE_WEIGHT : SURGE_LITTLE},
        .watches = true};
    uint64_t digest, steps;

    return run_watched(&o, &digest, &steps, violated);
}

// Neighbours of drawn kinds and weights, and the bound. No weight is above that of the tenant that
// is measured, so its load is below its share.
static int run_bound(uint64_t seed, char violated[400])
{
    struct vb_prng p = {seed * 0x9e3779b97f4a7c15u + 11};
    struct vb_isolation_opts o = {.seed = seed, .duration_ns = BOUND_NS};
    struct vb_isolation_result r;

    o.weight = (uint32_t)vb_prng_range(&p, BOUND_WEIGHT, VB_SHARE_WEIGHT_MAX);
    for (uint32_t i = 0; i < VB_NEIGHBOURS; i++) {
        o.hostile[i] = (enum vb_tenant_kind)vb_prng_range(&p, VB_TENANT_PROBE, VB_TENANT_KINDS - 1);
        o.others_weight[i] = (uint32_t)vb_prng_range(&p, 1, o.weight);
    }
    int err = vb_isolation_run(&o, &r);
    if (!err && r.violated[0])
        snprintf(violated, 400, "%s", r.violated);
    else if (!err && r.above)
        snprintf(violated, 400, "READs of weight %u are above the share", (unsigned)o.weight);
    else if (!err && !r.kept)
        snprintf(violated, 400,
                 "a READ takes %u ns without frames before its answer, %u alone: beside tenants of "
                 "kinds %d, %d and %d, or three busy ones, it may take %u longer",
                 (unsigned)(r.beside[VB_COMPANY_HOSTILE].turns_max_ns >
                                    r.beside[VB_COMPANY_QUIET].turns_max_ns
                                ? r.beside[VB_COMPANY_HOSTILE].turns_max_ns
                                : r.beside[VB_COMPANY_QUIET].turns_max_ns),
                 (unsigned)r.beside[VB_COMPANY_NONE].turns_max_ns, o.hostile[0], o.hostile[1],
                 o.hostile[2], (unsigned)r.bound_ns);
    return err;
}

int vb_fair_run(uint64_t seed, uint64_t *digest, uint64_t *steps, char violated[400])
{
    int err = run_fair(seed, digest, steps, violated);

    if (!err && !violated[0])
        err = run_surge(seed, violated);
    return err || violated[0] ? err : run_bound(seed, violated);
}
