// SPDX-License-Identifier: Apache-2.0
// `verbena perf`: latency, rate and bandwidth of an operation, beside those of what lies below.
#include "cli/perf.h"

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/perf_address.h"
#include "cli/perf_client.h"
#include "cli/perf_plan.h"
#include "cli/perf_report.h"
#include "cli/perf_session.h"
#include "port/faults.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char command[] = "verbena perf";

enum {
    DEPTH = 128,
    LONG_DEPTH = 16, // of long messages: they fill the path with fewer
    LONG_SIZE = 16 << 10,
    GET_DEPTH = 8,
    LOSS_MAX_PPM = 500000,
    MTU_MAX = 4096,
};

#define OPERATIONS "read, write, write_imm, send, cas, fadd, get, idle, raw"

struct fields {
    const char *port;
    const char *service;
    const char *target;
    const char *via;
    const char *collision;
    uint32_t list;
    bool breaks;
    struct vb_sizes sizes;
    uint32_t depth;
    uint32_t qps, active;
    double seconds;
    uint32_t iters;
    uint32_t mtu;
    uint32_t reads;
    const char *faults;
    uint32_t drop_ppm;
    const char *local;
    bool size_is_given;
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
    {"service", NULL, VB_OPTION_TEXT, "rc", "NAME", "rc, uc (send, write, write_imm) or ud (send)",
     FIELD(service), 0, 0},
    {"size", NULL, VB_OPTION_SIZES, NULL, "BYTES",
     "of an operation; K, M; a list gives a row each [64; atomics 8]", FIELD(sizes), 1,
     VB_PERF_SIZE_MAX},
    {"depth", NULL, VB_OPTION_NUMBER, NULL, "N",
     "in flight per queue pair, for the rate [128; 16 from 16K on; get 8]", FIELD(depth), 1,
     VB_PERF_DEPTH_MAX},
    {"qps", NULL, VB_OPTION_NUMBER, "1", "N", "queue pairs, for the rate", FIELD(qps), 1,
     VB_PERF_QPS_MAX},
    {"active", NULL, VB_OPTION_NUMBER, NULL, "N",
     "of these carry traffic, the others are idle [all]", FIELD(active), 1, VB_PERF_QPS_MAX},
    {"seconds", NULL, VB_OPTION_SECONDS, "2", "S", "for latencies, and again for the rate",
     FIELD(seconds), 0, 3600},
    {"iters", NULL, VB_OPTION_NUMBER, NULL, "N", "operations for each, instead of seconds",
     FIELD(iters), 1, 2000000000},
    {"mtu", NULL, VB_OPTION_NUMBER, NULL, "BYTES", "256 to 4096 [the most that the path takes]",
     FIELD(mtu), 256, 4096},
    {"reads", NULL, VB_OPTION_NUMBER, "16", "N", "READs and atomics in flight per queue pair",
     FIELD(reads), 1, 16},
    {"target", NULL, VB_OPTION_TEXT, "poll", "WHAT",
     "the target's program meanwhile: poll, spin, sleep or compute", FIELD(target), 0, 0},
    {"via", NULL, VB_OPTION_TEXT, NULL, "WAY",
     "of get: chain, farm, chase, rpc, rpc-blocking, read or all [all]", FIELD(via), 0, 0},
    {"collision", NULL, VB_OPTION_TEXT, NULL, "HOW",
     "of get: keys in their second bucket; a chain looks seq or par", FIELD(collision), 0, 0},
    {"list", NULL, VB_OPTION_NUMBER, NULL, "N",
     "of get: from lists of 8 nodes, keys in the first N", FIELD(list), 1, VB_PERF_LIST_MAX},
    {"break", NULL, VB_OPTION_FLAG, "0", NULL, "of --list: a chain stops at the key", FIELD(breaks),
     0, 0},
    {"faults", NULL, VB_OPTION_TEXT, NULL, "RULES",
     "faults on purpose at our NIC, as in 'drop=1%,dir=tx;dup=0.1%'", FIELD(faults), 0, 0},
    {"drop", NULL, VB_OPTION_LOSS, "0", "LOSS", "short for --faults drop=LOSS", FIELD(drop_ppm), 0,
     LOSS_MAX_PPM},
    {"local", "address", VB_OPTION_TEXT, NULL, "IP[,IP]",
     "ours, or client's and server's [127.0.0.1,127.0.0.2]", FIELD(local), 0, 0},
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
        "Usage: verbena perf OPERATION [PEER] [options]\n"
        "       verbena perf --listen [options]\n"
        "\n"
        "Measures an operation between two software NICs. Without PEER both run on this machine,\n"
        "in two processes on two cores; with PEER the other one is where 'verbena perf --listen'\n"
        "runs. Latency is measured one operation at a time, from post to completion, in turn with\n"
        "what lies below, on the same cores: raw UDP echoes, by sockets that are not connected\n"
        "(as the NIC's) and with a connected client, or, for shm, the round trip of a cache\n"
        "line. Rate and bandwidth are measured with many in flight. The bytes of every 1000th\n"
        "operation are verified; a difference is exit status 1.\n"
        "\n"
        "  read       RDMA READ: one side fetches, the other's program takes no part\n"
        "  write      RDMA WRITE\n"
        "  write_imm  RDMA WRITE that completes a receive of the other side, too\n"
        "  send       SEND into receives that the other side posts\n"
        "  cas, fadd  compare and swap, fetch and add: 8 bytes of the other side\n"
        "  get        a value of a hash table by its key: --via chain, looked up by a program on\n"
        "             the other NIC; farm, READ of 6 buckets and READ of the value; rpc, by the\n"
        "             other program, which polls, or sleeps (rpc-blocking); read, the value alone\n"
        "             With --list a list is walked; chase, READ of one node after the other\n"
        "  idle       CPU time of two connected NICs that have nothing to do\n"
        "  raw        the yardstick alone: UDP echo, and packets one way in segmented batches;\n"
        "             for shm a cache line, and a copy of 64K messages through a ring\n"
        "\n"
        "Options (each also from the environment, as in VERBENA_SIZE=4K):");
    vb_options_help(&table, stdout);
    puts("\n"
         "Examples:\n"
         "  verbena perf read --size 64\n"
         "  verbena perf write --size 64,4K,64K --seconds 5 --json --port shm\n"
         "  verbena perf send --qps 8 --drop 1%\n"
         "  verbena perf read --qps 16384 --active 1\n"
         "  verbena perf fadd --target sleep\n"
         "  verbena perf get --via all --size 64,4K,64K --json\n"
         "  verbena perf get --list 8 --break\n"
         "  verbena perf --listen                     on one machine, and on another\n"
         "  verbena perf write 192.0.2.7 --size 64K");
}

// The size of rows for which the user gave none.
static uint32_t usual_size(enum vb_perf_op op)
{
    return op == VB_PERF_CAS || op == VB_PERF_FADD ? VB_PERF_ATOMIC_BYTES : 64;
}

// What both sides must know; the options have been checked.
static struct vb_perf_plan make_plan(const struct fields *f, enum vb_perf_op op,
                                     enum vb_perf_port port, uint32_t size, uint32_t mtu)
{
    struct vb_perf_plan plan = {
        .op = op,
        .port = port,
        .size = op == VB_PERF_RAW && port == VB_PERF_SHM ? VB_PERF_COPY_BYTES : size,
        .qps = f->qps,
        .active = f->active ? f->active : f->qps,
        .mtu = mtu,
        .reads = f->reads,
        .list = f->list,
        .breaks = f->breaks,
    };
    plan.depth = f->depth                ? f->depth
                 : op == VB_PERF_GET     ? GET_DEPTH
                 : plan.size < LONG_SIZE ? DEPTH
                                         : LONG_DEPTH;
    plan.raw_size = plan.size < mtu || (op == VB_PERF_RAW && port == VB_PERF_UDP) ? plan.size : mtu;
    (void)vb_perf_service_find(f->service, &plan.service);
    (void)vb_perf_target_find(f->target, &plan.target);
    (void)vb_perf_via_find(f->via != NULL ? f->via : "all", &plan.via);
    (void)vb_perf_collision_find(f->collision != NULL ? f->collision : "none", &plan.collision);
    while (plan.seed == 0 && getrandom(&plan.seed, sizeof plan.seed, 0) != sizeof plan.seed)
        plan.seed = 1;
    plan.seed >>= 12; // exact in JSON readers that know only doubles
    return plan;
}

static int check_names(const struct fields *f)
{
    enum vb_service service;
    enum vb_perf_target target;
    if (strcmp(f->port, "udp") != 0 && strcmp(f->port, "shm") != 0 && strcmp(f->port, "auto") != 0)
        return vb_usage_error(command, "--port: there is no port '%s'; there are udp, shm and auto",
                              f->port);
    if (!vb_perf_service_find(f->service, &service))
        return vb_usage_error(
            command, "--service: there is no service '%s'; there are rc, uc and ud", f->service);
    if (!vb_perf_target_find(f->target, &target))
        return vb_usage_error(command, "--target: '%s' is not one of poll, spin, sleep and compute",
                              f->target);
    return 0;
}

static int check_get(const struct fields *f, enum vb_perf_op op)
{
    enum vb_perf_via via;
    enum vb_perf_collision collision;
    if (op != VB_PERF_GET && (f->via != NULL || f->collision != NULL))
        return vb_usage_error(command, "--via and --collision are for get");
    if (op != VB_PERF_GET && (f->list || f->breaks))
        return vb_usage_error(command, "--list and --break are for get");
    if (f->via != NULL && !vb_perf_via_find(f->via, &via))
        return vb_usage_error(
            command,
            "--via: '%s' is not one of chain, farm, chase, rpc, rpc-blocking, read and all",
            f->via);
    if (f->collision != NULL && !vb_perf_collision_find(f->collision, &collision))
        return vb_usage_error(command, "--collision: '%s' is not one of none, seq and par",
                              f->collision);
    return 0;
}

// Rules for our NIC in `room` bytes at `text`, or NULL.
static int check_faults(const struct fields *f, char *text, size_t room, const char **rules)
{
    char error_text[VB_ERROR_TEXT] = "";
    struct vb_faults *parsed = NULL;
    *rules = f->faults;
    if (f->faults != NULL && f->drop_ppm > 0)
        return vb_usage_error(command, "--drop is short for --faults drop=...; give one of them");
    if (f->drop_ppm > 0) {
        snprintf(text, room, "drop=%uppm;seed=1", f->drop_ppm);
        *rules = text;
    }
    if (*rules == NULL)
        return 0;
    if (vb_faults_parse(*rules, &parsed, error_text) < 0) {
        const char *reason = strncmp(error_text, "faults: ", 8) == 0 ? error_text + 8 : error_text;
        return vb_usage_error(command, "--faults: %s", reason);
    }
    if (vb_faults_rules(parsed) == 0)
        *rules = NULL;
    vb_faults_free(parsed);
    return 0;
}

static int check_plans(const struct fields *f, enum vb_perf_op op)
{
    bool shm = strcmp(f->port, "shm") == 0;
    if (op == VB_PERF_RAW && shm && f->size_is_given)
        return vb_usage_error(command,
                              "--size: raw has none over shm, where it is a cache line and "
                              "a copy of 64K messages");
    for (uint32_t i = 0; i < f->sizes.count; i++) {
        struct vb_perf_plan plan = make_plan(f, op, shm ? VB_PERF_SHM : VB_PERF_UDP,
                                             f->sizes.bytes[i], f->mtu ? f->mtu : MTU_MAX);
        const char *flaw = vb_perf_plan_flaw(&plan);
        if (flaw != NULL)
            return vb_usage_error(command, "%s", flaw);
    }
    return 0;
}

// The operation and the peer; everything that can be wrong before a NIC is opened.
static int check(struct fields *f, const struct vb_options *parsed, enum vb_perf_op *op)
{
    int error = check_names(f);
    if (error)
        return error;
    if (f->listen && parsed->operands)
        return vb_usage_error(command, "--listen takes no operation: the client names it");
    if (f->listen)
        return 0;
    if (parsed->operands == 0)
        return vb_usage_error(command, "which operation? one of " OPERATIONS);
    if (!vb_perf_op_find(parsed->operand[0], op))
        return vb_usage_error(command, "'%s' is not an operation; one of " OPERATIONS,
                              parsed->operand[0]);
    if (parsed->operands > 2)
        return vb_usage_error(command, "one word too many: '%s'", parsed->operand[2]);
    f->size_is_given = f->sizes.count > 0;
    if (!f->size_is_given)
        f->sizes = (struct vb_sizes){1, {usual_size(*op)}};
    error = check_get(f, *op);
    if (!error)
        error = check_plans(f, *op);
    if (error)
        return error;
    struct vb_perf_addresses unused;
    char why[VB_PERF_WHY];
    if (vb_perf_addresses_parse(f->local, parsed->operands < 2, &unused, why) < 0)
        return vb_usage_error(command, "%s", why);
    return 0;
}

static int measure_row(struct vb_perf_session *s, const struct fields *f,
                       const struct vb_perf_plan *plan, struct vb_perf_row *row)
{
    struct vb_perf_length length = {.seconds = f->seconds, .iters = f->iters};
    struct vb_progress progress;
    const char *flaw = vb_perf_plan_flaw(plan); // now that the MTU is known
    if (flaw != NULL)
        return vb_perf_fail(s->why, "%s (here %u)", flaw, plan->mtu);
    vb_progress_init(&progress, f->iters ? 1e9 : 2 * f->seconds);
    return vb_perf_measure(s, plan, &length, &progress, row);
}

static int measure_all(struct vb_perf_session *s, const struct fields *f, enum vb_perf_op op)
{
    struct vb_perf_row rows[VB_SIZES_MAX];
    struct vb_perf_machine machine;
    uint32_t most = vb_perf_session_mtu(s);
    uint32_t mtu = f->mtu ? f->mtu : most;
    if (mtu > most)
        return vb_perf_fail(s->why, "--mtu %u does not fit the path; at most %u", mtu, most);
    vb_perf_machine_find(&machine, s->cores, s->yield);
    if (!f->json)
        vb_perf_report_head(stdout, &machine);
    for (uint32_t i = 0; i < f->sizes.count; i++) {
        struct vb_perf_plan plan = make_plan(f, op, s->port, f->sizes.bytes[i], mtu);
        if (measure_row(s, f, &plan, &rows[i]) < 0)
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

static int run(const struct fields *f, const struct vb_options *parsed, enum vb_perf_op op,
               const char *faults)
{
    struct vb_perf_session_opts opts = {
        .local = f->local,
        .no_pin = f->no_pin,
        .port = f->port,
        .faults = faults,
        .control_port = (uint16_t)f->control,
    };
    if (f->listen)
        return vb_perf_listen(&opts, f->once);
    struct vb_perf_session s;
    int error = parsed->operands == 2 ? vb_perf_session_remote(&s, &opts, parsed->operand[1])
                                      : vb_perf_session_local(&s, &opts);
    if (!error) {
        error = measure_all(&s, f, op);
        vb_perf_session_close(&s);
    }
    if (error)
        fprintf(stderr, "%s: %s\n", command, s.why);
    return error ? 1 : 0;
}

int vb_cli_perf(int argc, char **argv)
{
    struct fields f = {0};
    struct vb_options parsed;
    enum vb_perf_op op = VB_PERF_READ;
    char drop[64];
    const char *faults;
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
    if (!error)
        error = check_faults(&f, drop, sizeof drop, &faults);
    return error ? error : run(&f, &parsed, op, faults);
}
