// SPDX-License-Identifier: Apache-2.0
// RedN's experiments on this machine.
#include "cli/figures_measure.h"

#include "cli/figures_program.h"
#include "cost/model.h"
#include "verbena/offload.h"

#include <math.h>

enum {
    FEW_NOPS = 10, // of the shorter of two programs; a ring holds no more than 80
    MANY_NOPS = 80,
    FEW_IFS = 20,
    MANY_IFS = 100,
    RATE_DEPTH = 64,
};

// ---- two processes, udp

double vb_measure_verb(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    return vb_figures_here_verb(h, (enum vb_perf_op)row->kind, row->bytes, error);
}

double vb_measure_get(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    struct vb_perf_way way[VB_PERF_WAYS];
    const struct vb_figures_get get = {.bytes = row->bytes, .via = VB_PERF_VIA_CHAIN};

    if (!vb_figures_here_get(h, &get, way, error))
        return NAN;
    return (double)way[VB_PERF_VIA_CHAIN].latency.p50_ns / 1e3;
}

// The server's unit is one core, whatever the ports.
double vb_measure_rate(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    struct vb_perf_way way[VB_PERF_WAYS];
    const struct vb_figures_get get = {
        .bytes = row->bytes, .depth = RATE_DEPTH, .via = VB_PERF_VIA_CHAIN};

    if (!vb_figures_here_get(h, &get, way, error))
        return NAN;
    const struct vb_perf_way *chain = &way[VB_PERF_VIA_CHAIN];
    return (double)chain->rate_ops * 1e6 / (double)chain->rate_ns;
}

double vb_measure_two(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    struct vb_perf_way one[VB_PERF_WAYS], two[VB_PERF_WAYS];
    struct vb_figures_get get = {.bytes = row->bytes, .via = VB_PERF_VIA_CHAIN};

    if (!vb_figures_here_get(h, &get, one, error))
        return NAN;
    get.collision = row->kind == VB_HASH_PARALLEL ? VB_PERF_PARALLEL : VB_PERF_SEQUENTIAL;
    if (!vb_figures_here_get(h, &get, two, error))
        return NAN;
    return ((double)two[VB_PERF_VIA_CHAIN].latency.p50_ns -
            (double)one[VB_PERF_VIA_CHAIN].latency.p50_ns) /
           1e3;
}

double vb_measure_chase(const struct vb_figures_row *row, struct vb_figures_here *h, char *error)
{
    struct vb_perf_way way[VB_PERF_WAYS];
    const struct vb_figures_get get = {
        .bytes = row->bytes, .list = row->nodes, .via = VB_PERF_VIA_ALL};

    if (!vb_figures_here_get(h, &get, way, error))
        return NAN;
    return (double)way[VB_PERF_VIA_CHASE].latency.p50_ns /
           (double)way[VB_PERF_VIA_CHAIN].latency.p50_ns;
}

// ---- local entries

// A program of one entry.
double vb_local_verb(const struct vb_figures_row *row, char *error)
{
    return vb_figures_here_run(vb_figures_assemble(vb_figures_verb(row->entry, true), error),
                               error) /
           1e3;
}

double vb_local_order(const struct vb_figures_row *row, char *error)
{
    enum vb_figures_order order = (enum vb_figures_order)row->kind;
    double few =
        vb_figures_here_run(vb_figures_assemble(vb_figures_nops(FEW_NOPS, order), error), error);
    double many =
        vb_figures_here_run(vb_figures_assemble(vb_figures_nops(MANY_NOPS, order), error), error);
    return (many - few) / 1e3 / (MANY_NOPS - FEW_NOPS);
}

double vb_local_flood(const struct vb_figures_row *row, char *error)
{
    struct vb_image *image =
        vb_figures_assemble(vb_figures_flood(row->entry, VB_FLOOD_QUEUES), error);
    return VB_FLOOD_ENTRIES / vb_figures_here_run(image, error) * 1e3;
}

// A rate, which only a positive difference has.
double vb_local_ifs(const struct vb_figures_row *row, char *error)
{
    bool recycled = row->kind;
    double few =
        vb_figures_here_run(vb_figures_assemble(vb_figures_ifs(FEW_IFS, recycled), error), error);
    double many =
        vb_figures_here_run(vb_figures_assemble(vb_figures_ifs(MANY_IFS, recycled), error), error);
    return many <= few ? INFINITY : (MANY_IFS - FEW_IFS) * 1e3 / (many - few);
}
