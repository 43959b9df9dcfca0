// SPDX-License-Identifier: Apache-2.0
// Posting send requests: work-queue entries in ConnectX's format.
#include "host/driver_rings.h"

#include "base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

static const uint8_t wqe_opcode[VB_WR_OPCODES] = {
    [VB_WR_SEND] = VB_WQE_SEND,
    [VB_WR_WRITE] = VB_WQE_WRITE,
    [VB_WR_READ] = VB_WQE_READ,
    [VB_WR_NOP] = VB_WQE_NOP,
    [VB_WR_SEND_IMM] = VB_WQE_SEND_IMM,
    [VB_WR_SEND_INVAL] = VB_WQE_SEND_INVAL,
    [VB_WR_WRITE_IMM] = VB_WQE_WRITE_IMM,
    [VB_WR_CAS] = VB_WQE_ATOMIC_CS,
    [VB_WR_FADD] = VB_WQE_ATOMIC_FA,
    [VB_WR_MASKED_CAS] = VB_WQE_MASKED_CS,
    [VB_WR_MASKED_FADD] = VB_WQE_MASKED_FA,
    [VB_WR_ATOMIC_WRITE] = VB_WQE_ATOMIC_WRITE,
    [VB_WR_FLUSH] = VB_WQE_FLUSH,
    [VB_WR_BIND] = VB_WQE_UMR,
    [VB_WR_LOCAL_INVAL] = VB_WQE_UMR,
    [VB_WR_WAIT] = VB_WQE_WAIT,
    [VB_WR_SEND_EN] = VB_WQE_SEND_EN,
    [VB_WR_RECV_EN] = VB_WQE_RECV_EN,
};

static_assert((int)VB_WR_CALC_ADD == VB_WQE_CALC_ADD && (int)VB_WR_CALC_MIN == VB_WQE_CALC_MIN &&
                  (int)VB_WR_CALC_MAX == VB_WQE_CALC_MAX && (int)VB_WR_CALC_OR == VB_WQE_CALC_OR,
              "reductions are named as in entries");

static bool is_wide(const struct vb_send_wr *wr)
{
    return wr->atomic.arg_bytes != 4;
}

// Bytes between the control segment and the data.
static uint32_t head_bytes(enum vb_wqe_heads heads, const struct vb_send_wr *wr)
{
    uint32_t before = heads == VB_WQE_HEAD_DATAGRAM ? sizeof(struct vb_wqe_datagram)
                      : heads == VB_WQE_HEAD_XRC    ? sizeof(struct vb_wqe_xrc)
                                                    : 0;
    const uint32_t raddr = sizeof(struct vb_wqe_raddr);

    switch (wr->opcode) {
    case VB_WR_NOP: return 0;
    case VB_WR_WRITE:
    case VB_WR_WRITE_IMM:
    case VB_WR_READ:
    case VB_WR_ATOMIC_WRITE:
    case VB_WR_FLUSH: return before + raddr;
    case VB_WR_CAS:
    case VB_WR_FADD: return before + raddr + sizeof(struct vb_wqe_atomic);
    case VB_WR_MASKED_CAS: return before + raddr + (is_wide(wr) ? 32 : 16);
    case VB_WR_MASKED_FADD: return before + raddr + 16;
    case VB_WR_BIND:
        return sizeof(struct vb_wqe_umr) + sizeof(struct vb_wqe_mkey) + VB_WQE_SEG_BYTES;
    case VB_WR_LOCAL_INVAL: return sizeof(struct vb_wqe_umr) + sizeof(struct vb_wqe_mkey);
    case VB_WR_WAIT:
    case VB_WR_SEND_EN:
    case VB_WR_RECV_EN: return sizeof(struct vb_wqe_wait);
    default: return before;
    }
}

static bool may_be_inline(enum vb_wr_opcode opcode)
{
    switch (opcode) {
    case VB_WR_SEND:
    case VB_WR_SEND_IMM:
    case VB_WR_SEND_INVAL:
    case VB_WR_WRITE:
    case VB_WR_WRITE_IMM:
    case VB_WR_ATOMIC_WRITE: return true;
    default: return false;
    }
}

static bool is_cross(const struct vb_send_wr *wr)
{
    return wr->opcode == VB_WR_WAIT || wr->opcode == VB_WR_SEND_EN || wr->opcode == VB_WR_RECV_EN;
}

// A reduction of records.
static bool is_calc(const struct vb_send_wr *wr)
{
    bool sends = wr->opcode == VB_WR_SEND || wr->opcode == VB_WR_SEND_IMM;
    bool writes = wr->opcode == VB_WR_WRITE || wr->opcode == VB_WR_WRITE_IMM;

    if ((unsigned)wr->calc > VB_WR_CALC_MIN || !(sends || writes) || wr->num_sge == 0 ||
        wr->flags & VB_WR_INLINE)
        return false;
    for (uint32_t i = 0; i < wr->num_sge; i++)
        if (wr->sge[i].len != VB_WQE_SEG_BYTES || wr->sge[i].addr % VB_WQE_SEG_BYTES)
            return false;
    return true;
}

// What an operation's own fields must be.
static bool is_legal(const struct vb_send_wr *wr)
{
    const uint32_t all = VB_WR_SIGNALED | VB_WR_FENCE | VB_WR_SOLICITED | VB_WR_INLINE;
    const uint32_t remote = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_ATOMIC;

    if (wr->flags & ~all)
        return false;
    switch (wr->opcode) {
    case VB_WR_NOP:
    case VB_WR_FLUSH:
    case VB_WR_WAIT:
    case VB_WR_SEND_EN:
    case VB_WR_RECV_EN:
    case VB_WR_LOCAL_INVAL: return wr->num_sge == 0;
    case VB_WR_BIND: return wr->num_sge == 0 && !(wr->bind.rights & ~remote);
    case VB_WR_CAS:
    case VB_WR_FADD: return wr->num_sge == 1 && wr->sge[0].len == 8;
    case VB_WR_MASKED_CAS:
    case VB_WR_MASKED_FADD:
        return (wr->atomic.arg_bytes == 0 || wr->atomic.arg_bytes == 4 ||
                wr->atomic.arg_bytes == 8) &&
               wr->num_sge == 1 && wr->sge[0].len == (is_wide(wr) ? 8u : 4u);
    default: return true;
    }
}

// Bytes of the entry, 0 if the request is malformed.
static uint32_t entry_bytes(const struct vb_driver_qp *qp, const struct vb_send_wr *wr)
{
    uint32_t bytes = sizeof(struct vb_wqe_ctrl);
    uint64_t total = 0;

    if ((unsigned)wr->opcode >= VB_WR_OPCODES || wr->num_sge > qp->sq.max_sge || !is_legal(wr))
        return 0;
    if ((is_cross(wr) || wr->calc) && (!qp->cross || (wr->calc && !is_calc(wr))))
        return 0;
    bytes += head_bytes(qp->heads, wr);
    for (uint32_t i = 0; i < wr->num_sge; i++) {
        if (wr->sge[i].len & VB_WQE_INLINE)
            return 0; // the bit would make it inline data
        total += wr->sge[i].len;
    }
    if (wr->opcode == VB_WR_ATOMIC_WRITE && total != 8)
        return 0;
    if (!(wr->flags & VB_WR_INLINE))
        return bytes + wr->num_sge * VB_WQE_SEG_BYTES;
    if (!may_be_inline(wr->opcode) || total > qp->sq.max_inline)
        return 0;
    return total ? bytes + vb_driver_inline_bytes((uint32_t)total) : bytes;
}

// Writes 16-byte segments into the ring; an entry may wrap on a segment's boundary.
struct writer {
    uint8_t *ring;
    uint32_t mask; // of bytes
    uint32_t at;
};

static void put_segment(struct writer *w, const void *segment)
{
    memcpy(w->ring + (w->at & w->mask), segment, VB_WQE_SEG_BYTES);
    w->at += VB_WQE_SEG_BYTES;
}

static void put_bytes(struct writer *w, const void *src, size_t len)
{
    while (len > 0) {
        uint32_t at = w->at & w->mask;
        size_t room = w->mask + 1 - at, n = len < room ? len : room;
        memcpy(w->ring + at, src, n);
        src = (const uint8_t *)src + n;
        w->at += (uint32_t)n;
        len -= n;
    }
}

static void put_inline(struct writer *w, const struct vb_send_wr *wr)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < wr->num_sge; i++)
        total += wr->sge[i].len;
    if (total == 0)
        return;
    uint32_t head = htobe32(total | VB_WQE_INLINE);
    put_bytes(w, &head, sizeof head);
    for (uint32_t i = 0; i < wr->num_sge; i++)
        put_bytes(w, (const void *)(uintptr_t)wr->sge[i].addr, wr->sge[i].len);
}

static void put_datagram(struct writer *w, const struct vb_send_wr *wr)
{
    struct vb_wqe_datagram to = {.qkey = htobe32(wr->to.qkey), .dqpn = htobe32(wr->to.qpn)};

    uint32_t gid =
        wr->to.source ? VB_WQE_GRH | ((wr->to.source - 1) & 0xff) << VB_WQE_SGID_SHIFT : 0;

    memcpy(to.rgid, wr->to.gid, sizeof to.rgid);
    to.grh_gid_fl = htobe32(gid | (wr->to.flow_label & VB_WQE_FLOW_LABEL));
    to.tclass = wr->to.traffic_class;
    to.hop_limit = wr->to.hop_limit;
    to.stat_rate_sl = wr->to.service_level & VB_WQE_SL;
    put_bytes(w, &to, sizeof to);
}

static void put_masked(struct writer *w, const struct vb_send_wr *wr)
{
    uint32_t count = wr->opcode == VB_WR_MASKED_CAS ? 4 : 2;
    const uint64_t args[4] = {wr->atomic.swap_add, wr->atomic.compare, wr->atomic.swap_mask,
                              wr->atomic.compare_mask};
    uint8_t bytes[32] = {0};

    for (uint32_t i = 0; i < count; i++) {
        if (is_wide(wr))
            vb_put_be64(bytes + 8 * i, args[i]);
        else
            vb_put_be32(bytes + 4 * i, (uint32_t)args[i]);
    }
    put_bytes(w, bytes, is_wide(wr) && count == 4 ? 32 : 16);
}

static uint8_t mkey_access(uint32_t rights)
{
    return (uint8_t)((rights & VB_RIGHT_REMOTE_READ ? VB_WQE_MKEY_REMOTE_READ : 0) |
                     (rights & VB_RIGHT_REMOTE_WRITE ? VB_WQE_MKEY_REMOTE_WRITE : 0) |
                     (rights & VB_RIGHT_REMOTE_ATOMIC ? VB_WQE_MKEY_ATOMIC : 0));
}

static void put_umr(struct writer *w, const struct vb_send_wr *wr)
{
    bool binds = wr->opcode == VB_WR_BIND;
    const struct vb_wqe_umr umr = {.klm_octowords = htobe16(binds)};
    struct vb_wqe_mkey mkey = {.free = binds ? 0 : VB_WQE_MKEY_FREE};

    if (binds) {
        mkey.access = mkey_access(wr->bind.rights);
        mkey.start = htobe64(wr->bind.zero_based ? 0 : wr->bind.addr);
        mkey.len = htobe64(wr->bind.len);
    }
    put_bytes(w, &umr, sizeof umr);
    put_bytes(w, &mkey, sizeof mkey);
    if (binds)
        put_segment(w, &(struct vb_wqe_data){htobe32((uint32_t)wr->bind.len),
                                             htobe32(wr->bind.region), htobe64(wr->bind.addr)});
}

// What comes between the control segment and the data.
static void put_heads(struct writer *w, enum vb_wqe_heads heads, const struct vb_send_wr *wr)
{
    uint32_t bytes = head_bytes(VB_WQE_HEAD_PLAIN, wr);

    if (wqe_opcode[wr->opcode] == VB_WQE_UMR) {
        put_umr(w, wr);
        return;
    }
    if (is_cross(wr)) {
        put_segment(w, &(struct vb_wqe_wait){.index = htobe32(wr->cross.index),
                                             .object = htobe32(wr->cross.number)});
        return;
    }
    if (heads == VB_WQE_HEAD_DATAGRAM && wr->opcode != VB_WR_NOP)
        put_datagram(w, wr);
    else if (heads == VB_WQE_HEAD_XRC && wr->opcode != VB_WR_NOP)
        put_segment(w, &(struct vb_wqe_xrc){.srqn = htobe32(wr->srqn)});
    if (bytes == 0)
        return;
    uint32_t len = wr->opcode == VB_WR_FLUSH ? wr->flush.len : 0;
    put_segment(w, &(struct vb_wqe_raddr){htobe64(wr->raddr), htobe32(wr->rkey), htobe32(len)});
    if (wr->opcode == VB_WR_CAS || wr->opcode == VB_WR_FADD)
        put_segment(
            w, &(struct vb_wqe_atomic){htobe64(wr->atomic.swap_add), htobe64(wr->atomic.compare)});
    else if (wr->opcode == VB_WR_MASKED_CAS || wr->opcode == VB_WR_MASKED_FADD)
        put_masked(w, wr);
}

static uint32_t ctrl_imm(const struct vb_send_wr *wr)
{
    switch (wr->opcode) {
    case VB_WR_SEND_INVAL:
    case VB_WR_LOCAL_INVAL: return htobe32(wr->imm);
    case VB_WR_BIND: return htobe32(wr->bind.window);
    case VB_WR_FLUSH:
        return htobe32(VB_WQE_FLUSH_GLOBAL | (wr->flush.whole_region ? VB_WQE_FLUSH_REGION : 0));
    default: return wr->imm;
    }
}

static uint8_t opmod_of(const struct vb_send_wr *wr)
{
    if (wr->opcode != VB_WR_MASKED_CAS && wr->opcode != VB_WR_MASKED_FADD)
        return (uint8_t)wr->calc;
    return is_wide(wr) ? VB_WQE_OPMOD_MASKED8 : VB_WQE_OPMOD_MASKED4;
}

static void put_entry(struct vb_driver_qp *qp, const struct vb_send_wr *wr, uint32_t bytes)
{
    struct vb_driver_sq *sq = &qp->sq;
    struct writer w = {.ring = sq->ring,
                       .mask = sq->blocks * VB_WQEBB_BYTES - 1,
                       .at = (uint32_t)(sq->pi & (sq->blocks - 1)) * VB_WQEBB_BYTES};
    struct vb_wqe_ctrl ctrl = {.opmod = opmod_of(wr),
                               .opcode = wqe_opcode[wr->opcode],
                               .ds = (uint8_t)(bytes / VB_WQE_SEG_BYTES),
                               .imm = ctrl_imm(wr)};

    vb_put_be16(ctrl.idx, (uint16_t)sq->pi);
    vb_put_be24(ctrl.qpn, qp->qpn);
    ctrl.fm_ce_se = (uint8_t)((wr->flags & VB_WR_SIGNALED ? VB_WQE_CE_ALWAYS : 0) |
                              (wr->flags & VB_WR_FENCE ? VB_WQE_FENCE : 0) |
                              (wr->flags & VB_WR_SOLICITED ? VB_WQE_SOLICITED : 0));
    put_segment(&w, &ctrl);
    put_heads(&w, qp->heads, wr);
    if (wr->flags & VB_WR_INLINE) {
        put_inline(&w, wr);
        return;
    }
    for (uint32_t i = 0; i < wr->num_sge; i++)
        put_segment(&w, &(struct vb_wqe_data){htobe32(wr->sge[i].len), htobe32(wr->sge[i].lkey),
                                              htobe64(wr->sge[i].addr)});
}

// SEND, WRITE and READ of one segment on a queue pair without other heads, which are most requests:
// one block. Returns whether it was one of these.
static bool put_short(struct vb_driver_qp *qp, const struct vb_send_wr *wr)
{
    const struct vb_driver_sq *sq = &qp->sq;
    const uint32_t plain = VB_WR_SIGNALED | VB_WR_FENCE | VB_WR_SOLICITED;

    if (wr->opcode > VB_WR_READ || wr->num_sge != 1 || wr->flags & ~plain || wr->calc ||
        qp->heads != VB_WQE_HEAD_PLAIN || wr->sge->len & VB_WQE_INLINE)
        return false;
    uint8_t *at = sq->ring + (sq->pi & (sq->blocks - 1)) * VB_WQEBB_BYTES;
    uint32_t ds = wr->opcode == VB_WR_SEND ? 2 : 3;
    uint32_t flags = (wr->flags & VB_WR_SIGNALED ? VB_WQE_CE_ALWAYS : 0u) |
                     (wr->flags & VB_WR_FENCE ? VB_WQE_FENCE : 0u) |
                     (wr->flags & VB_WR_SOLICITED ? VB_WQE_SOLICITED : 0u);
    vb_put_be32(at, (uint32_t)(sq->pi & 0xffff) << 8 | wqe_opcode[wr->opcode]);
    vb_put_be32(at + 4, qp->qpn << 8 | ds);
    vb_put_be32(at + 8, flags);
    memcpy(at + 12, &wr->imm, sizeof wr->imm);
    at += sizeof(struct vb_wqe_ctrl);
    if (ds == 3) {
        vb_put_be64(at, wr->raddr);
        vb_put_be32(at + 8, wr->rkey);
        vb_put_be32(at + 12, 0);
        at += sizeof(struct vb_wqe_raddr);
    }
    vb_put_be32(at, wr->sge->len);
    vb_put_be32(at + 4, wr->sge->lkey);
    vb_put_be64(at + 8, wr->sge->addr);
    return true;
}

// Writes one entry; returns its blocks, 0 if the queue is full, or -EINVAL.
static int put(struct vb_driver_qp *qp, const struct vb_send_wr *wr)
{
    struct vb_driver_sq *sq = &qp->sq;
    uint64_t ci = __atomic_load_n(&sq->ci, __ATOMIC_ACQUIRE); // another thread may poll
    uint64_t room = sq->unbounded ? sq->blocks : sq->blocks - (sq->pi - ci);

    if (room > 0 && put_short(qp, wr))
        return 1;
    uint32_t bytes = entry_bytes(qp, wr);
    uint32_t blocks = (bytes + VB_WQEBB_BYTES - 1) / VB_WQEBB_BYTES;
    if (bytes == 0)
        return -EINVAL;
    if (blocks > room)
        return 0;
    put_entry(qp, wr, bytes);
    return (int)blocks;
}

// The NIC does not know of the entries yet. *refusal says why they are fewer than n: 0, the queue
// is full, or -EINVAL.
static inline uint32_t put_all(struct vb_driver_qp *qp, const struct vb_send_wr *wr, uint32_t n,
                               int *refusal)
{
    struct vb_driver_sq *sq = &qp->sq;
    uint32_t posted = 0;

    for (; posted < n; posted++, wr++) {
        int blocks = put(qp, wr);
        if (blocks <= 0) {
            *refusal = blocks;
            break;
        }
        sq->wr_id[sq->pi & (sq->blocks - 1)] = wr->wr_id;
        sq->size[sq->pi & (sq->blocks - 1)] = (uint8_t)blocks;
        sq->pi += (uint32_t)blocks;
    }
    return posted;
}

static inline void ring_for_sends(struct vb_driver_qp *qp)
{
    if (qp->sq.managed) {
        vb_driver_keep(qp, VB_DBREC_SQ, qp->sq.pi);
        return;
    }
    vb_driver_publish(&qp->dbrec[VB_DBREC_SQ], qp->sq.pi);
    vb_doorbell_ring(qp->doorbells, qp->qpn);
}

int vb_driver_post_send(struct vb_driver_qp *qp, const struct vb_send_wr *wr, uint32_t n)
{
    int refusal = 0;
    uint32_t posted = put_all(qp, wr, n, &refusal);

    if (posted > 0)
        ring_for_sends(qp);
    return posted == 0 && refusal < 0 ? refusal : (int)posted;
}

int vb_driver_post_send_all(struct vb_driver_qp *qp, const struct vb_send_wr *wr, uint32_t n)
{
    uint64_t before = qp->sq.pi;
    int refusal = 0;
    uint32_t posted = put_all(qp, wr, n, &refusal);

    if (posted < n) {
        qp->sq.pi = before;
        return refusal < 0 ? refusal : -ENOMEM;
    }
    if (n > 0)
        ring_for_sends(qp);
    return 0;
}

// Takes the entries between the producer's counter and `count` as posted: where each one begins
// says the one before.
static void adopt(struct vb_driver_sq *sq, uint64_t count)
{
    while (sq->pi < count) {
        uint32_t slot = (uint32_t)(sq->pi & (sq->blocks - 1));
        uint8_t ds = sq->ring[slot * VB_WQEBB_BYTES + offsetof(struct vb_wqe_ctrl, ds)];
        uint32_t blocks = ((ds & VB_WQE_DS_MASK) + 3) / 4;
        if (blocks == 0 || blocks > count - sq->pi)
            blocks = (uint32_t)(count - sq->pi); // the NIC will not make sense of it, either
        sq->wr_id[slot] = 0;
        sq->size[slot] = (uint8_t)(blocks < UINT8_MAX ? blocks : UINT8_MAX);
        sq->pi += blocks;
    }
}

int vb_driver_open_send(struct vb_driver_qp *qp, uint64_t count)
{
    struct vb_driver_sq *sq = &qp->sq;

    if (sq->managed) {
        vb_driver_publish_open(&qp->dbrec[VB_DBREC_SQ], count);
    } else {
        uint64_t from = sq->unbounded ? sq->pi : sq->ci;
        if (count < sq->pi || count - from > sq->blocks)
            return -EINVAL;
        adopt(sq, count);
        vb_driver_publish(&qp->dbrec[VB_DBREC_SQ], sq->pi);
    }
    vb_doorbell_ring(qp->doorbells, qp->qpn);
    return 0;
}
