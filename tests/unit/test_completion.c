// SPDX-License-Identifier: Apache-2.0
// Completion queues: what an entry looks like, whose it is, and that a full queue stays intact.
#include "base/bytes.h"
#include "forge.h"
#include "nic/completion.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    ENTRIES = 8
};

struct fixture {
    struct vb_cqc cq;
    uint32_t dbrec[2];
};

static void init(struct fixture *x, uint64_t start)
{
    free(x->cq.ring);
    x->cq = (struct vb_cqc){.cqn = 1,
                            .entries = ENTRIES,
                            .ring = calloc(ENTRIES, VB_CQE_BYTES), // exact, for the sanitizer
                            .dbrec = x->dbrec,
                            .produced = start,
                            .published = start,
                            .consumed = start};
    memset(x->cq.ring, 0xff, ENTRIES * VB_CQE_BYTES);
    x->dbrec[VB_DBREC_CQ_CI] = htobe32((uint32_t)start & 0xffffff);
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    init(x, 0);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    free(x->cq.ring);
    free(x);
    return 0;
}

static const struct vb_cqe *entry(const struct fixture *x, uint64_t i)
{
    return (const struct vb_cqe *)(void *)(x->cq.ring + i % ENTRIES * VB_CQE_BYTES);
}

static bool write_one(struct fixture *x, uint64_t counter)
{
    const struct vb_completion c = {.qpn = 5, .counter = counter, .opcode = VB_CQE_REQ};
    bool written = vb_cqc_write(&x->cq, &c);
    vb_cqc_publish(&x->cq);
    return written;
}

static void consume(struct fixture *x, uint64_t consumer)
{
    x->dbrec[VB_DBREC_CQ_CI] = htobe32((uint32_t)consumer & 0xffffff);
}

static void test_success_entry(void **state)
{
    struct fixture *x = *state;
    const struct vb_completion c = {.qpn = 0xabcdef,
                                    .counter = 0x12345,
                                    .bytes = 0x01020304,
                                    .opcode = VB_CQE_REQ,
                                    .wqe_opcode = VB_WQE_READ};
    assert_true(vb_cqc_write(&x->cq, &c));
    vb_cqc_publish(&x->cq);
    const struct vb_cqe *e = entry(x, 0);
    assert_int_equal(e->op_own, VB_CQE_REQ << 4);
    assert_int_equal(be32toh(e->sop_drop_qpn), (uint32_t)VB_WQE_READ << 24 | 0xabcdef);
    assert_int_equal(be16toh(e->wqe_counter), 0x2345);
    assert_int_equal(be32toh(e->byte_cnt), 0x01020304);
    assert_true(e->timestamp == 0);
    assert_int_equal(e->signature, 0);
    assert_int_equal(entry(x, 1)->op_own, 0xff);
}

static void test_error_entry(void **state)
{
    struct fixture *x = *state;
    const struct vb_completion c = {.qpn = 1,
                                    .counter = 2,
                                    .opcode = VB_CQE_RESP_ERR,
                                    .syndrome = VB_SYN_LOCAL_LENGTH,
                                    .vendor = 0x77};
    assert_true(vb_cqc_write(&x->cq, &c));
    vb_cqc_publish(&x->cq);
    const struct vb_cqe *e = entry(x, 0);
    assert_int_equal(e->op_own >> 4, VB_CQE_RESP_ERR);
    assert_int_equal(e->syndrome, VB_SYN_LOCAL_LENGTH);
    assert_int_equal(e->vendor_syndrome, 0x77);
}

// Until it is published, an entry looks like one of the lap before.
static void test_entries_are_held_back(void **state)
{
    struct fixture *x = *state;
    const struct vb_completion c = {.qpn = 7, .opcode = VB_CQE_REQ};
    for (unsigned lap = 0; lap < 3; lap++)
        for (unsigned i = 0; i < x->cq.entries; i++) {
            uint8_t *slot = x->cq.ring + i * VB_CQE_BYTES;
            uint8_t *op_own = slot + offsetof(struct vb_cqe, op_own);
            assert_true(vb_cqc_write(&x->cq, &c));
            assert_int_equal(*op_own & 1, !(lap & 1));
            vb_cqc_publish(&x->cq);
            assert_int_equal(*op_own & 1, lap & 1);
            vb_cqc_publish(&x->cq); // once only
            assert_int_equal(*op_own & 1, lap & 1);
            x->dbrec[VB_DBREC_CQ_CI] = htobe32((uint32_t)x->cq.produced);
        }
}

static void test_owner_flips_each_lap(void **state)
{
    struct fixture *x = *state;
    for (uint64_t i = 0; i < 5 * ENTRIES; i++) {
        assert_true(write_one(x, i));
        assert_int_equal(entry(x, i)->op_own & 1, i / ENTRIES % 2);
        consume(x, i + 1);
    }
}

static void test_full_queue_is_not_overwritten(void **state)
{
    struct fixture *x = *state;
    uint8_t before[ENTRIES * VB_CQE_BYTES];
    for (uint64_t i = 0; i < ENTRIES; i++)
        assert_true(write_one(x, i));
    memcpy(before, x->cq.ring, sizeof before);
    assert_false(write_one(x, ENTRIES));
    assert_true(x->cq.overrun);
    assert_memory_equal(before, x->cq.ring, sizeof before);
    consume(x, ENTRIES); // too late: an entry was lost, so the queue stays broken
    assert_false(write_one(x, ENTRIES));
    assert_memory_equal(before, x->cq.ring, sizeof before);
}

static void test_room_comes_back_as_it_is_consumed(void **state)
{
    struct fixture *x = *state;
    uint64_t produced = 0;
    for (; produced < ENTRIES; produced++)
        assert_true(write_one(x, produced));
    for (uint64_t consumed = 1; consumed < 100; consumed++) {
        consume(x, consumed);
        assert_true(write_one(x, produced++));
    }
    assert_false(write_one(x, produced));
}

static void test_consumer_counter_wraps_at_24_bits(void **state)
{
    struct fixture *x = *state;
    for (uint64_t base = 0; base <= 3; base++) {
        uint64_t start = (base << 24 | 0xfffffc);
        init(x, start);
        for (uint64_t i = start; i < start + 3 * ENTRIES; i++) {
            assert_true(write_one(x, i));
            assert_int_equal(entry(x, i)->op_own & 1, i / ENTRIES % 2);
            consume(x, i + 1);
        }
        for (uint64_t i = 0; i < ENTRIES; i++)
            assert_true(write_one(x, i));
        assert_false(write_one(x, 0));
    }
}

static void test_consumer_cannot_claim_the_future(void **state)
{
    struct fixture *x = *state;
    for (uint64_t i = 0; i < ENTRIES; i++)
        assert_true(write_one(x, i));
    consume(x, ENTRIES + 1);
    assert_false(write_one(x, ENTRIES));
}

static void test_consumer_cannot_step_back(void **state)
{
    struct fixture *x = *state;
    for (uint64_t i = 0; i < ENTRIES; i++)
        assert_true(write_one(x, i));
    consume(x, 4);
    for (uint64_t i = 0; i < 4; i++)
        assert_true(write_one(x, i));
    consume(x, 3); // taken for a claim of nearly 2^24 more
    assert_false(write_one(x, 0));
}

// ---- a queue pair on a queue that overruns

static void test_overrun_fails_the_queue_pair(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.send_cq_entries = 4;
    struct forge *f = forge_open(&o);
    uint8_t before[4 * VB_CQE_BYTES];
    for (uint64_t i = 0; i < 6; i++)
        forge_post(f, i, VB_WR_SEND, 0, 1);
    forge_post_recv(f, 99, 0, 1);
    forge_run(f);
    forge_ack(f, 103);
    memcpy(before, f->send_cq.ring, sizeof before);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_ack(f, 105);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    assert_int_equal(forge_counters(f)->cq_overrun, 2);
    assert_memory_equal(before, f->send_cq.ring, sizeof before);
    for (uint64_t i = 0; i < 4; i++)
        forge_expect_done(f, i, VB_WC_OK);
    forge_expect_recv(f, 99, VB_WC_FLUSHED, 0); // the other queue still works
    forge_expect_none(f);
    forge_post(f, 7, VB_WR_SEND, 0, 1);
    forge_run(f);
    assert_int_equal(forge_counters(f)->cq_overrun, 3);
    forge_expect_none(f);
    forge_close(f);
}

static void test_overrun_of_receives_fails_the_queue_pair(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.recv_cq_entries = 2;
    struct forge *f = forge_open(&o);
    for (uint64_t i = 0; i < 4; i++)
        forge_post_recv(f, i, 0, 16);
    forge_send(f, VB_RC_SEND_ONLY, 500, 4, 1);
    forge_send(f, VB_RC_SEND_ONLY, 501, 4, 1);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_send(f, VB_RC_SEND_ONLY, 502, 4, 1);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_expect_recv(f, 0, VB_WC_OK, 4);
    forge_expect_recv(f, 1, VB_WC_OK, 4);
    forge_expect_none(f);
    forge_close(f);
}

// A queue goes to a longer or a shorter ring while it holds entries: they come along, in order, and
// so do those that follow.
static void test_entries_move_to_another_ring(void **state)
{
    (void)state;
    for (uint32_t entries = 4; entries <= 16; entries *= 4) {
        struct forge_opts o = forge_defaults();
        o.recv_cq_entries = 8;
        o.cq_start = 6;
        struct forge *f = forge_open(&o);
        uint8_t *ring = malloc((size_t)entries * VB_CQE_BYTES), *old = f->recv_cq.ring;
        memset(ring, 0xff, (size_t)entries * VB_CQE_BYTES);
        for (uint32_t i = 0; i < 5; i++)
            forge_post_recv(f, i, 0, 16);
        for (uint32_t i = 0; i < 4; i++)
            forge_send(f, VB_RC_SEND_ONLY, 500 + i, i, 1);
        forge_expect_recv(f, 0, VB_WC_OK, 0);
        uint64_t consumed = f->recv_cq.ci;
        assert_int_equal(vb_dev_cq_move(f->dev, f->recv_cqn, &consumed, ring, entries), 0);
        assert_int_equal(consumed, f->recv_cq.ci);
        memset(old, 0xff, 8 * VB_CQE_BYTES); // nobody looks there any more
        f->recv_cq.ring = ring;
        f->recv_cq.entries = entries;
        forge_send(f, VB_RC_SEND_ONLY, 504, 4, 1);
        for (uint32_t i = 1; i < 5; i++)
            forge_expect_recv(f, i, VB_WC_OK, i);
        forge_expect_none(f);
        f->recv_cq.ring = old; // as it was made
        f->recv_cq.entries = 8;
        forge_close(f);
        free(ring);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_success_entry),
        CASE(test_error_entry),
        CASE(test_entries_are_held_back),
        CASE(test_owner_flips_each_lap),
        CASE(test_full_queue_is_not_overwritten),
        CASE(test_room_comes_back_as_it_is_consumed),
        CASE(test_consumer_counter_wraps_at_24_bits),
        CASE(test_consumer_cannot_claim_the_future),
        CASE(test_consumer_cannot_step_back),
        cmocka_unit_test(test_overrun_fails_the_queue_pair),
        cmocka_unit_test(test_overrun_of_receives_fails_the_queue_pair),
        cmocka_unit_test(test_entries_move_to_another_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
