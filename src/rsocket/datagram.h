// SPDX-License-Identifier: Apache-2.0
// Datagrams: a UDP socket, which finds peers and carries what comes before they are known, and
// one unreliable queue pair for each local address in use.
#ifndef VB_RSOCKET_DATAGRAM_H
#define VB_RSOCKET_DATAGRAM_H

#include "rsocket/socket.h"

enum {
    VB_RS_LANES = 8,
    VB_RS_SLOT_BYTES = 2048, // of a datagram with its header
    VB_RS_GRH_BYTES = 40,
    VB_RS_EARLY = 64,   // datagrams by UDP that wait to be read
    VB_RS_DESTS = 1024, // peers that are remembered
};

// A queue pair on one local address.
struct vb_rs_lane {
    struct sockaddr_storage own;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *send_mr, *recv_mr;
    uint8_t *recv;
    bool armed;
};

// A peer's address, and how to reach it once it is known.
struct vb_rs_dest {
    struct vb_rs_dest *next;
    struct sockaddr_storage addr;
    struct vb_rs_lane *lane;
    struct ibv_ah *ah;
    uint32_t qpn;
    uint32_t uses; // sends in flight, and calls that have it at hand
};

// One that came: in a receive slot of a lane, or, by UDP, in memory of its own.
struct vb_rs_arrival {
    struct vb_rs_lane *lane;
    uint32_t slot;
    uint8_t *data;
    uint32_t bytes;
    struct sockaddr_storage from;
};

struct vb_rs_datagrams {
    bool started;
    struct vb_rs_lane lane[VB_RS_LANES];
    unsigned lanes;
    struct vb_rs_dest *dests, *connected; // by their last use, the newest first
    unsigned dest_count;
    uint16_t sq, rq;
    uint8_t *send;
    uint16_t *free_slots;
    struct vb_rs_dest **slot_dest; // whom a slot that is not free goes to
    unsigned free_count;
    struct vb_rs_arrival *ring;
    unsigned ring_size, head, tail, early;
};

// lane.c
int vb_rs_lane_for(struct vb_rsocket *rs, const struct sockaddr *to, struct vb_rs_lane **found);
void vb_rs_lane_close(struct vb_rs_lane *lane);
int vb_rs_lane_receive(struct vb_rs_lane *lane, uint32_t slot);

// dest_list.c
socklen_t vb_rs_address_bytes(const struct sockaddr *a);
bool vb_rs_address_equal(const struct sockaddr_storage *a, const struct sockaddr *b);
void vb_rs_dests_add(struct vb_rs_datagrams *d, struct vb_rs_dest *dest);
struct vb_rs_dest *vb_rs_dests_find(struct vb_rs_datagrams *d, const struct sockaddr *to);
// Takes the one out that was not used for the longest time. NULL: all are in use.
struct vb_rs_dest *vb_rs_dests_take_idle(struct vb_rs_datagrams *d);

// dest.c
// May forget another one, but none with uses. -ENOBUFS: there is no room.
int vb_rs_dest_for(struct vb_rsocket *rs, const struct sockaddr *to, socklen_t len,
                   struct vb_rs_dest **found);
// Takes what came by UDP: data, and the numbers of queue pairs.
void vb_rs_dest_listen(struct vb_rsocket *rs);
int vb_rs_dest_send_udp(struct vb_rsocket *rs, const struct vb_rs_dest *dest, enum vb_rs_op op,
                        const struct iovec *iov, int count, int flags);
void vb_rs_dests_free(struct vb_rs_datagrams *d);

// datagram.c
// A connected one hears its peer alone.
bool vb_rs_is_wanted(const struct vb_rs_datagrams *d, const struct sockaddr_storage *from);
bool vb_rs_arrival_push(struct vb_rs_datagrams *d, const struct vb_rs_arrival *a);

#endif
