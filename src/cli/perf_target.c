// SPDX-License-Identifier: Apache-2.0
// The server's side of a measurement.
#include "cli/perf_target.h"

#include "base/bytes.h"
#include "cli/perf_address.h"
#include "cli/perf_control.h"
#include "cli/perf_end.h"
#include "cli/perf_pattern.h"
#include "cli/perf_raw.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_EVERY = 256,      // turns between looks at the control channel
    BATCH = 64,            // receives posted and completions polled at once
    RECV_DEPTH_MIN = 1024, // more than one turn of the NIC can use up
    LANE_SHIFT = 48,
};

// A queue pair as the server sees it.
struct lane {
    uint64_t next_stamp; // WRITE: the verified operation that is awaited
    uint64_t posted;     // SEND: receives posted
    uint64_t received;
};

struct target {
    int control;
    bool yield;
    struct vb_nic *nic;
    char why[VB_PERF_WHY];
    bool open; // the rest is of the measurement at hand
    struct vb_perf_plan plan;
    struct vb_perf_layout layout;
    struct vb_perf_end end;
    struct vb_raw raw;
    uint64_t verified, wrong, sunk;
    struct lane lane[VB_PERF_QPS_MAX];
};

static void get_plan(struct vb_control_msg *msg, struct vb_perf_plan *plan)
{
    uint32_t *fields[] = {&plan->size, &plan->depth, &plan->qps,
                          &plan->mtu,  &plan->reads, &plan->raw_size};
    uint64_t op = vb_control_get(msg);
    plan->op = op < VB_PERF_OPS ? (enum vb_perf_op)op : VB_PERF_OPS;
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint64_t value = vb_control_get(msg);
        *fields[i] = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
    }
    plan->seed = vb_control_get(msg);
}

static void close_row(struct target *t)
{
    if (!t->open)
        return;
    if (t->plan.op != VB_PERF_RAW)
        vb_perf_end_close(&t->end);
    vb_raw_close(&t->raw);
    t->open = false;
}

static uint32_t recv_depth(const struct vb_perf_plan *plan)
{
    if (plan->op != VB_PERF_SEND)
        return 1;
    return 2 * plan->depth > RECV_DEPTH_MIN ? 2 * plan->depth : RECV_DEPTH_MIN;
}

static int open_end(struct target *t)
{
    struct vb_perf_end_opts opts = {
        .mem_bytes = t->layout.total,
        .qps = t->plan.qps,
        .send_depth = 1,
        .recv_depth = recv_depth(&t->plan),
        .sges = 1,
        .mtu = t->plan.mtu,
        .reads = t->plan.reads,
        .seed = ~t->plan.seed,
    };
    if (vb_perf_end_open(&t->end, t->nic, &opts, t->why) < 0)
        return -1;
    if (t->plan.op == VB_PERF_READ)
        vb_pattern_fill(t->end.mem, t->layout.window, t->plan.seed, 0);
    for (uint32_t q = 0; q < t->plan.qps; q++)
        t->lane[q] = (struct lane){.next_stamp = 1};
    return 0;
}

// Plan in, description of our end out.
static int set_up(struct target *t, struct vb_control_msg *msg)
{
    uint16_t raw_port;
    close_row(t);
    get_plan(msg, &t->plan);
    const char *flaw = msg->bad ? "too short" : vb_perf_plan_flaw(&t->plan);
    if (flaw != NULL)
        return vb_perf_fail(t->why, "the client's plan: %s", flaw);
    t->layout = vb_perf_layout_of(&t->plan);
    t->verified = t->wrong = t->sunk = 0;
    t->raw.yield = t->yield;
    if (vb_raw_open(&t->raw, vb_perf_nic_ip(t->nic), &raw_port, t->why) < 0)
        return -1;
    if (t->plan.op != VB_PERF_RAW && open_end(t) < 0) {
        vb_raw_close(&t->raw);
        return -1;
    }
    t->open = true;
    vb_control_begin(msg, VB_CONTROL_SETUP);
    vb_control_put(msg, raw_port);
    if (t->plan.op != VB_PERF_RAW)
        vb_perf_end_describe(&t->end, msg);
    return 0;
}

// Keeps the receive queue of lane q full. A message that must be verified gets a slot of its own.
static void post_receives(struct target *t, uint32_t q)
{
    struct vb_recv_wr wr[BATCH];
    struct vb_sge sge[BATCH];
    struct lane *lane = &t->lane[q];
    uint64_t missing = t->end.opts.recv_depth - (lane->posted - lane->received);
    while (missing > 0) {
        uint32_t n = missing < BATCH ? (uint32_t)missing : BATCH;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t number = lane->posted + i + 1;
            size_t offset = 0;
            if (number % VB_PERF_VERIFY_EVERY == 0)
                offset = vb_perf_slot(&t->layout, q, number / VB_PERF_VERIFY_EVERY);
            sge[i] = (struct vb_sge){.addr = (uint64_t)(uintptr_t)(t->end.mem + offset),
                                     .len = t->plan.size,
                                     .lkey = vb_mr_key(t->end.mr)};
            wr[i] = (struct vb_recv_wr){
                .wr_id = (uint64_t)q << LANE_SHIFT | number, .sge = &sge[i], .num_sge = 1};
        }
        int posted = vb_post_recv(t->end.qp[q], wr, n);
        if (posted <= 0)
            return;
        lane->posted += (uint64_t)posted;
        missing -= (uint64_t)posted;
    }
}

static void take_message(struct target *t, const struct vb_wc *wc)
{
    uint32_t q = (uint32_t)(wc->wr_id >> LANE_SHIFT);
    uint64_t number = wc->wr_id & ((1ull << LANE_SHIFT) - 1);
    t->lane[q].received++;
    if (wc->status != VB_WC_OK || wc->byte_len != t->plan.size) {
        t->wrong++;
    } else if (number % VB_PERF_VERIFY_EVERY == 0) {
        uint64_t v = number / VB_PERF_VERIFY_EVERY;
        const uint8_t *slot = t->end.mem + vb_perf_slot(&t->layout, q, v);
        if (vb_stamp_matches(slot, &t->plan, q, v))
            t->verified++;
        else
            t->wrong++;
    }
}

// Runs the NIC and takes what was received. Returns whether there was anything to do.
static bool turn_send(struct target *t)
{
    struct vb_wc wc[BATCH];
    int n = vb_poll_cq(t->end.recv_cq, wc, BATCH);
    uint64_t touched = 0;
    for (int i = 0; i < n; i++) {
        take_message(t, &wc[i]);
        touched |= 1ull << (wc[i].wr_id >> LANE_SHIFT);
    }
    for (; touched; touched &= touched - 1)
        post_receives(t, (uint32_t)__builtin_ctzll(touched));
    return n > 0;
}

static void look_for_stamps(struct target *t)
{
    for (uint32_t q = 0; q < t->plan.qps; q++) {
        for (;;) {
            uint64_t v = t->lane[q].next_stamp;
            const uint8_t *slot = t->end.mem + vb_perf_slot(&t->layout, q, v);
            if (!vb_stamp_arrived(slot, &t->plan, q, v))
                break;
            if (vb_stamp_matches(slot, &t->plan, q, v))
                t->verified++;
            else
                t->wrong++;
            t->lane[q].next_stamp++;
        }
    }
}

static bool turn_memory(struct target *t)
{
    bool busy = vb_nic_progress(t->nic) > 0;
    if (busy && t->plan.op == VB_PERF_WRITE)
        look_for_stamps(t);
    return busy;
}

static void run_nic(struct target *t)
{
    for (uint32_t turn = 1;; turn++) {
        bool busy = t->plan.op == VB_PERF_SEND ? turn_send(t) : turn_memory(t);
        if (!busy && t->yield)
            sched_yield();
        if (turn % LOOK_EVERY == 0 && vb_control_ready(t->control))
            return;
    }
}

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
    bool has_end = t->open && t->plan.op != VB_PERF_RAW;
    if (msg->bad || mode > VB_PERF_MODE_SINK || !t->open || (mode == VB_PERF_MODE_NIC && !has_end))
        return vb_perf_fail(t->why, "the client asked for a mode that does not fit");
    if (answer_ok(t, msg) < 0)
        return -1;
    switch ((enum vb_perf_mode)mode) {
    case VB_PERF_MODE_NIC: run_nic(t); break;
    case VB_PERF_MODE_ECHO: vb_raw_echo(&t->raw, t->control); break;
    case VB_PERF_MODE_SINK: t->sunk += vb_raw_sink(&t->raw, t->control); break;
    case VB_PERF_MODE_REST: break;
    }
    return 0;
}

static int connect_end(struct target *t, struct vb_control_msg *msg)
{
    if (!t->open || t->plan.op == VB_PERF_RAW)
        return vb_perf_fail(t->why, "the client connects without a plan");
    if (vb_perf_end_connect(&t->end, msg, t->why) < 0)
        return -1;
    for (uint32_t q = 0; q < t->plan.qps && t->plan.op == VB_PERF_SEND; q++)
        post_receives(t, q);
    return answer_ok(t, msg);
}

static int count(struct target *t, struct vb_control_msg *msg)
{
    if (t->open && t->plan.op == VB_PERF_WRITE)
        look_for_stamps(t);
    vb_control_begin(msg, VB_CONTROL_COUNTS);
    vb_control_put(msg, t->verified);
    vb_control_put(msg, t->wrong);
    vb_control_put(msg, t->sunk);
    return answer(t, msg);
}

static int greet(struct target *t, struct vb_control_msg *msg)
{
    uint64_t version = vb_control_get(msg);
    if (version != VB_PERF_VERSION)
        return vb_perf_fail(t->why, "the client speaks version %llu of the control channel, not %d",
                            (unsigned long long)version, VB_PERF_VERSION);
    uint8_t gid[16];
    vb_nic_gid(t->nic, gid);
    vb_control_begin(msg, VB_CONTROL_HELLO);
    vb_control_put(msg, VB_PERF_VERSION);
    vb_control_put_bytes(msg, gid, sizeof gid);
    return answer(t, msg);
}

static int obey(struct target *t, struct vb_control_msg *msg)
{
    switch (msg->kind) {
    case VB_CONTROL_HELLO: return greet(t, msg);
    case VB_CONTROL_SETUP: return set_up(t, msg) < 0 ? -1 : answer(t, msg);
    case VB_CONTROL_CONNECT: return connect_end(t, msg);
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

int vb_perf_serve(int control, struct vb_nic *nic, bool yield)
{
    struct vb_control_msg msg;
    struct target t = {.control = control, .nic = nic, .yield = yield, .raw.fd = -1};
    int error, timeout_ms = VB_CONTROL_TIMEOUT_MS; // a client that says nothing holds up the others
    while ((error = vb_control_receive(control, &msg, timeout_ms)) == 0) {
        timeout_ms = -1;
        if (obey(&t, &msg) < 0) {
            vb_perf_decline(control, t.why);
            break;
        }
    }
    bool finished = error == -EPIPE && !t.open;
    close_row(&t);
    return finished ? 0 : -1;
}
