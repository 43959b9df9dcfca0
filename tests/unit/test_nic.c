// SPDX-License-Identifier: Apache-2.0
// Two NICs over loopback: every verb of every size, lists, inline data, loss, and errors as both
// ends see them.
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fill(uint8_t *bytes, uint32_t len, uint32_t seed)
{
    for (uint32_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((seed + i) * 2654435761u >> 11);
}

// ---- data

static void exchange(struct pair *p, uint32_t len)
{
    uint8_t *here = p->end[0].memory, *there = p->end[1].memory;
    fill(here, len, len);
    memset(there, 0, PAIR_MEMORY);
    pair_post(p, 1, VB_WR_WRITE, len);
    pair_expect(p, 0, 1, VB_WC_WRITE, len);
    assert_memory_equal(here, there, len);
    fill(here, len, len + 1);
    pair_post_recv(&p->end[1], 2, PAIR_MEMORY);
    pair_post(p, 3, VB_WR_SEND, len);
    pair_expect(p, 0, 3, VB_WC_SEND, len);
    pair_expect(p, 1, 2, VB_WC_RECV, len);
    assert_memory_equal(here, there, len);
    if (len < PAIR_MEMORY)
        assert_int_equal(there[len], 0);
    fill(there, len, len + 2);
    pair_post(p, 4, VB_WR_READ, len);
    pair_expect(p, 0, 4, VB_WC_READ, len);
    assert_memory_equal(here, there, len);
}

static void test_all_verbs_of_all_sizes(void **state)
{
    (void)state;
    for (uint32_t mtu = 1024; mtu <= 4096; mtu *= 4) {
        struct pair p = pair_open(mtu, 0);
        const uint32_t lens[] = {0,          1,     63,    64,    mtu - 1,   mtu,
                                 mtu + 1,    65535, 65536, 65537, 3 * 65536, PAIR_MEMORY - 1,
                                 PAIR_MEMORY};
        pair_connect(&p);
        for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
            exchange(&p, lens[i]);
        pair_close(&p);
    }
}

static void test_data_survives_loss(void **state)
{
    (void)state;
    struct pair p = pair_open(1024, 20000); // 2 % each way
    for (unsigned i = 0; i < 2; i++)
        p.end[i].peer.timeout = 10; // 4 ms
    pair_connect(&p);
    for (uint32_t i = 0; i < 10; i++)
        exchange(&p, 100000 + i);
    uint64_t dropped = 0;
    assert_int_equal(vb_nic_counter(p.end[0].nic, "faults_dropped", &dropped), 0);
    assert_true(dropped > 0);
    pair_close(&p);
}

static void make_list(const struct pair_end *e, struct vb_sge sge[16], uint32_t step)
{
    for (uint32_t i = 0; i < 16; i++)
        sge[i] = (struct vb_sge){(uintptr_t)e->memory + i * step, 1000 + i, vb_mr_key(e->mr)};
}

static void test_lists_of_sixteen(void **state)
{
    (void)state;
    struct pair p = pair_open(1024, 0);
    struct vb_sge from[16], to[16];
    uint8_t sent[16 * 1000 + 120], got[sizeof sent];
    pair_connect(&p);
    fill(p.end[0].memory, PAIR_MEMORY, 1);
    make_list(&p.end[0], from, 3000);
    make_list(&p.end[1], to, 5000);
    const struct vb_recv_wr r = {.wr_id = 1, .sge = to, .num_sge = 16};
    const struct vb_send_wr s = {
        .wr_id = 2, .sge = from, .num_sge = 16, .opcode = VB_WR_SEND, .flags = VB_WR_SIGNALED};
    assert_int_equal(vb_post_recv(p.end[1].qp, &r, 1), 1);
    assert_int_equal(vb_post_send(p.end[0].qp, &s, 1), 1);
    pair_expect(&p, 0, 2, VB_WC_SEND, sizeof sent);
    pair_expect(&p, 1, 1, VB_WC_RECV, sizeof sent);
    for (uint32_t i = 0, at = 0; i < 16; at += 1000 + i, i++) {
        memcpy(sent + at, (void *)(uintptr_t)from[i].addr, from[i].len);
        memcpy(got + at, (void *)(uintptr_t)to[i].addr, to[i].len);
    }
    assert_memory_equal(sent, got, sizeof sent);
    // And back by a READ into the list.
    struct vb_send_wr rd = s;
    rd.opcode = VB_WR_READ;
    rd.raddr = (uintptr_t)p.end[1].memory + 100000;
    rd.rkey = vb_mr_key(p.end[1].mr);
    fill(p.end[1].memory + 100000, sizeof sent, 7);
    assert_int_equal(vb_post_send(p.end[0].qp, &rd, 1), 1);
    pair_expect(&p, 0, 2, VB_WC_READ, sizeof sent);
    for (uint32_t i = 0, at = 0; i < 16; at += 1000 + i, i++)
        assert_memory_equal((void *)(uintptr_t)from[i].addr, p.end[1].memory + 100000 + at,
                            from[i].len);
    pair_close(&p);
}

static void test_inline_needs_no_region(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    pair_connect(&p);
    for (uint32_t len = 0; len <= 200; len++) {
        uint8_t own[200];
        fill(own, len, len);
        const struct vb_sge sge = {(uintptr_t)own, len, 0};
        const struct vb_send_wr wr = {.wr_id = len,
                                      .sge = &sge,
                                      .num_sge = 1,
                                      .opcode = VB_WR_WRITE,
                                      .flags = VB_WR_SIGNALED | VB_WR_INLINE,
                                      .raddr = (uintptr_t)p.end[1].memory,
                                      .rkey = vb_mr_key(p.end[1].mr)};
        assert_int_equal(vb_post_send(p.end[0].qp, &wr, 1), 1);
        uint8_t sent[200];
        memcpy(sent, own, len);
        memset(own, 0, sizeof own);
        pair_expect(&p, 0, len, VB_WC_WRITE, len);
        assert_memory_equal(p.end[1].memory, sent, len);
    }
    pair_close(&p);
}

static void test_a_queue_pair_may_talk_to_itself(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    struct pair_end *e = &p.end[0];
    e->peer = pair_peer_of(e, 0);
    assert_int_equal(vb_qp_connect(e->qp, &e->peer), 0);
    pair_post_recv(e, 1, 100);
    pair_post(&p, 2, VB_WR_SEND, 10);
    bool seen[3] = {false};
    for (int i = 0; i < 2; i++) {
        struct vb_wc wc = pair_wait(&p, 0);
        assert_int_equal(wc.status, VB_WC_OK);
        seen[wc.wr_id] = true;
    }
    assert_true(seen[1] && seen[2]);
    pair_close(&p);
}

// ---- errors

static void test_remote_access_errors(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct pair p = pair_open(0, 0);
        struct vb_mr *mr = NULL;
        struct pair_end *o = &p.end[1];
        assert_int_equal(vb_mr_reg(o->pd, o->memory, 100, VB_RIGHT_REMOTE_READ, &mr), 0);
        if (kind == 3)
            p.end[1].peer.rights = VB_RIGHT_REMOTE_READ;
        pair_connect(&p);
        const struct vb_sge sge = {(uintptr_t)p.end[0].memory, 8, vb_mr_key(p.end[0].mr)};
        struct vb_send_wr wr = {.wr_id = 1,
                                .sge = &sge,
                                .num_sge = 1,
                                .opcode = VB_WR_WRITE,
                                .raddr = (uintptr_t)o->memory,
                                .rkey = vb_mr_key(kind == 0 ? mr : o->mr)};
        if (kind == 1)
            wr.raddr += PAIR_MEMORY - 7;
        if (kind == 2)
            wr.rkey = 0;
        pair_post_recv(o, 5, 10);
        fill(p.end[0].memory, 8, 3);
        assert_int_equal(vb_post_send(p.end[0].qp, &wr, 1), 1);
        pair_expect_error(&p, 0, 1, VB_WC_REMOTE_ACCESS);
        pair_expect_error(&p, 1, 5, VB_WC_FLUSHED); // the target's queue pair has failed as well
        assert_int_equal(o->memory[0], 0);
        pair_close(&p);
    }
}

static void test_local_errors(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    const struct vb_sge sge = {(uintptr_t)p.end[0].memory + PAIR_MEMORY - 9, 10,
                               vb_mr_key(p.end[0].mr)};
    const struct vb_send_wr bad = {
        .wr_id = 2, .sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND}; // a byte too many
    pair_connect(&p);
    pair_post(&p, 1, VB_WR_WRITE, 10);
    assert_int_equal(vb_post_send(p.end[0].qp, &bad, 1), 1);
    pair_post(&p, 3, VB_WR_WRITE, 10);
    pair_expect(&p, 0, 1, VB_WC_WRITE, 10);
    pair_expect_error(&p, 0, 2, VB_WC_LOCAL_PROTECTION);
    pair_expect_error(&p, 0, 3, VB_WC_FLUSHED);
    pair_post(&p, 4, VB_WR_READ, 10); // after the failure
    pair_expect_error(&p, 0, 4, VB_WC_FLUSHED);
    pair_close(&p);
}

static void test_receive_too_short(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    pair_connect(&p);
    pair_post_recv(&p.end[1], 1, 99);
    pair_post(&p, 2, VB_WR_SEND, 100);
    pair_expect_error(&p, 0, 2, VB_WC_REMOTE_INVALID);
    pair_expect_error(&p, 1, 1, VB_WC_LOCAL_LENGTH);
    pair_close(&p);
}

static void test_no_receive_in_time(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    p.end[0].peer.rnr_retries = 2;
    p.end[1].peer.rnr_timer = 1;
    pair_connect(&p);
    pair_post(&p, 1, VB_WR_SEND, 100);
    pair_expect_error(&p, 0, 1, VB_WC_RNR_EXCEEDED);
    uint64_t count = 0;
    assert_int_equal(vb_nic_counter(p.end[1].nic, "send_rnr_err", &count), 0);
    assert_int_equal(count, 3);
    pair_close(&p);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    p.end[0].peer.timeout = 4; // 65 us
    p.end[0].peer.retries = 2;
    p.end[0].peer.qpn ^= 1;
    assert_int_equal(vb_qp_connect(p.end[0].qp, &p.end[0].peer), 0);
    pair_post(&p, 1, VB_WR_SEND, 100);
    pair_expect_error(&p, 0, 1, VB_WC_RETRY_EXCEEDED);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_verbs_of_all_sizes),
        cmocka_unit_test(test_data_survives_loss),
        cmocka_unit_test(test_lists_of_sixteen),
        cmocka_unit_test(test_inline_needs_no_region),
        cmocka_unit_test(test_a_queue_pair_may_talk_to_itself),
        cmocka_unit_test(test_remote_access_errors),
        cmocka_unit_test(test_local_errors),
        cmocka_unit_test(test_receive_too_short),
        cmocka_unit_test(test_no_receive_in_time),
        cmocka_unit_test(test_nobody_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
