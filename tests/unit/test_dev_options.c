// SPDX-License-Identifier: Apache-2.0
// Which options make a device: units and ranges of queue pair numbers.
#include "nic/dev.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
