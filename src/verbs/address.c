// SPDX-License-Identifier: Apache-2.0
// Which address a process's NIC takes: the machine's own, which processes of a user share. Where
// that cannot be, because another user has the port or by shm, one of 127.0.0.0/8.
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <endian.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    LOOPBACK_ADDRESSES = 250,
    LOOPBACK_MTU = 65535,
    HEADERS_BYTES = 40 + 8 + 12 + 28 + 4, // IPv6, UDP, BTH, the longest extension, ICRC
};

static uint32_t link_mtu(const char *interface)
{
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint32_t mtu = LOOPBACK_MTU;

    if (fd < 0)
        return mtu;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    if (ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0 &&
        request.ifr_mtu < LOOPBACK_MTU)
        mtu = (uint32_t)request.ifr_mtu;
    close(fd);
    return mtu;
}

// The address that packets to far away would carry; nothing is sent.
static bool find_outward(char text[INET6_ADDRSTRLEN])
{
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(9)}, own;
    socklen_t len = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, "192.0.2.1", &far.sin_addr); // for documentation: nobody's
    bool found = fd >= 0 && connect(fd, (struct sockaddr *)&far, sizeof far) == 0 &&
                 getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
                 inet_ntop(AF_INET, &own.sin_addr, text, INET6_ADDRSTRLEN);
    if (fd >= 0)
        close(fd);
    return found;
}

// IPv4 before IPv6, and the outward one first. Link-local addresses need a scope: not here.
static int rank(const struct ifaddrs *i, const char *outward, char text[INET6_ADDRSTRLEN])
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK)
        return 0;
    if (i->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)i->ifa_addr;
        inet_ntop(AF_INET, &in->sin_addr, text, INET6_ADDRSTRLEN);
        return strcmp(text, outward) == 0 ? 3 : 2;
    }
    if (i->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)i->ifa_addr;
        inet_ntop(AF_INET6, &in->sin6_addr, text, INET6_ADDRSTRLEN);
        return IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr) ? 0 : 1;
    }
    return 0;
}

// The machine's own address. False: it has none but the loopback.
static bool find_own(struct vb_verbs_address *address)
{
    char outward[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN];
    struct ifaddrs *all = NULL;
    int best = 0;

    if (!find_outward(outward))
        outward[0] = '\0';
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        int r = rank(i, outward, text);
        if (r <= best)
            continue;
        best = r;
        snprintf(address->text, sizeof address->text, "%s", text);
        address->mtu_bytes = link_mtu(i->ifa_name);
    }
    freeifaddrs(all);
    return best > 0;
}

// The i-th of a list with commas.
static bool find_given(const char *list, uint32_t i, struct vb_verbs_address *address)
{
    while (i-- > 0) {
        list = strchr(list, ',');
        if (!list++)
            return false;
    }
    size_t len = strcspn(list, ",");
    if (len == 0 || len >= sizeof address->text)
        return false;
    memcpy(address->text, list, len);
    address->text[len] = '\0';
    return true;
}

bool vb_verbs_address(uint32_t i, struct vb_verbs_address *address)
{
    const char *given = getenv("VERBENA_ADDRESS");

    *address = (struct vb_verbs_address){.mtu_bytes = LOOPBACK_MTU};
    if (given && *given)
        return find_given(given, i, address);
    if (i == 0 && find_own(address))
        return true;
    if (i > LOOPBACK_ADDRESSES)
        return false;
    snprintf(address->text, sizeof address->text, "127.0.0.%u", i ? i : 1);
    return true;
}

// Of the machine's own link even where a process is on another address, so that two processes on a
// machine say the same.
static uint32_t path_mtu(void)
{
    struct vb_verbs_address own = {.mtu_bytes = LOOPBACK_MTU};
    const char *given = getenv("VERBENA_ADDRESS");
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN];

    if (!given || !*given)
        return find_own(&own) ? own.mtu_bytes : LOOPBACK_MTU;
    if (!find_given(given, 0, &own) || getifaddrs(&all) != 0)
        return LOOPBACK_MTU;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (rank(i, "", text) && strcmp(text, own.text) == 0)
            own.mtu_bytes = link_mtu(i->ifa_name);
    freeifaddrs(all);
    return own.mtu_bytes;
}

enum ibv_mtu vb_verbs_active_mtu(void)
{
    uint32_t room = path_mtu() - HEADERS_BYTES;
    int mtu = IBV_MTU_4096;

    while (mtu > IBV_MTU_256 && 128u << mtu > room)
        mtu--;
    return (enum ibv_mtu)mtu;
}

// ---- the link

static bool has_address(const struct ifaddrs *i, const uint8_t gid[16], bool is_v4)
{
    const struct sockaddr_in *v4 = (const void *)i->ifa_addr;
    const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;

    if (!i->ifa_addr)
        return false;
    if (is_v4 && gid[12] == 127) // it has all of them
        return i->ifa_flags & IFF_LOOPBACK;
    if (i->ifa_addr->sa_family == AF_INET)
        return is_v4 && memcmp(&v4->sin_addr, gid + 12, 4) == 0;
    return i->ifa_addr->sa_family == AF_INET6 && !is_v4 && memcmp(&v6->sin6_addr, gid, 16) == 0;
}

static uint32_t speed_of(const char *interface)
{
    struct ethtool_cmd command = {.cmd = ETHTOOL_GSET};
    struct ifreq request = {.ifr_data = (void *)&command};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    bool known = fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0;
    uint32_t mbps = ethtool_cmd_speed(&command);
    if (fd >= 0)
        close(fd);
    return known && mbps != (uint32_t)SPEED_UNKNOWN && mbps != UINT16_MAX ? mbps : 0;
}

struct vb_verbs_link vb_verbs_link(const uint8_t gid[16])
{
    static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
    bool is_v4 = memcmp(gid, v4, sizeof v4) == 0;
    struct vb_verbs_link link = {0};
    struct ifaddrs *all;

    if (getifaddrs(&all) != 0)
        return link;
    for (const struct ifaddrs *i = all; i && !link.index; i = i->ifa_next) {
        if (!has_address(i, gid, is_v4))
            continue;
        link = (struct vb_verbs_link){.index = if_nametoindex(i->ifa_name),
                                      .up = i->ifa_flags & IFF_UP && i->ifa_flags & IFF_RUNNING,
                                      .mbps = speed_of(i->ifa_name)};
    }
    freeifaddrs(all);
    return link;
}

// FNV-1a of the machine's name for itself.
uint64_t vb_verbs_guid(void)
{
    char name[256] = "verbena";
    uint64_t hash = 0xcbf29ce484222325;
    FILE *file = fopen("/etc/machine-id", "re");

    if (!file || !fgets(name, sizeof name, file))
        gethostname(name, sizeof name - 1);
    if (file)
        fclose(file);
    for (const char *c = name; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3;
    // Locally administered, with the two middle bytes of an address made from 48 bits.
    hash = (hash & 0x00ffff0000ffffff) | 0x020000fffe000000;
    return htobe64(hash);
}
