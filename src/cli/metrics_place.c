// SPDX-License-Identifier: Apache-2.0
// Where metrics are to be had: on the loopback, or at a socket of this user's alone. They say who
// is attached and what he does.
#include "cli/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 16,
};

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
};

static int fail(char *error, int err, const char *what, const char *at)
{
    snprintf(error, VB_ERROR_TEXT, "metrics at '%.80s': %s", at, what);
    return err;
}

// ---- an address

static bool parse_port(const char *text, in_port_t *port)
{
    char *end;

    if (*text < '0' || *text > '9' || strlen(text) > 5)
        return false;
    unsigned long value = strtoul(text, &end, 10);
    *port = htons((uint16_t)value);
    return !*end && value <= UINT16_MAX;
}

// "PORT", "IP:PORT" or "[IP]:PORT"
static bool parse(const char *at, union address *address, socklen_t *size)
{
    char ip[INET6_ADDRSTRLEN] = "127.0.0.1";
    const char *colon = strrchr(at, ':'), *port = colon ? colon + 1 : at;
    size_t len = colon ? (size_t)(colon - at) : 0;
    bool v6 = len >= 2 && at[0] == '[' && at[len - 1] == ']';

    if (colon) {
        at += v6;
        len -= v6 ? 2 : 0;
        if (len >= sizeof ip)
            return false;
        memcpy(ip, at, len);
        ip[len] = '\0';
    }
    memset(address, 0, sizeof *address);
    address->any.sa_family = v6 ? AF_INET6 : AF_INET;
    *size = v6 ? sizeof address->v6 : sizeof address->v4;
    return inet_pton(v6 ? AF_INET6 : AF_INET, ip,
                     v6 ? (void *)&address->v6.sin6_addr : (void *)&address->v4.sin_addr) == 1 &&
           parse_port(port, v6 ? &address->v6.sin6_port : &address->v4.sin_port);
}

static bool is_loopback(const union address *a)
{
    if (a->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

// The port may have been the system's choice.
static void show(int fd, char where[VB_METRICS_WHERE])
{
    union address a;
    socklen_t size = sizeof a;
    char ip[INET6_ADDRSTRLEN];

    if (getsockname(fd, &a.any, &size) < 0)
        return;
    if (a.any.sa_family == AF_INET6)
        snprintf(where, VB_METRICS_WHERE, "http://[%s]:%u/metrics",
                 inet_ntop(AF_INET6, &a.v6.sin6_addr, ip, sizeof ip), ntohs(a.v6.sin6_port));
    else
        snprintf(where, VB_METRICS_WHERE, "http://%s:%u/metrics",
                 inet_ntop(AF_INET, &a.v4.sin_addr, ip, sizeof ip), ntohs(a.v4.sin_port));
}

// ---- a file

// What a process that was killed has left behind, and nothing else.
static void unlink_stale(const struct sockaddr_un *at)
{
    struct stat file;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return;
    if (lstat(at->sun_path, &file) == 0 && S_ISSOCK(file.st_mode) &&
        connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 && errno == ECONNREFUSED)
        unlink(at->sun_path);
    close(fd);
}

static bool name_file(const char *at, union address *address, socklen_t *size)
{
    memset(address, 0, sizeof *address);
    address->un.sun_family = AF_UNIX;
    *size = sizeof address->un;
    if (strlen(at) >= sizeof address->un.sun_path)
        return false;
    memcpy(address->un.sun_path, at, strlen(at) + 1);
    unlink_stale(&address->un);
    return true;
}

// ---- both

static int open_at(const union address *address, socklen_t size)
{
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    (void)fchmod(fd, 0600); // the mode that a file is born with
    int err = bind(fd, &address->any, size) < 0 ? -errno : 0;
    if (!err && listen(fd, BACKLOG) < 0)
        err = -errno;
    if (err)
        close(fd);
    return err ? err : fd;
}

int vb_metrics_listen(const char *at, bool anywhere, char where[VB_METRICS_WHERE],
                      char error[VB_ERROR_TEXT])
{
    union address address;
    socklen_t size;
    bool path = *at == '/';

    if (path ? !name_file(at, &address, &size) : !parse(at, &address, &size))
        return fail(error, -EINVAL, "PORT, IP:PORT, [IP]:PORT or a path from / on is right", at);
    if (!path && !anywhere && !is_loopback(&address))
        return fail(error, -EPERM, "others would see it; --metrics-anywhere allows that", at);
    int fd = open_at(&address, size);
    if (fd < 0)
        return fail(error, fd, strerror(-fd), at);
    if (path)
        snprintf(where, VB_METRICS_WHERE, "%s", at);
    else
        show(fd, where);
    return fd;
}
