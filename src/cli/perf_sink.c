// SPDX-License-Identifier: Apache-2.0
// What operations hit.
#include "cli/perf_sink.h"

#include "base/bytes.h"
#include "cli/perf_plan.h"
#include "port/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 64,      // receives posted and completions polled at once
    LOOK_LANES = 64, // whose memory is looked at after a turn
    LANE_SHIFT = 48,
};

#define QUIET_NS  5000000ull
#define SETTLE_NS 500000000ull

int vb_perf_sink_open(struct vb_perf_sink *sink, struct vb_nic *nic,
                      const struct vb_perf_plan *plan, char *why)
{
    *sink = (struct vb_perf_sink){.plan = *plan, .layout = vb_perf_layout_of(plan)};
    struct vb_perf_end_opts opts = {
        .service = plan->service,
        .mem_bytes = sink->layout.total,
        .qps = plan->qps,
        .active = plan->active,
        .send_depth = 1,
        .recv_depth = vb_perf_recv_depth(plan),
        .sges = 1,
        .mtu = plan->mtu,
        .reads = plan->reads,
        .seed = ~plan->seed,
        .timeout = (uint8_t)plan->timeout,
    };
    sink->lane = calloc(plan->active, sizeof *sink->lane);
    if (sink->lane == NULL)
        return vb_perf_fail(why, "no memory");
    if (vb_perf_end_open(&sink->end, nic, &opts, why) < 0) {
        free(sink->lane);
        return -1;
    }
    if (vb_perf_is_read(plan))
        vb_pattern_fill(sink->end.mem, sink->layout.window, plan->seed, 0);
    for (uint32_t q = 0; q < plan->active; q++)
        sink->lane[q].next_stamp = 1;
    (void)vb_nic_counter(nic, "rx_write_requests", &sink->writes_before);
    return 0;
}

void vb_perf_sink_close(struct vb_perf_sink *sink)
{
    vb_perf_end_close(&sink->end);
    free(sink->lane);
    sink->lane = NULL;
}

// ---- receives

// A message that must be verified gets a slot of its own; where messages are lost, all do.
static void fill_receive(struct vb_perf_sink *sink, uint32_t q, uint64_t number, struct vb_sge *sge)
{
    uint32_t grh = sink->plan.service == VB_SERVICE_UD ? VB_PERF_GRH : 0;
    size_t offset = 0;
    if (sink->layout.receives)
        offset = vb_perf_receive(&sink->layout, q, number) - grh;
    else if (sink->plan.op == VB_PERF_SEND && number % VB_PERF_VERIFY_EVERY == 0)
        offset = vb_perf_slot(&sink->layout, q, number / VB_PERF_VERIFY_EVERY);
    *sge = (struct vb_sge){.addr = (uint64_t)(uintptr_t)(sink->end.mem + offset),
                           .len = sink->plan.size + grh,
                           .lkey = vb_mr_key(sink->end.mr)};
}

// Keeps the receive queue of lane q full.
static void post_receives(struct vb_perf_sink *sink, uint32_t q)
{
    struct vb_recv_wr wr[BATCH];
    struct vb_sge sge[BATCH];
    struct vb_perf_sink_lane *lane = &sink->lane[q];
    uint64_t missing = sink->end.opts.recv_depth - (lane->posted - lane->received);
    while (missing > 0) {
        uint32_t n = missing < BATCH ? (uint32_t)missing : BATCH;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t number = lane->posted + i + 1;
            fill_receive(sink, q, number, &sge[i]);
            wr[i] = (struct vb_recv_wr){
                .wr_id = (uint64_t)q << LANE_SHIFT | number, .sge = &sge[i], .num_sge = 1};
        }
        int posted = vb_post_recv(sink->end.qp[q], wr, n);
        if (posted <= 0)
            return;
        lane->posted += (uint64_t)posted;
        missing -= (uint64_t)posted;
    }
}

int vb_perf_sink_connect(struct vb_perf_sink *sink, uint32_t first, struct vb_control_msg *msg,
                         char *why)
{
    const struct vb_perf_plan *plan = &sink->plan;
    if (vb_perf_end_connect(&sink->end, first, msg, why) < 0)
        return -1;
    for (uint32_t q = first; q < first + VB_PERF_NAMES && q < plan->active; q++) {
        if (vb_perf_is_received(plan))
            post_receives(sink, q);
    }
    return 0;
}

static void judge(struct vb_perf_sink *sink, size_t offset, uint32_t q, uint64_t v)
{
    if (vb_stamp_matches(sink->end.mem + offset, &sink->plan, q, v))
        sink->verified++;
    else
        sink->wrong++;
}

static bool is_whole(const struct vb_perf_sink *sink, const struct vb_wc *wc)
{
    bool datagram = sink->plan.service == VB_SERVICE_UD;
    return wc->status == VB_WC_OK &&
           wc->byte_len == sink->plan.size + (datagram ? VB_PERF_GRH : 0) &&
           !(wc->flags & VB_WC_WITH_GRH) == !datagram;
}

// Of SENDs that cannot be lost the number tells which must be verified, else immediate data.
static void take_message(struct vb_perf_sink *sink, const struct vb_wc *wc)
{
    const struct vb_perf_layout *l = &sink->layout;
    uint32_t q = (uint32_t)(wc->wr_id >> LANE_SHIFT);
    uint64_t number = wc->wr_id & ((1ull << LANE_SHIFT) - 1);
    uint64_t v = wc->flags & VB_WC_WITH_IMM ? be32toh(wc->imm) : 0;
    sink->lane[q].received++;
    if (!is_whole(sink, wc))
        sink->wrong++;
    else if (l->receives && v)
        judge(sink, vb_perf_receive(l, q, number), q, v);
    else if (sink->plan.op == VB_PERF_WRITE_IMM && v)
        judge(sink, vb_perf_slot(l, q, v), q, v);
    else if (!l->receives && sink->plan.op == VB_PERF_SEND && number % VB_PERF_VERIFY_EVERY == 0)
        judge(sink, vb_perf_slot(l, q, number / VB_PERF_VERIFY_EVERY), q,
              number / VB_PERF_VERIFY_EVERY);
}

static bool turn_receive(struct vb_perf_sink *sink)
{
    struct vb_wc wc[BATCH];
    int n = vb_poll_cq(sink->end.recv_cq, wc, BATCH);
    for (int i = 0; i < n; i++)
        take_message(sink, &wc[i]);
    for (int i = 0; i < n; i++) // a lane that comes again has nothing missing
        post_receives(sink, (uint32_t)(wc[i].wr_id >> LANE_SHIFT));
    return n > 0;
}

// ---- memory

// Finds the next stamp of lane q that has arrived. Where WRITEs are lost, it may not be the one
// that is awaited.
static bool find_stamp(const struct vb_perf_sink *sink, uint32_t q, uint64_t *v)
{
    uint32_t ahead = vb_perf_is_lossy(&sink->plan) ? sink->layout.slots : 1;
    for (uint32_t i = 0; i < ahead; i++) {
        *v = sink->lane[q].next_stamp + i;
        const uint8_t *slot = sink->end.mem + vb_perf_slot(&sink->layout, q, *v);
        if (vb_stamp_arrived(slot, &sink->plan, q, *v))
            return true;
    }
    return false;
}

static void look_at_lane(struct vb_perf_sink *sink, uint32_t q)
{
    uint64_t v;
    while (find_stamp(sink, q, &v)) {
        judge(sink, vb_perf_slot(&sink->layout, q, v), q, v);
        sink->lane[q].next_stamp = v + 1;
    }
}

void vb_perf_sink_look(struct vb_perf_sink *sink)
{
    for (uint32_t q = 0; q < sink->plan.active && sink->plan.op == VB_PERF_WRITE; q++)
        look_at_lane(sink, q);
}

// Some lanes in turn: of many, each goes round its slots the more slowly.
static void look_at_some(struct vb_perf_sink *sink)
{
    uint32_t active = sink->plan.active, n = active < LOOK_LANES ? active : LOOK_LANES;
    for (; n > 0 && sink->plan.op == VB_PERF_WRITE; n--) {
        look_at_lane(sink, sink->look_at);
        sink->look_at = sink->look_at + 1 < active ? sink->look_at + 1 : 0;
    }
}

bool vb_perf_sink_turn(struct vb_perf_sink *sink)
{
    if (vb_perf_is_received(&sink->plan))
        return turn_receive(sink);
    bool busy = vb_nic_progress(sink->end.nic) > 0;
    look_at_some(sink); // the helper may have been busy
    return busy;
}

void vb_perf_sink_drain(struct vb_perf_sink *sink)
{
    while (vb_perf_sink_turn(sink))
        continue;
    vb_perf_sink_look(sink);
}

void vb_perf_sink_settle(struct vb_perf_sink *sink)
{
    uint64_t begin = vb_clock_ns(), busy_ns = begin, now = begin;
    while (now - busy_ns < QUIET_NS && now - begin < SETTLE_NS) {
        bool busy = vb_perf_sink_turn(sink);
        now = vb_clock_ns();
        if (busy)
            busy_ns = now;
    }
}

// ---- counts

uint64_t vb_perf_sink_arrived(const struct vb_perf_sink *sink)
{
    uint64_t total = 0;
    if (sink->plan.op == VB_PERF_WRITE) {
        (void)vb_nic_counter(sink->end.nic, "rx_write_requests", &total);
        return total - sink->writes_before;
    }
    for (uint32_t q = 0; q < sink->plan.active; q++)
        total += sink->lane[q].received;
    return total;
}

uint64_t vb_perf_sink_sum(const struct vb_perf_sink *sink)
{
    uint64_t sum = 0;
    for (uint32_t q = 0; q < sink->plan.active && vb_perf_is_atomic(&sink->plan); q++) {
        const void *word = sink->end.mem + vb_perf_word(&sink->layout, q);
        sum += __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);
    }
    return sum;
}
