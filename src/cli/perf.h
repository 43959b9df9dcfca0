// SPDX-License-Identifier: Apache-2.0
// What the parts of `verbena perf` agree on: what to measure, and what was measured.
#ifndef VB_CLI_PERF_H
#define VB_CLI_PERF_H

#include "verbena/nic.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_PERF_QPS_MAX = 16384, // as many as a NIC has
    VB_PERF_DEPTH_MAX = 4096,
    VB_PERF_SIZE_MAX = 256 << 20,
    VB_PERF_RAW_MAX = 65000,     // one datagram
    VB_PERF_ATOMIC_BYTES = 8,    // what CAS and FADD work on
    VB_PERF_COPY_BYTES = 65536,  // a message of the copy through shared memory
    VB_PERF_VERIFY_EVERY = 1000, // operations of a queue pair
    VB_PERF_WHY = 256,           // room for a sentence about a failure
    VB_PERF_SLICES = 10,         // of a latency measurement, per kind
    VB_PERF_GET_MAX = 65536,     // bytes of a value
    VB_PERF_GET_DEPTH_MAX = 128,
    VB_PERF_LIST_MAX = 8, // nodes of a list
    VB_PERF_LIST_DEPTH_MAX = 64,
};

enum vb_perf_op {
    VB_PERF_READ,
    VB_PERF_WRITE,
    VB_PERF_WRITE_IMM,
    VB_PERF_SEND,
    VB_PERF_CAS,
    VB_PERF_FADD,
    VB_PERF_GET,  // a value by its key, out of a hash table at the server
    VB_PERF_IDLE, // nothing: the CPU time of two connected NICs at rest
    VB_PERF_RAW,
    VB_PERF_OPS
};

// What really carries the packets; the user's "auto" is one of these, too.
enum vb_perf_port {
    VB_PERF_UDP,
    VB_PERF_SHM,
    VB_PERF_PORTS
};

// What the target's program does while one-sided operations hit it.
enum vb_perf_target {
    VB_PERF_POLLS,
    VB_PERF_SPINS,    // on its memory, without a call of the NIC
    VB_PERF_SLEEPS,   // a millisecond at a time
    VB_PERF_COMPUTES, // and looks at its memory a few thousand times a second
    VB_PERF_TARGETS
};

// How a value is got.
enum vb_perf_via {
    VB_PERF_VIA_CHAIN,        // a chain program on the server's NIC looks it up
    VB_PERF_VIA_FARM,         // READ of a neighbourhood of buckets, then READ of the value
    VB_PERF_VIA_CHASE,        // of a list: READ of one node after the other
    VB_PERF_VIA_RPC,          // the server's program does, and polls meanwhile
    VB_PERF_VIA_RPC_BLOCKING, // or sleeps until a request comes
    VB_PERF_VIA_READ,         // no look-up at all: one READ of the value
    VB_PERF_WAYS,
    VB_PERF_VIA_ALL = VB_PERF_WAYS // in turn
};

// Where keys are whose first bucket holds another one, and how a chain looks at both.
enum vb_perf_collision {
    VB_PERF_NO_COLLISION,
    VB_PERF_SEQUENTIAL,
    VB_PERF_PARALLEL,
    VB_PERF_COLLISIONS
};

// Whose latency; measured in turn.
enum vb_perf_kind {
    VB_PERF_NIC,
    VB_PERF_ECHO,           // the yardstick: a UDP echo or, for shm, a cache line's round trip
    VB_PERF_ECHO_CONNECTED, // UDP only
    VB_PERF_KINDS
};

// One measurement, as both sides see it.
struct vb_perf_plan {
    enum vb_perf_op op;
    enum vb_service service; // RC, UC or UD
    enum vb_perf_port port;
    enum vb_perf_target target;
    enum vb_perf_via via; // of a get, as the collision
    enum vb_perf_collision collision;
    uint32_t list;   // of a get from lists: the key is in so many first nodes; 0: a hash table
    uint32_t breaks; // a chain stops at the node with the key
    uint32_t size;
    uint32_t depth; // work requests in flight per queue pair
    uint32_t qps;
    uint32_t active; // queue pairs that carry traffic: the first ones; the others are idle
    uint32_t mtu;
    uint32_t reads;    // in flight per queue pair
    uint32_t raw_size; // payload of the echo
    uint32_t timeout;  // of acknowledgements, as the verbs count it; 0: the default
    uint64_t seed;     // of patterns
};

// How long; only the client's matter.
struct vb_perf_length {
    double seconds; // of the latency phase, and of the rate phase
    uint32_t iters; // operations of each instead; 0: by time
};

// When to stop, whichever comes first.
struct vb_perf_budget {
    uint64_t end_ns;
    uint64_t ops;
};

// Latencies of one kind: quantiles of all, and the spread of the slices' medians.
struct vb_perf_latency {
    uint64_t count;
    uint64_t p50_ns; // median of the slices' medians
    uint64_t p99_ns, p999_ns;
    uint64_t p50_min_ns, p50_max_ns;
};

// Bytes that a plain copy moved through shared memory, and how long it took.
struct vb_perf_copied {
    uint64_t bytes;
    uint64_t ns;
};

// One way of a get.
struct vb_perf_way {
    struct vb_perf_latency latency;
    uint64_t rate_ops, rate_ns;
    uint64_t verified;
    uint64_t latency_rnr, rate_rnr; // requests and replies that found no receive, in each phase
};

struct vb_perf_row {
    struct vb_perf_plan plan;
    // Of the operation (but `raw`), of the raw echo, and of the raw echo with a connected client.
    struct vb_perf_latency latency[VB_PERF_KINDS];
    uint64_t rate_ops;
    uint64_t rate_ns;
    uint64_t rate_lost; // packets (raw) or messages (UC, UD) that did not arrive
    uint64_t verified;  // operations whose bytes were compared
    struct vb_perf_copied copied;
    uint64_t idle_ns;
    uint64_t cpu_ns[2];                   // the client's and the server's, meanwhile
    struct vb_perf_way way[VB_PERF_WAYS]; // of a get: those that the plan names
};

// Writes a sentence to `why` (VB_PERF_WHY bytes) and returns -1.
__attribute__((format(printf, 2, 3))) int vb_perf_fail(char *why, const char *format, ...);

#endif
