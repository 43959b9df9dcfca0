// SPDX-License-Identifier: Apache-2.0
// Shared receive queues: a linked list of entries that may come back in any order, its limit, and
// doorbell records that claim too much.
#include "base/bytes.h"
#include "forge.h"

#include <errno.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct forge *open_depth(uint32_t depth)
{
    struct forge_opts o = forge_defaults();
    o.srq_depth = depth;
    return forge_open(&o);
}

static int try_post(struct forge *f, uint64_t wr_id)
{
    const struct vb_recv_wr wr = {.wr_id = wr_id};
    return vb_driver_post_srq(&f->srq, &wr, 1);
}

// The index of the entry that the next receive completion names, without consuming it.
static uint32_t peek_index(const struct forge *f)
{
    const struct vb_cqe *cqe = (const void *)(f->recv_cq.ring + f->recv_cq.ci * VB_CQE_BYTES);
    return be16toh(cqe->wqe_counter);
}

static void test_receives_in_list_order(void **state)
{
    (void)state;
    struct forge *f = open_depth(4);
    for (uint32_t i = 0; i < 3; i++)
        forge_post_srq(f, 10 + i, i * 100, 100);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500 + i, 100, (uint8_t)i), VB_RX_APPLIED);
        const struct vb_cqe *cqe = (const void *)(f->recv_cq.ring + i * VB_CQE_BYTES);
        assert_int_equal(be32toh(cqe->srqn_uidx), f->srqn);
        assert_int_equal(peek_index(f), i);
        forge_expect_recv(f, 10 + i, VB_WC_OK, 100);
        assert_true(forge_filled(f->memory + i * 100, 100, (uint8_t)i));
    }
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 503, 1, 1), VB_RX_RNR); // none is left
    forge_post_srq(f, 20, 0, 100);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 503, 1, 1), VB_RX_APPLIED);
    forge_expect_recv(f, 20, VB_WC_OK, 1);
    forge_close(f);
}

static void test_a_full_ring(void **state)
{
    (void)state;
    static const uint32_t depths[] = {1, 3, 4, 7};
    static const uint32_t hold[] = {1, 3, 7, 7}; // one less than a power of two
    for (uint32_t d = 0; d < 4; d++) {
        struct forge *f = open_depth(depths[d]);
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < hold[d]; i++)
                assert_int_equal(try_post(f, i), 1);
            assert_int_equal(try_post(f, 99), 0);
            for (uint32_t i = 0; i < hold[d]; i++) {
                forge_send(f, VB_RC_SEND_ONLY, 500 + round * hold[d] + i, 0, 1);
                forge_expect_recv(f, i, VB_WC_OK, 0);
            }
        }
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500 + 3 * hold[d], 0, 1), VB_RX_RNR);
        forge_close(f);
    }
}

static void test_limits_of_creation(void **state)
{
    (void)state;
    struct vb_driver_srq srq;
    assert_int_equal(vb_driver_srq_init(&srq, 0, 1), -EINVAL);
    assert_int_equal(vb_driver_srq_init(&srq, VB_RQ_ENTRIES_MAX, 1), -EINVAL);
    assert_int_equal(vb_driver_srq_init(&srq, 4, VB_MAX_SGE + 1), -EINVAL);
    struct forge *f = open_depth(4);
    const struct vb_srqc_attr good = {
        .pd = f->pd, .ring = f->srq.ring, .entries = 4, .stride_bytes = 32, .dbrec = f->srq.dbrec};
    for (uint32_t i = 0; i < 11; i++) {
        struct vb_srqc_attr a = good;
        uint32_t srqn;
        int want = -EINVAL;
        switch (i) {
        case 0: a.ring = NULL; break;
        case 1: a.dbrec = NULL; break;
        case 2: a.entries = 0; break;
        case 3: a.entries = 3; break;
        case 4: a.entries = 2 * VB_RQ_ENTRIES_MAX; break;
        case 5: a.stride_bytes = 16; break;
        case 6: a.stride_bytes = 48; break;
        case 7: a.stride_bytes = 1024; break;
        case 8: a.xrcd = 1; break; // without a completion queue
        case 9:
            a.pd = 99;
            want = -ENOENT;
            break;
        default:
            a.cqn = 99;
            want = -ENOENT;
            break;
        }
        assert_int_equal(vb_dev_srq_create(f->dev, &a, &srqn), want);
    }
    uint32_t srqn;
    assert_int_equal(vb_dev_srq_create(f->dev, &good, &srqn), 0);
    assert_int_equal(vb_dev_pd_destroy(f->dev, f->pd), -EBUSY);
    assert_int_equal(vb_dev_srq_destroy(f->dev, srqn), 0);
    assert_int_equal(vb_dev_srq_destroy(f->dev, srqn), -ENOENT);
    assert_int_equal(vb_dev_srq_destroy(f->dev, 0), -ENOENT);
    assert_int_equal(vb_dev_srq_arm(f->dev, srqn, 1), -ENOENT);
    forge_close(f);
}

static void test_in_use_it_stays(void **state)
{
    (void)state;
    struct forge *f = open_depth(4);
    assert_int_equal(vb_dev_srq_destroy(f->dev, f->srqn), -EBUSY);
    assert_int_equal(vb_dev_qp_destroy(f->dev, f->qp.qpn), 0);
    assert_int_equal(vb_dev_srq_destroy(f->dev, f->srqn), 0);
    forge_close(f);
}

// ---- entries that come back in another order

// Two queue pairs' completions, polled in another order than the entries were taken.
struct out_of_order {
    struct forge *f;
    uint32_t held[8]; // indices of entries taken and not given back
    uint32_t count;
};

static void give_back(struct out_of_order *o, uint32_t i)
{
    struct forge *f = o->f;
    // As the driver does when it polls a completion.
    struct vb_wqe_srq_next *tail = (void *)(f->srq.ring + (size_t)f->srq.tail * f->srq.stride);
    tail->next = htobe16((uint16_t)o->held[i]);
    f->srq.tail = o->held[i];
    o->held[i] = o->held[--o->count];
}

static void test_given_back_in_any_order(void **state)
{
    (void)state;
    struct out_of_order o = {.f = open_depth(7)};
    struct forge *f = o.f;
    struct vb_recv recv;
    uint64_t posted = 0, taken = 0, expect[1000];
    uint32_t seed = 1;
    while (taken < 900) {
        seed = seed * 1103515245 + 12345;
        uint32_t what = seed >> 16 & 3;
        if (what == 0 && posted < 1000 && try_post(f, posted) == 1) {
            expect[posted] = posted;
            posted++;
        } else if (what == 1 && taken < posted) {
            assert_true(vb_srqc_load(f->pu, vb_dev_srq(f->dev, f->srqn), &recv));
            assert_int_equal(f->srq.wr_id[recv.counter], expect[taken]); // first posted, first
            taken++;
            o.held[o.count++] = (uint32_t)recv.counter;
        } else if (what == 2 && o.count > 0) {
            give_back(&o, (seed >> 20) % o.count);
        }
        if (taken == posted)
            assert_false(vb_srqc_load(f->pu, vb_dev_srq(f->dev, f->srqn), &recv));
    }
    forge_close(f);
}

// ---- what a doorbell record may claim

static void test_overlong_claims(void **state)
{
    (void)state;
    struct forge *f = open_depth(7); // eight entries
    static const uint32_t claims[] = {9, 0x8000, 0xffff};
    for (uint32_t i = 0; i < 3; i++) {
        *f->srq.dbrec = htobe32(claims[i]);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 0, 1), VB_RX_RNR);
    }
    forge_post_srq(f, 1, 0, 100); // an honest one
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 4, 1), VB_RX_APPLIED);
    forge_expect_recv(f, 1, VB_WC_OK, 4);
    *f->srq.dbrec = htobe32(0); // going back takes nothing away and gives nothing
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 501, 0, 1), VB_RX_RNR);
    *f->srq.dbrec = htobe32(0xabcd0002); // of the word 16 bits count
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 501, 0, 1), VB_RX_APPLIED);
    forge_close(f);
}

// Indices that lead out of the ring lead back into it.
static void test_links_out_of_the_ring(void **state)
{
    (void)state;
    struct forge *f = open_depth(3);
    for (uint32_t i = 0; i < 4; i++)
        ((struct vb_wqe_srq_next *)(void *)(f->srq.ring + i * f->srq.stride))->next = 0xffff;
    for (uint32_t i = 0; i < 20; i++) {
        *f->srq.dbrec = htobe32(i + 1);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500 + i, 0, 1), VB_RX_APPLIED);
    }
    forge_close(f);
}

static void test_the_counter_wraps(void **state)
{
    (void)state;
    struct forge *f = open_depth(3);
    struct vb_srqc *srq = vb_dev_srq(f->dev, f->srqn);
    srq->taken = srq->end = f->srq.posted = 0xfffe;
    for (uint32_t i = 0; i < 6; i++) {
        forge_post_srq(f, i, 0, 8);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500 + i, 8, 1), VB_RX_APPLIED);
        forge_expect_recv(f, i, VB_WC_OK, 8);
    }
    forge_close(f);
}

// ---- the limit

static void test_the_limit(void **state)
{
    (void)state;
    struct forge *f = open_depth(7);
    for (uint32_t i = 0; i < 5; i++)
        forge_post_srq(f, i, 0, 8);
    assert_int_equal(vb_dev_srq_arm(f->dev, f->srqn, 3), 0);
    for (uint32_t i = 0; i < 2; i++) { // four left, three left
        forge_send(f, VB_RC_SEND_ONLY, 500 + i, 0, 1);
        forge_expect_no_event(f);
    }
    forge_send(f, VB_RC_SEND_ONLY, 502, 0, 1); // two
    forge_expect_event(f, VB_EVENT_SRQ_LIMIT, f->srqn);
    forge_send(f, VB_RC_SEND_ONLY, 503, 0, 1); // once only
    forge_expect_no_event(f);
    forge_close(f);
}

// What was posted since counts, though nobody rang.
static void test_the_limit_sees_new_entries(void **state)
{
    (void)state;
    struct forge *f = open_depth(7);
    for (uint32_t i = 0; i < 2; i++)
        forge_post_srq(f, i, 0, 8);
    assert_int_equal(vb_dev_srq_arm(f->dev, f->srqn, 2), 0);
    forge_send(f, VB_RC_SEND_ONLY, 500, 0, 1);
    forge_expect_event(f, VB_EVENT_SRQ_LIMIT, f->srqn);
    assert_int_equal(vb_dev_srq_arm(f->dev, f->srqn, 2), 0);
    for (uint32_t i = 0; i < 3; i++)
        forge_post_srq(f, i, 0, 8);
    forge_send(f, VB_RC_SEND_ONLY, 501, 0, 1);
    forge_expect_no_event(f); // three are left
    assert_int_equal(vb_dev_srq_arm(f->dev, f->srqn, 0), 0);
    for (uint32_t i = 0; i < 3; i++)
        forge_send(f, VB_RC_SEND_ONLY, 502 + i, 0, 1);
    forge_expect_no_event(f); // disarmed
    assert_int_equal(vb_dev_srq_arm(f->dev, f->srqn, f->srq.entries), -EINVAL);
    assert_int_equal(vb_dev_srq_arm(f->dev, f->srqn, f->srq.entries - 1), 0);
    forge_close(f);
}

// ---- domains and failures

// The buffers are judged by the shared queue's domain, not by the queue pair's.
static void test_the_domain_of_the_buffers(void **state)
{
    (void)state;
    for (uint32_t own = 0; own < 2; own++) {
        struct forge *f = open_depth(3);
        uint32_t pd, key;
        assert_int_equal(vb_dev_pd_create(f->dev, &pd), 0);
        const struct vb_mkey_attr attr = {.pd = pd,
                                          .access = VB_LOCAL_WRITE,
                                          .start = forge_addr(f, 0),
                                          .len = 64,
                                          .base = f->memory};
        assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
        vb_dev_srq(f->dev, f->srqn)->pd = own ? pd : f->pd;
        const struct vb_sge sge = {forge_addr(f, 0), 8, key};
        const struct vb_recv_wr wr = {.wr_id = 1, .sge = &sge, .num_sge = 1};
        assert_int_equal(vb_driver_post_srq(&f->srq, &wr, 1), 1);
        forge_send(f, VB_RC_SEND_ONLY, 500, 8, 1);
        forge_expect_recv(f, 1, own ? VB_WC_OK : VB_WC_LOCAL_PROTECTION, own ? 8 : 0);
        vb_dev_srq(f->dev, f->srqn)->pd = f->pd;
        forge_close(f);
    }
}

// A failing queue pair gives back the entry in use, and leaves the others for other queue pairs.
static void test_failure_leaves_the_rest(void **state)
{
    (void)state;
    struct forge *f = open_depth(7);
    for (uint32_t i = 0; i < 3; i++)
        forge_post_srq(f, i, 0, 4000);
    forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    forge_expect_recv(f, 0, VB_WC_FLUSHED, 0);
    forge_expect_none(f);
    forge_expect_qp_event(f, VB_EVENT_QP_LAST_WQE);
    forge_expect_no_event(f);
    struct vb_recv recv;
    assert_true(vb_srqc_load(f->pu, vb_dev_srq(f->dev, f->srqn), &recv));
    assert_int_equal(f->srq.wr_id[recv.counter], 1);
    forge_close(f);
}

// Every failure says so once, whatever came before it.
static void test_the_last_entry_is_told_every_time(void **state)
{
    (void)state;
    struct forge *f = open_depth(3);
    for (uint32_t round = 0; round < 3; round++) {
        if (round == 2) { // by way of a drained send queue
            forge_modify(f, VB_QPS_SQD);
            forge_run(f);
            forge_expect_qp_event(f, VB_EVENT_SQ_DRAINED);
        }
        forge_modify(f, VB_QPS_ERR);
        forge_run(f);
        forge_expect_qp_event(f, VB_EVENT_QP_LAST_WQE);
        forge_run(f);
        forge_expect_no_event(f);
        for (enum vb_qp_state s = VB_QPS_RESET; s <= VB_QPS_RTS; s++)
            forge_modify(f, s);
    }
    forge_close(f);
}

static void test_without_a_shared_queue_no_last_entry(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    forge_modify(f, VB_QPS_ERR);
    forge_run(f);
    forge_expect_no_event(f);
    forge_close(f);
}

// Completions that nobody polled before the queue pair goes back to RESET: their entries are free.
static void test_reset_frees_entries(void **state)
{
    (void)state;
    struct forge *f = open_depth(7);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 7; i++)
            assert_int_equal(try_post(f, 10 * round + i), 1);
        assert_int_equal(try_post(f, 99), 0);
        for (uint32_t i = 0; i < 7; i++)
            assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500 + i, 0, 1), VB_RX_APPLIED);
        for (uint32_t i = 0; i < round; i++)
            forge_expect_recv(f, 10 * round + i, VB_WC_OK, 0);
        forge_modify(f, VB_QPS_RESET);
        vb_driver_cq_clean(&f->recv_cq, f->qp.qpn, &f->srq);
        forge_expect_none(f);
        for (enum vb_qp_state s = VB_QPS_INIT; s <= VB_QPS_RTS; s++)
            forge_modify(f, s);
    }
    // Those of an XRC queue stay: they are not the queue pair's.
    assert_int_equal(try_post(f, 1), 1);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 0, 1), VB_RX_APPLIED);
    vb_driver_cq_clean(&f->recv_cq, f->qp.qpn, NULL);
    forge_expect_recv(f, 1, VB_WC_OK, 0);
    forge_close(f);
}

static void test_write_imm_and_datagrams(void **state)
{
    (void)state;
    struct forge *f = open_depth(3);
    forge_post_srq(f, 1, 0, 4);
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY_IMM, 500, 64, 0);
    p.imm = 3;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    struct vb_wc wc = forge_next_recv(f);
    assert_int_equal(wc.wr_id, 1);
    assert_int_equal(wc.opcode, VB_WC_RECV_WRITE);
    forge_close(f);
    struct forge_opts o = forge_defaults();
    o.type = VB_QPT_UD;
    o.srq_depth = 3;
    f = forge_open(&o);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 4, 1), VB_RX_RNR);
    forge_post_srq(f, 2, 0, 44);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 4, 1), VB_RX_APPLIED);
    forge_expect_recv(f, 2, VB_WC_OK, 44);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receives_in_list_order),
        cmocka_unit_test(test_a_full_ring),
        cmocka_unit_test(test_limits_of_creation),
        cmocka_unit_test(test_in_use_it_stays),
        cmocka_unit_test(test_given_back_in_any_order),
        cmocka_unit_test(test_overlong_claims),
        cmocka_unit_test(test_links_out_of_the_ring),
        cmocka_unit_test(test_the_counter_wraps),
        cmocka_unit_test(test_the_limit),
        cmocka_unit_test(test_the_limit_sees_new_entries),
        cmocka_unit_test(test_the_domain_of_the_buffers),
        cmocka_unit_test(test_failure_leaves_the_rest),
        cmocka_unit_test(test_the_last_entry_is_told_every_time),
        cmocka_unit_test(test_without_a_shared_queue_no_last_entry),
        cmocka_unit_test(test_reset_frees_entries),
        cmocka_unit_test(test_write_imm_and_datagrams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
