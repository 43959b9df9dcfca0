// SPDX-License-Identifier: Apache-2.0
// Two communication managers with the test as the network.
#include "cm_rig.h"

#include "sim/cm_sane.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

const struct vb_ip cm_ip[2] = {{{[10] = 0xff, 0xff, 10, 0, 0, 1}},
                               {{[10] = 0xff, 0xff, 10, 0, 0, 2}}};

static struct vb_cm *make(int who)
{
    const struct vb_cm_opts opts = {.seed = {1, (uint64_t)who},
                                    .local = cm_ip[who],
                                    .ca_guid = 100u + (uint64_t)who,
                                    .connections = 8,
                                    .outbox = 16,
                                    .timeout = 10,
                                    .retries = 3,
                                    .packet_life = 4};
    return vb_cm_create(&opts);
}

int cm_open(void **state)
{
    struct cm_rig *r = calloc(1, sizeof *r);

    r->now_ns = 1000;
    r->cm[A] = make(A);
    r->cm[B] = make(B);
    *state = r;
    return r->cm[A] && r->cm[B] ? 0 : -1;
}

int cm_close(void **state)
{
    struct cm_rig *r = *state;
    vb_cm_destroy(r->cm[A]);
    vb_cm_destroy(r->cm[B]);
    free(r);
    return 0;
}

void cm_take(struct cm_rig *r, int who, enum vb_cm_kind kind, struct vb_cm_message *m)
{
    struct vb_ip to;

    assert_true(vb_cm_take_message(r->cm[who], &to, r->last[who]));
    assert_memory_equal(&to, &cm_ip[!who], sizeof to);
    assert_int_equal(vb_cm_decode(r->last[who], VB_MAD_BYTES, m), VB_CM_DECODE_OK);
    assert_string_equal(vb_cm_kind_text(m->kind), vb_cm_kind_text(kind));
}

void cm_none(struct cm_rig *r, int who)
{
    struct vb_ip to;
    assert_false(vb_cm_take_message(r->cm[who], &to, r->last[who]));
}

void cm_deliver(struct cm_rig *r, int from)
{
    vb_cm_input(r->cm[!from], r->now_ns, &cm_ip[from], r->last[from], VB_MAD_BYTES);
    assert_true(vb_cmsane(r->cm[!from]));
}

void cm_pass(struct cm_rig *r, int from, enum vb_cm_kind kind)
{
    struct vb_cm_message m;
    cm_take(r, from, kind, &m);
    cm_deliver(r, from);
}

void cm_forge(struct cm_rig *r, int to, const struct vb_cm_message *m)
{
    uint8_t mad[VB_MAD_BYTES];
    vb_cm_encode(m, mad);
    vb_cm_input(r->cm[to], r->now_ns, &cm_ip[!to], mad, sizeof mad);
    assert_true(vb_cmsane(r->cm[to]));
}

uint32_t cm_event(struct cm_rig *r, int who, enum vb_cm_event_kind kind, struct vb_cm_event *e)
{
    struct vb_cm_event mine;

    e = e ? e : &mine;
    assert_true(vb_cm_take_event(r->cm[who], e));
    assert_string_equal(vb_cm_event_text(e->kind), vb_cm_event_text(kind));
    return e->id;
}

void cm_no_event(struct cm_rig *r, int who)
{
    struct vb_cm_event e;
    assert_false(vb_cm_take_event(r->cm[who], &e));
}

void cm_wait(struct cm_rig *r, uint64_t ns)
{
    r->now_ns += ns;
    vb_cm_poll(r->cm[A], r->now_ns);
    vb_cm_poll(r->cm[B], r->now_ns);
}

struct vb_cm_request cm_request(void)
{
    return (struct vb_cm_request){.peer = cm_ip[B],
                                  .service_id = CM_SERVICE,
                                  .qpn = CM_QPN_A,
                                  .psn = 0x123456,
                                  .mtu = 5,
                                  .responder_resources = 4,
                                  .initiator_depth = 3,
                                  .retries = 7,
                                  .rnr_retries = 6,
                                  .ack_timeout = 17,
                                  .private_data = {"hello", 5}};
}

uint32_t cm_connect(struct cm_rig *r)
{
    const struct vb_cm_request q = cm_request();
    uint32_t id = 0;
    assert_int_equal(vb_cm_connect(r->cm[A], r->now_ns, &q, &id), 0);
    return id;
}

const struct vb_cm_answer cm_answer = {.qpn = CM_QPN_B,
                                       .psn = 0x654321,
                                       .responder_resources = 3,
                                       .initiator_depth = 4,
                                       .rnr_retries = 5,
                                       .private_data = {"welcome", 7}};

void cm_agree(struct cm_rig *r, uint32_t id[2])
{
    assert_int_equal(vb_cm_listen(r->cm[B], CM_SERVICE, 0, 0, r), 0);
    id[A] = cm_connect(r);
    cm_pass(r, A, VB_CM_REQ);
    id[B] = cm_event(r, B, VB_CM_EVENT_REQUEST, NULL);
    assert_int_equal(vb_cm_accept(r->cm[B], r->now_ns, id[B], &cm_answer), 0);
    cm_pass(r, B, VB_CM_REP);
    cm_event(r, A, VB_CM_EVENT_REPLY, NULL);
    assert_int_equal(vb_cm_confirm(r->cm[A], r->now_ns, id[A], NULL), 0);
    cm_pass(r, A, VB_CM_RTU);
}

void cm_establish(struct cm_rig *r, uint32_t id[2])
{
    cm_agree(r, id);
    cm_event(r, B, VB_CM_EVENT_ESTABLISHED, NULL);
}
