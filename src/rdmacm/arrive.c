// SPDX-License-Identifier: Apache-2.0
// Events of the communication manager become those of ids. Runs in the thread of process.c.
#include "rdmacm/rdmacm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- what an event tells

// `skip` bytes in front are rdma_cm's. `len` as Linux says it: what the message has room for.
static const void *keep_private(struct vb_rdmacm_event *e, const struct vb_cm_event *from,
                                uint32_t skip, uint8_t len)
{
    memcpy(e->data, from->message.private_data + skip, len);
    return e->data;
}

static void describe_req(struct vb_rdmacm_event *e, const struct vb_cm_event *from)
{
    const struct vb_cm_req *req = &from->message.req;

    // The peer's requests are what we serve.
    e->event.param.conn = (struct rdma_conn_param){
        .private_data = keep_private(e, from, VB_CMA_HEADER_BYTES, VB_RDMACM_REQ_PRIVATE),
        .private_data_len = VB_RDMACM_REQ_PRIVATE,
        .responder_resources = req->initiator_depth,
        .initiator_depth = req->responder_resources,
        .flow_control = req->flow_control,
        .retry_count = req->retries,
        .rnr_retry_count = req->rnr_retries,
        .srq = req->srq,
        .qp_num = req->qpn,
    };
}

static void describe_rep(struct vb_rdmacm_event *e, const struct vb_cm_event *from)
{
    const struct vb_cm_rep *rep = &from->message.rep;

    e->event.param.conn = (struct rdma_conn_param){
        .private_data = keep_private(e, from, 0, VB_RDMACM_REP_PRIVATE),
        .private_data_len = VB_RDMACM_REP_PRIVATE,
        .responder_resources = rep->initiator_depth,
        .initiator_depth = rep->responder_resources,
        .flow_control = rep->flow_control,
        .rnr_retry_count = rep->rnr_retries,
        .srq = rep->srq,
        .qp_num = rep->qpn,
    };
}

static void describe_found(struct vb_rdmacm_event *e, const struct vb_cm_event *from)
{
    const struct vb_rdmacm_id *i = e->owner;

    e->event.param.ud = (struct rdma_ud_param){
        .private_data = keep_private(e, from, 0, VB_RDMACM_SIDR_REP_PRIVATE),
        .private_data_len = VB_RDMACM_SIDR_REP_PRIVATE,
        .ah_attr = vb_rdmacm_vector(i, &i->to.ip),
        .qp_num = from->message.sidr_rep.qpn,
        .qkey = from->message.sidr_rep.qkey,
    };
}

// ---- requests

static struct vb_rdmacm_id *form_id(const struct vb_rdmacm_id *listener,
                                    const struct vb_cm_event *event,
                                    const struct vb_cma_header *names, uint64_t service_id)
{
    struct vb_rdmacm_id *i = vb_rdmacm_create(listener->id.channel, listener->id.context,
                                              listener->id.ps, listener->id.qp_type);

    if (!i)
        return NULL;
    i->state = VB_RDMACM_REQUESTED;
    i->from = (struct vb_rdmacm_name){.ip = names->target, .port = vb_cma_port(service_id)};
    i->to = (struct vb_rdmacm_name){.ip = names->source, .port = names->port};
    i->tos = listener->tos;
    i->qkey = listener->qkey;
    i->path.peer = event->peer;
    vb_rdmacm_put_name(&i->from, &i->id.route.addr.src_storage);
    vb_rdmacm_put_name(&i->to, &i->id.route.addr.dst_storage);
    struct rdma_ib_addr *gids = &i->id.route.addr.addr.ibaddr;
    memcpy(gids->sgid.raw, i->from.ip.b, 16);
    memcpy(gids->dgid.raw, event->peer.b, 16);
    gids->pkey = 0xffff;
    vb_rdmacm_bind_device(i, vb_rdmacm_open());
    return i;
}

static void note_req(struct vb_rdmacm_id *i, const struct vb_cm_message *m)
{
    struct vb_rdmacm_path *path = &i->path;

    path->peer_qpn = m->req.qpn;
    path->peer_psn = m->req.psn;
    path->mtu = m->req.mtu;
    path->timeout = m->req.primary.ack_timeout;
    path->retries = m->req.retries;
    path->rnr_retries = m->req.rnr_retries;
    path->initiator_depth = m->req.responder_resources;
    path->responder_resources = m->req.initiator_depth;
    path->peer_ece = (struct ibv_ece){.vendor_id = m->req.vendor_id, .options = m->attr_mod};
    i->tos = m->req.primary.traffic_class;
}

// Whether the listener serves queue pairs of that kind.
static bool fits(const struct vb_rdmacm_id *listener, const struct vb_cm_event *event, bool ud)
{
    if (ud || vb_rdmacm_is_ud(listener))
        return ud && vb_rdmacm_is_ud(listener);
    if (event->message.req.transport == VB_CM_EXTENDED)
        return listener->id.qp_type == IBV_QPT_XRC_RECV;
    // RC or UC: the listener has no queue pair yet that would say which.
    return listener->id.qp_type == IBV_QPT_RC || listener->id.qp_type == IBV_QPT_UC;
}

// 0, or the reason why not.
static uint16_t request(const struct vb_cm_event *event, bool ud)
{
    uint64_t service_id = ud ? event->message.sidr_req.service_id : event->message.req.service_id;
    struct vb_cma_header names;
    struct vb_rdmacm_id *listener, *i;

    if (!vb_cma_decode(event->message.private_data, &names))
        return VB_CM_INVALID_SERVICE;
    listener = vb_rdmacm_listener((uint32_t)(uintptr_t)event->listener, &names.target);
    if (!listener)
        return VB_CM_INVALID_SERVICE;
    if (!fits(listener, event, ud))
        return VB_CM_INVALID_TRANSPORT;
    if (listener->pending >= listener->backlog)
        return VB_CM_NO_RESOURCES;
    struct vb_rdmacm_event *e = vb_rdmacm_event(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    if (!e || !(i = form_id(listener, event, &names, service_id))) {
        free(e);
        return VB_CM_NO_RESOURCES;
    }
    listener->pending++;
    i->asked = listener;
    e->event.id = &i->id;
    e->event.listen_id = &listener->id;
    if (ud) {
        e->event.param.ud.private_data =
            keep_private(e, event, VB_CMA_HEADER_BYTES, VB_RDMACM_SIDR_REQ_PRIVATE);
        e->event.param.ud.private_data_len = VB_RDMACM_SIDR_REQ_PRIVATE;
    } else {
        note_req(i, &event->message);
        describe_req(e, event);
    }
    vb_rdmacm_know(i, event->id);
    vb_fifo_push(vb_rdmacm_ids(), &i->all);
    vb_rdmacm_enter(i);
    vb_rdmacm_queue(e);
    return 0;
}

// ---- answers

static uint8_t lesser(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

static void reply(struct vb_rdmacm_id *i, const struct vb_cm_event *event)
{
    const struct vb_cm_message *m = &event->message;
    struct vb_rdmacm_event *e = vb_rdmacm_event(i, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);

    i->state = VB_RDMACM_REPLIED;
    i->path.peer_qpn = m->rep.qpn;
    i->path.peer_psn = m->rep.psn;
    i->path.rnr_retries = m->rep.rnr_retries;
    // A peer may offer more than it was asked for.
    i->path.initiator_depth = lesser(i->path.initiator_depth, m->rep.responder_resources);
    i->path.responder_resources = lesser(i->path.responder_resources, m->rep.initiator_depth);
    i->path.peer_ece = (struct ibv_ece){.vendor_id = m->rep.vendor_id, .options = m->attr_mod};
    if (!e)
        return;
    describe_rep(e, event);
    vb_rdmacm_queue(e);
}

static void found(struct vb_rdmacm_id *i, const struct vb_cm_event *event)
{
    uint8_t status = event->message.sidr_rep.status;
    struct vb_rdmacm_event *e =
        vb_rdmacm_event(i, status ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_ESTABLISHED, status);

    vb_rdmacm_forget(i);
    i->state = status ? VB_RDMACM_OVER : VB_RDMACM_CONNECTED;
    if (!e)
        return;
    describe_found(e, event);
    vb_rdmacm_queue(e);
}

static void rejected(struct vb_rdmacm_id *i, const struct vb_cm_event *event)
{
    struct vb_rdmacm_event *e = vb_rdmacm_event(i, RDMA_CM_EVENT_REJECTED, event->reason);

    i->state = VB_RDMACM_OVER;
    if (!e)
        return;
    if (event->private_len) {
        e->event.param.conn.private_data = keep_private(e, event, 0, VB_RDMACM_REJ_PRIVATE);
        e->event.param.conn.private_data_len = VB_RDMACM_REJ_PRIVATE;
    }
    vb_rdmacm_queue(e);
}

static void gone(struct vb_rdmacm_id *i)
{
    vb_rdmacm_forget(i);
    if (i->connected)
        vb_rdmacm_tell(i, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
    i->state = VB_RDMACM_OVER;
}

static void answer(struct vb_rdmacm_id *i, const struct vb_cm_event *event)
{
    switch (event->kind) {
    case VB_CM_EVENT_REPLY: reply(i, event); break;
    case VB_CM_EVENT_ESTABLISHED:
        i->state = VB_RDMACM_CONNECTED;
        i->connected = true;
        vb_rdmacm_tell(i, RDMA_CM_EVENT_ESTABLISHED, 0);
        break;
    case VB_CM_EVENT_REJECTED: rejected(i, event); break;
    case VB_CM_EVENT_UNREACHABLE:
        i->state = VB_RDMACM_OVER;
        if (vb_rdmacm_is_ud(i))
            vb_rdmacm_forget(i);
        vb_rdmacm_tell(i, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
        break;
    case VB_CM_EVENT_DISCONNECTED:
        i->state = VB_RDMACM_OVER;
        vb_rdmacm_tell(i, RDMA_CM_EVENT_DISCONNECTED, 0);
        break;
    case VB_CM_EVENT_SIDR_REPLY: found(i, event); break;
    case VB_CM_EVENT_GONE: gone(i); break;
    default: break;
    }
}

void vb_rdmacm_arrive(const struct vb_cm_event *event)
{
    bool ud = event->kind == VB_CM_EVENT_SIDR_REQUEST;

    vb_rdmacm_lock();
    if (ud || event->kind == VB_CM_EVENT_REQUEST) {
        uint16_t reason = request(event, ud);
        if (reason)
            vb_rdmacm_refuse(event->id, ud, reason);
    } else {
        struct vb_rdmacm_id *i = vb_rdmacm_find(event->id);
        if (i && !i->condemned)
            answer(i, event);
    }
    vb_rdmacm_unlock();
}
