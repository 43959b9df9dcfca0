// SPDX-License-Identifier: Apache-2.0
// Shares for tests.
#ifndef VB_TESTS_SHARE_KIT_H
#define VB_TESTS_SHARE_KIT_H

#include "nic/dev.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline uint32_t make_share(struct vb_dev *dev, uint32_t weight, uint64_t rate_Bps)
{
    const struct vb_share_attr attr = {.weight = weight, .rate_Bps = rate_Bps};
    uint32_t share = 0;

    assert_int_equal(vb_dev_share_create(dev, &attr, &share), 0);
    assert_int_not_equal(share, 0);
    return share;
}

static inline struct vb_share_facts facts_of(const struct vb_dev *dev, uint32_t share)
{
    struct vb_share_facts facts;

    assert_int_equal(vb_dev_share_query(dev, share, &facts), 0);
    return facts;
}

#endif
