// SPDX-License-Identifier: Apache-2.0
// What a hull can be measured by: a copy of its counters that its thread makes when it is asked,
// between two turns and in small pieces, and the same as text for Prometheus.
//
// Who asks waits, the hull does not: it owes nobody a copy, and nobody holds a lock that it needs
// for longer than it takes to write down a pointer.
#ifndef VB_HULL_METRICS_H
#define VB_HULL_METRICS_H

#include "hull/config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

enum {
    VB_METRICS_TENANTS = 1024, // of one NIC, that are told of
    VB_METRICS_COUNTERS = 128,
};

// Packets of queue pairs, and their bytes.
struct vb_hull_traffic {
    uint64_t sent_pkts, rcvd_pkts, sent_bytes, rcvd_bytes;
};

struct vb_metrics_tenant {
    uid_t uid;
    struct vb_hull_quota quota, used;
    struct vb_hull_traffic traffic;
    uint64_t refused; // requests
};

struct vb_metrics_unit {
    uint64_t queues; // queue pairs and completion queues
    uint64_t sent_pkts, rcvd_pkts;
};

struct vb_metrics {
    char device[VB_HULL_NAME];
    char address[64], type[16];
    bool up;          // it has answered
    uint64_t start_s; // of the clock on the wall
    uint32_t applications, tenants, counters;
    uint64_t counter[VB_METRICS_COUNTERS]; // as vb_nic_counter_name() counts them
    uint32_t units;
    struct vb_metrics_unit unit[VB_PUS_MAX];
    struct vb_metrics_tenant tenant[VB_METRICS_TENANTS];
};

// Of a hull: who asks.
struct vb_metrics_ask {
    uint64_t start_s;
    atomic_bool asked;
    struct vb_metrics *into; // under the hull's lock
    pthread_cond_t answered;
    uint32_t at; // the queue pair to be looked at next
};

struct vb_hull;
struct vb_hull_object;

// ---- by any other thread, one at a time
// Fills what the hull says of itself. -ETIMEDOUT: it has not in time, and `up` is false.
int vb_metrics_take(struct vb_hull *hull, uint64_t timeout_ns, struct vb_metrics *metrics);
// All of several hulls, in the text format of Prometheus.
void vb_metrics_print(FILE *out, const struct vb_metrics *const *metrics, uint32_t count);
// A label's value, without what would end it.
void vb_metrics_put_label(FILE *out, const char *value);

// ---- by the hull's thread
void vb_metrics_init(struct vb_hull *hull);
void vb_metrics_end(struct vb_hull *hull);
static inline bool vb_metrics_asked(const struct vb_metrics_ask *ask)
{
    return atomic_load_explicit(&ask->asked, memory_order_acquire);
}
// Does a piece of what was asked for.
void vb_metrics_serve(struct vb_hull *hull);
// Needs the NIC's locks. Charges a queue pair's traffic to its tenant, up to now.
void vb_metrics_charge(struct vb_hull_object *qp);

#endif
