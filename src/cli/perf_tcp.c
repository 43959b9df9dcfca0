// SPDX-License-Identifier: Apache-2.0
// The control channel to another machine.
#include "cli/perf_tcp.h"

#include "cli/perf_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    KEEPALIVE_SECONDS = 5,
    BACKLOG = 8,
};

static void tune(int fd)
{
    int on = 1, seconds = KEEPALIVE_SECONDS;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // A client whose machine vanished must not keep the server busy.
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
}

// Every address of the peer, in the system's order. The last failure is the one that is told.
static int try_all(const struct addrinfo *found, int *error)
{
    *error = 0;
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            return fd;
        *error = errno;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

int vb_perf_dial(const char *peer, uint16_t port, char *why)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int error = getaddrinfo(peer, service, &hints, &found);
    if (error)
        return vb_perf_fail(why, "%s: %s", peer, gai_strerror(error));
    int fd = try_all(found, &error);
    freeaddrinfo(found);
    if (fd < 0)
        return vb_perf_fail(why, "%s port %u: %s; is 'verbena perf --listen' running there?", peer,
                            port, strerror(error));
    tune(fd);
    return fd;
}

// Binds and listens at one address, or at any of a family.
static int listen_at(const struct addrinfo *at)
{
    int on = 1, off = 0;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6) // IPv4's clients come in, too
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int vb_perf_open_listener(const char *local, uint16_t port, char *why)
{
    const int families[] = {AF_INET6, AF_INET};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICHOST};
    char service[8];
    int fd = -1, error = EADDRNOTAVAIL;
    snprintf(service, sizeof service, "%u", port);
    for (unsigned i = 0; i < 2 && fd < 0; i++) {
        struct addrinfo *at;
        hints.ai_family = families[i];
        if (getaddrinfo(*local ? local : NULL, service, &hints, &at) != 0)
            continue;
        fd = listen_at(at);
        error = errno;
        freeaddrinfo(at);
    }
    if (fd < 0)
        return vb_perf_fail(why, "cannot listen on %s port %u: %s", *local ? local : "any address",
                            port, strerror(error));
    return fd;
}

int vb_perf_accept(int listener, char *why)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            tune(fd);
            return fd;
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return vb_perf_fail(why, "cannot accept clients: %s", strerror(errno));
    }
}

void vb_perf_own_address(int fd, char text[INET6_ADDRSTRLEN])
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    uint8_t gid[16] = {[10] = 0xff, [11] = 0xff};
    (void)getsockname(fd, (struct sockaddr *)&at, &len);
    if (at.ss_family == AF_INET6)
        memcpy(gid, &((const struct sockaddr_in6 *)&at)->sin6_addr, sizeof gid);
    else
        memcpy(gid + 12, &((const struct sockaddr_in *)&at)->sin_addr, 4);
    vb_perf_gid_text(gid, text);
}
