// SPDX-License-Identifier: Apache-2.0
// Memory windows through the queue pair: bound and unbound by work requests, used and invalidated
// by a peer's packets.
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
    REMOTE = VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC,
    WINDOW_AT = 4096,
    WINDOW_LEN = 2048,
};

static struct forge *open_with(uint32_t key_access)
{
    struct forge_opts o = forge_defaults();
    o.access = REMOTE;
    o.key_access = key_access;
    return forge_open(&o);
}

static struct forge *open_bindable(void)
{
    return open_with(VB_LOCAL_WRITE | VB_BIND); // the region itself is closed to peers
}

static uint32_t window(struct forge *f, enum vb_mkey_kind kind, uint32_t pd)
{
    uint32_t key;
    const struct vb_mkey_attr attr = {.pd = pd, .kind = kind};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
    return key;
}

static struct vb_send_wr binding(const struct forge *f, uint64_t wr_id, uint32_t key)
{
    struct vb_send_wr wr = {.wr_id = wr_id, .opcode = VB_WR_BIND, .flags = VB_WR_SIGNALED};
    wr.bind.window = key;
    wr.bind.region = f->key;
    wr.bind.addr = forge_addr(f, WINDOW_AT);
    wr.bind.len = WINDOW_LEN;
    wr.bind.rights = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_ATOMIC;
    return wr;
}

static void bind(struct forge *f, uint64_t wr_id, uint32_t key)
{
    struct vb_send_wr wr = binding(f, wr_id, key);
    forge_post_send(f, &wr);
    forge_run(f);
    struct vb_wc wc = forge_next_done(f);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.opcode, VB_WC_KEY);
}

static void invalidate(struct forge *f, uint64_t wr_id, uint32_t key, enum vb_wc_status status)
{
    const struct vb_send_wr wr = {
        .wr_id = wr_id, .opcode = VB_WR_LOCAL_INVAL, .imm = key, .flags = VB_WR_SIGNALED};
    forge_post_send(f, &wr);
    forge_run(f);
    forge_expect_done(f, wr_id, status);
}

static enum vb_rx_verdict peer_writes(struct forge *f, uint32_t psn, uint32_t key, uint64_t raddr)
{
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, psn, 0, 4);
    p.rkey = key;
    p.raddr = raddr;
    p.payload = (const uint8_t *)"wxyz";
    p.payload_len = 4;
    p.ack_request = true;
    return forge_give(f, &p);
}

static enum vb_rx_verdict peer_invalidates(struct forge *f, uint32_t psn, uint32_t key)
{
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY_INV, psn);
    p.imm = key;
    p.payload = (const uint8_t *)"data";
    p.payload_len = 4;
    p.ack_request = true;
    return forge_give(f, &p);
}

// ---- binding

static void test_a_bound_window_serves(void **state)
{
    (void)state;
    for (enum vb_mkey_kind kind = VB_MKEY_WINDOW1; kind <= VB_MKEY_WINDOW2; kind++) {
        struct forge *f = open_bindable();
        uint32_t w = window(f, kind, f->pd) ^ 0x5; // another tag than it was made with
        bind(f, 1, w);
        assert_int_equal(f->sent_count, 0); // no packets
        assert_int_equal(peer_writes(f, 500, w, forge_addr(f, WINDOW_AT)), VB_RX_APPLIED);
        assert_int_equal(peer_writes(f, 501, w, forge_addr(f, WINDOW_AT + WINDOW_LEN - 4)),
                         VB_RX_APPLIED);
        assert_memory_equal(f->memory + WINDOW_AT, "wxyz", 4);
        struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 502, WINDOW_AT + 8, 3, 0);
        p.rkey = w;
        assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
        assert_int_equal(f->memory[WINDOW_AT + 8], 3);
        p = forge_reth(f, VB_RC_READ_REQUEST, 503, WINDOW_AT, WINDOW_LEN);
        p.rkey = w;
        assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
        assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), -EBUSY);
        forge_close(f);
    }
}

static void test_outside_of_the_window(void **state)
{
    (void)state;
    const uint32_t at[] = {WINDOW_AT - 1, WINDOW_AT + WINDOW_LEN - 3, WINDOW_AT + WINDOW_LEN};
    for (uint32_t i = 0; i < 3; i++) {
        struct forge *f = open_with(VB_LOCAL_WRITE | VB_BIND | REMOTE); // the region allows it
        uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
        bind(f, 1, w);
        assert_int_equal(peer_writes(f, 500, w, forge_addr(f, at[i])), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, VB_NAK_REMOTE_ACCESS);
        forge_close(f);
    }
}

static void test_an_unbound_window_serves_nobody(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct forge *f = open_bindable();
        uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd), used = w;
        if (i > 0)
            bind(f, 1, w);
        if (i == 1)
            invalidate(f, 2, w, VB_WC_OK);
        if (i == 2)
            used = w ^ 1; // an old tag
        assert_int_equal(peer_writes(f, 500, used, forge_addr(f, WINDOW_AT)), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, VB_NAK_REMOTE_ACCESS);
        forge_close(f);
    }
}

// The rights of the window, apart from the queue pair's.
static void test_rights_of_the_window(void **state)
{
    (void)state;
    for (uint32_t give = 0; give < 2; give++) {
        struct forge *f = open_bindable();
        uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
        struct vb_send_wr wr = binding(f, 1, w);
        wr.bind.rights = give ? VB_RIGHT_REMOTE_WRITE : VB_RIGHT_REMOTE_READ;
        forge_post_send(f, &wr);
        forge_run(f);
        forge_expect_done(f, 1, VB_WC_OK);
        assert_int_equal(peer_writes(f, 500, w, forge_addr(f, WINDOW_AT)),
                         give ? VB_RX_APPLIED : VB_RX_REFUSED);
        forge_close(f);
    }
}

static void test_zero_based(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    struct vb_send_wr wr = binding(f, 1, w);
    wr.bind.addr += 4;
    wr.bind.zero_based = 1;
    forge_post_send(f, &wr);
    forge_run(f);
    forge_expect_done(f, 1, VB_WC_OK);
    assert_int_equal(peer_writes(f, 500, w, WINDOW_LEN - 4), VB_RX_APPLIED);
    assert_memory_equal(f->memory + WINDOW_AT + WINDOW_LEN, "wxyz", 4);
    // An aligned name of memory that is not aligned.
    struct vb_packet p = forge_atomic(f, VB_RC_FETCH_ADD, 501, 0, 3, 0);
    p.rkey = w;
    p.raddr = 0;
    assert_int_equal(forge_give(f, &p), VB_RX_REFUSED);
    forge_expect_nak(f, 1, 501, VB_NAK_INVALID_REQUEST);
    forge_close(f);
}

// Local work cannot use a window's key.
static void test_a_window_is_not_for_local_use(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW1, f->pd);
    bind(f, 1, w);
    const struct vb_sge sge = {forge_addr(f, WINDOW_AT), 8, w};
    const struct vb_send_wr wr = {.wr_id = 2, .sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND};
    forge_post_send(f, &wr);
    forge_run(f);
    forge_expect_done(f, 2, VB_WC_LOCAL_PROTECTION);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

// ---- refused bindings

enum refusal {
    BAD_WINDOW,
    BAD_REGION,
    REGION_AS_WINDOW,
    WINDOW_AS_REGION,
    NO_BIND_RIGHT,
    NO_LOCAL_WRITE,
    TOO_LONG,
    TOO_EARLY,
    OTHER_DOMAIN,
    REGION_OF_OTHER_DOMAIN,
    NOTHING,
    BOUND_ALREADY,
    REFUSALS
};

static void spoil(struct forge *f, struct vb_send_wr *wr, enum refusal why)
{
    uint32_t pd;
    assert_int_equal(vb_dev_pd_create(f->dev, &pd), 0);
    const struct vb_mkey_attr foreign = {.pd = pd,
                                         .access = VB_LOCAL_WRITE | VB_BIND,
                                         .start = forge_addr(f, 0),
                                         .len = FORGE_MEMORY,
                                         .base = f->memory};
    switch (why) {
    case BAD_WINDOW: wr->bind.window ^= 0x100; break;
    case BAD_REGION: wr->bind.region ^= 1; break;
    case REGION_AS_WINDOW: wr->bind.window = f->key; break;
    case WINDOW_AS_REGION: wr->bind.region = wr->bind.window; break;
    case TOO_LONG: wr->bind.len = FORGE_MEMORY - WINDOW_AT + 1; break;
    case TOO_EARLY: wr->bind.addr = forge_addr(f, 0) - 1; break;
    case OTHER_DOMAIN: wr->bind.window = window(f, VB_MKEY_WINDOW2, pd); break;
    case REGION_OF_OTHER_DOMAIN:
        assert_int_equal(vb_dev_mkey_create(f->dev, &foreign, &wr->bind.region), 0);
        break;
    case NOTHING: wr->bind.len = 0; break;
    case BOUND_ALREADY: bind(f, 0, wr->bind.window); break;
    default: break;
    }
}

static void test_refused_bindings(void **state)
{
    (void)state;
    for (enum refusal why = 0; why < REFUSALS; why++) {
        uint32_t access = VB_BIND | VB_LOCAL_WRITE;
        if (why == NO_BIND_RIGHT)
            access = VB_LOCAL_WRITE;
        if (why == NO_LOCAL_WRITE)
            access = VB_BIND;
        struct forge *f = open_with(access);
        struct vb_send_wr wr = binding(f, 1, window(f, VB_MKEY_WINDOW2, f->pd));
        spoil(f, &wr, why);
        forge_post_send(f, &wr);
        forge_post(f, 2, VB_WR_NOP, 0, 0);
        forge_run(f);
        forge_expect_done(f, 1, VB_WC_BIND_REFUSED);
        forge_expect_done(f, 2, VB_WC_FLUSHED);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        if (why == BOUND_ALREADY)
            assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), -EBUSY); // as before
        forge_close(f);
    }
}

// The edges that are allowed.
static void test_bindings_at_the_edges(void **state)
{
    (void)state;
    struct forge *f = open_with(VB_BIND); // no local write: remote reads only
    struct vb_send_wr wr = binding(f, 1, window(f, VB_MKEY_WINDOW2, f->pd));
    wr.bind.rights = VB_RIGHT_REMOTE_READ;
    wr.bind.addr = forge_addr(f, 0);
    wr.bind.len = FORGE_MEMORY;
    forge_post_send(f, &wr);
    forge_run(f);
    forge_expect_done(f, 1, VB_WC_OK);
    forge_close(f);
}

// A window of type 1 may be bound anew, which ends the old key, or to nothing.
static void test_type_1_bound_anew(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW1, f->pd);
    bind(f, 1, w);
    bind(f, 2, w ^ 7);
    assert_null(vb_mkey_find(&f->dev->mkeys, w));
    assert_int_equal(peer_writes(f, 500, w ^ 7, forge_addr(f, WINDOW_AT)), VB_RX_APPLIED);
    struct vb_send_wr wr = binding(f, 3, w ^ 9);
    wr.bind.len = 0;
    wr.bind.region = 0;
    forge_post_send(f, &wr);
    forge_run(f);
    forge_expect_done(f, 3, VB_WC_OK);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0); // nothing holds it any more
    assert_int_equal(peer_writes(f, 501, w ^ 9, forge_addr(f, WINDOW_AT)), VB_RX_REFUSED);
    forge_close(f);
}

// ---- order

// A key changes when all that was posted before is acknowledged, and what follows waits for it.
static void test_binding_waits_for_its_turn(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    forge_post(f, 1, VB_WR_WRITE, 0, 3000);
    forge_post(f, 2, VB_WR_NOP, 0, 0);
    struct vb_send_wr wr = binding(f, 3, w);
    forge_post_send(f, &wr);
    forge_post(f, 4, VB_WR_SEND, 0, 4);
    forge_run(f);
    assert_int_equal(f->sent_count, 3);
    assert_false(vb_mkey_find(&f->dev->mkeys, w)->bound);
    forge_ack(f, 101);
    assert_false(vb_mkey_find(&f->dev->mkeys, w)->bound);
    forge_ack(f, 102);
    assert_true(vb_mkey_find(&f->dev->mkeys, w)->bound);
    for (uint64_t i = 1; i <= 3; i++)
        forge_expect_done(f, i, VB_WC_OK);
    assert_int_equal(f->sent_count, 4);
    assert_int_equal(forge_sent(f, 3)->psn, 103); // a binding takes no number
    forge_advance(f, 4096ull << f->opts.timeout); // and is not repeated
    assert_int_equal(f->sent_count, 5);
    forge_ack(f, 103);
    forge_expect_done(f, 4, VB_WC_OK);
    forge_close(f);
}

// Requests before a binding that asked for no acknowledgement are asked for at once.
static void test_a_binding_asks_for_what_was_silent(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    forge_post_flags(f, 1, VB_WR_WRITE, 8, 0);
    forge_run(f);
    assert_false(forge_sent(f, 0)->ack_request);
    struct vb_send_wr wr = binding(f, 2, w);
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(f->sent_count, 2);
    assert_int_equal(forge_sent(f, 1)->psn, 100);
    assert_true(forge_sent(f, 1)->ack_request);
    assert_false(vb_mkey_find(&f->dev->mkeys, w)->bound);
    forge_ack(f, 100);
    assert_true(vb_mkey_find(&f->dev->mkeys, w)->bound);
    forge_expect_done(f, 2, VB_WC_OK);
    forge_close(f);
}

static void test_local_invalidation(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    bind(f, 1, w);
    invalidate(f, 2, w, VB_WC_OK);
    bind(f, 3, w ^ 1); // free to be bound again
    invalidate(f, 4, w ^ 1, VB_WC_OK);
    invalidate(f, 5, w ^ 1, VB_WC_BIND_REFUSED); // not bound
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

static void test_local_invalidation_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct forge *f = open_bindable();
        uint32_t w1 = window(f, VB_MKEY_WINDOW1, f->pd), w2 = window(f, VB_MKEY_WINDOW2, f->pd);
        bind(f, 1, w1);
        bind(f, 1, w2);
        const uint32_t keys[] = {f->key, w1, w2 ^ 1, 0};
        invalidate(f, 2, keys[i], VB_WC_BIND_REFUSED);
        assert_true(vb_mkey_find(&f->dev->mkeys, w1)->bound);
        assert_true(vb_mkey_find(&f->dev->mkeys, w2)->bound);
        forge_close(f);
    }
}

// ---- a peer's invalidation

static void test_remote_invalidation(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    bind(f, 1, w);
    forge_post_recv(f, 7, 0, 8);
    forge_post_recv(f, 8, 8, 8);
    assert_int_equal(peer_invalidates(f, 500, w), VB_RX_APPLIED);
    struct vb_wc wc = forge_next_recv(f);
    assert_int_equal(wc.wr_id, 7);
    assert_int_equal(wc.byte_len, 4);
    assert_int_equal(wc.flags, VB_WC_WITH_INVAL);
    assert_int_equal(wc.imm, w);
    assert_memory_equal(f->memory, "data", 4);
    assert_false(vb_mkey_find(&f->dev->mkeys, w)->bound);
    // Its duplicate is acknowledged and does nothing, even when the window is bound again.
    bind(f, 2, w);
    assert_int_equal(peer_invalidates(f, 500, w), VB_RX_DUPLICATE);
    assert_true(vb_mkey_find(&f->dev->mkeys, w)->bound);
    forge_expect_ack(f, 1, 500);
    assert_int_equal(peer_writes(f, 501, w, forge_addr(f, WINDOW_AT)), VB_RX_APPLIED);
    forge_close(f);
}

static void test_remote_invalidation_by_the_last_packet(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    bind(f, 1, w);
    forge_post_recv(f, 7, 0, 2000);
    forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
    assert_true(vb_mkey_find(&f->dev->mkeys, w)->bound);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_LAST_INV, 501);
    p.imm = w;
    p.payload = (const uint8_t *)"x";
    p.payload_len = 1;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    assert_false(vb_mkey_find(&f->dev->mkeys, w)->bound);
    assert_int_equal(forge_next_recv(f).byte_len, 1025);
    forge_close(f);
}

// Without a receive the window stays bound until there is one.
static void test_remote_invalidation_without_a_receive(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    bind(f, 1, w);
    assert_int_equal(peer_invalidates(f, 500, w), VB_RX_RNR);
    assert_true(vb_mkey_find(&f->dev->mkeys, w)->bound);
    forge_post_recv(f, 7, 0, 8);
    assert_int_equal(peer_invalidates(f, 500, w), VB_RX_APPLIED);
    assert_false(vb_mkey_find(&f->dev->mkeys, w)->bound);
    forge_close(f);
}

static void test_remote_invalidation_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct forge *f = open_bindable();
        uint32_t pd, w1 = window(f, VB_MKEY_WINDOW1, f->pd);
        uint32_t w2 = window(f, VB_MKEY_WINDOW2, f->pd);
        assert_int_equal(vb_dev_pd_create(f->dev, &pd), 0);
        uint32_t unbound = window(f, VB_MKEY_WINDOW2, f->pd),
                 other = window(f, VB_MKEY_WINDOW2, f->pd);
        bind(f, 1, w1);
        bind(f, 1, w2);
        const struct vb_binding b = {
            .window = other, .region = f->key, .addr = forge_addr(f, 0), .len = 8};
        assert_int_equal(
            vb_window_bind(&f->dev->mkeys, (struct vb_accessor){f->pd, f->qp.qpn ^ 1}, &b),
            VB_MEM_OK); // another queue pair's
        const uint32_t keys[] = {f->key, w1, w2 ^ 1, unbound, other, 0};
        forge_post_recv(f, 7, 0, 8);
        assert_int_equal(peer_invalidates(f, 500, keys[i]), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, VB_NAK_REMOTE_ACCESS);
        forge_expect_recv(f, 7, VB_WC_FLUSHED, 0);
        forge_expect_qp_event(f, VB_EVENT_QP_ACCESS_ERR);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        assert_true(vb_mkey_find(&f->dev->mkeys, w1)->bound);
        assert_true(vb_mkey_find(&f->dev->mkeys, w2)->bound);
        assert_true(vb_mkey_find(&f->dev->mkeys, other)->bound);
        forge_close(f);
    }
}

// A type 2 window serves the queue pair that bound it alone; type 1 all of the domain.
static void test_whom_a_window_serves(void **state)
{
    (void)state;
    for (enum vb_mkey_kind kind = VB_MKEY_WINDOW1; kind <= VB_MKEY_WINDOW2; kind++) {
        struct forge *f = open_bindable();
        uint32_t w = window(f, kind, f->pd);
        const struct vb_binding b = {.window = w,
                                     .region = f->key,
                                     .addr = forge_addr(f, 0),
                                     .start = forge_addr(f, 0),
                                     .access = VB_REMOTE_WRITE,
                                     .len = 8};
        assert_int_equal(
            vb_window_bind(&f->dev->mkeys, (struct vb_accessor){f->pd, f->qp.qpn ^ 1}, &b),
            VB_MEM_OK);
        assert_int_equal(peer_writes(f, 500, w, forge_addr(f, 0)),
                         kind == VB_MKEY_WINDOW1 ? VB_RX_APPLIED : VB_RX_REFUSED);
        forge_close(f);
    }
}

// On an unreliable connection a refused binding fails the send queue alone.
static void test_bindings_on_an_unreliable_connection(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.type = VB_QPT_UC;
    o.key_access = VB_LOCAL_WRITE | VB_BIND;
    struct forge *f = forge_open(&o);
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    forge_post_flags(f, 0, VB_WR_WRITE, 3000, 0);
    bind(f, 1, w);
    assert_int_equal(f->sent_count, 3);
    assert_int_equal(peer_writes(f, 500, w, forge_addr(f, WINDOW_AT)), VB_RX_APPLIED);
    invalidate(f, 2, w, VB_WC_OK);
    assert_int_equal(peer_writes(f, 501, w, forge_addr(f, WINDOW_AT)), VB_RX_REFUSED);
    invalidate(f, 3, w, VB_WC_BIND_REFUSED);
    assert_int_equal(forge_state(f), VB_QPS_SQE);
    forge_modify(f, VB_QPS_RTS);
    bind(f, 4, w);
    forge_close(f);
}

// The window goes between the packets of a WRITE, and while a READ is answered.
static void test_window_that_goes_meanwhile(void **state)
{
    (void)state;
    struct forge *f = open_bindable();
    uint32_t w = window(f, VB_MKEY_WINDOW2, f->pd);
    bind(f, 1, w);
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_FIRST, 500, WINDOW_AT, 1025);
    p.rkey = w;
    p.payload = f->memory;
    p.payload_len = 1024;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    invalidate(f, 2, w, VB_WC_OK);
    assert_int_equal(forge_send(f, VB_RC_WRITE_LAST, 501, 1, 1), VB_RX_REFUSED);
    forge_expect_nak(f, 0, 501, VB_NAK_REMOTE_ACCESS);
    forge_expect_qp_event(f, VB_EVENT_QP_ACCESS_ERR);
    forge_close(f);

    f = open_bindable();
    w = window(f, VB_MKEY_WINDOW2, f->pd);
    bind(f, 1, w);
    p = forge_reth(f, VB_RC_READ_REQUEST, 500, WINDOW_AT, 2048);
    p.rkey = w;
    forge_queue(f, &p);
    vb_pu_feed(f->pu, f->feed, 1);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_IN);
    assert_int_equal(vb_pu_step(f->pu, f->now_ns).kind, VB_STEP_FRAME_OUT);
    assert_int_equal(vb_key_invalidate(&f->dev->mkeys, vb_qpc_who(f->ctx), w), VB_MEM_OK);
    vb_pu_poll(f->pu, f->now_ns);
    forge_keep(f);
    assert_int_equal(forge_sent(f, 0)->opcode, VB_RC_READ_RESP_FIRST);
    forge_expect_nak(f, 1, 501, VB_NAK_REMOTE_ACCESS);
    forge_expect_qp_event(f, VB_EVENT_QP_ACCESS_ERR);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bound_window_serves),
        cmocka_unit_test(test_outside_of_the_window),
        cmocka_unit_test(test_an_unbound_window_serves_nobody),
        cmocka_unit_test(test_rights_of_the_window),
        cmocka_unit_test(test_zero_based),
        cmocka_unit_test(test_a_window_is_not_for_local_use),
        cmocka_unit_test(test_refused_bindings),
        cmocka_unit_test(test_bindings_at_the_edges),
        cmocka_unit_test(test_type_1_bound_anew),
        cmocka_unit_test(test_binding_waits_for_its_turn),
        cmocka_unit_test(test_a_binding_asks_for_what_was_silent),
        cmocka_unit_test(test_local_invalidation),
        cmocka_unit_test(test_local_invalidation_refused),
        cmocka_unit_test(test_remote_invalidation),
        cmocka_unit_test(test_remote_invalidation_by_the_last_packet),
        cmocka_unit_test(test_remote_invalidation_without_a_receive),
        cmocka_unit_test(test_remote_invalidation_refused),
        cmocka_unit_test(test_whom_a_window_serves),
        cmocka_unit_test(test_bindings_on_an_unreliable_connection),
        cmocka_unit_test(test_window_that_goes_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
