// SPDX-License-Identifier: Apache-2.0
// The NIC inside an application: open, run, close.
#include "host/host.h"

#include "base/bits.h"
#include "host/attach.h"
#include "host/congestion.h"
#include "host/inspect.h"
#include "host/open.h"
#include "host/turn.h"
#include "port/clock.h"
#include "port/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    WINDOW_BYTES = 256 * 1024,
    WINDOW_LIMIT_BYTES = 1024 * 1024, // more is no faster
    LEND_BYTES = 1024,                // an entry in a scatter list costs less than copying so much
    DRAIN_MS = 1000,
    ENTRY_BYTES = 8192, // as many take some microseconds
    IDLE_RUNS = 8,      // that find nothing, before one looks at the time
    CALM_NS = 100 * 1000,
};

// ---- who runs the NIC

// Pollers see that somebody waits and step back, so that a spinning thread cannot keep the lanes.
void vb_host_lock(struct vb_nic *nic)
{
    int before = vb_cancel_hold();
    atomic_fetch_add_explicit(&nic->waiting, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < nic->lanes; i++)
        pthread_mutex_lock(&nic->lane[i].lock);
    atomic_fetch_sub_explicit(&nic->waiting, 1, memory_order_relaxed);
    nic->cancel_before = before;
}

void vb_host_unlock(struct vb_nic *nic)
{
    int before = nic->cancel_before;

    for (uint32_t i = nic->lanes; i-- > 0;)
        pthread_mutex_unlock(&nic->lane[i].lock);
    vb_cancel_allow(before);
}

static uint32_t poll_unit(void *ctx, uint64_t now)
{
    struct vb_lane *lane = ctx;
    return vb_pu_poll(lane->pu, now);
}

static void send_frames(void *ctx, struct vb_txq *txq, uint64_t now)
{
    struct vb_lane *lane = ctx;

    if (vb_hold_keeps(lane, now))
        return;
    if (__builtin_expect(lane->nic->hull_sends != NULL, 0))
        lane->nic->hull_sends(lane->nic->hull, txq);
    lane->port->ops->send(lane->port, txq);
}

static void publish(void *ctx)
{
    struct vb_lane *lane = ctx;
    vb_pu_publish(lane->pu);
}

static uint32_t receive(void *ctx)
{
    struct vb_lane *lane = ctx;
    uint32_t frames = lane->port->ops->receive(lane->port, lane->frames);
    if (__builtin_expect(lane->nic->hull_frames != NULL, 0))
        frames = lane->nic->hull_frames(lane, lane->frames, frames);
    if (frames > 0)
        vb_pu_feed(lane->pu, lane->frames, frames);
    return frames;
}

static uint32_t work(void *ctx, uint64_t now);

// A hull looks at all bells before it does the rest.
VB_TURN_INLINE struct vb_turn turn_of(struct vb_lane *lane)
{
    return (struct vb_turn){.pu = lane->pu,
                            .ctx = lane,
                            .poll = poll_unit,
                            .send = send_frames,
                            .publish = publish,
                            .work = work,
                            .receive = receive,
                            .once = lane->nic->hull != NULL};
}

static uint32_t work(void *ctx, uint64_t now)
{
    const struct vb_turn turn = turn_of(ctx);
    return vb_turn_work(&turn, now);
}

static void count_run(struct vb_lane *lane, uint64_t weight)
{
    uint64_t entries = atomic_load_explicit(&lane->entries, memory_order_relaxed);
    lane->weight = weight;
    atomic_store_explicit(&lane->entries, entries + weight, memory_order_relaxed);
}

// Tells others what the run has brought.
static void end_run(struct vb_lane *lane)
{
    vb_host_collect(lane); // some events come without a step
    uint64_t bytes = vb_pu_counters(lane->pu)->sent_bytes + vb_pu_counters(lane->pu)->rcvd_bytes;
    count_run(lane, 1 + (bytes - lane->bytes) / ENTRY_BYTES); // one that moved much took its time
    lane->bytes = bytes;
    uint32_t handed = vb_pu_handed(lane->pu);
    if (handed)
        vb_helper_notice(lane->nic, handed); // frames for units that nobody may be running
    if (vb_helper_sleeps_on(lane))
        vb_helper_recheck(lane);
}

// How soon a frame is noticed depends on how short a run is that finds none, so only some of the
// runs that find the unit idle look at the time, too.
uint32_t vb_lane_run(struct vb_lane *lane)
{
    if (__builtin_expect(lane->shares, 0)) {
        if (lane->nic->attach)
            return 0; // the hull runs it
        vb_host_look_at_shared(lane);
    }
    bool held = lane->hold.phase != VB_HOLD_NOTHING && vb_hold_lasts(lane);
    bool idle = held || vb_pu_is_idle(lane->pu);
    uint32_t frames = idle ? receive(lane) : 0;

    if (idle && frames == 0 && lane->calm && !held && ++lane->idle_runs < IDLE_RUNS &&
        lane->nic->helper.running && !vb_helper_sleeps_on(lane)) {
        count_run(lane, 1);
        return 0;
    }
    lane->idle_runs = 0;
    uint64_t now = vb_clock_recent_ns(&lane->recent);
    const struct vb_turn turn = turn_of(lane);
    uint32_t steps = vb_turn_run(&turn, now, idle, frames);
    lane->calm = vb_pu_deadline(lane->pu) > now + CALM_NS;
    end_run(lane);
    return steps;
}

uint32_t vb_lane_poll(struct vb_lane *lane)
{
    lane->hold.may = true;
    uint32_t steps = vb_lane_run(lane);
    lane->hold.may = false;
    // What it took to send is not the application's time.
    if (steps > 0 && lane->hold.phase == VB_HOLD_WATCH)
        lane->hold.since_ns = vb_clock_recent_ns(&lane->recent);
    return steps;
}

uint32_t vb_nic_progress(struct vb_nic *nic)
{
    uint32_t steps = 0;

    if (vb_host_is_foreign(nic))
        return 0;
    for (uint32_t i = 0; i < nic->lanes; i++) {
        struct vb_lane *lane = &nic->lane[i];
        if (atomic_load_explicit(&nic->waiting, memory_order_relaxed) ||
            pthread_mutex_trylock(&lane->lock) != 0)
            continue; // another thread is running it, or wants to
        steps += vb_lane_run(lane);
        pthread_mutex_unlock(&lane->lock);
    }
    return steps;
}

int vb_host_enlist(void ***array, uint32_t *room, uint32_t number, void *object)
{
    if (number > *room) {
        uint32_t bigger = *room ? *room * 2 : 16;
        while (bigger < number)
            bigger *= 2;
        void **a = realloc(*array, bigger * sizeof *a);
        if (!a)
            return -ENOMEM;
        memset(a + *room, 0, (bigger - *room) * sizeof *a);
        *array = a;
        *room = bigger;
    }
    (*array)[number - 1] = object;
    return 0;
}

// ---- open and close

static void draw(uint64_t secret[2], uint64_t seed)
{
    if (seed) {
        secret[0] = seed;
        secret[1] = 0;
    } else if (getrandom(secret, 2 * sizeof secret[0], 0) != 2 * sizeof secret[0]) {
        secret[0] = vb_clock_ns();
        secret[1] = (uintptr_t)secret;
    }
}

static void say(const struct vb_nic_opts *opts, const char *text)
{
    if (opts->error_text)
        snprintf(opts->error_text, VB_ERROR_TEXT, "%s", text);
}

static void init_lists(struct vb_nic *nic)
{
    vb_fifo_init(&nic->pds);
    vb_fifo_init(&nic->mrs);
    vb_fifo_init(&nic->mws);
    vb_fifo_init(&nic->cqs);
    vb_fifo_init(&nic->channels);
    vb_fifo_init(&nic->srqs);
    vb_fifo_init(&nic->programs);
    vb_fifo_init(&nic->qps);
    vb_fifo_init(&nic->xrcds);
}

// Bytes in flight to a peer whose buffer is like ours. It counts its bookkeeping, too: of Debian's
// 416 KiB, 256 KiB can be filled with merged packets.
static void choose_window(struct vb_dev_opts *dev, uint32_t asked, uint32_t buffer_bytes)
{
    uint32_t room = buffer_bytes / 13 * 8;

    dev->window_bytes = asked;
    if (asked || !buffer_bytes)
        return;
    dev->window_bytes = room < WINDOW_BYTES ? room : WINDOW_BYTES;
    dev->window_limit_bytes = room < WINDOW_LIMIT_BYTES ? room : WINDOW_LIMIT_BYTES;
}

static bool decide_guard(const struct vb_nic_opts *opts, bool *guarded)
{
    const char *value = getenv("VERBENA_GUARD");

    *guarded = opts->guarded || (value && strcmp(value, "1") == 0);
    if (!value || !*value || strcmp(value, "1") == 0 || strcmp(value, "0") == 0)
        return true;
    if (opts->error_text)
        snprintf(opts->error_text, VB_ERROR_TEXT, "VERBENA_GUARD is '%.40s'; give 1 or 0", value);
    return false;
}

static int open_device(struct vb_nic *nic, const struct vb_nic_opts *opts)
{
    uint64_t secret[2];
    struct vb_dcqcn_params dcqcn;
    bool guarded, controlled;

    if (!decide_guard(opts, &guarded))
        return -EINVAL;
    int err = vb_host_congestion(opts, &controlled, &dcqcn);
    if (err)
        return err;
    draw(secret, opts->seed);
    struct vb_dev_opts dev = {.seed = secret[0],
                              .secret = secret[1],
                              .pus = nic->lanes,
                              .qpn_base = nic->lane[0].port->qpn_base,
                              .qpn_count = nic->lane[0].port->qpn_count,
                              .lend_bytes = LEND_BYTES,
                              .hold_completions = true,
                              .guard = guarded ? vb_host_guard(nic, true) : NULL,
                              .region_guard = guarded ? NULL : vb_host_guard(nic, false),
                              .check_zero_length = opts->check_zero_length,
                              .no_credits = opts->no_credits,
                              .dcqcn = controlled ? &dcqcn : NULL};
    choose_window(&dev, opts->window_bytes, nic->lane[0].port->buffer_bytes);
    nic->dev = vb_dev_create(&dev);
    if (!nic->dev)
        return -ENOMEM;
    for (uint32_t i = 0; i < nic->lanes; i++)
        nic->lane[i].pu = vb_dev_pu_at(nic->dev, i);
    vb_host_hook_faults(nic);
    return 0;
}

struct vb_nic *vb_host_alloc(uint32_t lanes)
{
    struct vb_nic *nic = calloc(1, sizeof *nic);
    if (!nic)
        return NULL;
    nic->lanes = lanes;
    nic->helper.asleep_at = &nic->helper.asleep;
    nic->lane = aligned_alloc(64, lanes * sizeof *nic->lane);
    nic->srq_by_number = calloc(VB_HOST_SRQS, sizeof *nic->srq_by_number);
    nic->srq_room = VB_HOST_SRQS;
    nic->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!nic->lane || !nic->srq_by_number || nic->event_fd < 0) {
        if (nic->event_fd >= 0)
            close(nic->event_fd);
        free(nic->srq_by_number);
        free(nic->lane);
        free(nic);
        return NULL;
    }
    memset(nic->lane, 0, lanes * sizeof *nic->lane);
    for (uint32_t i = 0; i < lanes; i++) {
        pthread_mutex_init(&nic->lane[i].lock, NULL);
        nic->lane[i].nic = nic;
        vb_fifo_init(&nic->lane[i].shared_qps);
        vb_fifo_init(&nic->lane[i].shared_cqs);
    }
    pthread_mutex_init(&nic->event_lock, NULL);
    pthread_mutex_init(&nic->inspect_lock, NULL);
    pthread_mutex_init(&nic->address_lock, NULL);
    init_lists(nic);
    return nic;
}

void vb_host_free(struct vb_nic *nic)
{
    vb_inspect_close(nic);
    vb_host_xrcds_free(nic);
    if (nic->dev && !nic->orphan)
        vb_nic_trace(nic, 0);
    if (nic->dev)
        vb_dev_destroy(nic->dev);
    for (uint32_t i = 0; i < nic->lanes; i++) {
        if (nic->lane[i].port)
            nic->lane[i].port->ops->close(nic->lane[i].port);
        pthread_mutex_destroy(&nic->lane[i].lock);
    }
    if (nic->attach)
        vb_attach_free(nic->attach);
    pthread_mutex_destroy(&nic->event_lock);
    pthread_mutex_destroy(&nic->inspect_lock);
    pthread_mutex_destroy(&nic->address_lock);
    close(nic->event_fd);
    free(nic->srq_by_number);
    free(nic->cq_by_number);
    free(nic->lane);
    free(nic);
}

static int open_ports(struct vb_nic *nic, const struct vb_nic_opts *opts)
{
    struct vb_port *ports[VB_HOST_LANES] = {NULL};
    int err = vb_host_open_ports(opts, ports, nic->lanes);

    for (uint32_t i = 0; !err && i < nic->lanes; i++)
        nic->lane[i].port = ports[i];
    return err ? err : vb_host_set_faults(nic, vb_host_fault_text(opts), opts->error_text);
}

// What is wrong whoever has the address: said first, so that it is said always.
static int judge(const struct vb_nic_opts *opts)
{
    struct vb_dcqcn_params dcqcn;
    struct vb_faults *rules;
    bool guarded, controlled;

    if (!decide_guard(opts, &guarded))
        return -EINVAL;
    int err = vb_host_congestion(opts, &controlled, &dcqcn);
    if (!err)
        err = vb_faults_parse(vb_host_fault_text(opts), &rules, opts->error_text);
    if (!err)
        vb_faults_free(rules);
    return err;
}

static int open_nic(const struct vb_nic_opts *opts, struct vb_nic **out)
{
    say(opts, "out of memory");
    uint32_t units = opts->units ? opts->units : 1;
    if (units > VB_HOST_LANES || !vb_is_pow2(units)) {
        say(opts, "the number of processing units is a power of two up to 16");
        return -EINVAL;
    }
    int err = judge(opts);
    if (err)
        return err;
    struct vb_nic *nic = vb_host_alloc(units);
    if (!nic)
        return -ENOMEM;
    nic->drain_ns = (opts->drain_ms ? opts->drain_ms : DRAIN_MS) * UINT64_C(1000000);
    err = open_ports(nic, opts);
    if (!err) {
        say(opts, "out of memory");
        err = open_device(nic, opts);
    }
    if (!err && !opts->no_helper)
        err = vb_inspect_open(nic, opts);
    if (!err && !opts->no_helper) {
        err = vb_helper_start(nic);
        if (err)
            say(opts, "the helper thread cannot be started: raise the limit on threads");
    }
    if (!err) {
        err = vb_process_enter(nic);
        if (err)
            vb_helper_stop(nic);
    }
    if (err) {
        vb_host_free(nic);
        return err;
    }
    say(opts, "");
    *out = nic;
    return 0;
}

static int judge_service(const struct vb_nic_opts *opts)
{
    if (!opts || !opts->service)
        return 0;
    if (!opts->hull)
        say(opts, "a service is a hull's: name the hull, too");
    else if (!*opts->service)
        say(opts, "a service needs a name");
    else
        return 0;
    return -EINVAL;
}

int vb_nic_open(const struct vb_nic_opts *opts, struct vb_nic **out)
{
    static const struct vb_nic_opts defaults = {0};
    int before = vb_cancel_hold();
    int err = judge_service(opts);
    if (!err)
        err =
            opts && opts->hull ? vb_attach_open(opts, out) : open_nic(opts ? opts : &defaults, out);

    vb_cancel_allow(before);
    return err;
}

#define CLOSE_ALL(list, type, how)                         \
    do {                                                   \
        struct vb_link *link;                              \
        while ((link = vb_fifo_first(&nic->list)))         \
            how(VB_CONTAINER_OF(link, struct type, link)); \
    } while (0)

// The descriptors are closed, which leaves the parent's as they are; so when the parent ends, its
// peers and the next NIC at its address find it gone.
void vb_host_orphan(struct vb_nic *nic)
{
    nic->foreign = nic->orphan = true;
    if (nic->torn)
        return;
    for (uint32_t i = 0; i < nic->lanes; i++) {
        struct vb_port *port = nic->lane[i].port;
        vb_trace_destroy(port->trace);
        port->ops->abandon(port);
        nic->lane[i].port = NULL;
    }
    nic->faulty = false;
    if (nic->helper.running)
        close(nic->helper.wake_fd);
    atomic_store_explicit(&nic->helper.asleep, 0, memory_order_relaxed); // its descriptor is gone
    nic->helper.running = false;
    vb_inspect_abandon(nic);
}

// Brings the NIC to rest. False: it is a child's copy that was caught in the middle of something.
static bool quiesce(struct vb_nic *nic)
{
    if (nic->orphan) {
        nic->foreign = nic->torn; // the calls that free its objects are let through
        return !nic->torn;
    }
    if (nic->attach && nic->attach->service) {
        vb_process_leave(nic);
        vb_attach_detach(nic); // its queues go on, and nothing has to be waited for
        return true;
    }
    vb_host_drain(nic, vb_clock_ns() + nic->drain_ns);
    vb_process_leave(nic);
    vb_helper_stop(nic);
    vb_inspect_close(nic);
    nic->drain_ns = 0; // each queue pair has had its time
    return true;
}

static void free_all(struct vb_nic *nic)
{
    CLOSE_ALL(qps, vb_qp, vb_qp_destroy);
    CLOSE_ALL(srqs, vb_srq, vb_srq_destroy);
    CLOSE_ALL(programs, vb_program, vb_program_destroy);
    CLOSE_ALL(cqs, vb_cq, vb_cq_destroy);
    CLOSE_ALL(channels, vb_channel, vb_channel_destroy);
    CLOSE_ALL(mws, vb_mw, vb_mw_free);
    CLOSE_ALL(mrs, vb_mr, vb_mr_dereg);
    CLOSE_ALL(pds, vb_pd, vb_pd_free);
    vb_host_free(nic);
}

void vb_nic_close(struct vb_nic *nic)
{
    int before = vb_cancel_hold();

    if (nic && quiesce(nic))
        free_all(nic);
    vb_cancel_allow(before);
}

void vb_nic_gid(const struct vb_nic *nic, uint8_t gid[16])
{
    memset(gid, 0, 16);
    if (vb_host_is_foreign(nic))
        return;
    vb_lane_lock(&nic->lane[0]); // faults may wrap the port meanwhile
    memcpy(gid, nic->lane[0].port->local.b, 16);
    pthread_mutex_unlock(&nic->lane[0].lock);
}
