// SPDX-License-Identifier: Apache-2.0
// What the hosts of tenants do, good ones and bad ones.
#include "sim/tenant_world.h"

#include "base/bytes.h"

#include <string.h>

enum {
    LOOPS = 2, // endless programs of a tenant
    BUSY_QPS = 4,
    BUSY_DEPTH = 16,
    BUSY_BYTES = 1024,
    FLOOD_BYTES = 4096,
    FLOOD_SIGNAL = 32,
    PROBE_BYTES = 64,
    PROBE_THINK_NS = 20000,
    FUZZ_QPS = 8,
    FUZZ_STROKES = 32, // of one action
    FUZZ_HEAL = 4,     // in so many actions a queue pair that has failed is brought back
    ACTION_NS = 500,   // between two actions of a host that does all it can
    FLUSH_QPS = 4,
    FLUSH_BLOCKS = 32, // half a ring
    COPY_BYTES = 4095,
    PIECES_BLOCKS = 5, // of an entry with as many pieces as there can be
    WCS = 64,
};

uint32_t vb_tenant_queues(enum vb_tenant_kind kind)
{
    static const uint32_t queues[VB_TENANT_KINDS] = {
        [VB_TENANT_PROBE] = 1,
        [VB_TENANT_BUSY] = BUSY_QPS,
        [VB_TENANT_CHAIN] = VB_TENANT_QPS,
        [VB_TENANT_FUZZ] = FUZZ_QPS,
        [VB_TENANT_FLUSH] = FLUSH_QPS,
        [VB_TENANT_COPY] = LOOPS,
    };
    return queues[kind];
}

bool vb_tenant_loops(enum vb_tenant_kind kind, uint32_t i)
{
    return (kind == VB_TENANT_CHAIN || kind == VB_TENANT_COPY) && i < LOOPS;
}

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct vb_tenant *t = ctx;

    for (uint32_t i = 0; i < t->qps; i++)
        if (t->qp[i].qpn == qpn)
            return &t->qp[i];
    return NULL;
}

static int post(struct vb_tenant *t, uint32_t i, enum vb_wr_opcode op, uint32_t bytes, bool signals)
{
    const struct vb_sge sge = {VB_TENANT_PLACE, bytes, t->key};
    const struct vb_send_wr wr = {.wr_id = i,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = op,
                                  .flags = signals ? VB_WR_SIGNALED : 0,
                                  .rkey = t->far_key,
                                  .raddr = VB_TENANT_PLACE};

    return vb_driver_post_send(&t->qp[i], &wr, 1);
}

// ---- a probe

static void ask(struct vb_tenant *t)
{
    struct vb_wc wc[WCS];

    while (vb_driver_poll(&t->cq, find, t, wc, WCS) > 0)
        ;
    t->rung_ns = t->act_at_ns; // while the NIC was busy, perhaps
    t->act_at_ns = UINT64_MAX;
    t->asked = post(t, 0, VB_WR_READ, PROBE_BYTES, true) == 1;
}

static void saw_probe(struct vb_tenant *t, const struct vb_step *step)
{
    uint64_t now = vb_tenant_now(t->world);

    if (step->kind == VB_STEP_FRAME_OUT)
        t->left_ns = now;
    if (step->kind != VB_STEP_COMPLETE || !t->asked)
        return;
    t->asked = false;
    vb_hist_record(&t->service, t->left_ns - t->rung_ns + now - t->came_ns);
    vb_hist_record(&t->whole, now - t->rung_ns);
    t->act_at_ns = now + 1 + vb_prng_below(&t->prng, 2 * PROBE_THINK_NS);
}

// ---- a good one

static void keep_busy(struct vb_tenant *t)
{
    struct vb_wc wc[WCS];
    int n;

    while ((n = vb_driver_poll(&t->cq, find, t, wc, WCS)) > 0)
        for (int i = 0; i < n; i++)
            post(t, (uint32_t)wc[i].wr_id, vb_prng_below(&t->prng, 2) ? VB_WR_READ : VB_WR_WRITE,
                 BUSY_BYTES, true);
}

// ---- bad ones

// Of three counters a third of the 16 bits apart, one is always ahead by less than half of them: so
// the ring goes round for ever.
static void start_loop(struct vb_tenant *t, uint32_t i)
{
    struct vb_driver_qp *qp = &t->qp[i];
    bool copies = t->kind == VB_TENANT_COPY, pieces = copies && i > 0;
    struct vb_sge sge[VB_MAX_SGE];
    struct vb_send_wr wr = {.sge = sge,
                            .num_sge = pieces ? VB_MAX_SGE : 1,
                            .opcode = copies ? VB_WR_WRITE : VB_WR_FADD,
                            .rkey = t->key,
                            .raddr = VB_TENANT_PLACE};
    uint32_t left = qp->sq.blocks, width = pieces ? PIECES_BLOCKS : 1;

    for (uint32_t n = 0; n < VB_MAX_SGE; n++)
        sge[n] = (struct vb_sge){VB_TENANT_PLACE + 8192, pieces ? 1 : 8, t->key};
    if (copies && !pieces)
        sge[0].len = COPY_BYTES;
    if (!copies)
        wr.atomic.swap_add = 1;
    for (; left >= width + 3; left -= width)
        vb_driver_post_send(qp, &wr, 1);
    for (; left > 0; left--) {
        struct vb_send_wr open = {.opcode = VB_WR_SEND_EN};
        open.cross.number = qp->qpn;
        open.cross.index = left % 3 * 0x5554;
        vb_driver_post_send(qp, &open, 1);
    }
    qp->dbrec[VB_DBREC_SQ] = htobe32(qp->sq.blocks);
    vb_doorbell_ring(qp->doorbells, qp->qpn);
}

// Completions are not looked at: the queue is as full as counters let it be.
static void flood(struct vb_tenant *t)
{
    struct vb_wc wc[WCS];

    while (vb_driver_poll(&t->cq, find, t, wc, WCS) > 0)
        ;
    for (uint32_t i = LOOPS; i < t->qps; i++)
        for (uint32_t n = 0; post(t, i, VB_WR_WRITE, FLOOD_BYTES, n % FLOOD_SIGNAL == 0) == 1; n++)
            ;
}

static void strike(struct vb_tenant *t, uint32_t i)
{
    struct vb_driver_qp *qp = &t->qp[i];
    uint32_t at = (uint32_t)vb_prng_below(&t->prng, qp->sq.blocks * VB_WQEBB_BYTES - 8);
    uint64_t junk = vb_prng_next(&t->prng);

    switch (vb_prng_below(&t->prng, 4)) {
    case 0: memcpy(qp->sq.ring + at, &junk, sizeof junk); break;
    case 1: post(t, i, VB_WR_WRITE, (uint32_t)(junk & 0x1ffff), junk >> 63); break;
    case 2:
        post(t, i, VB_WR_READ, (uint32_t)(junk & 0xfff), false);
        qp->sq.ring[at] ^= (uint8_t)junk;
        break;
    default: qp->dbrec[VB_DBREC_SQ] = (uint32_t)junk; break;
    }
    vb_doorbell_ring(qp->doorbells, qp->qpn);
}

static void fuzz(struct vb_tenant *t)
{
    enum vb_qp_state state = VB_QPS_RESET;

    for (uint32_t n = 0; n < FUZZ_STROKES; n++)
        strike(t, (uint32_t)vb_prng_below(&t->prng, t->qps));
    for (uint32_t i = 0; i < t->qps; i++) {
        vb_dev_qp_state(t->world->dev, t->qp[i].qpn, &state);
        if (state != VB_QPS_RTS && vb_prng_below(&t->prng, FUZZ_HEAL) == 0) {
            vb_driver_qp_reset(&t->qp[i]);
            vb_tenant_connect(t, i);
        }
    }
}

static void post_to_the_dead(struct vb_tenant *t)
{
    for (uint32_t i = 0; i < t->qps; i++) {
        struct vb_driver_qp *qp = &t->qp[i];
        struct vb_qp_progress progress = {0};
        vb_dev_qp_progress(t->world->dev, qp->qpn, &progress);
        qp->dbrec[VB_DBREC_SQ] = htobe32((progress.fetched + FLUSH_BLOCKS) & 0xffff);
        vb_doorbell_ring(qp->doorbells, qp->qpn);
    }
}

// ---- all

static void kill_queues(struct vb_tenant *t)
{
    for (uint32_t i = 0; i < t->qps; i++) {
        for (uint32_t b = 0; b < t->qp[i].sq.blocks; b++)
            t->qp[i].sq.ring[b * VB_WQEBB_BYTES + 7] = 1; // entries of one block
        vb_dev_qp_modify(t->world->dev, t->qp[i].qpn, &(struct vb_qpc_mods){.state = VB_QPS_ERR});
    }
}

void vb_tenant_start(struct vb_tenant *t)
{
    for (uint32_t i = 0; i < t->qps; i++) {
        if (vb_tenant_loops(t->kind, i))
            start_loop(t, i);
        for (uint32_t n = 0; t->kind == VB_TENANT_BUSY && n < BUSY_DEPTH; n++)
            post(t, i, VB_WR_WRITE, BUSY_BYTES, true);
    }
    if (t->kind == VB_TENANT_FLUSH)
        kill_queues(t);
    t->act_at_ns = t->kind == VB_TENANT_IDLE ? UINT64_MAX : 1;
}

void vb_tenant_act(struct vb_tenant *t)
{
    if (t->kind == VB_TENANT_PROBE) {
        ask(t);
        return;
    }
    if (t->kind == VB_TENANT_BUSY)
        keep_busy(t);
    else if (t->kind == VB_TENANT_CHAIN)
        flood(t);
    else if (t->kind == VB_TENANT_FUZZ)
        fuzz(t);
    else if (t->kind == VB_TENANT_FLUSH)
        post_to_the_dead(t);
    t->act_at_ns = t->world->now_ns + ACTION_NS;
}

void vb_tenant_saw(struct vb_tenant *t, const struct vb_step *step)
{
    if (t->kind == VB_TENANT_PROBE)
        saw_probe(t, step);
}
