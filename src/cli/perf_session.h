// SPDX-License-Identifier: Apache-2.0
// A client and its server: two processes on this machine, or one each on two.
#ifndef VB_CLI_PERF_SESSION_H
#define VB_CLI_PERF_SESSION_H

#include "cli/perf.h"
#include "cli/perf_control.h"
#include "verbena/nic.h"

#include <sched.h>
#include <sys/types.h>

struct vb_perf_session_opts {
    const char *local; // address, of both sides with a comma between them, or NULL
    bool no_pin;
    const char *port;      // of the NICs: udp, shm or auto; NULL: udp
    const char *faults;    // on purpose, at our NIC; NULL: none
    uint16_t control_port; // TCP, of a server elsewhere
};

struct vb_perf_session {
    int control;  // the channel to the server
    pid_t server; // a child of ours, or 0
    struct vb_nic *nic;
    enum vb_perf_port port; // what carries packets between the two
    bool lossy;             // packets are dropped on purpose, or on the way
    uint8_t peer_gid[16];
    int cores[2]; // the client's and the server's; -1: not pinned
    bool yield;   // both sides share one core
    bool restore; // `allowed` is to be set again at the end
    cpu_set_t allowed;
    char why[VB_PERF_WHY];
};

// Return 0; -1: a sentence is in session->why, and nothing is left to close.
int vb_perf_session_local(struct vb_perf_session *s, const struct vb_perf_session_opts *opts);
int vb_perf_session_remote(struct vb_perf_session *s, const struct vb_perf_session_opts *opts,
                           const char *peer);
void vb_perf_session_close(struct vb_perf_session *s);
// The longest MTU that fits between the two.
uint32_t vb_perf_session_mtu(const struct vb_perf_session *s);

// Serves clients from elsewhere, one after the other, for ever or `once`. Prints what happens.
int vb_perf_listen(const struct vb_perf_session_opts *opts, bool once);

// Sends a message and awaits the answer, which must be of kind `expect`.
int vb_perf_ask(struct vb_perf_session *s, struct vb_control_msg *msg, enum vb_control_kind expect);

#endif
