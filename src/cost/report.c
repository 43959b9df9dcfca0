// SPDX-License-Identifier: Apache-2.0
// What a program costs, for people and for other programs.
#include "cost/model.h"
#include "cost/page.h"

enum {
    ROWS_MAX = 1000, // of the table
};

static double us(uint64_t ps)
{
    return (double)ps / 1e6;
}

static double rate(uint64_t operation_ps)
{
    return operation_ps ? 1e12 / (double)operation_ps : 0;
}

// ---- text

static void put_rate(struct vb_page *p, const char *what, uint64_t operation_ps, const char *why)
{
    if (operation_ps == 0)
        vb_page_put(p, "%-10s no limit\n", what);
    else
        vb_page_put(p, "%-10s %.0f/s, one in %.3f us; limit: %s\n", what, rate(operation_ps),
                    us(operation_ps), why);
}

static void put_head(struct vb_page *p, const struct vb_cost *c)
{
    struct vb_cost_summary s;

    vb_cost_summary(c, &s);
    vb_page_put(p, "program    %s\npreset     %s\n", c->name, c->preset.name);
    vb_page_put(p,
                "latency    %.3f us: fetch %.3f, issue %.3f, PCIe %.3f, network %.3f, wait %.3f\n",
                us(s.latency_ps), us(s.parts.fetch_ps), us(s.parts.issue_ps), us(s.parts.pcie_ps),
                us(s.parts.network_ps), us(s.parts.wait_ps));
    put_rate(p, "rate", s.operation_ps, s.bottleneck);
    put_rate(p, "card", s.card_ps, s.card_bottleneck);
    vb_page_put(p, "operations %u, %u entries, %u replies, done after %.3f us\n", s.operations,
                s.entries, s.replies, us(s.end_ps));
    if (s.errors)
        vb_page_put(p, "failed     %u completions with errors: see verbena chain trace\n",
                    s.errors);
    if (s.cut)
        vb_page_put(p, "cut        by the limit of steps (--steps)\n");
    vb_page_put(p, "\n");
}

static void put_row(struct vb_page *p, const struct vb_cost_entry *t)
{
    vb_page_put(p, "%c %-34s %9.3f %7.3f %7.3f %7.3f %7.3f %7.3f %9.3f\n", t->critical ? '*' : ' ',
                t->name, us(t->at_ps), us(t->fetch_ps), us(t->wait_ps), us(t->issue_ps),
                us(t->pcie_ps), us(t->network_ps), us(t->done_ps));
}

static void put_path(struct vb_page *p, const struct vb_cost *c)
{
    uint32_t i = c->result;

    if (i == VB_COST_NOBODY)
        return;
    // The first of the path is the one without a cause.
    for (uint32_t cause; (cause = c->charge[i].cause) != VB_COST_NOBODY;)
        i = cause;
    vb_page_put(p, "\ncritical path, and for how long it is with each\n");
    if (c->charge[i].handed_ps)
        vb_page_put(p, "  %-34s %9.3f\n", "doorbell", us(c->charge[i].handed_ps));
    for (; i != VB_COST_NOBODY; i = c->charge[i].next)
        vb_page_put(p, "  %-34s %9.3f\n", c->charge[i].times.name,
                    us(vb_cost_path_end(c, i) - c->charge[i].handed_ps));
}

char *vb_cost_text(const struct vb_cost *c)
{
    struct vb_page p = {0};

    put_head(&p, c);
    vb_page_put(&p, "  %-34s %9s %7s %7s %7s %7s %7s %9s\n", "entry (* critical), times in us",
                "at", "fetch", "wait", "issue", "PCIe", "network", "done");
    for (uint32_t i = 0; i < c->charges && i < ROWS_MAX; i++)
        put_row(&p, &c->charge[i].times);
    if (c->charges > ROWS_MAX)
        vb_page_put(&p, "  and %u more; --json has them all\n", c->charges - ROWS_MAX);
    put_path(&p, c);
    return vb_page_take(&p);
}

// ---- JSON: times in microseconds

static void json_entry(struct vb_page *p, const struct vb_cost_entry *t, bool first)
{
    vb_page_put(p,
                "%s\n{\"entry\":\"%s\",\"queue\":\"%s\",\"counter\":%llu,\"message\":%s,"
                "\"critical\":%s,\"at\":%.6f,\"fetch\":%.6f,\"wait\":%.6f,\"issue\":%.6f,"
                "\"pcie\":%.6f,\"network\":%.6f,\"done\":%.6f}",
                first ? "" : ",", t->name, t->queue, (unsigned long long)t->counter,
                t->message ? "true" : "false", t->critical ? "true" : "false", us(t->at_ps),
                us(t->fetch_ps), us(t->wait_ps), us(t->issue_ps), us(t->pcie_ps), us(t->network_ps),
                us(t->done_ps));
}

static void json_limits(struct vb_page *p, const struct vb_cost *c)
{
    vb_page_put(p, "\"limits\":{");
    for (int i = 0; i < VB_LIMITS; i++)
        vb_page_put(p, "%s\"%s\":%.6f", i ? "," : "", vb_cost_limit_name((enum vb_cost_limit)i),
                    us(vb_cost_limit_ps(c, (enum vb_cost_limit)i)));
    vb_page_put(p, "},\n");
}

char *vb_cost_json(const struct vb_cost *c)
{
    struct vb_cost_summary s;
    struct vb_page p = {0};

    vb_cost_summary(c, &s);
    vb_page_put(&p, "{\"program\":\"%s\",\"preset\":\"%s\",\"latency\":%.6f,\n", c->name,
                c->preset.name, us(s.latency_ps));
    vb_page_put(&p,
                "\"parts\":{\"fetch\":%.6f,\"issue\":%.6f,\"pcie\":%.6f,\"network\":%.6f,"
                "\"wait\":%.6f},\n",
                us(s.parts.fetch_ps), us(s.parts.issue_ps), us(s.parts.pcie_ps),
                us(s.parts.network_ps), us(s.parts.wait_ps));
    vb_page_put(&p,
                "\"rate\":%.1f,\"bottleneck\":\"%s\",\"card_rate\":%.1f,\"card_bottleneck\":\"%s\","
                "\n\"operations\":%u,\"replies\":%u,\"errors\":%u,\"end\":%.6f,\"cut\":%s,\n",
                rate(s.operation_ps), s.bottleneck, rate(s.card_ps), s.card_bottleneck,
                s.operations, s.replies, s.errors, us(s.end_ps), s.cut ? "true" : "false");
    json_limits(&p, c);
    vb_page_put(&p, "\"entries\":[");
    for (uint32_t i = 0; i < c->charges; i++)
        json_entry(&p, &c->charge[i].times, i == 0);
    vb_page_put(&p, "]}\n");
    return vb_page_take(&p);
}
