// SPDX-License-Identifier: Apache-2.0
// The client's side of one measurement.
#include "cli/perf_client.h"

#include "cli/perf_address.h"
#include "cli/perf_end.h"
#include "cli/perf_raw.h"
#include "cli/perf_run.h"
#include "cli/perf_target.h"
#include "port/clock.h"

#include <stdlib.h>
#include <string.h>

// The part of a measurement's time that goes into latencies; the rest is the rate's.
#define LATENCY_PART 0.5
#define WARM_UP_NS   20000000ull
#define SECOND_NS    1e9

// Of an acknowledgement, as the verbs count it: 1 s, seven times.
enum {
    PATIENT_TIMEOUT = 18
};

struct client {
    struct vb_perf_session *session;
    const struct vb_perf_plan *plan;
    const struct vb_perf_length *length;
    struct vb_progress *progress;
    struct vb_perf_end end;
    struct vb_raw raw, connected;
    struct vb_perf_run run;
};

static void put_plan(struct vb_control_msg *msg, const struct vb_perf_plan *plan)
{
    uint64_t fields[] = {plan->op,  plan->size,  plan->depth,    plan->qps,
                         plan->mtu, plan->reads, plan->raw_size, plan->seed};
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        vb_control_put(msg, fields[i]);
}

static int set_mode(struct client *c, enum vb_perf_mode mode)
{
    struct vb_control_msg msg;
    vb_control_begin(&msg, VB_CONTROL_MODE);
    vb_control_put(&msg, mode);
    return vb_perf_ask(c->session, &msg, VB_CONTROL_OK);
}

static int open_end(struct client *c, struct vb_control_msg *msg)
{
    struct vb_perf_session *s = c->session;
    struct vb_perf_end_opts opts = {
        .mem_bytes = vb_perf_layout_of(c->plan).total,
        .qps = c->plan->qps,
        .send_depth = c->plan->depth,
        .recv_depth = 1,
        .sges = 1,
        .mtu = c->plan->mtu,
        .reads = c->plan->reads,
        .seed = c->plan->seed,
        // Without losses only a busy machine can be late: be patient with it.
        .timeout = s->lossy ? 0 : PATIENT_TIMEOUT,
    };
    if (vb_perf_end_open(&c->end, s->nic, &opts, s->why) < 0 ||
        vb_perf_end_connect(&c->end, msg, s->why) < 0)
        return -1;
    vb_control_begin(msg, VB_CONTROL_CONNECT);
    vb_perf_end_describe(&c->end, msg);
    if (vb_perf_ask(s, msg, VB_CONTROL_OK) < 0)
        return -1;
    vb_perf_run_init(&c->run, &c->end, c->plan);
    c->run.control = s->control;
    c->run.yield = s->yield;
    c->run.why = s->why;
    c->run.progress = c->progress;
    return 0;
}

static int open_raw(struct client *c, struct vb_raw *raw, uint16_t peer_port)
{
    struct vb_perf_session *s = c->session;
    uint16_t own_port;
    raw->yield = s->yield;
    if (vb_raw_open(raw, vb_perf_nic_ip(s->nic), &own_port, s->why) < 0)
        return -1;
    return vb_raw_aim(raw, s->peer_ip, peer_port, raw == &c->connected, s->why);
}

static int open_both(struct client *c)
{
    struct vb_control_msg msg;
    vb_control_begin(&msg, VB_CONTROL_SETUP);
    put_plan(&msg, c->plan);
    if (vb_perf_ask(c->session, &msg, VB_CONTROL_SETUP) < 0)
        return -1;
    uint16_t peer_port = (uint16_t)vb_control_get(&msg);
    if (open_raw(c, &c->raw, peer_port) < 0 || open_raw(c, &c->connected, peer_port) < 0)
        return -1;
    return c->plan->op == VB_PERF_RAW ? 0 : open_end(c, &msg);
}

static void close_both(struct client *c)
{
    if (c->plan->op != VB_PERF_RAW)
        vb_perf_end_close(&c->end);
    vb_raw_close(&c->raw);
    vb_raw_close(&c->connected);
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

static int ping(struct client *c, struct vb_raw *raw, const struct vb_perf_budget *budget,
                struct vb_hist *hist)
{
    return vb_raw_ping(raw, c->plan->raw_size, budget, c->session->control, hist, c->session->why);
}

static bool is_measured(const struct client *c, enum vb_perf_kind kind)
{
    return kind != VB_PERF_NIC || c->plan->op != VB_PERF_RAW;
}

// One slice of one kind.
static int run_slice(struct client *c, enum vb_perf_kind kind, struct vb_hist *hist)
{
    double part = c->length->iters ? 1.0 : 1.0 / VB_PERF_KINDS;
    if (set_mode(c, kind == VB_PERF_NIC ? VB_PERF_MODE_NIC : VB_PERF_MODE_ECHO) < 0)
        return -1;
    vb_hist_init(hist);
    struct vb_perf_budget budget = budget_of(c->length, part / VB_PERF_SLICES);
    if (kind == VB_PERF_NIC)
        return vb_perf_run_latency(&c->run, &budget, hist);
    return ping(c, kind == VB_PERF_ECHO ? &c->raw : &c->connected, &budget, hist);
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// A slice's median, by rank between the bounds of its bucket: ratios of two medians are finer than
// buckets are.
static uint64_t median_ns(const struct vb_hist *h)
{
    uint64_t below = 0;
    uint32_t b = vb_hist_bucket(vb_hist_quantile(h, 0.5));
    for (uint32_t i = 0; i < b; i++)
        below += h->buckets[i];
    uint32_t row = b < 2 * VB_HIST_SUBS ? 0 : b / VB_HIST_SUBS - 1;
    double first = (double)((uint64_t)(b - row * VB_HIST_SUBS) << row);
    double rank = (double)h->count / 2 - (double)below;
    uint64_t inside = h->buckets[b] ? h->buckets[b] : 1;
    return (uint64_t)(first + (double)(1ull << row) * rank / (double)inside);
}

// The slices' medians, and the quantiles of all that was recorded.
static void summarise(struct vb_perf_latency *out, const struct vb_hist *all,
                      uint64_t medians[VB_PERF_SLICES])
{
    qsort(medians, VB_PERF_SLICES, sizeof *medians, compare_ns);
    out->count = all->count;
    out->p50_ns = (medians[(VB_PERF_SLICES - 1) / 2] + medians[VB_PERF_SLICES / 2]) / 2;
    out->p99_ns = vb_hist_quantile(all, 0.99);
    out->p999_ns = vb_hist_quantile(all, 0.999);
    out->p50_min_ns = medians[0];
    out->p50_max_ns = medians[VB_PERF_SLICES - 1];
}

// The kinds in turn, so that noise from elsewhere hits all.
static int measure_latency(struct client *c, struct vb_perf_row *row)
{
    struct vb_hist *slice = malloc((1 + VB_PERF_KINDS) * sizeof *slice);
    if (slice == NULL)
        return vb_perf_fail(c->session->why, "no memory");
    struct vb_hist *all = slice + 1; // by kind
    uint64_t medians[VB_PERF_KINDS][VB_PERF_SLICES] = {0};
    int error = 0;
    for (unsigned kind = 0; kind < VB_PERF_KINDS; kind++)
        vb_hist_init(&all[kind]);
    vb_progress_phase(c->progress, "latency", 0, LATENCY_PART);
    for (unsigned i = 0; i < VB_PERF_SLICES && !error; i++) {
        for (unsigned kind = 0; kind < VB_PERF_KINDS && !error; kind++) {
            if (!is_measured(c, kind))
                continue;
            error = run_slice(c, kind, slice);
            medians[kind][i] = median_ns(slice);
            vb_hist_merge(&all[kind], slice);
        }
        vb_progress_show(c->progress, vb_clock_ns(), (i + 1.0) / VB_PERF_SLICES);
    }
    for (unsigned kind = 0; kind < VB_PERF_KINDS && !error; kind++) {
        if (is_measured(c, kind))
            summarise(&row->latency[kind], &all[kind], medians[kind]);
    }
    free(slice);
    return error;
}

// Caches, branch predictors and the neighbour table are warm before anything is recorded.
static int warm_up(struct client *c)
{
    struct vb_hist *unused = malloc(sizeof *unused);
    if (unused == NULL)
        return vb_perf_fail(c->session->why, "no memory");
    struct vb_perf_budget budget = {.end_ns = vb_clock_ns() + WARM_UP_NS, .ops = 1000};
    vb_hist_init(unused);
    int error = set_mode(c, VB_PERF_MODE_ECHO) < 0 || ping(c, &c->raw, &budget, unused) < 0;
    if (!error && c->plan->op != VB_PERF_RAW) {
        budget.end_ns = vb_clock_ns() + WARM_UP_NS;
        error =
            set_mode(c, VB_PERF_MODE_NIC) < 0 || vb_perf_run_latency(&c->run, &budget, unused) < 0;
    }
    free(unused);
    return error ? -1 : 0;
}

static int get_counts(struct client *c, uint64_t *verified, uint64_t *wrong, uint64_t *sunk)
{
    struct vb_control_msg msg;
    vb_control_begin(&msg, VB_CONTROL_COUNTS);
    if (vb_perf_ask(c->session, &msg, VB_CONTROL_COUNTS) < 0)
        return -1;
    *verified = vb_control_get(&msg);
    *wrong = vb_control_get(&msg);
    *sunk = vb_control_get(&msg);
    return 0;
}

static int measure_rate(struct client *c, struct vb_perf_row *row)
{
    vb_progress_phase(c->progress, "rate", LATENCY_PART, 1);
    if (set_mode(c, VB_PERF_MODE_NIC) < 0)
        return -1;
    struct vb_perf_budget budget = budget_of(c->length, 1);
    return vb_perf_run_rate(&c->run, &budget, &row->rate_ops, &row->rate_ns);
}

static int measure_raw_rate(struct client *c, struct vb_perf_row *row)
{
    uint64_t sent, verified, wrong;
    vb_progress_phase(c->progress, "rate", LATENCY_PART, 1);
    if (set_mode(c, VB_PERF_MODE_SINK) < 0)
        return -1;
    struct vb_perf_budget budget = budget_of(c->length, 1);
    uint64_t begin = vb_clock_ns();
    if (vb_raw_blast(&c->raw, c->plan->size, &budget, &sent, c->session->why) < 0)
        return -1;
    row->rate_ns = vb_clock_ns() - begin;
    if (get_counts(c, &verified, &wrong, &row->rate_ops) < 0)
        return -1;
    row->rate_lost = sent > row->rate_ops ? sent - row->rate_ops : 0;
    return 0;
}

// Every operation that had to be verified was, and held the right bytes.
static int verify(struct client *c, struct vb_perf_row *row)
{
    uint64_t verified, wrong, sunk;
    if (get_counts(c, &verified, &wrong, &sunk) < 0)
        return -1;
    if (c->plan->op == VB_PERF_READ)
        verified = c->run.verified;
    uint64_t expected = vb_perf_run_verifies(&c->run);
    if (wrong || verified != expected)
        return vb_perf_fail(c->session->why,
                            "verification failed: of %llu operations %llu held the right bytes, "
                            "%llu wrong ones",
                            (unsigned long long)expected, (unsigned long long)verified,
                            (unsigned long long)wrong);
    row->verified = verified;
    return 0;
}

int vb_perf_measure(struct vb_perf_session *session, const struct vb_perf_plan *plan,
                    const struct vb_perf_length *length, struct vb_progress *progress,
                    struct vb_perf_row *row)
{
    struct client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return vb_perf_fail(session->why, "no memory");
    *row = (struct vb_perf_row){.plan = *plan};
    c->session = session;
    c->plan = &row->plan;
    c->length = length;
    c->progress = progress;
    c->raw.fd = c->connected.fd = -1;
    bool raw = plan->op == VB_PERF_RAW;
    int error = open_both(c) < 0 || warm_up(c) < 0 || measure_latency(c, row) < 0;
    error = error || (raw ? measure_raw_rate(c, row) : measure_rate(c, row)) < 0;
    error = error || (!raw && verify(c, row) < 0);
    close_both(c);
    if (!error) {
        struct vb_control_msg msg;
        vb_control_begin(&msg, VB_CONTROL_CLOSE);
        error = vb_perf_ask(session, &msg, VB_CONTROL_OK) < 0;
    }
    free(c);
    vb_progress_clear(progress);
    return error ? -1 : 0;
}
