// SPDX-License-Identifier: Apache-2.0
// Events by name, and events that programs write themselves.
#include "rdmacm/rdmacm.h"

#include <errno.h>

enum {
    EVENT_USER = 16, // newer than the header
};

VB_RAW_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
    static const char *const names[] = {
        [RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
        [RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
        [RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
        [RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
        [RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
        [RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
        [RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
        [RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
        [RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
        [RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
        [RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
        [RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
        [RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
        [RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
        [RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
        [EVENT_USER] = "RDMA_CM_EVENT_USER",
    };

    return (unsigned)event < sizeof names / sizeof *names ? names[event] : "UNKNOWN EVENT";
}

// ---- newer than Debian 12's header

VB_RAW_EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event,
                                      int status, uint64_t arg);
VB_RAW_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node,
                                        const char *service, const struct rdma_addrinfo *hints);
VB_RAW_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);

int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                        uint64_t arg)
{
    struct vb_rdmacm_id *i = vb_rdmacm_of(id);

    if (vb_rdmacm_refuse_foreign(i, "rdma_write_cm_event"))
        return -1;
    if ((unsigned)event != EVENT_USER)
        return vb_rdmacm_fail(EINVAL, "rdma_write_cm_event", "only events of the user");
    vb_rdmacm_lock();
    struct vb_rdmacm_event *e = vb_rdmacm_event(i, event, status);
    if (e) {
        *(uint64_t *)(void *)&e->event.param = arg;
        vb_rdmacm_queue(e);
    }
    vb_rdmacm_unlock();
    return e ? 0 : vb_rdmacm_fail(ENOMEM, "rdma_write_cm_event", "no memory");
}

int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
                          const struct rdma_addrinfo *hints)
{
    (void)id, (void)node, (void)service, (void)hints;
    return vb_rdmacm_fail(EOPNOTSUPP, "rdma_resolve_addrinfo", "there is no subnet manager to ask");
}

int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info)
{
    (void)id, (void)info;
    return vb_rdmacm_fail(EOPNOTSUPP, "rdma_query_addrinfo", "there is no subnet manager to ask");
}
