// SPDX-License-Identifier: Apache-2.0
// The sim port: hosts on a virtual network in virtual time. One seed draws every loss, delay and
// corruption, so the same calls give the same frames. It seals and checks the ICRC like a real
// port.
#ifndef VB_PORT_SIMNET_H
#define VB_PORT_SIMNET_H

#include "port/port.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_simnet;

enum {
    VB_SIMNET_HOSTS = 16
};

// One direction between two hosts (or a host and itself).
struct vb_simnet_link {
    uint32_t loss_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm;
    uint64_t delay_ns;     // of every frame
    uint64_t jitter_ns;    // up to this much more; frames keep their order
    uint64_t reorder_ns;   // up to this much more for some frames, which others then overtake
    uint32_t bytes_per_us; // 0: no limit
    uint32_t queue_bytes;  // waiting behind that limit; frames past it are dropped
    uint32_t mark_ppm;     // of hosts that know ECN: how often a frame is marked
};

// The switch's port towards a host: a queue that all links to the host share, behind their delays.
// Frames of hosts that know ECN are marked as RED does by the queue's length: none below min, a
// growing part up to max_ppm at max, all from there on.
struct vb_simnet_funnel {
    uint32_t bytes_per_us; // 0: none
    uint32_t queue_bytes;  // frames past it are dropped
    uint32_t mark_min_bytes, mark_max_bytes, mark_max_ppm;
};

struct vb_simnet_host {
    struct vb_ip ip;
    uint16_t src_port;
    bool random_ids;    // an IPv4 identification per packet instead of the index in its burst
    uint32_t merge_ppm; // receive side: how often the burst index is known, as with GRO
    uint32_t batch_max; // frames per receive, 1 to VB_PORT_RX_BATCH
    uint32_t stall_ppm; // how often a send takes only some of the frames
    bool ecn;           // what it sends may be marked instead of dropped
    // The way in that all senders share: how fast frames leave the socket's buffer, 0: at once, and
    // how much of the system's memory may wait in it. What comes past that is dropped.
    uint32_t rx_bytes_per_us, rx_buffer_bytes;
};

struct vb_simnet_stats {
    uint64_t sent, delivered;
    uint64_t lost, duplicated, reordered, corrupted, tail_dropped, cut, unroutable, injected;
    uint64_t marked;
    uint64_t funnel_bytes_max; // that waited at once before any host
    uint64_t overflowed;       // found a receiver's buffer full
    uint64_t false_passes;     // corrupted frames that the 16 bits left after solving did not catch
};

// What became of a frame besides arriving: it was dropped on the way, or arrives once
// more.
enum vb_simnet_fate {
    VB_SIMNET_DROPPED,
    VB_SIMNET_DOUBLED
};

// Sees the frame as it was sent, sealed.
typedef void vb_simnet_watcher(void *ctx, enum vb_simnet_fate fate, const struct vb_ip *src,
                               const struct vb_ip *dst, const uint8_t *frame, uint32_t len);

// NULL: no memory.
struct vb_simnet *vb_simnet_create(uint64_t seed);
void vb_simnet_destroy(struct vb_simnet *net); // closes the hosts' ports too

// Adds a host; *port is its end of the network. -ENOSPC: too many hosts; -EEXIST: the address is
// taken; -EINVAL; -ENOMEM.
int vb_simnet_attach(struct vb_simnet *net, const struct vb_simnet_host *host,
                     struct vb_port **port);
// Shapes the link between hosts by their order of attachment.
void vb_simnet_shape(struct vb_simnet *net, uint32_t from, uint32_t to,
                     const struct vb_simnet_link *link);
// Frames to the host pass a funnel from now on.
void vb_simnet_funnel(struct vb_simnet *net, uint32_t to, const struct vb_simnet_funnel *funnel);
// Drops everything sent on the link before `until_ns`.
void vb_simnet_cut(struct vb_simnet *net, uint32_t from, uint32_t to, uint64_t until_ns);
// No faults from now on: delays and bandwidth stay, frames under way arrive.
void vb_simnet_heal(struct vb_simnet *net);

// A frame of `len` bytes (room for the ICRC included) as if `src` had sent it; it arrives at once.
// -ENOENT: no host has the address `dst`; -EINVAL: too short or too long.
int vb_simnet_inject(struct vb_simnet *net, const struct vb_ip *src, const struct vb_ip *dst,
                     uint16_t src_port, const uint8_t *frame, uint32_t len);

// What the system charges a socket's buffer for a frame of `len` bytes that it has not merged.
uint32_t vb_simnet_charge(uint32_t len);

// Tells the fate of every frame from now on. Injected frames always arrive.
void vb_simnet_watch(struct vb_simnet *net, vb_simnet_watcher *watcher, void *ctx);

// Moves the clock and hands frames that are due to their hosts' inboxes.
void vb_simnet_advance(struct vb_simnet *net, uint64_t now_ns);
uint64_t vb_simnet_next(const struct vb_simnet *net); // time of the next arrival; UINT64_MAX: none
uint32_t vb_simnet_waiting(const struct vb_simnet *net, uint32_t host); // frames in an inbox
uint64_t vb_simnet_in_flight(const struct vb_simnet *net);              // not yet in an inbox
const struct vb_simnet_stats *vb_simnet_stats(const struct vb_simnet *net);

#endif
