// SPDX-License-Identifier: Apache-2.0
// The address of a udp port: literals of both families, and one clear line for each mistake.
#include "port/udp_address.h"

#include "port/udp_holder.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int vb_udp_fail(char *error_text, int error, const char *format, ...)
{
    if (error_text != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(error_text, VB_ERROR_TEXT, format, args);
        va_end(args);
    }
    return -error;
}

socklen_t vb_udp_address_bytes(const union udp_address *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
}

struct vb_ip vb_udp_address_ip(const union udp_address *address)
{
    struct vb_ip ip = {.b = {[10] = 0xff, [11] = 0xff}};
    if (address->any.sa_family == AF_INET6)
        memcpy(ip.b, &address->v6.sin6_addr, 16);
    else
        memcpy(ip.b + 12, &address->v4.sin_addr, 4);
    return ip;
}

static int fail_no_host(const char *text, char *error_text)
{
    return vb_udp_fail(error_text, EINVAL,
                       "%.64s does not name one machine; a NIC needs one address of this one",
                       text);
}

static int take_v4(const char *text, const void *ip, union udp_address *address, char *error_text)
{
    *address =
        (union udp_address){.v4 = {.sin_family = AF_INET, .sin_port = htons(VB_ROCE_UDP_PORT)}};
    memcpy(&address->v4.sin_addr, ip, 4);
    uint32_t host = ntohl(address->v4.sin_addr.s_addr);
    return host == INADDR_ANY || host >> 28 >= 14 ? fail_no_host(text, error_text) : 0;
}

// An interface by name or, as the system also writes it, by number. 0: there is none.
static uint32_t find_interface(const char *scope)
{
    char name[IF_NAMESIZE];
    char *end;
    uint32_t index = if_nametoindex(scope);
    if (index != 0 || *scope < '0' || *scope > '9')
        return index;
    unsigned long number = strtoul(scope, &end, 10);
    if (*end != '\0' || number > INT32_MAX || if_indextoname((unsigned)number, name) == NULL)
        return 0;
    return (uint32_t)number;
}

// Link-local addresses exist once per interface: only with one they are an address, and only they
// have one. `scope` is NULL without a percent sign.
static int take_scope(const char *text, const char *scope, struct sockaddr_in6 *v6,
                      char *error_text)
{
    bool is_local = IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
    if (scope == NULL) {
        if (is_local)
            return vb_udp_fail(error_text, EINVAL,
                               "%s is link-local and needs its interface, as in %s%%eth0", text,
                               text);
        return 0;
    }
    if (!is_local)
        return vb_udp_fail(error_text, EINVAL,
                           "%.64s is not link-local (fe80::/10); leave out the interface, %%%.16s",
                           text, scope);
    v6->sin6_scope_id = find_interface(scope);
    if (v6->sin6_scope_id == 0)
        return vb_udp_fail(error_text, ENODEV,
                           "%.64s: no interface of this machine is called '%.16s'; `ip link` lists "
                           "those that are",
                           text, scope);
    return 0;
}

int vb_udp_address_parse(const char *text, union udp_address *address, char *error_text)
{
    struct in6_addr ip;
    if (inet_pton(AF_INET, text, &ip) == 1)
        return take_v4(text, &ip, address, error_text);
    const char *percent = strchr(text, '%');
    size_t len = percent ? (size_t)(percent - text) : strlen(text);
    char host[INET6_ADDRSTRLEN] = "";
    if (len < sizeof host)
        memcpy(host, text, len);
    if (inet_pton(AF_INET6, host, &ip) != 1)
        return vb_udp_fail(error_text, EINVAL,
                           "'%.64s' is not an IP address; one looks like 127.0.0.1 or fd00::1",
                           text);
    if (IN6_IS_ADDR_V4MAPPED(&ip) && percent == NULL)
        return take_v4(text, ip.s6_addr + 12, address, error_text);
    *address = (union udp_address){
        .v6 = {.sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_UDP_PORT), .sin6_addr = ip}};
    if (IN6_IS_ADDR_UNSPECIFIED(&ip) || IN6_IS_ADDR_MULTICAST(&ip))
        return fail_no_host(text, error_text);
    return take_scope(text, percent ? percent + 1 : NULL, &address->v6, error_text);
}

// The whole of 127.0.0.0/8 belongs to every machine: there is always another one to take.
static int fail_in_use(const char *text, const union udp_address *address, char *error_text)
{
    char other[64] = "another address of this machine", holder[UDP_HOLDER_TEXT];
    uint32_t host = address->any.sa_family == AF_INET ? ntohl(address->v4.sin_addr.s_addr) : 0;
    if (host >> 24 == 127 && (host & 0xffffff) < 0xfffffe) {
        struct in_addr next = {.s_addr = htonl(host + 1)};
        char next_text[INET_ADDRSTRLEN];
        snprintf(other, sizeof other, "another, for example %s",
                 inet_ntop(AF_INET, &next, next_text, sizeof next_text));
    }
    if (error_text != NULL)
        vb_udp_holder(address, holder);
    return vb_udp_fail(error_text, EADDRINUSE, "%s port %d is in use by %s; give this one %s", text,
                       VB_ROCE_UDP_PORT, error_text ? holder : "", other);
}

int vb_udp_address_refused(const char *text, const union udp_address *address, int error,
                           char *error_text)
{
    if (error == EADDRINUSE)
        return fail_in_use(text, address, error_text);
    // The system does not lend an IPv6 address while it still asks the network for its like.
    if (error == EADDRNOTAVAIL)
        return vb_udp_fail(error_text, error,
                           "%s is not an address of this machine; `ip address` lists those that "
                           "are%s",
                           text,
                           address->any.sa_family == AF_INET6 ? " (not the tentative ones)" : "");
    return vb_udp_fail(error_text, error, "%s port %d: %s", text, VB_ROCE_UDP_PORT,
                       strerror(error));
}
