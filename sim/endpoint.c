// SPDX-License-Identifier: Apache-2.0
// Endpoints: the queue pair's creation, its rings of remembered requests, its buffers.
#include "sim/endpoint.h"

#include "sim/world.h"

#include <errno.h>
#include <stdlib.h>

static enum vb_qp_type type_of(const struct vb_ep *ep)
{
    static const enum vb_qp_type types[] = {
        [VB_SERVICE_RC] = VB_QPT_RC,
        [VB_SERVICE_UC] = VB_QPT_UC,
        [VB_SERVICE_UD] = VB_QPT_UD,
        [VB_SERVICE_XRC_SEND] = VB_QPT_XRC_INI,
        [VB_SERVICE_XRC_RECV] = VB_QPT_XRC_TGT,
    };
    return types[ep->opts.service];
}

static int create_qp(struct vb_ep *ep)
{
    const struct vb_ep_opts *o = &ep->opts;
    const struct vb_simcq *send_cq = &ep->node->cq[o->cq[0]];
    struct vb_simcq *recv_cq = &ep->node->cq[o->cq[1]];
    struct vb_qpc_attr attr = {
        .pd = ep->pd,
        .type = type_of(ep),
        .srqn = ep->srq ? ep->srq->srqn : 0,
        .xrcd = o->xrcd,
        .send_cqn = send_cq->cqn,
        .recv_cqn = recv_cq->cqn,
        .sq_ring = ep->drv.sq.ring,
        .sq_blocks = ep->drv.sq.blocks,
        .rq_ring = ep->drv.rq.ring,
        .rq_entries = ep->drv.rq.entries,
        .rq_stride_bytes = ep->drv.rq.stride,
        .dbrec = ep->drv.dbrec,
        .sq_start = o->sq_start,
        .rq_start = o->rq_start,
        .share = vb_ep_share(ep),
    };
    int err = vb_dev_qp_create(ep->node->dev, &attr, &ep->qpn);
    ep->drv.qpn = ep->qpn;
    ep->drv.doorbells = vb_pu_doorbells(vb_ep_unit(ep)->pu);
    ep->drv.srq = ep->srq ? &ep->srq->drv : NULL;
    recv_cq->crosses |= recv_cq->unit != send_cq->unit;
    if (!err && (ep->qpn & (ep->node->world->scen.units - 1)) != send_cq->unit)
        vb_world_violate(ep->node->world, "QP 0x%06x does not name its unit %u", ep->qpn,
                         send_cq->unit);
    return err;
}

static int create_memory(struct vb_ep *ep)
{
    struct vb_hostmem *mem = &ep->node->mem;

    ep->local.region = vb_hostmem_carve(mem, ep->opts.local_bytes);
    ep->recv.region = vb_hostmem_carve(mem, ep->opts.recv_bytes);
    if (!ep->local.region || !ep->recv.region)
        return -ENOMEM;
    ep->window = vb_hostwin_create(mem, ep->node->dev, ep->pd, true);
    if (!ep->window)
        return -ENOMEM;
    int err = vb_hostmem_register(mem, ep->node->dev, ep->local.region, ep->pd, VB_LOCAL_WRITE);
    return err ? err
               : vb_hostmem_register(mem, ep->node->dev, ep->recv.region, ep->pd, VB_LOCAL_WRITE);
}

int vb_ep_prepare(struct vb_ep *ep, const struct vb_ep_opts *opts)
{
    const struct vb_qp_opts qp = {.service = opts->service,
                                  .send_depth = opts->send_depth,
                                  .recv_depth = opts->recv_depth,
                                  .send_sge = opts->send_sge,
                                  .recv_sge = opts->recv_sge,
                                  .inline_bytes = opts->inline_bytes};
    ep->opts = *opts;
    int err = vb_driver_qp_init(&ep->drv, &qp, opts->sq_start, opts->rq_start);
    if (err)
        return err;
    ep->works_mask = ep->drv.sq.blocks - 1;
    uint32_t intakes = ep->drv.rq.entries ? ep->drv.rq.entries : VB_SIM_SRQ_ENTRIES;
    ep->intakes_mask = intakes - 1;
    ep->works = calloc(ep->drv.sq.blocks, sizeof *ep->works);
    ep->intakes = calloc(intakes, sizeof *ep->intakes);
    return ep->works && ep->intakes ? 0 : -ENOMEM;
}

int vb_ep_create(struct vb_ep *ep)
{
    // A target of XRC works in the domains of the queues that requests name, not in its own.
    bool target = vb_ep_is_xrc_target(ep);
    ep->pd = ep->node->pd[target ? !ep->opts.domain : ep->opts.domain];
    ep->srq = ep->opts.srq ? &ep->node->srq[ep->opts.srq - 1] : NULL;
    int err = create_qp(ep);
    return err ? err : create_memory(ep);
}

int vb_ep_remove(struct vb_ep *ep)
{
    int err = vb_dev_qp_destroy(ep->node->dev, ep->qpn);

    vb_driver_qp_reset(&ep->drv);
    vb_node_wake(ep->node); // others may have waited for what it had in flight
    return err ? err : vb_hostwin_replace(ep->node->dev, ep->window);
}

int vb_ep_renew(struct vb_ep *ep)
{
    return create_qp(ep);
}

int vb_ep_recreate(struct vb_ep *ep)
{
    int err = vb_ep_remove(ep);
    return err ? err : create_qp(ep);
}

void vb_ep_destroy(struct vb_ep *ep)
{
    vb_driver_qp_fini(&ep->drv);
    free(ep->works);
    free(ep->intakes);
    free(ep->fate.loss);
}

bool vb_ep_owes_completion(struct vb_ep *ep)
{
    for (uint64_t i = ep->ask.retired; i < ep->ask.done; i++)
        if (vb_ep_work(ep, i)->flags & VB_WR_SIGNALED)
            return true;
    return false;
}

bool vb_ep_is_drained(struct vb_ep *ep)
{
    const struct vb_asking *a = &ep->ask;

    // Unsignaled requests at the end may be done without a word.
    return a->done == a->posted && a->polled == a->retired && !vb_ep_owes_completion(ep) &&
           ep->answer.polled == ep->answer.posted;
}

bool vb_slots_take(struct vb_slots *s, uint32_t len, uint32_t *offset, uint64_t *end)
{
    uint64_t size = s->region->len;
    uint64_t at = s->head % size + len > size ? (s->head / size + 1) * size : s->head;

    if (at + len - s->tail > size)
        return false;
    *offset = (uint32_t)(at % size);
    *end = s->head = at + len;
    return true;
}
