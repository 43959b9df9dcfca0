// SPDX-License-Identifier: Apache-2.0
// Cross-channel work, rule by rule: how far SEND_EN opens, what WAIT counts, who may do it, and
// what becomes of queues that wait when something goes away.
#include "loop_rig.h"

#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct loop_opts managed = {.managed = true}, plain = {.blocks = 0};

// A managed queue with so many NOPs, and one that opens it.
struct pair {
    struct loop_rig rig;
    struct loop_queue *a, *b;
};

static void pair_open(struct pair *p, uint32_t units, uint32_t nops)
{
    loop_open(&p->rig, units);
    p->a = loop_queue(&p->rig, &plain);
    p->b = loop_queue(&p->rig, &(struct loop_opts){.managed = true, .unit = units - 1});
    for (uint32_t i = 0; i < nops; i++)
        loop_put(p->b, loop_nop());
}

static void open_to(struct pair *p, uint32_t index)
{
    loop_put(p->a, loop_enable(p->b, index));
    loop_doorbell(p->a);
    loop_run(&p->rig);
}

// ---- SEND_EN

static void test_enable_is_exclusive_and_absolute(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, 1, 8);
    open_to(&p, 2);
    assert_int_equal(loop_count(&p.b->cq, NULL), 2);
    open_to(&p, 3);
    assert_int_equal(loop_count(&p.b->cq, NULL), 1);
    open_to(&p, 0x10005); // 16 bits of it count
    assert_int_equal(loop_count(&p.b->cq, NULL), 2);
    assert_int_equal(loop_count(&p.a->cq, NULL), 3);
    loop_close(&p.rig);
}

static void test_enable_never_goes_back(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, 1, 8);
    loop_put(p.a, loop_enable(p.b, 5));
    loop_put(p.a, loop_enable(p.b, 2));
    loop_put(p.a, loop_enable(p.b, 5));
    open_to(&p, 1);
    assert_int_equal(loop_count(&p.b->cq, NULL), 5);
    open_to(&p, 6);
    assert_int_equal(loop_count(&p.b->cq, NULL), 1);
    loop_close(&p.rig);
}

static void test_enable_counts_blocks(void **state)
{
    struct pair p;
    struct vb_code wide;

    (void)state;
    pair_open(&p, 1, 0);
    wide = (struct vb_code){.opcode = VB_WQE_READ,
                            .fm_ce_se = VB_WQE_CE_ALWAYS,
                            .raddr = (uintptr_t)p.rig.memory,
                            .rkey = p.rig.key,
                            .num_sge = 3};
    for (uint32_t i = 0; i < 3; i++)
        wide.sge[i] = (struct vb_code_sge){(uintptr_t)p.rig.memory + 64 + i, p.rig.key, 1};
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(loop_put(p.b, wide), 2 * i);
    open_to(&p, 4);
    assert_int_equal(loop_count(&p.b->cq, NULL), 2);
    loop_close(&p.rig);
}

// A ring of one block, opened for 16384 of them: it goes round. Half a round is the limit.
static void test_enable_past_the_ring(void **state)
{
    struct pair p;
    struct loop_queue *small;

    (void)state;
    pair_open(&p, 1, 0);
    small = loop_queue(&p.rig, &(struct loop_opts){.managed = true, .blocks = 1});
    loop_put(small, loop_count_up(&p.rig, 0));
    loop_put(p.a, loop_enable(small, 32768)); // neither ahead nor behind: nothing
    loop_doorbell(p.a);
    loop_run(&p.rig);
    assert_int_equal(loop_word(&p.rig, 0), 0);
    for (uint32_t i = 1; i <= 6; i++) {
        loop_put(p.a, loop_enable(small, 16384 * i));
        loop_doorbell(p.a);
        loop_run(&p.rig);
        assert_int_equal(loop_word(&p.rig, 0), 16384 * i);
    }
    loop_put(p.a, loop_enable(small, 32768 + 32769)); // of 32768: behind by 32767
    loop_doorbell(p.a);
    loop_run(&p.rig);
    assert_int_equal(loop_word(&p.rig, 0), 16384 * 6);
    loop_close(&p.rig);
}

// What is opened would only be flushed, and count for those who wait: a program would never rest.
static void test_enable_opens_nothing_of_a_failed_queue(void **state)
{
    struct pair p;
    uint8_t bad = 0;

    (void)state;
    for (uint32_t units = 1; units <= 2; units++) {
        pair_open(&p, units, 8);
        open_to(&p, 2);
        assert_int_equal(loop_count(&p.b->cq, NULL), 2);
        const struct vb_qpc_mods fails = {.state = VB_QPS_ERR};
        assert_int_equal(vb_dev_qp_modify(p.rig.dev, p.b->qpn, &fails), 0);
        open_to(&p, 6);
        assert_int_equal(loop_count(&p.b->cq, &bad), 0);
        assert_int_equal(loop_count(&p.a->cq, NULL), 2); // the one who opens is not to blame
        loop_close(&p.rig);
    }
}

// Makes a queue pair whose receives are managed, up to INIT.
static uint32_t make_managed_recv(struct pair *p, uint8_t rings[3 * VB_WQEBB_BYTES],
                                  uint32_t dbrec[2])
{
    const struct vb_qpc_attr attr = {.pd = p->rig.pd,
                                     .send_cqn = p->b->cq.cqn,
                                     .recv_cqn = p->b->cq.cqn,
                                     .sq_ring = rings,
                                     .sq_blocks = 1,
                                     .rq_ring = rings + VB_WQEBB_BYTES,
                                     .rq_entries = 8,
                                     .rq_stride_bytes = 16,
                                     .dbrec = dbrec,
                                     .cross_channel = true,
                                     .managed_recv = true};
    uint32_t qpn;

    assert_int_equal(vb_dev_qp_create(p->rig.dev, &attr, &qpn), 0);
    const struct vb_qpc_mods init = {.state = VB_QPS_INIT};
    assert_int_equal(vb_dev_qp_modify(p->rig.dev, qpn, &init), 0);
    return qpn;
}

static uint64_t open_receives(struct pair *p, uint32_t qpn, uint32_t index)
{
    struct vb_code enable = loop_enable(p->a, index);
    struct vb_qp_progress progress;

    enable.opcode = VB_WQE_RECV_EN;
    enable.object = qpn;
    loop_put(p->a, enable);
    loop_doorbell(p->a);
    loop_run(&p->rig);
    assert_int_equal(loop_count(&p->a->cq, NULL), 1);
    assert_int_equal(vb_dev_qp_progress(p->rig.dev, qpn, &progress), 0);
    return progress.recv_open;
}

// The same for receives.
static void test_enable_opens_no_receive_of_a_failed_queue(void **state)
{
    _Alignas(64) uint8_t rings[3 * VB_WQEBB_BYTES] = {0};
    uint32_t dbrec[2] = {0};
    struct pair p;

    (void)state;
    pair_open(&p, 1, 0);
    uint32_t qpn = make_managed_recv(&p, rings, dbrec);
    assert_int_equal(open_receives(&p, qpn, 2), 2);
    const struct vb_qpc_mods fails = {.state = VB_QPS_ERR};
    assert_int_equal(vb_dev_qp_modify(p.rig.dev, qpn, &fails), 0);
    assert_int_equal(open_receives(&p, qpn, 6), 2);
    loop_close(&p.rig);
}

static void test_counters_wrap(void **state)
{
    struct loop_rig r;
    struct loop_queue *a, *b;

    (void)state;
    loop_open(&r, 1);
    a = loop_queue(&r, &plain);
    b = loop_queue(
        &r, &(struct loop_opts){.managed = true, .start = 65536 * 3 - 64, .cq_entries = 128});
    for (uint32_t i = 0; i < 64; i++)
        loop_put(b, loop_nop());
    loop_put(a, loop_enable(b, 65536 - 1));
    loop_put(a, loop_enable(b, 3));
    loop_doorbell(a);
    loop_run(&r);
    assert_int_equal(loop_count(&b->cq, NULL), 67);
    struct vb_qp_progress progress;
    assert_int_equal(vb_dev_qp_progress(r.dev, b->qpn, &progress), 0);
    assert_int_equal(progress.retired, 65536 * 3 + 3);
    loop_close(&r);
}

static void test_managed_runs_only_when_opened(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, 1, 4);
    vb_doorbell_ring(vb_dev_doorbells(p.rig.dev), p.b->qpn); // but the record says nothing
    loop_run(&p.rig);
    assert_int_equal(loop_count(&p.b->cq, NULL), 0);
    loop_doorbell(p.b); // a driver may ring, too
    loop_run(&p.rig);
    assert_int_equal(loop_count(&p.b->cq, NULL), 4);
    loop_put(p.b, loop_nop());
    loop_put(p.b, loop_nop());
    open_to(&p, 5);
    assert_int_equal(loop_count(&p.b->cq, NULL), 1);
    loop_close(&p.rig);
}

// The enable of its own queue counts before the next entry is fetched.
// Connects the queue with a peer that answers nothing.
static void connect_away(struct loop_queue *q)
{
    struct vb_qpc_mods mods = {.dest_qpn = 5,
                               .mtu_bytes = 1024,
                               .timeout = 10,
                               .retry_cnt = 7,
                               .rnr_retry = 7,
                               .local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
                               .remote = {{[10] = 0xff, 0xff, 10, 0, 0, 2}},
                               .src_port = 4791};

    for (mods.state = VB_QPS_RESET; mods.state <= VB_QPS_RTS; mods.state++)
        assert_int_equal(vb_dev_qp_modify(q->rig->dev, q->qpn, &mods), 0);
}

// How many frames have left since the last time.
static uint32_t frames_sent(struct vb_pu *pu)
{
    struct vb_txq *txq = vb_pu_txq(pu);
    uint32_t sent = txq->count - txq->taken;

    txq->taken = txq->count;
    return sent;
}

// What is opened while a queue repeats a lost packet is sent, too.
static void test_opened_while_it_repeats(void **state)
{
    const uint8_t bytes[8] = {0};

    (void)state;
    for (uint32_t units = 1; units <= 2; units++) {
        struct pair p;
        pair_open(&p, units, 0);
        struct vb_pu *pu = vb_dev_pu_at(p.rig.dev, units - 1);
        connect_away(p.b);
        for (uint32_t i = 0; i < 2; i++)
            loop_put(p.b, loop_write(p.rig.memory, p.rig.key, bytes, sizeof bytes));
        open_to(&p, 1);
        assert_int_equal(frames_sent(pu), 1);
        p.rig.now_ns = vb_pu_deadline(pu);
        loop_run(&p.rig);
        assert_int_equal(frames_sent(pu), 1);
        open_to(&p, 2);
        assert_int_equal(frames_sent(pu), 1);
        loop_close(&p.rig);
    }
}

static void test_opens_itself(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &managed);
    loop_put(q, loop_enable(q, 3));
    loop_put(q, loop_count_up(&r, 0));
    loop_put(q, loop_enable(q, 4));
    loop_put(q, loop_count_up(&r, 0));
    loop_put(q, loop_count_up(&r, 0));
    q->dbrec[VB_DBREC_SQ] = htobe32(1);
    vb_doorbell_ring(vb_dev_doorbells(r.dev), q->qpn);
    loop_run(&r);
    assert_int_equal(loop_count(&q->cq, NULL), 4);
    assert_int_equal(loop_word(&r, 0), 2);
    loop_close(&r);
}

static void refuses(struct loop_rig *r, struct loop_queue *a, struct vb_code code)
{
    uint8_t bad;

    loop_put(a, code);
    loop_doorbell(a);
    loop_run(r);
    assert_int_equal(loop_count(&a->cq, &bad), 0);
    assert_int_equal(bad, VB_SYN_LOCAL_QP_OP);
}

static void test_enable_needs_a_managed_queue_of_the_domain(void **state)
{
    struct loop_rig r;
    struct loop_queue *open, *stranger;
    struct vb_code none;
    uint32_t pd;

    (void)state;
    loop_open(&r, 1);
    assert_int_equal(vb_dev_pd_create(r.dev, &pd), 0);
    open = loop_queue(&r, &plain);
    stranger = loop_queue(&r, &(struct loop_opts){.managed = true, .pd = pd});
    loop_put(stranger, loop_nop());
    refuses(&r, loop_queue(&r, &plain), loop_enable(open, 1));
    refuses(&r, loop_queue(&r, &plain), loop_enable(stranger, 1));
    none = loop_enable(open, 1);
    none.object = 0x123;
    refuses(&r, loop_queue(&r, &plain), none);
    none.opcode = VB_WQE_RECV_EN;
    none.object = open->qpn;
    refuses(&r, loop_queue(&r, &plain), none);
    assert_int_equal(loop_count(&stranger->cq, NULL), 0);
    loop_close(&r);
}

static void test_only_cross_channel_queues(void **state)
{
    struct loop_rig r;
    struct loop_cq cq;

    (void)state;
    loop_open(&r, 1);
    refuses(&r, loop_queue(&r, &(struct loop_opts){.plain = true}),
            (struct vb_code){.opcode = VB_WQE_WAIT, .object = 1});
    refuses(&r, loop_queue(&r, &(struct loop_opts){.plain = true}),
            (struct vb_code){.opcode = VB_WQE_SEND_EN, .object = 1});
    cq.cqn = 999;
    refuses(&r, loop_queue(&r, &plain), loop_wait(&cq, 0));
    loop_close(&r);
}

// ---- WAIT

// Queue `a` waits for entry `index` of b's completions and then counts.
static void wait_for(struct pair *p, uint32_t index)
{
    loop_put(p->a, loop_wait(&p->b->cq, index));
    loop_doorbell(p->a);
    loop_run(&p->rig);
}

static void complete_one(struct pair *p)
{
    loop_put(p->b, loop_nop());
    loop_doorbell(p->b);
    loop_run(&p->rig);
}

static void test_wait_counts_from_zero(void **state)
{
    (void)state;
    for (uint32_t units = 1; units <= 2; units++) {
        struct pair p;
        pair_open(&p, units, 0);
        wait_for(&p, 0);
        assert_int_equal(loop_count(&p.a->cq, NULL), 0);
        complete_one(&p);
        assert_int_equal(loop_count(&p.a->cq, NULL), 1);
        wait_for(&p, 1);
        assert_int_equal(loop_count(&p.a->cq, NULL), 0);
        wait_for(&p, 3); // behind the other
        complete_one(&p);
        assert_int_equal(loop_count(&p.a->cq, NULL), 1);
        complete_one(&p); // woken in vain: it waits on
        assert_int_equal(loop_count(&p.a->cq, NULL), 0);
        complete_one(&p);
        assert_int_equal(loop_count(&p.a->cq, NULL), 1);
        loop_close(&p.rig);
    }
}

// Nothing is consumed: any number of WAITs, of any queue, pass by the same entry.
static void test_wait_takes_nothing(void **state)
{
    struct pair p;
    struct loop_queue *other;

    (void)state;
    pair_open(&p, 1, 0);
    other = loop_queue(&p.rig, &plain);
    loop_put(other, loop_wait(&p.b->cq, 0));
    loop_put(other, loop_wait(&p.b->cq, 0));
    loop_doorbell(other);
    wait_for(&p, 0);
    complete_one(&p);
    wait_for(&p, 0);
    wait_for(&p, 0);
    assert_int_equal(loop_count(&p.a->cq, NULL), 3);
    assert_int_equal(loop_count(&other->cq, NULL), 2);
    loop_close(&p.rig);
}

// 24 bits count, across the end of the counters and past what the ring holds.
static void test_wait_compares_24_bits(void **state)
{
    struct pair p;

    (void)state;
    loop_open(&p.rig, 1);
    p.a = loop_queue(&p.rig, &plain);
    p.b = loop_queue(&p.rig, &(struct loop_opts){.cq_entries = 4, .cq_start = (1u << 24) - 2});
    wait_for(&p, 0xab000000); // the third from now
    complete_one(&p);
    complete_one(&p);
    assert_int_equal(loop_count(&p.a->cq, NULL), 0);
    complete_one(&p);
    assert_int_equal(loop_count(&p.a->cq, NULL), 1);
    wait_for(&p, 20); // long after the ring of four was full
    for (uint32_t i = 0; i < 19; i++)
        complete_one(&p);
    assert_int_equal(loop_count(&p.a->cq, NULL), 0);
    complete_one(&p);
    assert_int_equal(loop_count(&p.a->cq, NULL), 1);
    loop_close(&p.rig);
}

static void test_only_what_completes_counts(void **state)
{
    struct pair p;
    struct vb_code quiet = loop_nop();

    (void)state;
    pair_open(&p, 1, 0);
    wait_for(&p, 0);
    for (uint8_t ce = 0; ce < 2; ce++) { // not at all, and only on error
        quiet.fm_ce_se = (uint8_t)(ce << 2);
        loop_put(p.b, quiet);
    }
    loop_doorbell(p.b);
    loop_run(&p.rig);
    assert_int_equal(loop_count(&p.a->cq, NULL), 0);
    assert_int_equal(loop_count(&p.b->cq, NULL), 0);
    complete_one(&p);
    assert_int_equal(loop_count(&p.a->cq, NULL), 1);
    loop_close(&p.rig);
}

static void test_errors_count(void **state)
{
    struct pair p;
    uint8_t bad;

    (void)state;
    pair_open(&p, 1, 0);
    wait_for(&p, 1);
    loop_put(p.b, loop_write(p.rig.memory, p.rig.key + 256, "x", 1));
    complete_one(&p); // flushed
    assert_int_equal(loop_count(&p.b->cq, &bad), 0);
    assert_true(bad != 0);
    assert_int_equal(loop_count(&p.a->cq, NULL), 1);
    loop_close(&p.rig);
}

// ---- two units

static void test_across_units(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, 2, 64);
    assert_int_not_equal(p.a->qpn & 1, p.b->qpn & 1);
    for (uint32_t i = 0; i < 20; i++) {
        loop_put(p.a, loop_enable(p.b, i + 1));
        loop_put(p.a, loop_wait(&p.b->cq, i));
    }
    loop_doorbell(p.a);
    loop_run(&p.rig);
    assert_int_equal(loop_count(&p.a->cq, NULL), 40);
    assert_int_equal(loop_count(&p.b->cq, NULL), 20);
    loop_close(&p.rig);
}

// ---- things that go away

static void set_state(struct loop_queue *q, enum vb_qp_state state)
{
    assert_int_equal(vb_dev_qp_modify(q->rig->dev, q->qpn, &(struct vb_qpc_mods){.state = state}),
                     0);
}

static void test_reset_while_it_waits(void **state)
{
    (void)state;
    for (uint32_t units = 1; units <= 2; units++) {
        struct pair p;
        pair_open(&p, units, 0);
        wait_for(&p, 0);
        set_state(p.a, VB_QPS_RESET);
        complete_one(&p);
        assert_int_equal(loop_count(&p.a->cq, NULL), 0);
        p.a->posted = 0;
        p.a->dbrec[VB_DBREC_SQ] = 0;
        loop_connect(p.a);
        wait_for(&p, 1); // a new life
        assert_int_equal(loop_count(&p.a->cq, NULL), 0);
        complete_one(&p);
        assert_int_equal(loop_count(&p.a->cq, NULL), 1);
        loop_close(&p.rig);
    }
}

static void test_destroyed_while_it_waits(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, 1, 0);
    wait_for(&p, 0);
    loop_destroy(p.a);
    complete_one(&p);
    assert_int_equal(loop_count(&p.b->cq, NULL), 1);
    loop_close(&p.rig);
}

static void test_completion_queue_goes(void **state)
{
    struct pair p;
    uint8_t bad;

    (void)state;
    pair_open(&p, 1, 0);
    wait_for(&p, 5);
    loop_destroy(p.b);
    loop_run(&p.rig);
    assert_int_equal(loop_count(&p.a->cq, &bad), 0);
    assert_int_equal(bad, VB_SYN_LOCAL_QP_OP);
    loop_close(&p.rig);
}

// It was woken, and the completion queue goes before it looks.
static void test_completion_queue_goes_under_the_woken(void **state)
{
    struct pair p;
    uint8_t bad;

    (void)state;
    pair_open(&p, 2, 0);
    wait_for(&p, 5);
    loop_put(p.b, loop_nop());
    loop_doorbell(p.b);
    for (int i = 0; i < 8; i++) // only the unit of the one that completes
        vb_pu_step(vb_dev_pu_at(p.rig.dev, p.b->qpn & 1), p.rig.now_ns);
    assert_int_equal(loop_count(&p.b->cq, NULL), 1);
    loop_destroy(p.b);
    loop_run(&p.rig);
    assert_int_equal(loop_count(&p.a->cq, &bad), 0);
    assert_int_equal(bad, VB_SYN_LOCAL_QP_OP);
    loop_close(&p.rig);
}

// A new life begins closed.
static void test_reset_closes(void **state)
{
    struct pair p;

    (void)state;
    pair_open(&p, 1, 8);
    open_to(&p, 3);
    assert_int_equal(loop_count(&p.b->cq, NULL), 3);
    set_state(p.b, VB_QPS_RESET);
    loop_connect(p.b);
    vb_doorbell_ring(vb_dev_doorbells(p.rig.dev), p.b->qpn);
    loop_run(&p.rig);
    assert_int_equal(loop_count(&p.b->cq, NULL), 0);
    open_to(&p, 2);
    assert_int_equal(loop_count(&p.b->cq, NULL), 2);
    loop_close(&p.rig);
}

// Of a managed queue only what was opened is given back.
static void test_flush_of_what_was_opened(void **state)
{
    struct pair p;
    struct vb_cqe cqe;

    (void)state;
    pair_open(&p, 1, 0);
    loop_put(p.b, loop_wait(&p.a->cq, 100));
    for (uint32_t i = 0; i < 5; i++)
        loop_put(p.b, loop_nop());
    open_to(&p, 3);
    set_state(p.b, VB_QPS_ERR);
    loop_run(&p.rig);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(loop_take(&p.b->cq, &cqe));
        assert_int_equal(cqe.syndrome, VB_SYN_FLUSH);
        assert_int_equal(be16toh(cqe.wqe_counter), i);
    }
    assert_false(loop_take(&p.b->cq, &cqe));
    open_to(&p, 4); // a program opens nothing of it any more, its host may
    assert_false(loop_take(&p.b->cq, &cqe));
    loop_doorbell(p.b);
    loop_run(&p.rig);
    for (uint32_t i = 3; i < 6; i++) {
        assert_true(loop_take(&p.b->cq, &cqe));
        assert_int_equal(cqe.syndrome, VB_SYN_FLUSH);
    }
    loop_close(&p.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_enable_is_exclusive_and_absolute),
        cmocka_unit_test(test_enable_never_goes_back),
        cmocka_unit_test(test_enable_counts_blocks),
        cmocka_unit_test(test_enable_past_the_ring),
        cmocka_unit_test(test_enable_opens_nothing_of_a_failed_queue),
        cmocka_unit_test(test_enable_opens_no_receive_of_a_failed_queue),
        cmocka_unit_test(test_counters_wrap),
        cmocka_unit_test(test_managed_runs_only_when_opened),
        cmocka_unit_test(test_opened_while_it_repeats),
        cmocka_unit_test(test_opens_itself),
        cmocka_unit_test(test_enable_needs_a_managed_queue_of_the_domain),
        cmocka_unit_test(test_only_cross_channel_queues),
        cmocka_unit_test(test_wait_counts_from_zero),
        cmocka_unit_test(test_wait_takes_nothing),
        cmocka_unit_test(test_wait_compares_24_bits),
        cmocka_unit_test(test_only_what_completes_counts),
        cmocka_unit_test(test_errors_count),
        cmocka_unit_test(test_across_units),
        cmocka_unit_test(test_reset_while_it_waits),
        cmocka_unit_test(test_destroyed_while_it_waits),
        cmocka_unit_test(test_completion_queue_goes),
        cmocka_unit_test(test_completion_queue_goes_under_the_woken),
        cmocka_unit_test(test_reset_closes),
        cmocka_unit_test(test_flush_of_what_was_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
