// SPDX-License-Identifier: Apache-2.0
// The service of offloads: clients join, work and go in every way that they can, and what they had
// comes back.
#include "../wait.h"
#include "base/prng.h"
#include "flavour.h"
#include "heap.h"
#include "host/load.h"
#include "offload_rig.h"
#include "pair.h"
#include "skips.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <time.h>

#include <cmocka.h>

enum {
    CROWD = 1000,
    CLIENT_BYTES = 40 * 1024, // of a client with two requests under way, at most
};

#if UNDER_TSAN || UNDER_ASAN
#define CROWD_NOW 100 // a sanitizer's time is long; all of them come in the tree as shipped
#else
#define CROWD_NOW CROWD
#endif

// ---- one

static void test_a_client_joins_works_and_leaves(void **state)
{
    struct offload_rig rig;
    struct offload_client c;
    struct vb_wc wc;

    offload_rig_open(&rig, *state, (struct vb_offload_service_opts){0});
    struct offload_objects before = offload_rig_count(&rig);
    rig.timeout = 15; // eight times 134 ms
    offload_client_open(&rig, &c, 0, 4);
    assert_int_equal(c.place.depth, 4);
    assert_int_equal(c.place.request_bytes, sizeof(struct vb_hash_request));
    assert_int_equal(c.place.answer_bytes, RIG_VALUE_MAX);
    offload_client_work(&c, 200);
    struct vb_offload_stat stat = offload_rig_stat(&rig);
    assert_int_equal(stat.clients, 1);
    assert_int_equal(stat.bytes, vb_loaded_bytes(vb_offload_loaded(rig.service, c.place.ticket)));
    offload_client_leave(&rig, &c);
    stat = offload_rig_stat(&rig);
    assert_int_equal(stat.clients, 0);
    assert_int_equal(stat.bytes, 0);
    assert_int_equal(stat.left, 1);
    assert_null(vb_offload_loaded(rig.service, c.place.ticket));
    // Nobody answers any more.
    offload_client_ask(&c, 1, 1);
    while ((wc = duo_wait(c.cq)).status == VB_WC_OK)
        assert_int_equal(wc.opcode, VB_WC_SEND); // of the last get
    assert_int_equal(wc.status, VB_WC_RETRY_EXCEEDED);
    offload_client_close(&c);
    offload_rig_expect(&rig, &before);
    offload_rig_close(&rig);
}

// A change that no region can take: what is refused, the change or the key?
static bool is_key(const struct duo_end *e, uint32_t key)
{
    const struct vb_mkey_attr wraps = {.pd = e->pd->pd, .start = UINT64_MAX, .len = 2};

    vb_host_lock(e->nic);
    int err = vb_dev_mkey_change(e->nic->dev, key, &wraps);
    vb_host_unlock(e->nic);
    assert_true(err == -EINVAL || err == -ENOENT);
    return err == -EINVAL;
}

// Of code, of the program's own memory, and of the server's memory: no two clients share one.
static uint32_t keys_of(struct offload_rig *rig, uint64_t ticket, uint32_t key[16])
{
    const struct vb_loaded *l = vb_offload_loaded(rig->service, ticket);
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->queues; i++) {
        key[n++] = l->send[i].key;
        if (l->queue[i].recvs)
            key[n++] = l->recv[i].key;
    }
    for (uint32_t i = 0; i < l->regions; i++)
        if (l->region[i].kind != VB_REGION_PEER)
            key[n++] = l->data[i].key;
    return n;
}

static void test_keys_are_each_clients_own_and_end(void **state)
{
    struct offload_rig rig;
    struct offload_client a, b;
    uint32_t of_a[16], of_b[16];

    offload_rig_open(&rig, *state, (struct vb_offload_service_opts){0});
    offload_client_open(&rig, &a, 0, RIG_DEPTH);
    offload_client_open(&rig, &b, 1, RIG_DEPTH);
    uint32_t n = keys_of(&rig, a.place.ticket, of_a);
    assert_true(n >= 6);
    assert_int_equal(keys_of(&rig, b.place.ticket, of_b), n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            assert_int_not_equal(of_a[i], of_b[j]);
    for (uint32_t i = 0; i < n; i++)
        assert_true(is_key(&rig.d.end[1], of_a[i]));
    assert_int_equal(vb_offload_end(rig.service, a.place.ticket), 0);
    assert_int_equal(vb_offload_end(rig.service, a.place.ticket), -ENOENT);
    for (uint32_t i = 0; i < n; i++) {
        assert_false(is_key(&rig.d.end[1], of_a[i]));
        assert_true(is_key(&rig.d.end[1], of_b[i]));
    }
    offload_client_work(&b, 20);
    offload_client_close(&a);
    offload_client_close(&b);
    offload_rig_close(&rig);
}

// ---- many

static void shuffle(uint32_t *order, uint32_t n, struct vb_prng *prng)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)vb_prng_below(prng, i), swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

// By a message, by the owner, or the client hangs up first and the owner hears of it.
static void go(struct offload_rig *rig, struct offload_client *c, uint32_t way)
{
    if (way == 2)
        offload_client_close(c);
    if (way == 0)
        offload_client_leave(rig, c);
    else
        assert_int_equal(vb_offload_end(rig->service, c->place.ticket), 0);
    if (way != 2)
        offload_client_close(c);
}

// All of them at once; the order in which they come, work and go is drawn. Returns the server's
// bytes for each of them; of IPv6, where one NIC is both ends, the client's too.
static size_t crowd(struct offload_rig *rig, struct offload_client *c, uint32_t seed)
{
    struct vb_prng prng = {.state = seed};
    static uint32_t order[CROWD];
    size_t bytes = 0;

    shuffle(order, CROWD_NOW, &prng);
    for (uint32_t i = 0; i < CROWD_NOW; i++) {
        size_t before = heap_bytes();
        offload_client_open(rig, &c[order[i]], order[i], RIG_DEPTH);
        bytes += heap_bytes() - before;
    }
    assert_int_equal(offload_rig_stat(rig).clients, CROWD_NOW);
    shuffle(order, CROWD_NOW, &prng);
    for (uint32_t i = 0; i < CROWD_NOW; i++)
        offload_client_work(&c[order[i]], 3);
    shuffle(order, CROWD_NOW, &prng);
    for (uint32_t i = 0; i < CROWD_NOW; i++) {
        go(rig, &c[order[i]], (uint32_t)vb_prng_below(&prng, 3));
        if (i % 50 == 0 && i + 1 < CROWD_NOW) // those that stay do not notice
            offload_client_work(&c[order[CROWD_NOW - 1]], 1);
    }
    return bytes / CROWD_NOW;
}

static void test_a_thousand_come_and_go(void **state)
{
    static struct offload_client c[CROWD];
    struct offload_rig rig;

    offload_rig_open(&rig, *state, (struct vb_offload_service_opts){0});
    struct offload_objects before = offload_rig_count(&rig);
    crowd(&rig, c, 1); // tables grow, once
    offload_rig_expect(&rig, &before);
    size_t heap = heap_bytes();
    size_t bytes = crowd(&rig, c, 2);
    offload_rig_expect(&rig, &before);
    struct vb_offload_stat stat = offload_rig_stat(&rig);
    assert_int_equal(stat.clients, 0);
    assert_int_equal(stat.bytes, 0);
    assert_int_equal(stat.joined, 2 * CROWD_NOW);
    assert_int_equal(stat.left + stat.ended, 2 * CROWD_NOW);
    if (heap_is_known()) {
        print_message("a client takes %zu bytes on both ends together\n", bytes);
        assert_true(bytes < CLIENT_BYTES);
        assert_true(heap_bytes() <= heap + 64 * 1024); // of ports' buffers, not of clients
    }
    offload_rig_close(&rig);
}

// What a client takes on the server, alone, by its depth: docs/chains.md says these numbers.
static void test_memory_of_a_client(void **state)
{
    struct offload_rig rig;

    if (!heap_is_known())
        SKIP("the sanitizer's allocator does not count bytes");
    for (uint32_t depth = 2; depth <= 64; depth = depth < 8 ? 8 : depth * 8) {
        static struct offload_client c[16];
        size_t bytes = 0;
        offload_rig_open(&rig, *state, (struct vb_offload_service_opts){0});
        for (uint32_t i = 0; i < 16; i++) {
            struct vb_offload_place place;
            uint8_t message[VB_OFFLOAD_MESSAGE];
            c[i] =
                (struct offload_client){.qp = duo_make_qp(&rig.d.end[0], (struct vb_qp_opts){0})};
            struct vb_offload_join join = offload_rig_join(&rig, &c[i], i, depth);
            uint32_t len = vb_offload_write_join(message, &join);
            size_t before = heap_bytes();
            assert_int_equal(offload_rig_say(&rig, message, len, &place), 0);
            if (i > 0) // the first brings the image
                bytes += heap_bytes() - before;
        }
        struct vb_offload_stat stat = offload_rig_stat(&rig);
        print_message("depth %u: %zu bytes, %llu of them rings and memory\n", depth, bytes / 15,
                      (unsigned long long)stat.bytes / 16);
        assert_true(bytes / 15 > stat.bytes / 16);
        assert_true(bytes / 15 < stat.bytes / 16 + 20 * 1024 + depth * 512);
        offload_rig_close(&rig);
    }
}

// ---- clients that do not say goodbye

static uint32_t sweep_until(struct offload_rig *rig, uint32_t wanted)
{
    uint32_t ended = 0;
    WAIT_UNTIL((ended += vb_offload_sweep(rig->service, duo_now_ns())) >= wanted);
    return ended;
}

// Its answer may have left before it died: then time tells. Others notice nothing.
static void test_one_dies_in_mid_request(void **state)
{
    struct offload_rig rig;
    struct offload_client good, victim;
    struct vb_offload_service_opts opts = {.timeout = DUO_TIMEOUT, .idle_ns = 50000000};

    offload_rig_open(&rig, *state, opts);
    offload_client_open(&rig, &good, 0, RIG_DEPTH);
    struct offload_objects before = offload_rig_count(&rig);
    offload_client_open(&rig, &victim, 1, RIG_DEPTH);
    offload_client_work(&victim, 5);
    offload_client_ask(&victim, 3, 3);
    offload_client_close(&victim);
    // A time of our own: on a busy machine the good one might seem idle, too.
    for (uint64_t now_ns = 1000000; vb_offload_sweep(rig.service, now_ns) == 0; now_ns += 1000000)
        offload_client_work(&good, 5);
    struct vb_offload_stat stat = offload_rig_stat(&rig);
    assert_int_equal(stat.clients, 1);
    assert_int_equal(stat.failed + stat.idle, 1);
    offload_rig_expect(&rig, &before);
    offload_client_work(&good, 50);
    offload_client_close(&good);
    offload_rig_close(&rig);
}

// Without a receive the answer waits; when the client is gone, nobody even says so.
static void test_an_answer_to_the_dead_ends_the_client(void **state)
{
    struct offload_rig rig;
    struct offload_client good, victim;
    struct vb_offload_service_opts opts = {.timeout = 16, .retries = 3};

    offload_rig_open(&rig, *state, opts);
    offload_client_open(&rig, &good, 0, RIG_DEPTH);
    offload_client_open(&rig, &victim, 1, RIG_DEPTH);
    assert_int_equal(vb_offload_sweep(rig.service, 0), 0);
    // Four receives are there: the fifth answer finds none.
    for (uint32_t i = 0; i < 5; i++) {
        struct vb_wc wc;
        offload_client_ask(&victim, i, i);
        for (bool sent = false; !sent;) // posts no receive in exchange
            sent = vb_poll_cq(victim.cq, &wc, 1) == 1 && wc.opcode == VB_WC_SEND;
    }
    offload_client_work(&good, 20);
    assert_int_equal(vb_offload_sweep(rig.service, 0), 0); // it may still post one
    offload_client_close(&victim);
    assert_int_equal(sweep_until(&rig, 1), 1);
    assert_int_equal(offload_rig_stat(&rig).failed, 1);
    offload_client_work(&good, 20);
    offload_client_close(&good);
    offload_rig_close(&rig);
}

// A request for memory outside of the index fails the program, and the NIC says so.
static void test_a_wrong_request_ends_only_its_client(void **state)
{
    struct offload_rig rig;
    struct offload_client good, bad;

    offload_rig_open(&rig, *state, (struct vb_offload_service_opts){0});
    offload_client_open(&rig, &good, 0, RIG_DEPTH);
    offload_client_open(&rig, &bad, 1, RIG_DEPTH);
    offload_client_ask(&bad, 1, 1000000);
    struct vb_nic_event event = duo_wait_event(rig.d.end[1].nic);
    while (event.kind != VB_NIC_EVENT_QP_FATAL) {
        assert_false(vb_offload_event(rig.service, &event));
        event = duo_wait_event(rig.d.end[1].nic);
    }
    assert_true(vb_offload_event(rig.service, &event));
    assert_false(vb_offload_event(rig.service, &event)); // nobody's any more
    assert_int_equal(offload_rig_stat(&rig).clients, 1);
    assert_int_equal(offload_rig_stat(&rig).failed, 1);
    offload_client_work(&good, 20);
    offload_client_close(&good);
    offload_client_close(&bad);
    offload_rig_close(&rig);
}

static void test_who_asks_for_nothing_is_taken_for_gone(void **state)
{
    struct offload_rig rig;
    struct offload_client busy, idle;

    offload_rig_open(&rig, *state, (struct vb_offload_service_opts){.idle_ns = 1000});
    offload_client_open(&rig, &busy, 0, RIG_DEPTH);
    offload_client_open(&rig, &idle, 1, RIG_DEPTH);
    assert_int_equal(vb_offload_sweep(rig.service, 5000), 0);
    offload_client_work(&busy, 1);
    assert_int_equal(vb_offload_sweep(rig.service, 5999), 0);
    assert_int_equal(vb_offload_sweep(rig.service, 6000), 1);
    assert_int_equal(offload_rig_stat(&rig).idle, 1);
    assert_non_null(vb_offload_loaded(rig.service, busy.place.ticket));
    assert_null(vb_offload_loaded(rig.service, idle.place.ticket));
    offload_client_work(&busy, 5);
    offload_client_close(&busy);
    offload_client_close(&idle);
    offload_rig_close(&rig);
}

// ---- limits

// One get takes more than three entries, and fewer than a hundred.
static void test_limits_are_the_programs(void **state)
{
    struct offload_rig rig;
    struct offload_client c, bounded;
    char error[VB_OFFLOAD_TEXT] = "";

    offload_rig_open(&rig, *state, (struct vb_offload_service_opts){0});
    struct vb_offload_offer offer = offload_rig_offer(&rig);
    offer.name = "free";
    offer.limit = 0;
    assert_int_equal(vb_offload_add(rig.service, &offer, error), 0);
    rig.offload = "free";
    offload_client_open(&rig, &c, 2, RIG_DEPTH);
    offload_client_work(&c, 100);
    offload_client_leave(&rig, &c);
    offload_client_close(&c);
    offer.name = "bounded";
    offer.limit = 100;
    offer.rate = 1000000;
    offer.burst = 1000;
    assert_int_equal(vb_offload_add(rig.service, &offer, error), 0);
    offer.name = "short";
    offer.limit = 3;
    assert_int_equal(vb_offload_add(rig.service, &offer, error), 0);
    rig.offload = "bounded";
    offload_client_open(&rig, &bounded, 0, RIG_DEPTH);
    offload_client_work(&bounded, 100);
    rig.offload = "short";
    offload_client_open(&rig, &c, 1, RIG_DEPTH);
    offload_client_ask(&c, 1, 1);
    assert_int_equal(sweep_until(&rig, 1), 1);
    assert_null(vb_offload_loaded(rig.service, c.place.ticket));
    offload_client_work(&bounded, 100);
    assert_int_equal(offload_rig_stat(&rig).failed, 1);
    offload_client_close(&c);
    offload_client_close(&bounded);
    offload_rig_close(&rig);
}

static void test_no_more_clients_than_allowed(void **state)
{
    struct offload_rig rig;
    struct offload_client c[3];
    uint8_t message[VB_OFFLOAD_MESSAGE];
    struct vb_offload_place place;

    offload_rig_open(&rig, *state, (struct vb_offload_service_opts){.clients_max = 2});
    offload_client_open(&rig, &c[0], 0, RIG_DEPTH);
    offload_client_open(&rig, &c[1], 1, RIG_DEPTH);
    c[2] = (struct offload_client){.qp = duo_make_qp(&rig.d.end[0], (struct vb_qp_opts){0})};
    struct vb_offload_join join = offload_rig_join(&rig, &c[2], 2, RIG_DEPTH);
    uint32_t len = vb_offload_write_join(message, &join);
    assert_int_equal(offload_rig_say(&rig, message, len, &place), VB_OFFLOAD_FULL);
    offload_client_leave(&rig, &c[0]);
    assert_int_equal(offload_rig_say(&rig, message, len, &place), 0);
    offload_client_close(&c[0]);
    offload_client_close(&c[1]);
    offload_rig_close(&rig);
}

static void test_clients_are_spread_over_units(void **state)
{
    struct duo_state *nics = *state;
    struct offload_rig rig = {.d.state = nics};
    struct offload_client c[6];
    struct vb_offload_service *none;
    char address[16];

    pair_address(1, address);
    rig.d.end[0].nic = nics->nic[0] = duo_open_nic(0, nics->way);
    const struct vb_nic_opts opts = {.address = address, .units = 2, .port = nics->way};
    assert_int_equal(vb_nic_open(&opts, &nics->nic[1]), 0);
    rig.d.end[1].nic = nics->nic[1];
    duo_open_ends(&rig.d);
    assert_int_equal(
        vb_offload_open(nics->nic[1], &(struct vb_offload_service_opts){.units = 3}, &none),
        -EINVAL);
    offload_rig_start(&rig, (struct vb_offload_service_opts){.units = 2});
    for (uint32_t i = 0; i < 6; i++) {
        offload_client_open(&rig, &c[i], i, RIG_DEPTH);
        assert_int_equal(c[i].place.qpn & 1, i & 1); // the unit
    }
    for (uint32_t round = 0; round < 10; round++)
        for (uint32_t i = 0; i < 6; i++)
            offload_client_work(&c[i], 5);
    for (uint32_t i = 0; i < 6; i++) {
        offload_client_leave(&rig, &c[i]);
        offload_client_close(&c[i]);
    }
    offload_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_WAYS(test_a_client_joins_works_and_leaves),
        DUO_TEST(test_a_client_joins_works_and_leaves, "hull"),
        DUO_TEST(test_keys_are_each_clients_own_and_end, "udp"),
        DUO_TEST(test_a_thousand_come_and_go, "udp"),
        DUO_TEST(test_a_thousand_come_and_go, "shm"),
        DUO_TEST(test_a_thousand_come_and_go, "ipv6"),
        DUO_TEST(test_a_thousand_come_and_go, "hull"),
        DUO_TEST(test_memory_of_a_client, "shm"),
        DUO_WAYS(test_one_dies_in_mid_request),
        DUO_TEST(test_one_dies_in_mid_request, "hull"),
        DUO_TEST(test_an_answer_to_the_dead_ends_the_client, "udp"),
        DUO_TEST(test_an_answer_to_the_dead_ends_the_client, "shm"),
        DUO_TEST(test_an_answer_to_the_dead_ends_the_client, "hull"),
        DUO_TEST(test_a_wrong_request_ends_only_its_client, "udp"),
        DUO_TEST(test_a_wrong_request_ends_only_its_client, "hull"),
        DUO_TEST(test_who_asks_for_nothing_is_taken_for_gone, "shm"),
        DUO_TEST(test_who_asks_for_nothing_is_taken_for_gone, "hull"),
        DUO_TEST(test_limits_are_the_programs, "shm"),
        DUO_TEST(test_limits_are_the_programs, "hull"),
        DUO_TEST(test_no_more_clients_than_allowed, "udp"),
        DUO_TEST(test_no_more_clients_than_allowed, "hull"),
        DUO_TEST(test_clients_are_spread_over_units, "udp"),
        DUO_TEST(test_clients_are_spread_over_units, "shm"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
