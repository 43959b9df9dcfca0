// SPDX-License-Identifier: Apache-2.0
// verbena figures: experiments of papers, run again, beside the papers' numbers.
#include "cli/commands.h"
#include "cli/figures_redn.h"
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRESETS = 2,
};

static const char command[] = "verbena figures";
static const char *const preset_names[PRESETS] = {"connectx5-a", "connectx5-b"};

struct figures_fields {
    bool list;
};

static const struct vb_option options[] = {
    {"list", NULL, VB_OPTION_FLAG, NULL, NULL, "say which experiments there are, and run none",
     offsetof(struct figures_fields, list), 0, 0},
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
        printf("redn  %-10s %-28s %8g %-4s %s\n", row->where, row->what, row->paper, row->unit,
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

static bool run_row(const struct vb_figures_row *row, struct vb_cost_preset *const *preset,
                    struct share *shares)
{
    char error[VB_COST_TEXT] = "";

    printf("| %s | %s | %g %s |", row->where, row->what, row->paper, row->unit);
    for (int i = 0; i < PRESETS; i++) {
        double value = row->run(row, preset[i], error);
        if (value < 0) {
            fprintf(stderr, "%s: %s, %s: %s\n", command, row->where, row->what, error);
            return false;
        }
        printf(value < 1000 ? " %.3g (%+.0f %%) |" : " %.0f (%+.0f %%) |", value,
               deviation(row->paper, value));
        if (row->mark == VB_MARK_PREDICTED)
            count(&shares[i], row->paper, value);
    }
    printf(" *%s* |\n", mark_name(row->mark));
    return true;
}

static void print_list(const char *head, const char *const *line)
{
    printf("\n%s:\n\n", head);
    for (; *line; line++)
        printf("- %s\n", *line);
}

static int run_redn(void)
{
    struct vb_cost_preset *preset[PRESETS] = {NULL};
    struct share shares[PRESETS] = {{0}};
    char error[VB_COST_TEXT] = "";
    bool ok = true;

    for (int i = 0; ok && i < PRESETS; i++)
        ok = (preset[i] = vb_cost_preset_named(preset_names[i], error)) != NULL;
    if (ok)
        puts("| where | what | paper | connectx5-a | connectx5-b | |\n|---|---|---|---|---|---|");
    for (uint32_t i = 0; ok && i < vb_figures_redn_rows; i++)
        ok = run_row(&vb_figures_redn[i], preset, shares);
    if (ok)
        puts("");
    for (int i = 0; ok && i < PRESETS; i++)
        printf("%s: of %u predicted values %u are within 10 %%, %u within 25 %%.\n",
               preset_names[i], shares[i].values, shares[i].within_10, shares[i].within_25);
    if (ok) {
        print_list("Does not fit", vb_figures_redn_misfits);
        print_list("Not run", vb_figures_redn_missing);
    }
    for (int i = 0; i < PRESETS; i++)
        vb_cost_preset_free(preset[i]);
    return ok ? 0 : 1;
}

static void print_help(void)
{
    fputs(
        "Usage: verbena figures redn [--list]\n"
        "\n"
        "Runs experiments of the RedN paper (NSDI 2022) on the cost model and prints them beside\n"
        "the paper's numbers, as a table of Markdown. Each row says what the paper's number is\n"
        "to the presets: *input*, a parameter was worked out from it; *fitted*, a parameter was\n"
        "chosen so that it fits; *predicted*, neither. docs/cost.md says what is modelled.\n"
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
        return run_redn();
    list_rows();
    return 0;
}
