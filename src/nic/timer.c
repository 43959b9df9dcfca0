// SPDX-License-Identifier: Apache-2.0
// A binary heap of timers with lazy re-arming.
#include "nic/timer.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

void vb_timers_fini(struct vb_timers *t)
{
    free(t->heap);
    t->heap = NULL;
    t->count = t->room = 0;
}

int vb_timers_reserve(struct vb_timers *t, uint32_t count)
{
    if (count <= t->room)
        return 0;
    uint32_t room = t->room ? t->room : 16;
    while (room < count)
        room *= 2;
    struct vb_timer **heap = realloc(t->heap, room * sizeof(struct vb_timer *));
    if (!heap)
        return -ENOMEM;
    t->heap = heap;
    t->room = room;
    return 0;
}

static void place(struct vb_timers *t, uint32_t i, struct vb_timer *timer)
{
    t->heap[i] = timer;
    timer->slot = i + 1;
}

static void sift_up(struct vb_timers *t, uint32_t i)
{
    struct vb_timer *timer = t->heap[i];
    while (i > 0 && t->heap[(i - 1) / 2]->key_ns > timer->key_ns) {
        place(t, i, t->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(t, i, timer);
}

static void sift_down(struct vb_timers *t, uint32_t i)
{
    struct vb_timer *timer = t->heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= t->count)
            break;
        if (child + 1 < t->count && t->heap[child + 1]->key_ns < t->heap[child]->key_ns)
            child++;
        if (t->heap[child]->key_ns >= timer->key_ns)
            break;
        place(t, i, t->heap[child]);
        i = child;
    }
    place(t, i, timer);
}

void vb_timer_arm(struct vb_timers *t, struct vb_timer *timer, uint64_t deadline_ns)
{
    timer->deadline_ns = deadline_ns;
    if (timer->slot == 0) {
        assert(t->count < t->room);
        timer->key_ns = deadline_ns;
        t->heap[t->count] = timer;
        sift_up(t, t->count++);
    } else if (deadline_ns < timer->key_ns) {
        timer->key_ns = deadline_ns;
        sift_up(t, timer->slot - 1);
    }
}

void vb_timer_remove(struct vb_timers *t, struct vb_timer *timer)
{
    timer->deadline_ns = VB_TIMER_NEVER;
    if (timer->slot == 0)
        return;
    uint32_t i = timer->slot - 1;
    timer->slot = 0;
    struct vb_timer *last = t->heap[--t->count];
    if (last == timer)
        return;
    place(t, i, last);
    sift_up(t, i);
    sift_down(t, last->slot - 1);
}

struct vb_timer *vb_timers_expire(struct vb_timers *t, uint64_t now_ns)
{
    while (t->count && t->heap[0]->key_ns <= now_ns) {
        struct vb_timer *timer = t->heap[0];
        if (timer->deadline_ns == VB_TIMER_NEVER) {
            vb_timer_remove(t, timer);
        } else if (timer->deadline_ns > now_ns) {
            timer->key_ns = timer->deadline_ns;
            sift_down(t, 0);
        } else {
            vb_timer_remove(t, timer);
            return timer;
        }
    }
    return NULL;
}
