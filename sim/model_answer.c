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
    for (int i = 0; i < VB_SIM_UNANSWERED; i++)
        a->open[i] = INT64_MIN;
}

void vb_model_posted_recv(struct vb_ep *ep)
{
    ep->answer.posted++;
}

// ---- what was asked

void vb_model_remember_read(struct vb_ep *ep, const struct vb_packet *pkt, int64_t first,
                            uint32_t pd)
{
    struct vb_answering *a = &ep->answer;

    a->seen[a->seen_count++ % VB_SIM_READS_SEEN] =
        (struct vb_read_seen){.first = first,
                              .packets = vb_model_packets(ep, pkt->dma_len),
                              .len = pkt->dma_len,
                              .raddr = pkt->raddr,
                              .rkey = pkt->rkey,
                              .pd = pd};
}

// Among the last `kept` results.
static struct vb_single *find_single(struct vb_answering *a, int64_t packet, uint32_t kept)
{
    for (uint32_t i = 1; i <= kept && i <= a->single_count; i++) {
        struct vb_single *s = &a->single[(a->single_count - i) % VB_SIM_RESULTS];
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
    return s && s->kind == VB_SINGLE_ATOMIC;
}

// ---- requests out of sequence

static const struct vb_read_seen *find_read(const struct vb_answering *a, int64_t packet)
{
    uint32_t kept = a->seen_count < VB_SIM_READS_SEEN ? a->seen_count : VB_SIM_READS_SEEN;

    for (uint32_t i = 1; i <= kept; i++) {
        const struct vb_read_seen *s = &a->seen[(a->seen_count - i) % VB_SIM_READS_SEEN];
        if (packet >= s->first && packet < s->first + s->packets)
            return s;
    }
    return NULL;
}

static void mark_asked_again(struct vb_answering *a, int64_t from, int64_t to)
{
    for (uint32_t i = 0; i < a->unanswered_count; i++)
        a->unanswered[i].asked_again |= a->unanswered[i].next > from && a->unanswered[i].next < to;
}

// An older READ that is answered again takes over what is owed behind its start.
static void supersede(struct vb_answering *a, int64_t from, int64_t to)
{
    mark_asked_again(a, from, to);
    for (uint32_t i = 0; i < VB_SIM_RESULTS; i++)
        if (a->single[i].packet > from && a->single[i].packet < to)
            a->single[i].owed_again = false;
}

static bool is_unanswered(const struct vb_answering *a, int64_t packet)
{
    for (uint32_t i = 0; i < a->unanswered_count; i++)
        if (packet >= a->unanswered[i].next && packet < a->unanswered[i].end)
            return true;
    return false;
}

// Past so many, the NIC's list of answers may have had no room for them all.
static bool count_duplicate(struct vb_answering *a)
{
    if (++a->asked_again <= VB_RD_ATOMIC_MAX)
        return true;
    for (uint32_t i = 0; i < VB_SIM_RESULTS; i++)
        a->single[i].owed_again = false;
    return false;
}

// Never executed again: the result that was kept is sent again. As many results are kept as may be
// in flight.
static void ask_single_again(struct vb_ep *ep, int64_t packet)
{
    struct vb_answering *a = &ep->answer;
    struct vb_single *s = find_single(a, packet, VB_RD_ATOMIC_MAX);

    if (!s)
        return; // too old: nobody waits for it
    if (is_unanswered(a, packet)) {
        vb_cover(cover_of(ep), VB_COVER_DUP_SINGLE_EARLY);
        return;
    }
    vb_cover(cover_of(ep), s->kind == VB_SINGLE_ATOMIC ? VB_COVER_DUP_ATOMIC : VB_COVER_DUP_DONE);
    if (count_duplicate(a))
        s->owed_again = true;
}

static void on_duplicate(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    struct vb_answering *a = &ep->answer;

    if (packet < 0)
        vb_cover(cover_of(ep), VB_COVER_DUP_FORMER_LIFE);
    if (pkt->facts & VB_OP_READ) {
        uint32_t packets = vb_model_packets(ep, pkt->dma_len);
        const struct vb_read_seen *s = find_read(a, packet);
        if (pkt->dma_len > VB_MESSAGE_MAX || packet + packets > a->epsn)
            return; // claims packets that were never asked for
        const struct vb_simsrq *srq = vb_model_find_srq(ep, pkt->xrc_srqn);
        if (vb_ep_is_xrc(ep) && !srq)
            return; // its queue is gone
        bool part = s && s->first != packet;
        vb_cover(cover_of(ep), part ? VB_COVER_DUP_READ_PART : VB_COVER_DUP_READ_FULL);
        vb_model_remember_read(ep, pkt, packet, srq ? ep->node->pd[srq->domain] : ep->pd);
        supersede(a, packet, packet + packets);
        count_duplicate(a);
        return;
    }
    if (pkt->facts & (VB_OP_ATOMIC | VB_OP_ATOMIC_WRITE | VB_OP_FLUSH)) {
        ask_single_again(ep, packet);
        return;
    }
    vb_cover(cover_of(ep), pkt->facts & VB_OP_SEND ? VB_COVER_DUP_SEND : VB_COVER_DUP_WRITE);
    a->ack_due = true;
}

void vb_model_answer_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f)
{
    struct vb_answering *a = &ep->answer;
    int64_t packet = packet_of(a, pkt->psn);

    if (a->closing) {
        f->verdict = VB_RX_STRANGER;
    } else if (packet == a->epsn) {
        f->verdict = vb_model_execute(ep, pkt, f);
        if (f->verdict == VB_RX_APPLIED)
            vb_model_ask_executed(ep->peer, pkt, packet);
    } else if (packet < a->epsn) {
        f->verdict = VB_RX_DUPLICATE;
        on_duplicate(ep, pkt, packet);
    } else {
        f->verdict = VB_RX_AHEAD;
        if (!a->silent) {
            a->silent = a->nak_due = true;
            a->nak_syndrome = vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
        }
    }
}

// ---- answers out

// What a response with this packet's number holds. False: it answers no READ that was seen.
struct response {
    uint64_t raddr;
    uint32_t rkey, pd, len, left;
};

static bool foresee_response(const struct vb_ep *ep, int64_t packet, struct response *r)
{
    const struct vb_read_seen *read = find_read(&ep->answer, packet);

    if (!read)
        return false;
    uint32_t at = (uint32_t)(packet - read->first) * ep->link.mtu, left = read->len - at;
    *r = (struct response){.raddr = read->raddr + at,
                           .rkey = read->rkey,
                           .pd = read->pd,
                           .len = left < ep->link.mtu ? left : ep->link.mtu,
                           .left = left};
    return true;
}

static bool memory_is_gone(struct vb_ep *ep, int64_t packet)
{
    struct response r;
    uint32_t offset;

    return foresee_response(ep, packet, &r) &&
           !vb_model_may_access_in(ep, r.pd, r.rkey, r.raddr, r.len, VB_REMOTE_READ, &offset);
}

static void unanswered_remove(struct vb_answering *a, uint32_t i)
{
    a->unanswered_count--;
    memmove(&a->unanswered[i], &a->unanswered[i + 1],
            (a->unanswered_count - i) * sizeof a->unanswered[0]);
}

static void forget_given_up(struct vb_ep *ep)
{
    struct vb_answering *a = &ep->answer;

    for (uint32_t i = a->unanswered_count; i-- > 0;)
        if (a->unanswered[i].asked_again && memory_is_gone(ep, a->unanswered[i].next))
            unanswered_remove(a, i);
}

// An answer with this packet's number also acknowledges everything before it: the responses owed
// for earlier READs must have left.
static void judge_order(struct vb_ep *ep, int64_t before)
{
    const struct vb_answering *a = &ep->answer;

    forget_given_up(ep);
    for (uint32_t i = 0; i < a->unanswered_count; i++)
        VB_MODEL_CHECK(ep, a->unanswered[i].next >= before,
                       "answered PSN %u before the answer %u was sent", psn_of(a, before),
                       psn_of(a, a->unanswered[i].next));
}

// A response starts a run of its own only where some READ request started.
static bool starts_a_read(const struct vb_answering *a, int64_t packet)
{
    uint32_t kept = a->seen_count < VB_SIM_READS_SEEN ? a->seen_count : VB_SIM_READS_SEEN;

    for (uint32_t i = 1; i <= kept; i++)
        if (a->seen[(a->seen_count - i) % VB_SIM_READS_SEEN].first == packet)
            return true;
    return false;
}

// A response other than the first goes on where an earlier one stopped.
static bool continues(struct vb_answering *a, int64_t packet, bool ends)
{
    for (int i = 0; i < VB_SIM_UNANSWERED; i++) {
        if (a->open[i] != packet)
            continue;
        a->open[i] = ends ? INT64_MIN : packet + 1;
        return true;
    }
    return false;
}

static bool begins(struct vb_answering *a, int64_t packet, bool ends)
{
    if (!starts_a_read(a, packet))
        return false;
    if (!ends)
        a->open[a->open_count++ % VB_SIM_UNANSWERED] = packet + 1;
    return true;
}

static void mark_answered(struct vb_answering *a, int64_t packet)
{
    for (uint32_t i = 0; i < a->unanswered_count; i++) {
        struct vb_unanswered *u = &a->unanswered[i];
        if (packet != u->next)
            continue;
        if (++u->next == u->end)
            unanswered_remove(a, i);
        return;
    }
}

static void remember_response(struct vb_answering *a, const struct vb_packet *pkt, int64_t packet)
{
    struct vb_echo *e = &a->echo[(uint64_t)packet % VB_SIM_ECHOES];

    if (packet < 0)
        return; // nobody of this connection waits for it
    if (e->packet != packet)
        *e = (struct vb_echo){.packet = packet};
    e->digest[e->copies++ % VB_SIM_COPIES] = vb_digest_bytes(pkt->payload, pkt->payload_len);
}

void vb_model_answer_stored(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    const struct vb_echo *e = &ep->answer.echo[(uint64_t)packet % VB_SIM_ECHOES];
    uint64_t digest = vb_digest_bytes(pkt->payload, pkt->payload_len);
    bool sent = e->copies > VB_SIM_COPIES; // then one may have been forgotten

    for (uint32_t i = 0; i < VB_SIM_COPIES && i < e->copies; i++)
        sent |= e->digest[i] == digest;
    VB_MODEL_CHECK(ep, e->packet == packet && sent,
                   "its peer stored READ response %u, which was never sent", pkt->psn);
}

static void response_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt)
{
    struct vb_answering *a = &ep->answer;
    struct vb_forecast f = {.bytes = pkt->payload};
    int64_t packet = packet_of(a, pkt->psn);
    bool first = pkt->facts & VB_OP_FIRST, last = pkt->facts & VB_OP_LAST;
    uint32_t offset = 0;
    struct response r;

    if (!foresee_response(ep, packet, &r)) {
        vb_model_violate(ep, "READ response %u answers no READ", pkt->psn);
        return;
    }
    VB_MODEL_CHECK(ep, pkt->payload_len == r.len, "READ response %u has %u bytes, expected %u",
                   pkt->psn, pkt->payload_len, r.len);
    VB_MODEL_CHECK(ep, last == (r.len == r.left), "READ response %u: wrong end", pkt->psn);
    VB_MODEL_CHECK(ep, first ? begins(a, packet, last) : continues(a, packet, last),
                   "READ response %u: wrong start", pkt->psn);
    VB_MODEL_CHECK(
        ep, vb_model_may_access_in(ep, r.pd, r.rkey, r.raddr, r.len, VB_REMOTE_READ, &offset),
        "READ response %u from memory that forbids it", pkt->psn);
    vb_spans_add(&f.reads, offset, r.len);
    vb_model_judge_touches(ep, step, &f);
    judge_order(ep, packet);
    mark_answered(a, packet);
    remember_response(a, pkt, packet);
    if (packet == a->epsn - 1)
        a->ack_due = false;
}

// The answer of an atomic, an ATOMIC WRITE or a FLUSH.
static void single_out(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_single *s)
{
    struct vb_answering *a = &ep->answer;
    int64_t packet = packet_of(a, pkt->psn);
    bool atomic = pkt->facts & VB_OP_ATOMIC;

    if (!s || atomic != (s->kind == VB_SINGLE_ATOMIC)) {
        vb_model_violate(ep, "answer %u is of the wrong kind or to nothing", pkt->psn);
        return;
    }
    VB_MODEL_CHECK(ep, !atomic || pkt->atomic_old == s->old,
                   "answer %u has the former value %llx, expected %llx", pkt->psn,
                   (unsigned long long)pkt->atomic_old, (unsigned long long)s->old);
    VB_MODEL_CHECK(ep, pkt->payload_len == 0, "answer %u has %u bytes", pkt->psn, pkt->payload_len);
    judge_order(ep, packet);
    mark_answered(a, packet);
    s->owed_again = false;
    if (packet == a->epsn - 1)
        a->ack_due = false;
}

// The memory of a READ is gone: that is told in the place of the response, and ends the connection.
static void lost_read_out(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    struct vb_answering *a = &ep->answer;
    bool owed = false;

    for (uint32_t i = 0; i < a->unanswered_count; i++)
        owed |= packet == a->unanswered[i].next;
    VB_MODEL_CHECK(ep, owed && memory_is_gone(ep, packet), "refused PSN %u for no reason",
                   pkt->psn);
    judge_order(ep, packet);
    vb_cover(cover_of(ep), VB_COVER_BAD_DEREG_READ);
    vb_model_expect_event(ep, VB_EVENT_QP_ACCESS_ERR);
    vb_model_failed(ep);
    ep->ask.may_flush = true;
}

static void nak_out(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    struct vb_answering *a = &ep->answer;
    const uint8_t sequence = vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);
    // A complaint that was owed when the missing packet came may become an ACK or stand for the
    // next packet: both lead the requester on.
    bool stands = a->nak_may_stand && !a->nak_due && !a->closing && pkt->syndrome == sequence;
    bool expected = (a->closing || a->nak_due || stands) && packet == a->epsn;

    if (stands)
        a->nak_syndrome = sequence;
    if (!expected && pkt->syndrome == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_REMOTE_ACCESS)) {
        lost_read_out(ep, pkt, packet);
        return;
    }
    VB_MODEL_CHECK(ep, expected, "sent a NAK for PSN %u that nothing called for", pkt->psn);
    VB_MODEL_CHECK(ep, pkt->syndrome == a->nak_syndrome,
                   "sent the syndrome 0x%02x, expected 0x%02x", pkt->syndrome, a->nak_syndrome);
    judge_order(ep, packet);
    a->silent = true;
    a->nak_due = a->ack_due = a->nak_may_stand = a->unacked = false;
    if (a->closing) {
        vb_model_failed(ep);
        ep->ask.may_flush = true;
    }
}

static void ack_out(struct vb_ep *ep, const struct vb_packet *pkt)
{
    struct vb_answering *a = &ep->answer;
    int64_t packet = packet_of(a, pkt->psn);

    if (vb_aeth_kind_of(pkt->syndrome) != VB_AETH_ACK) {
        nak_out(ep, pkt, packet);
        return;
    }
    VB_MODEL_CHECK(ep, packet < a->epsn, "acknowledged PSN %u, which it has not executed",
                   pkt->psn);
    VB_MODEL_CHECK(ep, !a->closing, "acknowledged after it refused a request");
    if (!a->ack_due && !a->nak_may_stand)
        vb_cover(cover_of(ep), VB_COVER_CREDIT_UPDATE);
    judge_order(ep, packet + 1);
    a->nak_may_stand = a->unacked = false;
    if (packet == a->epsn - 1)
        a->ack_due = false;
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

    bool open = ep->state == VB_QPS_RTS || ep->state == VB_QPS_RTR || ep->state == VB_QPS_SQD;
    struct vb_single *single =
        find_single(&ep->answer, packet_of(&ep->answer, pkt->psn), VB_SIM_RESULTS);

    note_acked(&ep->answer, pkt);
    VB_MODEL_CHECK(ep, open, "answered in state %s", vb_qp_state_name(ep->state));
    if (pkt->facts & VB_OP_AETH)
        VB_MODEL_CHECK(ep, pkt->msn == ep->answer.msn, "sent message number %u, expected %u",
                       pkt->msn, ep->answer.msn);
    if ((pkt->facts & VB_OP_AETH) && vb_aeth_kind_of(pkt->syndrome) == VB_AETH_ACK)
        vb_model_credit_told(ep, pkt);
    if (pkt->facts & VB_OP_ACK) {
        ack_out(ep, pkt);
        vb_model_judge_touches(ep, step, &nothing);
    } else if (single || (pkt->facts & VB_OP_ATOMIC)) {
        single_out(ep, pkt, single);
        vb_model_judge_touches(ep, step, &nothing);
    } else {
        response_out(ep, step, pkt);
    }
}

void vb_model_settle(struct vb_ep *ep)
{
    struct vb_answering *a = &ep->answer;
    bool open = ep->state == VB_QPS_RTS || ep->state == VB_QPS_RTR || ep->state == VB_QPS_SQD;

    if (open && a->unacked && !a->nak_due && !a->nak_may_stand && !vb_ep_is_unreliable(ep)) {
        a->ack_due = true;
        vb_cover(cover_of(ep), VB_COVER_SETTLED);
    }
    vb_dev_qp_settle(ep->node->dev, ep->qpn);
    vb_node_wake(ep->node);
}

// A response that waits for a rate, and has a timer for it, keeps what is behind it.
static bool waits_for_rate(const struct vb_ep *ep)
{
    const struct vb_answering *a = &ep->answer;
    bool response = a->unanswered_count > 0 || a->asked_again > 0;
    uint64_t until_ns = UINT64_MAX;

    for (uint32_t i = 0; i < VB_SIM_RESULTS; i++)
        response |= a->single[i].owed_again;
    return response && vb_model_rate_holds(ep, &until_ns) &&
           vb_pu_deadline(vb_ep_unit(ep)->pu) <= until_ns;
}

void vb_model_answer_idle(struct vb_ep *ep)
{
    struct vb_answering *a = &ep->answer;

    VB_MODEL_CHECK(ep, !a->done_due, "is idle with a receive completion owed");
    if (ep->state == VB_QPS_ERR) {
        VB_MODEL_CHECK(ep, a->done == a->posted, "is idle with receives not flushed");
        return;
    }
    forget_given_up(ep);
    if (waits_for_rate(ep))
        return;
    VB_MODEL_CHECK(ep, a->unanswered_count == 0, "is idle with the answer %u owed",
                   psn_of(a, a->unanswered[0].next));
    for (uint32_t i = 0; i < VB_SIM_RESULTS; i++)
        VB_MODEL_CHECK(ep, !a->single[i].owed_again, "is idle with the answer %u owed again",
                       psn_of(a, a->single[i].packet));
    a->asked_again = 0;
    VB_MODEL_CHECK(ep, !a->nak_due && !a->closing, "is idle with a NAK owed");
    VB_MODEL_CHECK(ep, !a->ack_due, "is idle with an ACK owed");
    vb_model_credit_answer_idle(ep);
}
