// SPDX-License-Identifier: Apache-2.0
// The contract between an attached application and the hull, the NIC in a process of its own: one
// page of doorbells, rings in shared memory, and messages over a socket that keeps their bounds.
//
// Neither side trusts the other's bytes: a message is copied, its length and every field are
// checked, and then the copy is used. Objects go by the device's numbers, and a number that is not
// the application's own does not exist for it. Memory goes by a number of the hull's and an offset.
#ifndef VB_HOST_CONTRACT_H
#define VB_HOST_CONTRACT_H

#include "nic/dev.h"
#include "verbena/nic.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    VB_HULL_MAGIC = 0x6c6c7568, // "hull"
    VB_HULL_VERSION = 1,
    VB_HULL_NAME = 64,         // bytes of a name, with the 0 that ends it
    VB_HULL_FDS = 2,           // descriptors with one message at most
    VB_HULL_CQS = 1 << 14,     // completion queues of a NIC whose numbers have a bell
    VB_HULL_CHANNEL_CQS = 128, // on one channel: so many bytes always fit into its socket
};

enum vb_hull_feature {
    VB_HULL_NAMED = 1 << 0,  // named memory
    VB_HULL_CHAINS = 1 << 1, // cross-channel queue pairs
    VB_HULL_FEATURES = (1 << 2) - 1,
};

// ---- the page

// Written by both sides. The bells are the application's to ring, `due` the hull's.
//
// Who sleeps and who rings: the application stores what it posted into the doorbell record, rings
// (an atomic exchange), and then reads `asleep`; the hull stores `asleep`, and then looks at the
// bells once more before it sleeps. All four are sequentially consistent, so in their one order
// either the ringing comes before the hull's last look, which sees it, or `asleep` was stored
// before the application reads it, which then sends a message that wakes the hull. It takes the
// word back by an exchange, so that one of its threads sends one message for each sleep.
struct vb_hull_page {
    atomic_uint asleep; // who rings must send VB_HULL_KICK: bits of units, as of struct vb_helper
    uint8_t pad[60];
    struct vb_doorbells qps;                // new work, by queue pair
    struct vb_doorbells arms;               // an arm word was written, by completion queue
    _Atomic uint64_t due[VB_HULL_CQS / 64]; // an event waits, by completion queue
};

// ---- messages

enum vb_hull_op {
    VB_HULL_HELLO = 1,     // must be the first
    VB_HULL_KICK,          // wakes; has no reply
    VB_HULL_MEMORY_CREATE, // reply: its descriptor
    VB_HULL_MEMORY_GIVE,   // with a descriptor of the application's
    VB_HULL_MEMORY_DROP,
    VB_HULL_PD_CREATE,
    VB_HULL_PD_DESTROY,
    VB_HULL_KEY_CREATE,
    VB_HULL_KEY_CHANGE,
    VB_HULL_KEY_DESTROY,
    VB_HULL_WINDOW_DESTROY,
    VB_HULL_CHANNEL_CREATE, // reply: its descriptor
    VB_HULL_CHANNEL_DESTROY,
    VB_HULL_CQ_CREATE,
    VB_HULL_CQ_MODERATE,
    VB_HULL_CQ_PRODUCED,
    VB_HULL_CQ_DESTROY,
    VB_HULL_SRQ_CREATE,
    VB_HULL_SRQ_ARM,
    VB_HULL_SRQ_LIMIT,
    VB_HULL_SRQ_DESTROY,
    VB_HULL_QP_CREATE,
    VB_HULL_QP_MODIFY,
    VB_HULL_QP_TUNE,
    VB_HULL_QP_LIMIT,
    VB_HULL_QP_STATE,
    VB_HULL_QP_PROGRESS,
    VB_HULL_QP_SETTLE,
    VB_HULL_QP_COUNTERS,
    VB_HULL_QP_DESTROY,
    VB_HULL_COUNTER,
    VB_HULL_EVENT_AGAIN, // an event (number, and value for its kind) that was taken too early
    VB_HULL_OPS,
};

// Where something lies in shared memory.
struct vb_hull_place {
    uint32_t memory; // 0: nowhere
    uint32_t reserved;
    uint64_t offset;
};

struct vb_hull_hello {
    uint32_t magic, version;
    uint32_t page_bytes, request_bytes, reply_bytes; // as the sender knows them
    uint32_t features;                               // that it needs
    char nic[VB_HULL_NAME];
};

struct vb_hull_memory {
    uint64_t bytes;
    uint32_t reserved[2];
    char name[VB_HULL_NAME]; // empty: it goes with the application
};

struct vb_hull_key {
    struct vb_hull_place at;
    uint64_t start, len;
    uint32_t pd, kind, access, reserved;
};

struct vb_hull_cq {
    struct vb_hull_place ring, record;
    uint64_t start;
    uint32_t entries, channel, ignore_overrun, reserved;
};

struct vb_hull_moderation {
    uint64_t period_ns;
    uint32_t count, reserved;
};

struct vb_hull_srq {
    struct vb_hull_place ring, record;
    uint32_t pd, entries, stride_bytes, reserved;
};

struct vb_hull_qp {
    struct vb_hull_place send, recv, record;
    uint64_t send_start, recv_start;
    uint32_t pd, type, srqn, send_cqn, recv_cqn;
    uint32_t send_blocks, recv_entries, recv_stride_bytes;
    uint32_t chain; // enum vb_qp_chain
    uint32_t fetch_depth, rate, burst;
};

struct vb_hull_tune {
    uint32_t access, min_rnr_timer;
};

struct vb_hull_limit {
    uint64_t rate_Bps;
    uint32_t burst_bytes, reserved;
};

struct vb_hull_request {
    uint32_t op;     // enum vb_hull_op
    uint32_t serial; // comes back with the reply
    uint32_t number; // of the object
    uint32_t value;  // a limit, or the index of a counter
    union {
        struct vb_hull_hello hello;
        struct vb_hull_memory memory;
        struct vb_hull_key key;
        struct vb_hull_cq cq;
        struct vb_hull_moderation moderation;
        struct vb_hull_srq srq;
        struct vb_hull_qp qp;
        struct vb_qpc_mods mods;
        struct vb_hull_tune tune;
        struct vb_hull_limit limit;
        uint8_t bytes[112];
    };
};

struct vb_hull_welcome {
    uint32_t version, page_bytes, features, units;
    uint8_t gid[16];
    uint64_t epoch;
};

struct vb_hull_reply {
    uint32_t op, serial;
    int32_t error;   // 0 or a negative errno,
    uint32_t number; // of the object that was made
    union {
        char text[VB_ERROR_TEXT]; // which says why
        struct vb_hull_welcome welcome;
        struct vb_hull_memory memory;
        struct vb_qp_progress progress;
        struct vb_qp_counters counters;
        uint64_t value;
    };
};

// An asynchronous event, on a socket of its own.
struct vb_hull_event {
    uint32_t kind; // enum vb_nic_event_kind
    uint32_t number;
};

static_assert(sizeof(struct vb_hull_request) == 128, "part of the contract");
static_assert(sizeof(struct vb_hull_reply) == 176, "part of the contract");
static_assert(sizeof(struct vb_hull_page) <= 8192, "two pages");

// One message and its descriptors, which are the caller's then; others are closed. Returns bytes, 0
// at the end of the connection, or a negative errno; -EMSGSIZE: it is longer than `size`.
int vb_contract_receive(int socket, void *message, uint32_t size, int flags, int fds[VB_HULL_FDS]);
int vb_contract_send(int socket, const void *message, uint32_t size, int flags, const int *fds,
                     uint32_t count);
// Closes descriptors that came with a message, whatever they are, without waiting for anything.
void vb_contract_close(int fds[VB_HULL_FDS]);
// The same of a connection, and of what nobody has read from it.
void vb_contract_end(int socket);
// The path of the socket of a hull's NIC: `name` is one, if there is a / in it. False: too long, or
// no directory is known.
bool vb_contract_path(const char *name, char *path, uint32_t size);

#endif
