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
    VB_PERF_QKEY = 0x11770001 // of datagrams
};

struct vb_perf_end_opts {
    enum vb_service service;
    size_t mem_bytes;
    uint32_t qps;
    uint32_t send_depth, recv_depth;
    uint32_t sges; // scatter entries of a work request
    uint32_t mtu;
    uint32_t reads;
    uint64_t seed;   // of sequence numbers
    uint8_t timeout; // of acknowledgements, as the verbs count it; 0: the default
};

struct vb_perf_end {
    struct vb_nic *nic; // not owned
    struct vb_perf_end_opts opts;
    uint8_t *mem; // zeroed, registered with all rights
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *send_cq, *recv_cq;
    struct vb_qp *qp[VB_PERF_QPS_MAX];
    uint32_t psn[VB_PERF_QPS_MAX]; // first of ours
    // The peer's.
    uint8_t peer_gid[16];
    uint32_t peer_qpn[VB_PERF_QPS_MAX];
    uint64_t peer_addr;
    uint32_t peer_key;
};

// Return 0, or -1 with a sentence in `why`. After a failed open nothing is left to close.
int vb_perf_end_open(struct vb_perf_end *end, struct vb_nic *nic,
                     const struct vb_perf_end_opts *opts, char *why);
void vb_perf_end_close(struct vb_perf_end *end);
// Appends what the peer needs to connect to this end.
void vb_perf_end_describe(const struct vb_perf_end *end, struct vb_control_msg *msg);
int vb_perf_end_connect(struct vb_perf_end *end, struct vb_control_msg *msg, char *why);

#endif
