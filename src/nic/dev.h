// SPDX-License-Identifier: Apache-2.0
// The device from outside: create its objects, run its processing unit. No I/O, no clock, no
// threads: frames and the time go in, frames and the next deadline come out.
#ifndef VB_NIC_DEV_H
#define VB_NIC_DEV_H

#include "nic/counters.h"
#include "nic/dcqcn.h"
#include "nic/doorbell.h"
#include "nic/frame.h"
#include "nic/memory.h"
#include "nic/step.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_dev;
struct vb_pu;

enum vb_qp_state {
    VB_QPS_RESET,
    VB_QPS_INIT,
    VB_QPS_RTR,
    VB_QPS_RTS,
    VB_QPS_SQD, // the send queue drains: what was begun is finished, no more begins
    VB_QPS_SQE, // a request of an unreliable service failed: its queue is flushed, receiving goes
                // on
    VB_QPS_ERR,
    VB_QPS_COUNT,
};

enum vb_qp_type {
    VB_QPT_RC,
    VB_QPT_UC,
    VB_QPT_UD,
    VB_QPT_XRC_INI, // sends
    VB_QPT_XRC_TGT, // receives, into shared receive queues that the sender names
    VB_QPT_COUNT,
};

enum {
    VB_QPN_OF_GROUP = 0xffffff, // all members
    VB_RETRY_INFINITE = 7,      // of rnr_retry (clause 9.7.5.2.8)
    VB_RD_ATOMIC_MAX = 16,      // READs and atomics accepted in flight, and the default either way
    VB_RD_ATOMIC_OUT_MAX = 128, // asked for in flight: as many as Linux accepts
    VB_PUS_MAX = 16,
    VB_CQ_ENTRIES_MAX = 1 << 22,
    VB_SQ_BLOCKS_MAX = 1 << 15, // half the range of the 16-bit counters
    VB_RQ_ENTRIES_MAX = 1 << 15,
};

enum vb_event_kind {
    VB_EVENT_QP_FATAL,      // the queue pair failed: it or its peer did wrong
    VB_EVENT_QP_REQ_ERR,    // a peer's request was malformed
    VB_EVENT_QP_ACCESS_ERR, // a peer's request had no right
    VB_EVENT_COMM_EST,      // the first packet came while in RTR
    VB_EVENT_SQ_DRAINED,    // SQD: all that was begun is done
    VB_EVENT_QP_LAST_WQE,   // no more receive of a shared queue will complete on it
    VB_EVENT_CQ_ERR,        // the completion queue overran
    VB_EVENT_SRQ_LIMIT,     // fewer receives are left than the limit
    VB_EVENT_CQ_COMPLETION, // an armed completion queue has an entry
    VB_EVENT_COUNT,
};

struct vb_event {
    enum vb_event_kind kind;
    uint32_t number; // of the queue pair, completion queue or shared receive queue
};

// Asked at certain moments, to make faults on purpose.
struct vb_dev_hooks {
    void *ctx;
    // A request (WQE opcode) or, with `receive`, a receive is about to complete well: VB_SYN_OK, or
    // how it must fail instead.
    uint8_t (*completion)(void *ctx, uint32_t qpn, uint8_t wqe_opcode, bool receive);
    // A request is about to begin: whether its queue pair must fail now.
    bool (*request)(void *ctx, uint32_t qpn);
};

struct vb_dev_opts {
    uint32_t pus;                // processing units: a power of two up to VB_PUS_MAX; 0: one
    uint64_t seed;               // of keys and queue pair numbers
    uint64_t secret;             // more of it: 64 bits can be tried, 128 cannot
    uint32_t window_bytes;       // in flight to one peer, of all queue pairs; 0: the default
    uint32_t window_limit_bytes; // what it may grow to while nothing gets lost
    uint32_t fetch_depth;        // send WQEs fetched ahead per queue pair; 0: the default
    uint32_t lend_bytes;   // payloads from this length on stay where they are until the port takes
                           // them (see vb_pu_tx_keep); 0: all are copied
    bool hold_completions; // until vb_pu_publish(): after the port has the answers that go with
                           // them, so that who sees a completion and exits leaves no peer waiting
    const struct vb_mem_guard *guard; // looks after the memory of all regions; NULL: nobody does
    const struct vb_mem_guard *region_guard; // of those that ask for it
    bool check_zero_length; // the keys of zero-length WRITEs and READs, too, against clause C9-88
    bool no_credits;        // neither tells peers of receives nor waits for theirs (clause 9.7.7.2)
    const struct vb_dcqcn_params *dcqcn; // congestion control; NULL: off
    // Queue pair numbers it may give, both multiples of 2^14; count 0: all.
    uint32_t qpn_base, qpn_count;
};

struct vb_cqc_attr {
    uint32_t pu;         // the unit that owns it; queue pairs live on that of their send queue
    void *ring;          // entries * 64 bytes, all op_own bytes with VB_CQE_INVALID
    uint32_t entries;    // power of two
    uint32_t *dbrec;     // two words
    uint64_t start;      // counter to start from; only tests use other than 0
    bool ignore_overrun; // entries that nobody took are overwritten; they count all the same
    uint32_t owner;      // who WAITs for it has a send queue of the same one
};

struct vb_srqc_attr {
    uint32_t pd;
    void *ring;            // entries in a linked list: see struct vb_wqe_srq_next
    uint32_t entries;      // power of two
    uint32_t stride_bytes; // power of two, 32 to 512
    uint32_t *dbrec;       // one word: entries ever posted
    uint32_t xrcd;         // 0: not for XRC
    uint32_t cqn;          // of an XRC queue: where its completions go
};

struct vb_qpc_attr {
    uint32_t pd;
    enum vb_qp_type type;
    uint32_t srqn; // 0: a receive queue of its own
    uint32_t xrcd; // XRC_TGT
    uint32_t send_cqn, recv_cqn;
    void *sq_ring;
    uint32_t sq_blocks; // power of two
    void *rq_ring;
    uint32_t rq_entries;         // power of two, 0: cannot receive
    uint32_t rq_stride_bytes;    // power of two, 16 to 256
    uint32_t *dbrec;             // two words
    uint64_t sq_start, rq_start; // counters to start from; only tests use other than 0
    bool no_wqe_checks;          // ignore idx and qpn in control segments (chain programs)
    bool be_replies;             // former values that atomics answer with are big-endian
    // Chain programs, on reliable connections. A queue pair connected with itself makes no packets.
    bool cross_channel;              // WAIT, SEND_EN, RECV_EN and CALC are legal
    bool managed_send, managed_recv; // only what SEND_EN or RECV_EN allows is executed
    uint32_t fetch_depth;            // of a loop; 0: as the device's
    uint32_t rate, burst;            // entries per second, and at once; 0: no limit
    uint32_t program;                // 0: none
    bool gsi;                        // the management queue pair, number VB_QPN_GSI: datagrams
    uint32_t share;                  // whose work it is; 0: everybody else's
};

enum {
    VB_QPN_GSI = 1
};

struct vb_program_attr {
    uint32_t pd;
    uint32_t limit;     // entries executed for each request that comes in; 0: any number
    uint32_t audit_cqn; // gets a completion for each executed entry; 0: nobody asks
};

enum {
    VB_SHARE_WEIGHT = 100, // the usual one
    VB_SHARE_WEIGHT_MAX = 1000,
};

#define VB_SHARE_RATE_MAX (UINT64_C(1) << 48)

// Whose queue pairs a unit serves, and by which part of its turns (share.h).
struct vb_share_attr {
    uint32_t weight;   // 0: the usual one
    uint64_t rate_Bps; // of all that its queue pairs send, READ requests, atomics and
                       // acknowledgements aside; 0: no limit. Units that have some have equal
                       // parts of it
    uint32_t burst_bytes;
};

struct vb_share_facts {
    uint32_t weight, queue_pairs;
    uint64_t rate_Bps;
    uint64_t units; // of work that it was billed for, while there was more than one share
    uint64_t turns;
    bool waits; // it has work
};

// What a transition needs; fields of other transitions are ignored.
struct vb_qpc_mods {
    enum vb_qp_state state;
    // to INIT
    uint32_t access; // remote rights this queue pair grants (VB_REMOTE_…)
    uint32_t qkey;   // UD
    // to RTR
    uint32_t dest_qpn;
    uint32_t rq_psn;
    uint32_t mtu_bytes;         // 256, 512, 1024, 2048 or 4096
    uint8_t max_dest_rd_atomic; // READs accepted in flight
    uint8_t min_rnr_timer;      // code of clause 9.7.5.2.8
    struct vb_ip local, remote;
    uint16_t src_port;
    // to RTS
    uint32_t sq_psn;
    uint8_t timeout;   // 4.096 us * 2^timeout; 0: never
    uint8_t retry_cnt; // 0 to 7
    uint8_t rnr_retry; // 0 to 6, or VB_RETRY_INFINITE
    uint8_t max_rd_atomic;
    uint8_t silent;           // to SQD: not 0: no event when the send queue has drained
    struct vb_path_attr attr; // to RTR, but of UD, whose requests name theirs
};

struct vb_dev *vb_dev_create(const struct vb_dev_opts *opts); // NULL: no memory
void vb_dev_destroy(struct vb_dev *dev);
void vb_dev_hook(struct vb_dev *dev, const struct vb_dev_hooks *hooks);      // NULL: none
void vb_dev_copy_by(struct vb_dev *dev, const struct vb_mem_copier *copier); // before the first
struct vb_pu *vb_dev_pu(struct vb_dev *dev);                                 // the first
struct vb_pu *vb_dev_pu_at(struct vb_dev *dev, uint32_t index);
struct vb_doorbells *vb_dev_doorbells(struct vb_dev *dev); // the first unit's

// A device on several addresses is told of all, the first one first (address.c). -ENOSPC.
enum {
    VB_DEV_ADDRESSES = 4
};
int vb_dev_add_address(struct vb_dev *dev, const struct vb_ip *ip);
bool vb_dev_address(const struct vb_dev *dev, uint32_t i, struct vb_ip *ip); // false: no such one
// The one to reach a peer from: of its kind (loopback or not, and the family), else of its family,
// else `first`.
const struct vb_ip *vb_dev_source(const struct vb_dev *dev, const struct vb_ip *to,
                                  const struct vb_ip *first);

struct vb_doorbells *vb_pu_doorbells(struct vb_pu *pu);

// All of these return 0 or a negative errno: -EINVAL for an attribute out of range, -ENOENT for an
// object that does not exist, -EBUSY for one in use, -ENOMEM for a limit reached.
int vb_dev_pd_create(struct vb_dev *dev, uint32_t *pd);
int vb_dev_pd_destroy(struct vb_dev *dev, uint32_t pd);
int vb_dev_mkey_create(struct vb_dev *dev, const struct vb_mkey_attr *attr, uint32_t *key);
int vb_dev_mkey_destroy(struct vb_dev *dev, uint32_t key);
// As a queue pair of the domain would find the memory.
enum vb_mem_refusal vb_dev_mkey_judge(struct vb_dev *dev, struct vb_accessor who, uint32_t key,
                                      uint64_t addr, uint64_t len, enum vb_access need,
                                      uint8_t **ptr);
int vb_dev_mkey_change(struct vb_dev *dev, uint32_t key, const struct vb_mkey_attr *attr);
int vb_dev_window_destroy(struct vb_dev *dev, uint32_t key); // whatever its lowest byte is now
int vb_dev_srq_create(struct vb_dev *dev, const struct vb_srqc_attr *attr, uint32_t *srqn);
int vb_dev_srq_destroy(struct vb_dev *dev, uint32_t srqn);
// An event when fewer entries than `limit` are left; 0: none. Once only.
int vb_dev_srq_arm(struct vb_dev *dev, uint32_t srqn, uint32_t limit);
// That limit; 0 once its event has come.
int vb_dev_srq_limit(struct vb_dev *dev, uint32_t srqn, uint32_t *limit);
struct vb_srq_progress {
    uint64_t taken; // entries ever
    uint32_t head;  // index of the next one
};
int vb_dev_srq_progress(struct vb_dev *dev, uint32_t srqn, struct vb_srq_progress *progress);
int vb_dev_cq_create(struct vb_dev *dev, const struct vb_cqc_attr *attr, uint32_t *cqn);
// Another ring, into which the host has moved the entries that wait. -EINVAL.
int vb_dev_cq_resize(struct vb_dev *dev, uint32_t cqn, void *ring, uint32_t entries);
// The same for who cannot keep the unit from running: entries from *consumed on are moved here, or,
// if they may be overwritten, as many as fit, and *consumed says where they begin.
int vb_dev_cq_move(struct vb_dev *dev, uint32_t cqn, uint64_t *consumed, void *ring,
                   uint32_t entries);
// The arm word was written: an event may be due for what is there already.
// Events wait for `count` entries, or `period_ns` since the first; 0 and 0: not at all.
int vb_dev_cq_moderate(struct vb_dev *dev, uint32_t cqn, uint32_t count, uint64_t period_ns);
int vb_dev_cq_armed(struct vb_dev *dev, uint32_t cqn);
int vb_dev_cq_destroy(struct vb_dev *dev, uint32_t cqn);
// Entries ever produced, as WAIT counts them; units may run meanwhile.
int vb_dev_cq_produced(struct vb_dev *dev, uint32_t cqn, uint64_t *produced);
int vb_dev_qp_create(struct vb_dev *dev, const struct vb_qpc_attr *attr, uint32_t *qpn);
int vb_dev_qp_modify(struct vb_dev *dev, uint32_t qpn, const struct vb_qpc_mods *mods);
// What may change in any state but RESET (clause 11.2.5.2): the rights it grants, the time its RNR
// NAKs ask for, and the Q_Key of datagrams.
int vb_dev_qp_tune(struct vb_dev *dev, uint32_t qpn, uint32_t access, uint8_t min_rnr_timer,
                   uint32_t qkey);
// No more than so many bytes per second, and a burst at once (0: the default), until it is reset; 0
// lifts the limit. READ requests, atomics and acknowledgements do not count.
int vb_dev_qp_limit(struct vb_dev *dev, uint32_t qpn, uint64_t rate_Bps, uint32_t burst_bytes);
int vb_dev_qp_state(struct vb_dev *dev, uint32_t qpn, enum vb_qp_state *state);

// How far a queue pair has come.
struct vb_qp_progress {
    uint64_t retired;      // send queue blocks before it will not be touched again
    uint64_t begun;        // and before this one, they have begun
    uint32_t answers_owed; // to the peer, from our memory
    bool running;          // posted work is executed or flushed
    uint64_t fetched;      // send queue blocks before it were read
    uint64_t send_open;    // and before this one they may be, as it was last seen
    uint64_t recv_open;    // receives before it may be used
    uint64_t recv_taken;   // and before this one they were
    uint64_t recv_done;    // and completed
    uint32_t recv_shared;  // index of the shared receive in use, plus one; 0: none
};
int vb_dev_qp_progress(struct vb_dev *dev, uint32_t qpn, struct vb_qp_progress *progress);
// Before something ends: asks for the acknowledgement of all that was sent, and acknowledges all
// that came, also where no packet asked for it.
void vb_dev_qp_settle(struct vb_dev *dev, uint32_t qpn);
// A datagram queue pair gets a copy of what comes to the group (-EINVAL: of another type; -EEXIST).
int vb_dev_qp_attach(struct vb_dev *dev, uint32_t qpn, const struct vb_ip *group);
int vb_dev_qp_detach(struct vb_dev *dev, uint32_t qpn, const struct vb_ip *group);
// Detaches it from any one group. False: it is in none.
bool vb_dev_qp_leave(struct vb_dev *dev, uint32_t qpn, struct vb_ip *group);
const struct vb_qp_counters *vb_dev_qp_counters(struct vb_dev *dev, uint32_t qpn); // NULL: none
int vb_dev_qp_destroy(struct vb_dev *dev, uint32_t qpn);

int vb_dev_program_create(struct vb_dev *dev, const struct vb_program_attr *attr,
                          uint32_t *program);
int vb_dev_program_destroy(struct vb_dev *dev, uint32_t program); // -EBUSY: queue pairs are in it
// Fails all its queue pairs.
int vb_dev_program_stop(struct vb_dev *dev, uint32_t program);
// How many entries were executed, and whether it was stopped.
int vb_dev_program_query(struct vb_dev *dev, uint32_t program, uint64_t *executed, bool *stopped);

int vb_dev_share_create(struct vb_dev *dev, const struct vb_share_attr *attr, uint32_t *share);
int vb_dev_share_change(struct vb_dev *dev, uint32_t share, const struct vb_share_attr *attr);
int vb_dev_share_destroy(struct vb_dev *dev, uint32_t share); // -EBUSY: queue pairs are of it
int vb_dev_share_query(const struct vb_dev *dev, uint32_t share, struct vb_share_facts *facts);

// ---- the processing unit
// Units run at the same time, each in one thread at a time; all that is above needs all of them at
// rest. A queue pair's number names its unit by its lowest bits, so that a port can steer frames.

// Hands over received frames; they are consumed by the next steps. Only when none are left.
void vb_pu_feed(struct vb_pu *pu, const struct vb_rx_frame *frames, uint32_t count);
uint32_t vb_pu_frames_left(const struct vb_pu *pu);

// Does one step. VB_STEP_NONE: idle, or the transmit queue is full (vb_pu_wants_tx).
struct vb_step vb_pu_step(struct vb_pu *pu, uint64_t now_ns);

// Units that were handed frames since the last call, one bit each: somebody must run them.
uint32_t vb_pu_handed(struct vb_pu *pu);
bool vb_pu_has_mail(const struct vb_pu *pu); // frames handed over by others wait
// The last poll ended before its work did, for others to have their turn.
bool vb_pu_has_more(const struct vb_pu *pu);

// Nothing to do but for frames and timers that come, nothing to send and nothing to tell.
bool vb_pu_is_idle(const struct vb_pu *pu);

// Queue pairs of this unit in a multicast group.
uint32_t vb_pu_members(const struct vb_pu *pu, const struct vb_ip *group);

// Steps until there is nothing to do, no room to send, or enough was done for one poll. Returns the
// number of steps. With an observer these are steps as of vb_pu_step(); they end where they would
// without one.
uint32_t vb_pu_poll(struct vb_pu *pu, uint64_t now_ns);

// Frames to send. The port advances txq->taken; vb_pu_tx_release() frees the arena when all are
// taken.
struct vb_txq *vb_pu_txq(struct vb_pu *pu);
void vb_pu_tx_release(struct vb_pu *pu);
// Copies payloads that were lent to frames not taken yet. To be called before the application may
// change its memory: when the PU is left with frames in the queue.
void vb_pu_tx_keep(struct vb_pu *pu);
bool vb_pu_wants_tx(const struct vb_pu *pu); // stopped for want of room in the transmit queue

// Lets the application see completions, if they are held.
void vb_pu_publish(struct vb_pu *pu);
bool vb_pu_has_unpublished(const struct vb_pu *pu);

// The same as of vb_dev_share_query(), of this unit alone, while it may run. -ENOENT.
int vb_pu_share(const struct vb_pu *pu, uint32_t share, struct vb_share_facts *facts);

// What happened besides completions. Takes the oldest; false: none.
bool vb_pu_take_event(struct vb_pu *pu, struct vb_event *event);
bool vb_pu_has_event(const struct vb_pu *pu);

// When the next timer fires, UINT64_MAX: never. A doorbell or a frame may make work earlier.
uint64_t vb_pu_deadline(const struct vb_pu *pu);

// Called after every step while set, and after every turn where there are shares (VB_STEP_TURN);
// NULL detaches. Costs nothing while detached.
void vb_pu_observe(struct vb_pu *pu, vb_step_observer *observer, void *ctx);
// Called in every step that vb_pu_poll() makes in its own order, which an observer would change,
// and after every turn where there are shares: for measurements. Without the memory touched, and
// without entries that run in a loop. NULL detaches.
void vb_pu_listen(struct vb_pu *pu, vb_step_observer *listener, void *ctx);
const struct vb_counters *vb_pu_counters(const struct vb_pu *pu);

const char *vb_qp_state_name(enum vb_qp_state state);
// Time of a RNR NAK timer code, clause 9.7.5.2.8 table 45.
uint64_t vb_rnr_timer_ns(uint8_t code);

#endif
