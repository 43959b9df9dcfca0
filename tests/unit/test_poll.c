// SPDX-License-Identifier: Apache-2.0
// vb_pu_poll() makes the steps of vb_pu_step() without their records: the same work must put the
// same bytes on the wire and into the completion queues.
#include "forge.h"
#include "fresh_seed.h"

#include "base/prng.h"
#include "base/serial.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    TURNS = 200,
    LOG_BYTES = 8 << 20,
    RECORD = 9, // words
};

struct log {
    uint8_t *bytes;
    size_t used;
};

enum way {
    BY_STEPS,
    BY_POLL,
    BY_POLL_HEARD, // by a listener
};

// One run: what it did, and the records of its steps.
struct trial {
    enum way way;
    struct log log, records;
};

static void keep(struct log *log, const void *bytes, size_t len)
{
    assert_true(log->used + len <= LOG_BYTES);
    memcpy(log->bytes + log->used, bytes, len);
    log->used += len;
}

static void hear(void *ctx, const struct vb_step *step)
{
    struct trial *t = ctx;
    const uint64_t record[RECORD] = {step->kind,   step->opcode, step->verdict,
                                     step->detail, step->qpn,    step->cqn,
                                     step->psn,    step->bytes,  step->counter};

    assert_true(step->kind != VB_STEP_NONE || t->way == BY_STEPS);
    if (step->kind != VB_STEP_NONE)
        keep(&t->records, record, sizeof record);
}

static void run(struct forge *f, struct trial *t)
{
    vb_pu_feed(f->pu, f->feed, f->feed_count);
    if (t->way == BY_STEPS)
        while (vb_pu_step(f->pu, f->now_ns).kind != VB_STEP_NONE)
            ;
    else
        vb_pu_poll(f->pu, f->now_ns);
    for (uint32_t i = 0; i < f->feed_count; i++)
        free((void *)(uintptr_t)f->feed[i].data);
    f->feed_count = 0;
}

// Runs until quiet, though the transmit queue may fill on the way.
static void drain(struct forge *f, struct trial *t)
{
    struct log *log = &t->log;
    bool again;
    do {
        run(f, t);
        struct vb_txq *q = vb_pu_txq(f->pu);
        again = vb_pu_wants_tx(f->pu);
        for (uint32_t i = q->taken; i < q->count; i++) {
            uint8_t bytes[VB_FRAME_MAX];
            vb_tx_copy(q, &q->frame[i], bytes);
            keep(log, bytes, q->frame[i].len);
        }
        q->taken = q->count;
        vb_pu_tx_release(f->pu);
    } while (again);
    struct vb_cqe cqe[2];
    memcpy(&cqe[0], f->send_cq.ring, sizeof cqe[0]);
    memcpy(&cqe[1], f->recv_cq.ring, sizeof cqe[1]);
    keep(log, cqe, sizeof cqe);
}

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    (void)qpn;
    return &((struct forge *)ctx)->qp;
}

static void take_completions(struct forge *f, struct log *log)
{
    struct vb_wc wc[64];
    int n;
    while ((n = vb_driver_poll(&f->send_cq, find, f, wc, 64)) > 0)
        for (int i = 0; i < n; i++)
            keep(log, &wc[i].wr_id, sizeof wc[i].wr_id);
    while ((n = vb_driver_poll(&f->recv_cq, find, f, wc, 64)) > 0)
        for (int i = 0; i < n; i++)
            keep(log, &wc[i].wr_id, sizeof wc[i].wr_id);
}

// What the peer sends in one turn: requests in sequence, ahead and old, and acknowledgements.
static void forge_turn(struct forge *f, struct vb_prng *r)
{
    static const enum vb_opcode requests[] = {VB_RC_WRITE_ONLY, VB_RC_READ_REQUEST,
                                              VB_RC_SEND_ONLY};
    uint32_t next = f->ctx->resp.epsn;
    for (uint64_t n = vb_prng_below(r, 8); n > 0; n--) {
        enum vb_opcode opcode = requests[vb_prng_below(r, 3)];
        uint32_t psn = next++ & VB_PSN_MASK;
        if (vb_prng_chance(r, 200000))
            psn = (psn + (uint32_t)vb_prng_range(r, 0, 2) - 1) & VB_PSN_MASK;
        struct vb_packet pkt = forge_reth(f, opcode, psn, 0, 100);
        uint8_t payload[100] = {1};
        pkt.ack_request = true;
        if (opcode != VB_RC_READ_REQUEST) {
            pkt.payload = payload;
            pkt.payload_len = sizeof payload;
        }
        forge_queue(f, &pkt);
    }
    if (f->ctx->req.una_psn != f->ctx->req.max_psn && vb_prng_chance(r, 800000)) {
        struct vb_packet ack = forge_packet(f, VB_RC_ACK, f->ctx->req.una_psn);
        ack.syndrome = vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID);
        forge_queue(f, &ack);
    }
}

static void script(struct trial *t, uint64_t seed)
{
    struct vb_prng r = {seed};
    struct forge_opts o = forge_defaults();
    o.window_bytes = 16384;
    o.timeout = 8; // 1 ms, so that timers fire
    o.lend_bytes = seed & 1 ? 300 : 0;
    struct forge *f = forge_open(&o);
    uint32_t share;
    assert_int_equal(vb_dev_share_create(f->dev, &(struct vb_share_attr){.weight = 7}, &share), 0);
    if (seed & 2)
        vb_share_join(f->pu, f->ctx, vb_share_find(f->dev, share));
    if (seed & 4) // then it is share 0's, beside another or alone
        assert_int_equal(vb_dev_share_destroy(f->dev, share), seed & 2 ? -EBUSY : 0);
    // With an observer, vb_pu_poll() would call vb_pu_step().
    vb_pu_observe(f->pu, t->way == BY_STEPS ? hear : NULL, t);
    if (t->way == BY_POLL_HEARD)
        vb_pu_listen(f->pu, hear, t);
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        static const enum vb_wr_opcode ops[] = {VB_WR_SEND, VB_WR_WRITE, VB_WR_NOP};
        for (uint64_t n = vb_prng_below(&r, 4); n > 0; n--) {
            enum vb_wr_opcode op = ops[vb_prng_below(&r, 3)];
            struct vb_sge sge = {forge_addr(f, 0), (uint32_t)vb_prng_below(&r, 5000), f->key};
            struct vb_send_wr wr = {.wr_id = turn,
                                    .sge = &sge,
                                    .num_sge = op != VB_WR_NOP,
                                    .opcode = op,
                                    .flags = VB_WR_SIGNALED,
                                    .raddr = 0x1000,
                                    .rkey = 0x2222};
            vb_driver_post_send(&f->qp, &wr, 1);
        }
        struct vb_sge into = {forge_addr(f, 8192), 200, f->key};
        struct vb_recv_wr recv = {.wr_id = 1000 + turn, .sge = &into, .num_sge = 1};
        vb_driver_post_recv(&f->qp, &recv, 1);
        forge_turn(f, &r);
        f->now_ns += vb_prng_below(&r, 2000000);
        drain(f, t);
        take_completions(f, &t->log);
    }
    forge_close(f);
}

static void begin(struct trial *t, enum way way)
{
    *t = (struct trial){way, {malloc(LOG_BYTES), 0}, {malloc(LOG_BYTES), 0}};
    assert_true(t->log.bytes && t->records.bytes);
}

static void end(struct trial *t)
{
    free(t->log.bytes);
    free(t->records.bytes);
}

static void are_equal(const struct log *a, const struct log *b)
{
    assert_int_equal(a->used, b->used);
    assert_memory_equal(a->bytes, b->bytes, a->used);
}

static void test_poll_does_what_steps_do(void **state)
{
    (void)state;
    const uint64_t first = fresh_seed();
    for (uint64_t seed = first, n = 0; n < 20; seed++, n++) {
        struct trial steps, poll;
        begin(&steps, BY_STEPS);
        begin(&poll, BY_POLL);
        script(&steps, seed);
        script(&poll, seed);
        assert_true(steps.log.used > 10000);
        are_equal(&steps.log, &poll.log);
        assert_int_equal(poll.records.used, 0); // nobody listened
        end(&steps);
        end(&poll);
    }
}

static int by_words(const void *a, const void *b)
{
    return memcmp(a, b, RECORD * sizeof(uint64_t));
}

static void sort(struct log *records)
{
    const size_t bytes = RECORD * sizeof(uint64_t);
    qsort(records->bytes, records->used / bytes, bytes, by_words);
}

// And tells a listener of the same steps, though some of a turn come in another order.
static void test_a_listener_hears_steps(void **state)
{
    (void)state;
    const uint64_t first = fresh_seed();
    for (uint64_t seed = first, n = 0; n < 20; seed++, n++) {
        struct trial steps, poll;
        begin(&steps, BY_STEPS);
        begin(&poll, BY_POLL_HEARD);
        script(&steps, seed);
        script(&poll, seed);
        are_equal(&steps.log, &poll.log);
        sort(&steps.records);
        sort(&poll.records);
        are_equal(&steps.records, &poll.records);
        end(&steps);
        end(&poll);
    }
}

static void count_steps(void *ctx, const struct vb_step *step)
{
    (void)step;
    ++*(uint32_t *)ctx;
}

// Steps that are taken one by one are told to nobody else, and the end of listening is the end.
static void test_a_listener_comes_and_goes(void **state)
{
    uint32_t heard = 0;

    (void)state;
    struct forge *f = forge_open(NULL);
    vb_pu_observe(f->pu, NULL, NULL);
    vb_pu_listen(f->pu, count_steps, &heard);
    forge_post(f, 1, VB_WR_SEND, 0, 8);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FETCH);
    assert_int_equal(heard, 0);
    vb_pu_poll(f->pu, f->now_ns);
    assert_int_equal(heard, 2); // it was begun, and sent
    vb_pu_listen(f->pu, NULL, NULL);
    forge_post(f, 2, VB_WR_SEND, 0, 8);
    vb_pu_poll(f->pu, f->now_ns);
    assert_int_equal(heard, 2);
    forge_close(f);
}

// Who runs the unit takes a short way while it is idle: whatever is due must show.
static void test_idle_is_told(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    vb_pu_poll(f->pu, f->now_ns);
    assert_true(vb_pu_is_idle(f->pu));
    forge_post(f, 1, VB_WR_SEND, 0, 8);
    assert_false(vb_pu_is_idle(f->pu)); // a doorbell
    vb_pu_poll(f->pu, f->now_ns);
    assert_false(vb_pu_is_idle(f->pu)); // a frame to send
    vb_pu_txq(f->pu)->taken = vb_pu_txq(f->pu)->count;
    vb_pu_tx_release(f->pu);
    assert_true(vb_pu_is_idle(f->pu));
    struct vb_packet ack = forge_packet(f, VB_RC_ACK, 100);
    forge_queue(f, &ack);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_false(vb_pu_is_idle(f->pu)); // a frame that came
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    assert_false(vb_pu_is_idle(f->pu)); // a completion
    vb_pu_poll(f->pu, f->now_ns);
    assert_true(vb_pu_is_idle(f->pu));
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_does_what_steps_do),
        cmocka_unit_test(test_a_listener_hears_steps),
        cmocka_unit_test(test_a_listener_comes_and_goes),
        cmocka_unit_test(test_idle_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
