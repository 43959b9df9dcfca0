// SPDX-License-Identifier: Apache-2.0
// Addresses for the NICs of a measurement, and what fits the path between them.
#ifndef VB_CLI_PERF_ADDRESS_H
#define VB_CLI_PERF_ADDRESS_H

#include "cli/perf.h"
#include "verbena/nic.h"

#include <netinet/in.h>

// What the user gave as --local: one address, or two with a comma between them.
struct vb_perf_addresses {
    char text[2][INET_ADDRSTRLEN]; // the client's, the server's; empty: any that is free
};

// -1: see `why`. With one loopback address the server takes the next one.
int vb_perf_addresses_parse(const char *text, bool both, struct vb_perf_addresses *out, char *why);
// Opens a NIC at `wanted`; if that is NULL or empty, at `usual` or, when it is taken and on
// loopback, at another loopback address. -1: see `why`.
int vb_perf_open_nic(const char *wanted, const char *usual, const struct vb_nic_opts *opts,
                     struct vb_nic **nic, char *why);
uint32_t vb_perf_nic_ip(const struct vb_nic *nic); // network order
// The longest MTU for queue pairs whose packets fit the path between two addresses.
uint32_t vb_perf_path_mtu(uint32_t from_ip, uint32_t to_ip);

#endif
