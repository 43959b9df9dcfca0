// SPDX-License-Identifier: Apache-2.0
// Services, as the application sees them: what it finds of its last life. The hull knows tags and
// order; handles were made when the NIC was opened, and are looked up by number.
#include "host/attach.h"
#include "host/host.h"

#include <errno.h>
#include <string.h>

static int judge(const struct vb_nic *nic)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    return nic->attach && nic->attach->service ? 0 : -EINVAL;
}

int vb_service_tag(struct vb_nic *nic, uint32_t tag)
{
    int err = judge(nic);

    if (err)
        return err;
    vb_host_lock(nic);
    nic->attach->tag = tag;
    vb_host_unlock(nic);
    return 0;
}

int vb_service_lives(const struct vb_nic *nic, uint32_t *lives)
{
    int err = judge(nic);

    if (!err)
        *lives = nic->attach->lives;
    return err;
}

int vb_service_release(struct vb_nic *nic)
{
    struct vb_hull_request request = {.op = VB_HULL_SERVICE_RELEASE};
    struct vb_hull_reply reply;
    int err = judge(nic);

    if (err)
        return err;
    vb_host_lock(nic);
    err = vb_attach_call(nic->attach, &request, &reply, -1, NULL);
    if (!err)
        nic->attach->service = false;
    vb_host_unlock(nic);
    return err;
}

// ---- finding

// Memory for rings is not the application's.
int vb_service_find(struct vb_nic *nic, enum vb_hull_listed kind, uint32_t tag, uint32_t i,
                    uint32_t *number, struct vb_hull_listing *listing)
{
    uint32_t at = 0;
    int err;

    while ((err = vb_attach_next(nic->attach, kind, &at, listing)) == 0 && at) {
        bool own = kind == VB_HULL_LIST_MEMORY && listing->made.memory.rings;
        if (listing->made.number != tag || own || i-- > 0)
            continue;
        *number = at;
        return 0;
    }
    return err ? err : -ENOENT;
}

int vb_service_memory(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_service_memory *out)
{
    struct vb_hull_listing listing;
    uint32_t number;
    int err = judge(nic);

    if (err)
        return err;
    vb_host_lock(nic);
    err = vb_service_find(nic, VB_HULL_LIST_MEMORY, tag, i, &number, &listing);
    const struct vb_attach_memory *m = err ? NULL : vb_attach_memory_of(nic->attach, number);
    if (m) {
        *out = (struct vb_service_memory){.addr = m->base, .bytes = m->bytes, .was = m->was};
        memcpy(out->name, m->name, sizeof out->name);
    }
    vb_host_unlock(nic);
    return err ? err : m ? 0 : -ENOENT;
}

static_assert(sizeof(((struct vb_service_memory *)NULL)->name) == VB_HULL_NAME, "the hull's");

// The handle in a list whose number is this one.
#define FIND(function, type, list, kind, number_of)                                           \
    int function(struct vb_nic *nic, uint32_t tag, uint32_t i, struct type **out)             \
    {                                                                                         \
        struct vb_hull_listing listing;                                                       \
        uint32_t number;                                                                      \
        int err = judge(nic);                                                                 \
        if (err)                                                                              \
            return err;                                                                       \
        vb_host_lock(nic);                                                                    \
        err = vb_service_find(nic, kind, tag, i, &number, &listing);                          \
        bool found = false;                                                                   \
        for (struct vb_link *l = nic->list.head.next; !err && l != &nic->list.head && !found; \
             l = l->next) {                                                                   \
            struct type *object = VB_CONTAINER_OF(l, struct type, link);                      \
            found = (number_of) == number;                                                    \
            if (found)                                                                        \
                *out = object;                                                                \
        }                                                                                     \
        vb_host_unlock(nic);                                                                  \
        return err ? err : found ? 0 : -ENOENT;                                               \
    }

FIND(vb_service_pd, vb_pd, pds, VB_HULL_LIST_PD, object->pd)
FIND(vb_service_mr, vb_mr, mrs, VB_HULL_LIST_REGION, object->key)
FIND(vb_service_mw, vb_mw, mws, VB_HULL_LIST_WINDOW, object->key & ~UINT32_C(0xff))
FIND(vb_service_channel, vb_channel, channels, VB_HULL_LIST_CHANNEL, object->number)
FIND(vb_service_cq, vb_cq, cqs, VB_HULL_LIST_CQ, object->cqn)
FIND(vb_service_program, vb_program, programs, VB_HULL_LIST_PROGRAM, object->number)
FIND(vb_service_srq, vb_srq, srqs, VB_HULL_LIST_SRQ, object->srqn)
FIND(vb_service_qp, vb_qp, qps, VB_HULL_LIST_QP, object->driver.qpn)

// ---- what is under way

static int pending_send(const struct vb_driver_sq *sq, uint32_t i, uint64_t *wr_id)
{
    uint64_t at = sq->ci;

    while (at < sq->pi) {
        uint32_t slot = (uint32_t)(at & (sq->blocks - 1));
        if (i-- == 0) {
            *wr_id = sq->wr_id[slot];
            return 0;
        }
        at += sq->size[slot] ? sq->size[slot] : 1;
    }
    return -ENOENT;
}

int vb_service_pending(const struct vb_qp *qp, bool receive, uint32_t i, uint64_t *wr_id)
{
    const struct vb_driver_sq *sq = &qp->driver.sq;
    const struct vb_driver_rq *rq = &qp->driver.rq;

    if (vb_host_is_foreign(qp->nic))
        return -EPERM;
    if (receive ? rq->unbounded || rq->managed : sq->unbounded || sq->managed)
        return -EINVAL;
    if (!receive)
        return pending_send(sq, i, wr_id);
    if (i >= rq->pi - rq->ci)
        return -ENOENT;
    *wr_id = rq->wr_id[(rq->ci + i) & (rq->entries - 1)];
    return 0;
}
