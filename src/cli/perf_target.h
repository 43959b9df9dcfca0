// SPDX-License-Identifier: Apache-2.0
// The server's side of a measurement: the memory that is read and written, the receiver of
// messages, the echo of the raw baseline. It does what the control channel says until that ends.
#ifndef VB_CLI_PERF_TARGET_H
#define VB_CLI_PERF_TARGET_H

#include "verbena/nic.h"

#include <stdbool.h>

enum {
    VB_PERF_VERSION = 1
}; // of the control channel's messages

// What the server does between two messages.
enum vb_perf_mode {
    VB_PERF_MODE_REST, // waits in the kernel
    VB_PERF_MODE_NIC,  // runs its NIC
    VB_PERF_MODE_ECHO, // echoes datagrams of the raw socket
    VB_PERF_MODE_SINK, // counts them
};

// Serves the client on `control` until it leaves. Returns 0; -1: it left in the midst, or spoke
// nonsense.
int vb_perf_serve(int control, struct vb_nic *nic, bool yield);
// Tells the client why there is no server.
void vb_perf_decline(int control, const char *why);

#endif
