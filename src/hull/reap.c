// SPDX-License-Identifier: Apache-2.0
// Memory that nobody has any more goes back to the system. That takes more than a tenth of a second
// for a gigabyte, so only little of it is given back by the hull's thread, and the rest by one that
// is there while it is needed.
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
    free(m);
}

static void *run(void *arg)
{
    struct vb_hull_reaper *r = arg;
    struct vb_link *link;

    pthread_mutex_lock(&r->lock);
    while ((link = vb_fifo_first(&r->due))) {
        vb_link_remove(link);
        pthread_mutex_unlock(&r->lock);
        give_back(VB_CONTAINER_OF(link, struct vb_hull_mapping, link));
        pthread_mutex_lock(&r->lock);
    }
    r->running = false;
    pthread_cond_broadcast(&r->idle);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

// Without a thread it has to be done here.
static void start(struct vb_hull_reaper *r)
{
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, run, r) == 0)
        pthread_detach(thread);
    else
        run(r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void vb_hull_reap(struct vb_hull *hull, struct vb_hull_mapping *m)
{
    struct vb_hull_reaper *r = &hull->reaper;

    if (m->bytes <= SMALL_BYTES && vb_hull_allows(hull, &r->small, SMALL_MAX)) {
        give_back(m);
        return;
    }
    pthread_mutex_lock(&r->lock);
    vb_fifo_push(&r->due, &m->link);
    bool needed = !r->running;
    r->running = true;
    pthread_mutex_unlock(&r->lock);
    if (needed)
        start(r);
}

void vb_hull_reap_init(struct vb_hull *hull)
{
    vb_fifo_init(&hull->reaper.due);
    pthread_mutex_init(&hull->reaper.lock, NULL);
    pthread_cond_init(&hull->reaper.idle, NULL);
}

void vb_hull_reap_settle(struct vb_hull *hull)
{
    struct vb_hull_reaper *r = &hull->reaper;

    pthread_mutex_lock(&r->lock);
    while (r->running)
        pthread_cond_wait(&r->idle, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

void vb_hull_reap_end(struct vb_hull *hull)
{
    vb_hull_reap_settle(hull);
    pthread_cond_destroy(&hull->reaper.idle);
    pthread_mutex_destroy(&hull->reaper.lock);
}
