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
    VB_HULL_VERSION = 2,
    VB_HULL_NAME = 64,              // bytes of a name, with the 0 that ends it
    VB_HULL_FDS = 2,                // descriptors with one message at most
    VB_HULL_CQS = 1 << 14,          // completion queues of a NIC whose numbers have a bell
    VB_HULL_CHANNEL_CQS = 128,      // on one channel: so many bytes always fit into its socket
    VB_HULL_FAULTS_TEXT = 4096,     // bytes of the rules of an application's faults
    VB_HULL_TRACE_MAX = 256 * 1024, // bytes of the ring of an application's trace
};

enum vb_hull_feature {
    VB_HULL_NAMED = 1 << 0,    // named memory
    VB_HULL_CHAINS = 1 << 1,   // cross-channel queue pairs
    VB_HULL_SERVICES = 1 << 2, // sessions with a name, which outlive their connection
    VB_HULL_FEATURES = (1 << 3) - 1,
};

// ---- the page

// Written by both sides. The bells are the application's to ring, `due` the hull's. There is one
// for each unit of the NIC, one behind the other: who has rung for a queue of a unit is seen by
// that unit alone. `asleep` and `due` are of the first one, for all.
//
// Who sleeps and who rings: the application stores what it posted into the doorbell record, rings
// (an atomic exchange), and then reads `asleep`; the hull stores `asleep`, and then looks at the
// bells once more before it sleeps. All four are sequentially consistent, so in their one order
// either the ringing comes before the hull's last look, which sees it, or `asleep` was stored
// before the application reads it, which then sends a message that wakes the hull. Units sleep each
// for itself, and have a bit each; the application takes back those that it rang for, so that one
// of its threads sends one message for each sleep.
struct vb_hull_page {
    atomic_uint asleep; // who rings must send VB_HULL_KICK: bits of units, as of struct vb_helper
    uint8_t pad[60];
    struct vb_doorbells qps;                // new work, by queue pair
    struct vb_doorbells arms;               // an arm word was written, by completion queue
    _Atomic uint64_t due[VB_HULL_CQS / 64]; // an event waits, by completion queue
};

#define VB_HULL_PAGE_STRIDE UINT64_C(8192) // from one unit's to the next one's

static inline uint64_t vb_hull_page_bytes(uint32_t units)
{
    return (units - 1) * VB_HULL_PAGE_STRIDE + sizeof(struct vb_hull_page);
}

// A unit's own, of all of them.
static inline struct vb_hull_page *vb_hull_page_of(struct vb_hull_page *first, uint32_t unit)
{
    return (struct vb_hull_page *)(void *)((uint8_t *)first + unit * VB_HULL_PAGE_STRIDE);
}

// ---- messages

enum vb_hull_op {
    VB_HULL_HELLO = 1,     // must be the first
    VB_HULL_KICK,          // wakes the units whose bits are in value, 0: all; has no reply
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
    // programs
    VB_HULL_PROGRAM_CREATE,
    VB_HULL_PROGRAM_STOP,
    VB_HULL_PROGRAM_QUERY,
    VB_HULL_PROGRAM_DESTROY,
    // the clock
    VB_HULL_CLOCK, // reply: a memory that can be read, and its descriptor
    // queues by hand
    VB_HULL_QP_SHARE,
    VB_HULL_CQ_SHARE, // with the place of its register
    // services
    VB_HULL_SERVICE,         // right after the greeting: the session has this name (memory.name).
                             // Reply: the page to use instead of the greeting's
    VB_HULL_SERVICE_RELEASE, // the name ends, and the session with its connection
    VB_HULL_SERVICE_NEXT,    // of a kind (value), the object made after this number; 0: the first
    VB_HULL_MEMORY_AT,       // where the application has mapped a memory (key.start), once
    VB_HULL_MEMORY_OPEN,     // of named memory, or of a service; reply: its descriptor again
    VB_HULL_CHANNEL_OPEN,    // reply: another descriptor, for who has taken the session over
    VB_HULL_SRQ_PROGRESS,
    // operations
    VB_HULL_ACCOUNT, // reply: what the application's user has and may have
    // ---- domains of XRC, groups, spreading, managers
    VB_HULL_XRCD_CREATE,
    VB_HULL_KEY_FIND,  // reply: where it is
    VB_HULL_CQ_RESIZE, // reply: the counter of the oldest entry that is still there
    VB_HULL_QP_JOIN,
    VB_HULL_QP_LEAVE,
    VB_HULL_QP_SPREAD,
    VB_HULL_SEAT_TAKE, // of a connection manager; reply: what its ids begin with, and a socket of
                       // events (below) of queue pairs whose first packet came
    VB_HULL_PORT_TAKE, // number is the port, value its space
    VB_HULL_PORT_GIVE,
    VB_HULL_COPY_BEGIN, // memory that is not shared may be registered from now on
    VB_HULL_XRCD_DESTROY,
    VB_HULL_FAULTS, // rules for the frames and requests of its own queue pairs
    VB_HULL_TRACE,  // of the frames of its own queue pairs, in a ring of `value` bytes; 0: stops
    VB_HULL_TRACE_READ, // copies it to a place; reply: the ring's bytes
    VB_HULL_ADDRESS,    // the NIC's, by its number; reply: the address
    VB_HULL_OPS,
};

// Of a service, what VB_HULL_SERVICE_NEXT can go through.
enum vb_hull_listed {
    VB_HULL_LIST_MEMORY,
    VB_HULL_LIST_PD,
    VB_HULL_LIST_REGION,
    VB_HULL_LIST_WINDOW,
    VB_HULL_LIST_CHANNEL,
    VB_HULL_LIST_CQ,
    VB_HULL_LIST_PROGRAM,
    VB_HULL_LIST_SRQ,
    VB_HULL_LIST_QP,
    VB_HULL_LISTS,
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
    uint32_t rings; // 1: the driver's own, for rings
    uint32_t reserved;
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
    uint32_t entries, channel, ignore_overrun;
    uint32_t unit; // counted from the one that the hull has given the application, and on from the
                   // last to the first; the reply's value is the NIC's own number of it. Of one
                   // that a service has: that number
};

struct vb_hull_moderation {
    uint64_t period_ns;
    uint32_t count, reserved;
};

struct vb_hull_srq {
    struct vb_hull_place ring, record;
    uint32_t pd, entries, stride_bytes;
    uint32_t xrcd, cqn; // 0 and 0: not for XRC
    uint32_t reserved;
};

#define VB_HULL_QP_MANAGES 0x80000000u // in `chain`: it is to be a management queue pair

struct vb_hull_qp {
    struct vb_hull_place send, recv, record;
    uint64_t send_start, recv_start;
    uint32_t pd, type;
    uint32_t srqn; // of an XRC target: its domain of XRC
    uint32_t send_cqn, recv_cqn;
    uint32_t send_blocks, recv_entries, recv_stride_bytes;
    uint32_t chain; // enum vb_qp_chain
    uint32_t fetch_depth, rate, burst;
};

struct vb_hull_program {
    uint32_t pd, limit, audit_cqn, reserved;
};

struct vb_hull_share {
    struct vb_hull_place bell;
};

struct vb_hull_find {
    uint64_t start, len;
    uint32_t pd, key, access, reserved;
};

// A word of the application's: the hull looks whether it finds it there.
struct vb_hull_proof {
    uint64_t at, word;
};

struct vb_hull_resize {
    struct vb_hull_place ring;
    uint64_t consumed; // entries before it have been taken
    uint32_t entries, reserved;
};

struct vb_hull_group {
    uint8_t gid[16];
};

// The numbers of the members, 32 bits each, lie in shared memory.
struct vb_hull_spread {
    struct vb_hull_place members;
    uint32_t count, fields;
    uint8_t key[40];
};

// What a manager's communication ids begin with.
struct vb_hull_prefix {
    uint32_t prefix, bits;
};

// A text, of which the last byte is 0, or room for bytes.
struct vb_hull_text {
    struct vb_hull_place at;
    uint32_t bytes, reserved;
};

struct vb_hull_tune {
    uint32_t access, min_rnr_timer, qkey, reserved;
};

struct vb_hull_limit {
    uint64_t rate_Bps;
    uint32_t burst_bytes, reserved;
};

struct vb_hull_request {
    uint32_t op;     // enum vb_hull_op
    uint32_t serial; // comes back with the reply
    uint32_t number; // of the object; of one that is made, the tag that a service finds it by
    uint32_t value;  // a limit, the index of a counter, or the program of a queue pair that is made
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
        struct vb_hull_program program;
        struct vb_hull_share share;
        struct vb_hull_find find;
        struct vb_hull_proof proof;
        struct vb_hull_resize resize;
        struct vb_hull_group group;
        struct vb_hull_spread spread;
        struct vb_hull_text text;
        uint8_t bytes[112];
    };
};

struct vb_hull_welcome {
    uint32_t version, page_bytes, features, units;
    uint8_t gid[16];
    uint64_t epoch;
};

struct vb_hull_executed {
    uint64_t entries;
    uint32_t stopped, reserved;
};

struct vb_hull_session {
    uint32_t lives; // connections before this one; 0: the service is new
    uint32_t reserved;
};

// The number is 0 behind the last one.
struct vb_hull_listing {
    uint32_t kind; // enum vb_hull_listed
    uint32_t reserved;
    uint64_t at;                 // of memory: where it was mapped first; 0: nowhere yet
    struct vb_hull_request made; // by which it was made; the tag is its number
};

// Of a user, without the one who asks.
struct vb_hull_resources {
    uint64_t applications, queue_pairs, queues, regions, entries, bytes, memories;
};

struct vb_hull_account {
    uint32_t uid;
    uint32_t named; // memories with a name
    struct vb_hull_resources has, may;
    uint64_t rate_kbps, refused;
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
        struct vb_hull_executed executed;
        struct vb_hull_session session;
        struct vb_hull_listing listing;
        struct vb_srq_progress srq_progress;
        struct vb_hull_account account;
        struct vb_hull_place place;
        struct vb_hull_prefix prefix;
        uint8_t gid[16];
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
static_assert(sizeof(struct vb_hull_page) <= VB_HULL_PAGE_STRIDE, "two pages");

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

// ---- contract_ask.c
// What this user has at a hull, by its name or path. 0 or a negative errno, with words.
int vb_contract_account(const char *name, uint64_t timeout_ns, struct vb_hull_account *account,
                        char text[VB_ERROR_TEXT]);

#endif
