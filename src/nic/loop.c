// SPDX-License-Identifier: Apache-2.0
// Queue pairs that are connected with themselves: entries are executed on this machine's memory, in
// order and without a packet. What is executed is the copy that was made when the entry was
// fetched.
#include "nic/pu.h"

#include "base/bytes.h"
#include "nic/atomic.h"
#include "nic/calc.h"

#include <string.h>

// An entry of the snapshot, in segments of 16 bytes behind its control segment.
struct entry {
    const struct vb_wqe_ctrl *ctrl;
    const uint8_t *at;
    uint32_t segs;
};

// ---- memory

// Where the data segments of an entry lie.
struct pieces {
    uint32_t count;
    bool single; // all are one byte long, as in programs that turn numbers around
    uint64_t bytes;
    uint8_t *at[VB_MAX_SGE];
    uint32_t len[VB_MAX_SGE];
};

// Source and destination may be the same memory, as a program that changes itself has it.
static inline void move(uint8_t *to, const uint8_t *from, uint32_t len)
{
    switch (len) {
    case 0: break;
    case 1: *to = *from; break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memmove(to, from, len); break;
    }
}

static void touch_all(struct vb_pu *pu, const struct pieces *p, const uint8_t *far, bool write)
{
    for (uint32_t i = 0; p->bytes > 0 && i < p->count; i++) {
        vb_pu_touch(pu, p->at[i], p->len[i], write);
        vb_pu_touch(pu, far, p->len[i], !write);
        far += p->len[i];
    }
}

// A region whose key needs no second look; NULL: one that does, or none.
static inline const struct vb_mkey *plain_key(const struct vb_pu *pu, const struct vb_qpc *qp,
                                              uint32_t key, enum vb_access need)
{
    const struct vb_mkey_table *t = &pu->dev->mkeys;
    const struct vb_mkey *m = &t->slots[key >> 8 & t->mask];

    return m->key == key && m->pd == qp->pd && m->kind == VB_MKEY_REGION &&
                   (m->access & need) == need
               ? m
               : NULL;
}

static enum vb_cqe_syndrome resolve_one(struct vb_pu *pu, const struct vb_qpc *qp,
                                        const struct vb_wqe_data *s, uint32_t len,
                                        enum vb_access need, uint8_t **at)
{
    if (len & VB_WQE_INLINE)
        return VB_SYN_LOCAL_QP_OP;
    if (len > 0 && vb_mem_access(&pu->dev->mkeys, vb_qpc_who(qp), be32toh(s->lkey),
                                 be64toh(s->addr), len, need, at) != VB_MEM_OK)
        return VB_SYN_LOCAL_PROT;
    return VB_SYN_OK;
}

// One segment of at least one byte.
static inline enum vb_cqe_syndrome near(struct vb_pu *pu, const struct vb_qpc *qp,
                                        const struct vb_wqe_data *s, uint32_t len,
                                        enum vb_access need, uint8_t **at)
{
    const struct vb_mkey *m = plain_key(pu, qp, be32toh(s->lkey), need);
    uint64_t offset = m ? be64toh(s->addr) - m->start : 0;

    if (__builtin_expect(m && offset < m->len && len <= m->len - offset, 1)) {
        *at = m->base + offset;
        return VB_SYN_OK;
    }
    return resolve_one(pu, qp, s, len, need, at);
}

// Segments from `s` on that are as long as it and of the same region, as far as they lie in it.
// Returns how many.
static inline uint32_t resolve_run(const struct vb_mkey *m, const struct vb_wqe_data *s,
                                   uint32_t segs, uint8_t **at, uint32_t *lens)
{
    uint64_t head, same, len = be32toh(s->byte_count);
    uint32_t n = 0;

    if (len - 1 >= m->len || len & VB_WQE_INLINE) // none, or too many
        return 0;
    memcpy(&head, s, sizeof head);
    for (;; s++) {
        memcpy(&same, s, sizeof same);
        uint64_t offset = be64toh(s->addr) - m->start;
        if (same != head || offset > m->len - len)
            break;
        at[n] = m->base + offset;
        lens[n++] = (uint32_t)len;
        if (n == segs)
            break;
    }
    return n;
}

// Proves the entry's data segments before the first byte moves.
static inline enum vb_cqe_syndrome resolve(struct vb_pu *pu, const struct vb_qpc *qp,
                                           const struct entry *e, enum vb_access need,
                                           struct pieces *out)
{
    const struct vb_wqe_data *s = (const void *)e->at;
    uint32_t i = 0, n, longest = 0;
    uint64_t bytes = 0;

    if (e->segs > VB_MAX_SGE)
        return VB_SYN_LOCAL_QP_OP;
    for (; i < e->segs; i += n) {
        uint32_t len = be32toh(s[i].byte_count);
        const struct vb_mkey *m = plain_key(pu, qp, be32toh(s[i].lkey), need);
        n = m ? resolve_run(m, s + i, e->segs - i, out->at + i, out->len + i) : 0;
        if (n == 0) {
            enum vb_cqe_syndrome r = resolve_one(pu, qp, s + i, len, need, &out->at[i]);
            if (r != VB_SYN_OK)
                return r;
            out->len[i] = len;
            n = 1;
        }
        bytes += (uint64_t)len * n;
        longest |= len;
    }
    out->count = e->segs;
    out->bytes = bytes;
    out->single = longest == 1 && bytes == e->segs;
    return bytes <= VB_MESSAGE_MAX ? VB_SYN_OK : VB_SYN_LOCAL_QP_OP;
}

static enum vb_cqe_syndrome reach_slowly(struct vb_pu *pu, struct vb_qpc *qp, const uint8_t *raddr,
                                         uint64_t len, enum vb_access need, uint8_t **at)
{
    if (vb_place_may(pu, qp, qp->pd, vb_get_be32(raddr + 8), vb_get_be64(raddr), (uint32_t)len,
                     need, at))
        return VB_SYN_OK;
    return qp->resp.gone ? VB_SYN_REMOTE_OP : VB_SYN_REMOTE_ACCESS;
}

// The far side is this queue pair, too: what it grants its peer, it grants itself.
static inline enum vb_cqe_syndrome reach(struct vb_pu *pu, struct vb_qpc *qp, const uint8_t *raddr,
                                         uint64_t len, enum vb_access need, uint8_t **at)
{
    const struct vb_mkey *m = plain_key(pu, qp, vb_get_be32(raddr + 8), need);
    uint64_t offset = m ? vb_get_be64(raddr) - m->start : 0;

    if (m && (qp->access & need) == need && offset < m->len && len <= m->len - offset) {
        *at = m->base + offset;
        return VB_SYN_OK;
    }
    return reach_slowly(pu, qp, raddr, len, need, at);
}

// ---- operations: each returns VB_SYN_OK, or why it fails

static enum vb_cqe_syndrome read_list(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e,
                                      const uint8_t *raddr, uint32_t *bytes)
{
    struct pieces to;
    uint8_t *from = NULL;

    enum vb_cqe_syndrome s = resolve(pu, qp, e, VB_LOCAL_WRITE, &to);
    if (s == VB_SYN_OK)
        s = reach(pu, qp, raddr, to.bytes, VB_REMOTE_READ, &from);
    if (s != VB_SYN_OK)
        return s;
    if (__builtin_expect(pu->recording, 0))
        touch_all(pu, &to, from, true);
    *bytes = (uint32_t)to.bytes;
    if (to.single) {
        for (uint32_t i = 0; i < to.count; i++)
            *to.at[i] = from[i];
        return VB_SYN_OK;
    }
    for (uint32_t i = 0; to.bytes > 0 && i < to.count; i++) {
        move(to.at[i], from, to.len[i]);
        from += to.len[i];
    }
    return VB_SYN_OK;
}

// Copies between one segment and the far side, either way.
static inline enum vb_cqe_syndrome copy_one(struct vb_pu *pu, struct vb_qpc *qp,
                                            const struct entry *e, const uint8_t *raddr,
                                            uint32_t len, bool read)
{
    uint8_t *here, *far;

    enum vb_cqe_syndrome s =
        near(pu, qp, (const void *)e->at, len, read ? VB_LOCAL_WRITE : VB_LOCAL_READ, &here);
    if (s == VB_SYN_OK)
        s = reach(pu, qp, raddr, len, read ? VB_REMOTE_READ : VB_REMOTE_WRITE, &far);
    if (s != VB_SYN_OK)
        return s;
    vb_pu_touch(pu, read ? far : here, len, false);
    vb_pu_touch(pu, read ? here : far, len, true);
    move(read ? here : far, read ? far : here, len);
    return VB_SYN_OK;
}

// Goes on behind the segment that names the far side. False: there is none.
static inline bool skip_remote(struct entry *e)
{
    if (e->segs < 1)
        return false;
    e->at += VB_WQE_SEG_BYTES;
    e->segs--;
    return true;
}

// One data segment with so many bytes, none of them inline, and no more than a message has.
static inline bool is_one(const struct entry *e, uint32_t *len)
{
    if (e->segs != 1)
        return false;
    *len = vb_get_be32(e->at);
    return *len - 1 < VB_MESSAGE_MAX - 1u; // the longest is the mark of inline data, too
}

static inline enum vb_cqe_syndrome do_read(struct vb_pu *pu, struct vb_qpc *qp, struct entry e,
                                           uint32_t *bytes)
{
    const uint8_t *raddr = e.at;

    if (!skip_remote(&e))
        return VB_SYN_LOCAL_QP_OP;
    return is_one(&e, bytes) ? copy_one(pu, qp, &e, raddr, *bytes, true)
                             : read_list(pu, qp, &e, raddr, bytes);
}

// Inline data, in one or more segments one after another.
static enum vb_cqe_syndrome put_inline(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e,
                                       const uint8_t *raddr, uint32_t *bytes)
{
    uint8_t data[VB_WR_LONG_BYTES], *to = NULL;

    if (!vb_wqe_gather_inline(e->at, e->segs, data, bytes))
        return VB_SYN_LOCAL_QP_OP;
    enum vb_cqe_syndrome s = reach(pu, qp, raddr, *bytes, VB_REMOTE_WRITE, &to);
    if (s == VB_SYN_OK && *bytes > 0) {
        memcpy(to, data, *bytes);
        vb_pu_touch(pu, to, *bytes, true);
    }
    return s;
}

static enum vb_cqe_syndrome put_calc(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e,
                                     const uint8_t *raddr)
{
    uint8_t op = e->ctrl->opmod, *to;
    struct pieces from;
    struct vb_calc calc;

    if (!vb_calc_exists(op) || e->segs == 0)
        return VB_SYN_LOCAL_QP_OP;
    enum vb_cqe_syndrome s = resolve(pu, qp, e, VB_LOCAL_READ, &from);
    for (uint32_t i = 0; s == VB_SYN_OK && i < from.count; i++)
        if (from.len[i] != VB_CALC_RECORD_BYTES ||
            vb_get_be64(e->at + i * VB_WQE_SEG_BYTES + 8) % VB_CALC_RECORD_BYTES)
            s = VB_SYN_LOCAL_QP_OP;
    if (s == VB_SYN_OK)
        s = reach(pu, qp, raddr, VB_CALC_RECORD_BYTES, VB_REMOTE_WRITE, &to);
    if (s != VB_SYN_OK)
        return s;
    vb_calc_begin(&calc, op, from.at[0]);
    for (uint32_t i = 1; i < from.count; i++)
        vb_calc_add(&calc, from.at[i]);
    for (uint32_t i = 0; i < from.count; i++)
        vb_pu_touch(pu, from.at[i], VB_CALC_RECORD_BYTES, false);
    vb_calc_end(&calc, to);
    vb_pu_touch(pu, to, VB_CALC_RECORD_BYTES, true);
    return VB_SYN_OK;
}

static enum vb_cqe_syndrome write_list(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e,
                                       const uint8_t *raddr, uint32_t *bytes)
{
    struct pieces from;
    uint8_t *to = NULL;

    if (e->ctrl->opmod) {
        *bytes = VB_CALC_RECORD_BYTES;
        return put_calc(pu, qp, e, raddr);
    }
    if (e->segs && (vb_get_be32(e->at) & VB_WQE_INLINE))
        return put_inline(pu, qp, e, raddr, bytes);
    enum vb_cqe_syndrome s = resolve(pu, qp, e, VB_LOCAL_READ, &from);
    if (s == VB_SYN_OK)
        s = reach(pu, qp, raddr, from.bytes, VB_REMOTE_WRITE, &to);
    if (s != VB_SYN_OK)
        return s;
    if (__builtin_expect(pu->recording, 0))
        touch_all(pu, &from, to, false);
    for (uint32_t i = 0; from.bytes > 0 && i < from.count; i++) {
        move(to, from.at[i], from.len[i]);
        to += from.len[i];
    }
    *bytes = (uint32_t)from.bytes;
    return VB_SYN_OK;
}

static inline enum vb_cqe_syndrome do_write(struct vb_pu *pu, struct vb_qpc *qp, struct entry e,
                                            uint32_t *bytes)
{
    const uint8_t *raddr = e.at;

    if (!skip_remote(&e))
        return VB_SYN_LOCAL_QP_OP;
    return !e.ctrl->opmod && is_one(&e, bytes) ? copy_one(pu, qp, &e, raddr, *bytes, false)
                                               : write_list(pu, qp, &e, raddr, bytes);
}

// The arguments of an atomic. Returns how many segments they take; 0: it makes no sense.
static uint32_t read_arguments(const struct entry *e, struct vb_atomic_op *op)
{
    const uint8_t *a = e->at + VB_WQE_SEG_BYTES;
    bool masked = e->ctrl->opcode == VB_WQE_MASKED_CS || e->ctrl->opcode == VB_WQE_MASKED_FA;
    bool wide = !masked || e->ctrl->opmod == VB_WQE_OPMOD_MASKED8;

    op->swaps = e->ctrl->opcode == VB_WQE_ATOMIC_CS || e->ctrl->opcode == VB_WQE_MASKED_CS;
    op->bytes = wide ? 8 : 4;
    op->swap_mask = op->compare_mask = UINT64_MAX;
    uint32_t segs = masked && op->swaps && wide ? 2 : 1;
    if (e->segs != segs + 2 ||
        (masked ? !wide && e->ctrl->opmod != VB_WQE_OPMOD_MASKED4 : e->ctrl->opmod != 0))
        return 0;
    op->swap_add = wide ? vb_get_be64(a) : vb_get_be32(a);
    op->compare = wide ? vb_get_be64(a + 8) : vb_get_be32(a + 4);
    if (masked && op->swaps) {
        op->swap_mask = wide ? vb_get_be64(a + 16) : vb_get_be32(a + 8);
        op->compare_mask = wide ? vb_get_be64(a + 24) : vb_get_be32(a + 12);
    }
    if (!masked && !op->swaps)
        op->compare = 0; // one field of 64 bits
    return segs;
}

static enum vb_cqe_syndrome do_atomic(struct vb_pu *pu, struct vb_qpc *qp, struct entry e,
                                      uint32_t *bytes)
{
    const uint8_t *raddr = e.at;
    struct vb_atomic_op op;
    uint8_t *at = NULL, *to = NULL;

    uint32_t segs = e.segs < 3 ? 0 : read_arguments(&e, &op);
    const struct vb_wqe_data *result = (const void *)(e.at + (1 + segs) * VB_WQE_SEG_BYTES);
    if (segs == 0 || be32toh(result->byte_count) != op.bytes)
        return VB_SYN_LOCAL_QP_OP;
    enum vb_cqe_syndrome s = near(pu, qp, result, op.bytes, VB_LOCAL_WRITE, &to);
    if (s == VB_SYN_OK && vb_get_be64(raddr) & (op.bytes - 1u))
        s = VB_SYN_REMOTE_INVAL_REQ;
    if (s == VB_SYN_OK)
        s = reach(pu, qp, raddr, op.bytes, VB_REMOTE_ATOMIC, &at);
    if (s == VB_SYN_OK && (uintptr_t)at & (op.bytes - 1u))
        s = VB_SYN_REMOTE_INVAL_REQ;
    if (s != VB_SYN_OK)
        return s;
    uint64_t old = vb_atomic_execute(at, &op);
    vb_pu_touch(pu, at, op.bytes, false);
    vb_pu_touch(pu, at, op.bytes, true);
    vb_pu_touch(pu, to, op.bytes, true);
    if (op.bytes == 8)
        memcpy(to, &old, 8);
    else
        memcpy(to, &(uint32_t){(uint32_t)old}, 4);
    *bytes = op.bytes;
    return VB_SYN_OK;
}

static enum vb_cqe_syndrome do_enable(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e)
{
    bool receive = e->ctrl->opcode == VB_WQE_RECV_EN;

    if (e->segs != 1 || e->ctrl->opmod ||
        !vb_cross_enable(pu, qp, receive, vb_get_be32(e->at + 12), vb_get_be32(e->at + 8)))
        return VB_SYN_LOCAL_QP_OP;
    return VB_SYN_OK;
}

static inline enum vb_cqe_syndrome execute(struct vb_pu *pu, struct vb_qpc *qp,
                                           const struct entry *e, uint32_t *bytes)
{
    switch (e->ctrl->opcode) {
    case VB_WQE_NOP:
    case VB_WQE_WAIT: return VB_SYN_OK; // whose time has come
    case VB_WQE_SEND_EN:
    case VB_WQE_RECV_EN: return do_enable(pu, qp, e);
    case VB_WQE_READ: return e->ctrl->opmod ? VB_SYN_LOCAL_QP_OP : do_read(pu, qp, *e, bytes);
    case VB_WQE_WRITE: return do_write(pu, qp, *e, bytes);
    case VB_WQE_ATOMIC_CS:
    case VB_WQE_ATOMIC_FA:
    case VB_WQE_MASKED_CS:
    case VB_WQE_MASKED_FA: return do_atomic(pu, qp, *e, bytes);
    // A queue pair that is its own peer has no receives: nothing that needs one is legal.
    default: return VB_SYN_LOCAL_QP_OP;
    }
}

// A WAIT whose time has come.
static inline bool is_ready(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e, bool *bad)
{
    uint32_t cqn = vb_get_be32(e->at + 12), index = vb_get_be32(e->at + 8);

    *bad = e->segs != 1 || e->ctrl->opmod;
    if (*bad)
        return false;
    const struct vb_cqc *cq = vb_dev_cq(pu->dev, cqn);
    if (cq && !qp->cross->waits_for && vb_cqc_has(cq, index))
        return true;
    return vb_cross_wait(pu, qp, cqn, index, bad);
}

static bool is_right(const struct vb_qpc *qp, const struct vb_wqe_ctrl *ctrl, uint64_t counter)
{
    return !qp->wqe_checks ||
           (vb_get_be16(ctrl->idx) == (uint16_t)counter && vb_get_be24(ctrl->qpn) == qp->qpn &&
            (ctrl->opcode != VB_WQE_NOP || ctrl->opmod == 0));
}

// Whether the entry may be executed now: a WAIT when its time has come, any if it is right and
// within its limits.
static inline enum vb_cross_verdict admit(struct vb_pu *pu, struct vb_qpc *qp,
                                          const struct entry *e)
{
    const struct vb_cross *c = qp->cross;
    bool bad;

    if (__builtin_expect(c->careful, 0) && !is_right(qp, e->ctrl, c->snap.executed))
        return VB_CROSS_STOP;
    if (e->ctrl->opcode == VB_WQE_WAIT && !is_ready(pu, qp, e, &bad))
        return bad ? VB_CROSS_STOP : VB_CROSS_HELD;
    return __builtin_expect(c->careful, 0) && c->limited ? vb_cross_admit(pu, qp) : VB_CROSS_GO;
}

// ---- failing

void vb_loop_abandon(struct vb_qpc *qp)
{
    struct vb_snapshot *snap = &qp->cross->snap;

    snap->ahead = 0;
    snap->filling = false;
    qp->sq.fetched = snap->executed; // what is done completes: see vb_loop_complete()
}

// The entry at the edge fails, and with it the queue pair; those behind it are flushed.
static void fail(struct vb_pu *pu, struct vb_qpc *qp, uint64_t next, uint8_t opcode,
                 enum vb_cqe_syndrome syndrome)
{
    struct vb_snapshot *snap = &qp->cross->snap;
    uint64_t counter = snap->executed;

    snap->executed = next;
    qp->flushing = true; // it is the one with the reason
    vb_qpc_fail(pu, qp);
    vb_pu_event(pu, VB_EVENT_QP_FATAL, qp->qpn);
    vb_qpc_complete(pu, qp, qp->send_cq,
                    &(struct vb_completion){.qpn = qp->qpn,
                                            .counter = counter,
                                            .opcode = VB_CQE_REQ_ERR,
                                            .wqe_opcode = opcode,
                                            .syndrome = (uint8_t)syndrome});
}

// ---- steps

static inline uint8_t *slot(const struct vb_snapshot *snap, uint64_t counter)
{
    return snap->block + (counter & snap->mask) * VB_WQEBB_BYTES;
}

static inline const uint8_t *source(const struct vb_sq *sq, uint64_t counter)
{
    return sq->ring + (counter & (sq->blocks - 1)) * VB_WQEBB_BYTES;
}

// Copies the entry at the counter, of a NOP only the first block: the rest is skipped. Returns how
// many blocks it covers. One that says nothing sensible is marked, whatever is opened later.
static inline uint32_t copy_entry(const struct vb_snapshot *snap, const struct vb_sq *sq,
                                  uint64_t counter)
{
    uint8_t *restrict to = slot(snap, counter);
    const uint8_t *from = source(sq, counter);
    struct vb_wqe_ctrl *ctrl = (struct vb_wqe_ctrl *)(void *)to;
    uint64_t left = sq->end - counter;

    memcpy(to, from, VB_WQEBB_BYTES);
    uint32_t blocks = ((ctrl->ds & VB_WQE_DS_MASK) + 3u) / 4;
    if (__builtin_expect(blocks == 1, 1))
        return 1;
    if (blocks == 0 || blocks > left) {
        ctrl->ds = 0;
        return (uint32_t)left;
    }
    for (uint32_t i = 1; i < blocks && ctrl->opcode != VB_WQE_NOP; i++)
        memcpy(to + i * VB_WQEBB_BYTES, source(sq, counter + i), VB_WQEBB_BYTES);
    return blocks;
}

// Copies up to `most` entries that are open, as deep as is allowed. Returns how many.
static inline uint32_t fetch(struct vb_pu *pu, struct vb_qpc *qp, uint32_t most)
{
    struct vb_snapshot *snap = &qp->cross->snap;
    struct vb_sq *sq = &qp->sq;
    uint32_t room = qp->fetch_depth - snap->ahead, n = 0;
    uint64_t counter = sq->fetched, end = sq->end;
    uint64_t last = snap->executed + snap->mask + 1 - VB_WQE_MAX_BLOCKS; // so that any entry fits

    // A few at a time: one that starts fetching does so until the depth is reached.
    if (counter == end)
        snap->filling = false;
    if (counter == end || (snap->ahead > qp->fetch_depth / 2 && !snap->filling))
        return 0;
    most = room < most ? room : most;
    end = end <= last ? end : last + 1;
    for (; n < most && counter < end; n++) {
        uint32_t blocks = copy_entry(snap, sq, counter);
        VB_RECORD(pu, .kind = VB_STEP_FETCH, .opcode = slot(snap, counter)[3], .qpn = qp->qpn,
                  .counter = counter, .bytes = blocks * VB_WQEBB_BYTES);
        counter += blocks;
    }
    sq->fetched = counter;
    snap->ahead += n;
    snap->filling = n == most && most < room;
    return n;
}

bool vb_loop_complete(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_snapshot *snap = &qp->cross->snap;

    if (!snap->due)
        return false;
    snap->due = false;
    vb_qpc_complete(pu, qp, qp->send_cq,
                    &(struct vb_completion){.qpn = qp->qpn,
                                            .counter = snap->done_counter,
                                            .opcode = VB_CQE_REQ,
                                            .wqe_opcode = snap->done_opcode,
                                            .bytes = snap->done_bytes});
    return true;
}

// The entry at the edge is done.
static inline void retire(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_wqe_ctrl *ctrl,
                          uint64_t next, uint32_t bytes)
{
    struct vb_cross *c = qp->cross;
    struct vb_snapshot *snap = &c->snap;
    uint64_t counter = snap->executed;

    VB_RECORD(pu, .kind = VB_STEP_EXEC, .opcode = ctrl->opcode, .qpn = qp->qpn, .counter = counter,
              .bytes = bytes);
    if ((ctrl->fm_ce_se & VB_WQE_CE_MASK) >= VB_WQE_CE_ALWAYS) {
        snap->due = true;
        snap->done_opcode = ctrl->opcode;
        snap->done_bytes = bytes;
        snap->done_counter = counter;
    }
    snap->executed = next;
    snap->ahead--;
    if (__builtin_expect(c->careful, 0) && c->program)
        vb_program_executed(pu, qp, counter, ctrl->opcode);
}

// Executes the oldest entry of the snapshot. False: it must wait.
static inline __attribute__((always_inline)) bool execute_next(struct vb_pu *pu, struct vb_qpc *qp)
{
    const struct vb_snapshot *snap = &qp->cross->snap;
    const uint8_t *at = slot(snap, snap->executed);
    const struct vb_wqe_ctrl *ctrl = (const struct vb_wqe_ctrl *)(const void *)at;
    uint32_t segs = ctrl->ds & VB_WQE_DS_MASK, bytes = 0;
    const struct entry e = {ctrl, at + sizeof *ctrl, segs - 1};

    if (__builtin_expect(segs == 0, 0)) { // where the next entry is, it does not say: the rest goes
        fail(pu, qp, qp->sq.end, ctrl->opcode, VB_SYN_LOCAL_QP_OP);
        return true;
    }
    uint64_t next = snap->executed + (segs + 3) / 4;
    enum vb_cross_verdict verdict = admit(pu, qp, &e);
    if (verdict == VB_CROSS_HELD)
        return false;
    enum vb_cqe_syndrome s =
        verdict == VB_CROSS_GO ? execute(pu, qp, &e, &bytes) : VB_SYN_LOCAL_QP_OP;
    if (__builtin_expect(s == VB_SYN_OK, 1))
        retire(pu, qp, ctrl, next, bytes);
    else
        fail(pu, qp, next, ctrl->opcode, s);
    return true;
}

// In SQD nothing is begun; and what was begun is done.
static bool drain(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (!qp->drained)
        vb_pu_event(pu, VB_EVENT_SQ_DRAINED, qp->qpn);
    qp->drained = true;
    return false;
}

uint32_t vb_loop_run(struct vb_pu *pu, struct vb_qpc *qp)
{
    const struct vb_snapshot *snap = &qp->cross->snap;
    uint32_t steps = 0, made = 0, most = VB_TURN_FRAMES - pu->turn_frames;
    uint32_t half = qp->fetch_depth / 2;

    while (made < most && qp->state == VB_QPS_RTS) {
        if (snap->due)
            steps += vb_loop_complete(pu, qp);
        if (snap->ahead <= half)
            steps += fetch(pu, qp, UINT32_MAX);
        if (snap->ahead == 0 || !execute_next(pu, qp))
            break;
        made++;
    }
    pu->turn_frames += made;
    pu->looped += made;
    return steps + made;
}

bool vb_loop_step(struct vb_pu *pu, struct vb_qpc *qp)
{
    const struct vb_snapshot *snap = &qp->cross->snap;

    if (vb_loop_complete(pu, qp))
        return true;
    if (qp->state != VB_QPS_RTS)
        return drain(pu, qp);
    if (fetch(pu, qp, 1) > 0)
        return true;
    if (snap->ahead == 0 || !execute_next(pu, qp))
        return false;
    pu->turn_frames++;
    pu->looped++;
    return true;
}
