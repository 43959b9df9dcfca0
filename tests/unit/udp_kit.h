// SPDX-License-Identifier: Apache-2.0
// What tests of the udp port share: hosts of both families, frames that tell their own bytes, and
// a network of the process alone.
#ifndef VB_TESTS_UDP_KIT_H
#define VB_TESTS_UDP_KIT_H

#include "port/port.h"
#include "port/udp.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    UDP_KIT_HOSTS = 3,
};

// A test case that is told its family, &udp_kit_v4 or &udp_kit_v6.
#define UDP_KIT_TEST(test, family_state)                      \
    {                                                         \
        .name = #test " " #family_state, .test_func = test,   \
        .initial_state = (void *)(uintptr_t) & (family_state) \
    }
extern const int udp_kit_v4, udp_kit_v6;
static inline int udp_kit_family(void **state)
{
    return *(const int *)*state;
}

// Moves the process into a network of its own whose loopback has the hosts' IPv6 addresses.
// Returns NULL, or why it cannot be.
const char *udp_kit_enter_net(void);
// The same for main() between its tests over IPv4 and those over IPv6. False: they are skipped, and
// *failed counts that if it is a failure.
bool udp_kit_enter_v6(int *failed);
// Of loopback, in that network.
void udp_kit_add_address(const char *ipv6);
void udp_kit_set_mtu(int mtu_bytes);

// IPv4: addresses of this process alone, so that tests can run beside each other.
const char *udp_kit_address(int family, unsigned host, char text[INET6_ADDRSTRLEN]);
// Fails the test if the port cannot be opened. The address is the host's.
struct vb_port *udp_kit_open_with(int family, unsigned host, struct vb_udp_opts opts);
struct vb_port *udp_kit_open_at(const char *address);
struct vb_port *udp_kit_open(int family, unsigned host);

struct vb_txq *udp_kit_make_queue(void);
void udp_kit_free_queue(struct vb_txq *q);
// Appends a frame whose bytes follow from `tag`. False: no room.
bool udp_kit_append(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag);
// The same frame, but body_len of its bytes after the first `head` go to `body` and are lent.
bool udp_kit_append_lent(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag,
                         uint32_t head, uint8_t *body, uint32_t body_len);
void udp_kit_send(struct vb_port *port, struct vb_txq *q);

// Receives once; waits for something to come if `wanted`.
uint32_t udp_kit_receive(struct vb_port *port, struct vb_rx_frame *frames, bool wanted);
void udp_kit_assert_frame(const struct vb_rx_frame *f, const struct vb_ip *src, uint32_t len,
                          uint32_t tag);

// A plain socket at some address that can send what a port never would.
struct udp_forger {
    int fd;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } to;
    socklen_t to_bytes;
    struct vb_path path;
};
// src_port 0: any.
struct udp_forger udp_kit_make_forger_at(const char *address, uint16_t src_port,
                                         const struct vb_port *target);
struct udp_forger udp_kit_make_forger(const struct vb_port *target); // at host 0
// Sends a frame sealed for `id`, with `flip` exclusive-ored into one of its bytes.
void udp_kit_forge(struct udp_forger *f, uint16_t id, uint32_t len, uint8_t flip);

#endif
