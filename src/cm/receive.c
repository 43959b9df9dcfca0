// SPDX-License-Identifier: Apache-2.0
// What messages do to connections (clause 12.9). Whoever knows no ids of ours can begin something,
// and end nothing: the ids, the address and the state must fit.
#include "cm/conn.h"

#include "base/bytes.h"

static void stray(struct vb_cm *cm)
{
    cm->stats.stray++;
}

static void repeat(struct vb_cm *cm, const struct vb_cm_conn *c)
{
    cm->stats.duplicate++;
    vb_cm_send_again(cm, c);
}

// By our id, if the message is its peer's.
static struct vb_cm_conn *find(const struct vb_cm *cm, const struct vb_ip *from,
                               const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = vb_cm_find_local(cm, m->remote_id);
    return c && !c->sidr && vb_ip_equal(&c->peer, from) ? c : NULL;
}

// And by the peer's id as well.
static struct vb_cm_conn *find_both(const struct vb_cm *cm, const struct vb_ip *from,
                                    const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = find(cm, from, m);
    return c && c->remote_id == m->local_id ? c : NULL;
}

// The connection that has this id of the peer's. One that is over keeps it for repetitions only: a
// message with the id and another queue pair is of a new connection, for which the peer has drawn
// the id again.
static struct vb_cm_conn *find_holder(const struct vb_cm *cm, const struct vb_ip *from, uint32_t id,
                                      uint32_t qpn)
{
    struct vb_cm_conn *c = vb_cm_find_remote(cm, from, id, false);
    bool over =
        c && (c->state == VB_CM_REFUSED || c->state == VB_CM_TIMEWAIT || c->state == VB_CM_OVER);

    return over && c->remote_qpn != qpn ? NULL : c;
}

// Both numbers of the peer now lead to this connection. The one that is over and had the id until
// now loses it only here: a message that was refused must not make its repetitions new requests.
static void take_numbers(struct vb_cm *cm, struct vb_cm_conn *c, uint32_t id, uint32_t qpn)
{
    struct vb_cm_conn *former = vb_cm_find_remote(cm, &c->peer, id, false);

    if (former)
        vb_cm_conn_unindex(cm, former, VB_CM_BY_REMOTE);
    c->remote_id = id;
    c->remote_qpn = qpn;
    vb_cm_conn_index(cm, c, VB_CM_BY_REMOTE);
    vb_cm_conn_index(cm, c, VB_CM_BY_QPN);
}

// ---- REQ

static void repeated_req(struct vb_cm *cm, const struct vb_ip *from, struct vb_cm_conn *c,
                         const struct vb_cm_message *m)
{
    if (c->active) {
        vb_cm_send_rej(cm, from, m, VB_CM_DUPLICATE_ID);
        return;
    }
    switch (c->state) {
    case VB_CM_MRA_REQ_SENT:
    case VB_CM_REP_SENT:
    case VB_CM_MRA_REP_RCVD:
    case VB_CM_REFUSED: repeat(cm, c); break;
    case VB_CM_TIMEWAIT:
    case VB_CM_OVER: vb_cm_send_rej(cm, from, m, VB_CM_STALE); break;
    default: cm->stats.duplicate++; break;
    }
}

// 0: it can be answered.
static uint16_t judge_req(const struct vb_cm *cm, const struct vb_cm_req *req)
{
    bool extended = req->transport == VB_CM_EXTENDED;

    if (req->transport == VB_CM_RD || (extended && req->extended_transport != VB_CM_EXTENDED_XRC))
        return VB_CM_INVALID_TRANSPORT;
    if (req->mtu < 1 || req->mtu > 5)
        return VB_CM_INVALID_MTU;
    if (memcmp(req->primary.remote_gid, cm->here.b, 16) != 0)
        return VB_CM_INVALID_GID;
    return 0;
}

// The peer's queue pair is another connection's: that one is over, whatever we know of it.
static void end_stale(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns)
{
    switch (c->state) {
    case VB_CM_REQ_RCVD:
    case VB_CM_MRA_REQ_SENT: vb_cm_end(cm, c, VB_CM_EVENT_REJECTED, VB_CM_STALE); break;
    case VB_CM_REP_SENT:
    case VB_CM_MRA_REP_RCVD:
        c->reason = VB_CM_STALE;
        vb_cm_tell(cm, c, VB_CM_EVENT_REJECTED);
        vb_cm_enter_timewait(cm, c, now_ns);
        break;
    case VB_CM_ESTABLISHED: vb_cm_leave(cm, c, now_ns, NULL); break;
    default: break;
    }
}

static void begin_passive(struct vb_cm *cm, struct vb_cm_conn *c, struct vb_cm_listener *listener,
                          const struct vb_cm_message *m)
{
    uint8_t timeout = m->req.local_timeout;

    c->state = VB_CM_REQ_RCVD;
    take_numbers(cm, c, m->local_id, m->req.qpn);
    c->peer_guid = m->req.ca_guid;
    c->transport = m->req.transport;
    vb_cm_note_service(c, m->req.service_id, m->private_data);
    c->tid = m->tid;
    c->retries = m->req.max_cm_retries;
    c->answer_ns = vb_cm_time_ns(timeout < VB_CM_TIMEOUT_MAX ? timeout : VB_CM_TIMEOUT_MAX) +
                   2 * vb_cm_time_ns(cm->opts.packet_life);
    c->alternate = m->req.alternate.local_lid || m->req.alternate.local_gid[0];
    listener->pending++;
    c->listener = (uint32_t)(listener - cm->listener) + 1;
    c->listener_tag = listener->tag;
    c->said = *m;
    vb_cm_tell(cm, c, VB_CM_EVENT_REQUEST);
}

static void handle_req(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                       const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = find_holder(cm, from, m->local_id, m->req.qpn);
    if (c) {
        repeated_req(cm, from, c, m);
        return;
    }
    uint16_t reason = judge_req(cm, &m->req);
    struct vb_cm_listener *listener = vb_cm_find_listener(cm, m->req.service_id);
    struct vb_cm_conn *stale = vb_cm_find_qpn(cm, from, m->req.qpn);
    if (!reason && !listener)
        reason = VB_CM_INVALID_SERVICE;
    if (!reason && stale) {
        reason = VB_CM_STALE;
        end_stale(cm, stale, now_ns);
    }
    if (!reason &&
        (listener->pending >= listener->backlog || (c = vb_cm_conn_alloc(cm, from)) == NULL))
        reason = VB_CM_NO_RESOURCES;
    if (reason)
        vb_cm_send_rej(cm, from, m, reason);
    else
        begin_passive(cm, c, listener, m);
}

// ---- REP, RTU, MRA

static void take_rep(struct vb_cm *cm, struct vb_cm_conn *c, const struct vb_cm_message *m)
{
    const struct vb_cm_conn *other = vb_cm_find_qpn(cm, &c->peer, m->rep.qpn);
    uint16_t reason = other ? VB_CM_STALE : 0;

    if (!reason && find_holder(cm, &c->peer, m->local_id, m->rep.qpn))
        reason = VB_CM_DUPLICATE_ID;
    if (reason) {
        vb_cm_send_rej(cm, &c->peer, m, reason);
        vb_cm_end(cm, c, VB_CM_EVENT_REJECTED, reason);
        return;
    }
    vb_timer_disarm(&c->timer);
    c->state = VB_CM_REP_RCVD;
    take_numbers(cm, c, m->local_id, m->rep.qpn);
    c->peer_guid = m->rep.ca_guid;
    c->tid = m->tid;
    c->said = *m;
    vb_cm_tell(cm, c, VB_CM_EVENT_REPLY);
}

static void handle_rep(struct vb_cm *cm, const struct vb_ip *from, const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = find(cm, from, m);
    bool asked = c && (c->state == VB_CM_REQ_SENT || c->state == VB_CM_MRA_REQ_RCVD);

    if (asked) {
        take_rep(cm, c, m);
        return;
    }
    if (!c || !c->active || c->remote_id != m->local_id || c->state == VB_CM_OVER) {
        stray(cm);
        vb_cm_send_rej(cm, from, m, VB_CM_INVALID_ID);
        return;
    }
    switch (c->state) {
    case VB_CM_MRA_REP_SENT:
    case VB_CM_ESTABLISHED:
    case VB_CM_REFUSED: repeat(cm, c); break;
    default: cm->stats.duplicate++; break;
    }
}

static void handle_rtu(struct vb_cm *cm, const struct vb_ip *from, const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = find_both(cm, from, m);

    if (!c || (c->state != VB_CM_REP_SENT && c->state != VB_CM_MRA_REP_RCVD)) {
        stray(cm);
        return;
    }
    vb_timer_disarm(&c->timer);
    c->state = VB_CM_ESTABLISHED;
    c->said = *m;
    vb_cm_tell(cm, c, VB_CM_EVENT_ESTABLISHED);
}

static void handle_mra(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                       const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = find(cm, from, m);
    uint64_t more_ns = vb_cm_time_ns(m->mra.service_timeout);

    if (c && c->state == VB_CM_REQ_SENT && m->mra.about == VB_CM_ABOUT_REQ) {
        c->state = VB_CM_MRA_REQ_RCVD;
    } else if (c && c->state == VB_CM_REP_SENT && m->mra.about == VB_CM_ABOUT_REP &&
               c->remote_id == m->local_id) {
        c->state = VB_CM_MRA_REP_RCVD;
    } else {
        stray(cm);
        return;
    }
    more_ns = more_ns < VB_CM_MRA_MAX_NS ? more_ns : VB_CM_MRA_MAX_NS;
    vb_timer_arm(&cm->timers, &c->timer,
                 now_ns + more_ns + 2 * vb_cm_time_ns(cm->opts.packet_life));
}

// What the event of a connection still has to tell stays.
static bool is_untold(const struct vb_cm_conn *c)
{
    return c->events & 1u << VB_CM_EVENT_ESTABLISHED;
}

// ---- REJ

// A peer that has heard nothing of us names itself by its own id alone.
static struct vb_cm_conn *find_rejected(const struct vb_cm *cm, const struct vb_ip *from,
                                        const struct vb_cm_message *m)
{
    if (m->rej.reason == VB_CM_TIMEOUT && m->remote_id == 0) {
        struct vb_cm_conn *c = vb_cm_find_remote(cm, from, m->local_id, false);
        return c && !c->active ? c : NULL;
    }
    struct vb_cm_conn *c = find(cm, from, m);
    if (!c || c->state == VB_CM_REQ_SENT || c->state == VB_CM_MRA_REQ_RCVD)
        return c;
    // An old answer to our REQ, which a later one has overtaken, names no id of the peer's.
    return c->remote_id == m->local_id ? c : NULL;
}

static void handle_rej(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                       const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = find_rejected(cm, from, m);

    if (!c || c->state == VB_CM_REFUSED || c->state == VB_CM_TIMEWAIT || c->state == VB_CM_OVER) {
        stray(cm);
        return;
    }
    if (!is_untold(c))
        c->said = *m;
    c->by_peer = true;
    c->reason = m->rej.reason;
    switch (c->state) {
    case VB_CM_REP_SENT:
    case VB_CM_MRA_REP_RCVD:
        vb_cm_tell(cm, c, VB_CM_EVENT_REJECTED);
        vb_cm_enter_timewait(cm, c, now_ns);
        break;
    case VB_CM_ESTABLISHED:
    case VB_CM_DREQ_SENT:
        vb_cm_tell(cm, c, VB_CM_EVENT_DISCONNECTED);
        vb_cm_enter_timewait(cm, c, now_ns);
        break;
    default: vb_cm_end(cm, c, VB_CM_EVENT_REJECTED, m->rej.reason); break;
    }
}

// ---- DREQ, DREP, LAP

static void send_drep(struct vb_cm *cm, const struct vb_ip *to, const struct vb_cm_message *dreq)
{
    const struct vb_cm_message m = {.kind = VB_CM_DREP,
                                    .tid = dreq->tid,
                                    .local_id = dreq->remote_id,
                                    .remote_id = dreq->local_id};
    vb_cm_send_message(cm, to, &m);
}

static void handle_dreq(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                        const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = find_both(cm, from, m);

    if (!c || c->state == VB_CM_OVER || c->state == VB_CM_REFUSED) {
        stray(cm);
        send_drep(cm, from, m); // who asks for the end of nothing has it
        return;
    }
    if (m->dreq.remote_qpn != c->local_qpn) {
        stray(cm);
        return;
    }
    switch (c->state) {
    case VB_CM_REP_SENT:
    case VB_CM_MRA_REP_RCVD:
    case VB_CM_ESTABLISHED:
    case VB_CM_DREQ_SENT:
        // The peer may be leaving, and ask only once.
        if (!is_untold(c))
            c->said = *m;
        c->by_peer = true;
        vb_cm_tell(cm, c, VB_CM_EVENT_DISCONNECTED);
        vb_cm_enter_timewait(cm, c, now_ns);
        send_drep(cm, from, m);
        break;
    case VB_CM_TIMEWAIT:
        cm->stats.duplicate++;
        send_drep(cm, from, m);
        break;
    default: stray(cm); break;
    }
}

static void handle_drep(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                        const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = find_both(cm, from, m);

    if (!c || c->state != VB_CM_DREQ_SENT) {
        stray(cm);
        return;
    }
    vb_cm_tell(cm, c, VB_CM_EVENT_DISCONNECTED);
    vb_cm_enter_timewait(cm, c, now_ns);
}

// Alternate paths are refused: there is one address.
static void handle_lap(struct vb_cm *cm, const struct vb_ip *from, const struct vb_cm_message *m)
{
    const struct vb_cm_conn *c = find_both(cm, from, m);
    bool known = c && c->state == VB_CM_ESTABLISHED;
    const struct vb_cm_message apr = {
        .kind = VB_CM_APR,
        .tid = m->tid,
        .local_id = m->remote_id,
        .remote_id = m->local_id,
        .apr = {.status = known ? VB_APR_UNSUPPORTED : VB_APR_INVALID_ID},
    };
    cm->stats.refused++;
    vb_cm_send_message(cm, from, &apr);
}

void vb_cm_receive(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                   const struct vb_cm_message *m)
{
    switch (m->kind) {
    case VB_CM_REQ: handle_req(cm, now_ns, from, m); break;
    case VB_CM_MRA: handle_mra(cm, now_ns, from, m); break;
    case VB_CM_REJ: handle_rej(cm, now_ns, from, m); break;
    case VB_CM_REP: handle_rep(cm, from, m); break;
    case VB_CM_RTU: handle_rtu(cm, from, m); break;
    case VB_CM_DREQ: handle_dreq(cm, now_ns, from, m); break;
    case VB_CM_DREP: handle_drep(cm, now_ns, from, m); break;
    case VB_CM_LAP: handle_lap(cm, from, m); break;
    case VB_CM_SIDR_REQ: vb_cm_sidr_request(cm, from, m); break;
    case VB_CM_SIDR_REP: vb_cm_sidr_answer(cm, from, m); break;
    default: stray(cm); break; // an APR, to what we never asked
    }
}
