// SPDX-License-Identifier: Apache-2.0
// A device that may give only some queue pair numbers: all of them are from its range, all indices
// can be in use at once, and units are still named by the lowest bits.
#include "nic/dev.h"
#include "nic/doorbell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

enum {
    RANGE = 1 << 15,
    UNITS = 4,
};

struct rig {
    struct vb_dev *dev;
    uint8_t *cq_ring;
    uint8_t rings[4096];
    uint32_t cq_dbrec[UNITS][2], dbrec[2];
    uint32_t cqn[UNITS];
    struct vb_qpc_attr attr;
};

static void open_rig(struct rig *r, uint32_t base, uint32_t count, uint32_t units)
{
    memset(r, 0, sizeof *r);
    r->dev = vb_dev_create(
        &(struct vb_dev_opts){.seed = 3, .pus = units, .qpn_base = base, .qpn_count = count});
    assert_non_null(r->dev);
    r->cq_ring = calloc(UNITS, 64);
    assert_non_null(r->cq_ring);
    assert_int_equal(vb_dev_pd_create(r->dev, &r->attr.pd), 0);
    for (uint32_t i = 0; i < units; i++) {
        const struct vb_cqc_attr cq = {
            .pu = i, .ring = r->cq_ring + 64 * i, .entries = 1, .dbrec = r->cq_dbrec[i]};
        assert_int_equal(vb_dev_cq_create(r->dev, &cq, &r->cqn[i]), 0);
    }
    r->attr.type = VB_QPT_RC;
    r->attr.sq_ring = r->rings;
    r->attr.sq_blocks = 4;
    r->attr.rq_stride_bytes = 16;
    r->attr.dbrec = r->dbrec;
}

static void close_rig(struct rig *r)
{
    vb_dev_destroy(r->dev);
    free(r->cq_ring);
}

static uint32_t create(struct rig *r, uint32_t unit)
{
    uint32_t qpn = 0;
    r->attr.send_cqn = r->attr.recv_cqn = r->cqn[unit];
    assert_int_equal(vb_dev_qp_create(r->dev, &r->attr, &qpn), 0);
    return qpn;
}

static void fill(uint32_t base, uint32_t units)
{
    struct rig r;
    static uint8_t seen[RANGE];
    uint32_t none;
    memset(seen, 0, sizeof seen);
    open_rig(&r, base, RANGE, units);
    for (uint32_t i = 0; i < VB_DOORBELL_QPS; i++) {
        uint32_t qpn = create(&r, i % units);
        assert_true(qpn >= base && qpn < base + RANGE && qpn > 1);
        assert_int_equal(qpn % units, i % units);
        assert_int_equal(seen[qpn - base]++, 0);
    }
    assert_int_equal(vb_dev_qp_create(r.dev, &r.attr, &none), -ENOMEM);
    close_rig(&r);
}

static void test_all_of_a_range(void **state)
{
    (void)state;
    fill(0, 1); // without 0 and 1
    fill(7 * RANGE, 1);
    fill(510 * RANGE, UNITS);
}

// As late as two generations allow; the place of the management queue pair is kept free.
static void test_numbers_come_round(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, 3 * RANGE, RANGE, 1);
    uint32_t first = create(&r, 0), qpn = 0;
    assert_int_equal(vb_dev_qp_destroy(r.dev, first), 0);
    for (uint32_t i = 1; i < RANGE - 2; i++) {
        qpn = create(&r, 0);
        assert_int_not_equal(qpn, first);
        assert_int_equal(vb_dev_qp_destroy(r.dev, qpn), 0);
    }
    assert_int_equal(create(&r, 0), first);
    close_rig(&r);
}

static void test_ranges_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        uint32_t base, count;
    } bad[] = {{1, RANGE},           {0, 1000},    {1 << 24, RANGE},
               {511 * RANGE, RANGE}, {0, 1 << 24}, {RANGE, UINT32_MAX & ~(RANGE - 1u)}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_null(vb_dev_create(
            &(struct vb_dev_opts){.qpn_base = bad[i].base, .qpn_count = bad[i].count}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_of_a_range),
        cmocka_unit_test(test_numbers_come_round),
        cmocka_unit_test(test_ranges_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
