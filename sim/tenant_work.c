// SPDX-License-Identifier: Apache-2.0
// What tenants post, good ones and bad ones.
#include "sim/tenant_work.h"

#include "base/bytes.h"

#include <string.h>

enum {
    LOOPS = 2, // endless programs of a tenant
    DEPTH = 64,
    BUSY_QPS = 4,
    BUSY_DEPTH = 16,
    BUSY_BYTES = 1024,
    FLOOD_BYTES = 4096,
    FLOOD_SIGNAL = 32,
    SURGE_SINGLES = 64,
    SURGE_BURST = 56,
    SURGE_FLOOD = 240,
    SURGE_BYTES = 64,
    FUZZ_QPS = 8,
    FUZZ_STROKES = 32, // of one action
    FLUSH_QPS = 4,
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
        [VB_TENANT_PULL] = VB_TENANT_QPS - LOOPS,
        [VB_TENANT_SURGE] = BUSY_QPS,
    };
    return queues[kind];
}

bool vb_tenant_loops(enum vb_tenant_kind kind, uint32_t i)
{
    return (kind == VB_TENANT_CHAIN || kind == VB_TENANT_COPY) && i < LOOPS;
}

struct vb_qp_opts vb_tenant_queue(enum vb_tenant_kind kind, uint32_t i)
{
    bool loops = vb_tenant_loops(kind, i);

    return (struct vb_qp_opts){
        .send_depth = loops && kind != VB_TENANT_COPY ? 4 : DEPTH,
        .send_sge = kind == VB_TENANT_COPY ? VB_MAX_SGE : 1,
        .chain = loops ? VB_QP_CROSS_CHANNEL | VB_QP_MANAGED_SEND | VB_QP_NO_WQE_CHECKS : 0};
}

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct vb_tenant_work *w = ctx;

    for (uint32_t i = 0; i < w->qps; i++)
        if (w->qp[i]->qpn == qpn)
            return w->qp[i];
    return NULL;
}

bool vb_tenant_post(struct vb_tenant_work *w, uint32_t i, enum vb_wr_opcode op, uint32_t bytes,
                    bool signals)
{
    const struct vb_sge sge = {VB_TENANT_PLACE, bytes, w->key};
    const struct vb_send_wr wr = {.wr_id = i,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = op,
                                  .flags = signals ? VB_WR_SIGNALED : 0,
                                  .rkey = w->far_key,
                                  .raddr = VB_TENANT_PLACE};
    bool posted = vb_driver_post_send(w->qp[i], &wr, 1) == 1;

    w->made += posted;
    return posted;
}

void vb_tenant_drain(struct vb_tenant_work *w)
{
    struct vb_wc wc[WCS];

    while (vb_driver_poll(w->cq, find, w, wc, WCS) > 0)
        ;
}

// ---- a good one

static void keep_busy(struct vb_tenant_work *w)
{
    struct vb_wc wc[WCS];
    int n;

    while ((n = vb_driver_poll(w->cq, find, w, wc, WCS)) > 0)
        for (int i = 0; i < n; i++)
            vb_tenant_post(w, (uint32_t)wc[i].wr_id,
                           vb_prng_below(&w->prng, 2) ? VB_WR_READ : VB_WR_WRITE, BUSY_BYTES, true);
}

// ---- bad ones

// Of three counters a third of the 16 bits apart, one is always ahead by less than half of them: so
// the ring goes round for ever.
static void start_loop(struct vb_tenant_work *w, uint32_t i)
{
    struct vb_driver_qp *qp = w->qp[i];
    bool copies = w->kind == VB_TENANT_COPY, pieces = copies && i > 0;
    struct vb_sge sge[VB_MAX_SGE];
    struct vb_send_wr wr = {.sge = sge,
                            .num_sge = pieces ? VB_MAX_SGE : 1,
                            .opcode = copies ? VB_WR_WRITE : VB_WR_FADD,
                            .rkey = w->key,
                            .raddr = VB_TENANT_PLACE};
    uint32_t left = qp->sq.blocks, width = pieces ? PIECES_BLOCKS : 1;

    for (uint32_t n = 0; n < VB_MAX_SGE; n++)
        sge[n] = (struct vb_sge){VB_TENANT_PLACE + 8192, pieces ? 1 : 8, w->key};
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
static void flood(struct vb_tenant_work *w)
{
    enum vb_wr_opcode op = w->kind == VB_TENANT_PULL ? VB_WR_READ : VB_WR_WRITE;

    vb_tenant_drain(w);
    for (uint32_t i = w->kind == VB_TENANT_PULL ? 0 : LOOPS; i < w->qps; i++)
        for (uint32_t n = 0; vb_tenant_post(w, i, op, FLOOD_BYTES, n % FLOOD_SIGNAL == 0); n++)
            ;
}

// Comes and goes: what a share saves up while it is idle, or owes when it leaves, would be seen in
// its bursts.
static void surge(struct vb_tenant_work *w)
{
    struct vb_wc wc[WCS];
    int n;

    while ((n = vb_driver_poll(w->cq, find, w, wc, WCS)) > 0)
        w->done += (uint64_t)n;
    bool single = w->goes_on && w->made < SURGE_SINGLES;
    if (w->done < w->made && (single || !w->goes_on))
        return;
    uint64_t most = single ? 1 : w->goes_on ? SURGE_FLOOD : SURGE_BURST;
    uint32_t bytes = w->goes_on ? SURGE_BYTES : BUSY_BYTES;
    enum vb_wr_opcode op = vb_prng_below(&w->prng, 2) ? VB_WR_READ : VB_WR_WRITE;
    for (uint32_t i = 0; w->made - w->done < most; i++)
        if (!vb_tenant_post(w, i % w->qps, w->goes_on ? VB_WR_WRITE : op, bytes, true))
            return;
}

static void strike(struct vb_tenant_work *w, uint32_t i)
{
    struct vb_driver_qp *qp = w->qp[i];
    uint32_t at = (uint32_t)vb_prng_below(&w->prng, qp->sq.blocks * VB_WQEBB_BYTES - 8);
    uint64_t junk = vb_prng_next(&w->prng);

    switch (vb_prng_below(&w->prng, 4)) {
    case 0: memcpy(qp->sq.ring + at, &junk, sizeof junk); break;
    case 1: vb_tenant_post(w, i, VB_WR_WRITE, (uint32_t)(junk & 0x1ffff), junk >> 63); break;
    case 2:
        vb_tenant_post(w, i, VB_WR_READ, (uint32_t)(junk & 0xfff), false);
        qp->sq.ring[at] ^= (uint8_t)junk;
        break;
    default: qp->dbrec[VB_DBREC_SQ] = (uint32_t)junk; break;
    }
    vb_doorbell_ring(qp->doorbells, qp->qpn);
}

// ---- all

void vb_tenant_begin(struct vb_tenant_work *w)
{
    w->goes_on = w->kind == VB_TENANT_SURGE && vb_prng_below(&w->prng, 2);
    for (uint32_t i = 0; i < w->qps; i++) {
        if (vb_tenant_loops(w->kind, i))
            start_loop(w, i);
        for (uint32_t n = 0; w->kind == VB_TENANT_BUSY && n < BUSY_DEPTH; n++)
            vb_tenant_post(w, i, VB_WR_WRITE, BUSY_BYTES, true);
    }
}

void vb_tenant_go_on(struct vb_tenant_work *w)
{
    if (w->kind == VB_TENANT_BUSY)
        keep_busy(w);
    else if (w->kind == VB_TENANT_CHAIN || w->kind == VB_TENANT_PULL)
        flood(w);
    else if (w->kind == VB_TENANT_SURGE)
        surge(w);
    for (uint32_t n = 0; w->kind == VB_TENANT_FUZZ && n < FUZZ_STROKES; n++)
        strike(w, (uint32_t)vb_prng_below(&w->prng, w->qps));
}
