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
    IP_UDP_BYTES = 28
};

static bool is_loopback(uint32_t ip)
{
    return ntohl(ip) >> 24 == 127;
}

static int take_one(const char *text, size_t len, char out[INET_ADDRSTRLEN], char *why)
{
    struct in_addr ip;
    if (len >= INET_ADDRSTRLEN)
        len = INET_ADDRSTRLEN - 1;
    memcpy(out, text, len);
    out[len] = '\0';
    if (inet_pton(AF_INET, out, &ip) != 1)
        return vb_perf_fail(why, "--local: '%s' is not an IPv4 address; give one such as 127.0.0.1",
                            out);
    return 0;
}

int vb_perf_addresses_parse(const char *text, bool both, struct vb_perf_addresses *out, char *why)
{
    struct in_addr ip;
    memset(out, 0, sizeof *out);
    if (text == NULL)
        return 0;
    size_t len = strcspn(text, ",");
    if (take_one(text, len, out->text[0], why) < 0)
        return -1;
    if (text[len] == ',')
        return take_one(text + len + 1, strlen(text + len + 1), out->text[1], why);
    if (!both)
        return 0;
    (void)inet_pton(AF_INET, out->text[0], &ip);
    if (!is_loopback(ip.s_addr))
        return vb_perf_fail(why, "--local: two NICs need two addresses; give them as %s,OTHER",
                            out->text[0]);
    ip.s_addr = htonl(ntohl(ip.s_addr) + 1);
    (void)inet_ntop(AF_INET, &ip, out->text[1], INET_ADDRSTRLEN);
    return 0;
}

int vb_perf_open_nic(const char *wanted, const char *usual, const struct vb_nic_opts *opts,
                     struct vb_nic **nic, char *why)
{
    char error_text[VB_ERROR_TEXT] = "";
    char address[INET_ADDRSTRLEN];
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
        if (fixed || error != -EADDRINUSE || !is_loopback(ip.s_addr) || try == TRIES)
            return vb_perf_fail(why, "%s", *error_text ? error_text : strerror(-error));
        uint64_t draw = vb_prng_next(&prng);
        snprintf(address, sizeof address, "127.%u.%u.%u", (unsigned)(100 + draw % 100),
                 (unsigned)(draw >> 8 & 255), (unsigned)(1 + (draw >> 16) % 254));
    }
}

uint32_t vb_perf_nic_ip(const struct vb_nic *nic)
{
    uint8_t gid[16];
    uint32_t ip;
    vb_nic_gid(nic, gid);
    memcpy(&ip, gid + 12, sizeof ip);
    return ip;
}

uint32_t vb_perf_path_mtu(uint32_t from_ip, uint32_t to_ip)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = from_ip};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = to_ip, .sin_port = htons(VB_ROCE_UDP_PORT)};
    int bytes = 0;
    socklen_t len = sizeof bytes;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&from, sizeof from) < 0 ||
        connect(fd, (const struct sockaddr *)&to, sizeof to) < 0 ||
        getsockopt(fd, IPPROTO_IP, IP_MTU, &bytes, &len) < 0)
        bytes = 0;
    if (fd >= 0)
        close(fd);
    uint32_t mtu = VB_MTU_MAX;
    while (mtu > VB_MTU_MIN &&
           (int)(mtu + IP_UDP_BYTES + VB_PAYLOAD_HEADERS_MAX + VB_ICRC_BYTES) > bytes)
        mtu /= 2;
    return mtu;
}
