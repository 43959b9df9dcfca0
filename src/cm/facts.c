// SPDX-License-Identifier: Apache-2.0
// Connections, lookups and listeners as facts, in the order of their places.
#include "cm/facts.h"

#include "cm/cma.h"
#include "cm/conn.h"

static uint16_t port_of(uint64_t service_id)
{
    enum vb_cma_space space;
    return vb_cma_space_of(service_id, &space) ? vb_cma_port(service_id) : 0;
}

static void tell_conn(const struct vb_cm *cm, const struct vb_cm_conn *c, struct vb_cm_facts *f)
{
    uint16_t served = port_of(c->service_id);

    *f = (struct vb_cm_facts){.number = (uint32_t)(c - cm->conn),
                              .active = c->active,
                              .sidr = c->sidr,
                              .state = c->state,
                              .id = c->local_id,
                              .peer_id = c->remote_id,
                              .qpn = c->local_qpn,
                              .peer_qpn = c->remote_qpn,
                              .transport = c->transport,
                              .service_id = c->service_id,
                              .local = c->local,
                              .peer = c->peer,
                              .port = c->active ? c->asker_port : served,
                              .peer_port = c->active ? served : c->asker_port};
}

static void tell_listener(const struct vb_cm *cm, const struct vb_cm_listener *l,
                          struct vb_cm_facts *f)
{
    *f = (struct vb_cm_facts){.number = cm->opts.connections + (uint32_t)(l - cm->listener),
                              .listens = true,
                              .service_id = l->service_id,
                              .local = cm->opts.local,
                              .port = port_of(l->service_id)};
}

uint32_t vb_cm_facts(const struct vb_cm *cm, uint32_t *at, struct vb_cm_facts *facts, uint32_t room)
{
    uint32_t connections = cm->opts.connections, made = 0;

    for (; *at < connections && made < room; ++*at)
        if (cm->conn[*at].state != VB_CM_FREE)
            tell_conn(cm, &cm->conn[*at], &facts[made++]);
    for (; *at >= connections && *at < connections + cm->opts.listeners && made < room; ++*at)
        if (cm->listener[*at - connections].used)
            tell_listener(cm, &cm->listener[*at - connections], &facts[made++]);
    return made;
}

void vb_cm_note_service(struct vb_cm_conn *c, uint64_t service_id, const uint8_t *private_data)
{
    struct vb_cma_header h;
    enum vb_cma_space space;

    c->service_id = service_id;
    if (vb_cma_space_of(service_id, &space) && vb_cma_decode(private_data, &h))
        c->asker_port = h.port;
}
