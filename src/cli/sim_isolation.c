// SPDX-License-Identifier: Apache-2.0
// `verbena sim isolation`: a tenant alone, beside well-behaved neighbours and beside hostile ones.
#include "cli/commands.h"
#include "cli/options.h"
#include "sim/isolation.h"

#include "nic/dev.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

struct fields {
    uint32_t seed, ms, weight;
    bool no_shares, json;
};

#define FIELD(name) offsetof(struct fields, name)

static const struct vb_option options[] = {
    {"seed", NULL, VB_OPTION_NUMBER, "1", "N", "of the NICs and the hosts", FIELD(seed), 0,
     UINT32_MAX},
    {"ms", NULL, VB_OPTION_NUMBER, "200", "N", "of virtual time", FIELD(ms), 1, 100000},
    {"weight", NULL, VB_OPTION_NUMBER, "100", "N", "of the tenant's share; the others have 100",
     FIELD(weight), 1, VB_SHARE_WEIGHT_MAX},
    {"no-shares", NULL, VB_OPTION_FLAG, "0", NULL, "turns by queue pair, whoever they belong to",
     FIELD(no_shares), 0, 0},
    {"json", NULL, VB_OPTION_FLAG, "0", NULL, "print one JSON object", FIELD(json), 0, 0},
};

static const struct vb_option_table table = {"verbena sim isolation", options,
                                             sizeof options / sizeof *options};

static const char *const company[VB_COMPANIES] = {"alone", "quiet", "hostile"};

static void print_help(void)
{
    fputs(
        "Usage: verbena sim isolation [options]\n"
        "\n"
        "A tenant READs 64 bytes again and again through a NIC of four tenants, in virtual\n"
        "time: alone; quiet, beside three well-behaved, busy tenants; and beside\n"
        "three hostile ones: one runs endless programs and floods its queues with WRITEs, one\n"
        "writes garbage into its rings, doorbell records and bells, one floods its queues with\n"
        "READs. Each READ has to be within the longest one alone and a bound, which follows from\n"
        "the length of turns and the number of tenants; frames that came before its answer are\n"
        "counted apart. READs beside a company are not judged if the tenant READs more than its\n"
        "share pays for between two visits of the line: then there is no promise.\n"
        "\n",
        stdout);
    vb_options_help(&table, stdout);
    fputs("\nExit status: 0 every READ is within the bound, or the load is above the share; 1 a "
          "READ is\nnot within the bound; 2 the command line was wrong.\n",
          stdout);
}

static const char *verdict(const struct vb_isolation_result *r, uint32_t i)
{
    uint64_t most = r->beside[VB_COMPANY_NONE].turns_max_ns + r->bound_ns;

    return r->beside[i].above                  ? "not judged: the load is above the share"
           : r->beside[i].turns_max_ns <= most ? "kept"
                                               : "BROKEN";
}

static void print_table(const struct vb_isolation_result *r)
{
    printf("%-8s %7s %11s %11s %11s %15s %10s %10s\n", "beside", "READs", "NIC p50 ns",
           "NIC p99 ns", "NIC max ns", "max w/o frames", "whole p50", "whole p99");
    for (uint32_t i = 0; i < VB_COMPANIES; i++) {
        const struct vb_isolation_times *t = &r->beside[i];
        printf("%-8s %7" PRIu64 " %11" PRIu64 " %11" PRIu64 " %11" PRIu64 " %15" PRIu64
               " %10" PRIu64 " %10" PRIu64 "\n",
               company[i], t->count, t->service_p50_ns, t->service_p99_ns, t->service_max_ns,
               t->turns_max_ns, t->whole_p50_ns, t->whole_p99_ns);
    }
    uint64_t alone = r->beside[VB_COMPANY_NONE].turns_max_ns;
    printf("bound: alone + %" PRIu64 " ns = %" PRIu64 " ns, without frames before the answer: ",
           r->bound_ns, alone + r->bound_ns);
    for (uint32_t i = VB_COMPANY_NONE + 1; i < VB_COMPANIES && r->above; i++)
        printf("%s%s %s", i > VB_COMPANY_NONE + 1 ? "; " : "", company[i], verdict(r, i));
    puts(r->above ? " (see --weight)" : r->kept ? "kept" : "BROKEN");
    if (r->violated[0])
        printf("the watch over turns: %s\n", r->violated);
}

static void print_json(const struct vb_isolation_result *r)
{
    for (uint32_t i = 0; i < VB_COMPANIES; i++) {
        const struct vb_isolation_times *t = &r->beside[i];
        printf("%s\"%s\":{\"reads\":%" PRIu64 ",\"nic_p50_ns\":%" PRIu64 ",\"nic_p99_ns\":%" PRIu64
               ",\"nic_max_ns\":%" PRIu64 ",\"nic_max_without_frames_ns\":%" PRIu64
               ",\"whole_p50_ns\":%" PRIu64 ",\"whole_p99_ns\":%" PRIu64 ",\"above_share\":%s}",
               i ? "," : "{", company[i], t->count, t->service_p50_ns, t->service_p99_ns,
               t->service_max_ns, t->turns_max_ns, t->whole_p50_ns, t->whole_p99_ns,
               t->above ? "true" : "false");
    }
    printf(",\"bound_ns\":%" PRIu64 ",\"violated\":\"%s\",\"above_share\":%s,\"kept\":%s}\n",
           r->bound_ns, r->violated, r->above ? "true" : "false",
           !r->kept   ? "false"
           : r->above ? "null"
                      : "true");
}

static int run(const struct fields *f)
{
    const struct vb_isolation_opts opts = {.seed = f->seed,
                                           .duration_ns = (uint64_t)f->ms * 1000000,
                                           .weight = f->weight,
                                           .no_shares = f->no_shares};
    struct vb_isolation_result r;
    int error = vb_isolation_run(&opts, &r);

    if (error) {
        fprintf(stderr, "%s: %s\n", table.command, strerror(-error));
        return 1;
    }
    if (f->json)
        print_json(&r);
    else
        print_table(&r);
    return !r.kept;
}

int vb_cli_sim_isolation(int argc, char **argv)
{
    struct fields f = {0};
    struct vb_options parsed;
    int error = vb_options_parse(&table, argc, argv, &f, &parsed);

    if (error)
        return error;
    if (parsed.help) {
        print_help();
        return 0;
    }
    if (parsed.operands)
        return vb_usage_error(table.command, "'%s' is not an option", parsed.operand[0]);
    return run(&f);
}
