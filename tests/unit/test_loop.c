// SPDX-License-Identifier: Apache-2.0
// Queues that are connected with themselves: what is executed is the copy that was fetched, what
// the operations do to memory, and what limits there are.
#include "loop_rig.h"

#include "base/bytes.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct loop_opts plain = {.blocks = 0};

static void run_all(struct loop_rig *r, struct loop_queue *q)
{
    loop_doorbell(q);
    loop_run(r);
}

// ---- snapshots

// The first entry changes the second, which counts up: by the bytes given.
static uint64_t count_after(uint32_t depth, uint32_t at, const void *bytes, uint32_t len,
                            uint32_t *completions)
{
    struct loop_rig r;
    struct loop_queue *q;

    loop_open(&r, 1);
    q = loop_queue(&r, &(struct loop_opts){.depth = depth});
    loop_put(q, loop_write(loop_block(q, 1) + at, q->key, bytes, len));
    loop_put(q, loop_count_up(&r, 0));
    loop_put(q, loop_nop());
    run_all(&r, q);
    *completions = loop_count(&q->cq, NULL);
    uint64_t counted = loop_word(&r, 0);
    loop_close(&r);
    return counted;
}

static void test_the_fetched_copy_is_executed(void **state)
{
    static const uint8_t nop = VB_WQE_NOP, add[8] = {0, 0, 0, 0, 0, 0, 0, 9}, quiet = 0;
    uint32_t n;

    (void)state;
    // Opcode, argument, flags: fetched before, they stay; fetched after, they are the new ones.
    assert_int_equal(count_after(16, 3, &nop, 1, &n), 1);
    assert_int_equal(count_after(1, 3, &nop, 1, &n), 0);
    assert_int_equal(count_after(16, 32, add, 8, &n), 1);
    assert_int_equal(count_after(1, 32, add, 8, &n), 9);
    count_after(16, 11, &quiet, 1, &n);
    assert_int_equal(n, 3);
    count_after(1, 11, &quiet, 1, &n);
    assert_int_equal(n, 2);
}

// The length, too: the second entry becomes one of two blocks, which skips the third.
static void test_the_fetched_length_is_the_stride(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 16; depth += 15) {
        struct loop_rig r;
        struct loop_queue *q;
        const uint8_t ds = 8;
        loop_open(&r, 1);
        q = loop_queue(&r, &(struct loop_opts){.depth = depth});
        loop_put(q, loop_write(loop_block(q, 1) + 7, q->key, &ds, 1));
        loop_put(q, loop_nop());
        loop_put(q, loop_count_up(&r, 0));
        loop_put(q, loop_count_up(&r, 8));
        run_all(&r, q);
        assert_int_equal(loop_word(&r, 0), depth == 1 ? 0 : 1);
        assert_int_equal(loop_word(&r, 8), 1);
        loop_close(&r);
    }
}

// A managed queue is fetched when it is opened, not before.
static void test_fetched_when_opened(void **state)
{
    struct loop_rig r;
    struct loop_queue *w, *q;
    const uint8_t add[8] = {0, 0, 0, 0, 0, 0, 0, 9};

    (void)state;
    loop_open(&r, 1);
    w = loop_queue(&r, &plain);
    q = loop_queue(&r, &(struct loop_opts){.managed = true});
    loop_put(q, loop_count_up(&r, 0));
    loop_put(q, loop_wait(&w->cq, 3)); // then the next one has been fetched
    loop_put(q, loop_count_up(&r, 8));
    loop_put(w, loop_write(loop_block(q, 0) + 32, q->key, add, 8));
    loop_put(w, loop_enable(q, 3));
    run_all(&r, w);
    loop_put(w, loop_write(loop_block(q, 2) + 32, q->key, add, 8));
    loop_put(w, loop_nop());
    run_all(&r, w);
    assert_int_equal(loop_word(&r, 0), 9);
    assert_int_equal(loop_word(&r, 8), 1);
    loop_close(&r);
}

// A READ of five blocks: one byte to each of 16 places.
static struct vb_code long_read(struct loop_rig *r, uint32_t from, uint32_t to)
{
    struct vb_code c = {.opcode = VB_WQE_READ,
                        .fm_ce_se = VB_WQE_CE_ALWAYS,
                        .raddr = (uintptr_t)r->memory + from,
                        .rkey = r->key,
                        .num_sge = VB_MAX_SGE};

    for (uint32_t i = 0; i < VB_MAX_SGE; i++)
        c.sge[i] = (struct vb_code_sge){(uintptr_t)r->memory + to + 15 - i, r->key, 1};
    return c;
}

static void expect_read(const struct loop_rig *r, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < VB_MAX_SGE; i++)
        assert_int_equal(r->memory[to + 15 - i], r->memory[from + i]);
}

// Over the end of the ring and of the copies.
static void test_long_entries_wrap(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &(struct loop_opts){.blocks = 16});
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < VB_MAX_SGE; i++)
            r.memory[i] = (uint8_t)(round * 16 + i);
        loop_put(q, long_read(&r, 0, 1024));
        run_all(&r, q);
        assert_int_equal(loop_count(&q->cq, NULL), 1);
        expect_read(&r, 0, 1024);
    }
    loop_close(&r);
}

// More of them than there is room for copies: they are fetched later.
static void test_no_room_for_copies(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &(struct loop_opts){.depth = 16, .blocks = 128});
    for (uint32_t i = 0; i < 1024; i++)
        r.memory[i] = (uint8_t)(i * 7);
    for (uint32_t i = 0; i < 24; i++)
        loop_put(q, long_read(&r, i * 16, 2048 + i * 16));
    run_all(&r, q);
    assert_int_equal(loop_count(&q->cq, NULL), 24);
    for (uint32_t i = 0; i < 24; i++)
        expect_read(&r, i * 16, 2048 + i * 16);
    loop_close(&r);
}

// ---- control segments

static void test_nop_skips_what_it_covers(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;
    struct vb_code nop = loop_nop();

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &plain);
    nop.ds = 4 * 3 - 1;
    loop_put(q, nop);
    loop_put(q, loop_count_up(&r, 0));
    loop_put(q, loop_count_up(&r, 0));
    loop_put(q, loop_count_up(&r, 8));
    run_all(&r, q);
    assert_int_equal(loop_count(&q->cq, NULL), 2);
    assert_int_equal(loop_word(&r, 0), 0);
    assert_int_equal(loop_word(&r, 8), 1);
    loop_close(&r);
}

static uint8_t syndrome_of(const struct loop_opts *opts, struct vb_code code)
{
    struct loop_rig r;
    struct loop_queue *q;
    uint8_t bad;

    loop_open(&r, 1);
    q = loop_queue(&r, opts);
    if (code.rkey == 0) {
        code.rkey = r.key;
        code.raddr += (uintptr_t)r.memory;
    }
    loop_put(q, code);
    run_all(&r, q);
    uint32_t good = loop_count(&q->cq, &bad);
    assert_int_equal(good, bad ? 0 : 1);
    loop_close(&r);
    return bad;
}

static void test_checks(void **state)
{
    static const struct loop_opts checked = {.checks = true};
    struct vb_code right = loop_nop(), idx = right, qpn = right, opmod = right;

    (void)state;
    idx.idx = 7;
    qpn.qpn = 0xabcdef;
    opmod.opmod = 0xee;
    assert_int_equal(syndrome_of(&checked, right), 0);
    assert_int_equal(syndrome_of(&checked, idx), VB_SYN_LOCAL_QP_OP);
    assert_int_equal(syndrome_of(&checked, qpn), VB_SYN_LOCAL_QP_OP);
    assert_int_equal(syndrome_of(&checked, opmod), VB_SYN_LOCAL_QP_OP);
    assert_int_equal(syndrome_of(&plain, idx), 0);
    assert_int_equal(syndrome_of(&plain, qpn), 0);
    assert_int_equal(syndrome_of(&plain, opmod), 0);
    // Of other operations it says what they do.
    assert_int_equal(syndrome_of(&plain, (struct vb_code){.opcode = VB_WQE_WRITE,
                                                          .opmod = 0xee,
                                                          .fm_ce_se = VB_WQE_CE_ALWAYS}),
                     VB_SYN_LOCAL_QP_OP);
    assert_int_equal(syndrome_of(&plain, (struct vb_code){.opcode = VB_WQE_READ, .opmod = 1}),
                     VB_SYN_LOCAL_QP_OP);
}

// A length of nothing, or of more than was posted.
static void test_wrong_lengths(void **state)
{
    struct vb_code beyond = loop_nop(), none = loop_nop();

    (void)state;
    beyond.ds = 8;
    none.ds = 0x40; // six bits of it count
    assert_int_equal(syndrome_of(&plain, beyond), VB_SYN_LOCAL_QP_OP);
    assert_int_equal(syndrome_of(&plain, none), VB_SYN_LOCAL_QP_OP);
}

// A completion names the entry's real place, not what it says about itself.
static void test_completion_names_the_place(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;
    struct vb_code nop = loop_nop();
    struct vb_cqe cqe;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &plain);
    nop.idx = 0x7777;
    loop_put(q, nop);
    loop_put(q, nop);
    run_all(&r, q);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(loop_take(&q->cq, &cqe));
        assert_int_equal(be16toh(cqe.wqe_counter), i);
        assert_int_equal(be32toh(cqe.sop_drop_qpn), q->qpn);
    }
    loop_close(&r);
}

// ---- operations

static struct vb_code atomic(struct loop_rig *r, enum vb_wqe_opcode opcode)
{
    struct vb_code c = loop_count_up(r, 0);
    c.opcode = (uint8_t)opcode;
    if (opcode == VB_WQE_MASKED_CS || opcode == VB_WQE_MASKED_FA)
        c.opmod = VB_WQE_OPMOD_MASKED8;
    c.sge[0].addr = (uintptr_t)r->memory + 8;
    return c;
}

static void test_compare_and_swap(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &plain);
    struct vb_code c = atomic(&r, VB_WQE_ATOMIC_CS);
    c.compare = 0x0102030405060708;
    c.swap_add = 0x1112131415161718;
    loop_set_word(&r, 0, 0x0102030405060709);
    loop_put(q, c);
    run_all(&r, q);
    assert_int_equal(loop_word(&r, 0), 0x0102030405060709);
    loop_set_word(&r, 0, c.compare);
    loop_put(q, c);
    run_all(&r, q);
    assert_int_equal(loop_word(&r, 0), c.swap_add);
    assert_int_equal(loop_word(&r, 8), c.compare);
    c = atomic(&r, VB_WQE_MASKED_CS);
    c.compare = 0x18;
    c.compare_mask = 0xff;
    c.swap_add = UINT64_MAX;
    c.swap_mask = 0xff00;
    loop_put(q, c);
    run_all(&r, q);
    assert_int_equal(loop_word(&r, 0), 0x111213141516ff18);
    assert_int_equal(loop_count(&q->cq, NULL), 3);
    loop_close(&r);
}

static void test_fields_do_not_carry(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &plain);
    struct vb_code c = atomic(&r, VB_WQE_MASKED_FA);
    c.swap_add = 0x0001000001000002; // 16 bits, 24, 24
    c.compare = 1ull << 63 | 1ull << 47 | 1ull << 23;
    loop_set_word(&r, 0, 0xffffffffffffffff);
    loop_put(q, c);
    run_all(&r, q);
    assert_int_equal(loop_word(&r, 0), 0x0000000000000001);
    loop_put(q, c);
    run_all(&r, q);
    assert_int_equal(loop_word(&r, 0), 0x0001000001000003);
    loop_close(&r);
}

static void put_record(struct loop_rig *r, uint32_t at, uint64_t value, uint64_t tag)
{
    vb_put_be64(r->memory + at, value);
    vb_put_be64(r->memory + at + 8, tag);
}

static void calculates(enum vb_wqe_calc op, uint64_t value, uint64_t tag)
{
    struct loop_rig r;
    struct loop_queue *q;

    loop_open(&r, 1);
    q = loop_queue(&r, &plain);
    put_record(&r, 64, 0x7000000000000001, 11);
    put_record(&r, 80, 0x8000000000000002, 22);
    put_record(&r, 96, 0x8000000000000002, 33);
    put_record(&r, 112, 0x0000000000000005, 44);
    struct vb_code c = {.opcode = VB_WQE_WRITE,
                        .opmod = (uint8_t)op,
                        .fm_ce_se = VB_WQE_CE_ALWAYS,
                        .raddr = (uintptr_t)r.memory,
                        .rkey = r.key,
                        .num_sge = 4};
    for (uint32_t i = 0; i < 4; i++)
        c.sge[i] = (struct vb_code_sge){(uintptr_t)r.memory + 64 + 16 * i, r.key, 16};
    loop_put(q, c);
    run_all(&r, q);
    assert_int_equal(loop_count(&q->cq, NULL), 1);
    assert_int_equal(vb_get_be64(r.memory), value);
    assert_int_equal(vb_get_be64(r.memory + 8), tag);
    loop_close(&r);
}

static void test_calc(void **state)
{
    (void)state;
    calculates(VB_WQE_CALC_ADD, 0x700000000000000a, 11);
    calculates(VB_WQE_CALC_MAX, 0x8000000000000002, 22);
    calculates(VB_WQE_CALC_MIN, 5, 44);
    calculates(VB_WQE_CALC_AND, 0, 11);
    calculates(VB_WQE_CALC_OR, 0xf000000000000007, 11);
    calculates(VB_WQE_CALC_XOR, 0x7000000000000004, 11);
}

// ---- limits

// An endless loop: others go on, and a poll returns.
static void test_endless_loop_starves_nobody(void **state)
{
    struct loop_rig r;
    struct loop_queue *loop, *other;

    (void)state;
    loop_open(&r, 1);
    loop = loop_queue(&r, &(struct loop_opts){.managed = true, .blocks = 1});
    other = loop_queue(&r, &plain);
    loop_put(loop, loop_count_up(&r, 0));
    loop->dbrec[VB_DBREC_SQ] = htobe32(32767);
    vb_doorbell_ring(vb_dev_doorbells(r.dev), loop->qpn);
    for (uint32_t i = 0; i < 10; i++)
        loop_put(other, loop_nop());
    assert_true(vb_pu_poll(vb_dev_pu(r.dev), 0) < 2000);
    loop_doorbell(other);
    assert_true(vb_pu_poll(vb_dev_pu(r.dev), 0) < 2000);
    assert_int_equal(loop_count(&other->cq, NULL), 10);
    assert_true(loop_word(&r, 0) < 1000);
    loop_close(&r);
}

static void test_rate(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;
    uint32_t done = 0;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &(struct loop_opts){.rate = 1000, .burst = 4});
    for (uint32_t i = 0; i < 20; i++)
        loop_put(q, loop_nop());
    run_all(&r, q);
    assert_int_equal(done += loop_count(&q->cq, NULL), 4);
    for (uint32_t ms = 1; ms <= 5; ms++) {
        r.now_ns = ms * 1000000ull + 10000; // the first came a little later than 0
        loop_run(&r);
        assert_int_equal(done += loop_count(&q->cq, NULL), 4 + ms);
    }
    r.now_ns = 100000000; // long enough to be full again, but not fuller
    loop_run(&r);
    assert_int_equal(done += loop_count(&q->cq, NULL), 13);
    loop_close(&r);
}

static void test_program_limit_and_audit(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;
    struct loop_cq audit = {.ring = NULL};
    uint32_t program;
    uint64_t executed;
    bool stopped;
    uint8_t bad;

    (void)state;
    loop_open(&r, 1);
    loop_cq_open(&r, &audit, 0, 16, 0);
    assert_int_equal(vb_dev_program_create(
                         r.dev,
                         &(struct vb_program_attr){.pd = r.pd, .limit = 5, .audit_cqn = audit.cqn},
                         &program),
                     0);
    q = loop_queue(&r, &(struct loop_opts){.program = program});
    struct vb_code c = loop_count_up(&r, 0);
    c.fm_ce_se = 0; // the owner sees it all the same
    for (uint32_t i = 0; i < 8; i++)
        loop_put(q, c);
    run_all(&r, q);
    assert_int_equal(loop_word(&r, 0), 5);
    assert_int_equal(loop_count(&audit, NULL), 5);
    assert_int_equal(loop_count(&q->cq, &bad), 0);
    assert_int_equal(bad, VB_SYN_LOCAL_QP_OP);
    assert_int_equal(vb_dev_program_query(r.dev, program, &executed, &stopped), 0);
    assert_int_equal(executed, 5);
    assert_true(stopped);
    loop_close(&r);
    free(audit.ring);
}

// An audited entry makes the same step as another one.
static void test_audit_leaves_the_record(void **state)
{
    struct loop_rig r;
    struct loop_cq audit = {.ring = NULL};
    uint32_t program, execs = 0, others = 0;

    (void)state;
    loop_open(&r, 1);
    loop_cq_open(&r, &audit, 0, 16, 0);
    assert_int_equal(
        vb_dev_program_create(r.dev, &(struct vb_program_attr){.pd = r.pd, .audit_cqn = audit.cqn},
                              &program),
        0);
    struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.program = program});
    for (uint32_t i = 0; i < 4; i++)
        loop_put(q, loop_count_up(&r, 0));
    loop_doorbell(q);
    for (;;) {
        struct vb_step step = vb_pu_step(vb_dev_pu(r.dev), 0);
        if (step.kind == VB_STEP_NONE)
            break;
        execs += step.kind == VB_STEP_EXEC && step.qpn == q->qpn && step.bytes == 8;
        others += step.kind == VB_STEP_COMPLETE && step.cqn == audit.cqn;
    }
    assert_int_equal(execs, 4);
    assert_int_equal(others, 0);
    assert_int_equal(loop_count(&audit, NULL), 4);
    loop_close(&r);
    free(audit.ring);
}

static void test_program_is_stopped(void **state)
{
    struct loop_rig r;
    struct loop_queue *q, *other;
    uint32_t program;
    enum vb_qp_state now;

    (void)state;
    loop_open(&r, 1);
    assert_int_equal(vb_dev_program_create(r.dev, &(struct vb_program_attr){.pd = r.pd}, &program),
                     0);
    q = loop_queue(&r, &(struct loop_opts){.program = program});
    other = loop_queue(&r, &plain);
    loop_put(q, loop_wait(&other->cq, 0));
    loop_put(q, loop_count_up(&r, 0));
    run_all(&r, q);
    assert_int_equal(vb_dev_program_destroy(r.dev, program), -EBUSY);
    assert_int_equal(vb_dev_program_stop(r.dev, program), 0);
    assert_int_equal(vb_dev_qp_state(r.dev, q->qpn, &now), 0);
    assert_int_equal(now, VB_QPS_ERR); // at once
    loop_put(other, loop_nop());
    run_all(&r, other);
    assert_int_equal(loop_word(&r, 0), 0);
    assert_int_equal(loop_count(&other->cq, NULL), 1);
    loop_close(&r);
}

// What was executed completes, even if the queue pair fails before it has.
static void test_what_is_done_completes(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;
    uint8_t bad = 0;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &plain);
    loop_put(q, loop_count_up(&r, 0));
    loop_put(q, loop_count_up(&r, 0));
    loop_doorbell(q);
    while (loop_word(&r, 0) == 0)
        vb_pu_step(vb_dev_pu(r.dev), r.now_ns);
    assert_int_equal(vb_dev_qp_modify(r.dev, q->qpn, &(struct vb_qpc_mods){.state = VB_QPS_ERR}),
                     0);
    loop_run(&r);
    assert_int_equal(loop_word(&r, 0), 1);
    assert_int_equal(loop_count(&q->cq, &bad), 1);
    assert_int_equal(bad, VB_SYN_FLUSH);
    loop_close(&r);
}

// No packet reaches a queue pair that is connected with itself, from its own address least of all.
static void test_hears_nobody(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;
    enum vb_qp_state now;
    uint8_t frame[32] = {[0] = 0x0c}; // READ request, which names memory by a key of 0
    const struct vb_rx_frame rx = {.data = frame,
                                   .head = frame,
                                   .len = sizeof frame,
                                   .src = {{[10] = 0xff, 0xff, 10, 0, 0, 1}}};

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &plain);
    frame[1] = 0x40;
    frame[2] = frame[3] = 0xff;
    vb_put_be24(frame + 5, q->qpn);
    frame[27] = 8;
    vb_pu_feed(vb_dev_pu(r.dev), &rx, 1);
    loop_run(&r);
    assert_int_equal(vb_pu_counters(vb_dev_pu(r.dev))->rx_stranger, 1);
    assert_int_equal(vb_dev_qp_state(r.dev, q->qpn, &now), 0);
    assert_int_equal(now, VB_QPS_RTS);
    loop_close(&r);
}

// A loop that is drained says so once, and begins nothing more.
static void test_draining_is_told_once(void **state)
{
    struct loop_rig r;
    struct vb_event e;

    (void)state;
    loop_open(&r, 1);
    struct loop_queue *q = loop_queue(&r, &plain);
    loop_put(q, loop_count_up(&r, 0));
    run_all(&r, q);
    assert_int_equal(vb_dev_qp_modify(r.dev, q->qpn, &(struct vb_qpc_mods){.state = VB_QPS_SQD}),
                     0);
    for (int i = 0; i < 3; i++) {
        loop_put(q, loop_count_up(&r, 0));
        run_all(&r, q);
    }
    assert_int_equal(loop_word(&r, 0), 1);
    assert_true(vb_pu_take_event(vb_dev_pu(r.dev), &e));
    assert_int_equal(e.kind, VB_EVENT_SQ_DRAINED);
    assert_int_equal(e.number, q->qpn);
    assert_false(vb_pu_take_event(vb_dev_pu(r.dev), &e));
    loop_close(&r);
}

static void test_nothing_inline(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;
    uint8_t bad = 0;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &plain);
    struct vb_code code = loop_write(r.memory, r.key, "", 1);
    uint64_t counter = loop_put(q, code);
    vb_put_be32(loop_block(q, counter) + 32, VB_WQE_INLINE);
    loop_put(q, loop_nop());
    run_all(&r, q);
    assert_int_equal(loop_count(&q->cq, &bad), 2);
    assert_int_equal(bad, 0);
    loop_close(&r);
}

// An entry that changes one behind it, which is opened while more than half of the depth is ahead.
static uint64_t count_unless_changed(bool stepwise)
{
    static const uint8_t nop = VB_WQE_NOP;
    struct loop_rig r;
    struct loop_queue *q;

    loop_open(&r, 1);
    q = loop_queue(&r, &(struct loop_opts){.managed = true, .depth = 8});
    loop_put(q, loop_enable(q, 10));
    loop_put(q,
             loop_write(loop_block(q, 6) + offsetof(struct vb_wqe_ctrl, opcode), q->key, &nop, 1));
    for (int i = 2; i < 6; i++)
        loop_put(q, loop_nop());
    loop_doorbell(q);
    loop_put(q, loop_count_up(&r, 0));
    for (int i = 7; i < 10; i++)
        loop_put(q, loop_nop());
    if (stepwise)
        loop_run(&r);
    else
        vb_pu_poll(vb_dev_pu(r.dev), r.now_ns);
    uint64_t counted = loop_word(&r, 0);
    loop_close(&r);
    return counted;
}

static void test_polls_make_the_same_steps(void **state)
{
    (void)state;
    assert_int_equal(count_unless_changed(true), count_unless_changed(false));
}

// Entries of a queue that ends, in a WAIT for nobody or on a full completion queue, behind so many.
static struct loop_queue *put_ending(struct loop_rig *r, uint32_t before, bool overruns)
{
    struct loop_queue *q =
        loop_queue(r, &(struct loop_opts){.strict = overruns, .cq_entries = overruns ? before : 0});

    for (uint32_t i = 0; i < before; i++)
        loop_put(q, loop_nop());
    loop_put(q, overruns ? loop_nop() : loop_wait(&q->cq, 1000));
    for (uint32_t i = 0; i < 4; i++)
        loop_put(q, loop_nop());
    loop_doorbell(q);
    return q;
}

// A poll counts what it did, as single steps would: not what it left undone.
static void test_polls_count_their_steps(void **state)
{
    (void)state;
    for (uint32_t overruns = 0; overruns < 2; overruns++) {
        struct loop_rig r;
        uint32_t steps = 0;
        loop_open(&r, 1);
        struct loop_queue *q = put_ending(&r, 4, overruns);
        while (vb_pu_step(vb_dev_pu(r.dev), 0).kind != VB_STEP_NONE)
            steps++;
        assert_int_equal(loop_count(&q->cq, NULL), 4);
        loop_close(&r);
        loop_open(&r, 1);
        q = put_ending(&r, 4, overruns);
        assert_int_equal(vb_pu_poll(vb_dev_pu(r.dev), 0), steps);
        assert_int_equal(loop_count(&q->cq, NULL), 4);
        loop_close(&r);
    }
}

// A managed queue with packets can be opened for many entries that make none.
static void test_entries_without_packets_end_polls(void **state)
{
    struct loop_rig r;
    struct loop_queue *q;

    (void)state;
    loop_open(&r, 1);
    q = loop_queue(&r, &(struct loop_opts){.managed = true, .plain = true, .blocks = 1});
    struct vb_code nop = loop_nop();
    nop.fm_ce_se = 0;
    loop_put(q, nop);
    q->dbrec[VB_DBREC_SQ] = htobe32(32767);
    vb_doorbell_ring(vb_dev_doorbells(r.dev), q->qpn);
    assert_true(vb_pu_poll(vb_dev_pu(r.dev), 0) < 2000);
    loop_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fetched_copy_is_executed),
        cmocka_unit_test(test_the_fetched_length_is_the_stride),
        cmocka_unit_test(test_fetched_when_opened),
        cmocka_unit_test(test_long_entries_wrap),
        cmocka_unit_test(test_no_room_for_copies),
        cmocka_unit_test(test_nop_skips_what_it_covers),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_wrong_lengths),
        cmocka_unit_test(test_completion_names_the_place),
        cmocka_unit_test(test_compare_and_swap),
        cmocka_unit_test(test_fields_do_not_carry),
        cmocka_unit_test(test_calc),
        cmocka_unit_test(test_endless_loop_starves_nobody),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_program_limit_and_audit),
        cmocka_unit_test(test_audit_leaves_the_record),
        cmocka_unit_test(test_program_is_stopped),
        cmocka_unit_test(test_what_is_done_completes),
        cmocka_unit_test(test_hears_nobody),
        cmocka_unit_test(test_draining_is_told_once),
        cmocka_unit_test(test_nothing_inline),
        cmocka_unit_test(test_polls_make_the_same_steps),
        cmocka_unit_test(test_polls_count_their_steps),
        cmocka_unit_test(test_entries_without_packets_end_polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
