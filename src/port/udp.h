// SPDX-License-Identifier: Apache-2.0
// The udp port: RoCE v2 through a plain, unprivileged UDP socket.
#ifndef VB_PORT_UDP_H
#define VB_PORT_UDP_H

#include "port/port.h"

struct vb_udp_opts {
    const char *address; // IPv4 or IPv6 literal; link-local with its interface: fe80::1%eth0
    // Asked for, of each of the socket's buffers, as any user may; 0: much, if need be by
    // privilege.
    uint32_t socket_bytes;
    char *error_text; // VB_ERROR_TEXT bytes, or NULL
    bool ecn; // sends as capable of ECN, and tells which frames came marked: both cost a little
    // Other NICs of the user may be on the address, each with a range of queue pair numbers of its
    // own (qpn_base and qpn_count of the port). Without: the address is this one's alone.
    bool shared;
    uint32_t qp_numbers; // asked for; 0: 2^15
    // The first port of a group on another address, whose numbers these ports have, too; they are
    // closed before that group. NULL: none.
    const struct vb_port *beside;
};

// 0 or a negative errno; error_text then says in words what was wrong.
int vb_udp_open(const struct vb_udp_opts *opts, struct vb_port **port);

// Opens `count` ports (a power of two) on the one address. The system gives frames to the port that
// the lowest bits of their destination queue pair name; of frames that were sent as one segmented
// datagram all go where the first does.
int vb_udp_open_group(const struct vb_udp_opts *opts, struct vb_port **ports, uint32_t count);

// Port and side are of one NIC's unit, on different addresses: what the side receives comes out of
// the port from now on, what is sent from the side's address leaves by it, and it closes with the
// port. -ENOSPC: it has three already; -EEXIST: it is on that address.
int vb_udp_add_side(struct vb_port *port, struct vb_port *side);

// From now on frames say what their IP headers said, which datagrams bring to the application. That
// costs each receive a little. 0 or a negative errno: they do not.
int vb_udp_tell_headers(struct vb_port *port);

// Of frames that came another way passes those on that are for other NICs at the address. Returns
// how many are left.
uint32_t vb_udp_sift(struct vb_port *port, struct vb_rx_frame *frames, uint32_t count);

#endif
