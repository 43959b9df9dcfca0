// SPDX-License-Identifier: Apache-2.0
// What holds between any two calls of a communication manager.
#include "sim/cm_sane.h"

#include "cm/conn.h"

static bool waits_for_time(enum vb_cm_state state)
{
    switch (state) {
    case VB_CM_REQ_SENT:
    case VB_CM_MRA_REQ_RCVD:
    case VB_CM_REP_SENT:
    case VB_CM_MRA_REP_RCVD:
    case VB_CM_DREQ_SENT:
    case VB_CM_TIMEWAIT:
    case VB_CM_REFUSED:
    case VB_CM_SIDR_REQ_SENT:
    case VB_CM_SIDR_REPLIED: return true;
    default: return false;
    }
}

static bool is_remembered(enum vb_cm_state state)
{
    return state == VB_CM_REFUSED || state == VB_CM_SIDR_REPLIED;
}

// A connection that waits for an RTU can be found by its queue pair number.
static bool is_found_by_qpn(const struct vb_cm *cm, const struct vb_cm_conn *c)
{
    const struct vb_cm_conn *own = NULL;

    if (c->state != VB_CM_REP_SENT && c->state != VB_CM_MRA_REP_RCVD)
        return true;
    while ((own = vb_cm_next_own(cm, own, c->local_qpn)) != NULL && own != c)
        ;
    return own == c;
}

static bool conn_is_sane(const struct vb_cm *cm, const struct vb_cm_conn *c)
{
    bool armed = c->timer.deadline_ns != VB_TIMER_NEVER;
    bool pending = c->state == VB_CM_REQ_RCVD || c->state == VB_CM_MRA_REQ_SENT ||
                   c->state == VB_CM_SIDR_REQ_RCVD;

    if (vb_cm_find_local(cm, c->local_id) != c || armed != waits_for_time(c->state))
        return false;
    if (!is_found_by_qpn(cm, c))
        return false;
    if (vb_link_queued(&c->due) != (c->events != 0) || (c->orphan && c->events))
        return false;
    if (vb_link_queued(&c->link) != is_remembered(c->state) || (c->listener && !pending))
        return false;
    return c->state != VB_CM_OVER || c->events & 1u << VB_CM_EVENT_GONE;
}

bool vb_cmsane(const struct vb_cm *cm)
{
    uint32_t used = 0, pending = 0, counted = 0;

    for (uint32_t i = 0; i < cm->opts.connections; i++) {
        const struct vb_cm_conn *c = &cm->conn[i];
        if (c->state == VB_CM_FREE)
            continue;
        used++;
        counted += c->listener != 0;
        if (!conn_is_sane(cm, c))
            return false;
    }
    for (uint32_t i = 0; i < cm->opts.listeners; i++)
        pending += cm->listener[i].pending;
    return used == cm->in_use && pending == counted && cm->out_count <= cm->opts.outbox;
}
