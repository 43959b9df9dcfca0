// SPDX-License-Identifier: Apache-2.0
// Entries of loops that move one word, with both sides in plain regions and nobody who reads
// records: READ and WRITE of 8 bytes, CAS and masked addition; and a READ of one byte and a masked
// addition of 4, which are found where a word would be: at a region's very end they are looked at
// slowly. Keys, rights and bounds are proved each time, on the copy of the entry. False: it is
// another one, or must be looked at slowly; nothing was moved.
#ifndef VB_NIC_WORDS_H
#define VB_NIC_WORDS_H

#include "nic/atomic.h"
#include "nic/pu.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// Both sides of 8 bytes.
static inline bool vb_words_find(const struct vb_pu *pu, const struct vb_qpc *qp,
                                 const struct vb_wqe_data *s, enum vb_access near_need,
                                 uint8_t **near, const struct vb_wqe_raddr *r,
                                 enum vb_access far_need, uint8_t **far)
{
    const struct vb_mkey *n = vb_mkey_plain(&pu->dev->mkeys, qp->pd, be32toh(s->lkey), near_need);
    if (!n)
        return false;
    const struct vb_mkey *f = vb_mkey_plain(&pu->dev->mkeys, qp->pd, be32toh(r->rkey), far_need);
    if (!f || !(qp->access & far_need))
        return false;
    uint64_t near_offset = be64toh(s->addr) - n->start, far_offset = be64toh(r->raddr) - f->start;
    if (near_offset >= n->words || far_offset >= f->words)
        return false;
    *near = vb_mkey_byte(n, near_offset);
    *far = vb_mkey_byte(f, far_offset);
    return true;
}

// Whether the entry has so many segments, this sub-operation, and so many bytes of data at the end.
static inline bool vb_words_is(const struct vb_wqe_ctrl *ctrl, uint32_t ds, uint8_t opmod,
                               uint32_t bytes)
{
    const struct vb_wqe_data *last = (const void *)(ctrl + (ds - 1));

    return (ctrl->ds & VB_WQE_DS_MASK) == ds && ctrl->opmod == opmod &&
           last->byte_count == htobe32(bytes);
}

// Of 8 bytes, or of one: as the bytes are that programs bring back.
static inline bool vb_words_read(const struct vb_pu *pu, const struct vb_qpc *qp,
                                 const struct vb_wqe_ctrl *ctrl, uint32_t bytes)
{
    uint8_t *from, *to;

    if (!vb_words_is(ctrl, 3, 0, bytes) ||
        !vb_words_find(pu, qp, (const void *)(ctrl + 2), VB_LOCAL_WRITE, &to,
                       (const void *)(ctrl + 1), VB_REMOTE_READ, &from))
        return false;
    memmove(to, from, bytes); // they may overlap
    return true;
}

static inline bool vb_words_write(const struct vb_pu *pu, const struct vb_qpc *qp,
                                  const struct vb_wqe_ctrl *ctrl)
{
    uint8_t *from, *to;

    if (!vb_words_is(ctrl, 3, 0, 8) ||
        !vb_words_find(pu, qp, (const void *)(ctrl + 2), VB_LOCAL_READ, &from,
                       (const void *)(ctrl + 1), VB_REMOTE_WRITE, &to))
        return false;
    memmove(to, from, 8);
    return true;
}

// The word of an atomic, which must lie where words do, and where its former value goes.
static inline bool vb_words_atomic(const struct vb_pu *pu, const struct vb_qpc *qp,
                                   const struct vb_wqe_ctrl *ctrl, uint8_t opmod, uint32_t bytes,
                                   uint8_t **at, uint8_t **to)
{
    const struct vb_wqe_raddr *raddr = (const void *)(ctrl + 1);

    return vb_words_is(ctrl, 4, opmod, bytes) &&
           vb_words_find(pu, qp, (const void *)(ctrl + 3), VB_LOCAL_WRITE, to, raddr,
                         VB_REMOTE_ATOMIC, at) &&
           !((be64toh(raddr->raddr) | (uintptr_t)*at) & (bytes - 1));
}

static inline bool vb_words_swap(const struct vb_pu *pu, const struct vb_qpc *qp,
                                 const struct vb_wqe_ctrl *ctrl)
{
    const struct vb_wqe_atomic *args = (const void *)(ctrl + 2);
    uint8_t *at, *to;

    if (!vb_words_atomic(pu, qp, ctrl, 0, 8, &at, &to))
        return false;
    uint64_t old = vb_atomic_swap(at, be64toh(args->compare), be64toh(args->swap_add));
    vb_atomic_put(to, old, 8, qp->be_replies);
    return true;
}

static inline bool vb_words_add(const struct vb_pu *pu, const struct vb_qpc *qp,
                                const struct vb_wqe_ctrl *ctrl)
{
    const struct vb_wqe_atomic *args = (const void *)(ctrl + 2);
    uint8_t *at, *to;

    if (!vb_words_atomic(pu, qp, ctrl, VB_WQE_OPMOD_MASKED8, 8, &at, &to))
        return false;
    uint64_t old = vb_atomic_add(at, be64toh(args->swap_add), be64toh(args->compare));
    vb_atomic_put(to, old, 8, qp->be_replies);
    return true;
}

static inline bool vb_words_add_narrow(const struct vb_pu *pu, const struct vb_qpc *qp,
                                       const struct vb_wqe_ctrl *ctrl)
{
    const struct vb_wqe_masked_fa4 *args = (const void *)(ctrl + 2);
    uint8_t *at, *to;

    if (!vb_words_atomic(pu, qp, ctrl, VB_WQE_OPMOD_MASKED4, 4, &at, &to))
        return false;
    uint32_t old = vb_atomic_add_narrow(at, be32toh(args->add), be32toh(args->boundary));
    vb_atomic_put(to, old, 4, qp->be_replies);
    return true;
}

#endif
