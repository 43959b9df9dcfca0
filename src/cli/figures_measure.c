// SPDX-License-Identifier: Apache-2.0
// RedN's experiments on this machine.
#include "cli/figures_measure.h"

#include "cli/figures_program.h"
#include "cost/model.h"
#include "verbena/offload.h"

#include <stdio.h>

enum {
    NODES = 8,
    VALUE = 64,
    FEW_NOPS = 10, // of the shorter of two programs; a ring holds no more than 80
    MANY_NOPS = 80,
    FEW_IFS = 20,
    MANY_IFS = 100,
    RATE_DEPTH = 64,
};

double vb_measure_verb(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    return vb_figures_here_verb(h, (enum vb_perf_op)row->count, error);
}

// A program of one entry.
double vb_measure_noop(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    (void)h;
    double ns =
        vb_figures_here_run(vb_figures_assemble(vb_figures_verb(row->entry, true), error), error);
    return ns < 0 ? ns : ns / 1e3;
}

// What is left of two programs, one longer than the other.
static double difference(double few, double many, uint32_t count)
{
    return few < 0 || many < 0 ? -1 : (many > few ? many - few : 0) / 1e3 / count;
}

double vb_measure_order(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    enum vb_figures_order order = (enum vb_figures_order)row->count;

    (void)h;
    double few =
        vb_figures_here_run(vb_figures_assemble(vb_figures_nops(FEW_NOPS, order), error), error);
    double many =
        vb_figures_here_run(vb_figures_assemble(vb_figures_nops(MANY_NOPS, order), error), error);
    return difference(few, many, MANY_NOPS - FEW_NOPS);
}

double vb_measure_flood(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    (void)h;
    struct vb_image *image =
        vb_figures_assemble(vb_figures_flood(row->entry, VB_FLOOD_QUEUES), error);
    double ns = vb_figures_here_run(image, error);
    return ns < 0 ? -1 : VB_FLOOD_ENTRIES / ns * 1e3;
}

double vb_measure_ifs(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    bool recycled = row->count;

    (void)h;
    double few =
        vb_figures_here_run(vb_figures_assemble(vb_figures_ifs(FEW_IFS, recycled), error), error);
    double many =
        vb_figures_here_run(vb_figures_assemble(vb_figures_ifs(MANY_IFS, recycled), error), error);
    double each = difference(few, many, MANY_IFS - FEW_IFS);
    if (each > 0)
        return 1 / each;
    if (each == 0)
        snprintf(error, VB_COST_TEXT, "the machine is too busy: more took no longer than few");
    return -1;
}

double vb_measure_get(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    struct vb_perf_way way[VB_PERF_WAYS];
    const struct vb_figures_get get = {.bytes = row->bytes, .via = VB_PERF_VIA_CHAIN};

    if (!vb_figures_here_get(h, &get, way, error))
        return -1;
    return (double)way[VB_PERF_VIA_CHAIN].latency.p50_ns / 1e3;
}

// The server's unit is one core, whatever the ports.
double vb_measure_rate(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    struct vb_perf_way way[VB_PERF_WAYS];
    const struct vb_figures_get get = {
        .bytes = row->bytes, .depth = RATE_DEPTH, .via = VB_PERF_VIA_CHAIN};

    if (!vb_figures_here_get(h, &get, way, error))
        return -1;
    const struct vb_perf_way *chain = &way[VB_PERF_VIA_CHAIN];
    return (double)chain->rate_ops * 1e6 / (double)chain->rate_ns;
}

double vb_measure_two(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    struct vb_perf_way one[VB_PERF_WAYS], two[VB_PERF_WAYS];
    struct vb_figures_get get = {.bytes = VALUE, .via = VB_PERF_VIA_CHAIN};

    if (!vb_figures_here_get(h, &get, one, error))
        return -1;
    get.collision = row->count == VB_HASH_PARALLEL ? VB_PERF_PARALLEL : VB_PERF_SEQUENTIAL;
    if (!vb_figures_here_get(h, &get, two, error))
        return -1;
    double more = (double)two[VB_PERF_VIA_CHAIN].latency.p50_ns -
                  (double)one[VB_PERF_VIA_CHAIN].latency.p50_ns;
    return more > 0 ? more / 1e3 : 0;
}

double vb_measure_chase(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    struct vb_perf_way way[VB_PERF_WAYS];
    const struct vb_figures_get get = {.bytes = VALUE, .list = NODES, .via = VB_PERF_VIA_ALL};

    (void)row;
    if (!vb_figures_here_get(h, &get, way, error))
        return -1;
    return (double)way[VB_PERF_VIA_CHASE].latency.p50_ns /
           (double)way[VB_PERF_VIA_CHAIN].latency.p50_ns;
}
