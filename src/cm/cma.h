// SPDX-License-Identifier: Apache-2.0
// What Linux's rdma_cm puts into messages of the communication manager: service ids of its port
// spaces, and a header with addresses in front of the program's private data.
#ifndef VB_CM_CMA_H
#define VB_CM_CMA_H

#include "nic/frame.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_CMA_HEADER_BYTES = 36,
    VB_CMA_VERSION = 0,
};

enum vb_cma_space {
    VB_CMA_IPOIB = 0x0002,
    VB_CMA_TCP = 0x0106,
    VB_CMA_UDP = 0x0111,
    VB_CMA_IB = 0x013f,
};

struct vb_cma_header {
    uint16_t port; // of the sender
    struct vb_ip source, target;
};

static inline uint64_t vb_cma_service_id(enum vb_cma_space space, uint16_t port)
{
    return (uint64_t)space << 16 | port;
}

static inline uint16_t vb_cma_port(uint64_t service_id)
{
    return (uint16_t)service_id;
}

// False: the service id is of no port space.
bool vb_cma_space_of(uint64_t service_id, enum vb_cma_space *space);

void vb_cma_encode(const struct vb_cma_header *h, uint8_t bytes[VB_CMA_HEADER_BYTES]);
// False: another version, or addresses of no known kind.
bool vb_cma_decode(const uint8_t bytes[VB_CMA_HEADER_BYTES], struct vb_cma_header *h);

#endif
