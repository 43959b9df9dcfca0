// SPDX-License-Identifier: Apache-2.0
// Two NICs that are connected by the communication manager over their queue pairs 1, and bytes that
// then go over the connection.
#include "../wait.h"
#include "duo.h"
#include "host/cm.h"
#include "host_cm_kit.h"
#include "pair.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SERVICE = 0x01061c1b,
    BYTES = 5000,
    CROWD = 600, // more than come in one batch
};

struct ends {
    struct duo d;
    struct vb_host_cm *cm[2]; // one and the same where one NIC must do
};

static struct vb_ip address(const struct vb_nic *nic)
{
    struct vb_ip ip;
    vb_nic_gid(nic, ip.b);
    return ip;
}

static void open_ends(struct ends *s, struct duo_state *state)
{
    duo_open(&s->d, state);
    for (int i = 0; i < 2; i++)
        if (i == 0 || s->d.end[1].nic != s->d.end[0].nic)
            assert_int_equal(vb_host_cm_open(s->d.end[i].nic, NULL, &s->cm[i]), 0);
        else
            s->cm[1] = s->cm[0];
}

static void close_ends(struct ends *s)
{
    vb_host_cm_close(s->cm[0]);
    if (s->cm[1] != s->cm[0])
        vb_host_cm_close(s->cm[1]);
    duo_close(&s->d);
}

static struct vb_cm_event wait_for(struct vb_host_cm *cm, enum vb_cm_event_kind kind)
{
    return host_cm_wait(cm, kind, DUO_PATIENCE_S * 1000);
}

static void listen_at(struct vb_host_cm *host)
{
    host_cm_listen(host, SERVICE, host);
}

static uint32_t ask(struct ends *s, struct vb_cm_request *request, const struct vb_qp *qp)
{
    *request = (struct vb_cm_request){.peer = address(s->d.end[1].nic),
                                      .service_id = SERVICE,
                                      .qpn = vb_qp_num(qp),
                                      .psn = 0xfffffe,
                                      .mtu = 3,
                                      .responder_resources = 4,
                                      .initiator_depth = 4,
                                      .retries = 7,
                                      .rnr_retries = 7,
                                      .ack_timeout = 16,
                                      .private_data = {"may I?", 6}};
    return host_cm_connect(s->cm[0], request);
}

static uint32_t answer(struct ends *s, struct vb_qp *qp)
{
    const struct vb_cm_answer yes = {.qpn = vb_qp_num(qp),
                                     .psn = 77,
                                     .responder_resources = 4,
                                     .initiator_depth = 4,
                                     .rnr_retries = 7,
                                     .private_data = {"yes", 3}};
    struct vb_cm_event e = wait_for(s->cm[1], VB_CM_EVENT_REQUEST);
    struct vb_qp_peer peer;

    assert_memory_equal(e.message.private_data, "may I?", 7);
    vb_host_cm_passive_peer(&yes, &e.message, &peer);
    peer.rights = DUO_REMOTE;
    assert_int_equal(vb_qp_connect(qp, &peer), 0);
    host_cm_accept(s->cm[1], e.id, &yes);
    return e.id;
}

static void confirm(struct ends *s, const struct vb_cm_request *request, struct vb_qp *qp)
{
    struct vb_cm_event e = wait_for(s->cm[0], VB_CM_EVENT_REPLY);
    struct vb_qp_peer peer;

    assert_memory_equal(e.message.private_data, "yes", 4);
    vb_host_cm_active_peer(request, &e.message, &peer);
    peer.rights = DUO_REMOTE;
    assert_int_equal(vb_qp_connect(qp, &peer), 0);
    host_cm_confirm(s->cm[0], e.id);
}

static void move_bytes(const struct duo *d, struct vb_qp *qp[2])
{
    duo_fill(d->end[0].memory, BYTES, 5);
    duo_post_recv(&d->end[1], qp[1], 1, 0, BYTES);
    duo_post(d, qp[0], duo_wr(d, VB_WR_SEND, 2), 0, BYTES);
    duo_expect(d->end[1].cq, 1, VB_WC_OK);
    duo_expect(d->end[0].cq, 2, VB_WC_OK);
    assert_memory_equal(d->end[0].memory, d->end[1].memory, BYTES);
    struct vb_send_wr read = duo_wr(d, VB_WR_READ, 3);
    duo_post(d, qp[0], read, 0, BYTES);
    duo_expect(d->end[0].cq, 3, VB_WC_OK);
}

static void disconnect(struct ends *s, uint32_t id[2])
{
    uint64_t now_ns;
    struct vb_cm *cm = vb_host_cm_enter(s->cm[0], &now_ns);
    int err = vb_cm_disconnect(cm, now_ns, id[0], NULL);
    int again = vb_cm_disconnect(cm, now_ns, id[0], NULL);
    vb_host_cm_leave(s->cm[0]);
    assert_int_equal(err, 0);
    assert_int_equal(again, -EINVAL);
    struct vb_cm_event e = wait_for(s->cm[1], VB_CM_EVENT_DISCONNECTED);
    assert_int_equal(e.id, id[1]);
    assert_true(e.by_peer);
    e = wait_for(s->cm[0], VB_CM_EVENT_DISCONNECTED);
    assert_int_equal(e.id, id[0]);
    wait_for(s->cm[0], VB_CM_EVENT_GONE);
    wait_for(s->cm[1], VB_CM_EVENT_GONE);
}

static void test_connects(void **state)
{
    struct ends s = {0};
    struct vb_cm_request request;
    struct vb_qp *qp[2];
    uint32_t id[2];

    open_ends(&s, *state);
    listen_at(s.cm[1]);
    for (int i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&s.d.end[i], (struct vb_qp_opts){.service = VB_SERVICE_RC});
    id[0] = ask(&s, &request, qp[0]);
    id[1] = answer(&s, qp[1]);
    confirm(&s, &request, qp[0]);
    assert_int_equal(wait_for(s.cm[1], VB_CM_EVENT_ESTABLISHED).id, id[1]);
    move_bytes(&s.d, qp);
    disconnect(&s, id);
    vb_qp_destroy(qp[0]);
    vb_qp_destroy(qp[1]);
    close_ends(&s);
}

// The passive side, with a queue pair that cannot send before it hears.
static uint32_t answer_in_rtr(struct ends *s, struct vb_qp *qp)
{
    const struct vb_cm_answer yes = {
        .qpn = vb_qp_num(qp), .psn = 77, .responder_resources = 4, .rnr_retries = 7};
    struct vb_cm_event e = wait_for(s->cm[1], VB_CM_EVENT_REQUEST);
    struct vb_qp_change change = {.to = VB_QP_INIT};

    assert_int_equal(vb_qp_change(qp, &change), 0);
    duo_post_recv(&s->d.end[1], qp, 1, 0, BYTES);
    change = (struct vb_qp_change){.to = VB_QP_RTR,
                                   .qpn = e.message.req.qpn,
                                   .psn = yes.psn,
                                   .mtu = 128u << e.message.req.mtu,
                                   .rnr_timer = 12};
    memcpy(change.gid, e.message.req.primary.local_gid, 16);
    assert_int_equal(vb_qp_change(qp, &change), 0);
    host_cm_accept(s->cm[1], e.id, &yes);
    return e.id;
}

// The RTU never comes; but the first packet does.
static void test_a_packet_for_the_rtu(void **state)
{
    struct ends s = {0};
    struct vb_cm_request request;
    struct vb_qp_peer peer;
    struct vb_qp *qp[2];

    open_ends(&s, *state);
    listen_at(s.cm[1]);
    for (int i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&s.d.end[i], (struct vb_qp_opts){.service = VB_SERVICE_RC});
    ask(&s, &request, qp[0]);
    uint32_t id = answer_in_rtr(&s, qp[1]);
    struct vb_cm_event e = wait_for(s.cm[0], VB_CM_EVENT_REPLY);
    vb_host_cm_active_peer(&request, &e.message, &peer);
    assert_int_equal(vb_qp_connect(qp[0], &peer), 0);
    assert_false(duo_is_readable(vb_host_cm_event_fd(s.cm[1]), 30)); // nothing was heard yet
    duo_post(&s.d, qp[0], duo_wr(&s.d, VB_WR_SEND, 2), 0, BYTES);
    e = wait_for(s.cm[1], VB_CM_EVENT_ESTABLISHED);
    assert_int_equal(e.id, id);
    assert_int_equal(e.private_len, 0); // no RTU, no words
    duo_expect(s.d.end[1].cq, 1, VB_WC_OK);
    vb_qp_destroy(qp[0]);
    vb_qp_destroy(qp[1]);
    close_ends(&s);
}

// ---- ports

static void test_ports(void **state)
{
    struct ends s = {0};
    uint16_t port = 4420, other = 4420, any[2] = {0};

    open_ends(&s, *state);
    bool one_nic = s.cm[0] == s.cm[1];
    assert_int_equal(vb_host_cm_bind(s.cm[0], (enum vb_cma_space)7, &port), -EINVAL);
    assert_int_equal(vb_host_cm_bind(s.cm[0], VB_CMA_TCP, &port), 0);
    assert_int_equal(vb_host_cm_bind(s.cm[0], VB_CMA_TCP, &port), 0); // for another address
    bool shared = strcmp(((struct duo_state *)*state)->way, "shm") != 0;
    int taken = shared && !one_nic ? -EADDRINUSE : 0;
    assert_int_equal(vb_host_cm_bind(s.cm[1], VB_CMA_TCP, &other), taken);
    assert_int_equal(other, 4420);
    assert_int_equal(vb_host_cm_bind(s.cm[1], VB_CMA_UDP, &other), 0);
    vb_host_cm_unbind(s.cm[0], VB_CMA_TCP, port);
    if (taken)
        assert_int_equal(vb_host_cm_bind(s.cm[1], VB_CMA_TCP, &other), taken);
    vb_host_cm_unbind(s.cm[0], VB_CMA_TCP, port);
    vb_host_cm_unbind(s.cm[0], VB_CMA_TCP, port); // once too often
    if (taken)
        assert_int_equal(vb_host_cm_bind(s.cm[1], VB_CMA_TCP, &other), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(vb_host_cm_bind(s.cm[i], VB_CMA_IB, &any[i]), 0);
        assert_in_range(any[i], 32768, 60999);
    }
    assert_int_not_equal(any[0], any[1]);
    close_ends(&s);
}

// All that there are, each once, and then none.
static void test_no_port_is_left(void **state)
{
    struct ends s = {0};
    static bool seen[1 << 16];
    uint16_t port = 0;

    open_ends(&s, *state);
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 32768; i <= 60999; i++) {
        port = 0;
        assert_int_equal(vb_host_cm_bind(s.cm[0], VB_CMA_TCP, &port), 0);
        assert_in_range(port, 32768, 60999);
        assert_false(seen[port]);
        seen[port] = true;
    }
    port = 0;
    assert_int_equal(vb_host_cm_bind(s.cm[0], VB_CMA_TCP, &port), -EADDRINUSE);
    assert_int_equal(port, 0);
    vb_host_cm_unbind(s.cm[0], VB_CMA_TCP, 40001);
    assert_int_equal(vb_host_cm_bind(s.cm[0], VB_CMA_TCP, &port), 0);
    assert_int_equal(port, 40001);
    close_ends(&s);
}

// A program that disconnects and goes at once has said so.
static void test_last_words(void **state)
{
    struct ends s = {0};
    struct vb_cm_request request;
    struct vb_qp *qp[2];

    open_ends(&s, *state);
    listen_at(s.cm[1]);
    for (int i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&s.d.end[i], (struct vb_qp_opts){.service = VB_SERVICE_RC});
    uint32_t id = ask(&s, &request, qp[0]);
    answer(&s, qp[1]);
    confirm(&s, &request, qp[0]);
    wait_for(s.cm[1], VB_CM_EVENT_ESTABLISHED);
    host_cm_disconnect(s.cm[0], id);
    vb_host_cm_close(s.cm[0]);
    assert_true(wait_for(s.cm[1], VB_CM_EVENT_DISCONNECTED).by_peer);
    s.cm[0] = s.cm[1];
    close_ends(&s);
}

static void test_is_refused(void **state)
{
    struct ends s = {0};
    struct vb_cm_request request;

    open_ends(&s, *state);
    struct vb_qp *qp = duo_make_qp(&s.d.end[0], (struct vb_qp_opts){.service = VB_SERVICE_RC});
    uint32_t id = ask(&s, &request, qp); // nobody listens
    struct vb_cm_event e = wait_for(s.cm[0], VB_CM_EVENT_REJECTED);
    assert_int_equal(e.id, id);
    assert_int_equal(e.reason, VB_CM_INVALID_SERVICE);
    assert_int_equal(wait_for(s.cm[0], VB_CM_EVENT_GONE).id, id);
    assert_false(duo_is_readable(vb_host_cm_event_fd(s.cm[0]), 0));
    vb_qp_destroy(qp);
    close_ends(&s);
}

// A NIC has one queue pair 1; who has it gives it back.
static void test_only_one(void **state)
{
    struct ends s = {0};
    struct vb_host_cm *second;

    open_ends(&s, *state);
    assert_int_equal(vb_host_cm_open(s.d.end[0].nic, NULL, &second), -EBUSY);
    vb_host_cm_close(s.cm[0]);
    assert_int_equal(vb_host_cm_open(s.d.end[0].nic, NULL, &second), 0);
    s.cm[1] = s.cm[1] == s.cm[0] ? second : s.cm[1];
    s.cm[0] = second;
    close_ends(&s);
}

static int make_management(struct vb_nic *nic, enum vb_service service, uint32_t unit,
                           struct vb_qp **qp)
{
    const struct vb_cq_opts cq_opts = {.entries = 16, .unit = unit};
    struct vb_pd *pd;
    struct vb_cq *cq;

    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(vb_cq_create(nic, &cq_opts, &cq), 0);
    const struct vb_qp_opts opts = {.service = service,
                                    .management = true,
                                    .send_cq = cq,
                                    .recv_cq = cq,
                                    .send_depth = 1,
                                    .recv_depth = 1};
    return vb_qp_create(pd, &opts, qp);
}

// Its number is 1, it sends datagrams, and it lives where frames for that number come in.
static void test_number(void **state)
{
    char here[16];
    const struct vb_nic_opts opts = {.address = here, .port = "udp", .units = 2, .faults = "off"};
    struct vb_nic *nic;
    struct vb_qp *qp;

    (void)state;
    pair_address(0, here);
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    assert_int_equal(make_management(nic, VB_SERVICE_RC, 2, &qp), -EINVAL);
    assert_int_equal(make_management(nic, VB_SERVICE_UD, 1, &qp), -EINVAL);
    assert_int_equal(make_management(nic, VB_SERVICE_UD, 2, &qp), 0);
    assert_int_equal(vb_qp_num(qp), 1);
    assert_int_equal(make_management(nic, VB_SERVICE_UD, 2, &qp), -EBUSY);
    vb_nic_close(nic);
}

// Datagrams with another key, from another queue pair or of other lengths are no messages.
static void test_strangers(void **state)
{
    struct ends s = {0};
    struct vb_cm_stats before, after;
    uint64_t now_ns;

    open_ends(&s, *state);
    struct vb_qp *qp = duo_make_qp(&s.d.end[0], (struct vb_qp_opts){.service = VB_SERVICE_UD});
    assert_int_equal(vb_qp_connect(qp, &(struct vb_qp_peer){.qkey = VB_GSI_QKEY}), 0);
    before = *vb_cm_stats(vb_host_cm_enter(s.cm[1], &now_ns));
    vb_host_cm_leave(s.cm[1]);
    struct vb_send_wr wr = duo_wr(&s.d, VB_WR_SEND, 9);
    const struct vb_ip to = address(s.d.end[1].nic);
    memcpy(wr.to.gid, to.b, 16);
    wr.to.qpn = VB_GSI_QPN;
    wr.to.qkey = VB_GSI_QKEY;
    for (uint32_t len = 255; len < 258; len++) {
        duo_post(&s.d, qp, wr, 0, len);
        duo_expect(s.d.end[0].cq, 9, VB_WC_OK);
    }
    wr.to.qkey = 5;
    duo_post(&s.d, qp, wr, 0, 256);
    duo_expect(s.d.end[0].cq, 9, VB_WC_OK);
    duo_expect_quiet(s.d.end[0].cq);
    after = *vb_cm_stats(vb_host_cm_enter(s.cm[1], &now_ns));
    vb_host_cm_leave(s.cm[1]);
    assert_memory_equal(&before, &after, sizeof after);
    vb_qp_destroy(qp);
    close_ends(&s);
}

static void wait_for_datagrams(const struct vb_nic *nic, uint64_t count)
{
    WAIT_UNTIL(duo_counter(nic, "rx_datagrams") + duo_counter(nic, "rx_dropped_datagrams") >=
               count);
}

// Asks while the other manager is kept from reading, which it then may do.
static void ask_in_a_crowd(struct ends *s, uint32_t backlog)
{
    uint64_t now_ns;
    uint32_t id;
    struct vb_cm *busy = vb_host_cm_enter(s->cm[1], &now_ns);

    if (backlog)
        assert_int_equal(vb_cm_listen(busy, SERVICE, 0, backlog, NULL), 0);
    for (uint32_t i = 0; i < CROWD; i++) {
        const struct vb_cm_request request = {
            .peer = address(s->d.end[1].nic), .service_id = SERVICE, .qpn = 100 + i, .mtu = 3};
        struct vb_cm *cm = vb_host_cm_enter(s->cm[0], &now_ns);
        assert_int_equal(vb_cm_connect(cm, now_ns, &request, &id), 0);
        vb_host_cm_leave(s->cm[0]);
    }
    wait_for_datagrams(s->d.end[1].nic, CROWD);
    vb_host_cm_leave(s->cm[1]);
}

// Messages that come while nobody reads wait: each that is lost costs its sender a second.
static void test_a_crowd_asks(void **state)
{
    struct ends s = {0};
    uint64_t now_ns;

    open_ends(&s, *state);
    ask_in_a_crowd(&s, CROWD);
    uint32_t came = vb_cm_in_use(vb_host_cm_enter(s.cm[1], &now_ns));
    vb_host_cm_leave(s.cm[1]);
    assert_int_equal(came, CROWD);
    close_ends(&s);
}

// And each gets its answer.
static void test_a_crowd_is_refused(void **state)
{
    struct ends s = {0};
    struct vb_cm_event e;
    uint32_t refused = 0;
    uint64_t now_ns;

    open_ends(&s, *state);
    ask_in_a_crowd(&s, 0);
    while (refused < CROWD) {
        assert_true(duo_is_readable(vb_host_cm_event_fd(s.cm[0]), DUO_PATIENCE_S * 1000));
        assert_true(vb_host_cm_take_event(s.cm[0], &e));
        assert_true(e.kind == VB_CM_EVENT_REJECTED || e.kind == VB_CM_EVENT_GONE);
        refused += e.kind == VB_CM_EVENT_REJECTED;
    }
    uint64_t lost = vb_cm_stats(vb_host_cm_enter(s.cm[1], &now_ns))->overflowed;
    vb_host_cm_leave(s.cm[1]);
    assert_int_equal(lost, 0);
    close_ends(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_WAYS(test_connects),
        DUO_TEST(test_connects, "hull"),
        DUO_PORTS(test_last_words),
        DUO_TEST(test_last_words, "hull"),
        DUO_WAYS(test_ports),
        DUO_TEST(test_ports, "hull"),
        DUO_TEST(test_no_port_is_left, "udp"),
        DUO_TEST(test_no_port_is_left, "shm"),
        DUO_PORTS(test_a_packet_for_the_rtu),
        DUO_TEST(test_a_packet_for_the_rtu, "hull"),
        DUO_WAYS(test_is_refused),
        DUO_TEST(test_is_refused, "hull"),
        DUO_TEST(test_only_one, "udp"),
        DUO_TEST(test_only_one, "hull"),
        DUO_TEST(test_number, "udp"),
        DUO_TEST(test_strangers, "udp"),
        DUO_TEST(test_strangers, "hull"),
        DUO_PORTS(test_a_crowd_asks),
        DUO_PORTS(test_a_crowd_is_refused),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
