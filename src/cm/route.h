// SPDX-License-Identifier: Apache-2.0
// Whose a message is, where several managers share an address: each has ports of rdma_cm's port
// spaces, and communication ids that begin with its number. Pure and stateless; bytes are a
// stranger's.
#ifndef VB_CM_ROUTE_H
#define VB_CM_ROUTE_H

#include "cm/cma.h"
#include "cm/message.h"

enum {
    VB_CM_PREFIX_BITS = 9,    // of a communication id: its manager's number
    VB_CM_PORT_FIRST = 32768, // of those that are given to who does not care
    VB_CM_PORT_LAST = 60999,
    // What is looked at: the header, ids and the service id.
    VB_CM_ROUTE_BYTES = VB_MAD_HEADER_BYTES + 16,
};

// Port spaces that are given out apart; IPoIB's is UDP's.
enum vb_cm_space {
    VB_CM_SPACE_TCP,
    VB_CM_SPACE_UDP,
    VB_CM_SPACE_IB,
    VB_CM_SPACES
};

enum vb_cm_route_kind {
    VB_CM_ROUTE_NONE, // no message of the communication manager
    VB_CM_ROUTE_PORT, // to who has the port
    VB_CM_ROUTE_ID,   // to the manager whose number this is
    VB_CM_ROUTE_ANY,  // nobody in particular: one of them has to answer
    VB_CM_ROUTE_ALL,  // it names nothing of its receiver's, who alone knows, and nobody answers it
};

struct vb_cm_route {
    enum vb_cm_route_kind kind;
    enum vb_cm_space space;
    uint16_t port;
    uint32_t manager;
};

// False: it is none of rdma_cm's.
bool vb_cm_space_of(enum vb_cma_space space, enum vb_cm_space *number);

// Of a message whose first `len` bytes are there.
struct vb_cm_route vb_cm_route(const uint8_t *mad, size_t len);

// Of a message that goes by an id: that one.
uint32_t vb_cm_route_id(const uint8_t mad[VB_CM_ROUTE_BYTES]);

static inline uint32_t vb_cm_route_manager(uint32_t id)
{
    return id >> (32 - VB_CM_PREFIX_BITS);
}

#endif
