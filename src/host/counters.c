// SPDX-License-Identifier: Apache-2.0
// Counters by name: the device's, then the port's; and those of a queue pair.
#include "host/device.h"
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
    PORT_COUNTER(rx_forwarded)
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

    vb_lane_lock(lane);
    const char *base =
        c->of_port ? (const char *)&lane->port->stats : (const char *)vb_pu_counters(lane->pu);
    memcpy(&value, base + c->offset, sizeof value);
    pthread_mutex_unlock(&lane->lock);
    return value;
}

int vb_nic_counter(const struct vb_nic *nic, const char *name, uint64_t *value)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    for (unsigned i = 0; i < COUNTERS; i++) {
        if (strcmp(counters[i].name, name) != 0)
            continue;
        *value = 0;
        if (nic->attach) {
            vb_lane_lock(&nic->lane[0]);
            int err = vb_attach_counter(nic->attach, i, value);
            pthread_mutex_unlock(&nic->lane[0].lock);
            return err;
        }
        for (uint32_t lane = 0; lane < nic->lanes; lane++)
            *value += of_lane(&nic->lane[lane], &counters[i]);
        return 0;
    }
    return -ENOENT;
}

// ---- of a queue pair

struct qp_counter {
    const char *name;
    size_t offset;
};

#define QP_COUNTER(name) {#name, offsetof(struct vb_qp_counters, name)},

static const struct qp_counter qp_counters[] = {VB_QP_COUNTERS(QP_COUNTER)};

enum {
    QP_COUNTERS = sizeof qp_counters / sizeof qp_counters[0]
};

const char *vb_qp_counter_name(unsigned i)
{
    return i < QP_COUNTERS ? qp_counters[i].name : NULL;
}

int vb_qp_counter(const struct vb_qp *qp, const char *name, uint64_t *value)
{
    struct vb_lane *lane = qp->send_cq->lane;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    for (unsigned i = 0; i < QP_COUNTERS; i++) {
        if (strcmp(qp_counters[i].name, name) != 0)
            continue;
        struct vb_qp_counters all;
        vb_lane_lock(lane);
        int err = vb_device_qp_counters(qp->nic, qp->driver.qpn, &all);
        pthread_mutex_unlock(&lane->lock);
        if (!err)
            memcpy(value, (const char *)&all + qp_counters[i].offset, sizeof *value);
        return err;
    }
    return -ENOENT;
}
