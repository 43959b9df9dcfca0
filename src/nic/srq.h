// SPDX-License-Identifier: Apache-2.0
// A shared receive queue: entries in the order of a linked list, so that they can be given back in
// any order.
#ifndef VB_NIC_SRQ_H
#define VB_NIC_SRQ_H

#include "nic/completion.h"
#include "nic/dev.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_srqc {
    uint32_t srqn;
    bool crossing; // several units take from it, under the lock
    struct vb_spin lock;
    uint32_t pd;
    uint32_t xrcd;
    struct vb_cqc *cq; // of an XRC queue
    const uint8_t *ring;
    uint32_t entries, stride;
    const uint32_t *dbrec;
    uint32_t head; // index of the next entry
    uint64_t taken;
    uint64_t end; // entries ever posted, as last read
    uint32_t limit;
    uint32_t users;
};

struct vb_recv;
struct vb_pu;

int vb_srqc_create(const struct vb_srqc_attr *attr, struct vb_cqc *cq, struct vb_srqc **srq);
// Copies the next entry. False: none is left.
bool vb_srqc_load(struct vb_pu *pu, struct vb_srqc *srq, struct vb_recv *recv);

#endif
