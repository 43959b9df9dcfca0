// SPDX-License-Identifier: Apache-2.0
// `verbena perf`: latency, rate and bandwidth of an operation, beside those of a raw UDP socket.
#include "cli/perf.h"

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/perf_address.h"
#include "cli/perf_client.h"
#include "cli/perf_pattern.h"
#include "cli/perf_report.h"
#include "cli/perf_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char command[] = "verbena perf";

enum {
    DEPTH = 128,
    LONG_DEPTH = 16, // of long messages: they fill the path with fewer
    LONG_SIZE = 16 << 10,
    LOSS_MAX_PPM = 500000,
    MEMORY_MAX_MB = 2048,
};

struct fields {
    const char *port;
    struct vb_sizes sizes;
    uint32_t depth;
    uint32_t qps;
    double seconds;
    uint32_t iters;
    uint32_t mtu;
    uint32_t reads;
    const char *faults;
    uint32_t drop_ppm;
    const char *local;
    bool no_pin;
    bool listen;
    bool once;
    uint32_t control;
    bool json;
    bool print_config;
};

#define FIELD(name) offsetof(struct fields, name)

static const struct vb_option options[] = {
    {"port", NULL, VB_OPTION_TEXT, "udp", "NAME", "what carries the packets: udp, shm or auto",
     FIELD(port), 0, 0},
    {"size", NULL, VB_OPTION_SIZES, "64", "BYTES", "of an operation; K, M; a list gives a row each",
     FIELD(sizes), 1, VB_PERF_SIZE_MAX},
    {"depth", NULL, VB_OPTION_NUMBER, NULL, "N",
     "in flight per queue pair, for the rate [128; 16 from 16K on]", FIELD(depth), 1,
     VB_PERF_DEPTH_MAX},
    {"qps", NULL, VB_OPTION_NUMBER, "1", "N", "queue pairs, for the rate", FIELD(qps), 1,
     VB_PERF_QPS_MAX},
    {"seconds", NULL, VB_OPTION_SECONDS, "2", "S", "for latencies, and again for the rate",
     FIELD(seconds), 0, 3600},
    {"iters", NULL, VB_OPTION_NUMBER, NULL, "N", "operations for each, instead of seconds",
     FIELD(iters), 1, 2000000000},
    {"mtu", NULL, VB_OPTION_NUMBER, NULL, "BYTES", "256 to 4096 [the most that the path takes]",
     FIELD(mtu), 256, 4096},
    {"reads", NULL, VB_OPTION_NUMBER, "16", "N", "READs in flight per queue pair", FIELD(reads), 1,
     16},
    {"faults", NULL, VB_OPTION_TEXT, NULL, "RULES",
     "faults on purpose at the client, as in drop=1%,dir=tx;dup=0.1%", FIELD(faults), 0, 0},
    {"drop", NULL, VB_OPTION_LOSS, "0", "LOSS", "short for --faults drop=LOSS", FIELD(drop_ppm), 0,
     LOSS_MAX_PPM},
    {"local", "address", VB_OPTION_TEXT, NULL, "IP[,IP]",
     "our address, or client's and server's [127.0.0.1,127.0.0.2]", FIELD(local), 0, 0},
    {"no-pin", NULL, VB_OPTION_FLAG, "0", NULL, "do not pin the two processes to cores",
     FIELD(no_pin), 0, 0},
    {"listen", NULL, VB_OPTION_FLAG, "0", NULL, "serve clients from other machines", FIELD(listen),
     0, 0},
    {"once", NULL, VB_OPTION_FLAG, "0", NULL, "with --listen: only one client", FIELD(once), 0, 0},
    {"control", NULL, VB_OPTION_NUMBER, "18516", "PORT", "TCP port of --listen", FIELD(control), 1,
     65535},
    {"json", NULL, VB_OPTION_FLAG, "0", NULL, "one JSON object per row", FIELD(json), 0, 0},
    {"print-config", NULL, VB_OPTION_FLAG, "0", NULL,
     "print effective values and where they came from", FIELD(print_config), 0, 0},
};

static const struct vb_option_table table = {command, options, sizeof options / sizeof *options};

static void print_help(void)
{
    puts(
        "Usage: verbena perf read|write|send|raw [PEER] [options]\n"
        "       verbena perf --listen [options]\n"
        "\n"
        "Measures an operation between two software NICs. Without PEER both run on this machine,\n"
        "in two processes on two cores; with PEER the other one is where 'verbena perf --listen'\n"
        "runs. Latency is measured one operation at a time, from post to completion, in turn with\n"
        "a raw UDP echo on the same cores; rate and bandwidth with many in flight. The bytes of\n"
        "every 1000th operation are verified at the target; a difference is exit status 1.\n"
        "\n"
        "  read    RDMA READ: one side fetches, the other's program takes no part\n"
        "  write   RDMA WRITE\n"
        "  send    SEND into receives that the other side posts\n"
        "  raw     the yardstick alone: UDP echo, and packets one way in segmented batches\n"
        "\n"
        "Options (each also from the environment, as in VERBENA_SIZE=4K):");
    vb_options_help(&table, stdout);
    puts("\n"
         "Examples:\n"
         "  verbena perf read --size 64\n"
         "  verbena perf write --size 64,4K,64K --seconds 5 --json\n"
         "  verbena perf send --qps 8 --drop 1%\n"
         "  verbena perf --listen                     on one machine, and on another\n"
         "  verbena perf write 192.0.2.7 --size 64K");
}

const char *vb_perf_op_name(enum vb_perf_op op)
{
    static const char *const names[] = {"read", "write", "send", "raw"};
    return op < VB_PERF_OPS ? names[op] : "unknown";
}

const char *vb_perf_plan_flaw(const struct vb_perf_plan *p)
{
    if (p->op >= VB_PERF_OPS)
        return "no such operation; one of read, write, send, raw";
    if (p->size < 1 || p->size > VB_PERF_SIZE_MAX)
        return "--size must be 1 to 256M";
    if (p->op == VB_PERF_RAW && p->size > VB_PERF_RAW_MAX)
        return "--size must be at most 65000 for raw, which sends datagrams";
    if (p->depth < 1 || p->depth > VB_PERF_DEPTH_MAX)
        return "--depth must be 1 to 4096";
    if (p->qps < 1 || p->qps > VB_PERF_QPS_MAX)
        return "--qps must be 1 to 64";
    if (p->mtu < 256 || p->mtu > 4096 || (p->mtu & (p->mtu - 1)))
        return "--mtu must be 256, 512, 1024, 2048 or 4096";
    if (p->reads < 1 || p->reads > 16)
        return "--reads must be 1 to 16";
    if (p->raw_size < 1 || p->raw_size > VB_PERF_RAW_MAX)
        return "the echo must be 1 to 65000 bytes long";
    struct vb_perf_layout l = vb_perf_layout_of(p);
    // A slot must not be used again while its operation may still be in flight.
    if (p->depth >= VB_PERF_VERIFY_EVERY * (l.slots - 1))
        return "--depth must be below 1000 for messages as long as these";
    if (p->op != VB_PERF_RAW && l.total >> 20 > MEMORY_MAX_MB)
        return "--size times --qps needs more than 2G of memory";
    return NULL;
}

static struct vb_perf_plan make_plan(const struct fields *f, enum vb_perf_op op, uint32_t size,
                                     uint32_t mtu)
{
    struct vb_perf_plan plan = {
        .op = op,
        .size = size,
        .depth = f->depth           ? f->depth
                 : size < LONG_SIZE ? DEPTH
                                    : LONG_DEPTH,
        .qps = f->qps,
        .mtu = mtu,
        .reads = f->reads,
        .raw_size = op == VB_PERF_RAW || size < mtu ? size : mtu,
    };
    while (plan.seed == 0 && getrandom(&plan.seed, sizeof plan.seed, 0) != sizeof plan.seed)
        plan.seed = 1;
    plan.seed >>= 12; // exact in JSON readers that know only doubles
    return plan;
}

// The operation, the peer and the port; everything that can be wrong before a NIC is opened.
static int check(const struct fields *f, const struct vb_options *parsed, enum vb_perf_op *op)
{
    if (strcmp(f->port, "udp") != 0 && strcmp(f->port, "shm") != 0 && strcmp(f->port, "auto") != 0)
        return vb_usage_error(command, "--port: there is no port '%s'; there are udp, shm and auto",
                              f->port);
    if (f->listen && parsed->operands)
        return vb_usage_error(command, "--listen takes no operation: the client names it");
    if (f->listen)
        return 0;
    if (parsed->operands == 0)
        return vb_usage_error(command, "which operation? one of read, write, send, raw");
    for (*op = VB_PERF_READ; *op < VB_PERF_OPS; ++*op) {
        if (strcmp(parsed->operand[0], vb_perf_op_name(*op)) == 0)
            break;
    }
    if (*op == VB_PERF_OPS)
        return vb_usage_error(command, "'%s' is not an operation; one of read, write, send, raw",
                              parsed->operand[0]);
    if (parsed->operands > 2)
        return vb_usage_error(command, "one word too many: '%s'", parsed->operand[2]);
    for (uint32_t i = 0; i < f->sizes.count; i++) {
        struct vb_perf_plan plan = make_plan(f, *op, f->sizes.bytes[i], f->mtu ? f->mtu : 4096);
        const char *flaw = vb_perf_plan_flaw(&plan);
        if (flaw != NULL)
            return vb_usage_error(command, "%s", flaw);
    }
    struct vb_perf_addresses unused;
    char why[VB_PERF_WHY];
    if (vb_perf_addresses_parse(f->local, parsed->operands < 2, &unused, why) < 0)
        return vb_usage_error(command, "%s", why);
    return 0;
}

static int measure_all(struct vb_perf_session *s, const struct fields *f, enum vb_perf_op op)
{
    struct vb_perf_row rows[VB_SIZES_MAX];
    struct vb_perf_machine machine;
    struct vb_perf_length length = {.seconds = f->seconds, .iters = f->iters};
    uint32_t most = vb_perf_path_mtu(vb_perf_nic_ip(s->nic), s->peer_ip);
    uint32_t mtu = f->mtu ? f->mtu : most;
    if (mtu > most)
        return vb_perf_fail(s->why, "--mtu %u does not fit the path; at most %u", mtu, most);
    vb_perf_machine_find(&machine, s->cores, s->yield);
    if (!f->json)
        vb_perf_report_head(stdout, &machine);
    for (uint32_t i = 0; i < f->sizes.count; i++) {
        struct vb_perf_plan plan = make_plan(f, op, f->sizes.bytes[i], mtu);
        struct vb_progress progress;
        vb_progress_init(&progress, f->iters ? 1e9 : 2 * f->seconds);
        if (vb_perf_measure(s, &plan, &length, &progress, &rows[i]) < 0)
            return -1;
        if (f->json)
            vb_perf_report_json(stdout, &rows[i], &machine);
        else
            vb_perf_report_row(stdout, &rows[i]);
    }
    if (!f->json)
        vb_perf_report_foot(stdout, rows, f->sizes.count);
    return 0;
}

int vb_cli_perf(int argc, char **argv)
{
    struct fields f = {0};
    struct vb_options parsed;
    enum vb_perf_op op = VB_PERF_READ;
    int error = vb_options_parse(&table, argc, argv, &f, &parsed);
    if (error)
        return error;
    if (parsed.help) {
        print_help();
        return 0;
    }
    if (f.print_config) {
        vb_options_print(&table, &parsed, stdout);
        return 0;
    }
    error = check(&f, &parsed, &op);
    if (error)
        return error;
    char drop[64];
    const char *faults = f.faults;
    if (!faults && f.drop_ppm > 0) {
        snprintf(drop, sizeof drop, "drop=%uppm;seed=1", f.drop_ppm);
        faults = drop;
    }
    struct vb_perf_session_opts opts = {
        .local = f.local,
        .no_pin = f.no_pin,
        .port = f.port,
        .faults = faults,
        .control_port = (uint16_t)f.control,
    };
    if (f.listen)
        return vb_perf_listen(&opts, f.once);
    struct vb_perf_session s;
    error = parsed.operands == 2 ? vb_perf_session_remote(&s, &opts, parsed.operand[1])
                                 : vb_perf_session_local(&s, &opts);
    if (!error) {
        error = measure_all(&s, &f, op);
        vb_perf_session_close(&s);
    }
    if (error)
        fprintf(stderr, "%s: %s\n", command, s.why);
    return error ? 1 : 0;
}
