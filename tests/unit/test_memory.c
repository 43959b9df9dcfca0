// SPDX-License-Identifier: Apache-2.0
// Registered memory: keys, domains, rights and bounds, and scatter lists on top of them.
#include "forge.h"
#include "fresh_seed.h"
#include "nic/memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    PD = 3,
    QPN = 77,
    ALL = VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC,
    START = 0x10000,
    LEN = 100,
};

struct fixture {
    struct vb_mkey_table table;
    uint8_t bytes[LEN];
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    *state = x;
    return vb_mkey_table_init(&x->table, (const uint64_t[2]){1, 2});
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    vb_mkey_table_fini(&x->table);
    free(x);
    return 0;
}

static uint32_t create(struct fixture *x, uint32_t access)
{
    uint32_t key = 0;
    const struct vb_mkey_attr attr = {
        .pd = PD, .access = access, .start = START, .len = LEN, .base = x->bytes};
    assert_int_equal(vb_mkey_create(&x->table, &attr, &key), 0);
    return key;
}

static enum vb_mem_refusal try(struct fixture *x, uint32_t key, uint64_t addr, uint64_t len,
                               enum vb_access need)
{
    uint8_t *at = NULL;
    enum vb_mem_refusal r =
        vb_mem_access(&x->table, (struct vb_accessor){PD, QPN}, key, addr, len, need, &at);
    if (r == VB_MEM_OK && len > 0)
        assert_ptr_equal(at, x->bytes + (addr - START));
    return r;
}

static void test_bounds_are_exact(void **state)
{
    struct fixture *x = *state;
    uint32_t key = create(x, ALL);

    assert_int_equal(try(x, key, START, LEN, VB_REMOTE_WRITE), VB_MEM_OK);
    assert_int_equal(try(x, key, START, 1, VB_REMOTE_WRITE), VB_MEM_OK);
    assert_int_equal(try(x, key, START + LEN - 1, 1, VB_REMOTE_WRITE), VB_MEM_OK);
    assert_int_equal(try(x, key, START - 1, 1, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, START - 1, 2, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, START, LEN + 1, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, START + 1, LEN, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, START + LEN, 1, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, START, UINT64_MAX, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, START + 1, UINT64_MAX, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, UINT64_MAX, 2, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, 0, 1, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
}

static void test_zero_length_needs_all_but_an_address(void **state)
{
    struct fixture *x = *state;
    uint32_t key = create(x, VB_REMOTE_READ);
    uint8_t *at;

    assert_int_equal(try(x, key, START, 0, VB_REMOTE_READ), VB_MEM_OK);
    assert_int_equal(try(x, key, 0, 0, VB_REMOTE_READ), VB_MEM_OK);
    assert_int_equal(try(x, key, UINT64_MAX, 0, VB_LOCAL_READ), VB_MEM_OK);
    assert_int_equal(try(x, key, START, 0, VB_REMOTE_WRITE), VB_MEM_RIGHTS);
    assert_int_equal(try(x, key + 1, START, 0, VB_REMOTE_READ), VB_MEM_NO_KEY);
    assert_int_equal(vb_mem_access(&x->table, (struct vb_accessor){PD + 1, QPN}, key, START, 0,
                                   VB_REMOTE_READ, &at),
                     VB_MEM_DOMAIN);
}

static void test_rights_are_each_their_own(void **state)
{
    struct fixture *x = *state;
    static const enum vb_access all[] = {VB_LOCAL_WRITE, VB_REMOTE_WRITE, VB_REMOTE_READ,
                                         VB_REMOTE_ATOMIC};
    for (uint32_t granted = 0; granted <= ALL; granted++) {
        bool stores = granted & (VB_REMOTE_WRITE | VB_REMOTE_ATOMIC);
        if (stores && !(granted & VB_LOCAL_WRITE))
            continue;
        uint32_t key = create(x, granted);
        assert_int_equal(try(x, key, START, LEN, VB_LOCAL_READ), VB_MEM_OK);
        for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
            assert_int_equal(try(x, key, START, LEN, all[i]),
                             granted & all[i] ? VB_MEM_OK : VB_MEM_RIGHTS);
    }
}

static void test_strangers_keys_are_refused(void **state)
{
    struct fixture *x = *state;
    uint32_t key = create(x, ALL);
    uint8_t *at;

    assert_int_equal(try(x, 0, START, 1, VB_LOCAL_READ), VB_MEM_NO_KEY);
    assert_int_equal(try(x, key ^ 1, START, 1, VB_LOCAL_READ), VB_MEM_NO_KEY);
    assert_int_equal(try(x, key ^ 0x80000000u, START, 1, VB_LOCAL_READ), VB_MEM_NO_KEY);
    assert_int_equal(
        vb_mem_access(&x->table, (struct vb_accessor){PD, QPN}, key, START, 1, VB_LOCAL_READ, &at),
        VB_MEM_OK);
    assert_int_equal(vb_mem_access(&x->table, (struct vb_accessor){PD - 1, QPN}, key, START, 1,
                                   VB_LOCAL_READ, &at),
                     VB_MEM_DOMAIN);
    assert_int_equal(
        vb_mem_access(&x->table, (struct vb_accessor){0, QPN}, key, START, 1, VB_LOCAL_READ, &at),
        VB_MEM_DOMAIN);
}

static void test_destroyed_keys_are_gone(void **state)
{
    struct fixture *x = *state;
    uint32_t key = create(x, ALL), other = create(x, ALL);

    assert_int_equal(vb_mkey_find(&x->table, key)->pd, PD);
    assert_int_equal(vb_mkey_destroy(&x->table, key), 0);
    assert_int_equal(vb_mkey_destroy(&x->table, key), -ENOENT);
    assert_int_equal(vb_mkey_destroy(&x->table, 0), -ENOENT);
    assert_null(vb_mkey_find(&x->table, key));
    assert_null(vb_mkey_find(&x->table, 0));
    assert_int_equal(try(x, key, START, 1, VB_LOCAL_READ), VB_MEM_NO_KEY);
    assert_int_equal(try(x, other, START, 1, VB_LOCAL_READ), VB_MEM_OK);
}

static int try_create(struct fixture *x, uint64_t start, uint64_t len, uint32_t access)
{
    uint32_t key;
    const struct vb_mkey_attr attr = {
        .pd = PD, .access = access, .start = start, .len = len, .base = x->bytes};
    return vb_mkey_create(&x->table, &attr, &key);
}

static void test_bad_attributes_are_refused(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(try_create(x, UINT64_MAX - 9, 9, 0), 0);
    assert_int_equal(try_create(x, UINT64_MAX - 9, 10, 0), -EINVAL);
    assert_int_equal(try_create(x, 1, UINT64_MAX, 0), -EINVAL);
    assert_int_equal(try_create(x, START, 0, 0), 0);
    assert_int_equal(try_create(x, START, LEN, VB_REMOTE_READ), 0);
    assert_int_equal(try_create(x, START, LEN, VB_REMOTE_WRITE), -EINVAL);
    assert_int_equal(try_create(x, START, LEN, VB_REMOTE_ATOMIC), -EINVAL);
    assert_int_equal(try_create(x, START, LEN, VB_REMOTE_WRITE | VB_LOCAL_WRITE), 0);
    assert_int_equal(try_create(x, START, LEN, VB_ACCESS_ALL + 1), -EINVAL);
}

static void test_empty_region_grants_no_byte(void **state)
{
    struct fixture *x = *state;
    uint32_t key = 0;
    const struct vb_mkey_attr attr = {.pd = PD, .access = ALL, .start = START, .base = x->bytes};
    assert_int_equal(vb_mkey_create(&x->table, &attr, &key), 0);
    assert_int_equal(try(x, key, START, 0, VB_LOCAL_WRITE), VB_MEM_OK);
    assert_int_equal(try(x, key, START, 1, VB_LOCAL_WRITE), VB_MEM_BOUNDS);
}

// Growth and deletion keep every other key where it can be found.
static void test_thousands_of_keys_live_and_die(void **state)
{
    enum {
        KEYS = 5000
    };
    struct fixture *x = *state;
    uint32_t *keys = calloc(KEYS, sizeof *keys);
    struct vb_prng order = {.state = fresh_seed()};

    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = create(x, ALL);
        assert_true(keys[i] > 0xffff); // neither 0 nor what ends a receive list
    }
    for (uint32_t i = KEYS - 1; i > 0; i--) {
        uint32_t j = (uint32_t)vb_prng_below(&order, i + 1), k = keys[i];
        keys[i] = keys[j];
        keys[j] = k;
    }
    for (uint32_t gone = 0; gone < KEYS; gone++) {
        assert_int_equal(try(x, keys[gone], START, 1, VB_LOCAL_READ), VB_MEM_OK);
        assert_int_equal(vb_mkey_destroy(&x->table, keys[gone]), 0);
        if (gone % 500 == 0)
            for (uint32_t i = 0; i < KEYS; i++)
                assert_int_equal(try(x, keys[i], START, 1, VB_LOCAL_READ),
                                 i <= gone ? VB_MEM_NO_KEY : VB_MEM_OK);
    }
    assert_int_equal(x->table.count, 0);
    free(keys);
}

static void test_keys_follow_the_secret(void **state)
{
    struct fixture *x = *state;
    uint32_t key = create(x, ALL), same = 0, next = 0, other = 0;
    const struct vb_mkey_attr attr = {.pd = PD, .start = START, .len = LEN, .base = x->bytes};
    struct vb_mkey_table table;

    assert_int_equal(vb_mkey_table_init(&table, (const uint64_t[2]){1, 2}), 0);
    assert_int_equal(vb_mkey_create(&table, &attr, &same), 0);
    assert_int_equal(key, same);
    assert_int_equal(vb_mkey_create(&table, &attr, &next), 0);
    assert_int_not_equal(key, next);
    vb_mkey_table_fini(&table);
    assert_int_equal(vb_mkey_table_init(&table, (const uint64_t[2]){1, 3}), 0);
    assert_int_equal(vb_mkey_create(&table, &attr, &other), 0);
    assert_int_not_equal(key, other);
    vb_mkey_table_fini(&table);
}

// A key whose lower 24 bits are 0 is a key like any other. The table draws it at this number.
static void test_a_key_of_few_bits(void **state)
{
    struct fixture *x = *state;

    x->table.drawn = 12412530;
    uint32_t key = create(x, ALL);
    assert_int_equal(key, 0x32000000);
    assert_non_null(vb_mkey_find(&x->table, key));
    assert_int_equal(try(x, key, START, LEN + 1, VB_LOCAL_READ), VB_MEM_BOUNDS);
    assert_int_equal(vb_mkey_destroy(&x->table, key), 0);
    assert_null(vb_mkey_find(&x->table, key));
}

// ---- another registration

static void test_a_region_changes_and_keeps_its_key(void **state)
{
    struct fixture *x = *state;
    uint32_t key = create(x, ALL);
    const struct vb_mkey_attr moved = {
        .pd = PD, .access = VB_REMOTE_READ, .start = START, .len = LEN - 50, .base = x->bytes};
    struct vb_mkey_attr wrong = moved;
    wrong.access = VB_REMOTE_WRITE; // without local write

    assert_int_equal(vb_mkey_change(&x->table, key, &wrong), -EINVAL);
    assert_int_equal(vb_mkey_change(&x->table, key + 1, &moved), -ENOENT);
    assert_int_equal(try(x, key, START, LEN, VB_REMOTE_WRITE), VB_MEM_OK);
    assert_int_equal(vb_mkey_change(&x->table, key, &moved), 0);
    assert_int_equal(try(x, key, START, LEN - 50, VB_REMOTE_READ), VB_MEM_OK);
    assert_int_equal(try(x, key, START, LEN, VB_REMOTE_READ), VB_MEM_BOUNDS);
    assert_int_equal(try(x, key, START, 1, VB_REMOTE_WRITE), VB_MEM_RIGHTS);
}

// ---- windows

static uint32_t create_window(struct fixture *x, enum vb_mkey_kind kind)
{
    uint32_t key = 0;
    assert_int_equal(
        vb_mkey_create(&x->table, &(struct vb_mkey_attr){.pd = PD, .kind = kind}, &key), 0);
    return key;
}

static const struct vb_accessor us = {PD, QPN};

static enum vb_mem_refusal use(struct fixture *x, uint32_t qpn, uint32_t key, uint64_t addr,
                               uint64_t len, enum vb_access need)
{
    uint8_t *at = NULL;
    return vb_mem_access(&x->table, (struct vb_accessor){PD, qpn}, key, addr, len, need, &at);
}

static void test_a_window_of_type_2_serves_one_queue_pair_until_invalidated(void **state)
{
    struct fixture *x = *state;
    uint32_t region = create(x, ALL | VB_BIND), w = create_window(x, VB_MKEY_WINDOW2);
    struct vb_binding b = {.window = w ^ 1,
                           .region = region,
                           .addr = START + 10,
                           .len = 20,
                           .start = START + 10,
                           .access = VB_REMOTE_READ};

    assert_int_equal(use(x, QPN, w, START + 10, 1, VB_REMOTE_READ), VB_MEM_STATE);
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_OK);
    assert_int_equal(use(x, QPN, w, START + 10, 1, VB_REMOTE_READ), VB_MEM_NO_KEY); // the old key
    assert_int_equal(use(x, QPN, w ^ 1, START + 10, 20, VB_REMOTE_READ), VB_MEM_OK);
    assert_int_equal(use(x, QPN, w ^ 1, START + 10, 21, VB_REMOTE_READ), VB_MEM_BOUNDS);
    assert_int_equal(use(x, QPN, w ^ 1, START + 9, 1, VB_REMOTE_READ), VB_MEM_BOUNDS);
    assert_int_equal(use(x, QPN, w ^ 1, START + 10, 1, VB_REMOTE_WRITE), VB_MEM_RIGHTS);
    assert_int_equal(use(x, QPN + 1, w ^ 1, START + 10, 1, VB_REMOTE_READ), VB_MEM_STATE);
    assert_int_equal(use(x, QPN, w ^ 1, START + 10, 1, VB_LOCAL_READ), VB_MEM_STATE);
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_STATE); // it is bound
    assert_int_equal(vb_mkey_destroy(&x->table, region), -EBUSY);
    assert_int_equal(
        vb_mkey_change(&x->table, region, &(struct vb_mkey_attr){.pd = PD, .base = x->bytes}),
        -EBUSY);

    assert_int_equal(vb_key_invalidate(&x->table, (struct vb_accessor){PD, QPN + 1}, w ^ 1),
                     VB_MEM_STATE);
    assert_int_equal(vb_key_invalidate(&x->table, (struct vb_accessor){PD + 1, QPN}, w ^ 1),
                     VB_MEM_DOMAIN);
    assert_int_equal(vb_key_invalidate(&x->table, us, w), VB_MEM_NO_KEY);
    assert_int_equal(vb_key_invalidate(&x->table, us, region), VB_MEM_NO_KEY);
    assert_int_equal(vb_key_invalidate(&x->table, us, w ^ 1), VB_MEM_OK);
    assert_int_equal(vb_key_invalidate(&x->table, us, w ^ 1), VB_MEM_STATE);
    assert_int_equal(use(x, QPN, w ^ 1, START + 10, 1, VB_REMOTE_READ), VB_MEM_STATE);
    assert_int_equal(vb_mkey_destroy(&x->table, region), 0);
    assert_int_equal(vb_mkey_destroy(&x->table, w ^ 1), 0);
}

static void test_a_window_of_type_1_is_bound_anew_and_unbound(void **state)
{
    struct fixture *x = *state;
    uint32_t region = create(x, ALL | VB_BIND), w = create_window(x, VB_MKEY_WINDOW1);
    struct vb_binding b = {.window = w,
                           .region = region,
                           .addr = START,
                           .len = LEN,
                           .start = 0, // counted from zero
                           .access = VB_REMOTE_WRITE | VB_REMOTE_ATOMIC};

    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_OK);
    assert_int_equal(use(x, QPN + 5, w, 0, LEN, VB_REMOTE_WRITE), VB_MEM_OK);
    assert_int_equal(use(x, QPN + 5, w, START, 1, VB_REMOTE_WRITE), VB_MEM_BOUNDS);
    b.window ^= 0x80;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_OK);
    assert_int_equal(use(x, QPN, w, 0, 1, VB_REMOTE_WRITE), VB_MEM_NO_KEY);
    assert_int_equal(vb_key_invalidate(&x->table, us, w ^ 0x80), VB_MEM_NO_KEY); // type 2 only
    b.len = 0;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_OK);
    assert_int_equal(use(x, QPN, w ^ 0x80, 0, 1, VB_REMOTE_WRITE), VB_MEM_STATE);
    assert_int_equal(vb_mkey_destroy(&x->table, region), 0);
}

static void test_bindings_that_are_refused(void **state)
{
    struct fixture *x = *state;
    uint32_t region = create(x, VB_LOCAL_WRITE | VB_BIND), w = create_window(x, VB_MKEY_WINDOW2);
    uint32_t closed = create(x, ALL), readable = create(x, VB_REMOTE_READ | VB_BIND);
    const struct vb_binding good = {
        .window = w, .region = region, .addr = START, .len = LEN, .access = VB_REMOTE_WRITE};
    struct vb_binding b;

    b = good, b.region = closed;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_RIGHTS);
    b = good, b.region = readable;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_RIGHTS);
    b = good, b.access = VB_LOCAL_WRITE;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_RIGHTS);
    b = good, b.len = LEN + 1;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_BOUNDS);
    b = good, b.start = UINT64_MAX - 1;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_BOUNDS);
    b = good, b.region = w;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_NO_KEY);
    b = good, b.window = region;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_NO_KEY);
    b = good, b.len = 0;
    assert_int_equal(vb_window_bind(&x->table, us, &b), VB_MEM_STATE);
    assert_int_equal(vb_window_bind(&x->table, (struct vb_accessor){PD + 1, QPN}, &good),
                     VB_MEM_DOMAIN);
    assert_int_equal(vb_window_bind(&x->table, us, &good), VB_MEM_OK);
    assert_int_equal(vb_mkey_destroy(&x->table, w), 0); // takes its binding along
    assert_int_equal(vb_mkey_destroy(&x->table, region), 0);
}

// ---- scatter lists

static void make_segs(const struct forge *f, struct vb_seg seg[VB_MAX_SGE])
{
    for (uint32_t i = 0; i < VB_MAX_SGE; i++)
        seg[i] = (struct vb_seg){.addr = forge_addr(f, i * 100), .len = i, .key = f->key};
}

static void test_sixteen_segments_are_gathered(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_seg seg[VB_MAX_SGE];
    uint8_t all[121], part[120];
    make_segs(f, seg);
    for (uint32_t i = 0, at = 0; i < VB_MAX_SGE; i++)
        for (uint32_t j = 0; j < i; j++)
            f->memory[i * 100 + j] = (uint8_t)at++;

    assert_int_equal(
        vb_gather(f->pu, (struct vb_accessor){f->pd, QPN}, seg, VB_MAX_SGE, 0, all, 120),
        VB_MEM_OK);
    for (uint32_t i = 0; i < 120; i++)
        assert_int_equal(all[i], i);
    for (uint32_t from = 0; from < 120; from += 7) {
        uint32_t len = 120 - from;
        f->pu->touches = 0; // as a new step would
        assert_int_equal(
            vb_gather(f->pu, (struct vb_accessor){f->pd, QPN}, seg, VB_MAX_SGE, from, part, len),
            VB_MEM_OK);
        assert_memory_equal(part, all + from, len);
    }
    f->pu->touches = 0;
    assert_int_equal(
        vb_gather(f->pu, (struct vb_accessor){f->pd, QPN}, seg, VB_MAX_SGE, 0, all, 121),
        VB_MEM_BOUNDS);
    assert_int_equal(
        vb_gather(f->pu, (struct vb_accessor){f->pd, QPN}, seg, VB_MAX_SGE, 120, all, 1),
        VB_MEM_BOUNDS);
    assert_int_equal(vb_gather(f->pu, (struct vb_accessor){f->pd, QPN}, seg, 0, 0, all, 0),
                     VB_MEM_OK);
    assert_int_equal(
        vb_gather(f->pu, (struct vb_accessor){f->pd + 1, QPN}, seg, VB_MAX_SGE, 0, all, 1),
        VB_MEM_DOMAIN);
    forge_close(f);
}

// Every segment is proved before the first byte moves.
static void test_refused_scatter_moves_nothing(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    struct vb_seg seg[VB_MAX_SGE];
    const uint8_t ones[120] = {[0 ... 119] = 1};
    static const uint8_t zeros[1600];
    make_segs(f, seg);

    seg[15].key = 0;
    assert_int_equal(
        vb_scatter(f->pu, (struct vb_accessor){f->pd, QPN}, seg, VB_MAX_SGE, 0, ones, 120),
        VB_MEM_NO_KEY);
    assert_memory_equal(f->memory, zeros, sizeof zeros);
    seg[15].key = f->key;
    seg[15].addr = forge_addr(f, FORGE_MEMORY - 14);
    assert_int_equal(
        vb_scatter(f->pu, (struct vb_accessor){f->pd, QPN}, seg, VB_MAX_SGE, 0, ones, 120),
        VB_MEM_BOUNDS);
    assert_memory_equal(f->memory, zeros, sizeof zeros);
    // What the range does not reach need not be right.
    assert_int_equal(
        vb_scatter(f->pu, (struct vb_accessor){f->pd, QPN}, seg, VB_MAX_SGE, 0, ones, 105),
        VB_MEM_OK);
    f->pu->touches = 0;
    seg[15].addr = forge_addr(f, FORGE_MEMORY - 15);
    assert_int_equal(
        vb_scatter(f->pu, (struct vb_accessor){f->pd, QPN}, seg, VB_MAX_SGE, 0, ones, 120),
        VB_MEM_OK);
    forge_close(f);
}

static void test_scatter_needs_local_write(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    uint8_t region[8] = {0};
    uint32_t key = 0;
    const struct vb_mkey_attr attr = {
        .pd = f->pd, .access = VB_REMOTE_READ, .start = 0, .len = 8, .base = region};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &key), 0);
    const struct vb_seg seg = {.addr = 0, .len = 8, .key = key};
    uint8_t out[8];

    assert_int_equal(vb_gather(f->pu, (struct vb_accessor){f->pd, QPN}, &seg, 1, 0, out, 8),
                     VB_MEM_OK);
    assert_int_equal(vb_scatter(f->pu, (struct vb_accessor){f->pd, QPN}, &seg, 1, 0, out, 8),
                     VB_MEM_RIGHTS);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bounds_are_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zero_length_needs_all_but_an_address, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rights_are_each_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_strangers_keys_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_destroyed_keys_are_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_attributes_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty_region_grants_no_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_thousands_of_keys_live_and_die, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys_follow_the_secret, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_key_of_few_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_region_changes_and_keeps_its_key, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_window_of_type_2_serves_one_queue_pair_until_invalidated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_window_of_type_1_is_bound_anew_and_unbound, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_bindings_that_are_refused, setup, teardown),
        cmocka_unit_test(test_sixteen_segments_are_gathered),
        cmocka_unit_test(test_refused_scatter_moves_nothing),
        cmocka_unit_test(test_scatter_needs_local_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
