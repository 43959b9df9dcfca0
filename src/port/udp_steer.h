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
    UDP_STEER_SERVICES = 64, // that a program knows; the others' frames are sent on
};

// A service of rdma_cm (the lower half of its id), and the socket that gets requests for it.
struct udp_steer_service {
    uint32_t id;
    uint32_t index;
};

// Writes the program for members in the order of their slots. What is nobody's goes to socket
// `rest`, a probe to the one it names. Returns the number of instructions; 0: there is no room.
uint32_t vb_udp_steer_build(struct sock_filter code[UDP_STEER_CODE],
                            const struct registry_member *members, uint32_t count, uint32_t rest);

// The same, with messages for queue pair 1 steered as well: by service, or by the receiver's id to
// the member that manages and has its prefix.
uint32_t vb_udp_steer_build_managed(struct sock_filter code[UDP_STEER_CODE],
                                    const struct registry_member *members, uint32_t count,
                                    uint32_t rest, const struct udp_steer_service *services,
                                    uint32_t service_count);

// The sockets at `gone` were closed: the system has put the last one into each hole, in some order
// of which the likely one is assumed. `count`: how many there were.
void vb_udp_steer_close(struct registry_member *members, uint32_t member_count, uint32_t *gone,
                        uint32_t gone_count, uint32_t count);

#endif
