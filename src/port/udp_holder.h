// SPDX-License-Identifier: Apache-2.0
// Who has RoCE's port at an address, as far as this process may see.
#ifndef VB_PORT_UDP_HOLDER_H
#define VB_PORT_UDP_HOLDER_H

#include "port/udp_address.h"

enum {
    UDP_HOLDER_TEXT = 64
};

enum udp_holder {
    UDP_HOLDER_UNSEEN,  // "another NIC or the kernel's rdma_rxe": nothing can be found out
    UDP_HOLDER_PROCESS, // "process 1234 (name)", or "a process of user 1000"
    UDP_HOLDER_KERNEL,  // "the kernel, for its soft-RoCE (rdma_rxe)"
};

// Writes who it is in words.
enum udp_holder vb_udp_holder(const union udp_address *at, char text[UDP_HOLDER_TEXT]);

#endif
