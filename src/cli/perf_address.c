// SPDX-License-Identifier: Apache-2.0
// Addresses for the NICs of a measurement.
#include "cli/perf_address.h"

#include "base/prng.h"
#include "port/clock.h"
#include "wire/roce.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TRIES = 16,
    IPV4_UDP_BYTES = 28,
    IPV6_UDP_BYTES = 48,
};

static bool is_loopback(struct in_addr ip)
{
    return ntohl(ip.s_addr) >> 24 == 127;
}

// AF_INET, AF_INET6 or, for no address at all, AF_UNSPEC. A %interface is judged by the NIC.
static int family_of(const char *text)
{
    struct in6_addr ip;
    char plain[VB_PERF_ADDRESS_TEXT];
    if (inet_pton(AF_INET, text, &ip) == 1)
        return AF_INET;
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(text, "%"), text);
    return inet_pton(AF_INET6, plain, &ip) == 1 ? AF_INET6 : AF_UNSPEC;
}

static int take_one(const char *text, size_t len, char out[VB_PERF_ADDRESS_TEXT], char *why)
{
    snprintf(out, VB_PERF_ADDRESS_TEXT, "%.*s", (int)(len < 1000 ? len : 1000), text);
    if (len >= VB_PERF_ADDRESS_TEXT || family_of(out) == AF_UNSPEC)
        return vb_perf_fail(
            why, "--local: '%s' is not an IP address; give one such as 127.0.0.1 or fd00::1", out);
    return 0;
}

// The server's address when the user gave only the client's.
static int take_next(struct vb_perf_addresses *out, char *why)
{
    struct in_addr ip;
    if (family_of(out->text[0]) == AF_INET6)
        return vb_perf_fail(why,
                            "--local: two NICs need two addresses, and IPv6 has one of loopback; "
                            "give two of this machine, as in fd00::1,fd00::2");
    (void)inet_pton(AF_INET, out->text[0], &ip);
    if (!is_loopback(ip))
        return vb_perf_fail(why, "--local: two NICs need two addresses; give them as %s,OTHER",
                            out->text[0]);
    ip.s_addr = htonl(ntohl(ip.s_addr) + 1);
    (void)inet_ntop(AF_INET, &ip, out->text[1], sizeof out->text[1]);
    return 0;
}

int vb_perf_addresses_parse(const char *text, bool both, struct vb_perf_addresses *out, char *why)
{
    memset(out, 0, sizeof *out);
    if (text == NULL)
        return 0;
    size_t len = strcspn(text, ",");
    if (take_one(text, len, out->text[0], why) < 0)
        return -1;
    if (text[len] != ',')
        return both ? take_next(out, why) : 0;
    if (take_one(text + len + 1, strlen(text + len + 1), out->text[1], why) < 0)
        return -1;
    if (family_of(out->text[0]) != family_of(out->text[1]))
        return vb_perf_fail(why,
                            "--local: %s and %s do not reach each other; give two IPv4 or two "
                            "IPv6 addresses",
                            out->text[0], out->text[1]);
    if (strcmp(out->text[0], out->text[1]) == 0)
        return vb_perf_fail(why, "--local: two NICs need two addresses, not %s twice",
                            out->text[0]);
    return 0;
}

int vb_perf_open_nic(const char *wanted, const char *usual, const struct vb_nic_opts *opts,
                     struct vb_nic **nic, char *why)
{
    char error_text[VB_ERROR_TEXT] = "";
    char address[VB_PERF_ADDRESS_TEXT];
    struct in_addr ip = {0};
    struct vb_nic_opts o = *opts;
    struct vb_prng prng = {.state = vb_clock_ns() ^ (uint64_t)getpid() << 32};
    bool fixed = wanted != NULL && *wanted;
    snprintf(address, sizeof address, "%s", fixed ? wanted : usual);
    (void)inet_pton(AF_INET, address, &ip);
    o.error_text = error_text;
    o.address = address;
    for (unsigned try = 0;; try++) {
        int error = vb_nic_open(&o, nic);
        if (error == 0)
            return 0;
        if (fixed || error != -EADDRINUSE || !is_loopback(ip) || try == TRIES)
            return vb_perf_fail(why, "%s", *error_text ? error_text : strerror(-error));
        uint64_t draw = vb_prng_next(&prng);
        snprintf(address, sizeof address, "127.%u.%u.%u", (unsigned)(100 + draw % 100),
                 (unsigned)(draw >> 8 & 255), (unsigned)(1 + (draw >> 16) % 254));
    }
}

static bool is_ipv4(const uint8_t gid[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid, mapped, sizeof mapped) == 0;
}

socklen_t vb_perf_sockaddr(const uint8_t gid[16], uint16_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memset(out, 0, sizeof *out);
    if (is_ipv4(gid)) {
        memcpy(&v4.sin_addr, gid + 12, sizeof v4.sin_addr);
        memcpy(out, &v4, sizeof v4);
        return sizeof v4;
    }
    memcpy(&v6.sin6_addr, gid, sizeof v6.sin6_addr);
    memcpy(out, &v6, sizeof v6);
    return sizeof v6;
}

void vb_perf_gid_text(const uint8_t gid[16], char text[INET6_ADDRSTRLEN])
{
    if (is_ipv4(gid))
        (void)inet_ntop(AF_INET, gid + 12, text, INET6_ADDRSTRLEN);
    else
        (void)inet_ntop(AF_INET6, gid, text, INET6_ADDRSTRLEN);
}

// Bytes of an IP packet that the path takes; 0: unknown.
static uint32_t path_bytes(const uint8_t from_gid[16], const uint8_t to_gid[16])
{
    struct sockaddr_storage from, to;
    socklen_t from_len = vb_perf_sockaddr(from_gid, 0, &from);
    socklen_t to_len = vb_perf_sockaddr(to_gid, VB_ROCE_UDP_PORT, &to);
    int bytes = 0;
    socklen_t len = sizeof bytes;
    bool v4 = to.ss_family == AF_INET;
    int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&from, from_len) < 0 ||
        connect(fd, (const struct sockaddr *)&to, to_len) < 0 ||
        getsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &bytes, &len) < 0)
        bytes = 0;
    if (fd >= 0)
        close(fd);
    return bytes > 0 ? (uint32_t)bytes : 0;
}

uint32_t vb_perf_path_mtu(const uint8_t from[16], const uint8_t to[16])
{
    uint32_t headers = is_ipv4(to) ? IPV4_UDP_BYTES : IPV6_UDP_BYTES;
    uint32_t bytes = path_bytes(from, to);
    uint32_t mtu = VB_MTU_MAX;
    while (mtu > VB_MTU_MIN && mtu + headers + VB_PAYLOAD_HEADERS_MAX + VB_ICRC_BYTES > bytes)
        mtu /= 2;
    return mtu;
}
