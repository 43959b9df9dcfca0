// SPDX-License-Identifier: Apache-2.0
// Timers of a processing unit: a heap in which re-arming to a later time costs one store. A timer
// that comes up before its true deadline is put back; so every acknowledgement may re-arm for
// nothing.
#ifndef VB_NIC_TIMER_H
#define VB_NIC_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#define VB_TIMER_NEVER UINT64_MAX

enum vb_timer_owner {
    VB_TIMER_OF_REQUESTER,
    VB_TIMER_OF_CQ,
    VB_TIMER_OF_RATE,  // of a queue pair that congestion control holds
    VB_TIMER_OF_CROSS, // of one that its own rate holds
    VB_TIMER_OF_UNIT,  // which has events to tell
};

struct vb_timer {
    uint64_t deadline_ns; // VB_TIMER_NEVER: not armed
    uint64_t key_ns;      // what the heap is ordered by, never after deadline_ns
    uint32_t slot;        // place in the heap + 1, 0: not in it
    enum vb_timer_owner owner;
};

struct vb_timers {
    struct vb_timer **heap;
    uint32_t count, room;
};

void vb_timers_fini(struct vb_timers *t);
// Makes room for `count` timers, so that arming cannot fail. -ENOMEM.
int vb_timers_reserve(struct vb_timers *t, uint32_t count);
void vb_timer_arm(struct vb_timers *t, struct vb_timer *timer, uint64_t deadline_ns);
static inline void vb_timer_disarm(struct vb_timer *timer)
{
    timer->deadline_ns = VB_TIMER_NEVER;
}
// Takes the timer out of the heap, for its owner's end.
void vb_timer_remove(struct vb_timers *t, struct vb_timer *timer);
// The next timer that is due, disarmed; NULL: none.
struct vb_timer *vb_timers_expire(struct vb_timers *t, uint64_t now_ns);

// No timer fires before this.
static inline uint64_t vb_timers_next(const struct vb_timers *t)
{
    return t->count ? t->heap[0]->key_ns : VB_TIMER_NEVER;
}

#endif
