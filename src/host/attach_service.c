// SPDX-License-Identifier: Apache-2.0
// Taking over a service: the session of a process that is gone becomes a NIC with handles again.
// The hull says what there is and how it was made; where the driver stood is in shared memory
// (driver_recover.c). The process that does this may be killed, too: the next one begins anew.
#include "host/attach.h"

#include "host/device.h"
#include "host/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int vb_attach_next(struct vb_attach *a, enum vb_hull_listed kind, uint32_t *number,
                   struct vb_hull_listing *listing)
{
    struct vb_hull_request request = {.op = VB_HULL_SERVICE_NEXT, .number = *number, .value = kind};
    struct vb_hull_reply reply;
    int err = vb_attach_call(a, &request, &reply, -1, NULL);

    if (err)
        return err;
    *number = reply.number;
    *listing = reply.listing;
    return 0;
}

// ---- handles

// A region in memory for rings: a ring's code, if it begins where the ring does.
struct code {
    struct code *next;
    struct vb_hull_place at;
    struct vb_mr *mr;
};

// An object that the hull has: its number, and the request that made it.
struct item {
    struct vb_nic *nic;
    struct code **codes;
    uint32_t number;
    struct vb_hull_listing listing;
};

#define FIND(type, list, member)                                                           \
    static struct type *find_##type(struct vb_nic *nic, uint32_t number)                   \
    {                                                                                      \
        for (struct vb_link *l = nic->list.head.next; l != &nic->list.head; l = l->next) { \
            struct type *object = VB_CONTAINER_OF(l, struct type, link);                   \
            if (object->member == number)                                                  \
                return object;                                                             \
        }                                                                                  \
        return NULL;                                                                       \
    }

FIND(vb_pd, pds, pd)
FIND(vb_channel, channels, number)
FIND(vb_program, programs, number)

static struct vb_cq *find_cq(const struct vb_nic *nic, uint32_t number)
{
    return number && number <= nic->cq_room ? nic->cq_by_number[number - 1] : NULL;
}

static int take_memory(struct item *i)
{
    return vb_attach_map(i->nic->attach, i->number, &i->listing);
}

static int take_pd(struct item *i)
{
    struct vb_pd *pd = calloc(1, sizeof *pd);

    if (!pd)
        return -ENOMEM;
    *pd = (struct vb_pd){.nic = i->nic, .pd = i->number};
    vb_fifo_push(&i->nic->pds, &pd->link);
    return 0;
}

// What lies in memory for rings keeps its pages; whether it is a ring is known with the queue pair.
static int note_code(struct item *i, struct vb_mr *mr)
{
    const struct vb_hull_key *k = &i->listing.made.key;
    const struct vb_attach_memory *m = vb_attach_memory_of(i->nic->attach, k->at.memory);

    if (!m || !m->used || k->len == 0)
        return 0;
    struct code *code = malloc(sizeof *code);
    if (!code)
        return -ENOMEM;
    *code = (struct code){.next = *i->codes, .at = k->at, .mr = mr};
    *i->codes = code;
    vb_attach_claim(i->nic->attach, &k->at, k->len);
    return 0;
}

static int take_mr(struct item *i)
{
    struct vb_mr *mr = calloc(1, sizeof *mr);

    if (!mr)
        return -ENOMEM;
    *mr = (struct vb_mr){.nic = i->nic, .key = i->number};
    vb_fifo_push(&i->nic->mrs, &mr->link);
    return note_code(i, mr);
}

static int take_mw(struct item *i)
{
    struct vb_mw *mw = calloc(1, sizeof *mw);

    if (!mw)
        return -ENOMEM;
    *mw = (struct vb_mw){.nic = i->nic, .key = i->listing.made.value};
    vb_fifo_push(&i->nic->mws, &mw->link);
    return 0;
}

static int take_channel(struct item *i)
{
    struct vb_channel *channel = calloc(1, sizeof *channel);

    if (!channel)
        return -ENOMEM;
    *channel = (struct vb_channel){.nic = i->nic, .number = i->number};
    int err = vb_attach_channel_open(i->nic->attach, i->number, &channel->fd);
    if (err) {
        free(channel);
        return err;
    }
    vb_fifo_init(&channel->due);
    vb_fifo_push(&i->nic->channels, &channel->link);
    return 0;
}

// ---- queues

static int enter_cq(struct vb_cq *cq, struct item *i)
{
    struct vb_nic *nic = i->nic;
    const struct vb_hull_cq *q = &i->listing.made.cq;
    uint64_t produced;

    cq->driver.ring = vb_attach_claim(nic->attach, &q->ring, (uint64_t)q->entries * VB_CQE_BYTES);
    cq->driver.dbrec = vb_attach_claim(nic->attach, &q->record, VB_ATTACH_DEED);
    if (!cq->driver.ring || !cq->driver.dbrec)
        return -EPROTO;
    int err = vb_attach_cq_produced(nic->attach, cq->cqn, &produced);
    if (!err)
        err = vb_host_enlist(&nic->cq_by_number, &nic->cq_room, cq->cqn, cq);
    if (err)
        return err;
    vb_driver_cq_recover(&cq->driver, produced);
    vb_fifo_push(&nic->cqs, &cq->link);
    if (cq->channel)
        cq->channel->users++;
    return 0;
}

static int take_cq(struct item *i)
{
    const struct vb_hull_cq *q = &i->listing.made.cq;
    struct vb_cq *cq = calloc(1, sizeof *cq);

    if (!cq)
        return -ENOMEM;
    *cq = (struct vb_cq){.nic = i->nic,
                         .lane = &i->nic->lane[q->unit & (i->nic->lanes - 1)],
                         .channel = find_vb_channel(i->nic, q->channel),
                         .cqn = i->number,
                         .overwrites = q->ignore_overrun};
    cq->driver.entries = q->entries;
    cq->driver.outlives = true;
    cq->driver.find_srq = vb_host_find_srq;
    int err = enter_cq(cq, i);
    if (err)
        free(cq);
    return err;
}

// The list of free entries is made when all who may have one are known.
static int take_srq(struct item *i)
{
    struct vb_nic *nic = i->nic;
    const struct vb_hull_srq *q = &i->listing.made.srq;
    uint64_t bytes = (uint64_t)q->entries * q->stride_bytes;
    struct vb_srq *srq = calloc(1, sizeof *srq);

    if (!srq)
        return -ENOMEM;
    *srq = (struct vb_srq){.nic = nic, .srqn = i->number};
    srq->driver.entries = q->entries;
    srq->driver.stride = q->stride_bytes;
    srq->driver.max_sge = q->stride_bytes / VB_WQE_SEG_BYTES - 1;
    if (srq->driver.max_sge > VB_MAX_SGE)
        srq->driver.max_sge = VB_MAX_SGE;
    srq->driver.ring = vb_attach_claim(nic->attach, &q->ring,
                                       bytes + vb_attach_recv_notes(nic->attach, q->entries));
    srq->driver.dbrec = vb_attach_claim(nic->attach, &q->record, VB_ATTACH_DEED);
    int err = srq->driver.ring && srq->driver.dbrec ? 0 : -EPROTO;
    if (!err)
        err = vb_host_enlist(&nic->srq_by_number, &nic->srq_room, srq->srqn, srq);
    if (err) {
        free(srq);
        return err;
    }
    srq->driver.wr_id = (void *)(srq->driver.ring + bytes);
    vb_fifo_push(&nic->srqs, &srq->link);
    return 0;
}

// ---- queue pairs

static bool claim_rings(struct vb_attach *a, const struct vb_hull_qp *q, struct vb_driver_qp *d)
{
    uint64_t send = (uint64_t)q->send_blocks * VB_WQEBB_BYTES;
    uint64_t recv = (uint64_t)q->recv_entries * q->recv_stride_bytes;

    d->sq.ring = vb_attach_claim(a, &q->send, send + vb_attach_send_notes(a, q->send_blocks));
    d->dbrec = vb_attach_claim(a, &q->record, VB_ATTACH_RECORD);
    if (!d->sq.ring || !d->dbrec)
        return false;
    d->sq.wr_id = (void *)(d->sq.ring + send);
    d->sq.size = d->sq.ring + send + q->send_blocks * sizeof *d->sq.wr_id;
    d->deed = (void *)((uint8_t *)d->dbrec + VB_ATTACH_DEED);
    if (q->recv_entries == 0)
        return true;
    d->rq.ring = vb_attach_claim(a, &q->recv, recv + vb_attach_recv_notes(a, q->recv_entries));
    d->rq.wr_id = d->rq.ring ? (void *)(d->rq.ring + recv) : NULL;
    return d->rq.ring;
}

static void describe(struct vb_driver_qp *d, const struct vb_hull_qp *q)
{
    d->heads = q->type == VB_QPT_UD        ? VB_WQE_HEAD_DATAGRAM
               : q->type == VB_QPT_XRC_INI ? VB_WQE_HEAD_XRC
                                           : VB_WQE_HEAD_PLAIN;
    d->cross = q->chain & VB_QP_CROSS_CHANNEL;
    d->sq.blocks = q->send_blocks;
    d->sq.start = q->send_start;
    d->sq.managed = q->chain & VB_QP_MANAGED_SEND;
    d->rq.entries = q->recv_entries;
    d->rq.stride = q->recv_stride_bytes;
    d->rq.max_sge = q->recv_stride_bytes / VB_WQE_SEG_BYTES;
    d->rq.start = d->rq.pi = d->rq.ci = q->recv_start;
    d->rq.managed = q->chain & VB_QP_MANAGED_RECV;
}

static bool is_at(const struct vb_hull_place *a, const struct vb_hull_place *b)
{
    return a->memory == b->memory && a->offset == b->offset;
}

// Rings that are registered as memory end with their queue pair.
static void take_code(struct vb_qp *qp, const struct vb_hull_qp *q, const struct code *codes)
{
    for (const struct code *c = codes; c; c = c->next) {
        if (!is_at(&c->at, &q->send) && !(q->recv_entries && is_at(&c->at, &q->recv)))
            continue;
        c->mr->code = true;
        vb_fifo_push(&qp->code, &c->mr->code_link);
    }
}

static int take_program(struct item *i)
{
    const struct vb_hull_program *made = &i->listing.made.program;
    struct vb_pd *pd = find_vb_pd(i->nic, made->pd);
    struct vb_program *program = pd ? calloc(1, sizeof *program) : NULL;

    if (!program)
        return pd ? -ENOMEM : -EPROTO;
    *program = (struct vb_program){
        .nic = i->nic, .pd = pd, .audit = find_cq(i->nic, made->audit_cqn), .number = i->number};
    if (program->audit)
        program->audit->driver.audits = true;
    vb_fifo_push(&i->nic->programs, &program->link);
    return 0;
}

static int take_qp(struct item *i)
{
    static const enum vb_service services[VB_QPT_COUNT] = {
        [VB_QPT_RC] = VB_SERVICE_RC,
        [VB_QPT_UC] = VB_SERVICE_UC,
        [VB_QPT_UD] = VB_SERVICE_UD,
        [VB_QPT_XRC_INI] = VB_SERVICE_XRC_SEND,
        [VB_QPT_XRC_TGT] = VB_SERVICE_XRC_RECV,
    };
    struct vb_nic *nic = i->nic;
    const struct vb_hull_qp *q = &i->listing.made.qp;
    struct vb_qp *qp = calloc(1, sizeof *qp);

    if (!qp)
        return -ENOMEM;
    *qp = (struct vb_qp){.nic = nic,
                         .pd = find_vb_pd(nic, q->pd),
                         .program = find_vb_program(nic, i->listing.made.value),
                         .service = services[q->type % VB_QPT_COUNT],
                         .send_cq = find_cq(nic, q->send_cqn),
                         .recv_cq = find_cq(nic, q->recv_cqn)};
    vb_fifo_init(&qp->code);
    describe(&qp->driver, q);
    qp->driver.qpn = i->number;
    if (q->srqn && q->type <= VB_QPT_UD)
        qp->driver.srq = vb_host_find_srq(nic, q->srqn);
    if (!qp->pd || !qp->send_cq || !qp->recv_cq || !claim_rings(nic->attach, q, &qp->driver)) {
        free(qp);
        return -EPROTO;
    }
    qp->driver.doorbells = &vb_attach_page(nic, qp->send_cq->lane)->qps;
    nic->qp_by_index[i->number & (VB_DOORBELL_QPS - 1)] = qp;
    vb_fifo_push(&nic->qps, &qp->link);
    take_code(qp, q, *i->codes);
    return 0;
}

// ---- where the last owner stood

static struct vb_qp *find_qp(struct vb_nic *nic, uint32_t qpn)
{
    struct vb_qp *qp = nic->qp_by_index[qpn & (VB_DOORBELL_QPS - 1)];
    return qp && qp->driver.qpn == qpn ? qp : NULL;
}

// Of queue pairs that it had destroyed, completions may be left.
static bool is_known(void *ctx, uint32_t qpn, uint32_t srqn)
{
    struct vb_nic *nic = ctx;
    const struct vb_srq *srq = srqn && srqn <= nic->srq_room ? nic->srq_by_number[srqn - 1] : NULL;

    return find_qp(nic, qpn) || (srq && srq->cq);
}

// It was on its way to RESET: the device has done it, or was never asked.
static int finish_reset(struct vb_qp *qp)
{
    enum vb_qp_state state;
    struct vb_driver_deed *deed = qp->driver.deed;

    if (!__atomic_load_n(&deed->resetting, __ATOMIC_ACQUIRE))
        return 0;
    int err = vb_attach_qp_state(qp->nic->attach, qp->driver.qpn, &state);
    if (!err && state == VB_QPS_RESET)
        vb_host_finish_reset(qp);
    if (!err)
        __atomic_store_n(&deed->resetting, 0, __ATOMIC_RELEASE);
    return err;
}

static int recover_qp(struct vb_qp *qp)
{
    struct vb_qp_progress progress;
    int err = vb_attach_qp_progress(qp->nic->attach, qp->driver.qpn, &progress);

    if (!err)
        vb_driver_qp_recover(&qp->driver, &progress, &qp->send_cq->driver, &qp->recv_cq->driver);
    return err;
}

// The device is asked before the rings are looked at, and the queue before those who take from it.
static int recover_srq(struct vb_srq *srq)
{
    struct vb_nic *nic = srq->nic;
    struct vb_srq_progress progress;
    struct vb_qp_progress of_qp;
    uint8_t *is_used = calloc(srq->driver.entries, 1);
    int err = is_used ? vb_attach_srq_progress(nic->attach, srq->srqn, &progress) : -ENOMEM;

    for (struct vb_link *l = nic->qps.head.next; !err && l != &nic->qps.head; l = l->next) {
        const struct vb_qp *qp = VB_CONTAINER_OF(l, struct vb_qp, link);
        if (qp->driver.srq != &srq->driver && qp->service != VB_SERVICE_XRC_RECV)
            continue;
        err = vb_attach_qp_progress(nic->attach, qp->driver.qpn, &of_qp);
        if (!err && of_qp.recv_shared)
            is_used[(of_qp.recv_shared - 1) & (srq->driver.entries - 1)] = 1;
    }
    for (struct vb_link *l = nic->cqs.head.next; !err && l != &nic->cqs.head; l = l->next)
        vb_driver_cq_mark(&VB_CONTAINER_OF(l, struct vb_cq, link)->driver, srq->srqn,
                          srq->driver.entries, is_used);
    if (!err)
        vb_driver_srq_recover(&srq->driver, &progress, is_used);
    free(is_used);
    return err;
}

#define FOR_EACH(type, list, object)                                                          \
    for (struct vb_link *l_##list = nic->list.head.next; !err && l_##list != &nic->list.head; \
         l_##list = l_##list->next)                                                           \
        for (struct type *object = VB_CONTAINER_OF(l_##list, struct type, link); object;      \
             object = NULL)

static int recover(struct vb_nic *nic)
{
    int err = 0;

    FOR_EACH(vb_cq, cqs, cq) vb_driver_cq_sift(&cq->driver, is_known, nic);
    FOR_EACH(vb_qp, qps, qp) err = finish_reset(qp);
    FOR_EACH(vb_qp, qps, qp) err = recover_qp(qp);
    FOR_EACH(vb_srq, srqs, srq) err = recover_srq(srq);
    return err;
}

// ---- the session

typedef int take(struct item *i);

static int take_all(struct vb_nic *nic, enum vb_hull_listed kind, take *one, struct code **codes)
{
    struct item i = {.nic = nic, .codes = codes};
    int err = 0;

    while (!err && (err = vb_attach_next(nic->attach, kind, &i.number, &i.listing)) == 0 &&
           i.number)
        err = one(&i);
    return err;
}

static int take_over(struct vb_nic *nic)
{
    static take *const takes[VB_HULL_LISTS] = {
        [VB_HULL_LIST_MEMORY] = take_memory,   [VB_HULL_LIST_PD] = take_pd,
        [VB_HULL_LIST_REGION] = take_mr,       [VB_HULL_LIST_WINDOW] = take_mw,
        [VB_HULL_LIST_CHANNEL] = take_channel, [VB_HULL_LIST_CQ] = take_cq,
        [VB_HULL_LIST_PROGRAM] = take_program, [VB_HULL_LIST_SRQ] = take_srq,
        [VB_HULL_LIST_QP] = take_qp,
    };
    struct code *codes = NULL;
    int err = 0;

    for (uint32_t kind = 0; !err && kind < VB_HULL_LISTS; kind++)
        err = take_all(nic, (enum vb_hull_listed)kind, takes[kind], &codes);
    while (codes) {
        struct code *next = codes->next;
        free(codes);
        codes = next;
    }
    return err ? err : recover(nic);
}

static int swap_page(struct vb_attach *a, int fd)
{
    const uint64_t bytes = vb_hull_page_bytes(a->units);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (page == MAP_FAILED)
        return -errno;
    munmap(a->page, bytes);
    a->page = page;
    return 0;
}

int vb_attach_service(struct vb_nic *nic, const char *name)
{
    struct vb_attach *a = nic->attach;
    struct vb_hull_request request = {.op = VB_HULL_SERVICE};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS] = {-1, -1};

    if (strlen(name) >= VB_HULL_NAME) {
        snprintf(a->text, sizeof a->text, "the name of a service has at most %d characters",
                 VB_HULL_NAME - 1);
        return -ENAMETOOLONG;
    }
    snprintf(request.memory.name, sizeof request.memory.name, "%s", name);
    int err = vb_attach_call(a, &request, &reply, -1, fds);
    if (err)
        return err;
    a->service = true;
    a->lives = reply.session.lives;
    err = swap_page(a, fds[0]);
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (err || !a->lives)
        return err;
    vb_host_lock(nic);
    err = take_over(nic);
    vb_host_unlock(nic);
    if (err)
        snprintf(a->text, sizeof a->text, "service '%s' cannot be taken over: %s", name,
                 strerror(-err));
    return err;
}

void vb_attach_detach(struct vb_nic *nic)
{
    if (nic->attach->socket >= 0)
        close(nic->attach->socket);
    nic->attach->socket = -1;
    nic->orphan = true;
}
