// SPDX-License-Identifier: Apache-2.0
// Memory that nobody has any more goes back to the system. That takes more than a tenth of a second
// for a gigabyte, so only little of it is given back by the hull's thread, and the rest by one that
// is there while it is needed. Until it has gone back it is its tenant's: otherwise who lets go of
// memory and takes more, again and again, would have several times what he may.
#include "hull/hull.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SMALL_BYTES = 1 << 20,
    SMALL_MAX = 4, // in a turn
};

// Others can map something between two pieces.
#define PIECE_BYTES (UINT64_C(64) << 20)

static void give_back(struct vb_hull_mapping *m)
{
    for (uint64_t at = 0; m->base && at < m->bytes; at += PIECE_BYTES)
        munmap(m->base + at, m->bytes - at < PIECE_BYTES ? m->bytes - at : PIECE_BYTES);
    if (m->fd >= 0)
        close(m->fd);
}

static void discharge(struct vb_hull *hull, struct vb_hull_mapping *m)
{
    struct vb_hull_quota *used = &m->tenant->used;

    used->bytes -= m->bytes;
    used->memories -= m->memories;
    if (m->kept)
        vb_hull_descriptors_give_back(hull, m->tenant, 1);
    free(m);
}

// ---- the thread

// The hull is told of each: somebody may wait for the room.
static void *run(void *arg)
{
    struct vb_hull *hull = arg;
    struct vb_hull_reaper *r = &hull->reaper;
    struct vb_link *link;

    pthread_mutex_lock(&r->lock);
    while ((link = vb_fifo_first(&r->due))) {
        vb_link_remove(link);
        pthread_mutex_unlock(&r->lock);
        give_back(VB_CONTAINER_OF(link, struct vb_hull_mapping, link));
        pthread_mutex_lock(&r->lock);
        vb_fifo_push(&r->done, link);
        (void)!write(hull->unit[0].wake, &(uint64_t){1}, sizeof(uint64_t));
    }
    r->running = false;
    pthread_cond_broadcast(&r->idle);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

// Without a thread it has to be done here.
static void start(struct vb_hull *hull)
{
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, run, hull) == 0)
        pthread_detach(thread);
    else
        run(hull);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// ---- by the hull's thread

static void postpone(struct vb_hull *hull, struct vb_hull_mapping *m)
{
    struct vb_hull_reaper *r = &hull->reaper;
    struct vb_hull_reaping *reaping = &m->tenant->reaping;

    reaping->mappings++;
    reaping->bytes += m->bytes;
    reaping->memories += m->memories;
    pthread_mutex_lock(&r->lock);
    vb_fifo_push(&r->due, &m->link);
    r->owed++;
    bool needed = !r->running;
    r->running = true;
    pthread_mutex_unlock(&r->lock);
    if (needed)
        start(hull);
}

void vb_hull_reap(struct vb_hull *hull, struct vb_hull_mapping *m)
{
    if (m->bytes > SMALL_BYTES || !vb_hull_allows(hull->turns, &hull->reaper.small, SMALL_MAX)) {
        postpone(hull, m);
        return;
    }
    give_back(m);
    discharge(hull, m);
}

static struct vb_hull_mapping *take_done(struct vb_hull_reaper *r)
{
    pthread_mutex_lock(&r->lock);
    struct vb_link *link = vb_fifo_first(&r->done);
    if (link)
        vb_link_remove(link);
    pthread_mutex_unlock(&r->lock);
    return link ? VB_CONTAINER_OF(link, struct vb_hull_mapping, link) : NULL;
}

void vb_hull_reap_collect(struct vb_hull *hull)
{
    struct vb_hull_mapping *m;

    while ((m = take_done(&hull->reaper))) {
        struct vb_hull_tenant *t = m->tenant;
        t->reaping.mappings--;
        t->reaping.bytes -= m->bytes;
        t->reaping.memories -= m->memories;
        discharge(hull, m);
        hull->reaper.collected++;
    }
}

// Who collects may have the locks, and the end of a tenant takes them: so that comes later.
static void end_tenants(struct vb_hull *hull)
{
    for (struct vb_link *l = hull->tenants.head.next, *next; l != &hull->tenants.head; l = next) {
        next = l->next;
        vb_hull_tenant_end(hull, VB_CONTAINER_OF(l, struct vb_hull_tenant, link));
    }
}

void vb_hull_reap_tell(struct vb_hull *hull)
{
    struct vb_hull_reaper *r = &hull->reaper;

    if (!r->collected)
        return;
    end_tenants(hull);
    pthread_mutex_lock(&r->lock);
    r->owed -= r->collected;
    pthread_cond_broadcast(&r->idle);
    pthread_mutex_unlock(&r->lock);
    r->collected = 0;
}

// ---- its life

void vb_hull_reap_init(struct vb_hull *hull)
{
    vb_fifo_init(&hull->reaper.due);
    vb_fifo_init(&hull->reaper.done);
    pthread_mutex_init(&hull->reaper.lock, NULL);
    pthread_cond_init(&hull->reaper.idle, NULL);
}

void vb_hull_reap_finish(struct vb_hull *hull)
{
    struct vb_hull_reaper *r = &hull->reaper;

    pthread_mutex_lock(&r->lock);
    while (r->running)
        pthread_cond_wait(&r->idle, &r->lock);
    pthread_mutex_unlock(&r->lock);
    vb_hull_reap_collect(hull);
    vb_hull_reap_tell(hull);
}

void vb_hull_reap_settle(struct vb_hull *hull)
{
    struct vb_hull_reaper *r = &hull->reaper;

    if (!hull->unit[0].running) { // who asks is the hull's thread
        vb_hull_reap_finish(hull);
        return;
    }
    pthread_mutex_lock(&r->lock);
    while (r->owed)
        pthread_cond_wait(&r->idle, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

void vb_hull_reap_end(struct vb_hull *hull)
{
    pthread_cond_destroy(&hull->reaper.idle);
    pthread_mutex_destroy(&hull->reaper.lock);
}
