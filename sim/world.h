// SPDX-License-Identifier: Apache-2.0
// The simulated world: NICs, their hosts, the network between them, and one clock.
#ifndef VB_SIM_WORLD_H
#define VB_SIM_WORLD_H

#include "base/prng.h"
#include "port/simnet.h"
#include "sim/coverage.h"
#include "sim/digest.h"
#include "sim/endpoint.h"
#include "sim/scenario.h"
#include "sim/sent.h"
#include "sim/srq.h"
#include "wire/roce.h"

#include <stdio.h>

enum {
    VB_SIM_EXPOSED = 7, // kinds of exposed regions per domain
    VB_SIM_EVENTS = 8,  // of one step
    VB_SIM_EVENTS_POLL = 1024,
    VB_SIM_TEXT = 400,
    VB_SIM_GRH = 40, // bytes in front of a datagram
    VB_SIM_SRQS = 6, // of one NIC: two plain ones, and four for XRC
};

struct vb_mail;

// A completion the NIC has written and the host has not yet polled.
struct vb_due {
    struct vb_ep *ep;
    bool receive;
    uint8_t syndrome;
    uint64_t wr_id;
    uint32_t byte_len;
    enum vb_wc_opcode opcode;
    uint32_t flags, imm;         // of a receive
    uint32_t src_qpn;            // of a datagram
    uint64_t position;           // of the request in its queue
    int64_t packet;              // of a receive: the last one of its message,
    bool unasked;                // which asked for no ACK
    const struct vb_simsrq *srq; // that it came from
};

struct vb_simcq {
    struct vb_driver_cq drv;
    uint32_t cqn;
    uint32_t users;
    uint32_t unit;
    uint32_t need; // entries that can be outstanding
    bool crosses;  // several units write to it: nothing is held back
    bool broken;   // it has overrun
    uint64_t start, written;
    uint64_t visible;   // entries before it can be polled
    uint64_t compared;  // entries before it are as the twin's
    struct vb_due *due; // ring, longer than the queue can get
    uint32_t due_mask;
    uint64_t due_head, due_tail;
    bool armed; // the host wants an event, for an entry from armed_at on
    bool armed_solicited;
    uint64_t armed_at;
    uint64_t solicited_end; // one past the last solicited entry or error
    uint32_t hold_count;    // moderation: entries that an event waits for,
    uint64_t hold_ns;       // or how long
    uint64_t told;          // written at the last event
    uint64_t told_ns;       // and when it was; 0: not known, or moderated otherwise since
    uint64_t due_by_ns;     // when an event that waits must come; 0: none waits
    uint64_t old_wait_ns;   // when a wait that began under other terms ends at the latest
};

// The model's books of a share's rate: what was sent, less what the rate has let go since.
struct vb_bucket {
    double bytes;
    uint64_t at_ns;
};

// What the NIC's own counters should say.
struct vb_tally {
    uint64_t frames_in, frames_out, timeouts;
    uint64_t bytes_in, bytes_out;
    uint64_t sends, writes, reads, atomics, flushes;       // begun by peers
    uint64_t seq_naks_out, seq_naks_in, rnr_naks_in, gaps; // and gone back for
    uint64_t ended_by_retries, ended_by_rnr;
    uint64_t overruns, handed_over, no_mailbox;
    uint64_t marked, cnps_sent, cnps_handled, cnps_ignored;
    uint64_t asked_to_count; // additions of one that peers posted
    uint64_t counted;        // those whose success they were told of
    uint64_t verdict[VB_RX_STRANGER + 1];
    // Of unreliable services: packets out of sequence, dropped as such, dropped for want of a
    // receive; datagrams.
    uint64_t uc_out_of_seq, uc_ahead, unready;
    uint64_t datagrams, dropped_datagrams, qkey_violations;
};

enum vb_exposed {
    VB_EXPOSED_BOTH,
    VB_EXPOSED_READ,
    VB_EXPOSED_WRITE,
    VB_EXPOSED_NONE,
    VB_EXPOSED_ALL,      // every right there is
    VB_EXPOSED_SKEWED,   // likewise, but without an aligned byte
    VB_EXPOSED_COUNTERS, // changed by nothing but additions of one
};

// Steps of a unit's polls, to be judged when a poll is over. VB_STEP_NONE ends each poll.
struct vb_heard {
    struct vb_step *step;
    uint32_t count, room, taken;
};

// Memory that they used.
struct vb_used {
    struct vb_spans *spans;
    uint32_t count, room;
};

// A processing unit of a NIC, and the frames that it was given.
struct vb_unit {
    struct vb_node *node;
    struct vb_pu *pu;
    uint32_t index;
    bool idle;
    uint64_t step_ns; // of its last step: its clock stands still between them
    struct vb_rx_frame rx[VB_PORT_RX_BATCH];
    uint32_t rx_next, rx_count;
    bool rx_waits;                     // for the unit's turn
    bool later;                        // the steps of a poll that is over are being judged
    uint32_t late_turns;               // that have ended while a timer was due
    uint32_t tx_begun, tx_next, tx_at; // frames before the poll, judged, and the one that is
    struct vb_heard heard;
    struct vb_used used;
    struct vb_mail *mail;             // from other units; NULL: there are none
    uint32_t handed;                  // units that got mail by the current step, one bit each
    uint64_t tx_digest[VB_TX_FRAMES]; // of the frames written and not yet sent
    struct vb_digest frames;          // all that polls wrote, with where they go
};

struct vb_node {
    struct vb_world *world;
    uint32_t index;
    struct vb_ip ip;
    struct vb_dev *dev;
    struct vb_unit *unit; // scen.units of them
    struct vb_unit *at;   // the one whose step it is
    bool holds;           // completions are not visible at once
    struct vb_port *port;
    uint32_t window_bytes, fetch_depth;
    bool no_credits;  // tells none, and is not limited
    bool checks_zero; // the keys of requests of zero bytes, too
    struct vb_hostmem mem;
    struct vb_window *window[VB_SIM_PDS]; // of type 1
    uint32_t pd[VB_SIM_PDS];
    uint32_t share[VB_SIM_SHARES_MAX];
    struct vb_share_attr share_attr[VB_SIM_SHARES_MAX];
    struct vb_bucket share_bucket[VB_SIM_SHARES_MAX];
    struct vb_region *exposed[VB_SIM_PDS][VB_SIM_EXPOSED];
    struct vb_simcq cq[VB_SIM_CQS];
    uint32_t cq_count;
    struct vb_ep *ep[VB_SIM_EPS_MAX];
    uint32_t ep_count;
    uint64_t run_at_ns;     // the NIC's next turn
    uint64_t hold_until_ns; // its port sends nothing before
    uint64_t act_at_ns;     // the host's next turn
    uint64_t idle_ns;       // the host's pause, longer the longer it has had nothing to do
    struct vb_rx_frame rx[VB_PORT_RX_BATCH];
    struct vb_simsrq srq[VB_SIM_SRQS];
    uint32_t srq_count;
    struct vb_event event_due[VB_SIM_EVENTS_POLL];
    uint32_t events_due;
    struct vb_digest told;                     // all events
    uint8_t datagram[VB_SIM_GRH + VB_MTU_MAX]; // as the last one should lie in memory
    struct vb_tally tally;
};

enum vb_conn_state {
    VB_CONN_DOWN, // being brought up, one side and one state at a time
    VB_CONN_UP,
    VB_CONN_BROKEN, // one side has failed; the hosts do not know it yet
    VB_CONN_DRAIN,  // both have failed; the flushed completions are being collected
};

struct vb_conn {
    struct vb_world *world;
    uint32_t index;
    struct vb_ep ep[2];
    enum vb_conn_state state;
    uint32_t life; // times that it was begun anew
    uint64_t control_at_ns;
    struct vb_conn_mix mix;
};

enum vb_phase {
    VB_PHASE_FAULTS,
    VB_PHASE_HEAL,
    VB_PHASE_END
};

struct vb_world {
    struct vb_scenario scen;
    struct vb_prng prng;
    uint64_t now_ns;
    uint64_t heal_ns; // when healing began
    enum vb_phase phase;
    uint64_t events;
    uint64_t works; // send work requests posted
    uint64_t works_unreliable;
    struct vb_sent sent; // frames under way
    struct vb_digest digest;
    struct vb_simnet *net;
    struct vb_node node[VB_SIM_NICS_MAX];
    struct vb_conn *conn;
    uint64_t next_cut_ns, next_forge_ns;
    struct vb_world *twin; // that does the same observed (VB_DRIVE_UNHEARD)
    struct vb_coverage *cover;
    FILE *trace;
    bool violated;
    char violation[VB_SIM_TEXT];
};

struct vb_world *vb_world_create(const struct vb_scenario *scen, struct vb_coverage *cover,
                                 FILE *trace);
void vb_world_destroy(struct vb_world *w);
// Runs until the work is done and checked, or something was violated.
void vb_world_run(struct vb_world *w);
// The same in pieces: whatever comes next, until there is no more; then the end.
bool vb_world_advance(struct vb_world *w);
void vb_world_finish(struct vb_world *w);

// Records the first violation; the run ends with the current event.
__attribute__((format(printf, 2, 3))) void vb_world_violate(struct vb_world *w, const char *format,
                                                            ...);
// The NIC has a new doorbell or frame.
void vb_node_wake(struct vb_node *node);

// Frames that the units have not consumed, and those that the port has not taken.
bool vb_node_has_frames(const struct vb_node *node);
bool vb_node_has_frames_to_send(const struct vb_node *node);
// Completions that are held back can be polled; `early`: the port may not have the answers yet.
void vb_node_publish(struct vb_node *node, bool early);

int vb_node_create(struct vb_node *node, struct vb_world *w, uint32_t index);
void vb_node_destroy(struct vb_node *node);
// Up to `steps` steps of the NIC.
void vb_node_run(struct vb_node *node);

// Which of its NIC's shares the queue pair is of, counted from 1; 0: of none.
static inline uint32_t vb_ep_share_index(const struct vb_ep *ep)
{
    return (ep->conn->index + (uint32_t)(ep - ep->conn->ep)) % (ep->node->world->scen.shares + 1);
}

// Its number, or 0.
static inline uint32_t vb_ep_share(const struct vb_ep *ep)
{
    uint32_t i = vb_ep_share_index(ep);
    return i ? ep->node->share[i - 1] : 0;
}

// The unit that a queue pair lives on.
static inline struct vb_unit *vb_ep_unit(const struct vb_ep *ep)
{
    return &ep->node->unit[ep->node->cq[ep->opts.cq[0]].unit];
}

#endif
