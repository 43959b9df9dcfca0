// SPDX-License-Identifier: Apache-2.0
// Datagrams: to whom each goes, the header that comes before what is received, and all that is
// dropped.
#include "base/bytes.h"
#include "forge.h"
#include "nic/spread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    QKEY = 0x11223344,
    GRH = 40,
};

static struct forge_opts defaults(void)
{
    struct forge_opts o = forge_defaults();
    o.type = VB_QPT_UD;
    o.qkey = QKEY;
    return o;
}

static struct forge *open_ud(void)
{
    struct forge_opts o = defaults();
    return forge_open(&o);
}

static struct vb_send_wr datagram(const struct forge *f, uint64_t wr_id, const struct vb_sge *sge)
{
    struct vb_send_wr wr = {
        .wr_id = wr_id, .sge = sge, .num_sge = 1, .opcode = VB_WR_SEND, .flags = VB_WR_SIGNALED};
    memcpy(wr.to.gid, f->remote.b, 16);
    wr.to.qpn = FORGE_PEER_QPN;
    wr.to.qkey = QKEY;
    return wr;
}

// ---- sending

static void test_datagrams_leave(void **state)
{
    (void)state;
    static const uint32_t lens[] = {0, 1, 1023, 1024};
    for (uint32_t ipv6 = 0; ipv6 < 2; ipv6++) {
        struct forge_opts o = defaults();
        o.ipv6 = ipv6;
        o.our_psn = 0xfffffe;
        struct forge *f = forge_open(&o);
        forge_fill(f, 0, 1024, 9);
        for (uint32_t i = 0; i < 4; i++) {
            const struct vb_sge sge = {forge_addr(f, 0), lens[i], f->key};
            struct vb_send_wr wr = datagram(f, i, &sge);
            wr.opcode = i % 2 ? VB_WR_SEND_IMM : VB_WR_SEND;
            wr.imm = 0x99;
            wr.flags |= i % 2 ? VB_WR_SOLICITED : 0;
            forge_post_send(f, &wr);
            forge_run(f);
            forge_expect_done(f, i, VB_WC_OK);
            const struct vb_packet *p = forge_sent(f, i); // to the peer: forge_keep() looks
            assert_int_equal(p->opcode, i % 2 ? VB_UD_SEND_ONLY_IMM : VB_UD_SEND_ONLY);
            assert_int_equal(p->imm, i % 2 ? 0x99 : 0);
            assert_int_equal(p->solicited, i % 2);
            assert_int_equal(p->psn, (0xfffffe + i) & 0xffffff);
            assert_int_equal(p->qkey, QKEY);
            assert_int_equal(p->src_qpn, f->qp.qpn);
            assert_int_equal(p->payload_len, lens[i]);
            assert_true(forge_filled(p->payload, lens[i], 9));
            assert_false(p->ack_request);
        }
        assert_int_equal(vb_pu_deadline(f->pu), UINT64_MAX);
        forge_close(f);
    }
}

// The top bit of a request's Q_Key asks for the queue pair's own.
static void test_the_top_bit_of_the_qkey(void **state)
{
    (void)state;
    static const uint32_t asked[] = {0x80000000, 0xffffffff, 0x7fffffff, 0};
    struct forge *f = open_ud();
    const struct vb_sge sge = {forge_addr(f, 0), 1, f->key};
    for (uint32_t i = 0; i < 4; i++) {
        struct vb_send_wr wr = datagram(f, i, &sge);
        wr.to.qkey = asked[i];
        forge_post_send(f, &wr);
        forge_run(f);
        assert_int_equal(forge_sent(f, i)->qkey, i < 2 ? QKEY : asked[i]);
    }
    forge_close(f);
}

// Longer than one packet holds: the send queue fails, receiving goes on.
static void test_longer_than_the_mtu(void **state)
{
    (void)state;
    for (uint32_t mtu = 256; mtu <= 4096; mtu *= 16) {
        struct forge_opts o = defaults();
        o.mtu = mtu;
        struct forge *f = forge_open(&o);
        const struct vb_sge sge = {forge_addr(f, 0), mtu + 1, f->key};
        struct vb_send_wr wr = datagram(f, 1, &sge);
        forge_post_send(f, &wr);
        wr.wr_id = 2;
        forge_post_send(f, &wr);
        forge_run(f);
        assert_int_equal(f->sent_count, 0);
        forge_expect_done(f, 1, VB_WC_LOCAL_LENGTH);
        forge_expect_done(f, 2, VB_WC_FLUSHED);
        assert_int_equal(forge_state(f), VB_QPS_SQE);
        forge_post_recv(f, 3, 0, 100);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 4, 1), VB_RX_APPLIED);
        forge_expect_recv(f, 3, VB_WC_OK, 44);
        forge_close(f);
    }
}

static void test_an_address_of_another_family(void **state)
{
    (void)state;
    for (uint32_t ipv6 = 0; ipv6 < 2; ipv6++) {
        struct forge_opts o = defaults();
        o.ipv6 = ipv6;
        struct forge *f = forge_open(&o);
        const struct vb_sge sge = {forge_addr(f, 0), 1, f->key};
        struct vb_send_wr wr = datagram(f, 1, &sge);
        memset(wr.to.gid, 0, 16);
        wr.to.gid[10] = wr.to.gid[11] = ipv6 ? 0xff : 0;
        wr.to.gid[15] = 1;
        forge_post_send(f, &wr);
        forge_run(f);
        assert_int_equal(f->sent_count, 0);
        forge_expect_done(f, 1, VB_WC_LOCAL_QP_OP);
        assert_int_equal(forge_state(f), VB_QPS_SQE);
        forge_close(f);
    }
}

static void test_other_operations(void **state)
{
    (void)state;
    for (enum vb_wr_opcode op = VB_WR_SEND; op <= VB_WR_LOCAL_INVAL; op++) {
        if (op == VB_WR_SEND || op == VB_WR_SEND_IMM)
            continue;
        struct forge *f = open_ud();
        const struct vb_sge sge = {forge_addr(f, 0), 8, f->key};
        bool empty = op == VB_WR_NOP || op == VB_WR_FLUSH || op >= VB_WR_BIND;
        const struct vb_send_wr wr = {
            .wr_id = 1, .sge = &sge, .num_sge = !empty, .opcode = op, .flags = VB_WR_SIGNALED};
        forge_post_send(f, &wr);
        forge_run(f);
        assert_int_equal(f->sent_count, 0);
        forge_expect_done(f, 1, op == VB_WR_NOP ? VB_WC_OK : VB_WC_LOCAL_QP_OP);
        forge_close(f);
    }
}

static void test_memory_refused(void **state)
{
    (void)state;
    struct forge *f = open_ud();
    const struct vb_sge bad = {forge_addr(f, 0), 1, f->key ^ 1};
    struct vb_send_wr wr = datagram(f, 1, &bad);
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_expect_done(f, 1, VB_WC_LOCAL_PROTECTION);
    assert_int_equal(forge_state(f), VB_QPS_SQE);
    forge_close(f);
}

// More destinations than paths are kept: old paths go when no frame in the queue needs them.
static void test_many_destinations(void **state)
{
    (void)state;
    struct forge *f = open_ud();
    const struct vb_sge sge = {forge_addr(f, 0), 1, f->key};
    struct vb_txq *q = vb_pu_txq(f->pu);
    uint32_t leaving = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        struct vb_send_wr wr = datagram(f, i, &sge);
        vb_put_be16(wr.to.gid + 14, (uint16_t)i);
        forge_post_send(f, &wr);
        forge_expect_none(f);
        vb_pu_poll(f->pu, f->now_ns);
        assert_int_equal(forge_next_done(f).wr_id, i);
        if (q->count == 50)
            for (; q->taken < q->count; leaving++) {
                const struct vb_path *path = q->frame[q->taken++].path;
                assert_int_equal(vb_get_be16(path->remote.b + 14), leaving);
            }
        vb_pu_tx_release(f->pu);
    }
    assert_int_equal(leaving, 2000);
    forge_close(f);
}

// A path is that of an address and of what is asked for on the way there.
static void test_attributes_of_a_request(void **state)
{
    (void)state;
    struct forge *f = open_ud();
    const struct vb_sge sge = {forge_addr(f, 0), 1, f->key};
    struct vb_txq *q = vb_pu_txq(f->pu);
    for (uint32_t i = 0; i < 8; i++) {
        struct vb_send_wr wr = datagram(f, i, &sge);
        wr.to.traffic_class = i & 1 ? 0xb9 : 0;
        wr.to.hop_limit = i & 2 ? 17 : 0;
        wr.to.flow_label = i & 4 ? 0xfedcb : 0;
        wr.to.service_level = (uint8_t)(i % 7);
        forge_post_send(f, &wr);
        vb_pu_poll(f->pu, f->now_ns);
        assert_int_equal(forge_next_done(f).status, VB_WC_OK);
        const struct vb_tx_frame *frame = &q->frame[q->count - 1];
        // Paths are of no queue pair: the datagram itself says whose it is.
        assert_int_equal(vb_tx_source(frame->path, q->arena + frame->offset, frame->len),
                         f->qp.qpn);
        const struct vb_path_attr *a = &frame->path->attr;
        assert_int_equal(a->traffic_class, wr.to.traffic_class);
        assert_int_equal(a->hop_limit, wr.to.hop_limit);
        assert_int_equal(a->flow_label, wr.to.flow_label);
        assert_int_equal(a->sl, wr.to.service_level);
    }
    forge_close(f);
}

static void test_a_level_that_is_the_systems(void **state)
{
    (void)state;
    struct forge *f = open_ud();
    const struct vb_sge sge = {forge_addr(f, 0), 1, f->key};
    struct vb_send_wr wr = datagram(f, 9, &sge);
    wr.to.service_level = 7;
    forge_post_send(f, &wr);
    forge_run(f);
    assert_int_equal(f->sent_count, 0);
    forge_expect_done(f, 9, VB_WC_LOCAL_QP_OP);
    forge_close(f);
}

// Of paths that queue pairs share, datagrams name their sender, if all of their headers are there.
static void test_who_sent_a_frame(void **state)
{
    const uint32_t len = VB_BTH_BYTES + VB_DETH_BYTES;
    uint8_t head[VB_BTH_BYTES + VB_DETH_BYTES] = {VB_UD_SEND_ONLY};
    struct vb_path path = {0};

    (void)state;
    vb_put_be24(head + len - 3, 0x123456);
    assert_int_equal(vb_tx_source(&path, head, len), 0x123456);
    assert_int_equal(vb_tx_source(&path, head, len - 1), 0);
    head[0] = VB_RC_SEND_ONLY;
    assert_int_equal(vb_tx_source(&path, head, len), 0);
    path.qpn = 7;
    assert_int_equal(vb_tx_source(&path, head, len), 7);
}

// ---- receiving

// What the port knows of a frame's header is shown, and else the usual values.
static void test_the_header_shows_what_is_known(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        for (int ipv6 = 0; ipv6 < 2; ipv6++) {
            struct forge_opts o = defaults();
            o.ipv6 = ipv6;
            struct forge *f = forge_open(&o);
            forge_post_recv(f, 1, 0, 100);
            struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 77);
            forge_queue(f, &p);
            if (known) {
                struct vb_rx_frame *frame = &f->feed[f->feed_count - 1];
                frame->traffic_class = 0xb9;
                frame->hop_limit = 3;
                frame->flow_label = ipv6 ? 0x12345 : 0;
            }
            forge_run(f);
            forge_expect_recv(f, 1, VB_WC_OK, GRH);
            const uint8_t *ip = f->memory + (ipv6 ? 0 : 20);
            uint32_t word = known ? 0x6b912345 : 0x60000000;
            if (ipv6)
                assert_int_equal(vb_get_be32(ip), word);
            else
                assert_int_equal(ip[1], known ? 0xb9 : 0);
            assert_int_equal(ip[ipv6 ? 7 : 8], known ? 3 : 64);
            forge_close(f);
        }
    }
}

static void test_the_header_of_ipv4(void **state)
{
    (void)state;
    struct forge *f = open_ud();
    forge_post_recv(f, 1, 0, 100);
    memset(f->memory, 0xee, 100);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY_IMM, 77);
    p.payload = (const uint8_t *)"hello";
    p.payload_len = 5;
    p.imm = 0x42;
    p.src_qpn = 0xabcdef;
    assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
    struct vb_wc wc = forge_next_recv(f);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.byte_len, GRH + 5);
    assert_int_equal(wc.flags, VB_WC_WITH_GRH | VB_WC_WITH_IMM);
    assert_int_equal(wc.imm, 0x42);
    assert_int_equal(wc.src_qpn, 0xabcdef);
    const uint8_t *ip = f->memory + 20; // an IPv4 header is the second half
    assert_int_equal(ip[0], 0x45);
    // IP, UDP, BTH, DETH, immediate, payload with pad, ICRC
    assert_int_equal(vb_get_be16(ip + 2), 20 + 8 + 12 + 8 + 4 + 8 + 4);
    assert_int_equal(ip[9], 17);
    assert_memory_equal(ip + 12, f->remote.b + 12, 4);
    assert_memory_equal(ip + 16, f->local.b + 12, 4);
    assert_memory_equal(f->memory + GRH, "hello", 5);
    assert_int_equal(f->memory[GRH + 5], 0xee);
    assert_int_equal(f->sent_count, 0);
    forge_close(f);
}

static void test_the_header_of_ipv6(void **state)
{
    (void)state;
    struct forge_opts o = defaults();
    o.ipv6 = true;
    struct forge *f = forge_open(&o);
    forge_post_recv(f, 1, 0, 100);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 77);
    p.payload = (const uint8_t *)"hello";
    p.payload_len = 5;
    struct vb_ip stranger = f->remote; // datagrams come from anywhere
    stranger.b[15] = 0x99;
    forge_queue_from(f, &p, &stranger);
    forge_run(f);
    forge_expect_recv(f, 1, VB_WC_OK, GRH + 5);
    const uint8_t *ip = f->memory;
    assert_int_equal(ip[0] >> 4, 6);
    assert_int_equal(vb_get_be16(ip + 4), 8 + 12 + 8 + 8 + 4); // what follows the IP header
    assert_int_equal(ip[6], 17);
    assert_memory_equal(ip + 8, stranger.b, 16);
    assert_memory_equal(ip + 24, f->local.b, 16);
    assert_memory_equal(f->memory + GRH, "hello", 5);
    forge_close(f);
}

static void test_header_across_segments(void **state)
{
    (void)state;
    struct forge *f = open_ud();
    const struct vb_sge sge[3] = {{forge_addr(f, 0), 39, f->key},
                                  {forge_addr(f, 100), 3, f->key},
                                  {forge_addr(f, 200), 10, f->key}};
    const struct vb_recv_wr wr = {.wr_id = 1, .sge = sge, .num_sge = 3};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    forge_send(f, VB_RC_SEND_ONLY, 0, 4, 7);
    forge_expect_recv(f, 1, VB_WC_OK, 44);
    assert_int_equal(f->memory[100], f->local.b[15]);
    assert_int_equal(f->memory[101], 7);
    assert_int_equal(f->memory[201], (uint8_t)(7 + 3 * 7));
    forge_close(f);
}

static void test_another_qkey(void **state)
{
    (void)state;
    static const uint32_t bad[] = {QKEY ^ 1, 0, QKEY | 0x80000000};
    struct forge *f = open_ud();
    forge_post_recv(f, 1, 0, 100);
    for (uint32_t i = 0; i < 3; i++) {
        struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 0);
        p.qkey = bad[i];
        assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    }
    assert_int_equal(forge_counters(f)->qkey_violations, 3);
    assert_int_equal(forge_counters(f)->rx_dropped_datagrams, 3);
    forge_expect_none(f);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 0, 0), VB_RX_APPLIED);
    forge_expect_recv(f, 1, VB_WC_OK, GRH);
    forge_close(f);
}

// What is dropped for its key has not come: the host hears of the first datagram that has.
static void test_another_qkey_in_rtr(void **state)
{
    (void)state;
    struct forge_opts o = defaults();
    o.state = VB_QPS_RTR;
    struct forge *f = forge_open(&o);
    struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 0);
    p.qkey = QKEY ^ 1;
    assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    forge_expect_no_event(f);
    forge_post_recv(f, 1, 0, 100);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 0, 0), VB_RX_APPLIED);
    forge_expect_recv(f, 1, VB_WC_OK, GRH);
    forge_expect_qp_event(f, VB_EVENT_COMM_EST);
    forge_expect_no_event(f);
    forge_close(f);
}

static void test_numbers_do_not_matter(void **state)
{
    (void)state;
    static const uint32_t psn[] = {0, 0xffffff, 5, 5, 0x800000};
    struct forge *f = open_ud();
    for (uint32_t i = 0; i < 5; i++) {
        forge_post_recv(f, i, 0, 100);
        assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, psn[i], 1, 0), VB_RX_APPLIED);
        forge_expect_recv(f, i, VB_WC_OK, GRH + 1);
    }
    assert_int_equal(forge_counters(f)->rx_datagrams, 5);
    forge_close(f);
}

static void test_dropped(void **state)
{
    (void)state;
    struct forge *f = open_ud();
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 1, 0), VB_RX_RNR); // no receive
    forge_post_recv(f, 1, 0, 2000);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 1025, 0), VB_RX_REFUSED);
    static const uint8_t other[] = {VB_RC_SEND_ONLY, VB_UC_BASE | VB_RC_SEND_ONLY, VB_RC_ACK};
    for (uint32_t i = 0; i < 3; i++) {
        struct vb_packet p = forge_packet(f, VB_RC_SEND_ONLY, 0);
        p.opcode = other[i];
        assert_int_equal(forge_give(f, &p), VB_RX_STRANGER);
    }
    assert_int_equal(f->sent_count, 0);
    forge_expect_none(f);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 1024, 0), VB_RX_APPLIED);
    forge_expect_recv(f, 1, VB_WC_OK, GRH + 1024);
    forge_close(f);
}

// A receive needs room for the header, too.
static void test_a_receive_too_short(void **state)
{
    (void)state;
    static const struct {
        uint32_t room, len;
        bool fits;
    } c[] = {{0, 0, false}, {39, 0, false}, {40, 0, true}, {40, 1, false}, {41, 1, true}};
    for (uint32_t i = 0; i < 5; i++) {
        struct forge *f = open_ud();
        forge_post_recv(f, 1, 0, c[i].room);
        forge_post_recv(f, 2, 0, 100);
        forge_send(f, VB_RC_SEND_ONLY, 0, c[i].len, 1);
        if (c[i].fits) {
            forge_expect_recv(f, 1, VB_WC_OK, GRH + c[i].len);
        } else {
            // Any stranger could send it: it is dropped, and the receive stays.
            forge_expect_none(f);
            assert_int_equal(forge_state(f), VB_QPS_RTS);
        }
        assert_int_equal(f->sent_count, 0);
        forge_close(f);
    }
}

static void test_a_receive_of_refused_memory(void **state)
{
    (void)state;
    struct forge *f = open_ud();
    const struct vb_sge sge[2] = {{forge_addr(f, 0), 40, f->key},
                                  {forge_addr(f, 100), 10, f->key ^ 1}};
    const struct vb_recv_wr wr = {.wr_id = 7, .sge = sge, .num_sge = 2};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
    assert_int_equal(forge_send(f, VB_RC_SEND_ONLY, 0, 1, 1), VB_RX_REFUSED);
    forge_expect_recv(f, 7, VB_WC_LOCAL_PROTECTION, 0);
    assert_int_equal(forge_state(f), VB_QPS_ERR);
    forge_close(f);
}

// ---- spreading

// The place of a member that goes is empty; the other members keep theirs.
static void test_a_member_of_a_spread_goes(void **state)
{
    struct vb_qpc member[2] = {{.spreads = 1}, {.spreads = 2}};
    struct vb_spread s = {.count = 4, .member = {&member[0], &member[1], &member[1]}};
    struct vb_dev dev = {.spreads = &s};

    (void)state;
    vb_spread_leave(&dev, &member[1]);
    assert_int_equal(member[1].spreads, 0);
    assert_ptr_equal(s.member[0], &member[0]);
    assert_null(s.member[1]);
    assert_null(s.member[2]);
    assert_int_equal(member[0].spreads, 1);
    vb_spread_leave(&dev, &member[0]);
    assert_null(s.member[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_datagrams_leave),
        cmocka_unit_test(test_the_top_bit_of_the_qkey),
        cmocka_unit_test(test_longer_than_the_mtu),
        cmocka_unit_test(test_an_address_of_another_family),
        cmocka_unit_test(test_other_operations),
        cmocka_unit_test(test_memory_refused),
        cmocka_unit_test(test_many_destinations),
        cmocka_unit_test(test_attributes_of_a_request),
        cmocka_unit_test(test_a_level_that_is_the_systems),
        cmocka_unit_test(test_who_sent_a_frame),
        cmocka_unit_test(test_the_header_shows_what_is_known),
        cmocka_unit_test(test_the_header_of_ipv4),
        cmocka_unit_test(test_the_header_of_ipv6),
        cmocka_unit_test(test_header_across_segments),
        cmocka_unit_test(test_another_qkey),
        cmocka_unit_test(test_another_qkey_in_rtr),
        cmocka_unit_test(test_numbers_do_not_matter),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_a_receive_too_short),
        cmocka_unit_test(test_a_receive_of_refused_memory),
        cmocka_unit_test(test_a_member_of_a_spread_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
