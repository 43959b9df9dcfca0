// SPDX-License-Identifier: Apache-2.0
// Queues by hand: an application writes its rings, records and registers without telling anybody,
// as programs do that drive a card without its library. The hull looks at those that were said to
// be such, and at them only: so many of an application, for each costs a line of memory in a turn.
#include "hull/command.h"

#include "port/clock.h"
#include "verbena/wqe.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WATCHES_MAX = 64,      // of an application
    LOOK_NS = 1000 * 1000, // between two looks of a hull that sleeps
};

// ---- what is looked at

static struct vb_hull_watch *add(struct vb_hull_command *c, struct vb_hull_object *o)
{
    struct vb_hull_watch *w = NULL;

    if (c->client->watches >= WATCHES_MAX) {
        vb_hull_refuse(c->reply, -ENOSPC, "an application may have %d queues by hand", WATCHES_MAX);
        return NULL;
    }
    if (c->client->tenant->watches >= VB_HULL_WATCHES) {
        vb_hull_refuse(c->reply, -ENOSPC, "a user may have %d queues by hand", VB_HULL_WATCHES);
        return NULL;
    }
    w = calloc(1, sizeof *w);
    if (!w) {
        vb_hull_refuse(c->reply, -ENOMEM, "the hull is out of memory");
        return NULL;
    }
    w->object = o;
    o->watch = w;
    c->client->watches++;
    c->client->tenant->watches++;
    vb_fifo_push(&c->client->hull->unit[o->unit].watches, &w->link);
    vb_hull_units_wake(c->client->hull, 1u << o->unit); // it may sleep until somebody rings
    return w;
}

void vb_hull_watch_end(struct vb_hull_object *o)
{
    if (!o->watch)
        return;
    vb_link_remove(&o->watch->link);
    if (o->watch->hold)
        o->watch->hold->users--;
    o->client->watches--;
    o->client->tenant->watches--;
    free(o->watch);
    o->watch = NULL;
}

// What was written before is looked at, too: nobody has told of it.
static void share_qp(struct vb_hull_command *c)
{
    struct vb_hull_object *o = vb_hull_find(c, VB_HULL_QP, c->request->number);

    if (o && !o->watch && add(c, o))
        vb_doorbell_ring(vb_pu_doorbells(c->client->hull->unit[o->unit].lane->pu), o->number);
}

static void share_cq(struct vb_hull_command *c)
{
    struct vb_hull_object *o = vb_hull_find(c, VB_HULL_CQ, c->request->number);
    struct vb_hull_hold *hold = NULL;

    if (!o)
        return;
    uint8_t *bell = vb_hull_memory_find(c->client, &c->request->share.bell, VB_RAW_REGISTER_BYTES,
                                        sizeof(uint64_t), &hold, c->reply);
    struct vb_hull_watch *w = !bell ? NULL : o->watch ? o->watch : add(c, o);
    if (!w)
        return;
    if (w->hold) // another register from now on
        w->hold->users--;
    w->bell = (uint64_t *)(void *)(bell + VB_RAW_ARM_OFFSET);
    w->hold = hold;
    hold->users++;
}

void vb_hull_share_command(struct vb_hull_command *c)
{
    if (c->request->op == VB_HULL_QP_SHARE)
        share_qp(c);
    else
        share_cq(c);
}

// ---- looking

static bool look_at_qp(struct vb_hull_unit *unit, struct vb_hull_watch *w)
{
    uint32_t sends = __atomic_load_n(&w->object->record[VB_DBREC_SQ], __ATOMIC_ACQUIRE);
    uint32_t receives = __atomic_load_n(&w->object->record[VB_DBREC_RQ], __ATOMIC_ACQUIRE);

    if (sends == w->seen[VB_DBREC_SQ] && receives == w->seen[VB_DBREC_RQ])
        return false;
    w->seen[VB_DBREC_SQ] = sends;
    w->seen[VB_DBREC_RQ] = receives;
    vb_doorbell_ring(vb_pu_doorbells(unit->lane->pu), w->object->number);
    return true;
}

// Asking for an event is a write to the register: an arm word and the queue's number.
static bool look_at_cq(struct vb_hull_unit *unit, struct vb_hull_watch *w)
{
    uint32_t word[2];

    if (!__atomic_load_n(w->bell, __ATOMIC_RELAXED))
        return false;
    uint64_t both = __atomic_exchange_n(w->bell, 0, __ATOMIC_ACQUIRE);
    memcpy(word, &both, sizeof word);
    uint32_t arm = be32toh(word[0]) & (0xffffff | VB_DBREC_ARM_SOLICITED);
    if (be32toh(word[1]) != w->object->number || !w->object->channel)
        return true;
    w->arm_serial = w->arm_serial % 3 + 1; // never 0: a word of 0 asks for nothing
    __atomic_store_n(&w->object->record[VB_DBREC_CQ_ARM],
                     htobe32(w->arm_serial << VB_DBREC_ARM_SERIAL | arm), __ATOMIC_SEQ_CST);
    vb_dev_cq_armed(unit->hull->nic->dev, w->object->number);
    return true;
}

static bool look_at(struct vb_hull_unit *unit, struct vb_hull_watch *w)
{
    return w->bell ? look_at_cq(unit, w) : look_at_qp(unit, w);
}

static void leave_unit(struct vb_hull_unit *unit, const struct vb_hull_client *client)
{
    struct vb_fifo *all = &unit->watches;

    for (struct vb_link *l = all->head.next, *next; l != &all->head; l = next) {
        struct vb_hull_watch *w = VB_CONTAINER_OF(l, struct vb_hull_watch, link);
        next = l->next;
        if (w->object->client != client)
            continue;
        look_at(unit, w);
        vb_hull_watch_end(w->object);
    }
}

void vb_hull_watch_leave(struct vb_hull_client *client)
{
    for (uint32_t i = 0; i < client->hull->units; i++)
        leave_unit(&client->hull->unit[i], client);
}

bool vb_hull_watch_all(struct vb_hull_unit *unit)
{
    bool any = false;

    for (struct vb_link *l = unit->watches.head.next; l != &unit->watches.head; l = l->next) {
        struct vb_hull_watch *w = VB_CONTAINER_OF(l, struct vb_hull_watch, link);
        any = look_at(unit, w) || any;
    }
    return any;
}

uint64_t vb_hull_watch_next(const struct vb_hull_unit *unit, uint64_t deadline_ns)
{
    if (vb_fifo_empty(&unit->watches))
        return deadline_ns;
    uint64_t next_ns = vb_clock_ns() + LOOK_NS;
    return next_ns < deadline_ns ? next_ns : deadline_ns;
}
