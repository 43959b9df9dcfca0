// SPDX-License-Identifier: Apache-2.0
// A faulty port around a small fake one with a fake clock, and logs of what passed on either side.
#ifndef VB_TESTS_FAULTY_RIG_H
#define VB_TESTS_FAULTY_RIG_H

#include "port/faulty.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RIG_BYTES = 32, // of every frame
    RIG_LOG = 20000,
    RIG_FD = 42 // the fake's descriptor
};

// What went over the wire or came up: a frame's number, queue pair, and whether its ICRC fits.
struct entry {
    uint32_t tag, qpn;
    bool intact;
};

struct fake {
    struct vb_port port; // first
    uint32_t take_max;   // frames taken by one send
    const struct vb_txq *last_txq;
    struct entry sent[RIG_LOG];
    uint32_t sent_count;
    struct vb_rx_frame inbox[VB_PORT_RX_BATCH];
    uint32_t inbox_count;
    uint8_t *bytes; // of the last receive
    uint32_t receives, sleeps;
    bool *closed;
};

struct rig {
    struct fake *fake;
    struct vb_port *port; // around it
    struct vb_path path[2];
    struct vb_txq txq;
    uint64_t now;
    uint32_t clock_reads;
    uint32_t tags;
    struct entry got[RIG_LOG];
    uint32_t got_count;
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    bool closed;
};

extern const struct vb_ip rig_ips[3]; // the port's own, a peer's, and an IPv6 peer's

// Rules as vb_faulty_wrap() takes them; fails the test if they are wrong.
struct vb_faults *rig_parse(const char *rules);

struct rig *rig_open(const char *rules); // NULL: none
void rig_close(struct rig *g);

// Appends a frame to `qpn` on path[to]; tags count from one.
void rig_push(struct rig *g, uint32_t qpn, unsigned to);
void rig_send(struct rig *g); // once; a queue that was taken whole is empty then
// Pushes frames on path[0] and sends them: all are taken.
void rig_send_frames(struct rig *g, uint32_t count, uint32_t qpn);
// Puts a frame from rig_ips[from] into the fake's inbox.
void rig_arrive(struct rig *g, uint32_t qpn, unsigned from);
// Receives once and logs what came. Returns how many.
uint32_t rig_receive(struct rig *g);

// The tags of a log must be these, ended by 0.
void rig_assert_log(const struct entry *log, uint32_t count, const uint32_t *tags);

#define ASSERT_SENT(g, ...) \
    rig_assert_log((g)->fake->sent, (g)->fake->sent_count, (const uint32_t[]){__VA_ARGS__, 0})
#define ASSERT_GOT(g, ...) \
    rig_assert_log((g)->got, (g)->got_count, (const uint32_t[]){__VA_ARGS__, 0})

#endif
