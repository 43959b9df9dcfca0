// SPDX-License-Identifier: Apache-2.0
// hull_lat [--reads N] [--rounds N] [--port auto|udp|shm] [--json]: what it costs that a NIC is in
// a process of its own. A READ of 64 bytes between two queue pairs of one NIC, with the NIC in this
// process and in a hull, and beside them a cache line that goes round between the same two cores.
// The three take turns, and each round gives one ratio: how many cache line round trips the hull
// adds. Exit status: 0 at most two in the median round, 1 more.
#include "base/hist.h"
#include "hull/hull.h"
#include "port/clock.h"
#include "verbena/nic.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BYTES = 64,
    MEMORY = 4096,
    ROUNDS_MAX = 99,
    BATCH = 16,  // operations between two looks at the clock
    APART = 128, // two lines: processors fetch pairs
    WARM = 1024, // of each round, not counted
    LIMIT = 2,   // cache lines
};

#define OVER UINT64_MAX

struct options {
    uint64_t reads, rounds;
    const char *port;
    bool json;
};

// What this process and the hull's share besides the contract.
struct lines {
    alignas(APART) _Atomic uint64_t ping;
    alignas(APART) _Atomic uint64_t pong;
};

struct end {
    struct vb_nic *nic;
    struct vb_cq *cq;
    struct vb_qp *qp[2];
    struct vb_mr *mr;
    uint8_t *memory;
};

struct round {
    double line_ns, inside_ns, attached_ns;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "hull_lat: %s: %s\n", what, why);
    exit(2);
}

static void check(const char *what, int error)
{
    if (error < 0)
        give_up(what, strerror(-error));
}

// ---- the hull's process

// Sends lines back until told that it is over.
static void echo(struct lines *l)
{
    uint64_t ping, seen = OVER;

    while ((ping = atomic_load_explicit(&l->ping, memory_order_acquire)) != OVER) {
        if (ping != seen)
            atomic_store_explicit(&l->pong, ping, memory_order_release);
        seen = ping;
    }
}

static void configure(struct vb_hull_config *config, const struct options *o, pid_t pid)
{
    struct vb_hull_nic_config *nic = &config->nic[0];

    vb_hull_config_init(config);
    snprintf(nic->name, sizeof nic->name, "lat%d", (int)pid);
    snprintf(nic->address, sizeof nic->address, "127.%u.%u.1", 64 + ((unsigned)pid >> 8 & 63),
             (unsigned)pid & 255);
    snprintf(nic->port, sizeof nic->port, "%s", o->port);
    nic->spin_us = 1000;
}

// A byte in: echo. The end: it is over.
static _Noreturn void serve(const struct options *o, struct lines *l, int in, int out, pid_t parent)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char error[VB_ERROR_TEXT] = "", byte = 0;
    struct vb_hull *hull;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!config)
        give_up("the hull", "no memory");
    configure(config, o, parent);
    if (vb_hull_open(config, 0, &hull, error) != 0)
        give_up("the hull", error);
    (void)!write(out, &byte, 1);
    while (read(in, &byte, 1) == 1) {
        echo(l);
        (void)!write(out, &byte, 1);
    }
    vb_hull_close(hull);
    exit(0);
}

// ---- cache lines

// The middle of many batches: what interrupts one of them does not count.
struct watch {
    struct vb_hist hist;
    uint64_t begin_ns, done;
};

static void start(struct watch *w)
{
    vb_hist_init(&w->hist);
    w->done = 0;
}

// One more is done.
static void tick(struct watch *w)
{
    if (++w->done < WARM || w->done % BATCH)
        return;
    uint64_t now = vb_clock_ns();
    if (w->done >= WARM + BATCH)
        vb_hist_record(&w->hist, now - w->begin_ns);
    w->begin_ns = now;
}

static double middle_ns(const struct watch *w)
{
    return (double)vb_hist_quantile(&w->hist, 0.5) / BATCH;
}

static double go_round(struct lines *l, uint64_t times)
{
    struct watch w;

    start(&w);
    for (uint64_t number = 1; number <= times + WARM; number++) {
        atomic_store_explicit(&l->ping, number, memory_order_release);
        while (atomic_load_explicit(&l->pong, memory_order_acquire) != number)
            ;
        tick(&w);
    }
    return middle_ns(&w);
}

static double measure_line(struct lines *l, uint64_t times, int in, int out)
{
    char byte = 0;

    atomic_store(&l->ping, 0);
    if (write(out, &byte, 1) != 1)
        give_up("the hull", "it is gone");
    double ns = go_round(l, times);
    atomic_store_explicit(&l->ping, OVER, memory_order_release);
    if (read(in, &byte, 1) != 1)
        give_up("the hull", "it is gone");
    return ns;
}

// ---- READs

static void connect_to(struct end *e, uint32_t from, uint32_t to)
{
    struct vb_qp_peer peer = {.qpn = vb_qp_num(e->qp[to]),
                              .rights = VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_WRITE};

    vb_nic_gid(e->nic, peer.gid);
    check("connecting", vb_qp_connect(e->qp[from], &peer));
}

static void open_end(struct end *e, const struct vb_nic_opts *opts)
{
    char error[VB_ERROR_TEXT] = "";
    struct vb_nic_opts all = *opts;
    struct vb_pd *pd;
    void *memory = NULL;

    all.error_text = error;
    if (vb_nic_open(&all, &e->nic) != 0)
        give_up("cannot open the NIC", error);
    if (opts->hull)
        check("memory", vb_hull_alloc(e->nic, NULL, MEMORY, &memory));
    else if (!(memory = aligned_alloc(MEMORY, MEMORY)))
        give_up("memory", "none");
    e->memory = memset(memory, 1, MEMORY);
    check("a domain", vb_pd_alloc(e->nic, &pd));
    check("a region",
          vb_mr_reg(pd, memory, MEMORY,
                    VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_WRITE, &e->mr));
    check("a completion queue", vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 64}, &e->cq));
    for (uint32_t i = 0; i < 2; i++)
        check("a queue pair",
              vb_qp_create(
                  pd, &(struct vb_qp_opts){.send_cq = e->cq, .recv_cq = e->cq, .send_depth = 8},
                  &e->qp[i]));
    connect_to(e, 0, 1);
    connect_to(e, 1, 0);
}

static void read_once(struct end *e, const struct vb_send_wr *wr)
{
    struct vb_wc wc;
    int n;

    if (vb_post_send(e->qp[0], wr, 1) != 1)
        give_up("READ", "the queue is full");
    while ((n = vb_poll_cq(e->cq, &wc, 1)) == 0)
        ;
    if (n < 0 || wc.status != VB_WC_OK)
        give_up("READ", n < 0 ? strerror(-n) : vb_wc_status_text(wc.status));
}

static double measure_reads(struct end *e, uint64_t reads)
{
    struct vb_sge sge = {(uintptr_t)e->memory, BYTES, vb_mr_key(e->mr)};
    const struct vb_send_wr wr = {.opcode = VB_WR_READ,
                                  .flags = VB_WR_SIGNALED,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .raddr = (uintptr_t)e->memory + MEMORY / 2,
                                  .rkey = vb_mr_key(e->mr)};
    struct watch w;

    start(&w);
    for (uint64_t i = 0; i < reads + WARM; i++) {
        read_once(e, &wr);
        tick(&w);
    }
    return middle_ns(&w);
}

// ---- the report

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort(double *values, uint64_t n)
{
    qsort(values, n, sizeof *values, by_value);
}

static int report(const struct options *o, const struct round *rounds)
{
    double v[4][ROUNDS_MAX];
    uint64_t n = o->rounds;
    static const char *const names[] = {"cache line round trip, ns", "READ 64 B in process, ns",
                                        "READ 64 B attached, ns", "cache lines that the hull adds"};
    static const char *const keys[] = {"line_ns", "inside_ns", "attached_ns", "lines"};

    for (uint64_t i = 0; i < n; i++) {
        v[0][i] = rounds[i].line_ns;
        v[1][i] = rounds[i].inside_ns;
        v[2][i] = rounds[i].attached_ns;
        v[3][i] = (rounds[i].attached_ns - rounds[i].inside_ns) / rounds[i].line_ns;
    }
    for (uint32_t k = 0; k < 4; k++)
        sort(v[k], n);
    bool kept = v[3][n / 2] <= LIMIT;
    if (!o->json)
        printf("| %" PRIu64 " rounds of %" PRIu64 ", port %s | median | range | limit | kept |\n"
               "|---|---|---|---|---|\n",
               n, o->reads, o->port);
    for (uint32_t k = 0; k < 4; k++) {
        if (o->json)
            printf("%s\"%s\":{\"median\":%.2f,\"least\":%.2f,\"most\":%.2f}", k ? "," : "{",
                   keys[k], v[k][n / 2], v[k][0], v[k][n - 1]);
        else
            printf("| %s | %.2f | %.2f to %.2f | %s | %s |\n", names[k], v[k][n / 2], v[k][0],
                   v[k][n - 1], k == 3 ? "≤ 2" : "",
                   k < 3  ? ""
                   : kept ? "yes"
                          : "no");
    }
    if (o->json)
        printf("}\n");
    return !kept;
}

static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (*end || value < 1 || value > most) {
        fprintf(stderr, "hull_lat: '%s': give a number from 1 to %" PRIu64 "\n", text, most);
        exit(2);
    }
    return value;
}

static struct options parse(int argc, char **argv)
{
    static const struct option known[] = {{"reads", required_argument, NULL, 'r'},
                                          {"rounds", required_argument, NULL, 'n'},
                                          {"port", required_argument, NULL, 'p'},
                                          {"json", no_argument, NULL, 'j'},
                                          {0}};
    struct options o = {.reads = 200000, .rounds = 9, .port = "auto"};
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'r': o.reads = number(optarg, 1u << 30); break;
        case 'n': o.rounds = number(optarg, ROUNDS_MAX); break;
        case 'p': o.port = optarg; break;
        case 'j': o.json = true; break;
        default: exit(2);
        }
    }
    return o;
}

int main(int argc, char **argv)
{
    const struct options o = parse(argc, argv);
    struct lines *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    struct round rounds[ROUNDS_MAX];
    struct end inside, attached;
    int to[2], from[2], status;
    pid_t self = getpid();
    char address[32], name[32], byte;

    if (l == MAP_FAILED || pipe(to) != 0 || pipe(from) != 0)
        give_up("set-up", "no memory or descriptors");
    pid_t hull = fork();
    if (hull == 0) {
        close(to[1]);
        close(from[0]);
        serve(&o, l, to[0], from[1], self);
    }
    close(to[0]);
    close(from[1]);
    if (hull < 0 || read(from[0], &byte, 1) != 1)
        give_up("the hull", "it did not start");
    snprintf(address, sizeof address, "127.%u.%u.2", 64 + ((unsigned)self >> 8 & 63),
             (unsigned)self & 255);
    snprintf(name, sizeof name, "lat%d", (int)self);
    open_end(&inside, &(struct vb_nic_opts){.address = address, .port = o.port});
    open_end(&attached, &(struct vb_nic_opts){.hull = name});
    for (uint64_t i = 0; i < o.rounds; i++) {
        rounds[i].inside_ns = measure_reads(&inside, o.reads);
        rounds[i].line_ns = measure_line(l, o.reads, from[0], to[1]);
        rounds[i].attached_ns = measure_reads(&attached, o.reads);
    }
    vb_nic_close(attached.nic);
    vb_nic_close(inside.nic);
    close(to[1]);
    if (waitpid(hull, &status, 0) != hull || status != 0)
        give_up("the hull", "it did not end well");
    return report(&o, rounds);
}
