// SPDX-License-Identifier: Apache-2.0
// The processing unit: picks the next step. Frames come first, so that one ACK answers a batch;
// then timers, doorbells, and the queue pairs that have something to do, in turns.
#include "nic/pu.h"

#include <stdlib.h>
#include <string.h>

// Where polls without several shares or an observer go: written out there, whoever else calls it.
#define ALWAYS_INLINE static inline __attribute__((always_inline))

// ---- transmit queue

struct vb_txq *vb_pu_txq(struct vb_pu *pu)
{
    return &pu->txq;
}

void vb_pu_tx_keep(struct vb_pu *pu)
{
    struct vb_txq *q = &pu->txq;

    for (uint32_t i = q->taken > pu->tx_kept ? q->taken : pu->tx_kept; i < q->count; i++) {
        struct vb_tx_frame *f = &q->frame[i];
        uint8_t *kept = pu->kept + (size_t)i * VB_MTU_MAX;
        if (f->body_len == 0 || f->body == kept)
            continue;
        memcpy(kept, f->body, f->body_len);
        f->body = kept;
    }
    pu->tx_kept = q->count;
}

void vb_pu_tx_release(struct vb_pu *pu)
{
    if (pu->txq.taken < pu->txq.count)
        return;
    pu->txq.used = pu->txq.count = pu->txq.taken = pu->tx_kept = 0;
    pu->tx_full = false;
    while (pu->retired_paths) {
        struct vb_path *path = pu->retired_paths;
        pu->retired_paths = path->retired_next;
        free(path);
    }
}

bool vb_pu_wants_tx(const struct vb_pu *pu)
{
    return pu->tx_full;
}

void vb_pu_publish(struct vb_pu *pu)
{
    while (pu->unpublished) {
        struct vb_cqc *cq = pu->unpublished;
        pu->unpublished = cq->later;
        cq->listed = false;
        vb_cqc_publish(cq);
    }
}

bool vb_pu_has_unpublished(const struct vb_pu *pu)
{
    return pu->unpublished;
}

// ---- frames in

void vb_pu_feed(struct vb_pu *pu, const struct vb_rx_frame *frames, uint32_t count)
{
    pu->rx = frames;
    pu->rx_next = 0;
    pu->rx_count = count;
}

uint32_t vb_pu_handed(struct vb_pu *pu)
{
    uint32_t handed = pu->handed;
    pu->handed = 0;
    return handed;
}

bool vb_pu_has_mail(const struct vb_pu *pu)
{
    return pu->inbox && vb_inbox_waiting(pu->inbox);
}

uint32_t vb_pu_frames_left(const struct vb_pu *pu)
{
    return pu->rx_count - pu->rx_next;
}

// A connected queue pair talks to one address only (clause 9.6.1.2.3).
static bool is_peer(const struct vb_qpc *qp, const struct vb_rx_frame *frame)
{
    return qp->type == VB_QPT_UD || vb_ip_equal(&frame->src, &qp->path->remote);
}

// Whether a queue pair in another state than RTS hears the packet.
static bool admits(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_rx_frame *frame,
                   const struct vb_packet *pkt)
{
    bool receives = qp->state == VB_QPS_RTR || qp->state == VB_QPS_SQE;
    bool request = pkt->facts & VB_OP_REQUEST;

    if (qp->state != VB_QPS_SQD && !(request && receives))
        return false;
    if (!is_peer(qp, frame))
        return false;
    if (qp->type == VB_QPT_UD && pkt->qkey != qp->qkey)
        return true; // to be counted and dropped
    if (qp->state == VB_QPS_RTR && !qp->heard)
        vb_pu_event(pu, VB_EVENT_COMM_EST, qp->qpn);
    qp->heard = true;
    return true;
}

// Of XRC's halves one asks and one answers.
ALWAYS_INLINE bool is_welcome(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_rx_frame *frame,
                              const struct vb_packet *pkt)
{
    bool request = pkt->facts & VB_OP_REQUEST;

    if (pkt->transport != qp->transport || qp->loops)
        return false; // who talks to itself hears nobody
    if (qp->type >= VB_QPT_XRC_INI && request != (qp->type == VB_QPT_XRC_TGT))
        return false;
    return qp->state == VB_QPS_RTS ? is_peer(qp, frame) : admits(pu, qp, frame, pkt);
}

static enum vb_rx_verdict stranger(struct vb_pu *pu)
{
    pu->count.rx_stranger++;
    return VB_RX_STRANGER;
}

static enum vb_rx_verdict hand_over(struct vb_pu *pu, struct vb_pu *to,
                                    const struct vb_rx_frame *frame)
{
    if (vb_inbox_put(to->inbox, frame)) {
        pu->handed |= 1u << to->index;
        pu->count.rcvd_pkts--; // the other unit counts it
        pu->count.rcvd_bytes -= frame->len;
        pu->count.rx_handed_over++;
    } else {
        pu->count.rx_no_mailbox++;
    }
    return VB_RX_STRANGER;
}

// CNPs belong to no service, but to a connection.
static enum vb_rx_verdict notified(struct vb_pu *pu, struct vb_qpc *qp,
                                   const struct vb_rx_frame *frame)
{
    if (!qp->path || qp->loops || !is_peer(qp, frame))
        return stranger(pu);
    return vb_congestion_notified(pu, qp);
}

// One copy a step: while there are more to make, the frame stays the next one.
static enum vb_rx_verdict copy_out(struct vb_pu *pu, const struct vb_rx_frame *frame,
                                   const struct vb_packet *pkt)
{
    struct vb_qpc *qp = vb_group_member(pu, frame->to, &pu->copies_made);
    uint32_t at = pu->copies_made;

    if (qp && vb_group_member(pu, frame->to, &at)) {
        pu->rx_next--;
        pu->count.rcvd_pkts--;
        pu->count.rcvd_bytes -= frame->len;
    } else {
        pu->copies_made = 0;
    }
    if (!qp || !is_welcome(pu, qp, frame, pkt))
        return stranger(pu);
    qp->count.rcvd_pkts++;
    qp->count.rcvd_bytes += frame->len;
    vb_pu_bill(pu, qp);
    return vb_unreliable_receive(pu, qp, pkt, frame);
}

ALWAYS_INLINE enum vb_rx_verdict judge(struct vb_pu *pu, const struct vb_rx_frame *frame,
                                       const struct vb_packet *pkt)
{
    struct vb_qpc *qp = vb_dev_qp(pu->dev, pkt->dest_qpn);

    if (!qp)
        return pkt->dest_qpn == VB_QPN_OF_GROUP && frame->to ? copy_out(pu, frame, pkt)
                                                             : stranger(pu);
    if (qp->pu != pu)
        return hand_over(pu, qp->pu, frame);
    if (!is_welcome(pu, qp, frame, pkt))
        return pkt->opcode == VB_CNP ? notified(pu, qp, frame) : stranger(pu);
    if (__builtin_expect(frame->ce, 0))
        vb_congestion_marked(pu, qp);
    qp->count.rcvd_pkts++;
    qp->count.rcvd_bytes += frame->len;
    vb_pu_bill(pu, qp);
    if (!vb_qpc_is_reliable(qp))
        return vb_unreliable_receive(pu, qp, pkt, frame);
    return pkt->facts & VB_OP_REQUEST ? vb_responder_receive(pu, qp, pkt)
                                      : vb_completer_receive(pu, qp, pkt);
}

ALWAYS_INLINE void frame_in(struct vb_pu *pu)
{
    const struct vb_rx_frame *frame = &pu->rx[pu->rx_next++];
    struct vb_packet pkt;

    pu->count.rcvd_pkts++;
    pu->count.rcvd_bytes += frame->len;
    if (vb_packet_decode(frame->head, frame->len, &pkt) != VB_DECODE_OK) {
        pu->count.rx_malformed++;
        VB_RECORD(pu, .kind = VB_STEP_FRAME_IN, .verdict = VB_RX_MALFORMED);
        return;
    }
    pkt.payload = frame->data + (pkt.payload - frame->head);
    enum vb_rx_verdict verdict = judge(pu, frame, &pkt);
    VB_RECORD(pu, .kind = VB_STEP_FRAME_IN, .verdict = (uint8_t)verdict, .opcode = pkt.opcode,
              .qpn = pkt.dest_qpn, .psn = pkt.psn, .bytes = pkt.payload_len,
              .detail = pkt.syndrome);
}

// ---- doorbells

static void ring(struct vb_pu *pu, uint32_t index)
{
    struct vb_qpc *qp = pu->dev->qps[index];
    if (!qp)
        return;
    vb_credit_posted(pu, qp);
    if (qp->state < VB_QPS_RTS)
        return;
    vb_sq_refresh(qp);
    vb_pu_kick(pu, qp);
}

static void answer_doorbells(struct vb_pu *pu)
{
    struct vb_doorbells *bells = &pu->bells;

    if (atomic_load_explicit(&bells->latest, memory_order_relaxed)) {
        uint64_t latest = atomic_exchange_explicit(&bells->latest, 0, memory_order_acquire);
        if (latest)
            ring(pu, (uint32_t)latest - 1);
    }
    for (uint32_t t = 0; t < VB_DOORBELL_TOPS; t++) {
        if (!atomic_load_explicit(&bells->top[t], memory_order_relaxed))
            continue;
        uint64_t words = atomic_exchange_explicit(&bells->top[t], 0, memory_order_acquire);
        for (; words; words &= words - 1) {
            uint32_t w = t * 64 + (uint32_t)__builtin_ctzll(words);
            uint64_t bits = atomic_exchange_explicit(&bells->word[w], 0, memory_order_acquire);
            for (; bits; bits &= bits - 1)
                ring(pu, w * 64 + (uint32_t)__builtin_ctzll(bits));
        }
    }
}

// ---- turns

static void tell_of_turn(const struct vb_pu *pu, const struct vb_qpc *qp)
{
    const struct vb_step turn = {.kind = VB_STEP_TURN, .qpn = qp->qpn};

    if (pu->recording == VB_RECORDS_LISTENER)
        pu->listener(pu->listener_ctx, &turn);
    else if (pu->observer)
        pu->observer(pu->observer_ctx, &turn);
}

static void end_turn(struct vb_pu *pu, struct vb_qpc *qp, bool stays)
{
    vb_link_remove(&qp->run);
    if (__builtin_expect(pu->shares, 0)) {
        vb_share_turn_ended(pu, qp);
        tell_of_turn(pu, qp);
    }
    if (stays)
        vb_fifo_push(qp->share ? qp->share->run : &pu->run, &qp->run);
    pu->turn_frames = 0;
    if (!qp->peer->open)
        vb_peer_turn_ended(pu, qp, stays);
    pu->served = NULL;
    pu->refused = false;
}

static bool qp_step(struct vb_pu *pu, struct vb_qpc *qp)
{
    bool owes = qp->resp.job_count > 0 || qp->resp.answer != VB_ANSWER_NONE;
    bool done = qp->req.head != qp->req.una_wr;

    if (done && vb_completer_step(pu, qp))
        return true;
    if (owes && vb_responder_step(pu, qp))
        return true;
    if (qp->state == VB_QPS_RTS || qp->state == VB_QPS_SQD)
        return qp->loops ? vb_loop_step(pu, qp) : vb_requester_step(pu, qp);
    if (qp->state < VB_QPS_SQE || !vb_flush_step(pu, qp))
        return false;
    // Who posts as fast as it is flushed has no more than its turn. Callers count a completion
    // where there are several shares.
    pu->turn_frames += !(done && pu->shares > 1);
    pu->looped++;
    return true;
}

// NULL: nobody has anything to do.
static inline struct vb_qpc *whose_turn(struct vb_pu *pu)
{
    if (__builtin_expect(pu->shares, 0))
        return vb_share_next(pu);
    struct vb_link *first = vb_fifo_first(&pu->run);
    return first ? VB_CONTAINER_OF(first, struct vb_qpc, run) : NULL;
}

// Frames and timers of several shares go on when a turn has ended: after those before the line, and
// before the line. So do frames that another unit has handed over.
static inline bool frames_go_on(const struct vb_pu *pu)
{
    return pu->shares > 1 && (pu->rx_next != pu->rx_count || vb_pu_has_mail(pu) ||
                              vb_timers_next(&pu->timers) <= pu->now_ns);
}

// One step of the queue pair whose turn it is. False: nobody has anything to do, or no room to
// send; or a turn has ended without one, and frames go on.
static bool run_step(struct vb_pu *pu, bool *frames)
{
    struct vb_qpc *qp;

    while ((qp = whose_turn(pu))) {
        bool over = pu->turn_frames >= VB_TURN_FRAMES && !(qp->loops && vb_loop_is_due(qp));
        uint64_t before = qp->send_cq->produced;
        bool done = qp->req.head != qp->req.una_wr;
        if (!over && qp_step(pu, qp)) {
            if (done && pu->shares > 1)
                pu->turn_frames += qp->send_cq->produced != before;
            return true;
        }
        if (pu->tx_full)
            return false; // it keeps its turn until there is room
        end_turn(pu, qp, over);
        if (pu->polling && pu->looped >= VB_POLL_LOOPED)
            return false; // the rest next time: frames may have come
        if ((*frames = frames_go_on(pu)))
            return false;
    }
    return false;
}

ALWAYS_INLINE bool rx_step(struct vb_pu *pu)
{
    struct vb_qpc *qp = pu->recv_done;

    if (qp) {
        pu->recv_done = NULL;
        vb_responder_complete(pu, qp);
        return true;
    }
    if (pu->rx_next == pu->rx_count) {
        if (!pu->inbox || !vb_inbox_waiting(pu->inbox))
            return false;
        pu->rx_next = 0;
        pu->rx_count = vb_inbox_take(pu->inbox, &pu->rx);
    }
    frame_in(pu);
    return true;
}

// The same for others.
static __attribute__((noinline)) bool rx_step_apart(struct vb_pu *pu)
{
    return rx_step(pu);
}

static bool timer_step(struct vb_pu *pu)
{
    if (vb_timers_next(&pu->timers) > pu->now_ns || vb_pu_events_wait(pu))
        return false;
    struct vb_timer *timer = vb_timers_expire(&pu->timers, pu->now_ns);
    if (!timer)
        return false;
    if (timer->owner == VB_TIMER_OF_RATE) {
        vb_congestion_timer(pu, VB_CONTAINER_OF(timer, struct vb_congestion, resume));
    } else if (timer->owner == VB_TIMER_OF_CROSS) {
        vb_cross_timer(pu, VB_CONTAINER_OF(timer, struct vb_cross, timer));
    } else if (timer->owner == VB_TIMER_OF_CQ) {
        struct vb_cqc *cq = VB_CONTAINER_OF(timer, struct vb_cqc, timer);
        VB_RECORD(pu, .kind = VB_STEP_TIMER, .cqn = cq->cqn);
        if (cq->crossing)
            vb_spin_lock(&cq->lock);
        vb_cqc_tell(pu, cq, true);
        if (cq->crossing)
            vb_spin_unlock(&cq->lock);
    } else if (timer->owner == VB_TIMER_OF_UNIT) {
        VB_RECORD(pu, .kind = VB_STEP_TIMER);
        vb_cqc_tell_untold(pu);
    } else {
        vb_requester_timer(pu, VB_CONTAINER_OF(timer, struct vb_qpc, req.timer));
    }
    return true;
}

// Frames and timers come before turns; but where there are several shares, those before the line
// have a turn each after a slice of them.
static bool first_step_shared(struct vb_pu *pu)
{
    uint64_t bytes = pu->count.rcvd_bytes;
    uint32_t units = VB_SHARE_TIMER;
    bool may_turn = !pu->recv_done && !pu->tx_full && !vb_pu_events_wait(pu);

    if (pu->taken >= VB_SHARE_SLICE_UNITS && may_turn) {
        answer_doorbells(pu);
        if (pu->turn_of || vb_share_hurries(pu))
            return false;
        vb_share_begin_slice(pu);
    }
    if (pu->tx_kept < pu->txq.count)
        vb_pu_tx_keep(pu); // the next frame may write to a payload that was lent
    if (rx_step_apart(pu))
        units = VB_SHARE_FRAME + (uint32_t)((pu->count.rcvd_bytes - bytes) >> VB_SHARE_BYTES_SHIFT);
    else if (!timer_step(pu))
        return false;
    vb_share_took(pu, units);
    return true;
}

ALWAYS_INLINE bool first_step(struct vb_pu *pu, bool shared)
{
    return shared ? first_step_shared(pu) : rx_step(pu) || timer_step(pu);
}

static bool next_step(struct vb_pu *pu)
{
    bool again;

    do {
        again = false;
        // A poll ends with the turn that finds no room to send; frames go first in the next one.
        if (!pu->polling || pu->first || !pu->tx_full)
            pu->first =
                pu->shares > 1 ? first_step_shared(pu) : rx_step_apart(pu) || timer_step(pu);
        if (pu->first)
            return true;
        answer_doorbells(pu);
        if ((!vb_fifo_empty(&pu->cnps) && vb_congestion_step(pu)) || run_step(pu, &again))
            return true;
    } while (again);
    return false;
}

void vb_pu_record(struct vb_pu *pu, const struct vb_step *step)
{
    pu->step = *step;
    if (pu->recording == VB_RECORDS_LISTENER)
        pu->listener(pu->listener_ctx, &pu->step);
}

struct vb_step vb_pu_step(struct vb_pu *pu, uint64_t now_ns)
{
    pu->now_ns = now_ns;
    pu->touches = 0;
    pu->recording = VB_RECORDS_READER;
    if (!next_step(pu))
        pu->step = (struct vb_step){.kind = VB_STEP_NONE};
    pu->recording = pu->listener ? VB_RECORDS_LISTENER : VB_RECORDS_NOBODY;
    pu->step.touch = pu->touch;
    pu->step.touches = pu->touches;
    if (pu->observer)
        pu->observer(pu->observer_ctx, &pu->step);
    return pu->step;
}

// A queue pair that is connected with itself: nobody but itself gives it more to do in its turn.
static uint32_t run_loop(struct vb_pu *pu, struct vb_qpc *qp)
{
    uint32_t steps = vb_loop_run(pu, qp);

    while (qp->state != VB_QPS_RTS && pu->turn_frames < VB_TURN_FRAMES && qp_step(pu, qp))
        steps++; // it has failed
    return steps;
}

// One queue pair's turn: the same steps as by qp_step(), but the requester goes on by itself while
// nothing else can be due. Where there are several shares, completions are part of its length.
ALWAYS_INLINE uint32_t run_turn(struct vb_pu *pu, struct vb_qpc *qp, bool shared)
{
    uint32_t steps = 0, made = 1;

    while (made > 0 && pu->turn_frames < VB_TURN_FRAMES) {
        bool owes = qp->resp.job_count > 0 || qp->resp.answer != VB_ANSWER_NONE;
        bool done = qp->req.head != qp->req.una_wr;
        if (done || owes || qp->state != VB_QPS_RTS) {
            uint64_t before = shared ? qp->send_cq->produced : 0;
            made = qp_step(pu, qp);
            steps += made;
            if (shared && done)
                pu->turn_frames += qp->send_cq->produced != before;
        } else if (qp->loops) {
            return steps + run_loop(pu, qp);
        } else {
            steps += vb_requester_run(pu, qp);
            // It stops where nothing more can be done, or something else is due.
            made = qp->req.head != qp->req.una_wr || qp->state != VB_QPS_RTS;
        }
    }
    return steps;
}

// One turn. False: nobody has one, or it goes on when there is room to send.
ALWAYS_INLINE bool run_one(struct vb_pu *pu, uint32_t *steps, bool shared)
{
    struct vb_qpc *qp = whose_turn(pu);

    if (!qp)
        return false;
    *steps += run_turn(pu, qp, shared);
    if (pu->tx_full)
        return false;
    end_turn(pu, qp, pu->turn_frames >= VB_TURN_FRAMES);
    return true;
}

static inline bool has_turns(const struct vb_pu *pu)
{
    return !vb_fifo_empty(&pu->run) || (pu->shares && !vb_fifo_empty(&pu->active));
}

// Whether there may be a step to make, timers aside.
static bool has_work(const struct vb_pu *pu)
{
    return vb_doorbells_rung(&pu->bells) || has_turns(pu) || pu->rx_next != pu->rx_count ||
           pu->recv_done || !vb_fifo_empty(&pu->cnps) || vb_pu_has_mail(pu);
}

// The same steps in the same order, without their records, and without looking for frames, timers
// and doorbells between two steps of a turn. Where there are several shares a poll is over when
// its budget is used, and frames may be left.
ALWAYS_INLINE uint32_t poll_unobserved(struct vb_pu *pu, bool shared)
{
    uint32_t steps = 0, before;
    bool ended;

    do {
        before = steps;
        while (first_step(pu, shared)) {
            steps++;
            if (shared && pu->looped >= VB_POLL_LOOPED)
                return steps;
        }
        if (vb_doorbells_rung(&pu->bells))
            answer_doorbells(pu);
        while (!vb_fifo_empty(&pu->cnps) && vb_congestion_step(pu))
            steps++;
        while ((ended = run_one(pu, &steps, shared)) && pu->looped < VB_POLL_LOOPED &&
               !(shared && frames_go_on(pu)))
            ;
    } while ((steps != before || (shared && ended)) && !pu->tx_full &&
             pu->looped < VB_POLL_LOOPED &&
             (has_work(pu) || vb_timers_next(&pu->timers) <= pu->now_ns));
    return steps;
}

static __attribute__((noinline)) uint32_t poll_plainly(struct vb_pu *pu)
{
    return poll_unobserved(pu, false);
}

static __attribute__((noinline)) uint32_t poll_detour(struct vb_pu *pu)
{
    uint32_t steps = 0;

    if (!pu->observer)
        return poll_unobserved(pu, true);
    pu->polling = pu->first = true;
    while (vb_pu_step(pu, pu->now_ns).kind != VB_STEP_NONE) {
        steps++;
        if (pu->first && pu->shares > 1 && pu->looped >= VB_POLL_LOOPED)
            break; // as in poll_unobserved()
    }
    pu->polling = false;
    return steps;
}

uint32_t vb_pu_poll(struct vb_pu *pu, uint64_t now_ns)
{
    pu->now_ns = now_ns;
    pu->looped = 0;
    if (__builtin_expect(pu->detours, 0))
        return poll_detour(pu);
    return has_work(pu) || vb_timers_next(&pu->timers) <= now_ns ? poll_plainly(pu) : 0;
}

bool vb_pu_is_idle(const struct vb_pu *pu)
{
    return !has_work(pu) && pu->txq.count == 0 && pu->event_count == 0;
}

bool vb_pu_has_more(const struct vb_pu *pu)
{
    return pu->looped >= VB_POLL_LOOPED && !pu->tx_full &&
           (has_turns(pu) || pu->rx_next != pu->rx_count);
}

uint64_t vb_pu_deadline(const struct vb_pu *pu)
{
    return vb_timers_next(&pu->timers);
}

void vb_pu_observe(struct vb_pu *pu, vb_step_observer *observer, void *ctx)
{
    pu->observer = observer;
    pu->observer_ctx = ctx;
    vb_pu_choose_poll(pu);
}

void vb_pu_listen(struct vb_pu *pu, vb_step_observer *listener, void *ctx)
{
    pu->listener = listener;
    pu->listener_ctx = ctx;
    pu->recording = listener ? VB_RECORDS_LISTENER : VB_RECORDS_NOBODY;
}

const struct vb_counters *vb_pu_counters(const struct vb_pu *pu)
{
    return &pu->count;
}
