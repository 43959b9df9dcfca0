// SPDX-License-Identifier: Apache-2.0
// The server's side of a measurement.
#include "cli/perf_target.h"

#include "cli/perf_get_server.h"
#include "cli/perf_line.h"
#include "cli/perf_plan.h"
#include "cli/perf_raw.h"
#include "cli/perf_sink.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    LOOK_EVERY = 256,        // turns between looks at the control channel
    SPIN_EVERY = 65536,      // likewise, of a target that only spins
    COMPUTE_STEPS = 1 << 18, // multiplications between two looks: some 0.2 ms
    SLEEP_MS = 1,
};

struct target {
    int control;
    bool yield;
    const char *port;
    struct vb_nic *nic;
    char why[VB_PERF_WHY];
    bool open; // the rest is of the measurement at hand
    struct vb_perf_plan plan;
    struct vb_perf_sink sink;
    struct vb_get_server get;
    struct vb_raw raw;
    struct vb_line line;
    uint64_t sunk;      // raw packets
    uint64_t miscopied; // messages of the copy through shared memory
    uint64_t computed;  // so that computing has a result
};

static bool has_gets(const struct target *t)
{
    return t->open && t->plan.op == VB_PERF_GET;
}

static bool has_sink(const struct target *t)
{
    return t->open && t->plan.op != VB_PERF_RAW && !has_gets(t);
}

static void close_row(struct target *t)
{
    if (has_sink(t))
        vb_perf_sink_close(&t->sink);
    if (has_gets(t))
        vb_get_server_close(&t->get);
    vb_raw_close(&t->raw);
    vb_line_close(&t->line);
    t->open = false;
}

// The yardstick of the plan's port. *raw_port is where the client finds it.
static int open_raw(struct target *t, uint64_t token, uint16_t *raw_port)
{
    uint8_t gid[16];
    *raw_port = 0;
    t->raw.yield = t->line.yield = t->yield;
    if (t->plan.port == VB_PERF_SHM)
        return vb_line_join(&t->line, token, t->why);
    vb_nic_gid(t->nic, gid);
    return vb_raw_open(&t->raw, gid, raw_port, t->why);
}

static int open_nic_side(struct target *t)
{
    if (t->plan.op == VB_PERF_RAW)
        return 0;
    if (t->plan.op == VB_PERF_GET)
        return vb_get_server_open(&t->get, t->nic, &t->plan, t->why);
    return vb_perf_sink_open(&t->sink, t->nic, &t->plan, t->why);
}

// Our end of the queue pairs; NULL: there is none.
static struct vb_perf_end *end_of(struct target *t)
{
    if (has_gets(t))
        return &t->get.end;
    return has_sink(t) ? &t->sink.end : NULL;
}

// Plan in, description of our end out.
static int set_up(struct target *t, struct vb_control_msg *msg)
{
    uint16_t raw_port;
    close_row(t);
    vb_perf_plan_get(msg, &t->plan);
    uint64_t token = vb_control_get(msg);
    const char *flaw = msg->bad ? "too short" : vb_perf_plan_flaw(&t->plan);
    if (flaw != NULL)
        return vb_perf_fail(t->why, "the client's plan: %s", flaw);
    t->sunk = t->miscopied = 0;
    if (open_raw(t, token, &raw_port) < 0)
        return -1;
    if (open_nic_side(t) < 0) {
        close_row(t);
        return -1;
    }
    t->open = true;
    vb_control_begin(msg, VB_CONTROL_SETUP);
    vb_control_put(msg, raw_port);
    if (end_of(t) != NULL)
        vb_perf_end_describe(end_of(t), msg);
    return 0;
}

// ---- what the target's program does

static void poll_nic(struct target *t)
{
    for (uint32_t turn = 1;; turn++) {
        if (!vb_perf_sink_turn(&t->sink) && t->yield)
            sched_yield();
        if (turn % LOOK_EVERY == 0 && vb_control_ready(t->control))
            return;
    }
}

static void spin_on_memory(struct target *t)
{
    const volatile uint8_t *byte = t->sink.end.mem;
    for (uint32_t turn = 1;; turn++) {
        t->computed += *byte;
        if (turn % LOOK_EVERY == 0)
            vb_perf_sink_look(&t->sink);
        if (turn % SPIN_EVERY == 0 && vb_control_ready(t->control))
            return;
    }
}

static void sleep_on(struct target *t)
{
    struct pollfd p = {.fd = t->control, .events = POLLIN};
    while (poll(&p, 1, SLEEP_MS) == 0)
        vb_perf_sink_look(&t->sink);
}

static void compute(struct target *t)
{
    while (!vb_control_ready(t->control)) {
        volatile uint64_t x = t->computed | 1;
        for (uint32_t i = 0; i < COMPUTE_STEPS; i++)
            x *= 0x9e3779b97f4a7c15u;
        t->computed = x;
        vb_perf_sink_look(&t->sink);
    }
}

static void be_hit(struct target *t)
{
    switch (t->plan.target) {
    case VB_PERF_SPINS: spin_on_memory(t); break;
    case VB_PERF_SLEEPS: sleep_on(t); break;
    case VB_PERF_COMPUTES: compute(t); break;
    default: poll_nic(t); break;
    }
}

static void echo(struct target *t)
{
    if (t->plan.port == VB_PERF_SHM)
        vb_line_echo(&t->line, t->control);
    else
        vb_raw_echo(&t->raw, t->control);
}

static void sink(struct target *t)
{
    if (t->plan.port == VB_PERF_SHM)
        t->miscopied += vb_line_take(&t->line, t->control);
    else
        t->sunk += vb_raw_sink(&t->raw, t->control);
}

// ---- messages

static int answer(struct target *t, const struct vb_control_msg *msg)
{
    return vb_control_send(t->control, msg) < 0 ? -1 : 0;
}

static int answer_ok(struct target *t, struct vb_control_msg *msg)
{
    vb_control_begin(msg, VB_CONTROL_OK);
    return answer(t, msg);
}

// A stranger might connect an end that it has not set up, or choose a mode without one.
static int work(struct target *t, struct vb_control_msg *msg)
{
    uint64_t mode = vb_control_get(msg);
    bool serves = has_gets(t) && mode == VB_PERF_MODE_NIC;
    uint64_t via = serves ? vb_control_get(msg) : 0;
    if (msg->bad || mode > VB_PERF_MODE_SINK || !t->open || via >= VB_PERF_WAYS ||
        (mode == VB_PERF_MODE_NIC && end_of(t) == NULL))
        return vb_perf_fail(t->why, "the client asked for a mode that does not fit");
    if (answer_ok(t, msg) < 0)
        return -1;
    if (serves) {
        vb_get_server_run(&t->get, (enum vb_perf_via)via, t->control, t->yield);
        return 0;
    }
    switch ((enum vb_perf_mode)mode) {
    case VB_PERF_MODE_NIC: be_hit(t); break;
    case VB_PERF_MODE_ECHO: echo(t); break;
    case VB_PERF_MODE_SINK: sink(t); break;
    case VB_PERF_MODE_REST: break;
    }
    return 0;
}

static int connect_end(struct target *t, struct vb_control_msg *msg)
{
    if (end_of(t) == NULL)
        return vb_perf_fail(t->why, "the client connects without a plan");
    if (vb_perf_end_meet(end_of(t), msg, t->why) < 0)
        return -1;
    return answer_ok(t, msg);
}

// Names in, the names of those they are connected to out.
static int connect_some(struct target *t, struct vb_control_msg *msg)
{
    uint64_t first = vb_control_get(msg);
    if (end_of(t) == NULL || msg->bad || first >= t->plan.qps)
        return vb_perf_fail(t->why, "the client names queue pairs that it has not planned");
    if (has_gets(t))
        return vb_get_server_connect(&t->get, msg, t->why) < 0 ? -1 : answer(t, msg);
    if (vb_perf_sink_connect(&t->sink, (uint32_t)first, msg, t->why) < 0)
        return -1;
    vb_control_begin(msg, VB_CONTROL_NAMES);
    vb_perf_end_name(&t->sink.end, (uint32_t)first, msg);
    return answer(t, msg);
}

uint64_t vb_perf_cpu_ns(void)
{
    struct rusage use = {0};
    (void)getrusage(RUSAGE_SELF, &use);
    return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000000 +
           (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000;
}

void vb_perf_counts_get(struct vb_control_msg *msg, struct vb_perf_counts *counts)
{
    counts->verified = vb_control_get(msg);
    counts->wrong = vb_control_get(msg);
    counts->arrived = vb_control_get(msg);
    counts->sum = vb_control_get(msg);
    counts->cpu_ns = vb_control_get(msg);
}

static int count(struct target *t, struct vb_control_msg *msg)
{
    struct vb_perf_counts c = {.wrong = t->miscopied, .arrived = t->sunk};
    if (has_sink(t)) {
        if (vb_perf_is_lossy(&t->plan))
            vb_perf_sink_settle(&t->sink);
        vb_perf_sink_drain(&t->sink);
        c.verified = t->sink.verified;
        c.wrong += t->sink.wrong;
        c.arrived = vb_perf_sink_arrived(&t->sink);
        c.sum = vb_perf_sink_sum(&t->sink);
    }
    if (has_gets(t)) {
        c.wrong = t->get.wrong;
        c.arrived = t->get.answered[VB_PERF_VIA_RPC] + t->get.answered[VB_PERF_VIA_RPC_BLOCKING];
    }
    c.cpu_ns = vb_perf_cpu_ns();
    vb_control_begin(msg, VB_CONTROL_COUNTS);
    uint64_t fields[] = {c.verified, c.wrong, c.arrived, c.sum, c.cpu_ns};
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        vb_control_put(msg, fields[i]);
    return answer(t, msg);
}

static int greet(struct target *t, struct vb_control_msg *msg)
{
    uint64_t version = vb_control_get(msg);
    if (version != VB_PERF_VERSION)
        return vb_perf_fail(t->why, "the client speaks version %llu of the control channel, not %d",
                            (unsigned long long)version, VB_PERF_VERSION);
    uint8_t gid[16];
    char port[VB_PERF_PORT_NAME] = "";
    vb_nic_gid(t->nic, gid);
    snprintf(port, sizeof port, "%s", t->port);
    vb_control_begin(msg, VB_CONTROL_HELLO);
    vb_control_put(msg, VB_PERF_VERSION);
    vb_control_put_bytes(msg, gid, sizeof gid);
    vb_control_put_bytes(msg, port, sizeof port);
    vb_control_put(msg, vb_line_place());
    return answer(t, msg);
}

static int obey(struct target *t, struct vb_control_msg *msg)
{
    switch (msg->kind) {
    case VB_CONTROL_HELLO: return greet(t, msg);
    case VB_CONTROL_SETUP: return set_up(t, msg) < 0 ? -1 : answer(t, msg);
    case VB_CONTROL_CONNECT: return connect_end(t, msg);
    case VB_CONTROL_NAMES: return connect_some(t, msg);
    case VB_CONTROL_MODE: return work(t, msg);
    case VB_CONTROL_COUNTS: return count(t, msg);
    case VB_CONTROL_CLOSE: close_row(t); return answer_ok(t, msg);
    case VB_CONTROL_OK:
    case VB_CONTROL_ERROR: break;
    }
    return vb_perf_fail(t->why, "the client sent a message of unknown kind %d", (int)msg->kind);
}

void vb_perf_decline(int control, const char *why)
{
    struct vb_control_msg msg;
    vb_control_begin(&msg, VB_CONTROL_ERROR);
    vb_control_put_bytes(&msg, why, (uint32_t)strlen(why));
    (void)vb_control_send(control, &msg);
}

int vb_perf_serve(const struct vb_perf_serve_opts *opts)
{
    struct vb_control_msg msg;
    struct target t = {.control = opts->control,
                       .nic = opts->nic,
                       .yield = opts->yield,
                       .port = opts->port,
                       .raw.fd = -1};
    int error, timeout_ms = VB_CONTROL_TIMEOUT_MS; // a client that says nothing holds up the others
    while ((error = vb_control_receive(t.control, &msg, timeout_ms)) == 0) {
        timeout_ms = -1;
        if (obey(&t, &msg) < 0) {
            vb_perf_decline(t.control, t.why);
            break;
        }
    }
    bool finished = error == -EPIPE && !t.open;
    close_row(&t);
    return finished ? 0 : -1;
}
