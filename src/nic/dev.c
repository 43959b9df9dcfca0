// SPDX-License-Identifier: Apache-2.0
// The device's objects: domains, keys, completion queues, queue pairs and their numbers.
#include "nic/dev.h"

#include "base/bits.h"
#include "nic/pu.h"
#include "nic/spread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW_DEFAULT = 256 * 1024, // fits Debian's default socket buffer, when packets are merged
    WINDOW_MAX = 1 << 30,        // at the smallest MTU, half of the sequence numbers
    FETCH_DEFAULT = 16,
    PDS_MAX = 1 << 16,
    CQS_MAX = 1 << 16,
    SRQS_MAX = 1 << 16,
    PROGRAMS_MAX = 1 << 16,
};

#define PD_FREE UINT32_MAX

// ---- the device and its units

static void pu_destroy(struct vb_pu *pu)
{
    vb_ah_fini(pu);
    pu->txq.taken = pu->txq.count;
    vb_pu_tx_release(pu);
    vb_timers_fini(&pu->timers);
    vb_wr_pool_fini(&pu->pool);
    if (pu->inbox)
        vb_inbox_fini(pu->inbox);
    free(pu->inbox);
    free(pu->kept);
    free(pu->txq.arena);
    free(pu);
}

static struct vb_pu *pu_create(struct vb_dev *dev, uint32_t index)
{
    struct vb_pu *pu = aligned_alloc(64, (sizeof *pu + 63) & ~(size_t)63);
    if (!pu)
        return NULL;
    memset(pu, 0, sizeof *pu);
    pu->dev = dev;
    pu->index = index;
    vb_fifo_init(&pu->run);
    pu->untold_timer = (struct vb_timer){.deadline_ns = VB_TIMER_NEVER, .owner = VB_TIMER_OF_UNIT};
    vb_share_init_rest(pu);
    vb_peer_init_nobody(&pu->nobody);
    vb_fifo_init(&pu->cnps);
    pu->txq.arena = aligned_alloc(4096, VB_TX_BYTES);
    pu->kept = aligned_alloc(4096, (size_t)VB_TX_FRAMES * VB_MTU_MAX);
    bool made = pu->txq.arena && pu->kept;
    if (made && dev->pu_count > 1) {
        pu->inbox = aligned_alloc(64, (sizeof *pu->inbox + 63) & ~(size_t)63);
        made = pu->inbox && vb_inbox_init(pu->inbox) == 0;
    }
    if (made)
        return pu;
    pu_destroy(pu);
    return NULL;
}

static uint32_t within(uint32_t value, uint32_t low, uint32_t high)
{
    return value < low ? low : value > high ? high : value;
}

static void configure(struct vb_dev *dev, const struct vb_dev_opts *opts)
{
    uint32_t window = opts->window_bytes ? opts->window_bytes : WINDOW_DEFAULT;
    uint32_t limit = opts->window_limit_bytes;

    dev->pu_count = opts->pus ? opts->pus : 1;
    dev->prng.state = opts->seed;
    dev->window_bytes = within(window / dev->pu_count, VB_PEER_WINDOW_MIN, WINDOW_MAX);
    dev->window_limit_bytes = within(limit / dev->pu_count, dev->window_bytes, WINDOW_MAX);
    dev->lend_bytes = opts->lend_bytes ? opts->lend_bytes : UINT32_MAX;
    dev->check_zero_length = opts->check_zero_length;
    dev->hold_completions = opts->hold_completions;
    dev->dcqcn_on = opts->dcqcn != NULL;
    if (opts->dcqcn)
        dev->dcqcn = *opts->dcqcn;
    dev->no_credits = opts->no_credits;
    dev->fetch_depth = opts->fetch_depth ? opts->fetch_depth : FETCH_DEFAULT;
    // Of all numbers the last generation is left out: it has that of a group's members.
    dev->qpn_base = opts->qpn_count ? opts->qpn_base : 0;
    dev->qpn_generations = opts->qpn_count ? opts->qpn_count >> 14 : (1u << (24 - 14)) - 1;
    dev->qp_hint = (uint32_t)vb_prng_below(&dev->prng, VB_DOORBELL_QPS);
}

// Whole generations, below the last.
static bool is_range(uint32_t base, uint32_t count)
{
    const uint32_t generation = VB_DOORBELL_QPS, end = (1u << 24) - generation;
    return count == 0 ||
           (base % generation == 0 && count % generation == 0 && base < end && count <= end - base);
}

struct vb_dev *vb_dev_create(const struct vb_dev_opts *opts)
{
    const uint64_t secret[2] = {opts->seed, opts->secret};
    struct vb_dev *dev = aligned_alloc(64, (sizeof *dev + 63) & ~(size_t)63);
    if (!dev)
        return NULL;
    memset(dev, 0, sizeof *dev);
    configure(dev, opts);
    bool made = dev->pu_count <= VB_PUS_MAX && vb_is_pow2(dev->pu_count) &&
                is_range(opts->qpn_base, opts->qpn_count) &&
                vb_mkey_table_init(&dev->mkeys, secret) == 0;
    for (uint32_t i = 0; made && i < dev->pu_count; i++) {
        dev->pu[i] = pu_create(dev, i);
        made = dev->pu[i] != NULL;
    }
    if (!made) {
        vb_dev_destroy(dev);
        return NULL;
    }
    dev->mkeys.guard = opts->guard ? opts->guard : opts->region_guard;
    dev->mkeys.guards_all = opts->guard != NULL;
    return dev;
}

void vb_dev_destroy(struct vb_dev *dev)
{
    for (uint32_t i = 0; dev->qp_count > 0; i++) {
        if (!dev->qps[i])
            continue;
        vb_qpc_destroy(dev->qps[i]->pu, dev->qps[i]);
        dev->qp_count--;
    }
    for (uint32_t i = 0; i < dev->cq_room; i++)
        free(dev->cqs[i]);
    for (uint32_t i = 0; i < dev->srq_room; i++)
        free(dev->srqs[i]);
    for (uint32_t i = 0; i < VB_PUS_MAX; i++)
        if (dev->pu[i])
            pu_destroy(dev->pu[i]);
    vb_mkey_table_fini(&dev->mkeys);
    for (uint32_t i = 0; i < dev->program_room; i++)
        free(dev->programs[i]);
    free(dev->programs);
    vb_share_fini(dev);
    free(dev->cqs);
    free(dev->srqs);
    free(dev->pd_users);
    free(dev->member);
    free(dev);
}

void vb_dev_copy_by(struct vb_dev *dev, const struct vb_mem_copier *copier)
{
    dev->mkeys.copier = copier;
}

void vb_dev_hook(struct vb_dev *dev, const struct vb_dev_hooks *hooks)
{
    dev->hooks = hooks;
}

struct vb_pu *vb_dev_pu(struct vb_dev *dev)
{
    return dev->pu[0];
}

struct vb_pu *vb_dev_pu_at(struct vb_dev *dev, uint32_t index)
{
    return index < dev->pu_count ? dev->pu[index] : NULL;
}

struct vb_doorbells *vb_dev_doorbells(struct vb_dev *dev)
{
    return &dev->pu[0]->bells;
}

struct vb_doorbells *vb_pu_doorbells(struct vb_pu *pu)
{
    return &pu->bells;
}

// Doubles an array of `size`-byte elements up to `max` elements; new ones are filled with `fill`.
// NULL: no memory, or the limit is reached; the array is as it was.
static void *grow(void *array, uint32_t *room, uint32_t max, size_t size, int fill)
{
    uint32_t bigger = *room ? *room * 2 : 16;
    uint8_t *a = *room < max ? realloc(array, bigger * size) : NULL;
    if (!a)
        return NULL;
    memset(a + *room * size, fill, (bigger - *room) * size);
    *room = bigger;
    return a;
}

// ---- protection domains

static uint32_t *pd_users(struct vb_dev *dev, uint32_t pd)
{
    if (pd == 0 || pd > dev->pd_room || dev->pd_users[pd - 1] == PD_FREE)
        return NULL;
    return &dev->pd_users[pd - 1];
}

int vb_dev_pd_create(struct vb_dev *dev, uint32_t *pd)
{
    uint32_t i = 0;
    while (i < dev->pd_room && dev->pd_users[i] != PD_FREE)
        i++;
    if (i == dev->pd_room) {
        uint32_t *users = grow(dev->pd_users, &dev->pd_room, PDS_MAX, sizeof *users, 0xff);
        if (!users)
            return -ENOMEM;
        dev->pd_users = users;
    }
    dev->pd_users[i] = 0;
    *pd = i + 1;
    return 0;
}

int vb_dev_pd_destroy(struct vb_dev *dev, uint32_t pd)
{
    uint32_t *users = pd_users(dev, pd);
    if (!users)
        return -ENOENT;
    if (*users)
        return -EBUSY;
    *users = PD_FREE;
    return 0;
}

// ---- memory keys

int vb_dev_mkey_create(struct vb_dev *dev, const struct vb_mkey_attr *attr, uint32_t *key)
{
    uint32_t *users = pd_users(dev, attr->pd);
    if (!users)
        return -ENOENT;
    int err = vb_mkey_create(&dev->mkeys, attr, key);
    if (!err)
        (*users)++;
    return err;
}

int vb_dev_mkey_destroy(struct vb_dev *dev, uint32_t key)
{
    const struct vb_mkey *m = vb_mkey_find(&dev->mkeys, key);
    if (!m)
        return -ENOENT;
    uint32_t pd = m->pd;
    int err = vb_mkey_destroy(&dev->mkeys, key);
    if (!err)
        --*pd_users(dev, pd);
    return err;
}

int vb_dev_window_destroy(struct vb_dev *dev, uint32_t key)
{
    return vb_dev_mkey_destroy(dev, vb_mkey_current(&dev->mkeys, key));
}

enum vb_mem_refusal vb_dev_mkey_judge(struct vb_dev *dev, struct vb_accessor who, uint32_t key,
                                      uint64_t addr, uint64_t len, enum vb_access need,
                                      uint8_t **ptr)
{
    return vb_mem_judge(&dev->mkeys, who, key, addr, len, need, ptr);
}

int vb_dev_mkey_change(struct vb_dev *dev, uint32_t key, const struct vb_mkey_attr *attr)
{
    const struct vb_mkey *m = vb_mkey_find(&dev->mkeys, key);
    uint32_t *users = pd_users(dev, attr->pd);
    if (!m || !users)
        return -ENOENT;
    uint32_t before = m->pd;
    int err = vb_mkey_change(&dev->mkeys, key, attr);
    if (!err) {
        --*pd_users(dev, before);
        ++*users;
    }
    return err;
}

// Timers there can be once there is one queue pair or completion queue more, with the unit's own.
static uint32_t timers_after(const struct vb_dev *dev)
{
    return (dev->qp_count + 1) * 2 + dev->crosses + 1 + dev->cq_count + 1 + 1;
}

// ---- completion queues

int vb_dev_cq_create(struct vb_dev *dev, const struct vb_cqc_attr *attr, uint32_t *cqn)
{
    if (!attr->ring || !attr->dbrec || attr->entries > VB_CQ_ENTRIES_MAX ||
        !vb_is_pow2(attr->entries))
        return -EINVAL;
    uint32_t i = 0;
    while (i < dev->cq_room && dev->cqs[i])
        i++;
    if (i == dev->cq_room) {
        struct vb_cqc **cqs = grow(dev->cqs, &dev->cq_room, CQS_MAX, sizeof *cqs, 0);
        if (!cqs)
            return -ENOMEM;
        dev->cqs = cqs;
    }
    struct vb_pu *pu = vb_dev_pu_at(dev, attr->pu);
    if (!pu)
        return -ENOENT;
    if (vb_timers_reserve(&pu->timers, timers_after(dev)) != 0)
        return -ENOMEM;
    struct vb_cqc *cq = calloc(1, sizeof *cq);
    if (!cq)
        return -ENOMEM;
    *cq = (struct vb_cqc){.cqn = i + 1,
                          .owner = attr->owner,
                          .pu = pu,
                          .entries = attr->entries,
                          .ring = attr->ring,
                          .dbrec = attr->dbrec,
                          .produced = attr->start,
                          .published = attr->start,
                          .told = attr->start,
                          .timer = {.deadline_ns = VB_TIMER_NEVER, .owner = VB_TIMER_OF_CQ},
                          .ignores_overrun = attr->ignore_overrun,
                          .consumed = attr->start};
    vb_fifo_init(&cq->waiters);
    dev->cqs[i] = cq;
    dev->cq_count++;
    *cqn = cq->cqn;
    return 0;
}

int vb_dev_cq_resize(struct vb_dev *dev, uint32_t cqn, void *ring, uint32_t entries)
{
    struct vb_cqc *cq = vb_dev_cq(dev, cqn);
    if (!cq)
        return -ENOENT;
    if (!ring || entries > VB_CQ_ENTRIES_MAX || !vb_is_pow2(entries))
        return -EINVAL;
    vb_pu_publish(cq->pu);
    cq->ring = ring;
    cq->entries = entries;
    return 0;
}

int vb_dev_cq_move(struct vb_dev *dev, uint32_t cqn, uint64_t *consumed, void *ring,
                   uint32_t entries)
{
    struct vb_cqc *cq = vb_dev_cq(dev, cqn);
    if (!cq)
        return -ENOENT;
    if (!ring || entries > VB_CQ_ENTRIES_MAX || !vb_is_pow2(entries))
        return -EINVAL;
    uint32_t keep = entries < cq->entries ? entries : cq->entries;
    if (cq->ignores_overrun && cq->produced - *consumed > keep)
        *consumed = cq->produced - keep;
    if (*consumed > cq->produced || cq->produced - *consumed > keep)
        return -EINVAL;
    vb_pu_publish(cq->pu);
    for (uint64_t i = *consumed; i < cq->produced; i++) {
        const uint8_t *from = cq->ring + (i & (cq->entries - 1)) * VB_CQE_BYTES;
        struct vb_cqe *to = (struct vb_cqe *)ring + (i & (entries - 1));
        memmove(to, from, VB_CQE_BYTES); // the rings may lie anywhere
        to->op_own = (uint8_t)((to->op_own & ~1) | ((i & entries) ? 1 : 0));
    }
    cq->ring = ring;
    cq->entries = entries;
    return 0;
}

int vb_dev_cq_moderate(struct vb_dev *dev, uint32_t cqn, uint32_t count, uint64_t period_ns)
{
    struct vb_cqc *cq = vb_dev_cq(dev, cqn);
    if (!cq)
        return -ENOENT;
    if (count > cq->entries || (count > 1) != (period_ns > 0))
        return -EINVAL; // without a limit in time the last entries would wait for ever
    cq->hold_count = count > 1 ? count : 0;
    cq->hold_ns = period_ns;
    return 0;
}

int vb_dev_cq_armed(struct vb_dev *dev, uint32_t cqn)
{
    struct vb_cqc *cq = vb_dev_cq(dev, cqn);
    if (!cq)
        return -ENOENT;
    if (cq->crossing)
        vb_spin_lock(&cq->lock);
    vb_cqc_arm(cq);
    vb_cqc_tell(cq->pu, cq, false);
    if (cq->crossing)
        vb_spin_unlock(&cq->lock);
    return 0;
}

int vb_dev_cq_destroy(struct vb_dev *dev, uint32_t cqn)
{
    struct vb_cqc *cq = vb_dev_cq(dev, cqn);
    if (!cq)
        return -ENOENT;
    if (cq->users)
        return -EBUSY;
    vb_pu_publish(cq->pu);
    vb_timer_remove(&cq->pu->timers, &cq->timer);
    vb_cqc_forget_untold(cq);
    vb_cross_forget(cq);
    dev->cq_count--;
    dev->cqs[cqn - 1] = NULL;
    free(cq);
    return 0;
}

int vb_dev_cq_produced(struct vb_dev *dev, uint32_t cqn, uint64_t *produced)
{
    const struct vb_cqc *cq = vb_dev_cq(dev, cqn);
    if (!cq)
        return -ENOENT;
    *produced = __atomic_load_n(&cq->produced, __ATOMIC_ACQUIRE);
    return 0;
}

// ---- shared receive queues

int vb_dev_srq_create(struct vb_dev *dev, const struct vb_srqc_attr *attr, uint32_t *srqn)
{
    uint32_t *users = pd_users(dev, attr->pd), i = 0;
    struct vb_cqc *cq = vb_dev_cq(dev, attr->cqn);
    struct vb_srqc *srq;

    if (!users || (attr->cqn && !cq))
        return -ENOENT;
    while (i < dev->srq_room && dev->srqs[i])
        i++;
    if (i == dev->srq_room) {
        struct vb_srqc **srqs = grow(dev->srqs, &dev->srq_room, SRQS_MAX, sizeof *srqs, 0);
        if (!srqs)
            return -ENOMEM;
        dev->srqs = srqs;
    }
    int err = vb_srqc_create(attr, cq, &srq);
    if (err)
        return err;
    ++*users;
    if (cq)
        cq->users++;
    srq->srqn = i + 1;
    srq->crossing = dev->pu_count > 1;
    if (cq && dev->pu_count > 1)
        cq->crossing = true; // targets of any unit may write to it
    dev->srqs[i] = srq;
    *srqn = srq->srqn;
    return 0;
}

int vb_dev_srq_destroy(struct vb_dev *dev, uint32_t srqn)
{
    struct vb_srqc *srq = vb_dev_srq(dev, srqn);
    if (!srq)
        return -ENOENT;
    if (srq->users)
        return -EBUSY;
    --*pd_users(dev, srq->pd);
    if (srq->cq)
        srq->cq->users--;
    dev->srqs[srqn - 1] = NULL;
    // Targets of XRC may still have an entry of it in use.
    for (uint32_t i = 0, left = srq->xrcd ? dev->qp_count : 0; left > 0; i++) {
        struct vb_qpc *qp = dev->qps[i];
        left -= qp != NULL;
        if (qp && qp->type == VB_QPT_XRC_TGT)
            vb_qpc_forget_srq(qp->pu, qp, srq);
    }
    free(srq);
    return 0;
}

int vb_dev_srq_arm(struct vb_dev *dev, uint32_t srqn, uint32_t limit)
{
    struct vb_srqc *srq = vb_dev_srq(dev, srqn);
    if (!srq)
        return -ENOENT;
    if (limit >= srq->entries)
        return -EINVAL;
    srq->limit = limit;
    return 0;
}

int vb_dev_srq_limit(struct vb_dev *dev, uint32_t srqn, uint32_t *limit)
{
    const struct vb_srqc *srq = vb_dev_srq(dev, srqn);
    if (!srq)
        return -ENOENT;
    *limit = srq->limit;
    return 0;
}

int vb_dev_srq_progress(struct vb_dev *dev, uint32_t srqn, struct vb_srq_progress *progress)
{
    const struct vb_srqc *srq = vb_dev_srq(dev, srqn);
    if (!srq)
        return -ENOENT;
    *progress = (struct vb_srq_progress){.taken = srq->taken, .head = srq->head};
    return 0;
}

// ---- chain programs

int vb_dev_program_create(struct vb_dev *dev, const struct vb_program_attr *attr, uint32_t *number)
{
    uint32_t *users = pd_users(dev, attr->pd), i = 0;
    struct vb_cqc *audit = vb_dev_cq(dev, attr->audit_cqn);

    if (!users || (attr->audit_cqn && !audit))
        return -ENOENT;
    while (i < dev->program_room && dev->programs[i])
        i++;
    if (i == dev->program_room) {
        struct vb_program **programs =
            grow(dev->programs, &dev->program_room, PROGRAMS_MAX, sizeof *programs, 0);
        if (!programs)
            return -ENOMEM;
        dev->programs = programs;
    }
    struct vb_program *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = (struct vb_program){
        .number = i + 1, .pd = attr->pd, .limit = attr->limit, .audit = audit, .left = attr->limit};
    if (audit)
        audit->users++;
    ++*users;
    dev->programs[i] = p;
    *number = p->number;
    return 0;
}

int vb_dev_program_destroy(struct vb_dev *dev, uint32_t number)
{
    struct vb_program *p = vb_dev_program(dev, number);
    if (!p)
        return -ENOENT;
    if (p->users)
        return -EBUSY;
    if (p->audit)
        p->audit->users--;
    --*pd_users(dev, p->pd);
    dev->programs[number - 1] = NULL;
    free(p);
    return 0;
}

int vb_dev_program_stop(struct vb_dev *dev, uint32_t number)
{
    struct vb_program *p = vb_dev_program(dev, number);
    if (!p)
        return -ENOENT;
    atomic_store_explicit(&p->stopped, true, memory_order_relaxed);
    for (uint32_t i = 0, left = p->users; left > 0; i++) {
        struct vb_qpc *qp = dev->qps[i];
        if (!qp || !qp->cross || qp->cross->program != p)
            continue;
        left--;
        if (qp->state != VB_QPS_RESET)
            vb_qpc_fail(qp->pu, qp);
    }
    return 0;
}

int vb_dev_program_query(struct vb_dev *dev, uint32_t number, uint64_t *executed, bool *stopped)
{
    struct vb_program *p = vb_dev_program(dev, number);
    if (!p)
        return -ENOENT;
    *executed = atomic_load_explicit(&p->executed, memory_order_relaxed);
    *stopped = atomic_load_explicit(&p->stopped, memory_order_relaxed);
    return 0;
}

static void join_program(const struct vb_qpc *qp, struct vb_program *program)
{
    program->users++;
    if (program->audit && program->audit->pu != qp->pu)
        program->audit->crossing = true;
}

// ---- queue pairs

// Numbers are handed out round robin with a generation above the index, so that packets for a queue
// pair that is gone do not find its successor. 0 and 1 are the management queue pairs', so these
// indices have no first generation.
static uint32_t qpn_draw(struct vb_dev *dev, const struct vb_pu *pu)
{
    uint32_t i = dev->qp_hint, qpn;
    // The management queue pair's place is the last to be given away.
    bool spares = pu->qp_count + 1 < VB_DOORBELL_QPS / dev->pu_count;
    while (dev->qps[i] || i % dev->pu_count != pu->index || (i == VB_QPN_GSI && spares))
        i = (i + 1) % VB_DOORBELL_QPS;
    dev->qp_hint = (i + 1) % VB_DOORBELL_QPS;
    do
        qpn = dev->qpn_base + ((dev->qp_generation[i]++ % dev->qpn_generations) << 14 | i);
    while (qpn < 2);
    return qpn;
}

static_assert(VB_DOORBELL_QPS == 1 << 14, "14 bits of a number are the index");

int vb_dev_qp_create(struct vb_dev *dev, const struct vb_qpc_attr *attr, uint32_t *qpn)
{
    uint32_t *users = pd_users(dev, attr->pd);
    struct vb_cqc *send_cq = vb_dev_cq(dev, attr->send_cqn),
                  *recv_cq = vb_dev_cq(dev, attr->recv_cqn);
    struct vb_qpc *qp;

    struct vb_srqc *srq = vb_dev_srq(dev, attr->srqn);
    struct vb_program *program = vb_dev_program(dev, attr->program);
    struct vb_share *share = vb_share_find(dev, attr->share);
    if (!users || !send_cq || !recv_cq || (attr->srqn && !srq) || (attr->program && !program) ||
        (attr->share && !share))
        return -ENOENT;
    if (program && program->pd != attr->pd)
        return -EINVAL;
    if (send_cq->pu->qp_count >= VB_DOORBELL_QPS / dev->pu_count)
        return -ENOMEM;
    if (attr->gsi && (attr->type != VB_QPT_UD || send_cq->pu->index != VB_QPN_GSI % dev->pu_count))
        return -EINVAL;
    if (attr->gsi && dev->qps[VB_QPN_GSI])
        return -EBUSY;
    int err = vb_timers_reserve(&send_cq->pu->timers, timers_after(dev));
    if (!err)
        err = vb_qpc_create(attr, send_cq, recv_cq, &qp);
    if (err)
        return err;
    vb_share_join(send_cq->pu, qp, share);
    err = vb_congestion_attach(send_cq->pu, qp);
    if (err) {
        vb_share_quit(qp);
        vb_qpc_destroy(send_cq->pu, qp);
        return err;
    }
    qp->srq = srq;
    if (srq)
        srq->users++;
    qp->pu = send_cq->pu;
    if (recv_cq->pu != qp->pu)
        recv_cq->crossing = true;
    dev->crosses += qp->cross != NULL;
    if (program)
        join_program(qp, program);
    qp->qpn = attr->gsi ? VB_QPN_GSI : qpn_draw(dev, qp->pu);
    qp->sq.source.qpn = qp->qpn;
    dev->qps[qp->qpn & (VB_DOORBELL_QPS - 1)] = qp;
    dev->qp_count++;
    qp->pu->qp_count++;
    send_cq->users++;
    recv_cq->users++;
    ++*users;
    *qpn = qp->qpn;
    return 0;
}

int vb_dev_qp_modify(struct vb_dev *dev, uint32_t qpn, const struct vb_qpc_mods *mods)
{
    struct vb_qpc *qp = vb_dev_qp(dev, qpn);
    return qp ? vb_qpc_modify(qp->pu, qp, mods) : -ENOENT;
}

int vb_dev_qp_tune(struct vb_dev *dev, uint32_t qpn, uint32_t access, uint8_t min_rnr_timer,
                   uint32_t qkey)
{
    struct vb_qpc *qp = vb_dev_qp(dev, qpn);

    if (!qp)
        return -ENOENT;
    if (access & ~(uint32_t)VB_ACCESS_REMOTE || min_rnr_timer > 31 || qp->state == VB_QPS_RESET)
        return -EINVAL;
    qp->access = access;
    qp->min_rnr_timer = min_rnr_timer;
    qp->qkey = qkey;
    return 0;
}

int vb_dev_qp_limit(struct vb_dev *dev, uint32_t qpn, uint64_t rate_Bps, uint32_t burst_bytes)
{
    struct vb_qpc *qp = vb_dev_qp(dev, qpn);
    return qp ? vb_congestion_limit(qp, rate_Bps, burst_bytes) : -ENOENT;
}

int vb_dev_qp_state(struct vb_dev *dev, uint32_t qpn, enum vb_qp_state *state)
{
    struct vb_qpc *qp = vb_dev_qp(dev, qpn);
    if (!qp)
        return -ENOENT;
    *state = qp->state;
    return 0;
}

int vb_dev_qp_progress(struct vb_dev *dev, uint32_t qpn, struct vb_qp_progress *p)
{
    const struct vb_qpc *qp = vb_dev_qp(dev, qpn);
    if (!qp)
        return -ENOENT;
    p->retired = qp->req.head ? qp->req.head->counter : qp->sq.fetched;
    p->begun = qp->req.unbegun ? qp->req.unbegun->counter : qp->sq.fetched;
    if (qp->loops && qp->state < VB_QPS_SQE)
        p->retired = p->begun = qp->cross->snap.executed;
    p->answers_owed = qp->resp.job_count;
    p->running = qp->state == VB_QPS_RTS || qp->state >= VB_QPS_SQE ||
                 (qp->state == VB_QPS_SQD && qp->req.una_wr != qp->req.unbegun);
    p->fetched = qp->sq.fetched;
    p->send_open = qp->sq.gate.managed ? atomic_load(&qp->sq.gate.open) : qp->sq.end;
    p->recv_open = qp->rq.gate.managed ? atomic_load(&qp->rq.gate.open) : qp->rq.end;
    p->recv_taken = qp->rq.taken;
    p->recv_done = qp->rq.taken - (qp->resp.recv.loaded && !qp->resp.recv.srq);
    p->recv_shared =
        qp->resp.recv.loaded && qp->resp.recv.srq ? (uint32_t)qp->resp.recv.counter + 1 : 0;
    return 0;
}

void vb_dev_qp_settle(struct vb_dev *dev, uint32_t qpn)
{
    struct vb_qpc *qp = vb_dev_qp(dev, qpn);
    if (!qp || qp->state == VB_QPS_RESET || qp->state == VB_QPS_INIT)
        return;
    if (vb_qpc_is_reliable(qp) && qp->state < VB_QPS_SQE && !qp->loops)
        vb_requester_settle(qp->pu, qp);
    vb_responder_settle(qp->pu, qp);
}

const struct vb_qp_counters *vb_dev_qp_counters(struct vb_dev *dev, uint32_t qpn)
{
    const struct vb_qpc *qp = vb_dev_qp(dev, qpn);
    return qp ? &qp->count : NULL;
}

int vb_dev_qp_destroy(struct vb_dev *dev, uint32_t qpn)
{
    struct vb_qpc *qp = vb_dev_qp(dev, qpn);
    if (!qp)
        return -ENOENT;
    struct vb_ip group;
    while (vb_dev_qp_leave(dev, qpn, &group))
        ;
    vb_spread_leave(dev, qp);
    if (qp->srq && qp->type != VB_QPT_XRC_TGT)
        qp->srq->users--;
    qp->send_cq->users--;
    qp->recv_cq->users--;
    --*pd_users(dev, qp->pd);
    dev->qps[qpn & (VB_DOORBELL_QPS - 1)] = NULL;
    dev->qp_count--;
    dev->crosses -= qp->cross != NULL;
    if (qp->cross && qp->cross->program)
        qp->cross->program->users--;
    qp->pu->qp_count--;
    vb_share_quit(qp);
    vb_qpc_destroy(qp->pu, qp);
    return 0;
}
