// SPDX-License-Identifier: Apache-2.0
// Posting by ibv_wr_…: requests are built one by one and posted together, or not at all. From
// ibv_wr_start() to ibv_wr_complete() or ibv_wr_abort() the send queue is the caller's.
#include "verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct vb_verbs_qp *of(struct ibv_qp_ex *ex)
{
    return VB_VERBS_CAST(vb_verbs_qp, ex);
}

// The request that setters speak of; NULL: there is none, or an error came before.
static struct vb_send_wr *current(struct vb_verbs_qp *qp)
{
    struct vb_verbs_build *b = &qp->build;
    return b->count > 0 && !b->error ? &b->wr[b->count - 1] : NULL;
}

static void spoil(struct vb_verbs_qp *qp, int error)
{
    if (!qp->build.error)
        qp->build.error = error;
}

static void start(struct ibv_qp_ex *ex)
{
    bool dead = vb_verbs_is_dead(ex->qp_base.context);

    if (!dead)
        vb_spin_lock(&of(ex)->send_lock);
    of(ex)->build.count = 0;
    of(ex)->build.error = dead ? EPERM : 0;
}

// Nobody holds the lock in a child of fork(), or where a program ends what it did not start.
static void release(struct vb_verbs_qp *qp)
{
    if (atomic_load_explicit(&qp->send_lock.held, memory_order_relaxed))
        vb_spin_unlock(&qp->send_lock);
}

static void abort_build(struct ibv_qp_ex *ex)
{
    release(of(ex));
}

static int complete(struct ibv_qp_ex *ex)
{
    struct vb_verbs_qp *qp = of(ex);
    struct vb_verbs_build *b = &qp->build;
    int error = b->error;

    if (!error && !atomic_load_explicit(&qp->may_send, memory_order_relaxed))
        error = EINVAL;
    if (!error)
        error = -vb_post_send_all(qp->nic, b->wr, b->count);
    release(qp);
    if (error)
        vb_verbs_fail(error, "ibv_wr_complete",
                      error == ENOMEM ? "the send queue is full" : "a request is malformed");
    return error;
}

static struct vb_send_wr *begin(struct ibv_qp_ex *ex, enum vb_wr_opcode opcode)
{
    struct vb_verbs_qp *qp = of(ex);
    struct vb_verbs_build *b = &qp->build;

    const unsigned known = IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_SOLICITED;
    unsigned flags = ex->wr_flags;

    if (b->count == b->room || !vb_verbs_serves(qp, opcode) || flags & ~known) {
        spoil(qp, b->count == b->room ? ENOMEM : EINVAL);
        return NULL;
    }
    if (b->error)
        return NULL;
    struct vb_send_wr *wr = &b->wr[b->count];
    *wr = (struct vb_send_wr){
        .wr_id = ex->wr_id,
        .opcode = opcode,
        .sge = &b->sge[(size_t)b->count * b->sges],
        .flags = (qp->all_signaled || flags & IBV_SEND_SIGNALED ? VB_WR_SIGNALED : 0u) |
                 (flags & IBV_SEND_FENCE ? VB_WR_FENCE : 0u) |
                 (flags & IBV_SEND_SOLICITED ? VB_WR_SOLICITED : 0u)};
    b->count++;
    return wr;
}

// ---- operations

static void begin_remote(struct ibv_qp_ex *ex, enum vb_wr_opcode opcode, uint32_t rkey,
                         uint64_t raddr, __be32 imm)
{
    struct vb_send_wr *wr = begin(ex, opcode);

    if (wr) {
        wr->rkey = rkey;
        wr->raddr = raddr;
        wr->imm = imm;
    }
}

static void begin_atomic(struct ibv_qp_ex *ex, enum vb_wr_opcode opcode, uint32_t rkey,
                         uint64_t raddr, uint64_t compare, uint64_t swap_add)
{
    struct vb_send_wr *wr = begin(ex, opcode);

    if (wr) {
        wr->rkey = rkey;
        wr->raddr = raddr;
        wr->atomic.compare = compare;
        wr->atomic.swap_add = swap_add;
    }
}

static void begin_imm(struct ibv_qp_ex *ex, enum vb_wr_opcode opcode, uint32_t imm)
{
    struct vb_send_wr *wr = begin(ex, opcode);

    if (wr)
        wr->imm = imm;
}

static void atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, uint64_t compare,
                           uint64_t swap)
{
    begin_atomic(ex, VB_WR_CAS, rkey, raddr, compare, swap);
}

static void fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, uint64_t add)
{
    begin_atomic(ex, VB_WR_FADD, rkey, raddr, 0, add);
}

static void bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
                    const struct ibv_mw_bind_info *info)
{
    struct vb_send_wr *wr = begin(ex, VB_WR_BIND);

    if (wr && (mw->type != IBV_MW_TYPE_2 || vb_verbs_translate_bind(wr, info, rkey)))
        spoil(of(ex), EINVAL);
}

static void local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
    begin_imm(ex, VB_WR_LOCAL_INVAL, rkey);
}

static void rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
    begin_remote(ex, VB_WR_READ, rkey, raddr, 0);
}

static void rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
    begin_remote(ex, VB_WR_WRITE, rkey, raddr, 0);
}

static void rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, __be32 imm)
{
    begin_remote(ex, VB_WR_WRITE_IMM, rkey, raddr, imm);
}

static void send_plain(struct ibv_qp_ex *ex)
{
    begin_imm(ex, VB_WR_SEND, 0);
}

static void send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
    begin_imm(ex, VB_WR_SEND_IMM, imm);
}

static void send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
    begin_imm(ex, VB_WR_SEND_INVAL, rkey);
}

static void send_tso(struct ibv_qp_ex *ex, void *header, uint16_t header_bytes, uint16_t mss)
{
    (void)header, (void)header_bytes, (void)mss;
    spoil(of(ex), EOPNOTSUPP);
}

// ---- setters

static void set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    struct vb_send_wr *wr = current(of(ex));

    if (!wr)
        return;
    if (!ah || of(ex)->service != VB_SERVICE_UD) {
        spoil(of(ex), EINVAL);
        return;
    }
    wr->to = VB_VERBS_CAST(vb_verbs_ah, ah)->to;
    wr->to.qpn = qpn;
    wr->to.qkey = qkey & 0x80000000 ? of(ex)->attr.qkey : qkey;
}

static void set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
    struct vb_send_wr *wr = current(of(ex));

    if (wr)
        wr->srqn = srqn;
}

static struct vb_sge *sges_of(const struct vb_verbs_build *b)
{
    return &b->sge[(size_t)(b->count - 1) * b->sges];
}

static void set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
    struct vb_verbs_qp *qp = of(ex);
    struct vb_send_wr *wr = current(qp);

    if (!wr)
        return;
    if (count > qp->build.sges) {
        spoil(qp, EINVAL);
        return;
    }
    for (size_t i = 0; i < count; i++)
        sges_of(&qp->build)[i] = (struct vb_sge){list[i].addr, list[i].length, list[i].lkey};
    wr->num_sge = (uint32_t)count;
}

static void set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t len)
{
    set_sge_list(ex, 1, &(struct ibv_sge){.addr = addr, .length = len, .lkey = lkey});
}

// The bytes may change when this returns: they are kept.
static void set_inline_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
    struct vb_verbs_qp *qp = of(ex);
    struct vb_verbs_build *b = &qp->build;
    struct vb_send_wr *wr = current(qp);
    size_t len = 0;

    if (!wr)
        return;
    uint8_t *bytes = b->bytes + (size_t)(b->count - 1) * b->inline_bytes;
    for (size_t i = 0; i < count; i++) {
        if (list[i].length > b->inline_bytes - len) {
            spoil(qp, EINVAL);
            return;
        }
        if (list[i].length > 0)
            memcpy(bytes + len, list[i].addr, list[i].length);
        len += list[i].length;
    }
    *sges_of(b) = (struct vb_sge){.addr = (uintptr_t)bytes, .len = (uint32_t)len};
    wr->num_sge = len > 0;
    wr->flags |= VB_WR_INLINE;
}

static void set_inline(struct ibv_qp_ex *ex, void *addr, size_t len)
{
    set_inline_list(ex, 1, &(struct ibv_data_buf){.addr = addr, .length = len});
}

static void atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr, const void *value)
{
    struct vb_verbs_build *b = &of(ex)->build;
    struct vb_send_wr *wr = begin(ex, VB_WR_ATOMIC_WRITE);

    if (!wr)
        return;
    uint8_t *bytes = b->bytes + (size_t)(b->count - 1) * b->inline_bytes;
    memcpy(bytes, value, 8);
    *sges_of(b) = (struct vb_sge){.addr = (uintptr_t)bytes, .len = 8};
    wr->num_sge = 1;
    wr->flags |= VB_WR_INLINE;
    wr->rkey = rkey;
    wr->raddr = raddr;
}

static void fill_ops(struct ibv_qp_ex *ex)
{
    ex->wr_start = start;
    ex->wr_complete = complete;
    ex->wr_abort = abort_build;
    ex->wr_atomic_cmp_swp = atomic_cmp_swp;
    ex->wr_atomic_fetch_add = fetch_add;
    ex->wr_bind_mw = bind_mw;
    ex->wr_local_inv = local_inv;
    ex->wr_rdma_read = rdma_read;
    ex->wr_rdma_write = rdma_write;
    ex->wr_rdma_write_imm = rdma_write_imm;
    ex->wr_send = send_plain;
    ex->wr_send_imm = send_imm;
    ex->wr_send_inv = send_inv;
    ex->wr_send_tso = send_tso;
    ex->wr_set_ud_addr = set_ud_addr;
    ex->wr_set_xrc_srqn = set_xrc_srqn;
    ex->wr_set_inline_data = set_inline;
    ex->wr_set_inline_data_list = set_inline_list;
    ex->wr_set_sge = set_sge;
    ex->wr_set_sge_list = set_sge_list;
    ex->wr_atomic_write = atomic_write;
}

// Pages that are never touched cost nothing, so there is room for the whole queue.
int vb_verbs_build_init(struct vb_verbs_qp *qp)
{
    struct vb_verbs_build *b = &qp->build;

    b->room = qp->cap.max_send_wr ? qp->cap.max_send_wr : 1;
    b->sges = qp->cap.max_send_sge ? qp->cap.max_send_sge : 1;
    b->inline_bytes = qp->cap.max_inline_data < 8 ? 8 : qp->cap.max_inline_data;
    b->wr = calloc(b->room, sizeof *b->wr);
    b->sge = calloc((size_t)b->room * b->sges, sizeof *b->sge);
    b->bytes = calloc(b->room, b->inline_bytes);
    if (!b->wr || !b->sge || !b->bytes) {
        vb_verbs_build_fini(qp);
        return -ENOMEM;
    }
    fill_ops(&qp->qp);
    return 0;
}

void vb_verbs_build_fini(struct vb_verbs_qp *qp)
{
    free(qp->build.wr);
    free(qp->build.sge);
    free(qp->build.bytes);
    qp->build = (struct vb_verbs_build){0};
}
