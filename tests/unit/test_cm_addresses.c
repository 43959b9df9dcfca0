// SPDX-License-Identifier: Apache-2.0
// Connections over each address of NICs that are on several: the first ones are of different
// families.
#include "duo.h"
#include "host/cm.h"
#include "host_cm_kit.h"
#include "skips.h"
#include "udp_kit.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SERVICE = 0x01061c1b,
    BYTES = 5000,
    WAYS = 2,
};

static const char *const address[2][WAYS] = {{"127.0.0.7", "fd00:5eed::1"},
                                             {"127.0.0.8", "fd00:5eed::2"}};

struct ends {
    struct duo d;
    struct duo_state state;
    struct vb_host_cm *cm[2];
};

static struct vb_ip read_ip(const char *text)
{
    char mapped[80];
    struct vb_ip ip;
    snprintf(mapped, sizeof mapped, "::ffff:%s", text);
    assert_int_equal(inet_pton(AF_INET6, strchr(text, ':') ? text : mapped, ip.b), 1);
    return ip;
}

static void open_ends(struct ends *s)
{
    *s = (struct ends){0};
    s->d.state = &s->state;
    for (int i = 0; i < 2; i++) {
        const struct vb_nic_opts opts = {.address = address[i][i], .port = "udp", .faults = "off"};
        assert_int_equal(vb_nic_open(&opts, &s->d.end[i].nic), 0);
        s->state.nic[i] = s->d.end[i].nic;
        assert_int_equal(vb_nic_take_address(s->d.end[i].nic, read_ip(address[i][!i]).b), 0);
        assert_int_equal(vb_host_cm_open(s->d.end[i].nic, NULL, &s->cm[i]), 0);
    }
    duo_open_ends(&s->d);
}

static void close_ends(struct ends *s)
{
    vb_host_cm_close(s->cm[0]);
    vb_host_cm_close(s->cm[1]);
    duo_close(&s->d);
}

static struct vb_cm_event wait_for(struct vb_host_cm *cm, enum vb_cm_event_kind kind)
{
    return host_cm_wait(cm, kind, DUO_PATIENCE_S * 1000);
}

static void answer(struct ends *s, struct vb_qp *qp, const struct vb_ip *at)
{
    const struct vb_cm_answer yes = {.qpn = vb_qp_num(qp), .psn = 77, .rnr_retries = 7};
    struct vb_cm_event e = wait_for(s->cm[1], VB_CM_EVENT_REQUEST);
    struct vb_qp_peer peer;
    assert_memory_equal(&e.local, at, sizeof *at);
    vb_host_cm_passive_peer(&yes, &e.message, &peer);
    assert_int_equal(vb_qp_connect(qp, &peer), 0);
    host_cm_accept(s->cm[1], e.id, &yes);
}

static void confirm(struct ends *s, const struct vb_cm_request *request, struct vb_qp *qp)
{
    struct vb_cm_event e = wait_for(s->cm[0], VB_CM_EVENT_REPLY);
    struct vb_qp_peer peer;
    vb_host_cm_active_peer(request, &e.message, &peer);
    assert_int_equal(vb_qp_connect(qp, &peer), 0);
    host_cm_confirm(s->cm[0], e.id);
    wait_for(s->cm[1], VB_CM_EVENT_ESTABLISHED);
}

static void listen_at(struct vb_host_cm *host)
{
    host_cm_listen(host, SERVICE, host);
}

static void test_connects_by_each(void **state)
{
    struct ends s;
    (void)state;
    open_ends(&s);
    listen_at(s.cm[1]);
    for (int way = 0; way < WAYS; way++) {
        struct vb_qp *qp[2];
        for (int i = 0; i < 2; i++)
            qp[i] = duo_make_qp(&s.d.end[i], (struct vb_qp_opts){0});
        const struct vb_cm_request request = {.peer = read_ip(address[1][way]),
                                              .local = read_ip(address[0][way]),
                                              .service_id = SERVICE,
                                              .qpn = vb_qp_num(qp[0]),
                                              .psn = 5,
                                              .mtu = 3,
                                              .retries = 7,
                                              .rnr_retries = 7,
                                              .ack_timeout = 16};
        host_cm_connect(s.cm[0], &request);
        answer(&s, qp[1], &request.peer);
        confirm(&s, &request, qp[0]);
        duo_fill(s.d.end[0].memory, BYTES, (uint32_t)way);
        duo_post_recv(&s.d.end[1], qp[1], 1, 0, BYTES);
        duo_post(&s.d, qp[0], duo_wr(&s.d, VB_WR_SEND, 2), 0, BYTES);
        duo_expect(s.d.end[1].cq, 1, VB_WC_OK);
        duo_expect(s.d.end[0].cq, 2, VB_WC_OK);
        (void)duo_counter(s.d.end[1].nic, "sent_pkts");
        assert_memory_equal(s.d.end[0].memory, s.d.end[1].memory, BYTES);
    }
    close_ends(&s);
}

// By an address that the peer is on, where nobody listens: the answer comes from there.
static void test_refused_by_each(void **state)
{
    struct ends s;
    (void)state;
    open_ends(&s);
    for (int way = 0; way < WAYS; way++) {
        const struct vb_cm_request request = {.peer = read_ip(address[1][way]),
                                              .local = read_ip(address[0][way]),
                                              .service_id = SERVICE,
                                              .qpn = 7,
                                              .mtu = 3};
        host_cm_connect(s.cm[0], &request);
        assert_int_equal(wait_for(s.cm[0], VB_CM_EVENT_REJECTED).reason, VB_CM_INVALID_SERVICE);
        wait_for(s.cm[0], VB_CM_EVENT_GONE);
    }
    close_ends(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connects_by_each),
        cmocka_unit_test(test_refused_by_each),
    };
    const char *why = udp_kit_enter_net();
    if (why != NULL)
        return skips_group("all", why);
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
