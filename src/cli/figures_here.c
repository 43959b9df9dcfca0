// SPDX-License-Identifier: Apache-2.0
// Experiments on this machine.
#include "cli/figures_here.h"

#include "chain/machine.h"
#include "cli/perf_client.h"
#include "cost/model.h"
#include "port/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUNS = 31,
    READS = 16,
};

bool vb_figures_here_open(struct vb_figures_here *h, double seconds, char *error)
{
    *h = (struct vb_figures_here){.length = {.seconds = seconds}};
    if (vb_perf_session_local(&h->session, &(struct vb_perf_session_opts){.port = "udp"}) < 0) {
        snprintf(error, VB_COST_TEXT, "%.*s", VB_COST_TEXT - 1, h->session.why);
        return false;
    }
    h->mtu = vb_perf_session_mtu(&h->session);
    return true;
}

void vb_figures_here_close(struct vb_figures_here *h)
{
    vb_perf_session_close(&h->session);
}

static bool measure(struct vb_figures_here *h, struct vb_perf_plan plan, struct vb_perf_row *row,
                    char *error)
{
    plan.port = h->session.port;
    plan.mtu = h->mtu;
    plan.reads = READS;
    plan.qps = plan.active = 1;
    plan.raw_size = plan.size < h->mtu ? plan.size : h->mtu;
    plan.seed = 1;
    if (vb_perf_measure(&h->session, &plan, &h->length, &h->silent, row) == 0)
        return true;
    snprintf(error, VB_COST_TEXT, "%.*s", VB_COST_TEXT - 1, h->session.why);
    return false;
}

double vb_figures_here_verb(struct vb_figures_here *h, enum vb_perf_op op, uint32_t bytes,
                            char *error)
{
    struct vb_perf_row row;

    if (!measure(h, (struct vb_perf_plan){.op = op, .size = bytes, .depth = 1}, &row, error))
        return NAN;
    return (double)row.latency[VB_PERF_NIC].p50_ns / 1e3;
}

bool vb_figures_here_get(struct vb_figures_here *h, const struct vb_figures_get *get,
                         struct vb_perf_way way[VB_PERF_WAYS], char *error)
{
    struct vb_perf_row row;
    const struct vb_perf_plan plan = {.op = VB_PERF_GET,
                                      .size = get->bytes,
                                      .depth = get->depth ? get->depth : 1,
                                      .list = get->list,
                                      .breaks = get->stops,
                                      .collision = get->collision,
                                      .via = get->via};

    if (!measure(h, plan, &row, error))
        return false;
    memcpy(way, row.way, sizeof row.way);
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double vb_figures_here_run(struct vb_image *image, char *error)
{
    double ns[RUNS];
    int runs = 0;

    for (; image && runs < RUNS; runs++) {
        struct vb_machine *m = vb_machine_create(image, &(struct vb_machine_opts){0}, error);
        if (!m)
            break;
        uint64_t begin = vb_clock_ns();
        vb_machine_poll(m);
        ns[runs] = (double)(vb_clock_ns() - begin);
        vb_machine_destroy(m);
    }
    if (image)
        vb_image_destroy(image);
    if (runs < RUNS)
        return NAN;
    qsort(ns, RUNS, sizeof *ns, by_value);
    return ns[RUNS / 2];
}
