// SPDX-License-Identifier: Apache-2.0
// Which options make a device: units and ranges of queue pair numbers; and its addresses.
#include "nic/dev.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_device_options(void **state)
{
    static const struct {
        uint32_t pus, base, count;
        bool made;
    } rows[] = {{0, 0, 0, true},
                {16, 0, 0, true},
                {32, 0, 0, false},
                {3, 0, 0, false},
                {1, 1 << 14, 1 << 14, true},
                {1, 1, 1 << 14, false},
                {1, 1 << 14, 1, false},
                {1, 1 << 14, (1 << 14) + 1, false},
                {1, (1 << 24) - (2 << 14), 1 << 14, true},
                {1, (1 << 24) - (1 << 14), 1 << 14, false},
                {1, (1 << 24) - (2 << 14), 2 << 14, false},
                {1, 0, (1 << 24) - (1 << 14), true},
                {1, 0, 1 << 24, false}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct vb_dev_opts o = {
            .pus = rows[i].pus, .qpn_base = rows[i].base, .qpn_count = rows[i].count};
        struct vb_dev *dev = vb_dev_create(&o);
        if ((dev != NULL) != rows[i].made)
            fail_msg("row %zu", i);
        if (!dev)
            continue;
        uint32_t pus = o.pus ? o.pus : 1;
        assert_ptr_equal(vb_dev_pu(dev), vb_dev_pu_at(dev, 0));
        assert_non_null(vb_dev_pu_at(dev, pus - 1));
        assert_null(vb_dev_pu_at(dev, pus));
        vb_dev_destroy(dev);
    }
}

// A device on several addresses keeps as many as it can, in order.
static void test_addresses_that_fit(void **state)
{
    struct vb_dev *dev = vb_dev_create(&(struct vb_dev_opts){.pus = 1});
    struct vb_ip ip = {{0xfd, [15] = 0}}, found;

    (void)state;
    for (uint8_t i = 0; i < VB_DEV_ADDRESSES; i++) {
        assert_false(vb_dev_address(dev, i, &found));
        ip.b[15] = i;
        assert_int_equal(vb_dev_add_address(dev, &ip), 0);
    }
    ip.b[15] = VB_DEV_ADDRESSES;
    assert_int_equal(vb_dev_add_address(dev, &ip), -ENOSPC);
    for (uint8_t i = 0; i < VB_DEV_ADDRESSES; i++) {
        assert_true(vb_dev_address(dev, i, &found));
        assert_int_equal(found.b[15], i);
    }
    assert_false(vb_dev_address(dev, VB_DEV_ADDRESSES, &found));
    vb_dev_destroy(dev);
}

static const struct vb_ip v4 = {{[10] = 0xff, 0xff, 10, 0, 0, 1}}, v6 = {{0xfd, [15] = 1}},
                          loopback4 = {{[10] = 0xff, 0xff, 127, 0, 0, 1}}, loopback6 = {{[15] = 1}};

// Frames leave from an address of the peer's kind, else of its family, else from the first.
static void test_the_address_for_a_peer(void **state)
{
    static const struct {
        const struct vb_ip *have[2], *to, *from; // from NULL: the first
    } rows[] = {{{&v4, &v6}, &v4, &v4},
                {{&v4, &v6}, &v6, &v6},
                {{&v6, &v4}, &loopback4, &v4},
                {{&v4, &v6}, &loopback4, &v4},
                {{&v4, &v6}, &loopback6, &v6},
                {{&v6, &v4}, &loopback6, &v6},
                {{&loopback4, &v4}, &v4, &v4},
                {{&loopback6, &v6}, &v6, &v6},
                {{&loopback4, &v4}, &loopback4, &loopback4},
                {{&v4, &loopback4}, &v6, NULL},
                {{&v6, &loopback6}, &v4, NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct vb_dev *dev = vb_dev_create(&(struct vb_dev_opts){.pus = 1});
        struct vb_ip first;
        assert_int_equal(vb_dev_add_address(dev, rows[i].have[0]), 0);
        assert_int_equal(vb_dev_add_address(dev, rows[i].have[1]), 0);
        const struct vb_ip *from = vb_dev_source(dev, rows[i].to, &first);
        if (rows[i].from ? from == &first || !vb_ip_equal(from, rows[i].from) : from != &first)
            fail_msg("row %zu", i);
        vb_dev_destroy(dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_options),
        cmocka_unit_test(test_addresses_that_fit),
        cmocka_unit_test(test_the_address_for_a_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
