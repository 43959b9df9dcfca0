// SPDX-License-Identifier: Apache-2.0
// A hull's counters, copied for who asks.
#include "hull/metrics.h"

#include "hull/hull.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 1024, // of queue pairs, looked at in one go
};

static_assert(VB_DOORBELL_QPS % SLOTS == 0, "they are gone through in whole pieces");

// ---- by the hull

void vb_metrics_init(struct vb_hull *hull)
{
    pthread_condattr_t attr;

    hull->metrics.start_s = (uint64_t)time(NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&hull->metrics.answered, &attr);
    pthread_condattr_destroy(&attr);
}

void vb_metrics_end(struct vb_hull *hull)
{
    pthread_cond_destroy(&hull->metrics.answered);
}

// Since it was last looked at; a queue pair that was reset begins again at 0.
static uint64_t added(uint64_t now, uint64_t seen)
{
    return now >= seen ? now - seen : now;
}

// Only what was added: a tenant's sums never fall when its queue pairs go.
void vb_metrics_charge(struct vb_hull_object *qp)
{
    const struct vb_qp_counters *now = vb_dev_qp_counters(qp->client->hull->nic->dev, qp->number);
    struct vb_hull_traffic *sum = &qp->client->tenant->traffic, *seen = &qp->seen;

    if (!now)
        return;
    sum->sent_pkts += added(now->sent_pkts, seen->sent_pkts);
    sum->rcvd_pkts += added(now->rcvd_pkts, seen->rcvd_pkts);
    sum->sent_bytes += added(now->sent_bytes, seen->sent_bytes);
    sum->rcvd_bytes += added(now->rcvd_bytes, seen->rcvd_bytes);
    *seen =
        (struct vb_hull_traffic){now->sent_pkts, now->rcvd_pkts, now->sent_bytes, now->rcvd_bytes};
}

// True: all queue pairs were looked at.
static bool charge_some(struct vb_hull *hull)
{
    uint32_t at = hull->metrics.at;

    vb_host_lock(hull->nic);
    for (uint32_t i = at; i < at + SLOTS; i++)
        if (hull->qp[i])
            vb_metrics_charge(hull->qp[i]);
    vb_host_unlock(hull->nic);
    hull->metrics.at = (at + SLOTS) % VB_DOORBELL_QPS;
    return hull->metrics.at == 0;
}

static void copy_tenants(const struct vb_hull *hull, struct vb_metrics *m)
{
    m->tenants = 0;
    for (struct vb_link *l = hull->tenants.head.next; l != &hull->tenants.head; l = l->next) {
        const struct vb_hull_tenant *t = VB_CONTAINER_OF(l, struct vb_hull_tenant, link);
        if (m->tenants < VB_METRICS_TENANTS)
            m->tenant[m->tenants] = (struct vb_metrics_tenant){.uid = t->uid,
                                                               .quota = t->quota,
                                                               .used = t->used,
                                                               .traffic = t->traffic,
                                                               .refused = t->refused};
        m->tenants++;
    }
}

static void copy_units(const struct vb_hull *hull, struct vb_metrics *m)
{
    for (m->units = 0; m->units < hull->units; m->units++) {
        struct vb_lane *lane = hull->unit[m->units].lane;
        vb_lane_lock(lane);
        const struct vb_counters *c = vb_pu_counters(lane->pu);
        m->unit[m->units] = (struct vb_metrics_unit){.queues = hull->unit[m->units].load,
                                                     .sent_pkts = c->sent_pkts,
                                                     .rcvd_pkts = c->rcvd_pkts};
        pthread_mutex_unlock(&lane->lock);
    }
}

// A service that nobody is attached to counts against its tenant, but is no application.
static void count_applications(const struct vb_hull *hull, struct vb_metrics *m)
{
    for (struct vb_link *l = hull->clients.head.next; l != &hull->clients.head; l = l->next)
        m->applications += VB_CONTAINER_OF(l, struct vb_hull_client, link)->socket >= 0;
}

static void copy(struct vb_hull *hull, struct vb_metrics *m)
{
    const char *name;

    for (m->counters = 0;
         m->counters < VB_METRICS_COUNTERS && (name = vb_nic_counter_name(m->counters));
         m->counters++)
        vb_nic_counter(hull->nic, name, &m->counter[m->counters]);
    copy_units(hull, m);
    copy_tenants(hull, m);
    count_applications(hull, m);
    m->up = true;
}

void vb_metrics_serve(struct vb_hull *hull)
{
    struct vb_metrics_ask *ask = &hull->metrics;

    if (!vb_metrics_asked(ask) || !charge_some(hull))
        return;
    pthread_mutex_lock(&hull->lock);
    if (ask->into)
        copy(hull, ask->into);
    ask->into = NULL;
    atomic_store_explicit(&ask->asked, false, memory_order_relaxed);
    pthread_cond_signal(&ask->answered);
    pthread_mutex_unlock(&hull->lock);
}

// ---- by who asks

int vb_metrics_take(struct vb_hull *hull, uint64_t timeout_ns, struct vb_metrics *m)
{
    struct vb_metrics_ask *ask = &hull->metrics;
    uint64_t until_ns = vb_clock_ns() + timeout_ns;
    const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    int err = 0;

    memset(m, 0, sizeof *m);
    memcpy(m->device, hull->config.name, sizeof m->device);
    memcpy(m->address, hull->config.address, sizeof m->address);
    memcpy(m->type, hull->config.port, sizeof m->type);
    m->start_s = ask->start_s;
    pthread_mutex_lock(&hull->lock);
    ask->into = m;
    atomic_store_explicit(&ask->asked, true, memory_order_release);
    (void)!write(hull->unit[0].wake, &(uint64_t){1}, sizeof(uint64_t));
    while (ask->into && !err)
        err = pthread_cond_timedwait(&ask->answered, &hull->lock, &until);
    ask->into = NULL; // nobody writes there any more
    pthread_mutex_unlock(&hull->lock);
    return m->up ? 0 : -ETIMEDOUT;
}
