// SPDX-License-Identifier: Apache-2.0
// What the parts of the shm port share.
//
// Each direction has a connection of its own, made by the sender: hello carries the ring, the reply
// carries the receiver's board. So two sides that call each other at once need no arbitration. A
// NIC of several units has a port for each, which call and are called on their own; only the
// sockets' names tell that they belong together.
#ifndef VB_PORT_SHM_STATE_H
#define VB_PORT_SHM_STATE_H

#include "port/port.h"
#include "port/shm_place.h"
#include "port/shm_ring.h"

#include <stdalign.h>

#define SHM_MAGIC 0x766572626e73686dull

enum {
    SHM_VERSION = 2,
    SHM_GUESTS = 1023, // who may send to us at a time
    SHM_PEERS = 4096,  // addresses that we remember having sent to
    SHM_PEER_BUCKETS = 256,
};

// What a port shows to all who send to it. They can only read it.
struct shm_board {
    // Odd while the port sleeps, and another number each time.
    alignas(SHM_LINE) _Atomic uint64_t nap;
    struct {
        alignas(SHM_LINE) _Atomic uint64_t consumed; // position in the guest's ring
    } guest[SHM_GUESTS];
};

static_assert(sizeof(struct shm_board) == 65536, "whole pages");

struct shm_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t ring_bytes;
    uint64_t key;
    struct vb_ip address; // the sender's
};

struct shm_reply {
    uint64_t magic;
    uint32_t version;
    uint32_t guest; // index on the board
};

static_assert(sizeof(struct shm_hello) == 40, "no padding");
static_assert(sizeof(struct shm_reply) == 16, "no padding");

// What an epoll event points to: the first member of whatever it is about.
enum shm_end {
    SHM_END_LISTENER,
    SHM_END_GUEST,
    SHM_END_PEER,
};

// Somebody who sends to us.
struct shm_guest {
    enum shm_end end;
    int fd; // -1: the connection is over, what is in the ring is still delivered
    uint32_t index;
    bool garbage; // nothing more is taken from the ring
    struct shm_ring_rx ring;
    uint64_t returned; // position up to which the space was given back
    const void *map;   // NULL: no hello yet, the ring is silent
    size_t map_bytes;
    struct vb_ip address;
};

enum shm_peer_state {
    SHM_PEER_ABSENT,
    SHM_PEER_CALLED, // the ring can be written; no reply yet
    SHM_PEER_UP,
};

// A unit of somebody we send to. Paths point to the first, so it stays until the port is closed.
struct shm_peer {
    enum shm_end end;
    enum shm_peer_state state;
    int fd;
    struct vb_ip address;
    uint32_t unit;
    uint32_t unit_mask;               // of the first: how many units there are, less one
    struct shm_peer *mate[SHM_UNITS]; // of the first: the others, by number, once called
    struct shm_peer *next;            // of its bucket
    struct shm_ring_tx ring;
    const struct shm_board *board;
    uint32_t guest;         // our index on that board
    uint64_t woken;         // the nap it was woken from last
    uint64_t turn;          // the last send that wrote to the ring
    uint64_t full_since_ns; // 0: it is not
    uint64_t retry_ns;      // when to call again
    uint64_t pause_ns;      // how long the next failure will keep us from it
};

struct shm {
    struct vb_port port; // first: a vb_port pointer is a shm pointer
    enum shm_end end;    // of the listener
    int epoll;
    int spare; // given up to refuse a connection when no descriptor is left
    struct shm_place place;
    struct shm_board *board;
    int board_fd;
    uint32_t ring_bytes;
    bool abandoned; // a forked child's copy goes
    // Receiving.
    bool napping;
    bool has_ended;    // some guest may be due to leave
    uint32_t unlooked; // receives and frames since the connections were looked at
    uint32_t first;    // the guest to begin with
    uint32_t guest_count;
    struct shm_guest *guest[SHM_GUESTS];
    uint64_t index_used[(SHM_GUESTS + 63) / 64];
    alignas(SHM_LINE) struct shm_head heads[VB_PORT_RX_BATCH];
    // Sending.
    uint64_t turn;
    uint32_t written_count;
    struct shm_peer *written[VB_TX_FRAMES]; // this turn
    uint32_t peer_count;
    struct shm_peer *bucket[SHM_PEER_BUCKETS];
};

// Guests.
void vb_shm_guest_accept(struct shm *s);
void vb_shm_guest_event(struct shm *s, struct shm_guest *guest);
void vb_shm_guest_reap(struct shm *s); // frees those that are over, drained and lend nothing
void vb_shm_guest_hang_up(struct shm *s, struct shm_guest *guest);
void vb_shm_guest_close_all(struct shm *s);

// Peers.
bool vb_shm_peer_reach(struct shm *s, struct vb_path *path); // via is set, a ring is there
void vb_shm_peer_event(struct shm *s, struct shm_peer *peer);
void vb_shm_peer_send(struct vb_port *port, struct vb_txq *txq);
void vb_shm_peer_close_all(struct shm *s);

// Watches a descriptor; `end` is what its events point to. 0 or a negative errno.
int vb_shm_watch(struct shm *s, int fd, enum shm_end *end);

// Ends a connection and watching it, even if a child of this process has inherited the descriptor.
void vb_shm_hang_up(struct shm *s, int fd);

#endif
