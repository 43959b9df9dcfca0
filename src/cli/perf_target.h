// SPDX-License-Identifier: Apache-2.0
// The server's side of a measurement: the memory that is read and written, the receiver of
// messages, the echo of the raw baseline. It does what the control channel says until that ends.
#ifndef VB_CLI_PERF_TARGET_H
#define VB_CLI_PERF_TARGET_H

#include "cli/perf_control.h"
#include "verbena/nic.h"

#include <stdbool.h>

enum {
    VB_PERF_VERSION = 6, // of the control channel's messages
    VB_PERF_PORT_NAME = 8,
};

// What the server does between two messages.
enum vb_perf_mode {
    VB_PERF_MODE_REST, // waits in the kernel
    VB_PERF_MODE_NIC,  // what the plan says of the target: it polls, spins, sleeps or computes; or
                       // serves gets of the way that follows
    VB_PERF_MODE_ECHO, // echoes datagrams of the raw socket, or a cache line
    VB_PERF_MODE_SINK, // counts datagrams, or copies out of shared memory
};

// What a server answers when asked for counts.
struct vb_perf_counts {
    uint64_t verified, wrong;
    uint64_t arrived; // messages, raw packets, or requests that the CPU answered
    uint64_t sum;     // of the words that atomics work on
    uint64_t cpu_ns;  // of the server's process so far
};

struct vb_perf_serve_opts {
    int control;
    struct vb_nic *nic;
    const char *port; // as the NIC was opened
    bool yield;       // the client needs this core
};

// Serves a client until it leaves. Returns 0; -1: it left in the midst, or spoke nonsense.
int vb_perf_serve(const struct vb_perf_serve_opts *opts);
// Tells the client why there is no server.
void vb_perf_decline(int control, const char *why);

void vb_perf_counts_get(struct vb_control_msg *msg, struct vb_perf_counts *counts);
// User and system time of this process so far.
uint64_t vb_perf_cpu_ns(void);

#endif
