// SPDX-License-Identifier: Apache-2.0
// The directory in which shm ports meet, and the sockets in it.
#include "port/shm_place.h"

#include "port/shm.h"
#include "verbena/nic.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINK_KIND ".units"

enum {
    KIND_MAX = 8, // what follows the address in a file's name
    BACKLOG = 128,
    LOCK_TRIES = 200,
    LOCK_WAIT_MS = 10,
};

int vb_shm_fail(char *error_text, int error, const char *format, ...)
{
    if (error_text != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(error_text, VB_ERROR_TEXT, format, args);
        va_end(args);
    }
    return -error;
}

// ---- addresses

int vb_shm_address_parse(const char *text, struct vb_ip *ip, char *error_text)
{
    char literal[INET6_ADDRSTRLEN] = "";
    size_t len = strcspn(text, "%");
    if (len < sizeof literal)
        memcpy(literal, text, len);
    *ip = (struct vb_ip){.b = {[10] = 0xff, [11] = 0xff}};
    if (inet_pton(AF_INET, literal, ip->b + 12) != 1 && inet_pton(AF_INET6, literal, ip->b) != 1)
        return vb_shm_fail(error_text, EINVAL,
                           "'%.40s' is not an IP address; one looks like 127.0.0.1 or ::1", text);
    static const struct vb_ip any = {0}, any4 = {.b = {[10] = 0xff, [11] = 0xff}};
    bool many = vb_ip_is_v4(ip) ? ip->b[12] >> 4 >= 14 : ip->b[0] == 0xff;
    if (many || vb_ip_equal(ip, &any) || vb_ip_equal(ip, &any4))
        return vb_shm_fail(error_text, EINVAL,
                           "%.40s does not name one machine; a NIC needs one address", text);
    return 0;
}

static const char *address_text(const struct vb_ip *ip, char text[INET6_ADDRSTRLEN])
{
    bool v4 = vb_ip_is_v4(ip);
    return inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip->b + 12 : ip->b, text, INET6_ADDRSTRLEN);
}

// ---- the directory

int vb_shm_runtime_dir(const char *given, char *path, size_t room)
{
    const char *own = given != NULL ? given : secure_getenv("VERBENA_RUNTIME_DIR");
    const char *session = secure_getenv("XDG_RUNTIME_DIR");
    int len;
    if (own != NULL && *own != '\0')
        len = snprintf(path, room, "%s", own);
    else if (session != NULL && *session != '\0')
        len = snprintf(path, room, "%s/verbena", session);
    else
        len = snprintf(path, room, "/tmp/verbena-%u", (unsigned)geteuid());
    return len > 0 && (size_t)len < room ? 0 : -ENAMETOOLONG;
}

// Whoever can write there could pose as any address, so it is ours alone or it is not used.
static int check_dir(const char *dir, char *error_text)
{
    struct stat st;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return vb_shm_fail(error_text, errno, "cannot make the directory %.60s: %s", dir,
                           strerror(errno));
    if (lstat(dir, &st) < 0)
        return vb_shm_fail(error_text, errno, "%.60s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return vb_shm_fail(error_text, ENOTDIR, "%.60s is not a directory", dir);
    if (st.st_uid != geteuid())
        return vb_shm_fail(error_text, EPERM, "%.60s belongs to user %u, not to us", dir,
                           (unsigned)st.st_uid);
    if (st.st_mode & 022)
        return vb_shm_fail(error_text, EPERM,
                           "others may write to %.60s (mode %03o); chmod 700 makes it safe", dir,
                           (unsigned)st.st_mode & 0777);
    return 0;
}

int vb_shm_place_dir(const char *given, char *path, size_t room, char *error_text)
{
    if (vb_shm_runtime_dir(given, path, room) < 0)
        return vb_shm_fail(error_text, ENAMETOOLONG,
                           "the runtime directory's name is too long: %.60s…", path);
    return check_dir(path, error_text);
}

// Writes the path of a file that belongs to an address. False: it is too long for a socket.
static bool file_of(const struct shm_place *place, const struct vb_ip *ip, const char *kind,
                    struct sockaddr_un *at)
{
    char text[INET6_ADDRSTRLEN];
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    int len = snprintf(at->sun_path, sizeof at->sun_path, "%s/shm-%llu-%s%s", place->dir,
                       place->netns, address_text(ip, text), kind);
    return len > 0 && (size_t)len < sizeof at->sun_path;
}

// ---- the socket

static int new_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

static bool socket_of(const struct shm_place *place, const struct vb_ip *ip, uint32_t unit,
                      struct sockaddr_un *at)
{
    char kind[KIND_MAX] = "";
    if (unit > 0)
        snprintf(kind, sizeof kind, "+%u", unit % SHM_UNITS);
    return file_of(place, ip, kind, at);
}

int vb_shm_place_call(const struct shm_place *place, const struct vb_ip *remote)
{
    return vb_shm_place_call_unit(place, remote, 0);
}

int vb_shm_place_call_unit(const struct shm_place *place, const struct vb_ip *remote, uint32_t unit)
{
    struct sockaddr_un at;
    if (!socket_of(place, remote, unit, &at))
        return -ENAMETOOLONG;
    int fd = new_socket();
    if (fd < 0)
        return fd;
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) < 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

// Looks who has the address: 0 if nobody has.
static int probe(const struct shm_place *place, char *error_text)
{
    char text[INET6_ADDRSTRLEN];
    int fd = vb_shm_place_call(place, &place->local);
    if (fd == -ECONNREFUSED || fd == -ENOENT)
        return 0;
    if (fd < 0 && fd != -EAGAIN)
        return vb_shm_fail(error_text, -fd, "the socket of %s in %.60s: %s",
                           address_text(&place->local, text), place->dir, strerror(-fd));
    struct ucred holder = {0};
    socklen_t bytes = sizeof holder;
    if (fd >= 0) {
        (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &holder, &bytes);
        close(fd);
    }
    if (holder.pid > 0)
        return vb_shm_fail(error_text, EADDRINUSE,
                           "%s is in use: the NIC of process %ld has it; take another address",
                           address_text(&place->local, text), (long)holder.pid);
    return vb_shm_fail(error_text, EADDRINUSE,
                       "%s is in use: a NIC of another process has it; take another address",
                       address_text(&place->local, text));
}

static int take_lock(const char *path, char *error_text)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return vb_shm_fail(error_text, errno, "%.100s: %s", path, strerror(errno));
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        (void)poll(NULL, 0, LOCK_WAIT_MS);
    }
    close(fd);
    return vb_shm_fail(error_text, EBUSY, "another process keeps %.100s locked", path);
}

// ---- the number of units, in a link: it comes into being whole

uint32_t vb_shm_place_units(const struct shm_place *place, const struct vb_ip *remote)
{
    struct sockaddr_un at;
    char told[KIND_MAX], text[KIND_MAX];
    if (!file_of(place, remote, LINK_KIND, &at))
        return 1;
    ssize_t len = readlink(at.sun_path, told, sizeof told);
    for (uint32_t units = 2; units <= SHM_UNITS && len > 0; units *= 2)
        if (snprintf(text, sizeof text, "%u", units) == len && memcmp(text, told, (size_t)len) == 0)
            return units;
    return 1;
}

// Removes all files of the address but the first unit's.
static void forget_units(const struct shm_place *place)
{
    struct sockaddr_un at;
    uint32_t units = vb_shm_place_units(place, &place->local);
    for (uint32_t unit = 1; unit < units; unit++)
        if (socket_of(place, &place->local, unit, &at))
            unlink(at.sun_path);
    if (file_of(place, &place->local, LINK_KIND, &at))
        unlink(at.sun_path);
}

static int publish_units(const struct shm_place *place, uint32_t units, char *error_text)
{
    struct sockaddr_un at;
    char text[KIND_MAX];
    forget_units(place); // of a process that was killed
    if (units == 1 || !file_of(place, &place->local, LINK_KIND, &at))
        return 0;
    snprintf(text, sizeof text, "%u", units);
    if (symlink(text, at.sun_path) < 0)
        return vb_shm_fail(error_text, errno, "%.100s: %s", at.sun_path, strerror(errno));
    return 0;
}

// ---- opening and closing

// A file that nobody listens behind is left over from a process that was killed.
static int bind_socket(struct shm_place *place, char *error_text)
{
    struct sockaddr_un name, *at = &name;
    if (!socket_of(place, &place->local, place->unit, at))
        return -ENAMETOOLONG;
    if (unlink(at->sun_path) < 0 && errno != ENOENT)
        return vb_shm_fail(error_text, errno, "%.100s: %s", at->sun_path, strerror(errno));
    int fd = new_socket();
    if (fd < 0)
        return vb_shm_fail(error_text, -fd, "no Unix socket: %s", strerror(-fd));
    if (bind(fd, (const struct sockaddr *)at, sizeof *at) < 0 || listen(fd, BACKLOG) < 0 ||
        lstat(at->sun_path, &place->bound) < 0) {
        int error = vb_shm_fail(error_text, errno, "%.100s: %s", at->sun_path, strerror(errno));
        close(fd);
        return error;
    }
    place->listener = fd;
    return 0;
}

static int find_dir(struct shm_place *place, const char *dir, char *error_text)
{
    struct sockaddr_un at;
    struct stat ns;
    int error = vb_shm_runtime_dir(dir, place->dir, sizeof place->dir);
    place->netns = stat("/proc/self/ns/net", &ns) == 0 ? ns.st_ino : 0;
    if (error < 0 || !file_of(place, &place->local, LINK_KIND, &at))
        return vb_shm_fail(error_text, ENAMETOOLONG,
                           "the runtime directory's name is too long: %.60s…", place->dir);
    return check_dir(place->dir, error_text);
}

// Under the lock. The first unit's socket comes last: who finds it finds all that belongs to it.
static int bind_all(struct shm_place *const *places, uint32_t units, char *error_text)
{
    int error = probe(places[0], error_text);
    if (error == 0)
        error = publish_units(places[0], units, error_text);
    for (uint32_t unit = units; unit-- > 0 && error == 0;)
        error = bind_socket(places[unit], error_text);
    return error;
}

int vb_shm_place_open(struct shm_place *const *places, uint32_t units, const char *dir,
                      const struct vb_ip *local, char *error_text)
{
    struct sockaddr_un lock_at;
    *places[0] = (struct shm_place){.local = *local, .listener = -1};
    int error = find_dir(places[0], dir, error_text);
    for (uint32_t unit = 1; unit < units; unit++) {
        *places[unit] = *places[0];
        places[unit]->unit = unit;
    }
    if (error < 0)
        return error;
    if (!file_of(places[0], local, ".lock", &lock_at))
        return -ENAMETOOLONG; // a longer one did fit
    int lock = take_lock(lock_at.sun_path, error_text);
    if (lock < 0)
        return lock;
    error = bind_all(places, units, error_text);
    close(lock);
    return error;
}

// The first unit removes the files of all, its own last, and only if that is its own: while its
// socket listens nobody replaces any of them.
static void remove_files(const struct shm_place *place)
{
    struct sockaddr_un at;
    struct stat st;
    if (place->unit > 0 || !socket_of(place, &place->local, 0, &at) ||
        lstat(at.sun_path, &st) < 0 || st.st_dev != place->bound.st_dev ||
        st.st_ino != place->bound.st_ino)
        return;
    forget_units(place);
    unlink(at.sun_path);
}

void vb_shm_place_close(struct shm_place *place)
{
    if (place->listener < 0)
        return;
    remove_files(place);
    // A child may have inherited the socket: those who call or wait in its queue must not hang.
    (void)shutdown(place->listener, SHUT_RDWR);
    for (int fd; (fd = accept4(place->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
        close(fd);
    close(place->listener);
    place->listener = -1;
}

int vb_shm_check_dir(const char *dir, char *error_text)
{
    return check_dir(dir, error_text);
}
