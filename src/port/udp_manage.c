// SPDX-License-Identifier: Apache-2.0
// Queue pair 1 of an address that several NICs share: a message goes to the one manager that it is
// for, and if that is nobody to one who says so.
#include "cm/route.h"
#include "port/udp_state.h"
#include "port/udp_steer.h"

#include <errno.h>

enum {
    MAD_AT = 20, // behind the headers of a datagram
};

static_assert(VB_CM_PREFIX_BITS == 24 - REGISTRY_RANGE_BITS, "an id's prefix is a slot");
static_assert((int)VB_CM_SPACES == (int)REGISTRY_SPACES, "each space has its table");
static_assert(MAD_AT + VB_CM_ROUTE_BYTES <= VB_FRAME_HEAD, "headers that nobody else can change");

static struct registry_slot *own_slot(const struct udp *u)
{
    return &u->share->registry.file->slot[u->share->registry.slot];
}

// At all of our addresses.
static void tell_system(struct udp *u)
{
    atomic_fetch_add(&u->share->registry.file->changes, 1);
    vb_udp_share_renew(u->share);
    for (uint32_t i = 0; i < u->sides; i++)
        if (u->side[i]->share != NULL)
            vb_udp_share_renew(u->side[i]->share);
}

void vb_udp_manage(struct vb_port *port, bool manages)
{
    struct udp *u = (struct udp *)port;
    if (u->share == NULL)
        return;
    atomic_store(&own_slot(u)->manages, manages);
    tell_system(u);
}

// Those that are given to who does not care are mostly of programs that only ask.
static bool is_steered(uint32_t number)
{
    return number < VB_CM_PORT_FIRST || number > VB_CM_PORT_LAST;
}

int vb_udp_serve(struct vb_port *port, uint32_t space, uint16_t number, bool serves)
{
    struct udp *u = (struct udp *)port;
    if (u->share == NULL)
        return 0;
    int error = serves ? vb_registry_port_take(&u->share->registry, space, number) : 0;
    if (!serves)
        vb_registry_port_give(&u->share->registry, space, number);
    if (error == 0 && is_steered(number))
        tell_system(u);
    return error;
}

// ---- what the system is told

static uint32_t socket_of(const struct registry_member *m, uint32_t count, uint32_t slot)
{
    for (uint32_t i = 0; i < count; i++)
        if (m[i].slot == slot && m[i].manages)
            return m[i].index[VB_GSI_QPN & (m[i].units - 1)];
    return REGISTRY_INDEX_NONE;
}

uint32_t vb_udp_manage_services(const struct udp_share *s, const struct registry_member *members,
                                uint32_t count, struct udp_steer_service *services)
{
    static const enum vb_cma_space space_id[VB_CM_SPACES] = {[VB_CM_SPACE_TCP] = VB_CMA_TCP,
                                                             [VB_CM_SPACE_UDP] = VB_CMA_UDP,
                                                             [VB_CM_SPACE_IB] = VB_CMA_IB};
    uint32_t made = 0, slot;
    if (!atomic_load(&s->registry.file->changes))
        return 0;
    for (uint32_t space = 0; space < REGISTRY_SPACES; space++)
        for (uint32_t i = 0; i < REGISTRY_PORTS && made < UDP_STEER_SERVICES; i++) {
            uint16_t port = (uint16_t)i;
            if (!is_steered(i) || !vb_registry_port_owner(&s->registry, space, port, &slot))
                continue;
            uint32_t index = socket_of(members, count, slot);
            if (index != REGISTRY_INDEX_NONE)
                services[made++] = (struct udp_steer_service){
                    (uint32_t)vb_cma_service_id(space_id[space], port), index};
        }
    return made;
}

// ---- who takes a message

// Whether a slot's holder is at our address and has a manager.
static bool manages_here(const struct udp *u, uint32_t slot, struct registry_member *m)
{
    const struct udp_share *s = u->share;
    return slot < REGISTRY_SLOTS && vb_registry_read_at(&s->registry, slot, &s->ip, s->scope, m) &&
           m->manages;
}

static bool find_owner(const struct udp *u, const struct vb_cm_route *route,
                       struct registry_member *m)
{
    const struct registry *r = &u->share->registry;
    uint32_t slot = route->manager;
    if (route->kind == VB_CM_ROUTE_PORT &&
        !vb_registry_port_owner(r, route->space, route->port, &slot))
        return false;
    return route->kind != VB_CM_ROUTE_ANY && manages_here(u, slot, m) &&
           vb_registry_is_alive(r, slot);
}

// We, if we can; else who showed signs of life last.
static bool find_any(const struct udp *u, struct registry_member *best)
{
    const struct registry *r = &u->share->registry;
    struct registry_member m;
    bool found = manages_here(u, r->slot, best);
    if (found)
        return true;
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++) {
        if (!manages_here(u, i, &m) || (found && m.beat_ns <= best->beat_ns) ||
            !vb_registry_is_alive(r, i))
            continue;
        *best = m;
        found = true;
    }
    return found;
}

static void pass_on(struct udp *u, const struct registry_member *to,
                    const struct vb_rx_frame *frame)
{
    vb_udp_mail_enclose(u, to->slot, VB_GSI_QPN & (to->units - 1), frame);
    u->port.stats.rx_forwarded++;
}

static bool pass_to_all(struct udp *u, const struct vb_rx_frame *frame)
{
    struct registry_member m;
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++)
        if (i != u->share->registry.slot && manages_here(u, i, &m))
            pass_on(u, &m, frame);
    return !atomic_load(&own_slot(u)->manages);
}

bool vb_udp_manage_divert(struct udp *u, const struct vb_rx_frame *frame)
{
    struct registry_member m;
    if (frame->len < MAD_AT + VB_MAD_BYTES || frame->head[0] != VB_UD_SEND_ONLY)
        return false;
    const struct vb_cm_route route = vb_cm_route(frame->head + MAD_AT, VB_FRAME_HEAD - MAD_AT);
    if (route.kind == VB_CM_ROUTE_NONE)
        return false;
    if (route.kind == VB_CM_ROUTE_ALL)
        return pass_to_all(u, frame);
    if (!find_owner(u, &route, &m) && !find_any(u, &m))
        return false;
    if (m.slot == u->share->registry.slot)
        return false;
    pass_on(u, &m, frame);
    return true;
}
