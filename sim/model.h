// SPDX-License-Identifier: Apache-2.0
// The reference model: it follows every step of every NIC and says what the step may have done. It
// shares no code with the NIC but the packet decoder.
#ifndef VB_SIM_MODEL_H
#define VB_SIM_MODEL_H

#include "base/serial.h"
#include "sim/world.h"
#include "wire/packet.h"

// What a frame or a step should have done to memory, and the verdict it should have got.
struct vb_forecast {
    enum vb_rx_verdict verdict;
    struct vb_spans reads, writes;
    const uint8_t *bytes; // written, or read
    uint8_t value[8];     // room for bytes that no packet holds
};

// The observer of a processing unit.
void vb_model_observe(void *unit, const struct vb_step *step);
// A poll begins and has ended: its steps are judged then, if not as they were made.
void vb_model_poll_begins(struct vb_unit *unit);
void vb_model_poll_ended(struct vb_unit *unit);
// Chooses the observer of the unit, by the way in which the world drives it.
void vb_model_attend(struct vb_unit *unit);
// The processing unit found nothing to do.
void vb_model_idle(struct vb_node *node);

// The host may see completions that were held back, perhaps before the port has their answers.
// `unit`: those that one unit held back; NULL: all.
void vb_model_published(struct vb_node *node, const struct vb_unit *unit, bool early);

// Of a frame in the queue, and of where it goes.
uint64_t vb_model_frame_digest(const struct vb_txq *q, const struct vb_tx_frame *frame);
// The port is about to take frames: they must be as they were written.
void vb_model_sending(struct vb_node *node);

// The host has posted; `work` and `intake` are complete but for what the model adds.
void vb_model_posted(struct vb_ep *ep, struct vb_work *work);
void vb_model_posted_recv(struct vb_ep *ep);
// The host has changed the state, with these attributes.
void vb_model_modified(struct vb_ep *ep, const struct vb_qpc_mods *mods);
// The host has polled a completion.
void vb_model_polled(struct vb_node *node, uint32_t cq, const struct vb_wc *wc);
// The host polled and got nothing.
void vb_model_polled_nothing(struct vb_node *node, uint32_t cq);
// The end: nothing may be outstanding, all memory must be as foreseen.
void vb_model_finish(struct vb_world *w);

// ---- between the parts of the model

#define VB_MODEL_CHECK(ep, condition, ...)       \
    do {                                         \
        if (!(condition))                        \
            vb_model_violate((ep), __VA_ARGS__); \
    } while (0)

__attribute__((format(printf, 2, 3))) void vb_model_violate(struct vb_ep *ep, const char *format,
                                                            ...);
// Packets that `len` bytes take.
uint32_t vb_model_packets(const struct vb_ep *ep, uint32_t len);
// Compares a step's touched memory with the forecast, and takes over what was written.
void vb_model_judge_touches(struct vb_ep *ep, const struct vb_step *step,
                            const struct vb_forecast *f);
// The same for a step that was made in a poll which is over: what memory held then, only the model
// knows.
void vb_model_touched_then(struct vb_node *node, const struct vb_forecast *f);
void vb_model_check_state(struct vb_ep *ep);
// The queue pair goes to ERR by itself.
void vb_model_failed(struct vb_ep *ep);

// events
// The step must have told the host of this, exactly once.
void vb_model_expect_event(struct vb_ep *ep, enum vb_event_kind kind);
bool vb_model_is_drained(const struct vb_ep *ep); // and the host does not know it
// Takes what the step told and compares.
void vb_model_check_events(struct vb_node *node);
// The host has asked for an event, and a completion was written.
void vb_model_armed(struct vb_node *node, struct vb_simcq *cq, bool solicited_only);
void vb_model_completed(struct vb_node *node, struct vb_simcq *cq, bool solicited);
// Events are moderated from now on; the wait for more has ended; nothing happens until a deadline.
void vb_model_moderated(struct vb_node *node, struct vb_simcq *cq, uint32_t count,
                        uint64_t period_ns);
void vb_model_cq_timer(struct vb_node *node, const struct vb_step *step);
void vb_model_cq_idle(struct vb_node *node);
// An event that is not a queue pair's.
void vb_model_expect(struct vb_node *node, enum vb_event_kind kind, uint32_t number);

// requester
static inline uint32_t vb_model_ask_psn(const struct vb_asking *a, int64_t packet)
{
    return (uint32_t)((uint64_t)packet + a->psn0) & VB_PSN_MASK;
}

static inline int64_t vb_model_ask_packet(const struct vb_asking *a, uint32_t psn)
{
    return a->una + vb_psn_diff(psn, vb_model_ask_psn(a, a->una));
}

void vb_model_ask_start(struct vb_ep *ep, const struct vb_qpc_mods *mods);
void vb_model_ask_fetch(struct vb_ep *ep, const struct vb_step *step);
void vb_model_ask_exec(struct vb_ep *ep, const struct vb_step *step);
void vb_model_ask_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt);
void vb_model_ask_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f);
void vb_model_ask_timer(struct vb_ep *ep, const struct vb_step *step);
void vb_model_ask_idle(struct vb_ep *ep);
// Goes back with one attempt fewer; false: there was none left.
bool vb_model_retry(struct vb_ep *ep);
// No timer of the unit's queue pairs is overdue; none of this one will be.
void vb_model_timers_due(struct vb_unit *unit);
void vb_model_turn_ended(struct vb_unit *unit); // of any queue pair of the unit
// Nothing in flight asks for an ACK, and the newest packet cannot be repeated to ask, because its
// memory is not there: the NIC goes back to repeat all before it, without a record until the first
// of them is out.
bool vb_model_cannot_ask(struct vb_ep *ep);
// It may have done so, and has no timer until it can send: the window has no room, its rate holds
// it, or it has not had its turn.
bool vb_model_waits_to_ask(struct vb_ep *ep);
void vb_model_timer_idle(struct vb_ep *ep, bool held, bool waits);
// After each step: whether the next request is held back for want of a receive.
void vb_model_credit_watch(struct vb_ep *ep);
// What all queue pairs of the same unit have in flight to this one's peer. The window they share
// never gets smaller than the least.
enum {
    VB_MODEL_WINDOW_MIN = 8 * 1024
};
uint64_t vb_model_cost_at_rest(struct vb_ep *ep); // its own counts unless it went back to ask
// The packet lies inside of a READ request, not at its start.
bool vb_model_is_inside_read(struct vb_ep *ep, int64_t packet);
// A request may fail for a local reason only if there is one.
bool vb_model_is_locally_wrong(struct vb_ep *ep, const struct vb_work *work, uint8_t syndrome);
// Everything before this packet is done with.
void vb_model_ask_done(struct vb_ep *ep, int64_t to);
// The payload of one packet must be the request's bytes from `offset` on.
void vb_model_judge_payload(struct vb_ep *ep, const struct vb_work *work,
                            const struct vb_packet *pkt, uint32_t offset, struct vb_forecast *f);

// rates
// A marked packet was accepted; a CNP came, and which verdict it should get.
void vb_model_marked(struct vb_ep *ep);
enum vb_rx_verdict vb_model_cnp_in(struct vb_ep *ep, const struct vb_rx_frame *frame);
void vb_model_cnp_out(struct vb_ep *ep, const struct vb_packet *pkt);
// A packet leaves: not sooner than its rates let it.
void vb_model_rate_out(struct vb_ep *ep, const struct vb_packet *pkt, uint32_t bytes);
void vb_model_rate_timer(struct vb_ep *ep);
// It may wait for a rate; until when, at the latest.
bool vb_model_rate_holds(const struct vb_ep *ep, uint64_t *until_ns);
// A packet leaves in a turn of the queue pair, while others of its unit owe answers.
void vb_model_answers_wait(struct vb_ep *sender);
// At rest: whether it waits for nothing but its rate, which has to let it go in time.
void vb_model_rate_waits(struct vb_ep *ep, bool waits);
void vb_model_rate_idle(struct vb_ep *ep);

// credits
void vb_model_credit_told(struct vb_ep *ep, const struct vb_packet *pkt);
void vb_model_credit_answer_idle(struct vb_ep *ep);
void vb_model_credit_heard(struct vb_ep *ep, const struct vb_packet *pkt);
// The next request waits for a receive, and nothing else is under way.
bool vb_model_credit_holds(struct vb_ep *ep);
uint64_t vb_model_credit_wait_ns(const struct vb_ep *ep); // at most
// A packet of the request is about to be counted as sent.
void vb_model_credit_out(struct vb_ep *ep, const struct vb_work *work);

// frames
// A frame was written; a NIC takes one, and NULL if nobody sent it so.
void vb_model_cnp_sent(struct vb_ep *ep, const struct vb_ip *to, const uint8_t *bytes,
                       uint32_t len);
void vb_model_frame_sent(struct vb_ep *ep, const struct vb_ip *to, const struct vb_packet *pkt,
                         const uint8_t *bytes, uint32_t len);
struct vb_sent_frame *vb_model_frame_taken(struct vb_node *node, const struct vb_rx_frame *frame);
// Nothing came of it, or of the answer to a requester's packet.
void vb_model_frame_lost(struct vb_sent_frame *f, enum vb_excuse why);
void vb_model_lost(struct vb_ep *ep, int64_t packet, enum vb_excuse why);
// Its receiver will answer the request, or has the answer: other copies may get lost.
void vb_model_frame_heard(struct vb_sent_frame *f);
// Of a new connection.
void vb_model_fate_begins(struct vb_ep *ep);
// The peer does not answer a packet that came again; for good: it cannot, however often it is
// asked.
void vb_model_given_up(struct vb_ep *ep, int64_t packet, bool for_good);
// The requester goes back: what got lost before is no reason any more.
void vb_model_sends_again(struct vb_ep *ep);
// Of the network.
void vb_model_frame_fate(void *world, enum vb_simnet_fate fate, const struct vb_ip *src,
                         const struct vb_ip *dst, const uint8_t *frame, uint32_t len);
// No frame is anywhere: each that was sent was dropped by the network or taken by a NIC.
void vb_model_judge_book(struct vb_world *w);
// No acknowledgement came in time: something must have got lost.
void vb_model_judge_timeout(struct vb_ep *ep);
// Nothing can harm an attempt that begins now: not the network, not a NAK that is under way, not an
// answer that the peer owes, and not the frames from before it healed that either NIC has to read.
bool vb_model_has_healed(const struct vb_ep *ep);
// It gives up for want of attempts.
void vb_model_judge_end(struct vb_ep *ep);

// responder
void vb_model_answer_start(struct vb_ep *ep, const struct vb_qpc_mods *mods);
// The next packet in sequence; also whether a peer may use a key for something.
enum vb_rx_verdict vb_model_execute(struct vb_ep *ep, const struct vb_packet *pkt,
                                    struct vb_forecast *f);
// In the domain of the message, or another.
bool vb_model_may_access_in(struct vb_ep *ep, uint32_t pd, uint32_t rkey, uint64_t addr,
                            uint32_t len, uint32_t need, uint32_t *offset);
bool vb_model_may_access(struct vb_ep *ep, uint32_t rkey, uint64_t addr, uint32_t len,
                         uint32_t need, uint32_t *offset);
// An answer of its own is owed.
void vb_model_owe(struct vb_ep *ep, const struct vb_owed *owed);
void vb_model_owe_read(struct vb_ep *ep, const struct vb_packet *pkt, int64_t first, uint32_t pd,
                       bool again);
// The former value that an atomic found. False: none was executed as this packet.
bool vb_model_answer_result(struct vb_ep *ep, int64_t packet, uint64_t *old);
void vb_model_answer_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f);
void vb_model_answer_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt);
void vb_model_answer_dropped(struct vb_ep *ep, const struct vb_step *step);
void vb_model_answer_idle(struct vb_ep *ep);
// The host prepares for an end: what came is acknowledged, asked for or not.
void vb_model_settle(struct vb_ep *ep);

// unreliable services
void vb_model_unreliable_out(struct vb_ep *ep, const struct vb_step *step,
                             const struct vb_packet *pkt);
void vb_model_unreliable_in(struct vb_ep *ep, const struct vb_rx_frame *frame,
                            const struct vb_packet *pkt, struct vb_forecast *f);
// Whether the service knows the operation.
bool vb_model_serves(const struct vb_ep *ep, const struct vb_work *work);
// A request has failed, and the send queue with it; the host lets it go on.
void vb_model_sqe_entered(struct vb_ep *ep);
void vb_model_sqe_left(struct vb_ep *ep);
void vb_model_uc_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f);
void vb_model_ud_in(struct vb_ep *ep, const struct vb_rx_frame *frame, const struct vb_packet *pkt,
                    struct vb_forecast *f);
bool vb_model_ud_is_well_formed(const struct vb_ep *ep, const struct vb_tx_frame *frame,
                                const struct vb_packet *pkt);
// The request's own destination and key are in the packet.
bool vb_model_ud_is_addressed(const struct vb_ep *ep, const struct vb_work *work,
                              const struct vb_packet *pkt);
// A datagram of this request can reach its destination's family of addresses.
bool vb_model_ud_has_path(const struct vb_ep *ep, const struct vb_work *work);
// The receive that a message uses: the one in use already, or the next. NULL: none is posted.
const struct vb_intake *vb_model_use_receive(struct vb_ep *ep);
// The receive in use ends with its message, or fails and with it the queue pair.
void vb_model_receive_ends(struct vb_ep *ep, const struct vb_packet *pkt, uint32_t bytes);
enum vb_rx_verdict vb_model_receive_fails(struct vb_ep *ep, uint8_t syndrome);

// shared receive queues and XRC
// Takes the next receive, of the queue that the message uses. False: it is empty.
bool vb_model_take_receive(struct vb_ep *ep);
struct vb_user vb_model_receiver(const struct vb_ep *ep, const struct vb_intake *in);
// XRC: the message names a queue of the right domain; the following packets use it.
bool vb_model_names_srq(struct vb_ep *ep, const struct vb_packet *pkt);
struct vb_simsrq *vb_model_find_srq(struct vb_ep *ep, uint32_t srqn);
// The queue pair goes; what it had in use is not given back.
void vb_model_srq_lost(struct vb_ep *ep);
// The queue for XRC is destroyed.
void vb_model_srq_gone(struct vb_simsrq *srq);
bool vb_model_is_last(struct vb_node *node, uint32_t qpn);
void vb_model_srq_idle(struct vb_ep *ep);
// Whether a packet is of the service that the queue pair has, and of the right role of XRC.
bool vb_model_is_served(const struct vb_ep *ep, const struct vb_packet *pkt);
// Packets of XRC are judged as RC's, but for what they say more.
void vb_model_as_rc(const struct vb_ep *ep, struct vb_packet *pkt);

// units
struct vb_mail *vb_model_mail_create(void);
const struct vb_rx_frame *vb_model_next_frame(struct vb_unit *unit);
// True: the frame is another unit's, which must have got it.
bool vb_model_hands_over(struct vb_ep *ep, const struct vb_rx_frame *frame);
// The units that the step says to have handed frames to.
void vb_model_handed(struct vb_unit *unit, uint32_t handed);

// completions
void vb_model_complete(struct vb_ep *ep, const struct vb_step *step);

#endif
