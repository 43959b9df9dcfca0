// SPDX-License-Identifier: Apache-2.0
// `verbena sim isolation`: a tenant beside well-behaved neighbours, and beside hostile ones.
#include "cli/commands.h"
#include "cli/options.h"
#include "sim/isolation.h"

#include "nic/dev.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum {
    LIMIT_PERCENT = 200, // of the quiet time
};

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

static const char *const company[VB_COMPANIES] = {"alone", "busy", "hostile"};

static void print_help(void)
{
    fputs(
        "Usage: verbena sim isolation [options]\n"
        "\n"
        "A tenant READs 64 bytes again and again from a NIC that three tenants share, in virtual\n"
        "time: alone, beside two well-behaved ones that are always busy, and beside two hostile\n"
        "ones, of which one runs programs without an end and floods its queues and one writes\n"
        "garbage into its rings, doorbell records and bells.\n"
        "\n",
        stdout);
    vb_options_help(&table, stdout);
    fputs("\nExit status: 0 the hostile p99 is within twice the busy one, in the NIC and as a "
          "whole;\n1 it is not, 2 the command line was wrong.\n",
          stdout);
}

static uint64_t percent(uint64_t value, uint64_t of)
{
    return value * 100 / (of ? of : 1);
}

static void print_table(const struct vb_isolation_result *r)
{
    printf("%-10s %8s %12s %12s %12s %12s\n", "beside", "READs", "NIC p50 ns", "NIC p99 ns",
           "whole p50", "whole p99");
    for (uint32_t i = 0; i < VB_COMPANIES; i++) {
        const struct vb_isolation_times *t = &r->beside[i];
        printf("%-10s %8" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "\n",
               company[i], t->count, t->service_p50_ns, t->service_p99_ns, t->whole_p50_ns,
               t->whole_p99_ns);
    }
}

static void print_json(const struct vb_isolation_result *r)
{
    for (uint32_t i = 0; i < VB_COMPANIES; i++) {
        const struct vb_isolation_times *t = &r->beside[i];
        printf("%s\"%s\":{\"reads\":%" PRIu64 ",\"nic_p50_ns\":%" PRIu64 ",\"nic_p99_ns\":%" PRIu64
               ",\"whole_p50_ns\":%" PRIu64 ",\"whole_p99_ns\":%" PRIu64 "}",
               i ? "," : "{", company[i], t->count, t->service_p50_ns, t->service_p99_ns,
               t->whole_p50_ns, t->whole_p99_ns);
    }
    printf("}\n");
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
    const struct vb_isolation_times *quiet = &r.beside[VB_COMPANY_QUIET],
                                    *hostile = &r.beside[VB_COMPANY_HOSTILE];
    uint64_t nic = percent(hostile->service_p99_ns, quiet->service_p99_ns),
             whole = percent(hostile->whole_p99_ns, quiet->whole_p99_ns);
    if (f->json)
        print_json(&r);
    else
        print_table(&r);
    if (!f->json)
        printf("p99 beside hostile tenants: %" PRIu64 " %% of the quiet one in the NIC, %" PRIu64
               " %% as a whole\n",
               nic, whole);
    return hostile->count == 0 || nic > LIMIT_PERCENT || whole > LIMIT_PERCENT;
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
