// SPDX-License-Identifier: Apache-2.0
// Shared receive queues of the simulation. An entry of the ring has its own buffer, so entries and
// buffers come back together, in any order.
#ifndef VB_SIM_SRQ_H
#define VB_SIM_SRQ_H

#include "sim/endpoint.h"

enum {
    VB_SIM_SRQ_ENTRIES = 64, // of the longest ring
    VB_SIM_XRCDS = 2,
};

struct vb_simsrq {
    struct vb_node *node;
    struct vb_driver_srq drv;
    uint32_t srqn; // 0: it does not exist now
    uint32_t domain;
    uint32_t xrcd; // 0: not for XRC
    uint32_t cq;   // XRC: of the node
    uint32_t depth, sge;
    struct vb_region *region;
    uint32_t slot_bytes; // of one entry's buffer
    uint64_t next_wr_id;
    uint64_t starved_until_ns; // gets no receives before
    // What the model knows.
    struct vb_intake intake[VB_SIM_SRQ_ENTRIES]; // by entry
    uint32_t order[VB_SIM_SRQ_ENTRIES];          // entries as they were posted, a ring
    uint64_t posted, taken;
    uint32_t last_unit; // that took one
    uint32_t limit;     // that an event waits for; 0: none
    uint32_t lost;      // entries that were in use when their queue pair was reset
};

// The numbers of queues that a NIC has, and the bytes of memory they take.
uint32_t vb_simsrq_count(const struct vb_node *node);
uint32_t vb_simsrq_bytes(const struct vb_node *node);
// Makes all shared receive queues of a NIC; and their end.
int vb_simsrq_create_all(struct vb_node *node);
int vb_simsrq_destroy_all(struct vb_node *node);
void vb_simsrq_free_all(struct vb_node *node);

// The queue for XRC of a domain pair.
static inline uint32_t vb_simsrq_index(uint32_t xrcd, uint32_t domain)
{
    return 2 + (xrcd - 1) * 2 + domain;
}

struct vb_driver_srq *vb_simsrq_find(void *node, uint32_t srqn);

// A host's turn: posts receives, asks for the event of the limit. True: something was posted.
bool vb_simsrq_act(struct vb_simsrq *srq);
// The queue goes and another comes. Connections whose queue pairs live on it start over; those of
// XRC go on, unless the queue was in use.
void vb_simsrq_remake(struct vb_simsrq *srq);

#endif
