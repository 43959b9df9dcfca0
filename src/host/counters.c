// SPDX-License-Identifier: Apache-2.0
// Counters by name: the device's, then the port's.
#include "host/host.h"

#include <errno.h>
#include <string.h>

struct counter {
    const char *name;
    size_t offset;
    bool of_port;
};

#define DEV_COUNTER(name)  {#name, offsetof(struct vb_counters, name), false},
#define PORT_COUNTER(name) {#name, offsetof(struct vb_port_stats, name), true},

// clang-format off
static const struct counter counters[] = {
    VB_COUNTERS(DEV_COUNTER)
    PORT_COUNTER(rx_bad_icrc)
    PORT_COUNTER(rx_solved_icrc)
    PORT_COUNTER(rx_bad_peers)
    PORT_COUNTER(tx_errors)
    PORT_COUNTER(faults_dropped)
    PORT_COUNTER(faults_corrupted)
    PORT_COUNTER(faults_duplicated)
    PORT_COUNTER(faults_delayed)
    PORT_COUNTER(faults_reordered)
    PORT_COUNTER(faults_marked)
    PORT_COUNTER(faults_unheld)
};
// clang-format on

enum {
    COUNTERS = sizeof counters / sizeof counters[0]
};

const char *vb_nic_counter_name(unsigned i)
{
    return i < COUNTERS ? counters[i].name : NULL;
}

static uint64_t of_lane(struct vb_lane *lane, const struct counter *c)
{
    uint64_t value;

    pthread_mutex_lock(&lane->lock);
    const char *base =
        c->of_port ? (const char *)&lane->port->stats : (const char *)vb_pu_counters(lane->pu);
    memcpy(&value, base + c->offset, sizeof value);
    pthread_mutex_unlock(&lane->lock);
    return value;
}

int vb_nic_counter(const struct vb_nic *nic, const char *name, uint64_t *value)
{
    for (unsigned i = 0; i < COUNTERS; i++) {
        if (strcmp(counters[i].name, name) != 0)
            continue;
        *value = 0;
        for (uint32_t lane = 0; lane < nic->lanes; lane++)
            *value += of_lane(&nic->lane[lane], &counters[i]);
        return 0;
    }
    return -ENOENT;
}
