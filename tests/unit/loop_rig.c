// SPDX-License-Identifier: Apache-2.0
// A device with queues that are connected with themselves.
#include "loop_rig.h"

#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    STEP_NS = 50,
    SCRATCH = LOOP_MEMORY - 8, // where answers go
    ALL = VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC,
};

static void *zeros(size_t bytes)
{
    void *p = aligned_alloc(64, bytes);
    assert_non_null(p);
    return memset(p, 0, bytes);
}

static uint32_t make_key(struct loop_rig *r, uint32_t pd, void *at, size_t len)
{
    uint32_t key;
    const struct vb_mkey_attr attr = {
        .pd = pd, .access = ALL, .start = (uintptr_t)at, .len = len, .base = at};
    assert_int_equal(vb_dev_mkey_create(r->dev, &attr, &key), 0);
    return key;
}

void loop_open(struct loop_rig *r, uint32_t units)
{
    memset(r, 0, sizeof *r);
    r->units = units;
    r->dev = vb_dev_create(&(struct vb_dev_opts){.seed = 1, .pus = units});
    assert_non_null(r->dev);
    assert_int_equal(vb_dev_pd_create(r->dev, &r->pd), 0);
    r->memory = zeros(LOOP_MEMORY);
    r->key = make_key(r, r->pd, r->memory, LOOP_MEMORY);
}

void loop_close(struct loop_rig *r)
{
    vb_dev_destroy(r->dev);
    for (uint32_t i = 0; i < r->queues; i++) {
        free(r->queue[i].ring);
        free(r->queue[i].cq.ring);
    }
    free(r->memory);
}

// ---- completion queues

void loop_cq_open(struct loop_rig *r, struct loop_cq *cq, uint32_t unit, uint32_t entries,
                  uint64_t start)
{
    cq->entries = entries;
    cq->taken = (uint32_t)start;
    cq->ring = zeros((size_t)entries * VB_CQE_BYTES);
    for (uint32_t i = 0; i < entries; i++)
        cq->ring[i * VB_CQE_BYTES + VB_CQE_BYTES - 1] = VB_CQE_INVALID << 4;
    assert_int_equal(vb_dev_cq_create(r->dev,
                                      &(struct vb_cqc_attr){.pu = unit,
                                                            .ring = cq->ring,
                                                            .entries = entries,
                                                            .dbrec = cq->dbrec,
                                                            .start = start,
                                                            .ignore_overrun = !cq->strict},
                                      &cq->cqn),
                     0);
}

bool loop_take(struct loop_cq *cq, struct vb_cqe *cqe)
{
    memcpy(cqe, cq->ring + (cq->taken & (cq->entries - 1)) * VB_CQE_BYTES, sizeof *cqe);
    if (cqe->op_own >> 4 == VB_CQE_INVALID || (cqe->op_own & 1) != !!(cq->taken & cq->entries))
        return false;
    cq->taken++;
    return true;
}

uint32_t loop_count(struct loop_cq *cq, uint8_t *bad)
{
    struct vb_cqe cqe;
    uint32_t good = 0;
    uint8_t first = 0;

    while (loop_take(cq, &cqe)) {
        if (cqe.op_own >> 4 == VB_CQE_REQ)
            good++;
        else if (!first)
            first = cqe.syndrome;
    }
    if (bad)
        *bad = first;
    else
        assert_int_equal(first, 0);
    return good;
}

// ---- queues

struct loop_queue *loop_queue(struct loop_rig *r, const struct loop_opts *o)
{
    struct loop_queue *q = &r->queue[r->queues++];
    uint32_t pd = o->pd ? o->pd : r->pd;

    assert_true(r->queues <= LOOP_QUEUES);
    q->rig = r;
    q->blocks = o->blocks ? o->blocks : LOOP_BLOCKS_MAX;
    q->posted = o->start;
    q->ring = zeros((size_t)q->blocks * VB_WQEBB_BYTES);
    q->key = make_key(r, pd, q->ring, (size_t)q->blocks * VB_WQEBB_BYTES);
    q->cq.strict = o->strict;
    loop_cq_open(r, &q->cq, o->unit, o->cq_entries ? o->cq_entries : 64, o->cq_start);
    q->dbrec[VB_DBREC_SQ] = htobe32((uint32_t)o->start & 0xffff);
    assert_int_equal(vb_dev_qp_create(r->dev,
                                      &(struct vb_qpc_attr){.pd = pd,
                                                            .send_cqn = q->cq.cqn,
                                                            .recv_cqn = q->cq.cqn,
                                                            .sq_ring = q->ring,
                                                            .sq_blocks = q->blocks,
                                                            .dbrec = q->dbrec,
                                                            .sq_start = o->start,
                                                            .no_wqe_checks = !o->checks,
                                                            .be_replies = o->be_replies,
                                                            .cross_channel = !o->plain,
                                                            .managed_send = o->managed,
                                                            .fetch_depth = o->depth,
                                                            .rate = o->rate,
                                                            .burst = o->burst,
                                                            .program = o->program,
                                                            .share = o->share},
                                      &q->qpn),
                     0);
    loop_connect(q);
    return q;
}

void loop_connect(struct loop_queue *q)
{
    const struct vb_ip ip = {{[10] = 0xff, 0xff, 10, 0, 0, 1}};
    struct vb_qpc_mods mods = {.access = VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC,
                               .dest_qpn = q->qpn,
                               .mtu_bytes = 1024,
                               .max_rd_atomic = 16,
                               .max_dest_rd_atomic = 16,
                               .timeout = 14,
                               .retry_cnt = 7,
                               .rnr_retry = 7,
                               .local = ip,
                               .remote = ip,
                               .src_port = 4791};

    for (mods.state = VB_QPS_INIT; mods.state <= VB_QPS_RTS; mods.state++)
        assert_int_equal(vb_dev_qp_modify(q->rig->dev, q->qpn, &mods), 0);
}

void loop_destroy(struct loop_queue *q)
{
    assert_int_equal(vb_dev_qp_destroy(q->rig->dev, q->qpn), 0);
    assert_int_equal(vb_dev_cq_destroy(q->rig->dev, q->cq.cqn), 0);
    q->gone = true;
}

uint8_t *loop_block(struct loop_queue *q, uint64_t counter)
{
    return q->ring + (counter & (q->blocks - 1)) * VB_WQEBB_BYTES;
}

uint64_t loop_put(struct loop_queue *q, struct vb_code code)
{
    uint8_t bytes[VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES];
    uint64_t first = q->posted;
    uint32_t blocks;

    code.qpn = code.qpn ? code.qpn : q->qpn;
    code.idx = code.idx ? code.idx : (uint16_t)first;
    blocks = vb_code_blocks(&code);
    vb_code_write(bytes, &code, true);
    uint32_t written = code.opcode == VB_WQE_NOP ? 1 : blocks;
    for (uint32_t i = 0; i < written; i++)
        memcpy(loop_block(q, first + i), bytes + i * VB_WQEBB_BYTES, VB_WQEBB_BYTES);
    q->posted += written;
    return first;
}

void loop_doorbell(struct loop_queue *q)
{
    q->dbrec[VB_DBREC_SQ] = htobe32((uint32_t)q->posted & 0xffff);
    vb_doorbell_ring(vb_pu_doorbells(vb_dev_pu_at(q->rig->dev, q->qpn & (q->rig->units - 1))),
                     q->qpn);
}

void loop_run(struct loop_rig *r)
{
    uint32_t steps = 0;
    bool busy = true;

    while (busy) {
        busy = false;
        for (uint32_t i = 0; i < r->units; i++) {
            busy |= vb_pu_step(vb_dev_pu_at(r->dev, i), r->now_ns).kind != VB_STEP_NONE;
            r->now_ns += STEP_NS;
        }
        if (++steps > LOOP_STEPS_MAX)
            fail_msg("it does not end");
    }
}

// ---- entries

struct vb_code loop_nop(void)
{
    return (struct vb_code){.opcode = VB_WQE_NOP, .fm_ce_se = VB_WQE_CE_ALWAYS};
}

struct vb_code loop_wait(const struct loop_cq *cq, uint32_t index)
{
    return (struct vb_code){
        .opcode = VB_WQE_WAIT, .fm_ce_se = VB_WQE_CE_ALWAYS, .index = index, .object = cq->cqn};
}

struct vb_code loop_enable(const struct loop_queue *q, uint32_t index)
{
    return (struct vb_code){
        .opcode = VB_WQE_SEND_EN, .fm_ce_se = VB_WQE_CE_ALWAYS, .index = index, .object = q->qpn};
}

struct vb_code loop_write(void *to, uint32_t key, const void *bytes, uint32_t len)
{
    struct vb_code c = {.opcode = VB_WQE_WRITE,
                        .fm_ce_se = VB_WQE_CE_ALWAYS,
                        .raddr = (uintptr_t)to,
                        .rkey = key,
                        .inline_len = len};
    memcpy(c.data, bytes, len);
    return c;
}

struct vb_code loop_count_up(struct loop_rig *r, uint32_t offset)
{
    return (struct vb_code){.opcode = VB_WQE_ATOMIC_FA,
                            .fm_ce_se = VB_WQE_CE_ALWAYS,
                            .raddr = (uintptr_t)r->memory + offset,
                            .rkey = r->key,
                            .swap_add = 1,
                            .num_sge = 1,
                            .sge = {{(uintptr_t)r->memory + SCRATCH, r->key, 8}}};
}

uint64_t loop_word(const struct loop_rig *r, uint32_t offset)
{
    uint64_t word;
    memcpy(&word, r->memory + offset, 8);
    return word;
}

void loop_set_word(struct loop_rig *r, uint32_t offset, uint64_t value)
{
    memcpy(r->memory + offset, &value, 8);
}
