// SPDX-License-Identifier: Apache-2.0
// Messages that leave, and how long their answers may take.
#include "cm/conn.h"

#include "base/bytes.h"

bool vb_cm_has_room(const struct vb_cm *cm)
{
    return cm->out_count < cm->opts.outbox;
}

void vb_cm_send(struct vb_cm *cm, const struct vb_ip *from, const struct vb_ip *to,
                const uint8_t mad[VB_MAD_BYTES])
{
    // What finds no room is as good as lost on the way, which everything here can bear.
    if (!vb_cm_has_room(cm)) {
        cm->stats.overflowed++;
        return;
    }
    struct vb_cm_out *out = &cm->outbox[(cm->out_head + cm->out_count++) % cm->opts.outbox];
    out->from = *from;
    out->to = *to;
    memcpy(out->mad, mad, VB_MAD_BYTES);
    cm->stats.sent[vb_get_be16(mad + 16) - VB_CM_KIND_FIRST]++;
}

bool vb_cm_take_message(struct vb_cm *cm, struct vb_ip *to, uint8_t mad[VB_MAD_BYTES])
{
    struct vb_ip from;

    return vb_cm_take_message_from(cm, &from, to, mad);
}

bool vb_cm_take_message_from(struct vb_cm *cm, struct vb_ip *from, struct vb_ip *to,
                             uint8_t mad[VB_MAD_BYTES])
{
    if (cm->out_count == 0)
        return false;
    const struct vb_cm_out *out = &cm->outbox[cm->out_head];
    *from = out->from;
    *to = out->to;
    memcpy(mad, out->mad, VB_MAD_BYTES);
    cm->out_head = (cm->out_head + 1) % cm->opts.outbox;
    cm->out_count--;
    return true;
}

void vb_cm_send_message(struct vb_cm *cm, const struct vb_ip *to, const struct vb_cm_message *m)
{
    uint8_t mad[VB_MAD_BYTES];

    vb_cm_encode(m, mad);
    vb_cm_send(cm, &cm->here, to, mad);
}

void vb_cm_send_once(struct vb_cm *cm, const struct vb_cm_conn *c, const struct vb_cm_message *m)
{
    uint8_t mad[VB_MAD_BYTES];

    vb_cm_encode(m, mad);
    vb_cm_send(cm, &c->local, &c->peer, mad);
}

void vb_cm_send_kept(struct vb_cm *cm, struct vb_cm_conn *c, const struct vb_cm_message *m)
{
    vb_cm_encode(m, c->mad);
    vb_cm_send(cm, &c->local, &c->peer, c->mad);
}

void vb_cm_send_again(struct vb_cm *cm, const struct vb_cm_conn *c)
{
    vb_cm_send(cm, &c->local, &c->peer, c->mad);
}

void vb_cm_expect(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns)
{
    c->retries_left = c->retries;
    c->early = true;
    vb_timer_arm(&cm->timers, &c->timer, now_ns + c->answer_ns / VB_CM_EARLY);
}

bool vb_cm_set_private(struct vb_cm_message *m, const struct vb_cm_private *p)
{
    if (!p || p->len == 0)
        return true;
    if (p->len > vb_cm_private_len(m->kind))
        return false;
    memcpy(m->private_data, p->data, p->len);
    return true;
}

void vb_cm_form_ids(const struct vb_cm_conn *c, enum vb_cm_kind kind, struct vb_cm_message *m)
{
    *m = (struct vb_cm_message){
        .kind = kind, .tid = c->tid, .local_id = c->local_id, .remote_id = c->remote_id};
}

void vb_cm_form_dreq(const struct vb_cm_conn *c, struct vb_cm_message *m)
{
    vb_cm_form_ids(c, VB_CM_DREQ, m);
    m->dreq.remote_qpn = c->remote_qpn;
}

// A REJ of a REQ that we have not answered names no id of ours. One for a time-out names our CA,
// since the peer may know nothing else of us.
void vb_cm_form_rej(const struct vb_cm *cm, const struct vb_cm_conn *c,
                    const struct vb_cm_refusal *refusal, struct vb_cm_message *m)
{
    vb_cm_form_ids(c, VB_CM_REJ, m);
    m->rej.reason = refusal->reason;
    m->rej.info_len = refusal->info_len;
    memcpy(m->rej.info, refusal->info, refusal->info_len);
    switch (c->state) {
    case VB_CM_REQ_RCVD: m->local_id = 0; // fall through
    case VB_CM_MRA_REQ_SENT: m->rej.about = VB_CM_ABOUT_REQ; break;
    case VB_CM_REP_RCVD:
    case VB_CM_MRA_REP_SENT: m->rej.about = VB_CM_ABOUT_REP; break;
    default: m->rej.about = VB_CM_ABOUT_OTHER; break;
    }
    if (refusal->reason == VB_CM_TIMEOUT) {
        m->rej.info_len = 8;
        vb_put_be64(m->rej.info, cm->opts.ca_guid);
    }
}

void vb_cm_send_rej(struct vb_cm *cm, const struct vb_ip *to, const struct vb_cm_message *about,
                    uint16_t reason)
{
    const struct vb_cm_message m = {
        .kind = VB_CM_REJ,
        .tid = about->tid,
        .local_id = about->remote_id, // of a REQ there is none
        .remote_id = about->local_id,
        .rej = {.reason = reason,
                .about = about->kind == VB_CM_REQ   ? VB_CM_ABOUT_REQ
                         : about->kind == VB_CM_REP ? VB_CM_ABOUT_REP
                                                    : VB_CM_ABOUT_OTHER},
    };
    cm->stats.refused++;
    vb_cm_send_message(cm, to, &m);
}
