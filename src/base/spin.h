// SPDX-License-Identifier: Apache-2.0
// A lock for a few instructions between threads that do not wait for anything else meanwhile.
#ifndef VB_BASE_SPIN_H
#define VB_BASE_SPIN_H

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>

struct vb_spin {
    atomic_bool held;
};

static inline void vb_spin_lock(struct vb_spin *s)
{
    for (unsigned tries = 0; atomic_exchange_explicit(&s->held, 1, memory_order_acquire); tries++)
        if (tries % 1024 == 1023)
            sched_yield(); // the holder may not be running
}

static inline void vb_spin_unlock(struct vb_spin *s)
{
    assert(atomic_load_explicit(&s->held, memory_order_relaxed)); // or what came before had no lock
    atomic_store_explicit(&s->held, 0, memory_order_release);
}

#endif
