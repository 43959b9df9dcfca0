// SPDX-License-Identifier: Apache-2.0
// The units of a hull's NIC: their threads, who wakes them, and which one an application's queues
// are on.
#include "hull/hull.h"

#include "port/trace.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// ---- life

int vb_hull_units_open(struct vb_hull *hull)
{
    const uint32_t units = hull->nic->lanes;

    hull->unit = aligned_alloc(alignof(struct vb_hull_unit), units * sizeof *hull->unit);
    if (!hull->unit)
        return -ENOMEM;
    memset(hull->unit, 0, units * sizeof *hull->unit);
    for (; hull->units < units; hull->units++) {
        struct vb_hull_unit *unit = &hull->unit[hull->units];
        unit->hull = hull;
        unit->lane = &hull->nic->lane[hull->units];
        unit->index = hull->units;
        vb_fifo_init(&unit->active);
        vb_fifo_init(&unit->watches);
        unit->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (unit->wake < 0)
            return -errno;
    }
    return 0;
}

void vb_hull_units_close(struct vb_hull *hull)
{
    for (uint32_t i = 0; i < hull->units; i++) {
        close(hull->unit[i].wake);
        free(hull->unit[i].heads);
        vb_trace_destroy(hull->unit[i].tracer);
    }
    free(hull->unit);
}

// ---- threads

static int pin(const struct vb_hull_unit *unit, char *error)
{
    const struct vb_hull_nic_config *config = &unit->hull->config;
    cpu_set_t set;

    if (!config->cpus)
        return 0;
    CPU_ZERO(&set);
    CPU_SET(config->cpu[unit->index], &set);
    int err = -pthread_setaffinity_np(unit->thread, sizeof set, &set);
    if (err)
        snprintf(error, VB_ERROR_TEXT, "unit %u cannot run on cpu %u: %s", unit->index + 1,
                 config->cpu[unit->index], strerror(-err));
    return err;
}

static int start(struct vb_hull_unit *unit, char *error)
{
    char name[16] = "verbena-hull";
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = -pthread_create(&unit->thread, NULL, vb_hull_run, unit);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err) {
        snprintf(error, VB_ERROR_TEXT, "the thread of unit %u: %s", unit->index + 1,
                 strerror(-err));
        return err;
    }
    unit->running = true;
    if (unit->index)
        snprintf(name, sizeof name, "verbena-hull-%u", unit->index & 15);
    pthread_setname_np(unit->thread, name);
    return pin(unit, error);
}

int vb_hull_units_start(struct vb_hull *hull, char error[VB_ERROR_TEXT])
{
    int err = 0;

    for (uint32_t i = 0; i < hull->units && !err && !hull->config.no_thread; i++)
        err = start(&hull->unit[i], error);
    return err;
}

void vb_hull_units_stop(struct vb_hull *hull)
{
    atomic_store(&hull->stopping, true);
    for (uint32_t i = 0; i < hull->units; i++)
        (void)!write(hull->unit[i].wake, &(uint64_t){1}, sizeof(uint64_t));
    for (uint32_t i = 0; i < hull->units; i++) {
        if (hull->unit[i].running)
            pthread_join(hull->unit[i].thread, NULL);
        hull->unit[i].running = false;
    }
}

// ---- waking

// Whoever takes a unit's bit wakes it, and nobody else needs to.
void vb_hull_units_wake(struct vb_hull *hull, uint32_t units)
{
    atomic_uint *asleep = &hull->nic->helper.asleep;

    if (!(atomic_load_explicit(asleep, memory_order_seq_cst) & units))
        return;
    uint32_t due = atomic_fetch_and_explicit(asleep, ~units, memory_order_seq_cst) & units;
    for (; due; due &= due - 1)
        (void)!write(hull->unit[__builtin_ctz(due)].wake, &(uint64_t){1}, sizeof(uint64_t));
}

// The first one's thread is who did it. Work that rings no bell counts, too: a queue pair that was
// made to fail has completions to write.
void vb_hull_units_told(struct vb_hull *hull)
{
    for (uint32_t i = 1; i < hull->units; i++) {
        struct vb_lane *lane = hull->unit[i].lane;
        vb_host_collect(lane);
        if (!vb_helper_sleeps_on(lane))
            continue;
        if (vb_pu_is_idle(lane->pu))
            vb_helper_recheck(lane);
        else
            vb_hull_units_wake(hull, 1u << i);
    }
}

// ---- where queues are

// All of an application on one unit, unless it asks for others: who has its queues on several pays
// for what crosses. The unit with the fewest queues is the next one's.
static uint32_t find_home(const struct vb_hull *hull)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < hull->units; i++)
        if (hull->unit[i].load < hull->unit[best].load)
            best = i;
    return best;
}

uint32_t vb_hull_unit_choose(struct vb_hull_client *client, uint32_t from_home)
{
    if (client->objects_made[VB_HULL_CQ] == 0)
        client->home = find_home(client->hull);
    return (client->home + from_home) & (client->hull->units - 1);
}
