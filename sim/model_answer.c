// SPDX-License-Identifier: Apache-2.0
// The reference model's responder: each request packet is executed exactly once and in order;
// answers leave in order, and none claims more than was done.
#include "sim/model.h"

#include "base/serial.h"
#include "wire/roce.h"

#include <string.h>

static uint32_t psn_of(const struct vb_answering *a, int64_t packet)
{
    return (uint32_t)((uint64_t)packet + a->psn0) & VB_PSN_MASK;
}

static int64_t packet_of(const struct vb_answering *a, uint32_t psn)
{
    return a->epsn + vb_psn_diff(psn, psn_of(a, a->epsn));
}

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

void vb_model_answer_start(struct vb_ep *ep, const struct vb_qpc_mods *mods)
{
    struct vb_answering *a = &ep->answer;

    // Receives may have been posted before the connection was made.
    a->psn0 = mods->rq_psn;
    a->epsn = a->acked = 0;
    a->pd = ep->pd;
}

void vb_model_posted_recv(struct vb_ep *ep)
{
    ep->answer.posted++;
}

// ---- what is owed

static void remove_owed(struct vb_answering *a, uint32_t i)
{
    a->owed_count--;
    memmove(&a->owed[i], &a->owed[i + 1], (a->owed_count - i) * sizeof a->owed[0]);
}

// A duplicate is not answered: its requester has to ask once more.
static void give_up(struct vb_ep *ep, int64_t packet, enum vb_excuse why)
{
    vb_model_given_up(ep->peer, packet, why == VB_EXCUSE_ANSWER_MEMORY_GONE);
    vb_excuse(cover_of(ep), why);
}

// In the order of packets. There is always room for a new request: at most half of the room is
// theirs, and repetitions make way.
void vb_model_owe(struct vb_ep *ep, const struct vb_owed *owed)
{
    struct vb_answering *a = &ep->answer;

    if (a->owed_count == VB_SIM_OWED) {
        VB_MODEL_CHECK(ep, a->owed[0].again, "owes too many answers to new requests");
        give_up(ep, a->owed[0].next, VB_EXCUSE_ANSWERS_FULL);
        remove_owed(a, 0);
    }
    uint32_t i = a->owed_count++;
    for (; i > 0 && a->owed[i - 1].next > owed->next; i--)
        a->owed[i] = a->owed[i - 1];
    a->owed[i] = *owed;
}

void vb_model_owe_read(struct vb_ep *ep, const struct vb_packet *pkt, int64_t first, uint32_t pd,
                       bool again)
{
    vb_model_owe(ep, &(struct vb_owed){.kind = VB_OWED_READ,
                                       .next = first,
                                       .end = first + vb_model_packets(ep, pkt->dma_len),
                                       .raddr = pkt->raddr,
                                       .rkey = pkt->rkey,
                                       .pd = pd,
                                       .left = pkt->dma_len,
                                       .again = again});
}

// Among the last `kept` results.
static const struct vb_single *find_single(const struct vb_answering *a, int64_t packet,
                                           uint32_t kept)
{
    for (uint32_t i = 1; i <= kept && i <= a->single_count; i++) {
        const struct vb_single *s = &a->single[(a->single_count - i) % VB_SIM_RESULTS];
        if (s->packet == packet)
            return s;
    }
    return NULL;
}

bool vb_model_answer_result(struct vb_ep *ep, int64_t packet, uint64_t *old)
{
    const struct vb_single *s = find_single(&ep->answer, packet, VB_SIM_RESULTS);

    if (s)
        *old = s->old;
    return s && s->kind == VB_OWED_ATOMIC;
}

static uint32_t bytes_of(const struct vb_ep *ep, const struct vb_owed *o)
{
    return o->left < ep->link.mtu ? o->left : ep->link.mtu;
}

static bool memory_is_gone(struct vb_ep *ep, const struct vb_owed *o)
{
    uint32_t offset;

    return o->kind == VB_OWED_READ &&
           !vb_model_may_access_in(ep, o->pd, o->rkey, o->raddr, bytes_of(ep, o), VB_REMOTE_READ,
                                   &offset);
}

// The answer that leaves next; NULL: none is owed.
static struct vb_owed *next_owed(struct vb_ep *ep)
{
    return ep->answer.owed_count > 0 ? &ep->answer.owed[0] : NULL;
}

// A READ that was asked for again is given up in its turn if its memory is gone: a stray duplicate
// must not end a connection.
void vb_model_answer_dropped(struct vb_ep *ep, const struct vb_step *step)
{
    const struct vb_owed *o = next_owed(ep);

    VB_MODEL_CHECK(ep, o && step->psn == psn_of(&ep->answer, o->next) && o->again,
                   "dropped the answer %u, which is not next or not a repetition", step->psn);
    if (!o)
        return;
    VB_MODEL_CHECK(ep, memory_is_gone(ep, o), "dropped the answer %u for no reason", step->psn);
    give_up(ep, o->next, VB_EXCUSE_ANSWER_MEMORY_GONE);
    remove_owed(&ep->answer, 0);
}

// ---- requests out of sequence

static bool is_owed(const struct vb_answering *a, int64_t packet)
{
    for (uint32_t i = 0; i < a->owed_count; i++)
        if (packet >= a->owed[i].next && packet < a->owed[i].end)
            return true;
    return false;
}

// Never executed again: the result that was kept is sent again. As many results are kept as may be
// in flight.
static void ask_single_again(struct vb_ep *ep, int64_t packet)
{
    struct vb_answering *a = &ep->answer;
    const struct vb_single *s = find_single(a, packet, VB_RD_ATOMIC_MAX);

    if (!s)
        return; // too old: nobody waits for it
    if (is_owed(a, packet)) {
        vb_cover(cover_of(ep), VB_COVER_DUP_SINGLE_EARLY);
        return;
    }
    if (a->owed_count == VB_SIM_OWED) {
        give_up(ep, packet, VB_EXCUSE_ANSWERS_FULL);
        return;
    }
    vb_cover(cover_of(ep), s->kind == VB_OWED_ATOMIC ? VB_COVER_DUP_ATOMIC : VB_COVER_DUP_DONE);
    vb_model_owe(
        ep,
        &(struct vb_owed){
            .kind = s->kind, .next = packet, .end = packet + 1, .raddr = s->old, .again = true});
}

// A READ that is answered again takes over what is owed behind its start, but is not needed if the
// answer that it asks for is still to leave.
static void ask_read_again(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    struct vb_answering *a = &ep->answer;
    int64_t end = packet + vb_model_packets(ep, pkt->dma_len);
    const struct vb_simsrq *srq = vb_model_find_srq(ep, pkt->xrc_srqn);

    if (pkt->dma_len > VB_MESSAGE_MAX || end > a->epsn)
        return; // claims packets that were never asked for
    if (vb_ep_is_xrc(ep) && !srq) {
        give_up(ep, packet, VB_EXCUSE_ANSWER_MEMORY_GONE); // with its queue
        return;
    }
    vb_cover(cover_of(ep), vb_model_is_inside_read(ep->peer, packet) ? VB_COVER_DUP_READ_PART
                                                                     : VB_COVER_DUP_READ_FULL);
    bool owed = is_owed(a, packet);
    for (uint32_t i = a->owed_count; i-- > 0;)
        if (a->owed[i].next > packet && a->owed[i].next < end)
            remove_owed(a, i);
    if (owed)
        return;
    if (a->owed_count == VB_SIM_OWED)
        give_up(ep, packet, VB_EXCUSE_ANSWERS_FULL);
    else
        vb_model_owe_read(ep, pkt, packet, srq ? ep->node->pd[srq->domain] : ep->pd, true);
}

static void on_duplicate(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    struct vb_answering *a = &ep->answer;

    if (packet < 0)
        vb_cover(cover_of(ep), VB_COVER_DUP_FORMER_LIFE);
    if (pkt->facts & VB_OP_READ) {
        ask_read_again(ep, pkt, packet);
        return;
    }
    if (pkt->facts & (VB_OP_ATOMIC | VB_OP_ATOMIC_WRITE | VB_OP_FLUSH)) {
        ask_single_again(ep, packet);
        return;
    }
    vb_cover(cover_of(ep), pkt->facts & VB_OP_SEND ? VB_COVER_DUP_SEND : VB_COVER_DUP_WRITE);
    a->ack_due = true;
}

// A packet is missing. That is complained about once; the packets behind the gap are dropped.
static void on_gap(struct vb_ep *ep, int64_t packet)
{
    struct vb_answering *a = &ep->answer;

    if (a->silent) {
        a->far = packet > a->far ? packet : a->far;
        return;
    }
    a->far = packet;
    a->silent = a->nak_due = true;
    a->nak_syndrome = vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
}

void vb_model_answer_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f)
{
    struct vb_answering *a = &ep->answer;
    int64_t packet = packet_of(a, pkt->psn);

    if (a->closing) {
        f->verdict = VB_RX_STRANGER;
    } else if (packet == a->epsn) {
        f->verdict = vb_model_execute(ep, pkt, f);
    } else if (packet < a->epsn) {
        f->verdict = VB_RX_DUPLICATE;
        on_duplicate(ep, pkt, packet);
    } else {
        f->verdict = VB_RX_AHEAD;
        on_gap(ep, packet);
    }
}

// ---- answers out

// An acknowledgement also covers the requests whose own answers are owed: those leave first.
static void judge_order(struct vb_ep *ep, const struct vb_packet *pkt)
{
    const struct vb_owed *o = next_owed(ep);

    VB_MODEL_CHECK(ep, !o, "answered PSN %u before the answer %u was sent", pkt->psn,
                   psn_of(&ep->answer, o ? o->next : 0));
}

static void packet_left(struct vb_answering *a, struct vb_owed *o, uint32_t bytes)
{
    if (o->next == a->epsn - 1)
        a->ack_due = false;
    o->raddr += bytes;
    o->left -= bytes;
    o->begun = true;
    if (++o->next == o->end)
        remove_owed(a, 0);
}

static void response_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt,
                         struct vb_owed *o)
{
    struct vb_forecast f = {.bytes = pkt->payload};
    bool first = pkt->facts & VB_OP_FIRST, last = pkt->facts & VB_OP_LAST;
    uint32_t offset = 0, len = bytes_of(ep, o);

    VB_MODEL_CHECK(ep, pkt->payload_len == len, "READ response %u has %u bytes, expected %u",
                   pkt->psn, pkt->payload_len, len);
    VB_MODEL_CHECK(ep, last == (len == o->left), "READ response %u: wrong end", pkt->psn);
    VB_MODEL_CHECK(ep, first == !o->begun, "READ response %u: wrong start", pkt->psn);
    VB_MODEL_CHECK(
        ep, vb_model_may_access_in(ep, o->pd, o->rkey, o->raddr, len, VB_REMOTE_READ, &offset),
        "READ response %u from memory that forbids it", pkt->psn);
    vb_spans_add(&f.reads, offset, len);
    vb_model_judge_touches(ep, step, &f);
    packet_left(&ep->answer, o, len);
}

// The answer of an atomic, an ATOMIC WRITE or a FLUSH.
static void single_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt,
                       struct vb_owed *o)
{
    static const struct vb_forecast nothing;
    bool atomic = pkt->facts & VB_OP_ATOMIC;

    VB_MODEL_CHECK(ep, atomic || pkt->opcode == VB_RC_READ_RESP_ONLY, "answer %u has the opcode %u",
                   pkt->psn, pkt->opcode);
    VB_MODEL_CHECK(ep, !atomic || pkt->atomic_old == o->raddr,
                   "answer %u has the former value %llx, expected %llx", pkt->psn,
                   (unsigned long long)pkt->atomic_old, (unsigned long long)o->raddr);
    VB_MODEL_CHECK(ep, pkt->payload_len == 0, "answer %u has %u bytes", pkt->psn, pkt->payload_len);
    vb_model_judge_touches(ep, step, &nothing);
    packet_left(&ep->answer, o, 0);
}

static void owed_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt)
{
    struct vb_owed *o = next_owed(ep);
    bool atomic = pkt->facts & VB_OP_ATOMIC;

    if (!o || pkt->psn != psn_of(&ep->answer, o->next) || atomic != (o->kind == VB_OWED_ATOMIC))
        vb_model_violate(ep, "answer %u is to nothing, of the wrong kind or not next", pkt->psn);
    else if (o->kind == VB_OWED_READ)
        response_out(ep, step, pkt, o);
    else
        single_out(ep, step, pkt, o);
}

// The memory of a READ is gone: that is told in the place of the response, and ends the connection.
static void lost_read_out(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    const struct vb_owed *o = next_owed(ep);

    VB_MODEL_CHECK(ep, o && o->next == packet && memory_is_gone(ep, o),
                   "refused PSN %u for no reason", pkt->psn);
    vb_cover(cover_of(ep), VB_COVER_BAD_DEREG_READ);
    vb_model_expect_event(ep, VB_EVENT_QP_ACCESS_ERR);
    vb_model_failed(ep);
    ep->ask.may_flush = true;
}

static void nak_out(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    struct vb_answering *a = &ep->answer;
    bool expected = (a->closing || a->nak_due) && packet == a->epsn;

    if (!expected && pkt->syndrome == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_REMOTE_ACCESS)) {
        lost_read_out(ep, pkt, packet);
        return;
    }
    VB_MODEL_CHECK(ep, expected, "sent a NAK for PSN %u that nothing called for", pkt->psn);
    VB_MODEL_CHECK(ep, pkt->syndrome == a->nak_syndrome,
                   "sent the syndrome 0x%02x, expected 0x%02x", pkt->syndrome, a->nak_syndrome);
    judge_order(ep, pkt);
    ep->node->tally.seq_naks_out +=
        pkt->syndrome == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    a->silent = true;
    a->nak_due = a->ack_due = a->unacked = false;
    if (a->closing) {
        vb_model_failed(ep);
        ep->ask.may_flush = true;
    }
}

// Unasked it must tell of more receives than the peer knows of.
static void ack_out(struct vb_ep *ep, const struct vb_packet *pkt, bool tells_more)
{
    struct vb_answering *a = &ep->answer;
    int64_t packet = packet_of(a, pkt->psn);

    if (vb_aeth_kind_of(pkt->syndrome) != VB_AETH_ACK) {
        nak_out(ep, pkt, packet);
        return;
    }
    VB_MODEL_CHECK(ep, packet == a->epsn - 1, "acknowledged PSN %u, executed are those before %u",
                   pkt->psn, psn_of(a, a->epsn));
    VB_MODEL_CHECK(ep, !a->closing && !a->nak_due, "acknowledged where a NAK was due");
    VB_MODEL_CHECK(ep, a->ack_due || tells_more, "acknowledged PSN %u unasked and told nothing new",
                   pkt->psn);
    if (!a->ack_due)
        vb_cover(cover_of(ep), VB_COVER_CREDIT_UPDATE);
    judge_order(ep, pkt);
    a->unacked = a->ack_due = false;
    a->ack_limit = a->told_limit;
}

// All before a NAK's packet was executed, and the others' packet, too.
static void note_acked(struct vb_answering *a, const struct vb_packet *pkt)
{
    bool nak = (pkt->facts & VB_OP_ACK) && vb_aeth_kind_of(pkt->syndrome) != VB_AETH_ACK;
    int64_t end = packet_of(a, pkt->psn) + !nak;

    a->acked = end > a->acked ? end : a->acked;
}

void vb_model_answer_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt)
{
    static const struct vb_forecast nothing;
    struct vb_answering *a = &ep->answer;
    bool open = ep->state == VB_QPS_RTS || ep->state == VB_QPS_RTR || ep->state == VB_QPS_SQD;
    bool told = a->told;

    note_acked(a, pkt);
    VB_MODEL_CHECK(ep, open, "answered in state %s", vb_qp_state_name(ep->state));
    if (pkt->facts & VB_OP_AETH)
        VB_MODEL_CHECK(ep, pkt->msn == a->msn, "sent message number %u, expected %u", pkt->msn,
                       a->msn);
    if ((pkt->facts & VB_OP_AETH) && vb_aeth_kind_of(pkt->syndrome) == VB_AETH_ACK)
        vb_model_credit_told(ep, pkt);
    // Credits are told in steps, so a response may tell of fewer than the ACK before it did. Then
    // an ACK is owed for more than that, even if another response has told of them meanwhile.
    if (vb_psn_diff(a->told_limit, a->ack_limit) < 0)
        a->ack_limit = a->told_limit;
    if (pkt->facts & VB_OP_ACK) {
        ack_out(ep, pkt, told && vb_psn_diff(a->told_limit, a->ack_limit) > 0);
        vb_model_judge_touches(ep, step, &nothing);
    } else {
        owed_out(ep, step, pkt);
    }
}

void vb_model_settle(struct vb_ep *ep)
{
    struct vb_answering *a = &ep->answer;
    bool open = ep->state == VB_QPS_RTS || ep->state == VB_QPS_RTR || ep->state == VB_QPS_SQD;

    if (open && a->unacked && !a->nak_due && !vb_ep_is_unreliable(ep)) {
        a->ack_due = true;
        vb_cover(cover_of(ep), VB_COVER_SETTLED);
    }
    vb_dev_qp_settle(ep->node->dev, ep->qpn);
    vb_node_wake(ep->node);
}

// Queue pairs of a unit without shares have turns of at most 64 packets. One that owes an answer is
// in the list of those that have a turn, and each other one that has had its turn is behind it.
void vb_model_answers_wait(struct vb_ep *sender)
{
    const struct vb_node *node = sender->node;
    uint64_t until_ns;

    for (uint32_t i = 0; i < node->ep_count && node->world->scen.shares == 0; i++) {
        struct vb_ep *ep = node->ep[i];
        struct vb_answering *a = &ep->answer;
        if (ep == sender || vb_ep_unit(ep) != vb_ep_unit(sender))
            continue;
        bool open = ep->state >= VB_QPS_RTR && ep->state <= VB_QPS_SQD;
        bool owes = open && (a->owed_count > 0 || a->ack_due || a->nak_due);
        bool same = a->passed_by == sender->qpn;
        a->passed = owes && !vb_model_rate_holds(ep, &until_ns) ? same * a->passed + 1 : 0;
        a->passed_by = sender->qpn;
        VB_MODEL_CHECK(ep, a->passed <= VB_SIM_TURN,
                       "owes an answer, and QP 0x%06x sends %u packets", sender->qpn, a->passed);
    }
}

// A response that waits for a rate, and has a timer for it, keeps what is behind it.
static bool waits_for_rate(const struct vb_ep *ep)
{
    uint64_t until_ns = UINT64_MAX;

    return vb_model_rate_holds(ep, &until_ns) && vb_pu_deadline(vb_ep_unit(ep)->pu) <= until_ns;
}

void vb_model_answer_idle(struct vb_ep *ep)
{
    struct vb_answering *a = &ep->answer;

    VB_MODEL_CHECK(ep, !a->done_due, "is idle with a receive completion owed");
    if (ep->state == VB_QPS_ERR) {
        VB_MODEL_CHECK(ep, a->done == a->posted, "is idle with receives not flushed");
        return;
    }
    const struct vb_owed *o = next_owed(ep);
    bool waits = o && waits_for_rate(ep);
    vb_model_rate_waits(ep, waits);
    if (waits)
        return;
    VB_MODEL_CHECK(ep, !o, "is idle with the answer %u owed", psn_of(a, o ? o->next : 0));
    VB_MODEL_CHECK(ep, !a->nak_due && !a->closing, "is idle with a NAK owed");
    VB_MODEL_CHECK(ep, !a->ack_due, "is idle with an ACK owed");
    vb_model_credit_answer_idle(ep);
}
