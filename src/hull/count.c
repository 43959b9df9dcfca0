// SPDX-License-Identifier: Apache-2.0
// What a hull has, counted when somebody asks: its thread has better to do than to go through a
// thousand applications whenever one says something.
#include "hull/hull.h"

#include <unistd.h>

static void count_client(const struct vb_hull_client *client, struct vb_hull_counts *c)
{
    c->clients += client->socket >= 0;
    c->services += client->service[0] != '\0';
    c->detached += client->socket < 0;
}

static struct vb_hull_counts count(const struct vb_hull *hull)
{
    struct vb_hull_counts c = {0};

    for (struct vb_link *l = hull->clients.head.next; l != &hull->clients.head; l = l->next)
        count_client(VB_CONTAINER_OF(l, struct vb_hull_client, link), &c);
    for (struct vb_link *l = hull->tenants.head.next; l != &hull->tenants.head; l = l->next) {
        const struct vb_hull_tenant *t = VB_CONTAINER_OF(l, struct vb_hull_tenant, link);
        c.objects += (uint32_t)(t->used.queue_pairs + t->used.queues + t->used.regions);
        c.bytes += t->used.bytes;
        c.reaping += t->reaping.mappings;
    }
    return c;
}

void vb_hull_count_serve(struct vb_hull *hull)
{
    if (!atomic_load_explicit(&hull->asked, memory_order_relaxed))
        return;
    pthread_mutex_lock(&hull->lock);
    hull->counts = count(hull);
    atomic_store_explicit(&hull->asked, false, memory_order_relaxed);
    pthread_cond_broadcast(&hull->counted);
    pthread_mutex_unlock(&hull->lock);
}

void vb_hull_count(struct vb_hull *hull, struct vb_hull_counts *counts)
{
    do { // who leaves meanwhile may leave memory behind
        vb_hull_reap_settle(hull);
        vb_hull_count_now(hull, counts);
    } while (counts->reaping);
}

void vb_hull_count_now(struct vb_hull *hull, struct vb_hull_counts *counts)
{
    pthread_mutex_lock(&hull->lock);
    if (!hull->unit[0].running)
        hull->counts = count(hull); // whoever runs it is who asks
    atomic_store_explicit(&hull->asked, hull->unit[0].running, memory_order_relaxed);
    (void)!write(hull->unit[0].wake, &(uint64_t){1}, sizeof(uint64_t));
    while (atomic_load_explicit(&hull->asked, memory_order_relaxed))
        pthread_cond_wait(&hull->counted, &hull->lock);
    *counts = hull->counts;
    pthread_mutex_unlock(&hull->lock);
}
