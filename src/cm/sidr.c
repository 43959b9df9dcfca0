// SPDX-License-Identifier: Apache-2.0
// Lookups of datagram services (SIDR, clause 12.11): which queue pair, and which key.
#include "cm/conn.h"

#include <errno.h>

int vb_cm_sidr_ask(struct vb_cm *cm, uint64_t now_ns, const struct vb_cm_lookup *lookup,
                   uint32_t *id)
{
    struct vb_cm_message m = {.kind = VB_CM_SIDR_REQ,
                              .sidr_req = {.service_id = lookup->service_id, .pkey = VB_CM_PKEY}};

    if (!vb_cm_set_private(&m, &lookup->private_data))
        return -EINVAL;
    struct vb_cm_conn *c = vb_cm_conn_alloc(cm, &lookup->peer);
    if (!c)
        return -ENOBUFS;
    c->local = *vb_cm_local(cm, &lookup->local);
    c->state = VB_CM_SIDR_REQ_SENT;
    c->active = c->sidr = true;
    vb_cm_note_service(c, lookup->service_id, m.private_data);
    c->retries = cm->opts.retries;
    c->answer_ns = vb_cm_time_ns(cm->opts.timeout) + 2 * vb_cm_time_ns(cm->opts.packet_life);
    m.tid = (uint64_t)cm->tid_high << 32 | c->local_id;
    m.local_id = *id = c->local_id;
    vb_cm_send_kept(cm, c, &m);
    vb_cm_expect(cm, c, now_ns);
    return 0;
}

static void form_reply(const struct vb_cm_message *request, enum vb_sidr_status status,
                       struct vb_cm_message *m)
{
    *m = (struct vb_cm_message){
        .kind = VB_CM_SIDR_REP,
        .tid = request->tid,
        .local_id = request->local_id,
        .sidr_rep = {.service_id = request->sidr_req.service_id, .status = (uint8_t)status},
    };
}

void vb_cm_sidr_request(struct vb_cm *cm, const struct vb_ip *from, const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = vb_cm_find_remote(cm, from, m->local_id, true);
    struct vb_cm_listener *listener = vb_cm_find_listener(cm, m->sidr_req.service_id);
    struct vb_cm_message refusal;

    if (c) {
        cm->stats.duplicate++;
        if (c->state == VB_CM_SIDR_REPLIED)
            vb_cm_send_again(cm, c);
        return;
    }
    if (!listener || listener->pending >= listener->backlog ||
        (c = vb_cm_conn_alloc(cm, from)) == NULL) {
        cm->stats.refused++;
        form_reply(m, listener ? VB_SIDR_NO_QP : VB_SIDR_UNSUPPORTED, &refusal);
        vb_cm_send_message(cm, from, &refusal);
        return;
    }
    c->state = VB_CM_SIDR_REQ_RCVD;
    c->sidr = true;
    c->remote_id = m->local_id;
    vb_cm_note_service(c, m->sidr_req.service_id, m->private_data);
    vb_cm_conn_index(cm, c, VB_CM_BY_REMOTE);
    listener->pending++;
    c->listener = (uint32_t)(listener - cm->listener) + 1;
    c->listener_tag = listener->tag;
    c->said = *m;
    vb_cm_tell(cm, c, VB_CM_EVENT_SIDR_REQUEST);
}

// The answer is all that is left of it.
static void reply(struct vb_cm *cm, uint64_t now_ns, struct vb_cm_conn *c,
                  const struct vb_cm_message *m)
{
    vb_cm_send_kept(cm, c, m);
    vb_cm_answered(cm, c);
    vb_cm_untell(c);
    c->orphan = true;
    c->state = VB_CM_SIDR_REPLIED;
    vb_fifo_push(&cm->refusals, &c->link);
    vb_timer_arm(&cm->timers, &c->timer,
                 now_ns + vb_cm_time_ns(cm->opts.timeout) * (cm->opts.retries + 1u));
}

void vb_cm_sidr_refuse(struct vb_cm *cm, uint64_t now_ns, struct vb_cm_conn *c,
                       enum vb_sidr_status status)
{
    struct vb_cm_message m;

    form_reply(&c->said, status, &m);
    reply(cm, now_ns, c, &m);
}

int vb_cm_sidr_reply(struct vb_cm *cm, uint64_t now_ns, uint32_t id,
                     const struct vb_cm_found *found)
{
    struct vb_cm_conn *c = vb_cm_find_local(cm, id);
    struct vb_cm_message m;

    if (!c || c->orphan)
        return -ENOENT;
    if (c->state != VB_CM_SIDR_REQ_RCVD || c->events || found->qpn > 0xffffff)
        return -EINVAL;
    form_reply(&c->said, found->status, &m);
    m.sidr_rep.qpn = found->qpn;
    m.sidr_rep.qkey = found->qkey;
    if (!vb_cm_set_private(&m, &found->private_data))
        return -EINVAL;
    reply(cm, now_ns, c, &m);
    return 0;
}

void vb_cm_sidr_answer(struct vb_cm *cm, const struct vb_ip *from, const struct vb_cm_message *m)
{
    struct vb_cm_conn *c = vb_cm_find_local(cm, m->local_id);

    if (!c || c->state != VB_CM_SIDR_REQ_SENT || !vb_ip_equal(&c->peer, from)) {
        cm->stats.stray++;
        return;
    }
    c->said = *m;
    c->by_peer = true;
    vb_cm_end(cm, c, VB_CM_EVENT_SIDR_REPLY, 0);
}
