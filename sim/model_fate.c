// SPDX-License-Identifier: Apache-2.0
// The reference model's book of frames: which are under way, and what became of the others. A
// requester may time out only for a reason that the book shows.
#include "sim/model.h"

#include "wire/roce.h"

#include <stdlib.h>

enum {
    LOSSES_MIN = 32,
};

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

// The side whose requests the frame is about; NULL: of an earlier life of the connection.
static struct vb_ep *requester_of(const struct vb_sent_frame *f)
{
    if (!f->ep || f->life != f->ep->conn->life)
        return NULL;
    return f->answer ? f->ep->peer : f->ep;
}

// So many copies more of the frame are under way.
static void count(const struct vb_sent_frame *f, int64_t more)
{
    struct vb_ep *asks = requester_of(f);

    if (asks)
        asks->fate.under_way += more;
}

// Datagrams may go where nobody is: the network takes no notice of those.
static bool is_to_nobody(const struct vb_world *w, const struct vb_ip *to)
{
    for (uint32_t i = 0; i < w->scen.nics; i++)
        if (vb_ip_equal(&w->node[i].ip, to))
            return false;
    return true;
}

void vb_model_frame_sent(struct vb_ep *ep, const struct vb_ip *to, const struct vb_packet *pkt,
                         const uint8_t *bytes, uint32_t len)
{
    struct vb_world *w = ep->node->world;

    if (ep->opts.service == VB_SERVICE_UD && is_to_nobody(w, to))
        return;
    struct vb_sent_frame *f = vb_sent_add(&w->sent, &ep->node->ip, to, bytes, len);
    if (!f) {
        vb_world_violate(w, "no memory for the book of frames");
        return;
    }
    // Copies of an earlier life may be under way: an old request came late and was answered again.
    bool counted = f->ep == ep && f->life == ep->conn->life;
    if (!counted || f->under_way == 1)
        f->came = 0;
    f->ep = ep;
    f->life = ep->conn->life;
    f->answer = !(pkt->facts & VB_OP_REQUEST);
    f->nak = (pkt->facts & VB_OP_ACK) && vb_aeth_kind_of(pkt->syndrome) == VB_AETH_NAK;
    f->first = f->packet = vb_model_ask_packet(&requester_of(f)->ask, pkt->psn);
    if (!f->answer && (pkt->facts & VB_OP_READ)) // all that it asks for is lost with it
        f->packet += vb_model_packets(ep, pkt->dma_len) - 1;
    count(f, counted ? 1 : f->under_way);
}

// A CNP is about no request.
void vb_model_cnp_sent(struct vb_ep *ep, const struct vb_ip *to, const uint8_t *bytes, uint32_t len)
{
    struct vb_world *w = ep->node->world;
    struct vb_sent_frame *f = vb_sent_add(&w->sent, &ep->node->ip, to, bytes, len);

    if (f)
        f->ep = NULL;
    else
        vb_world_violate(w, "no memory for the book of frames");
}

// One copy of the frame is not under way any more.
static void ends(struct vb_sent_frame *f)
{
    vb_sent_take(f);
    count(f, -1);
}

static void add_loss(struct vb_ep *ep, const struct vb_loss *loss)
{
    struct vb_fate *fate = &ep->fate;

    if (vb_ep_is_unreliable(ep)) // it waits for no answers
        return;
    if (fate->losses == fate->room) {
        uint32_t room = fate->room ? 2 * fate->room : LOSSES_MIN;
        struct vb_loss *more = realloc(fate->loss, room * sizeof *more);
        if (!more) {
            vb_world_violate(ep->node->world, "no memory for what got lost");
            return;
        }
        fate->loss = more;
        fate->room = room;
    }
    fate->loss[fate->losses++] = *loss;
}

void vb_model_lost(struct vb_ep *ep, int64_t packet, enum vb_excuse why)
{
    add_loss(ep, &(struct vb_loss){.packet = packet, .answer = true, .why = why});
}

void vb_model_given_up(struct vb_ep *ep, int64_t packet, bool for_good)
{
    struct vb_fate *fate = &ep->fate;

    vb_model_lost(ep, packet, VB_EXCUSE_TIMEOUT_GIVEN_UP);
    if (for_good && packet >= fate->given_up_end)
        fate->given_up_end = packet + 1;
}

void vb_model_sends_again(struct vb_ep *ep)
{
    ep->fate.given_up_end = 0;
    ep->fate.losses = 0;
    ep->fate.went_back++;
}

void vb_model_fate_begins(struct vb_ep *ep)
{
    ep->fate.under_way = 0;
    ep->fate.went_back = 0;
    vb_model_sends_again(ep);
}

void vb_model_frame_lost(struct vb_sent_frame *f, enum vb_excuse why)
{
    struct vb_ep *asks = f ? requester_of(f) : NULL;

    if (asks && f->came != asks->fate.went_back + 1)
        add_loss(asks, &(struct vb_loss){f->key, f->packet, f->answer, why});
}

void vb_model_frame_heard(struct vb_sent_frame *f)
{
    struct vb_ep *asks = f ? requester_of(f) : NULL;
    struct vb_fate *fate = asks ? &asks->fate : NULL;

    if (!fate)
        return;
    if (!f->answer) // answers that were heard are acknowledged, or make the requester go back
        f->came = fate->went_back + 1;
    for (uint32_t i = 0; i < fate->losses;)
        if (fate->loss[i].key == f->key)
            fate->loss[i] = fate->loss[--fate->losses];
        else
            i++;
}

struct vb_sent_frame *vb_model_frame_taken(struct vb_node *node, const struct vb_rx_frame *frame)
{
    struct vb_sent_frame *f =
        vb_sent_find(&node->world->sent, &frame->src, &node->ip, frame->data, frame->len);

    if (f)
        ends(f);
    return f;
}

void vb_model_frame_fate(void *world, enum vb_simnet_fate fate, const struct vb_ip *src,
                         const struct vb_ip *dst, const uint8_t *frame, uint32_t len)
{
    struct vb_world *w = world;
    struct vb_sent_frame *f = vb_sent_find(&w->sent, src, dst, frame, len);

    if (!f) {
        vb_world_violate(w, "the network has a frame that nobody sent");
    } else if (fate == VB_SIMNET_DROPPED) {
        ends(f);
        vb_model_frame_lost(f, VB_EXCUSE_TIMEOUT_DROPPED);
    } else {
        f->under_way++;
        count(f, 1);
    }
}

void vb_model_judge_book(struct vb_world *w)
{
    for (uint32_t i = 0; i < w->sent.size; i++) {
        const struct vb_sent_frame *f = &w->sent.slot[i];
        if (f->under_way > 0)
            vb_world_violate(w, "a frame has gone nowhere, in %u copies", f->under_way);
    }
    for (uint32_t i = 0; i < 2 * w->scen.conns; i++) {
        struct vb_ep *ep = &w->conn[i / 2].ep[i % 2];
        VB_MODEL_CHECK(ep, ep->fate.under_way == 0, "%lld frames have gone nowhere",
                       (long long)ep->fate.under_way);
    }
}

// ---- timeouts

static bool listens(const struct vb_ep *ep)
{
    return ep->state == VB_QPS_RTR || ep->state == VB_QPS_RTS || ep->state == VB_QPS_SQD;
}

static bool owes(const struct vb_answering *a)
{
    return a->owed_count > 0 || a->ack_due || a->nak_due || a->closing;
}

static bool is_given_up(const struct vb_ep *ep)
{
    return ep->fate.given_up_end > ep->ask.una;
}

// Whether a frame is under way that brings the acknowledgement: an answer to a packet that is not
// acknowledged yet, or, unless only answers count, such a packet, up to the last one that asks.
static bool is_under_way(const struct vb_ep *ep, bool answers_only)
{
    const struct vb_sent *s = &ep->node->world->sent;
    const struct vb_asking *a = &ep->ask;

    for (uint32_t i = 0; i < s->size && ep->fate.under_way > 0; i++) {
        const struct vb_sent_frame *f = &s->slot[i];
        if (f->under_way > 0 && requester_of(f) == ep && f->packet >= a->una &&
            (f->answer || (!answers_only && f->packet < a->asked_end)))
            return true;
    }
    return false;
}

// Of a packet that is not acknowledged, up to the last one that asks, or of an answer to one. No
// other copy of it was heard since it was sent again.
static const struct vb_loss *find_loss(const struct vb_ep *ep)
{
    for (uint32_t i = ep->fate.losses; i-- > 0;) {
        const struct vb_loss *l = &ep->fate.loss[i];
        if (l->packet >= ep->ask.una && (l->answer || l->packet < ep->ask.asked_end))
            return l;
    }
    return NULL;
}

// Why the answer has not come: VB_EXCUSE_COUNT: for no reason that the book knows.
static enum vb_excuse reason_of(struct vb_ep *ep)
{
    const struct vb_loss *lost = find_loss(ep);

    if (lost)
        return lost->why;
    if (is_under_way(ep, false))
        return VB_EXCUSE_TIMEOUT_UNDER_WAY;
    if (!listens(ep->peer))
        return VB_EXCUSE_TIMEOUT_PEER_FAILED;
    return owes(&ep->peer->answer) ? VB_EXCUSE_TIMEOUT_PEER_BUSY : VB_EXCUSE_COUNT;
}

// All that was sent since it last went back has been answered, or something is known to be amiss.
void vb_model_judge_timeout(struct vb_ep *ep)
{
    enum vb_excuse why = reason_of(ep);

    if (why == VB_EXCUSE_COUNT)
        vb_model_violate(ep, "timed out at PSN %u, but its peer has all packets and lost no answer",
                         vb_model_ask_psn(&ep->ask, ep->ask.una));
    else
        vb_excuse(cover_of(ep), why);
}

static bool is_datagram(const struct vb_sent_frame *f)
{
    return f->ep && f->ep->opts.service == VB_SERVICE_UD;
}

// A NAK would use the attempt up, and so would the one that a packet behind a gap makes the peer
// send. A frame from before the healing may take long to read; datagrams get in nobody's way.
static bool may_harm(const struct vb_sent_frame *f, const struct vb_ep *ep)
{
    const struct vb_answering *a = &ep->peer->answer;

    if (f->under_way > 0 && requester_of(f) == ep &&
        (f->answer ? f->nak : !a->silent && f->first > a->epsn))
        return true;
    return f->old > 0 && f->ep && !is_datagram(f) &&
           (f->ep->peer->node == ep->node || f->ep->peer->node == ep->peer->node);
}

bool vb_model_has_healed(const struct vb_ep *ep)
{
    const struct vb_sent *s = &ep->node->world->sent;

    if (ep->node->world->phase == VB_PHASE_FAULTS || !listens(ep->peer) || owes(&ep->peer->answer))
        return false;
    for (uint32_t i = 0; i < s->size; i++)
        if (may_harm(&s->slot[i], ep))
            return false;
    return true;
}

// A repetition that begins in a network without faults succeeds, unless an earlier frame gets in
// its way: a NAK of a packet that was sent before uses an attempt up, too (seed 246799608), and so
// does the time in which a NIC reads 851 frames that a storm has left in its inbox (seed
// 182412218). The peer must be there, and must still have the answer.
void vb_model_judge_end(struct vb_ep *ep)
{
    bool given_up = is_given_up(ep);
    const struct vb_paced *rate = &ep->peer->paced;
    // The rate holds the answer, or let it go during the last attempt.
    bool paced = (owes(&ep->peer->answer) && rate->held_ns) ||
                 (rate->freed_ns > ep->ask.armed_ns && is_under_way(ep, true));

    if (ep->node->world->phase == VB_PHASE_FAULTS)
        return;
    VB_MODEL_CHECK(ep, ep->ask.tries_healed == 0 || given_up || paced || !listens(ep->peer),
                   "ends by retries at PSN %u, %u of them after the network healed",
                   vb_model_ask_psn(&ep->ask, ep->ask.una), ep->ask.tries_healed);
    vb_excuse(cover_of(ep), given_up            ? VB_EXCUSE_END_GIVEN_UP
                            : paced             ? VB_EXCUSE_END_PACED
                            : listens(ep->peer) ? VB_EXCUSE_END_SPENT
                                                : VB_EXCUSE_END_PEER_FAILED);
}
