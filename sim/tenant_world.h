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
    struct vb_hist service, whole;
    // What the watch over turns knows.
    bool waits;
    uint64_t units, bill_max;
    uint64_t own, base[VB_TENANTS_MAX]; // units, and the others', when it began to wait
    uint64_t ahead;                     // and what it had in advance then
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
    uint64_t steps, turns;
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

// ---- tenant_watch.c
void vb_tenant_watch(struct vb_tenantworld *w);

static inline uint64_t vb_tenant_now(const struct vb_tenantworld *w)
{
    return w->now_ns + w->spent_ns;
}

#endif
