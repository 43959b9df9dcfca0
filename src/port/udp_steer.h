// SPDX-License-Identifier: Apache-2.0
// Which socket of an address gets a frame: a classic BPF program over the range that the
// destination queue pair is in, and the order of sockets behind it.
#ifndef VB_PORT_UDP_STEER_H
#define VB_PORT_UDP_STEER_H

#include "port/registry.h"

#include <linux/filter.h>

enum {
    UDP_STEER_CODE = 4096,   // instructions that the system takes at most
    UDP_PROBE_OPCODE = 0xff, // vendors' own; no queue pair ever hears of it
    UDP_PROBE_INDEX_AT = 8,  // in its bytes: the socket it is for
};

// Writes the program for members in the order of their slots. What is nobody's goes to socket
// `rest`, a probe to the one it names. Returns the number of instructions; 0: there is no room.
uint32_t vb_udp_steer_build(struct sock_filter code[UDP_STEER_CODE],
                            const struct registry_member *members, uint32_t count, uint32_t rest);

// The sockets at `gone` were closed: the system has put the last one into each hole, in some order
// of which the likely one is assumed. `count`: how many there were.
void vb_udp_steer_close(struct registry_member *members, uint32_t member_count, uint32_t *gone,
                        uint32_t gone_count, uint32_t count);

#endif
