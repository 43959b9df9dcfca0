// SPDX-License-Identifier: Apache-2.0
// Traces of attached applications: of the frames that their own queue pairs send and get, one for
// each unit. A unit's port knows one trace, which hands each frame to that of who has its queue
// pair.
#include "hull/command.h"

#include "port/trace.h"

#include <errno.h>

static struct vb_trace *trace_of(void *ctx, uint32_t qpn)
{
    const struct vb_hull_unit *unit = ctx;
    const struct vb_hull_object *qp = unit->hull->qp[qpn & (VB_DOORBELL_QPS - 1)];

    return qp && qp->number == qpn ? qp->client->at[unit->index].trace : NULL;
}

static void destroy_all(struct vb_hull_client *client)
{
    for (uint32_t i = 0; i < client->hull->units; i++) {
        vb_trace_destroy(client->at[i].trace);
        client->at[i].trace = NULL;
    }
}

static uint64_t bytes_of(const struct vb_hull *hull, uint32_t ring_bytes)
{
    return hull->units * (uint64_t)vb_trace_bytes(ring_bytes);
}

void vb_hull_trace_end(struct vb_hull_client *client)
{
    struct vb_hull *hull = client->hull;

    if (!client->trace_bytes)
        return;
    client->tenant->used.bytes -= bytes_of(hull, client->trace_bytes);
    client->trace_bytes = 0;
    destroy_all(client);
    if (--hull->traces > 0)
        return;
    for (uint32_t i = 0; i < hull->units; i++)
        hull->unit[i].lane->port->trace = NULL;
}

static int make(struct vb_hull_client *client, uint32_t ring_bytes, struct vb_hull_unit *unit)
{
    const struct vb_trace_opts hands_on = {.pick = trace_of, .pick_ctx = unit};
    const struct vb_trace_opts keeps = {.ring_bytes = ring_bytes,
                                        .seal = unit->lane->port->unsealed,
                                        .wall_offset_ns = vb_trace_wall_offset_ns()};
    int err = unit->tracer ? 0 : vb_trace_create(&hands_on, &unit->tracer);

    return err ? err : vb_trace_create(&keeps, &client->at[unit->index].trace);
}

static void start(struct vb_hull_command *c, uint32_t ring_bytes)
{
    struct vb_hull_client *client = c->client;
    struct vb_hull *hull = client->hull;
    struct vb_hull_tenant *t = client->tenant;
    uint64_t bytes = bytes_of(hull, ring_bytes);
    int err = 0;

    if (!vb_hull_charge(t, &t->used.bytes, t->quota.bytes, bytes, "bytes", c->reply))
        return;
    for (uint32_t i = 0; i < hull->units && !err; i++)
        err = make(client, ring_bytes, &hull->unit[i]);
    if (err) {
        destroy_all(client);
        t->used.bytes -= bytes;
        vb_hull_refuse(c->reply, err, "the hull is out of memory");
        return;
    }
    client->trace_bytes = ring_bytes;
    hull->traces++;
    for (uint32_t i = 0; i < hull->units; i++)
        hull->unit[i].lane->port->trace = hull->unit[i].tracer;
}

static void set(struct vb_hull_command *c)
{
    uint32_t ring_bytes = c->request->value;

    if (ring_bytes && (ring_bytes < VB_TRACE_RING_MIN || ring_bytes > VB_HULL_TRACE_MAX)) {
        vb_hull_refuse(c->reply, -EINVAL, "a hull keeps a trace in a ring of %d to %d bytes",
                       VB_TRACE_RING_MIN, VB_HULL_TRACE_MAX);
        return;
    }
    vb_hull_trace_end(c->client);
    if (ring_bytes)
        start(c, ring_bytes);
}

static void tell(struct vb_hull_command *c)
{
    const struct vb_hull_client *client = c->client;
    const struct vb_hull_text *room = &c->request->text;
    const uint32_t unit = c->request->number;
    struct vb_hull_hold *hold;

    if (unit >= client->hull->units) {
        vb_hull_refuse(c->reply, -EINVAL, "there is no unit %u", unit);
        return;
    }
    if (!client->trace_bytes || room->bytes < vb_trace_bytes(client->trace_bytes)) {
        vb_hull_refuse(c->reply, -EINVAL, "no trace runs, or it needs more room");
        return;
    }
    void *at = vb_hull_memory_find(c->client, &room->at, room->bytes, 1, &hold, c->reply);
    if (!at)
        return;
    vb_trace_save(client->at[unit].trace, at);
    c->reply->number = client->trace_bytes;
}

void vb_hull_trace_command(struct vb_hull_command *c)
{
    if (c->request->op == VB_HULL_TRACE)
        set(c);
    else
        tell(c);
}
