// SPDX-License-Identifier: Apache-2.0
// Memory keys in a random walk: regions, guarded and copied ones, windows of both types and null
// keys come, are bound, change and go. Every access is judged by a naive list beside the table,
// too.
#include "base/prng.h"
#include "nic/facts.h"
#include "nic/pu.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    STEPS = 60000,
    KEYS = 200,
    PDS = 3,
    MEMORY = 4096,
    SOURCE = 77, // of copied memory
};

struct key {
    uint32_t key;                     // 0: free place
    uint32_t pd, access, qpn, parent; // parent: place of its region
    enum vb_mkey_kind kind;
    bool bound, guarded;
    uint64_t start, len;
    uint8_t *base;
};

struct walk {
    struct vb_dev *dev;
    struct vb_prng prng;
    uint32_t pd[PDS];
    struct key key[KEYS];
    bool there; // what the guard says
    uint32_t asked, copied;
};

static uint8_t memory[MEMORY];
static struct walk w;

static uint32_t below(uint32_t n)
{
    return (uint32_t)vb_prng_below(&w.prng, n);
}

// ---- guard and copier

static bool is_there(void *ctx, uint32_t key, const void *at, uint64_t len, bool write)
{
    (void)ctx;
    (void)key;
    (void)write;
    assert_true((const uint8_t *)at >= memory && (const uint8_t *)at + len <= memory + MEMORY);
    w.asked++;
    return w.there;
}

static bool fetch(void *ctx, uint64_t source, uint64_t at, uint8_t *to, uint64_t len)
{
    (void)ctx;
    assert_int_equal(source, SOURCE);
    if (w.there)
        memcpy(to, (const void *)(uintptr_t)at, len);
    w.copied++;
    return w.there;
}

static bool store(void *ctx, uint64_t source, uint64_t at, const uint8_t *from, uint64_t len)
{
    (void)ctx;
    assert_int_equal(source, SOURCE);
    if (w.there)
        memcpy((void *)(uintptr_t)at, from, len);
    w.copied++;
    return w.there;
}

// ---- the list

static bool is_region(const struct key *k)
{
    return k->kind == VB_MKEY_REGION || k->kind == VB_MKEY_COPIED;
}

static bool is_window(const struct key *k)
{
    return k->kind == VB_MKEY_WINDOW1 || k->kind == VB_MKEY_WINDOW2;
}

static struct key *look(uint32_t key)
{
    for (uint32_t i = 0; key && i < KEYS; i++)
        if (w.key[i].key == key)
            return &w.key[i];
    return NULL;
}

static uint32_t windows_of(const struct key *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        n += w.key[i].key && is_window(&w.key[i]) && w.key[i].bound && &w.key[w.key[i].parent] == k;
    return n;
}

static bool inside(uint64_t addr, uint64_t len, uint64_t start, uint64_t room)
{
    __extension__ typedef unsigned __int128 wide;
    return addr >= start && (wide)addr + len <= (wide)start + room;
}

static enum vb_mem_refusal expected(struct vb_accessor who, uint32_t key, uint64_t addr,
                                    uint64_t len, uint32_t need, uint8_t **at)
{
    const struct key *k = look(key);

    if (!k)
        return VB_MEM_NO_KEY;
    if (k->pd != who.pd)
        return VB_MEM_DOMAIN;
    if (is_window(k) && (!k->bound || !(need & VB_ACCESS_REMOTE) ||
                         (k->kind == VB_MKEY_WINDOW2 && k->qpn != who.qpn)))
        return VB_MEM_STATE;
    uint32_t access = k->kind == VB_MKEY_NULL ? (uint32_t)VB_LOCAL_WRITE : k->access;
    if (need & ~access)
        return VB_MEM_RIGHTS;
    if (k->kind == VB_MKEY_NULL)
        return len > VB_NULL_BYTES ? VB_MEM_BOUNDS : VB_MEM_OK;
    if (len == 0)
        return VB_MEM_OK;
    if (!inside(addr, len, k->start, k->len))
        return VB_MEM_BOUNDS;
    *at = k->base + (addr - k->start);
    const struct key *region = is_window(k) ? &w.key[k->parent] : k;
    if (region->kind == VB_MKEY_COPIED)
        return VB_MEM_COPIED;
    return region->guarded && !w.there ? VB_MEM_GONE : VB_MEM_OK;
}

// ---- steps

static struct key *some_key(bool used)
{
    uint32_t i = below(KEYS);
    for (uint32_t n = 0; n < KEYS && (w.key[i].key != 0) != used; n++)
        i = (i + 1) % KEYS;
    return (w.key[i].key != 0) == used ? &w.key[i] : NULL;
}

static struct vb_mkey_attr some_region(bool *legal)
{
    uint64_t offset = below(MEMORY), len = below((uint32_t)(MEMORY - offset) + 1);
    struct vb_mkey_attr a = {.kind = below(4) ? VB_MKEY_REGION : VB_MKEY_COPIED,
                             .access = below(VB_ACCESS_ALL + 1),
                             .base = memory + offset,
                             .len = len};

    a.pd = w.pd[below(PDS)];
    a.start = below(2) ? (uintptr_t)a.base : below(1000);
    a.guarded = a.kind == VB_MKEY_REGION && below(4) == 0;
    a.source = a.kind == VB_MKEY_COPIED ? SOURCE : 0;
    if (below(8))
        a.access |= VB_LOCAL_WRITE;
    *legal = a.access & VB_LOCAL_WRITE || !(a.access & (VB_REMOTE_WRITE | VB_REMOTE_ATOMIC));
    if (*legal && below(16) == 0) { // to the last byte of all, or beyond
        bool beyond = below(2);
        a.start = UINT64_MAX - len + beyond;
        *legal = !beyond;
    } else if (*legal && below(16) == 0) {
        a.access |= VB_ACCESS_ALL + 1;
        *legal = false;
    }
    return a;
}

static void note(struct key *k, const struct vb_mkey_attr *a)
{
    k->pd = a->pd;
    k->kind = a->kind;
    k->access = a->access;
    k->start = a->start;
    k->len = a->len;
    k->base = a->base;
    k->guarded = a->guarded;
}

static void create(struct key *k)
{
    static const enum vb_mkey_kind others[] = {VB_MKEY_WINDOW1, VB_MKEY_WINDOW2, VB_MKEY_NULL};
    bool legal = true;
    struct vb_mkey_attr a = {.kind = VB_MKEY_NULL};
    uint32_t key = 0;

    if (below(3)) {
        a = some_region(&legal);
    } else {
        a = (struct vb_mkey_attr){.kind = others[below(3)], .pd = w.pd[below(PDS)]};
        legal = below(8) != 0;
        a.access = legal ? 0 : VB_REMOTE_READ;
    }
    int err = legal ? 0 : -EINVAL;
    if (legal && below(20) == 0)
        a.pd = 99, err = -ENOENT;
    assert_int_equal(vb_dev_mkey_create(w.dev, &a, &key), err);
    if (err)
        return;
    assert_true(key > 0xffff);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(w.key[i].key >> 8 != key >> 8);
    *k = (struct key){.key = key};
    note(k, &a);
}

static void change(struct key *k)
{
    bool legal;
    struct vb_mkey_attr a = some_region(&legal);
    int err = !is_region(k) ? -ENOENT : windows_of(k) ? -EBUSY : legal ? 0 : -EINVAL;

    if (err == 0 && below(8) == 0)
        a.pd = 99, err = -ENOENT;
    else if (err == 0 && below(8) == 0)
        a.kind = VB_MKEY_WINDOW1, err = -EINVAL;
    assert_int_equal(vb_dev_mkey_change(w.dev, k->key, &a), err);
    assert_int_equal(vb_dev_mkey_change(w.dev, k->key ^ 1, &a), -ENOENT);
    if (!err)
        note(k, &a);
}

static void destroy(struct key *k)
{
    int err = windows_of(k) ? -EBUSY : 0;
    bool window = is_window(k) && below(2);

    assert_int_equal(vb_dev_mkey_destroy(w.dev, k->key ^ 2), -ENOENT);
    assert_int_equal(window ? vb_dev_window_destroy(w.dev, k->key ^ below(256))
                            : vb_dev_mkey_destroy(w.dev, k->key),
                     err);
    assert_int_equal(vb_dev_window_destroy(w.dev, below(256)), -ENOENT);
    if (!err)
        *k = (struct key){0};
}

// The region's part of a binding.
static enum vb_mem_refusal judge_region(const struct key *r, uint32_t pd,
                                        const struct vb_binding *b)
{
    bool stores = b->access & (VB_REMOTE_WRITE | VB_REMOTE_ATOMIC);

    if (!r || !is_region(r))
        return VB_MEM_NO_KEY;
    if (r->pd != pd)
        return VB_MEM_DOMAIN;
    if (!(r->access & VB_BIND) || b->access & ~(uint32_t)VB_ACCESS_REMOTE ||
        (stores && !(r->access & VB_LOCAL_WRITE)))
        return VB_MEM_RIGHTS;
    bool fits = inside(b->addr, b->len, r->start, r->len) && b->len <= UINT64_MAX - b->start;
    return fits ? VB_MEM_OK : VB_MEM_BOUNDS;
}

static void bind(struct key *k)
{
    struct key *r = some_key(true);
    struct vb_accessor who = {below(8) ? k->pd : w.pd[below(PDS)], 1 + below(3)};
    struct vb_binding b = {.window = k->key ^ below(256), .region = r->key};
    enum vb_mem_refusal err = VB_MEM_OK;

    for (uint32_t i = 0; i < 20 && (!is_region(r) || r->pd != k->pd || !(r->access & VB_BIND)); i++)
        r = some_key(true);
    b.region = below(16) ? r->key : r->key ^ 1;
    b.access = below(8) ? below(VB_ACCESS_REMOTE + 1) & VB_ACCESS_REMOTE : VB_LOCAL_WRITE;
    b.addr = r->start + below((uint32_t)r->len + 1);
    b.len = below(4) ? below((uint32_t)(r->len - (b.addr - r->start)) + 2) : 0;
    b.addr -= below(16) == 0;
    b.start = below(16) ? below(1000) : UINT64_MAX - b.len + below(2);
    if (!is_window(k))
        err = VB_MEM_NO_KEY;
    else if (k->pd != who.pd)
        err = VB_MEM_DOMAIN;
    else if (k->kind == VB_MKEY_WINDOW2 && (k->bound || b.len == 0))
        err = VB_MEM_STATE;
    else if (b.len)
        err = judge_region(look(b.region), who.pd, &b);
    assert_int_equal(vb_window_bind(&w.dev->mkeys, who, &b), err);
    if (err != VB_MEM_OK)
        return;
    *k = (struct key){.key = b.window, .pd = k->pd, .kind = k->kind, .bound = b.len > 0};
    if (!b.len)
        return;
    k->parent = (uint32_t)(r - w.key);
    k->qpn = who.qpn;
    k->access = b.access;
    k->start = b.start;
    k->len = b.len;
    k->base = r->base + (b.addr - r->start);
}

static void invalidate(struct key *k)
{
    struct vb_accessor who = {below(8) ? k->pd : w.pd[below(PDS)], 1 + below(3)};
    bool wrong = below(16) == 0;
    enum vb_mem_refusal err = k->kind != VB_MKEY_WINDOW2 || wrong ? VB_MEM_NO_KEY
                              : k->pd != who.pd                   ? VB_MEM_DOMAIN
                              : !k->bound || k->qpn != who.qpn    ? VB_MEM_STATE
                                                                  : VB_MEM_OK;

    assert_int_equal(vb_key_invalidate(&w.dev->mkeys, who, k->key ^ wrong), err);
    if (err == VB_MEM_OK)
        *k = (struct key){.key = k->key, .pd = k->pd, .kind = k->kind};
}

static void copy(struct vb_accessor who, const struct key *k, uint64_t addr, uint64_t len,
                 uint32_t need, enum vb_mem_refusal verdict)
{
    uint8_t bytes[MEMORY + 8], before[MEMORY];
    uint32_t copied = w.copied;
    uint8_t *at = NULL;
    bool stores = need & (VB_LOCAL_WRITE | VB_REMOTE_WRITE);

    if (len > MEMORY)
        return;
    (void)expected(who, k->key, addr, len, need, &at);
    memcpy(before, memory, sizeof before);
    memset(bytes, (int)below(256), sizeof bytes);
    bool asks = verdict == VB_MEM_COPIED;
    verdict = asks                   ? (w.there ? VB_MEM_OK : VB_MEM_GONE)
              : verdict == VB_MEM_OK ? VB_MEM_NO_KEY
                                     : verdict;
    assert_int_equal(
        vb_mem_copy(&w.dev->mkeys, who, k->key, addr, len, (enum vb_access)need, bytes), verdict);
    bool done = verdict == VB_MEM_OK;
    assert_int_equal(w.copied - copied, asks);
    if (done)
        assert_memory_equal(bytes, at, len);
    if (!done || !stores)
        assert_memory_equal(memory, before, sizeof before);
}

static void access(struct key *k)
{
    struct vb_accessor who = {below(8) ? k->pd : w.pd[below(PDS)], 1 + below(3)};
    uint32_t key = below(16) ? k->key : k->key ^ below(4), span = (uint32_t)k->len;
    uint32_t need = below(2) ? 1u << below(7) : below(4);
    uint64_t addr = k->start + below(span + 1), len = below(4) ? below(span + 2) : 0;
    uint8_t *at = NULL, *found[2] = {NULL, NULL};

    need = below(2) ? need & k->access : need;
    addr -= below(8) == 0;
    len = below(32) ? len : VB_NULL_BYTES + below(2);
    len = below(64) ? len : UINT64_MAX - below(2);
    w.there = below(2);
    enum vb_mem_refusal verdict = expected(who, key, addr, len, need, &at);
    assert_int_equal(
        vb_mem_access(&w.dev->mkeys, who, key, addr, len, (enum vb_access)need, &found[0]),
        verdict);
    assert_int_equal(vb_dev_mkey_judge(w.dev, who, key, addr, len, (enum vb_access)need, &found[1]),
                     verdict);
    bool given = verdict == VB_MEM_OK || verdict == VB_MEM_COPIED;
    for (int i = 0; given && at && i < 2; i++)
        assert_ptr_equal(found[i], at);
    if (verdict == VB_MEM_OK && k->kind == VB_MKEY_NULL && key == k->key)
        for (uint64_t i = 0; !(need & VB_LOCAL_WRITE) && i < len; i++)
            assert_int_equal(found[0][i], 0);
    if (key == k->key)
        copy(who, k, addr, len, need, verdict);
}

// ---- what the device tells

static void compare(void)
{
    struct vb_mr_facts f[KEYS];
    struct vb_pd_facts pds[PDS];
    struct vb_count_facts counts;
    uint32_t at = 0, told = vb_facts_mrs(w.dev, &at, f, KEYS), used = 0, windows = 0;

    for (uint32_t i = 0; i < KEYS; i++) {
        used += w.key[i].key != 0;
        windows += w.key[i].key && is_window(&w.key[i]);
    }
    assert_int_equal(told, used);
    vb_facts_count(w.dev, &counts);
    assert_int_equal(counts.mws, windows);
    assert_int_equal(counts.mrs, used - windows);
    for (uint32_t i = 0; i < told; i++) {
        const struct key *k = look(f[i].key);
        assert_non_null(k);
        assert_int_equal(f[i].pd, k->pd);
        assert_int_equal(f[i].window, is_window(k));
        assert_int_equal(f[i].access, k->kind == VB_MKEY_NULL ? VB_LOCAL_WRITE : k->access);
        assert_true(f[i].start == k->start && f[i].len == k->len);
        assert_int_equal(vb_mkey_current(&w.dev->mkeys, k->key ^ 0x55), k->key);
    }
    at = 0;
    assert_int_equal(vb_facts_pds(w.dev, &at, pds, PDS), PDS);
    for (uint32_t p = 0; p < PDS; p++) {
        uint32_t users = 0;
        for (uint32_t i = 0; i < KEYS; i++)
            users += w.key[i].key && w.key[i].pd == pds[p].pd;
        assert_int_equal(pds[p].users, users);
    }
}

static void step(void)
{
    struct key *k = some_key(true);

    if (!k || below(5) == 0) {
        k = some_key(false);
        if (k)
            create(k);
        return;
    }
    switch (below(12)) {
    case 0: change(k); break;
    case 1:
        if (below(3) == 0)
            destroy(k);
        break;
    case 2:
    case 3:
    case 4: bind(k); break;
    case 5: invalidate(k); break;
    default: access(k); break;
    }
}

static void walk(uint64_t seed)
{
    const struct vb_mem_guard guard = {NULL, is_there};
    const struct vb_mem_copier copier = {NULL, fetch, store};
    const struct vb_dev_opts opts = {.seed = seed, .region_guard = &guard};

    w = (struct walk){.dev = vb_dev_create(&opts), .prng = {.state = seed}};
    assert_non_null(w.dev);
    vb_dev_copy_by(w.dev, &copier);
    for (uint32_t i = 0; i < PDS; i++)
        assert_int_equal(vb_dev_pd_create(w.dev, &w.pd[i]), 0);
    for (uint32_t i = 0; i < STEPS; i++) {
        step();
        if (i % 64 == 0)
            compare();
    }
    assert_true(w.asked > 100 && w.copied > 100);
    vb_dev_destroy(w.dev);
}

static void test_walks(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        walk(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
