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
#include <time.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 1 << 20, // of memory for rings, at least
    WAIT_MS = 5,           // for memory that goes back to the system,
    WAITS_MAX = 2000,      // so often
};

static uint64_t pages_of(uint64_t bytes)
{
    return (bytes + VB_ATTACH_GRAIN - 1) / VB_ATTACH_GRAIN;
}

// ---- what is mapped

static void drop(struct vb_attach *a, struct vb_attach_memory *m)
{
    vb_link_remove(&m->link);
    if (a->clock == m)
        a->clock = NULL;
    if (!m->given)
        munmap(m->base, m->bytes);
    free(m->used);
    free(m);
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

uint8_t *vb_attach_at(struct vb_attach *a, const struct vb_hull_place *place)
{
    if (place->memory == 0)
        return (uint8_t *)(uintptr_t)place->offset; // of memory that is copied
    for (struct vb_link *l = a->memories.head.next; l != &a->memories.head; l = l->next) {
        const struct vb_attach_memory *m = VB_CONTAINER_OF(l, struct vb_attach_memory, link);
        if (m->number == place->memory && place->offset <= m->bytes)
            return m->base + place->offset;
    }
    return NULL;
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

static void close_all(const int fds[VB_HULL_FDS])
{
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static int release(struct vb_attach *a, uint32_t number)
{
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_DROP, .number = number};
    struct vb_hull_reply reply;
    return vb_attach_call(a, &request, &reply, -1, NULL);
}

// Keys name memory by its address: the next one who has the service wants it at the same.
static void tell_place(struct vb_attach *a, struct vb_attach_memory *m)
{
    struct vb_hull_request request = {
        .op = VB_HULL_MEMORY_AT, .number = m->number, .key = {.start = (uintptr_t)m->base}};
    struct vb_hull_reply reply;

    m->was = (uintptr_t)m->base;
    if (a->service)
        vb_attach_call(a, &request, &reply, -1, NULL);
}

static int obtain(struct vb_attach *a, const char *name, uint64_t bytes, bool rings,
                  struct vb_attach_memory **out)
{
    struct vb_hull_request request = {
        .op = VB_HULL_MEMORY_CREATE, .number = a->tag, .memory = {.bytes = bytes, .rings = rings}};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];

    if (name)
        snprintf(request.memory.name, sizeof request.memory.name, "%s", name);
    int err = vb_attach_call(a, &request, &reply, -1, fds);
    if (err)
        return err;
    struct vb_attach_memory m = {.number = reply.number, .bytes = reply.memory.bytes};
    memcpy(m.name, reply.memory.name, sizeof m.name);
    m.base = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    err = (void *)m.base == MAP_FAILED ? -errno : enter(a, &m, out);
    if (err && (void *)m.base != MAP_FAILED)
        munmap(m.base, m.bytes);
    if (err)
        release(a, m.number);
    else
        tell_place(a, *out);
    close_all(fds);
    return err;
}

// ---- what a service has

struct vb_attach_memory *vb_attach_memory_of(struct vb_attach *a, uint32_t number)
{
    for (struct vb_link *l = a->memories.head.next; l != &a->memories.head; l = l->next) {
        struct vb_attach_memory *m = VB_CONTAINER_OF(l, struct vb_attach_memory, link);
        if (m->number == number)
            return m;
    }
    return NULL;
}

// A service that asks for a name again, as its programs do when they begin, has it already.
static struct vb_attach_memory *find_name(struct vb_attach *a, const char *name, uint64_t bytes)
{
    for (struct vb_link *l = a->memories.head.next; l != &a->memories.head; l = l->next) {
        struct vb_attach_memory *m = VB_CONTAINER_OF(l, struct vb_attach_memory, link);
        if (strcmp(m->name, name) == 0 &&
            (bytes == 0 || pages_of(bytes) * VB_ATTACH_GRAIN == m->bytes))
            return m;
    }
    return NULL;
}

// Another address will do, but for who uses those that keys and entries name.
static void *map_at(uint64_t at, uint64_t bytes, int fd)
{
    void *wanted = (void *)(uintptr_t)at, *base = MAP_FAILED;
    const int rights = PROT_READ | PROT_WRITE;

    if (at)
        base = mmap(wanted, bytes, rights, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    return base == MAP_FAILED ? mmap(NULL, bytes, rights, MAP_SHARED, fd, 0) : base;
}

int vb_attach_map(struct vb_attach *a, uint32_t number, const struct vb_hull_listing *listing)
{
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_OPEN, .number = number};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];
    struct vb_attach_memory m = {.number = number, .was = listing->at}, *entered;
    int err = vb_attach_call(a, &request, &reply, -1, fds);

    if (err)
        return err;
    m.bytes = reply.memory.bytes;
    memcpy(m.name, listing->made.memory.name, sizeof m.name);
    m.base = map_at(listing->at, m.bytes, fds[0]);
    err = (void *)m.base == MAP_FAILED ? -errno : 0;
    close_all(fds);
    if (err)
        return err;
    err = enter(a, &m, &entered);
    if (err) {
        munmap(m.base, m.bytes);
        return err;
    }
    if (!m.was)
        tell_place(a, entered);
    if (!listing->made.memory.rings)
        return 0;
    entered->used = calloc(m.bytes / VB_ATTACH_GRAIN, 1);
    return entered->used ? 0 : -ENOMEM;
}

void *vb_attach_claim(struct vb_attach *a, const struct vb_hull_place *place, uint64_t bytes)
{
    const struct vb_attach_memory *m = vb_attach_memory_of(a, place->memory);

    if (!m || place->offset > m->bytes || bytes > m->bytes - place->offset)
        return NULL;
    uint64_t first = place->offset / VB_ATTACH_GRAIN;
    if (m->used)
        memset(m->used + first, 1, pages_of(place->offset + bytes) - first);
    return m->base + place->offset;
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
    if (obtain(a, NULL, all > PIECE_BYTES ? all : PIECE_BYTES, true, &m) != 0)
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

void *vb_attach_take(struct vb_attach *a, uint64_t bytes)
{
    void *at = take_room(a, bytes);
    if (at)
        memset(at, 0, bytes);
    return at;
}

void vb_attach_give_back(struct vb_attach *a, const void *at, uint64_t bytes)
{
    give_room(a, at, bytes);
}

// Moves heap memory, with room for notes behind it. *at is NULL then, if there is no room.
static int move(struct vb_attach *a, void **at, uint64_t bytes, uint64_t notes)
{
    if (!*at)
        return 0;
    void *to = take_room(a, bytes + notes);
    if (to) {
        memcpy(to, *at, bytes);
        memset((uint8_t *)to + bytes, 0, notes);
    }
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

// The wr_ids, and of sends how many blocks each entry has: a byte for each.
uint64_t vb_attach_send_notes(const struct vb_attach *a, uint32_t blocks)
{
    return a->service ? (uint64_t)blocks * (sizeof(uint64_t) + 1) : 0;
}

uint64_t vb_attach_recv_notes(const struct vb_attach *a, uint32_t entries)
{
    return a->service ? (uint64_t)entries * sizeof(uint64_t) : 0;
}

static uint64_t send_bytes(const struct vb_driver_qp *qp)
{
    return (uint64_t)qp->sq.blocks * VB_WQEBB_BYTES;
}

static uint64_t recv_bytes(const struct vb_driver_qp *qp)
{
    return (uint64_t)qp->rq.entries * qp->rq.stride;
}

static void keep_send_notes(struct vb_driver_sq *sq, uint8_t *notes)
{
    free(sq->wr_id);
    free(sq->size);
    sq->wr_id = (void *)notes;
    sq->size = notes + sq->blocks * sizeof *sq->wr_id;
}

static void keep_notes(uint64_t **wr_id, uint8_t *notes)
{
    free(*wr_id);
    *wr_id = (void *)notes;
}

int vb_attach_place_qp(struct vb_attach *a, struct vb_driver_qp *qp)
{
    void *send = qp->sq.ring, *recv = qp->rq.ring, *record = qp->dbrec;
    int first = move(a, &send, send_bytes(qp), vb_attach_send_notes(a, qp->sq.blocks));
    int second = move(a, &recv, recv_bytes(qp), vb_attach_recv_notes(a, qp->rq.entries));
    int third = move(a, &record, RECORD_BYTES, VB_ATTACH_RECORD - RECORD_BYTES);

    qp->sq.ring = send;
    qp->rq.ring = recv;
    qp->dbrec = record;
    if (a->service && send)
        keep_send_notes(&qp->sq, qp->sq.ring + send_bytes(qp));
    if (a->service && recv)
        keep_notes(&qp->rq.wr_id, qp->rq.ring + recv_bytes(qp));
    if (a->service && record)
        vb_driver_qp_deed(qp, (void *)((uint8_t *)record + VB_ATTACH_DEED));
    return first ? first : second ? second : third;
}

// Notes that lie behind a ring go with it.
static void forget_notes(uint64_t **wr_id, const uint8_t *ring, uint64_t bytes)
{
    if (ring && (const uint8_t *)*wr_id == ring + bytes)
        *wr_id = NULL;
}

void vb_attach_lift_qp(struct vb_attach *a, struct vb_driver_qp *qp)
{
    void *send = qp->sq.ring, *recv = qp->rq.ring, *record = qp->dbrec;

    forget_notes(&qp->sq.wr_id, qp->sq.ring, send_bytes(qp));
    forget_notes(&qp->rq.wr_id, qp->rq.ring, recv_bytes(qp));
    if (!qp->sq.wr_id)
        qp->sq.size = NULL;
    lift(a, &send, send_bytes(qp) + vb_attach_send_notes(a, qp->sq.blocks));
    lift(a, &recv, recv_bytes(qp) + vb_attach_recv_notes(a, qp->rq.entries));
    lift(a, &record, VB_ATTACH_RECORD);
    qp->sq.ring = qp->rq.ring = NULL;
    qp->dbrec = NULL;
    qp->deed = NULL;
}

int vb_attach_place_cq(struct vb_attach *a, struct vb_driver_cq *cq)
{
    void *ring = cq->ring, *record = cq->dbrec;
    int first = move(a, &ring, (uint64_t)cq->entries * VB_CQE_BYTES, 0);
    int second = move(a, &record, RECORD_BYTES, 0);

    cq->ring = ring;
    cq->dbrec = record;
    cq->outlives = a->service;
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
    uint64_t bytes = (uint64_t)srq->entries * srq->stride;
    int first = move(a, &ring, bytes, vb_attach_recv_notes(a, srq->entries));
    int second = move(a, &record, RECORD_BYTES, 0);

    srq->ring = ring;
    srq->dbrec = record;
    if (a->service && ring)
        keep_notes(&srq->wr_id, srq->ring + bytes);
    return first ? first : second;
}

void vb_attach_lift_srq(struct vb_attach *a, struct vb_driver_srq *srq)
{
    void *ring = srq->ring, *record = srq->dbrec;
    uint64_t bytes = (uint64_t)srq->entries * srq->stride;

    forget_notes(&srq->wr_id, srq->ring, bytes);
    lift(a, &ring, bytes + vb_attach_recv_notes(a, srq->entries));
    lift(a, &record, RECORD_BYTES);
    srq->ring = NULL;
    srq->dbrec = NULL;
}

// ---- the application's

// What was let go of is charged until the system has it back. Whether to ask once more for what
// will fit then.
static bool is_worth_waiting(int err, unsigned *waits)
{
    const struct timespec a_while = {.tv_nsec = WAIT_MS * 1000000L};

    if (err != -EAGAIN || (*waits)++ == WAITS_MAX)
        return false;
    nanosleep(&a_while, NULL);
    return true;
}

static int alloc(struct vb_nic *nic, const char *name, size_t bytes, void **addr)
{
    struct vb_attach_memory *m;

    vb_host_lock(nic);
    m = nic->attach->service && name && *name ? find_name(nic->attach, name, bytes) : NULL;
    int err = m ? 0 : obtain(nic->attach, name, bytes, false, &m);
    if (!err)
        *addr = m->base;
    vb_host_unlock(nic);
    return err;
}

int vb_hull_alloc(struct vb_nic *nic, const char *name, size_t bytes, void **addr)
{
    unsigned waits = 0;
    int err;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (!nic->attach)
        return -EOPNOTSUPP;
    if (name && strlen(name) >= VB_HULL_NAME)
        return -ENAMETOOLONG;
    do
        err = alloc(nic, name, bytes, addr);
    while (is_worth_waiting(err, &waits));
    return err == -EAGAIN ? -EDQUOT : err;
}

static int give(struct vb_nic *nic, int fd, void *addr)
{
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_GIVE};
    struct vb_attach_memory *m;
    struct vb_hull_reply reply;

    vb_host_lock(nic);
    request.number = nic->attach->tag;
    int err = vb_attach_call(nic->attach, &request, &reply, fd, NULL);
    if (!err) {
        const struct vb_attach_memory given = {
            .number = reply.number, .given = true, .base = addr, .bytes = reply.memory.bytes};
        err = enter(nic->attach, &given, &m);
        if (err)
            release(nic->attach, reply.number);
        else
            tell_place(nic->attach, m);
    }
    vb_host_unlock(nic);
    return err;
}

int vb_hull_give(struct vb_nic *nic, int fd, void *addr)
{
    unsigned waits = 0;
    int err;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (!nic->attach)
        return -EOPNOTSUPP;
    if (fd < 0)
        return -EBADF;
    do
        err = give(nic, fd, addr);
    while (is_worth_waiting(err, &waits));
    return err == -EAGAIN ? -EDQUOT : err;
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

static struct vb_attach_memory *find_at(const struct vb_attach *a, const void *addr)
{
    for (struct vb_link *l = a->memories.head.next; l != &a->memories.head; l = l->next) {
        struct vb_attach_memory *m = VB_CONTAINER_OF(l, struct vb_attach_memory, link);
        if (m->base == addr && !m->used)
            return m;
    }
    return NULL;
}

int vb_hull_descriptor(struct vb_nic *nic, const void *addr)
{
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS] = {-1, -1};

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (!nic->attach)
        return -EOPNOTSUPP;
    vb_host_lock(nic);
    const struct vb_attach_memory *m = find_at(nic->attach, addr);
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_OPEN, .number = m ? m->number : 0};
    int err = m ? vb_attach_call(nic->attach, &request, &reply, -1, fds) : -ENOENT;
    vb_host_unlock(nic);
    return err ? err : fds[0] < 0 ? -EPROTO : fds[0];
}

// ---- the clock

static int obtain_clock(struct vb_attach *a)
{
    struct vb_hull_request request = {.op = VB_HULL_CLOCK};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];
    int err = vb_attach_call(a, &request, &reply, -1, fds);

    if (err)
        return err;
    struct vb_attach_memory m = {.number = reply.number, .bytes = reply.memory.bytes};
    m.base = mmap(NULL, m.bytes, PROT_READ, MAP_SHARED, fds[0], 0);
    err = (void *)m.base == MAP_FAILED ? -errno : enter(a, &m, &a->clock);
    if (err && (void *)m.base != MAP_FAILED)
        munmap(m.base, m.bytes);
    if (err)
        release(a, m.number);
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return err;
}

int vb_hull_clock(struct vb_nic *nic, const struct vb_hull_clock **clock)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (!nic->attach)
        return -EOPNOTSUPP;
    vb_host_lock(nic);
    int err = nic->attach->clock ? 0 : obtain_clock(nic->attach);
    if (!err)
        *clock = (const struct vb_hull_clock *)(const void *)nic->attach->clock->base;
    vb_host_unlock(nic);
    return err;
}
