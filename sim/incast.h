// SPDX-License-Identifier: Apache-2.0
// Many senders and one receiver in virtual time: what is left of one sender's goodput when all
// together overrun the receiver's socket buffer. The core is the same as under real ports.
#ifndef VB_SIM_INCAST_H
#define VB_SIM_INCAST_H

#include <stdint.h>

enum {
    VB_INCAST_SENDERS_MAX = 15,
    // Debian's default net.core.rmem_max of 212,992, which the kernel doubles.
    VB_INCAST_BUFFER_DEFAULT = 2 * 212992,
};

struct vb_incast_opts {
    uint64_t seed;
    uint32_t senders;
    uint64_t duration_ns;
    uint32_t link_bytes_per_us; // of every sender
    uint32_t sink_bytes_per_us; // how fast the receiver takes frames from its socket
    uint32_t buffer_bytes;      // of that socket, as the system charges it
    uint64_t delay_ns;          // one way
    uint32_t message_bytes;     // of a WRITE
    uint32_t depth;             // WRITEs in flight per sender
    uint32_t mtu;
};

struct vb_incast_result {
    uint64_t bytes;            // of WRITEs that have completed
    uint64_t least, most;      // of one sender
    uint64_t dropped;          // frames that found the buffer full
    uint64_t sent;             // frames of all
    uint64_t naks, timeouts;   // that made senders go back
    uint64_t retries_exceeded; // queue pairs that gave up
};

// -ENOMEM, or -EINVAL for options out of range.
int vb_incast_run(const struct vb_incast_opts *opts, struct vb_incast_result *result);

#endif
