// SPDX-License-Identifier: Apache-2.0
// Many senders and one receiver on the virtual network, behind one link that they share: each
// sender writes as fast as it may.
#ifndef VB_TESTS_INCAST_H
#define VB_TESTS_INCAST_H

#include "nic/dcqcn.h"
#include "port/simnet.h"

enum {
    INCAST_SENDERS = 8,
};

struct incast_opts {
    uint32_t senders;
    const struct vb_dcqcn_params *dcqcn; // NULL: off
    uint32_t window_bytes;
    struct vb_simnet_funnel funnel;
    uint64_t delay_ns;   // one way
    uint64_t stagger_ns; // a sender begins so long after the one before it
    uint64_t settle_ns;  // from the last one's begin until the measurement
    uint64_t measure_ns;
    bool reads; // the receiver READs instead
};

struct incast_result {
    uint64_t bytes[INCAST_SENDERS]; // of whole messages in the time measured
    double gbps, jain;              // of all; Jain's index of fairness
    // Of the whole run.
    uint64_t dropped, repeated, timeouts, marked, cnps;
    uint64_t failed; // connections that gave up
    uint64_t queue_max_bytes;
};

struct incast_result incast_run(const struct incast_opts *opts);

#endif
