// SPDX-License-Identifier: Apache-2.0
// Addresses for the NICs of a measurement, and what fits the path between them. An address is the
// 16 bytes of a GID: IPv6, or IPv4 as ::ffff:a.b.c.d.
#ifndef VB_CLI_PERF_ADDRESS_H
#define VB_CLI_PERF_ADDRESS_H

#include "cli/perf.h"
#include "verbena/nic.h"

#include <net/if.h>
#include <netinet/in.h>

enum {
    VB_PERF_ADDRESS_TEXT = INET6_ADDRSTRLEN + 1 + IF_NAMESIZE // with %interface
};

// What the user gave as --local: one address, or two with a comma between them.
struct vb_perf_addresses {
    char text[2][VB_PERF_ADDRESS_TEXT]; // the client's, the server's; empty: any that is free
};

// -1: see `why`. With one IPv4 loopback address the server takes the next one.
int vb_perf_addresses_parse(const char *text, bool both, struct vb_perf_addresses *out, char *why);
// Opens a NIC at `wanted`; if that is NULL or empty, at `usual` or, when it is taken and on IPv4's
// loopback, at another loopback address. -1: see `why`.
int vb_perf_open_nic(const char *wanted, const char *usual, const struct vb_nic_opts *opts,
                     struct vb_nic **nic, char *why);
// The socket address of a GID and a port, or the empty one. Returns its length.
socklen_t vb_perf_sockaddr(const uint8_t gid[16], uint16_t port, struct sockaddr_storage *out);
// Writes an address as people do: IPv4 with dots.
void vb_perf_gid_text(const uint8_t gid[16], char text[INET6_ADDRSTRLEN]);
// The longest MTU for queue pairs whose packets fit the path between two addresses.
uint32_t vb_perf_path_mtu(const uint8_t from[16], const uint8_t to[16]);

#endif
