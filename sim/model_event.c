// SPDX-License-Identifier: Apache-2.0
// The reference model's events: each is foreseen by the step that it belongs to, and none is
// missing.
#include "sim/model.h"

#include "sim/trace.h"

static const char *name_of(enum vb_event_kind kind)
{
    static const char *const names[VB_EVENT_COUNT] = {
        [VB_EVENT_QP_FATAL] = "fatal",
        [VB_EVENT_QP_REQ_ERR] = "invalid request",
        [VB_EVENT_QP_ACCESS_ERR] = "access violation",
        [VB_EVENT_COMM_EST] = "communication established",
        [VB_EVENT_SQ_DRAINED] = "send queue drained",
        [VB_EVENT_QP_LAST_WQE] = "last receive",
        [VB_EVENT_CQ_ERR] = "completion queue overrun",
        [VB_EVENT_SRQ_LIMIT] = "shared receive queue limit",
        [VB_EVENT_CQ_COMPLETION] = "completion",
    };
    return (unsigned)kind < VB_EVENT_COUNT ? names[kind] : "unknown";
}

void vb_model_expect(struct vb_node *node, enum vb_event_kind kind, uint32_t number)
{
    if (node->events_due == (node->at->later ? VB_SIM_EVENTS_POLL : VB_SIM_EVENTS))
        vb_world_violate(node->world, "NIC %u: too many events in one step", node->index);
    else
        node->event_due[node->events_due++] = (struct vb_event){kind, number};
}

void vb_model_expect_event(struct vb_ep *ep, enum vb_event_kind kind)
{
    vb_model_expect(ep->node, kind, ep->qpn);
}

// ---- completion queues

// An entry past the one that the host had come to when it asked; it need not be the newest.
static bool is_wanted(const struct vb_simcq *cq)
{
    uint64_t end = cq->armed_solicited ? cq->solicited_end : cq->written;
    return cq->armed && end > cq->armed_at;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// Moderated, an event waits for more entries, unless it must come now.
static void fire(struct vb_node *node, struct vb_simcq *cq, bool now)
{
    bool waits = !now && cq->hold_count > 1 && cq->written - cq->told < cq->hold_count;

    if (!is_wanted(cq) || waits) {
        bool begins = is_wanted(cq) && !cq->due_by_ns;
        if (begins)
            cq->due_by_ns = later(node->world->now_ns + cq->hold_ns, cq->old_wait_ns);
        else if (!is_wanted(cq))
            cq->due_by_ns = 0;
        return;
    }
    if (cq->hold_count > 1 && !now)
        vb_cover(node->world->cover, VB_COVER_CQ_HELD_COUNT);
    cq->armed = false;
    cq->due_by_ns = 0;
    cq->told = cq->written;
    cq->told_ns = node->unit[cq->unit].step_ns;
    vb_model_expect(node, VB_EVENT_CQ_COMPLETION, cq->cqn);
    vb_cover(node->world->cover,
             cq->armed_solicited ? VB_COVER_EVENT_SOLICITED : VB_COVER_EVENT_COMPLETION);
}

void vb_model_completed(struct vb_node *node, struct vb_simcq *cq, bool solicited)
{
    if (solicited)
        cq->solicited_end = cq->written;
    fire(node, cq, cq->crosses);
}

void vb_model_armed(struct vb_node *node, struct vb_simcq *cq, bool solicited_only)
{
    cq->armed = true;
    cq->armed_solicited = solicited_only;
    cq->armed_at = cq->drv.ci;
    vb_trace_note(node->world, "nic%u arm      cq %u%s", node->index, cq->cqn,
                  solicited_only ? " for solicited" : "");
    fire(node, cq, false);
    vb_dev_cq_armed(node->dev, cq->cqn);
    vb_model_check_events(node);
}

void vb_model_moderated(struct vb_node *node, struct vb_simcq *cq, uint32_t count,
                        uint64_t period_ns)
{
    cq->old_wait_ns = later(cq->old_wait_ns, node->world->now_ns + cq->hold_ns);
    cq->hold_count = count;
    cq->hold_ns = period_ns;
    cq->told_ns = 0; // a wait that has begun ends as it would have
}

// The wait for more has ended. It began after the last event, so that events by time are apart.
void vb_model_cq_timer(struct vb_node *node, const struct vb_step *step)
{
    for (uint32_t i = 0; i < node->cq_count; i++) {
        struct vb_simcq *cq = &node->cq[i];
        if (cq->cqn != step->cqn)
            continue;
        if (is_wanted(cq) && cq->told_ns && node->world->now_ns < cq->told_ns + cq->hold_ns)
            vb_world_violate(node->world, "NIC %u: the event of CQ %u waited too short",
                             node->index, cq->cqn);
        if (is_wanted(cq) && !cq->told_ns)
            vb_excuse(node->world->cover, VB_EXCUSE_EVENT_RETIMED);
        if (is_wanted(cq))
            vb_cover(node->world->cover, VB_COVER_CQ_HELD_TIME);
        fire(node, cq, true);
        return;
    }
    vb_world_violate(node->world, "NIC %u: a timer of no completion queue", node->index);
}

// Who waits for an event will get it in time.
void vb_model_cq_idle(struct vb_node *node)
{
    for (uint32_t i = 0; i < node->cq_count; i++) {
        const struct vb_simcq *cq = &node->cq[i];
        if (cq->due_by_ns && vb_pu_deadline(node->unit[cq->unit].pu) > cq->due_by_ns)
            vb_world_violate(node->world, "NIC %u: the event of CQ %u will come too late or never",
                             node->index, cq->cqn);
    }
}

// ---- what the NIC told

bool vb_model_is_drained(const struct vb_ep *ep)
{
    return ep->state == VB_QPS_SQD && !ep->ask.drained && ep->ask.done == ep->ask.begun;
}

// Draining ends with no step of its own, so this event may come with any.
static bool is_drained(struct vb_node *node, uint32_t qpn)
{
    for (uint32_t i = 0; i < node->ep_count; i++) {
        struct vb_ep *ep = node->ep[i];
        if (ep->qpn != qpn)
            continue;
        bool right = ep->ask.was_drained || vb_model_is_drained(ep);
        ep->ask.drained = true;
        return right;
    }
    return false;
}

static bool is_event(const struct vb_event *a, const struct vb_event *b)
{
    return a->kind == b->kind && a->number == b->number;
}

static bool is_foreseen(struct vb_node *node, const struct vb_event *e, uint32_t *seen)
{
    if (*seen < node->events_due && is_event(e, &node->event_due[*seen])) {
        ++*seen;
        return true;
    }
    vb_excuse(node->world->cover, VB_EXCUSE_EVENT_ANY_STEP);
    return (e->kind == VB_EVENT_SQ_DRAINED && is_drained(node, e->number)) ||
           (e->kind == VB_EVENT_QP_LAST_WQE && vb_model_is_last(node, e->number));
}

static void cover_event(struct vb_node *node, enum vb_event_kind kind)
{
    static const enum vb_cover_row rows[VB_EVENT_COUNT] = {
        [VB_EVENT_QP_REQ_ERR] = VB_COVER_EVENT_REQ_ERR,
        [VB_EVENT_QP_ACCESS_ERR] = VB_COVER_EVENT_ACCESS_ERR,
        [VB_EVENT_COMM_EST] = VB_COVER_EVENT_COMM_EST,
        [VB_EVENT_SQ_DRAINED] = VB_COVER_EVENT_SQ_DRAINED,
        [VB_EVENT_QP_FATAL] = VB_COVER_EVENT_FATAL,
        [VB_EVENT_QP_LAST_WQE] = VB_COVER_EVENT_LAST_WQE,
        [VB_EVENT_CQ_ERR] = VB_COVER_EVENT_CQ_ERR,
        [VB_EVENT_SRQ_LIMIT] = VB_COVER_EVENT_SRQ_LIMIT,
    };
    if (rows[kind])
        vb_cover(node->world->cover, rows[kind]);
}

// A step tells by its own unit; who changes something at rest may hear from any.
static bool take_event(struct vb_node *node, struct vb_event *e)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        if (vb_pu_take_event(node->unit[i].pu, e))
            return true;
    return false;
}

void vb_model_check_events(struct vb_node *node)
{
    struct vb_world *w = node->world;
    struct vb_event e;
    uint32_t seen = 0;

    while (take_event(node, &e)) {
        vb_trace_note(w, "nic%u event    %s of %06x", node->index, name_of(e.kind), e.number);
        vb_digest_add(&w->digest, (uint64_t)e.kind << 32 | e.number);
        vb_digest_add(&node->told, (uint64_t)e.kind << 32 | e.number);
        if (!is_foreseen(node, &e, &seen))
            vb_world_violate(w, "NIC %u: the event '%s' of %06x was not called for", node->index,
                             name_of(e.kind), e.number);
        else
            cover_event(node, e.kind);
    }
    if (seen < node->events_due)
        vb_world_violate(w, "NIC %u: the event '%s' of %06x is missing", node->index,
                         name_of(node->event_due[seen].kind), node->event_due[seen].number);
    node->events_due = 0;
}
