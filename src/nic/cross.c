// SPDX-License-Identifier: Apache-2.0
// Cross-channel work: WAIT, SEND_EN and RECV_EN, within a unit and across.
#include "nic/cross.h"

#include "nic/calc.h"
#include "nic/gate.h"
#include "nic/pu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- the gate

uint64_t vb_gate_read(struct vb_gate *gate, uint32_t word)
{
    if (word != gate->rung) {
        gate->rung = word;
        vb_gate_raise(gate, (uint16_t)word);
    }
    return atomic_load_explicit(&gate->open, memory_order_acquire);
}

void vb_gate_reset(struct vb_gate *gate, uint64_t start)
{
    gate->rung = 0;
    atomic_store_explicit(&gate->shut, false, memory_order_relaxed);
    atomic_store_explicit(&gate->open, start, memory_order_relaxed);
}

// ---- life

// Entries of programs have fewer than four blocks on average, with what NOPs cover.
int vb_cross_loop(struct vb_qpc *qp)
{
    struct vb_snapshot *snap = &qp->cross->snap;
    uint32_t blocks = 2 * VB_WQE_MAX_BLOCKS, depth = qp->fetch_depth;

    if (snap->block)
        return 0;
    while (blocks < 4 * depth && blocks < VB_SQ_BLOCKS_MAX)
        blocks *= 2;
    snap->mask = blocks - 1;
    // An entry that wraps around goes on behind the last block.
    snap->block = aligned_alloc(64, (size_t)(blocks + VB_WQE_MAX_BLOCKS) * VB_WQEBB_BYTES);
    return snap->block ? 0 : -ENOMEM;
}

int vb_cross_create(struct vb_qpc *qp, const struct vb_qpc_attr *attr)
{
    struct vb_cross *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->qp = qp;
    c->timer = (struct vb_timer){.deadline_ns = VB_TIMER_NEVER, .owner = VB_TIMER_OF_CROSS};
    vb_bucket_init(&c->bucket, attr->rate, attr->burst);
    c->program = vb_dev_program(qp->send_cq->pu->dev, attr->program);
    c->limited = attr->rate || c->program;
    c->careful = c->limited || !attr->no_wqe_checks;
    c->snap.executed = attr->sq_start;
    qp->cross = c;
    return 0;
}

static bool is_shared(const struct vb_pu *pu)
{
    return pu->dev->pu_count > 1;
}

// Takes the queue pair out of the list it waits in.
static void leave(struct vb_pu *pu, struct vb_cross *c)
{
    struct vb_cqc *cq = c->waits_for;

    if (!cq)
        return;
    if (is_shared(pu))
        vb_spin_lock(&cq->wait_lock);
    if (vb_link_queued(&c->wait))
        vb_link_remove(&c->wait);
    if (vb_fifo_empty(&cq->waiters))
        atomic_store_explicit(&cq->watched, false, memory_order_relaxed);
    if (is_shared(pu))
        vb_spin_unlock(&cq->wait_lock);
    c->waits_for = NULL;
}

void vb_cross_reset(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_cross *c = qp->cross;

    leave(pu, c);
    vb_timer_disarm(&c->timer);
    qp->loops = false;
    c->snap.ahead = 0;
    c->snap.due = c->snap.filling = false;
    c->snap.executed = qp->sq.start;
}

void vb_cross_destroy(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_cross *c = qp->cross;

    leave(pu, c);
    vb_timer_remove(&pu->timers, &c->timer);
    free(c->snap.block);
    free(c);
    qp->cross = NULL;
}

// ---- rate and program

enum vb_cross_verdict vb_cross_admit(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_cross *c = qp->cross;
    uint64_t ready_ns;

    if (c->bucket.gap_ns && !vb_bucket_take(&c->bucket, pu->now_ns, &ready_ns)) {
        vb_timer_arm(&pu->timers, &c->timer, ready_ns);
        return VB_CROSS_HELD;
    }
    if (c->program && !vb_program_allows(c->program))
        return VB_CROSS_STOP;
    return VB_CROSS_GO;
}

void vb_cross_timer(struct vb_pu *pu, struct vb_cross *cross)
{
    VB_RECORD(pu, .kind = VB_STEP_TIMER, .qpn = cross->qp->qpn);
    vb_pu_kick(pu, cross->qp);
}

// ---- WAIT

// Enters the queue pair into the list, unless the entry has come meanwhile. The producer looks at
// `watched` after it has counted, we count after we have set it: one of the two sees the other.
static bool park(struct vb_pu *pu, struct vb_cross *c, struct vb_cqc *cq, uint32_t index)
{
    bool shared = is_shared(pu);

    if (shared)
        vb_spin_lock(&cq->wait_lock);
    if (!vb_link_queued(&c->wait))
        vb_fifo_push(&cq->waiters, &c->wait);
    c->waits_for = cq;
    atomic_store_explicit(&cq->watched, true, memory_order_seq_cst);
    bool late = false;
    if (shared) {
        atomic_thread_fence(memory_order_seq_cst);
        late = vb_cqc_has(cq, index);
        vb_spin_unlock(&cq->wait_lock);
    }
    return !late;
}

bool vb_cross_wait(struct vb_pu *pu, struct vb_qpc *qp, uint32_t cqn, uint32_t index, bool *bad)
{
    struct vb_cross *c = qp->cross;
    struct vb_cqc *cq = vb_qpc_awaited(pu->dev, qp, cqn);

    *bad = cq == NULL;
    if (c->waits_for && c->waits_for != cq)
        leave(pu, c);
    if (!cq)
        return false;
    if (!vb_cqc_has(cq, index) && park(pu, c, cq, index))
        return false;
    if (c->waits_for)
        leave(pu, c);
    return true;
}

static void wake_all(struct vb_pu *pu, struct vb_cqc *cq)
{
    struct vb_link *link;

    while ((link = vb_fifo_first(&cq->waiters))) {
        struct vb_cross *c = VB_CONTAINER_OF(link, struct vb_cross, wait);
        struct vb_qpc *qp = c->qp;
        vb_link_remove(link);
        if (qp->pu == pu) {
            c->waits_for = NULL; // of its own unit: it is in no list, and looks again
            vb_pu_kick(pu, qp);
        } else {
            vb_doorbell_ring(&qp->pu->bells, qp->qpn);
            pu->handed |= 1u << qp->pu->index;
        }
    }
    atomic_store_explicit(&cq->watched, false, memory_order_relaxed);
}

// Who waits for a later entry goes back into the list when it looks.
void vb_cross_produced(struct vb_pu *pu, struct vb_cqc *cq)
{
    if (!is_shared(pu)) {
        if (atomic_load_explicit(&cq->watched, memory_order_relaxed))
            wake_all(pu, cq);
        return;
    }
    atomic_thread_fence(memory_order_seq_cst); // see park()
    if (!atomic_load_explicit(&cq->watched, memory_order_relaxed))
        return;
    vb_spin_lock(&cq->wait_lock);
    wake_all(pu, cq);
    vb_spin_unlock(&cq->wait_lock);
}

// Not only those in the list: who was woken and has not looked yet knows the queue, too.
void vb_cross_forget(struct vb_cqc *cq)
{
    const struct vb_dev *dev = cq->pu->dev;

    for (uint32_t i = 0, left = dev->crosses; left > 0; i++) {
        struct vb_cross *c = dev->qps[i] ? dev->qps[i]->cross : NULL;
        if (!c)
            continue;
        left--;
        if (c->waits_for != cq)
            continue;
        if (vb_link_queued(&c->wait))
            vb_link_remove(&c->wait);
        c->waits_for = NULL;
        vb_doorbell_ring(&c->qp->pu->bells, c->qp->qpn);
    }
}

// ---- queue pairs with packets

// Reads the operands and makes them the payload, which retransmission then repeats.
static enum vb_cross_verdict reduce(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    uint8_t record[VB_CALC_RECORD_BYTES];
    struct vb_calc calc;

    if (!wr->longer && vb_wr_pool_reserve(&pu->pool) != 0)
        return VB_CROSS_HELD; // tried again at the next doorbell or acknowledgement
    for (uint32_t i = 0; i < wr->num_seg; i++) {
        if (vb_gather(pu, vb_qpc_who(qp), vb_wr_segs(wr) + i, 1, 0, record, sizeof record) !=
            VB_MEM_OK) {
            wr->syndrome = VB_SYN_LOCAL_PROT;
            return VB_CROSS_STOP;
        }
        if (i == 0)
            vb_calc_begin(&calc, wr->calc, record);
        else
            vb_calc_add(&calc, record);
    }
    if (!wr->longer)
        wr->longer = vb_wr_take_long(&pu->pool);
    vb_calc_end(&calc, wr->longer);
    wr->is_inline = true;
    wr->length = sizeof record;
    return VB_CROSS_GO;
}

static enum vb_cross_verdict do_begin(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    bool bad = false;

    if (wr->opcode == VB_WQE_WAIT && !vb_cross_wait(pu, qp, wr->rkey, wr->imm, &bad))
        return bad ? VB_CROSS_STOP : VB_CROSS_HELD;
    if (qp->cross->limited) {
        enum vb_cross_verdict verdict = vb_cross_admit(pu, qp);
        if (verdict != VB_CROSS_GO)
            return verdict;
    }
    if (wr->opcode == VB_WQE_SEND_EN || wr->opcode == VB_WQE_RECV_EN)
        return vb_cross_enable(pu, qp, wr->opcode == VB_WQE_RECV_EN, wr->rkey, wr->imm)
                   ? VB_CROSS_GO
                   : VB_CROSS_STOP;
    return wr->calc && !wr->awaits ? reduce(pu, qp, wr) : VB_CROSS_GO;
}

enum vb_cross_verdict vb_cross_begin(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    enum vb_cross_verdict verdict = do_begin(pu, qp, wr);

    if (verdict == VB_CROSS_STOP && wr->syndrome == VB_SYN_OK)
        wr->syndrome = VB_SYN_LOCAL_QP_OP;
    if (verdict != VB_CROSS_GO)
        return verdict;
    if (qp->cross->program)
        vb_program_executed(pu, qp, wr->counter, wr->opcode);
    return VB_CROSS_GO;
}
