// SPDX-License-Identifier: Apache-2.0
// Many NICs of one user on one address: each binds sockets of its own to it, and the system picks
// one by the range that a frame's queue pair is in. docs/connections.md tells how that stays right
// when processes come, go, die or are stopped.
#ifndef VB_PORT_UDP_SHARE_H
#define VB_PORT_UDP_SHARE_H

#include "port/registry.h"
#include "port/udp_address.h"

#include <pthread.h>

struct udp;
struct udp_order;
struct vb_udp_opts;

// A NIC's part in it, common to its units.
struct udp_share {
    struct registry registry;
    union udp_address at;
    struct vb_ip ip;
    uint32_t scope;
    uint32_t units;
    struct udp *unit[REGISTRY_UNITS];
    uint32_t open; // units that are not closed yet
    bool order_locked, left;
    atomic_bool company;      // others may be on the address
    _Atomic uint64_t tick_ns; // when to look after them next
    atomic_bool doubted;      // a frame came that the system should have given to another
    pthread_mutex_t lock;     // of what follows
    uint64_t mended_ns;
    uint32_t changes;        // of managers that the program knows of
    struct udp_order *order; // room to think
};

// Takes a slot for `units` sockets at the address, or puts the slot of opts->beside there, too;
// others wait with theirs until vb_udp_share_enter(). 0 or a negative errno: there is no registry,
// or no room in it.
int vb_udp_share_create(const struct vb_udp_opts *opts, const union udp_address *at, uint32_t units,
                        struct udp_share **share);
void vb_udp_share_destroy(struct udp_share *share); // of sockets that were never bound
bool vb_udp_share_has_company(struct udp_share *share);
// The sockets are bound and in `unit`: from here on frames are steered to them. 0 or a negative
// errno.
int vb_udp_share_enter(struct udp_share *share);
// One unit closes. With the first all sockets go, and the others' order with them.
void vb_udp_share_close(struct udp_share *share, struct udp *u);
void vb_udp_share_abandon(struct udp_share *share, struct udp *u); // in a forked child

// From time to time, and when a frame came astray: looks after the others.
void vb_udp_share_tend(struct udp_share *share, uint64_t now_ns);
// Managers or their ports have changed: tells the system.
void vb_udp_share_renew(struct udp_share *share);
// A probe tells a socket its place.
void vb_udp_share_probe(struct udp *u, const uint8_t *frame, uint32_t len);

#endif
