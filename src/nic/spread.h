// SPDX-License-Identifier: Apache-2.0
// Datagrams of one queue pair spread over the receive queues of others, by a hash of the addresses
// that they came from and to.
#ifndef VB_NIC_SPREAD_H
#define VB_NIC_SPREAD_H

#include "nic/frame.h"

#include <stdint.h>

struct vb_dev;
struct vb_qpc;

enum {
    VB_SPREAD_MAX = 128, // queues, a power of two
    VB_SPREAD_KEY = 40,  // bytes of the hash's key
    VB_SPREAD_SRC = 1,   // the hash is of the source's address,
    VB_SPREAD_DST = 2,   // and of our own
};

struct vb_spread {
    struct vb_spread *next; // of the device
    uint32_t count;
    uint32_t fields;
    uint8_t key[VB_SPREAD_KEY];
    struct vb_qpc *member[VB_SPREAD_MAX]; // NULL: gone
};

struct vb_spread_attr {
    const uint32_t *qpn; // of the members: datagram queue pairs of the same unit
    uint32_t count;
    uint32_t fields;
    uint8_t key[VB_SPREAD_KEY];
};

// The hash of Toeplitz: for each set bit of the input the 32 bits of the key that begin there.
uint32_t vb_toeplitz(const uint8_t key[VB_SPREAD_KEY], const uint8_t *input, uint32_t len);

// For good. -EINVAL: no datagram queue pairs of one unit, or a number that is no power of two;
// -ENOENT, -ENOMEM.
int vb_dev_qp_spread(struct vb_dev *dev, uint32_t qpn, const struct vb_spread_attr *attr);
// Whose receive a datagram takes; NULL: nobody's.
struct vb_qpc *vb_spread_pick(const struct vb_qpc *qp, const struct vb_rx_frame *frame);
// A queue pair goes: it gets nothing from others any more, and gives nothing.
void vb_spread_leave(struct vb_dev *dev, struct vb_qpc *qp);

#endif
