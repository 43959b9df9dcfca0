// SPDX-License-Identifier: Apache-2.0
// One queue pair of the simulation: the driver's half, what its host posted, and what the reference
// model knows about both of its roles. Packets are counted from the connection's start in 64 bits,
// so the model has no wraps to get wrong.
#ifndef VB_SIM_ENDPOINT_H
#define VB_SIM_ENDPOINT_H

#include "host/driver.h"
#include "nic/dev.h"
#include "sim/excuse.h"
#include "sim/memory.h"
#include "sim/storm.h"
#include "sim/window.h"

enum {
    VB_SIM_INLINE_MAX = 200,
    VB_SIM_RESULTS = 64, // results of atomics and their like remembered, to judge late answers
    VB_SIM_TURN = 64,    // packets of a queue pair before the next one's turn
    VB_SIM_OWED = 2 * VB_RD_ATOMIC_MAX, // answers that a responder can owe at once
};

struct vb_node;
struct vb_conn;
struct vb_simsrq;

struct vb_work_atomic {
    uint64_t swap_add, compare, swap_mask, compare_mask;
    uint32_t bytes;
};

struct vb_work_flush {
    uint32_t len;
    bool whole_region;
    bool persistent; // the driver has no word for it: it is written into the entry
};

// Where a datagram goes.
struct vb_work_to {
    struct vb_ip addr;
    uint32_t qpn, qkey;
};

// A send work request as posted.
struct vb_work {
    uint64_t wr_id;
    uint64_t counter; // first block in the ring
    enum vb_wr_opcode opcode;
    uint32_t flags;
    uint32_t len, num_sge;
    struct vb_sge sge[VB_MAX_SGE];
    uint64_t raddr;
    uint32_t rkey;
    uint32_t imm;  // …_INVAL: the key
    uint32_t srqn; // XRC
    union {
        struct vb_work_atomic atomic;
        struct vb_hostwin_wish bind;
        struct vb_work_flush flush;
    };
    struct vb_work_to to; // of a datagram
    bool counts;          // adds one to a counter that nobody else changes
    int64_t first;        // packet
    uint32_t psns;
    uint32_t ssn;          // its number among the peer's messages
    uint64_t bytes_before; // payload bytes of all earlier requests
    bool malformed;
    uint64_t slot_end; // local memory that is free again after this request
    uint8_t inlined[VB_SIM_INLINE_MAX];
};

// A receive work request as posted.
struct vb_intake {
    uint64_t wr_id;
    uint64_t counter;
    uint32_t num_sge;
    uint32_t room; // bytes
    struct vb_sge sge[VB_MAX_SGE];
    uint64_t slot_end;
    struct vb_simsrq *srq; // where it came from; NULL: the queue pair's own queue
};

// The model's requester. Positions count work requests since the connection's start.
struct vb_asking {
    uint32_t psn0;
    int64_t una, cursor, sent_end; // packets: unacknowledged, next to send, one past the last sent
    int64_t asked_end;             // one past the last packet in flight that asked for an ACK
    bool ask_due;                  // nothing in flight asked for too long
    int64_t next_first;            // packet of the next request to be posted
    uint64_t bytes_posted;
    uint64_t posted, fetched, begun, done, retired, polled; // positions
    uint32_t unsignaled_run;
    uint8_t retries_left, rnr_left;
    uint8_t tries_healed; // attempts since the last progress that nothing could harm
    bool gap_seen;
    bool rnr_wait;
    uint64_t rnr_until_ns;
    bool armed;            // the acknowledgement timer runs
    uint64_t armed_ns;     // since when
    bool went_back;        // has gone back and sent nothing since
    uint64_t resent_ns;    // or since then at the latest, if a credit was waited for
    uint32_t ssn;          // messages begun; READ segments are messages
    bool limited;          // by credits,
    uint32_t limit;        // up to this message
    bool may_probe;        // one may go beyond
    bool held;             // its next request waits for a credit,
    uint64_t held_ns;      // since then; the last time, if it does not,
    uint64_t held_by_ns;   // and asks by then; 0: not known
    int64_t held_at;       // the packet that waits
    bool drained;          // SQD: the host has been told
    bool was_drained;      // in the poll that is being judged
    uint8_t fail_syndrome; // why the request at `done` failed; VB_SYN_OK: it has not
    bool may_flush;        // failed by the host or the responder: no request is to blame
    bool flushing;         // an error completion has been seen
};

// A request that got lost, or an answer.
struct vb_loss {
    uint64_t key;   // of the frame; 0: of none
    int64_t packet; // that it asks for or answers
    bool answer;
    enum vb_excuse why;
};

// What became of the frames of a requester: its requests and the answers to them.
struct vb_fate {
    int64_t under_way;    // copies
    uint32_t went_back;   // how often
    struct vb_loss *loss; // since it went back last
    uint32_t losses, room;
    int64_t given_up_end; // the same of those whose answer the peer cannot give any more
};

enum vb_owed_kind {
    VB_OWED_READ,
    VB_OWED_ATOMIC, // the former value
    VB_OWED_DONE    // nothing but that it is done
};

// The result of an atomic, an ATOMIC WRITE or a FLUSH that was executed.
struct vb_single {
    int64_t packet;
    enum vb_owed_kind kind;
    uint64_t old;
};

// An answer of its own that has not left, or not all of it.
struct vb_owed {
    enum vb_owed_kind kind;
    int64_t next, end; // packets
    uint64_t raddr;    // READ: of the next packet; ATOMIC: the former value
    uint32_t rkey, pd;
    uint32_t left; // bytes
    bool begun;    // its first packet has left
    bool again;    // a duplicate asked for it
};

enum vb_sim_message {
    VB_SIM_NO_MESSAGE,
    VB_SIM_SEND_MESSAGE,
    VB_SIM_WRITE_MESSAGE
};

// The model's responder.
struct vb_answering {
    uint32_t psn0;
    int64_t epsn;
    int64_t acked; // one past the last packet that an answer acknowledged
    uint32_t msn;
    uint32_t pd;           // that the message works in
    struct vb_simsrq *srq; // XRC: that it names
    bool last_told;        // ERR: that no shared receive is in use any more
    enum vb_sim_message message;
    uint32_t filled; // SEND: bytes so far
    uint64_t raddr;  // WRITE: next byte
    uint32_t rkey, left, whole;
    uint64_t posted, taken, done, polled; // receives; shared ones are posted when they are taken
    uint8_t done_syndrome;                // of the receive whose completion is due
    bool done_due;
    uint8_t done_opcode; // enum vb_cqe_opcode
    uint32_t done_bytes;
    uint32_t done_imm;
    uint32_t done_src_qpn; // of a datagram
    bool done_solicited;
    bool heard;   // a packet has come on this connection
    int64_t far;  // the farthest packet dropped since then
    bool silent;  // has complained about a gap or a missing receive
    bool nak_due; // a complaint is owed
    uint8_t nak_syndrome;
    bool closing; // a fatal NAK is owed
    bool ack_due;
    bool unasked;        // the last packet executed asked for no ACK,
    bool unacked;        // or one before it, since the last ACK
    bool told;           // its peer has heard of credits,
    uint32_t told_limit; // up to this message,
    uint32_t ack_limit;  // and by the last ACK up to this one
    struct vb_single single[VB_SIM_RESULTS];
    uint32_t single_count;            // ever; the ring holds the last ones
    struct vb_owed owed[VB_SIM_OWED]; // in the order in which they leave
    uint32_t owed_count;
    uint32_t passed_by, passed; // the last one that sent while it owed, and packets of that
};

// A ring of bytes from which buffers are taken and given back in order.
struct vb_slots {
    struct vb_region *region;
    uint64_t head, tail;
};

struct vb_ep_opts {
    enum vb_service service;
    uint32_t srq;    // of the node, from 1 on; 0: it has receives of its own
    uint32_t xrcd;   // XRC_RECV
    uint32_t domain; // of the node
    uint32_t cq[2];  // of the node: send, receive
    uint32_t send_depth, recv_depth, send_sge, recv_sge, inline_bytes;
    uint64_t sq_start, rq_start;
    uint32_t local_bytes, recv_bytes; // of its regions
    uint32_t recv_room;               // of an ordinary receive; SENDs to it are not longer
};

// Attributes of the current connection.
struct vb_ep_link {
    uint32_t access;
    uint32_t mtu;
    uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
    uint8_t max_rd_atomic, max_dest_rd_atomic;
    uint16_t src_port;
    uint32_t qkey; // UD
};

// The model's books of congestion control, in the arithmetic of the paper (sim/model_rate.c).
struct vb_paced {
    bool connected;    // it knows its peer, since RTR
    bool cnp_due;      // a marked packet has come
    uint64_t quiet_ns; // and no CNP leaves before
    bool limited;
    bool unsure;         // rounding may have put the NIC on the other side of the limit
    double rate, target; // bytes a nanosecond
    double alpha;
    double free_ns; // until then what was sent takes
    // How far the NIC's whole numbers may be from these.
    double rate_off, target_off, alpha_off, free_off_ns;
    double latest_ns; // a queue pair that waits since then goes on by this time
    // It was at rest and waited for nothing but a rate, since `held_ns` (0: it did not); the timers
    // of its unit were due next at `timers_ns` then. The last such wait ended at `freed_ns`.
    uint64_t held_ns, timers_ns, freed_ns;
    uint64_t rise_ns, decay_ns;
    uint64_t bytes; // since the last step up by bytes
    uint32_t time_stage, byte_stage;
};

struct vb_ep {
    struct vb_node *node;
    struct vb_conn *conn;
    struct vb_ep *peer;
    struct vb_ep_opts opts;
    struct vb_ep_link link;
    struct vb_driver_qp drv;
    uint32_t qpn;
    uint32_t pd;
    enum vb_qp_state state;
    uint32_t first_psn;        // of the next connection, or of this one
    uint64_t starved_until_ns; // gets no receives before
    bool muted;                // posts no more requests on this connection
    bool saw_error;            // its host knows that the connection has failed
    uint64_t next_wr_id;
    struct vb_slots local, recv;
    struct vb_simsrq *srq;    // NULL: none, or XRC
    struct vb_window *window; // of type 2, for its peer
    uint32_t keys_planned;    // changes of keys in the batch being drawn
    uint32_t works_mask, intakes_mask;
    struct vb_work *works;     // by position
    struct vb_intake *intakes; // by position
    struct vb_asking ask;
    struct vb_answering answer;
    struct vb_paced paced;
    struct vb_fate fate;
    struct vb_storm storm;
};

static inline bool vb_ep_is_xrc_target(const struct vb_ep *ep)
{
    return ep->opts.service == VB_SERVICE_XRC_RECV;
}

static inline bool vb_ep_is_xrc(const struct vb_ep *ep)
{
    return ep->opts.service == VB_SERVICE_XRC_SEND || vb_ep_is_xrc_target(ep);
}

// Receives come from shared queues.
static inline bool vb_ep_shares(const struct vb_ep *ep)
{
    return ep->opts.srq || vb_ep_is_xrc_target(ep);
}

static inline struct vb_work *vb_ep_work(struct vb_ep *ep, uint64_t position)
{
    return &ep->works[position & ep->works_mask];
}

static inline struct vb_intake *vb_ep_intake(struct vb_ep *ep, uint64_t position)
{
    return &ep->intakes[position & ep->intakes_mask];
}

static inline struct vb_user vb_ep_user(const struct vb_ep *ep)
{
    return (struct vb_user){ep->pd, ep->qpn};
}

// UC or UD: a request is done when it is sent.
static inline bool vb_ep_is_unreliable(const struct vb_ep *ep)
{
    return ep->opts.service == VB_SERVICE_UC || ep->opts.service == VB_SERVICE_UD;
}

// Only an answer of its own completes such a request.
static inline bool vb_work_awaits(const struct vb_work *work)
{
    return work->opcode == VB_WR_READ || (work->opcode >= VB_WR_CAS && work->opcode <= VB_WR_FLUSH);
}

static inline bool vb_work_is_atomic(const struct vb_work *work)
{
    return work->opcode >= VB_WR_CAS && work->opcode <= VB_WR_MASKED_FADD;
}

// Changes a memory key of its own NIC; sends nothing.
static inline bool vb_work_changes_key(const struct vb_work *work)
{
    return work->opcode == VB_WR_BIND || work->opcode == VB_WR_LOCAL_INVAL;
}

static inline bool vb_work_sends(const struct vb_work *work)
{
    return work->opcode == VB_WR_SEND || work->opcode == VB_WR_SEND_IMM ||
           work->opcode == VB_WR_SEND_INVAL;
}

static inline bool vb_work_writes(const struct vb_work *work)
{
    return work->opcode == VB_WR_WRITE || work->opcode == VB_WR_WRITE_IMM;
}

// Makes the driver's half, which tells how long its queues are; then the NIC's half and the memory.
int vb_ep_prepare(struct vb_ep *ep, const struct vb_ep_opts *opts);
int vb_ep_create(struct vb_ep *ep);
// A new queue pair in the place of the old one, with another number; also in two parts.
int vb_ep_recreate(struct vb_ep *ep);
int vb_ep_remove(struct vb_ep *ep);
int vb_ep_renew(struct vb_ep *ep);
void vb_ep_destroy(struct vb_ep *ep);

// A signaled request is done and has no completion yet.
bool vb_ep_owes_completion(struct vb_ep *ep);
// Everything posted is over and what tells of it has been polled.
bool vb_ep_is_drained(struct vb_ep *ep);

// A buffer of `len` bytes from the slots; false: no room. *end is what to give back later.
bool vb_slots_take(struct vb_slots *s, uint32_t len, uint32_t *offset, uint64_t *end);

#endif
