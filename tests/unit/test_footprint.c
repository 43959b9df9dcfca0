// SPDX-License-Identifier: Apache-2.0
// What an idle queue pair takes: all that the core and the host allocate for one more that is
// connected, beyond the rings that its user asked for.
#include "heap.h"
#include "host/host.h"
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    QPS = 1000,
    LIMIT_BYTES = 8 * 1024,
};

static size_t ring_bytes(const struct vb_qp *qp)
{
    const struct vb_driver_qp *d = &qp->driver;
    return (size_t)d->sq.blocks * VB_WQEBB_BYTES + (size_t)d->rq.entries * d->rq.stride;
}

// Bytes of one connected queue pair of that depth beyond its rings, on average.
static size_t bytes_beyond_rings(uint32_t depth)
{
    static struct vb_qp *qp[QPS];
    struct vb_nic *nic = pair_open_host(0, 0);
    struct vb_pd *pd;
    struct vb_cq *cq;
    assert_non_null(nic);
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 16}, &cq), 0);
    const struct vb_qp_opts opts = {
        .send_cq = cq, .recv_cq = cq, .send_depth = depth, .recv_depth = depth};
    struct vb_qp_peer peer = {.mtu = 4096, .qpn = 7, .rights = VB_RIGHT_REMOTE_READ};
    vb_nic_gid(nic, peer.gid);
    size_t before = heap_bytes();
    for (uint32_t i = 0; i < QPS; i++) {
        assert_int_equal(vb_qp_create(pd, &opts, &qp[i]), 0);
        assert_int_equal(vb_qp_connect(qp[i], &peer), 0);
    }
    size_t bytes = (heap_bytes() - before) / QPS - ring_bytes(qp[0]);
    vb_nic_close(nic);
    return bytes;
}

static void test_an_idle_queue_pair_is_small(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 128; depth *= 128) {
        size_t bytes = bytes_beyond_rings(depth);
        print_message("a connected queue pair of depth %u: %zu bytes beyond its rings\n", depth,
                      bytes);
        assert_true(bytes <= LIMIT_BYTES);
        assert_true(bytes >= sizeof(struct vb_qp)); // it does measure
    }
}

// What is kept beside each entry of a ring counts, too.
static void test_a_deeper_queue_pair_takes_more(void **state)
{
    (void)state;
    assert_true(bytes_beyond_rings(128) > bytes_beyond_rings(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_idle_queue_pair_is_small),
        cmocka_unit_test(test_a_deeper_queue_pair_takes_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
