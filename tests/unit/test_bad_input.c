// SPDX-License-Identifier: Apache-2.0
// Wrong arguments at every call of the public interface: each is refused, and nothing is lost by
// it: afterwards the same NIC still does its work.
#include "duo.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define REFUSED(call) assert_int_equal(call, -EINVAL)

static void expect_closed(struct vb_nic_opts opts, const char *hint)
{
    char why[VB_ERROR_TEXT] = "";
    struct vb_nic *nic = NULL;

    opts.error_text = why;
    opts.no_helper = true;
    REFUSED(vb_nic_open(&opts, &nic));
    assert_null(nic);
    if (!strstr(why, hint))
        fail_msg("'%s' does not say '%s'", why, hint);
}

static void test_options_and_environment(void **state)
{
    (void)state;
    const char *long_text =
        "0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890123456789012345678901234567890123456789";

    expect_closed((struct vb_nic_opts){.address = "300.1.1.1"}, "300.1.1.1");
    expect_closed((struct vb_nic_opts){.address = ""}, "address");
    expect_closed((struct vb_nic_opts){.address = long_text}, "0123");
    expect_closed((struct vb_nic_opts){.port = "tcp"}, "there are udp, shm and auto");
    expect_closed((struct vb_nic_opts){.port = long_text}, "there are udp, shm and auto");
    expect_closed((struct vb_nic_opts){.faults = "drop=200%"}, "at most 100%");
    expect_closed((struct vb_nic_opts){.faults = long_text}, "column 1");
    expect_closed((struct vb_nic_opts){.units = 3}, "power of two");
    expect_closed((struct vb_nic_opts){.units = 1u << 31}, "power of two");
    static const struct {
        const char *name, *value, *hint;
    } wrong[] = {
        {"VERBENA_PORT", "infiniband", "there are udp, shm and auto"},
        {"VERBENA_FAULTS", "dorp=1%", "no such key"},
        {"VERBENA_GUARD", "maybe", "give 1 or 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv(wrong[i].name, wrong[i].value, 1);
        expect_closed((struct vb_nic_opts){0}, wrong[i].hint);
        unsetenv(wrong[i].name);
    }
}

// ---- objects

static void try_memory(const struct duo_end *e)
{
    struct vb_mr *mr;
    struct vb_mw *mw;

    REFUSED(vb_mr_reg(e->pd, e->memory, 16, VB_RIGHT_ALL + 1, &mr));
    REFUSED(vb_mr_reg(e->pd, e->memory, 16, VB_RIGHT_REMOTE_WRITE, &mr)); // without the local one
    REFUSED(vb_mr_reg(e->pd, (void *)(UINTPTR_MAX - 7), 16, 0, &mr));
    const struct vb_mr_opts wraps = {
        .addr = e->memory, .len = 16, .other_start = true, .start = UINT64_MAX - 7};
    REFUSED(vb_mr_reg_as(e->pd, &wraps, &mr));
    REFUSED(vb_mw_alloc(e->pd, 0, &mw));
    REFUSED(vb_mw_alloc(e->pd, 3, &mw));
}

static void try_completion_queues(const struct duo_end *e, const struct duo_end *other)
{
    struct vb_cq *cq;

    REFUSED(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 0}, &cq));
    REFUSED(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = UINT32_MAX}, &cq));
    REFUSED(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 4, .unit = 2}, &cq));
    REFUSED(
        vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 4, .channel = other->channel}, &cq));
    REFUSED(vb_cq_resize(e->cq, 0));
    REFUSED(vb_cq_resize(e->cq, UINT32_MAX));
    REFUSED(vb_cq_moderate(e->cq, 4, 0)); // events could wait for ever
}

static void try_shared_queues(const struct duo_end *e, const struct duo_end *other)
{
    struct vb_srq *srq;

    REFUSED(vb_srq_create(e->pd, &(struct vb_srq_opts){.depth = 0}, &srq));
    REFUSED(vb_srq_create(e->pd, &(struct vb_srq_opts){.depth = UINT32_MAX}, &srq));
    REFUSED(vb_srq_create(e->pd, &(struct vb_srq_opts){.depth = 4, .sge = 17}, &srq));
    REFUSED(vb_srq_create(e->pd, &(struct vb_srq_opts){.depth = 4, .xrcd = 9, .cq = e->cq}, &srq));
    REFUSED(vb_srq_create(e->pd, &(struct vb_srq_opts){.depth = 4, .cq = other->cq}, &srq));
}

static void try_queue_pairs(const struct duo_end *e, const struct duo_end *other)
{
    const struct vb_qp_opts good = {
        .send_cq = e->cq, .recv_cq = e->cq, .send_depth = 4, .recv_depth = 4};
    struct vb_qp_opts bad[12];
    struct vb_qp *qp;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        bad[i] = good;
    bad[0].service = 77;
    bad[1].send_cq = NULL;
    bad[2].recv_cq = NULL;
    bad[3].send_cq = other->cq;
    bad[4].send_depth = UINT32_MAX;
    bad[5].recv_depth = UINT32_MAX;
    bad[6].send_sge = 17;
    bad[7].recv_sge = 17;
    bad[8].inline_bytes = 1 << 20;
    bad[9].xrcd = 1; // not for RC
    bad[10] =
        (struct vb_qp_opts){.service = VB_SERVICE_XRC_RECV, .send_cq = e->cq, .recv_cq = e->cq};
    bad[11].send_depth = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int err = vb_qp_create(e->pd, &bad[i], &qp);
        if (err != -EINVAL)
            fail_msg("queue pair %zu: %d", i, err);
    }
}

static void try_chains(const struct duo_end *e, const struct duo_end *other)
{
    const struct vb_qp_opts good = {.send_cq = e->cq,
                                    .recv_cq = e->cq,
                                    .send_depth = 4,
                                    .recv_depth = 4,
                                    .chain = VB_QP_CROSS_CHANNEL};
    struct vb_program *foreign;
    struct vb_cq *lossy;
    struct vb_srq *srq;
    struct vb_qp_opts bad[11];
    struct vb_qp *qp;

    assert_int_equal(vb_program_create(other->pd, &(struct vb_program_opts){0}, &foreign), 0);
    assert_int_equal(
        vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 4, .ignore_overrun = true}, &lossy),
        0);
    assert_int_equal(vb_srq_create(e->pd, &(struct vb_srq_opts){.depth = 4}, &srq), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        bad[i] = good;
    bad[0].chain = VB_QP_CHAIN_ALL + 1;
    bad[1].service = VB_SERVICE_UC;
    bad[2].chain = 0;
    bad[2].fetch_depth = 4;
    bad[3].chain = 0;
    bad[3].rate = 4;
    bad[4].burst = 4; // of what rate?
    bad[5].program = foreign;
    bad[6].chain = VB_QP_MANAGED_RECV;
    bad[6].recv_depth = 0;
    bad[7].chain = VB_QP_MANAGED_RECV;
    bad[7].recv_depth = 0;
    bad[7].srq = srq;
    bad[8].recv_depth = 0;
    bad[8].srq = srq;
    bad[8].recv_cq = lossy; // would lose what came from the shared queue
    bad[9].service = VB_SERVICE_UD;
    bad[9].chain = VB_QP_NO_WQE_CHECKS;
    bad[10].send_depth = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int err = vb_qp_create(e->pd, &bad[i], &qp);
        if (err != -EINVAL)
            fail_msg("chain %zu: %d", i, err);
    }
    REFUSED(vb_program_create(e->pd, &(struct vb_program_opts){.audit = other->cq}, &foreign));
}

static void try_rings(struct vb_qp *ordinary, const struct duo_end *e)
{
    struct vb_qp_rings r;
    struct vb_mr *mr;
    struct vb_qp *deaf;
    const struct vb_qp_opts opts = {.send_cq = e->cq, .recv_cq = e->cq, .send_depth = 4};

    assert_int_equal(vb_qp_rings(ordinary, &r), 0);
    REFUSED(vb_qp_connect_self(ordinary, 0));
    REFUSED(vb_qp_open(ordinary, false, r.send_count + r.send_blocks + 1));
    REFUSED(vb_qp_open(ordinary, true, r.recv_count + r.recv_entries + 1));
    REFUSED(vb_qp_open(ordinary, false, UINT64_MAX));
    REFUSED(vb_qp_code(ordinary, VB_RING_SEND, VB_RIGHT_ALL + 1, &mr));
    REFUSED(vb_qp_code(ordinary, VB_RING_SEND, VB_RIGHT_BIND, &mr));
    REFUSED(vb_qp_code(ordinary, VB_RING_SEND, VB_RIGHT_REMOTE_WRITE, &mr));
    REFUSED(vb_qp_code(ordinary, (enum vb_ring)7, 0, &mr));
    assert_int_equal(vb_qp_create(e->pd, &opts, &deaf), 0);
    REFUSED(vb_qp_code(deaf, VB_RING_RECV, 0, &mr));
    REFUSED(vb_qp_open(deaf, true, 1));
    assert_int_equal(vb_post_recv(deaf, &(struct vb_recv_wr){0}, 1), 0);
    assert_int_equal(vb_qp_destroy(deaf), 0);
}

static void try_traces(const struct duo_end *e)
{
    int fd = open("/dev/null", O_WRONLY);

    assert_true(fd >= 0);
    REFUSED(vb_nic_trace_dump(e->nic, fd));
    REFUSED(vb_nic_trace(e->nic, 100));
    assert_int_equal(vb_nic_trace(e->nic, 4096), 0);
    assert_int_equal(vb_nic_trace_dump(e->nic, -1), -EBADF);
    assert_int_equal(vb_nic_trace_dump(e->nic, fd), 0);
    close(fd);
}

// ---- connections and requests

static void try_connections(struct duo *d)
{
    struct vb_qp *here = duo_make_qp(&d->end[0], (struct vb_qp_opts){0});
    struct vb_qp *there = duo_make_qp(&d->end[1], (struct vb_qp_opts){0});
    const struct vb_qp_peer good = duo_peer(d, 0, there);
    struct vb_qp_peer bad[10];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        bad[i] = good;
    bad[0].mtu = 1000;
    bad[1].mtu = 8192;
    bad[2].qpn = 1 << 24;
    bad[3].psn = 1 << 24;
    bad[4].our_psn = 1 << 24;
    bad[5].timeout = 32;
    bad[6].retries = 8;
    bad[7].rnr_timer = 32;
    bad[8].reads = 17;
    bad[9].rights = 1u << 30;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int err = vb_qp_connect(here, &bad[i]);
        if (err != -EINVAL)
            fail_msg("peer %zu: %d", i, err);
    }
    REFUSED(vb_qp_fail(here));
    REFUSED(vb_qp_drain(here));
    REFUSED(vb_qp_resume(here));
    duo_join(d, here, there);
    assert_string_equal(vb_qp_state_text(here), "RTS");
}

static void try_requests(struct duo *d, struct vb_qp *qp)
{
    struct vb_sge sge[17] = {{(uintptr_t)d->end[0].memory, 8, vb_mr_key(d->end[0].mr)}};
    const struct vb_send_wr good = duo_wr(d, VB_WR_WRITE, 1);
    struct vb_send_wr bad[13];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bad[i] = good;
        bad[i].sge = sge;
        bad[i].num_sge = 1;
    }
    bad[0].opcode = VB_WR_OPCODES;
    bad[1].opcode = (enum vb_wr_opcode) - 1;
    bad[2].num_sge = 17;
    bad[3].num_sge = UINT32_MAX;
    bad[4].flags = 1u << 20;
    bad[5].opcode = VB_WR_CAS;
    bad[5].num_sge = 0;
    bad[6].opcode = VB_WR_NOP; // takes no data
    bad[7].opcode = VB_WR_MASKED_CAS;
    bad[7].atomic.arg_bytes = 5;
    bad[8].opcode = VB_WR_READ;
    bad[8].flags = VB_WR_INLINE;
    bad[9].opcode = VB_WR_WAIT; // cross-channel queue pairs only
    bad[9].num_sge = 0;
    bad[10].opcode = VB_WR_SEND_EN;
    bad[10].num_sge = 0;
    bad[11].opcode = VB_WR_RECV_EN;
    bad[11].num_sge = 0;
    bad[12].calc = VB_WR_CALC_ADD;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int err = vb_post_send(qp, &bad[i], 1);
        if (err != -EINVAL)
            fail_msg("request %zu: %d", i, err);
    }
    REFUSED(vb_post_recv(qp, &(struct vb_recv_wr){.sge = sge, .num_sge = 17}, 1));
    assert_int_equal(vb_post_send(qp, bad, 0), 0);
    // One that is malformed behind one that is good: the good one is done.
    const struct vb_send_wr two[2] = {good, bad[0]};
    assert_int_equal(vb_post_send(qp, two, 2), 1);
    duo_expect(d->end[0].cq, good.wr_id, VB_WC_OK);
}

static void test_calls(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    uint64_t value;

    duo_open(&d, *state);
    try_memory(&d.end[0]);
    try_completion_queues(&d.end[0], &d.end[1]);
    try_shared_queues(&d.end[0], &d.end[1]);
    try_queue_pairs(&d.end[0], &d.end[1]);
    try_chains(&d.end[0], &d.end[1]);
    try_traces(&d.end[0]);
    assert_int_equal(vb_nic_counter(d.end[0].nic, "no_such", &value), -ENOENT);
    assert_null(vb_nic_counter_name(UINT32_MAX));
    REFUSED(vb_nic_set_faults(d.end[0].nic, "drop", NULL));
    try_connections(&d);
    duo_connect(&d, VB_SERVICE_RC, qp);
    try_requests(&d, qp[0]);
    try_rings(qp[0], &d.end[0]);
    assert_int_equal(vb_poll_cq(d.end[0].cq, NULL, 0), 0);
    assert_int_equal(vb_poll_cq(d.end[0].cq, NULL, -1), 0);
    assert_string_equal(vb_wc_status_text((enum vb_wc_status)1000), "unknown status");
    assert_non_null(vb_nic_event_text((enum vb_nic_event_kind)1000));
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_and_environment),
        DUO_PORTS(test_calls),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
