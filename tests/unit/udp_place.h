// SPDX-License-Identifier: Apache-2.0
// Three udp ports on one address, and another host that sends to them.
#ifndef VB_TESTS_UDP_PLACE_H
#define VB_TESTS_UDP_PLACE_H

#include "port/udp_state.h"
#include "udp_kit.h"

#include <stdint.h>

enum {
    UDP_PLACE_PORTS = 3
};

struct udp_place {
    struct vb_port *port[UDP_PLACE_PORTS]; // NULL: closed
    struct udp_forger from;                // the other host
    uint32_t frame_bytes;                  // of each frame that comes
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
};

// Each with that many queue pair numbers; 0: the default.
void udp_place_open(struct udp_place *p, int family, uint32_t frame_bytes, uint32_t numbers);
void udp_place_close(struct udp_place *p);
void udp_place_close_port(struct udp_place *p, unsigned i);

uint32_t udp_place_slot(const struct udp_place *p, unsigned i);
struct udp_share *udp_place_share(const struct udp_place *p, unsigned i);

// Receives on all of them for a while: counts what comes, and checks that it is theirs.
void udp_place_receive(struct udp_place *p, uint32_t got[UDP_PLACE_PORTS]);
void udp_place_expect(struct udp_place *p, uint32_t a, uint32_t b, uint32_t c);
// By all of them.
uint64_t udp_place_forwarded(const struct udp_place *p);

#endif
