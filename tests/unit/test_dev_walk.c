// SPDX-License-Identifier: Apache-2.0
// A device's objects in a random walk: domains, completion queues, shared receive queues, programs,
// groups and queue pairs come, change and go. The test keeps its own books; each call's result and
// all that the device tells of its objects must agree with them. A call has one fault at most.
#include "base/prng.h"
#include "nic/facts.h"
#include "nic/pu.h"

#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    STEPS = 30000,
    PDS = 20,
    CQS = 20,
    SRQS = 18,
    PROGRAMS = 17,
    QPS = 24,
    GROUPS = 3,
    NEVER = 0x7fff, // the number of no object
};

struct pd {
    uint32_t number;
};

struct cq {
    uint32_t number, pu, entries;
    uint64_t start;
    uint32_t dbrec[2];
};

struct srq {
    uint32_t number, pd, cq, entries, limit; // places in the books; cq is one more, 0: none
    bool xrc;
    uint32_t dbrec;
};

struct program {
    uint32_t number, pd, audit; // audit: as of a srq
    bool stopped;
};

struct qp {
    uint32_t number, pd, send_cq, recv_cq, srq, program; // srq, program: one more, 0: none
    enum vb_qp_type type;
    enum vb_qp_state state;
    bool connected, cross;
    uint64_t sq_start, rq_start;
    uint32_t dest_qpn, mtu, sq_psn, rq_psn;
    struct vb_ip remote;
    uint32_t dbrec[2];
    bool in[GROUPS];
};

struct walk {
    struct vb_dev *dev;
    struct vb_prng prng;
    uint32_t pus;
    uint64_t now_ns;
    struct pd pd[PDS];
    struct cq cq[CQS];
    struct srq srq[SRQS];
    struct program program[PROGRAMS];
    struct qp qp[QPS];
};

static uint8_t ring[1 << 16] __attribute__((aligned(64))); // of all, since nothing is ever posted
static const struct vb_ip groups[GROUPS] = {{{[10] = 0xff, 0xff, 224, 0, 0, 1}},
                                            {{[10] = 0xff, 0xff, 239, 255, 255, 255}},
                                            {{0xff, 0x0e, [15] = 7}}};

static uint32_t below(struct walk *w, uint32_t n)
{
    return (uint32_t)vb_prng_below(&w->prng, n);
}

static bool chance(struct walk *w, uint32_t one_in)
{
    return below(w, one_in) == 0;
}

// The place of an object that exists; if none does, of one that does not. Numbers are the first
// member of all objects.
#define PICK(w, list) pick(w, (w)->list, sizeof *(w)->list, sizeof(w)->list / sizeof *(w)->list)
// A place that is free; of none, any.
#define FREE(w, list) vacant((w)->list, sizeof *(w)->list, sizeof(w)->list / sizeof *(w)->list)

static uint32_t number_at(const void *list, size_t size, uint32_t i)
{
    uint32_t number;
    memcpy(&number, (const char *)list + i * size, sizeof number);
    return number;
}

static uint32_t pick(struct walk *w, const void *list, size_t size, uint32_t count)
{
    uint32_t i = below(w, count);
    for (uint32_t n = 0; n < count && !number_at(list, size, i); n++)
        i = (i + 1) % count;
    return i;
}

static uint32_t vacant(const void *list, size_t size, uint32_t count)
{
    uint32_t i = 0;
    while (i + 1 < count && number_at(list, size, i))
        i++;
    return i;
}

// Numbers are given from the lowest on that is free.
static uint32_t lowest(const void *list, size_t size, uint32_t count)
{
    for (uint32_t n = 1;; n++) {
        uint32_t i = 0;
        while (i < count && number_at(list, size, i) != n)
            i++;
        if (i == count)
            return n;
    }
}
#define LOWEST(w, list) lowest((w)->list, sizeof *(w)->list, sizeof(w)->list / sizeof *(w)->list)

// ---- users of objects, counted anew

static uint32_t users_of_pd(const struct walk *w, uint32_t pd)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < SRQS; i++)
        n += w->srq[i].number && w->srq[i].pd == pd;
    for (uint32_t i = 0; i < PROGRAMS; i++)
        n += w->program[i].number && w->program[i].pd == pd;
    for (uint32_t i = 0; i < QPS; i++)
        n += w->qp[i].number && w->qp[i].pd == pd;
    return n;
}

static uint32_t users_of_cq(const struct walk *w, uint32_t cq)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < SRQS; i++)
        n += w->srq[i].number && w->srq[i].cq == cq + 1;
    for (uint32_t i = 0; i < PROGRAMS; i++)
        n += w->program[i].number && w->program[i].audit == cq + 1;
    for (uint32_t i = 0; i < QPS; i++)
        n += w->qp[i].number ? (w->qp[i].send_cq == cq) + (w->qp[i].recv_cq == cq) : 0;
    return n;
}

static uint32_t users_of_srq(const struct walk *w, uint32_t srq)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < QPS; i++)
        n += w->qp[i].number && w->qp[i].srq == srq + 1;
    return n;
}

static uint32_t users_of_program(const struct walk *w, uint32_t program)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < QPS; i++)
        n += w->qp[i].number && w->qp[i].program == program + 1;
    return n;
}

// ---- domains

static void step_pd(struct walk *w)
{
    uint32_t i = FREE(w, pd), number = 0;

    if (!w->pd[i].number && !chance(w, 3)) {
        uint32_t expected = LOWEST(w, pd);
        assert_int_equal(vb_dev_pd_create(w->dev, &number), 0);
        assert_int_equal(number, expected);
        w->pd[i].number = number;
        return;
    }
    i = PICK(w, pd);
    int busy = users_of_pd(w, i) ? -EBUSY : 0;
    assert_int_equal(vb_dev_pd_destroy(w->dev, chance(w, 2) ? 0 : NEVER), -ENOENT);
    assert_int_equal(vb_dev_pd_destroy(w->dev, w->pd[i].number), w->pd[i].number ? busy : -ENOENT);
    if (!busy)
        w->pd[i].number = 0;
}

// ---- completion queues

static void create_cq(struct walk *w, uint32_t i)
{
    static const uint32_t wrong[] = {0, 3, 2 * VB_CQ_ENTRIES_MAX, 96};
    struct cq *cq = &w->cq[i];
    uint32_t fault = below(w, 8), number = 0, expected = LOWEST(w, cq);

    *cq = (struct cq){.entries = 1u << below(w, 9), .start = below(w, 1000)};
    cq->pu = below(w, w->pus);
    struct vb_cqc_attr a = {
        .pu = cq->pu, .ring = ring, .entries = cq->entries, .dbrec = cq->dbrec, .start = cq->start};
    int err = 0;
    switch (fault) {
    case 0: a.ring = NULL, err = -EINVAL; break;
    case 1: a.dbrec = NULL, err = -EINVAL; break;
    case 2: a.entries = wrong[below(w, 4)], err = -EINVAL; break;
    case 3: a.pu = w->pus, err = -ENOENT; break;
    default: break;
    }
    assert_int_equal(vb_dev_cq_create(w->dev, &a, &number), err);
    assert_int_equal(number, err ? 0 : expected);
    cq->number = number;
}

static void change_cq(struct walk *w, const struct cq *cq)
{
    uint32_t n = cq->number ? cq->number : NEVER, count = below(w, 300), entries = cq->entries;
    uint64_t period_ns = below(w, 2), produced = 0, consumed = cq->start;
    bool legal = count <= entries && (count > 1) == (period_ns > 0);

    assert_int_equal(vb_dev_cq_moderate(w->dev, n, count, period_ns), !cq->number ? -ENOENT
                                                                      : legal     ? 0
                                                                                  : -EINVAL);
    assert_int_equal(vb_dev_cq_armed(w->dev, n), cq->number ? 0 : -ENOENT);
    assert_int_equal(vb_dev_cq_produced(w->dev, n, &produced), cq->number ? 0 : -ENOENT);
    assert_int_equal(produced, cq->number ? cq->start : 0);
    assert_int_equal(vb_dev_cq_resize(w->dev, n, ring, entries), cq->number ? 0 : -ENOENT);
    assert_int_equal(vb_dev_cq_move(w->dev, n, &consumed, ring, entries), cq->number ? 0 : -ENOENT);
    assert_int_equal(consumed, cq->start);
    if (!cq->number)
        return;
    assert_int_equal(vb_dev_cq_resize(w->dev, n, NULL, entries), -EINVAL);
    assert_int_equal(vb_dev_cq_resize(w->dev, n, ring, 6), -EINVAL);
    assert_int_equal(vb_dev_cq_resize(w->dev, n, ring, 2 * VB_CQ_ENTRIES_MAX), -EINVAL);
    assert_int_equal(vb_dev_cq_move(w->dev, n, &consumed, NULL, entries), -EINVAL);
    assert_int_equal(vb_dev_cq_move(w->dev, n, &consumed, ring, 0), -EINVAL);
    assert_int_equal(vb_dev_cq_move(w->dev, n, &consumed, ring, 2 * VB_CQ_ENTRIES_MAX), -EINVAL);
    consumed++; // of what was never produced
    assert_int_equal(vb_dev_cq_move(w->dev, n, &consumed, ring, entries), -EINVAL);
}

static void step_cq(struct walk *w)
{
    uint32_t i = FREE(w, cq);

    if (!w->cq[i].number && !chance(w, 3)) {
        create_cq(w, i);
        return;
    }
    i = PICK(w, cq);
    change_cq(w, &w->cq[i]);
    int busy = users_of_cq(w, i) ? -EBUSY : 0;
    uint32_t number = w->cq[i].number;
    assert_int_equal(vb_dev_cq_destroy(w->dev, number), number ? busy : -ENOENT);
    if (!busy)
        w->cq[i].number = 0;
    assert_int_equal(vb_dev_cq_destroy(w->dev, chance(w, 2) ? 0 : NEVER), -ENOENT);
}

// ---- shared receive queues

static void create_srq(struct walk *w, uint32_t i)
{
    static const uint32_t wrong_entries[] = {0, 3, 2 * VB_RQ_ENTRIES_MAX},
                          wrong_strides[] = {0, 16, 48, 1024};
    struct srq *s = &w->srq[i];
    uint32_t number = 0, expected = LOWEST(w, srq), pd = PICK(w, pd), cq = PICK(w, cq);
    bool has_cq = w->cq[cq].number && !chance(w, 3);

    *s = (struct srq){.pd = pd, .cq = has_cq ? cq + 1 : 0, .entries = 2u << below(w, 6)};
    s->xrc = has_cq && chance(w, 2);
    struct vb_srqc_attr a = {.pd = w->pd[pd].number,
                             .ring = ring,
                             .entries = s->entries,
                             .stride_bytes = 32u << below(w, 5),
                             .dbrec = &s->dbrec,
                             .xrcd = s->xrc ? 5 : 0,
                             .cqn = has_cq ? w->cq[cq].number : 0};
    int err = w->pd[pd].number ? 0 : -ENOENT;
    switch (err ? 9 : below(w, 14)) {
    case 0: a.ring = NULL, err = -EINVAL; break;
    case 1: a.dbrec = NULL, err = -EINVAL; break;
    case 2: a.entries = wrong_entries[below(w, 3)], err = -EINVAL; break;
    case 3: a.stride_bytes = wrong_strides[below(w, 4)], err = -EINVAL; break;
    case 4: a.xrcd = 5, a.cqn = 0, err = -EINVAL; break;
    case 5: a.pd = NEVER, err = -ENOENT; break;
    case 6: a.cqn = NEVER, err = -ENOENT; break;
    default: break;
    }
    assert_int_equal(vb_dev_srq_create(w->dev, &a, &number), err);
    assert_int_equal(number, err ? 0 : expected);
    s->number = number;
}

static void step_srq(struct walk *w)
{
    struct vb_srq_progress p = {9, 9};
    uint32_t i = FREE(w, srq), limit = 77;

    if (!w->srq[i].number && !chance(w, 3)) {
        create_srq(w, i);
        return;
    }
    struct srq *s = &w->srq[i = PICK(w, srq)];
    uint32_t n = s->number ? s->number : NEVER, wanted = below(w, 2 * s->entries + 1);
    int known = s->number ? 0 : -ENOENT;
    assert_int_equal(vb_dev_srq_arm(w->dev, n, wanted), known                  ? known
                                                        : wanted >= s->entries ? -EINVAL
                                                                               : 0);
    s->limit = wanted < s->entries ? wanted : s->limit;
    assert_int_equal(vb_dev_srq_limit(w->dev, n, &limit), known);
    assert_int_equal(limit, known ? 77 : s->limit);
    assert_int_equal(vb_dev_srq_progress(w->dev, n, &p), known);
    assert_int_equal(p.taken, known ? 9 : 0);
    assert_int_equal(p.head, known ? 9 : 0);
    int busy = users_of_srq(w, i) ? -EBUSY : 0;
    assert_int_equal(vb_dev_srq_destroy(w->dev, n), known ? known : busy);
    if (!busy)
        s->number = 0;
    assert_int_equal(vb_dev_srq_destroy(w->dev, chance(w, 2) ? 0 : NEVER), -ENOENT);
}

// ---- programs

static void create_program(struct walk *w, uint32_t i)
{
    struct program *p = &w->program[i];
    uint32_t number = 0, expected = LOWEST(w, program), pd = PICK(w, pd), cq = PICK(w, cq);
    bool audited = w->cq[cq].number && chance(w, 2);
    struct vb_program_attr a = {
        .pd = w->pd[pd].number, .limit = below(w, 9), .audit_cqn = audited ? w->cq[cq].number : 0};
    int err = w->pd[pd].number ? 0 : -ENOENT;

    if (chance(w, 8))
        a.pd = NEVER, err = -ENOENT;
    else if (chance(w, 8))
        a.audit_cqn = NEVER, err = -ENOENT;
    assert_int_equal(vb_dev_program_create(w->dev, &a, &number), err);
    assert_int_equal(number, err ? 0 : expected);
    *p = (struct program){.number = number, .pd = pd, .audit = audited ? cq + 1 : 0};
}

// A program was stopped. Those of its queue pairs with a shared receive queue tell their last use.
static void fail_users(struct walk *w, uint32_t program)
{
    uint32_t last = 0;
    struct vb_event e;

    for (uint32_t i = 0; i < QPS; i++) {
        struct qp *q = &w->qp[i];
        if (!q->number || q->program != program + 1 || q->state == VB_QPS_RESET)
            continue;
        last += q->srq && q->state != VB_QPS_ERR;
        q->state = VB_QPS_ERR;
    }
    for (uint32_t i = 0; i < w->pus; i++) {
        vb_pu_poll(vb_dev_pu_at(w->dev, i), ++w->now_ns);
        for (; vb_pu_take_event(vb_dev_pu_at(w->dev, i), &e); last--)
            assert_int_equal(e.kind, VB_EVENT_QP_LAST_WQE);
    }
    assert_int_equal(last, 0);
}

static void step_program(struct walk *w)
{
    uint32_t i = FREE(w, program);
    uint64_t executed = 5;
    bool stopped = false;

    if (!w->program[i].number && !chance(w, 3)) {
        create_program(w, i);
        return;
    }
    struct program *p = &w->program[i = PICK(w, program)];
    uint32_t n = p->number ? p->number : NEVER;
    int known = p->number ? 0 : -ENOENT, busy = users_of_program(w, i) ? -EBUSY : 0;
    if (chance(w, 4)) {
        assert_int_equal(vb_dev_program_stop(w->dev, n), known);
        p->stopped = true;
        fail_users(w, i);
    }
    assert_int_equal(vb_dev_program_query(w->dev, n, &executed, &stopped), known);
    assert_int_equal(executed, known ? 5 : 0);
    assert_int_equal(stopped, !known && p->stopped);
    if (chance(w, 2))
        return;
    assert_int_equal(vb_dev_program_destroy(w->dev, n), known ? known : busy);
    if (!busy)
        p->number = 0;
    assert_int_equal(vb_dev_program_destroy(w->dev, chance(w, 2) ? 0 : NEVER), -ENOENT);
    assert_int_equal(vb_dev_program_stop(w->dev, NEVER), -ENOENT);
}

// ---- queue pairs

// One thing that no queue pair may have.
static int spoil_qp(struct walk *w, struct vb_qpc_attr *a)
{
    static const uint32_t wrong_blocks[] = {0, 5, 2 * VB_SQ_BLOCKS_MAX},
                          wrong_strides[] = {0, 8, 24, 32 * VB_MAX_SGE};
    bool receives = a->type < VB_QPT_XRC_INI && !a->srqn;

    switch (below(w, 20)) {
    case 0: a->pd = NEVER; return -ENOENT;
    case 1: a->send_cqn = NEVER; return -ENOENT;
    case 2: a->recv_cqn = 0; return -ENOENT;
    case 3: a->srqn = NEVER; return -ENOENT;
    case 4: a->program = NEVER; return -ENOENT;
    case 5: a->share = NEVER; return -ENOENT;
    case 6: a->sq_blocks = wrong_blocks[below(w, 3)]; return -EINVAL;
    case 7: a->sq_ring = NULL; return -EINVAL;
    case 8: a->dbrec = NULL; return -EINVAL;
    case 9: a->type = VB_QPT_COUNT; return -EINVAL;
    case 10: a->xrcd = a->type == VB_QPT_XRC_TGT ? 0 : 5; return -EINVAL;
    case 11: a->rate = !a->cross_channel; return a->cross_channel ? 0 : -EINVAL;
    case 12: a->fetch_depth = 4; return a->cross_channel ? 0 : -EINVAL;
    case 13: a->managed_send = true; return a->type == VB_QPT_RC ? 0 : -EINVAL;
    case 14: a->managed_recv = true; return a->type == VB_QPT_RC && receives ? 0 : -EINVAL;
    case 15: a->rq_entries = 3; return -EINVAL;
    case 16: a->rq_entries = receives ? 2 * VB_RQ_ENTRIES_MAX : 3; return -EINVAL;
    case 17: a->rq_stride_bytes = wrong_strides[below(w, 4)]; return receives ? -EINVAL : 0;
    case 18: a->rq_ring = NULL; return receives ? -EINVAL : 0;
    default: a->gsi = true; return a->type == VB_QPT_UD ? 0 : -EINVAL;
    }
}

static bool has_gsi(const struct walk *w)
{
    for (uint32_t i = 0; i < QPS; i++)
        if (w->qp[i].number == VB_QPN_GSI)
            return true;
    return false;
}

// Its number: of its unit, of no other queue pair, and not that of management by chance.
static void expect_qpn(const struct walk *w, const struct qp *q, uint32_t number, bool gsi)
{
    assert_int_equal(number % w->pus, w->cq[q->send_cq].pu);
    assert_true(gsi ? number == VB_QPN_GSI : number > VB_QPN_GSI);
    assert_true(number < 0xffc000);
    for (uint32_t i = 0; i < QPS; i++)
        assert_true(&w->qp[i] == q || !w->qp[i].number ||
                    w->qp[i].number % (1 << 14) != number % (1 << 14));
}

static void create_qp(struct walk *w, uint32_t i)
{
    struct qp *q = &w->qp[i];
    uint32_t number = 0, program = PICK(w, program), srq = PICK(w, srq);

    *q = (struct qp){.pd = PICK(w, pd)};
    q->send_cq = PICK(w, cq);
    q->recv_cq = PICK(w, cq);
    q->type = (enum vb_qp_type)below(w, VB_QPT_COUNT);
    q->sq_start = below(w, 70000);
    q->rq_start = below(w, 70000);
    q->cross = q->type == VB_QPT_RC && chance(w, 2);
    q->srq = q->type < VB_QPT_XRC_INI && w->srq[srq].number && chance(w, 2) ? srq + 1 : 0;
    if (q->cross && w->program[program].number && w->program[program].pd == q->pd)
        q->program = program + 1;
    q->dbrec[VB_DBREC_SQ] = htobe32(q->sq_start & 0xffff);
    q->dbrec[VB_DBREC_RQ] = htobe32(q->rq_start & 0xffff);
    struct vb_qpc_attr a = {.pd = w->pd[q->pd].number,
                            .type = q->type,
                            .srqn = q->srq ? w->srq[srq].number : 0,
                            .xrcd = q->type == VB_QPT_XRC_TGT ? 5 : 0,
                            .send_cqn = w->cq[q->send_cq].number,
                            .recv_cqn = w->cq[q->recv_cq].number,
                            .sq_ring = ring,
                            .sq_blocks = 64,
                            .rq_ring = ring,
                            .rq_stride_bytes = 16,
                            .dbrec = q->dbrec,
                            .sq_start = q->sq_start,
                            .rq_start = q->rq_start,
                            .cross_channel = q->cross,
                            .program = q->program ? w->program[program].number : 0};
    a.rq_entries = q->type < VB_QPT_XRC_INI && !q->srq ? 32 : 0;
    int err = a.pd && a.send_cqn && a.recv_cqn ? 0 : -ENOENT;
    if (!err && chance(w, 2))
        err = spoil_qp(w, &a);
    if (!err && a.gsi && w->cq[q->send_cq].pu != VB_QPN_GSI % w->pus)
        err = -EINVAL;
    else if (!err && a.gsi && has_gsi(w))
        err = -EBUSY;
    assert_int_equal(vb_dev_qp_create(w->dev, &a, &number), err);
    if (!err)
        expect_qpn(w, q, number, a.gsi);
    assert_true(!err || !number);
    q->number = number;
}

// RESET, INIT, RTR, RTS, SQD, SQE and ERR: '+' may become the state of its column.
static const char *const legal[VB_QPS_COUNT] = {
    [VB_QPS_RESET] = "++.....", [VB_QPS_INIT] = "+++...+", [VB_QPS_RTR] = "+..+..+",
    [VB_QPS_RTS] = "+...+.+",   [VB_QPS_SQD] = "+..++.+",  [VB_QPS_ERR] = "+.....+",
};

static int spoil_mods(struct walk *w, const struct qp *q, struct vb_qpc_mods *m)
{
    static const uint32_t wrong_mtus[] = {0, 255, 300, 8192, 128};
    bool init = m->state == VB_QPS_INIT, rtr = m->state == VB_QPS_RTR;
    bool rts = m->state == VB_QPS_RTS && q->state == VB_QPS_RTR;

    switch (below(w, 16)) {
    case 0: m->access |= VB_LOCAL_WRITE; return init ? -EINVAL : 0;
    case 1: m->access |= VB_BIND; return init ? -EINVAL : 0;
    case 2: m->mtu_bytes = wrong_mtus[below(w, 5)]; return rtr ? -EINVAL : 0;
    case 3: m->dest_qpn = 1 << 24; return rtr ? -EINVAL : 0;
    case 4: m->rq_psn = 1 << 24; return rtr ? -EINVAL : 0;
    case 5: m->min_rnr_timer = 32; return rtr ? -EINVAL : 0;
    case 6: m->max_dest_rd_atomic = VB_RD_ATOMIC_MAX + 1; return rtr ? -EINVAL : 0;
    case 7: m->local.b[0] = 0xfd; return rtr && q->type != VB_QPT_UD ? -EINVAL : 0;
    case 8: m->attr.flow_label = 1 << 20; return rtr ? -EINVAL : 0;
    case 9: m->attr.sl = VB_WQE_SL_MAX + 1; return rtr ? -EINVAL : 0;
    case 10: m->attr.reserved = 1; return rtr ? -EINVAL : 0;
    case 11: m->sq_psn = 1 << 24; return rts ? -EINVAL : 0;
    case 12: m->timeout = 32; return rts ? -EINVAL : 0;
    case 13: m->retry_cnt = 8; return rts ? -EINVAL : 0;
    case 14: m->rnr_retry = 8; return rts ? -EINVAL : 0;
    default: m->max_rd_atomic = VB_RD_ATOMIC_OUT_MAX + 1; return rts ? -EINVAL : 0;
    }
}

static void expect_no_event(struct walk *w, uint32_t pu)
{
    struct vb_event e;
    if (vb_pu_take_event(vb_dev_pu_at(w->dev, pu), &e))
        fail_msg("event %d of %u", e.kind, e.number);
}

static void expect_event(struct walk *w, uint32_t pu, enum vb_event_kind kind, uint32_t number)
{
    struct vb_event e = {0};
    assert_true(vb_pu_take_event(vb_dev_pu_at(w->dev, pu), &e));
    assert_int_equal(e.kind, kind);
    assert_int_equal(e.number, number);
}

// What the transition itself brings about.
static void take_over(struct walk *w, struct qp *q, const struct vb_qpc_mods *m)
{
    uint32_t pu = w->cq[q->send_cq].pu;
    enum vb_qp_state from = q->state;

    q->state = m->state;
    if (m->state == VB_QPS_RTR) {
        q->connected = q->type != VB_QPT_UD;
        q->remote = m->remote;
        q->dest_qpn = m->dest_qpn;
        q->mtu = m->mtu_bytes;
        q->rq_psn = m->rq_psn;
    } else if (m->state == VB_QPS_RTS && from == VB_QPS_RTR) {
        q->sq_psn = m->sq_psn;
    } else if (m->state == VB_QPS_RESET) {
        q->connected = false;
    }
    vb_pu_poll(vb_dev_pu_at(w->dev, pu), ++w->now_ns);
    if (m->state == VB_QPS_SQD && from == VB_QPS_RTS)
        expect_event(w, pu, VB_EVENT_SQ_DRAINED, q->number);
    if (m->state == VB_QPS_ERR && from != VB_QPS_ERR && q->srq)
        expect_event(w, pu, VB_EVENT_QP_LAST_WQE, q->number);
    expect_no_event(w, pu);
}

static void modify_qp(struct walk *w, struct qp *q)
{
    static const struct vb_ip local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}};
    struct vb_qpc_mods m = {.access = VB_REMOTE_READ,
                            .qkey = 7,
                            .dest_qpn = 1u + below(w, 0xffffff),
                            .rq_psn = below(w, 1 << 24),
                            .mtu_bytes = 256,
                            .max_dest_rd_atomic = VB_RD_ATOMIC_MAX,
                            .min_rnr_timer = 31,
                            .local = local,
                            .remote = local,
                            .timeout = 31,
                            .retry_cnt = 7,
                            .rnr_retry = 7,
                            .max_rd_atomic = VB_RD_ATOMIC_OUT_MAX,
                            .attr = {.flow_label = 0xfffff, .sl = VB_WQE_SL_MAX}};

    m.mtu_bytes <<= below(w, 5);
    m.sq_psn = below(w, 1 << 24);
    m.remote.b[15] = (uint8_t)(2 + below(w, 5));
    m.state = (enum vb_qp_state)(chance(w, 3) ? below(w, VB_QPS_COUNT) : q->state + 1u);
    m.state = m.state > VB_QPS_ERR ? VB_QPS_RESET : m.state;
    int err = legal[q->state][m.state] == '+' ? 0 : -EINVAL;
    if (!err && chance(w, 4))
        err = spoil_mods(w, q, &m);
    assert_int_equal(vb_dev_qp_modify(w->dev, q->number, &m), err);
    if (!err)
        take_over(w, q, &m);
}

static void tune_qp(struct walk *w, const struct qp *q)
{
    uint32_t access = chance(w, 4) ? VB_LOCAL_WRITE : VB_ACCESS_REMOTE;
    uint8_t timer = (uint8_t)(24 + below(w, 10));
    bool fine = access == VB_ACCESS_REMOTE && timer <= 31 && q->state != VB_QPS_RESET;

    assert_int_equal(vb_dev_qp_tune(w->dev, q->number, access, timer, 99), fine ? 0 : -EINVAL);
    if (!fine)
        return;
    const struct vb_qpc *qp = vb_dev_qp(w->dev, q->number);
    assert_true(qp->access == access && qp->min_rnr_timer == timer && qp->qkey == 99);
}

static void step_group(struct walk *w, struct qp *q)
{
    static const struct vb_ip plain[] = {{{[10] = 0xff, 0xff, 223, 0, 0, 1}},
                                         {{[10] = 0xff, 0xff, 240, 0, 0, 1}},
                                         {{0xfe, 0x0e, [15] = 7}}};
    uint32_t g = below(w, GROUPS), members[2] = {0};

    assert_int_equal(vb_dev_qp_attach(w->dev, q->number, &plain[below(w, 3)]), -EINVAL);
    if (chance(w, 2)) {
        assert_int_equal(vb_dev_qp_attach(w->dev, q->number, &groups[g]), q->type != VB_QPT_UD
                                                                              ? -EINVAL
                                                                          : q->in[g] ? -EEXIST
                                                                                     : 0);
        q->in[g] |= q->type == VB_QPT_UD;
    } else {
        assert_int_equal(vb_dev_qp_detach(w->dev, q->number, &groups[g]), q->in[g] ? 0 : -ENOENT);
        q->in[g] = false;
    }
    uint32_t pu = w->cq[q->send_cq].pu;
    for (uint32_t i = 0; i < QPS; i++)
        members[0] += w->qp[i].number && w->qp[i].in[g] && w->cq[w->qp[i].send_cq].pu == pu;
    members[1] = vb_pu_members(vb_dev_pu_at(w->dev, pu), &groups[g]);
    assert_int_equal(members[1], members[0]);
}

static void step_qp(struct walk *w)
{
    uint32_t i = FREE(w, qp);

    if (!w->qp[i].number && chance(w, 4)) {
        create_qp(w, i);
        return;
    }
    struct qp *q = &w->qp[PICK(w, qp)];
    if (!q->number)
        return;
    switch (below(w, 12)) {
    case 0:
        assert_int_equal(vb_dev_qp_destroy(w->dev, q->number ^ 1 << 20), -ENOENT);
        assert_int_equal(vb_dev_qp_destroy(w->dev, q->number), 0);
        assert_int_equal(vb_dev_qp_destroy(w->dev, q->number), -ENOENT);
        *q = (struct qp){0};
        break;
    case 1: tune_qp(w, q); break;
    case 2:
    case 3: step_group(w, q); break;
    default: modify_qp(w, q); break;
    }
}

// ---- what the device tells

static void compare_qp(struct walk *w, const struct qp *q, const struct vb_qp_facts *f)
{
    struct vb_qp_progress p = {.retired = 1};
    enum vb_qp_state state = VB_QPS_COUNT;

    assert_int_equal(f->state, q->state);
    assert_int_equal(f->type, q->type);
    assert_int_equal(f->pd, w->pd[q->pd].number);
    assert_int_equal(f->send_cqn, w->cq[q->send_cq].number);
    assert_int_equal(f->recv_cqn, w->cq[q->recv_cq].number);
    assert_int_equal(f->srqn, q->srq ? w->srq[q->srq - 1].number : 0);
    assert_int_equal(f->connected, q->connected);
    if (q->connected) {
        assert_memory_equal(&f->remote, &q->remote, sizeof q->remote);
        assert_int_equal(f->dest_qpn, q->dest_qpn);
        assert_int_equal(f->mtu_bytes, q->mtu);
        assert_int_equal(f->rq_psn, q->rq_psn);
    }
    if (q->state == VB_QPS_RTS || q->state == VB_QPS_SQD)
        assert_int_equal(f->sq_psn, q->sq_psn);
    assert_int_equal(vb_dev_qp_state(w->dev, q->number, &state), 0);
    assert_int_equal(state, q->state);
    assert_int_equal(vb_dev_qp_progress(w->dev, q->number, &p), 0);
    assert_true(p.retired == q->sq_start && p.begun == q->sq_start && p.fetched == q->sq_start);
    assert_true(p.send_open == q->sq_start && p.recv_open == q->rq_start);
    assert_true(p.recv_taken == q->rq_start && p.recv_done == q->rq_start);
    assert_true(!p.recv_shared && !p.answers_owed);
    assert_int_equal(p.running, q->state == VB_QPS_RTS || q->state == VB_QPS_ERR);
}

static void compare_qps(struct walk *w)
{
    struct vb_qp_facts f[QPS];
    uint32_t at = 0, told = 0, n;

    while ((n = vb_facts_qps(w->dev, &at, f + told, 3)) > 0)
        told += n;
    for (uint32_t i = 0; i < QPS; i++) {
        uint32_t k = 0;
        if (!w->qp[i].number)
            continue;
        while (k < told && f[k].qpn != w->qp[i].number)
            k++;
        assert_true(k < told);
        compare_qp(w, &w->qp[i], &f[k]);
    }
}

static void compare_counts(struct walk *w)
{
    struct vb_count_facts c, mine = {0};

    for (uint32_t i = 0; i < PDS; i++)
        mine.pds += w->pd[i].number != 0;
    for (uint32_t i = 0; i < CQS; i++)
        mine.cqs += w->cq[i].number != 0;
    for (uint32_t i = 0; i < SRQS; i++)
        mine.srqs += w->srq[i].number != 0;
    for (uint32_t i = 0; i < QPS; i++)
        mine.qps += w->qp[i].number != 0;
    vb_facts_count(w->dev, &c);
    assert_memory_equal(&c, &mine, sizeof c);
}

static void compare_others(struct walk *w)
{
    struct vb_pd_facts pds[PDS];
    struct vb_cq_facts cqs[CQS];
    struct vb_srq_facts srqs[SRQS];
    uint32_t at[3] = {0}, told[3] = {vb_facts_pds(w->dev, &at[0], pds, PDS),
                                     vb_facts_cqs(w->dev, &at[1], cqs, CQS),
                                     vb_facts_srqs(w->dev, &at[2], srqs, SRQS)};

    for (uint32_t i = 0; i < PDS; i++)
        for (uint32_t k = 0; k < told[0]; k++)
            if (pds[k].pd == w->pd[i].number)
                assert_int_equal(pds[k].users, users_of_pd(w, i));
    for (uint32_t i = 0; i < CQS; i++)
        for (uint32_t k = 0; k < told[1]; k++)
            if (cqs[k].cqn == w->cq[i].number)
                assert_true(cqs[k].users == users_of_cq(w, i) &&
                            cqs[k].entries == w->cq[i].entries &&
                            cqs[k].produced == w->cq[i].start && !cqs[k].overrun);
    for (uint32_t i = 0; i < SRQS; i++)
        for (uint32_t k = 0; k < told[2]; k++) {
            const struct srq *s = &w->srq[i];
            if (srqs[k].srqn == s->number)
                assert_true(srqs[k].users == users_of_srq(w, i) &&
                            srqs[k].pd == w->pd[s->pd].number && srqs[k].entries == s->entries &&
                            srqs[k].limit == s->limit && srqs[k].xrc == s->xrc &&
                            srqs[k].cqn == (s->cq ? w->cq[s->cq - 1].number : 0));
        }
}

static void run(uint64_t seed, uint32_t pus)
{
    static struct walk w;
    const struct vb_dev_opts opts = {.pus = pus, .seed = seed};

    w = (struct walk){.dev = vb_dev_create(&opts), .prng = {.state = seed}, .pus = pus};
    assert_non_null(w.dev);
    for (uint32_t i = 0; i < STEPS; i++) {
        switch (below(&w, 20)) {
        case 0: step_pd(&w); break;
        case 1:
        case 2: step_cq(&w); break;
        case 3: step_srq(&w); break;
        case 4: step_program(&w); break;
        default: step_qp(&w); break;
        }
        if (i % 16 == 0) {
            compare_counts(&w);
            compare_qps(&w);
            compare_others(&w);
        }
    }
    vb_dev_destroy(w.dev);
}

static void test_walks(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        run(seed, 1u << (seed - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
