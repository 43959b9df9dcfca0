// SPDX-License-Identifier: Apache-2.0
// Connection managers of applications that share a hull, and of a NIC beside it on the same
// address: requests come to who has the port, answers to who asked, and nobody speaks for another.
#include "duo.h"
#include "host/cm.h"
#include "hull_kit.h"
#include "pair.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    ENDS = 3, // two at the hull, and one beside it
    NAMED = 7400,
    PATIENCE_MS = DUO_PATIENCE_S * 1000,
    NEVER = 26, // minutes: what is lost is repeated when nobody waits any more
    QUIET_MS = 100,
};

struct end {
    struct vb_nic *nic;
    struct vb_host_cm *cm;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_qp *qp;
    uint16_t port;
};

struct place {
    struct vb_hull *hull;
    struct end end[ENDS];
};

static void furnish(struct end *e, unsigned number)
{
    uint64_t now_ns;

    assert_int_equal(vb_host_cm_open(e->nic, &(struct vb_cm_opts){.timeout = NEVER}, &e->cm), 0);
    e->port = (uint16_t)(NAMED + number);
    assert_int_equal(vb_host_cm_bind(e->cm, VB_CMA_TCP, &e->port), 0);
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    int err = vb_cm_listen(cm, vb_cma_service_id(VB_CMA_TCP, e->port), 0, 0, e);
    vb_host_cm_leave(e->cm);
    assert_int_equal(err, 0);
    assert_int_equal(vb_pd_alloc(e->nic, &e->pd), 0);
    assert_int_equal(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 16}, &e->cq), 0);
    const struct duo_end d = {.nic = e->nic, .pd = e->pd, .cq = e->cq};
    e->qp = duo_make_qp(&d, (struct vb_qp_opts){0});
}

static void open_place(struct place *p)
{
    char address[16], why[VB_ERROR_TEXT];

    memset(p, 0, sizeof *p);
    p->hull = hull_kit_open(0, "udp", NULL);
    pair_address(0, address);
    const struct vb_nic_opts opts = {
        .address = address, .port = "udp", .faults = "off", .error_text = why};
    for (unsigned i = 0; i < ENDS - 1; i++)
        p->end[i].nic = hull_kit_attach(p->hull);
    if (vb_nic_open(&opts, &p->end[ENDS - 1].nic) != 0)
        fail_msg("%s", why);
    for (unsigned i = 0; i < ENDS; i++)
        furnish(&p->end[i], i);
}

static void close_place(struct place *p)
{
    for (unsigned i = 0; i < ENDS; i++) {
        vb_host_cm_close(p->end[i].cm);
        vb_nic_close(p->end[i].nic);
    }
    struct vb_hull_counts counts = hull_kit_wait(p->hull, 0);
    assert_int_equal(counts.objects, 0);
    vb_hull_close(p->hull);
}

static struct vb_cm_event wait_for(struct end *e, enum vb_cm_event_kind kind, int ms)
{
    struct pollfd fd = {vb_host_cm_event_fd(e->cm), POLLIN, 0};
    struct vb_cm_event event = {0};

    assert_int_equal(poll(&fd, 1, ms), 1);
    assert_true(vb_host_cm_take_event(e->cm, &event));
    assert_string_equal(vb_cm_event_text(event.kind), vb_cm_event_text(kind));
    return event;
}

static bool is_quiet(const struct end *e)
{
    struct pollfd fd = {vb_host_cm_event_fd(e->cm), POLLIN, 0};
    return poll(&fd, 1, QUIET_MS) == 0;
}

static uint32_t ask(struct end *e, uint16_t port, uint32_t qpn)
{
    struct vb_cm_request request = {
        .service_id = vb_cma_service_id(VB_CMA_TCP, port), .qpn = qpn, .mtu = 3};
    uint64_t now_ns;
    uint32_t id = 0;

    vb_nic_gid(e->nic, request.peer.b);
    struct vb_cm *cm = vb_host_cm_enter(e->cm, &now_ns);
    int err = vb_cm_connect(cm, now_ns, &request, &id);
    vb_host_cm_leave(e->cm);
    assert_int_equal(err, 0);
    return id;
}

static void connect_and_part(struct end *from, struct end *to)
{
    const struct vb_cm_answer yes = {.qpn = vb_qp_num(to->qp)};
    uint64_t now_ns;
    uint32_t id = ask(from, to->port, vb_qp_num(from->qp));
    struct vb_cm_event e = wait_for(to, VB_CM_EVENT_REQUEST, PATIENCE_MS);

    struct vb_cm *cm = vb_host_cm_enter(to->cm, &now_ns);
    int err = vb_cm_accept(cm, now_ns, e.id, &yes);
    vb_host_cm_leave(to->cm);
    assert_int_equal(err, 0);
    assert_int_equal(wait_for(from, VB_CM_EVENT_REPLY, PATIENCE_MS).id, id);
    cm = vb_host_cm_enter(from->cm, &now_ns);
    err = vb_cm_confirm(cm, now_ns, id, NULL);
    vb_host_cm_leave(from->cm);
    assert_int_equal(err, 0);
    assert_int_equal(wait_for(to, VB_CM_EVENT_ESTABLISHED, PATIENCE_MS).id, e.id);
    cm = vb_host_cm_enter(to->cm, &now_ns);
    err = vb_cm_disconnect(cm, now_ns, e.id, NULL);
    vb_host_cm_leave(to->cm);
    assert_int_equal(err, 0);
    assert_true(wait_for(from, VB_CM_EVENT_DISCONNECTED, PATIENCE_MS).by_peer);
    wait_for(to, VB_CM_EVENT_DISCONNECTED, PATIENCE_MS);
    wait_for(from, VB_CM_EVENT_GONE, PATIENCE_MS);
    wait_for(to, VB_CM_EVENT_GONE, PATIENCE_MS);
}

static void test_each_with_each(void **state)
{
    struct place p;

    (void)state;
    open_place(&p);
    for (unsigned from = 0; from < ENDS; from++)
        for (unsigned to = 0; to < ENDS; to++)
            if (from != to)
                connect_and_part(&p.end[from], &p.end[to]);
    for (unsigned i = 0; i < ENDS; i++) { // and with nobody
        uint32_t id = ask(&p.end[i], 9, vb_qp_num(p.end[i].qp));
        struct vb_cm_event e = wait_for(&p.end[i], VB_CM_EVENT_REJECTED, PATIENCE_MS);
        assert_int_equal(e.id, id);
        assert_int_equal(e.reason, VB_CM_INVALID_SERVICE);
        wait_for(&p.end[i], VB_CM_EVENT_GONE, PATIENCE_MS);
    }
    close_place(&p);
}

static void test_a_port_is_one_applications(void **state)
{
    struct place p;
    uint16_t port;

    (void)state;
    open_place(&p);
    for (unsigned i = 0; i < ENDS; i++)
        for (unsigned of = 0; of < ENDS; of++) {
            port = p.end[of].port;
            assert_int_equal(vb_host_cm_bind(p.end[i].cm, VB_CMA_TCP, &port),
                             i == of ? 0 : -EADDRINUSE);
        }
    // One that goes, in whatever way, leaves it to others.
    vb_host_cm_close(p.end[0].cm);
    port = p.end[0].port;
    assert_int_equal(vb_host_cm_bind(p.end[1].cm, VB_CMA_TCP, &port), 0);
    assert_int_equal(vb_host_cm_open(p.end[0].nic, NULL, &p.end[0].cm), 0);
    close_place(&p);
}

// A request for another application's queue pair is not heard, and one for its own is.
static void test_nobody_speaks_of_anothers_queue_pair(void **state)
{
    struct place p;

    (void)state;
    open_place(&p);
    ask(&p.end[0], p.end[2].port, vb_qp_num(p.end[1].qp));
    assert_true(is_quiet(&p.end[2]));
    ask(&p.end[0], p.end[1].port, vb_qp_num(p.end[2].qp));
    assert_true(is_quiet(&p.end[1]));
    ask(&p.end[0], p.end[2].port, vb_qp_num(p.end[0].qp));
    wait_for(&p.end[2], VB_CM_EVENT_REQUEST, PATIENCE_MS);
    close_place(&p);
}

// A management queue pair of an application's own making.
struct speaker {
    struct duo_end e;
    struct vb_qp *qp;
};

static void open_speaker(struct speaker *s, struct vb_nic *nic)
{
    void *memory = NULL;

    *s = (struct speaker){.e = {.nic = nic}};
    assert_int_equal(vb_hull_alloc(nic, NULL, DUO_BYTES, &memory), 0);
    s->e.memory = memory;
    assert_int_equal(vb_pd_alloc(nic, &s->e.pd), 0);
    assert_int_equal(vb_mr_reg(s->e.pd, memory, DUO_BYTES, DUO_RIGHTS, &s->e.mr), 0);
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 16}, &s->e.cq), 0);
    s->qp = duo_make_qp(&s->e, (struct vb_qp_opts){.service = VB_SERVICE_UD, .management = true});
    assert_int_equal(vb_qp_connect(s->qp, &(struct vb_qp_peer){.qkey = VB_GSI_QKEY}), 0);
}

static void say(struct speaker *s, const struct vb_cm_message *m)
{
    const struct vb_sge sge = {(uintptr_t)s->e.memory, VB_MAD_BYTES, vb_mr_key(s->e.mr)};
    struct vb_send_wr wr = {.sge = &sge,
                            .num_sge = 1,
                            .opcode = VB_WR_SEND,
                            .flags = VB_WR_SIGNALED,
                            .to = {.qpn = VB_GSI_QPN, .qkey = VB_GSI_QKEY}};

    vb_cm_encode(m, s->e.memory);
    vb_nic_gid(s->e.nic, wr.to.gid);
    assert_int_equal(vb_post_send(s->qp, &wr, 1), 1);
    assert_int_equal(duo_wait(s->e.cq).status, VB_WC_OK);
}

// It knows both ids of a connection, and still cannot end it.
static void test_nobody_speaks_by_anothers_id(void **state)
{
    struct place p;
    struct speaker liar;
    uint64_t now_ns;

    (void)state;
    open_place(&p);
    struct end *from = &p.end[0], *to = &p.end[2];
    const struct vb_cm_answer yes = {.qpn = vb_qp_num(to->qp)};
    uint32_t id = ask(from, to->port, vb_qp_num(from->qp));
    struct vb_cm_event e = wait_for(to, VB_CM_EVENT_REQUEST, PATIENCE_MS);
    struct vb_cm *cm = vb_host_cm_enter(to->cm, &now_ns);
    assert_int_equal(vb_cm_accept(cm, now_ns, e.id, &yes), 0);
    vb_host_cm_leave(to->cm);
    wait_for(from, VB_CM_EVENT_REPLY, PATIENCE_MS);
    cm = vb_host_cm_enter(from->cm, &now_ns);
    assert_int_equal(vb_cm_confirm(cm, now_ns, id, NULL), 0);
    vb_host_cm_leave(from->cm);
    wait_for(to, VB_CM_EVENT_ESTABLISHED, PATIENCE_MS);
    struct vb_nic *nic = hull_kit_attach(p.hull);
    open_speaker(&liar, nic);
    const struct vb_cm_message dreq = {.kind = VB_CM_DREQ,
                                       .local_id = id,
                                       .remote_id = e.id,
                                       .dreq = {.remote_qpn = vb_qp_num(to->qp)}};
    say(&liar, &dreq);
    assert_true(is_quiet(to));
    cm = vb_host_cm_enter(from->cm, &now_ns); // who has the id can
    assert_int_equal(vb_cm_disconnect(cm, now_ns, id, NULL), 0);
    vb_host_cm_leave(from->cm);
    wait_for(to, VB_CM_EVENT_DISCONNECTED, PATIENCE_MS);
    vb_nic_close(nic);
    close_place(&p);
}

// Descriptors of a hull that is gone are readable for ever: a manager does not wait on them then.
static void test_without_a_hull_a_manager_sleeps(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_host_cm *cm;

    (void)state;
    assert_int_equal(vb_host_cm_open(nic, NULL, &cm), 0);
    vb_hull_close(hull);
    duo_expect_idle();
    vb_host_cm_close(cm);
    vb_nic_close(nic);
}

static void test_seats_are_charged(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\nqueues = 4\n");
    struct vb_nic *nic = hull_kit_attach(hull), *other = hull_kit_attach(hull);
    struct vb_host_cm *cm, *second;
    uint16_t port = 7500;
    struct vb_channel *channel;
    char why[VB_ERROR_TEXT];

    (void)state;
    assert_int_equal(vb_host_cm_open(nic, NULL, &cm), 0); // a seat, a channel and a queue
    assert_int_equal(vb_host_cm_bind(cm, VB_CMA_TCP, &port), 0);
    assert_int_equal(vb_host_cm_open(other, NULL, &second), -EDQUOT);
    vb_hull_why(other, why);
    assert_non_null(strstr(why, "may have 4 queues"));
    vb_host_cm_unbind(cm, VB_CMA_TCP, port);
    assert_int_equal(vb_channel_create(other, &channel), 0);
    vb_host_cm_close(cm);
    vb_nic_close(nic);
    vb_nic_close(other);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_with_each),
        cmocka_unit_test(test_a_port_is_one_applications),
        cmocka_unit_test(test_nobody_speaks_of_anothers_queue_pair),
        cmocka_unit_test(test_nobody_speaks_by_anothers_id),
        cmocka_unit_test(test_seats_are_charged),
        cmocka_unit_test(test_without_a_hull_a_manager_sleeps),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
