// SPDX-License-Identifier: Apache-2.0
// Whose a message is: by the service that it asks for, or by the receiver's id in it.
#include "cm/route.h"

#include "base/bytes.h"

// Places in a message (message.c has them all).
enum {
    KIND_AT = 16,
    LOCAL_ID_AT = VB_MAD_HEADER_BYTES,      // the sender's; a SIDR_REP has the asker's here
    REMOTE_ID_AT = VB_MAD_HEADER_BYTES + 4, // the receiver's
    SERVICE_AT = VB_MAD_HEADER_BYTES + 8,   // of a REQ and a SIDR_REQ
};

bool vb_cm_space_of(enum vb_cma_space space, enum vb_cm_space *number)
{
    switch (space) {
    case VB_CMA_TCP: *number = VB_CM_SPACE_TCP; return true;
    case VB_CMA_IPOIB:
    case VB_CMA_UDP: *number = VB_CM_SPACE_UDP; return true;
    case VB_CMA_IB: *number = VB_CM_SPACE_IB; return true;
    }
    return false;
}

static struct vb_cm_route by_service(uint64_t service_id)
{
    struct vb_cm_route route = {.kind = VB_CM_ROUTE_ANY};
    enum vb_cma_space space;

    if (vb_cma_space_of(service_id, &space) && vb_cm_space_of(space, &route.space)) {
        route.kind = VB_CM_ROUTE_PORT;
        route.port = vb_cma_port(service_id);
    }
    return route;
}

static struct vb_cm_route by_id(uint32_t id)
{
    return (struct vb_cm_route){.kind = VB_CM_ROUTE_ID, .manager = vb_cm_route_manager(id)};
}

struct vb_cm_route vb_cm_route(const uint8_t *mad, size_t len)
{
    const struct vb_cm_route none = {.kind = VB_CM_ROUTE_NONE};

    if (len < VB_CM_ROUTE_BYTES || mad[0] != VB_MAD_BASE_VERSION || mad[1] != VB_MAD_CLASS_CM ||
        mad[2] != VB_MAD_CLASS_VERSION_CM || mad[3] != VB_MAD_METHOD_SEND)
        return none;
    uint32_t remote_id = vb_get_be32(mad + REMOTE_ID_AT);
    switch ((enum vb_cm_kind)vb_get_be16(mad + KIND_AT)) {
    case VB_CM_REQ:
    case VB_CM_SIDR_REQ: return by_service(vb_get_be64(mad + SERVICE_AT));
    case VB_CM_SIDR_REP: return by_id(vb_get_be32(mad + LOCAL_ID_AT));
    case VB_CM_REJ:
        // Who gave up waiting for an answer to its REQ has never heard of our id.
        if (remote_id == 0)
            return (struct vb_cm_route){.kind = VB_CM_ROUTE_ALL};
        return by_id(remote_id);
    case VB_CM_MRA:
    case VB_CM_REP:
    case VB_CM_RTU:
    case VB_CM_DREQ:
    case VB_CM_DREP:
    case VB_CM_LAP:
    case VB_CM_APR: return by_id(remote_id);
    default: return none;
    }
}

uint32_t vb_cm_route_id(const uint8_t mad[VB_CM_ROUTE_BYTES])
{
    bool asked = vb_get_be16(mad + KIND_AT) == VB_CM_SIDR_REP;
    return vb_get_be32(mad + (asked ? LOCAL_ID_AT : REMOTE_ID_AT));
}
