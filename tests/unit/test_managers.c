// SPDX-License-Identifier: Apache-2.0
// Several NICs of one process on one address, some with managers: whoever of them gets the frames
// of queue pair 1 first, requests come to who has the port, and answers to who asked.
#include "duo.h"
#include "host/cm.h"
#include "host/inspect_ask.h"
#include "host_cm_kit.h"
#include "pair.h"
#include "runtime_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    NICS = 3,
    NAMED = 7300,
    PATIENCE_MS = DUO_PATIENCE_S * 1000,
    NEVER = 26, // minutes: what is lost is repeated when nobody waits any more
};

struct place {
    struct vb_nic *nic[NICS]; // the last one takes what is nobody's
    struct vb_host_cm *cm[NICS];
    uint16_t port[NICS];
};

static void open_place(struct place *p, unsigned managers, unsigned two_units, bool named)
{
    char address[16], why[VB_ERROR_TEXT];

    memset(p, 0, sizeof *p);
    pair_address(1, address);
    for (unsigned i = 0; i < NICS; i++) {
        const struct vb_nic_opts opts = {.address = address,
                                         .port = "udp",
                                         .faults = "off",
                                         .units = 1 + (two_units >> i & 1),
                                         .drain_ms = 1,
                                         .error_text = why};
        if (vb_nic_open(&opts, &p->nic[i]) != 0)
            fail_msg("%s", why);
    }
    for (unsigned i = 0; i < NICS; i++) {
        if (!(managers >> i & 1))
            continue;
        const struct vb_cm_opts opts = {.timeout = NEVER};
        assert_int_equal(vb_host_cm_open(p->nic[i], &opts, &p->cm[i]), 0);
        p->port[i] = named ? (uint16_t)(NAMED + i) : 0;
        assert_int_equal(vb_host_cm_bind(p->cm[i], VB_CMA_TCP, &p->port[i]), 0);
        host_cm_listen(p->cm[i], vb_cma_service_id(VB_CMA_TCP, p->port[i]), p);
    }
}

static void close_place(struct place *p)
{
    for (unsigned i = 0; i < NICS; i++) {
        if (p->cm[i])
            vb_host_cm_close(p->cm[i]);
        vb_nic_close(p->nic[i]);
    }
}

static uint32_t ask(struct place *p, unsigned from, uint16_t port, uint32_t qpn)
{
    struct vb_cm_request request = {
        .service_id = vb_cma_service_id(VB_CMA_TCP, port), .qpn = qpn, .mtu = 3};

    vb_nic_gid(p->nic[from], request.peer.b);
    return host_cm_connect(p->cm[from], &request);
}

static void connect_and_part(struct place *p, unsigned from, unsigned to, uint32_t qpn)
{
    const struct vb_cm_answer yes = {.qpn = qpn + 1};
    uint32_t id = ask(p, from, p->port[to], qpn);
    struct vb_cm_event e = host_cm_wait(p->cm[to], VB_CM_EVENT_REQUEST, PATIENCE_MS);

    host_cm_accept(p->cm[to], e.id, &yes);
    assert_int_equal(host_cm_wait(p->cm[from], VB_CM_EVENT_REPLY, PATIENCE_MS).id, id);
    host_cm_confirm(p->cm[from], id);
    assert_int_equal(host_cm_wait(p->cm[to], VB_CM_EVENT_ESTABLISHED, PATIENCE_MS).id, e.id);
    host_cm_disconnect(p->cm[to], e.id);
    assert_true(host_cm_wait(p->cm[from], VB_CM_EVENT_DISCONNECTED, PATIENCE_MS).by_peer);
    host_cm_wait(p->cm[to], VB_CM_EVENT_DISCONNECTED, PATIENCE_MS);
    host_cm_wait(p->cm[from], VB_CM_EVENT_GONE, PATIENCE_MS);
    host_cm_wait(p->cm[to], VB_CM_EVENT_GONE, PATIENCE_MS);
}

static void try_all(unsigned managers, unsigned two_units, bool named)
{
    struct place p;
    uint32_t qpn = 100;

    open_place(&p, managers, two_units, named);
    for (unsigned from = 0; from < NICS; from++)
        for (unsigned to = 0; to < NICS; to++) {
            qpn += 2;
            if (from != to && p.cm[from] && p.cm[to])
                connect_and_part(&p, from, to, qpn);
        }
    for (unsigned from = 0; from < NICS; from++) {
        if (!p.cm[from])
            continue;
        uint32_t id = ask(&p, from, 9, qpn += 2); // which is nobody's
        struct vb_cm_event e = host_cm_wait(p.cm[from], VB_CM_EVENT_REJECTED, PATIENCE_MS);
        assert_int_equal(e.id, id);
        assert_int_equal(e.reason, VB_CM_INVALID_SERVICE);
        host_cm_wait(p.cm[from], VB_CM_EVENT_GONE, PATIENCE_MS);
    }
    close_place(&p);
}

static void test_all_have_managers(void **state)
{
    (void)state;
    try_all(7, 0, true);
    try_all(7, 0, false);
}

// It passes on what is not its own, and has nobody to answer.
static void test_the_last_has_none(void **state)
{
    (void)state;
    try_all(3, 0, true);
    try_all(3, 0, false);
}

static void test_only_one_has(void **state)
{
    (void)state;
    try_all(1, 0, false);
    try_all(4, 0, false);
}

static void test_two_units(void **state)
{
    (void)state;
    try_all(7, 5, true);
    try_all(7, 2, false);
    try_all(3, 7, false);
    try_all(5, 6, true);
}

// Its service is refused, its connections are over, as soon as it has gone; and its port may be
// another's.
static void test_who_has_gone(void **state)
{
    struct place p;

    (void)state;
    open_place(&p, 3, 0, true);
    ask(&p, 0, p.port[1], 100);
    struct vb_cm_event e = host_cm_wait(p.cm[1], VB_CM_EVENT_REQUEST, PATIENCE_MS);
    host_cm_accept(p.cm[1], e.id, &(struct vb_cm_answer){.qpn = 101});
    e = host_cm_wait(p.cm[0], VB_CM_EVENT_REPLY, PATIENCE_MS);
    host_cm_confirm(p.cm[0], e.id);
    host_cm_wait(p.cm[1], VB_CM_EVENT_ESTABLISHED, PATIENCE_MS);
    vb_host_cm_close(p.cm[1]); // and says nothing
    p.cm[1] = NULL;
    host_cm_disconnect(p.cm[0], e.id);
    // Answered by our own manager, for want of another one.
    assert_int_equal(host_cm_wait(p.cm[0], VB_CM_EVENT_DISCONNECTED, PATIENCE_MS).id, e.id);
    host_cm_wait(p.cm[0], VB_CM_EVENT_GONE, PATIENCE_MS);
    ask(&p, 0, p.port[1], 102);
    assert_int_equal(host_cm_wait(p.cm[0], VB_CM_EVENT_REJECTED, PATIENCE_MS).reason,
                     VB_CM_INVALID_SERVICE);
    host_cm_wait(p.cm[0], VB_CM_EVENT_GONE, PATIENCE_MS);
    assert_int_equal(vb_host_cm_bind(p.cm[0], VB_CMA_TCP, &p.port[1]), 0);
    close_place(&p);
}

// ---- who looks

static uint32_t count_records(const struct vb_survey *survey, const char *state, uint32_t lqpn,
                              const char **dst_addr)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < survey->nics; i++) {
        const struct vb_report *r = &survey->nic[i].report;
        assert_int_equal(survey->nic[i].outcome, VB_ASKED_OK);
        for (uint32_t j = 0; j < r->records; j++) {
            const char *number = vb_record_get(&r->record[j], "lqpn");
            assert_string_equal(vb_record_get(&r->record[j], "ps"), "TCP");
            if (strcmp(vb_record_get(&r->record[j], "state"), state) != 0 ||
                (lqpn && (!number || strtoul(number, NULL, 10) != lqpn)))
                continue;
            found++;
            *dst_addr = vb_record_get(&r->record[j], "dst-addr");
        }
    }
    return found;
}

static void test_who_looks(void **state)
{
    struct place p;
    struct vb_survey survey;
    char address[16], wanted[32];
    const char *peer;
    uint64_t now_ns;

    (void)state;
    open_place(&p, 7, 0, true);
    uint32_t id = ask(&p, 0, p.port[1], 100);
    struct vb_cm_event e = host_cm_wait(p.cm[1], VB_CM_EVENT_REQUEST, PATIENCE_MS);
    host_cm_accept(p.cm[1], e.id, &(struct vb_cm_answer){.qpn = 101});
    host_cm_wait(p.cm[0], VB_CM_EVENT_REPLY, PATIENCE_MS);
    assert_int_equal(vb_survey_take(&survey, "cm_id", getpid(), PATIENCE_MS * 1000000ull), 0);
    assert_int_equal(survey.nics, NICS);
    assert_int_equal(count_records(&survey, "LISTEN", 0, &peer), NICS);
    assert_null(peer);
    assert_int_equal(count_records(&survey, "CONNECT", 0, &peer), 2);
    assert_int_equal(count_records(&survey, "CONNECT", 100, &peer), 1);
    pair_address(1, address);
    snprintf(wanted, sizeof wanted, "%s:%u", address, p.port[1]);
    assert_string_equal(peer, wanted);
    vb_survey_free(&survey);
    struct vb_cm *cm = vb_host_cm_enter(p.cm[0], &now_ns);
    (void)vb_cm_abandon(cm, now_ns, id);
    vb_host_cm_leave(p.cm[0]);
    host_cm_wait(p.cm[1], VB_CM_EVENT_REJECTED, PATIENCE_MS);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_have_managers), cmocka_unit_test(test_the_last_has_none),
        cmocka_unit_test(test_only_one_has),      cmocka_unit_test(test_two_units),
        cmocka_unit_test(test_who_has_gone),      cmocka_unit_test(test_who_looks),
    };
    return cmocka_run_group_tests(tests, runtime_dir_make, runtime_dir_remove);
}
