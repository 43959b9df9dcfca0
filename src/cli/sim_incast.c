// SPDX-License-Identifier: Apache-2.0
// `verbena sim incast`: many senders against one receiver's socket buffer.
#include "cli/commands.h"
#include "cli/options.h"
#include "sim/incast.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

struct fields {
    uint32_t seed, senders, ms, link_gbps, sink_gbps, buffer, delay_us, depth, mtu;
    struct vb_sizes size;
    bool json;
};

#define FIELD(name) offsetof(struct fields, name)

static const struct vb_option options[] = {
    {"seed", NULL, VB_OPTION_NUMBER, "1", "N", "of the network and the NICs", FIELD(seed), 0,
     UINT32_MAX},
    {"senders", NULL, VB_OPTION_NUMBER, "8", "N", "that write to one receiver", FIELD(senders), 1,
     VB_INCAST_SENDERS_MAX},
    {"ms", NULL, VB_OPTION_NUMBER, "500", "N", "of virtual time", FIELD(ms), 1, 100000},
    {"link", NULL, VB_OPTION_NUMBER, "10", "GBPS", "of each sender", FIELD(link_gbps), 1, 400},
    {"sink", NULL, VB_OPTION_NUMBER, "10", "GBPS", "that the receiver takes from its socket",
     FIELD(sink_gbps), 1, 400},
    {"buffer", NULL, VB_OPTION_NUMBER, "425984", "BYTES",
     "of that socket, as the system counts [twice Debian's 212992]", FIELD(buffer), 1, UINT32_MAX},
    {"delay", NULL, VB_OPTION_NUMBER, "10", "US", "one way", FIELD(delay_us), 0, 1000000},
    {"size", NULL, VB_OPTION_SIZES, "64K", "BYTES", "of a WRITE", FIELD(size), 1, 16 << 20},
    {"depth", NULL, VB_OPTION_NUMBER, "16", "N", "WRITEs in flight per sender", FIELD(depth), 1,
     4096},
    {"mtu", NULL, VB_OPTION_NUMBER, "4096", "BYTES", "256 to 4096", FIELD(mtu), 256, 4096},
    {"json", NULL, VB_OPTION_FLAG, "0", NULL, "print one JSON object", FIELD(json), 0, 0},
};

static const struct vb_option_table table = {"verbena sim incast", options,
                                             sizeof options / sizeof *options};

static void print_help(void)
{
    fputs("Usage: verbena sim incast [options]\n"
          "\n"
          "One sender alone, then several at once, write to one receiver in virtual time. The\n"
          "receiver's socket holds what Debian's defaults allow, without merging; what comes past\n"
          "that is dropped. Prints the goodput of all together beside that of the one.\n"
          "\n",
          stdout);
    vb_options_help(&table, stdout);
    fputs("\nExit status: 0 all went on to the end, 1 a queue pair gave up, 2 the command line was "
          "wrong.\n",
          stdout);
}

static double gbps(const struct vb_incast_result *r, const struct fields *f)
{
    return (double)r->bytes * 8 / ((double)f->ms * 1e6);
}

static void print_row(const char *who, const struct vb_incast_result *r, const struct fields *f)
{
    printf("%-10s %8.2f %10" PRIu64 " %10" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64 "\n", who,
           gbps(r, f), r->sent, r->dropped, r->naks, r->timeouts, r->retries_exceeded);
}

static void print_json(const struct fields *f, const struct vb_incast_result *one,
                       const struct vb_incast_result *all)
{
    printf("{\"senders\":%u,\"one_gbps\":%.4f,\"all_gbps\":%.4f,\"ratio\":%.4f,", f->senders,
           gbps(one, f), gbps(all, f), (double)all->bytes / (double)one->bytes);
    printf("\"least_bytes\":%" PRIu64 ",\"most_bytes\":%" PRIu64 ",\"sent\":%" PRIu64
           ",\"dropped\":%" PRIu64 ",",
           all->least, all->most, all->sent, all->dropped);
    printf("\"naks\":%" PRIu64 ",\"timeouts\":%" PRIu64 ",\"retries_exceeded\":%" PRIu64 "}\n",
           all->naks, all->timeouts, all->retries_exceeded);
}

static void print_table(const struct fields *f, const struct vb_incast_result *one,
                        const struct vb_incast_result *all)
{
    char who[32];

    printf("%-10s %8s %10s %10s %8s %8s %8s\n", "", "Gb/s", "frames", "dropped", "NAKs", "timeouts",
           "gave up");
    print_row("1 sender", one, f);
    snprintf(who, sizeof who, "%u senders", f->senders);
    print_row(who, all, f);
    printf(
        "goodput of all against one: %.0f %%; the slowest sender has %.0f %% of a fair share, the "
        "fastest %.0f %%\n",
        100.0 * (double)all->bytes / (double)one->bytes,
        100.0 * (double)all->least * f->senders / (double)(all->bytes ? all->bytes : 1),
        100.0 * (double)all->most * f->senders / (double)(all->bytes ? all->bytes : 1));
}

static int run(const struct fields *f)
{
    struct vb_incast_opts opts = {
        .seed = f->seed,
        .senders = 1,
        .duration_ns = (uint64_t)f->ms * 1000000,
        .link_bytes_per_us = f->link_gbps * 125,
        .sink_bytes_per_us = f->sink_gbps * 125,
        .buffer_bytes = f->buffer,
        .delay_ns = (uint64_t)f->delay_us * 1000,
        .message_bytes = f->size.bytes[0],
        .depth = f->depth,
        .mtu = f->mtu,
    };
    struct vb_incast_result one, all;
    int error = vb_incast_run(&opts, &one);

    opts.senders = f->senders;
    if (!error)
        error = vb_incast_run(&opts, &all);
    if (error) {
        fprintf(stderr, "%s: %s\n", table.command, strerror(-error));
        return 1;
    }
    if (f->json)
        print_json(f, &one, &all);
    else
        print_table(f, &one, &all);
    return one.retries_exceeded + all.retries_exceeded > 0;
}

int vb_cli_sim_incast(int argc, char **argv)
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
    if (f.size.count > 1)
        return vb_usage_error(table.command, "--size: one size, not a list");
    if (f.mtu & (f.mtu - 1))
        return vb_usage_error(table.command, "--mtu must be 256, 512, 1024, 2048 or 4096");
    return run(&f);
}
