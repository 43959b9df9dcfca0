// SPDX-License-Identifier: Apache-2.0
// Services whose process died at a certain moment: between two stores, or two calls.
#include "duo.h"
#include "service_kit.h"

#include "host/attach.h"

#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

// Published, but the bell was not rung.
static void test_before_the_bell(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    static struct vb_doorbells nowhere;
    struct service_app a;

    (void)state;
    service_make(&a, hull, false);
    hull_kit_await_sleep(hull);
    a.qp[0]->driver.doorbells = &nowhere;
    const struct vb_sge sge = {(uintptr_t)a.memory, 64, vb_mr_key(a.mr)};
    const struct vb_send_wr wr = service_request(&a, &sge, 21);
    assert_int_equal(vb_driver_post_send(&a.qp[0]->driver, &wr, 1), 1);
    service_leave(&a, hull);
    service_find(&a, hull);
    duo_expect(a.cq, 21, VB_WC_OK);
    service_end(&a, hull);
}

// Written into the ring, but not published: it was not posted.
static void test_before_the_record(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;
    uint64_t wr_id;

    (void)state;
    service_make(&a, hull, false);
    service_read(&a, a.qp[0], 1);
    duo_expect(a.cq, 1, VB_WC_OK);
    struct vb_driver_qp *d = &a.qp[0]->driver;
    memset(d->sq.ring + (d->sq.pi & (d->sq.blocks - 1)) * VB_WQEBB_BYTES, 0xee, VB_WQEBB_BYTES);
    d->sq.wr_id[d->sq.pi & (d->sq.blocks - 1)] = 99;
    d->sq.pi++;
    service_change(&a, hull);
    assert_int_equal(vb_service_pending(a.qp[0], false, 0, &wr_id), -ENOENT);
    service_read(&a, a.qp[0], 2);
    duo_expect(a.cq, 2, VB_WC_OK);
    service_end(&a, hull);
}

// The device has forgotten the queue pair, and the completions of its last life are still there.
static void test_in_the_middle_of_a_reset(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;
    struct vb_wc wc;

    (void)state;
    service_make(&a, hull, false);
    service_recv(a.qp[0], 1);
    for (uint64_t n = 1; n <= 4; n++)
        service_read(&a, a.qp[n % 2], n);
    service_await(a.cq, 4);
    a.qp[0]->driver.deed->resetting = 1;
    const struct vb_qpc_mods reset = {.state = VB_QPS_RESET};
    assert_int_equal(vb_attach_qp_modify(a.nic->attach, vb_qp_num(a.qp[0]), &reset), 0);
    service_change(&a, hull);
    assert_int_equal(a.qp[0]->driver.deed->resetting, 0);
    duo_expect(a.cq, 1, VB_WC_OK); // the other's
    duo_expect(a.cq, 3, VB_WC_OK);
    assert_int_equal(vb_poll_cq(a.cq, &wc, 1), 0);
    assert_int_equal(vb_qp_change(a.qp[1], &(struct vb_qp_change){.to = VB_QP_RESET}), 0);
    service_join(&a);
    service_read(&a, a.qp[0], 6);
    duo_expect(a.cq, 6, VB_WC_OK);
    service_end(&a, hull);
}

// Before the device heard of it, nothing has happened.
static void test_before_a_reset(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;

    (void)state;
    service_make(&a, hull, false);
    service_read(&a, a.qp[0], 1);
    service_await(a.cq, 1);
    a.qp[0]->driver.deed->resetting = 1;
    service_change(&a, hull);
    assert_int_equal(a.qp[0]->driver.deed->resetting, 0);
    duo_expect(a.cq, 1, VB_WC_OK);
    service_end(&a, hull);
}

// The queue pair is destroyed, and its completions are nobody's; its shared receives are free.
static void test_in_the_middle_of_destroying(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_recv_wr recv = {.wr_id = 5};
    struct service_app a;
    struct vb_wc wc;
    uint32_t room = 0;

    (void)state;
    service_make(&a, hull, true);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(vb_post_srq(a.srq, &recv, 1), 1);
    service_send(a.qp[0], 1);
    service_send(a.qp[0], 2);
    service_read(&a, a.qp[0], 3);
    service_await(a.cq, 3);
    assert_int_equal(vb_attach_qp_destroy(a.nic->attach, vb_qp_num(a.qp[1])), 0);
    service_leave(&a, hull);
    a.nic = service_open(hull, "test");
    assert_int_equal(vb_service_cq(a.nic, SERVICE_TAG, 0, &a.cq), 0);
    assert_int_equal(vb_service_srq(a.nic, SERVICE_TAG, 0, &a.srq), 0);
    assert_int_equal(vb_service_qp(a.nic, SERVICE_TAG, 1, &a.qp[1]), -ENOENT);
    duo_expect(a.cq, 3, VB_WC_OK);
    assert_int_equal(vb_poll_cq(a.cq, &wc, 1), 0);
    while (vb_post_srq(a.srq, &recv, 1) == 1)
        room++;
    assert_int_equal(room, SERVICE_SRQ_DEPTH - 2); // two are still posted
    service_end(&a, hull);
}

// A shared receive that was polled, and not given back.
static void test_before_giving_back(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_recv_wr recv = {.wr_id = 5};
    struct service_app a;
    struct vb_wc wc;
    uint32_t room = 0;

    (void)state;
    service_make(&a, hull, true);
    while (vb_post_srq(a.srq, &recv, 1) == 1)
        ;
    service_send(a.qp[0], 1);
    service_await(a.cq, 1);
    struct vb_driver_cq *cq = &a.cq->driver;
    cq->dbrec[VB_DBREC_CQ_CI] = htobe32((uint32_t)cq->ci + 1); // as the driver does first
    service_change(&a, hull);
    assert_int_equal(vb_poll_cq(a.cq, &wc, 1), 0);
    while (vb_post_srq(a.srq, &recv, 1) == 1)
        room++;
    assert_int_equal(room, 1);
    service_end(&a, hull);
}

struct look {
    const struct vb_driver_cq *cq;
    struct vb_driver_qp *qp;
    uint32_t published;
};

static struct vb_driver_qp *look_at_record(void *ctx, uint32_t qpn)
{
    struct look *l = ctx;

    (void)qpn;
    l->published = be32toh(l->cq->dbrec[VB_DBREC_CQ_CI]);
    return l->qp;
}

// An entry is passed in the record before its request's place can be used again by another thread:
// who died in between would leave a completion with another's wr_id.
static void test_records_go_first(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;
    struct vb_wc wc[2];

    (void)state;
    service_make(&a, hull, false);
    service_read(&a, a.qp[0], 1);
    service_read(&a, a.qp[0], 2);
    service_await(a.cq, 2);
    struct look l = {.cq = &a.cq->driver, .qp = &a.qp[0]->driver};
    assert_int_equal(vb_driver_poll(&a.cq->driver, look_at_record, &l, wc, 1), 1);
    assert_int_equal(l.published, 1);
    assert_int_equal(vb_driver_poll(&a.cq->driver, look_at_record, &l, wc, 2), 1);
    assert_int_equal(l.published, 2);
    service_end(&a, hull);
}

// One who asks a hull that the test turns by hand.
static int ask(struct vb_hull *hull, int socket, const struct vb_hull_request *r)
{
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];

    assert_int_equal(vb_contract_send(socket, r, sizeof *r, 0, NULL, 0), 0);
    vb_hull_turn(hull);
    assert_int_equal(vb_contract_receive(socket, &reply, sizeof reply, MSG_DONTWAIT, fds),
                     sizeof reply);
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return reply.error;
}

static int greet(struct vb_hull *hull)
{
    struct vb_hull_request hello = hull_kit_hello();
    int socket = hull_kit_connect(hull);

    hello.hello.features = VB_HULL_SERVICES;
    vb_hull_turn(hull);
    assert_int_equal(ask(hull, socket, &hello), 0);
    return socket;
}

// The next one asks when the last one is dead, and the hull has not heard of that yet.
static void test_before_the_end_is_heard(void **state)
{
    static struct vb_hull_config config;
    const char text[] = "[nic still]\naddress = 127.0.0.1\nport = shm\n";
    const struct vb_hull_request name = {.op = VB_HULL_SERVICE, .memory = {.name = "test"}};
    const struct vb_hull_request pd = {.op = VB_HULL_PD_CREATE};
    char error[VB_ERROR_TEXT];
    struct vb_hull_reply reply;
    struct vb_hull *hull;
    int fds[VB_HULL_FDS];

    (void)state;
    assert_int_equal(vb_hull_config_parse(text, sizeof text - 1, &config, error), 0);
    config.nic[0].no_thread = true;
    assert_int_equal(vb_hull_open(&config, 0, &hull, error), 0);
    int first = greet(hull), second = greet(hull), third = greet(hull);
    assert_int_equal(ask(hull, first, &name), 0);
    assert_int_equal(ask(hull, first, &pd), 0);
    assert_int_equal(ask(hull, third, &name), -EBUSY);
    close(third);
    assert_int_equal(vb_contract_send(second, &name, sizeof name, 0, NULL, 0), 0);
    close(first); // behind the other's request
    vb_hull_turn(hull);
    assert_int_equal(vb_contract_receive(second, &reply, sizeof reply, MSG_DONTWAIT, fds),
                     sizeof reply);
    assert_int_equal(reply.error, 0);
    assert_int_equal(reply.session.lives, 1);
    close(fds[0]);
    close(second);
    vb_hull_turn(hull);
    vb_hull_close(hull);
}

// A message is coming in, slowly: its receive is neither free nor done.
static void begin_message(struct service_app *a, bool shared)
{
    const uint32_t half = SERVICE_BYTES / 2;
    const struct vb_sge from = {(uintptr_t)a->memory, half, vb_mr_key(a->mr)};
    const struct vb_sge to = {(uintptr_t)a->memory + half, half, vb_mr_key(a->mr)};
    struct vb_recv_wr recv = {.wr_id = 100, .sge = &to, .num_sge = 1};
    const struct vb_send_wr wr = {.opcode = VB_WR_SEND, .sge = &from, .num_sge = 1};
    uint64_t came = 0;

    while ((shared ? vb_post_srq(a->srq, &recv, 1) : vb_post_recv(a->qp[1], &recv, 1)) == 1)
        recv.wr_id++;
    assert_int_equal(vb_qp_limit(a->qp[0], 200, 1024), 0);
    assert_int_equal(vb_post_send(a->qp[0], &wr, 1), 1);
    while (came < 2)
        assert_int_equal(vb_qp_counter(a->qp[1], "rcvd_pkts", &came), 0);
}

static void meet_in_the_middle(bool shared)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    const struct vb_recv_wr recv = {.wr_id = 99};
    struct service_app a;

    service_make(&a, hull, shared);
    begin_message(&a, shared);
    service_change(&a, hull);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(vb_cq_count(a.cq), 0); // it is still coming
        assert_int_equal(shared ? vb_post_srq(a.srq, &recv, 1) : vb_post_recv(a.qp[1], &recv, 1),
                         0);
        service_change(&a, hull);
    }
    vb_qp_limit(a.qp[0], 0, 0);
    struct vb_wc wc = duo_wait(a.cq);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.wr_id, 100);
    assert_int_equal(wc.byte_len, SERVICE_BYTES / 2);
    assert_int_equal(shared ? vb_post_srq(a.srq, &recv, 1) : vb_post_recv(a.qp[1], &recv, 1), 1);
    assert_int_equal(shared ? vb_post_srq(a.srq, &recv, 1) : vb_post_recv(a.qp[1], &recv, 1), 0);
    service_end(&a, hull);
}

static void test_in_the_middle_of_a_message(void **state)
{
    (void)state;
    meet_in_the_middle(false);
    meet_in_the_middle(true);
}

// A managed queue's record says what is open; how much was written is kept beside it.
static void test_managed_queues(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_qp_rings before, after;
    struct vb_mr *code, *found;
    struct vb_qp *qp;
    struct service_app a;

    (void)state;
    service_make(&a, hull, false);
    assert_int_equal(vb_service_tag(a.nic, 3), 0);
    const struct vb_qp_opts opts = {.send_cq = a.cq,
                                    .recv_cq = a.cq,
                                    .send_depth = SERVICE_DEPTH,
                                    .chain = VB_QP_CROSS_CHANNEL | VB_QP_MANAGED_SEND};
    assert_int_equal(vb_qp_create(a.pd, &opts, &qp), 0);
    assert_int_equal(vb_qp_connect_self(qp, DUO_REMOTE & ~VB_RIGHT_FLUSH_GLOBAL), 0);
    assert_int_equal(vb_qp_code(qp, VB_RING_SEND, VB_RIGHT_REMOTE_READ, &code), 0);
    uint32_t key = vb_mr_key(code);
    for (uint64_t n = 1; n <= 3; n++)
        service_read(&a, qp, n);
    assert_int_equal(vb_qp_rings(qp, &before), 0);
    service_change(&a, hull);
    assert_int_equal(vb_service_qp(a.nic, 3, 0, &qp), 0);
    assert_int_equal(vb_service_mr(a.nic, 3, 0, &found), 0);
    assert_int_equal(vb_mr_key(found), key);
    assert_true(found->code); // it ends with its queue pair
    assert_int_equal(vb_qp_rings(qp, &after), 0);
    assert_int_equal(after.send_count, before.send_count);
    assert_int_equal(vb_qp_open(qp, false, 2), 0);
    duo_expect(a.cq, 1, VB_WC_OK);
    duo_expect(a.cq, 2, VB_WC_OK);
    service_change(&a, hull);
    assert_int_equal(vb_service_qp(a.nic, 3, 0, &qp), 0);
    assert_int_equal(vb_qp_open(qp, false, 3), 0);
    duo_expect(a.cq, 3, VB_WC_OK);
    assert_int_equal(vb_qp_destroy(qp), 0);
    assert_int_equal(vb_service_mr(a.nic, 3, 0, &found), -ENOENT); // the hull knows it no more
    service_end(&a, hull);
}

// A program with a limit and an auditor, and who belongs to it.
static void test_programs(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_program *program;
    struct service_app a;
    struct vb_cq *audit;
    struct vb_qp *qp;
    uint64_t executed;
    bool stopped;

    (void)state;
    service_make(&a, hull, false);
    assert_int_equal(vb_service_tag(a.nic, 3), 0);
    assert_int_equal(vb_cq_create(a.nic, &(struct vb_cq_opts){.entries = 64}, &audit), 0);
    assert_int_equal(vb_program_create(a.pd, &(struct vb_program_opts){.audit = audit}, &program),
                     0);
    const struct vb_qp_opts opts = {.send_cq = a.cq,
                                    .recv_cq = a.cq,
                                    .send_depth = SERVICE_DEPTH,
                                    .chain = VB_QP_CROSS_CHANNEL,
                                    .program = program};
    assert_int_equal(vb_qp_create(a.pd, &opts, &qp), 0);
    assert_int_equal(vb_qp_connect_self(qp, DUO_REMOTE & ~(uint32_t)VB_RIGHT_FLUSH_GLOBAL), 0);
    service_read(&a, qp, 1);
    duo_expect(a.cq, 1, VB_WC_OK);
    service_change(&a, hull);
    assert_int_equal(vb_service_program(a.nic, 3, 0, &program), 0);
    assert_int_equal(vb_service_program(a.nic, 3, 1, &program), -ENOENT);
    assert_int_equal(vb_service_qp(a.nic, 3, 0, &qp), 0);
    assert_int_equal(vb_service_cq(a.nic, 3, 0, &audit), 0);
    assert_int_equal(vb_program_query(program, &executed, &stopped), 0);
    assert_int_equal(executed, 1);
    struct vb_wc wc = duo_wait(audit);
    assert_int_equal(wc.opcode, VB_WC_READ); // as an auditor's entries are read
    assert_int_equal(vb_program_destroy(program), -EBUSY);
    assert_int_equal(vb_program_stop(program), 0);
    assert_int_equal(vb_qp_destroy(qp), 0);
    assert_int_equal(vb_program_destroy(program), 0);
    service_end(&a, hull);
}

// Room for rings is known again: what is made later does not lie on what was there.
static void test_rings_do_not_overlap(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;

    (void)state;
    service_make(&a, hull, false);
    for (unsigned round = 0; round < 5; round++) {
        service_change(&a, hull);
        assert_int_equal(vb_service_tag(a.nic, SERVICE_TAG + 1 + round), 0);
        const struct vb_cq_opts opts = {.entries = 256};
        struct vb_cq *cq;
        assert_int_equal(vb_cq_create(a.nic, &opts, &cq), 0);
        memset(cq->driver.ring, 0xff, 256 * VB_CQE_BYTES);
        for (unsigned i = 0; i < 2; i++) {
            service_read(&a, a.qp[i], i);
            duo_expect(a.cq, i, VB_WC_OK);
        }
        if (round % 2)
            assert_int_equal(vb_cq_destroy(cq), 0);
    }
    service_end(&a, hull);
}

// Whatever the dead wrote over its own notes: the service can be had, and ended.
static void test_damaged_notes(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_wc wc[8];
    struct service_app a;

    (void)state;
    service_make(&a, hull, true);
    service_read(&a, a.qp[0], 1);
    service_await(a.cq, 1);
    memset(a.qp[0]->driver.deed, 0xff, sizeof *a.qp[0]->driver.deed);
    memset(a.qp[1]->driver.deed, 0, sizeof *a.qp[1]->driver.deed);
    memset(a.srq->driver.ring, 0xff, (size_t)a.srq->driver.entries * a.srq->driver.stride);
    a.srq->driver.dbrec[0] = 0xffffffff;
    a.qp[0]->driver.dbrec[VB_DBREC_RQ] = 0xffffffff;
    a.cq->driver.dbrec[VB_DBREC_CQ_CI] = 0x12345678;
    memset(a.qp[0]->driver.sq.size, 0, SERVICE_DEPTH);
    service_change(&a, hull);
    vb_poll_cq(a.cq, wc, 8);
    vb_post_srq(a.srq, &(struct vb_recv_wr){0}, 1);
    service_read(&a, a.qp[0], 2);
    service_end(&a, hull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_the_bell),
        cmocka_unit_test(test_before_the_record),
        cmocka_unit_test(test_in_the_middle_of_a_reset),
        cmocka_unit_test(test_before_a_reset),
        cmocka_unit_test(test_in_the_middle_of_destroying),
        cmocka_unit_test(test_before_giving_back),
        cmocka_unit_test(test_records_go_first),
        cmocka_unit_test(test_before_the_end_is_heard),
        cmocka_unit_test(test_in_the_middle_of_a_message),
        cmocka_unit_test(test_managed_queues),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_rings_do_not_overlap),
        cmocka_unit_test(test_damaged_notes),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
