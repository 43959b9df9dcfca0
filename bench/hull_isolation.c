// SPDX-License-Identifier: Apache-2.0
// hull_isolation [--rounds N] [--ms N] [--weight N] [--port auto|udp|shm] [--together] [--json]:
// how long a tenant's READs of 64 bytes take in a hull's thread, alone, beside three well-behaved
// tenants that are always busy, and beside three hostile ones: one runs programs without an end and
// floods its queues with WRITEs, one writes garbage into its rings, records and bells, one floods
// its queues with READs. All have the shares that they would have as users of their own; with
// --together they are one.
//
// The hull is a process with one runnable thread, on a core that this process leaves to it; this
// one with another is the hosts of all tenants, and by a NIC of its own their peers: so on a
// machine with two cores nothing waits for one. Service is the processor time of the hull's thread:
// from the look at the bells that finds the READ's to the request's packet, and from the look
// before the answer is taken to its completion. The whole is real time from the bell to the
// completion, with a peer that is busy for all tenants.
//
// Times judge nothing. What is judged is the work of other tenants that a READ waits for, counted
// in the hull's thread from the records of steps (hull_watch.h): each half of a READ, and each of
// the unit's turns meanwhile, has a limit that docs/hull.md derives. Exit status: 0 all are within
// it, 1 one is not.
#include "bench/hull_watch.h"

#include "base/hist.h"
#include "host/attach.h"
#include "hull/hull.h"
#include "sim/tenant_world.h"

#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TENANTS = 4, // the first is the one that is measured
    READ_BYTES = 64,
    THINK_NS = 20 * 1000, // between two READs, in the mean
    WARM_NS = 5 * 1000 * 1000,
    PATIENCE_S = 20,    // for one READ, and for READS_MIN that can be judged
    PROBE_TIMEOUT = 17, // 0.5 s, seven times: its peer's thread may not run for that long
    CQ_ENTRIES = 4096,
    ROUNDS_MAX = 99,
    READS_MIN = 16, // of a company in a round, however long they take
    HEAL = 8,       // in so many READs one that fuzzes looks whether a queue pair has failed
    RIGHTS = VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_ATOMIC,
};

enum company {
    ALONE,
    QUIET,
    HOSTILE,
    COMPANIES,
    NOT_COUNTED = COMPANIES,
};

static const char *const company_name[COMPANIES] = {"alone", "quiet", "hostile"};
static const enum vb_tenant_kind company_kind[COMPANIES][TENANTS - 1] = {
    [QUIET] = {VB_TENANT_BUSY, VB_TENANT_BUSY, VB_TENANT_BUSY},
    [HOSTILE] = {VB_TENANT_CHAIN, VB_TENANT_FUZZ, VB_TENANT_PULL},
};

enum span {
    SERVICE,
    WHOLE,
    SPANS,
};

static_assert((int)TENANTS == WATCHED, "all are watched");

static const char *const part_name[WATCH_PARTS] = {"request", "answer", "turn"};
static const char *const span_name[SPANS] = {"in the hull", "as a whole"};
static const char *const span_key[SPANS] = {"service", "whole"};

enum {
    QUANTILES = 3,
};

static const double quantile[QUANTILES] = {0.5, 0.99, 0.999};
static const char *const quantile_name[QUANTILES] = {"p50", "p99", "p99.9"};
static const char *const quantile_key[QUANTILES] = {"p50_ns", "p99_ns", "p999_ns"};

struct options {
    uint64_t rounds, ms, weight;
    const char *port;
    bool together, json;
};

// What both processes write and read, besides the contract.
struct board {
    _Atomic uint32_t qpn;               // of the READs
    _Atomic uint32_t company;           // beside whom it is now
    _Atomic uint32_t loop[WATCH_LOOPS]; // queue pairs of programs; 0: none
    _Atomic uint64_t rung_ns;           // when the bell was rung
    _Atomic uint64_t asked;             // READs whose bells were rung
    // The hull's: READs that were judged, and the most work of others in parts of one.
    _Atomic uint64_t judged[COMPANIES + 1], most[COMPANIES + 1][WATCH_PARTS];
    struct vb_hist hist[COMPANIES + 1][SPANS];
    struct hull_watch watch; // which no other process touches
};

struct round {
    uint64_t reads[COMPANIES];
    double ns[COMPANIES][SPANS][QUANTILES];
};

// What the hostile ones have done in all.
struct deeds {
    uint64_t entries, writes, strokes, reads;
};

// A tenant, and what it has of the peers' NIC.
struct tenant {
    struct vb_nic *nic, *far_nic;
    struct vb_pd *pd, *far_pd;
    struct vb_mr *mr, *far_mr;
    uint8_t *memory, *far_memory;
    struct vb_cq *cq, *far_cq;
    struct vb_qp *qp[VB_TENANT_QPS], *far[VB_TENANT_QPS];
    struct vb_tenant_work work;
    uint64_t made; // when it came
};

struct bench {
    struct options options;
    struct board *board;
    struct tenant tenant[TENANTS];
    struct vb_nic *far_nic;
    struct vb_prng prng;
    struct round round[ROUNDS_MAX];
    struct deeds deeds;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "hull_isolation: %s: %s\n", what, why);
    exit(2);
}

static void check(const char *what, int error)
{
    if (error < 0)
        give_up(what, strerror(-error));
}

// ---- the hull's process

static void note(struct board *b, uint32_t company)
{
    const struct hull_watch *w = &b->watch;
    const struct watch_half *request = &w->half[WATCH_REQUEST], *answer = &w->half[WATCH_ANSWER];
    const uint64_t work[WATCH_PARTS] = {request->work, answer->work, w->turn_work};

    vb_hist_record(&b->hist[company][WHOLE], vb_clock_ns() - atomic_load(&b->rung_ns));
    if (request->timed && answer->timed)
        vb_hist_record(&b->hist[company][SERVICE], request->cpu_ns + answer->cpu_ns);
    if (!request->judged || !answer->judged)
        return;
    for (uint32_t i = 0; i < WATCH_PARTS; i++)
        if (work[i] > atomic_load(&b->most[company][i]))
            atomic_store(&b->most[company][i], work[i]);
    atomic_fetch_add(&b->judged[company], 1);
}

static void saw(void *ctx, const struct vb_step *step)
{
    struct board *b = ctx;

    if (watch_saw(&b->watch, step))
        note(b, atomic_load_explicit(&b->company, memory_order_relaxed));
}

static void looks(void *ctx)
{
    struct board *b = ctx;
    struct hull_watch *w = &b->watch;

    w->qpn = atomic_load_explicit(&b->qpn, memory_order_relaxed);
    for (uint32_t i = 0; i < WATCH_LOOPS; i++)
        w->loop[i] = atomic_load_explicit(&b->loop[i], memory_order_relaxed);
    watch_looks(w, atomic_load_explicit(&b->asked, memory_order_acquire));
}

static void watch(struct board *b, struct vb_hull *hull)
{
    uint32_t n = 0;

    b->watch.hull = hull;
    for (struct vb_link *l = hull->clients.head.next; l != &hull->clients.head; l = l->next)
        b->watch.client[n++] = VB_CONTAINER_OF(l, struct vb_hull_client, link);
    vb_pu_listen(hull->lane->pu, saw, b);
    hull->unit[0].looks = looks;
    hull->unit[0].looks_ctx = b;
}

// The hull's core; -1: this process has only one.
static int part_cores(cpu_set_t *others)
{
    int core = CPU_SETSIZE - 1;

    if (sched_getaffinity(0, sizeof *others, others) < 0 || CPU_COUNT(others) < 2)
        return -1;
    while (!CPU_ISSET(core, others))
        core--;
    CPU_CLR(core, others);
    return core;
}

static struct vb_hull *open_hull(const struct options *o, pid_t pid, int core)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char text[512], cpu[32] = "", error[VB_ERROR_TEXT] = "";
    struct vb_hull *hull;

    if (!config)
        give_up("the hull", "no memory");
    if (core >= 0)
        snprintf(cpu, sizeof cpu, "cpu = %d\n", core);
    snprintf(text, sizeof text,
             "[nic isolation%d]\naddress = 127.%u.%u.1\nport = %s\nspin_us = 1000\n%s"
             "[tenant %u]\nweight = %" PRIu64 "\n",
             (int)pid, 64 + ((unsigned)pid >> 8 & 63), (unsigned)pid & 255, o->port, cpu,
             (unsigned)geteuid(), o->weight);
    if (vb_hull_config_parse(text, (uint32_t)strlen(text), config, error) != 0)
        give_up("the hull", error);
    config->nic[0].no_thread = true;
    if (vb_hull_open(config, 0, &hull, error) != 0)
        give_up("the hull", error);
    free(config);
    return hull;
}

// All are this user's, who has no others' names: so each but the first becomes somebody else's
// before it has anything.
static void tell_apart(struct vb_hull *hull)
{
    uid_t uid = geteuid();

    for (struct vb_link *l = hull->clients.head.next; l != &hull->clients.head; l = l->next) {
        struct vb_hull_client *client = VB_CONTAINER_OF(l, struct vb_hull_client, link);
        struct vb_hull_tenant *from = client->tenant, *to = vb_hull_tenant_of(hull, uid++);
        if (!to || from->used.memories || from->used.bytes || from->used.queues)
            give_up("tenants", "they cannot be told apart");
        from->used.applications--;
        to->used.applications++;
        client->tenant = to;
    }
}

// A byte in: all have attached. The end: it is over.
static _Noreturn void serve(const struct options *o, struct board *b, int in, int out, pid_t parent)
{
    struct pollfd attached = {.fd = in, .events = POLLIN};
    cpu_set_t others;
    char byte = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct vb_hull *hull = open_hull(o, parent, part_cores(&others));
    (void)!write(out, &byte, 1);
    while (poll(&attached, 1, 0) == 0)
        vb_hull_turn(hull);
    if (read(in, &byte, 1) != 1)
        exit(2); // the other one has given up
    if (!o->together)
        tell_apart(hull);
    watch(b, hull);
    char error[VB_ERROR_TEXT];
    hull->config.no_thread = false;
    if (vb_hull_units_start(hull, error) != 0)
        give_up("the hull", error);
    (void)!write(out, &byte, 1);
    (void)!read(in, &byte, 1);
    vb_hull_close(hull);
    exit(0);
}

// ---- tenants

static void attach(struct tenant *t, const char *name)
{
    char error[VB_ERROR_TEXT] = "";

    if (vb_nic_open(&(struct vb_nic_opts){.hull = name, .error_text = error}, &t->nic) != 0)
        give_up("cannot attach", error);
}

static struct vb_mr *add_region(struct vb_pd *pd, void *memory)
{
    const struct vb_mr_opts opts = {.addr = memset(memory, 0, VB_TENANT_MEMORY),
                                    .len = VB_TENANT_MEMORY,
                                    .rights = RIGHTS | VB_RIGHT_LOCAL_WRITE,
                                    .other_start = true,
                                    .start = VB_TENANT_PLACE};
    struct vb_mr *mr;

    check("a region", vb_mr_reg_as(pd, &opts, &mr));
    return mr;
}

static void furnish(struct tenant *t, struct vb_nic *far_nic)
{
    void *memory;

    check("memory", vb_hull_alloc(t->nic, NULL, VB_TENANT_MEMORY, &memory));
    t->memory = memory;
    t->far_memory = aligned_alloc(4096, VB_TENANT_MEMORY);
    if (!t->far_memory)
        give_up("memory", "none");
    t->far_nic = far_nic;
    check("a domain", vb_pd_alloc(t->nic, &t->pd));
    check("a domain", vb_pd_alloc(far_nic, &t->far_pd));
    t->mr = add_region(t->pd, t->memory);
    t->far_mr = add_region(t->far_pd, t->far_memory);
    t->work.key = vb_mr_key(t->mr);
    t->work.far_key = vb_mr_key(t->far_mr);
    check("a completion queue",
          vb_cq_create(far_nic, &(struct vb_cq_opts){.entries = 64}, &t->far_cq));
}

static void connect_both(const struct tenant *t, uint32_t i)
{
    struct vb_qp_peer peer = {.qpn = vb_qp_num(t->far[i]),
                              .mtu = VB_TENANT_MTU,
                              .rights = RIGHTS,
                              .timeout = t->work.kind == VB_TENANT_PROBE ? PROBE_TIMEOUT : 0};

    vb_nic_gid(t->far_nic, peer.gid);
    check("connecting", vb_qp_connect(t->qp[i], &peer));
    peer.qpn = vb_qp_num(t->qp[i]);
    vb_nic_gid(t->nic, peer.gid);
    check("connecting", vb_qp_connect(t->far[i], &peer));
}

static void add_queue(struct tenant *t, uint32_t i)
{
    struct vb_qp_opts opts = vb_tenant_queue(t->work.kind, i);
    bool loops = vb_tenant_loops(t->work.kind, i);

    opts.send_cq = opts.recv_cq = t->cq;
    check("a queue pair", vb_qp_create(t->pd, &opts, &t->qp[i]));
    t->work.qp[i] = &t->qp[i]->driver;
    if (loops) {
        check("connecting", vb_qp_connect_self(t->qp[i], RIGHTS));
        return;
    }
    opts = (struct vb_qp_opts){.send_cq = t->far_cq, .recv_cq = t->far_cq, .send_depth = 1};
    check("a queue pair", vb_qp_create(t->far_pd, &opts, &t->far[i]));
    connect_both(t, i);
}

// What garbage completes nobody takes.
static void come(struct tenant *t, enum vb_tenant_kind kind)
{
    const struct vb_cq_opts opts = {.entries = CQ_ENTRIES,
                                    .ignore_overrun = kind == VB_TENANT_FUZZ};

    t->work.kind = kind;
    t->work.qps = vb_tenant_queues(kind);
    t->made = t->work.made;
    if (kind == VB_TENANT_IDLE)
        return;
    check("a completion queue", vb_cq_create(t->nic, &opts, &t->cq));
    t->work.cq = &t->cq->driver;
    for (uint32_t i = 0; i < t->work.qps; i++)
        add_queue(t, i);
    vb_tenant_begin(&t->work);
    vb_helper_notice(t->nic, 1);
}

static void leave(struct tenant *t)
{
    for (uint32_t i = 0; i < t->work.qps; i++) {
        check("the end", vb_qp_destroy(t->qp[i]));
        if (!vb_tenant_loops(t->work.kind, i))
            check("the end", vb_qp_destroy(t->far[i]));
    }
    if (t->work.qps)
        check("the end", vb_cq_destroy(t->cq));
    t->work.qps = 0;
    t->work.kind = VB_TENANT_IDLE;
}

static uint64_t counted(const struct tenant *t)
{
    return *(volatile const uint64_t *)t->memory;
}

// Bells of what it has, has not and nobody has; and the record of its completion queue.
static void ring_anything(struct tenant *t)
{
    struct vb_hull_page *page = t->nic->attach->page;
    uint64_t junk = vb_prng_next(&t->work.prng), where = vb_prng_next(&t->work.prng);
    struct vb_doorbells *bells = where & 1 ? &page->qps : &page->arms;

    atomic_fetch_or(&bells->word[(where >> 8) % VB_DOORBELL_WORDS], junk);
    atomic_fetch_or(&bells->top[(where >> 16) % VB_DOORBELL_TOPS], junk);
    atomic_store(&bells->latest, 1 + junk % VB_DOORBELL_QPS); // our own driver believes it
    t->cq->driver.dbrec[where >> 1 & 1] = (uint32_t)junk;
    t->work.made++;
}

static void heal(struct tenant *t)
{
    uint32_t i = (uint32_t)vb_prng_below(&t->work.prng, t->work.qps);
    enum vb_qp_phase phase, far_phase;

    check("asking", vb_qp_phase(t->qp[i], &phase));
    check("asking", vb_qp_phase(t->far[i], &far_phase));
    if (phase == VB_QP_RTS && far_phase == VB_QP_RTS)
        return;
    check("failing", vb_qp_fail(t->qp[i]));
    check("failing", vb_qp_fail(t->far[i]));
    connect_both(t, i);
}

static void act(struct tenant *t)
{
    if (t->work.kind == VB_TENANT_IDLE)
        return;
    vb_tenant_go_on(&t->work);
    if (t->work.kind == VB_TENANT_FUZZ)
        ring_anything(t);
    vb_helper_notice(t->nic, 1);
}

// ---- the one that is measured

static void ask(struct bench *b)
{
    struct tenant *t = &b->tenant[0];
    const struct vb_sge sge = {VB_TENANT_PLACE, READ_BYTES, t->work.key};
    const struct vb_send_wr wr = {.opcode = VB_WR_READ,
                                  .flags = VB_WR_SIGNALED,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .rkey = t->work.far_key,
                                  .raddr = VB_TENANT_PLACE};

    atomic_store_explicit(&b->board->rung_ns, vb_clock_ns(), memory_order_release);
    if (vb_post_send(t->qp[0], &wr, 1) != 1)
        give_up("READ", "the queue is full");
    atomic_fetch_add_explicit(&b->board->asked, 1, memory_order_release);
}

// Messages to the hull take its thread's time, and are not in the promise: they are sent while no
// READ is under way.
static void heal_some(struct bench *b)
{
    for (uint32_t i = 1; i < TENANTS; i++)
        if (b->tenant[i].work.kind == VB_TENANT_FUZZ && vb_prng_below(&b->prng, HEAL) == 0)
            heal(&b->tenant[i]);
}

static bool is_answered(struct tenant *t)
{
    struct vb_wc wc;
    int n = vb_poll_cq(t->cq, &wc, 1);

    if (n < 0 || (n == 1 && wc.status != VB_WC_OK))
        give_up("READ", n < 0 ? strerror(-n) : vb_wc_status_text(wc.status));
    return n == 1;
}

static void stay(struct bench *b, uint64_t ns, enum company counted_as)
{
    uint64_t now = vb_clock_ns(), next = now, asked = 0;
    const uint64_t until = now + ns;
    const uint64_t least = counted_as == QUIET || counted_as == HOSTILE ? READS_MIN : 0;
    const uint64_t before = atomic_load(&b->board->judged[counted_as]);

    atomic_store(&b->board->company, counted_as);
    while (now < until || asked || atomic_load(&b->board->judged[counted_as]) - before < least) {
        if (asked && is_answered(&b->tenant[0])) {
            asked = 0;
            heal_some(b);
            next = now + vb_prng_below(&b->prng, 2 * THINK_NS);
        } else if (!asked && now >= next) {
            asked = now;
            ask(b);
        } else if (asked && now - asked > PATIENCE_S * UINT64_C(1000000000)) {
            give_up("READ", "it does not end");
        } else if (now > until && now - until > PATIENCE_S * UINT64_C(1000000000)) {
            give_up("READs",
                    "too few can be judged: other tenants have no work for 2 ms at a time");
        }
        vb_nic_progress(b->far_nic);
        act(&b->tenant[1 + vb_prng_below(&b->prng, TENANTS - 1)]);
        now = vb_clock_ns();
    }
}

static void name_loops(struct bench *b)
{
    uint32_t n = 0;

    for (uint32_t i = 1; i < TENANTS; i++)
        for (uint32_t q = 0; q < b->tenant[i].work.qps && n < WATCH_LOOPS; q++)
            if (vb_tenant_loops(b->tenant[i].work.kind, q))
                atomic_store(&b->board->loop[n++], vb_qp_num(b->tenant[i].qp[q]));
}

static void be_beside(struct bench *b, enum company c, struct round *round)
{
    uint64_t before = 0;

    for (uint32_t s = 0; s < SPANS; s++)
        vb_hist_init(&b->board->hist[c][s]);
    for (uint32_t i = 1; i < TENANTS; i++)
        come(&b->tenant[i], company_kind[c][i - 1]);
    name_loops(b);
    stay(b, WARM_NS, NOT_COUNTED);
    before = counted(&b->tenant[1]);
    stay(b, b->options.ms * UINT64_C(1000000), c);
    if (c == HOSTILE) {
        b->deeds.entries += counted(&b->tenant[1]) - before;
        b->deeds.writes += b->tenant[1].work.made - b->tenant[1].made;
        b->deeds.strokes += b->tenant[2].work.made - b->tenant[2].made;
        b->deeds.reads += b->tenant[3].work.made - b->tenant[3].made;
    }
    for (uint32_t i = 0; i < WATCH_LOOPS; i++)
        atomic_store(&b->board->loop[i], 0);
    for (uint32_t i = 1; i < TENANTS; i++)
        leave(&b->tenant[i]);
    round->reads[c] = b->board->hist[c][WHOLE].count;
    for (uint32_t s = 0; s < SPANS; s++)
        for (uint32_t q = 0; q < QUANTILES; q++)
            round->ns[c][s][q] = (double)vb_hist_quantile(&b->board->hist[c][s], quantile[q]);
}

static void measure(struct bench *b)
{
    for (uint64_t r = 0; r < b->options.rounds; r++) {
        struct round *round = &b->round[r];
        for (uint32_t k = 0; k < COMPANIES; k++)
            be_beside(b, (enum company)((r + k) % COMPANIES), round);
    }
    if (!b->deeds.entries || !b->deeds.writes || !b->deeds.strokes || !b->deeds.reads)
        give_up("the hostile tenants", "they have done nothing");
}

// ---- the report

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct summary {
    double median, least, most;
};

// Of one number of each round.
static struct summary sum_up(const struct bench *b, size_t offset)
{
    double v[ROUNDS_MAX];
    uint64_t n = b->options.rounds;

    for (uint64_t r = 0; r < n; r++)
        memcpy(&v[r], (const char *)&b->round[r] + offset, sizeof v[r]);
    qsort(v, n, sizeof *v, by_value);
    return (struct summary){v[n / 2], v[0], v[n - 1]};
}

static struct summary time_of(const struct bench *b, uint32_t c, uint32_t s, uint32_t q)
{
    return sum_up(b,
                  offsetof(struct round, ns) + sizeof(double) * ((c * SPANS + s) * QUANTILES + q));
}

static double units_of(const struct bench *b, uint32_t c, uint32_t part)
{
    return (double)atomic_load(&b->board->most[c][part]) / WORK_UNIT;
}

static bool is_kept(const struct bench *b)
{
    bool kept = true;

    for (uint32_t c = QUIET; c < COMPANIES; c++)
        for (uint32_t i = 0; i < WATCH_PARTS; i++)
            kept &= atomic_load(&b->board->judged[c]) > 0 &&
                    atomic_load(&b->board->most[c][i]) <= watch_limit[i];
    return kept;
}

static void print_units(const struct bench *b, uint32_t c)
{
    printf("work of others, %s, in units (limit):", company_name[c]);
    for (uint32_t i = 0; i < WATCH_PARTS; i++)
        printf(" %s %.1f (%.1f)%s", part_name[i], units_of(b, c, i),
               (double)watch_limit[i] / WORK_UNIT, i + 1 < WATCH_PARTS ? "," : "");
    printf("; %" PRIu64 " READs judged\n", atomic_load(&b->board->judged[c]));
}

static void print_json(const struct bench *b)
{
    const struct options *o = &b->options;

    printf("{\"rounds\":%" PRIu64 ",\"ms\":%" PRIu64 ",\"weight\":%" PRIu64
           ",\"port\":\"%s\",\"together\":%s",
           o->rounds, o->ms, o->weight, o->port, o->together ? "true" : "false");
    for (uint32_t c = 0; c < COMPANIES; c++) {
        uint64_t reads = 0;
        for (uint64_t r = 0; r < o->rounds; r++)
            reads += b->round[r].reads[c];
        printf(",\"%s\":{\"reads\":%" PRIu64 ",\"judged\":%" PRIu64, company_name[c], reads,
               atomic_load(&b->board->judged[c]));
        for (uint32_t i = 0; i < WATCH_PARTS; i++)
            printf(",\"%s_units\":%.1f", part_name[i], units_of(b, c, i));
        for (uint32_t s = 0; s < SPANS; s++)
            for (uint32_t q = 0; q < QUANTILES; q++) {
                struct summary v = time_of(b, c, s, q);
                printf(",\"%s_%s\":{\"median\":%.0f,\"least\":%.0f,\"most\":%.0f}", span_key[s],
                       quantile_key[q], v.median, v.least, v.most);
            }
        printf("}");
    }
    for (uint32_t i = 0; i < WATCH_PARTS; i++)
        printf("%s\"%s_units\":%.1f", i ? "," : ",\"limit\":{", part_name[i],
               (double)watch_limit[i] / WORK_UNIT);
    printf("},\"kept\":%s,\"simulated_bound_ns\":%" PRIu64, is_kept(b) ? "true" : "false",
           vb_tenant_bound_ns(TENANTS - 1));
    printf(",\"chain_counts\":%" PRIu64 ",\"flood_writes\":%" PRIu64 ",\"fuzz_strokes\":%" PRIu64
           ",\"flood_reads\":%" PRIu64 "}\n",
           b->deeds.entries, b->deeds.writes, b->deeds.strokes, b->deeds.reads);
}

static void print_row(const struct bench *b, uint32_t c, uint32_t s)
{
    printf("| %s, %s |", company_name[c], span_name[s]);
    for (uint32_t q = 0; q < QUANTILES; q++) {
        struct summary v = time_of(b, c, s, q);
        printf(" %.1f (%.1f to %.1f) |", v.median / 1000, v.least / 1000, v.most / 1000);
    }
    printf("\n");
}

static void print_table(const struct bench *b)
{
    const struct options *o = &b->options;

    printf("| READ 64 B in a hull, us, medians (ranges) of %" PRIu64 " rounds of %" PRIu64
           " ms, port %s%s |",
           o->rounds, o->ms, o->port, o->together ? ", one tenant" : "");
    for (uint32_t q = 0; q < QUANTILES; q++)
        printf(" %s |", quantile_name[q]);
    printf("\n|---|---|---|---|\n");
    for (uint32_t s = 0; s < SPANS; s++)
        for (uint32_t c = 0; c < COMPANIES; c++)
            print_row(b, c, s);
    printf(
        "p99 in the hull: %.1f us more than alone beside busy tenants, %.1f beside hostile ones; "
        "the bound in the simulator's prices is %.1f\n",
        (time_of(b, QUIET, SERVICE, 1).median - time_of(b, ALONE, SERVICE, 1).median) / 1000,
        (time_of(b, HOSTILE, SERVICE, 1).median - time_of(b, ALONE, SERVICE, 1).median) / 1000,
        (double)vb_tenant_bound_ns(TENANTS - 1) / 1000);
    for (uint32_t c = QUIET; c < COMPANIES; c++)
        print_units(b, c);
    printf("the promise is %s\n", is_kept(b) ? "kept" : "BROKEN");
    printf("the hostile ones: %" PRIu64 " rounds of programs, %" PRIu64 " WRITEs and %" PRIu64
           " READs of 4 KB, %" PRIu64 " strokes of garbage\n",
           b->deeds.entries, b->deeds.writes, b->deeds.reads, b->deeds.strokes);
}

// ---- the command line

static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || value < 1 || value > most) {
        fprintf(stderr, "hull_isolation: '%s': give a number from 1 to %" PRIu64 "\n", text, most);
        exit(2);
    }
    return value;
}

static struct options parse(int argc, char **argv)
{
    static const struct option known[] = {{"rounds", required_argument, NULL, 'n'},
                                          {"ms", required_argument, NULL, 'm'},
                                          {"weight", required_argument, NULL, 'w'},
                                          {"port", required_argument, NULL, 'p'},
                                          {"together", no_argument, NULL, 't'},
                                          {"json", no_argument, NULL, 'j'},
                                          {0}};
    struct options o = {.rounds = 9, .ms = 500, .weight = VB_SHARE_WEIGHT, .port = "udp"};
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'n': o.rounds = number(optarg, ROUNDS_MAX); break;
        case 'm': o.ms = number(optarg, 60000); break;
        case 'w': o.weight = number(optarg, VB_SHARE_WEIGHT_MAX); break;
        case 'p': o.port = optarg; break;
        case 't': o.together = true; break;
        case 'j': o.json = true; break;
        default: exit(2);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "hull_isolation: '%s' is not an option\n", argv[optind]);
        exit(2);
    }
    return o;
}

// The peers' NIC, which this thread runs.
static void open_far(struct bench *b)
{
    char address[32], error[VB_ERROR_TEXT] = "";
    const struct vb_nic_opts opts = {
        .address = address, .port = b->options.port, .no_helper = true, .error_text = error};

    snprintf(address, sizeof address, "127.%u.%u.2", 64 + ((unsigned)getpid() >> 8 & 63),
             (unsigned)getpid() & 255);
    if (vb_nic_open(&opts, &b->far_nic) != 0)
        give_up("the peers' NIC", error);
}

static void prepare(struct bench *b, int from, int to)
{
    char name[32], byte = 0;

    snprintf(name, sizeof name, "isolation%d", (int)getpid());
    for (uint32_t i = 0; i < TENANTS; i++) {
        attach(&b->tenant[i], name);
        b->tenant[i].work.prng.state = i + 1;
    }
    if (write(to, &byte, 1) != 1 || read(from, &byte, 1) != 1)
        give_up("the hull", "it is gone");
    open_far(b);
    for (uint32_t i = 0; i < TENANTS; i++)
        furnish(&b->tenant[i], b->far_nic);
    come(&b->tenant[0], VB_TENANT_PROBE);
    atomic_store(&b->board->qpn, vb_qp_num(b->tenant[0].qp[0]));
}

int main(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof *b);
    int to[2], from[2], status;
    pid_t self = getpid();
    cpu_set_t others;
    char byte;

    if (!b)
        give_up("set-up", "no memory");
    b->options = parse(argc, argv);
    b->board = mmap(NULL, sizeof *b->board, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (b->board == MAP_FAILED || pipe(to) != 0 || pipe(from) != 0)
        give_up("set-up", "no memory or descriptors");
    atomic_store(&b->board->company, NOT_COUNTED);
    pid_t hull = fork();
    if (hull == 0) {
        close(to[1]);
        close(from[0]);
        serve(&b->options, b->board, to[0], from[1], self);
    }
    close(to[0]);
    close(from[1]);
    if (part_cores(&others) >= 0)
        (void)sched_setaffinity(0, sizeof others, &others);
    if (hull < 0 || read(from[0], &byte, 1) != 1)
        give_up("the hull", "it did not start");
    prepare(b, from[0], to[1]);
    measure(b);
    leave(&b->tenant[0]);
    close(to[1]); // the watch follows applications of the hull, so it ends before they go
    if (waitpid(hull, &status, 0) != hull || status != 0)
        give_up("the hull", "it did not end well");
    for (uint32_t i = 0; i < TENANTS; i++)
        vb_nic_close(b->tenant[i].nic);
    vb_nic_close(b->far_nic);
    for (uint32_t i = 0; i < TENANTS; i++)
        free(b->tenant[i].far_memory);
    if (b->options.json)
        print_json(b);
    else
        print_table(b);
    bool kept = is_kept(b);
    free(b);
    return !kept;
}
