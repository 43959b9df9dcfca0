// SPDX-License-Identifier: Apache-2.0
// What all contexts of a process share: the device, the NIC, and the lock of objects that events
// may name. Opening a device names none of these, so this is the one place that remembers them.
#include "verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock; // of the NIC
    struct vb_nic *nic;
    uint32_t users;
    bool forks;          // the hook is there
    uint32_t generation; // of processes that were forked from each other
    pthread_mutex_t object_lock;
    struct vb_fifo contexts;
    struct ibv_device device;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .object_lock = PTHREAD_MUTEX_INITIALIZER,
             .contexts = {{&process.contexts.head, &process.contexts.head}},
             .device = {.node_type = IBV_NODE_CA,
                        .transport_type = IBV_TRANSPORT_IB,
                        .name = "verbena0",
                        .dev_name = "uverbs0",
                        .dev_path = "/sys/class/infiniband_verbs/uverbs0",
                        .ibdev_path = "/sys/class/infiniband/verbena0"}};

struct ibv_device *vb_verbs_device(void)
{
    return &process.device;
}

// The parent's NIC and contexts are dead here; a device that is opened from now on is a new one.
static void after_fork_in_child(void)
{
    pthread_mutex_init(&process.lock, NULL);
    pthread_mutex_init(&process.object_lock, NULL);
    process.nic = NULL;
    process.users = 0;
    process.generation++;
    vb_fifo_init(&process.contexts); // another thread may have been changing it
}

const char *vb_verbs_hull(void)
{
    const char *name = getenv("VERBENA_HULL");
    return name && *name ? name : NULL;
}

uint32_t vb_verbs_units(void)
{
    const char *text = vb_verbs_hull() ? NULL : getenv("VERBENA_PUS");
    unsigned long units = text ? strtoul(text, NULL, 10) : 1;
    return units >= 1 && units <= 16 && (units & (units - 1)) == 0 ? (uint32_t)units : 1;
}

// Such a program's memory is its own: the hull copies it.
static int attach_nic(struct vb_nic **nic)
{
    char why[VB_ERROR_TEXT] = "";
    const struct vb_nic_opts opts = {.hull = vb_verbs_hull(), .copy = true, .error_text = why};
    int err = vb_nic_open(&opts, nic);

    if (err)
        vb_verbs_log(VB_VERBS_ALWAYS, "ibv_open_device: %s", why);
    else
        vb_verbs_log(VB_VERBS_INFO, "verbena0 is the hull's NIC %s", opts.hull);
    return err;
}

static int open_nic(struct vb_nic **nic)
{
    struct vb_verbs_address address;
    char why[VB_ERROR_TEXT] = "";
    int err = -EADDRINUSE;

    if (vb_verbs_hull())
        return attach_nic(nic);
    for (uint32_t i = 0; err == -EADDRINUSE && vb_verbs_address(i, &address); i++) {
        const struct vb_nic_opts opts = {
            .address = address.text, .units = vb_verbs_units(), .error_text = why};
        err = vb_nic_open(&opts, nic);
    }
    if (err)
        vb_verbs_log(VB_VERBS_ALWAYS, "ibv_open_device: %s", why);
    else
        vb_verbs_log(VB_VERBS_INFO, "verbena0 is at %s, UDP port 4791", address.text);
    return err;
}

struct vb_nic *vb_verbs_nic_get(void)
{
    int err = 0;

    pthread_mutex_lock(&process.lock);
    if (!process.forks)
        process.forks = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
    if (!process.nic)
        err = open_nic(&process.nic);
    struct vb_nic *nic = err ? NULL : process.nic;
    process.users += nic != NULL;
    pthread_mutex_unlock(&process.lock);
    errno = -err;
    return nic;
}

// In a child of the process that opened it only its memory goes.
void vb_verbs_nic_put(struct vb_nic *nic)
{
    bool last = false;

    pthread_mutex_lock(&process.lock);
    if (nic == process.nic && --process.users == 0) {
        process.nic = NULL;
        last = true;
    }
    if (last)
        vb_nic_close(nic); // before another thread opens the same address
    pthread_mutex_unlock(&process.lock);
}

void vb_verbs_process_lock(void)
{
    pthread_mutex_lock(&process.object_lock);
}

void vb_verbs_process_unlock(void)
{
    pthread_mutex_unlock(&process.object_lock);
}

const uint32_t *vb_verbs_generation(void)
{
    return &process.generation;
}

struct vb_fifo *vb_verbs_contexts(void)
{
    return &process.contexts;
}
