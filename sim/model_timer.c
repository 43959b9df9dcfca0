// SPDX-License-Identifier: Apache-2.0
// The reference model's timers of a requester: none fires before its time, and none is missing when
// its time has come, whatever else the NIC has to do.
#include "sim/model.h"

#include "wire/roce.h"

enum {
    ASK_NS = 1000000, // how long nothing in flight may ask for an acknowledgement
};

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

static uint64_t timeout_ns(const struct vb_ep *ep)
{
    return 4096ull << ep->link.timeout;
}

static uint64_t ask_wait_ns(const struct vb_ep *ep)
{
    return timeout_ns(ep) < ASK_NS ? timeout_ns(ep) : ASK_NS;
}

// When the wait for what is in flight, or for a receive, has to end. What waits for others' packets
// to leave the window has nothing in flight itself: those others have timers.
static uint64_t deadline_of(const struct vb_ep *ep)
{
    const struct vb_asking *a = &ep->ask;

    if (ep->state != VB_QPS_RTS && ep->state != VB_QPS_SQD)
        return UINT64_MAX;
    if (a->rnr_wait)
        return a->rnr_until_ns;
    if (!a->armed || a->went_back || a->cursor <= a->una)
        return UINT64_MAX;
    return a->resent_ns + (a->asked_end > a->una ? timeout_ns(ep) : ask_wait_ns(ep));
}

// ---- too early

// Nothing in flight asks for an acknowledgement.
static void on_ask_timer(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;
    uint64_t now = ep->node->world->now_ns;

    VB_MODEL_CHECK(ep, a->armed && a->una < a->sent_end && !a->rnr_wait && a->asked_end <= a->una,
                   "asked for an acknowledgement that is on its way");
    VB_MODEL_CHECK(ep, now >= a->armed_ns + ask_wait_ns(ep), "asked too early");
    a->ask_due = a->cursor == a->sent_end; // it asks as soon as there is room to send
    a->armed_ns = a->resent_ns = now;      // and waits on until then
}

// Without a credit it asks by sending all the same.
static void on_credit_timer(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    VB_MODEL_CHECK(ep, !a->rnr_wait, "asked for credits during a RNR wait");
    VB_MODEL_CHECK(ep, a->held, "asked for credits that it does not wait for");
    VB_MODEL_CHECK(ep, ep->node->world->now_ns >= a->held_ns + vb_model_credit_wait_ns(ep),
                   "asked for credits too early");
    a->may_probe = true;
    a->armed = false;
}

static void on_rnr_timer(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    VB_MODEL_CHECK(ep, a->rnr_wait, "a wait for a receive has ended that never began");
    VB_MODEL_CHECK(ep, ep->node->world->now_ns >= a->rnr_until_ns,
                   "waited too short after a RNR NAK");
    a->rnr_wait = false;
    a->may_probe = true;
    vb_model_sends_again(ep);
    vb_cover(cover_of(ep), VB_COVER_RNR_WAIT);
}

static void on_ack_timer(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    VB_MODEL_CHECK(ep, a->armed && a->una < a->sent_end, "a timer fired with nothing in flight");
    VB_MODEL_CHECK(ep, !a->rnr_wait && a->asked_end > a->una,
                   "an acknowledgement timed out that nothing asks for");
    VB_MODEL_CHECK(ep, ep->node->world->now_ns >= a->armed_ns + timeout_ns(ep),
                   "an acknowledgement timed out too early");
    vb_model_judge_timeout(ep);
    vb_cover(cover_of(ep), VB_COVER_TIMEOUT);
    ep->node->tally.timeouts++;
    a->armed = a->gap_seen = false;
    a->may_probe = true;
    vb_model_retry(ep);
    a->went_back = false;
}

void vb_model_ask_timer(struct vb_ep *ep, const struct vb_step *step)
{
    if (step->opcode == VB_REQ_TIMER_NONE) {
        vb_model_rate_timer(ep);
        return;
    }
    if (deadline_of(ep) < ep->node->world->now_ns)
        vb_excuse(cover_of(ep), VB_EXCUSE_TIMER_LATE);
    switch (step->opcode) {
    case VB_REQ_TIMER_ASK: on_ask_timer(ep); break;
    case VB_REQ_TIMER_CREDIT: on_credit_timer(ep); break;
    case VB_REQ_TIMER_RNR: on_rnr_timer(ep); break;
    case VB_REQ_TIMER_ACK: on_ack_timer(ep); break;
    default: vb_model_violate(ep, "a timer of the kind %u fired", step->opcode);
    }
}

// ---- too late

// A unit with several shares ends the turn that is under way, and after a slice of frames and
// timers each share may have a turn before the next slice: share 0 and the others. The last of
// these turns has not ended yet.
static bool may_turn(const struct vb_unit *unit)
{
    uint32_t shares = unit->node->world->scen.shares;

    return shares > 1 && unit->late_turns <= 1 + shares;
}

bool vb_model_waits_to_ask(struct vb_ep *ep)
{
    bool waits = !ep->ask.rnr_wait && vb_model_cannot_ask(ep);

    if (waits)
        vb_excuse(cover_of(ep), VB_EXCUSE_WENT_BACK_TO_ASK);
    return waits;
}

static bool is_due(const struct vb_unit *unit, struct vb_ep *ep)
{
    return vb_ep_unit(ep) == unit && deadline_of(ep) <= unit->node->world->now_ns &&
           !vb_model_waits_to_ask(ep);
}

void vb_model_turn_ended(struct vb_unit *unit)
{
    const struct vb_node *node = unit->node;
    bool due = false;

    for (uint32_t i = 0; i < node->ep_count && !due; i++)
        due = is_due(unit, node->ep[i]);
    unit->late_turns = due ? unit->late_turns + 1 : 0;
}

// A unit looks at its timers before it does anything for a queue pair.
void vb_model_timers_due(struct vb_unit *unit)
{
    const struct vb_node *node = unit->node;
    bool due = false;

    for (uint32_t i = 0; i < node->ep_count; i++) {
        struct vb_ep *ep = node->ep[i];
        if (!is_due(unit, ep))
            continue;
        if (due || may_turn(unit))
            vb_excuse(cover_of(ep), VB_EXCUSE_TIMER_SHARED);
        else
            vb_model_violate(ep, "its timer has not fired in time");
        due = true;
    }
    if (!due)
        unit->late_turns = 0;
}

// The credit timer starts when the queue pair gets its turn, so at rest it runs.
static uint64_t credit_deadline(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    if (a->held_by_ns == 0)
        a->held_by_ns = ep->node->world->now_ns + vb_model_credit_wait_ns(ep);
    return a->held_by_ns;
}

void vb_model_timer_idle(struct vb_ep *ep, bool held, bool waits)
{
    const struct vb_asking *a = &ep->ask;
    uint64_t due_ns = deadline_of(ep);

    VB_MODEL_CHECK(
        ep, a->una == a->sent_end || a->rnr_wait || held || waits || (a->armed && !a->went_back),
        "is idle in flight without a timer");
    if (held && !waits && due_ns == UINT64_MAX)
        due_ns = credit_deadline(ep);
    if (waits && due_ns < UINT64_MAX && vb_model_waits_to_ask(ep))
        due_ns = UINT64_MAX;
    VB_MODEL_CHECK(ep, due_ns > ep->node->world->now_ns,
                   "is idle, its timer has not fired in time");
    VB_MODEL_CHECK(ep, vb_pu_deadline(vb_ep_unit(ep)->pu) <= due_ns,
                   "is idle, and its timer will fire too late or never");
}

void vb_model_credit_watch(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;
    bool held = vb_model_credit_holds(ep);

    if (held && !(a->held && a->held_at == a->cursor)) { // another message's wait has its whole
                                                         // time
        a->held_ns = ep->node->world->now_ns;
        a->held_by_ns = 0;
    }
    if (!held)
        a->held_by_ns = 0;
    a->held = held;
    a->held_at = a->cursor;
}
