// SPDX-License-Identifier: Apache-2.0
// The service of offloads and strangers: whatever is sent to it or offered by mistake gets one
// refusal that says why, makes nothing, and disturbs nobody.
#include "base/bytes.h"
#include "base/prng.h"
#include "fresh_seed.h"
#include "heap.h"
#include "offload_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

enum {
    FUZZED = 20000,
};

struct scene {
    struct offload_rig rig;
    struct offload_client good, other;
};

// One client works; another has a queue pair and has not joined.
static void begin(struct scene *s, struct duo_state *state)
{
    offload_rig_open(&s->rig, state, (struct vb_offload_service_opts){0});
    offload_client_open(&s->rig, &s->good, 0, RIG_DEPTH);
    s->other = (struct offload_client){
        .qp = duo_make_qp(&s->rig.d.end[0], (struct vb_qp_opts){.recv_depth = 4})};
}

static void end(struct scene *s)
{
    offload_client_work(&s->good, 20);
    offload_client_close(&s->good);
    offload_rig_close(&s->rig);
}

static int say(struct scene *s, const struct vb_offload_join *join)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    struct vb_offload_place place;
    int why = offload_rig_say(&s->rig, message, vb_offload_write_join(message, join), &place);

    if (why == 0) // whoever joined for a test of what is right makes room again
        assert_int_equal(vb_offload_end(s->rig.service, place.ticket), 0);
    return why;
}

static struct vb_offload_join right(struct scene *s)
{
    return offload_rig_join(&s->rig, &s->other, 1, RIG_DEPTH);
}

#define EXPECT(s, why, ...)                            \
    do {                                               \
        struct vb_offload_join join = right(s);        \
        __VA_ARGS__;                                   \
        assert_int_equal(say(s, &join), why);          \
        join = right(s);                               \
        assert_int_equal(say(s, &join), 0); /* twin */ \
    } while (0)

static void test_each_mistake_is_named(void **state)
{
    struct scene s;

    begin(&s, *state);
    EXPECT(&s, VB_OFFLOAD_UNKNOWN, join.offload[0] = 'j');
    EXPECT(&s, VB_OFFLOAD_UNKNOWN, join.offload[0] = 0);
    EXPECT(&s, VB_OFFLOAD_UNKNOWN, memset(join.offload, 'x', sizeof join.offload));
    EXPECT(&s, VB_OFFLOAD_DEPTH, join.depth = 0);
    EXPECT(&s, VB_OFFLOAD_DEPTH, join.depth = 3);
    EXPECT(&s, VB_OFFLOAD_DEPTH, join.depth = 128);
    EXPECT(&s, VB_OFFLOAD_DEPTH, join.depth = 1u << 31);
    EXPECT(&s, VB_OFFLOAD_DEPTH, join.depth = UINT32_MAX);
    EXPECT(&s, VB_OFFLOAD_DEPTH, join.depth = 1); // a hash get has two slots and more
    EXPECT(&s, VB_OFFLOAD_PEER, join.qpn = 0);
    EXPECT(&s, VB_OFFLOAD_PEER, join.qpn = 1);
    EXPECT(&s, VB_OFFLOAD_PEER, join.qpn = VB_QPN_MULTICAST);
    EXPECT(&s, VB_OFFLOAD_PEER, join.qpn |= 1u << 24);
    EXPECT(&s, VB_OFFLOAD_PEER, join.psn = 1u << 24);
    EXPECT(&s, VB_OFFLOAD_PEER, join.mtu = 255);
    EXPECT(&s, VB_OFFLOAD_PEER, join.mtu = 8192);
    EXPECT(&s, VB_OFFLOAD_PEER, memset(join.gid, 0, 16));
    EXPECT(&s, VB_OFFLOAD_PEER, memset(join.gid, 0xff, 16));
    EXPECT(&s, VB_OFFLOAD_PEER, join.gid[10] ^= 0xff, join.gid[11] ^= 0xff); // another family
    EXPECT(&s, VB_OFFLOAD_ROOM, join.bytes--);
    EXPECT(&s, VB_OFFLOAD_ROOM, join.bytes = 0);
    EXPECT(&s, VB_OFFLOAD_ROOM, join.addr = UINT64_MAX - 5);
    EXPECT(&s, VB_OFFLOAD_REPLAYED, join.qpn = vb_qp_num(s.good.qp));
    assert_int_equal(offload_rig_stat(&s.rig).clients, 1);
    end(&s);
}

// While the client is there, and after it has left.
static void test_a_replay_joins_nobody(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    struct vb_offload_place place, again;
    struct scene s;

    begin(&s, *state);
    struct vb_offload_join join = right(&s);
    uint32_t len = vb_offload_write_join(message, &join);
    assert_int_equal(offload_rig_say(&s.rig, message, len, &place), 0);
    assert_int_equal(offload_rig_say(&s.rig, message, len, &again), VB_OFFLOAD_REPLAYED);
    assert_int_equal(vb_offload_end(s.rig.service, place.ticket), 0);
    assert_int_equal(offload_rig_say(&s.rig, message, len, &again), VB_OFFLOAD_REPLAYED);
    join.nonce++;
    len = vb_offload_write_join(message, &join);
    assert_int_equal(offload_rig_say(&s.rig, message, len, &again), 0);
    end(&s);
}

// Who does not know a client's ticket cannot send it away.
static void test_tickets_cannot_be_guessed(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    struct vb_offload_place place;
    struct scene s;

    begin(&s, *state);
    for (uint32_t bit = 0; bit < 64; bit++) {
        uint32_t len = vb_offload_write_leave(message, s.good.place.ticket ^ 1ull << bit);
        assert_int_equal(offload_rig_say(&s.rig, message, len, &place), VB_OFFLOAD_UNKNOWN);
    }
    assert_int_equal(offload_rig_stat(&s.rig).clients, 1);
    end(&s);
}

// The service keeps an image for each depth that was ever asked for.
static void make_all_images(struct scene *s)
{
    uint32_t depth = RIG_DEPTH;
    struct vb_offload_join join;

    do {
        join = right(s);
        join.depth = depth;
        depth *= 2;
    } while (say(s, &join) != VB_OFFLOAD_DEPTH);
}

// Right messages with some bytes changed, cut off or made longer; and any bytes at all.
static void test_any_bytes_are_answered(void **state)
{
    struct vb_prng prng = {.state = fresh_seed()};
    struct scene s;
    uint32_t joined = 0;

    begin(&s, *state);
    make_all_images(&s);
    uint64_t refused = offload_rig_stat(&s.rig).refused;
    size_t before = heap_bytes();
    for (uint32_t round = 0; round < FUZZED; round++) {
        uint8_t message[VB_OFFLOAD_MESSAGE];
        struct vb_offload_place place;
        struct vb_offload_join join = right(&s);
        uint32_t len = vb_offload_write_join(message, &join);
        for (uint64_t n = vb_prng_below(&prng, 4); n > 0; n--)
            message[vb_prng_below(&prng, len)] = (uint8_t)vb_prng_next(&prng);
        if (round % 8 == 7)
            len = (uint32_t)vb_prng_below(&prng, sizeof message);
        for (uint32_t i = 0; round % 64 == 63 && i < len; i++)
            message[i] = (uint8_t)vb_prng_next(&prng);
        if (offload_rig_say(&s.rig, message, len, &place) == 0) {
            joined++;
            assert_int_equal(vb_offload_end(s.rig.service, place.ticket), 0);
        }
        if (round % 1000 == 0)
            offload_client_work(&s.good, 2);
    }
    assert_true(joined > FUZZED / 8);
    struct vb_offload_stat stat = offload_rig_stat(&s.rig);
    assert_int_equal(stat.clients, 1);
    assert_int_equal(stat.refused, refused + FUZZED - joined);
    if (heap_is_known())
        assert_true(heap_bytes() <= before + 64 * 1024);
    end(&s);
}

// Each registration on the way may fail: then nothing is left of those before it.
static void test_a_server_without_memory_says_so(void **state)
{
    struct scene s;
    uint32_t n;

    begin(&s, *state);
    struct offload_objects before = offload_rig_count(&s.rig);
    for (n = 1; n < 100; n++) {
        char rule[32];
        snprintf(rule, sizeof rule, "reg_mr=#%u", n);
        assert_int_equal(vb_nic_set_faults(s.rig.d.end[1].nic, rule, NULL), 0);
        struct vb_offload_join join = right(&s);
        int why = say(&s, &join);
        offload_rig_expect(&s.rig, &before);
        if (why == 0)
            break;
        assert_int_equal(why, VB_OFFLOAD_FAILED);
        assert_int_equal(offload_rig_stat(&s.rig).clients, 1);
    }
    assert_true(n > 5 && n < 20); // as many as a client has
    assert_int_equal(vb_nic_set_faults(s.rig.d.end[1].nic, "off", NULL), 0);
    end(&s);
}

// ---- what the owner does wrong

static struct vb_image *make_nothing(void *ctx, uint32_t depth, char *error)
{
    (void)ctx;
    (void)depth;
    snprintf(error, VB_OFFLOAD_TEXT, "there is no such program");
    return NULL;
}

static struct vb_image *make_without_client(void *ctx, uint32_t depth, char *error)
{
    struct vb_chain *c = vb_chain_begin("lonely");
    (void)ctx;
    (void)depth;
    struct vb_chain_queue w = vb_chain_queue(c, "W", &(struct vb_chain_queue_opts){.open = 1});
    vb_chain_op(c, w, &(struct vb_chain_op){.opcode = VB_WQE_NOP});
    return vb_chain_finish(c, error);
}

#define REFUSED(text, ...)                                                       \
    do {                                                                         \
        struct vb_offload_offer offer = offload_rig_offer(&s.rig);               \
        offer.name = "other";                                                    \
        __VA_ARGS__;                                                             \
        assert_int_equal(vb_offload_add(s.rig.service, &offer, error), -EINVAL); \
        assert_non_null(strstr(error, text));                                    \
    } while (0)

static void test_wrong_offers_are_refused(void **state)
{
    char error[VB_OFFLOAD_TEXT] = "";
    struct scene s;
    struct vb_offload_memory memory[2];

    begin(&s, *state);
    REFUSED("name", offer.name = "get");
    REFUSED("name", offer.name = "");
    REFUSED("name", offer.name = "a_name_that_is_longer_than_names_can_be");
    REFUSED("no such program", offer.make = make_nothing);
    REFUSED("one queue", offer.make = make_without_client);
    REFUSED("items", offer.memories = 1);
    REFUSED("too much", offer.memories = VB_OFFLOAD_REGIONS + 1);
    memcpy(memory, s.rig.memory, sizeof memory);
    memory[0].len = sizeof(struct vb_hash_bucket) - 1;
    REFUSED("index", offer.memory = memory);
    REFUSED("power of two", offer.depth_max = 3);
    REFUSED("power of two", offer.depth_max = 1u << 16);
    struct vb_offload_offer offer = offload_rig_offer(&s.rig);
    offer.name = "other";
    assert_int_equal(vb_offload_add(s.rig.service, &offer, error), 0);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(test_each_mistake_is_named, "udp"),
        DUO_TEST(test_each_mistake_is_named, "ipv6"),
        DUO_TEST(test_a_replay_joins_nobody, "shm"),
        DUO_TEST(test_tickets_cannot_be_guessed, "shm"),
        DUO_TEST(test_any_bytes_are_answered, "shm"),
        DUO_TEST(test_a_server_without_memory_says_so, "udp"),
        DUO_TEST(test_wrong_offers_are_refused, "udp"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
