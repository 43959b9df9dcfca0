// SPDX-License-Identifier: Apache-2.0
// Completion queues that outlive their owner, entry by entry: the order in which they are passed,
// and what the next owner leaves alone.
#include "host/driver_rings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    ENTRIES = 4,
    QPN = 0x123456,
};

struct queue {
    struct vb_driver_cq cq;
    struct vb_cqe ring[ENTRIES];
    uint32_t dbrec[2];
    uint32_t passed; // as the record said when the queue pair was looked for
};

// Of the first round, with so many entries.
static void open_queue(struct queue *q, uint32_t count)
{
    *q = (struct queue){.passed = UINT32_MAX};
    q->cq = (struct vb_driver_cq){
        .ring = (uint8_t *)q->ring, .entries = ENTRIES, .dbrec = q->dbrec, .outlives = true};
    for (uint32_t i = 0; i < ENTRIES; i++)
        q->ring[i].op_own = i < count ? VB_CQE_REQ << 4 : VB_CQE_INVALID << 4 | 1;
    for (uint32_t i = 0; i < count; i++)
        q->ring[i].sop_drop_qpn = htobe32(8u << 24 | QPN);
}

static struct vb_driver_qp *look(void *ctx, uint32_t qpn)
{
    struct queue *q = ctx;

    (void)qpn;
    if (q->passed == UINT32_MAX)
        q->passed = be32toh(q->dbrec[VB_DBREC_CQ_CI]);
    return NULL;
}

static bool is_none(void *ctx, uint32_t qpn, uint32_t srqn)
{
    (void)ctx;
    (void)qpn;
    (void)srqn;
    return false;
}

// The place of a request is free when its completion is taken: the record says so before, lest who
// comes next take the completion for that of another request.
static void test_passed_before_taken(void **state)
{
    struct vb_wc wc[ENTRIES];
    struct vb_cqe copy[ENTRIES];
    struct queue q;

    (void)state;
    open_queue(&q, 2);
    assert_int_equal(vb_driver_poll(&q.cq, look, &q, wc, 1), 0);
    assert_int_equal(q.passed, 1);
    open_queue(&q, 2);
    assert_int_equal(vb_driver_copy(&q.cq, copy, ENTRIES), 2);
    assert_int_equal(vb_driver_take(&q.cq, copy, 2, look, &q, wc), 0);
    assert_int_equal(q.passed, 2);
    assert_int_equal(be32toh(q.dbrec[VB_DBREC_CQ_CI]), 2);
}

// Completions of queue pairs that are gone are nobody's; what an auditor has to read stays.
static void test_records_of_auditors_stay(void **state)
{
    struct vb_wc wc[ENTRIES];
    struct queue q;

    (void)state;
    open_queue(&q, 1);
    vb_driver_cq_sift(&q.cq, is_none, NULL);
    assert_int_equal(be32toh(q.ring[0].sop_drop_qpn) & 0xffffff, 0);
    open_queue(&q, 1);
    q.cq.audits = true;
    vb_driver_cq_sift(&q.cq, is_none, NULL);
    assert_int_equal(vb_driver_poll(&q.cq, look, &q, wc, 1), 1);
    assert_int_equal(wc[0].qpn, QPN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passed_before_taken),
        cmocka_unit_test(test_records_of_auditors_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
