// SPDX-License-Identifier: Apache-2.0
// The responder against a forged peer: SENDs and WRITEs that are past, in order, future and
// repeated, the answers it owes, and what it refuses. READs have a test of their own.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct forge *open_at(uint32_t peer_psn)
{
    struct forge_opts o = forge_defaults();
    o.peer_psn = peer_psn;
    return forge_open(&o);
}

static enum vb_rx_verdict write_to(struct forge *f, enum vb_opcode opcode, uint32_t psn,
                                   uint32_t offset, uint32_t dma_len, uint32_t len, uint8_t seed)
{
    uint8_t payload[VB_MTU_MAX];
    struct vb_packet p = forge_reth(f, opcode, psn, offset, dma_len);
    for (uint32_t i = 0; i < len; i++)
        payload[i] = (uint8_t)(seed + i * 7 + (i >> 8) * 13); // as forge_fill() does
    p.payload = payload;
    p.payload_len = len;
    p.ack_request = vb_opcode_table[opcode].facts & VB_OP_LAST;
    return forge_give(f, &p);
}

// ---- SEND

static void test_sends_at_the_mtus_edges(void **state)
{
    (void)state;
    static const uint32_t lens[] = {0, 1, 3, 1023, 1024};
    struct forge *f = open_at(0xfffffe);
    for (uint32_t i = 0; i < 5; i++) {
        forge_post_recv(f, i, i * 2000, 2000);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0xfffffe + i, lens[i], (uint8_t)i),
                         VB_RX_APPLIED);
        forge_expect_recv(f, i, VB_WC_OK, lens[i]);
        assert_true(forge_filled(f->memory + i * 2000, lens[i], (uint8_t)i));
        assert_int_equal(f->memory[i * 2000 + lens[i]], 0);
        forge_expect_ack(f, i, 0xfffffe + i);
        assert_int_equal(forge_sent(f, i)->msn, i + 1);
    }
    assert_int_equal(forge_counters(f)->rx_send_requests, 5);
    forge_close(f);
}

static void test_long_sends(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    forge_post_recv(f, 1, 0, 2049);
    forge_send(f, VB_RC_SEND_FIRST, 0xffffff, 1024, 1);
    forge_send(f, VB_RC_SEND_MIDDLE, 0, 1024, 2);
    forge_expect_none(f);
    assert_int_equal(f->sent_count, 0); // nobody asked for an answer yet
    forge_send(f, VB_RC_SEND_LAST, 1, 1, 3);
    forge_expect_recv(f, 1, VB_WC_OK, 2049);
    assert_true(forge_filled(f->memory, 1024, 1));
    assert_true(forge_filled(f->memory + 1024, 1024, 2));
    assert_int_equal(f->memory[2048], 3);
    assert_int_equal(f->sent_count, 1);
    forge_expect_ack(f, 0, 1);
    forge_close(f);
}

static void test_sends_into_sixteen_segments(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_sge sge[16];
    for (uint32_t i = 0; i < 16; i++)
        sge[i] = (struct vb_sge){forge_addr(f, 1000 * i), 64, f->key};
    const struct vb_recv_wr wr = {.wr_id = 1, .sge = sge, .num_sge = 16};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    forge_send(f, VB_RC_SEND_ONLY, 500, 1023, 9);
    forge_expect_recv(f, 1, VB_WC_OK, 1023);
    uint8_t got[1024];
    for (uint32_t i = 0; i < 16; i++)
        memcpy(got + i * 64, f->memory + 1000 * i, 64);
    assert_true(forge_filled(got, 1023, 9));
    assert_int_equal(got[1023], 0);
    assert_int_equal(f->memory[64], 0);
    forge_close(f);
}

// Segments of no bytes are passed over, whatever they name.
static void test_segments_of_nothing(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    const struct vb_sge sge[4] = {{0, 0, 0},
                                  {forge_addr(f, 0), 10, f->key},
                                  {0, 0, f->key ^ 0x10000},
                                  {forge_addr(f, 100), 10, f->key}};
    const struct vb_recv_wr wr = {.wr_id = 1, .sge = sge, .num_sge = 4};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    forge_send(f, VB_RC_SEND_ONLY, 500, 20, 9);
    forge_expect_recv(f, 1, VB_WC_OK, 20);
    assert_true(forge_filled(f->memory, 10, 9));
    assert_int_equal(f->memory[100], (uint8_t)(9 + 10 * 7));
    forge_close(f);
}

// A short list ends where it ends, not where an older one in the same place did.
static void test_short_list_over_a_long_one(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.recv_depth = 1;
    struct forge *f = forge_open(&o);
    struct vb_sge sge[16];
    for (uint32_t i = 0; i < 16; i++)
        sge[i] = (struct vb_sge){forge_addr(f, 1000 * i), 64, f->key};
    for (uint32_t n = 16;; n -= 5) {
        const struct vb_recv_wr wr = {.wr_id = n, .sge = sge, .num_sge = n};
        assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
        bool fits = n > 1;
        enum vb_rx_verdict want = fits ? VB_RX_APPLIED : VB_RX_REFUSED;
        uint32_t psn = 500 + (16 - n) / 5, len = fits ? n * 64 : 65;
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, psn, len, 1), want);
        forge_expect_recv(f, n, fits ? VB_WC_OK : VB_WC_LOCAL_LENGTH, fits ? len : 0);
        if (n == 1)
            break;
    }
    forge_close(f);
}

static void test_receive_of_exactly_the_room(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, FORGE_MEMORY - 1025, 1025);
    forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
    forge_send(f, VB_RC_SEND_LAST, 501, 1, 1);
    forge_expect_recv(f, 1, VB_WC_OK, 1025);
    forge_close(f);
}

static void test_receive_that_is_too_short(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) { // in the first packet, or in a later one
        struct forge *f = open_at(500);
        uint32_t room = late ? 1024 : 1023;
        forge_post_recv(f, 1, 0, room);
        forge_post_recv(f, 2, 0, 9999);
        forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
        if (late)
            assert_int_equal(forge_send(f, VB_RC_SEND_LAST, 501, 1, 1), VB_RX_REFUSED);
        forge_expect_nak(f, 0, late ? 501 : 500, VB_NAK_INVALID_REQUEST);
        forge_expect_recv(f, 1, VB_WC_LOCAL_LENGTH, 0);
        forge_expect_recv(f, 2, VB_WC_FLUSHED, 0);
        assert_int_equal(f->memory[room], 0);
        assert_int_equal(forge_state(f), VB_QPS_ERR);
        forge_close(f);
    }
}

static void test_receive_into_bad_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct forge *f = open_at(500);
        uint32_t key;
        const struct vb_mkey_attr attr = {
            .pd = f->pd, .start = forge_addr(f, 0), .len = 100, .base = f->memory};
        assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0); // without local write
        struct vb_sge sge = {forge_addr(f, 0), 100, key};
        if (kind == 1)
            sge = (struct vb_sge){forge_addr(f, FORGE_MEMORY - 9), 10, f->key};
        if (kind == 2)
            sge.lkey = 0;
        const struct vb_recv_wr wr = {.wr_id = 1, .sge = &sge, .num_sge = 1};
        assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 10, 1), VB_RX_REFUSED);
        forge_expect_nak(f, 0, 500, VB_NAK_REMOTE_OPERATION);
        forge_expect_recv(f, 1, VB_WC_LOCAL_PROTECTION, 0);
        assert_int_equal(f->memory[0], 0);
        forge_close(f);
    }
}

static void test_empty_send_looks_at_no_memory(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    const struct vb_sge sge = {0, 10, 0};
    const struct vb_recv_wr wr = {.wr_id = 1, .sge = &sge, .num_sge = 1};
    const struct vb_recv_wr none = {.wr_id = 2};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    assert_int_equal(vb_driver_post_recv(&f->qp, &none, 1), 1);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 500, 0, 0), VB_RX_APPLIED);
    forge_expect_recv(f, 1, VB_WC_OK, 0);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 501, 0, 0), VB_RX_APPLIED);
    forge_expect_recv(f, 2, VB_WC_OK, 0);
    forge_close(f);
}

// ---- no receive: RNR NAK

static void test_no_receive(void **state)
{
    (void)state;
    struct forge *f = open_at(0xffffff);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0xffffff, 4, 1), VB_RX_RNR);
    forge_expect_rnr(f, 0, 0xffffff, 12);
    assert_int_equal(forge_sent(f, 0)->msn, 0);
    // What followed it is dropped in silence.
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 4, 1), VB_RX_AHEAD);
    assert_int_equal(f->sent_count, 1);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0xffffff, 4, 1), VB_RX_RNR);
    forge_expect_rnr(f, 1, 0xffffff, 12);
    forge_post_recv(f, 1, 0, 4);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0xffffff, 4, 1), VB_RX_APPLIED);
    forge_expect_ack(f, 2, 0xffffff);
    forge_expect_recv(f, 1, VB_WC_OK, 4);
    assert_int_equal(forge_counters(f)->send_rnr_err, 2);
    assert_int_equal(forge_counters(f)->out_of_buffer, 2);
    assert_int_equal(forge_counters(f)->rcvd_seq_err, 0);
    assert_int_equal(forge_counters(f)->rx_send_requests, 1);
    forge_close(f);
}

static void test_no_receive_after_others(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, 0, 4);
    struct vb_packet a = forge_packet(f, VB_RC_SEND_ONLY, 500);
    struct vb_packet b = forge_packet(f, VB_RC_SEND_ONLY, 501);
    a.ack_request = true;
    forge_queue(f, &a);
    forge_queue(f, &b);
    forge_run(f);
    assert_int_equal(f->sent_count, 1); // the complaint acknowledges the first
    forge_expect_rnr(f, 0, 501, 12);
    forge_close(f);
}

// ---- WRITE

static void test_writes_at_the_mtus_edges(void **state)
{
    (void)state;
    static const uint32_t lens[] = {0, 1, 3, 1023, 1024};
    struct forge *f = open_at(0xfffffe);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(
            write_to(f, VB_RC_WRITE_ONLY, 0xfffffe + i, i * 2000, lens[i], lens[i], (uint8_t)i),
            VB_RX_APPLIED);
        assert_true(forge_filled(f->memory + i * 2000, lens[i], (uint8_t)i));
        assert_int_equal(f->memory[i * 2000 + lens[i]], 0);
        forge_expect_ack(f, i, 0xfffffe + i);
    }
    forge_expect_none(f);
    assert_int_equal(forge_counters(f)->rx_write_requests, 5);
    forge_close(f);
}

static void test_long_writes(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    write_to(f, VB_RC_WRITE_FIRST, 500, FORGE_MEMORY - 2049, 2049, 1024, 1);
    write_to(f, VB_RC_WRITE_MIDDLE, 501, 0, 0, 1024, 2);
    assert_int_equal(write_to(f, VB_RC_WRITE_LAST, 502, 0, 0, 1, 3), VB_RX_APPLIED);
    assert_true(forge_filled(f->memory + FORGE_MEMORY - 2049, 1024, 1));
    assert_true(forge_filled(f->memory + FORGE_MEMORY - 1025, 1024, 2));
    assert_int_equal(f->memory[FORGE_MEMORY - 1], 3);
    assert_int_equal(f->memory[0], 0);
    assert_int_equal(f->sent_count, 1);
    forge_expect_ack(f, 0, 502);
    forge_close(f);
}

static void test_write_of_nothing_needs_no_key(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    struct vb_packet p = forge_packet(f, VB_RC_WRITE_ONLY, 500);
    p.ack_request = true;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    forge_expect_ack(f, 0, 500);
    forge_close(f);
}

static void expect_refused(struct forge *f, enum vb_rx_verdict verdict, uint32_t psn,
                           enum vb_nak code)
{
    static const uint8_t zeros[4096];
    assert_int_equal(verdict, VB_RX_REFUSED);
    assert_int_equal(f->sent_count, 1);
    forge_expect_nak(f, 0, psn, code);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    assert_memory_equal(f->memory, zeros, sizeof zeros);
    assert_memory_equal(f->memory + FORGE_MEMORY - 4096, zeros, sizeof zeros);
    forge_close(f);
}

static void test_writes_that_may_not_be(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    uint32_t pd, key;
    assert_int_equal(vb_dev_pd_create(f->dev, &pd), 0);
    struct vb_mkey_attr attr = {.pd = pd,
                                .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE,
                                .start = forge_addr(f, 0),
                                .len = 100,
                                .base = f->memory};
    struct vb_packet p = forge_reth(f, VB_RC_WRITE_ONLY, 500, 0, 4);
    p.payload = (const uint8_t *)"abcd";
    p.payload_len = 4;

    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
    p.rkey = key; // another domain's
    expect_refused(f, forge_give(f, &p), 500, VB_NAK_REMOTE_ACCESS);

    f = open_at(500);
    attr = (struct vb_mkey_attr){.pd = f->pd,
                                 .access = VB_LOCAL_WRITE | VB_REMOTE_READ,
                                 .start = forge_addr(f, 0),
                                 .len = 100,
                                 .base = f->memory};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
    p.raddr = forge_addr(f, 0);
    p.rkey = key; // a region that may not be written
    expect_refused(f, forge_give(f, &p), 500, VB_NAK_REMOTE_ACCESS);

    f = open_at(500);
    p.raddr = forge_addr(f, 0);
    p.rkey = 0;
    expect_refused(f, forge_give(f, &p), 500, VB_NAK_REMOTE_ACCESS);
}

static void test_writes_without_the_queue_pairs_right(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.access = VB_REMOTE_READ;
    for (uint32_t len = 0; len < 2; len++) { // not even of nothing
        struct forge *f = forge_open(&o);
        expect_refused(f, write_to(f, VB_RC_WRITE_ONLY, 500, 0, len, len, 1), 500,
                       VB_NAK_REMOTE_ACCESS);
    }
}

static void test_writes_out_of_bounds(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    expect_refused(f, write_to(f, VB_RC_WRITE_ONLY, 500, FORGE_MEMORY - 9, 10, 10, 1), 500,
                   VB_NAK_REMOTE_ACCESS);
    f = open_at(500);
    expect_refused(f, write_to(f, VB_RC_WRITE_ONLY, 500, UINT32_MAX, 10, 10, 1), 500,
                   VB_NAK_REMOTE_ACCESS);
    // The whole message is proved before its first byte is stored.
    f = open_at(500);
    expect_refused(f, write_to(f, VB_RC_WRITE_FIRST, 500, FORGE_MEMORY - 2000, 2001, 1024, 1), 500,
                   VB_NAK_REMOTE_ACCESS);
    f = open_at(500);
    expect_refused(f, write_to(f, VB_RC_WRITE_FIRST, 500, 0, 0x80000001, 1024, 1), 500,
                   VB_NAK_INVALID_REQUEST);
}

// 2 GiB are legal; only the first packet's bytes are behind the region that is named here.
static void test_longest_message(void **state)
{
    (void)state;
    for (uint32_t over = 0; over < 2; over++) {
        struct forge *f = open_at(500);
        const struct vb_mkey_attr attr = {.pd = f->pd,
                                          .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE,
                                          .start = 0x1000,
                                          .len = 1ull << 32,
                                          .base = f->memory};
        struct vb_packet p = forge_packet(f, VB_RC_WRITE_FIRST, 500);
        static const uint8_t payload[1024] = {7};
        assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &p.rkey), 0);
        p.raddr = 0x1000;
        p.dma_len = 0x80000000u + over;
        p.payload = payload;
        p.payload_len = 1024;
        assert_int_equal(forge_give(f, &p), over ? VB_RX_REFUSED : VB_RX_APPLIED);
        assert_int_equal(f->memory[0], over ? 0 : 7);
        forge_close(f);
    }
}

static void test_region_goes_while_it_is_written(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    write_to(f, VB_RC_WRITE_FIRST, 500, 100000, 2048, 1024, 1);
    assert_int_equal(vb_dev_mkey_destroy(f->dev, f->key), 0);
    expect_refused(f, write_to(f, VB_RC_WRITE_LAST, 501, 0, 0, 1024, 1), 501, VB_NAK_REMOTE_ACCESS);
}

// ---- shapes of messages

static bool store_nothing(void *ctx, uint64_t source, uint64_t at, const uint8_t *bytes,
                          uint64_t len)
{
    (void)source;
    (void)at;
    (void)bytes;
    (void)len;
    return *(const bool *)ctx;
}

// Memory that has to be copied, and is gone when it is: the fault is not the peer's.
static void test_copied_memory_that_is_gone(void **state)
{
    bool is_there = true;
    const struct vb_mem_copier copier = {.ctx = &is_there, .store = store_nothing};
    struct forge *f = open_at(300);

    (void)state;
    vb_dev_copy_by(f->dev, &copier);
    const struct vb_mkey_attr attr = {.pd = f->pd,
                                      .kind = VB_MKEY_COPIED,
                                      .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE,
                                      .start = (uintptr_t)f->memory,
                                      .len = FORGE_MEMORY};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &f->key), 0);
    assert_int_equal(write_to(f, VB_RC_WRITE_ONLY, 300, 0, 8, 8, 1), VB_RX_APPLIED);
    forge_expect_ack(f, 0, 300);
    is_there = false;
    assert_int_equal(write_to(f, VB_RC_WRITE_ONLY, 301, 0, 8, 8, 1), VB_RX_REFUSED);
    forge_expect_nak(f, 1, 301, VB_NAK_REMOTE_OPERATION);
    forge_close(f);
}

static void test_lengths_that_lie(void **state)
{
    (void)state;
    static const struct {
        enum vb_opcode opcode;
        uint32_t dma_len, len;
    } bad[] = {
        {VB_RC_WRITE_ONLY, 10, 9},       {VB_RC_WRITE_ONLY, 9, 10},
        {VB_RC_WRITE_ONLY, 0, 1},        {VB_RC_WRITE_ONLY, 1, 0},
        {VB_RC_WRITE_ONLY, 1028, 1028},  {VB_RC_WRITE_FIRST, 2000, 1000},
        {VB_RC_WRITE_FIRST, 1024, 1024}, {VB_RC_WRITE_FIRST, 0, 1024},
        {VB_RC_SEND_ONLY, 0, 1028},      {VB_RC_SEND_FIRST, 0, 1023},
        {VB_RC_SEND_FIRST, 0, 1028},     {VB_RC_SEND_FIRST, 0, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct forge *f = open_at(500);
        forge_post_recv(f, 1, 8192, 4096);
        expect_refused(f, write_to(f, bad[i].opcode, 500, 0, bad[i].dma_len, bad[i].len, 1), 500,
                       VB_NAK_INVALID_REQUEST);
    }
}

static void test_writes_whose_packets_do_not_add_up(void **state)
{
    (void)state;
    static const struct {
        enum vb_opcode opcode;
        uint32_t len;
    } second[] = {
        {VB_RC_WRITE_LAST, 975},  {VB_RC_WRITE_LAST, 977},    {VB_RC_WRITE_LAST, 0},
        {VB_RC_WRITE_LAST, 1028}, {VB_RC_WRITE_MIDDLE, 1024}, {VB_RC_WRITE_MIDDLE, 976},
    };
    for (size_t i = 0; i < sizeof second / sizeof second[0]; i++) {
        struct forge *f = open_at(500);
        write_to(f, VB_RC_WRITE_FIRST, 500, 100000, 2000, 1024, 1);
        expect_refused(f, write_to(f, second[i].opcode, 501, 0, 0, second[i].len, 1), 501,
                       VB_NAK_INVALID_REQUEST);
    }
}

static void test_the_last_packet_of_a_send_is_not_empty(void **state)
{
    (void)state;
    struct forge *f = open_at(500);
    forge_post_recv(f, 1, 8192, 4096);
    forge_send(f, VB_RC_SEND_FIRST, 500, 1024, 1);
    assert_int_equal(forge_send(f, VB_RC_SEND_LAST, 501, 0, 1), VB_RX_REFUSED);
    forge_expect_nak(f, 0, 501, VB_NAK_INVALID_REQUEST);
    forge_expect_recv(f, 1, VB_WC_FLUSHED, 0);
    forge_close(f);
}

// Which packet may follow which: a state of the message, a packet, and whether it fits.
static void test_packets_out_of_their_message(void **state)
{
    (void)state;
    static const enum vb_opcode begin[] = {VB_RC_ACK /* none */, VB_RC_SEND_FIRST,
                                           VB_RC_WRITE_FIRST};
    static const enum vb_opcode all[] = {VB_RC_SEND_FIRST, VB_RC_SEND_MIDDLE, VB_RC_SEND_LAST,
                                         VB_RC_SEND_ONLY,  VB_RC_WRITE_FIRST, VB_RC_WRITE_MIDDLE,
                                         VB_RC_WRITE_LAST, VB_RC_WRITE_ONLY,  VB_RC_READ_REQUEST};
    static const bool fits[3][9] = {
        {1, 0, 0, 1, 1, 0, 0, 1, 1}, {0, 1, 1, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 1, 1, 0, 0}};
    for (int b = 0; b < 3; b++)
        for (int n = 0; n < 9; n++) {
            struct forge *f = open_at(500);
            forge_post_recv(f, 1, 0, 8192);
            if (b > 0)
                write_to(f, begin[b], 500, 0, all[n] == VB_RC_WRITE_LAST ? 2048 : 4096, 1024, 1);
            uint32_t len = all[n] == VB_RC_READ_REQUEST ? 0 : 1024;
            uint32_t dma_len = all[n] == VB_RC_WRITE_FIRST ? 4096 : len;
            assert_int_equal(write_to(f, all[n], 500 + (b > 0), 0, dma_len, len, 1),
                             fits[b][n] ? VB_RX_APPLIED : VB_RX_REFUSED);
            assert_int_equal(forge_state(f), fits[b][n] ? VB_QPS_RTS : VB_QPS_ERR);
            forge_close(f);
        }
}

static void test_opcodes_of_other_services(void **state)
{
    (void)state;
    static const uint8_t ops[] = {VB_UC_BASE | VB_RC_SEND_ONLY, VB_UD_SEND_ONLY,
                                  VB_XRC_BASE | VB_RC_SEND_ONLY, VB_XRC_BASE | VB_RC_ACK, VB_CNP};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct forge *f = open_at(500);
        forge_post_recv(f, 1, 0, 100);
        struct vb_packet p = forge_packet(f, ops[i], 500);
        assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
        assert_int_equal(f->sent_count, 0);
        assert_int_equal(forge_state(f), VB_QPS_RTS);
        forge_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sends_at_the_mtus_edges),
        cmocka_unit_test(test_long_sends),
        cmocka_unit_test(test_sends_into_sixteen_segments),
        cmocka_unit_test(test_segments_of_nothing),
        cmocka_unit_test(test_short_list_over_a_long_one),
        cmocka_unit_test(test_receive_of_exactly_the_room),
        cmocka_unit_test(test_receive_that_is_too_short),
        cmocka_unit_test(test_receive_into_bad_memory),
        cmocka_unit_test(test_empty_send_looks_at_no_memory),
        cmocka_unit_test(test_no_receive),
        cmocka_unit_test(test_no_receive_after_others),
        cmocka_unit_test(test_writes_at_the_mtus_edges),
        cmocka_unit_test(test_long_writes),
        cmocka_unit_test(test_write_of_nothing_needs_no_key),
        cmocka_unit_test(test_writes_that_may_not_be),
        cmocka_unit_test(test_writes_without_the_queue_pairs_right),
        cmocka_unit_test(test_writes_out_of_bounds),
        cmocka_unit_test(test_longest_message),
        cmocka_unit_test(test_region_goes_while_it_is_written),
        cmocka_unit_test(test_copied_memory_that_is_gone),
        cmocka_unit_test(test_lengths_that_lie),
        cmocka_unit_test(test_writes_whose_packets_do_not_add_up),
        cmocka_unit_test(test_the_last_packet_of_a_send_is_not_empty),
        cmocka_unit_test(test_packets_out_of_their_message),
        cmocka_unit_test(test_opcodes_of_other_services),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
