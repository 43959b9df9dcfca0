// SPDX-License-Identifier: Apache-2.0
// The address of a udp port: read from text, and what is wrong with it said in words.
#ifndef VB_PORT_UDP_ADDRESS_H
#define VB_PORT_UDP_ADDRESS_H

#include "nic/frame.h"

#include <netinet/in.h>
#include <sys/socket.h>

union udp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

// Writes one line to error_text (VB_ERROR_TEXT bytes, or NULL). Returns -error.
__attribute__((format(printf, 3, 4))) int vb_udp_fail(char *error_text, int error,
                                                      const char *format, ...);

// An IPv4 or IPv6 literal, a link-local one with its interface, becomes RoCE's port at that
// address. 0, -EINVAL or -ENODEV.
int vb_udp_address_parse(const char *text, union udp_address *address, char *error_text);

// Says why binding to the address failed with `error`. Returns -error.
int vb_udp_address_refused(const char *text, const union udp_address *address, int error,
                           char *error_text);

socklen_t vb_udp_address_bytes(const union udp_address *address);
struct vb_ip vb_udp_address_ip(const union udp_address *address);

#endif
