// SPDX-License-Identifier: Apache-2.0
// verbena figures: experiments of papers, run again, beside the papers' numbers.
#include "cli/commands.h"
#include "cli/figures_plot.h"
#include "cli/figures_redn.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "port/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CLOSE_PERCENT = 10, // a value that is farther off does not fit
    NEAR_PERCENT = 25,
};

static const char command[] = "verbena figures";

struct figures_fields {
    bool list, model, here;
    const char *plots;
    double seconds;
};

static const struct vb_option options[] = {
    {"list", NULL, VB_OPTION_FLAG, NULL, NULL, "say which experiments there are, and run none",
     offsetof(struct figures_fields, list), 0, 0},
    {"model", NULL, VB_OPTION_FLAG, NULL, NULL, "only the model: measure nothing on this machine",
     offsetof(struct figures_fields, model), 0, 0},
    {"here", NULL, VB_OPTION_FLAG, NULL, NULL, "only this machine: no model",
     offsetof(struct figures_fields, here), 0, 0},
    {"plots", NULL, VB_OPTION_TEXT, NULL, "DIR", "draw figures 10 and 13 there, as SVG (gnuplot)",
     offsetof(struct figures_fields, plots), 0, 0},
    {"seconds", NULL, VB_OPTION_SECONDS, "0.3", "S", "of each measurement",
     offsetof(struct figures_fields, seconds), 0, 60},
};

static const struct vb_option_table table = {command, options, sizeof options / sizeof *options};

// What a run has: presets, a machine to measure on (NULL: only the model), and how many predicted
// values of each reading were how close to the paper's.
struct figures {
    bool model;
    struct vb_cost_preset *preset[VB_CARDS][VB_READINGS];
    struct vb_figures_here *here;
    struct {
        uint32_t values, within_close, within_near;
    } share[VB_READINGS];
};

static const char *reading_name(int reading)
{
    return vb_figures_preset[VB_CARD_CONNECTX5][reading];
}

static const char *mark_name(enum vb_figures_mark mark)
{
    switch (mark) {
    case VB_MARK_INPUT: return "input";
    case VB_MARK_FITTED: return "fitted";
    default: return "predicted";
    }
}

// What a row is called, with the sizes it was run with.
static const char *label(const struct vb_figures_row *row, char text[96])
{
    char list[24] = "", bytes[24] = "";

    if (row->nodes)
        snprintf(list, sizeof list, "lists of %u: ", row->nodes);
    if (row->bytes >= 1024)
        snprintf(bytes, sizeof bytes, ", %u KB", row->bytes / 1024);
    else if (row->bytes)
        snprintf(bytes, sizeof bytes, ", %u B", row->bytes);
    snprintf(text, 96, "%s%s%s", list, row->what, bytes);
    return text;
}

static void list_rows(void)
{
    char text[96];

    for (uint32_t i = 0; i < vb_figures_redn_rows; i++) {
        const struct vb_figures_row *row = &vb_figures_redn[i];
        printf("redn  %-10s %-52s %8g %-4s %s\n", row->where, label(row, text), row->paper,
               row->unit, mark_name(row->mark));
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

static bool fits(const struct vb_figures_row *row, double value, int percent)
{
    return row->paper == 0 || fabs(deviation(row->paper, value)) <= percent;
}

static bool fail(const struct vb_figures_row *row, const char *error)
{
    char text[96];

    vb_progress_clear(&(struct vb_progress){0});
    fprintf(stderr, "%s: %s, %s: %s\n", command, row->where, label(row, text), error);
    return false;
}

static void print_number(double value)
{
    printf(fabs(value) < 999.5 ? " %.3g" : " %.0f", value);
}

// A cell of the model. False: it failed.
static bool run_model(struct figures *f, const struct vb_figures_row *row, int reading,
                      double *value)
{
    char error[VB_COST_TEXT] = "";
    const struct vb_cost_preset *preset = f->preset[row->card][reading];

    *value = preset ? row->run(row, preset, error) : INFINITY;
    if (isnan(*value))
        return fail(row, error);
    if (preset && row->mark == VB_MARK_PREDICTED && row->paper > 0) {
        f->share[reading].values++;
        f->share[reading].within_close += fits(row, *value, CLOSE_PERCENT);
        f->share[reading].within_near += fits(row, *value, NEAR_PERCENT);
    }
    return true;
}

static void print_model(const struct vb_figures_row *row, int reading, double value)
{
    if (isinf(value)) {
        printf(" - |");
        return;
    }
    print_number(value);
    if (row->paper > 0)
        printf(" (%+.0f %%)", deviation(row->paper, value));
    if (row->card != VB_CARD_CONNECTX5)
        printf(", %s", vb_figures_preset[row->card][reading]);
    printf(" |");
}

static void print_measured(bool measured, double value)
{
    if (!measured)
        printf(" -");
    else if (isinf(value))
        printf(" ?");
    else
        print_number(value);
    printf(" |");
}

// `value` is what each reading of the model says.
static bool run_row(struct figures *f, const struct vb_figures_row *row, double *value)
{
    char error[VB_COST_TEXT] = "", text[96];
    double between = 0, local = 0;

    for (int i = 0; f->model && i < VB_READINGS; i++)
        if (!run_model(f, row, i, &value[i]))
            return false;
    if (f->here && row->measure && isnan(between = row->measure(row, f->here, error)))
        return fail(row, error);
    if (f->here && row->local && isnan(local = row->local(row, error)))
        return fail(row, error);
    printf("| %s | %s |", row->where, label(row, text));
    if (row->paper > 0)
        printf(*row->unit ? " %g %s |" : " %g |", row->paper, row->unit);
    else
        printf(" - |");
    for (int i = 0; f->model && i < VB_READINGS; i++)
        print_model(row, i, value[i]);
    if (f->here) {
        print_measured(row->measure, between);
        print_measured(row->local, local);
    }
    printf(f->model ? " *%s* |\n" : "\n", mark_name(row->mark));
    return true;
}

static void print_head(const struct figures *f)
{
    printf("| where | what | paper |");
    for (int i = 0; f->model && i < VB_READINGS; i++)
        printf(" %s |", reading_name(i));
    if (f->here)
        printf(" here: two processes, udp | here: local entries, one process |");
    if (f->model)
        printf(" paper's value is |");
    printf("\n|---|---|---|%s%s\n", f->model ? "---|---|---|" : "", f->here ? "---|---|" : "");
}

static bool run_rows(struct figures *f, double seconds, double (*value)[VB_READINGS])
{
    struct vb_progress progress;

    vb_progress_init(&progress, f->here ? 2 * seconds * vb_figures_redn_rows : 0);
    print_head(f);
    for (uint32_t i = 0; i < vb_figures_redn_rows; i++) {
        const struct vb_figures_row *row = &vb_figures_redn[i];
        if (!f->model && !row->measure && !row->local)
            continue;
        vb_progress_phase(&progress, row->what, 0, 1);
        vb_progress_show(&progress, vb_clock_ns(), (double)i / vb_figures_redn_rows);
        fflush(stdout);
        if (!run_row(f, row, value[i]))
            return false;
    }
    vb_progress_clear(&progress);
    return true;
}

// Whether some reading is off, or there is nothing to compare with.
static bool is_misfit(const struct vb_figures_row *row, const double value[VB_READINGS])
{
    bool off = row->paper == 0;

    for (int r = 0; r < VB_READINGS; r++)
        off |= isfinite(value[r]) && !fits(row, value[r], CLOSE_PERCENT);
    return off;
}

static void print_misfit(const struct vb_figures_row *row, const double value[VB_READINGS])
{
    char text[96];

    printf("%s, %s", row->where, label(row, text));
    for (int r = 0; r < VB_READINGS; r++)
        if (isfinite(value[r]) && !fits(row, value[r], CLOSE_PERCENT))
            printf(" (%s %+.0f %%)", vb_figures_preset[row->card][r],
                   deviation(row->paper, value[r]));
}

// Rows that are off and by how much; those with the same reason together.
static void print_misfits(double (*value)[VB_READINGS])
{
    const struct vb_figures_row *rows = vb_figures_redn;

    printf("\nDoes not fit (off by more than %d %%, or the paper has no number):\n\n",
           CLOSE_PERCENT);
    for (uint32_t i = 0; i < vb_figures_redn_rows; i++) {
        bool told = !is_misfit(&rows[i], value[i]);
        for (uint32_t k = 0; k < i; k++)
            told |= is_misfit(&rows[k], value[k]) && rows[k].why == rows[i].why;
        if (told)
            continue;
        printf("- ");
        print_misfit(&rows[i], value[i]);
        for (uint32_t k = i + 1; k < vb_figures_redn_rows; k++)
            if (is_misfit(&rows[k], value[k]) && rows[k].why == rows[i].why) {
                printf("; ");
                print_misfit(&rows[k], value[k]);
            }
        printf(": %s\n", rows[i].why ? rows[i].why : "not explained");
    }
}

static void print_text(const struct figures *f, double (*value)[VB_READINGS])
{
    if (f->here)
        printf("\nLocal entries are timed in one process that executes them itself: no socket, no "
               "second core. ? is a difference of two times that was lost in the noise.\n");
    if (!f->model)
        return;
    puts("");
    for (int i = 0; i < VB_READINGS; i++)
        printf("%s: %u predicted values; within %d %%: %u; within %d %%: %u.\n", reading_name(i),
               f->share[i].values, CLOSE_PERCENT, f->share[i].within_close, NEAR_PERCENT,
               f->share[i].within_near);
    print_misfits(value);
    printf("\nNot run:\n\n");
    for (const char *const *line = vb_figures_redn_missing; *line; line++)
        printf("- %s\n", *line);
}

static bool load_presets(struct figures *f, char *error)
{
    for (int card = 0; card < VB_CARDS; card++)
        for (int i = 0; i < VB_READINGS; i++) {
            const char *name = vb_figures_preset[card][i];
            if (name && !(f->preset[card][i] = vb_cost_preset_named(name, error)))
                return false;
        }
    return true;
}

static int run_redn(const struct figures_fields *fields)
{
    struct vb_figures_here machine;
    struct figures f = {.model = !fields->here, .here = fields->model ? NULL : &machine};
    double(*value)[VB_READINGS] = calloc(vb_figures_redn_rows, sizeof *value);
    char error[VB_COST_TEXT] = "";
    bool ok = value && (!f.model || load_presets(&f, error));

    if (f.here && !vb_figures_here_open(f.here, fields->seconds, error)) {
        fprintf(stderr, "%s: %s; --model measures nothing\n", command, error);
        f.here = NULL;
        ok = false;
    }
    ok = ok && run_rows(&f, fields->seconds, value);
    if (ok)
        print_text(&f, value);
    if (ok && fields->plots &&
        vb_figures_plot(fields->plots, f.here, f.model ? f.preset[VB_CARD_CONNECTX5] : NULL,
                        error) < 0) {
        fprintf(stderr, "%s: %s\n", command, error);
        ok = false;
    }
    if (f.here)
        vb_figures_here_close(f.here);
    for (int i = 0; i < VB_CARDS * VB_READINGS; i++)
        vb_cost_preset_free(f.preset[i / VB_READINGS][i % VB_READINGS]);
    free(value);
    return ok ? 0 : 1;
}

static void print_help(void)
{
    fputs(
        "Usage: verbena figures redn [options]\n"
        "\n"
        "Runs experiments of the RedN paper (NSDI 2022) on the cost model and, in the same run,\n"
        "on the software NIC of this machine, and prints them beside the paper's numbers, as a\n"
        "table of Markdown. Each card has one preset, the same for all experiments. Each row says\n"
        "what the paper's number is to the presets: *input*, a parameter was worked out from it,\n"
        "or both follow from the same one; *fitted*, a parameter was chosen so that it fits;\n"
        "*predicted*, neither. Gets and verbs are measured between two processes over udp; local\n"
        "entries, in a column of their own, in one process. docs/cost.md says what is modelled.\n"
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
    if (fields.model && fields.here)
        return vb_usage_error(command, "--model and --here leave nothing to do together");
    if (!fields.list)
        return run_redn(&fields);
    list_rows();
    return 0;
}
