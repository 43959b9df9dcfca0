// SPDX-License-Identifier: Apache-2.0
// The watch over turns: while a share has work all the time, no other gets more than its weight's
// part beside it, but for two rounds, what turns can cost, one that is under way when the watch
// begins among them, and what the share itself has had in advance then; nor by coming and going.
#include "sim/tenant_world.h"

#include <stdarg.h>
#include <stdio.h>

enum {
    ROUND = 512, // units of the usual weight
};

__attribute__((format(printf, 2, 3))) static void violate(struct vb_tenantworld *w,
                                                          const char *format, ...)
{
    va_list args;

    w->violated = true;
    va_start(args, format);
    vsnprintf(w->violation, sizeof w->violation, format, args);
    va_end(args);
}

// In units of a share of the usual weight.
static double by_weight(const struct vb_tenant *t, uint64_t units)
{
    return (double)units * VB_SHARE_WEIGHT / t->weight;
}

static void compare(struct vb_tenantworld *w, uint32_t i, uint32_t j)
{
    const struct vb_tenant *a = &w->tenant[i], *b = &w->tenant[j];
    double got = by_weight(a, a->units - a->own), other = by_weight(b, b->units - a->base[j]);
    double most = 2 * ROUND + by_weight(a, a->ahead) + by_weight(a, a->bill_max) +
                  2 * by_weight(b, b->bill_max);

    if (other - got > most)
        violate(w,
                "tenant %u of weight %u got %.0f units by weight while it had work, tenant %u of "
                "weight %u %.0f: more than %.0f apart",
                i, a->weight, got, j, b->weight, other, most);
}

static void begin(struct vb_tenantworld *w, uint32_t i, uint64_t ahead)
{
    struct vb_tenant *t = &w->tenant[i];

    t->ahead = ahead;
    t->own = t->units;
    for (uint32_t j = 0; j < w->opts.tenants; j++)
        t->base[j] = w->tenant[j].units;
}

void vb_tenant_watch(struct vb_tenantworld *w)
{
    struct vb_share_facts facts;

    for (uint32_t i = 0; i < w->opts.tenants; i++) {
        struct vb_tenant *t = &w->tenant[i];
        vb_pu_share(vb_dev_pu(w->dev), t->share, &facts);
        uint64_t bill = facts.units - t->units;
        t->units = facts.units;
        t->bill_max = bill > t->bill_max ? bill : t->bill_max;
        if (!facts.waits || !t->waits)
            begin(w, i, facts.ahead);
        t->waits = facts.waits;
    }
    for (uint32_t i = 0; i < w->opts.tenants; i++)
        for (uint32_t j = 0; j < w->opts.tenants; j++)
            if (i != j && w->tenant[i].waits && !w->violated)
                compare(w, i, j);
}
