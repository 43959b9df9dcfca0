// SPDX-License-Identifier: Apache-2.0
// The control channel to another machine: TCP over IPv4 or IPv6.
#ifndef VB_CLI_PERF_TCP_H
#define VB_CLI_PERF_TCP_H

#include "cli/perf.h"

#include <netinet/in.h>

// Return a descriptor; -1: see `why`.
int vb_perf_dial(const char *peer, uint16_t port, char *why);
int vb_perf_open_listener(const char *local, uint16_t port, char *why); // empty: any address
// The next client, or -1.
int vb_perf_accept(int listener, char *why);
// The address of this machine that a connection uses.
void vb_perf_own_address(int fd, char text[INET6_ADDRSTRLEN]);

#endif
