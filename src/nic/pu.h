// SPDX-License-Identifier: Apache-2.0
// A processing unit from inside: shared by the requester, completer, responder and scheduler.
#ifndef VB_NIC_PU_H
#define VB_NIC_PU_H

#include "base/prng.h"
#include "nic/dev.h"
#include "nic/inbox.h"
#include "nic/peer.h"
#include "nic/qp.h"
#include "wire/packet.h"

#include <string.h>

enum {
    VB_TURN_FRAMES = 64,  // a queue pair may send before the next one's turn
    VB_POLL_LOOPED = 256, // entries without packets that one poll executes: programs may never end
    VB_AH_PATHS = 256,    // power of two
    // Events between two looks of the host. Those of completions can be told later, and leave room
    // for others, of which 512 frames that have come make no more than three each; and where there
    // are shares, no turn and no timer has its time while the table is half full. So none is lost,
    // whoever fills it.
    VB_EVENTS = 2048,
    VB_EVENTS_DEFERRABLE = 256,
    VB_EVENT_RETRY_NS = 10000, // until one that found no room is told
};

// Who reads the records of steps.
enum vb_recording {
    VB_RECORDS_NOBODY,
    VB_RECORDS_READER,   // one step, with the memory that it touches
    VB_RECORDS_LISTENER, // of a poll, each as it is made
};

struct vb_pu {
    struct vb_dev *dev;
    uint32_t index;
    uint32_t handed; // units that were handed frames
    uint32_t qp_count;
    struct vb_inbox *inbox; // frames from other units; NULL: there are none
    struct vb_doorbells bells;
    uint64_t now_ns;
    const struct vb_rx_frame *rx;
    uint32_t rx_next, rx_count;
    uint32_t copies_made;     // of the next frame: where to go on in the list of members
    struct vb_qpc *recv_done; // its receive completion is due before the next frame
    struct vb_fifo run;       // queue pairs with something to do, of share 0
    struct vb_fifo cnps;      // those that owe a CNP: struct vb_congestion
    uint32_t turn_frames;     // sent by the queue pair whose turn it is
    bool tx_full;
    struct vb_timers timers;
    struct vb_wr_pool pool;
    struct vb_path *retired_paths; // freed when no queued frame can point to them
    struct vb_txq txq;
    struct vb_cqc *unpublished;      // completion queues with entries that wait for vb_pu_publish()
    struct vb_path *ah[VB_AH_PATHS]; // paths of datagrams, by a hash of their addresses
    struct vb_peer *peers[VB_PEERS], nobody;
    uint32_t shares;             // besides share 0
    struct vb_fifo active;       // those with work, if there is one: the line
    struct vb_fifo early;        // those of them that go before it,
    struct vb_link *early_last;  // up to this one, once each; NULL: they have
    struct vb_share_part rest;   // share 0,
    bool rest_works;             // which had work when it was looked at last
    struct vb_qpc *turn_of;      // its turn has begun,
    uint32_t turn_start;         // from here on,
    bool turn_early;             // before the line
    struct vb_share_part *solo;  // the only one that has had turns
    uint64_t solo_ns;            // since then
    const struct vb_qpc *served; // waited for its peer's window and has it for this turn
    bool refused;                // a packet of this turn found that window full
    uint32_t taken;              // units of the slice of frames,
    uint32_t early_turns;        // and turns before the line since it was used up
    uint32_t looped;             // entries executed in this poll that made no packet; and more,
                                 // see vb_share_turn_ended()
    struct vb_event event[VB_EVENTS];
    uint32_t event_head, event_count;
    struct vb_cqc *untold; // other units' queues whose events found no room here
    struct vb_timer untold_timer;
    uint8_t *kept;    // copies of lent payloads, VB_MTU_MAX bytes for each frame of the queue
    uint32_t tx_kept; // frames of the queue whose lent payloads were copied, or have none
    struct vb_counters count;
    bool detours; // polls are observed, or of several shares
    bool polling; // an observed poll is under way
    bool first;   // the last step was of a frame or a timer
    vb_step_observer *observer, *listener;
    void *observer_ctx, *listener_ctx;
    enum vb_recording recording;
    struct vb_step step;
    struct vb_touch touch[2 * VB_MAX_SGE + 2]; // a datagram and its header
    uint32_t touches;
};

struct vb_member {
    struct vb_ip group;
    struct vb_qpc *qp;
};

struct vb_dev {
    struct vb_mkey_table mkeys;
    struct vb_prng prng;
    uint32_t window_bytes, window_limit_bytes; // of a peer: at first, and at most
    uint32_t fetch_depth, lend_bytes;
    uint32_t *pd_users; // by domain - 1: PD_FREE, or the objects that live in it
    uint32_t pd_room;
    struct vb_qpc *qps[VB_DOORBELL_QPS];
    uint16_t qp_generation[VB_DOORBELL_QPS];
    uint32_t qp_hint, qp_count;
    uint32_t qpn_base, qpn_generations; // numbers that can be given to one index
    struct vb_cqc **cqs;
    uint32_t cq_room, cq_count;
    struct vb_srqc **srqs;
    uint32_t srq_room;
    struct vb_member *member; // of multicast groups
    uint32_t members, member_room;
    struct vb_spread *spreads; // of all queue pairs
    bool check_zero_length, hold_completions, no_credits;
    bool dcqcn_on;
    struct vb_dcqcn_params dcqcn;
    const struct vb_dev_hooks *hooks;
    uint32_t crosses; // queue pairs with cross-channel work
    struct vb_program **programs;
    uint32_t program_room;
    struct vb_share **shares; // by number - 1
    uint32_t share_room;
    uint32_t pu_count;
    struct vb_pu *pu[VB_PUS_MAX];
    uint32_t addresses; // 0: nobody said, and each queue pair knows its own
    struct vb_ip address[VB_DEV_ADDRESSES];
};

static inline struct vb_program *vb_dev_program(struct vb_dev *dev, uint32_t number)
{
    return number && number <= dev->program_room ? dev->programs[number - 1] : NULL;
}

static inline struct vb_cqc *vb_dev_cq(struct vb_dev *dev, uint32_t cqn)
{
    return cqn - 1 < dev->cq_room ? dev->cqs[cqn - 1] : NULL;
}

// The completion queue that a queue pair waits for. NULL: there is none, or it is another owner's.
static inline struct vb_cqc *vb_qpc_awaited(struct vb_dev *dev, const struct vb_qpc *qp,
                                            uint32_t cqn)
{
    struct vb_cqc *cq = vb_dev_cq(dev, cqn);
    return cq && cq->owner == qp->send_cq->owner ? cq : NULL;
}

static inline struct vb_qpc *vb_dev_qp(struct vb_dev *dev, uint32_t qpn)
{
    struct vb_qpc *qp = dev->qps[qpn & (VB_DOORBELL_QPS - 1)];
    return qp && qp->qpn == qpn ? qp : NULL;
}

static inline struct vb_srqc *vb_dev_srq(struct vb_dev *dev, uint32_t srqn)
{
    return srqn && srqn <= dev->srq_room ? dev->srqs[srqn - 1] : NULL;
}

// The queue pair is on no run list.
static inline void vb_pu_enlist(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (__builtin_expect(qp->share != NULL, 0))
        vb_share_kick(pu, qp);
    else
        vb_fifo_push(&pu->run, &qp->run);
}

// Puts the queue pair on the run list.
static inline void vb_pu_kick(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (!vb_link_queued(&qp->run))
        vb_pu_enlist(pu, qp);
}

// A packet has come: the queue pair has a turn, if only to be billed for it.
static inline void vb_pu_bill(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (__builtin_expect(pu->shares, 0))
        vb_share_bill_later(pu, qp);
}

// Whether the turn, beside those of other shares, has fetched enough.
static inline bool vb_pu_has_fetched(const struct vb_pu *pu, const struct vb_qpc *qp)
{
    return pu->turn_start && qp->sq.fetched - qp->bill.fetched > VB_SHARE_FETCH;
}

// What is left of the turn is given up, and not billed.
static inline void vb_pu_give_up(struct vb_pu *pu, uint32_t left)
{
    pu->turn_start += left;
    pu->turn_frames += left;
}

// An observer or a share has come or gone.
static inline void vb_pu_choose_poll(struct vb_pu *pu)
{
    pu->detours = pu->observer || pu->shares > 1;
}

void vb_pu_record(struct vb_pu *pu, const struct vb_step *step);

// The record of the step being made, for whoever reads it.
#define VB_RECORD(pu, ...)                                      \
    do {                                                        \
        if (__builtin_expect((pu)->recording, 0))               \
            vb_pu_record((pu), &(struct vb_step){__VA_ARGS__}); \
    } while (0)

#define VB_COUNT(pu, qp, name) \
    do {                       \
        (pu)->count.name++;    \
        (qp)->count.name++;    \
    } while (0)

static inline void vb_pu_touch(struct vb_pu *pu, const void *addr, uint32_t len, bool write)
{
    if (__builtin_expect(pu->recording == VB_RECORDS_READER, 0) && len > 0)
        pu->touch[pu->touches++] = (struct vb_touch){addr, len, write};
}

static inline bool vb_pu_tx_room(const struct vb_pu *pu)
{
    return pu->txq.count < VB_TX_FRAMES &&
           pu->txq.used + VB_FRAME_MAX + VB_ICRC_BYTES <= VB_TX_BYTES;
}

static inline uint8_t *vb_pu_tx_at(struct vb_pu *pu)
{
    return pu->txq.arena + pu->txq.used;
}

// Ends the frame that was written at vb_pu_tx_at(): zero pad, room for the ICRC. Only its header
// was written if the payload is lent.
static inline void vb_pu_tx_commit(struct vb_pu *pu, struct vb_qpc *qp, struct vb_path *path,
                                   uint32_t header, uint32_t payload, const uint8_t *lent)
{
    struct vb_txq *q = &pu->txq;
    struct vb_tx_frame *f = &q->frame[q->count++];
    uint32_t pad = vb_packet_pad(payload), body_len = lent ? payload : 0;

    f->path = path;
    f->offset = q->used;
    f->len = header + payload + pad + VB_ICRC_BYTES;
    f->head = header;
    f->body_len = body_len;
    f->body = lent;
    // The pad is part of the eight bytes; the arena has room for what lies behind.
    memset(q->arena + q->used + header + payload - body_len, 0, 2 * VB_ICRC_BYTES);
    q->used += f->len - body_len;
    pu->turn_frames++;
    VB_COUNT(pu, qp, sent_pkts);
    pu->count.sent_bytes += f->len;
    qp->count.sent_bytes += f->len;
}

// An entry was written, or the wait for more has ended (`now`): tells who armed the queue.
void vb_cqc_tell(struct vb_pu *pu, struct vb_cqc *cq, bool now);
// There may be room again: tells of other units' queues.
void vb_cqc_tell_untold(struct vb_pu *pu);
// The queue is about to go; all units are at rest.
void vb_cqc_forget_untold(struct vb_cqc *cq);
// Whether the host has to take events first, because the next ones may be another share's.
static inline bool vb_pu_events_wait(const struct vb_pu *pu)
{
    return pu->shares && pu->event_count > VB_EVENTS / 2;
}

// Tells the host. Events beyond what the queue holds are lost, and counted.
void vb_pu_event(struct vb_pu *pu, enum vb_event_kind kind, uint32_t number);

// ---- memory.c's rights applied to scatter lists (scatter.c)
enum vb_mem_refusal vb_gather_list(struct vb_pu *pu, struct vb_accessor who,
                                   const struct vb_seg *seg, uint32_t num_seg, uint32_t offset,
                                   uint8_t *dst, uint32_t len);
// The range where it lies, if it is in one piece; otherwise *at is NULL and nothing was checked.
enum vb_mem_refusal vb_lend(struct vb_pu *pu, struct vb_accessor who, const struct vb_seg *seg,
                            uint32_t num_seg, uint32_t offset, uint32_t len, const uint8_t **at);
enum vb_mem_refusal vb_scatter(struct vb_pu *pu, struct vb_accessor who, const struct vb_seg *seg,
                               uint32_t num_seg, uint32_t offset, const uint8_t *src, uint32_t len);

// Most lists are one segment, or the bytes lie in their first.
static inline bool vb_seg_holds(const struct vb_seg *seg, uint32_t num_seg, uint32_t offset,
                                uint32_t len)
{
    return num_seg > 0 && len > 0 && offset <= seg->len && len <= seg->len - offset;
}

static inline enum vb_mem_refusal vb_gather(struct vb_pu *pu, struct vb_accessor who,
                                            const struct vb_seg *seg, uint32_t num_seg,
                                            uint32_t offset, uint8_t *dst, uint32_t len)
{
    uint8_t *at;

    if (!vb_seg_holds(seg, num_seg, offset, len))
        return vb_gather_list(pu, who, seg, num_seg, offset, dst, len);
    enum vb_mem_refusal r =
        vb_mem_access(&pu->dev->mkeys, who, seg->key, seg->addr + offset, len, VB_LOCAL_READ, &at);
    if (r != VB_MEM_OK)
        return r; // what is copied, vb_gather_list() takes
    memcpy(dst, at, len);
    vb_pu_touch(pu, at, len, false);
    return VB_MEM_OK;
}

// ---- requester.c
// One step of sending: fetch, begin or send. False: nothing can be done now.
bool vb_requester_step(struct vb_pu *pu, struct vb_qpc *qp);
// Steps in state RTS until nothing can be done, the turn ends or a completion is due. Returns how
// many.
uint32_t vb_requester_run(struct vb_pu *pu, struct vb_qpc *qp);
// Goes back to the oldest unacknowledged packet.
void vb_requester_rewind(struct vb_pu *pu, struct vb_qpc *qp);
// Moves the acknowledged edge to `psn` (exclusive) within the request at the edge.
void vb_requester_acked(struct vb_pu *pu, struct vb_qpc *qp, uint32_t psn);
// Somebody waits for all that was sent: asks for an ACK if nothing in flight does.
void vb_requester_settle(struct vb_pu *pu, struct vb_qpc *qp);
void vb_requester_timer(struct vb_pu *pu, struct vb_qpc *qp);
// Fails the oldest unacknowledged request with the syndrome, and with it the queue pair.
void vb_requester_fail(struct vb_pu *pu, struct vb_qpc *qp, enum vb_cqe_syndrome syndrome);
// Goes on behind the last packet sent, once all requests are flushed.
void vb_requester_restart(struct vb_qpc *qp);
void vb_requester_reset(struct vb_pu *pu, struct vb_qpc *qp);

// ---- completer.c
enum vb_rx_verdict vb_completer_receive(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt);
// Retires acknowledged requests up to the next completion entry. False: none to retire.
bool vb_completer_step(struct vb_pu *pu, struct vb_qpc *qp);

// ---- responder.c
enum vb_rx_verdict vb_responder_receive(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt);
// Sends one READ response, ACK or NAK. False: nothing owed.
// The queue pair may be about to go: acknowledges also what did not ask for it.
void vb_responder_settle(struct vb_pu *pu, struct vb_qpc *qp);
bool vb_responder_step(struct vb_pu *pu, struct vb_qpc *qp);
void vb_responder_complete(struct vb_pu *pu, struct vb_qpc *qp);
void vb_responder_reset(struct vb_qpc *qp);

// ---- unreliable.c: UC and UD
enum vb_rx_verdict vb_unreliable_receive(struct vb_pu *pu, struct vb_qpc *qp,
                                         const struct vb_packet *pkt,
                                         const struct vb_rx_frame *frame);

// ---- place.c: the payload of SEND and WRITE packets
enum vb_placed {
    VB_PLACED,
    VB_PLACE_NOT_READY,   // no receive entry
    VB_PLACE_TOO_LONG,    // for the receive entry
    VB_PLACE_LOCAL_FAULT, // the receive entry names memory that it may not
    VB_PLACE_BAD_KEY,     // the peer does
    VB_PLACE_MALFORMED,
};
enum vb_placed vb_place_send(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt);
enum vb_placed vb_place_write(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt);
// Which packets may follow which (clause 9.7.4.1.2).
static inline bool vb_place_follows(const struct vb_responder *r, uint32_t facts)
{
    if (r->message == VB_MESSAGE_NONE)
        return facts & VB_OP_FIRST;
    uint32_t same = r->message == VB_MESSAGE_SEND ? VB_OP_SEND : VB_OP_WRITE;
    return (facts & same) && !(facts & VB_OP_FIRST);
}
bool vb_place_may(struct vb_pu *pu, struct vb_qpc *qp, uint32_t pd, uint32_t rkey, uint64_t addr,
                  uint32_t len, enum vb_access need, uint8_t **at);
// Where that says no and resp.copied is set: moves the bytes. False: refused, or gone.
bool vb_place_copy(struct vb_pu *pu, struct vb_qpc *qp, uint32_t pd, uint32_t rkey, uint64_t addr,
                   uint32_t len, enum vb_access need, uint8_t *bytes);
// Who writes into the receive entry in use.
struct vb_accessor vb_place_who(const struct vb_qpc *qp);
// The receive entry in use is done with; its completion is due.
void vb_place_complete(struct vb_pu *pu, struct vb_qpc *qp, uint8_t opcode, uint8_t syndrome,
                       uint32_t bytes);

// ---- ah.c: paths of datagrams
// As the request says: its attributes, and from the device's address number `source`, counted from
// 1; 0: by where it goes. NULL: no memory, or an address that the queue pair cannot reach.
struct vb_path *vb_ah_path(struct vb_pu *pu, const struct vb_qpc *qp, const struct vb_ip *to,
                           const struct vb_wr *wr);
void vb_ah_fini(struct vb_pu *pu);

// ---- group.c: multicast
// The next member on this unit from *at on, which then names the one behind it. NULL: no more.
struct vb_qpc *vb_group_member(const struct vb_pu *pu, const struct vb_ip *group, uint32_t *at);

// ---- receive.c: the receive queue
// Copies the next receive entry into resp.recv. False: the queue is empty.
bool vb_receive_load(struct vb_pu *pu, struct vb_qpc *qp);
void vb_receive_parse(struct vb_recv *recv, const uint8_t *segs, size_t bytes);
// Blocks that the producer has added since, read from the doorbell records.
void vb_sq_refresh(struct vb_qpc *qp);
void vb_rq_refresh(struct vb_qpc *qp);

// ---- credit.c: end-to-end credits
// The syndrome of an answer that is about to leave: an ACK with the credits there are.
uint8_t vb_credit_tell(const struct vb_pu *pu, struct vb_qpc *qp);
// Receives may have been posted: owes an ACK if the peer was told of too few.
void vb_credit_posted(struct vb_pu *pu, struct vb_qpc *qp);
void vb_credit_heard(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt);
// Whether the request, which needs a receive and is next, must wait.
bool vb_credit_holds(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr);

// ---- flush.c
// One step of flushing a failed queue pair. False: both queues are empty.
bool vb_flush_step(struct vb_pu *pu, struct vb_qpc *qp);

// ---- qp.c
// Frees the path once no queued frame can point to it.
void vb_pu_retire_path(struct vb_pu *pu, struct vb_path *path);
int vb_qpc_create(const struct vb_qpc_attr *attr, struct vb_cqc *send_cq, struct vb_cqc *recv_cq,
                  struct vb_qpc **qp);
void vb_qpc_destroy(struct vb_pu *pu, struct vb_qpc *qp);
// The XRC shared receive queue goes: a message that was using it cannot go on.
void vb_qpc_forget_srq(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_srqc *srq);
int vb_qpc_modify(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_qpc_mods *mods);
void vb_qpc_fail(struct vb_pu *pu, struct vb_qpc *qp); // to ERR: flushing begins
// Writes a completion; a queue that has no room fails the queue pair.
void vb_qpc_complete(struct vb_pu *pu, struct vb_qpc *qp, struct vb_cqc *cq,
                     const struct vb_completion *c);

#endif
