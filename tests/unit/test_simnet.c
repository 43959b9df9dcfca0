// SPDX-License-Identifier: Apache-2.0
// The virtual network: what goes in comes out, late, twice, damaged or never, as its links say.
#include "base/prng.h"
#include "port/simnet.h"
#include "wire/packet.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    PAYLOAD = 64,
    FRAME = VB_BTH_BYTES + PAYLOAD + VB_ICRC_BYTES
};

// Two hosts and a transmit queue on the first.
struct pair {
    struct vb_simnet *net;
    struct vb_port *port[2];
    struct vb_path path;
    struct vb_txq txq;
    uint64_t now_ns;
    uint32_t sent;
    struct vb_rx_frame rx[VB_PORT_RX_BATCH]; // copies, in `bytes`
    uint8_t bytes[VB_PORT_RX_BATCH][FRAME];
};

static struct vb_ip v4(uint8_t last)
{
    return (struct vb_ip){{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last}};
}

static struct vb_ip v6(uint8_t last)
{
    return (struct vb_ip){{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}};
}

static struct pair *pair_open(const struct vb_simnet_link *link, bool ipv6, bool random_ids)
{
    struct pair *p = calloc(1, sizeof *p);
    p->net = vb_simnet_create(7);
    for (uint8_t i = 0; i < 2; i++) {
        const struct vb_simnet_host host = {.ip = ipv6 ? v6(i + 1) : v4(i + 1),
                                            .src_port = 4791,
                                            .random_ids = random_ids,
                                            .merge_ppm = 1000000,
                                            .batch_max = 9};
        assert_int_equal(vb_simnet_attach(p->net, &host, &p->port[i]), 0);
    }
    vb_simnet_shape(p->net, 0, 1, link);
    vb_path_init(&p->path, &p->port[0]->local, &p->port[1]->local, 50000);
    p->txq.arena = malloc(VB_TX_BYTES);
    return p;
}

static void pair_close(struct pair *p)
{
    vb_simnet_destroy(p->net);
    free(p->txq.arena);
    free(p);
}

// Sends `count` frames in one go; their PSNs count up.
static void pair_send(struct pair *p, uint32_t count)
{
    p->txq.used = p->txq.count = p->txq.taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct vb_packet pkt = {.opcode = VB_RC_SEND_ONLY,
                                      .pkey = VB_PKEY_DEFAULT,
                                      .dest_qpn = 5,
                                      .psn = p->sent++,
                                      .payload_len = PAYLOAD};
        uint8_t *at = p->txq.arena + p->txq.used;
        memset(at, (int)pkt.psn, FRAME);
        vb_packet_encode(at, &pkt);
        p->txq.frame[p->txq.count++] =
            (struct vb_tx_frame){.path = &p->path, .offset = p->txq.used, .len = FRAME};
        p->txq.used += FRAME;
    }
    p->port[0]->ops->send(p->port[0], &p->txq);
    assert_int_equal(p->txq.taken, count);
}

// Moves the clock and takes all that has arrived, in batches as the port likes them.
static uint32_t pair_receive(struct pair *p, uint64_t now_ns)
{
    struct vb_rx_frame batch[VB_PORT_RX_BATCH];
    uint32_t count = 0, n;

    p->now_ns = now_ns;
    vb_simnet_advance(p->net, now_ns);
    while ((n = p->port[1]->ops->receive(p->port[1], batch)) > 0) {
        for (uint32_t i = 0; i < n; i++, count++) {
            assert_true(count < VB_PORT_RX_BATCH && batch[i].len <= FRAME);
            memcpy(p->bytes[count], batch[i].data, batch[i].len);
            p->rx[count] = batch[i];
            p->rx[count].data = p->bytes[count];
        }
    }
    assert_int_equal(vb_simnet_waiting(p->net, 1), 0);
    return count;
}

static uint32_t psn_of(const struct pair *p, uint32_t i)
{
    struct vb_packet pkt;
    assert_int_equal(vb_packet_decode(p->rx[i].data, p->rx[i].len, &pkt), VB_DECODE_OK);
    return pkt.psn;
}

static void test_frames_arrive_whole_after_the_delay(void **state)
{
    (void)state;
    for (int ipv6 = 0; ipv6 < 2; ipv6++) {
        struct pair *p = pair_open(&(struct vb_simnet_link){.delay_ns = 1000}, ipv6, false);
        pair_send(p, 3);
        assert_int_equal(vb_simnet_next(p->net), 1000);
        assert_int_equal(pair_receive(p, 999), 0);
        assert_int_equal(pair_receive(p, 1000), 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(psn_of(p, i), i);
            assert_true(vb_ip_equal(&p->rx[i].src, &p->port[0]->local));
            assert_memory_equal(p->rx[i].data + VB_BTH_BYTES,
                                p->txq.arena + p->txq.frame[i].offset + VB_BTH_BYTES, PAYLOAD);
        }
        assert_int_equal(pair_receive(p, 5000), 0);
        assert_int_equal(vb_simnet_next(p->net), UINT64_MAX);
        assert_int_equal(p->port[1]->stats.rx_solved_icrc, 0);
        pair_close(p);
    }
}

static void test_random_identifications_are_solved(void **state)
{
    (void)state;
    struct pair *p = pair_open(&(struct vb_simnet_link){0}, false, true);
    pair_send(p, 100);
    assert_int_equal(pair_receive(p, 1), 100);
    assert_true(p->port[1]->stats.rx_solved_icrc >= 99);
    assert_int_equal(p->port[1]->stats.rx_bad_icrc, 0);
    pair_close(p);
}

static void test_jitter_keeps_order_and_reordering_does_not(void **state)
{
    (void)state;
    for (int reorder = 0; reorder < 2; reorder++) {
        const struct vb_simnet_link link = {.delay_ns = 100,
                                            .jitter_ns = 1000,
                                            .reorder_ppm = reorder ? 200000 : 0,
                                            .reorder_ns = 5000};
        struct pair *p = pair_open(&link, false, false);
        for (int i = 0; i < 200; i++) {
            pair_send(p, 1);
            vb_simnet_advance(p->net, p->now_ns += 10);
        }
        assert_int_equal(pair_receive(p, 100000), 200);
        uint32_t inversions = 0;
        for (uint32_t i = 1; i < 200; i++)
            inversions += psn_of(p, i) < psn_of(p, i - 1);
        assert_true(reorder ? inversions > 5 : inversions == 0);
        pair_close(p);
    }
}

static void test_loss_and_duplication_have_their_rates(void **state)
{
    (void)state;
    const struct vb_simnet_link link = {.loss_ppm = 100000, .duplicate_ppm = 50000};
    struct pair *p = pair_open(&link, false, false);
    uint32_t got = 0;
    for (int i = 0; i < 100; i++) {
        pair_send(p, 100);
        got += pair_receive(p, p->now_ns + 1);
    }
    const struct vb_simnet_stats *s = vb_simnet_stats(p->net);
    assert_in_range(s->lost, 900, 1100);
    assert_in_range(s->duplicated, 380, 520);
    assert_int_equal(got, 10000 - s->lost + s->duplicated);
    pair_close(p);
}

static void test_corruption_is_caught(void **state)
{
    (void)state;
    struct pair *p = pair_open(&(struct vb_simnet_link){.corrupt_ppm = 1000000}, false, false);
    uint32_t got = 0;
    for (int i = 0; i < 100; i++) {
        pair_send(p, 100);
        got += pair_receive(p, p->now_ns + 1);
    }
    const struct vb_simnet_stats *s = vb_simnet_stats(p->net);
    assert_int_equal(s->corrupted, 10000);
    // What gets through has changed in the one byte that the ICRC leaves out.
    assert_int_equal(got + s->false_passes + p->port[1]->stats.rx_bad_icrc, 10000);
    assert_true(got < 200);
    assert_true(s->false_passes < 5);
    pair_close(p);
}

struct fates {
    uint64_t dropped, doubled;
};

static void count_fate(void *ctx, enum vb_simnet_fate fate, const struct vb_ip *src,
                       const struct vb_ip *dst, const uint8_t *frame, uint32_t len)
{
    struct fates *f = ctx;

    assert_false(vb_ip_equal(src, dst));
    assert_true(len >= 16 && frame[0] != 0xff);
    f->dropped += fate == VB_SIMNET_DROPPED;
    f->doubled += fate == VB_SIMNET_DOUBLED;
}

static void test_the_fate_of_each_frame_is_told(void **state)
{
    (void)state;
    const struct vb_simnet_link link = {
        .loss_ppm = 100000, .duplicate_ppm = 50000, .corrupt_ppm = 100000};
    struct pair *p = pair_open(&link, false, false);
    struct fates f = {0};
    uint32_t got = 0;

    vb_simnet_watch(p->net, count_fate, &f);
    for (int i = 0; i < 100; i++) {
        pair_send(p, 100);
        got += pair_receive(p, p->now_ns + 1);
    }
    const struct vb_simnet_stats *s = vb_simnet_stats(p->net);
    assert_int_equal(f.doubled, s->duplicated);
    assert_true(f.dropped > s->lost && f.dropped <= s->lost + s->corrupted);
    assert_int_equal(got, 10000 - f.dropped + f.doubled);
    pair_close(p);
}

static void test_what_a_frame_is_charged(void **state)
{
    (void)state;
    assert_int_equal(vb_simnet_charge(1), 256 + 512);
    assert_int_equal(vb_simnet_charge(96), 256 + 1024);
    assert_int_equal(vb_simnet_charge(4096 + 32), 256 + 8192);
}

// All senders share the way in; what is taken from it makes room.
static void test_a_receivers_buffer_overflows(void **state)
{
    (void)state;
    struct pair *p = pair_open(&(struct vb_simnet_link){0}, false, false);
    const struct vb_simnet_host host = {.ip = v4(3),
                                        .src_port = 4791,
                                        .merge_ppm = 1000000,
                                        .batch_max = 100,
                                        .rx_bytes_per_us = FRAME,
                                        .rx_buffer_bytes = 4 * vb_simnet_charge(FRAME) - 1};
    struct vb_rx_frame rx[VB_PORT_RX_BATCH];
    struct vb_port *port;
    assert_int_equal(vb_simnet_attach(p->net, &host, &port), 0);
    vb_path_init(&p->path, &p->port[0]->local, &port->local, 50000);
    pair_send(p, 10);
    vb_simnet_advance(p->net, 0);
    assert_int_equal(vb_simnet_stats(p->net)->overflowed, 6);
    vb_simnet_advance(p->net, 999);
    assert_int_equal(port->ops->receive(port, rx), 0);
    vb_simnet_advance(p->net, 2000); // one a microsecond
    assert_int_equal(port->ops->receive(port, rx), 2);
    pair_send(p, 3);
    vb_simnet_advance(p->net, 2001);
    assert_int_equal(vb_simnet_stats(p->net)->overflowed, 7);
    vb_simnet_advance(p->net, 6000);
    assert_int_equal(port->ops->receive(port, rx), 4);
    assert_true(vb_simnet_next(p->net) == UINT64_MAX);
    pair_close(p);
}

static void test_bandwidth_delays_and_a_full_queue_drops(void **state)
{
    (void)state;
    // FRAME bytes a microsecond: one frame leaves every 1,000 ns; three wait behind it.
    const struct vb_simnet_link link = {.bytes_per_us = FRAME, .queue_bytes = 4 * FRAME};
    struct pair *p = pair_open(&link, false, false);
    pair_send(p, 10);
    const struct vb_simnet_stats *s = vb_simnet_stats(p->net);
    assert_int_equal(s->tail_dropped, 6);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(vb_simnet_next(p->net), 1000 * (i + 1));
        assert_int_equal(pair_receive(p, 1000 * (i + 1)), 1);
        assert_int_equal(psn_of(p, 0), i);
    }
    assert_int_equal(vb_simnet_in_flight(p->net), 0);
    pair_close(p);
}

static void test_a_cut_link_drops_until_it_ends(void **state)
{
    (void)state;
    struct pair *p = pair_open(&(struct vb_simnet_link){.delay_ns = 10}, false, false);
    vb_simnet_cut(p->net, 0, 1, 1000);
    pair_send(p, 5);
    assert_int_equal(pair_receive(p, 1000), 0);
    pair_send(p, 5);
    assert_int_equal(pair_receive(p, 1010), 5);
    assert_int_equal(vb_simnet_stats(p->net)->cut, 5);
    pair_close(p);
}

static void test_healing_ends_the_faults(void **state)
{
    (void)state;
    const struct vb_simnet_link link = {.loss_ppm = 900000, .corrupt_ppm = 900000};
    struct pair *p = pair_open(&link, false, false);
    vb_simnet_cut(p->net, 0, 1, 1000000);
    vb_simnet_heal(p->net);
    pair_send(p, 100);
    assert_int_equal(pair_receive(p, 1), 100);
    pair_close(p);
}

static void test_injected_frames_pass_the_check(void **state)
{
    (void)state;
    struct pair *p = pair_open(&(struct vb_simnet_link){.loss_ppm = 1000000}, false, false);
    uint8_t frame[32] = {0x04};
    const struct vb_ip stranger = v4(99), nobody = v4(98);
    assert_int_equal(
        vb_simnet_inject(p->net, &stranger, &p->port[1]->local, 1234, frame, sizeof frame), 0);
    assert_int_equal(vb_simnet_waiting(p->net, 1), 1);
    assert_int_equal(pair_receive(p, 1), 1);
    assert_true(vb_ip_equal(&p->rx[0].src, &stranger));
    assert_int_equal(vb_simnet_inject(p->net, &stranger, &nobody, 1, frame, sizeof frame), -ENOENT);
    assert_int_equal(vb_simnet_inject(p->net, &stranger, &p->port[1]->local, 1, frame, 15),
                     -EINVAL);
    pair_close(p);
}

static void test_attaching_is_checked(void **state)
{
    (void)state;
    struct vb_simnet *net = vb_simnet_create(1);
    struct vb_simnet_host host = {.ip = v4(1), .batch_max = 1};
    struct vb_port *port;
    assert_int_equal(vb_simnet_attach(net, &host, &port), 0);
    assert_int_equal(vb_simnet_attach(net, &host, &port), -EEXIST);
    host.ip = v4(2);
    host.batch_max = 0;
    assert_int_equal(vb_simnet_attach(net, &host, &port), -EINVAL);
    host.batch_max = 1;
    for (uint8_t i = 1; i < VB_SIMNET_HOSTS; i++) {
        host.ip = v4(i + 1);
        assert_int_equal(vb_simnet_attach(net, &host, &port), 0);
    }
    host.ip = v4(77);
    assert_int_equal(vb_simnet_attach(net, &host, &port), -ENOSPC);
    vb_simnet_destroy(net);
}

// One run's arrivals, as a number.
static uint64_t fingerprint(void)
{
    const struct vb_simnet_link link = {.loss_ppm = 50000,
                                        .duplicate_ppm = 50000,
                                        .reorder_ppm = 50000,
                                        .corrupt_ppm = 50000,
                                        .delay_ns = 100,
                                        .jitter_ns = 300,
                                        .reorder_ns = 900};
    struct pair *p = pair_open(&link, false, true);
    uint64_t print = 0;
    for (int i = 0; i < 50; i++) {
        pair_send(p, 20);
        uint32_t n = pair_receive(p, p->now_ns + 137);
        for (uint32_t k = 0; k < n; k++)
            print = (print ^ psn_of(p, k)) * 0x100000001b3u + n;
    }
    pair_close(p);
    return print;
}

static void test_the_same_seed_gives_the_same_frames(void **state)
{
    (void)state;
    assert_int_equal(fingerprint(), fingerprint());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_arrive_whole_after_the_delay),
        cmocka_unit_test(test_random_identifications_are_solved),
        cmocka_unit_test(test_jitter_keeps_order_and_reordering_does_not),
        cmocka_unit_test(test_loss_and_duplication_have_their_rates),
        cmocka_unit_test(test_corruption_is_caught),
        cmocka_unit_test(test_the_fate_of_each_frame_is_told),
        cmocka_unit_test(test_bandwidth_delays_and_a_full_queue_drops),
        cmocka_unit_test(test_a_cut_link_drops_until_it_ends),
        cmocka_unit_test(test_healing_ends_the_faults),
        cmocka_unit_test(test_injected_frames_pass_the_check),
        cmocka_unit_test(test_a_receivers_buffer_overflows),
        cmocka_unit_test(test_what_a_frame_is_charged),
        cmocka_unit_test(test_attaching_is_checked),
        cmocka_unit_test(test_the_same_seed_gives_the_same_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
