// SPDX-License-Identifier: Apache-2.0
// The communication manager's calls.
#include "cm/cm.h"

#include "base/siphash.h"
#include "cm/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    RATE_10_GBPS = 3, // of a path, which nobody looks at
    LID_PERMISSIVE = 0xffff,
};

static void set_defaults(struct vb_cm_opts *o)
{
    o->connections = o->connections ? o->connections : 1024;
    o->listeners = o->listeners ? o->listeners : 64;
    o->outbox = o->outbox ? o->outbox : 256;
    o->timeout = o->timeout ? o->timeout : 18;
    o->retries = o->retries ? o->retries : 15;
    o->packet_life = o->packet_life ? o->packet_life : 14;
}

struct vb_cm *vb_cm_create(const struct vb_cm_opts *opts)
{
    struct vb_cm *cm = calloc(1, sizeof *cm);

    if (!cm)
        return NULL;
    cm->opts = *opts;
    cm->here = opts->local;
    set_defaults(&cm->opts);
    if (cm->opts.timeout > 31 || cm->opts.retries > 15 || cm->opts.packet_life > 31 ||
        cm->opts.id_prefix_bits > 16 || cm->opts.id_prefix >> cm->opts.id_prefix_bits ||
        vb_cm_table_create(cm) != 0) {
        vb_cm_destroy(cm);
        return NULL;
    }
    cm->tid_high = (uint32_t)vb_siphash(cm->opts.seed, UINT64_MAX);
    return cm;
}

void vb_cm_destroy(struct vb_cm *cm)
{
    if (!cm)
        return;
    vb_cm_table_destroy(cm);
    free(cm);
}

static struct vb_cm_conn *known(const struct vb_cm *cm, uint32_t id)
{
    struct vb_cm_conn *c = vb_cm_find_local(cm, id);
    return c && !c->orphan ? c : NULL;
}

// ---- the active side

const struct vb_ip *vb_cm_local(const struct vb_cm *cm, const struct vb_ip *wanted)
{
    static const struct vb_ip any;
    return vb_ip_equal(wanted, &any) ? &cm->opts.local : wanted;
}

static bool is_legal(const struct vb_cm_request *r)
{
    return r->mtu >= 1 && r->mtu <= 5 && r->qpn <= 0xffffff && r->psn <= 0xffffff &&
           r->transport <= VB_CM_EXTENDED && r->retries <= 7 && r->rnr_retries <= 7 &&
           r->ack_timeout <= 31 && r->sl <= 15 && r->flow_label <= 0xfffff;
}

static void form_req(const struct vb_cm *cm, const struct vb_cm_request *r, struct vb_cm_message *m)
{
    uint8_t hops = r->hop_limit ? r->hop_limit : 64;
    uint16_t lid = hops > 1 ? LID_PERMISSIVE : 0;

    *m = (struct vb_cm_message){
        .kind = VB_CM_REQ,
        .attr_mod = r->vendor_options,
        .req = {.service_id = r->service_id,
                .ca_guid = cm->opts.ca_guid,
                .vendor_id = r->vendor_id,
                .qkey = r->qkey,
                .qpn = r->qpn,
                .psn = r->psn,
                .pkey = VB_CM_PKEY,
                .responder_resources = r->responder_resources,
                .initiator_depth = r->initiator_depth,
                .remote_timeout = cm->opts.timeout,
                .local_timeout = cm->opts.timeout,
                .transport = r->transport,
                .extended_transport = r->extended_transport,
                .flow_control = r->flow_control,
                .retries = r->retries,
                .rnr_retries = r->rnr_retries,
                .max_cm_retries = cm->opts.retries,
                .srq = r->srq,
                .mtu = r->mtu,
                .primary = {.local_lid = lid,
                            .remote_lid = lid,
                            .flow_label = r->flow_label,
                            .rate = RATE_10_GBPS,
                            .traffic_class = r->traffic_class,
                            .hop_limit = hops,
                            .sl = r->sl,
                            .subnet_local = hops <= 1,
                            .ack_timeout = r->ack_timeout}},
    };
    memcpy(m->req.primary.local_gid, vb_cm_local(cm, &r->local)->b, 16);
    memcpy(m->req.primary.remote_gid, r->peer.b, 16);
}

int vb_cm_connect(struct vb_cm *cm, uint64_t now_ns, const struct vb_cm_request *request,
                  uint32_t *id)
{
    struct vb_cm_message m;

    form_req(cm, request, &m);
    if (!is_legal(request) || !vb_cm_set_private(&m, &request->private_data))
        return -EINVAL;
    struct vb_cm_conn *c = vb_cm_conn_alloc(cm, &request->peer);
    if (!c)
        return -ENOBUFS;
    c->state = VB_CM_REQ_SENT;
    c->active = true;
    c->local = *vb_cm_local(cm, &request->local);
    c->local_qpn = request->qpn;
    c->transport = request->transport;
    vb_cm_note_service(c, request->service_id, m.private_data);
    c->retries = cm->opts.retries;
    c->answer_ns = vb_cm_time_ns(cm->opts.timeout) + 2 * vb_cm_time_ns(cm->opts.packet_life);
    c->tid = (uint64_t)cm->tid_high << 32 | c->local_id;
    m.tid = c->tid;
    m.local_id = *id = c->local_id;
    vb_cm_send_kept(cm, c, &m);
    vb_cm_expect(cm, c, now_ns);
    return 0;
}

int vb_cm_confirm(struct vb_cm *cm, uint64_t now_ns, uint32_t id,
                  const struct vb_cm_private *private_data)
{
    struct vb_cm_conn *c = known(cm, id);
    struct vb_cm_message m;

    (void)now_ns;
    if (!c)
        return -ENOENT;
    if ((c->state != VB_CM_REP_RCVD && c->state != VB_CM_MRA_REP_SENT) || c->events)
        return -EINVAL;
    vb_cm_form_ids(c, VB_CM_RTU, &m);
    if (!vb_cm_set_private(&m, private_data))
        return -EINVAL;
    c->state = VB_CM_ESTABLISHED;
    vb_cm_send_kept(cm, c, &m);
    return 0;
}

// ---- the passive side

int vb_cm_accept(struct vb_cm *cm, uint64_t now_ns, uint32_t id, const struct vb_cm_answer *answer)
{
    struct vb_cm_conn *c = known(cm, id);
    struct vb_cm_message m;

    if (!c)
        return -ENOENT;
    if ((c->state != VB_CM_REQ_RCVD && c->state != VB_CM_MRA_REQ_SENT) || c->events ||
        answer->qpn > 0xffffff || answer->psn > 0xffffff || answer->rnr_retries > 7)
        return -EINVAL;
    vb_cm_form_ids(c, VB_CM_REP, &m);
    m.attr_mod = answer->vendor_options;
    m.rep = (struct vb_cm_rep){.ca_guid = cm->opts.ca_guid,
                               .vendor_id = answer->vendor_id,
                               .qkey = answer->qkey,
                               .qpn = answer->qpn,
                               .psn = answer->psn,
                               .responder_resources = answer->responder_resources,
                               .initiator_depth = answer->initiator_depth,
                               .target_ack_delay = answer->target_ack_delay,
                               .failover = c->alternate, // 1: not supported
                               .flow_control = answer->flow_control,
                               .rnr_retries = answer->rnr_retries,
                               .srq = answer->srq};
    if (!vb_cm_set_private(&m, &answer->private_data))
        return -EINVAL;
    vb_cm_answered(cm, c);
    c->local_qpn = answer->qpn;
    vb_cm_conn_index(cm, c, VB_CM_BY_OWN);
    c->state = VB_CM_REP_SENT;
    vb_cm_send_kept(cm, c, &m);
    vb_cm_expect(cm, c, now_ns);
    return 0;
}

int vb_cm_heard(struct vb_cm *cm, uint64_t now_ns, uint32_t id)
{
    struct vb_cm_conn *c = known(cm, id);

    (void)now_ns;
    if (!c)
        return -ENOENT;
    if (c->state != VB_CM_REP_SENT && c->state != VB_CM_MRA_REP_RCVD)
        return -EINVAL;
    vb_timer_disarm(&c->timer);
    c->state = VB_CM_ESTABLISHED;
    vb_cm_tell(cm, c, VB_CM_EVENT_ESTABLISHED);
    return 0;
}

void vb_cm_heard_on(struct vb_cm *cm, uint64_t now_ns, uint32_t qpn)
{
    struct vb_cm_conn *c = NULL;

    while ((c = vb_cm_next_own(cm, c, qpn)) != NULL)
        (void)vb_cm_heard(cm, now_ns, c->local_id);
}

// ---- both

int vb_cm_reject(struct vb_cm *cm, uint64_t now_ns, uint32_t id,
                 const struct vb_cm_refusal *refusal)
{
    struct vb_cm_conn *c = known(cm, id);

    if (!c)
        return -ENOENT;
    if (c->events || refusal->info_len > VB_CM_INFO_MAX ||
        refusal->private_data.len > vb_cm_private_len(VB_CM_REJ))
        return -EINVAL;
    switch (c->state) {
    case VB_CM_REQ_RCVD:
    case VB_CM_MRA_REQ_SENT:
    case VB_CM_REP_RCVD:
    case VB_CM_MRA_REP_SENT: vb_cm_refuse(cm, c, now_ns, refusal); return 0;
    default: return -EINVAL;
    }
}

int vb_cm_delay(struct vb_cm *cm, uint64_t now_ns, uint32_t id, uint8_t service_timeout)
{
    struct vb_cm_conn *c = known(cm, id);
    struct vb_cm_message m;

    (void)now_ns;
    if (!c)
        return -ENOENT;
    if ((c->state != VB_CM_REQ_RCVD && c->state != VB_CM_REP_RCVD) || c->events ||
        service_timeout > 31)
        return -EINVAL;
    bool of_req = c->state == VB_CM_REQ_RCVD;
    vb_cm_form_ids(c, VB_CM_MRA, &m);
    m.mra = (struct vb_cm_mra){.about = of_req ? VB_CM_ABOUT_REQ : VB_CM_ABOUT_REP,
                               .service_timeout = service_timeout};
    c->state = of_req ? VB_CM_MRA_REQ_SENT : VB_CM_MRA_REP_SENT;
    vb_cm_send_kept(cm, c, &m);
    return 0;
}

int vb_cm_disconnect(struct vb_cm *cm, uint64_t now_ns, uint32_t id,
                     const struct vb_cm_private *private_data)
{
    struct vb_cm_conn *c = known(cm, id);

    if (!c)
        return -ENOENT;
    if (c->state != VB_CM_ESTABLISHED ||
        (private_data && private_data->len > vb_cm_private_len(VB_CM_DREQ)))
        return -EINVAL;
    vb_cm_leave(cm, c, now_ns, private_data);
    return 0;
}

void vb_cm_input(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from, const uint8_t *mad,
                 size_t len)
{
    vb_cm_input_at(cm, now_ns, from, &cm->opts.local, mad, len);
}

void vb_cm_input_at(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                    const struct vb_ip *to, const uint8_t *mad, size_t len)
{
    struct vb_cm_message m;

    if (vb_cm_decode(mad, len, &m) != VB_CM_DECODE_OK) {
        cm->stats.malformed++;
        return;
    }
    cm->stats.received[m.kind - VB_CM_KIND_FIRST]++;
    cm->here = *to;
    vb_cm_receive(cm, now_ns, from, &m);
    cm->here = cm->opts.local;
}

// ---- for who looks

enum vb_cm_state vb_cm_state(const struct vb_cm *cm, uint32_t id)
{
    const struct vb_cm_conn *c = vb_cm_find_local(cm, id);
    return c ? c->state : VB_CM_FREE;
}

const char *vb_cm_state_text(enum vb_cm_state state)
{
    static const char *const text[VB_CM_STATES] = {
        [VB_CM_FREE] = "none",
        [VB_CM_REQ_SENT] = "REQ sent",
        [VB_CM_MRA_REQ_RCVD] = "MRA of REQ received",
        [VB_CM_REP_RCVD] = "REP received",
        [VB_CM_MRA_REP_SENT] = "MRA of REP sent",
        [VB_CM_REQ_RCVD] = "REQ received",
        [VB_CM_MRA_REQ_SENT] = "MRA of REQ sent",
        [VB_CM_REP_SENT] = "REP sent",
        [VB_CM_MRA_REP_RCVD] = "MRA of REP received",
        [VB_CM_ESTABLISHED] = "established",
        [VB_CM_DREQ_SENT] = "DREQ sent",
        [VB_CM_TIMEWAIT] = "timewait",
        [VB_CM_REFUSED] = "refused",
        [VB_CM_SIDR_REQ_SENT] = "SIDR_REQ sent",
        [VB_CM_SIDR_REQ_RCVD] = "SIDR_REQ received",
        [VB_CM_SIDR_REPLIED] = "SIDR_REP sent",
        [VB_CM_OVER] = "over",
    };
    return (unsigned)state < VB_CM_STATES ? text[state] : "?";
}

const char *vb_cm_event_text(enum vb_cm_event_kind kind)
{
    static const char *const text[VB_CM_EVENTS] = {
        "request",      "reply",        "established", "rejected", "unreachable",
        "disconnected", "SIDR request", "SIDR reply",  "gone",
    };
    return (unsigned)kind < VB_CM_EVENTS ? text[kind] : "?";
}

const struct vb_cm_stats *vb_cm_stats(const struct vb_cm *cm)
{
    return &cm->stats;
}

uint32_t vb_cm_in_use(const struct vb_cm *cm)
{
    return cm->in_use;
}
