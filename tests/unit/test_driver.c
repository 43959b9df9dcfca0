// SPDX-License-Identifier: Apache-2.0
// The driver's half of queues: what it writes, what it refuses, when a queue is full, and what
// becomes of completions.
#include "base/bytes.h"
#include "forge.h"
#include "host/driver.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    QPN = 0x001234
};

struct fixture {
    struct vb_driver_qp qp;
    struct vb_driver_cq cq;
    struct vb_doorbells bells;
};

static void init_qp(struct fixture *x, struct vb_qp_opts opts, uint64_t sq_start, uint64_t rq_start)
{
    vb_driver_qp_fini(&x->qp);
    assert_int_equal(vb_driver_qp_init(&x->qp, &opts, sq_start, rq_start), 0);
    x->qp.qpn = QPN;
    x->qp.doorbells = &x->bells;
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    init_qp(x,
            (struct vb_qp_opts){
                .send_depth = 8, .recv_depth = 8, .send_sge = 4, .recv_sge = 3, .inline_bytes = 60},
            0, 0);
    assert_int_equal(vb_driver_cq_init(&x->cq, 16, 0), 0);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    vb_driver_qp_fini(&x->qp);
    vb_driver_cq_fini(&x->cq);
    free(x);
    return 0;
}

static bool rung(struct fixture *x)
{
    return atomic_exchange(&x->bells.latest, 0) == QPN + 1;
}

static uint32_t record(const struct fixture *x, int which)
{
    return be32toh(x->qp.dbrec[which]);
}

// ---- entries

static void test_entries_look_like_connectx(void **state)
{
    struct fixture *x = *state;
    const struct vb_sge sge[2] = {{0x1122334455667788, 0x10, 0xaa}, {2, 3, 4}};
    const struct vb_send_wr wr = {.wr_id = 7,
                                  .sge = sge,
                                  .num_sge = 2,
                                  .opcode = VB_WR_WRITE,
                                  .flags = VB_WR_SIGNALED | VB_WR_FENCE | VB_WR_SOLICITED,
                                  .raddr = 0x0102030405060708,
                                  .rkey = 0x99};
    static const uint8_t want[64] = {
        0, 0, 0, 0x08, 0x00, 0x12, 0x34, 4,    0,    0,    0,    0x8a, 0,    0,    0,    0,
        1, 2, 3, 4,    5,    6,    7,    8,    0,    0,    0,    0x99, 0,    0,    0,    0,
        0, 0, 0, 0x10, 0,    0,    0,    0xaa, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
        0, 0, 0, 3,    0,    0,    0,    4,    0,    0,    0,    0,    0,    0,    0,    2};
    assert_int_equal(vb_driver_post_send(&x->qp, &wr, 1), 1);
    assert_memory_equal(x->qp.sq.ring, want, sizeof want);
    assert_int_equal(record(x, VB_DBREC_SQ), 1);
    assert_true(rung(x));

    const struct vb_recv_wr r = {.wr_id = 8, .sge = sge, .num_sge = 2};
    assert_int_equal(vb_driver_post_recv(&x->qp, &r, 1), 1);
    assert_memory_equal(x->qp.rq.ring, want + 32, 32);
    static const uint8_t end[16] = {[6] = 1};
    assert_memory_equal(x->qp.rq.ring + 32, end, 16);
    assert_int_equal(record(x, VB_DBREC_RQ), 1);
    assert_true(rung(x));
}

static void test_inline_wraps_the_ring_end(void **state)
{
    struct fixture *x = *state;
    const struct vb_qp_opts opts = {.send_depth = 4, .inline_bytes = 200}; // 16 blocks of 64 bytes
    uint8_t own[200];
    for (uint32_t i = 0; i < 200; i++)
        own[i] = (uint8_t)(i + 1);
    const struct vb_sge sge = {(uintptr_t)own, 200, 0};
    const struct vb_send_wr wr = {
        .sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND, .flags = VB_WR_INLINE};
    for (uint64_t start = 12; start < 16; start++) {
        init_qp(x, opts, start, 0);
        assert_int_equal(x->qp.sq.blocks, 16);
        assert_int_equal(vb_driver_post_send(&x->qp, &wr, 1), 1);
        assert_int_equal(x->qp.sq.pi, start + 4);
        assert_int_equal(vb_get_be32(x->qp.sq.ring + start * 64 + 16), 200 | VB_WQE_INLINE);
        for (uint64_t i = 0; i < 200; i++)
            assert_int_equal(x->qp.sq.ring[(start * 64 + 20 + i) % 1024], i + 1);
    }
}

// ---- refusals

static void refused(struct fixture *x, const struct vb_send_wr *wr)
{
    uint32_t before = record(x, VB_DBREC_SQ);
    assert_int_equal(vb_driver_post_send(&x->qp, wr, 1), -EINVAL);
    assert_int_equal(record(x, VB_DBREC_SQ), before);
    assert_false(rung(x));
}

static void test_malformed_requests_are_refused(void **state)
{
    struct fixture *x = *state;
    const uint8_t own[61] = {0};
    struct vb_sge sge[5] = {{(uintptr_t)own, 60, 0}};
    struct vb_send_wr wr = {.sge = sge, .num_sge = 5, .opcode = VB_WR_SEND};
    refused(x, &wr);
    wr.num_sge = 1;
    wr.opcode = VB_WR_OPCODES;
    refused(x, &wr);
    wr.opcode = (enum vb_wr_opcode) - 1;
    refused(x, &wr);
    wr.opcode = VB_WR_NOP;
    refused(x, &wr);
    wr.opcode = VB_WR_SEND;
    wr.flags = 1 << 4;
    refused(x, &wr);
    wr.flags = VB_WR_INLINE;
    assert_int_equal(vb_driver_post_send(&x->qp, &wr, 1), 1);
    assert_true(rung(x));
    sge[0].len = 61;
    refused(x, &wr);
    sge[0].len = 60;
    wr.opcode = VB_WR_READ;
    refused(x, &wr);
    const struct vb_recv_wr r = {.sge = sge, .num_sge = 4};
    assert_int_equal(vb_driver_post_recv(&x->qp, &r, 1), -EINVAL);
}

// 2 GiB in one entry cannot be said in a work-queue entry: the bit means inline data.
static void test_segments_of_two_gib_are_refused(void **state)
{
    struct fixture *x = *state;
    struct vb_sge sge[2] = {{0x1000, 0x7fffffff, 1}, {0x1000, 1, 1}};
    const struct vb_send_wr wr = {.sge = sge, .num_sge = 2, .opcode = VB_WR_SEND};
    assert_int_equal(vb_driver_post_send(&x->qp, &wr, 1), 1);
    assert_true(rung(x));
    for (int i = 0; i < 2; i++)
        for (uint32_t extra = 0; extra < 16; extra += 4) {
            sge[i].len = 0x80000000u + extra;
            refused(x, &wr);
            sge[i].len = 1;
        }
}

static void test_options_out_of_range(void **state)
{
    (void)state;
    struct vb_driver_qp qp;
    struct vb_driver_cq cq;
    static const struct vb_qp_opts bad[] = {
        {.send_depth = 0},
        {.send_depth = 8, .send_sge = 17},
        {.send_depth = 8, .recv_sge = 17},
        {.send_depth = 8, .inline_bytes = 1025},
        {.send_depth = 8, .inline_bytes = UINT32_MAX},
        {.send_depth = VB_SQ_BLOCKS_MAX + 1},
        {.send_depth = UINT32_MAX},
        {.send_depth = VB_SQ_BLOCKS_MAX, .send_sge = 16},
        {.send_depth = 8, .recv_depth = VB_RQ_ENTRIES_MAX + 1},
        {.send_depth = 8, .recv_depth = UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(vb_driver_qp_init(&qp, &bad[i], 0, 0), -EINVAL);
    const struct vb_qp_opts most = {
        .send_depth = VB_SQ_BLOCKS_MAX, .recv_depth = VB_RQ_ENTRIES_MAX, .recv_sge = 16};
    assert_int_equal(vb_driver_qp_init(&qp, &most, 0, 0), 0);
    vb_driver_qp_fini(&qp);
    assert_int_equal(vb_driver_cq_init(&cq, 0, 0), -EINVAL);
    assert_int_equal(vb_driver_cq_init(&cq, VB_CQ_ENTRIES_MAX + 1, 0), -EINVAL);
    assert_int_equal(vb_driver_cq_init(&cq, 5, 0), 0);
    assert_int_equal(cq.entries, 8);
    vb_driver_cq_fini(&cq);
}

// The longest inline payload that is granted must also work, in both kinds of message.
static void test_longest_inline_works(void **state)
{
    (void)state;
    struct vb_driver_qp qp;
    struct forge_opts o = forge_defaults();
    o.sges = 1;
    for (o.inline_bytes = 1024;; o.inline_bytes--) {
        const struct vb_qp_opts q = {.send_depth = 8, .inline_bytes = o.inline_bytes};
        if (vb_driver_qp_init(&qp, &q, 0, 0) == 0)
            break;
    }
    vb_driver_qp_fini(&qp);
    assert_true(o.inline_bytes >= 900);
    static const uint8_t own[1024];
    for (uint32_t len = o.inline_bytes - 20; len <= o.inline_bytes; len++)
        for (enum vb_wr_opcode op = VB_WR_SEND; op <= VB_WR_WRITE; op++) {
            struct forge *f = forge_open(&o);
            const struct vb_sge sge = {(uintptr_t)own, len, 0};
            const struct vb_send_wr wr = {
                .sge = &sge, .num_sge = 1, .opcode = op, .flags = VB_WR_INLINE};
            forge_post_send(f, &wr);
            forge_run(f);
            assert_int_equal(forge_state(f), VB_QPS_RTS);
            assert_int_equal(forge_sent(f, 0)->payload_len, len);
            forge_close(f);
        }
}

// ---- full queues

static void test_send_queue_fills(void **state)
{
    struct fixture *x = *state;
    // Eight requests of the largest kind, two blocks each; small ones fit twice as often.
    struct vb_sge sge[4] = {{0}};
    struct vb_send_wr wr[20];
    for (uint32_t i = 0; i < 20; i++)
        wr[i] = (struct vb_send_wr){.sge = sge, .num_sge = 4, .opcode = VB_WR_WRITE};
    assert_int_equal(x->qp.sq.blocks, 16);
    assert_int_equal(vb_driver_post_send(&x->qp, wr, 20), 8);
    assert_int_equal(record(x, VB_DBREC_SQ), 16);
    assert_true(rung(x));
    assert_int_equal(vb_driver_post_send(&x->qp, wr, 1), 0);
    assert_false(rung(x));
    x->qp.sq.ci = 1;
    assert_int_equal(vb_driver_post_send(&x->qp, wr, 1), 0); // one block is not enough
    wr[0].num_sge = 2;
    assert_int_equal(vb_driver_post_send(&x->qp, wr, 2), 1);
    assert_int_equal(vb_driver_post_send(&x->qp, wr, 0), 0);
}

static void test_a_list_stops_at_the_malformed_one(void **state)
{
    struct fixture *x = *state;
    struct vb_send_wr wr[3] = {{.opcode = VB_WR_SEND}, {.opcode = VB_WR_SEND, .flags = 99}, {0}};
    assert_int_equal(vb_driver_post_send(&x->qp, wr, 3), 1);
    struct vb_recv_wr r[3] = {{0}, {.num_sge = 9}, {0}};
    assert_int_equal(vb_driver_post_recv(&x->qp, r, 3), 1);
}

static void test_receive_queue_fills(void **state)
{
    struct fixture *x = *state;
    const struct vb_recv_wr r[10] = {{0}};
    assert_int_equal(vb_driver_post_recv(&x->qp, r, 10), 8);
    assert_int_equal(vb_driver_post_recv(&x->qp, r, 1), 0);
    x->qp.rq.ci = 1;
    assert_int_equal(vb_driver_post_recv(&x->qp, r, 2), 1);
    init_qp(x, (struct vb_qp_opts){.send_depth = 1}, 0, 0); // without a receive queue
    assert_int_equal(vb_driver_post_recv(&x->qp, r, 1), 0);
}

static void test_counters_wrap_with_long_entries(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.sq_start = 0xfff1;
    o.cq_start = 0xfffffd;
    o.send_depth = 4; // 32 blocks
    o.inline_bytes = 400;
    struct forge *f = forge_open(&o);
    uint8_t own[400];
    for (uint32_t i = 0; i < 400; i++)
        own[i] = (uint8_t)(i * 3);
    for (uint64_t i = 0; i < 100; i++) {
        const struct vb_sge sge = {(uintptr_t)own, 400 - (uint32_t)i, 0};
        const struct vb_send_wr wr = {.wr_id = i,
                                      .sge = &sge,
                                      .num_sge = 1,
                                      .opcode = VB_WR_WRITE,
                                      .flags = VB_WR_INLINE | VB_WR_SIGNALED};
        forge_post_send(f, &wr);
        forge_run(f);
        assert_int_equal(forge_sent(f, 0)->payload_len, sge.len);
        assert_memory_equal(forge_sent(f, 0)->payload, own, sge.len);
        forge_forget(f);
        forge_ack(f, 100 + (uint32_t)i);
        forge_expect_done(f, i, VB_WC_OK);
    }
    forge_close(f);
}

// ---- completions

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct fixture *x = ctx;
    return qpn == QPN ? &x->qp : NULL;
}

static struct vb_cqe *put_cqe(struct fixture *x, uint64_t at, uint8_t opcode, uint32_t qpn,
                              uint16_t counter)
{
    struct vb_cqe *e = (struct vb_cqe *)(void *)(x->cq.ring + at % x->cq.entries * VB_CQE_BYTES);
    *e = (struct vb_cqe){.sop_drop_qpn = htobe32(qpn),
                         .wqe_counter = htobe16(counter),
                         .byte_cnt = htobe32(55),
                         .op_own = (uint8_t)(opcode << 4 | (at / x->cq.entries & 1))};
    return e;
}

static void test_nothing_to_take(void **state)
{
    struct fixture *x = *state;
    struct vb_wc wc;
    assert_int_equal(vb_driver_poll(&x->cq, find, x, &wc, 1), 0);
    // An entry of the lap before is not ours.
    put_cqe(x, 16, VB_CQE_REQ, QPN, 0);
    assert_int_equal(vb_driver_poll(&x->cq, find, x, &wc, 1), 0);
    put_cqe(x, 0, VB_CQE_INVALID, QPN, 0);
    assert_int_equal(vb_driver_poll(&x->cq, find, x, &wc, 1), 0);
    assert_int_equal(be32toh(x->cq.dbrec[VB_DBREC_CQ_CI]), 0);
}

static void test_completions_free_what_is_before_them(void **state)
{
    struct fixture *x = *state;
    struct vb_wc wc[4];
    struct vb_sge sge[4] = {{0}};
    for (uint64_t i = 0; i < 8; i++) {
        const struct vb_send_wr wr = {
            .wr_id = 100 + i, .sge = sge, .num_sge = 4, .opcode = VB_WR_WRITE};
        assert_int_equal(vb_driver_post_send(&x->qp, &wr, 1), 1);
    }
    put_cqe(x, 0, VB_CQE_REQ, QPN, 6); // the fourth: the first three were not signaled
    assert_int_equal(vb_driver_poll(&x->cq, find, x, wc, 4), 1);
    assert_int_equal(wc[0].wr_id, 103);
    assert_int_equal(wc[0].status, VB_WC_OK);
    assert_int_equal(wc[0].qpn, QPN);
    assert_int_equal(x->qp.sq.ci, 8);
    assert_int_equal(be32toh(x->cq.dbrec[VB_DBREC_CQ_CI]), 1);
    assert_int_equal(vb_driver_poll(&x->cq, find, x, wc, 4), 0);
}

static void test_opcodes_of_completions(void **state)
{
    struct fixture *x = *state;
    static const struct {
        uint8_t wqe;
        enum vb_wc_opcode want;
    } table[] = {{VB_WQE_SEND, VB_WC_SEND},
                 {VB_WQE_WRITE, VB_WC_WRITE},
                 {VB_WQE_READ, VB_WC_READ},
                 {VB_WQE_NOP, VB_WC_NOP}};
    struct vb_wc wc;
    for (uint32_t i = 0; i < 4; i++) {
        put_cqe(x, i, VB_CQE_REQ, (uint32_t)table[i].wqe << 24 | QPN, (uint16_t)i);
        assert_int_equal(vb_driver_poll(&x->cq, find, x, &wc, 1), 1);
        assert_int_equal(wc.opcode, table[i].want);
        assert_int_equal(wc.byte_len, 55);
    }
    put_cqe(x, 4, VB_CQE_RESP_SEND, QPN, 0);
    assert_int_equal(vb_driver_poll(&x->cq, find, x, &wc, 1), 1);
    assert_int_equal(wc.opcode, VB_WC_RECV);
}

static void test_statuses_of_completions(void **state)
{
    struct fixture *x = *state;
    static const struct {
        uint8_t syndrome;
        enum vb_wc_status want;
    } table[] = {{VB_SYN_LOCAL_LENGTH, VB_WC_LOCAL_LENGTH},
                 {VB_SYN_LOCAL_QP_OP, VB_WC_LOCAL_QP_OP},
                 {VB_SYN_LOCAL_PROT, VB_WC_LOCAL_PROTECTION},
                 {VB_SYN_FLUSH, VB_WC_FLUSHED},
                 {VB_SYN_BAD_RESP, VB_WC_BAD_RESPONSE},
                 {VB_SYN_LOCAL_ACCESS, VB_WC_LOCAL_ACCESS},
                 {VB_SYN_REMOTE_INVAL_REQ, VB_WC_REMOTE_INVALID},
                 {VB_SYN_REMOTE_ACCESS, VB_WC_REMOTE_ACCESS},
                 {VB_SYN_REMOTE_OP, VB_WC_REMOTE_OPERATION},
                 {VB_SYN_RETRY_EXC, VB_WC_RETRY_EXCEEDED},
                 {VB_SYN_RNR_RETRY_EXC, VB_WC_RNR_EXCEEDED},
                 {0x77, VB_WC_BAD_RESPONSE}};
    struct vb_wc wc;
    for (uint32_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        put_cqe(x, i, i % 2 ? VB_CQE_RESP_ERR : VB_CQE_REQ_ERR, QPN, 0)->syndrome =
            table[i].syndrome;
        assert_int_equal(vb_driver_poll(&x->cq, find, x, &wc, 1), 1);
        assert_int_equal(wc.status, table[i].want);
        assert_int_equal(wc.byte_len, 0);
        vb_driver_qp_reset(&x->qp);
    }
}

static void test_entries_of_the_gone_are_skipped(void **state)
{
    struct fixture *x = *state;
    struct vb_wc wc[4];
    put_cqe(x, 0, VB_CQE_REQ, QPN + 1, 0);
    put_cqe(x, 1, VB_CQE_RESP_SEND, QPN, 0);
    put_cqe(x, 2, VB_CQE_REQ, QPN + 1, 0);
    assert_int_equal(vb_driver_poll(&x->cq, find, x, wc, 4), 1);
    assert_int_equal(wc[0].opcode, VB_WC_RECV);
    assert_int_equal(be32toh(x->cq.dbrec[VB_DBREC_CQ_CI]), 3);
}

// ---- cleaning for a queue pair that goes back to RESET

// Takes everything and returns which counters came, oldest in the highest digit.
static uint64_t take_all(struct fixture *x)
{
    struct vb_wc wc;
    uint64_t digits = 0;
    while (vb_driver_poll(&x->cq, find, x, &wc, 1) == 1)
        digits = digits * 10 + wc.wr_id;
    return digits;
}

static void test_cleaning_keeps_the_others_in_order(void **state)
{
    struct fixture *x = *state;
    for (uint64_t i = 0; i < 8; i++) { // receive i is request i
        const struct vb_recv_wr r = {.wr_id = i + 1};
        assert_int_equal(vb_driver_post_recv(&x->qp, &r, 1), 1);
    }
    // Every pattern of ours (1 bits) and another's among eight entries, across the ring's end.
    for (unsigned pattern = 0; pattern < 256; pattern++) {
        vb_driver_cq_fini(&x->cq);
        assert_int_equal(vb_driver_cq_init(&x->cq, 16, 0xfffffa), 0);
        uint64_t want = 0;
        for (unsigned i = 0; i < 8; i++) {
            bool ours = pattern >> i & 1;
            put_cqe(x, 0xfffffa + i, VB_CQE_RESP_SEND, ours ? QPN : QPN + 1, (uint16_t)i);
            want = ours ? want * 10 + i + 1 : want;
        }
        vb_driver_cq_clean(&x->cq, QPN + 1, NULL);
        uint64_t left = (uint64_t)__builtin_popcount(pattern);
        assert_true(x->cq.ci == 0xfffffa + 8 - left);
        assert_int_equal(be32toh(x->cq.dbrec[VB_DBREC_CQ_CI]), x->cq.ci & 0xffffff);
        x->qp.rq.ci = 0;
        assert_true(take_all(x) == want);
        assert_true(x->cq.ci == 0xfffffa + 8);
    }
}

static void test_cleaning_a_full_and_an_empty_queue(void **state)
{
    struct fixture *x = *state;
    struct vb_wc wc;
    vb_driver_cq_clean(&x->cq, QPN, NULL);
    assert_true(x->cq.ci == 0);
    for (uint64_t i = 0; i < 16; i++)
        put_cqe(x, i, VB_CQE_RESP_SEND, QPN, 0);
    vb_driver_cq_clean(&x->cq, QPN + 1, NULL); // none of its own
    assert_true(x->cq.ci == 0);
    vb_driver_cq_clean(&x->cq, QPN, NULL);
    assert_true(x->cq.ci == 16);
    assert_int_equal(vb_driver_poll(&x->cq, find, x, &wc, 1), 0);
}

// Who rang before another is noted; who rings again is not.
static void test_bells_of_others_are_kept(void **state)
{
    (void)state;
    static struct vb_doorbells bells;
    const uint32_t other = QPN + 4096;

    vb_doorbell_ring(&bells, QPN);
    vb_doorbell_ring(&bells, QPN);
    assert_int_equal(bells.top[QPN / 4096], 0);
    assert_true(vb_doorbells_pending(&bells) && vb_doorbells_rung(&bells));
    vb_doorbell_ring(&bells, other);
    assert_int_equal(atomic_exchange(&bells.latest, 0), other + 1);
    assert_int_equal(bells.top[QPN / 4096], 1ull << QPN / 64 % 64);
    assert_int_equal(bells.word[QPN / 64], 1ull << QPN % 64);
    assert_true(vb_doorbells_pending(&bells) && vb_doorbells_rung(&bells));
    atomic_store(&bells.top[QPN / 4096], 0);
    assert_false(vb_doorbells_pending(&bells) || vb_doorbells_rung(&bells));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_entries_look_like_connectx),
        CASE(test_inline_wraps_the_ring_end),
        CASE(test_malformed_requests_are_refused),
        CASE(test_segments_of_two_gib_are_refused),
        CASE(test_options_out_of_range),
        CASE(test_longest_inline_works),
        CASE(test_send_queue_fills),
        CASE(test_a_list_stops_at_the_malformed_one),
        CASE(test_receive_queue_fills),
        CASE(test_counters_wrap_with_long_entries),
        CASE(test_nothing_to_take),
        CASE(test_completions_free_what_is_before_them),
        CASE(test_opcodes_of_completions),
        CASE(test_statuses_of_completions),
        CASE(test_entries_of_the_gone_are_skipped),
        CASE(test_cleaning_keeps_the_others_in_order),
        CASE(test_cleaning_a_full_and_an_empty_queue),
        cmocka_unit_test(test_bells_of_others_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
