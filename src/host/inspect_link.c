// SPDX-License-Identifier: Apache-2.0
// A NIC's own line for who inspects it: its link, and whose it is.
#include "host/host.h"
#include "host/inspect.h"
#include "host/inspect_state.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MTU_MAX = 4096,
    MTU_MIN = 256,
    HEADERS_BYTES = 40 + 8 + 12 + 28 + 4, // IPv6, UDP, BTH, the longest extension, ICRC
    COMM_BYTES = 64,
};

struct link {
    char name[IF_NAMESIZE];
    bool up;
    uint32_t mtu_bytes; // of the interface; 0: unknown
};

static void take_ip(const struct sockaddr *at, uint8_t ip[16])
{
    memset(ip, 0, 16);
    if (at && at->sa_family == AF_INET) {
        ip[10] = ip[11] = 0xff;
        memcpy(ip + 12, &((const struct sockaddr_in *)(const void *)at)->sin_addr, 4);
    } else if (at && at->sa_family == AF_INET6) {
        memcpy(ip, &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr, 16);
    }
}

// The loopback interface has all of 127.0.0.0/8.
static bool has(const struct ifaddrs *i, const struct vb_ip *local)
{
    uint8_t ip[16];

    take_ip(i->ifa_addr, ip);
    bool loopback = vb_ip_is_v4(local) && local->b[12] == 127;
    return memcmp(ip, local->b, loopback ? 13 : 16) == 0;
}

static uint32_t mtu_of(const char *name)
{
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint32_t mtu = 0;

    if (fd < 0)
        return 0;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0)
        mtu = (uint32_t)request.ifr_mtu;
    close(fd);
    return mtu;
}

static struct link find_link(const struct vb_ip *local)
{
    struct link link = {.name = "-"};
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) != 0)
        return link;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!has(i, local))
            continue;
        snprintf(link.name, sizeof link.name, "%s", i->ifa_name);
        link.up = (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
        link.mtu_bytes = mtu_of(i->ifa_name);
        break;
    }
    freeifaddrs(all);
    return link;
}

// The largest payload of a packet that fits.
static uint32_t payload_of(uint32_t mtu_bytes)
{
    uint32_t payload = MTU_MAX;

    while (payload > MTU_MIN && mtu_bytes && payload + HEADERS_BYTES > mtu_bytes)
        payload /= 2;
    return payload;
}

static void read_comm(char comm[COMM_BYTES])
{
    FILE *file = fopen("/proc/self/comm", "re");

    comm[0] = '\0';
    if (!file)
        return;
    if (fgets(comm, COMM_BYTES, file))
        comm[strcspn(comm, "\n")] = '\0';
    fclose(file);
}

// Addresses that it is on besides the first.
static void put_further(FILE *out, const struct vb_nic *nic)
{
    char text[INET6_ADDRSTRLEN];
    struct vb_ip ip;

    for (uint32_t n = 1; vb_nic_address(nic, n, ip.b) == 0; n++) {
        bool v4 = vb_ip_is_v4(&ip);
        fprintf(out, "%s%s", n == 1 ? " also " : ",",
                inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip.b + 12 : ip.b, text, sizeof text));
    }
}

void vb_inspect_put_nic(FILE *out, struct vb_nic *nic)
{
    const struct vb_inspect *inspect = nic->inspect;
    char comm[COMM_BYTES], text[INET6_ADDRSTRLEN];
    struct vb_ip local;

    vb_lane_lock(&nic->lane[0]);
    local = nic->lane[0].port->local;
    bool faulty = nic->faulty;
    pthread_mutex_unlock(&nic->lane[0].lock);
    struct link link = find_link(&local);
    bool shm = strcmp(inspect->port, "shm") == 0;
    bool v4 = vb_ip_is_v4(&local);
    read_comm(comm);
    fprintf(out, "nic ifname verbena%u port 1 state %s physical_state %s netdev ",
            inspect->place.number, link.up || shm ? "ACTIVE" : "DOWN",
            link.up || shm ? "LINK_UP" : "DISABLED");
    vb_inspect_put_word(out, link.name);
    fprintf(out, " addr %s",
            inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? local.b + 12 : local.b, text, sizeof text));
    put_further(out, nic);
    if (nic->hull_name) {
        fputs(" hull ", out);
        vb_inspect_put_word(out, nic->hull_name);
    }
    fprintf(out, " type %s mtu %u units %u faults %s pid %ld comm ", inspect->port,
            shm ? MTU_MAX : payload_of(link.mtu_bytes), nic->lanes, faulty ? "on" : "off",
            (long)getpid());
    vb_inspect_put_word(out, comm);
    fputc('\n', out);
}
