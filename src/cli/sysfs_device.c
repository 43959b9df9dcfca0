// SPDX-License-Identifier: Apache-2.0
// Asks our libibverbs for what files in /sys would say, by verbs.
#include "cli/sysfs.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// The header's macros and inline functions would link the library.
#undef ibv_get_device_list

typedef struct ibv_device **get_list(int *count);
typedef struct ibv_context *open_device(struct ibv_device *device);
typedef int query_gid(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);

static bool describe(struct ibv_context *context, query_gid *query_gid_ex,
                     struct vb_sysfs_device *d)
{
    const struct verbs_context *ops = verbs_get_ctx(context);
    struct ibv_device_attr_ex attr;
    struct ibv_gid_entry gid;

    if (ops->query_device_ex(context, NULL, &attr, sizeof attr) != 0 ||
        ops->query_port(context, 1, &d->port, sizeof d->port) != 0)
        return false;
    d->attr = attr.orig_attr;
    for (d->gids = 0; d->gids < VB_SYSFS_GIDS; d->gids++) {
        struct vb_sysfs_gid *known = &d->gid[d->gids];
        if (query_gid_ex(context, 1, d->gids, &gid, 0, sizeof gid) != 0)
            break;
        known->gid = gid.gid;
        if (!if_indextoname(gid.ndev_ifindex, known->interface))
            known->interface[0] = '\0';
    }
    return d->gids > 0;
}

// In the child: nothing has to be taken back.
static bool ask(const char *library, struct vb_sysfs_device *d)
{
    void *verbs = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    get_list *list = verbs ? (get_list *)dlsym(verbs, "ibv_get_device_list") : NULL;
    open_device *open_it = verbs ? (open_device *)dlsym(verbs, "ibv_open_device") : NULL;
    query_gid *query = verbs ? (query_gid *)dlsym(verbs, "_ibv_query_gid_ex") : NULL;

    if (!list || !open_it || !query)
        return false;
    struct ibv_device **devices = list(NULL);
    struct ibv_context *context = devices && devices[0] ? open_it(devices[0]) : NULL;
    if (!context)
        return false;
    memcpy(d->name, devices[0]->name, sizeof d->name);
    return describe(context, query, d);
}

// A namespace can be left only by a process of one thread, and the device has a second one.
bool vb_sysfs_ask(const char *library, struct vb_sysfs_device *device)
{
    struct vb_sysfs_device answer;
    int ends[2], status = 0;

    memset(&answer, 0, sizeof answer);
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        bool known = ask(library, &answer);
        _exit(known && write(ends[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
    }
    close(ends[1]);
    ssize_t got = child > 0 ? read(ends[0], device, sizeof *device) : -1;
    close(ends[0]);
    if (child > 0)
        waitpid(child, &status, 0);
    return got == sizeof *device && status == 0;
}
