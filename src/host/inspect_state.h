// SPDX-License-Identifier: Apache-2.0
// Who asks a NIC about itself, and how far its answer has come.
#ifndef VB_HOST_INSPECT_STATE_H
#define VB_HOST_INSPECT_STATE_H

#include "host/inspect.h"
#include "port/inspect_place.h"

#include <stdbool.h>

struct vb_inspect_client {
    int fd;            // -1: nobody
    uint64_t until_ns; // nobody may take longer
    char request[VB_INSPECT_REQUEST];
    uint32_t got;
    char *answer; // NULL: the question is not complete
    size_t len, sent;
};

// The helper's alone, and under nic->inspect_lock while it changes, for fork().
struct vb_inspect {
    struct vb_inspect_place place;
    struct vb_inspect_client client[VB_INSPECT_CLIENTS];
    uint64_t rests_until_ns; // nobody new is heard before; 0: is heard
    uint64_t looked_ns;
    char port[8]; // what the NIC was opened with: udp, shm or auto
};

#endif
