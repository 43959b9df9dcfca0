// SPDX-License-Identifier: Apache-2.0
// Tenants of one NIC in virtual time: each has a share, and a host that works as its kind does. The
// NIC's thread has one core, and every step takes the time that its price says; the peer of all,
// behind a wire without faults, answers at once. So what is measured is what tenants do to each
// other in the NIC.
#ifndef VB_SIM_TENANT_WORLD_H
#define VB_SIM_TENANT_WORLD_H

#include "base/hist.h"
#include "nic/dev.h"
#include "sim/digest.h"
#include "sim/tenant_work.h"
#include "wire/roce.h"

enum {
    VB_TENANTS_MAX = 6,
    VB_TENANT_FLIGHTS = 4096, // frames on the way to the NIC
    VB_TENANT_RX = 64,        // frames that it takes at once
    VB_TENANT_TEXT = 200,
    VB_TENANT_ASKED = 256, // READs of a probe that are remembered
};

// What the watch over turns has counted of one queue pair. Work is in 256ths of a unit, so that
// bytes are exact.
struct vb_tenant_book {
    uint64_t incoming; // since it last was seen in a turn
    uint64_t unbilled; // all of its work since its last turn ended
    uint64_t fetched;  // the end of what was fetched
    uint64_t executed; // and of what was begun
};

// And of a tenant.
struct vb_tenant_watch {
    uint64_t work, incoming;    // done, and come in for queue pairs without a turn yet
    uint64_t incoming_max;      // of one queue pair
    uint64_t turns;             // that have ended,
    uint64_t billed;            // and what it should have been billed for it
    bool waits;                 // has had work without a pause
    uint64_t since;             // its own work when that began
    double low[VB_TENANTS_MAX]; // by how much another was ahead of it, at least, since then
    // The turn that is under way, or was the last one: its queue pair (0: none yet), its packets,
    // completions and entries without a packet, the blocks that it has fetched, its work, and the
    // poll of its last step.
    uint32_t turn_qpn, turn_length, turn_blocks;
    uint64_t turn_work, turn_ns;
    uint64_t turn_max; // the most work of one
    bool turn_in_line; // it is longer than one before the line
    bool turn_is_full; // it ends here: it has fetched enough
    // The work and the turns of others when it last had such a turn.
    uint64_t line_work[VB_TENANTS_MAX], line_turns[VB_TENANTS_MAX];
};

struct vb_tenant {
    struct vb_tenantworld *world;
    struct vb_tenant_work work;
    uint32_t weight, share;
    uint32_t pd, far_pd, cqn;
    uint8_t *memory, *far_memory;
    struct vb_driver_cq cq;
    struct vb_driver_qp qp[VB_TENANT_QPS], far[VB_TENANT_QPS];
    uint64_t act_at_ns;
    // Of a probe: when it rang, its request left, its answer came.
    bool asked;
    uint64_t rung_ns, left_ns, came_ns;
    uint64_t frames_ns, frames_units;     // what frames had taken then,
    uint64_t line_ns;                     // and what those before its answer may take
    uint64_t asked_units;                 // what frames had taken when it rang
    struct vb_hist service, turns, whole; // `turns` without that
    // Whether its READs were ever more than its part pays for between two visits of the line, and
    // by when, in units of others' work, each was asked.
    bool above;
    uint64_t reads, asked_at[VB_TENANT_ASKED];
    struct vb_tenant_book book[VB_TENANT_QPS];
    struct vb_tenant_watch watch;
};

struct vb_tenant_flight {
    uint64_t at_ns;
    uint32_t len;
    uint8_t bytes[VB_FRAME_MAX];
};

struct vb_tenant_opts {
    uint64_t seed, duration_ns;
    uint32_t tenants;
    enum vb_tenant_kind kind[VB_TENANTS_MAX];
    uint32_t weight[VB_TENANTS_MAX]; // 0: the usual one
    bool no_shares;                  // all are in share 0, as without tenants
    bool watches;                    // checks that turns are as weights say
};

struct vb_tenantworld {
    struct vb_tenant_opts opts;
    struct vb_dev *dev, *far_dev;
    uint32_t far_cqn;
    struct vb_driver_cq far_cq;
    struct vb_tenant tenant[VB_TENANTS_MAX];
    struct vb_tenant *of_index[VB_DOORBELL_QPS]; // by the queue pair's number
    uint64_t now_ns, spent_ns;                   // when the poll began, and what it has taken
    struct vb_tenant_flight *flight;
    uint64_t flight_head, flight_tail;
    uint64_t steps;
    uint64_t frames_ns, frames_units; // what frames that came have taken
    struct vb_tenant *hurried;        // the last turn was its, and ended as one before the line
    uint64_t hurried_ns;              // in this poll
    uint64_t sliced_units;            // of frames and timers since a slice ended between two such
    uint64_t others_units;            // of work of all but the first tenant, at least
    struct vb_digest digest;
    bool violated;
    char violation[VB_TENANT_TEXT];
};

// NULL: no memory.
struct vb_tenantworld *vb_tenantworld_create(const struct vb_tenant_opts *opts);
void vb_tenantworld_destroy(struct vb_tenantworld *w);
// To the end of its time, or until something was violated.
void vb_tenantworld_run(struct vb_tenantworld *w);

// ---- tenant_host.c
void vb_tenant_start(struct vb_tenant *t);
void vb_tenant_act(struct vb_tenant *t);
// A step of one of its queue pairs, now.
void vb_tenant_saw(struct vb_tenant *t, const struct vb_step *step);
int vb_tenant_connect(struct vb_tenant *t, uint32_t i);
// The NIC has nothing to do.
void vb_tenant_idle(struct vb_tenant *t);

// By how much others of the NIC can delay a READ of a tenant whose load is below its share, frames
// that came before its answer aside: docs/hull.md derives it, and this has the simulator's prices.
uint64_t vb_tenant_bound_ns(uint32_t others);
// What frames before the answer may take, which by themselves take so long: after each slice of
// them every other share may have a turn.
uint64_t vb_tenant_line_ns(uint32_t others, uint64_t frames_ns, uint64_t frames_units);

// ---- tenant_watch.c
// A step or the end of a turn, which may be nobody's; `t` is its tenant, or NULL.
void vb_tenant_watch(struct vb_tenantworld *w, struct vb_tenant *t, const struct vb_step *step);
// The first packet of a probe leaves.
void vb_tenant_watch_probe(struct vb_tenant *t);
// The bills of the NIC against the watch's own count, when the run is over.
void vb_tenant_audit(struct vb_tenantworld *w);

static inline uint64_t vb_tenant_now(const struct vb_tenantworld *w)
{
    return w->now_ns + w->spent_ns;
}

#endif
