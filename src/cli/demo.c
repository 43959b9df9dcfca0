// SPDX-License-Identifier: Apache-2.0
// `verbena demo`: two NICs on this machine show what they do, and how fast.
#include "cli/commands.h"
#include "cli/demo_exchange.h"
#include "cli/options.h"
#include "cli/perf_client.h"
#include "cli/perf_report.h"
#include "cli/perf_session.h"

#include <stdio.h>
#include <string.h>

static const char command[] = "verbena demo";

static const char *size_name(uint32_t bytes, char text[16])
{
    if (bytes >= 1 << 20)
        snprintf(text, 16, "%u MB", bytes >> 20);
    else if (bytes >= 1 << 10)
        snprintf(text, 16, "%u KB", bytes >> 10);
    else
        snprintf(text, 16, "%u B", bytes);
    return text;
}

// Prints what arrived. Returns whether all of it did.
static bool print_exchange(const struct vb_demo_result *r)
{
    char text[16];
    bool all = true;
    printf("Two software NICs, two processes: %s and %s. Messages of 64 bytes and more are\n"
           "gathered from 3 pieces and, by SEND, scattered into 2. Every byte was compared:\n\n",
           r->address[0], r->address[1]);
    printf("  %-6s %-24s", "verb", "from");
    for (unsigned i = 0; i < VB_DEMO_SIZES; i++)
        printf(" %6s", size_name(vb_demo_sizes[i], text));
    putchar('\n');
    for (unsigned verb = 0; verb < VB_DEMO_VERBS; verb++) {
        for (unsigned actor = 0; actor < VB_DEMO_SIDES; actor++) {
            printf("  %-6s %-10s to %-10s", vb_demo_verb_names[verb], r->address[actor],
                   r->address[!actor]);
            for (unsigned i = 0; i < VB_DEMO_SIZES; i++) {
                bool ok = r->ok[actor][verb][i];
                all &= ok;
                printf(" %6s", ok ? "ok" : "WRONG");
            }
            putchar('\n');
        }
    }
    putchar('\n');
    return all;
}

static int measure(struct vb_perf_session *s)
{
    static const struct {
        enum vb_perf_op op;
        uint32_t size, depth;
    } plans[] = {
        {VB_PERF_READ, 64, 128},    {VB_PERF_WRITE, 64, 128},   {VB_PERF_SEND, 64, 128},
        {VB_PERF_WRITE, 4096, 128}, {VB_PERF_WRITE, 65536, 16},
    };
    enum {
        PLANS = sizeof plans / sizeof *plans,
        MTU = 4096,
    };
    struct vb_perf_length length = {.seconds = 0.7};
    struct vb_perf_machine machine;
    vb_perf_machine_find(&machine, s->cores, s->yield);
    vb_perf_report_head(stdout, &machine);
    for (unsigned i = 0; i < PLANS; i++) {
        struct vb_perf_row row;
        struct vb_progress progress;
        struct vb_perf_plan plan = {.op = plans[i].op,
                                    .size = plans[i].size,
                                    .depth = plans[i].depth,
                                    .qps = 1,
                                    .active = 1,
                                    .mtu = MTU,
                                    .reads = 16,
                                    .raw_size = plans[i].size < MTU ? plans[i].size : MTU,
                                    .seed = i + 1};
        vb_progress_init(&progress, PLANS * 2 * length.seconds);
        if (vb_perf_measure(s, &plan, &length, &progress, &row) < 0)
            return -1;
        vb_perf_report_row(stdout, &row);
    }
    return 0;
}

static void print_next_steps(void)
{
    puts("\n"
         "Latency is one operation at a time, from post to completion; raw is a UDP echo by plain\n"
         "sockets on the same two cores, in turn with it (of one packet, for 64K), conn the same\n"
         "with a connected client. Rates are with `depth` operations in flight. The bytes of\n"
         "every 1000th operation were verified.\n"
         "\n"
         "Try next:\n"
         "  build/verbena perf read --size 64,4K,1M      one operation, several sizes\n"
         "  build/verbena perf write --qps 8 --drop 1%   with packets lost on purpose\n"
         "  build/verbena perf --help                    between two machines, as JSON, ...\n"
         "  build/verbena sim --seeds 20                 the same NICs under every fault we know\n"
         "  include/verbena/nic.h                        open, register, post, poll: your program");
}

int vb_cli_demo(int argc, char **argv)
{
    static const struct vb_option_table table = {command, NULL, 0};
    struct vb_options parsed;
    struct vb_demo_result result;
    char why[VB_PERF_WHY];
    int error = vb_options_parse(&table, argc, argv, NULL, &parsed);
    if (error)
        return error;
    if (parsed.operands)
        return vb_usage_error(command, "takes no '%s': it has no options", parsed.operand[0]);
    if (parsed.help) {
        puts(
            "Usage: verbena demo\n"
            "\n"
            "Starts two NICs in two processes on this machine, moves data both ways by every\n"
            "verb, verifies it, and measures a few operations beside a raw UDP socket. Takes some\n"
            "10 s.");
        return 0;
    }
    if (vb_demo_exchange(&result, why) < 0) {
        fprintf(stderr, "%s: %s\n", command, why);
        return 1;
    }
    bool right = print_exchange(&result);
    struct vb_perf_session s;
    struct vb_perf_session_opts opts = {.port = "udp"};
    error = vb_perf_session_local(&s, &opts);
    if (!error) {
        error = measure(&s);
        vb_perf_session_close(&s);
    }
    if (error)
        fprintf(stderr, "%s: %s\n", command, s.why);
    else
        print_next_steps();
    if (!right)
        fprintf(stderr, "%s: some bytes arrived wrong\n", command);
    return error || !right ? 1 : 0;
}
