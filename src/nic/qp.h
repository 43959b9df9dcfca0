// SPDX-License-Identifier: Apache-2.0
// A queue pair's context: the requester, completer and responder of the specification, each with
// the fields it owns.
#ifndef VB_NIC_QP_H
#define VB_NIC_QP_H

#include "base/fifo.h"
#include "nic/completion.h"
#include "nic/congestion.h"
#include "nic/cross.h"
#include "nic/dev.h"
#include "nic/share.h"
#include "nic/srq.h"
#include "nic/timer.h"
#include "nic/wr.h"
#include "wire/opcode.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_sq {
    const uint8_t *ring;
    uint32_t blocks;
    const uint32_t *dbrec;
    uint64_t start;              // counter at RESET
    uint64_t end;                // the producer's counter as last read
    uint64_t fetched;            // next block to fetch
    struct vb_wqe_source source; // what fetching needs to know of all this
    struct vb_gate gate;
};

struct vb_rq {
    const uint8_t *ring;
    uint32_t entries, stride;
    const uint32_t *dbrec;
    uint64_t start;
    uint64_t end;
    uint64_t taken; // next entry to consume
    struct vb_gate gate;
};

// Requests are one list in posting order:
//   head … (acknowledged, to be retired) … una … (in flight) … cursor … (begun) … unbegun …
//   (fetched)
struct vb_requester {
    struct vb_wr *head, *tail;
    struct vb_wr *una_wr;   // first request not fully acknowledged
    struct vb_wr *cursor;   // request of the next packet to send; NULL: all begun ones are sent
    struct vb_wr *unbegun;  // first request without sequence numbers
    uint32_t fetched_ahead; // requests from unbegun on
    uint32_t una_psn;       // oldest unacknowledged packet
    uint32_t send_psn;      // next packet to send
    uint32_t max_psn;       // one past the last packet ever sent
    uint32_t asked_psn;     // one past the last packet that asked for an ACK
    struct vb_wr *newest;   // request of the packet before max_psn, while that is in flight
    uint32_t next_psn;      // first packet of the next request to begin
    uint64_t cost_next;     // window cost of everything begun
    uint64_t cost_sent, cost_acked;
    uint32_t reads_open; // READs begun and not complete
    uint32_t reads_out;  // READ requests on the wire
    uint8_t retries_left, rnr_left;
    bool gap_seen; // went back for a lost response; not again before progress
    bool silence;  // timed out, and has heard nothing since
    bool asking;   // repeats its newest packet, with the request for an ACK
    bool begun;    // by the last step: its first packet goes before the next fetch
    enum vb_req_timer timer_kind;
    struct vb_timer timer;
    bool limited;   // the peer tells credits
    bool probe;     // one message may go beyond them, to find out
    uint32_t ssn;   // of the last request begun; the first is 1
    uint32_t limit; // the last ssn that has a receive
};

enum vb_job_kind {
    VB_JOB_READ,
    VB_JOB_ATOMIC, // raddr is the former value
    VB_JOB_DONE,   // says no more than that a FLUSH or an ATOMIC WRITE is done
};

// A request being answered by packets of its own. Replays come from duplicates of requests already
// answered.
struct vb_read_job {
    enum vb_job_kind kind;
    uint64_t raddr;
    uint32_t rkey;
    uint32_t pd;
    uint32_t len; // left to send
    uint32_t psn; // of the next response packet
    bool first;   // nothing sent yet
    bool replay;
};

enum {
    VB_READ_JOBS = 2 * VB_RD_ATOMIC_MAX
};

// What was answered by one packet, kept for a requester that did not get it.
struct vb_result {
    uint64_t old; // ATOMIC
    uint32_t psn;
    enum vb_job_kind kind; // READ: none
};

enum vb_message {
    VB_MESSAGE_NONE,
    VB_MESSAGE_SEND,
    VB_MESSAGE_WRITE
};

// What the responder owes the requester besides READ responses.
enum vb_answer {
    VB_ANSWER_NONE,
    VB_ANSWER_ACK,
    VB_ANSWER_NAK
};

// The receive entry in use, copied from the queue when a message begins.
struct vb_recv {
    uint64_t counter;
    uint32_t room;   // bytes its segments hold
    uint32_t filled; // bytes received
    uint8_t num_seg;
    bool loaded;
    struct vb_srqc *srq; // where it came from; NULL: the queue pair's own queue
    struct vb_seg seg[VB_MAX_SGE];
};

struct vb_responder {
    uint32_t epsn;
    uint32_t msn;
    enum vb_answer answer;
    uint8_t nak_syndrome;
    bool nak_sent; // silent about packets ahead until one in sequence comes
    bool closing;  // a fatal NAK is owed; the queue pair fails once it is sent
    bool gone;     // memory was refused because it is not there: our fault, not the peer's
    bool copied;   // or because it has to be copied
    bool unacked;  // something that asked for no ACK has come since the last one
    uint32_t nak_psn;
    uint32_t far_psn; // the farthest packet that was dropped since the expected one was missed
    enum vb_message message; // in progress
    uint64_t raddr;          // WRITE: next byte
    uint32_t rkey;
    uint32_t left;                         // WRITE: bytes still to come
    uint32_t written;                      // WRITE: bytes of the whole message
    uint32_t pd;                           // of the message: the queue pair's, or its XRC SRQ's
    uint32_t job_head, job_count, job_new; // ring of jobs; job_new of them are no replays
    struct vb_read_job job[VB_READ_JOBS];
    struct vb_result result[VB_RD_ATOMIC_MAX];
    uint32_t results; // ever kept
    struct vb_recv recv;
    struct vb_completion done; // the receive completion that is due
    bool told;                 // the peer has heard of credits,
    uint32_t told_limit;       // up to this message
};

enum {
    VB_CHARGE_SHIFT = 12 // an entry takes one part of a turn, and one for each 4 KB that it moves
};

struct vb_qpc {
    struct vb_link run;  // in the PU's run list
    struct vb_link wait; // for its peer's window
    struct vb_peer *peer;
    struct vb_pu *pu;
    struct vb_share_part *share; // NULL: share 0
    uint32_t qpn;
    uint32_t pd;
    enum vb_qp_type type;
    enum vb_transport transport;
    enum vb_wqe_heads heads;
    enum vb_qp_state state;
    uint32_t qkey; // UD
    uint32_t xrcd; // XRC_TGT
    struct vb_srqc *srq;
    uint32_t dest_qpn;
    uint32_t mtu, mtu_shift;
    uint32_t fetch_depth; // requests fetched ahead
    struct vb_path *path;
    struct vb_cqc *send_cq, *recv_cq;
    uint32_t access;         // remote rights granted
    uint64_t ack_timeout_ns; // 0: never
    uint8_t retry_cnt, rnr_retry;
    uint8_t max_rd_atomic, max_dest_rd_atomic;
    uint8_t min_rnr_timer;
    bool wqe_checks;
    bool be_replies;    // atomics answer big-endian
    bool loops;         // connected with itself: executed in loop.c, no packet is made
    bool plain;         // a reliable connection without cross-channel work
    bool sends_plainly; // no datagrams, and at no rate
    bool flushing;      // the request that failed has had its completion
    bool drained;       // in SQD: the event was sent, or is not wanted
    bool heard;         // a packet has come
    struct vb_ip local;
    uint16_t src_port;
    struct vb_sq sq;
    struct vb_rq rq;
    struct vb_requester req;
    struct vb_qp_counters count; // since it was created
    struct vb_responder resp;
    struct vb_congestion *congestion; // NULL: off
    struct vb_cross *cross;           // NULL: no cross-channel work
    struct vb_spread *spread;         // UD: whose receives its datagrams take; NULL: its own
    uint32_t spreads;                 // places that it has in those of others
    uint32_t entry_max;               // bytes that one entry of a loop may move,
    uint32_t charge_shift;            // and of how many it takes a further part of a turn
    struct vb_share_bill bill;
};

static inline bool vb_qpc_is_reliable(const struct vb_qpc *qp)
{
    return qp->type != VB_QPT_UC && qp->type != VB_QPT_UD;
}

static inline struct vb_accessor vb_qpc_who(const struct vb_qpc *qp)
{
    return (struct vb_accessor){qp->pd, qp->qpn};
}

// Packets that carry so many bytes; a message without any takes one.
static inline uint32_t vb_packets_of(const struct vb_qpc *qp, uint32_t len)
{
    return len <= qp->mtu ? 1 : (uint32_t)(((uint64_t)len + qp->mtu - 1) >> qp->mtu_shift);
}

// Packets of one READ request on the wire. Longer READs go out as several requests of 64 KB, so
// that the answers, too, stay within the window.
static inline uint32_t vb_read_segment(const struct vb_qpc *qp)
{
    return (64u * 1024) >> qp->mtu_shift;
}

static_assert(sizeof(struct vb_qpc) <= 4096, "an idle queue pair stays small");

#endif
