// SPDX-License-Identifier: Apache-2.0
// Entries of loops on this machine's memory. What most entries are, one segment of a plain region
// on either side and nobody who reads records, is done without a detour; all the rest slowly.
#include "nic/local.h"

#include "base/bytes.h"
#include "nic/atomic.h"
#include "nic/calc.h"
#include "nic/pu.h"

#include <string.h>

#define NOINLINE      __attribute__((noinline))
#define SLOWLY        NOINLINE static
#define ALWAYS_INLINE static inline __attribute__((always_inline))

// An entry behind its control segment.
struct entry {
    const struct vb_wqe_raddr *raddr;
    const struct vb_wqe_data *data;
    uint32_t segs; // of data
};

static inline struct vb_local_end ends(enum vb_cqe_syndrome syndrome)
{
    return (struct vb_local_end){.syndrome = syndrome};
}

static inline struct vb_local_end moved(uint32_t bytes)
{
    return (struct vb_local_end){.bytes = bytes};
}

// ---- memory

// Where the data segments of an entry lie.
struct pieces {
    uint32_t count;
    uint64_t bytes;
    struct {
        uint8_t *at;
        uint64_t len;
    } piece[VB_MAX_SGE];
};

// Source and destination may be the same memory, as a program that changes itself has it.
static inline void move(uint8_t *to, const uint8_t *from, uint64_t len)
{
    uint32_t word;
    uint16_t half;
    uint8_t last;

    if (len == 1) {
        *to = *from;
    } else if (len == 3) {
        memcpy(&half, from, 2);
        last = from[2];
        memcpy(to, &half, 2);
        to[2] = last;
    } else if (len == 8) {
        memmove(to, from, 8);
    } else if (len == 4) {
        memmove(to, from, 4);
    } else if (len == 6) {
        memcpy(&word, from, 4);
        memcpy(&half, from + 4, 2);
        memcpy(to, &word, 4);
        memcpy(to + 4, &half, 2);
    } else if (len > 0) {
        memmove(to, from, len);
    }
}

static inline void touch_both(struct vb_pu *pu, const uint8_t *to, const uint8_t *from,
                              uint32_t len)
{
    vb_pu_touch(pu, to, len, true);
    vb_pu_touch(pu, from, len, false);
}

// One segment of at least one byte, in a plain region. NULL: it is not.
static inline uint8_t *near(const struct vb_pu *pu, const struct vb_qpc *qp,
                            const struct vb_wqe_data *s, uint32_t len, enum vb_access need)
{
    const struct vb_mkey *m = vb_mkey_plain(&pu->dev->mkeys, qp->pd, be32toh(s->lkey), need);
    return m ? vb_mkey_at(m, be64toh(s->addr), len) : NULL;
}

// The far side is this queue pair, too: what it grants its peer, it grants itself.
static inline uint8_t *far(const struct vb_pu *pu, const struct vb_qpc *qp,
                           const struct vb_wqe_raddr *r, uint64_t len, enum vb_access need)
{
    const struct vb_mkey *m = vb_mkey_plain(&pu->dev->mkeys, qp->pd, be32toh(r->rkey), need);
    return m && (qp->access & need) == need ? vb_mkey_at(m, be64toh(r->raddr), len) : NULL;
}

// From an address of the far side on: how many bytes its region has there.
static inline uint8_t *far_room(const struct vb_pu *pu, const struct vb_qpc *qp,
                                const struct vb_wqe_raddr *r, enum vb_access need, uint64_t *room)
{
    const struct vb_mkey *m = vb_mkey_plain(&pu->dev->mkeys, qp->pd, be32toh(r->rkey), need);
    if (!m || (qp->access & need) != need)
        return NULL;
    uint64_t offset = be64toh(r->raddr) - m->start;
    *room = m->len - offset;
    return offset < m->len ? vb_mkey_byte(m, offset) : NULL;
}

SLOWLY enum vb_cqe_syndrome resolve_one(struct vb_pu *pu, const struct vb_qpc *qp,
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

// Proves the entry's data segments before the first byte moves.
static enum vb_cqe_syndrome resolve(struct vb_pu *pu, const struct vb_qpc *qp,
                                    const struct entry *e, enum vb_access need, struct pieces *out)
{
    out->count = e->segs;
    out->bytes = 0;
    if (e->segs > VB_MAX_SGE)
        return VB_SYN_LOCAL_QP_OP;
    for (uint32_t i = 0; i < e->segs; i++) {
        const struct vb_wqe_data *s = &e->data[i];
        uint32_t len = be32toh(s->byte_count);
        out->piece[i].len = len;
        out->bytes += len;
        out->piece[i].at = len - 1 < qp->entry_max - 1u ? near(pu, qp, s, len, need) : NULL;
        if (__builtin_expect(out->piece[i].at != NULL, 1))
            continue;
        enum vb_cqe_syndrome r = resolve_one(pu, qp, s, len, need, &out->piece[i].at);
        if (r != VB_SYN_OK)
            return r;
    }
    return out->bytes <= qp->entry_max ? VB_SYN_OK : VB_SYN_LOCAL_QP_OP;
}

// The far side, whatever its key names.
SLOWLY enum vb_cqe_syndrome reach(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_wqe_raddr *r,
                                  uint64_t len, enum vb_access need, uint8_t **at)
{
    if (vb_place_may(pu, qp, qp->pd, be32toh(r->rkey), be64toh(r->raddr), (uint32_t)len, need, at))
        return VB_SYN_OK;
    return qp->resp.gone ? VB_SYN_REMOTE_OP : VB_SYN_REMOTE_ACCESS;
}

// ---- READ

// Brings bytes into the list's first segments, as many as lie in plain regions; at most `room`
// bytes. Returns how many segments that were. One behind them that fails does not take them back:
// what a READ that fails leaves is undefined. The region of the last one is kept at hand.
ALWAYS_INLINE uint32_t scatter_plain(struct vb_pu *pu, const struct vb_qpc *qp,
                                     const struct entry *e, const uint8_t **far, uint64_t room,
                                     bool recorded)
{
    const struct vb_wqe_data *s = e->data, *const end = s + e->segs;
    const uint8_t *from = *far;
    uint64_t start = 0, near_room = 0, spare = room - e->segs;
    uint32_t key = 0;
    uint8_t *base = NULL;

    for (; s < end; s++) {
        if (s->lkey != key) {
            const struct vb_mkey *m =
                vb_mkey_plain(&pu->dev->mkeys, qp->pd, be32toh(s->lkey), VB_LOCAL_WRITE);
            if (!m)
                break;
            near_room = m->len;
            start = m->start;
            base = m->base;
            key = s->lkey;
        }
        uint64_t offset = be64toh(s->addr) - start;
        if (offset >= near_room)
            break;
        // What has no bytes, or inline ones, has more than a message.
        uint64_t more = be32toh(s->byte_count) - 1u;
        if (more >= near_room - offset || more > spare)
            break;
        if (recorded)
            touch_both(pu, base + offset, from, (uint32_t)more + 1);
        move(base + offset, from, more + 1);
        spare -= more;
        from += more + 1;
    }
    *far = from;
    return (uint32_t)(s - e->data);
}

// What is left of the list, of which `done` bytes have come. If it fails, they have.
SLOWLY struct vb_local_end read_rest(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e,
                                     uint64_t done)
{
    struct pieces to;
    uint8_t *from = NULL;

    enum vb_cqe_syndrome s = resolve(pu, qp, e, VB_LOCAL_WRITE, &to);
    uint64_t bytes = done + to.bytes;
    if (s == VB_SYN_OK && bytes > qp->entry_max)
        s = VB_SYN_LOCAL_QP_OP;
    if (s == VB_SYN_OK)
        s = reach(pu, qp, e->raddr, bytes, VB_REMOTE_READ, &from);
    if (s != VB_SYN_OK || to.bytes == 0)
        return s != VB_SYN_OK ? ends(s) : moved((uint32_t)bytes);
    from += done;
    for (uint32_t i = 0; i < to.count; i++) {
        touch_both(pu, to.piece[i].at, from, (uint32_t)to.piece[i].len);
        move(to.piece[i].at, from, to.piece[i].len);
        from += to.piece[i].len;
    }
    return moved((uint32_t)bytes);
}

static inline struct entry list_of(const struct vb_wqe_ctrl *ctrl)
{
    const struct vb_wqe_raddr *raddr = (const void *)(ctrl + 1);
    return (struct entry){raddr, (const void *)(raddr + 1), (ctrl->ds & VB_WQE_DS_MASK) - 2u};
}

static inline struct entry behind(struct entry e, uint32_t taken)
{
    return (struct entry){e.raddr, e.data + taken, e.segs - taken};
}

// The list behind its first segments, of which `done` bytes have come.
ALWAYS_INLINE struct vb_local_end read_behind(struct vb_pu *pu, struct vb_qpc *qp,
                                              const struct vb_wqe_ctrl *ctrl, uint32_t taken,
                                              uint64_t done, bool recorded)
{
    struct entry e = list_of(ctrl);
    uint64_t room, most = qp->entry_max - 1u;

    if (ctrl->opmod || e.segs > VB_MAX_SGE) // no far side is too many, too
        return ends(VB_SYN_LOCAL_QP_OP);
    const uint8_t *const begin = far_room(pu, qp, e.raddr, VB_REMOTE_READ, &room);
    e = behind(e, taken);
    if (!begin || room < done + e.segs)
        return read_rest(pu, qp, &e, done);
    const uint8_t *from = begin + done;
    room = (room < most ? room : most) - done;
    e = behind(e, scatter_plain(pu, qp, &e, &from, room, recorded));
    done = (uint64_t)(from - begin);
    return __builtin_expect(e.segs == 0, 1) ? moved((uint32_t)done) : read_rest(pu, qp, &e, done);
}

struct vb_local_end vb_local_read_slowly(struct vb_pu *pu, struct vb_qpc *qp,
                                         const struct vb_wqe_ctrl *ctrl)
{
    return read_behind(pu, qp, ctrl, 0, 0, true);
}

SLOWLY struct vb_local_end read_long(struct vb_pu *pu, struct vb_qpc *qp,
                                     const struct vb_wqe_ctrl *ctrl, uint32_t taken, uint64_t done)
{
    return read_behind(pu, qp, ctrl, taken, done, false);
}

enum {
    SHORT = 8 // bytes of a segment, at most
};
static_assert(SHORT * VB_MAX_SGE < VB_SHARE_ENTRY_MAX,
              "a list of short segments is never too long");

// Bytes of a segment of one of the lengths that fields of entries have; otherwise 0.
static inline uint32_t short_length(uint32_t byte_count)
{
    return byte_count == htobe32(8)   ? 8
           : byte_count == htobe32(3) ? 3
           : byte_count == htobe32(1) ? 1
           : byte_count == htobe32(4) ? 4
           : byte_count == htobe32(6) ? 6
                                      : 0;
}

// Short segments, where on either side there would be room for the longest, are brought here; from
// the first other one on the list takes its time.
struct vb_local_end vb_local_read(struct vb_pu *pu, struct vb_qpc *qp,
                                  const struct vb_wqe_ctrl *ctrl)
{
    const struct entry e = list_of(ctrl);
    const uint64_t most = e.segs <= VB_MAX_SGE && !ctrl->opmod ? SHORT * e.segs : UINT64_MAX;
    const uint8_t *const begin = far(pu, qp, e.raddr, most, VB_REMOTE_READ), *from = begin;
    const struct vb_wqe_data *s = e.data, *const end = s + (begin ? e.segs : 0);
    const struct vb_mkey *near = NULL;
    uint32_t key = 0;

    for (; s < end; s++) {
        if (!near || s->lkey != key)
            near = vb_mkey_plain(&pu->dev->mkeys, qp->pd, be32toh(s->lkey), VB_LOCAL_WRITE);
        key = s->lkey;
        uint64_t offset = near ? be64toh(s->addr) - near->start : UINT64_MAX;
        uint32_t len = near && offset < near->words ? short_length(s->byte_count) : 0;
        if (len == 0)
            return read_long(pu, qp, ctrl, (uint32_t)(s - e.data), (uint64_t)(from - begin));
        move(vb_mkey_byte(near, offset), from, len);
        from += len;
    }
    return begin ? moved((uint32_t)(from - begin)) : read_long(pu, qp, ctrl, 0, 0);
}

// ---- WRITE

// Inline data, in one or more segments one after another.
static struct vb_local_end put_inline(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e)
{
    uint8_t data[VB_WR_LONG_BYTES], *to = NULL;
    uint32_t bytes;

    if (!vb_wqe_gather_inline((const uint8_t *)e->data, e->segs, data, &bytes))
        return ends(VB_SYN_LOCAL_QP_OP);
    enum vb_cqe_syndrome s = reach(pu, qp, e->raddr, bytes, VB_REMOTE_WRITE, &to);
    if (s != VB_SYN_OK || bytes == 0)
        return ends(s);
    memcpy(to, data, bytes);
    vb_pu_touch(pu, to, bytes, true);
    return moved(bytes);
}

// Every operand is a record that lies where records do.
static bool are_records(const struct pieces *p, const struct vb_wqe_data *data)
{
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < p->count; i++)
        wrong |=
            (p->piece[i].len ^ VB_CALC_RECORD_BYTES) | be64toh(data[i].addr) % VB_CALC_RECORD_BYTES;
    return wrong == 0;
}

static struct vb_local_end put_calc(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e,
                                    uint8_t op)
{
    struct pieces from;
    struct vb_calc calc;

    if (!vb_calc_exists(op) || e->segs == 0)
        return ends(VB_SYN_LOCAL_QP_OP);
    enum vb_cqe_syndrome s = resolve(pu, qp, e, VB_LOCAL_READ, &from);
    if (s == VB_SYN_OK && !are_records(&from, e->data))
        s = VB_SYN_LOCAL_QP_OP;
    if (s != VB_SYN_OK)
        return ends(s);
    uint8_t *to = far(pu, qp, e->raddr, VB_CALC_RECORD_BYTES, VB_REMOTE_WRITE);
    if (__builtin_expect(!to, 0))
        s = reach(pu, qp, e->raddr, VB_CALC_RECORD_BYTES, VB_REMOTE_WRITE, &to);
    if (s != VB_SYN_OK)
        return ends(s);
    vb_calc_begin(&calc, op, from.piece[0].at);
    for (uint32_t i = 1; i < from.count; i++)
        vb_calc_add(&calc, from.piece[i].at);
    for (uint32_t i = 0; __builtin_expect(pu->recording, 0) && i < from.count; i++)
        vb_pu_touch(pu, from.piece[i].at, VB_CALC_RECORD_BYTES, false);
    vb_calc_end(&calc, to);
    vb_pu_touch(pu, to, VB_CALC_RECORD_BYTES, true);
    return moved(VB_CALC_RECORD_BYTES);
}

static struct vb_local_end put_list(struct vb_pu *pu, struct vb_qpc *qp, const struct entry *e)
{
    struct pieces from;
    uint8_t *to;

    enum vb_cqe_syndrome s = resolve(pu, qp, e, VB_LOCAL_READ, &from);
    if (s == VB_SYN_OK)
        s = reach(pu, qp, e->raddr, from.bytes, VB_REMOTE_WRITE, &to);
    if (s != VB_SYN_OK || from.bytes == 0)
        return ends(s);
    for (uint32_t i = 0; i < from.count; i++) {
        touch_both(pu, to, from.piece[i].at, (uint32_t)from.piece[i].len);
        move(to, from.piece[i].at, from.piece[i].len);
        to += from.piece[i].len;
    }
    return moved((uint32_t)from.bytes);
}

NOINLINE struct vb_local_end vb_local_write_slowly(struct vb_pu *pu, struct vb_qpc *qp,
                                                   const struct vb_wqe_ctrl *ctrl)
{
    const struct entry e = list_of(ctrl);

    if ((ctrl->ds & VB_WQE_DS_MASK) < 2)
        return ends(VB_SYN_LOCAL_QP_OP);
    if (ctrl->opmod)
        return put_calc(pu, qp, &e, ctrl->opmod);
    if (e.segs && (be32toh(e.data->byte_count) & VB_WQE_INLINE))
        return put_inline(pu, qp, &e);
    return put_list(pu, qp, &e);
}

// One segment of any length; all others slowly.
struct vb_local_end vb_local_write(struct vb_pu *pu, struct vb_qpc *qp,
                                   const struct vb_wqe_ctrl *ctrl)
{
    const struct entry e = list_of(ctrl);
    uint32_t len = be32toh(e.data->byte_count);

    if (e.segs == 1 && !ctrl->opmod && len - 1 < qp->entry_max - 1u) { // neither none nor inline
        const uint8_t *from = near(pu, qp, e.data, len, VB_LOCAL_READ);
        uint8_t *to = from ? far(pu, qp, e.raddr, len, VB_REMOTE_WRITE) : NULL;
        if (to) {
            move(to, from, len);
            return moved(len);
        }
    }
    return vb_local_write_slowly(pu, qp, ctrl);
}

// ---- atomics

// The arguments of an atomic. Returns how many segments they take; 0: it makes no sense.
static uint32_t read_arguments(const struct vb_wqe_ctrl *ctrl, struct vb_atomic_op *op)
{
    const uint8_t *a = (const uint8_t *)(ctrl + 2);
    bool masked = ctrl->opcode == VB_WQE_MASKED_CS || ctrl->opcode == VB_WQE_MASKED_FA;
    bool wide = !masked || ctrl->opmod == VB_WQE_OPMOD_MASKED8;

    op->swaps = ctrl->opcode == VB_WQE_ATOMIC_CS || ctrl->opcode == VB_WQE_MASKED_CS;
    op->bytes = wide ? 8 : 4;
    op->swap_mask = op->compare_mask = UINT64_MAX;
    uint32_t segs = masked && op->swaps && wide ? 2 : 1;
    if ((ctrl->ds & VB_WQE_DS_MASK) != segs + 3 ||
        (masked ? !wide && ctrl->opmod != VB_WQE_OPMOD_MASKED4 : ctrl->opmod != 0))
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

// The word that an atomic works on, and where its former value goes.
static enum vb_cqe_syndrome find_word(struct vb_pu *pu, struct vb_qpc *qp,
                                      const struct vb_wqe_raddr *raddr,
                                      const struct vb_wqe_data *result, uint32_t bytes,
                                      uint8_t **at, uint8_t **to)
{
    enum vb_cqe_syndrome s = resolve_one(pu, qp, result, bytes, VB_LOCAL_WRITE, to);
    if (s == VB_SYN_OK && be64toh(raddr->raddr) & (bytes - 1u))
        s = VB_SYN_REMOTE_INVAL_REQ;
    if (s == VB_SYN_OK)
        s = reach(pu, qp, raddr, bytes, VB_REMOTE_ATOMIC, at);
    if (s == VB_SYN_OK && (uintptr_t)*at & (bytes - 1u))
        s = VB_SYN_REMOTE_INVAL_REQ;
    return s;
}

NOINLINE struct vb_local_end vb_local_atomic(struct vb_pu *pu, struct vb_qpc *qp,
                                             const struct vb_wqe_ctrl *ctrl)
{
    const struct vb_wqe_raddr *raddr = (const void *)(ctrl + 1);
    struct vb_atomic_op op;
    uint8_t *at = NULL, *to = NULL;

    uint32_t segs = read_arguments(ctrl, &op);
    const struct vb_wqe_data *result = (const void *)(raddr + 1 + segs);
    if (segs == 0 || be32toh(result->byte_count) != op.bytes)
        return ends(VB_SYN_LOCAL_QP_OP);
    enum vb_cqe_syndrome s = find_word(pu, qp, raddr, result, op.bytes, &at, &to);
    if (s != VB_SYN_OK)
        return ends(s);
    uint64_t old = vb_atomic_execute(at, &op);
    vb_pu_touch(pu, at, op.bytes, false);
    vb_pu_touch(pu, at, op.bytes, true);
    vb_pu_touch(pu, to, op.bytes, true);
    vb_atomic_put(to, old, op.bytes, qp->be_replies);
    return moved(op.bytes);
}
