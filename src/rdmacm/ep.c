// SPDX-License-Identifier: Apache-2.0
// Endpoints: an id with its queue pair in one call, and requests in synchronous mode.
#include "rdmacm/rdmacm.h"

#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESOLVE_MS = 2000,
};

static int make_passive(struct vb_rdmacm_id *i, struct rdma_addrinfo *info, struct ibv_pd *pd,
                        struct ibv_qp_init_attr *attr)
{
    if (rdma_bind_addr(&i->id, info->ai_src_addr) != 0)
        return -1;
    if (!attr)
        return 0;
    i->accepts_in = pd;
    i->accepts_with = malloc(sizeof *attr);
    if (!i->accepts_with)
        return vb_rdmacm_fail(ENOMEM, "rdma_create_ep", "no memory");
    *i->accepts_with = *attr;
    i->accepts_with->qp_type = (enum ibv_qp_type)info->ai_qp_type;
    return 0;
}

static int find_route(struct rdma_cm_id *id, const struct rdma_addrinfo *info)
{
    return info->ai_route_len ? rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH,
                                                info->ai_route, info->ai_route_len)
                              : rdma_resolve_route(id, RESOLVE_MS);
}

static int make_active(struct vb_rdmacm_id *i, struct rdma_addrinfo *info, struct ibv_pd *pd,
                       struct ibv_qp_init_attr *attr)
{
    if (rdma_resolve_addr(&i->id, info->ai_src_addr, info->ai_dst_addr, RESOLVE_MS) != 0 ||
        find_route(&i->id, info) != 0)
        return -1;
    if (attr) {
        attr->qp_type = (enum ibv_qp_type)info->ai_qp_type;
        if (rdma_create_qp(&i->id, pd, attr) != 0)
            return -1;
    }
    if (!info->ai_connect_len)
        return 0;
    i->connect_data = malloc(info->ai_connect_len);
    if (!i->connect_data || info->ai_connect_len > UINT8_MAX)
        return vb_rdmacm_fail(ENOMEM, "rdma_create_ep", "no memory, or too much private data");
    memcpy(i->connect_data, info->ai_connect, info->ai_connect_len);
    i->connect_len = (uint8_t)info->ai_connect_len;
    return 0;
}

VB_RAW_EXPORT int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *info,
                                 struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct rdma_cm_id *made;

    if (rdma_create_id(NULL, &made, NULL, (enum rdma_port_space)info->ai_port_space) != 0)
        return -1;
    struct vb_rdmacm_id *i = vb_rdmacm_of(made);
    if (info->ai_qp_type)
        made->qp_type = (enum ibv_qp_type)info->ai_qp_type;
    int failed = info->ai_flags & RAI_PASSIVE ? make_passive(i, info, pd, attr)
                                              : make_active(i, info, pd, attr);
    if (failed) {
        int error = errno;
        rdma_destroy_ep(made);
        errno = error;
        return -1;
    }
    *id = made;
    return 0;
}

VB_RAW_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
    if (!id)
        return;
    if (id->qp)
        rdma_destroy_qp(id);
    if (id->srq)
        rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

// ---- requests

static int take_request(struct rdma_cm_id *listener, struct rdma_cm_event *event)
{
    const struct vb_rdmacm_id *l = vb_rdmacm_of(listener);

    if (event->status)
        return vb_rdmacm_fail(event->status < 0 ? -event->status : event->status,
                              "rdma_get_request", rdma_event_str(event->event));
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
        return vb_rdmacm_fail(EINVAL, "rdma_get_request", rdma_event_str(event->event));
    if (!l->accepts_with)
        return 0;
    struct ibv_qp_init_attr attr = *l->accepts_with;
    if (rdma_create_qp(event->id, l->accepts_in, &attr) == 0)
        return 0;
    int error = errno;
    rdma_reject(event->id, NULL, 0);
    rdma_destroy_id(event->id);
    errno = error;
    return -1;
}

VB_RAW_EXPORT int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **id)
{
    struct rdma_cm_event *event;

    if (vb_rdmacm_refuse_foreign(vb_rdmacm_of(listener), "rdma_get_request"))
        return -1;
    if (!vb_rdmacm_of(listener)->sync)
        return vb_rdmacm_fail(EINVAL, "rdma_get_request",
                              "the listener has a channel: take events from there");
    if (listener->event) {
        rdma_ack_cm_event(listener->event);
        listener->event = NULL;
    }
    if (rdma_get_cm_event(listener->channel, &event) != 0)
        return -1;
    if (take_request(listener, event) != 0) {
        listener->event = event;
        return -1;
    }
    *id = event->id;
    (*id)->event = event;
    return 0;
}
