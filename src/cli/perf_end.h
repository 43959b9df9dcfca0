// SPDX-License-Identifier: Apache-2.0
// One end of a measurement's connections: a NIC's memory, queues and queue pairs, and what the peer
// must know of them.
#ifndef VB_CLI_PERF_END_H
#define VB_CLI_PERF_END_H

#include "cli/perf.h"
#include "cli/perf_control.h"
#include "verbena/nic.h"

#include <stddef.h>

enum {
    VB_PERF_QKEY = 0x11770001, // of datagrams
    VB_PERF_NAMES = 64,        // queue pairs named by one message
};

struct vb_perf_end_opts {
    enum vb_service service;
    size_t mem_bytes;
    uint32_t qps;
    uint32_t active; // of these may carry traffic; 0: all
    uint32_t send_depth, recv_depth;
    uint32_t sges; // scatter entries of a work request
    uint32_t mtu;
    uint32_t reads;
    uint64_t seed;   // of sequence numbers
    uint8_t timeout; // of acknowledgements, as the verbs count it; 0: the default
    uint32_t inline_bytes;
    uint32_t cq_entries;        // of one completion queue for both sides; 0: there are two
    struct vb_channel *channel; // that it tells of completions, or NULL
};

struct vb_perf_end {
    struct vb_nic *nic; // not owned
    struct vb_perf_end_opts opts;
    uint8_t *mem; // zeroed, registered with all rights
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *send_cq, *recv_cq; // may be the same
    struct vb_qp **qp;
    uint32_t *psn; // first of ours
    // The peer's.
    uint8_t peer_gid[16];
    uint32_t *peer_qpn;
    uint64_t peer_addr;
    uint32_t peer_key;
};

// Return 0, or -1 with a sentence in `why`. After a failed open nothing is left to close.
int vb_perf_end_open(struct vb_perf_end *end, struct vb_nic *nic,
                     const struct vb_perf_end_opts *opts, char *why);
void vb_perf_end_close(struct vb_perf_end *end);
// Appends what the peer must know of this end: its address and memory.
void vb_perf_end_describe(const struct vb_perf_end *end, struct vb_control_msg *msg);
// Takes the peer's.
int vb_perf_end_meet(struct vb_perf_end *end, struct vb_control_msg *msg, char *why);
// Appends the names of queue pairs from `first` on, VB_PERF_NAMES of them or as many as there are.
void vb_perf_end_name(const struct vb_perf_end *end, uint32_t first, struct vb_control_msg *msg);
// Connects the same ones to those that the peer's message names.
int vb_perf_end_connect(struct vb_perf_end *end, uint32_t first, struct vb_control_msg *msg,
                        char *why);

#endif
