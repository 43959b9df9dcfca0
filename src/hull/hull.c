// SPDX-License-Identifier: Apache-2.0
// A hull's life: it opens a NIC and a socket, runs, and ends all that applications have.
#include "hull/hull.h"

#include "host/inspect.h"
#include "port/clock.h"
#include "port/shm_place.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 128,
};

static int fail(char *error, const char *what, int err)
{
    snprintf(error, VB_ERROR_TEXT, "%.100s: %s", what, strerror(-err));
    return err;
}

// ---- the socket

static int choose_path(struct vb_hull *hull, char *error)
{
    char dir[SHM_DIR_MAX];

    if (hull->config.socket[0]) {
        memcpy(hull->path, hull->config.socket, sizeof hull->path);
        return 0;
    }
    int err = vb_shm_place_dir(NULL, dir, sizeof dir, error);
    if (err)
        return err;
    int len = snprintf(hull->path, sizeof hull->path, "%s/hull-%s", dir, hull->config.name);
    if (len > 0 && (size_t)len < sizeof hull->path)
        return 0;
    hull->path[0] = '\0';
    snprintf(error, VB_ERROR_TEXT,
             "the socket's path would have %d characters, and may have %zu: say 'socket =' or "
             "--socket, or VERBENA_RUNTIME_DIR",
             len, sizeof hull->path - 1);
    return -ENAMETOOLONG;
}

// A socket that a hull left behind when it was killed. True: it may be taken away. Connections to
// files of other kinds are refused, too; and one that is alive may be too busy to take ours.
static bool is_stale(const struct sockaddr_un *at)
{
    struct stat file;
    if (lstat(at->sun_path, &file) < 0 || !S_ISSOCK(file.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 &&
                 errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return stale;
}

static int fail_to_bind(const char *path, int err, char *error)
{
    struct stat file;

    if (err != -EADDRINUSE || lstat(path, &file) < 0)
        return fail(error, path, err);
    snprintf(error, VB_ERROR_TEXT, "%.100s is in use: %s", path,
             S_ISSOCK(file.st_mode) ? "another hull, or something else, listens there"
                                    : "it is no socket, and is left alone");
    return err;
}

static int bind_to(int fd, const struct sockaddr_un *at)
{
    mode_t before = umask(0177); // nobody else's, from its first moment on
    int err = bind(fd, (const struct sockaddr *)at, sizeof *at) < 0 ? -errno : 0;

    if (err == -EADDRINUSE && is_stale(at) && unlink(at->sun_path) == 0)
        err = bind(fd, (const struct sockaddr *)at, sizeof *at) < 0 ? -errno : 0;
    umask(before);
    return err;
}

static int open_to_group(const struct vb_hull *hull)
{
    if (!hull->config.has_group)
        return 0;
    if (chown(hull->path, (uid_t)-1, hull->config.group) < 0 || chmod(hull->path, 0660) < 0)
        return -errno;
    return 0;
}

// A socket of the service manager's: called hull-NAME, as its file is by default. -ENOENT: none.
static int take_listener(struct vb_hull *hull, char *error)
{
    char name[VB_HULL_NAME + 8];

    snprintf(name, sizeof name, "hull-%s", hull->config.name);
    int fd =
        vb_inherited_listener(hull->known->inherited, name, hull->path, sizeof hull->path, error);
    if (fd < 0)
        return fd;
    hull->listener = fd;
    hull->given = true;
    return 0;
}

static int listen_at(struct vb_hull *hull, char *error)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int err = take_listener(hull, error);

    if (err != -ENOENT)
        return err;
    err = choose_path(hull, error);
    if (err)
        return err;
    memcpy(at.sun_path, hull->path, sizeof at.sun_path);
    hull->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    err = hull->listener < 0 ? -errno : bind_to(hull->listener, &at);
    if (err) {
        hull->path[0] = '\0'; // not ours to take away
        return fail_to_bind(at.sun_path, err, error);
    }
    err = open_to_group(hull);
    if (err) {
        snprintf(error, VB_ERROR_TEXT, "%.60s cannot be opened to group %u: %.30s%s", at.sun_path,
                 (unsigned)hull->config.group, strerror(-err),
                 err == -EPERM ? "; the hull's user must be in it" : "");
        return err;
    }
    if (listen(hull->listener, BACKLOG) < 0)
        err = -errno;
    return err ? fail(error, at.sun_path, err) : 0;
}

// ---- the parts

static int watch(struct vb_hull *hull, int fd, int *mark)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = mark};
    return epoll_ctl(hull->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int open_descriptors(struct vb_hull *hull)
{
    hull->epoll = epoll_create1(EPOLL_CLOEXEC);
    hull->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (hull->epoll < 0 || hull->spare < 0)
        return -errno;
    int err = watch(hull, hull->listener, &hull->listener);
    return err ? err : watch(hull, hull->unit[0].wake, &hull->unit[0].wake);
}

static bool read_address(const char *text, uint8_t gid[16])
{
    static const uint8_t v4[16] = {[10] = 0xff, 0xff};

    if (inet_pton(AF_INET6, text, gid) == 1)
        return true;
    memcpy(gid, v4, sizeof v4);
    return inet_pton(AF_INET, text, gid + 12) == 1;
}

static int take_addresses(struct vb_hull *hull, char *error)
{
    uint8_t gid[16];
    char why[VB_ERROR_TEXT] = "";
    int err = 0;

    for (uint32_t i = 0; !err && i < hull->config.furthers; i++) {
        const char *text = hull->config.further[i];
        err = read_address(text, gid) ? vb_nic_take_address_or_say(hull->nic, gid, why) : -EINVAL;
        if (err)
            snprintf(error, VB_ERROR_TEXT, "further = %.45s: %.100s", text,
                     err == -EINVAL ? "this is no address" : why);
    }
    return err;
}

static int open_nic(struct vb_hull *hull, char *error)
{
    const struct vb_nic_opts opts = {.address = hull->config.address,
                                     .port = hull->config.port,
                                     .units = hull->config.pus,
                                     .no_helper = true,
                                     .error_text = error};
    int err = vb_nic_open(&opts, &hull->nic);

    if (err)
        return err;
    hull->lane = &hull->nic->lane[0];
    err = vb_hull_units_open(hull);
    if (err)
        return fail(error, "the NIC's units", err);
    hull->nic->hull = hull;
    hull->nic->hull_event = vb_hull_event;
    hull->nic->hull_wake = vb_hull_units_wake;
    hull->nic->hull_name = hull->config.name;
    hull->nic->hull_tell = vb_hull_tell;
    hull->nic->hull_owner = vb_hull_tell_owner;
    vb_hull_copy_init(hull);
    err = take_addresses(hull, error);
    return err ? err : vb_inspect_open(hull->nic, &opts);
}

static struct vb_hull *alloc_hull(const struct vb_hull_config *config, uint32_t nic)
{
    struct vb_hull *hull = calloc(1, sizeof *hull);
    struct vb_hull_config *known = malloc(sizeof *known);

    if (!hull || !known) {
        free(hull);
        free(known);
        return NULL;
    }
    *known = *config;
    hull->known = known;
    hull->config = config->nic[nic];
    vb_hull_descriptors_init(hull, config->nics);
    hull->listener = hull->epoll = hull->spare = -1;
    pthread_mutex_init(&hull->lock, NULL);
    vb_fifo_init(&hull->clients);
    vb_fifo_init(&hull->tenants);
    vb_fifo_init(&hull->store.due);
    vb_metrics_init(hull);
    pthread_cond_init(&hull->counted, NULL);
    vb_hull_reap_init(hull);
    if (getrandom(&hull->epoch, sizeof hull->epoch, 0) != sizeof hull->epoch)
        hull->epoch = vb_clock_ns();
    return hull;
}

int vb_hull_open(const struct vb_hull_config *config, uint32_t nic, struct vb_hull **out,
                 char error[VB_ERROR_TEXT])
{
    struct vb_hull *hull = alloc_hull(config, nic);

    snprintf(error, VB_ERROR_TEXT, "out of memory");
    if (!hull)
        return -ENOMEM;
    int err = vb_hull_clock_open(hull);
    if (err)
        fail(error, "the clock's page", err);
    if (!err)
        err = open_nic(hull, error);
    if (!err)
        err = listen_at(hull, error);
    if (!err) {
        err = open_descriptors(hull);
        if (err)
            fail(error, "descriptors", err);
    }
    if (!err) {
        vb_store_restore(hull, hull->known->inherited);
        hull->known->inherited = NULL;
        err = vb_hull_units_start(hull, error);
    }
    if (err)
        vb_hull_close(hull);
    else
        *out = hull;
    return err;
}

// ---- the end

static void end_tenants(struct vb_hull *hull)
{
    struct vb_link *link, *next, *named;

    for (link = hull->tenants.head.next; link != &hull->tenants.head; link = next) {
        struct vb_hull_tenant *t = VB_CONTAINER_OF(link, struct vb_hull_tenant, link);
        next = link->next;
        while ((named = vb_fifo_first(&t->named)))
            vb_hull_memory_forget(hull, VB_CONTAINER_OF(named, struct vb_hull_mapping, link));
        vb_hull_tenant_end(hull, t);
    }
    vb_hull_reap_finish(hull); // with the last of them
    assert(vb_fifo_empty(&hull->tenants));
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void vb_hull_close(struct vb_hull *hull)
{
    struct vb_link *link;

    vb_hull_units_stop(hull);
    vb_store_end(hull);
    if (hull->path[0] && !hull->given)
        unlink(hull->path);
    while ((link = vb_fifo_first(&hull->clients)))
        vb_hull_client_end(VB_CONTAINER_OF(link, struct vb_hull_client, link));
    end_tenants(hull);
    vb_nic_close(hull->nic);
    vb_hull_clock_close(hull);
    close_fd(hull->listener);
    close_fd(hull->epoll);
    close_fd(hull->spare);
    vb_hull_units_close(hull);
    vb_metrics_end(hull);
    pthread_cond_destroy(&hull->counted);
    vb_hull_reap_end(hull);
    pthread_mutex_destroy(&hull->lock);
    free(hull->known);
    free(hull->fresh);
    free(hull);
}

int vb_hull_reload(struct vb_hull *hull, const struct vb_hull_config *config)
{
    struct vb_hull_config *fresh = malloc(sizeof *fresh);

    if (!fresh)
        return -ENOMEM;
    *fresh = *config;
    pthread_mutex_lock(&hull->lock);
    free(hull->fresh);
    hull->fresh = fresh;
    pthread_mutex_unlock(&hull->lock);
    (void)!write(hull->unit[0].wake, &(uint64_t){1}, sizeof(uint64_t));
    return 0;
}
