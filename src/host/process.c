// SPDX-License-Identifier: Apache-2.0
// The process that NICs live in. fork() and exit() name no NIC, so this is the one place that
// remembers all that are open.
#include "host/host.h"
#include "host/inspect.h"

#include "port/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

enum {
    PATIENCE_NS = 1000 * 1000 * 1000, // of fork() and exit(), for threads that are at work in a NIC
};

static struct {
    pthread_mutex_t lock;
    struct vb_fifo nics;
    bool forks, exits; // the hooks are there
    int cancel_before; // of the thread that forks
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .nics = {{&process.nics.head, &process.nics.head}}};

static _Thread_local bool forks_with_lock;

#define FOR_EACH_NIC(nic)                                                               \
    for (struct vb_link *l = process.nics.head.next, *next = l->next;                   \
         l != &process.nics.head && (nic = VB_CONTAINER_OF(l, struct vb_nic, process)); \
         l = next, next = l->next)

// ---- fork

static bool lock_until(pthread_mutex_t *lock, uint64_t give_up_ns)
{
    while (pthread_mutex_trylock(lock) != 0) {
        if (vb_clock_ns() >= give_up_ns)
            return false;
        sched_yield();
    }
    return true;
}

// The helper takes the lanes while it answers who inspects the NIC, so that lock comes first.
static bool hold(struct vb_nic *nic, uint64_t give_up_ns)
{
    if (!lock_until(&nic->inspect_lock, give_up_ns))
        return false;
    if (vb_host_lock_until(nic, give_up_ns)) {
        if (lock_until(&nic->event_lock, give_up_ns))
            return true;
        vb_host_unlock(nic);
    }
    pthread_mutex_unlock(&nic->inspect_lock);
    return false;
}

// Only the thread that forks lives on in the child. All locks are taken before, so that no other
// thread is in the middle of something; a NIC whose locks cannot be had (by a signal handler that
// forks, say) is marked, and its memory is left alone in the child. Without the list's lock, which
// exit() keeps while NICs drain, all are.
static void before_fork(void)
{
    struct vb_nic *nic;
    uint64_t give_up_ns = vb_clock_ns() + PATIENCE_NS;
    int before = vb_cancel_hold(); // the locks of several NICs are not let go in reverse order

    forks_with_lock = lock_until(&process.lock, give_up_ns);
    if (!forks_with_lock) {
        vb_cancel_allow(before);
        return;
    }
    process.cancel_before = before;
    FOR_EACH_NIC(nic)
    {
        nic->torn = !hold(nic, give_up_ns);
    }
}

static void let_go(struct vb_nic *nic)
{
    if (nic->torn)
        return;
    pthread_mutex_unlock(&nic->event_lock);
    vb_host_unlock(nic);
    pthread_mutex_unlock(&nic->inspect_lock);
}

static void end_fork(void)
{
    int before = process.cancel_before;

    pthread_mutex_unlock(&process.lock);
    vb_cancel_allow(before);
}

static void after_fork_in_parent(void)
{
    struct vb_nic *nic;

    if (!forks_with_lock)
        return;
    FOR_EACH_NIC(nic)
    {
        let_go(nic);
    }
    end_fork();
}

static void after_fork_in_child(void)
{
    struct vb_nic *nic;

    FOR_EACH_NIC(nic)
    {
        vb_link_remove(&nic->process);
        if (!forks_with_lock)
            nic->torn = true;
        let_go(nic);
        vb_host_orphan(nic);
    }
    if (forks_with_lock)
        end_fork();
    else
        pthread_mutex_init(&process.lock, NULL); // whoever held it is not here
}

// ---- exit

// NICs stay open: handlers that run later may still close them.
static void at_exit(void)
{
    struct vb_nic *nic;

    if (!lock_until(&process.lock, vb_clock_ns() + PATIENCE_NS))
        return; // exit() in a signal handler of a thread that holds it
    uint64_t now_ns = vb_clock_ns();
    FOR_EACH_NIC(nic)
    {
        vb_host_drain(nic, now_ns + nic->drain_ns);
        vb_inspect_hide(nic);
    }
    pthread_mutex_unlock(&process.lock);
}

// ---- who is open

int vb_process_enter(struct vb_nic *nic)
{
    pthread_mutex_lock(&process.lock);
    if (!process.forks)
        process.forks = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
    if (!process.exits)
        process.exits = atexit(at_exit) == 0;
    bool hooked = process.forks && process.exits;
    if (hooked)
        vb_fifo_push(&process.nics, &nic->process);
    pthread_mutex_unlock(&process.lock);
    return hooked ? 0 : -ENOMEM;
}

void vb_process_leave(struct vb_nic *nic)
{
    pthread_mutex_lock(&process.lock);
    if (vb_link_queued(&nic->process))
        vb_link_remove(&nic->process);
    pthread_mutex_unlock(&process.lock);
}
