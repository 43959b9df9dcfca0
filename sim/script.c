// SPDX-License-Identifier: Apache-2.0
// The hosts' turns.
#include "sim/script.h"

#include "base/bytes.h"
#include "sim/connection.h"
#include "sim/cq.h"
#include "sim/model.h"
#include "sim/plan.h"
#include "sim/trace.h"
#include "sim/unreliable.h"

#include <errno.h>
#include <string.h>

enum {
    POLL_MAX = 16,
    BATCH_MAX = 16,
    IDLE_MAX_NS = 200000
};

static uint64_t draw(struct vb_node *node, uint64_t lo, uint64_t hi)
{
    return vb_prng_range(&node->world->prng, lo, hi);
}

static bool chance(struct vb_node *node, uint32_t ppm)
{
    return vb_prng_chance(&node->world->prng, ppm);
}

// ---- polling

static struct vb_driver_qp *find_qp(void *ctx, uint32_t qpn)
{
    struct vb_node *node = ctx;

    for (uint32_t i = 0; i < node->ep_count; i++)
        if (node->ep[i]->qpn == qpn)
            return &node->ep[i]->drv;
    return NULL;
}

// Gives buffers back and looks for errors.
static void settle(struct vb_node *node, uint32_t cq, const struct vb_wc *wc)
{
    const struct vb_simcq *c = &node->cq[cq];
    // The model has taken the entry from its list just now.
    const struct vb_due *due = &c->due[(c->due_head - 1) & c->due_mask];
    struct vb_ep *ep = due->ep;

    if (due->receive && !vb_ep_shares(ep))
        ep->recv.tail = vb_ep_intake(ep, due->position)->slot_end;
    else if (!due->receive)
        ep->local.tail = vb_ep_work(ep, due->position)->slot_end;
    if (wc->status != VB_WC_OK && !vb_unreliable_goes_on(ep, due->receive)) {
        ep->saw_error = true;
        vb_conn_broken(ep->conn);
    }
}

static bool poll(struct vb_node *node, uint32_t cq, uint32_t max)
{
    struct vb_wc wc[POLL_MAX];
    int n = vb_driver_poll(&node->cq[cq].drv, find_qp, node, wc, (int)max);

    for (int i = 0; i < n && !node->world->violated; i++) {
        vb_model_polled(node, cq, &wc[i]);
        if (!node->world->violated)
            settle(node, cq, &wc[i]);
    }
    if (n < (int)max && !node->world->violated)
        vb_model_polled_nothing(node, cq);
    vb_simcq_act(node, &node->cq[cq]);
    return n > 0;
}

void vb_script_drain(struct vb_node *node, uint32_t cq)
{
    while (!node->world->violated && poll(node, cq, POLL_MAX))
        ;
}

// ---- receives

static bool post_recv(struct vb_ep *ep)
{
    struct vb_intake *in = vb_ep_intake(ep, ep->answer.posted);
    const struct vb_slots before = ep->recv;
    struct vb_intake planned;

    if (ep->drv.rq.pi - ep->drv.rq.ci == ep->drv.rq.entries) {
        vb_cover(ep->node->world->cover, VB_COVER_LIMIT_RQ);
        return false;
    }
    if (!vb_plan_intake(ep, &planned)) {
        ep->recv = before;
        return false;
    }
    planned.counter = ep->drv.rq.pi;
    const struct vb_recv_wr wr = {planned.wr_id, planned.sge, planned.num_sge};
    int n = vb_driver_post_recv(&ep->drv, &wr, 1);
    VB_MODEL_CHECK(ep, n == 1, "posting a receive returned %d", n);
    *in = planned;
    vb_model_posted_recv(ep);
    if ((ep->drv.rq.pi & 0xffff) == 0)
        vb_cover(ep->node->world->cover, VB_COVER_WRAP_RQ);
    vb_node_wake(ep->node);
    return true;
}

static bool post_recvs(struct vb_ep *ep)
{
    uint64_t now = ep->node->world->now_ns;
    bool posted = false;

    if (ep->state == VB_QPS_RESET || !vb_conn_takes_posts(ep) || now < ep->starved_until_ns ||
        ep->drv.rq.entries == 0)
        return false;
    for (uint64_t n = draw(ep->node, 1, 8); n > 0 && post_recv(ep); n--)
        posted = true;
    return posted;
}

// ---- sends

// Completes or damages the entry that was just posted; the NIC has had no turn since.
static void retouch(struct vb_ep *ep, struct vb_work *work, enum vb_bad bad)
{
    struct vb_driver_sq *sq = &ep->drv.sq;
    uint32_t slot = (uint32_t)(work->counter & (sq->blocks - 1));
    struct vb_wqe_ctrl *ctrl = (struct vb_wqe_ctrl *)(void *)(sq->ring + slot * VB_WQEBB_BYTES);

    if (work->opcode == VB_WR_FLUSH && work->flush.persistent)
        ctrl->imm |= htobe32(VB_WQE_FLUSH_PERSISTENT);
    if (bad == VB_BAD_WQE_DS && sq->size[slot] == 1) {
        ctrl->ds = 0;
        ep->muted = true; // without a length nothing behind it can be found
    } else if (bad == VB_BAD_WQE_OPCODE) {
        ctrl->opcode = (uint8_t)draw(ep->node, VB_WQE_ATOMIC_WRITE + 1, 0xff);
    } else if (bad == VB_BAD_WQE_OWNER) {
        (chance(ep->node, 500000) ? ctrl->idx : ctrl->qpn)[1] ^= 0x40;
    } else if (bad == VB_BAD_WQE_SHORT && sq->size[slot] == 1 && vb_plan_right(work->opcode)) {
        ctrl->ds = 1; // where the peer's memory is to be found is missing
    } else if (bad == VB_BAD_WQE_OPMOD) {
        ctrl->opmod = (uint8_t)draw(ep->node, VB_WQE_OPMOD_MASKED8 + 1, 0xff);
    } else {
        return;
    }
    work->malformed = true;
}

static uint32_t run_after(const struct vb_ep *ep, const struct vb_work *work)
{
    return work->flags & VB_WR_SIGNALED ? 0 : ep->ask.unsignaled_run + vb_plan_weight(work);
}

static void posted(struct vb_ep *ep, const struct vb_work *planned, uint64_t counter,
                   enum vb_bad bad)
{
    struct vb_world *w = ep->node->world;
    struct vb_work *work = vb_ep_work(ep, ep->ask.posted);

    *work = *planned;
    work->counter = counter;
    ep->ask.unsignaled_run = run_after(ep, work);
    retouch(ep, work, bad);
    vb_plan_cover(ep, work, bad);
    vb_model_posted(ep, work);
    w->works++;
    w->works_unreliable += vb_ep_is_unreliable(ep);
    ep->peer->node->tally.asked_to_count += work->counts;
    vb_digest_add(&w->digest, work->wr_id << 32 | work->len);
    if (((counter + ep->drv.sq.size[counter & (ep->drv.sq.blocks - 1)]) & ~0xffffull) !=
        (counter & ~0xffffull))
        vb_cover(w->cover, VB_COVER_WRAP_SQ);
    vb_trace_note(w, "nic%u post     qp %06x op %d len %u flags %x sges %u bad %d", ep->node->index,
                  ep->qpn, (int)work->opcode, work->len, work->flags, work->num_sge, (int)bad);
}

static uint32_t plan_batch(struct vb_ep *ep, struct vb_work *works, uint32_t max,
                           struct vb_slots *before, enum vb_bad *bad)
{
    struct vb_world *w = ep->node->world;
    uint32_t run = ep->ask.unsignaled_run, n = 0;

    ep->keys_planned = 0;
    if (w->phase == VB_PHASE_FAULTS && chance(ep->node, w->scen.bad_ppm * max)) {
        // Few queue pairs lack a right or have a neighbour's window, so these faults are drawn more
        // often than the others.
        *bad = chance(ep->node, 150000)  ? VB_BAD_QP_RIGHT
               : chance(ep->node, 80000) ? VB_BAD_INVAL_QP
                                         : (enum vb_bad)draw(ep->node, 1, VB_BAD_COUNT - 1);
        max = 1;
    }
    for (; n < max; n++) {
        before[n] = ep->local;
        if (!vb_plan_work(ep, &works[n], bad)) {
            ep->local = before[n];
            break;
        }
        ep->ask.unsignaled_run = run_after(ep, &works[n]);
    }
    ep->ask.unsignaled_run = run;
    return n;
}

static struct vb_send_wr request_of(const struct vb_work *work)
{
    struct vb_send_wr wr = {.wr_id = work->wr_id,
                            .sge = work->sge,
                            .num_sge = work->num_sge,
                            .opcode = work->opcode,
                            .flags = work->flags,
                            .rkey = work->rkey,
                            .raddr = work->raddr,
                            .imm = work->imm,
                            .srqn = work->srqn};
    static const struct vb_ip nowhere;

    if (!vb_ip_equal(&work->to.addr, &nowhere)) { // a datagram, also to number 0
        memcpy(wr.to.gid, work->to.addr.b, sizeof wr.to.gid);
        wr.to.qpn = work->to.qpn;
        wr.to.qkey = work->to.qkey;
    } else if (vb_work_is_atomic(work)) {
        wr.atomic.swap_add = work->atomic.swap_add;
        wr.atomic.compare = work->atomic.compare;
        wr.atomic.swap_mask = work->atomic.swap_mask;
        wr.atomic.compare_mask = work->atomic.compare_mask;
        wr.atomic.arg_bytes = work->atomic.bytes;
    } else if (work->opcode == VB_WR_BIND) {
        wr.bind.window = work->bind.window;
        wr.bind.region = work->bind.region;
        wr.bind.addr = work->bind.addr;
        wr.bind.len = work->bind.len;
        wr.bind.rights = work->bind.rights;
        wr.bind.zero_based = work->bind.zero_based;
    } else if (work->opcode == VB_WR_FLUSH) {
        wr.flush.len = work->flush.len;
        wr.flush.whole_region = work->flush.whole_region;
    }
    return wr;
}

static bool post_batch(struct vb_ep *ep, const struct vb_work *works, const struct vb_slots *before,
                       uint32_t count, enum vb_bad bad)
{
    struct vb_send_wr wr[BATCH_MAX];
    uint64_t counter = ep->drv.sq.pi;

    for (uint32_t i = 0; i < count; i++)
        wr[i] = request_of(&works[i]);
    int n = vb_driver_post_send(&ep->drv, wr, count);
    VB_MODEL_CHECK(ep, n >= 0, "posting returned %d", n);
    for (int i = 0; i < n; i++) {
        uint8_t blocks = ep->drv.sq.size[counter & (ep->drv.sq.blocks - 1)];
        posted(ep, &works[i], counter, bad);
        counter += blocks;
    }
    if (n >= 0 && (uint32_t)n < count)
        ep->local = before[n]; // the queue is full
    if (n > 0)
        vb_node_wake(ep->node);
    return n > 0;
}

static bool post_sends(struct vb_ep *ep)
{
    struct vb_world *w = ep->node->world;
    struct vb_work works[BATCH_MAX];
    struct vb_slots before[BATCH_MAX];
    enum vb_bad bad = VB_BAD_NONE;
    bool open = ep->state == VB_QPS_RTS || ep->state == VB_QPS_SQD || ep->state == VB_QPS_ERR;

    open |= ep->state == VB_QPS_SQE && chance(ep->node, 300000);
    if (!open || !vb_conn_takes_posts(ep) || ep->muted || vb_ep_is_xrc_target(ep))
        return false;
    if (ep->drv.sq.pi - ep->drv.sq.ci == ep->drv.sq.blocks) {
        vb_cover(w->cover, VB_COVER_LIMIT_SQ);
        return false;
    }
    if (w->phase != VB_PHASE_FAULTS) {
        // Everything must end: a last signaled request tells about the unsignaled ones.
        if (ep->ask.unsignaled_run == 0)
            return false;
        before[0] = ep->local;
        vb_plan_marker(ep, &works[0]);
        return post_batch(ep, works, before, 1, bad);
    }
    uint32_t max = (uint32_t)draw(ep->node, 1, ep->conn->mix.batch_max);
    if (!vb_unreliable_may_post(ep, max))
        return false;
    uint32_t n = plan_batch(ep, works, max, before, &bad);
    return n > 0 && post_batch(ep, works, before, n, bad);
}

// ---- breaking things

static void replace_region(struct vb_node *node, struct vb_region *r)
{
    int err = vb_hostmem_deregister(&node->mem, node->dev, r);

    if (err == -EBUSY) {
        vb_cover(node->world->cover, VB_COVER_BAD_DEREG_BOUND);
        return; // windows are bound to it
    }
    if (!err)
        err = vb_hostmem_register(&node->mem, node->dev, r, r->pd, r->access);
    if (err)
        vb_world_violate(node->world, "NIC %u: changing a region returned %d", node->index, err);
    vb_trace_note(node->world, "nic%u region at %u has a new key %08x", node->index, r->offset,
                  r->key);
}

static void misbehave(struct vb_node *node, struct vb_ep *ep)
{
    const struct vb_scenario *s = &node->world->scen;

    if (chance(node, s->dereg_ppm)) {
        bool local = chance(node, 500000);
        if (local && ep->ask.posted != ep->ask.polled)
            vb_cover(node->world->cover, VB_COVER_BAD_DEREG_LOCAL);
        static const enum vb_exposed kinds[] = {VB_EXPOSED_BOTH, VB_EXPOSED_READ, VB_EXPOSED_WRITE,
                                                VB_EXPOSED_ALL};
        replace_region(node, !local ? node->exposed[ep->opts.domain][kinds[draw(node, 0, 3)]]
                             : chance(node, 500000) ? ep->local.region
                                                    : ep->recv.region);
    }
    if (chance(node, s->starve_ppm)) {
        ep->starved_until_ns = node->world->now_ns + draw(node, 10000, 3000000);
        if (ep->srq)
            ep->srq->starved_until_ns = ep->starved_until_ns;
        vb_cover(node->world->cover, VB_COVER_BAD_STARVED);
    }
    if (chance(node, s->fail_ppm) && ep->conn->state == VB_CONN_UP) {
        if (chance(node, 500000))
            vb_conn_fail(ep);
        else
            vb_conn_reset(ep->conn);
    }
    if (chance(node, 20000))
        vb_model_settle(ep);
    if (chance(node, 20000)) {
        const struct vb_region *r = node->exposed[ep->opts.domain][draw(node, 0, 3)];
        uint32_t len = (uint32_t)draw(node, 1, 256);
        vb_hostmem_scribble(&node->mem, r->offset + (uint32_t)draw(node, 0, r->len - len), len);
    }
}

void vb_script_act(struct vb_node *node)
{
    struct vb_world *w = node->world;
    bool busy = false;

    for (uint32_t i = 0; i < node->cq_count; i++)
        if (chance(node, 700000))
            busy |= poll(node, i, (uint32_t)draw(node, 1, POLL_MAX));
    for (uint32_t i = 0; i < node->ep_count; i++)
        if (chance(node, 500000))
            busy |= post_recvs(node->ep[i]);
    for (uint32_t i = 0; i < node->srq_count && !w->violated; i++)
        if (chance(node, 500000))
            busy |= vb_simsrq_act(&node->srq[i]);
    if (w->scen.tight)
        vb_simcq_repair(node);
    for (uint64_t n = node->ep_count ? draw(node, 1, 3) : 0; n > 0 && !w->violated; n--) {
        struct vb_ep *ep = node->ep[draw(node, 0, node->ep_count - 1)];
        busy |= post_sends(ep);
        if (w->phase == VB_PHASE_FAULTS)
            misbehave(node, ep);
    }
    node->idle_ns = busy ? 0 : 2 * node->idle_ns + w->scen.think_ns;
    if (node->idle_ns > IDLE_MAX_NS)
        node->idle_ns = IDLE_MAX_NS;
    node->act_at_ns = w->now_ns + draw(node, 1, node->idle_ns + w->scen.think_ns);
}
