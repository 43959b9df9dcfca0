// SPDX-License-Identifier: Apache-2.0
// Connections as programs make and end them. What the peer has to say comes back by events.
#include "rdmacm/rdmacm.h"

#include <errno.h>
#include <string.h>

enum {
    ACK_TIMEOUT = 16, // 268 ms: a peer on a busy machine may take its time
    ACK_TIMEOUT_MAX = 31,
    RETRIES_MAX = 7,
    REASON_VENDOR_OPTION = 35, // of a REJ, for ECE
};

#define UNLIMITED UINT8_MAX // of READs: as many as the device has

// ---- with the manager; these need the lock

static struct vb_cm *enter(uint64_t *now_ns)
{
    return vb_rdmacm_calls()->enter(vb_rdmacm_manager(), now_ns);
}

static void leave(void)
{
    vb_rdmacm_calls()->leave(vb_rdmacm_manager());
}

void vb_rdmacm_taken(struct vb_rdmacm_id *i)
{
    if (i->asked)
        i->asked->pending--;
    i->asked = NULL;
}

void vb_rdmacm_abandon_in(struct vb_cm *cm, uint64_t now_ns, struct vb_rdmacm_id *i)
{
    if (!i->has_cm)
        return;
    vb_rdmacm_calls()->abandon(cm, now_ns, i->cm_id);
    vb_rdmacm_forget(i);
    i->state = VB_RDMACM_OVER;
}

void vb_rdmacm_abandon(struct vb_rdmacm_id *i)
{
    uint64_t now_ns;

    if (!i->has_cm)
        return;
    struct vb_cm *cm = enter(&now_ns);
    vb_rdmacm_abandon_in(cm, now_ns, i);
    leave();
}

static int refuse(uint32_t cm_id, bool ud, uint16_t reason, const struct vb_cm_private *data)
{
    const struct vb_cm_refusal no = {.reason = reason, .private_data = *data};
    const struct vb_cm_found none = {.status = reason == VB_CM_INVALID_SERVICE ? VB_SIDR_UNSUPPORTED
                                                                               : VB_SIDR_REJECTED,
                                     .private_data = *data};
    uint64_t now_ns;
    struct vb_cm *cm = enter(&now_ns);
    int err = ud ? vb_rdmacm_calls()->reply(cm, now_ns, cm_id, &none)
                 : vb_rdmacm_calls()->reject(cm, now_ns, cm_id, &no);
    leave();
    return err;
}

void vb_rdmacm_refuse(uint32_t cm_id, bool ud, uint16_t reason)
{
    refuse(cm_id, ud, reason, &(struct vb_cm_private){NULL, 0});
}

enum vb_rdmacm_state vb_rdmacm_state(const struct vb_rdmacm_id *i)
{
    vb_rdmacm_lock();
    enum vb_rdmacm_state state = i->state;
    vb_rdmacm_unlock();
    return state;
}

// ---- what programs ask for

static const char *judge(const struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    if (!i->id.qp && (!p || !p->qp_num))
        return "it has no queue pair, and none is named";
    if (!p)
        return NULL;
    if (p->responder_resources > VB_RDMACM_READS && p->responder_resources != UNLIMITED)
        return "at most 16 READs and atomics are served at a time";
    if (p->initiator_depth > VB_RDMACM_READS && p->initiator_depth != UNLIMITED)
        return "at most 16 READs and atomics are in flight";
    if (p->private_data_len && !p->private_data)
        return "private data are announced, but not there";
    return NULL;
}

static uint32_t number_of(const struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    return i->id.qp ? i->id.qp->qp_num : p->qp_num;
}

static uint8_t has_srq(const struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    return i->id.qp ? i->id.qp->srq != NULL : p->srq != 0;
}

// What rdma_create_ep() was given serves where the program gives nothing.
static struct vb_cm_private data_of(const struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    if (p && p->private_data && p->private_data_len)
        return (struct vb_cm_private){p->private_data, p->private_data_len};
    return (struct vb_cm_private){i->connect_data, i->connect_len};
}

static uint8_t retries(uint8_t wanted)
{
    return wanted < RETRIES_MAX ? wanted : RETRIES_MAX;
}

static uint8_t reads(uint8_t wanted, uint8_t limit)
{
    return wanted < limit ? wanted : limit;
}

// ---- the active side

static uint32_t put_private(const struct vb_rdmacm_id *i, const struct vb_cm_private *data,
                            uint8_t *bytes)
{
    const struct vb_cma_header names = {
        .port = i->from.port, .source = i->from.ip, .target = i->to.ip};

    vb_cma_encode(&names, bytes);
    if (data->len)
        memcpy(bytes + VB_CMA_HEADER_BYTES, data->data, data->len);
    return VB_CMA_HEADER_BYTES + data->len;
}

static void name_transport(const struct vb_rdmacm_id *i, struct vb_cm_request *request)
{
    request->transport = i->id.qp_type == IBV_QPT_UC         ? VB_CM_UC
                         : i->id.qp_type == IBV_QPT_XRC_SEND ? VB_CM_EXTENDED
                                                             : VB_CM_RC;
    request->extended_transport = request->transport == VB_CM_EXTENDED ? VB_CM_EXTENDED_XRC : 0;
}

// An acknowledgement is two packets away from its request, and the peer takes its time.
static uint8_t ack_timeout(const struct vb_rdmacm_id *i)
{
    uint8_t both_ways = i->life <= ACK_TIMEOUT_MAX - 2 ? (uint8_t)(i->life + 2) : ACK_TIMEOUT_MAX;

    if (i->has_ack_timeout)
        return i->ack_timeout;
    return both_ways > ACK_TIMEOUT ? both_ways : ACK_TIMEOUT;
}

static int ask(struct vb_rdmacm_id *i, const struct rdma_conn_param *p,
               const struct vb_cm_private *data, uint32_t *cm_id)
{
    struct vb_rdmacm_path *path = &i->path;
    uint64_t now_ns;

    path->our_qpn = number_of(i, p);
    path->peer = i->to.ip;
    path->initiator_depth = reads(p ? p->initiator_depth : UNLIMITED, VB_RDMACM_READS);
    path->responder_resources = reads(p ? p->responder_resources : UNLIMITED, VB_RDMACM_READS);
    path->timeout = ack_timeout(i);
    path->retries = p ? retries(p->retry_count) : RETRIES_MAX;
    struct vb_cm_request request = {
        .peer = i->to.ip,
        .local = i->from.ip,
        .service_id = vb_cma_service_id((enum vb_cma_space)i->id.ps, i->to.port),
        .qpn = path->our_qpn,
        .psn = path->our_psn,
        .srq = has_srq(i, p),
        .flow_control = p ? p->flow_control : 1,
        .mtu = path->mtu,
        .responder_resources = path->responder_resources,
        .initiator_depth = path->initiator_depth,
        .retries = path->retries,
        .rnr_retries = p ? retries(p->rnr_retry_count) : RETRIES_MAX,
        .ack_timeout = path->timeout,
        .hop_limit = i->hops,
        .traffic_class = i->tos,
        .sl = i->sl,
        .flow_label = i->flow_label,
        .vendor_id = path->local_ece.vendor_id,
        .vendor_options = path->local_ece.options,
        .private_data = *data,
    };
    name_transport(i, &request);
    struct vb_cm *cm = enter(&now_ns);
    int err = vb_rdmacm_calls()->connect(cm, now_ns, &request, cm_id);
    leave();
    return err;
}

static int look_up(const struct vb_rdmacm_id *i, const struct vb_cm_private *data, uint32_t *cm_id)
{
    const struct vb_cm_lookup lookup = {
        .peer = i->to.ip,
        .local = i->from.ip,
        .service_id = vb_cma_service_id((enum vb_cma_space)i->id.ps, i->to.port),
        .private_data = *data};
    uint64_t now_ns;
    struct vb_cm *cm = enter(&now_ns);
    int err = vb_rdmacm_calls()->ask(cm, now_ns, &lookup, cm_id);

    leave();
    return err;
}

static int begin(struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    const struct vb_cm_private given = data_of(i, p);
    uint32_t room = vb_rdmacm_is_ud(i) ? VB_RDMACM_SIDR_REQ_PRIVATE : VB_RDMACM_REQ_PRIVATE;
    uint8_t bytes[VB_CMA_HEADER_BYTES + VB_RDMACM_SIDR_REQ_PRIVATE];
    uint32_t cm_id;

    if (i->state != VB_RDMACM_ROUTE_RESOLVED || given.len > room)
        return -EINVAL;
    const struct vb_cm_private data = {bytes, put_private(i, &given, bytes)};
    int err = vb_rdmacm_is_ud(i) ? look_up(i, &data, &cm_id) : ask(i, p, &data, &cm_id);
    if (err)
        return err;
    vb_rdmacm_know(i, cm_id);
    i->state = VB_RDMACM_ASKING;
    return 0;
}

VB_RAW_EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (vb_rdmacm_refuse_foreign(i, "rdma_connect"))
        return -1;
    const char *why = vb_rdmacm_is_ud(i) ? NULL : judge(i, p);
    if (why)
        return vb_rdmacm_fail(EINVAL, "rdma_connect", why);
    vb_rdmacm_lock();
    int err = begin(i, p);
    vb_rdmacm_unlock();
    if (err)
        return vb_rdmacm_fail(-err, "rdma_connect",
                              err == -EINVAL ? "no route is resolved, or too much private data"
                                             : "the communication manager has no room");
    return vb_rdmacm_complete(i, "rdma_connect");
}

static int confirm(struct vb_rdmacm_id *i)
{
    uint64_t now_ns;
    int err = -EINVAL;

    vb_rdmacm_lock();
    if (i->state == VB_RDMACM_REPLIED && i->has_cm) {
        struct vb_cm *cm = enter(&now_ns);
        err = vb_rdmacm_calls()->confirm(cm, now_ns, i->cm_id, &(struct vb_cm_private){NULL, 0});
        leave();
    }
    if (!err) {
        i->state = VB_RDMACM_CONNECTED;
        i->connected = true;
    }
    vb_rdmacm_unlock();
    return err;
}

// Without a queue pair the program makes its own ready, and then calls rdma_establish().
void vb_rdmacm_establish(struct vb_rdmacm_event *e)
{
    struct vb_rdmacm_id *i = e->owner;

    if (!i->id.qp)
        return;
    int err = vb_rdmacm_make_ready(i) ? -errno : confirm(i);
    e->event.event = err ? RDMA_CM_EVENT_CONNECT_ERROR : RDMA_CM_EVENT_ESTABLISHED;
    e->event.status = err;
    if (!err)
        return;
    vb_rdmacm_lock();
    if (i->has_cm && i->state == VB_RDMACM_REPLIED) {
        vb_rdmacm_refuse(i->cm_id, false, VB_CM_CONSUMER);
        vb_rdmacm_forget(i);
        i->state = VB_RDMACM_OVER;
    }
    vb_rdmacm_unlock();
}

VB_RAW_EXPORT int rdma_establish(struct rdma_cm_id *id)
{
    if (vb_rdmacm_refuse_foreign(vb_rdmacm_of(id), "rdma_establish"))
        return -1;
    int err = id->qp ? -EINVAL : confirm(vb_rdmacm_of(id));
    return err ? vb_rdmacm_fail(-err, "rdma_establish", "no response waits, or it has a queue pair")
               : 0;
}

// ---- the passive side

static int answer(struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    const struct vb_cm_answer yes = {.qpn = number_of(i, p),
                                     .psn = i->path.our_psn,
                                     .srq = has_srq(i, p),
                                     .flow_control = p ? p->flow_control : 1,
                                     .responder_resources = i->path.responder_resources,
                                     .initiator_depth = i->path.initiator_depth,
                                     .rnr_retries = p ? retries(p->rnr_retry_count) : RETRIES_MAX,
                                     .vendor_id = i->path.local_ece.vendor_id,
                                     .vendor_options = i->path.local_ece.options,
                                     .private_data = data_of(i, p)};
    uint64_t now_ns;
    struct vb_cm *cm = enter(&now_ns);
    int err = vb_rdmacm_calls()->accept(cm, now_ns, i->cm_id, &yes);

    leave();
    if (!err) {
        i->path.our_qpn = yes.qpn;
        i->state = VB_RDMACM_ACCEPTED;
    }
    return err;
}

static int answer_datagrams(struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    const struct vb_cm_found found = {.status = VB_SIDR_OK,
                                      .qpn = number_of(i, p),
                                      .qkey = i->qkey,
                                      .private_data = data_of(i, p)};
    uint64_t now_ns;
    struct vb_cm *cm = enter(&now_ns);
    int err = vb_rdmacm_calls()->reply(cm, now_ns, i->cm_id, &found);

    leave();
    if (err)
        return err;
    vb_rdmacm_forget(i); // the manager repeats it by itself
    i->state = VB_RDMACM_CONNECTED;
    return 0;
}

static int accept_one(struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    if (i->state != VB_RDMACM_REQUESTED || !i->has_cm)
        return -EINVAL;
    return vb_rdmacm_is_ud(i) ? answer_datagrams(i, p) : answer(i, p);
}

// What the peer asked for is the limit where the program says nothing.
static void agree(struct vb_rdmacm_id *i, const struct rdma_conn_param *p)
{
    struct vb_rdmacm_path *path = &i->path;

    path->initiator_depth = p && p->initiator_depth != UNLIMITED
                                ? p->initiator_depth
                                : reads(path->initiator_depth, VB_RDMACM_READS);
    path->responder_resources = p && p->responder_resources != UNLIMITED
                                    ? p->responder_resources
                                    : reads(path->responder_resources, VB_RDMACM_READS);
}

VB_RAW_EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (vb_rdmacm_refuse_foreign(i, "rdma_accept"))
        return -1;
    const char *why = judge(i, p);
    if (!why && vb_rdmacm_state(i) != VB_RDMACM_REQUESTED)
        why = "no request waits for an answer";
    if (why)
        return vb_rdmacm_fail(EINVAL, "rdma_accept", why);
    agree(i, p);
    if (id->qp && !vb_rdmacm_is_ud(i) && vb_rdmacm_make_ready(i) != 0)
        return -1;
    vb_rdmacm_lock();
    int err = accept_one(i, p);
    vb_rdmacm_unlock();
    if (err) {
        vb_rdmacm_make_error(i);
        return vb_rdmacm_fail(-err, "rdma_accept", "the peer has left, or too much private data");
    }
    return vb_rdmacm_is_ud(i) ? 0 : vb_rdmacm_complete(i, "rdma_accept");
}

static int reject(struct vb_rdmacm_id *i, const void *data, uint8_t len, uint16_t reason)
{
    uint32_t room = vb_rdmacm_is_ud(i) ? VB_RDMACM_SIDR_REP_PRIVATE : VB_RDMACM_REJ_PRIVATE;
    bool asked = i->state == VB_RDMACM_REQUESTED || i->state == VB_RDMACM_REPLIED;

    if (!asked || !i->has_cm || len > room || (len && !data))
        return -EINVAL;
    int err = refuse(i->cm_id, vb_rdmacm_is_ud(i), reason, &(struct vb_cm_private){data, len});
    if (err)
        return err;
    vb_rdmacm_forget(i);
    i->state = VB_RDMACM_OVER;
    return 0;
}

static int reject_for(struct rdma_cm_id *id, const void *data, uint8_t len, uint16_t reason)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (vb_rdmacm_refuse_foreign(i, "rdma_reject"))
        return -1;
    vb_rdmacm_lock();
    int err = reject(i, data, len, reason);
    vb_rdmacm_unlock();
    return err ? vb_rdmacm_fail(-err, "rdma_reject", "no request waits, or too much private data")
               : 0;
}

VB_RAW_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
    return reject_for(id, data, len, VB_CM_CONSUMER);
}

VB_RAW_EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t len)
{
    return reject_for(id, data, len, REASON_VENDOR_OPTION);
}

// ---- both

// The first packet came before the RTU did: the connection stands.
VB_RAW_EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);
    int err = -EINVAL;
    uint64_t now_ns;

    if (vb_rdmacm_refuse_foreign(i, "rdma_notify"))
        return -1;
    vb_rdmacm_lock();
    if (event == IBV_EVENT_COMM_EST && i->has_cm) {
        struct vb_cm *cm = enter(&now_ns);
        err = vb_rdmacm_calls()->heard(cm, now_ns, i->cm_id);
        leave();
        if (i->state == VB_RDMACM_CONNECTED)
            err = 0;
    }
    vb_rdmacm_unlock();
    return err ? vb_rdmacm_fail(-err, "rdma_notify", "it is in no connection, or another event")
               : 0;
}

// False: nothing will be told of it any more.
static bool part(struct vb_rdmacm_id *i)
{
    const struct vb_rdmacm_channel *c = (const void *)i->id.channel;
    uint64_t now_ns;
    int err = -ENOENT;

    if (i->has_cm) {
        struct vb_cm *cm = enter(&now_ns);
        err = vb_rdmacm_calls()->disconnect(cm, now_ns, i->cm_id, &(struct vb_cm_private){NULL, 0});
        leave();
    }
    return err == 0 || (i->sync && !vb_fifo_empty(&c->events));
}

VB_RAW_EXPORT int rdma_disconnect(struct rdma_cm_id *id)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (vb_rdmacm_refuse_foreign(i, "rdma_disconnect"))
        return -1;
    if (vb_rdmacm_state(i) < VB_RDMACM_ASKING)
        return vb_rdmacm_fail(EINVAL, "rdma_disconnect", "it is in no connection");
    if (vb_rdmacm_is_ud(i))
        return 0;
    vb_rdmacm_make_error(i);
    vb_rdmacm_lock();
    bool told = part(i);
    vb_rdmacm_unlock();
    return told ? vb_rdmacm_complete(i, "rdma_disconnect") : 0;
}
