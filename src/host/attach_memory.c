// SPDX-License-Identifier: Apache-2.0
// Memory that an application shares with the hull: the hull's own, and sealed memory that the
// application gives. Rings lie in the first kind, some in one piece.
#include "host/attach.h"

#include "host/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 1 << 20, // of memory for rings, at least
};

static uint64_t pages_of(uint64_t bytes)
{
    return (bytes + VB_ATTACH_GRAIN - 1) / VB_ATTACH_GRAIN;
}

// ---- what is mapped

static void drop(struct vb_attach *a, struct vb_attach_memory *m)
{
    vb_link_remove(&m->link);
    if (!m->given)
        munmap(m->base, m->bytes);
    free(m->used);
    free(m);
    (void)a;
}

void vb_attach_forget_memory(struct vb_attach *a)
{
    struct vb_link *link;

    while ((link = vb_fifo_first(&a->memories)))
        drop(a, VB_CONTAINER_OF(link, struct vb_attach_memory, link));
}

bool vb_attach_find(struct vb_attach *a, const void *at, uint64_t bytes,
                    struct vb_hull_place *place)
{
    for (struct vb_link *l = a->memories.head.next; l != &a->memories.head; l = l->next) {
        const struct vb_attach_memory *m = VB_CONTAINER_OF(l, struct vb_attach_memory, link);
        uint64_t offset = (uintptr_t)at - (uintptr_t)m->base;
        if (offset > m->bytes || bytes > m->bytes - offset)
            continue;
        *place = (struct vb_hull_place){.memory = m->number, .offset = offset};
        return true;
    }
    pthread_mutex_lock(&a->lock);
    snprintf(a->text, sizeof a->text,
             "this memory is not shared with the hull: take it from vb_hull_alloc(), or give a "
             "sealed memfd by vb_hull_give()");
    pthread_mutex_unlock(&a->lock);
    return false;
}

static int enter(struct vb_attach *a, const struct vb_attach_memory *found,
                 struct vb_attach_memory **out)
{
    struct vb_attach_memory *m = malloc(sizeof *m);
    if (!m)
        return -ENOMEM;
    *m = *found;
    m->link = (struct vb_link){0};
    vb_fifo_push(&a->memories, &m->link);
    *out = m;
    return 0;
}

static int release(struct vb_attach *a, uint32_t number)
{
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_DROP, .number = number};
    struct vb_hull_reply reply;
    return vb_attach_call(a, &request, &reply, -1, NULL);
}

static int obtain(struct vb_attach *a, const char *name, uint64_t bytes,
                  struct vb_attach_memory **out)
{
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = bytes}};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];

    if (name)
        snprintf(request.memory.name, sizeof request.memory.name, "%s", name);
    int err = vb_attach_call(a, &request, &reply, -1, fds);
    if (err)
        return err;
    struct vb_attach_memory m = {.number = reply.number, .bytes = reply.memory.bytes};
    m.base = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    err = (void *)m.base == MAP_FAILED ? -errno : enter(a, &m, out);
    if (err && (void *)m.base != MAP_FAILED)
        munmap(m.base, m.bytes);
    if (err)
        release(a, m.number);
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return err;
}

// ---- rings

// First fit. NULL: no room in this piece.
static void *take_pages(struct vb_attach_memory *m, uint64_t pages)
{
    uint64_t all = m->bytes / VB_ATTACH_GRAIN, run = 0;

    for (uint64_t i = 0; m->used && i < all; i++) {
        run = m->used[i] ? 0 : run + 1;
        if (run < pages)
            continue;
        memset(m->used + i + 1 - pages, 1, pages);
        return m->base + (i + 1 - pages) * VB_ATTACH_GRAIN;
    }
    return NULL;
}

static void *take_room(struct vb_attach *a, uint64_t bytes)
{
    struct vb_attach_memory *m;
    uint64_t pages = pages_of(bytes), all = pages * VB_ATTACH_GRAIN;

    for (struct vb_link *l = a->memories.head.next; l != &a->memories.head; l = l->next) {
        void *at = take_pages(VB_CONTAINER_OF(l, struct vb_attach_memory, link), pages);
        if (at)
            return at;
    }
    if (obtain(a, NULL, all > PIECE_BYTES ? all : PIECE_BYTES, &m) != 0)
        return NULL;
    m->used = calloc(m->bytes / VB_ATTACH_GRAIN, 1);
    return take_pages(m, pages);
}

static void give_room(struct vb_attach *a, const void *at, uint64_t bytes)
{
    for (struct vb_link *l = a->memories.head.next; l != &a->memories.head; l = l->next) {
        struct vb_attach_memory *m = VB_CONTAINER_OF(l, struct vb_attach_memory, link);
        uint64_t offset = (uintptr_t)at - (uintptr_t)m->base;
        if (!m->used || offset >= m->bytes)
            continue;
        memset(m->used + offset / VB_ATTACH_GRAIN, 0, pages_of(bytes));
        return;
    }
}

// Moves heap memory. *at is NULL then, if there is no room.
static int move(struct vb_attach *a, void **at, uint64_t bytes)
{
    if (!*at)
        return 0;
    void *to = take_room(a, bytes);
    if (to)
        memcpy(to, *at, bytes);
    free(*at);
    *at = to;
    return to ? 0 : -ENOMEM;
}

static void lift(struct vb_attach *a, void **at, uint64_t bytes)
{
    if (*at)
        give_room(a, *at, bytes);
    *at = NULL;
}

#define RECORD_BYTES 64 // of doorbells

static uint64_t send_bytes(const struct vb_driver_qp *qp)
{
    return (uint64_t)qp->sq.blocks * VB_WQEBB_BYTES;
}

static uint64_t recv_bytes(const struct vb_driver_qp *qp)
{
    return (uint64_t)qp->rq.entries * qp->rq.stride;
}

int vb_attach_place_qp(struct vb_attach *a, struct vb_driver_qp *qp)
{
    void *send = qp->sq.ring, *recv = qp->rq.ring, *record = qp->dbrec;
    int first = move(a, &send, send_bytes(qp)), second = move(a, &recv, recv_bytes(qp));
    int third = move(a, &record, RECORD_BYTES);

    qp->sq.ring = send;
    qp->rq.ring = recv;
    qp->dbrec = record;
    return first ? first : second ? second : third;
}

void vb_attach_lift_qp(struct vb_attach *a, struct vb_driver_qp *qp)
{
    void *send = qp->sq.ring, *recv = qp->rq.ring, *record = qp->dbrec;

    lift(a, &send, send_bytes(qp));
    lift(a, &recv, recv_bytes(qp));
    lift(a, &record, RECORD_BYTES);
    qp->sq.ring = qp->rq.ring = NULL;
    qp->dbrec = NULL;
}

int vb_attach_place_cq(struct vb_attach *a, struct vb_driver_cq *cq)
{
    void *ring = cq->ring, *record = cq->dbrec;
    int first = move(a, &ring, (uint64_t)cq->entries * VB_CQE_BYTES);
    int second = move(a, &record, RECORD_BYTES);

    cq->ring = ring;
    cq->dbrec = record;
    return first ? first : second;
}

void vb_attach_lift_cq(struct vb_attach *a, struct vb_driver_cq *cq)
{
    void *ring = cq->ring, *record = cq->dbrec;

    lift(a, &ring, (uint64_t)cq->entries * VB_CQE_BYTES);
    lift(a, &record, RECORD_BYTES);
    cq->ring = NULL;
    cq->dbrec = NULL;
}

int vb_attach_place_srq(struct vb_attach *a, struct vb_driver_srq *srq)
{
    void *ring = srq->ring, *record = srq->dbrec;
    int first = move(a, &ring, (uint64_t)srq->entries * srq->stride);
    int second = move(a, &record, RECORD_BYTES);

    srq->ring = ring;
    srq->dbrec = record;
    return first ? first : second;
}

void vb_attach_lift_srq(struct vb_attach *a, struct vb_driver_srq *srq)
{
    void *ring = srq->ring, *record = srq->dbrec;

    lift(a, &ring, (uint64_t)srq->entries * srq->stride);
    lift(a, &record, RECORD_BYTES);
    srq->ring = NULL;
    srq->dbrec = NULL;
}

// ---- the application's

int vb_hull_alloc(struct vb_nic *nic, const char *name, size_t bytes, void **addr)
{
    struct vb_attach_memory *m;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (!nic->attach)
        return -EOPNOTSUPP;
    if (name && strlen(name) >= VB_HULL_NAME)
        return -ENAMETOOLONG;
    vb_host_lock(nic);
    int err = obtain(nic->attach, name, bytes, &m);
    if (!err)
        *addr = m->base;
    vb_host_unlock(nic);
    return err;
}

int vb_hull_give(struct vb_nic *nic, int fd, void *addr)
{
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_GIVE};
    struct vb_attach_memory *m;
    struct vb_hull_reply reply;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (!nic->attach)
        return -EOPNOTSUPP;
    if (fd < 0)
        return -EBADF;
    vb_host_lock(nic);
    int err = vb_attach_call(nic->attach, &request, &reply, fd, NULL);
    if (!err) {
        const struct vb_attach_memory given = {
            .number = reply.number, .given = true, .base = addr, .bytes = reply.memory.bytes};
        err = enter(nic->attach, &given, &m);
        if (err)
            release(nic->attach, reply.number);
    }
    vb_host_unlock(nic);
    return err;
}

int vb_hull_free(struct vb_nic *nic, void *addr)
{
    int err = -ENOENT;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (!nic->attach)
        return -EOPNOTSUPP;
    vb_host_lock(nic);
    struct vb_fifo *list = &nic->attach->memories;
    for (struct vb_link *l = list->head.next; l != &list->head; l = l->next) {
        struct vb_attach_memory *m = VB_CONTAINER_OF(l, struct vb_attach_memory, link);
        if (m->base != addr || m->used)
            continue;
        err = release(nic->attach, m->number);
        if (!err)
            drop(nic->attach, m);
        break;
    }
    vb_host_unlock(nic);
    return err;
}
