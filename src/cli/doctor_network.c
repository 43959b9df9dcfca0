// SPDX-License-Identifier: Apache-2.0
// What the network gives: sockets and their buffers, addresses for NICs, and who has their port.
#include "cli/doctor.h"
#include "port/udp_holder.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ROCE_PORT = 4791,
    BUFFER_GOOD = 1 << 20,                // what sysctl allows; the window then grows to 1 MB
    HEADERS_BYTES = 40 + 8 + 12 + 28 + 4, // as the library reckons
    ADDRESSES_MAX = 16,                   // lines at most
    DATAGRAM_MS = 1000,
};

// ---- sockets

static long read_sysctl(const char *path)
{
    FILE *file = fopen(path, "re");
    long value = -1;

    if (file && fscanf(file, "%ld", &value) != 1)
        value = -1;
    if (file)
        fclose(file);
    return value;
}

static void check_buffer(struct vb_doctor *d, const char *name, const char *path,
                         const char *advice)
{
    long value = read_sysctl(path);

    if (value < 0)
        vb_doctor_say(d, VB_FINE, "buffers", NULL, "%s cannot be seen from here", name);
    else if (value < BUFFER_GOOD)
        vb_doctor_say(d, VB_NOTE, "buffers", advice,
                      "%s is %ld bytes: enough, but fewer packets can be in flight", name, value);
    else
        vb_doctor_say(d, VB_FINE, "buffers", NULL, "%s is %ld bytes", name, value);
}

static void check_offload(struct vb_doctor *d, int fd)
{
    int size = 1024, on = 1;
    bool gso = setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size) == 0;
    bool gro = setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on) == 0;

    if (gso && gro)
        vb_doctor_say(d, VB_FINE, "offload", NULL,
                      "segmented sends and merged receives (GSO, GRO)");
    else
        vb_doctor_say(d, VB_NOTE, "offload", "a kernel of 5.0 or later has both",
                      "%s%s%s missing: small packets cost more", gso ? "" : "GSO",
                      !gso && !gro ? " and " : "", gro ? "" : "GRO");
}

// One datagram to ourselves. False: errno says why.
static bool exchange(int from, int to)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    struct pollfd ready = {.fd = to, .events = POLLIN};
    char byte = 1;

    if (bind(to, (const struct sockaddr *)&at, sizeof at) < 0 ||
        getsockname(to, (struct sockaddr *)&at, &len) < 0 ||
        sendto(from, &byte, 1, 0, (const struct sockaddr *)&at, sizeof at) != 1)
        return false;
    errno = ETIMEDOUT;
    return poll(&ready, 1, DATAGRAM_MS) == 1 && recv(to, &byte, 1, 0) == 1;
}

static void check_sockets(struct vb_doctor *d)
{
    int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int to = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (from < 0 || to < 0)
        vb_doctor_say(d, VB_PROBLEM, "sockets", "allow UDP sockets here",
                      "no UDP socket can be opened: %s", strerror(errno));
    else if (!exchange(from, to))
        vb_doctor_say(d, VB_PROBLEM, "sockets",
                      "ip link set lo up; and let the firewall pass UDP on lo",
                      "a datagram to 127.0.0.1 does not arrive: %s", strerror(errno));
    else
        vb_doctor_say(d, VB_FINE, "sockets", NULL, "UDP works on 127.0.0.1");
    if (from >= 0)
        check_offload(d, from);
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
}

// ---- addresses

static uint32_t mtu_of(const char *interface)
{
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint32_t mtu = 0;

    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0)
        mtu = (uint32_t)request.ifr_mtu;
    if (fd >= 0)
        close(fd);
    return mtu;
}

static uint32_t payload_of(uint32_t mtu)
{
    uint32_t payload = 4096;

    while (payload > 256 && payload + HEADERS_BYTES > mtu)
        payload /= 2;
    return payload;
}

// Whether a NIC could have the address now: 0, or an errno.
static int try_address(const struct sockaddr *at)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own = {.any = {0}};
    bool v6 = at->sa_family == AF_INET6;
    int fd = socket(at->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0)
        return errno;
    if (v6) {
        memcpy(&own.v6, at, sizeof own.v6);
        own.v6.sin6_port = htons(ROCE_PORT);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    } else {
        memcpy(&own.v4, at, sizeof own.v4);
        own.v4.sin_port = htons(ROCE_PORT);
    }
    int error = bind(fd, &own.any, v6 ? sizeof own.v6 : sizeof own.v4) == 0 ? 0 : errno;
    close(fd);
    return error;
}

static bool text_of(const struct ifaddrs *i, char text[INET6_ADDRSTRLEN])
{
    if (!i->ifa_addr)
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        return inet_ntop(AF_INET,
                         &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, text,
                         INET6_ADDRSTRLEN);
    return i->ifa_addr->sa_family == AF_INET6 &&
           inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr,
                     text, INET6_ADDRSTRLEN);
}

static bool is_link_local(const struct ifaddrs *i)
{
    return i->ifa_addr->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
}

static enum udp_holder find_holder(const char *address, char holder[UDP_HOLDER_TEXT])
{
    union udp_address at;

    snprintf(holder, UDP_HOLDER_TEXT, "somebody");
    return vb_udp_address_parse(address, &at, NULL) == 0 ? vb_udp_holder(&at, holder)
                                                         : UDP_HOLDER_UNSEEN;
}

static void say_taken(struct vb_doctor *d, const char *text, const char *interface)
{
    char holder[UDP_HOLDER_TEXT];
    enum udp_holder kind = find_holder(text, holder);

    vb_doctor_say(
        d, VB_NOTE, "address",
        kind == UDP_HOLDER_KERNEL
            ? "rdma link delete, or modprobe -r rdma_rxe, frees it"
            : "NICs of one user share it over udp; over shm and auto, and beside anybody else, a "
              "NIC takes the next free address (--address says which)",
        "%s (%s): UDP port %d is taken by %s", text, interface, ROCE_PORT, holder);
}

// True: a NIC can have it.
static bool check_address(struct vb_doctor *d, const struct ifaddrs *i, const char *text)
{
    uint32_t mtu = mtu_of(i->ifa_name);

    if (!(i->ifa_flags & IFF_UP)) {
        vb_doctor_say(d, VB_NOTE, "address", "ip link set up brings it up", "%s: %s is down", text,
                      i->ifa_name);
        return false;
    }
    int error = try_address(i->ifa_addr);
    if (error == EADDRINUSE) {
        say_taken(d, text, i->ifa_name);
        return false;
    }
    if (error) {
        vb_doctor_say(d, VB_NOTE, "address", NULL, "%s (%s) cannot be used: %s", text, i->ifa_name,
                      strerror(error));
        return false;
    }
    bool small = payload_of(mtu) < 4096;
    vb_doctor_say(d, VB_FINE, "address", NULL,
                  "%s (%s, MTU %u) can be a NIC's; packets of %u bytes%s", text, i->ifa_name, mtu,
                  payload_of(mtu), small ? "; an MTU of 4200 would make it 4096" : "");
    return true;
}

// Any of 127.0.0.0/8 will do for a NIC that finds no better one.
static bool has_loopback_left(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};

    for (uint32_t i = 1; i <= 250; i++) {
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + i);
        if (try_address((const struct sockaddr *)&at) == 0)
            return true;
    }
    return false;
}

static void check_addresses(struct vb_doctor *d)
{
    char text[INET6_ADDRSTRLEN], holder[UDP_HOLDER_TEXT];
    struct ifaddrs *all = NULL;
    uint32_t lines = 0, usable = 0;

    if (getifaddrs(&all) != 0)
        vb_doctor_say(d, VB_NOTE, "address", "name one by --address", "addresses cannot be listed");
    for (const struct ifaddrs *i = all; i && lines < ADDRESSES_MAX; i = i->ifa_next)
        if (text_of(i, text) && !is_link_local(i)) {
            usable += check_address(d, i, text);
            lines++;
        }
    if (all)
        freeifaddrs(all);
    if (usable == 0 && !has_loopback_left()) {
        (void)find_holder("127.0.0.1", holder);
        vb_doctor_say(
            d, VB_PROBLEM, "address",
            "end who has UDP port 4791 on all addresses (rdma_rxe: modprobe -r), bring lo "
            "up, or use --port shm",
            "no address is left for a NIC: %s has port %d", holder, ROCE_PORT);
    }
}

void vb_doctor_network(struct vb_doctor *d)
{
    check_sockets(d);
    check_buffer(d, "net.core.rmem_max", "/proc/sys/net/core/rmem_max",
                 "as root: sysctl -w net.core.rmem_max=4194304");
    check_buffer(d, "net.core.wmem_max", "/proc/sys/net/core/wmem_max",
                 "as root: sysctl -w net.core.wmem_max=4194304");
    check_addresses(d);
}
