// SPDX-License-Identifier: Apache-2.0
// A port: moves frames between a processing unit and a network. Ports own the sockets and the
// clock; they seal and check the ICRC, because only they know what the packet around the frame
// looks like.
#ifndef VB_PORT_PORT_H
#define VB_PORT_PORT_H

#include "nic/frame.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_PORT_RX_BATCH = 512
}; // frames returned by one receive at most

struct vb_port;
struct vb_trace;

struct vb_port_stats {
    uint64_t rx_bad_icrc;    // frames dropped because their ICRC is wrong
    uint64_t rx_solved_icrc; // frames accepted after solving for the IPv4 identification
    uint64_t rx_bad_peers;   // shm peers refused or cut off because of what they sent
    uint64_t rx_forwarded;   // frames passed on to another NIC on the same address
    uint64_t tx_errors;      // frames the system refused to send; the transport recovers
    // Faults on purpose (port/faulty.h), in frames.
    uint64_t faults_dropped;
    uint64_t faults_corrupted;
    uint64_t faults_duplicated; // copies made
    uint64_t faults_delayed;
    uint64_t faults_reordered;
    uint64_t faults_marked;
    uint64_t faults_unheld; // that should have waited, but too many did
};

struct vb_port_ops {
    // Sends frames [txq->taken, txq->count), advancing txq->taken; stops early when the system's
    // buffers are full.
    void (*send)(struct vb_port *port, struct vb_txq *txq);
    // Fills up to VB_PORT_RX_BATCH frames, valid until the next receive. Returns how many.
    uint32_t (*receive)(struct vb_port *port, struct vb_rx_frame *frames);
    // Prepares for sleep: a descriptor that becomes readable when frames come, or -EAGAIN when some
    // may be waiting already. Receiving ends the preparation. NULL: a port without descriptors.
    int (*sleep)(struct vb_port *port);
    void (*close)(struct vb_port *port);
    // Receives what is sent to a multicast address, too, until leave. NULL: the port cannot.
    int (*join)(struct vb_port *port, const struct vb_ip *group);
    void (*leave)(struct vb_port *port, const struct vb_ip *group);
    // In a forked child instead of closing: frees what is the child's, and neither the parent nor
    // its peers notice.
    void (*abandon)(struct vb_port *port);
    // When the port wants to be run at the latest, frames or not. NULL: never.
    uint64_t (*deadline)(const struct vb_port *port);
    // Takes a port of a port space (enum vb_cm_space) for the manager on queue pair 1, or gives it
    // back. 0; -EADDRINUSE: it is another NIC's. NULL: nobody else could ask for it.
    int (*serve)(struct vb_port *port, uint32_t space, uint16_t number, bool serves);
    // Whether queue pair 1 is here: then those of its frames that are for this port's manager come
    // to it, whoever of those that share the address gets them. NULL: they come anyway.
    void (*manage)(struct vb_port *port, bool manages);
    // The udp port behind it, which can be on further addresses (port/udp.h). NULL: there is none.
    struct vb_port *(*udp)(struct vb_port *port);
};

struct vb_port {
    const struct vb_port_ops *ops;
    struct vb_ip local;
    uint16_t src_port;
    struct vb_port_stats stats;
    struct vb_trace *trace; // told of every frame that passes; NULL: none
    bool unsealed;          // frames may pass without an ICRC
    uint8_t hop_limit;      // of packets whose path names none; 0: unknown
    uint32_t buffer_bytes;  // that the system keeps for the port while nobody receives; 0: unknown
    uint32_t qpn_base, qpn_count; // queue pair numbers whose frames it gets; count 0: all
};

#endif
