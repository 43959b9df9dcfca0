// SPDX-License-Identifier: Apache-2.0
// verbena figures: experiments of papers, run again, beside the papers' numbers.
#include "cli/commands.h"
#include "cli/figures_plot.h"
#include "cli/figures_redn.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "port/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRESETS = 2,
};

static const char command[] = "verbena figures";
static const char *const preset_names[PRESETS] = {"connectx5-a", "connectx5-b"};

struct figures_fields {
    bool list, model;
    const char *plots;
    double seconds;
};

static const struct vb_option options[] = {
    {"list", NULL, VB_OPTION_FLAG, NULL, NULL, "say which experiments there are, and run none",
     offsetof(struct figures_fields, list), 0, 0},
    {"model", NULL, VB_OPTION_FLAG, NULL, NULL, "only the model: measure nothing on this machine",
     offsetof(struct figures_fields, model), 0, 0},
    {"plots", NULL, VB_OPTION_TEXT, NULL, "DIR", "draw figures 10 and 13 there, as SVG (gnuplot)",
     offsetof(struct figures_fields, plots), 0, 0},
    {"seconds", NULL, VB_OPTION_SECONDS, "0.3", "S", "of each measurement",
     offsetof(struct figures_fields, seconds), 0, 60},
};

static const struct vb_option_table table = {command, options, sizeof options / sizeof *options};

// How many values of a kind were how close to the paper's.
struct share {
    uint32_t values, within_10, within_25;
};

static const char *mark_name(enum vb_figures_mark mark)
{
    switch (mark) {
    case VB_MARK_INPUT: return "input";
    case VB_MARK_FITTED: return "fitted";
    default: return "predicted";
    }
}

static void list_rows(void)
{
    for (uint32_t i = 0; i < vb_figures_redn_rows; i++) {
        const struct vb_figures_row *row = &vb_figures_redn[i];
        printf("redn  %-10s %-48s %8g %-4s %s\n", row->where, row->what, row->paper, row->unit,
               mark_name(row->mark));
    }
    for (const char *const *m = vb_figures_redn_missing; *m; m++)
        printf("not run: %s\n", *m);
}

// In percent, and no negative zero.
static double deviation(double paper, double value)
{
    double percent = 100 * (value - paper) / paper;
    return percent > -0.5 && percent < 0.5 ? 0 : percent;
}

static void count(struct share *share, double paper, double value)
{
    double off = deviation(paper, value);

    share->values++;
    share->within_10 += off >= -10 && off <= 10;
    share->within_25 += off >= -25 && off <= 25;
}

static void print_value(double value, double paper)
{
    printf(value < 999.5 ? " %.3g" : " %.0f", value);
    if (paper > 0)
        printf(" (%+.0f %%)", deviation(paper, value));
    printf(" |");
}

static bool fail(const struct vb_figures_row *row, const char *error)
{
    vb_progress_clear(&(struct vb_progress){0});
    fprintf(stderr, "%s: %s, %s: %s\n", command, row->where, row->what, error);
    return false;
}

// `here` is NULL if nothing is to be measured.
static bool run_row(const struct vb_figures_row *row, struct vb_cost_preset *const *preset,
                    struct vb_figures_here *here, struct share *shares)
{
    char error[VB_COST_TEXT] = "";
    double value[PRESETS], measured = -1;

    for (int i = 0; i < PRESETS; i++)
        if ((value[i] = row->run(row, preset[i], error)) < 0)
            return fail(row, error);
    if (here && row->measure && (measured = row->measure(row, here, error)) < 0)
        return fail(row, error);
    printf("| %s | %s |", row->where, row->what);
    if (row->paper > 0)
        printf(*row->unit ? " %g %s |" : " %g |", row->paper, row->unit);
    else
        printf(" - |");
    for (int i = 0; i < PRESETS; i++) {
        print_value(value[i], row->paper);
        if (row->mark == VB_MARK_PREDICTED && row->paper > 0)
            count(&shares[i], row->paper, value[i]);
    }
    if (measured >= 0)
        print_value(measured, 0);
    else if (here)
        printf(" - |");
    printf(" *%s* |\n", mark_name(row->mark));
    return true;
}

static void print_list(const char *head, const char *const *line)
{
    printf("\n%s:\n\n", head);
    for (; *line; line++)
        printf("- %s\n", *line);
}

static bool run_rows(struct vb_cost_preset *const *preset, struct vb_figures_here *here,
                     double seconds, struct share *shares)
{
    struct vb_progress progress;

    vb_progress_init(&progress, here ? 2 * seconds * vb_figures_redn_rows : 0);
    printf(
        "| where | what | paper | connectx5-a | connectx5-b | %s|\n|---|---|---|---|---|%s---|\n",
        here ? "here, udp | " : "", here ? "---|" : "");
    for (uint32_t i = 0; i < vb_figures_redn_rows; i++) {
        vb_progress_phase(&progress, vb_figures_redn[i].what, 0, 1);
        vb_progress_show(&progress, vb_clock_ns(), (double)i / vb_figures_redn_rows);
        fflush(stdout);
        if (!run_row(&vb_figures_redn[i], preset, here, shares))
            return false;
    }
    vb_progress_clear(&progress);
    puts("");
    return true;
}

static int run_redn(const struct figures_fields *f)
{
    struct vb_cost_preset *preset[PRESETS] = {NULL};
    struct vb_figures_here machine, *here = f->model ? NULL : &machine;
    struct share shares[PRESETS] = {{0}};
    char error[VB_COST_TEXT] = "";
    bool ok = true;

    for (int i = 0; ok && i < PRESETS; i++)
        ok = (preset[i] = vb_cost_preset_named(preset_names[i], error)) != NULL;
    if (here && !vb_figures_here_open(here, f->seconds, error)) {
        fprintf(stderr, "%s: %s; --model measures nothing\n", command, error);
        here = NULL;
        ok = false;
    }
    ok = ok && run_rows(preset, here, f->seconds, shares);
    for (int i = 0; ok && i < PRESETS; i++)
        printf("%s: of %u predicted values %u are within 10 %%, %u within 25 %%.\n",
               preset_names[i], shares[i].values, shares[i].within_10, shares[i].within_25);
    if (ok) {
        print_list("Does not fit", vb_figures_redn_misfits);
        print_list("Not run", vb_figures_redn_missing);
    }
    if (ok && f->plots && vb_figures_plot(f->plots, here, preset, error) < 0) {
        fprintf(stderr, "%s: %s\n", command, error);
        ok = false;
    }
    if (here)
        vb_figures_here_close(here);
    for (int i = 0; i < PRESETS; i++)
        vb_cost_preset_free(preset[i]);
    return ok ? 0 : 1;
}

static void print_help(void)
{
    fputs(
        "Usage: verbena figures redn [options]\n"
        "\n"
        "Runs experiments of the RedN paper (NSDI 2022) on the cost model and, in the same run,\n"
        "on the software NIC of this machine, and prints them beside the paper's numbers, as a\n"
        "table of Markdown. Each row says what the paper's number is to the presets: *input*, a\n"
        "parameter was worked out from it; *fitted*, a parameter was chosen so that it fits;\n"
        "*predicted*, neither. Gets and verbs are measured between two processes over udp, chains\n"
        "of local entries on one core. docs/cost.md says what is modelled.\n"
        "\n",
        stdout);
    vb_options_help(&table, stdout);
}

int vb_cli_figures(int argc, char **argv)
{
    struct figures_fields fields = {0};
    struct vb_options parsed;
    int error = vb_options_parse(&table, argc, argv, &fields, &parsed);

    if (error)
        return error;
    if (parsed.help) {
        print_help();
        return 0;
    }
    bool redn = parsed.operands == 1 && strcmp(parsed.operand[0], "redn") == 0;
    if (!redn && !(fields.list && parsed.operands == 0))
        return vb_usage_error(command, "name a paper; there is redn: verbena figures redn");
    if (!fields.list)
        return run_redn(&fields);
    list_rows();
    return 0;
}
