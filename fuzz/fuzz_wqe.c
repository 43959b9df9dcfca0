// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes in the rings and the doorbell records of queue pairs of every service, changed
// while they run: nothing crashes, hangs, sends nonsense or touches memory that was not registered.
// Input: three bytes of set-up, then one command after the other.
#include "rig.h"

#include "base/bytes.h"

#include <string.h>

// An entry that is being put together, in segments of 16 bytes.
struct entry {
    uint8_t bytes[VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES];
    uint32_t len;
};

static void put(struct entry *e, const void *bytes, size_t len)
{
    memcpy(e->bytes + e->len, bytes, len);
    e->len += (uint32_t)len;
}

// ---- segments

static void put_raddr(struct rig *r, struct entry *e, uint32_t reserved)
{
    struct vb_wqe_raddr seg = {.reserved = htobe32(reserved)};
    uint32_t key;
    seg.raddr = htobe64(rig_addr(r, &key));
    seg.rkey = htobe32(key);
    put(e, &seg, sizeof seg);
}

static void put_data(struct rig *r, struct entry *e, uint32_t len)
{
    uint32_t key;
    uint64_t addr = rig_addr(r, &key);
    put(e, &(struct vb_wqe_data){htobe32(len), htobe32(key), htobe64(addr)},
        sizeof(struct vb_wqe_data));
}

static void put_inline(struct rig *r, struct entry *e)
{
    uint8_t bytes[4 + 256] = {0};
    uint32_t len = rig_u8(r) % 200, whole = (4 + len + 15) & ~15u;
    vb_put_be32(bytes, VB_WQE_INLINE | (len + (len == 199 ? rig_u8(r) : 0)));
    put(e, bytes, whole);
}

static void put_list(struct rig *r, struct entry *e)
{
    uint8_t choice = rig_u8(r);
    if (choice & 0x80) {
        for (uint32_t n = 1 + choice % 3; n > 0; n--)
            put_inline(r, e);
        return;
    }
    for (uint32_t n = choice % (VB_MAX_SGE + 2); n > 0; n--) {
        uint8_t len = rig_u8(r);
        put_data(r, e, len < 0xe0 ? len * 8u : rig_u32(r));
    }
}

static void put_umr(struct rig *r, struct entry *e)
{
    uint8_t choice = rig_u8(r);
    const struct vb_wqe_umr umr = {.flags = choice};
    struct vb_wqe_mkey mkey = {.free = choice & 1 ? VB_WQE_MKEY_FREE : 0, .access = choice};
    uint64_t len = choice & 0x80 ? rig_u64(r) : rig_u8(r) * 16u;
    mkey.len = htobe64(len);
    mkey.start = htobe64(choice & 2 ? rig_u64(r) : 0);
    put(e, &umr, sizeof umr);
    put(e, &mkey, sizeof mkey);
    if (!(choice & 1) || choice & 4)
        put_data(r, e, (uint32_t)len);
}

static void put_datagram(struct rig *r, struct rig_qp *q, struct entry *e)
{
    uint8_t choice = rig_u8(r);
    struct vb_wqe_datagram to = {.qkey = htobe32(choice & 0x80 ? rig_u32(r) : RIG_QKEY),
                                 .dqpn = htobe32(choice & 0x40 ? rig_u32(r) : q->driver.qpn)};
    memcpy(to.rgid, r->remote.b, sizeof to.rgid);
    to.rgid[choice & 0x20 ? 10 : 15] ^= choice & 0x1f;
    put(e, &to, sizeof to);
}

static void put_head(struct rig *r, struct rig_qp *q, struct entry *e, uint8_t opcode)
{
    if (opcode == VB_WQE_NOP || opcode == VB_WQE_UMR)
        return;
    if (q->driver.heads == VB_WQE_HEAD_DATAGRAM)
        put_datagram(r, q, e);
    else if (q->driver.heads == VB_WQE_HEAD_XRC)
        put(e, &(struct vb_wqe_xrc){.srqn = htobe32(r->srq[1].srqn)}, sizeof(struct vb_wqe_xrc));
}

static void put_atomic(struct rig *r, struct entry *e, uint8_t opcode, uint8_t opmod)
{
    bool wide = opcode == VB_WQE_MASKED_CS && opmod != VB_WQE_OPMOD_MASKED4;
    uint8_t args[32] = {0};
    args[7] = rig_u8(r);
    put_raddr(r, e, 0);
    put(e, args, wide ? 32 : 16);
    put_data(r, e, opmod == VB_WQE_OPMOD_MASKED4 ? 4 : 8);
}

// What follows the control segment, as the operation wants it.
static void put_operation(struct rig *r, struct entry *e, uint8_t opcode, uint8_t opmod)
{
    switch (opcode) {
    case VB_WQE_NOP: break;
    case VB_WQE_WRITE:
    case VB_WQE_WRITE_IMM:
    case VB_WQE_READ:
        put_raddr(r, e, 0);
        put_list(r, e);
        break;
    case VB_WQE_ATOMIC_CS:
    case VB_WQE_ATOMIC_FA:
    case VB_WQE_MASKED_CS:
    case VB_WQE_MASKED_FA: put_atomic(r, e, opcode, opmod); break;
    case VB_WQE_ATOMIC_WRITE:
        put_raddr(r, e, 0);
        put_data(r, e, 8);
        break;
    case VB_WQE_FLUSH: put_raddr(r, e, rig_u8(r)); break;
    case VB_WQE_UMR: put_umr(r, e); break;
    default: put_list(r, e); break;
    }
}

// ---- entries

static struct vb_wqe_ctrl make_ctrl(struct rig *r, const struct rig_qp *q, uint16_t counter)
{
    static const uint8_t opcodes[] = {
        VB_WQE_SEND,      VB_WQE_WRITE,        VB_WQE_READ,       VB_WQE_NOP,
        VB_WQE_SEND_IMM,  VB_WQE_WRITE_IMM,    VB_WQE_SEND_INVAL, VB_WQE_ATOMIC_CS,
        VB_WQE_ATOMIC_FA, VB_WQE_MASKED_CS,    VB_WQE_MASKED_FA,  VB_WQE_UMR,
        VB_WQE_FLUSH,     VB_WQE_ATOMIC_WRITE, VB_WQE_WAIT,       VB_WQE_SEND_EN};
    uint8_t choice = rig_u8(r), more = rig_u8(r);
    struct vb_wqe_ctrl ctrl = {.opcode = choice & 0x80 ? rig_u8(r) : opcodes[choice % 16],
                               .fm_ce_se = more & 0x8e};
    bool masked = ctrl.opcode == VB_WQE_MASKED_CS || ctrl.opcode == VB_WQE_MASKED_FA;
    if (masked)
        ctrl.opmod = choice & 0x10 ? VB_WQE_OPMOD_MASKED4 : VB_WQE_OPMOD_MASKED8;
    if (more & 0x40 && more & 0x20)
        ctrl.opmod = rig_u8(r);
    uint32_t window = vb_mkey_current(&r->dev->mkeys, r->window[more & 1]);
    ctrl.imm = htobe32(ctrl.opcode == VB_WQE_FLUSH ? 1u + (more & 0x10)
                       : more & 0x10               ? rig_u32(r)
                                                   : window + (choice >> 4 & 1));
    vb_put_be16(ctrl.idx, choice & 0x40 ? rig_u16(r) : counter);
    vb_put_be24(ctrl.qpn, choice & 0x20 ? rig_u32(r) : q->driver.qpn);
    return ctrl;
}

// A whole entry at the place the device will fetch next, or near it.
static void write_entry(struct rig *r, struct rig_qp *q)
{
    struct vb_driver_sq *sq = &q->driver.sq;
    struct entry e = {.len = 0};
    uint8_t choice = rig_u8(r);
    uint16_t counter = (uint16_t)(q->ctx->sq.end + choice % 4);
    struct vb_wqe_ctrl ctrl = make_ctrl(r, q, counter);

    put(&e, &ctrl, sizeof ctrl);
    put_head(r, q, &e, ctrl.opcode);
    put_operation(r, &e, ctrl.opcode, ctrl.opmod);
    uint8_t ds = (uint8_t)(e.len / VB_WQE_SEG_BYTES);
    e.bytes[offsetof(struct vb_wqe_ctrl, ds)] = choice & 0x80 ? rig_u8(r) : ds;
    uint32_t at = (counter & (sq->blocks - 1)) * VB_WQEBB_BYTES;
    for (uint32_t i = 0; i < e.len; i++)
        sq->ring[(at + i) % (sq->blocks * VB_WQEBB_BYTES)] = e.bytes[i];
    if (choice & 0x40)
        return; // the doorbell comes later
    q->driver.dbrec[VB_DBREC_SQ] =
        htobe32((uint32_t)(uint16_t)(counter + (e.len + VB_WQEBB_BYTES - 1) / VB_WQEBB_BYTES));
    vb_doorbell_ring(q->driver.doorbells, q->driver.qpn);
}

static void write_bytes(struct rig *r, uint8_t *ring, uint32_t len)
{
    uint32_t at = rig_u16(r), n = rig_u8(r) % 32;
    for (uint32_t i = 0; len > 0 && i < n; i++)
        ring[(at + i) % len] = rig_u8(r);
}

// Receives, in the queue pair's own queue or a shared one, mostly well-formed.
static void write_receive(struct rig *r, struct rig_qp *q)
{
    struct rig_srq *s = q->srq ? q->srq : &r->srq[1];
    struct vb_driver_rq *rq = &q->driver.rq;
    uint8_t choice = rig_u8(r);
    struct entry e = {.len = 0};
    uint8_t *ring = rq->entries ? rq->ring : s->driver.ring;
    uint32_t stride = rq->entries ? rq->stride : s->driver.stride;
    uint32_t entries = rq->entries ? rq->entries : s->driver.entries;
    uint32_t head = rq->entries ? 0 : sizeof(struct vb_wqe_srq_next);
    for (uint32_t n = choice % 5; n > 0; n--)
        put_data(r, &e, rig_u8(r) * 16u);
    put(&e, &(struct vb_wqe_data){.lkey = htobe32(VB_WQE_LKEY_END)}, sizeof(struct vb_wqe_data));
    uint32_t at = (choice >> 4) % entries;
    memcpy(ring + (size_t)at * stride + head, e.bytes,
           e.len < stride - head ? e.len : stride - head);
    if (choice & 8)
        vb_put_be16(ring + (size_t)at * stride + 2 * !!head, rig_u16(r));
    if (rq->entries)
        q->driver.dbrec[VB_DBREC_RQ] = htobe32((uint16_t)(q->ctx->rq.end + 1 + choice % 2));
    else
        s->driver.dbrec[0] = htobe32((uint16_t)(s->ctx->end + 1 + choice % 2));
}

static void ring(struct rig *r, struct rig_qp *q)
{
    uint8_t choice = rig_u8(r);
    int which = choice & 1 ? VB_DBREC_SQ : VB_DBREC_RQ;
    uint64_t base = which == VB_DBREC_SQ ? q->ctx->sq.end : q->ctx->rq.end;
    uint32_t value = choice & 0x80 ? rig_u32(r) : (uint32_t)(base + choice / 2 % 16);
    q->driver.dbrec[which] = htobe32(value);
    vb_doorbell_ring(q->driver.doorbells, q->driver.qpn);
}

// The rings' owner writes what it likes into the other doorbell records, too.
static void write_records(struct rig *r)
{
    uint8_t choice = rig_u8(r);
    if (choice & 0x80)
        r->cq[choice % RIG_CQS].driver.dbrec[choice >> 2 & 1] = htobe32(rig_u32(r));
    else
        r->srq[choice % RIG_SRQS].driver.dbrec[0] = htobe32(rig_u32(r));
}

static void write_anywhere(struct rig *r, struct rig_qp *q)
{
    struct vb_driver_rq *rq = &q->driver.rq;
    struct vb_driver_srq *s = &r->srq[q->srq == NULL].driver;
    switch (rig_u8(r) % 3) {
    case 0: write_bytes(r, q->driver.sq.ring, q->driver.sq.blocks * VB_WQEBB_BYTES); break;
    case 1: write_bytes(r, rq->ring, rq->entries * rq->stride); break;
    default: write_bytes(r, s->ring, s->entries * s->stride); break;
    }
}

static void command(struct rig *r)
{
    uint8_t choice = rig_u8(r), which = choice / 16;
    struct rig_qp *q = &r->qp[which % RIG_QPS];
    switch (choice % 16) {
    case 0:
    case 1:
    case 2:
    case 3: write_entry(r, q); break;
    case 4: write_anywhere(r, q); break;
    case 5: write_receive(r, q); break;
    case 6: r->now_ns += (uint64_t)rig_u16(r) << (which & 7); break;
    case 7: write_records(r); break;
    case 8: rig_control(r, q); break;
    case 9: rig_deliver(r); break;
    case 10: rig_give_answer(r, q); break;
    case 11: rig_give_request(r, q); break;
    case 12: rig_run(r); break;
    case 13: rig_complete(r); break;
    case 14: rig_steps(r, which, rig_u8(r)); break;
    default: ring(r, q); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig r;
    rig_open(&r, &(struct rig_opts){.no_wqe_checks = size && data[0] & 0x80}, data, size);
    while (rig_more(&r))
        command(&r);
    rig_run(&r);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        rig_modify(&r, &r.qp[i], VB_QPS_ERR);
    rig_run(&r);
    rig_complete(&r);
    rig_close(&r);
    return 0;
}
