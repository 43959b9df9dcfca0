// SPDX-License-Identifier: Apache-2.0
// How connections end, what is told of them, and what time does to them.
#include "cm/conn.h"

#include <errno.h>

#define REMEMBERED_MAX_NS 60000000000ull // how long a refusal is kept for repetitions

// ---- events

void vb_cm_tell(struct vb_cm *cm, struct vb_cm_conn *c, enum vb_cm_event_kind kind)
{
    if (c->orphan)
        return;
    c->events |= 1u << kind;
    if (!vb_link_queued(&c->due))
        vb_fifo_push(&cm->due, &c->due);
}

void vb_cm_untell(struct vb_cm_conn *c)
{
    c->events = 0;
    if (vb_link_queued(&c->due))
        vb_link_remove(&c->due);
}

// Whether what the peer said last is what the event is about.
static bool is_about(const struct vb_cm_conn *c, enum vb_cm_event_kind kind)
{
    switch (kind) {
    case VB_CM_EVENT_REQUEST: return c->said.kind == VB_CM_REQ;
    case VB_CM_EVENT_REPLY: return c->said.kind == VB_CM_REP;
    case VB_CM_EVENT_ESTABLISHED: return c->said.kind == VB_CM_RTU;
    case VB_CM_EVENT_REJECTED: return c->by_peer && c->said.kind == VB_CM_REJ;
    case VB_CM_EVENT_DISCONNECTED:
        return c->by_peer && (c->said.kind == VB_CM_DREQ || c->said.kind == VB_CM_REJ);
    case VB_CM_EVENT_SIDR_REQUEST: return c->said.kind == VB_CM_SIDR_REQ;
    case VB_CM_EVENT_SIDR_REPLY: return c->said.kind == VB_CM_SIDR_REP;
    default: return false;
    }
}

bool vb_cm_has_event(const struct vb_cm *cm)
{
    return !vb_fifo_empty(&cm->due);
}

bool vb_cm_take_event(struct vb_cm *cm, struct vb_cm_event *event)
{
    struct vb_link *first = vb_fifo_first(&cm->due);

    if (!first)
        return false;
    struct vb_cm_conn *c = VB_CONTAINER_OF(first, struct vb_cm_conn, due);
    enum vb_cm_event_kind kind = (enum vb_cm_event_kind)__builtin_ctz(c->events);
    *event = (struct vb_cm_event){.kind = kind,
                                  .id = c->local_id,
                                  .listener = c->listener_tag,
                                  .peer = c->peer,
                                  .local = c->local,
                                  .by_peer = c->by_peer,
                                  .reason = kind == VB_CM_EVENT_REJECTED ? c->reason : 0};
    if (is_about(c, kind)) {
        event->message = c->said;
        event->private_len = vb_cm_private_len(c->said.kind);
    }
    c->events &= c->events - 1;
    vb_link_remove(&c->due);
    if (c->events)
        vb_fifo_push(&cm->due, &c->due); // the others' turn first
    else if (c->state == VB_CM_OVER)
        vb_cm_conn_free(cm, c);
    return true;
}

// ---- ends

// Nothing waits for it any more but its events. Until they are taken a repeated REQ finds it.
static void over(struct vb_cm *cm, struct vb_cm_conn *c)
{
    vb_cm_answered(cm, c);
    vb_timer_disarm(&c->timer);
    vb_cm_conn_unindex(cm, c, VB_CM_BY_QPN);
    c->state = VB_CM_OVER;
    vb_cm_tell(cm, c, VB_CM_EVENT_GONE);
    if (c->orphan)
        vb_cm_conn_free(cm, c);
}

void vb_cm_end(struct vb_cm *cm, struct vb_cm_conn *c, enum vb_cm_event_kind kind, uint16_t reason)
{
    const uint32_t asked = 1u << VB_CM_EVENT_REQUEST | 1u << VB_CM_EVENT_SIDR_REQUEST;

    if (c->events & asked) { // nobody has heard of it
        vb_cm_conn_free(cm, c);
        return;
    }
    vb_cm_untell(c);
    c->reason = reason;
    vb_cm_tell(cm, c, kind);
    over(cm, c);
}

void vb_cm_enter_timewait(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns)
{
    c->state = VB_CM_TIMEWAIT;
    vb_timer_arm(&cm->timers, &c->timer, now_ns + 2 * vb_cm_time_ns(cm->opts.packet_life));
}

void vb_cm_refuse(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns,
                  const struct vb_cm_refusal *refusal)
{
    uint64_t kept_ns = c->answer_ns * (c->retries + 1u);
    struct vb_cm_message m;

    vb_cm_form_rej(cm, c, refusal, &m);
    vb_cm_set_private(&m, &refusal->private_data);
    vb_cm_send_kept(cm, c, &m);
    vb_cm_answered(cm, c);
    vb_cm_untell(c);
    vb_cm_conn_unindex(cm, c, VB_CM_BY_QPN);
    c->orphan = true;
    c->state = VB_CM_REFUSED;
    vb_fifo_push(&cm->refusals, &c->link);
    vb_timer_arm(&cm->timers, &c->timer,
                 now_ns + (kept_ns < REMEMBERED_MAX_NS ? kept_ns : REMEMBERED_MAX_NS));
}

void vb_cm_leave(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns,
                 const struct vb_cm_private *private_data)
{
    struct vb_cm_message m;

    vb_cm_form_dreq(c, &m);
    m.tid = (uint64_t)cm->tid_high << 32 | c->local_id;
    vb_cm_set_private(&m, private_data);
    c->state = VB_CM_DREQ_SENT;
    vb_cm_send_kept(cm, c, &m);
    vb_cm_expect(cm, c, now_ns);
}

int vb_cm_abandon(struct vb_cm *cm, uint64_t now_ns, uint32_t id)
{
    static const struct vb_cm_refusal timeout = {.reason = VB_CM_TIMEOUT};
    static const struct vb_cm_refusal consumer = {.reason = VB_CM_CONSUMER};
    struct vb_cm_conn *c = vb_cm_find_local(cm, id);
    struct vb_cm_message m;

    if (!c || c->orphan)
        return -ENOENT;
    switch (c->state) {
    case VB_CM_REQ_SENT:
    case VB_CM_MRA_REQ_RCVD:
        vb_cm_form_rej(cm, c, &timeout, &m);
        vb_cm_send_once(cm, c, &m);
        vb_cm_conn_free(cm, c);
        break;
    case VB_CM_REQ_RCVD:
    case VB_CM_MRA_REQ_SENT:
    case VB_CM_REP_RCVD:
    case VB_CM_MRA_REP_SENT:
    case VB_CM_REP_SENT:
    case VB_CM_MRA_REP_RCVD: vb_cm_refuse(cm, c, now_ns, &consumer); break;
    case VB_CM_ESTABLISHED: vb_cm_leave(cm, c, now_ns, NULL); // fall through
    case VB_CM_DREQ_SENT:
    case VB_CM_TIMEWAIT:
        vb_cm_untell(c);
        c->orphan = true;
        break;
    case VB_CM_SIDR_REQ_RCVD: vb_cm_sidr_refuse(cm, now_ns, c, VB_SIDR_REJECTED); break;
    default: vb_cm_conn_free(cm, c); break;
    }
    return 0;
}

uint32_t vb_cm_leaving(const struct vb_cm *cm)
{
    uint32_t leaving = cm->out_count;

    for (uint32_t i = 0; i < cm->timers.count; i++)
        leaving +=
            VB_CONTAINER_OF(cm->timers.heap[i], struct vb_cm_conn, timer)->state == VB_CM_DREQ_SENT;
    return leaving;
}

// ---- time

// Once, and the first time goes on.
static bool repeats_early(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns)
{
    bool waits = c->state == VB_CM_REQ_SENT || c->state == VB_CM_REP_SENT ||
                 c->state == VB_CM_DREQ_SENT || c->state == VB_CM_SIDR_REQ_SENT;

    waits = waits && c->early;
    c->early = false;
    if (!waits)
        return false;
    cm->stats.retried++;
    vb_cm_send_again(cm, c);
    vb_timer_arm(&cm->timers, &c->timer, now_ns + c->answer_ns - c->answer_ns / VB_CM_EARLY);
    return true;
}

static void give_up(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns)
{
    static const struct vb_cm_refusal timeout = {.reason = VB_CM_TIMEOUT};
    struct vb_cm_message m;

    cm->stats.timed_out++;
    if (c->state == VB_CM_REQ_SENT || c->state == VB_CM_REP_SENT) {
        vb_cm_form_rej(cm, c, &timeout, &m); // the peer may wait as well
        vb_cm_send_once(cm, c, &m);
    }
    switch (c->state) {
    case VB_CM_REP_SENT:
        vb_cm_tell(cm, c, VB_CM_EVENT_UNREACHABLE);
        vb_cm_enter_timewait(cm, c, now_ns);
        break;
    case VB_CM_DREQ_SENT:
        vb_cm_tell(cm, c, VB_CM_EVENT_DISCONNECTED);
        vb_cm_enter_timewait(cm, c, now_ns);
        break;
    default: vb_cm_end(cm, c, VB_CM_EVENT_UNREACHABLE, 0); break;
    }
}

static void retry(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns)
{
    if (c->retries_left == 0) {
        give_up(cm, c, now_ns);
        return;
    }
    c->retries_left--;
    cm->stats.retried++;
    vb_cm_send_again(cm, c);
    vb_timer_arm(&cm->timers, &c->timer, now_ns + c->answer_ns);
}

static void expire(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns)
{
    switch (c->state) {
    case VB_CM_MRA_REQ_RCVD: // it had its time
        c->state = VB_CM_REQ_SENT;
        retry(cm, c, now_ns);
        break;
    case VB_CM_MRA_REP_RCVD:
        c->state = VB_CM_REP_SENT;
        retry(cm, c, now_ns);
        break;
    case VB_CM_REQ_SENT:
    case VB_CM_REP_SENT:
    case VB_CM_DREQ_SENT:
    case VB_CM_SIDR_REQ_SENT: retry(cm, c, now_ns); break;
    case VB_CM_TIMEWAIT: over(cm, c); break;
    case VB_CM_REFUSED:
    case VB_CM_SIDR_REPLIED: vb_cm_conn_free(cm, c); break;
    default: break;
    }
}

uint64_t vb_cm_poll(struct vb_cm *cm, uint64_t now_ns)
{
    struct vb_timer *timer;

    while ((timer = vb_timers_expire(&cm->timers, now_ns)) != NULL) {
        struct vb_cm_conn *c = VB_CONTAINER_OF(timer, struct vb_cm_conn, timer);
        if (!repeats_early(cm, c, now_ns))
            expire(cm, c, now_ns);
    }
    return vb_timers_next(&cm->timers);
}
