// SPDX-License-Identifier: Apache-2.0
// Whose is what: an application's objects by kind and number, and what its tenant may have.
#include "hull/hull.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *vb_hull_kind_text(enum vb_hull_kind kind)
{
    static const char *const text[] = {[VB_HULL_QP] = "queue pair",
                                       [VB_HULL_SRQ] = "shared receive queue",
                                       [VB_HULL_CQ] = "completion queue",
                                       [VB_HULL_WINDOW] = "window",
                                       [VB_HULL_REGION] = "region",
                                       [VB_HULL_PD] = "domain",
                                       [VB_HULL_CHANNEL] = "channel",
                                       [VB_HULL_PROGRAM] = "program",
                                       [VB_HULL_XRCD] = "domain of XRC",
                                       [VB_HULL_PORT] = "port",
                                       [VB_HULL_SEAT] = "seat"};
    return text[kind];
}

void vb_hull_refuse(struct vb_hull_reply *reply, int error, const char *format, ...)
{
    va_list args;

    reply->error = error;
    va_start(args, format);
    vsnprintf(reply->text, sizeof reply->text, format, args);
    va_end(args);
}

static uint64_t key_of(enum vb_hull_kind kind, uint32_t number)
{
    return (uint64_t)kind << 32 | number;
}

struct vb_hull_object *vb_hull_object_find(struct vb_hull_client *client, enum vb_hull_kind kind,
                                           uint32_t number)
{
    struct vb_entry *e = vb_table_find(&client->object_of, key_of(kind, number));
    return e ? VB_CONTAINER_OF(e, struct vb_hull_object, entry) : NULL;
}

struct vb_hull_object *vb_hull_object_add(struct vb_hull_client *client, enum vb_hull_kind kind,
                                          uint32_t number)
{
    struct vb_hull_object *o = calloc(1, sizeof *o);

    if (!o)
        return NULL;
    if (client->service[0]) {
        o->made = malloc(sizeof *o->made);
        if (!o->made) {
            free(o);
            return NULL;
        }
        *o->made = *client->request;
    }
    o->client = client;
    o->kind = kind;
    o->number = number;
    o->fd = -1;
    vb_table_add(&client->object_of, &o->entry, key_of(kind, number));
    vb_fifo_push(&client->objects[kind], &o->link);
    client->objects_made[kind]++;
    return o;
}

void vb_hull_object_remove(struct vb_hull_object *object)
{
    vb_table_remove(&object->client->object_of, &object->entry);
    vb_link_remove(&object->link);
    vb_hull_watch_end(object);
    object->client->objects_made[object->kind]--;
    for (uint32_t i = 0; i < 3; i++)
        if (object->hold[i])
            object->hold[i]->users--;
    if (object->channel)
        object->channel->users--;
    if (object->xrcd)
        object->xrcd->users--;
    free(object->made);
    free(object);
}

void vb_hull_object_hold(struct vb_hull_object *object, struct vb_hull_hold *const hold[3])
{
    for (uint32_t i = 0; i < 3; i++) {
        object->hold[i] = hold[i];
        if (hold[i])
            hold[i]->users++;
    }
}

bool vb_hull_charge(struct vb_hull_tenant *tenant, uint64_t *used, uint64_t quota, uint64_t more,
                    const char *what, struct vb_hull_reply *reply)
{
    if (*used <= quota && more <= quota - *used) {
        *used += more;
        return true;
    }
    vb_hull_refuse(reply, -EDQUOT, "user %u may have %llu %s, has %llu and asks for %llu more",
                   (unsigned)tenant->uid, (unsigned long long)quota, what,
                   (unsigned long long)*used, (unsigned long long)more);
    return false;
}
