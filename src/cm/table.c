// SPDX-License-Identifier: Apache-2.0
// Connections by their ids and by their peers' numbers, and listeners. All memory is taken at once.
#include "cm/conn.h"

#include "base/siphash.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int vb_cm_table_create(struct vb_cm *cm)
{
    uint32_t count = cm->opts.connections, buckets = 16;

    while (buckets < count)
        buckets *= 2;
    cm->bucket_mask = buckets - 1;
    cm->conn = calloc(count, sizeof *cm->conn);
    cm->listener = calloc(cm->opts.listeners, sizeof *cm->listener);
    cm->outbox = calloc(cm->opts.outbox, sizeof *cm->outbox);
    bool failed = !cm->conn || !cm->listener || !cm->outbox;
    for (int i = 0; i < VB_CM_INDEXES; i++) {
        cm->bucket[i] = calloc(buckets, sizeof *cm->bucket[i]);
        failed |= !cm->bucket[i];
    }
    if (failed || vb_timers_reserve(&cm->timers, count) != 0)
        return -ENOMEM;
    vb_fifo_init(&cm->free);
    vb_fifo_init(&cm->refusals);
    vb_fifo_init(&cm->due);
    for (uint32_t i = 0; i < count; i++)
        vb_fifo_push(&cm->free, &cm->conn[i].link);
    return 0;
}

void vb_cm_table_destroy(struct vb_cm *cm)
{
    for (int i = 0; i < VB_CM_INDEXES; i++)
        free(cm->bucket[i]);
    free(cm->conn);
    free(cm->listener);
    free(cm->outbox);
    vb_timers_fini(&cm->timers);
}

// ---- chains

static uint32_t hash_of(const struct vb_cm *cm, const struct vb_ip *peer, uint32_t number)
{
    uint64_t half[2];

    memcpy(half, peer->b, 16);
    uint64_t hash = vb_siphash(cm->opts.seed, half[0]);
    hash = vb_siphash(cm->opts.seed, hash ^ half[1]);
    return (uint32_t)vb_siphash(cm->opts.seed, hash ^ number);
}

static uint32_t *chain_of(const struct vb_cm *cm, const struct vb_cm_conn *c,
                          enum vb_cm_index index)
{
    uint32_t hash = index == VB_CM_BY_LOCAL    ? c->local_id
                    : index == VB_CM_BY_OWN    ? c->local_qpn
                    : index == VB_CM_BY_REMOTE ? hash_of(cm, &c->peer, c->remote_id)
                                               : hash_of(cm, &c->peer, c->remote_qpn);
    return &cm->bucket[index][hash & cm->bucket_mask];
}

void vb_cm_conn_index(struct vb_cm *cm, struct vb_cm_conn *c, enum vb_cm_index index)
{
    uint32_t *head = chain_of(cm, c, index);

    assert(!(c->indexed & 1u << index));
    c->indexed |= (uint16_t)(1u << index);
    c->next[index] = *head;
    *head = (uint32_t)(c - cm->conn) + 1;
}

void vb_cm_conn_unindex(struct vb_cm *cm, struct vb_cm_conn *c, enum vb_cm_index index)
{
    uint32_t number = (uint32_t)(c - cm->conn) + 1;

    if (!(c->indexed & 1u << index))
        return;
    c->indexed &= (uint16_t) ~(1u << index);
    uint32_t *at = chain_of(cm, c, index);
    while (*at != number)
        at = &cm->conn[*at - 1].next[index];
    *at = c->next[index];
}

struct vb_cm_conn *vb_cm_find_local(const struct vb_cm *cm, uint32_t id)
{
    uint32_t at = cm->bucket[VB_CM_BY_LOCAL][id & cm->bucket_mask];

    for (; at; at = cm->conn[at - 1].next[VB_CM_BY_LOCAL])
        if (cm->conn[at - 1].local_id == id)
            return &cm->conn[at - 1];
    return NULL;
}

struct vb_cm_conn *vb_cm_next_own(const struct vb_cm *cm, const struct vb_cm_conn *c, uint32_t qpn)
{
    uint32_t at = c ? c->next[VB_CM_BY_OWN] : cm->bucket[VB_CM_BY_OWN][qpn & cm->bucket_mask];

    for (; at; at = cm->conn[at - 1].next[VB_CM_BY_OWN])
        if (cm->conn[at - 1].local_qpn == qpn)
            return &cm->conn[at - 1];
    return NULL;
}

struct vb_cm_conn *vb_cm_find_remote(const struct vb_cm *cm, const struct vb_ip *peer, uint32_t id,
                                     bool sidr)
{
    uint32_t at = cm->bucket[VB_CM_BY_REMOTE][hash_of(cm, peer, id) & cm->bucket_mask];

    for (; at; at = cm->conn[at - 1].next[VB_CM_BY_REMOTE]) {
        struct vb_cm_conn *c = &cm->conn[at - 1];
        if (c->remote_id == id && c->sidr == sidr && vb_ip_equal(&c->peer, peer))
            return c;
    }
    return NULL;
}

struct vb_cm_conn *vb_cm_find_qpn(const struct vb_cm *cm, const struct vb_ip *peer, uint32_t qpn)
{
    uint32_t at = cm->bucket[VB_CM_BY_QPN][hash_of(cm, peer, qpn) & cm->bucket_mask];

    for (; at; at = cm->conn[at - 1].next[VB_CM_BY_QPN]) {
        struct vb_cm_conn *c = &cm->conn[at - 1];
        if (c->remote_qpn == qpn && vb_ip_equal(&c->peer, peer))
            return c;
    }
    return NULL;
}

// ---- connections

// Ids are as hard to foretell as the seed's hash, and unique while they live.
static uint32_t draw_id(struct vb_cm *cm)
{
    uint32_t bits = cm->opts.id_prefix_bits, mask = UINT32_MAX >> bits, id;

    do {
        id = (uint32_t)vb_siphash(cm->opts.seed, ++cm->drawn) & mask;
        if (bits)
            id |= cm->opts.id_prefix << (32 - bits);
    } while (id == 0 || vb_cm_find_local(cm, id));
    return id;
}

struct vb_cm_conn *vb_cm_conn_alloc(struct vb_cm *cm, const struct vb_ip *peer)
{
    // A refusal that is forgotten costs its peer at most one more question.
    if (vb_fifo_empty(&cm->free) && !vb_fifo_empty(&cm->refusals))
        vb_cm_conn_free(cm, VB_CONTAINER_OF(vb_fifo_first(&cm->refusals), struct vb_cm_conn, link));
    if (vb_fifo_empty(&cm->free))
        return NULL;
    struct vb_cm_conn *c = VB_CONTAINER_OF(vb_fifo_first(&cm->free), struct vb_cm_conn, link);
    vb_link_remove(&c->link);
    *c = (struct vb_cm_conn){.peer = *peer, .local = cm->here, .timer.deadline_ns = VB_TIMER_NEVER};
    c->local_id = draw_id(cm);
    vb_cm_conn_index(cm, c, VB_CM_BY_LOCAL);
    cm->in_use++;
    return c;
}

void vb_cm_conn_free(struct vb_cm *cm, struct vb_cm_conn *c)
{
    vb_cm_answered(cm, c);
    vb_cm_untell(c);
    vb_timer_remove(&cm->timers, &c->timer);
    for (int i = 0; i < VB_CM_INDEXES; i++)
        vb_cm_conn_unindex(cm, c, (enum vb_cm_index)i);
    if (vb_link_queued(&c->link))
        vb_link_remove(&c->link);
    c->state = VB_CM_FREE;
    vb_fifo_push(&cm->free, &c->link);
    cm->in_use--;
}

// ---- listeners

struct vb_cm_listener *vb_cm_find_listener(struct vb_cm *cm, uint64_t service_id)
{
    for (uint32_t i = 0; i < cm->opts.listeners; i++) {
        struct vb_cm_listener *l = &cm->listener[i];
        if (l->used && (service_id & l->mask) == (l->service_id & l->mask))
            return l;
    }
    return NULL;
}

void vb_cm_answered(struct vb_cm *cm, struct vb_cm_conn *c)
{
    if (c->listener)
        cm->listener[c->listener - 1].pending--;
    c->listener = 0;
}

int vb_cm_listen(struct vb_cm *cm, uint64_t service_id, uint64_t mask, uint32_t backlog,
                 void *listener)
{
    struct vb_cm_listener *room = NULL;

    mask = mask ? mask : UINT64_MAX;
    for (uint32_t i = 0; i < cm->opts.listeners; i++) {
        struct vb_cm_listener *l = &cm->listener[i];
        if (!l->used)
            room = room ? room : l;
        else if (((service_id ^ l->service_id) & mask & l->mask) == 0)
            return -EADDRINUSE;
    }
    if (!room)
        return -ENOSPC;
    *room = (struct vb_cm_listener){service_id, mask, backlog ? backlog : 128, 0, listener, true};
    return 0;
}

int vb_cm_unlisten(struct vb_cm *cm, uint64_t now_ns, uint64_t service_id, uint64_t mask)
{
    uint32_t number = 0;

    mask = mask ? mask : UINT64_MAX;
    while (number < cm->opts.listeners &&
           (!cm->listener[number].used || cm->listener[number].service_id != service_id ||
            cm->listener[number].mask != mask))
        number++;
    if (number == cm->opts.listeners)
        return -ENOENT;
    for (uint32_t i = 0; i < cm->opts.connections; i++) {
        struct vb_cm_conn *c = &cm->conn[i];
        if (c->state == VB_CM_FREE || c->listener != number + 1)
            continue;
        if (c->events) // nobody has heard of it
            vb_cm_abandon(cm, now_ns, c->local_id);
        else
            vb_cm_answered(cm, c);
    }
    cm->listener[number].used = false;
    return 0;
}
