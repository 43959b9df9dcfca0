// SPDX-License-Identifier: Apache-2.0
// Memory of applications that is not shared: its bytes are copied by the system, through a
// descriptor of the process's memory. That is of this process alone, however numbers of processes
// are used again: when it ends, or becomes another program, there is nothing behind it any more.
//
// The system may have to wait for a page that the application, or a file system of its making, is
// slow to give. So this is for tenants that are trusted not to (`copy = yes`).
#include "hull/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool fetch(void *ctx, uint64_t source, uint64_t at, uint8_t *to, uint64_t len)
{
    const struct vb_hull_process *process = (const void *)(uintptr_t)source;

    (void)ctx;
    return pread(process->fd, to, len, (off_t)at) == (ssize_t)len;
}

static bool store(void *ctx, uint64_t source, uint64_t at, const uint8_t *from, uint64_t len)
{
    const struct vb_hull_process *process = (const void *)(uintptr_t)source;

    (void)ctx;
    return pwrite(process->fd, from, len, (off_t)at) == (ssize_t)len;
}

void vb_hull_copy_init(struct vb_hull *hull)
{
    hull->copier = (struct vb_mem_copier){hull, fetch, store};
    vb_dev_copy_by(hull->nic->dev, &hull->copier);
}

// Opens the memory of the process that connected; the word proves that its number is not another's
// by now. A descriptor or a negative errno.
static int open_memory(const struct vb_hull_client *client, const struct vb_hull_proof *proof)
{
    char path[32];
    uint64_t word = ~proof->word;

    snprintf(path, sizeof path, "/proc/%d/mem", (int)client->pid);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (proof->at <= INT64_MAX && pread(fd, &word, sizeof word, (off_t)proof->at) == sizeof word &&
        word == proof->word)
        return fd;
    close(fd);
    return -ESRCH;
}

struct vb_hull_process *vb_hull_copy_use(struct vb_hull_client *client, enum vb_mkey_kind kind)
{
    if (kind != VB_MKEY_COPIED)
        return NULL;
    client->process->users++;
    return client->process;
}

void vb_hull_copy_end(struct vb_hull *hull, struct vb_hull_process *process)
{
    if (!process || --process->users)
        return;
    close(process->fd);
    vb_hull_descriptors_give_back(hull, process->tenant, 1);
    free(process);
}

void vb_hull_copy_begin(struct vb_hull_command *c)
{
    struct vb_hull_client *client = c->client;

    if (vb_hull_is_service(c, "memory of a process"))
        return;
    if (!client->tenant->quota.copy) {
        vb_hull_refuse(c->reply, -EPERM,
                       "memory of user %u is not copied: the hull's configuration would have to "
                       "say 'copy = yes'",
                       (unsigned)client->tenant->uid);
        return;
    }
    if (client->tenant->uid != geteuid()) {
        vb_hull_refuse(c->reply, -EPERM, "only memory of the hull's own user %u is copied",
                       (unsigned)geteuid());
        return;
    }
    if (!vb_hull_descriptors_take(client->hull, client->tenant, 1, c->reply))
        return;
    int fd = open_memory(client, &c->request->proof);
    if (fd < 0) {
        vb_hull_descriptors_give_back(client->hull, client->tenant, 1);
        vb_hull_refuse(c->reply, fd,
                       "the system does not let the hull at the memory of process %d: %s",
                       (int)client->pid, strerror(-fd));
        return;
    }
    struct vb_hull_process *process = malloc(sizeof *process);
    if (!process) {
        close(fd);
        vb_hull_descriptors_give_back(client->hull, client->tenant, 1);
        vb_hull_refuse(c->reply, -ENOMEM, "the hull is out of memory");
        return;
    }
    *process = (struct vb_hull_process){.fd = fd, .users = 1, .tenant = client->tenant};
    vb_hull_copy_end(client->hull, client->process);
    client->process = process;
}
