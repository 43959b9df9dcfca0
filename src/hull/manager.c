// SPDX-License-Identifier: Apache-2.0
// Connection managers of applications. Each that wants one has a seat, a number that the ids of its
// connections begin with, ports of rdma_cm, and a management queue pair with a number of its own.
//
// On the wire all of them are queue pair 1. What comes for that is given to the one that it is for.
// What leaves is held against what its sender has: about another's queue pairs and ids nobody can
// speak, and a message that is refused keeps its sender's number, by which no manager hears it.
#include "hull/command.h"

#include "base/bytes.h"
#include "cm/route.h"
#include "wire/roce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SEATS_SPARED = 32, // for users who have few,
    SEATS_FEW = 8,     // which is fewer than this
    SEAT_BITS = 7,
    DEST_AT = 5,                           // the number of the receiver,
    SOURCE_AT = VB_BTH_BYTES + 5,          // of the sender,
    MAD_AT = VB_BTH_BYTES + VB_DETH_BYTES, // and the message, in a datagram
    FRAME_MIN = MAD_AT + VB_MAD_BYTES,
};

static_assert(VB_HULL_SEATS == 1 << SEAT_BITS, "a seat's number is in the ids");
static_assert(MAD_AT + VB_CM_ROUTE_BYTES <= VB_FRAME_HEAD, "headers that nobody else can change");

static uint32_t slot_of(const struct vb_hull *hull)
{
    const struct vb_port *port = hull->lane->port;
    return port->qpn_count ? port->qpn_base >> (24 - VB_CM_PREFIX_BITS) : 0;
}

// Of an id that is this NIC's: the seat in it.
static struct vb_hull_object *seat_of_id(const struct vb_hull *hull, uint32_t id)
{
    if (id == 0 || vb_cm_route_manager(id) != slot_of(hull))
        return NULL;
    return hull->seat[id >> (32 - VB_CM_PREFIX_BITS - SEAT_BITS) & (VB_HULL_SEATS - 1)];
}

static struct vb_hull_object *seat_of_port(const struct vb_hull *hull, uint32_t space,
                                           uint16_t port)
{
    for (uint32_t i = 0; i < VB_HULL_SEATS; i++)
        if (hull->seat[i] &&
            vb_hull_object_find(hull->seat[i]->client, VB_HULL_PORT, space << 16 | port))
            return hull->seat[i];
    return NULL;
}

// ---- what comes

static struct vb_hull_object *find_receiver(const struct vb_hull *hull, const uint8_t *mad,
                                            const struct vb_cm_route *route)
{
    struct vb_hull_object *seat = NULL;

    if (route->kind == VB_CM_ROUTE_PORT)
        seat = seat_of_port(hull, route->space, route->port);
    else if (route->kind == VB_CM_ROUTE_ID)
        seat = seat_of_id(hull, vb_cm_route_id(mad));
    if (seat && seat->qp)
        return seat;
    // One has to answer for those who are not there.
    for (uint32_t i = 0; i < VB_HULL_SEATS; i++)
        if (hull->seat[i] && hull->seat[i]->qp)
            return hull->seat[i];
    return NULL;
}

static void address(const struct vb_hull_unit *unit, struct vb_rx_frame *frame, uint32_t at,
                    uint32_t qpn)
{
    memcpy(unit->heads[at], frame->head, VB_FRAME_HEAD);
    vb_put_be24(unit->heads[at] + DEST_AT, qpn);
    frame->head = unit->heads[at];
}

// A message that names nothing of its receiver's: the others get copies behind all frames.
static uint32_t copy_to_all(const struct vb_hull_unit *unit, struct vb_rx_frame *frames,
                            uint32_t at, uint32_t count)
{
    struct vb_hull_object *const *seat = unit->hull->seat;
    const struct vb_rx_frame original = frames[at];
    bool first = true;

    for (uint32_t i = 0; i < VB_HULL_SEATS; i++) {
        if (!seat[i] || !seat[i]->qp)
            continue;
        uint32_t to = first ? at : count;
        if (to == VB_PORT_RX_BATCH)
            break;
        frames[to] = original;
        address(unit, &frames[to], to, seat[i]->qp->number);
        count += !first;
        first = false;
    }
    return count;
}

static bool is_message(const struct vb_rx_frame *frame)
{
    return frame->len >= FRAME_MIN && frame->head[0] == VB_UD_SEND_ONLY &&
           vb_get_be24(frame->head + DEST_AT) == VB_QPN_GSI;
}

// What is for a queue pair of another unit, the device hands over.
static uint32_t sort_frames(struct vb_lane *lane, struct vb_rx_frame *frames, uint32_t count)
{
    struct vb_hull *hull = lane->nic->hull;
    const struct vb_hull_unit *unit = &hull->unit[lane - lane->nic->lane];
    uint32_t all = count;

    for (uint32_t i = 0; i < count; i++) {
        if (!is_message(&frames[i]))
            continue;
        const uint8_t *mad = frames[i].head + MAD_AT;
        struct vb_cm_route route = vb_cm_route(mad, VB_FRAME_HEAD - MAD_AT);
        if (route.kind == VB_CM_ROUTE_ALL) {
            all = copy_to_all(unit, frames, i, all);
            continue;
        }
        struct vb_hull_object *seat =
            route.kind == VB_CM_ROUTE_NONE ? NULL : find_receiver(hull, mad, &route);
        if (seat)
            address(unit, &frames[i], i, seat->qp->number);
    }
    return all;
}

// ---- what leaves

static bool owns_qp(const struct vb_hull_object *seat, uint32_t qpn)
{
    return vb_hull_object_find(seat->client, VB_HULL_QP, qpn);
}

static bool owns_id(const struct vb_hull *hull, const struct vb_hull_object *seat, uint32_t id)
{
    return seat_of_id(hull, id) == seat;
}

// Who says that there is nobody repeats the id that was asked for: it is no one's here.
static bool may_deny(const struct vb_hull *hull, const struct vb_hull_object *seat, uint32_t id)
{
    const struct vb_hull_object *named = seat_of_id(hull, id);
    return !named || named == seat;
}

static bool may_say(const struct vb_hull *hull, const struct vb_hull_object *seat,
                    const uint8_t *mad)
{
    struct vb_cm_message m;

    if (vb_cm_decode(mad, VB_MAD_BYTES, &m) != VB_CM_DECODE_OK)
        return false;
    switch (m.kind) {
    case VB_CM_REQ: return owns_id(hull, seat, m.local_id) && owns_qp(seat, m.req.qpn);
    case VB_CM_REP: return owns_id(hull, seat, m.local_id) && owns_qp(seat, m.rep.qpn);
    case VB_CM_SIDR_REP: return m.sidr_rep.status != VB_SIDR_OK || owns_qp(seat, m.sidr_rep.qpn);
    case VB_CM_REJ:
    case VB_CM_DREP:
    case VB_CM_APR: return may_deny(hull, seat, m.local_id);
    default: return owns_id(hull, seat, m.local_id);
    }
}

static struct vb_hull_object *seat_of_qp(const struct vb_hull *hull, uint32_t qpn)
{
    const struct vb_hull_object *qp = hull->qp[qpn & (VB_DOORBELL_QPS - 1)];
    struct vb_link *link =
        qp && qp->number == qpn ? vb_fifo_first(&qp->client->objects[VB_HULL_SEAT]) : NULL;
    struct vb_hull_object *seat = link ? VB_CONTAINER_OF(link, struct vb_hull_object, link) : NULL;

    return seat && seat->qp == qp ? seat : NULL;
}

// Frames that were judged and could not leave yet have the number already. A message is short, so
// all of it is in the arena.
static void judge_frames(struct vb_hull *hull, struct vb_txq *txq)
{
    for (uint32_t i = txq->taken; i < txq->count; i++) {
        const struct vb_tx_frame *frame = &txq->frame[i];
        uint8_t *bytes = txq->arena + frame->offset;
        if (frame->body_len || frame->len < FRAME_MIN || bytes[0] != VB_UD_SEND_ONLY)
            continue;
        const struct vb_hull_object *seat = seat_of_qp(hull, vb_get_be24(bytes + SOURCE_AT));
        if (seat && may_say(hull, seat, bytes + MAD_AT))
            vb_put_be24(bytes + SOURCE_AT, VB_QPN_GSI);
    }
}

// ---- seats

static void watch(struct vb_hull *hull, bool managed)
{
    struct vb_port *port = hull->lane->port;

    hull->nic->hull_frames = managed ? sort_frames : NULL;
    hull->nic->hull_sends = managed ? judge_frames : NULL;
    if (port->ops->manage)
        port->ops->manage(port, managed);
}

static bool make_room(struct vb_hull *hull)
{
    bool all = true;

    for (uint32_t i = 0; i < hull->units; i++) {
        struct vb_hull_unit *unit = &hull->unit[i];
        if (!unit->heads)
            unit->heads = malloc(VB_PORT_RX_BATCH * sizeof *unit->heads);
        all = all && unit->heads;
    }
    return all;
}

// A number is not given away again soon: messages to who had it before may still come.
static bool find_seat(struct vb_hull *hull, uint32_t *number)
{
    for (uint32_t i = 0; i < VB_HULL_SEATS; i++) {
        *number = (hull->seat_hint + i) % VB_HULL_SEATS;
        if (!hull->seat[*number])
            return true;
    }
    return false;
}

// There are few for all users: the last ones are not for who has many.
static bool is_fair(const struct vb_hull *hull, const struct vb_hull_tenant *t)
{
    uint32_t own = 0;

    for (uint32_t i = 0; i < VB_HULL_SEATS; i++)
        own += hull->seat[i] && hull->seat[i]->client->tenant == t;
    return own < SEATS_FEW || hull->seats + SEATS_SPARED < VB_HULL_SEATS;
}

static struct vb_hull_object *take_seat(struct vb_hull_command *c)
{
    struct vb_hull *hull = c->client->hull;
    struct vb_hull_tenant *t = c->client->tenant;
    uint32_t number;

    if (!find_seat(hull, &number)) {
        vb_hull_refuse(c->reply, -ENOSPC, "the NIC has %d connection managers", VB_HULL_SEATS);
        return NULL;
    }
    if (!is_fair(hull, t)) {
        vb_hull_refuse(
            c->reply, -EDQUOT,
            "the last %d connection managers of the NIC are for users with fewer than %d",
            SEATS_SPARED, SEATS_FEW);
        return NULL;
    }
    if (!vb_hull_charge(t, &t->used.queues, t->quota.queues, 1, "queues, channels and managers",
                        c->reply))
        return NULL;
    struct vb_hull_object *seat =
        make_room(hull) ? vb_hull_object_add(c->client, VB_HULL_SEAT, number) : NULL;
    if (!seat) {
        t->used.queues--;
        vb_hull_refuse(c->reply, -ENOMEM, "the hull is out of memory");
        return NULL;
    }
    hull->seat[number] = seat;
    hull->seat_hint = number + 1;
    if (hull->seats++ == 0)
        watch(hull, true);
    return seat;
}

// Of an application one.
static struct vb_hull_object *find_own_seat(struct vb_hull_command *c)
{
    struct vb_link *link = vb_fifo_first(&c->client->objects[VB_HULL_SEAT]);
    return link ? VB_CONTAINER_OF(link, struct vb_hull_object, link) : take_seat(c);
}

struct vb_hull_object *vb_hull_seat_for_qp(struct vb_hull_command *c)
{
    struct vb_hull_object *seat =
        vb_hull_is_service(c, "connection manager") ? NULL : find_own_seat(c);

    if (seat && seat->qp) {
        vb_hull_refuse(c->reply, -EBUSY, "an application has one management queue pair");
        return NULL;
    }
    return seat;
}

void vb_hull_manager_ends(struct vb_hull_object *qp)
{
    struct vb_hull_object *seat = seat_of_qp(qp->client->hull, qp->number);

    if (seat)
        seat->qp = NULL;
}

void vb_hull_seat_end(struct vb_hull_object *seat)
{
    struct vb_hull *hull = seat->client->hull;

    hull->seat[seat->number] = NULL;
    if (seat->fd >= 0)
        vb_hull_descriptors_give_back(hull, seat->client->tenant, 1);
    if (--hull->seats == 0)
        watch(hull, false);
}

// Another one than the application has: of a socket that is full the RTUs have to tell.
static bool open_ear(struct vb_hull_command *c, struct vb_hull_object *seat)
{
    struct vb_hull *hull = c->client->hull;
    struct vb_hull_tenant *t = c->client->tenant;
    uint32_t more = seat->fd < 0;
    int pair[2];

    if (more && !vb_hull_descriptors_take(hull, t, more, c->reply))
        return false;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        vb_hull_refuse(c->reply, -errno, "the hull is out of descriptors");
        vb_hull_descriptors_give_back(hull, t, more);
        return false;
    }
    shutdown(pair[0], SHUT_RD); // as of events
    if (seat->fd >= 0)
        close(seat->fd);
    seat->fd = pair[0];
    *c->give = pair[1];
    *c->close_it = true;
    return true;
}

static void seat_take(struct vb_hull_command *c)
{
    struct vb_hull_object *seat =
        vb_hull_is_service(c, "connection manager") ? NULL : find_own_seat(c);

    if (seat && open_ear(c, seat))
        c->reply->prefix =
            (struct vb_hull_prefix){.prefix = slot_of(c->client->hull) << SEAT_BITS | seat->number,
                                    .bits = VB_CM_PREFIX_BITS + SEAT_BITS};
}

void vb_hull_manager_hears(struct vb_hull_client *client, const struct vb_hull_event *event)
{
    struct vb_link *link = vb_fifo_first(&client->objects[VB_HULL_SEAT]);
    int fd = link ? VB_CONTAINER_OF(link, struct vb_hull_object, link)->fd : -1;

    if (fd >= 0)
        vb_contract_send(fd, event, sizeof *event, MSG_DONTWAIT, NULL, 0);
}

// ---- ports

static int serve(struct vb_hull *hull, uint32_t number, bool serves)
{
    struct vb_port *port = hull->lane->port;
    return port->ops->serve ? port->ops->serve(port, number >> 16, (uint16_t)number, serves) : 0;
}

void vb_hull_port_end(struct vb_hull_object *port)
{
    (void)serve(port->client->hull, port->number, false);
}

static bool is_taken(const struct vb_hull *hull, uint32_t number)
{
    for (struct vb_link *l = hull->clients.head.next; l != &hull->clients.head; l = l->next)
        if (vb_hull_object_find(VB_CONTAINER_OF(l, struct vb_hull_client, link), VB_HULL_PORT,
                                number))
            return true;
    return false;
}

static void port_take(struct vb_hull_command *c, uint32_t number)
{
    struct vb_hull *hull = c->client->hull;
    struct vb_hull_tenant *t = c->client->tenant;

    int err = is_taken(hull, number) ? -EADDRINUSE : 0;
    if (!err && !vb_hull_charge(t, &t->used.queues, t->quota.queues, 1,
                                "queues, channels and ports", c->reply))
        return;
    bool charged = !err;
    if (!err)
        err = serve(hull, number, true);
    if (!err && !vb_hull_object_add(c->client, VB_HULL_PORT, number)) {
        serve(hull, number, false);
        err = -ENOMEM;
    }
    if (err) {
        t->used.queues -= charged;
        vb_hull_refuse(c->reply, err, "port %u cannot be had: %s", number & 0xffff, strerror(-err));
    }
}

void vb_hull_manager_command(struct vb_hull_command *c)
{
    const struct vb_hull_request *r = c->request;
    uint32_t number = r->value << 16 | r->number;

    if (r->op == VB_HULL_SEAT_TAKE) {
        seat_take(c);
        return;
    }
    if (r->value >= VB_CM_SPACES || r->number > UINT16_MAX) {
        vb_hull_refuse(c->reply, -EINVAL, "there is no such port");
        return;
    }
    if (r->op == VB_HULL_PORT_TAKE) {
        if (!vb_hull_is_service(c, "connection manager"))
            port_take(c, number);
        return;
    }
    struct vb_hull_object *port = vb_hull_find(c, VB_HULL_PORT, number);
    if (port)
        vb_hull_judge(c, vb_hull_destroy(port), "to give it back");
}
