// SPDX-License-Identifier: Apache-2.0
// What the halves of the udp port share: the socket, what is being sent, what was received.
#ifndef VB_PORT_UDP_STATE_H
#define VB_PORT_UDP_STATE_H

#include "port/port.h"
#include "port/udp_address.h"
#include "port/udp_share.h"
#include "wire/roce.h"

#include <stdalign.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef IPV6_FLOWINFO // which the C library leaves to the kernel's headers
#define IPV6_FLOWINFO 11
#endif

struct udp_steer_service;

enum {
    UDP_TX_MESSAGES = 16,  // datagrams (or segmented runs) handed over by one system call
    UDP_RUN_FRAMES = 64,   // segments the kernel accepts in one send
    UDP_RUN_BYTES = 65000, // below the longest datagram, headers included
    UDP_RX_DATAGRAMS = 8,
    UDP_RX_BYTES = 65536, // room for one datagram, merged or not
    UDP_SOURCES = 256,    // power of two
    UDP_KNOWN = 64,       // power of two
    UDP_ROOM_UNKNOWN = -2,
    UDP_SIDES = REGISTRY_SITES - 1,
    UDP_QPN_MANAGERS = 1, // queue pairs up to this one are the managers'
};

// Room for four control messages (the length of segments or of merged packets; traffic class, hop
// limit and flow label) that hold an int or less, aligned as the system wants it.
union udp_control {
    alignas(struct cmsghdr) uint8_t bytes[4 * CMSG_SPACE(sizeof(int))];
};

struct udp_tx {
    struct mmsghdr msg[UDP_TX_MESSAGES];
    struct iovec iov[2 * VB_TX_FRAMES + UDP_TX_MESSAGES]; // a lent payload splits a message in
                                                          // three
    uint32_t iov_used;
    union udp_address to[UDP_TX_MESSAGES];
    union udp_control control[UDP_TX_MESSAGES];
    uint32_t first[UDP_TX_MESSAGES]; // first frame of each message
    uint32_t end[UDP_TX_MESSAGES];   // one past its last
    bool no_segments;                // the device refused segmented sends
    struct vb_path_attr attr;        // that the socket has (udp_attr.c)
    struct vb_path_attr other;       // of the last messages that had another, and
    uint32_t others;                 // how many in a row
};

// A sender we have heard of, and how it numbers its packets (over IPv6 there is no number).
struct udp_source {
    struct vb_ip ip;
    uint16_t port;          // 0: the slot is free
    uint16_t calm;          // how sure we are that it numbers its packets as plain sockets do
    uint16_t last_id;       // of its last frame
    bool climbing;          // packets that come alone count on: segments of one send, or a counter
    bool flat;              // merged packets all carry the same identification, not 0, 1, 2, …
    const struct vb_ip *to; // where it sends: our address, or a group's
    struct vb_icrc_flow flow;
};

// How to receive. A lone frame is cheapest without control messages, but then frames must not be
// merged; a stream is cheapest merged.
enum udp_rx_mode {
    UDP_RX_LONE,    // merging is off: one datagram, one frame
    UDP_RX_STREAM,  // merging is on
    UDP_RX_CALMING, // merging is off, but merged datagrams may still be queued
};

struct udp_rx {
    enum udp_rx_mode mode;
    uint32_t streak; // lone: datagrams since the last empty poll; stream: lone frames in a row
    struct mmsghdr msg[UDP_RX_DATAGRAMS];
    struct iovec iov[UDP_RX_DATAGRAMS];
    union udp_address from[UDP_RX_DATAGRAMS];
    union udp_control control[UDP_RX_DATAGRAMS];
    uint32_t step[UDP_RX_DATAGRAMS];    // length of a datagram's frames, but the last
    uint64_t ip_word[UDP_RX_DATAGRAMS]; // as of struct vb_rx_frame: packets of other headers are
                                        // not merged
    uint32_t count;                     // datagrams of the last receive
    uint32_t at;                        // the first of them not split to its end
    uint32_t offset;                    // where to go on in it
    uint32_t segment;                   // index of the frame there
    uint8_t *buffers;                   // UDP_RX_DATAGRAMS * UDP_RX_BYTES
    struct udp_source source[UDP_SOURCES];
};

// A receiver of unreliable frames, and how much its socket could take when it was looked at.
struct udp_known {
    struct vb_ip ip;
    uint32_t cookie;        // of its socket, where several share the address; 0: unknown
    uint16_t ask_from;      // the source port that makes the system answer for it; 0: unknown
    uint64_t left_bytes;    // that may be sent before one looks again
    uint64_t full_since_ns; // 0: it had room
};

struct udp_room {
    int fd; // of the kernel's socket diagnostics; -1: not open yet; UDP_ROOM_UNKNOWN: there are
            // none
    uint32_t asked; // questions so far
    struct udp_known known[UDP_KNOWN];
};

// Frames for another NIC on our address, until they are sent to its inbox; and those that came to
// ours.
struct udp_mail {
    int fd;             // the inbox
    int out_fd;         // what is sent leaves through; -1: the inbox
    uint32_t taken;     // datagrams seen, as the registry counts them
    bool watched, look; // it is in `epoll`; and may hold something that was not counted
    uint32_t out_slot, out_unit, out_used, out_frames;
    uint8_t *out, *in;
};

struct udp {
    struct vb_port port; // first: a vb_port pointer is a udp pointer
    int fd;
    bool ipv6;
    bool ecn;                // frames' marks are looked at
    bool headers;            // control messages say what frames' IP headers said,
    bool tells;              // all of it
    socklen_t address_bytes; // of a socket address of this family
    struct udp_share *share; // with other NICs; NULL: the address is ours alone
    uint32_t unit;           // of the NIC
    uint32_t untended;       // receives since the clock was looked at for their sake
    struct udp_mail mail;
    struct udp_group *groups;
    int epoll; // of the socket, the groups' and the inbox; -1: none of these was ever there
    struct udp_tx tx;
    struct udp_rx rx;
    struct udp_room room;
    struct udp *side[UDP_SIDES]; // on the NIC's further addresses (udp_side.c)
    uint32_t sides;
    uint32_t warmth, since; // where there are sides: how likely it is that frames wait, and
                            // receives since somebody looked
    // Of a side: what its frames came to, and its descriptor in the first port's `epoll`.
    const struct vb_ip *to;
    int watched;
};

void vb_udp_tx_init(struct udp_tx *tx, const union udp_address *local);
void vb_udp_send(struct vb_port *port, struct vb_txq *txq);
void vb_udp_send_own(struct udp *u, struct vb_txq *txq); // by its own socket, not by its sides'
int vb_udp_rx_init(struct udp_rx *rx, const union udp_address *local); // -ENOMEM
void vb_udp_rx_fini(struct udp_rx *rx);
// Asks the system for what IP headers say, and reads it from the control messages of a datagram.
int vb_udp_ask_headers(int fd, bool ipv6);
uint64_t vb_udp_read_header(const struct udp *u, struct msghdr *h);
uint32_t vb_udp_receive(struct vb_port *port, struct vb_rx_frame *frames);
uint32_t vb_udp_receive_own(struct udp *u, struct vb_rx_frame *frames, uint32_t room);
// A source from which nothing is known yet, and whether a frame from a source is sound.
void vb_udp_meet(const struct udp *u, struct udp_source *s, const struct vb_ip *ip, uint16_t port,
                 const struct vb_ip *to);
bool vb_udp_check(struct udp *u, struct udp_source *s, uint32_t segment, const uint8_t *frame,
                  uint32_t len);

// Attributes of paths (udp_attr.c).
void vb_udp_attr_init(struct udp *u);
// Before a message whose path has others than the socket. False: the socket must change first, and
// may not yet, because messages wait.
bool vb_udp_attr_turn(struct udp *u, const struct vb_path_attr *attr, bool may_settle);
// Writes control messages for what the socket does not have. Returns their bytes.
uint32_t vb_udp_attr_put(const struct udp *u, uint8_t *at, const struct vb_path *path);

// Sides: for a port that has some.
struct udp *vb_udp_side_of(struct udp *u, const struct vb_ip *local); // the port itself: nobody's
void vb_udp_side_send(struct udp *u, struct vb_txq *txq);
uint32_t vb_udp_side_receive(struct udp *u, struct vb_rx_frame *frames); // as vb_udp_receive()
int vb_udp_side_sleep(struct udp *u); // 0 or more: `epoll` watches them; -EAGAIN, or another errno
int vb_udp_sleep_own(struct udp *u);

// Room at receivers on this machine, for frames that nobody acknowledges (udp_room.c).
void vb_udp_room_init(struct udp_room *room);
void vb_udp_room_fini(struct udp_room *room);
// Whether so many frames, of so many bytes together, can be sent there now. True where nobody
// knows. all_left: the kernel has all frames that this was asked for before.
bool vb_udp_has_room(struct udp *u, const struct vb_ip *ip, uint32_t qpn, uint32_t frames,
                     uint32_t bytes, bool all_left);

// Frames that came to the wrong NIC of an address.
int vb_udp_mail_open(struct udp *u); // makes the inbox: 0 or a negative errno
void vb_udp_mail_close(struct udp *u);
// Takes a frame that is not for our queue pairs. False: we keep it after all.
bool vb_udp_mail_divert(struct udp *u, const struct vb_rx_frame *frame, bool steered);
void vb_udp_mail_flush(struct udp *u);
uint32_t vb_udp_mail_receive(struct udp *u, struct vb_rx_frame *frames, uint32_t room);
bool vb_udp_mail_waits(const struct udp *u);
void vb_udp_mail_enclose(struct udp *u, uint32_t slot, uint32_t unit,
                         const struct vb_rx_frame *frame);

// Queue pair 1 (udp_manage.c): says whether it is here, and takes ports of rdma_cm or gives them
// back.
void vb_udp_manage(struct vb_port *port, bool manages);
int vb_udp_serve(struct vb_port *port, uint32_t space, uint16_t number, bool serves);
// Services of the members given, each with the socket for its requests: UDP_STEER_SERVICES of them
// at most. Returns how many.
uint32_t vb_udp_manage_services(const struct udp_share *share,
                                const struct registry_member *members, uint32_t count,
                                struct udp_steer_service *services);
// Passes a frame on to the manager that it is for. False: that is us, or nobody.
bool vb_udp_manage_divert(struct udp *u, const struct vb_rx_frame *frame);

// Adds a descriptor to those that wake a sleeper. 0 or a negative errno.
int vb_udp_watch(struct udp *u, int fd);

// Multicast groups.
void vb_udp_group_init(struct udp *u);
void vb_udp_group_fini(struct udp *u);
int vb_udp_group_join(struct vb_port *port, const struct vb_ip *ip);
void vb_udp_group_leave(struct vb_port *port, const struct vb_ip *ip);
void vb_udp_group_follow(struct udp *u, struct udp *side); // joins what its neighbours have joined
uint32_t vb_udp_group_receive(struct udp *u, struct vb_rx_frame *frames, uint32_t room);

#endif
