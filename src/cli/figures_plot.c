// SPDX-License-Identifier: Apache-2.0
// Pictures of RedN's figures 10 and 13: on the model, and on this machine.
#include "cli/figures_plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    POINTS = VB_LIST_NODES,
    CURVES = 8,
    VALUE = 64,
};

// Rows of a table for gnuplot: what is on the axis, and a column for each curve; negative: none.
struct picture {
    const char *name;
    char title[80];
    const char *axis;
    const char *curve[CURVES];
    bool powers; // of two on both axes
    uint32_t points;
    double x[POINTS], y[POINTS][CURVES];
};

// ---- gnuplot

static bool has_gnuplot(void)
{
    return system("command -v gnuplot >/dev/null 2>&1") == 0;
}

static void write_data(FILE *out, const struct picture *p)
{
    fputs("$data << EOD\n", out);
    for (uint32_t i = 0; i < p->points; i++) {
        fprintf(out, "%g", p->x[i]);
        for (int c = 0; c < CURVES; c++)
            if (p->y[i][c] < 0)
                fputs(" ?", out);
            else
                fprintf(out, " %.4g", p->y[i][c]);
        fputs("\n", out);
    }
    fputs("EOD\n", out);
}

static int draw(const char *directory, const struct picture *p, const char *tail, char *error)
{
    FILE *out = popen("gnuplot", "w");

    if (!out)
        return snprintf(error, VB_COST_TEXT, "gnuplot does not start: %s", strerror(errno)), -1;
    fprintf(out,
            "set terminal svg size 720,440 dynamic background 'white'\nset output '%s/%s%s.svg'\n"
            "set title \"%s\"\nset xlabel \"%s\"\nset ylabel \"microseconds\"\nset grid\n"
            "set key left top\nset datafile missing '?'\n%s",
            directory, p->name, tail, p->title, p->axis,
            p->powers ? "set logscale xy 2\n" : "set yrange [0:*]\n");
    write_data(out, p);
    const char *word = "plot";
    for (int c = 0; c < CURVES; c++) {
        if (!p->curve[c] || p->y[0][c] < 0)
            continue;
        fprintf(out, "%s $data using 1:%d with linespoints linewidth 2 title \"%s\"", word, c + 2,
                p->curve[c]);
        word = ",";
    }
    fputs("\n", out);
    if (pclose(out) != 0)
        return snprintf(error, VB_COST_TEXT, "gnuplot could not draw %s/%s%s.svg", directory,
                        p->name, tail),
               -1;
    return 0;
}

// ---- what is drawn

static double us_of(const struct vb_perf_way *way)
{
    return way->latency.count ? (double)way->latency.p50_ns / 1e3 : -1;
}

static bool measure_gets(struct vb_figures_here *here, const struct vb_figures_get *get, double *y,
                         char *error)
{
    struct vb_perf_way way[VB_PERF_WAYS];
    static const enum vb_perf_via shown[] = {VB_PERF_VIA_CHAIN, VB_PERF_VIA_READ, VB_PERF_VIA_FARM,
                                             VB_PERF_VIA_RPC, VB_PERF_VIA_RPC_BLOCKING};

    if (!here)
        return true;
    if (!vb_figures_here_get(here, get, way, error))
        return false;
    for (uint32_t i = 0; i < sizeof shown / sizeof *shown; i++)
        y[2 + i] = us_of(&way[shown[i]]);
    return true;
}

static void clear(struct picture *p)
{
    for (uint32_t i = 0; i < POINTS; i++)
        for (int c = 0; c < CURVES; c++)
            p->y[i][c] = -1;
}

static bool gather_gets(struct picture *p, struct vb_figures_here *here,
                        struct vb_cost_preset *const preset[VB_READINGS], char *error)
{
    static const uint32_t sizes[] = {64, 256, 1024, 4096, 16384, 65536};

    clear(p);
    p->points = sizeof sizes / sizeof *sizes;
    for (uint32_t i = 0; i < p->points; i++) {
        const struct vb_figures_get get = {.bytes = sizes[i], .via = VB_PERF_VIA_ALL};
        p->x[i] = sizes[i];
        for (int c = 0; preset && c < VB_READINGS; c++)
            if (isnan(p->y[i][c] = vb_figures_get_us(sizes[i], preset[c], error)))
                return false;
        if (!measure_gets(here, &get, p->y[i], error))
            return false;
    }
    return true;
}

// The mean of keys in the first n nodes.
static double mean_walk(uint32_t range, bool stops, const struct vb_cost_preset *preset,
                        char *error)
{
    double sum = 0;

    for (uint32_t n = 0; n < range; n++)
        sum += vb_figures_list_us(n, stops, preset, error);
    return sum / range;
}

static bool measure_lists(struct vb_figures_here *here, uint32_t range, double *y, char *error)
{
    struct vb_perf_way way[VB_PERF_WAYS];
    struct vb_figures_get get = {.bytes = VALUE, .list = range, .via = VB_PERF_VIA_ALL};

    if (!vb_figures_here_get(here, &get, way, error))
        return false;
    y[0] = us_of(&way[VB_PERF_VIA_CHAIN]);
    y[2] = us_of(&way[VB_PERF_VIA_CHASE]);
    y[3] = us_of(&way[VB_PERF_VIA_RPC]);
    get.stops = true;
    get.via = VB_PERF_VIA_CHAIN;
    if (!vb_figures_here_get(here, &get, way, error))
        return false;
    y[1] = us_of(&way[VB_PERF_VIA_CHAIN]);
    return true;
}

static bool gather_lists(struct picture *p, struct vb_figures_here *here,
                         struct vb_cost_preset *const preset[VB_READINGS], char *error)
{
    clear(p);
    p->points = VB_LIST_NODES;
    for (uint32_t i = 0; i < VB_LIST_NODES; i++) {
        p->x[i] = i + 1;
        for (int c = 0; preset && c < 2 * VB_READINGS; c++)
            if (isnan(p->y[i][c] = mean_walk(i + 1, c % 2, preset[c / 2], error)))
                return false;
        if (here && !measure_lists(here, i + 1, p->y[i] + 2 * VB_READINGS, error))
            return false;
    }
    return true;
}

int vb_figures_plot(const char *directory, struct vb_figures_here *here,
                    struct vb_cost_preset *const preset[VB_READINGS], char *error)
{
    struct picture gets = {
        .name = "redn-figure-10",
        .title = "Hash gets by size (RedN, figure 10)",
        .axis = "bytes of a value",
        .curve = {"chain, connectx5-a", "chain, connectx5-b", "chain, this machine",
                  "one READ, this machine", "READ after READ (FaRM), this machine",
                  "polling server, this machine", "blocking server, this machine"},
        .powers = true};
    struct picture lists = {.name = "redn-figure-13",
                            .axis = "the key is in one of the first",
                            .curve = {"chain, connectx5-a", "chain with a stop, connectx5-a",
                                      "chain, connectx5-b", "chain with a stop, connectx5-b",
                                      "chain, this machine", "chain with a stop, this machine",
                                      "READ after READ, this machine",
                                      "polling server, this machine"}};
    const char *tail = preset ? "" : "-here";

    snprintf(lists.title, sizeof lists.title, "Walks of a list of %d (RedN, figure 13)",
             VB_LIST_NODES);

    if (!has_gnuplot())
        return snprintf(error, VB_COST_TEXT,
                        "--plots needs gnuplot: apt-get install gnuplot-nox, or leave it out"),
               -1;
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return snprintf(error, VB_COST_TEXT, "%s: %s", directory, strerror(errno)), -1;
    if (strpbrk(directory, "'\n") != NULL || access(directory, W_OK) != 0)
        return snprintf(error, VB_COST_TEXT, "%s: not a directory that can be written to",
                        directory),
               -1;
    if (!gather_gets(&gets, here, preset, error) || !gather_lists(&lists, here, preset, error))
        return -1;
    return draw(directory, &gets, tail, error) < 0 ? -1 : draw(directory, &lists, tail, error);
}
