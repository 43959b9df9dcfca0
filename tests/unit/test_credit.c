// SPDX-License-Identifier: Apache-2.0
// Credits as a responder tells them: which count, to whom, and when unasked.
#include "forge.h"
#include "wire/credit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct forge *open_depth(uint32_t depth)
{
    struct forge_opts o = forge_defaults();
    o.recv_depth = depth;
    return forge_open(&o);
}

static void post_recvs(struct forge *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        forge_post_recv(f, i, 0, 4096);
}

// A WRITE of nothing: its answer tells, and no receive is used.
static void ask(struct forge *f, uint32_t psn)
{
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, psn, 0, 0);
    p.ack_request = true;
    forge_give(f, &p);
}

// ---- codes

static void test_the_table(void **state)
{
    (void)state;
    static const uint32_t table[] = {0,    1,    2,    3,     4,     6,     8,    12,
                                     16,   24,   32,   48,    64,    96,    128,  192,
                                     256,  384,  512,  768,   1024,  1536,  2048, 3072,
                                     4096, 6144, 8192, 12288, 16384, 24576, 32768};
    for (unsigned code = 0; code <= VB_CREDIT_CODE_MAX; code++) {
        assert_int_equal(vb_credit_decode(code), table[code]);
        assert_int_equal(vb_credit_encode(table[code]), code);
        if (code > 0)
            assert_int_equal(vb_credit_encode(table[code] - 1), code - 1);
    }
}

static void test_codes_never_promise_more(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 70000; n++) {
        unsigned code = vb_credit_encode(n);
        assert_in_range(code, 0, VB_CREDIT_CODE_MAX);
        assert_in_range(vb_credit_decode(code), 0, n);
        if (code < VB_CREDIT_CODE_MAX)
            assert_true(vb_credit_decode(code + 1) > n);
    }
    assert_int_equal(vb_credit_encode(UINT32_MAX), VB_CREDIT_CODE_MAX);
}

// ---- what is told

static void test_the_count_of_receives(void **state)
{
    (void)state;
    static const unsigned codes[] = {0, 1, 2, 3, 4, 4, 5, 5, 6};
    for (uint32_t n = 0; n < sizeof codes / sizeof codes[0]; n++) {
        struct forge *f = open_depth(16);
        post_recvs(f, n);
        ask(f, 500);
        assert_int_equal(f->sent_count, 1);
        forge_expect_credits(f, 0, 500, codes[n]);
        assert_int_equal(forge_sent(f, 0)->msn, 1);
        forge_close(f);
    }
}

static void test_receives_are_used_up(void **state)
{
    (void)state;
    struct forge *f = open_depth(4);
    post_recvs(f, 3);
    for (uint32_t i = 0; i < 3; i++) {
        forge_send(f, VB_RC_SEND_ONLY, 500 + i, 10, 1);
        forge_expect_credits(f, i, 500 + i, 2 - i);
    }
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 503, 10, 1), VB_RX_RNR);
    forge_close(f);
}

static void test_a_ring_that_is_full(void **state)
{
    (void)state;
    struct forge *f = open_depth(64);
    post_recvs(f, 64);
    ask(f, 500);
    forge_expect_credits(f, 0, 500, vb_credit_encode(64));
    // A producer that claims more than its ring holds is not believed.
    f->qp.dbrec[VB_DBREC_RQ] = 0xffffffff;
    for (uint32_t i = 0; i < 64; i++)
        forge_send(f, VB_RC_SEND_ONLY, 501 + i, 1, 1);
    forge_forget(f);
    ask(f, 565);
    forge_expect_credits(f, 0, 565, 0);
    forge_close(f);
}

// A message that is coming in has its receive, but is not counted by the message number yet.
static void test_a_message_in_progress(void **state)
{
    (void)state;
    struct forge *f = open_depth(8);
    post_recvs(f, 2);
    uint8_t payload[1024] = {0};
    struct vb_packet p = forge_packet(f, VB_RC_SEND_FIRST, 500);
    p.payload = payload;
    p.payload_len = sizeof payload;
    p.ack_request = true;
    forge_give(f, &p);
    forge_expect_credits(f, 0, 500, 2);
    assert_int_equal(forge_sent(f, 0)->msn, 0);
    forge_send(f, VB_RC_SEND_LAST, 501, 10, 1);
    forge_expect_credits(f, 1, 501, 1);
    assert_int_equal(forge_sent(f, 1)->msn, 1); // the same limit
    forge_close(f);
}

static void test_answers_with_data_tell_too(void **state)
{
    (void)state;
    struct forge_opts o =
        forge_rights(VB_REMOTE_READ | VB_REMOTE_ATOMIC, VB_REMOTE_READ | VB_REMOTE_ATOMIC);
    struct forge *f = forge_open(&o);
    post_recvs(f, 3);
    struct vb_packet p = forge_reth(f, VB_RC_READ_REQUEST, 500, 0, 3000);
    forge_give(f, &p);
    assert_int_equal(f->sent_count, 3);
    assert_int_equal(forge_sent(f, 0)->syndrome, 3);
    assert_int_equal(forge_sent(f, 2)->syndrome, 3);
    p = forge_atomic(f, VB_RC_FETCH_ADD, 503, 8, 1, 0);
    forge_give(f, &p);
    assert_int_equal(forge_sent(f, 3)->opcode, VB_RC_ATOMIC_ACK);
    assert_int_equal(forge_sent(f, 3)->syndrome, 3);
    forge_close(f);
}

static void test_who_tells_nothing(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.srq_depth = 8;
    struct forge *f = forge_open(&o);
    forge_post_srq(f, 1, 0, 100);
    ask(f, 500);
    forge_expect_credits(f, 0, 500, VB_AETH_CREDITS_INVALID);
    forge_close(f);
    o.srq_depth = 0;
    o.no_credits = true;
    f = forge_open(&o);
    ask(f, 500);
    forge_expect_credits(f, 0, 500, VB_AETH_CREDITS_INVALID);
    forge_forget(f);
    post_recvs(f, 3); // nor later, unasked
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

// ---- unasked

static void test_new_receives_are_told(void **state)
{
    (void)state;
    struct forge *f = open_depth(16);
    ask(f, 500);
    forge_expect_credits(f, 0, 500, 0);
    forge_forget(f);
    post_recvs(f, 3);
    forge_run(f);
    assert_int_equal(f->sent_count, 1); // one for all three
    forge_expect_credits(f, 0, 500, 3);
    assert_int_equal(forge_sent(f, 0)->msn, 1);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_close(f);
}

static void test_before_anything_was_told(void **state)
{
    (void)state;
    struct forge *f = open_depth(16);
    post_recvs(f, 3);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

static void test_while_only_receiving(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.state = VB_QPS_RTR;
    struct forge *f = forge_open(&o);
    ask(f, 500);
    forge_forget(f);
    post_recvs(f, 1);
    forge_run(f);
    forge_expect_credits(f, 0, 500, 1);
    forge_close(f);
}

// Few more are not worth a packet: the next ACK will tell of them.
static void test_not_for_a_few_more(void **state)
{
    (void)state;
    struct forge *f = open_depth(64);
    post_recvs(f, 4);
    ask(f, 500);
    forge_forget(f);
    post_recvs(f, 4); // twice as many
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    post_recvs(f, 1);
    forge_run(f);
    assert_int_equal(f->sent_count, 1);
    forge_expect_credits(f, 0, 500, vb_credit_encode(9));
    forge_close(f);
}

static void test_not_to_who_has_plenty(void **state)
{
    (void)state;
    struct forge *f = open_depth(256);
    post_recvs(f, 16);
    ask(f, 500);
    forge_forget(f);
    post_recvs(f, 200);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

static void test_not_on_a_failed_connection(void **state)
{
    (void)state;
    struct forge *f = open_depth(16);
    ask(f, 500);
    forge_forget(f);
    forge_modify(f, VB_QPS_ERR);
    post_recvs(f, 1);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_expect_recv(f, 0, VB_WC_FLUSHED, UINT32_MAX);
    forge_modify(f, VB_QPS_RESET);
    assert_false(f->ctx->resp.told); // the next peer has heard nothing yet
    forge_close(f);
}

// A NAK that is owed when receives are posted says nothing of them: an ACK follows it.
static void test_behind_a_nak(void **state)
{
    (void)state;
    for (uint32_t posted = 0; posted <= 2; posted += 2) {
        struct forge *f = open_depth(16);
        ask(f, 500);
        forge_forget(f);
        struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 505);
        forge_queue(f, &p);
        post_recvs(f, posted);
        forge_run(f);
        forge_expect_nak(f, 0, 501, VB_NAK_PSN_SEQUENCE);
        assert_int_equal(f->sent_count, posted ? 2 : 1);
        if (posted)
            forge_expect_credits(f, 1, 500, posted);
        forge_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table),
        cmocka_unit_test(test_codes_never_promise_more),
        cmocka_unit_test(test_the_count_of_receives),
        cmocka_unit_test(test_receives_are_used_up),
        cmocka_unit_test(test_a_ring_that_is_full),
        cmocka_unit_test(test_a_message_in_progress),
        cmocka_unit_test(test_answers_with_data_tell_too),
        cmocka_unit_test(test_who_tells_nothing),
        cmocka_unit_test(test_new_receives_are_told),
        cmocka_unit_test(test_before_anything_was_told),
        cmocka_unit_test(test_while_only_receiving),
        cmocka_unit_test(test_not_for_a_few_more),
        cmocka_unit_test(test_not_to_who_has_plenty),
        cmocka_unit_test(test_not_on_a_failed_connection),
        cmocka_unit_test(test_behind_a_nak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
