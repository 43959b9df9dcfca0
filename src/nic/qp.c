// SPDX-License-Identifier: Apache-2.0
// The queue pair's state machine (clause 10.3.1).
#include "nic/pu.h"

#include "base/bits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *vb_qp_state_name(enum vb_qp_state state)
{
    static const char *const names[VB_QPS_COUNT] = {"RESET", "INIT", "RTR", "RTS",
                                                    "SQD",   "SQE",  "ERR"};
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

static void complete(struct vb_pu *pu, struct vb_qpc *qp, struct vb_cqc *cq,
                     const struct vb_completion *c)
{
    bool broken = cq->overrun;
    if (!vb_cqc_write(cq, c)) {
        pu->count.cq_overrun++;
        if (!broken)
            vb_pu_event(pu, VB_EVENT_CQ_ERR, cq->cqn);
        if (qp->state != VB_QPS_ERR)
            vb_pu_event(pu, VB_EVENT_QP_FATAL, qp->qpn);
        vb_qpc_fail(pu, qp);
        return;
    }
    if (!pu->dev->hold_completions || cq->crossing || cq->ignores_overrun) {
        vb_cqc_publish(cq);
    } else if (!cq->listed) {
        cq->listed = true;
        cq->later = pu->unpublished;
        pu->unpublished = cq;
    }
    vb_cqc_tell(pu, cq, cq->crossing); // its timer is another unit's
    if (__builtin_expect(pu->dev->crosses, 0))
        vb_cross_produced(pu, cq);
}

void vb_qpc_complete(struct vb_pu *pu, struct vb_qpc *qp, struct vb_cqc *cq,
                     const struct vb_completion *c)
{
    VB_RECORD(pu, .kind = VB_STEP_COMPLETE, .opcode = c->opcode, .detail = c->syndrome,
              .qpn = c->qpn, .cqn = cq->cqn, .counter = c->counter, .bytes = c->bytes);
    if (!cq->crossing) {
        complete(pu, qp, cq, c);
        return;
    }
    vb_spin_lock(&cq->lock);
    complete(pu, qp, cq, c);
    vb_spin_unlock(&cq->lock);
}

// An event that is lost would leave somebody asleep. The queue's own timer is its unit's; who
// writes to it from another one has to remember it.
static void tell_later(struct vb_pu *pu, struct vb_cqc *cq)
{
    uint64_t then_ns = pu->now_ns + VB_EVENT_RETRY_NS;

    if (cq->pu == pu) {
        vb_timer_arm(&pu->timers, &cq->timer, then_ns);
        return;
    }
    if (cq->untold)
        return;
    cq->untold = true;
    cq->untold_next = pu->untold;
    pu->untold = cq;
    if (pu->untold_timer.deadline_ns == VB_TIMER_NEVER)
        vb_timer_arm(&pu->timers, &pu->untold_timer, then_ns);
}

void vb_cqc_tell_untold(struct vb_pu *pu)
{
    struct vb_cqc *cq = pu->untold, *next;

    for (pu->untold = NULL; cq; cq = next) {
        next = cq->untold_next;
        vb_spin_lock(&cq->lock);
        cq->untold = false;
        vb_cqc_tell(pu, cq, true);
        vb_spin_unlock(&cq->lock);
    }
}

void vb_cqc_forget_untold(struct vb_cqc *cq)
{
    const struct vb_dev *dev = cq->pu->dev;

    for (uint32_t i = 0; cq->untold && i < dev->pu_count; i++) {
        struct vb_cqc **at = &dev->pu[i]->untold;
        while (*at && *at != cq)
            at = &(*at)->untold_next;
        if (*at)
            *at = cq->untold_next;
        if (!dev->pu[i]->untold)
            vb_timer_remove(&dev->pu[i]->timers, &dev->pu[i]->untold_timer);
    }
}

// Moderated, an event waits for more entries, but not for ever.
void vb_cqc_tell(struct vb_pu *pu, struct vb_cqc *cq, bool now)
{
    bool waits = !now && cq->hold_count && cq->produced - cq->told < cq->hold_count;

    if (pu->event_count >= VB_EVENTS_DEFERRABLE) {
        tell_later(pu, cq);
        return;
    }
    if (!waits && vb_cqc_fires(cq)) {
        cq->told = cq->produced;
        vb_timer_disarm(&cq->timer);
        vb_pu_event(pu, VB_EVENT_CQ_COMPLETION, cq->cqn);
    } else if (waits && cq->timer.deadline_ns == VB_TIMER_NEVER) {
        vb_timer_arm(&pu->timers, &cq->timer, pu->now_ns + cq->hold_ns);
    }
}

void vb_qpc_fail(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (qp->state == VB_QPS_ERR)
        return;
    qp->state = VB_QPS_ERR;
    qp->drained = false; // its shared receive queue will be told
    atomic_store_explicit(&qp->sq.gate.shut, true, memory_order_relaxed);
    atomic_store_explicit(&qp->rq.gate.shut, true, memory_order_relaxed);
    vb_timer_disarm(&qp->req.timer);
    qp->req.timer_kind = VB_REQ_TIMER_NONE;
    qp->resp.job_count = qp->resp.job_new = 0;
    qp->resp.answer = VB_ANSWER_NONE;
    if (qp->loops)
        vb_loop_abandon(qp);
    vb_peer_withdraw(pu, qp);
    vb_pu_kick(pu, qp);
}

void vb_qpc_forget_srq(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_srqc *srq)
{
    struct vb_recv *recv = &qp->resp.recv;

    if (qp->srq == srq && qp->resp.message != VB_MESSAGE_NONE)
        vb_qpc_fail(pu, qp);
    if (recv->srq == srq) {
        if (recv->loaded)
            vb_qpc_fail(pu, qp);
        if (pu->recv_done == qp)
            pu->recv_done = NULL;
        recv->loaded = false;
        recv->srq = NULL;
    }
    if (qp->srq == srq)
        qp->srq = NULL;
}

void vb_pu_retire_path(struct vb_pu *pu, struct vb_path *path)
{
    path->retired_next = pu->retired_paths;
    pu->retired_paths = path;
    if (pu->txq.taken == pu->txq.count)
        vb_pu_tx_release(pu);
}

static void retire_path(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (qp->path)
        vb_pu_retire_path(pu, qp->path);
    qp->path = NULL;
}

static int to_reset(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (pu->turn_of == qp)
        pu->turn_of = NULL;
    if (vb_link_queued(&qp->run))
        vb_link_remove(&qp->run);
    if (pu->recv_done == qp)
        pu->recv_done = NULL;
    vb_requester_reset(pu, qp);
    vb_responder_reset(qp);
    vb_congestion_reset(pu, qp);
    retire_path(pu, qp);
    if (qp->cross)
        vb_cross_reset(pu, qp);
    vb_gate_reset(&qp->sq.gate, qp->sq.start);
    vb_gate_reset(&qp->rq.gate, qp->rq.start);
    qp->sq.end = qp->sq.fetched = qp->bill.fetched = qp->sq.start;
    qp->rq.end = qp->rq.taken = qp->rq.start;
    qp->flushing = qp->heard = false;
    qp->state = VB_QPS_RESET;
    return 0;
}

static int to_init(struct vb_qpc *qp, const struct vb_qpc_mods *m)
{
    if (m->access & ~(uint32_t)VB_ACCESS_REMOTE)
        return -EINVAL;
    qp->access = m->access;
    qp->qkey = m->qkey;
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
        (qp->type != VB_QPT_UD && vb_ip_is_v4(&m->local) != vb_ip_is_v4(&m->remote)) ||
        !vb_path_attr_is_legal(&m->attr))
        return -EINVAL;
    bool loops = qp->cross && m->dest_qpn == qp->qpn && vb_ip_equal(&m->local, &m->remote);
    if (loops && vb_cross_loop(qp) != 0)
        return -ENOMEM;
    if (qp->type != VB_QPT_UD) {
        struct vb_path *path = malloc(sizeof *path);
        struct vb_peer *peer = &pu->nobody; // nothing of UC is ever in flight
        if (path && qp->type != VB_QPT_UC)
            peer = vb_peer_join(pu, &m->remote, qp->share);
        if (!path || !peer) {
            free(path);
            return -ENOMEM;
        }
        vb_peer_leave(pu, qp);
        retire_path(pu, qp);
        qp->peer = peer;
        vb_path_init(path, &m->local, &m->remote, m->src_port);
        path->qpn = qp->qpn;
        path->attr = m->attr;
        qp->path = path;
    }
    qp->local = m->local;
    qp->src_port = m->src_port;
    qp->mtu = m->mtu_bytes;
    qp->mtu_shift = (uint32_t)shift;
    qp->dest_qpn = m->dest_qpn;
    qp->max_dest_rd_atomic = m->max_dest_rd_atomic;
    qp->min_rnr_timer = m->min_rnr_timer;
    qp->resp.epsn = m->rq_psn;
    qp->resp.pd = qp->pd;
    qp->loops = loops;
    qp->state = VB_QPS_RTR;
    return 0;
}

static int to_rts(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_qpc_mods *m)
{
    struct vb_requester *r = &qp->req;

    if (m->sq_psn > 0xffffff || m->timeout > 31 || m->retry_cnt > 7 || m->rnr_retry > 7 ||
        m->max_rd_atomic > VB_RD_ATOMIC_OUT_MAX)
        return -EINVAL;
    if (m->timeout == 0 && vb_qpc_is_reliable(qp) && vb_peer_part(pu, qp) != 0)
        return -ENOMEM;
    qp->ack_timeout_ns = m->timeout && vb_qpc_is_reliable(qp) ? 4096ull << m->timeout : 0;
    qp->retry_cnt = r->retries_left = m->retry_cnt;
    qp->rnr_retry = r->rnr_left = m->rnr_retry;
    qp->max_rd_atomic = m->max_rd_atomic;
    r->una_psn = r->send_psn = r->max_psn = r->asked_psn = r->next_psn = m->sq_psn;
    qp->state = VB_QPS_RTS;
    vb_sq_refresh(qp);
    vb_pu_kick(pu, qp);
    return 0;
}

// Back from SQD, or from SQE, where the send queue was flushed.
static int resume(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (qp->state == VB_QPS_SQE && (qp->req.head || qp->sq.fetched != qp->sq.end))
        return -EBUSY; // its completions come first
    if (qp->state == VB_QPS_SQE)
        vb_requester_restart(qp);
    qp->state = VB_QPS_RTS;
    qp->flushing = false;
    vb_pu_kick(pu, qp); // doorbells were answered all the time
    return 0;
}

// Begun requests are finished, others wait.
static int drain(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_qpc_mods *m)
{
    if (qp->state == VB_QPS_RTS) {
        qp->state = VB_QPS_SQD;
        qp->drained = m->silent != 0;
        vb_pu_kick(pu, qp);
    }
    return 0;
}

// RESET → INIT → RTR → RTS ⇄ SQD, SQE → RTS; anything → ERR or RESET (clause 10.3.1, figure 124).
int vb_qpc_modify(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_qpc_mods *m)
{
    enum vb_qp_state from = qp->state;

    switch (m->state) {
    case VB_QPS_RESET: return to_reset(pu, qp);
    case VB_QPS_INIT: return from == VB_QPS_RESET || from == VB_QPS_INIT ? to_init(qp, m) : -EINVAL;
    case VB_QPS_RTR: return from == VB_QPS_INIT ? to_rtr(pu, qp, m) : -EINVAL;
    case VB_QPS_RTS:
        if (from == VB_QPS_SQD || from == VB_QPS_SQE)
            return resume(pu, qp);
        return from == VB_QPS_RTR ? to_rts(pu, qp, m) : -EINVAL;
    case VB_QPS_SQD: return from == VB_QPS_RTS || from == VB_QPS_SQD ? drain(pu, qp, m) : -EINVAL;
    case VB_QPS_ERR:
        if (from == VB_QPS_RESET)
            return -EINVAL;
        vb_qpc_fail(pu, qp);
        return 0;
    default: return -EINVAL; // SQE comes by itself
    }
}

static bool is_legal(const struct vb_qpc_attr *a)
{
    if ((unsigned)a->type >= VB_QPT_COUNT || (a->type == VB_QPT_XRC_TGT) != (a->xrcd != 0))
        return false;
    if ((a->cross_channel || a->managed_send || a->managed_recv) &&
        (a->type != VB_QPT_RC || (a->managed_recv && (a->srqn || !a->rq_entries))))
        return false;
    if ((a->rate || a->program || a->fetch_depth) && !a->cross_channel)
        return false;
    // A target of XRC has no queues of its own, an initiator only one to send.
    return a->type < VB_QPT_XRC_INI || (!a->srqn && !a->rq_entries);
}

static void set_service(struct vb_qpc *qp, enum vb_qp_type type)
{
    static const struct {
        enum vb_transport transport;
        enum vb_wqe_heads heads;
    } service[VB_QPT_COUNT] = {
        [VB_QPT_RC] = {VB_TP_RC, VB_WQE_HEAD_PLAIN},
        [VB_QPT_UC] = {VB_TP_UC, VB_WQE_HEAD_PLAIN},
        [VB_QPT_UD] = {VB_TP_UD, VB_WQE_HEAD_DATAGRAM},
        [VB_QPT_XRC_INI] = {VB_TP_XRC, VB_WQE_HEAD_XRC},
        [VB_QPT_XRC_TGT] = {VB_TP_XRC, VB_WQE_HEAD_PLAIN},
    };
    qp->type = type;
    qp->transport = service[type].transport;
    qp->heads = service[type].heads;
    qp->sends_plainly = type != VB_QPT_UD;
}

int vb_qpc_create(const struct vb_qpc_attr *a, struct vb_cqc *send_cq, struct vb_cqc *recv_cq,
                  struct vb_qpc **out)
{
    if (!is_legal(a))
        return -EINVAL;
    if (!vb_is_pow2(a->sq_blocks) || a->sq_blocks > VB_SQ_BLOCKS_MAX || !a->sq_ring || !a->dbrec)
        return -EINVAL;
    if (a->rq_entries && (!vb_is_pow2(a->rq_entries) || a->rq_entries > VB_RQ_ENTRIES_MAX ||
                          !vb_is_pow2(a->rq_stride_bytes) || a->rq_stride_bytes < 16 ||
                          a->rq_stride_bytes > 16 * VB_MAX_SGE || !a->rq_ring))
        return -EINVAL;
    struct vb_qpc *qp = aligned_alloc(64, (sizeof *qp + 63) & ~(size_t)63);
    if (!qp)
        return -ENOMEM;
    memset(qp, 0, sizeof *qp);
    qp->peer = &send_cq->pu->nobody;
    qp->pd = a->pd;
    qp->xrcd = a->xrcd;
    set_service(qp, a->type);
    qp->send_cq = send_cq;
    qp->recv_cq = recv_cq;
    qp->wqe_checks = !a->no_wqe_checks;
    qp->be_replies = a->be_replies;
    qp->req.timer.deadline_ns = VB_TIMER_NEVER;
    qp->sq = (struct vb_sq){.ring = a->sq_ring,
                            .blocks = a->sq_blocks,
                            .dbrec = a->dbrec + VB_DBREC_SQ,
                            .start = a->sq_start,
                            .end = a->sq_start,
                            .fetched = a->sq_start,
                            .source = {.ring = a->sq_ring,
                                       .blocks = a->sq_blocks,
                                       .checks = !a->no_wqe_checks,
                                       .heads = qp->heads}};
    qp->rq = (struct vb_rq){.ring = a->rq_ring,
                            .entries = a->rq_entries,
                            .stride = a->rq_stride_bytes,
                            .dbrec = a->dbrec + VB_DBREC_RQ,
                            .start = a->rq_start,
                            .end = a->rq_start,
                            .taken = a->rq_start};
    qp->sq.gate.managed = a->managed_send;
    qp->rq.gate.managed = a->managed_recv;
    atomic_init(&qp->sq.gate.open, a->sq_start);
    atomic_init(&qp->rq.gate.open, a->rq_start);
    qp->sq.source.cross = a->cross_channel;
    qp->plain = a->type == VB_QPT_RC && !a->cross_channel;
    qp->entry_max = VB_MESSAGE_MAX;
    qp->charge_shift = VB_CHARGE_SHIFT;
    qp->fetch_depth = a->fetch_depth ? a->fetch_depth : send_cq->pu->dev->fetch_depth;
    if (a->cross_channel && vb_cross_create(qp, a) != 0) {
        free(qp);
        return -ENOMEM;
    }
    *out = qp;
    return 0;
}

void vb_qpc_destroy(struct vb_pu *pu, struct vb_qpc *qp)
{
    to_reset(pu, qp);
    if (qp->cross)
        vb_cross_destroy(pu, qp);
    vb_congestion_detach(pu, qp);
    free(qp->spread);
    free(qp);
}
