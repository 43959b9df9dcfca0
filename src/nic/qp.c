// SPDX-License-Identifier: Apache-2.0
// The queue pair's state machine (clause 10.3.1).
#include "nic/pu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *vb_qp_state_name(enum vb_qp_state state)
{
    static const char *const names[VB_QPS_COUNT] = {"RESET", "INIT", "RTR", "RTS", "ERR"};
    return (unsigned)state < VB_QPS_COUNT ? names[state] : "?";
}

uint64_t vb_rnr_timer_ns(uint8_t code)
{
    // In units of 10 us.
    static const uint16_t table[32] = {
        65535, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
        48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
        2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    };
    return code == 0 ? 655360000u : (uint64_t)table[code & 31] * 10000;
}

void vb_qpc_complete(struct vb_pu *pu, struct vb_qpc *qp, struct vb_cqc *cq,
                     const struct vb_completion *c)
{
    VB_RECORD(pu, .kind = VB_STEP_COMPLETE, .opcode = c->opcode, .detail = c->syndrome,
              .qpn = c->qpn, .cqn = cq->cqn, .counter = c->counter, .bytes = c->bytes);
    if (!vb_cqc_write(cq, c)) {
        pu->count.cq_overrun++;
        vb_qpc_fail(pu, qp);
    }
}

void vb_qpc_fail(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (qp->state == VB_QPS_ERR)
        return;
    qp->state = VB_QPS_ERR;
    vb_timer_disarm(&qp->req.timer);
    qp->req.timer_kind = VB_REQ_TIMER_NONE;
    qp->resp.job_count = qp->resp.job_new = 0;
    qp->resp.answer = VB_ANSWER_NONE;
    vb_pu_kick(pu, qp);
}

static void retire_path(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (!qp->path)
        return;
    qp->path->retired_next = pu->retired_paths;
    pu->retired_paths = qp->path;
    qp->path = NULL;
    if (pu->txq.taken == pu->txq.count)
        vb_pu_tx_release(pu);
}

static int to_reset(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (vb_link_queued(&qp->run))
        vb_link_remove(&qp->run);
    if (pu->recv_done == qp)
        pu->recv_done = NULL;
    vb_requester_reset(pu, qp);
    vb_responder_reset(qp);
    retire_path(pu, qp);
    qp->sq.end = qp->sq.fetched = qp->sq.start;
    qp->rq.end = qp->rq.taken = qp->rq.start;
    qp->flushing = false;
    qp->state = VB_QPS_RESET;
    return 0;
}

static int to_init(struct vb_qpc *qp, const struct vb_qpc_mods *m)
{
    if (m->access & ~(uint32_t)(VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC))
        return -EINVAL;
    qp->access = m->access;
    qp->state = VB_QPS_INIT;
    return 0;
}

static int mtu_shift_of(uint32_t mtu)
{
    for (int shift = 8; shift <= 12; shift++)
        if (mtu == 1u << shift)
            return shift;
    return -EINVAL;
}

static int to_rtr(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_qpc_mods *m)
{
    int shift = mtu_shift_of(m->mtu_bytes);

    if (shift < 0 || m->dest_qpn > 0xffffff || m->rq_psn > 0xffffff || m->min_rnr_timer > 31 ||
        m->max_dest_rd_atomic > VB_RD_ATOMIC_MAX ||
        vb_ip_is_v4(&m->local) != vb_ip_is_v4(&m->remote))
        return -EINVAL;
    struct vb_path *path = malloc(sizeof *path);
    if (!path)
        return -ENOMEM;
    retire_path(pu, qp);
    vb_path_init(path, &m->local, &m->remote, m->src_port);
    qp->path = path;
    qp->mtu = m->mtu_bytes;
    qp->mtu_shift = (uint32_t)shift;
    qp->dest_qpn = m->dest_qpn;
    qp->max_dest_rd_atomic = m->max_dest_rd_atomic;
    qp->min_rnr_timer = m->min_rnr_timer;
    qp->resp.epsn = m->rq_psn;
    qp->state = VB_QPS_RTR;
    return 0;
}

static int to_rts(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_qpc_mods *m)
{
    struct vb_requester *r = &qp->req;

    if (m->sq_psn > 0xffffff || m->timeout > 31 || m->retry_cnt > 7 || m->rnr_retry > 7 ||
        m->max_rd_atomic > VB_RD_ATOMIC_MAX)
        return -EINVAL;
    qp->ack_timeout_ns = m->timeout ? 4096ull << m->timeout : 0;
    qp->retry_cnt = r->retries_left = m->retry_cnt;
    qp->rnr_retry = r->rnr_left = m->rnr_retry;
    qp->max_rd_atomic = m->max_rd_atomic;
    r->una_psn = r->send_psn = r->max_psn = r->next_psn = m->sq_psn;
    qp->state = VB_QPS_RTS;
    vb_sq_refresh(qp);
    vb_pu_kick(pu, qp);
    return 0;
}

// RESET → INIT → RTR → RTS; anything → ERR or RESET.
int vb_qpc_modify(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_qpc_mods *m)
{
    switch (m->state) {
    case VB_QPS_RESET: return to_reset(pu, qp);
    case VB_QPS_INIT:
        return qp->state == VB_QPS_RESET || qp->state == VB_QPS_INIT ? to_init(qp, m) : -EINVAL;
    case VB_QPS_RTR: return qp->state == VB_QPS_INIT ? to_rtr(pu, qp, m) : -EINVAL;
    case VB_QPS_RTS: return qp->state == VB_QPS_RTR ? to_rts(pu, qp, m) : -EINVAL;
    case VB_QPS_ERR:
        if (qp->state == VB_QPS_RESET)
            return -EINVAL;
        vb_qpc_fail(pu, qp);
        return 0;
    default: return -EINVAL;
    }
}

static bool is_power_of_two(uint32_t n)
{
    return n && (n & (n - 1)) == 0;
}

int vb_qpc_create(const struct vb_qpc_attr *a, struct vb_cqc *send_cq, struct vb_cqc *recv_cq,
                  struct vb_qpc **out)
{
    if (!is_power_of_two(a->sq_blocks) || a->sq_blocks > VB_SQ_BLOCKS_MAX || !a->sq_ring ||
        !a->dbrec)
        return -EINVAL;
    if (a->rq_entries && (!is_power_of_two(a->rq_entries) || a->rq_entries > VB_RQ_ENTRIES_MAX ||
                          !is_power_of_two(a->rq_stride_bytes) || a->rq_stride_bytes < 16 ||
                          a->rq_stride_bytes > 16 * VB_MAX_SGE || !a->rq_ring))
        return -EINVAL;
    struct vb_qpc *qp = aligned_alloc(64, (sizeof *qp + 63) & ~(size_t)63);
    if (!qp)
        return -ENOMEM;
    memset(qp, 0, sizeof *qp);
    qp->pd = a->pd;
    qp->send_cq = send_cq;
    qp->recv_cq = recv_cq;
    qp->wqe_checks = !a->no_wqe_checks;
    qp->req.timer.deadline_ns = VB_TIMER_NEVER;
    qp->sq = (struct vb_sq){.ring = a->sq_ring,
                            .blocks = a->sq_blocks,
                            .dbrec = a->dbrec + VB_DBREC_SQ,
                            .start = a->sq_start,
                            .end = a->sq_start,
                            .fetched = a->sq_start};
    qp->rq = (struct vb_rq){.ring = a->rq_ring,
                            .entries = a->rq_entries,
                            .stride = a->rq_stride_bytes,
                            .dbrec = a->dbrec + VB_DBREC_RQ,
                            .start = a->rq_start,
                            .end = a->rq_start,
                            .taken = a->rq_start};
    *out = qp;
    return 0;
}

void vb_qpc_destroy(struct vb_pu *pu, struct vb_qpc *qp)
{
    to_reset(pu, qp);
    free(qp);
}
