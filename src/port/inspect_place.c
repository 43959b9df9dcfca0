// SPDX-License-Identifier: Apache-2.0
// The sockets at which NICs can be asked, and how to find them.
#include "port/inspect_place.h"

#include "port/shm.h"
#include "port/shm_place.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFIX "inspect-"

enum {
    BACKLOG = 16,
    NUMBERS = 1 << 16, // NICs of one process at most
    NAMES_MAX = 1 << 16,
    SWEEP_MAX = 256, // names looked at when a NIC opens
};

static bool join_path(char path[VB_INSPECT_PATH], const char *dir, const char *name)
{
    int len = snprintf(path, VB_INSPECT_PATH, "%s/%s", dir, name);
    return len > 0 && len < VB_INSPECT_PATH;
}

static struct sockaddr_un address_of(const char path[VB_INSPECT_PATH])
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, path, VB_INSPECT_PATH);
    return at;
}

// inspect-PID-NUMBER and nothing else.
static bool parse_name(const char *name, long *pid, uint32_t *number)
{
    char again[NAME_MAX + 1];

    if (sscanf(name, PREFIX "%9ld-%8" SCNu32, pid, number) != 2 || *pid <= 0)
        return false;
    snprintf(again, sizeof again, PREFIX "%ld-%" PRIu32, *pid, *number);
    return strcmp(name, again) == 0;
}

// ---- calling

static int connect_to(const char path[VB_INSPECT_PATH])
{
    const struct sockaddr_un at = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

// Two looks at the file: a new process may have taken the name between them.
static int call(const char path[VB_INSPECT_PATH])
{
    struct stat before, after;

    if (lstat(path, &before) < 0)
        return -errno;
    int fd = connect_to(path);
    if (fd == -ECONNREFUSED && before.st_uid == geteuid() && lstat(path, &after) == 0 &&
        after.st_ino == before.st_ino && after.st_ctim.tv_sec == before.st_ctim.tv_sec &&
        after.st_ctim.tv_nsec == before.st_ctim.tv_nsec)
        unlink(path);
    return fd;
}

int vb_inspect_call(const struct vb_inspect_name *name, pid_t *pid)
{
    struct ucred who = {0};
    socklen_t bytes = sizeof who;
    int fd = call(name->path);

    if (fd < 0)
        return fd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) < 0 ||
        (who.uid != geteuid() && geteuid() != 0)) {
        close(fd);
        return -EPERM;
    }
    *pid = who.pid;
    return fd;
}

// ---- listing

uint32_t vb_inspect_dirs(char dirs[VB_INSPECT_DIRS][VB_INSPECT_PATH])
{
    const char *given = secure_getenv("VERBENA_RUNTIME_DIR");
    uint32_t count = 0;

    if (vb_shm_runtime_dir(NULL, dirs[0], VB_INSPECT_PATH) == 0)
        count++;
    if (given && *given)
        return count;
    // What a program with another environment would take.
    snprintf(dirs[count++], VB_INSPECT_PATH, "/tmp/verbena-%u", (unsigned)geteuid());
    snprintf(dirs[count++], VB_INSPECT_PATH, "/run/user/%u/verbena", (unsigned)geteuid());
    if (geteuid() == 0)
        snprintf(dirs[count++], VB_INSPECT_PATH, "/run/verbena"); // of the system's hull
    uint32_t kept = 1;
    for (uint32_t i = 1; i < count; i++) {
        if (strcmp(dirs[i], dirs[0]) == 0)
            continue;
        if (kept != i)
            memcpy(dirs[kept], dirs[i], VB_INSPECT_PATH);
        kept++;
    }
    return kept;
}

static int by_process(const void *a, const void *b)
{
    const struct vb_inspect_name *x = a, *y = b;

    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static int add_name(struct vb_inspect_name **names, uint32_t *count, uint32_t *room,
                    const struct vb_inspect_name *name)
{
    if (*count == *room) {
        uint32_t more = *room ? 2 * *room : 16;
        struct vb_inspect_name *bigger = realloc(*names, more * sizeof **names);
        if (!bigger)
            return -ENOMEM;
        *names = bigger;
        *room = more;
    }
    (*names)[(*count)++] = *name;
    return 0;
}

static int read_names(DIR *list, const char *dir, struct vb_inspect_name **names, uint32_t *count)
{
    struct vb_inspect_name name;
    struct dirent *entry;
    uint32_t room = 0;
    int err = 0;

    while (!err && *count < NAMES_MAX && (entry = readdir(list)))
        if (parse_name(entry->d_name, &name.pid, &name.number) &&
            join_path(name.path, dir, entry->d_name))
            err = add_name(names, count, &room, &name);
    return err;
}

// Who looks there must know who could have put a socket there: he himself, or, for root, who it
// belongs to.
static int check_dir(const char *dir)
{
    struct stat st;

    if (geteuid() != 0)
        return vb_shm_check_dir(dir, NULL);
    if (lstat(dir, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    return st.st_mode & 022 ? -EPERM : 0;
}

int vb_inspect_list(const char *dir, struct vb_inspect_name **names, uint32_t *count)
{
    DIR *list = opendir(dir);

    *names = NULL;
    *count = 0;
    if (!list)
        return errno == ENOENT ? 0 : -errno;
    int err = check_dir(dir);
    if (!err)
        err = read_names(list, dir, names, count);
    closedir(list);
    if (err) {
        free(*names);
        *names = NULL;
        *count = 0;
    } else if (*count > 1) {
        qsort(*names, *count, sizeof **names, by_process);
    }
    return err;
}

// ---- being called

// Processes that are not to be seen from here may live all the same: the socket itself is asked.
static void sweep(const char *dir)
{
    struct dirent *entry;
    struct vb_inspect_name name;
    DIR *list = opendir(dir);

    for (uint32_t i = 0; list && i < SWEEP_MAX && (entry = readdir(list)); i++) {
        if (!parse_name(entry->d_name, &name.pid, &name.number) ||
            !join_path(name.path, dir, entry->d_name) || kill((pid_t)name.pid, 0) == 0 ||
            errno != ESRCH)
            continue;
        int fd = call(name.path);
        if (fd >= 0)
            close(fd);
    }
    if (list)
        closedir(list);
}

// Not named yet: nobody looks for it here.
static int listen_at(const char path[VB_INSPECT_PATH])
{
    const struct sockaddr_un at = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    (void)unlink(path); // of a thread with our numbers that was killed
    // The mode that it will be born with.
    if (fchmod(fd, 0600) == 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
        listen(fd, BACKLOG) == 0)
        return fd;
    int error = -errno;
    (void)unlink(path);
    close(fd);
    return error;
}

// The first number that no NIC of this process has.
static int take_name(struct vb_inspect_place *place, const char *dir, const char *unnamed)
{
    char name[64];

    for (place->number = 0; place->number < NUMBERS; place->number++) {
        snprintf(name, sizeof name, PREFIX "%ld-%" PRIu32, (long)getpid(), place->number);
        if (!join_path(place->path, dir, name))
            return -ENAMETOOLONG;
        if (link(unnamed, place->path) == 0)
            return lstat(place->path, &place->bound) == 0 ? 0 : -errno;
        if (errno != EEXIST)
            return -errno;
        // A process that had our number and was killed.
        int fd = call(place->path);
        if (fd >= 0)
            close(fd);
        else if (fd == -ECONNREFUSED && link(unnamed, place->path) == 0)
            return lstat(place->path, &place->bound) == 0 ? 0 : -errno;
    }
    return -ENOSPC;
}

int vb_inspect_place_open(struct vb_inspect_place *place)
{
    char dir[VB_INSPECT_PATH], unnamed[VB_INSPECT_PATH], name[64];

    place->listener = -1;
    snprintf(name, sizeof name, ".inspect-%ld-%ld", (long)getpid(), (long)gettid());
    int err = vb_shm_runtime_dir(NULL, dir, sizeof dir);
    if (!err)
        err = vb_shm_check_dir(dir, NULL);
    if (!err && !join_path(unnamed, dir, name))
        err = -ENAMETOOLONG;
    if (err)
        return err;
    sweep(dir);
    int fd = listen_at(unnamed);
    if (fd < 0)
        return fd;
    err = take_name(place, dir, unnamed);
    (void)unlink(unnamed);
    if (err) {
        close(fd);
        return err;
    }
    place->listener = fd;
    return fstat(fd, &place->socket) == 0 ? 0 : -errno;
}

void vb_inspect_place_hide(const struct vb_inspect_place *place)
{
    struct stat now;

    if (lstat(place->path, &now) == 0 && now.st_dev == place->bound.st_dev &&
        now.st_ino == place->bound.st_ino)
        (void)unlink(place->path);
}

bool vb_inspect_place_holds(const struct vb_inspect_place *place)
{
    struct stat now;

    return place->listener >= 0 && fstat(place->listener, &now) == 0 &&
           now.st_dev == place->socket.st_dev && now.st_ino == place->socket.st_ino;
}

void vb_inspect_place_close(struct vb_inspect_place *place)
{
    if (vb_inspect_place_holds(place))
        close(place->listener);
    place->listener = -1;
}
