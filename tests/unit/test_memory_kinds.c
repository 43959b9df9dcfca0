// SPDX-License-Identifier: Apache-2.0
// Keys without memory, and regions that alone are looked after.
#include "nic/memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    PD = 3,
    LEN = 100,
};

static const struct vb_accessor us = {PD, 77};

static uint32_t create(struct vb_mkey_table *t, const struct vb_mkey_attr *attr)
{
    uint32_t key = 0;
    assert_int_equal(vb_mkey_create(t, attr, &key), 0);
    return key;
}

static void test_a_key_without_memory(void **state)
{
    (void)state;
    struct vb_mkey_table t = {0};
    uint8_t *in = NULL, *out = NULL;

    assert_int_equal(vb_mkey_table_init(&t, (const uint64_t[2]){1, 2}), 0);
    uint32_t key = create(&t, &(struct vb_mkey_attr){.pd = PD, .kind = VB_MKEY_NULL});
    assert_int_equal(vb_mem_access(&t, us, key, 0, VB_NULL_BYTES, VB_LOCAL_WRITE, &in), VB_MEM_OK);
    memset(in, 0xff, VB_NULL_BYTES);
    assert_int_equal(vb_mem_access(&t, us, key, UINT64_MAX, 1, VB_LOCAL_WRITE, &in), VB_MEM_OK);
    assert_int_equal(vb_mem_access(&t, us, key, 5, VB_NULL_BYTES, VB_LOCAL_READ, &out), VB_MEM_OK);
    for (uint32_t i = 0; i < VB_NULL_BYTES; i++)
        assert_int_equal(out[i], 0);
    // Its owner's alone, and no window.
    assert_int_equal(vb_mem_access(&t, us, key, 0, 1, VB_REMOTE_READ, &out), VB_MEM_RIGHTS);
    assert_int_equal(vb_mem_access(&t, us, key, 0, 1, VB_REMOTE_WRITE, &out), VB_MEM_RIGHTS);
    assert_int_equal(vb_mem_access(&t, us, key, 0, VB_NULL_BYTES + 1, VB_LOCAL_READ, &out),
                     VB_MEM_BOUNDS);
    assert_int_equal(
        vb_mem_access(&t, (struct vb_accessor){PD + 1, 77}, key, 0, 1, VB_LOCAL_READ, &out),
        VB_MEM_DOMAIN);
    assert_int_equal(vb_key_invalidate(&t, us, key), VB_MEM_NO_KEY);
    assert_int_equal(vb_window_bind(&t, us, &(struct vb_binding){.window = key}), VB_MEM_NO_KEY);
    assert_int_equal(vb_mkey_destroy(&t, key), 0);
    assert_int_equal(vb_mem_access(&t, us, key, 0, 1, VB_LOCAL_READ, &out), VB_MEM_NO_KEY);
    vb_mkey_table_fini(&t);
}

static bool is_there(void *ctx, uint32_t key, const void *at, uint64_t len, bool write)
{
    (void)key, (void)at, (void)len, (void)write;
    ++*(unsigned *)ctx;
    return false;
}

static void test_only_who_asks_is_looked_after(void **state)
{
    (void)state;
    struct vb_mkey_table t = {0};
    uint8_t bytes[LEN], *at;
    unsigned asked = 0;
    const struct vb_mem_guard guard = {&asked, is_there};
    struct vb_mkey_attr attr = {
        .pd = PD, .access = VB_LOCAL_WRITE | VB_BIND, .start = 0, .len = LEN, .base = bytes};

    assert_int_equal(vb_mkey_table_init(&t, (const uint64_t[2]){1, 2}), 0);
    t.guard = &guard;
    uint32_t plain = create(&t, &attr);
    attr.guarded = true;
    uint32_t guarded = create(&t, &attr);
    uint32_t window = create(&t, &(struct vb_mkey_attr){.pd = PD, .kind = VB_MKEY_WINDOW1});
    struct vb_binding b = {.window = window, .region = plain, .len = LEN, .access = VB_REMOTE_READ};
    assert_int_equal(vb_mem_access(&t, us, plain, 0, 1, VB_LOCAL_READ, &at), VB_MEM_OK);
    assert_int_equal(vb_window_bind(&t, us, &b), VB_MEM_OK);
    assert_int_equal(vb_mem_access(&t, us, window, 0, 1, VB_REMOTE_READ, &at), VB_MEM_OK);
    assert_int_equal(asked, 0);
    assert_int_equal(vb_mem_access(&t, us, guarded, 0, 1, VB_LOCAL_READ, &at), VB_MEM_GONE);
    b.region = guarded;
    assert_int_equal(vb_window_bind(&t, us, &b), VB_MEM_OK);
    assert_int_equal(vb_mem_access(&t, us, window, 0, 1, VB_REMOTE_READ, &at), VB_MEM_GONE);
    assert_int_equal(asked, 2);
    assert_int_equal(vb_mkey_destroy(&t, window), 0);
    attr.guarded = false; // it changes its mind
    assert_int_equal(vb_mkey_change(&t, guarded, &attr), 0);
    assert_int_equal(vb_mem_access(&t, us, guarded, 0, 1, VB_LOCAL_READ, &at), VB_MEM_OK);
    t.guards_all = true;
    uint32_t any = create(&t, &attr);
    assert_int_equal(vb_mem_access(&t, us, any, 0, 1, VB_LOCAL_READ, &at), VB_MEM_GONE);
    assert_int_equal(asked, 3);
    vb_mkey_table_fini(&t);
}

// ---- memory of others

struct elsewhere {
    uint8_t bytes[LEN];
    uint64_t source;
    bool gone;
};

static bool fetch(void *ctx, uint64_t source, uint64_t at, uint8_t *to, uint64_t len)
{
    struct elsewhere *e = ctx;
    e->source = source;
    if (!e->gone)
        memcpy(to, e->bytes + at, len);
    return !e->gone;
}

static bool store(void *ctx, uint64_t source, uint64_t at, const uint8_t *from, uint64_t len)
{
    struct elsewhere *e = ctx;
    e->source = source;
    if (!e->gone)
        memcpy(e->bytes + at, from, len);
    return !e->gone;
}

static void test_a_copied_region(void **state)
{
    (void)state;
    struct elsewhere e = {.bytes = {[10] = 7}};
    const struct vb_mem_copier copier = {&e, fetch, store};
    const struct vb_mkey_attr attr = {.pd = PD,
                                      .kind = VB_MKEY_COPIED,
                                      .access = VB_ACCESS_ALL,
                                      .start = 1000,
                                      .len = LEN,
                                      .source = 99};
    struct vb_mkey_table t = {0};
    uint32_t key;
    uint8_t *at, byte = 0;

    assert_int_equal(vb_mkey_table_init(&t, (const uint64_t[2]){1, 2}), 0);
    assert_int_equal(vb_mkey_create(&t, &attr, &key), -EINVAL); // nobody copies
    t.copier = &copier;
    key = create(&t, &attr);
    assert_int_equal(vb_mem_access(&t, us, key, 1010, 1, VB_LOCAL_READ, &at), VB_MEM_COPIED);
    assert_int_equal(vb_mem_access(&t, us, key, 1000 + LEN, 1, VB_LOCAL_READ, &at), VB_MEM_BOUNDS);
    assert_int_equal(vb_mem_copy(&t, us, key, 1010, 1, VB_LOCAL_READ, &byte), VB_MEM_OK);
    assert_int_equal(byte, 7);
    assert_int_equal(e.source, 99);
    byte = 8;
    assert_int_equal(vb_mem_copy(&t, us, key, 1011, 1, VB_REMOTE_WRITE, &byte), VB_MEM_OK);
    assert_int_equal(e.bytes[11], 8);
    assert_int_equal(vb_mem_copy(&t, us, key, 1000 + LEN, 1, VB_LOCAL_READ, &byte), VB_MEM_BOUNDS);
    assert_int_equal(
        vb_mem_copy(&t, (struct vb_accessor){PD + 1, 77}, key, 1010, 1, VB_LOCAL_READ, &byte),
        VB_MEM_DOMAIN);
    // Windows of it are copied, too.
    uint32_t window = create(&t, &(struct vb_mkey_attr){.pd = PD, .kind = VB_MKEY_WINDOW1});
    const struct vb_binding b = {
        .window = window, .region = key, .addr = 1010, .len = 1, .access = VB_REMOTE_READ};
    assert_int_equal(vb_window_bind(&t, us, &b), VB_MEM_OK);
    assert_int_equal(vb_mem_access(&t, us, window, 0, 1, VB_REMOTE_READ, &at), VB_MEM_COPIED);
    assert_int_equal(vb_mem_copy(&t, us, window, 0, 1, VB_REMOTE_READ, &byte), VB_MEM_OK);
    assert_int_equal(byte, 7);
    assert_int_equal(vb_mem_copy(&t, us, window, 0, 1, VB_REMOTE_WRITE, &byte), VB_MEM_RIGHTS);
    e.gone = true;
    assert_int_equal(vb_mem_copy(&t, us, key, 1010, 1, VB_LOCAL_READ, &byte), VB_MEM_GONE);
    // What is here is not copied.
    uint8_t here[8];
    uint32_t plain = create(&t, &(struct vb_mkey_attr){.pd = PD, .len = 8, .base = here});
    assert_int_equal(vb_mem_copy(&t, us, plain, 0, 1, VB_LOCAL_READ, &byte), VB_MEM_NO_KEY);
    vb_mkey_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_without_memory),
        cmocka_unit_test(test_only_who_asks_is_looked_after),
        cmocka_unit_test(test_a_copied_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
