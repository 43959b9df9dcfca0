// SPDX-License-Identifier: Apache-2.0
// Through the public interface: regions without memory and those that are looked after, where keys
// lead, the events of objects that are gone, a rate, and the end of a queue pair in two steps.
#include "duo.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum {
    PAGE = 4096,
    LOCAL_RIGHTS = VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE,
};

static void post_key(const struct duo *d, struct vb_qp *qp, uint32_t lkey, uint64_t addr,
                     uint32_t len)
{
    const struct vb_sge sge = {addr, len, lkey};
    struct vb_send_wr wr = duo_wr(d, VB_WR_WRITE, 7);

    wr.sge = &sge;
    wr.num_sge = 1;
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
}

static void test_a_region_without_memory(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_mr *null;

    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    assert_int_equal(vb_mr_null(d.end[0].pd, &null), 0);
    memset(d.end[1].memory, 7, DUO_BYTES);
    vb_nic_progress(d.end[1].nic); // its helper writes there next
    post_key(&d, qp[0], vb_mr_key(null), 12345, PAGE + 1);
    duo_expect(d.end[0].cq, 7, VB_WC_OK);
    for (uint32_t i = 0; i <= PAGE; i++)
        assert_int_equal(d.end[1].memory[i], 0);
    assert_int_equal(d.end[1].memory[PAGE + 1], 7);
    assert_int_equal(vb_mr_change(null, d.end[0].pd, &(struct vb_mr_opts){0}), -ENOENT);
    assert_int_equal(vb_pd_free(d.end[0].pd), -EBUSY);
    assert_int_equal(vb_mr_dereg(null), 0);
    duo_close(&d);
}

static void test_a_region_that_is_looked_after(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_mr *mr;
    uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(page, MAP_FAILED);
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    const struct vb_mr_opts all = {.len = SIZE_MAX, .rights = LOCAL_RIGHTS, .guarded = true};
    assert_int_equal(vb_mr_reg_as(d.end[0].pd, &all, &mr), 0);
    post_key(&d, qp[0], vb_mr_key(mr), (uintptr_t)page, PAGE);
    duo_expect(d.end[0].cq, 7, VB_WC_OK);
    munmap(page, PAGE);
    post_key(&d, qp[0], vb_mr_key(mr), (uintptr_t)page, PAGE);
    duo_expect(d.end[0].cq, 7, VB_WC_LOCAL_PROTECTION);
    assert_int_equal(vb_mr_dereg(mr), 0);
    duo_close(&d);
}

static void test_where_keys_lead(void **state)
{
    struct duo d;
    struct vb_pd *other;
    struct vb_mr *mr;
    struct vb_mw *mw;
    void *at;

    duo_open(&d, *state);
    struct duo_end *e = &d.end[0];
    const struct vb_mr_opts opts = {
        .addr = e->memory, .len = 100, .other_start = true, .start = 5000};
    assert_int_equal(vb_mr_reg_as(e->pd, &opts, &mr), 0);
    assert_int_equal(vb_pd_alloc(e->nic, &other), 0);
    assert_int_equal(vb_mw_alloc(e->pd, VB_MW_TYPE_1, &mw), 0);
    uint32_t key = vb_mr_key(mr);
    assert_int_equal(vb_mr_find(e->pd, key, 5010, 90, 0, &at), 0);
    assert_ptr_equal(at, e->memory + 10);
    assert_int_equal(vb_mr_find(e->pd, key, 5010, 91, 0, &at), -ERANGE);
    assert_int_equal(vb_mr_find(e->pd, key, 4999, 1, 0, &at), -ERANGE);
    assert_int_equal(vb_mr_find(e->pd, key, 5000, 1, VB_RIGHT_LOCAL_WRITE, &at), -EACCES);
    assert_int_equal(vb_mr_find(other, key, 5000, 1, 0, &at), -EPERM);
    assert_int_equal(vb_mr_find(e->pd, vb_mw_key(mw), 0, 1, VB_RIGHT_REMOTE_READ, &at), -EINVAL);
    assert_int_equal(vb_mr_dereg(mr), 0);
    assert_int_equal(vb_mr_find(e->pd, key, 5000, 1, 0, &at), -ENOENT);
    assert_int_equal(vb_mw_free(mw), 0);
    assert_int_equal(vb_pd_free(other), 0);
    duo_close(&d);
}

// A queue pair whose shared receives run low; the event is not taken.
static struct vb_srq *run_low(const struct duo *d, struct vb_qp *qp[2])
{
    struct vb_srq *srq;
    const struct vb_sge sge = {(uintptr_t)d->end[1].memory, 64, vb_mr_key(d->end[1].mr)};
    const struct vb_recv_wr recv = {.wr_id = 3, .sge = &sge, .num_sge = 1};

    assert_int_equal(vb_srq_create(d->end[1].pd, &(struct vb_srq_opts){.depth = 8}, &srq), 0);
    qp[0] = duo_make_qp(&d->end[0], (struct vb_qp_opts){.service = VB_SERVICE_RC});
    qp[1] = duo_make_qp(&d->end[1], (struct vb_qp_opts){.service = VB_SERVICE_RC, .srq = srq});
    duo_join(d, qp[0], qp[1]);
    assert_int_equal(vb_post_srq(srq, &recv, 1), 1);
    assert_int_equal(vb_srq_arm(srq, 1), 0);
    duo_post(d, qp[0], duo_wr(d, VB_WR_SEND, 1), 0, 64);
    duo_expect(d->end[0].cq, 1, VB_WC_OK);
    duo_expect(d->end[1].cq, 3, VB_WC_OK);
    assert_true(duo_is_readable(vb_nic_event_fd(d->end[1].nic), DUO_PATIENCE_S * 1000));
    return srq;
}

static void test_events_go_with_their_object(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_nic_event e;

    duo_open(&d, *state);
    struct vb_srq *srq = run_low(&d, qp);
    uint32_t number = vb_srq_num(srq);
    assert_int_equal(vb_qp_destroy(qp[1]), 0);
    assert_true(duo_is_readable(vb_nic_event_fd(d.end[1].nic), 0)); // another's is still there
    assert_int_equal(vb_srq_destroy(srq), 0);
    assert_int_equal(vb_srq_create(d.end[1].pd, &(struct vb_srq_opts){.depth = 8}, &srq), 0);
    assert_int_equal(vb_srq_num(srq), number);
    assert_false(duo_is_readable(vb_nic_event_fd(d.end[1].nic), 0));
    assert_int_equal(vb_nic_take_event(d.end[1].nic, &e), -EAGAIN);
    assert_int_equal(vb_srq_destroy(srq), 0);
    duo_close(&d);
}

static void test_an_end_in_two_steps(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];

    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_READ, 4), 0, DUO_BYTES);
    duo_expect(d.end[0].cq, 4, VB_WC_OK);
    assert_int_equal(vb_qp_settle(qp[1]), 0);
    assert_int_equal(vb_qp_destroy(qp[1]), 0);
    assert_int_equal(vb_qp_destroy(qp[0]), 0);
    duo_close(&d);
}

static void test_a_rate(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];

    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    assert_int_equal(vb_qp_limit(qp[0], 8000, 1024), 0); // a megabyte in a second
    uint64_t from = duo_now_ns();
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, 4), 0, 50000);
    duo_expect(d.end[0].cq, 4, VB_WC_OK);
    assert_true(duo_now_ns() - from > 40 * 1000 * 1000); // a busy machine only makes it more
    assert_int_equal(vb_qp_limit(qp[0], 0, 0), 0);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_a_region_without_memory),
        DUO_TEST(test_a_region_that_is_looked_after, "udp"),
        DUO_TEST(test_where_keys_lead, "udp"),
        DUO_TEST(test_where_keys_lead, "hull"),
        DUO_PORTS(test_events_go_with_their_object),
        DUO_TEST(test_events_go_with_their_object, "hull"),
        DUO_PORTS(test_an_end_in_two_steps),
        DUO_TEST(test_an_end_in_two_steps, "hull"),
        DUO_PORTS(test_a_rate),
        DUO_TEST(test_a_rate, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
