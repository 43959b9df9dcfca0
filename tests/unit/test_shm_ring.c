// SPDX-License-Identifier: Apache-2.0
// Rings of frames: order, wrapping at every place, fullness, old bytes, and writers that lie.
#include "base/prng.h"
#include "port/shm_ring.h"
#include "shm_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <sched.h>

#include <cmocka.h>

enum {
    RING = SHM_RING_MIN,
    LINES = RING / SHM_LINE,
};

#define KEY 0x123456789abcdefull

struct rig {
    _Alignas(SHM_LINE) uint8_t memory[RING];
    struct shm_head heads[VB_PORT_RX_BATCH];
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    struct shm_ring_tx tx;
    struct shm_ring_rx rx;
    struct vb_txq *q;
    struct vb_path path;
};

static struct rig *make_rig(void)
{
    struct rig *r = aligned_alloc(SHM_LINE, sizeof *r);
    assert_non_null(r);
    memset(r, 0, sizeof *r);
    r->q = kit_make_queue();
    vb_shm_ring_tx_init(&r->tx, r->memory, RING, KEY);
    vb_shm_ring_rx_init(&r->rx, r->memory, RING, KEY);
    return r;
}

static void free_rig(struct rig *r)
{
    kit_free_queue(r->q);
    free(r);
}

static bool put(struct rig *r, uint32_t len, uint32_t tag)
{
    kit_reset(r->q);
    assert_true(kit_append(r->q, &r->path, len, tag));
    return vb_shm_ring_put(&r->tx, r->q, &r->q->frame[0]);
}

static uint32_t take(struct rig *r)
{
    uint32_t n;
    assert_int_equal(vb_shm_ring_take(&r->rx, r->frames, r->heads, VB_PORT_RX_BATCH, &n),
                     SHM_RING_SOUND);
    return n;
}

static void give_back(struct rig *r)
{
    assert_true(vb_shm_ring_credit(&r->tx, r->rx.pos));
}

static void expect_one(struct rig *r, uint32_t len, uint32_t tag)
{
    assert_true(vb_shm_ring_waiting(&r->rx));
    assert_int_equal(take(r), 1);
    assert_true(kit_matches(&r->frames[0], len, tag));
    assert_false(vb_shm_ring_waiting(&r->rx));
    give_back(r);
}

// Moves both ends of an empty ring to a line.
static void move_to(struct rig *r, uint32_t line)
{
    while ((r->tx.pos & r->tx.mask) / SHM_LINE != line) {
        assert_true(put(r, VB_ICRC_FRAME_MIN, 1));
        assert_int_equal(take(r), 1);
        give_back(r);
    }
}

static void test_records_wrap_at_every_line(void **state)
{
    (void)state;
    static const uint32_t lens[] = {16, 20, 56, 60, 120, 124, 1044, 4096, VB_FRAME_MAX};
    struct rig *r = make_rig();
    for (uint32_t line = 0; line < LINES; line++) {
        for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
            move_to(r, line);
            uint32_t tag = line * 100 + (uint32_t)i;
            assert_true(put(r, lens[i], tag));
            assert_true(put(r, 16, tag + 1));
            assert_int_equal(take(r), 2);
            assert_true(kit_matches(&r->frames[0], lens[i], tag));
            assert_true(kit_matches(&r->frames[1], 16, tag + 1));
            for (int f = 0; f < 2; f++)
                assert_in_range((uintptr_t)(r->frames[f].data - r->memory), 0,
                                RING - r->frames[f].len);
            give_back(r);
        }
    }
    free_rig(r);
}

static void test_lent_payloads_are_gathered(void **state)
{
    (void)state;
    struct rig *r = make_rig();
    for (uint32_t body_len = 4; body_len <= 4096; body_len += body_len < 200 ? 4 : 1300) {
        uint32_t len = 28 + body_len + 8;
        uint8_t whole[VB_FRAME_MAX];
        kit_reset(r->q);
        assert_true(kit_append(r->q, &r->path, len, body_len));
        memcpy(whole, r->q->arena, len);
        kit_reset(r->q);
        assert_true(kit_append_lent(r->q, &r->path, len, body_len, whole + 28, body_len));
        assert_true(vb_shm_ring_put(&r->tx, r->q, &r->q->frame[0]));
        expect_one(r, len, body_len);
    }
    free_rig(r);
}

static void test_a_full_ring_refuses_and_goes_on(void **state)
{
    (void)state;
    struct rig *r = make_rig();
    uint32_t sent = 0, got = 0;
    for (uint32_t round = 0; round < 50; round++) {
        while (put(r, 96, sent))
            sent++;
        assert_int_equal(sent - got, LINES / 2); // two lines each, the ring to its last line
        uint8_t before[RING];
        memcpy(before, r->memory, RING);
        assert_false(put(r, 16, 9));
        assert_memory_equal(before, r->memory, RING);
        for (uint32_t n = take(r), i = 0; i < n; i++)
            assert_true(kit_matches(&r->frames[i], 96, got++));
        assert_int_equal(got, sent);
        assert_false(put(r, 16, 9)); // taken, but not given back
        give_back(r);
    }
    free_rig(r);
}

// A record that needs a skip record first waits until both fit.
static void test_a_skip_and_its_record_go_together(void **state)
{
    (void)state;
    struct rig *r = make_rig();
    move_to(r, LINES - 2);
    assert_true(put(r, 16, 1)); // taken, but not given back: the last line is left
    assert_int_equal(take(r), 1);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(put(r, VB_FRAME_MAX, i));
    assert_false(put(r, VB_FRAME_MAX, 3));
    give_back(r);
    assert_int_equal(take(r), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(kit_matches(&r->frames[i], VB_FRAME_MAX, i));
    free_rig(r);
}

// Whatever lay in the ring before, even whole records, an empty ring stays empty.
static void test_old_bytes_are_no_records(void **state)
{
    (void)state;
    struct rig *r = make_rig();
    struct vb_prng prng = {.state = 3};
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t len = 4 * (uint32_t)vb_prng_range(&prng, 4, 200);
        assert_true(put(r, len, i));
        expect_one(r, len, i);
    }
    struct shm_ring_rx other;
    vb_shm_ring_rx_init(&other, r->memory, RING, KEY); // a reader that is laps behind
    assert_false(vb_shm_ring_waiting(&other));
    vb_shm_ring_rx_init_silent(&other);
    assert_false(vb_shm_ring_waiting(&other));
    free_rig(r);
}

static void forge(struct rig *r, uint64_t pos, uint64_t len)
{
    uint64_t word = (KEY + pos / SHM_LINE) << SHM_LEN_BITS | len;
    memcpy(r->memory + pos % RING, &word, sizeof word);
}

static void expect_garbage(struct rig *r, uint32_t before)
{
    uint32_t n;
    uint64_t pos;
    assert_int_equal(vb_shm_ring_take(&r->rx, r->frames, r->heads, VB_PORT_RX_BATCH, &n),
                     SHM_RING_GARBAGE);
    assert_int_equal(n, before);
    pos = r->rx.pos;
    assert_int_equal(vb_shm_ring_take(&r->rx, r->frames, r->heads, VB_PORT_RX_BATCH, &n),
                     SHM_RING_GARBAGE);
    assert_int_equal(n, 0);
    assert_int_equal(r->rx.pos, pos);
}

static void test_lengths_out_of_bounds_are_garbage(void **state)
{
    (void)state;
    static const uint64_t bad[] = {0, 1, 15, VB_FRAME_MAX + 1, 8191};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rig *r = make_rig();
        assert_true(put(r, 100, 7));
        forge(r, r->tx.pos, bad[i]);
        expect_garbage(r, 1);
        free_rig(r);
    }
    for (uint32_t left = 1; left < 4; left++) { // past the end of the ring by a little
        struct rig *r = make_rig();
        move_to(r, LINES - left);
        forge(r, r->tx.pos, left * SHM_LINE - SHM_WORD);
        assert_int_equal(take(r), 1);
        free_rig(r);
        r = make_rig();
        move_to(r, LINES - left);
        forge(r, r->tx.pos, left * SHM_LINE - SHM_WORD + 1);
        expect_garbage(r, 0);
        free_rig(r);
    }
}

// A skip record is only right where the longest frame would not have fitted, so two never meet.
static void test_skips_cannot_be_endless(void **state)
{
    (void)state;
    struct rig *r = make_rig();
    move_to(r, LINES - SHM_RECORD_MAX / SHM_LINE);
    forge(r, r->tx.pos, 0);
    expect_garbage(r, 0);
    free_rig(r);
    r = make_rig();
    move_to(r, LINES - SHM_RECORD_MAX / SHM_LINE + 1);
    forge(r, r->tx.pos, 0);
    assert_int_equal(take(r), 0);
    assert_int_equal(r->rx.pos % RING, 0);
    forge(r, r->rx.pos, 0);
    expect_garbage(r, 0);
    free_rig(r);
}

// The mark of a spoiled frame makes it go, and does not make up for a wrong length.
static void test_spoiled_records_are_left_out(void **state)
{
    (void)state;
    struct rig *r = make_rig();
    for (uint32_t i = 0; i < 9; i++) {
        r->path.spoiled = i % 3 == 1;
        assert_true(put(r, 100 + 4 * i, i));
    }
    assert_int_equal(take(r), 6);
    assert_int_equal(r->rx.spoiled, 3);
    for (uint32_t i = 0, at = 0; i < 9; i++)
        if (i % 3 != 1)
            assert_true(kit_matches(&r->frames[at++], 100 + 4 * i, i));
    free_rig(r);
    static const uint64_t bad[] = {0, 15, VB_FRAME_MAX + 1, 8191};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r = make_rig();
        forge(r, 0, bad[i] | SHM_SPOILED);
        expect_garbage(r, 0);
        free_rig(r);
    }
    r = make_rig(); // nor is it a skip record
    move_to(r, LINES - 1);
    forge(r, r->tx.pos, SHM_SPOILED);
    expect_garbage(r, 0);
    free_rig(r);
}

// A writer that spoils all it writes keeps the reader no longer than one that does not.
static void test_spoiled_records_cannot_be_endless(void **state)
{
    (void)state;
    struct rig *r = make_rig();
    for (uint64_t line = 0; line < LINES; line++)
        forge(r, line * SHM_LINE, 16 | SHM_SPOILED);
    uint32_t n;
    assert_int_equal(vb_shm_ring_take(&r->rx, r->frames, r->heads, 10, &n), SHM_RING_SOUND);
    assert_int_equal(n, 0);
    assert_int_equal(r->rx.spoiled, 10);
    assert_int_equal(r->rx.pos, 10 * SHM_LINE);
    free_rig(r);
}

static void test_only_possible_credit_is_taken(void **state)
{
    (void)state;
    struct rig *r = make_rig();
    assert_true(put(r, 16, 1));
    assert_true(put(r, 16, 2));
    assert_false(vb_shm_ring_credit(&r->tx, 192)); // not written yet
    assert_false(vb_shm_ring_credit(&r->tx, 65));  // no record ends there
    assert_true(vb_shm_ring_credit(&r->tx, 64));
    assert_false(vb_shm_ring_credit(&r->tx, 0)); // backwards
    assert_false(vb_shm_ring_credit(&r->tx, UINT64_MAX - 63));
    assert_true(vb_shm_ring_credit(&r->tx, 128));
    assert_int_equal(r->tx.limit, 128 + RING);
    free_rig(r);
}

static void test_ring_sizes_are_powers_of_two(void **state)
{
    (void)state;
    assert_true(vb_shm_ring_valid_bytes(SHM_RING_MIN));
    assert_true(vb_shm_ring_valid_bytes(SHM_RING_MAX));
    assert_true(vb_shm_ring_valid_bytes(SHM_RING_DEFAULT));
    assert_false(vb_shm_ring_valid_bytes(0));
    assert_false(vb_shm_ring_valid_bytes(SHM_RING_MIN / 2));
    assert_false(vb_shm_ring_valid_bytes(SHM_RING_MIN + SHM_LINE));
    assert_false(vb_shm_ring_valid_bytes(2ull * SHM_RING_MAX));
}

// A writer and a reader on one mapping, so that the thread sanitizer sees both.
struct stream {
    struct rig *rig;
    _Atomic uint64_t consumed;
    uint32_t count;
};

static uint32_t stream_len(uint32_t i)
{
    struct vb_prng prng = {.state = i ^ 0x5555};
    return 4 * (uint32_t)vb_prng_range(&prng, 4, i % 16 == 0 ? VB_FRAME_MAX / 4 : 40);
}

static void *write_stream(void *arg)
{
    struct stream *s = arg;
    for (uint32_t i = 0; i < s->count;) {
        if (put(s->rig, stream_len(i), i)) {
            i++;
            continue;
        }
        if (!vb_shm_ring_credit(&s->rig->tx,
                                atomic_load_explicit(&s->consumed, memory_order_acquire)))
            return s;
        sched_yield();
    }
    return NULL;
}

static void test_two_threads_stream(void **state)
{
    (void)state;
    struct stream s = {.rig = make_rig(), .count = 30000};
    struct rig *r = s.rig;
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_stream, &s), 0);
    uint32_t got = 0;
    while (got < s.count) {
        uint32_t n = take(r);
        for (uint32_t i = 0; i < n; i++, got++)
            assert_true(kit_matches(&r->frames[i], stream_len(got), got));
        atomic_store_explicit(&s.consumed, r->rx.pos, memory_order_release);
        if (n == 0)
            sched_yield();
    }
    void *failed;
    pthread_join(writer, &failed);
    assert_null(failed);
    free_rig(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_wrap_at_every_line),
        cmocka_unit_test(test_lent_payloads_are_gathered),
        cmocka_unit_test(test_a_full_ring_refuses_and_goes_on),
        cmocka_unit_test(test_a_skip_and_its_record_go_together),
        cmocka_unit_test(test_old_bytes_are_no_records),
        cmocka_unit_test(test_lengths_out_of_bounds_are_garbage),
        cmocka_unit_test(test_skips_cannot_be_endless),
        cmocka_unit_test(test_spoiled_records_are_left_out),
        cmocka_unit_test(test_spoiled_records_cannot_be_endless),
        cmocka_unit_test(test_only_possible_credit_is_taken),
        cmocka_unit_test(test_ring_sizes_are_powers_of_two),
        cmocka_unit_test(test_two_threads_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
