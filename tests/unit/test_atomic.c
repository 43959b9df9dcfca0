// SPDX-License-Identifier: Apache-2.0
// Atomics, masked atomics, ATOMIC WRITE and FLUSH: the operations on memory, and both sides of a
// reliable connection that carry them.
#include "base/bytes.h"
#include "forge.h"
#include "nic/atomic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct forge *open_at(uint32_t psn)
{
    struct forge_opts o = forge_rights(VB_ACCESS_REMOTE, VB_ACCESS_REMOTE);
    o.our_psn = o.peer_psn = psn & 0xffffff;
    return forge_open(&o);
}

// ---- on memory

static void test_plain_operations(void **state)
{
    (void)state;
    _Alignas(8) uint64_t w = 5;
    struct vb_atomic_op op = {8, true, 9, 5, UINT64_MAX, UINT64_MAX};
    assert_int_equal(vb_atomic_execute(&w, &op), 5);
    assert_int_equal(w, 9);
    assert_int_equal(vb_atomic_execute(&w, &op), 9); // does not compare
    assert_int_equal(w, 9);
    op = (struct vb_atomic_op){8, false, 3, 0, UINT64_MAX, UINT64_MAX};
    w = UINT64_MAX - 1;
    assert_true(vb_atomic_execute(&w, &op) == UINT64_MAX - 1);
    assert_int_equal(w, 1);
    op.swap_add = 0;
    assert_int_equal(vb_atomic_execute(&w, &op), 1);
    assert_int_equal(w, 1);
}

static void test_masks_of_a_swap(void **state)
{
    (void)state;
    _Alignas(8) uint64_t w = 0x1111222233334444;
    struct vb_atomic_op op = {
        8, true, 0xaaaabbbbccccdddd, 0xffff2222ffffffff, 0x00000000ffff0000, 0x0000ffff00000000};
    assert_true(vb_atomic_execute(&w, &op) == 0x1111222233334444);
    assert_true(w == 0x11112222cccc4444);
    op.compare = 0xffff2223ffffffff; // one bit of what is compared
    vb_atomic_execute(&w, &op);
    assert_true(w == 0x11112222cccc4444);
    op.compare_mask = 0; // always equal
    op.swap_mask = 0;    // and nothing swapped
    vb_atomic_execute(&w, &op);
    assert_true(w == 0x11112222cccc4444);
    op.swap_mask = UINT64_MAX;
    vb_atomic_execute(&w, &op);
    assert_true(w == 0xaaaabbbbccccdddd);
}

// Bit by bit, as one would by hand.
static uint64_t add_by_hand(uint64_t a, uint64_t b, uint64_t boundary, unsigned bits)
{
    uint64_t sum = 0;
    unsigned carry = 0;
    for (unsigned i = 0; i < bits; i++) {
        unsigned s = (unsigned)(a >> i & 1) + (unsigned)(b >> i & 1) + carry;
        sum |= (uint64_t)(s & 1) << i;
        carry = boundary >> i & 1 ? 0 : s >> 1;
    }
    return sum;
}

static void test_fields_of_an_addition(void **state)
{
    (void)state;
    static const uint64_t v[] = {0,
                                 1,
                                 0x7f,
                                 0x80,
                                 0xff,
                                 0x8000000080000000,
                                 0xffffffff,
                                 0x0123456789abcdef,
                                 UINT64_MAX - 1,
                                 UINT64_MAX};
    for (unsigned a = 0; a < 10; a++)
        for (unsigned b = 0; b < 10; b++)
            for (unsigned m = 0; m < 10; m++) {
                _Alignas(8) uint64_t w = v[a];
                struct vb_atomic_op op = {8, false, v[b], v[m], 0, 0};
                assert_true(vb_atomic_execute(&w, &op) == v[a]);
                assert_true(w == add_by_hand(v[a], v[b], v[m], 64));
                _Alignas(8) uint32_t n[2] = {(uint32_t)v[a], 77};
                op = (struct vb_atomic_op){4, false, (uint32_t)v[b], (uint32_t)v[m], 0, 0};
                assert_int_equal(vb_atomic_execute(n, &op), (uint32_t)v[a]);
                assert_int_equal(n[0],
                                 add_by_hand((uint32_t)v[a], (uint32_t)v[b], (uint32_t)v[m], 32));
                assert_int_equal(n[1], 77);
            }
}

static void test_four_bytes_swap(void **state)
{
    (void)state;
    _Alignas(8) uint32_t n[2] = {0x12345678, 0x9abcdef0};
    struct vb_atomic_op op = {4, true, 0xffffffff, 0x9a000000, 0x000000ff, 0xff000000};
    assert_int_equal(vb_atomic_execute(n + 1, &op), 0x9abcdef0);
    assert_int_equal(n[1], 0x9abcdeff);
    assert_int_equal(n[0], 0x12345678);
}

// ---- responder

static void test_compare_and_swap(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    forge_set_word(f, 64, 5);
    struct vb_packet p = forge_atomic(f, VB_RC_COMPARE_SWAP, 0xffffff, 64, 9, 5);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(forge_word(f, 64), 9);
    assert_int_equal(f->sent_count, 1); // its answer is its acknowledgement
    const struct vb_packet *a = forge_sent(f, 0);
    assert_int_equal(a->opcode, VB_RC_ATOMIC_ACK);
    assert_int_equal(a->psn, 0xffffff);
    assert_int_equal(a->atomic_old, 5);
    assert_int_equal(a->msn, 1);
    assert_int_equal(a->syndrome, vb_aeth_syndrome(VB_AETH_ACK, 0)); // no receives wait
    p = forge_atomic(f, VB_RC_COMPARE_SWAP, 0, 64, 77, 5);           // another value is there
    forge_give(f, &p);
    assert_int_equal(forge_word(f, 64), 9);
    assert_int_equal(forge_sent(f, 1)->atomic_old, 9);
    assert_int_equal(forge_counters(f)->rx_atomic_requests, 2);
    forge_expect_none(f);
    forge_close(f);
}

static void test_fetch_and_add(void **state)
{
    (void)state;
    struct forge *f = open_at(1);
    forge_set_word(f, 0, UINT64_MAX);
    struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 1, 0, 2, UINT64_MAX);
    forge_give(f, &p); // what stands in the place of compare does not matter
    assert_int_equal(forge_word(f, 0), 1);
    assert_true(forge_sent(f, 0)->atomic_old == UINT64_MAX);
    forge_close(f);
}

static void test_masked_operations(void **state)
{
    (void)state;
    struct forge *f = open_at(10);
    forge_set_word(f, 0, 0x1111222233334444);
    struct vb_packet p = forge_atomic(f, VB_RC_MASKED_COMPARE_SWAP, 10, 0, UINT64_MAX, 0x4444);
    p.swap_mask = 0xff00;
    p.compare_mask = 0xffff;
    forge_give(f, &p);
    assert_true(forge_word(f, 0) == 0x111122223333ff44);
    assert_true(forge_sent(f, 0)->atomic_old == 0x1111222233334444);
    p = forge_atomic(f, VB_RC_MASKED_FETCH_ADD, 11, 0, 0x0100, 0x8000); // no carry out of bit 15
    forge_give(f, &p);
    assert_true(forge_word(f, 0) == 0x1111222233330044);
    p = forge_atomic(f, VB_RC_MASKED_FETCH_ADD, 12, 4, 0xefffffff, 0);
    p.atomic_bytes = 4; // four bytes, aligned to four
    forge_give(f, &p);
    assert_true(forge_word(f, 0) == 0x0111222133330044);
    assert_int_equal(forge_sent(f, 2)->atomic_old, 0x11112222);
    forge_close(f);
}

static void test_rights_of_queue_pair_and_key_apart(void **state)
{
    (void)state;
    for (unsigned qp = 0; qp < 2; qp++)
        for (unsigned key = 0; key < 2; key++) {
            uint32_t none = (uint32_t)VB_ACCESS_REMOTE & ~(uint32_t)VB_REMOTE_ATOMIC;
            struct forge_opts o =
                forge_rights(qp ? VB_ACCESS_REMOTE : none, key ? VB_ACCESS_REMOTE : none);
            struct forge *f = forge_open(&o);
            struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 500, 0, 1, 0);
            bool good = qp && key;
            assert_int_equal(forge_give(f, &p), good ? VB_RX_APPLIED : VB_RX_REFUSED);
            assert_int_equal(forge_word(f, 0), good);
            if (good) {
                forge_expect_no_event(f);
            } else {
                forge_expect_nak(f, 0, 500, VB_NAK_REMOTE_ACCESS);
                forge_expect_qp_event(f, VB_EVENT_QP_ACCESS_ERR);
                assert_int_equal(forge_state(f), VB_QPS_ERR);
            }
            forge_close(f);
        }
}

static void test_another_domain(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    uint32_t pd, key;
    assert_int_equal(vb_dev_pd_create(f->dev, &pd), 0);
    const struct vb_mkey_attr attr = {.pd = pd,
                                      .access = VB_LOCAL_WRITE | VB_ACCESS_REMOTE,
                                      .start = forge_addr(f, 0),
                                      .len = 64,
                                      .base = f->memory};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
    struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 500, 0, 1, 0);
    p.rkey = key;
    assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
    forge_expect_nak(f, 0, 500, VB_NAK_REMOTE_ACCESS);
    assert_int_equal(forge_word(f, 0), 0);
    forge_close(f);
}

static void test_alignment_and_bounds(void **state)
{
    (void)state;
    const struct {
        uint32_t offset;
        uint8_t bytes;
        enum vb_nak code;
    } bad[] = {
        {1, 8, VB_NAK_INVALID_REQUEST},
        {4, 8, VB_NAK_INVALID_REQUEST},
        {2, 4, VB_NAK_INVALID_REQUEST},
        {FORGE_MEMORY - 4, 8, VB_NAK_REMOTE_ACCESS}, // access is judged first
        {FORGE_MEMORY, 8, VB_NAK_REMOTE_ACCESS},
        {FORGE_MEMORY - 3, 4, VB_NAK_REMOTE_ACCESS},
    };
    for (uint32_t i = 0; i < 6; i++) {
        struct forge *f = open_at(500);
        struct vb_packet p = forge_atomic(f, VB_RC_MASKED_FETCH_ADD, 500, bad[i].offset, 1, 0);
        p.atomic_bytes = bad[i].bytes;
        assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, bad[i].code);
        forge_expect_qp_event(f, bad[i].code == VB_NAK_INVALID_REQUEST ? VB_EVENT_QP_REQ_ERR
                                                                       : VB_EVENT_QP_ACCESS_ERR);
        forge_close(f);
    }
    struct forge *f = open_at(500); // the last words there are
    struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 500, FORGE_MEMORY - 8, 1, 0);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    p = forge_atomic(f, VB_RC_MASKED_FETCH_ADD, 501, FORGE_MEMORY - 4, 1, 0);
    p.atomic_bytes = 4;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_true(forge_word(f, FORGE_MEMORY - 8) == 0x100000001);
    forge_close(f);
}

// The address that peers name is aligned, the memory behind it is not.
static void test_misaligned_memory(void **state)
{
    (void)state;
    for (uint32_t shift = 0; shift <= 4; shift += 4) {
        struct forge *f = open_at(500);
        uint32_t key;
        const struct vb_mkey_attr attr = {.pd = f->pd,
                                          .access = VB_LOCAL_WRITE | VB_ACCESS_REMOTE,
                                          .len = 64,
                                          .base = f->memory + shift};
        assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
        static const enum vb_opcode op[] = {VB_RC_FETCH_ADD, VB_RC_ATOMIC_WRITE};
        for (uint32_t i = 0; i < 2; i++) {
            struct vb_packet p = forge_atomic(f, op[i], 500 + i, 0, 1, 0);
            p.rkey = key;
            p.raddr = 8;
            p.dma_len = p.payload_len = op[i] == VB_RC_ATOMIC_WRITE ? 8 : 0;
            p.payload = (const uint8_t *)"12345678";
            assert_int_equal(forge_give(f, &p), shift ? VB_RX_REFUSED : VB_RX_APPLIED);
            if (shift) {
                forge_expect_nak(f, 0, 500, VB_NAK_INVALID_REQUEST);
                break;
            }
        }
        forge_close(f);
    }
}

static void test_region_that_goes_before_the_answer_leaves(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_set_word(f, 0, 41);
    struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 500, 0, 1, 0);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    assert_int_equal(forge_word(f, 0), 42); // when it is applied, not when it is answered
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0);
    vb_pu_poll(f->pu, f->now_ns);
    forge_keep(f);
    assert_int_equal(forge_sent(f, 0)->atomic_old, 41);
    forge_close(f);
}

// ---- ATOMIC WRITE

static struct vb_packet atomic_write(const struct forge *f, uint32_t psn, uint32_t offset)
{
    struct vb_packet p = forge_reth(f, VB_RC_ATOMIC_WRITE, psn, offset, 8);
    p.payload = (const uint8_t *)"ABCDEFGH";
    p.payload_len = 8;
    p.ack_request = true;
    return p;
}

static void expect_done_answer(struct forge *f, uint32_t i, uint32_t psn)
{
    const struct vb_packet *a = forge_sent(f, i);
    assert_int_equal(a->opcode, VB_RC_READ_RESP_ONLY);
    assert_int_equal(a->payload_len, 0);
    assert_int_equal(a->psn, psn & 0xffffff);
}

static void test_atomic_write(void **state)
{
    (void)state;
    struct forge_opts o = forge_rights(VB_REMOTE_WRITE, VB_REMOTE_WRITE); // the right is WRITE's
    o.peer_psn = 0xffffff;
    struct forge *f = forge_open(&o);
    struct vb_packet p = atomic_write(f, 0xffffff, FORGE_MEMORY - 8);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_memory_equal(f->memory + FORGE_MEMORY - 8, "ABCDEFGH", 8);
    assert_int_equal(f->sent_count, 1);
    expect_done_answer(f, 0, 0xffffff);
    forge_close(f);
}

static void test_atomic_write_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t none = (uint32_t)VB_ACCESS_REMOTE & ~(uint32_t)VB_REMOTE_WRITE;
        struct forge_opts o =
            forge_rights(i == 4 ? none : VB_ACCESS_REMOTE, i == 5 ? none : VB_ACCESS_REMOTE);
        struct forge *f = forge_open(&o);
        struct vb_packet p = atomic_write(f, 500, 0);
        if (i < 2)
            p.dma_len = i ? 9 : 7;
        if (i == 2)
            p.raddr += 4;
        if (i == 3)
            p.raddr += FORGE_MEMORY;
        assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, i < 3 ? VB_NAK_INVALID_REQUEST : VB_NAK_REMOTE_ACCESS);
        assert_int_equal(forge_word(f, 0), 0);
        forge_close(f);
    }
}

// Neither seven bytes nor nine are a packet at all.
static void test_atomic_write_of_another_length(void **state)
{
    (void)state;
    static const uint32_t lens[] = {0, 4, 7, 9, 12};
    struct forge *f = open_at(500);
    for (uint32_t i = 0; i < 5; i++) {
        struct vb_packet p = atomic_write(f, 500, 0);
        p.payload = (const uint8_t *)"0123456789abcdef";
        p.payload_len = lens[i];
        assert_int_equal(forge_give(f, &p), VB_RX_MALFORMED);
    }
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

// ---- FLUSH

static struct vb_packet flush(const struct forge *f, uint32_t psn, uint8_t type, uint8_t level)
{
    struct vb_packet p = forge_reth(f, VB_RC_FLUSH, psn, 0, 64);
    p.flush_type = type;
    p.flush_level = level;
    p.ack_request = true;
    return p;
}

static void test_flush(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    for (uint8_t type = 1; type <= 3; type++) {
        struct vb_packet p = flush(f, 0xfffffd + type, type, VB_FETH_RANGE);
        assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
        expect_done_answer(f, type - 1u, 0xfffffd + type);
    }
    struct vb_packet p = flush(f, 1, 1, VB_FETH_REGION); // the range does not matter
    p.raddr = 0;
    p.dma_len = UINT32_MAX;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    p = flush(f, 2, 1, VB_FETH_RANGE);
    p.dma_len = FORGE_MEMORY;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(forge_counters(f)->rx_flush_requests, 5);
    forge_close(f);
}

static void test_flush_refused(void **state)
{
    (void)state;
    const uint32_t only_g = VB_FLUSH_GLOBAL, only_p = VB_FLUSH_PERSISTENT;
    const struct {
        uint32_t qp, key;
        uint8_t type, level;
        uint32_t len, flip;
        enum vb_nak code;
    } bad[] = {
        {VB_ACCESS_REMOTE, VB_ACCESS_REMOTE, 0, 0, 64, 0, VB_NAK_INVALID_REQUEST},
        {VB_ACCESS_REMOTE, VB_ACCESS_REMOTE, 4, 0, 64, 0, VB_NAK_INVALID_REQUEST},
        {VB_ACCESS_REMOTE, VB_ACCESS_REMOTE, 1, 2, 64, 0, VB_NAK_INVALID_REQUEST},
        {VB_ACCESS_REMOTE, VB_ACCESS_REMOTE, 1, 3, 64, 0, VB_NAK_INVALID_REQUEST},
        {only_p, VB_ACCESS_REMOTE, 1, 0, 64, 0, VB_NAK_REMOTE_ACCESS},
        {only_g, VB_ACCESS_REMOTE, 2, 0, 64, 0, VB_NAK_REMOTE_ACCESS},
        {only_g, VB_ACCESS_REMOTE, 3, 0, 64, 0, VB_NAK_REMOTE_ACCESS},
        {VB_ACCESS_REMOTE, only_p, 1, 0, 64, 0, VB_NAK_REMOTE_ACCESS},
        {VB_ACCESS_REMOTE, only_g, 3, 1, 64, 0, VB_NAK_REMOTE_ACCESS},
        {VB_ACCESS_REMOTE, VB_ACCESS_REMOTE, 1, 0, FORGE_MEMORY + 1, 0, VB_NAK_REMOTE_ACCESS},
        {VB_ACCESS_REMOTE, VB_ACCESS_REMOTE, 1, 0, 0, 1, VB_NAK_REMOTE_ACCESS}, // the key counts
                                                                                // even without a
                                                                                // range
        {VB_ACCESS_REMOTE, VB_ACCESS_REMOTE, 1, 1, 64, 0x100, VB_NAK_REMOTE_ACCESS},
    };
    for (uint32_t i = 0; i < 12; i++) {
        struct forge_opts o = forge_rights(bad[i].qp, bad[i].key);
        struct forge *f = forge_open(&o);
        struct vb_packet p = flush(f, 500, bad[i].type, bad[i].level);
        p.dma_len = bad[i].len;
        p.rkey ^= bad[i].flip;
        assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, bad[i].code);
        forge_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_operations),
        cmocka_unit_test(test_masks_of_a_swap),
        cmocka_unit_test(test_fields_of_an_addition),
        cmocka_unit_test(test_four_bytes_swap),
        cmocka_unit_test(test_compare_and_swap),
        cmocka_unit_test(test_fetch_and_add),
        cmocka_unit_test(test_masked_operations),
        cmocka_unit_test(test_rights_of_queue_pair_and_key_apart),
        cmocka_unit_test(test_another_domain),
        cmocka_unit_test(test_alignment_and_bounds),
        cmocka_unit_test(test_misaligned_memory),
        cmocka_unit_test(test_region_that_goes_before_the_answer_leaves),
        cmocka_unit_test(test_atomic_write),
        cmocka_unit_test(test_atomic_write_refused),
        cmocka_unit_test(test_atomic_write_of_another_length),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_flush_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
