// SPDX-License-Identifier: Apache-2.0
// Where several ends share an address: who gets a message, as the port has it for processes.
#include "sim/cm_world.h"

#include "cm/conn.h"
#include "cm/route.h"

static void cover(struct vb_cmworld *w, enum vb_cmcover_row row)
{
    w->cover->row[row]++;
}

static bool is_there(const struct vb_cmworld *w, uint32_t i, const struct vb_ip *ip)
{
    return w->end[i].cm && vb_ip_equal(&w->end[i].ip, ip);
}

// Ports are the ends' for good; of an end that is dead nobody has them.
static uint32_t owner_of(const struct vb_cmworld *w, const struct vb_ip *ip,
                         const struct vb_cm_route *route)
{
    for (uint32_t i = 0; i < w->ends; i++) {
        if (!is_there(w, i, ip))
            continue;
        if (route->kind == VB_CM_ROUTE_ID && w->end[i].manager == route->manager)
            return i;
        for (int s = 0; s < VB_CMW_SERVICES && route->kind == VB_CM_ROUTE_PORT; s++)
            if (route->space == VB_CM_SPACE_TCP &&
                vb_cma_port(vb_cmhost_service(i, (enum vb_cmw_service)s)) == route->port)
                return i;
    }
    return VB_CMW_ENDS;
}

// Whoever of those at the address it comes to first.
static uint32_t anybody(struct vb_cmworld *w, const struct vb_ip *ip)
{
    uint32_t first = vb_cmworld_draw(w, w->ends);

    for (uint32_t i = 0; i < w->ends; i++)
        if (is_there(w, (first + i) % w->ends, ip))
            return (first + i) % w->ends;
    return VB_CMW_ENDS;
}

uint32_t vb_cmfan_pick(struct vb_cmworld *w, uint32_t to, const uint8_t mad[VB_MAD_BYTES])
{
    const struct vb_ip ip = w->end[to].ip;

    if (!w->shared)
        return 1u << to;
    const struct vb_cm_route route = vb_cm_route(mad, VB_MAD_BYTES);
    uint32_t all = 0;
    for (uint32_t i = 0; i < w->ends; i++)
        all |= (uint32_t)is_there(w, i, &ip) << i;
    if (route.kind == VB_CM_ROUTE_ALL) {
        cover(w, VB_CMCOVER_TO_ALL);
        return all;
    }
    uint32_t owner = owner_of(w, &ip, &route);
    cover(w, owner < w->ends ? VB_CMCOVER_TO_ONE : VB_CMCOVER_TO_ANY);
    owner = owner < w->ends ? owner : anybody(w, &ip);
    return owner < w->ends ? 1u << owner : 0;
}

// Who gave up is believed by who waits for it, whichever of them that is.
void vb_cmfan_check(struct vb_cmworld *w, uint32_t to, const struct vb_ip *from,
                    const uint8_t mad[VB_MAD_BYTES])
{
    struct vb_cm_message m;

    if (vb_cm_decode(mad, VB_MAD_BYTES, &m) != VB_CM_DECODE_OK || m.kind != VB_CM_REJ ||
        m.remote_id != 0 || m.rej.reason != VB_CM_TIMEOUT)
        return;
    for (uint32_t i = 0; i < w->ends; i++) {
        const struct vb_cmw_end *e = &w->end[i];
        if (!is_there(w, i, &w->end[to].ip) || e->cut_until_ns > w->now_ns)
            continue;
        const struct vb_cm_conn *c = vb_cm_find_remote(e->cm, from, m.local_id, false);
        if (c && !c->active && c->state >= VB_CM_REQ_RCVD && c->state <= VB_CM_ESTABLISHED)
            vb_cmworld_violate(w, "end %u still waits for who gave %08x up", i, m.local_id);
    }
}
