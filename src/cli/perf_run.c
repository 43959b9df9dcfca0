// SPDX-License-Identifier: Apache-2.0
// The client's hot loops. No allocation, and no system call but the NIC's own and a rare look at
// the clock and the control channel.
#include "cli/perf_run.h"

#include "base/bytes.h"
#include "cli/perf_plan.h"
#include "port/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_EVERY = 16,         // turns between looks at the clock
    IDLE_LOOK_EVERY = 16384, // fruitless polls between looks at the control channel
    SIGNAL_MAX = 32,
    LANE_SHIFT = 48, // of a work request's identifier; below it the operation's number
};

#define VERIFIED_BIT (1ull << 47)
#define STUCK_NS     10000000000ull
#define CONTROL_NS   100000000ull

int vb_perf_run_init(struct vb_perf_run *run, struct vb_perf_end *end,
                     const struct vb_perf_plan *plan)
{
    static const enum vb_wr_opcode opcodes[VB_PERF_OPS] = {
        [VB_PERF_READ] = VB_WR_READ,
        [VB_PERF_WRITE] = VB_WR_WRITE,
        [VB_PERF_WRITE_IMM] = VB_WR_WRITE_IMM,
        [VB_PERF_SEND] = VB_WR_SEND,
        [VB_PERF_CAS] = VB_WR_CAS,
        [VB_PERF_FADD] = VB_WR_FADD,
        [VB_PERF_GET] = VB_WR_READ,
        [VB_PERF_IDLE] = VB_WR_READ,
    };
    memset(run, 0, sizeof *run);
    run->lane = calloc(plan->active, sizeof *run->lane);
    run->ready = calloc(plan->active, sizeof *run->ready);
    if (run->lane == NULL || run->ready == NULL)
        return -1;
    run->end = end;
    run->plan = plan;
    run->opcode = opcodes[plan->op];
    run->layout = vb_perf_layout_of(plan);
    run->signal_every = plan->depth / 4 < SIGNAL_MAX ? plan->depth / 4 : SIGNAL_MAX;
    if (run->signal_every == 0)
        run->signal_every = 1;
    for (uint32_t i = 0; i < VB_PERF_BATCH; i++) {
        run->sge[i].len = plan->size;
        run->sge[i].lkey = vb_mr_key(end->mr);
        run->wr[i] = (struct vb_send_wr){
            .sge = &run->sge[i], .num_sge = 1, .opcode = run->opcode, .rkey = end->peer_key};
    }
    for (uint32_t q = 0; q < plan->active; q++)
        run->lane[q].next_verify = VB_PERF_VERIFY_EVERY - 1;
    return 0;
}

void vb_perf_run_fini(struct vb_perf_run *run)
{
    free(run->lane);
    free(run->ready);
    run->lane = NULL;
    run->ready = NULL;
}

uint64_t vb_perf_run_verifies(const struct vb_perf_run *run)
{
    uint64_t total = 0;
    for (uint32_t q = 0; q < run->plan->active; q++)
        total += run->lane[q].verifies;
    return total;
}

static uint32_t next_offset(const struct vb_perf_layout *l, uint32_t offset)
{
    offset += l->stride;
    return offset + l->stride <= l->window ? offset : 0;
}

// The slot of a READ must not hold the right bytes before it is done.
static void poison(uint8_t *slot, const struct vb_perf_run *run, uint64_t v)
{
    vb_pattern_fill(slot, run->plan->size, run->plan->seed, vb_perf_read_offset(&run->layout, v));
    for (uint32_t i = 0; i < run->plan->size; i++)
        slot[i] ^= 0xff;
}

// A stamp. Where receives do not tell which message they took, immediate data does.
static void fill_stamp(struct vb_perf_run *run, uint32_t q, uint32_t i, uint64_t v, size_t slot)
{
    struct vb_send_wr *wr = &run->wr[i];
    vb_stamp_write(run->end->mem + slot, run->plan, q, v);
    wr->raddr = run->end->peer_addr + slot;
    wr->imm = htobe32((uint32_t)v);
    if (run->plan->op == VB_PERF_SEND && vb_perf_is_lossy(run->plan))
        wr->opcode = VB_WR_SEND_IMM;
}

static void fill_verified(struct vb_perf_run *run, uint32_t q, uint32_t i)
{
    struct vb_perf_lane *lane = &run->lane[q];
    uint64_t v = ++lane->verifies;
    size_t slot = vb_perf_slot(&run->layout, q, v);
    uint8_t *bytes = run->end->mem + slot;
    lane->next_verify += VB_PERF_VERIFY_EVERY;
    run->sge[i].addr = (uint64_t)(uintptr_t)bytes;
    if (vb_perf_is_read(run->plan)) {
        poison(bytes, run, v);
        run->wr[i].raddr = run->end->peer_addr + vb_perf_read_offset(&run->layout, v);
    } else if (vb_perf_is_atomic(run->plan)) {
        memset(bytes, 0xff, run->plan->size);
    } else {
        fill_stamp(run, q, i, v, slot);
    }
    run->wr[i].wr_id |= VERIFIED_BIT;
}

// What n atomics of a queue pair leave in its word. The values of CAS are scattered, so that one
// that fails makes all after it fail.
static uint64_t word_after(const struct vb_perf_run *run, uint64_t n)
{
    return run->plan->op == VB_PERF_CAS ? n * 0x9e3779b97f4a7c15u : n;
}

static void fill_atomic(struct vb_perf_run *run, uint32_t q, struct vb_send_wr *wr, uint64_t n)
{
    wr->raddr = run->end->peer_addr + vb_perf_word(&run->layout, q);
    wr->atomic.compare = word_after(run, n);
    wr->atomic.swap_add = run->plan->op == VB_PERF_CAS ? word_after(run, n + 1) : 1;
}

static void fill_destination(struct vb_perf_run *run, uint32_t q, struct vb_send_wr *wr)
{
    memcpy(wr->to.gid, run->end->peer_gid, sizeof wr->to.gid);
    wr->to.qpn = run->end->peer_qpn[q];
    wr->to.qkey = VB_PERF_QKEY;
}

// Writes the next operation of lane q as work request i of the batch.
static void fill(struct vb_perf_run *run, uint32_t q, uint32_t i, bool signal)
{
    struct vb_perf_lane *lane = &run->lane[q];
    struct vb_send_wr *wr = &run->wr[i];
    uint64_t n = lane->posted++;
    run->in_flight++;
    wr->wr_id = (uint64_t)q << LANE_SHIFT | n;
    wr->opcode = run->opcode;
    wr->imm = 0;
    if (n == lane->next_verify) {
        fill_verified(run, q, i);
        signal = true;
    } else {
        run->sge[i].addr = (uint64_t)(uintptr_t)run->end->mem + lane->local_offset;
        wr->raddr = run->end->peer_addr + lane->remote_offset;
        lane->local_offset = next_offset(&run->layout, lane->local_offset);
        lane->remote_offset = next_offset(&run->layout, lane->remote_offset);
    }
    if (vb_perf_is_atomic(run->plan))
        fill_atomic(run, q, wr, n);
    else if (run->plan->service == VB_SERVICE_UD)
        fill_destination(run, q, wr);
    wr->flags = signal ? VB_WR_SIGNALED : 0;
    if (signal)
        lane->signaled = n + 1;
}

static int post(struct vb_perf_run *run, uint32_t q, uint32_t n)
{
    int posted = vb_post_send(run->end->qp[q], run->wr, n);
    if (posted != (int)n)
        return vb_perf_fail(run->why, "queue pair %u took %d of %u work requests", q, posted, n);
    return 0;
}

static int check_read(struct vb_perf_run *run, uint32_t q, uint64_t n)
{
    uint64_t v = (n + 1) / VB_PERF_VERIFY_EVERY;
    const uint8_t *slot = run->end->mem + vb_perf_slot(&run->layout, q, v);
    if (!vb_pattern_matches(slot, run->plan->size, run->plan->seed,
                            vb_perf_read_offset(&run->layout, v)))
        return vb_perf_fail(run->why,
                            "wrong bytes: read %llu of queue pair %u differs from the "
                            "target's memory",
                            (unsigned long long)n, q);
    run->verified++;
    return 0;
}

static int check_atomic(struct vb_perf_run *run, uint32_t q, uint64_t n)
{
    uint64_t old, v = (n + 1) / VB_PERF_VERIFY_EVERY;
    memcpy(&old, run->end->mem + vb_perf_slot(&run->layout, q, v), sizeof old);
    if (old != word_after(run, n))
        return vb_perf_fail(run->why, "wrong value: %s %llu of queue pair %u found %llu, not %llu",
                            vb_perf_op_name(run->plan->op), (unsigned long long)n, q,
                            (unsigned long long)old, (unsigned long long)word_after(run, n));
    run->verified++;
    return 0;
}

// Something may be posted on the lane in the next turn.
static void make_ready(struct vb_perf_run *run, uint32_t q)
{
    if (!run->lane[q].ready)
        run->ready[run->ready_count++] = q;
    run->lane[q].ready = true;
}

static int complete(struct vb_perf_run *run, const struct vb_wc *wc)
{
    uint32_t q = (uint32_t)(wc->wr_id >> LANE_SHIFT);
    uint64_t n = wc->wr_id & (VERIFIED_BIT - 1);
    if (wc->status != VB_WC_OK)
        return vb_perf_fail(run->why, "%s %llu of queue pair %u failed: %s",
                            vb_perf_op_name(run->plan->op), (unsigned long long)n, q,
                            vb_wc_status_text(wc->status));
    run->in_flight -= n + 1 - run->lane[q].done;
    run->lane[q].done = n + 1;
    make_ready(run, q);
    if (!(wc->wr_id & VERIFIED_BIT))
        return 0;
    if (vb_perf_is_atomic(run->plan))
        return check_atomic(run, q, n);
    return vb_perf_is_read(run->plan) ? check_read(run, q, n) : 0;
}

static int look_at_control(struct vb_perf_run *run)
{
    if (vb_control_ready(run->control))
        return vb_perf_fail(run->why, "the other side went away");
    return 0;
}

int vb_perf_run_await(struct vb_perf_run *run, struct vb_wc *wc)
{
    uint64_t give_up = 0;
    for (uint32_t idle = 1; vb_poll_cq(run->end->send_cq, wc, 1) == 0; idle++) {
        if (run->yield)
            sched_yield();
        if (idle % IDLE_LOOK_EVERY)
            continue;
        if (look_at_control(run) < 0)
            return -1;
        uint64_t now = vb_clock_ns();
        if (give_up == 0)
            give_up = now + STUCK_NS;
        else if (now > give_up)
            return vb_perf_fail(run->why, "no completion in 10 s");
    }
    return 0;
}

int vb_perf_run_latency(struct vb_perf_run *run, const struct vb_perf_budget *budget,
                        struct vb_hist *hist)
{
    struct vb_perf_lane *lane = &run->lane[0];
    struct vb_recent recent = {0};
    uint64_t begin = vb_clock_recent_ns(&recent);
    bool verified = false;
    for (uint64_t n = 0; n < budget->ops && begin < budget->end_ns; n++) {
        struct vb_wc wc;
        bool verify = lane->posted == lane->next_verify;
        fill(run, 0, 0, true);
        if (verify || verified)
            begin = vb_clock_recent_ns(&recent); // making patterns is not the NIC's time
        if (post(run, 0, 1) < 0 || vb_perf_run_await(run, &wc) < 0)
            return -1;
        uint64_t end = vb_clock_recent_ns(&recent);
        vb_hist_record(hist, end - begin);
        begin = end;
        if (complete(run, &wc) < 0)
            return -1;
        verified = verify;
    }
    return 0;
}

// Brings lane q to as many operations in flight as the plan says. When the phase ends, makes sure
// that the last one reports.
static int post_lane(struct vb_perf_run *run, uint32_t q, bool ending)
{
    struct vb_perf_lane *lane = &run->lane[q];
    uint64_t credit = run->plan->depth - (lane->posted - lane->done);
    if (ending) {
        if (lane->signaled == lane->posted || credit == 0)
            return 0;
        fill(run, q, 0, true);
        return post(run, q, 1);
    }
    while (credit > 0 && run->ops_left > 0) {
        uint64_t most = credit < run->ops_left ? credit : run->ops_left;
        uint32_t n = most < VB_PERF_BATCH ? (uint32_t)most : VB_PERF_BATCH;
        for (uint32_t i = 0; i < n; i++)
            fill(run, q, i, (lane->posted + 1) % run->signal_every == 0);
        if (post(run, q, n) < 0)
            return -1;
        credit -= n;
        run->ops_left -= n;
    }
    return 0;
}

static void make_all_ready(struct vb_perf_run *run)
{
    for (uint32_t q = 0; q < run->plan->active; q++)
        make_ready(run, q);
}

// Posts on the lanes that have room: of thousands, most have none at any time.
static int post_ready(struct vb_perf_run *run, bool ending)
{
    uint32_t count = run->ready_count;
    run->ready_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        run->lane[run->ready[i]].ready = false;
        if (post_lane(run, run->ready[i], ending) < 0)
            return -1;
    }
    return 0;
}

uint64_t vb_perf_run_sum(const struct vb_perf_run *run)
{
    uint64_t sum = 0;
    for (uint32_t q = 0; q < run->plan->active; q++)
        sum += word_after(run, run->lane[q].done);
    return sum;
}

static uint64_t total_done(const struct vb_perf_run *run)
{
    uint64_t total = 0;
    for (uint32_t q = 0; q < run->plan->active; q++)
        total += run->lane[q].done;
    return total;
}

void vb_perf_watch_begin(struct vb_perf_watch *w)
{
    w->begin_ns = w->now_ns = w->moved_ns = w->control_ns = vb_clock_ns();
}

int vb_perf_watch_look(struct vb_perf_watch *w, struct vb_perf_run *run,
                       const struct vb_perf_budget *budget, bool moved)
{
    w->now_ns = vb_clock_ns();
    if (moved)
        w->moved_ns = w->now_ns;
    else if (w->now_ns - w->moved_ns > STUCK_NS)
        return vb_perf_fail(run->why, "no completion in 10 s");
    if (w->now_ns - w->control_ns < CONTROL_NS)
        return 0;
    w->control_ns = w->now_ns;
    double part = budget->end_ns == UINT64_MAX
                      ? 1 - (double)run->ops_left / (double)budget->ops
                      : (double)(w->now_ns - w->begin_ns) / (double)(budget->end_ns - w->begin_ns);
    vb_progress_show(run->progress, w->now_ns, part);
    return look_at_control(run);
}

int vb_perf_run_rate(struct vb_perf_run *run, const struct vb_perf_budget *budget, uint64_t *ops,
                     uint64_t *ns)
{
    struct vb_wc wc[VB_PERF_BATCH];
    struct vb_perf_watch w;
    uint64_t before = total_done(run);
    bool ending = false, moved = false;
    vb_perf_watch_begin(&w);
    run->ops_left = budget->ops;
    make_all_ready(run);
    for (uint64_t turn = 1;; turn++) {
        if (!ending && (run->ops_left == 0 || w.now_ns >= budget->end_ns)) {
            ending = true;
            make_all_ready(run); // what was posted last has to report
        }
        if (post_ready(run, ending) < 0)
            return -1;
        if (run->in_flight == 0 && ending)
            break;
        int n = vb_poll_cq(run->end->send_cq, wc, VB_PERF_BATCH);
        for (int i = 0; i < n; i++) {
            if (complete(run, &wc[i]) < 0)
                return -1;
        }
        moved |= n > 0;
        if (n == 0 && run->yield)
            sched_yield();
        if (turn % LOOK_EVERY == 0) {
            if (vb_perf_watch_look(&w, run, budget, moved) < 0)
                return -1;
            moved = false;
        }
    }
    *ns = vb_clock_ns() - w.begin_ns;
    *ops = total_done(run) - before;
    return 0;
}
