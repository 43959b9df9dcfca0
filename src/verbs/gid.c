// SPDX-License-Identifier: Apache-2.0
// The table of GIDs: the address that the NIC is on, then one of each other kind that this machine
// has. The NIC is on these when somebody uses them: a program that does not never pays for them.
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const union ibv_gid *gid)
{
    return memcmp(gid->raw, v4_prefix, sizeof v4_prefix) == 0;
}

// Of two addresses of one kind the table has one.
static int kind_of(const union ibv_gid *gid)
{
    static const union ibv_gid loopback = {.raw = {[15] = 1}};
    bool local = is_v4(gid) ? gid->raw[12] == 127 : memcmp(gid, &loopback, sizeof *gid) == 0;
    return (local ? 2 : 0) | (is_v4(gid) ? 1 : 0);
}

static void from_socket_address(const void *at, union ibv_gid *gid)
{
    const struct sockaddr_in *v4 = at;
    const struct sockaddr_in6 *v6 = at;

    if (v4->sin_family == AF_INET6) {
        memcpy(gid->raw, &v6->sin6_addr, 16);
        return;
    }
    memcpy(gid->raw, v4_prefix, sizeof v4_prefix);
    memcpy(gid->raw + 12, &v4->sin_addr, 4);
}

static socklen_t to_socket_address(const union ibv_gid *gid, struct sockaddr_in6 *at)
{
    struct sockaddr_in *v4 = (void *)at;

    memset(at, 0, sizeof *at);
    if (is_v4(gid)) {
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_addr, gid->raw + 12, 4);
        return sizeof *v4;
    }
    at->sin6_family = AF_INET6;
    memcpy(&at->sin6_addr, gid->raw, 16);
    return sizeof *at;
}

// Whether it is this machine's, and ready.
static bool is_here(const union ibv_gid *gid)
{
    struct sockaddr_in6 at;
    socklen_t len = to_socket_address(gid, &at);
    int fd = socket(at.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool here = fd >= 0 && bind(fd, (const struct sockaddr *)&at, len) == 0;

    if (fd >= 0)
        close(fd);
    return here;
}

static void add(struct vb_verbs_gids *g, const union ibv_gid *gid)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (kind_of(&g->gid[i]) == kind_of(gid))
            return;
    if (g->count < VB_VERBS_GIDS && is_here(gid))
        g->gid[g->count++] = *gid;
}

static bool read_gid(const char *text, union ibv_gid *gid)
{
    if (inet_pton(AF_INET6, text, gid->raw) == 1)
        return true;
    memcpy(gid->raw, v4_prefix, sizeof v4_prefix);
    return inet_pton(AF_INET, text, gid->raw + 12) == 1;
}

// The address that packets to far away would carry; nothing is sent.
static void add_outward(struct vb_verbs_gids *g, const char *far)
{
    struct sockaddr_in6 at, own;
    union ibv_gid gid;

    if (!read_gid(far, &gid))
        return;
    socklen_t len = to_socket_address(&gid, &at), own_len = sizeof own;
    ((struct sockaddr_in *)(void *)&at)->sin_port = htons(9); // of both families at one place
    int fd = socket(at.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&at, len) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &own_len) == 0) {
        from_socket_address(&own, &gid);
        if (kind_of(&gid) < 2 &&
            !(own.sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&own.sin6_addr)))
            add(g, &gid);
    }
    if (fd >= 0)
        close(fd);
}

// Any of an interface that is not the loopback, link-local ones left out.
static void add_others(struct vb_verbs_gids *g, int family)
{
    struct ifaddrs *all = NULL;
    union ibv_gid gid;

    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) ||
            i->ifa_flags & IFF_LOOPBACK)
            continue;
        from_socket_address(i->ifa_addr, &gid);
        if (is_v4(&gid) || !IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)(void *)gid.raw))
            add(g, &gid);
    }
    freeifaddrs(all);
}

void vb_verbs_list_gids(struct vb_nic *nic, struct vb_verbs_gids *g)
{
    const char *given = getenv("VERBENA_ADDRESS"), *port = getenv("VERBENA_PORT");
    struct vb_verbs_address address;
    union ibv_gid gid;

    g->count = 1;
    vb_nic_gid(nic, g->gid[0].raw);
    if (vb_verbs_hull()) { // which has taken them
        while (g->count < VB_VERBS_GIDS && vb_nic_address(nic, g->count, g->gid[g->count].raw) == 0)
            g->count++;
        return;
    }
    if (port && strcmp(port, "shm") == 0)
        return;
    if (given && *given) {
        for (uint32_t i = 0; vb_verbs_address(i, &address); i++)
            if (read_gid(address.text, &gid))
                add(g, &gid);
        return;
    }
    add_outward(g, "192.0.2.1"); // for documentation: nobody's
    add_others(g, AF_INET);
    add_outward(g, "2001:db8::1");
    add_others(g, AF_INET6);
    if (read_gid("127.0.0.1", &gid))
        add(g, &gid);
    if (read_gid("::1", &gid))
        add(g, &gid);
}

int vb_verbs_take_gid(struct ibv_context *context, uint32_t index, const char *verb)
{
    struct vb_verbs_context *c = vb_verbs_of(context);
    char why[VB_ERROR_TEXT] = "";

    int err = index ? vb_nic_take_address_or_say(c->nic, c->gids.gid[index].raw, why) : 0;
    return err ? vb_verbs_fail(-err, verb, why) : 0;
}

// What others were told can be sent to. That it cannot be had hurts only who uses it.
static void take_asked(struct ibv_context *context)
{
    struct vb_verbs_gids *g = &vb_verbs_of(context)->gids;
    uint32_t asked = atomic_load(&g->asked);
    int before = errno;

    for (uint32_t i = 1; i < g->count; i++)
        if (asked >> i & 1)
            (void)vb_verbs_take_gid(context, i, "ibv_query_gid");
    errno = before;
}

void vb_verbs_gid_asked(struct ibv_context *context, uint32_t index)
{
    struct vb_verbs_gids *g = &vb_verbs_of(context)->gids;

    if (index == 0 || vb_verbs_is_dead(context))
        return;
    atomic_fetch_or(&g->asked, 1u << index);
    if (atomic_load(&g->datagrams))
        take_asked(context);
}

void vb_verbs_gid_datagrams(struct ibv_context *context)
{
    atomic_store(&vb_verbs_of(context)->gids.datagrams, true);
    take_asked(context);
}

uint32_t vb_verbs_find_gid(struct ibv_context *context, const union ibv_gid *to,
                           const union ibv_gid *peer)
{
    const struct vb_verbs_gids *g = &vb_verbs_of(context)->gids;

    for (uint32_t i = 0; i < g->count; i++)
        if (memcmp(&g->gid[i], to, sizeof *to) == 0)
            return i;
    for (uint32_t i = 0; i < g->count; i++)
        if (is_v4(&g->gid[i]) == is_v4(peer))
            return i;
    return 0;
}

uint32_t vb_verbs_gid_source(struct ibv_context *context, uint32_t index)
{
    const struct vb_verbs_context *c = vb_verbs_of(context);
    uint8_t gid[16];

    for (uint32_t n = 0; vb_nic_address(c->nic, n, gid) == 0; n++)
        if (memcmp(gid, c->gids.gid[index].raw, sizeof gid) == 0)
            return n + 1;
    return 0;
}
