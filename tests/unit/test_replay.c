// SPDX-License-Identifier: Apache-2.0
// Requests that have an answer of their own at the responder: how many there may be, the order in
// which answers leave, and duplicates at every moment.
#include "base/bytes.h"
#include "forge.h"

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

static struct vb_packet flush(const struct forge *f, uint32_t psn, uint8_t type, uint8_t level)
{
    struct vb_packet p = forge_reth(f, VB_RC_FLUSH, psn, 0, 64);
    p.flush_type = type;
    p.flush_level = level;
    p.ack_request = true;
    return p;
}

// ---- replays

// A duplicate is answered from what was kept, whatever the memory holds by then.
static void test_duplicates_after_the_answer(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    forge_set_word(f, 0, 10);
    struct vb_packet add = forge_atomic(f, VB_RC_FETCH_ADD, 0xfffffe, 0, 1, 0);
    struct vb_packet set = atomic_write(f, 0xffffff, 8);
    struct vb_packet fl = flush(f, 0, 1, 0);
    forge_give(f, &add);
    forge_give(f, &set);
    forge_give(f, &fl);
    forge_set_word(f, 0, 99);
    forge_set_word(f, 8, 0);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0);
    for (uint32_t again = 0; again < 3; again++) {
        forge_forget(f);
        assert_int_equal(forge_give(f, &set), VB_RX_DUPLICATE);
        assert_int_equal(forge_give(f, &add), VB_RX_DUPLICATE);
        assert_int_equal(forge_give(f, &fl), VB_RX_DUPLICATE);
        assert_int_equal(f->sent_count, 3);
        expect_done_answer(f, 0, 0xffffff);
        assert_int_equal(forge_sent(f, 1)->opcode, VB_RC_ATOMIC_ACK);
        assert_int_equal(forge_sent(f, 1)->atomic_old, 10);
        assert_int_equal(forge_sent(f, 1)->psn, 0xfffffe);
        expect_done_answer(f, 2, 0);
    }
    assert_int_equal(forge_word(f, 0), 99);
    assert_int_equal(forge_word(f, 8), 0);
    assert_int_equal(forge_counters(f)->rx_atomic_requests, 1);
    forge_close(f);
}

// While the answer still waits to leave, a duplicate adds nothing; answers leave in order.
static void test_duplicates_before_the_answer(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    for (uint32_t i = 0; i < 3; i++) {
        struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 500 + i, 0, 1, 0);
        forge_queue(f, &p);
        forge_queue(f, &p);
    }
    struct vb_packet first = forge_atomic(f, VB_RC_FETCH_ADD, 500, 0, 1, 0);
    forge_queue(f, &first);
    forge_run(f); // all frames are judged before anything is sent
    assert_int_equal(forge_word(f, 0), 3);
    assert_int_equal(f->sent_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(forge_sent(f, i)->psn, 500 + i);
        assert_int_equal(forge_sent(f, i)->atomic_old, i);
    }
    forge_close(f);
}

// Sixteen results are kept; what is older is not answered, and not executed.
static void test_duplicates_that_are_forgotten(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffff8);
    for (uint32_t i = 0; i < 17; i++) {
        struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 0xfffff8 + i, 0, 1, 0);
        assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    }
    forge_forget(f);
    for (uint32_t i = 0; i < 17; i++) {
        struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 0xfffff8 + i, 0, 1, 0);
        assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE);
        assert_int_equal(f->sent_count, i); // all but the first
        if (i > 0)
            assert_int_equal(forge_sent(f, i - 1)->atomic_old, i);
    }
    assert_int_equal(forge_word(f, 0), 17);
    forge_close(f);
}

// A duplicate atomic at the number of what was no atomic: nothing to answer from.
static void test_duplicate_of_another_kind(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, 0, 10);
    forge_send(f, VB_RC_SEND_ONLY, 500, 10, 1);
    forge_forget(f);
    struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 500, 64, 1, 0);
    assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_word(f, 64), 0);
    forge_close(f);
}

// ---- limits and order at the responder

static void test_more_than_agreed(void **state)
{
    (void)state;
    static const uint8_t limits[] = {0, 1, 2, 16};
    for (uint32_t l = 0; l < 4; l++)
        for (uint32_t over = 0; over < 2; over++) {
            struct forge_opts o = forge_rights(VB_ACCESS_REMOTE, VB_ACCESS_REMOTE);
            o.reads_in = limits[l];
            struct forge *f = forge_open(&o);
            uint32_t count = limits[l] + over;
            for (uint32_t i = 0; i < count; i++) {
                struct vb_packet p = i % 3 == 0 ? forge_atomic(f, VB_RC_FETCH_ADD, 500 + i, 0, 1, 0)
                                     : i % 3 == 1
                                         ? flush(f, 500 + i, 1, 0)
                                         : forge_reth(f, VB_RC_READ_REQUEST, 500 + i, 64, 8);
                forge_queue(f, &p);
            }
            forge_run(f);
            assert_int_equal(f->sent_count, count);
            if (over)
                forge_expect_nak(f, limits[l], 500 + limits[l], VB_NAK_INVALID_REQUEST);
            assert_int_equal(forge_state(f), over ? VB_QPS_ERR : VB_QPS_RTS);
            forge_close(f);
        }
}

// Answered ones do not count any more.
static void test_as_many_as_agreed_again_and_again(void **state)
{
    (void)state;
    struct forge_opts o = forge_rights(VB_ACCESS_REMOTE, VB_ACCESS_REMOTE);
    o.reads_in = 1;
    o.peer_psn = 0xfffff0;
    struct forge *f = forge_open(&o);
    for (uint32_t i = 0; i < 50; i++) {
        struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 0xfffff0 + i, 0, 1, 0);
        assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
        assert_int_equal(forge_sent(f, i)->atomic_old, i);
    }
    forge_close(f);
}

static void test_answers_of_all_kinds_in_order(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffffe);
    struct vb_packet p[5] = {forge_atomic(f, VB_RC_FETCH_ADD, 0xfffffe, 0, 1, 0),
                             forge_reth(f, VB_RC_READ_REQUEST, 0xffffff, 0, 1025),
                             forge_reth(f, VB_RC_WRITE_ONLY, 1, 128, 0), flush(f, 2, 1, 0),
                             forge_reth(f, VB_RC_WRITE_ONLY, 3, 128, 0)};
    p[2].ack_request = p[4].ack_request = true;
    for (uint32_t i = 0; i < 5; i++)
        forge_queue(f, &p[i]);
    forge_run(f);
    static const uint8_t opcode[] = {VB_RC_ATOMIC_ACK, VB_RC_READ_RESP_FIRST, VB_RC_READ_RESP_LAST,
                                     VB_RC_READ_RESP_ONLY, VB_RC_ACK};
    static const uint32_t psn[] = {0xfffffe, 0xffffff, 0, 2, 3};
    assert_int_equal(f->sent_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(forge_sent(f, i)->opcode, opcode[i]);
        assert_int_equal(forge_sent(f, i)->psn, psn[i]);
    }
    uint64_t read;
    memcpy(&read, forge_sent(f, 1)->payload, sizeof read);
    assert_int_equal(read, 1); // the READ sees what the atomic before it did
    forge_close(f);
}

// A request ahead is not executed, and the complaint leaves behind the answers owed.
static void test_ahead_is_not_executed(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_packet a = forge_atomic(f, VB_RC_FETCH_ADD, 500, 0, 1, 0);
    struct vb_packet c = forge_atomic(f, VB_RC_FETCH_ADD, 502, 0, 4, 0);
    forge_queue(f, &a);
    forge_queue(f, &c);
    forge_run(f);
    assert_int_equal(forge_word(f, 0), 1);
    assert_int_equal(forge_sent(f, 0)->opcode, VB_RC_ATOMIC_ACK);
    forge_expect_nak(f, 1, 501, VB_NAK_PSN_SEQUENCE);
    forge_close(f);
}

// Duplicates of READs fill the ring of answers; a new request takes the place of the oldest.
static void test_a_flood_of_duplicates(void **state)
{
    (void)state;
    struct forge *f = open_at(0xfffff0);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 0xfffff0, 0, 60 * 1024);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(f->sent_count, 60);
    forge_forget(f);
    for (uint32_t i = 0; i < 60; i++) { // each for one packet of it, the last first
        p = forge_reth(f, VB_RC_READ_REQUEST, 0xfffff0 + 59 - i, 1024 * (59 - i), 1024);
        forge_queue(f, &p);
    }
    for (uint32_t i = 0; i < 3; i++) {
        p = forge_atomic(f, VB_RC_FETCH_ADD, 0xfffff0 + 60 + i, FORGE_MEMORY - 8, 1, 0);
        forge_queue(f, &p);
    }
    forge_run(f);
    assert_int_equal(f->sent_count, VB_READ_JOBS);
    for (uint32_t i = 0; i < VB_READ_JOBS; i++) { // in order, the atomics at the end
        assert_int_equal(forge_sent(f, i)->psn, (0xfffff0 + 60 + 3 - VB_READ_JOBS + i) & 0xffffff);
        assert_int_equal(forge_sent(f, i)->opcode,
                         i < VB_READ_JOBS - 3 ? VB_RC_READ_RESP_ONLY : VB_RC_ATOMIC_ACK);
    }
    assert_int_equal(forge_word(f, FORGE_MEMORY - 8), 3);
    forge_close(f);
}

// A READ in progress is not disturbed by a duplicate of an atomic before it.
static void test_duplicate_atomic_while_a_read_is_answered(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_packet add = forge_atomic(f, VB_RC_FETCH_ADD, 500, 0, 1, 0);
    forge_give(f, &add);
    forge_forget(f);
    struct vb_packet read = forge_reth(f, VB_RC_READ_REQUEST, 501, 64, 3000);
    forge_queue(f, &read);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_OUT);
    f->feed_count = 0;
    free((void *)(uintptr_t)f->feed[0].data);
    assert_int_equal(forge_give(f, &add), VB_RX_DUPLICATE);
    static const uint32_t psn[] = {501, 500, 502, 503};
    assert_int_equal(f->sent_count, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(forge_sent(f, i)->psn, psn[i]);
    assert_int_equal(forge_sent(f, 2)->opcode, VB_RC_READ_RESP_MIDDLE);
    assert_int_equal(forge_word(f, 0), 1);
    forge_close(f);
}

// After RESET nothing of the former life is answered.
static void test_results_do_not_survive_reset(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_packet add = forge_atomic(f, VB_RC_FETCH_ADD, 500, 0, 1, 0);
    forge_give(f, &add);
    f->opts.peer_psn = 501;
    for (enum vb_qp_state s = VB_QPS_RESET; s <= VB_QPS_RTS; s++)
        forge_modify(f, s);
    forge_forget(f);
    assert_int_equal(forge_give(f, &add), VB_RX_DUPLICATE);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

// After 2^24 packets two kept results can have the same number: the newest one is meant.
static void test_the_newest_result_of_a_number(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_responder *r = &f->ctx->resp;
    r->results = VB_RD_ATOMIC_MAX + 1; // so that the newest lies first in the ring
    r->result[5] = (struct vb_result){.old = 1, .psn = 499, .kind = VB_JOB_ATOMIC};
    r->result[0] = (struct vb_result){.old = 2, .psn = 499, .kind = VB_JOB_ATOMIC};
    struct vb_packet p = forge_packet(f, VB_RC_FETCH_ADD, 499);
    assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE);
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(forge_sent(f, 0)->atomic_old, 2);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_duplicates_after_the_answer),
        cmocka_unit_test(test_duplicates_before_the_answer),
        cmocka_unit_test(test_duplicates_that_are_forgotten),
        cmocka_unit_test(test_duplicate_of_another_kind),
        cmocka_unit_test(test_more_than_agreed),
        cmocka_unit_test(test_as_many_as_agreed_again_and_again),
        cmocka_unit_test(test_answers_of_all_kinds_in_order),
        cmocka_unit_test(test_ahead_is_not_executed),
        cmocka_unit_test(test_a_flood_of_duplicates),
        cmocka_unit_test(test_duplicate_atomic_while_a_read_is_answered),
        cmocka_unit_test(test_the_newest_result_of_a_number),
        cmocka_unit_test(test_results_do_not_survive_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
