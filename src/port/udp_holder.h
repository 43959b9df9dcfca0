// SPDX-License-Identifier: Apache-2.0
// Who has RoCE's port at an address, as far as this process may see.
#ifndef VB_PORT_UDP_HOLDER_H
#define VB_PORT_UDP_HOLDER_H

#include "port/udp_address.h"

enum {
    UDP_HOLDER_TEXT = 64
};

// Writes "process 1234 (name)", "a process of user 1000", or "another NIC or the kernel's rdma_rxe"
// if nothing can be found out.
void vb_udp_holder(const union udp_address *at, char text[UDP_HOLDER_TEXT]);

#endif
