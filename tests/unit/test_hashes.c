// SPDX-License-Identifier: Apache-2.0
// Neighbours must not share a place: peers and paths of addresses in a row, and names of memory
// keys.
#include "forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    KEYS = 1 << 20,
};

static struct vb_ip address(uint32_t i)
{
    return (struct vb_ip){{[10] = 0xff, 0xff, 10, 1, (uint8_t)(i >> 8), (uint8_t)i}};
}

// As many addresses as lists: by chance 63 of 100 lists have one.
static void test_peers(void **state)
{
    struct forge *f = forge_open(NULL);
    uint32_t used = 0;

    (void)state;
    for (uint32_t i = 0; i < VB_PEERS; i++) {
        struct vb_ip a = address(i);
        struct vb_peer *peer = vb_peer_join(f->pu, &a, NULL);
        assert_non_null(peer);
        assert_ptr_equal(vb_peer_join(f->pu, &a, NULL), peer);
    }
    for (uint32_t i = 0; i < VB_PEERS; i++) {
        used += f->pu->peers[i] != NULL;
        for (struct vb_peer *peer = f->pu->peers[i], *next; peer; peer = next) {
            next = peer->next;
            if (peer == f->ctx->peer)
                peer->next = NULL;
            else
                free(peer);
        }
        f->pu->peers[i] = NULL;
    }
    assert_true(used > VB_PEERS / 2);
    forge_close(f);
}

static void test_paths(void **state)
{
    struct forge_opts o = forge_defaults();
    const struct vb_wr wr = {.hop_limit = 64};
    uint32_t used = 0;

    (void)state;
    o.type = VB_QPT_UD;
    struct forge *f = forge_open(&o);
    for (uint32_t i = 0; i < VB_AH_PATHS; i++) {
        struct vb_ip a = address(i);
        struct vb_path *path = vb_ah_path(f->pu, f->ctx, &a, &wr);
        assert_non_null(path);
        assert_ptr_equal(vb_ah_path(f->pu, f->ctx, &a, &wr), path);
    }
    for (uint32_t i = 0; i < VB_AH_PATHS; i++)
        used += f->pu->ah[i] != NULL;
    assert_true(used > VB_AH_PATHS / 2);
    forge_close(f);
}

// None is 0, and none ends a receive list.
static void test_key_names(void **state)
{
    const uint64_t secret[2] = {1, 2};
    const struct vb_mkey_attr a = {.pd = 1, .kind = VB_MKEY_WINDOW1};
    struct vb_mkey_table t = {0};
    uint32_t key, low = UINT32_MAX;

    (void)state;
    assert_int_equal(vb_mkey_table_init(&t, secret), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(vb_mkey_create(&t, &a, &key), 0);
        low = key < low ? key : low;
        assert_int_equal(vb_mkey_destroy(&t, key), 0);
    }
    assert_in_range(low, 0x10000, 0x20000); // as small as may be, by chance
    vb_mkey_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_key_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
