// SPDX-License-Identifier: Apache-2.0
// The queue pair's state machine, its attributes, and the device's objects around it.
#include "forge.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- transitions

static struct forge *open_in(enum vb_qp_state state)
{
    struct forge_opts o = forge_defaults();
    o.state = state >= VB_QPS_SQD ? VB_QPS_RTS : state;
    struct forge *f = forge_open(&o);
    if (state >= VB_QPS_SQD)
        forge_modify(f, state);
    assert_int_equal(forge_state(f), state);
    return f;
}

static void test_all_transitions(void **state)
{
    (void)state;
    static const bool legal[VB_QPS_COUNT][VB_QPS_COUNT] = {
        //                RESET  INIT   RTR    RTS    SQD    SQE    ERR
        [VB_QPS_RESET] = {true, true, false, false, false, false, false},
        [VB_QPS_INIT] = {true, true, true, false, false, false, true},
        [VB_QPS_RTR] = {true, false, false, true, false, false, true},
        [VB_QPS_RTS] = {true, false, false, false, true, false, true},
        [VB_QPS_SQD] = {true, false, false, true, true, false, true},
        [VB_QPS_ERR] = {true, false, false, false, false, false, true},
    };
    for (enum vb_qp_state from = 0; from < VB_QPS_COUNT; from++)
        for (enum vb_qp_state to = 0; to < VB_QPS_COUNT; to++) {
            if (from == VB_QPS_SQE)
                continue; // of unreliable services
            struct forge *f = open_in(from);
            struct vb_qpc_mods m = forge_mods(f, to);
            assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m),
                             legal[from][to] ? 0 : -EINVAL);
            assert_int_equal(forge_state(f), legal[from][to] ? to : from);
            forge_run(f);
            forge_close(f);
        }
}

static void test_unknown_state_and_number(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RTS);
    struct vb_qpc_mods m = forge_mods(f, VB_QPS_COUNT);
    enum vb_qp_state s;
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), -EINVAL);
    m.state = (enum vb_qp_state)77;
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), -EINVAL);
    m.state = VB_QPS_RESET;
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn ^ 1, &m), -ENOENT);
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn + VB_DOORBELL_QPS, &m), -ENOENT);
    assert_int_equal(vb_dev_qp_state(f->dev, 0, &s), -ENOENT);
    assert_int_equal(vb_dev_qp_destroy(f->dev, f->qp.qpn ^ 1), -ENOENT);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

// ---- attributes of each transition: the last legal value, and one past it

static void try(enum vb_qp_state from, enum vb_qp_state to, size_t offset, size_t size,
                uint32_t value, int expect)
{
    struct forge *f = open_in(from);
    struct vb_qpc_mods m = forge_mods(f, to);
    if (size == 1)
        *((uint8_t *)&m + offset) = (uint8_t)value;
    else
        memcpy((uint8_t *)&m + offset, &value, sizeof value);
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), expect);
    assert_int_equal(forge_state(f), expect ? from : to);
    forge_close(f);
}

#define TRY(from, to, field, value, expect)                                                   \
    try(from, to, offsetof(struct vb_qpc_mods, field), sizeof((struct vb_qpc_mods){0}.field), \
        value, expect)

static void test_attributes_of_init(void **state)
{
    (void)state;
    const uint32_t all = VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC;
    TRY(VB_QPS_RESET, VB_QPS_INIT, access, 0, 0);
    TRY(VB_QPS_RESET, VB_QPS_INIT, access, all, 0);
    TRY(VB_QPS_RESET, VB_QPS_INIT, access, VB_LOCAL_WRITE, -EINVAL);
    TRY(VB_QPS_RESET, VB_QPS_INIT, access, all + 2, -EINVAL);
}

static void test_attributes_of_rtr(void **state)
{
    (void)state;
    for (uint32_t mtu = 0; mtu <= 8192; mtu += 64) {
        bool legal = mtu == 256 || mtu == 512 || mtu == 1024 || mtu == 2048 || mtu == 4096;
        TRY(VB_QPS_INIT, VB_QPS_RTR, mtu_bytes, mtu, legal ? 0 : -EINVAL);
    }
    TRY(VB_QPS_INIT, VB_QPS_RTR, mtu_bytes, 257, -EINVAL);
    TRY(VB_QPS_INIT, VB_QPS_RTR, dest_qpn, 0xffffff, 0);
    TRY(VB_QPS_INIT, VB_QPS_RTR, dest_qpn, 0x1000000, -EINVAL);
    TRY(VB_QPS_INIT, VB_QPS_RTR, rq_psn, 0xffffff, 0);
    TRY(VB_QPS_INIT, VB_QPS_RTR, rq_psn, 0x1000000, -EINVAL);
    TRY(VB_QPS_INIT, VB_QPS_RTR, min_rnr_timer, 31, 0);
    TRY(VB_QPS_INIT, VB_QPS_RTR, min_rnr_timer, 32, -EINVAL);
    TRY(VB_QPS_INIT, VB_QPS_RTR, attr.flow_label, 0xfffff, 0);
    TRY(VB_QPS_INIT, VB_QPS_RTR, attr.flow_label, 0x100000, -EINVAL);
    TRY(VB_QPS_INIT, VB_QPS_RTR, attr.sl, 6, 0);
    TRY(VB_QPS_INIT, VB_QPS_RTR, attr.sl, 7, -EINVAL);
    TRY(VB_QPS_INIT, VB_QPS_RTR, max_dest_rd_atomic, 0, 0);
    TRY(VB_QPS_INIT, VB_QPS_RTR, max_dest_rd_atomic, 16, 0);
    TRY(VB_QPS_INIT, VB_QPS_RTR, max_dest_rd_atomic, 17, -EINVAL);
}

static void test_attributes_of_rts(void **state)
{
    (void)state;
    TRY(VB_QPS_RTR, VB_QPS_RTS, sq_psn, 0xffffff, 0);
    TRY(VB_QPS_RTR, VB_QPS_RTS, sq_psn, 0x1000000, -EINVAL);
    TRY(VB_QPS_RTR, VB_QPS_RTS, timeout, 31, 0);
    TRY(VB_QPS_RTR, VB_QPS_RTS, timeout, 32, -EINVAL);
    TRY(VB_QPS_RTR, VB_QPS_RTS, retry_cnt, 7, 0);
    TRY(VB_QPS_RTR, VB_QPS_RTS, retry_cnt, 8, -EINVAL);
    TRY(VB_QPS_RTR, VB_QPS_RTS, rnr_retry, 7, 0);
    TRY(VB_QPS_RTR, VB_QPS_RTS, rnr_retry, 8, -EINVAL);
    TRY(VB_QPS_RTR, VB_QPS_RTS, max_rd_atomic, 128, 0);
    TRY(VB_QPS_RTR, VB_QPS_RTS, max_rd_atomic, 129, -EINVAL);
}

static void test_addresses_are_of_one_family(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_INIT);
    struct vb_qpc_mods m = forge_mods(f, VB_QPS_RTR);
    m.remote = (struct vb_ip){{0x20, 1, [15] = 1}};
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), -EINVAL);
    m.local = (struct vb_ip){{0x20, 1, [15] = 2}};
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), 0);
    assert_false(f->ctx->path->ipv4);
    forge_close(f);
}

// ---- creation

static int create(struct forge *f, struct vb_qpc_attr attr)
{
    uint32_t qpn;
    return vb_dev_qp_create(f->dev, &attr, &qpn);
}

static struct vb_qpc_attr good_attr(const struct forge *f)
{
    return (struct vb_qpc_attr){.pd = f->pd,
                                .send_cqn = f->send_cqn,
                                .recv_cqn = f->recv_cqn,
                                .sq_ring = f->qp.sq.ring,
                                .sq_blocks = f->qp.sq.blocks,
                                .rq_ring = f->qp.rq.ring,
                                .rq_entries = f->qp.rq.entries,
                                .rq_stride_bytes = f->qp.rq.stride,
                                .dbrec = f->qp.dbrec};
}

#define REFUSED(f, error, change)              \
    do {                                       \
        struct vb_qpc_attr a = good_attr(f);   \
        change;                                \
        assert_int_equal(create(f, a), error); \
    } while (0)

static void test_creation_attributes(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RESET);
    REFUSED(f, 0, (void)a);
    REFUSED(f, 0, a.rq_entries = 0);
    REFUSED(f, 0, a.rq_stride_bytes = 16);
    REFUSED(f, 0, a.sq_blocks = 1);
    REFUSED(f, 0, a.sq_blocks = VB_SQ_BLOCKS_MAX);
    REFUSED(f, 0, a.rq_entries = VB_RQ_ENTRIES_MAX);
    REFUSED(f, -ENOENT, a.pd = 0);
    REFUSED(f, -ENOENT, a.pd = 2);
    REFUSED(f, -ENOENT, a.send_cqn = 0);
    REFUSED(f, -ENOENT, a.send_cqn = 3);
    REFUSED(f, -ENOENT, a.recv_cqn = 99);
    REFUSED(f, -EINVAL, a.sq_blocks = 0);
    REFUSED(f, -EINVAL, a.sq_blocks = 3);
    REFUSED(f, -EINVAL, a.sq_blocks = 2 * VB_SQ_BLOCKS_MAX);
    REFUSED(f, -EINVAL, a.sq_ring = NULL);
    REFUSED(f, -EINVAL, a.dbrec = NULL);
    REFUSED(f, -EINVAL, a.rq_entries = 5);
    REFUSED(f, -EINVAL, a.rq_entries = 2 * VB_RQ_ENTRIES_MAX);
    REFUSED(f, -EINVAL, a.rq_stride_bytes = 8);
    REFUSED(f, -EINVAL, a.rq_stride_bytes = 48);
    REFUSED(f, -EINVAL, a.rq_stride_bytes = 512);
    REFUSED(f, -EINVAL, a.rq_ring = NULL);
    forge_close(f);
}

static void test_numbers_are_not_reused_at_once(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RESET);
    struct vb_qpc_attr a = good_attr(f);
    uint32_t first = 0, qpn = 0;
    assert_int_equal(vb_dev_qp_create(f->dev, &a, &first), 0);
    assert_int_equal(vb_dev_qp_destroy(f->dev, first), 0);
    // The index comes round again with another generation.
    for (uint32_t i = 0; i < 2 * VB_DOORBELL_QPS; i++) {
        assert_int_equal(vb_dev_qp_create(f->dev, &a, &qpn), 0);
        assert_int_not_equal(qpn, first);
        assert_int_not_equal(qpn, f->qp.qpn);
        assert_true(qpn <= 0xffffff && qpn > 1); // 0 and 1 are the management's
        assert_int_equal(vb_dev_qp_destroy(f->dev, qpn), 0);
    }
    forge_close(f);
}

static void test_all_numbers_can_be_in_use(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RESET);
    struct vb_qpc_attr a = good_attr(f);
    uint32_t qpn = 0;
    for (uint32_t i = 0; i < VB_DOORBELL_QPS - 1; i++) { // one is the forge's
        assert_int_equal(vb_dev_qp_create(f->dev, &a, &qpn), 0);
        assert_true(qpn > 1); // the management's
    }
    uint32_t none = 0;
    assert_int_equal(vb_dev_qp_create(f->dev, &a, &none), -ENOMEM);
    assert_int_equal(vb_dev_qp_destroy(f->dev, qpn), 0);
    assert_int_equal(vb_dev_qp_create(f->dev, &a, &none), 0);
    forge_close(f);
}

// ---- other objects

static void test_objects_in_use_stay(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RTS);
    assert_int_equal(vb_dev_pd_destroy(f->dev, f->pd), -EBUSY);
    assert_int_equal(vb_dev_cq_destroy(f->dev, f->send_cqn), -EBUSY);
    assert_int_equal(vb_dev_cq_destroy(f->dev, f->recv_cqn), -EBUSY);
    assert_int_equal(vb_dev_qp_destroy(f->dev, f->qp.qpn), 0);
    assert_int_equal(vb_dev_qp_destroy(f->dev, f->qp.qpn), -ENOENT);
    assert_int_equal(vb_dev_pd_destroy(f->dev, f->pd), -EBUSY); // its region
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), -ENOENT);
    assert_int_equal(vb_dev_pd_destroy(f->dev, f->pd), 0);
    assert_int_equal(vb_dev_pd_destroy(f->dev, f->pd), -ENOENT);
    assert_int_equal(vb_dev_pd_destroy(f->dev, 0), -ENOENT);
    assert_int_equal(vb_dev_cq_destroy(f->dev, f->send_cqn), 0);
    assert_int_equal(vb_dev_cq_destroy(f->dev, f->send_cqn), -ENOENT);
    assert_int_equal(vb_dev_cq_destroy(f->dev, 0), -ENOENT);
    forge_close(f);
}

static void test_domains_grow_and_are_reused(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RESET);
    uint32_t pd[100];
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(vb_dev_pd_create(f->dev, &pd[i]), 0);
        assert_int_not_equal(pd[i], 0);
        for (uint32_t j = 0; j < i; j++)
            assert_int_not_equal(pd[i], pd[j]);
    }
    struct vb_mkey_attr attr = {.base = f->memory, .len = 1};
    uint32_t key, again = 0;
    for (uint32_t i = 0; i < 100; i++) {
        attr.pd = pd[i];
        assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
        assert_int_equal(vb_dev_pd_destroy(f->dev, pd[i]), -EBUSY);
        assert_int_equal(vb_dev_mkey_destroy(f->dev, key), 0);
    }
    assert_int_equal(vb_dev_pd_destroy(f->dev, pd[50]), 0);
    attr.pd = pd[50];
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), -ENOENT);
    assert_int_equal(vb_dev_pd_create(f->dev, &again), 0);
    assert_int_equal(again, pd[50]);
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
    forge_close(f);
}

static uint32_t first_key(uint64_t seed, uint32_t *pd)
{
    struct vb_dev *dev = vb_dev_create(&(struct vb_dev_opts){.seed = seed});
    uint32_t key = 0;
    assert_non_null(dev);
    assert_int_equal(vb_dev_pd_create(dev, pd), 0);
    assert_int_equal(vb_dev_mkey_create(dev, &(struct vb_mkey_attr){.pd = *pd}, &key), 0);
    vb_dev_destroy(dev);
    return key;
}

static void test_keys_follow_the_devices_seed(void **state)
{
    (void)state;
    uint32_t pd;
    assert_int_equal(first_key(1, &pd), first_key(1, &pd));
    assert_int_not_equal(first_key(1, &pd), first_key(2, &pd));
}

static void test_completion_queue_attributes(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RESET);
    struct vb_cqc_attr good = {
        .ring = f->send_cq.ring, .entries = f->send_cq.entries, .dbrec = f->send_cq.dbrec};
    struct vb_cqc_attr a = good;
    uint32_t cqn = 0, last = 0;
    a.entries = 0;
    assert_int_equal(vb_dev_cq_create(f->dev, &a, &cqn), -EINVAL);
    a.entries = 3;
    assert_int_equal(vb_dev_cq_create(f->dev, &a, &cqn), -EINVAL);
    a.entries = 2 * VB_CQ_ENTRIES_MAX;
    assert_int_equal(vb_dev_cq_create(f->dev, &a, &cqn), -EINVAL);
    a = good;
    a.ring = NULL;
    assert_int_equal(vb_dev_cq_create(f->dev, &a, &cqn), -EINVAL);
    a = good;
    a.dbrec = NULL;
    assert_int_equal(vb_dev_cq_create(f->dev, &a, &cqn), -EINVAL);
    for (uint32_t i = 0; i < 40; i++, last = cqn) {
        assert_int_equal(vb_dev_cq_create(f->dev, &good, &cqn), 0);
        assert_true(cqn > last);
    }
    forge_close(f);
}

// ---- lives

static void test_reset_forgets(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RTS);
    forge_post(f, 1, VB_WR_SEND, 0, 5000);
    forge_post_recv(f, 2, 0, 100);
    forge_run(f);
    forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1); // longer than the receive: it fails
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_modify(f, VB_QPS_RESET);
    vb_driver_qp_reset(&f->qp);
    forge_forget(f);
    f->opts.our_psn = 7;
    f->opts.peer_psn = 9;
    for (enum vb_qp_state s = VB_QPS_INIT; s <= VB_QPS_RTS; s++)
        forge_modify(f, s);
    forge_advance(f, 10000000000); // no timer of the former life
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_state(f), VB_QPS_RTS);
    forge_close(f);
}

static void reconnect(struct forge *f)
{
    forge_modify(f, VB_QPS_RESET);
    vb_driver_qp_reset(&f->qp);
    assert_null(f->pu->retired_paths); // no frame needs the old path
    for (enum vb_qp_state s = VB_QPS_INIT; s <= VB_QPS_RTS; s++)
        forge_modify(f, s);
}

static void test_reset_in_the_middle_of_everything(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RTS);
    for (uint32_t round = 0; round < 3; round++) {
        forge_post(f, 1, VB_WR_READ, 0, 5000);
        forge_post(f, 2, VB_WR_SEND, 0, 5000);
        forge_post_recv(f, 3, 0, 5000);
        forge_run(f);
        forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
        reconnect(f);
        forge_forget(f);
        forge_post(f, 4, VB_WR_SEND, 0, 10);
        forge_post_recv(f, 5, 0, 10);
        forge_run(f);
        assert_int_equal(f->sent_count, 1);
        assert_int_equal(forge_sent(f, 0)->psn, 100);
        forge_ack(f, 100);
        forge_expect_done(f, 4, VB_WC_OK);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 10, 1), VB_RX_APPLIED);
        forge_expect_recv(f, 5, VB_WC_OK, 10);
        forge_expect_none(f);
        reconnect(f);
    }
    forge_close(f);
}

static void test_each_life_has_its_own_reason(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RTS);
    for (int life = 0; life < 3; life++) {
        forge_post(f, 1, VB_WR_SEND, 0, 1);
        forge_post(f, 2, VB_WR_SEND, 0, 1);
        forge_run(f);
        assert_int_equal(forge_nak(f, 100, VB_AETH_NAK, VB_NAK_REMOTE_ACCESS), VB_RX_FATAL);
        forge_expect_done(f, 1, VB_WC_REMOTE_ACCESS);
        forge_expect_done(f, 2, VB_WC_FLUSHED);
        reconnect(f);
    }
    forge_close(f);
}

// A message is complete, its completion is due, and the queue pair is reset in between.
static void test_reset_drops_the_completion_that_is_due(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_RTS);
    forge_post_recv(f, 1, 0, 100);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 500);
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).verdict, VB_RX_APPLIED);
    reconnect(f);
    vb_pu_poll(f->pu, f->now_ns);
    forge_expect_none(f);
    forge_close(f);
}

static void test_work_posted_early_waits_for_rts(void **state)
{
    (void)state;
    struct forge *f = open_in(VB_QPS_INIT);
    forge_post(f, 1, VB_WR_SEND, 0, 10);
    forge_post_recv(f, 2, 64, 10);
    forge_run(f);
    forge_modify(f, VB_QPS_RTR);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 10, 3), VB_RX_APPLIED);
    forge_expect_recv(f, 2, VB_WC_OK, 10);
    forge_expect_ack(f, 0, 500);
    forge_modify(f, VB_QPS_RTS);
    forge_run(f);
    assert_int_equal(forge_sent(f, 1)->opcode, VB_RC_SEND_ONLY);
    forge_ack(f, 100);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

static void test_names_and_times(void **state)
{
    (void)state;
    assert_string_equal(vb_qp_state_name(VB_QPS_RESET), "RESET");
    assert_string_equal(vb_qp_state_name(VB_QPS_ERR), "ERR");
    assert_string_equal(vb_qp_state_name(VB_QPS_COUNT), "?");
    assert_true(vb_rnr_timer_ns(0) == 655360000);
    assert_true(vb_rnr_timer_ns(1) == 10000);
    assert_true(vb_rnr_timer_ns(12) == 640000);
    assert_true(vb_rnr_timer_ns(31) == 491520000);
    for (uint8_t code = 2; code < 32; code++)
        assert_true(vb_rnr_timer_ns(code) > vb_rnr_timer_ns(code - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_transitions),
        cmocka_unit_test(test_unknown_state_and_number),
        cmocka_unit_test(test_attributes_of_init),
        cmocka_unit_test(test_attributes_of_rtr),
        cmocka_unit_test(test_attributes_of_rts),
        cmocka_unit_test(test_addresses_are_of_one_family),
        cmocka_unit_test(test_creation_attributes),
        cmocka_unit_test(test_numbers_are_not_reused_at_once),
        cmocka_unit_test(test_all_numbers_can_be_in_use),
        cmocka_unit_test(test_objects_in_use_stay),
        cmocka_unit_test(test_domains_grow_and_are_reused),
        cmocka_unit_test(test_keys_follow_the_devices_seed),
        cmocka_unit_test(test_completion_queue_attributes),
        cmocka_unit_test(test_reset_forgets),
        cmocka_unit_test(test_reset_in_the_middle_of_everything),
        cmocka_unit_test(test_each_life_has_its_own_reason),
        cmocka_unit_test(test_reset_drops_the_completion_that_is_due),
        cmocka_unit_test(test_work_posted_early_waits_for_rts),
        cmocka_unit_test(test_names_and_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
