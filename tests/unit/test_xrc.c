// SPDX-License-Identifier: Apache-2.0
// Extended reliable connections: the half that sends names a shared receive queue in each request,
// the half that receives works in that queue's domain.
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

enum {
    XRCD = 7,
    ALL = VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC,
};

static struct forge *open_target(void)
{
    struct forge_opts o = forge_defaults();
    o.type = VB_QPT_XRC_TGT;
    o.srq_depth = 7;
    o.xrcd = XRCD;
    o.access = ALL;
    o.key_access = VB_LOCAL_WRITE | ALL;
    return forge_open(&o);
}

static struct forge *open_sender(void)
{
    struct forge_opts o = forge_defaults();
    o.type = VB_QPT_XRC_INI;
    o.our_psn = 0xfffffe;
    return forge_open(&o);
}

// Another shared queue, with rings of its own.
struct other {
    struct vb_driver_srq driver;
    uint32_t srqn, pd;
};

static struct other make_srq(struct forge *f, uint32_t xrcd)
{
    struct other s = {0};
    assert_int_equal(vb_driver_srq_init(&s.driver, 3, 1), 0);
    assert_int_equal(vb_dev_pd_create(f->dev, &s.pd), 0);
    const struct vb_srqc_attr attr = {.pd = s.pd,
                                      .ring = s.driver.ring,
                                      .entries = s.driver.entries,
                                      .stride_bytes = s.driver.stride,
                                      .dbrec = s.driver.dbrec,
                                      .xrcd = xrcd,
                                      .cqn = xrcd ? f->recv_cqn : 0};
    assert_int_equal(vb_dev_srq_create(f->dev, &attr, &s.srqn), 0);
    return s;
}

static struct vb_packet request(const struct forge *f, enum vb_opcode opcode, uint32_t psn,
                                uint32_t srqn, uint32_t len)
{
    static const uint8_t payload[VB_MTU_MAX] = {[0 ... VB_MTU_MAX - 1] = 0x5a};
    struct vb_packet p = forge_reth(f, opcode, psn, 0, len);
    p.xrc_srqn = srqn;
    p.payload = payload;
    p.payload_len = vb_opcode_table[p.opcode].facts & VB_OP_PAYLOAD ? len : 0;
    p.ack_request = vb_opcode_table[p.opcode].facts & VB_OP_LAST;
    return p;
}

// ---- the half that sends

static void test_requests_name_the_queue(void **state)
{
    (void)state;
    static const struct {
        enum vb_wr_opcode wr;
        uint8_t opcode;
    } kind[] = {{VB_WR_SEND, VB_RC_SEND_ONLY},           {VB_WR_SEND_IMM, VB_RC_SEND_ONLY_IMM},
                {VB_WR_SEND_INVAL, VB_RC_SEND_ONLY_INV}, {VB_WR_WRITE, VB_RC_WRITE_ONLY},
                {VB_WR_WRITE_IMM, VB_RC_WRITE_ONLY_IMM}, {VB_WR_READ, VB_RC_READ_REQUEST},
                {VB_WR_CAS, VB_RC_COMPARE_SWAP},         {VB_WR_FADD, VB_RC_FETCH_ADD}};
    struct forge *f = open_sender();
    for (uint32_t i = 0; i < 8; i++) {
        const struct vb_sge sge = {forge_addr(f, 0), 8, f->key};
        const struct vb_send_wr wr = {.wr_id = i,
                                      .sge = &sge,
                                      .num_sge = 1,
                                      .opcode = kind[i].wr,
                                      .flags = VB_WR_SIGNALED,
                                      .raddr = 0x1000,
                                      .rkey = 0x2222,
                                      .srqn = 0x123456 + i};
        forge_post_send(f, &wr);
    }
    forge_run(f);
    assert_int_equal(f->sent_count, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(forge_sent(f, i)->opcode, VB_XRC_BASE | kind[i].opcode);
        assert_int_equal(forge_sent(f, i)->xrc_srqn, 0x123456 + i);
        assert_int_equal(forge_sent(f, i)->psn, (0xfffffe + i) & 0xffffff);
    }
    assert_int_equal(forge_ack(f, 2), VB_RX_APPLIED);
    assert_int_equal(forge_response(f, VB_RC_READ_RESP_ONLY, 3, "12345678", 8), VB_RX_APPLIED);
    struct vb_packet a = forge_packet(f, VB_RC_ATOMIC_ACK, 4);
    assert_int_equal(forge_give(f, &a), VB_RX_APPLIED);
    for (uint64_t i = 0; i < 7; i++)
        forge_expect_done(f, i, VB_WC_OK);
    forge_close(f);
}

// Every packet of a long message names it, not only the first.
static void test_all_packets_name_the_queue(void **state)
{
    (void)state;
    struct forge *f = open_sender();
    const struct vb_sge sge = {forge_addr(f, 0), 2500, f->key};
    const struct vb_send_wr wr = {
        .sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND, .srqn = 0xff000009};
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(f->sent_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(forge_sent(f, i)->xrc_srqn, 9); // 24 bits of it
    forge_close(f);
}

static void test_operations_that_xrc_has_not(void **state)
{
    (void)state;
    static const enum vb_wr_opcode bad[] = {VB_WR_MASKED_CAS, VB_WR_MASKED_FADD, VB_WR_ATOMIC_WRITE,
                                            VB_WR_FLUSH};
    for (uint32_t i = 0; i < 4; i++) {
        struct forge *f = open_sender();
        const struct vb_sge sge = {forge_addr(f, 0), 8, f->key};
        const struct vb_send_wr wr = {
            .wr_id = 1, .sge = &sge, .num_sge = bad[i] != VB_WR_FLUSH, .opcode = bad[i]};
        forge_post_send(f, &wr);
        forge_run(f);
        assert_int_equal(f->sent_count, 0);
        forge_expect_done(f, 1, VB_WC_LOCAL_QP_OP);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        forge_close(f);
    }
}

static void test_each_half_hears_its_own_kind(void **state)
{
    (void)state;
    struct forge *f = open_sender();
    forge_post(f, 1, VB_WR_WRITE, 0, 4);
    forge_run(f);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 4, 1), VB_RX_STRANGER);
    struct vb_packet p = forge_packet(f, VB_RC_ACK, 0xfffffe);
    p.opcode = VB_RC_ACK; // of another service
    assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    assert_int_equal(forge_ack(f, 0xfffffe), VB_RX_APPLIED);
    forge_close(f);
    f = open_target();
    forge_post_srq(f, 1, 0, 8);
    assert_int_equal(forge_ack(f, 100), VB_RX_STRANGER);
    p = forge_packet(f, VB_RC_SEND_ONLY, 500);
    p.opcode = VB_RC_SEND_ONLY;
    assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 4, 1), VB_RX_APPLIED);
    forge_close(f);
}

static void test_a_target_sends_nothing(void **state)
{
    (void)state;
    struct forge *f = open_target();
    forge_post(f, 1, VB_WR_SEND, 0, 4);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_expect_done(f, 1, VB_WC_LOCAL_QP_OP);
    forge_close(f);
}

// ---- the half that receives

static void test_sends_into_the_named_queue(void **state)
{
    (void)state;
    struct forge *f = open_target();
    struct other s = make_srq(f, XRCD);
    forge_post_srq(f, 1, 0, 2000);
    struct vb_packet p = request(f, VB_RC_SEND_FIRST, 500, f->srqn, 1024);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    p = request(f, VB_RC_SEND_LAST_IMM, 501, f->srqn, 6);
    p.imm = 5;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    struct vb_wc wc = forge_next_recv(f);
    assert_int_equal(wc.wr_id, 1);
    assert_int_equal(wc.byte_len, 1030);
    assert_int_equal(wc.imm, 5);
    forge_expect_ack(f, 0, 501);
    // The other queue has nothing, and says so; the first one is as it was.
    p = request(f, VB_RC_SEND_ONLY, 502, s.srqn, 4);
    assert_int_equal(forge_give(f, &p), VB_RX_RNR);
    forge_expect_rnr(f, 1, 502, f->opts.rnr_timer);
    forge_post_srq(f, 2, 0, 8);
    p = request(f, VB_RC_SEND_ONLY, 502, f->srqn, 4);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    forge_expect_recv(f, 2, VB_WC_OK, 4);
    forge_close(f);
    vb_driver_srq_fini(&s.driver);
}

static void test_queues_it_may_not_use(void **state)
{
    (void)state;
    static const enum vb_opcode op[] = {VB_RC_SEND_ONLY, VB_RC_WRITE_ONLY, VB_RC_READ_REQUEST,
                                        VB_RC_FETCH_ADD};
    for (uint32_t i = 0; i < 16; i++) {
        struct forge *f = open_target();
        struct other foreign = make_srq(f, XRCD + 1), plain = make_srq(f, 0);
        const uint32_t bad[] = {foreign.srqn, plain.srqn, 0, 0xffffff};
        forge_post_srq(f, 1, 0, 8);
        struct vb_packet p = request(f, op[i % 4], 500, bad[i / 4], 4);
        assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, VB_NAK_INVALID_REQUEST);
        assert_int_equal(f->memory[0], 0);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        forge_expect_none(f);
        forge_close(f);
        vb_driver_srq_fini(&foreign.driver);
        vb_driver_srq_fini(&plain.driver);
    }
}

// Keys are judged in the domain of the queue that is named.
static void test_the_domain_of_keys(void **state)
{
    (void)state;
    static const enum vb_opcode op[] = {VB_RC_WRITE_ONLY, VB_RC_READ_REQUEST, VB_RC_FETCH_ADD};
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t named = 0; named < 2; named++)
            for (uint32_t used = 0; used < 2; used++) {
                struct forge *f = open_target();
                struct other s = make_srq(f, XRCD);
                uint32_t key;
                const struct vb_mkey_attr attr = {.pd = s.pd,
                                                  .access = VB_LOCAL_WRITE | ALL,
                                                  .start = forge_addr(f, 0),
                                                  .len = 64,
                                                  .base = f->memory};
                assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
                struct vb_packet p = request(f, op[i], 500, named ? s.srqn : f->srqn, 8);
                p.rkey = used ? key : f->key;
                bool good = named == used;
                assert_int_equal(forge_give(f, &p), good ? VB_RX_APPLIED : VB_RX_REFUSED);
                if (!good)
                    forge_expect_nak(f, 0, 500, VB_NAK_REMOTE_ACCESS);
                forge_close(f);
                vb_driver_srq_fini(&s.driver);
            }
}

static void test_write_imm_takes_from_the_named_queue(void **state)
{
    (void)state;
    struct forge *f = open_target();
    struct vb_packet p = request(f, VB_RC_WRITE_ONLY_IMM, 500, f->srqn, 4);
    assert_int_equal(forge_give(f, &p), VB_RX_RNR);
    forge_post_srq(f, 1, 8000, 1);
    p.imm = 3;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    struct vb_wc wc = forge_next_recv(f);
    assert_int_equal(wc.opcode, VB_WC_RECV_WRITE);
    assert_int_equal(wc.imm, 3);
    assert_int_equal(wc.byte_len, 4);
    forge_close(f);
}

static void test_atomics_and_reads_are_answered(void **state)
{
    (void)state;
    struct forge *f = open_target();
    f->memory[0] = 41;
    struct vb_packet p = request(f, VB_RC_FETCH_ADD, 500, f->srqn, 0);
    p.swap_add = 1;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(forge_sent(f, 0)->opcode, VB_XRC_BASE | VB_RC_ATOMIC_ACK);
    assert_int_equal(forge_sent(f, 0)->atomic_old, 41);
    assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE);
    assert_int_equal(forge_sent(f, 1)->atomic_old, 41);
    assert_int_equal(f->memory[0], 42);
    p = request(f, VB_RC_READ_REQUEST, 501, f->srqn, 8);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(forge_sent(f, 2)->opcode, VB_XRC_BASE | VB_RC_READ_RESP_ONLY);
    assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE); // again, in the same domain
    assert_int_equal(f->sent_count, 4);
    p.xrc_srqn = 0; // a duplicate that names no queue is not answered
    assert_int_equal(forge_give(f, &p), VB_RX_DUPLICATE);
    assert_int_equal(f->sent_count, 4);
    forge_close(f);
}

// ---- the queue goes while it is used

static void test_queue_destroyed_in_a_message(void **state)
{
    (void)state;
    struct forge *f = open_target();
    forge_post_srq(f, 1, 0, 4000);
    struct vb_packet p = request(f, VB_RC_SEND_FIRST, 500, f->srqn, 1024);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(vb_dev_srq_destroy(f->dev, f->srqn), 0);
    assert_int_equal(forge_state(f), VB_QPS_ERR); // it cannot be finished
    forge_run(f);
    p = request(f, VB_RC_SEND_LAST, 501, f->srqn, 4);
    assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    forge_expect_none(f);
    forge_close(f);
}

static void test_queue_destroyed_before_a_completion(void **state)
{
    (void)state;
    struct forge *f = open_target();
    forge_post_srq(f, 1, 0, 4000);
    struct vb_packet p = request(f, VB_RC_SEND_ONLY, 500, f->srqn, 4);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    assert_int_equal(vb_dev_srq_destroy(f->dev, f->srqn), 0);
    vb_pu_poll(f->pu, f->now_ns);
    forge_keep(f);
    forge_expect_none(f);
    forge_close(f);
}

static void test_queue_destroyed_between_messages(void **state)
{
    (void)state;
    struct forge *f = open_target();
    forge_post_srq(f, 1, 0, 4000);
    struct vb_packet p = request(f, VB_RC_SEND_ONLY, 500, f->srqn, 4);
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(vb_dev_srq_destroy(f->dev, f->srqn), 0);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    p = request(f, VB_RC_SEND_ONLY, 501, f->srqn, 4);
    assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
    forge_expect_nak(f, 1, 501, VB_NAK_INVALID_REQUEST);
    forge_close(f);
}

// In the middle of a WRITE no entry is held yet, but the one it needs at its end would never come.
static void test_queue_destroyed_in_a_write(void **state)
{
    (void)state;
    struct forge *f = open_target();
    forge_post_srq(f, 1, 0, 4000);
    struct vb_packet p = request(f, VB_RC_WRITE_FIRST, 500, f->srqn, 1024);
    p.dma_len = 1028;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_int_equal(vb_dev_srq_destroy(f->dev, f->srqn), 0);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    p = request(f, VB_RC_WRITE_LAST_IMM, 501, f->srqn, 4);
    assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    forge_expect_none(f);
    forge_close(f);
}

// ---- creation

static void test_creation(void **state)
{
    (void)state;
    struct forge *f = open_target();
    const struct vb_qpc_attr good = {.pd = f->pd,
                                     .type = VB_QPT_XRC_TGT,
                                     .xrcd = XRCD,
                                     .send_cqn = f->send_cqn,
                                     .recv_cqn = f->recv_cqn,
                                     .sq_ring = f->qp.sq.ring,
                                     .sq_blocks = f->qp.sq.blocks,
                                     .dbrec = f->qp.dbrec};
    for (uint32_t i = 0; i < 6; i++) {
        struct vb_qpc_attr a = good;
        uint32_t qpn;
        switch (i) {
        case 0: a.xrcd = 0; break;
        case 1: a.srqn = f->srqn; break;
        case 2: a.rq_entries = 4; break;
        case 3: a.type = VB_QPT_XRC_INI; break; // an initiator has no domain of SRQs
        case 4: a.type = VB_QPT_RC; break;
        default: a.type = VB_QPT_COUNT; break;
        }
        assert_int_equal(vb_dev_qp_create(f->dev, &a, &qpn), -EINVAL);
    }
    uint32_t qpn;
    assert_int_equal(vb_dev_qp_create(f->dev, &good, &qpn), 0);
    assert_int_equal(vb_dev_qp_destroy(f->dev, qpn), 0);
    assert_int_equal(vb_dev_cq_destroy(f->dev, f->recv_cqn), -EBUSY);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_name_the_queue),
        cmocka_unit_test(test_all_packets_name_the_queue),
        cmocka_unit_test(test_operations_that_xrc_has_not),
        cmocka_unit_test(test_each_half_hears_its_own_kind),
        cmocka_unit_test(test_a_target_sends_nothing),
        cmocka_unit_test(test_sends_into_the_named_queue),
        cmocka_unit_test(test_queues_it_may_not_use),
        cmocka_unit_test(test_the_domain_of_keys),
        cmocka_unit_test(test_write_imm_takes_from_the_named_queue),
        cmocka_unit_test(test_atomics_and_reads_are_answered),
        cmocka_unit_test(test_queue_destroyed_in_a_message),
        cmocka_unit_test(test_queue_destroyed_before_a_completion),
        cmocka_unit_test(test_queue_destroyed_between_messages),
        cmocka_unit_test(test_queue_destroyed_in_a_write),
        cmocka_unit_test(test_creation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
