// SPDX-License-Identifier: Apache-2.0
// `verbena doctor`: does it work here, and if not, why?
#include "cli/doctor.h"

#include "cli/commands.h"
#include "cli/inspect_print.h"
#include "cli/options.h"

#include <stdarg.h>
#include <string.h>

enum {
    FOUND_BYTES = 512
};

struct fields {
    bool json, pretty;
};

static const struct vb_option options[] = {
    {"json", NULL, VB_OPTION_FLAG, NULL, NULL, "JSON; also -j", offsetof(struct fields, json), 0,
     0},
    {"pretty", NULL, VB_OPTION_FLAG, NULL, NULL, "JSON on many lines; also -p",
     offsetof(struct fields, pretty), 0, 0},
};

static const struct vb_option_table table = {"verbena doctor", options,
                                             sizeof options / sizeof *options};

static void print_help(void)
{
    puts("Usage: verbena doctor [options] [-- PROGRAM]\n"
         "\n"
         "Tries what Verbena needs and says what it found, a line each:\n"
         "\n"
         "  ok       nothing to do\n"
         "  note     works, but could be better, or is worth knowing\n"
         "  problem  keeps it from working; behind the arrow is what to do\n"
         "\n"
         "With a program it also says whether `verbena run` can serve that one. It is not run.\n");
    vb_options_help(&table, stdout);
    puts("\nExit status: 0 if nothing prevents use, 1 otherwise.");
}

void vb_doctor_say(struct vb_doctor *d, enum vb_verdict verdict, const char *topic,
                   const char *advice, const char *found, ...)
{
    static const char *const verdicts[] = {"ok", "note", "problem"};
    char text[FOUND_BYTES];
    va_list args;

    va_start(args, found);
    vsnprintf(text, sizeof text, found, args);
    va_end(args);
    d->problems += verdict == VB_PROBLEM;
    if (!d->json) {
        fprintf(d->out, "%-8s %-10s %s%s%s\n", verdicts[verdict], topic, text, advice ? " -> " : "",
                advice ? advice : "");
        return;
    }
    struct vb_printer p = {
        .out = d->out, .json = true, .pretty = d->pretty, .records = d->findings++};
    vb_print_head(&p, " ");
    vb_print_text(&p, "verdict", verdicts[verdict]);
    vb_print_text(&p, "topic", topic);
    vb_print_text(&p, "found", text);
    if (advice)
        vb_print_text(&p, "advice", advice);
    vb_print_tail(&p);
}

// Options end at "--".
static int find_program(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return i;
    return argc;
}

// The table of options knows long names only.
static void lengthen(int argc, char **argv)
{
    static char json[] = "--json", pretty[] = "--pretty";

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-j") == 0)
            argv[i] = json;
        else if (strcmp(argv[i], "-p") == 0 || strcmp(argv[i], "-jp") == 0)
            argv[i] = pretty;
}

int vb_cli_doctor(int argc, char **argv)
{
    struct fields f = {0};
    struct vb_options parsed;
    int end = find_program(argc, argv);

    lengthen(end, argv);
    int error = vb_options_parse(&table, end, argv, &f, &parsed);
    if (error)
        return error;
    if (parsed.help) {
        print_help();
        return 0;
    }
    if (parsed.operands)
        return vb_usage_error(table.command, "'%s': write -- before the program",
                              parsed.operand[0]);
    struct vb_doctor d = {.out = stdout, .json = f.json || f.pretty, .pretty = f.pretty};
    struct vb_printer p = {.out = stdout, .json = d.json, .pretty = d.pretty};
    vb_print_begin(&p);
    vb_doctor_system(&d);
    vb_doctor_network(&d);
    vb_doctor_library(&d);
    if (end + 1 < argc)
        vb_doctor_program(&d, argv[end + 1]);
    p.records = d.findings;
    vb_print_end(&p);
    return d.problems ? 1 : 0;
}
