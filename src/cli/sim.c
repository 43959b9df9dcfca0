// SPDX-License-Identifier: Apache-2.0
// `verbena sim`: seeds through the simulator, and the command that replays one which failed.
#include "cli/commands.h"
#include "cli/options.h"
#include "port/clock.h"
#include "sim/batch.h"
#include "sim/scenario.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SEEDS_MAX = 100000000,
};

struct sim_fields {
    uint32_t seed, seeds, start, ops, nics, jobs;
    const char *chains_text;
    enum vb_sim_chains chains;
    bool cm, equal, trace, coverage, require_coverage, json;
    bool one; // --seed was given
};

#define FIELD(name) offsetof(struct sim_fields, name)

enum {
    OPTION_SEED,
    OPTION_SEEDS, // the rest is only looked up by its field
};

static const struct vb_option options[] = {
    [OPTION_SEED] = {"seed", NULL, VB_OPTION_NUMBER, NULL, "N",
                     "run this one seed and print its digest", FIELD(seed), 0, UINT32_MAX},
    [OPTION_SEEDS] = {"seeds", NULL, VB_OPTION_NUMBER, "100", "N", "how many seeds", FIELD(seeds),
                      1, SEEDS_MAX},
    {"start", NULL, VB_OPTION_NUMBER, "1", "N", "the first of them", FIELD(start), 0, UINT32_MAX},
    {"ops", NULL, VB_OPTION_NUMBER, "5000", "N", "work requests per seed", FIELD(ops), 1, 10000000},
    {"nics", NULL, VB_OPTION_NUMBER, "0", "N", "NICs, 2 to 8; 0: each seed draws", FIELD(nics), 0,
     VB_SIM_NICS_MAX},
    {"jobs", NULL, VB_OPTION_NUMBER, "0", "N", "processes; 0: one per core", FIELD(jobs), 0, 256},
    {"chains", NULL, VB_OPTION_TEXT, "drawn", "WORD",
     "worlds of chain programs: drawn (half of the seeds have one, too), none, only",
     FIELD(chains_text), 0, 0},
    {"cm", NULL, VB_OPTION_FLAG, "0", NULL, "worlds of communication managers instead", FIELD(cm),
     0, 0},
    {"equal", NULL, VB_OPTION_FLAG, "0", NULL,
     "each world twice, by polls with an observer and without, which must do the same",
     FIELD(equal), 0, 0},
    {"trace", NULL, VB_OPTION_FLAG, "0", NULL, "print every event (needs --seed)", FIELD(trace), 0,
     0},
    {"coverage", NULL, VB_OPTION_FLAG, "0", NULL, "print what was seen", FIELD(coverage), 0, 0},
    {"require-coverage", NULL, VB_OPTION_FLAG, "0", NULL,
     "a row of it that is empty is a failure; 800 seeds leave none", FIELD(require_coverage), 0, 0},
    {"json", NULL, VB_OPTION_FLAG, "0", NULL, "print one JSON object", FIELD(json), 0, 0},
};

static const struct vb_option_table table = {"verbena sim", options,
                                             sizeof options / sizeof *options};

static void print_help(void)
{
    fputs(
        "Usage: verbena sim [options]\n"
        "       verbena sim incast [options]\n"
        "       verbena sim isolation [options]\n"
        "\n"
        "Runs 2 to 8 NICs and their hosts in virtual time. A seed draws the network's faults, the\n"
        "schedule and the work; a reference model checks every step; then the network heals and\n"
        "all work must end. A seed that fails is printed with the command that replays it.\n"
        "\n",
        stdout);
    vb_options_help(&table, stdout);
    fputs("\nExit status: 0 nothing was violated, 1 something was, 2 the command line was wrong.\n",
          stdout);
}

static double seconds_now(void)
{
    return (double)vb_clock_ns() * 1e-9;
}

// ---- reports

static void print_replay(const struct sim_fields *f, uint64_t seed, FILE *out)
{
    fprintf(out, "verbena sim --seed %" PRIu64, seed);
    if (f->ops != VB_SIM_OPS_DEFAULT)
        fprintf(out, " --ops %u", f->ops);
    if (f->nics)
        fprintf(out, " --nics %u", f->nics);
    if (f->chains != VB_SIM_CHAINS_DRAWN)
        fprintf(out, " --chains %s", f->chains_text);
    if (f->cm)
        fprintf(out, " --cm");
    if (f->equal)
        fprintf(out, " --equal");
}

static void print_violation(const struct sim_fields *f, const struct vb_sim_result *r)
{
    printf("seed %" PRIu64 ": VIOLATION at event %" PRIu64 ", %" PRIu64 " ns\n  %s\nreplay: ",
           r->seed, r->events, r->time_ns, r->text);
    print_replay(f, r->seed, stdout);
    printf("\n  (with --trace it prints every event)\n");
}

static void print_json_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

static void print_json_violation(const struct sim_fields *f, const struct vb_sim_result *r)
{
    if (!r->violated) {
        printf("null");
        return;
    }
    printf("{\"seed\": %" PRIu64 ", \"event\": %" PRIu64 ", \"time_ns\": %" PRIu64 ", \"text\": ",
           r->seed, r->events, r->time_ns);
    print_json_text(r->text);
    printf(", \"replay\": \"");
    print_replay(f, r->seed, stdout);
    printf("\"}");
}

static uint32_t empty_rows(const struct sim_fields *f, const struct vb_coverage *c)
{
    if (f->equal)
        return vb_cover_uncompared(c);
    return f->cm ? vb_cmcover_zero_rows(&c->cm) : vb_cover_zero_rows(c);
}

// What was compared is printed even if nobody asks.
static uint32_t print_coverage(const struct sim_fields *f, const struct vb_coverage *c)
{
    if (f->equal)
        return vb_cover_print_compared(c, stdout);
    return f->cm ? vb_cmcover_print(&c->cm, stdout) : vb_cover_print(c, stdout);
}

static void print_json(const struct sim_fields *f, uint64_t first, uint64_t seeds,
                       const struct vb_batch_result *r, double seconds)
{
    printf("{\"first\": %" PRIu64 ", \"seeds\": %" PRIu64 ", \"done\": %" PRIu64
           ", \"work_requests\": %" PRIu64 ", \"steps\": %" PRIu64
           ", \"seconds\": %.3f, \"empty_rows\": %u, \"violation\": ",
           first, seeds, r->done, r->works, r->events, seconds, empty_rows(f, &r->cover));
    print_json_violation(f, &r->worst);
    if (f->one)
        printf(", \"digest\": \"%016" PRIx64 "\"", r->worst.digest);
    printf("}\n");
}

// ---- one seed

static int run_one(const struct sim_fields *f)
{
    const struct vb_sim_opts opts = {.seed = f->seed,
                                     .ops = f->ops,
                                     .nics = f->nics,
                                     .trace = f->trace ? stdout : NULL,
                                     .chains = f->chains,
                                     .equal = f->equal,
                                     .cm = f->cm};
    struct vb_batch_result r = {.done = 1};
    struct vb_sim_result one;
    double begun = seconds_now();

    if (vb_sim_run(&opts, &one, &r.cover) != 0) {
        fprintf(stderr, "verbena sim: out of memory\n");
        return 1;
    }
    r.events = one.events;
    r.works = one.works;
    r.worst = one;
    if (f->json)
        print_json(f, f->seed, 1, &r, seconds_now() - begun);
    else if (one.violated)
        print_violation(f, &one);
    else
        printf("seed %" PRIu64 ": no violation; %u NICs, %" PRIu64 " work requests, %" PRIu64
               " steps, %.3f ms of virtual time\n",
               one.seed, one.nics, one.works, one.events, (double)one.time_ns * 1e-6);
    if (!f->json)
        printf("digest %016" PRIx64 "\n", one.digest);
    if ((f->coverage || f->equal) && !f->json)
        print_coverage(f, &r.cover);
    bool empty = f->require_coverage && empty_rows(f, &r.cover) > 0;
    return one.violated || empty;
}

// ---- many seeds

struct display {
    bool on;
    double begun, shown;
    uint64_t seeds;
};

static void show_progress(void *ctx, uint64_t done)
{
    struct display *d = ctx;
    double now = seconds_now(), elapsed = now - d->begun;

    if (!d->on || now - d->shown < 0.2 || done == 0)
        return;
    d->shown = now;
    double rate = (double)done / elapsed;
    fprintf(stderr, "\r\033[Ksim: %" PRIu64 " of %" PRIu64 " seeds, %.0f/s, %.0f s left", done,
            d->seeds, rate, (double)(d->seeds - done) / rate);
    fflush(stderr);
}

static int judge_coverage(const struct sim_fields *f, const struct vb_batch_result *r)
{
    uint32_t empty = (f->coverage || f->equal) && !f->json ? print_coverage(f, &r->cover)
                                                           : empty_rows(f, &r->cover);

    if (empty && f->require_coverage)
        fprintf(stderr, "verbena sim: %u rows of the coverage table are empty\n", empty);
    return empty && f->require_coverage;
}

static int run_many(const struct sim_fields *f)
{
    struct display d = {.on = isatty(STDERR_FILENO), .begun = seconds_now(), .seeds = f->seeds};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const struct vb_batch_opts opts = {.first = f->start,
                                       .count = f->seeds,
                                       .jobs = f->jobs     ? f->jobs
                                               : cores > 0 ? (uint32_t)cores
                                                           : 1,
                                       .ops = f->ops,
                                       .nics = f->nics,
                                       .chains = f->chains,
                                       .equal = f->equal,
                                       .cm = f->cm,
                                       .progress = show_progress,
                                       .ctx = &d};
    struct vb_batch_result r;
    int err = vb_batch_run(&opts, &r);
    double seconds = seconds_now() - d.begun;

    if (d.on)
        fprintf(stderr, "\r\033[K");
    if (err) {
        fprintf(stderr, "verbena sim: %s\n", strerror(-err));
        return 1;
    }
    int uncovered = r.worst.violated ? 0 : judge_coverage(f, &r);
    if (f->json)
        print_json(f, f->start, f->seeds, &r, seconds);
    else if (r.worst.violated)
        print_violation(f, &r.worst);
    else
        printf("%u seeds from %u on without a violation: %.1f million work requests, %.1f million "
               "steps in %.1f s\n",
               f->seeds, f->start, (double)r.works * 1e-6, (double)r.events * 1e-6, seconds);
    return r.worst.violated || uncovered;
}

// False: it is no such word.
static bool read_chains(struct sim_fields *f)
{
    static const char *const words[] = {[VB_SIM_CHAINS_DRAWN] = "drawn",
                                        [VB_SIM_CHAINS_NONE] = "none",
                                        [VB_SIM_CHAINS_ONLY] = "only"};

    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(f->chains_text, words[i]) == 0) {
            f->chains = (enum vb_sim_chains)i;
            return true;
        }
    return false;
}

int vb_cli_sim(int argc, char **argv)
{
    struct sim_fields fields = {0};
    struct vb_options parsed;
    if (argc > 1 && strcmp(argv[1], "incast") == 0)
        return vb_cli_sim_incast(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "isolation") == 0)
        return vb_cli_sim_isolation(argc - 1, argv + 1);
    int error = vb_options_parse(&table, argc, argv, &fields, &parsed);

    if (error)
        return error;
    if (parsed.help) {
        print_help();
        return 0;
    }
    if (parsed.operands)
        return vb_usage_error(table.command, "'%s' is not an option; a seed is --seed %s",
                              parsed.operand[0], parsed.operand[0]);
    if (!read_chains(&fields))
        return vb_usage_error(table.command, "--chains: '%s' is not drawn, none or only",
                              fields.chains_text);
    if (fields.nics == 1)
        return vb_usage_error(table.command, "--nics: '1' is not a number from 2 to %d",
                              VB_SIM_NICS_MAX);
    // Only asked for on the command line: a forgotten variable must not shrink a long run to one
    // seed.
    fields.one = parsed.use[OPTION_SEED].origin == VB_ORIGIN_OPTION;
    if (fields.one && parsed.use[OPTION_SEEDS].origin == VB_ORIGIN_OPTION)
        return vb_usage_error(table.command,
                              "--seed runs one seed and --seeds many: give only one");
    if (fields.cm && fields.equal)
        return vb_usage_error(table.command, "--cm worlds have no NICs to compare: drop --equal");
    if (fields.trace && !fields.one)
        return vb_usage_error(table.command, "--trace is for one seed: add --seed N");
    return fields.one ? run_one(&fields) : run_many(&fields);
}
