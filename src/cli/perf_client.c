// SPDX-License-Identifier: Apache-2.0
// The client's side of one measurement.
#include "cli/perf_client.h"

#include "cli/perf_end.h"
#include "cli/perf_get_client.h"
#include "cli/perf_latency.h"
#include "cli/perf_line.h"
#include "cli/perf_plan.h"
#include "cli/perf_raw.h"
#include "cli/perf_run.h"
#include "cli/perf_target.h"
#include "port/clock.h"

#include <poll.h>
#include <stdlib.h>

// The part of a measurement's time that goes into latencies; the rest is the rate's.
#define LATENCY_PART 0.5
// The copy through shared memory runs before and after the rate, each for so much of its time.
#define COPY_PART  0.25
#define WARM_UP_NS 20000000ull
#define SECOND_NS  1e9

// Of an acknowledgement, as the verbs count it: 1 s, seven times.
enum {
    PATIENT_TIMEOUT = 18
};

// What is measured in turn: the kinds, and behind them the ways of a get.
enum {
    TURNS = VB_PERF_KINDS + VB_PERF_WAYS,
    RATE_SLICES = 5, // of each way
};

struct client {
    struct vb_perf_session *session;
    const struct vb_perf_plan *plan;
    const struct vb_perf_length *length;
    struct vb_progress *progress;
    struct vb_perf_end end;
    struct vb_raw raw, connected;
    struct vb_line line;
    struct vb_perf_run run;
    struct vb_get_run get;
};

static int set_mode(struct client *c, enum vb_perf_mode mode)
{
    struct vb_control_msg msg;
    vb_control_begin(&msg, VB_CONTROL_MODE);
    vb_control_put(&msg, mode);
    return vb_perf_ask(c->session, &msg, VB_CONTROL_OK);
}

static int set_turn(struct client *c, unsigned turn)
{
    struct vb_control_msg msg;
    if (turn < VB_PERF_KINDS)
        return set_mode(c, turn == VB_PERF_NIC ? VB_PERF_MODE_NIC : VB_PERF_MODE_ECHO);
    vb_control_begin(&msg, VB_CONTROL_MODE);
    vb_control_put(&msg, VB_PERF_MODE_NIC);
    vb_control_put(&msg, turn - VB_PERF_KINDS);
    return vb_perf_ask(c->session, &msg, VB_CONTROL_OK);
}

static int get_counts(struct client *c, struct vb_perf_counts *counts)
{
    struct vb_control_msg msg;
    vb_control_begin(&msg, VB_CONTROL_COUNTS);
    if (vb_perf_ask(c->session, &msg, VB_CONTROL_COUNTS) < 0)
        return -1;
    vb_perf_counts_get(&msg, counts);
    return 0;
}

// ---- both ends

// Tells the server of some queue pairs at a time, and hears of as many of its own.
static int connect_all(struct client *c, struct vb_control_msg *msg)
{
    for (uint32_t first = 0; first < c->plan->qps; first += VB_PERF_NAMES) {
        vb_control_begin(msg, VB_CONTROL_NAMES);
        vb_control_put(msg, first);
        vb_perf_end_name(&c->end, first, msg);
        if (vb_perf_ask(c->session, msg, VB_CONTROL_NAMES) < 0 ||
            vb_perf_end_connect(&c->end, first, msg, c->session->why) < 0)
            return -1;
    }
    return 0;
}

static int open_end(struct client *c, struct vb_control_msg *msg)
{
    struct vb_perf_session *s = c->session;
    struct vb_perf_end_opts opts = {
        .service = c->plan->service,
        .mem_bytes = vb_perf_layout_of(c->plan).total,
        .qps = c->plan->qps,
        .active = c->plan->active,
        .send_depth = c->plan->depth,
        .recv_depth = 1,
        .sges = 1,
        .mtu = c->plan->mtu,
        .reads = c->plan->reads,
        .seed = c->plan->seed,
        .timeout = (uint8_t)c->plan->timeout,
    };
    bool gets = c->plan->op == VB_PERF_GET;
    if (gets)
        vb_get_end_opts(c->plan, &opts);
    if (vb_perf_end_open(&c->end, s->nic, &opts, s->why) < 0 ||
        vb_perf_end_meet(&c->end, msg, s->why) < 0)
        return -1;
    vb_control_begin(msg, VB_CONTROL_CONNECT);
    vb_perf_end_describe(&c->end, msg);
    if (vb_perf_ask(s, msg, VB_CONTROL_OK) < 0 || (!gets && connect_all(c, msg) < 0))
        return -1;
    if (vb_perf_run_init(&c->run, &c->end, c->plan) < 0)
        return vb_perf_fail(s->why, "no memory");
    c->run.control = s->control;
    c->run.yield = s->yield;
    c->run.why = s->why;
    c->run.progress = c->progress;
    return gets ? vb_get_run_open(&c->get, s, &c->run) : 0;
}

static int open_raw(struct client *c, struct vb_raw *raw, uint16_t peer_port)
{
    struct vb_perf_session *s = c->session;
    uint8_t gid[16];
    uint16_t own_port;
    raw->yield = s->yield;
    vb_nic_gid(s->nic, gid);
    if (vb_raw_open(raw, gid, &own_port, s->why) < 0)
        return -1;
    return vb_raw_aim(raw, s->peer_gid, peer_port, raw == &c->connected, s->why);
}

static int open_both(struct client *c)
{
    struct vb_control_msg msg;
    bool shm = c->plan->port == VB_PERF_SHM;
    c->line.yield = c->session->yield;
    if (shm && vb_line_create(&c->line, c->plan->seed, c->session->why) < 0)
        return -1;
    vb_control_begin(&msg, VB_CONTROL_SETUP);
    vb_perf_plan_put(&msg, c->plan);
    vb_control_put(&msg, c->line.token);
    if (vb_perf_ask(c->session, &msg, VB_CONTROL_SETUP) < 0)
        return -1;
    vb_line_forget(&c->line);
    uint16_t peer_port = (uint16_t)vb_control_get(&msg);
    if (!shm && (open_raw(c, &c->raw, peer_port) < 0 || open_raw(c, &c->connected, peer_port) < 0))
        return -1;
    return c->plan->op == VB_PERF_RAW ? 0 : open_end(c, &msg);
}

static void close_both(struct client *c)
{
    vb_get_run_close(&c->get);
    if (c->plan->op != VB_PERF_RAW)
        vb_perf_end_close(&c->end);
    vb_perf_run_fini(&c->run);
    vb_raw_close(&c->raw);
    vb_raw_close(&c->connected);
    vb_line_close(&c->line);
}

// A budget of `part` of the length.
static struct vb_perf_budget budget_of(const struct vb_perf_length *length, double part)
{
    if (length->iters) {
        uint64_t ops = (uint64_t)(length->iters * part + 0.5);
        return (struct vb_perf_budget){.end_ns = UINT64_MAX, .ops = ops ? ops : 1};
    }
    return (struct vb_perf_budget){
        .end_ns = vb_clock_ns() + (uint64_t)(length->seconds * part * SECOND_NS),
        .ops = UINT64_MAX,
    };
}

// ---- latency

static int ping(struct client *c, enum vb_perf_kind kind, const struct vb_perf_budget *budget,
                struct vb_hist *hist)
{
    int control = c->session->control;
    char *why = c->session->why;
    if (c->plan->port == VB_PERF_SHM)
        return vb_line_ping(&c->line, budget, control, hist, why);
    return vb_raw_ping(kind == VB_PERF_ECHO ? &c->raw : &c->connected, c->plan->raw_size, budget,
                       control, hist, why);
}

static bool is_measured(const struct client *c, unsigned turn)
{
    if (turn >= VB_PERF_KINDS)
        return vb_perf_goes(c->plan, turn - VB_PERF_KINDS);
    if (turn == VB_PERF_NIC)
        return c->plan->op != VB_PERF_RAW && c->plan->op != VB_PERF_GET;
    return turn == VB_PERF_ECHO || c->plan->port == VB_PERF_UDP;
}

static unsigned count_ways(const struct client *c)
{
    unsigned ways = 0;
    for (unsigned way = 0; way < VB_PERF_WAYS; way++)
        ways += vb_perf_goes(c->plan, way);
    return ways;
}

static int run_turn(struct client *c, unsigned turn, const struct vb_perf_budget *budget,
                    struct vb_hist *hist)
{
    if (turn >= VB_PERF_KINDS)
        return vb_get_run_latency(&c->get, (enum vb_perf_via)(turn - VB_PERF_KINDS), budget, hist);
    if (turn == VB_PERF_NIC)
        return vb_perf_run_latency(&c->run, budget, hist);
    return ping(c, (enum vb_perf_kind)turn, budget, hist);
}

// One slice of one turn. Of a get the first way stands for the NIC.
static int run_slice(struct client *c, unsigned turn, struct vb_hist *hist)
{
    unsigned ways = count_ways(c), turns = VB_PERF_KINDS + (ways ? ways - 1 : 0);
    double part = c->length->iters ? 1.0 : 1.0 / turns;
    if (set_turn(c, turn) < 0)
        return -1;
    vb_hist_init(hist);
    struct vb_perf_budget budget = budget_of(c->length, part / VB_PERF_SLICES);
    return run_turn(c, turn, &budget, hist);
}

static uint64_t count_rnr(const struct client *c)
{
    return c->plan->op == VB_PERF_GET ? vb_get_run_rnr(&c->get) : 0;
}

static int run_slices(struct client *c, struct vb_hist *slice, struct vb_perf_slices *slices,
                      struct vb_perf_row *row)
{
    for (unsigned i = 0; i < VB_PERF_SLICES; i++) {
        for (unsigned turn = 0; turn < TURNS; turn++) {
            uint64_t rnr = count_rnr(c);
            if (!is_measured(c, turn))
                continue;
            if (run_slice(c, turn, slice) < 0)
                return -1;
            vb_perf_slices_add(&slices[turn], slice);
            if (turn >= VB_PERF_KINDS)
                row->way[turn - VB_PERF_KINDS].latency_rnr += count_rnr(c) - rnr;
        }
        vb_progress_show(c->progress, vb_clock_ns(), (i + 1.0) / VB_PERF_SLICES);
    }
    return 0;
}

// In turn, so that noise from elsewhere hits all.
static int measure_latency(struct client *c, struct vb_perf_row *row)
{
    struct vb_hist *slice = malloc(sizeof *slice);
    struct vb_perf_slices *slices = calloc(TURNS, sizeof *slices);
    int error = -1;
    if (slice == NULL || slices == NULL) {
        vb_perf_fail(c->session->why, "no memory");
    } else {
        for (unsigned turn = 0; turn < TURNS; turn++)
            vb_perf_slices_init(&slices[turn]);
        vb_progress_phase(c->progress, "latency", 0, LATENCY_PART);
        error = run_slices(c, slice, slices, row);
    }
    for (unsigned turn = 0; turn < TURNS && !error; turn++) {
        if (is_measured(c, turn))
            vb_perf_slices_summarise(&slices[turn], turn < VB_PERF_KINDS
                                                        ? &row->latency[turn]
                                                        : &row->way[turn - VB_PERF_KINDS].latency);
    }
    free(slice);
    free(slices);
    return error;
}

// Caches, branch predictors and the neighbour table are warm before anything is recorded.
static int warm_up(struct client *c)
{
    struct vb_hist *unused = malloc(sizeof *unused);
    if (unused == NULL)
        return vb_perf_fail(c->session->why, "no memory");
    vb_hist_init(unused);
    int error = 0;
    for (unsigned turn = 0; turn < TURNS && !error; turn++) {
        if (turn == VB_PERF_ECHO_CONNECTED || !is_measured(c, turn))
            continue;
        error = set_turn(c, turn);
        struct vb_perf_budget budget = {.end_ns = vb_clock_ns() + WARM_UP_NS, .ops = 1000};
        error = error ? error : run_turn(c, turn, &budget, unused);
    }
    free(unused);
    return error;
}

// ---- rate

// A completion of an unreliable service says only that a message was sent: what arrived counts.
static int measure_rate(struct client *c, struct vb_perf_row *row)
{
    struct vb_perf_counts before, after;
    if (get_counts(c, &before) < 0 || set_mode(c, VB_PERF_MODE_NIC) < 0)
        return -1;
    vb_progress_phase(c->progress, "rate", LATENCY_PART, 1);
    struct vb_perf_budget budget = budget_of(c->length, 1);
    if (vb_perf_run_rate(&c->run, &budget, &row->rate_ops, &row->rate_ns) < 0)
        return -1;
    if (!vb_perf_is_lossy(c->plan))
        return 0;
    if (get_counts(c, &after) < 0)
        return -1;
    uint64_t sent = row->rate_ops, arrived = after.arrived - before.arrived;
    row->rate_ops = arrived < sent ? arrived : sent;
    row->rate_lost = sent - row->rate_ops;
    return 0;
}

static int run_rate_slice(struct client *c, unsigned way, double part, struct vb_perf_way *out)
{
    uint64_t ops, ns, rnr = count_rnr(c);
    if (set_turn(c, VB_PERF_KINDS + way) < 0)
        return -1;
    struct vb_perf_budget budget =
        budget_of(c->length, c->length->iters ? 1.0 / RATE_SLICES : part);
    if (vb_get_run_rate(&c->get, (enum vb_perf_via)way, &budget, &ops, &ns) < 0)
        return -1;
    out->rate_ops += ops;
    out->rate_ns += ns;
    out->rate_rnr += count_rnr(c) - rnr;
    return 0;
}

// One way after the other, and all of them several times.
static int measure_gets(struct client *c, struct vb_perf_row *row)
{
    double part = 1.0 / (count_ways(c) * RATE_SLICES), done = 0;
    for (unsigned i = 0; i < RATE_SLICES; i++) {
        for (unsigned way = 0; way < VB_PERF_WAYS; way++) {
            if (!vb_perf_goes(c->plan, way))
                continue;
            vb_progress_phase(c->progress, "rate", LATENCY_PART + (1 - LATENCY_PART) * done,
                              LATENCY_PART + (1 - LATENCY_PART) * (done + part));
            if (run_rate_slice(c, way, part, &row->way[way]) < 0)
                return -1;
            done += part;
        }
    }
    return 0;
}

static int measure_copy(struct client *c, double part, struct vb_perf_row *row)
{
    if (set_mode(c, VB_PERF_MODE_SINK) < 0)
        return -1;
    struct vb_perf_budget budget = budget_of(c->length, part);
    return vb_line_copy(&c->line, &budget, c->session->control, &row->copied, c->session->why);
}

// Long WRITEs through shared memory are compared with a plain copy.
static int measure_both_rates(struct client *c, struct vb_perf_row *row)
{
    bool copies = c->plan->port == VB_PERF_SHM && c->plan->op == VB_PERF_WRITE &&
                  c->plan->size == VB_PERF_COPY_BYTES;
    if (copies && measure_copy(c, COPY_PART, row) < 0)
        return -1;
    if (measure_rate(c, row) < 0)
        return -1;
    return copies ? measure_copy(c, COPY_PART, row) : 0;
}

static int measure_raw_rate(struct client *c, struct vb_perf_row *row)
{
    struct vb_perf_counts counts;
    uint64_t sent;
    vb_progress_phase(c->progress, "rate", LATENCY_PART, 1);
    if (c->plan->port == VB_PERF_SHM) {
        int error = measure_copy(c, 1, row);
        row->rate_ops = row->copied.bytes / VB_PERF_COPY_BYTES;
        row->rate_ns = row->copied.ns;
        return error;
    }
    if (set_mode(c, VB_PERF_MODE_SINK) < 0)
        return -1;
    struct vb_perf_budget budget = budget_of(c->length, 1);
    uint64_t begin = vb_clock_ns();
    if (vb_raw_blast(&c->raw, c->plan->size, &budget, &sent, c->session->why) < 0)
        return -1;
    row->rate_ns = vb_clock_ns() - begin;
    if (get_counts(c, &counts) < 0)
        return -1;
    row->rate_ops = counts.arrived;
    row->rate_lost = sent > row->rate_ops ? sent - row->rate_ops : 0;
    return 0;
}

// ---- nothing

// Both sides hold their connected NICs and wait in the kernel.
static int measure_idle(struct client *c, struct vb_perf_row *row)
{
    struct vb_perf_counts before, after;
    int ms = c->length->seconds < 3600 ? (int)(c->length->seconds * 1e3 + 0.5) : 3600000;
    if (get_counts(c, &before) < 0 || set_mode(c, VB_PERF_MODE_REST) < 0)
        return -1;
    uint64_t begin = vb_clock_ns(), cpu = vb_perf_cpu_ns();
    (void)poll(NULL, 0, ms);
    row->cpu_ns[0] = vb_perf_cpu_ns() - cpu;
    row->idle_ns = vb_clock_ns() - begin;
    if (get_counts(c, &after) < 0)
        return -1;
    row->cpu_ns[1] = after.cpu_ns - before.cpu_ns;
    return 0;
}

// ---- the whole

// What the CPU's program of the server made of its requests; the values were looked at here.
static int verify_gets(struct client *c, struct vb_perf_row *row)
{
    struct vb_perf_counts counts;
    if (get_counts(c, &counts) < 0)
        return -1;
    for (unsigned way = 0; way < VB_PERF_WAYS; way++) {
        const struct vb_get_lane *lane = &c->get.lane[way];
        row->way[way].verified = lane->verified;
        row->verified += lane->verified;
        if (lane->verified != lane->done / VB_PERF_VERIFY_EVERY)
            counts.wrong++;
    }
    uint64_t asked = c->get.lane[VB_PERF_VIA_RPC].done + c->get.lane[VB_PERF_VIA_RPC_BLOCKING].done;
    if (counts.wrong || counts.arrived != asked)
        return vb_perf_fail(c->session->why,
                            "verification failed: of %llu requests the server answered %llu, %llu "
                            "were wrong",
                            (unsigned long long)asked, (unsigned long long)counts.arrived,
                            (unsigned long long)counts.wrong);
    return 0;
}

// Every operation that had to be verified was, and held the right bytes. What was lost is not
// there to be verified.
static int verify(struct client *c, struct vb_perf_row *row)
{
    struct vb_perf_counts counts;
    char *why = c->session->why;
    if (get_counts(c, &counts) < 0)
        return -1;
    row->verified = counts.verified;
    if (vb_perf_is_read(c->plan) || vb_perf_is_atomic(c->plan))
        row->verified = c->run.verified;
    uint64_t expected = c->plan->op == VB_PERF_RAW ? 0 : vb_perf_run_verifies(&c->run);
    bool missing = vb_perf_is_lossy(c->plan) ? row->verified > expected : row->verified != expected;
    if (counts.wrong || missing)
        return vb_perf_fail(why,
                            "verification failed: of %llu operations %llu held the right bytes, "
                            "%llu wrong ones",
                            (unsigned long long)expected, (unsigned long long)row->verified,
                            (unsigned long long)counts.wrong);
    if (vb_perf_is_atomic(c->plan) && counts.sum != vb_perf_run_sum(&c->run))
        return vb_perf_fail(
            why, "verification failed: the atomics left %llu at the target, not %llu",
            (unsigned long long)counts.sum, (unsigned long long)vb_perf_run_sum(&c->run));
    return 0;
}

static int measure(struct client *c, struct vb_perf_row *row)
{
    if (open_both(c) < 0 || warm_up(c) < 0)
        return -1;
    int error;
    if (c->plan->op == VB_PERF_IDLE)
        error = measure_idle(c, row);
    else if (measure_latency(c, row) < 0)
        error = -1;
    else if (c->plan->op == VB_PERF_GET)
        return measure_gets(c, row) < 0 ? -1 : verify_gets(c, row);
    else
        error = c->plan->op == VB_PERF_RAW ? measure_raw_rate(c, row) : measure_both_rates(c, row);
    return error ? error : verify(c, row);
}

int vb_perf_measure(struct vb_perf_session *session, const struct vb_perf_plan *plan,
                    const struct vb_perf_length *length, struct vb_progress *progress,
                    struct vb_perf_row *row)
{
    struct client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return vb_perf_fail(session->why, "no memory");
    *row = (struct vb_perf_row){.plan = *plan};
    // Without losses only a busy machine can be late: be patient with it.
    row->plan.timeout = session->lossy ? 0 : PATIENT_TIMEOUT;
    c->session = session;
    c->plan = &row->plan;
    c->length = length;
    c->progress = progress;
    c->raw.fd = c->connected.fd = -1;
    int error = measure(c, row);
    close_both(c);
    if (!error) {
        struct vb_control_msg msg;
        vb_control_begin(&msg, VB_CONTROL_CLOSE);
        error = vb_perf_ask(session, &msg, VB_CONTROL_OK);
    }
    free(c);
    vb_progress_clear(progress);
    return error ? -1 : 0;
}
