// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes in the rings and the doorbell records of a queue pair, changed while it runs:
// nothing crashes, hangs, sends nonsense or touches memory that was not registered.
// Input: a choice of set-up, then one command after the other.
#include "rig.h"

#include "base/bytes.h"

#include <string.h>

// Writes a control segment that is mostly right.
static void write_ctrl(struct rig *r, struct rig_qp *q, uint16_t counter)
{
    static const uint8_t opcodes[] = {VB_WQE_SEND, VB_WQE_WRITE, VB_WQE_READ, VB_WQE_NOP};
    struct vb_driver_sq *sq = &q->driver.sq;
    uint8_t choice = rig_u8(r);
    struct vb_wqe_ctrl ctrl = {.opcode = choice & 0x80 ? rig_u8(r) : opcodes[choice % 4],
                               .ds = rig_u8(r),
                               .fm_ce_se = rig_u8(r)};
    vb_put_be16(ctrl.idx, choice & 0x40 ? rig_u16(r) : counter);
    vb_put_be24(ctrl.qpn, choice & 0x20 ? rig_u32(r) : q->driver.qpn);
    memcpy(sq->ring + (counter & (sq->blocks - 1)) * VB_WQEBB_BYTES, &ctrl, sizeof ctrl);
}

static void write_segment(struct rig *r, uint8_t *at)
{
    uint8_t choice = rig_u8(r);
    uint32_t key;
    uint64_t addr = rig_addr(r, &key);
    struct vb_wqe_data seg = {.lkey = htobe32(key), .addr = htobe64(addr)};
    switch (choice % 4) {
    case 0: seg.byte_count = htobe32(rig_u32(r)); break;
    case 1: seg.byte_count = htobe32(VB_WQE_INLINE | choice); break;
    default: seg.byte_count = htobe32(rig_u16(r) % RIG_REGION_BYTES); break;
    }
    memcpy(at, &seg, sizeof seg);
}

static void write_bytes(struct rig *r, uint8_t *ring, uint32_t len)
{
    uint32_t at = rig_u16(r), n = rig_u8(r);
    for (uint32_t i = 0; i < n; i++)
        ring[(at + i) % len] = rig_u8(r);
}

// A whole entry at the place the device will fetch next, or near it.
static void write_entry(struct rig *r, struct rig_qp *q)
{
    struct vb_driver_sq *sq = &q->driver.sq;
    uint16_t counter = (uint16_t)(q->ctx->sq.end + rig_u8(r) % 4);
    uint32_t bytes = sq->blocks * VB_WQEBB_BYTES,
             at = (counter & (sq->blocks - 1)) * VB_WQEBB_BYTES;
    write_ctrl(r, q, counter);
    for (uint32_t n = rig_u8(r) % 8, i = 1; i <= n; i++)
        write_segment(r, sq->ring + (at + i * VB_WQE_SEG_BYTES) % bytes);
}

static void ring(struct rig *r, struct rig_qp *q)
{
    uint8_t choice = rig_u8(r);
    int which = choice & 1 ? VB_DBREC_SQ : VB_DBREC_RQ;
    uint64_t base = which == VB_DBREC_SQ ? q->ctx->sq.end : q->ctx->rq.end;
    uint32_t value = choice & 0x80 ? rig_u32(r) : (uint32_t)(base + choice / 2 % 16);
    q->driver.dbrec[which] = htobe32(value);
    vb_doorbell_ring(vb_dev_doorbells(r->dev), q->driver.qpn);
}

// The peer: acknowledges, answers a READ, sends.
static void answer(struct rig *r, struct rig_qp *q)
{
    static const uint8_t payload[VB_MTU_MAX];
    static const uint8_t opcodes[] = {VB_RC_ACK,         VB_RC_ACK,        VB_RC_READ_RESP_ONLY,
                                      VB_RC_SEND_ONLY,   VB_RC_SEND_FIRST, VB_RC_READ_RESP_FIRST,
                                      VB_RC_SEND_MIDDLE, VB_RC_SEND_LAST};
    uint8_t choice = rig_u8(r);
    struct vb_packet p = {.opcode = opcodes[choice % 8],
                          .pkey = VB_PKEY_DEFAULT,
                          .dest_qpn = q->driver.qpn,
                          .syndrome = choice & 0x80 ? rig_u8(r) : 0x1f};
    uint32_t facts = vb_opcode_table[p.opcode].facts;
    p.psn = facts & VB_OP_REQUEST ? q->ctx->resp.epsn : q->ctx->req.una_psn + (choice >> 3 & 3);
    p.psn &= 0xffffff;
    if (facts & VB_OP_PAYLOAD)
        p.payload_len = choice & 0x40 ? rig_u16(r) % (r->mtu + 1) : r->mtu;
    rig_packet(r, &p, payload);
}

static void command(struct rig *r)
{
    uint8_t choice = rig_u8(r);
    struct rig_qp *q = &r->qp[choice >> 7];
    struct vb_driver_rq *rq = &q->driver.rq;
    switch (choice % 16) {
    case 0:
    case 1:
    case 2: write_entry(r, q); break;
    case 3: write_bytes(r, q->driver.sq.ring, q->driver.sq.blocks * VB_WQEBB_BYTES); break;
    case 4: write_bytes(r, rq->ring, rq->entries * rq->stride); break;
    case 5:
        write_segment(r, rq->ring + rig_u8(r) * VB_WQE_SEG_BYTES % (rq->entries * rq->stride));
        break;
    case 6: r->now_ns += (uint64_t)rig_u16(r) << (choice >> 4 & 7); break;
    case 7: r->cq.dbrec[VB_DBREC_CQ_CI] = htobe32(rig_u32(r)); break;
    case 8: rig_modify(r, q, choice & 0x40 ? VB_QPS_ERR : VB_QPS_RTS); break;
    case 9: rig_connect(r, q); break;
    case 10:
    case 11: answer(r, q); break;
    case 12: choice & 0x40 ? rig_steps(r, rig_u8(r)) : rig_run(r); break;
    case 13: rig_complete(r); break;
    default: ring(r, q); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig r;
    const struct rig_opts opts = {.no_wqe_checks = size && data[0] & 0x80, .cq_entries = 64};
    rig_open(&r, &opts, data, size);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        rig_connect(&r, &r.qp[i]);
    while (rig_more(&r))
        command(&r);
    rig_run(&r);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        rig_modify(&r, &r.qp[i], VB_QPS_ERR);
    rig_run(&r);
    rig_close(&r);
    return 0;
}
